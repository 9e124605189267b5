"""``maintain_every``: the thread that maintains a log dir, when it fails, and when the log dir is closed meanwhile."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from writing import values

from offsetlog import Log, LogDir, WritableLogDir


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_ctrl_c_while_closing_waits_for_upkeep_closes_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partitions are flushed and free, and the writer's records are there."""
    runs, goes_on = threading.Event(), threading.Event()

    real = WritableLogDir.maintain

    def slow(self: WritableLogDir) -> object:
        runs.set()
        goes_on.wait(300)
        return real(self)

    log_dir = LogDir.open(tmp_path, "a", maintain_every=0.01)
    log_dir.create_topic("t")
    log_dir.append("t", b"a")
    writer = log_dir.log("t", 0).writer(linger_ms=0)
    writer.append(b"b")
    with monkeypatch.context() as patched:
        patched.setattr(WritableLogDir, "maintain", slow)
        assert runs.wait(300)
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            log_dir.close()
        timer.join()
        assert log_dir.closed
        goes_on.set()
        eventually(lambda: "offsetlog-maintain" not in [thread.name for thread in threading.enumerate()])
    log_dir.close()
    with Log.open(tmp_path / "t-0", "a") as log:
        assert log.recovery_report.clean
        assert values(log) == [b"a", b"b"]


def test_a_second_call_closes_what_the_first_did_not(tmp_path: Path) -> None:
    """As when Ctrl-C comes before it has done anything."""
    log_dir = LogDir.open(tmp_path, "a")
    log_dir.create_topic("t")
    log_dir.append("t", b"a")
    log_dir._native = None  # noqa: SLF001  # as far as the first call came
    log_dir.close()
    with Log.open(tmp_path / "t-0", "a") as log:
        assert log.recovery_report.clean
    log_dir.close()


@pytest.mark.parametrize("kind", [ValueError, MemoryError, KeyError, SystemExit])
def test_upkeep_goes_on_after_any_error(
    kind: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a clock that raises once. The error is in the logger."""
    real, calls, done = WritableLogDir.maintain, [0], threading.Event()

    def maintain(self: WritableLogDir) -> object:
        calls[0] += 1
        if calls[0] < 3:
            raise kind("once")
        done.set()
        return real(self)

    monkeypatch.setattr(WritableLogDir, "maintain", maintain)
    with LogDir.open(tmp_path, "a", maintain_every=0.01) as log_dir:
        log_dir.create_topic("t")
        assert done.wait(300)
    failed = [each for each in caplog.records if each.message.startswith("upkeep failed")]
    assert len(failed) == 2
    assert all(each.levelname == "ERROR" and each.exc_info is not None and each.exc_info[0] is kind for each in failed)


def test_upkeep_goes_on_after_a_clock_that_raised(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broken, asked = threading.Event(), threading.Event()

    def clock() -> int:
        if broken.is_set() and threading.current_thread().name == "offsetlog-maintain":
            asked.set()
            raise RuntimeError("no time")
        return 1_700_000_000_000

    with LogDir.open(tmp_path, "a", clock=clock, maintain_every=0.01) as log_dir:
        log_dir.create_topic("t", config={"internal.segment.bytes": 200, "segment.index.bytes": 1000, "retention.bytes": 300})
        broken.set()
        assert asked.wait(300)
        for _ in range(8):
            log_dir.append("t", bytes(100))
        eventually(lambda: "upkeep failed" in caplog.text)
        broken.clear()
        eventually(lambda: next(iter(log_dir.beginning_offsets().values())) > 0)
    assert "no time" in caplog.text
