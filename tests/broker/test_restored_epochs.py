"""A stopped broker takes restored leader epochs: as they were where its cluster counts as many already, else numbered anew, each history whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from clients import Admin, ReaderOfAll
from golden import Golden
from restoring import BUSY, IS_WHOLE, READABLE, SOURCES, CleanStarts, WrittenFiles, check_rows, places, with_log_dirs
from wire import Wire

from broker import Broker
from conftest import KRAFT
from offsetlog import restore

GREATEST = 4
"""Of the dead broker's epochs: its third start."""
TOPICS: tuple[dict[str, int], ...] = (
    {"g-plain": 3, "g-codec-lz4": 1},
    {"g-epochs": 2, "g-time": 3},
    {"g-txn": 2, "g-deleted-prefix": 2},
)
"""With which start of the new cluster they come. It has counted the epochs of the first ones up to what the records have; those of the
second ones may all be different; of the third ones there are more than the cluster has counted."""
KEPT, RENUMBERED, _ = TOPICS


def history(file: Path) -> list[tuple[int, int]]:
    """Leader epochs and their first offsets, as a broker stores them."""
    return [(int(epoch), int(start)) for epoch, start in (line.split() for line in file.read_text(encoding="ascii").splitlines()[2:])]


def with_records(golden: Golden, epochs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those that have an offset."""
    return [(epoch, start) for epoch, start in epochs if start < golden.end]


def check_epochs(broker: Broker, golden: Golden, new: list[tuple[int, int]]) -> None:
    """The broker answers for each epoch with its end, and each batch has its own; they begin where those of the dead broker did."""
    old = with_records(golden, history(golden.directory / "leader-epoch-checkpoint"))
    if not old:
        assert (new, golden.rows) == ([], ())
        return
    assert [epoch for epoch, _ in new] == sorted({epoch for epoch, _ in new}), golden.name
    # Where the cluster has counted too few, some that follow each other are one.
    starts = [start for _, start in new]
    of = {epoch: max(each for each, start in new if start <= begin) for epoch, begin in old}
    assert set(starts) <= {start for _, start in old}, golden.name
    if golden.topic in KEPT:
        assert new == old, golden.name
    elif golden.topic in RENUMBERED:
        assert starts == [start for _, start in old], golden.name
    with Wire(broker.address) as wire:
        for (epoch, _), end in zip(new, [*starts[1:], golden.end], strict=True):
            assert wire.end_offset_for_epoch(golden.topic, golden.partition, epoch) == (epoch, end), golden.name
    (at,) = places([golden])
    with ReaderOfAll(broker.address, [at], "read_uncommitted") as reader:
        seen = {row.offset: row.leader_epoch for row in reader.everything()[at]}
    assert seen == {row.offset: of[row.leader_epoch] for row in golden.rows}, golden.name


@pytest.mark.parametrize("version", KRAFT if IS_WHOLE else KRAFT[:1])
def test_epochs_are_kept_or_numbered_anew(version: str, tmp_path: Path, clean_starts: CleanStarts, written: WrittenFiles) -> None:
    """Both in one cluster, and again after a restart."""
    broker, log_dirs = with_log_dirs(version, tmp_path / "broker", {**BUSY, "log.retention.ms": -1})
    names: list[str] = []
    for topics in TOPICS:
        with broker.running(), Admin(broker.address) as admin:
            for topic, number in topics.items():
                admin.create(topic, number, {})
                admin.leader_epochs(topic)
            names += topics
            counted = {topic: max(admin.leader_epochs(topic).values()) for topic in names}
    assert {topic: epoch >= GREATEST for topic, epoch in counted.items()} == {topic: topic in KEPT for topic in names}
    assert broker.metadata_dir is not None
    report = restore(SOURCES, log_dirs, topics=names, metadata=broker.metadata_dir)
    assert {each.state for each in report.partitions} == {"restored"}
    written.keep(report)
    known = [golden for golden in READABLE if golden.topic in names]
    histories: dict[str, list[tuple[int, int]]] = {}
    for golden, each in zip(sorted(known, key=lambda golden: (golden.topic, golden.partition)), report.partitions, strict=True):
        histories[golden.name] = new = history(Path(each.into[0].path) / "leader-epoch-checkpoint")
        assert (each.topic, each.partition, each.leader_epoch) == (golden.topic, golden.partition, GREATEST)
        assert (each.leader_epoch_max is None) == (each.topic in KEPT)
        # What the cluster has counted when it stopped, one more than while it ran.
        limit = GREATEST if each.leader_epoch_max is None else each.leader_epoch_max
        assert all(epoch <= limit for epoch, _ in new)
        assert each.leader_epoch_max in {None, counted[each.topic], counted[each.topic] + 1}
    for _ in range(2):
        with broker.running():
            check_rows(broker, [golden for golden in known if golden.topic in KEPT])
            check_rows(broker, known, epochs=False)
            for golden in known:
                check_epochs(broker, golden, histories[golden.name])
    clean_starts.check_words(broker, [golden.name for golden in known])
