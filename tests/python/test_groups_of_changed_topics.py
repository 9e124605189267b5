"""``groups`` where ``__consumer_offsets`` lost something or got more partitions, where a topic was made anew, and where a transaction has
no end: an old offset is never given for the newest one.

Keys and values are FORMAT.md's; which partition a group is in is Java's hash of its name, as Kafka's ``partitionFor`` has it.
"""

from __future__ import annotations

import base64
import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS
from make_log import batch, segment

from offsetlog import Log, LogDir, LogDirError, UnreadPartitionsError

OFFSETS = "__consumer_offsets"


def text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def commit(group: str, topic: str, offset: int, partition: int = 0, topic_id: str | None = None) -> tuple[bytes, bytes]:
    """A commit of version 3, or 4 with a topic id."""
    key = b"\0\1" + text(group) + text(topic) + partition.to_bytes(4, "big")
    start = offset.to_bytes(8, "big", signed=True) + (-1).to_bytes(4, "big", signed=True)
    time = (1_700_000_000_000).to_bytes(8, "big")
    if topic_id is None:
        return key, b"\0\3" + start + text("") + time
    return key, b"\0\4" + start + b"\1" + time + b"\1\0\x10" + base64.urlsafe_b64decode(topic_id + "==")


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "offsetlog", "groups", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture
def disks(tmp_path: Path) -> list[Path]:
    return [Path(shutil.copytree(path, tmp_path / path.name)) for path in CLEAN_LOG_DIRS]


@pytest.mark.parametrize(("left", "offset"), [(1800, 155), (1598, 155), (0, None)])
def test_a_coordinator_that_lost_its_end_gives_no_old_offsets_in_silence(disks: list[Path], left: int, offset: int | None) -> None:
    """In the middle of a batch, between two, and all of it: by the checkpoint beside it there was more, and it was acknowledged."""
    segment = disks[1] / f"{OFFSETS}-1/{0:020}.log"
    with segment.open("r+b") as file:
        file.truncate(left)
    with LogDir.open(disks) as logs, pytest.raises(UnreadPartitionsError, match="high watermark of its log dir is 27") as raised:
        logs.groups()
    assert [*raised.value.failed] == [(OFFSETS, 1)]
    # What is left is all that there is after a power cut.
    found = {group.group_id: group for group in raised.value.partial}
    assert [*found] == (["g-group-2"] if offset is None else ["g-group-1", "g-group-2"])
    assert offset is None or next(each.offset for each in found["g-group-1"].offsets if each[:2] == ("g-plain", 0)) == offset
    for words in ((), ("--reset-csv",), ("--prometheus",), ("--state",)):
        ran = run(*disks, *words)
        assert ran.returncode == 2, ran
        assert f"{OFFSETS}-1: it ends at offset" in ran.stderr
        assert "what is left may be old" in ran.stderr


def test_an_emptied_folder_of_a_coordinator_has_lost_all(disks: list[Path]) -> None:
    for path in (disks[1] / f"{OFFSETS}-1").iterdir():
        path.unlink()
    ran = run(*disks, CLEAN / "metadata-dir")
    assert ran.returncode == 2
    assert f"{OFFSETS}-1: it ends at offset 0" in ran.stderr


