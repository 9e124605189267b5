"""``producers``, ``end-transaction`` and ``why``: what Kafka's snapshots hold of producers, and what each state of a coordinator allows."""

from __future__ import annotations

import gzip
import pickle
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS, OLD_LOG_DIRS, named
from held_records import DAY, NOW, PRODUCER, STATES, decide, lines, made, offsetlog, transactional
from test_transactions import DUMP
from writing import tree

from offsetlog import ConfigError, Log, LogDir, LogDirError, UnreadPartitionsError, end_transaction

pytestmark = pytest.mark.slow

Settings = dict[str, str | int | float]

METADATA = CLEAN / "metadata-dir"
ENTRY = struct.Struct(">qhiqiqiq")


def snapshot(path: Path) -> list[tuple[int | None, ...]]:
    """What a broker's producer snapshot holds: id, epoch, sequence, offset, timestamp, coordinator epoch, first offset of a transaction."""
    data = path.read_bytes()
    (count,) = struct.unpack_from(">i", data, 6)
    found = []
    for slot in range(count):
        producer, epoch, sequence, offset, _, timestamp, coordinator, first = ENTRY.unpack_from(data, 10 + slot * ENTRY.size)
        found.append((producer, epoch, *(None if value < 0 else value for value in (sequence, offset, timestamp, coordinator, first))))
    return sorted(found)


def at_the_end() -> list[Path]:
    """Partitions of which the broker took a snapshot when it stopped, with any producer in it."""
    found = []
    for log_dir in (*CLEAN_LOG_DIRS, *OLD_LOG_DIRS):
        for path in sorted(log_dir.glob("*-[0-9]*/")):
            newest = max(path.glob("*.snapshot"), default=None)
            with Log.open(path) as log:
                if newest is not None and int(newest.stem) == log.log_end_offset and snapshot(newest):
                    found.append(path)
    return found


@pytest.mark.parametrize("how", ["snapshots", "headers"])
def test_producers_are_those_of_the_brokers_snapshots(how: str, tmp_path: Path) -> None:
    """The broker's own state at its stop; without any snapshot the batches must give the same of every producer they show."""
    paths = at_the_end()
    assert len(paths) >= 7
    for path in paths:
        expected = snapshot(max(path.glob("*.snapshot")))
        copy = tmp_path / path.parent.name / path.name
        shutil.copytree(path, copy)
        if how == "headers":
            for each in copy.glob("*.snapshot"):
                each.unlink()
        names = (
            "producer_id",
            "producer_epoch",
            "last_sequence",
            "last_offset",
            "last_timestamp",
            "coordinator_epoch",
            "transaction_first_offset",
        )
        found = [tuple(line[name] for name in names) for line in lines("producers", copy)]
        if how == "headers":
            # Compaction and deletion take batches away that the broker had seen.
            with Log.open(copy) as log:
                first = log.log_start_offset
            expected = [each for each in expected if each in found or each[3] is None or each[3] >= first]
            found = [each for each in found if each[0] in {one[0] for one in expected}]
        assert found == expected, path


def test_open_transactions_of_a_stopped_broker() -> None:
    (found,) = lines("producers", *CLEAN_LOG_DIRS, METADATA, "--open")
    assert (found["topic"], found["partition"], found["producer_id"], found["transactional_id"]) == ("g-txn", 0, 1000, "g-tx-open")
    assert (found["transaction_first_offset"], found["state"], found["standing"]) == (347, "Ongoing", "ongoing")
    alone = lines("producers", next(CLEAN.glob("*/g-txn-0")), "--open")
    assert [(each["transactional_id"], each["standing"]) for each in alone] == [(None, "unknown")]
    # It is as old as its first record, as the consumer saw that.
    (golden,) = named("g-txn-0")
    (begun,) = [seen.timestamp for seen in golden.rows if seen.offset == 347]
    assert [each["transaction_start_timestamp"] for each in (found, *alone)] == [begun, begun]
    with LogDir.open(CLEAN_LOG_DIRS) as log_dir:
        times = [each.transaction_start_timestamp for each in log_dir.producers()]
        waits = [(each.offset, each.timestamp) for each in log_dir.why() if each.question == "read_committed"]
    assert [time for time in times if time is not None] == [begun]
    assert (347, begun) in waits
    later = begun + 2 * DAY + 3 * 3_600_000 + 59_000
    told = offsetlog("producers", *CLEAN_LOG_DIRS, "--open", "--now", later)
    heading, line = told.stdout.splitlines()
    at = heading.index("TXN-AGE")
    assert line[at : at + len("TXN-AGE")].strip() == "2d3h"
    (sentence,) = [each["sentence"] for each in lines("why", *CLEAN_LOG_DIRS, "--now", later, "-t", "g-txn") if each["offset"] == 347]
    assert ", 2d3h ago, " in sentence


