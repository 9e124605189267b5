"""The options of ``write`` and ``writeStream``: name, kind, default, check, meaning.

The columns and ``topic`` are those of Spark's Kafka sink; ``path`` replaces the brokers. Any topic setting of Kafka is an option
by its own name and holds for topics that are made.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from offsetlog import LogConfig
from offsetlog.errors import ConfigError
from offsetlog.spark.given import as_given, refuse_pattern
from offsetlog.spark.options import INT_MAX, OPTIONS as READ_OPTIONS, Option, Paths, boolean, folders, positive, word
from offsetlog.spark.refusal import refuse, shown, writable

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "OTHERS",
    "SINK_OPTIONS",
    "SinkSettings",
    "job_name",
    "job_prefix",
    "new_folders",
    "not_blank",
    "sink_columns",
    "sink_settings_from",
]


class SinkSettings(NamedTuple):
    """The options after their checks: plain values that pickle. The field comments name the option."""

    paths: tuple[str, ...]  # path
    topic: str | None = None
    partitions: int = 1
    partitions_of: tuple[tuple[str, int], ...] = ()  # partitions, by topic
    partitions_named: bool = False  # whether `partitions` was given as a number
    partitions_of_others: bool = False  # whether `partitions` was given for all topics that it does not name
    topic_ids: tuple[tuple[str, str], ...] = ()  # topicId: (topic, id)
    partitioner: Literal["default", "round_robin"] = "default"
    preserve_offsets: bool = False  # preserveOffsets
    single_replica: bool = False  # singleReplica
    name: str | None = None  # transactionId, queryId; a stream without one has the id of its checkpoint
    checkpoint: str = ""  # checkpointLocation
    config: tuple[tuple[str, str], ...] = ()  # topic settings by Kafka's names
    warnings: tuple[str, ...] = ()

    def count_of(self, topic: str) -> int:
        """How many partitions a topic gets that is made."""
        return dict(self.partitions_of).get(topic, self.partitions)

    def check_count(self, topic: str, found: int) -> None:
        """Refuse a topic that is there with another number of partitions than the options say."""
        is_said = self.partitions_of_others or (self.partitions_named and topic == self.topic)
        wanted = dict(self.partitions_of).get(topic, self.partitions if is_said else found)
        if wanted != found:
            refuse(
                "partitions",
                str(wanted),
                f"topic {shown(topic)} is there and has {found}, which stay: leave the option out, or write again where the topic was "
                "made meanwhile",
            )

    @property
    def log_config(self) -> LogConfig:
        """The settings of topics that are made."""
        return LogConfig.from_dict(dict(self.config))

    @property
    def job_prefix(self) -> str:
        """With what the folders begin that jobs of this name stage in; nothing without a name."""
        return job_prefix(self.name) if self.name else ""


def not_blank(name: str, text: str) -> str:
    """Return `text` without the blanks around it; refuse one that has nothing else."""
    if not text.strip():
        refuse(name, text, "must not be blank")
    return text.strip()


def _count(name: str, text: str) -> int:
    return positive(name, text, INT_MAX)


def _by_topic(name: str, text: str, what: str) -> dict[str, object] | None:
    """Return the JSON object that is given in place of one value for all; ``None`` where it is one value."""
    if not text.strip().startswith("{"):
        return None
    try:
        found: dict[str, object] = json.loads(text)
    except ValueError as error:
        refuse(name, text, f"must be {what}: {error}")
    return found


def _counts(name: str, text: str) -> int | dict[str, int]:
    found = _by_topic(name, text, "a number, or a JSON object of topics and numbers")
    return _count(name, text) if found is None else {topic: _count(name, str(number)) for topic, number in found.items()}


def _ids(name: str, text: str) -> str | dict[str, str]:
    found = _by_topic(name, text, "an id, or a JSON object of topics and ids")
    if found is None:
        return not_blank(name, text)
    ids = {topic: value for topic, value in found.items() if isinstance(value, str)}
    for topic in found.keys() - ids.keys():
        refuse(name, text, f"must give {shown(topic)} an id, found {shown(found[topic])}")
    return ids


# One option a line, as in Kafka's own tables: a longer line reads better than three.
# fmt: off
SINK_OPTIONS: tuple[Option, ...] = (
    Option("path", "folders", "required", not_blank, "One log dir, or several with commas between them, made if missing. No broker may run on them meanwhile."),
    Option("topic", "name", "", not_blank, "Topic of all rows. Wins over the column `topic`."),
    Option("partitions", "int or JSON", "1", _counts, 'Partitions of a topic that is made, of every one or by topic as `{"orders":12,"users":3}`, with `"*"` for the others. A topic that is there with another number is refused, if it is the option `topic` or named here; with `"*"` each is.'),
    Option("topicId", "id or JSON", "drawn", _ids, 'Id of a topic that is made (22 characters of base64), as a cluster knows it: of the option `topic`, or of several as `{"orders":"…"}`. A topic that is there and has another id is refused.'),
    Option("partitioner", "default or round_robin", "default", word("default", "round_robin"), "Where rows without a `partition` go. `default`: by the key's murmur2 hash, as Java's producer does; without a key some partition for each batch of rows. A column `partition` wins. Rows with keys are refused where the cluster's metadata is among the paths and says that the topic has partitions that are not there, or does not tell (it cannot be read, a part of it is missing, it is another cluster's): name the partition. Other rows go to the partitions that are there."),
    Option("preserveOffsets", "boolean", "false", boolean, "A restore: rows keep the offsets of the column `offset`, gaps included, and the epochs of `leaderEpoch`. They come sorted by topic, partition and offset, and lie behind the end of their log. Times before 1970, which a broker may have stored, stay too."),
    Option("singleReplica", "boolean", "false", boolean, "In a broker's log dir, write also into partitions of which other brokers of the cluster have replicas: they do not get what is written, and may have it cut off here. Without it such a write is refused, and nothing of it is published."),
    Option("transactionId", "text", "", not_blank, "Name of a batch job. Run again under the same name, also after a crash anywhere, it publishes nothing twice."),
    Option("queryId", "text", "the checkpoint's id", not_blank, "Name of a stream, under which its micro-batches are published once, in place of the id that Spark wrote into its checkpoint. A stream whose checkpoint is made anew needs a new one."),
    Option("checkpointLocation", "folder", "", not_blank, "Spark's own option."),
)
"""All options but topic settings, in the order of the documentation."""
# fmt: on

_BY_NAME = {option.name.lower(): option for option in SINK_OPTIONS}
# What Spark puts there by itself.
_IGNORED = {"queryname", "paths"}
_COMPRESSION = {"compression", "compressiontype", "compression_type", "kafka.compression.type"}
# INSERT INTO a view or a table hands over what it is read by.
_OF_VIEWS = {"subscribe", "subscribepattern", "assign", "columns", "includeheaders"}
# Every topic that is not named; no topic is called so.
OTHERS = "*"
_OF_READING = {option.name.lower() for option in READ_OPTIONS if not option.name.startswith("kafka.")}

COLUMN_TYPES = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
    "offset": ("bigint",),
    "leaderEpoch": ("int",),
}
"""The columns that are written, and Spark's names of the types that they may have."""


