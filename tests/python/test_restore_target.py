"""``restore`` into a stopped broker: what is odd about its metadata and its directories is told, or refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import metadata_records as records
import pytest
from golden import CLEAN, CLEAN_LOG_DIRS
from restoring import states_of
from test_adopt import Place
from test_restore_retention import ID, ID_TEXT, deleting, old, stopped
from test_restore_tiered import source_of
from writing import tree

from offsetlog import Log, LogDir, RestoreReport, adopt, restore

OTHER_SETTING = records.config("topic", "another", "segment.bytes", "1000000")
TOPIC = (records.topic("orders", ID), records.partition(ID, 0, (1,)))


def of_parts(place: Path, first: list[bytes], second: list[bytes], missing: str) -> Path:
    """A metadata log of two segments, of which the first is not there any more, or the second ends in half a batch."""
    records.write(place, first)
    directory = place / f"{records.TOPIC}-0"
    with Log.open(directory, "a", single_replica=True) as log:
        log.roll()
    records.write(place, second)
    one, two = sorted(directory.glob("*.log"))
    if missing == "start":
        for path in directory.glob(f"{one.stem}.*"):
            path.unlink()
    elif missing == "end":
        # A batch as long as the first one, of which the disk has the beginning.
        two.write_bytes(two.read_bytes() + one.read_bytes()[:40])
    return place


def told(report: RestoreReport, words: str) -> list[str]:
    return [warning for warning in report.warnings if words in warning]


@pytest.mark.parametrize("missing", ["nothing", "start", "end"])
def test_settings_that_may_be_in_the_lost_part_of_the_metadata_count_as_unknown(missing: str, tmp_path: Path) -> None:
    log_dir, _ = stopped(tmp_path)
    (tmp_path / "server.properties").write_text("log.retention.ms=-1\nlog.retention.bytes=-1\n")
    metadata = of_parts(tmp_path / "two", [OTHER_SETTING], list(TOPIC), missing)
    report = restore([old(tmp_path)], [log_dir], metadata=[metadata], broker=tmp_path / "server.properties")
    assert states_of(report) == {"restored"}
    assert bool(told(report, "a part of the cluster's metadata is missing")) == (missing != "nothing")
    assert bool(told(report, "missing")) == (missing != "nothing")
    unknown = [each for each in report.remaining if "nobody knows whether the topic's own retention" in each.reason]
    assert len(unknown) == (missing != "nothing")
    assert not deleting(report) or missing != "nothing"


@pytest.mark.parametrize("missing", ["start", "end"])
@pytest.mark.parametrize("enabled", [None, "true"])
def test_remote_storage_may_be_in_the_lost_part_of_the_metadata(enabled: str | None, missing: str, tmp_path: Path) -> None:
    """A broker that starts with a directory which does not know of the segments there deletes them."""
    log_dir, _ = stopped(tmp_path)
    before = tree(log_dir)
    known = [records.config("topic", "orders", "remote.storage.enable", enabled)] if enabled else []
    metadata = of_parts(tmp_path / "two", [OTHER_SETTING], [*TOPIC, *known], missing)
    source = source_of(tmp_path / "old", local=20, line=0)
    report = restore([source], [log_dir], metadata=[metadata])
    (each,) = report.partitions
    assert each.state == "refused"
    assert ("has remote storage" if enabled else "may have remote storage") in (each.reason or "")
    assert tree(log_dir) == before


@pytest.mark.parametrize("missing", ["start", "end"])
def test_a_topic_may_be_in_the_lost_part_of_the_metadata(missing: str, tmp_path: Path) -> None:
    log_dir, _ = stopped(tmp_path)
    metadata = of_parts(tmp_path / "two", list(TOPIC), [OTHER_SETTING], missing)
    shutil.rmtree(log_dir / "orders-0")
    report = restore([old(tmp_path)], [log_dir], metadata=[metadata])
    (each,) = report.partitions
    if missing == "start":
        assert each.state == "refused"
        assert "of which a part is missing" in (each.reason or "")
    else:
        assert each.state == "restored"


def test_metadata_with_another_id_of_the_topic_is_not_believed(tmp_path: Path) -> None:
    """Another cluster's, or older than the topic: the broker would set aside what is restored."""
    log_dir, own = stopped(tmp_path)
    another = bytes(range(33, 49))
    body = [records.topic("orders", another), *(records.partition(another, number, (1,)) for number in (0, 1))]
    foreign = records.write(tmp_path / "foreign", body)
    with Log.open(tmp_path / "old" / "orders-1", "a") as log:
        log.append(b"of a partition that the log dir does not have")
    before = tree(log_dir)
    report = restore([old(tmp_path)], [log_dir], metadata=[foreign])
    assert states_of(report) == {"refused"}
    for each in report.partitions:
        assert all(words in (each.reason or "") for words in (ID_TEXT, "ISIjJCUmJygpKissLS4vMA", str(log_dir / "orders-0")))
    assert told(report, "which cluster's the metadata is")
    assert tree(log_dir) == before
    (own / "meta.properties").write_text((log_dir / "meta.properties").read_text())
    report = restore([tmp_path / "old"], [log_dir], metadata=[own], ends={("orders", 1): 0})
    assert {each.partition: each.state for each in report.partitions}[0] == "restored"
    assert not told(report, "which cluster's the metadata is")


