"""Every option of the format ``offsetlog``: name, kind, default, check, meaning.

Names, defaults, JSON forms and precedence are those of Spark's Kafka source; ``path`` stands in place of the brokers. All that can
be checked without looking at a file is checked by :func:`settings_from`, which runs at ``load()``. What needs the files (which
topics there are, which offsets) is in :mod:`offsetlog.spark.planning`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, NoReturn
from urllib.parse import unquote, urlsplit

from offsetlog import TopicPartition
from offsetlog.errors import ConfigError
from offsetlog.spark.pattern import java_pattern
from offsetlog.spark.schema import HEADERS, KAFKA_COLUMNS, column_names

__all__ = [
    "EARLIEST",
    "LATEST",
    "LONG_MAX",
    "OPTIONS",
    "Limit",
    "Option",
    "Paths",
    "Settings",
    "Topics",
    "folders",
    "refuse",
    "settings_from",
]

EARLIEST = -2
LATEST = -1
INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
_TEXT_MAX = 200

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
IsolationLevel = Literal["read_uncommitted", "read_committed"]


class Topics(NamedTuple):
    """Which partitions are read."""

    option: str
    """``assign``, ``subscribe`` or ``subscribePattern``."""
    value: Any
    """Topic to partition numbers; topics; the pattern as given."""


class Limit(NamedTuple):
    """Where reading starts or ends, as asked for."""

    option: str
    """The option that said so; the default's, when none did."""
    kind: Literal["earliest", "latest", "offsets", "timestamps", "timestamp"]
    value: Any = None
    """For ``offsets`` and ``timestamps`` a dict by :class:`TopicPartition`, for ``timestamp`` ms since 1970."""


class Settings(NamedTuple):
    """The options after their checks: plain values that pickle. The field comments name the option."""

    paths: tuple[str, ...]  # path
    topics: Topics | None  # assign, subscribe, subscribePattern; None: the path is a partition directory
    start: Limit  # startingTimestamp, startingOffsetsByTimestamp, startingOffsets
    end: Limit  # endingTimestamp, endingOffsetsByTimestamp, endingOffsets
    no_record: Literal["error", "latest"] = "error"  # startingOffsetsByTimestampStrategy
    fail_on_data_loss: bool = True
    isolation_level: IsolationLevel = "read_uncommitted"  # isolationLevel, kafka.isolation.level
    columns: tuple[str, ...] = KAFKA_COLUMNS  # columns, includeHeaders
    columns_named: bool = False  # whether `columns` was given
    keys: tuple[bytes, ...] | None = None  # keyEquals
    min_partitions: int | None = None
    max_records: int | None = None  # maxRecordsPerPartition
    max_bytes: int | None = None  # maxBytesPerPartition
    task_slots: int | None = None
    pushdown: bool = False
    verify_checksums: bool = True  # verifyCrc
    mapped: bool = False
    max_batch_bytes: int | None = None
    max_decompressed_bytes: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def limits(self) -> dict[str, Any]:
        """Arguments of ``Log.open`` and its kin."""
        limits: dict[str, Any] = {"mapped": self.mapped}
        if self.max_batch_bytes is not None:
            limits["max_batch_bytes"] = self.max_batch_bytes
        if self.max_decompressed_bytes is not None:
            limits["max_decompressed_bytes"] = self.max_decompressed_bytes
        return limits


class Option(NamedTuple):
    """One option as users see it."""

    name: str
    kind: str
    default: str
    check: Callable[[str, str], Any]
    """Turns (name, text) into a value, or raises :class:`ConfigError`."""
    doc: str


def refuse(name: str, value: object, reason: str) -> NoReturn:
    """Raise :class:`ConfigError` with a text that begins with the option's name."""
    message = f"option {name}: {reason}"
    raise ConfigError(message, key=name, value=str(value)[:_TEXT_MAX])


