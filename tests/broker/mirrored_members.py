"""Two brokers of a cluster that is written to and whose leaders come and go at random, while a mirror of it is killed again and again."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from clients import Admin, Writer
from cluster_members import MemberBroker, wait_for_isr
from kafka.errors import KafkaError
from mirrored_history import batches
from mirroring import Mirroring, ended, log_bytes, mirror
from peers import Appended

from broker import Broker
from kafka import KafkaProducer

WAITING_SECONDS = 300
WRITTEN, LOSING = "random-written", "random-losing"
PARTITIONS = {WRITTEN: 4, LOSING: 2}
SAID = {
    "elect": "elections of a mirrored cluster",
    "stop": "stops of a broker of a mirrored cluster",
    "kill": "kills of a broker of a mirrored cluster",
    "lose": "unclean elections of a mirrored cluster",
}
"""Changes of leaders, as a soak counts them."""


def until(is_there: Callable[[], object], what: str) -> None:
    end = time.monotonic() + WAITING_SECONDS
    while not is_there():
        assert time.monotonic() < end, what
        time.sleep(0.1)


class Writing(threading.Thread):
    """Batches of all kinds into one topic, acknowledged by all replicas, until it is told to end."""

    def __init__(self, address: str, topic: str, seed: int = 3) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self._address, self._topic, self._seed = address, topic, seed
        self._failure: Exception | None = None

    def run(self) -> None:
        try:
            self._write()
        except Exception as error:  # noqa: BLE001  # raised by whoever waits for it
            self._failure = error

    def _write(self) -> None:
        drawn = random.Random(self._seed)
        options = {"bootstrap_servers": self._address, "acks": "all", "linger_ms": 5}
        producers = [KafkaProducer(**options), KafkaProducer(**options, compression_type="lz4")]
        within = KafkaProducer(**options, transactional_id=f"writer of {self._topic}")
        within.init_transactions()
        while not self.over.is_set():
            for producer in producers:
                for _ in range(drawn.randrange(1, 30)):
                    self._send(producer, drawn)
                producer.flush()
            within.begin_transaction()
            for _ in range(drawn.randrange(1, 10)):
                self._send(within, drawn)
            within.flush()
            if drawn.random() < 0.6:
                within.commit_transaction()
            else:
                within.abort_transaction()
            self.over.wait(0.05)
        for producer in (*producers, within):
            producer.close()

    def _send(self, producer: KafkaProducer, drawn: random.Random) -> None:
        producer.send(self._topic, key=b"%d" % drawn.randrange(50), value=drawn.randbytes(drawn.randrange(300)))

    def end(self) -> None:
        self.over.set()
        self.join(WAITING_SECONDS)
        assert not self.is_alive(), "it writes on"
        if self._failure is not None:
            raise self._failure


class Killing(threading.Thread):
    """A mirror that is killed at random moments and called again, until it is told to end."""

    def __init__(self, command: list[str], said: Path, seed: int = 5, killed: Callable[[], None] = lambda: None) -> None:
        super().__init__(daemon=True)
        self._command, self._said, self._drawn, self._killed = command, said, random.Random(seed), killed
        self._over = threading.Event()
        self._failure: Exception | None = None
        self.kills = 0

    def run(self) -> None:
        try:
            while not self._over.is_set():
                running = Mirroring(self._command, self._said)
                self._over.wait(0.3 + 2 * self._drawn.random())
                assert not running.has_ended(), running.text()
                running.kill()
                self.kills += 1
                self._killed()
        except Exception as error:  # noqa: BLE001  # raised by whoever waits for it
            self._failure = error

    def end(self) -> None:
        self._over.set()
        self.join()
        if self._failure is not None:
            raise self._failure


def elect_both(first: Broker, admin: Admin, topic: str) -> None:
    """Each of brokers 2 and 3 leads half of the partitions."""

    def is_done() -> bool:
        with contextlib.suppress(KafkaError):
            admin.elect_preferred(topic)
        return set(wait_for_isr(first, [topic], {2, 3}).values()) == {2, 3}

    until(is_done, "an election")


def write_some(first: Broker, topic: str, text: str, partitions: Iterable[int]) -> None:
    """Batches that every replica in sync has, when this returns."""
    with Writer(first.address, topic) as writer:
        for number in partitions:
            for part in range(4):
                entries = [Appended(b"key", f"{text} {part} {at}".encode(), 1_700_000_000_000) for at in range(20)]
                writer.send(number, entries)


class RandomLeaders:
    """Chapters, each with a change of leaders and a rest behind it, until the mirror was killed so many times."""

    def __init__(self, first: Broker, members: tuple[MemberBroker, MemberBroker], folder: Path, seed: int, kills: int) -> None:
        self.kills = 0
        self.chapters: dict[str, int] = {}
        """How often each change of leaders came."""
        self.compared = 0
        """Batches that were the same at a rest."""
        self.kept: set[tuple[str, bytes]] = set()
        """Batches that were cut at last, and are kept beside the copy."""
        self._first, self._members = first, members
        self._random = random.Random(f"leaders {first.version} {seed}")
        self._wanted = kills
        self._into, self._said = folder / "mirror", folder / "said.jsonl"
        folder.mkdir()
        self._names = [f"{topic}-{number}" for topic, count in PARTITIONS.items() for number in range(count)]
        self._ever: set[tuple[str, bytes]] = set()
        """All that a replica had at some moment that matters."""
        self._copied: set[tuple[str, bytes]] = set()
        """All that the mirror had when it was killed."""

    def live(self, kinds: Iterable[str]) -> None:
        """These changes by turns, in another order each time."""
        kinds = sorted(kinds)
        left: list[str] = []
        with Admin(self._first.address) as admin:
            pairs = ([2, 3], [3, 2])
            admin.create_on(WRITTEN, {number: pairs[number % 2] for number in range(PARTITIONS[WRITTEN])})
            admin.create_on(
                LOSING, {number: [2, 3] for number in range(PARTITIONS[LOSING])}, {"unclean.leader.election.enable": "true"}
            )
            wait_for_isr(self._first, [WRITTEN, LOSING], {2, 3})
            write_some(self._first, LOSING, "from the beginning", range(PARTITIONS[LOSING]))
            while self.kills < self._wanted:
                left = left or self._random.sample(kinds, len(kinds))
                self._chapter(admin, left.pop())

    def _chapter(self, admin: Admin, kind: str) -> None:
        drawn = self._random
        seed = drawn.randrange(2**32)
        killing = Killing(mirror(self._first, self._into, "--refresh", "1"), self._said, seed, self._look_at_the_copy)
        # A producer that waits for a leader of the other topic for long gives up.
        writing = None if kind == "lose" else Writing(self._first.address, WRITTEN, seed)
        killing.start()
        try:
            if writing is not None:
                writing.start()
            self._change(admin, kind)
            least = min(drawn.randint(3, 8), self._wanted - self.kills)
            until(lambda: killing.kills >= least or not killing.is_alive(), "kills")
        finally:
            if writing is not None:
                writing.end()
            killing.end()
        self.kills += killing.kills
        self.chapters[kind] = self.chapters.get(kind, 0) + 1
        before = self.compared
        self._rest()
        # A step that the clock of a soak cuts has told of what it did.
        print(f"counted {killing.kills} kills of a mirror of a cluster", flush=True)
        print(f"counted 1 {SAID[kind]}", flush=True)
        print(f"counted {self.compared - before} batches of a cluster equal in its mirror", flush=True)

    def _change(self, admin: Admin, kind: str) -> None:
        topics = [WRITTEN, LOSING]
        leaves = self._random.choice(self._members)
        (stays,) = {each.node_id for each in self._members} - {leaves.node_id}
        if kind == "elect":
            elect_both(self._first, admin, WRITTEN)
        elif kind in {"stop", "kill"}:
            if kind == "stop":
                leaves.stop()
            else:
                leaves.kill()
            wait_for_isr(self._first, topics, {stays})
            time.sleep(self._random.random())
            leaves.start()
            wait_for_isr(self._first, topics, {2, 3})
        else:
            self._lose(leaves)

    def _lose(self, follower: MemberBroker) -> None:
        """The follower is away, the leader goes on and is gone, and the follower leads without what it never had."""
        drawn, every = self._random, range(PARTITIONS[LOSING])
        (leader,) = (each for each in self._members if each is not follower)
        write_some(self._first, LOSING, f"both have it {drawn.random()}", every)
        follower.kill()
        wait_for_isr(self._first, [LOSING], {leader.node_id})
        write_some(self._first, LOSING, f"one has it {drawn.random()}", every)
        names = [name for name in self._names if name.startswith(LOSING)]
        if drawn.random() < 0.7:
            until(lambda: all(log_bytes(self._into / each) == log_bytes(leader.log_dir / each) for each in names), "it follows")
        self._look_at(leader)
        leader.kill()
        follower.start()
        wait_for_isr(self._first, [LOSING], {follower.node_id})
        write_some(self._first, LOSING, f"in its place {drawn.random()}", drawn.sample(every, drawn.randint(0, len(every))))
        self._look_at(follower)
        leader.start()
        wait_for_isr(self._first, [WRITTEN, LOSING], {2, 3})

    def _look_at(self, broker: MemberBroker) -> None:
        self._ever |= self._batches(broker.log_dir)

    def _look_at_the_copy(self) -> None:
        self._copied |= self._batches(self._into)

    def _batches(self, log_dir: Path) -> set[tuple[str, bytes]]:
        return {(name, data) for name in self._names for _, data in batches(log_bytes(log_dir / name))}

    def _replicated(self, name: str) -> bytes:
        """What both brokers have: the follower may be behind for a while."""
        end = time.monotonic() + WAITING_SECONDS
        while True:
            one, other = (log_bytes(each.log_dir / name) for each in self._members)
            if one == other:
                return one
            assert time.monotonic() < end, f"{name}: {len(one)} bytes and {len(other)}"
            time.sleep(0.1)

    def _rest(self) -> None:
        """Both replicas and the copy are the same, nothing that the copy had is nowhere, and it has nothing that no replica ever had."""
        code, events = ended(self._first, self._into)
        cut = any(each.get("event") == "cut" for each in events)
        assert code == (3 if cut else 0), events
        assert events[-1]["is_complete"], events
        for name in self._names:
            one = self._replicated(name)
            assert one
            assert log_bytes(self._into / name) == one, name
            self.compared += sum(1 for _ in batches(one))
        for each in self._members:
            self._look_at(each)
        self.kept = {
            (name, data)
            for name in self._names
            for path in (self._into / name / "offsetlog-cut").glob("*.log*")
            for _, data in batches(path.read_bytes())
        }
        assert self.kept <= self._ever
        assert self._copied <= self.kept | self._batches(self._into)
