"""A stream whose partitions go away for a while, as with a disk that is not mounted: nothing is read twice when they are back."""

from __future__ import annotations

import copy
import json
import logging
import shutil
from pathlib import Path

import pytest
from stream_engine import KINDS, Checkpoint, Engine, append

from offsetlog import LogDir, TopicPartition
from offsetlog.errors import LogDirError
from offsetlog.spark.stream_offsets import Known, from_json, to_json

LENIENT = {"failOnDataLoss": "false"}


def query(*folders: Path, **options: str) -> dict[str, str]:
    return {"path": ",".join(map(str, folders)), "subscribe": "t", "startingOffsets": "earliest", **options}


def two(folder: Path) -> tuple[Path, Path]:
    """Two log dirs with a partition of topic `t` in each, of five records."""
    folders = folder / "a", folder / "b"
    with LogDir.open(folders, "a") as log_dir:
        log_dir.create_topic("t", 2)
    grow(folders, 5)
    return folders


def grow(folders: tuple[Path, Path], count: int) -> None:
    with LogDir.open(folders, "a") as log_dir:
        for partition in log_dir.topics()["t"]:
            for number in range(count):
                log_dir.append("t", b"%d" % number, partition=partition)


def place_of(folders: tuple[Path, Path], partition: int) -> Path:
    return next(folder for folder in folders if (folder / f"t-{partition}").is_dir())


