"""``restore`` into a cluster that has not started: what its first controller will read, retention, room, and kills."""

from __future__ import annotations

import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import metadata_records
import pytest
from frames import all_frames
from golden import CLEAN_LOG_DIRS, CLEAN_PARTITIONS, DATA, OLD_LOG_DIRS, OLD_PARTITIONS, named
from restoring import SOURCES, format_for, formatted, metadata_of, metadata_values, states_of, uuid_bytes
from test_convert import check
from writing import environment, python, tree

from offsetlog import Log, LogDir, LogDirError, OffsetLogError, restore


def test_a_new_cluster_gets_its_topics_before_it_starts(tmp_path: Path) -> None:
    """`bootstrap.checkpoint` keeps what it had, and has each topic with id, partitions and settings; once, however often it runs."""
    into = [formatted(tmp_path / "one"), formatted(tmp_path / "two")]
    (tmp_path / "two" / "bootstrap.checkpoint").unlink()
    formatted_values = metadata_values(into[0] / "bootstrap.checkpoint")
    report = restore(SOURCES, into, new_cluster=True)
    assert (report.target, report.bootstrap_checkpoints) == ("new-cluster", (str(into[0] / "bootstrap.checkpoint"),))
    values = metadata_values(into[0] / "bootstrap.checkpoint")
    assert values[: len(formatted_values)] == formatted_values
    new = values[len(formatted_values) :]
    image = metadata_of(SOURCES)
    for topic in image.topics:
        raw = uuid_bytes(topic.topic_id or "")
        assert new.count(metadata_records.topic(topic.name, raw)) == 1
    of_partitions = [value for value in new if value.startswith(b"\1\3\1")]
    assert len(of_partitions) == len(CLEAN_PARTITIONS)
    epochs = {value[3:23]: value for value in of_partitions}
    assert len(epochs) == len(of_partitions)
    plain = next(topic for topic in image.topics if topic.name == "g-compact")
    for key, value in image.configs["topic", "g-compact"].items():
        assert new.count(metadata_records.config("topic", plain.name, key, value)) == 1
    # Kafka hands out no id below it: those of the old cluster's producers, the open transaction's is 1000.
    (ids,) = (value for value in new if value.startswith(b"\1\17\0"))
    assert int.from_bytes(ids[15:23]) > 1000
    assert {(tmp_path / place / ".kafka_cleanshutdown").exists() for place in ("one", "two")} == {True}
    whole = tree(tmp_path)
    assert not restore(SOURCES, into, new_cluster=True).has_losses
    assert tree(tmp_path) == whole


def test_retention_does_not_delete_what_was_just_restored(tmp_path: Path) -> None:
    """Old records: the topic keeps them until somebody sets retention back, with the command that is told; or it is as it was."""
    into = formatted(tmp_path / "one")
    report = restore(SOURCES, into, topics=["g-plain", "g-retained-bytes"], new_cluster=True)
    values = metadata_values(into / "bootstrap.checkpoint")
    assert metadata_records.config("topic", "g-plain", "retention.ms", "-1") in values
    commands = [command for each in report.remaining for command in each.commands]
    assert any("--entity-name g-plain --delete-config retention.ms" in command for command in commands)
    kept = formatted(tmp_path / "two")
    restore(SOURCES, kept, topics=["g-plain"], new_cluster=True, keep_retention=True)
    assert metadata_records.config("topic", "g-plain", "retention.ms", "-1") not in metadata_values(kept / "bootstrap.checkpoint")


def test_retention_that_nobody_knows_deletes_nothing(tmp_path: Path) -> None:
    """New records, and brokers of which nothing is known: they may keep an hour, or a megabyte."""
    with Log.open(tmp_path / "old" / "orders-0", "a") as log:
        log.append(b"value")
    (tmp_path / "server.properties").write_text("log.retention.hours=1\n")
    for number, (broker, expected) in enumerate(((None, True), (tmp_path / "server.properties", False))):
        into = formatted(tmp_path / str(number))
        report = restore(tmp_path / "old", into, broker=broker, new_cluster=True)
        values = metadata_values(into / "bootstrap.checkpoint")
        for setting in ("retention.ms", "retention.bytes"):
            assert (metadata_records.config("topic", "orders", setting, "-1") in values) == expected
            assert any(setting in command for each in report.remaining for command in each.commands) == expected


