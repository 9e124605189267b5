"""The end of a ``with`` block that failed: closing may fail too, and the block's own error is the one that is raised."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from offsetlog import Log, LogClosedError, LogDir, LogPoisonedError, WritableLog, WritableLogDir


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), LogPoisonedError("an earlier failure")])
@pytest.mark.parametrize("kind", [WritableLog, WritableLogDir])
def test_an_error_of_the_block_is_not_replaced_by_one_of_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, kind: type[WritableLog | WritableLogDir]
) -> None:
    real = kind.close

    def closed(self: Any) -> None:  # noqa: ANN401  # one of the two
        real(self)
        raise failure

    monkeypatch.setattr(kind, "close", closed)

    def opened() -> WritableLog | WritableLogDir:
        return Log.open(tmp_path / "t-0", "a") if kind is WritableLog else LogDir.open(tmp_path, "a")

    with pytest.raises(OSError, match="the block's own") as raised, opened():
        raise OSError(errno.ENOSPC, "the block's own")
    assert [note for note in raised.value.__notes__ if str(failure) in note]
    with pytest.raises(type(failure)), opened():
        pass


@pytest.mark.parametrize("kind", [WritableLog, WritableLogDir])
@pytest.mark.parametrize("failure", [OSError(errno.EIO, "Input/output error"), OSError(errno.ENOSPC, "No space left on device")])
@pytest.mark.parametrize(
    "own", [KeyError("a row"), GeneratorExit(), SystemExit(0), FileNotFoundError("another file"), LogClosedError("another log's")]
)
def test_what_closing_could_not_make_durable_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: BaseException, failure: OSError, kind: type[WritableLog | WritableLogDir]
) -> None:
    """Who goes on behind an error of their own would take the records for durable."""
    real = kind.close

    def closed(self: Any) -> None:  # noqa: ANN401  # one of the two
        real(self)
        raise failure

    monkeypatch.setattr(kind, "close", closed)
    opened = Log.open(tmp_path / "t-0", "a") if kind is WritableLog else LogDir.open(tmp_path, "a")
    with pytest.raises(OSError, match=str(failure.strerror)) as raised, opened:
        raise own
    assert raised.value is failure
    assert raised.value.__context__ is own


def test_what_a_writer_could_not_append_behind_an_error_of_the_block_is_raised(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "t-0", "a")

    def block() -> None:
        with log.writer() as writer:
            writer.append(b"waits")
            # As after a kill: closing it would append what waits.
            log._abandon()  # noqa: SLF001  # nothing public kills a log
            raise ValueError("the block's own")

    # The record that waited is not in the log.
    with pytest.raises(LogClosedError) as raised:
        block()
    assert isinstance(raised.value.__context__, ValueError)
