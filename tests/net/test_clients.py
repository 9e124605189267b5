"""Clients of others, unmodified, read what `serve` answers: every record as real consumers saw it when the brokers lived."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from golden import CLEAN_PARTITIONS, DATA, OLD_PARTITIONS, Golden, Level, Row, partitions_of

from client_programs import CLIENTS, Client
from conftest import BROKER_INSTEAD, UNCLEAN_LOG_DIRS
from served import Kafka, answers

READABLE = [golden for golden in CLEAN_PARTITIONS if not golden.topic.startswith("__")]
STATE = [golden for golden in CLEAN_PARTITIONS if golden.topic in {"__consumer_offsets", "__transaction_state"}]
OF_UNCLEAN = [golden for golden in partitions_of(UNCLEAN_LOG_DIRS, "kafka-4.3.0-unclean") if not golden.name.endswith("-delete")]
LEVELS: tuple[Level, ...] = ("read_uncommitted", "read_committed")
# One replica of each.
OF_OLD = list({golden.name: golden for golden in reversed(OLD_PARTITIONS)}.values())


@pytest.fixture(scope="module", params=[pytest.param(c, id=c.name, marks=[] if c.is_quick else pytest.mark.proof) for c in CLIENTS])
def client(request: pytest.FixtureRequest) -> Client:
    """One after the other."""
    found: Client = request.param
    return found


def ask(client: Client, kafka: Kafka, *tasks: Mapping[str, object]) -> list[Any]:
    """Answers, of which none may be an error."""
    found = answers(client.program, kafka.address, tasks)
    for task, answer in zip(tasks, found, strict=True):
        assert "answer" in answer, f"{client.name} {str(task)[:300]}\n{answer.get('error')}"
    return [answer["answer"] for answer in found]


def places(partitions: Iterable[Golden]) -> list[tuple[str, int]]:
    return [(golden.topic, golden.partition) for golden in partitions]


def expected(client: Client, rows: Sequence[Row]) -> list[list[object]]:
    """These rows as the client's program prints them."""

    def text(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    return [
        [
            row.offset,
            row.timestamp,
            max(row.timestamp_type, 0),
            text(row.key),
            text(row.value),
            [[name, text(value)] for name, value in row.headers],
            row.leader_epoch if client.epochs else -1,
        ]
        for row in rows
    ]


def told(client: Client, rows: Sequence[list[Any]]) -> list[list[object]]:
    """Messages of format 0 have no timestamp of any type, which each client says in its own way."""
    return [[*row[:2], max(row[2] or 0, 0), *row[3:6], row[6] if client.epochs else -1] for row in rows]


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


def test_seeks(client: Client, clean: Kafka) -> None:
    """Into the middle of batches, and to offsets that compaction removed."""
    wanted = [golden for golden in READABLE if golden.name in {"g-plain-0", "g-codec-lz4-0", "g-compact-0", "g-deleted-prefix-0"}]
    tasks, answers_ = [], []
    for golden in wanted:
        offsets = sorted({golden.start, golden.start + 1, (golden.start + golden.end) // 2, golden.rows[-1].offset - 3})
        tasks.append({"verb": "seek", "place": [golden.topic, golden.partition], "offsets": offsets, "count": 3})
        answers_.append([[row.offset for row in itertools.islice((r for r in golden.rows if r.offset >= at), 3)] for at in offsets])
    assert ask(client, clean, *tasks) == answers_


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
            {"verb": "times", "isolation": level, "queries": [[golden.topic, golden.partition, query.when] for golden, query in asked]},
        )
        for (golden, query), answer in zip(asked, found, strict=True):
            wanted = None if query.answer is None else list(query.answer[:2])
            if wanted is not None and not client.tells_timestamp_of_lookup:
                wanted[1] = -1
            assert answer == wanted, (client.name, golden.name, query)


def test_ends(client: Client, clean: Kafka) -> None:
    tasks = [{"verb": "ends", "places": places(READABLE), "isolation": level} for level in LEVELS]
    for level, found in zip(LEVELS, ask(client, clean, *tasks), strict=True):
        ends = {golden.name: [golden.start, golden.end if level == "read_uncommitted" else golden.last_stable_offset] for golden in READABLE}
        assert found == ends, (client.name, level)


def commits() -> dict[str, dict[str, int]]:
    """Group -> partition -> offset, by Kafka's own decoder; the last record of a key holds."""
    last: dict[tuple[str, str], int | None] = {}
    for line in (DATA / "expected" / "kafka-4.3.0-clean" / "committed-offsets.jsonl").read_text(encoding="utf-8").splitlines():
        commit = json.loads(line)
        key, payload = commit["key"], commit["payload"]
        last[key["group"], f"{key['topic']}-{key['partition']}"] = None if payload is None else payload["offset"]
    groups: dict[str, dict[str, int]] = {}
    for (group, partition), offset in last.items():
        if offset is not None:
            groups.setdefault(group, {})[partition] = offset
    return groups


def test_groups_begin_where_the_old_cluster_left_them(client: Client, clean: Kafka) -> None:
    groups = commits()
    assert groups
    for group, offsets in groups.items():
        at = [name.rpartition("-") for name in offsets]
        (found,) = ask(client, clean, {"verb": "committed", "group": group, "places": [[topic, int(number)] for topic, _, number in at]})
        assert found == offsets, (client.name, group)


@pytest.mark.parametrize("topic", ["g-plain", "g-time"])
def test_a_group_of_two(client: Client, clean: Kafka, topic: str) -> None:
    """A member, a second and a rebalance, a commit, and one that goes on behind it."""
    partitions = sorted((golden for golden in READABLE if golden.topic == topic), key=lambda golden: golden.partition)
    (story,) = ask(
        client,
        clean,
        {
            "verb": "group",
            "group": f"{client.name}-{topic}",
            "topic": topic,
            "places": places(partitions),
            "records": sum(len(golden.rows) for golden in partitions),
            "behind": 20,
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
