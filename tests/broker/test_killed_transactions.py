"""Brokers killed between a coordinator's decision and its markers: what `end_transaction` makes of them is what the broker itself would."""

from __future__ import annotations

import functools
import itertools
import random
import re
import shutil
import struct
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import pytest
from clients import Admin, Reader
from golden import DATA, Row, partitions_of, row
from restoring import IS_WHOLE
from transactional import WAITING_SECONDS, Place, Sender, Sent, Transactional
from wire import TOO_FEW_REPLICAS, Wire
from writing import coded

from broker import CLUSTER_ID, NODE_ID, Broker, broker_of
from offsetlog import ClusterError, ConfigError, Log, LogDir, PartitionProducer, SalvageReport, Server, end_transaction, salvage

FREE: Place = ("free", 0)
HELD: list[Place] = [("held", 0), ("held", 1)]
"""Where the broker finds too few replicas from some moment on, for records and for markers: decisions stay without them."""
DONE: list[Place] = [("done", 0), ("done", 1)]
WRITTEN = [FREE, *HELD, *DONE]
TORN = {
    golden.topic: golden
    for golden in partitions_of(
        (DATA / "kafka-4.3.0" / "torn" / "log-dir-1", DATA / "kafka-4.3.0" / "torn" / "log-dir-2"), "kafka-4.3.0-torn"
    )
}
SALVAGED = ["g-torn-flip-old", "g-torn-flip-active", "g-torn-cut-batch", "g-torn-gap", "g-torn-bad-index"]
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    # A controller takes a killed broker for running until then, and lets it not in again.
    "broker.session.timeout.ms": 2500,
    "broker.heartbeat.interval.ms": 300,
    # What is copied ten times shall be small.
    "log.index.size.max.bytes": 16_384,
    # The same of a broker with ZooKeeper.
    "zookeeper.session.timeout.ms": 2000,
}
KILLS = {"4.3.0": 10, "3.9.2": 5, "2.8.2": 5} if IS_WHOLE else {"4.3.0": 4}
MOST = 15
"""Kills, until each direction has occurred."""
AWAY = 2
NAMES = [f"sender-{number}" for number in range(4)]
HIGH_WATERMARKS = "replication-offset-checkpoint"
STATES = "__transaction_state"
OVER = {"CompleteCommit", "CompleteAbort", "Empty"}
# The bytes for PrepareCommit, PrepareAbort, CompleteCommit and CompleteAbort.
DECISIONS = {2: True, 3: False, 4: True, 5: False}
ENDS = {"committing": True, "aborting": False, "ongoing": False}
"""How each is ended; of what is ongoing, the broker says the same when its producer comes back or its time is over."""


def has_away(broker: Broker) -> bool:
    """Whether the held partitions have a replica elsewhere. A newer broker never wants more replicas than a partition has, an older does."""
    return broker.zookeeper_dir is None


def hold_back(broker: Broker) -> None:
    """From now on nothing is written to the held partitions."""
    with Wire(broker.address) as wire:
        wire.alter_topic("held", {"min.insync.replicas": "2"})


def try_until(wire: Wire, *, held: bool) -> None:
    """Produce to the held partitions until they take nothing, or take it."""
    until = time.monotonic() + WAITING_SECONDS
    for place in HELD:
        while (wire.produce(*place, coded(b"probe")).error in TOO_FEW_REPLICAS) != held:
            assert time.monotonic() < until
            time.sleep(0.02)


def states(broker: Broker) -> dict[str, str]:
    """What the coordinator has stored of each transactional id."""
    with LogDir.open(broker.log_dir) as logs:
        return {each.transactional_id: each.state for each in logs.transactions()}


def decided(broker: Broker, *, raises: bool) -> list[Sent]:
    """Every state of a coordinator, with the markers in one partition and none in others."""
    sent: list[Sent] = []
    with Wire(broker.address) as wire:
        for place, commit in zip(DONE, (True, False), strict=True):
            producer = Transactional(wire, f"complete-{commit}", raises_epoch=raises and commit)
            producer.transact(f"complete {commit}".encode(), [FREE, place], commit=commit)
            sent += producer.sent
        open_ = {
            (name, version): Transactional(
                wire, f"{name}-{version}", raises_epoch=version == 2, timeout_ms=1500 if name == "late" else 60_000
            )
            for name in ("commit", "abort", "open", "late")
            for version in ((0, 2) if raises and name in {"commit", "abort"} else (0,))
        }
        for (name, version), producer in open_.items():
            producer.begin(f"{name} {version}".encode())
            for place in (FREE, *HELD):
                assert producer.send(place, 2)
        hold_back(broker)
        try_until(wire, held=True)
        wanted = {"complete-True": "CompleteCommit", "complete-False": "CompleteAbort", "open-0": "Ongoing", "late-0": "PrepareAbort"}
        for (name, version), producer in open_.items():
            if name in {"commit", "abort"}:
                producer.end(commit=name == "commit")
                wanted[f"{name}-{version}"] = f"Prepare{name.title()}"
            sent += producer.sent
        until = time.monotonic() + WAITING_SECONDS
        while (found := states(broker)) != wanted:
            assert time.monotonic() < until, found
            time.sleep(0.05)
        # A decision comes before its markers: all are in the partition that takes them, but for the one that goes on.
        while (count := open_in(broker, FREE)) != 1:
            assert time.monotonic() < until, count
            time.sleep(0.05)
    return sent


