"""What ``docs/verbs.md`` says of a full disk is tried: each verb that changes files, with 0 bytes free and a little more.

What fails for want of room raises ENOSPC, or the command says so; everything is then as it was before; with room the same call does it.
"""

from __future__ import annotations

import errno
import json
import logging
import subprocess
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_disk import SmallDisk, run_there, small_disk
from test_verbs_again import CHANGING, TRIES, copy_of
from verb_calls import CALLS, STRAY, Call, made
from verbs_page import Row

from offsetlog import Log, LogPoisonedError, RestoreReport, WritableLog, WritableLogDir, verify

# What a cell says -> the kinds of calls on a full disk that show it.
SAID = {
    "*room*; the copy goes on when there is some": {"mirror"},
    "*room*": {"works", "fails", "goes on", "as before", "mirror", "tells"},
    "fails; what was made is removed again": {"fails"},
    "fails before it cuts where what is cut finds no room": {"fails"},
    "fails; the same call goes on": {"goes on"},
    "fails, and nothing is made": {"fails"},
    "the partition fails, nothing is left of it; the others and the next call go on": {"fails"},
    "syncs what is written": {"works"},
    "fails, and the log is as before": {"as before"},
    "*room*; closed all the same": {"closed"},
    "fails, and the old ones hold": {"fails"},
    "works with 0 bytes free": {"works"},
    "*room*: its mark that the log is at work needs some": {"as before"},
    "needs room for one segment, else fails without harm: *room*": {"before or after"},
}
# Pages that are free. A program is started for each call of the command.
ROOMS = (0, 1, 2, 3, 4, 5, 6, 8, 11, 16, 24, 36, 60, 100)
ROOMS_OF_COMMAND = (0, 2, 5, 100)
NO_ROOM = "No space left"


def state(root: Path) -> dict[str, object]:
    """Of each partition, wherever it lies: offsets, records and settings. What is to be deleted is left out."""
    found: dict[str, object] = {}
    for path in sorted({path.parent for path in root.rglob("*.log")}):
        if path.name.endswith("-delete") or "offsetlog-staging" in path.parts:
            continue
        with Log.open(path) as log:
            records = [(record.offset, record.key, record.value) for record in log.scan(on_corrupt="skip")]
            ends = log.log_start_offset, log.log_end_offset, log.last_stable_offset
        config = path / ".offsetlog.config"
        settings = sorted(config.read_text().splitlines()) if config.exists() else None
        found[str(path.relative_to(root))] = ends, records, settings
    return found


def no_room(call: Callable[[], object]) -> tuple[bool, object]:
    """Whether it found no room, and what it returned. Whatever else fails is raised."""
    try:
        done = call()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return True, None
    except LogPoisonedError as error:
        if NO_ROOM not in str(error):
            raise
        return True, None
    # The command, and reports of several partitions, say it in words.
    if isinstance(done, subprocess.CompletedProcess):
        reasons = [] if done.returncode in {0, 3} else [done.stderr + done.stdout]
    else:
        parts = done.partitions if isinstance(done, RestoreReport) else ()
        reasons = [str(each.reason) for each in parts if each.state == "failed"]
        reasons += [str(reason) for reason in getattr(done, "failed", {}).values()]
    assert all(NO_ROOM in reason for reason in reasons), reasons
    return bool(reasons), done


def one_room(root: Path, disk: SmallDisk, tried: Call, room: int, expected: dict[str, object]) -> bool:
    """A call with so many pages free, and again with room for all; whether it found no room."""
    with tried.opens(root) as handle:
        before = state(root)
        if tried.full == "closed":
            is_full = closed(root, disk, handle, room)
        else:
            disk.leave(room)
            is_full, done = no_room(lambda: tried.call(handle))
            now = state(root)
            disk.leave()
            if isinstance(done, (WritableLog, WritableLogDir)):
                done.close()
            assert not is_full or tried.full != "works" or room > 0, "there was no room"
            assert is_full or tried.full not in {"fails", "before or after"} or room > 0, "there was room"
            is_done = not is_full
            if is_full:
                is_done = check_failed(tried, before, now, expected, done)
            if not is_done:
                again, done = no_room(lambda: tried.call(handle))
                assert not again, done
    if tried.full != "closed":
        assert state(root) == expected
    for path in root.glob("*/*-0"):
        # What is there is sound, but for the one that was damaged before.
        assert path.name == "torn-0" or not verify(path).damaged, path
    return is_full


