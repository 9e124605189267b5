"""What may happen to a log: verbs drawn at random for a state, and what each has to make of it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from codec import Batch, Rec, encode, segments, stored_epoch
from handles import NOW

from model import State

T0 = NOW - 50_000
WAYS = ("one", "one", "records", "writer", "arrow", "log", "log_dir")
RETENTION_MS = 1000

Row = tuple[bytes | None, bytes, int | None, tuple[tuple[str, bytes], ...]]


class Verb(NamedTuple):
    """A verb with its arguments, as :meth:`handles.Site.do` takes them."""

    name: str
    options: dict[str, Any]


class Drawer:
    """Draws verbs that fit the state of a log."""

    def __init__(self) -> None:
        self.producers = 0
        self.sequences: dict[int, int] = {}
        self.values = 0
        self.now = NOW
        self.thinned = False

    def draw(self, random: Random, state: State) -> Verb:
        """A verb."""
        names = ["append"] * 6 + ["transaction"] * 3 + ["bytes"] * 2 + ["truncate"] * 4 + ["delete"] * 3 + ["roll"] * 2
        names += ["flush", "restart", "retain", "retain", "compact", "compact", "settings", "reopen", "reopen"]
        if state.open_transactions:
            names += ["marker"] * 6
        verb: Verb | None = None
        while verb is None:
            verb = getattr(self, f"_{random.choice(names)}")(random, state)
        return verb

    def _rows(self, random: Random, count: int) -> list[Row]:
        rows: list[Row] = []
        for _ in range(count):
            self.values += 1
            key = random.choice([b"a", b"b", b"c", b"d", None])
            value = b"%d-" % self.values + b"x" * random.choice([3, 20, 60] if count > 1 else [3, 60, 150])
            headers = (("h", b"%d" % self.values),) if random.random() < 0.2 else ()
            rows.append((key, value, T0 + random.randrange(1000), headers))
        return rows

    def _append(self, random: Random, state: State) -> Verb:
        return Verb("append", {"way": random.choice(WAYS), "rows": self._rows(random, random.choice([1, 1, 3, 6]))})

    def _transaction(self, random: Random, state: State) -> Verb:
        known = [producer for producer in state.open_transactions if producer in self.sequences]
        if known and random.random() < 0.6:
            producer = random.choice(known)
        else:
            self.producers += 1
            producer = 100 + self.producers
            self.sequences[producer] = 0
        rows = self._rows(random, random.choice([1, 2]))
        sequence = self.sequences[producer]
        self.sequences[producer] += len(rows)
        ids = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
        return Verb("append", {"way": "records", "rows": rows, **ids})

    def _marker(self, random: Random, state: State) -> Verb | None:
        producer = random.choice(list(state.open_transactions))
        self.sequences.pop(producer, None)
        return Verb("marker", {"producer_id": producer, "commit": random.random() < 0.5})

    def _bytes(self, random: Random, state: State) -> Verb:
        way = random.choice(["leader", "follower"])
        base = 0 if way == "leader" else state.end
        epoch = 0 if way == "leader" else max(0, state.epoch or 0) + random.choice([0, 0, 1])
        rows = self._rows(random, random.choice([1, 3]))
        records = tuple(
            Rec(base + at, T0 if stamp is None else stamp, key, value, headers) for at, (key, value, stamp, headers) in enumerate(rows)
        )
        return Verb("bytes", {"way": way, "data": encode(Batch(base, records[-1].offset, epoch, records))})

    def _roll(self, random: Random, state: State) -> Verb:
        return Verb("roll", {})

    def _flush(self, random: Random, state: State) -> Verb:
        return Verb("flush", {})

    def _truncate(self, random: Random, state: State) -> Verb | None:
        lowest = max(0, state.start - 2) if random.random() < 0.1 else state.start
        offset = random.randint(max(lowest, state.end - random.choice([2, 5, 20, 100])), state.end + 1)
        cut = [batch for batch in state.batches if batch.last >= offset]
        if any(batch.control is not None for batch in cut) and (self.thinned or state.start > state.segments[0][0]):
            # Whose transaction it ended may not be there any more: then it is open again in a snapshot of producers alone.
            return None
        self.sequences.clear()
        return Verb("truncate", {"offset": offset})

    def _restart(self, random: Random, state: State) -> Verb | None:
        self.sequences.clear()
        return Verb("restart", {"offset": state.end + random.choice([-3, 0, 1, 50])}) if state.end > 3 else None

    def _delete(self, random: Random, state: State) -> Verb | None:
        offset = random.randint(state.start, state.end)
        if any(first < offset for first in state.open_transactions.values()):
            return None
        return Verb("delete", {"offset": offset})

    def _retain(self, random: Random, state: State) -> Verb | None:
        if state.open_transactions or any(not batches for _, batches in state.segments[:-1]):
            return None
        self.thinned = True
        # From somewhere between the oldest and the newest record on.
        self.now = max(self.now, T0 + RETENTION_MS + random.randrange(1200))
        return Verb("retain", {"now": self.now if random.random() < 0.7 else self.now + 10_000_000})

    def _compact(self, random: Random, state: State) -> Verb:
        self.thinned = True
        return Verb("compact", {})

    def _settings(self, random: Random, state: State) -> Verb:
        change = {"internal.segment.bytes": random.choice([600, 1000, 5000]), "index.interval.bytes": random.choice([100, 400, 4096])}
        return Verb("settings", {"change": change})

    def _reopen(self, random: Random, state: State) -> Verb:
        return Verb("reopen", {"recovers": random.random() < 0.4})


def read(folder: Path, start: int, end: int) -> State:
    """The state of which the files tell, with bounds that are known."""
    found = segments(folder)
    newest = [batch.epoch for batch in list(found.values())[-1]]
    epoch = max(stored_epoch(folder), newest[-1] if newest else -1)
    return State(tuple((base, tuple(batches)) for base, batches in found.items()), start, end, epoch if epoch >= 0 else None)


def written_end(state: State) -> int:
    """Where the log ends for those who have nothing but its files: a truncation inside a batch leaves a gap before the end."""
    base, batches = state.segments[-1]
    return max(base, batches[-1].last + 1 if batches else base, state.start)


def after(verb: Verb, before: State, folder: Path) -> State:
    """The state that `verb` has to make of `before`; its segments are those that are there."""
    bounds = {"start": before.start, "end": before.end}
    expected: list[Batch] | None = before.batches
    options = verb.options
    if verb.name == "truncate" and options["offset"] < before.end:
        offset = options["offset"]
        if offset < before.segments[0][0]:
            expected, bounds = [], {"start": offset, "end": offset}
        else:
            expected = [batch for batch in before.batches if batch.last < offset]
            bounds = {"start": min(before.start, offset), "end": offset}
    elif verb.name == "restart":
        expected, bounds = [], {"start": options["offset"], "end": options["offset"]}
    elif verb.name == "delete":
        bounds["start"] = max(before.start, options["offset"])
    elif verb.name == "retain":
        bounds["start"], expected = _retained(before, options["now"])
    elif verb.name == "reopen":
        bounds["end"] = written_end(before)
        if all(batch.last + 1 < before.start for batch in before.batches) and bounds["end"] < before.end:
            # What is left of a log that was cut below where it began is nothing.
            expected = []
    elif verb.name in {"append", "bytes", "marker", "compact"}:
        expected = None
    state = read(folder, bounds["start"], bounds["end"])
    if expected is not None:
        assert [batch[:-1] for batch in state.batches] == [batch[:-1] for batch in expected], (verb, before, state)
        return state
    if verb.name == "compact":
        _check_compacted(before, state)
        return state
    added = state.batches[len(before.batches) :]
    assert state.batches[: len(before.batches)] == before.batches, (verb, before, state)
    _check_added(verb, before, added)
    return state._replace(end=added[-1].last + 1)


def _check_added(verb: Verb, before: State, added: list[Batch]) -> None:
    offsets = [record.offset for batch in added for record in batch.records]
    assert offsets == list(range(before.end, before.end + len(offsets))), (verb, added)
    got: list[Any] = [record[1:] for batch in added for record in batch.records]
    if verb.name == "marker":
        (batch,) = added
        assert (batch.producer_id, batch.control) == (verb.options["producer_id"], verb.options["commit"]), (verb, added)
        return
    if verb.name == "append":
        # Tables have neither times nor headers here, and records in pairs neither.
        bare = verb.options["way"] in {"records", "arrow"}
        rows: list[Any] = [(stamp, key, value, headers) for key, value, stamp, headers in verb.options["rows"]]
        if bare:
            got = [(None, *one[1:3], ()) for one in got]
            rows = [(None, key, value, ()) for _, key, value, _ in rows]
        assert got == rows, (verb, added)
        return
    given = verb.options["data"]
    sent = encode(
        added[0]._replace(
            epoch=0,
            base=0,
            last=len(offsets) - 1,
            records=tuple(record._replace(offset=at) for at, record in enumerate(added[0].records)),
        )
    )
    assert sent[21:] == given[21:], (verb, added)


def _retained(before: State, now: int) -> tuple[int, list[Batch]]:
    start, kept = before.start, list(before.segments)
    while kept:
        _, batches = kept[0]
        is_last = len(kept) == 1
        end = before.end if is_last else kept[1][0]
        newest = max((batch.greatest for batch in batches), default=-1)
        if is_last and not batches:
            break
        if not (not is_last and end <= before.start) and now - newest <= RETENTION_MS:
            break
        start = max(start, end)
        kept.pop(0)
    return start, [batch for _, batches in kept for batch in batches]


def _check_compacted(before: State, state: State) -> None:
    was = {record.offset: (batch, record) for batch in before.batches for record in batch.records}
    now = {record.offset: record for batch in state.batches for record in batch.records}
    assert all(was[offset][1] == record for offset, record in now.items()), (before, state)
    aborted = before.aborted()
    for offset, (batch, record) in was.items():
        if offset in now or batch.control is not None or record.key is None or offset < before.start:
            continue
        later = any(other > offset and one.key == record.key for other, (_, one) in was.items())
        in_aborted = any(batch.producer_id == producer and first <= offset < marker for producer, first, marker in aborted)
        assert later or in_aborted, (offset, before, state)
