"""Arguments of appending that cannot be used: refused by name, before a byte is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pytest
from writing import Clock, coded, filled, refused, times, tree, writing_calls

from offsetlog import ConfigError, Log, LogDirError, ReadOnlyLogError, WritableLog, errors

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WritableLog]:
    """A log with some records, cleanly closed and opened again: any change of a file would show."""
    with Log.open(filled(tmp_path / "orders-0"), "a", clock=Clock()) as log:
        yield log


APPEND: dict[str, list[tuple[object, type[Exception], str]]] = {
    "value": [
        ("text", TypeError, "value must be bytes or None, found str: encode"),
        (3, TypeError, "value must be bytes or None, found int"),
    ],
    "key": [("text", TypeError, "key must be bytes or None, found str"), ([b"k"], TypeError, "key must be bytes or None, found list")],
    "headers": [
        (3, TypeError, "int"),
        ([b"name"], TypeError, "a header must be a pair"),
        ([("name",)], TypeError, "a header must be a pair"),
        ([("name", b"", b"")], TypeError, "a header must be a pair"),
        ([(b"name", b"")], TypeError, "a header must be a pair of a str and bytes"),
        ([("name", "text")], TypeError, "a header's value must be bytes or None, found str"),
        ([7], TypeError, "a header must be a pair"),
    ],
    "timestamp": [
        (1.5, TypeError, "timestamp must be an int of milliseconds"),
        ("now", TypeError, "timestamp must be"),
        (True, TypeError, "timestamp must be"),
        (1 << 63, ConfigError, "timestamp does not fit 64 bits"),
        (datetime(2024, 1, 1), ConfigError, "timestamp"),  # noqa: DTZ001  # what it must refuse
    ],
    "leader_epoch": [
        (-1, ConfigError, "leader_epoch: must be at least 0, found -1"),
        (1 << 31, ConfigError, "leader_epoch: must be below 2147483648"),
        (True, TypeError, "leader_epoch must be an int, found bool"),
        (1.0, TypeError, "leader_epoch must be an int, found float"),
    ],
}


@pytest.mark.parametrize(
    ("name", "value", "kind", "match"), [(name, *case) for name, cases in APPEND.items() for case in cases], ids=repr
)
def test_append(log: WritableLog, name: str, value: object, kind: type[Exception], match: str) -> None:
    arguments: dict[str, Any] = {"value": b"v", name: value}
    refused(log, lambda: log.append(**arguments), kind, match)
    if name != "leader_epoch":
        writer = log.writer()
        refused(log, lambda: writer.append(**arguments), kind, match)
        assert writer.flush() is None
        writer.close()
        assert log.log_end_offset == 6


class Incomparable(list[tuple[str, bytes]]):
    """As arrays of other libraries: what `==` gives has no truth."""

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")


def test_headers_are_never_compared(log: WritableLog) -> None:
    offset = log.append(b"v", headers=Incomparable([("a", b"1")]))
    record = log.get(offset)
    assert record is not None
    assert record.headers == (("a", b"1"),)


RECORDS = [
    (5, TypeError, "int"),
    (b"a value alone", TypeError, "a record must be bytes, None"),
    ("text", TypeError, "found str"),
    ([b"good", "text"], TypeError, "found str"),
    ([b"good", 3], TypeError, "found int"),
    ([(b"key",)], TypeError, "found tuple"),
    ([(b"key", b"value", b"more")], TypeError, "found tuple"),
    ([("key", b"value")], TypeError, "str"),
    ([(b"key", 3)], TypeError, "int"),
    ([[b"key", b"value"]], TypeError, "found list"),
    ([], errors.RecordRejectedError, "holds no record"),
]


@pytest.mark.parametrize(("records", "kind", "match"), RECORDS, ids=repr)
def test_append_records(log: WritableLog, records: object, kind: type[Exception], match: str) -> None:
    refused(log, lambda: log.append_records(records), kind, match)  # type: ignore[arg-type]  # what it must refuse


OPTIONS = [
    ("compression", "zip", ConfigError, "compression: must be one of none, gzip, snappy, lz4, zstd, found 'zip'"),
    ("compression", "producer", ConfigError, "compression"),
    ("leader_epoch", -1, ConfigError, "leader_epoch"),
    ("producer_id", -2, ConfigError, "producer_id"),
    ("producer_id", 1 << 63, ConfigError, "producer_id"),
    ("producer_id", "one", TypeError, "producer_id"),
    ("producer_epoch", 1 << 15, ConfigError, "producer_epoch"),
    ("producer_epoch", -2, ConfigError, "producer_epoch"),
    ("base_sequence", 1 << 31, ConfigError, "base_sequence"),
    ("base_sequence", "one", TypeError, "base_sequence"),
    ("base_sequence", -2, ConfigError, "base_sequence"),
]


@pytest.mark.parametrize(("name", "value", "kind", "match"), OPTIONS, ids=repr)
def test_options_of_append_records(log: WritableLog, name: str, value: object, kind: type[Exception], match: str) -> None:
    options: dict[str, Any] = {name: value}
    refused(log, lambda: log.append_records([b"v"], **options), kind, match)


def test_producer_id_without_a_sequence(log: WritableLog) -> None:
    refused(
        log,
        lambda: log.append_records([b"v"], producer_id=3, producer_epoch=0),
        errors.RecordRejectedError,
        "base sequence -1 found for producer id 3, 0 or more expected",
    )


CALLS: list[tuple[Callable[[WritableLog], object], type[Exception], str]] = [
    (lambda log: log.append_batches("text"), TypeError, "data must be bytes"),  # type: ignore[arg-type]
    (lambda log: log.append_batches(None), TypeError, "data must be bytes"),  # type: ignore[arg-type]
    (lambda log: log.append_batches(coded(b"x"), leader_epoch=-1), ConfigError, "leader_epoch"),
    (lambda log: log.append_batches(coded(b"x"), origin="follower"), ConfigError, "origin: must be 'client' or 'coordinator'"),  # type: ignore[arg-type]
    (lambda log: log.append_as_follower(3), TypeError, "data must be bytes"),  # type: ignore[arg-type]
    (lambda log: log.append_as_follower(coded(b"x", base_offset=6), leader_epoch=-1), ConfigError, "leader_epoch: must be at least 0"),
    (lambda log: log.append_as_follower(coded(b"x", base_offset=6), leader_epoch=1 << 31), ConfigError, "leader_epoch"),
    (lambda log: log.append_as_follower(coded(b"x", base_offset=6), leader_epoch="7"), TypeError, "leader_epoch must be an int"),  # type: ignore[arg-type]
    (lambda log: log.append_marker("one", 0, commit=True), TypeError, "producer_id"),  # type: ignore[arg-type]
    (lambda log: log.append_marker(-1, 0, commit=True), ConfigError, "producer_id"),
    (lambda log: log.append_marker(1, -1, commit=True), ConfigError, "producer_epoch"),
    (lambda log: log.append_marker(1, 1 << 15, commit=True), ConfigError, "producer_epoch"),
    (lambda log: log.append_marker(1, 0, commit=True, coordinator_epoch=1 << 31), ConfigError, "coordinator_epoch"),
    (lambda log: log.append_marker(1, 0, commit=True, leader_epoch=-1), ConfigError, "leader_epoch"),
    (lambda log: log.append_marker(1, 0, commit=True, timestamp="now"), TypeError, "timestamp"),  # type: ignore[arg-type]
    (lambda log: log.append_marker(1, 0, commit=True, transaction_version=-1), ConfigError, "transaction_version"),
    (lambda log: log.append_marker(1, 0, commit=True, transaction_version=1 << 15), ConfigError, "transaction_version"),
    (lambda log: log.append_marker(1, 0), TypeError, "commit"),  # type: ignore[call-arg]
    (lambda log: log.truncate_to(-1), ConfigError, "offset: must be at least 0, found -1"),
    (lambda log: log.truncate_to(1.0), TypeError, "offset must be an int, found float"),  # type: ignore[arg-type]
    (lambda log: log.truncate_to(1 << 63), ConfigError, "offset"),
    (lambda log: log.truncate_fully_and_start_at(-1), ConfigError, "offset: must be at least 0"),
    (lambda log: log.truncate_fully_and_start_at(5, 6), ConfigError, "log_start_offset: 6 found, 0 to 5 expected"),
    (lambda log: log.truncate_fully_and_start_at(5, -1), ConfigError, "log_start_offset: must be at least 0"),
    (lambda log: log.delete_records_before(-1), ConfigError, "offset: must be at least 0"),
    (lambda log: log.delete_records_before("5"), TypeError, "offset must be an int"),  # type: ignore[arg-type]
    (lambda log: log.delete_records_before(7), errors.OffsetOutOfRangeError, "offset 7 is out of range: readable offsets are 0 to 5"),
    (lambda log: log.end_offset_for_epoch("5"), TypeError, "epoch"),  # type: ignore[arg-type]
    (lambda log: log.end_offset_for_epoch(1 << 31), ConfigError, "epoch"),
    (lambda log: log.writer(batch_bytes=0), ConfigError, "batch_bytes: must be at least 1, found 0"),
    (lambda log: log.writer(batch_bytes=1.5), TypeError, "batch_bytes must be an int"),  # type: ignore[arg-type]
    (lambda log: log.writer(linger_ms=-1), ConfigError, "linger_ms: must be at least 0"),
    (lambda log: log.writer(compression="zip"), ConfigError, "compression"),  # type: ignore[arg-type]
    (lambda log: log.writer(leader_epoch=-1), ConfigError, "leader_epoch"),
    (lambda log: setattr(log, "config", {"segment.ms": "soon"}), ConfigError, "segment.ms"),
    (lambda log: setattr(log, "config", {"segment.millis": 5}), ConfigError, "segment.millis"),
    (lambda log: setattr(log, "config", 3), TypeError, "config"),
    (lambda log: setattr(log, "config", None), TypeError, "config"),
]


@pytest.mark.parametrize(
    ("call", "kind", "match"), CALLS, ids=[f"{number}-{match[:30]}" for number, (_, _, match) in enumerate(CALLS)]
)
def test_other_calls(log: WritableLog, call: Callable[[WritableLog], object], kind: type[Exception], match: str) -> None:
    error = refused(log, lambda: call(log), kind, match)
    if isinstance(error, ConfigError):
        assert error.key is not None


def test_properties_cannot_be_set(log: Log) -> None:
    for name in ("recovery_point", "durable_end_offset", "recovery_report", "log_end_offset", "mode"):
        with pytest.raises(AttributeError):
            setattr(log, name, 3)


def test_what_writes_is_refused_in_mode_r(tmp_path: Path) -> None:
    path = filled(tmp_path / "orders-0")
    before = tree(tmp_path), times(tmp_path)
    with Log.open(path) as log:
        for call in writing_calls(cast("WritableLog", log)):
            with pytest.raises(ReadOnlyLogError, match="orders-0 was opened for reading; open it with mode 'a' to write") as caught:
                call()
            assert caught.value.key == "mode"
    assert (tree(tmp_path), times(tmp_path)) == before


OPEN: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"mode": "w"}, ConfigError, "mode: must be 'r' or 'a', found 'w'"),
    ({"mode": "A"}, ConfigError, "mode: must be 'r' or 'a'"),
    ({"config": {"nope": 1}}, ConfigError, "nope"),
    ({"config": {"segment.ms": -5}}, ConfigError, "segment.ms"),
    ({"config": {"segment.bytes": 100}}, ConfigError, "at least 1048576 expected"),
    ({"config": {"cleanup.policy": "keep"}}, ConfigError, "cleanup.policy"),
    ({"config": 3}, TypeError, "config"),
    ({"clock": 3}, TypeError, "clock must be callable, found int"),
    ({"topic_id": "short"}, ConfigError, "topic_id"),
    ({"topic_id": "*" * 22}, ConfigError, "topic_id"),
    ({"topic_id": 3}, TypeError, "topic_id"),
    ({"recovery_point": -1}, ConfigError, "recovery_point: must be at least 0"),
    ({"recovery_point": "5"}, TypeError, "recovery_point must be an int"),
    ({"max_batch_bytes": 0}, ConfigError, "max_batch_bytes"),
    ({"max_decompressed_bytes": 0}, ConfigError, "max_decompressed_bytes"),
    ({"max_open_files": 0}, ConfigError, "max_open_files"),
]


@pytest.mark.parametrize("where", ["there", "absent"])
@pytest.mark.parametrize(("options", "kind", "match"), OPEN, ids=repr)
def test_open(tmp_path: Path, where: str, options: dict[str, Any], kind: type[Exception], match: str) -> None:
    """Neither an existing directory nor the folder of a new one is touched; then the log opens without the mistake."""
    filled(tmp_path / "there-0")
    before = tree(tmp_path), times(tmp_path)
    with pytest.raises(kind, match=match) as caught:
        Log.open(tmp_path / f"{where}-0", **{"mode": "a", **options})
    if isinstance(caught.value, ConfigError):
        assert caught.value.key is not None
    assert (tree(tmp_path), times(tmp_path)) == before
    Log.open(tmp_path / f"{where}-0", "a").close()


@pytest.mark.parametrize("name", ["config", "topic_id", "clean", "recovery_point"])
def test_options_of_appending_are_refused_in_mode_r(tmp_path: Path, name: str) -> None:
    path = filled(tmp_path / "orders-0")
    options: dict[str, Any] = {name: {"config": {}, "topic_id": TOPIC_ID, "clean": True, "recovery_point": 0}[name]}
    with pytest.raises(ConfigError, match=f"{name}: is for appending; open with mode 'a'") as caught:
        Log.open(path, **options)
    assert caught.value.key == name


@pytest.mark.parametrize("name", ["orders", "orders-", "-0", "orders-x", "orders-2147483648"])
def test_names_that_are_no_partition_are_not_made(tmp_path: Path, name: str) -> None:
    with pytest.raises(LogDirError, match="directory name"):
        Log.open(tmp_path / name, "a")
    assert tree(tmp_path) == {}


def test_a_file_in_the_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "orders-0").write_bytes(b"a file")
    with pytest.raises(NotADirectoryError) as caught:
        Log.open(tmp_path / "orders-0", "a")
    assert str(tmp_path / "orders-0") in str(caught.value.filename)
    assert tree(tmp_path) == {"orders-0": b"a file"}


def test_another_topic_id_than_the_stored_one(tmp_path: Path) -> None:
    Log.open(tmp_path / "orders-0", "a", topic_id=TOPIC_ID).close()
    before = tree(tmp_path), times(tmp_path)
    with pytest.raises(ConfigError, match=f"topic_id: .* belongs to the topic {TOPIC_ID}") as caught:
        Log.open(tmp_path / "orders-0", "a", {"segment.ms": 5}, topic_id=TOPIC_ID[:-1] + "g")
    assert caught.value.key == "topic_id"
    assert (tree(tmp_path), times(tmp_path)) == before
