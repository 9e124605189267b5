"""A crash at every step of the swap of a compaction: opened by offsetlog and by Kafka, and read before anybody opened it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import log_files
import pytest
from interface import Batch, Clock, Opening, Row
from kafka_log import KafkaLog, Oracle
from our_log import OurLog

from offsetlog import Log

SETTINGS = {"internal.segment.bytes": "400", "cleanup.policy": "compact", "index.interval.bytes": "0"}
SUFFIXES = (".timeindex", ".index", ".log")
OURS = shutil.ignore_patterns(".offsetlog*", "offsetlog-*", "*.deleted")
Steps = Iterator[tuple[str, bool, dict[str, Path]]]


def steps(before: Path, after: Path, group: list[str]) -> Steps:
    """Each state of the directory while `group` becomes its first segment; whether the new segment counts; files by name."""
    old = {path.name: path for path in before.iterdir()}
    new = {suffix: after / f"{group[0]}{suffix}" for suffix in SUFFIXES}
    replaced = [f"{base}{suffix}" for base in group for suffix in (".log", ".index", ".timeindex")]
    replaced += [f"{base}.snapshot" for base in group[1:]]
    replaced = [name for name in replaced if name in old]

    def state(live: int, swap: int, cleaned: int, deleted: int) -> dict[str, Path]:
        """The first so many of the new files by state, and how many of the old ones are renamed."""
        files = {name: path for name, path in old.items() if name not in replaced[:deleted]}
        files |= {f"{name}.deleted": old[name] for name in replaced[:deleted]}
        order = [new[suffix] for suffix in (SUFFIXES if deleted < len(replaced) else tuple(reversed(SUFFIXES)))]
        files |= {path.name: path for path in order[:live]}
        files |= {f"{path.name}.swap": path for path in order[live : live + swap]}
        return files | {f"{path.name}.cleaned": path for path in order[live + swap : live + swap + cleaned]}

    for written in range(4):
        yield f"{written} files written", False, state(0, 0, written, 0)
    for ready in (1, 2):
        yield f"{ready} files ready", False, state(0, ready, 3 - ready, 0)
    for deleted in range(len(replaced) + 1):
        yield f"{deleted} old files renamed", True, state(0, 3, 0, deleted)
    for live in (1, 2, 3):
        yield f"{live} new files in place", True, state(live, 3 - live, 0, len(replaced))


def records(path: Path) -> list[tuple[int, bytes | None, bytes | None]]:
    """What a reader finds."""
    with Log.open(path) as log:
        return [(one.offset, one.key, one.value) for one in log.scan()]


@pytest.mark.parametrize("clean", [True, False])
def test_crash_at_every_step(oracle: Oracle, folder: Path, *, clean: bool) -> None:
    below = folder / "crash"
    shutil.rmtree(below, ignore_errors=True)
    clock = Clock()
    ours = OurLog(below / "made" / "t-0", clock)
    ours.directory.parent.mkdir(parents=True)
    ours.open(Opening(SETTINGS))
    for number in range(18):
        # Every third record is the only one of its key.
        key = b"k%d" % (number % 5 if number % 3 else 100 + number)
        ours.append_rows(Batch((Row(clock.now + number, key, b"%d" % number),)), "records", 0)
        if number % 6 == 5:
            ours.roll()
    ours.close(clean=True)
    before, after = below / "before", below / "after"
    shutil.copytree(ours.directory, before, ignore=OURS)
    bases = [f"{base:020}" for base in log_files.bases(before)]
    ours.open(Opening(SETTINGS | {"internal.segment.bytes": "900"}))
    ours.log.compact(0)
    ours.close(clean=True)
    shutil.copytree(ours.directory, after, ignore=OURS)
    left = [f"{base:020}" for base in log_files.bases(after)]
    assert len(left) < len(bases)
    # The first group alone is swapped; those behind it are as before.
    group = bases[: bases.index(left[1])]
    seen = 0
    wanted: dict[bool, list[tuple[int, bytes | None, bytes | None]]] = {}
    for told, is_new, files in steps(before, after, group):
        sides = []
        for name in ("ours", "kafka"):
            made = below / name / "t-0"
            shutil.rmtree(made.parent, ignore_errors=True)
            made.mkdir(parents=True)
            for file, source in files.items():
                shutil.copy2(source, made / file)
            sides.append(made)
        read = records(sides[0])
        mine, theirs = OurLog(sides[0], clock), KafkaLog(oracle, sides[1], "crash")
        opening = Opening(SETTINGS, clean=clean, recovery_point=0)
        assert mine.open(opening)[:4] == theirs.open(opening)[:4], told
        assert records(sides[0]) == read, told
        logs = [{path.name: path.read_bytes() for path in side.glob("*.log")} for side in sides]
        assert logs[0] == logs[1], told
        # Old segments behind the last record that the new one holds are not known to be replaced: they may stay. What they hold has
        # later records of the same keys.
        first = wanted.setdefault(is_new, read)
        assert set(read) <= set(first), told
        assert dict(one[1:] for one in read) == dict(one[1:] for one in wanted[False]), told
        for side in sides:
            assert not [path.name for path in side.iterdir() if path.suffix in {".cleaned", ".swap"}], told
        mine.close(clean=False)
        theirs.close(clean=False)
        seen += 1
    assert seen > 12
    assert len(wanted[True]) < len(wanted[False]) == 18
