"""A stream whose driver dies anywhere, beside a model of Spark's engine: every record once, from the start that was the first one.

Real processes that are really killed are in ``test_spark_stream_kills.py``; they come to far fewer points.
"""

from __future__ import annotations

import copy
import itertools
import json
import logging
import os
import random
from pathlib import Path

import pytest
from stream_engine import KINDS, Checkpoint, Crash, Engine, add, append, held

from offsetlog import Log, LogDir, OffsetOutOfRangeError, TopicPartition
from offsetlog.spark.stream_offsets import Offsets, from_json, without_begins
from offsetlog.spark.stream_planning import Follower

EARLIEST = {"startingOffsets": "earliest"}
HISTORIES = 30
# The same each time, so that a change is judged by what it changes; a soak draws others.
SOAK = float(os.environ.get("OFFSETLOG_SCALE", "0")) >= 1
SEED = int(os.environ.get("OFFSETLOG_SEED") or (random.SystemRandom().randrange(10**6) if SOAK else 0))


def query(folder: Path, **options: str) -> dict[str, str]:
    return {"path": str(folder), "subscribe": "t", **EARLIEST, **options}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", ["latest", "earliest", '{"t":{"0":-1,"1":2}}'])
@pytest.mark.parametrize("where", ["written", "planned", "read", "in the sink"])
def test_a_crash_in_the_first_micro_batch(kind: str, start: str, where: str, tmp_path: Path) -> None:
    """Its start stands nowhere. It must be the same again, though the latest is another one by then."""
    append(tmp_path, "t-0", 5)
    append(tmp_path, "t-1", 5)

    def crash(point: str) -> None:
        if point == where or (where == "read" and point == "committed"):
            raise Crash

    checkpoint = Checkpoint()
    options = query(tmp_path, startingOffsets=start)
    with pytest.raises(Crash):
        Engine(options, checkpoint, kind=kind, point=crash).drain()
    append(tmp_path, "t-0", 3)
    append(tmp_path, "t-1", 3)
    append(tmp_path, "t-2", 3)
    Engine(query(tmp_path, startingOffsets=start), checkpoint, kind=kind).drain()
    begins = {"latest": (5, 5), "earliest": (0, 0)}.get(start, (5, 2))
    assert checkpoint.records() == {("t", 0): list(range(begins[0], 8)), ("t", 1): list(range(begins[1], 8)), ("t", 2): [0, 1, 2]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["written", "committed"])
