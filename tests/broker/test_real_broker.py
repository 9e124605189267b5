"""Real Kafka brokers open, serve and continue what offsetlog writes, and offsetlog continues what they write."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from cluster_scenario import DUMPED, ISOLATIONS, ClusterScenario, log_bytes, name
from expected_state import ExpectedState
from golden import Row, rows
from offsetlog_writes import CODECS
from partitions import IDEMPOTENT, NUMBERS, PARTITIONS
from wire import OUT_OF_ORDER_SEQUENCE_NUMBER

from offsetlog import Log

RUNS = pytest.mark.parametrize("run", [0, 1], ids=["written", "continued"])
EVERY = pytest.mark.parametrize("number", range(len(PARTITIONS)), ids=[partition.name.replace(" ", "-") for partition in PARTITIONS])

# What a broker says when it is not content with what it finds. `.index` and the like are named in the words of a rebuild.
TROUBLE = re.compile(
    r"\b(?:WARN|ERROR|FATAL)\b|[Cc]orrupt|[Rr]ecovering|[Rr]ebuil[dt] (?!producer)|[Tt]runcat|[Cc]ould not find|[Ii]nvalid"
    r"|[Ss]tray|[Ss]anity|[Dd]eleting|Found \d+ invalid",
)
# What it has to say where a test asks for it.
PROVOKED = {
    "idempotent": "Error processing append operation",
    # Where a log begins inside a batch, the high watermark goes from its start back to that of the batch.
    "prefix": "Non-monotonic update of high watermark",
}


def without_epochs(found: list[Row]) -> list[Row]:
    """What the console consumer does not print."""
    return [row._replace(leader_epoch=-1) for row in found]


def told_apart(found: list[Row], wanted: list[Row]) -> str:
    """The first difference, for people."""
    for place, (one, other) in enumerate(zip(found, wanted, strict=False)):
        if one != other:
            return f"record {place}: {one} instead of {other}"
    return f"{len(found)} records instead of {len(wanted)}"


def test_every_step_is_done(told: ClusterScenario) -> None:
    """A broker that does not start, a producer that is refused, an append that answers with other offsets than expected."""
    if told.failure is not None:
        raise told.failure
    assert all(told.seconds.values())


@RUNS
@EVERY
def test_consumers_read_every_record(story: ClusterScenario, number: int, run: int) -> None:
    """Offsets, timestamps and their kind, leader epochs, keys, values, headers; all of them, and nothing else."""
    seen = story.seen[run]
    for isolation in ISOLATIONS:
        wanted = seen.expected[number].readable(committed=isolation == "read_committed")
        found = seen.rows[isolation][number]
        assert found == wanted, f"kafka-python, {isolation}: {told_apart(found, wanted)}"
        found = seen.console[isolation].get(number, [])
        assert found == without_epochs(wanted), f"console consumer, {isolation}: {told_apart(found, without_epochs(wanted))}"


@RUNS
@EVERY
def test_brokers_know_where_logs_begin_and_end(story: ClusterScenario, number: int, run: int) -> None:
    seen = story.seen[run]
    expected = seen.expected[number]
    assert seen.beginnings[number] == expected.log_start_offset
    assert seen.ends["read_uncommitted"][number] == expected.end
    assert seen.ends["read_committed"][number] == expected.last_stable_offset
    found, wanted = story.ends_after[run]
    assert found[number] == wanted[number]


@RUNS
@EVERY
def test_brokers_find_times(story: ClusterScenario, number: int, run: int) -> None:
    """Through the time index as we wrote it."""
    seen = story.seen[run]
    asked = {timestamp: answer for (partition, timestamp), answer in seen.times.items() if partition == number}
    assert asked == {timestamp: seen.expected[number].offset_for_timestamp(timestamp) for timestamp in asked}


@RUNS
@EVERY
def test_brokers_know_leader_epochs(story: ClusterScenario, number: int, run: int) -> None:
    """From `leader-epoch-checkpoint` as we wrote it; the broker itself led since the start of this run."""
    seen = story.seen[run]
    expected = ExpectedState(**vars(seen.expected[number]))
    leader_epoch = seen.leader_epochs[number]
    expected.epochs = [*expected.epochs, (leader_epoch, expected.end)]
    asked = {epoch: answer for (partition, epoch), answer in seen.epochs.items() if partition == number}
    assert sorted(asked) == list(range(leader_epoch))
    assert asked == {epoch: expected.end_offset_for_epoch(epoch) for epoch in asked}
    if seen.expected[number].epochs:
        assert leader_epoch >= seen.expected[number].leader_epoch


@RUNS
@EVERY
def test_brokers_know_producers(story: ClusterScenario, number: int, run: int) -> None:
    """From the snapshot as we wrote it. What a broker did for producers of its own is its business."""
    seen = story.seen[run]
    wanted = {
        identity: (state.epoch, state.last_sequence, state.coordinator_epoch, state.transaction_start)
        for identity, state in seen.expected[number].producers.items()
    }
    found = {identity: state for identity, state in seen.producers[number].items() if identity >= 7000}
    assert found == wanted


@RUNS
@EVERY
def test_fetches_give_the_bytes_of_our_files(story: ClusterScenario, number: int, run: int) -> None:
    """Just as they lie there, up to the last stable offset; with the aborted transactions that our `.txnindex` lists."""
    seen = story.seen[run]
    expected, fetched = seen.expected[number], seen.fetched[number]
    assert (fetched.high_watermark, fetched.last_stable_offset) == (expected.end, expected.last_stable_offset)
    assert fetched.log_start_offset == expected.log_start_offset
    ours = log_bytes((story.written, story.continued)[run][number])
    begin = ours.find(fetched.records)
    assert begin >= 0
    if expected.last_stable_offset == expected.end:
        assert ours.endswith(fetched.records)
    if expected.log_start_offset == 0:
        assert begin == 0
    if number not in brokers_transactions():
        assert set(fetched.aborted) == {(identity, first) for identity, first, _ in expected.aborted_transactions}


def brokers_transactions() -> set[int]:
    """Partitions where transactional producers wrote through the broker."""
    return {NUMBERS["shared"], NUMBERS["transactions"]}


@EVERY
def test_brokers_find_nothing_to_repair(story: ClusterScenario, number: int) -> None:
    """Directories of ours are opened as a broker's own after a clean stop: no scan, no rebuild, no complaint."""
    expected = PROVOKED.get(PARTITIONS[number].name)
    for run in story.opened:
        said = story.broker.said_of(name(number), run)
        assert any("Loading producer state" in line for line in said), said
        assert not [line for line in said if TROUBLE.search(line) and not (expected and expected in line)]


