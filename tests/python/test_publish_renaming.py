"""What is staged for a partition is renamed into its log where it is large enough: the same log as by copying, and each record once.

What a loss of power leaves is tried in ``rust/offsetlog-faults/tests/move_log.rs``; here commits are killed, and repeated.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_publishing import found, left, stage
from writing import Clock, environment

from offsetlog import Log, LogDir, WritableLog, commits, verify
from offsetlog._commit import moving
from offsetlog._commit.notes import Commit, make_id_of_log_dir, now_ms
from offsetlog._commit.publishing import commit, finish
from offsetlog._commit.staging import Staged, targets_of
from offsetlog._writable_log import moving_note
from offsetlog.errors import LogDirError

SEGMENT_BYTES = 2_000
# Of a value of `values`.
BATCH_BYTES = 100
MEMORY = Path("/dev/shm")  # noqa: S108  # where it exists: a folder of its own is made in it
# As the shell tells it, or as strace repeats it.
KILLED = (-9, 137)

COMMITS = """
import json, sys
from offsetlog._commit.publishing import commit
from offsetlog._commit.staging import Staged
commit(sys.argv[1], "query", 7, [Staged(*each) for each in json.loads(sys.argv[2])])
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return made(tmp_path / "logs")


def made(place: Path) -> Path:
    with LogDir.open(place, "a", clock=Clock()) as log_dir:
        log_dir.create_topic("t", 2, config={"internal.segment.bytes": SEGMENT_BYTES})
        log_dir.append("t", b"before", partition=0)
    # The calls that are counted are those of the commit.
    make_id_of_log_dir(str(place))
    return place


def values(prefix: str, count: int) -> list[str]:
    """Values that make about so many hundred bytes."""
    return [f"{prefix}.{number}".ljust(32, "x") for number in range(count)]


def bases(place: Path, partition: int = 0) -> list[int]:
    return sorted(int(path.stem) for path in (place / f"t-{partition}").glob("*.log"))


def sizes(place: Path, partition: int = 0) -> list[int]:
    return [path.stat().st_size for path in sorted((place / f"t-{partition}").glob("*.log"))]


def check_sound(place: Path, partition: int = 0) -> None:
    report = verify(place / f"t-{partition}")
    assert not report.findings, report


def inodes(place: Path) -> dict[int, str]:
    return {path.stat().st_ino: path.name for path in place.glob("t-*/**/*.log")}


def test_what_is_large_is_renamed_and_what_is_small_copied(place: Path) -> None:
    staged = stage(place, "one", {0: values("large", 30), 1: values("small", 2)})
    before = {path.stat().st_ino for path in (place / "t-0").glob("offsetlog-staging/**/*.log")}
    assert len(before) > 1
    small = {path.stat().st_ino for path in (place / "t-1").glob("offsetlog-staging/**/*.log")}
    assert commit(str(place), "query", 0, staged)
    after = set(inodes(place))
    assert before <= after
    assert not small & after
    assert found(place, 0) == list(enumerate(["before", *values("large", 30)]))
    assert found(place, 1) == list(enumerate(values("small", 2)))
    assert not left(place)
    for partition in range(2):
        check_sound(place, partition)
    # The last of them goes on as the active segment.
    count = len(bases(place))
    with Log.open(place / "t-0", "a") as log:
        log.append(b"behind")
        assert log.recovery_report.clean
    assert len(bases(place)) == count
    assert found(place, 0)[-1] == (31, "behind")
    check_sound(place)


FOLLOWS = """
import sys
from offsetlog import Log
with Log.open(sys.argv[1]) as log:
    followed = log.scan().follow(timeout_ms=300_000)
    print(log.log_end_offset, flush=True)
    print(sum(1 for _ in zip(range(30), followed)), flush=True)
"""


def test_readers_and_followers_see_what_was_renamed(place: Path) -> None:
    """In this process and in another one, with handles from before: the empty active segment is another file afterwards."""
    program = [sys.executable, "-c", FOLLOWS, str(place / "t-1")]
    with subprocess.Popen(program, env=environment(), stdout=subprocess.PIPE, text=True) as other, Log.open(place / "t-1") as reader:
        assert other.stdout is not None
        assert int(other.stdout.readline()) == 0
        followed = reader.scan().follow(timeout_ms=300_000)
        assert reader.log_end_offset == 0
        commit(str(place), "query", 0, stage(place, "one", {1: values("a", 30)}))
        reader.refresh()
        assert reader.log_end_offset == 30
        assert [(record.value or b"").decode() for record in reader.scan()] == values("a", 30)
        assert [record.offset for _, record in zip(range(30), followed, strict=False)] == list(range(30))
        assert int(other.stdout.readline()) == 30


def test_times_and_offsets_are_found_in_renamed_segments(place: Path) -> None:
    commit(str(place), "query", 0, stage(place, "one", {0: values("a", 60)}))
    with Log.open(place / "t-0") as log:
        for record in log.scan():
            assert next(iter(log.scan(record.offset))).value == record.value
            at = log.offset_for_timestamp(record.timestamp)
            assert at is not None
            assert at.offset <= record.offset
        assert log.offset_for_timestamp(1 << 60) is None


