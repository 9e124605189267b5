"""Iterators of `follow` that live through many verbs: what each has returned, and what its next records or its error have to be."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from verbs import Verb, written_end

from model import OUT_OF_RANGE, State

ISOLATIONS = ("read_uncommitted", "read_committed")
# More than a follower can return before its error.
TO_THE_ERROR = 1 << 20

Key = tuple[int, str, str]


class Held(NamedTuple):
    """One follower: the state at its last look, what it returned until then, and where that look found the end."""

    at: int
    # Behind the last record that it returned, and behind all that its scan was to read.
    behind: int
    looked_at: int
    # The state in which it was asked last: what its scan read ahead is of that one.
    asked_in: int
    # From where on what it returned is gone, so that it cannot go on.
    lost_from: int | None = None


class Rows(NamedTuple):
    """These come next."""

    rows: list[Any]


class Lost(NamedTuple):
    """An error comes: with the offset at which the follower goes on, if it names one that can be known."""

    error: str
    log_end_offset: int | None


class Either(NamedTuple):
    """Its scan is under way, and the log was truncated within what that was to read: these come next, or, where some of what was truncated was
    read ahead, that and then the error."""

    rows: list[Any]
    cut: int


class Followers:
    """What is known of all followers of a history."""

    def __init__(self) -> None:
        self.held: dict[Key, Held] = {}

    def forget(self, site: int, name: str) -> None:
        """Their handle is another one now."""
        for isolation in ISOLATIONS:
            self.held.pop((site, name, isolation), None)

    def draw(self, random: Random, key: Key, states: Sequence[State], verbs: Sequence[Verb], *, is_told: bool) -> Any:
        """The options with which a follower is asked; None where it has nothing to return now, or nobody can say what it has."""
        held = self.held.get(key)
        start = states[-1].start if held is None else held.behind
        wanted = (
            Rows(_rows(states[-1], start, key[2], is_told=is_told))
            if held is None
            else expected(held, key[2], states, verbs, is_told=is_told)
        )
        # One that met an error is gone where nobody can say how it goes on.
        options = {"start": start, "isolation_level": key[2], "anew": held is None}
        if isinstance(wanted, Lost):
            return {**options, "count": TO_THE_ERROR}
        if wanted is None or not wanted.rows:
            # It begins anew where nobody can say what it has.
            return {**options, "count": 0} if wanted is None else None
        if isinstance(wanted, Either):
            return {**options, "count": len(wanted.rows)}
        # A part of them now and then: its scan is under way when the next verb comes.
        count = len(wanted.rows) if random.random() < 0.8 else random.randint(1, len(wanted.rows))
        return {**options, "count": count}

    def is_right(
        self, key: Key, options: dict[str, Any], got: Any, states: Sequence[State], verbs: Sequence[Verb], *, is_told: bool
    ) -> tuple[bool, Any]:
        """Whether a follower may return this, and what it has to; from then on that is known of it."""
        held = self.held.pop(key, None)
        if not options["count"]:
            return got == ([], None), ([], None)
        found, error = got
        wanted: Any = Rows(_rows(states[-1], options["start"], key[2], is_told=is_told))
        if held is not None:
            wanted = expected(held, key[2], states, verbs, is_told=is_told)
        at = len(states) - 1
        if isinstance(wanted, Either) and held is not None:
            if got == (wanted.rows, None):
                self.held[key] = Held(at, found[-1][0] + 1, held.looked_at, at)
                return True, wanted
            if error is None and is_rest_of(held, found, key[2], states, is_told=is_told):
                # All of it was read ahead, so the error is still to come.
                self.held[key] = held._replace(behind=found[-1][0] + 1, lost_from=wanted.cut)
                return found[-1][0] >= wanted.cut, wanted
            wanted = Lost("OffsetOutOfRangeError", wanted.cut)
        if isinstance(wanted, Lost) and held is not None:
            # The scan that was under way comes to its end before.
            is_gone = wanted.error == "FileNotFoundError"
            is_rest = is_rest_of(held, found, key[2], states, is_told=is_told, is_gone=is_gone)
            known = error is not None and (wanted.log_end_offset is None or error[2] == wanted.log_end_offset)
            is_right = is_rest and known and error[1] == wanted.error
            if is_right and wanted.log_end_offset is not None:
                # What is cut from now on is told beside it.
                self.held[key] = Held(at, wanted.log_end_offset, wanted.log_end_offset, at)
            return is_right, wanted
        rows = wanted.rows[: options["count"]]
        seen = _seen(states[-1], is_told=is_told)
        looked_at = seen.stable if key[2] == "read_committed" else seen.end
        looked_in = at
        if held is not None and rows and rows[-1][0] < held.looked_at:
            looked_in, looked_at = held.at, held.looked_at
        self.held[key] = Held(looked_in, rows[-1][0] + 1, looked_at, at)
        return got == (rows, None), (rows, None)


def is_rest_of(held: Held, found: list[Any], isolation: str, states: Sequence[State], *, is_told: bool, is_gone: bool = False) -> bool:
    """Whether these may come from a scan that is under way and cannot go on: what it has read ahead, or its file still has."""
    if any(not held.behind <= one[0] < held.looked_at for one in found):
        return False
    if is_told and not is_gone:
        return found == _rows(states[held.asked_in], held.behind, isolation, is_told=is_told)[: len(found)]
    ever = {one for state in states[held.at :] for one in state.ask(("scan", {"isolation_level": isolation}))}
    offsets = [one[0] for one in found]
    return all(one in ever for one in found) and offsets == sorted(set(offsets))


def expected(
    held: Held, isolation: str, states: Sequence[State], verbs: Sequence[Verb], *, is_told: bool
) -> Rows | Lost | Either | None:
    """What comes next; None where the rest of a scan that was under way may be one thing or another."""
    now = states[-1]
    since = range(held.at, len(states) - 1)
    if any(verbs[at].name == "recreate" for at in since):
        # Another log has the path.
        return Lost("FileNotFoundError", None)
    cuts = _cuts_since(held.at, states, verbs)
    if held.lost_from is not None:
        return Lost("OffsetOutOfRangeError", min(held.lost_from, now.end, *cuts))
    noticed = [now.end, *cuts] if is_told else [written_end(now), another_leader(held, states[held.at], now)]
    cut = min(noticed)
    is_reading = held.behind < held.looked_at
    if cut < held.behind:
        # A scan that is under way comes first: what it was to read next may be deleted.
        return Lost("OffsetOutOfRangeError", None if is_reading and now.start > held.behind else cut)
    is_compacted = any(verbs[at].name == "compact" for at in since)
    if cut < held.looked_at and is_told and now.start <= held.behind and not is_compacted:
        rows = _rows(now, held.behind, isolation, is_told=is_told)
        # Without new records, only waiting tells whether an error comes: it is asked when there are some.
        return Either(rows, cut) if rows and rows[-1][0] >= cut else Rows([])
    if cut < held.looked_at:
        return None
    if now.start > held.behind:
        return Lost("OffsetOutOfRangeError", None) if not is_reading or now.start > held.looked_at else None
    if is_reading and (min(cuts, default=held.looked_at) < held.looked_at or is_compacted):
        return None
    return Rows(_rows(now, held.behind, isolation, is_told=is_told))


def _cuts_since(at: int, states: Sequence[State], verbs: Sequence[Verb]) -> list[int]:
    return [_cut(verbs[number], states[number], states[number + 1]) for number in range(at, len(states) - 1)]


def another_leader(held: Held, before: State, now: State) -> int:
    """From where on another leader wrote in place of what a follower has read, as leader epochs tell; KIP-320."""
    last = held.looked_at - 1
    known, found = (_epoch_of(state, last) for state in (before, now))
    if known is None or found is None or known == found:
        return held.looked_at
    return min([first for epoch, first in now.epochs if epoch > known], default=held.looked_at)


def _epoch_of(state: State, offset: int) -> int | None:
    return next((epoch for epoch, first in reversed(state.epochs) if first <= offset), None)


def _cut(verb: Verb, before: State, after: State) -> int:
    """Where a verb cut the log, which its writer tells to the followers of its process."""
    offset: int = verb.options.get("offset", 0)
    if verb.name == "restart":
        return offset
    if verb.name == "truncate" and offset < before.end:
        return min(offset, after.data_end)
    return 1 << 62


def _seen(state: State, *, is_told: bool) -> State:
    """A gap at the end is known to the writer's process alone."""
    return state if is_told else state._replace(end=written_end(state))


def _rows(state: State, start: int, isolation: str, *, is_told: bool) -> list[Any]:
    found = _seen(state, is_told=is_told).ask(("scan", {"start": start, "isolation_level": isolation}))
    return [] if found == OUT_OF_RANGE else found
