"""Makes the texts of ``tests/data/dump`` again with Kafka's own tool, and the segments of ``tests/data/dump-made`` that some are of.

Run as ``python tests/broker/dump_texts.py [NAME]...``, with the names of texts, those that are not there yet too; without names it makes
all of them. Needs Java and ``make build/brokers/4.3.0/.complete``.
"""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
from pathlib import Path

from broker import DUMP, java

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))

from make_log import NONE, Row, batch  # noqa: E402  # beside the tests of the Python API

DATA = ROOT / "tests/data"
MADE = DATA / "dump-made"
MARK = b"--- stderr ---\n"
MODES = {"plain": [], "deep": ["--deep-iteration"], "deep-data": ["--deep-iteration", "--print-data-log"]}


def key(record_type: int, fields: bytes = b"") -> bytes:
    """The key of a coordinator's record."""
    return struct.pack(">h", record_type) + fields


OFFSET_KEY = key(1, b"\0\3grp\0\3top\0\0\0\1")
COORDINATOR: list[Row] = [
    # Keys that are cut short, with a null where none may be, a length beyond their end, a type that nobody has.
    (b"", b""),
    (b"\0", b"x"),
    (key(0), None),
    (key(0, b"\xff\xff"), b""),
    (key(1, b"\0\3grp\xff\xff\0\0\0\1"), b""),
    (key(1, b"\0\3grp\0\3top\0\0\0"), b""),
    (key(0, b"\0\x7fgrp"), b"\0\1"),
    (key(2, b"\xff\xfe"), b"\0\0"),
    (key(7, b"\0\1g\xff\xff"), b"\0\0"),
    *((key(unknown), b"") for unknown in (-1, 9, 18, 24)),
    # Values without a version, of one that nobody has, and cut short.
    *((OFFSET_KEY, value) for value in (b"", b"\0", b"\0\x63", b"\xff\xff", b"\0\0", b"\0\3\0\0\0")),
    # Keys and values that one decoder takes and another does not.
    (key(0, b"\0\3grp"), b"\0\0\0\0"),
    (key(2, b"\0\1g"), b"\0\0"),
    (key(4, b"\0\1g"), b"\0\0"),
    (key(0, b"\0\1g\0\1t\0\0\0\1"), b"\0\0" + b"\0" * 8),
]
LARGE = b"\xc0\xb8\x02"
"""40000 as an unsigned integer of variable length."""
NEGATIVE = b"\xff\xff\xff\xff\x0f"
"""2^32 - 1, which is -1 to Kafka."""
METADATA: list[Row] = [
    (None, value)
    for value in (
        # The frame's version, the type, the version of the record: cut short, too long, too large, not known.
        *(None, b"", b"\x80", b"\x80\x80\x80\x80\x80\x01", LARGE, NEGATIVE, b"\x81\x80\x80\x80\x08", b"\0", b"\2\0\0"),
        *(b"\1", b"\1\x80", b"\1" + LARGE + b"\0", b"\1" + NEGATIVE + b"\0", b"\1\6\0", b"\1\x0d\0", b"\1\x10\0\0", b"\1\x1d\0"),
        *(b"\1\2", b"\1\2\x80", b"\1\2" + LARGE, b"\1\2\x63", b"\1\x14\5"),
        # Records that are cut short, and bytes behind them.
        *(b"\1\2\0\4ab", b"\1\x0c\0\0", b"\1\x14\0\1", b"\1\2\0" + b"\0" * 40, b"\1\x14\0\0x", b"\1\x14\0\0xyz"),
    )
]


def recounted(directory: str, more: int) -> bytes:
    """The first batch of a broker's log, with another count of records."""
    data = bytearray((DATA / "kafka-4.3.0/clean" / directory / f"{0:020}.log").read_bytes())
    del data[12 + int.from_bytes(data[8:12], "big") :]
    data[57:61] = (int.from_bytes(data[57:61], "big") + more).to_bytes(4, "big", signed=True)
    return bytes(data)


def segments() -> dict[str, bytes]:
    """The segments of ``dump-made``, by the directory that each is in."""
    return {
        "coordinator-0": batch(0, COORDINATOR, codec=NONE),
        "metadata-0": batch(0, METADATA, codec=NONE),
        "too-many-plain-0": recounted("log-dir-1/g-plain-0", 1),
        "too-many-lz4-0": recounted("log-dir-1/g-codec-lz4-0", 1),
        "too-few-plain-0": recounted("log-dir-1/g-plain-0", -1),
        "too-few-lz4-0": recounted("log-dir-1/g-codec-lz4-0", -1),
        "below-zero-0": recounted("log-dir-1/g-plain-0", -8),
    }


def source(stem: str) -> str:
    """The file that a text is of, as in ``dump_kafka.rs``."""
    return stem.replace("____", "/\0").replace("__", "/").replace("\0", "__")


def text(name: str) -> bytes:
    """What the tool prints, and what it says on standard error."""
    stem, mode = name.removesuffix(".txt.gz").rsplit(".", 1)
    options = MODES.get(mode, [f"--{mode}"])
    command = java("4.3.0", DUMP, "--files", source(stem), *options)
    done = subprocess.run(command, cwd=DATA, capture_output=True, check=False)
    said = done.stderr.replace(f"{DATA}/".encode(), b"")
    if said.startswith(b"Exception"):
        said = said.splitlines(keepends=True)[0]
    return done.stdout + (MARK + said if said else b"")


def main(names: list[str]) -> None:
    """Write segments and texts where they are not so already."""
    for directory, data in segments().items():
        path = MADE / directory / f"{0:020}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    for name in names or sorted(path.name for path in (DATA / "dump").glob("*.txt.gz")):
        path, made = DATA / "dump" / name, text(name)
        if not path.exists() or gzip.decompress(path.read_bytes()) != made:
            path.write_bytes(gzip.compress(made, 9, mtime=0))
            print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
