"""A running broker's directory is read, salvaged and restored while producers write into it: every record that a consumer gets, each once.

`verify` finds nothing wrong with it, and `why`, `producers` and `identity` say of it what the broker says, also where the broker compacts and deletes meanwhile.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_words import check_untouched, lines_of
from clients import Admin, Isolation, Reader, Writer
from cluster_scenario import ISOLATIONS
from golden import Row, row, rows
from partitions import entries
from peers import Appended

from broker import Broker, broker_of
from offsetlog import DamageReport, Log, LogDir, identity, restore, salvage, verify

TOPIC = "live"
KEPT = "kept"
KEPT_SETTINGS = {
    "cleanup.policy": "compact,delete",
    "min.cleanable.dirty.ratio": "0.01",
    "retention.bytes": "40000",
    "file.delete.delay.ms": "0",
}
"""Compacted whenever a segment ends, and files are deleted without delay."""
BRIEF_TOPICS = 6
NOW = 1_700_000_000_000
ROUNDS = 60
IDLE_MS = 300_000
"""How long a follower waits for more; it ends before, when it has what there is."""


class Follower(threading.Thread):
    """Follows a partition to an end that it is told later."""

    def __init__(self, path: Path, isolation: Isolation) -> None:
        super().__init__(daemon=True)
        self.found: list[Row] = []
        self.failure: Exception | None = None
        self.end: int | None = None
        self._path = path
        self._isolation = isolation

    def run(self) -> None:
        try:
            with Log.open(self._path) as log:
                for record in log.scan(isolation_level=self._isolation).follow(timeout_ms=IDLE_MS, poll_interval_ms=200):
                    self.found.append(row(record))
                    if self.end is not None and record.offset >= self.end:
                        return
        except Exception as failure:  # noqa: BLE001  # whatever it is, the test raises it
            self.failure = failure


class Looker(threading.Thread):
    """Opens the directory anew each time and reads it whole, by columns: more each time, and what was there stays."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.looks: list[list[tuple[int, bytes | None]]] = []
        self.failure: Exception | None = None
        self.enough = threading.Event()
        self._path = path

    def has_looked(self) -> bool:
        """Whether it looked often enough."""
        return len(self.looks) > 3

    def run(self) -> None:
        try:
            while not self.enough.wait(0.1):
                with Log.open(self._path) as log:
                    table = log.scan(columns=["offset", "value"]).to_arrow()
                self.looks.append(list(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)))
        except Exception as failure:  # noqa: BLE001
            self.failure = failure


class Rescuer(threading.Thread):
    """Salvages the partition and restores its log dir, again and again: what is there by then, as a sound log."""

    def __init__(self, path: Path, into: Path) -> None:
        super().__init__(daemon=True)
        self.made: list[Path] = []
        self.lengths: list[int] = []
        self.failure: Exception | None = None
        self.enough = threading.Event()
        self._path = path
        self._into = into

    def has_rescued(self) -> bool:
        """Whether it made logs of several lengths."""
        return len(set(self.lengths)) > 3

    def run(self) -> None:
        try:
            while not self.enough.wait(0.2):
                place = self._into / f"{len(self.made)}"
                salvaged = salvage(self._path, place / "salvaged" / self._path.name)
                # The broker has written a batch half, at most; and where its checkpoint says more, that is read too.
                assert salvaged.losses == ()
                restored = restore(self._path.parent, place / "restored", topics=TOPIC)
                assert [each.state for each in restored.partitions] == ["restored"]
                assert not restored.has_losses
                self.made += [place / "salvaged" / self._path.name, place / "restored" / self._path.name]
                self.lengths.append(salvaged.records)
        except Exception as failure:  # noqa: BLE001
            self.failure = failure


class Verifier(threading.Thread):
    """Verifies the whole log dir again and again, from Python and by the command in turn, with the cluster's word about its topics."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(daemon=True)
        self.looks: list[DamageReport] = []
        self.commands = 0
        self.failure: Exception | None = None
        self.enough = threading.Event()
        cluster = broker.metadata_dir or broker.zookeeper_dir
        assert cluster is not None
        self._paths = [broker.log_dir, cluster]

    def has_looked(self) -> bool:
        """Whether it looked often enough, by the command too, and saw another log each time."""
        return self.commands > 3 and len({report.bytes_read for report in list(self.looks)}) > 10

    def run(self) -> None:
        command = [sys.executable, "-m", "offsetlog", "verify", "--quiet", *map(str, self._paths)]
        try:
            while not self.enough.is_set():
                report = verify(*self._paths)
                assert not report.damaged, [finding for finding in report.findings if finding.severity != "note"]
                self.looks.append(report)
                if len(self.looks) % 4 == 0:
                    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=IDLE_MS / 1000)
                    assert done.returncode == 0, done.stdout + done.stderr
                    self.commands += 1
        except Exception as failure:  # noqa: BLE001
            self.failure = failure


class Churner(threading.Thread):
    """Writes what the broker soon compacts and deletes, and makes and deletes topics."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.failure: Exception | None = None
        self.enough = threading.Event()
        self._address = address

    def run(self) -> None:
        chosen = random.Random("churn")
        try:
            with Writer(self._address, KEPT, enable_idempotence=False) as writer, Admin(self._address) as admin:
                for number in itertools.count():
                    if self.enough.is_set():
                        break
                    if number % 5 == 0 and number < BRIEF_TOPICS * 5:
                        brief = f"brief-{number}"
                        admin.create(brief, 3, {})
                        admin.leader_epochs(brief)
                        admin.delete(brief)
                    made = entries("churn", 20, int(time.time() * 1000))
                    made = [one._replace(headers=(), key=b"%d" % chosen.randrange(60), value=chosen.randbytes(200)) for one in made]
                    writer.send(0, made[: chosen.randrange(1, 20)])
        except Exception as failure:  # noqa: BLE001
            self.failure = failure


