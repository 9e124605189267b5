"""What we encode, other libraries decode: kafka-python and aiokafka read our ``.log`` files as they lie there."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from golden import Row
from hypothesis import given, strategies as st
from peers import Appended
from strategies import headers, parts, timestamps

from offsetlog import Log, Record, WritableLog

with warnings.catch_warnings():
    # kafka-python reads its schemas through a function that newer Pythons call deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
    from kafka.record import MemoryRecords as KafkaPythonRecords

DECODERS: dict[str, Callable[[bytes], Any]] = {"kafka-python": KafkaPythonRecords, "aiokafka": AiokafkaRecords}
# Offsets, times and epochs of the builders are the log's business; here they are only numbers that have to arrive.
EPOCH = 3
NOW = 1_700_000_000_000
# A record that is early by our clock is taken at any time, one that is late only up to an hour.
SETTINGS = {"message.timestamp.after.max.ms": 2**63 - 1, "max.message.bytes": 16 << 20}

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
NUMBERS: dict[Codec, int] = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

every_decoder = pytest.mark.parametrize("decoder", DECODERS)
every_codec = pytest.mark.parametrize("codec", NUMBERS)


def batches(decoder: str, path: Path) -> Iterator[Any]:
    """The batches of a directory's ``.log`` files; whole, with right checksums, and nothing left over."""
    for file in sorted(path.glob("*.log")):
        data = file.read_bytes()
        records = DECODERS[decoder](data)
        size = 0
        while (batch := records.next_batch()) is not None:
            assert batch.magic == 2
            assert batch.validate_crc()
            size += 12 + int.from_bytes(data[size + 8 : size + 12], "big")
            yield batch
        assert size == len(data)


def decoded(decoder: str, path: Path) -> list[Row]:
    """The records of a directory, read by somebody else."""
    return [
        Row(
            record.offset,
            record.timestamp,
            record.timestamp_type,
            EPOCH,
            None if record.key is None else bytes(record.key),
            None if record.value is None else bytes(record.value),
            tuple((name, None if value is None else bytes(value)) for name, value in record.headers),
        )
        for batch in batches(decoder, path)
        if not batch.is_control_batch
        for record in batch
    ]


def ours(records: Sequence[Appended]) -> list[Record]:
    """Records as our API takes them."""
    return [Record("any", 0, 0, each.timestamp, key=each.key, value=each.value, headers=each.headers) for each in records]


def expected(records: Sequence[Appended], *, append_time: int | None = None) -> list[Row]:
    """What the decoders must find."""
    return [
        Row(
            offset,
            record.timestamp if append_time is None else append_time,
            0 if append_time is None else 1,
            EPOCH,
            record.key,
            record.value,
            tuple(record.headers),
        )
        for offset, record in enumerate(records)
    ]


def opened(path: Path, **settings: str | int) -> WritableLog:
    """A log for writing whose clock stands still."""
    return Log.open(path, "a", {**SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}}, clock=lambda: NOW)


ODD = [
    Appended(None, None, 0),
    Appended(b"", b"", NOW, [("", b"")]),
    Appended(
        b"key", b"value", NOW - 1, [("trace", b"1"), ("trace", b"2"), ("null", None), ("\u00fc\u20ac\U0001f600", bytes(range(256)))]
    ),
    Appended(bytes(range(256)), b"\0" * 70_000, 2**41),
    Appended(b"same words", b"the same words again and again " * 5_000, NOW + 1),
]


@every_decoder
@every_codec
def test_every_codec_is_decoded(tmp_path: Path, decoder: str, codec: Codec) -> None:
    """Odd records, and more than one block of snappy's and lz4's frames."""
    path = tmp_path / "t-0"
    with opened(path) as log:
        log.append_records(ours(ODD), compression=codec, leader_epoch=EPOCH)
        log.append_records(ours(ODD[:3]), compression=codec, leader_epoch=EPOCH)
    assert decoded(decoder, path) == expected([*ODD, *ODD[:3]])
    assert [batch.compression_type for batch in batches(decoder, path)] == [NUMBERS[codec]] * 2
    assert {int.from_bytes(path.joinpath(f"{0:020}.log").read_bytes()[12:16], "big")} == {EPOCH}


