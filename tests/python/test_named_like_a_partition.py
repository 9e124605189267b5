"""What has the name of a partition and is none: a broker takes only directories for partitions, so nothing here may hang, hide or overwrite it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from writing import environment

from offsetlog import Log, LogDir, LogDirError, TopicPartition, folder_kind, restore, verify

# An opening that waits for the other end of a pipe ends here.
SECONDS = 120


def a_file(path: Path) -> None:
    path.write_bytes(b"somebody's")


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        # Their names are short.
        before = Path.cwd()
        os.chdir(path.parent)
        try:
            made.bind(path.name)
        finally:
            os.chdir(before)


MADE: dict[str, Callable[[Path], None]] = {
    "a file": a_file,
    "a pipe": os.mkfifo,
    "a link to nothing": a_link_to_nothing,
    "a link to itself": a_link_to_itself,
    "a socket": a_socket,
}


@pytest.fixture(params=MADE)
def log_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A log dir with a partition, and what is named like the second one of its topic and the first one of another."""
    with LogDir.open(tmp_path, "a") as made:
        made.create_topic("t", partitions=1)
        made.append("t", b"value", partition=0)
    for name in ("t-1", "u-0"):
        MADE[request.param](tmp_path / name)
    return tmp_path


def seen(path: Path) -> tuple[object, ...]:
    found = path.lstat()
    return (found.st_mode, found.st_size, found.st_ino, found.st_mtime_ns, path.is_file() and path.read_bytes())


def named(log_dir: Path) -> list[str]:
    """What stands in it, but for locks."""
    return sorted(path.name for path in log_dir.iterdir() if not path.name.startswith("."))


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "offsetlog", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment(), timeout=SECONDS)


def test_it_is_no_partition(log_dir: Path) -> None:
    before = [seen(log_dir / name) for name in ("t-1", "u-0")]
    with LogDir.open(log_dir) as reader:
        assert reader.partitions() == [TopicPartition("t", 0)]
        assert reader.topics() == {"t": [0]}
        assert reader.end_offsets() == {TopicPartition("t", 0): 1}
        assert [record.value for record in reader.scan()] == [b"value"]
        assert not reader.why()[1:]
    for words in (
        ["ls"],
        ["cat", "-t", "t"],
        ["why"],
        ["verify"],
        ["time", "0"],
        ["maintain", "--dry-run"],
        ["groups"],
        ["transactions"],
    ):
        ran = run(words[0], log_dir, *words[1:]) if words[0] != "time" else run("time", "0", log_dir)
        assert ran.returncode in {0, 1}, (words, ran)
        if words == ["verify"] and (log_dir / "u-0").is_symlink():
            # A disk that is not mounted looks the same.
            assert ran.stdout.count("leads to no folder") == 2, ran
        else:
            assert "u-0" not in ran.stdout, (words, ran)
    assert [seen(log_dir / name) for name in ("t-1", "u-0")] == before


@pytest.mark.parametrize("mode", ["r", "a"])
def test_it_is_not_opened(log_dir: Path, mode: str) -> None:
    """Neither is anything made in its place."""
    before = [seen(log_dir / name) for name in ("t-1", "u-0")]
    names = named(log_dir)
    source = f"""
import sys
from offsetlog import Log
for _ in range(2):
    try:
        Log.open(sys.argv[1], {mode!r})
    except OSError as error:
        print(type(error).__name__, error.filename)
"""
    for name in ("t-1", "u-0"):
        command = [sys.executable, "-c", source, str(log_dir / name)]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment(), timeout=SECONDS)
        assert len(ran.stdout.splitlines()) == 2, ran
    assert [seen(log_dir / name) for name in ("t-1", "u-0")] == before
    assert named(log_dir) == names


def test_no_topic_is_made_over_it(log_dir: Path) -> None:
    before = [seen(log_dir / name) for name in ("t-1", "u-0")]
    names = named(log_dir)
    for _ in range(2):
        with LogDir.open(log_dir, "a") as writer:
            with pytest.raises((OSError, LogDirError), match="u-0") as caught:
                writer.create_topic("u", partitions=1)
            assert "another program" not in str(caught.value)
            with pytest.raises(LogDirError, match="no partition 1"):
                writer.append("t", b"value", partition=1)
            with pytest.raises(LogDirError, match="no topic"):
                writer.append("u", b"value")
            assert writer.append("t", b"more", partition=0).offset >= 1
        assert [seen(log_dir / name) for name in ("t-1", "u-0")] == before
        assert named(log_dir) == names


def test_folders_are_told_apart_from_it(log_dir: Path) -> None:
    for name in ("t-1", "u-0"):
        with pytest.raises(OSError, match=name):
            folder_kind(log_dir / name)
        with pytest.raises(OSError, match=name):
            verify(log_dir / name)


def test_nothing_is_restored_over_it(log_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    source = tmp_path_factory.mktemp("source")
    with LogDir.open(source, "a") as made:
        made.create_topic("u", partitions=1)
        made.append("u", b"value")
    before = [seen(log_dir / name) for name in ("t-1", "u-0")]
    for _ in range(2):
        (found,) = restore([source], log_dir).partitions
        # A link is refused by the plan, another file by the work.
        assert found.state in {"refused", "failed"}
        assert found.topic == "u"
        assert found.reason is not None
        assert "u-0" in found.reason
    assert [seen(log_dir / name) for name in ("t-1", "u-0")] == before
    with LogDir.open(log_dir) as reader:
        assert reader.partitions() == [TopicPartition("t", 0)]


def test_a_link_to_a_partition_is_named_and_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A broker follows it; here whoever asks is told to give the path that it leads to, which is read and locked by its own place."""
    for topic, place in (("t", "elsewhere"), ("u", "here")):
        with LogDir.open(tmp_path / place, "a") as made:
            made.create_topic(topic, partitions=1)
            made.append(topic, b"value", partition=0)
    link = tmp_path / "here" / "t-0"
    link.symlink_to(tmp_path / "elsewhere" / "t-0")
    with LogDir.open(tmp_path / "here") as reader:
        assert reader.topics() == {"u": [0]}
    assert "'t-0'" in caplog.text.replace('"', "'")
    with Log.open(link) as log:
        assert log.log_end_offset == 1
    with pytest.raises(LogDirError, match="t-0"):
        Log.open(link, "a")
    with LogDir.open(tmp_path / "here", "a") as writer, pytest.raises((OSError, LogDirError), match="t-0"):
        writer.create_topic("t", partitions=1)
