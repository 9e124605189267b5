"""Between Python and the compiled module: values have names there, and both sides know the same ones."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from offsetlog import _offsetlog

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
