"""``salvage`` and ``restore`` with the limits of ``open``: what is above one is no damage. The error names the limit, and nothing is left.

A batch that nobody may read is not lost quietly either where damage lies before it, or where only another file has it.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from pathlib import Path

import pytest
from bad_inputs import GOOD, ROWS
from golden import OLD, Golden, named, partitions_of, row
from make_log import GZIP, batch, segment
from test_convert import check
from test_on_corrupt import PARTITIONS as TORN, broken, flipped
from writing import CUT, times, tree

from offsetlog import (
    CorruptBatchError,
    DecompressionLimitError,
    LimitExceededError,
    Log,
    OffsetLogError,
    RestoredPartition,
    recover,
    restore,
    salvage,
)

KIB = 1 << 10
FIRST = f"{0:020}.log"
LARGE = batch(6, [(b"k", b"x" * (700 * KIB))])
LIMIT = 100 * KIB
BEHIND = batch(7, ROWS)


def restored(source: Path, into: Path, **limits: int) -> RestoredPartition:
    """What becomes of the only partition."""
    (each,) = restore(source.parent, into, topics=[source.name.rpartition("-")[0]], **limits).partitions  # type: ignore[arg-type]
    return each


def refused(source: Path, into: Path, name: str, limit: int) -> LimitExceededError:
    """The error of this limit: by ``salvage`` and its dry run, and told of the partition by ``restore``. Nothing is made, and nothing changed."""
    before = tree(source.parent), times(source.parent)
    into.mkdir()
    calls: list[Callable[[], object]] = [
        lambda: salvage(source, into / source.name, **{name: limit}),  # type: ignore[arg-type]
        lambda: salvage(source, into / source.name, dry_run=True, **{name: limit}),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(LimitExceededError) as caught:
            call()
        error = caught.value
        assert (error.name, error.limit) == (name, limit)
        assert (error.seen or 0) > limit
        assert Path(error.path or "").is_relative_to(source.parent)
        assert f"open with a higher {name}" in str(error)
    each = restored(source, into, **{name: limit})
    # An end that is not found for a limit is known before anything is made.
    assert each.state in ("failed", "refused")
    assert not each.records
    assert f"limit {name} reached: {error.seen} met, {limit} allowed" in (each.reason or "")
    assert [path for path in into.rglob("*") if path.name == source.name or path.suffix == ".log"] == []
    assert (tree(source.parent), times(source.parent)) == before
    return error


CODECS = named(*(f"g-codec-{codec}-0" for codec in ("gzip", "lz4", "snappy", "zstd")))
OLD_ENDS = tuple(f"-{codec}-0" for codec in ("gzip", "lz4", "snappy", "zstd"))
OLD_CODECS = [golden for golden in partitions_of((OLD / "broker-1",), "kafka-2.8.2") if golden.name.endswith(OLD_ENDS)]


def test_there_are_logs_of_every_codec() -> None:
    for logs in (CODECS, OLD_CODECS):
        for codec in ("gzip", "snappy", "lz4"):
            assert any(codec in golden.name for golden in logs), codec
    assert any("zstd" in golden.name for golden in CODECS)


@pytest.mark.parametrize("golden", CODECS + OLD_CODECS, ids=lambda golden: golden.id)
def test_a_batch_that_unpacks_to_more_than_allowed_is_an_error(golden: Golden, tmp_path: Path) -> None:
    """A limit that takes the largest batch gives every record; one byte less gives an error, and no log without that batch."""
    old = golden.copy(tmp_path / "old")

    def is_refused(limit: int) -> bool:
        try:
            salvage(old, tmp_path / "dry" / golden.name, dry_run=True, max_decompressed_bytes=limit)
        except DecompressionLimitError as error:
            assert (error.seen or 0) > limit  # noqa: PT017
            return True
        return False

    limit = bisect.bisect_left(range(1 << 20), x=True, lo=1, key=lambda limit: not is_refused(limit))
    assert limit > 1, "nothing here is compressed"
    error = refused(old, tmp_path / "refused", "max_decompressed_bytes", limit - 1)
    assert isinstance(error, DecompressionLimitError)
    assert error.offset is not None
    check(golden, Path(salvage(old, tmp_path / "new" / golden.name, max_decompressed_bytes=limit).path))
    each = restored(old, tmp_path / "restored", max_decompressed_bytes=limit)
    assert (each.state, each.records, each.losses) == ("restored", golden.counts[0], ())


@pytest.mark.parametrize("name", ["g-plain-0", "g-retained-0", "g-txn-0"])
def test_a_batch_that_is_larger_than_allowed_is_an_error(name: str, tmp_path: Path) -> None:
    (golden,) = named(name)
    old = golden.copy(tmp_path / "old")
    with Log.open(old) as log:
        largest = max(each.size_bytes for each in log.batches())
    refused(old, tmp_path / "refused", "max_batch_bytes", largest - 1)
    check(golden, Path(salvage(old, tmp_path / "new" / golden.name, max_batch_bytes=largest).path))
    assert restored(old, tmp_path / "restored", max_batch_bytes=largest).records == golden.counts[0]


def closed(path: Path, *batches: bytes) -> None:
    segment(path, 0, *batches)
    segment(path, 1000, batch(1000, ROWS))


def active(path: Path, *batches: bytes) -> None:
    segment(path, 0, *batches)


DAMAGED = batch(3, ROWS)


@pytest.mark.parametrize("behind", [(), (BEHIND,)], ids=["last", "not last"])
@pytest.mark.parametrize("place", [closed, active])
@pytest.mark.parametrize("damage", [broken, flipped])
def test_a_large_batch_behind_damage_is_not_taken_for_damage(
    damage: Callable[[bytes], bytes], place: Callable[..., None], behind: tuple[bytes, ...], tmp_path: Path
) -> None:
    """It is there for whoever allows its size; for others it is that limit's error, and no hole, and no torn tail."""
    old = tmp_path / "old" / "orders-0"
    old.parent.mkdir()
    place(old, GOOD, damage(DAMAGED), LARGE, *behind)
    offsets = [0, 1, 2, 6, *([7, 8, 9] if behind else []), *([1000, 1001, 1002] if place is closed else [])]
    report = salvage(old, tmp_path / "all" / old.name)
    with Log.open(report.path) as log:
        assert [record.offset for record in log.scan()] == offsets
    assert (report.losses[0].start, report.losses[0].stop, report.torn_tail_bytes) == (3, 6, 0)
    error = refused(old, tmp_path / "refused", "max_batch_bytes", LIMIT)
    assert (error.seen, error.position) == (len(LARGE), len(GOOD) + len(DAMAGED))
    with Log.open(old, max_batch_bytes=LIMIT) as log:
        # What is damaged is damage, and no torn tail, which would end the log without a word.
        with pytest.raises(CorruptBatchError):
            list(log.scan())
        with pytest.raises(LimitExceededError):
            list(log.scan(on_corrupt="skip"))


