"""Rules 10 and 11 of ``docs/verbs.md``: what others have replicas of, and what brokers keep for themselves, is changed only if that is asked for."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import metadata_records
import pyarrow as pa
import pytest
import verbs_page
from golden import CLEAN
from make_log import batch
from test_verbs_table import OF_SPARK
from writing import coded, environment

from offsetlog import ClusterError, Log, LogDir, TopicPartition, WritableLog, end_transaction

PRODUCER = 77_000
LATE = 4_000_000_000_000
REFUSED = r"brokers 4, 7 of the cluster have a replica too: not to "
ANYWAY = "single_replica=True or --single-replica does it anyway"


class Place:
    """A copy of a broker's log dir, and metadata by which brokers 4 and 7 have replicas of ``g-plain`` too."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.dir = root / "log-dir"
        self.dir.mkdir(parents=True)
        for path in (CLEAN / "log-dir-1").iterdir():
            if path.is_file():
                shutil.copyfile(path, self.dir / path.name)
        self.log = self.dir / "g-plain-0"
        shutil.copytree(CLEAN / "log-dir-1/g-plain-0", self.log)
        for path in root.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        with Log.open(self.log, "a") as log:
            # An open transaction, for what ends it.
            log.append_batches(batch(0, [(b"k", b"v")], attributes=0x10, producer_id=PRODUCER, base_sequence=0))
            assert log.topic_id is not None
            self.topic_id = base64.urlsafe_b64decode(log.topic_id + "==")
        body = [metadata_records.topic("g-plain", self.topic_id), metadata_records.partition(self.topic_id, 0, [1, 4, 7])]
        self.metadata = metadata_records.write(root / "metadata", body)
        with Log.open(root / "other-0", "a") as log:
            log.append(b"of another log")

    @property
    def end(self) -> int:
        with Log.open(self.log) as log:
            return log.log_end_offset

    def held(self) -> tuple[object, ...]:
        """All that a verb could change of the partition."""
        with Log.open(self.log) as log:
            ends = log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset, log.leader_epoch
            files = {segment.base_offset for segment in log.segments}
        return ends, files, {path.name: path.read_bytes() for path in self.log.glob("*.log")}


@pytest.mark.parametrize("is_alone", [False, True])
def test_why_counts_what_upkeep_would_remove(tmp_path: Path, is_alone: bool) -> None:
    """What other brokers may lack stays: the high watermark says how much they have. It says nothing where there are no others."""
    place = Place(tmp_path)
    if is_alone:
        body = [metadata_records.topic("g-plain", place.topic_id), metadata_records.partition(place.topic_id, 0, [1])]
        place.metadata = metadata_records.write(tmp_path / "alone", body)
    checkpoint = place.dir / "replication-offset-checkpoint"
    checkpoint.write_text("0\n0\n")
    properties = tmp_path / "server.properties"
    counts = []
    with Log.open(place.log) as log:
        segments, end = log.segments, log.log_end_offset
        bases = [segment.base_offset for segment in segments]
        total = log.size_bytes
    limits = [{"retention.ms": 1000}, {"retention.ms": -1, "retention.bytes": total - segments[0].size_bytes}]
    limits.append({"retention.ms": 1000, "retention.bytes": total - segments[0].size_bytes - segments[1].size_bytes})
    for mark in [None, *(base + more for base in bases for more in (0, 1)), end]:
        checkpoint.write_text("0\n0\n" if mark is None else f"0\n1\ng-plain 0 {mark}\n")
        for limit in limits:
            lines = [f"log.{name}={value}\n" for name, value in limit.items()]
            properties.write_text("node.id=1\n" + "".join(lines))
            with LogDir.open(place.dir) as reader:
                why = reader.why(topics="g-plain", broker=properties, metadata=place.metadata, now=LATE)[0]
            with LogDir.open(place.dir, "a", metadata=place.metadata, broker=properties) as log_dir:
                report = log_dir.maintain(topics="g-plain", dry_run=True, now=LATE, only=["retention"])
            kept = report.partitions.get(TopicPartition("g-plain", 0))
            removed = () if kept is None else kept.removed
            found = (why.reason, why.size_bytes) if why.reason == "due" else (why.reason, 0)
            assert found == ("due" if removed else "not-replicated", sum(one.size_bytes for one in removed)), (mark, limit, why)
            assert not removed or removed[-1].reason in why.sentence
            counts.append(len(removed))
    assert set(counts) == ({1, len(bases)} if is_alone else {*range(len(bases) + 1)})


def of_log(call: Callable[[WritableLog, Place], object]) -> Callable[[Place, bool], object]:
    def run(place: Place, anyway: bool) -> object:
        with Log.open(place.log, "a", metadata=place.metadata, single_replica=anyway) as log:
            return call(log, place)

    return run


