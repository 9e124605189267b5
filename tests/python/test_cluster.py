"""In a broker's log dir: whose settings hold, what is refused, and what is passed to have it done."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import metadata_records
import pytest
from golden import CLEAN, DATA, OLD_LOG_DIRS
from test_dry_runs import offsetlog, tree

from offsetlog import ClusterError, ConfigError, Log, LogDir, LogDirError, OffsetOutOfRangeError, TopicPartition, convert, recover

INTERNAL = ("__consumer_offsets", "__transaction_state", "__cluster_metadata")
NOW = 1_900_000_000_000


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    """A copy of the log dirs of a 4.3.0 broker that stopped, with its metadata."""
    shutil.copytree(CLEAN, tmp_path / "copy")
    return [tmp_path / "copy" / name for name in ("log-dir-1", "log-dir-2", "metadata-dir")]


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text("log.retention.hours=1\nlog.cleanup.policy=delete\n")
    return path


def test_without_the_cluster_every_partition_is_refused_and_nothing_changes(dirs: list[Path]) -> None:
    """The least safe default: a broker's directory, nothing else known."""
    with LogDir.open(dirs[:2], "a") as log_dir:
        before = [tree(path) for path in dirs[:2]]
        report = log_dir.maintain(now=NOW)
        assert [tree(path) for path in dirs[:2]] == before
        assert report.partitions == {}
        assert report.metadata_timestamp is None
        assert len(report.failed) == report.looked_at > 20
        assert {topic for topic, _ in report.internal} == {"__consumer_offsets", "__transaction_state"}
        assert not {topic for topic, _ in report.failed} & set(INTERNAL)
        text = report.failed[TopicPartition("g-plain", 0)]
    for said in ("retention.ms", "meta.properties of node 1", "__cluster_metadata-0", "--metadata DIR", "--broker FILE"):
        assert said in text


def test_without_server_properties_what_no_upper_layer_gives_is_unknown(dirs: list[Path]) -> None:
    with LogDir.open(dirs, "a") as log_dir:
        report = log_dir.maintain(now=NOW)
        assert report.partitions == {}
        assert "pass the broker's server.properties" in report.failed[TopicPartition("g-plain", 0)]
        # Known from the topic are its policy and horizon; the lags are a broker's.
        assert "max.compaction.lag.ms" in report.failed[TopicPartition("g-compact", 0)]
        assert "cleanup.policy" not in report.failed[TopicPartition("g-compact", 0)].split("are not known")[0]
        assert report.metadata_timestamp == 1_795_233_931_492


def test_with_all_layers_what_the_cluster_keeps_is_kept(dirs: list[Path], properties: Path) -> None:
    with LogDir.open(dirs, "a", broker=properties) as log_dir:
        report = log_dir.maintain(now=NOW, only=["retention"])
    assert report.failed == {}
    gone = {topic for topic, _ in report.partitions}
    assert {"g-plain", "g-txn", "g-codec-lz4"} <= gone
    # `retention.ms=-1`, `compact`, and brokers' own.
    assert not gone & {"g-retained", "g-compact", "g-compact-txn", *INTERNAL}
    assert {segment.reason for kept in report.partitions.values() for segment in kept.removed} == {"retention.ms"}


def test_the_metadata_may_be_named(dirs: list[Path], properties: Path, tmp_path: Path) -> None:
    for named in (dirs[2], dirs[2] / "__cluster_metadata-0"):
        with LogDir.open(dirs[:2], "a", broker=properties, metadata=named) as log_dir:
            assert log_dir.maintain(dry_run=True, now=NOW).failed == {}
    with pytest.raises(LogDirError, match="no __cluster_metadata-0 found"):
        LogDir.open(dirs[:2], "a", metadata=tmp_path)


def test_options_stand_above_all_for_the_topics_named(dirs: list[Path]) -> None:
    config: dict[str, str | int | float | bool] = {
        "cleanup.policy": "delete",
        "retention.ms": 1,
        "retention.bytes": -1,
        "file.delete.delay.ms": 0,
        "remote.storage.enable": False,
    }
    with LogDir.open(dirs[:2], "a") as log_dir:
        report = log_dir.maintain(topics="g-plain", config=config)
        assert {topic for topic, _ in report.partitions} == {"g-plain"}
        assert report.failed == {}
        del config["retention.bytes"]
        failed = log_dir.maintain(topics=["g-txn"], config=config).failed
        assert failed
        assert all("retention.bytes is not known" in text for text in failed.values())
        with pytest.raises(ConfigError, match="give topics too"):
            log_dir.maintain(config=config)