def settings_from(options: Mapping[str, str]) -> Settings:
    """Return the settings that these options ask for.

    Parameters
    ----------
    options
        Names in any case. Values as text, as Spark hands them over.

    Raises
    ------
    ConfigError
        An option is unknown (the text names the nearest known one), has a value that cannot be used, contradicts another one, or
        is missing.
    """
    given = {name.lower(): text for name, text in options.items()}
    for name in given:
        if name not in _BY_NAME and not name.startswith("kafka."):
            message = f"unknown option {name!r}{_nearest(name)}"
            raise ConfigError(message, key=name, value=given[name][:_TEXT_MAX])
    # In Spark's order: start, end, the rest.
    start = _limit(given, ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"), "earliest")
    end = _limit(given, ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"), "latest")
    paths = _paths(given)
    values = {option.name: option.check(option.name, given[option.name.lower()]) for option in OPTIONS if option.name.lower() in given}
    columns = values.get("columns")
    if columns is None:
        columns = (*KAFKA_COLUMNS, HEADERS) if values.get("includeHeaders") else KAFKA_COLUMNS
    return Settings(
        paths=paths,
        topics=_topics(values),
        start=start,
        end=end,
        no_record=values.get("startingOffsetsByTimestampStrategy", "error"),
        fail_on_data_loss=values.get("failOnDataLoss", True),
        isolation_level=_isolation_level(values),
        columns=columns,
        columns_named="columns" in values,
        keys=values.get("keyEquals"),
        min_partitions=values.get("minPartitions"),
        max_records=values.get("maxRecordsPerPartition"),
        max_bytes=values.get("maxBytesPerPartition"),
        task_slots=values.get("taskSlots"),
        pushdown=values.get("pushdown", False),
        verify_checksums=values.get("verifyCrc", True),
        mapped=values.get("mapped", False),
        max_batch_bytes=values.get("maxBatchBytes"),
        max_decompressed_bytes=values.get("maxDecompressedBytes"),
        warnings=tuple(_warnings(given)),
    )


def _nearest(name: str) -> str:
    folded = name.replace("_", "").replace("-", "")
    near = get_close_matches(folded, _BY_NAME, n=1)
    if near:
        return f"; did you mean {_BY_NAME[near[0]].name!r}?"
    return f" (known: {', '.join(option.name for option in OPTIONS)})"


def _limit(given: Mapping[str, str], names: tuple[str, str, str], default: Literal["earliest", "latest"]) -> Limit:
    """Return the limit of the first of these options that is given: one time, times by partition, offsets."""
    timestamp, timestamps, offsets = names
    if timestamp.lower() in given:
        return Limit(timestamp, "timestamp", _timestamp(timestamp, given[timestamp.lower()]))
    if timestamps.lower() in given:
        return Limit(timestamps, "timestamps", _by_partition(timestamps, given[timestamps.lower()]))
    if offsets.lower() in given:
        return _offsets(offsets, given[offsets.lower()])
    return Limit(offsets, default)


def _offsets(name: str, text: str) -> Limit:
    starts = name.startswith("starting")
    wrong_word, wrong_offset = ("latest", LATEST) if starts else ("earliest", EARLIEST)
    word = text.strip().lower()
    if word == wrong_word:
        refuse(name, text, f"{wrong_word} gives no records in a batch query: {'earliest' if starts else 'latest'} or offsets expected")
    if word in ("earliest", "latest"):
        return Limit(name, word)  # type: ignore[arg-type]  # one of the two words
    if not text.strip().startswith("{"):
        refuse(name, text, f'must be \'earliest\', \'latest\' or JSON as {{"topic":{{"0":23,"1":-2}}}}, found {text[:_TEXT_MAX]!r}')
    offsets = _by_partition(name, text)
    for (topic, partition), offset in offsets.items():
        if offset == wrong_offset:
            refuse(name, text, f"{topic}-{partition} has {wrong_offset} ({wrong_word}), which gives no records in a batch query")
        if offset < EARLIEST:
            refuse(name, text, f"{topic}-{partition} must be an offset, -2 (earliest) or -1 (latest), found {offset}")
    return Limit(name, "offsets", offsets)


def _timestamp(name: str, text: str) -> int:
    if re.fullmatch(r"\s*[+-]?[0-9]+\s*", text) is None or not -LONG_MAX <= int(text) <= LONG_MAX:
        refuse(name, text, f"must be one time in ms since 1970-01-01T00:00:00Z, as a whole number, found {text[:_TEXT_MAX]!r}")
    return int(text)


def _json(name: str, text: str, example: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) != len(pairs):
            refuse(name, text, "a name stands twice in the JSON")
        return dict(pairs)

    try:
        found = json.loads(text, object_pairs_hook=unique)
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        refuse(name, text, f"must be JSON as {example}, found {text[:_TEXT_MAX]!r} ({error})")
    if not isinstance(found, dict):
        refuse(name, text, f"must be a JSON object as {example}, found {text[:_TEXT_MAX]!r}")
    return found


def _by_partition(name: str, text: str) -> dict[TopicPartition, int]:
    example = '{"topic":{"0":23,"1":42}}'
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in _json(name, text, example).items():
        if not isinstance(partitions, dict):
            refuse(name, text, f"topic {topic!r} must hold an object as in {example}, found {json.dumps(partitions)[:_TEXT_MAX]}")
        for partition, number in partitions.items():
            if re.fullmatch("[0-9]{1,10}", partition) is None:
                refuse(name, text, f"topic {topic!r}: partitions are whole numbers, found {partition!r}")
            if isinstance(number, bool) or not isinstance(number, int) or not -LONG_MAX <= number <= LONG_MAX:
                refuse(name, text, f"{topic}-{partition} must be a whole number, found {json.dumps(number)[:_TEXT_MAX]}")
            numbers[TopicPartition(topic, int(partition))] = number
    return numbers


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders of ``path``, or of the ``paths`` that Spark makes of a list given to ``load``."""
    if "paths" in given:
        if "path" in given:
            refuse("path", given["path"], "give it as an option or to load(), not both")
        try:
            listed = json.loads(given["paths"])
        except ValueError:
            listed = None
        if not isinstance(listed, list) or not all(isinstance(path, str) for path in listed):
            refuse("paths", given["paths"], "is made by load([...]); use path, with commas between several log dirs")
        return folders(listed)
    return folders(given.get("path", ""))


def folders(paths: Paths) -> tuple[str, ...]:
    """Return the folders that `paths` names: a text holds one, or several with commas between them; a list one in each item."""
    if isinstance(paths, str):
        listed = [path.strip() for path in paths.split(",")]
    else:
        listed = [os.fspath(path) for path in ([paths] if isinstance(paths, os.PathLike) else paths)]
    named = tuple(_local(path) for path in listed if path)
    if not named:
        refuse("path", "", "must name a log dir, several with commas between them, or a partition directory")
    return named


def _local(path: str) -> str:
    if re.match("[a-zA-Z][a-zA-Z0-9+.-]+:/", path) is None:
        return path
    parts = urlsplit(path)
    if parts.scheme.lower() != "file" or parts.netloc not in ("", "localhost"):
        refuse("path", path, f"only files that every worker sees under a local path can be read, found {path!r}")
    return unquote(parts.path)


def _topics(values: Mapping[str, Any]) -> Topics | None:
    named = [name for name in ("assign", "subscribe", "subscribePattern") if name in values]
    if len(named) > 1:
        refuse(
            named[0],
            values[named[0]],
            f"exactly one of assign, subscribe and subscribePattern can be given, found {' and '.join(named)}",
        )
    return Topics(named[0], values[named[0]]) if named else None


def _isolation_level(values: Mapping[str, Any]) -> IsolationLevel:
    alias = values.get("kafka.isolation.level")
    level: IsolationLevel = values.get("isolationLevel", alias or "read_uncommitted")
    if alias is not None and alias != level:
        refuse("isolationLevel", level, f"is {level}, but kafka.isolation.level is {alias}: give one of them")
    return level


def _warnings(given: Mapping[str, str]) -> list[str]:
    warnings = []
    clients = sorted(name for name in given if name not in _BY_NAME or _BY_NAME[name].check is _client)
    if clients:
        names = ", ".join(_BY_NAME[name].name if name in _BY_NAME else name for name in clients)
        warnings.append(f"options for a Kafka client are ignored, there is no broker: {names}")
    streams = [option.name for option in OPTIONS if option.check is _stream and option.name.lower() in given]
    if streams:
        warnings.append(f"options for streams are ignored in a batch query: {', '.join(streams)}")
    return warnings


def _checked_limit(name: str, text: str) -> None:
    """Let pass: :func:`_limit` has looked at it, unless one of higher precedence was given, and then it does not count."""


def _path(name: str, text: str) -> None:
    """Let pass: :func:`_paths` has looked at it."""


def _client(name: str, text: str) -> None:
    """Let pass: of no use without a broker; :func:`_warnings` names it."""


def _stream(name: str, text: str) -> None:
    """Let pass: of no use in a batch query; :func:`_warnings` names it."""


def _boolean(name: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        refuse(name, text, f"must be true or false, found {text[:_TEXT_MAX]!r}")
    return word == "true"


def _number(name: str, text: str, maximum: int) -> int:
    if re.fullmatch(r"\s*\+?[0-9]+\s*", text) is None or not 0 < int(text) <= maximum:
        refuse(name, text, f"must be a whole number from 1 to {maximum}, found {text[:_TEXT_MAX]!r}")
    return int(text)


def _int(name: str, text: str) -> int:
    return _number(name, text, INT_MAX)


def _long(name: str, text: str) -> int:
    return _number(name, text, LONG_MAX)


def _word(*words: str) -> Callable[[str, str], str]:
    def check(name: str, text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            near = get_close_matches(word, words, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            refuse(name, text, f"must be {' or '.join(words)}, found {text[:_TEXT_MAX]!r}{hint}")
        return word

    return check


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _subscribe(name: str, text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(_listed(text)))
    if not topics:
        refuse(name, text, "must name at least one topic, with commas between several")
    return topics


def _subscribe_pattern(name: str, text: str) -> str:
    if not text.strip():
        refuse(name, text, "must be a regular expression, found nothing")
    java_pattern(text)
    return text


def _assign(name: str, text: str) -> dict[str, tuple[int, ...]]:
    example = '{"topic":[0,1]}'
    if not text.strip().startswith("{"):
        refuse(name, text, f"must be JSON as {example}, found {text[:_TEXT_MAX]!r}")
    assigned = _json(name, text, example)
    for topic, partitions in assigned.items():
        numbers = partitions if isinstance(partitions, list) else [None]
        if not all(isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= INT_MAX for number in numbers):
            refuse(name, text, f"topic {topic!r} must hold a list of partition numbers, found {json.dumps(partitions)[:_TEXT_MAX]}")
    if not any(assigned.values()):
        refuse(name, text, f"must name at least one partition, as in {example}")
    return {topic: tuple(sorted(set(partitions))) for topic, partitions in assigned.items()}


def _columns(name: str, text: str) -> tuple[str, ...]:
    del name
    return column_names(_listed(text))


def _keys(name: str, text: str) -> tuple[bytes, ...]:
    if not text.startswith("["):
        return (text.encode(),)
    try:
        keys = json.loads(text)
    except ValueError:
        keys = None
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        refuse(name, text, f'must be one key, or several as a JSON list of texts as ["a","b"], found {text[:_TEXT_MAX]!r}')
    return tuple(key.encode() for key in keys)


_LEVELS = _word("read_uncommitted", "read_committed")
_PARTITIONED = '`{"topic":{"0":23,"1":-2}}`'

OPTIONS = (
    Option("path", "folders", "required", _path, "One log dir, several with commas between them, or one partition directory. Also as `.load(path)`; `.load([path, ...])` takes names with commas."),
    Option("paths", "JSON", "", _path, "What Spark makes of `.load([path, ...])`; not for direct use."),
    Option("subscribe", "names", "", _subscribe, "Topics, with commas between them. Exactly one of `subscribe`, `subscribePattern` and `assign` is given, unless `path` is a partition directory."),
    Option("subscribePattern", "Java regex", "", _subscribe_pattern, "Topics in whose names the pattern is found (anywhere: anchor it with `^` and `$`). Kafka's internal topics are left out. `.*` reads everything."),
    Option("assign", "JSON", "", _assign, '`{"topic":[0,1]}`. Partitions that are not there are left out.'),
    Option("startingTimestamp", "ms", "", _checked_limit, "Start of every partition: its first record at or after this time. Wins over the next two."),
    Option("startingOffsetsByTimestamp", "JSON", "", _checked_limit, 'A time for each partition, `{"topic":{"0":1700000000000}}`. Wins over `startingOffsets`.'),
    Option("startingOffsets", "earliest or JSON", "earliest", _checked_limit, f"{_PARTITIONED}, inclusive; -2 is the earliest. Names all partitions that are read."),
    Option("startingOffsetsByTimestampStrategy", "error or latest", "error", _word("error", "latest"), "What to do for a partition without a record at or after the starting time: fail, or read nothing of it."),
    Option("endingTimestamp", "ms", "", _checked_limit, "End of every partition: its first record at or after this time, exclusive; the latest where there is none. Wins over the next two."),
    Option("endingOffsetsByTimestamp", "JSON", "", _checked_limit, "As `startingOffsetsByTimestamp`, exclusive. Wins over `endingOffsets`."),
    Option("endingOffsets", "latest or JSON", "latest", _checked_limit, "As `startingOffsets`, exclusive; -1 is the latest."),
    Option("failOnDataLoss", "boolean", "true", _boolean, "Fail when a topic or a range of offsets that was asked for is gone; `false` warns and reads what is left."),
    Option("isolationLevel", "word", "read_uncommitted", _LEVELS, "`read_committed` leaves out aborted records and ends at the last stable offset."),
    Option("kafka.isolation.level", "word", "", _LEVELS, "The same by Kafka's name."),
    Option("includeHeaders", "boolean", "false", _boolean, "Adds the column `headers`; null where a record has none."),
    Option("columns", "names", "", _columns, "Columns to read, in this order, with commas between them. Spark cannot tell a Python source which columns a query uses: this can, and so can `.schema(...)`."),
    Option("keyEquals", "text", "", _keys, 'Only records with this key (UTF-8); several keys as a JSON list, `["a","b"]`.'),
    Option("minPartitions", "int", "", _int, "At least about so many tasks, as in Spark's Kafka source: larger ranges are cut."),
    Option("maxRecordsPerPartition", "long", "", _long, "At most so many offsets in a task, as in Spark's Kafka source."),
    Option("maxBytesPerPartition", "bytes", "", _long, "At most about so many bytes on disk in a task; a single batch may be larger."),
    Option("taskSlots", "int", "CPUs of the driver", _int, "How many tasks the cluster runs at once. Without the options above, a query gets at most twice as many tasks, and more only so that none reads over 512 MiB."),
    Option("pushdown", "boolean", "false", _boolean, "Use filters that Spark hands down (where `spark.sql.python.filterPushdown.enabled` is on) to skip partitions, batches and records. Only for a frame that is used in one place: see [Filters](#filters)."),
    Option("verifyCrc", "boolean", "true", _boolean, "Check the checksum of every batch."),
    Option("mapped", "boolean", "false", _boolean, "Read through memory maps: faster, only for copies that nobody writes to."),
    Option("maxBatchBytes", "bytes", "64 MiB", _long, "Largest batch on disk that is accepted."),
    Option("maxDecompressedBytes", "bytes", "256 MiB", _long, "Largest batch after decompression that is accepted."),
    Option("maxOffsetsPerTrigger", "long", "", _stream, "For streams; ignored in a batch query, with a warning."),
    Option("minOffsetsPerTrigger", "long", "", _stream, "For streams; ignored in a batch query, with a warning."),
    Option("maxTriggerDelay", "time", "", _stream, "For streams; ignored in a batch query, with a warning."),
    Option("groupIdPrefix", "text", "", _client, "For a Kafka client; ignored with a warning, as every other option that begins with `kafka.`."),
    Option("fetchOffset.numRetries", "int", "", _client, "For a Kafka client; ignored with a warning."),
    Option("fetchOffset.retryIntervalMs", "long", "", _client, "For a Kafka client; ignored with a warning."),
    Option("kafkaConsumer.pollTimeoutMs", "long", "", _client, "For a Kafka client; ignored with a warning."),
)  # fmt: skip
"""All options, in the order of the documentation."""

_BY_NAME = {option.name.lower(): option for option in OPTIONS}