def of_dir(place: Place, anyway: bool) -> object:
    with LogDir.open(place.dir, "a", metadata=place.metadata, single_replica=anyway) as log_dir:
        return log_dir.append("g-plain", b"x", partition=0)


def copied(log: WritableLog, place: Place) -> object:
    with Log.open(place.root / "other-0") as other:
        return log.append_log(other)


def written(log: WritableLog, _: Place) -> object:
    with log.writer() as writer:
        writer.append(b"x")
        return writer.flush()


def ended(place: Place, anyway: bool) -> object:
    return end_transaction(
        place.dir, "g-plain", 0, PRODUCER, commit=False, without_state=True, metadata=place.metadata, single_replica=anyway
    )


def of_command(*words: str, text: str = "") -> Callable[[Place, bool], object]:
    def run(place: Place, anyway: bool) -> object:
        command = [
            sys.executable,
            "-m",
            "offsetlog",
            *(str(place.log) if word == "LOG" else str(place.dir) if word == "DIR" else word for word in words),
        ]
        command += ["--metadata", str(place.metadata), *(["--single-replica"] if anyway else [])]
        done = subprocess.run(command, capture_output=True, text=True, input=text, env=environment(), check=False)
        if done.returncode == 2:
            raise ClusterError(done.stderr)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


TRIES: dict[str, Callable[[Place, bool], object]] = {
    "Log.append": of_log(lambda log, _: log.append(b"x")),
    "Log.append_records": of_log(lambda log, _: log.append_records([b"x", b"y"])),
    "Log.append_batches": of_log(lambda log, _: log.append_batches(coded(b"x"))),
    "Log.append_marker": of_log(lambda log, _: log.append_marker(PRODUCER, 0, commit=False)),
    "Log.append_as_follower": of_log(lambda log, _: log.append_as_follower(coded(b"x", base_offset=1000))),
    "Log.append_log": of_log(copied),
    "Log.append_arrow": of_log(lambda log, _: log.append_arrow(pa.record_batch({"value": pa.array([b"x"])}))),
    "Log.writer": of_log(written),
    "Writer.append": of_log(written),
    "Writer.flush": of_log(written),
    "Writer.close": of_log(written),
    "LogDir.append": of_dir,
    "end_transaction": ended,
    "offsetlog end-transaction": of_command("end-transaction", "g-plain-0", str(PRODUCER), "DIR", "--abort", "--without-state"),
    "offsetlog append": of_command("append", "LOG", text="x\n"),
    "Log.truncate_to": of_log(lambda log, _: log.truncate_to(3)),
    "Log.truncate_fully_and_start_at": of_log(lambda log, _: log.truncate_fully_and_start_at(3)),
    "Log.delete_records_before": of_log(lambda log, _: log.delete_records_before(3)),
}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "kafka")


def test_every_verb_that_asks_for_replicas_is_tried() -> None:
    rows = [row for row in verbs_page.rows(verbs_page.text()) if "*known replicas*" in row.cells["other replicas"]]
    assert {verb for row in rows for verb in row.verbs} - OF_SPARK == set(TRIES)


@pytest.mark.parametrize("verb", list(TRIES))
def test_what_others_have_too_is_changed_only_if_that_is_said(verb: str, place: Place) -> None:
    before = place.held()
    with pytest.raises(ClusterError, match=REFUSED) as caught:
        TRIES[verb](place, False)
    assert ANYWAY in str(caught.value)
    assert place.held() == before
    TRIES[verb](place, True)
    assert place.held() != before


def become(place: Place, node: int | None) -> None:
    """Whose log dir it is, by its ``meta.properties``; that of version 0 had ``broker.id``, and a broken copy may have neither."""
    meta = place.dir / "meta.properties"
    text = meta.read_text()
    assert "node.id=1\n" in text
    meta.write_text(text.replace("node.id=1\n", "" if node is None else f"node.id={node}\n"))


# Whose log dir it is, who has replicas (the first one leads), and who led later, one after the other. A leader keeps what it has, and
# its followers fetch only from where they end; a follower cuts off what its leader does not have, and fetches what it lacks.
LED = (
    "this broker led it last: if it leads again, the others are not told of a change of what they have; "
    "if another one leads, it is cut off here"
)
FOLLOWED = "another broker leads it: what differs from it is cut off or fetched again here, and nobody else sees the change"
UNKNOWN = "if another broker leads it, the change is cut off or fetched over here; if this one leads, the others are not told of it"
LEADERS: dict[str, tuple[int | None, list[int], list[int], str, str]] = {
    "this one": (1, [1, 4, 7], [], "brokers 4, 7 of the cluster have", LED),
    "another one": (4, [1, 4], [], "broker 1 of the cluster has", FOLLOWED),
    "nobody": (1, [1, 4, 7], [-1], "brokers 4, 7 of the cluster have", UNKNOWN),
    "first another one, then this one": (1, [4, 1], [1], "broker 4 of the cluster has", LED),
    "first this one, then another one": (1, [1, 4], [4], "broker 4 of the cluster has", FOLLOWED),
    "nobody, then this one": (1, [1, 4], [-1, 1], "broker 4 of the cluster has", LED),
    "a broker that is not this one, which has no replica of it": (9, [1, 4], [], "brokers 1, 4 of the cluster have", FOLLOWED),
    "a log dir that does not say whose it is": (None, [1, 4], [], "brokers 1, 4 of the cluster have", UNKNOWN),
}


