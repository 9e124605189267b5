"""Transactional ids: what Kafka's own dump tool decodes, records of every version and state, records that are not known."""

from __future__ import annotations

import gzip
import json
import logging
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from golden import CLEAN_LOG_DIRS, CLEAN_PARTITIONS, DATA

from offsetlog import (
    CorruptionError,
    Log,
    LogDir,
    LogDirError,
    OffsetLogError,
    Transaction,
    UnreadPartitionsError,
    UnsupportedVersionError,
)

STATE = "__transaction_state"
DUMP = DATA / "dump" / f"kafka-4.3.0__clean__log-dir-1__{STATE}-1__00000000000000000000.log.transaction-log-decoder.txt.gz"
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence")
"""Kafka's names, by number."""
KEY = bytes.fromhex("00000003746964")
"""Transactional id tid."""
VALUES = {
    "0": "00000000000000000fa000010000ea6001000000010003746f7000000002000000000000000300000000000003e80000000000000384",
    "1": "00010000000000000fa000010000ea60010204746f700300000000000000030000000000000003e8000000000000038402000800000000000000050202"
    "0002",
}
"""As Kafka's own classes write one transaction in each version."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with LogDir.open(tmp_path / "logs", "a") as logs:
        logs.create_topic(STATE, 2)
    return tmp_path / "logs"


def transactions(place: Path, *records: tuple[bytes | None, bytes | None], partition: int = 0) -> list[Transaction]:
    """What is there once these records are, too."""
    if records:
        with Log.open(place / f"{STATE}-{partition}", "a") as log:
            log.append_records(list(records))
    with LogDir.open(place) as logs:
        return logs.transactions()


def dumped() -> dict[str, Transaction]:
    """The last record of each id in partition 1, as Kafka's tool printed it."""
    line = re.compile(r"\| offset: (\d+) .* key: (\{.*\}) payload: (.*)")
    newest: dict[str, Transaction] = {}
    for found in filter(None, map(line.match, gzip.decompress(DUMP.read_bytes()).decode().splitlines())):
        name = json.loads(found[2])["data"]["transactionalId"]
        newest.pop(name, None)
        if found[3] != "<DELETE>" and found[3] != "null":
            newest[name] = of_json(name, json.loads(found[3])["data"], int(found[1]))
    return newest


def of_json(name: str, data: dict[str, Any], offset: int) -> Transaction:
    start = data["transactionStartTimestampMs"]
    return Transaction(
        name,
        data["producerId"],
        data.get("previousProducerId"),
        data.get("nextProducerId"),
        data["producerEpoch"],
        data.get("nextProducerEpoch"),
        STATES[data["transactionStatus"]],
        data["transactionTimeoutMs"],
        tuple((each["topic"], tuple(each["partitionIds"])) for each in data["transactionPartitions"] or ()),
        None if start < 0 else start,
        data["transactionLastUpdateTimestampMs"],
        data.get("clientTransactionVersion"),
        1,
        offset,
    )


def test_transactions_of_a_real_broker() -> None:
    """All fields are those of Kafka's dump; of the partition that was not dumped, those at fixed places of the consumer's bytes."""
    with LogDir.open(CLEAN_LOG_DIRS) as logs:
        found = logs.transactions()
    assert {each.transactional_id: each for each in found if each.partition == 1} == dumped()
    (other,) = [golden for golden in CLEAN_PARTITIONS if golden.name == f"{STATE}-0"]
    newest = {row.key[4:].decode(): row for row in other.rows if row.key is not None}
    expected = {name: (*struct.unpack_from(">2xqhib", row.value), row.offset) for name, row in newest.items() if row.value is not None}
    assert {
        each.transactional_id: (each.producer_id, each.producer_epoch, each.timeout_ms, STATES.index(each.state), each.offset)
        for each in found
        if each.partition == 0
    } == expected
    assert len(found) == 7
    assert [each.transactional_id for each in found] == sorted(each.transactional_id for each in found)
    assert [(each.state, each.partitions) for each in found if each.state == "Ongoing"] == [("Ongoing", (("g-txn", (0,)),))]


@pytest.mark.parametrize("version", list(VALUES))
def test_every_version(place: Path, version: str) -> None:
    previous, client = (5, 2) if version == "1" else (None, None)
    (found,) = transactions(place, (KEY, bytes.fromhex(VALUES[version])))
    assert found == Transaction("tid", 4000, previous, None, 1, None, "Ongoing", 60000, (("top", (0, 3)),), 900, 1000, client, 0, 0)
    assert [str(found.start_datetime), str(found.last_update_datetime)] == [
        "1970-01-01 00:00:00.900000+00:00",
        "1970-01-01 00:00:01+00:00",
    ]


def test_all_tags(place: Path) -> None:
    """Producer id and epoch that come next are told, tags of later versions are skipped."""
    plain = bytes.fromhex("00010000000000000fa000010000ea600400") + (7).to_bytes(8, "big") + b"\xff" * 8
    tags = b"\4" + b"\1\x08" + (9).to_bytes(8, "big") + b"\2\2\0\2" + b"\3\2\0\0" + b"\x09\1x"
    (found,) = transactions(place, (KEY, plain + tags))
    assert (found.next_producer_id, found.next_producer_epoch, found.client_transaction_version) == (9, 0, 2)
    assert (found.partitions, found.start_timestamp, found.start_datetime, found.previous_producer_id) == ((), None, None, None)


