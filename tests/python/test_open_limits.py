"""Limits of ``open``: what passes one is refused with the limit's name, before anything is made of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from make_log import Row, batch, segment

from offsetlog import LimitExceededError, Log, LogDir, Scan, convert, open_cached, verify
from offsetlog._options import LIMITS, open_options

HEADERS = ((b"a", b"1"), (b"b", None), (b"c", b""))
ROWS: list[Row] = [(b"k", b"plain"), (b"k", b"three headers", HEADERS)]
FIRST = f"{0:020}.log"


def refused(action: Callable[[], object], name: str, limit: int, seen: int, path: Path) -> LimitExceededError:
    """The error of this limit, at this path."""
    with pytest.raises(LimitExceededError) as caught:
        action()
    error = caught.value
    assert (error.name, error.limit, error.seen, error.path) == (name, limit, seen, str(path))
    text = f"limit {name} reached: {seen} met, {limit} allowed; open with a higher {name} to read on; "
    assert str(error).startswith(text), error
    return error


def headers_of(path: Path, **limits: int) -> list[int]:
    """How many headers each record has, by iteration."""
    with Log.open(path, **limits) as log:  # type: ignore[call-overload]
        return [len(record.headers) for record in log.scan()]


@pytest.mark.parametrize("codec", [0, 1], ids=["none", "gzip"])
def test_a_record_with_too_many_headers(tmp_path: Path, codec: int) -> None:
    path = tmp_path / "orders-0"
    segment(path, 0, batch(0, ROWS, codec=codec))
    assert headers_of(path, max_headers=3) == [0, 3]
    with Log.open(path, max_headers=2) as log:
        ways: list[Callable[[], object]] = [
            lambda: list(log.scan()),
            lambda: log.get(1),
            lambda: list(log.take([0, 1])),
            lambda: log.scan().to_arrow(),
            lambda: log.scan(columns=["offset", "headers"], threads=2).to_arrow(),
            lambda: list(log.scan(on_corrupt="skip")),
            lambda: Scan.over(log.splits(), max_headers=2).to_arrow(),
        ]
        for way in ways:
            error = refused(way, "max_headers", 2, 3, path / FIRST)
            assert (error.position, error.offset) == (0, 0)
        # The one before it is given, and what no header is made for is counted.
        first = next(iter(log.scan()))
        assert (first.offset, first.headers) == (0, ())
        assert log.scan().count() == 2
    assert headers_of(tmp_path / "orders-0", max_headers=3) == [0, 3]


def test_headers_beyond_ten_thousand(tmp_path: Path) -> None:
    """Brokers have no such bound: who asks for more writes and reads more."""
    many = [("n", b"")] * 10_001
    with Log.open(tmp_path / "orders-0", "a", max_headers=10_001) as log:
        log.append(b"value", headers=many)
    with Log.open(tmp_path / "orders-0") as log:
        refused(lambda: log.get(0), "max_headers", 10_000, 10_001, tmp_path / "orders-0" / FIRST)
    assert headers_of(tmp_path / "orders-0", max_headers=10_001) == [10_001]


def test_a_partition_with_too_many_segments(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    for base in (0, 10, 20):
        segment(path, base, batch(base, ROWS))
    before = {file.name: file.stat().st_mtime_ns for file in path.iterdir()}
    openings: list[Callable[[], object]] = [
        lambda: Log.open(path, max_segments=2),
        lambda: Log.open(path, "a", max_segments=2),
        lambda: open_cached(path, max_segments=2),
        lambda: LogDir.open(tmp_path, max_segments=2).log("orders", 0),
        lambda: convert(path, tmp_path / "new-0", max_segments=2),
    ]
    for opening in openings:
        refused(opening, "max_segments", 2, 3, path)
    assert {file.name: file.stat().st_mtime_ns for file in path.iterdir() if not file.name.startswith(".offsetlog")} == before
    assert not (tmp_path / "new-0").exists()
    assert headers_of(path, max_segments=3) == [0, 3] * 3


def test_a_producer_snapshot_that_is_too_large(tmp_path: Path) -> None:
    """It is no bad snapshot, whose producers may be found in the log again: it may be all that is left of them."""
    path = tmp_path / "orders-0"
    with Log.open(path, "a") as log:
        for producer in range(50):
            log.append_records([b"value"], producer_id=producer, producer_epoch=0, base_sequence=0)
    (snapshot,) = path.glob("*.snapshot")
    size = snapshot.stat().st_size
    refused(lambda: Log.open(path, "a", max_state_file_bytes=size - 1), "max_state_file_bytes", size - 1, size, snapshot)
    assert snapshot.stat().st_size == size
    with Log.open(path, "a", max_state_file_bytes=size) as log:
        again = log.append_records([b"value"], producer_id=49, producer_epoch=0, base_sequence=0)
        assert again.duplicate


def test_a_checkpoint_that_is_too_large(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Readers do without it, and say so; who writes is refused; `verify` names it and goes on."""
    path = tmp_path / "orders-0"
    segment(path, 0, batch(0, ROWS))
    checkpoint = tmp_path / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\norders 0 1\n", encoding="ascii")
    size = checkpoint.stat().st_size
    with Log.open(path, max_state_file_bytes=size) as log:
        assert log.log_start_offset == 1
    assert not caplog.messages
    with Log.open(path, max_state_file_bytes=size - 1) as log:
        assert log.log_start_offset == 0
    (warning,) = caplog.messages
    assert f"limit max_state_file_bytes reached: {size} met, {size - 1} allowed" in warning
    (tmp_path / "meta.properties").touch()
    refused(lambda: Log.open(path, "a", max_state_file_bytes=size - 1), "max_state_file_bytes", size - 1, size, checkpoint)
    found = verify(tmp_path, max_state_file_bytes=size - 1).findings[0]
    assert (found.severity, found.kind, found.path) == ("error", "LimitExceededError", str(checkpoint))
    assert f"limit max_state_file_bytes reached: {size} met, {size - 1} allowed" in found.reason


@pytest.mark.parametrize("opener", [Log.open, LogDir.open, open_cached, open_options])
def test_a_limit_that_is_none(tmp_path: Path, opener: Callable[..., object]) -> None:
    path = () if opener is open_options else (tmp_path / "orders-0",)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'max_batch_byte'; did you mean 'max_batch_bytes'\?"):
        opener(*path, max_batch_byte=1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", LIMITS)
def test_limits_are_numbers(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}: "):
        Log.open(tmp_path / "orders-0", "a", **{name: -1})  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=rf"^{name} "):
        Log.open(tmp_path / "orders-0", "a", **{name: "1"})  # type: ignore[call-overload]
    assert not list(tmp_path.iterdir())
