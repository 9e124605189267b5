"""The options that only a stream has, checked as Spark's Kafka source checks them when a query starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from offsetlog.spark.options import LONG_MAX, Settings, positive, settings_from
from offsetlog.spark.refusal import refuse, shown

__all__ = ["StreamSettings", "stream_settings_from"]

_UNITS_MS = {
    "us": 0.001,
    "ms": 1,
    "": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
"""Spark's units of time; a number without one is ms."""


class StreamSettings(NamedTuple):
    """The options of a stream after their checks: plain values that pickle."""

    reading: Settings
    """What a stream has in common with a batch query."""
    max_offsets: int | None = None
    """``maxOffsetsPerTrigger``."""
    min_offsets: int | None = None
    """``minOffsetsPerTrigger``."""
    max_delay_ms: int = 15 * 60_000
    """``maxTriggerDelay``."""


def stream_settings_from(options: Mapping[str, str]) -> StreamSettings:
    """Return the settings that these options ask of a stream.

    Parameters
    ----------
    options
        As for :func:`offsetlog.spark.options.settings_from`.

    Raises
    ------
    ConfigError
        As there; or an option is for batch queries only.
    """
    given = {name.lower(): text for name, text in options.items()}
    found = StreamSettings(settings_from(options, "stream"))
    name = "maxOffsetsPerTrigger"
    if name.lower() in given:
        found = found._replace(max_offsets=positive(name, given[name.lower()], LONG_MAX))
    name = "minOffsetsPerTrigger"
    if name.lower() in given:
        found = found._replace(min_offsets=positive(name, given[name.lower()], LONG_MAX))
    name = "maxTriggerDelay"
    if name.lower() in given:
        found = found._replace(max_delay_ms=_time_ms(name, given[name.lower()]))
    return found


def _time_ms(name: str, text: str) -> int:
    """Return a time as Spark writes it, in whole ms."""
    parts = re.fullmatch("([0-9]{1,18})([a-z]*)", text.strip().lower())
    if parts is None or parts[2] not in _UNITS_MS:
        units = ", ".join(filter(None, _UNITS_MS))
        refuse(name, text, f"must be a time as 90s, 15m or 2h (whole numbers; units: {units}), found {shown(text)}")
    return int(int(parts[1]) * _UNITS_MS[parts[2]])
