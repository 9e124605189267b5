"""Between Python and the compiled module: values and options have names there, and both sides know the same ones."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, is_typeddict

import pytest

from offsetlog import Log, _mirror, _offsetlog, _options, _server
from offsetlog._mirror import MirrorOptions
from offsetlog._options import (
    SCAN_OPTIONS,
    AppendOptions,
    ClusterOptions,
    LogDirOptions,
    MaintainOptions,
    MarkerOptions,
    RestoreOptions,
    ScanOptions,
    WriteOptions,
    checked_scan,
    open_options,
)
from offsetlog._server import ServerOptions

PLAIN = "tests/data/kafka-4.3.0/clean/log-dir-1/g-plain-0"
CLUSTER = ClusterOptions(metadata=None, broker=None, internal_topics=[], single_replica=False)
WRITE = WriteOptions(config=None, clock=None, topic_id=None, clean=None, recovery_point=None, cluster=CLUSTER)
LOG_DIR = LogDirOptions(defaults=[], clock=None, max_open_partitions=1, seed=None, cluster=CLUSTER)
APPEND = AppendOptions(leader_epoch=None, flush=False)
MARKER = MarkerOptions(producer_id=1, producer_epoch=0, commit=True, coordinator_epoch=0, timestamp=None, transaction_version=0)
MAINTAIN = MaintainOptions(now=None, dry_run=True, only=["deletes"], config=None)
RESTORE = RestoreOptions(
    topics=[],
    until=None,
    ends=[],
    new_cluster=False,
    metadata=[],
    broker=None,
    replication_factor=None,
    single_replica=False,
    keep_retention=False,
    dry_run=True,
)
MIRROR = MirrorOptions(
    bootstrap=["localhost:1"],
    topics=[],
    patterns=[],
    once=True,
    config=None,
    config_file=None,
    follow_deletes=False,
    groups=False,
    fetch_max_bytes=1,
    refresh_ms=1,
    give_up_ms=1,
)
SERVER = ServerOptions(
    listen=["127.0.0.1:0"],
    advertise=None,
    topics=[],
    high_watermark=False,
    decide=False,
    without_state=False,
    without_offsets=False,
    groups=None,
    broker=None,
    metadata=None,
    tls_certificate=None,
    tls_key=None,
    tls_client_ca=None,
    users=None,
    insecure=False,
    metrics=None,
    max_connections=1,
    idle_timeout_ms=1,
)
Border = dict[str, Callable[[Any], object]]


@pytest.mark.parametrize("path", sorted(_offsetlog.ROWS))
def test_a_row_has_the_fields_of_its_named_tuple(path: str) -> None:
    module, _, name = path.rpartition(".")
    assert getattr(importlib.import_module(module), name)._fields == _offsetlog.ROWS[path]


def test_a_row_of_other_fields_is_refused() -> None:
    """A pair of fields that changed places would go unseen where values cross by position."""
    code = f"""
from collections import namedtuple
from offsetlog import Log, _values
_values.Segment = namedtuple("Segment", "base_offset path index_entries size_bytes is_active")
Log.open({PLAIN!r}).segments
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "TypeError: offsetlog._values.Segment has the fields base_offset, path, index_entries, size_bytes" in done.stderr


