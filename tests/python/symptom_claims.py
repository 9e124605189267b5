"""What each page by symptom promises of the files that its commands leave, held against what Kafka said of the same directories.

Each claim takes the folder in which the page's commands ran.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

from frames import frames
from golden import CLEAN, CLEAN_LOG_DIRS, DATA, Golden, Row, named, rows

from offsetlog import Log, identity, verify

TORN = DATA / "kafka-4.3.0" / "torn"
UNCLEAN = DATA / "kafka-4.3.0" / "unclean"
PRODUCER = 1000
"""Whose transaction is open in g-txn-0."""

Claim = Callable[[Path], None]


def files(place: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def checkpoint(path: Path) -> dict[str, int]:
    """The offsets of one of a log dir's checkpoints, by partition."""
    entries = (line.split() for line in path.read_text().splitlines()[2:])
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in entries}


def sound(*paths: Path) -> None:
    """Nothing is wrong with these partitions."""
    for path in paths:
        assert not verify(path).damaged, path


def has(path: Path, golden: Golden) -> None:
    """The directory has what Kafka's consumer read of the golden one."""
    with Log.open(path) as log:
        assert rows(log.scan()) == golden.rows


def outcomes(*paths: Path) -> set[str]:
    """What a broker does with all that is in these folders."""
    return {row.outcome for row in identity(*paths)}


def inconsistent_cluster_id(here: Path) -> None:
    """What the page damages is as it was, to the byte."""
    assert files(here / "disks") == files(CLEAN)


def stray_directories(here: Path) -> None:
    """Two directories have their records and their ids again, and the broker serves all."""
    for golden in named("g-plain-0", "g-plain-2"):
        path = here / "disks" / "log-dir-1" / golden.name
        has(path, golden)
        sound(path)
        kept = [*golden.directory.glob("*.log"), golden.directory / "partition.metadata"]
        assert all((path / file.name).read_bytes() == file.read_bytes() for file in kept)
    assert outcomes(*(here / "disks" / place.name for place in (*CLEAN_LOG_DIRS, CLEAN / "metadata-dir"))) == {"serves"}


def topic_empty_after_mount(here: Path) -> None:
    """The new topic has the old records and the new id."""
    (golden,) = named("g-plain-0")
    has(here / "new" / "g-plain-0", golden)
    sound(here / "new" / "g-plain-0")
    metadata = "partition.metadata"
    assert (here / "new" / "g-plain-0" / metadata).read_bytes() == (golden.directory / metadata).read_bytes()
    assert (here / "volume" / "data" / "kafka" / "g-plain-0" / metadata).read_bytes() != (golden.directory / metadata).read_bytes()
    assert outcomes(here / "new", CLEAN / "metadata-dir") == {"serves"}


def retention_does_not_delete(here: Path) -> None:
    """Offset 73 is the newest of the oldest segment by Kafka's consumer, and the next segment begins at the offset of the file."""
    (golden,) = named("g-time-0")
    bases = sorted(int(path.stem) for path in golden.directory.glob("*.log"))
    oldest = max((row for row in golden.rows if row.offset < bases[1]), key=lambda row: row.timestamp)
    assert (oldest.offset, oldest.timestamp, oldest.key) == (73, 1_700_005_000_000, b"t30")
    (told,) = json.loads((here / "up-to.json").read_text())["partitions"]
    assert (told["topic"], told["partition"], told["offset"]) == ("g-time", 0, bases[1])


def compaction_does_not_run(here: Path) -> None:
    """The newest value of each key is there, and below the cleaner's new point nothing else. Tombstones go a day after they were cleaned."""
    (golden,) = named("g-compact-0")
    newest = {row.key: row for row in golden.rows}
    path = here / "disks" / "log-dir-1" / "g-compact-0"
    sound(path)
    with Log.open(path) as log:
        left = rows(log.scan())
    kept = {row.key: row for row in left}
    assert all(kept[key] == row for key, row in newest.items() if row.value is not None or key in kept)
    assert kept.keys() <= newest.keys()
    point = checkpoint(path.parent / "cleaner-offset-checkpoint")["g-compact-0"]
    cleaned = [row.key for row in left if row.offset < point]
    assert len(cleaned) == len(set(cleaned)) < len([row for row in golden.rows if row.offset < point])


def shown_if_aborted(golden: Golden) -> tuple[Row, ...]:
    """What a `read_committed` consumer gets of `g-txn-0` once its open transaction is aborted, by the broker's frames and its own index."""
    aborted: list[tuple[int, int, int]] = []
    for index in golden.directory.glob("*.txnindex"):
        aborted += (entry[1:4] for entry in struct.iter_unpack(">hqqqq", index.read_bytes()))
    hidden: set[int] = set()
    for segment in golden.directory.glob("*.log"):
        for frame in frames(segment):
            assert frame.base_offset is not None
            is_aborted = any(frame.producer_id == producer and first <= frame.base_offset <= last for producer, first, last in aborted)
            is_of_it = frame.producer_id == PRODUCER and frame.base_offset >= golden.last_stable_offset
            if frame.is_transactional and (is_aborted or is_of_it):
                hidden.update(range(frame.base_offset, frame.last_offset + 1))
    return tuple(row for row in golden.rows if row.offset not in hidden)