def test_open_transactions_are_of_the_producers_that_are_listed(tmp_path: Path) -> None:
    """Of a killed broker too, whose newest snapshot is older: the markers behind it tell the coordinator's epoch. And without any."""
    unclean = CLEAN.parent / "unclean"
    bare = tmp_path / "bare" / "g-txn-0"
    shutil.copytree(unclean / "log-dir-2" / "g-txn-0", bare, ignore=shutil.ignore_patterns("*.snapshot"))
    for paths, first in (((*CLEAN_LOG_DIRS, METADATA), 347), ((unclean / "log-dir-1", unclean / "log-dir-2"), 483), ((bare,), 483)):
        everybody = lines("producers", *paths)
        found = lines("producers", *paths, "--open")
        assert found == [each for each in everybody if each["transaction_first_offset"] is not None]
        assert [each["transaction_first_offset"] for each in found] == [first]
    assert found[0]["coordinator_epoch"] == 0


def test_a_transaction_that_no_coordinator_knows_hangs(tmp_path: Path) -> None:
    clean = tmp_path / "clean"
    shutil.copytree(CLEAN, clean)
    dirs = (clean / "log-dir-1", clean / "log-dir-2", clean / "metadata-dir")
    place = next(clean.glob("log-dir-*/g-empty-0"))
    with Log.open(place, "a", metadata=clean / "metadata-dir", single_replica=True) as log:
        log.append_batches(transactional(77_000))
    found = {each["producer_id"]: each for each in lines("producers", *dirs, "--open")}
    assert (found[77_000]["standing"], found[1000]["standing"]) == ("hanging", "ongoing")
    # Without the metadata nobody can tell that no partition of the coordinators is missing.
    assert {each["standing"] for each in lines("producers", *dirs[:2], "--open")} == {"unknown", "ongoing"}
    refused = offsetlog("end-transaction", "g-empty-0", 77_000, *dirs, "--abort")
    assert refused.returncode == 2
    assert "--without-state" in refused.stderr
    answers = [each for each in lines("why", *dirs, "-t", "g-empty") if each["question"] == "read_committed"]
    assert [(each["reason"], each["producer"]["standing"]) for each in answers] == [("open-transaction", "hanging")]
    assert "kafka-transactions.sh" in answers[0]["remedy"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A log dir of a transaction without a marker, whose coordinator said nothing yet."""
    return made(tmp_path)


def outcome(place: Path, *options: str) -> str:
    """What `end-transaction` did, as a reader finds it."""
    before = tree(place)
    done = offsetlog("end-transaction", "top-0", PRODUCER, place, *options)
    if done.returncode:
        assert done.returncode == 2
        assert tree(place) == before
        return "refused"
    with Log.open(place / "top-0") as log:
        assert log.last_stable_offset == log.log_end_offset
        return "committed" if log.scan(isolation_level="read_committed").count() else "aborted"


CASES = [
    ("Ongoing", {}, ("refused", "aborted", "refused")),
    ("PrepareCommit", {}, ("committed", "refused", "committed")),
    ("PrepareAbort", {}, ("aborted", "aborted", "refused")),
    ("PrepareEpochFence", {}, ("aborted", "aborted", "refused")),
    ("CompleteCommit", {"partitions": (), "prepared": (0,)}, ("committed", "refused", "committed")),
    ("CompleteAbort", {"partitions": (), "prepared": (0,)}, ("aborted", "aborted", "refused")),
    # Of another partition's transaction: what is open here came late behind the marker of an earlier one (KAFKA-14402).
    ("CompleteCommit", {"partitions": (), "prepared": (7,)}, ("refused", "refused", "refused")),
    ("CompleteAbort", {"partitions": (), "prepared": (7,)}, ("refused", "refused", "refused")),
    # Compaction removed the record that named the partitions.
    ("CompleteCommit", {"partitions": ()}, ("refused", "refused", "refused")),
    ("CompleteAbort", {"partitions": ()}, ("refused", "refused", "refused")),
    # The coordinator has another transaction of this producer: who knows how this one ended.
    ("Ongoing", {"partitions": (7,)}, ("refused", "refused", "refused")),
    ("PrepareCommit", {"partitions": (7,)}, ("refused", "refused", "refused")),
    ("PrepareCommit", {"epoch": 5}, ("refused", "refused", "refused")),
    ("PrepareCommit", {"epoch": 1}, ("refused", "refused", "refused")),
    ("Ongoing", {"epoch": 1}, ("refused", "refused", "refused")),
    # A coordinator that aborts by itself fences the producer. Without the record that it began, this may be another transaction.
    ("PrepareAbort", {"epoch": 1}, ("refused", "refused", "refused")),
    ("PrepareAbort", {"epoch": 1, "ongoing": 0}, ("aborted", "aborted", "refused")),
    ("PrepareAbort", {"epoch": 1, "ongoing": 1}, ("refused", "refused", "refused")),
    ("CompleteAbort", {"epoch": 1, "ongoing": 0, "partitions": (), "prepared": (0,)}, ("aborted", "aborted", "refused")),
    ("CompleteAbort", {"epoch": 1, "ongoing": 1, "partitions": (), "prepared": (0,)}, ("refused", "refused", "refused")),
    ("PrepareCommit", {"epoch": 0, "ongoing": 0}, ("committed", "refused", "committed")),
    # Each end raises the epoch: what is open here under an earlier one is over, and the record does not tell how.
    ("Ongoing", {"client": 2}, ("refused", "aborted", "refused")),
    ("Ongoing", {"client": 2, "epoch": 1}, ("refused", "refused", "refused")),
    ("PrepareCommit", {"client": 2, "epoch": 1}, ("committed", "refused", "committed")),
    ("PrepareCommit", {"client": 2}, ("refused", "refused", "refused")),
    ("PrepareCommit", {"client": 2, "epoch": 2}, ("refused", "refused", "refused")),
    ("PrepareAbort", {"client": 2, "epoch": 1}, ("aborted", "aborted", "refused")),
    # Kafka 4.0.0 raised it twice where it aborted by itself (KAFKA-19367).
    ("PrepareAbort", {"client": 2, "epoch": 2}, ("refused", "refused", "refused")),
    ("PrepareAbort", {"client": 2, "epoch": 2, "ongoing": 0}, ("aborted", "aborted", "refused")),
    ("PrepareAbort", {"client": 2, "epoch": 2, "ongoing": 1}, ("refused", "refused", "refused")),
    ("CompleteAbort", {"client": 2, "epoch": 2, "ongoing": 0, "partitions": (), "prepared": (0,)}, ("aborted", "aborted", "refused")),
    ("CompleteCommit", {"client": 2, "epoch": 1, "partitions": ()}, ("committed", "refused", "committed")),
    ("CompleteCommit", {"client": 2, "epoch": 1, "partitions": (), "prepared": (7,)}, ("refused", "refused", "refused")),
    ("CompleteAbort", {"client": 2, "epoch": 2, "partitions": ()}, ("refused", "refused", "refused")),
    # The end gave the producer another id: the record tells of the earlier one until the next transaction begins.
    ("CompleteCommit", {"client": 2, "producer": 5000, "previous": PRODUCER, "partitions": ()}, ("committed", "refused", "committed")),
    ("Ongoing", {"client": 2, "producer": 5000, "previous": PRODUCER}, ("refused", "refused", "refused")),
    ("Empty", {"partitions": ()}, ("refused", "refused", "refused")),
    ("Dead", {"partitions": ()}, ("refused", "refused", "refused")),
]


@pytest.mark.parametrize(("state", "fields", "expected"), CASES, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("slot", [0, 1, 2], ids=["decided", "abort", "commit"])
def test_the_state_decides(place: Path, state: str, fields: dict[str, Any], expected: tuple[str, ...], slot: int) -> None:
    """Nothing that a coordinator has committed is ever aborted, nor the other way round."""
    asked = ((), ("--abort",), ("--commit",))[slot]
    decide(place, state, **fields)
    before = tree(place)
    dry = offsetlog("end-transaction", "top-0", PRODUCER, place, *asked, "--dry-run")
    assert tree(place) == before
    assert outcome(place, *asked) == expected[slot]
    assert (dry.returncode == 0) == (expected[slot] != "refused")
    if expected[slot] == "committed":
        # It may not be overruled either.
        assert outcome(place, "--without-state", "--abort") == "refused"


def test_epochs_of_a_real_coordinator() -> None:
    """A client of version 2: each end raises the epoch by one, and the next transaction keeps it."""
    raised: set[tuple[str, str, int]] = set()
    before: dict[str, tuple[int, int]] = {}
    for text in gzip.decompress(DUMP.read_bytes()).decode().splitlines():
        found = re.search(r'"transactionalId":"([^"]+)".*"producerEpoch":(\d+),.*"transactionStatus":(\d)', text)
        if found is None or '"clientTransactionVersion":2' not in text:
            continue
        name, epoch, state = found[1], int(found[2]), int(found[3])
        if name in before:
            raised.add((STATES[before[name][1]], STATES[state], epoch - before[name][0]))
        before[name] = (epoch, state)
    assert raised >= {("Ongoing", "PrepareCommit", 1), ("Ongoing", "PrepareAbort", 1)}
    assert {by for old, new, by in raised if new.startswith(("Complete", "Ongoing"))} == {0}
    assert {by for old, new, by in raised if new.startswith("Prepare")} == {1}


def test_without_any_state(place: Path) -> None:
    assert outcome(place) == outcome(place, "--abort") == outcome(place, "--commit") == outcome(place, "--without-state") == "refused"
    assert outcome(place, "--without-state", "--commit") == "committed"
    again = offsetlog("end-transaction", "top-0", PRODUCER, place, "--without-state", "--abort")
    assert again.returncode == 2
    assert "no open transaction" in again.stderr


def test_a_transaction_behind_the_marker_of_the_completed_one_hangs(place: Path) -> None:
    """The coordinator's last transaction has its marker here: what is open behind it is of one that it does not know."""
    with Log.open(place / "top-0", "a", clock=lambda: NOW) as log:
        log.append_marker(PRODUCER, 0, commit=True)
        log.append_batches(transactional(PRODUCER, 3))
    decide(place, "CompleteCommit", prepared=(0,), partitions=())
    (found,) = lines("producers", place, "--open")
    assert (found["standing"], found["transaction_first_offset"]) == ("hanging", 4)
    before = tree(place)
    assert offsetlog("end-transaction", "top-0", PRODUCER, place).returncode == 2
    assert tree(place) == before


def test_what_is_not_there_is_said(place: Path, tmp_path: Path) -> None:
    for words, said in (
        (("end-transaction", "top-0", 1, place, "--abort"), "no open transaction"),
        (("end-transaction", "none-0", PRODUCER, place), 'no topic "none"'),
        (("end-transaction", "top", PRODUCER, place), "topic-partition"),
        (("end-transaction", "top-0", PRODUCER, tmp_path / "nowhere"), "nowhere"),
        (("why", tmp_path / "nowhere"), "nowhere"),
        (("producers", tmp_path / "nowhere"), "nowhere"),
    ):
        done = offsetlog(*words)
        assert (done.returncode, said in done.stderr) == (2, True), (words, done.stderr)
    assert not (tmp_path / "nowhere").exists()
    assert offsetlog("producers", CLEAN_LOG_DIRS[0], "--open").returncode == 1


def test_topics_and_partitions_are_chosen_as_of_other_verbs() -> None:
    for verb in ("producers", "why"):
        everything = lines(verb, *CLEAN_LOG_DIRS, METADATA)
        for topics, numbers in (((), (0,)), (("g-txn",), (0,)), (("g-txn", "g-plain"), (0, 1)), (("g-txn",), ())):
            words = [f"-t{topic}" for topic in topics] + [f"-p{number}" for number in numbers]
            wanted = [
                each
                for each in everything
                if (not topics or each["topic"] in topics) and (not numbers or each["partition"] in numbers)
            ]
            assert lines(verb, *CLEAN_LOG_DIRS, METADATA, *words) == wanted
            assert wanted
        for wrong in (("-t", "g-txm"), ("-p", "99"), ("-t", "g-txn", "-p", "2")):
            done = offsetlog(verb, *CLEAN_LOG_DIRS, *wrong)
            assert (done.returncode, done.stdout) == (2, ""), (verb, wrong)


def answers(place: Path, *words: object) -> dict[str, dict[str, Any]]:
    """What is said of a partition, by question."""
    return {each["question"]: each for each in lines("why", place, *words)}


def fill(path: Path, config: Settings, times: list[int]) -> None:
    """One segment for each time, and an active one of the last."""
    with Log.open(path, "a", config={"internal.segment.bytes": 120, **config}, clock=lambda: NOW) as log:
        for number, when in enumerate(times):
            log.append(b"value" * 8, key=b"%d" % (number % 2), timestamp=when)


def test_why_nothing_is_deleted(tmp_path: Path) -> None:
    """Each reason of a broker's, and when it ends: by Kafka's rules of `contract` tables, not by what `maintain` does."""
    hour = 3_600_000
    old = [NOW - 9 * hour, NOW - 8 * hour, NOW - hour]
    cases: list[tuple[str, Settings, list[int], dict[str, object]]] = [
        ("due", {"retention.ms": 8 * hour}, old, {"segment": 0}),
        ("not-due", {"retention.ms": 10 * hour}, old, {"segment": 0, "offset": 0, "due_timestamp": NOW + hour + 1}),
        ("unlimited", {"retention.ms": -1}, old, {}),
        ("policy", {"cleanup.policy": "compact"}, old, {}),
        ("later-timestamp", {"retention.ms": hour}, [NOW + hour, *old], {"segment": 0, "offset": 0, "timestamp": NOW + hour}),
        ("due", {"retention.ms": -1, "retention.bytes": 100}, old, {"segment": 0}),
        ("not-due", {"retention.ms": -1, "retention.bytes": 100_000}, old, {"segment": 0}),
    ]
    for number, (reason, config, times, expected) in enumerate(cases):
        path = tmp_path / f"case{number}-0"
        fill(path, config, times)
        before = tree(path)
        found = answers(path, "--now", NOW)["deletion"]
        assert found["reason"] == reason, (number, found)
        assert {name: found[name] for name in expected} == expected, (number, found)
        assert tree(path) == before
        # What is said to be due, and nothing else, is what retention takes.
        with Log.open(path, "a") as log:
            assert bool(log.maintain(now=NOW, dry_run=True, only=["retention"]).removed) == (reason == "due"), number


def test_why_nothing_is_compacted(tmp_path: Path) -> None:
    compact: Settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.5}
    cases: list[tuple[str, Settings, int]] = [
        ("due", compact, 4),
        ("active-segment", {**compact, "internal.segment.bytes": 1_000_000}, 4),
        ("dirty-ratio", {**compact, "min.cleanable.dirty.ratio": 1}, 4),
        ("due", {**compact, "min.cleanable.dirty.ratio": 1, "max.compaction.lag.ms": DAY}, 4),
        ("compaction-lag", {**compact, "min.compaction.lag.ms": 10 * DAY}, 4),
    ]
    for number, (reason, config, count) in enumerate(cases):
        path = tmp_path / f"case{number}-0"
        fill(path, config, [NOW - 3 * DAY] * count)
        found = answers(path, "--now", NOW)["compaction"]
        assert found["reason"] == reason, (number, found)
        with Log.open(path, "a") as log:
            assert bool(log.maintain(now=NOW, dry_run=True, only=["compaction"]).compactions) == (reason == "due"), number
    path = tmp_path / "open-0"
    with Log.open(path, "a", config={"internal.segment.bytes": 120, **compact}) as log:
        log.append_batches(transactional(PRODUCER))
        for _ in range(4):
            log.append(b"value" * 8, key=b"k", timestamp=NOW - 3 * DAY)
    found = answers(path, "--now", NOW)
    assert (found["compaction"]["reason"], found["compaction"]["offset"]) == ("open-transaction", 0)
    assert found["read_committed"]["producer"]["producer_id"] == PRODUCER


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete"])
def test_a_broker_without_a_cleaner_leaves_compacted_topics_alone(policy: str, tmp_path: Path) -> None:
    """Kafka's ``LogManager.cleanupLogs`` passes over compacted topics without a cleaner: nothing compacts them, and nothing deletes."""
    for path in (*CLEAN_LOG_DIRS, METADATA):
        shutil.copytree(path, tmp_path / path.name)
    broker = tmp_path / "server.properties"
    settings = f"node.id=1\nlog.cleanup.policy={policy}\nlog.retention.ms=1\nlog.cleaner.min.cleanable.ratio=0.01\n"
    found: dict[str, dict[tuple[str, str], tuple[str, str]]] = {}
    for value in ("true", "FALSE"):
        broker.write_text(f"{settings}log.cleaner.enable={value}\n")
        answered = lines("why", *(tmp_path / path.name for path in (*CLEAN_LOG_DIRS, METADATA)), "--broker", broker)
        found[value] = {(each["topic"], each["question"]): (each["reason"], each["sentence"]) for each in answered}
        if value == "FALSE":
            off = [each for each in answered if each["reason"] == "cleaner-off"]
            assert all(each["settings"] == [{"name": "log.cleaner.enable", "value": "false", "from": "broker"}] for each in off)
            assert all("`offsetlog maintain` refuses" in each["remedy"] for each in off)
    expected = {("g-compact", "compaction"): "cleaner-off", ("g-compact", "deletion"): "policy"}
    plain = {"compact": ("cleaner-off", "policy"), "compact,delete": ("cleaner-off", "cleaner-off"), "delete": (None, "due")}[policy]
    expected |= {("g-plain", question): reason for question, reason in zip(("compaction", "deletion"), plain, strict=True) if reason}
    assert {key: found["FALSE"][key][0] for key in expected} == expected
    assert not [reason for reason, _ in found["true"].values() if reason == "cleaner-off"]
    # `maintain` says the same of each of them.
    ran = offsetlog("maintain", "--dry-run", *(tmp_path / path.name for path in (*CLEAN_LOG_DIRS, METADATA)), "--broker", broker)
    assert "g-compact-0" in ran.stderr
    assert "log.cleaner.enable=false" in ran.stderr


