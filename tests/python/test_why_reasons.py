"""Each reason that ``why`` gives, with segment, record, time and setting; which reason holds is by Kafka's rules and golden data, not by what `maintain` does."""

from __future__ import annotations

import base64
import re
import shutil
from pathlib import Path
from typing import Any

import metadata_records
import pytest
from golden import CLEAN, DATA, named
from held_records import DAY, NOW, PRODUCER
from make_log import batch
from test_held_records import Settings, answers, fill
from writing import HOLD, running

from offsetlog import Log, LogDir, WhyAnswer

LATE = 4_000_000_000_000


class Broker:
    """A copy of one golden partition in its broker's log dir, and metadata that says what a test wants."""

    def __init__(self, root: Path, name: str, number: int = 1) -> None:
        source = CLEAN / f"log-dir-{number}"
        self.root, self.dir, self.topic = root, root / "log-dir", name.rpartition("-")[0]
        self.dir.mkdir(parents=True)
        for path in source.iterdir():
            if path.is_file():
                shutil.copyfile(path, self.dir / path.name)
        self.log = Path(shutil.copytree(source / name, self.dir / name))
        text = (self.log / "partition.metadata").read_text()
        self.topic_id = base64.urlsafe_b64decode(text.rpartition("topic_id: ")[2].strip() + "==")
        self.properties = root / "server.properties"
        self.properties.write_text("process.roles=broker\nnode.id=1\n")

    def checkpoint(self, kind: str, offset: int | None) -> None:
        """What the broker's checkpoint of this kind says of the partition."""
        (golden,) = named(self.log.name)
        lines = "" if offset is None else f"{golden.topic} {golden.partition} {offset}\n"
        (self.dir / f"{kind}-offset-checkpoint").write_text(f"0\n{lines.count(chr(10))}\n{lines}")

    def why(self, replicas: tuple[int, ...] = (1,), *configs: bytes, now: int = LATE) -> dict[str, WhyAnswer]:
        """The answers by question, where these brokers have replicas and the cluster has these settings."""
        body = [metadata_records.topic(self.topic, self.topic_id), metadata_records.partition(self.topic_id, 0, replicas), *configs]
        shutil.rmtree(self.root / "metadata", ignore_errors=True)
        metadata = metadata_records.write(self.root / "metadata", body)
        with LogDir.open(self.dir) as log_dir:
            return {each.question: each for each in log_dir.why(broker=self.properties, metadata=metadata, now=now)}

    def own(self, **settings: str) -> tuple[bytes, ...]:
        """Records of the topic's own settings; two underscores stand for a dot."""
        return tuple(metadata_records.config("topic", self.topic, name.replace("__", "."), value) for name, value in settings.items())


def settings_of(answer: WhyAnswer) -> list[tuple[str, str | None, str]]:
    return [(name, value, source) for name, value, source in answer.settings]


def sizes(log: Path) -> dict[int, int]:
    """Bytes of each segment, by its base offset."""
    return {int(path.stem): path.stat().st_size for path in sorted(log.glob("*.log"))}


def test_every_reason_has_a_test() -> None:
    """Those that the class lists; each is asserted somewhere in these tests."""
    source = (Path(__file__).parents[2] / "python/offsetlog/_held_records.py").read_text()
    listed = re.findall(r'``("[a-z-]+")``', source.partition("    reason: str\n")[2].partition("    sentence: str\n")[0])
    assert len(listed) == 15
    tests = "".join(Path(__file__).with_name(name).read_text() for name in (Path(__file__).name, "test_held_records.py"))
    assert [reason for reason in listed if reason not in tests] == []