@pytest.mark.slow
@every_decoder
@given(
    drawn=st.lists(
        st.tuples(
            st.sampled_from(tuple(NUMBERS)), st.lists(st.builds(Appended, parts, parts, timestamps, headers), min_size=1, max_size=6)
        ),
        min_size=1,
        max_size=4,
    )
)
def test_random_batches_are_decoded(decoder: str, drawn: list[tuple[Codec, list[Appended]]]) -> None:
    """Nulls, empty parts, headers, times that go back, several codecs in one file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t-0"
        with opened(path) as log:
            for codec, records in drawn:
                log.append_records(ours(records), compression=codec, leader_epoch=EPOCH)
        assert decoded(decoder, path) == expected([record for _, records in drawn for record in records])


@every_decoder
@every_codec
def test_every_way_in_is_decoded(tmp_path: Path, decoder: str, codec: Codec) -> None:
    """Single records, columns, the buffering writer; over several segments."""
    path = tmp_path / "t-0"
    records = [record._replace(value=record.value and record.value[:500], timestamp=NOW) for record in ODD]
    columns = pa.table(
        {
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "timestamp": pa.array([record.timestamp * 1000 for record in records], pa.timestamp("us", "UTC")),
            "headers": pa.array(
                [[{"key": name, "value": value} for name, value in record.headers] for record in records],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )
    with opened(path, internal_segment_bytes=4_000) as log:
        for _ in range(5):
            for each in records:
                log.append(each.value, key=each.key, headers=each.headers, timestamp=each.timestamp, leader_epoch=EPOCH)
            log.append_arrow(columns, compression=codec, leader_epoch=EPOCH)
            with log.writer(compression=codec, leader_epoch=EPOCH, batch_bytes=600) as writer:
                for each in records:
                    writer.append(each.value, key=each.key, headers=each.headers, timestamp=each.timestamp)
    assert len(list(path.glob("*.log"))) > 1
    assert decoded(decoder, path) == expected(records * 15)


@every_decoder
@every_codec
def test_append_time_is_decoded(tmp_path: Path, decoder: str, codec: Codec) -> None:
    """The log's clock is every record's time, whatever the records say."""
    path = tmp_path / "t-0"
    with opened(path, message_timestamp_type="LogAppendTime") as log:
        log.append_records(ours(ODD), compression=codec, leader_epoch=EPOCH)
    assert decoded(decoder, path) == expected(ODD, append_time=NOW)


@every_decoder
@every_codec
def test_what_a_topic_recodes_is_decoded(tmp_path: Path, decoder: str, codec: Codec) -> None:
    """Batches that come in one codec and are stored in the topic's."""
    path = tmp_path / "t-0"
    with opened(path, compression_type="uncompressed" if codec == "none" else codec) as log:
        for given_codec in NUMBERS:
            log.append_records(ours(ODD), compression=given_codec, leader_epoch=EPOCH)
    assert decoded(decoder, path) == [row._replace(offset=n) for n, row in enumerate(expected(ODD) * len(NUMBERS))]
    assert {batch.compression_type for batch in batches(decoder, path)} == {NUMBERS[codec]}


@every_decoder
def test_producers_and_markers_are_decoded(tmp_path: Path, decoder: str) -> None:
    """Ids, epochs, sequences and the two bits of a header; the marker's key and value."""
    path = tmp_path / "t-0"
    with opened(path) as log:
        for commit, sequence in ((True, 0), (False, 3)):
            log.append_records(
                ours(ODD[:3]), leader_epoch=EPOCH, producer_id=4000, producer_epoch=7, base_sequence=sequence, transactional=True
            )
            log.append_marker(4000, 7, commit=commit, coordinator_epoch=9, leader_epoch=EPOCH, timestamp=NOW)
    seen = [
        (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.is_transactional, batch.is_control_batch)
        for batch in batches(decoder, path)
    ]
    assert seen == [(4000, 7, 0, True, False), (4000, 7, -1, True, True), (4000, 7, 3, True, False), (4000, 7, -1, True, True)]
    markers = [record for batch in batches(decoder, path) if batch.is_control_batch for record in batch]
    assert [(record.offset, record.timestamp, bytes(record.key), bytes(record.value)) for record in markers] == [
        (3, NOW, bytes([0, 0, 0, 1]), bytes([0, 0, 0, 0, 0, 9])),
        (7, NOW, bytes([0, 0, 0, 0]), bytes([0, 0, 0, 0, 0, 9])),
    ]
    assert [row.offset for row in decoded(decoder, path)] == [0, 1, 2, 4, 5, 6]
