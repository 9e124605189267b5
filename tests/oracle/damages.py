"""Rows of damage to a directory of four segments (at 0, 9, 17 and 26), by name."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from damage import NAME, Damage

BASES = (0, 9, 17, 26)
END = 29
LAST = 26
TXN_ENTRY = struct.Struct(">hqqqq")
DAMAGES: dict[str, Damage] = {}


def file(directory: Path, base: int, suffix: str) -> Path:
    """A file of a segment."""
    return directory / f"{base:020}{suffix}"


def row(name: str) -> Callable[[Damage], Damage]:
    """Names a damage."""

    def named(damage: Damage) -> Damage:
        DAMAGES[name] = damage
        return damage

    return named


def _rows(names: dict[str, Damage]) -> None:
    DAMAGES.update(names)


def _remove(*pairs: tuple[int, str]) -> Damage:
    def damage(directory: Path) -> None:
        for base, suffix in pairs:
            file(directory, base, suffix).unlink(missing_ok=True)

    return damage


def _write(name: str, data: bytes) -> Damage:
    def damage(directory: Path) -> None:
        (directory / name).write_bytes(data)

    return damage


def _change(base: int, suffix: str, change: Callable[[bytes], bytes]) -> Damage:
    def damage(directory: Path) -> None:
        path = file(directory, base, suffix)
        path.write_bytes(change(path.read_bytes()))

    return damage


def _flipped(at: int) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return change


def _epochs(text: str) -> Damage:
    return _write("leader-epoch-checkpoint", text.encode())


_rows({f".index of {base} missing": _remove((base, ".index")) for base in (0, 9, LAST)})
_rows({f".timeindex of {base} missing": _remove((base, ".timeindex")) for base in (0, 17, LAST)})
_rows(
    {
        "all indexes missing": _remove(*((base, suffix) for base in BASES for suffix in (".index", ".timeindex", ".txnindex"))),
        ".txnindex missing": _remove((9, ".txnindex")),
        ".index of 9 is 5 bytes": _change(9, ".index", lambda _: b"\0\0\0\1\0"),
        ".index of 9 is empty": _change(9, ".index", lambda _: b""),
        ".index of 9 with a zero tail": _change(9, ".index", lambda data: data + bytes(80)),
        ".index of 9 is garbage": _change(9, ".index", lambda _: bytes(range(80))),
        ".index of 26 points past the end": _change(LAST, ".index", lambda data: data + struct.pack(">ii", 2, 100_000)),
        ".index of 26 is garbage": _change(LAST, ".index", lambda _: bytes(range(80))),
        ".timeindex of 9 is garbage": _change(9, ".timeindex", lambda _: bytes(range(96))),
        ".timeindex of 9 is empty": _change(9, ".timeindex", lambda _: b""),
        ".timeindex of 26 is garbage": _change(LAST, ".timeindex", lambda _: bytes(range(96))),
        ".txnindex entry below its segment": _change(9, ".txnindex", lambda _: TXN_ENTRY.pack(0, 8, 1, 2, 3)),
        ".txnindex of ff": _change(9, ".txnindex", lambda data: b"\xff" * len(data)),
        ".txnindex of zeros": _change(9, ".txnindex", lambda data: bytes(len(data))),
        ".txnindex begins with 1": _change(9, ".txnindex", lambda data: b"\1" + data[1:]),
        ".txnindex begins with 127": _change(9, ".txnindex", lambda data: b"\x7f" + data[1:]),
        ".txnindex is 20 bytes": _change(9, ".txnindex", lambda data: data[:20]),
        "stray snapshot inside": _write(f"{13:020}.snapshot", bytes.fromhex("000148674bc700000000")),
        "stray snapshot above the end": _write(f"{99:020}.snapshot", bytes.fromhex("000148674bc700000000")),
        "newest snapshot corrupt": _change(END, ".snapshot", _flipped(15)),
        "newest snapshot empty": _change(END, ".snapshot", lambda _: b""),
        "epoch file missing": lambda directory: (directory / "leader-epoch-checkpoint").unlink(),
        "epoch file empty": _epochs(""),
        "epoch file malformed": _epochs("0\n3\n1 0\ntwo 12\n3 26\n"),
        "epoch file with a wrong count": _epochs("0\n4\n1 0\n2 12\n3 26\n"),
        "epoch file of version 1": _epochs("1\n3\n1 0\n2 12\n3 26\n"),
        "epoch file beyond the end": _epochs("0\n2\n1 0\n7 900\n"),
        "partition.metadata missing": lambda directory: (directory / "partition.metadata").unlink(),
        "partition.metadata malformed": _write("partition.metadata", b"version: 0\ntopic: x\n"),
        "partition.metadata empty": _write("partition.metadata", b""),
        "foo.txt": _write("foo.txt", b"text"),
        "x.log.tmp": _write("x.log.tmp", b"text"),
        "a folder": lambda directory: (directory / "folder").mkdir(),
        "foo.log": _write("foo.log", b""),
        "abc.snapshot": _write("abc.snapshot", b""),
        "orphan .index": _write(f"{11:020}.index", bytes(8)),
        "orphan .timeindex": _write(f"{11:020}.timeindex", bytes(12)),
        "orphan .txnindex": _write(f"{11:020}.txnindex", bytes(34)),
        "first segment missing": _remove(*((0, suffix) for suffix in (".log", ".index", ".timeindex"))),
        "middle segment missing": _remove(*((9, suffix) for suffix in (".log", ".index", ".timeindex", ".txnindex"))),
        "last segment missing": _remove(*((LAST, suffix) for suffix in (".log", ".index", ".timeindex"))),
        "bad byte in the first batch of 9": _change(9, ".log", _flipped(70)),
        "bad byte in the first batch of 26": _change(LAST, ".log", _flipped(70)),
        ".log of 9 empty": _change(9, ".log", lambda _: b""),
        ".log of 26 empty": _change(LAST, ".log", lambda _: b""),
        "half a batch behind 26": _change(LAST, ".log", lambda data: data + data[:50]),
        "17 zeros behind 26": _change(LAST, ".log", lambda data: data + bytes(17)),
        "18 zeros behind 26": _change(LAST, ".log", lambda data: data + bytes(18)),
        "20000 zeros behind 26": _change(LAST, ".log", lambda data: data + bytes(20_000)),
        "half a batch behind 9": _change(9, ".log", lambda data: data + data[:50]),
    }
)


@row("all snapshots missing")
def _no_snapshots(directory: Path) -> None:
    for path in directory.glob("*.snapshot"):
        path.unlink()


@row("all .log missing")
def _no_logs(directory: Path) -> None:
    for path in directory.glob("*.log"):
        path.unlink()


@row("empty directory")
def _nothing(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()


def _copied(directory: Path, base: int, suffix: str, *, to: int | None = None, suffixes: tuple[str, ...] = (".log",)) -> None:
    for one in suffixes:
        source = file(directory, base, one)
        if source.exists():
            file(directory, base if to is None else to, one + suffix).write_bytes(source.read_bytes())


ALL = (".log", ".index", ".timeindex", ".txnindex")


@row(".cleaned of 9")
def _cleaned(directory: Path) -> None:
    _copied(directory, 9, ".cleaned", suffixes=ALL)


@row(".swap of 9, all files")
def _swap(directory: Path) -> None:
    for suffix in ALL:
        source = file(directory, 9, suffix)
        if source.exists():
            source.rename(source.with_name(source.name + ".swap"))


@row(".log.swap of 9 beside its files")
def _log_swap(directory: Path) -> None:
    _copied(directory, 9, ".swap")


def _swap_of_two(directory: Path) -> None:
    both = file(directory, 9, ".log").read_bytes() + file(directory, 17, ".log").read_bytes()
    file(directory, 9, ".log.swap").write_bytes(both)


DAMAGES[".log.swap of 9 and 17 in one"] = _swap_of_two


@row(".log.swap of 9 and 17, .cleaned of 17")
def _swap_and_higher(directory: Path) -> None:
    _swap_of_two(directory)
    _copied(directory, 17, ".cleaned")


@row(".log.swap of 9 and 17, .cleaned of 9")
def _swap_and_same(directory: Path) -> None:
    _swap_of_two(directory)
    _copied(directory, 9, ".cleaned")


@row(".index.swap of 9")
def _index_swap(directory: Path) -> None:
    _copied(directory, 9, ".swap", suffixes=(".index",))


@row(".deleted of 9")
def _deleted(directory: Path) -> None:
    _copied(directory, 9, ".deleted", suffixes=ALL)


def _start(offset: int) -> Damage:
    def damage(directory: Path) -> None:
        topic, partition = NAME.rsplit("-", 1)
        (directory.parent / "log-start-offset-checkpoint").write_text(f"0\n1\n{topic} {partition} {offset}\n")

    return damage


_rows({f"start checkpoint {offset}": _start(offset) for offset in (13, 17, END, 40)})
