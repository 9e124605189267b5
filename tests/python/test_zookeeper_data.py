"""Data directories of ZooKeeper 3.4 to 3.9, killed with transactions beyond the last snapshot: tables, groups and nodes, as ZooKeeper's own client read them.

`tests/data/zookeeper/README.md` says how they were made.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from golden import CLEAN_LOG_DIRS, DATA
from test_group_lag_time import commit, commits

from offsetlog import (
    AccessControlEntry,
    ConfigError,
    LogDir,
    LogDirError,
    MetadataImage,
    ScramCredential,
    metadata_as_commands,
    zookeeper_node,
)

PLACES = sorted(path for path in (DATA / "zookeeper").iterdir() if path.is_dir())
REAL = [path for path in PLACES if path.name.startswith("kafka-")]
EMBEDDED = [path for path in PLACES if path not in REAL]
SECRET = "never-printed-7"  # noqa: S105  # of the makers
FIRST = '{"controller_epoch":2,"leader":2,"version":1,"leader_epoch":0,"isr":[2,0]}'


def told(place: Path) -> dict[str, dict[str, Any]]:
    """What the client read, by path."""
    return {node["path"]: node for node in json.loads((place / "nodes.json").read_text())}


def document(place: Path, path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told(place)[path]["data"])
    return found


def below(place: Path, path: str) -> list[str]:
    found = (node.removeprefix(f"{path}/") for node in told(place) if node.startswith(f"{path}/"))
    return [name for name in found if "/" not in name]


def image_of(place: Path) -> MetadataImage:
    with LogDir.open(place) as log_dir:
        image = log_dir.metadata()
    assert image is not None
    return image


def run(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "offsetlog", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, timeout=300)


def test_every_version_is_here() -> None:
    assert [path.name for path in PLACES] == ["3.4.14", "3.5.10", "3.6.4", "3.7.2", "3.8.4", "3.9.3", "kafka-2.8.2", "kafka-3.9.2"]
    for place in PLACES:
        assert any(path.name.startswith("log.") for path in (place / "version-2").iterdir())


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_every_node_is_as_the_client_read_it(place: Path) -> None:
    nodes = told(place)
    assert len(nodes) > 40
    hidden = 0
    for path, node in nodes.items():
        data = (node["data"] or "").encode()
        assert zookeeper_node(place, path, show_secrets=True) == data, path
        shown = zookeeper_node(place / "version-2", path)
        assert SECRET.encode() not in shown
        assert b"salt=" not in shown
        if shown != data:
            hidden += 1
            assert b'"[hidden]"' in shown
            assert json.loads(shown).keys() == json.loads(data).keys()
            assert path.startswith("/config/")
    assert hidden >= 2
    with pytest.raises(KeyError, match=r"the nearest above it is /brokers/topics, and below it: .*first"):
        zookeeper_node(place, "/brokers/topics/last/partitions")


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_topics_brokers_and_settings(place: Path) -> None:
    image = image_of(place)
    assert [topic.name for topic in image.topics] == sorted(below(place, "/brokers/topics"))
    assert "first" in [topic.name for topic in image.topics]
    for topic in image.topics:
        stored = document(place, f"/brokers/topics/{topic.name}")
        assert topic.topic_id == stored["topic_id"]
        assert {str(each.partition): list(each.replicas) for each in topic.partitions} == stored["partitions"]
        for each in topic.partitions:
            path = f"/brokers/topics/{topic.name}/partitions/{each.partition}/state"
            state = document(place, path)
            leader = state["leader"] if state["leader"] >= 0 else None
            assert (each.leader, each.leader_epoch, list(each.isr)) == (leader, state["leader_epoch"], state["isr"])
            assert each.partition_epoch == told(place)[path]["version"]
        config = document(place, f"/config/topics/{topic.name}")["config"]
        own = image.configs.get(("topic", topic.name), {})
        assert own == {name: "[hidden]" if "plugin" in name else value for name, value in config.items()}
    assert [str(broker.broker_id) for broker in image.brokers] == sorted(below(place, "/brokers/ids"))
    for broker in image.brokers:
        stored = document(place, f"/brokers/ids/{broker.broker_id}")
        assert [f"{name}://{host}:{port}" for name, host, port in broker.endpoints] == stored["endpoints"]
    assert image.configs[("broker", "")] == {"log.cleaner.threads": "2"}
    # Who has no key cannot read it.
    assert ("broker", "1") not in image.configs
    assert SECRET not in repr(image)


def test_leaders_isr_and_partitions_of_first() -> None:
    """As the issue of a reader would be: three partitions, two replicas, three brokers, one change behind the snapshot."""
    for place in EMBEDDED:
        (first, second) = image_of(place).topics
        assert [(each.replicas, each.leader, each.leader_epoch, each.isr) for each in first.partitions] == [
            ((2, 0), 2, 0, (2, 0)),
            ((0, 1), 1, 1, (1,)),
            ((1, 2), 1, 0, (1, 2)),
        ]
        assert [(each.replicas, each.leader, each.isr) for each in second.partitions] == [((1, 0), None, (0,))]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_access_control_quotas_and_users(place: Path) -> None:
    image = image_of(place)
    assert image.acls == (
        AccessControlEntry(2, "first", 3, "User:alice", "*", 3, 3),
        AccessControlEntry(2, "first", 3, "User:eve", "10.0.0.2", 2, 2),
        AccessControlEntry(3, "team-", 4, "User:bob", "*", 8, 3),
        AccessControlEntry(4, "kafka-cluster", 3, "User:alice", "*", 9, 3),
    )
    assert image.scram_credentials == (ScramCredential("alice", 1, 4096),)
    quotas = {quota.entity: dict(quota.quotas) for quota in image.client_quotas}
    if place in REAL:
        assert quotas == {
            (("client-id", None),): {"request_percentage": 50.0},
            (("user", "a'b $x"),): {"consumer_byte_rate": 2048.0},
            (("user", "alice"),): {"producer_byte_rate": 1024.0},
        }
    else:
        assert quotas == {
            (("client-id", "loader"),): {"request_percentage": 50.0},
            (("ip", "10.0.0.1"),): {"connection_creation_rate": 5.0},
            (("user", "a'b $x"), ("client-id", None)): {"consumer_byte_rate": 2048.5},
            (("user", "alice"),): {"producer_byte_rate": 1024.0},
        }
    script = metadata_as_commands(place)
    assert SECRET not in script
    assert (
        "kafka-acls.sh --bootstrap-server localhost:9092 --add --deny-principal User:eve --deny-host 10.0.0.2 --operation All"
        in script
    )
    assert "--entity-type users --entity-name alice --add-config producer_byte_rate=1024\n" in script
    assert "SCRAM-SHA-256=[iterations=4096,password=...]" in script


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_groups_of_old_consumers(place: Path) -> None:
    with LogDir.open(place) as log_dir:
        groups = log_dir.groups()
    nodes = told(place)
    assert [(group.group_id, group.kind, group.state) for group in groups] == [
        ("billing", "zookeeper", "Stable"),
        ("left", "zookeeper", "Empty"),
    ]
    stored = {
        tuple(path.split("/")[i] for i in (2, 4, 5)): (int(node["data"]), node["mtime"])
        for path, node in nodes.items()
        if path.startswith("/consumers/") and "/offsets/" in path and path.count("/") == 5
    }
    found = {
        (group.group_id, each.topic, str(each.partition)): (each.offset, each.commit_timestamp)
        for group in groups
        for each in group.offsets
    }
    assert found == stored
    assert len(found) == 3
    (member,) = groups[0].members
    assert (member.member_id, dict(member.assignment)) == ("billing_host-1700000000000-abcdef01", {"first": (0,)})
    printed = run("groups", place, "--reset-csv", "-g", "left")
    assert printed.stdout == b"first,2,3\n"
    assert b"zookeeper" in run("groups", place, "--state").stdout


def test_a_group_that_has_moved_is_its_coordinators(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of two groups of one name the coordinator's counts, and the other is told; all others stand beside each other."""
    logs = commits(tmp_path / "logs", [commit("billing", "first", 1, 77), commit("new", "first", 0, 1)])
    with LogDir.open([logs, EMBEDDED[0]]) as log_dir, caplog.at_level(logging.WARNING, "offsetlog"):
        groups = log_dir.groups()
    assert [(group.group_id, group.kind, [each.offset for each in group.offsets]) for group in groups] == [
        ("billing", "", [77]),
        ("left", "zookeeper", [3]),
        ("new", "", [1]),
    ]
    assert 'left out: what ZooKeeper has of group "billing", which is in __consumer_offsets too' in caplog.text
    # A cluster that has left ZooKeeper has its groups elsewhere.
    with LogDir.open([CLEAN_LOG_DIRS[0], EMBEDDED[0]]) as log_dir, pytest.raises(LogDirError, match="has left ZooKeeper"):
        log_dir.groups()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_the_command_prints_a_node_and_nothing_else(place: Path) -> None:
    path = "/brokers/topics/first/partitions/0/state"
    printed = run("metadata", place, "--get", path)
    assert (printed.returncode, printed.stderr) == (0, b"")
    assert printed.stdout.decode() == told(place)[path]["data"]
    if place in EMBEDDED:
        assert printed.stdout.decode() == FIRST
    missing = run("metadata", place, "--get", "/brokers/topics/first/partitions/7/state")
    assert (missing.returncode, missing.stdout) == (2, b"")
    assert b"the nearest above it is /brokers/topics/first/partitions, and below it: 0, 1, 2" in missing.stderr
    hidden = run("metadata", place, "--get", "/config/users/alice")
    assert SECRET.encode() not in hidden.stdout
    assert SECRET.encode() not in run("metadata", place, "--configs", "--json").stdout
    shown = run("metadata", place, "--get", "/config/users/alice", "--show-secrets")
    assert shown.stdout.decode() == told(place)["/config/users/alice"]["data"]


def test_odd_paths(tmp_path: Path) -> None:
    place = PLACES[0]
    with pytest.raises(ConfigError, match="begins with a slash"):
        zookeeper_node(place, "brokers")
    with pytest.raises(TypeError):
        zookeeper_node(place, b"/brokers")  # type: ignore[arg-type]  # as a mistake
    with pytest.raises(LogDirError, match="no data of ZooKeeper's"):
        zookeeper_node(tmp_path, "/")
    assert zookeeper_node(place, "/") == b""
    assert zookeeper_node(place, "/controller_epoch/") == b"2"
    with pytest.raises(KeyError, match=r"the nearest above it is /, and below it: .*brokers"):
        zookeeper_node(place, "/none")
    with pytest.raises(KeyError):
        zookeeper_node(place, "//brokers")
    several = run("metadata", PLACES[0], PLACES[1], "--get", "/")
    assert several.returncode == 2
    assert b"give that of one server" in several.stderr
    assert run("metadata", DATA / "kafka-4.3.0/clean/log-dir-1", PLACES[0], "--get", "/controller_epoch").stdout == b"2"
    assert run("metadata", DATA / "kafka-4.3.0/clean/log-dir-1", "--get", "/").returncode == 2
