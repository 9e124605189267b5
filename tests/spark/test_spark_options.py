"""Options: which are known, what they may hold, which wins, and that a wrong one fails when a frame is loaded, by name."""

from __future__ import annotations

import inspect
import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
from golden import CLEAN_LOG_DIRS
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from offsetlog import ConfigError, LogDir, OffsetOutOfRangeError
from offsetlog.spark import OffsetLogSource, spark_schema
from offsetlog.spark.options import OPTIONS, Limit, settings_from
from offsetlog.spark.reader import OffsetLogReader, PushdownReader
from offsetlog.spark.schema import COLUMNS
from offsetlog.spark.sink_options import SINK_OPTIONS
from spark_rows import CLEAN_PATH, load, offsets, reader

PLAIN = {"path": "/logs", "subscribe": "t"}


def ddl(text: str) -> StructType:
    """A schema as it is written in ``.schema(...)``."""
    schema = StructType.fromDDL(text)
    assert isinstance(schema, StructType)
    return schema


def check_refused(options: dict[str, str], *words: str) -> None:
    """These options fail, and the text holds these words."""
    with pytest.raises(ConfigError) as caught:
        settings_from(options)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("startingOfsets", "startingOffsets"),
        ("start", "startingOffsets"),
        ("endingOffset", "endingOffsets"),
        ("subscribe_pattern", "subscribePattern"),
        ("include-headers", "includeHeaders"),
        ("failOnDataloss2", "failOnDataLoss"),
        ("column", "columns"),
        ("isolation.level", "isolationLevel"),
    ],
)
def test_an_unknown_option_fails_with_the_nearest_name(name: str, nearest: str) -> None:
    if name == "start":
        # Too far from any: all are listed instead.
        check_refused({**PLAIN, name: "1"}, "unknown option 'start'", nearest)
    else:
        check_refused({**PLAIN, name: "1"}, f"unknown option {name.lower()!r}; did you mean {nearest!r}?")


