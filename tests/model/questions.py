"""What the handles are asked: the options of each question, drawn at random near the bounds of the log."""

from __future__ import annotations

from random import Random
from typing import Any

from verbs import T0

from model import COLUMNS, State

# Options of a scan of a sound log by which no record comes or goes.
WITHOUT_EFFECT: dict[str, list[Any]] = {
    "threads": [2, 3],
    "batch_rows": [1, 2, 1000],
    "batch_bytes": [1, 100, 1 << 20],
    "verify_checksums": [False],
    "on_corrupt": ["skip", "stop"],
}


def drawn(kind: str, random: Random, state: State, offsets: list[int]) -> dict[str, Any]:
    """The options of a question; most have an offset of `offsets`."""
    offset = random.choice(offsets)
    isolation = {"isolation_level": random.choice(["read_uncommitted", "read_committed"])}
    if kind in {"scan", "count", "arrow", "batches", "log_dir_scan"}:
        return _range(random, kind, offsets, isolation)
    if kind in {"splits", "over"}:
        how_cut = random.choice([{"max_bytes": 1}, {"max_bytes": 300}, {"max_bytes": 1 << 20}, {"count": 1}, {"count": 3}])
        return {**_range(random, "batches", offsets, isolation), **how_cut}
    when = random.choice([0, T0 + random.randrange(1100), T0 + 10**9])
    others: dict[str, dict[str, Any]] = {
        "get": {"offset": offset},
        "locate": {"offset": offset},
        "take": {"offsets": random.choices(offsets, k=random.choice([1, 3]))},
        "follow": {"start": random.choice([None, offset]), **isolation},
        "pause": {"start": random.choice([None, offset]), "count": random.choice([1, 1, 3]), **isolation},
        "time": {"when": when, **isolation},
        "log_dir_time": {"when": when, **isolation},
        "epoch_end": {"epoch": random.randint(-1, (state.epoch or 0) + 1)},
        "fetch": {"offset": offset, "max_bytes": random.choice([1, 500, 1 << 20]), **isolation},
    }
    return others.get(kind, {})


def _range(random: Random, kind: str, offsets: list[int], isolation: dict[str, Any]) -> dict[str, Any]:
    """The options of a scan."""
    start, stop = random.choice([None, *offsets]), random.choice([None, *offsets])
    if start is not None and stop is not None and stop < start:
        start, stop = stop, start
    options: dict[str, Any] = {} if kind == "log_dir_scan" else {"start": start, "stop": stop}
    if kind == "batches":
        return options
    options.update(isolation)
    for name, value in (("keys", [b"a", b"b"]), ("limit", 2), ("start_timestamp", T0 + 300), ("stop_timestamp", T0 + 700)):
        if random.random() < 0.15:
            options[name] = value
    for name, values in WITHOUT_EFFECT.items():
        if random.random() < 0.15:
            options[name] = random.choice(values)
    if kind == "arrow":
        known = list(COLUMNS)
        options["columns"] = random.sample(known, random.randint(1, len(known)))
    return options
