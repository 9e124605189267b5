"""Stopped brokers take restored topics that their cluster has, empty, by its metadata. By the directories alone: `test_restored_retention.py`."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from clients import Admin, Writer
from restoring import (
    AFTERWARDS,
    BUSY,
    KILLED,
    READABLE,
    SOURCES,
    Case,
    CleanStarts,
    WrittenFiles,
    cases,
    check_damaged,
    check_rows,
    check_that_groups_go_on,
    clock_of,
    committed_offsets,
    expected_commits,
    is_compacted,
    known_of,
    let_two_hours_pass,
    with_log_dirs,
)
from test_groups_beside_kafka import reset
from test_lag_beside_kafka import TOOLS

from broker import Broker
from offsetlog import restore


@pytest.mark.parametrize(
    "case",
    cases(
        [
            ("torn", "4.3.0", 2),
            ("live", "3.9.2", 1),
            ("clean", "2.8.2", 2),
        ],
        ("clean", *KILLED, "2.8.2", "torn"),
        ("4.3.0", "3.9.2", "3.9.2-zookeeper", "2.8.2"),
    ),
    ids=lambda case: "-".join(map(str, case)),
)
def test_a_stopped_broker_takes_restored_topics(case: Case, tmp_path: Path, clean_starts: CleanStarts, written: WrittenFiles) -> None:
    """Topics that the cluster has, empty, by its metadata, or ZooKeeper's data; with epochs that it takes."""
    kind, version, count = case
    quiet = {**BUSY, "log.retention.ms": -1}
    broker, log_dirs = with_log_dirs(version, tmp_path / "broker", quiet, count=count)
    sources, known = known_of(kind)
    chosen = {each.source for each in restore(sources, tmp_path / "plan", dry_run=True).partitions}
    partitions = [golden for golden in known if str(golden.directory) in chosen and not golden.topic.startswith("__")]
    topics = Counter(golden.topic for golden in partitions)
    with broker.running(), Admin(broker.address) as admin:
        for topic, number in topics.items():
            admin.create(topic, number, {"cleanup.policy": "compact" if is_compacted(topic) else "delete"})
            admin.leader_epochs(topic)
    metadata = broker.metadata_dir or broker.zookeeper_dir
    assert metadata is not None
    report = restore(sources, log_dirs, topics=list(topics), metadata=metadata)
    # A log that never had a record is what the broker has made itself.
    begun = {golden.name for golden in partitions if golden.end}
    assert {f"{each.topic}-{each.partition}" for each in report.partitions if each.state == "restored"} >= begun
    assert {each.state for each in report.partitions} <= {"restored", "there"}
    assert len(partitions) == len(report.partitions)
    assert kind != "clean" or len(partitions) == len(READABLE)
    written.keep(report)
    commits: dict[tuple[str, str, int], int] = {}

    def check() -> None:
        if kind == "torn":
            check_damaged(broker, report, partitions)
        else:
            # The cluster's epochs are below those of the old one, which are counted anew.
            check_rows(broker, partitions, epochs=False)

    for run in range(3):
        clock = clock_of(broker, tmp_path, "stopped", case) if run == 2 else None
        with broker.running():
            check()
            if run == 0 and kind != "torn":
                topic = "first" if kind == "2.8.2" else "g-plain"
                with Writer(broker.address, topic) as writer:
                    for golden in partitions:
                        if golden.topic == topic:
                            assert writer.send(golden.partition, [AFTERWARDS]) == [golden.end]
            if run == 0 and kind == "clean":
                commits = reset_offsets(broker, tmp_path / "reset.csv")
            if commits:
                commits = check_that_groups_go_on(broker, commits)
            if clock is not None:
                let_two_hours_pass(broker, clock)
                check()
    clean_starts.check_words(broker, [golden.name for golden in partitions])


def reset_offsets(broker: Broker, file: Path) -> dict[tuple[str, str, int], int]:
    """Give the broker what groups of the old cluster had committed, by Kafka's tool and the file that is made for it."""
    command = [sys.executable, "-m", "offsetlog", "groups", *map(str, SOURCES), "--reset-csv"]
    made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert made.returncode == 0, made.stderr
    file.write_text(made.stdout, encoding="utf-8")
    reset(broker, TOOLS[broker.version], made.stderr, file)
    expected = expected_commits()
    assert committed_offsets(broker, {group for group, _, _ in expected}) == expected
    return expected