def test_names_are_known_in_any_case() -> None:
    settings = settings_from(
        {"PATH": "/logs", "SUBSCRIBE": "t", "STARTINGoffsets": "EARLIEST", "kafka.Isolation.Level": "READ_committed"}
    )
    assert settings.paths == ("/logs",)
    assert settings.isolation_level == "read_committed"
    assert settings.start == Limit("startingOffsets", "earliest")


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("startingOffsets", "latest", "latest gives no records in a batch query"),
        ("startingOffsets", "Earlyest", "must be 'earliest', 'latest' or JSON"),
        ("startingOffsets", '{"t":{"0":-1}}', "t-0 has -1 (latest)"),
        ("startingOffsets", '{"t":{"0":-3}}', "t-0 must be an offset, -2 (earliest) or -1 (latest), found -3"),
        ("startingOffsets", '{"t":{"0":1.5}}', "must be a whole number, found 1.5"),
        ("startingOffsets", '{"t":{"x":1}}', "partitions are whole numbers, found 'x'"),
        ("startingOffsets", '{"t":[0]}', "topic 't' must hold an object"),
        ("startingOffsets", '{"t":{"0":1}', "must be JSON"),
        ("startingOffsets", '{"t":{"0":1},"t":{"1":1}}', "twice"),
        ("endingOffsets", "earliest", "earliest gives no records in a batch query"),
        ("endingOffsets", '{"t":{"0":-2}}', "t-0 has -2 (earliest)"),
        ("startingTimestamp", "yesterday", "one time in ms"),
        ("startingTimestamp", "99999999999999999999", "one time in ms"),
        ("endingTimestamp", '{"t":{"0":1}}', "one time in ms"),
        (
            "startingTimestamp",
            "-2",
            "is a time before 1970, found -2: the latest (-1) and the earliest (-2) are asked for with startingOffsets",
        ),
        (
            "endingTimestamp",
            " -1 ",
            "is a time before 1970, found -1: the latest (-1) and the earliest (-2) are asked for with endingOffsets",
        ),
        ("endingTimestamp", "-1700000000000", "is a time before 1970"),
        ("startingOffsetsByTimestamp", '{"t":{"0":5,"1":-2}}', "t-1 has a time before 1970, found -2: the latest"),
        ("endingOffsetsByTimestamp", '{"t":{"0":-1}}', "are asked for with endingOffsets"),
        ("startingOffsetsByTimestamp", "17", "must be a JSON object"),
        ("endingOffsetsByTimestamp", "[]", "must be a JSON object"),
        ("startingOffsetsByTimestampStrategy", "latset", "must be error or latest, found 'latset'; did you mean 'latest'?"),
        ("failOnDataLoss", "yes", "must be true or false, found 'yes'"),
        ("includeHeaders", "1", "must be true or false"),
        ("pushdown", "off", "must be true or false"),
        ("verifyCrc", "", "must be true or false"),
        ("isolationLevel", "committed", "must be read_uncommitted or read_committed"),
        ("kafka.isolation.level", "serializable", "must be read_uncommitted or read_committed"),
        ("minPartitions", "0", "whole number from 1 to 2147483647, found '0'"),
        ("minPartitions", "2147483648", "whole number from 1"),
        ("minPartitions", "two", "whole number from 1"),
        ("maxRecordsPerPartition", "-1", "whole number from 1 to 9223372036854775807"),
        ("maxBytesPerPartition", "1g", "whole number from 1"),
        ("taskSlots", "0", "whole number from 1"),
        ("columns", "", "names no column"),
        ("columns", "key,valeu", "no column 'valeu'; did you mean 'value'?"),
        ("columns", "key,KEY", "'key' is named twice"),
        ("keyEquals", "[1]", "JSON list of texts"),
    ],
)
def test_a_wrong_value_is_refused_with_the_name_of_the_option(option: str, text: str, words: str) -> None:
    check_refused({**PLAIN, option: text}, option, words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": " , "}, "option subscribe: must name at least one topic"),
        ({"subscribePattern": " "}, "option subscribePattern: must be a regular expression"),
        ({"subscribePattern": "a("}, "option subscribePattern: not a regular expression"),
        ({"assign": "t"}, "option assign: must be JSON"),
        ({"assign": '{"t":0}'}, "option assign: topic 't' must hold a list of partition numbers"),
        ({"assign": '{"t":[-1]}'}, "option assign: topic 't' must hold a list of partition numbers"),
        ({"assign": '{"t":[]}'}, "option assign: must name at least one partition"),
        ({"subscribe": "t", "assign": '{"t":[0]}'}, "exactly one of assign, subscribe and subscribePattern"),
        ({"subscribe": "t", "subscribePattern": "t"}, "found subscribe and subscribePattern"),
        ({"subscribe": "t", "path": ""}, "option path: must name a log dir"),
        ({"subscribe": "t", "path": "s3://bucket/logs"}, "option path: only files that every worker sees"),
        ({"subscribe": "t", "isolationLevel": "read_committed", "kafka.isolation.level": "read_uncommitted"}, "give one of them"),
    ],
)
def test_options_that_cannot_be_together_are_refused(options: dict[str, str], words: str) -> None:
    check_refused({"path": "/logs", **options}, words)


def test_a_time_wins_over_times_and_times_over_offsets() -> None:
    """In Spark's order; what loses is not even looked at."""
    start = {"startingTimestamp": "5", "startingOffsetsByTimestamp": '{"t":{"0":7}}', "startingOffsets": "nonsense"}
    end = {"endingTimestamp": "6", "endingOffsetsByTimestamp": '{"t":{"0":8}}', "endingOffsets": "nonsense"}
    both = settings_from({**PLAIN, **start, **end})
    assert (both.start, both.end) == (Limit("startingTimestamp", "timestamp", 5), Limit("endingTimestamp", "timestamp", 6))
    del start["startingTimestamp"], end["endingTimestamp"]
    both = settings_from({**PLAIN, **start, **end})
    assert both.start == Limit("startingOffsetsByTimestamp", "timestamps", {("t", 0): 7})
    assert both.end == Limit("endingOffsetsByTimestamp", "timestamps", {("t", 0): 8})


