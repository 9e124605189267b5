"""A job died half-way, and runs again while one of its log dirs is not mounted: its records are not there twice once it is."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from golden import CLEAN
from test_publish_failures import EXPECTED, ROWS, Died, failing, found, left, run

from offsetlog import Commit, Log, LogConfig, LogDir, commits, forget_commit
from offsetlog._commit import notes
from offsetlog._commit.places import metadata_among
from offsetlog._commit.publishing import commit
from offsetlog._commit.staging import STAGING, Stage, Staged
from offsetlog.errors import ConfigError, LogDirError
from offsetlog.spark.write import _published_even_so

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


class Places:
    """Two log dirs. The first has the note and topic `here`, the second has topic `t`."""

    def __init__(self, folder: Path) -> None:
        self.first, self.second, self.aside = folder / "first", folder / "second", folder / "aside"
        with LogDir.open(self.first, "a") as log_dir:
            log_dir.create_topic("here", 3)
        with LogDir.open(self.second, "a") as log_dir:
            log_dir.create_topic("t", 3)

    def __str__(self) -> str:
        return f"{self.first},{self.second}"

    def run(self, kind: str, **given: object) -> None:
        run(self, kind, **given)  # type: ignore[arg-type]  # its text is the path

    def run_here(self, rows: list[tuple[str, str, int]]) -> None:
        """Another job, which names only the log dir that is there. One that names both is refused: keys would go to other partitions."""
        with pytest.raises(LogDirError, match="is the disk of this one mounted"):
            self.run("nameless", topic="here", rows=rows)
        run(self.first, "nameless", topic="here", rows=rows)

    def unmount(self, how: str) -> None:
        self.second.rename(self.aside)
        if how == "empty":
            self.second.mkdir()
        elif how == "made anew":
            topic_id = None
            with LogDir.open(self.aside) as log_dir:
                topic_id = log_dir.log("t", 0).topic_id
            with LogDir.open(self.second, "a") as log_dir:
                log_dir.create_topic("t", 3, topic_id=topic_id)

    def mount(self) -> None:
        shutil.rmtree(self.second, ignore_errors=True)
        self.aside.rename(self.second)

    def spread(self) -> None:
        """Make topic `t` anew, with partitions in both."""
        for place, topic in ((self.first, "here"), (self.second, "t")):
            with LogDir.open(place, "a") as log_dir:
                log_dir.delete_topic(topic)
        with LogDir.open([self.first, self.second], "a") as log_dir:
            log_dir.create_topic("t", 3)
        assert any(self.first.glob("t-?"))
        assert any(self.second.glob("t-?"))

    def found(self) -> list[str]:
        with LogDir.open([self.first, self.second]) as log_dir:
            partitions = [("t", number) for number in log_dir.topics()["t"]]
            return sorted((record.value or b"").decode() for record in log_dir.scan(partitions))


@pytest.mark.parametrize("how", ["gone", "empty"])
def test_a_task_makes_no_partition_that_went_away(tmp_path: Path, how: str) -> None:
    """Its rows were routed before. A directory made then would hide the log, and what is published there is lost when that is back."""
    place = tmp_path / "logs"
    run(place, "named")
    directory, aside = place / "t-1", tmp_path / "t-1"
    settings, rows = LogConfig(), pa.RecordBatch.from_pydict({"value": pa.array([b"late"])})
    stage = Stage("job", "attempt")
    stage.append("t", 0, str(place / "t-0"), settings, rows, preserve_offsets=False)
    directory.rename(aside)
    if how == "empty":
        directory.mkdir()
    with pytest.raises(FileNotFoundError, match="mount its log dir again") as failed:
        stage.append("t", 1, str(directory), settings, rows, preserve_offsets=False)
    assert (failed.value.errno, failed.value.filename) == (errno.ENOENT, str(directory))
    stage.abandon()
    assert [*directory.glob("*")] == []
    assert directory.exists() == (how == "empty")
    assert not left(place)


@pytest.mark.parametrize("how", ["gone", "empty", "staged anew"])
@pytest.mark.parametrize("kind", ["named", "nameless"])
def test_nothing_is_published_into_a_partition_that_went_away(tmp_path: Path, kind: str, how: str) -> None:
    place = tmp_path / "logs"
    run(place, "nameless", topic="other")
    with LogDir.open(place, "a") as log_dir:
        log_dir.create_topic("t", 3)
    directory, aside = place / "t-1", tmp_path / "t-1"

    def unmounted() -> None:
        directory.rename(aside)
        if how != "gone":
            directory.mkdir()
        if how == "staged anew":
            shutil.copytree(aside / STAGING, directory / STAGING)

    with pytest.raises(OSError, match=r"is no more|No such file|not mounted") as failed:
        run(place, kind, staged=unmounted)
    assert isinstance(failed.value, FileNotFoundError)
    assert all(not list(Log.open(place / name).scan()) for name in ("t-0", "t-2"))
    shutil.rmtree(directory, ignore_errors=True)
    aside.rename(directory)
    run(place, kind)
    assert found(place) == EXPECTED


def told_by(error: Exception) -> list[str]:
    return getattr(error, "__notes__", [])


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.log")}


def half_way(folder: Path, kind: str, *, spread: bool = False) -> Iterator[tuple[int, Places, list[Commit]]]:
    """Yield log dirs with a commit that died half-way, and its note: once for each moment at which it can, of which there are some."""
    count = 0
    for at in range(1, 60):
        (folder / str(at)).mkdir()
        places = Places(folder / str(at))
        if spread:
            places.spread()
        with failing(at, Died()) as seen, suppress(Died):
            places.run(kind)
        if seen() < at:
            assert count >= 3
            return
        noted = commits(places.first)
        if noted and not noted[0].is_published:
            count += 1
            yield at, places, noted
    pytest.fail("a commit without an end")


@pytest.mark.parametrize("how", ["missing", "empty", "made anew"])
@pytest.mark.parametrize("kind", ["named", "stream"])
def test_it_waits_until_it_is_mounted(tmp_path: Path, kind: str, how: str) -> None:
    """Whatever was published, and whatever stands in the log dir's place."""
    for at, places, noted in half_way(tmp_path, kind):
        places.unmount(how)
        before = files(places.first.parent)
        for _ in range(2):
            with pytest.raises(OSError, match="Mount it, or have a link") as refused:
                places.run(kind)
            assert refused.value.errno == errno.ENODEV
            assert refused.value.filename == str(places.second)
        assert commits(places.first) == noted
        assert {name: text for name, text in files(places.first.parent).items() if "staging" not in name} == {
            name: text for name, text in before.items() if "staging" not in name
        }
        # Another topic is nobody's business.
        if how == "made anew":
            places.run("nameless", topic="here", rows=ROWS[:3])
        else:
            places.run_here(ROWS[:3])
        assert len(found(places.first, "here")) == 3
        places.mount()
        places.run(kind)
        assert found(places.second) == EXPECTED, at
        assert not left(places.second), at


