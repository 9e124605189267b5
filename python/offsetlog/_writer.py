"""``Writer``: gathers many small appends into batches. Kafka's producer has a record accumulator for this."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from offsetlog._append_arguments import checked_bytes, checked_headers
from offsetlog._times import optional_millis
from offsetlog._values import AppendInfo
from offsetlog.errors import ForkedLogError, LogClosedError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from offsetlog import _offsetlog
    from offsetlog._append_arguments import Buffer, Headers
    from offsetlog._options import When

__all__ = ["Writer"]


class Writer:
    """Many small appends, gathered into batches. Made by :meth:`WritableLog.writer`; safe to use from several threads.

    A record counts as appended when its batch is: at the latest after :meth:`flush`, or when the writer is closed. The offsets
    come with :meth:`flush`.
    """

    __slots__ = ("_native", "_pid")

    def __init__(self, native: _offsetlog.Writer) -> None:
        self._native: _offsetlog.Writer | None = native
        self._pid = os.getpid()

    def append(self, value: Buffer | None, *, key: Buffer | None = None, headers: Headers = (), timestamp: When | None = None) -> None:
        """Add a record to the batch, which is appended when it is full or has waited long enough.

        Raises
        ------
        OSError, InvalidTimestampError, RecordTooLargeError
            As :meth:`WritableLog.append`; also for an earlier batch, which the timer appended, or this call to make room. The error
            then has a note that the record of this call was not taken. The records of a batch that was refused are not in the log;
            ``appended`` is true where they are, and making them durable failed.
        Exception
            What a ``clock=`` raised, with a note that says whether the record of this call was taken and waits.
        """
        self._open().append(
            value if type(value) is bytes else checked_bytes("value", value),
            key if key is None or type(key) is bytes else checked_bytes("key", key),
            checked_headers(headers) if headers else None,
            None if timestamp is None else optional_millis(timestamp, "timestamp"),
        )

    def flush(self) -> AppendInfo | None:
        """Append what waits, and return what the last append did; ``None`` before the first."""
        return self._open().flush()

    def close(self) -> None:
        """Append what waits and end the writer. Closing twice is fine."""
        native, self._native = self._native, None
        # In a forked child the records that wait are the parent's to append.
        if native is not None and self._pid == os.getpid():
            native.close()

    def _open(self) -> _offsetlog.Writer:
        if self._native is None:
            message = "the writer is closed"
            raise LogClosedError(message)
        if self._pid != os.getpid():
            message = f"the writer was made in process {self._pid}; a child process cannot write through its parent's log"
            raise ForkedLogError(message)
        return self._native

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()