def test_a_topic_without_any_partition_here_begins_empty(tmp_path: Path) -> None:
    """It is told as missing, and the new cluster has it all the same, with its id and settings."""
    into = formatted(tmp_path / "one")
    report = restore(SOURCES[2], into, topics="g-compact", new_cluster=True)
    assert (report.partitions, report.missing) == ((), (("g-compact", 0),))
    values = metadata_values(into / "bootstrap.checkpoint")
    image = metadata_of(SOURCES)
    (topic,) = (topic for topic in image.topics if topic.name == "g-compact")
    assert metadata_records.topic("g-compact", uuid_bytes(topic.topic_id or "")) in values
    assert sum(value.startswith(b"\1\3\1") for value in values) == 1


def test_retention_looks_behind_segments_that_compaction_emptied(tmp_path: Path) -> None:
    """Their policy is not known without metadata, and their first segments have no record whose age would tell."""
    (tmp_path / "server.properties").write_text("# Kafka's defaults\n")
    report = restore(OLD_LOG_DIRS, formatted(tmp_path / "one"), broker=tmp_path / "server.properties", new_cluster=True)
    values = metadata_values(tmp_path / "one" / "bootstrap.checkpoint")
    kept = {
        topic
        for topic in {each.topic for each in report.partitions}
        if metadata_records.config("topic", topic, "retention.ms", "-1") in values
    }
    old = {golden.topic for golden in OLD_PARTITIONS if any(0 <= seen.timestamp < 1_710_000_000_000 for seen in golden.rows)}
    untimed = {golden.topic for golden in OLD_PARTITIONS if not any(seen.timestamp >= 0 for seen in golden.rows)}
    assert "o-v2-compact" in old
    assert old <= kept
    # A broker takes the time of the new file, so it would delete them later, whatever their age.
    assert untimed
    assert untimed <= kept
    told = {topic for each in report.remaining if "no timestamp" in each.reason for topic in each.about.split(", ")}
    # Of what the cleaner's checkpoint names the policy is the question, and nothing is deleted until it is answered.
    lines = [line.split() for place in OLD_LOG_DIRS for line in (place / "cleaner-offset-checkpoint").read_text().splitlines()]
    compacted = {line[0] for line in lines if len(line) == 3}
    assert compacted == {each.about for each in report.remaining if "it was compacted" in each.reason}
    assert told == untimed - old - compacted


def test_replicas_in_a_new_cluster(tmp_path: Path) -> None:
    """Each replica is a copy of its own; a cluster with fewer brokers gets fewer."""
    into = [formatted(tmp_path / str(node), node=node) for node in (1, 2, 3)]
    report = restore(SOURCES, into, topics=["g-plain"], new_cluster=True, replication_factor=2)
    nodes = [tuple(place.node_id for place in each.into) for each in report.partitions]
    assert len({node for pair in nodes for node in pair}) == 3
    for each in report.partitions:
        (golden,) = named(f"g-plain-{each.partition}")
        assert len(set(each.into)) == 2
        for place in each.into:
            check(golden, Path(place.path))
    # Both brokers have a directory of it now.
    again = restore(SOURCES, into, topics=["g-plain"], new_cluster=True, replication_factor=2)
    assert {each.state for each in again.partitions} == {"there"}
    one = restore(SOURCES, formatted(tmp_path / "alone"), topics=["g-plain"], new_cluster=True, replication_factor=3, dry_run=True)
    assert {len(each.into) for each in one.partitions} == {1}
    assert any("3 replicas of each partition are asked for, and log dirs of 1 broker are given" in each for each in one.warnings)


