"""Asks a log dir of 400 partitions everything, in a process with few descriptors: ``python few_descriptors.py FOLDER MODE``.

Prints the questions that went through as lines; the first that did not ends the process with its error.
"""

from __future__ import annotations

import errno
import pickle
import resource
import shutil
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from offsetlog import LogDir, TopicPartition, restore, verify

if TYPE_CHECKING:
    from offsetlog import WritableLogDir

PARTITIONS, COORDINATORS, OPEN_MAX = 340, 30, 10
TOPICS = {"many": PARTITIONS, "__consumer_offsets": COORDINATORS, "__transaction_state": COORDINATORS}
ALL = sum(TOPICS.values())
# Each log holds up to seven files. Of all partitions even one file each is too many; so is all that 23 of them hold.
DESCRIPTORS = 160
PRODUCER = 7
NOW = 1_700_000_000_000
LONG, SEGMENTS = 4, 60
"""Of each replica of these partitions two segments in three are closed, if not all 60 are to be open."""


def made(folder: Path) -> None:
    """The log dir: two segments in each partition, half of them with a transaction that never ended."""
    with LogDir.open(folder, "a", max_open_partitions=OPEN_MAX, internal_topics=list(TOPICS), clock=lambda: NOW) as log_dir:
        for topic, count in TOPICS.items():
            log_dir.create_topic(topic, count)
        for number in range(PARTITIONS):
            log_dir.append("many", b"first", partition=number, timestamp=NOW)
            log = log_dir.log("many", number)
            log.roll()
            if number % 2:
                log.append_records([b"open"], producer_id=PRODUCER, producer_epoch=0, base_sequence=0, transactional=True)
            else:
                log.append(b"second", timestamp=NOW)


def made_replicas(folder: Path) -> None:
    """Two log dirs with a replica of each partition. In turn one of them has lost the last segment, and the other one not."""
    made(folder / "one")
    with LogDir.open(folder / "one", "a", internal_topics=list(TOPICS), clock=lambda: NOW) as log_dir:
        for topic in ("__consumer_offsets", "__transaction_state"):
            for number in range(COORDINATORS):
                log_dir.append(topic, b"of another version", key=b"\0\x7f", partition=number, timestamp=NOW)
        log_dir.create_topic("long", LONG)
        for number in range(LONG):
            log = log_dir.log("long", number)
            for _ in range(SEGMENTS):
                log.append(b"one", timestamp=NOW)
                log.roll()
    shutil.copytree(folder / "one", folder / "two")
    for topic, number in replicated():
        directory = folder / ("two" if best_of(number) == "one" else "one") / f"{topic}-{number}"
        # That of a roll has no record yet.
        last = max(log for log in directory.glob("*.log") if log.stat().st_size)
        for file in directory.glob("*"):
            if file.name[:20].isdigit() and file.name[:20] >= last.stem:
                file.unlink()


def replicated() -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic, count in (("many", PARTITIONS), ("long", LONG)) for number in range(count)]


def best_of(number: int) -> str:
    """The log dir whose replica of a partition has all there is: not always the first, and for both kinds of partitions."""
    return ("one", "two")[number // 2 % 2]


def restored(folder: Path, into: Path, *, dry_run: bool, new_cluster: bool, states: Collection[str] = ()) -> None:
    """Each partition from its best replica, and none refused."""
    report = restore(
        [folder / "one", folder / "two"], into, topics=[*TOPICS, "long"], new_cluster=new_cluster, dry_run=dry_run, keep_retention=True
    )
    same({each.state for each in report.partitions}, set(states) or {"planned" if dry_run else "restored"})
    ends = {key: 2 if key.topic == "many" else SEGMENTS for key in replicated()}
    chosen = {TopicPartition(each.topic, each.partition): each for each in report.partitions if not each.topic.startswith("__")}
    same({key: Path(each.source).parent.name for key, each in chosen.items()}, {key: best_of(key.partition) for key in ends})
    same({key: each.log_end_offset for key, each in chosen.items()}, ends)
    same([warning for warning in report.warnings if "left out" in warning or "cannot" in warning], [])
    if not dry_run:
        with LogDir.open(into) as log_dir:
            same(log_dir.end_offsets(list(ends)), ends)


def partitions_in(log_dir: Path) -> list[str]:
    names = [path.name for path in log_dir.iterdir()]
    return [name for name in names if name.rpartition("-")[0] in {*TOPICS, "long"}]


def ended_by_too_few(folder: Path, into: Path, partitions: int) -> None:
    """A restore that can open no more files once it has made so many partitions."""
    into.mkdir()

    def watch() -> None:
        while len(partitions_in(into)) < partitions:
            time.sleep(0.001)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, DESCRIPTORS))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        restore([folder / "one", folder / "two"], into, topics=[*TOPICS, "long"], keep_retention=True)
    except OSError as error:
        same(error.errno, errno.EMFILE)
    else:
        same("no error", "EMFILE")
    finally:
        watcher.join()
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


def same(found: object, expected: object) -> None:
    if found != expected:
        message = f"{found!r} in place of {expected!r}"
        raise AssertionError(message[:500])


