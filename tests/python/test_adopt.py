"""``adopt``: directories of a real broker, set aside or of another topic id, taken in; refusals that change no byte; crashes between the steps."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS, DATA
from metadata_records import partition, topic, write as metadata_log
from writing import HOLD, running, times, tree

from offsetlog import (
    AdoptedPartition,
    ClusterError,
    ConfigError,
    Log,
    LogDir,
    LogDirError,
    LogLockedError,
    adopt,
    identity,
)

METADATA = CLEAN / "metadata-dir"
UUID = "0123456789abcdef0123456789abcdef"
ANOTHER = "f" * 32
PLAIN = "pf7cXgbVTTeuM8IYSzk58w"
"""Id of g-plain."""
MADE_AGAIN = "97zHwfBnS9u0qAp0OfUOKA"
"""Id of g-recreated in its second life."""
DELETED = "qU_se9d-S4CS9r6nchFmFg"
"""Its id in the first one."""
OTHER = "AAECAwQFBgcICQoLDA0ODw"
META = "meta.properties"


class Place:
    """A copy of a broker's two log dirs, with one topic in each and the checkpoints as the broker left them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.one, self.two = root / "log-dir-1", root / "log-dir-2"
        for mine, golden in zip((self.one, self.two), CLEAN_LOG_DIRS, strict=True):
            mine.mkdir(parents=True)
            for path in golden.iterdir():
                if path.is_file():
                    shutil.copyfile(path, mine / path.name)
        for number in (0, 2):
            self.copy(CLEAN_LOG_DIRS[0] / f"g-plain-{number}", self.one / f"g-plain-{number}")
        self.copy(CLEAN_LOG_DIRS[1] / "g-recreated-0", self.two / "g-recreated-0")

    @staticmethod
    def copy(source: Path, target: Path) -> Path:
        shutil.copytree(source, target)
        for path in (target, *target.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        return target

    def lines(self, name: str, of: str = "g-plain 0") -> list[str]:
        """What a checkpoint of the first log dir has of a partition."""
        path = self.one / name
        return [line.removeprefix(f"{of} ") for line in path.read_text().splitlines() if line.startswith(f"{of} ")]

    def outcome(self, path: Path) -> str:
        (row,) = [row for row in identity(self.one, self.two, METADATA) if row.path == str(path)]
        return row.outcome


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "kafka")


def named(directory: Path, topic_id: str | None) -> Path:
    """The directory with another id."""
    path = directory / "partition.metadata"
    path.unlink()
    if topic_id is not None:
        path.write_text(f"version: 0\ntopic_id: {topic_id}")
    return directory


def aside(directory: Path, state: str = "stray", unique: str = UUID) -> Path:
    return directory.rename(directory.with_name(f"{directory.name}.{unique}-{state}"))


def rows(directory: Path) -> list[tuple[int, bytes | None]]:
    with Log.open(directory) as log:
        return [(record.offset, record.value) for record in log.scan()]


def refused(place: Place, error: type[Exception], match: str | None, *directories: Path, **options: object) -> str:
    """A refusal changes no byte, name or time; a dry run is refused as the real one."""
    before = tree(place.root), times(place.root)
    options.setdefault("metadata", METADATA)
    options.setdefault("log_dirs", place.two)
    for dry_run in (True, False):
        with pytest.raises(error, match=match) as caught:
            adopt(*directories, dry_run=dry_run, **options)  # type: ignore[arg-type]  # by name
        assert (tree(place.root), times(place.root)) == before
    return str(caught.value)


