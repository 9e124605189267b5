"""What tasks of Spark staged and a commit published, opened by Kafka's own storage layer: it repairs nothing, and reads each row once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from interface import Read
from kafka_log import Oracle
from opening import check

from offsetlog import LogConfig, LogDir
from offsetlog._commit.publishing import commit
from offsetlog._commit.staging import Stage, Staged

NOW = 1_700_000_000_000
SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("timestamp", pa.timestamp("ms", "UTC")), ("offset", pa.int64())])


def stage(place: Path, attempt: str, codec: str, rows: list[Read], *, preserve_offsets: bool) -> list[Staged]:
    """What one task stages, in batches of at most seven rows."""
    made = Stage("job", attempt)
    config = LogConfig.from_dict({"compression.type": codec})
    for begin in range(0, len(rows), 7):
        part = [
            {"key": row.key, "value": row.value, "timestamp": row.timestamp, "offset": row.offset} for row in rows[begin : begin + 7]
        ]
        batch = pa.RecordBatch.from_pylist(part, schema=SCHEMA)
        shown = batch if preserve_offsets else batch.drop_columns(["offset"])
        made.append("t", 0, str(place / "t-0"), config, shown, preserve_offsets=preserve_offsets)
    return made.close()


@pytest.mark.parametrize("preserve_offsets", [False, True], ids=["behind", "kept"])
def test_kafka_opens_what_commits_published(oracle: Oracle, folder: Path, *, preserve_offsets: bool) -> None:
    """Three commits of three tasks each, over several segments; with offsets that are kept every third one is missing."""
    place = folder / f"published-{preserve_offsets}"
    with LogDir.open(place, "a") as log_dir:
        log_dir.create_topic("t", 1, config={"internal.segment.bytes": 2_500})
    expected: list[Read] = []
    for sequence in range(3):
        staged: list[Staged] = []
        for task, codec in enumerate(("uncompressed", "lz4", "zstd")):
            rows = []
            for number in range(40):
                offset = expected[-1].offset + 1 if expected else 0
                if preserve_offsets and number % 3 == 2:
                    offset += 1
                value = None if number % 11 == 0 else b"%d-%d-%d" % (sequence, task, number) * (number % 5 + 1)
                rows.append(Read(offset, NOW + 1000 * sequence + (number * 7) % 40, b"k%d" % (number % 9), value, ()))
                expected.append(rows[-1])
            staged += stage(place, f"{sequence}-{task}", codec, rows, preserve_offsets=preserve_offsets)
        assert commit(str(place), "query", sequence, staged, preserve_offsets=preserve_offsets)
    assert len(list((place / "t-0").glob("*.log"))) > 2
    check(oracle, place / "t-0", 0, expected, closed_between=True)
