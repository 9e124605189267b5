"""What ``docs/verbs.md`` says of what a failure leaves is tried: each verb that changes files fails or is killed on its way, at several places.

Then the files are looked at, by a parser of the tests' own, and by a handle of ours; and the verb is called again, which finishes it.
"""

from __future__ import annotations

import json
import logging
import subprocess
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from failing import CALLS as REFUSABLE, Ended, Point, can_filter, in_child
from small_disk import PROGRAM
from stored_records import of_partition
from test_verbs_again import CHANGING, TRIES, copy_of
from verb_calls import BIG, CALLS, STRAY, Call, changed, folder, made
from verbs_page import Row
from writing import CONFIG, CUT, python

from offsetlog import Log, LogDir, RestoreReport, WritableLog, WritableLogDir, verify

# What a cell says -> which of the checks below shows it.
SAID = {
    "a log that is opened again, which begins anew": "begins anew",
    "folders that it made": "begins anew",
    'as `Log.open(path, "a")`': "begins anew",
    "after a crash fewer partitions, each whole, and a folder `…-delete`; none after an error": "fewer partitions",
    "a log that recovering again begins anew": "recovers",
    "the directory under its old name or its new one: call it again; of several the first may be done": "either name",
    "nothing; after a crash, and where nothing can be removed, a folder `…-delete` beside it; if only the lines of the log dir's "
    "checkpoints fail, the whole directory, and the error says so": "new directory",
    "whole partitions or none; no topic in a new cluster before all its records; after a crash, and where nothing can be removed, "
    "folders `…-delete`": "new directory",
    "whole batches up to some offset; call it again": "first batches",
    "the log as before: *whole batches*, *failed disk*; *readable*": "as before",
    "*whole batches*: the first ones may be there; *failed disk*": "first batches",
    "*whole batches*: the error says how many rows are there; *readable*": "as before",
    "*whole batches*: those of a refused batch are not there; *readable*": "as before",
    "*whole batches*; another partition may have been closed for room; *threads*": "as before",
    "*whole batches*": "as before",
    "everything before the line that it names: *whole batches*": "as before",
    "*failed disk*; of a log dir the others may not be flushed": "as before",
    "the log as before, or *failed disk*": "as before",
    "a log that the next opening recovers; the locks are given back": "as before",
    "of several partitions the first may have them: call it again": "as before",
    "a log that ends where it did, at the cut, or where a segment between begins, once it is opened again: call it again": "cut",
    "the log as before": "as before",
    "each step whole or not at all; the other partitions are done; *threads*": "step by step",
    "the segments before or those after": "before or after",
    "some partitions renamed, the others there: call it again; *late removal*": "before or after",
    "part of a folder: the next call goes on": "before or after",
    "the note, or none": "before or after",
}


@contextmanager
def _changed_dirs(root: Path) -> Iterator[WritableLogDir]:
    with LogDir.open(root / "logs", "a") as log_dir:
        log_dir.append("t", b"changed", partition=0)
        yield log_dir


# What has to be done for some of them that there is something to fail.
INSTEAD: dict[str, list[Call]] = {
    "LogDir.open": [Call(folder, lambda root: LogDir.open([root / "more" / "logs"], "a"), "fine", "works")],
    **{verb: [call._replace(opens=changed) for call in CALLS[verb]] for verb in ("Log.flush", "Log.close")},
    **{verb: [call._replace(opens=_changed_dirs) for call in CALLS[verb]] for verb in ("LogDir.flush", "LogDir.close")},
}
# Bytes beyond which no file grows: of lock files, of small ones, of an index, inside a batch, and inside the second.
SIZES = (0, 64, 700, 5000, 20_000)
PLACES: tuple[str | int, ...] = (*SIZES, *REFUSABLE)
PLACES_OF_COMMAND: tuple[str | int, ...] = (64, 5000, "rename", "unlink")