def test_one_log_is_refused_as_well(dirs: list[Path], tmp_path: Path) -> None:
    with Log.open(dirs[0] / "g-plain-0", "a") as log, pytest.raises(ClusterError, match="not known in this broker's log dir"):
        log.maintain(now=NOW)
    # Also where only the partition was copied.
    copied = tmp_path / "g-plain-0"
    shutil.copytree(CLEAN / "log-dir-1" / "g-plain-0", copied)
    with Log.open(copied, "a") as log, pytest.raises(ClusterError, match="no settings of offsetlog's"):
        log.maintain(now=NOW)


@pytest.mark.parametrize(
    "source", [CLEAN / "log-dir-1" / "g-compact-0", OLD_LOG_DIRS[0] / "o-v1-snappy-0"], ids=lambda path: path.name
)
@pytest.mark.parametrize("has_id", [True, False])
def test_what_we_did_not_make_has_no_defaults(source: Path, has_id: bool, tmp_path: Path) -> None:
    """Its topic may be compacted, or kept for good. That we have opened it, and written to it, tells nothing of that."""
    copied = tmp_path / source.name
    shutil.copytree(source, copied)
    if not has_id:
        (copied / "partition.metadata").unlink(missing_ok=True)
    records = len(list(Log.open(copied).scan()))
    for turn in range(3):
        with Log.open(copied, "a") as log:
            with pytest.raises(ClusterError, match=r"retention\.ms .*are not known of this partition.*config= of Log\.open"):
                log.maintain(now=NOW, dry_run=turn == 0)
            log.append(b"ours", key=b"k")
            with pytest.raises(ClusterError, match="are not known of this partition"):
                log.maintain(now=NOW)
            if "-compact-" in source.name:
                with pytest.raises(ClusterError, match="not known of this partition"):
                    log.compact()
    with LogDir.open(tmp_path, "a") as log_dir:
        assert list(log_dir.maintain(now=NOW).failed) == [(source.name[:-2], 0)]
    assert len(list(Log.open(copied).scan())) == records + 3
    # Whoever says what holds takes it over.
    with Log.open(copied, "a", {"retention.ms": -1}) as log:
        assert log.maintain(now=NOW).removed == ()
    with Log.open(copied, "a") as log:
        assert log.maintain(now=NOW).removed == ()
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.set_topic_config(source.name[:-2], {"retention.ms": 1})
        assert log_dir.maintain(now=NOW + 1000).failed == {}
        assert log_dir.end_offsets() == log_dir.beginning_offsets()


def test_a_converted_log_has_no_defaults(tmp_path: Path) -> None:
    convert(CLEAN / "log-dir-1" / "g-compact-0", tmp_path / "new-0")
    with Log.open(tmp_path / "new-0", "a") as log, pytest.raises(ClusterError, match="are not known of this partition"):
        log.maintain(now=NOW)
    convert(CLEAN / "log-dir-1" / "g-compact-0", tmp_path / "given-0", config={"retention.ms": -1})
    with Log.open(tmp_path / "given-0", "a") as log:
        assert log.maintain(now=NOW).removed == ()


def test_what_we_made_without_settings_has_kafkas_defaults(tmp_path: Path) -> None:
    for turn in range(2):
        with Log.open(tmp_path / "t-0", "a") as log:
            log.append(b"old", timestamp=1)
            assert len(log.maintain().removed) == 1, turn
    with Log.open(tmp_path / "u-0", "a", {}) as log:
        log.append(b"old", timestamp=1)
    with LogDir.open(tmp_path, "a") as log_dir:
        assert set(log_dir.maintain().partitions) == {TopicPartition("u", 0)}


