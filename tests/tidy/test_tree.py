"""The rules of ``rules.py`` over every file of the repository. Nothing here needs the compiled module."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import rules

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = {".git", "target", "build", "dist", "site", "data", "corpus", "artifacts", "__pycache__", "spark-warehouse", "metastore_db"}
TEXT = {".rs", ".py", ".pyi", ".md", ".toml", ".yml", ".java", ".in", ".xml", ".sh"}

TOP = {
    *(".ci", ".gitattributes", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "Cargo.lock", "Cargo.toml", "LICENSE", "Makefile"),
    *("README.md", "SECURITY.md", "benches", "clippy.toml", "docs", "examples", "fuzz", "mkdocs.yml", "pyproject.toml", "python"),
    *("requirements", "rust", "tests"),
}

Rule = Callable[[str, str], Iterator[str]]


def texts(*suffixes: str, below: str = "") -> Iterator[tuple[str, str]]:
    """Every file of ours with one of these suffixes: path from the root, text."""
    for folder, folders, files in os.walk(ROOT / below):
        folders[:] = sorted(
            name for name in folders if name not in SKIPPED and not name.startswith((".venv", ".mypy", ".ruff", ".pytest"))
        )
        for name in sorted(files):
            path = Path(folder) / name
            if path.suffix in suffixes:
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def found(rule: Rule, files: Iterator[tuple[str, str]]) -> list[str]:
    """All that a rule finds in these files."""
    every = list(files)
    assert every, "the rule saw no file"
    return [finding for path, text in every for finding in rule(path, text)]


def test_files_are_short() -> None:
    assert not found(rules.too_long, texts(".rs", ".py", ".pyi", ".java"))


def test_nothing_else_stands_at_the_top() -> None:
    """What a test or a program leaves in the folder that it runs in is none of ours."""
    told = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {path.split("/")[0] for path in told.splitlines()} == TOP


def test_the_first_page_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 80


def test_layers_of_the_engine_point_down() -> None:
    assert not found(rules.upward_use, texts(".rs", below="rust/offsetlog/src"))


def test_every_layer_of_the_rule_exists() -> None:
    """A renamed module must not leave its rule behind."""
    source = ROOT / "rust/offsetlog/src"
    missing = [layer for layer in rules.ENGINE_LAYERS if not (source / f"{layer}.rs").exists() and not (source / layer).is_dir()]
    assert not missing


def test_only_disk_opens_files() -> None:
    assert not found(rules.files_outside_disk, texts(".rs", below="rust"))


def test_protocol_logic_has_no_sockets_threads_or_clock() -> None:
    assert not found(rules.io_in_protocol_logic, texts(".rs", below="rust/offsetlog-net"))


def test_every_module_of_protocol_logic_exists() -> None:
    source = ROOT / "rust/offsetlog-net/src"
    assert not [room for room in rules.PROTOCOL_LOGIC if not (source / f"{room}.rs").exists()]


def test_no_lock_has_an_async_runtime() -> None:
    locks = [ROOT / "Cargo.lock", ROOT / "fuzz" / "Cargo.lock"]
    every = [(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in locks]
    assert all('name = "offsetlog"' in text for _, text in every)
    assert not found(rules.async_runtimes, iter(every))


def test_paths_from_outside_are_asked_whether_they_are_local() -> None:
    assert not found(rules.paths_not_asked, texts(".rs", below="rust"))


def test_unsafe_stays_where_it_is() -> None:
    assert not found(rules.unsafe_elsewhere, texts(".rs", below="rust"))


def test_classes_are_frozen() -> None:
    assert not found(rules.unfrozen_class, texts(".rs", below="rust/offsetlog-python"))


def test_no_paths_of_one_machine() -> None:
    assert not found(rules.machine_paths, ((path, text) for path, text in texts(*TEXT) if not path.startswith("tests/tidy/")))


def test_nothing_is_marked_unfinished() -> None:
    assert not found(rules.left_marks, texts(*TEXT))


def test_fuzzers_are_counted_as_they_are() -> None:
    """Each has a binary, an entry that plain tests run, and a folder of what it found; pages say how many there are."""
    targets = sorted(path.stem for path in (ROOT / "fuzz/fuzz_targets").glob("*.rs"))
    assert sorted(path.name for path in (ROOT / "fuzz/kept").iterdir()) == targets
    binaries = (ROOT / "fuzz/Cargo.toml").read_text(encoding="utf-8")
    assert sorted(re.findall(r'^path = "fuzz_targets/(\w+)\.rs"$', binaries, re.MULTILINE)) == targets
    entries = (ROOT / "rust/offsetlog-faults/src/targets.rs").read_text(encoding="utf-8").partition("TARGETS: ")[2].partition("];")[0]
    # Connections need a server, which the crate of the others does not know.
    connections = (ROOT / "rust/offsetlog-net/tests/connection.rs").read_text(encoding="utf-8")
    own = re.findall(r'"fuzz/kept/(\w+)"', connections)
    assert sorted([*re.findall(r'\("(\w+)", \w+\)', entries), *own]) == targets
    numbers = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen"]
    for page, said in (("docs/COMPATIBILITY.md", r"(\w+) fuzzers' finds"), ("CHANGELOG.md", r"(\w+) fuzz targets")):
        assert re.findall(said, (ROOT / page).read_text(encoding="utf-8")) == [numbers[len(targets)]], page


def test_the_proof_runs_the_tests_of_every_crate() -> None:
    """What only `make check` runs, nothing runs before a change lands."""
    (members,) = re.findall(r"^members = (\[.+\])$", (ROOT / "Cargo.toml").read_text(encoding="utf-8"), re.MULTILINE)
    tested = {
        re.findall(r'^name = "(.+)"$', (ROOT / folder / "Cargo.toml").read_text(encoding="utf-8"), re.MULTILINE)[0]
        for folder in ast.literal_eval(members)
        if any("#[test]" in text for _, text in texts(".rs", below=folder))
    }
    (crates,) = (
        ast.literal_eval(node.value)
        for node in ast.parse((ROOT / "tests/reliability/test_coverage.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CRATES"
    )
    assert tested == set(crates)
    # Where all rows run, which is the proof.
    lanes = (ROOT / ".ci/lanes").read_text(encoding="utf-8")
    assert '[ -n "$marks$name" ] || pytests coverage --timeout 0 "$coverage"' in lanes
    assert "\n\t@$(MAKE) test-reliability MARKS=\n" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_only_the_facade_knows_the_compiled_module() -> None:
    assert not found(rules.native_use, texts(".py", below="python"))


def test_sections_of_the_format_exist() -> None:
    headings = (ROOT / "docs/FORMAT.md").read_text(encoding="utf-8").splitlines()
    sections = {line.lstrip("#").strip() for line in headings if line.startswith("#")}

    def rule(path: str, text: str) -> Iterator[str]:
        return rules.unknown_sections(path, text, sections)

    assert not found(rule, ((path, text) for path, text in texts(".rs", ".py", ".pyi", ".md") if not path.startswith("tests/tidy/")))
    assert sum(text.count("FORMAT.md «") for _, text in texts(".rs")) > 5


def locks() -> Iterator[tuple[str, str]]:
    """The lock files of Python."""
    return texts(".txt", below="requirements")


def test_locks_name_no_host() -> None:
    assert not found(rules.host_names, locks())


def test_locks_are_exact() -> None:
    assert not found(rules.unpinned, locks())


def test_the_rust_lock_names_only_the_public_registry() -> None:
    sources = {line for line in (ROOT / "Cargo.lock").read_text().splitlines() if line.startswith("source = ")}
    assert sources == {'source = "registry+https://github.com/rust-lang/crates.io-index"'}


def test_names_are_listed_and_sorted() -> None:
    private = ("python/offsetlog/_offsetlog.pyi",)
    files = [(path, text) for path, text in texts(".py", below="python") if path not in private]
    assert not found(rules.unsorted_names, iter(files))


def test_every_target_is_in_help() -> None:
    done = subprocess.run(["make", "help"], capture_output=True, text=True, check=True, cwd=ROOT)
    named = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("make ")}
    tiers = {"check", "test", "proof", "lint", "soak", "mutants", "fuzz"}
    parts = {"test-rust", "test-python", "test-oracle", "test-spark", "test-spark40", "test-broker", "test-net", "test-reliability"}
    assert named == tiers | parts | {"help", "demo", "bench", "bench-scale", "miri", "docs", "wheel", "dist", "dist-check", "clean"}


def test_make_keeps_what_it_made() -> None:
    """What a rule for any name makes on the way to another file is deleted at the end of the call: the next one misses it."""
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    targets = [re.sub(r"\$\([^)]*\)", "", line).split(":")[0] for line in lines if ":" in line and not line.startswith(("\t", "#"))]
    assert "test" in targets
    assert not [target for target in targets if "%" in target]
