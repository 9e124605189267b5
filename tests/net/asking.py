"""What clients are asked and what they are to say: the golden partitions, as real consumers saw them when the brokers lived."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from client_programs import Client
from golden import CLEAN_PARTITIONS, DATA, OLD_PARTITIONS, Golden, Level, Row, partitions_of
from served import Kafka, answers

UNCLEAN = DATA / "kafka-4.3.0" / "unclean"
UNCLEAN_LOG_DIRS = (UNCLEAN / "log-dir-1", UNCLEAN / "log-dir-2")
READABLE = [golden for golden in CLEAN_PARTITIONS if not golden.topic.startswith("__")]
STATE = [golden for golden in CLEAN_PARTITIONS if golden.topic in {"__consumer_offsets", "__transaction_state"}]
OF_UNCLEAN = [golden for golden in partitions_of(UNCLEAN_LOG_DIRS, "kafka-4.3.0-unclean") if not golden.name.endswith("-delete")]
LEVELS: tuple[Level, ...] = ("read_uncommitted", "read_committed")
# One replica of each.
OF_OLD = list({golden.name: golden for golden in reversed(OLD_PARTITIONS)}.values())


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
    found: list[list[object]] = []
    for offset, timestamp, kind, key, value, headers, epoch in rows:
        has_time = timestamp is not None and kind is not None and kind >= 0
        found.append(
            [offset, timestamp if has_time else -1, kind if has_time else 0, key, value, headers, epoch if client.epochs else -1]
        )
    return found


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