def test_what_is_gone_is_beside_the_offsets() -> None:
    gone = {TopicPartition("t", 2): 9, TopicPartition("a", 0): 4}
    found = to_json({TopicPartition("t", 0): 3}, {"a": "x"}, {TopicPartition("t", 2): 7}, None, gone)
    assert json.dumps(found) == '{"a": {"id": "x", "gone": {"0": 4}}, "t": {"0": 3, "epochs": {"2": 7}, "gone": {"2": 9}}}'
    assert from_json(found) == {("t", 0): 3}
    assert Known.of(found).gone == gone


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_log_dir_that_is_not_mounted_ends_the_query(kind: str, loss: str, tmp_path: Path) -> None:
    """Also where data may be lost: a missing mount is not a deleted topic."""
    folders = two(tmp_path)
    checkpoint = Checkpoint()
    options = query(*folders, failOnDataLoss=loss)
    Engine(options, checkpoint, kind=kind).drain()
    before = copy.deepcopy(checkpoint.offsets)
    away = place_of(folders, 1)
    away.rename(tmp_path / "aside")
    away.mkdir()
    with pytest.raises(LogDirError, match="is its disk mounted") as refused:
        Engine(options, checkpoint, kind=kind).drain()
    assert refused.value.path == str(away)
    assert checkpoint.offsets == before
    away.rmdir()
    (tmp_path / "aside").rename(away)
    grow(folders, 2)
    Engine(options, checkpoint, kind=kind).drain()
    assert checkpoint.records() == {("t", number): list(range(7)) for number in range(2)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", ["", "2"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_partition_that_comes_back_is_read_on(
    kind: str, most: str, *, restarts: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folders = two(tmp_path)
    checkpoint = Checkpoint()
    options = query(*folders, **LENIENT, **({"maxOffsetsPerTrigger": most} if most else {}))
    engine = Engine(options, checkpoint, kind=kind)
    engine.drain()
    directory, aside = place_of(folders, 1) / "t-1", tmp_path / "t-1"
    directory.rename(aside)
    for _ in range(3):
        grow(folders, 1)
        if restarts:
            engine = Engine(options, checkpoint, kind=kind)
        engine.drain()
        assert Known.of(json.loads(checkpoint.offsets[-1])).gone == {("t", 1): 5}
        assert not engine.trigger()
    assert "t-1: their topics were deleted" in caplog.text
    aside.rename(directory)
    grow(folders, 3)
    if restarts:
        engine = Engine(options, checkpoint, kind=kind)
    engine.drain()
    assert checkpoint.records() == {("t", 0): list(range(11)), ("t", 1): list(range(8))}
    assert Known.of(json.loads(checkpoint.offsets[-1])).gone == {}
    grow(folders, 1)
    engine.drain()
    assert checkpoint.records() == {("t", 0): list(range(12)), ("t", 1): list(range(9))}


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_that_may_lose_nothing_goes_on_once_the_partition_is_back(kind: str, tmp_path: Path) -> None:
    """Its checkpoint has a micro-batch without it."""
    folders = two(tmp_path)
    checkpoint = Checkpoint()
    options = query(*folders)
    Engine(options, checkpoint, kind=kind).drain()
    directory, aside = place_of(folders, 1) / "t-1", tmp_path / "t-1"
    directory.rename(aside)
    for _ in range(2):
        with pytest.raises(FileNotFoundError, match="t-1: their topics were deleted"):
            Engine(options, checkpoint, kind=kind).drain()
    aside.rename(directory)
    grow(folders, 1)
    Engine(options, checkpoint, kind=kind).drain()
    assert checkpoint.records() == {("t", number): list(range(6)) for number in range(2)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("values", [0, 3, 50])
def test_a_topic_that_was_made_anew_meanwhile_is_read_from_its_start(kind: str, values: int, tmp_path: Path) -> None:
    folders = two(tmp_path)
    checkpoint = Checkpoint()
    options = {"path": ",".join(map(str, folders)), "subscribePattern": "t|u", "startingOffsets": "earliest", **LENIENT}
    engine = Engine(options, checkpoint, kind=kind)
    engine.drain()
    with LogDir.open(folders, "a") as log_dir:
        log_dir.delete_topic("t")
        log_dir.create_topic("u", 1)
        log_dir.append("u", b"", partition=0)
    engine.drain()
    assert Known.of(json.loads(checkpoint.offsets[-1])).gone == {("t", 0): 5, ("t", 1): 5}
    with LogDir.open(folders, "a") as log_dir:
        log_dir.create_topic("t", 2)
    grow(folders, values)
    engine.drain()
    rows = checkpoint.records()
    assert rows["u", 0] == [0]
    for number in range(2):
        assert rows["t", number] == sorted([*range(5), *range(values)])
    assert Known.of(json.loads(checkpoint.offsets[-1])).gone == {}


@pytest.mark.parametrize("kind", KINDS)
def test_the_rest_of_a_topic_that_was_made_anew_is_forgotten(kind: str, tmp_path: Path) -> None:
    """One partition is away while the others are made anew: the one that comes is the new topic's."""
    folders = two(tmp_path)
    checkpoint = Checkpoint()
    options = query(*folders, **LENIENT)
    engine = Engine(options, checkpoint, kind=kind)
    engine.drain()
    shutil.rmtree(place_of(folders, 1) / "t-1")
    grow(folders, 1)
    engine.drain()
    assert Known.of(json.loads(checkpoint.offsets[-1])).gone == {("t", 1): 5}
    with LogDir.open(folders, "a") as log_dir:
        log_dir.delete_topic("t")
        log_dir.create_topic("t", 2)
    directory, aside = place_of(folders, 1) / "t-1", tmp_path / "t-1"
    directory.rename(aside)
    engine.drain()
    assert Known.of(json.loads(checkpoint.offsets[-1])).gone == {}
    aside.rename(directory)
    grow(folders, 20)
    engine.drain()
    rows = checkpoint.records()
    assert rows["t", 0] == sorted([*range(6), *range(20)])
    assert rows["t", 1] == sorted([*range(5), *range(20)])


@pytest.mark.parametrize("kind", KINDS)
def test_a_partition_without_an_id_is_read_on_with_a_warning(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    append(folder, "t-0", 3)
    append(folder, "t-1", 3)
    checkpoint = Checkpoint()
    engine = Engine(query(folder, **LENIENT), checkpoint, kind=kind)
    engine.drain()
    (folder / "t-1").rename(tmp_path / "t-1")
    append(folder, "t-0", 1)
    engine.drain()
    (tmp_path / "t-1").rename(folder / "t-1")
    append(folder, "t-1", 2)
    with caplog.at_level(logging.WARNING, "offsetlog"):
        engine.drain()
    assert "t-1 is there again; it is read on from offset 3. It has no topic id" in caplog.text
    assert checkpoint.records() == {("t", 0): list(range(4)), ("t", 1): list(range(5))}
