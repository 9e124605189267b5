"""What may happen to a log: verbs drawn at random for a state, and what each has to make of it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from codec import CODECS, Batch, Rec, encode, parse, segments, stored_epoch
from handles import NOW

from model import State

T0 = NOW - 50_000
WAYS = ("one", "one", "records", "writer", "arrow", "log", "log_dir")
RETENTION_MS = 1000
APPENDING = {"append", "move", "publish", "bytes", "marker"}
# A reader in another process asks while these are done.
BESIDE_A_READER = {"append", "move", "publish", "bytes", "marker", "roll", "flush", "truncate", "delete", "retain", "settings"}
BESIDE_A_READER |= {"compact", "restart", "reopen", "kill", "recreate"}

Row = tuple[bytes | None, bytes, int | None, tuple[tuple[str, bytes], ...]]


class Verb(NamedTuple):
    """A verb with its arguments, as :meth:`handles.Site.do` takes them."""

    name: str
    options: dict[str, Any]
    # What the settings make of what is appended: codec, and whether the leader gives timestamps.
    codec: int = 0
    is_stamped: bool = False


class Drawer:
    """Draws verbs that fit the state of a log."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.producers = 0
        self.sequences: dict[int, int] = {}
        self.values = 0
        self.now = T0
        self.thinned = False
        # A commit and `recover` go by the wall clock, by which the histories' producers are idle for years and forgotten.
        self.expired = False
        self.settings = dict(config)

    def draw(self, random: Random, state: State, *, is_log_dir: bool, only: set[str] | None = None) -> Verb:
        """A verb; one of `only`."""
        names = ["append"] * 6 + ["transaction"] * 3 + ["bytes"] * 2 + ["truncate"] * 4 + ["delete"] * 3 + ["roll"] * 2
        names += ["flush", "restart", "retain", "retain", "compact", "compact", "settings", "settings", "reopen", "reopen", "kill"]
        names += ["move"] * 2 + ["recreate", "publish"] * is_log_dir
        if state.open_transactions:
            names += ["marker"] * 6
        names = [name for name in names if only is None or name in only or name == "transaction"]
        verb: Verb | None = None
        while verb is None:
            verb = getattr(self, f"_{random.choice(names)}")(random, state)
            if verb is not None and only is not None and verb.name == "kill" and state.data_end < state.start:
                # Nothing can be read of such a log until its writer appends or closes: see the rare cases of the limitations.
                verb = None
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

    def _move(self, random: Random, state: State) -> Verb:
        """A log that was written aside becomes the end of this one; by renaming, if it is large enough."""
        codec = random.randrange(1, len(CODECS)) if random.random() < 0.3 else 0
        options = {"rows": self._rows(random, random.choice([1, 4, 12])), "segment_bytes": random.choice([300, 600, 5000])}
        return Verb("move", {**options, **({"compression": CODECS[codec]} if codec else {})}, codec)

    def _publish(self, random: Random, state: State) -> Verb | None:
        if state.end > state.data_end:
            # What opens the log again knows of no gap at its end.
            return None
        self.expired = True
        return self._move(random, state)._replace(name="publish")

    def _promised(self, given: int) -> tuple[int, bool]:
        """Codec and kind of timestamp of what a client appends with that codec."""
        setting = self.settings.get("compression.type", "producer").replace("uncompressed", "none")
        codec = given if setting == "producer" else CODECS.index(setting)
        return codec, self.settings.get("message.timestamp.type") == "LogAppendTime"

    def _append(self, random: Random, state: State) -> Verb:
        way = random.choice(WAYS)
        rows = self._rows(random, random.choice([1, 1, 3, 6]))
        options: dict[str, Any] = {"way": way, "rows": rows, "now": self.now}
        codec = random.randrange(1, len(CODECS)) if random.random() < 0.4 and way in {"records", "writer", "arrow", "log"} else 0
        if codec:
            options["compression"] = CODECS[codec]
        if random.random() < 0.15:
            options["flush"] = True
        if way in {"arrow", "log"} and random.random() < 0.4:
            # As in a restore, with gaps where compaction took records.
            offsets = [state.end + random.choice([0, 0, 1, 5])]
            while len(offsets) < len(rows):
                offsets.append(offsets[-1] + random.choice([1, 1, 2, 4]))
            options.update(offsets=offsets, epoch=max(0, state.epoch or 0) + random.choice([0, 0, 1]))
        if way == "log":
            return Verb("append", options, codec)
        codec, is_stamped = self._promised(codec)
        return Verb("append", options, codec, is_stamped and "offsets" not in options)

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
        codec = random.choice([0, 0, *range(1, len(CODECS))])
        given = {"compression": CODECS[codec]} if codec else {}
        return Verb("append", {"way": "records", "rows": rows, "now": self.now, **given, **ids}, *self._promised(codec))

    def _marker(self, random: Random, state: State) -> Verb | None:
        producer = random.choice(list(state.open_transactions))
        self.sequences.pop(producer, None)
        return Verb("marker", {"producer_id": producer, "commit": random.random() < 0.5})

    def _bytes(self, random: Random, state: State) -> Verb:
        is_leader = random.random() < 0.5
        base = 0 if is_leader else state.end + random.choice([0, 0, 0, 3])
        epoch = 0 if is_leader else max(0, state.epoch or 0) + random.choice([0, 0, 1])
        codec = random.choice([0, 0, *range(1, len(CODECS))])
        is_stamped = not is_leader and random.random() < 0.2
        offset, records = base, []
        for key, value, stamp, headers in self._rows(random, random.choice([1, 3])):
            records.append(Rec(offset, T0 if stamp is None or is_stamped else stamp, key, value, headers))
            offset += 1 if is_leader else random.choice([1, 1, 1, 3])
        # Compaction may have removed the last ones as well.
        last = records[-1].offset if is_leader else offset - 1
        data = encode(Batch(base, last, epoch, tuple(records), codec=codec, stamped=is_stamped))
        options = {"way": "leader" if is_leader else "follower", "data": data, "now": self.now}
        if random.random() < 0.15:
            options["flush"] = True
        return Verb("bytes", options, *(self._promised(codec) if is_leader else (codec, is_stamped)))

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
        if self.expired and any(batch.transactional for batch in state.batches):
            # Like a broker's, a truncation that finds no producers believes a snapshot, and reads no batch behind it.
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
        way = random.choice(["log", "log_dir"])
        if random.random() < 0.4:
            size = sum(batch.size for batch in state.batches)
            return Verb(
                "retain", {"way": way, "settings": {"retention.bytes": random.choice([0, size // 2, size, random.randint(0, size)])}}
            )
        # From somewhere between the oldest and the newest record on.
        self.now = max(self.now, T0 + RETENTION_MS + random.randrange(1200))
        now = self.now if random.random() < 0.7 else self.now + 10_000_000
        return Verb("retain", {"way": way, "settings": {"retention.ms": RETENTION_MS}, "now": now})

    def _compact(self, random: Random, state: State) -> Verb:
        self.thinned = True
        return Verb("compact", {})

    def _settings(self, random: Random, state: State) -> Verb:
        change: dict[str, Any] = {
            "internal.segment.bytes": random.choice([600, 1000, 5000]),
            "index.interval.bytes": random.choice([100, 400, 4096]),
            **appending(random),
        }
        for name in random.sample(sorted(change), random.choice([0, 0, 1, 2])):
            # Then the default holds.
            change[name] = None
        self.settings = {name: value for name, value in {**self.settings, **change}.items() if value is not None}
        return Verb("settings", {"change": change, "way": random.choice(["log", "topic"])})

    def _reopen(self, random: Random, state: State) -> Verb:
        recovers = random.random() < 0.4
        self.expired |= recovers
        return Verb("reopen", {"recovers": recovers})

    def _kill(self, random: Random, state: State) -> Verb | None:
        epochs = [batch.epoch for batch in state.batches]
        if epochs != sorted(epochs):
            # Recovery reads from the last checkpoint on, and like a broker's takes no epoch below one that it met.
            return None
        recovers = random.random() < 0.3
        self.expired |= recovers
        return Verb("kill", {"recovers": recovers})

    def _recreate(self, random: Random, state: State) -> Verb:
        self.sequences.clear()
        self.thinned = self.expired = False
        return Verb("recreate", {})


def appending(random: Random) -> dict[str, Any]:
    """Settings that change what is appended."""
    return {
        "compression.type": random.choice(["producer", "producer", "uncompressed", *CODECS[1:]]),
        "message.timestamp.type": random.choice(["CreateTime", "CreateTime", "LogAppendTime"]),
    }


def read(folder: Path, start: int, end: int) -> State:
    """The state of which the files tell, with bounds that are known."""
    found = segments(folder)
    newest = [batch.epoch for batch in list(found.values())[-1]]
    epoch = max(stored_epoch(folder), newest[-1] if newest else -1)
    return State(tuple((base, tuple(batches)) for base, batches in found.items()), start, end, epoch if epoch >= 0 else None)


def written_end(state: State) -> int:
    """Where the log ends for those who have nothing but its files: a truncation inside a batch leaves a gap before the end."""
    return max(state.data_end, state.start)


def as_written(state: State) -> State:
    """The state as those see it who have nothing but its files. Of the leader epochs those count that begin at or before that end."""
    end = written_end(state)
    if all(first <= end for _, first in state.epochs):
        return state._replace(end=end)
    known = [epoch for epoch, first in state.epochs if first <= end] + [batch.epoch for batch in state.segments[-1][1]]
    return state._replace(end=end, epoch=max([epoch for epoch in known if epoch >= 0], default=None))


def after(verb: Verb, before: State, folder: Path) -> State:
    """The state that `verb` has to make of `before`; its segments are those that are there."""
    bounds, expected = _expected(verb, before)
    state = read(folder, bounds["start"], bounds["end"])
    if verb.name == "kill":
        # An empty segment behind a gap, as a truncation inside a batch leaves it, is not kept.
        state = state._replace(end=max(written_end(state), state.start))
    if expected is not None:
        assert [batch[:-1] for batch in state.batches] == [batch[:-1] for batch in expected], (verb, before, state)
    elif verb.name == "compact":
        _check_compacted(before, state)
    else:
        added = state.batches[len(before.batches) :]
        assert state.batches[: len(before.batches)] == before.batches, (verb, before, state)
        _check_added(verb, before, added)
        state = state._replace(end=added[-1].last + 1)
    return state._replace(epochs=_epochs(verb, before, state), durable=_durable(verb, before, state))


def _expected(verb: Verb, before: State) -> tuple[dict[str, int], list[Batch] | None]:
    """The bounds behind a verb, and the batches; None where it adds some, or thins them out."""
    bounds = {"start": before.start, "end": before.end}
    offset = verb.options.get("offset", 0)
    if verb.name == "truncate" and offset < before.end:
        if offset < before.segments[0][0]:
            return {"start": offset, "end": offset}, []
        return {"start": min(before.start, offset), "end": offset}, [batch for batch in before.batches if batch.last < offset]
    if verb.name in {"restart", "recreate"}:
        return {"start": offset, "end": offset}, []
    if verb.name == "delete":
        bounds["start"] = max(before.start, offset)
    if verb.name == "retain":
        start, kept = _retained(before, verb.options)
        return {**bounds, "start": start}, kept
    if verb.name in {"reopen", "kill"}:
        bounds["end"] = written_end(before)
        # What is left of a log that was cut below where it began is nothing.
        behind = before.segments[:-1] if verb.name == "kill" and not before.segments[-1][1] else ()
        data_end = before._replace(segments=behind).data_end if behind else before.data_end
        return bounds, [] if data_end < before.start else before.batches
    return bounds, None if verb.name in {*APPENDING, "compact"} else before.batches


def _epochs(verb: Verb, before: State, state: State) -> tuple[tuple[int, int], ...]:
    """The leader epochs with their first offsets; contract of `LeaderEpochFileCache`."""
    entries = list(before.epochs)
    if verb.name in APPENDING:
        for batch in state.batches[len(before.batches) :]:
            if not (entries and entries[-1][0] == batch.epoch and entries[-1][1] <= batch.base):
                entries = [entry for entry in entries if entry[0] < batch.epoch and entry[1] < batch.base]
                entries.append((batch.epoch, batch.base))
    if verb.name == "restart" or (verb.name == "truncate" and state.end < before.segments[0][0]):
        entries = []
    entries = [entry for entry in entries if entry[1] < state.end or (verb.name not in {"truncate", "reopen", "kill"})]
    if verb.name == "recreate":
        entries = []
    if state.start > before.start or verb.name in {"reopen", "kill"}:
        below = [entry for entry in entries if entry[1] <= state.start]
        entries = [(epoch, max(first, state.start)) for epoch, first in below[-1:]] + entries[len(below) :]
    return tuple(entries)


def _durable(verb: Verb, before: State, state: State) -> int:
    """How far the writer has synced: to its end, or to the last segment that it began."""
    if verb.name in {"flush", "reopen", "recreate", "publish"}:
        return state.end
    if verb.options.get("flush"):
        return state.end
    began = state.segments[-1][0] if state.segments[-1][0] > before.segments[-1][0] and verb.name != "restart" else 0
    # DeleteRecords raises the recovery point to the new start.
    deleted = state.start if verb.name in {"delete", "retain"} and state.start > before.start else 0
    return min(max(before.durable, began, deleted), state.end)


def between(verb: Verb, before: State, after: State) -> list[State]:
    """What the files may show to another process from `before` on, `after` included."""
    if verb.name == "publish":
        # Opened again, a log has no leader epochs behind its last batch.
        newest = max((batch.epoch for batch in before.batches), default=-1)
        epochs = tuple(entry for entry in before.epochs if entry[1] < before.end)
        opened = before._replace(epoch=newest if newest >= 0 else None, epochs=epochs)
        return [opened, *_appending(opened, after), *_appending(before, after), after]
    if verb.name in APPENDING:
        return [*_appending(before, after), after]
    steps = {"retain": _retaining, "truncate": _truncating, "compact": _compacting, "restart": _restarting}
    return [*steps[verb.name](before, after), after] if verb.name in steps else [after]


def _appending(before: State, after: State) -> list[State]:
    states = []
    for count in range(len(before.batches), len(after.batches)):
        written = _prefix(before, after, count)
        states.append(written)
        behind = after.segments[len(written.segments) :]
        if behind and sum(len(batches) for _, batches in written.segments) == sum(
            len(batches) for _, batches in after.segments[: len(written.segments)]
        ):
            # The segment that the next batch begins is there before the batch.
            # Of batches below the start the checkpoint may have no epoch.
            rolled = written._replace(segments=(*written.segments, (behind[0][0], ())))
            states += [rolled, rolled._replace(epoch=max((epoch for epoch, _ in before.epochs), default=None))]
    return states


def _retaining(before: State, after: State) -> list[State]:
    states, whole = [], before
    if len(after.segments) == 1 and not after.segments[0][1] and before.segments[-1][1]:
        whole = before._replace(segments=(*before.segments, (before.end, ())))
        states.append(whole)
    for count in range(1, len(whole.segments)):
        left = whole.segments[count:]
        states.append(whole._replace(segments=left, start=max(before.start, left[0][0])))
        if left == after.segments:
            break
    return states


def _truncating(before: State, after: State) -> list[State]:
    states = []
    if after.start < before.start:
        # Cut below its start, before the new start is stored: the last stable offset is then that old start.
        states.append(after._replace(start=before.start, end=before.start))
    for count in range(len(before.segments) - 1, 0, -1):
        fewer = before._replace(segments=before.segments[:count])
        states.append(fewer._replace(end=max(written_end(fewer), before.start)))
    return states


def _compacting(before: State, after: State) -> list[State]:
    """Groups of segments are replaced one after the other."""
    states, was = [], dict(before.segments)
    for border in [base for base, _ in after.segments[1:] if base in was]:
        cleaned = [segment for segment in after.segments if segment[0] < border]
        states.append(before._replace(segments=(*cleaned, *(segment for segment in before.segments if segment[0] >= border))))
    return states


def _restarting(before: State, after: State) -> list[State]:
    """The newest segment goes first; that in which the log begins anew is there before, if no other one has its name."""
    offset, states = after.end, []
    is_free = offset not in dict(before.segments)
    for count in range(len(before.segments), -1, -1):
        left = before.segments[:count]
        if is_free:
            left = tuple(sorted((*left, (offset, ()))))
        if left:
            fewer = before._replace(segments=left)
            states.append(fewer._replace(end=max(fewer.data_end, before.start)))
    return states


def _prefix(before: State, after: State, count: int) -> State:
    """The state with the first `count` batches of `after`."""
    segments: list[tuple[int, tuple[Batch, ...]]] = []
    left, there = count, dict(before.segments)
    for base, batches in after.segments:
        if segments and not left and base not in there:
            break
        segments.append((base, batches[:left]))
        left -= len(batches[:left])
    epochs = [batch.epoch for batch in after.batches[len(before.batches) : count]]
    end = after.batches[count - 1].last + 1 if count > len(before.batches) else before.end
    newest = max([-1 if before.epoch is None else before.epoch, *epochs])
    return before._replace(segments=tuple(segments), end=end, epoch=newest if newest >= 0 else None)


def _check_added(verb: Verb, before: State, added: list[Batch]) -> None:
    offsets = [record.offset for batch in added for record in batch.records]
    options = verb.options
    if verb.name == "marker":
        (batch,) = added
        assert (batch.producer_id, batch.control) == (options["producer_id"], options["commit"]), (verb, added)
        assert offsets == [before.end], (verb, added)
        return
    assert all((batch.codec, batch.stamped) == (verb.codec, verb.is_stamped) for batch in added), (verb, added)
    got: list[Any] = [record[1:] for batch in added for record in batch.records]
    if verb.name in {"append", "move", "publish"}:
        assert offsets == options.get("offsets", list(range(before.end, before.end + len(offsets)))), (verb, added)
        rows: list[Any] = [(stamp, key, value, headers) for key, value, stamp, headers in options["rows"]]
        if verb.is_stamped or options.get("way") in {"records", "arrow"}:
            # Without a time of their own they have that of the call.
            rows = [(options["now"], *one[1:]) for one in rows]
        if options.get("way") in {"records", "arrow"}:
            # Tables have no headers here, and records in pairs neither.
            rows = [(*one[:3], ()) for one in rows]
        assert got == rows, (verb, added)
        return
    (given,), (batch,) = parse(options["data"]), added
    shift = before.end - given.base if options["way"] == "leader" else 0
    assert (batch.base, batch.last) == (given.base + shift, given.last + shift), (verb, added)
    wanted = [record[1:] for record in given.records]
    assert offsets == [record.offset + shift for record in given.records], (verb, added)
    if options["way"] == "leader" and verb.is_stamped:
        wanted = [(options["now"], *one[1:]) for one in wanted]
    assert got == wanted, (verb, added)
    if options["way"] == "follower" or (verb.codec, verb.is_stamped) == (given.codec, given.stamped):
        # Such a batch keeps its bytes but for offset and epoch.
        assert batch.size == given.size, (verb, added)


def _retained(before: State, options: dict[str, Any]) -> tuple[int, list[Batch]]:
    """The log start offset and the batches that are left; contract of `UnifiedLog.deleteOldSegments`."""
    start, kept = before.start, list(before.segments)
    settings = options["settings"]
    too_much = sum(batch.size for batch in before.batches) - settings.get("retention.bytes", 1 << 62)
    while kept:
        _, batches = kept[0]
        is_last = len(kept) == 1
        end = before.end if is_last else kept[1][0]
        if is_last and not batches:
            break
        size = sum(batch.size for batch in batches)
        is_old = (
            "now" in options and options["now"] - max((batch.greatest for batch in batches), default=-1) > settings["retention.ms"]
        )
        is_below = not is_last and end <= before.start
        if not (is_below or is_old or too_much >= size):
            break
        too_much -= size
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