@pytest.mark.parametrize("state", ["stray", "delete", "future", "live"])
@pytest.mark.parametrize("topic_id", [OTHER, None, PLAIN])
def test_a_directory_is_its_topics_partition_again(place: Place, state: str, topic_id: str | None) -> None:
    golden = CLEAN_LOG_DIRS[0] / "g-plain-0"
    live = place.one / "g-plain-0"
    directory = named(live, topic_id) if topic_id != PLAIN else live
    if state != "live":
        directory = aside(directory, state)
        # As a broker that went on without it.
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            assert place.lines(name) == ["200"]
    before = tree(place.root), times(place.root)
    (dry,) = adopt(directory, log_dirs=[place.two], metadata=METADATA, dry_run=True)
    assert (tree(place.root), times(place.root)) == before
    (done,) = adopt(directory, log_dirs=[place.two], metadata=METADATA)
    assert done == dry._replace(dry_run=False)
    assert (done.directory, done.path, done.topic, done.partition) == (str(directory), str(live), "g-plain", 0)
    assert (done.topic_id_before, done.topic_id) == (topic_id, PLAIN)
    is_changed = state != "live" or topic_id != PLAIN
    assert (done.changed, done.records) == (is_changed, 200 * is_changed)
    assert (done.log_start_offset, done.log_end_offset, done.set_aside) == (0, 200, ())
    assert rows(live) == rows(golden)
    assert (live / "partition.metadata").read_bytes() == (golden / "partition.metadata").read_bytes()
    assert {path.name for path in place.one.iterdir() if path.is_dir()} == {"g-plain-0", "g-plain-2"}
    assert (place.one / ".kafka_cleanshutdown").read_text() == (CLEAN_LOG_DIRS[0] / ".kafka_cleanshutdown").read_text()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert place.lines(name) == ["200"]
        assert place.lines(name, "g-plain 2") == [
            line.split()[2] for line in (CLEAN_LOG_DIRS[0] / name).read_text().splitlines() if line.startswith("g-plain 2 ")
        ]
    assert place.outcome(live) == "serves"
    assert {path.name for path in live.iterdir()} - {path.name for path in golden.iterdir()} <= {".offsetlog.lock", ".offsetlog.state"}
    (again,) = adopt(live, log_dirs=[place.two], metadata=METADATA)
    assert (again.changed, again.path) == (False, str(live))


def test_what_stands_in_the_place_is_set_aside_when_asked(place: Place) -> None:
    old = aside(named(place.one / "g-plain-0", OTHER))
    # In the other log dir, and another one is on its way.
    fresh = place.copy(CLEAN_LOG_DIRS[1] / "g-plain-1", place.two / "g-plain-0")
    named(fresh, PLAIN)
    coming = place.copy(fresh, place.one / f"g-plain-0.{UUID}-future")
    text = refused(place, LogDirError, "set_aside=True or --set-aside renames them to -stray first", old)
    assert old.name in text
    for path in (fresh, coming):
        assert str(path) in text
    (done,) = adopt(old, log_dirs=place.two, metadata=METADATA, set_aside=True)
    assert [before for before, _ in done.set_aside] == [str(coming), str(fresh)]
    assert [note for note in done.notes if note.startswith("set aside: ")] == [
        f"set aside: {path} (offsets 0 to 199)" for path in (coming, fresh)
    ]
    for before, since in done.set_aside:
        assert since is not None
        assert not Path(before).exists()
        assert Path(since).parent == Path(before).parent
        assert Path(since).name.startswith("g-plain-0.")
        assert Path(since).name.endswith("-stray")
        assert rows(Path(since)) == rows(CLEAN_LOG_DIRS[1] / "g-plain-1")
    assert rows(Path(done.path)) == rows(CLEAN_LOG_DIRS[0] / "g-plain-0")
    assert place.outcome(Path(done.path)) == "serves"


def test_an_empty_one_is_named_as_such(place: Place) -> None:
    old = aside(named(place.one / "g-plain-0", OTHER))
    fresh = place.one / "g-plain-0"
    fresh.mkdir()
    (fresh / "00000000000000000000.log").touch()
    assert f"{fresh} (without records)" in refused(place, LogDirError, "a broker does not start with both", old)
    # As where a volume came back empty: the log dir still has the line of what was there.
    (place.one / "log-start-offset-checkpoint").write_text("0\n1\ng-plain 0 74\n")
    assert f"{fresh} (without records)" in refused(place, LogDirError, "a broker does not start with both", old)
    (done,) = adopt(old, log_dirs=place.two, metadata=METADATA, set_aside=True, dry_run=True)
    assert f"set aside: {fresh} (without records)" in done.notes


