"""Arguments that nobody should give: each is refused in words, with a class that the page of errors has, before anything changes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from writing import NOW, Clock, python

from offsetlog import Log, LogDir, verify
from offsetlog.errors import ConfigError, LogDirError, LogPoisonedError, OffsetOutOfRangeError

HUGE = (2**63, 2**64, -(2**63) - 1)


@pytest.mark.parametrize("number", HUGE)
def test_a_number_of_more_than_64_bits_is_refused(tmp_path: Path, number: int) -> None:
    with Log.open(tmp_path / "t-0", "a") as log, LogDir.open(tmp_path / "dir", "a") as log_dir:
        log.append(b"x")
        log_dir.create_topic("t")
        ways: list[Callable[[], object]] = [
            lambda: log.get(number),
            lambda: log.locate(number),
            lambda: list(log.batches(number)),
            lambda: list(log.batches(0, number)),
            lambda: log.splits(number),
            lambda: log.splits(0, number, count=2),
            lambda: log.scan(number),
            lambda: log.scan(0, number),
            lambda: list(log.take([number])),
            lambda: log.fetch(number),
            lambda: log.truncate_to(number),
            lambda: log.delete_records_before(number),
            lambda: log.offset_for_timestamp(number),
            lambda: log_dir.log("t", number),
            lambda: log_dir.end_offsets([("t", number)]),
            lambda: log_dir.append("t", b"x", partition=number),
        ]
        for way in ways:
            with pytest.raises(ConfigError):
                way()
    with Log.open(tmp_path / "t-0") as log:
        for offset in (-1, 2**63 - 1, -(2**63)):
            with pytest.raises(OffsetOutOfRangeError):
                log.get(offset)


def test_what_is_no_log_and_no_mapping(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a") as log, LogDir.open(tmp_path / "dir", "a") as log_dir:
        for odd in (None, "t-0", log_dir):
            with pytest.raises(TypeError, match="source must be a Log"):
                log.append_log(odd)  # type: ignore[arg-type]  # the point of the test
        for other in ([], [("t", 0)], 3, None):
            with pytest.raises(TypeError, match="timestamps must be a mapping"):
                log_dir.offsets_for_times(other)  # type: ignore[arg-type]  # the point of the test


def test_lone_surrogates_are_refused_where_text_is_wanted(tmp_path: Path) -> None:
    lone = "a\ud800"
    with Log.open(tmp_path / "t-0", "a") as log, LogDir.open(tmp_path / "dir", "a") as log_dir:
        log_dir.create_topic("t")
        ways: list[tuple[str, Callable[[], object]]] = [
            ("headers", lambda: log.append(b"x", headers=[(lone, b"")])),
            ("headers", lambda: log_dir.append("t", b"x", headers=[(lone, b"")])),
            ("topic", lambda: log_dir.create_topic(lone)),
            ("topic", lambda: log_dir.create_topic("\udc80")),
            ("topic", lambda: log_dir.delete_topic(lone)),
            ("topic", lambda: log_dir.append(lone, b"x")),
            ("topic", lambda: log_dir.log(lone, 0)),
            ("topic", lambda: log_dir.topic_config(lone)),
            ("topic", lambda: log_dir.set_topic_config(lone, {})),
            ("topic", lambda: log_dir.end_offsets([(lone, 0)])),
            ("path", lambda: Log.open(f"{tmp_path}/{lone}-0")),
            ("path", lambda: LogDir.open(lone)),
            ("path", lambda: verify(lone)),
        ]
        for key, way in ways:
            with pytest.raises(ConfigError) as caught:
                way()
            assert caught.value.key == key
            str(caught.value).encode()
        # Bytes that are no UTF-8 come out of a record like this, and go back.
        assert log.get(log.append(b"x", headers=[("\udcff", b"")])).headers == (("\udcff", b""),)  # type: ignore[union-attr]
        assert log.log_end_offset == 1


def column(values: list[Any], data_type: pa.DataType) -> pa.Array:
    return pa.array(values, data_type)


@pytest.mark.parametrize("kind", ["dictionary", "run ends", "categories", "nested"])
def test_dictionaries_and_run_ends_are_values_like_others(tmp_path: Path, kind: str) -> None:
    values, keys = [b"a", b"a", None, b"b"], ["x", None, "x", "x"]
    headers: list[list[tuple[str, bytes]]] = [[], [("h", b"1")], [], [("h", b"1"), ("g", b"2")]]
    if kind == "dictionary":
        data: Any = pa.table({"value": pa.array(values).dictionary_encode(), "key": pa.array(keys).dictionary_encode()})
    elif kind == "run ends":
        ends = pa.array([2, 3, 4], pa.int32())
        runs = pa.RunEndEncodedArray.from_arrays(ends, pa.array([b"a", None, b"b"], pa.binary()))
        data = pa.table({"value": runs, "key": keys})
        # A slice begins in the middle of a run.
        sliced = pa.record_batch({"value": runs.slice(1, 2)})
        with Log.open(tmp_path / "sliced-0", "a") as log:
            log.append_arrow(sliced)
            assert [record.value for record in log.scan()] == [b"a", None]
    elif kind == "categories":
        data = pl.DataFrame({"value": values, "key": keys}, schema={"value": pl.Binary, "key": pl.Categorical})
    else:
        entry = pa.struct([("key", pa.dictionary(pa.int8(), pa.string())), ("value", pa.binary())])
        listed = [[{"key": name, "value": value} for name, value in one] for one in headers]
        data = pa.table({"value": values, "key": keys, "headers": pa.array(listed, pa.list_(entry))})
    with Log.open(tmp_path / "t-0", "a") as log:
        log.append_arrow(data)
        assert [record.value for record in log.scan()] == values
        assert [record.key for record in log.scan()] == [None if key is None else key.encode() for key in keys]
        if kind == "nested":
            assert [list(record.headers) for record in log.scan()] == headers


class Broken(Clock):
    """A clock that can stop working."""

    what: object = None

    def __call__(self) -> int:
        if isinstance(self.what, BaseException):
            raise self.what
        return self.now if self.what is None else self.what  # type: ignore[return-value]  # the point of the test


def test_what_a_clock_raises_ends_the_call_and_changes_nothing(tmp_path: Path) -> None:
    clock = Broken()
    with Log.open(tmp_path / "t-0", "a", clock=clock) as log, LogDir.open(tmp_path / "dir", "a", clock=clock) as log_dir:
        log.append(b"before")
        log_dir.create_topic("t")
        with log.writer() as writer:
            for what, expected in ((ZeroDivisionError(), ZeroDivisionError), ("noon", TypeError), (2**70, OverflowError)):
                clock.what = what
                for way in (
                    lambda: log.append(b"x"),
                    lambda: log.append_records([b"x"]),
                    lambda: log.append_arrow(pa.table({"value": [b"x"]})),
                    lambda: log.append_marker(1, 0, commit=True),
                    log.maintain,
                    lambda: writer.append(b"x"),
                    lambda: log_dir.append("t", b"x"),
                    lambda: log_dir.create_topic("u"),
                    lambda: log_dir.delete_topic("t"),
                    log_dir.maintain,
                    lambda: Log.open(tmp_path / "u-0", "a", clock=clock),
                ):
                    with pytest.raises(expected):
                        way()
            clock.what = None
        assert (log.log_end_offset, log_dir.topics(), (tmp_path / "u-0").exists()) == (1, {"t": [0]}, False)
        offset = log.append(b"after")
        assert log.get(offset).timestamp == NOW  # type: ignore[union-attr]


def test_a_fetch_never_says_that_more_is_stable_than_replicated(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", "a") as log:
        log.append_records([b"x"] * 5)
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    (tmp_path / "meta.properties").write_text("version=1\n")
    with Log.open(tmp_path / "t-0") as log:
        result = log.fetch(0)
        assert (result.high_watermark, result.last_stable_offset) == (3, 3)


@pytest.mark.parametrize("name", [f"{0:020}.log", f"{7:020}.log"])
def test_a_folder_in_a_segments_place_is_an_error(tmp_path: Path, name: str) -> None:
    """Left out, the log would look empty, or end too early."""
    path = tmp_path / "t-0"
    if name.startswith(f"{7:020}"):
        with Log.open(path, "a") as log:
            log.append(b"x")
    (path / name).mkdir(parents=True)
    for mode in ("r", "a"):
        with pytest.raises(LogDirError, match="is not a regular file; move it out of the directory") as caught:
            Log.open(path, mode)
        assert caught.value.path == str(path / name)


def test_a_directory_that_is_replaced_under_its_writer_is_noticed(tmp_path: Path) -> None:
    """By the next flush, roll or closing; nothing is written into the other one's directory."""
    path, aside = tmp_path / "t-0", tmp_path / "aside"
    for way in ("flush", "roll", "close", "removed"):
        log = Log.open(path, "a")
        log.append(b"mine", flush=True)
        if way == "removed":
            shutil.rmtree(path)
        else:
            path.rename(aside)
            with Log.open(path, "a") as other:
                other.append(b"theirs")
            before = {file.name: file.read_bytes() for file in path.iterdir()}
        log.append(b"lost")
        with pytest.raises(LogDirError, match=r"was removed or renamed|was removed and made again"):
            getattr(log, "flush" if way == "removed" else way)()
        if way in {"flush", "removed"}:
            with pytest.raises(LogPoisonedError, match="has no name any more"):
                log.append(b"x", flush=True)
        with suppress(LogDirError, LogPoisonedError):
            log.close()
        if way != "removed":
            assert {file.name: file.read_bytes() for file in path.iterdir()} == before
            shutil.rmtree(path)
            shutil.rmtree(aside)


FILLS = """
import resource, sys
from offsetlog import Log
with Log.open(sys.argv[1], "a") as log:
    log.append(b"before")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    count, refused = 1, 0
    while refused < 3:
        try:
            log.append(b"x" * 100_000)
            count += 1
        except OSError as error:
            assert error.errno == 27, error
            refused += 1
    log.append(b"small")
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    log.roll()
    log.append(b"after")
with Log.open(sys.argv[1]) as log:
    assert log.log_end_offset == count + 2 == len(list(log.scan())), log
    assert not log.verify().findings, log.verify()
"""


def test_a_limit_on_files_below_the_index_costs_the_append_only(tmp_path: Path) -> None:
    """`segment.index.bytes` is more than the process may write: what was refused leaves no trace, and appending goes on."""
    python(FILLS, str(tmp_path / "t-0"))
