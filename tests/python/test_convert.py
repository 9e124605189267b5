"""``convert``: directories of brokers of any age become current ones, and say the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from golden import OLD_PARTITIONS, PARTITIONS, Golden, Row, named, rows
from old_layout import gzipped, message, partition, snappied
from writing import environment, filled, times, tree

from offsetlog import (
    ConfigError,
    ConvertReport,
    CorruptBatchError,
    DecompressionLimitError,
    Log,
    LogConfig,
    LogDir,
    LogDirError,
    LogLockedError,
    OffsetLogError,
    RecordBatchTooLargeError,
    convert,
)
from offsetlog._append_arguments import Compression

CODECS: tuple[Compression, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
MESSAGES = [b"one", b"", b"\x00\xff" * 40_000, b"four"]


def as_current(seen: Row, epoch: int) -> Row:
    """What a record of an old message is in a batch of magic 2: somebody set its time, if only to none, and a leader wrote it."""
    return seen._replace(
        timestamp_type=max(0, seen.timestamp_type), leader_epoch=seen.leader_epoch if seen.leader_epoch >= 0 else epoch
    )


def check(golden: Golden, path: Path) -> None:
    """The converted directory says what a consumer of the broker saw."""
    with Log.open(path) as log:
        found = rows(log.scan())
        expected = [as_current(seen, log.get(seen.offset).leader_epoch if seen.leader_epoch < 0 else 0) for seen in golden.rows]  # type: ignore[union-attr]
        assert list(found) == expected
        assert {batch.magic for batch in log.batches()} <= {2}
        assert [seen.offset for seen in log.scan(isolation_level="read_committed")] == [seen.offset for seen in golden.committed]
        assert (log.log_start_offset, log.log_end_offset, log.last_stable_offset) == (
            golden.start,
            golden.end,
            golden.last_stable_offset,
        )


@pytest.mark.parametrize("golden", PARTITIONS, ids=lambda golden: golden.id)
def test_converted_logs_say_what_the_consumer_saw(golden: Golden, tmp_path: Path) -> None:
    """Every partition of the brokers, each batch in its codec and all in another one; the old directory is untouched."""
    old = golden.copy(tmp_path / "old")
    before = tree(old), times(old)
    # One codec each, all of them over all partitions.
    codec = CODECS[PARTITIONS.index(golden) % len(CODECS)]
    with Log.open(old) as log:
        codecs = {batch.base_offset: batch.codec for batch in log.batches() if batch.magic == 2}
        topic_id = log.topic_id
    for compression in (None, codec):
        report = convert(old, tmp_path / f"new-{compression}" / golden.name, compression=compression)
        assert (report.records, report.dropped_bytes) == (golden.counts[0], 0)
        assert (report.log_start_offset, report.log_end_offset) == (golden.start, golden.end)
        check(golden, Path(report.path))
        with Log.open(report.path) as log:
            assert log.topic_id == topic_id
            batches = list(log.batches())
        assert sum(batch.size_bytes for batch in batches) == report.bytes_written
        assert len(batches) == report.batches
        if compression is None:
            assert all(batch.codec == codecs[batch.base_offset] for batch in batches if batch.base_offset in codecs)
        else:
            assert {batch.codec for batch in batches if batch.record_count and not batch.is_control} <= {compression}
        with Log.open(report.path, "a") as log:
            # Closed as a writer closes: nothing is left to be mended.
            assert log.recovery_report.clean
            assert not log.recovery_report.rebuilt
    assert (tree(old), times(old)) == before


@pytest.mark.parametrize(
    "golden", [golden for golden in OLD_PARTITIONS if golden.topic.startswith("o-v1")], ids=lambda golden: golden.id
)
def test_times_are_found_as_by_the_broker(golden: Golden, tmp_path: Path) -> None:
    """Messages of magic 1 have timestamps: look-ups in the converted log give the broker's answers."""
    report = convert(golden.copy(tmp_path / "old"), tmp_path / golden.name)
    with Log.open(report.path) as log:
        for query in golden.time_queries:
            found = log.offset_for_timestamp(query.when, isolation_level=query.isolation_level)
            assert (found and found[:2]) == (query.answer and query.answer[:2]), query


