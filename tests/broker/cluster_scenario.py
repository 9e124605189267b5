"""One cluster's life: a broker creates, offsetlog writes, a broker serves and appends, offsetlog goes on, a broker serves again.

Everything that is seen on the way is kept, beside what was expected at that moment; the tests compare the two.
"""

from __future__ import annotations

import copy
import shutil
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from clients import Admin, Isolation, Reader, Writer, console_rows
from expected_state import ExpectedState
from golden import Row
from offsetlog_writes import OffsetlogWrites
from partitions import NUMBERS, PARTITIONS, entries
from peers import Appended, encoded
from wire import Fetched, Produced, Wire

from broker import CLEAN_MARK, adopt, broker_of, dump_files, sane_indexes

TOPIC = "made"
ISOLATIONS: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint")
LEFT_IN_FRONT = 57
"""Where `prefix` begins after its first records are deleted: inside a batch, inside a segment."""


@dataclass
class Seen:
    """One run of a broker, as its clients saw it before they changed anything."""

    expected: list[ExpectedState]
    rows: dict[Isolation, dict[int, list[Row]]] = field(default_factory=dict)
    console: dict[Isolation, dict[int, list[Row]]] = field(default_factory=dict)
    ends: dict[Isolation, dict[int, int]] = field(default_factory=dict)
    beginnings: dict[int, int] = field(default_factory=dict)
    times: dict[tuple[int, int], tuple[int, int] | None] = field(default_factory=dict)
    producers: dict[int, dict[int, tuple[int, int, int, int]]] = field(default_factory=dict)
    epochs: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    fetched: dict[int, Fetched] = field(default_factory=dict)
    leader_epochs: dict[int, int] = field(default_factory=dict)


def name(partition: int) -> str:
    """The directory of a partition."""
    return f"{TOPIC}-{partition}"


def contents(directory: Path) -> dict[str, bytes]:
    """Every file of a partition directory that is Kafka's."""
    return {
        path.name: path.read_bytes()
        for path in sorted(directory.iterdir())
        if path.is_file() and not path.name.startswith(".offsetlog")
    }


def log_bytes(files: dict[str, bytes]) -> bytes:
    """All batches of a partition in order."""
    return b"".join(data for file, data in files.items() if file.endswith(".log"))


def next_offset(batches: bytes) -> int:
    """The offset behind the last of these whole batches."""
    at, offset = 0, -1
    while at < len(batches):
        base, size = struct.unpack_from(">qi", batches, at)
        (last,) = struct.unpack_from(">i", batches, at + 23)
        offset, at = base + last + 1, at + 12 + size
    assert at == len(batches)
    return int(offset)


