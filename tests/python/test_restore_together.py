"""``restore`` into a new cluster beside another one: what each writes into `bootstrap.checkpoint` stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import metadata_records
import pytest
from restoring import SOURCES, formatted, metadata_of, metadata_values, states_of, uuid_bytes
from writing import tree

from offsetlog import Log, LogDirError, LogLockedError, RestoreReport, restore


def large(place: Path, name: str) -> Path:
    """A partition that takes long enough that something happens meanwhile; returns its log dir."""
    with Log.open(place / name, "a") as log:
        for _ in range(40):
            log.append(b"x" * 100_000)
    return place


def topics_of(file: Path) -> list[bytes]:
    """The records of topics in a snapshot."""
    return [value for value in metadata_values(file) if value.startswith(b"\1\2\0")]


def id_of(report: RestoreReport, name: str) -> bytes:
    (topic_id,) = {each.topic_id for each in report.partitions if each.topic == name}
    return uuid_bytes(topic_id or "")


@pytest.mark.parametrize("apart", [False, True])
def test_two_restores_at_once_write_the_topics_of_both(apart: bool, tmp_path: Path) -> None:
    """The second begins and ends while the first copies; also where the file is in a folder of metadata alone."""
    into = formatted(tmp_path / "new")
    metadata = [formatted(tmp_path / "metadata")] if apart else []
    if apart:
        (into / "bootstrap.checkpoint").unlink()
    file = (metadata or [into])[0] / "bootstrap.checkpoint"
    before = metadata_values(file)
    reports: list[RestoreReport] = []

    def meanwhile(*_: object) -> None:
        if not reports:
            reports.append(restore(SOURCES, into, topics="g-epochs", metadata=metadata, new_cluster=True))

    first = restore(large(tmp_path / "old", "orders-0"), into, metadata=metadata, new_cluster=True, progress=meanwhile)
    (second,) = reports
    assert states_of(first) == states_of(second) == {"restored"}
    values = metadata_values(file)
    assert values[: len(before)] == before
    (image,) = (topic for topic in metadata_of(SOURCES).topics if topic.name == "g-epochs")
    of_first, of_second = id_of(first, "orders"), uuid_bytes(image.topic_id or "")
    assert topics_of(file) == [metadata_records.topic("g-epochs", of_second), metadata_records.topic("orders", of_first)]
    partitions = [value[3:23] for value in values if value.startswith(b"\1\3\1")]
    assert sorted(partitions) == sorted([bytes(4) + of_first, *(number.to_bytes(4) + of_second for number in (0, 1))])
    whole = file.read_bytes()
    assert states_of(restore(tmp_path / "old", into, metadata=metadata, new_cluster=True)) == {"there"}
    assert file.read_bytes() == whole


def test_two_topics_of_one_name_are_not_written_as_one(tmp_path: Path) -> None:
    """Each restore drew an id for its half of the topic: the second one to write is refused, and says what to do."""
    into = formatted(tmp_path / "new")
    file = into / "bootstrap.checkpoint"
    with Log.open(tmp_path / "other" / "orders-1", "a") as log:
        log.append(b"value")
    whole: list[bytes] = []

    def meanwhile(*_: object) -> None:
        if not whole:
            assert states_of(restore(tmp_path / "other", into, new_cluster=True)) == {"restored"}
            whole.append(file.read_bytes())

    source = large(tmp_path / "old", "orders-0")
    with pytest.raises(LogDirError, match=r'"orders" has the topic id .*delete the directories.*bootstrap\.checkpoint'):
        restore(source, into, new_cluster=True, progress=meanwhile)
    assert [file.read_bytes()] == whole


def test_a_cluster_that_starts_meanwhile_is_not_written(tmp_path: Path) -> None:
    """Its controllers have read the file by then."""
    into, metadata = formatted(tmp_path / "new"), formatted(tmp_path / "metadata")
    before = (metadata / "bootstrap.checkpoint").read_bytes()

    def meanwhile(*_: object) -> None:
        (metadata / "__cluster_metadata-0").mkdir(exist_ok=True)
        (metadata / "__cluster_metadata-0" / f"{0:020}.log").write_bytes(b"records")

    with pytest.raises(LogDirError, match="has started since the plan was made"):
        restore(large(tmp_path / "old", "orders-0"), into, metadata=metadata, new_cluster=True, progress=meanwhile)
    assert (metadata / "bootstrap.checkpoint").read_bytes() == before


def test_a_controller_that_runs_is_not_written_beside(tmp_path: Path) -> None:
    """It locks the folder of its metadata as a broker locks its log dirs."""
    into, metadata = formatted(tmp_path / "new"), formatted(tmp_path / "metadata")
    (into / "bootstrap.checkpoint").unlink()
    with Log.open(tmp_path / "old" / "orders-0", "a") as log:
        log.append(b"value")
    program = (
        "import fcntl, sys, time\nlock = open(sys.argv[1], 'w')\nfcntl.lockf(lock, fcntl.LOCK_EX)\nprint(flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(metadata / ".lock")], stdout=subprocess.PIPE) as controller:
        try:
            assert controller.stdout is not None
            controller.stdout.readline()
            before = tree(tmp_path)
            with pytest.raises(LogLockedError):
                restore(tmp_path / "old", into, metadata=metadata, new_cluster=True)
            assert tree(tmp_path) == before
        finally:
            controller.kill()
