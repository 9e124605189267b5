"""Handles of one process: a writer, readers of each kind, what they answer as plain values. A child process serves the same."""

from __future__ import annotations

import itertools
import os
import pickle
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from codec import CODECS, Batch, Rec, encode

from offsetlog import Log, LogConfig, LogDir, OffsetLogError, Scan, WritableLog, WritableLogDir, open_cached, recover
from offsetlog._commit.moving import digest, prints
from offsetlog._commit.publishing import commit
from offsetlog._commit.staging import STAGING, Staged

TOPIC, NAME = "t", "t-0"
SOURCE = "s-0"
NOW = 1_700_000_100_000
KINDS = ("reader", "log_dir", "cached", "pickled")


def plain(record: Any) -> tuple[Any, ...]:
    """A record of the package as the model has it."""
    fields = (record.offset, record.timestamp, record.key, record.value, record.headers)
    return (*fields, record.leader_epoch, record.producer_id, record.is_transactional)


class Site:
    """What one process has open of one log dir with one partition."""

    def __init__(self, root: str, kind: str, config: dict[str, Any]) -> None:
        self.root, self.kind, self.config = Path(root), kind, config
        self.now = NOW
        self.writer: WritableLog | None = None
        self.log_dir: WritableLogDir | None = None
        self.handles: dict[str, Log] = {}
        self.dirs: dict[str, LogDir] = {}
        self.followers: dict[tuple[str, str], Iterator[Any]] = {}
        self.paused: dict[str, Iterator[Any]] = {}

    def begin(self) -> None:
        """Open the writer."""
        if self.kind == "log":
            self.writer = Log.open(self.root / NAME, "a", self.config, clock=lambda: self.now)
            return
        self.log_dir = LogDir.open(self.root, "a", clock=lambda: self.now)
        if TOPIC not in self.log_dir.topics():
            self.log_dir.create_topic(TOPIC, config=self.config)
        self.writer = self.log_dir.log(TOPIC, 0)

    def end(self) -> None:
        """Close the writer."""
        for closed in (self.log_dir, self.writer):
            if closed is not None:
                closed.close()
        self.writer = self.log_dir = None
        self.drop("writer")

    def close(self) -> None:
        """Let go of everything."""
        self.end()
        self.followers.clear()
        self.paused.clear()
        for handle in self.handles.values():
            handle.close()
        for log_dir in self.dirs.values():
            log_dir.close()

    def open(self, name: str, kind: str) -> None:
        """Open a reader, in the place of one of that name."""
        self.drop(name)
        self.paused.pop(name, None)
        self.dirs.pop(name, None)
        if kind == "log_dir":
            self.dirs[name] = LogDir.open(self.root)
            self.handles[name] = self.dirs[name].log(TOPIC, 0)
        elif kind == "cached":
            self.handles[name] = open_cached(self.root / NAME)
        elif kind == "pickled":
            with Log.open(self.root / NAME) as log:
                self.handles[name] = pickle.loads(pickle.dumps(log))
        else:
            self.handles[name] = Log.open(self.root / NAME)

    def do(self, verb: str, options: dict[str, Any]) -> Any:
        """Change the log."""
        assert self.writer is not None
        self.now = options.pop("now", self.now)
        return getattr(self, f"_do_{verb}")(self.writer, **options)

    def _do_append(self, log: WritableLog, rows: list[Any], way: str, *, flush: bool = False, **options: Any) -> Any:
        if way == "one" or (way == "log_dir" and self.log_dir is None):
            for key, value, timestamp, headers in rows:
                log.append(value, key=key, timestamp=timestamp, headers=headers, flush=flush)
        elif way == "log_dir" and self.log_dir is not None:
            for key, value, timestamp, headers in rows:
                self.log_dir.append(TOPIC, value, key=key, timestamp=timestamp, headers=headers, partition=0, flush=flush)
        elif way == "writer":
            with log.writer(batch_bytes=200, **options) as writer:
                for key, value, timestamp, headers in rows:
                    writer.append(value, key=key, timestamp=timestamp, headers=headers)
            if flush:
                log.flush()
        elif way == "arrow":
            self._append_table(log, rows, flush=flush, **options)
        elif way == "log":
            self._append_log(log, rows, flush=flush, **options)
        else:
            log.append_records([(one[0], one[1]) for one in rows], flush=flush, **options)

    def _append_table(self, log: WritableLog, rows: list[Any], offsets: Any = None, epoch: Any = None, **options: Any) -> None:
        import pyarrow as pa  # only here

        columns = {"key": pa.array([one[0] for one in rows], pa.binary()), "value": pa.array([one[1] for one in rows], pa.binary())}
        if offsets is not None:
            columns["offset"] = pa.array(offsets, pa.int64())
            columns["leaderEpoch"] = pa.array([epoch] * len(rows), pa.int32())
        log.append_arrow(pa.table(columns), preserve_offsets=offsets is not None, **options)

    def _append_log(
        self, log: WritableLog, rows: list[Any], offsets: Any = None, epoch: Any = None, compression: Any = None, *, flush: bool
    ) -> None:
        folder = self.root.parent / SOURCE
        shutil.rmtree(folder, ignore_errors=True)
        with Log.open(folder, "a", {"compression.type": compression or "producer"}) as source:
            if offsets is not None:
                source.truncate_fully_and_start_at(offsets[0])
            for at, (key, value, timestamp, headers) in enumerate(rows):
                if offsets is None:
                    source.append(value, key=key, timestamp=timestamp, headers=headers)
                else:
                    record = Rec(offsets[at], timestamp, key, value, headers)
                    batch = Batch(record.offset, record.offset, epoch, (record,), codec=CODECS.index(compression or "none"))
                    source.append_as_follower(encode(batch), leader_epoch=epoch)
            log.append_log(source, preserve_offsets=offsets is not None, flush=flush)

    def _staged(self, folder: Path, rows: list[Any], segment_bytes: int, compression: Any) -> int:
        """Write a log aside, as a task of a job does; the number of its batches."""
        shutil.rmtree(folder, ignore_errors=True)
        config = {"internal.segment.bytes": segment_bytes, "compression.type": compression or "producer"}
        with Log.open(folder, "a", config) as source:
            for key, value, timestamp, headers in rows:
                source.append(value, key=key, timestamp=timestamp, headers=headers)
            return len(list(source.batches()))

    def _do_move(self, log: WritableLog, rows: list[Any], segment_bytes: int, compression: Any = None) -> Any:
        folder = self.root.parent / SOURCE
        count = self._staged(folder, rows, segment_bytes, compression)
        if log._move_log(str(folder), count) is None:  # noqa: SLF001  # as a commit does
            with Log.open(folder) as source:
                log.append_log(source)

    def _do_publish(self, log: Log, rows: list[Any], segment_bytes: int, compression: Any = None) -> Any:
        del log
        self.end()
        directory = self.root / NAME
        place = directory / STAGING / "job" / "attempt" / NAME
        self._staged(place, rows, segment_bytes, compression)
        with Log.open(place) as staged:
            batches = list(prints(staged))
        size, path = sum(one.size_bytes for one in batches), os.path.relpath(place, directory)
        known = TOPIC, 0, str(directory), path, 0, batches[-1].last_offset, len(rows), len(batches), size, digest(batches)
        assert commit(str(self.root), "job", None, [Staged(*known)], keep=False)
        self.begin()

    def _do_bytes(self, log: WritableLog, data: bytes, way: str, *, flush: bool = False) -> Any:
        if way == "leader":
            log.append_batches(data, flush=flush)
        else:
            log.append_as_follower(data, leader_epoch=1 << 20, flush=flush)

    def _do_marker(self, log: WritableLog, producer_id: int, commit: bool) -> Any:
        log.append_marker(producer_id, 0, commit=commit)

    def _do_roll(self, log: WritableLog) -> Any:
        log.roll()

    def _do_flush(self, log: WritableLog) -> Any:
        log.flush()

    def _do_truncate(self, log: WritableLog, offset: int) -> Any:
        log.truncate_to(offset)

    def _do_restart(self, log: WritableLog, offset: int) -> Any:
        log.truncate_fully_and_start_at(offset)

    def _do_delete(self, log: WritableLog, offset: int) -> Any:
        log.delete_records_before(offset)

    def _do_retain(self, log: WritableLog, way: str, settings: dict[str, Any]) -> Any:
        config = {**settings, "file.delete.delay.ms": 0}
        if way == "log_dir" and self.log_dir is not None:
            report = self.log_dir.maintain(only=("retention", "deletes"), topics=TOPIC, config=config)
            assert not report.failed, report.failed
            return
        log.config = {**self.config, **config}
        log.maintain(only=("retention", "deletes"))
        log.config = self.config

    def _do_compact(self, log: WritableLog) -> Any:
        log.compact()

    def _do_settings(self, log: WritableLog, change: dict[str, Any], way: str) -> Any:
        self.config = {name: value for name, value in {**self.config, **change}.items() if value is not None}
        if way == "topic" and self.log_dir is not None:
            self.log_dir.set_topic_config(TOPIC, self.config)
            assert self.log_dir.topic_config(TOPIC) == LogConfig.from_dict(self.config)
        else:
            log.config = self.config
        assert log.config == LogConfig.from_dict(self.config)

    def _do_reopen(self, log: Log, recovers: bool) -> Any:
        del log
        self.end()
        if recovers:
            recover(self.root / NAME)
        self.begin()

    def _do_kill(self, log: WritableLog, recovers: bool) -> Any:
        log._abandon()  # noqa: SLF001  # as a killed process would
        self.end()
        if recovers:
            recover(self.root / NAME)
        self.begin()

    def _do_recreate(self, log: Log) -> Any:
        del log
        assert self.log_dir is not None
        self.drop("writer")
        self.log_dir.delete_topic(TOPIC)
        self.log_dir.create_topic(TOPIC, config=self.config)
        self.writer = self.log_dir.log(TOPIC, 0)

    def refresh(self, name: str) -> None:
        """Have a handle look."""
        if name in self.dirs:
            self.dirs[name].refresh()
        self.handles[name].refresh()

    def ask(self, name: str, question: str, options: dict[str, Any]) -> Any:
        """A handle's answer; an error of the package or the system as its name."""
        log = self.writer if name == "writer" else self.handles[name]
        try:
            return getattr(self, f"_ask_{question}")(log, name, **options)
        except (OffsetLogError, OSError) as error:
            if type(error).__name__ == "OffsetOutOfRangeError":
                return ("error", "OffsetOutOfRangeError")
            return ("error", type(error).__name__, str(error))

    def _ask_ends(self, log: Log, name: str) -> Any:
        offsets = (log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset, log.leader_epoch)
        if name in self.dirs:
            log_dir = self.dirs[name]
            ends, stable = log_dir.end_offsets(), log_dir.end_offsets(isolation_level="read_committed")
            both = (*log_dir.beginning_offsets().values(), *ends.values(), *stable.values())
            assert both == (offsets[0], offsets[1], offsets[3]), (both, offsets)
        return offsets

    def _ask_property(self, log: Log, name: str, which: str) -> Any:
        return getattr(log, which)

    def _ask_recovery_point(self, log: WritableLog, name: str) -> Any:
        return (log.recovery_point, log.durable_end_offset)

    def _ask_epoch_end(self, log: WritableLog, name: str, epoch: int) -> Any:
        return log.end_offset_for_epoch(epoch)

    def _ask_segments(self, log: Log, name: str) -> Any:
        return [(segment.base_offset, segment.size_bytes) for segment in log.segments]

    def _ask_get(self, log: Log, name: str, offset: int) -> Any:
        found = log.get(offset)
        return None if found is None else plain(found)

    def _ask_locate(self, log: Log, name: str, offset: int) -> Any:
        batch = log.locate(offset).batch
        if batch is None or not batch.base_offset <= offset <= batch.last_offset:
            return None
        return (batch.base_offset, batch.last_offset)

    def _ask_take(self, log: Log, name: str, offsets: list[int]) -> Any:
        return [plain(record) for record in log.take(offsets)]

    def _ask_scan(self, log: Log, name: str, **options: Any) -> Any:
        return [plain(record) for record in log.scan(**options) if not record.is_control]

    def _ask_count(self, log: Log, name: str, **options: Any) -> Any:
        return log.scan(**options).count()

    def _ask_arrow(self, log: Log, name: str, **options: Any) -> Any:
        table = log.scan(**options).to_arrow()
        most = options.get("batch_rows")
        assert most is None or all(len(batch) <= most for batch in table.to_batches()), (most, table)
        columns = table.to_pydict()
        if "timestamp" in columns:
            columns["timestamp"] = [round(stamp.timestamp() * 1000) for stamp in columns["timestamp"]]
        return list(zip(*columns.values(), strict=True))

    def _ask_over(self, log: Log, name: str, **options: Any) -> Any:
        scan = Scan.over(log.splits(**options))
        return [plain(record) for record in scan if not record.is_control]

    def _ask_log_dir_scan(self, log: Log, name: str, **options: Any) -> Any:
        return [plain(record) for record in self._dir_of(name).scan([(TOPIC, 0)], **options) if not record.is_control]

    def _ask_log_dir_time(self, log: Log, name: str, when: int, isolation_level: Any) -> Any:
        (found,) = self._dir_of(name).offsets_for_times({(TOPIC, 0): when}, isolation_level=isolation_level).values()
        return None if found is None else (found.offset, found.timestamp, found.leader_epoch)

    def _dir_of(self, name: str) -> LogDir:
        if name == "writer":
            assert self.log_dir is not None
            return self.log_dir
        return self.dirs[name]

    def _ask_durable(self, log: Log, name: str) -> Any:
        return [plain(record) for record in log.scan(durable=True) if not record.is_control]

    def _ask_follow(self, log: Log, name: str, start: int | None, isolation_level: Any) -> Any:
        scan = log.scan(start, isolation_level=isolation_level)
        return [plain(record) for record in scan.follow(timeout_ms=0) if not record.is_control]

    def _ask_batches(self, log: Log, name: str, start: int | None, stop: int | None) -> Any:
        found = log.batches(start, stop)
        return [(one.base_offset, one.last_offset, one.record_count, one.leader_epoch, one.is_control) for one in found]

    def _ask_time(self, log: Log, name: str, when: int, isolation_level: Any) -> Any:
        found = log.offset_for_timestamp(when, isolation_level=isolation_level)
        return None if found is None else (found.offset, found.timestamp, found.leader_epoch)

    def _ask_verify(self, log: Log, name: str) -> Any:
        report = log.verify()
        return (report.errors, report.batches)

    def _ask_splits(self, log: Log, name: str, **options: Any) -> Any:
        pieces = log.splits(**options)
        assert all(one.stop == after.start for one, after in itertools.pairwise(pieces)), pieces
        return (pieces[0].start, pieces[-1].stop) if pieces else None

    def _ask_fetch(self, log: Log, name: str, **options: Any) -> Any:
        found = log.fetch(**options)
        aborted = sorted((one.producer_id, one.first_offset) for one in found.aborted)
        return (found.records, found.high_watermark, found.last_stable_offset, found.log_start_offset, aborted)

    def _ask_pull(self, log: Log, name: str, start: int, isolation_level: Any, count: int, anew: bool) -> Any:
        key = name, isolation_level
        if anew or not count:
            self.followers.pop(key, None)
        if not count:
            return ([], None)
        if key not in self.followers:
            self.followers[key] = log.scan(start, isolation_level=isolation_level).follow(timeout_ms=2000, poll_interval_ms=10)
        found: list[Any] = []
        try:
            for record in self.followers[key]:
                found += [] if record.is_control else [plain(record)]
                if len(found) == count:
                    break
        except (OffsetLogError, OSError) as error:
            return (found, ("error", type(error).__name__, getattr(error, "log_end_offset", None)))
        # What `follow` was told of is seen by every question that comes behind.
        end = log.log_end_offset
        assert end > max((one[0] for one in found), default=-1), (end, found)
        return (found, None)

    def _ask_pause(self, log: Log, name: str, start: int | None, isolation_level: Any, count: int) -> Any:
        self.paused[name] = iter(log.scan(start, isolation_level=isolation_level))
        return self._take_from(self.paused[name], count)

    def _ask_go_on(self, log: Log, name: str) -> Any:
        return self._take_from(self.paused.pop(name), None)

    @staticmethod
    def _take_from(records: Iterator[Any], count: int | None) -> Any:
        """What a scan under way returns, with the error that it ends with, if any."""
        found = []
        try:
            for record in itertools.islice(records, count):
                if not record.is_control:
                    found.append(plain(record))  # noqa: PERF401  # what came before an error counts
        except OffsetLogError as error:
            return (found, ("error", type(error).__name__))
        return (found, None)

    def drop(self, name: str) -> None:
        """Follow with that handle no more."""
        self.followers = {key: follower for key, follower in self.followers.items() if key[0] != name}


