"""``restore``: golden brokers' disks into folders and stopped brokers' log dirs; what it refuses, and what the command says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import metadata_records
import pytest
from golden import CLEAN_LOG_DIRS, CLEAN_PARTITIONS, OLD_LOG_DIRS, OLD_PARTITIONS, named, row, rows
from restoring import SOURCES, formatted, metadata_of, places_of, states_of
from test_convert import check
from test_on_corrupt import PARTITIONS as TORN
from writing import environment, filled, times, tree

import offsetlog
from offsetlog import ConfigError, Log, LogDir, LogDirError, LogLockedError, RestoreReport, restore


def test_a_dead_brokers_disks_into_a_folder(tmp_path: Path) -> None:
    """Every partition with what a real consumer saw of it; the sources stay as they are; the second call finds all there."""
    before = [(tree(place), times(place)) for place in SOURCES]
    dry = restore(SOURCES, tmp_path / "new", dry_run=True)
    assert not (tmp_path / "new").exists()
    report = restore(SOURCES, tmp_path / "new")
    assert [(tree(place), times(place)) for place in SOURCES] == before
    assert (report.target, report.missing, report.left_out, states_of(report)) == ("folder", (), (), {"restored"})
    plan = [each._replace(state="restored") for each in dry.partitions]
    told = [each._replace(records=None, losses=(), first_unstable_offset=None) for each in report.partitions]
    assert (states_of(dry), plan) == ({"planned"}, told)
    places = places_of(report)
    assert sorted(places) == sorted(golden.name for golden in CLEAN_PARTITIONS)
    ids = {topic.name: topic.topic_id for topic in metadata_of(SOURCES).topics}
    for golden in CLEAN_PARTITIONS:
        check(golden, places[golden.name])
        with Log.open(places[golden.name]) as log:
            assert (log.topic_id, log.last_stable_offset) == (ids[golden.topic], golden.last_stable_offset)
    assert not offsetlog.verify(tmp_path / "new").damaged
    whole = tree(tmp_path / "new")
    again = restore(SOURCES, tmp_path / "new")
    assert (states_of(again), again.has_losses) == ({"there"}, False)
    assert tree(tmp_path / "new") == whole


def test_the_best_of_three_replicas(tmp_path: Path) -> None:
    """Three brokers of 2.8.2, killed while replicas differed: of each partition the longest replica of the newest epoch."""
    report = restore(OLD_LOG_DIRS, tmp_path / "new")
    assert states_of(report) == {"restored"}
    for each in report.partitions:
        name = f"{each.topic}-{each.partition}"
        replicas = [golden for golden in OLD_PARTITIONS if golden.name == name]
        assert len(each.other_replicas) == len(replicas) - 1
        ends = {}
        for golden in replicas:
            with Log.open(golden.directory) as log:
                ends[str(golden.directory)] = (log.leader_epoch or -1, log.log_end_offset)
        assert ends[each.source] == max(ends.values())
        for golden in replicas:
            if str(golden.directory) == each.source:
                check(golden, Path(each.into[0].path))
        for other in each.other_replicas:
            assert (other.less == "has as much") == (ends[other.path] == ends[each.source])


def test_a_shorter_replica_of_a_newer_epoch_wins(tmp_path: Path) -> None:
    """The longer one has what the newer leader never had: records that were cut off in the cluster."""
    for place, counts in (("old", [(0, 5)]), ("new", [(0, 3), (1, 1)])):
        with Log.open(tmp_path / place / "orders-0", "a") as log:
            for epoch, count in counts:
                for number in range(count):
                    log.append(b"%d" % number, leader_epoch=epoch)
    report = restore([tmp_path / "old", tmp_path / "new"], tmp_path / "restored")
    (each,) = report.partitions
    assert Path(each.source).parent.name == "new"
    assert [other.less for other in each.other_replicas] == ["ends at offset 5 in leader epoch 0, before 1"]
    assert each.records == 4


@pytest.mark.parametrize("name", ["g-plain-0", "g-time-0", "g-txn-0", "g-codec-zstd-0", "g-compact-0"])
def test_up_to_a_time(name: str, tmp_path: Path) -> None:
    """Each partition ends before the first record at the time or later, also in the middle of a batch."""
    (golden,) = named(name)
    for number, query in enumerate(query for query in golden.time_queries if query.isolation_level == "read_uncommitted"):
        answer = query.answer
        end = golden.end if answer is None else answer[0]
        report = restore(golden.directory, tmp_path / str(number), until=query.when)
        (each,) = report.partitions
        assert (each.log_end_offset, each.is_cut) == (end, end < golden.end)
        with Log.open(each.into[0].path) as log:
            assert rows(log.scan()) == tuple(seen for seen in golden.rows if seen.offset < end)
            assert (log.log_end_offset, log.verify().damaged) == (end, False)
        assert states_of(restore(golden.directory, tmp_path / str(number), until=query.when)) == {"there"}


@pytest.mark.parametrize("name", ["g-codec-gzip-0", "g-txn-0", "g-idem-0", "g-compact-0"])
def test_up_to_any_offset(name: str, tmp_path: Path) -> None:
    """Wherever the end falls: every record before it, none behind, and a log that goes on there."""
    (golden,) = named(name)
    for end in range(golden.start, golden.end + 1, 7):
        into = tmp_path / str(end)
        (each,) = restore(golden.directory, into, ends={(golden.topic, golden.partition): end}).partitions
        with Log.open(each.into[0].path, "a") as log:
            assert (log.log_end_offset, log.recovery_report.clean) == (end, True)
            assert rows(log.scan()) == tuple(seen for seen in golden.rows if seen.offset < end)
            assert log.append(b"next") == end


def test_names_patterns_and_what_is_missing(tmp_path: Path) -> None:
    """Patterns as in a shell; a name that nobody has is refused; partitions that no source has are told."""
    report = restore(SOURCES, tmp_path / "a", topics=["g-codec-*", "g-tim?"], dry_run=True)
    assert {each.topic for each in report.partitions} == {
        golden.topic for golden in CLEAN_PARTITIONS if golden.topic.startswith("g-codec-") or golden.topic == "g-time"
    }
    with pytest.raises(ValueError, match="g-nobody"):
        restore(SOURCES, tmp_path / "a", topics=["g-plain", "g-nobody"])
    report = restore([SOURCES[0], SOURCES[2]], tmp_path / "a", topics="g-plain", dry_run=True)
    assert ([each.partition for each in report.partitions], report.missing) == ([0, 2], (("g-plain", 1),))
    assert report.has_losses
    gone = restore(SOURCES[2], tmp_path / "a", topics="g-plain", dry_run=True)
    assert (gone.partitions, [each.partition for each in gone.missing]) == ((), [0, 1, 2])


@pytest.mark.parametrize("name", ["g-torn-flip-old-0", "g-torn-cut-batch-0"])
def test_damage_is_told_and_the_rest_restored(name: str, tmp_path: Path) -> None:
    """As salvage: what a skipping scan reads, and what is lost."""
    golden = TORN[name]
    report = restore(golden.directory, tmp_path / "new")
    (each,) = report.partitions
    with Log.open(golden.directory) as source, Log.open(each.into[0].path) as log:
        assert list(map(row, log.scan())) == list(map(row, source.scan(on_corrupt="skip")))
    assert report.has_losses == bool(each.losses) == (each.loss_count > 0)
    assert {each.state for each in restore(golden.directory, tmp_path / "new").partitions} == {"there"}


def stopped(place: Path, *, epoch: int = 7, node: int = 1, replicas: Sequence[int] = (1,)) -> tuple[Path, Path]:
    """A stopped broker's log dir, and its metadata: it has the topic `g-epochs` of another id, without a record."""
    log_dir = formatted(place / "logs", node=node)
    (log_dir / "bootstrap.checkpoint").unlink()
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":3}')
    metadata = place / "metadata"
    topic_id = bytes(range(1, 17))
    body = [metadata_records.topic("g-epochs", topic_id)]
    for number in (0, 1):
        record = bytearray(metadata_records.partition(topic_id, number, replicas))
        # leader, leader epoch, partition epoch and the tags end it.
        record[-9:-5] = epoch.to_bytes(4)
        body.append(bytes(record))
    metadata_records.write(metadata, body)
    for number in (0, 1):
        with Log.open(log_dir / f"g-epochs-{number}", "a", topic_id="AQIDBAUGBwgJCgsMDQ4PEA", single_replica=True):
            pass
    return log_dir, metadata