@pytest.mark.parametrize("limit", [LIMIT, len(LARGE) - 1])
def test_a_large_batch_of_an_unknown_magic_is_damage(limit: int, tmp_path: Path) -> None:
    """The checksum does not cover that byte. The batch is whole, so the log has not ended before it."""
    old = tmp_path / "old" / "orders-0"
    old.parent.mkdir()
    active(old, GOOD, LARGE[:16] + b"\x09" + LARGE[17:])
    told = salvage(old, tmp_path / "all" / old.name)
    assert [(loss.start, loss.stop) for loss in told.losses] == [(3, None)]
    assert told.torn_tail_bytes == 0
    small = salvage(old, tmp_path / "small" / old.name, max_batch_bytes=limit)
    assert small._replace(path="") == told._replace(path="")


def test_a_large_batch_that_is_not_whole_is_a_torn_tail(tmp_path: Path) -> None:
    """Searching for what lies behind damage does not take part of one for a batch."""
    old = tmp_path / "old" / "orders-0"
    old.parent.mkdir()
    active(old, GOOD, flipped(DAMAGED), flipped(LARGE))
    for limit in (LIMIT, 64 << 20):
        report = salvage(old, tmp_path / str(limit) / old.name, max_batch_bytes=limit)
        assert (report.records, report.torn_tail_bytes) == (3, len(DAMAGED) + len(LARGE))


