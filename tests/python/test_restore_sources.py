"""``restore`` from sources that do not have all of a topic, or have another one: what it leaves out, says and counts as missing."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

import metadata_records
import pytest
from golden import CLEAN_LOG_DIRS, named
from restoring import SOURCES, formatted, metadata_values, states_of
from writing import values

from offsetlog import Log, LogDir, restore
from offsetlog._offsetlog import run_cli

OTHER_ID = "AQIDBAUGBwgJCgsMDQ4PEA"
TIERED = {
    "local.retention.bytes": "1000000",
    "local.retention.ms": "1000",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
}
"""What says nothing of a topic without remote storage."""


def exit_code(streams: pytest.CaptureFixture[str], *words: object) -> int:
    found = run_cli(["offsetlog", "restore", *map(str, words)], [])
    streams.readouterr()
    return found


def log_dir_of(place: Path, *names: str) -> Path:
    """Some of a real broker's partitions, and its `meta.properties`."""
    place.mkdir(parents=True)
    shutil.copy(CLEAN_LOG_DIRS[0] / "meta.properties", place)
    for name in names:
        shutil.copytree(CLEAN_LOG_DIRS[0] / name, place / name)
    return place


def id_bytes(topic_id: str | None) -> bytes:
    assert topic_id is not None
    return base64.urlsafe_b64decode(topic_id + "==")


def give_id(directory: Path, topic_id: str = OTHER_ID) -> None:
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")


def test_a_topic_of_two_ids_is_missing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nobody chose to do without it."""
    source = log_dir_of(tmp_path / "old", "g-epochs-0", "g-epochs-1", "g-plain-0")
    give_id(source / "g-epochs-1")
    report = restore(source, tmp_path / "a", topics=["g-epochs", "g-plain"])
    assert [each.name for each in report.left_out] == ["g-epochs"]
    assert report.has_losses
    assert [(each.topic, each.state) for each in report.partitions] == [("g-plain", "restored")]
    assert exit_code(capfd, source, "--into", tmp_path / "b") == 3
    assert exit_code(capfd, source, "--into", tmp_path / "c", "-t", "g-epochs") == 3
    assert exit_code(capfd, source, "--into", tmp_path / "d", "-t", "g-plain") == 0


def test_a_deleted_topic_that_is_named_is_missing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Left out as the metadata does not have it; a pattern, or no name at all, does not mean it if the metadata says that it was deleted."""
    source = log_dir_of(tmp_path / "old", "g-plain-0")
    shutil.copytree(CLEAN_LOG_DIRS[0] / "g-epochs-0", source / "g-gone-0")
    with LogDir.open(source) as logs:
        plain, gone = (id_bytes(logs.log(name, 0).topic_id) for name in ("g-plain", "g-gone"))
    known = [metadata_records.topic("g-plain", plain), metadata_records.partition(plain, 0, [1])]
    ended = [metadata_records.topic("g-gone", gone), metadata_records.partition(gone, 0, [1]), metadata_records.removal(gone)]
    for name, records, code in (("deleted", known + ended, 0), ("older", known, 3)):
        words = (source, metadata_records.write(tmp_path / name, records), "--into", tmp_path / "new", "-n")
        assert exit_code(capfd, *words, "-t", "g-plain", "-t", "g-gon*") == code, name
        assert exit_code(capfd, *words) == code, name
        assert exit_code(capfd, *words, "-t", "g-plain", "-t", "g-gone") == 3
        assert exit_code(capfd, *words, "-t", "g-gone") == 3