def open_in(broker: Broker, place: Place) -> int:
    """Number of transactions without a marker in a partition of the running broker."""
    with LogDir.open(broker.log_dir) as logs:
        return sum((each.topic, each.partition) == place for each in logs.producers(open_only=True))


Key: TypeAlias = tuple[str, int, int]
"""Topic, partition and producer id."""


class Dead:
    """A copy of a killed broker's directories, on which we work while the broker works on its own."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        shutil.copytree(broker.directory, directory)
        self.copy = broker_of(broker.version, directory)
        self.copy.settings, self.copy.levels = broker.settings, broker.levels
        self.log_dir = self.copy.log_dir
        metadata = self.copy.metadata_dir or self.copy.zookeeper_dir
        assert metadata is not None
        self.metadata = metadata
        self.ends: dict[Place, int] = {}
        """Log end offsets as they were."""
        self.states_end = 0
        """That of the coordinator's log."""
        self.open: dict[Key, PartitionProducer] = {}
        """What was open."""
        self._look()
        self.rows: dict[Place, list[Row]] = {}
        """What a committed reader gets once all is ended."""
        self.decided: dict[Place, list[Row]] = {}
        """What a committed reader of `serve` gets before that."""

    def path(self, place: Place) -> Path:
        return self.log_dir / f"{place[0]}-{place[1]}"

    def _look(self) -> None:
        for place in (*WRITTEN, (STATES, 0)):
            with Log.open(self.path(place)) as log:
                self.ends[place] = log.log_end_offset
        self.states_end = self.ends.pop((STATES, 0))
        self.open = self.open_transactions()

    def open_transactions(self) -> dict[Key, PartitionProducer]:
        """What `producers` says, and `why` of the same partitions."""
        with LogDir.open([self.log_dir, self.metadata]) as logs:
            found = logs.producers(open_only=True)
            held = {(each.topic, each.partition) for each in logs.why() if each.reason == "open-transaction"}
        assert held == {(each.topic, each.partition) for each in found}
        return {(each.topic, each.partition, each.producer_id): each for each in found}

    def agrees(self, place: Place, rows: list[Row]) -> bool:
        """Whether these rows are ours up to where the dead broker's log ended. What came later is of other clients."""
        theirs, ended, decided = (
            [each for each in found if each.offset < self.ends[place]] for found in (rows, self.rows[place], self.decided[place])
        )
        return theirs == ended == decided

    def end(self, found: dict[Key, PartitionProducer]) -> None:
        """Each of them as its coordinator decided, and never otherwise."""
        for key, each in found.items():
            commit, is_open = ENDS[each.standing], each.standing == "ongoing"
            for wrong in (not commit, None) if is_open else (not commit,):
                for without_state in (False, True):
                    with pytest.raises(ConfigError, match=r"has decided to|has not decided"):
                        end_transaction(self.log_dir, *key, commit=wrong, without_state=without_state, metadata=self.metadata)
            end = functools.partial(end_transaction, self.log_dir, *key, commit=False if is_open else None, metadata=self.metadata)
            has_others = key[0] == "held" and has_away(self.copy)
            if has_others:
                with pytest.raises(ClusterError, match="replica"):
                    end()
            ended = end(single_replica=has_others)
            assert ended.committed == commit
        assert not self.open_transactions()
        for place in WRITTEN:
            with Log.open(self.path(place)) as log:
                assert log.last_stable_offset == log.log_end_offset
                assert not log.verify().damaged
                self.rows[place] = list(map(row, log.scan(isolation_level="read_committed")))


