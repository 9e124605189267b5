"""Offsets of a stream: their JSON form, and how limits share out what waits. Nothing here reads a file or a clock.

The arithmetic is that of Spark's Kafka source, down to the rounding of its floating point, so that a query with the same options has
the same micro-batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from offsetlog import TopicPartition
from offsetlog.errors import ConfigError
from offsetlog.spark.options import LONG_MAX
from offsetlog.spark.refusal import shown, writable

__all__ = [
    "Behind",
    "Epochs",
    "Known",
    "OffsetJson",
    "Offsets",
    "TopicIds",
    "from_json",
    "leader_epochs",
    "rate_limited",
    "to_json",
    "topic_ids",
    "waiting",
    "without_begins",
]

Offsets = dict[TopicPartition, int]
"""For each partition the offset that is read next: exclusive as an end, inclusive as a start."""
TopicIds = dict[str, str]
"""For each topic its id, where its directories have one."""
Epochs = dict[TopicPartition, int]
"""For each partition the leader epoch of the last offset before that one, where it is known."""
OffsetJson = dict[str, dict[str, int | str | dict[str, int]]]
"""Offsets as Spark's Kafka source writes them into a checkpoint, with the topic's id and the leader epochs:
``{"topic":{"0":23,"1":42,"id":"...","epochs":{"0":5,"1":5}}}``. The end of a query's first micro-batch also has where that one begins:
``"begins":{"0":0,"1":7}``. Partitions that were read and are not there any more are in ``"gone":{"2":9}``, with the offset that is
read next if they come back."""


class Known(NamedTuple):
    """What is in the JSON form beside the offsets: it shows whether the logs still hold what the offsets were of."""

    ids: TopicIds
    epochs: Epochs
    begins: Offsets
    """Where the micro-batch begins that ends at the offsets: of a query's first one only, as every other begins where one ended."""
    gone: Offsets
    """Where partitions were read up to that went away since, as with a disk that is not mounted."""

    @classmethod
    def of(cls, found: Mapping[str, Mapping[str, Any]]) -> Known:
        """Return what the JSON form has of it: older versions wrote less."""
        return cls(topic_ids(found), leader_epochs(found), _numbers(found, _BEGINS), _numbers(found, _GONE))


_ID = "id"
_EPOCHS = "epochs"
_BEGINS = "begins"
_GONE = "gone"


class Behind(NamedTuple):
    """How many offsets each partition is behind its latest, over all partitions; the names are those of Spark's Kafka metrics."""

    min_offsets_behind_latest: int
    max_offsets_behind_latest: int
    avg_offsets_behind_latest: float

    @classmethod
    def of(cls, consumed: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> Behind:
        """Return it for what was read and what is there; a partition that was not read at all is behind by its latest."""
        behind = [max(0, offset - consumed.get(partition, 0)) for partition, offset in latest.items()] or [0]
        return cls(min(behind), max(behind), sum(behind) / len(behind))


def to_json(
    offsets: Mapping[TopicPartition, int],
    ids: Mapping[str, str] | None = None,
    epochs: Mapping[TopicPartition, int] | None = None,
    begins: Mapping[TopicPartition, int] | None = None,
    gone: Mapping[TopicPartition, int] | None = None,
) -> OffsetJson:
    """Return offsets in their JSON form, topics and partitions in order: Spark compares its text to tell whether there is news.

    Topics without an id have none there, nor partitions without a leader epoch or beginning; neither has what older versions wrote.
    """
    away = gone or {}
    found: OffsetJson = {topic: {} for topic in sorted({topic for topic, _ in (*offsets, *away)})}
    for topic, partition in sorted(offsets):
        found[topic][str(partition)] = offsets[TopicPartition(topic, partition)]
    for topic, partitions in found.items():
        numbers = [TopicPartition(topic, int(number)) for number in partitions]
        numbers += sorted(each for each in away if each.topic == topic)
        if ids is not None and topic in ids:
            partitions[_ID] = ids[topic]
        for key, values in ((_EPOCHS, epochs or {}), (_BEGINS, begins or {}), (_GONE, away)):
            known = {str(each.partition): values[each] for each in numbers if each in values}
            if known:
                partitions[key] = known
    return found


def without_begins(found: OffsetJson) -> OffsetJson:
    """Return the JSON form of the same offsets where they end no first micro-batch."""
    return {topic: {key: value for key, value in partitions.items() if key != _BEGINS} for topic, partitions in found.items()}


def from_json(found: Mapping[str, Mapping[str, Any]]) -> Offsets:
    """Return the offsets of the JSON form.

    Raises
    ------
    ConfigError
        There is more beside the offsets than this version knows.
    """
    return {
        TopicPartition(topic, _number(topic, partition)): int(offset)
        for topic, partitions in found.items()
        for partition, offset in partitions.items()
        if partition not in (_ID, _EPOCHS, _BEGINS, _GONE)
    }


def _number(topic: str, key: str) -> int:
    try:
        return int(key)
    except ValueError:
        message = (
            f"the offsets of topic {shown(topic)} have the key {shown(key)}, which is not the number of a partition: "
            "a newer version of offsetlog wrote this checkpoint, and that version or a later one can go on with it"
        )
        raise ConfigError(writable(message), key=writable(key, 200), value=None) from None


def topic_ids(found: Mapping[str, Mapping[str, Any]]) -> TopicIds:
    """Return the topic ids in the JSON form."""
    return {topic: str(partitions[_ID]) for topic, partitions in found.items() if _ID in partitions}


def leader_epochs(found: Mapping[str, Mapping[str, Any]]) -> Epochs:
    """Return the leader epochs that are in the JSON form."""
    return _numbers(found, _EPOCHS)


def _numbers(found: Mapping[str, Mapping[str, Any]], key: str) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): int(number)
        for topic, partitions in found.items()
        for partition, number in partitions.get(key, {}).items()
    }


def waiting(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> int:
    """Return how many offsets wait, for ``minOffsetsPerTrigger``: a partition that is new counts from 0."""
    return sum(offset - start.get(partition, 0) for partition, offset in latest.items())


def rate_limited(limit: int, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> Offsets:
    """Return the end of a micro-batch of about `limit` offsets.

    Each partition gets its share by what waits in it, rounded down; a share below 1 is rounded up, so that no partition starves.

    Parameters
    ----------
    limit
        ``maxOffsetsPerTrigger``.
    start
        Where each partition starts: for every partition of `latest`.
    latest
        Where each one ends for now. One that ends before it starts keeps that end: the reader reports that offsets are gone.
    """
    sizes = {partition: end - start[partition] for partition, end in latest.items() if end > start[partition]}
    total = float(sum(sizes.values()))
    ends = dict(latest)
    for partition, size in sizes.items():
        share = limit * (size / total)
        offsets = min(math.ceil(share) if share < 1 else math.floor(share), LONG_MAX)
        ends[partition] = min(latest[partition], start[partition] + offsets)
    return ends
