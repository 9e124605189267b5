"""Restored topics lose in a broker what is due, and no more; what ``restore`` keeps from deletion stays until its command is run.

Into a stopped broker nothing can be set: what is told of its retention keeps the records, with the cluster's metadata and without it.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import metadata_records as records
import pytest
from broker_words import check_alarms
from clients import Admin, ReaderOfAll
from restoring import BUSY, HOUR, IS_WHOLE, SECONDS, CleanStarts, WrittenFiles, with_log_dirs, with_moved_clock
from test_cluster_again import PROGRAMS

from broker import Broker, java, run as execute
from conftest import KRAFT
from kafka import TopicPartition
from offsetlog import Log, restore

RETENTION_HOURS = 10
AGES: dict[str, Sequence[int]] = {"young": (9, 6, 3, 0), "due": (30, 12, 9, 0)}
"""Of three records each, in hours. Of `due` a broker would delete some at once."""
IDS = {"young": bytes(range(1, 17)), "due": bytes(range(2, 18))}
RECORDS = 3
ROUNDS_SECONDS = 2
"""Retention looks every half second."""


def old_cluster(place: Path) -> list[Path]:
    """A log dir, and metadata in which both topics have the same retention, and segments of an hour."""
    now = int(1000 * time.time())
    for topic, ages in AGES.items():
        with Log.open(place / "logs" / f"{topic}-0", "a") as log:
            for age in ages:
                for number in range(RECORDS):
                    log.append(f"{age} {number}".encode(), timestamp=now - 1000 * HOUR * age)
        (place / "logs" / f"{topic}-0" / ".offsetlog.config").unlink()
    settings = {"cleanup.policy": "delete", "retention.ms": str(1000 * HOUR * RETENTION_HOURS), "segment.ms": str(1000 * HOUR)}
    values = [value for topic, raw in IDS.items() for value in (records.topic(topic, raw), records.partition(raw, 0, (1,)))]
    values += [records.config("topic", topic, key, value) for topic in IDS for key, value in settings.items()]
    return [place / "logs", records.write(place / "metadata", values)]


def ages_left(broker: Broker) -> dict[str, list[bytes | None]]:
    with ReaderOfAll(broker.address, [TopicPartition(topic, 0) for topic in AGES], "read_committed") as reader:
        return {at.topic: [row.value for row in rows] for at, rows in reader.everything().items()}


def check_left(broker: Broker, expected: Mapping[str, Sequence[int]]) -> None:
    """Exactly the records of these ages stay, whatever retention does from then on."""
    wanted = {topic: [f"{age} {number}".encode() for age in ages for number in range(RECORDS)] for topic, ages in expected.items()}
    end = time.monotonic() + SECONDS
    while (left := ages_left(broker)) != wanted:
        assert all(len(left[topic]) >= len(values) for topic, values in wanted.items()), left
        assert time.monotonic() < end, left
        time.sleep(0.2)
    time.sleep(ROUNDS_SECONDS)
    assert ages_left(broker) == wanted
    with ReaderOfAll(broker.address, [TopicPartition(topic, 0) for topic in AGES], "read_committed") as reader:
        ranges = {at.topic: found for at, found in reader.ranges().items()}
    for topic, ages in AGES.items():
        assert ranges[topic] == ((len(ages) - len(expected[topic])) * RECORDS, len(ages) * RECORDS)


@pytest.mark.parametrize("version", KRAFT if IS_WHOLE else KRAFT[1:])
def test_what_is_due_is_deleted_and_no_more(version: str, tmp_path: Path, clean_starts: CleanStarts, written: WrittenFiles) -> None:
    """By a moved clock. `due` is kept by the new cluster's first setting, until the command that was told gives it its own again."""
    broker, log_dirs = with_log_dirs(version, tmp_path / "broker", BUSY)
    assert broker.metadata_dir is not None
    report = restore(old_cluster(tmp_path / "old"), log_dirs, metadata=broker.metadata_dir, broker=broker.properties, new_cluster=True)
    assert [(each.topic, each.state) for each in report.partitions] == [("due", "restored"), ("young", "restored")]
    written.keep(report)
    told = [shlex.split(command) for each in report.remaining for command in each.commands if "retention" in command]
    (words,) = told
    assert "due" in words
    clock = with_moved_clock(broker, tmp_path)
    own = str(1000 * HOUR * RETENTION_HOURS)
    with broker.running():
        with Admin(broker.address) as admin:
            held = admin.settings(list(AGES))
        assert {topic: values["retention.ms"][0] for topic, values in held.items()} == {"young": own, "due": "-1"}
        check_left(broker, AGES)
        clock.move(2 * HOUR)
        check_left(broker, {"young": (6, 3, 0), "due": AGES["due"]})
        execute(java(version, PROGRAMS[words[0]], *(broker.address if word == "localhost:9092" else word for word in words[1:])))
        check_left(broker, {"young": (6, 3, 0), "due": (0,)})
        with Admin(broker.address) as admin:
            assert admin.settings(["due"])["due"]["retention.ms"] == (own, "DYNAMIC_TOPIC_CONFIG")
        clock.move(6 * HOUR)
        check_left(broker, {"young": (3, 0), "due": (0,)})
    with broker.running():
        check_left(broker, {"young": (3, 0), "due": (0,)})
    check_alarms(broker, clean_starts.warnings(broker))


