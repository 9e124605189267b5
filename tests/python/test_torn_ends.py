"""Half a record behind the newest of Kafka's own topics, or of ZooKeeper's log: what it would have changed is said to be missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS, DATA
from held_records import offsetlog
from writing import HOLD, running

from offsetlog import LogDir

METADATA = "__cluster_metadata-0"


def cut(path: Path, count: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - count])


def copied(tmp_path: Path, name: str) -> tuple[Path, Path]:
    """A log dir of a real broker with a partition of an internal topic, whose last batch lost its last bytes."""
    (log_dir,) = [each for each in CLEAN_LOG_DIRS if (each / name).is_dir()]
    place = Path(shutil.copytree(log_dir, tmp_path / log_dir.name))
    segment = max((place / name).glob("*.log"))
    cut(segment, 5)
    # They say where the log ended, which is an error of its own.
    for checkpoint in place.glob("*-checkpoint"):
        checkpoint.unlink()
    return place, segment


@pytest.mark.parametrize("words", [(), ("--reset-csv",), ("--prometheus",)])
def test_committed_offsets(tmp_path: Path, words: tuple[str, ...]) -> None:
    place, _ = copied(tmp_path, "__consumer_offsets-0")
    done = offsetlog("groups", place, *words)
    assert "__consumer_offsets-0: torn tail of " in done.stderr
    assert "may be newer" in done.stderr
    lock = place / ".lock"
    lock.touch()
    with running(HOLD, lock):
        # It may be a write in progress.
        assert "torn tail" not in offsetlog("groups", place, *words).stderr


@pytest.mark.parametrize("words", [(), ("--as-commands",), ("--as-yaml",)])
def test_the_metadata_log(tmp_path: Path, words: tuple[str, ...]) -> None:
    place = Path(shutil.copytree(CLEAN / "metadata-dir", tmp_path / "metadata"))
    cut(max((place / METADATA).glob("*.log")), 5)
    done = offsetlog("metadata", place, *words)
    assert f"{METADATA}: torn tail of " in done.stderr
    assert "is missing" in done.stderr


def test_zookeepers_log(tmp_path: Path) -> None:
    """A length that was never written whole; its zeros behind are none."""
    source = DATA / "kafka-3.9.2-zookeeper" / "zookeeper"
    whole = offsetlog("metadata", source)
    assert "transaction was not written whole" not in whole.stderr
    place = Path(shutil.copytree(source, tmp_path / "zookeeper"))
    log = max(place.rglob("log.*"), key=lambda path: int(path.suffix[1:], 16))
    data = log.read_bytes().rstrip(b"\0")
    log.write_bytes(data[:-20])
    done = offsetlog("metadata", place)
    assert done.returncode == 0
    assert f"{log}: at position " in done.stderr
    assert "a transaction was not written whole, or is damaged: what it changed is missing" in done.stderr


def test_metadata_with_half_a_batch_does_not_decide_which_topic_a_directory_is_of(tmp_path: Path) -> None:
    """What is lost may have made the topic again, with the id that the directory has."""
    place = Path(shutil.copytree(CLEAN, tmp_path / "kafka"))
    folders = [place / each.name for each in CLEAN_LOG_DIRS]
    for directory in (each for folder in folders for each in folder.glob("g-plain-*")):
        (directory / "partition.metadata").unlink()
        (directory / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    with LogDir.open([*folders, place / "metadata-dir"]) as log_dir:
        assert "g-plain" in {stray.topic for stray in log_dir.strays() or ()}
    cut(max((place / "metadata-dir" / METADATA).glob("*.log")), 5)
    with LogDir.open([*folders, place / "metadata-dir"]) as log_dir:
        # Nobody knows.
        assert log_dir.strays() is None
