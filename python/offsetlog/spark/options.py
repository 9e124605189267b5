"""Every option of the format ``offsetlog``: name, kind, default, check, meaning.

Names, defaults, JSON forms and precedence are those of Spark's Kafka source; ``path`` replaces the brokers. Everything that can
be checked without looking at a file is checked by :func:`settings_from`, which runs at ``load()``. PySpark does not say there
whether a batch or a stream is loaded, so what one of them takes and the other refuses is checked once more when that is known.
What only streams have is in :mod:`offsetlog.spark.stream_options`; what needs the files (which topics there are, which offsets)
in :mod:`offsetlog.spark.planning`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from offsetlog.errors import ConfigError
from offsetlog.spark.given import as_given, as_one_path, refuse_store
from offsetlog.spark.json_options import INT_MAX, LONG_MAX, by_partition, json_object, partition_names, whole
from offsetlog.spark.limits import BOUNDS
from offsetlog.spark.pattern import java_pattern
from offsetlog.spark.refusal import refuse, refusing, shown, shown_json, writable
from offsetlog.spark.schema import HEADERS, KAFKA_COLUMNS, column_names

__all__ = [
    "EARLIEST",
    "INT_MAX",
    "LATEST",
    "LONG_MAX",
    "OPTIONS",
    "Limit",
    "Option",
    "Paths",
    "Query",
    "Settings",
    "Topics",
    "boolean",
    "folders",
    "partition_names",
    "positive",
    "settings_from",
    "word",
]

EARLIEST = -2
LATEST = -1

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
IsolationLevel = Literal["read_uncommitted", "read_committed"]
OnCorrupt = Literal["raise", "skip", "stop"]
Query = Literal["batch", "stream", "either"]
"""What is read; ``either`` while that is not known."""


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
    on_corrupt: OnCorrupt = "raise"
    mapped: bool = False
    bounds: tuple[tuple[str, int], ...] = ()  # maxBatchBytes and its kin, by the names of `Log.open`
    warnings: tuple[str, ...] = ()

    @property
    def limits(self) -> dict[str, Any]:
        """Arguments of ``Log.open`` and its kin."""
        return {"mapped": self.mapped, **dict(self.bounds)}


class Option(NamedTuple):
    """One option as users see it."""

    name: str
    kind: str
    default: str
    check: Callable[[str, str], Any]
    """Turns (name, text) into a value, or raises :class:`ConfigError`."""
    doc: str


def settings_from(options: Mapping[str, str], query: Query = "batch") -> Settings:
    """Return the settings that these options ask for.

    Parameters
    ----------
    options
        Names in any case. Values as text, as Spark hands them over.
    query
        What is read: a stream starts at the latest unless told, and has no end. For ``either``, what only one of the two refuses
        passes, and the warnings are those that hold for both; those of a ``batch`` or a ``stream`` come in addition.

    Raises
    ------
    ConfigError
        An option is unknown (the text names the nearest known one), has a value that cannot be used, contradicts another one, or
        is missing.
    """
    given = {name.lower(): text for name, text in as_given(options).items()}
    for name, text in given.items():
        if name not in _BY_NAME and not name.startswith("kafka."):
            message = f"unknown option {shown(name)}{_nearest(name)}"
            raise ConfigError(writable(message), key=writable(name, 100), value=writable(text, 200))
    # In Spark's order: start, end, the rest.
    start = _limit(given, ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"), query)
    if query == "stream":
        end = _no_end(given)
    else:
        end = _limit(given, ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"), query)
        _check_limits(start, end)
    paths = _paths(given)
    values = {option.name: option.check(option.name, given[option.name.lower()]) for option in OPTIONS if option.name.lower() in given}
    for name, reason in _NOT_SUPPORTED.items():
        if name in given:
            refuse(name, given[name], f"is not supported, as in Spark's Kafka source: {reason}")
    _check_triggers(given)
    if query == "stream" and values.get("onCorrupt") == "stop":
        refuse(
            "onCorrupt",
            given["oncorrupt"],
            "stop is for batch queries, as the next micro-batch of a stream would begin behind the damage and go on in silence: "
            "raise ends the query there, skip leaves out what is damaged",
        )
    columns = values.get("columns")
    if columns is None:
        columns = (*KAFKA_COLUMNS, HEADERS) if values.get("includeHeaders") else KAFKA_COLUMNS
    elif values.get("includeHeaders") and HEADERS not in columns:
        refuse("includeHeaders", "true", f"adds a column that columns={','.join(columns)} leaves out: name headers there")
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
        on_corrupt=values.get("onCorrupt", "raise"),
        mapped=values.get("mapped", False),
        bounds=tuple((limit, values[name]) for name, limit in BOUNDS.items() if name in values),
        warnings=tuple(_WARNINGS[query](given)),
    )


def _nearest(name: str) -> str:
    folded = name[:100].replace("_", "").replace("-", "")
    near = get_close_matches(folded, _BY_NAME, n=1)
    if near:
        return f"; did you mean {_BY_NAME[near[0]].name!r}?"
    return f" (known: {', '.join(option.name for option in OPTIONS)})"


def _limit(given: Mapping[str, str], names: tuple[str, str, str], query: Query) -> Limit:
    """Return the limit of the first of these options that is given: one time, times by partition, offsets."""
    timestamp, timestamps, offsets = names
    if timestamp.lower() in given:
        return Limit(timestamp, "timestamp", _timestamp(timestamp, given[timestamp.lower()]))
    if timestamps.lower() in given:
        times = by_partition(timestamps, given[timestamps.lower()])
        for partition, time in times.items():
            _check_time(timestamps, given[timestamps.lower()], time, f"{partition_names([partition])} has a time")
        return Limit(timestamps, "timestamps", times)
    if offsets.lower() in given:
        return _offsets(offsets, given[offsets.lower()], query)
    return Limit(offsets, "earliest" if offsets.startswith("starting") and query != "stream" else "latest")


def _no_end(given: Mapping[str, str]) -> Limit:
    """Refuse an end of a stream, which has none; a time to end at is accepted and ignored, as Spark's Kafka source does."""
    for name in ("endingOffsets", "endingOffsetsByTimestamp"):
        if name.lower() in given:
            refuse(
                name,
                given[name.lower()],
                "is for batch queries, a stream has no end (Trigger.AvailableNow ends at the latest of its start)",
            )
    return Limit("endingOffsets", "latest")


