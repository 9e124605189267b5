"""``restore`` where a partition is in its place already, copied by hand: left only if it is what would be restored, to a broker too."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS
from restoring import formatted, metadata_values, states_of
from test_restore import stopped
from test_restore_together import large
from writing import tree

from offsetlog import Log, RestoreReport, restore

SOURCE = CLEAN_LOG_DIRS[0]
SOURCES = [SOURCE, CLEAN / "metadata-dir"]
OF_CLUSTER = "AQIDBAUGBwgJCgsMDQ4PEA"
"""The id that the topic has in the stopped broker's cluster."""


def copied(name: str, into: Path) -> Path:
    """A partition's directory, as `cp -r` copies it."""
    shutil.rmtree(into / name, ignore_errors=True)
    return Path(shutil.copytree(SOURCE / name, into / name))


def give_id(directory: Path) -> None:
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {OF_CLUSTER}\n")


def reasons(report: RestoreReport) -> dict[str, tuple[str, str]]:
    return {f"{each.topic}-{each.partition}": (each.state, each.reason or "") for each in report.partitions}


def test_a_copy_with_another_topic_id_is_refused(tmp_path: Path) -> None:
    """Its broker would set it aside. The plan says so too; with the cluster's id it is what would be restored."""
    log_dir, metadata = stopped(tmp_path)
    copies = [copied(f"g-epochs-{number}", log_dir) for number in (0, 1)]
    (copies[1] / "partition.metadata").unlink()
    (old,) = {line for line in (copies[0] / "partition.metadata").read_text().splitlines() if line.startswith("topic_id")}
    whole = tree(log_dir)
    for dry_run in (True, False):
        found = reasons(restore(SOURCES, log_dir, metadata=metadata, topics="g-epochs", dry_run=dry_run))
        assert {name: state for name, (state, _) in found.items()} == {"g-epochs-0": "refused", "g-epochs-1": "refused"}
        assert old.removeprefix("topic_id: ") in found["g-epochs-0"][1]
        assert "no partition.metadata" in found["g-epochs-1"][1]
        for name, (_, reason) in found.items():
            assert OF_CLUSTER in reason
            assert f"{log_dir.name}/{name}" in reason
            assert "delete the directory" in reason
    assert {name: told for name, told in tree(log_dir).items() if name not in whole and ".lock" not in name} == {}
    for copy in copies:
        give_id(copy)
    assert states_of(restore(SOURCES, log_dir, metadata=metadata, topics="g-epochs")) == {"there"}


@pytest.mark.parametrize("epoch", [7, 4, 3, 0])
def test_a_copy_with_leader_epochs_that_the_cluster_does_not_take_is_refused(epoch: int, tmp_path: Path) -> None:
    """They go up to 4, and the cluster's leader has an epoch below; the restored partition has epochs that it takes."""
    log_dir, metadata = stopped(tmp_path, epoch=epoch)
    give_id(copied("g-epochs-0", log_dir))
    report = restore(SOURCES, log_dir, metadata=metadata, topics="g-epochs")
    state, reason = reasons(report)["g-epochs-0"]
    if epoch >= 4:
        assert state == "there"
        return
    assert state == "failed"
    assert f"leader epoch 4, which is above {epoch}" in reason
    shutil.rmtree(log_dir / "g-epochs-0")
    assert reasons(restore(SOURCES, log_dir, metadata=metadata, topics="g-epochs"))["g-epochs-0"][0] == "restored"
    with Log.open(log_dir / "g-epochs-0") as log:
        assert max(record.leader_epoch for record in log.scan()) <= epoch


def half_a_batch(directory: Path) -> None:
    with max(directory.glob("*.log")).open("ab") as file:
        file.write(bytes(7) + b"\x3c" + b"\0\0\1\0" + b"torn" * 5)


def zeros(directory: Path) -> None:
    with max(directory.glob("*.log")).open("ab") as file:
        file.write(bytes(300))


def damaged_index(directory: Path) -> None:
    index = min(directory.glob("*.index"))
    index.write_bytes(b"\x7f\xff\xff\xff\x7f\xff\xff\xff")