def test_settings_that_nobody_gives_are_named() -> None:
    found = {each["topic"]: each for each in lines("why", *CLEAN_LOG_DIRS, METADATA) if each["question"] == "deletion"}
    assert found["g-plain"]["reason"] == "unknown-setting"
    assert "--broker" in found["g-plain"]["remedy"]
    assert (found["g-compact"]["reason"], found["g-compact"]["settings"]) == (
        "policy",
        [{"name": "cleanup.policy", "value": "compact", "from": "topic"}],
    )
    assert "__cluster_metadata" not in found


def test_python_has_what_the_command_prints(place: Path) -> None:
    """The same values by the same names, and the same refusals."""
    decide(place, "Ongoing")
    with LogDir.open(place) as logs:
        (found,) = logs.producers(open_only=True)
        (line,) = lines("producers", place, "--open")
        assert found._asdict() == {name: line[name] for name in found._fields}
        with pytest.raises(LogDirError, match="there is no topic 'none'"):
            logs.producers(topics="none")
        (answer,) = (each for each in logs.why(topics=["top"], now=NOW) if each.question == "read_committed")
        (printed,) = (each for each in lines("why", place, "-t", "top", "--now", NOW) if each["question"] == "read_committed")
        assert answer.producer == found
        assert (answer.reason, answer.sentence, answer.remedy) == (printed["reason"], printed["sentence"], printed["remedy"])
        assert pickle.loads(pickle.dumps(answer)) == answer
    before = tree(place)
    with pytest.raises(ConfigError, match="--abort"):
        end_transaction(place, "top", 0, PRODUCER)
    with pytest.raises(ConfigError, match="no open transaction"):
        end_transaction(place, "top", 0, 1)
    for wrong in ({"partition": 1 << 40}, {"producer_id": -1}, {"producer_id": "4000"}, {"commit": "no"}):
        arguments: dict[str, Any] = {"partition": 0, "producer_id": PRODUCER, **wrong}
        with pytest.raises((ConfigError, TypeError)):
            end_transaction(place, "top", **arguments)
    assert end_transaction([place], "top", 0, PRODUCER, commit=False, dry_run=True).marker_offset is None
    assert tree(place) == before
    ended = end_transaction(place, "top", 0, PRODUCER, commit=False)
    assert (ended.committed, ended.marker_offset, ended.last_stable_offset_before, ended.last_stable_offset) == (False, 3, 0, 4)
    assert ended.producer == found