class ClusterScenario:
    """The whole of it for one version of the broker."""

    def __init__(self, version: str, directory: Path) -> None:
        self.version = version
        self.directory = directory
        self.broker = broker_of(version, directory / "broker")
        self.expected = [ExpectedState() for _ in PARTITIONS]
        self.now = int(time.time() * 1000) - 3_600_000
        self.seconds: dict[str, float] = {}
        self.failure: Exception | None = None
        self.written: list[dict[str, bytes]] = []
        """The files of each partition as offsetlog left them for the broker's second run."""
        self.served: list[dict[str, bytes]] = []
        """The same after that run."""
        self.continued: list[dict[str, bytes]] = []
        """The same as offsetlog left them for the third run."""
        self.recovered: list[dict[str, bytes]] = []
        """What a broker made of `written` when nothing told it that the directories were closed."""
        self.opened: list[int] = []
        """The numbers of the runs that began on directories of ours."""
        self.marks: list[bool] = []
        """Whether the log dir was marked clean after each of our visits."""
        self.duplicates: list[tuple[Produced, Produced]] = []
        """For each idempotent producer: the answer to a batch sent again, and what it should be."""
        self.refused: list[int] = []
        """Error codes for batches that skip a sequence number."""
        self.dumped: dict[Path, tuple[list[str], list[str]]] = {}
        self.seen: list[Seen] = []
        self.sane: list[Path] = []
        """Indexes that passed the dump tool's sanity check."""
        self.ends_after: list[tuple[dict[int, int], dict[int, int]]] = []
        """Log end offsets when each run was over: the broker's and the expected'."""

    def live(self) -> None:
        """From beginning to end, or to the first step that fails."""
        for step in (self.create, self.write, self.recover, self.serve, self.write_again, self.serve_again, self.dump):
            began = time.monotonic()
            try:
                step()
            except Exception as failure:  # noqa: BLE001  # whatever it is, a test raises it
                failure.add_note(f"Kafka {self.version}, step `{step.__name__}`")
                self.failure = failure
                return
            finally:
                self.seconds[step.__name__] = round(time.monotonic() - began, 1)

    @property
    def _all(self) -> range:
        return range(len(PARTITIONS))

    def path(self, partition: int) -> Path:
        """Where the broker keeps a partition."""
        return self.broker.log_dir / name(partition)

    def create(self) -> None:
        """The broker makes the topic, and writes a little into one partition."""
        self.broker.format()
        small = "internal.segment.bytes" if self.version >= "4" else "segment.bytes"
        with self.broker.running(), Admin(self.broker.address) as admin:
            settings = {small: "8192", "index.interval.bytes": "512"}
            admin.create(TOPIC, len(PARTITIONS), settings)
            epochs = admin.leader_epochs(TOPIC)
            assert set(epochs.values()) == {0}
            for number, partition in enumerate(PARTITIONS):
                if partition.broker_first:
                    self._produce(number, "first", epochs[number])

    def _produce(self, number: int, seed: str, epoch: int, codecs: Sequence[str] = ("gzip", "lz4")) -> None:
        """Plain and transactional producers append through the broker."""
        expected, now = self.expected[number], self.now
        for codec in codecs:
            made = _for_producers(entries(f"{seed} {codec}", 12, now))
            with Writer(
                self.broker.address, TOPIC, enable_idempotence=False, compression_type=None if codec == "none" else codec
            ) as writer:
                assert writer.send(number, made) == list(range(expected.end, expected.end + len(made)))
            expected.batch(made, epoch=epoch)
        with Writer(self.broker.address, TOPIC, transactional_id=f"{seed}-{number}") as writer:
            for commit in (False, True):
                made = _for_producers(entries(f"{seed} {commit}", 5, now))
                writer.begin()
                offsets = writer.send(number, made)
                base = expected.batch(made, epoch=epoch)
                assert offsets == list(range(base, expected.end))
                writer.end(commit=commit)
                expected.broker_marker(commit=commit, epoch=epoch)
                if not commit:
                    expected.mark_aborted(offsets)

    def write(self) -> None:
        """Offsetlog writes: elsewhere, and where the broker has its own."""
        elsewhere = self.directory / "elsewhere"
        elsewhere.mkdir()
        for number, partition in enumerate(PARTITIONS):
            place = self.path(number)
            if not partition.broker_first:
                with self._hand(elsewhere / name(number), number, epoch=0) as hand:
                    partition.first(hand)
                adopt(elsewhere / name(number), self.broker.log_dir, topic_id_of=place)
            else:
                with self._hand(place, number, epoch=0) as hand:
                    partition.first(hand)
        prefix = NUMBERS["prefix"]
        with self._hand(self.path(prefix), prefix, epoch=0) as hand:
            hand.log.delete_records_before(LEFT_IN_FRONT)
        self.expected[prefix].log_start_offset = LEFT_IN_FRONT
        self._left(self.written)

    def _hand(self, path: Path, number: int, *, epoch: int) -> OffsetlogWrites:
        # A leader between those of two runs, where there is room for one.
        highest = epoch + (self.broker.epochs_a_run > 1)
        return OffsetlogWrites(
            path, self.expected[number], epoch=epoch, highest_epoch=highest, now=self.now, settings=PARTITIONS[number].settings
        )

    def _left(self, into: list[dict[str, bytes]]) -> None:
        into += [contents(self.path(number)) for number in self._all]
        self.marks.append((self.broker.log_dir / CLEAN_MARK).exists())

    def recover(self) -> None:
        """A broker on a copy that says nothing about how it was left: it scans and rebuilds everything."""
        copied = broker_of(self.version, self.directory / "unclean")
        shutil.copytree(self.broker.directory, copied.directory)
        for file in (CLEAN_MARK, *CHECKPOINTS[:2]):
            (copied.log_dir / file).unlink(missing_ok=True)
        copied.runs = 10
        with copied.running():
            pass
        self.recovered += [contents(copied.log_dir / name(number)) for number in self._all]

    def serve(self) -> None:
        """The broker serves what was written, and appends."""
        self.opened.append(self.broker.runs + 1)
        with self.broker.running(), Admin(self.broker.address) as admin:
            self._look(admin)
            epochs = self.seen[-1].leader_epochs
            self._resend(epochs[NUMBERS["idempotent"]])
            for number in self._all:
                if number == NUMBERS["transactions"]:
                    self._produce(number, "served", epochs[number], ("none", "gzip", "snappy", "lz4", "zstd"))
                else:
                    self._append(number, f"served {number}", epochs[number])
            shared = NUMBERS["shared"]
            self.expected[shared].log_start_offset = 20
            admin.delete_records_before(TOPIC, {shared: 20})
            self._ends()
        self.served += [contents(self.path(number)) for number in self._all]

    def _append(self, number: int, seed: str, epoch: int) -> None:
        expected, made = self.expected[number], _for_producers(entries(seed, 6, self.now))
        with Wire(self.broker.address) as wire:
            answer = wire.produce(TOPIC, number, encoded("kafka-python", 2, "none", 0, made))
        assert (answer.error, answer.base_offset) == (0, expected.batch(made, epoch=epoch))

    def _resend(self, epoch: int) -> None:
        """Every idempotent producer sends its last batch again, then the next one, then one too far."""
        number = NUMBERS["idempotent"]
        expected = self.expected[number]
        with Wire(self.broker.address) as wire:
            for identity, state in sorted(expected.producers.items()):
                producer = (identity, state.epoch, state.last_base_sequence)
                answer = wire.produce(TOPIC, number, encoded("kafka-python", 2, "none", 0, state.last_entries, producer=producer))
                # A duplicate is answered with its first append's offset and its time.
                largest = max(entry.timestamp for entry in state.last_entries)
                self.duplicates.append((answer, Produced(0, state.last_base, largest, expected.log_start_offset)))
                made = [Appended(b"%d" % identity, b"through the broker", self.now)]
                producer = (identity, state.epoch, state.last_sequence + 1)
                answer = wire.produce(TOPIC, number, encoded("kafka-python", 2, "none", 0, made, producer=producer))
                assert (answer.error, answer.base_offset) == (0, expected.batch(made, epoch=epoch, producer=producer))
                producer = (identity, state.epoch, state.last_sequence + 2)
                self.refused.append(wire.produce(TOPIC, number, encoded("kafka-python", 2, "none", 0, made, producer=producer)).error)

    def write_again(self) -> None:
        """Offsetlog opens what the broker left, where it stands, and goes on."""
        for number, partition in enumerate(PARTITIONS):
            expected = self.expected[number]
            with self._hand(self.path(number), number, epoch=expected.leader_epoch) as hand:
                log = hand.log
                assert (log.log_start_offset, log.log_end_offset) == (expected.log_start_offset, expected.end), partition.name
                assert log.leader_epoch == expected.leader_epoch, partition.name
                assert log.last_stable_offset == expected.last_stable_offset, partition.name
                hand.now += 60_000
                partition.again(hand)
        self._left(self.continued)

    def serve_again(self) -> None:
        """The broker serves everything, and appends once more."""
        self.opened.append(self.broker.runs + 1)
        with self.broker.running(), Admin(self.broker.address) as admin:
            self._look(admin)
            for number in self._all:
                self._append(number, f"served again {number}", self.seen[-1].leader_epochs[number])
            self._ends()

    def _ends(self) -> None:
        with Reader(self.broker.address, TOPIC, self._all, "read_uncommitted") as reader:
            self.ends_after.append((reader.end_offsets(), {number: self.expected[number].end for number in self._all}))

    def _look(self, admin: Admin) -> None:
        """Ask everything that clients can ask."""
        address, seen = self.broker.address, Seen(copy.deepcopy(self.expected))
        self.seen.append(seen)
        seen.leader_epochs = admin.leader_epochs(TOPIC)
        seen.producers = admin.producers(TOPIC, self._all)
        for isolation in ISOLATIONS:
            with Reader(address, TOPIC, self._all, isolation) as reader:
                seen.beginnings = reader.beginning_offsets()
                seen.ends[isolation] = reader.end_offsets()
                seen.rows[isolation] = reader.rows()
                if isolation == "read_uncommitted":
                    for number in self._all:
                        for timestamp in _queries(self.expected[number]):
                            seen.times[number, timestamp] = reader.offset_for_timestamp(number, timestamp)
            seen.console[isolation] = console_rows(self.broker, TOPIC, isolation, sum(map(len, seen.rows[isolation].values())))
        with Wire(address) as wire:
            for number in self._all:
                for epoch in range(seen.leader_epochs[number]):
                    seen.epochs[number, epoch] = wire.end_offset_for_epoch(TOPIC, number, epoch)
                seen.fetched[number] = self._fetch_all(wire, number)

    def _fetch_all(self, wire: Wire, number: int) -> Fetched:
        """The whole partition as a committed reader gets it, put together from the answers: each comes from one segment."""
        offset, aborted, records = self.expected[number].log_start_offset, set[tuple[int, int]](), b""
        while True:
            answer = wire.fetch(TOPIC, number, offset, committed=True)
            assert answer.error == 0, (PARTITIONS[number].name, answer.error)
            aborted |= set(answer.aborted)
            records += answer.records
            if not answer.records:
                return answer._replace(aborted=tuple(sorted(aborted)), records=records)
            offset = next_offset(answer.records)

    def copy_of_written(self, number: int) -> Path:
        """A partition as we left it for the broker's second run."""
        return self.directory / "written" / name(number)

    def dump(self) -> None:
        """kafka-dump-log, always the newest, on every file of the topic: as we left it the first time, and as it is now."""
        for number in self._all:
            folder = self.copy_of_written(number)
            folder.mkdir(parents=True)
            for file, data in self.written[number].items():
                (folder / file).write_bytes(data)
        folders = [place(number) for number in self._all for place in (self.copy_of_written, self.path)]
        files = [path for folder in folders for path in sorted(folder.iterdir()) if path.suffix in DUMPED]
        self.dumped = dump_files(DUMPER, files)
        self.sane = sane_indexes(DUMPER, [path for path in files if path.suffix in {".index", ".timeindex"}])


DUMPER = "4.3.0"
DUMPED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def _for_producers(made: Sequence[Appended]) -> list[Appended]:
    """What kafka-python's producer sends: no header without a value, no record with neither key nor value."""
    return [
        entry._replace(
            value=b"" if entry.key is None and entry.value is None else entry.value,
            headers=tuple((key, value) for key, value in entry.headers if value is not None),
        )
        for entry in made
    ]


def _queries(expected: ExpectedState) -> list[int]:
    """Times to ask for: of the first, a middle and the last record, beside each of them, and after all."""
    if not expected.rows or any(marker.timestamp is None for marker in expected.markers):
        return []
    times = sorted({timestamp for _, timestamp in expected.times() if timestamp >= 0})
    if not times:
        return []
    chosen = {times[0], times[len(times) // 3], times[len(times) // 2], times[-1]}
    return sorted({query for time_ in chosen for query in (time_ - 1, time_, time_ + 1) if query >= 0})
