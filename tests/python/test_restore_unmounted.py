"""``restore`` where a log dir of the broker is not given, as if its disk were not mounted: what belongs there is made nowhere else."""

from __future__ import annotations

import shutil
from pathlib import Path

from golden import CLEAN
from restoring import SOURCES, formatted, metadata_of, states_of
from writing import tree

from offsetlog import restore


def directory_id(log_dir: Path) -> str:
    (line,) = (line for line in (log_dir / "meta.properties").read_text().splitlines() if line.startswith("directory.id="))
    return line.removeprefix("directory.id=")


def test_a_partition_of_a_log_dir_that_is_not_here_is_refused(tmp_path: Path) -> None:
    """By the metadata of a real broker with two: the one on the other disk is not restored into this one, and the reason names the disk."""
    broker = Path(shutil.copytree(CLEAN, tmp_path / "broker"))
    first, second, metadata = (broker / name for name in ("log-dir-1", "log-dir-2", "metadata-dir"))
    (topic,) = (topic for topic in metadata_of([metadata]).topics if topic.name == "g-appendtime")
    assert [partition.directories for partition in topic.partitions] == [(directory_id(second),)]
    before = tree(broker)
    (each,) = restore(SOURCES, first, metadata=metadata, topics="g-appendtime").partitions
    assert each.state == "refused"
    assert directory_id(second) in (each.reason or "")
    assert "give all log dirs of the broker" in (each.reason or "")
    assert {name: data for name, data in tree(broker).items() if not name.endswith(".lock")} == before
    both = restore(SOURCES, [first, second], metadata=metadata, topics="g-appendtime")
    assert states_of(both) == {"there"}
    # What is on the disk that is here goes on.
    assert states_of(restore(SOURCES, first, metadata=metadata, topics="g-epochs")) == {"there"}


def test_a_partition_that_a_new_cluster_has_in_a_log_dir_that_is_not_here_is_refused(tmp_path: Path) -> None:
    """Its `bootstrap.checkpoint` says where it is: a second directory of it would keep the broker from starting."""
    into = [formatted(tmp_path / str(number)) for number in (1, 2)]
    file = into[1] / "meta.properties"
    file.write_text(file.read_text().replace(directory_id(into[1]), "ZZcdefghijklmnopqrstuw"))
    report = restore(SOURCES, into, topics="g-epochs", new_cluster=True)
    places = {each.partition: Path(each.into[0].path).parent for each in report.partitions}
    assert set(places.values()) == set(into)
    before = tree(tmp_path)
    report = restore(SOURCES, into[0], topics="g-epochs", new_cluster=True)
    for each in report.partitions:
        is_here = places[each.partition] == into[0]
        assert each.state == ("there" if is_here else "refused")
        assert is_here or "ZZcdefghijklmnopqrstuw" in (each.reason or "")
    assert tree(tmp_path) == before
    assert states_of(restore(SOURCES, into, topics="g-epochs", new_cluster=True)) == {"there"}
    assert tree(tmp_path) == before
