"""What ``docs/verbs.md`` says of a second call is tried: what each verb that changes files does when it is called again."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import verbs_page
from test_verbs_table import OF_SPARK
from verb_calls import CALLS, Call, made, shell
from verbs_page import Row
from writing import LOCK, tree

from offsetlog import Log, LogDirError, LogLockedError, OffsetLogError, WritableLog, WritableLogDir

CHANGING = [
    row
    for row in verbs_page.rows(verbs_page.text())
    if row.cells["changes files"].startswith("yes") and not set(row.verbs) <= OF_SPARK
]
# What a cell says -> the kinds of second calls that show it.
SAID = {
    "refused while the first is open, here too: *one writer*": {"locked"},
    "fine: several of ours share a log dir": {"fine"},
    "the same log; *threads*": {"same"},
    "refused: the topic is there": {"refused: the topic is there"},
    "finds nothing to do": {"nothing"},
    "nothing to do: exit code 1": {"nothing", "exit 1"},
    "refused: the directory is not empty": {"refused: not empty"},
    (
        "what is there is left if it is the same, record for record, with producers and leader epochs that the cluster takes, the topic's id, "
        "and nothing that a broker would recover, and what is lost in it is told again; anything else is refused, with what to do. "
        "In `bootstrap.checkpoint` what differs is corrected"
    ): {"nothing", "refused: something else"},
    "goes on where each copy ends": {"goes on"},
    "appends again; a producer's sequence that was there is answered and not appended": {"again", "answered"},
    "kept offsets are refused; others are appended again": {"again", "offsets refused"},
    "appends again; kept offsets are refused": {"again", "offsets refused"},
    "appends again; closing twice is fine": {"again"},
    "appends again; refused where another program deleted the topic": {"again", "refused: deleted"},
    "refused: there is no open transaction any more": {"refused: no open transaction"},
    "appends again": {"again"},
    "nothing to do": {"nothing"},
    "an empty segment stays": {"nothing"},
    "the same again": {"same settings"},
    "nothing to take away": {"nothing", "nothing more"},
    "nothing more to do until more is due; *late removal*, *the log's clock*": {"nothing more"},
    "nothing new to compact": {"nothing"},
    "refused: there is no such topic": {"refused: no such topic"},
    "refused: there is no such note": {"refused: no such note"},
}
REFUSALS = {
    "locked": (LogLockedError, "lock"),
    "refused: the topic is there": (LogDirError, "is there"),
    "refused: not empty": (LogDirError, "empty"),
    "refused: no open transaction": (OffsetLogError, "no open transaction"),
    "refused: no such topic": (LogDirError, "no topic"),
    "refused: no such note": (LogDirError, "no commit is called"),
    "refused: deleted": (LogDirError, "deleted"),
    "offsets refused": (OffsetLogError, "offset"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("verbs"))


def copy_of(whole: Path, root: Path) -> Path:
    subprocess.run(["cp", "-a", str(whole), str(root)], check=True)
    return root


def bytes_of(root: Path) -> dict[str, bytes | None]:
    """All but lock files, which each opening signs, and what every closing writes anew."""
    return tree(root, without=(LOCK, ".lock", ".offsetlog.state"))


def live(root: Path) -> dict[str, bytes | None]:
    """The records alone: what is renamed to be removed, goes when a log is opened."""
    return {name: data for name, data in bytes_of(root).items() if name.endswith(".log")}


def records(root: Path) -> int:
    """Offsets of all partitions, those of markers among them."""
    count = 0
    for path in {path.parent for path in root.rglob("*.log")}:
        if not path.name.endswith("-delete"):
            with Log.open(path) as log:
                count += log.log_end_offset - log.log_start_offset
    return count


def check_refused(kind: str, call: Callable[[], object]) -> None:
    error, words = REFUSALS[kind]
    try:
        done = call()
    except error as caught:
        if words not in str(caught):
            raise
        return
    assert isinstance(done, subprocess.CompletedProcess), f"not refused: {done!r}"
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert words in done.stderr, done.stderr


def succeeded(done: Any) -> Any:  # noqa: ANN401  # what a verb returns
    if isinstance(done, subprocess.CompletedProcess):
        assert done.returncode in {0, 3}, (done.args, done.stdout, done.stderr)
    return done


@pytest.mark.parametrize("row", [pytest.param(row, id=row.calls[0]) for row in CHANGING])
def test_every_row_and_verb_is_tried(row: Row) -> None:
    said = row.cells["second call"]
    assert said in SAID, f"nothing here tries a second call of which is said {said!r}: say how"
    for verb in row.verbs:
        assert verb in CALLS, f"nothing here calls {verb}: say how"
    tried = {call.second for verb in row.verbs for call in CALLS[verb]}
    assert tried == SAID[said], (row.verbs, said)


TRIES = [pytest.param(verb, number, id=f"{verb}-{number}") for verb, calls in CALLS.items() for number in range(len(calls))]


class Twice:
    """A verb that was called once; what `again` shows is what its kind says."""

    def __init__(self, root: Path, tried: Call, handle: Any) -> None:  # noqa: ANN401  # whatever it is called on
        self.root, self.tried, self.handle = root, tried, handle
        self.before = records(root)
        self.first = succeeded(tried.call(handle))
        self.bytes, self.count = bytes_of(root), records(root)

    def again(self) -> Any:  # noqa: ANN401  # what it returns
        return succeeded(self.tried.call(self.handle))

    def unchanged(self) -> None:
        assert bytes_of(self.root) == self.bytes
        assert records(self.root) == self.count


def is_refused(twice: Twice) -> None:
    check_refused(twice.tried.second, lambda: twice.tried.call(twice.handle))
    twice.unchanged()


def is_refused_when_deleted(twice: Twice) -> None:
    """By another program; one that has a partition open keeps others from that."""
    twice.handle.log("t", 0).close()
    succeeded(shell("delete", "t", "logs")(twice.root))
    twice.bytes, twice.count = bytes_of(twice.root), records(twice.root)
    is_refused(twice)


def appends(twice: Twice) -> None:
    twice.again()
    assert records(twice.root) - twice.count == twice.count - twice.before > 0


def is_answered(twice: Twice) -> None:
    again = twice.again()
    assert (again.base_offset, again.last_offset) == (twice.first.base_offset, twice.first.last_offset)
    twice.unchanged()


def does_nothing(twice: Twice) -> None:
    done = twice.tried.call(twice.handle)
    if isinstance(done, subprocess.CompletedProcess):
        assert done.returncode in {0, 1}, (done.stdout, done.stderr)
    twice.unchanged()


def ends_with_1(twice: Twice) -> None:
    assert twice.tried.call(twice.handle).returncode == 1  # type: ignore[attr-defined]  # of a program
    twice.unchanged()


def does_nothing_more(twice: Twice) -> None:
    """The records are the same; what is renamed to be removed may go."""
    before = live(twice.root)
    twice.again()
    assert (live(twice.root), records(twice.root)) == (before, twice.count)


def stays(twice: Twice) -> None:
    assert twice.again() is not None
    assert records(twice.root) == twice.count


def is_fine(twice: Twice) -> None:
    second = twice.again()
    assert isinstance(second, WritableLogDir)
    second.append("t", b"by the second", partition=0)
    second.close()
    assert records(twice.root) == twice.count + 1


def leaves_something_else(twice: Twice) -> None:
    with Log.open(twice.root / "new/t-0", "a") as log:
        log.append(b"another's")
    before = bytes_of(twice.root)
    (part,) = twice.tried.call(twice.handle).partitions  # type: ignore[attr-defined]  # a report
    assert "not what is to be restored" in part.reason
    assert bytes_of(twice.root) == before


def goes_on(twice: Twice) -> None:
    source, copy = twice.root / "logs/t-0", twice.root / "mirror/t-0"
    before = bytes_of(copy)
    twice.again()
    assert bytes_of(copy) == before
    with Log.open(source, "a") as log:
        log.append(b"more")
    twice.again()
    with Log.open(source) as ours, Log.open(copy) as theirs:
        assert [record.value for record in theirs.scan()] == [record.value for record in ours.scan()]


KINDS: dict[str, Callable[[Twice], None]] = {
    **dict.fromkeys(REFUSALS, is_refused),
    "refused: deleted": is_refused_when_deleted,
    "refused: something else": leaves_something_else,
    "again": appends,
    "answered": is_answered,
    "nothing": does_nothing,
    "same settings": does_nothing,
    "nothing more": does_nothing_more,
    "exit 1": ends_with_1,
    "same": stays,
    "fine": is_fine,
    "goes on": goes_on,
}


@pytest.mark.parametrize(("verb", "number"), TRIES)
def test_the_second_call(verb: str, number: int, whole: Path, tmp_path: Path) -> None:
    root = copy_of(whole, tmp_path / "root")
    tried = CALLS[verb][number]
    with tried.opens(root) as handle:
        twice = Twice(root, tried, handle)
        KINDS[tried.second](twice)
        if isinstance(twice.first, (WritableLog, WritableLogDir)):
            twice.first.close()