OF_3_9, OF_4_0 = 21, 22
FIRST_START: dict[str, tuple[int, list[int], str | None, str]] = {
    "Kafka 4, three nodes": (OF_4_0, [1, 2, 3], None, "new-cluster"),
    "Kafka 4, three nodes and controllers": (OF_4_0, [1, 2, 3], "controller.quorum.voters=1@a:1,2@b:1,3@c:1", "new-cluster"),
    "Kafka 4, two of three controllers": (OF_4_0, [1, 3], "controller.quorum.voters=1@a:1,2@b:1,3@c:1", "new-cluster"),
    "Kafka 4, two brokers that name no controller": (
        OF_4_0,
        [1, 2],
        "process.roles=broker\ncontroller.quorum.bootstrap.servers=c:1",
        "new-cluster",
    ),
    "Kafka 3, one node": (OF_3_9, [1], None, "new-cluster"),
    "Kafka 3, one node and another controller": (OF_3_9, [1], "controller.quorum.voters=7@c:1", "new-cluster"),
    "Kafka 3, one node, and voters that a provider has": (
        OF_3_9,
        [1],
        "controller.quorum.voters=1@a:1,${env:V2},${env:V3}",
        "stopped-broker",
    ),
    "Kafka 3, two nodes and another controller": (OF_3_9, [1, 2], "controller.quorum.voters=7@a:1", "new-cluster"),
    "Kafka 3, one node and one controller": (OF_3_9, [1], "controller.quorum.voters=1@a:1", "new-cluster"),
    "Kafka 3, one of three controllers": (OF_3_9, [1], "controller.quorum.voters=1@a:1,2@b:1,3@c:1", "stopped-broker"),
    "Kafka 3, three nodes": (OF_3_9, [1, 2, 3], None, "stopped-broker"),
    "Kafka 3, three nodes and one controller": (OF_3_9, [1, 2, 3], "controller.quorum.voters=1@a:1", "new-cluster"),
    "Kafka 3, three nodes, found by their addresses": (
        OF_3_9,
        [1, 2, 3],
        "controller.quorum.bootstrap.servers=a:1,b:1",
        "stopped-broker",
    ),
    "Kafka 3, three nodes, found by one address": (OF_3_9, [1, 2, 3], "controller.quorum.bootstrap.servers=a:1", "stopped-broker"),
}
"""`metadata.version`, nodes, what `server.properties` says, and what the log dirs are taken for."""

TOLD = {
    "Kafka 4, three nodes": {"controllers"},
    "Kafka 4, two brokers that name no controller": {"controllers"},
    "Kafka 4, two of three controllers": {"controllers"},
    "Kafka 3, one node": {"this", "controllers"},
    "Kafka 3, one node and another controller": {"start", "controllers"},
    "Kafka 3, two nodes and another controller": {"start", "controllers"},
    "Kafka 3, three nodes and one controller": {"start"},
}
"""How the notes about the first start begin."""


@pytest.mark.parametrize("case", FIRST_START)
def test_brokers_know_their_topics_when_they_start(case: str, tmp_path: Path) -> None:
    """Those of Kafka 3 would not, with several controllers: they began with an empty cluster, and set everything aside."""
    metadata_version, nodes, says, expected = FIRST_START[case]
    into = [formatted(tmp_path / str(node), node=node) for node in nodes]
    for place in into:
        format_for(place, metadata_version)
    broker = None
    if says is not None:
        broker = tmp_path / "server.properties"
        broker.write_text(f"{says}\n")
    before = [(place / "bootstrap.checkpoint").read_bytes() for place in into]
    report = restore(SOURCES, into, topics=["g-plain"], broker=broker, new_cluster=True)
    assert report.target == expected
    is_new = expected == "new-cluster"
    assert states_of(report) == {"restored" if is_new else "refused"}
    assert [(place / "bootstrap.checkpoint").read_bytes() != now for place, now in zip(into, before, strict=True)] == [is_new] * len(
        into
    )
    assert any("several controllers" in warning for warning in report.warnings) == (not is_new)
    assert any("--broker FILE" in warning for warning in report.warnings) == (not is_new and (says is None or "a:1," not in says))
    notes = {each.reason.split(" ")[0] for each in report.remaining if each.about == "first start"}
    assert notes == TOLD.get(case, set())
    if not is_new:
        assert not report.bootstrap_checkpoints
        assert any("kafka-topics.sh" in command for each in report.remaining for command in each.commands)