def small_segments(version: str) -> dict[str, str]:
    return {"internal.segment.bytes" if version >= "4" else "segment.bytes": "8192", "index.interval.bytes": "512"}


def high_watermark(log_dir: Path) -> int:
    """The one that the broker has written; -1 for none yet."""
    with contextlib.suppress(FileNotFoundError):
        for line in (log_dir / "replication-offset-checkpoint").read_text(encoding="ascii").splitlines():
            if line.startswith(f"{TOPIC} 0 "):
                return int(line.split()[2])
    return -1


def is_kept(log_dir: Path) -> bool:
    """Whether the broker has compacted the topic for that, and deleted its oldest segments."""
    try:
        compacted = (log_dir / "cleaner-offset-checkpoint").read_text(encoding="ascii")
    except FileNotFoundError:
        return False
    bases = [int(path.stem) for path in (log_dir / f"{KEPT}-0").glob("*.log")]
    return f"{KEPT} 0 " in compacted and min(bases, default=0) > 0


@contextlib.contextmanager
def verified(broker: Broker) -> Iterator[None]:
    """Verify beside what the broker does meanwhile, until it has also compacted and deleted."""
    with Admin(broker.address) as admin:
        admin.create(KEPT, 1, {**KEPT_SETTINGS, **small_segments(broker.version)})
        admin.leader_epochs(KEPT)
    verifier, churner = Verifier(broker), Churner(broker.address)
    for thread in (verifier, churner):
        thread.start()
    try:
        yield
        until = time.monotonic() + IDLE_MS / 1000
        while verifier.is_alive() and churner.is_alive() and not (is_kept(broker.log_dir) and verifier.has_looked()):
            assert time.monotonic() < until, "the broker compacts and deletes nothing, or is not looked at"
            time.sleep(0.1)
    finally:
        for thread in (verifier, churner):
            thread.enough.set()
            thread.join(300)
    for thread in (verifier, churner):
        assert not thread.is_alive()
        if thread.failure is not None:
            raise thread.failure
    assert verifier.has_looked()


def produced(address: str) -> None:
    """Plain batches in all codecs, and transactions of which every third is aborted."""
    chosen = random.Random("live")
    writers = [Writer(address, TOPIC, enable_idempotence=False, compression_type=codec) for codec in (None, "gzip", "lz4")]
    with Writer(address, TOPIC, transactional_id="live") as transactional:
        for number in range(ROUNDS):
            made = [entry._replace(headers=(), key=b"key", value=entry.value or b"") for entry in entries(f"live {number}", 20, NOW)]
            if number % 3:
                writers[number % 2 + 1 if number % 5 else 0].send(0, made[: chosen.randrange(1, 20)])
            else:
                transactional.begin()
                transactional.send(0, made[: chosen.randrange(1, 20)])
                transactional.end(commit=number % 9 != 0)
    for writer in writers:
        with writer:
            pass


def produced_beside(address: str, looker: Looker, rescuer: Rescuer) -> None:
    """That, until it was read often enough while it grew: on a slow machine one look may take as long as a round of it."""
    until = time.monotonic() + IDLE_MS / 1000
    produced(address)
    while looker.is_alive() and rescuer.is_alive() and not (looker.has_looked() and rescuer.has_rescued()):
        assert time.monotonic() < until, "it is not read while it grows"
        produced(address)


