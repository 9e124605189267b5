"""The notes of commits: listed, forgotten, in Python and on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_publish_failures import found, left, run

from offsetlog import Log, commits, forget_commit
from offsetlog._commit import publishing
from offsetlog.errors import LogDirError, LogLockedError


def command(*arguments: object) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "offsetlog", "commits", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_notes_are_listed_and_forgotten(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    run(place, "named")
    run(place, "stream", topic="u")
    code, text, _ = command(place)
    assert code == 0
    assert [line.split()[:5] for line in text.splitlines()] == [
        ["NAME", "MICRO-BATCH", "STATE", "AT", "RECORDS"],
        ["job", "day-1", "-", "published", text.splitlines()[1].split()[4]],
        ["query", "q", "7", "published", text.splitlines()[2].split()[4]],
    ]
    code, text, _ = command("--json", place)
    job, query = map(json.loads, text.splitlines())
    assert (job["name"], job["sequence"], job["state"], job["records"]) == ("job day-1", None, "published", 30)
    assert job["partitions"][0] == {"topic": "t", "partition": 0, "start": 0, "end": 10, "records": 10}
    assert query["sequence"] == 7
    assert command("--forget", "day-1", place)[0] == 0
    assert [note.name for note in commits(place)] == ["query q"]
    # It may publish anew.
    run(place, "named")
    assert len(found(place)) == 60


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    place.mkdir()
    assert command(place) == (1, "", "")
    code, text, error = command("--forget", "day-1", place)
    assert (code, text) == (2, "")
    assert "no commit is called 'day-1'" in error
    assert command(tmp_path / "missing")[0] == 2
    assert command(place, "--unfinished")[0] == 2
    assert command(place, "--forgot", "x")[0] == 2
    (place / "offsetlog-commit-0.json").write_text('{"version": 7}')
    code, _, error = command(place)
    assert code == 2
    assert "version 7 found, 0 or 1 expected" in error


def test_folders_that_have_no_notes_are_refused_and_left_as_they_are(tmp_path: Path) -> None:
    for name in ("log-dir-1", "log-dir-2"):
        run(tmp_path / "around" / name, "named")
    around = tmp_path / "around"
    before = sorted(tmp_path.rglob("*"))
    for arguments in ((around,), ("--forget", "day-1", around)):
        code, text, error = command(*arguments)
        assert (code, text) == (2, "")
        assert f"the folder around 2: give them instead: {around / 'log-dir-1'} {around / 'log-dir-2'}" in error
    for use in (commits, lambda path: forget_commit(path, "day-1")):
        with pytest.raises(LogDirError, match="the folder around 2"):
            use(around)
        with pytest.raises(LogDirError, match="a partition's directory found, the log dir around it expected"):
            use(around / "log-dir-1" / "t-0")
        with pytest.raises(FileNotFoundError):
            use(tmp_path / "missing")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(LogDirError, match="no commit is called 'day-1'"):
        forget_commit(empty, "day-1")
    assert sorted(tmp_path.rglob("*")) == sorted([*before, empty])


def test_an_unfinished_commit_is_forgotten_only_when_that_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "LOCK_SECONDS", 0.2)
    place = tmp_path / "logs"
    run(place, "nameless", rows=[("k", "before", number) for number in range(3)])
    with Log.open(place / "t-1", "a"), pytest.raises(LogLockedError):
        run(place, "named")
    with pytest.raises(LogDirError, match=r"'job day-1' is not finished: its job run again.*publishes all of them"):
        forget_commit(place, "job day-1")
    assert commits(place)
    assert forget_commit(place, "job day-1", unfinished=True).records == 30
    assert not commits(place)
    published = found(place)
    assert published.count("before") == 3
    run(place, "nameless", topic="other")
    assert found(place) == published
    assert not left(place)
