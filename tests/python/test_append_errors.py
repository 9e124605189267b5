"""Every error that appending raises, made to happen: class, attributes, text, pickle; and nothing is changed by any of them."""

from __future__ import annotations

import errno
import os
import pickle
import resource
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from make_log import GZIP, batch, crc32c
from writing import CONFIG, FIRST, LOCK, NOW, SMALL, Clock, coded, filled, python, refused, state, tree, values

import offsetlog
from offsetlog import AppendInfo, Log, WritableLog, errors

# Codecs' libraries refuse nothing that fits a batch of less than 2 GiB.
NEVER_RAISED = {errors.CompressionError}
# As in test_errors.py: what only appending raises.
RAISED_BY_APPENDING = {
    errors.CompressionError,
    errors.ForkedLogError,
    errors.InvalidTimestampError,
    errors.InvalidTxnStateError,
    errors.LogLockedError,
    errors.LogPoisonedError,
    errors.OffsetsOutOfOrderError,
    errors.OutOfOrderSequenceError,
    errors.ProducerFencedError,
    errors.RecordBatchTooLargeError,
    errors.RecordRejectedError,
    errors.RecordTooLargeError,
    errors.TransactionCoordinatorFencedError,
    errors.UnexpectedAppendOffsetError,
}
# Errors of reading that an append, or the files that are opened, can have too.
RAISED_BY_BOTH = {
    errors.CheckpointError,
    errors.ConfigError,
    errors.DecompressionLimitError,
    errors.LogClosedError,
    errors.LogDirError,
    errors.MetadataFileError,
    errors.OffsetOutOfRangeError,
    errors.UnsupportedCodecError,
    errors.UnsupportedMagicError,
    errors.UnsupportedVersionError,
}

E = TypeVar("E", bound=BaseException)

raised: set[type[BaseException]] = set()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WritableLog]:
    """A log of six records at epoch 2, opened a second time; a producer 5 with a transaction open since offset 6 is in it."""
    path = filled(tmp_path / "orders-0")
    with Log.open(path, "a", clock=Clock()) as log:
        log.append_records([b"t"], producer_id=5, producer_epoch=3, base_sequence=0, transactional=True, leader_epoch=2)
        yield log


def check(log: WritableLog, action: Callable[[], object], kind: type[E], text: str, **attributes: object) -> E:
    """`action` raises exactly this class, text and attributes; nothing is changed; and the next append is fine."""
    error = refused(log, action, kind)
    raised.add(kind)
    assert str(error) == text
    expected: dict[str, object] = dict.fromkeys(("path", "position", "offset", "found", "expected"))
    expected.update(attributes)
    assert vars(error) == expected
    end = log.log_end_offset
    assert log.append(b"fine", key=b"k") == end
    return error


def fails(action: Callable[[], object], kind: type[E], match: str | None = None) -> E:
    """`action` raises exactly this class."""
    with pytest.raises(kind, match=match) as caught:
        action()
    assert type(caught.value) is kind
    raised.add(kind)
    if isinstance(caught.value, offsetlog.OffsetLogError):
        again = pickle.loads(pickle.dumps(caught.value))
        assert vars(again) == vars(caught.value)
    return caught.value


def test_record_too_large(log: WritableLog) -> None:
    log.config = {"max.message.bytes": 200, **SMALL}
    for action in (partial(log.append, bytes(200)), partial(log.append_records, [bytes(100), bytes(100)])):
        error = refused(log, action, errors.RecordTooLargeError, r"record batch of 2\d\d bytes found, at most 200 bytes expected")
        assert isinstance(error, ValueError)
    sent = coded(bytes(200))
    check(
        log,
        lambda: log.append_batches(sent),
        errors.RecordTooLargeError,
        f"record batch of {len(sent)} bytes found, at most 200 bytes expected (max.message.bytes); position 0",
        position=0,
    )
    # What the settings do not allow a producer a follower stores all the same.
    assert log.append_as_follower(coded(bytes(200), base_offset=100)).base_offset == 100


