"""Every verb of ``docs/verbs.md`` that reads is tried on a kept file: here, or in ``test_kept_files.py``, or it refuses one.

Expected are the records that Kafka's consumer saw of that part of the log, and the file's own headers by the parser of the tests.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import test_kept_files
import verbs_page
from frames import frames
from golden import Row, row, rows
from test_kept_files import REFUSALS, Kept, as_it_was, plain, transactional

import offsetlog
from offsetlog import Log, LogDir, OldLog, Scan, Server, TopicPartition, open_cached
from offsetlog._offsetlog import run_cli

__all__ = ["as_it_was", "plain", "transactional"]

Check = Callable[[Kept], None]
HERE: dict[str, Check] = {}


def of(*verbs: str) -> Callable[[Check], Check]:
    """Enter a check under the verbs that it tries."""

    def entered(check: Check) -> Check:
        assert not HERE.keys() & set(verbs)
        HERE.update(dict.fromkeys(verbs, check))
        return check

    return entered


def key_of(file: Kept) -> TopicPartition:
    return TopicPartition(file.golden.topic, file.golden.partition)


class Shell:
    """The command in this process."""

    capfd: pytest.CaptureFixture[str]

    def __call__(self, *words: object) -> tuple[int, list[dict[str, Any]]]:
        code = run_cli(["offsetlog", *map(str, words), "--json"], [])
        return code, [json.loads(line) for line in self.capfd.readouterr().out.splitlines()]


shell = Shell()


@of("Log.open", "open_cached", "Log.path", "Log.topic", "Log.partition", "Log.mode", "Log.closed", "Log.refresh")
def opened(file: Kept) -> None:
    log = Log.open(file.path)
    assert (log.path, log.topic, log.partition, log.mode, log.closed) == (str(file.path), *key_of(file), "r", False)
    log.refresh()
    assert rows(log.scan()) == file.rows
    log.close()
    assert log.closed
    cached = open_cached(file.path)
    assert cached is open_cached(file.path)
    assert rows(cached.scan()) == file.rows


@of(
    "Log.log_start_offset",
    "Log.log_end_offset",
    "Log.high_watermark",
    "Log.last_stable_offset",
    "Log.leader_epoch",
    "Log.topic_id",
    "Log.segments",
    "Log.size_bytes",
)
def its_state(file: Kept) -> None:
    """What only stands beside a log, its topic's id, it does not have."""
    with Log.open(file.path) as log:
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (file.first, file.end, file.end)
        assert log.last_stable_offset == stable(file)
        assert log.leader_epoch == max(frame.leader_epoch for frame in frames(file.path))
        assert log.topic_id is None
        size = file.path.stat().st_size
        assert [(segment.base_offset, segment.size_bytes) for segment in log.segments] == [(file.first, size)]
        assert log.size_bytes == size


def stable(file: Kept) -> int:
    """Where ``read_committed`` ends: the transaction of producer 1000 is open at the end of `g-txn-0`, and began in this part."""
    begun = [frame.base_offset or 0 for frame in frames(file.path) if frame.producer_id == 1000]
    return begun[0] if begun else file.end


def committed(file: Kept) -> tuple[Row, ...]:
    """What the markers in the file commit, below that, and what is of no transaction."""
    data, given = file.path.read_bytes(), {seen.offset: seen for seen in file.rows}
    found: list[Row] = []
    open_rows: dict[int, list[Row]] = {}
    for frame in frames(file.path):
        here = [given[offset] for offset in range(frame.base_offset or 0, frame.last_offset + 1) if offset in given]
        if frame.is_control:
            # Its only record, behind a header of 61 bytes: length, attributes, time, offset, length of the key, version, type.
            (kind,) = struct.unpack_from(">h", data, frame.position + 61 + 5 + 2)
            assert kind in (0, 1)
            found += open_rows.pop(frame.producer_id, []) if kind else []
            open_rows.pop(frame.producer_id, None)
        elif frame.is_transactional:
            open_rows.setdefault(frame.producer_id, []).extend(here)
        else:
            found += here
    return tuple(sorted(seen for seen in found if seen.offset < stable(file)))


def first_at(file: Kept, when: int) -> tuple[int, int]:
    """The first record at a time or later; to a broker a marker is one too."""
    markers = [(frame.last_offset, frame.max_timestamp) for frame in frames(file.path) if frame.is_control]
    times = sorted([*((seen.offset, seen.timestamp) for seen in file.rows), *markers])
    return next(each for each in times if each[1] >= when)