def test_where_a_log_lost_its_end_no_lag_is_known(disks: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    """It would be too small, or negative."""
    place = next(path / "g-plain-0" for path in disks if (path / "g-plain-0").is_dir())
    last = max(place.glob("*.log"))
    for path in place.glob(f"{last.stem}.*"):
        path.unlink()
    with LogDir.open(disks) as logs, caplog.at_level(logging.WARNING, "offsetlog"):
        (offset,) = (
            each for group in logs.groups() if group.group_id == "g-group-1" for each in group.offsets if each[:2] == ("g-plain", 0)
        )
    assert (offset.offset, offset.log_end_offset, offset.lag, offset.first_unread_timestamp) == (18, None, None, None)
    assert "g-plain-0: it ends at offset" in caplog.text


def test_a_coordinator_whose_first_segment_is_missing_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with LogDir.open(tmp_path, "a") as logs:
        logs.create_topic(OFFSETS, config={"cleanup.policy": "compact"})
        log = logs.log(OFFSETS, 0)
        log.append_records([commit("first", "orders", 1)])
        log.roll()
        log.append_records([commit("second", "orders", 2)])
    for path in (tmp_path / f"{OFFSETS}-0").glob(f"{0:020}.*"):
        path.unlink()
    with LogDir.open(tmp_path) as logs, caplog.at_level(logging.WARNING, "offsetlog"):
        assert [group.group_id for group in logs.groups()] == ["second"]
    assert f"{OFFSETS}-0: it begins at offset 1: what is before was deleted, or a segment is missing, and is not shown" in caplog.text


@pytest.mark.parametrize("count", [2, 3])
def test_a_group_in_two_partitions_is_what_its_own_partition_says(
    tmp_path: Path, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic got more partitions: Kafka looks for ``billing`` in partition 1 of 2 (Java's hash of it is -109829509), 1 of 3."""
    with LogDir.open(tmp_path, "a") as logs:
        logs.create_topic(OFFSETS, count)
        logs.create_topic("orders", 2)
        logs.log(OFFSETS, 1).append_records([commit("billing", "orders", 90)])
        logs.log(OFFSETS, 0).append_records(
            [commit("billing", "orders", 10), commit("billing", "orders", 7, 1), commit("alone", "orders", 3)]
        )
    with LogDir.open(tmp_path) as logs, caplog.at_level(logging.WARNING, "offsetlog"):
        found = {(group.group_id, each.partition): each.offset for group in logs.groups() for each in group.offsets}
    assert found == {("billing", 0): 90, ("alone", 0): 3}
    assert f"group billing is in several partitions of {OFFSETS} (0, 1): only partition 1 counts" in caplog.text
    ran = run(tmp_path, "-g", "billing", "--reset-csv")
    assert (ran.returncode, ran.stdout) == (0, "orders,0,90\n")


def test_a_group_whose_partition_is_away_is_not_guessed(tmp_path: Path) -> None:
    """Of 50 partitions, of which two are here, neither is the one in which Kafka looks for it."""
    with LogDir.open(tmp_path, "a") as logs:
        logs.create_topic(OFFSETS, 50)
        for number, offset in ((3, 10), (4, 20)):
            logs.log(OFFSETS, number).append_records([commit("billing", "orders", offset)])
    ran = run(tmp_path, "--reset-csv")
    assert ran.stdout == ""
    assert "group billing is in several partitions of __consumer_offsets (3, 4) and is not shown" in ran.stderr


def test_the_greatest_partition_counts_even_if_it_cannot_be_read(tmp_path: Path) -> None:
    """Of 6 partitions Kafka looks for ``billing`` in partition 1; of 5, it would look in partition 4, which has old offsets."""
    with LogDir.open(tmp_path, "a") as logs:
        logs.create_topic(OFFSETS, 6)
        logs.create_topic("orders")
        for number, offset in ((1, 90), (4, 10), (5, 1)):
            logs.log(OFFSETS, number).append_records([commit("billing" if number < 5 else "other", "orders", offset)])
    damaged = tmp_path / f"{OFFSETS}-5" / f"{0:020}.log"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\xff")
    ran = run(tmp_path)
    assert ran.returncode == 2
    assert [line.split()[3] for line in ran.stdout.splitlines() if line.startswith("billing")] == ["90"], ran.stdout


def test_a_group_whose_own_partition_is_missing_is_told_to_be_old(disks: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    """The metadata has two partitions, and Kafka looks for ``billing`` in partition 1. Here is only partition 0, with an old offset of it."""
    place = next(path for path in disks if (path / f"{OFFSETS}-0").is_dir())
    with Log.open(place / f"{OFFSETS}-0", "a", single_replica=True, internal_topics=[OFFSETS]) as log:
        log.append_records([commit("billing", "g-plain", 1)])
    with LogDir.open([place, CLEAN / "metadata-dir"]) as logs, caplog.at_level(logging.WARNING, "offsetlog"):
        assert "billing" in {group.group_id for group in logs.groups()}
    assert "group billing: what is shown may be old" in caplog.text
    assert "partition 1, which is not here or cannot be read" in caplog.text


def test_offsets_of_an_earlier_topic_of_the_name_are_not_the_new_ones(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with LogDir.open(tmp_path, "a") as logs:
        logs.create_topic(OFFSETS)
        logs.create_topic("orders")
        logs.create_topic("kept")
        earlier, kept = (logs.log(topic, 0).topic_id for topic in ("orders", "kept"))
        logs.delete_topic("orders")
        logs.create_topic("orders")
        for topic in ("orders", "kept"):
            logs.log(topic, 0).append_records([(None, b"new")] * 450)
        now = logs.log("orders", 0).topic_id
        records = [commit("billing", "orders", 400, topic_id=str(earlier)), commit("billing", "kept", 400, topic_id=str(kept))]
        logs.log(OFFSETS, 0).append_records(records)
    with LogDir.open(tmp_path) as logs, caplog.at_level(logging.WARNING, "offsetlog"):
        (group,) = logs.groups()
        found = {each.topic: (each.offset, each.lag, each.topic_id, each.is_of_another_topic) for each in group.offsets}
        assert found == {"kept": (400, 50, kept, False), "orders": (400, None, earlier, True)}
        assert str(earlier) in caplog.text
        assert str(now) in caplog.text
        file = logs.groups_reset_csv()
        assert file.csv == "kept,0,400\n"
        assert [(group, topic) for group, topic, _ in file.refused] == [("billing", "orders")]
        assert logs.groups_reset_csv(["billing", "typo"]).csv == "kept,0,400\n"
        assert "no group typo here" in caplog.text
    ran = run(tmp_path, "--reset-csv")
    assert (ran.returncode, ran.stdout) == (2, "kept,0,400\n")
    assert "earlier topic of this name" in ran.stderr
    (line,) = map(json.loads, run(tmp_path, "--json").stdout.splitlines())
    assert {each["topic"]: each["topic_id"] for each in line["offsets"]} == {"kept": kept, "orders": earlier}


EARLIER = "AAAAAAAAAAAAAAAAAAAAAg"


def of_a_topic_made_anew(tmp_path: Path, of_commit: str | None, *, has_metadata: bool) -> list[Path]:
    """A broker that was down while g-plain was deleted and made again: its directories have the earlier topic's id."""
    for path in (*CLEAN_LOG_DIRS, CLEAN / "metadata-dir")[: 3 if has_metadata else 2]:
        shutil.copytree(path, tmp_path / path.name, ignore=shutil.ignore_patterns(f"{OFFSETS}-*", "replication-offset-checkpoint"))
    for file in tmp_path.glob("*/g-plain-*/partition.metadata"):
        file.write_text(f"version: 0\ntopic_id: {EARLIER}\n")
    # The name of a member's topic is looked up by its id before the offsets are.
    member = text("members") + text("m")
    partitions = b"\2" + bytes(range(16)) + b"\2" + bytes(4) + b"\0"
    names = b"\0\0\0\0" + b"\4app" + b"\2h" + b"\1\0" + bytes(4) + b"\0\0"
    records = [
        (b"\0\5" + member, names),
        (b"\0\x08" + member, b"\0\0" + bytes(8) + b"\0" + partitions + b"\1\0"),
        commit("billing", "g-plain", 150, topic_id=of_commit),
    ]
    segment(tmp_path / CLEAN_LOG_DIRS[0].name / f"{OFFSETS}-0", 0, batch(0, records))
    return sorted(tmp_path.iterdir())


@pytest.mark.parametrize("of_commit", [EARLIER, "now", None])
@pytest.mark.parametrize("has_metadata", [True, False])
def test_a_stray_directory_makes_no_offset_the_present_topics(
    of_commit: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, has_metadata: bool
) -> None:
    """Metadata that is complete decides which id the name has. Without it, the directory is all that there is."""
    with LogDir.open(CLEAN_LOG_DIRS) as logs:
        now = logs.log("g-plain", 0).topic_id
        end = logs.log("g-plain", 0).log_end_offset
    of_commit = now if of_commit == "now" else of_commit
    paths = of_a_topic_made_anew(tmp_path, of_commit, has_metadata=has_metadata)
    decides = now if has_metadata else EARLIER
    is_other = of_commit is not None and of_commit != decides
    with LogDir.open(paths) as logs, caplog.at_level(logging.WARNING, "offsetlog"):
        group, others = logs.groups()
        assert (group.group_id, others.group_id, len(others.members)) == ("billing", "members", 1)
        (offset,) = group.offsets
        assert (offset.offset, offset.is_of_another_topic) == (150, is_other)
        # The log that is here is the earlier topic's.
        has_lag = not has_metadata and not is_other
        assert (offset.lag, offset.first_unread_timestamp is not None) == (end - 150 if has_lag else None, has_lag)
        file = logs.groups_reset_csv()
        assert (file.csv, len(file.refused)) == (("", 1) if is_other else ("g-plain,0,150\n", 0))
    told = {record.getMessage() for record in caplog.records if "g-plain" in record.getMessage()}
    assert len(told) == (is_other or has_metadata)
    assert all(EARLIER in line and str(now) in line for line in told)
    stray = f"g-plain-0: its directory is of another topic of this name, with the topic id {EARLIER}"
    assert any(line.startswith(stray) for line in told) == (has_metadata and not is_other)


@pytest.mark.parametrize("has_metadata", [True, False])
def test_share_groups_have_one_row_for_a_partition(tmp_path: Path, caplog: pytest.LogCaptureFixture, *, has_metadata: bool) -> None:
    """Where the earlier topic was read is no place in the present one, and two samples of one name are none that Prometheus takes."""
    with LogDir.open(CLEAN_LOG_DIRS) as logs:
        now = str(logs.log("g-plain", 0).topic_id)
    paths = of_a_topic_made_anew(tmp_path, None, has_metadata=has_metadata)

    def snapshot(topic: str, start: int) -> tuple[bytes, bytes]:
        key = b"\0\0" + text("sg") + base64.urlsafe_b64decode(topic + "==") + bytes(4)
        epochs = b"".join(number.to_bytes(4, "big") for number in (1, 1, 0))
        return key, b"\0\0" + epochs + start.to_bytes(8, "big") + bytes(16) + b"\1" + b"\1\0\4" + bytes(4)

    folder = tmp_path / CLEAN_LOG_DIRS[0].name / "__share_group_state-0"
    segment(folder, 0, batch(0, [snapshot(EARLIER, 150), snapshot(now, 3)]))
    with LogDir.open(paths) as logs, caplog.at_level(logging.WARNING, "offsetlog"):
        group = next(group for group in logs.groups() if group.group_id == "sg")
        rows = {each.topic: (each.start_offset, each.log_end_offset is not None) for each in group.share_offsets}
        samples = [line.rpartition(" ")[0] for line in logs.groups_prometheus().splitlines() if not line.startswith("#")]
    if has_metadata:
        assert rows == {"g-plain": (3, False)}
        assert f'left out: where share group "sg" read topic "g-plain" with the id {EARLIER}' in caplog.text
    else:
        assert rows == {"g-plain": (150, True), now: (3, False)}
    assert len(samples) == len(set(samples))


def test_commits_that_wait_for_their_transaction_are_told(tmp_path: Path) -> None:
    with LogDir.open(tmp_path, "a") as logs:
        logs.create_topic(OFFSETS)
        log = logs.log(OFFSETS, 0)
        log.append_records([commit("billing", "orders", 10)])
        log.append_records(
            [commit("billing", "orders", 90), commit("billing", "orders", 5, 1)],
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
    ran = run(tmp_path, "--reset-csv")
    assert (ran.returncode, ran.stdout) == (0, "orders,0,10\n")
    assert "2 offsets that group billing committed in a transaction of producer 7 are not counted" in ran.stderr
    assert "offsetlog transactions" in ran.stderr


def test_a_lag_below_zero_makes_up_for_no_other(tmp_path: Path) -> None:
    with LogDir.open(tmp_path, "a") as logs:
        logs.create_topic(OFFSETS)
        logs.create_topic("orders", 2)
        for number in range(2):
            logs.log("orders", number).append_records([(None, b"v")] * 100)
        logs.log(OFFSETS, 0).append_records(
            [commit("billing", "orders", 160), commit("billing", "orders", 40, 1), commit("b", "orders", -1)]
        )
    with LogDir.open(tmp_path) as logs:
        other, group = logs.groups()
        assert ([each.lag for each in group.offsets], group.lag) == ([-60, 60], 60)
        assert [each.lag for each in other.offsets] == [None]
        assert 'kafka_consumergroup_lag_sum{consumergroup="billing",topic="orders"} 60' in logs.groups_prometheus()


def test_transactions_that_lost_their_end_end_nothing(tmp_path: Path) -> None:
    """An older record of a coordinator says «ongoing» where a later one said that it commits."""
    with LogDir.open(tmp_path, "a") as logs:
        logs.create_topic("__transaction_state")
        log = logs.log("__transaction_state", 0)
        for _ in range(2):
            log.append_records([(b"\0\0" + text("tx"), None)])
    segment = tmp_path / f"__transaction_state-0/{0:020}.log"
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size // 2)
    with LogDir.open(tmp_path) as logs, pytest.raises(LogDirError, match="it ends at offset 1"):
        logs.transactions()
