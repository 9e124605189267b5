"""A look at the disk that fails is no answer: a job fails then, or goes on, and each record is there once when it has run again."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from test_publish_failures import EXPECTED, ROWS, Died, failing, found, left, run

from offsetlog import LogDir, LogDirError, commits
from offsetlog._commit import looks, publishing

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "LOCK_SECONDS", 0.2)


@contextmanager
def unreadable(at: int, name: str, *, lasting: bool = False) -> Iterator[list[str]]:
    """Let the n-th look fail, or all from then on, and tell what they were at."""
    seen, failed, real = 0, [], getattr(looks, name)

    def called(path: Any, **named: Any) -> Any:  # noqa: ANN401  # as it is called
        nonlocal seen
        seen += 1
        if seen == at or (lasting and seen > at):
            failed.append(str(path))
            raise OSError(errno.EIO, "Input/output error", str(path))
        return real(path, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(looks, name, called)
        yield failed


class Spread:
    """Two log dirs of one job: the first has the notes, both have partitions of its topic."""

    def __init__(self, folder: Path) -> None:
        self.paths = [folder / "first", folder / "second"]
        with LogDir.open(self.paths, "a") as log_dir:
            log_dir.create_topic("t", 3)

    def __str__(self) -> str:
        return ",".join(map(str, self.paths))

    def append_others(self) -> None:
        with LogDir.open(self.paths, "a") as log_dir:
            for number in range(3):
                log_dir.log("t", number).append(b"other's")

    def found(self) -> list[str]:
        with LogDir.open(self.paths) as log_dir:
            return sorted((record.value or b"").decode() for record in log_dir.scan([("t", number) for number in range(3)]))


def died_half_way(place: Any, kind: str, at: int = 5) -> None:  # noqa: ANN401  # a path, or what is written as some
    with suppress(Died), failing(at, Died()):
        run(place, kind)


@pytest.mark.parametrize("name", ["_look", "_names"])
def test_a_job_that_goes_on_after_its_driver_died(tmp_path: Path, name: str) -> None:
    """Some of it is published, the rest is staged, and the look fails while it runs again."""
    failed = 0
    # Many of the looks are at one thing.
    for at in range(1, 400, 3 if name == "_look" else 1):
        (tmp_path / str(at)).mkdir()
        place = Spread(tmp_path / str(at))
        died_half_way(place, "named")
        with unreadable(at, name) as paths, suppress(OSError, LogDirError):
            run(place, "named")  # type: ignore[arg-type]  # its text is the path
        if not paths:
            break
        failed += 1
        # Behind that, nothing can be taken back any more.
        place.append_others()
        run(place, "named")  # type: ignore[arg-type]  # as above
        assert place.found() == sorted([*EXPECTED, *["other's"] * 3]), (at, paths)
        assert [note.is_published for path in place.paths for note in commits(path)] == [True], (at, paths)
    assert failed > 3


@pytest.mark.parametrize("name", ["_look", "_names"])
def test_a_job_that_runs_where_others_died(tmp_path: Path, name: str) -> None:
    """What they staged is kept for them, and the jobs that run meanwhile are published once."""
    failed = 0
    # Many of the looks are at one thing.
    for at in range(1, 400, 5 if name == "_look" else 1):
        place = tmp_path / str(at)
        run(place, "nameless", topic="other")
        died_half_way(place, "named")
        with unreadable(at, name) as paths, suppress(OSError, LogDirError):
            run(place, "stream", topic="s", rows=ROWS[:9])
        if not paths:
            break
        failed += 1
        run(place, "stream", topic="s", rows=ROWS[:9])
        run(place, "named")
        assert found(place) == EXPECTED, (at, paths)
        assert found(place, "s") == sorted(value for _, value, _ in ROWS[:9]), (at, paths)
        assert not left(place), (at, paths)
    assert failed > 3


@pytest.mark.parametrize(("name", "lasting"), [("_look", False), ("_names", False), ("_names", True)])
def test_a_job_that_fails_for_another_reason(tmp_path: Path, name: str, lasting: bool) -> None:
    """Its driver is alive and cleans up: what its note needs stays."""
    failed = 0
    for at in range(1, 400, 3 if name == "_look" else 1):
        place = tmp_path / str(at)
        run(place, "nameless", topic="other")
        full = OSError(errno.ENOSPC, "No space left on device")
        with failing(5, full), unreadable(at, name, lasting=lasting) as paths, suppress(OSError, LogDirError):
            run(place, "named")
        if not paths:
            break
        failed += 1
        for note in commits(place):
            staged = [Path(target.directory, path) for target in note.targets for path in target.staged]
            assert note.is_published or all(path.is_dir() for path in staged), (at, paths)
        run(place, "named")
        assert found(place) == EXPECTED, (at, paths)
        assert not left(place), (at, paths)
    assert failed > 3
