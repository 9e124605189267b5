"""Groups of consumers: what Kafka's own dump tool decodes, commits of every version, transactions, members of every kind of group."""

from __future__ import annotations

import base64
import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS, CLEAN_PARTITIONS, DATA

from offsetlog import (
    CorruptionError,
    Group,
    GroupMember,
    GroupOffset,
    Log,
    LogDir,
    OffsetLogError,
    UnreadPartitionsError,
    UnsupportedVersionError,
)

OFFSETS = "__consumer_offsets"
METADATA = CLEAN / "metadata-dir"
KEY = bytes.fromhex("000100036772700003746f7000000003")
"""Group grp, topic top, partition 3."""
VALUES = {
    "0": "0000000000000000002a00046d65746100000000000003e8",
    "1": "0001000000000000002a00046d65746100000000000003e80000000000000009",
    "2": "0002000000000000002a00046d65746100000000000003e8",
    "3": "0003000000000000002a0000000700046d65746100000000000003e8",
    "4": "0004000000000000002a00000007056d65746100000000000003e801001031627a1474df458cbaee3cf065d7aa49",
}
"""As Kafka's own classes write one commit in each version."""


def text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def compact(value: str) -> bytes:
    return bytes([len(value) + 1]) + value.encode()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with LogDir.open(tmp_path / "logs", "a") as logs:
        logs.create_topic(OFFSETS)
    return tmp_path / "logs"


def groups(place: Path, *records: tuple[bytes, bytes | None]) -> list[Group]:
    """What is there once these records are, too."""
    if records:
        with Log.open(place / f"{OFFSETS}-0", "a") as log:
            log.append_records(list(records))
    with LogDir.open(place) as logs:
        return logs.groups()


