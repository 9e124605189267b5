"""Look-ups read as far as a batch of the usual size goes. Where batches are of all sizes and times jump, they find the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from offsetlog import Log

SIZES = (0, 10, 900, 3_000, 4_000, 4_200, 9_000, 70_000, 600_000)
FIRST = 1_700_000_000_000


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_every_record_is_found(tmp_path: Path, seed: int, mapped: bool) -> None:
    rng = random.Random(seed)
    path = tmp_path / "t-0"
    told: list[tuple[int, bytes, int]] = []
    timestamp = FIRST
    with Log.open(path, "a", {"segment.bytes": 4_000_000, "index.interval.bytes": rng.choice([1, 4096, 60_000])}) as writer:
        while len(told) < 400:
            records: list[tuple[bytes, int]] = []
            for _ in range(rng.choice([1, 1, 1, 2, 40])):
                size = rng.choice(SIZES[:3] if len(records) > 1 else SIZES)
                timestamp += rng.choice([0, 1, 1, 50, 10**9])
                records.append((rng.randbytes(min(size, 64)) * (size // 64 + 1), timestamp))
            with writer.writer(batch_bytes=1_000_000, linger_ms=60_000) as batch:
                for value, when in records:
                    batch.append(value, timestamp=when)
                    told.append((len(told), value, when))
    with Log.open(path, mapped=mapped) as log:
        for offset, value, when in rng.sample(told, len(told)):
            record = log.get(offset)
            assert record is not None
            assert (record.offset, record.value, record.timestamp) == (offset, value, when)
            earliest = next(first for first, _, time in told if time >= when)
            found = log.offset_for_timestamp(when)
            assert found is not None
            assert (found.offset, found.timestamp) == (earliest, when)
            between = log.offset_for_timestamp(when + 1)
            later = next(((first, time) for first, _, time in told if time > when), None)
            assert (between and (between.offset, between.timestamp)) == later
            short = list(log.scan(start=offset, stop=offset + 3))
            assert [one.offset for one in short] == list(range(offset, min(offset + 3, len(told))))