@of("Log.get", "Log.take", "Log.locate", "Log.fetch")
def by_offset(file: Kept) -> None:
    data = file.path.read_bytes()
    headers = list(frames(file.path))
    with Log.open(file.path) as log:
        for seen in file.rows:
            record = log.get(seen.offset)
            assert record is not None
            assert row(record) == seen
            (at,) = [header for header in headers if (header.base_offset or 0) <= seen.offset <= header.last_offset]
            batch = log.locate(seen.offset).batch
            assert batch is not None
            assert (batch.position, batch.size_bytes) == (at.position, at.size_bytes)
            assert log.fetch(seen.offset, max_bytes=1).records == data[at.position : at.position + at.size_bytes]
        assert rows(log.take([seen.offset for seen in file.rows[::3]])) == file.rows[::3]
        for outside in (file.first - 1, file.end):
            with pytest.raises(offsetlog.OffsetOutOfRangeError):
                log.get(outside)


@of("Log.batches", "Log.splits", "Scan.over")
def batches_and_splits(file: Kept) -> None:
    with Log.open(file.path) as log:
        found = [(each.position, each.size_bytes, each.last_offset, each.codec, each.leader_epoch) for each in log.batches()]
        assert found == [
            (frame.position, frame.size_bytes, frame.last_offset, frame.codec, frame.leader_epoch) for frame in frames(file.path)
        ]
        splits = log.splits(max_bytes=1000)
        assert len(splits) > 1
        assert (splits[0].start, splits[-1].stop) == (file.first, file.end)
        assert rows(Scan.over(splits)) == file.rows


@of("Log.scan", "Scan.count", "Scan.to_arrow", "Scan.to_polars", "Scan.to_pandas", "Scan.explain", "Scan.report", "Scan.follow")
def scans(file: Kept) -> None:
    with Log.open(file.path) as log:
        scan = log.scan()
        assert rows(scan) == file.rows
        assert (scan.report.holes, scan.report.torn_tails) == ((), ())
        assert rows(log.scan(isolation_level="read_committed")) == committed(file)
        assert rows(log.scan(file.rows[5].offset, file.rows[9].offset)) == file.rows[5:9]
        assert log.scan().count() == len(file.rows)
        offsets, values = [seen.offset for seen in file.rows], [seen.value for seen in file.rows]
        table = log.scan().to_arrow()
        assert (table["offset"].to_pylist(), table["value"].to_pylist()) == (offsets, values)
        frame = log.scan().to_polars()
        assert (frame["offset"].to_list(), frame["value"].to_list()) == (offsets, values)
        pandas = log.scan().to_pandas()
        assert (pandas["offset"].to_list(), pandas["value"].to_list()) == (offsets, values)
        assert f"{file.golden.name}: offsets {file.first} to {file.end - 1}" in log.scan().explain()
        assert rows(log.scan().follow(timeout_ms=0)) == file.rows


def records_in(file: Kept) -> int:
    """Markers too."""
    return sum(frame.record_count or 0 for frame in frames(file.path))


@of("Log.verify", "verify", "offsetlog verify")
def verified(file: Kept) -> None:
    """No index was kept with it; all else is whole."""
    with Log.open(file.path) as log:
        reports = [log.verify(), offsetlog.verify(file.path)]
    for report in reports:
        assert (report.records, report.batches, report.segments) == (records_in(file), len(list(frames(file.path))), 1)
        assert {finding.kind for finding in report.findings} == {"MissingFile"}
        assert report.errors == 0
    code, lines = shell("verify", file.path)
    assert (code, lines[-1]["records"], lines[-1]["errors"]) == (3, records_in(file), 0)


@of(
    "LogDir.open", "LogDir.paths", "LogDir.mode", "LogDir.closed", "LogDir.topics", "LogDir.partitions", "LogDir.log", "LogDir.refresh"
)
def as_a_log_dir(file: Kept) -> None:
    with LogDir.open(file.path) as log_dir:
        assert (log_dir.paths, log_dir.mode, log_dir.closed) == ((str(file.path),), "r", False)
        assert log_dir.topics() == {file.golden.topic: [file.golden.partition]}
        assert log_dir.partitions() == [key_of(file)]
        log_dir.refresh()
        assert rows(log_dir.log(*key_of(file)).scan()) == file.rows
    assert log_dir.closed