def test_why_answers_what_damage_does_not_touch(tmp_path: Path) -> None:
    """The age of the oldest segment cannot be read: what keeps ``read_committed`` back is told all the same, and the damage too."""
    place = tmp_path / "logs"
    shutil.copytree(CLEAN / "log-dir-2", place)
    (broker := tmp_path / "server.properties").write_text("process.roles=broker\nnode.id=1\nlog.retention.ms=1000\n")

    def asked(logs: LogDir) -> list[Any]:
        return logs.why(topics="g-txn", broker=broker, metadata=CLEAN / "metadata-dir")

    with LogDir.open(place) as logs:
        sound = [(each.partition, each.question, each.reason, each.offset) for each in asked(logs)]
    assert (0, "deletion", "due", None) in sound
    damaged = place / f"g-txn-0/{0:020}.log"
    data = bytearray(damaged.read_bytes())
    data[16] = 0x55
    damaged.write_bytes(data)
    for index in place.glob("g-txn-0/*.timeindex"):
        index.unlink()
    with LogDir.open(place) as logs, pytest.raises(UnreadPartitionsError, match=damaged.name) as raised:
        asked(logs)
    found = [(each.partition, each.question, each.reason, each.offset) for each in raised.value.partial]
    assert found == [each for each in sound if each[:2] != (0, "deletion")]
    assert (0, "read_committed", "open-transaction", 347) in found
    assert [*raised.value.failed] == [("g-txn", 0)]