def test_records_below_a_line_that_is_not_theirs_are_named(place: Place) -> None:
    old = aside(named(place.one / "g-plain-0", OTHER))
    fresh = named(place.copy(CLEAN_LOG_DIRS[1] / "g-plain-1", place.one / "g-plain-0"), PLAIN)
    (place.one / "log-start-offset-checkpoint").write_text("0\n1\ng-plain 0 1000\n")
    told = f"{fresh} (offsets 0 to 199, below its log start offset 1000)"
    assert told in refused(place, LogDirError, "a broker does not start with both", old)


def test_what_the_metadata_does_not_have_is_refused(place: Place, tmp_path: Path) -> None:
    stray = aside(named(place.one / "g-plain-0", OTHER))
    gone = place.copy(stray, place.one / f"g-gone-0.{UUID}-stray")
    beyond = place.copy(stray, place.one / f"g-plain-77.{UUID}-stray")
    text = refused(place, ClusterError, 'has no topic "g-gone"', gone)
    assert "at least 1 partition" in text
    refused(place, ClusterError, "no partition 77.*--partitions 78", beyond)
    refused(place, ConfigError, f"{OTHER} found, and the metadata has {PLAIN}", stray, topic_id=OTHER)
    refused(place, ConfigError, "g-recreated.*says", stray, topic="g-recreated")
    meta = place.one / META
    whole = meta.read_text()
    meta.write_text(whole.replace("node.id=1", "node.id=2"))
    refused(place, ClusterError, "broker 2 is none of those that have it: 1", stray, log_dirs=())
    meta.write_text(whole.replace("cluster.id=", "cluster.id=x"))
    refused(place, ConfigError, "the metadata is that of cluster", stray, log_dirs=())
    meta.unlink()
    refused(place, LogDirError, "no meta.properties says", stray)
    meta.write_text(whole)
    refused(place, ConfigError, "no metadata of the cluster is here.*--metadata", stray, metadata=None)
    damaged = tmp_path / "damaged"
    place.copy(METADATA, damaged)
    segment = damaged / "__cluster_metadata-0" / "00000000000000000000.log"
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    refused(place, ConfigError, "the cluster's metadata cannot be read", stray, metadata=damaged)
    (done,) = adopt(stray, log_dirs=place.two, metadata=damaged, topic_id=PLAIN)
    assert done.topic_id == PLAIN
    assert any("not compared with the cluster's metadata" in note for note in done.notes)


def test_other_replicas_and_other_log_dirs(place: Place, tmp_path: Path) -> None:
    stray = aside(named(place.one / "g-plain-0", OTHER))
    # The metadata has it in the first log dir: there a directory of it may be.
    moved = stray.rename(place.two / stray.name)
    text = refused(place, LogDirError, "has log dirs that are not here", moved, log_dirs=())
    (directory,) = [line.partition("=")[2] for line in (place.one / META).read_text().splitlines() if line.startswith("directory.id")]
    assert directory in text
    (done,) = adopt(moved, log_dirs=place.one, metadata=METADATA, dry_run=True)
    assert any(f"the metadata has the partition in log dir {directory}" in note for note in done.notes)
    moved.rename(stray)
    # A cluster with two replicas.
    raw = bytes(range(16))
    metadata_log(tmp_path / "several", [topic("g-plain", raw), partition(raw, 0, (3, 1))])
    refused(place, ClusterError, "also with broker 3", stray, metadata=tmp_path / "several")
    (done,) = adopt(stray, log_dirs=place.two, metadata=tmp_path / "several", single_replica=True)
    assert done.topic_id == OTHER


