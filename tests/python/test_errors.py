"""Every error, made to happen: its class, its attributes, its text, its pickle."""

from __future__ import annotations

import errno
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from make_log import GZIP, Row, batch, segment

import offsetlog
from offsetlog import Log, LogDir, errors

ROWS: list[Row] = [(b"k", b"v" * 20)] * 3
BATCH_BYTES = len(batch(0, ROWS))
FIRST = "orders-0/00000000000000000000.log"

# Reading takes indexes and snapshots as hints and works without them, so it never complains about them; they will be raised by
# what verifies and repairs. No structure that reading must understand has another version than the ones it knows.
NOT_RAISED_BY_READING = {
    # Of several partitions only: test_unread_partitions.py.
    errors.UnreadPartitionsError,
    errors.CorruptIndexError,
    errors.CorruptTxnIndexError,
    errors.CorruptSnapshotError,
    errors.UnsupportedVersionError,
}
# Roots of the others.
FAMILIES = {errors.OffsetLogError, errors.CorruptionError, errors.UnsupportedFormatError, errors.AppendOrderError}
# Only appending raises these; test_append_errors.py holds them.
RAISED_BY_APPENDING = {
    errors.ClusterError,
    errors.CompressionError,
    errors.ForkedLogError,
    errors.InvalidTimestampError,
    errors.InvalidTxnStateError,
    errors.LogLockedError,
    errors.LogPoisonedError,
    errors.OffsetsOutOfOrderError,
    errors.OutOfOrderSequenceError,
    errors.ProducerFencedError,
    errors.ReadOnlyLogError,
    errors.RecordBatchTooLargeError,
    errors.RecordRejectedError,
    errors.RecordTooLargeError,
    errors.TransactionCoordinatorFencedError,
    errors.UnexpectedAppendOffsetError,
}

E = TypeVar("E", bound=offsetlog.OffsetLogError)

raised: set[type[BaseException]] = set()


def log_of(tmp_path: Path, *batches: bytes) -> Path:
    """A closed segment of these batches, with another one behind it: nothing of it can be a torn tail."""
    path = tmp_path / "orders-0"
    segment(path, 0, *batches)
    segment(path, 1000, batch(1000, ROWS))
    return path


def check(action: Callable[[], object], kind: type[E], text: str, **attributes: object) -> E:
    """Run `action`; its error is exactly of this class, with this text and these attributes, also after a pickle."""
    with pytest.raises(kind) as caught:
        action()
    error = caught.value
    assert type(error) is kind
    raised.add(kind)
    assert str(error) == text
    expected: dict[str, object] = dict.fromkeys(("path", "position", "offset", "found", "expected"))
    expected.update(attributes)
    assert vars(error) == expected
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == text
    assert vars(again) == vars(error)
    return error


def read(path: Path, **limits: int) -> Callable[[], object]:
    """Read all records."""
    return lambda: list(Log.open(path, **limits).scan())  # type: ignore[call-overload]


def test_checksum(tmp_path: Path) -> None:
    bad = bytearray(batch(3, ROWS))
    bad[-1] ^= 1
    path = log_of(tmp_path, batch(0, ROWS), bytes(bad))
    stored = int.from_bytes(bad[17:21], "big")
    with pytest.raises(errors.CorruptBatchError) as caught:
        read(path)()
    computed = caught.value.expected
    assert computed is not None
    assert int(computed, 16) != stored
    check(
        read(path),
        errors.CorruptBatchError,
        f"record batch checksum mismatch: stored {stored:#010x}, computed {computed} (CRC-32C); {FIRST} position {BATCH_BYTES}, base offset 3",
        path=str(path / f"{0:020}.log"),
        position=BATCH_BYTES,
        offset=3,
        found=f"{stored:#010x}",
        expected=computed,
    )


def test_records_before_the_damage_are_given_first(tmp_path: Path) -> None:
    bad = bytearray(batch(3, ROWS))
    bad[-1] ^= 1
    iterator = iter(Log.open(log_of(tmp_path, batch(0, ROWS), bytes(bad), batch(6, ROWS))).scan())
    assert [next(iterator).offset for _ in range(3)] == [0, 1, 2]
    with pytest.raises(errors.CorruptBatchError):
        next(iterator)
    assert list(iterator) == []


def test_unchecked_checksum_is_the_callers_wish(tmp_path: Path) -> None:
    bad = bytearray(batch(0, ROWS))
    bad[-2] ^= 1
    assert Log.open(log_of(tmp_path, bytes(bad))).scan(verify_checksums=False).to_arrow().num_rows == 6


