"""Row 24. Logs that lost power, after our recovery and before it, opened by Kafka's own storage layer: the same log, and not a byte changed.

The images come from the simulated disk (`offsetlog-faults`), with what its model says must be in them.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rows import ROOT, SCALE, row

sys.path.append(str(ROOT / "tests/oracle"))

from interface import Opening
from kafka_log import JAR, KafkaError, KafkaLog, Oracle

IMAGES = Path(os.environ.get("OFFSETLOG_CRASH_IMAGES", ROOT / "target/debug/examples/crash_images"))
COUNT = max(40, int(40 * SCALE))
PARTITION = "logs/orders-0"
HEADER_BYTES = 12


class Batch(NamedTuple):
    """A batch: what tells it from all others."""

    base: int
    last: int
    size: int


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    """Kafka's storage layer."""
    with Oracle(tmp_path_factory.mktemp("oracle") / "stderr.txt", JAR) as program:
        yield program


def opening(expected: dict[str, Any]) -> Opening:
    """As after a crash, so that Kafka reads every byte."""
    config = {
        "internal.segment.bytes": str(expected["segment_bytes"]),
        # Room for what a rebuilding by Kafka makes of batches that ours rolled with indexes of two or three entries.
        "segment.index.bytes": str(max(1000, expected["index_bytes"])),
        "index.interval.bytes": str(expected["index_interval"]),
    }
    return Opening(config, clean=False, recovery_point=0, log_start_offset=expected["start"])


def segments(partition: Path) -> dict[str, str]:
    """Every segment's checksum."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(partition.glob("*.log"))}


def batches(partition: Path) -> list[Batch]:
    """The batches by their lengths and offsets alone: no code of ours, none of Kafka's."""
    found = []
    for path in sorted(partition.glob("*.log")):
        data = path.read_bytes()
        position = 0
        while position < len(data):
            base = int.from_bytes(data[position : position + 8], "big")
            size = HEADER_BYTES + int.from_bytes(data[position + 8 : position + HEADER_BYTES], "big")
            last = base + int.from_bytes(data[position + 23 : position + 27], "big")
            found.append(Batch(base, last, size))
            position += size
    return found


def kafkas(oracle: Oracle, image: Path, expected: dict[str, Any]) -> tuple[int, int, list[Batch]]:
    """Log start offset, log end offset and batches as Kafka finds them; it closes the log as it found it."""
    partition = image / PARTITION
    log = KafkaLog(oracle, partition, image.parent.name + image.name)
    ends = log.open(opening(expected))
    found = [
        Batch(batch["base"], batch["last"], batch["size"]) for path in sorted(partition.glob("*.log")) for batch in oracle.decode(path)
    ]
    log.close(clean=False)
    return ends.log_start_offset, ends.log_end_offset, found


def test_kafka_opens_what_we_recovered(oracle: Oracle, tmp_path: Path) -> None:
    with row(24, "recovered images in Kafka", "images", 40, fixed=True) as part:
        subprocess.run([IMAGES, tmp_path, str(COUNT), str(part.seed)], check=True)
        for image in sorted(tmp_path.iterdir()):
            expected = json.loads((image / "expected.json").read_text())
            told = f"{image.name}, seed {part.seed}: {expected['script']}"
            wanted = [Batch(base, last, size) for base, last, size, _ in expected["batches"]]
            partition = image / "after" / PARTITION
            before = segments(partition)
            assert batches(partition) == wanted, told
            assert kafkas(oracle, image / "after", expected) == (expected["start"], expected["end"], wanted), told
            assert segments(partition) == before, told
            # Kafka, which recovers by itself, keeps what we keep; behind a hole between segments it keeps more.
            try:
                _, _, alone = kafkas(oracle, image / "before", expected)
            except KafkaError as error:
                if "Found record size 0" not in error.text:
                    raise
                # Zeros at the end of a segment that others follow: it cannot load that.
                alone = wanted
            assert alone[: len(wanted)] == wanted, told
            part.count()