@of("LogDir.beginning_offsets", "LogDir.end_offsets", "LogDir.offsets_for_times", "LogDir.scan")
def offsets_of_a_log_dir(file: Kept) -> None:
    key = key_of(file)
    with LogDir.open(file.path) as log_dir:
        assert log_dir.beginning_offsets() == {key: file.first}
        assert log_dir.end_offsets() == {key: file.end}
        assert log_dir.end_offsets(isolation_level="read_committed") == {key: stable(file)}
        for seen in file.rows[::5]:
            answer = log_dir.offsets_for_times({key: seen.timestamp})[key]
            assert answer is not None
            assert (answer.offset, answer.timestamp) == first_at(file, seen.timestamp)
        assert rows(log_dir.scan()) == file.rows


@of("LogDir.groups_prometheus", "LogDir.groups_reset_csv", "LogDir.metadata", "LogDir.strays")
def nothing_of_a_cluster(file: Kept) -> None:
    """Neither groups nor metadata are in such a topic; of their own topics, see below and ``test_kept_files.py``."""
    with LogDir.open(file.path) as log_dir:
        assert log_dir.groups_prometheus(now=0) == ""
        assert log_dir.groups_reset_csv().csv == ""
        assert log_dir.metadata() is None
        assert not log_dir.strays()


@of("LogDir.topic_settings")
def settings_by_default(file: Kept) -> None:
    """Nobody stored any with it."""
    with LogDir.open(file.path) as log_dir:
        sources = {each.source for each in log_dir.topic_settings(file.golden.topic).settings.values()}
    assert sources <= {"default", "unknown"}


@of(
    "Server.stop",
    "Server.bootstrap_servers",
    "Server.metrics_address",
    "Server.running",
    "Server.connections",
    "Server.metrics",
    "Server.events",
)
def served(file: Kept) -> None:
    with Server([file.path], metrics="127.0.0.1:0") as server:
        assert server.running
        assert server.bootstrap_servers.startswith("127.0.0.1:")
        assert (server.connections, server.events()) == (0, [])
        with urlopen(f"http://{server.metrics_address}/metrics", timeout=60) as answer:
            for text in (answer.read().decode(), server.metrics()):
                ends = [line for line in text.splitlines() if line.startswith("offsetlog_serve_log_end_offset{")]
                assert [line.rpartition(" ")[2] for line in ends] == [str(file.end)]
        server.stop()
        assert not server.running


@of("offsetlog ls")
def listed(file: Kept) -> None:
    code, (line,) = shell("ls", file.path)
    assert code == 0
    assert (line["topic"], line["partition"], line["segments"]) == (*key_of(file), 1)
    found = (line["log_start_offset"], line["log_end_offset"], line["high_watermark"], line["last_stable_offset"])
    assert found == (file.first, file.end, file.end, stable(file))
    assert line["last_timestamp"] == list(frames(file.path))[-1].max_timestamp


def shown(line: dict[str, Any], value: str) -> tuple[object, ...]:
    """Offset, time, key and value; those of the golden logs are text."""
    return line["offset"], line["ts" if "ts" in line else "timestamp"], line["key"], line[value]


def as_text(seen: Row) -> tuple[object, ...]:
    key, value = (part and part.decode() for part in (seen.key, seen.value))
    return seen.offset, seen.timestamp, key, value


@of("offsetlog cat", "offsetlog grep")
def printed(file: Kept) -> None:
    code, lines = shell("cat", file.path)
    assert code == 0
    assert [shown(line, "payload") for line in lines] == list(map(as_text, file.rows))
    code, lines = shell("cat", file.path, "--isolation-level", "read_committed")
    assert code == 0
    assert [shown(line, "payload") for line in lines] == list(map(as_text, committed(file)))
    word = (file.rows[7].value or b"").decode()[8:16]
    matching = [seen for seen in file.rows if word.encode() in (seen.value or b"") or word.encode() in (seen.key or b"")]
    code, lines = shell("grep", "--fixed-strings", word, file.path)
    assert code == 0
    assert [shown(line, "payload") for line in lines] == list(map(as_text, matching))