def test_our_own_log_dirs_are_kept_as_before(tmp_path: Path) -> None:
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("orders")
        log_dir.append("orders", b"old", timestamp=1)
        assert len(log_dir.maintain().partitions[TopicPartition("orders", 0)].removed) == 1
        settings = log_dir.topic_settings("orders")
    assert settings.broker is None
    assert settings.settings["retention.ms"] == ("604800000", "default", None)


def test_topics_of_brokers_own_are_named_or_left(dirs: list[Path], properties: Path) -> None:
    with LogDir.open(dirs, "a", broker=properties) as log_dir:
        for topic in INTERNAL:
            with pytest.raises(ClusterError, match=f"--internal {topic}"):
                log_dir.delete_topic(topic)
        log = log_dir.log("__consumer_offsets", 0)
        for verb in (lambda: log.truncate_to(0), lambda: log.delete_records_before(1), log.compact, log.maintain):
            with pytest.raises(ClusterError, match="internal topic"):
                verb()
        end = log.log_end_offset
        with pytest.raises(ClusterError, match="metadata log"):
            log_dir.log("__cluster_metadata", 0).truncate_to(0)
    with LogDir.open(dirs, "a", broker=properties, internal_topics="__consumer_offsets") as log_dir:
        log = log_dir.log("__consumer_offsets", 0)
        assert log.log_end_offset == end
        report = log_dir.maintain(now=NOW)
        assert {topic for topic, _ in report.internal} == {"__cluster_metadata", "__transaction_state"}
        # Compacted by the cluster's word for it, never removed.
        assert all(not kept.removed for key, kept in report.partitions.items() if key[0] == "__consumer_offsets")
        log.delete_records_before(1)
        log_dir.delete_topic("__consumer_offsets")
    run = offsetlog("delete", "__transaction_state", *dirs[:2])
    assert run.returncode == 2
    assert "--internal __transaction_state" in run.stderr
    run = offsetlog("delete", "__transaction_state", *dirs[:2], "--internal", "__transaction_state")
    assert run.returncode == 0, run.stderr