def test_opening_does_not_cut_a_large_batch_as_a_torn_tail(tmp_path: Path) -> None:
    """Opening refuses to cut whole batches, however large. What is cut by who asks for it is told with its records."""
    old = tmp_path / "orders-0"
    active(old, GOOD, flipped(DAMAGED), LARGE)
    before = (old / FIRST).read_bytes()
    (cut,) = recover(old, dry_run=True).cut
    assert (cut.had_batches, cut.records, cut.offsets) == (True, 1, (6, 6))
    for limit in (64 << 20, LIMIT):
        with pytest.raises((CorruptBatchError, LimitExceededError)):
            Log.open(old, "a", max_batch_bytes=limit)
        assert (old / FIRST).read_bytes() == before
        assert not (old / CUT).exists()


PACKED = batch(3, [(b"k", b"\0" * LIMIT)] * 3, codec=GZIP)


def test_a_kept_batch_that_unpacks_to_more_is_an_error(tmp_path: Path) -> None:
    """What recovery cut is not left out for its size."""
    old = tmp_path / "old" / "orders-0"
    old.parent.mkdir()
    active(old, GOOD, PACKED, flipped(batch(6, ROWS)), batch(9, [(b"k", b"\0" * LIMIT)], codec=GZIP))
    assert recover(old).log_end_offset == 6
    report = salvage(old, tmp_path / "all" / old.name)
    assert [(taken.first_offset, taken.last_offset) for taken in report.taken_back] == [(9, 9)]
    # Now only the kept file has one.
    with Log.open(old, "a") as log:
        log.delete_records_before(6)
    for file in old.glob("*.log"):
        if file.stat().st_size:
            file.write_bytes(GOOD + batch(3, ROWS))
    error = refused(old, tmp_path / "refused", "max_decompressed_bytes", LIMIT)
    assert CUT in Path(error.path or "").parts


