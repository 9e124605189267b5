"""Seeds for the fuzz targets: small real files, and single batches cut out of real logs."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data"
CORPUS = ROOT / "fuzz" / "corpus"
LARGEST = 4096
TEXTS = ("*-checkpoint", "meta.properties", "partition.metadata", ".kafka_cleanshutdown")


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


def seed(target: str, seeds: Iterator[bytes]) -> None:
    """Write each different seed once."""
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    different = {data for data in seeds if 0 < len(data) <= LARGEST}
    for number, data in enumerate(sorted(different)):
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


def main() -> None:
    """Fill fuzz/corpus."""
    every = [batch for path in sorted(DATA.rglob("*.log")) for batch in list(batches(path))[:20]]
    seed("batch", (batch for batch in every if batch[16] == 2))
    seed("legacy", (batch for batch in every if batch[16] < 2))
    seed("old_message", (old_message(b"v" * size) * 2 for size in range(8)))
    seed("index", (bytes(8) + data for data in files("*.index", "*.timeindex", "*.txnindex")))
    seed("snapshot", files("*.snapshot"))
    seed("checkpoint", files(*TEXTS))
    # Each of these makes a directory: fewer of them, so that the time goes into new ones.
    seed("open_log", iter(every[::20]))


if __name__ == "__main__":
    main()
