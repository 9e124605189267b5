"""Seeds for the fuzz targets: small real files, single batches cut out of real logs, records of internal topics.

python fuzz/seed.py            every seed, into fuzz/corpus, which is not kept
python fuzz/seed.py --kept     a few small ones for each target, into fuzz/kept, beside what the fuzzers found
"""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data"
LARGEST = 4096
# Of what is kept.
LARGEST_KEPT, MOST_KEPT = 700, 12
TEXTS = ("*-checkpoint", "meta.properties", "partition.metadata", ".kafka_cleanshutdown")
HEADER = 61


def batches(path: Path) -> Iterator[bytes]:
    """The batches of a log, as its length fields have it."""
    data = path.read_bytes()
    at = 0
    while at + 12 <= len(data):
        size = 12 + int(struct.unpack_from(">i", data, at + 8)[0])
        if size <= 12 or at + size > len(data):
            return
        yield data[at : at + size]
        at += size


def seed(target: str, seeds: Iterator[bytes], *, kept: bool) -> None:
    """Write each different seed once; of those that are kept the smallest, and some from smallest to largest."""
    folder = ROOT / "fuzz" / ("kept" if kept else "corpus") / target
    folder.mkdir(parents=True, exist_ok=True)
    different = sorted({data for data in seeds if 0 < len(data) <= LARGEST}, key=lambda data: (len(data), data))
    if kept:
        small = [data for data in different if len(data) <= LARGEST_KEPT] or different[:1]
        different = small[:: max(1, -(-len(small) // MOST_KEPT))]
    for number, data in enumerate(different):
        (folder / f"seed-{number:04}").write_bytes(data)


def files(*patterns: str) -> Iterator[bytes]:
    """Contents of files below the test data."""
    for pattern in patterns:
        for path in sorted(DATA.rglob(pattern)):
            if path.is_file():
                yield path.read_bytes()


def old_message(payload: bytes) -> bytes:
    """A message of Kafka 0.7, by FORMAT.md; no broker that wrote any is left."""
    return struct.pack(">ibBI", len(payload) + 6, 1, 0, zlib.crc32(payload)) + payload


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A zig-zag number and the place behind it."""
    raw = shift = 0
    while True:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at


def records(batch: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of the records of a batch of magic 2 that is not compressed; none is empty."""
    at = HEADER
    while at < len(batch):
        size, at = varint(batch, at)
        behind = at + size
        at += 1
        _, at = varint(batch, at)
        _, at = varint(batch, at)
        fields = []
        for _ in range(2):
            length, at = varint(batch, at)
            fields.append(batch[at : at + max(length, 0)])
            at += max(length, 0)
        yield fields[0], fields[1]
        at = behind


def messages() -> Iterator[bytes]:
    """Records of internal topics, each behind its kind and the length of its key."""
    for kind, topic in enumerate(("__consumer_offsets", "__transaction_state")):
        for path in sorted((DATA / "expected/kafka-4.3.0-clean").glob(f"{topic}-*.jsonl.gz")):
            for line in gzip.decompress(path.read_bytes()).splitlines():
                record = json.loads(line)
                key = base64.b64decode(record.get("key") or "")
                yield bytes([kind, len(key)]) + key + base64.b64decode(record.get("value") or "")
    for path in sorted(DATA.rglob("__cluster_metadata-0/*.log")):
        for batch in batches(path):
            is_control = bool(batch[22] & 0x20)
            for key, value in records(batch):
                yield bytes([6, len(key)]) + key + value if is_control else bytes([3, 0]) + value


def directory(batch: bytes, index: bytes = b"", time_index: bytes = b"") -> bytes:
    """A partition directory as the target takes it."""
    return struct.pack(">HHH", len(index), len(time_index), 0) + index + time_index + batch


def directories(every: list[bytes]) -> Iterator[bytes]:
    """Some logs of one batch, and some of few with their indexes."""
    yield from (directory(batch) for batch in every[::20])
    for path in sorted(DATA.rglob("00000000000000000000.log")):
        beside = [path.with_suffix(suffix) for suffix in (".index", ".timeindex")]
        if all(file.exists() for file in beside):
            yield directory(path.read_bytes(), *(file.read_bytes() for file in beside))


def of_zookeeper() -> Iterator[bytes]:
    """Snapshots, logs, their transactions, and what stands in them, each behind its kind."""
    for path in sorted(DATA.rglob("version-2/snapshot.*")):
        yield b"\0" + path.read_bytes()
    for path in sorted(DATA.rglob("version-2/log.*")):
        data = path.read_bytes()
        at = 16
        while length := int(struct.unpack_from(">i", data, at + 8)[0]):
            end = at + 13 + length
            yield b"\1" + data[:16] + data[at:end]
            yield b"\2" + data[at + 12 : end - 1]
            start, behind = data.find(b"{", at, end), data.rfind(b"}", at, end)
            yield b"\3" + data[start : behind + 1]
            at = end


def main(*, kept: bool) -> None:
    """Write all seeds."""
    every = [batch for path in sorted(DATA.rglob("*.log")) for batch in list(batches(path))[:20]]
    legacy = [batch for batch in every if batch[16] < 2]
    seed("batch", (batch for batch in every if batch[16] == 2), kept=kept)
    seed("plain", iter(every), kept=kept)
    # A set behind its wrapper: here other whole messages.
    seed("legacy", (wrapper + message for wrapper, message in itertools.pairwise(legacy)), kept=kept)
    seed("message", messages(), kept=kept)
    seed("old_message", (old_message(b"v" * size) * 2 for size in range(8)), kept=kept)
    seed("index", (bytes(8) + data for data in files("*.index", "*.timeindex", "*.txnindex")), kept=kept)
    seed("snapshot", files("*.snapshot"), kept=kept)
    seed("checkpoint", files(*TEXTS), kept=kept)
    seed("open_log", directories(every), kept=kept)
    seed("zookeeper", of_zookeeper(), kept=kept)
    if not kept:
        # No file of the test data holds any: those that are kept were written by Kafka 4.3.0's own classes.
        seed("protocol", (path.read_bytes() for path in sorted((ROOT / "fuzz" / "kept" / "protocol").iterdir())), kept=kept)


if __name__ == "__main__":
    main(kept="--kept" in sys.argv[1:])