@pytest.mark.parametrize(("how", "expected"), [("standalone", "new-cluster"), ("initial-controllers", "stopped-broker")])
def test_a_quorum_of_kafka_3_says_how_large_it_is(how: str, expected: str, tmp_path: Path) -> None:
    """By the snapshot that Kafka's tool put before its metadata log, without any `server.properties`."""
    into = tmp_path / "log-dir"
    shutil.copytree(DATA / "kafka-3.9.2-formatted" / how, into)
    report = restore(SOURCES, into, topics=["g-plain"], new_cluster=True)
    assert report.target == expected
    assert not any(each.about == "first start" for each in report.remaining)
    warned = [warning for warning in report.warnings if "several controllers" in warning]
    assert ("--broker FILE" in "".join(warned), len(warned)) == (False, expected == "stopped-broker")
    # Of a controller alone, other brokers come later.
    other = formatted(tmp_path / "other", node=2)
    for line in (into / "meta.properties").read_text().splitlines():
        if line.startswith("cluster.id"):
            text = (other / "meta.properties").read_text()
            (other / "meta.properties").write_text(re.sub(r"cluster\.id=.*", line, text))
    format_for(other, OF_3_9)
    plan = restore(SOURCES, [into, other], topics=["g-epochs"], new_cluster=True, dry_run=True)
    assert plan.target == expected
    assert [each.reason.split()[0] for each in plan.remaining if each.about == "first start"] == ["start"] * (how == "standalone")


def test_damage_in_the_first_snapshot_is_named(tmp_path: Path) -> None:
    """Nobody knows how many controllers there are then. Offsets and leader epochs alone are not covered by a batch's checksum."""
    into = tmp_path / "log-dir"
    shutil.copytree(DATA / "kafka-3.9.2-formatted" / "initial-controllers", into)
    (snapshot,) = into.rglob("*-0000000000.checkpoint")
    whole = snapshot.read_bytes()

    def outcome(data: bytes) -> str:
        snapshot.write_bytes(data)
        try:
            return restore(CLEAN_LOG_DIRS[0] / "g-plain-0", into, new_cluster=True, dry_run=True).target
        except OffsetLogError as error:
            return error.path or "no path"

    assert {outcome(whole[:size]) for size in range(0, len(whole), 5)} == {str(snapshot)}
    broken = [whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :] for at in range(0, len(whole), 3)]
    assert {outcome(data) for data in broken} == {str(snapshot), "stopped-broker"}


def test_metadata_that_is_elsewhere_is_told(tmp_path: Path) -> None:
    """The format tool writes a `bootstrap.checkpoint` into each log dir, and controllers read one."""
    into, metadata = formatted(tmp_path / "one"), formatted(tmp_path / "metadata")
    broker = tmp_path / "server.properties"
    broker.write_text(f"metadata.log.dir={metadata}\n")
    report = restore(SOURCES, into, topics=["g-plain"], broker=broker, new_cluster=True, dry_run=True)
    assert any(str(metadata) in warning and "--metadata DIR" in warning for warning in report.warnings)
    report = restore(SOURCES, into, topics=["g-plain"], broker=broker, metadata=metadata, new_cluster=True, dry_run=True)
    assert not any("--metadata DIR" in warning for warning in report.warnings)


def test_without_that_it_is_the_first_of_the_log_dirs(tmp_path: Path) -> None:
    """As of any broker. The same folder by another name is the same."""
    first, second = formatted(tmp_path / "one"), formatted(tmp_path / "two")
    (tmp_path / "link").symlink_to(first)
    broker = tmp_path / "server.properties"
    for told, into, is_told in ((first, second, True), (first, first, False), (tmp_path / "link", first, False)):
        broker.write_text(f"log.dirs={told},{second}\n")
        report = restore(SOURCES, into, topics=["g-plain"], broker=broker, new_cluster=True, dry_run=True)
        assert any(f"metadata.log.dir={told} alone" in warning for warning in report.warnings) == is_told


