"""What lies in a partition directory, and in what two of them differ."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka.record.util import calc_crc32c as crc32c
from differences import EMPTY_ROLL, LATE_STRETCH, LAZY_INDEX, STALE_ENTRIES, WAITING_ENTRIES, Difference, Uses

Files = dict[str, bytes]
Decode = Callable[[Path], list[dict[str, Any]]]

OURS = (".offsetlog", "offsetlog-")
HEADER = struct.Struct(">qiibIhiqqqhii")
SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
INDEX_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
TXN_ENTRY = struct.Struct(">hqqqq")
SHOWN = 6
EPOCHS = "leader-epoch-checkpoint"


class Header(NamedTuple):
    """The header of a batch of magic 2, or as much of it as older ones have."""

    position: int
    size: int
    base_offset: int
    leader_epoch: int
    magic: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        """The last offset."""
        return self.base_offset + self.last_offset_delta


def headers(data: bytes) -> Iterator[Header]:
    """The batches of a file up to the first one that is not whole."""
    position = 0
    while position + HEADER.size <= len(data):
        base, length, epoch, magic, _crc, attributes, delta, first, last, producer, producer_epoch, sequence, count = (
            HEADER.unpack_from(data, position)
        )
        size = 12 + length
        if length < 14 or position + size > len(data):
            return
        if magic < 2:
            yield Header(position, size, base, -1, magic, data[position + 17], 0, -1, -1, -1, -1, -1, -1)
        else:
            rest = (attributes, delta, first, last, producer, producer_epoch, sequence, count)
            yield Header(position, size, base, epoch, magic, *rest)
        position += size


def stored(directory: Path) -> Files:
    """Every file that counts: not ours, not what waits for its removal."""
    files: Files = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_file() and counts(entry.name):
                files[entry.name] = Path(entry.path).read_bytes()
    return files


def sizes(directory: Path) -> dict[str, int]:
    """Names and sizes of the same files."""
    with os.scandir(directory) as entries:
        return {entry.name: entry.stat().st_size for entry in entries if counts(entry.name) and entry.is_file()}


def bytes_of_logs(directory: Path) -> int:
    """How much the segments hold."""
    return sum(size for name, size in sizes(directory).items() if name.endswith(".log"))


def counts(name: str) -> bool:
    """Whether a file is compared."""
    return not name.startswith(OURS) and not name.endswith(".deleted")


def true_epochs(directory: Path, text: bytes) -> bool:
    """Whether every leader epoch of a checkpoint is that of the batch where it begins."""
    batches = [batch for path in directory.glob("*.log") for batch in headers(path.read_bytes())]
    lines = [line.split() for line in text.decode().splitlines()[2:]]
    return all(
        any(batch.leader_epoch == int(epoch) and batch.base_offset <= int(start) <= batch.last_offset for batch in batches)
        for epoch, start in lines
    )


def more_epochs(one: bytes, other: bytes) -> bool:
    """Whether a checkpoint has the leader epochs of another, and more."""
    return set(one.splitlines()[2:]) > set(other.splitlines()[2:])


def bases(directory: Path) -> list[int]:
    """Base offsets of the segments."""
    with os.scandir(directory) as entries:
        return sorted(int(entry.name.removesuffix(".log")) for entry in entries if entry.name.endswith(".log"))


def whole(data: bytes) -> bytes:
    """The bytes up to the end of the last whole batch."""
    return data[: max((header.position + header.size for header in headers(data)), default=0)]


# Index entries of a segment that is open and have not been written.
MOST_WAITING = 7


def producers(snapshot: bytes) -> tuple[int, list[tuple[int, ...]]]:
    """Version and entries of a snapshot by producer id; the checksum must be right."""
    version, stored_crc, count = struct.unpack_from(">hIi", snapshot)
    entries = sorted(SNAPSHOT_ENTRY.iter_unpack(snapshot[10:]))
    if crc32c(snapshot[6:]) != stored_crc or count != len(entries):
        message = f"a snapshot of {len(snapshot)} bytes with a wrong checksum or count"
        raise ValueError(message)
    return version, entries


def begin_earlier(mine: bytes, theirs: bytes, log_start: int) -> bool:
    """Whether transactions of an index begin earlier than in the other, below the log start offset, and nothing else differs."""
    if mine == theirs or len(mine) != len(theirs) or len(mine) % TXN_ENTRY.size:
        return False
    pairs = zip(TXN_ENTRY.iter_unpack(mine), TXN_ENTRY.iter_unpack(theirs), strict=True)
    return all(
        (*one[:2], *one[3:]) == (*other[:2], *other[3:]) and (one[2] == other[2] or one[2] < min(log_start, other[2]))
        for one, other in pairs
    )


def is_active(name: str, names: Iterable[str]) -> bool:
    """Whether a file belongs to the last segment."""
    return name.split(".", maxsplit=1)[0] == max((other.split(".")[0] for other in names if other.endswith(".log")), default="")


def unlike_sizes(one: dict[str, int], other: dict[str, int], uses: Uses, *, exact: bool = True) -> list[str]:
    """In what two listings differ; `exact` is off where codecs may compress differently."""
    found = []
    for name in sorted(one.keys() | other.keys()):
        mine, theirs = one.get(name), other.get(name)
        if mine is None or theirs is None:
            if name.endswith(".txnindex") and not mine and not theirs:
                uses.count(EMPTY_ROLL)
                continue
            if name.endswith((".index", ".timeindex")) and is_active(name, other):
                uses.count(LAZY_INDEX)
                continue
            found.append(f"{name}: {'missing' if mine is None else mine}, Kafka: {'missing' if theirs is None else theirs}")
        elif mine < theirs and is_active(name, other) and name.endswith((".index", ".timeindex")):
            uses.count(LATE_STRETCH)
        elif name == EPOCHS and {mine, theirs} == {0, 4}:
            continue
        elif mine != theirs and (exact or not name.endswith(".log")):
            found.append(f"{name}: {mine} bytes, Kafka: {theirs}")
    return found


def unlike(one: Files, other: Files, uses: Uses, *, ordinals: bool = False, truncated: int = -1) -> list[str]:
    """In what two directories differ, a line each.

    With `ordinals`, batches may lie at other positions (see `same_batches`). `truncated` is the base offset of a segment that was
    truncated while it is open.
    """
    found = []
    for name in sorted(one.keys() | other.keys()):
        mine, theirs = one.get(name), other.get(name)
        if mine == theirs:
            continue
        if mine is None or theirs is None:
            allowed = _may_lack(name, (mine if theirs is None else theirs) or b"", one.get(name.split(".")[0] + ".log", b""))
        elif name.endswith((".index", ".timeindex")):
            allowed = _may_be(name, mine, theirs, active=is_active(name, other), truncated=truncated)
        else:
            allowed = None
        if allowed is not None:
            uses.count(allowed)
        elif mine is None or theirs is None:
            found.append(f"{name}: {_told(name, mine)}, Kafka: {_told(name, theirs)}")
        elif ordinals and name.endswith((".log", ".index")):
            found.extend(_unlike_ordinals(name, one, other))
        elif not name.endswith(".snapshot"):
            found.append(f"{name}: {_first_difference(name, mine, theirs)}")
        elif producers(mine) != producers(theirs):
            found.append(f"{name}: {producers(mine)}, Kafka: {producers(theirs)}")
    return found


def _may_lack(name: str, there: bytes, log: bytes) -> Difference | None:
    """Whether a file need not be on both sides."""
    if name.endswith(".txnindex") and not there:
        # Cut to nothing by a truncation; Kafka replaces the files of an empty segment when it rolls.
        return EMPTY_ROLL
    if name.endswith((".index", ".timeindex")) and not any(there) and not any(log):
        return LAZY_INDEX
    return None


def _may_be(name: str, mine: bytes, theirs: bytes, *, active: bool, truncated: int) -> Difference | None:
    """Whether an index may be other than Kafka's."""
    if active and theirs == mine.ljust(len(theirs), b"\0"):
        return LATE_STRETCH
    if active and _waits(name, mine, theirs):
        return WAITING_ENTRIES
    if name.startswith(f"{truncated:020}.") and same_entries(name, mine, theirs):
        return STALE_ENTRIES
    return None