def sink_settings_from(options: Mapping[str, str], *, is_stream: bool) -> SinkSettings:
    """Return the settings that these options ask for.

    Raises
    ------
    ConfigError
        An option is unknown (the text names the nearest known one), has a value that cannot be used, or is missing.
    """
    values: dict[str, Any] = {}
    config: dict[str, str] = {}
    client = []
    for name, text in as_given(options).items():
        folded = name.lower()
        if folded in _BY_NAME:
            option = _BY_NAME[folded]
            values[option.name] = option.check(option.name, text)
        elif folded in _OF_VIEWS or (folded.startswith("kafka.") and folded not in _COMPRESSION):
            client.append(name)
        elif folded not in _IGNORED:
            setting, value = _topic_setting(name, text)
            config[setting] = value
    if "path" not in values:
        refuse("path", "", "is missing: the log dir to write to, as .save(path) or .start(path)")
    for wrong, right in (("transactionId", "queryId"),) if is_stream else (("queryId", "transactionId"),):
        if wrong in values:
            refuse(wrong, str(values[wrong]), f"is for {'batch jobs' if is_stream else 'streams'}; give {right}")
    job = values.get("queryId") if is_stream else values.get("transactionId")
    ids = values.get("topicId", {})
    if isinstance(ids, str):
        if "topic" not in values:
            refuse("topicId", ids, 'is of one topic, found no option topic; of several give {"orders":"..."}')
        ids = {values["topic"]: ids}
    counts = values.get("partitions", 1)
    LogConfig.from_dict(config)
    paths = new_folders(str(values["path"]))
    what = {True: "reading", False: "Kafka's client"}
    warnings = [f"option {name} is for {what[name.lower() in _OF_VIEWS]} and ignored" for name in sorted(client)]
    return SinkSettings(
        paths=tuple(map(os.path.abspath, paths)),
        topic=values.get("topic"),
        partitions=counts if isinstance(counts, int) else counts.get(OTHERS, 1),
        partitions_of=() if isinstance(counts, int) else tuple((name, count) for name, count in counts.items() if name != OTHERS),
        partitions_of_others=not isinstance(counts, int) and OTHERS in counts,
        partitions_named="partitions" in values and isinstance(counts, int),
        topic_ids=tuple(ids.items()),
        partitioner=values.get("partitioner", "default"),
        preserve_offsets=values.get("preserveOffsets", False),
        single_replica=values.get("singleReplica", False),
        name=None if job is None else f"query {job}" if is_stream else job_name(job),
        checkpoint=values.get("checkpointLocation", ""),
        config=tuple(config.items()),
        warnings=tuple(warnings),
    )