@pytest.mark.parametrize("epoch", [7, 4, 3, 1, 0])
def test_leader_epochs_that_the_cluster_takes(epoch: int, tmp_path: Path) -> None:
    """Kept, where the cluster's is not below; else counted anew, so that the history stays as long as it can."""
    log_dir, metadata = stopped(tmp_path, epoch=epoch)
    report = restore(SOURCES, log_dir, topics=["g-epochs"], metadata=metadata)
    assert (report.target, states_of(report)) == ("stopped-broker", {"restored"})
    for each in report.partitions:
        (golden,) = named(f"g-epochs-{each.partition}")
        with Log.open(each.into[0].path) as log:
            assert log.topic_id == "AQIDBAUGBwgJCgsMDQ4PEA"
            found = rows(log.scan())
            assert [seen._replace(leader_epoch=0) for seen in found] == [seen._replace(leader_epoch=0) for seen in golden.rows]
            had = [seen.leader_epoch for seen in golden.rows]
            if epoch >= 4:
                expected = had
            else:
                order = sorted(set(had))
                expected = [min(order.index(each), epoch) for each in had]
            assert [seen.leader_epoch for seen in found] == expected
            assert log.verify().damaged is False
    whole = tree(log_dir)
    assert states_of(restore(SOURCES, log_dir, topics=["g-epochs"], metadata=metadata)) == {"there"}
    assert tree(log_dir) == whole
    assert (log_dir / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":3}'


REFUSALS: dict[str, tuple[str, Callable[[Path, Path], RestoreReport]]] = {
    "a source": ("holds the source", lambda log_dir, metadata: restore([log_dir, metadata], log_dir)),
    "a folder of a source": ("holds the source", lambda log_dir, _: restore(log_dir, log_dir / "deeper")),
    "around a source": ("holds the source", lambda log_dir, _: restore(log_dir, log_dir.parent)),
    "a partition": ("not a partition|a log dir expected", lambda log_dir, _: restore(SOURCES, log_dir / "g-epochs-0")),
    "no bootstrap.checkpoint": (
        "bootstrap.checkpoint",
        lambda log_dir, _: restore(SOURCES, log_dir, new_cluster=True),
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_change_nothing(case: str, tmp_path: Path) -> None:
    """Each says what is wrong."""
    log_dir, metadata = stopped(tmp_path)
    before = tree(tmp_path)
    match, act = REFUSALS[case]
    with pytest.raises(LogDirError, match=match):
        act(log_dir, metadata)
    assert tree(tmp_path) == before


def test_a_cluster_that_has_started_gets_its_topics_by_command(tmp_path: Path) -> None:
    """Its controllers do not read `bootstrap.checkpoint` any more: what it has is restored, and commands make the rest."""
    log_dir, metadata = stopped(tmp_path)
    report = restore(SOURCES, log_dir, topics=["g-epochs", "g-plain"], metadata=metadata, new_cluster=True)
    assert report.target == "stopped-broker"
    assert any("do not read bootstrap.checkpoint any more" in warning for warning in report.warnings)
    assert {(each.topic, each.state) for each in report.partitions} == {("g-epochs", "restored"), ("g-plain", "refused")}
    (command,) = (
        command for each in report.remaining if each.about == "g-plain" for command in each.commands if "kafka-topics" in command
    )
    assert "--create --topic g-plain --partitions 3 --replication-factor 1" in command
    old = formatted(tmp_path / "old-cluster")
    (old / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=any\n")
    report = restore(SOURCES, old, topics=["g-plain"], new_cluster=True)
    assert (report.target, states_of(report)) == ("stopped-broker", {"refused"})
    assert any("ZooKeeper" in warning for warning in report.warnings)
    (old / "meta.properties").unlink()
    with pytest.raises(LogDirError, match=r"kafka-storage\.sh format"):
        restore(SOURCES, old, topics=["g-plain"], new_cluster=True)


SNAPSHOTS = {
    # The first is that of `kafka-storage format --standalone`: the controllers are in it, and no topic.
    "00000000000000000000-0000000000.checkpoint": False,
    "00000000000000000007-0000000001.checkpoint": True,
    "00000000000000000000-0000000001.checkpoint": True,
    # Fetched in part, which a controller deletes when it starts; or something else.
    "00000000000000000007-0000000001-5577006791947779410.checkpoint.part": False,
    "a.checkpoint": False,
}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_controller_that_has_only_a_later_snapshot_has_started(name: str, tmp_path: Path) -> None:
    """It was killed when it had fetched that, and its log has no record yet: it does not read `bootstrap.checkpoint` any more."""
    into = formatted(tmp_path / "new")
    (into / "__cluster_metadata-0").mkdir()
    (into / "__cluster_metadata-0" / f"{name[:20] if SNAPSHOTS[name] else '0' * 20}.log").touch()
    shutil.copy(into / "bootstrap.checkpoint", into / "__cluster_metadata-0" / name)
    before = (into / "bootstrap.checkpoint").read_bytes()
    report = restore(SOURCES, into, topics=["g-plain"], new_cluster=True)
    assert report.target == ("stopped-broker" if SNAPSHOTS[name] else "new-cluster")
    assert any("do not read bootstrap.checkpoint any more" in warning for warning in report.warnings) == SNAPSHOTS[name]
    assert ((into / "bootstrap.checkpoint").read_bytes() == before) == SNAPSHOTS[name]


def test_partitions_that_a_stopped_broker_cannot_take(tmp_path: Path) -> None:
    """Not in the cluster, of other brokers too, not empty: each is told, with what to do, and the others are restored."""
    log_dir, metadata = stopped(tmp_path / "a")
    report = restore(SOURCES, log_dir, topics=["g-epochs", "g-plain"], metadata=metadata)
    assert {(each.topic, each.state) for each in report.partitions} == {("g-epochs", "restored"), ("g-plain", "refused")}
    assert all("make it with kafka-topics.sh" in (each.reason or "") for each in report.partitions if each.topic == "g-plain")
    other, metadata = stopped(tmp_path / "b", replicas=(1, 2))
    before = tree(other)
    report = restore(SOURCES, other, topics=["g-epochs"], metadata=metadata)
    assert states_of(report) == {"refused"}
    assert all("broker 2" in (each.reason or "") for each in report.partitions)
    assert {name: data for name, data in tree(other).items() if "offsetlog" not in name and ".lock" not in name} == {
        name: data for name, data in before.items() if "offsetlog" not in name and ".lock" not in name
    }
    alone = restore(SOURCES, other, topics=["g-epochs"], metadata=metadata, single_replica=True)
    assert states_of(alone) == {"restored"}
    assert any("broker 2" in each.reason for each in alone.remaining)
    used, metadata = stopped(tmp_path / "c")
    with Log.open(used / "g-epochs-0", "a", single_replica=True) as log:
        log.append(b"new record of the new topic", leader_epoch=7)
    report = restore(SOURCES, used, topics=["g-epochs"], metadata=metadata)
    assert [each.state for each in report.partitions] == ["refused", "restored"]
    with Log.open(used / "g-epochs-0") as log:
        assert [record.value for record in log.scan()] == [b"new record of the new topic"]


def test_an_empty_partition_with_records_set_aside_is_not_replaced(tmp_path: Path) -> None:
    """Recovery cut them off and kept them: they would go with the directory."""
    log_dir, metadata = stopped(tmp_path)
    kept = log_dir / "g-epochs-0" / "offsetlog-cut"
    kept.mkdir()
    data = (CLEAN_LOG_DIRS[0] / "g-epochs-0" / f"{0:020}.log").read_bytes()
    (kept / f"{0:020}.log.0").write_bytes(data)
    report = restore(SOURCES, log_dir, topics=["g-epochs"], metadata=metadata)
    assert [each.state for each in report.partitions] == ["refused", "restored"]
    assert "set aside" in (report.partitions[0].reason or "")
    assert (kept / f"{0:020}.log.0").read_bytes() == data


def test_without_any_metadata(tmp_path: Path) -> None:
    """The empty directories of a stopped broker tell ids and places; no leader is known, so epochs begin at 0."""
    log_dir, _ = stopped(tmp_path)
    report = restore(CLEAN_LOG_DIRS, log_dir, topics=["g-epochs"])
    assert states_of(report) == {"restored"}
    for each in report.partitions:
        with Log.open(each.into[0].path) as log:
            assert log.topic_id == "AQIDBAUGBwgJCgsMDQ4PEA"
            assert {seen.leader_epoch for seen in log.scan()} == {0}


def test_metadata_that_is_named_and_is_not_there_is_refused(tmp_path: Path) -> None:
    """An empty folder needs none, but whoever names it wants what it says."""
    with pytest.raises(ConfigError, match="metadata"):
        restore(CLEAN_LOG_DIRS, tmp_path / "into", topics=["g-epochs"], metadata=tmp_path / "nowhere")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("left", [["offsetlog-shared.lock"], ["offsetlog-shared.lock", ".lock"], [f"g-epochs-0.{'0' * 32}-delete/"]])
def test_what_a_restore_leaves_that_ended_before_its_first_partition(tmp_path: Path, left: list[str]) -> None:
    """It is no reason for the second call to refuse the folder."""
    for name in left:
        place = tmp_path / name
        if name.endswith("/"):
            place.mkdir()
        else:
            place.touch()
    report = restore(CLEAN_LOG_DIRS, tmp_path, topics=["g-epochs"])
    assert states_of(report) == {"restored"}


def test_the_second_folder_of_a_restore_that_ended_at_the_first(tmp_path: Path) -> None:
    """It was never made. A broker's log dirs have to be there."""
    for name in (".lock", "offsetlog-shared.lock"):
        (tmp_path / "one").mkdir(exist_ok=True)
        (tmp_path / "one" / name).touch()
    places = [tmp_path / "one", tmp_path / "two"]
    assert states_of(restore(CLEAN_LOG_DIRS, places, topics=["g-epochs"])) == {"restored"}
    assert states_of(restore(CLEAN_LOG_DIRS, places, topics=["g-epochs"])) == {"there"}
    assert sorted(path.name for place in places for path in place.glob("g-*")) == ["g-epochs-0", "g-epochs-1"]
    log_dir, metadata = stopped(tmp_path)
    with pytest.raises(LogDirError, match="is a log dir in use"):
        restore(SOURCES, [log_dir, tmp_path / "three"], topics=["g-epochs"], metadata=metadata)
    assert not (tmp_path / "three").exists()
    (tmp_path / "three").mkdir()
    (tmp_path / "three" / ".lock").touch()
    with pytest.raises(LogDirError, match=r"only one has a meta\.properties"):
        restore(SOURCES, [log_dir, tmp_path / "three"], topics=["g-epochs"], metadata=metadata)
    assert [path.name for path in (tmp_path / "three").iterdir()] == [".lock"]


def test_a_running_broker_is_not_restored_into(tmp_path: Path) -> None:
    """It holds the lock of its log dir."""
    log_dir, metadata = stopped(tmp_path)
    program = (
        "import fcntl, sys, time\nlock = open(sys.argv[1], 'w')\nfcntl.lockf(lock, fcntl.LOCK_EX)\nprint(flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(log_dir / ".lock")], stdout=subprocess.PIPE) as broker:
        try:
            assert broker.stdout is not None
            broker.stdout.readline()
            before = tree(log_dir)
            with pytest.raises(LogLockedError):
                restore(SOURCES, log_dir, topics=["g-epochs"], metadata=metadata)
            assert tree(log_dir) == before
        finally:
            broker.kill()


def test_settings_that_may_not_be_all_are_not_stored(tmp_path: Path) -> None:
    """By the topic's own alone, a later upkeep of the folder would take Kafka's defaults for the rest, and delete."""
    report = restore(SOURCES, tmp_path / "new", topics=["g-plain", "g-compact"])
    for each in report.partitions:
        assert not (Path(each.into[0].path) / ".offsetlog.config").exists()
    with LogDir.open(tmp_path / "new", "a") as log_dir:
        before = log_dir.end_offsets(), log_dir.beginning_offsets()
        log_dir.log("g-plain", 0)
        log_dir.maintain(now=4_000_000_000_000)
        assert (log_dir.end_offsets(), log_dir.beginning_offsets()) == before
    with Log.open(tmp_path / "own" / "orders-0", "a", {"retention.ms": -1}) as log:
        log.append(b"value")
    (each,) = restore(tmp_path / "own", tmp_path / "kept").partitions
    stored = (tmp_path / "own" / "orders-0" / ".offsetlog.config").read_bytes()
    assert b"retention.ms" in stored
    assert (Path(each.into[0].path) / ".offsetlog.config").read_bytes() == stored


def test_what_a_broker_set_aside_is_told(tmp_path: Path) -> None:
    """It holds records, and somebody may look for them."""
    (tmp_path / "old").mkdir()
    for name in ("g-plain-0", f"g-plain-2.{'0' * 32}-stray", f"g-epochs-0.{'1' * 32}-delete"):
        shutil.copytree(CLEAN_LOG_DIRS[0] / name.partition(".")[0], tmp_path / "old" / name)
    report = restore(tmp_path / "old", tmp_path / "new")
    assert [(each.topic, each.partition) for each in report.partitions] == [("g-plain", 0)]
    assert sorted(("-stray" in warning, "-delete" in warning) for warning in report.warnings) == [(False, True), (True, False)]


def test_progress_and_its_end(tmp_path: Path) -> None:
    """It is told of every partition, and what it raises ends the work: what is whole stays, the rest comes with the next call."""
    for number in range(3):
        filled(tmp_path / "old" / f"orders-{number}")
        with Log.open(tmp_path / "old" / f"orders-{number}", "a") as log:
            for _ in range(30):
                log.append(bytes(100_000))
    seen: list[tuple[int, int, str]] = []

    def tell(done: int, total: int, name: str) -> None:
        seen.append((done, total, name))
        if name == "orders-1":
            raise KeyError(name)

    with pytest.raises(KeyError):
        restore(tmp_path / "old", tmp_path / "new", progress=tell)
    assert {name for _, _, name in seen} == {"orders-0", "orders-1"}
    assert all(done <= total for done, total, _ in seen)
    report = restore(tmp_path / "old", tmp_path / "new")
    assert [each.state for each in report.partitions] == ["there", "restored", "restored"]


def shell(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "offsetlog", "restore", *map(str, arguments)]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300, check=False)


def test_the_command(tmp_path: Path) -> None:
    """The same from a shell: the plan first, then what became of it; JSON beside text; exit codes."""
    done = shell(*SOURCES, "--into", tmp_path / "a", "-t", "g-plain", "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "plan: 3 partitions into a folder of no broker, 83K to read"
    assert not (tmp_path / "a").exists()
    offsets = tmp_path / "offsets.csv"
    offsets.write_text('g-plain,0,10\n"g-plain","1",20\n')
    done = shell(*SOURCES, "--into", tmp_path / "a", "-t", "g-plain", "--offsets", offsets, "--json")
    plan, *lines, whole = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 0
    assert len(plan["plan"]["partitions"]) == len(lines)
    assert [(line["topic"], line["partition"], line["state"], line["log_end_offset"]) for line in lines] == [
        ("g-plain", 0, "restored", 10),
        ("g-plain", 1, "restored", 20),
        ("g-plain", 2, "restored", 200),
    ]
    assert (whole["target"], whole["missing"]) == ("folder", [])
    done = shell(SOURCES[0], "--into", tmp_path / "b", "-t", "g-plain")
    assert done.returncode == 3
    assert "missing: g-plain-1 is in none of the sources\n" in done.stdout
    assert shell(*SOURCES, "--into", tmp_path / "c", "-t", "nobody").returncode == 2
    offsets.write_text("g-plain,0\n")
    bad = shell(*SOURCES, "--into", tmp_path / "c", "--offsets", offsets)
    assert (bad.returncode, "topic,partition,offset expected" in bad.stderr) == (2, True)


def test_what_one_disk_has_lost_comes_from_another(tmp_path: Path) -> None:
    """A sector of the best replica is gone, in a closed segment: the very batches are in another one, and the report says so."""
    for place in ("one", "two"):
        with Log.open(tmp_path / place / "orders-0", "a") as log:
            for number in range(30):
                log.append(b"%d" % number, timestamp=number)
                if number == 20:
                    log.roll()
        if place == "one":
            data = tmp_path / place / "orders-0" / f"{0:020}.log"
            whole = data.read_bytes()
            data.write_bytes(whole[:500] + bytes(200) + whole[700:])
    done = shell(tmp_path / "one", tmp_path / "two", "--into", tmp_path / "a")
    assert done.returncode == 0, done.stdout
    assert f"orders-0: fills holes alone: {tmp_path / 'two' / 'orders-0'} has as much\n" in done.stdout
    assert f"from {tmp_path / 'two' / 'orders-0'}\n" in done.stdout
    (each,) = restore([tmp_path / "one", tmp_path / "two"], tmp_path / "b").partitions
    assert (each.source, each.records) == (str(tmp_path / "one" / "orders-0"), 30)
    (taken,) = each.taken_back
    assert (taken.path, taken.records) == (str(tmp_path / "two" / "orders-0"), 4)
    assert {loss.records_max for loss in each.losses} == {0}
    with Log.open(tmp_path / "b" / "orders-0") as log:
        assert [record.value for record in log.scan()] == [b"%d" % number for number in range(30)]
    alone = restore(tmp_path / "one", tmp_path / "c")
    assert alone.has_losses
    done = shell(tmp_path / "one", tmp_path / "two", "--into", tmp_path / "d", "--json")
    (_, line, _) = map(json.loads, done.stdout.splitlines())
    assert [(taken["path"], taken["records"]) for taken in line["taken_back"]] == [(taken.path, taken.records)]
    assert line["left_out"] == []


def test_a_directory_whose_topic_id_cannot_be_read_is_told(tmp_path: Path) -> None:
    """It may be of an earlier topic of the name."""
    sources = [shutil.copytree(path, tmp_path / Path(path).name) for path in SOURCES]
    (directory,) = (path / "g-plain-0" for path in sources if (path / "g-plain-0").is_dir())
    (directory / "partition.metadata").write_text("version: nine\n")
    report = restore(sources, tmp_path / "into", topics=["g-plain"], dry_run=True)
    told = [warning for warning in report.warnings if "its topic id cannot be read" in warning]
    assert len(told) == 1, report.warnings
    assert told[0].startswith(f"{directory} is taken for a replica of this topic, and may be of an earlier one")
