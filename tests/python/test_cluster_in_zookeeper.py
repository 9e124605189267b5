"""In the log dir of a broker with ZooKeeper: its data is named where others have a metadata log, and decides as that does.

The data is that of real brokers, 3.9.2 and 2.8.2, and of their ZooKeeper; what each said of its topics' settings stands beside it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from golden import CLEAN, DATA
from test_dry_runs import offsetlog

from offsetlog import ClusterError, Log, LogDir, LogDirError, MetadataFileError, TopicPartition, folder_kind

LAYERS = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_BROKER_CONFIG": "dynamic broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "dynamic default broker",
    "DEFAULT_CONFIG": "default",
}
NOW = 1_900_000_000_000
OTHER_SINCE_4 = {"message.timestamp.after.max.ms"}
"""What has another default since."""
LAST = {"3.9.2": 1_795_436_321_561, "2.8.2": 1_795_438_523_083}
"""When ZooKeeper wrote last, minutes after the topics were made."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A copy of the broker's log dir and of ZooKeeper's data."""
    shutil.copytree(DATA / "kafka-3.9.2-zookeeper", tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text("log.retention.ms=-1\n")
    return path


@pytest.mark.parametrize("version", ["3.9.2", "2.8.2"])
def test_settings_and_layers_are_those_that_the_broker_told(version: str, tmp_path: Path, properties: Path) -> None:
    place = tmp_path / "copy"
    shutil.copytree(DATA / f"kafka-{version}-zookeeper", place)
    told = json.loads((place / "settings.json").read_text())
    with LogDir.open(place / "log-dir", "a", broker=properties, metadata=place / "zookeeper") as log_dir:
        for topic, settings in told.items():
            found = log_dir.topic_settings(topic)
            common = (found.settings.keys() & settings.keys()) - OTHER_SINCE_4
            assert len(common) > 20
            ours = {name: (found.settings[name].value, found.settings[name].source) for name in common}
            assert ours == {name: (settings[name][0], LAYERS[settings[name][1]]) for name in common}
            assert found.metadata_timestamp == LAST[version]
        report = log_dir.maintain(now=NOW)
        assert report.failed == {}
        assert report.looked_at == 4
        assert report.metadata_timestamp == LAST[version]


def test_without_zookeepers_data_everything_is_refused(place: Path, properties: Path) -> None:
    with LogDir.open(place / "log-dir", "a", broker=properties) as log_dir:
        report = log_dir.maintain(now=NOW)
    assert len(report.failed) == report.looked_at == 4
    text = report.failed[TopicPartition("plain", 0)]
    assert "ZooKeeper's data) was not found" in text
    assert "--metadata DIR" in text


def test_each_way_to_name_it_will_do(place: Path, properties: Path) -> None:
    apart = place / "apart"
    (apart / "logs" / "version-2").mkdir(parents=True)
    (apart / "snapshots" / "version-2").mkdir(parents=True)
    for file in (place / "zookeeper" / "version-2").iterdir():
        shutil.copy(file, apart / ("logs" if file.name.startswith("log.") else "snapshots") / "version-2")
    for named in (place / "zookeeper", place / "zookeeper" / "version-2", apart):
        with LogDir.open(place / "log-dir", "a", broker=properties, metadata=named) as log_dir:
            assert log_dir.maintain(dry_run=True, now=NOW).failed == {}
        with Log.open(place / "log-dir" / "own-0", "a", broker=properties, metadata=named) as log:
            assert not log.maintain(now=NOW).removed
        run = offsetlog("maintain", place / "log-dir", "--metadata", named, "--broker", properties)
        assert run.returncode == 0, run.stderr
    # Without its logs it is old, nobody knows how much.
    with LogDir.open(place / "log-dir", "a", broker=properties, metadata=apart / "snapshots") as log_dir:
        failed = log_dir.maintain(now=NOW).failed
        assert len(failed) == 4
        assert "dataLogDir is another folder" in failed[TopicPartition("plain", 0)]
    with pytest.raises(LogDirError, match=r"no data of ZooKeeper's \(version-2\)"):
        LogDir.open(place / "log-dir", "a", metadata=place / "log-dir")


def test_what_other_brokers_have_is_not_changed(place: Path) -> None:
    meta = place / "log-dir" / "meta.properties"
    meta.write_text(meta.read_text().replace("broker.id=1", "broker.id=2"))
    zookeeper = place / "zookeeper"
    with (
        LogDir.open(place / "log-dir", "a", metadata=zookeeper) as log_dir,
        pytest.raises(ClusterError, match=r"broker 1 of the cluster has a replica too: .*another broker leads it"),
    ):
        log_dir.append("plain", b"x", partition=0)
    newest = zookeeper / "version-2" / "log.3b"
    data = bytearray(newest.read_bytes())
    data[60] ^= 1
    newest.write_bytes(data)
    with (
        LogDir.open(place / "log-dir", "a", metadata=zookeeper) as log_dir,
        pytest.raises(ClusterError, match=r"who else has a replica is not known.*ZooKeeper transaction log checksum"),
    ):
        log_dir.append("plain", b"x", partition=0)


def test_a_cluster_that_moved_to_kraft_is_not_kept_by_what_it_left(place: Path, properties: Path, tmp_path: Path) -> None:
    meta = place / "log-dir" / "meta.properties"
    meta.write_text(meta.read_text().replace("version=0", "version=1"))
    with LogDir.open(place / "log-dir", "a", broker=properties, metadata=place / "zookeeper") as log_dir:
        assert "has left ZooKeeper" in log_dir.maintain(now=NOW).failed[TopicPartition("plain", 0)]
    dirs = [CLEAN / "log-dir-1", CLEAN / "log-dir-2", CLEAN / "metadata-dir"]
    shutil.copytree(CLEAN, tmp_path / "kraft")
    dirs = [tmp_path / "kraft" / path.name for path in dirs]
    with LogDir.open(dirs, "a", broker=properties, metadata=place / "zookeeper") as log_dir:
        failed = log_dir.maintain(now=NOW).failed
        assert "its metadata stands in" in failed[TopicPartition("g-plain", 0)]


def test_another_clusters_data_tells_nothing(place: Path, properties: Path) -> None:
    meta = place / "log-dir" / "meta.properties"
    meta.write_text(meta.read_text().replace("cluster.id=", "cluster.id=x"))
    with LogDir.open(place / "log-dir", "a", broker=properties, metadata=place / "zookeeper") as log_dir:
        assert "is the metadata of cluster" in log_dir.maintain(now=NOW).failed[TopicPartition("plain", 0)]


def beside(place: Path) -> list[Path]:
    return [place / "log-dir", place / "zookeeper"]


@pytest.mark.parametrize("version", ["3.9.2", "2.8.2"])
def test_the_metadata_is_what_zookeepers_data_says(version: str) -> None:
    place = DATA / f"kafka-{version}-zookeeper"
    told = json.loads((place / "settings.json").read_text())
    with LogDir.open(beside(place)) as log_dir:
        image = log_dir.metadata()
        assert image is not None
        assert log_dir.strays() == []
        here = {(topic, partition): log_dir.log(topic, partition).topic_id for topic, partition in log_dir.partitions()}
    assert {topic.name for topic in image.topics} >= set(told)
    known = {(topic.name, each.partition): topic.topic_id for topic in image.topics for each in topic.partitions}
    # The directories of 2.8.2 have none beside them.
    assert {key: known[key] for key in here} == {key: topic_id or known[key] for key, topic_id in here.items()}
    assert (None in here.values()) == (version == "2.8.2")
    for topic in image.topics:
        assert all((each.replicas, each.isr, each.leader) == ((1,), (1,), 1) for each in topic.partitions)
    for topic, settings in told.items():
        own = {name: value for name, (value, layer) in settings.items() if layer == "DYNAMIC_TOPIC_CONFIG"}
        assert image.configs.get(("topic", topic), {}) == own
    assert (image.snapshot_end_offset, image.features, image.removed_topics) == (None, {}, ())
    assert image.end_offset > 0
    # The data alone says the same.
    with LogDir.open(place / "zookeeper") as alone:
        assert alone.metadata() == image
        assert alone.topics() == {}
        assert alone.strays() == []


def test_what_was_named_for_appending_is_the_metadata_too(place: Path, properties: Path) -> None:
    with LogDir.open(beside(place)) as log_dir:
        image = log_dir.metadata()
        effective = log_dir.topic_settings("own")
    assert image is not None
    with LogDir.open(place / "log-dir", "a", metadata=place / "zookeeper") as log_dir:
        assert log_dir.metadata() == image
        assert log_dir.strays() == []
        assert log_dir.topic_settings("own") == effective
        # One source that is named for a question leaves the others.
        with_broker = log_dir.topic_settings("own", broker=properties)
        assert with_broker.metadata_timestamp == effective.metadata_timestamp == LAST["3.9.2"]
        assert with_broker.settings["retention.ms"] == effective.settings["retention.ms"]
    with LogDir.open(CLEAN / "log-dir-1") as log_dir:
        assert log_dir.metadata() is None


def test_directories_that_zookeeper_does_not_have_are_stray(place: Path) -> None:
    shutil.copytree(place / "log-dir" / "plain-0", place / "log-dir" / "gone-0")
    (place / "log-dir" / "gone-0" / "partition.metadata").unlink()
    shutil.copytree(place / "log-dir" / "plain-0", place / "log-dir" / "plain-9")
    with LogDir.open(beside(place)) as log_dir:
        found = log_dir.strays()
    assert found is not None
    assert [(stray.topic, stray.partition, stray.reason) for stray in found] == [
        ("gone", 0, "there is no topic of this name"),
        ("plain", 9, "the topic has no partition 9"),
    ]
    listed = offsetlog("ls", *beside(place), "--json")
    told = {(line["topic"], line["partition"]): line.get("stray") for line in map(json.loads, listed.stdout.splitlines())}
    assert {key: reason for key, reason in told.items() if reason} == {(each.topic, each.partition): each.reason for each in found}
    assert "gone-0 is stray, ZooKeeper's data does not have it: there is no topic of this name\n" in listed.stderr
    checked = offsetlog("verify", *beside(place))
    assert "stray, ZooKeeper's data does not have it: the topic has no partition 9" in checked.stdout


def test_the_command_shows_zookeepers_metadata(place: Path) -> None:
    with LogDir.open(beside(place)) as log_dir:
        image = log_dir.metadata()
    assert image is not None
    for paths in (beside(place), [place / "zookeeper"], [place / "zookeeper" / "version-2"]):
        printed = offsetlog("metadata", *paths)
        assert (printed.returncode, printed.stderr) == (0, "")
        assert [line.split() for line in printed.stdout.splitlines()[1:]] == [
            [topic.name, topic.topic_id, str(each.partition), "1", str(each.leader_epoch), "1", "1", "-"]
            for topic in image.topics
            for each in topic.partitions
        ]
    lines = map(json.loads, offsetlog("metadata", place / "zookeeper", "--json").stdout.splitlines())
    assert [(line["topic"], line["topic_id"], line["configs"]) for line in lines] == [
        (topic.name, topic.topic_id, image.configs.get(("topic", topic.name))) for topic in image.topics
    ]
    rows = [tuple(line.split()) for line in offsetlog("metadata", place / "zookeeper", "--configs").stdout.splitlines()[1:]]
    assert rows == [(kind, name or "-", *pair) for (kind, name), configs in image.configs.items() for pair in configs.items()]
    assert offsetlog("metadata", place / "zookeeper", "--features").returncode == 1
    without = offsetlog("metadata", place / "log-dir")
    assert without.returncode == 1
    assert "of a cluster with ZooKeeper give the data of that too (dataDir)" in without.stderr


def test_what_zookeepers_data_cannot_tell_is_an_error(place: Path) -> None:
    meta = place / "log-dir" / "meta.properties"
    whole = meta.read_text()
    for changed, reason in (
        (whole.replace("version=0", "version=1"), "has left ZooKeeper"),
        (whole.replace("cluster.id=", "cluster.id=x"), "is the metadata of cluster"),
    ):
        meta.write_text(changed)
        with LogDir.open(beside(place)) as log_dir:
            for ask in (log_dir.metadata, log_dir.strays):
                with pytest.raises(LogDirError, match=reason):
                    ask()
        assert reason in offsetlog("metadata", *beside(place)).stderr
        listed = offsetlog("ls", *beside(place))
        assert listed.stdout
        assert "not compared with the metadata: " in listed.stderr
        assert reason in listed.stderr
    meta.write_text(whole)
    newest = place / "zookeeper" / "version-2" / "log.3b"
    data = bytearray(newest.read_bytes())
    data[60] ^= 1
    newest.write_bytes(data)
    with LogDir.open(beside(place)) as log_dir, pytest.raises(MetadataFileError, match="checksum"):
        log_dir.metadata()


def test_nothing_is_made_in_zookeepers_data(place: Path) -> None:
    zookeeper = place / "zookeeper"
    shutil.copytree(zookeeper, place / "apart" / "data")
    before = sorted(place.rglob("*"))
    assert [folder_kind(path) for path in (zookeeper, zookeeper / "version-2", place / "apart")] == ["zookeeper"] * 3
    for path in (zookeeper, zookeeper / "version-2", place / "apart"):
        with pytest.raises(LogDirError, match="ZooKeeper's data found"):
            LogDir.open([place / "log-dir", path], "a")
    with pytest.raises(LogDirError, match="ZooKeeper's data found"):
        Log.open(zookeeper / "version-2", "a")
    with pytest.raises(LogDirError, match="give that of one server"):
        LogDir.open([*beside(place), place / "apart"])
    assert sorted(place.rglob("*")) == before


def test_a_topic_named_like_zookeepers_folder_is_one(tmp_path: Path) -> None:
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("version", 3)
        log_dir.append("version", b"x", partition=2)
    (tmp_path / "version-2" / "log.1").write_bytes(b"somebody's")
    (tmp_path / ".lock").unlink()
    with LogDir.open(tmp_path) as log_dir:
        assert log_dir.topics() == {"version": [0, 1, 2]}
        assert log_dir.log("version", 2).log_end_offset == 1