def _check_limits(start: Limit, end: Limit) -> None:
    """Refuse a start and an end that cannot both be meant, before any file is asked."""
    if start.kind != end.kind or start.kind not in ("offsets", "timestamps"):
        return
    if set(start.value) != set(end.value):
        both = f"names {partition_names(start.value)}, but {end.option} names {partition_names(end.value)}"
        refuse(start.option, "", f"{both}: give both for the same partitions")
    what = "offset" if start.kind == "offsets" else "time"
    for (topic, partition), first in start.value.items():
        stop = end.value[topic, partition]
        # As an offset, -1 is the latest.
        if first > stop and (stop >= 0 or what == "time"):
            refuse(start.option, first, f"{topic}-{partition} would start at {what} {first}, behind its end {stop} ({end.option})")


def _offsets(name: str, text: str, query: Query) -> Limit:
    starts = name.startswith("starting")
    wrong_word, wrong_offset = ("latest", LATEST) if starts else ("earliest", EARLIEST)
    refused = query == "batch" or not starts
    word = text.strip().lower()
    if refused and word == wrong_word:
        refuse(name, text, f"{wrong_word} gives no records in a batch query: {'earliest' if starts else 'latest'} or offsets expected")
    if word in ("earliest", "latest"):
        return Limit(name, word)  # type: ignore[arg-type]  # one of the two words
    if not text.strip().startswith("{"):
        refuse(name, text, f'must be \'earliest\', \'latest\' or JSON as {{"topic":{{"0":23,"1":-2}}}}, found {shown(text)}')
    offsets = by_partition(name, text)
    for (topic, partition), offset in offsets.items():
        if refused and offset == wrong_offset:
            refuse(name, text, f"{topic}-{partition} has {wrong_offset} ({wrong_word}), which gives no records in a batch query")
        if offset < EARLIEST:
            refuse(name, text, f"{topic}-{partition} must be an offset, -2 (earliest) or -1 (latest), found {offset}")
    return Limit(name, "offsets", offsets)