def test_batch_length(tmp_path: Path) -> None:
    path = log_of(tmp_path, batch(0, ROWS), struct.pack(">qi", 3, 5) + bytes(60))
    check(
        read(path),
        errors.CorruptBatchError,
        f"record batch length 5 found, 14 to 2147483635 expected; {FIRST} position {BATCH_BYTES}, base offset 3",
        path=str(path / f"{0:020}.log"),
        position=BATCH_BYTES,
        offset=3,
        found="5",
        expected="14 to 2147483635",
    )


def test_cut_batch_of_a_closed_segment(tmp_path: Path) -> None:
    path = log_of(tmp_path, batch(0, ROWS), batch(3, ROWS)[:-4])
    check(
        read(path),
        errors.CorruptBatchError,
        f"record batch cut short: {BATCH_BYTES} bytes needed, {BATCH_BYTES - 4} available; {FIRST} position {BATCH_BYTES}, base offset 3",
        path=str(path / f"{0:020}.log"),
        position=BATCH_BYTES,
        offset=3,
        found=f"{BATCH_BYTES - 4} bytes",
        expected=f"{BATCH_BYTES} bytes",
    )


def test_cut_batch_of_the_active_segment_is_no_error(tmp_path: Path) -> None:
    segment(tmp_path / "orders-0", 0, batch(0, ROWS), batch(3, ROWS)[:-4])
    log = Log.open(tmp_path / "orders-0")
    assert log.log_end_offset == 3
    assert [record.offset for record in log.scan()] == [0, 1, 2]


def test_record_count(tmp_path: Path) -> None:
    path = log_of(tmp_path, batch(0, ROWS, record_count=7))
    error = check(
        read(path),
        errors.InvalidRecordError,
        f"record 3 items found, 7 expected; {FIRST} position 0, base offset 0",
        path=str(path / f"{0:020}.log"),
        position=0,
        offset=0,
        found="3",
        expected="7",
    )
    assert isinstance(error, ValueError)


def test_decompression(tmp_path: Path) -> None:
    path = log_of(tmp_path, batch(0, codec=GZIP, payload=b"not gzip at all", record_count=2, last_offset_delta=1))
    check(
        read(path),
        errors.DecompressionError,
        f"gzip decompression failed: invalid gzip header; {FIRST} position 0, base offset 0",
        path=str(path / f"{0:020}.log"),
        position=0,
        offset=0,
    )


def test_offset_order(tmp_path: Path) -> None:
    path = log_of(tmp_path, batch(5, ROWS), batch(3, ROWS))
    check(
        read(path),
        errors.OffsetOrderError,
        f"record batch offset 3 found, 8 to 999 expected; {FIRST} position {BATCH_BYTES}, base offset 3",
        path=str(path / f"{0:020}.log"),
        position=BATCH_BYTES,
        offset=3,
        found="3",
        expected="8 to 999",
    )


def test_offset_overflow(tmp_path: Path) -> None:
    path, base = tmp_path / "orders-0", (1 << 63) - 5
    segment(path, base, batch(base, ROWS, last_offset_delta=100))
    check(
        read(path),
        errors.OffsetOverflowError,
        f"record batch offset {base} plus 100 is beyond {(1 << 63) - 1}; orders-0/{base:020}.log position 0, base offset {base}",
        path=str(path / f"{base:020}.log"),
        position=0,
        offset=base,
    )


def test_magic(tmp_path: Path) -> None:
    path = log_of(tmp_path, batch(0, ROWS), batch(3, ROWS, magic=3))
    error = check(
        read(path),
        errors.UnsupportedMagicError,
        f"record batch magic 3 found, 0, 1 or 2 expected; {FIRST} position {BATCH_BYTES}, base offset 3",
        path=str(path / f"{0:020}.log"),
        position=BATCH_BYTES,
        offset=3,
        found="3",
        expected="0, 1 or 2",
    )
    assert isinstance(error, NotImplementedError)
    assert not isinstance(error, errors.CorruptionError)


def test_codec(tmp_path: Path) -> None:
    path = log_of(tmp_path, batch(0, ROWS, codec=6))
    check(
        read(path),
        errors.UnsupportedCodecError,
        f"record batch codec 6 is not one that this magic knows; {FIRST} position 0, base offset 0",
        path=str(path / f"{0:020}.log"),
        position=0,
        offset=0,
        found="6",
        expected="0 to 4",
    )


