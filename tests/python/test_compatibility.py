"""``docs/COMPATIBILITY.md`` claims nothing without a test, and every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "COMPATIBILITY.md"
LABEL = r"[A-Z]\d+"
CLAIM = re.compile(rf"\byes\b(: {LABEL}(?:, {LABEL})*)?")
ROW = re.compile(rf"^\| ({LABEL}) \| .* \| (`[^|]+`) \|$", re.MULTILINE)
NAMED = re.compile(r"`([\w./-]+)::(\w*)`")


def claims(text: str) -> list[str]:
    """What stands behind each «yes»: labels, or nothing."""
    body, _, _ = text.partition("\n## The tests")
    _, _, body = body.partition("\n## ")
    return [match[1] or "" for match in CLAIM.finditer(body)]


def labels(text: str) -> dict[str, list[tuple[str, str]]]:
    """The list of tests: file and function by label."""
    return {label: NAMED.findall(cell) for label, cell in ROW.findall(text)}


def is_defined(text: str, path: str, function: str) -> bool:
    """Whether a test of that name begins in this text."""
    if path.endswith(".rs"):
        return re.search(rf"#\[test\]\n(?:\s*#\[.*\]\n)*\s*fn {function}\(", text) is not None
    return re.search(rf"^def {function}\(", text, re.MULTILINE) is not None


def test_every_claim_names_tests_of_the_list() -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = claims(text)
    assert len(found) > 40
    assert all(found), "a «yes» without the test that shows it"
    used = {label for claim in found for label in re.findall(LABEL, claim)}
    assert used == set(labels(text))


def test_every_test_named_on_the_page_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    listed = labels(text)
    assert len(listed) == len(ROW.findall(text)) > 20
    for label, tests in listed.items():
        assert tests, label
    for path, function in NAMED.findall(text):
        assert is_defined((ROOT / path).read_text(encoding="utf-8"), path, function), f"{path} has no test {function}"


def test_brokers_on_the_page_are_those_that_are_run() -> None:
    text = PAGE.read_text(encoding="utf-8")
    conftest = (ROOT / "tests" / "broker" / "conftest.py").read_text(encoding="utf-8")
    run = re.search(r"^VERSIONS = \((.*)\)$", conftest, re.MULTILINE)
    assert run is not None
    _, _, table = text.partition("\n## offsetlog writes, Kafka opens")
    table, _, _ = table.partition("\n## ")
    claimed = re.findall(r"^\| (\d[\d.]*\d) \| yes", table, re.MULTILINE)
    assert sorted(claimed) == sorted(re.findall(r"\"([\d.]+)\"", run[1]))


@pytest.mark.parametrize(
    ("path", "text", "there"),
    [
        ("a.py", "def test_a() -> None:", True),
        ("a.py", "def test_a_b() -> None:", False),
        ("a.py", "# def test_a() -> None:", False),
        ("a.rs", "#[test]\nfn test_a() {", True),
        ("a.rs", "    #[test]\n    #[cfg(unix)]\n    fn test_a() {", True),
        ("a.rs", "fn test_a() {", False),
    ],
)
def test_a_missing_test_is_noticed(path: str, text: str, there: bool) -> None:
    """The check above can fail."""
    assert is_defined(text, path, "test_a") == there
    assert claims("\n## A\n\nyes, it does; yes: A1, B2\n\n## The tests\n\nyes") == ["", ": A1, B2"]
