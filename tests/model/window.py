"""What may be answered while a log changes: one state that it had meanwhile, or, of scans under way, what was there at some time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from model import OUT_OF_RANGE, Question, State

# These read on while the log changes. Every other question is answered from one state.
PROGRESSIVE = {"scan", "count", "arrow", "follow", "batches", "take"}

Same = Callable[[str, Any, Any], bool]


class Window:
    """The states of a log between two moments, in order."""

    def __init__(self, states: list[State]) -> None:
        self.states = states

    def may_say(self, question: Question, got: Any, same: Same) -> bool:
        """Whether it is an answer that the window allows."""
        name, options = question
        answers = [state.ask(question) for state in self.states]
        if any(same(name, got, wanted) for wanted in answers):
            return True
        if name not in PROGRESSIVE:
            return False
        if got == OUT_OF_RANGE:
            return self._lost_any()
        if isinstance(got, tuple):
            return False
        limit = options.get("limit")
        ever = [_rows(state, options, name) for state in self.states]
        if name == "take":
            return all(any(one in rows for rows in ever) for one in got)
        if name == "count":
            fewest, most = len(set.intersection(*map(set, ever))), len(set.union(*map(set, ever)))
            return bool((0 if limit else fewest) <= got <= (limit or most))
        # The files below a start that was raised meanwhile are read on, also as compaction leaves them.
        lowest = min(state.start for state in self.states)
        there = [_rows(state._replace(start=lowest), options, name) for state in self.states] if name == "batches" else ever
        return _is_within(got, there) and (limit is not None or _has_all(got, ever))

    def may_have_read(self, options: dict[str, Any], got: tuple[list[Any], Any], stop: int) -> bool:
        """Whether a scan that began in the first state, with that end, and went on until the last one may have returned this."""
        rows, error = got
        ever, owed = ([_rows(state, {**options, "stop": until}) for state in self.states] for until in (None, stop))
        if not _is_within(rows, ever):
            return False
        if error is not None:
            return bool(error == OUT_OF_RANGE and self._lost_any())
        return _has_all(rows, owed)

    def _lost_any(self) -> bool:
        """Whether records below the end that the log had were deleted or cut off."""
        pairs = zip(self.states, self.states[1:], strict=False)
        return any(after.start > before.start or after.end < before.end for before, after in pairs)


def _rows(state: State, options: dict[str, Any], name: str = "scan") -> list[Any]:
    """What is there of a range, also where its start is gone meanwhile."""
    start = options.get("start")
    if name == "batches":
        return [batch for batch in state.ask((name, {**options, "start": None})) if start is None or batch[1] >= start]
    kept = {key: value for key, value in options.items() if key not in {"start", "limit", "offsets"}}
    found = state.ask((name if name == "arrow" else "scan", {**kept, "start": None}))
    return [one for one in found if start is None or one[0] >= start]


def _is_within(got: list[Any], answers: list[list[Any]]) -> bool:
    """Whether all of it was there at some time, in order."""
    ever = {one for answer in answers for one in answer}
    offsets = [one[0] for one in got]
    return all(one in ever for one in got) and offsets == sorted(set(offsets))


def _has_all(got: list[Any], answers: list[list[Any]]) -> bool:
    """Whether nothing is missing that was there all the time."""
    there = set.intersection(*[set(answer) for answer in answers]) if answers else set()
    return there <= set(got)