def test_a_time_of_0_is_one() -> None:
    both = settings_from({**PLAIN, "startingTimestamp": "0", "endingOffsetsByTimestamp": '{"t":{"0":0}}'})
    assert (both.start.value, both.end.value) == (0, {("t", 0): 0})


def test_paths_come_with_commas_as_uris_or_as_a_list() -> None:
    assert settings_from({**PLAIN, "path": "/a, /b "}).paths == ("/a", "/b")
    with pytest.raises(ConfigError, match="number 3 of 3 is empty"):
        settings_from({**PLAIN, "path": "/a, /b ,"})
    assert settings_from({**PLAIN, "path": "file:///a%20b,file:/c"}).paths == ("/a b", "/c")
    # As the command line reads it.
    assert settings_from({**PLAIN, "path": "file://localhost/a#b?c%23"}).paths == ("/a#b?c#",)
    assert settings_from({"subscribe": "t", "paths": '["/a,b","/c"]'}).paths == ("/a,b", "/c")


def test_columns_follow_include_headers_and_columns() -> None:
    assert "headers" not in settings_from(PLAIN).columns
    assert settings_from({**PLAIN, "includeHeaders": "TRUE"}).columns[-1] == "headers"
    assert settings_from({**PLAIN, "columns": " offset , TIMESTAMPTYPE"}).columns == ("offset", "timestampType")


def test_options_of_clients_and_streams_are_named_in_one_warning_each(caplog: pytest.LogCaptureFixture) -> None:
    """A job is pointed at a directory by changing its format and path; what no longer means anything is said once a load."""
    path = ",".join(map(str, CLEAN_LOG_DIRS))
    source = OffsetLogSource(
        {
            "path": path,
            "subscribe": "g-plain",
            "kafka.bootstrap.servers": "broker:9092",
            "kafka.group.id": "mine",
            "groupidprefix": "x",
            "maxoffsetspertrigger": "7",
            "kafka.isolation.level": "read_committed",
        }
    )
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        schema = source.schema()
        again = pickle.loads(pickle.dumps(source))
        again.reader(schema)
    assert [record.getMessage() for record in caplog.records] == [
        "options for a Kafka client are ignored, there is no broker: groupIdPrefix, kafka.bootstrap.servers, kafka.group.id",
        "options for streams are ignored in a batch query: maxOffsetsPerTrigger",
    ]


def test_every_option_has_a_text_and_a_default_that_passes_its_own_check() -> None:
    assert len({option.name.lower() for option in OPTIONS}) == len(OPTIONS)
    for option in OPTIONS:
        assert option.doc.endswith(".")
        if option.kind in ("boolean", "word", "error or latest") and option.default:
            option.check(option.name, option.default)


# Through a real Spark: what is wrong fails at load() with an AnalysisException that names the option.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "g-plain", "startingOfsets": "earliest"}, "did you mean 'startingOffsets'?"),
        ({"subscribe": "g-plain", "startingOffsets": "latset"}, "option startingOffsets: must be 'earliest', 'latest' or JSON"),
        ({"subscribe": "g-plain", "endingOffsets": "earliest"}, "option endingOffsets: earliest gives no records"),
        ({"subscribe": "g-plain", "assign": '{"g-plain":[0]}'}, "exactly one of assign, subscribe and subscribePattern"),
        ({}, "exactly one of assign, subscribe and subscribePattern must be given"),
    ],
)
def test_a_wrong_option_fails_at_load(spark: SparkSession, options: dict[str, str], words: str) -> None:
    with pytest.raises(AnalysisException) as caught:
        reader(spark, **options).load(CLEAN_PATH)
    assert words in str(caught.value)


def test_what_only_a_batch_query_refuses_fails_when_it_is_planned(spark: SparkSession) -> None:
    """PySpark does not tell a source at ``load()`` whether a batch or a stream is loaded; a stream may start at the latest."""
    frame = load(spark, subscribe="g-plain", startingOffsets="latest")
    with pytest.raises(AnalysisException, match="option startingOffsets: latest gives no records"):
        frame.count()


