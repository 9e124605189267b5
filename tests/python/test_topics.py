"""Log dirs that are open for appending: topics, routing, defaults, the settings of a broker."""

from __future__ import annotations

import multiprocessing
import pickle
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiokafka.partitioner import murmur2
from hypothesis import given, strategies as st
from writing import Clock

from offsetlog import (
    BrokerSettings,
    Log,
    LogConfig,
    LogDir,
    RecordMetadata,
    TopicPartition,
    WritableLogDir,
    partition_for,
    partitions_for,
)
from offsetlog.errors import ConfigError, ForkedLogError, LogClosedError, LogDirError, LogLockedError, MetadataFileError


@given(st.binary(max_size=70), st.integers(1, 2**31 - 1))
def test_keys_go_where_another_client_sends_them(key: bytes, partitions: int) -> None:
    """Kafka's own vectors are held in Rust; here a client that was written apart from both."""
    assert partition_for(key, partitions) == (murmur2(key) & 0x7FFFFFFF) % partitions


def test_partition_for_refuses_what_is_no_key() -> None:
    """None goes anywhere, a text has to be encoded, and there is at least one partition."""
    with pytest.raises(TypeError, match="without a key"):
        partition_for(None, 3)  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(TypeError, match="encode a str"):
        partition_for("key", 3)  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(ConfigError, match="partitions"):
        partition_for(b"key", 0)
    assert partition_for(bytearray(b"user1"), 12) == 6
    assert partition_for(b"", 50) == 31


@given(keys=st.lists(st.none() | st.binary(max_size=40)), partitions=st.integers(1, 2**31 - 1))
def test_many_keys_go_where_each_goes(keys: list[bytes | None], partitions: int) -> None:
    wanted = [None if key is None else partition_for(key, partitions) for key in keys]
    assert partitions_for(keys, partitions) == partitions_for(iter(keys), partitions) == wanted
    views = [None if key is None else memoryview(key) for key in keys]
    assert partitions_for(views, partitions) == wanted


def test_many_keys_are_refused_as_each_is() -> None:
    with pytest.raises(TypeError, match="key must be bytes"):
        partitions_for([b"key", "key"], 3)  # type: ignore[list-item]  # the point of the test
    with pytest.raises(ConfigError, match="partitions"):
        partitions_for([], 0)


def test_records_by_topic(tmp_path: Path) -> None:
    """Keys by their hash, others sticky, an explicit partition above all; read again by topic."""
    with LogDir.open([tmp_path / "a", tmp_path / "b"], "a", seed=3, clock=Clock()) as log_dir:
        log_dir.create_topic("orders", 4, config={"cleanup.policy": "delete"})
        found = [log_dir.append("orders", b"v", key=f"k{n}".encode(), headers=[("h", b"1")]) for n in range(50)]
        assert all(where.partition == partition_for(f"k{n}".encode(), 4) for n, where in enumerate(found))
        assert log_dir.append("orders", None, partition=3, flush=True).partition == 3
        loose = [log_dir.append("orders", bytes(1000)).partition for _ in range(160)]
        runs = [len(run) for run in "".join(map(str, loose)).replace("0", " 0").split()]
        assert runs
        assert set(loose) == {0, 1, 2, 3}
        # 16,384 bytes are seventeen such records; the next draw may be the same partition.
        changes = [slot for slot in range(1, len(loose)) if loose[slot] != loose[slot - 1]]
        assert all(slot % 17 == 0 for slot in changes)
        ends = log_dir.end_offsets()
        assert sum(ends.values()) == 211
        assert log_dir.topics() == {"orders": [0, 1, 2, 3]}
        record = log_dir.log(*found[0].topic_partition).get(found[0].offset)
        assert record is not None
        assert (record.key, record.headers) == (b"k0", (("h", b"1"),))
        assert record.timestamp == Clock().now
    with LogDir.open([tmp_path / "a", tmp_path / "b"]) as log_dir:
        assert log_dir.end_offsets() == ends
        assert log_dir.topic_config("orders") == LogConfig(cleanup_policy="delete")