def _unlike_ordinals(name: str, one: Files, other: Files) -> list[str]:
    if name.endswith(".log"):
        return []
    log = name.removesuffix(".index") + ".log"
    if _by_ordinal(one[name], one[log]) == _by_ordinal(other[name], other[log]):
        return []
    return [f"{name}: {_told(name, one[name])}, Kafka: {_told(name, other[name])}, by batch"]


def same_batches(one: Path, other: Path, decode: Decode) -> list[str]:
    """In what the batches of two directories differ once they are decompressed by Kafka: sizes and checksums do not count."""
    found = []
    for path in sorted(one.glob("*.log")):
        mine, theirs = (
            [{key: value for key, value in batch.items() if key not in {"size", "crc"}} for batch in decode(folder / path.name)]
            for folder in (one, other)
        )
        for number, (left, right) in enumerate(zip(mine, theirs, strict=False)):
            if left != right:
                found.append(f"{path.name}: batch {number}: {left}, Kafka: {right}")
        if len(mine) != len(theirs):
            found.append(f"{path.name}: {len(mine)} batches, Kafka: {len(theirs)}")
    return found


def _by_ordinal(index: bytes, log: bytes) -> list[tuple[int, int]]:
    number = {header.position: n for n, header in enumerate(headers(log))}
    return [(offset, number.get(position, -1)) for offset, position in INDEX_ENTRY.iter_unpack(index)]