def test_a_partition_without_records_is_empty(tmp_path: Path) -> None:
    """As Kafka's consumer found none in it, and its broker wrote no byte; and one of which all was deleted."""
    (golden,) = named("g-empty-0")
    assert golden.counts[0] == golden.end == 0
    broker = Broker(tmp_path, "g-empty-0")
    (answer,) = broker.why((1,), *broker.own(retention__ms="1")).values()
    assert (answer.question, answer.reason, answer.remedy) == ("deletion", "empty", "")
    assert (answer.segment, answer.offset, answer.timestamp, answer.due_timestamp, answer.settings) == (None, None, None, None, ())
    with Log.open(tmp_path / "gone-0", "a", {"retention.ms": DAY}, clock=lambda: NOW) as log:
        log.append(b"value")
        log.delete_records_before(1)
        log.maintain(now=NOW)
    assert answers(tmp_path / "gone-0", "--now", NOW)["deletion"]["reason"] == "empty"


def test_a_log_that_was_compacted_to_its_end_is_clean(tmp_path: Path) -> None:
    """The cleaner's checkpoint is the broker's word for it; the same log is not clean one offset before its end."""
    (golden,) = named("g-compact-0")
    broker = Broker(tmp_path, "g-compact-0")
    own = broker.own(cleanup__policy="compact")
    broker.checkpoint("cleaner", golden.end)
    answer = broker.why((1,), *own)["compaction"]
    assert (answer.reason, answer.remedy, answer.settings) == ("clean", "", ())
    assert answer.sentence == f"nothing was appended since it was compacted up to offset {golden.end}"
    broker.checkpoint("cleaner", golden.end - 1)
    answer = broker.why((1,), *own)["compaction"]
    active = max(sizes(broker.log))
    assert (answer.reason, answer.segment, answer.offset) == ("active-segment", active, golden.end - 1)
    assert settings_of(answer) == [("segment.bytes", "1073741824", "default"), ("segment.ms", "604800000", "default")]
    assert answer.size_bytes == sizes(broker.log)[active]
    # The same without a broker: a pass that reached the end, for the active segment was empty.
    fill(tmp_path / "own-0", {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0}, [NOW - DAY] * 3)
    with Log.open(tmp_path / "own-0", "a") as log:
        log.roll()
        assert log.maintain(now=NOW).compactions[0].end_offset == log.log_end_offset
    found = answers(tmp_path / "own-0", "--now", NOW)["compaction"]
    assert (found["reason"], found["settings"]) == ("clean", [])


def test_tiered_storage_has_rules_of_its_own(tmp_path: Path) -> None:
    """The golden directory of a broker that had it; which topics have it, its cluster's metadata says."""
    place = Path(shutil.copytree(DATA / "kafka-4.3.0-tiered" / "log-dir", tmp_path / "log-dir"))
    text = (place / "orders-0" / "partition.metadata").read_text()
    topic_id = base64.urlsafe_b64decode(text.rpartition("topic_id: ")[2].strip() + "==")
    body = [metadata_records.topic("orders", topic_id), *(metadata_records.partition(topic_id, number, [1]) for number in (0, 1))]
    (tmp_path / "server.properties").write_text("node.id=1\nlog.retention.ms=1\n")
    for number, (value, expected) in enumerate((("true", "tiered"), (" TRUE ", "tiered"), ("false", "empty"))):
        metadata = metadata_records.write(
            tmp_path / f"metadata-{number}", [*body, metadata_records.config("topic", "orders", "remote.storage.enable", value)]
        )
        with LogDir.open(place) as log_dir:
            found = log_dir.why(broker=tmp_path / "server.properties", metadata=metadata, now=LATE)
        assert [(each.question, each.partition, each.reason) for each in found] == [
            ("deletion", 0, expected),
            ("deletion", 1, expected),
        ]
        if expected == "tiered":
            assert settings_of(found[0]) == [("remote.storage.enable", "true", "topic")]
            assert "remote log manager" in found[0].remedy
            assert "local.retention.ms and local.retention.bytes" in found[0].sentence


