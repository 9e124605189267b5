"""Test files that import a package which is not everywhere are named in ``conftest.NEEDS``: without it they are left out, and told."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
OURS = {path.stem: path for folder in ("python", "tidy") for path in (TESTS / folder).glob("*.py")}
SPARK = ("pyspark", "offsetlog.spark")


def imported(path: Path) -> set[str]:
    """What a file imports when it is loaded."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return names


def imports_spark(path: Path, seen: set[Path]) -> bool:
    """Whether a file needs PySpark, itself or through a file of the tests."""
    if path in seen:
        return False
    seen.add(path)
    return any(name.startswith(SPARK) or (name in OURS and imports_spark(OURS[name], seen)) for name in sorted(imported(path)))


def test_files_that_need_pyspark_are_named() -> None:
    text = (TESTS / "conftest.py").read_text(encoding="utf-8")
    (needs,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "NEEDS"
    )
    found = {
        path.relative_to(TESTS).as_posix() for path in OURS.values() if path.name.startswith("test_") and imports_spark(path, set())
    }
    assert found
    assert found <= {name for name, package in needs.items() if package == "pyspark"}
