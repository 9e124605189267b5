"""Options whose values are JSON or whole numbers: how their texts are read. Nothing here knows an option by its name."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from offsetlog import TopicPartition
from offsetlog.errors import ConfigError
from offsetlog.spark.refusal import refuse, shown, shown_json, writable

__all__ = ["INT_MAX", "LONG_MAX", "by_partition", "json_object", "partition_names", "whole"]

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1


def partition_names(partitions: Iterable[TopicPartition], most: int = 5) -> str:
    """Return the names of some partitions, the first few of many."""
    ordered = sorted(partitions)
    names = ", ".join(writable(f"{topic}-{partition}", 250) for topic, partition in ordered[:most])
    return (names if len(ordered) <= most else f"{names} and {len(ordered) - most} more") or "none"


def whole(text: str) -> int | None:
    """Return a whole number; ``None`` if the text is none or far beyond 64 bits: Python refuses to read thousands of digits."""
    return int(text) if re.fullmatch(r"\s*[+-]?[0-9]{1,40}\s*", text) else None


def json_object(name: str, text: str, example: str) -> dict[str, Any]:
    """Return the JSON object that `text` must be; a name may stand there once only."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        named = dict(pairs)
        if len(named) != len(pairs):
            (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
            refuse(name, text, f"{shown(twice)} stands twice in the JSON, found {shown(text)}")
        return named

    try:
        found = json.loads(text, object_pairs_hook=unique)
    except ConfigError:
        raise
    except RecursionError:
        refuse(name, text, f"must be JSON as {example}, found {shown(text)} (nested too deeply)")
    except ValueError as error:
        refuse(name, text, f"must be JSON as {example}, found {shown(text)} ({error})")
    if not isinstance(found, dict):
        refuse(name, text, f"must be a JSON object as {example}, found {shown(text)}")
    return found


def by_partition(name: str, text: str) -> dict[TopicPartition, int]:
    """Return the numbers by partition that `text` must hold, as ``{"topic":{"0":23,"1":42}}``."""
    example = '{"topic":{"0":23,"1":42}}'
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in json_object(name, text, example).items():
        if not isinstance(partitions, dict):
            refuse(name, text, f"topic {shown(topic)} must hold an object as in {example}, found {shown_json(partitions)}")
        for partition, number in partitions.items():
            # One spelling for each partition: "0" and "00" would be two numbers for one of them.
            if re.fullmatch("0|[1-9][0-9]{0,9}", partition) is None or int(partition) > INT_MAX:
                spelling = f"0 to {INT_MAX}, without sign, blank or leading zero"
                refuse(name, text, f"topic {shown(topic)}: partitions are whole numbers, found {shown(partition)} ({spelling})")
            if isinstance(number, bool) or not isinstance(number, int) or not -LONG_MAX <= number <= LONG_MAX:
                which = partition_names([TopicPartition(topic, int(partition))])
                refuse(name, text, f"{which} must be a whole number, found {shown_json(number)}")
            numbers[TopicPartition(topic, int(partition))] = number
    return numbers