def new_folders(paths: Paths) -> tuple[str, ...]:
    """Return the folders that are written to, as :func:`~offsetlog.spark.options.folders`; a write makes those that are missing.

    Raises
    ------
    ConfigError
        A folder is not there and its name looks like a pattern, or lies on another machine.
    """
    named = folders(paths)
    for path in named:
        refuse_pattern(path)
    return named


def job_prefix(name: str) -> str:
    """Return with what the folders begin that jobs of a name stage in."""
    return f"{hashlib.sha256(name.encode()).hexdigest()[:16]}-"


def job_name(transaction_id: str) -> str:
    """Return the name under which a batch job commits. No query has it."""
    return f"job {transaction_id}"


def _topic_setting(name: str, text: str) -> tuple[str, str]:
    """Return a topic setting and its value; refuse what is none."""
    folded = name.lower()
    if folded == "compression.type" and text.strip().lower() == "none":
        # A producer's word for it.
        return folded, "uncompressed"
    if folded in _COMPRESSION:
        refuse(name, text, "is no option here; the codec is compression.type, the topic's setting")
    if folded in _OF_READING:
        refuse(name, text, "is for reading; a write has no use for it")
    return _setting(name, text), text


def _setting(name: str, text: str) -> str:
    try:
        LogConfig.from_dict({name: text})
    except ConfigError as error:
        near = get_close_matches(name.lower(), _BY_NAME, n=1, cutoff=0.75)
        if near:
            message = f"unknown option {shown(name)}; did you mean {_BY_NAME[near[0]].name!r}?"
            raise ConfigError(writable(message), key=writable(name, 100), value=writable(text, 200)) from None
        raise ConfigError(writable(f"option {name}: {error}"), key=writable(name, 100), value=writable(text, 200)) from None
    return name


def sink_columns(schema: StructType, settings: SinkSettings) -> tuple[str, ...]:
    """Return the columns that are written, in the schema's order; others are ignored, as by Spark's Kafka sink.

    Raises
    ------
    ConfigError
        ``value`` is missing, ``topic`` while there is no such option, ``offset`` under ``preserveOffsets``; a column has another type.
    """
    columns = []
    for field in schema.fields:
        expected = COLUMN_TYPES.get(field.name)
        if expected is None:
            continue
        found = field.dataType.simpleString()
        if found not in expected:
            message = f"column {field.name!r} must be {' or '.join(expected)}, found {found}; cast it in a select before the write"
            raise ConfigError(message, key=field.name, value=found)
        if field.name in columns:
            message = f"column {field.name!r} is there twice"
            raise ConfigError(message, key=field.name, value=found)
        columns.append(field.name)
    needed: Sequence[tuple[str, str]] = (
        ("value", ""),
        *((("topic", ", or give the option topic"),) if settings.topic is None else ()),
        *((("offset", ", which rows keep under preserveOffsets"),) if settings.preserve_offsets else ()),
    )
    for name, more in needed:
        if name not in columns:
            message = f"no column {name!r} found{more}; the columns are {', '.join(schema.fieldNames()) or 'none'}"
            raise ConfigError(message, key=name, value="")
    if not settings.preserve_offsets:
        columns = [name for name in columns if name not in {"offset", "leaderEpoch"}]
    return tuple(columns)