def test_what_is_not_replicated_is_neither_deleted_nor_compacted(tmp_path: Path) -> None:
    """The high watermark of the checkpoint ends within the first segment, so that the others may lack a part of it."""
    broker = Broker(tmp_path, "g-plain-0")
    base, *_ = bases = sorted(sizes(broker.log))
    mark = bases[1] - 1
    broker.checkpoint("replication", mark)
    retention = broker.own(retention__ms="1000", cleanup__policy="compact,delete")
    found = broker.why((1, 4, 7), *retention)
    deletion, compaction = found["deletion"], found["compaction"]
    assert (deletion.reason, deletion.segment, deletion.offset) == ("not-replicated", base, mark)
    assert settings_of(deletion) == [("retention.ms", "1000", "topic"), ("retention.bytes", "-1", "default")]
    assert (compaction.reason, compaction.segment, compaction.offset) == ("not-replicated", base, mark)
    closed = [size for start, size in sizes(broker.log).items() if start < bases[-1]]
    assert compaction.size_bytes == sum(closed)
    for each in (deletion, compaction):
        assert "ISR must catch up" in each.remedy
    # A whole segment is replicated: that one is due, and the pass ends before the next.
    broker.checkpoint("replication", bases[1])
    found = broker.why((1, 4, 7), *retention)
    assert (found["deletion"].reason, found["deletion"].size_bytes) == ("due", sizes(broker.log)[base])
    assert (found["compaction"].reason, found["compaction"].size_bytes) == ("due", sizes(broker.log)[base])
    # Nobody else has a replica: the high watermark says nothing.
    broker.checkpoint("replication", mark)
    found = broker.why((1,), *retention)
    assert {each.reason for each in found.values()} == {"due"}


def test_what_is_not_replicated_is_not_read_as_committed(tmp_path: Path) -> None:
    """Of a running broker ``read_committed`` ends at the high watermark, with no transaction that is open; a stopped one has none."""
    broker = Broker(tmp_path, "g-plain-0")
    (golden,) = named("g-plain-0")
    assert golden.last_stable_offset == golden.end
    broker.checkpoint("replication", golden.end - 3)
    assert "read_committed" not in broker.why((1, 4, 7))
    with running(HOLD, broker.dir / ".lock"):
        answer = broker.why((1, 4, 7))["read_committed"]
        assert (answer.reason, answer.offset, answer.producer) == ("not-replicated", golden.end - 3, None)
        assert f"the high watermark {golden.end - 3}, and the log at {golden.end}" in answer.sentence
        assert answer.remedy.startswith("the replicas in the ISR must catch up; a running broker writes its high watermark every ")
        # They did.
        broker.checkpoint("replication", golden.end)
        assert "read_committed" not in broker.why((1, 4, 7))


SOURCES: dict[str, tuple[tuple[tuple[str, str, str], ...], str, str]] = {
    "topic": ((("topic", "g-plain", "retention.ms"),), "log.retention.ms=5\n", "topic"),
    "dynamic broker": ((("broker", "1", "log.retention.ms"),), "log.retention.ms=5\n", "dynamic broker"),
    "dynamic default": ((("broker", "", "log.retention.ms"),), "log.retention.ms=5\n", "dynamic default broker"),
    "server.properties": ((), "log.retention.ms=-1\n", "broker"),
    "of another broker": ((("broker", "2", "log.retention.ms"),), "log.retention.ms=-1\n", "broker"),
}
"""What says that nothing is deleted by age, and what `server.properties` has; in Kafka's order, the first that says anything counts."""


@pytest.mark.parametrize("case", SOURCES)
def test_the_source_of_a_setting_is_named(case: str, tmp_path: Path) -> None:
    given, properties, source = SOURCES[case]
    broker = Broker(tmp_path, "g-plain-0")
    broker.properties.write_text(f"process.roles=broker\nnode.id=1\n{properties}")
    found = broker.why((1,), *(metadata_records.config(*each, "-1") for each in given))["deletion"]
    assert found.reason == "unlimited"
    assert settings_of(found) == [("retention.ms", "-1", source), ("retention.bytes", "-1", "default")]
    assert f"retention.ms=-1 ({source})" in found.sentence
    assert found.size_bytes == sum(sizes(broker.log).values())