def test_size_is_that_after_compression(log: WritableLog) -> None:
    log.config = {"max.message.bytes": 200, **SMALL}
    assert log.append_records([bytes(5000)], compression="lz4").last_offset == 7
    small = coded(bytes(5000), codec=GZIP)
    assert len(small) < 200
    log.append_batches(small)
    log.config = {"max.message.bytes": 200, "compression.type": "uncompressed", **SMALL}
    refused(log, lambda: log.append_batches(small), errors.RecordTooLargeError, "max.message.bytes")
    refused(log, lambda: log.append_records([bytes(5000)], compression="lz4"), errors.RecordTooLargeError, "max.message.bytes")


def test_append_larger_than_a_segment(log: WritableLog) -> None:
    log.config = {"internal.segment.bytes": 300, **SMALL}
    error = refused(log, lambda: log.append(bytes(300)), errors.RecordBatchTooLargeError)
    follower = [coded(bytes(100), base_offset=100 + n, leader_epoch=9) for n in range(3)]
    size = sum(map(len, follower))
    check(
        log,
        lambda: log.append_as_follower(b"".join(follower), leader_epoch=9),
        errors.RecordBatchTooLargeError,
        f"append of {size} bytes found, at most 300 bytes expected (segment.bytes)",
    )
    assert isinstance(error, errors.RecordTooLargeError)


@pytest.mark.parametrize("way", ["append", "append_records", "append_batches", "writer"])
def test_timestamp_too_far(log: WritableLog, way: str) -> None:
    log.config = {"message.timestamp.before.max.ms": 1000, "message.timestamp.after.max.ms": 500, **SMALL}
    log.append(b"", timestamp=NOW - 1000)
    log.append(b"", timestamp=NOW + 500)
    log.append(b"", timestamp=-1)
    with Log.open(Path(log.path).parent / "other-0", "a", SMALL, clock=Clock()) as other:
        other.append(b"", timestamp=NOW - 1001)
        (old,) = other.scan()
    actions: dict[str, Callable[[], object]] = {
        "append": lambda: log.append(b"", timestamp=NOW - 1001),
        "append_records": lambda: log.append_records([b"fine", old]),
        "append_batches": lambda: log.append_batches(coded(b"", base_timestamp=NOW - 1001)),
        "writer": lambda: write(log),
    }

    def write(log: WritableLog) -> None:
        writer = log.writer(linger_ms=0)
        writer.append(b"", timestamp=NOW - 1001)
        try:
            writer.flush()
        finally:
            writer.close()

    slot = "record 0: " if way == "append_batches" else ""
    error = check(
        log,
        actions[way],
        errors.InvalidTimestampError,
        f"{slot}timestamp {NOW - 1001} found, at most 1000 ms before and 500 ms after {NOW} expected",
    )
    assert isinstance(error, errors.RecordRejectedError)
    assert not isinstance(error, errors.CorruptionError)
    assert isinstance(error, ValueError)
    refused(log, lambda: log.append(b"", timestamp=NOW + 501), errors.InvalidTimestampError, f"timestamp {NOW + 501} found")


def test_append_time_in_the_batch_of_a_client(log: WritableLog) -> None:
    log.config = {"message.timestamp.type": "LogAppendTime", **SMALL}
    refused(log, lambda: log.append_batches(coded(b"x", attributes=8)), errors.InvalidTimestampError, "timestamp")


def test_compacted_topics_want_keys(log: WritableLog) -> None:
    log.config = {"cleanup.policy": "compact", **SMALL}
    text = "record 1 has no key, which compaction needs (cleanup.policy=compact)"
    check(log, lambda: log.append_records([(b"k", b""), b"no key"]), errors.RecordRejectedError, text)
    check(log, lambda: log.append_batches(batch(0, [(b"k", b""), (None, b"")])), errors.RecordRejectedError, text)
    refused(log, lambda: log.append(b"no key"), errors.RecordRejectedError, "record 0 has no key")
    assert log.append_as_follower(batch(50, [(None, b"")])).base_offset == 50


