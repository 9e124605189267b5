"""The comparison itself: Kafka agrees with Kafka, and each planted fault is found, made small and printed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from comparing import Arena
from histories import History, Step, history
from interface import Batch, Clock, Info, Opening, Side
from kafka_log import KafkaLog, Oracle
from runner import play
from shrink import shrunk

HISTORIES = 40


class Faulty(KafkaLog):
    """Kafka with a fault."""


class ForgetsTheInterval(Faulty):
    def open(self, opening: Opening) -> Any:  # noqa: ANN401  # as its parent
        given = {**opening.config, "index.interval.bytes": str(int(opening.config.get("index.interval.bytes", 4096)) + 30)}
        return super().open(replace(opening, config=given))


class TruncatesTooLittle(Faulty):
    def truncate_to(self, offset: int) -> bool:
        return super().truncate_to(offset + 1)


class TrustsEveryClose(Faulty):
    def open(self, opening: Opening) -> Any:  # noqa: ANN401  # as its parent
        return super().open(replace(opening, clean=True))


class LosesHeaders(Faulty):
    def append_rows(self, batch: Batch, form: str, leader_epoch: int, *, flush: bool = False) -> Info:
        plain = tuple(row._replace(headers=()) for row in batch.rows)
        return super().append_rows(replace(batch, rows=plain), form, leader_epoch, flush=flush)


class ForgetsTheEpoch(Faulty):
    def append_bytes(self, data: bytes, leader_epoch: int, origin: str, *, flush: bool = False) -> Info:
        return super().append_bytes(data, max(0, leader_epoch - 1), origin, flush=flush)


class AcceptsMarkersAlways(Faulty):
    def append_marker(self, marker: Any, leader_epoch: int) -> Info:  # noqa: ANN401  # as its parent
        return super().append_marker(replace(marker, coordinator_epoch=9), leader_epoch)


class DoesNotFlush(Faulty):
    def flush(self) -> None:
        return


FAULTS = (
    ForgetsTheInterval,
    TruncatesTooLittle,
    TrustsEveryClose,
    LosesHeaders,
    ForgetsTheEpoch,
    AcceptsMarkersAlways,
    DoesNotFlush,
)
Make = Callable[[type[KafkaLog]], Arena]


@pytest.fixture
def make(oracle: Oracle, folder: Path) -> Make:
    """Arenas where Kafka, or what is derived from it, takes our place."""

    def arena(kind: type[KafkaLog]) -> Arena:
        def side(directory: Path, _: Clock) -> Side:
            return kind(oracle, directory, "subject")

        return Arena(oracle, folder / "machinery", side)

    return arena


@pytest.mark.parametrize("turns", [False, True])
def test_kafka_agrees_with_kafka(make: Make, turns: bool) -> None:
    arena = make(KafkaLog)
    for seed in range(10**5, 10**5 + HISTORIES):
        assert play(history(seed, turns=turns), arena) is None, seed
    assert arena.seen["steps"] > HISTORIES * 20
    assert arena.seen["histories ended early"] < HISTORIES / (2 if turns else 5)


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(make: Make, fault: type[Faulty]) -> None:
    arena = make(fault)
    failing = next(one for seed in range(HISTORIES) if play(one := history(seed), arena) is not None)
    small = shrunk(failing, lambda smaller: play(smaller, arena) is not None, seconds=15)
    assert play(small, arena) is not None
    assert len(small.steps) <= min(8, len(failing.steps))
    assert play(small, make(KafkaLog)) is None


def test_histories_meet_everything(make: Make) -> None:
    """Every verb, and every refusal that has a name."""
    arena = make(KafkaLog)
    for seed in range(120):
        play(history(seed), arena)
    refused = {name.removeprefix("refused: ") for name in arena.seen if name.startswith("refused: ")}
    assert refused >= {
        "CorruptRecordException",
        "InvalidProducerEpochException",
        "InvalidRecordException",
        "InvalidTxnStateException",
        "OffsetOutOfRangeException",
        "OutOfOrderSequenceException",
        "RecordBatchTooLargeException",
        "RecordTooLargeException",
        "RecordValidationException",
        "TransactionCoordinatorFencedException",
        "UnexpectedAppendOffsetException",
    }
    assert arena.seen["duplicates"] > 50


def test_histories_are_data(tmp_path: Path) -> None:
    one = history(7, turns=True)
    assert one == history(7, turns=True)
    assert one != history(8, turns=True)
    one.save(tmp_path / "history.json")
    assert History.load(tmp_path / "history.json") == one
    assert Step("roll", {}) in [step for seed in range(9) for step in history(seed).steps]