def reads(log_dir: LogDir, folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """What both modes answer."""
    many = [TopicPartition("many", number) for number in range(PARTITIONS)]
    every = log_dir.partitions()
    records = 2 * PARTITIONS
    scan = log_dir.scan(many)
    yield "topics", lambda: same({topic: len(numbers) for topic, numbers in log_dir.topics().items()}, TOPICS)
    yield "end_offsets", lambda: same(log_dir.end_offsets(), {key: 2 * (key.topic == "many") for key in every})
    yield (
        "end_offsets of committed records",
        lambda: same(sum(log_dir.end_offsets(many, isolation_level="read_committed").values()), records - PARTITIONS // 2),
    )
    yield "beginning_offsets", lambda: same(log_dir.beginning_offsets(), dict.fromkeys(every, 0))
    yield "offsets_for_times", lambda: same(len(log_dir.offsets_for_times(dict.fromkeys(every, 0))), ALL)
    yield "iteration", lambda: same(sum(1 for _ in log_dir.scan()), records)
    yield "count", lambda: same(scan.count(), records)
    yield "to_arrow", lambda: same(scan.to_arrow().num_rows, records)
    yield "to_arrow in threads", lambda: same(log_dir.scan(many, threads=4).to_arrow().num_rows, records)
    yield (
        "a scan of committed records",
        lambda: same(log_dir.scan(many, isolation_level="read_committed").count(), records - PARTITIONS // 2),
    )
    yield "a scan that skips damage", lambda: same(log_dir.scan(on_corrupt="skip").count(), records)
    yield "explain", lambda: same(len(scan.explain().splitlines()) > 1, True)
    yield "repr", lambda: same(bool(repr(log_dir)) and bool(repr(scan)), True)
    yield "html", lambda: same("many" in log_dir._repr_html_(), True)
    yield "groups", lambda: same(log_dir.groups(), [])
    yield "groups_prometheus", lambda: same(isinstance(log_dir.groups_prometheus(now=NOW), str), True)
    yield "groups_reset_csv", lambda: same(bool(log_dir.groups_reset_csv()), True)
    yield "transactions", lambda: same(log_dir.transactions(), [])
    yield "producers", lambda: same(len(log_dir.producers()), PARTITIONS // 2)
    yield "why", lambda: same(len(log_dir.why(now=NOW)) >= PARTITIONS, True)
    yield "metadata", lambda: same(log_dir.metadata(), None)
    yield "strays", lambda: same(log_dir.strays(), None)
    yield "topic_config", lambda: same([log_dir.topic_config(topic).to_dict() for topic in TOPICS], [{}] * len(TOPICS))
    yield "topic_settings", lambda: same([bool(log_dir.topic_settings(topic).settings) for topic in TOPICS], [True] * len(TOPICS))
    yield "refresh", log_dir.refresh
    yield "one log after the other", lambda: same(sum(log_dir.log(*key).log_end_offset for key in many), records)
    yield "verify", lambda: same([each for each in verify(folder).findings if each.severity == "error"], [])


def changes(log_dir: WritableLogDir) -> Iterator[tuple[str, Callable[[], object]]]:
    """What only a log dir that is open for appending does."""
    yield (
        "append",
        lambda: same({log_dir.append("many", b"third", partition=number).offset for number in range(PARTITIONS)}, {2}),
    )
    yield "flush", log_dir.flush
    yield "a dry run of maintain", lambda: same(log_dir.maintain(dry_run=True).failed, {})
    yield "maintain", lambda: same(log_dir.maintain().failed, {})
    yield "set_topic_config", lambda: log_dir.set_topic_config("many", {"retention.ms": 1, "file.delete.delay.ms": 0})
    yield "a dry run of retention", lambda: same(log_dir.maintain(now=NOW + 10**9, dry_run=True).failed, {})
    yield "retention", lambda: same(len(log_dir.maintain(now=NOW + 10**9).partitions), PARTITIONS)
    # A deletion holds the locks of a whole topic: of all 340 partitions there are not as many.
    yield "create_topic", lambda: log_dir.create_topic("more", 60)
    yield "delete_topic", lambda: log_dir.delete_topic("more")
    yield "remove_deleted", lambda: same(isinstance(log_dir.remove_deleted(), list), True)
    yield "close", log_dir.close


def main() -> None:
    folder, mode = Path(sys.argv[1]), sys.argv[2]
    if mode == "make":
        made(folder)
        return
    if mode == "make replicas":
        made_replicas(folder)
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    if mode == "restore":
        for place in ("folder", "cluster"):
            for dry_run in (True, False):
                restored(folder, folder / place, dry_run=dry_run, new_cluster=place == "cluster")
                print(f"restore into a {place}, dry run: {dry_run}")
        return
    if mode == "restore again":
        for partitions in (0, 1, 40, 300):
            into = folder / f"after-{partitions}"
            ended_by_too_few(folder, into, partitions)
            some = len(partitions_in(into))
            same((partitions <= some < ALL + LONG, some), (True, some))
            restored(folder, into, dry_run=False, new_cluster=False, states=("there", "restored") if some else ("restored",))
            restored(folder, into, dry_run=False, new_cluster=False, states=("there",))
            print(f"restored again after {some} partitions")
        return
    if mode == "r":
        with LogDir.open(folder) as log_dir:
            for name, question in reads(log_dir, folder):
                question()
                print(name)
            scan = log_dir.scan()
        # As any scan of a log dir that was opened for reading.
        same(scan.count(), 2 * PARTITIONS)
        print("a scan of a log dir that is closed")
        copied = pickle.loads(pickle.dumps(scan))
        same(sum(1 for _ in copied), 2 * PARTITIONS)
        print("a scan that was pickled")
        return
    with LogDir.open(folder, "a", max_open_partitions=OPEN_MAX, internal_topics=list(TOPICS), clock=lambda: NOW) as writable:
        for questions in (reads(writable, folder), changes(writable)):
            for name, question in questions:
                question()
                print(name)


if __name__ == "__main__":
    main()