def test_records_that_are_not_known_are_told(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Coordinators pass over types of later versions in silence; whoever looks for a group wants to know."""
    records = [(b"\x7f\0what", b"is this"), (b"\0\x7e", None), (None, b"no key"), (KEY, bytes.fromhex(VALUES["0"]))]
    with Log.open(place / f"{OFFSETS}-0", "a") as log:
        log.append_records(records)
    with caplog.at_level(logging.WARNING, "offsetlog"):
        assert [group.group_id for group in groups(place)] == ["grp"]
    assert [record.getMessage() for record in caplog.records] == [
        f"{OFFSETS}-0: 2 records left out, their type is not known; the first at offset 0: type 32512",
        f"{OFFSETS}-0: 1 record left out, they have no key; the first at offset 2: 6 bytes of value",
    ]
    command = [sys.executable, "-m", "offsetlog", "groups", str(place)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "2 records left out" in printed.stderr


@pytest.mark.parametrize(
    ("places", "missing"),
    [
        (CLEAN_LOG_DIRS, None),
        ((*CLEAN_LOG_DIRS, METADATA), None),
        # Of log-dir-1, with partition 0, nobody knows without metadata that there is another one.
        (CLEAN_LOG_DIRS[:1], None),
        ((CLEAN_LOG_DIRS[0], METADATA), "1 partition of __consumer_offsets is not here (1), and the groups in it are not shown"),
        (CLEAN_LOG_DIRS[1:], "1 partition of __consumer_offsets is not here (0), and the groups in it are not shown"),
        ((METADATA,), "2 partitions of __consumer_offsets are not here (0, 1), and the groups in them are not shown"),
    ],
)
def test_partitions_that_are_missing_are_told(places: tuple[Path, ...], missing: str | None, caplog: pytest.LogCaptureFixture) -> None:
    """Each holds a part of the groups; whoever rescues offsets wants to know that some are elsewhere."""
    with caplog.at_level(logging.WARNING, "offsetlog"), LogDir.open(places) as logs:
        logs.groups()
    assert [record.getMessage() for record in caplog.records] == ([] if missing is None else [missing])


@pytest.mark.parametrize("asked", [[], ["--members"], ["--prometheus"]])
def test_metadata_that_cannot_be_read_is_told(tmp_path: Path, asked: list[str]) -> None:
    """Once, and beside the groups: without it nobody knows of the partition that is missing."""
    logs = [Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in (CLEAN_LOG_DIRS[0], METADATA)]
    path = logs[1] / "__cluster_metadata-0" / f"{0:020}.log"
    sound = path.read_bytes()
    path.write_bytes(sound[:-500] + bytes([sound[-500] ^ 0xFF]) + sound[-499:])
    for place in METADATA.glob("__cluster_metadata-0/*.snapshot"):
        (logs[1] / "__cluster_metadata-0" / place.name).unlink()
    with LogDir.open(logs) as log_dir, pytest.raises(UnreadPartitionsError) as caught:
        log_dir.groups()
    assert [group.group_id for group in caught.value.partial] == ["g-group-2"]
    assert [(partition.topic, partition.partition) for partition in caught.value.failed] == [("__cluster_metadata", 0)]
    printed = run(*map(str, logs), *asked)
    assert printed.returncode == 2
    assert "g-group-2" in printed.stdout or asked == ["--members"]
    assert printed.stderr.count("offsetlog: __cluster_metadata-0: ") == len(printed.stderr.splitlines()) == 1


def test_groups_of_a_real_broker() -> None:
    """The last commit of each group and partition, but those of a group that was deleted; groups whose members have left."""
    newest = {}
    lines = (DATA / "expected" / "kafka-4.3.0-clean" / "committed-offsets.jsonl").read_text(encoding="utf-8").splitlines()
    for line in map(json.loads, lines):
        newest[tuple(line["key"].values())] = line["payload"]
    ends = {(golden.topic, golden.partition): golden.end for golden in CLEAN_PARTITIONS}
    expected = {
        key: (value["offset"], value["leaderEpoch"], value["metadata"], value["commitTimestamp"], ends[key[1:]])
        for key, value in newest.items()
        if value is not None
    }
    assert len(expected) == 8
    with LogDir.open(CLEAN_LOG_DIRS) as logs:
        found = logs.groups()
    assert {
        (group.group_id, each.topic, each.partition): (
            each.offset,
            each.leader_epoch,
            each.metadata,
            each.commit_timestamp,
            each.log_end_offset,
        )
        for group in found
        for each in group.offsets
    } == expected
    assert [(group.group_id, group.kind, group.protocol_type, group.epoch, group.members) for group in found] == [
        (f"g-group-{number}", "classic", "consumer", 2, ()) for number in (1, 2)
    ]
    assert [group.lag for group in found] == [182, 181]


@pytest.mark.parametrize("version", list(VALUES))
def test_commits_of_every_version(place: Path, version: str) -> None:
    epoch = 7 if version >= "3" else None
    (group,) = groups(place, (KEY, bytes.fromhex(VALUES[version])))
    topic_id = "MWJ6FHTfRYy67jzwZdeqSQ" if version == "4" else None
    offset = GroupOffset("top", 3, 42, epoch, "meta", 1000, None, None, topic_id=topic_id)
    assert group == Group("grp", "", None, None, None, None, (), (offset,))


def test_a_null_value_deletes(place: Path) -> None:
    assert groups(place, (KEY, bytes.fromhex(VALUES["3"])), (KEY, None)) == []


def test_transactions(tmp_path: Path) -> None:
    """An open one keeps nothing back that others committed; its own commits, and aborted ones, do not count."""

    def commit(group: str, offset: int) -> tuple[bytes, bytes]:
        key = b"\0\1" + text(group) + bytes.fromhex("0003746f7000000003")
        return key, bytes.fromhex("0000") + offset.to_bytes(8, "big") + bytes(10)

    def found() -> list[int]:
        with LogDir.open(tmp_path) as logs:
            return [each.offset for group in logs.groups() for each in group.offsets]

    with LogDir.open(tmp_path, "a") as logs:
        logs.create_topic(OFFSETS)
        log = logs.log(OFFSETS, 0)
        log.append_records([commit("a", 1), commit("b", 1), commit("c", 1)])
        for producer, offset in ((1, 2), (2, 3), (3, 4)):
            record = [commit("abc"[producer - 1], offset)]
            log.append_records(record, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
        log.append_marker(1, 0, commit=True)
        log.append_marker(2, 0, commit=False)
        assert found() == [2, 1, 1]
        log.append_records([commit("b", 7), commit("c", 8)])
        assert found() == [2, 7, 8]
        log.append_marker(3, 0, commit=True)
    # What was committed behind the transaction's own commit is newer.
    assert found() == [2, 7, 8]


@pytest.mark.parametrize("end", ["a commit", "an abort", None])
def test_a_deleted_offset_does_not_come_back_with_a_transaction(
    end: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A null value deletes what open transactions wait to commit, too; what they commit behind it counts, and so do other offsets."""

    def commit(partition: int, offset: int | None) -> tuple[bytes, bytes | None]:
        key = b"\0\1" + text("g") + text("top") + partition.to_bytes(4, "big")
        return key, None if offset is None else bytes.fromhex("0000") + offset.to_bytes(8, "big") + bytes(10)

    with LogDir.open(tmp_path, "a") as logs:
        logs.create_topic(OFFSETS)
        log = logs.log(OFFSETS, 0)
        log.append_records([commit(number, 5) for number in range(3)])
        records = [commit(number, 50) for number in range(3)]
        log.append_records(records, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        log.append_records([commit(0, None), commit(1, None)])
        log.append_records([commit(1, 60)], producer_id=7, producer_epoch=0, base_sequence=3, transactional=True)
        # All that this one waits to commit is deleted: nothing of it is left to be told.
        log.append_records([commit(3, 70)], producer_id=8, producer_epoch=0, base_sequence=0, transactional=True)
        log.append_records([commit(3, None)])
        if end is not None:
            log.append_marker(7, 0, commit=end == "a commit")
    with LogDir.open(tmp_path) as reader, caplog.at_level(logging.WARNING, "offsetlog"):
        (group,) = reader.groups()
        expected = [(1, 60), (2, 50)] if end == "a commit" else [(2, 5)]
        assert [(each.partition, each.offset) for each in group.offsets] == expected
    told = [record.getMessage() for record in caplog.records if "committed in a transaction" in record.getMessage()]
    assert len(told) == (end is None)
    assert all("2 offsets that group g committed in a transaction of producer 7" in line for line in told)


def test_members_of_a_classic_group(place: Path) -> None:
    assignment = (
        b"\0\1" + (1).to_bytes(4, "big") + text("orders") + (2).to_bytes(4, "big") + bytes.fromhex("0000000200000000") + b"\xff" * 4
    )
    member = text("m-1") + text("i-1") + text("app") + text("/10.0.0.7") + bytes(8)
    member += bytes(4) + len(assignment).to_bytes(4, "big") + assignment
    value = b"\0\3" + text("consumer") + (5).to_bytes(4, "big") + text("range") + text("m-1") + bytes(8)
    value += (1).to_bytes(4, "big") + member
    (group,) = groups(place, (b"\0\2" + text("grp"), value))
    assert group[:6] == ("grp", "classic", "consumer", "range", 5, "m-1")
    assert group.members == (GroupMember("m-1", "i-1", "app", "/10.0.0.7", (("orders", (0, 2)),)),)
    assert groups(place, (b"\0\2" + text("grp"), None)) == []


def test_an_assignment_of_any_bytes_hides_no_group(place: Path) -> None:
    """A coordinator stores what a group's leader assigns without a look."""
    member = text("m-1") + b"\xff\xff" + text("app") + text("/10.0.0.7") + bytes(8) + bytes(4) + (1).to_bytes(4, "big") + b"\7"
    value = b"\0\3" + text("consumer") + (5).to_bytes(4, "big") + text("range") + text("m-1") + bytes(8)
    value += (1).to_bytes(4, "big") + member
    found = groups(place, (KEY, bytes.fromhex(VALUES["0"])), (b"\0\2" + text("odd"), value))
    assert [(group.group_id, len(group.members), len(group.offsets)) for group in found] == [("grp", 0, 1), ("odd", 1, 0)]
    assert found[1].members == (GroupMember("m-1", None, "app", "/10.0.0.7", ()),)
    printed = run(str(place))
    assert (printed.stdout.splitlines()[1].split()[0], printed.returncode) == ("grp", 0)
    assert "group odd: what 1 of its members are assigned cannot be decoded, first that of m-1" in printed.stderr


def test_members_of_a_new_group(place: Path) -> None:
    """Partitions are given by topic ids: names are those of the topics that are here."""
    with LogDir.open(place, "a") as logs:
        logs.create_topic("orders", 2)
        known = logs.log("orders", 0).topic_id
    assert known is not None
    unknown = bytes(range(16))
    member = text("grp") + text("m-1")
    metadata = b"\0\0" + compact("i-1") + b"\0" + compact("app") + compact("/10.0.0.7") + b"\1\0" + bytes(4) + b"\0\0"
    partitions = (
        b"\3"
        + base64.urlsafe_b64decode(known + "==")
        + b"\3"
        + bytes.fromhex("0000000100000000")
        + b"\0"
        + unknown
        + b"\2"
        + bytes(4)
        + b"\0"
    )
    current = b"\0\0" + bytes(4) + bytes(4) + b"\0" + partitions + b"\1" + b"\0"
    records = [
        (b"\0\3" + text("grp"), b"\0\0" + (9).to_bytes(4, "big") + b"\0"),
        (b"\0\5" + member, metadata),
        (b"\0\x08" + member, current),
    ]
    (group,) = groups(place, *records)
    assert group[:6] == ("grp", "consumer", None, None, 9, None)
    (found,) = group.members
    assert found[:4] == ("m-1", "i-1", "app", "/10.0.0.7")
    assert dict(found.assignment) == {"orders": (0, 1), "AAECAwQFBgcICQoLDA0ODw": (0,)}
    # Where the metadata of the cluster is here, too, it knows the names of all topics.
    with LogDir.open(place, "a") as logs:
        logs.create_topic("__cluster_metadata")
        logs.log("__cluster_metadata", 0).append_records([(None, b"\1\2\0" + compact("far") + unknown + b"\0")])
    assert dict(groups(place)[0].members[0].assignment) == {"orders": (0, 1), "far": (0,)}
    assert groups(place, (b"\0\x08" + member, None), (b"\0\5" + member, None))[0].members == ()


def test_records_that_are_not_known_are_passed_over(place: Path) -> None:
    assert groups(place, (b"\x7f\0what", b"is this"), (b"\0\4" + text("grp"), None)) == []


@pytest.mark.parametrize(
    ("value", "error"), [("00", CorruptionError), ("0009", UnsupportedVersionError), ("0003000000000000002a", CorruptionError)]
)
def test_records_that_cannot_be_read_are_errors(place: Path, value: str, error: type[OffsetLogError]) -> None:
    with pytest.raises(error) as caught:
        groups(place, (KEY, bytes.fromhex(VALUES["3"])), (KEY, bytes.fromhex(value)))
    assert (caught.value.offset, Path(str(caught.value.path)).name) == (1, "00000000000000000000.log")


def test_log_dirs_without_groups(tmp_path: Path) -> None:
    with LogDir.open(tmp_path, "a") as logs:
        logs.create_topic("t")
        assert logs.groups() == []


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "offsetlog", "groups", *arguments], capture_output=True, text=True, check=False, timeout=300
    )


