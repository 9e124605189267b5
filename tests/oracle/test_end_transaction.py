"""What `end_transaction` left of real brokers' directories, opened by Kafka: no transaction is open, and each committed record is read."""

from __future__ import annotations

import base64
import shutil
import struct
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from interface import Clock, Read
from kafka_log import ROOT, KafkaLog, Oracle
from opening import LATER

from offsetlog import ConfigError, Log, end_transaction, verify

sys.path.insert(0, str(ROOT / "tests" / "python"))

from golden import DATA, Golden, row

COMMIT = 1


class Case(NamedTuple):
    """A cluster that was stopped, and the transaction that it left open."""

    directory: Path
    expected: str
    log_dirs: tuple[str, ...]
    metadata: str | None
    producer_id: int


CLUSTERS = DATA / "kafka-4.3.0"
# Both are `Ongoing` by the coordinator's last record.
CASES = {
    "clean": Case(CLUSTERS / "clean", "kafka-4.3.0-clean", ("log-dir-1", "log-dir-2"), "metadata-dir", 1000),
    "killed": Case(CLUSTERS / "unclean", "kafka-4.3.0-unclean", ("log-dir-1", "log-dir-2"), None, 2),
}


def batches_of(oracle: Oracle, directory: Path) -> list[dict[str, Any]]:
    """Every batch of a partition as Kafka decodes it."""
    return [batch for path in sorted(directory.glob("*.log")) for batch in oracle.decode(path) if "end" not in batch]


def unb64(text: str | None) -> bytes | None:
    """Bytes of a reply."""
    return None if text is None else base64.b64decode(text)


def committed(batches: list[dict[str, Any]]) -> list[Read]:
    """What a `read_committed` consumer reads if what is still open is aborted: records before a commit of their producer, and others'."""
    found: list[Read] = []
    waiting: dict[int, list[Read]] = {}
    for batch in batches:
        if batch["control"]:
            _, kind = struct.unpack(">hh", base64.b64decode(batch["records"][0]["key"]))
            found += [read for read in waiting.pop(batch["pid"], []) if kind == COMMIT]
            continue
        records = [
            Read(
                each["offset"],
                each["ts"],
                unb64(each["key"]),
                unb64(each["value"]),
                tuple((name, unb64(of)) for name, of in each["headers"]),
            )
            for each in batch["records"]
        ]
        if batch["txn"]:
            waiting.setdefault(batch["pid"], []).extend(records)
        else:
            found += records
    return sorted(found, key=lambda read: read.offset)


@pytest.mark.parametrize("name", CASES)
def test_an_ongoing_transaction_is_aborted(oracle: Oracle, folder: Path, name: str) -> None:
    case = CASES[name]
    place = folder / f"end-transaction-{name}"
    shutil.copytree(case.directory, place)
    for path in place.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (source,) = case.directory.glob("*/g-txn-0")
    golden = Golden(DATA / "expected" / case.expected, source)
    directory = place / source.relative_to(case.directory)
    paths = [place / log_dir for log_dir in case.log_dirs]
    options: dict[str, Any] = {"single_replica": True, "metadata": case.metadata and place / case.metadata}
    expected = committed(batches_of(oracle, directory))
    # The rule above against what a real consumer was given, as far as it got.
    assert [read.offset for read in expected if read.offset < golden.last_stable_offset] == [seen.offset for seen in golden.committed]
    for refused in (None, True):
        with pytest.raises(ConfigError, match="has not decided"):
            end_transaction(paths, "g-txn", 0, case.producer_id, commit=refused, **options)
    ended = end_transaction(paths, "g-txn", 0, case.producer_id, commit=False, **options)
    assert (ended.committed, ended.producer.state, ended.marker_offset) == (False, "Ongoing", golden.end)
    assert (ended.last_stable_offset_before, ended.last_stable_offset) == (golden.last_stable_offset, golden.end + 1)
    with Log.open(directory) as log:
        assert log.last_stable_offset == log.log_end_offset == golden.end + 1
        assert not log.verify().damaged
        seen = [row(record) for record in log.scan(isolation_level="read_committed")]
        assert [Read(one.offset, one.timestamp, one.key, one.value, one.headers) for one in seen] == expected
        assert [row(record) for record in log.scan()] == list(golden.rows)
    assert not verify(directory).damaged
    for clean in (True, False):
        agrees(oracle, directory, place / f"{clean}" / directory.name, expected, clean=clean)
    shutil.rmtree(place)


def agrees(oracle: Oracle, directory: Path, copy: Path, expected: list[Read], *, clean: bool) -> None:
    """Kafka opens a copy as closed in order, or as after a crash, and serves to its end what is expected."""
    shutil.copytree(directory, copy)
    before = {path.name: path.read_bytes() for path in directory.glob("*.log")}
    kafka = KafkaLog(oracle, copy, "ended")
    kafka.follow(Clock(LATER))
    fields: dict[str, Any] = {"config": {}, "clean": clean, "recoveryPoint": 0, "logStartOffset": 0, "useCheckpoints": False}
    theirs = kafka.ask("open", dir=str(copy), **fields)
    with Log.open(directory) as log:
        assert (theirs["start"], theirs["leo"]) == (log.log_start_offset, log.log_end_offset)
        assert theirs["lso"] == theirs["leo"]
        offset = theirs["start"]
        while offset < theirs["leo"]:
            served, ours = kafka.fetch(offset, 1 << 20, committed=True), log.fetch(offset, isolation_level="read_committed")
            assert (ours.last_stable_offset, ours.records) == (served.last_stable_offset, served.records)
            # These say which records a consumer leaves out.
            assert {tuple(each) for each in ours.aborted} == set(served.aborted)
            offset = behind(served.records)
    assert committed(batches_of(oracle, copy)) == expected
    kafka.close(clean=True)
    assert {path.name: path.read_bytes() for path in copy.glob("*.log")} == before


def behind(batches: bytes) -> int:
    """The offset behind the last of these whole batches."""
    at, offset = 0, -1
    while at < len(batches):
        base, size = struct.unpack_from(">qi", batches, at)
        offset, at = base + struct.unpack_from(">i", batches, at + 23)[0] + 1, at + 12 + size
    return int(offset)