def test_a_controller_that_lost_its_file_is_named(tmp_path: Path) -> None:
    """If it is elected first, it makes a cluster without the topics."""
    into = [formatted(tmp_path / str(node), node=node) for node in (1, 2, 3)]
    (into[1] / "bootstrap.checkpoint").unlink()
    broker = tmp_path / "server.properties"
    broker.write_text("controller.quorum.voters=1@a:1,2@b:1,3@c:1\n")
    report = restore(SOURCES, into, topics=["g-plain"], broker=broker, new_cluster=True, dry_run=True)
    (note,) = (each.reason for each in report.remaining if each.about == "first start")
    assert note.startswith("controllers without a bootstrap.checkpoint here: 2. ")


def test_what_was_restored_already_is_not_to_be_started(tmp_path: Path) -> None:
    """A first call that knew of one controller, and a second one that knows of three: a start would set everything aside."""
    into = formatted(tmp_path / "one")
    format_for(into, OF_3_9)
    assert states_of(restore(SOURCES, into, topics=["g-plain"], new_cluster=True)) == {"restored"}
    before = tree(into)
    broker = tmp_path / "server.properties"
    broker.write_text("controller.quorum.voters=1@a:1,2@b:1,3@c:1\n")
    with pytest.raises(LogDirError, match="do not start it: format the log dirs anew and restore again"):
        restore(SOURCES, into, topics=["g-plain"], broker=broker, new_cluster=True)
    for place in into.glob("g-plain-*"):
        shutil.rmtree(place)
    with pytest.raises(LogDirError, match=r"partitions or topics are here.*bootstrap\.checkpoint$"):
        restore(SOURCES, into, topics=["g-plain"], broker=broker, new_cluster=True)
    assert tree(into) == {name: found for name, found in before.items() if "g-plain" not in str(name)}


def test_a_metadata_log_that_cannot_be_looked_at_is_not_missing(tmp_path: Path) -> None:
    """Nobody knows whether the cluster has started."""
    into = formatted(tmp_path / "one")
    (into / "__cluster_metadata-0").symlink_to(into / "__cluster_metadata-0")
    with pytest.raises(OSError, match="__cluster_metadata-0"):
        restore(SOURCES, into, topics=["g-plain"], new_cluster=True)


def test_one_segment_without_timestamps_is_enough(tmp_path: Path) -> None:
    """A broker counts its age from the new file, whatever the records before it have."""
    with Log.open(tmp_path / "old" / "orders-0", "a") as log:
        log.append(b"value", timestamp=int(1000 * time.time()))
        log.roll()
        log.append(b"value", timestamp=-1)
    (tmp_path / "server.properties").write_text("log.retention.hours=1\n")
    into = formatted(tmp_path / "one")
    report = restore(tmp_path / "old", into, broker=tmp_path / "server.properties", new_cluster=True)
    assert metadata_records.config("topic", "orders", "retention.ms", "-1") in metadata_values(into / "bootstrap.checkpoint")
    assert any("no timestamp" in each.reason for each in report.remaining)


def test_what_cannot_be_opened_keeps_a_new_cluster_waiting(tmp_path: Path) -> None:
    """It is no partition that begins empty: the topics are not written before it is restored, or left out."""
    shutil.copytree(CLEAN_LOG_DIRS[0], tmp_path / "old")
    shutil.rmtree(tmp_path / "old" / "g-plain-0")
    (tmp_path / "old" / "g-plain-0").write_text("no folder")
    (tmp_path / "old" / "g-plain-0").rename(tmp_path / "old" / "aside")
    (tmp_path / "old" / "g-plain-0").mkdir()
    ((tmp_path / "old" / "g-plain-0") / f"{0:020}.log").mkdir()
    into = formatted(tmp_path / "one")
    before = (into / "bootstrap.checkpoint").read_bytes()
    report = restore(tmp_path / "old", into, topics=["g-plain"], new_cluster=True)
    states = {each.partition: each.state for each in report.partitions}
    assert states[2] == "restored"
    assert states[0] in {"refused", "failed"}
    assert report.has_losses
    assert (into / "bootstrap.checkpoint").read_bytes() == before
    assert report.warnings


