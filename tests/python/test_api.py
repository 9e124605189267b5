"""The public surface: names, values, pickles, reprs, closing, forking."""

from __future__ import annotations

import copy
import datetime as dt
import importlib
import itertools
import logging
import multiprocessing
import os
import pickle
import threading
from pathlib import Path

import pytest
from make_log import GZIP, batch, orders, segment

import offsetlog
from offsetlog import Log, LogDir, Record, Scan, TopicPartition

VALUE_TYPES = [
    offsetlog.AbortedTransaction(7, 3),
    offsetlog.FetchResult(b"", 1, 2, 3, ()),
    offsetlog.Header("trace", None),
    offsetlog.IndexEntry(1, 2, 3),
    offsetlog.OffsetAndTimestamp(1, 2, None),
    offsetlog.Segment(0, "x", 1, 2, is_active=True),
    offsetlog.Split("x", "orders", 0, 1, 2, 3),
    TopicPartition("orders", 0),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A partition of ten records."""
    return orders(tmp_path)


@pytest.fixture
def log(path: Path) -> Log:
    """The same, open."""
    return Log.open(path)


def test_all_is_sorted_and_complete() -> None:
    """Whatever is public and made here is in __all__; nothing else is."""
    assert offsetlog.__all__ == sorted(offsetlog.__all__)
    public = {
        name
        for name, value in vars(offsetlog).items()
        if not name.startswith("_") and (getattr(value, "__module__", "") or "").startswith("offsetlog")
    }
    assert public == set(offsetlog.__all__) - {"__version__"}


def test_errors_module_and_package_export_the_same() -> None:
    """Both import lines of the docs work."""
    errors = importlib.import_module("offsetlog.errors")
    assert errors.__all__ == sorted(errors.__all__)
    assert all(getattr(offsetlog, name) is getattr(errors, name) for name in errors.__all__)


def test_public_names_have_docstrings() -> None:
    """help() answers for everything."""
    for name in offsetlog.__all__:
        value = getattr(offsetlog, name)
        if name == "__version__":
            continue
        assert value.__doc__, name
        if not isinstance(value, type):
            continue
        for attribute, member in vars(value).items():
            if not attribute.startswith("_") and (callable(member) or isinstance(member, property)):
                assert member.__doc__, f"{name}.{attribute}"


def test_properties_of_a_log(log: Log, path: Path) -> None:
    """What a broker's tools would say of the same directory."""
    assert (log.topic, log.partition, log.path, log.mode, log.closed) == ("orders", 0, str(path), "r", False)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset) == (0, 10, 10, 10)
    assert log.topic_id is None
    assert log.leader_epoch == 0
    (only,) = log.segments
    assert only == (0, str(path / f"{0:020}.log"), log.size_bytes, 0, True)
    assert isinstance(only, offsetlog.Segment)


def test_record_fields(tmp_path: Path) -> None:
    """kafka-python's names, and the ones beyond."""
    segment(
        tmp_path / "orders-7",
        0,
        batch(0, [(b"k", b"v", [(b"trace", b"1"), (b"bad \xff", None)])], producer_id=9, leader_epoch=4, attributes=1 << 4),
    )
    record = Log.open(tmp_path / "orders-7").get(0)
    assert record is not None
    assert (record.topic, record.partition, record.offset) == ("orders", 7, 0)
    assert (record.timestamp, record.timestamp_type) == (1_700_000_000_000, 0)
    assert record.datetime == dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)
    assert (record.key, record.value) == (b"k", b"v")
    assert record.headers == (("trace", b"1"), ("bad \udcff", None))
    assert record.headers is record.headers
    assert record.headers[1][0].encode("utf-8", "surrogateescape") == b"bad \xff"
    assert (record.leader_epoch, record.producer_id, record.producer_epoch, record.sequence) == (4, 9, 0, 0)
    assert (record.is_transactional, record.is_control) == (True, False)
    with pytest.raises(AttributeError):
        record.value = b"other"  # type: ignore[misc]


def test_get_and_scan_give_equal_records(log: Log) -> None:
    """Look-up and scan take different ways through the engine."""
    records = list(log.scan())
    assert [record.offset for record in records] == list(range(10))
    assert [log.get(offset) for offset in range(10)] == records
    assert list(log.take(range(10))) == records


