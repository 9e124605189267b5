"""Options with hostile texts: whatever stands in them, what comes out is a value or a ConfigError that names the option, shortened."""

from __future__ import annotations

import datetime as dt
import json
import logging
import random
import types
from typing import Any

import pytest
from golden import named
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import offsetlog.spark
from offsetlog import ConfigError, OffsetLogError, Scan
from offsetlog.spark import splits
from offsetlog.spark.options import OPTIONS, settings_from
from offsetlog.spark.pattern import java_pattern
from offsetlog.spark.planning import plan
from spark_rows import CLEAN_PATH, load

PLAIN = {"path": CLEAN_PATH, "subscribe": "g-plain"}
NINES = "9" * 5000
DEEP = 100_000
HOSTILE = [
    "",
    " ",
    "\0",
    "\ud800",
    "\udcff",
    "\u0661\u0662",  # digits to Python, none to Java
    "\u2003 7",
    "-0",
    "+",
    "0x10",
    "1_000",
    "1e400",
    "NaN",
    "Infinity",
    "-9223372036854775808",
    "9223372036854775808",
    NINES,
    f"-{NINES}",
    "0" * 5000 + "7",
    "x" * 100_000,
    "{" * DEEP,
    "[" * DEEP,
    "(" * DEEP,
    "[" * DEEP + "]" * DEEP,
    '{"t":' * DEEP + "1" + "}" * DEEP,
    '{"t":' * 900 + "1" + "}" * 900,
    '{"t":' + "[" * 900 + "]" * 900 + "}",
    f'{{"t":{{"0":{NINES}}}}}',
    f'{{"t":{{"{NINES}":1}}}}',
    f'{{"t":[{NINES}]}}',
    '{"t":{"0":1e400}}',
    '{"t":{"0":NaN}}',
    '{"t":{"0":-Infinity}}',
    '{"t":{"0":1E3}}',
    '{"\\ud800":{"0":1}}',
    '{"\\ud800":[0]}',
    '{"\\u0000":{"0":1}}',
    '["\\ud800"]',
    "[" + NINES + "]",
    '{"' + "t" * 100_000 + '":{"0":1}}',
    '{"t":{"0":"' + "v" * 100_000 + '"}}',
    "file://[",
    "file://[::1/x",
    "file:///%00",
    "a{99999999999999999999}",
    "(?u)a",
    "(?L)a",
    "(?a)a",
    "[a--b]",
    "[a||b]",
    "\\",
    "\\N{x}",
    "(?P<a>b)",
    "(?<a>b)" * 200,
]


def outcome(options: dict[str, str]) -> ConfigError | None:
    """The error, with what must be true of every one."""
    try:
        settings_from(options)
    except ConfigError as error:
        refused = error
    else:
        return None
    assert refused.key is not None
    assert refused.value is not None
    for text, most in ((str(refused), 1500), (refused.key, 200), (refused.value, 200)):
        text.encode()  # it crosses the JVM
        assert len(text) <= most
    return refused


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:20]))
def test_hostile_values_are_refused_by_name_or_taken(text: str) -> None:
    for option in OPTIONS:
        base = dict(PLAIN)
        if option.name == "paths":
            del base["path"]
        elif option.name in ("assign", "subscribePattern"):
            del base["subscribe"]
        error = outcome({**base, option.name: text})
        if error is not None:
            assert option.name.removesuffix("s") in str(error)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:20]))
def test_hostile_names_are_refused(text: str) -> None:
    error = outcome({**PLAIN, text: "1"})
    assert error is not None
    assert "unknown option" in str(error)


@pytest.mark.parametrize(
    "option",
    [
        "startingTimestamp",
        "endingTimestamp",
        "minPartitions",
        "maxRecordsPerPartition",
        "maxBytesPerPartition",
        "taskSlots",
        "maxBatchBytes",
    ],
)
@pytest.mark.parametrize("text", [NINES, f"-{NINES}", f" +{NINES} ", "9" * 20])
def test_huge_numbers_are_refused(option: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"option {option}: must be .*found '[ +-]*999"):
        settings_from({**PLAIN, option: text})


@pytest.mark.parametrize(
    "option", ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "assign", "keyEquals"]
)
@pytest.mark.parametrize("brackets", [("{" + '"t":{' * DEEP, ""), ('{"t":' * DEEP + "{", "}" * DEEP), ("[" * DEEP, "]" * DEEP)])
def test_deeply_nested_json_is_refused(option: str, brackets: tuple[str, str]) -> None:
    options = {**PLAIN, option: "1".join(brackets)}
    if option == "assign":
        del options["subscribe"]
    if option == "keyEquals" and brackets[0].startswith("{"):
        # A key like any other.
        assert settings_from(options).keys == (options[option].encode(),)
        return
    with pytest.raises(ConfigError, match=f"option {option}: "):
        settings_from(options)