def test_the_layout_of_0_7_gets_offsets(tmp_path: Path) -> None:
    """Plain messages of both magics, gzip and snappy sets, sets within sets, over two files that begin late."""
    inner = b"".join(message(payload, magic=slot % 2) for slot, payload in enumerate(MESSAGES))
    first = inner + gzipped(inner) + snappied(inner)
    second = snappied(inner + gzipped(inner)) + inner + message(b"")
    unfinished = message(b"never written whole")[:-4]
    old = partition(tmp_path / "old/clicks-7", [first, second + unfinished], start=123_456)
    before = tree(old), times(old)
    expected = MESSAGES * 6 + [b""]
    for compression in (None, *CODECS):
        report = convert(old, tmp_path / f"{compression}/clicks-7", compression=compression)
        size = len(first + second)
        assert report._replace(batches=0, bytes_written=0, path="") == ConvertReport(
            path="",
            records=len(expected),
            batches=0,
            batches_kept=0,
            bytes_read=size,
            bytes_written=0,
            dropped_bytes=len(unfinished),
            dropped_reason="0.7 message cut short: 29 bytes needed, 25 available",
            log_start_offset=0,
            log_end_offset=len(expected),
        )
        with Log.open(report.path) as log:
            found = rows(log.scan())
            codecs = {batch.codec for batch in log.batches()}
        assert found == tuple(Row(slot, -1, 0, 0, None, value, ()) for slot, value in enumerate(expected))
        assert codecs == ({"none", "gzip", "snappy"} if compression is None else {compression})
    assert (tree(old), times(old)) == before


def test_a_partition_of_0_7_is_no_empty_log(tmp_path: Path) -> None:
    """Opened as a log of today it is refused in both modes, and nothing is made; beside today's files it is told."""
    old = partition(tmp_path / "clicks-7", [message(b"one")])
    before = tree(old)
    with pytest.raises(LogDirError, match="offsetlog convert"):
        Log.open(old)
    with pytest.raises(LogDirError, match="offsetlog convert"):
        Log.open(old, "a")
    assert tree(old) == before
    with Log.open(filled(tmp_path / "t-0"), "a") as log:
        (Path(log.path) / f"{0:020}.kafka").write_bytes(message(b"one"))
    with Log.open(log.path) as reader:
        assert reader.log_end_offset > 0
    with pytest.raises(LogDirError, match=r"both \.log and \.kafka files found"):
        convert(log.path, tmp_path / "new-0")


@pytest.mark.parametrize("at", ["first file", "middle of the last file"])
def test_damage_in_0_7_is_named_and_nothing_is_made(tmp_path: Path, at: str) -> None:
    """A bad checksum; a broker of 0.7 would have cut there or read nonsense."""
    files = [message(b"one") + message(b"two"), message(b"three") + message(b"four")]
    slot, position = (0, len(message(b"one"))) if at == "first file" else (1, 0)
    damaged = bytearray(files[slot])
    damaged[position + 10] ^= 1
    files[slot] = bytes(damaged)
    old = partition(tmp_path / "clicks-7", files)
    with pytest.raises(CorruptBatchError) as caught:
        convert(old, tmp_path / "new/clicks-7")
    start = slot * len(files[0])
    assert (caught.value.path, caught.value.position) == (str(old / f"{start:020}.kafka"), position)
    assert caught.value.offset == start + position
    assert list((tmp_path / "new").iterdir()) == []


def test_files_of_0_7_must_follow_each_other(tmp_path: Path) -> None:
    """A hole between two files is no log; Kafka 0.7 did not start with one."""
    old = partition(tmp_path / "clicks-7", [message(b"one")])
    (old / f"{100:020}.kafka").write_bytes(message(b"two"))
    with pytest.raises(LogDirError, match="begins at position 100 of the partition, 13 expected"):
        convert(old, tmp_path / "new-0")