class Remote:
    """A site in another process, which lives as long as this object: one question, one answer."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, __file__]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            assert self.child.stdin is not None
            assert self.child.stdout is not None
            _send(self.child.stdin, (verb, arguments))
            is_right, answer = _receive(self.child.stdout)
            if not is_right:
                message = f"in the child: {answer}"
                raise AssertionError(message)
            return answer

        return call

    def stop(self) -> None:
        """End the child."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.close()
        self.child.wait(300)
        self.child.stdout.close()


@contextmanager
def remote() -> Iterator[Remote]:
    """A site in another process."""
    child = Remote()
    try:
        yield child
    finally:
        child.stop()


def _send(stream: IO[bytes], value: object) -> None:
    data = pickle.dumps(value)
    stream.write(struct.pack(">I", len(data)) + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> Any:
    size = stream.read(4)
    return pickle.loads(stream.read(*struct.unpack(">I", size))) if len(size) == 4 else None


def _serve() -> None:
    into = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    site: Site | None = None
    while (asked := _receive(sys.stdin.buffer)) is not None:
        verb, arguments = asked
        try:
            if verb == "new":
                site = Site(*arguments)
                answer = None
            else:
                answer = getattr(site, verb)(*arguments)
        except Exception as error:  # noqa: BLE001  # told to the parent
            _send(into, (False, f"{type(error).__name__}: {error}"))
        else:
            _send(into, (True, answer))


if __name__ == "__main__":
    _serve()