@pytest.fixture
def border(tmp_path: Path) -> Border:
    """Every dict of options that crosses, by its name, in a call that takes it."""
    native = _offsetlog
    appender = native.Appender.open(str(tmp_path / "orders-0"), open_options(), WRITE)
    log = appender.log()
    return {
        "open": lambda options: native.Log.open(PLAIN, options),
        "open log dir": lambda options: native.LogDir.open([str(tmp_path)], options),
        "open old log": lambda options: native.OldLog.open(PLAIN, options),
        "limits": lambda limits: native.Log.open(PLAIN, {"mapped": False, "limits": limits}),
        "verify": lambda options: native.verify([PLAIN], options, progress=None),
        "recover": lambda options: native.recover(PLAIN, options, from_offset=None, dry_run=True, progress=None),
        "convert": lambda options: native.convert(
            PLAIN, str(tmp_path / "new-0"), options, compression=None, config=None, progress=None
        ),
        "write": lambda options: native.Appender.open(str(tmp_path / "orders-1"), open_options(), options),
        "cluster": lambda cluster: native.Appender.open(str(tmp_path / "orders-1"), open_options(), {**WRITE, "cluster": cluster}),
        "write log dir": lambda options: native.LogDirAppender.open([str(tmp_path)], open_options(), options),
        "append log": lambda options: appender.append_log(log, options, start=None, keep_offsets=False),
        "append arrow": lambda options: native.append_arrow(
            appender, None, options, compression=None, batch_bytes=1, keep_offsets=False
        ),
        "marker": lambda marker: appender.append_marker(marker, APPEND),
        "end of a transaction": lambda options: appender.append_marker(MARKER, options),
        "maintain": appender.maintain,
        "scan": lambda options: native.Scan([(log, None, None)], options),
        "restore": lambda options: native.restore([PLAIN], [str(tmp_path / "into")], open_options(), options, progress=None),
        "mirror": lambda options: native.mirror(str(tmp_path / "mirror"), options, progress=None, event=None),
        "serve": lambda options: native.Server([PLAIN], open_options(), options),
    }


GIVEN: dict[str, Any] = {
    "open": open_options(),
    "open log dir": open_options(),
    "open old log": open_options(),
    "limits": open_options()["limits"],
    "verify": open_options(),
    "recover": open_options(),
    "convert": open_options(),
    "write": WRITE,
    "cluster": CLUSTER,
    "write log dir": LOG_DIR,
    "append log": APPEND,
    "append arrow": APPEND,
    "marker": MARKER,
    "end of a transaction": APPEND,
    "maintain": MAINTAIN,
    "scan": vars(checked_scan()),
    "restore": dict(RESTORE),
    "mirror": dict(MIRROR),
    "serve": dict(SERVER),
}


def test_every_dict_of_options_is_tried(border: Border) -> None:
    assert list(border) == list(GIVEN)
    given = {frozenset(options) for options in GIVEN.values()}
    for module in (_options, _server, _mirror):
        for name, kind in vars(module).items():
            # A scan's arguments cross as they were checked.
            if is_typeddict(kind) and name.endswith("Options") and name not in {"ScanOptions", "OverOptions"}:
                assert frozenset(kind.__annotations__) in given, name


@pytest.mark.parametrize("name", GIVEN)
def test_an_unknown_option_is_refused(border: Border, name: str) -> None:
    with pytest.raises(TypeError, match=r"^unknown option 'limt'"):
        border[name]({**GIVEN[name], "limt": 1})


@pytest.mark.parametrize("name", GIVEN)
def test_a_missing_option_is_refused(border: Border, name: str) -> None:
    last = list(GIVEN[name])[-1]
    rest = {option: value for option, value in GIVEN[name].items() if option != last}
    with pytest.raises(TypeError, match=rf"^option '{last}' is missing"):
        border[name](rest)
    with pytest.raises(TypeError, match=r"^unknown option 'limt'"):
        border[name]({**rest, "limt": 1})


def test_options_of_another_kind_are_refused() -> None:
    limits: Any = "all"
    with pytest.raises(TypeError) as caught:
        _offsetlog.Log.open(PLAIN, {"mapped": False, "limits": limits})
    assert caught.value.__notes__ == ["while processing 'limits'", "while processing 'options'"]


def test_scan_has_the_options_of_every_scan() -> None:
    """It names them one by one, for editors and readers."""
    parameters = inspect.signature(Log.scan).parameters.values()
    named = {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}
    assert named.pop("durable") is False
    assert {**named, "offsets": None} == {name: option.default for name, option in SCAN_OPTIONS.items()}


def test_scan_passes_every_option_on() -> None:
    given: ScanOptions = {
        "start_timestamp": 1,
        "stop_timestamp": 2,
        "columns": ["offset"],
        "keys": b"k",
        "isolation_level": "read_committed",
        "limit": 3,
        "batch_rows": 4,
        "batch_bytes": 5,
        "verify_checksums": False,
        "threads": 6,
        "on_corrupt": "skip",
    }
    with Log.open(PLAIN) as log:
        assert log.scan(**given)._options == checked_scan(**given)  # noqa: SLF001  # nothing public has all of them
    assert given.keys() == SCAN_OPTIONS.keys() - {"offsets"}