def test_one_that_was_published_is_not_published_again(tmp_path: Path) -> None:
    """The topic is not made anew either."""
    places = Places(tmp_path)
    places.run("named")
    for how in ("missing", "empty"):
        places.unmount(how)
        with pytest.raises(OSError, match="Mount it, or have a link"):
            places.run("named")
        places.mount()
        places.run("named")
        assert found(places.second) == EXPECTED
    places.unmount("made anew")
    with pytest.raises(ConfigError, match="t-0 ends at 0 now"):
        places.run("named")


def test_a_nameless_job_is_left_until_it_is_mounted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The next write of anybody takes back what it had published, when it can."""
    places = Places(tmp_path)
    with suppress(Died), failing(4, Died()):
        places.run("nameless")
    (note,) = commits(places.first)
    places.unmount("empty")
    with caplog.at_level(logging.WARNING, "offsetlog"):
        places.run_here(ROWS[:3])
    assert "cannot be finished now" in caplog.text
    assert commits(places.first) == [note]
    places.mount()
    places.run("nameless", topic="here", rows=ROWS[3:6])
    assert not commits(places.first)
    assert found(places.second) == EXPECTED


def test_a_log_dir_that_is_gone_for_good(tmp_path: Path) -> None:
    """What the error says lets the name be used again."""
    places = Places(tmp_path)
    with suppress(Died), failing(4, Died()):
        places.run("named")
    places.unmount("empty")
    with pytest.raises(OSError, match="forget 'job day-1' --unfinished"):
        places.run("named")
    forget_commit(places.first, "day-1", unfinished=True)
    with pytest.raises(LogDirError, match="open it alone for appending first"):
        places.run("named")
    LogDir.open(places.second, "a").close()
    places.run("named")
    assert places.found() == EXPECTED


def test_a_log_dir_restored_from_a_backup_goes_on(tmp_path: Path) -> None:
    """Its folder is another one, and has what was staged."""
    places = Places(tmp_path)
    with suppress(Died), failing(4, Died()):
        places.run("named")
    shutil.copytree(places.second, places.aside)
    shutil.rmtree(places.second)
    # Another file may get the number of the one that is gone.
    (tmp_path / "other").mkdir()
    places.aside.rename(places.second)
    places.run("named")
    assert found(places.second) == EXPECTED


def test_a_partition_whose_disk_cannot_be_read_is_not_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the disk is no answer."""
    places = Places(tmp_path)
    with suppress(Died), failing(4, Died()):
        places.run("named")
    real = os.stat

    def stat(path: object, *arguments: object, **named: object) -> os.stat_result:
        if str(path) == str(places.second / "t-1"):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return real(path, *arguments, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", stat)
        for kind in ("named", "nameless"):
            with pytest.raises(OSError, match="Input/output error"):
                places.run(kind)
    # Nothing is staged where the process happens to be.
    assert not Path(STAGING).exists()
    assert len(commits(places.first)) == 1
    places.run("named")
    assert found(places.second) == EXPECTED


def test_without_the_metadata_that_told_of_replicas_nothing_goes_on(tmp_path: Path) -> None:
    """It lies in a folder of its own, which is not there when the commit is to be finished."""
    folders = [shutil.copytree(CLEAN / name, tmp_path / name) for name in ("log-dir-1", "log-dir-2", "metadata-dir")]
    place = next(folder for folder in folders if (folder / "g-plain-0").is_dir())
    metadata, aside = folders[2], tmp_path / "aside"
    with Log.open(place / "g-plain-0") as log:
        end = log.log_end_offset

    def staged(attempt: str) -> list[Staged]:
        stage = Stage("job", attempt)
        rows = pa.RecordBatch.from_pydict({"value": pa.array([b"a", b"b"])})
        stage.append("g-plain", 0, str(place / "g-plain-0"), LogConfig(), rows, preserve_offsets=False)
        return stage.close()

    def again(attempt: str, given: Path) -> bool:
        return commit(str(place), "job one", None, staged(attempt), metadata=metadata_among([str(given)]))

    with suppress(Died), failing(3, Died()):
        again("first", metadata)
    (note,) = commits(place)
    assert not note.is_published
    assert note.metadata == str(metadata)
    metadata.rename(aside)
    with pytest.raises(OSError, match="nobody can tell whether others have replicas of g-plain-0") as refused:
        again("second", metadata)
    assert refused.value.filename == str(metadata)
    assert commits(place) == [note]
    with Log.open(place / "g-plain-0") as log:
        assert log.log_end_offset == end
    # Where it is now, the job may say.
    assert not again("third", aside)
    with Log.open(place / "g-plain-0") as log:
        assert log.log_end_offset == end + 2


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_nothing_more_is_published_while_a_part_is_not_mounted(tmp_path: Path, how: str) -> None:
    """By whoever goes on with it; and nobody makes anew what is not there."""
    for at, places, _ in half_way(tmp_path, "named", spread=True):
        places.unmount(how)
        before = files(places.first)
        places.run_here(ROWS[:3])
        after = files(places.first)
        assert {name: text for name, text in after.items() if not name.startswith("here-")} == {
            name: text for name, text in before.items() if not name.startswith("here-")
        }
        with pytest.raises(OSError, match="Mount it, or have a link"):
            places.run("named")
        places.mount()
        places.run("named")
        assert places.found() == EXPECTED, at


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_no_other_job_makes_the_topic_anew(tmp_path: Path, how: str) -> None:
    """It would stand in two log dirs once the disk is mounted."""
    places = Places(tmp_path)
    with suppress(Died), failing(4, Died()):
        places.run("named")
    places.unmount(how)
    with pytest.raises(LogDirError, match="is the disk of this one mounted"):
        places.run("nameless")
    with pytest.raises(OSError, match="Mount it, or have a link"):
        run(places.first, "nameless")
    assert not list(tmp_path.glob("first/t-*"))
    places.mount()
    places.run("named")
    assert found(places.second) == EXPECTED


@pytest.mark.parametrize("moved", [False, True])
def test_in_the_log_dir_of_the_note_a_topic_that_is_gone_is_gone(tmp_path: Path, *, moved: bool) -> None:
    """Also where the log dir has another place by now."""
    place = tmp_path / "logs"
    with suppress(Died), failing(4, Died()):
        run(place, "named")
    if moved:
        place = place.rename(tmp_path / "moved")
    with LogDir.open(place, "a") as log_dir:
        log_dir.delete_topic("t")
    run(place, "named")
    assert found(place) == EXPECTED


def test_a_link_that_leads_nowhere_is_not_gone(tmp_path: Path) -> None:
    """A partition's directory that lies elsewhere."""
    places = Places(tmp_path)
    with suppress(Died), failing(4, Died()):
        places.run("named")
    elsewhere = tmp_path / "elsewhere"
    (places.second / "t-1").rename(elsewhere)
    (places.second / "t-1").symlink_to(tmp_path / "not-mounted")
    with pytest.raises(OSError, match="this link leads nowhere"):
        places.run("named")
    (places.second / "t-1").unlink()
    elsewhere.rename(places.second / "t-1")
    places.run("named")
    assert found(places.second) == EXPECTED


def test_a_write_without_a_name_that_failed_is_taken_back_or_told_its_name(tmp_path: Path) -> None:
    """What `offsetlog.spark.write` does then; and what it says works."""
    taken_back = told = published = 0
    for at in range(1, 60):
        place = tmp_path / f"logs-{at}"
        with failing(at, OSError(errno.ENOSPC, "No space left on device")) as seen:
            try:
                run(place, "named")
            except OSError as error:
                failed = error
            else:
                break
        # A part of it cannot be taken back for now.
        held = Log.open(place / "t-1", "a") if at % 2 else None
        is_published = _published_even_so(str(place), "job day-1", "day-1", failed)
        if held is not None:
            held.close()
        if is_published:
            assert found(place) == EXPECTED, at
            published += 1
            continue
        note = next((note for note in commits(place) if not note.is_published), None)
        told += note is not None
        taken_back += note is None
        assert note is None or any("transaction_id='day-1'" in text for text in told_by(failed)), (at, told_by(failed))
        run(place, "nameless" if note is None else "named")
        assert found(place) == EXPECTED, at
        assert not left(place), at
        if seen() < at:
            break
    assert published
    assert taken_back > 1
    assert told > 1


def test_two_log_dirs_of_one_id_are_two(tmp_path: Path) -> None:
    """One was made as a copy of the other."""
    places = Places(tmp_path)
    places.run("nameless", topic="here", rows=ROWS[:3])
    shutil.copy(places.first / notes.LOG_DIR_ID, places.second)
    with suppress(Died), failing(4, Died()):
        places.run("named")
    (note,) = commits(places.first)
    assert {Path(target.directory).parent for target in note.targets} == {places.second}
    places.run("named")
    assert found(places.second) == EXPECTED


def test_log_dirs_that_moved_are_found_by_links(tmp_path: Path) -> None:
    """As the error says."""
    places = Places(tmp_path)
    with suppress(Died), failing(4, Died()):
        places.run("named")
    moved = places.second.rename(tmp_path / "moved")
    with pytest.raises(OSError, match="this log dir is not there"):
        places.run("named")
    places.second.symlink_to(moved)
    places.run("named")
    assert found(moved) == EXPECTED


def test_an_id_of_which_a_crash_left_a_part_is_made_anew(tmp_path: Path) -> None:
    """And one that is there stays."""
    for text in (b"", b"0123", b"0" * 33, b"x" * 32 + b"\n"):
        Path(tmp_path, notes.LOG_DIR_ID).write_bytes(text)
        assert notes.id_of_log_dir(str(tmp_path)) is None
        made = notes.make_id_of_log_dir(str(tmp_path))
        assert notes.id_of_log_dir(str(tmp_path)) == made
        assert notes.make_id_of_log_dir(str(tmp_path)) == made


@pytest.mark.parametrize("kind", ["named", "stream"])
def test_notes_of_before_log_dirs_had_ids_are_honoured(tmp_path: Path, kind: str) -> None:
    """A commit that stopped half-way goes on, and waits for a log dir that is not there."""
    places = Places(tmp_path)
    with suppress(Died), failing(4, Died()):
        places.run(kind)
    (path,) = places.first.glob("offsetlog-commit-*.json")
    fields = json.loads(path.read_text())
    for target in fields["targets"]:
        del target["log_dir_id"], target["is_beside"]
    path.write_text(json.dumps(fields))
    places.unmount("missing")
    with pytest.raises(OSError, match="this log dir is not there"):
        places.run(kind)
    places.mount()
    places.run(kind)
    assert found(places.second) == EXPECTED