OWN = {"retention.ms": str(1000 * HOUR * RETENTION_HOURS), "segment.ms": str(1000 * HOUR)}
DELAY_SECONDS = 60


@pytest.mark.parametrize("knows", [True, False], ids=["metadata", "directories"])
@pytest.mark.parametrize("version", KRAFT if IS_WHOLE else KRAFT[:1])
def test_what_is_told_of_a_stopped_brokers_retention_keeps_all(
    version: str, knows: bool, tmp_path: Path, clean_starts: CleanStarts, written: WrittenFiles
) -> None:
    """The topics have their own retention, and `server.properties` none. Without metadata the empty directories tell what is here, and no more."""
    broker, log_dirs = with_log_dirs(version, tmp_path / "broker", {**BUSY, "log.retention.ms": -1})
    assert broker.metadata_dir is not None
    with broker.running(), Admin(broker.address) as admin:
        for topic in AGES:
            admin.create(topic, 1, OWN)
            admin.leader_epochs(topic)
    # As is told: the first round comes later.
    broker.settings = {**broker.settings, "log.initial.task.delay.ms": 1000 * DELAY_SECONDS}
    sources = old_cluster(tmp_path / "old")
    report = restore(sources, log_dirs, metadata=broker.metadata_dir if knows else (), broker=broker.properties)
    assert [(each.topic, each.state) for each in report.partitions] == [("due", "restored"), ("young", "restored")]
    written.keep(report)
    told = [shlex.split(command) for each in report.remaining for command in each.commands if "-1" in command]
    # Of what is known nothing of the young topic is due.
    assert {words[words.index("--entity-name") + 1] for words in told} == ({"due"} if knows else set(AGES))
    assert all(
        "log.initial.task.delay.ms" in each.reason for each in report.remaining if any("-1" in words for words in each.commands)
    )
    clock = with_moved_clock(broker, tmp_path)
    with broker.running():
        for words in told:
            execute(java(version, PROGRAMS[words[0]], *(broker.address if word == "localhost:9092" else word for word in words[1:])))
        check_left(broker, AGES)
    # From the next start on its rounds are as before.
    broker.settings = {**broker.settings, "log.initial.task.delay.ms": BUSY["log.initial.task.delay.ms"]}
    with broker.running():
        check_left(broker, AGES)
        clock.move(2 * HOUR)
        check_left(broker, {"young": (6, 3, 0) if knows else AGES["young"], "due": AGES["due"]})
    check_alarms(broker, clean_starts.warnings(broker))


@pytest.mark.parametrize("version", KRAFT if IS_WHOLE else KRAFT[:1])
def test_a_topic_that_a_stopped_broker_has_no_directory_of_is_refused(version: str, tmp_path: Path) -> None:
    """Without the cluster's metadata, which would say whose it is. Nothing is written, and the broker starts as before."""
    broker, log_dirs = with_log_dirs(version, tmp_path / "broker", BUSY)
    with broker.running(), Admin(broker.address) as admin:
        admin.create("young", 1, OWN)
        admin.leader_epochs("young")
    report = restore(old_cluster(tmp_path / "old"), log_dirs)
    states = {each.topic: each.state for each in report.partitions}
    assert states == {"due": "refused", "young": "restored"}
    assert not any((log_dir / "due-0").exists() for log_dir in log_dirs)
    with broker.running():
        with ReaderOfAll(broker.address, [TopicPartition("young", 0)], "read_committed") as reader:
            (rows,) = reader.everything().values()
        assert [row.value for row in rows] == [f"{age} {number}".encode() for age in AGES["young"] for number in range(RECORDS)]
