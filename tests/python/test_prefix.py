"""A ``.log`` file cut anywhere reads as a prefix of its records: what a crash, or a look at a running broker, leaves."""

from __future__ import annotations

import os
import random
import tempfile
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

import pytest
from frames import frames
from golden import PARTITIONS, Golden, Row, named, rows
from hypothesis import given, strategies as st
from strategies import Batch, batches, expected_rows, write

from offsetlog import CorruptionError, Log, LogDir, Record


def whole_until(path: Path) -> tuple[list[int], list[int]]:
    """Where each batch of a file ends, and the offset that follows it."""
    walked = list(frames(path))
    return [frame.position + frame.size_bytes for frame in walked], [frame.last_offset + 1 for frame in walked]


def lengths_to_try(ends: Sequence[int], size: int, rng: random.Random) -> list[int]:
    """Around the borders of batches and at random, longest first, so that one file can be cut again and again."""
    borders = rng.sample(ends, k=min(8, len(ends)))
    near = {border + shift for border in borders for shift in (-1, 0, 1, 12, 17, 61)}
    return sorted(
        {length for length in (*near, 0, 1, *(rng.randrange(size + 1) for _ in range(12))) if 0 <= length <= size}, reverse=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("golden", PARTITIONS, ids=lambda golden: golden.id)
def test_cut_active_segment_reads_as_a_prefix(tmp_path: Path, golden: Golden) -> None:
    """The indexes stay as they were, so they point behind the end as well."""
    directory = golden.copy(tmp_path, checkpoints=False)
    log_file = max(directory.glob("*.log"))
    base = int(log_file.name[:20])
    ends, next_offsets = whole_until(log_file)
    for length in lengths_to_try(ends, log_file.stat().st_size, random.Random(golden.id)):
        os.truncate(log_file, length)
        whole = bisect_right(ends, length)
        end = next_offsets[whole - 1] if whole else base
        expected = tuple(seen for seen in golden.rows if seen.offset < end)
        with Log.open(directory) as log:
            assert log.log_end_offset == end, length
            got = rows(log.scan())
            assert tuple(seen for seen in got if seen.offset >= golden.start) == expected, length
            assert log.scan().count() == len(got), length
            assert log.scan().to_arrow().num_rows == len(got), length
            committed = [seen.offset for seen in golden.committed if seen.offset < min(end, log.last_stable_offset)]
            seen_committed = [record.offset for record in log.scan(isolation_level="read_committed")]
            assert set(committed) >= {offset for offset in seen_committed if offset >= golden.start}, length
            for seen in expected[-3:]:
                record = log.get(seen.offset)
                assert record is not None
                assert rows([record]) == (seen,), length


@pytest.mark.slow
@pytest.mark.parametrize("name", ["g-txn-1", "g-idem-0", "o-v0-gzip-0", "o-v1-none-0", "o-upgraded-0"])
def test_every_length_of_a_file_reads_as_a_prefix(tmp_path: Path, name: str) -> None:
    """Not one byte too many, not one record too few; alone in a folder, and opened as a log dir with its checkpoints."""
    golden = named(name)[0]
    directory = golden.copy(tmp_path)
    for log_file in sorted(directory.glob("*.log"))[1:]:
        for companion in directory.glob(f"{log_file.stem}.*"):
            companion.unlink()
    [log_file] = directory.glob("*.log")
    ends, next_offsets = whole_until(log_file)
    for length in range(log_file.stat().st_size, -1, -1):
        os.truncate(log_file, length)
        whole = bisect_right(ends, length)
        end = next_offsets[whole - 1] if whole else 0
        count = sum(seen.offset < end for seen in golden.rows)
        with LogDir.open(tmp_path) as log_dir, log_dir.log(golden.topic, golden.partition) as log:
            assert (log.log_end_offset, log.high_watermark) == (end, end), length
            assert log.scan().count() == count, length
            if length % 50 == 0:
                assert rows(log.scan()) == golden.rows[:count], length


@pytest.mark.parametrize("name", ["g-codec-none-0", "g-codec-lz4-0", "g-txn-0", "o-v1-gzip-0", "o-v0-compact-0"])
def test_cut_closed_segment_gives_its_prefix_and_then_says_so(tmp_path: Path, name: str) -> None:
    """No broker appends there any more: missing bytes are damage, but what stands before them is still given."""
    golden = named(name)[0]
    directory = golden.copy(tmp_path)
    log_file = next(file for file in sorted(directory.glob("*.log"))[1:-1] if file.stat().st_size)
    ends, next_offsets = whole_until(log_file)
    for length in lengths_to_try(ends, log_file.stat().st_size, random.Random(name)):
        os.truncate(log_file, length)
        whole = bisect_right(ends, length)
        end = next_offsets[whole - 1] if whole else int(log_file.name[:20])
        before: tuple[Row, ...] = tuple(seen for seen in golden.rows if seen.offset < end)
        after = tuple(seen for seen in golden.rows if seen.offset >= next_offsets[-1])
        with Log.open(directory) as log:
            assert log.log_end_offset == golden.end
            if length in {0, *ends}:
                assert rows(log.scan()) == before + after, length
                continue
            got: list[Record] = []
            with pytest.raises(CorruptionError) as raised:
                got.extend(log.scan())
            assert rows(got) == before, length
            assert raised.value.path == str(log_file)
            assert raised.value.position == (ends[whole - 1] if whole else 0)


@given(
    drawn=st.lists(batches(peers=("kafka-python", "aiokafka"), magics=(0, 1, 2)), min_size=1, max_size=4),
    fraction=st.floats(0, 1),
    tail=st.sampled_from([b"", bytes(5), bytes(17), bytes(18), bytes(400)]),
)
def test_any_prefix_of_random_batches_is_a_prefix(drawn: list[Batch], fraction: float, tail: bytes) -> None:
    """Also with the zeros behind it that preallocation leaves."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "t-0"
        expected = expected_rows(write(directory, drawn))
        [log_file] = directory.glob("*.log")
        ends, next_offsets = whole_until(log_file)
        data = log_file.read_bytes()
        length = int(fraction * len(data))
        whole = bisect_right(ends, length)
        if tail:
            length = ends[whole - 1] if whole else 0
        log_file.write_bytes(data[:length] + tail)
        end = next_offsets[whole - 1] if whole else 0
        with Log.open(directory) as log:
            assert log.log_end_offset == end
            assert rows(log.scan()) == tuple(seen for seen in expected if seen.offset < end)
