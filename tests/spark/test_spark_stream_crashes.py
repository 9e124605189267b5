"""A stream whose driver dies anywhere, beside a model of Spark's engine: every record once, from the start that was the first one.

Real processes that are really killed are in ``test_spark_stream_kills.py``; they come to far fewer points.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path

import pytest
from stream_engine import KINDS, Checkpoint, Crash, Engine, add, append, held

from offsetlog import Log, TopicPartition
from offsetlog.spark.stream_offsets import Offsets, from_json
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