def test_record_is_a_value() -> None:
    """Made by hand for tests of user code; compares, hashes, copies, pickles."""
    record = Record("orders", 1, 5, timestamp=1000, key=b"k", value=b"v", headers=[("a", b"1"), ("b", None)], leader_epoch=3)
    same = Record("orders", 1, 5, 1000, 0, b"k", b"v", (("a", b"1"), ("b", None)), 3)
    assert record == same
    assert hash(record) == hash(same)
    assert record.timestamp_type == 0
    other = Record("orders", 1, 5, timestamp=1000, key=b"k", value=b"w")
    assert record != other
    assert hash(record) == hash(other)
    assert record != "orders"
    assert pickle.loads(pickle.dumps(record)) == record == copy.deepcopy(record)
    assert Record("orders", 1, 5).datetime is None
    assert Record("orders", 1, 5).timestamp_type == -1
    assert Record("orders", 1, 5, timestamp=1 << 62).datetime is None
    with pytest.raises(TypeError):
        Record("orders", 1, 5, headers=[("a", "text")])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="timestamp_type"):
        Record("orders", 1, 5, timestamp_type=2)


def test_scanned_record_pickles_whole(tmp_path: Path) -> None:
    """Spark and multiprocessing move records by pickle."""
    segment(tmp_path / "orders-0", 0, batch(0, [(None, b"v", [(b"a", None)])], producer_id=4, codec=GZIP))
    (record,) = Log.open(tmp_path / "orders-0").scan()
    assert pickle.loads(pickle.dumps(record)) == record


def test_repr_of_a_record_is_short_and_escaped() -> None:
    """A record may hold megabytes and escape sequences; a log line must bear it."""
    text = repr(Record("orders", 1, 5, key=b"\x1b[2J\n", value=b"x" * 10_000_000, headers=[("a", b"")]))
    assert len(text) <= 200
    assert "\x1b" not in text
    assert "\n" not in text
    assert text == (
        "Record(orders-1 offset 5, timestamp -1, key=b'\\x1b[2J\\n', value=b'" + "x" * 48 + "'...(10000000 bytes), headers=1)"
    )
    assert len(repr(Record("o" * 500, 1, 5))) == 200


@pytest.mark.parametrize("value", VALUE_TYPES, ids=lambda value: type(value).__name__)
def test_values_pickle_and_keep_their_type(value: tuple[object, ...]) -> None:
    """Named tuples: equal to plain tuples, and the same class after a pickle."""
    again = pickle.loads(pickle.dumps(value))
    assert again == value == tuple(value)
    assert type(again) is type(value)


def test_batch_info_location_and_fetch_agree(log: Log) -> None:
    """Three views of the same batch."""
    (info,) = log.batches()
    assert isinstance(info, offsetlog.BatchInfo)
    assert (info.base_offset, info.last_offset, info.magic, info.codec, info.record_count) == (0, 9, 2, "none", 10)
    location = log.locate(5)
    assert location.batch == info
    assert location.entry is None
    assert location.index_state == "missing"
    assert pickle.loads(pickle.dumps(location)) == location
    assert repr(location) == "Location(orders-0 offset 5: segment 0, batch 0 at 0)"
    assert str(location).splitlines()[0] == "offset 5 of orders-0"
    fetched = log.fetch(5)
    assert isinstance(fetched, offsetlog.FetchResult)
    assert len(fetched.records) == info.size_bytes == log.size_bytes
    assert (fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset, fetched.aborted) == (10, 10, 0, ())


def test_times_are_ints_or_aware_datetimes(log: Log) -> None:
    """Naive datetimes mean another instant on another machine: refused."""
    base = 1_700_000_000_000
    found = log.offset_for_timestamp(base + 3)
    assert found == (3, base + 3, 0)
    assert isinstance(found, offsetlog.OffsetAndTimestamp)
    when = dt.datetime.fromtimestamp(base / 1000, dt.UTC) + dt.timedelta(milliseconds=3)
    assert log.offset_for_timestamp(when) == found
    assert log.offset_for_timestamp(when.astimezone(dt.timezone(dt.timedelta(hours=5)))) == found
    assert log.offset_for_timestamp(when - dt.timedelta(microseconds=1)) == found
    assert log.offset_for_timestamp(base + 100) is None
    assert [record.offset for record in log.scan(start_timestamp=base + 2, stop_timestamp=when)] == [2]
    with pytest.raises(offsetlog.ConfigError, match="naive datetime"):
        log.offset_for_timestamp(when.replace(tzinfo=None))
    for wrong in (True, 1.5, "now"):
        with pytest.raises(TypeError, match="when must be an int of milliseconds"):
            log.offset_for_timestamp(wrong)  # type: ignore[arg-type]