@pytest.mark.parametrize("verb", ["why", "producers"])
def test_progress_is_told_by_partition(verb: str) -> None:
    told: list[tuple[int, int, str]] = []
    with LogDir.open(CLEAN_LOG_DIRS) as log_dir:
        names = [f"{topic}-{partition}" for topic, partition in log_dir.partitions()]
        answers = getattr(log_dir, verb)(progress=lambda *step: told.append(step))
        assert answers == getattr(log_dir, verb)()
        assert told == [*((done, len(names), name) for done, name in enumerate(names)), (len(names), len(names), names[-1])]
        told.clear()
        getattr(log_dir, verb)(topics="g-idem", progress=lambda *step: told.append(step))
        count = sum(topic == "g-idem" for topic, _ in log_dir.partitions())
        assert [step[:2] for step in told] == [(done, count) for done in range(count + 1)]

        def refuse(done: int, total: int, name: str) -> None:
            if done == 3:
                raise KeyError(name, total)

        with pytest.raises(KeyError, match=re.escape(names[3])):
            getattr(log_dir, verb)(progress=refuse)
        with pytest.raises(TypeError):
            getattr(log_dir, verb)(progress=7)
        assert getattr(log_dir, verb)() == answers


def damage(metadata: Path) -> None:
    """A batch of the metadata log has another checksum, and no snapshot has what is in it."""
    log = metadata / "__cluster_metadata-0"
    for name in log.glob("*.checkpoint"):
        name.unlink()
    (path,) = log.glob("*.log")
    sound = path.read_bytes()
    path.write_bytes(sound[:-500] + bytes([sound[-500] ^ 0xFF]) + sound[-499:])