def contents(root: Path) -> dict[str, Any]:
    """Of each partition: where it starts, its records and its settings. And what else verbs change: notes, and what is to be removed."""
    found: dict[str, Any] = {"notes": sorted(path.name for path in root.glob("logs/*.json"))}
    found["removed"] = sorted(path.name for path in root.glob("logs/*-delete") if path.name.startswith("gone-"))
    for path in sorted({path.parent for path in root.rglob("*.log")}):
        if path.name.endswith("-delete") or path.parent.name.endswith("-delete") or "offsetlog-staging" in path.parts:
            continue
        with Log.open(path) as log:
            start, end = log.log_start_offset, log.log_end_offset
        config = path / CONFIG
        settings = sorted(config.read_text().splitlines()) if config.exists() else None
        records = [record for record in of_partition(path) if start <= record.offset < end]
        found[str(path.relative_to(root))] = start, records, settings
    return found


def read(root: Path, partitions: dict[str, Any]) -> None:
    """A handle reads the same records; a damaged one is read in its own tests."""
    for name, of in partitions.items():
        if name.endswith("-0") and not name.endswith("torn-0"):
            with Log.open(root / name) as log:
                seen = [(each.offset, each.key, each.value) for each in log.scan()]
            assert seen == [tuple(each[:3]) for each in of[1] if not each.is_control], name
            assert verify(root / name).errors == 0, name


def values_of(partition: Path) -> list[bytes | None]:
    return [record.value for record in of_partition(partition)]


class Failed:
    """A verb that failed on its way."""

    def __init__(self, root: Path, point: Point, ended: Ended, before: dict[str, Any], expected: dict[str, Any]) -> None:
        self.root, self.point, self.ended, self.before, self.expected = root, point, ended, before, expected
        self.now = contents(root)

    @property
    def is_done(self) -> bool:
        """Only one that died may have done it, or one whose last steps failed."""
        return bool(self.now == self.expected)

    def others_are_as_before(self, *names: str) -> None:
        for name in {*self.now, *self.before} - set(names):
            assert self.now.get(name) == self.before.get(name), name


def begins_anew(failed: Failed) -> None:
    """The one that is new may be there, and has nothing."""
    assert failed.now.get("new-0", (0, []))[:2] == (0, [])
    failed.others_are_as_before("new-0")


def fewer_partitions(failed: Failed) -> None:
    folders = list(failed.root.glob("logs/new-*"))
    made = live(failed.root)
    assert {path.name for path in made} <= {"new-0", "new-1", "new-2"}
    assert len(folders) - len(made) in {0, 1}
    assert failed.ended.is_killed or not folders
    assert all((path / "partition.metadata").read_text().startswith("version: 0\ntopic_id: ") for path in made)
    failed.others_are_as_before()


def live(root: Path) -> list[Path]:
    """The new partitions, without a folder in which some were made."""
    return [path for path in root.glob("logs/new-*") if not path.name.endswith("-delete")]


def recovers(failed: Failed) -> None:
    """Each record that was whole is in the log or in what is kept of the cut; the others are as before."""
    torn = failed.root / "logs/torn-0"
    kept = b"".join(path.read_bytes() for path in (*torn.glob("*.log"), *torn.glob("*.deleted"), *torn.glob(f"{CUT}/*")))
    for record in failed.before["logs/torn-0"][1]:
        assert record.value in kept
    failed.others_are_as_before("logs/torn-0")


def either_name(failed: Failed) -> None:
    def of(found: dict[str, Any]) -> dict[str, Any]:
        return {name.replace(STRAY, "g-plain-0"): what for name, what in found.items()}

    assert of(failed.now) == of(failed.before)


def new_directory(failed: Failed) -> None:
    """Nothing after an error; after a crash the whole of it, or nothing under its name."""
    found = {path.name for path in (*failed.root.glob("new/*"), *failed.root.glob("new-*")) if path.is_dir()}
    if not failed.is_done:
        assert failed.now == failed.before
        may_stay = failed.ended.is_killed or failed.point.what == "unlink"
        assert not {name for name in found if not (may_stay and name.endswith("-delete"))}