def entries(name: str, data: bytes) -> list[tuple[int, ...]]:
    """The entries of an index without the zeros behind them."""
    layout = {".index": INDEX_ENTRY, ".timeindex": TIME_ENTRY, ".txnindex": TXN_ENTRY}["." + name.rsplit(".", 1)[1]]
    whole = data[: len(data) // layout.size * layout.size]
    found = list(layout.iter_unpack(whole))
    while found and not any(found[-1]):
        found.pop()
    return found


def _waits(name: str, mine: bytes, theirs: bytes) -> bool:
    """Whether an index lacks some of the newest entries, with zeros in their place: one that is closed has no zeros."""
    front = entries(name, mine)
    whole = entries(name, theirs)
    return len(mine) == len(theirs) and 0 < len(whole) - len(front) <= MOST_WAITING and whole[: len(front)] == front


def same_entries(name: str, mine: bytes, theirs: bytes) -> bool:
    """Whether all that is in one index stands at the front of the other of the same size."""
    count = len(entries(name, mine))
    return len(mine) == len(theirs) and entries(name, theirs)[:count] == entries(name, mine)


def true_times(base: int, index: bytes, log: bytes) -> bool:
    """Whether each entry of a time index names a batch with the largest timestamp so far, and none is missing at the end."""
    largest: list[tuple[int, int]] = []
    for header in headers(log):
        if header.max_timestamp > (largest[-1][0] if largest else -1):
            largest.append((header.max_timestamp, header.last_offset - base))
    return set(entries(".timeindex", index)) <= set(largest)


def _told(name: str, data: bytes | None) -> str:
    if data is None:
        return "missing"
    if name.endswith("index"):
        return f"{len(data)} bytes {entries(name, data)}"
    if name.endswith(".snapshot"):
        return f"{producers(data)}"
    if name.endswith("checkpoint"):
        return f"{data!r}"
    return f"{len(data)} bytes"


def _first_difference(name: str, mine: bytes, theirs: bytes) -> str:
    if not name.endswith(".log"):
        return f"{_told(name, mine)}, Kafka: {_told(name, theirs)}"
    at = next((n for n, (left, right) in enumerate(zip(mine, theirs, strict=False)) if left != right), min(len(mine), len(theirs)))
    lines = [f"{len(mine)} bytes, Kafka: {len(theirs)}, from position {at}"]
    for which, data in (("here", mine), ("Kafka", theirs)):
        near = [header for header in headers(data) if header.position + header.size > at][:1]
        lines.append(f"    {which}: {near[0] if near else 'no batch'} {data[at : at + SHOWN].hex()}")
    return "\n".join(lines)


__all__ = [
    "Files",
    "Header",
    "bases",
    "counts",
    "entries",
    "headers",
    "producers",
    "same_batches",
    "same_entries",
    "sizes",
    "stored",
    "true_times",
    "unlike",
    "unlike_sizes",
    "whole",
]