@pytest.mark.parametrize("leader", list(LEADERS))
def test_what_the_cluster_would_do_with_the_change_goes_by_who_leads(leader: str, place: Place) -> None:
    """The whole sentence, of each verb; the command says it as well."""
    node, replicas, leaders, who, outcome = LEADERS[leader]
    body = [
        metadata_records.topic("g-plain", place.topic_id),
        metadata_records.partition(place.topic_id, 0, replicas),
        *(metadata_records.leader_change(place.topic_id, 0, each) for each in leaders),
    ]
    shutil.rmtree(place.metadata)
    place.metadata = metadata_records.write(place.metadata, body)
    become(place, node)
    before = place.held()
    for verb, attempt in TRIES.items():
        # A process each, which takes longest: the three sentences are enough there.
        if verb.startswith("offsetlog ") and leader not in {"this one", "another one", "nobody"}:
            continue
        with pytest.raises(ClusterError) as caught:
            attempt(place, False)
        found = re.search(r"broker.* of the cluster .*", str(caught.value))
        assert found is not None, (verb, str(caught.value))
        said = re.fullmatch(
            rf"(.*) a replica too: not to [a-z ]+ here\. (.*)\. {ANYWAY}; .*g-plain-0(; nothing appended, none from line 1 on)?",
            found[0],
        )
        assert said is not None, (verb, found[0])
        assert said.groups()[:2] == (who, outcome), verb
    assert place.held() == before


@pytest.mark.parametrize("topic", ["__share_group_state", "__remote_log_metadata"])
def test_topics_that_brokers_keep_for_themselves_are_named_or_left(topic: str, place: Place) -> None:
    shutil.copytree(CLEAN / "log-dir-1/g-plain-0", place.dir / f"{topic}-0")
    config: dict[str, Any] = {"cleanup.policy": "delete", "retention.ms": 1, "retention.bytes": -1}
    config |= {"file.delete.delay.ms": 0, "remote.storage.enable": False}
    with LogDir.open(place.dir, "a", single_replica=True) as log_dir:
        log = log_dir.log(topic, 0)
        before = [record.offset for record in log.scan()]
        for verb in (
            lambda: log.truncate_to(3),
            lambda: log.truncate_fully_and_start_at(3),
            lambda: log.delete_records_before(3),
            log.compact,
            lambda: log.maintain(config=config),
            lambda: log_dir.delete_topic(topic),
        ):
            with pytest.raises(
                ClusterError, match=rf'{topic} is an internal topic.*internal_topics=\["{topic}"\], --internal {topic}'
            ):
                verb()
        report = log_dir.maintain()
        assert TopicPartition(topic, 0) in report.internal
        assert not {key for key in (*report.partitions, *report.failed) if key.topic == topic}
        assert [record.offset for record in log.scan()] == before
    with LogDir.open(place.dir, "a", single_replica=True, internal_topics=topic) as log_dir:
        log_dir.log(topic, 0).delete_records_before(3)
        assert TopicPartition(topic, 0) in log_dir.maintain(topics=topic, config=config).partitions
        log_dir.delete_topic(topic)
        assert topic not in log_dir.topics()


def test_upkeep_says_how_old_the_metadata_is(place: Place) -> None:
    """A setting that was changed later is not known."""
    with LogDir.open(place.dir, "a", metadata=place.metadata) as log_dir:
        newest = log_dir.maintain(dry_run=True).metadata_timestamp
    with LogDir.open(place.metadata) as reader:
        assert newest == max(record.timestamp for record in reader.log("__cluster_metadata", 0).scan())
    command = [sys.executable, "-m", "offsetlog", "maintain", "--dry-run", str(place.dir)]
    done = subprocess.run(
        [*command, "--metadata", str(place.metadata)], capture_output=True, text=True, env=environment(), check=False
    )
    assert "newest metadata record" in done.stderr, done.stderr
    assert (
        "newest metadata record" not in subprocess.run(command, capture_output=True, text=True, env=environment(), check=False).stderr
    )
