"""The cluster that a log dir belongs to: what a caller says of it, and the settings that apply there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from offsetlog._notebook import report_table
from offsetlog._options import ClusterOptions, PathLike, flag, path_text


class EffectiveSetting(NamedTuple):
    """The effective value of a topic's setting, and the layer that it comes from."""

    value: str | None
    """The value's text; ``None`` where it is not known."""
    source: str
    """``"topic"``, ``"dynamic broker"``, ``"dynamic default broker"``, ``"broker"`` (``server.properties``), ``"default"`` (Kafka's)
    or ``"unknown"``."""
    reason: str | None
    """Why it is not known; ``None`` where it is."""


class TopicSettings(NamedTuple):
    """The settings of a topic, layer by layer."""

    settings: dict[str, EffectiveSetting]
    """Every topic setting, by Kafka's name."""
    broker: str | None
    """What says that the log dir is a broker's; ``None`` where offsetlog keeps the topic."""
    metadata_timestamp: int | None
    """When the newest record of the cluster's metadata was written, in ms since 1970; ``None`` without metadata."""

    def _repr_html_(self) -> str:
        return report_table(self)


def cluster_options(
    metadata: PathLike | None, broker: PathLike | None, internal_topics: str | Iterable[str], *, single_replica: bool
) -> ClusterOptions:
    """Return what was given as the engine takes it."""
    named = [internal_topics] if isinstance(internal_topics, str) else list(internal_topics)
    given: list[object] = [*named]
    for name in given:
        if not isinstance(name, str):
            message = f"names in internal_topics must be str, found {type(name).__name__}"
            raise TypeError(message)
    return ClusterOptions(
        metadata=None if metadata is None else path_text(metadata),
        broker=None if broker is None else path_text(broker),
        internal_topics=named,
        single_replica=flag("single_replica", single_replica),
    )