def test_names_that_are_cut_short(place: Place, tmp_path: Path) -> None:
    name = "x" * 230
    raw, second = bytes(range(16)), bytes(range(1, 17))
    metadata_log(tmp_path / "known", [topic(name, raw), partition(raw, 0, (1,))])
    # Kafka cuts the topic so that the name has 255 characters.
    tail = f"-0.{UUID}-stray"
    stray = aside(place.one / "g-plain-0").rename(place.one / (name[: 255 - len(tail)] + tail))
    assert len(stray.name) == 255
    metadata_log(tmp_path / "both", [topic(name, raw), partition(raw, 0, (1,)), topic(name[:-1], second), partition(second, 0, (1,))])
    refused(place, LogDirError, "may be that of x+, x+: name the topic", stray, metadata=tmp_path / "both")
    refused(place, LogDirError, "no topic is known that begins so", stray)
    (done,) = adopt(stray, log_dirs=place.two, metadata=tmp_path / "both", topic=name, dry_run=True)
    assert done.path == str(place.one / f"{name}-0")
    (done,) = adopt(stray, log_dirs=place.two, metadata=tmp_path / "known")
    assert (done.topic, done.topic_id) == (name, OTHER)
    assert rows(place.one / f"{name}-0") == rows(CLEAN_LOG_DIRS[0] / "g-plain-0")


def test_several_at_once(place: Place) -> None:
    strays = [aside(named(place.one / f"g-plain-{number}", OTHER)) for number in (0, 2)]
    (place.one / "lost+found").mkdir()
    twice = place.copy(strays[0], place.two / f"g-plain-0.{ANOTHER}-stray")
    refused(place, LogDirError, "is of the same partition: name the one", *strays, twice)
    # Nothing is changed before all have been looked at.
    refused(place, LogDirError, "name the directories", *strays, place.one / "lost+found")
    refused(place, FileNotFoundError, None, *strays, place.one / "none-0")
    done = adopt(*strays, strays[0], log_dirs=place.two, metadata=METADATA)
    assert [Path(each.path).name for each in done] == ["g-plain-0", "g-plain-2"]
    assert adopt(metadata=METADATA) == []


def test_progress_and_its_end(place: Place) -> None:
    """It is told of every directory that is checked; what it raises ends the work before anything is changed."""
    strays = [aside(named(place.one / f"g-plain-{number}", OTHER)) for number in (0, 2)]
    sizes = [sum(path.stat().st_size for path in stray.glob("*.log")) for stray in strays]
    seen: list[tuple[int, int, str]] = []

    def tell(done: int, total: int, name: str) -> None:
        seen.append((done, total, name))
        if done == total:
            raise KeyError(name)

    before = tree(place.root)
    with pytest.raises(KeyError):
        adopt(*strays, log_dirs=place.two, metadata=METADATA, progress=tell)
    assert tree(place.root) == before
    assert dict.fromkeys(name for _, _, name in seen) == dict.fromkeys(stray.name for stray in strays)
    assert {total for _, total, _ in seen} == {sum(sizes)}
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert (sizes[0], sum(sizes), strays[0].name) in seen
    with pytest.raises(TypeError, match="progress must be callable"):
        adopt(*strays, progress=1)  # type: ignore[arg-type]
    assert len(adopt(*strays, log_dirs=place.two, metadata=METADATA, progress=lambda *_: None)) == len(strays)