def test_scan_filters(log: Log) -> None:
    """Every option of a scan that chooses records."""
    assert [record.offset for record in log.scan(3, 6)] == [3, 4, 5]
    assert [record.offset for record in log.scan(keys=[b"k4", b"k8", b"nobody"])] == [4, 8]
    assert [record.offset for record in log.scan(keys=b"k4")] == [4]
    assert [record.offset for record in log.scan(limit=2)] == [0, 1]
    assert log.scan(limit=0).count() == 0
    assert log.scan(keys=[]).count() == 0
    assert [record.offset for record in log.take([9, 2, 9])] == [9, 2, 9]
    with pytest.raises(offsetlog.OffsetOutOfRangeError):
        list(log.take([9, 500]))
    assert log.scan(isolation_level="read_committed").count() == 10


@pytest.mark.parametrize(
    ("options", "key", "text"),
    [
        ({"columns": ["Offset", "value"]}, "columns", "no column 'Offset'; did you mean 'offset'?"),
        ({"columns": ["timestamp_type"]}, "columns", "did you mean 'timestampType'?"),
        ({"columns": ["offset", "offset"]}, "columns", "named twice"),
        ({"isolation_level": "readcommitted"}, "isolation_level", "did you mean 'read_committed'?"),
        ({"limit": -1}, "limit", "must be at least 0, found -1"),
        ({"threads": 0}, "threads", "must be at least 1, found 0"),
        ({"batch_rows": 0}, "batch_rows", "must be at least 1, found 0"),
        ({"start": -1}, "start", "must be at least 0, found -1"),
    ],
    ids=str,
)
def test_wrong_options_fail_when_the_scan_is_made(log: Log, options: dict[str, object], key: str, text: str) -> None:
    """Not at the first record, which may be in another process."""
    with pytest.raises(offsetlog.ConfigError) as caught:
        log.scan(**options)  # type: ignore[arg-type]
    assert caught.value.key == key
    assert text in str(caught.value)


def test_keys_must_be_bytes(log: Log) -> None:
    """A str would iterate over letters and match nothing."""
    with pytest.raises(TypeError, match=r"key\.encode"):
        log.scan(keys="k4")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="found str"):
        log.scan(keys=["k4"])  # type: ignore[list-item]


def test_modes_are_two(path: Path) -> None:
    with pytest.raises(offsetlog.ConfigError, match="must be 'r' or 'a', found 'w'"):
        Log.open(path, "w")  # type: ignore[call-overload]


def test_closed_log_refuses_and_running_iterators_go_on(path: Path) -> None:
    """Closing is about the handle; an iterator owns its files."""
    with Log.open(path) as log:
        iterator = iter(log.scan())
        next(iterator)
        scan = log.scan()
    assert log.closed
    assert len(list(iterator)) == 9
    log.close()
    assert (log.topic, log.partition, log.path) == ("orders", 0, str(path))
    assert repr(log) == f"Log({str(path)!r}, closed)"
    assert "closed" in log._repr_html_()
    for call in (lambda: log.get(0), log.scan, lambda: list(scan), lambda: log.log_end_offset, lambda: log.segments):
        with pytest.raises(offsetlog.LogClosedError, match="log is closed; orders-0") as caught:
            call()
        assert caught.value.path == str(path)
    with pytest.raises(offsetlog.LogClosedError):
        pickle.dumps(log)
    with pytest.raises(offsetlog.LogClosedError), log:
        pass