def test_records_of_other_reasons(tmp_path: Path) -> None:
    """Segment, record, time and setting of those whose reason other tests ask for."""
    hour = 3_600_000
    compact: Settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.5}

    def one(name: str, config: Settings, times: list[int], question: str) -> dict[str, Any]:
        fill(tmp_path / name, config, times)
        return answers(tmp_path / name, "--now", NOW)[question]

    found = one("later-0", {"retention.ms": hour}, [NOW + hour, NOW - 9 * hour], "deletion")
    assert (found["reason"], found["segment"], found["offset"]) == ("later-timestamp", 0, 0)
    assert (found["timestamp"], found["due_timestamp"]) == (NOW + hour, NOW + 2 * hour + 1)
    assert found["settings"] == [{"name": "retention.ms", "value": str(hour), "from": "topic"}]
    assert found["bytes"] == sum(sizes(tmp_path / "later-0").values())
    found = one("young-0", {"retention.ms": 10 * hour}, [NOW - hour, NOW], "deletion")
    assert (found["reason"], found["timestamp"], found["due_timestamp"]) == ("not-due", NOW - hour, NOW + 9 * hour + 1)
    assert found["bytes"] == sizes(tmp_path / "young-0")[0]
    found = one("lag-0", {**compact, "min.compaction.lag.ms": 10 * DAY}, [NOW - 3 * DAY] * 3, "compaction")
    assert (found["reason"], found["segment"], found["timestamp"]) == ("compaction-lag", 0, NOW - 3 * DAY)
    assert found["due_timestamp"] == NOW + 7 * DAY
    assert found["settings"] == [{"name": "min.compaction.lag.ms", "value": str(10 * DAY), "from": "topic"}]
    found = one("share-0", {**compact, "min.cleanable.dirty.ratio": 1}, [NOW - 3 * DAY] * 3, "compaction")
    assert (found["reason"], found["segment"], found["offset"]) == ("dirty-ratio", 0, 0)
    assert [each["from"] for each in found["settings"]] == ["topic"]
    assert found["bytes"] == sum(sizes(tmp_path / "share-0").values()) - sizes(tmp_path / "share-0")[2]
    found = one("active-0", {**compact, "internal.segment.bytes": 10_000, "segment.ms": hour}, [NOW - 2, NOW - 1], "compaction")
    assert (found["reason"], found["segment"], found["offset"]) == ("active-segment", 0, 0)
    assert [(each["name"], each["from"]) for each in found["settings"]] == [("segment.bytes", "default"), ("segment.ms", "topic")]


def test_the_dirty_share_of_a_brokers_log(tmp_path: Path) -> None:
    """Its cleaner's checkpoint says from where on; the share is that of the bytes, as `LogToClean` has it."""
    broker = Broker(tmp_path, "g-compact-0")
    line = next(
        line for line in (CLEAN / "log-dir-1/cleaner-offset-checkpoint").read_text().splitlines() if line.startswith("g-compact ")
    )
    dirty = int(line.split()[2])
    found = broker.why((1,), *broker.own(cleanup__policy="compact", min__cleanable__dirty__ratio="1"))["compaction"]
    kept = sizes(broker.log)
    closed = {base: size for base, size in kept.items() if base < max(kept)}
    assert (found.reason, found.segment, found.offset) == ("dirty-ratio", dirty, dirty)
    assert found.size_bytes == sum(size for base, size in closed.items() if base >= dirty)
    assert f"{found.size_bytes} of {sum(closed.values())} bytes" in found.sentence
    assert settings_of(found) == [("min.cleanable.dirty.ratio", "1", "topic")]


def test_the_oldest_open_transaction_holds_a_compacted_log(tmp_path: Path) -> None:
    with Log.open(tmp_path / "open-0", "a", {"cleanup.policy": "compact", "internal.segment.bytes": 120}) as log:
        log.append_batches(batch(0, [(b"k", b"v")] * 3, attributes=0x10, producer_id=PRODUCER, base_sequence=0))
        for _ in range(3):
            log.append(b"value" * 8, key=b"k", timestamp=NOW - DAY)
    found = answers(tmp_path / "open-0", "--now", NOW)
    for question in ("compaction", "read_committed"):
        assert (found[question]["reason"], found[question]["offset"]) == ("open-transaction", 0)
        assert found[question]["producer"]["transaction_first_offset"] == 0
    assert found["compaction"]["segment"] == 0
