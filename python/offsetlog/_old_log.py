"""``OldLog``: a partition of Kafka 0.7, read as it is."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from offsetlog import _offsetlog
from offsetlog._options import (
    Limits,
    OpenOptions,
    PathLike,
    integer,
    open_options,
    path_text,
)
from offsetlog._values import OldRecord

if TYPE_CHECKING:
    from typing import Self, Unpack

__all__ = ["OldLog"]

logger = logging.getLogger("offsetlog")


class OldLog:
    """A partition directory of Kafka 0.7: ``.kafka`` files named by the position of their first byte in the whole partition.

    Made by :meth:`OldLog.open`. What 0.7 calls an offset is such a position, in bytes. There are no keys, no timestamps and no
    indexes. :func:`~offsetlog.convert` makes a current directory of it, whose records are numbered from 0.

    It is what it was when it was opened, holds no file open, takes no lock and changes nothing. Safe to use from several threads;
    pickles as path and options.

    Examples
    --------
    >>> import pathlib, struct, tempfile, zlib
    >>> def message(payload):
    ...     body = struct.pack(">bbI", 1, 0, zlib.crc32(payload)) + payload
    ...     return struct.pack(">i", len(body)) + body
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "clicks-7")
    ...     path.mkdir()
    ...     _ = (path / f"{0:020}.kafka").write_bytes(message(b"one") + message(b"two"))
    ...     log = OldLog.open(path)
    ...     for record in log.scan():
    ...         print(record)
    ...     log.read(13)[0].value
    OldRecord(offset=0, next_offset=13, value=b'one')
    OldRecord(offset=13, next_offset=26, value=b'two')
    b'two'
    """

    __slots__ = ("_absolute", "_native", "_options")

    _native: _offsetlog.OldLog
    _options: OpenOptions
    _absolute: str

    def __init__(self) -> None:
        message = "open a partition of Kafka 0.7 with OldLog.open(path)"
        raise TypeError(message)

    @classmethod
    def open(
        cls,
        path: PathLike,
        **limits: Unpack[Limits],
    ) -> Self:
        """Open a partition directory, named ``topic-partition``.

        Parameters
        ----------
        path
            The directory.
        **limits
            As for :meth:`Log.open`; ``max_batch_bytes`` and ``max_decompressed_bytes`` are bounds on an entry.

        Raises
        ------
        LogDirError
            The name is not ``topic-partition``; a file does not begin where the one before ends; there are ``.log`` files too.
        OSError
            The directory cannot be listed.

        Notes
        -----
        Lists the directory; nothing is read. Source: FORMAT.md, "Message of Kafka 0.7".
        """
        options = open_options(**limits)
        return cls._of(path_text(path), options)

    @classmethod
    def _of(cls, path: str, options: OpenOptions) -> Self:
        log = object.__new__(cls)
        log._native = _offsetlog.OldLog.open(path, options)
        log._options = options
        log._absolute = os.path.abspath(path)
        return log

    @property
    def path(self) -> str:
        """The partition directory."""
        return self._native.path

    @property
    def topic(self) -> str:
        """The topic, from the directory's name."""
        return self._native.topic

    @property
    def partition(self) -> int:
        """The partition, from the directory's name."""
        return self._native.partition

    @property
    def log_start_offset(self) -> int:
        """Position of the first byte that is there."""
        return self._native.start

    @property
    def log_end_offset(self) -> int:
        """Position behind the last byte, of which the last ones may be an unfinished entry."""
        return self._native.end

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return self._native.size_bytes

    def scan(self, start: int | None = None) -> Iterator[OldRecord]:
        """Iterate over the messages, sets unpacked, from the entry at `start` on.

        Parameters
        ----------
        start
            Position of an entry: the ``offset`` or ``next_offset`` of a message, or the end of the log; ``None`` is the first one.

        Raises
        ------
        OffsetOutOfRangeError
            `start` lies outside the log.
        ConfigError
            No entry begins at `start`: only the one before tells where one does.
        CorruptionError
            A bad entry, with file, position and offset; what was before it has been given. An unfinished entry at the very end of
            the last file is no damage: it is left out, with a warning in the log ``offsetlog``. Unfinished is what an interrupted
            write can leave: an entry that is cut short, or one that is zeros from some sector (512 bytes) to the end of the file.
        LogDirError
            A file has fewer bytes than when the log was opened. Some messages before its new end may not have been given.
        DecompressionLimitError, LimitExceededError
            An entry is larger than allowed.

        Notes
        -----
        Every entry's checksum is checked, which covers its payload only, as in 0.7. Memory holds an entry, or half a MiB.

        A payload may hold entries itself. So whether an entry begins at `start` is found by the lengths of the entries before it: the
        first message costs a read of the file up to there, or from where the last scan or :meth:`read` of this log began, if that is
        before `start`. Reading on from ``next_offset`` each time costs no more than the entries. Behind a damaged length nothing
        tells: there three whole entries in a row from `start` on, or whole ones to the end of the file, are enough.
        """
        return _messages(self._native.scan(None if start is None else integer("start", start, minimum=0)))

    def read(self, offset: int) -> tuple[OldRecord, ...]:
        """Return the messages of the entry at `offset`: one, or those of a compressed set; none at the end of the log.

        Raises
        ------
        OffsetOutOfRangeError, ConfigError, CorruptionError, LogDirError
            As :meth:`scan`.
        """
        found = self._native.scan(integer("offset", offset, minimum=0))
        first = next(found, [])
        _warn_of_torn_tail(found)
        return tuple(record for record in first if record.offset == offset)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopened, (self._absolute, self._options))

    def __repr__(self) -> str:
        return f"OldLog({self.path!r}, offsets {self.log_start_offset} to {self.log_end_offset})"


def _messages(found: _offsetlog.OldMessages) -> Iterator[OldRecord]:
    for records in found:
        yield from records
    _warn_of_torn_tail(found)


def _warn_of_torn_tail(found: _offsetlog.OldMessages) -> None:
    """Log what was left out at the end, which nobody sees in the messages."""
    left_out = found.torn_tail()
    if left_out is not None:
        logger.warning("%s", left_out)


def _reopened(path: str, options: OpenOptions) -> OldLog:
    return OldLog._of(path, options)  # noqa: SLF001  # same module
