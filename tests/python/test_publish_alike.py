"""Two jobs at once whose records are byte for byte the same: each publishes its own, and takes back no other's.

Their rows have timestamps of their own, so that batches of both have the same checksums.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from test_publish_failures import EXPECTED, Died, found, left, run

from offsetlog import commits, forget_commit
from offsetlog._commit import moving, publishing, staging
from offsetlog.errors import LogDirError, LogLockedError, OffsetLogError
from offsetlog.spark import sink

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

AT = 1_700_000_000_000


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "LOCK_SECONDS", 120)


def planned_together(patched: pytest.MonkeyPatch, jobs: int) -> None:
    """No job writes its note before all have looked where the logs end."""
    barrier, real = threading.Barrier(jobs), staging.targets_of

    def targets_of(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401  # as it is called
        targets = real(*arguments, **named)
        # Who looks again finds it broken.
        with suppress(threading.BrokenBarrierError):
            barrier.wait(5)
            barrier.abort()
        return targets

    patched.setattr(publishing, "targets_of", targets_of)


def together(place: Path, kinds: list[str]) -> list[BaseException | None]:
    """What each job ended with."""
    ended: list[BaseException | None] = [None] * len(kinds)

    def job(number: int) -> None:
        try:
            run(place, kinds[number], at=AT)
        except (OSError, OffsetLogError) as error:
            ended[number] = error

    threads = [threading.Thread(target=job, args=(number,)) for number in range(len(kinds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ended


@pytest.mark.parametrize("kinds", [["named", "stream"], ["nameless", "named"], ["nameless", "nameless"]])
def test_each_publishes_its_own(tmp_path: Path, kinds: list[str]) -> None:
    run(tmp_path, "nameless", topic="other")
    with pytest.MonkeyPatch.context() as patched:
        planned_together(patched, 2)
        assert together(tmp_path, kinds) == [None, None]
    assert found(tmp_path) == sorted(EXPECTED * 2)
    assert not left(tmp_path)


def test_what_one_takes_back_is_not_the_others(tmp_path: Path) -> None:
    """The second one fails in its third partition."""
    real, lock, seen = moving.move_to, threading.Lock(), 0

    def moved(commit: Any, target: Any, **named: Any) -> int:  # noqa: ANN401  # as it is called
        nonlocal seen
        if target.partition == 2:
            with lock:
                seen += 1
                is_second = seen == 2
            if is_second:
                raise OSError(errno.EIO, "Input/output error")
        return real(commit, target, **named)

    with pytest.MonkeyPatch.context() as patched:
        planned_together(patched, 2)
        patched.setattr(publishing, "move_to", moved)
        ended = together(tmp_path, ["nameless", "nameless"])
    assert [str(error) for error in ended if error is not None] == ["[Errno 5] Input/output error"]
    assert found(tmp_path) == EXPECTED
    assert not left(tmp_path)


@contextmanager
def at_work(place: Path, kind: str) -> Iterator[None]:
    """A job that publishes meanwhile, and goes on behind that."""
    is_at_work, may_go_on, real = threading.Event(), threading.Event(), moving.move_to

    def moved(commit: Any, target: Any, **named: Any) -> int:  # noqa: ANN401  # as it is called
        is_at_work.set()
        assert may_go_on.wait(120)
        return real(commit, target, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(publishing, "move_to", moved)
        # Else another one would finish what this one is about to do.
        patched.setattr(sink, "finish", lambda *_, **__: [])
        working = threading.Thread(target=run, args=(place, kind), kwargs={"at": AT})
        working.start()
        assert is_at_work.wait(120)
        try:
            yield
        finally:
            may_go_on.set()
            working.join()


def test_one_that_is_not_done_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job that waits names the other one, and what to do."""
    monkeypatch.setattr(publishing, "LOCK_SECONDS", 0.3)
    told = r"t-\d: the commit of 'job day-1' is not done.*--forget 'job day-1'"
    with at_work(tmp_path, "named"), pytest.raises(LogLockedError, match=told):
        run(tmp_path, "stream", at=AT)
    assert found(tmp_path) == EXPECTED
    run(tmp_path, "stream", at=AT)
    assert found(tmp_path) == sorted(EXPECTED * 2)
    assert [note.is_published for note in commits(tmp_path)] == [True, True]


def test_one_that_gives_up_waiting_leaves_no_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the job's other log dirs, where they would say that a note of its name is in the first one."""
    monkeypatch.setattr(publishing, "LOCK_SECONDS", 0.3)
    first, second = tmp_path / "first", tmp_path / "second"
    run(first, "named", topic="other")
    run(second, "nameless", topic="elsewhere")
    both = f"{first},{second}"
    run(first, "nameless", at=AT)
    with at_work(first, "nameless"), pytest.raises(LogLockedError, match="is not done"):
        run(both, "stream", at=AT)  # type: ignore[arg-type]  # its text is the path
    assert not [*second.glob("offsetlog-commit-*.at")]
    run(both, "stream", at=AT)  # type: ignore[arg-type]  # as above
    assert [*second.glob("offsetlog-commit-*.at")]
    assert found(first) == sorted(EXPECTED * 3)


@pytest.mark.parametrize("published", [0, 1])
@pytest.mark.parametrize("kind", ["nameless", "named"])
def test_a_job_that_somebody_lets_go_does_not_say_that_it_is_published(tmp_path: Path, kind: str, published: int) -> None:
    """The note of a nameless one is gone, as if somebody else had finished it."""
    run(tmp_path, "nameless", topic="other")
    seen, real = 0, moving.move_to

    def moved(commit: Any, target: Any, **named: Any) -> int:  # noqa: ANN401  # as it is called
        nonlocal seen
        if seen == published:
            forget_commit(tmp_path, commit.name, unfinished=True)
        seen += 1
        return real(commit, target, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(publishing, "PARTITIONS_AT_ONCE", 1)
        patched.setattr(publishing, "move_to", moved)
        with pytest.raises(LogDirError, match="taken back or forgotten") as failed:
            run(tmp_path, kind)
    assert any("what was published of it until then stays" in note for note in failed.value.__notes__)
    assert len(found(tmp_path)) == 10 * published
    assert not left(tmp_path)
    run(tmp_path, kind)
    assert len(found(tmp_path)) == 30 + 10 * published
    for told in tmp_path.glob("offsetlog-given-up-*"):
        os.utime(told, (0, 0))
    run(tmp_path, "nameless", topic="other")
    assert not [*tmp_path.glob("offsetlog-given-up-*")]


def test_an_unfinished_commit_is_let_go_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is the way out of a commit that cannot go on."""
    with suppress(Died), pytest.MonkeyPatch.context() as patched:
        patched.setattr(publishing, "move_to", died)
        run(tmp_path, "named")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "touch", full)
    monkeypatch.setattr(Path, "rename", full)
    assert forget_commit(tmp_path, "day-1", unfinished=True).name == "job day-1"
    assert commits(tmp_path) == []
    assert not left(tmp_path)


def died(*_: object, **__: object) -> None:
    raise Died


def test_others_records_keep_nobody(tmp_path: Path) -> None:
    """Jobs with other records publish at the same time."""
    with pytest.MonkeyPatch.context() as patched:
        planned_together(patched, 2)
        kinds = enumerate(["named", "stream"])
        threads = [threading.Thread(target=run, args=(tmp_path, kind), kwargs={"at": AT + number}) for number, kind in kinds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found(tmp_path) == sorted(EXPECTED * 2)
