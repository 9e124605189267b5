"""Makes a failing history small: drops steps, then settings, then records, as long as it still fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from histories import History, Step

Fails = Callable[[History], bool]
SECONDS = 60.0


def shrunk(history: History, fails: Fails, seconds: float = SECONDS) -> History:
    """The smallest failing history found in the time."""
    until = time.monotonic() + seconds
    size = max(1, len(history.steps) // 2)
    while size and time.monotonic() < until:
        smaller = next((one for one in _without(history, size) if time.monotonic() < until and fails(one)), None)
        if smaller is not None:
            history = smaller
            size = min(size, max(1, len(history.steps)))
        else:
            size //= 2
    while time.monotonic() < until:
        simpler = next((one for one in _simpler(history) if time.monotonic() < until and fails(one)), None)
        if simpler is None:
            break
        history = simpler
    return history


def _without(history: History, size: int) -> Iterator[History]:
    for at in reversed(range(0, len(history.steps), size)):
        yield history.with_steps(history.steps[:at] + history.steps[at + size :])


def _simpler(history: History) -> Iterator[History]:
    for name in history.config:
        # Without exact bytes, the settings are what keeps sizes from mattering.
        if history.exact and name != "internal.segment.bytes":
            yield replace(history, config={key: value for key, value in history.config.items() if key != name})
    for at, step in enumerate(history.steps):
        for fields in _simpler_fields(step):
            yield history.with_steps((*history.steps[:at], Step(step.verb, fields), *history.steps[at + 1 :]))


def _simpler_fields(step: Step) -> Iterator[dict[str, object]]:
    fields = step.fields
    for name in ("producer", "magic", "origin", "config"):
        if name in fields:
            yield {key: value for key, value in fields.items() if key != name}
    rows = fields.get("rows", [])
    for at in range(len(rows)):
        if len(rows) > 1:
            yield fields | {"rows": rows[:at] + rows[at + 1 :]}
    for at, row in enumerate(rows):
        plain = [0, "a", 1]
        for slot, value in enumerate(plain):
            if row[slot] != value or len(row) > len(plain):
                yield fields | {"rows": [*rows[:at], [*row[:slot], value, *row[slot + 1 : 3]], *rows[at + 1 :]]}
    batches = fields.get("batches", [])
    for at, batch in enumerate(batches):
        if len(batches) > 1:
            yield fields | {"batches": batches[:at] + batches[at + 1 :]}
        for smaller in _simpler_fields(Step("", batch)):
            yield fields | {"batches": [*batches[:at], smaller, *batches[at + 1 :]]}
    if fields.get("codec", "none") != "none":
        yield fields | {"codec": "none"}