def lose_the_last_batch(path: Path) -> None:
    """As a replica that lost power: its last batch, a marker, never came to the disk."""
    newest = max(path.glob("*.log"))
    starts, data = [0], newest.read_bytes()
    while starts[-1] < len(data):
        starts.append(starts[-1] + 12 + struct.unpack_from(">i", data, starts[-1] + 8)[0])
    assert struct.unpack_from(">h", data, starts[-2] + 21)[0] & 0x20
    newest.write_bytes(data[: starts[-2]])


def check_lost_ends(dead: Dead) -> None:
    """Whether a broker had written its high watermark when it died is chance. If it had, and the marker is lost, nobody knows any more.

    It writes that every five seconds: a replica that ends below has lost what was acknowledged. Afterwards it is as if it had not.
    """
    lines = dead.log_dir / HIGH_WATERMARKS
    add_lines(lines, {f"{topic} {partition}": dead.ends[topic, partition] for topic, partition in DONE})
    found = {key: each for key, each in dead.open_transactions().items() if key[:2] in DONE}
    states = {"done-0": "CompleteCommit", "done-1": "CompleteAbort"}
    assert {f"{key[0]}-{key[1]}": (each.standing, each.state) for key, each in found.items()} == {
        name: ("unknown", state) for name, state in states.items()
    }
    for key in found:
        end = dead.ends[key[:2]]
        lost = re.escape(f"{key[0]}-{key[1]}: it ends at offset {end - 1}, and the high watermark of its log dir is {end}")
        call = functools.partial(end_transaction, dead.log_dir, *key, metadata=dead.metadata)
        for commit in (None, True, False):
            with pytest.raises(ConfigError, match=rf"{lost}.*the marker of this transaction may be among them.*--without-state"):
                call(commit=commit)
        # Whoever knows better may say so.
        for commit in (True, False):
            assert call(commit=commit, without_state=True, dry_run=True).committed == commit
    add_lines(lines, {f"{topic} {partition}": dead.ends[topic, partition] - 1 for topic, partition in DONE})


def markers(path: Path) -> dict[int, list[tuple[int, bool]]]:
    """Offset and kind of each marker of each producer, by the bytes."""
    found: dict[int, list[tuple[int, bool]]] = {}
    for file in sorted(path.glob("*.log")):
        data, at = file.read_bytes(), 0
        while at < len(data):
            base, size = struct.unpack_from(">qi", data, at)
            (attributes,) = struct.unpack_from(">h", data, at + 21)
            (producer_id,) = struct.unpack_from(">q", data, at + 43)
            if attributes & 0x20:
                # Length, attributes, both deltas, then a key of four bytes: version and kind.
                key = data[at + 65 : at + 70]
                assert key[0] == 8, key
                found.setdefault(producer_id, []).append((base, key[4] == 1))
            at += 12 + size
    return found


def served(address: str, places: Sequence[Place]) -> dict[Place, list[Row]]:
    """What a committed reader gets, once every transaction is over."""
    until = time.monotonic() + WAITING_SECONDS
    with Wire(address) as wire:
        for place in places:
            while not (seen := wire.fetch(*place, 0, committed=True)).last_stable_offset == seen.high_watermark > 0:
                assert time.monotonic() < until, (place, seen._replace(records=b""))
                time.sleep(0.05)
    found: dict[Place, list[Row]] = {}
    for topic in dict.fromkeys(topic for topic, _ in places):
        numbers = [partition for name, partition in places if name == topic]
        with Reader(address, topic, numbers, "read_committed") as reader:
            found |= {(topic, partition): rows for partition, rows in reader.rows().items()}
    return found


def decided_by_serve(dead: Dead) -> dict[Place, list[Row]]:
    """What committed readers get from `serve` of the directories as they are, each transaction as its coordinator decided."""
    with Server([dead.log_dir, dead.metadata], open_transactions="decide") as server:
        return served(server.bootstrap_servers, WRITTEN)


def check_promises(sent: list[Sent], rows: dict[Place, list[Row]]) -> None:
    """What was committed is there, what was not is nowhere, and what nobody knows is all there or not at all."""
    seen = {place: {each.value for each in found} for place, found in rows.items()}
    for one in sent:
        there = {place for place, values in seen.items() if one.value in values}
        if one.commit and one.answered:
            assert there >= set(one.places), one
        elif one.commit:
            assert not there or there >= set(one.places), one
        else:
            assert not there, one


def let_go(broker: Broker, names: list[str]) -> None:
    """Let the broker write its markers, and end what producers left open by coming back."""
    with Admin(broker.address) as admin:
        # A broker that has just started may not know its topics yet.
        admin.leader_epochs("held")
    with Wire(broker.address) as wire:
        wire.alter_topic("held", {"min.insync.replicas": "1"})
        # A high watermark that stood still for want of replicas rises with the next append.
        try_until(wire, held=False)
        for name in names:
            Transactional(wire, name)


