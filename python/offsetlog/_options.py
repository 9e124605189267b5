"""The options of logs and scans in one place each: names, types, defaults, checks."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, TypeAlias, TypedDict, Unpack, cast, get_type_hints

from offsetlog._offsetlog import COLUMNS, given_path
from offsetlog._times import to_millis
from offsetlog.errors import ConfigError

PathLike: TypeAlias = str | os.PathLike[str]
IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]
OnCorrupt: TypeAlias = Literal["raise", "skip", "stop"]
Clock: TypeAlias = Callable[[], int]
When: TypeAlias = int | datetime

MIB = 1 << 20

_ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
_ON_CORRUPT = ("raise", "skip", "stop")
_TEXT_MAX = 200


class Limits(TypedDict, total=False):
    """Keyword arguments that bound what bytes of a file can make us do; :meth:`offsetlog.Log.open` says what they mean."""

    max_batch_bytes: int
    max_decompressed_bytes: int
    max_headers: int
    max_segments: int
    max_state_file_bytes: int
    max_open_files: int


LIMITS = Limits(
    max_batch_bytes=64 * MIB,
    max_decompressed_bytes=256 * MIB,
    max_headers=10_000,
    max_segments=1_000_000,
    max_state_file_bytes=16 * MIB,
    max_open_files=256,
)
"""The limits where nobody gives others."""


class OpenOptions(TypedDict):
    """What ``open`` takes beside the path, as a log keeps it for its pickles and for its children after a fork."""

    mapped: bool
    limits: Limits


class ClusterOptions(TypedDict):
    """What a caller says of the cluster that a log dir belongs to."""

    metadata: str | None
    broker: str | None
    internal_topics: Sequence[str]
    single_replica: bool


class WriteOptions(TypedDict):
    """What opening a log for appending takes; settings as pairs of name and text."""

    config: Sequence[tuple[str, str]] | None
    clock: Clock | None
    topic_id: str | None
    clean: bool | None
    recovery_point: int | None
    cluster: ClusterOptions


class LogDirOptions(TypedDict):
    """What opening log dirs for appending takes; settings as pairs of name and text."""

    defaults: Sequence[tuple[str, str]]
    clock: Clock | None
    max_open_partitions: int
    seed: int | None
    cluster: ClusterOptions


class AppendOptions(TypedDict):
    """What appends of whatever source take."""

    leader_epoch: int | None
    flush: bool


class MarkerOptions(TypedDict):
    """The end of a transaction."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    timestamp: int | None
    transaction_version: int


class MaintainOptions(TypedDict):
    """What upkeep is to do; settings as pairs of name and text."""

    now: int | None
    dry_run: bool
    only: Sequence[str]
    config: Sequence[tuple[str, str]] | None


class Option(NamedTuple):
    """The default of an option, and its check."""

    default: object
    check: Callable[[str, Any], object]
    """Takes name and value, returns what the compiled module takes. The default is not checked."""


class RestoreOptions(TypedDict):
    """What a restore takes beside its paths."""

    topics: Sequence[str]
    until: int | None
    ends: Sequence[tuple[str, int, int]]
    new_cluster: bool
    metadata: Sequence[str]
    broker: str | None
    replication_factor: int | None
    single_replica: bool
    keep_retention: bool
    dry_run: bool


class ScanOptions(TypedDict, total=False):
    """Keyword arguments that every scan takes, each with its default and its check; :meth:`offsetlog.Log.scan` says what they mean."""

    start_timestamp: Annotated[When | None, Option(None, _time)]
    stop_timestamp: Annotated[When | None, Option(None, _time)]
    columns: Annotated[Iterable[str] | None, Option(None, _by_value(column_names))]
    keys: Annotated[Iterable[bytes] | bytes | None, Option(None, _by_value(key_set))]
    isolation_level: Annotated[IsolationLevel, Option("read_uncommitted", _by_value(isolation_level))]
    limit: Annotated[int | None, Option(None, partial(integer, minimum=0))]
    batch_rows: Annotated[int | None, Option(None, partial(integer, minimum=1))]
    batch_bytes: Annotated[int | None, Option(None, partial(integer, minimum=1))]
    verify_checksums: Annotated[bool, Option(True, flag)]
    threads: Annotated[int, Option(1, partial(integer, minimum=1))]
    on_corrupt: Annotated[OnCorrupt, Option("raise", _by_value(on_corrupt))]