def test_the_log_dir_stays_marked_clean(story: ClusterScenario) -> None:
    """We touched a log dir that was closed cleanly, and left it so."""
    assert story.marks == [True, True]


@EVERY
def test_brokers_leave_our_closed_segments_as_they_are(story: ClusterScenario, number: int) -> None:
    """And append behind our last byte in the active one."""
    before, after = story.written[number], story.served[number]
    active = max(Path(file).stem for file in before if file.endswith(".log"))
    for file, data in before.items():
        if file == f"{active}.log":
            assert after[file].startswith(data)
        elif Path(file).stem < active and Path(file).suffix in DUMPED and f"{Path(file).stem}.log" in before:
            assert after[file] == data, file
    assert log_bytes(after).startswith(log_bytes(before))


@EVERY
def test_recovery_by_a_broker_makes_the_files_that_we_wrote(story: ClusterScenario, number: int) -> None:
    """Told nothing about how the directory was left, a broker scans the batches and writes every companion anew."""
    ours, theirs = story.written[number], story.recovered[number]
    # Of segments that a truncation removed; they wait for their time, and a broker removes them when it starts.
    ours = {file: data for file, data in ours.items() if not file.endswith(".deleted")}
    # Snapshots that a truncation or an earlier close took where no segment begins: a recovery has no reason to take them.
    between = {file for file in ours if file.endswith(".snapshot") and file.replace(".snapshot", ".log") not in ours}
    assert ours.keys() - between <= theirs.keys() <= ours.keys()
    for file, data in ours.items():
        if file not in theirs or (PARTITIONS[number].resumed and file.endswith("index")):
            continue
        if file == "leader-epoch-checkpoint":
            assert epochs_of(theirs[file])[: len(epochs_of(data))] == epochs_of(data)
        elif file.endswith(".snapshot"):
            assert snapshot_entries(theirs[file]) == snapshot_entries(data), file
        else:
            assert theirs[file] == data, file


def epochs_of(data: bytes) -> list[str]:
    """The lines of a checkpoint of leader epochs."""
    return data.decode().splitlines()[2:]


def snapshot_entries(data: bytes) -> list[bytes]:
    """The producers of a snapshot; their order in the file is that of a hash table."""
    (count,) = struct.unpack_from(">i", data, 6)
    entries = data[10:]
    assert len(entries) == 46 * count
    return sorted(entries[at : at + 46] for at in range(0, len(entries), 46))


def test_brokers_know_duplicates_after_our_close(story: ClusterScenario) -> None:
    """A producer that was cut off sends its batch again: the first append's offset, and nothing is written twice."""
    assert len(story.duplicates) == len(IDEMPOTENT)
    for answer, wanted in story.duplicates:
        assert answer == wanted