def test_the_command_prints_the_same() -> None:
    places = list(map(str, CLEAN_LOG_DIRS))
    with LogDir.open(CLEAN_LOG_DIRS) as logs:
        wanted = {(group.group_id, *each[:3], each.log_end_offset, each.lag) for group in logs.groups() for each in group.offsets}
    printed = run(*places)
    rows = {(*row[:2], *map(int, row[2:6])) for row in map(str.split, printed.stdout.splitlines()[1:])}
    assert (rows, printed.returncode) == (wanted, 0)
    told = list(map(json.loads, run(*places, "--json").stdout.splitlines()))
    assert {
        (group["group"], *(each[name] for name in ("topic", "partition", "offset", "log_end_offset", "lag")))
        for group in told
        for each in group["offsets"]
    } == wanted
    assert [group["kind"] for group in told] == ["classic", "classic"]


def test_the_command_chooses_and_escapes(place: Path) -> None:
    name = "a\x1b[31m\nb"
    assignment = b"\0\1" + (1).to_bytes(4, "big") + text("orders") + (1).to_bytes(4, "big") + bytes(4) + b"\xff" * 4
    member = text("m\x07") + b"\xff\xff" + text("app") + text("/10.0.0.7") + bytes(8) + bytes(4) + len(assignment).to_bytes(4, "big")
    value = b"\0\3" + text("consumer") + bytes(4) + b"\xff\xff" * 2 + bytes(8) + (1).to_bytes(4, "big") + member + assignment
    groups(place, (b"\0\2" + text(name), value), (KEY, bytes.fromhex(VALUES["0"])))
    for arguments in ((), ("--members",), ("--json",)):
        printed = run(str(place), *arguments).stdout
        assert not any(character in printed for character in "\x1b\x07"), arguments
    assert run(str(place), "--members").stdout.split()[7:] == [
        r"a\x1b[31m\nb",
        "classic",
        r"m\x07",
        "-",
        "app",
        "/10.0.0.7",
        "orders(0)",
    ]
    chosen = run(str(place), "-g", "grp", "-g", "none")
    assert [line.split()[0] for line in chosen.stdout.splitlines()] == ["GROUP", "grp"]
    assert "no group none here" in chosen.stderr
    assert run(str(place), "-g", "none").returncode == 1
