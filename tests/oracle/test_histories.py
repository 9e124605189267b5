"""Random histories: the same steps through offsetlog's public API and through Kafka's own storage layer, byte for byte.

A failing one is made small, printed and kept: ``pytest tests/oracle --history SEED`` (or the file it names) replays it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from comparing import Arena, Mismatch
from histories import History, history
from kafka_log import ROOT
from reports import SEED, placed
from runner import play
from shrink import shrunk

CHUNK = 40
CHUNKS = 26
TURN_CHUNKS = 8
# Random seeds are for `make soak`; a run is to say the same every time.
RANDOM_CHUNKS = int(os.environ.get("OFFSETLOG_RANDOM_CHUNKS", "0"))
# Characters of a finding that say what kind it is.
KIND = 100
FAILED = ROOT / "build" / "oracle" / "failed"


def kind(mismatch: Mismatch | None) -> str:
    """What a finding is about, without the step that met it and the numbers: what is made small is to differ in the same way."""
    told = re.sub(r"^.*? by \w+: ", "", str(mismatch or ""), count=1, flags=re.DOTALL)
    # A longer list of files, or other bytes, are the same finding.
    return re.sub(r"[\d-]+|b'.*?'|\[.*?\]|\(\(.*?\)\)", "", told)[:KIND]


def found(one: History, arena: Arena) -> str | None:
    """What is wrong with a history, made small."""
    mismatch = play(one, arena)
    if mismatch is None:
        return None
    wanted = kind(mismatch)
    small = shrunk(one, lambda smaller: kind(play(smaller, arena)) == wanted)
    FAILED.mkdir(parents=True, exist_ok=True)
    file = FAILED / f"{'t' if one.turns else ''}{one.seed}.json"
    small.save(file)
    replay = f"replay: pytest tests/oracle --history {file.stem} (whole) or --history {file.relative_to(ROOT)} (small)"
    return f"{replay}\n{mismatch}\n\nmade small:\n{small}\n{play(small, arena)}"


def all_agree(seeds: range, arena: Arena, *, turns: bool = False) -> None:
    """Runs a chunk of histories, and tells the first failing one whole, the others by their seeds."""
    failed = [seed for seed in seeds if play(history(seed, turns=turns), arena) is not None]
    if failed:
        told = found(history(failed[0], turns=turns), arena) or "it passed the second time"
        pytest.fail(f"{len(failed)} of {len(seeds)} histories differ: seeds {failed}\n{told}", pytrace=False)


@pytest.mark.parametrize("chunk", placed(CHUNKS, 8))
def test_histories(chunk: int, arena: Arena) -> None:
    all_agree(range(chunk * CHUNK, (chunk + 1) * CHUNK), arena)


@pytest.mark.parametrize("chunk", placed(TURN_CHUNKS, 3))
def test_taking_turns(chunk: int, arena: Arena) -> None:
    """Offsetlog and Kafka open one directory after each other, after clean and unclean ends, beside Kafka alone."""
    all_agree(range(chunk * CHUNK, (chunk + 1) * CHUNK), arena, turns=True)


# Outside the range above, each the first that met a corner: producers that expired before a truncation, snapshots outside the log, a
# segment that becomes the last one again, a log that is empty behind its start, records of magic 1 refused for two reasons, a gap that a
# broker left and that one of ours found and was killed, batches that end before they begin, a gzip header with reserved flags.
ONCE_APART = (
    *("914", "1244", "1325", "1551", "1572", "1610", "2199", "t861", "t950", "t1032", "t1154"),
    *("145223534", "145224650", "145225102", "145224888", "611765717"),
    *("780629955", "780630522", "t780630648", "t780630858"),
    *("t145223633", "t145223878", "t145223954", "t145224594", "t145224956", "t145225363"),
)


@pytest.mark.parametrize("name", ONCE_APART)
def test_once_apart(name: str, arena: Arena) -> None:
    all_agree(range(int(name.lstrip("t")), int(name.lstrip("t")) + 1), arena, turns=name.startswith("t"))


if RANDOM_CHUNKS:

    @pytest.mark.parametrize("chunk", range(RANDOM_CHUNKS))
    def test_random_histories(chunk: int, arena: Arena) -> None:
        first = int(os.environ[SEED]) + chunk * CHUNK
        all_agree(range(first, first + CHUNK // 2), arena)
        all_agree(range(first + CHUNK // 2, first + CHUNK), arena, turns=True)


def test_given_history(arena: Arena, request: pytest.FixtureRequest) -> None:
    given = str(request.config.getoption("history"))
    seed = given.lstrip("t")
    one = history(int(seed), turns=given.startswith("t")) if seed.isdigit() else History.load(Path(given))
    told = found(one, arena)
    if told is not None:
        pytest.fail(told, pytrace=False)
