"""README and docs show what happens: every block of code is run, every output compared, every command line exists.

The commands of README.md and docs/cli.md are run by test_cli.py, those of docs/symptoms by test_symptoms.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from pages import ROOT, Block, blocks, read

PAGES = [
    "README.md",
    *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in {"cli.md", "FORMAT.md"}),
    *(
        f"docs/{folder}/{path.name}"
        for folder in ("guides", "internals", "symptoms")
        for path in sorted((ROOT / "docs" / folder).glob("*.md"))
    ),
]
MARK = "-- end of block --"


def examples(found: list[Block]) -> list[tuple[Block, str | None]]:
    """Blocks of Python, each with the output that the page shows right behind it."""
    behind = [*found[1:], Block("", "", 0)][: len(found)]
    return [
        (block, after.text if after.language == "text" else None)
        for block, after in zip(found, behind, strict=True)
        if block.language == "python"
    ]


def outputs(page_examples: list[tuple[Block, str | None]], folder: Path) -> list[str]:
    """Run a page's blocks as one program, as a reader would, and return what each of them printed."""
    script = folder / "page.py"
    script.write_text("".join(f"{block.text}\nprint({MARK!r})\n" for block, _ in page_examples), encoding="utf-8")
    # Spark starts its workers with the `python3` of an activated environment, unless it is told which one.
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    # What a page writes stays out of the tree; what it reads is reached under the same names.
    for name in ("tests", "examples"):
        (folder / name).symlink_to(ROOT / name)
    run = subprocess.run(
        [sys.executable, str(script)], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert run.returncode == 0, run.stderr[-4000:]
    return run.stdout.split(f"{MARK}\n")[:-1]


def lines(text: str) -> list[str]:
    """Without trailing spaces and blank lines at the ends, which a page cannot show."""
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def placed(page: str) -> ParameterSet:
    """A page whose examples start Spark is slow; those of the longest one take a minute."""
    has_spark = any("pyspark" in block.text or "offsetlog.spark" in block.text for block, _ in page_examples(page))
    marks = [pytest.mark.proof] if page == "docs/spark.md" else [pytest.mark.slow] if has_spark else []
    return pytest.param(page, marks=marks)


def page_examples(page: str) -> list[tuple[Block, str | None]]:
    """The examples of a page of this tree."""
    return examples(blocks(read(page)))


@pytest.mark.parametrize("page", [placed(page) for page in PAGES])
def test_python_on_the_page_runs(page: str, tmp_path: Path) -> None:
    found = page_examples(page)
    if not found:
        return
    if any("pyspark" in block.text or "offsetlog.spark" in block.text for block, _ in found):
        pytest.importorskip("pyspark")
    for (block, shown), printed in zip(found, outputs(found, tmp_path), strict=True):
        if shown is not None:
            assert lines(printed) == lines(shown), f"{page}, line {block.line}"


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md"])
def test_commands_on_the_page_exist(page: str) -> None:
    """Shell lines are not run here (they are the installation, or this very test run); what they name must be there."""
    text = read(page)
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    extras = re.findall(
        r"^(\w+) = \[",
        (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[project.optional-dependencies]")[2],
        re.MULTILINE,
    )
    for block in blocks(text):
        if block.language not in {"sh", "bash", "console"}:
            continue
        for line in block.text.splitlines():
            words = line.removeprefix("$ ").split("#")[0].split()
            if words[:1] == ["make"]:
                assert set(words[1:]) <= targets | {"lock"} or "=" in words[-1], line
    for extra in re.findall(r"offsetlog\[(\w+)\]", text):
        assert extra in extras


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md", "docs/cli.md", "docs/FORMAT.md"])
def test_links_on_the_page_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", read(page)):
        assert ((ROOT / page).parent / target).exists(), target


def test_a_wrong_output_is_noticed(tmp_path: Path) -> None:
    """The check above can fail."""
    found = examples(blocks("```python\nprint(1)\n```\n\n```text\n2\n```\n\n```python\nprint(3)\n```\n"))
    assert [shown for _, shown in found] == ["2\n", None]
    assert outputs(found, tmp_path) == ["1\n", "3\n"]
