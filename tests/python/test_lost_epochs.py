"""The leader epochs' file is lost: the batches say what stood in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from writing import SMALL, Clock

from offsetlog import Log


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("loss", ["missing", "empty"])
@pytest.mark.parametrize("active", ["filled", "empty"])
def test_epochs_are_read_from_the_batches(tmp_path: Path, loss: str, clean: bool, active: str) -> None:
    path = tmp_path / "orders-0"
    with Log.open(path, "a", SMALL, clock=Clock()) as log:
        for epoch in range(6):
            log.append(b"", leader_epoch=epoch)
            if epoch % 2 and (epoch < 5 or active == "empty"):
                log.roll()
    file = path / "leader-epoch-checkpoint"
    before = file.read_bytes()
    if loss == "missing":
        file.unlink()
    else:
        file.write_bytes(b"")
    with Log.open(path, "a", clock=Clock(), clean=clean, recovery_point=None if clean else 0) as log:
        assert [log.end_offset_for_epoch(epoch) for epoch in range(7)] == [*[(epoch, epoch + 1) for epoch in range(6)], None]
        log.append(b"")
        assert [record.leader_epoch for record in log.scan()] == [0, 1, 2, 3, 4, 5, 5]
    assert file.read_bytes() == before


@pytest.mark.parametrize("clean", [True, False])
def test_an_append_never_goes_back_in_epochs(tmp_path: Path, clean: bool) -> None:
    path = tmp_path / "orders-0"
    with Log.open(path, "a", SMALL, clock=Clock()) as log:
        log.append(b"", leader_epoch=7)
    (path / "leader-epoch-checkpoint").unlink()
    with Log.open(path, "a", clock=Clock(), clean=clean) as log:
        log.append(b"")
        assert [record.leader_epoch for record in log.scan()] == [7, 7]
        assert log.leader_epoch == 7
