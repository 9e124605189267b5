"""A new partition does not take over what checkpoints of the log dir say of an earlier one of its name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from offsetlog import Log, LogDir


@pytest.mark.parametrize("others", [0, 2])
def test_a_partition_that_is_made_begins_at_offset_0(tmp_path: Path, others: int, caplog: pytest.LogCaptureFixture) -> None:
    """The earlier directory went as a deletion leaves it that ended before the checkpoints, or by hand."""
    with LogDir.open(tmp_path, "a") as log_dir:
        for topic in ["t", *(f"u{number}" for number in range(others))]:
            log_dir.create_topic(topic, 1)
            for number in range(12):
                log_dir.append(topic, b"%d" % number)
            log_dir.log(topic, 0).delete_records_before(4)
    before = {file.name: file.read_text() for file in tmp_path.glob("*-checkpoint")}
    assert any("t 0 4" in text for text in before.values())
    shutil.rmtree(tmp_path / "t-0")
    with Log.open(tmp_path / "t-0", "a") as log:
        assert log.append(b"first") == 0
    assert not caplog.text
    with LogDir.open(tmp_path) as log_dir:
        assert [(record.offset, record.value) for record in log_dir.log("t", 0).scan()] == [(0, b"first")]
        for number in range(others):
            assert log_dir.log(f"u{number}", 0).log_start_offset == 4


def test_a_partition_that_is_opened_again_keeps_its_start(tmp_path: Path) -> None:
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("t", 1)
        for number in range(12):
            log_dir.append("t", b"%d" % number)
        log_dir.log("t", 0).delete_records_before(4)
    with Log.open(tmp_path / "t-0", "a") as log:
        assert (log.log_start_offset, log.append(b"more")) == (4, 12)
