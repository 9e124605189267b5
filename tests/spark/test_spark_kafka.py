"""Batch queries beside Spark's own Kafka connector: one broker, which serves the golden topics, and its log dir.

Every topic whole, and random combinations of options, those that are refused among them.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyspark
import pytest
from golden import CLEAN_LOG_DIRS, CLEAN_PARTITIONS, Golden
from programs import last_line
from test_spark_stream_kafka import BROKER, CONNECTOR, JARS, CheckpointingBroker

from broker import adopt

pytestmark = pytest.mark.skipif(
    not pyspark.__version__.startswith(f"{CONNECTOR}."),
    reason=f"Spark's Kafka connector is for PySpark {CONNECTOR}: make test-spark40",
)

PROGRAM = Path(__file__).with_name("batch_beside_kafka.py")
SEED = int(os.environ.get("OFFSETLOG_SEED") or 40)
COMBINATIONS = 200 if os.environ.get("OFFSETLOG_WHOLE_MATRIX") else 60
# What Spark's source takes for an empty range, and what it does not look at (docs/spark.md).
STRICTER = re.compile(r"would start at offset \d+, behind its end|found -7")
# What waits for its deletion no broker serves.
PARTITIONS = [golden for golden in CLEAN_PARTITIONS if not golden.topic.startswith("__") and not golden.name.endswith("-delete")]
TOPICS = sorted({golden.topic for golden in PARTITIONS})
SMALL = [topic for topic in TOPICS if sum(len(golden.rows) for golden in PARTITIONS if golden.topic == topic) < 600]


def of(topics: Iterable[str]) -> list[Golden]:
    wanted = set(topics)
    return [golden for golden in PARTITIONS if golden.topic in wanted]


def drawn(draw: random.Random) -> dict[str, str]:
    """Options of one query."""
    topics = sorted(draw.sample(SMALL, draw.choice((1, 1, 2, 3))))
    chosen = of(topics)
    options: dict[str, str] = {}
    match draw.randrange(4):
        case 0 | 1:
            options["subscribe"] = ",".join(topics)
        case 2:
            options["subscribePattern"] = "|".join(f"^{topic.replace('.', '[.]')}$" for topic in topics)
        case 3:
            chosen = draw.sample(chosen, draw.randint(1, len(chosen)))
            options["assign"] = by_topic({golden: golden.partition for golden in chosen}, as_list=True)
    _start(draw, options, chosen)
    _end(draw, options, chosen)
    for name, choices in {
        "includeHeaders": ("true", "false"),
        "kafka.isolation.level": ("read_committed", "read_uncommitted"),
        "failOnDataLoss": ("false", "true"),
        "minPartitions": ("1", "3", "9"),
        "maxRecordsPerPartition": ("1000", "50"),
    }.items():
        if draw.random() < 0.3:
            options[name] = draw.choice(choices)
    if draw.random() < 0.08:
        wrong = {
            "minPartitions": "few",
            "startingOffsets": "newest",
            "assign": "[]",
            "endingTimestamp": "noon",
            "includeHeaders": "perhaps",
        }
        name = draw.choice(list(wrong))
        options[name] = wrong[name]
    return options


def offsets(draw: random.Random, chosen: list[Golden], words: tuple[int, ...]) -> str:
    """An offset for each partition; now and then not for all, or one that the log does not hold."""
    found = {}
    for golden in chosen:
        found[golden] = draw.choice((draw.randint(golden.start, golden.end), draw.randint(golden.start, golden.end), *words))
    if draw.random() < 0.1:
        found[draw.choice(chosen)] = draw.choice((golden_end(chosen) + 1000, -7))
    if len(found) > 1 and draw.random() < 0.1:
        del found[draw.choice(chosen)]
    return by_topic(found)


def golden_end(chosen: list[Golden]) -> int:
    return max(golden.end for golden in chosen)


def times(draw: random.Random, chosen: list[Golden]) -> dict[Golden, int]:
    """A time of some record for each partition, or one before or behind all."""
    found = {}
    for golden in chosen:
        at = draw.choice(golden.rows).timestamp if golden.rows else 1_700_000_000_000
        found[golden] = max(0, at + draw.choice((0, 0, 1, -1, -(10**10), 10**10)))
    return found


def _start(draw: random.Random, options: dict[str, str], chosen: list[Golden]) -> None:
    match draw.randrange(6):
        case 0:
            options["startingOffsets"] = draw.choice(("earliest", "EARLIEST", "latest"))
        case 1 | 2:
            options["startingOffsets"] = offsets(draw, chosen, (-2, -2, -1))
        case 3:
            options["startingTimestamp"] = str(next(iter(times(draw, chosen).values())))
        case 4:
            options["startingOffsetsByTimestamp"] = by_topic(times(draw, chosen))
    if draw.random() < 0.3:
        options["startingOffsetsByTimestampStrategy"] = draw.choice(("latest", "error"))


def _end(draw: random.Random, options: dict[str, str], chosen: list[Golden]) -> None:
    match draw.randrange(6):
        case 0:
            options["endingOffsets"] = draw.choice(("latest", "earliest"))
        case 1 | 2:
            options["endingOffsets"] = offsets(draw, chosen, (-1, -1, -2))
        case 3:
            options["endingTimestamp"] = str(next(iter(times(draw, chosen).values())))
        case 4:
            options["endingOffsetsByTimestamp"] = by_topic(times(draw, chosen))


def by_topic(values: Mapping[Golden, int], *, as_list: bool = False) -> str:
    """The JSON of Spark's Kafka source."""
    found: dict[str, Any] = {}
    for golden, value in values.items():
        if as_list:
            found.setdefault(golden.topic, []).append(value)
        else:
            found.setdefault(golden.topic, {})[str(golden.partition)] = value
    return json.dumps(found)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both said of each query."""
    print(f"OFFSETLOG_SEED={SEED}")
    folder = tmp_path_factory.mktemp("beside")
    if not (JARS / ".complete").exists():
        raise FileNotFoundError(f"{JARS} is not complete: run `make test-spark40`")
    broker = CheckpointingBroker(BROKER, folder / "broker")
    broker.format()
    # One that has lost a directory gets it back, empty.
    wanted = {topic: 1 + max(golden.partition for golden in of([topic])) for topic in TOPICS}
    (folder / "topics.json").write_text(json.dumps(wanted), encoding="utf-8")
    with broker.running():
        last_line(PROGRAM, "create", broker.address, broker.log_dir, folder, JARS, folder / "topics.json", folder=folder)
        wait_for(
            [broker.log_dir / f"{topic}-{number}" / "partition.metadata" for topic, count in wanted.items() for number in range(count)]
        )
    for golden in PARTITIONS:
        adopt(golden.directory, broker.log_dir, broker.log_dir / golden.name)
    starts = [(golden.topic, golden.partition, golden.start) for golden in PARTITIONS if golden.start > 0]
    lines = "".join(f"{topic} {partition} {start}\n" for topic, partition, start in starts)
    (broker.log_dir / "log-start-offset-checkpoint").write_text(f"0\n{len(starts)}\n{lines}", encoding="ascii")
    draw = random.Random(SEED)
    queries = [{"subscribe": topic, "includeHeaders": "true"} for topic in TOPICS] + [drawn(draw) for _ in range(COMBINATIONS)]
    (folder / "queries.json").write_text(json.dumps(queries), encoding="utf-8")
    with broker.running():
        # At another address than before.
        said = last_line(PROGRAM, "compare", broker.address, broker.log_dir, folder, JARS, folder / "queries.json", folder=folder)
    found: list[dict[str, Any]] = json.loads(said)
    return found


def wait_for(files: list[Path]) -> None:
    """A broker makes the directories of its topics when it hears of them."""
    end = time.monotonic() + 300
    while missing := [path for path in files if not path.exists()]:
        assert time.monotonic() < end, missing[:3]
        time.sleep(0.1)


def test_every_topic_is_the_same(told: list[dict[str, Any]]) -> None:
    assert len(CLEAN_LOG_DIRS) == 2
    for one in told[: len(TOPICS)]:
        assert one["refused"] == {"kafka": False, "offsetlog": False}, one
        assert one["difference"] is None, one
        assert one["rows"] == sum(len(golden.rows) for golden in of([one["options"]["subscribe"]])), one["options"]


def test_random_options_give_the_same(told: list[dict[str, Any]]) -> None:
    """The same rows, or both refuse."""
    tried = told[len(TOPICS) :]
    stricter = [one for one in tried if not one["refused"]["kafka"] and STRICTER.search(one["texts"].get("offsetlog", ""))]
    unlike = [one for one in tried if one["refused"]["kafka"] != one["refused"]["offsetlog"] or one["difference"] is not None]
    unlike = [one for one in unlike if one not in stricter]
    assert not unlike, json.dumps(unlike, indent=1)
    assert stricter
    assert len(tried) == COMBINATIONS
    assert sum(one["refused"]["kafka"] for one in tried) > COMBINATIONS / 10
    assert sum(one["rows"] > 0 for one in tried) > COMBINATIONS * 3 / 10