BAD_BATCHES = [
    (coded(b"x", base_offset=3), "base offset 3 found, 0 expected: a leader gives the offsets; position 0"),
    (coded(b"x") + coded(b"y"), "2 batches found, 1 expected"),
    (coded(b"x", record_count=2), "2 records counted, 1 expected by the last offset delta"),
    (coded(record_count=0, last_offset_delta=0), "0 records counted, 1 expected by the last offset delta"),
    (coded(b"x", attributes=0x20), "clients may not append control records"),
    (coded(b"x", producer=(5, 3, -1)), "base sequence -1 found for producer id 5, 0 or more expected"),
]


@pytest.mark.parametrize(("data", "text"), BAD_BATCHES, ids=[text[:30] for _, text in BAD_BATCHES])
def test_batches_that_no_leader_takes(log: WritableLog, data: bytes, text: str) -> None:
    error = refused(log, lambda: log.append_batches(data), errors.RecordRejectedError)
    raised.add(type(error))
    assert str(error) == text


def test_counts_that_lie(log: WritableLog) -> None:
    for rows, count in (([b"x"], 2), ([b"x", b"y"], 1)):
        data = coded(*rows, record_count=count, last_offset_delta=count - 1)
        refused(log, lambda data=data: log.append_batches(data), errors.RecordRejectedError, "record")  # type: ignore[misc]


def test_a_bit_that_flipped_on_its_way(log: WritableLog) -> None:
    """Every single bit behind the offset, the length, the epoch: refused; as a follower too."""
    for at in range(17, len(coded(b"x"))):
        bad = bytearray(coded(b"x", base_offset=0))
        bad[at] ^= 1 << at % 8
        with pytest.raises(errors.RecordRejectedError):
            log.append_batches(bytes(bad))
    bad = bytearray(coded(b"x", base_offset=50))
    bad[-1] ^= 1
    for action in (lambda: log.append_batches(bytes(bad), origin="coordinator"), lambda: log.append_as_follower(bytes(bad))):
        error = refused(log, action, errors.RecordRejectedError, r"record batch checksum mismatch: stored 0x.*\(CRC-32C\); position 0")
        raised.add(type(error))
    good = coded(b"fine", base_offset=50)
    error = refused(
        log,
        lambda: log.append_as_follower(good + coded(b"x", base_offset=51)[:-1] + b"?"),
        errors.RecordRejectedError,
        f"position {len(good)}",
    )
    assert (error.position, error.found is None) == (len(good), False)


def test_lengths_and_formats_that_are_none(log: WritableLog) -> None:
    short = struct.pack(">qi", 0, 13) + bytes(30)
    refused(
        log, lambda: log.append_batches(short), errors.RecordRejectedError, "record batch length 13 found, 14 to 2147483647 expected"
    )
    refused(log, lambda: log.append_batches(coded(b"x") + bytes(30)), errors.RecordRejectedError, "record batch length 0 found")
    magic = bytearray(coded(b"x"))
    magic[16] = 3
    raised.add(
        type(refused(log, lambda: log.append_batches(bytes(magic)), errors.UnsupportedMagicError, "magic 3 found, 0, 1 or 2 expected"))
    )
    for codec in (5, 6, 7):
        data = coded(b"x", attributes=codec)
        error = refused(log, lambda data=data: log.append_batches(data), errors.UnsupportedCodecError, f"{codec}")  # type: ignore[misc]
        raised.add(type(error))
    broken = coded(codec=GZIP, payload=b"not gzip at all", record_count=1, last_offset_delta=0)
    raised.add(type(refused(log, lambda: log.append_batches(broken), errors.RecordRejectedError, "gzip decompression failed")))


