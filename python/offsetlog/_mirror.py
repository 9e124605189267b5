"""``mirror``: topics of a live cluster copied into a directory, batch for batch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from offsetlog import _offsetlog
from offsetlog._held_records import names_of
from offsetlog._notebook import report_table
from offsetlog._options import bounded, check_progress, flag, integer, path_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offsetlog._options import PathLike

__all__ = ["MirrorEvent", "MirrorProgress", "MirrorReport", "MirroredPartition", "mirror"]


class MirrorOptions(TypedDict):
    """What a mirror takes beside its directory; settings as pairs of name and text."""

    bootstrap: Sequence[str]
    topics: Sequence[str]
    patterns: Sequence[str]
    once: bool
    config: Sequence[tuple[str, str]] | None
    config_file: str | None
    follow_deletes: bool
    groups: bool
    fetch_max_bytes: int
    refresh_ms: int
    give_up_ms: int


class MirrorProgress(NamedTuple):
    """How far a mirror is."""

    bytes: int
    """Bytes of batches that this call appended."""
    batches: int
    """Batches that this call appended."""
    bytes_per_second: int
    """Over the last seconds."""
    partitions: int
    """Partitions that are copied."""
    partitions_done: int
    """Those at the source's high watermark, or with `once` where they are to end."""
    lag: int
    """Offsets between the copies' ends and the source's high watermarks, together."""


class MirrorEvent(NamedTuple):
    """Something that a user may want to know of a mirror."""

    kind: str
    """``"new"`` (a topic or partitions), ``"settings"`` (the copy had other ones than the source, and has the source's now),
    ``"cut"`` (the copy diverged, and its end was cut and kept), ``"lost"`` (deleted at the source before it was copied, or deleted
    here, not by the mirror), ``"deleted-records"`` and ``"deleted-topic"`` (at the
    source), ``"recreated"`` (another topic of the same name), ``"problem"`` (tried again), ``"warning"``."""
    topic: str | None
    """The topic."""
    partition: int | None
    """The partition."""
    broker: int | None
    """Node id of the broker that answered."""
    start: int | None
    """The first offset that it concerns."""
    stop: int | None
    """The offset behind the last one."""
    message: str
    """A sentence."""
    kept: tuple[str, ...]
    """The files where what was cut is kept."""


class MirroredPartition(NamedTuple):
    """One partition of a mirror."""

    topic: str
    """The topic."""
    partition: int
    """The partition."""
    log_start_offset: int
    """The copy's first offset."""
    log_end_offset: int
    """The copy's end, exclusive."""
    high_watermark: int | None
    """The source's when it was last asked; ``None`` if it never answered."""
    source_log_start_offset: int | None
    """The source's first offset when it was last asked."""
    lag: int | None
    """Offsets between the copy's end and the source's high watermark."""
    bytes: int
    """Bytes of batches that this call appended."""
    batches: int
    """Batches that this call appended."""
    problem: str | None
    """Why it is not, or not wholly, copied."""


class MirrorReport(NamedTuple):
    """What :func:`offsetlog.mirror` did."""

    cluster_id: str | None
    """The cluster that is mirrored; ``None`` for one that has no id."""
    is_complete: bool
    """Whether everything that was to be copied was."""
    has_losses: bool
    """Whether records were deleted before they were copied, or here and not by the mirror; a copy was cut; or a topic was deleted or
    recreated and deletes are not followed: what a user should look at."""
    bytes: int
    """Bytes of batches that this call appended."""
    batches: int
    """Batches that this call appended."""
    groups: int
    """Groups whose committed offsets were copied."""
    committed_offsets: int
    """Committed offsets that this call stored, changed ones once for each change."""
    share_groups: int
    """Share groups of the source: what they have read is not copied."""
    partitions: tuple[MirroredPartition, ...]
    """By topic and number."""
    events: tuple[MirrorEvent, ...]
    """What happened, oldest first; at most 1,000."""
    events_left_out: int
    """Events that are not among them."""

    def _repr_html_(self) -> str:
        return report_table(self)