def salvaged(dead: Dead, directory: Path) -> dict[str, tuple[SalvageReport, list[Row]]]:
    """Torn logs of another cluster, salvaged into the log dir, and what can be read of them. It has high watermarks far behind their ends."""
    found = {}
    for topic in SALVAGED:
        golden, place = TORN[topic], dead.path((topic, 0))
        # Brokers of 2.8 do not always write one, and take a directory without it for theirs.
        metadata = place / "partition.metadata"
        topic_id = metadata.read_bytes() if metadata.exists() else None
        shutil.rmtree(place)
        with Log.open(golden.copy(directory / topic)) as source:
            rows = list(map(row, source.scan(on_corrupt="skip")))
        report = salvage(directory / topic / golden.name, place)
        assert report.records == len(rows)
        metadata.unlink(missing_ok=True)
        if topic_id is not None:
            metadata.write_bytes(topic_id)
        found[topic] = report, rows
    add_lines(dead.log_dir / HIGH_WATERMARKS, {f"{topic} 0": 1_000_000 for topic in SALVAGED})
    for topic, (report, _) in found.items():
        with Log.open(dead.path((topic, 0))) as log:
            assert log.high_watermark == log.log_end_offset == report.log_end_offset
    return found


def serve_the_copy(dead: Dead, directory: Path) -> None:
    """A broker takes what was ended and what was salvaged, and consumers read exactly that."""
    made = salvaged(dead, directory)
    with dead.copy.running():
        let_go(dead.copy, [])
        seen = served(dead.copy.address, [*WRITTEN, *((topic, 0) for topic in made)])
        for place in WRITTEN:
            assert dead.agrees(place, seen[place]), place
        for topic, (report, rows) in made.items():
            assert seen[topic, 0] == rows, topic
            with Reader(dead.copy.address, topic, [0], "read_uncommitted") as reader:
                assert reader.end_offsets() == {0: report.log_end_offset}, topic


def add_lines(checkpoint: Path, lines: dict[str, int]) -> None:
    """A checkpoint with these lines in the place of those of the same partitions."""
    old = dict(line.rsplit(" ", 1) for line in checkpoint.read_text().splitlines()[2:]) if checkpoint.exists() else {}
    new = old | {name: str(offset) for name, offset in lines.items()}
    checkpoint.write_text("".join(f"{line}\n" for line in ("0", len(new), *(f"{name} {offset}" for name, offset in new.items()))))


def until_killed(broker: Broker, chosen: random.Random, kill: int, *, raises: bool) -> list[Sent]:
    """Transactions of several producers at once, until the broker is killed in the middle of them."""
    senders = [
        Sender(broker.address, name, f"{kill} {name}", [FREE, *HELD], raises_epoch=raises and number % 2 == 1)
        for number, name in enumerate(NAMES)
    ]
    for sender in senders:
        sender.start()
    until = time.monotonic() + WAITING_SECONDS
    # A broker that was just started may take as long for the first transactions as it is left alive below.
    while any(sender.is_alive() and not sender.producer.sent for sender in senders):
        assert time.monotonic() < until, "nothing is sent"
        time.sleep(0.01)
    time.sleep(chosen.uniform(0.1, 0.7))
    if (kill + 1) % 3:
        hold_back(broker)
    time.sleep(chosen.uniform(0, 0.3))
    broker.kill()
    for sender in senders:
        sender.join(WAITING_SECONDS)
        assert not sender.is_alive()
        if sender.failure is not None:
            raise sender.failure
    return [sent for sender in senders for sent in sender.producer.sent]


def decision(broker: Broker, each: PartitionProducer, since: int) -> bool:
    """What the coordinator stored of a transaction, by the bytes of its first record from `since` on, or of its last one before."""
    found = None
    with Log.open(broker.log_dir / f"{STATES}-0") as log:
        for record in log.scan():
            if record.key is None or record.value is None or record.key[4:] != str(each.transactional_id).encode():
                continue
            commit = DECISIONS.get(record.value[16])
            found = found if commit is None else commit
            if record.offset >= since and commit is not None:
                break
    assert found is not None, each
    return found