def _timestamp(name: str, text: str) -> int:
    number = whole(text)
    if number is None or not -LONG_MAX <= number <= LONG_MAX:
        refuse(name, text, f"must be one time in ms since 1970-01-01T00:00:00Z, as a whole number, found {shown(text)}")
    _check_time(name, text, number, "is a time")
    return number


def _check_time(name: str, text: str, time: int, what: str) -> None:
    """Refuse a negative time: brokers, and so Spark's Kafka source, take -1 in its place for the latest and -2 for the earliest."""
    if time < 0:
        offsets = "startingOffsets" if name.startswith("starting") else "endingOffsets"
        refuse(name, text, f"{what} before 1970, found {time}: the latest (-1) and the earliest (-2) are asked for with {offsets}")


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders of ``path``, or of the ``paths`` that Spark makes of a list given to ``load``."""
    if "paths" in given:
        if "path" in given:
            refuse("path", given["path"], "give it as an option or to load(), not both")
        try:
            listed = json.loads(given["paths"])
        except (ValueError, RecursionError):
            listed = None
        if not isinstance(listed, list) or not all(isinstance(path, str) for path in listed):
            refuse("paths", given["paths"], "is made by load([...]); use path, with commas between several log dirs")
        return folders(listed)
    return folders(given.get("path", ""))


def folders(paths: Paths) -> tuple[str, ...]:
    """Return the folders that `paths` names: a text holds one, or several with commas between them; a list one in each item.

    Raises
    ------
    ConfigError
        None is named, or one of several has no name: left out, it would be a log dir that nobody misses.
    """
    if isinstance(paths, str):
        listed = [paths] if as_one_path(paths) else [path.strip() for path in paths.split(",")]
    else:
        listed = [_path_text(path) for path in ([paths] if isinstance(paths, os.PathLike) else paths)]
    if not any(path.strip() for path in listed):
        refuse("path", "", "must name a log dir, several with commas between them, or a partition directory")
    for number, path in enumerate(listed, 1):
        if not path.strip():
            refuse("path", shown_json(listed), f"number {number} of {len(listed)} is empty; a variable that is not set?")
    return tuple(map(_local, listed))


def _path_text(path: object) -> str:
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        message = f"option path must be str or os.PathLike[str], found {type(text).__name__}"
        raise TypeError(message)
    return text


def _local(path: str) -> str:
    if re.match("[a-zA-Z][a-zA-Z0-9+.-]+:/", path) is not None:
        with refusing("path", path):
            parts = urlsplit(path)
        if parts.scheme.lower() != "file" or parts.netloc not in ("", "localhost"):
            refuse_store(path)
        # Not `parts.path`: a folder's name may have `?` and `#`.
        path = unquote(re.sub("^[^:]+:(//[^/]*)?", "", path))
    if "\0" in path:
        refuse("path", path, f"no path holds the character NUL, found {shown(path)}")
    return path


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


def _check_triggers(given: Mapping[str, str]) -> None:
    """Refuse limits of a stream that contradict each other: Spark looks at the two where both are given, also in a batch query."""
    names = ("minOffsetsPerTrigger", "maxOffsetsPerTrigger")
    if all(name.lower() in given for name in names):
        least, most = (_any_number(name, given[name.lower()], LONG_MAX) for name in names)
        if least > most:
            refuse(names[0], least, f"is {least}, higher than {names[1]}, which is {most}")


def _client_warnings(given: Mapping[str, str]) -> list[str]:
    clients = sorted(name for name in given if name not in _BY_NAME or _BY_NAME[name].check in _CLIENT)
    names = ", ".join(_BY_NAME[name].name if name in _BY_NAME else writable(name, 100) for name in clients)
    return [writable(f"options for a Kafka client are ignored, there is no broker: {names}")] if clients else []


def _batch_warnings(given: Mapping[str, str]) -> list[str]:
    streams = [option.name for option in OPTIONS if option.check is _stream and option.name.lower() in given]
    warnings = [f"options for streams are ignored in a batch query: {', '.join(streams)}"] if streams else []
    cuts = [name for name in _CUTS if name.lower() in given]
    if cuts and given.get("oncorrupt", "").strip().lower() == "stop":
        warnings.append(f"options that cut partitions are ignored, as onCorrupt = stop reads each by one task: {', '.join(cuts)}")
    return warnings


def _stream_warnings(given: Mapping[str, str]) -> list[str]:
    batches = [name for name in ("endingTimestamp", "pushdown") if name.lower() in given]
    return [f"options for batch queries are ignored in a stream: {', '.join(batches)}"] if batches else []


def _checked_limit(name: str, text: str) -> None:
    """Let pass: :func:`_limit` has looked at it, unless one of higher precedence was given, and then it does not count."""


def _path(name: str, text: str) -> None:
    """Let pass: :func:`_paths` has looked at it."""


def _client(name: str, text: str) -> None:
    """Let pass: of no use without a broker; :func:`_client_warnings` names it."""


def _client_int(name: str, text: str) -> None:
    """Of no use here either, but Spark refuses what is no number."""
    _any_number(name, text, INT_MAX)


def _client_long(name: str, text: str) -> None:
    """The same with 64 bits."""
    _any_number(name, text, LONG_MAX)


def _stream(name: str, text: str) -> None:
    """Let pass: of no use in a batch query; :mod:`offsetlog.spark.stream_options` looks at it for a stream."""


def boolean(name: str, text: str) -> bool:
    """Return a truth value, in any case."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        refuse(name, text, f"must be true or false, found {shown(text)}")
    return word == "true"


