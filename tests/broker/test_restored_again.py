"""Real brokers take what several calls of ``restore`` wrote into `bootstrap.checkpoint`: of a setting or a partition the last record holds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from clients import Admin, Writer
from cluster_members import MemberBroker, wait_for_isr
from golden import CLEAN, CLEAN_LOG_DIRS
from restoring import (
    AFTERWARDS,
    BUSY,
    IS_WHOLE,
    READABLE,
    SOURCES,
    CleanStarts,
    WrittenFiles,
    check_rows,
    give_log_dirs,
    with_log_dirs,
)
from test_restored import OF_TWO

from broker import broker_of
from conftest import KRAFT
from offsetlog import restore

EPOCHS = [golden for golden in READABLE if golden.topic == "g-epochs"]


@pytest.mark.parametrize("version", KRAFT if IS_WHOLE else KRAFT[:1])
def test_a_disk_and_retention_that_come_later(version: str, tmp_path: Path, clean_starts: CleanStarts, written: WrittenFiles) -> None:
    """The first call has one partition of two and keeps retention; the second has both, and sets it: the brokers serve both, and delete nothing."""
    broker, log_dirs = with_log_dirs(version, tmp_path / "broker", BUSY)
    assert broker.metadata_dir is not None
    disks = []
    for number in (0, 1):
        disks.append(tmp_path / f"disk-{number}")
        disks[number].mkdir()
        shutil.copy(CLEAN_LOG_DIRS[0] / "meta.properties", disks[number])
        shutil.copytree(CLEAN_LOG_DIRS[0] / f"g-epochs-{number}", disks[number] / f"g-epochs-{number}")
    for sources, keeps, expected in ((disks[:1], True, ["restored"]), (disks, False, ["there", "restored"])):
        report = restore(
            [*sources, CLEAN / "metadata-dir"],
            log_dirs,
            topics="g-epochs",
            metadata=broker.metadata_dir,
            broker=broker.properties,
            new_cluster=True,
            keep_retention=keeps,
        )
        assert [each.state for each in report.partitions] == expected
    written.keep(report)
    for run in range(2):
        with broker.running():
            check_rows(broker, EPOCHS)
            with Admin(broker.address) as admin:
                assert admin.settings(["g-epochs"])["g-epochs"]["retention.ms"] == ("-1", "DYNAMIC_TOPIC_CONFIG")
                epochs = admin.leader_epochs("g-epochs")
            assert all(epoch > 4 for epoch in epochs.values())
            with Writer(broker.address, "g-epochs") as writer:
                for golden in EPOCHS:
                    assert writer.send(golden.partition, [AFTERWARDS]) == [golden.end + run]
    clean_starts.check_words(broker, [golden.name for golden in EPOCHS])


@pytest.mark.parametrize("version", KRAFT if IS_WHOLE else KRAFT[1:])
def test_replicas_that_come_later(version: str, tmp_path: Path, clean_starts: CleanStarts, written: WrittenFiles) -> None:
    """One replica each, then two: both are in sync from the start, and when one goes the other has every record."""
    first = broker_of(version, tmp_path / "first")
    second = MemberBroker(first, tmp_path / "second", 2)
    log_dirs = [place for broker in (first, second) for place in give_log_dirs(broker, BUSY)]
    assert first.metadata_dir is not None
    for factor in (1, 2):
        report = restore(
            SOURCES,
            log_dirs,
            topics="g-epochs",
            metadata=first.metadata_dir,
            broker=first.properties,
            new_cluster=True,
            replication_factor=factor,
        )
        assert {len(each.into) for each in report.partitions} == {factor}
    written.keep(report)
    with first.running():
        with second.running():
            wait_for_isr(first, ["g-epochs"], {1, 2})
            check_rows(first, EPOCHS)
            check_rows(second, EPOCHS)
        assert set(wait_for_isr(first, ["g-epochs"], {1}).values()) == {1}
        check_rows(first, EPOCHS)
    for broker in (first, second):
        clean_starts.check_words(broker, [golden.name for golden in EPOCHS], OF_TWO)