@pytest.mark.parametrize("count", [1, 4, 5, 21])
def test_as_many_segments_as_with_copying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Micro-batches below a quarter of a segment are copied: the same files. Larger ones make segments of their own: four times as many."""
    commits_each = 60 if count < 10 else 20
    with in_memory(tmp_path) as folder:
        renamed, copied = made(folder / "renamed"), made(folder / "copied")
        for sequence in range(commits_each):
            for place in (renamed, copied):
                staged = stage(place, f"a{sequence}", {0: values(f"{sequence}", count)})
                with monkeypatch.context() as patched:
                    if place == copied:
                        patched.setattr(moving, "_rename", lambda *_: False)
                    commit(str(place), "query", sequence, staged)
        assert found(renamed, 0) == found(copied, 0)
        if count * BATCH_BYTES < SEGMENT_BYTES / 4:
            assert (bases(renamed), sizes(renamed)) == (bases(copied), sizes(copied))
        else:
            # Behind the segment that was there before.
            assert len(bases(renamed)) == 1 + commits_each * math.ceil(count * BATCH_BYTES / SEGMENT_BYTES)
            assert len(bases(renamed)) <= 4 * len(bases(copied))
        check_sound(renamed)


@contextmanager
def in_memory(otherwise: Path) -> Iterator[Path]:
    """A folder in which syncs cost nothing, if there is one."""
    with tempfile.TemporaryDirectory(prefix="offsetlog-publish-", dir=MEMORY if MEMORY.is_dir() else otherwise) as folder:
        yield Path(folder)


def rolled(counts: list[int]) -> list[int]:
    """Base offsets of the segments by Kafka's rules: what does not fit behind the others begins the next one.

    What was there before is older than `segment.ms`, so it has the first segment for itself.
    """
    found, offset, size = [0, 1], 1, 0
    for count in counts:
        if size + count * BATCH_BYTES > SEGMENT_BYTES:
            found.append(offset)
            size = 0
        size += count * BATCH_BYTES
        offset += count
    return found


@pytest.mark.proof
def test_as_many_segments_as_with_copying_after_ten_thousand_micro_batches(tmp_path: Path) -> None:
    """Each has less than a quarter of a segment. What a commit does in a partition is done so often; its notes are written once."""
    with in_memory(tmp_path) as folder:
        renamed, copied = made(folder / "renamed"), made(folder / "copied")
        # Mostly the smallest ones: to open a log of many segments takes long. What is copied stays, so one staged log a size serves all.
        counts = random.Random("sizes").choices([1, 2, 3, 4], [20, 1, 1, 2], k=10_000)
        staged = {count: stage(renamed, f"a{count}", {0: values(f"{count}", count)}) for count in set(counts)}
        targets = {count: targets_of(of_size, str(renamed), preserve_offsets=False)[0] for count, of_size in staged.items()}
        assert {target.size_bytes for target in targets.values()} == {100, 200, 300, 400}
        note = Commit(
            "query", 0, is_published=False, preserve_offsets=False, keep=True, targets=tuple(targets.values()), time=now_ms()
        )
        patience = moving.Patience(0)
        end = 1
        for count in counts:
            end = moving.move_to(note, targets[count]._replace(start=end), still=lambda: None, patience=patience)
        assert end == 1 + sum(counts)
        # With renaming switched off, as `move_to` then does it, on a log that stays open.
        with Log.open(copied / "t-0", "a") as log:
            assert isinstance(log, WritableLog)
            for count in counts:
                moving._copy(log, Path(targets[count].directory, targets[count].staged[0]), 0, preserve_offsets=False)  # noqa: SLF001
        assert bases(copied) == rolled(counts)
        assert (bases(renamed), sizes(renamed)) == (bases(copied), sizes(copied))
        assert found(renamed, 0) == found(copied, 0)
        check_sound(renamed)


@pytest.mark.parametrize("when", ["noted", "numbered"])
def test_others_write_between_the_halves_of_a_move(place: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """It begins and dies; another program appends; the next commit numbers what is left anew."""
    staged = stage(place, "one", {0: values("ours", 60)})
    names = sorted((place / "t-0").glob("offsetlog-staging/**/*.log"))
    assert len(names) > 2
    # As a commit that is killed leaves it: all is noted, the first segment may be there, the others are numbered or not.
    with monkeypatch.context() as patched:
        patched.setattr(moving, "_rename", die)
        with pytest.raises(Died):
            commit(str(place), "query", 7, staged)
    shutil.copytree(names[0].parent, place / "aside")
    with Log.open(place / "t-0", "a") as log:
        assert log._move_log(str(names[0].parent), staged[0].batches) is not None  # noqa: SLF001  # the first half of a commit
        log.flush()
    if when == "noted":
        # Renaming came to the first segment only.
        with Log.open(place / "t-0", "a") as log:
            log.truncate_to(bases(place)[-len(names) + 1])
        for name in names[1:]:
            shutil.copy(place / "aside" / name.name, name)
    assert moving_note(str(names[0].parent)) is not None
    with Log.open(place / "t-0", "a") as log:
        log.append(b"another's")
    assert finish(str(place)) == ["query"]
    assert [value for _, value in found(place, 0) if value.startswith("ours")] == values("ours", 60)
    assert len(found(place, 0)) == 62
    assert not left(place)
    check_sound(place)


class Died(BaseException):
    """The process, in the middle of something."""


def die(*_: object) -> bool:
    raise Died


def test_a_move_whose_files_are_gone_is_taken_back(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of what was staged is removed by hand, behind the note: nothing of it stays, and the job that comes again writes all."""
    staged = stage(place, "one", {0: values("ours", 60)})
    names = sorted((place / "t-0").glob("offsetlog-staging/**/*.log"))
    shutil.copytree(names[0].parent, place / "aside")
    with monkeypatch.context() as patched:
        patched.setattr(moving, "_rename", die)
        with pytest.raises(Died):
            commit(str(place), "query", 7, staged)
    with Log.open(place / "t-0", "a") as log:
        log._move_log(str(names[0].parent), staged[0].batches)  # noqa: SLF001  # as above
        log.truncate_to(bases(place)[-1])
    with Log.open(place / "t-0", "a") as log, pytest.raises(LogDirError, match=r"moved in part|staged batches"):
        log._move_log(str(names[0].parent), 3)  # noqa: SLF001  # as above
    assert finish(str(place)) == []
    assert commit(str(place), "query", 7, stage(place, "two", {0: values("ours", 60)}))
    assert [value for _, value in found(place, 0)] == ["before", *values("ours", 60)]
    assert [note.sequence for note in commits(str(place))] == [7]
    check_sound(place)