def test_a_bomb(tmp_path: Path) -> None:
    with Log.open(tmp_path / "orders-0", "a", SMALL, max_decompressed_bytes=10_000) as log:
        bomb = coded(bytes(1 << 20), codec=GZIP)
        error = refused(log, lambda: log.append_batches(bomb), errors.DecompressionLimitError, "max_decompressed_bytes")
        raised.add(type(error))
        assert (error.name, error.limit) == ("max_decompressed_bytes", 10_000)


def test_follower_offsets(log: WritableLog) -> None:
    check(
        log,
        lambda: log.append_as_follower(coded(b"x", base_offset=6, leader_epoch=9), leader_epoch=9),
        errors.UnexpectedAppendOffsetError,
        "first offset 6 found, 7 or more expected: the log ends there",
    )
    data = coded(b"x", b"y", base_offset=20, leader_epoch=9) + coded(b"x", base_offset=21, leader_epoch=9)
    check(
        log,
        lambda: log.append_as_follower(data, leader_epoch=9),
        errors.OffsetsOutOfOrderError,
        "the offsets of the batches do not ascend",
    )
    refused(
        log, lambda: log.append_as_follower(coded(b"x", base_offset=20, leader_epoch=-1)), errors.ConfigError, "leader_epoch: -1 found"
    )


def send(  # noqa: PLR0913  # one parameter a field
    log: WritableLog, epoch: int, sequence: int, *, producer_id: int = 7, transactional: bool = False, leader_epoch: int | None = None
) -> AppendInfo:
    """Two records of a producer."""
    return log.append_records(
        [b"p", b"q"],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
        leader_epoch=leader_epoch,
    )


def test_sequences(log: WritableLog) -> None:
    send(log, 1, 10)
    error = check(
        log,
        lambda: send(log, 1, 13, leader_epoch=9),
        errors.OutOfOrderSequenceError,
        "out of order sequence of producer 7, epoch 1: 13 found, 12 expected; base offset 9",
        offset=9,
        found="sequence 13",
        expected="sequence 12",
    )
    assert isinstance(error, errors.AppendOrderError)
    assert isinstance(error, ValueError)
    for epoch, sequence, expected in ((1, 9, 12), (1, 0, 12), (2, 12, 0)):
        refused(log, partial(send, log, epoch, sequence), errors.OutOfOrderSequenceError, f"{sequence} found, {expected} expected")
    sent = coded(b"p", producer=(7, 1, 14))
    refused(log, lambda: log.append_batches(sent), errors.OutOfOrderSequenceError, "14 found, 12 expected")
    assert log.append_batches(sent, origin="coordinator").base_offset == log.log_end_offset - 1


def test_sequences_that_come_again_too_late(log: WritableLog) -> None:
    for sequence in range(0, 14, 2):
        send(log, 1, sequence)
    assert send(log, 1, 4).duplicate
    refused(log, partial(send, log, 1, 2), errors.OutOfOrderSequenceError, "2 found, 14 expected")


def test_producer_epochs(log: WritableLog) -> None:
    send(log, 4, 0)
    error = check(
        log,
        lambda: send(log, 3, 2, leader_epoch=9),
        errors.ProducerFencedError,
        "producer 7 is fenced: epoch 3 found, at least 4 expected; base offset 9",
        offset=9,
        found="producer epoch 3",
        expected="at least 4",
    )
    assert isinstance(error, errors.AppendOrderError)
    refused(log, lambda: log.append_marker(7, 3, commit=True), errors.ProducerFencedError, "epoch 3 found, at least 4 expected")
    refused(
        log, lambda: log.append_marker(5, 3, commit=True, transaction_version=2), errors.ProducerFencedError, "producer 5 is fenced"
    )