def test_log_pickles_as_path_and_options(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened elsewhere, in another working directory, with the same limits."""
    monkeypatch.chdir(path.parent)
    log = Log.open("orders-0", max_open_files=3)
    shipped = pickle.dumps(log)
    monkeypatch.chdir("/")
    again = pickle.loads(shipped)
    assert again.path == str(path)
    assert again._options == log._options  # noqa: SLF001
    assert [record.offset for record in again.scan()] == list(range(10))
    assert repr(log) == "Log('orders-0', offsets 0 to 10, 1 segment)"


def test_reprs_are_short(log: Log, path: Path, tmp_path: Path) -> None:
    """What a notebook shows."""
    assert repr(log) == f"Log({str(path)!r}, offsets 0 to 10, 1 segment)"
    assert repr(log.scan()) == "Scan(orders-0)"
    scan = log.scan(3, columns=["offset"], keys=[b"a", b"b"], limit=4, isolation_level="read_committed")
    assert repr(scan) == "Scan(orders-0 [3, ), columns=['offset'], keys: 2, isolation_level='read_committed', limit=4)"
    log_dir = LogDir.open(tmp_path)
    assert repr(log_dir) == f"LogDir({str(tmp_path)!r}, 1 topic, 1 partition)"
    assert "<td>orders</td>" in log_dir._repr_html_()
    assert "<td>0 to 10</td>" in log._repr_html_()
    assert repr(TopicPartition("orders", 0)) == "TopicPartition(topic='orders', partition=0)"


def test_classes_are_not_made_by_hand() -> None:
    """The constructors say what to call."""
    for kind, text in ((Log, r"Log\.open"), (LogDir, r"LogDir\.open"), (Scan, r"Log\.scan")):
        with pytest.raises(TypeError, match=text):
            kind()


def test_splits_tile_the_range(tmp_path: Path) -> None:
    """Every offset in exactly one split, whatever the cut."""
    path = tmp_path / "orders-0"
    segment(path, 0, *(batch(offset, [(b"k", b"v" * 50)] * 5) for offset in range(0, 50, 5)))
    segment(path, 50, *(batch(offset, [(b"k", b"v" * 50)] * 5) for offset in range(50, 100, 5)))
    log = Log.open(path)
    for options in ({"max_bytes": 1}, {"max_bytes": 1000}, {"count": 3}, {"count": 1}, {}):
        for start, stop in ((None, None), (3, 97), (50, 51)):
            splits = log.splits(start, stop, **options)
            edges = [split.start for split in splits] + [splits[-1].stop]
            assert edges == sorted(set(edges))
            assert (edges[0], edges[-1]) == (start or 0, stop or 100)
            assert all(one.stop == two.start for one, two in itertools.pairwise(splits))
            assert [record.offset for record in Scan.over(splits)] == list(range(start or 0, stop or 100))
    assert len(log.splits(max_bytes=1000)) > 1
    assert 1 < len(log.splits(count=4)) <= 5
    split = log.splits()[0]
    assert pickle.loads(pickle.dumps(split)) == split
    assert (split.path, split.topic, split.partition) == (str(path), "orders", 0)
    with pytest.raises(offsetlog.ConfigError, match="not both"):
        log.splits(max_bytes=1, count=1)


def test_log_dir_maps_topics(tmp_path: Path) -> None:
    """kafka-python's three dictionaries."""
    for name in ("orders-0", "orders-1", "paid-0"):
        segment(tmp_path / name, 0, batch(0, [(None, name.encode())] * 3))
    with LogDir.open(tmp_path) as log_dir:
        assert log_dir.paths == (str(tmp_path),)
        assert log_dir.topics() == {"orders": [0, 1], "paid": [0]}
        keys = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("paid", 0)]
        assert log_dir.partitions() == keys
        assert log_dir.beginning_offsets() == dict.fromkeys(keys, 0)
        assert log_dir.end_offsets([("paid", 0)]) == {keys[2]: 3}
        assert log_dir.end_offsets(isolation_level="read_committed") == dict.fromkeys(keys, 3)
        found = log_dir.offsets_for_times({keys[0]: 0, ("paid", 0): 1 << 60})
        assert found == {keys[0]: (0, 1_700_000_000_000, 0), keys[2]: None}
        assert [record.value for record in log_dir.scan([("paid", 0), ("orders", 1)], limit=4)] == [b"paid-0"] * 3 + [b"orders-1"]
        assert log_dir.scan().count() == 9
        assert log_dir.log("orders", 1).path == str(tmp_path / "orders-1")
        again = pickle.loads(pickle.dumps(log_dir))
        assert again.partitions() == keys
        with pytest.raises(offsetlog.LogDirError, match=r'topic "orders" has no partition 5; it has 0, 1'):
            log_dir.log("orders", 5)
    with pytest.raises(offsetlog.LogClosedError):
        log_dir.topics()
    assert "closed" in repr(log_dir)