def test_a_damaged_log_is_refused(place: Place) -> None:
    stray = aside(named(place.one / "g-plain-0", OTHER))
    segment = min(stray.glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    text = refused(place, LogDirError, "damage found in 1 place.*salvage makes a sound one", stray)
    assert str(segment) in text


def test_half_a_batch_at_the_end_goes(place: Place) -> None:
    stray = aside(named(place.one / "g-plain-0", OTHER))
    segment = max(stray.glob("*.log"))
    whole = segment.read_bytes()
    segment.write_bytes(whole + whole[:100])
    (done,) = adopt(stray, log_dirs=place.two, metadata=METADATA)
    live = Path(done.path)
    assert done.log_end_offset == 200
    assert (live / segment.name).read_bytes() == whole


def test_damaged_indexes_are_made_anew(place: Place) -> None:
    stray = aside(named(place.one / "g-plain-0", OTHER))
    (first, second, *_) = sorted(stray.glob("*.index"))
    first.write_bytes(b"\xff" * 16)
    second.unlink()
    (time_index, *_) = sorted(stray.glob("*.timeindex"))
    time_index.write_bytes(b"\x01" * 7)
    (done,) = adopt(stray, log_dirs=place.two, metadata=METADATA)
    with Log.open(done.path) as log:
        assert not log.verify().damaged
    assert rows(Path(done.path)) == rows(CLEAN_LOG_DIRS[0] / "g-plain-0")


@pytest.mark.parametrize("state", ["stray", "delete", "future"])
def test_the_same_call_finishes_what_was_interrupted(place: Place, state: str) -> None:
    """Behind the renaming only a note tells; each step is tried on disks in memory, in rust/offsetlog-faults/tests/adoption.rs."""
    stray = aside(named(place.one / "g-plain-0", OTHER), state)
    live = place.one / "g-plain-0"
    (first,) = adopt(stray, log_dirs=place.two, metadata=METADATA)
    assert any("nothing tells its log start offset" in note for note in first.notes)
    (live / ".offsetlog.adopting").write_text(f" {stray.name}")
    (place.one / ".kafka_cleanshutdown").unlink()
    (done,) = adopt(stray, log_dirs=place.two, metadata=METADATA)
    assert (done.directory, done.path, done.changed, done.log_end_offset) == (str(stray), str(live), True, 200)
    # Who saw the first call end has not read what it says.
    assert done.notes == first.notes
    assert not (live / ".offsetlog.adopting").exists()
    assert place.lines("recovery-point-offset-checkpoint") == ["200"]
    with pytest.raises(LogDirError, match="leave it out if an earlier call took it in"):
        adopt(stray, log_dirs=place.two, metadata=METADATA)


def test_a_malformed_partition_metadata_is_replaced(place: Place) -> None:
    stray = aside(place.one / "g-plain-0")
    (stray / "partition.metadata").write_bytes(b"\xff")
    (done,) = adopt(stray, log_dirs=place.two, metadata=METADATA)
    assert (done.topic_id_before, done.topic_id) == (None, PLAIN)
    assert any("could not be read" in note for note in done.notes)


def test_leader_epochs_above_the_clusters_are_told(place: Place, tmp_path: Path) -> None:
    raw = bytes(range(16))
    metadata_log(tmp_path / "young", [topic("g-plain", raw), partition(raw, 0, (1,))])
    with Log.open(place.one / "g-plain-0") as log:
        epoch = log.leader_epoch
    assert epoch is not None
    assert epoch > 0
    (done,) = adopt(place.one / "g-plain-0", log_dirs=place.two, metadata=tmp_path / "young", dry_run=True)
    assert any(note.startswith(f"leader epoch {epoch} of its batches is above 0, the cluster's") for note in done.notes)


def test_lines_of_another_log_do_not_stay(place: Place) -> None:
    """A start behind the end of the log would have a broker throw it away; one inside is kept."""
    checkpoint = place.one / "log-start-offset-checkpoint"
    directory = named(place.one / "g-plain-0", OTHER)
    checkpoint.write_text("0\n1\ng-plain 0 900\n")
    (done,) = adopt(directory, log_dirs=place.two, metadata=METADATA)
    assert (done.log_start_offset, done.log_end_offset) == (0, 200)
    assert place.lines(checkpoint.name) == []
    named(directory, OTHER)
    checkpoint.write_text("0\n1\ng-plain 0 20\n")
    (done,) = adopt(directory, log_dirs=place.two, metadata=METADATA)
    assert done.log_start_offset == 20
    assert place.lines(checkpoint.name) == ["20"]
    assert any("before offset 20" in note for note in done.notes)


def test_beside_a_broker_and_beside_a_writer(place: Place) -> None:
    stray = aside(named(place.one / "g-plain-0", OTHER))
    for lock in (place.one / ".lock", stray / ".offsetlog.lock"):
        lock.touch()
        with running(HOLD, lock):
            before = tree(place.root), times(place.root)
            with pytest.raises(LogLockedError):
                adopt(stray, log_dirs=place.two, metadata=METADATA)
            assert (tree(place.root), times(place.root)) == before
            assert adopt(stray, log_dirs=place.two, metadata=METADATA, dry_run=True)[0].changed


@pytest.mark.parametrize("is_turned", [False, True])
def test_directories_in_several_log_dirs(place: Place, is_turned: bool) -> None:
    """Each is compared with what stands in the log dirs of the others, before the call and under its locks."""
    in_the_way = place.copy(place.one / "g-plain-0", place.two / "g-plain-0")
    directories = [aside(place.one / "g-plain-0"), aside(place.two / "g-recreated-0")]
    if is_turned:
        directories.reverse()
    dry = adopt(*directories, metadata=METADATA, set_aside=True, dry_run=True)
    assert sorted(each.set_aside for each in dry) == [(), ((str(in_the_way), None),)]
    done = adopt(*directories, metadata=METADATA, set_aside=True)
    assert [[before for before, _ in each.set_aside] for each in done] == [[before for before, _ in each.set_aside] for each in dry]
    assert [each.path for each in done] == [each.path for each in dry]
    live = [
        path for folder in (place.one, place.two) for path in folder.iterdir() if path.is_dir() and not path.name.endswith("-stray")
    ]
    assert sorted(live) == [place.one / "g-plain-0", place.one / "g-plain-2", place.two / "g-recreated-0"]


@pytest.mark.parametrize("way", ["python", "command", "json"])
def test_what_was_taken_in_before_an_error_is_told(place: Place, way: str) -> None:
    """The second call without it does the rest; with it, it says why not."""
    first, second = (aside(named(place.one / f"g-plain-{number}", OTHER)) for number in (0, 2))
    live = place.one / "g-plain-0"
    lock = second / ".offsetlog.lock"
    lock.touch()
    arguments = (first, second, "--log-dir", place.two, "--metadata", METADATA)
    with running(HOLD, lock):
        if way == "python":
            with pytest.raises(LogLockedError) as raised:
                adopt(first, second, log_dirs=place.two, metadata=METADATA)
            left_out = "leave them out of the next call, and name their log dirs in it (log_dirs=)"
            assert raised.value.__notes__ == [f"taken in before that: {first} is {live} now; {left_out}"]
        else:
            done = command(*arguments, *(["--json"] if way == "json" else []))
            assert done.returncode == 2
            assert second.name in done.stderr
            told = json.loads(done.stdout)["path"] if way == "json" else done.stdout
            assert (told if way == "json" else told.split(";")[0]) == (str(live) if way == "json" else f"{first} is now {live}")
    assert live.exists()
    assert second.exists()
    refused(place, LogDirError, f"it is not there, and {live} is: leave it out", first, second)
    assert adopt(second, log_dirs=place.two, metadata=METADATA)[0].changed


def test_a_link_is_refused(place: Place, tmp_path: Path) -> None:
    elsewhere = place.copy(place.one / "g-plain-0", tmp_path / "g-plain-0")
    shutil.rmtree(place.one / "g-plain-0")
    (place.one / "g-plain-0").symlink_to(elsewhere)
    named(elsewhere, OTHER)
    refused(place, LogDirError, "a symbolic link found", place.one / "g-plain-0")


def test_a_directory_outside_of_log_dirs(tmp_path: Path) -> None:
    copied = tmp_path / "data" / "g-plain-0"
    Place.copy(CLEAN_LOG_DIRS[0] / "g-plain-0", copied)
    with pytest.raises(ConfigError, match="topic_id"):
        adopt(copied)
    (done,) = adopt(copied, topic_id=OTHER)
    assert (done.topic_id_before, done.topic_id, done.log_end_offset) == (PLAIN, OTHER, 200)
    assert {path.name for path in copied.parent.iterdir()} == {"g-plain-0"}
    with Log.open(copied) as log:
        assert log.topic_id == OTHER
    assert rows(copied) == rows(CLEAN_LOG_DIRS[0] / "g-plain-0")


def test_a_cluster_with_zookeeper(tmp_path: Path) -> None:
    root = tmp_path / "kafka"
    Place.copy(DATA / "kafka-3.9.2-zookeeper", root)
    live = root / "log-dir" / "plain-0"
    (topic_id,) = {row.topic_id for row in identity(live)} - {None}
    named(live, OTHER)
    (row,) = [row for row in identity(root / "log-dir", root / "zookeeper") if row.path == str(live)]
    assert row.outcome == "fails"
    before = rows(live)
    (done,) = adopt(live, metadata=root / "zookeeper")
    assert (done.topic_id_before, done.topic_id) == (OTHER, topic_id)
    (row,) = [row for row in identity(root / "log-dir", root / "zookeeper") if row.path == str(live)]
    assert row.outcome == "serves"
    assert rows(live) == before


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    told = [sys.executable, "-m", "offsetlog", "adopt", *map(str, arguments)]
    return subprocess.run(told, capture_output=True, text=True, check=False, timeout=300)


def test_the_command_does_the_same(place: Place) -> None:
    stray = aside(named(place.one / "g-plain-0", OTHER))
    arguments = (stray, "--log-dir", place.two, "--metadata", METADATA)
    dry = command(*arguments, "--dry-run", "--json")
    assert dry.returncode == 0, dry.stderr
    found = json.loads(dry.stdout)
    found["set_aside"] = tuple(map(tuple, found["set_aside"]))
    found["notes"] = tuple(found["notes"])
    assert AdoptedPartition(**found) == adopt(stray, log_dirs=place.two, metadata=METADATA, dry_run=True)[0]
    said = command(*arguments, "-n")
    assert said.stdout.startswith(f"{stray} would become {place.one / 'g-plain-0'}; topic id {PLAIN}, before {OTHER}; 200 records")
    done = command(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{stray} is now {place.one / 'g-plain-0'}; topic id {PLAIN}, before {OTHER}; 200 records")
    again = command(place.one / "g-plain-0", "--log-dir", place.two, "--metadata", METADATA)
    assert (again.returncode, "nothing to do" in again.stdout) == (1, True)
    bad = command(stray, "--topic-id", "x")
    assert bad.returncode == 2
    missing = command(stray, "--metadata", METADATA)
    assert missing.returncode == 2
    assert f"{place.one / 'g-plain-0'} is: leave it out if an earlier call took it in" in missing.stderr
    missing = command(stray.with_name(stray.name.replace("plain", "plane")), "--metadata", METADATA)
    assert missing.returncode == 2
    assert "check the path" in missing.stderr


def test_odd_arguments(place: Place) -> None:
    stray = place.one / "g-plain-0"
    for options in ({"topic_id": "x"}, {"topic_id": "A" * 22}):
        with pytest.raises(ConfigError):
            adopt(stray, **options)  # type: ignore[arg-type]  # by name
    with pytest.raises(TypeError):
        adopt(stray, topic=3)  # type: ignore[arg-type]  # as a mistake
    with pytest.raises(LogDirError, match="metadata log"):
        adopt(METADATA / "__cluster_metadata-0", topic_id=OTHER)


def test_readers_see_it(place: Place) -> None:
    stray = aside(named(place.one / "g-plain-0", OTHER))
    with LogDir.open([place.one, place.two, METADATA]) as log_dir:
        assert ("g-plain", 0) not in log_dir.partitions()
        adopt(stray, log_dirs=place.two, metadata=METADATA)
        log_dir.refresh()
        assert log_dir.log("g-plain", 0).log_end_offset == 200
        assert log_dir.strays() == []


def of_cluster(folder: Path, cluster: str) -> Path:
    (folder / META).write_text(f"version=1\ncluster.id={cluster}\nnode.id=1\n")
    return folder


def test_the_metadata_of_another_cluster_is_not_taken_for_its_own(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Beside the cluster's own metadata there is a longer log of another cluster, with another id for a topic of the name."""
    Place.copy(METADATA / "__cluster_metadata-0", place.one / "__cluster_metadata-0")
    raw = bytes(range(16))
    many = [topic("g-plain", raw), *(partition(raw, number, [1]) for number in range(3)), *[topic("x", raw[::-1])] * 400]
    foreign = of_cluster(metadata_log(tmp_path / "other", many), "another")
    stray = aside(place.one / "g-plain-0")
    with caplog.at_level("WARNING", "offsetlog"):
        outcomes = {Path(row.path).name: row.outcome for row in identity(place.one, place.two, foreign) if "g-plain" in row.path}
    assert outcomes == {stray.name: "ignores", "g-plain-2": "serves"}, outcomes
    assert "metadata logs of several clusters are here" in caplog.text
    (done,) = adopt(stray, log_dirs=place.two, metadata=foreign)
    assert (done.topic_id, done.topic_id_before) == (PLAIN, PLAIN)
    # Of two foreign ones neither tells anything.
    shutil.rmtree(place.one / "__cluster_metadata-0")
    third = of_cluster(metadata_log(tmp_path / "third", many), "third")
    (row,) = [row for row in identity(place.one, place.two, foreign, third) if row.path == done.path]
    assert row.outcome == "unknown"
    assert "metadata logs of several clusters are here, and none is that of these log dirs" in row.reason


def test_a_log_dir_that_does_not_tell_whose_it_is_is_looked_into(place: Place) -> None:
    """A broker with both would not start: its second log dir has lost its meta.properties, and a live directory of the partition."""
    stray = aside(Place.copy(place.one / "g-plain-0", place.root / "aside" / "g-plain-0"))
    stray = stray.rename(place.one / stray.name)
    (place.one / "g-plain-0").rename(place.two / "g-plain-0")
    properties = place.two / META
    text = properties.read_text()
    properties.unlink()
    refused(place, LogDirError, "stands in the place of this partition", stray)
    for one, other, kind in (("node.id=1", "node.id=2", "node"), ("cluster.id=", "cluster.id=x", "cluster")):
        assert one in text
        properties.write_text(text.replace(one, other))
        refused(place, LogDirError, f"a log dir of {kind} .*name log dirs of the same broker", stray)


def test_a_log_dir_by_two_names_is_one(place: Place) -> None:
    link = place.root / "link"
    link.symlink_to(place.one)
    aside(place.one / "g-plain-0")
    stray = next(link.glob("g-plain-0.*-stray"))
    (done,) = adopt(stray, log_dirs=[place.one, place.two], metadata=METADATA)
    assert (done.set_aside, done.log_end_offset) == ((), 200)


def test_directories_by_two_names_of_their_log_dir(place: Place) -> None:
    link = place.root / "link"
    link.symlink_to(place.one)
    for number in (0, 2):
        aside(place.one / f"g-plain-{number}")
    one, two = (next(folder.glob(f"g-plain-{number}.*")) for folder, number in ((place.one, 0), (link, 2)))
    done = adopt(one, two, log_dirs=place.two, metadata=METADATA)
    assert [each.log_end_offset for each in done] == [200, 200]
