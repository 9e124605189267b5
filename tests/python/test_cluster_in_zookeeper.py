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

from offsetlog import ClusterError, Log, LogDir, LogDirError, TopicPartition

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