def test_round_robin_and_a_partitioner_of_the_callers(tmp_path: Path) -> None:
    """Whatever the key; and a callable that sees it all."""
    with LogDir.open(tmp_path, "a", partitioner="round_robin") as log_dir:
        log_dir.create_topic("t", 3)
        assert [log_dir.append("t", b"v", key=b"k").partition for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    seen: list[tuple[str, bytes | None, bytes | None, int]] = []

    def last(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        seen.append((topic, key, value, count))
        return count - 1

    with LogDir.open(tmp_path, "a", partitioner=last) as log_dir:
        assert log_dir.append("t", b"v", key=b"k") == RecordMetadata("t", 2, 2)
        assert seen == [("t", b"k", b"v", 3)]
    for wrong in (3, -1, True, "0", None):
        with (
            LogDir.open(tmp_path, "a", partitioner=lambda *_, wrong=wrong: wrong) as log_dir,
            pytest.raises(ConfigError, match="must give 0 to 2"),
        ):
            log_dir.append("t", b"v")
    with pytest.raises(ConfigError, match="did you mean 'round_robin'"):
        LogDir.open(tmp_path, "a", partitioner="round-robin")  # type: ignore[call-overload]  # the point of the test


def test_arguments_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    """A reader takes none of a writer's, names and numbers are looked at, and nothing is left behind."""
    with LogDir.open(tmp_path / "d", "a") as log_dir:
        log_dir.create_topic("a.b", 1)
        before = sorted(path.name for path in (tmp_path / "d").iterdir())
        for name, partitions in (("", 1), ("..", 1), ("a/b", 1), ("x" * 250, 1), ("t", 0)):
            with pytest.raises(ConfigError):
                log_dir.create_topic(name, partitions)
        for name in ("a.b", "a_b"):
            with pytest.raises(LogDirError, match=r"there already|does not allow"):
                log_dir.create_topic(name)
        with pytest.raises(ConfigError, match=r"retention\.ms"):
            log_dir.create_topic("t", config={"retention.ms": "soon"})
        with pytest.raises(ConfigError, match="topic_id"):
            log_dir.create_topic("t", topic_id="short")
        with pytest.raises(LogDirError, match='no topic "nobody"'):
            log_dir.append("nobody", b"v")
        with pytest.raises(LogDirError, match="no partition 7"):
            log_dir.append("a.b", b"v", partition=7)
        assert sorted(path.name for path in (tmp_path / "d").iterdir()) == before
    options: list[dict[str, Any]] = [{"defaults": {}}, {"seed": 1}, {"partitioner": "default"}, {"max_open_partitions": 3}]
    for option in options:
        with pytest.raises(ConfigError, match="is for appending"):
            LogDir.open(tmp_path / "d", **option)
    with LogDir.open(tmp_path / "d") as reader, pytest.raises(ConfigError, match="open it with mode 'a'"):
        reader.append("a.b", b"v")  # type: ignore[attr-defined]  # nor does it at run time
    with pytest.raises(LogClosedError):
        log_dir.topics()


def test_a_topic_has_its_id_and_defaults_are_not_stored(tmp_path: Path) -> None:
    """What a broker's settings give holds while they are given; what the topic was given is kept beside it."""
    with LogDir.open(tmp_path, "a", defaults={"segment.ms": 77, "retention.ms": 5}) as log_dir:
        topic_id = log_dir.create_topic("t", 2, config=LogConfig(retention_ms=9), topic_id="LswxTofUkfNIDaSgcjYDnA")
        assert topic_id == "LswxTofUkfNIDaSgcjYDnA"
        log = log_dir.log("t", 0)
        assert (log.topic_id, log.config.segment_ms, log.config.retention_ms) == (topic_id, 77, 9)
        log_dir.set_topic_config("t", {"segment.ms": 8})
        assert (log.config.segment_ms, log.config.retention_ms) == (8, 5)
        assert log_dir.topic_config("t") == LogConfig(segment_ms=8)
    with Log.open(tmp_path / "t-1", "a") as log:
        assert log.config == LogConfig(segment_ms=8)


def test_a_deleted_topic_waits_a_minute(tmp_path: Path) -> None:
    """Gone at once for readers; its directories, with all that lies in them, a minute later."""
    clock = Clock()
    with LogDir.open(tmp_path, "a", clock=clock) as log_dir:
        log_dir.create_topic("t", 2)
        log = log_dir.log("t", 1)
        log.append(b"v")
        (tmp_path / "t-1/offsetlog-cut").mkdir()
        (tmp_path / "t-1/offsetlog-cut/kept").touch()
        log_dir.delete_topic("t")
        assert log_dir.topics() == {}
        with pytest.raises(LogClosedError):
            log.append(b"v")
        waiting = sorted(path.name for path in tmp_path.iterdir() if path.is_dir())
        assert [name[:4] for name in waiting] == ["t-0.", "t-1."]
        assert all(name.endswith("-delete") and len(name) == 4 + 32 + 7 for name in waiting)
        clock.now += 59_999
        assert log_dir.remove_deleted() == []
        clock.now += 1
        assert len(log_dir.remove_deleted(dry_run=True)) == 2
        assert len(log_dir.remove_deleted()) == 2
        assert [path for path in tmp_path.iterdir() if path.is_dir()] == []
        with pytest.raises(LogDirError):
            log_dir.delete_topic("t")


@pytest.mark.parametrize("verb", ["remove_deleted", "maintain"])
def test_a_directory_that_cannot_be_removed_keeps_no_other(verb: str, tmp_path: Path) -> None:
    """The error names it, and its note what went; the next call tries it again."""
    clock = Clock()
    with LogDir.open(tmp_path, "a", clock=clock) as log_dir:
        for topic in "abc":
            log_dir.create_topic(topic, 1)
            log_dir.delete_topic(topic)
        gone, stuck, behind = sorted(tmp_path.glob("*-delete"))
        # Deeper than anything of a partition.
        (stuck / "/".join("n" * 12)).mkdir(parents=True)
        clock.now += 60_000
        assert log_dir.remove_deleted(dry_run=True) == [str(gone), str(stuck), str(behind)]
        notes = [f"done before that: {gone} removed, its topic was deleted; {behind} removed, its topic was deleted"]
        for expected in (notes, []):
            with pytest.raises(OSError, match="b-0") as failed:
                getattr(log_dir, verb)()
            assert getattr(failed.value, "__notes__", []) == expected
            assert sorted(tmp_path.glob("*-delete")) == [stuck]
        shutil.rmtree(stuck / "n")
        assert log_dir.remove_deleted() == [str(stuck)]


def test_a_topic_that_another_process_writes_is_not_deleted(tmp_path: Path) -> None:
    """All partitions are looked at before the first one is renamed."""
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("t", 3)
    program = "import sys; from offsetlog import Log; log = Log.open(sys.argv[1], 'a'); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "t-2")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with LogDir.open(tmp_path, "a") as log_dir:
            with pytest.raises(LogLockedError) as refused:
                log_dir.delete_topic("t")
            assert refused.value.pid == other.pid
            assert log_dir.topics() == {"t": [0, 1, 2]}
            assert log_dir.append("t", b"v", partition=0).offset == 0
        other.communicate()


def open_files(folder: Path) -> int:
    """How many files below the folder this process has open, where that can be told: other tests of the process have files of their own."""
    files = []
    for descriptor in Path("/proc/self/fd").glob("*"):
        # Another thread may close it meanwhile.
        with suppress(OSError):
            files.append(descriptor.readlink())
    return sum(file.is_relative_to(folder) for file in files)


def test_few_partitions_are_open_at_a_time(tmp_path: Path) -> None:
    """The one that was not used for longest is closed; one that somebody holds is not."""
    with LogDir.open(tmp_path, "a", max_open_partitions=4) as log_dir:
        log_dir.create_topic("t", 20)
        held = log_dir.log("t", 19)
        held.append(b"mine")
        most = 0
        for _ in range(2):
            for partition in range(20):
                log_dir.append("t", b"v", partition=partition)
                most = max(most, open_files(tmp_path))
        assert most < 60, "files of partitions that are not in use stay open"
        assert not held.closed
        assert held.append(b"mine again") == 3
        assert set(log_dir.end_offsets().values()) == {2, 4}
    with LogDir.open(tmp_path) as log_dir:
        assert set(log_dir.end_offsets().values()) == {2, 4}


@pytest.mark.slow
def test_threads_share_a_log_dir(tmp_path: Path) -> None:
    """More partitions than may be open, appended to from four threads: nothing is lost, nothing twice."""
    with LogDir.open(tmp_path, "a", max_open_partitions=3) as log_dir:
        log_dir.create_topic("t", 12)
        failures: list[BaseException] = []

        def work(worker: int) -> None:
            try:
                for number in range(25):
                    log_dir.append("t", f"{worker} {number}".encode(), partition=(worker * 5 + number) % 12)
            except BaseException as error:  # noqa: BLE001  # told by the main thread
                failures.append(error)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        assert not failures
    with LogDir.open(tmp_path) as reader:
        values = Counter(record.value for record in reader.scan())
    assert values == Counter(f"{worker} {number}".encode() for worker in range(4) for number in range(25))


def _append_in_a_child(log_dir: WritableLogDir, answer: multiprocessing.connection.Connection) -> None:
    try:
        log_dir.append("t", b"child")
    except ForkedLogError as error:
        answer.send(str(error))
    else:
        answer.send("appended")


def test_a_child_cannot_write_through_its_parents(tmp_path: Path) -> None:
    """It is told so, and the parent goes on."""
    context = multiprocessing.get_context("fork")
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("t")
        log_dir.append("t", b"parent")
        ours, theirs = context.Pipe()
        child = context.Process(target=_append_in_a_child, args=(log_dir, theirs))
        child.start()
        assert "open it there with mode 'r'" in ours.recv()
        child.join(300)
        assert log_dir.append("t", b"parent").offset == 1
        with pytest.raises(TypeError, match="does not pickle"):
            pickle.dumps(log_dir)


def _create_in_a_child(folder: Path, name: str) -> None:
    with LogDir.open(folder, "a") as log_dir:
        log_dir.create_topic(name)


def test_topics_that_forked_children_make_have_ids_of_their_own(tmp_path: Path) -> None:
    """A fork copies what random numbers come from."""
    context = multiprocessing.get_context("fork")
    # The parent has drawn an id already.
    _create_in_a_child(tmp_path, "parents")
    names = [f"of-child-{number}" for number in range(3)]
    for name in names:
        child = context.Process(target=_create_in_a_child, args=(tmp_path, name))
        child.start()
        child.join(300)
        assert child.exitcode == 0
    with LogDir.open(tmp_path) as log_dir:
        ids = [log_dir.log(name, 0).topic_id for name in ("parents", *names)]
    assert None not in ids
    assert len(set(ids)) == len(ids)


def test_one_log_dir_for_several_processes_of_ours(tmp_path: Path) -> None:
    """The lock on the log dir is shared; that on a partition is not."""
    with LogDir.open(tmp_path, "a") as one, LogDir.open(tmp_path, "a") as other:
        one.create_topic("t", 2)
        one.append("t", b"v", partition=0)
        with pytest.raises(LogDirError):
            other.append("t", b"v", partition=1)  # listed before it was made
    with LogDir.open(tmp_path, "a") as one, LogDir.open(tmp_path, "a") as other:
        one.append("t", b"v", partition=0)
        with pytest.raises(LogLockedError):
            other.append("t", b"v", partition=0)
        assert other.append("t", b"v", partition=1).offset == 0
    with LogDir.open(tmp_path) as log_dir:
        assert log_dir.end_offsets() == {TopicPartition("t", 0): 2, TopicPartition("t", 1): 1}


def test_broker_settings(tmp_path: Path) -> None:
    """A ``server.properties`` as brokers have it; what it says holds for topics that say nothing."""
    path = tmp_path / "server.properties"
    path.write_text("# a broker\nnode.id=1\nlog.dirs = /one, /two\nlog.retention.hours=48\nlog.roll.ms=9\nlog.segment.bytes=2097152\n")
    settings = BrokerSettings.read(path)
    assert settings.log_dirs == ("/one", "/two")
    assert settings.topic_defaults == LogConfig(retention_ms=172_800_000, segment_ms=9, segment_bytes=2_097_152)
    with LogDir.open(tmp_path / "d", "a", defaults=settings.topic_defaults) as log_dir:
        log_dir.create_topic("t", config={"segment.ms": 5})
        config = log_dir.log("t", 0).config
        assert (config.segment_ms, config.retention_ms) == (5, 172_800_000)
    path.write_text("log.retention.ms=0\n")
    with pytest.raises(ConfigError, match=r"log.retention.ms: .*-1, or 1 or more"):
        BrokerSettings.read(path)
    path.write_text("log.dirs=\\u12\n")
    with pytest.raises(MetadataFileError):
        BrokerSettings.read(path)
    with pytest.raises(FileNotFoundError):
        BrokerSettings.read(tmp_path / "nothing")


def test_every_partition_is_maintained(tmp_path: Path) -> None:
    """Retention here, compaction there, a deleted topic; what was never used is not even opened."""
    clock = Clock()
    settings = {"internal.segment.bytes": 200, "segment.index.bytes": 1000}
    with LogDir.open(tmp_path, "a", clock=clock, max_open_partitions=2) as log_dir:
        log_dir.create_topic("aged", 2, config={**settings, "retention.ms": 1000})
        log_dir.create_topic("keyed", 1, config={**settings, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})
        log_dir.create_topic("kept", 1, config=settings)
        log_dir.create_topic("unused", 3)
        log_dir.create_topic("gone", 1)
        for number in range(12):
            log_dir.append("aged", bytes(100), partition=number % 2)
            log_dir.append("keyed", bytes(100), key=b"k%d" % (number % 2))
            log_dir.append("kept", bytes(100))
        log_dir.append("gone", b"v")
        log_dir.delete_topic("gone")
        nothing = log_dir.maintain()
        assert [*nothing.partitions] == [TopicPartition("keyed", 0)]
        assert (nothing.looked_at, nothing.failed, nothing.busy, nothing.removed) == (4, {}, (), ())
        clock.now += 1001
        dry = log_dir.maintain(dry_run=True, only=["retention"])
        assert dry.dry_run
        assert [*dry.partitions] == [TopicPartition("aged", 0), TopicPartition("aged", 1)]
        assert log_dir.beginning_offsets([("aged", 0)]) == {TopicPartition("aged", 0): 0}
        clock.now += 60_000
        report = log_dir.maintain()
        assert {key.topic for key in report.partitions} == {"aged"}
        assert all(kept.log_start_offset == 6 for kept in report.partitions.values())
        assert len(report.removed) == 1
        assert not any((tmp_path / f"unused-{number}").joinpath(f"{0:020}.log").exists() for number in range(3))
    with LogDir.open(tmp_path) as log_dir:
        last = {record.key: record.offset for record in log_dir.scan([("keyed", 0)])}
        assert last == {b"k0": 10, b"k1": 11}
        assert log_dir.end_offsets()[TopicPartition("kept", 0)] == 12


def test_upkeep_of_some_topics_leaves_what_was_deleted_of_others(tmp_path: Path) -> None:
    """A directory whose name was cut when it was renamed may be of any topic that begins so."""
    clock = Clock()
    long = "t" * 249
    with LogDir.open(tmp_path, "a", clock=clock) as log_dir:
        for name in ("one", "one-0", "other", long):
            log_dir.create_topic(name)
            log_dir.delete_topic(name)
        log_dir.create_topic("one")
        clock.now += 60_000

        def removed(topics: str | list[str] | None, *, dry_run: bool) -> list[str]:
            report = log_dir.maintain(topics=topics, dry_run=dry_run)
            return sorted(Path(path).name.split(".")[0] for path in report.removed)

        for topics, names in (("one", ["one-0"]), ([long, "one-0"], ["one-0-0"])):
            assert removed(topics, dry_run=True) == names
            assert removed(topics, dry_run=False) == names
        cut = "t" * (255 - len("-0.-delete") - 32) + "-0"
        assert removed(None, dry_run=True) == ["other-0", cut]
        assert removed(None, dry_run=False) == ["other-0", cut]


def test_upkeep_of_a_topic_that_is_not_here_tells_so(tmp_path: Path) -> None:
    """A name with a typing error is not «nothing to do»."""
    with LogDir.open(tmp_path, "a") as log_dir:
        for name in ("orders", "gone"):
            log_dir.create_topic(name)
        log_dir.delete_topic("gone")
        for dry_run in (True, False):
            for topics in ("ordrs", ["ordrs"], ["ordrs", "pay"]):
                with pytest.raises(LogDirError, match="there is no topic"):
                    log_dir.maintain(topics=topics, dry_run=dry_run)
            assert not log_dir.maintain(topics=["gone"], dry_run=dry_run).failed
            report = log_dir.maintain(topics=["ordrs", "orders", "gone"], dry_run=dry_run)
            assert list(report.failed) == [TopicPartition("ordrs", 0)]
            assert 'there is no topic "ordrs"' in report.failed[TopicPartition("ordrs", 0)]
    for words in (["-t", "ordrs"], ["-t", "ordrs", "--dry-run"], ["-t", "ordrs", "-t", "orders"]):
        command = [sys.executable, "-m", "offsetlog", "maintain", str(tmp_path), *words]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 2
        assert 'there is no topic "ordrs"' in ran.stderr


def test_upkeep_as_of_another_time_removes_the_deleted_topics_of_then(tmp_path: Path) -> None:
    clock = Clock()
    with LogDir.open(tmp_path, "a", clock=clock) as log_dir:
        log_dir.create_topic("t")
        log_dir.delete_topic("t")
        due = clock.now + 60_000
        for clock.now, now, count in ((due, due - 1, 0), (due - 1, None, 0), (due - 1, due, 1)):
            for dry_run in (True, False):
                assert len(log_dir.maintain(now=now, dry_run=dry_run).removed) == count
        assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_upkeep_names_what_it_cannot_do(tmp_path: Path) -> None:
    """A partition that another process writes is left to it; one that is damaged is told of, and the rest is done."""
    clock = Clock()
    config = {"internal.segment.bytes": 200, "segment.index.bytes": 1000, "retention.ms": 1000}
    with LogDir.open(tmp_path, "a", clock=clock) as log_dir:
        log_dir.create_topic("t", 3, config=config)
        for number in range(30):
            log_dir.append("t", bytes(100), partition=number % 3)
    (tmp_path / "t-1" / f"{3:020}.log.swap").mkdir()
    with LogDir.open(tmp_path, "a", clock=clock) as log_dir, Log.open(tmp_path / "t-2", "a"):
        clock.now += 2000
        report = log_dir.maintain()
    assert [*report.partitions] == [TopicPartition("t", 0)]
    assert report.busy == (TopicPartition("t", 2),)
    assert [*report.failed] == [TopicPartition("t", 1)]


def test_upkeep_in_the_background(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """While the log dir is open, and not longer; what it did is in the log."""
    caplog.set_level("INFO", "offsetlog")
    clock = Clock()
    config = {"internal.segment.bytes": 200, "segment.index.bytes": 1000, "retention.ms": 1000}
    with LogDir.open(tmp_path, "a", clock=clock, maintain_every=timedelta(milliseconds=20)) as log_dir:
        log_dir.create_topic("t", config=config)
        for _ in range(5):
            log_dir.append("t", bytes(100))
        clock.now += 2000
        until = time.monotonic() + 300
        while log_dir.beginning_offsets() != {TopicPartition("t", 0): 5}:
            assert time.monotonic() < until, "nothing was done"
            time.sleep(0.01)
        assert [thread.name for thread in threading.enumerate()].count("offsetlog-maintain") == 1
    assert "offsetlog-maintain" not in [thread.name for thread in threading.enumerate()]
    assert any("t-0: " in message and "segments removed" in message for message in caplog.messages)
    # Nobody has it any more.
    forgotten = LogDir.open(tmp_path, "a", maintain_every=0.01)
    del forgotten
    until = time.monotonic() + 300
    while "offsetlog-maintain" in [thread.name for thread in threading.enumerate()]:
        assert time.monotonic() < until
        time.sleep(0.01)
    for wrong in (0, -1, float("inf")):
        with pytest.raises(ConfigError, match="maintain_every"):
            LogDir.open(tmp_path, "a", maintain_every=wrong)
    with pytest.raises(TypeError, match="seconds or a timedelta"):
        LogDir.open(tmp_path, "a", maintain_every="5m")  # type: ignore[call-overload]  # the point of the test


def test_two_programs_make_one_topic_once(tmp_path: Path) -> None:
    """Neither writes over what the other one made, also where it had not looked since."""
    with LogDir.open(tmp_path, "a") as one, LogDir.open(tmp_path, "a") as other:
        topic_id = one.create_topic("orders", 2)
        for partitions in (1, 2, 3):
            with pytest.raises(LogDirError, match="made by another program"):
                other.create_topic("orders", partitions)
        assert one.append("orders", b"one", partition=1).offset == 0
        assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["orders-0", "orders-1"]
    with Log.open(tmp_path / "orders-1") as log:
        assert log.topic_id == topic_id


def test_a_new_topic_has_nothing_of_an_older_one(tmp_path: Path) -> None:
    """Somebody removed the directories by hand; the lines in the checkpoints stayed."""
    (tmp_path / ".lock").touch()
    for name in ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint", "cleaner-offset-checkpoint"):
        (tmp_path / name).write_text("0\n2\norders 1 5\nother 0 7\n")
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("orders", 2)
        for name in ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint", "cleaner-offset-checkpoint"):
            assert (tmp_path / name).read_text() == "0\n1\nother 0 7\n"
        assert log_dir.append("orders", b"one", partition=1).offset == 0
        assert [record.value for record in log_dir.log("orders", 1).scan()] == [b"one"]