def test_transactions(log: WritableLog) -> None:
    check(
        log,
        lambda: send(log, 3, 1, producer_id=5, leader_epoch=9),
        errors.InvalidTxnStateError,
        "batch is not transactional, but a transaction of producer 5 is open since offset 6; base offset 7",
        offset=7,
        found="a batch that is not transactional",
        expected="a transactional batch or a marker",
    )
    log.append_marker(5, 3, commit=True, coordinator_epoch=8)
    check(
        log,
        lambda: log.append_marker(5, 3, commit=True, coordinator_epoch=7, leader_epoch=9),
        errors.TransactionCoordinatorFencedError,
        "marker for producer 5 comes from a replaced coordinator: coordinator epoch 7 found, at least 8 expected; base offset 9",
        offset=9,
        found="coordinator epoch 7",
        expected="at least 8",
    )
    raised.add(errors.ProducerFencedError)


def test_offsets_out_of_range(log: WritableLog) -> None:
    error = refused(
        log,
        lambda: log.delete_records_before(8),
        errors.OffsetOutOfRangeError,
        "offset 8 is out of range: readable offsets are 0 to 6",
    )
    raised.add(type(error))
    assert (error.requested, error.log_start_offset, error.log_end_offset) == (8, 0, 7)
    refused(log, lambda: log.get(7), errors.OffsetOutOfRangeError, "out of range")


def test_locked(log: Log) -> None:
    error = fails(lambda: Log.open(log.path, "a"), errors.LogLockedError, f"process {os.getpid()} writes this log")
    assert (error.pid, error.path) == (os.getpid(), f"{log.path}/{LOCK}")
    fails(lambda: offsetlog.recover(log.path), errors.LogLockedError, "writes this log")