def test_a_replica_that_may_not_be_unpacked_is_told_with_the_hole(tmp_path: Path) -> None:
    """A hole that it would fill stays a loss, and the report says which limit keeps it open."""
    logs = [tmp_path / f"dead-{number}" / "orders-0" for number in (1, 2)]
    for log, middle in zip(logs, (flipped(PACKED), PACKED), strict=True):
        log.parent.mkdir()
        segment(log, 0, GOOD, middle, batch(6, ROWS))
        segment(log, 9, batch(9, ROWS))
        (log / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    sources = [log.parent for log in logs]
    (each,) = restore(sources, tmp_path / "all").partitions
    assert (each.source, each.records) == (str(logs[0]), 12)
    assert [(taken.path, taken.records) for taken in each.taken_back] == [(str(logs[1]), 3)]
    (each,) = restore(sources, tmp_path / "less", max_decompressed_bytes=LIMIT).partitions
    assert (each.state, each.records) == ("restored", 9)
    assert [(loss.start, loss.stop, loss.records_max) for loss in each.losses] == [(3, 6, 3)]
    told = [left for left in each.left_out if "limit max_decompressed_bytes reached" in left.reason]
    assert [(left.path, left.first_offset, left.last_offset) for left in told] == [(str(logs[1]), 3, 5)]


def test_a_longer_replica_whose_end_is_above_a_limit_is_told(tmp_path: Path) -> None:
    """The shorter one is no silent substitute."""
    logs = [tmp_path / f"dead-{number}" / "orders-0" for number in (1, 2)]
    for log, last in zip(logs, ((), (LARGE,)), strict=True):
        log.parent.mkdir()
        active(log, GOOD, DAMAGED, *last)
    sources = [log.parent for log in logs]
    (each,) = restore(sources, tmp_path / "all").partitions
    assert (each.source, each.records) == (str(logs[1]), 7)
    report = restore(sources, tmp_path / "less", max_batch_bytes=LIMIT)
    assert report.has_losses
    (each,) = report.partitions
    assert (each.source, each.records) == (str(logs[0]), 6)
    told = f"limit max_batch_bytes reached: {len(LARGE)} met, {LIMIT} allowed"
    assert [(other.path, told in other.less) for other in each.other_replicas] == [(str(logs[1]), True)]
    assert any(told in warning for warning in report.warnings)


@pytest.mark.parametrize("count", [1, 2])
def test_few_open_files_change_nothing(count: int, tmp_path: Path) -> None:
    """That limit bounds what is open at once; no log is above it."""
    golden = TORN["g-torn-flip-old-0"]
    old = golden.copy(tmp_path / "old")
    recover(old)
    report = salvage(old, tmp_path / "all" / golden.name)
    few = salvage(old, tmp_path / "few" / golden.name, max_open_files=count)
    assert few._replace(path="") == report._replace(path="")
    assert report.taken_back
    each = restored(old, tmp_path / "restored", max_open_files=count)
    assert (each.state, each.records) == ("restored", report.records)
    trees = [tree(tmp_path / folder / golden.name, without=(".offsetlog.state",)) for folder in ("all", "few")]
    assert trees[0] == trees[1]
    with Log.open(tmp_path / "restored" / golden.name) as log, Log.open(report.path) as other:
        assert list(map(row, log.scan())) == list(map(row, other.scan()))


LIMITS_AT_OPENING = {"max_headers": "g-clients-0", "max_segments": "g-plain-0"}


@pytest.mark.parametrize("name", LIMITS_AT_OPENING)
def test_other_limits_are_errors_too(name: str, tmp_path: Path) -> None:
    (golden,) = named(LIMITS_AT_OPENING[name])
    old = golden.copy(tmp_path / "old")
    with pytest.raises(LimitExceededError, match=f"limit {name} reached"):
        salvage(old, tmp_path / "new" / golden.name, **{name: 1})  # type: ignore[arg-type]
    assert not (tmp_path / "new" / golden.name).exists()
    try:
        report = restore(old.parent, tmp_path / "restored", topics=[golden.topic], **{name: 1})  # type: ignore[arg-type]
    except OffsetLogError as error:
        assert f"limit {name} reached" in str(error)  # noqa: PT017
    else:
        assert [each.state for each in report.partitions] in ([], ["failed"], ["refused"])
        told = [each.reason or "" for each in report.partitions] + list(report.warnings)
        assert any(f"limit {name} reached" in text for text in told)
    assert not list((tmp_path / "restored").rglob("*.log"))


CHECKPOINTS = ("log-start-offset-checkpoint", "replication-offset-checkpoint")


def with_a_start(place: Path, *, others: int = 0) -> Path:
    """A log that begins at offset 32 by its log dir, and ends four records before its high watermark."""
    golden = TORN["g-torn-cut-batch-0"]
    old = golden.copy(place)
    lines = [f"{golden.topic} 0 32", *(f"other {number} 0" for number in range(others))]
    (place / CHECKPOINTS[0]).write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    return old


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_that_is_ignored_is_told(name: str, tmp_path: Path) -> None:
    """With it, deleted records would stay deleted, and an end that was acknowledged and is missing would be a loss."""
    old = with_a_start(tmp_path / "old")
    sound = salvage(old, tmp_path / "sound" / old.name)
    assert (sound.log_start_offset, sound.records, sound.warnings) == (32, 60, ())
    assert [(loss.start, loss.stop) for loss in sound.losses] == [(92, 96)]
    (old.parent / name).write_text("no checkpoint\n")
    report = salvage(old, tmp_path / "new" / old.name)
    assert (report.records, len(report.losses)) == ((92, 1) if name == CHECKPOINTS[0] else (60, 0))
    (warning,) = report.warnings
    assert warning.startswith("ignored: ")
    assert name in warning
    dry = salvage(old, tmp_path / "dry" / old.name, dry_run=True)
    assert dry.warnings == report.warnings


def test_a_checkpoint_that_is_too_large_is_an_error_or_told(tmp_path: Path) -> None:
    old = with_a_start(tmp_path / "start", others=20)
    size = (old.parent / CHECKPOINTS[0]).stat().st_size
    with pytest.raises(LimitExceededError, match=f"limit max_state_file_bytes reached: {size} met"):
        salvage(old, tmp_path / "new" / old.name, max_state_file_bytes=size - 1)
    assert not (tmp_path / "new" / old.name).exists()
    old = with_a_start(tmp_path / "end")
    size = (old.parent / CHECKPOINTS[1]).stat().st_size
    report = salvage(old, tmp_path / "new" / old.name, max_state_file_bytes=size - 1)
    assert (report.records, report.losses) == (60, ())
    (warning,) = report.warnings
    assert f"limit max_state_file_bytes reached: {size} met" in warning
