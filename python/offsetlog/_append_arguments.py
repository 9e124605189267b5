"""The arguments of appends: their types, and their checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from offsetlog._config import LogConfig, to_log_config
from offsetlog._options import AppendOptions, bounded, flag, refuse
from offsetlog.errors import ConfigError

if TYPE_CHECKING:
    from offsetlog._offsetlog import Record

Buffer: TypeAlias = bytes | bytearray | memoryview
Headers: TypeAlias = Iterable[tuple[str, bytes | None]]
NewRecord: TypeAlias = "bytes | tuple[bytes | None, bytes | None] | Record | None"
Origin: TypeAlias = Literal["client", "coordinator"]
Compression: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]


class ArrowStreamable(Protocol):
    """Data that comes as an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a capsule of the Arrow PyCapsule interface."""


class ArrowArrayable(Protocol):
    """Data that comes as one Arrow array of structs."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        """Return two capsules of the Arrow PyCapsule interface."""


_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


def config_pairs(config: object) -> list[tuple[str, str]]:
    """Return settings as the engine takes them."""
    if not isinstance(config, LogConfig | Mapping):
        message = f"config must be a LogConfig or a mapping of Kafka's names, found {type(config).__name__}"
        raise TypeError(message)
    return list(to_log_config(config)._given)  # noqa: SLF001  # same package


def checked_bytes(name: str, value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    message = f"{name} must be bytes or None, found {type(value).__name__}"
    if isinstance(value, str):
        message += ": encode a str, as in text.encode()"
    raise TypeError(message)


def encoded(data: object) -> bytes:
    found = checked_bytes("data", data)
    if found is None:
        message = "data must be bytes, found NoneType"
        raise TypeError(message)
    return found


def checked_headers(headers: object) -> list[tuple[bytes, bytes | None]]:
    # The default. To ask whether it is a mapping takes a tenth of an append.
    if isinstance(headers, tuple) and not headers:
        return []
    if isinstance(headers, Mapping):
        headers = headers.items()
    if not isinstance(headers, Iterable):
        message = f"headers must be pairs of a str and bytes or None, found {type(headers).__name__}"
        raise TypeError(message)
    checked = []
    for pair in headers:
        if not isinstance(pair, Sequence) or len(pair) != 2 or not isinstance(pair[0], str):  # noqa: PLR2004  # a pair
            message = f"a header must be a pair of a str and bytes or None, found {pair!r}"
            raise TypeError(message)
        # Names that are not UTF-8 come out of a record with lone surrogates, and go back as they were.
        checked.append((_header_name(pair[0]), checked_bytes("a header's value", pair[1])))
    return checked


def _header_name(name: str) -> bytes:
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        refuse("headers", ascii(name), f"the name {name!a} is no Unicode text: {error.reason} at {error.start}")


def checked_epoch(leader_epoch: int | None) -> int | None:
    if leader_epoch is None:
        return None
    return bounded("leader_epoch", leader_epoch, minimum=0, bits=32)


def checked_compression(compression: str | None) -> str | None:
    """Return `compression` if it names a codec."""
    if compression is not None and compression not in _COMPRESSIONS:
        message = f"compression: must be one of {', '.join(_COMPRESSIONS)}, found {compression!r}"
        raise ConfigError(message, key="compression", value=str(compression))
    return compression


def append_options(leader_epoch: int | None, *, flush: bool) -> AppendOptions:
    """Return what appends of whatever source take, after its checks."""
    return AppendOptions(leader_epoch=checked_epoch(leader_epoch), flush=flag("flush", flush))