@pytest.mark.parametrize("verb", ["producers", "why"])
def test_a_topic_that_is_nowhere_is_an_error(verb: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing found reads as nothing held. One that the cluster has elsewhere is no mistake."""

    def ask(log_dir: LogDir, **named: Any) -> list[Any]:  # noqa: ANN401  # of either verb
        answers: list[Any] = getattr(log_dir, verb)(**named)
        return answers

    with LogDir.open([*CLEAN_LOG_DIRS, METADATA]) as whole:
        expected = ask(whole, topics="g-txn")
        assert {answer.topic for answer in expected} == {"g-txn"}
        for names in ("g-tnx", ["g-tnx"], ["g-txn", "g-tnx"]):
            with pytest.raises(LogDirError, match=r"^there is no topic 'g-tnx'; did you mean 'g-txn'") as caught:
                ask(whole, topics=names)
            assert caught.value.path == str(CLEAN_LOG_DIRS[0])
        assert ask(whole, topics=["g-txn", "g-txn"]) == expected
    alone = tmp_path / "alone"
    with LogDir.open(alone, "a") as made_here:
        made_here.create_topic("other")
        caplog.clear()
        with pytest.raises(LogDirError, match="there is no topic 'g-txn'"):
            ask(made_here, topics="g-txn")
    with LogDir.open([alone, METADATA]) as elsewhere:
        assert ask(elsewhere, topics="g-txn") == []
        assert "no partition of topic 'g-txn' is here" in caplog.text
        with pytest.raises(LogDirError, match="there is no topic 'nope'"):
            ask(elsewhere, topics="nope")
    unread = Path(shutil.copytree(METADATA, tmp_path / "unread"))
    damage(unread)
    with LogDir.open([alone, unread]) as unknown:
        assert {answer.topic for answer in ask(unknown, topics="other")} <= {"other"}
        for name in ("g-txn", "othr"):
            near = "; did you mean 'other'" if name == "othr" else ""
            with pytest.raises(
                LogDirError, match=f"^no partition of topic '{name}' is here{near}.*; the cluster's metadata cannot be read"
            ):
                ask(unknown, topics=name)
    if verb == "why":
        with LogDir.open(alone) as reader:
            assert ask(reader, topics="g-txn", metadata=METADATA) == []
            with pytest.raises(LogDirError, match="no partition of topic 'g-txn' is here; the cluster's metadata cannot be read"):
                ask(reader, topics="g-txn", metadata=tmp_path / "missing")
            for where in (METADATA, CLEAN_LOG_DIRS[0], tmp_path / "missing"):
                with pytest.raises((LogDirError, OSError)):
                    ask(reader, topics="nope", metadata=where)