LIMITED = """
import resource, sys
from offsetlog import restore
resource.setrlimit(resource.RLIMIT_FSIZE, (11 << 20, 11 << 20))  # above an index of full size
report = restore(sys.argv[1], sys.argv[2], new_cluster=True)
print([each.state for each in report.partitions], report.has_losses, len(report.warnings))
"""


def test_a_partition_that_finds_no_room(tmp_path: Path) -> None:
    """Nothing of it stays, no topic is written, and the next call does what is left."""
    for number, count in enumerate((1, 130)):
        with Log.open(tmp_path / "old" / f"orders-{number}", "a") as log:
            for _ in range(count):
                log.append(bytes(100_000))
    into = formatted(tmp_path / "one")
    before = (into / "bootstrap.checkpoint").read_bytes()
    assert python(LIMITED, tmp_path / "old", into) == "['restored', 'failed'] True 1\n"
    assert not (into / "orders-1").exists()
    assert not [place for place in into.iterdir() if place.name.endswith("-delete")]
    assert (into / "bootstrap.checkpoint").read_bytes() == before
    again = restore(tmp_path / "old", into, new_cluster=True)
    assert not again.has_losses
    assert (into / "bootstrap.checkpoint").read_bytes() != before
    with Log.open(into / "orders-1") as log:
        assert log.log_end_offset == 130


def test_log_dirs_of_two_clusters(tmp_path: Path) -> None:
    """Nobody serves topics whose halves are in two clusters."""
    into = [formatted(tmp_path / "one"), formatted(tmp_path / "two", node=2)]
    properties = into[1] / "meta.properties"
    properties.write_text(
        "\n".join("cluster.id=other" if line.startswith("cluster.id") else line for line in properties.read_text().splitlines())
    )
    with pytest.raises(LogDirError, match=r"cluster\.id"):
        restore(SOURCES, into, topics=["g-plain"], new_cluster=True)


KILLS = {"one disk": (1, 100), "two replicas onto two disks": (2, 40), "three replicas onto two disks": (3, 40)}
"""How many replicas of each partition there are, and how often a restore of them is killed."""


def replicas(root: Path, count: int) -> list[Path]:
    """The golden log dirs once for each replica, and the metadata: each replica has damage where the others have none."""
    sources = []
    for number in range(count):
        for log_dir in CLEAN_LOG_DIRS:
            copy = Path(shutil.copytree(log_dir, root / f"source-{number}" / log_dir.name))
            # Of one broker they would be the same replica.
            (copy / "meta.properties").unlink()
            sources.append(copy)
            for path in copy.glob("g-*/"):
                frames = all_frames(path)
                # Of what is compacted no replica fills a hole: the cleaner may have come further there.
                if "compact" not in path.name and len(frames) > 2 * count + 1:
                    frame = frames[1 + 2 * number]
                    with (path / f"{frame.segment:020}.log").open("r+b") as file:
                        file.seek(frame.position + 65)
                        (byte,) = file.read(1)
                        file.seek(frame.position + 65)
                        file.write(bytes([byte ^ 0x40]))
    return [*sources, SOURCES[-1]]


def disks(root: Path, count: int) -> list[Path]:
    """So many log dirs of a broker that has not started."""
    into = [formatted(root / f"disk-{number}") for number in range(count)]
    for number, place in enumerate(into[1:]):
        text = (place / "meta.properties").read_text()
        (place / "meta.properties").write_text(text.replace("directory.id=B", f"directory.id={'XY'[number]}"))
    return into


