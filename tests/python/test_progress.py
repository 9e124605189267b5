"""What reads many partitions or directories tells which one it is at, and what its progress raises ends it."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS, DATA

from offsetlog import (
    LogDir,
    end_transaction,
    identity,
    metadata_as_commands,
    metadata_as_yaml,
    recover,
    verify,
    zookeeper_node,
)

INTERNAL = ("__consumer_offsets", "__share_group_state")
FOLDERS = [*CLEAN_LOG_DIRS, CLEAN / "metadata-dir"]
READING: dict[str, Callable[..., Any]] = {
    "groups": LogDir.groups,
    "groups_prometheus": lambda log_dir, **options: log_dir.groups_prometheus(now=0, **options),
    "groups_reset_csv": LogDir.groups_reset_csv,
    "why": LogDir.why,
    "producers": LogDir.producers,
    "transactions": LogDir.transactions,
    "strays": LogDir.strays,
}
LISTING: dict[str, Callable[..., Any]] = {
    "identity": identity,
    "as_commands": metadata_as_commands,
    "as_yaml": metadata_as_yaml,
}
ZOOKEEPER = DATA / "zookeeper" / "3.8.4"
NODE = "/brokers/topics/first"


def internal_and_read() -> tuple[list[str], list[str]]:
    """Partitions of the internal topics that are here, and those that groups have committed offsets of."""
    with LogDir.open(CLEAN_LOG_DIRS) as log_dir:
        here = log_dir.partitions()
        internal = [f"{topic}-{partition}" for topic in INTERNAL for name, partition in here if name == topic]
        read = {(each.topic, each.partition) for group in log_dir.groups() for each in group.offsets}
    return internal, [f"{topic}-{partition}" for topic, partition in sorted(read) if (topic, partition) in here]


@pytest.mark.parametrize("verb", ["groups", "groups_prometheus"])
def test_groups_tell_of_internal_topics_and_then_of_what_is_read(verb: str) -> None:
    internal, read = internal_and_read()
    assert internal
    assert read
    steps: list[tuple[int, int, str]] = []
    with LogDir.open(CLEAN_LOG_DIRS) as log_dir:
        READING[verb](log_dir, progress=lambda *step: steps.append(step))
    total = len(internal) + len(read)
    assert steps == [
        *((done, len(internal), name) for done, name in enumerate(internal)),
        *((done, total, name) for done, name in enumerate(read, len(internal))),
        (total, total, read[-1]),
    ]


def test_a_reset_file_needs_the_internal_topics_alone() -> None:
    internal, _ = internal_and_read()
    steps: list[tuple[int, int, str]] = []
    with LogDir.open(CLEAN_LOG_DIRS) as log_dir:
        log_dir.groups_reset_csv(progress=lambda *step: steps.append(step))
    total = len(internal)
    assert steps == [*((done, total, name) for done, name in enumerate(internal)), (total, total, internal[-1])]


@pytest.mark.parametrize("verb", LISTING)
def test_directories_are_told_one_by_one(verb: str) -> None:
    steps: list[tuple[int, int, str]] = []
    answer = LISTING[verb](*FOLDERS, progress=lambda *step: steps.append(step))
    assert answer == LISTING[verb](*FOLDERS)
    folders = [sorted(each for each in folder.iterdir() if each.is_dir()) for folder in FOLDERS]
    names = [str(each.absolute()) for folder in folders for each in folder]
    assert [name for _, _, name in steps] == [*names, names[-1]]
    assert [done for done, *_ in steps] == list(range(len(names) + 1))
    # The next folder is counted when the one before it is done.
    totals = [sum(map(len, folders[: number + 1])) for number, folder in enumerate(folders) for _ in folder]
    assert [total for _, total, _ in steps] == [*totals, len(names)]


def test_transactional_ids_are_read_from_their_topic_alone() -> None:
    steps: list[tuple[int, int, str]] = []
    with LogDir.open(CLEAN_LOG_DIRS) as log_dir:
        names = [f"{topic}-{number}" for topic, number in log_dir.partitions() if topic == "__transaction_state"]
        assert log_dir.transactions(progress=lambda *step: steps.append(step)) == log_dir.transactions()
    total = len(names)
    assert total > 1
    assert steps == [*((done, total, name) for done, name in enumerate(names)), (total, total, names[-1])]


def test_a_metadata_log_is_a_step_and_so_is_its_snapshot(tmp_path: Path) -> None:
    golden = CLEAN / "metadata-dir"
    log = str((golden / "__cluster_metadata-0").absolute())
    steps: list[tuple[int, int, str]] = []
    with LogDir.open(golden) as log_dir:
        assert log_dir.metadata(progress=lambda *step: steps.append(step)) == log_dir.metadata()
    assert steps == [(0, 1, log), (1, 1, log)]
    formatted = Path(shutil.copytree(DATA / "kafka-3.9.2-formatted" / "standalone", tmp_path / "formatted"))
    (snapshot,) = (formatted / "__cluster_metadata-0").glob("*.checkpoint")
    steps.clear()
    with LogDir.open(formatted) as log_dir:
        assert log_dir.metadata(progress=lambda *step: steps.append(step)) == log_dir.metadata()
    assert steps[0] == (0, 1, str(snapshot))


def test_each_file_of_zookeepers_is_a_step() -> None:
    """The newest snapshot, and behind it the transactions in the only log."""
    snapshot, log = (str((ZOOKEEPER / "version-2" / name).absolute()) for name in ("snapshot.40", "log.1"))
    expected = [(0, 1, snapshot), (1, 2, log), (2, 2, log)]
    steps: list[tuple[int, int, str]] = []
    assert zookeeper_node(ZOOKEEPER, NODE, progress=lambda *step: steps.append(step)) == zookeeper_node(ZOOKEEPER, NODE)
    assert steps == expected
    steps.clear()
    with LogDir.open(ZOOKEEPER) as log_dir:
        assert log_dir.metadata(progress=lambda *step: steps.append(step)) == log_dir.metadata()
    assert steps == expected


def test_strays_tell_of_the_metadata_and_of_each_directory() -> None:
    steps: list[tuple[int, int, str]] = []
    with LogDir.open(FOLDERS) as log_dir:
        assert log_dir.strays(progress=lambda *step: steps.append(step)) == log_dir.strays()
    log = str((CLEAN / "metadata-dir" / "__cluster_metadata-0").absolute())
    directories = [each for folder in CLEAN_LOG_DIRS for each in folder.iterdir() if each.is_dir()]
    names = [name for _, _, name in steps]
    assert names[0] == log
    assert sorted(names[1:-1]) == sorted(str(each.absolute()) for each in directories)
    assert names[-1] == names[-2]
    total = 1 + len(directories)
    assert [step[:2] for step in steps] == [(0, 1), *((done, total) for done in range(1, total + 1))]


@pytest.mark.parametrize("verb", ["metadata", "zookeeper_node"])
def test_what_it_raises_ends_the_reading_of_files(verb: str) -> None:
    """Without a second try, as is due to files that change meanwhile."""
    calls: list[str] = []

    def refuse(done: int, _: int, name: str) -> None:
        calls.append(name)
        if done == 1:
            raise KeyError(name)

    def run(progress: Any) -> object:  # noqa: ANN401  # a wrong one too
        if verb == "zookeeper_node":
            return zookeeper_node(ZOOKEEPER, NODE, progress=progress)
        with LogDir.open(ZOOKEEPER) as log_dir:
            return log_dir.metadata(progress=progress)

    with pytest.raises(KeyError) as raised:
        run(refuse)
    assert raised.value.args == (calls[1],)
    assert len(calls) == 2
    with pytest.raises(TypeError, match="progress must be callable, found int"):
        run(7)


def test_nothing_is_told_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=b2Zmc2V0bG9nLXRlc3RzLWM\nnode.id=1\n", encoding="utf-8")

    def refuse(*_: object) -> None:
        raise AssertionError

    assert [row.kind for row in identity(tmp_path, progress=refuse)] == ["log-dir"]
    with LogDir.open(tmp_path) as log_dir:
        assert log_dir.groups(progress=refuse) == []


@pytest.mark.parametrize("verb", [*READING, *LISTING])
def test_what_it_raises_ends_the_work(verb: str) -> None:
    calls: list[str] = []

    def refuse(done: int, total: int, name: str) -> None:
        calls.append(name)
        if done == 1:
            raise KeyError(name, total)

    def run(**options: object) -> object:
        if verb in LISTING:
            return LISTING[verb](*FOLDERS, **options)
        with LogDir.open(FOLDERS) as log_dir:
            return READING[verb](log_dir, **options)

    with pytest.raises(KeyError) as raised:
        run(progress=refuse)
    assert raised.value.args[0] == calls[1]
    assert len(calls) == 2
    with pytest.raises(TypeError, match="progress must be callable, found int"):
        run(progress=7)
    assert run() == run(progress=lambda *_: None)


def test_the_end_of_a_transaction_tells_of_the_coordinators(tmp_path: Path) -> None:
    """Once when it decides, and once more under the lock; what is raised there leaves the partition as it was."""
    folders = [Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in CLEAN_LOG_DIRS]
    end = functools.partial(
        end_transaction, folders, "g-txn", 0, 1000, commit=False, single_replica=True, metadata=CLEAN / "metadata-dir"
    )
    with LogDir.open(folders) as log_dir:
        states = [f"{topic}-{number}" for topic, number in log_dir.partitions() if topic == "__transaction_state"]
    assert states
    once = [*((done, len(states), name) for done, name in enumerate(states)), (len(states), len(states), states[-1])]
    steps: list[tuple[int, int, str]] = []
    end(dry_run=True, progress=lambda *step: steps.append(step))
    assert steps == once

    def refuse(*step: object) -> None:
        steps.append(step)  # type: ignore[arg-type]
        if len(steps) > len(once):
            raise KeyError(step[2])

    steps.clear()
    segments = {file: file.read_bytes() for folder in folders for file in (folder / "g-txn-0").glob("*.log")}
    assert segments
    with pytest.raises(KeyError):
        end(progress=refuse)
    assert {file: file.read_bytes() for file in segments} == segments
    with pytest.raises(TypeError, match="progress must be callable, found int"):
        end(progress=7)  # type: ignore[arg-type]
    steps.clear()
    assert end(progress=lambda *step: steps.append(step)).marker_offset is not None
    assert steps == [*once, *once]


def test_a_recovery_tells_of_its_bytes(tmp_path: Path) -> None:
    """Every byte that it reads; what is raised ends the work, and the next call does it whole."""
    source = DATA / "kafka-4.3.0" / "torn" / "log-dir-1" / "g-torn-cut-batch-0"
    steps: list[int] = []
    wanted = recover(Path(shutil.copytree(source, tmp_path / "one" / source.name)), progress=steps.append)
    assert wanted.cut
    assert sum(steps) == wanted.bytes_read
    again = Path(shutil.copytree(source, tmp_path / "two" / source.name))

    def refuse(more: int) -> None:
        raise KeyError(more)

    with pytest.raises(KeyError):
        recover(again, progress=refuse)
    with pytest.raises(TypeError, match="progress must be callable, found int"):
        recover(again, progress=7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="progress must be callable, found int"):
        verify(again, progress=7)  # type: ignore[arg-type]
    found = recover(again, progress=steps.append)
    assert [(cut.position, cut.bytes) for cut in found.cut] == [(cut.position, cut.bytes) for cut in wanted.cut]
