"""What a type checker knows of what `open` returns. mypy reads this file in `make lint`, where an ignored error that is none is one."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, assert_type

import pytest

from offsetlog import Log, LogDir, WritableLog, WritableLogDir

MODES: list[Literal["r", "a"]] = ["a", "r"]


def test_a_reader_has_no_append(tmp_path: Path) -> None:
    with assert_type(Log.open(tmp_path / "t-0", "a"), WritableLog) as writer:
        writer.append(b"one")
    with assert_type(Log.open(tmp_path / "t-0"), Log) as log, pytest.raises(AttributeError, match="opened for reading"):
        log.append(b"two")  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="opened for reading"):
        Log.open(tmp_path / "t-0", "r").append(b"two")  # type: ignore[attr-defined]


def test_a_reader_of_log_dirs_creates_no_topic(tmp_path: Path) -> None:
    with assert_type(LogDir.open(tmp_path, "a"), WritableLogDir) as writer:
        writer.create_topic("t", 1)
    with assert_type(LogDir.open(tmp_path), LogDir) as log_dir, pytest.raises(AttributeError, match="opened for reading"):
        log_dir.create_topic("u", 1)  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_that_is_known_later_gives_what_both_have(tmp_path: Path, mode: Literal["r", "a"]) -> None:
    Log.open(tmp_path / "t-0", "a").close()
    with assert_type(Log.open(tmp_path / "t-0", mode), Log) as log:
        assert log.log_end_offset == 0
        assert isinstance(log, WritableLog) == (mode == "a")
    with assert_type(LogDir.open(tmp_path, mode), LogDir) as log_dir:
        assert isinstance(log_dir, WritableLogDir) == (mode == "a")
