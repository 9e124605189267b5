"""Records that were deleted from a partition while a commit was on its way: were they its own? Where nothing shows it, it stops.

Drives the sink's classes as ``test_publish_failures`` does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_publish_failures import EXPECTED, ROWS, Died, found, left, run

from offsetlog import Log, commits, forget_commit
from offsetlog._commit import moving, publishing
from offsetlog.errors import LogDirError

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

OWN = [value for _, value, partition in ROWS if partition == 0]


def with_partition_0(patched: pytest.MonkeyPatch, before: Callable[[], None], after: Callable[[], None]) -> None:
    """Do this before the first partition is published, and when it was."""
    real = moving.move_to

    def moved(commit: Any, target: Any, **named: Any) -> int:  # noqa: ANN401  # as it is called
        if target.partition == 0:
            before()
        end = real(commit, target, **named)
        if target.partition == 0:
            after()
        return end

    patched.setattr(publishing, "move_to", moved)


def nothing() -> None:
    pass


def die() -> None:
    raise Died


def others(place: Path, count: int, delete_before: int | None = None) -> Callable[[], None]:
    """Another program appends records, and deletes those before an offset."""

    def act() -> None:
        with Log.open(place / "t-0", "a") as log:
            for number in range(count):
                log.append(b"of another %d" % number)
            if delete_before is not None:
                log.delete_records_before(delete_before)

    return act


@pytest.mark.parametrize("delete_before", [1, 8, 10])
def test_what_another_program_appended_and_deleted_was_not_published(tmp_path: Path, delete_before: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        with_partition_0(patched, others(tmp_path, 10, delete_before), nothing)
        with pytest.raises(LogDirError, match=r"t-0: offsets 0 to \d+ were deleted .*--forget"):
            run(tmp_path, "named")
    assert not [value for value in found(tmp_path) if value in OWN]
    # The same again, until somebody says what it was.
    with pytest.raises(LogDirError, match="were deleted"):
        run(tmp_path, "named")
    assert [note.is_published for note in commits(tmp_path)] == [False]
    forget_commit(tmp_path, "day-1", unfinished=True)
    run(tmp_path, "named")
    assert sorted({*EXPECTED} - {*found(tmp_path)}) == []


@pytest.mark.parametrize("deleted", range(len(OWN)))
@pytest.mark.parametrize("behind", [0, 3])
def test_what_is_left_shows_that_the_rest_was_published(tmp_path: Path, deleted: int, behind: int) -> None:
    """The driver died behind the first partition; then records before one that is left were deleted."""
    with pytest.MonkeyPatch.context() as patched:
        with_partition_0(patched, nothing, die)
        with pytest.raises(Died):
            run(tmp_path, "named")
    others(tmp_path, behind, deleted)()
    with Log.open(tmp_path / "t-0") as log:
        before = [record.offset for record in log.scan()]
        batches = len(list(log.batches(deleted)))
    run(tmp_path, "named")
    with Log.open(tmp_path / "t-0") as log:
        assert [record.offset for record in log.scan()] == before
    assert batches
    assert not left(tmp_path)
    assert [note.is_published for note in commits(tmp_path)] == [True]


def test_where_all_of_it_may_have_been_deleted_it_stops(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        with_partition_0(patched, nothing, die)
        with pytest.raises(Died):
            run(tmp_path, "named")
    others(tmp_path, 4, len(OWN) + 2)()
    with pytest.raises(LogDirError, match=rf"t-0: offsets 0 to {len(OWN) + 1} were deleted"):
        run(tmp_path, "named")
