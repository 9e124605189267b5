"""What is compressed here beside what Kafka compresses: the same records, and for which codecs the same bytes."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from interface import Batch, Clock, Opening, Row
from kafka_log import JAR, KafkaLog, Oracle
from our_log import OurLog
from reports import REPORTS

TIME = 1_700_000_000_000
WORDS = b"the quick brown fox jumps over the lazy dog and runs away from it ".split()


def _text(size: int) -> bytes:
    words = random.Random(size)
    return b" ".join(words.choice(WORDS) for _ in range(size // 4))[:size]


SAMPLES = {
    "one small record": (Row(TIME, b"k", b"v"),),
    "ten records of 100 bytes": tuple(Row(TIME + n, b"key-%d" % n, _text(100 + n)) for n in range(10)),
    "a thousand records": tuple(Row(TIME + n, b"key-%d" % n, _text(200 + n % 7)) for n in range(1000)),
    "one record of 300 KiB": (Row(TIME, None, _text(300 << 10)),),
    "noise": tuple(Row(TIME + n, None, random.Random(n).randbytes(2000)) for n in range(40)),
    "nulls and headers": tuple(Row(TIME, None, None, (("h", b"x" * 50), ("h", None))) for _ in range(20)),
}
CODECS = ("gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_compressed(codec: str, oracle: Oracle, folder: Path) -> None:
    """Records as our appends compress them, decompressed by Kafka; and recompressed by the leader on both sides."""
    lines = []
    for name, rows in SAMPLES.items():
        clock = Clock(TIME)
        shutil.rmtree(folder / "codecs", ignore_errors=True)
        ours = OurLog(folder / "codecs" / "ours" / "c-0", clock)
        kafka = KafkaLog(oracle, folder / "codecs" / "kafka" / "c-0", "codec")
        for side in (ours, kafka):
            side.directory.mkdir(parents=True)
            # The first batch is compressed by the producer, the second by the leader.
            side.open(Opening({"compression.type": codec}, clean=False, recovery_point=0))
            side.append_rows(Batch(rows, codec), "records", 0)
            side.append_bytes(oracle.encode(Batch(rows)), 0, "client")
            side.close(clean=True)
        path = f"{0:020}.log"
        decoded = [
            [
                {key: value for key, value in batch.items() if key not in {"size", "crc"}}
                for batch in oracle.decode(side.directory / path)
            ]
            for side in (ours, kafka)
        ]
        assert decoded[0] == decoded[1]
        assert [batch["codec"] for batch in decoded[0]] == [codec, codec]
        mine, theirs = ((side.directory / path).read_bytes() for side in (ours, kafka))
        same = "the same bytes" if mine == theirs else f"{len(mine)} bytes, Kafka {len(theirs)}"
        lines.append(f"{codec:7} {name:26} {same}")
    text = "\n".join(lines)
    REPORTS.append((f"codecs beside Kafka's: {codec}", text))
    (JAR.parent / f"codec-{codec}.txt").write_text(text + "\n")