UUID = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("records_there", [0, 9])
@pytest.mark.parametrize("state", ["stray", "delete", "future"])
def test_other_directories_of_the_partition_are_told(state: str, records_there: int, tmp_path: Path) -> None:
    """A broker goes on with the move of a -future one; the others may have more than what is restored."""
    log_dir, metadata = stopped(tmp_path)
    with Log.open(tmp_path / "orders-0", "a", topic_id=ID_TEXT) as log:
        for _ in range(records_there):
            log.append(b"newer")
    other = Path(shutil.move(tmp_path / "orders-0", log_dir / f"orders-0.{UUID}-{state}"))
    second = shutil.copytree(other, log_dir / f"orders-0.{'1' * 32}-stray")
    before = tree(log_dir)
    report = restore([old(tmp_path)], [log_dir], metadata=[metadata])
    (each,) = report.partitions
    assert len(told(report, str(second))) == 1
    offsets = "offsets 0 to 8" if records_there else "without records"
    if state == "future" and records_there:
        assert each.state == "refused"
        assert f"{other} ({offsets})" in (each.reason or "")
        assert tree(log_dir) == before
    else:
        assert each.state == "restored"
        (warning,) = told(report, str(other))
        assert f"orders-0: {other} ({offsets})" in warning
        assert "offsetlog adopt" in warning
        assert other.exists()


def test_directories_of_other_partitions_are_not(tmp_path: Path) -> None:
    log_dir, metadata = stopped(tmp_path)
    for name in ("orders-1", "orders2-0"):
        with Log.open(tmp_path / name, "a") as log:
            log.append(b"another")
        shutil.move(tmp_path / name, log_dir / f"{name}.{UUID}-future")
    report = restore([old(tmp_path)], [log_dir], metadata=[metadata])
    assert states_of(report) == {"restored"}
    assert not told(report, "-future")


@pytest.mark.parametrize("leads_to", ["nothing", "an empty folder", "the partition"])
def test_a_link_in_the_place_of_a_partition_is_refused(leads_to: str, tmp_path: Path) -> None:
    """It leads to another disk, on which the records would not be."""
    log_dir, metadata = stopped(tmp_path)
    elsewhere = tmp_path / "another-disk" / "orders-0"
    if leads_to == "the partition":
        elsewhere.parent.mkdir()
        shutil.move(log_dir / "orders-0", elsewhere)
    else:
        shutil.rmtree(log_dir / "orders-0")
        if leads_to == "an empty folder":
            elsewhere.mkdir(parents=True)
    (log_dir / "orders-0").symlink_to(elsewhere)
    report = restore([old(tmp_path)], [log_dir], metadata=[metadata])
    (each,) = report.partitions
    assert each.state == "refused"
    assert f"{log_dir / 'orders-0'} is a symbolic link" in (each.reason or "")
    assert (log_dir / "orders-0").is_symlink()


@pytest.mark.parametrize("end", [100, 200])
def test_the_brokers_own_groups_behind_the_end_are_told(end: int, tmp_path: Path) -> None:
    """It keeps its ``__consumer_offsets``, which know offsets that the partition does not have any more; so for adopt."""
    kafka = Place.copy(CLEAN, tmp_path / "kafka")
    log_dirs = [kafka / place.name for place in CLEAN_LOG_DIRS]
    (place,) = (place / "g-plain-1" for place in log_dirs if (place / "g-plain-1").exists())
    with LogDir.open(log_dirs) as logs:
        all_of_it = [
            (group.group_id, each)
            for group in logs.groups()
            for each in group.offsets
            if (each.topic, each.partition, each.is_of_another_topic) == ("g-plain", 1, False)
        ]
    behind = {group: each.offset for group, each in all_of_it if each.offset > end}
    assert bool(behind) == (end == 100)
    with Log.open(place) as log:
        topic_id, known = log.topic_id, log.log_end_offset
    assert known == 200
    source = Place.copy(place, tmp_path / "old" / "g-plain-1").parent
    shutil.rmtree(place)
    with Log.open(place, "a", topic_id=topic_id, single_replica=True):
        pass
    command = "kafka-consumer-groups.sh --bootstrap-server localhost:9092 --group {} --reset-offsets --to-offset 100 --topic g-plain:1 --execute"
    for dry_run in (True, False):
        report = restore([source], log_dirs, metadata=[kafka / "metadata-dir"], ends={("g-plain", 1): end}, dry_run=dry_run)
        assert states_of(report) == {"planned" if dry_run else "restored"}
        found = {each.about: each.commands for each in report.remaining if "committed offsets behind the end" in each.reason}
        assert found == {group: (command.format(group),) for group in behind}
    stray = place.rename(place.with_name(f"g-plain-1.{UUID}-stray"))
    others = [other for other in log_dirs if other != place.parent]
    for dry_run in (True, False):
        (adopted,) = adopt(stray, log_dirs=others, metadata=kafka / "metadata-dir", dry_run=dry_run)
        notes = [note for note in adopted.notes if "has committed offset" in note]
        assert len(notes) == len(behind)
        for group, offset in behind.items():
            (note,) = [
                note for note in notes if note.startswith(f'group "{group}" has committed offset {offset} of it, which ends at 100')
            ]
            assert note.endswith(command.format(group))
