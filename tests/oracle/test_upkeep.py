"""Retention and compaction beside Kafka's own cleaner and log, file by file."""

from __future__ import annotations

from pathlib import Path

import pytest
from differences import FULL_INDEX, Uses
from kafka_log import KafkaError, Oracle
from upkeep import Apart, Upkeep

pytestmark = pytest.mark.interop

CHUNK = 50
CHUNKS = 20


def compacted(seed: int, oracle: Oracle, folder: Path, uses: Uses) -> str | None:
    """What is wrong with one log."""
    one = Upkeep(seed, oracle, folder, uses)
    try:
        for _ in range(one.random.choice((1, 2, 3))):
            one.write(one.random.randint(3, 25))
            one.open_both()
            try:
                for _ in range(one.random.choice((1, 1, 2))):
                    one.compact()
            finally:
                one.close_both()
    except KafkaError as error:
        if "Attempt to append to a full" not in error.text:
            raise
        uses.count(FULL_INDEX)
    except Apart as apart:
        return f"seed {seed}: {apart}\nsettings {one.settings}\n" + "\n".join(one.rounds)
    return None


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_compaction(chunk: int, oracle: Oracle, folder: Path) -> None:
    uses = Uses()
    seeds = range(chunk * CHUNK, (chunk + 1) * CHUNK)
    failed = [found for seed in seeds if (found := compacted(seed, oracle, folder / "upkeep", uses))]
    assert not failed, f"{len(failed)} of {CHUNK} logs differ\n" + "\n\n".join(failed[:3])


def kept_up(seed: int, oracle: Oracle, folder: Path, uses: Uses) -> str | None:
    """What is wrong with one log that is kept up as it becomes due."""
    one = Upkeep(seed, oracle, folder, uses)
    one.age()
    try:
        for _ in range(one.random.choice((1, 2, 3))):
            one.write(one.random.randint(3, 20))
            one.open_both()
            try:
                one.maintain()
            finally:
                one.close_both()
    except KafkaError as error:
        if "Attempt to append to a full" not in error.text:
            raise
        uses.count(FULL_INDEX)
    except Apart as apart:
        return f"seed {seed}: {apart}\nsettings {one.settings}\n" + "\n".join(one.rounds)
    return None


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_retention(chunk: int, oracle: Oracle, folder: Path) -> None:
    uses = Uses()
    seeds = range(chunk * CHUNK, (chunk + 1) * CHUNK)
    failed = [found for seed in seeds if (found := kept_up(seed, oracle, folder / "upkeep", uses))]
    assert not failed, f"{len(failed)} of {CHUNK} logs differ\n" + "\n\n".join(failed[:3])