def test_brokers_refuse_sequences_that_do_not_follow_ours(story: ClusterScenario) -> None:
    assert story.refused == [OUT_OF_ORDER_SEQUENCE_NUMBER] * len(IDEMPOTENT)


@EVERY
def test_offsetlog_reads_the_end_of_the_story(story: ClusterScenario, number: int) -> None:
    """Written by turns: ours, the broker's, ours, the broker's."""
    expected = story.expected[number]
    with Log.open(story.path(number)) as log:
        for isolation in ISOLATIONS:
            wanted = expected.readable(committed=isolation == "read_committed")
            assert list(rows(log.scan(isolation_level=isolation))) == wanted
        assert (log.log_start_offset, log.log_end_offset) == (expected.log_start_offset, expected.end)
        assert log.leader_epoch == expected.leader_epoch


@EVERY
def test_partitions_have_what_they_are_for(story: ClusterScenario, number: int) -> None:
    """Several segments, several epochs, all codecs: else the tests above would show less than they say."""
    files = story.continued[number]
    segments = [file for file in files if file.endswith(".log")]
    partition = PARTITIONS[number].name
    if partition != "empty":
        assert len(segments) > 2
        assert sum(len(files[file.replace(".log", ".index")]) >= 16 for file in segments) > 1
    if partition in CODECS:
        # Clients leave a batch plain that compression would make larger.
        assert stored_codecs(log_bytes(story.written[number])) | {0} == {CODECS.index(partition), 0}
    if partition == "recoded":
        assert stored_codecs(log_bytes(story.written[number])) == {CODECS.index("gzip")}
    if story.broker.epochs_a_run:
        assert len(story.expected[number].epochs) >= {"empty": 2, "epochs": 5, "followed": 4}.get(partition, 3)


def harmless(complaints: list[str], path: Path, expected: ExpectedState, *, old_entries: bool) -> bool:
    """Nothing, or what deep iteration says of every segment that does not begin at 0, and of offsets that nobody has."""
    if not complaints:
        return True
    if old_entries:
        return complaints[0].startswith("The following indexed offsets are not found")
    gaps = {f"  {before} is followed by {after}" for before, after in expected.gaps} | {f"  -1 is followed by {int(path.stem)}"}
    return path.suffix == ".log" and complaints[0].startswith("Non-consecutive offsets in ") and set(complaints[1:]) <= gaps


def counts(directory: Path) -> tuple[int, int, int]:
    """Batches, records and markers by the headers of the batches."""
    batches, found = 0, [0, 0]
    for path in directory.glob("*.log"):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (size,) = struct.unpack_from(">i", data, at + 8)
            (attributes,) = struct.unpack_from(">h", data, at + 21)
            (count,) = struct.unpack_from(">i", data, at + 57)
            found[attributes >> 5 & 1] += count
            batches += 1
            at += 12 + size
    return batches, found[0], found[1]


def stored_codecs(batches: bytes) -> set[int]:
    """The codecs that the headers name."""
    found, at = set(), 0
    while at < len(batches):
        (size,) = struct.unpack_from(">i", batches, at + 8)
        found.add(batches[at + 22] & 7)
        at += 12 + size
    return found


@pytest.mark.parametrize("state", ["written", "in-the-end"])
@EVERY
def test_the_dump_tool_finds_nothing_wrong(story: ClusterScenario, number: int, state: str) -> None:
    """kafka-dump-log over every `.log` record by record, every index against its log, every snapshot."""
    directory = story.copy_of_written(number) if state == "written" else story.path(number)
    files = {path: said for path, said in story.dumped.items() if path.parent == directory}
    assert files.keys() == {path for path in directory.iterdir() if path.suffix in DUMPED}
    batches = records = markers = 0
    for path, (printed, complaints) in files.items():
        # Entries of 2.8 itself name the record that has the time, later ones the last of its batch, as the tool wants it.
        old_entries = story.version < "3" and state == "in-the-end" and path.suffix == ".timeindex"
        assert harmless(complaints, path, story.expected[number], old_entries=old_entries), (path.name, complaints)
        if path.suffix == ".log":
            assert not any("invalid bytes" in line for line in printed)
            headers = [line for line in printed if line.startswith("baseOffset: ")]
            assert all(line.endswith(" isvalid: true") for line in headers)
            batches += len(headers)
            markers += sum("endTxnMarker: " in line for line in printed)
            records += sum(line.startswith("| offset: ") for line in printed)
    assert (batches, records - markers, markers) == counts(directory)


def test_the_dump_tool_passes_every_index(story: ClusterScenario) -> None:
    """Its own sanity check, asked for by name."""
    indexes = {path for path in story.dumped if path.suffix == ".timeindex" or (path.suffix == ".index" and path.stat().st_size)}
    assert indexes
    assert set(story.sane) == indexes
