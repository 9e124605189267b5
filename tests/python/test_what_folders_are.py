"""What a folder is goes by what it holds: each mark of a log dir alone, for every entry point; and nothing is made in what is something else."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from partition_damage import CHECKPOINTS, made
from test_no_trace import traces

import offsetlog
import offsetlog.spark
from offsetlog import Log, LogDir, LogDirError, OffsetLogError, Server, folder_kind, open_cached
from offsetlog._offsetlog import run_cli

META = "meta.properties"
MARKS = {META: "version=1\nnode.id=1\ncluster.id=abc\n"} | dict.fromkeys(CHECKPOINTS, "0\n0\n")
# As folders around log dirs are called, and as partitions are.
NAMES = ["kafka-logs", "logs-1"]


def command(*words: object) -> Callable[[Path], object]:
    """The command; `HERE` is the folder, `HERE/name` what would be made in it."""

    def run(path: Path) -> object:
        told = [str(word).replace("HERE", str(path), 1) if str(word).startswith("HERE") else str(word) for word in words]
        return run_cli(["offsetlog", *told], [])

    return run


def opened(*, mode: str) -> Callable[[Path], object]:
    def run(path: Path) -> object:
        with Log.open(path, mode) as log:  # type: ignore[call-overload]
            return log.log_end_offset

    return run


def opened_dir(path: Path) -> object:
    with LogDir.open(path, "a") as log_dir:
        return log_dir.create_topic("made")


def served(path: Path) -> object:
    with Server(path) as kafka:
        return kafka.bootstrap_servers


def planned(path: Path) -> object:
    """What Spark reads, without a session."""
    return offsetlog.spark.splits([path], subscribe="orders")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log dir with partitions, to take some from."""
    return made(tmp_path_factory.mktemp("sound") / "logs")


