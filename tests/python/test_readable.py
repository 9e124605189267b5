"""What is accepted can be read back by a reader with the same limits: every way to append refuses what could not, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from make_log import Row, batch, segment

from offsetlog import LimitExceededError, Log, LogDir, convert
from offsetlog.errors import DecompressionLimitError

KIB = 1 << 10
MANY = [("h", b"")] * 10_001
ENCODED = ((b"h", b""),) * 10_001
LARGE = {"max.message.bytes": 128 << 20}
FIRST = f"{0:020}.log"


def told(action: Callable[[], object], name: str, limit: int) -> LimitExceededError:
    """The refusal: it names the limit and what to do."""
    with pytest.raises(LimitExceededError) as caught:
        action()
    error = caught.value
    assert (error.name, error.limit) == (name, limit)
    assert str(error).startswith(f"not appended: {error.seen} is above the limit {name}, {limit}, so a reader"), error
    assert f"open this log, and then its readers, with a higher {name}" in str(error)
    return error


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_record_of_too_many_headers_is_refused_by_every_verb(tmp_path: Path, codec: str) -> None:
    row: Row = (b"k", b"v", ENCODED)
    encoded = batch(0, [row], codec=0 if codec == "none" else 1)
    with Log.open(tmp_path / "many-0", "a", max_headers=20_000) as many:
        many.append(b"x", headers=MANY)
        record = many.get(0)
    table = pa.table({"value": [b"a", b"b"], "headers": pa.array([[], [{"key": "h", "value": b""}] * 10_001])})
    with Log.open(tmp_path / "orders-0", "a", {"compression.type": "uncompressed" if codec == "none" else codec}) as log:
        log.append(b"before")
        before = (tmp_path / "orders-0" / FIRST).read_bytes()
        ways: list[Callable[[], object]] = [
            lambda: log.append(b"x", headers=MANY),
            lambda: log.append_records([b"fine", record]),
            lambda: log.append_batches(encoded),
            lambda: log.append_arrow(table),
        ]
        for way in ways:
            assert told(way, "max_headers", 10_000).seen == 10_001
        with log.writer() as writer:
            writer.append(b"kept")
            told(lambda: writer.append(b"x", headers=MANY), "max_headers", 10_000)
        assert (tmp_path / "orders-0" / FIRST).read_bytes().startswith(before)
        assert [record.value for record in log.scan()] == [b"before", b"kept"]
        # What is allowed can be read.
        log.append(b"x", headers=MANY[:-1])
        assert len(log.get(2).headers) == len(log.scan(2).to_arrow()["headers"][0]) == 10_000  # type: ignore[union-attr]
    with LogDir.open(tmp_path / "dir", "a") as log_dir:
        log_dir.create_topic("t")
        told(lambda: log_dir.append("t", b"x", headers=MANY), "max_headers", 10_000)


def test_by_default_as_much_is_written_as_is_read(tmp_path: Path) -> None:
    """Of a setting that allows more, only what a reader with the defaults takes."""
    with Log.open(tmp_path / "orders-0", "a", LARGE) as log:
        told(lambda: log.append(bytes(65 << 20)), "max_batch_bytes", 64 << 20)
        assert log.log_end_offset == 0


def test_a_batch_above_what_is_read_is_refused_by_every_verb(tmp_path: Path) -> None:
    value = bytes(70 * KIB)
    encoded = batch(0, [(b"k", value)])
    with Log.open(tmp_path / "orders-0", "a", LARGE, max_batch_bytes=64 * KIB) as log:
        for way in (
            lambda: log.append(value),
            lambda: log.append_records([value]),
            lambda: log.append_batches(encoded),
            lambda: log.append_as_follower(encoded),
            lambda: log.append_arrow(pa.table({"value": [b"a", value]})),
            lambda: log.append_arrow(pa.table({"value": [value], "offset": [5]}), preserve_offsets=True),
        ):
            told(way, "max_batch_bytes", 64 * KIB)
        assert log.log_end_offset == 0
        # Many records that would fit one batch by the settings come as several.
        log.append_arrow(pa.table({"value": [bytes(30 * KIB)] * 4}), batch_bytes=1 << 30)
        assert log.scan().count() == len(list(log.scan())) == 4
        # Compressed it is within the limit on disk, and unpacked too.
        log.append_records([value], compression="zstd")
        assert log.get(4).value == value  # type: ignore[union-attr]
    # Whoever raises the limit writes, and reads with the same.
    with Log.open(tmp_path / "large-0", "a", max_batch_bytes=128 * KIB) as log:
        log.append(value)
        assert log.get(0).value == value  # type: ignore[union-attr]
        with Log.open(tmp_path / "copy-0", "a", max_batch_bytes=64 * KIB) as copy:
            told(lambda: copy.append_log(log), "max_batch_bytes", 64 * KIB)


def test_a_batch_that_unpacks_to_more_than_is_read_is_refused(tmp_path: Path) -> None:
    value = bytes(80 * KIB)
    with Log.open(tmp_path / "orders-0", "a", {"compression.type": "gzip"}, max_decompressed_bytes=64 * KIB) as log:
        for way in (
            lambda: log.append(value),
            lambda: log.append_arrow(pa.table({"value": [b"a", value]})),
        ):
            assert isinstance(told(way, "max_decompressed_bytes", 64 * KIB), DecompressionLimitError)
        with pytest.raises(DecompressionLimitError):
            log.append_batches(batch(0, [(b"k", value)], codec=1))
        assert log.log_end_offset == 0


def test_a_conversion_writes_nothing_that_cannot_be_read(tmp_path: Path) -> None:
    """Of a batch that only fits compressed, uncompressed."""
    segment(tmp_path / "old-0", 0, batch(0, [(b"k", bytes(70 * KIB))], codec=1))
    with pytest.raises(LimitExceededError) as caught:
        convert(tmp_path / "old-0", tmp_path / "new" / "old-0", compression="none", max_batch_bytes=64 * KIB)
    assert caught.value.name == "max_batch_bytes"
    assert not (tmp_path / "new" / "old-0").exists()
