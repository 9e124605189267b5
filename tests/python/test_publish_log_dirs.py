"""A job of several log dirs, in whatever order they are named and whichever is not mounted: each record is there once."""

from __future__ import annotations

import errno
import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from test_publish_failures import EXPECTED, ROWS, Died, failing, found, run
from test_publish_whereabouts import KINDS, Named, again, marks

from offsetlog import LogDir, LogDirError, commits, forget_commit

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def made(folder: Path, **topics: str) -> list[Path]:
    """Make log dirs, each with the topic that is given for it; with none where the text is empty."""
    places = []
    for name, topic in topics.items():
        places.append(folder / name)
        with LogDir.open(places[-1], "a") as log_dir:
            if topic:
                log_dir.create_topic(topic, 3)
    return places


@pytest.mark.parametrize("is_published", [True, False])
@KINDS
def test_the_topic_lies_beside_the_note_and_another_log_dir_is_named_first(tmp_path: Path, kind: str, is_published: bool) -> None:
    first, second = made(tmp_path, first="t", second="other")
    if is_published:
        again(first, second, kind=kind)
    else:
        with failing(5, Died()), suppress(Died):
            again(first, second, kind=kind)
    assert [note.is_published for note in commits(first)] == [is_published]
    before = found(first)
    for _ in range(2):
        with pytest.raises(LogDirError, match="name it first among the log dirs, as before") as refused:
            again(second, first, kind=kind)
        assert refused.value.path == str(first)
    assert found(first) == before
    again(first, second, kind=kind)
    assert found(first) == EXPECTED
    assert not commits(second)


@pytest.mark.parametrize("how", ["missing", "empty"])
@KINDS
def test_the_topic_lies_beside_the_note_and_that_log_dir_is_not_mounted(tmp_path: Path, kind: str, how: str) -> None:
    first, second = made(tmp_path, first="t", second="other")
    again(first, second, kind=kind)
    first.rename(tmp_path / "aside")
    if how == "empty":
        first.mkdir()
    with pytest.raises(OSError, match="Mount it, or name it first") as refused:
        again(first, second, kind=kind)
    assert (refused.value.errno, refused.value.filename) == (errno.ENODEV, str(second))
    assert not list(second.glob("t-?"))
    shutil.rmtree(first, ignore_errors=True)
    (tmp_path / "aside").rename(first)
    again(first, second, kind=kind)
    assert found(first) == EXPECTED


def test_a_note_of_an_earlier_run_with_fewer_log_dirs_is_named_first(tmp_path: Path) -> None:
    """As a job has it that gets one more log dir; what the error says works."""
    first, second = made(tmp_path, first="t", second="other")
    run(first, "named")
    assert "log_dirs" not in next(iter(first.glob("offsetlog-commit-*.json"))).read_text()
    with pytest.raises(LogDirError, match="forget 'job day-1' .*publishes all of its records, also those"):
        again(second, first, kind="named")
    forget_commit(first, "job day-1")
    again(second, first, kind="named")
    assert found(first) == sorted(EXPECTED * 2)


def test_the_note_names_the_log_dirs_and_its_marks_go_with_it(tmp_path: Path) -> None:
    first, second, third = made(tmp_path, first="t", second="other", third="")
    again(first, second, third, kind="named")
    (path,) = first.glob("offsetlog-commit-*.json")
    assert json.loads(path.read_text())["log_dirs"] == [str(first), str(second), str(third)]
    assert [len(marks(place)) for place in (first, second, third)] == [0, 1, 1]
    forget_commit(first, "day-1")
    assert not marks(first, second, third)


def test_a_note_that_was_copied_leaves_the_marks_of_the_originals(tmp_path: Path) -> None:
    first, second = made(tmp_path, first="t", second="other")
    again(first, second, kind="named")
    copy = Path(shutil.copytree(first, tmp_path / "copy"))
    forget_commit(copy, "day-1")
    assert len(marks(second)) == 1


def broker_moves(directory: Path, to: Path) -> Path:
    """A broker copies the records of a partition, and removes the old directory with all else in it."""
    new = to / directory.name
    shutil.copytree(directory, new, ignore=shutil.ignore_patterns("offsetlog-*"))
    shutil.rmtree(directory)
    return new


@pytest.mark.parametrize("where", ["beside the note", "elsewhere"])
def test_half_way_a_partition_was_moved_to_where_the_commit_has_none(tmp_path: Path, where: str) -> None:
    places = made(tmp_path, first="here", second="t", third="other")
    with failing(9, Died()), suppress(Died):
        again(*places, kind="named")
    noted = commits(places[0])
    assert not noted[0].is_published
    new = broker_moves(places[1] / "t-0", places[0] if where == "beside the note" else places[2])
    before = {place: found(place) for place in places}
    with pytest.raises(OSError, match="t-0 was moved here from .* was half-way") as refused:
        again(*places, kind="named")
    assert (refused.value.errno, refused.value.filename) == (errno.EXDEV, str(new))
    assert {place: found(place) for place in places} == before
    assert commits(places[0]) == noted