@pytest.fixture(params=NAMES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path: Path = tmp_path / request.param
    path.mkdir()
    return path


def as_partition(sound: Path, tmp_path: Path) -> dict[str, Callable[[Path], object]]:
    """What takes a partition's directory, or makes one."""
    source = sound / "orders-0"
    return {
        "Log.open": opened(mode="r"),
        "Log.open for appending": opened(mode="a"),
        "open_cached": open_cached,
        "recover": offsetlog.recover,
        "adopt": lambda path: offsetlog.adopt(path, topic_id="AAECAwQFBgcICQoLDA0ODw"),
        "convert": lambda path: offsetlog.convert(path, tmp_path / "new-0"),
        "convert into it": lambda path: offsetlog.convert(source, path),
        "salvage": lambda path: offsetlog.salvage(path, tmp_path / "new-0"),
        "salvage into it": lambda path: offsetlog.salvage(source, path),
    }


def said(capfd: pytest.CaptureFixture[str], call: Callable[[Path], object], path: Path) -> str:
    """What a call is refused with, as an error of ours or with exit code 2."""
    capfd.readouterr()
    try:
        code = call(path)
    except (OffsetLogError, ValueError) as error:
        return str(error)
    assert code == 2, code
    return capfd.readouterr().err


@pytest.mark.parametrize("mark", list(MARKS))
def test_each_mark_alone_makes_a_log_dir_and_no_partition(
    mark: str, place: Path, sound: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (place / mark).write_text(MARKS[mark])
    assert folder_kind(place) == "log_dir"
    before = traces(tmp_path)
    for name, call in as_partition(sound, tmp_path).items():
        text = said(capfd, call, place)
        assert text, name
        if name.startswith(("Log.open", "open_cached", "recover")):
            assert f"a log dir, which is no partition's directory: it holds {mark}" in text, (name, text)
        assert traces(tmp_path) == before, name
    for verb in ("append", "convert", "recover", "salvage"):
        words = [tmp_path / "new-0"] if verb == "convert" else ["--into", tmp_path / "new"] if verb == "salvage" else []
        code = command(verb, "HERE", *words)(place)
        # A log dir without partitions has nothing to do for verbs over many.
        assert code in ({2} if verb in {"append", "convert"} else {0, 1, 2}), (verb, code)
        assert traces(tmp_path) == before, verb
    # A log dir it is, to all that takes one, and the first topic is made in it.
    with LogDir.open(place) as log_dir:
        assert log_dir.partitions() == []
    assert offsetlog.verify(place).partitions == 0
    assert command("ls", "HERE")(place) in (0, 1)
    assert traces(tmp_path) == before
    with LogDir.open(place, "a") as log_dir:
        log_dir.create_topic("orders")
        log_dir.append("orders", b"first")
    assert command("create", "more", "HERE")(place) == 0
    with LogDir.open(place) as log_dir:
        assert log_dir.topics() == {"more": [0], "orders": [0]}
    assert len(planned(place)) == 1  # type: ignore[arg-type]
    assert folder_kind(place) == "log_dir"


@pytest.mark.parametrize("mark", list(MARKS))
def test_the_folder_around_log_dirs_of_one_mark_is_refused_with_the_paths_that_work(
    mark: str, place: Path, sound: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    inner = [place / "disk1", place / "disk-2"]
    for each in inner:
        each.mkdir()
        (each / mark).write_text(MARKS[mark])
    assert folder_kind(place) == "around_log_dirs"
    calls: dict[str, Callable[[Path], object]] = {
        **{
            name: call
            for name, call in as_partition(sound, tmp_path).items()
            if name.startswith(("Log.open", "open_cached", "recover"))
        },
        "LogDir.open": LogDir.open,
        "LogDir.open for appending": opened_dir,
        "Server": served,
        "Server groups": lambda path: Server(sound, groups=path),
        "restore": lambda path: offsetlog.restore(path, tmp_path / "new"),
        "restore into it": lambda path: offsetlog.restore(sound, path),
        "verify": offsetlog.verify,
        "commits": offsetlog.commits,
        "spark": planned,
        **{verb: command(verb, "HERE") for verb in ("ls", "cat", "verify", "why", "append", "maintain", "recover")},
        "grep": command("grep", "x", "HERE"),
        "create": command("create", "made", "HERE"),
        "delete": command("delete", "made", "HERE"),
        "settings": command("settings", "-t", "orders", "--config", "retention.ms=1", "HERE"),
        "salvage --into": command("salvage", sound / "orders-0", "--into", "HERE"),
        "restore --into": command("restore", sound, "--into", "HERE"),
    }
    before = traces(tmp_path)
    for name, call in calls.items():
        text = said(capfd, call, place)
        assert all(str(each) in text for each in inner), (name, text)
        assert traces(tmp_path) == before, name


def refused_as_a_target(sound: Path) -> Iterator[tuple[str, Callable[[Path], object]]]:
    """All that would make a log dir, a topic or a partition of what it is given."""
    partition = sound / "orders-0"

    def mirrored(path: Path) -> object:
        with Server(sound) as kafka:
            return offsetlog.mirror(kafka.bootstrap_servers, path, topics="pay", once=True)

    yield "LogDir.open for appending", opened_dir
    yield "restore", lambda path: offsetlog.restore(sound, path)
    yield "restore to plan", lambda path: offsetlog.restore(sound, path, dry_run=True)
    yield "salvage", lambda path: offsetlog.salvage(partition, path)
    yield "salvage into it", lambda path: offsetlog.salvage(partition, path / "orders-0")
    yield "convert", lambda path: offsetlog.convert(partition, path)
    yield "convert into it", lambda path: offsetlog.convert(partition, path / "orders-0")
    yield "mirror", mirrored
    yield "Server groups", lambda path: Server(sound, groups=path)
    yield "LogDir.open for appending in it", lambda path: opened_dir(path / "made")
    yield "restore in it", lambda path: offsetlog.restore(sound, path / "made")
    yield "mirror in it", lambda path: mirrored(path / "made")
    yield "offsetlog create in it", command("create", "made", "HERE/made")
    yield "Log.open in it", lambda path: Log.open(path / "orders-9", "a")
    yield "Log.open deep in it", lambda path: Log.open(path / "more/orders-9", "a")
    yield "offsetlog create", command("create", "made", "HERE")
    yield "offsetlog salvage", command("salvage", partition, "--into", "HERE")
    yield "offsetlog restore", command("restore", sound, "--into", "HERE")
    yield "offsetlog convert", command("convert", partition, "HERE")
    yield "offsetlog convert into it", command("convert", partition, "HERE/orders-0")
    yield "offsetlog append in it", command("append", "HERE/orders-9")
    yield "offsetlog mirror", command("mirror", "--bootstrap", "127.0.0.1:1", "--once", "--into", "HERE")
    yield "offsetlog serve", command("serve", "--listen", "127.0.0.1:0", "--groups", "HERE", sound)
    yield "offsetlog delete", command("delete", "made", "HERE")
    yield "offsetlog settings", command("settings", "-t", "made", "--config", "retention.ms=1", "HERE")


@pytest.mark.parametrize("name", ["orders-7", "place"])
def test_a_partition_is_no_place_for_anything_else(name: str, sound: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Also one that is called otherwise: no broker would ever see what stands inside, and it goes with the partition."""
    target = tmp_path / "disk" / name
    shutil.copytree(sound / "orders-0", target)
    assert folder_kind(target) == "partition"
    before = traces(tmp_path)
    for entry, call in refused_as_a_target(sound):
        assert said(capfd, call, target), entry
        assert traces(tmp_path) == before, entry


def zookeepers(path: Path) -> None:
    shutil.copytree(Path(__file__).parents[1] / "data/kafka-3.9.2-zookeeper/zookeeper", path)


def a_file(path: Path) -> None:
    path.write_text("mine")


@pytest.mark.parametrize("make", [zookeepers, a_file], ids=["ZooKeeper's data", "a file"])
def test_nothing_is_made_in_what_is_neither(
    make: Callable[[Path], object], sound: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "disk" / "orders-7"
    target.parent.mkdir()
    make(target)
    before = traces(tmp_path)
    for entry, call in [*refused_as_a_target(sound), ("Log.open for appending", opened(mode="a"))]:
        if entry == "Log.open deep in it" and make is zookeepers:
            # A folder of one's own among them is one's own.
            continue
        if entry == "restore to plan" and make is a_file:
            # The plan does not look at the folder that is to be made.
            continue
        with suppress(NotADirectoryError):
            assert said(capfd, call, target), entry
        assert traces(tmp_path) == before, entry


def test_other_files_stay_and_a_new_partition_or_copy_is_not_made_among_them(
    sound: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Who makes a new directory wants an empty one; who changes a topic wants it there."""
    target = tmp_path / "disk" / "orders-7"
    (target / "sub").mkdir(parents=True)
    (target / "notes.txt").write_text("mine")
    (target / "sub/more.txt").write_text("mine too")
    assert folder_kind(target) == "other"
    before = traces(tmp_path)
    for entry in (
        "restore",
        "salvage",
        "convert",
        "mirror",
        "offsetlog restore",
        "offsetlog convert",
        "offsetlog delete",
        "offsetlog settings",
    ):
        call = dict(refused_as_a_target(sound))[entry]
        assert said(capfd, call, target), entry
        assert traces(tmp_path) == before, entry
    with pytest.raises(LogDirError, match="not a log dir"):
        LogDir.open(target)
    assert traces(tmp_path) == before
