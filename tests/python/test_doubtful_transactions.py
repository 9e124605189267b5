"""Transactions of which the coordinators' records do not tell for certain how they end: nobody ends them without being asked to."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from frames import frames
from golden import CLEAN, CLEAN_LOG_DIRS
from held_records import DAY, NOW, PRODUCER, decide, lines, made, offsetlog, transactional
from writing import HOLD, running, tree

from offsetlog import ConfigError, Log, LogDir, end_transaction

SECOND = 1000
MINUTE = 60 * SECOND
STATE = "__transaction_state-0"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A log dir of a transaction without a marker, whose coordinator said nothing yet."""
    return made(tmp_path)


def standing(place: Path, *more: object) -> str:
    (found,) = [line for line in lines("producers", place, *more, "--open") if line["topic"] in {"top", "g-txn"}]
    return str(found["standing"])


def ended(place: Path, *words: str) -> bool:
    """Whether it would be ended; a dry run says so as the real one."""
    before = tree(place)
    done = offsetlog("end-transaction", "top-0", PRODUCER, place, *words, "--dry-run")
    assert tree(place) == before
    return done.returncode == 0


@pytest.mark.parametrize(
    ("later", "said"),
    [
        (-10 * MINUTE, "committing"),
        (-20, "unknown"),
        (0, "unknown"),
        (20, "unknown"),
        (4 * MINUTE, "unknown"),
        (10 * MINUTE, "hanging"),
    ],
)
def test_clocks_of_two_brokers_differ(place: Path, later: int, said: str) -> None:
    """A marker has the time of the partition's leader, and the start of the transaction that of its coordinator.

    Two transactions, of which the second one's marker is lost here, and what came late behind the marker of the first look the same.
    """
    with Log.open(place / "top-0", "a", clock=lambda: NOW) as log:
        log.append_marker(PRODUCER, 0, commit=True, timestamp=NOW + later)
        log.append_batches(transactional(PRODUCER, 3))
    decide(place, "CompleteCommit", prepared=(0,), partitions=(), started=NOW)
    assert standing(place) == said
    assert ended(place) == (said == "committing")
    assert not ended(place, "--abort")
    # A decision cannot be overruled, and what nobody knows, somebody has to say.
    assert ended(place, "--without-state", "--abort") == (said != "committing")


@pytest.mark.parametrize(("epoch", "said"), [(0, "committing"), (1, "hanging")])
def test_a_raised_epoch_needs_no_clock(tmp_path: Path, epoch: int, said: str) -> None:
    """The marker of a client that raises it with each transaction has the next epoch."""
    place = made(tmp_path)
    with Log.open(place / "top-0", "a", clock=lambda: NOW) as log:
        log.append_marker(PRODUCER, 0, commit=True, timestamp=NOW)
        log.append_batches(transactional(PRODUCER, 3))
    # As a broker would not write it: a batch of an earlier epoch behind it.
    decide(place, "CompleteCommit", prepared=(0,), partitions=(), started=NOW, client=2, epoch=1)
    if epoch:
        path = place / "top-0" / f"{0:020}.log"
        (marker,) = [frame for frame in frames(path) if frame.base_offset == 3]
        data = bytearray(path.read_bytes())
        data[marker.position + 51 : marker.position + 53] = (1).to_bytes(2, "big")
        from make_log import crc32c  # here alone

        body = data[marker.position + 21 : marker.position + marker.size_bytes]
        data[marker.position + 17 : marker.position + 21] = crc32c(bytes(body)).to_bytes(4, "big")
        path.write_bytes(data)
        for leftover in (place / "top-0").glob("*.snapshot"):
            leftover.unlink()
    assert standing(place) == said


@pytest.mark.parametrize(("state", "said"), [("Ongoing", "unknown"), ("PrepareCommit", "committing"), ("PrepareAbort", "aborting")])
@pytest.mark.parametrize("damage", ["cut", "length"])
def test_half_a_record_behind_the_newest_may_be_the_decision(place: Path, state: str, said: str, damage: str) -> None:
    """What was decided stays so; of what was not nobody knows."""
    decide(place, state)
    path = place / STATE / f"{0:020}.log"
    whole = path.stat().st_size
    decide(place, "PrepareCommit")
    (place / ".kafka_cleanshutdown").unlink(missing_ok=True)
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[-5:]
    else:
        data[whole + 8 : whole + 12] = b"\x7f\xff\xff\xff"
    path.write_bytes(data)
    for checkpoint in place.glob("*-checkpoint"):
        checkpoint.unlink()
    assert standing(place) == said
    done = offsetlog("transactions", place)
    assert "torn tail" in done.stderr
    refused = offsetlog("end-transaction", "top-0", PRODUCER, place, "--abort", "--dry-run")
    assert (refused.returncode == 0) == (said == "aborting")
    if said == "unknown":
        assert "torn tail" in refused.stderr
        with pytest.raises(ConfigError, match="torn tail"):
            end_transaction(place, "top", 0, PRODUCER, commit=False, dry_run=True)
        assert ended(place, "--without-state", "--abort")


