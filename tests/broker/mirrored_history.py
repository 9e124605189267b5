"""A random life of a real broker while a mirror of it is killed again and again, and what the copy must be like at each rest.

What the copy is held against are the broker's own files, looked at often enough to know every batch that was ever in one, and what the
broker's admin API answers. A topic that is not compacted has the same bytes; of a compacted one the copy has, as a follower has that
copied it meanwhile and has not cleaned it yet, each batch that the broker has left, as it is or as it was before the cleaner took records
out of it.
"""

from __future__ import annotations

import functools
import os
import random
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

from clients import Admin
from kafka.structs import OffsetAndMetadata
from make_log import crc32c
from mirroring import Mirroring, ended, log_bytes, mirror
from peers import CODECS, Appended, encoded
from restoring import IS_WHOLE
from transactional import Place, Transactional
from wire import Wire

from broker import broker_of
from kafka import KafkaConsumer, TopicPartition
from offsetlog import LogDir

SETTINGS = {
    "log.initial.task.delay.ms": 100,
    "log.retention.check.interval.ms": 300,
    # What was taken out of a log stays this long beside it, and is seen there.
    "log.segment.delete.delay.ms": 3_600_000,
}
COMPACTED, EXPIRING, STAMPED = "compacted", "expiring", "stamped"
NEVER_CLEAN, CLEAN = {"min.cleanable.dirty.ratio": "1.0"}, {"min.cleanable.dirty.ratio": "0.01"}
"""No log is more than all dirty. The cleaner rests while batches are written, so that each batch is seen before it changes."""
RECODED: Final = ("gzip", "snappy", "lz4", "zstd", "uncompressed")
SEED = int(os.environ.get("OFFSETLOG_SEED") or (random.SystemRandom().randrange(10**9) if IS_WHOLE else 20261129))
"""Of all that is random here: the same in each run that is to say the same, drawn anew in a soak."""
SCALE = float(os.environ.get("OFFSETLOG_SCALE", "1"))
PEERS = ("kafka-python", "aiokafka")
GROUPS = ("readers", "others")
DAY_MS = 86_400_000
HARMLESS = (("segment.index.bytes", 10_000, 1_000_000), ("delete.retention.ms", DAY_MS, 2**40), ("flush.messages", 1000, 2**40))
"""Settings that change nothing which is compared here: of each the least and the largest value."""
RESTING_SECONDS = 300
STILL_SECONDS = 1.5
"""A broker whose cleaner looks ten times a second, and retention three times, and that changes nothing for so long is at rest."""
LOOKING_SECONDS = 2.0
SEGMENT_BYTES = 6000
FRAME = struct.Struct(">qi")
TRANSACTIONAL = 16
FIRST_PRODUCER = 10**9
"""Ids of producers that are in no transaction; a coordinator gives smaller ones."""

Span = tuple[int, int]
"""First and last offset of a batch."""


def batches(data: bytes) -> Iterator[tuple[Span, bytes]]:
    """The whole batches of magic 2; half of one may be behind them."""
    at = 0
    while at + 27 <= len(data):
        base, size = FRAME.unpack_from(data, at)
        if at + FRAME.size + size > len(data):
            return
        assert data[at + 16] == 2, (at, data[at + 16])
        (delta,) = struct.unpack_from(">i", data, at + 23)
        yield (base, base + delta), data[at : at + FRAME.size + size]
        at += FRAME.size + size


def checkpoint(log_dir: Path, name: str) -> dict[str, int]:
    """One of a log dir's checkpoints, by partition."""
    with suppress(FileNotFoundError):
        lines = (log_dir / name).read_text(encoding="ascii").splitlines()[2:]
        return {f"{topic}-{number}": int(offset) for topic, number, offset in map(str.split, lines)}
    return {}


class Ever:
    """Every batch that a broker's logs had at some moment, in each form that it had."""

    def __init__(self, log_dir: Path) -> None:
        self.forms: dict[str, dict[Span, set[bytes]]] = {}
        """By partition and span."""
        self._log_dir = log_dir
        self._sizes: dict[int, int] = {}
        """How much was read of a file, by its number: a rename is no other file."""
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._looking = threading.Thread(target=self._look_on, daemon=True)
        self._looking.start()

    def look(self) -> None:
        """Read what has come."""
        with self._lock:
            for partition in self._log_dir.glob("*-[0-9]*"):
                if not partition.name.startswith("__"):
                    for file in (*partition.glob("*.log"), *partition.glob("*.log.deleted")):
                        # Renamed since: the next look finds it.
                        with suppress(FileNotFoundError):
                            self._read(partition.name, file)

    def _read(self, partition: str, path: Path) -> None:
        with path.open("rb") as file:
            number = path.stat().st_ino
            at = self._sizes.get(number, 0)
            file.seek(at)
            found = self.forms.setdefault(partition, {})
            for span, data in batches(file.read()):
                found.setdefault(span, set()).add(data)
                at += len(data)
        self._sizes[number] = at

    @contextmanager
    def restart(self) -> Iterator[None]:
        """While a broker starts it removes what it took out of its logs, and other files may have the numbers of those then."""
        with self._lock:
            yield
            self._sizes.clear()

    def _look_on(self) -> None:
        while not self._over.wait(LOOKING_SECONDS):
            self.look()

    def end(self) -> None:
        self._over.set()
        self._looking.join()


