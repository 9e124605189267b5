"""The check of the bench that restores beside `cp`: what lacks a byte or a record is not a figure, but an error."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from writing import filled

from offsetlog import Log, restore

SCRIPTS = Path(__file__).resolve().parents[2] / "benches" / "python"


def a_segment_is_missing(copied: Path, _: Path) -> None:
    max(copied.rglob("*.log")).unlink()


def a_restored_segment_is_missing(_: Path, restored: Path) -> None:
    max(restored.rglob("*.log")).unlink()


def a_byte_is_another(copied: Path, _: Path) -> None:
    file = min(copied.rglob("*.log"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


BROKEN: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "a segment": (a_segment_is_missing, "bytes in the source"),
    "a restored segment": (a_restored_segment_is_missing, "bytes in the source"),
    "a byte": (a_byte_is_another, "is another one in the copy"),
}


class Counted:
    """What a round of the program that reads records would answer."""

    def __init__(self, count: int, total: int = 0) -> None:
        self.count, self.sum = count, total


def records(log: Path) -> Any:  # noqa: ANN401  # as a round
    with Log.open(log) as opened:
        found = [(record.offset, record.key, record.value) for record in opened.scan()]
    return Counted(len(found), sum(hash(each) for each in found))


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, Path, Path]:
    """The module, the check, and the two copies of a log dir, as the rounds make them."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    rows = importlib.import_module("rescue_rows")
    source, copied, restored = (tmp_path / name for name in ("disk", "copied", "restored"))
    filled(source / "orders-0", 6, segments=2)
    shutil.copytree(source, copied)
    restore(source, restored)
    return rows, rows.Whole(source, copied, restored, records), copied, restored


def test_whole_copies_pass(sides: tuple[Any, Any, Path, Path]) -> None:
    _, check, _, _ = sides
    for _ in range(2):
        check(Counted(0), Counted(1), "restore")


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_missing_is_an_error(what: str, sides: tuple[Any, Any, Path, Path]) -> None:
    rows, check, copied, restored = sides
    breaks, match = BROKEN[what]
    breaks(copied, restored)
    with pytest.raises(rows.DifferentError, match=match):
        check(Counted(0), Counted(1), "restore")


def test_records_and_partitions_are_counted(sides: tuple[Any, Any, Path, Path]) -> None:
    rows, check, copied, restored = sides
    with pytest.raises(rows.DifferentError, match="1 partitions in the source, 0 restored"):
        check(Counted(0), Counted(0), "restore")

    def less(log: Path) -> Any:  # noqa: ANN401  # as a round
        found = records(log)
        return Counted(found.count - (log.parent == restored), found.sum)

    check = rows.Whole(copied.parent / "disk", copied, restored, less)
    with pytest.raises(rows.DifferentError, match=r"orders-0 has 12 records .* restored 11 "):
        check(Counted(0), Counted(1), "restore")