def test_a_note_that_is_not_ours_is_refused(place: Path) -> None:
    staged = stage(place, "one", {0: values("ours", 60)})
    folder = Path(staged[0].directory, staged[0].path)
    for text in ("", "1\n1 2 3\n", "0\n1 2\n", "0\n1 2 3 4\n", "0\n1 2 -3\n", "0\n99999999999 2 3\n", "0\n1 2 3"):
        (folder / ".offsetlog.moving").write_text(text)
        with pytest.raises(LogDirError, match="not a note of version 0"):
            moving_note(str(folder))
        with Log.open(place / "t-0", "a") as log, pytest.raises(LogDirError):
            log._move_log(str(folder), staged[0].batches)  # noqa: SLF001  # the engine reads it too
    assert found(place, 0) == [(0, "before")]


def test_a_staged_log_that_is_open_or_damaged_is_not_moved(place: Path) -> None:
    staged = stage(place, "one", {0: values("ours", 60)})
    folder = Path(staged[0].directory, staged[0].path)
    with Log.open(place / "t-0", "a") as log:
        assert isinstance(log, WritableLog)
        with pytest.raises(LogDirError, match="60 staged batches, 59 expected"):
            log._move_log(str(folder), 59)  # noqa: SLF001  # what a commit calls
        path = sorted(folder.glob("*.log"))[1]
        data = bytearray(path.read_bytes())
        data[80] ^= 1
        path.write_bytes(data)
        with pytest.raises(Exception, match="checksum"):
            log._move_log(str(folder), 60)  # noqa: SLF001  # as above
        assert moving_note(str(folder)) is None
    assert found(place, 0) == [(0, "before")]


@pytest.mark.slow
def test_killed_at_any_call_and_repeated(tmp_path: Path) -> None:
    """The process is killed by the nth call that changes the disk; the job comes again, after another's append half of the time."""
    if shutil.which("strace") is None:
        pytest.skip("strace is missing: apt-get install strace")
    calls = "rename,renameat,renameat2,pwrite64,fsync,fdatasync,ftruncate"
    rng = random.Random("kills")
    killed = 0
    for number, nth in enumerate(sorted(rng.sample(range(1, 150), 24))):
        place = made(tmp_path / f"logs-{number}")
        batches = {0: values("zero", 60), 1: values("one", 40)}
        staged = stage(place, "one", batches)
        status = committed(place, staged, f"{calls}:signal=SIGKILL:when={nth}")
        assert status in {0, *KILLED}, status
        killed += status in KILLED
        if number % 2:
            with Log.open(place / "t-1", "a") as log:
                log.append(b"another's")
        commit(str(place), "query", 7, stage(place, "two", batches))
        for partition, expected in batches.items():
            assert [value for _, value in found(place, partition) if "." in value] == expected, (nth, status)
            check_sound(place, partition)
        assert not left(place)
        shutil.rmtree(place)
    assert killed > 5


def committed(place: Path, staged: list[Staged], fault: str) -> int:
    """The commit in a process of its own, which a call kills. An interpreter that starts makes none of these calls."""
    trace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={fault.partition(':')[0]}", "-e", f"inject={fault}"]
    program = [sys.executable, "-B", "-c", COMMITS, str(place), json.dumps([tuple(each) for each in staged])]
    return subprocess.run([*trace, *program], env=environment(), check=False, timeout=300).returncode
