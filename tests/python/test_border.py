"""Between Python and the compiled module: values and options have names there, and both sides know the same ones."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

from offsetlog import Log, _offsetlog
from offsetlog._options import SCAN_OPTIONS, ScanOptions, checked_scan

PLAIN = "tests/data/kafka-4.3.0/clean/log-dir-1/g-plain-0"


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
