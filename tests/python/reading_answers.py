"""What the tests of reading verbs share: answers that can be compared, one damage in a directory, and what it does to an answer."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
from frames import frames
from golden import row

from offsetlog import LogConfig, OffsetLogError, Record, TopicPartition
from offsetlog._offsetlog import run_cli

Answer: TypeAlias = dict[Any, Any]
"""What a verb says, in parts: damage may touch some of them."""


class Ended(NamedTuple):
    """What an iterator gave before its end, or before its error."""

    given: list[Any]
    error: Exception | None


class Ran(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def partitions(self) -> list[dict[str, Any]]:
        """The lines about one partition; the first one of a plan is about all."""
        return [line for line in self.lines if "topic" in line]


def attempt(call: Callable[[], object]) -> object:
    """What it returns, or the error that it raises."""
    try:
        return call()
    except OffsetLogError as error:
        return error


def ended(call: Callable[[], Iterable[object]]) -> Ended:
    """All that it gives, and its error."""
    given: list[object] = []
    try:
        given.extend(call())
    except OffsetLogError as error:
        return Ended(given, error)
    return Ended(given, None)


def command(*words: object) -> Ran:
    """The command, in this process; what it prints goes to memory, as no disk need have room for it."""
    files = [os.memfd_create(name) for name in ("out", "err")]
    saved = [os.dup(number) for number in (1, 2)]
    try:
        for number, file in zip((1, 2), files, strict=True):
            os.dup2(file, number)
        try:
            code = run_cli(["offsetlog", *map(str, words)], [])
        finally:
            for number, file in zip((1, 2), saved, strict=True):
                os.dup2(file, number)
        out, err = (os.pread(file, os.fstat(file).st_size, 0).decode() for file in files)
    finally:
        for file in (*files, *saved):
            os.close(file)
    return Ran(code, out, err)


def plain(value: Any, root: Path) -> Any:  # noqa: ANN401, PLR0911  # answers of all kinds
    """An answer as built-in values that can be compared with those of a copy that lies elsewhere."""
    if isinstance(value, str):
        return value.replace(str(root), "ROOT")
    if value is None or isinstance(value, (bytes, bool, int)):
        return value
    if isinstance(value, Ran):
        # Standard error has ages.
        return value.code, plain(value.out, root)
    if isinstance(value, BaseException):
        return type(value).__name__, plain(str(value), root), plain(vars(value), root)
    if isinstance(value, Mapping):
        return {plain(key, root): plain(each, root) for key, each in value.items()}
    if isinstance(value, tuple):
        kept = tuple(plain(each, root) for each in value)
        return (type(value).__name__, *kept) if hasattr(value, "_fields") else kept
    if isinstance(value, (list, set, frozenset)):
        return [plain(each, root) for each in value]
    if isinstance(value, Record):
        return (value.topic, value.partition, *row(value))
    if isinstance(value, LogConfig):
        return dict(value.to_dict())
    if isinstance(value, pa.Table):
        return value.to_pylist()
    if value.__class__.__module__.startswith("offsetlog"):
        names = [name for name in dir(value) if not name.startswith("_") and not callable(getattr(value, name))]
        return type(value).__name__, {name: plain(getattr(value, name), root) for name in names}
    return repr(value)


class Bad(NamedTuple):
    """The batch or file that is damaged."""

    key: TopicPartition
    file: Path
    """Below the folder of all log dirs."""
    position: int | None = None
    offset: int | None = None
    """Its base offset."""
    lost: frozenset[int] = frozenset()
    """The offsets in it."""

    @property
    def place(self) -> str:
        """How errors name the file."""
        return f"{self.file.parent.name}/{self.file.name}"


def key_of(file: Path) -> TopicPartition:
    topic, _, number = file.parent.name.rpartition("-")
    return TopicPartition(topic, int(number))


def flipped(root: Path, name: str, *, first: bool = False) -> Bad:
    """Flip a bit in the middle of the records of a batch, of that in the middle of the file unless it is the first one."""
    path = root / name
    data = bytearray(path.read_bytes())
    found = next(each for each in frames(path) if first or each.position + each.size_bytes > len(data) // 2)
    data[found.position + 61 + (found.size_bytes - 61) // 2] ^= 1
    path.write_bytes(data)
    assert found.base_offset is not None
    lost = frozenset(range(found.base_offset, found.last_offset + 1))
    return Bad(key_of(path), Path(name), found.position, found.base_offset, lost)


Check: TypeAlias = Callable[[Bad, Any, Any], None]
"""Looks at a part of an answer, given what is damaged, and at what the part is without it."""