def mirror(  # noqa: PLR0913  # one parameter a choice
    bootstrap: str | Sequence[str],
    into: PathLike,
    *,
    topics: str | Sequence[str] = (),
    once: bool = False,
    config: PathLike | Mapping[str, object] | None = None,
    follow_deletes: bool = False,
    groups: bool = True,
    fetch_max_bytes: int = 8 << 20,
    refresh_ms: int = 30_000,
    give_up_ms: int = 120_000,
    progress: Callable[[MirrorProgress], object] | None = None,
    event: Callable[[MirrorEvent], object] | None = None,
) -> MirrorReport:
    """Copy topics of a live cluster into a directory, batch for batch.

    The batches keep their bytes, so offsets, leader epochs, producers, transactions and markers too. Topic ids, the topics' own
    settings and the groups' committed offsets are copied as well. The directory is a log dir: read it, serve it, or restore from it
    at any moment. A call continues where the directory ends, however the previous one ended.

    Trouble with brokers raises nothing: they are asked again, and events tell. A copy that diverged from its leader is cut, and what
    is cut is kept in ``offsetlog-cut``.

    Parameters
    ----------
    bootstrap
        Brokers to begin with, as ``host:port``; one or several. Empty: ``bootstrap.servers`` of `config`.
    into
        The directory of the mirror, made if it is missing. It mirrors one cluster.
    topics
        Names, or patterns in which ``*`` stands for any characters and ``?`` for one; new topics too. Empty: all but the internal
        ones. Internal topics are copied only if they are named.
    once
        Return when every partition has reached the high watermark that it had when it was first asked. Otherwise only an
        exception of a callback, or ``KeyboardInterrupt``, ends the call.
    config
        Settings of Kafka's clients by name, such as ``security.protocol``, or the path of a ``client.properties``. A key that a
        mirror does not know is refused.
    follow_deletes
        Delete here what the source deletes: records below its log start offset, with the segments that hold no others, and topics,
        with the groups' offsets in them, that looks at several brokers do not show for a minute, or show with another id. No topic is
        deleted while the source shows none of the topics that were copied before. Deleted data cannot be recovered; events report
        it.
    groups
        Whether the groups' committed offsets are copied. Share groups have none; a warning names them.
    fetch_max_bytes
        Bytes of one response at most, but for one batch that is larger; a broker's connection holds three of them.
    refresh_ms
        Milliseconds between two looks at topics, leaders, settings and groups.
    give_up_ms
        With `once`: milliseconds after which a partition that does not answer is given up. The report says so.
    progress
        Called several times a second. An exception it raises ends the mirror: before it propagates, the copied data is on the
        disk and the directory is closed.
    event
        Called for each event. What it raises ends the mirror, too.

    Raises
    ------
    ConfigError
        An address is not ``host:port``; a setting in `config` is one that a mirror does not know.
    LogDirError
        The directory is not a mirror, or one of another cluster.
    LogLockedError
        Another process mirrors into it, or writes it.
    OSError
        The disk is full, the directory cannot be written, or the like.

    Notes
    -----
    The callbacks run in the thread that called; connections have threads of their own, which never run Python. Everything is on the
    disk when this returns or raises.

    Examples
    --------
    >>> import tempfile
    >>> from offsetlog import LogDir, Server, mirror
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Server("tests/data/kafka-4.3.0/clean/log-dir-1") as kafka:
    ...     report = mirror(kafka.bootstrap_servers, folder.name, topics=["g-idem", "g-codec-*"], once=True)
    >>> report.is_complete
    True
    >>> with LogDir.open(folder.name) as copy:
    ...     copy.log("g-idem", 0).scan().count()
    84
    >>> folder.cleanup()
    """
    check_progress(progress)
    check_progress(event, "event")
    names = names_of(topics)
    is_file = isinstance(config, str | os.PathLike)
    values = MirrorOptions(
        bootstrap=[bootstrap] if isinstance(bootstrap, str) else list(bootstrap),
        topics=[name for name in names if not _is_pattern(name)],
        patterns=[name for name in names if _is_pattern(name)],
        once=flag("once", once),
        config=None if config is None or is_file else _pairs(config),
        config_file=path_text(config) if is_file else None,
        follow_deletes=flag("follow_deletes", follow_deletes),
        groups=flag("groups", groups),
        fetch_max_bytes=bounded("fetch_max_bytes", fetch_max_bytes, minimum=1, bits=32),
        refresh_ms=integer("refresh_ms", refresh_ms, minimum=1),
        give_up_ms=integer("give_up_ms", give_up_ms, minimum=1),
    )
    return _offsetlog.mirror(path_text(into), values, progress=progress, event=event)


def _is_pattern(name: str) -> bool:
    # Kafka's topics have neither in their names.
    return "*" in name or "?" in name


def _pairs(config: object) -> list[tuple[str, str]]:
    if not isinstance(config, Mapping):
        message = f"config must be a mapping or a path, found {type(config).__name__}"
        raise TypeError(message)
    return [(_text("config", name), _text(f"config[{name!r}]", value)) for name, value in config.items()]


def _text(name: str, value: object) -> str:
    if not isinstance(value, str | int):
        message = f"{name} must be text, found {type(value).__name__}"
        raise TypeError(message)
    return str(value)
