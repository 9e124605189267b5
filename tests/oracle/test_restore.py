"""What was restored with its offsets, opened by Kafka: from rows (`append_arrow`) and from batches as they are (`append_log`)."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from interface import Read
from kafka_log import ROOT, Oracle
from opening import LATER, check

from offsetlog import Log
from offsetlog.errors import ConfigError

sys.path.insert(0, str(ROOT / "tests" / "python"))

from golden import PARTITIONS, Golden


def rows(golden: Golden) -> list[Read]:
    return [Read(row.offset, row.timestamp, row.key, row.value, row.headers) for row in golden.rows]


@pytest.mark.parametrize("golden", PARTITIONS, ids=lambda golden: golden.id)
def test_kafka_reads_rows_that_kept_their_offsets(oracle: Oracle, folder: Path, golden: Golden) -> None:
    """Gaps of compaction and of markers, times before 1970: Kafka gives each record at the offset at which a consumer saw it on the broker."""
    place = folder / f"restore-{golden.id.replace('/', '-')}"
    expected = rows(golden)
    with (
        Log.open(golden.directory) as log,
        Log.open(place / golden.name, "a", {"internal.segment.bytes": 20_000}, clock=lambda: LATER) as new,
    ):
        info = new.append_arrow(log.scan(), preserve_offsets=True, batch_bytes=3_000, compression="lz4")
        assert info.last_offset == (expected[-1].offset if expected else -1)
    check(oracle, place / golden.name, 0, expected)
    shutil.rmtree(place)


@pytest.mark.parametrize("golden", [golden for golden in PARTITIONS if golden.rows], ids=lambda golden: golden.id)
def test_kafka_reads_batches_that_were_moved(oracle: Oracle, folder: Path, golden: Golden) -> None:
    """As they are, control batches and producers among them; and behind others, where they get new offsets."""
    place = folder / f"move-{golden.id.replace('/', '-')}"
    with Log.open(golden.directory) as log:
        if any(batch.magic < 2 for batch in log.batches()):  # the only magic that can be moved
            with Log.open(place / golden.name, "a") as new, pytest.raises(ConfigError, match="convert"):
                new.append_log(log)
            return
        start, end = log.log_start_offset, log.log_end_offset
        batches = list(log.batches())
        segment = max(20_000, *(batch.size_bytes for batch in batches))
        opened = Log.open(
            place / golden.name, "a", {"internal.segment.bytes": segment}, clock=lambda: LATER, internal_topics=log.topic
        )
        with opened as new:
            new.append_log(log, preserve_offsets=True)
            assert new.log_end_offset == end
            # A log may begin inside a batch; a batch is moved whole.
            new.delete_records_before(start)
        with Log.open(place / "behind-0", "a", clock=lambda: LATER) as new:
            new.append_records([b"one", b"two", b"three"], leader_epoch=7)
            info = new.append_log(log)
            assert (info.base_offset, new.log_end_offset) == (3, 3 + end - batches[0].base_offset)
            assert {batch.leader_epoch for batch in new.batches()} == {7}
    expected = rows(golden)
    check(oracle, place / golden.name, start, expected)
    if start == batches[0].base_offset:
        before = [Read(slot, LATER, None, value, ()) for slot, value in enumerate((b"one", b"two", b"three"))]
        check(oracle, place / "behind-0", 0, before + [row._replace(offset=row.offset + 3 - start) for row in expected])
    shutil.rmtree(place)
