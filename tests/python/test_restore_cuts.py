"""``restore`` up to a time or to offsets: what the end takes away from groups, compacted topics and transactions is said."""

from __future__ import annotations

import base64
import json
import shlex
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS, DATA, OLD_LOG_DIRS, named
from restoring import SOURCES, formatted
from test_restore_cut_in_a_hole import UNTIL, WHOLE, replica
from writing import tree

from offsetlog import Log, OffsetLogError, RestoreReport, restore
from offsetlog._offsetlog import run_cli


def committed() -> dict[tuple[str, str, int], int]:
    """The last commits of the golden groups, as Kafka's own tool printed them."""
    newest = {}
    text = (DATA / "expected" / "kafka-4.3.0-clean" / "committed-offsets.jsonl").read_text(encoding="utf-8")
    for line in map(json.loads, text.splitlines()):
        newest[tuple(line["key"].values())] = line["payload"]
    return {key: value["offset"] for key, value in newest.items() if value is not None}


def groups_told(report: RestoreReport) -> dict[str, list[str]]:
    return {each.about: list(each.commands) for each in report.remaining if "has committed offsets behind the end" in each.reason}


def reset(group: str, topic: str, partition: int, end: int) -> str:
    """The form of Kafka's own tool: `--topic t:0` is partition 0."""
    return (
        f"kafka-consumer-groups.sh --bootstrap-server localhost:9092 --group {group} --reset-offsets --to-offset {end}"
        f" --topic {topic}:{partition} --execute"
    )


@pytest.mark.parametrize("dry_run", [True, False])
def test_groups_that_have_read_behind_the_end_are_told(dry_run: bool, tmp_path: Path) -> None:
    """By group and partition, with the command that sets the offset to the end."""
    known = {key: offset for key, offset in committed().items() if key[1:] == ("g-codec-lz4", 0)}
    assert len(known) == 2
    end = max(known.values()) - 10
    topics = ["g-codec-lz4", "__consumer_offsets"]
    how = {"topics": topics, "new_cluster": True, "dry_run": dry_run}
    report = restore(SOURCES, formatted(tmp_path / "a"), ends={("g-codec-lz4", 0): end}, **how)  # type: ignore[arg-type]
    behind = {group for (group, *_), offset in known.items() if offset > end}
    assert groups_told(report) == {group: [reset(group, "g-codec-lz4", 0, end)] for group in behind}
    report = restore(SOURCES, formatted(tmp_path / "b"), ends={("g-codec-lz4", 0): max(known.values())}, **how)  # type: ignore[arg-type]
    assert not groups_told(report)


def test_of_groups_that_stay_behind_it_is_told_once(tmp_path: Path) -> None:
    how = {"topics": "g-codec-lz4", "new_cluster": True, "dry_run": True}
    for number, ends in enumerate(({("g-codec-lz4", 0): 10}, None)):
        report = restore(SOURCES, formatted(tmp_path / str(number)), ends=ends, **how)  # type: ignore[arg-type]
        assert not groups_told(report)
        (told,) = (each.reason for each in report.remaining if each.about == "groups")
        assert ("are to be set to that end" in told) == (ends is not None)


def test_offsets_of_groups_that_are_cut_off_do_not_count(tmp_path: Path) -> None:
    """What the restored groups have is what counts: not what they committed later."""
    (golden,) = named("g-codec-lz4-0")
    ends = {("__consumer_offsets", 0): 0, ("__consumer_offsets", 1): 0, ("g-codec-lz4", 0): golden.end - 300}
    report = restore(SOURCES, tmp_path / "new", topics=["g-codec-lz4", "__consumer_offsets"], ends=ends, dry_run=True)
    assert not groups_told(report)


def commit(group: str, offset: int) -> tuple[bytes, bytes]:
    """A record of `__consumer_offsets` for partition 0 of `top`, as FORMAT.md has it."""
    key = b"\0\1" + len(group).to_bytes(2) + group.encode() + bytes.fromhex("0003746f7000000000")
    return key, bytes.fromhex("0000") + offset.to_bytes(8) + bytes(10)