def test_beside_a_running_broker_the_end_is_a_write_in_progress(place: Path) -> None:

    decide(place, "Ongoing")
    path = place / STATE / f"{0:020}.log"
    path.write_bytes(path.read_bytes() + path.read_bytes()[:40])
    lock = place / ".lock"
    lock.touch()
    with running(HOLD, lock):
        assert standing(place) == "ongoing"
    assert standing(place) == "unknown"


def test_a_coordinator_whose_beginning_is_lost_knows_of_no_hanging_transaction(tmp_path: Path) -> None:
    """Of a real broker: the segment that said that the transaction is ongoing is gone."""
    folders = [Path(shutil.copytree(each, tmp_path / each.name)) for each in CLEAN_LOG_DIRS]
    metadata = CLEAN / "metadata-dir"
    assert standing(folders[0], *folders[1:], metadata) == "ongoing"
    (directory,) = [each / "__transaction_state-1" for each in folders if (each / "__transaction_state-1").exists()]
    (path,) = directory.glob("*.log")
    behind = next(frame for frame in frames(path) if (frame.base_offset or 0) > 287)
    data = path.read_bytes()[behind.position :]
    for file in directory.glob("0*"):
        file.unlink()
    (directory / f"{behind.base_offset:020}.log").write_bytes(data)
    assert standing(folders[0], *folders[1:], metadata) == "unknown"
    told = offsetlog("end-transaction", "g-txn-0", 1000, *folders, "--abort", "--dry-run")
    assert told.returncode == 2
    assert "no coordinator has a transaction" not in told.stderr
    why = [line["sentence"] for line in lines("why", *folders, metadata, "-t", "g-txn") if line["question"] == "read_committed"]
    assert not [sentence for sentence in why if "no coordinator knows of it" in sentence]
    done = offsetlog("end-transaction", "g-txn-0", 1000, *folders, "--abort", "--without-state", "--single-replica", "--dry-run")
    assert done.returncode == 0
    assert f"__transaction_state-1: it begins at offset {behind.base_offset}" in done.stderr


def test_the_decision_of_the_newest_leader_counts(tmp_path: Path) -> None:
    """The longer replica of the coordinator's log is of a leader that died before it; Kafka would cut it off."""
    older, newer = made(tmp_path / "older"), tmp_path / "newer"
    decide(older, "Ongoing", leader_epoch=4)
    shutil.copytree(older, newer)
    shutil.rmtree(newer / "top-0")
    for _ in range(2):
        decide(older, "Ongoing", leader_epoch=5)
    decide(newer, "PrepareCommit", leader_epoch=6)
    assert standing(older) == "ongoing"
    assert standing(older, newer) == standing(newer, older) == "committing"
    with LogDir.open([older, newer]) as logs:
        assert [each.state for each in logs.transactions()] == ["PrepareCommit"]


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort"])
def test_a_decision_before_half_a_record_may_be_of_the_transaction_before(place: Path, state: str) -> None:
    """Its marker is here already: what is lost may have begun the next transaction, and ended it otherwise."""
    with Log.open(place / "top-0", "a", clock=lambda: NOW) as log:
        log.append_marker(PRODUCER, 0, commit=state == "PrepareCommit", timestamp=NOW)
        log.append_batches(transactional(PRODUCER, 3))
    decide(place, state, started=NOW)
    path = place / STATE / f"{0:020}.log"
    path.write_bytes(path.read_bytes() + bytes(70) + path.read_bytes()[:50])
    assert standing(place) == "unknown"
    assert not ended(place)
    assert not ended(place, "--abort")


def test_a_marker_that_retention_removed_cannot_be_looked_for(place: Path) -> None:
    """A late batch behind it looks like the transaction itself, whose marker is lost."""
    with Log.open(place / "top-0", "a", clock=lambda: NOW) as log:
        log.append_marker(PRODUCER, 0, commit=True, timestamp=NOW - DAY)
        log.append_batches(transactional(PRODUCER, 3))
    decide(place, "CompleteCommit", prepared=(0,), partitions=(), started=NOW)
    assert standing(place) == "committing"
    with Log.open(place / "top-0", "a", clock=lambda: NOW) as log:
        log.delete_records_before(4)
    assert standing(place) == "unknown"
    assert not ended(place)


@pytest.mark.parametrize("state", ["Ongoing", "PrepareAbort", "PrepareEpochFence", "PrepareCommit", "CompleteAbort", "CompleteCommit"])
@pytest.mark.parametrize("client", [None, 2])
def test_an_earlier_transaction_without_a_marker_is_not_ended_with_the_next(place: Path, state: str, client: int | None) -> None:
    """A coordinator can take a transaction for complete whose marker was never written (KAFKA-20734).

    A partition then takes the batches of the next one for more of the same, as the leader does, and its epoch is raised. An abort of the
    second would take back what the first one had committed.
    """
    with Log.open(place / "top-0", "a", clock=lambda: NOW) as log:
        log.append_batches(transactional(PRODUCER, 0, epoch=1))
    (found,) = [line for line in lines("producers", place) if line["topic"] == "top"]
    assert (found["producer_epoch"], found["transaction_first_offset"]) == (1, 0)
    ends_raise = state != "Ongoing" and client is not None
    more: dict[str, Any] = {"prepared": (0,), "partitions": ()} if state.startswith("Complete") else {}
    decide(place, state, client=client, epoch=2 if ends_raise else 1, ongoing=1, **more)
    assert standing(place) == "unknown"
    assert not ended(place)
    assert not ended(place, "--abort")
    assert not ended(place, "--commit")
    assert ended(place, "--without-state", "--abort")