@of("offsetlog dump")
def dumped(file: Kept) -> None:
    code = run_cli(["offsetlog", "dump", str(file.path)], [])
    lines = [json.loads(line) for line in shell.capfd.readouterr().out.splitlines()]
    assert code == 0
    batches = [(line["position"], line["size_bytes"], line["last_offset"], line["codec"]) for line in lines if line["type"] == "batch"]
    assert batches == [(frame.position, frame.size_bytes, frame.last_offset, frame.codec) for frame in frames(file.path)]
    assert all(line["crc_valid"] for line in lines if line["type"] == "batch")
    given = {seen.offset: seen for seen in file.rows}
    records = [line for line in lines if line["type"] == "record" and line["offset"] in given]
    assert [shown(line, "value") for line in records] == list(map(as_text, file.rows))


@pytest.mark.parametrize("verb", HERE)
@pytest.mark.parametrize("of_kind", ["plain", "transactional"])
def test_it_reads_the_file(of_kind: str, verb: str, request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]) -> None:
    shell.capfd = capfd
    HERE[verb](request.getfixturevalue(of_kind))


# In test_kept_files.py.
THERE: dict[str, Callable[..., None]] = {
    "Log.offset_for_timestamp": test_kept_files.test_time,
    "LogDir.groups": test_kept_files.test_groups,
    "LogDir.transactions": test_kept_files.test_transactions,
    "LogDir.producers": test_kept_files.test_producers,
    "LogDir.topic_config": test_kept_files.test_settings,
    "LogDir.why": test_kept_files.test_why,
    "offsetlog explain": test_kept_files.test_explain,
    "offsetlog time": test_kept_files.test_time,
    "offsetlog groups": test_kept_files.test_groups,
    "offsetlog transactions": test_kept_files.test_transactions,
    "offsetlog producers": test_kept_files.test_producers,
    "offsetlog metadata": test_kept_files.test_a_kept_part_of_another_topic_says_where_to_look,
    "offsetlog why": test_kept_files.test_why,
    "offsetlog settings": test_kept_files.test_settings,
    "offsetlog serve": test_kept_files.test_a_server_serves_it,
}
# They take folders, and say so.
FOLDERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "folder_kind": (offsetlog.folder_kind, "Not a directory"),
    "OldLog.open": (OldLog.open, "is not topic-partition"),
    "zookeeper_node": (lambda file: offsetlog.zookeeper_node(file, "/brokers"), "no data of ZooKeeper's found"),
    "identity": (offsetlog.identity, REFUSALS["metadata"][2]),
    "metadata_as_commands": (offsetlog.metadata_as_commands, REFUSALS["metadata_as_commands"][2]),
    "metadata_as_yaml": (offsetlog.metadata_as_yaml, REFUSALS["metadata_as_yaml"][2]),
}
# Nothing of a kept file can be asked: of a log that can be written, of one of Kafka 0.7, of no file at all.
NEVER = {
    *(f"Log.{name}" for name in ("config", "recovery_point", "durable_end_offset", "recovery_report", "end_offset_for_epoch")),
    *(f"OldLog.{name}" for name in ("path", "topic", "partition", "log_start_offset", "log_end_offset", "size_bytes", "read", "scan")),
    "offsetlog completions",
}
TABLES = ("Read a partition", "Read log dirs", "Read from a shell")
VERBS = {verb for each in verbs_page.rows(verbs_page.text()) if each.group in TABLES for verb in each.verbs}


def test_every_verb_that_reads_is_tried() -> None:
    """The page has a row for each verb of Python and of the command, as another test shows."""
    lists = (set(HERE), set(THERE), set(FOLDERS), NEVER)
    assert set().union(*lists) == VERBS
    assert sum(map(len, lists)) == len(VERBS), "a verb is in two lists"


@pytest.mark.parametrize("verb", FOLDERS)
def test_what_takes_folders_refuses_it(verb: str, plain: Kept) -> None:
    call, text = FOLDERS[verb]
    with pytest.raises((offsetlog.OffsetLogError, OSError), match=text):
        call(plain.path)


@pytest.mark.parametrize("name", sorted(name for name in NEVER if name.startswith("Log.")))
def test_it_opens_for_reading_alone(name: str, plain: Kept) -> None:
    with Log.open(plain.path) as log:
        assert not hasattr(log, name.removeprefix("Log."))
