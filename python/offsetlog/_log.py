"""``Log``: one partition directory, opened for reading or appending."""

from __future__ import annotations

import html
import logging
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from offsetlog import _offsetlog
from offsetlog._append import Appending, config_pairs
from offsetlog._cluster import cluster_terms
from offsetlog._options import (
    Clock,
    Limits,
    OpenOptions,
    PathLike,
    checked_mode,
    checked_topic_id,
    integer,
    open_options,
    path_text,
    refuse,
)
from offsetlog._read import Reading
from offsetlog._values import (
    Segment,
)
from offsetlog.errors import ForkedLogError, LogClosedError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, Unpack

    from offsetlog._config import LogConfig, SettingValue

__all__ = ["Log"]

logger = logging.getLogger("offsetlog")


class Log(Reading, Appending):
    """One partition of a topic: a directory such as ``orders-0`` with the segments that a Kafka broker keeps there.

    Made by :meth:`Log.open`. Reading takes no lock, makes no file and changes nothing, also beside a running broker or on a
    read-only mount. All offsets are Kafka's; every range has an inclusive start and an exclusive end.

    When a verb that changes a log returns, every later question in this process sees the change, on whichever object it was made and
    is asked, and so does every scan that begins later: what was deleted or truncated does not come back. Each question is answered
    from one state of the log. Where another process writes, that is one which the log had between the last look at its directory and
    the answer: every question looks, but :meth:`get`, :meth:`offset_for_timestamp` and scans with a ``stop``, for which a look is good
    for a millisecond. :meth:`refresh` looks at once. ``docs/DURABILITY.md`` has the whole rule.

    A log is safe to use from several threads. After a fork the child opens the directory again at first use. A log pickles as
    its absolute path and its options, and opens where it is unpickled.

    Examples
    --------
    >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-plain-0") as log:
    ...     record = log.get(log.log_start_offset)
    ...     record.topic, record.partition, record.offset
    ('g-plain', 0, 0)
    """

    __slots__ = ("__weakref__", "_absolute", "_appender", "_mode", "_native", "_options", "_partition", "_path", "_pid", "_topic")

    _native: _offsetlog.Log | None
    _appender: _offsetlog.Appender | None
    _mode: Literal["r", "a"]
    _options: OpenOptions
    _path: str
    _absolute: str
    _pid: int
    _topic: str
    _partition: int

    def __init__(self) -> None:
        message = "open a log with Log.open(path)"
        raise TypeError(message)

    @classmethod
    def open(  # noqa: PLR0913  # one parameter a limit
        cls,
        path: PathLike,
        mode: Literal["r", "a"] = "r",
        config: LogConfig | Mapping[str, SettingValue] | None = None,
        *,
        clock: Clock | None = None,
        topic_id: str | None = None,
        clean: bool | None = None,
        recovery_point: int | None = None,
        broker: PathLike | None = None,
        metadata: PathLike | None = None,
        internal_topics: str | Iterable[str] = (),
        single_replica: bool = False,
        mapped: bool = False,
        **limits: Unpack[Limits],
    ) -> Log:
        """Open a partition directory.

        Parameters
        ----------
        path
            The directory; its name is ``topic-partition``, as ``orders-0``.
        mode
            ``"r"``: read only; takes no lock and changes nothing. ``"a"``: read and append; makes the directory if it is missing,
            takes an exclusive lock on it and, in a log dir, a shared one on its ``.lock``, which a running broker holds.
        config
            Kafka's topic settings, as a :class:`LogConfig` or a mapping of their names, for appending. They replace the stored ones
            and are stored beside the data; ``None`` keeps what is stored.
        clock
            Callable that gives the time in ms since 1970, from which every decision about time comes; default: the wall clock. It is
            asked once by each call, before anything changes: what it raises ends the call. In a timer's thread nobody is there
            to be told: there the wall clock counts, and the failure goes to :func:`sys.unraisablehook`.
        topic_id
            The topic's id (22 characters), for a partition that has none yet; another id than the stored one is refused.
        clean, recovery_point
            What to believe of the last writer's end in place of its marks: whether it was clean, and from where on the log is
            to be read if not. For tests, and for copies whose marks are known to be wrong.
        broker, metadata, internal_topics, single_replica
            For appending in a broker's log dir, as for :meth:`LogDir.open`.
        mapped
            Read segments through memory maps. Faster, and only for copies that nobody writes to: a file that shrinks under
            the map ends the process (SIGBUS).
        **limits
            Bounds on what damaged or hostile files can make this process do; whatever passes one raises
            :class:`LimitExceededError` with its name. They hold for appending too: what a reader with the same limits could not
            read back is refused. So whoever writes with the defaults can be read with the defaults:

            * ``max_batch_bytes``: largest batch on disk, in bytes; default 64 MiB.
            * ``max_decompressed_bytes``: largest batch after decompression, in bytes; default 256 MiB.
            * ``max_headers``: most headers of one record; default 10,000.
            * ``max_segments``: most segments of the partition; default 1,000,000.
            * ``max_state_file_bytes``: largest checkpoint, producer snapshot or metadata file, in bytes; default 16 MiB. Those that
              reading can do without are left out with a warning.
            * ``max_open_files``: how many files the log holds open at once; default 256. Files beyond are opened again when needed.

        Returns
        -------
        Log

        Raises
        ------
        FileNotFoundError, NotADirectoryError, PermissionError
            As the operating system says, with ``errno`` and ``filename``.
        LogDirError
            The name of the directory is not ``topic-partition``, or a file in it has an impossible name.
        ConfigError
            An argument has a value that cannot be used.

        Notes
        -----
        Lists the directory and reads the end of the last segment: the cost does not grow with the size of the log. What is
        odd but harmless is logged as a warning of the logger ``offsetlog``.

        Examples
        --------
        >>> log = Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-deleted-prefix-0")
        >>> log.log_start_offset
        74
        >>> log.close()
        """
        checked_mode(mode, clock)
        given: dict[str, object] = {"config": config, "topic_id": topic_id, "clean": clean, "recovery_point": recovery_point}
        given |= {"broker": broker, "metadata": metadata}
        given |= {"internal_topics": internal_topics or None, "single_replica": single_replica or None}
        for name, value in given.items():
            if mode == "r" and value is not None:
                refuse(name, value, "is for appending; open with mode 'a'")
        options = open_options(mapped=mapped, **limits)
        text = path_text(path)
        appender = None
        if mode == "a":
            appender = _offsetlog.Appender.open(
                text,
                config=None if config is None else config_pairs(config),
                clock=clock,
                topic_id=checked_topic_id(topic_id),
                clean=_clean(clean),
                recovery_point=None if recovery_point is None else integer("recovery_point", recovery_point, minimum=0),
                cluster=cluster_terms(metadata, broker, internal_topics, single_replica=single_replica),
                **options,
            )
        native = _offsetlog.Log.open(text, **options) if appender is None else appender.log()
        for warning in native.warnings():
            logger.warning("%s", warning)
        return cls._of(native, text, options, appender)

    @classmethod
    def _of(cls, native: _offsetlog.Log, path: str, options: OpenOptions, appender: _offsetlog.Appender | None = None) -> Log:
        log = object.__new__(cls)
        log._native = native
        log._appender = appender
        log._mode = "r" if appender is None else "a"
        log._options = options
        log._path = path
        log._absolute = os.path.abspath(path)
        log._pid = os.getpid()
        log._topic = native.topic
        log._partition = native.partition
        return log

    def _engine(self) -> _offsetlog.Log:
        """Return the native log: that of this process, if a fork has come between."""
        native = self._native
        if native is None:
            message = f"log is closed; {self._topic}-{self._partition}"
            raise LogClosedError(message, path=self._path)
        if self._pid != os.getpid():
            if self._appender is not None:
                raise self._forked()
            # The parent's caches may be locked by a thread that does not exist here: leave them alone, open again.
            native = _offsetlog.Log.open(self._absolute, **self._options)
            self._native = native
            self._pid = os.getpid()
        return native

    def _writing(self) -> _offsetlog.Appender:
        self._engine()
        if self._appender is None:
            refuse("mode", "r", f"{self._topic}-{self._partition} was opened for reading; open it with mode 'a' to write")
        return self._appender

    def _is_done(self) -> bool:
        """Whether the log that appends was closed, perhaps by somebody else."""
        appender = self._appender
        return appender is not None and appender.is_closed()

    def _forked(self) -> ForkedLogError:
        message = (
            f"{self._topic}-{self._partition} was opened for appending in process {self._pid}; "
            "a child process cannot write through its parent's log: open it there with mode 'r'"
        )
        return ForkedLogError(message, path=self._path)

    def refresh(self) -> None:
        """Look at the directory now, so that every later question sees what other processes have done so far.

        What this process does is seen without it, and most questions look by themselves (see :class:`Log`). For programs that were
        told by other means that the log has changed.

        Raises
        ------
        FileNotFoundError
            The directory is gone.

        Notes
        -----
        Costs four looks at files where nothing changed; a listing of the directory where a segment came or went.

        Examples
        --------
        >>> with Log.open("tests/data/kafka-4.3.0/clean/log-dir-1/g-plain-0") as log:
        ...     log.refresh()
        ...     log.log_end_offset
        200
        """
        self._engine().refresh()

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._topic

    @property
    def partition(self) -> int:
        """Number of the partition."""
        return self._partition

    @property
    def topic_id(self) -> str | None:
        """The topic's id as Kafka writes it (22 characters of base64), from ``partition.metadata``; ``None`` without that file."""
        return self._engine().topic_id()

    @property
    def path(self) -> str:
        """The directory, as given to :meth:`open`."""
        return self._path

    @property
    def mode(self) -> str:
        """``"r"`` or ``"a"``."""
        return self._mode

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called; of a log of a :class:`LogDir` that appends, here or on any log of its partition."""
        return self._native is None or self._is_done()

    @property
    def log_start_offset(self) -> int:
        """Lowest offset that can be read, inclusive: from the log dir's checkpoint, else the first segment's base offset."""
        return self._engine().log_start_offset()

    @property
    def log_end_offset(self) -> int:
        """Offset that the next record will get, exclusive, as of now: a torn tail of the active segment does not count."""
        return self._engine().log_end_offset()

    @property
    def high_watermark(self) -> int:
        """End of what replication confirmed, exclusive, from the log dir's checkpoint; without one, the log end offset."""
        return self._engine().high_watermark()

    @property
    def last_stable_offset(self) -> int:
        """End of what ``read_committed`` may see, exclusive: where the oldest open transaction begins, or the high watermark."""
        return self._engine().last_stable_offset()

    @property
    def leader_epoch(self) -> int | None:
        """Greatest leader epoch of ``leader-epoch-checkpoint`` and the last batch; ``None`` when neither has one."""
        return self._engine().leader_epoch()

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments in order of their base offsets."""
        return tuple(map(Segment._make, self._engine().segments()))

    @property
    def size_bytes(self) -> int:
        """Bytes of all ``.log`` files together."""
        return self._engine().size_bytes()

    def close(self) -> None:
        """Let go of the files. Closing twice is fine; iterators and streams that are already running go on.

        A log that was opened for appending is flushed, its indexes are trimmed, a producer snapshot and the mark of a clean end
        are written and the locks are given back; after an error it is closed all the same, and the next opening recovers it.
        """
        native, self._native = self._native, None
        if native is not None and self._appender is not None and self._pid == os.getpid():
            # Its files go with it.
            appender, self._appender = self._appender, None
            appender.close()

    def __enter__(self) -> Self:
        self._engine()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        self._engine()
        if self._appender is not None:
            message = "a log that is open for appending does not pickle; pickle its path, or a log opened for reading"
            raise TypeError(message)
        return (_reopened, (self._absolute, self._options))

    def __repr__(self) -> str:
        if self._native is None:
            return f"Log({self._path!r}, closed)"
        engine = self._engine()
        count = len(engine.segments())
        offsets = f"{engine.log_start_offset()} to {engine.log_end_offset()}"
        return f"Log({self._path!r}, offsets {offsets}, {count} segment{'s' * (count != 1)})"

    def _repr_html_(self) -> str:
        if self._native is None:
            return f"<p>{html.escape(repr(self))}</p>"
        engine = self._engine()
        rows = {
            "log": f"{self._topic}-{self._partition}",
            "path": self._path,
            "offsets": f"{engine.log_start_offset()} to {engine.log_end_offset()}",
            "segments": str(len(engine.segments())),
            "bytes": f"{engine.size_bytes():,}",
        }
        cells = "".join(f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in rows.items())
        return f"<table>{cells}</table>"


def _clean(clean: object) -> bool | None:
    """Return `clean` if it is one of the three: a text would be taken for true."""
    if clean is None or isinstance(clean, bool):
        return clean
    message = f"clean must be a bool or None, found {type(clean).__name__}"
    raise TypeError(message)


def _reopened(path: str, options: OpenOptions) -> Log:
    return Log.open(path, mapped=options["mapped"], **options["limits"])


# A lock must end with the process that took it, whatever became of its children.
os.register_at_fork(after_in_child=_offsetlog.close_inherited_locks)