def test_limits_hold(tmp_path: Path) -> None:
    """A set that unpacks to more than is allowed."""
    old = partition(tmp_path / "clicks-7", [gzipped(message(bytes(100_000)))])
    with pytest.raises(DecompressionLimitError):
        convert(old, tmp_path / "new-0", max_decompressed_bytes=99_999)
    assert convert(old, tmp_path / "new-0").records == 1


def test_settings_are_copied_or_given(tmp_path: Path) -> None:
    """Segments are as long as the settings of the new log say."""
    old = filled(tmp_path / "old/t-0", 40)
    with Log.open(old, "a", config={"retention.ms": 5}):
        pass
    with Log.open(convert(old, tmp_path / "copied/t-0").path, "a") as log:
        assert log.config == LogConfig.from_dict({"retention.ms": 5})
        size = log.size_bytes
    given = {"internal.segment.bytes": size // 2, "compression.gzip.level": 9}
    with Log.open(convert(old, tmp_path / "given/t-0", compression="none", config=given).path, "a") as log:
        assert log.config == LogConfig.from_dict(given)
        assert len(log.segments) > 1
        assert all(segment.size_bytes <= size // 2 for segment in log.segments)
    with pytest.raises(RecordBatchTooLargeError):
        convert(old, tmp_path / "small/t-0", config={"internal.segment.bytes": 20})
    assert list((tmp_path / "small").iterdir()) == []


def test_progress_is_told_and_can_end_the_work(tmp_path: Path) -> None:
    """The bytes that are done grow to all bytes; what a callback raises comes out, and nothing is left."""
    (golden,) = named("g-big-0")
    told: list[tuple[int, int]] = []
    report = convert(golden.directory, tmp_path / golden.name, progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert told[-1] == (report.bytes_read, report.bytes_read)

    def stop(done: int, total: int) -> None:
        raise ZeroDivisionError(done, total)

    with pytest.raises(ZeroDivisionError):
        convert(golden.directory, tmp_path / "stopped" / golden.name, progress=stop)
    assert list((tmp_path / "stopped").iterdir()) == []


def test_arguments_are_checked(tmp_path: Path) -> None:
    """What makes no sense is refused before anything is made."""
    old = filled(tmp_path / "old/t-0")
    new = tmp_path / "new/t-0"
    with pytest.raises(ConfigError, match="compression"):
        convert(old, new, compression="brotli")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="segmnt"):
        convert(old, new, config={"segmnt.bytes": 1})
    with pytest.raises(TypeError, match="config must be a LogConfig or a mapping"):
        convert(old, new, config=["x"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="progress must be callable"):
        convert(old, new, progress=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="path must be"):
        convert(b"old", new)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        convert(tmp_path / "none-0", new)
    with pytest.raises(LogDirError, match="is not empty"):
        convert(old, filled(tmp_path / "full/t-0"))
    with pytest.raises(LogDirError, match="is not topic-partition"):
        convert(old, tmp_path / "new/t")
    assert not (tmp_path / "new").exists()


def damaged(old: Path, choose: random.Random) -> None:
    """Flips bits, changes bytes and cuts ends of segments, often in a header."""
    logs = [path for path in sorted(old.glob("*.log")) if path.stat().st_size]
    for _ in range(choose.randrange(1, 4) if logs else 0):
        path = choose.choice(logs)
        content = bytearray(path.read_bytes())
        if not content:
            continue
        at = choose.randrange(min(len(content), choose.choice((80, len(content)))))
        match choose.randrange(5):
            case 0:
                del content[at:]
            case 1:
                content[at] = choose.randrange(256)
            case _:
                content[at] ^= 1 << choose.randrange(8)
        path.write_bytes(content)


def test_damage_ends_in_an_error_that_names_the_old_file(tmp_path: Path) -> None:
    """Whatever is wrong with the old directory: an error with its path and nothing made, or a log that holds what the report says."""
    seed = os.environ.get("OFFSETLOG_SEED") or str(random.SystemRandom().randrange(10**9))
    print(f"OFFSETLOG_SEED={seed}")
    choose = random.Random(seed)
    done = 0
    places = []
    for turn in range(60):
        golden = choose.choice(PARTITIONS)
        old = golden.copy(tmp_path / f"old-{turn}", checkpoints=choose.random() < 0.5)
        damaged(old, choose)
        folder = tmp_path / f"new-{turn}"
        try:
            report = convert(old, folder / golden.name, compression=choose.choice((None, *CODECS)))
        except OffsetLogError as error:
            places.append((old, str(error.path)))
            assert not folder.exists() or list(folder.iterdir()) == []
            continue
        with Log.open(report.path) as log:
            assert sum(1 for _ in log.scan()) == report.records
        done += 1
    assert len(places) > 20
    assert all(path.startswith(str(old)) for old, path in places)
    assert done > 0


KILLED = """
import os, sys
from offsetlog import convert
def progress(done, total):
    os.kill(os.getpid(), int(sys.argv[3]))
convert(sys.argv[1], sys.argv[2], progress=progress)
"""


def killed(old: Path, new: Path, number: int) -> int:
    """Converts in a process that sends itself a signal in the middle."""
    command = [sys.executable, "-c", KILLED, str(old), str(new), str(number)]
    return subprocess.run(command, env=environment(), stderr=subprocess.DEVNULL, check=False).returncode


def test_a_killed_conversion_leaves_what_counts_as_deleted(tmp_path: Path) -> None:
    """In a log dir, where any other folder would keep a broker from starting; and the next conversion goes its way."""
    (golden,) = named("g-big-0")
    log_dir = tmp_path / "data"
    log_dir.mkdir()
    (log_dir / "meta.properties").write_text("version=1\n")
    new = log_dir / golden.name
    assert killed(golden.directory, new, signal.SIGKILL) == -signal.SIGKILL
    left = [path.name for path in log_dir.iterdir() if path.is_dir()]
    assert len(left) == 1
    assert left[0].startswith(f"{golden.name}.")
    assert left[0].endswith("-delete")
    with LogDir.open(log_dir) as logs:
        assert not logs.topics()
    convert(golden.directory, new)
    check(golden, new)
    with LogDir.open(log_dir) as logs:
        assert list(logs.topics()) == [golden.topic]


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    """It ends the work at once."""
    (golden,) = named("g-big-0")
    folder = tmp_path / "new"
    assert killed(golden.directory, folder / golden.name, signal.SIGINT) in {-signal.SIGINT, 130}
    assert list(folder.iterdir()) == []


def test_what_a_log_dir_said_of_an_earlier_directory_is_forgotten(tmp_path: Path) -> None:
    """Its checkpoints have lines of a partition that was moved away; they must not hide records of the new one."""
    old = filled(tmp_path / "old/t-0")
    end = Log.open(old).log_end_offset
    log_dir = tmp_path / "data"
    log_dir.mkdir()
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"):
        (log_dir / name).write_text("0\n2\nother 3 7\nt 0 999\n")
    report = convert(old, log_dir / "t-0")
    assert (report.log_start_offset, report.log_end_offset) == (0, end)
    with Log.open(report.path) as log:
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, end, end)
    assert "other 3 7" in (log_dir / "log-start-offset-checkpoint").read_text()


def test_a_brokers_log_dir_is_refused_while_it_runs(tmp_path: Path) -> None:
    """A broker holds the lock of its log dir exclusively."""
    import fcntl

    old = filled(tmp_path / "old/t-0")
    log_dir = tmp_path / "data"
    log_dir.mkdir()
    with (log_dir / ".lock").open("wb") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        child = os.fork()
        if child == 0:
            try:
                convert(old, log_dir / "t-0")
            except LogLockedError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert [path.name for path in log_dir.iterdir()] == [".lock"]


def test_what_is_open_for_appending_can_be_converted(tmp_path: Path) -> None:
    """It is read like any log; what comes later stays where it is."""
    old = tmp_path / "old/t-0"
    with Log.open(old, "a") as log:
        log.append(b"one")
        report = convert(old, tmp_path / "new/t-0")
        log.append(b"two")
    with Log.open(report.path) as copy:
        assert [record.value for record in copy.scan()] == [b"one"]
