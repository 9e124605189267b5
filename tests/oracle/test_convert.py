"""What `convert` made, opened by Kafka: with nothing to repair, every record, and the companions that Kafka makes of the same batches."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from interface import Read
from kafka_log import ROOT, Oracle
from opening import LATER, check

from offsetlog import Log, convert
from offsetlog._append_arguments import Compression

sys.path.insert(0, str(ROOT / "tests" / "python"))

from golden import PARTITIONS, Golden
from old_layout import gzipped, message, partition, snappied

CODECS: tuple[Compression, ...] = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("golden", PARTITIONS, ids=lambda golden: golden.id)
def test_kafka_opens_what_was_converted(oracle: Oracle, folder: Path, golden: Golden) -> None:
    """Every partition of real brokers, of 2.8.2 and 4.3.0, in another codec than before."""
    place = folder / f"convert-{golden.id.replace('/', '-')}"
    codec = CODECS[PARTITIONS.index(golden) % len(CODECS)]
    report = convert(golden.directory, place / golden.name, compression=codec)
    expected = [Read(row.offset, row.timestamp, row.key, row.value, row.headers) for row in golden.rows]
    check(oracle, Path(report.path), report.log_start_offset, expected)
    shutil.rmtree(place)


def test_kafka_opens_a_log_of_0_7(oracle: Oracle, folder: Path) -> None:
    """Plain messages and sets of both codecs."""
    inner = b"".join(message(b"%d" % slot * slot, magic=slot % 2) for slot in range(300))
    old = partition(folder / "convert-0.7" / "old-3", [inner + gzipped(inner), snappied(inner) + inner])
    values = [b"%d" % slot * slot for slot in range(300)] * 4
    report = convert(old, old.with_name("new-3"))
    check(oracle, Path(report.path), 0, [Read(slot, -1, None, value, ()) for slot, value in enumerate(values)])


def test_kafka_opens_a_log_that_ends_behind_its_last_batch(oracle: Oracle, folder: Path) -> None:
    """Compaction may leave nothing but offsets before an empty active segment; they must not be given again."""
    old = folder / "convert-gap" / "old-0"
    with Log.open(old, "a", clock=lambda: LATER) as log:
        log.append(b"one", key=b"k")
    (old / f"{7_000_000_000:020}.log").write_bytes(b"")
    report = convert(old, old.with_name("new-0"))
    assert report.log_end_offset == 7_000_000_000
    check(oracle, Path(report.path), 0, [Read(0, LATER, b"k", b"one", ())])
