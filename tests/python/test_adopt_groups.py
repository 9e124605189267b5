"""``adopt``: groups that have committed offsets behind the end of what is taken in, wherever the broker has them when all is done."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS
from test_adopt import Place, aside

from offsetlog import AdoptedPartition, Log, LogDir, adopt

GROUPS = "__consumer_offsets"
CUT = 100


class Kafka:
    """A copy of a broker's log dirs, with a partition that ends before offsets that groups have committed."""

    def __init__(self, root: Path) -> None:
        Place.copy(CLEAN, root)
        self.log_dirs = [root / place.name for place in CLEAN_LOG_DIRS]
        self.metadata = root / "metadata-dir"
        with LogDir.open(self.log_dirs) as logs:
            committed = [(group.group_id, each) for group in logs.groups() for each in group.offsets]
        of_it = [(group, each.offset) for group, each in committed if (each.topic, each.partition) == ("g-plain", 1)]
        self.behind = {group: offset for group, offset in of_it if offset > CUT}
        assert self.behind
        self.plain = self.of("g-plain-1")
        with Log.open(self.plain, "a", single_replica=True) as log:
            log.truncate_to(CUT)
        self.groups = [self.of(f"{GROUPS}-{number}") for number in (0, 1)]

    def of(self, name: str) -> Path:
        (found,) = (place / name for place in self.log_dirs if (place / name).exists())
        return found

    def adopt(self, *directories: Path, **options: bool) -> list[str]:
        """The notes about groups, which are the same of a dry run and of the real one."""
        how = {"log_dirs": self.log_dirs, "metadata": self.metadata, **options}
        dry = notes_of(adopt(*directories, dry_run=True, **how))  # type: ignore[arg-type]  # by name
        assert notes_of(adopt(*directories, **how)) == dry  # type: ignore[arg-type]  # by name
        return dry


def notes_of(adopted: tuple[AdoptedPartition, ...]) -> list[str]:
    return [note for each in adopted for note in each.notes if "has committed offset" in note]


def emptied(directory: Path) -> Path:
    """The directory as of a log without records."""
    for path in directory.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    (directory / f"{0:020}.log").touch()
    return directory


@pytest.fixture
def kafka(tmp_path: Path) -> Kafka:
    return Kafka(tmp_path / "kafka")


@pytest.mark.parametrize("order", [1, -1])
def test_groups_that_are_taken_in_by_the_same_call_are_told(order: int, kafka: Kafka) -> None:
    """After a mass of directories was set aside, their topic is one of them."""
    directories = [aside(each) for each in (kafka.plain, *kafka.groups)]
    notes = kafka.adopt(*directories[::order])
    assert len(notes) == len(kafka.behind)
    for group, offset in kafka.behind.items():
        assert any(note.startswith(f'group "{group}" has committed offset {offset} of it, which ends at {CUT}') for note in notes)


@pytest.mark.parametrize("is_behind", [True, False])
def test_groups_that_are_taken_in_by_a_later_call_are_told(is_behind: bool, kafka: Kafka) -> None:
    """The first call had none to look at."""
    groups = [aside(each) for each in kafka.groups]
    assert kafka.adopt(aside(kafka.plain)) == []
    if not is_behind:
        whole = next(place / "g-plain-1" for place in CLEAN_LOG_DIRS if (place / "g-plain-1").exists())
        shutil.rmtree(kafka.plain)
        Place.copy(whole, kafka.plain)
    notes = kafka.adopt(*groups)
    assert len(notes) == (len(kafka.behind) if is_behind else 0)
    for group, offset in kafka.behind.items() if is_behind else ():
        start = f'group "{group}" has committed offset {offset} of g-plain-1, which ends at {CUT}: '
        (note,) = [note for note in notes if note.startswith(start)]
        assert f"--group {group} --reset-offsets --to-offset {CUT} --topic g-plain:1 --execute" in note


def test_groups_in_the_place_of_those_that_are_taken_in_do_not_count(kafka: Kafka) -> None:
    """What is set aside says nothing: neither the groups in it, nor that there are none."""
    strays = [aside(each) for each in kafka.groups]
    for live, stray in zip(kafka.groups, strays, strict=True):
        emptied(Place.copy(stray, live))
    assert len(kafka.adopt(aside(kafka.plain), *strays, set_aside=True)) == len(kafka.behind)


def test_groups_that_are_set_aside_are_not_told(kafka: Kafka) -> None:
    strays = [emptied(Place.copy(each, each.with_name(f"{each.name}.{'a' * 32}-stray"))) for each in kafka.groups]
    assert kafka.adopt(aside(kafka.plain), *strays, set_aside=True) == []
