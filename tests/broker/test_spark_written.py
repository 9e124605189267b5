"""What Spark wrote into a stopped broker's log dir, the broker serves and goes on with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from clients import Admin, Reader, Writer
from golden import CLEAN_LOG_DIRS, CLEAN_PARTITIONS, Row
from kafka.partitioner.default import murmur2
from peers import Appended
from programs import last_line
from spark_writes import BASE_MS, COUNT, KEPT, RESTORED, ROWS, STREAMED
from test_real_broker import TROUBLE

from broker import Broker, broker_of, dump_files, sane_indexes
from offsetlog import Log

VERSION = "4.3.0"
PROGRAM = Path(__file__).with_name("spark_writes.py")
GOLDEN = [golden for golden in CLEAN_PARTITIONS if golden.topic == RESTORED]
PARTITIONS = {ROWS: 3, KEPT: len(GOLDEN), STREAMED: 1}


class Served(NamedTuple):
    """A broker after its end, and what consumers got of it."""

    broker: Broker
    rows: dict[str, dict[int, list[Row]]]
    appended: dict[str, int]
    """Offset that the broker gave the first record of partition 0 that it appended."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("spark-written")
    broker = broker_of(VERSION, folder / "broker")
    broker.format()
    with broker.running(), Admin(broker.address) as admin:
        for topic, partitions in PARTITIONS.items():
            admin.create(topic, partitions, {})
    (folder / "spark").mkdir()
    driver = folder / "spark"
    last_line(PROGRAM, broker.log_dir, driver, ",".join(map(str, CLEAN_LOG_DIRS)), folder=driver, seconds=300)
    rows, appended = {}, {}
    with broker.running():
        for topic, partitions in PARTITIONS.items():
            with Reader(broker.address, topic, range(partitions), "read_committed") as reader:
                rows[topic] = reader.rows()
            with Writer(broker.address, topic) as writer:
                (appended[topic],) = writer.send(0, [Appended(b"k", b"behind", BASE_MS, ())])
    yield Served(broker, rows, appended)
    broker.kill()


def test_rows_are_where_java_would_send_them(served: Served) -> None:
    """By the key's hash, each once though the job ran twice under its name; offsets without a gap."""
    found = Counter[tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]()
    for partition, of_partition in served.rows[ROWS].items():
        assert [row.offset for row in of_partition] == list(range(len(of_partition)))
        found.update((partition, row.timestamp, row.key, row.value, row.headers) for row in of_partition)
    wanted = Counter[tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]()
    for number in range(COUNT):
        key = f"key-{number % 41}".encode()
        value = None if number % 17 == 0 else f"value-{number}".encode()
        headers = (("h", str(number).encode()),) if number % 3 == 0 else ()
        wanted[(murmur2(key) & 0x7FFFFFFF) % 3, BASE_MS + number, key, value, headers] += 1
    assert found == wanted


@pytest.mark.parametrize("number", range(len(GOLDEN)))
def test_a_restore_is_what_the_first_broker_served(served: Served, number: int) -> None:
    def fields(rows: list[Row]) -> list[tuple[object, ...]]:
        return [(row.offset, row.timestamp, row.key, row.value, row.headers) for row in rows]

    golden = GOLDEN[number]
    assert fields(served.rows[KEPT][golden.partition]) == fields(list(golden.rows))
    assert len(golden.rows) > 20


def test_each_line_of_the_stream_is_there_once(served: Served) -> None:
    values = [(row.value or b"").decode() for row in served.rows[STREAMED][0]]
    assert sorted(values) == sorted(f"{number}-{line}" for number in range(2) for line in range(200))


def test_the_broker_goes_on_behind(served: Served) -> None:
    for topic, offset in served.appended.items():
        assert offset == served.rows[topic][0][-1].offset + 1
        with Log.open(served.broker.log_dir / f"{topic}-0") as log:
            record = log.get(offset)
            assert record is not None
            assert record.value == b"behind"


def test_the_broker_finds_nothing_wrong(served: Served) -> None:
    """Neither when it loads them, nor its dump tool in any file, nor in the indexes; several segments are among them."""
    names = [f"{topic}-{partition}" for topic, partitions in PARTITIONS.items() for partition in range(partitions)]
    for name in names:
        assert not [line for line in served.broker.said_of(name) if TROUBLE.search(line)]
    folders = [served.broker.log_dir / name for name in names]
    logs = [path for folder in folders for path in folder.glob("*.log")]
    assert len(logs) > len(folders)
    with Log.open(served.broker.log_dir / f"{ROWS}-1") as log:
        assert {batch.codec for batch in log.batches()} == {"zstd"}
    for path, (_, complaints) in dump_files(VERSION, logs).items():
        # The tool takes a file that does not begin at 0, and what compaction left out, for gaps.
        gaps = {f"  -1 is followed by {int(path.stem)}"}
        if path.parent.name.startswith(f"{KEPT}-"):
            offsets = [row.offset for row in GOLDEN[int(path.parent.name.rpartition("-")[2])].rows]
            gaps |= {f"  {one} is followed by {other}" for one, other in pairwise([-1, *offsets]) if one + 1 < other}
        assert set(complaints[1:]) <= gaps, path
    # The tool says nothing of an empty offset index.
    indexes = [
        path for folder in folders for path in folder.iterdir() if path.suffix in {".index", ".timeindex"} and path.stat().st_size
    ]
    assert sorted(sane_indexes(VERSION, indexes)) == sorted(indexes)
    assert not list(served.broker.log_dir.glob("*/offsetlog-staging"))