def test_what_comes_between_the_start_and_the_first_end(
    kind: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first end says where the query started; so what came meanwhile belongs to the second micro-batch."""
    append(tmp_path, "t-0", 5)
    initial = Follower.initial

    def late(self: Follower) -> tuple[Offsets, frozenset[TopicPartition]]:
        found = initial(self)
        append(tmp_path, "t-0", 2)
        append(tmp_path, "t-1", 2)
        return found

    def crash(point: str) -> None:
        if point == where:
            raise Crash

    checkpoint = Checkpoint()
    options = query(tmp_path, startingOffsets="latest")
    with monkeypatch.context() as patched:
        patched.setattr(Follower, "initial", late)
        with pytest.raises(Crash):
            Engine(options, checkpoint, kind=kind, point=crash).drain()
    append(tmp_path, "t-0", 1)
    Engine(options, checkpoint, kind=kind).drain()
    assert checkpoint.records() == {("t", 0): [5, 6, 7], ("t", 1): [0, 1]}


def timed(folder: Path, *times: int) -> None:
    """Append records of these times to the only partition, each in a batch of its own."""
    with Log.open(folder / "t-0", "a") as log:
        for at in times:
            log.append(b"%d" % log.log_end_offset, timestamp=at)


def delete_before(folder: Path, offset: int) -> None:
    with Log.open(folder / "t-0", "a") as log:
        log.delete_records_before(offset)


def died(options: dict[str, str], kind: str) -> Checkpoint:
    """A query whose driver died when its first micro-batch was in the checkpoint."""

    def die(point: str) -> None:
        if point == "written":
            raise Crash

    checkpoint = Checkpoint()
    with pytest.raises(Crash):
        Engine(options, checkpoint, kind=kind, point=die).drain()
    assert (len(checkpoint.offsets), checkpoint.commits) == (1, 0)
    return checkpoint


# Where ten records begin, the time of each a thousand times its offset, and the first that is read of them.
STARTS = [
    ({"startingOffsets": "earliest"}, 0),
    ({"startingOffsets": '{"t":{"0":-2}}'}, 0),
    ({"startingOffsets": '{"t":{"0":3}}'}, 3),
    ({"startingTimestamp": "2500"}, 3),
    ({"startingOffsetsByTimestamp": '{"t":{"0":3000}}'}, 3),
    ({"startingOffsetsByTimestamp": '{"t":{"0":3000}}', "startingOffsetsByTimestampStrategy": "latest"}, 3),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", STARTS, ids=str)
@pytest.mark.parametrize("deleted", [5, 10, 12])
def test_what_is_deleted_before_the_first_micro_batch_runs_again_is_data_loss(
    kind: str, case: tuple[dict[str, str], int], deleted: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What the options say of a start means a later offset by then: what is gone would be left out in silence."""
    start, begin = case
    timed(tmp_path, *range(0, 10_000, 1000))
    strict, lenient = query(tmp_path, **start), query(tmp_path, **start, failOnDataLoss="false")
    checkpoint = died(strict, kind)
    timed(tmp_path, *range(10_000, 13_000, 1000))
    delete_before(tmp_path, deleted)
    gone = f"t-0 starts at {deleted} now: offsets {begin} to {min(deleted, 10) - 1} are gone"
    for _ in range(2):
        with pytest.raises(OffsetOutOfRangeError, match=gone):
            Engine(strict, copy.deepcopy(checkpoint), kind=kind).drain()
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        Engine(lenient, checkpoint, kind=kind).drain()
    assert gone in caplog.text
    assert checkpoint.records() == {("t", 0): list(range(deleted, 13))}


@pytest.mark.parametrize("kind", KINDS)
def test_times_that_go_back_are_no_way_round_it(kind: str, tmp_path: Path) -> None:
    """The record of the start is gone, and earlier times lie before the next one."""
    timed(tmp_path, 0, 9000, 1000, 2000, 9500)
    options = query(tmp_path, startingTimestamp="9000")
    checkpoint = died(options, kind)
    delete_before(tmp_path, 2)
    with pytest.raises(OffsetOutOfRangeError, match="t-0 starts at 2 now: offsets 1 to 1 are gone"):
        Engine(options, checkpoint, kind=kind).drain()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("start", "deleted"),
    [
        ({"startingTimestamp": "3000"}, 2),
        ({"startingTimestamp": "3000"}, 3),
        ({"startingOffsets": "latest"}, 10),
        ({"startingTimestamp": "99999", "startingOffsetsByTimestampStrategy": "latest"}, 10),
    ],
    ids=str,
)
def test_what_was_not_to_be_read_is_no_loss(
    kind: str, start: dict[str, str], deleted: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    timed(tmp_path, *range(0, 10_000, 1000))
    options = query(tmp_path, **start)
    checkpoint = died(options, kind)
    delete_before(tmp_path, deleted)
    timed(tmp_path, 10_000)
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        Engine(options, checkpoint, kind=kind).drain()
    assert not caplog.records
    assert checkpoint.records() == {("t", 0): list(range(3, 11)) if start.get("startingTimestamp") == "3000" else [10]}


def made(folder: Path, count: int) -> None:
    """Make the topic, anew if it is there, with so many records."""
    with LogDir.open(folder, "a") as log_dir:
        if "t" in log_dir.topics():
            log_dir.delete_topic("t")
        log_dir.create_topic("t", 1)
        for _ in range(count):
            log_dir.append("t", b"x")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("older", [False, True])
def test_a_topic_made_anew_before_the_first_micro_batch_runs_again(kind: str, older: bool, tmp_path: Path) -> None:
    """The start that Spark asks for again is of the new topic, the end is of the old one."""
    made(tmp_path, 10)
    checkpoint = died(query(tmp_path), kind)
    if older:
        checkpoint.offsets = [json.dumps(without_begins(json.loads(text))) for text in checkpoint.offsets]
    made(tmp_path, 15)
    failed = copy.deepcopy(checkpoint)
    with pytest.raises(OffsetOutOfRangeError, match="topic 't' was made anew"):
        Engine(query(tmp_path), failed, kind=kind).drain()
    assert failed.records() == {}
    Engine(query(tmp_path, failOnDataLoss="false"), checkpoint, kind=kind).drain()
    assert checkpoint.records() == {("t", 0): list(range(15))}


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_end_alone_says_where_its_micro_batch_began(kind: str, tmp_path: Path) -> None:
    timed(tmp_path, *range(0, 10_000, 1000))
    options = query(tmp_path, startingTimestamp="3000")
    checkpoint = Checkpoint()
    engine = Engine(options, checkpoint, kind=kind)
    engine.drain()
    assert json.loads(checkpoint.offsets[0])["t"]["begins"] == {"0": 3}
    # That it goes is no news, in this life of the driver or in the next.
    assert not engine.trigger()
    assert not Engine(options, checkpoint, kind=kind).trigger()
    timed(tmp_path, 10_000)
    engine.drain()
    assert "begins" not in json.loads(checkpoint.offsets[1])["t"]
    assert len(checkpoint.offsets) == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "case",
    [
        ({"startingOffsets": "earliest"}, 0, False),
        ({"startingOffsets": "earliest"}, 5, True),
        ({"startingOffsets": '{"t":{"0":-2}}'}, 10, True),
        ({"startingOffsets": "latest"}, 5, False),
        ({"startingTimestamp": "3000"}, 0, False),
        ({"startingTimestamp": "3000"}, 2, False),
        ({"startingTimestamp": "3000"}, 5, True),
        ({"startingOffsetsByTimestamp": '{"t":{"0":3000}}'}, 10, True),
        ({"startingTimestamp": "99999", "startingOffsetsByTimestampStrategy": "latest"}, 5, False),
    ],
    ids=str,
)
def test_checkpoints_of_older_versions_do_not_say_where_it_began(
    kind: str, case: tuple[dict[str, str], int, bool], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is worked out again. Where records of then may be gone, a warning says so: nobody can tell whether they were there."""
    start, deleted, told = case
    timed(tmp_path, *range(0, 10_000, 1000))
    options = query(tmp_path, **start)
    checkpoint = died(options, kind)
    checkpoint.offsets = [json.dumps(without_begins(json.loads(text))) for text in checkpoint.offsets]
    timed(tmp_path, 10_000, 11_000)
    delete_before(tmp_path, deleted)
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        Engine(options, checkpoint, kind=kind).drain()
    found = [record.getMessage() for record in caplog.records]
    assert len(found) == told
    if told:
        assert f"t-0: the first micro-batch is read again, from offset {min(deleted, 10)}: the log starts at {deleted} now" in found[0]
        assert "records may be lost" in found[0]
    first = {"earliest": 0, "latest": 10}.get(start.get("startingOffsets", ""), 0 if "startingOffsets" in start else 3)
    first = 10 if start.get("startingTimestamp") == "99999" else first
    assert checkpoint.records() == {("t", 0): list(range(max(first, deleted), 12))}


class History:
    """Random appends, and an engine that dies at random points while they go on."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.draw = draw = random.Random(seed)
        self.folder = folder
        self.logs = [Log.open(folder / "t-0", "a")]
        add(self.logs[0], draw.randrange(0, 30))
        self.options = {"path": str(folder), "subscribePattern": "^[tu]$", **EARLIEST}
        if draw.random() < 0.7:
            self.options["maxOffsetsPerTrigger"] = str(draw.choice([1, 7, 20, 1000]))
        if draw.random() < 0.3:
            self.options["minOffsetsPerTrigger"] = "1"
        if draw.random() < 0.5:
            self.options["maxRecordsPerPartition"] = "9"
        self.checkpoint = Checkpoint()
        self.deaths = 0

    def point(self, name: str) -> None:
        """What may happen anywhere."""
        del name
        if self.draw.random() < 0.25:
            self._grow()
        if self.draw.random() < 0.08:
            raise Crash

    def _grow(self) -> None:
        if self.draw.random() < 0.1 and len(self.logs) < 6:
            self.logs.append(Log.open(self.folder / f"{self.draw.choice('tu')}-{len(self.logs)}", "a"))
            add(self.logs[-1], self.draw.randrange(0, 12))
        add(self.draw.choice(self.logs), self.draw.randrange(1, 12))

    def run(self, kind: str) -> None:
        """One run of the query, to its end or its death."""
        trigger = self.draw.choice(["continuous", "available now"]) if kind == "asks" else "continuous"
        try:
            engine = Engine(self.options, self.checkpoint, kind=kind, trigger=trigger, point=self.point)
            for _ in range(self.draw.randrange(1, 6)):
                engine.trigger()
        except Crash:
            self.deaths += 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_every_record_comes_once_whatever_dies(kind: str, seed: int, tmp_path: Path) -> None:
    """Appends, new partitions and topics, limits, triggers, deaths and restarts."""
    print(f"history {seed}: OFFSETLOG_SEED={SEED}")
    history = History(HISTORIES * SEED + seed, tmp_path)
    for _ in range(25):
        history.run(kind)
    Engine(history.options, history.checkpoint, kind=kind).drain()
    for log in history.logs:
        log.close()
    assert history.checkpoint.records() == held(tmp_path)
    # Each of 25 runs comes to several places, and each place is deadly once in twelve times.
    assert history.deaths > 0
    ends = [from_json(json.loads(text)) for text in history.checkpoint.offsets]
    for before, after in itertools.pairwise(ends):
        assert all(before[partition] <= after[partition] for partition in before)