class TakeOptions(ScanOptions, total=False):
    """Those of a scan that may take single offsets."""

    offsets: Annotated[Iterable[int] | None, Option(None, _offsets)]


class CheckedScan(SimpleNamespace):
    """Every option of :class:`TakeOptions`, checked: plain values that pickle and that the compiled module takes by name."""


class OverOptions(ScanOptions, Limits, total=False):
    """Keyword arguments of a scan that opens its logs itself."""


def apart(options: OverOptions) -> tuple[Limits, ScanOptions]:
    """Return limits, and what is no limit."""
    given = dict(options)
    limits = {name: given.pop(name) for name in LIMITS if name in given}
    return cast("Limits", limits), cast("ScanOptions", given)


def refuse(key: str, value: object, reason: str) -> NoReturn:
    """Raise :class:`ConfigError` for one argument; the text begins with its name."""
    text = value if isinstance(value, str) else repr(value)
    message = f"{key}: {reason}"
    raise ConfigError(message, key=key, value=text[:_TEXT_MAX])


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the known word nearest to `word`, or nothing when none is near."""
    known = list(known)
    folded = {name.lower().replace("_", ""): name for name in known}
    near = difflib.get_close_matches(word.lower().replace("_", ""), list(folded), n=1)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""


def checked_mode(mode: str, clock: object) -> None:
    """Refuse every mode but ``"r"`` and ``"a"``, and a clock that is none."""
    if mode not in {"r", "a"}:
        refuse("mode", mode, f"must be 'r' or 'a', found {mode!r}")
    if clock is not None and not callable(clock):
        message = f"clock must be callable, found {type(clock).__name__}"
        raise TypeError(message)


def open_options(*, mapped: bool = False, **limits: Unpack[Limits]) -> OpenOptions:
    """Return the options of ``open`` after their checks."""
    checked = LIMITS.copy()
    for name, value in limits.items():
        if name not in LIMITS:
            message = f"unexpected keyword argument {name!r}{nearest(name, LIMITS)}"
            raise TypeError(message)
        # Of headers there may be none at all.
        checked[name] = integer(name, value, minimum=0 if name == "max_headers" else 1)  # type: ignore[literal-required]  # it is one
    return OpenOptions(mapped=flag("mapped", mapped), limits=checked)


def path_text(path: object) -> str:
    """Return `path` as text: as it is given, or out of a ``file:`` URL. Refuse what is not local."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        message = f"path must be str or os.PathLike[str], found {type(path).__name__}"
        raise TypeError(message)
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        refuse("path", ascii(text), f"no file has such a name: {text!a}, {error.reason}")
    return given_path(text) if ":/" in text else text


