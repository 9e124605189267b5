"""What `salvage` made, opened by Kafka: with nothing to repair, and every record that a skipping scan reads of the damaged log."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from interface import Read
from kafka_log import ROOT, Oracle
from opening import check

from offsetlog import Log, recover, salvage

sys.path.insert(0, str(ROOT / "tests" / "python"))

from golden import DATA, Golden, partitions_of

TORN = partitions_of((DATA / "kafka-4.3.0" / "torn" / "log-dir-1", DATA / "kafka-4.3.0" / "torn" / "log-dir-2"), "kafka-4.3.0-torn")


@pytest.mark.parametrize("after", ["damage", "recovery"])
@pytest.mark.parametrize("golden", TORN, ids=lambda golden: golden.id)
def test_kafka_opens_what_was_salvaged(oracle: Oracle, folder: Path, golden: Golden, after: str) -> None:
    """A real broker's directories, torn and flipped: as they are, and out of what recovery had cut off them."""
    place = folder / f"salvage-{after}-{golden.id.replace('/', '-')}"
    source = golden.copy(place / "old")
    with Log.open(source) as log:
        readable = log.scan(on_corrupt="skip")
        expected = [Read(row.offset, row.timestamp, row.key, row.value, tuple(row.headers)) for row in readable]
    if after == "recovery":
        recover(source)
    report = salvage(source, place / "new" / golden.name)
    assert report.records == len(expected)
    check(oracle, Path(report.path), report.log_start_offset, expected)
    shutil.rmtree(place)