def test_limits_of_what_is_taken_plan_and_read() -> None:
    """The largest and smallest numbers that pass the checks reach the compiled module."""
    (golden,) = named("g-many-entries-0")
    base = {"path": str(golden.directory)}
    long_max, int_max = str((1 << 63) - 1), str((1 << 31) - 1)
    extremes = [
        {"minPartitions": int_max},
        {"maxRecordsPerPartition": long_max},
        {"maxRecordsPerPartition": "1"},
        {"maxBytesPerPartition": long_max},
        {"maxBytesPerPartition": "1"},
        {"taskSlots": int_max},
        {"minPartitions": int_max, "maxRecordsPerPartition": long_max, "maxBytesPerPartition": long_max, "taskSlots": int_max},
        {"maxBatchBytes": long_max},
        {"maxDecompressedBytes": long_max},
        {"startingTimestamp": "0"},
        {"endingTimestamp": long_max},
    ]
    for options in extremes:
        tasks = plan(settings_from({**base, **options}))
        assert sum(Scan.over([each.split for each in task], columns=["offset"]).count() for task in tasks) == len(golden.rows), options
    for options in ({"startingTimestamp": long_max}, {"endingTimestamp": "0"}, {"maxBatchBytes": "1"}):
        try:
            assert plan(settings_from({**base, **options})) == []
        except OffsetLogError as error:
            assert "Overflow" not in type(error).__name__  # noqa: PT017  # either way will do