def compare(broker: Broker, dead: Dead) -> tuple[dict[Place, list[Row]], list[PartitionProducer]]:
    """What the broker makes of its own directories is what we made of the copy. Gives what it serves, and what it left open all the same.

    A coordinator of 4.3.0 that finds no leader for a partition, as for a moment after a start, takes it for deleted, and the transaction
    for complete without that marker (KAFKA-20734). Its decision stands in its own log only then.
    """
    until = time.monotonic() + WAITING_SECONDS
    ids = {str(each.transactional_id) for each in dead.open.values()}
    again = until - WAITING_SECONDS / 2
    while waiting := {name: state for name, state in states(broker).items() if name in ids and state not in OVER}:
        now = time.monotonic()
        assert now < until, waiting
        if now > again:
            # One of 3.9.2 was seen that sent its markers no more. After a start it reads what it has decided, and sends them.
            again = until
            broker.kill()
            broker.start()
            let_go(broker, [])
        time.sleep(0.05)
    left = []
    for (topic, partition, producer_id), each in dead.open.items():
        first = each.transaction_first_offset
        assert first is not None
        written = [
            commit for offset, commit in markers(broker.log_dir / f"{topic}-{partition}").get(producer_id, []) if offset > first
        ]
        assert decision(broker, each, dead.states_end) == ENDS[each.standing], each
        assert written[:1] in ([], [ENDS[each.standing]]), each
        if not written:
            left.append(each)
    # While something is open there, a leader does not even tell committed readers where the partition ends.
    theirs = served(broker.address, [place for place in WRITTEN if place not in {(each.topic, each.partition) for each in left}])
    for place, rows in theirs.items():
        assert dead.agrees(place, rows), place
    return theirs, left


def make_topics(broker: Broker) -> None:
    """All that is written to, and places for what is salvaged."""
    with Admin(broker.address) as admin:
        topics = {"free": 1, "done": 2, **dict.fromkeys(SALVAGED, 1)}
        for topic, partitions in topics.items():
            admin.create(topic, partitions, {})
        if has_away(broker):
            with Wire(broker.controller) as wire:
                wire.register_broker(AWAY, CLUSTER_ID)
            admin.create_on("held", {partition: [NODE_ID, AWAY] for _, partition in HELD})
        else:
            admin.create("held", len(HELD), {})
        for topic in ("held", *topics):
            admin.leader_epochs(topic)


@pytest.mark.parametrize("version", KILLS)
def test_what_is_ended_is_what_the_broker_ends(version: str, tmp_path: Path) -> None:
    """Kills: of each transaction that was open, our end on a copy is the broker's own, and so is what `serve` shows; a broker serves the copy."""
    broker = broker_of(version, tmp_path / "broker")
    broker.settings = SETTINGS
    # Each refused marker is told with a stack, and tried again at once.
    broker.levels = {"kafka.server.ReplicaManager": "off"}
    broker.format()
    chosen, raises, names = random.Random(version), version >= "4", [*NAMES, "open-0"]
    kills = KILLS[version]
    told: Counter[str] = Counter()
    at_random: Counter[str] = Counter()
    broker.start()
    try:
        make_topics(broker)
        sent = decided(broker, raises=raises)
        for kill in itertools.count():
            broker.kill()
            dead = Dead(broker, tmp_path / f"dead-{kill}")
            told.update(each.standing for each in dead.open.values())
            if kill:
                at_random.update(each.standing for each in dead.open.values())
            else:
                wanted = {"committing": 2 * (1 + raises), "aborting": 2 * (2 + raises), "ongoing": 3}
                assert Counter(each.standing for each in dead.open.values()) == wanted
                for place in DONE:
                    lose_the_last_batch(dead.path(place))
                check_lost_ends(dead)
            dead.decided = decided_by_serve(dead)
            dead.end(dead.open_transactions())
            check_promises(sent, dead.rows)
            if kill == 0:
                serve_the_copy(dead, tmp_path / "torn")
            broker.start()
            let_go(broker, names)
            theirs, left = compare(broker, dead)
            if left:
                # It would hang there for ever. What we ended goes on in its place.
                told["left by the broker"] += len(left)
                broker.kill()
                broker, dead.copy = dead.copy, broker
                broker.start()
                let_go(broker, names)
                theirs = served(broker.address, WRITTEN)
            check_promises(sent, theirs)
            shutil.rmtree(dead.copy.directory)
            # Until each direction occurred at a random moment, too.
            if kill + 1 >= kills and (ENDS.keys() <= at_random.keys() or kill + 1 >= MOST):
                break
            sent += until_killed(broker, chosen, kill, raises=raises)
    finally:
        broker.kill()
    print(told, at_random, kill + 1)
    assert ENDS.keys() <= at_random.keys(), at_random
    assert sum(told[standing] for standing in ENDS) >= 3 * kills, told