def path_texts(paths: PathLike | Iterable[PathLike]) -> list[str]:
    """Return one path, or several, as texts."""
    return [path_text(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]


def utf8(name: str, text: str) -> str:
    """Return `text` if it is Unicode; lone surrogates are not."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        refuse(name, ascii(text), f"{text!a} is no Unicode text: {error.reason} at {error.start}")
    return text


def checked_topic_id(topic_id: object) -> str | None:
    """Return a topic's id if it looks like one: 22 characters of base64url."""
    if topic_id is None:
        return None
    if not isinstance(topic_id, str):
        message = f"topic_id must be a str, found {type(topic_id).__name__}"
        raise TypeError(message)
    if not re.fullmatch(r"[A-Za-z0-9_-]{22}(==)?", topic_id):
        refuse("topic_id", topic_id, f"must be 22 characters of base64url, found {topic_id!r}")
    return topic_id


def flag(name: str, value: object) -> bool:
    """Return `value` if it is a bool. Every text counts as true in Python, "false" and "no" too, and ``None`` as false."""
    if not isinstance(value, bool):
        refuse(name, value, f"must be True or False, found {value!r:.40}")
    return value


def integer(name: str, value: object, *, minimum: int) -> int:
    """Return `value` if it is an int of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"{name} must be an int, found {type(value).__name__}"
        raise TypeError(message)
    if value < minimum:
        refuse(name, value, f"must be at least {minimum}, found {value}")
    if value >= 1 << 63:
        refuse(name, value, "does not fit 64 bits")
    return value


def beyond(name: str, value: object) -> NoReturn:
    """Refuse a number that is no offset because it has more than 64 bits."""
    refuse(name, value, f"does not fit 64 bits: {value!r:.40}")


def optional_offset(name: str, value: object) -> int | None:
    """Return `value` if it is ``None`` or an int of 64 bits; whether a log has such an offset is not asked."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"{name} must be an int, found {type(value).__name__}"
        raise TypeError(message)
    if not -(1 << 63) <= value < 1 << 63:
        beyond(name, value)
    return value


def bounded(name: str, value: object, *, minimum: int, bits: int) -> int:
    """Return `value` if it is an int of at least `minimum` that a signed number of `bits` holds."""
    checked = integer(name, value, minimum=minimum)
    if checked >= 1 << (bits - 1):
        refuse(name, checked, f"must be below {1 << (bits - 1)}, found {checked}")
    return checked


def isolation_level(level: str) -> IsolationLevel:
    """Return `level` if it is one of Kafka's two words."""
    if level not in _ISOLATION_LEVELS:
        refuse(
            "isolation_level",
            level,
            f"must be 'read_uncommitted' or 'read_committed', found {level!r}{nearest(str(level), _ISOLATION_LEVELS)}",
        )
    return level  # type: ignore[return-value]  # the check above is the narrowing


def on_corrupt(choice: str) -> OnCorrupt:
    """Return `choice` if it is one of the three words for what to do with damage."""
    if choice not in _ON_CORRUPT:
        refuse("on_corrupt", choice, f"must be 'raise', 'skip' or 'stop', found {choice!r}{nearest(str(choice), _ON_CORRUPT)}")
    return choice  # type: ignore[return-value]  # the check above is the narrowing


def column_names(columns: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return `columns` as a tuple of known names."""
    if columns is None:
        return None
    if isinstance(columns, str):
        columns = (columns,)
    chosen = tuple(columns)
    for name in chosen:
        if name not in COLUMNS:
            refuse("columns", name, f"no column {name!r}{nearest(str(name), COLUMNS)} (known: {', '.join(COLUMNS)})")
    if len(set(chosen)) != len(chosen):
        refuse("columns", chosen, f"a column is named twice: {', '.join(chosen)}")
    return chosen


def key_set(keys: object) -> tuple[bytes, ...] | None:
    """Return `keys` as a tuple of bytes; a single ``bytes`` is one key."""
    if keys is None:
        return None
    if isinstance(keys, (bytes, bytearray, memoryview)):
        return (bytes(keys),)
    if isinstance(keys, str) or not isinstance(keys, Iterable):
        message = f"keys must be bytes, found {type(keys).__name__}: encode a str, as in key.encode()"
        raise TypeError(message)
    chosen = []
    for key in keys:
        if not isinstance(key, (bytes, bytearray, memoryview)):
            message = f"keys must be bytes, found {type(key).__name__}"
            raise TypeError(message)
        chosen.append(bytes(key))
    return tuple(chosen)


def _by_value(check: Callable[[Any], object]) -> Callable[[str, Any], object]:
    """Return a check that has no use for the option's name."""
    return lambda _, value: check(value)


def _time(name: str, value: When) -> int:
    return to_millis(value, name)


def _offsets(name: str, value: Iterable[int]) -> tuple[int, ...]:
    return tuple(integer(name, offset, minimum=0) for offset in value)


# Behind all checks: the annotations name them, and are text until here.
SCAN_OPTIONS: Mapping[str, Option] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(TakeOptions, include_extras=True).items()
}
"""The options of a scan by their names."""


def checked_scan(**options: Unpack[TakeOptions]) -> CheckedScan:
    """Check the options of a scan when it is made, so that a wrong one fails there and not at the first record."""
    given: dict[str, Any] = dict(options)
    checked = {}
    for name, option in SCAN_OPTIONS.items():
        value = given.pop(name, option.default)
        checked[name] = value if value is option.default else option.check(name, value)
    if given:
        message = f"checked_scan() got an unexpected keyword argument {next(iter(given))!r}"
        raise TypeError(message)
    return CheckedScan(**checked)


def check_progress(progress: object, name: str = "progress") -> None:
    """Refuse what cannot be called, here and not in the middle of the work."""
    if progress is not None and not callable(progress):
        message = f"{name} must be callable, found {type(progress).__name__}"
        raise TypeError(message)