def test_warnings_of_opening_are_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is odd and harmless goes to the logger `offsetlog`, never to stdout."""
    (path.parent / "replication-offset-checkpoint").write_text("garbage\n")
    with caplog.at_level(logging.WARNING, logger="offsetlog"):
        Log.open(path)
    assert "replication-offset-checkpoint" in caplog.text


def test_iterator_is_for_one_thread_at_a_time(log: Log) -> None:
    """Two threads on one iterator: each record once, or a clear error; never a crash."""
    iterator = iter(log.scan())
    seen: list[int] = []
    failures: list[BaseException] = []

    def pull() -> None:
        try:
            seen.extend(record.offset for record in iterator)
        except ValueError as error:
            failures.append(error)

    threads = [threading.Thread(target=pull) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == len(set(seen))
    assert all("another thread" in str(error) for error in failures)


def test_iterator_stays_at_its_end(log: Log) -> None:
    """As generators do."""
    iterator = iter(log.scan())
    assert len(list(iterator)) == 10
    assert list(iterator) == []
    batches = log.batches()
    assert len(list(batches)) == 1
    assert list(batches) == []


def _in_child(log: Log, log_dir: LogDir, queue: multiprocessing.Queue[object]) -> None:
    records = [record.offset for record in log.scan()]
    found, partitions = log.get(3) is not None, log_dir.partitions()
    pids = {os.getpid(), log._pid, log_dir._pid}  # noqa: SLF001
    queue.put((pids, records, found, partitions))


def test_log_works_in_a_forked_child(path: Path) -> None:
    """The parent's locks may be held by threads that do not exist in the child, so the child opens again."""
    log, log_dir = Log.open(path), LogDir.open(path.parent)
    log.get(0)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(log, log_dir, queue))
    child.start()
    pids, records, found, partitions = queue.get(timeout=300)
    child.join()
    assert pids == {child.pid}
    assert records == list(range(10))
    assert found
    assert partitions == [("orders", 0)]
    assert log.get(0) is not None


def test_open_cached_keeps_a_log_until_its_directory_changes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers look records up a million times; they open once."""
    first = offsetlog.open_cached(path)
    assert offsetlog.open_cached(str(path)) is first
    monkeypatch.chdir(path.parent)
    assert offsetlog.open_cached("orders-0") is first
    assert offsetlog.open_cached(path, max_open_files=9) is not first
    segment(path, 10, batch(10, [(b"k", b"new")]))
    os.utime(path, ns=(0, 1))
    assert offsetlog.open_cached(path) is not first
    assert offsetlog.open_cached(path).log_end_offset == 11
    with pytest.raises(FileNotFoundError):
        offsetlog.open_cached(path.parent / "nothing-0")


def test_explain_says_what_a_reading_would_do(tmp_path: Path) -> None:
    """The text that a user looks at before a long scan."""
    path = tmp_path / "orders-0"
    for base in (0, 10, 20):
        segment(path, base, batch(base, [(b"k", b"v")] * 10))
    text = Log.open(path).scan(12, 15, columns=["offset"], keys=[b"k"], limit=2).explain()
    assert text.splitlines() == [
        "scan of 1 partition",
        "  orders-0: offsets 12 to 14, 1 of 3 segments",
        "isolation level: read_uncommitted",
        "filters: key is one of 1 key",
        "limit: 2 records",
        "columns: offset",
        "checksums: verified",
    ]
    text = Log.open(path).scan(start_timestamp=1_700_000_000_000, isolation_level="read_committed", verify_checksums=False).explain()
    assert "  orders-0: offsets 0 to 29, 3 of 3 segments" in text
    assert "timestamp >= 1700000000000 (2023-11-14T22:13:20.000+00:00)" in text
    assert "checksums: not verified" in text
    assert "nothing, the range ends at 30" in Log.open(path).scan(30).explain()
    assert "3 look-ups by offset" in Log.open(path).take([1, 2, 3]).explain()