def stuck_at_last_stable_offset(here: Path) -> None:
    """Behind the aborted transaction `read_committed` shows what other producers committed, and no record of this one."""
    (golden,) = named("g-txn-0")
    shown = shown_if_aborted(golden)
    assert tuple(row for row in shown if row.offset < golden.last_stable_offset) == golden.committed
    assert (len(golden.committed), len(golden.rows), len(shown)) == (170, 328, 187)
    path = here / "disks" / "log-dir-2" / "g-txn-0"
    with Log.open(path) as log:
        assert rows(log.scan(isolation_level="read_committed")) == shown
        assert log.last_stable_offset == log.log_end_offset == golden.end + 1
    sound(path)


def corrupt_index(here: Path) -> None:
    """Look-ups answer as a broker's do that has recovered the same; what was salvaged is all but the damaged batch."""
    for name in ("g-torn-bad-index-0", "g-torn-odd-index-0"):
        golden = Golden(DATA / "expected" / "kafka-4.3.0-torn", TORN / "log-dir-2" / name)
        path = here / "disk" / name
        sound(path)
        has(path, golden)
        queries = json.loads((golden.expected / "lookups.json").read_text())[name]["offsetsForTimes"]
        assert len(queries) >= 20
        with Log.open(path) as log:
            for query in queries:
                found, broker = log.offset_for_timestamp(query["query"]), query["uncommitted"]
                assert (found and (found.offset, found.timestamp)) == (broker and (broker["offset"], broker["timestamp"]))
    salvaged = here / "salvaged" / "g-torn-flip-old-0"
    sound(salvaged)
    before = Golden(DATA / "expected" / "kafka-4.3.0-torn", TORN / "log-dir-1" / "g-torn-flip-old-0").rows
    with Log.open(salvaged) as log:
        left = rows(log.scan())
    assert left[: len(before)] == before
    assert [row.offset for row in left] == [*range(36), *range(40, 96)]


def recovery_takes_hours(here: Path) -> None:
    """As a broker's own recovery left it; the recovery points are the ends."""
    points = checkpoint(here / "disk" / "recovery-point-offset-checkpoint")
    for name in ("g-codec-zstd-0", "g-prealloc-0", "g-txn-0"):
        golden = Golden(DATA / "expected" / "kafka-4.3.0-unclean", UNCLEAN / "log-dir-2" / name)
        has(here / "disk" / name, golden)
        sound(here / "disk" / name)
        assert points[name] == golden.end
    assert not (here / "disk" / ".kafka_cleanshutdown").exists()


def disk_full(here: Path) -> None:
    """What was due is gone, what was moved is whole, and a dry run changed nothing."""
    moved, tried = named("g-big-0", "g-codec-snappy-0")
    place = here / "disks" / "log-dir-1"
    has(place / moved.name, moved)
    assert files(place / tried.name) == files(tried.directory)
    for name in ("g-idem-0", "g-idem-1"):
        (golden,) = named(name)
        with Log.open(place / name) as log:
            assert (log.log_start_offset, log.log_end_offset) == (golden.end, golden.end)
        sound(place / name)


def lost_consumer_offsets(here: Path) -> None:
    """The file has the last commit of each partition, as Kafka's own tool decodes them."""
    text = (DATA / "expected" / "kafka-4.3.0-clean" / "committed-offsets.jsonl").read_text(encoding="utf-8")
    last: dict[tuple[str, int], int] = {}
    for line in map(json.loads, text.splitlines()):
        if line["key"]["group"] == "g-group-1" and line["payload"] is not None:
            last[line["key"]["topic"], line["key"]["partition"]] = line["payload"]["offset"]
    written = [line.split(",") for line in (here / "g-group-1.csv").read_text().splitlines()]
    assert {(topic, int(partition)): int(offset) for topic, partition, offset in written} == last


CLAIMS: dict[str, Claim] = {
    "compaction-does-not-run": compaction_does_not_run,
    "corrupt-index": corrupt_index,
    "disk-full": disk_full,
    "inconsistent-cluster-id": inconsistent_cluster_id,
    "lost-consumer-offsets": lost_consumer_offsets,
    "recovery-takes-hours": recovery_takes_hours,
    "retention-does-not-delete": retention_does_not_delete,
    "stray-directories": stray_directories,
    "stuck-at-last-stable-offset": stuck_at_last_stable_offset,
    "topic-empty-after-mount": topic_empty_after_mount,
}
