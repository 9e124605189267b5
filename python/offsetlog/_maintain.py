"""Upkeep of one partition: retention, compaction, and the removal of files whose time has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from offsetlog._config import LogConfig, SettingValue, to_log_config
from offsetlog._options import integer, refuse
from offsetlog._times import optional_millis
from offsetlog._values import Compaction, MaintainReport, RemovedSegment

if TYPE_CHECKING:
    from offsetlog import _offsetlog
    from offsetlog._options import When

Upkeep: TypeAlias = Literal["retention", "compaction", "deletes"]

_UPKEEP: tuple[Upkeep, ...] = ("retention", "compaction", "deletes")


class Maintaining:
    """What keeps a log within its settings. :class:`Log` has it."""

    __slots__ = ()

    def _writing(self) -> _offsetlog.Appender:
        raise NotImplementedError

    def maintain(
        self,
        *,
        now: When | None = None,
        dry_run: bool = False,
        only: Upkeep | Iterable[Upkeep] = _UPKEEP,
        config: LogConfig | Mapping[str, SettingValue] | None = None,
    ) -> MaintainReport:
        """Do what is due now, once; appends and readers go on meanwhile.

        Parameters
        ----------
        now
            The time from which ages are reckoned; the log's clock by default.
        dry_run
            Change nothing, and say what would be done.
        only
            ``"compaction"`` cleans a log with the policy ``compact`` where it is dirty enough, ``"retention"`` removes segments by
            the retention settings and the log start offset, ``"deletes"`` removes files whose ``file.delete.delay.ms`` is over.
        config
            Settings that count above all others, this once.

        Raises
        ------
        CorruptionError
            A batch that was to be compacted is damaged; its segment is left as it is.
        ClusterError
            In a broker's log dir, or of a partition that offsetlog did not make: a setting that decides is not known. Or the topic is
            one that brokers keep for themselves.
        OSError
            The disk refused.

        Notes
        -----
        Compaction reads the dirty segments twice and those before them once, and holds at most 128 MiB of keys.
        """
        done = self._writing().maintain(
            now=optional_millis(now, "now"),
            dry_run=bool(dry_run),
            only=checked_upkeep(only),
            config=None if config is None else pairs_of(config),
        )
        return report_of(done)

    def compact(self, first_dirty: int | None = None, map_bytes: int | None = None) -> Compaction:
        """Run one pass of the cleaner, whatever the policy and however clean the log is.

        Of the records below the active segment with the same key, those go that a later one at or beyond `first_dirty` replaced.
        Tombstones stay for ``delete.retention.ms`` after the first pass that saw them.

        Parameters
        ----------
        first_dirty
            First offset that counts as not compacted yet; where the last pass ended by default.
        map_bytes
            Most bytes of the table of keys, 24 a key; 128 MiB by default. With less, a log takes more passes.

        Raises
        ------
        ConfigError
            `map_bytes` is too small for a single key.
        CorruptionError
            A batch is damaged; its segment is left as it is.
        OSError
            The disk refused.
        """
        native = self._writing().compact(
            first_dirty=None if first_dirty is None else integer("first_dirty", first_dirty, minimum=0),
            map_bytes=None if map_bytes is None else integer("map_bytes", map_bytes, minimum=0),
        )
        return Compaction(**native)


def pairs_of(config: LogConfig | Mapping[str, SettingValue]) -> list[tuple[str, str]]:
    """Return settings as the engine takes them."""
    return [(name, text) for name, text in to_log_config(config)._given]  # noqa: SLF001  # same package; a list of pairs


def report_of(native: dict[str, Any]) -> MaintainReport:
    """Return what the engine says was done to one partition."""
    return MaintainReport(
        removed=tuple(map(RemovedSegment._make, native["removed"])),
        compactions=tuple(Compaction(**compaction) for compaction in native["compactions"]),
        deleted=tuple(native["deleted"]),
        log_start_offset=native["log_start_offset"],
        log_end_offset=native["log_end_offset"],
        dry_run=native["dry_run"],
    )


def checked_upkeep(only: Iterable[str]) -> list[str]:
    """Return what is to be done, if all of it is known."""
    names = {only} if isinstance(only, str) else set(only)
    unknown = sorted(names.difference(_UPKEEP))
    if unknown:
        refuse("only", unknown[0], f"must be some of {', '.join(_UPKEEP)}, found {unknown[0]!r}")
    return sorted(names)