TAILS: dict[str, Callable[[Path], None]] = {"half a batch": half_a_batch, "zeros": zeros, "an index": damaged_index}


@pytest.mark.parametrize("what", TAILS)
@pytest.mark.parametrize("is_marked", [False, True])
def test_a_copy_that_a_broker_would_recover_is_not_marked_as_clean(what: str, is_marked: bool, tmp_path: Path) -> None:
    """Refused, with the directory and what to do, and no topic is written; without what is wrong it is left, and marked."""
    into = formatted(tmp_path / "new")
    if is_marked:
        restore(SOURCES, into, topics="g-appendtime", new_cluster=True)
    copy = copied("g-epochs-0", into)
    TAILS[what](copy)
    mark, values = into / ".kafka_cleanshutdown", metadata_values(into / "bootstrap.checkpoint")
    report = restore(SOURCES, into, topics="g-epochs", new_cluster=True)
    state, reason = reasons(report)["g-epochs-0"]
    assert state == "failed"
    assert f"{into.name}/{copy.name}" in reason
    assert "elete the directory" in reason
    assert ("offsetlog recover" in reason) == (what != "an index")
    assert mark.exists() == is_marked
    assert metadata_values(into / "bootstrap.checkpoint") == values
    assert report.has_losses
    copied("g-epochs-0", into)
    assert states_of(restore(SOURCES, into, topics="g-epochs", new_cluster=True)) == {"there"}
    assert mark.exists()


def test_a_mark_that_is_taken_away_for_the_time_being_counts(tmp_path: Path) -> None:
    """While another partition of the log dir is restored it is not there, and it comes back at the end."""
    into = formatted(tmp_path / "new")
    restore(SOURCES, into, topics="g-appendtime", new_cluster=True)
    damaged_index(copied("g-epochs-1", into))
    report = restore(SOURCES, into, topics="g-epochs", new_cluster=True)
    assert [each.state for each in report.partitions] == ["restored", "failed"]
    assert (into / ".kafka_cleanshutdown").exists()


def test_partitions_that_come_meanwhile_are_not_marked_as_clean(tmp_path: Path) -> None:
    """Somebody copies another topic into the log dir while it is filled: nobody knows how that one ended."""
    into = formatted(tmp_path / "new")

    def meanwhile(*_: object) -> None:
        copied("g-compact-0", into)

    report = restore(large(tmp_path / "old", "orders-0"), into, new_cluster=True, progress=meanwhile)
    assert states_of(report) == {"restored"}
    assert (into / "g-compact-0").exists()
    assert not (into / ".kafka_cleanshutdown").exists()


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({}, ""),
    "another producer": ({"producer_id": 6}, "another producer id: 6, and not 5"),
    "another producer epoch": ({"producer_epoch": 1}, "another producer epoch: 1, and not 0"),
    "another sequence": ({"base_sequence": 3}, "another sequence"),
    "of no transaction": ({"transactional": False}, "another kind: one of no transaction, and not one of a transaction"),
    "of no producer": (
        {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "transactional": False},
        "another producer id: -1, and not 5",
    ),
    "another leader epoch": ({"leader_epoch": 1}, "leader epoch"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_a_broker_knows_of_a_record_is_compared_too(what: str, tmp_path: Path) -> None:
    """Producer, transaction and leader epoch: the same records without them would be another history."""
    changes, told = CHANGES[what]
    had: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "transactional": True, "leader_epoch": 0}
    for place, how in (("old", had), ("new", {**had, **changes})):
        with Log.open(tmp_path / place / "orders-0", "a", clock=lambda: 1_700_000_000_000) as log:
            given = {name: value for name, value in how.items() if value != -1}
            log.append_records([b"a", b"b"], **given)
    whole = (tmp_path / "new" / "orders-0" / f"{0:020}.log").read_bytes()
    (each,) = restore(tmp_path / "old", tmp_path / "new").partitions
    assert each.state == ("failed" if changes else "there")
    assert told in (each.reason or "")
    assert (tmp_path / "new" / "orders-0" / f"{0:020}.log").read_bytes() == whole
