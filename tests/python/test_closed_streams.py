"""A standard stream that is closed when the command begins: no other file is taken for it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from golden import CLEAN_LOG_DIRS


def shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)


OFFSETLOG = f"{shlex.quote(sys.executable)} -m offsetlog"


def test_append_refuses_a_closed_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    refused = shell(f"{OFFSETLOG} append {path} <&-")
    assert refused.returncode == 2
    assert "standard input is closed" in refused.stderr
    assert not path.exists()
    both = shell(f"{OFFSETLOG} append {path} <&- >&-")
    assert both.returncode == 2
    assert not path.exists()


@pytest.mark.parametrize("line", ["cat {0}/g-plain-0", "ls {0}", "verify {0}/g-plain-0", "dump {0}/g-plain-0"])
def test_what_is_printed_to_a_closed_standard_output_is_an_error(line: str) -> None:
    told = shell(f"{OFFSETLOG} {line.format(CLEAN_LOG_DIRS[0])} >&-")
    assert told.returncode == 2
    assert "standard output" in told.stderr
    both = shell(f"{OFFSETLOG} {line.format(CLEAN_LOG_DIRS[0])} >&- 2>&-")
    assert both.returncode == 2


def test_records_come_through_where_only_standard_error_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    assert shell(f"echo one | {OFFSETLOG} append {path} 2>&-").returncode == 0
    assert shell(f"{OFFSETLOG} cat {path} 2>&-").stdout == "one\n"
