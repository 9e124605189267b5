"""Inputs that are wrong, by their number in the table of ``test_bad_inputs.py``, and what reading makes of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from make_log import Row, batch, segment

from offsetlog import Log, OffsetLogError, SalvageReport, Scan, salvage, verify

Case = Callable[[Path], None]

CASES: dict[int, Case] = {}
ROWS: list[Row] = [(b"k", b"v" * 20)] * 3
GOOD = batch(0, ROWS)
NEXT = 1000
AFTER = (6, 7, 8, 1000, 1001, 1002)


class Reading(NamedTuple):
    """What one way of reading gives."""

    offsets: tuple[int, ...]
    error: str | None
    position: int | None


def bad(number: int) -> Callable[[Case], Case]:
    """Enter a case under its number."""

    def entered(case: Case) -> Case:
        assert number not in CASES, number
        CASES[number] = case
        return case

    return entered


def read(scan: Scan) -> Reading:
    """Read to the end or to an error."""
    offsets: list[int] = []
    try:
        offsets.extend(record.offset for record in scan)
    except OffsetLogError as error:
        # What a plain loop has collected before the error is what `extend` keeps.
        return Reading(tuple(offsets), type(error).__name__, error.position)
    return Reading(tuple(offsets), None, None)


def of(path: Path, **options: Any) -> Reading:  # noqa: ANN401  # options of a scan
    """Read a partition."""
    with Log.open(path) as log:
        return read(log.scan(**options))


def closed(tmp_path: Path, *batches: bytes, base_offset: int = 0) -> Path:
    """A closed segment of these bytes, with another one behind it."""
    path = tmp_path / f"bad{len(list(tmp_path.iterdir()))}-0"
    segment(path, base_offset, *batches)
    segment(path, base_offset + NEXT, batch(base_offset + NEXT, ROWS))
    return path


def active(tmp_path: Path, *batches: bytes) -> Path:
    """An active segment of these bytes."""
    path = tmp_path / f"bad{len(list(tmp_path.iterdir()))}-0"
    segment(path, 0, *batches)
    return path


def damaged(tmp_path: Path, middle: bytes, error: str, *, partly: tuple[int, ...] = ()) -> None:
    """Between two whole batches, this one is refused with `error`, and skipped or stopped at when that is asked for.

    It stands for the offsets 3 to 5, of which those in `partly` can be read.
    """
    path = closed(tmp_path, GOOD, middle, batch(6, ROWS))
    before = (0, 1, 2, *partly)
    told(path, error)
    assert of(path) == Reading(before, error, len(GOOD))
    with Log.open(path) as log:
        for threads in (1, 2):
            skip = log.scan(on_corrupt="skip", threads=threads)
            assert skip.to_arrow()["offset"].to_pylist() == [*before, *AFTER]
            (hole,) = skip.report.holes
            assert (hole.path, hole.position, hole.size_bytes) == (str(path / f"{0:020}.log"), len(GOOD), len(middle))
            assert (hole.start, hole.stop, hole.error) == (before[-1] + 1, 6, error)
            assert hole.reason
        assert log.scan(on_corrupt="skip").count() == len(before) + len(AFTER)
        stop = log.scan(on_corrupt="stop")
        assert read(stop) == Reading(before, None, None)
        assert [hole.error for hole in stop.report.holes] == [error]
        # What does not touch the damage does not meet it.
        assert read(log.scan(6, on_corrupt="skip")).offsets == AFTER
        clear = log.scan(0, 3, on_corrupt="skip")
        assert (read(clear).offsets, clear.report.holes) == ((0, 1, 2), ())
    # The next segment begins far behind: a gap, which is told as a loss too, without bytes.
    (loss,) = [loss for loss in rescued(path, *before, *AFTER).losses if loss.bytes]
    # Nothing is counted as taken back that was not.
    assert (loss.taken_back, loss.records_max) == (0, 6 - loss.start)
    assert (loss.position, loss.bytes, loss.start, loss.stop, loss.reason) == (len(GOOD), len(middle), before[-1] + 1, 6, hole.reason)


def rescued(path: Path, *offsets: int) -> SalvageReport:
    """What can be read makes a sound log, and nothing else is in it."""
    with TemporaryDirectory() as folder:
        into = Path(folder, path.name)
        report = salvage(path, into)
        assert report.records == len(offsets)
        assert of(into) == Reading(offsets, None, None)
        told(into)
        return report


def fine(path: Path, *offsets: int) -> None:
    """Reading gives exactly these records, whatever is to be done with damage."""
    for on_corrupt in ("raise", "skip", "stop"):
        assert of(path, on_corrupt=on_corrupt) == Reading(offsets, None, None)
    rescued(path, *offsets)


def torn(path: Path, position: int, size: int, *offsets: int, words: str = "") -> None:
    """Reading gives these records and then the end for now, at an unfinished rest."""
    fine(path, *offsets)
    with Log.open(path) as log:
        scan = log.scan(on_corrupt="skip")
        assert scan.count() == len(offsets)
        (tail,) = scan.report.torn_tails
        assert (tail.position, tail.size_bytes) == (position, size)
        assert words in tail.reason
        assert scan.report.holes == ()
        assert log.log_end_offset == (offsets[-1] + 1 if offsets else 0)


def told(path: Path, *kinds: str, severity: str = "error") -> None:
    """Verifying names exactly these kinds of that severity."""
    assert {finding.kind for finding in verify(path).findings if finding.severity == severity} == set(kinds)
