"""The checker itself: it is told of faults that a log may have after a crash, and finds each."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from promises import Batch, BrokenPromiseError, History, check_all, read_files, tell
from python_driver import PythonDriver

from offsetlog.errors import OffsetLogError


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A log of several segments that was not closed, and what was said of it: ten batches flushed, five only acknowledged."""
    directory, lines = tmp_path_factory.mktemp("told") / "topic-0", list[str]()
    telling = PythonDriver(directory, 1, lines.append)
    for number in range(15):
        telling.append(flush=number == 9)
        if number in {3, 7}:
            telling.roll()
    telling.log._abandon()  # noqa: SLF001  # as a killed process would
    return directory, lines


def history_of(lines: list[str]) -> History:
    """What was said, as a history."""
    history = History()
    history.start(1)
    tell(history, lines)
    return history


def test_sound(told: tuple[Path, list[str]], tmp_path: Path) -> None:
    """Nothing is found where nothing is wrong."""
    shutil.copytree(told[0], tmp_path / "topic-0")
    history = history_of(told[1])
    report = check_all(tmp_path / "topic-0", history, power=False)
    assert not report.clean
    assert len(history.acked) == 15 + 3


def last_log(directory: Path) -> Path:
    """The active segment."""
    return max(directory.glob("*.log"))


def lose_acknowledged(directory: Path) -> None:
    path = last_log(directory)
    path.write_bytes(path.read_bytes()[:-1])


def lose_flushed(directory: Path) -> None:
    path = last_log(directory)
    path.write_bytes(path.read_bytes()[:20])


def zeros_in_the_middle(directory: Path) -> None:
    path = min(directory.glob("*.log"))
    data = bytearray(path.read_bytes())
    data[100:612] = bytes(512)
    path.write_bytes(data)


def invent(directory: Path) -> None:
    with last_log(directory).open("ab") as file:
        file.write(batch_of(PythonDriver(directory.with_name("other-0"), 9, lambda _: None), directory))


def batch_of(other: PythonDriver, directory: Path) -> bytes:
    """A batch that is whole, right in every checksum, follows the last one, and was appended to another log."""
    other.append()
    other.close()
    data = bytearray((directory.with_name("other-0") / f"{0:020}.log").read_bytes())
    log = last_log(directory).read_bytes()
    at = last = 0
    while at < len(log):
        base, length, _, _, _, _, delta = struct.unpack_from(">qiibIhi", log, at)
        at, last = at + 12 + length, base + delta
    data[:8] = struct.pack(">q", last + 1)
    return bytes(data)


def mark_clean(directory: Path) -> None:
    state = directory / ".offsetlog.state"
    stat = last_log(directory).stat()
    lines = state.read_text().splitlines()
    lines.insert(3, f"clean: {int(last_log(directory).stem)} {stat.st_size} {stat.st_mtime_ns}")
    state.write_text("\n".join(lines) + "\n")


FAULTS: dict[str, tuple[Callable[[Path], None], bool]] = {
    "acknowledged batch lost": (lose_acknowledged, False),
    "flushed batch lost": (lose_flushed, True),
    "zeros in the middle": (zeros_in_the_middle, True),
    "batch of another log": (invent, True),
    "clean mark that nobody made": (mark_clean, True),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(fault: str, told: tuple[Path, list[str]], tmp_path: Path) -> None:
    """By the checker, or already by the opening."""
    directory = tmp_path / "topic-0"
    shutil.copytree(told[0], directory)
    spoil, power = FAULTS[fault]
    spoil(directory)
    with pytest.raises((BrokenPromiseError, OffsetLogError)):
        check_all(directory, history_of(told[1]), power=power)


def test_files_are_read_without_the_engine(told: tuple[Path, list[str]]) -> None:
    """The parser of the checker finds what was said, in order."""
    history = history_of(told[1])
    assert read_files(told[0], history, open_now=True) == history.acked


A, B, C, D = (Batch(1, 0, base, base) for base in range(4))
E = Batch(1, 1, 2, 2)


def history(*, durable: int = 0, pending: Batch | None = None, cutting: int | None = None, old: list[Batch] | None = None) -> History:
    """Four batches of one record, or three with one that was truncated."""
    made = History(run=1, branches=[[A, B, C, D]], end=4, durable=durable, pending=pending, cutting=cutting)
    if old is not None:
        made.branches, made.end = [old, [A, B, E]], 3
    return made


def test_what_may_be_after_a_crash() -> None:
    """Prefixes down to what is durable; the batch that was handed in; what a truncation that is not flushed cut."""
    history().check([], power=True)
    history(durable=2).check([A, B], power=True)
    history(durable=2, pending=Batch(1, 0, 4, 5)).check([A, B, C, D, Batch(1, 0, 4, 5)], power=False)
    history(cutting=1).check([A, B], power=False)
    history(old=[A, B, C, D]).check([A, B, C], power=True)
    history(old=[A, B, C, D]).check([A, B, E], power=False)


@pytest.mark.parametrize(
    ("told_before", "found", "power"),
    [
        (history(durable=2), [A], True),
        (history(), [A, B, C], False),
        (history(), [A, C], True),
        (history(), [B], True),
        (history(), [B, A], True),
        (history(), [A, B, C, D, Batch(1, 0, 4, 5)], True),
        (history(cutting=2), [A], False),
        (history(old=[A, B, C, D]), [A, B, C], False),
        (history(old=[A, B, C, D]), [A, B, E, D], True),
    ],
)
def test_what_may_not_be(told_before: History, found: list[Batch], power: bool) -> None:
    """Lost, out of order, invented, mixed of two pasts."""
    with pytest.raises(BrokenPromiseError):
        told_before.check(found, power=power)


@pytest.mark.parametrize("lost", [0, 1])
def test_an_opening_that_nobody_looked_at(lost: int, tmp_path: Path) -> None:
    """Behind a truncation inside a batch the log ends, once it is opened again, where its records end; what was flushed before is there."""
    told = History()
    told.start(1)
    telling = PythonDriver(tmp_path / "topic-0", 1, told.feed)
    while len(told.acked) < 3 or told.acked[-1].last == told.acked[-1].base:
        telling.append(flush=True)
    telling.truncate(1)
    telling.log._abandon()  # noqa: SLF001  # as a killed process would
    assert told.durable > told.acked[-1].last + 1, "the truncation was not inside a batch"
    lines: list[str] = []
    opened = PythonDriver(tmp_path / "topic-0", 2, lines.append)
    opened.close()
    assert lines[0] == f"opened {told.acked[-1].last + 1}"
    if not lost:
        told.feed(lines[0])
    else:
        with pytest.raises(BrokenPromiseError, match="was durable"):
            told.feed(f"opened {told.acked[-1 - lost].last + 1}")
