"""A broker that runs while a log is opened, and ends: what its checkpoint had not reached yet is no secret any more."""

from __future__ import annotations

import shutil
from pathlib import Path

from golden import CLEAN_LOG_DIRS, named
from writing import HOLD, running

from offsetlog import Log

GOLDEN = named("g-plain-0")[0]
REACHED = 120


def test_committed_readers_get_all_of_a_broker_that_ended(tmp_path: Path) -> None:
    """While it ran the high watermark, which a broker writes each five seconds, was their end, as on the broker."""
    log_dir = Path(shutil.copytree(CLEAN_LOG_DIRS[0], tmp_path / "logs"))
    checkpoint = log_dir / "replication-offset-checkpoint"
    checkpoint.write_text(f"0\n1\ng-plain 0 {REACHED}\n", encoding="utf-8")
    with running(HOLD, log_dir / ".lock") as broker:
        log = Log.open(log_dir / GOLDEN.name)
        assert log.last_stable_offset == REACHED
        broker.kill()
        broker.wait()
        assert log.last_stable_offset == GOLDEN.end
        assert [record.offset for record in log.scan(isolation_level="read_committed")] == [row.offset for row in GOLDEN.rows]
        log.close()