def test_leader_epoch_checkpoint(tmp_path: Path) -> None:
    path = log_of(tmp_path, batch(0, ROWS))
    file = path / "leader-epoch-checkpoint"
    file.write_text("0\n1\nx 0\n")
    check(
        lambda: Log.open(path).leader_epoch,
        errors.CheckpointError,
        "leader epoch checkpoint line 3: not a number, or one too big for its field; orders-0/leader-epoch-checkpoint",
        path=str(file),
    )
    file.write_text("5\n0\n")
    check(
        lambda: Log.open(path).leader_epoch,
        errors.CheckpointError,
        "leader epoch checkpoint version 5 found, up to 0 can be read; orders-0/leader-epoch-checkpoint",
        path=str(file),
        found="5",
        expected="up to 0",
    )


def test_partition_metadata(tmp_path: Path) -> None:
    path = log_of(tmp_path, batch(0, ROWS))
    (path / "partition.metadata").write_text("version: 0\ntopic_id:x\n")
    check(
        lambda: Log.open(path).topic_id,
        errors.MetadataFileError,
        "partition metadata line 2: the line is not a name, a colon, a blank and a value; orders-0/partition.metadata",
        path=str(path / "partition.metadata"),
    )


def test_segment_size(tmp_path: Path) -> None:
    file = segment(tmp_path / "orders-0", 0)
    os.truncate(file, 1 << 31)
    check(
        read(file.parent),
        errors.SegmentTooLargeError,
        f"segment of 2147483648 bytes found, at most 2147483647 bytes expected; {FIRST}",
        path=str(file),
        found="2147483648 bytes",
        expected="at most 2147483647 bytes",
    )


def test_batch_limit(tmp_path: Path) -> None:
    big = batch(0, [(None, bytes(2_000_000))])
    path = log_of(tmp_path, big)
    assert len(list(Log.open(path, max_batch_bytes=len(big)).scan())) == 4
    limit = len(big) - 1
    error = check(
        read(path, max_batch_bytes=limit),
        errors.LimitExceededError,
        f"limit max_batch_bytes reached: {limit + 1} met, {limit} allowed; open with a higher max_batch_bytes to read on; {FIRST} position 0",
        path=str(path / f"{0:020}.log"),
        position=0,
        name="max_batch_bytes",
        limit=limit,
        seen=limit + 1,
    )
    assert isinstance(error, ValueError)


def test_decompression_limit(tmp_path: Path) -> None:
    path = log_of(tmp_path, batch(0, [(b"k", bytes(100_000))], codec=GZIP))
    with pytest.raises(errors.DecompressionLimitError) as caught:
        read(path, max_decompressed_bytes=1000)()
    seen = caught.value.seen
    assert seen is not None
    assert seen > 1000
    error = check(
        read(path, max_decompressed_bytes=1000),
        errors.DecompressionLimitError,
        f"limit max_decompressed_bytes reached: {seen} met, 1000 allowed; open with a higher max_decompressed_bytes to read on;"
        f" {FIRST} position 0, base offset 0",
        path=str(path / f"{0:020}.log"),
        position=0,
        offset=0,
        name="max_decompressed_bytes",
        limit=1000,
        seen=seen,
    )
    assert isinstance(error, errors.LimitExceededError)


@pytest.mark.parametrize("requested", [-1, 3, 1 << 62])
def test_offset_out_of_range(tmp_path: Path, requested: int) -> None:
    path = tmp_path / "orders-0"
    segment(path, 0, batch(0, ROWS))
    log = Log.open(path)
    for action in (log.get, log.locate):
        error = check(
            partial(action, requested),
            errors.OffsetOutOfRangeError,
            f"offset {requested} is out of range: readable offsets are 0 to 2; {tmp_path.name}/orders-0",
            path=str(path),
            offset=requested,
            requested=requested,
            log_start_offset=0,
            log_end_offset=3,
        )
        assert isinstance(error, LookupError)


def test_end_of_the_log_can_be_read_from(tmp_path: Path) -> None:
    segment(tmp_path / "orders-0", 0, batch(0, ROWS))
    log = Log.open(tmp_path / "orders-0")
    assert list(log.scan(3)) == []
    assert log.fetch(3).records == b""
    assert list(log.batches(3)) == []
    for action in (lambda: list(log.scan(4)), lambda: log.fetch(4), lambda: log.batches(4), lambda: log.splits(4)):
        with pytest.raises(errors.OffsetOutOfRangeError) as caught:
            action()
        assert (caught.value.requested, caught.value.log_end_offset) == (4, 3)