def first_batches(failed: Failed) -> None:
    changed = [name for name in failed.expected if failed.expected[name] != failed.before.get(name)]
    failed.others_are_as_before(*changed)
    for name in changed:
        if name in failed.now:
            _, records, _ = failed.now[name]
            assert records == failed.expected[name][1][: len(records)]
            assert len(records) >= len(failed.before.get(name, (0, []))[1])


def as_before(failed: Failed) -> None:
    assert failed.now == failed.before or (failed.ended.is_killed and failed.is_done)


def before_or_after(failed: Failed) -> None:
    assert opened_again(failed) in (failed.before, failed.expected)


def cut(failed: Failed) -> None:
    """Segments go from the end."""
    name = "logs/t-0"
    now, before, expected = opened_again(failed), failed.before[name], failed.expected[name]
    failed.others_are_as_before(name)
    if now != failed.expected:
        assert now[name][1] == before[1][: len(now[name][1])]
        assert len(now[name][1]) >= len(expected[1])
        assert (now[name][0], now[name][2]) == (before[0], before[2])


def opened_again(failed: Failed) -> dict[str, Any]:
    for name in failed.now:
        if name.startswith("logs/") and name != "logs/torn-0":
            Log.open(failed.root / name, "a").close()
    return contents(failed.root)


def step_by_step(failed: Failed) -> None:
    """What goes goes from the front."""
    for name, (start, records, settings) in partitions_of(failed.now).items():
        before, expected = failed.before[name], failed.expected[name]
        assert before[0] <= start <= expected[0]
        assert records == [record for record in before[1] if record.offset >= start]
        assert settings == before[2]
    assert set(failed.now) == set(failed.before)