@pytest.mark.filterwarnings("error")
def test_random_texts_from_json_pieces() -> None:
    """What the lists above did not think of; the seed stands in what a failure says."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    pieces = [
        *'{}[]":,\\-+.eE01 9t',
        '"t"',
        '"0"',
        "null",
        "true",
        "\\u",
        "d800",
        "\ud800",
        "\0",
        "(?",
        "*",
        "file:",
        "//",
        NINES[:4400],
    ]
    names = [option.name for option in OPTIONS if option.name not in ("path", "paths")]
    for _ in range(4000):
        text = "".join(chance.choices(pieces, k=chance.randrange(1, 30)))
        text = chance.choice([text, f'{{"t":{text}}}', f'{{"t":{{"0":{text}}}}}'])
        name = chance.choice(names)
        options = {**PLAIN, name: text}
        if name in ("assign", "subscribePattern"):
            del options["subscribe"]
        try:
            error = outcome(options)
        except Exception as other:
            raise AssertionError(f"seed {seed}: {name}={text!r}") from other
        assert error is None or name in str(error), f"seed {seed}: {name}={text!r}"


@pytest.mark.parametrize("pattern", ["a{99999999999999999999}", "(" * DEEP + ")" * DEEP, "(?u)a", "(?L)a", "x" * 100_000 + "("])
def test_patterns_that_break_the_translator_are_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="option subscribePattern: ") as caught:
        java_pattern(pattern)
    assert len(str(caught.value)) < 1000


def test_a_pattern_is_trimmed_as_spark_does() -> None:
    assert {split.topic for split in splits(CLEAN_PATH, subscribePattern="  ^g-plain$ ")} == {"g-plain"}


# Partitions in JSON.


@pytest.mark.parametrize("key", ["00", "01", "+0", "-0", " 0", "0 ", "0x0", "0.0", "", "\\u0660", "1_0", "2147483648", "9999999999"])
@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"])
def test_partitions_are_written_in_one_way_only(option: str, key: str) -> None:
    """Two spellings of one partition would overwrite each other."""
    for text in (f'{{"t":{{"{key}":1}}}}', f'{{"t":{{"0":1,"{key}":2}}}}', f'{{"t":{{"{key}":2,"0":1}}}}'):
        with pytest.raises(ConfigError, match=f"option {option}: topic 't': .*whole numbers") as caught:
            settings_from({**PLAIN, option: text})
        assert repr(json.loads(f'"{key}"')) in str(caught.value)


@pytest.mark.parametrize(
    "option", ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "assign"]
)
@pytest.mark.parametrize(
    "text",
    [
        '{"t":{"0":1,"0":2}}',
        '{"t":{"0":1,"0":1}}',
        '{"t":{"0":1,"\\u0030":2}}',
        '{"t":{"0":1},"t":{"1":1}}',
        '{"t":{"0":1},"\\u0074":{"1":1}}',
        '{"t":[0],"t":[1]}',
    ],
)
def test_a_name_that_stands_twice_in_json_is_refused(option: str, text: str) -> None:
    options = {**PLAIN, option: text}
    if option == "assign":
        del options["subscribe"]
    with pytest.raises(ConfigError, match=f"option {option}: .*'[0t]' stands twice"):
        settings_from(options)


def test_python_values_with_one_partition_twice_are_refused() -> None:
    with pytest.raises(ConfigError, match="option startingOffsets: '0' stands twice"):
        splits(CLEAN_PATH, subscribe="g-idem", starting_offsets={"g-idem": {0: 1, "0": 2, 1: 3}})


def test_the_largest_partition_is_taken() -> None:
    assert settings_from({**PLAIN, "startingOffsets": '{"t":{"2147483647":1}}'}).start.value == {("t", 2147483647): 1}


# What Spark's own source refuses.


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("kafka.auto.offset.reset", "startingOffsets"),
        ("kafka.key.deserializer", "CAST"),
        ("kafka.value.deserializer", "CAST"),
        ("kafka.enable.auto.commit", "nothing is committed"),
        ("kafka.interceptor.classes", "DataFrame"),
    ],
)
def test_client_options_that_spark_refuses_are_refused(option: str, words: str) -> None:
    for name in (option, option.upper(), option.title()):
        with pytest.raises(ConfigError, match=f"option {option}: ") as caught:
            settings_from({**PLAIN, name: "earliest"})
        assert words in str(caught.value)
        assert caught.value.key == option


def test_client_options_that_spark_takes_are_taken(caplog: pytest.LogCaptureFixture) -> None:
    """Of the group, Spark only warns; any other client option goes to the client."""
    names = ["kafka.group.id", "kafka.max.poll.records", "kafka.key.serializer", "kafka.security.protocol", "kafka.group.instance.id"]
    settings = settings_from({**PLAIN, **dict.fromkeys(names, "x"), "groupIdPrefix": "y"}, "either")
    (warning,) = settings.warnings
    assert all(name in warning for name in [*names, "groupIdPrefix"])
    assert not caplog.records


@pytest.mark.parametrize("option", ["fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs"])
def test_numbers_for_clients_must_be_numbers(option: str) -> None:
    for text in ("abc", "5.0", "", NINES):
        with pytest.raises(ConfigError, match=f"option {option}: must be a whole number"):
            settings_from({**PLAIN, option: text})
    for text in ("0", "-1", "+5"):
        assert len(settings_from({**PLAIN, option: text}, "either").warnings) == 1


def test_trigger_limits_that_contradict_each_other_are_refused() -> None:
    """Spark looks at the two where both are given, also in a batch query."""
    with pytest.raises(ConfigError, match=r"option minOffsetsPerTrigger: .*10.* maxOffsetsPerTrigger.* 5"):
        settings_from({**PLAIN, "minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"})
    with pytest.raises(ConfigError, match="option minOffsetsPerTrigger: must be a whole number"):
        settings_from({**PLAIN, "minOffsetsPerTrigger": "x", "maxOffsetsPerTrigger": "5"})
    with pytest.raises(ConfigError, match="option maxOffsetsPerTrigger: must be a whole number"):
        settings_from({**PLAIN, "minOffsetsPerTrigger": "1", "maxOffsetsPerTrigger": NINES})
    assert settings_from({**PLAIN, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "5"}).warnings
    assert settings_from({**PLAIN, "minOffsetsPerTrigger": "x"}).warnings


@pytest.mark.parametrize("kind", ["Offsets", "OffsetsByTimestamp"])
def test_start_and_end_that_contradict_each_other_fail_at_load(kind: str) -> None:
    start, end = f"starting{kind}", f"ending{kind}"
    with pytest.raises(ConfigError, match=f"option {start}: t-0 would start at .*5, behind its end 4 .{end}."):
        settings_from({**PLAIN, start: '{"t":{"0":5}}', end: '{"t":{"0":4}}'})
    for other in ('{"t":{"1":5}}', '{"u":{"0":5}}', '{"t":{"0":5,"1":5}}', "{}"):
        with pytest.raises(ConfigError, match=f"option {start}: names .*t-0.* but {end} names"):
            settings_from({**PLAIN, start: '{"t":{"0":5}}', end: other})
    assert settings_from({**PLAIN, start: '{"t":{"0":5}}', end: '{"t":{"0":5}}'}).end.value == {("t", 0): 5}
    if kind == "Offsets":
        assert settings_from({**PLAIN, start: '{"t":{"0":5}}', end: '{"t":{"0":-1}}'})
        assert settings_from({**PLAIN, start: '{"t":{"0":-2}}', end: '{"t":{"0":0}}'})


def test_a_hostile_option_fails_at_load_through_spark(spark: SparkSession) -> None:
    for option, text in [("startingOffsets", "{" * DEEP), ("minPartitions", NINES), ("kafka.auto.offset.reset", "latest")]:
        with pytest.raises(AnalysisException, match=f"option {option}: "):
            load(spark, subscribe="g-plain", **{option: text})


# Python values on the direct roads.


def test_an_option_given_twice_in_two_spellings_is_refused() -> None:
    with pytest.raises(ConfigError, match="is given twice"):
        splits(CLEAN_PATH, subscribe="g-plain", startingTimestamp=5, starting_timestamp=6)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"min_partitions": 10**5000}, ConfigError, "min_partitions"),
        ({"starting_timestamp": dt.datetime(2024, 1, 1)}, ConfigError, "starting_timestamp: is a naive datetime"),  # noqa: DTZ001
        ({"starting_offsets": {"t": {0: 10**5000}}}, ConfigError, "starting_?[oO]ffsets"),
        ({"starting_offsets": {("t", 0): 5}}, TypeError, "starting_offsets"),
        ({"assign": {"t": {0}}}, TypeError, "assign"),
        ({"starting_offsets": {"t": {0: float("nan")}}}, ConfigError, "starting_?[oO]ffsets"),
        ({"min_partitions": 1.5}, TypeError, "min_partitions"),
        ({"key_equals": ["\ud800"]}, ConfigError, "keyEquals"),
        ({"slots": 0}, ConfigError, "slots"),
        ({"slots": -4}, ConfigError, "slots"),
    ],
    ids=lambda value: ascii(str(type(value)))[:20] if isinstance(value, dict) else None,
)
def test_python_values_that_cannot_be_used_are_refused(options: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        splits(CLEAN_PATH, **{"subscribe": "g-plain", **options} if "assign" not in options else options)
    assert len(str(caught.value)) < 1000


def test_circular_and_deep_values_are_refused() -> None:
    circle: dict[str, Any] = {}
    circle["t"] = circle
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    for value in (circle, {"t": deep}):
        with pytest.raises(ConfigError, match="starting_offsets"):
            splits(CLEAN_PATH, subscribe="g-plain", starting_offsets=value)
    while isinstance(deep, list):
        # Freed from the outside in: the interpreter would recurse.
        deep = deep.pop()


def test_mappings_of_any_kind_are_taken() -> None:
    offsets = types.MappingProxyType({"g-idem": types.MappingProxyType({0: 1, 1: -2})})
    assert {split.topic for split in splits(CLEAN_PATH, subscribe="g-idem", starting_offsets=offsets)} == {"g-idem"}


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"start_timestamp": 1 << 63}, ConfigError),
        ({"stop_timestamp": -(10**5000)}, ConfigError),
        ({"start_timestamp": "5"}, TypeError),
        ({"start_timestamp": True}, TypeError),
        ({"keys": "abc"}, TypeError),
        ({"keys": ["abc"]}, TypeError),
    ],
    ids=["2^63", "huge", "text", "bool", "str", "list of str"],
)
def test_arguments_of_a_direct_scan_are_checked_by_the_call(
    spark: SparkSession, options: dict[str, Any], kind: type[Exception]
) -> None:
    (name,) = options
    with pytest.raises(kind, match=name):
        offsetlog.spark.scan(spark, CLEAN_PATH, subscribe="g-plain", **options)


def test_a_single_key_will_do(spark: SparkSession) -> None:
    (golden,) = named("g-plain-0")
    key = next(row.key for row in golden.rows if row.key)
    frame = offsetlog.spark.scan(spark, golden.directory, keys=key, columns=["offset"])
    assert sorted(row["offset"] for row in frame.collect()) == [row.offset for row in golden.rows if row.key == key]


@pytest.mark.parametrize("hours", [-14, 0, 14])
def test_times_at_the_ends_of_the_calendar_are_taken(hours: int) -> None:
    zone = dt.timezone(dt.timedelta(hours=hours))
    first, last = dt.datetime.min.replace(tzinfo=zone), dt.datetime.max.replace(tzinfo=zone)
    epoch = dt.datetime.fromtimestamp(0, zone)
    assert splits(CLEAN_PATH, subscribe="g-plain", starting_timestamp=epoch, ending_timestamp=last)
    assert splits(CLEAN_PATH, subscribe="g-plain", ending_timestamp=epoch) == []
    assert splits(CLEAN_PATH, subscribe="g-plain", start_timestamp=first)
    # Options are Kafka's, where some negative numbers are no times.
    for name in ("starting_timestamp", "ending_timestamp"):
        with pytest.raises(ConfigError, match="is a time before 1970, found -62135"):
            splits(CLEAN_PATH, subscribe="g-plain", **{name: first})  # type: ignore[arg-type]  # an option


def test_warnings_of_hostile_names_can_be_written(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        splits(CLEAN_PATH, subscribe="g-plain,\ud800", failOnDataLoss=False)
    for record in caplog.records:
        record.getMessage().encode()
    for warning in settings_from({**PLAIN, "kafka.\ud800": "x", "kafka." + "x" * 100_000: "y"}).warnings:
        warning.encode()
        assert len(warning) < 2000