class History:
    """One life from a seed: it ends at a rest, where the copy is compared, after so many kills of the mirror."""

    def __init__(self, version: str, folder: Path, seed: int, kills: int) -> None:
        self.version = version
        self.random = random.Random(f"{version} {seed}")
        self.broker = broker_of(version, folder / "source")
        self.broker.settings = SETTINGS
        self.into = folder / "mirror"
        self.kills = 0
        self.grown = 0
        """Kills of a mirror that had copied something."""
        self.compared = 0
        """Batches that were the same at a rest."""
        self.restarts = 0
        self._wanted = kills
        self._pace = 1.0
        self._told = 0, 0
        self._said = folder / "said.jsonl"
        self._topics: dict[str, dict[str, str]] = {}
        self._ends: dict[Place, int] = {}
        self._sequences: dict[tuple[int, Place], int] = {}
        self._lost: dict[str, list[tuple[int, int]]] = {}
        """What the source had deleted before it was copied, as the mirror told."""
        self._committed: dict[tuple[str, str, int], tuple[int, str]] = {}
        self._senders: dict[str, Transactional] = {}
        self._open: set[str] = set()
        self._wire: Wire | None = None
        self._admin: Admin | None = None
        self._ever: Ever | None = None

    @property
    def wire(self) -> Wire:
        assert self._wire is not None
        return self._wire

    @property
    def admin(self) -> Admin:
        assert self._admin is not None
        return self._admin

    @property
    def ever(self) -> Ever:
        assert self._ever is not None
        return self._ever

    # What happens.

    def live(self) -> None:
        """From the first topic to the last comparison."""
        self.broker.format()
        self.broker.start()
        try:
            self._ever = Ever(self.broker.log_dir)
            self._connect()
            for name in (COMPACTED, EXPIRING, STAMPED, "first"):
                self._new_topic(name)
            # Each kind of break once at least, and now and then in a long life.
            breaks = [self._restart, self._delete_while_away, self._expire, self._clean]
            self.random.shuffle(breaks)
            pauses = sorted(self.random.sample(range(1, self._wanted), min(self._wanted - 1, max(4, self._wanted // 10))))
            while self.kills < self._wanted:
                self._round()
                if self.kills in pauses:
                    breaks.append(breaks.pop(0))
                    breaks[-1]()
                if self.kills % 50 == 0:
                    self._compare()
            self._compare()
        finally:
            self._disconnect()
            self.broker.kill()
            if self._ever is not None:
                self._ever.end()

    def _connect(self) -> None:
        self._wire, self._admin = Wire(self.broker.address), Admin(self.broker.address)
        for topic in self._topics:
            self.admin.leader_epochs(topic)
        # Whatever one of them had open is aborted.
        self._senders = {f"sender-{number}": Transactional(self.wire, f"sender-{number}", timeout_ms=900_000) for number in range(3)}
        self._open.clear()

    def _disconnect(self) -> None:
        for each in (self._wire, self._admin):
            if each is not None:
                each.__exit__()
        self._wire = self._admin = None

    def _round(self) -> None:
        """A mirror from its start to its kill, while the broker is written to, or behind it."""
        if before := self.random.random() < 0.5:
            self._events()
        size = self._copied()
        running = Mirroring(mirror(self.broker, self.into, "--refresh", "1"), self._said)
        try:
            if not before:
                self._events()
            time.sleep(self._pace * self.random.uniform(0.05, 0.9))
            assert not running.has_ended(), running.text()
        finally:
            running.kill()
        self.kills += 1
        has_grown = self._copied() > size
        self.grown += has_grown
        # On a slow machine a mirror copies nothing for a while.
        self._pace = max(1.0, self._pace * (0.8 if has_grown else 1.5))

    def _copied(self) -> int:
        return sum(path.stat().st_size for path in self.into.glob("*-*/*.log"))

    def _events(self) -> None:
        kinds = [self._write, self._transact, self._commit_offsets, self._grow, self._another_topic, self._set]
        for event in self.random.choices(kinds, [60, 30, 8, 3, 3, 6], k=self.random.randint(1, 6)):
            event()

    def _new_topic(self, name: str) -> None:
        chosen = self.random
        # No batch here is larger than a segment.
        size = SEGMENT_BYTES if name in {COMPACTED, EXPIRING} else chosen.choice([SEGMENT_BYTES, 2 * SEGMENT_BYTES, 50_000])
        settings = {"internal.segment.bytes" if self.version >= "4" else "segment.bytes": str(size)}
        if name == COMPACTED:
            settings |= {"cleanup.policy": "compact"} | NEVER_CLEAN
        if name == STAMPED or chosen.random() < 0.2:
            settings["message.timestamp.type"] = "LogAppendTime"
        if chosen.random() < 0.4:
            settings["compression.type"] = chosen.choice(RECODED)
        if chosen.random() < 0.3:
            settings["max.message.bytes"] = str(chosen.choice([500_000, 2_000_000]))
        count = chosen.randint(1, 3)
        self.admin.create(name, count, settings)
        self._topics[name] = settings
        self._begin(name, range(count))

    def _begin(self, name: str, numbers: Iterable[int]) -> None:
        """The broker leads them when it takes a batch, which may be later than it says so."""
        self.admin.leader_epochs(name)
        for number in numbers:
            end = time.monotonic() + RESTING_SECONDS
            entries = self._entries()
            while (answer := self.wire.produce(name, number, encoded("kafka-python", 2, "none", 0, entries))).error:
                assert time.monotonic() < end, answer
                time.sleep(0.05)
            self._ends[name, number] = answer.base_offset + len(entries)

    def _another_topic(self) -> None:
        if len(self._topics) < 9:
            self._new_topic(f"more-{len(self._topics)}")

    def _grow(self) -> None:
        """More partitions."""
        name = self.random.choice(sorted(self._topics))
        count = sum(topic == name for topic, _ in self._ends)
        if count < 6:
            more = count + self.random.randint(1, 2)
            self.admin.grow(name, more)
            end = time.monotonic() + RESTING_SECONDS
            while len(self.admin.leader_epochs(name)) < more:
                assert time.monotonic() < end, name
            self._begin(name, range(count, more))

    def _set(self) -> None:
        """A setting of a topic, which changes nothing that is compared here."""
        name = self.random.choice(sorted(self._topics))
        setting, low, high = self.random.choice(HARMLESS)
        self.wire.alter_topic(name, {setting: self.random.choice([None, str(self.random.randint(low, high))])})

    def _entries(self) -> list[Appended]:
        chosen, now = self.random, int(1000 * time.time())
        return [
            Appended(
                b"key-%d" % chosen.randrange(20),
                None if chosen.random() < 0.1 else chosen.randbytes(chosen.randrange(400)),
                now - chosen.randrange(10_000),
                (("trace", b"%d" % chosen.randrange(9)),) if chosen.random() < 0.2 else (),
            )
            for _ in range(chosen.randint(1, 9))
        ]

    def _place(self) -> Place:
        return self.random.choice(sorted(self._ends))

    def _write(self) -> None:
        """Batches of any codec and encoder, some of idempotent producers."""
        for _ in range(self.random.randint(1, 15)):
            place, entries = self._place(), self._entries()
            producer = (-1, -1, -1)
            if self.random.random() < 0.4:
                number = FIRST_PRODUCER + self.random.randrange(4)
                producer = (number, 0, self._sequences.get((number, place), 0))
                self._sequences[number, place] = producer[2] + len(entries)
            self._send(place, entries, producer)

    def _fill(self, topic: str) -> None:
        for place in sorted(self._ends):
            for _ in range(24 if place[0] == topic else 0):
                self._send(place, self._entries())

    def _send(self, place: Place, entries: list[Appended], producer: tuple[int, int, int] = (-1, -1, -1)) -> None:
        data = encoded(self.random.choice(PEERS), 2, self.random.choice(sorted(CODECS)), 0, entries, producer=producer)
        answer = self.wire.produce(*place, data)
        assert answer.error == 0, (place, answer)
        self._ends[place] = answer.base_offset + len(entries)

    def _transact(self) -> None:
        """A part of a transaction: several are open beside each other."""
        name = self.random.choice(sorted(self._senders))
        sender = self._senders[name]
        if name not in self._open:
            sender.begin(b"")
            self._open.add(name)
        for _ in range(self.random.randint(1, 3)):
            place, entries = self._place(), self._entries()
            data = encoded("kafka-python", 2, self.random.choice(sorted(CODECS)), 0, entries)
            sent = sender.send_batch(place, len(entries), functools.partial(in_transaction, data))
            self._ends[place] = sent.base_offset + len(entries)
        if self.random.random() < 0.7:
            self._end(name)

    def _end(self, name: str) -> None:
        self._senders[name].end(commit=self.random.random() < 0.6)
        self._open.discard(name)

    def _commit_offsets(self) -> None:
        group = self.random.choice(GROUPS)
        places = self.random.sample(sorted(self._ends), min(3, len(self._ends)))
        offsets = {place: self.random.randint(0, self._ends[place]) for place in places}
        consumer = KafkaConsumer(bootstrap_servers=self.broker.address, group_id=group, enable_auto_commit=False)
        text = self.random.choice(["", "here", "\u00fc"])
        consumer.commit({TopicPartition(*place): OffsetAndMetadata(offset, text, -1) for place, offset in offsets.items()})
        consumer.close()
        self._committed |= {(group, *place): (offset, text) for place, offset in offsets.items()}

    def _restart(self) -> None:
        """A stop, or a kill; the broker is elsewhere then. What it takes out of its directory at the start was seen."""
        self._disconnect()
        with self.ever.restart():
            if self.random.random() < 0.5:
                self.broker.stop()
            else:
                self.broker.kill()
            self.ever.look()
            self.broker.start()
        self._connect()
        self.restarts += 1

    def _delete_while_away(self) -> None:
        """Records are deleted on request while no mirror runs: the next one says which of them it never had."""
        topic, number = self.random.choice([place for place in sorted(self._ends) if place[0] != COMPACTED])
        self.ever.look()
        self.admin.delete_records_before(topic, {number: self.random.randint(0, self._ends[topic, number])})
        code, events = ended(self.broker, self.into)
        lost = [each for each in events if each.get("event") == "lost"]
        assert code == (3 if lost else 0), events
        for each in lost:
            self._lost.setdefault(f"{each['topic']}-{each['partition']}", []).append((each["from"], each["until"]))

    def _expire(self) -> None:
        """Retention deletes what the copy has."""
        self._fill(EXPIRING)
        code, events = ended(self.broker, self.into)
        assert code == 0, events
        self.ever.look()
        self.wire.alter_topic(EXPIRING, {"retention.bytes": "3000"})
        self._wait_for_rest()
        self.wire.alter_topic(EXPIRING, {"retention.bytes": None})
        # Until retention knows.
        time.sleep(1)

    def _clean(self) -> None:
        """The cleaner works on what a mirror copies at the same time."""
        self._fill(COMPACTED)
        self.ever.look()
        running = Mirroring(mirror(self.broker, self.into, "--refresh", "1"), self._said)
        try:
            self.wire.alter_topic(COMPACTED, CLEAN)
            self._wait_for_rest()
            self.ever.look()
            self.wire.alter_topic(COMPACTED, NEVER_CLEAN)
            # Until the cleaner knows.
            self._wait_for_rest()
            assert not running.has_ended(), running.text()
        finally:
            running.kill()
        self.ever.look()

    # What must hold.

    def _signature(self) -> list[tuple[str, int]]:
        found = []
        for path in sorted(self.broker.log_dir.glob("*-[0-9]*/*.log")):
            with suppress(FileNotFoundError):
                found.append((str(path), path.stat().st_size))
        return found

    def _wait_for_rest(self) -> None:
        """Until neither the cleaner nor retention changes anything."""
        end = time.monotonic() + RESTING_SECONDS
        before, since = self._signature(), time.monotonic()
        while time.monotonic() < since + STILL_SECONDS:
            assert time.monotonic() < end, "it never rests"
            time.sleep(0.1)
            if (now := self._signature()) != before:
                before, since = now, time.monotonic()

    def _compare(self) -> None:
        """All that is there, at a moment when both rest."""
        for name in sorted(self._open):
            if self.random.random() < 0.7:
                self._end(name)
        while True:
            self._wait_for_rest()
            before = self._signature()
            code, events = ended(self.broker, self.into)
            if self._signature() == before:
                break
        self.ever.look()
        assert (code, events[-1]["is_complete"], events[-1]["has_losses"]) == (0, True, False), events
        # The same again finds nothing to do.
        code, events = ended(self.broker, self.into)
        assert (code, events[-1]["batches"]) == (0, 0), events
        names = {f"{topic}-{number}" for topic, number in self._ends}
        # A kill while a partition was made leaves a folder that a broker deletes at its start.
        assert {path.name for path in self.into.glob("[!_]*-[0-9]*") if not path.name.endswith("-delete")} == names
        compared = 0
        points = checkpoint(self.broker.log_dir, "cleaner-offset-checkpoint")
        for name in sorted(names):
            theirs, ours = (list(batches(log_bytes(folder / name))) for folder in (self.broker.log_dir, self.into))
            if name.startswith(COMPACTED):
                self._compare_compacted(name, theirs, ours, points.get(name, 0))
            else:
                self._compare_plain(name, theirs, ours)
            compared += len(theirs)
        self._compare_what_is_told()
        self.compared += compared
        # A step that the clock of a soak cuts has told of what it did.
        print(f"counted {self.kills - self._told[0]} kills of a mirror of a broker", flush=True)
        print(f"counted {self.restarts - self._told[1]} restarts of a mirrored broker", flush=True)
        print(f"counted {compared} batches of a broker equal in its mirror", flush=True)
        self._told = self.kills, self.restarts

    def _compare_plain(self, name: str, theirs: list[tuple[Span, bytes]], ours: list[tuple[Span, bytes]]) -> None:
        """Every byte that there ever was, but for what the mirror told.

        A broker that was killed may have again what it had deleted: then a copy that has nothing behind that has it, too.
        """
        forms = self.ever.forms[name]
        assert all(len(each) == 1 for each in forms.values()), name
        lost = self._lost.get(name, [])
        spans = [span for span, _ in ours]
        assert spans == sorted(set(spans)), name
        assert all(data in forms.get(span, ()) for span, data in ours), name
        missing = forms.keys() - set(spans)
        assert all(any(first <= one and last < behind for first, behind in lost) for one, last in missing), (name, missing, lost)
        # What the broker has left was looked at, too.
        assert all(data in forms[span] for span, data in theirs), name

    def _compare_compacted(self, name: str, theirs: list[tuple[Span, bytes]], ours: list[tuple[Span, bytes]], cleaned: int) -> None:
        """Nothing that the broker never had, nothing twice, and all that it has left."""
        forms = self.ever.forms[name]
        spans = [span for span, _ in ours]
        assert all(one[1] < other[0] for one, other in pairwise(spans)), name
        assert all(data in forms.get(span, ()) for span, data in ours), name
        had = dict(ours)
        missing = [span for span, _ in theirs if span not in had]
        assert not missing, (name, missing)
        # What the cleaner has not reached is as the broker has it.
        rest = [each for each in theirs if each[0][0] >= cleaned]
        assert rest
        assert [each for each in ours if each[0][0] >= cleaned] == rest, name

    def was_cleaned(self) -> int:
        """How many batches of the compacted topic the broker's cleaner has removed, or taken records out of."""
        changed = 0
        for name, forms in self.ever.forms.items():
            if name.startswith(COMPACTED):
                left = {span for span, _ in batches(log_bytes(self.broker.log_dir / name))}
                changed += sum(len(each) > 1 or span not in left for span, each in forms.items())
        return changed

    def _compare_what_is_told(self) -> None:
        """Ids, partitions, settings and groups, as the broker's admin API says."""
        told = self.admin.topics(sorted(self._topics))
        own = {
            topic: {name: value for name, (value, source) in settings.items() if source == "DYNAMIC_TOPIC_CONFIG"}
            for topic, settings in self.admin.settings(sorted(self._topics)).items()
        }
        committed = self.admin.committed(GROUPS)
        assert committed == self._committed
        with LogDir.open(self.into) as copy:
            for topic, (identity, count) in told.items():
                assert {number for name, number in self._ends if name == topic} == set(range(count))
                for number in range(count):
                    text = (self.into / f"{topic}-{number}" / "partition.metadata").read_text(encoding="ascii")
                    assert text.split() == ["version:", "0", "topic_id:", identity], topic
                stored = {name: str(value).lower() for name, value in copy.topic_config(topic).to_dict().items()}
                # Below what brokers of today take, which the mirror reports.
                wanted = {name: value.lower() for name, value in own[topic].items() if name != "segment.bytes"}
                assert stored == wanted, topic
            found = {
                (group.group_id, each.topic, each.partition): (each.offset, each.metadata)
                for group in copy.groups()
                for each in group.offsets
            }
        assert found == committed


def in_transaction(batch: bytes, producer: tuple[int, int, int]) -> bytes:
    """The batch as one of a transaction; `producer` is id, epoch and base sequence."""
    data = bytearray(batch)
    data[22] |= TRANSACTIONAL
    struct.pack_into(">qhi", data, 43, *producer)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)