def test_a_path_that_is_not_there_fails_at_load(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="No such file or directory"):
        reader(spark, subscribe="t").load(str(tmp_path / "nowhere"))


def test_loading_a_list_of_paths_reads_them_as_one(spark: SparkSession) -> None:
    frame = reader(spark, subscribe="g-plain", columns="topic,partition,offset").load([str(path) for path in CLEAN_LOG_DIRS])
    assert set(offsets(frame)) == {("g-plain", 0), ("g-plain", 1), ("g-plain", 2)}


def test_a_topic_that_is_not_there_fails_with_the_nearest_name(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="did you mean 'g-plain'") as caught:
        load(spark, subscribe="g-plane").count()
    assert "option subscribe: topic 'g-plane' is not in" in str(caught.value)


# The schema.


def test_the_schema_is_that_of_sparks_kafka_source(spark: SparkSession) -> None:
    kafka = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
    frame = load(spark, subscribe="g-plain")
    assert frame.schema == ddl(kafka)
    frame = load(spark, subscribe="g-plain", includeHeaders="true")
    assert frame.schema == ddl(f"{kafka}, headers array<struct<key: string, value: binary>>")


def test_sparks_types_are_those_of_the_arrow_stream() -> None:
    """Spark compares the two for equality, field by field, nullability included."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    with LogDir.open([str(path) for path in CLEAN_LOG_DIRS]) as log_dir:
        scan = log_dir.scan([("g-plain", 0)], columns=list(COLUMNS))
        stream = pa.RecordBatchReader.from_stream(scan)
        # PySpark 4.0 means UTC without being told.
        zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
        assert stream.schema == to_arrow_schema(spark_schema(COLUMNS), **zone)


def test_headers_are_null_where_a_record_has_none(spark: SparkSession) -> None:
    frame = load(spark, subscribe="g-plain", includeHeaders="true").selectExpr("headers is null as none", "size(headers) as count")
    counts = {(row["none"], row["count"] == 0) for row in frame.distinct().collect()}
    assert counts == {(True, False), (False, False)}


def test_a_schema_given_by_the_user_chooses_the_columns(spark: SparkSession) -> None:
    frame = reader(spark, subscribe="g-plain").schema("value binary, offset long not null, partition int").load(CLEAN_PATH)
    assert frame.columns == ["value", "offset", "partition"]
    whole = load(spark, subscribe="g-plain").select("value", "offset", "partition")
    assert sorted(frame.collect(), key=str) == sorted(whole.collect(), key=str)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("offset int", "schema: column 'offset' must be bigint, found int"),
        ("value string", "schema: column 'value' must be binary, found string"),
        ("offzet long", "schema: no column 'offzet'; did you mean 'offset'?"),
        ("key binary not null", "schema: column 'key' may be null, found NOT NULL"),
        ("headers array<string>", "schema: column 'headers' must be array<struct<key:string,value:binary>>, found array<string>"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(schema: str, words: str) -> None:
    source = OffsetLogSource({"path": CLEAN_PATH, "subscribe": "g-plain"})
    with pytest.raises(ConfigError) as caught:
        source.reader(ddl(schema))
    assert words in str(caught.value)


def test_a_schema_that_does_not_fit_fails_the_query_clearly(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="schema: column 'offset' must be bigint, found int"):
        reader(spark, subscribe="g-plain").schema("offset int").load(CLEAN_PATH).count()


def test_columns_and_a_schema_may_not_differ() -> None:
    source = OffsetLogSource({"path": CLEAN_PATH, "subscribe": "g-plain", "columns": "offset"})
    with pytest.raises(ConfigError, match="option columns: names offset, but the schema key"):
        source.reader(ddl("key binary"))


def test_damage_fails_the_task_and_says_where(spark: SparkSession, tmp_path: Path) -> None:
    """All that crosses the JVM is text: it has to name the file and the place."""
    from golden import named

    (golden,) = named("g-codec-none-0")
    directory = golden.copy(tmp_path, checkpoints=False)
    segment = directory / f"{0:020}.log"
    data = bytearray(segment.read_bytes())
    data[200] ^= 1
    segment.write_bytes(data)
    with pytest.raises(PythonException) as caught:
        load(spark, str(directory)).collect()
    text = str(caught.value)
    assert "checksum" in text
    assert segment.name in text
    assert "position " in text
    assert load(spark, str(directory), verifyCrc="false", columns="offset").count() == len(golden.rows)


# What goes from the driver to the workers.


def test_source_and_reader_pickle_as_plain_values() -> None:
    """A native handle would not pickle, and a file would not be there on another machine."""
    options = {"path": CLEAN_PATH, "subscribe": "g-plain", "startingoffsets": json.dumps({"g-plain": {"0": 3, "1": -2, "2": 0}})}
    source = pickle.loads(pickle.dumps(OffsetLogSource(options)))
    first = pickle.loads(pickle.dumps(source.reader(source.schema())))
    assert type(first) is OffsetLogReader
    partitions = pickle.loads(pickle.dumps(first.partitions()))

    def plain(value: object) -> bool:
        return all(map(plain, value)) if type(value) is tuple else type(value) in (str, int)

    assert isinstance(first.partitions(), list)
    assert all(plain(partition.value) for partition in partitions)
    rows = sum(batch.num_rows for partition in partitions for batch in first.read(partition))
    assert rows == 600 - 3


def test_without_partitions_a_task_reads_nothing() -> None:
    """Spark runs one task all the same: with None up to 4.1, with a partition of None from 4.2."""
    from pyspark.sql.datasource import InputPartition

    source = OffsetLogSource({"path": CLEAN_PATH, "subscribe": "g-empty"})
    found = source.reader(source.schema())
    assert found.partitions() == []
    assert isinstance(found, OffsetLogReader)
    assert list(found.read(None)) == []
    assert list(found.read(InputPartition(None))) == []


def test_filters_are_taken_only_when_asked_for() -> None:
    options = {"path": CLEAN_PATH, "subscribe": "g-empty"}
    source = OffsetLogSource(options)
    assert type(source.reader(source.schema())) is OffsetLogReader
    source = OffsetLogSource({**options, "pushdown": "true"})
    if not hasattr(DataSourceReader, "pushFilters"):
        with pytest.raises(ConfigError, match=r"4\.1 or later"):
            source.reader(source.schema())
        return
    assert type(source.reader(source.schema())) is PushdownReader


def test_records_removed_since_planning_are_an_error_or_left_out(tmp_path: Path) -> None:
    """A broker goes on beside us: a segment may be deleted between the plan and the task."""
    from golden import named

    (golden,) = named("g-codec-none-0")
    directory = golden.copy(tmp_path, checkpoints=False)

    def planned(**options: str) -> OffsetLogReader:
        source = OffsetLogSource({"path": str(tmp_path), "subscribe": golden.topic, **options})
        made = source.reader(source.schema())
        assert isinstance(made, OffsetLogReader)
        return made

    strict, lenient = planned(), planned(failondataloss="false")
    (partition,) = strict.partitions()
    for file in directory.glob("0" * 20 + ".*"):
        file.unlink()
    with pytest.raises(OffsetOutOfRangeError, match="were removed after the query was planned"):
        list(strict.read(partition))
    left = sum(batch.num_rows for batch in lenient.read(partition))
    assert 0 < left < len(golden.rows)
    for file in directory.iterdir():
        file.unlink()
    directory.rmdir()
    with pytest.raises(FileNotFoundError):
        list(strict.read(partition))
    assert list(lenient.read(partition)) == []


def test_the_documentation_lists_every_option_as_it_is() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `") and line.count("|") == 5]
    shown = [option for option in (*OPTIONS, *SINK_OPTIONS) if option.name != "paths"]
    assert rows == [f"| `{option.name}` | {option.kind} | {option.default} | {option.doc} |" for option in shown]