def check_failed(tried: Call, before: dict[str, Any], now: dict[str, Any], expected: dict[str, Any], done: object) -> bool:
    """What a call left that found no room; whether it has done its work all the same."""
    if tried.full == "tells":
        assert isinstance(done, subprocess.CompletedProcess)
        is_done = "1 record appended" in done.stderr
        assert is_done or "nothing appended" in done.stderr
        assert now == (expected if is_done else before)
        return is_done
    if tried.full == "mirror":
        copies = {name: of for name, of in now.items() if name not in before}
        assert set(copies) <= {"mirror/t-0"}
        for (_, end, _), records, _ in copies.values():
            assert records == before["logs/t-0"][1][: len(records)]
            assert end == len(records)
    elif tried.full == "goes on":
        # Under its old name or its new one; a new log may be there, and has nothing.
        assert now.pop("new-0", ((0, 0, 0), [], None))[:2] == ((0, 0, 0), [])
        names = {f"broker/{STRAY}": "broker/g-plain-0"}
        assert {names.get(name, name): of for name, of in now.items()} == {names.get(name, name): of for name, of in before.items()}
    elif tried.full == "before or after":
        assert now in (before, expected)
    else:
        assert now == before
    return False


def closed(root: Path, disk: SmallDisk, handle: Any, room: int) -> bool:  # noqa: ANN401  # one log, or a log dir
    """A log that was appended to is closed: with room or without, it is closed, and what was appended is there."""
    log = handle.log("t", 0) if isinstance(handle, WritableLogDir) else handle
    offset = log.append(b"before the end")
    disk.leave(room)
    is_full, _ = no_room(handle.close)
    assert handle.closed
    disk.leave()
    with Log.open(root / "logs/t-0", "a") as again:
        found = again.get(offset)
        assert found is not None
        assert found.value == b"before the end"
        assert again.append(b"behind") == offset + 1
    return is_full


def all_calls(folder: str, what: str) -> None:
    """Every call on one full disk after the other; prints what went wrong with each."""
    logging.disable(logging.WARNING)
    whole = made(Path(folder) / "whole")
    wrong = {}
    for verb, calls in CALLS.items():
        is_command = verb.startswith("offsetlog ")
        for number, tried in enumerate(calls):
            if is_command != (what == "command"):
                continue
            try:
                every_room(Path(folder), whole, tried, ROOMS_OF_COMMAND if is_command else ROOMS)
            except Exception:  # noqa: BLE001  # told below
                wrong[f"{verb} {number}"] = traceback.format_exc()[-3000:]
            else:
                wrong[f"{verb} {number}"] = ""
    print(json.dumps(wrong))


def every_room(folder: Path, whole: Path, tried: Call, rooms: tuple[int, ...]) -> None:
    expected: dict[str, object] = {}
    for room in (None, *rooms):
        with small_disk(folder / f"disk-{room}") as disk:
            root = copy_of(whole, disk.path / "root")
            if room is None:
                with tried.opens(root) as handle:
                    done = tried.call(handle)
                    if isinstance(done, (WritableLog, WritableLogDir)):
                        done.close()
                expected = state(root)
            else:
                try:
                    is_full = one_room(root, disk, tried, room, expected)
                except Exception as error:
                    error.add_note(f"with {room} pages free")
                    raise
                if not is_full:
                    return
    raise AssertionError("it never has room")


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    found: dict[str, str] = {}
    for what in ("python", "command"):
        found |= json.loads(run_there("test_verbs_full_disk", "all_calls", tmp_path_factory.mktemp(what), what).splitlines()[-1])
    return found


@pytest.mark.parametrize("row", [pytest.param(row, id=row.calls[0]) for row in CHANGING])
def test_every_row_is_tried(row: Row) -> None:
    said = row.cells["full disk"]
    assert said in SAID, f"nothing here tries a full disk of which is said {said!r}: say how"
    tried = {call.full for verb in row.verbs for call in CALLS[verb]}
    assert tried <= SAID[said], (row.verbs, said)


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "number"), TRIES)
def test_with_0_bytes_free_and_more(verb: str, number: int, wrong: dict[str, str]) -> None:
    assert not wrong[f"{verb} {number}"], wrong[f"{verb} {number}"]