def test_forked(log: Log) -> None:
    program = (
        "import os, pickle, sys, offsetlog\n"
        "log = offsetlog.Log.open(sys.argv[1], 'a')\n"
        "if os.fork() == 0:\n"
        "    try: log.append(b'')\n"
        "    except offsetlog.ForkedLogError as error: print(pickle.dumps(error).hex(), flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    error = pickle.loads(bytes.fromhex(python(program, Path(log.path).parent / "forked-0")))
    assert type(error) is errors.ForkedLogError
    assert "was opened for appending in process" in str(error)
    raised.add(type(error))


def test_closed(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "orders-0", "a", SMALL)
    log.close()
    fails(lambda: log.append(b""), errors.LogClosedError, "log is closed; orders-0")


def test_open_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    """Files beside the segments that do not parse: opening says which, and changes nothing."""
    cases: list[tuple[str, bytes, type[offsetlog.OffsetLogError], str | None]] = [
        (CONFIG, b"version: 0\nsegment.ms\n", errors.MetadataFileError, "not a name, an equals sign and a value"),
        (CONFIG, b"version: 0\nsegment.ms=5", errors.MetadataFileError, "newline at the end is missing"),
        (CONFIG, b"version: 0\nsegment.ms=soon\n", errors.MetadataFileError, "not a topic setting with a value that it takes"),
        (CONFIG, b"version: 0\nsegment.days=5\n", errors.MetadataFileError, "not a topic setting"),
        (CONFIG, b"", errors.MetadataFileError, None),
        (CONFIG, b"version: 7\n", errors.UnsupportedVersionError, "version 7 found"),
        ("partition.metadata", b"nonsense", errors.MetadataFileError, None),
        ("leader-epoch-checkpoint", b"0\n2\n0 0\n", errors.CheckpointError, "offsetlog recover"),
        ("foo.log", b"", errors.LogDirError, "is named like a segment"),
    ]
    for number, (name, content, kind, match) in enumerate(cases):
        path = filled(tmp_path / f"orders-{number}")
        (path / name).write_bytes(content)
        before = tree(path)
        error = fails(lambda path=path: Log.open(path, "a"), kind, match)  # type: ignore[misc]
        assert error.path == str(path / name), name
        assert tree(path) == before, name


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file can grow beyond `size`: the nearest thing to a full disk that needs no mount. Python ignores the signal."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("way", ["append", "records", "batches", "follower", "marker", "roll"])
def test_a_disk_that_takes_no_more(log: WritableLog, way: str) -> None:
    """The write fails in its middle; all that was begun, a new leader epoch too, is taken back, and the next append is fine."""
    big = os.urandom(20_000)
    # More than the index files have, which may be cut and grow again.
    log.append(bytes(2000))
    if way == "roll":
        log.config = {"internal.segment.bytes": 21_000, **SMALL}
        log.append(big)
    actions: dict[str, Callable[[], object]] = {
        "append": lambda: log.append(big, leader_epoch=9),
        "records": lambda: log.append_records([b"small", big], leader_epoch=9),
        "batches": lambda: log.append_batches(coded(big, producer=(9, 0, 0)), leader_epoch=9),
        "follower": lambda: log.append_as_follower(
            coded(b"x", base_offset=20, leader_epoch=8) + coded(big, base_offset=30, leader_epoch=9), leader_epoch=9
        ),
        "marker": lambda: log.append_marker(5, 3, commit=False, leader_epoch=9),
        "roll": lambda: log.append(big, leader_epoch=9),
    }
    size = (Path(log.path) / FIRST).stat().st_size
    before, contents = state(log), values(log)
    with pytest.raises(OSError, match="File too large") as caught, file_size_limit(10_000 if way == "roll" else size + 50):
        actions[way]()
    assert (caught.value.errno, str(caught.value.filename).endswith(".log")) == (errno.EFBIG, True)
    after = state(log)
    if way == "roll":
        # The new segment stays, empty, as after any roll.
        assert after._replace(segments=(), recovery_point=0) == before._replace(segments=(), recovery_point=0)
    else:
        assert after == before
        assert (Path(log.path) / FIRST).stat().st_size == size
    assert values(log) == contents
    assert (Path(log.path) / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n2 6\n"
    actions[way]()
    assert log.leader_epoch == 9
    log.close()
    with Log.open(log.path, "a") as again:
        assert again.recovery_report.clean
        assert again.leader_epoch == 9


def test_a_directory_that_vanishes_poisons(log: WritableLog) -> None:
    path = Path(log.path)
    log.append(b"not durable yet")
    path.rename(path.with_name("moved"))
    with pytest.raises(errors.LogDirError, match="is gone: the file or its directory was removed or renamed"):
        log.flush()
    path.with_name("moved").rename(path)
    before = tree(path)
    actions: list[Callable[[], object]] = [
        lambda: log.append(b""),
        lambda: log.append_records([b""]),
        log.flush,
        log.roll,
        lambda: log.truncate_to(0),
        log.close,
    ]
    for action in actions:
        fails(
            action,
            errors.LogPoisonedError,
            r"an earlier failure ended the appending \(the segment .* is gone.*\); open the log again, which recovers it",
        )
        assert tree(path) == before
    assert log.closed
    with Log.open(path, "a") as again:
        assert not again.recovery_report.clean
        assert values(again)[-1] == b"not durable yet"


def test_a_truncation_that_fails_poisons_and_reads_go_on(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0", 4, segments=2)
    log = Log.open(path, "a")
    shutil.move(path / f"{4:020}.log", tmp_path / "away")
    with pytest.raises(FileNotFoundError):
        log.truncate_to(5)
    shutil.move(tmp_path / "away", path / f"{4:020}.log")
    fails(lambda: log.append(b""), errors.LogPoisonedError, "an earlier failure ended the appending")
    assert len(values(log)) == 8
    with pytest.raises(errors.LogPoisonedError):
        log.close()
    with Log.open(path, "a") as again:
        assert len(values(again)) == 8


def test_checksums_of_the_helper_are_right() -> None:
    """What these tests send is refused for what they say, not for a mistake of theirs."""
    sent = coded(b"x", producer=(1, 2, 3))
    assert crc32c(sent[21:]) == int.from_bytes(sent[17:21], "big")


def test_every_class_was_raised() -> None:
    """Runs last in this file."""
    if not raised:
        pytest.skip("chosen alone; it sums up the tests above")
    both = {errors.ConfigError}
    assert raised | both >= (RAISED_BY_APPENDING | RAISED_BY_BOTH) - NEVER_RAISED
    assert not raised & NEVER_RAISED