def changed_from(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    return {name: of for name, of in partitions_of(now).items() if of != before.get(name)}


def partitions_of(found: dict[str, Any]) -> dict[str, Any]:
    return {name: of for name, of in found.items() if isinstance(of, tuple)}


CHECKS: dict[str, Callable[[Failed], None]] = {
    "begins anew": begins_anew,
    "fewer partitions": fewer_partitions,
    "recovers": recovers,
    "either name": either_name,
    "new directory": new_directory,
    "first batches": first_batches,
    "as before": as_before,
    "before or after": before_or_after,
    "step by step": step_by_step,
    "cut": cut,
}
KINDS = {verb: SAID[row.cells["failure leaves"]] for row in CHANGING for verb in row.verbs if row.cells["failure leaves"] in SAID}


def said(done: object) -> str:
    """What a call says failed, of those that raise nothing for it."""
    if isinstance(done, subprocess.CompletedProcess):
        return "" if done.returncode in {0, 3} else f"exit code {done.returncode}: {done.stderr[-1000:]}"
    parts = done.partitions if isinstance(done, RestoreReport) else ()
    reasons = [str(each.reason) for each in parts if each.state == "failed"]
    reasons += [str(reason) for reason in getattr(done, "failed", {}).values()]
    return "; ".join(reasons)


def prepared(tried: Call, root: Path) -> Callable[[], str]:
    opened = tried.opens(root)
    handle = opened.__enter__()

    def call() -> str:
        done = tried.call(handle)
        # Kept until here: what is dropped closes what it has open.
        assert opened is not None
        return said(done)

    return call


def called(tried: Call, root: Path) -> str:
    """Once, with all that is opened for it closed again."""
    with tried.opens(root) as handle:
        done = tried.call(handle)
        if isinstance(done, (WritableLog, WritableLogDir)):
            done.close()
        return said(done)


def one_point(root: Path, tried: Call, kind: str, point: Point, states: tuple[dict[str, Any], ...]) -> bool:
    """A call that fails there, and one more; whether it failed."""
    opened, before, expected = states
    ended = in_child(lambda: prepared(tried, root), point)
    if not ended.is_killed and not ended.failure:
        return False
    assert ended.failure != "not prepared"
    killed = ended.is_killed or "exit code -" in ended.failure
    failed = Failed(root, point, Ended(killed, ended.failure), before, expected)
    CHECKS[kind](failed)
    read(root, changed_from(opened, failed.now))
    finished = failed.is_done or (kind == "fewer partitions" and any(live(root)))
    if not finished:
        again = called(tried, root)
        assert not again, again
        # What opens some of them appends once more.
        assert contents(root) == expected or before != opened, "the second call does not finish it"
    read(root, changed_from(opened, contents(root)))
    return True


def every_point(folder: Path, whole: Path, tried: Call, kind: str, places: Iterable[str | int]) -> int:
    """How often it failed."""
    root = copy_of(whole, folder / "expected")
    opened = contents(root)
    with tried.opens(root) as handle:
        before = contents(root)
        done = tried.call(handle)
        assert not said(done)
        if isinstance(done, (WritableLog, WritableLogDir)):
            done.close()
    expected = contents(root)
    count, has_failed = 0, False
    for point in [Point(what, kills) for what in places for kills in (True, False)]:
        if not (point.kills or has_failed):
            # It does not come there.
            continue
        root = copy_of(whole, folder / "failed")
        try:
            has_failed = one_point(root, tried, kind, point, (opened, before, expected))
        except Exception as error:
            error.add_note(f"{point}")
            raise
        count += has_failed
        subprocess.run(["rm", "-r", str(root)], check=True)
    return count


def all_calls(folder: str) -> None:
    """Every call at every point, in a process that has no threads; prints what went wrong with each, and how often each failed."""
    logging.disable(logging.WARNING)
    whole = made(Path(folder) / "whole")
    wrong: dict[str, tuple[str, int]] = {}
    for verb, calls in (CALLS | INSTEAD).items():
        places = PLACES_OF_COMMAND if verb.startswith("offsetlog ") else PLACES
        if not can_filter():
            places = tuple(place for place in places if isinstance(place, int))
        for number, tried in enumerate(calls):
            place = Path(folder) / f"{verb.replace(' ', '-')}-{number}"
            place.mkdir()
            try:
                wrong[f"{verb} {number}"] = "", every_point(place, whole, tried, KINDS[verb], places)
            except Exception:  # noqa: BLE001  # told below
                wrong[f"{verb} {number}"] = traceback.format_exc()[-3000:], 0
    print(json.dumps(wrong))


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, int]]:
    said = python(PROGRAM, "test_verbs_failures", "all_calls", tmp_path_factory.mktemp("failures"), seconds=900)
    found: dict[str, tuple[str, int]] = json.loads(said.splitlines()[-1])
    return found


@pytest.mark.parametrize("row", [pytest.param(row, id=row.calls[0]) for row in CHANGING])
def test_every_row_is_tried(row: Row) -> None:
    told = row.cells["failure leaves"]
    assert told in SAID, f"nothing here tries a failure that leaves {told!r}: say how"
    assert set(row.verbs) <= set(CALLS)


def test_the_parser_of_the_tests_finds_what_was_appended(tmp_path: Path) -> None:
    root = made(tmp_path / "whole")
    assert values_of(root / "logs/t-0") == [*(b"t.%d " % number + BIG for number in range(6)), b"staged"]
    # One is damaged.
    assert values_of(root / "logs/torn-0") == [b"torn.%d " % number + BIG for number in (0, 1, 3, 4, 5)]


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "number"), TRIES)
def test_what_a_failure_leaves(verb: str, number: int, wrong: dict[str, tuple[str, int]]) -> None:
    failure, count = wrong[f"{verb} {number}"]
    assert not failure, failure
    # Else nothing was tried.
    assert count