def test_a_partition_that_others_have_is_not_changed(dirs: list[Path]) -> None:
    """To the metadata, partitions of `g-plain` are broker 1's: for broker 2 they are somebody else's."""
    for path in dirs[:2]:
        meta = path / "meta.properties"
        meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    with LogDir.open(dirs, "a") as log_dir, Log.open(CLEAN / "log-dir-1" / "g-plain-0") as other:
        log = log_dir.log("g-plain", 0)
        end, start = log.log_end_offset, log.log_start_offset
        verbs = (
            lambda: log.append(b"x"),
            lambda: log_dir.append("g-plain", b"x", partition=0),
            lambda: log.append_marker(7, 0, commit=True),
            lambda: log.append_log(other),
            lambda: log.truncate_to(3),
            lambda: log.truncate_fully_and_start_at(3),
            lambda: log.delete_records_before(3),
        )
        for verb in verbs:
            with pytest.raises(
                ClusterError, match=r"broker 1 of the cluster has a replica too: .*another broker leads it.*--single-replica"
            ):
                verb()
        assert (log.log_end_offset, log.log_start_offset) == (end, start)
    command = [sys.executable, "-m", "offsetlog", "append", str(dirs[0] / "g-plain-0"), "--metadata", str(dirs[2])]
    run = subprocess.run(command, input="x\n", capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "broker 1 of the cluster has a replica too" in run.stderr
    with Log.open(dirs[0] / "g-plain-0", "a", metadata=dirs[2], single_replica=True) as log:
        assert log.append(b"x") == end
    # Without metadata nobody knows.
    with Log.open(dirs[0] / "g-plain-0", "a") as log:
        assert log.append(b"x") == end + 1


def high_watermark(log_dir: Path, partition: str) -> int:
    """What the broker's own checkpoint says."""
    lines = (log_dir / "replication-offset-checkpoint").read_text().splitlines()[2:]
    return next(int(line.rpartition(" ")[2]) for line in lines if line.startswith(partition))


def test_the_high_watermark_is_for_all_replicas_to_raise(dirs: list[Path], properties: Path) -> None:
    """What others have not got may be cut off by them: it is not called replicated, and nothing goes that is not."""
    log_dir = dirs[0]
    shutil.copytree(dirs[2] / "__cluster_metadata-0", log_dir / "__cluster_metadata-0")
    with Log.open(log_dir / "g-plain-0") as log:
        _, first, second, *_ = (batch.base_offset for batch in log.batches())
    checkpoint = log_dir / "replication-offset-checkpoint"
    checkpoint.write_text(re.sub(r"(?m)^g-plain 0 \d+$", f"g-plain 0 {second}", checkpoint.read_text()))
    meta = log_dir / "meta.properties"
    own = meta.read_text()
    meta.write_text(own.replace("node.id=1", "node.id=2"))
    recover(log_dir / "g-plain-0")
    assert high_watermark(log_dir, "g-plain 0") == second
    with Log.open(log_dir / "g-plain-0", "a", single_replica=True, broker=properties) as log:
        end = log.append(b"x", flush=True)
        log.roll()
        with pytest.raises(OffsetOutOfRangeError):
            log.delete_records_before(second + 1)
        assert not log.maintain(config={"retention.ms": 0}, now=NOW * 2).removed
    assert high_watermark(log_dir, "g-plain 0") == second
    with Log.open(log_dir / "g-plain-0", "a", single_replica=True) as log:
        log.truncate_to(first)
    assert high_watermark(log_dir, "g-plain 0") == first
    # The only replica's log ends where it is replicated to.
    meta.write_text(own)
    with Log.open(log_dir / "g-plain-0", "a") as log:
        assert log.append(b"y") == first < end
    assert high_watermark(log_dir, "g-plain 0") == first + 1


def test_the_only_replica_may_be_changed(dirs: list[Path]) -> None:
    with LogDir.open(dirs, "a") as log_dir:
        assert log_dir.append("g-plain", b"x", partition=0).partition == 0


def test_metadata_that_cannot_be_read_or_is_anothers_tells_nothing(dirs: list[Path], properties: Path) -> None:
    meta = dirs[0] / "meta.properties"
    text = meta.read_text()
    meta.write_text(text.replace("cluster.id=", "cluster.id=x"))
    with LogDir.open(dirs, "a", broker=properties) as log_dir:
        assert "is the metadata of cluster" in log_dir.maintain(now=NOW).failed[TopicPartition("g-plain", 0)]
    meta.write_text(text)
    newest = max(dirs[2].glob("__cluster_metadata-0/*.log"))
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    with LogDir.open(dirs, "a", broker=properties) as log_dir:
        failed = log_dir.maintain(now=NOW).failed
        assert "cannot be read" in failed[TopicPartition("g-plain", 0)]
        with pytest.raises(ClusterError, match="who else has a replica is not known"):
            log_dir.append("g-plain", b"x", partition=0)


@pytest.mark.parametrize("at", ["before the topic", "behind it"])
def test_a_partition_may_be_in_the_lost_part_of_the_metadata(at: str, dirs: list[Path]) -> None:
    """Then nobody knows who else has a replica. One that is in the other part is known."""
    log = dirs[2] / "__cluster_metadata-0" / f"{0:020}.log"
    data = log.read_bytes()
    log.write_bytes(data[: data.index(b"g-plain") if at == "before the topic" else -1])
    with LogDir.open(dirs, "a") as log_dir:
        if at == "before the topic":
            with pytest.raises(ClusterError, match=r"who else has a replica is not known \(a part of its metadata is missing"):
                log_dir.append("g-plain", b"x", partition=0)
        else:
            assert log_dir.append("g-plain", b"x", partition=0).partition == 0
    with LogDir.open(dirs, "a", single_replica=True) as log_dir:
        assert log_dir.append("g-plain", b"x", partition=0).partition == 0


def test_refresh_has_the_metadata_read_again(tmp_path: Path) -> None:
    """A log dir that stays open tells the settings of its last look."""
    topic_id = bytes(range(16))
    values = [metadata_records.topic("t", topic_id), metadata_records.partition(topic_id, 0, [1])]
    metadata_records.write(tmp_path, [*values, metadata_records.config("topic", "t", "retention.ms", "1000")])
    with LogDir.open(tmp_path, "a") as made:
        made.create_topic("t", topic_id=base64.urlsafe_b64encode(topic_id).decode().rstrip("="))
    with LogDir.open(tmp_path) as log_dir:

        def told() -> object:
            return log_dir.topic_settings("t").settings["retention.ms"][:2]

        assert told() == ("1000", "topic")
        metadata_records.write(tmp_path, [metadata_records.config("topic", "t", "retention.ms", "2000")])
        assert told() == ("1000", "topic")
        log_dir.refresh()
        assert told() == ("2000", "topic")


def test_layers_are_told(dirs: list[Path], properties: Path) -> None:
    with LogDir.open(dirs) as log_dir:
        found = log_dir.topic_settings("g-compact", broker=properties)
        assert found.broker == "meta.properties of node 1"
        settings = found.settings
        assert settings["cleanup.policy"] == ("compact", "topic", None)
        assert settings["min.insync.replicas"] == ("1", "dynamic default broker", None)
        assert settings["retention.ms"] == ("3600000", "broker", None)
        assert settings["segment.ms"] == ("604800000", "default", None)
        assert settings["internal.segment.bytes"] == ("4096", "topic", None)
        assert log_dir.topic_settings("g-plain").settings["retention.ms"][:2] == (None, "unknown")
    run = offsetlog("settings", *dirs, "-t", "g-compact", "--broker", properties)
    assert run.returncode == 0
    assert "cleanup.policy             compact    topic" in run.stdout
    assert "newest metadata record" in run.stderr
    run = offsetlog("settings", dirs[0], "-t", "g-plain", "--json")
    assert '"name":"retention.ms","value":null,"from":"unknown","reason":"the cluster may set it' in run.stdout


def test_tiered_topics_are_refused(dirs: list[Path]) -> None:
    config: dict[str, str | int] = {"remote.storage.enable": True, "cleanup.policy": "delete"}
    with LogDir.open(dirs[:2], "a") as log_dir:
        assert "leave it to the broker" in log_dir.maintain(topics="g-plain", config=config).failed[TopicPartition("g-plain", 0)]


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_a_topic_whose_segments_the_cluster_tiers_is_refused(dirs: list[Path], properties: Path, tmp_path: Path, enabled: str) -> None:
    """By the cluster's metadata alone."""
    wanted = TopicPartition("g-plain", 0)
    with Log.open(dirs[0] / "g-plain-0") as log:
        assert log.topic_id is not None
        topic_id = base64.urlsafe_b64decode(log.topic_id + "==")
    body = [metadata_records.topic("g-plain", topic_id)]
    body += [metadata_records.partition(topic_id, number, [1]) for number in range(3)]
    body.append(metadata_records.config("topic", "g-plain", "remote.storage.enable", enabled))
    metadata = metadata_records.write(tmp_path / "metadata", body)
    with LogDir.open(dirs[:2], "a", broker=properties, metadata=metadata) as log_dir:
        report = log_dir.maintain(topics="g-plain", now=NOW)
    assert (wanted in report.partitions) == (enabled == "false")
    assert ("leave it to the broker" in report.failed.get(wanted, "")) == (enabled == "true")


def test_the_directory_of_an_old_broker_is_one(tmp_path: Path) -> None:
    """A ZooKeeper cluster keeps its settings where they are not read: what is not given is not known."""
    shutil.copytree(DATA / "kafka-2.8.2" / "broker-1", tmp_path / "broker-1")
    with LogDir.open(tmp_path / "broker-1", "a", defaults={"retention.ms": 1}) as log_dir:
        report = log_dir.maintain(now=NOW)
    assert report.partitions == {}
    assert len(report.failed) == report.looked_at > 0


def test_the_command_keeps_what_is_named_of_brokers_own(dirs: list[Path], properties: Path) -> None:
    """`--internal` of one topic: that one is compacted by the cluster's word for it, the others are left, and no group loses an offset."""
    topic = "__consumer_offsets"
    with LogDir.open(dirs, "a", broker=properties, internal_topics=topic) as log_dir:
        groups = log_dir.groups()
        ends = {key: end for key, end in log_dir.end_offsets().items() if key.topic == topic and end}
        assert len(ends) > 1
        for key in ends:
            # A closed segment: the active one is not compacted.
            log_dir.log(*key).roll()
    with LogDir.open(dirs) as log_dir:
        before = {key: log_dir.log(*key).scan().count() for key in ends}
    given = ["-t", topic, "-t", "__transaction_state", "--broker", properties, "--config=min.cleanable.dirty.ratio=0", "--json"]
    others = [path for folder in dirs for path in folder.glob("__*") if not path.name.startswith(topic)]
    untouched = [tree(path) for path in others]
    # Not named: left, and the words say how to name it.
    named = [path for folder in dirs for path in folder.glob(f"{topic}-*")]
    held = [tree(path) for path in named]
    run = offsetlog("maintain", *dirs, *given)
    assert (run.returncode, run.stdout) == (0, ""), run
    assert f"{topic}: left alone, as brokers keep it by rules of their own; --internal {topic} keeps it too" in run.stderr
    assert [tree(path) for path in named] == held
    plan = offsetlog("maintain", *dirs, *given, "--internal", topic, "--dry-run")
    assert plan.returncode == 0, plan.stderr
    done = offsetlog("maintain", *dirs, *given, "--internal", topic)
    assert done.returncode == 0, done.stderr
    assert f"{topic}: left alone" not in done.stderr
    assert "__transaction_state: left alone" in done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line | {"dry_run": True} for line in lines] == [json.loads(line) for line in plan.stdout.splitlines()]
    assert {(line["topic"], line["partition"]) for line in lines} == set(ends)
    assert all(line["compactions"] and not line["removed"] for line in lines)
    assert [tree(path) for path in others] == untouched
    with LogDir.open(dirs) as log_dir:
        after = {key: log_dir.log(*key).scan().count() for key in ends}
        assert {key: log_dir.log(*key).log_end_offset for key in ends} == ends
        assert log_dir.groups() == groups
    assert all(after[key] < before[key] for key in ends)


