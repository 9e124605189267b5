"""Retention and compaction beside Kafka's own cleaner and log, file by file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from differences import FULL_INDEX, Uses
from kafka_log import KafkaError, Oracle
from reports import placed
from upkeep import Apart, Upkeep

CHUNK = 50
CHUNKS = 20


def compacted(one: Upkeep) -> None:
    """A log is written and compacted, some times."""
    for _ in range(one.random.choice((1, 2, 3))):
        one.write(one.random.randint(3, 25))
        one.open_both()
        try:
            for _ in range(one.random.choice((1, 1, 2))):
                one.compact()
        finally:
            one.close_both()


def kept_up(one: Upkeep) -> None:
    """A log is written and kept up as it becomes due, some times."""
    one.age()
    for _ in range(one.random.choice((1, 2, 3))):
        one.write(one.random.randint(3, 20))
        one.open_both()
        try:
            one.maintain()
        finally:
            one.close_both()


def difference(live: Callable[[Upkeep], None], one: Upkeep, uses: Uses) -> str | None:
    """What is wrong with one log."""
    try:
        live(one)
    except KafkaError as error:
        if "Attempt to append to a full" not in error.text:
            raise
        uses.count(FULL_INDEX)
    except Apart as apart:
        return f"seed {one.seed}: {apart}\nsettings {one.settings}\n" + "\n".join(one.rounds)
    return None


@pytest.mark.parametrize("chunk", placed(CHUNKS, 5))
@pytest.mark.parametrize("live", [compacted, kept_up])
def test_upkeep(live: Callable[[Upkeep], None], chunk: int, oracle: Oracle, folder: Path) -> None:
    uses = Uses()
    seeds = range(chunk * CHUNK, (chunk + 1) * CHUNK)
    logs = (Upkeep(seed, oracle, folder / "upkeep", uses) for seed in seeds)
    failed = [found for one in logs if (found := difference(live, one, uses))]
    assert not failed, f"{len(failed)} of {CHUNK} logs differ\n" + "\n\n".join(failed[:3])