def test_states_have_kafkas_names(place: Path) -> None:
    value = bytearray.fromhex(VALUES["0"])
    for number, name in [*enumerate(STATES), (9, "Unknown(9)")]:
        value[16] = number
        assert [each.state for each in transactions(place, (KEY, bytes(value)))] == [name]


def test_the_last_record_of_an_id_holds(place: Path) -> None:
    """A null value removes it; an id that stands in two partitions is told twice."""
    later = bytes.fromhex(VALUES["0"]).replace((4000).to_bytes(8, "big"), (4001).to_bytes(8, "big"))
    value = bytes.fromhex(VALUES["1"])
    found = transactions(place, (KEY, value), (b"\0\0\0\1a", value), (KEY, later))
    assert [(each.transactional_id, each.producer_id, each.offset) for each in found] == [("a", 4000, 1), ("tid", 4001, 2)]
    assert [each.partition for each in transactions(place, (KEY, value), partition=1)] == [0, 0, 1]
    assert [each.partition for each in transactions(place, (KEY, None))] == [0, 1]


def test_records_that_are_not_known_are_told(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    records = [(b"\x7f\0what", b"is this"), (b"\0\7", None), (None, b"no key"), (KEY, bytes.fromhex(VALUES["0"]))]
    with caplog.at_level(logging.WARNING, "offsetlog"):
        assert len(transactions(place, *records)) == 1
    assert [record.getMessage() for record in caplog.records] == [
        f"{STATE}-0: 2 records left out, their type is not known; the first at offset 0: type 32512",
        f"{STATE}-0: 1 record left out, they have no key; the first at offset 2: 6 bytes of value",
    ]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("00", CorruptionError),
        ("0002", UnsupportedVersionError),
        (VALUES["1"][:40], CorruptionError),
        (VALUES["0"][:-2], CorruptionError),
    ],
)
def test_records_that_cannot_be_read_are_errors(place: Path, value: str, error: type[OffsetLogError]) -> None:
    with pytest.raises(error) as caught:
        transactions(place, (KEY, bytes.fromhex(VALUES["0"])), (KEY, bytes.fromhex(value)))
    assert (caught.value.offset, Path(str(caught.value.path)).name) == (1, "00000000000000000000.log")


def test_damage_and_a_torn_tail(place: Path) -> None:
    """A batch whose checksum is wrong is an error, and so is a lost end that was replicated; an end that was not finished is the end for
    now."""
    value = bytes.fromhex(VALUES["0"])
    for number in range(3):
        transactions(place, (b"\0\0\0\1" + b"abc"[number : number + 1], value))
    segment = place / f"{STATE}-0" / "00000000000000000000.log"
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-5])
    with pytest.raises(LogDirError, match="ends at offset 2, and the high watermark of its log dir is 3"):
        transactions(place)
    (place / "replication-offset-checkpoint").write_text(f"0\n1\n{STATE} 0 2\n")
    assert [each.transactional_id for each in transactions(place)] == ["a", "b"]
    segment.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    with pytest.raises(CorruptionError):
        transactions(place)
    # The other partition's are told all the same.
    with pytest.raises(UnreadPartitionsError, match=f"{STATE}-0") as unread:
        transactions(place, (b"\0\0\0\1" + b"d", value), partition=1)
    assert [each.transactional_id for each in unread.value.partial] == ["d"]


def test_log_dirs_without_transactions(tmp_path: Path, place: Path) -> None:
    assert transactions(place) == []
    with LogDir.open(tmp_path / "other", "a") as logs:
        logs.create_topic("t")
        assert logs.transactions() == []


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "offsetlog", "transactions", *arguments], capture_output=True, text=True, check=False, timeout=300
    )


def test_the_command_prints_the_same() -> None:
    places = list(map(str, CLEAN_LOG_DIRS))
    with LogDir.open(CLEAN_LOG_DIRS) as logs:
        wanted = logs.transactions()
    printed = run(*places)
    rows = [tuple(line.split()[:5]) for line in printed.stdout.splitlines()[1:]]
    assert rows == [(each[0], str(each[1]), str(each[4]), *map(str, each[6:8])) for each in wanted]
    assert (printed.returncode, printed.stderr) == (0, "")
    told = map(json.loads, run(*places, "--json").stdout.splitlines())
    assert list(told) == [each._asdict() | {"partitions": {topic: list(found) for topic, found in each.partitions}} for each in wanted]


def test_the_command_chooses_and_escapes(place: Path, tmp_path: Path) -> None:
    name = "a\x1b[31m\nb"
    value = bytes.fromhex(VALUES["0"]).replace(b"top", b"t\x07p")
    transactions(place, (b"\0\0" + len(name).to_bytes(2, "big") + name.encode(), value), (KEY, value), (b"\0\1", b""))
    for arguments in ((), ("--json",)):
        printed = run(str(place), *arguments)
        assert not any(character in printed.stdout + printed.stderr for character in "\x1b\x07"), arguments
        assert "1 record left out" in printed.stderr
    printed = run(str(place), "--transactional-id", name, "--transactional-id", "none", "-q")
    assert printed.stdout.splitlines()[1].split() == [
        *(r"a\x1b[31m\nb", "4000", "1", "Ongoing", "60000"),
        *("1970-01-01T00:00:00.900Z", "1970-01-01T00:00:01.000Z", r"t\x07p(0,3)"),
    ]
    assert (printed.stderr, printed.returncode) == ("", 0)
    nothing = run(str(place), "--transactional-id", "none")
    assert (nothing.returncode, "no transactional id none here" in nothing.stderr) == (1, True)
    assert run(str(tmp_path / "missing")).returncode == 2