def test_each_layer_stands_above_the_next(dirs: list[Path], tmp_path: Path) -> None:
    """Kafka's order, with one setting in every layer at once; upkeep goes by the same."""
    with Log.open(dirs[0] / "g-plain-0") as log:
        assert log.topic_id is not None
        topic_id = base64.urlsafe_b64decode(log.topic_id + "==")
    body = [metadata_records.topic("g-plain", topic_id)]
    body += [metadata_records.partition(topic_id, number, [1]) for number in range(3)]
    metadata_records.write(tmp_path / "metadata", body)
    properties = tmp_path / "server.properties"
    found = []

    def look() -> None:
        with LogDir.open(dirs[:2], "a", broker=properties, metadata=tmp_path / "metadata") as log_dir:
            value, source, _ = log_dir.topic_settings("g-plain").settings["retention.ms"]
            found.append((value, source))
            # The records are years old, and so they go where the layer that holds does not keep them for good.
            plan = log_dir.maintain(topics="g-plain", now=NOW, dry_run=True, only=["retention"])
            assert bool(plan.partitions) == (value != "-1")
            option = log_dir.maintain(topics="g-plain", now=NOW, dry_run=True, only=["retention"], config={"retention.ms": -1})
            assert (option.partitions, option.failed) == ({}, {})

    properties.write_text("log.retention.bytes=-1\nlog.cleanup.policy=delete\n")
    look()
    for hours in ("log.retention.hours=2\n", "log.retention.minutes=-1\n", "log.retention.ms=3\n"):
        with properties.open("a") as file:
            file.write(hours)
        look()
    for kind, name, key, value in (
        ("broker", "", "log.retention.ms", "-1"),
        ("broker", "2", "log.retention.ms", "5"),
        ("broker", "1", "log.retention.ms", "6"),
        ("topic", "g-plain", "retention.ms", "-1"),
    ):
        metadata_records.write(tmp_path / "metadata", [metadata_records.config(kind, name, key, value)])
        look()
    assert found == [
        ("604800000", "default"),
        ("7200000", "broker"),
        ("-1", "broker"),
        ("3", "broker"),
        ("-1", "dynamic default broker"),
        # Another broker's.
        ("-1", "dynamic default broker"),
        ("6", "dynamic broker"),
        ("-1", "topic"),
    ]