def test_topics_are_not_called_written_when_they_are_not(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Where all are left out, and where a partition fails."""
    source = log_dir_of(tmp_path / "old", "g-epochs-0", "g-epochs-1", "g-plain-0")
    give_id(source / "g-epochs-1")
    into = formatted(tmp_path / "new")
    before = (into / "bootstrap.checkpoint").read_bytes()
    for topic, code, is_written in (("g-epochs", 3, False), ("g-plain", 0, True)):
        assert run_cli(["offsetlog", "restore", str(source), "--into", str(into), "--new-cluster", "-t", topic], []) == code
        assert ("topics written: " in capfd.readouterr().out) == is_written
        assert ((into / "bootstrap.checkpoint").read_bytes() != before) == is_written
    (source / "g-plain-0").rename(source / "aside")
    ((source / "g-plain-0") / f"{0:020}.log").mkdir(parents=True)
    into = formatted(tmp_path / "other")
    assert run_cli(["offsetlog", "restore", str(source), "--into", str(into), "--new-cluster", "-t", "g-plain"], []) == 2
    assert "topics written: " not in capfd.readouterr().out
    assert (into / "bootstrap.checkpoint").read_bytes() == before


@pytest.mark.parametrize("new_cluster", [False, True])
def test_directories_of_an_earlier_topic_are_not_the_one_of_the_metadata(
    new_cluster: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The broker was down while the topic was deleted and created again. Without the metadata the earlier one comes back as what it is."""
    source = log_dir_of(tmp_path / "old", "g-epochs-0", "g-epochs-1", "g-plain-0", "g-plain-2")
    for number in (0, 1):
        give_id(source / f"g-epochs-{number}")
    into = formatted(tmp_path / "new") if new_cluster else tmp_path / "new"
    topics = ["g-epochs", "g-plain"]
    report = restore([source, SOURCES[2]], into, topics=topics, new_cluster=new_cluster, dry_run=True)
    assert {each.topic for each in report.partitions} == {"g-plain"}
    ((name, reason),) = report.left_out
    assert name == "g-epochs"
    assert OTHER_ID in reason
    assert "without the metadata" in reason
    assert report.has_losses
    assert exit_code(capfd, source, SOURCES[2], "--into", into, "-t", "g-epochs", *(["--new-cluster"] * new_cluster)) == 3
    alone = restore(source, tmp_path / "alone", topics="g-epochs")
    assert ({each.topic_id for each in alone.partitions}, states_of(alone)) == ({OTHER_ID}, {"restored"})


def test_one_directory_of_an_earlier_topic_is_no_replica(tmp_path: Path) -> None:
    source = log_dir_of(tmp_path / "old", "g-epochs-0", "g-epochs-1")
    give_id(source / "g-epochs-1")
    report = restore([source, SOURCES[2]], tmp_path / "new", topics="g-epochs", dry_run=True)
    assert ([each.partition for each in report.partitions], report.missing) == ([0], (("g-epochs", 1),))
    assert any(str(source / "g-epochs-1") in warning for warning in report.warnings)


def of_cluster(place: Path, cluster: str | None, count: int, *, topic_id: str | None = None) -> Path:
    """A log dir with `orders-0`, as a broker before 2.8 has it unless it has a topic id."""
    with Log.open(place / "orders-0", "a") as log:
        for number in range(count):
            log.append(f"{cluster} {number}".encode())
    for name in ("partition.metadata", ".offsetlog.config"):
        (place / "orders-0" / name).unlink(missing_ok=True)
    if topic_id is not None:
        give_id(place / "orders-0", topic_id)
    if cluster is not None:
        (place / "meta.properties").write_text(f"version=0\nbroker.id=1\ncluster.id={cluster}\n")
    return place


@pytest.mark.parametrize(
    ("ids", "is_told"),
    [((None, None), True), ((None, OTHER_ID), True), ((OTHER_ID, OTHER_ID), False)],
    ids=["none", "one", "both"],
)
def test_topics_of_two_clusters_are_not_replicas(
    ids: tuple[str | None, str | None], is_told: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The shorter one's records would be gone. Where both have the topic's id, they are: a cluster that was restored has a new cluster.id."""
    sources = [
        of_cluster(tmp_path / name, name, count, topic_id=ids[slot]) for slot, (name, count) in enumerate((("A", 30), ("B", 20)))
    ]
    report = restore(sources, tmp_path / "new")
    assert exit_code(capfd, *sources, "--into", tmp_path / "again") == (3 if is_told else 0)
    if is_told:
        ((name, reason),) = report.left_out
        assert (name, report.partitions, report.has_losses) == ("orders", (), True)
        assert "A and B" in reason
    else:
        assert ([each.records for each in report.partitions], report.has_losses) == ([30], False)
    # Of bare directories nobody knows the cluster.
    report = restore([sources[0], of_cluster(tmp_path / "bare", None, 10, topic_id=ids[0])], tmp_path / "third")
    assert [each.records for each in report.partitions] == [30]


def test_records_before_the_first_segment_are_missing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The log begins before it, by the broker's checkpoint: they are in remote storage, or a segment is lost."""
    (golden,) = named("g-plain-0")
    source = log_dir_of(tmp_path / "old", "g-plain-0")
    first, second, *_ = sorted((source / "g-plain-0").glob("*.log"))
    start = int(second.stem)
    for path in (source / "g-plain-0").glob(f"{first.stem}.*"):
        path.unlink()
    # Retention did this, by all that is known.
    report = restore(source, tmp_path / "a")
    assert (report.has_losses, report.warnings) == (False, ())
    (source / "log-start-offset-checkpoint").write_text("0\n1\ng-plain 0 0\n")
    report = restore(source, tmp_path / "b")
    assert report.has_losses
    (warning,) = report.warnings
    assert warning.startswith(f"g-plain-0: offsets 0 to {start - 1} are not restored")
    with Log.open(report.partitions[0].into[0].path) as log:
        assert values(log) == [seen.value for seen in golden.rows if seen.offset >= start]
    assert exit_code(capfd, source, "--into", tmp_path / "c") == 3
    assert exit_code(capfd, source, "--into", tmp_path / "d", "-n") == 3
    # Records that were deleted are in the segments, and the checkpoint is above.
    (source / "log-start-offset-checkpoint").write_text(f"0\n1\ng-plain 0 {start + 1}\n")
    assert not restore(source, tmp_path / "e").has_losses


@pytest.mark.parametrize("enabled", ["true", "TRUE", " True "])
def test_a_tiered_topic_may_have_more_than_its_segments(enabled: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its directory alone does not say where it begins. Kafka reads the setting in any case."""
    topic_id = bytes(range(1, 17))
    body = [
        metadata_records.topic("orders", topic_id),
        metadata_records.partition(topic_id, 0, (1,)),
        metadata_records.config("topic", "orders", "remote.storage.enable", enabled),
        *(metadata_records.config("topic", "orders", name, value) for name, value in TIERED.items()),
        metadata_records.config("topic", "orders", "retention.ms", "-1"),
    ]
    metadata = metadata_records.write(tmp_path / "metadata", body)
    with Log.open(tmp_path / "old" / "orders-0", "a", config={"segment.bytes": 1 << 20}) as log:
        log.append(b"first")
        log.roll()
        log.append(b"second")
    for path in (tmp_path / "old" / "orders-0").glob(f"{0:020}.*"):
        path.unlink()
    report = restore([tmp_path / "old" / "orders-0", metadata], tmp_path / "new")
    assert report.has_losses
    assert any("records before offset 1 may be in remote storage" in warning for warning in report.warnings)
    with Log.open(tmp_path / "new" / "orders-0") as restored:
        assert values(restored) == [b"second"]
    # A new cluster need not have tiered storage.
    into = formatted(tmp_path / "cluster")
    assert exit_code(capfd, tmp_path / "old" / "orders-0", metadata, "--into", into, "--new-cluster") == 3
    told = b"".join(metadata_values(into / "bootstrap.checkpoint"))
    assert b"retention.ms" in told
    for name in ("remote.storage.enable", *TIERED):
        assert name.encode() not in told


@pytest.mark.parametrize("name", ["log-start-offset-checkpoint", "replication-offset-checkpoint"])
def test_a_checkpoint_that_cannot_be_read_is_told(tmp_path: Path, name: str) -> None:
    """Without it nobody knows which records were deleted, or whether the end of the log is lost."""
    (golden,) = named("g-deleted-prefix-0")
    golden.copy(tmp_path / "old")
    (tmp_path / "old" / name).write_bytes(b"\xff")
    report = restore(tmp_path / "old", tmp_path / "new")
    (warning,) = [each for each in report.warnings if name in each]
    assert warning.startswith(f"{golden.name}: ignored: ")