def positive(name: str, text: str, maximum: int) -> int:
    """Return the whole number from 1 to `maximum` that `text` must be."""
    number = whole(text)
    if number is None or not 0 < number <= maximum:
        refuse(name, text, f"must be a whole number from 1 to {maximum}, found {shown(text)}")
    return number


def _any_number(name: str, text: str, maximum: int) -> int:
    number = whole(text)
    if number is None or not -maximum <= number <= maximum:
        refuse(name, text, f"must be a whole number, found {shown(text)}")
    return number


def _int(name: str, text: str) -> int:
    return positive(name, text, INT_MAX)


def _long(name: str, text: str) -> int:
    return positive(name, text, LONG_MAX)


def word(*words: str) -> Callable[[str, str], str]:
    """Return a check for one of some words, in any case."""

    def check(name: str, text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            near = get_close_matches(word, words, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            refuse(name, text, f"must be {' or '.join(words)}, found {shown(text)}{hint}")
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
    # Spark trims it.
    java_pattern(text.strip())
    return text.strip()


def _assign(name: str, text: str) -> dict[str, tuple[int, ...]]:
    example = '{"topic":[0,1]}'
    if not text.strip().startswith("{"):
        refuse(name, text, f"must be JSON as {example}, found {shown(text)}")
    assigned = json_object(name, text, example)
    for topic, partitions in assigned.items():
        numbers = partitions if isinstance(partitions, list) else [None]
        if not all(isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= INT_MAX for number in numbers):
            refuse(name, text, f"topic {shown(topic)} must hold a list of partition numbers, found {shown_json(partitions)}")
    if not any(assigned.values()):
        refuse(name, text, f"must name at least one partition, as in {example}")
    return {topic: tuple(sorted(set(partitions))) for topic, partitions in assigned.items()}


def _columns(name: str, text: str) -> tuple[str, ...]:
    del name
    return column_names(_listed(text))


def _keys(name: str, text: str) -> tuple[bytes, ...]:
    if not text.startswith("["):
        return (_utf8(name, text),)
    try:
        keys = json.loads(text)
    except (ValueError, RecursionError):
        keys = None
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        refuse(name, text, f'must be one key, or several as a JSON list of texts as ["a","b"], found {shown(text)}')
    return tuple(_utf8(name, key) for key in keys)


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        refuse(name, text, f"must be text that UTF-8 can hold, found {shown(text)}")


_LEVELS = word("read_uncommitted", "read_committed")
_PARTITIONED = '`{"topic":{"0":23,"1":-2}}`'

_NOT_SUPPORTED = {
    "kafka.auto.offset.reset": "no consumer looks for a place to start; say it with startingOffsets (earliest, or offsets) or startingTimestamp, and with failOnDataLoss what to do about records that are gone",
    "kafka.key.deserializer": "keys are always binary; decode them with DataFrame functions, as CAST(key AS STRING)",
    "kafka.value.deserializer": "values are always binary; decode them with DataFrame functions, as CAST(value AS STRING)",
    "kafka.enable.auto.commit": "nothing is committed, a query reads the offsets it is told to; leave the option out",
    "kafka.interceptor.classes": "interceptors could change the records; leave the option out, and change them with DataFrame functions",
}
"""Client options that Spark's Kafka source refuses, each with what to do instead."""

OPTIONS = (
    Option("path", "folders", "required", _path, "One log dir, several with commas between them, or one partition directory; the folder around several log dirs is refused, with their paths. Also as `.load(path)`; `.load([path, ...])` takes names with commas."),
    Option("paths", "JSON", "", _path, "What Spark makes of `.load([path, ...])`; not for direct use."),
    Option("subscribe", "names", "", _subscribe, "Topics, with commas between them. Exactly one of `subscribe`, `subscribePattern` and `assign` is given, unless `path` is a partition directory."),
    Option("subscribePattern", "Java regex", "", _subscribe_pattern, "Topics in whose names the pattern is found (anywhere: anchor it with `^` and `$`). Kafka's internal topics are left out. `.*` reads everything."),
    Option("assign", "JSON", "", _assign, '`{"topic":[0,1]}`. Partitions that are not there are left out.'),
    Option("startingTimestamp", "ms", "", _checked_limit, "Start of every partition: its first record at or after this time. Wins over the next two."),
    Option("startingOffsetsByTimestamp", "JSON", "", _checked_limit, 'A time for each partition, `{"topic":{"0":1700000000000}}`. Wins over `startingOffsets`.'),
    Option("startingOffsets", "word or JSON", "earliest; of a stream latest", _checked_limit, f"`earliest`, in a stream also `latest`, or {_PARTITIONED}, inclusive; -2 is the earliest, in a stream -1 the latest. Names all partitions that are read."),
    Option("startingOffsetsByTimestampStrategy", "error or latest", "error", word("error", "latest"), "What to do for a partition without a record at or after the starting time: fail, or read nothing of it."),
    Option("endingTimestamp", "ms", "", _checked_limit, "End of every partition: its first record at or after this time, exclusive; the latest where there is none. Wins over the next two. A stream ignores it and refuses those."),
    Option("endingOffsetsByTimestamp", "JSON", "", _checked_limit, "As `startingOffsetsByTimestamp`, exclusive. Wins over `endingOffsets`."),
    Option("endingOffsets", "latest or JSON", "latest", _checked_limit, "As `startingOffsets`, exclusive; -1 is the latest."),
    Option("failOnDataLoss", "boolean", "true", boolean, "Fail when a topic or a range of offsets that was asked for is gone, also if it went after the query was planned; `false` warns and reads what is left."),
    Option("isolationLevel", "word", "read_uncommitted", _LEVELS, "`read_committed` leaves out aborted records and ends at the last stable offset."),
    Option("kafka.isolation.level", "word", "", _LEVELS, "The same by Kafka's name."),
    Option("includeHeaders", "boolean", "false", boolean, "Adds the column `headers`; null where a record has none."),
    Option("columns", "names", "", _columns, "Columns to read, in this order, with commas between them. Spark cannot tell a Python source which columns a query uses: this can, and so can `.schema(...)`."),
    Option("keyEquals", "text", "", _keys, 'Only records with this key (UTF-8); several keys as a JSON list, `["a","b"]`.'),
    Option("minPartitions", "int", "", _int, "At least about so many tasks, as in Spark's Kafka source: larger ranges are cut."),
    Option("maxRecordsPerPartition", "long", "", _long, "At most so many offsets in a task, as in Spark's Kafka source."),
    Option("maxBytesPerPartition", "bytes", "", _long, "At most about so many bytes on disk in a task; a single batch may be larger."),
    Option("taskSlots", "int", "CPUs of the driver", _int, "How many tasks the cluster runs at once. Without the options above, a query gets at most one task a slot, and more only so that none reads much over 1 GiB; if this is not set, more only so that none reads much over 512 MiB, once one a slot would read over 1 GiB."),
    Option("pushdown", "boolean", "false", boolean, "Use filters that Spark hands down (where `spark.sql.python.filterPushdown.enabled` is on) to skip partitions, batches and records. Only for a frame that is used in one place: see [Filters](#filters)."),
    Option("verifyCrc", "boolean", "true", boolean, "Check the checksum of every batch."),
    Option("onCorrupt", "word", "raise", word("raise", "skip", "stop"), "What damage does: `raise` fails the task, `skip` goes on at the next place that holds a valid batch, `stop` ends the partition's range there: only in a batch query, where one task then reads each partition, and the options that cut partitions are ignored. What is left out is logged by the worker; `ReadReport` lists it."),
    Option("mapped", "boolean", "false", boolean, "Read through memory maps: faster, only for copies that nobody writes to."),
    Option("maxBatchBytes", "bytes", "64 MiB", _long, "Largest batch on disk that is accepted."),
    Option("maxDecompressedBytes", "bytes", "256 MiB", _long, "Largest batch after decompression that is accepted."),
    Option("maxHeaders", "int", "10000", _int, "Most headers of one record that is read."),
    Option("maxSegments", "int", "1000000", _int, "Most segments of one partition."),
    Option("maxStateFileBytes", "bytes", "16 MiB", _long, "Largest checkpoint, snapshot or metadata file that is read."),
    Option("maxOffsetsPerTrigger", "long", "", _stream, "Streams: at most so many offsets in a micro-batch, shared out among the partitions by what waits in each. Ignored in a batch query, with a warning, as the next two."),
    Option("minOffsetsPerTrigger", "long", "", _stream, "Streams: no micro-batch before so many offsets wait, or `maxTriggerDelay` has passed."),
    Option("maxTriggerDelay", "time", "15m", _stream, "Streams: how long `minOffsetsPerTrigger` may hold back what there is, as Spark writes times: `90s`, `15m`, `2h`."),
    Option("groupIdPrefix", "text", "", _client, "For a Kafka client; ignored with a warning, as every other option that begins with `kafka.`."),
    Option("fetchOffset.numRetries", "int", "", _client_int, "For a Kafka client; ignored with a warning."),
    Option("fetchOffset.retryIntervalMs", "long", "", _client_long, "For a Kafka client; ignored with a warning."),
    Option("kafkaConsumer.pollTimeoutMs", "long", "", _client_long, "For a Kafka client; ignored with a warning."),
)  # fmt: skip
"""All options, in the order of the documentation."""

_WARNINGS: dict[Query, Callable[[Mapping[str, str]], list[str]]] = {
    "either": _client_warnings,
    "batch": _batch_warnings,
    "stream": _stream_warnings,
}
_CUTS = ("minPartitions", "maxRecordsPerPartition", "maxBytesPerPartition")
_CLIENT = (_client, _client_int, _client_long)
_BY_NAME = {option.name.lower(): option for option in OPTIONS}
