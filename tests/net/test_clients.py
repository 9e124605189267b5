"""Clients of others, unmodified, read what `serve` answers: every record as real consumers saw it when the brokers lived."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
from asking import LEVELS, OF_OLD, OF_UNCLEAN, READABLE, STATE, ask, commits, expected, places, told
from client_programs import CLIENTS, Client
from golden import CLEAN, CLEAN_LOG_DIRS, Golden, Row, named
from held_records import NOW, decide, made
from served import Kafka, answers, serving
from symptom_claims import shown_if_aborted

from conftest import BROKER_INSTEAD


def check_everything(client: Client, kafka: Kafka, partitions: Sequence[Golden], *, epochs: bool = True) -> None:
    """All records of all partitions, for both isolation levels."""
    client = client if epochs else client._replace(epochs=False)
    wanted = [golden for golden in partitions if golden.name not in client.cannot_read]
    high = {golden.name: golden.end for golden in wanted}
    stable = {golden.name: golden.last_stable_offset for golden in wanted}
    tasks = [
        {"verb": "read", "places": places(wanted), "isolation": level, "ends": ends}
        for level, ends in zip(LEVELS, (high, stable), strict=True)
    ]
    found = ask(client, kafka, *tasks)
    for level, read in zip(LEVELS, found, strict=True):
        for golden in wanted:
            rows = golden.rows if level == "read_uncommitted" else golden.committed
            seen = told(client, read[golden.name])
            if BROKER_INSTEAD and golden.topic.startswith("__"):
                seen = seen[: len(rows)]
            assert seen == expected(client, rows), (client.name, level, golden.name)
    # What is left out is refused, and not passed over in silence: an entry that is no longer true is found.
    refused = [golden for golden in partitions if golden.name in client.cannot_read]
    alone = [{**tasks[0], "places": places([golden]), "ends": {golden.name: golden.end}} for golden in refused]
    for golden, answer in zip(refused, answers(client.program, kafka.address, alone) if alone else [], strict=True):
        assert "UnsupportedCodecError" in str(answer.get("error")), (client.name, golden.name, answer)


def test_topics(client: Client, clean: Kafka) -> None:
    (found,) = ask(client, clean, {"verb": "topics"})
    counts = {topic: sum(golden.topic == topic for golden in READABLE) for topic in {golden.topic for golden in READABLE}}
    assert {topic: count for topic, count in found.items() if not topic.startswith("__")} == counts


def test_every_record(client: Client, clean: Kafka) -> None:
    check_everything(client, clean, READABLE)


def test_every_record_of_internal_topics(client: Client, clean: Kafka) -> None:
    check_everything(client, clean, STATE)


def test_every_record_of_old_brokers(client: Client, old: Kafka) -> None:
    """Message formats 0, 1 and 2, as they lie on the disk."""
    check_everything(client, old, OF_OLD, epochs=False)


def test_every_record_of_a_killed_broker(client: Client, unclean: Kafka) -> None:
    check_everything(client, unclean, OF_UNCLEAN)


class Decided(NamedTuple):
    """Servers that end open transactions for readers."""

    ongoing: Kafka
    """The stopped cluster: its coordinator had decided nothing."""
    prepared: Kafka
    """A log dir whose coordinator had prepared to commit."""


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Decided]:
    folder = tmp_path_factory.mktemp("decided")
    place = made(folder)
    decide(place, "PrepareCommit")
    words = ("--open-transactions", "decide")
    with (
        serving([*CLEAN_LOG_DIRS, CLEAN / "metadata-dir"], folder / "ongoing", *words) as ongoing,
        serving([place], folder / "prepared", *words) as prepared,
    ):
        yield Decided(ongoing, prepared)


@pytest.mark.proof
@pytest.mark.skipif(BROKER_INSTEAD, reason="a broker waits for the coordinator")
def test_open_transactions_that_are_decided(client: Client, decided: Decided) -> None:
    """What the coordinator had not decided is not shown, and what others committed behind it is; what it wanted to commit is shown."""
    partitions = named("g-txn-0", "g-txn-1")
    shown = {golden.name: shown_if_aborted(golden) for golden in partitions}
    assert [len(shown[golden.name]) - len(golden.committed) for golden in partitions] == [17, 0]
    ends = {golden.name: golden.end for golden in partitions}
    asked = {"verb": "read", "places": places(partitions), "ends": ends}
    of_prepared = {"verb": "read", "bootstrap": decided.prepared.address, "places": [("top", 0)], "ends": {"top-0": 3}}
    everything, committed, told_ends, prepared = ask(
        client,
        decided.ongoing,
        *({**asked, "isolation": level} for level in LEVELS),
        {"verb": "ends", "places": places(partitions), "isolation": "read_committed"},
        {**of_prepared, "isolation": "read_committed"},
    )
    for golden in partitions:
        assert told(client, everything[golden.name]) == expected(client, golden.rows), golden.name
        assert told(client, committed[golden.name]) == expected(client, shown[golden.name]), golden.name
        assert told_ends[golden.name] == [golden.start, golden.end]
    client = client._replace(epochs=False)
    rows = [Row(offset, NOW + offset, 0, -1, b"k", b"v", ()) for offset in range(3)]
    assert told(client, prepared["top-0"]) == expected(client, rows)


def check_seeks(client: Client, kafka: Kafka, partitions: Sequence[Golden]) -> None:
    """The three records from each of some offsets on: the first ones, in the middle, near the end."""
    tasks, expected_ = [], []
    for golden in partitions:
        offsets = sorted({golden.start, golden.start + 1, (golden.start + golden.end) // 2, golden.rows[-1].offset - 3})
        tasks.append({"verb": "seek", "place": [golden.topic, golden.partition], "offsets": offsets, "count": 3})
        expected_.append([[row.offset for row in itertools.islice((r for r in golden.rows if r.offset >= at), 3)] for at in offsets])
    assert ask(client, kafka, *tasks) == expected_


def test_seeks(client: Client, clean: Kafka) -> None:
    """Into the middle of batches, and to offsets that compaction removed."""
    check_seeks(client, clean, named("g-plain-0", "g-codec-lz4-0", "g-compact-0", "g-deleted-prefix-0"))


def test_seeks_of_old_brokers(client: Client, old: Kafka) -> None:
    """Into the middle of compressed messages that hold others."""
    check_seeks(client, old, named("o-v0-gzip-0", "o-v1-gzip-0"))


@pytest.mark.proof
@pytest.mark.parametrize("named_client", [c for c in CLIENTS if not c.is_quick], ids=lambda c: c.name)
def test_seeks_with_an_epoch(named_client: Client, clean: Kafka) -> None:
    """Java asks where the epoch ended. It reads on if that is not before the offset, and else from there: the log was truncated since."""
    (golden,) = named("g-epochs-0")
    # As the checkpoint of the broker has them: epoch 0 from offset 0 on, 2 from 20, 4 from 40.
    first = {epoch: min(row.offset for row in golden.rows if row.leader_epoch == epoch) for epoch in (0, 2, 4)}
    assert first == {0: 0, 2: 20, 4: 40}
    # Epoch, offset, where it reads: in its epoch, at its end, behind it, far behind it; an epoch that came later than the offset.
    seeks = [(0, 5, 5), (2, 25, 25), (4, 45, 45), (0, 20, 20), (0, 25, 20), (0, 45, 20), (1, 30, 20), (2, 45, 40), (4, 5, 5)]
    place = [golden.topic, golden.partition]
    task = {"verb": "seek", "place": place, "count": 3, "reset": "latest"}
    found = ask(named_client, clean, *({**task, "offsets": [offset], "epoch": epoch} for epoch, offset, _ in seeks))
    assert found == [[[at, at + 1, at + 2]] for _, _, at in seeks]


def test_times(client: Client, clean: Kafka) -> None:
    queries = [
        (golden, query)
        for golden in READABLE
        if golden.name in {"g-time-0", "g-time-1", "g-time-2", "g-appendtime-0", "g-codec-gzip-0", "g-txn-0"}
        for query in golden.time_queries
        if query.when >= 0
    ]
    for level in LEVELS:
        asked = [(golden, query) for golden, query in queries if query.isolation_level == level]
        (found,) = ask(
            client,
            clean,
            {
                "verb": "times",
                "isolation": level,
                "queries": [[golden.topic, golden.partition, query.when] for golden, query in asked],
            },
        )
        for (golden, query), answer in zip(asked, found, strict=True):
            wanted = None if query.answer is None else list(query.answer[:2])
            if wanted is not None and not client.tells_timestamp_of_lookup:
                wanted[1] = -1
            assert answer == wanted, (client.name, golden.name, query)


def test_ends(client: Client, clean: Kafka) -> None:
    tasks = [{"verb": "ends", "places": places(READABLE), "isolation": level} for level in LEVELS]
    for level, found in zip(LEVELS, ask(client, clean, *tasks), strict=True):
        ends = {
            golden.name: [golden.start, golden.end if level == "read_uncommitted" else golden.last_stable_offset]
            for golden in READABLE
        }
        assert found == ends, (client.name, level)


def test_groups_begin_where_the_old_cluster_left_them(client: Client, clean: Kafka) -> None:
    groups = commits()
    assert groups
    for group, offsets in groups.items():
        at = [name.rpartition("-") for name in offsets]
        (found,) = ask(
            client, clean, {"verb": "committed", "group": group, "places": [[topic, int(number)] for topic, _, number in at]}
        )
        assert found == offsets, (client.name, group)


def check_group(client: Client, kafka: Kafka, topic: str, **more: object) -> None:
    """A member, a second and a rebalance, a commit, and one that goes on behind it."""
    partitions = sorted((golden for golden in READABLE if golden.topic == topic), key=lambda golden: golden.partition)
    (story,) = ask(
        client,
        kafka,
        {
            "verb": "group",
            "group": f"{client.name}-{topic}",
            "topic": topic,
            "places": places(partitions),
            "records": sum(len(golden.rows) for golden in partitions),
            "behind": 20,
            **more,
        },
    )
    everything = [list(place) for place in places(partitions)]
    assert story["alone"] == everything
    one, other = story["shared"]
    assert one
    assert other
    assert sorted(one + other) == everything
    assert story["read"] == {golden.name: [row.offset for row in golden.rows] for golden in partitions}
    for golden in partitions:
        offsets = [row.offset for row in golden.rows]
        assert story["committed"][golden.name] == offsets[0] + 20
        assert story["continued"][golden.name] == [offset for offset in offsets if offset >= offsets[0] + 20], golden.name


@pytest.mark.parametrize("topic", ["g-plain", "g-time"])
def test_a_group_of_two(client: Client, clean: Kafka, topic: str) -> None:
    check_group(client, clean, topic)