def test_directory_name(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    path.mkdir()
    check(
        lambda: Log.open(path),
        errors.LogDirError,
        'directory name "orders" is not topic-partition (no \'-\' between topic and partition); a name such as "orders-0" would do; '
        f"{tmp_path.name}/orders",
        path=str(path),
    )


def test_file_name(tmp_path: Path) -> None:
    path = log_of(tmp_path, batch(0, ROWS))
    (path / "x.log").touch()
    with pytest.raises(errors.LogDirError, match=r'file "x\.log" is named like a segment'):
        Log.open(path)


def test_arguments(tmp_path: Path) -> None:
    path = log_of(tmp_path, batch(0, ROWS))
    error = check(
        lambda: Log.open(path).scan(isolation_level="commited"),  # type: ignore[arg-type]
        errors.ConfigError,
        "isolation_level: must be 'read_uncommitted' or 'read_committed', found 'commited'; did you mean 'read_committed'?",
        key="isolation_level",
        value="commited",
    )
    assert isinstance(error, ValueError)
    check(lambda: LogDir.open([]), errors.ConfigError, "paths: none found, at least one log dir expected", key="paths", value=None)
    check(
        lambda: Log.open(path, max_open_files=0),
        errors.ConfigError,
        "max_open_files: must be at least 1, found 0",
        key="max_open_files",
        value="0",
    )
    check(
        lambda: list(Log.open(path).scan(1, 0)),
        errors.ConfigError,
        "stop: 0 found, at least the start 1 expected",
        key="stop",
        value=None,
    )


def test_closed(tmp_path: Path) -> None:
    path = log_of(tmp_path, batch(0, ROWS))
    log = Log.open(path)
    log.close()
    error = check(lambda: log.get(0), errors.LogClosedError, "log is closed; orders-0", path=str(path))
    assert isinstance(error, ValueError)


def test_system_errors_keep_their_number_and_file(tmp_path: Path) -> None:
    missing, file = tmp_path / "orders-0", tmp_path / "orders-1"
    file.touch()
    for opener, path, kind, number in (
        (Log.open, missing, FileNotFoundError, errno.ENOENT),
        (LogDir.open, missing, FileNotFoundError, errno.ENOENT),
        (Log.open, file, NotADirectoryError, errno.ENOTDIR),
        (LogDir.open, file, NotADirectoryError, errno.ENOTDIR),
    ):
        with pytest.raises(kind) as caught:
            opener(path)
        assert type(caught.value) is kind
        assert (caught.value.errno, caught.value.strerror, caught.value.filename) == (number, os.strerror(number), str(path))
        again = pickle.loads(pickle.dumps(caught.value))
        assert (again.errno, again.filename) == (number, str(path))


def test_refused_permission(tmp_path: Path) -> None:
    """Root is refused nothing, so the reading happens under another user's id."""
    path = log_of(tmp_path, batch(0, ROWS))
    path.chmod(0)
    program = (
        "import os, sys, offsetlog\n"
        "if os.geteuid() == 0: os.setegid(65534), os.seteuid(65534)\n"
        "try: offsetlog.Log.open(sys.argv[1])\n"
        "except PermissionError as error: print(error.errno, error.filename)\n"
    )
    for parent in path.parents:
        if parent.owner() == tmp_path.owner() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)
        if parent.name.startswith("pytest-of-"):
            break
    result = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False, timeout=300)
    path.chmod(0o755)
    assert result.stdout == f"{errno.EACCES} {path}\n", result.stderr


def test_text_from_disk_is_escaped(tmp_path: Path) -> None:
    path = tmp_path / "or\x1b[2J\nders"
    path.mkdir()
    with pytest.raises(errors.LogDirError) as caught:
        Log.open(path)
    assert str(caught.value).isprintable()
    assert caught.value.path == str(path)


@pytest.mark.parametrize("name", errors.__all__)
def test_attributes_and_pickle_of_each_class(name: str) -> None:
    """Every field of a constructor is an attribute of the same name, documented in the class or above, and survives a pickle."""
    kind = getattr(errors, name)
    assert issubclass(kind, errors.OffsetLogError)
    given = {key: f"{key}-value" for key in kind._fields}
    with pytest.raises(TypeError, match="has no attribute 'other'"):
        kind("text", other=1)
    error = kind("text", **given)
    assert str(error) == "text"
    assert vars(error) == given
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), vars(again)) == (str(error), vars(error))
    documentation = "\n".join(base.__doc__ or "" for base in kind.__mro__)
    assert all(f"\n    {key}\n" in documentation for key in given)


def test_tree_in_the_documentation_is_the_real_one() -> None:
    tree = errors.__doc__ or ""
    for name in errors.__all__:
        assert f"── {name} " in tree or f"── {name}\n" in tree, name


def test_every_class_was_raised() -> None:
    """Runs last in this file: the tests above made each class happen, but for the ones named with their reason."""
    if not raised:
        pytest.skip("chosen alone; it sums up the tests above")
    every = {getattr(errors, name) for name in errors.__all__}
    assert every - raised == NOT_RAISED_BY_READING | FAMILIES | RAISED_BY_APPENDING
