"""What other libraries encode decodes to what went in, whatever the records."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from golden import rows
from hypothesis import given, strategies as st
from peers import CODECS, WRITERS, Appended, encoded
from strategies import Batch, batches, expected_rows, write

from offsetlog import Log


def check_reads_back(drawn: Sequence[Batch]) -> None:
    """Through iteration, look-ups and columns."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "t-0"
        placed = write(directory, drawn)
        expected = expected_rows(placed)
        with Log.open(directory) as log:
            assert log.log_end_offset == expected[-1].offset + 1
            records = list(log.scan())
            assert rows(records) == expected
            assert log.scan().count() == len(expected)
            for seen in expected:
                assert rows([record for record in [log.get(seen.offset)] if record is not None]) == (seen,)
            table = log.scan(columns=["offset", "key", "value", "headers"]).to_arrow().to_pylist()
            assert table == [
                {
                    "offset": seen.offset,
                    "key": seen.key,
                    "value": seen.value,
                    "headers": [{"key": key, "value": value} for key, value in seen.headers] or None,
                }
                for seen in expected
            ]
            by_offset = {record.offset: record for record in records}
            for base, batch in placed:
                if batch.magic == 2:
                    producer, epoch, sequence = batch.producer
                    for delta in range(len(batch.records)):
                        record = by_offset[base + delta]
                        wrapped = sequence if sequence < 0 else (sequence + delta) % 2**31
                        assert (record.producer_id, record.producer_epoch, record.sequence) == (producer, epoch, wrapped)


@pytest.mark.slow
@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("peer", ["kafka-python", "aiokafka"])
@given(data=st.data())
def test_random_records_decode_to_what_went_in(peer: str, magic: int, data: st.DataObject) -> None:
    """Nulls, empty parts, headers, times that go back, several batches, every codec of the peer."""
    check_reads_back(data.draw(st.lists(batches(peers=(peer,), magics=(magic,)), min_size=1, max_size=3)))


@pytest.mark.slow
@given(drawn=st.lists(batches(peers=("kafka-python", "aiokafka"), magics=(0, 1, 2)), min_size=2, max_size=5))
def test_a_file_may_mix_magics_codecs_and_writers(drawn: list[Batch]) -> None:
    """An upgraded broker's file holds old messages before, and after a mirror between, new batches."""
    check_reads_back(drawn)


@pytest.mark.parametrize(
    ("peer", "magic", "codec"), [(peer, magic, codec) for (peer, magic), codecs in WRITERS.items() for codec in codecs]
)
def test_every_writer_is_read_in_every_codec(peer: str, magic: int, codec: str) -> None:
    """Compressible records of more than one compression block, so that no writer falls back to storing them plain."""
    records = tuple(
        Appended(b"key-%d" % n, b"%d the same words again and again " % n * 400, 1_700_000_000_000 + n * 7 % 50) for n in range(12)
    )
    batch = Batch(peer, magic, codec, records, 0, 5, None, (-1, -1, -1))
    data = encoded(peer, magic, codec, 0, records)
    attributes = data[22] if magic == 2 else data[17]
    assert attributes & 7 == CODECS[codec], "the writer did not compress"
    check_reads_back([batch, batch._replace(gap=3, append_time=1_800_000_000_000)])
