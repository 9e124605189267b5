"""A mirror of a cluster whose leaders come and go, and one of which loses records; streamed by Spark meanwhile, and restored elsewhere.

The cluster is a controller, which is a broker for internal topics too, and two brokers with a replica each of the topics here.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from clients import Admin, Isolation, ReaderOfAll, Writer, console_rows
from cluster_members import MemberBroker, wait_for_isr
from golden import Row
from kafka.structs import OffsetAndMetadata
from mirrored_history import SCALE, SEED
from mirrored_members import WAITING_SECONDS, Killing, RandomLeaders, Writing, elect_both, until, write_some
from mirroring import MIRROR_SECONDS, PROGRAM, Mirroring, ended, log_bytes, mirror
from peers import Appended
from programs import environment
from restoring import IS_WHOLE
from streamed_mirror import ENOUGH

from broker import broker_of
from conftest import KRAFT
from kafka import KafkaConsumer, TopicPartition
from offsetlog import restore

pytestmark = pytest.mark.proof

MOVING, TORN, SETTLED = "moving", "torn", "settled"
PARTITIONS = {MOVING: 4, TORN: 2, SETTLED: 1}
PLACES = [TopicPartition(topic, number) for topic, count in PARTITIONS.items() for number in range(count)]
GROUP = "readers"
FAST = {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 300}
"""A broker that was killed is soon missed."""
KILLS = round(200 * SCALE) if IS_WHOLE else 4
"""Of the mirror of what happens at random: in a soak 200 in its first round."""
CHANGES = ("elect", "stop", "kill", "lose") if IS_WHOLE else ("elect",)
STREAM = Path(__file__).with_name("streamed_mirror.py")


class Story:
    """The cluster's life, and what was found at each of its ends."""

    def __init__(self, version: str, folder: Path) -> None:
        self.folder = folder
        self.first = broker_of(version, folder / "1")
        self.second, self.third = (MemberBroker(self.first, folder / str(number), number) for number in (2, 3))
        self.brokers = [self.first, self.second, self.third]
        self.into, self.away = folder / "mirror", folder / "away"
        """Where a mirror runs all the time, and where one is called now and then."""
        self.kills = 0
        self.moved: dict[str, tuple[bytes, bytes, bytes]] = {}
        """Batches by partition: both replicas', and the mirror's."""
        self.leaders: list[dict[TopicPartition, int]] = []
        self.before: dict[str, bytes] = {}
        """What the leader had that was lost."""
        self.behind: dict[str, bytes] = {}
        """What its follower had then, and leads with."""
        self.running: tuple[int, list[dict[str, Any]]] = 0, []
        """How the mirror that was there ended."""
        self.called: tuple[int, list[dict[str, Any]]] = 0, []
        """How the one ended that came later."""
        self.rows: dict[Isolation, dict[TopicPartition, list[Row]]] = {}
        """What consumers read in the end, by isolation level."""
        self.last: tuple[int, list[dict[str, Any]]] = 0, []
        self.streamed: dict[str, Any] = {}
        self.moving_rows: dict[TopicPartition, list[Row]] = {}
        """What a consumer read when that had ended."""
        self.committed: dict[TopicPartition, int] = {}
        self.at_random: RandomLeaders | None = None
        """What came last, with topics and a mirror of its own."""

    def once(self, into: Path) -> tuple[int, list[dict[str, Any]]]:
        """Mirror what is there."""
        return ended(self.first, into)

    def live(self) -> None:
        with ThreadPoolExecutor() as pool:
            self.first.settings = FAST
            self.first.format()
            for member in (self.second, self.third):
                member.settings = FAST
            list(pool.map(lambda member: member.format(), (self.second, self.third)))
        self.first.start()
        with Admin(self.first.address) as admin:
            # Internal topics are on the broker that stays.
            admin.create_on(SETTLED, {0: [1]})
            admin.leader_epochs(SETTLED)
            self._commit({TopicPartition(SETTLED, 0): 0})
            with Writer(self.first.address, SETTLED, transactional_id="settler") as writer:
                writer.begin()
                writer.send(0, [Appended(b"key", b"value", 1_700_000_000_000)])
                writer.end(commit=True)
            for member in (self.second, self.third):
                member.start()
            pairs = ([2, 3], [3, 2])
            admin.create_on(MOVING, {number: pairs[number % 2] for number in range(PARTITIONS[MOVING])})
            admin.create_on(TORN, {number: [2, 3] for number in range(PARTITIONS[TORN])}, {"unclean.leader.election.enable": "true"})
            wait_for_isr(self.first, [MOVING, TORN], {2, 3})
            self._move(admin)
        self._tear()
        self._commit(self.committed)
        self.last = self.once(self.into)
        levels: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
        for level in levels:
            with ReaderOfAll(self.first.address, PLACES, level) as reader:
                self.rows[level] = reader.everything()
        self.at_random = RandomLeaders(self.first, (self.second, self.third), self.folder / "random", SEED, KILLS)
        print(f"{self.first.version}: OFFSETLOG_SEED={SEED}")
        self.at_random.live(CHANGES)

    def _commit(self, offsets: dict[TopicPartition, int]) -> None:
        group = KafkaConsumer(bootstrap_servers=self.first.address, group_id=GROUP, enable_auto_commit=False)
        group.commit({at: OffsetAndMetadata(offset, "here", -1) for at, offset in offsets.items()})
        group.close()

    def _move(self, admin: Admin) -> None:
        """Leaders stop, are killed, and are elected; the mirror is killed too, and Spark streams what it has."""
        stream = self.folder / "stream"
        stream.mkdir()
        killing = Killing(mirror(self.first, self.into), self.folder / "killed.jsonl")
        writing = Writing(self.first.address, MOVING)
        killing.start()
        writing.start()
        until((self.into / f"{MOVING}-0").exists, "a first copy")
        with (self.folder / "stream.txt").open("wb") as said, (self.folder / "stream-errors.txt").open("wb") as errors:
            driver = subprocess.Popen(
                [sys.executable, str(STREAM), str(self.into), str(stream), MOVING],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=errors,
                env=environment(),
                cwd=stream,
            )
        try:
            self.second.stop()
            self.leaders.append(wait_for_isr(self.first, [MOVING], {3}))
            self.second.start()
            self.leaders.append(wait_for_isr(self.first, [MOVING], {2, 3}))
            elect_both(self.first, admin, MOVING)
            self.third.kill()
            self.leaders.append(wait_for_isr(self.first, [MOVING], {2}))
            self.third.start()
            wait_for_isr(self.first, [MOVING], {2, 3})
            elect_both(self.first, admin, MOVING)
            time.sleep(1)
            writing.end()
            killing.end()
            self.kills = killing.kills
            code, events = self.once(self.into)
            assert code == 0, events
            for number in range(PARTITIONS[MOVING]):
                name = f"{MOVING}-{number}"
                one, other = (log_bytes(each.log_dir / name) for each in (self.second, self.third))
                self.moved[name] = one, other, log_bytes(self.into / name)
            self.committed = {TopicPartition(MOVING, number): 10 * (1 + number) for number in range(PARTITIONS[MOVING])}
            with ReaderOfAll(self.first.address, [at for at in PLACES if at.topic == MOVING], "read_committed") as reader:
                self.moving_rows = reader.everything()
            (stream / ENOUGH).touch()
            assert driver.wait(WAITING_SECONDS) == 0, (self.folder / "stream-errors.txt").read_text(encoding="utf-8")[-4000:]
            self.streamed = json.loads((self.folder / "stream.txt").read_text(encoding="utf-8").splitlines()[-1])
        finally:
            writing.over.set()
            killing.end()
            driver.kill()
            driver.wait()

    def _tear(self) -> None:
        """The follower is away, the leader goes on and is gone, and the follower leads without what it never had."""
        names = [f"{TORN}-{number}" for number in range(PARTITIONS[TORN])]
        running = Mirroring(mirror(self.first, self.into), self.folder / "running.jsonl")
        try:
            write_some(self.first, TORN, "both have it", (0, 1))
            self.third.kill()
            self.behind = {name: log_bytes(self.third.log_dir / name) for name in names}
            wait_for_isr(self.first, [TORN], {2})
            write_some(self.first, TORN, "one has it", (0, 1))
            code, events = self.once(self.away)
            assert code == 0, events
            self.before = {name: log_bytes(self.second.log_dir / name) for name in names}
            until(lambda: all(log_bytes(self.into / name) == self.before[name] for name in names), "what is lost then")
            assert all(log_bytes(self.away / name) == self.before[name] for name in names)
            self.second.kill()
            self.third.start()
            wait_for_isr(self.first, [TORN], {3})
            write_some(self.first, TORN, "in its place", (0,))
            self.second.start()
            wait_for_isr(self.first, [TORN, MOVING], {2, 3})
            # What could not be reached meanwhile is followed again.
            write_some(self.first, MOVING, "both are back", range(PARTITIONS[MOVING]))
            names += self.moved
            until(lambda: all(log_bytes(self.into / name) == log_bytes(self.third.log_dir / name) for name in names), "it follows")
            self.running = running.end()
            self.called = self.once(self.away)
        finally:
            running.kill()

    def kill(self) -> None:
        for each in reversed(self.brokers):
            each.kill()