def test_offsets_that_a_transaction_commits(tmp_path: Path) -> None:
    """Those of a marker that commits; not aborted ones, and none that was committed anew before the marker."""
    with Log.open(tmp_path / "old" / "top-0", "a") as log:
        log.append_records([(None, b"value")] * 5)
    with Log.open(tmp_path / "old" / "__consumer_offsets-0", "a") as log:
        log.append_records([commit(group, 5) for group in "abcde"])
        for producer, group in enumerate("abc"):
            log.append_records([commit(group, 9)], producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
        log.append_records([commit("c", 4), commit("d", 8), commit("e", 8)])
        log.append_records([(commit("e", 0)[0], None)])
        for producer, is_commit in enumerate((True, False, True)):
            log.append_marker(producer, 0, commit=is_commit)
    report = restore(tmp_path / "old", tmp_path / "new", topics=["top", "__consumer_offsets"])
    assert groups_told(report) == {group: [reset(group, "top", 0, 5)] for group in "ad"}


def test_a_deletion_takes_back_what_a_transaction_waits_to_commit(tmp_path: Path) -> None:
    """The markers do not bring it back, as in Kafka, whichever producer it is of. What is committed behind the deletion counts."""
    with Log.open(tmp_path / "old" / "top-0", "a") as log:
        log.append_records([(None, b"value")] * 5)
    with Log.open(tmp_path / "old" / "__consumer_offsets-0", "a") as log:
        for producer in range(2):
            log.append_records(
                [commit(group, 9 + producer) for group in "abcd"],
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
        log.append_records([(commit(group, 0)[0], None) for group in "abc"])
        log.append_records([commit("b", 8)])
        again = {"producer_id": 0, "producer_epoch": 0, "base_sequence": 4, "transactional": True}
        log.append_records([commit("c", 7)], **again)  # type: ignore[arg-type]
        for producer in range(2):
            log.append_marker(producer, 0, commit=True)
    for dry_run in (True, False):
        report = restore(tmp_path / "old", tmp_path / "new", topics=["top", "__consumer_offsets"], dry_run=dry_run)
        assert groups_told(report) == {group: [reset(group, "top", 0, 5)] for group in "bcd"}
        told = {each.about: each.reason for each in report.remaining}
        assert all(f"top-0 at {offset}," in told[group] for group, offset in (("b", 8), ("c", 7), ("d", 10)))


def test_a_log_that_lost_its_end_is_told_too(tmp_path: Path) -> None:
    """Nothing is cut: the records that the group has read are not here."""
    sources = [Path(shutil.copytree(path, tmp_path / Path(path).name)) for path in SOURCES]
    (directory,) = (path / "g-codec-lz4-0" for path in sources if (path / "g-codec-lz4-0").is_dir())
    last = max(directory.glob("*.log"))
    for path in directory.glob(f"{last.stem}.*"):
        path.unlink()
    report = restore(sources, tmp_path / "new", topics=["g-codec-lz4", "__consumer_offsets"], dry_run=True)
    (each,) = (each for each in report.partitions if each.topic == "g-codec-lz4")
    known = {key[0] for key, offset in committed().items() if key[1] == "g-codec-lz4" and offset > (each.log_end_offset or 0)}
    assert known
    assert groups_told(report).keys() == known


def copies(place: Path) -> tuple[list[Path], Path]:
    """Of all sources, with the directory of `g-codec-lz4-0` among them."""
    place.mkdir(exist_ok=True)
    sources = [Path(shutil.copytree(path, place / Path(path).name)) for path in SOURCES]
    (directory,) = (path / "g-codec-lz4-0" for path in sources if (path / "g-codec-lz4-0").is_dir())
    return sources, directory


def magic(data: bytearray) -> None:
    data[16] = 9


def checksum(data: bytearray) -> None:
    data[17:21] = b"\xff" * 4


def cut(data: bytearray) -> None:
    del data[40:]


@pytest.mark.parametrize("damage", [magic, checksum, cut])
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_log_whose_end_damage_hides_is_told_too(damage: Callable[[bytearray], None], dry_run: bool, tmp_path: Path) -> None:
    """Of whatever kind: what is built ends before it. Another replica may have the rest, and then nobody is behind."""
    sources, directory = copies(tmp_path / "old")
    with Log.open(directory) as log:
        last = list(log.batches())[-1]
        end = log.log_end_offset
    segment = directory / f"{last.segment:020}.log"
    data = segment.read_bytes()
    batch = bytearray(data[last.position :])
    damage(batch)
    segment.write_bytes(data[: last.position] + batch)
    known = {key[0]: offset for key, offset in committed().items() if key[1:] == ("g-codec-lz4", 0)}
    assert set(known.values()) == {end}
    how = {"topics": ["g-codec-lz4", "__consumer_offsets"], "new_cluster": True, "dry_run": dry_run}
    report = restore(sources, formatted(tmp_path / "new"), **how)  # type: ignore[arg-type]
    assert groups_told(report) == {group: [reset(group, "g-codec-lz4", 0, last.base_offset)] for group in known}
    if not dry_run:
        again = restore(sources, tmp_path / "new", **how)  # type: ignore[arg-type]
        assert again.remaining == report.remaining
    whole = tmp_path / "whole"
    shutil.copytree(CLEAN_LOG_DIRS[0] / "g-codec-lz4-0", whole / "g-codec-lz4-0")
    shutil.copy(CLEAN_LOG_DIRS[0] / "meta.properties", whole)
    report = restore([*sources, whole], formatted(tmp_path / "both"), **how)  # type: ignore[arg-type]
    assert not groups_told(report)


def test_groups_of_a_partition_that_no_source_has_are_told(tmp_path: Path) -> None:
    """It begins empty in a new cluster; not where an earlier call had it."""
    disk = tmp_path / "disk-2"
    disk.mkdir()
    shutil.copytree(CLEAN_LOG_DIRS[1] / "__consumer_offsets-1", disk / "__consumer_offsets-1")
    shutil.copy(CLEAN_LOG_DIRS[1] / "meta.properties", disk)
    sources = [CLEAN_LOG_DIRS[0], CLEAN / "metadata-dir", disk]
    topics = ["g-plain", "__consumer_offsets"]
    known = {key[0] for key, offset in committed().items() if key[1:] == ("g-plain", 1) and offset > 0}
    assert known
    expected = {group: [reset(group, "g-plain", 1, 0)] for group in known}
    into = formatted(tmp_path / "new")
    for dry_run in (True, False, False):
        report = restore(sources, into, topics=topics, new_cluster=True, dry_run=dry_run)
        assert [tuple(each) for each in report.missing] == [("g-plain", 1)]
        assert groups_told(report) == expected
    # A disk that came later has it.
    restore(SOURCES, into, topics="g-plain", new_cluster=True)
    report = restore(sources, into, topics=topics, new_cluster=True)
    assert report.missing
    assert not groups_told(report)
    # In a folder nobody says that it begins empty.
    assert not groups_told(restore(sources, tmp_path / "folder", topics=topics))


def commit_of(group: bytes, topic: str, partition: int, offset: int) -> tuple[bytes, bytes]:
    """Key and value of a committed offset."""
    name = topic.encode()
    key = struct.pack(f">hh{len(group)}sh{len(name)}si", 1, len(group), group, len(name), name, partition)
    return key, bytes(2) + struct.pack(">q", offset) + bytes(10)


def test_groups_of_a_missing_partition_that_a_stopped_broker_has_are_told(tmp_path: Path) -> None:
    """It is empty there."""
    source, into = tmp_path / "old", formatted(tmp_path / "new")
    (into / "bootstrap.checkpoint").unlink()
    for name in ("g-epochs-0", "g-epochs-1", "__consumer_offsets-0"):
        with Log.open(into / name, "a", single_replica=True):
            pass
    source.mkdir()
    shutil.copytree(CLEAN_LOG_DIRS[0] / "g-epochs-0", source / "g-epochs-0")
    with Log.open(source / "__consumer_offsets-0", "a") as log:
        for partition in (0, 1):
            key, value = commit_of(b"g", "g-epochs", partition, 40)
            log.append(value, key=key, timestamp=T)
    report = restore([source, CLEAN / "metadata-dir"], into, topics=["g-epochs", "__consumer_offsets"])
    assert report.target == "stopped-broker"
    assert ("g-epochs", 1) in report.missing
    assert groups_told(report) == {"g": [reset("g", "g-epochs", 1, 0)]}


def test_groups_behind_a_time_that_another_replica_has(tmp_path: Path) -> None:
    """The log ends before the end of the plan: what was built counts."""
    sources = [replica(tmp_path / "a", node=1, lacks=32), replica(tmp_path / "b", node=2, lacks=64)]
    key, value = commit_of(b"g", WHOLE, 0, 50)
    with Log.open(sources[0] / "__consumer_offsets-0", "a") as log:
        log.append(value, key=key, timestamp=T)
    topics = [WHOLE, "__consumer_offsets"]
    report = restore(sources, tmp_path / "new", topics=topics, until=UNTIL, dry_run=True)
    assert not groups_told(report)
    report = restore(sources, tmp_path / "new", topics=topics, until=UNTIL)
    assert groups_told(report) == {"g": [reset("g", WHOLE, 0, 40)]}


def test_an_end_of_a_partition_that_nobody_has_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Written wrong, it would be ignored, and all of the partition restored."""
    for number, key in enumerate((("g-epoch", 0), ("g-epochs", 7))):
        with pytest.raises((ValueError, OffsetLogError), match=f"{key[0]}-{key[1]}, which is in none of the sources"):
            restore(SOURCES, tmp_path / "new", topics="g-epochs", ends={key: 10})
        lines = tmp_path / f"{number}.csv"
        lines.write_text(f"g-epochs,0,10\n{key[0]},{key[1]},3\n")
        words = ["offsetlog", "restore", *map(str, SOURCES), "--into", str(tmp_path / "new"), "--offsets", str(lines)]
        assert run_cli(words, []) == 2
        assert f"{key[0]}-{key[1]}" in capfd.readouterr().err
    assert not (tmp_path / "new").exists()
    # A file of the whole cluster goes with one topic of it; a partition that is missing is told as that.
    report = restore(SOURCES[2], tmp_path / "new", topics="g-plain", ends={("g-epochs", 0): 10, ("g-plain", 1): 5}, dry_run=True)
    assert len(report.missing) == 3


def test_an_end_behind_the_log_is_told(tmp_path: Path) -> None:
    (golden,) = named("g-epochs-0")
    report = restore(golden.directory, tmp_path / "new", ends={("g-epochs", 0): golden.end + 1}, dry_run=True)
    assert report.warnings == (f"g-epochs-0 ends at offset {golden.end}, before the end that is given, {golden.end + 1}",)
    assert not restore(golden.directory, tmp_path / "new", ends={("g-epochs", 0): golden.end}, dry_run=True).warnings


T = 1_700_000_000_000


def compacted(place: Path) -> Path:
    """Key `a` has a newer value, which compaction has kept."""
    config: dict[str, str | float] = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01, "min.compaction.lag.ms": 0}
    with Log.open(place / "prices-0", "a", config=config) as log:
        log.append(b"v1", key=b"a", timestamp=T)
        log.append(b"x", key=b"b", timestamp=T + 10)
        log.append(b"v2", key=b"a", timestamp=T + 1000)
        log.roll()
        log.append(b"y", key=b"c", timestamp=T + 2000)
        log.compact()
        log.append(b"z", key=b"d", timestamp=T + 3000)
    return place


def test_keys_whose_newer_value_is_cut_off_are_told(tmp_path: Path) -> None:
    """The older one was compacted away: at that time the topic had the key, and what is restored has not."""
    source = compacted(tmp_path / "old")
    report = restore(source, tmp_path / "a", until=T + 500)
    with Log.open(tmp_path / "a" / "prices-0") as log:
        assert [record.key for record in log.scan()] == [b"b"]
    (warning,) = report.warnings
    assert warning.startswith("prices is compacted, and keys whose newest value lies behind the cut are lost")
    # What was compacted lies before the cut: each key has the value that it had.
    for number, until in enumerate((T + 2500, T + 9000)):
        assert not restore(source, tmp_path / f"b{number}", until=until).warnings
    assert restore(source, tmp_path / "c", ends={("prices", 0): 2}, dry_run=True).warnings == (warning,)
    # By the broker's checkpoint, too.
    (golden,) = named("g-compact-0")
    for end, is_told in ((761, True), (762, False)):
        ends = {("g-compact", 0): end}
        report = restore(golden.directory.parent, tmp_path / "d", topics="g-compact", ends=ends, dry_run=True)
        assert any("is compacted" in each for each in report.warnings) == is_told


def open_told(report: RestoreReport) -> dict[str, tuple[str, ...]]:
    return {each.about: each.commands for each in report.remaining if "transaction is open" in each.reason}


def test_a_transaction_that_the_coordinator_has_ended_is_ended_by_hand(tmp_path: Path) -> None:
    """Its marker is cut off, and by its state, which is restored too, the coordinator has nothing left to do."""
    (golden,) = named("g-txn-1")
    with Log.open(golden.directory) as log:
        markers = [batch for batch in log.batches() if batch.is_control]
    cut = markers[3]
    into = formatted(tmp_path / "new")
    topics = ["g-txn", "__transaction_state"]
    report = restore(SOURCES, into, topics=topics, new_cluster=True, ends={("g-txn", 1): cut.base_offset})
    told = open_told(report)
    (about,) = (about for about in told if about.startswith("g-txn-1 "))
    (command,) = told[about]
    assert command == f"offsetlog end-transaction g-txn-1 {cut.producer_id} {into} --dry-run"
    # Its producer is at work by the coordinator's state: that one aborts it when its time is up.
    (about,) = (about for about in told if about.startswith("g-txn-0 "))
    assert told[about] == ()
    # The command works, and names what it needs to be sure.
    before = tree(into)
    words = shlex.split(command)
    assert run_cli([*words, "--abort", "--without-state"], []) == 0
    assert tree(into) == before
    words.remove("--dry-run")
    assert run_cli([*words, "--abort", "--without-state"], []) == 0
    with Log.open(into / "g-txn-1") as log:
        assert log.last_stable_offset == log.log_end_offset == cut.base_offset + 1


def test_without_the_coordinators_state_nobody_knows(tmp_path: Path) -> None:
    (golden,) = named("g-txn-1")
    with Log.open(golden.directory) as log:
        markers = [batch for batch in log.batches() if batch.is_control]
    ends = {("g-txn", 1): markers[3].base_offset}
    report = restore(SOURCES, formatted(tmp_path / "new"), topics="g-txn", new_cluster=True, ends=ends)
    (commands,) = open_told(report).values()
    assert any("producers" in command for command in commands)


def test_offsets_of_an_earlier_topic_of_the_name_are_not_behind_the_end(tmp_path: Path) -> None:
    """A broker passes over them (KIP-848, version 4 of the value); to set them back would skip what the group has not read."""
    source = tmp_path / "old"
    source.mkdir()
    shutil.copy(CLEAN_LOG_DIRS[0] / "meta.properties", source)
    shutil.copytree(CLEAN_LOG_DIRS[0] / "g-epochs-0", source / "g-epochs-0")
    lines = (source / "g-epochs-0" / "partition.metadata").read_text().split()
    own = base64.urlsafe_b64decode(lines[-1] + "==")

    def text(value: bytes) -> bytes:
        return struct.pack(">h", len(value)) + value

    with Log.open(source / "__consumer_offsets-0", "a") as log:
        for group, topic_id in ((b"of-another", bytes(15) + b"\7"), (b"of-this", own), (b"of-none", bytes(16))):
            key = struct.pack(">h", 1) + text(group) + text(b"g-epochs") + struct.pack(">i", 0)
            value = struct.pack(">hqi", 4, 500, 0) + b"\1" + struct.pack(">q", 1_700_000_000_000) + b"\1\0\x10" + topic_id
            log.append(value, key=key)
    report = restore(source, formatted(tmp_path / "new"), new_cluster=True, dry_run=True)
    assert set(groups_told(report)) == {"of-this", "of-none"}
    # What was of another topic in the source too is not lost by this.
    assert not void_told(report)


def void_told(report: RestoreReport) -> dict[str, tuple[str, ...]]:
    return {each.about: each.commands for each in report.remaining if "coordinator passes over them" in each.reason}


@pytest.mark.parametrize("dry_run", [True, False])
def test_offsets_that_another_id_of_the_topic_makes_void_are_told(dry_run: bool, tmp_path: Path) -> None:
    """The cluster's topic of the name was made by hand, with an id of its own."""
    ids = [bytes(range(16, 32)), bytes(range(32, 48))]
    own, other = (base64.urlsafe_b64encode(each).decode().rstrip("=") for each in ids)
    with Log.open(tmp_path / "old" / "orders-0", "a", topic_id=own) as log:
        log.append(b"value", timestamp=T)
    with Log.open(tmp_path / "old" / "__consumer_offsets-0", "a", config={"cleanup.policy": "compact"}) as log:
        for group, topic_id in (("of-the-old", ids[0]), ("of-the-new", ids[1]), ("of-none", bytes(16))):
            key = struct.pack(f">hh{len(group)}sh6si", 1, len(group), group.encode(), 6, b"orders", 0)
            value = struct.pack(">hqi", 4, 1, 0) + b"\1" + struct.pack(">q", T) + b"\1\0\x10" + topic_id
            log.append(value, key=key, timestamp=T)
    into = formatted(tmp_path / "new")
    (into / "bootstrap.checkpoint").unlink()
    with Log.open(into / "orders-0", "a", topic_id=other, single_replica=True):
        pass
    with Log.open(into / "__consumer_offsets-0", "a", single_replica=True):
        pass
    report = restore(tmp_path / "old", into, topics=["orders", "__consumer_offsets"], dry_run=dry_run)
    assert void_told(report) == {"of-the-old": ("offsetlog groups SOURCE -g of-the-old --reset-csv > offsets.csv",)}
    (reason,) = [each.reason for each in report.remaining if each.about == "of-the-old" and "passes over" in each.reason]
    assert "orders-0 at 1" in reason


OLD = OLD_LOG_DIRS[0]
"""Its `o-v0-*` have messages of magic 0: no record has a timestamp."""


def test_a_log_without_timestamps_is_not_cut_at_a_time(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nobody knows which records are before: it is refused, and the others are restored. All of it would be too much, nothing too little."""
    topics = ["o-v0-none", "o-v0-gzip", "o-v0-appendtime", "o-v1-none"]
    for until in (0, 978_307_200_000, 4_102_444_800_000):
        for dry_run in (True, False):
            report = restore(OLD, tmp_path / str(until), topics=topics, until=until, dry_run=dry_run)
            refused = [each for each in report.partitions if each.state == "refused"]
            assert [each.topic for each in refused] == ["o-v0-appendtime", "o-v0-gzip", "o-v0-none"]
            assert all("name the offset where it is to end in --offsets" in (each.reason or "") for each in refused)
            assert report.has_losses
        assert [path.name for path in (tmp_path / str(until)).iterdir() if "-v0-" in path.name] == []
    words = [
        "offsetlog",
        "restore",
        str(OLD),
        "--into",
        str(tmp_path / "cli"),
        "-t",
        "o-v0-none",
        "-t",
        "o-v1-none",
        "--until",
        "2001-01-01T00:00:00Z",
    ]
    assert run_cli(words, []) == 2
    out = capfd.readouterr().out
    assert "o-v0-none-0: refused: " in out
    assert "o-v1-none-0: 0 records restored" in out


def test_an_offset_ends_a_log_without_timestamps(tmp_path: Path) -> None:
    """As the reason says: also one behind which nothing is, for all of it."""
    with Log.open(OLD / "o-v0-none-0") as log:
        whole, end = log.scan().count(), log.log_end_offset
    assert whole > 0
    report = restore(OLD, tmp_path / "plan", topics="o-v0-none", until=1, dry_run=True)
    assert f"with {end}, all of it is restored" in (report.partitions[0].reason or "")
    for number, records in ((end, whole), (10, 10), (0, 0)):
        ends = {("o-v0-none", 0): number}
        report = restore(OLD, tmp_path / str(number), topics="o-v0-none", until=1, ends=ends)
        assert [(each.state, each.records) for each in report.partitions] == [("restored", records)]
        assert not report.has_losses


def test_messages_without_timestamps_before_others_are_older(tmp_path: Path) -> None:
    """A topic whose message format was raised: what comes before a record that is before the time, is before it too."""
    with Log.open(OLD / "o-upgraded-0") as log:
        times = [(record.offset, record.timestamp) for record in log.scan()]
    timed = [(offset, time) for offset, time in times if time >= 0]
    assert timed[0] != times[0]
    assert timed[-1] == times[-1]
    for nth in (0, 1, len(timed) - 1):
        stop, until = next((offset, time) for offset, time in timed if time >= timed[nth][1])
        report = restore(OLD, tmp_path / str(nth), topics="o-upgraded", until=until)
        (each,) = report.partitions
        if stop == timed[0][0]:
            # No record says that those before it are.
            assert each.state == "refused"
            continue
        assert (each.state, each.log_end_offset) == ("restored", stop)
        assert each.records == sum(offset < stop for offset, _ in times)


def test_an_empty_log_needs_no_time(tmp_path: Path) -> None:
    with Log.open(tmp_path / "old" / "empty-0", "a"):
        pass
    with Log.open(tmp_path / "old" / "removed-0", "a") as log:
        log.append(b"value", timestamp=-1)
        log.delete_records_before(1)
    report = restore(tmp_path / "old", tmp_path / "new", until=T)
    assert [each.state for each in report.partitions] == ["restored", "restored"]
    assert not report.has_losses


@pytest.mark.parametrize("lost", ["", "the end", "the middle"])
def test_damage_behind_which_no_record_has_a_timestamp(lost: str, tmp_path: Path) -> None:
    """The last record that can be read counts."""
    source = tmp_path / "old"
    with Log.open(source / "orders-0", "a") as log:
        for time in (T, -1, -1):
            log.append(b"value", timestamp=time)
            log.roll()
        log.append(b"value", timestamp=-1 if lost != "the middle" else T + 1)
    if lost:
        base = 3 if lost == "the end" else 2
        (source / "orders-0" / f"{base:020}.log").write_bytes(bytes(100) if lost == "the middle" else b"\xff" * 100)
    report = restore(source, tmp_path / "new", until=T + 100)
    assert [each.state for each in report.partitions] == ["restored" if lost == "the middle" else "refused"]