def check_what_is_said_beside(broker: Broker) -> None:
    """Of an open transaction `why` says that it holds back readers, `producers` what the broker says, `identity` that all is served."""
    cluster = broker.metadata_dir or broker.zookeeper_dir
    assert cluster is not None
    with Writer(broker.address, TOPIC, transactional_id="open") as open_, Admin(broker.address) as admin:
        open_.begin()
        (first,) = open_.send(0, [Appended(b"key", b"open", NOW)])
        known = admin.producers(TOPIC, [0])[0]
        # The broker writes the high watermark every five seconds; below it `why` would say that it ends there.
        until = time.monotonic() + IDLE_MS / 1000
        while high_watermark(broker.log_dir) <= first:
            assert time.monotonic() < until
            time.sleep(0.1)
        with LogDir.open([broker.log_dir, cluster]) as logs:
            found = logs.producers(topics=TOPIC)
            answers = logs.why(topics=TOPIC, broker=broker.properties)
        said = identity(broker.log_dir, cluster)
        assert admin.producers(TOPIC, [0])[0] == known
        open_.end(commit=False)

    def number(value: int | None) -> int:
        return -1 if value is None else value

    assert {
        each.producer_id: (
            each.producer_epoch,
            number(each.last_sequence),
            number(each.coordinator_epoch),
            number(each.transaction_first_offset),
        )
        for each in found
    } == known
    assert {(each.transactional_id, each.standing) for each in found} == {("live", "none"), ("open", "ongoing")}
    (held,) = [each for each in answers if each.question == "read_committed"]
    assert (held.reason, held.offset) == ("open-transaction", first)
    assert held.producer is not None
    assert known[held.producer.producer_id][3] == first
    (kept,) = [each for each in answers if each.question == "deletion"]
    assert kept.reason == "unlimited", kept
    outcomes = {Path(row.path).name: row.outcome for row in said}
    assert {outcomes[name] for name in (broker.log_dir.name, f"{TOPIC}-0", f"{KEPT}-0")} == {"serves"}


@pytest.mark.parametrize("version", ["4.3.0", "2.8.2"])
def test_records_are_those_of_a_consumer(version: str, tmp_path: Path) -> None:
    broker = broker_of(version, tmp_path / "broker")
    broker.format()
    with broker.running(), verified(broker):
        with Admin(broker.address) as admin:
            admin.create(TOPIC, 1, small_segments(version))
            admin.leader_epochs(TOPIC)
        path = broker.log_dir / f"{TOPIC}-0"
        # The broker has a leader for it before it has the directory.
        until = time.monotonic() + IDLE_MS / 1000
        while not list(path.glob("*.log")):
            assert time.monotonic() < until, f"no segment in {path}"
            time.sleep(0.05)
        followers = {isolation: Follower(path, isolation) for isolation in ISOLATIONS}
        looker, rescuer = Looker(path), Rescuer(path, tmp_path / "rescued")
        threads: list[Follower | Looker | Rescuer] = [*followers.values(), looker, rescuer]
        for thread in threads:
            thread.start()
        produced_beside(broker.address, looker, rescuer)
        check_what_is_said_beside(broker)
        wanted = {}
        for isolation, follower in followers.items():
            with Reader(broker.address, TOPIC, [0], isolation) as reader:
                wanted[isolation] = reader.rows()[0]
            follower.end = wanted[isolation][-1].offset
        with Writer(broker.address, TOPIC, enable_idempotence=False) as last:
            # Wakes who has read it all already.
            last.send(0, entries("last", 1, NOW)[:1])
        looker.enough.set()
        rescuer.enough.set()
        for thread in threads:
            thread.join(300)
            assert not thread.is_alive()
        closed_segments = len(list(path.glob("*.log"))) - 1
    check_untouched(broker, [f"{TOPIC}-0"])
    assert not [line for line in lines_of(broker, broker.runs) if " ERROR " in line or " FATAL " in line]
    for thread in threads:
        if thread.failure is not None:
            raise thread.failure
    for isolation, follower in followers.items():
        # Of the one that woke it there may be one more.
        assert follower.found[: len(wanted[isolation])] == wanted[isolation]
        assert len(follower.found) <= len(wanted[isolation]) + 1
    assert closed_segments > 3
    assert looker.has_looked()
    everything = [(seen.offset, seen.value) for seen in wanted["read_uncommitted"]]
    for fewer, more in zip(looker.looks, [*looker.looks[1:], everything], strict=True):
        assert more[: len(fewer)] == fewer or fewer[: len(everything)] == everything
    assert len(wanted["read_committed"]) < len(wanted["read_uncommitted"])
    whole = wanted["read_uncommitted"]
    lengths = []
    for made in rescuer.made:
        with Log.open(made) as log:
            found = list(rows(log.scan()))
        # Of the one that woke the followers there may be one more.
        assert found[: len(whole)] == whole[: len(found)]
        assert not verify(made).damaged
        lengths.append(len(found))
    assert lengths[::2] == sorted(lengths[::2])
    assert len(set(lengths)) > 3
    with Log.open(path) as log:
        for isolation in ISOLATIONS:
            assert list(rows(log.scan(isolation_level=isolation)))[: len(wanted[isolation])] == wanted[isolation]