@pytest.mark.proof
@pytest.mark.parametrize("case", KILLS)
def test_a_killed_restore_goes_on(case: str, tmp_path: Path) -> None:
    """Killed at random moments: whole partitions or none, each once, no topic before its records, and the last run ends it."""
    count, kills = KILLS[case]
    into = disks(tmp_path, min(count, 2))
    sources = SOURCES if count == 1 else replicas(tmp_path, count)
    bootstraps = {place / "bootstrap.checkpoint": (place / "bootstrap.checkpoint").read_bytes() for place in into}
    chance = random.Random(20_261_125)
    command = [sys.executable, "-m", "offsetlog", "restore", *map(str, sources), "--new-cluster", "-q"]
    command += [word for place in into for word in ("--into", str(place))]
    began = time.monotonic()
    subprocess.run([*command, "--dry-run"], env=environment(), check=True, capture_output=True)
    start_seconds = time.monotonic() - began
    partial, number, pace = 0, 0, 1.0
    golden = {each.name: each for each in CLEAN_PARTITIONS}
    # Until enough of them hit the middle of the work: the machine may get faster or slower meanwhile.
    rounds, there = 0, list[Path]()
    while number < kills or partial <= kills // 5:
        rounds += 1
        assert rounds < 20 * kills, f"{number} kills, {partial} of which hit the middle of the work"
        before = {place.name for place in there if place.exists()}
        with subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            try:
                _, told = process.communicate(timeout=pace * start_seconds * chance.uniform(0.5, 2.5))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
            else:
                assert process.returncode == 0, told
        is_killed = process.returncode == -signal.SIGKILL
        number += is_killed
        there = [path for place in into for path in place.iterdir() if path.name in golden]
        assert len(there) == len({path.name for path in there})
        if any(file.read_bytes() != data for file, data in bootstraps.items()):
            assert len(there) == len(golden)
        for place in there:
            with Log.open(place) as log:
                assert (log.log_start_offset, log.log_end_offset) == (golden[place.name].start, golden[place.name].end)
        # What an earlier one left counts once.
        partial += is_killed and before != {place.name for place in there} and len(there) < len(golden)
        pace *= 0.95 if len(there) == len(golden) else 1 if there else 1.05
        if len(there) == len(golden) or rounds % 5 == 0:
            # Begins anew, with what a kill left beside it.
            for place in there:
                shutil.rmtree(place)
            for file, data in bootstraps.items():
                file.write_bytes(data)
    subprocess.run(command, env=environment(), check=True, capture_output=True)
    places = {path.name: path for place in into for path in place.iterdir() if path.is_dir()}
    assert {places[name].parent for name in golden} == set(into)
    for name, each in golden.items():
        check(each, places.pop(name))
    assert all(name.endswith("-delete") for name in places), places
    with LogDir.open(into) as log_dir:
        assert len(log_dir.partitions()) == len(golden)


def test_coordinators_that_cannot_be_read_may_know_greater_producer_ids(tmp_path: Path) -> None:
    """Without the cluster's metadata the ids of producers that wrote nothing are only there."""
    sources = [shutil.copytree(path, tmp_path / path.name) for path in CLEAN_LOG_DIRS]
    for log in tmp_path.glob("*/__transaction_state-1/*.log"):
        text = bytearray(log.read_bytes())
        text[70] ^= 1
        log.write_bytes(text)
    report = restore(sources, formatted(tmp_path / "new"), topics=["g-plain"], new_cluster=True, dry_run=True)
    assert any(warning.startswith("__transaction_state-1 cannot be read, and may know producer ids") for warning in report.warnings)
    whole = restore(CLEAN_LOG_DIRS, formatted(tmp_path / "other"), topics=["g-plain"], new_cluster=True, dry_run=True)
    assert not any("producer ids" in warning for warning in whole.warnings)


@pytest.mark.parametrize("factor", [None, 1, 3])
def test_printed_commands_make_as_many_replicas_as_are_asked_for(tmp_path: Path, factor: int | None) -> None:
    """Several controllers of Kafka 3.9 take no topics from a file: they are made by command, and then restored."""
    into = [formatted(tmp_path / str(number), node=number) for number in (1, 2, 3)]
    for each in into:
        format_for(each, 21)
    report = restore(SOURCES, into, topics=["g-plain"], new_cluster=True, replication_factor=factor)
    (command,) = [command for each in report.remaining for command in each.commands if command.startswith("kafka-topics.sh ")]
    assert f"--replication-factor {factor or 1} " in command