@pytest.mark.parametrize(("earlier", "said"), [(10 * MINUTE, "unknown"), (4 * MINUTE, "ongoing"), (-SECOND, "ongoing")])
@pytest.mark.parametrize("kind", ["log-append-time", "marker", "record"])
def test_of_an_older_client_a_brokers_clock_tells_of_an_earlier_transaction(
    tmp_path: Path, kind: str, earlier: int, said: str
) -> None:
    """A record has the time of what it tells of: that proves nothing."""
    place, then = tmp_path / "logs", NOW - earlier
    config = {"message.timestamp.type": "LogAppendTime"} if kind == "log-append-time" else {}
    with LogDir.open(place, "a", clock=lambda: then) as logs:
        logs.create_topic("__transaction_state", 1)
        logs.create_topic("top", 1, config=config)
        log = logs.log("top", 0)
        # Before it: another transaction, which says nothing of this one.
        log.append_batches(transactional(PRODUCER + 1, timestamp=NOW - DAY))
        log.append_marker(PRODUCER + 1, 0, commit=True, timestamp=NOW - DAY)
        log.append_batches(transactional(PRODUCER, timestamp=then))
        if kind == "marker":
            log.append_batches(transactional(PRODUCER + 2, timestamp=NOW))
            log.append_marker(PRODUCER + 2, 0, commit=True, timestamp=then)
    decide(place, "Ongoing", started=NOW)
    assert standing(place) == ("ongoing" if kind == "record" else said)
    assert ended(place, "--abort") == (standing(place) == "ongoing")


def test_a_stale_replica_beside_a_damaged_newest_one_decides_nothing(tmp_path: Path) -> None:
    """The newest coordinator's log cannot be read; the other one has an older record, which must not count."""
    newest, stale = made(tmp_path / "newest"), tmp_path / "stale"
    decide(newest, "Ongoing", leader_epoch=4)
    shutil.copytree(newest, stale)
    shutil.rmtree(stale / "top-0")
    decide(newest, "PrepareCommit", leader_epoch=6)
    path = newest / STATE / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[90] ^= 1
    path.write_bytes(data)
    for folders in ((newest, stale), (stale, newest)):
        words = ("end-transaction", "top-0", PRODUCER, *folders, "--abort", "--dry-run")
        done = offsetlog(*words)
        assert done.returncode == 2
        assert "cannot be read" in done.stderr


@pytest.mark.parametrize(
    ("state", "client", "said"),
    [("Ongoing", None, "unknown"), ("PrepareAbort", None, "unknown"), ("Ongoing", 2, "unknown"), ("PrepareAbort", 2, "aborting")],
)
def test_the_marker_may_be_in_the_end_that_is_lost(
    place: Path, state: str, client: int | None, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The first transaction was committed and read, and the record is of a second one. A power cut took all from the marker on."""
    with Log.open(place / "top-0", "a", clock=lambda: NOW) as log:
        log.append_marker(PRODUCER, 0, commit=True, timestamp=NOW)
        log.append_batches(transactional(PRODUCER, 3))
        end = log.log_end_offset
    raised = state != "Ongoing" and client is not None
    decide(place, state, started=NOW + SECOND, client=client, epoch=1 if raised else 0)
    path = place / "top-0" / f"{0:020}.log"
    (marker,) = [each for each in frames(path) if each.base_offset == 3]
    with path.open("r+b") as file:
        file.truncate(marker.position)
    (place / "top-0" / ".offsetlog.state").unlink(missing_ok=True)
    (place / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (place / "recovery-point-offset-checkpoint").write_text("0\n1\ntop 0 0\n", encoding="utf-8")
    (place / "replication-offset-checkpoint").write_text(f"0\n1\ntop 0 {end}\n", encoding="utf-8")
    lost = f"top-0: it ends at offset 3, and the high watermark of its log dir is {end}"
    assert standing(place) == said
    how = ("--abort",) if said == "unknown" else ()
    assert ended(place, *how) == (said == "aborting")
    if said == "unknown":
        before = tree(place)
        refused = offsetlog("end-transaction", "top-0", PRODUCER, place, "--abort")
        assert refused.returncode == 2
        assert lost in refused.stderr
        assert "the marker of this transaction may be among them" in refused.stderr
        assert tree(place) == before
    done = end_transaction(place, "top", 0, PRODUCER, commit=False, without_state=True)
    assert not done.committed
    assert done.marker_offset == 3
    assert any(lost in each.message for each in caplog.records)