@pytest.fixture(scope="module", params=KRAFT if IS_WHOLE else KRAFT[:1])
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """One life a version; every test looks at a part of it."""
    one = Story(str(request.param), tmp_path_factory.mktemp("mirrored"))
    try:
        one.live()
        yield one
    finally:
        one.kill()


def test_leaders_come_and_go(story: Story) -> None:
    """Both replicas and the mirror have the same bytes."""
    assert [set(leaders.values()) for leaders in story.leaders] == [{3}, {3}, {2}]
    assert story.kills > 3
    for name, (one, other, ours) in story.moved.items():
        assert len(ours) > 10_000
        assert one == other, name
        assert ours == one, name


def test_spark_streams_it_meanwhile(story: Story) -> None:
    """Each record once and in order, of a directory that is written, killed and recovered."""
    found: dict[int, list[tuple[int, bytes | None, bytes | None]]] = {}
    for partition, offset, key, value in story.streamed["rows"]:
        found.setdefault(partition, []).append((offset, *(None if text is None else base64.b64decode(text) for text in (key, value))))
    assert len(story.streamed["sizes"]) > 3
    for at, rows in story.moving_rows.items():
        assert found[at.partition] == [(row.offset, row.key, row.value) for row in rows], at


def cut_of(events: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The events that tell of a cut, by partition."""
    return {f"{each['topic']}-{each['partition']}": each for each in events if each.get("event") == "cut"}


@pytest.mark.parametrize("kind", ["running", "called"])
def test_an_unclean_election_is_found_and_what_is_cut_is_kept(story: Story, kind: str) -> None:
    """By a mirror that runs meanwhile, and by one that comes afterwards."""
    (code, events), into = (story.running, story.into) if kind == "running" else (story.called, story.away)
    assert code == 3
    assert events[-1]["has_losses"]
    assert events[-1]["is_complete"], events
    cuts = cut_of(events)
    assert set(cuts) == set(story.before)
    for name, before in story.before.items():
        behind = story.behind[name]
        assert before.startswith(behind)
        assert len(behind) < len(before)
        leads = log_bytes(story.third.log_dir / name)
        assert leads.startswith(behind)
        assert (len(leads) > len(behind)) == (name == f"{TORN}-0")
        assert leads == log_bytes(story.second.log_dir / name)
        assert log_bytes(into / name) == leads
        kept = [Path(path) for path in cuts[name]["kept"]]
        assert kept == sorted((into / name / "offsetlog-cut").iterdir())
        assert b"".join(path.read_bytes() for path in kept) == before[len(behind) :]


def test_everything_is_there_in_the_end(story: Story) -> None:
    code, events = story.last
    assert code == 0, events
    assert events[-1]["is_complete"]
    verified = subprocess.run([*PROGRAM, "verify", str(story.into)], capture_output=True, timeout=MIRROR_SECONDS, check=False)
    assert verified.returncode == 0, verified.stdout


def test_what_happens_at_random(story: Story) -> None:
    """It was compared after each change; here whether it was enough to show anything."""
    assert story.at_random is not None
    assert story.at_random.kills >= KILLS
    assert story.at_random.compared
    if IS_WHOLE:
        assert set(story.at_random.chapters) == set(CHANGES)
        assert story.at_random.kept


def test_restored_into_a_new_cluster_groups_go_on(story: Story, tmp_path: Path) -> None:
    """Every record is where it was, for both isolation levels, and a group reads on behind what it committed at the source."""
    broker = broker_of("4.3.0", tmp_path / "broker")
    broker.format()
    assert broker.metadata_dir is not None
    report = restore(story.into, broker.log_dir, metadata=broker.metadata_dir, broker=broker.properties, new_cluster=True)
    assert not report.has_losses, report
    with broker.running():
        for level, rows in story.rows.items():
            with ReaderOfAll(broker.address, PLACES, level) as reader:
                assert reader.everything() == rows, level
        wanted = {
            at.partition: [row._replace(leader_epoch=-1) for row in story.rows["read_committed"][at] if row.offset >= first]
            for at, first in story.committed.items()
        }
        assert console_rows(broker, MOVING, "read_committed", sum(map(len, wanted.values())), GROUP) == wanted
        # The log goes on behind them.
        with Writer(broker.address, MOVING) as writer:
            (offset,) = writer.send(0, [Appended(b"key", b"value", 1_700_000_000_000)])
        assert offset > story.rows["read_uncommitted"][TopicPartition(MOVING, 0)][-1].offset
