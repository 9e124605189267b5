"""What ``why`` says would free the records is carried out, with the words as they are printed: the reason is another one then, or the records go."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS
from held_records import DAY, NOW, PRODUCER, decide, lines, offsetlog, transactional
from test_held_records import (
    Settings,
    answers,
    fill,
    place as place,  # noqa: PLC0414  # a fixture
)
from test_why_reasons import Broker

from offsetlog import Log, LogDir

pytestmark = pytest.mark.slow

HOUR = 3_600_000
COMPACT: Settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.5}


def asked(path: Path, question: str, now: int | str = NOW) -> dict[str, Any]:
    return answers(path, "--now", now)[question]


def set_to(path: Path, **settings: str | float) -> None:
    """Change settings of a log as a user does; two underscores stand for a dot."""
    words = [word for name, value in settings.items() for word in ("--config", f"{name.replace('__', '.')}={value}")]
    done = offsetlog("settings", path.parent, "-t", path.name.rpartition("-")[0], *words)
    assert done.returncode == 0, done.stderr


def moments(remedy: str) -> list[str]:
    """The times in it, as printed."""
    return re.findall(r"\d{4}-\d\d-\d\dT[\d:.]+Z", remedy)


def commands(remedy: str) -> list[list[str]]:
    """What it prints as commands."""
    return [shlex.split(each) for each in re.findall(r"`([^`]+)`", remedy)]


def test_a_policy_that_deletes(tmp_path: Path) -> None:
    path = tmp_path / "policy-0"
    fill(path, {"cleanup.policy": "compact", "retention.ms": HOUR}, [NOW - DAY] * 3)
    found = asked(path, "deletion")
    assert found["reason"] == "policy"
    assert found["remedy"].startswith("cleanup.policy=delete or compact,delete")
    for value in ("delete", "compact,delete"):
        set_to(path, cleanup__policy=value)
        assert asked(path, "deletion")["reason"] == "due"
    with Log.open(path, "a") as log:
        assert log.maintain(now=NOW).removed


@pytest.mark.parametrize("limit", [{"retention.ms": HOUR}, {"retention.bytes": 100}])
def test_a_limit(limit: dict[str, int], tmp_path: Path) -> None:
    path = tmp_path / "unlimited-0"
    fill(path, {"retention.ms": -1}, [NOW - DAY] * 3)
    found = asked(path, "deletion")
    assert (found["reason"], found["remedy"]) == ("unlimited", "a limit for retention.ms or retention.bytes")
    (name,) = limit
    assert name in found["remedy"]
    set_to(path, **{each.replace(".", "__"): value for each, value in limit.items()})
    assert asked(path, "deletion")["reason"] == "due"
    with Log.open(path, "a") as log:
        assert log.maintain(now=NOW).removed


def test_the_time_at_which_it_is_due(tmp_path: Path) -> None:
    """To the millisecond: `maintain` deletes it then, and not one before."""
    path = tmp_path / "young-0"
    fill(path, {"retention.ms": 10 * HOUR}, [NOW - HOUR, NOW])
    found = asked(path, "deletion")
    assert found["reason"] == "not-due"
    (due,) = moments(found["remedy"])
    assert asked(path, "deletion", found["due_timestamp"] - 1)["reason"] == "not-due"
    assert asked(path, "deletion", due)["reason"] == "due"
    with Log.open(path, "a") as log:
        assert log.maintain(now=found["due_timestamp"] - 1).removed == ()
        assert [one.base_offset for one in log.maintain(now=found["due_timestamp"]).removed] == [0]


def test_the_bytes_that_make_it_due(tmp_path: Path) -> None:
    path = tmp_path / "size-0"
    fill(path, {"retention.ms": -1, "retention.bytes": 1000}, [NOW] * 4)
    found = asked(path, "deletion")
    told = re.search(r"once the log has (\d+) bytes more", found["remedy"])
    assert (found["reason"], told is not None) == ("not-due", True)
    assert told is not None
    with Log.open(path) as log:
        size, batch = log.size_bytes, log.segments[0].size_bytes
    wanted = size + int(told[1])
    with Log.open(path, "a", clock=lambda: NOW) as log:
        while log.size_bytes + batch < wanted:
            log.append(b"value" * 8, key=b"0", timestamp=NOW)
    assert asked(path, "deletion")["reason"] == "not-due"
    with Log.open(path, "a", clock=lambda: NOW) as log:
        while log.size_bytes < wanted:
            log.append(b"value" * 8, key=b"0", timestamp=NOW)
        assert log.maintain(now=NOW, dry_run=True, only=["retention"]).removed
    assert asked(path, "deletion")["reason"] == "due"


def test_a_later_timestamp_goes_with_its_records(tmp_path: Path) -> None:
    """As kafka-delete-records.sh up to that offset: the log start offset is behind it."""
    path = tmp_path / "later-0"
    fill(path, {"retention.ms": HOUR}, [NOW - HOUR // 2, NOW - 9 * HOUR, NOW - 8 * HOUR])
    found = asked(path, "deletion")
    assert found["reason"] == "later-timestamp"
    offset = re.search(r"kafka-delete-records\.sh up to offset (\d+)", found["remedy"])
    assert offset is not None
    assert "or a smaller retention.ms" in found["remedy"]
    shutil.copytree(path, tmp_path / "smaller-0")
    set_to(tmp_path / "smaller-0", retention__ms=HOUR // 4)
    assert asked(tmp_path / "smaller-0", "deletion")["reason"] == "due"
    with Log.open(path, "a") as log:
        log.delete_records_before(int(offset[1]))
    found = asked(path, "deletion")
    assert (found["reason"], found["segment"]) == ("due", 0)
    with Log.open(path, "a") as log:
        assert [one.base_offset for one in log.maintain(now=NOW).removed][:2] == [0, 1]


def test_maintain_does_what_is_due(tmp_path: Path) -> None:
    """The command as printed, by the clock of the machine: the records are of 2023."""
    cases: dict[str, Settings] = {"deletion": {"retention.ms": HOUR}, "compaction": COMPACT}
    for question, config in cases.items():
        path = tmp_path / f"{question}-0"
        fill(path, config, [NOW - DAY] * 4)
        found = answers(path)[question]
        assert found["reason"] == "due"
        (words,) = commands(found["remedy"])
        assert words == ["offsetlog", "maintain"]
        done = offsetlog(*words[1:], tmp_path, "-t", question)
        assert done.returncode == 0, done.stderr
        assert answers(path)[question]["reason"] == {"deletion": "empty", "compaction": "active-segment"}[question]


def test_the_files_that_have_the_settings(tmp_path: Path) -> None:
    """The options as printed, one after the other."""

    def reason(*words: object) -> set[str]:
        found = lines("why", *CLEAN_LOG_DIRS, "-t", "g-plain", *words)
        return {each["reason"] for each in found}

    found = lines("why", *CLEAN_LOG_DIRS, "-t", "g-plain")
    assert {each["reason"] for each in found} == {"unknown-setting"}
    options = re.findall(r"--[a-z]+", found[0]["remedy"])
    assert options == ["--broker", "--metadata"]
    assert "server.properties with --broker" in found[0]["remedy"]
    properties = tmp_path / "server.properties"
    properties.write_text("process.roles=broker\nnode.id=1\n")
    assert reason("--metadata", CLEAN / "metadata-dir") == {"unknown-setting"}
    assert reason("--broker", properties) == {"unknown-setting"}
    assert reason("--metadata", CLEAN / "metadata-dir", "--broker", properties) == {"due"}


def test_an_append_that_rolls_the_active_segment(tmp_path: Path) -> None:
    """By the time of its record, or by the size; then the segment is closed, and may be compacted."""
    for how in ("bytes", "time"):
        path = tmp_path / f"{how}-0"
        fill(path, {**COMPACT, "internal.segment.bytes": 1000, "segment.ms": HOUR}, [NOW - DAY] * 3)
        found = asked(path, "compaction")
        assert found["reason"] == "active-segment"
        (due,) = moments(found["remedy"])
        assert f"({found['bytes']} bytes now)" in found["remedy"]
        with Log.open(path, "a", clock=lambda: NOW) as log:
            while how == "bytes" and len(log.segments) == 1:
                assert log.size_bytes < 1000
                log.append(b"value" * 8, key=b"0", timestamp=NOW - DAY)
            if how == "time":
                log.append(b"value", key=b"0", timestamp=found["due_timestamp"] - 1)
                assert len(log.segments) == 1
                log.append(b"value", key=b"0", timestamp=found["due_timestamp"])
            assert len(log.segments) == 2
        assert asked(path, "compaction", due)["reason"] == "due"


def test_the_time_from_which_it_is_compacted(tmp_path: Path) -> None:
    path = tmp_path / "lag-0"
    fill(path, {**COMPACT, "min.compaction.lag.ms": 10 * DAY}, [NOW - 3 * DAY] * 3)
    found = asked(path, "compaction")
    assert found["reason"] == "compaction-lag"
    (due,) = moments(found["remedy"])
    assert asked(path, "compaction", found["due_timestamp"] - 1)["reason"] == "compaction-lag"
    assert asked(path, "compaction", due)["reason"] == "due"
    with Log.open(path, "a") as log:
        assert log.maintain(now=found["due_timestamp"] - 1).compactions == ()
        assert log.maintain(now=found["due_timestamp"]).compactions


@pytest.mark.parametrize("how", ["appends", "ratio", "lag"])
def test_what_makes_the_dirty_share_enough(how: str, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "share-0"
    LogDir.open(path.parent, "a").close()
    with Log.open(path, "a", {**COMPACT, "internal.segment.bytes": 120, "min.cleanable.dirty.ratio": 0}, clock=lambda: NOW) as log:
        for number in range(9):
            log.append(b"value" * 8, key=b"%d" % number, timestamp=NOW - 3 * DAY)
        assert log.maintain(now=NOW).compactions
        log.append(b"value" * 8, key=b"0", timestamp=NOW - 2 * DAY)
    set_to(path, min__cleanable__dirty__ratio=0.5)
    found = asked(path, "compaction")
    assert found["reason"] == "dirty-ratio"
    assert found["remedy"].startswith("more appends, a smaller min.cleanable.dirty.ratio, or a max.compaction.lag.ms (now ")
    if how == "appends":
        with Log.open(path, "a", clock=lambda: NOW) as log:
            for _ in range(30):
                log.append(b"value" * 8, key=b"0", timestamp=NOW)
    else:
        set_to(path, **({"min__cleanable__dirty__ratio": 0.1} if how == "ratio" else {"max__compaction__lag__ms": DAY}))
    assert asked(path, "compaction")["reason"] == "due"
    with Log.open(path, "a") as log:
        assert log.maintain(now=NOW).compactions


def test_replicas_that_caught_up(tmp_path: Path) -> None:
    """The checkpoint of the high watermark rises with them."""
    broker = Broker(tmp_path, "g-plain-0")
    own = broker.own(retention__ms="1000", cleanup__policy="compact,delete")
    broker.checkpoint("replication", 1)
    found = broker.why((1, 4, 7), *own)
    assert {each.reason for each in found.values()} == {"not-replicated"}
    assert {"the replicas in the ISR must catch up" in each.remedy for each in found.values()} == {True}
    with Log.open(broker.log) as log:
        broker.checkpoint("replication", log.log_end_offset)
    assert {each.reason for each in broker.why((1, 4, 7), *own).values()} == {"due"}


ENDS: dict[str, tuple[str | None, dict[str, Any], str, tuple[str, ...], int]] = {
    "ongoing": ("Ongoing", {}, "--abort", (), 0),
    "committing": ("PrepareCommit", {}, "", (), 3),
    "aborting": ("PrepareAbort", {}, "", (), 0),
    "of which nobody knows": ("CompleteCommit", {"partitions": ()}, "--without-state", ("--commit", "--abort"), 3),
    "without any state": (None, {}, "--without-state", ("--commit", "--abort"), 3),
}
"""The state of the coordinator, the option that ends the command, those that a user chooses from, and how many records are committed."""


@pytest.mark.parametrize("case", ENDS)
def test_the_command_that_ends_an_open_transaction(case: str, place: Path) -> None:
    """As printed, for each state of the coordinator; what a reader of committed records finds then."""
    state, fields, option, choice, committed = ENDS[case]
    if state is None:
        shutil.rmtree(place / "__transaction_state-0")
    else:
        decide(place, state, **fields)
    found = answers(place, "-t", "top")["read_committed"]
    assert found["reason"] == "open-transaction"
    (words,) = commands(found["remedy"])
    assert words[:4] == ["offsetlog", "end-transaction", "top-0", str(PRODUCER)]
    assert words[4:] == ["LOG_DIR...", *([option] if option else [])]
    told = "with --commit or --abort" in found["remedy"]
    assert told == bool(choice)
    given = [str(place) if word == "LOG_DIR..." else word for word in words[1:]]
    if told:
        # As it stands it does not know which.
        assert offsetlog(*given).returncode == 2
        given.append(choice[0])
    done = offsetlog(*given)
    assert done.returncode == 0, done.stderr
    assert "read_committed" not in answers(place, "-t", "top")
    with Log.open(place / "top-0") as log:
        assert log.scan(isolation_level="read_committed").count() == committed


def test_the_command_that_ends_a_hanging_transaction(place: Path) -> None:
    """The coordinator's last transaction has its marker here, and another one is open behind it."""
    with Log.open(place / "top-0", "a", clock=lambda: NOW) as log:
        log.append_marker(PRODUCER, 0, commit=True)
        log.append_batches(transactional(PRODUCER, 3))
    decide(place, "CompleteCommit", prepared=(0,), partitions=())
    found = answers(place, "-t", "top")["read_committed"]
    assert found["producer"]["standing"] == "hanging"
    of_kafka, of_ours = commands(found["remedy"])
    assert of_kafka[0] == "kafka-transactions.sh"
    options = dict(zip(of_kafka[of_kafka.index("abort") + 1 :: 2], of_kafka[of_kafka.index("abort") + 2 :: 2], strict=True))
    assert options == {"--topic": "top", "--partition": "0", "--start-offset": "4"}
    assert of_ours[4:] == ["LOG_DIR...", "--without-state", "--abort"]
    done = offsetlog(*(str(place) if word == "LOG_DIR..." else word for word in of_ours[1:]))
    assert done.returncode == 0, done.stderr
    assert "read_committed" not in answers(place, "-t", "top")
    with Log.open(place / "top-0") as log:
        assert log.scan(isolation_level="read_committed").count() == 3


def test_the_same_command_frees_a_compacted_log(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "open-0"
    with Log.open(path, "a", {**COMPACT, "internal.segment.bytes": 120}) as log:
        log.append_batches(transactional(PRODUCER))
        for _ in range(4):
            log.append(b"value" * 8, key=b"k", timestamp=NOW - 3 * DAY)
    found = asked(path, "compaction")
    assert found["reason"] == "open-transaction"
    (words,) = commands(found["remedy"])
    done = offsetlog(*(str(path.parent) if word == "LOG_DIR..." else word for word in words[1:]), "--abort")
    assert done.returncode == 0, done.stderr
    assert asked(path, "compaction")["reason"] == "due"
