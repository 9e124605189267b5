"""What upkeep is asked for: retention, compaction, and the removal of files whose time has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from offsetlog._config import LogConfig, SettingValue, to_log_config
from offsetlog._options import MaintainOptions, When, flag, refuse
from offsetlog._times import optional_millis

Upkeep: TypeAlias = Literal["retention", "compaction", "deletes"]

UPKEEP: tuple[Upkeep, ...] = ("retention", "compaction", "deletes")


def pairs_of(config: LogConfig | Mapping[str, SettingValue]) -> list[tuple[str, str]]:
    """Return settings as the engine takes them."""
    return [(name, text) for name, text in to_log_config(config)._given]  # noqa: SLF001  # same package; a list of pairs


def checked_upkeep(only: Iterable[str]) -> list[str]:
    """Return what is to be done, if all of it is known."""
    names = {only} if isinstance(only, str) else set(only)
    unknown = sorted(names.difference(UPKEEP))
    if unknown:
        refuse("only", unknown[0], f"must be some of {', '.join(UPKEEP)}, found {unknown[0]!r}")
    return sorted(names)


def maintain_options(
    now: When | None, only: Iterable[str], config: Sequence[tuple[str, str]] | None, *, dry_run: bool
) -> MaintainOptions:
    """Return what upkeep is to do, after its checks."""
    return MaintainOptions(now=optional_millis(now, "now"), dry_run=flag("dry_run", dry_run), only=checked_upkeep(only), config=config)
