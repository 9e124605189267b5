"""The notes of commits: listed, forgotten, in Python and on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from test_publish_failures import EXPECTED, ROWS, found, left, run
from test_stream_identity import ID, micro_batch
from writing import Clock

from offsetlog import Log, LogDir, commits, forget_commit
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
    twice = "what is published of them stays, and is there twice if the job runs again"
    with pytest.raises(
        LogDirError, match=rf"'job day-1' is not finished: its job run again.*say --unfinished: {twice}, which publishes all of them"
    ):
        forget_commit(place, "job day-1")
    code, text, error = command("--forget", "day-1", place)
    assert (code, text) == (2, "")
    assert twice in error
    assert commits(place)
    assert forget_commit(place, "job day-1", unfinished=True).records == 30
    assert not commits(place)
    published = found(place)
    assert published.count("before") == 3
    run(place, "nameless", topic="other")
    assert found(place) == published
    assert not left(place)
    # It is as the error says.
    run(place, "named")
    again = Counter(found(place))
    assert again == Counter(published) + Counter(EXPECTED)
    assert {again[value] for value in EXPECTED} == {1, 2}


def test_notes_of_names_stay_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A century later, behind many other jobs, with every record removed by retention: what was published is published."""
    place = tmp_path / "logs"
    run(place, "named")
    for number in (4, 5):
        micro_batch(place, ["streamed"], number, topic="u")
    names = [note.name for note in commits(place)]
    assert names == ["job day-1", f"query {ID}"]
    later = time.time_ns() + 100 * 365 * 24 * 3600 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: later)
    monkeypatch.setattr(time, "time", lambda: later / 1e9)
    # Files may be as old as their log dir says, or be copied without their times.
    for path in place.rglob("*"):
        os.utime(path, (1, 1))
    for number in range(20):
        run(place, "nameless", topic="other", rows=ROWS[:3])
        micro_batch(place, [f"{number}"], number, query=f"another {number}", topic="other")
    with LogDir.open(place, "a", clock=Clock(later // 10**6)) as log_dir:
        log_dir.maintain()
        for topic in ("t", "u"):
            for number in log_dir.topics()[topic]:
                log = log_dir.log(topic, number)
                log.delete_records_before(log.log_end_offset)
        log_dir.maintain()
    assert found(place) == found(place, "u") == []
    assert [code for code, _, _ in (command(place), command("--json", place))] == [0, 0]
    assert [note.name for note in commits(place) if "another" not in note.name] == names
    caplog.clear()
    run(place, "named")
    micro_batch(place, ["streamed"], 5, topic="u")
    micro_batch(place, ["streamed"], 4, topic="u")
    assert [record.levelname for record in caplog.records if "what was staged again is dropped" in record.message] == 3 * ["WARNING"]
    assert found(place) == found(place, "u") == []
    assert len(commits(place)) == 22
    # Only who forgets one publishes again.
    forget_commit(place, "day-1")
    run(place, "named")
    assert found(place) == EXPECTED
    assert not left(place)
