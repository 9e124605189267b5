"""A cluster made again by the commands out of its dead broker's disk, and directories of which a broker does what was said."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clients import Admin
from golden import DATA

from broker import Broker, broker_of, java
from conftest import KRAFT
from offsetlog import LogDir, MetadataImage, identity

VERSION = "4.3.0"
PROGRAMS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
}
SECURE = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "log.segment.delete.delay.ms": 1000,
    # Before that, a broker that has started waits half a minute.
    "log.initial.task.delay.ms": 500,
}
UUID = "0123456789abcdef0123456789abcdef"
OTHER = "AAECAwQFBgcICQoLDA0ODw"
SECRET = "never-printed-7"  # noqa: S105  # of a cluster that lives for a test
WAITING_SECONDS = 300
META = "meta.properties"
FIRST = f"""
kafka-topics.sh --bootstrap-server SERVER --create --topic orders --partitions 3 --replication-factor 1 \\
    --config cleanup.policy=compact,delete --config retention.ms=86400000
kafka-topics.sh --bootstrap-server SERVER --create --topic Two_words.v1 --partitions 2 --replication-factor 1
kafka-topics.sh --bootstrap-server SERVER --create --topic plain --replica-assignment 1,1
kafka-configs.sh --bootstrap-server SERVER --alter --entity-type topics --entity-name plain \\
    --add-config 'follower.replication.throttled.replicas=[0:1,1:1]'
kafka-configs.sh --bootstrap-server SERVER --alter --entity-type brokers --entity-default --add-config log.cleaner.threads=2
kafka-configs.sh --bootstrap-server SERVER --alter --entity-type brokers --entity-name 1 --add-config-file /dev/stdin <<'EOF'
message.max.bytes=1048600
listener.name.external.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_a="{SECRET}";
EOF
kafka-configs.sh --bootstrap-server SERVER --alter --entity-type client-metrics --entity-name m1 --add-config-file /dev/stdin <<'EOF'
interval.ms=10000
match=client_software_name=apache.*,client_id=x
metrics=org.apache.kafka
EOF
kafka-configs.sh --bootstrap-server SERVER --alter --entity-type groups --entity-name "it's" --add-config consumer.session.timeout.ms=46000
kafka-configs.sh --bootstrap-server SERVER --alter --entity-type users --entity-name "a'b \\$x" --entity-type clients --entity-default \\
    --add-config producer_byte_rate=1024,consumer_byte_rate=2048
kafka-configs.sh --bootstrap-server SERVER --alter --entity-type ips --entity-name 10.0.0.1 --add-config connection_creation_rate=5
kafka-configs.sh --bootstrap-server SERVER --alter --entity-type users --entity-name alice \\
    --add-config 'SCRAM-SHA-256=[iterations=4096,password={SECRET}]'
kafka-acls.sh --bootstrap-server SERVER --add --allow-principal 'User:CN=a b, O="x"' --operation Read --operation Describe --topic orders
kafka-acls.sh --bootstrap-server SERVER --add --deny-principal User:eve --deny-host 10.0.0.2 --operation All --group team- \\
    --resource-pattern-type prefixed
kafka-acls.sh --bootstrap-server SERVER --add --allow-principal User:alice --operation ClusterAction --cluster
kafka-acls.sh --bootstrap-server SERVER --add --allow-principal User:alice --operation Write --transactional-id '*'
"""

Shell = Callable[[str], None]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Runs a script with Kafka's own programs on the path."""
    return shell_of(VERSION, tmp_path_factory.mktemp("programs"))


def shell_of(version: str, folder: Path) -> Shell:
    """The same of another version."""
    for name, main in PROGRAMS.items():
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {shlex.join(java(version, main))} "$@"\n')
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}

    def run(script: str) -> None:
        done = subprocess.run(["sh", "-eu"], input=script, capture_output=True, text=True, check=False, timeout=300, env=environment)
        assert done.returncode == 0, f"{script}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        assert "Error" not in done.stdout + done.stderr, f"{script}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"

    return run


def metadata(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "offsetlog", "metadata", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def image(broker: Broker) -> MetadataImage:
    assert broker.metadata_dir is not None
    with LogDir.open(broker.metadata_dir) as logs:
        found = logs.metadata()
    assert found is not None
    return found


def essence(found: MetadataImage) -> dict[str, Any]:
    """What the commands make again: all but ids, epochs and secrets."""
    return {
        "topics": {topic.name: [len(each.replicas) for each in topic.partitions] for topic in found.topics},
        "configs": {
            of: kept
            for of, configs in found.configs.items()
            # A limit of a reassignment that was going on is not made again.
            if (kept := {name: value for name, value in configs.items() if value != "[hidden]" and "throttled" not in name})
        },
        "acls": found.acls,
        "quotas": found.client_quotas,
    }


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, shell: Shell) -> Broker:
    """A cluster that Kafka's own programs made, stopped."""
    broker = Broker(VERSION, tmp_path_factory.mktemp("first") / "kafka")
    broker.settings = SECURE
    broker.format()
    with broker.running():
        shell(FIRST.replace("SERVER", broker.address))
    return broker


def test_a_new_cluster_is_as_the_old_one(first: Broker, shell: Shell, tmp_path: Path) -> None:
    assert first.metadata_dir is not None
    old = image(first)
    assert len(old.acls) == 5
    assert len(old.client_quotas) == 2
    assert [(each.user, each.iterations) for each in old.scram_credentials] == [("alice", 4096)]
    second = Broker(VERSION, tmp_path / "kafka")
    second.settings = SECURE
    second.format()
    with second.running():
        script = metadata("--as-commands", first.metadata_dir, "--bootstrap-server", second.address)
        assert SECRET not in script
        assert "listener.name.external.plain.sasl.jaas.config" in script
        (told,) = [line for line in script.splitlines() if "follower.replication.throttled.replicas" in line]
        assert told.startswith("#")
        shell(script)
    assert essence(image(second)) == essence(old)
    for topic in image(second).topics:
        assert topic.topic_id not in {each.topic_id for each in old.topics}
    for option in ("--configs", "--as-yaml", "--json"):
        assert SECRET not in metadata(option, first.metadata_dir)
    assert SECRET in metadata("--configs", "--show-secrets", first.metadata_dir)


def test_brokers_of_partitions_are_kept_when_asked(first: Broker, shell: Shell, tmp_path: Path) -> None:
    assert first.metadata_dir is not None
    second = Broker(VERSION, tmp_path / "kafka")
    second.format()
    with second.running():
        script = metadata(
            "--as-commands", first.metadata_dir, "--bootstrap-server", second.address, "--replica-assignment", "-t", "orders"
        )
        assert " --replica-assignment 1,1,1 " in script
        shell(script)
    (topic,) = image(second).topics
    assert [each.replicas for each in topic.partitions] == [(1,)] * 3


@pytest.mark.parametrize("version", KRAFT)
def test_a_broker_does_with_each_directory_what_was_said(version: str, tmp_path: Path) -> None:
    broker = Broker(version, tmp_path / "kafka")
    broker.settings = SECURE
    broker.format()
    names = ("serves", "nameless", "foreign", "wrong", "owner", "waiting", "aside", "coming")
    with broker.running(), Admin(broker.address) as admin:
        for name in names:
            admin.create(name, 1, {})
            admin.leader_epochs(name)
    log_dir, assigned = broker.log_dir, {topic.name: str(topic.topic_id) for topic in image(broker).topics}

    def renamed(topic: str, topic_id: str | None) -> None:
        path = log_dir / f"{topic}-0" / "partition.metadata"
        path.unlink()
        if topic_id is not None:
            path.write_text(f"version: 0\ntopic_id: {topic_id}")

    renamed("nameless", None)
    renamed("foreign", OTHER)
    (log_dir / "coming-0").rename(log_dir / f"coming-0.{UUID}-future")
    shutil.copytree(log_dir / "owner-0", log_dir / "unasked-0")
    shutil.copytree(log_dir / "owner-0", log_dir / "owner-9")
    renamed("wrong", assigned["owner"])
    (log_dir / "waiting-0").rename(log_dir / f"waiting-0.{UUID}-delete")
    (log_dir / "aside-0").rename(log_dir / f"aside-0.{UUID}-stray")
    assert broker.metadata_dir is not None
    said = {Path(row.path).name: row.outcome for row in identity(log_dir, broker.metadata_dir)}
    assert said["logs"] == "serves"
    expected = {
        "serves-0": "serves",
        "owner-0": "serves",
        "nameless-0": "strays",
        "foreign-0": "strays",
        "owner-9": "strays",
        "unasked-0": "ignores",
        "wrong-0": "fails",
        f"waiting-0.{UUID}-delete": "deletes",
        f"aside-0.{UUID}-stray": "ignores",
        f"coming-0.{UUID}-future": "moves",
    }
    assert {name: said[name] for name in expected} == expected
    with broker.running():
        end = time.monotonic() + WAITING_SECONDS
        while (log_dir / f"waiting-0.{UUID}-delete").exists():
            assert time.monotonic() < end
            time.sleep(0.1)
    strays = {path.name.rpartition(".")[0] for path in log_dir.glob("*-stray")}
    assert strays == {"nameless-0", "foreign-0", "owner-9", "aside-0"}
    assert (log_dir / f"aside-0.{UUID}-stray").exists()
    assert (log_dir / "coming-0").is_dir()
    assert not (log_dir / f"coming-0.{UUID}-future").exists()
    assert {name for name in ("serves-0", "owner-0", "unasked-0") if (log_dir / name).is_dir()} == {"serves-0", "owner-0", "unasked-0"}
    assert f"topic_id: {assigned['owner']}" in (log_dir / "unasked-0" / "partition.metadata").read_text()
    output = broker.output().read_text(errors="replace")
    assert "wrong-0" in output
    assert "InconsistentTopicIdException" in output


@pytest.mark.parametrize("version", KRAFT)
def test_a_new_cluster_is_as_one_with_zookeeper_was(version: str, tmp_path: Path) -> None:
    """Of every topic the new broker says what the old one said of its settings, and where they come from."""
    old = DATA / "kafka-3.9.2-zookeeper"
    said: dict[str, dict[str, list[str]]] = json.loads((old / "settings.json").read_text(encoding="utf-8"))
    broker = Broker(version, tmp_path / "kafka")
    broker.format()
    (tmp_path / "programs").mkdir()
    with broker.running():
        shell_of(version, tmp_path / "programs")(metadata("--as-commands", old / "zookeeper", "--bootstrap-server", broker.address))
        with Admin(broker.address) as admin:
            numbers = {topic: len(admin.leader_epochs(topic)) for topic in said}
            held = admin.settings(list(said))
    assert numbers == Counter(path.name.rpartition("-")[0] for path in (old / "log-dir").glob("*-[0-9]"))
    dynamic = {
        topic: {name: tuple(found) for name, found in settings.items() if found[1].startswith("DYNAMIC")}
        for topic, settings in said.items()
    }
    assert dynamic == {
        topic: {
            name: found
            for name, found in settings.items()
            # A controller of Kafka 4 sets this one itself, to what it is without it.
            if found[1].startswith("DYNAMIC") and (name, *found) != ("min.insync.replicas", "1", "DYNAMIC_DEFAULT_BROKER_CONFIG")
        }
        for topic, settings in held.items()
    }
    assert {topic.name for topic in image(broker).topics} == said.keys()


def replaced(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


def replaced_in(*log_dirs: Path) -> None:
    for place in log_dirs:
        replaced(place / META, "version=1", "version=2")


def both(one: Path, other: Path) -> None:
    """Give each log dir what the other one has of the topic."""
    for path in (*one.glob("t-*"), *other.glob("t-*")):
        for place in (one, other):
            if not (place / path.name).exists():
                shutil.copytree(path, place / path.name)


def emptied(*log_dirs: Path) -> None:
    for place in log_dirs:
        for path in place.glob("t-*/partition.metadata"):
            path.write_bytes(b"")


STOPS: dict[str, Callable[[Path, Path, Path], object]] = {
    "a folder": lambda one, _two, _metadata: (one / "lost+found").mkdir(),
    "no meta.properties": lambda one, _two, _metadata: (one / META).unlink(),
    "another cluster": lambda one, _two, _metadata: replaced(one / META, "cluster.id=", "cluster.id=x"),
    "another version everywhere": lambda one, two, _metadata: replaced_in(one, two),
    "another version of the metadata's": lambda _one, _two, metadata: replaced(metadata / META, "version=1", "version=2"),
    "the same partition twice": lambda one, two, _metadata: both(one, two),
    "a copied log dir": lambda one, two, _metadata: shutil.copyfile(one / META, two / META),
    "a malformed partition.metadata": lambda one, two, _metadata: emptied(one, two),
}


@pytest.mark.parametrize("what", list(STOPS))
def test_what_stops_a_broker_was_said(tmp_path: Path, shell: Shell, what: str) -> None:
    broker = Broker(VERSION, tmp_path / "kafka")
    second = tmp_path / "second"
    broker.settings = {"log.dirs": f"{broker.log_dir},{second}"}
    broker.format()
    with broker.running():
        shell(f"kafka-topics.sh --bootstrap-server {broker.address} --create --topic t --partitions 2 --replication-factor 1\n")
    assert broker.metadata_dir is not None
    assert {row.outcome for row in identity(broker.metadata_dir, broker.log_dir, second)} == {"serves"}
    STOPS[what](broker.log_dir, second, broker.metadata_dir)
    assert {row.outcome for row in identity(broker.metadata_dir, broker.log_dir, second)} & {"stops", "fails"}
    with pytest.raises(RuntimeError, match="the broker ended"):
        broker.start()


def test_a_log_dir_goes_offline_as_was_said(tmp_path: Path, shell: Shell) -> None:
    """A damaged `meta.properties` beside a sound one."""
    broker = Broker(VERSION, tmp_path / "kafka")
    second = tmp_path / "second"
    broker.settings = {"log.dirs": f"{broker.log_dir},{second}"}
    broker.format()
    with broker.running():
        shell(f"kafka-topics.sh --bootstrap-server {broker.address} --create --topic t --partitions 2 --replication-factor 1\n")
    meta = second / "meta.properties"
    meta.write_text(meta.read_text().replace("version=1", "version=2"))
    assert broker.metadata_dir is not None
    rows = identity(broker.metadata_dir, broker.log_dir, second)
    (found,) = [row for row in rows if row.path == str(second)]
    assert (found.kind, found.outcome) == ("log-dir", "fails")
    with broker.running():
        output = broker.output().read_text(errors="replace")
    assert re.search(rf"(?i)(offline|unable to read|error).*{re.escape(str(second))}", output), output[-3000:]


def test_a_broker_with_zookeeper_does_with_each_directory_what_was_said(tmp_path: Path) -> None:
    broker = broker_of("3.9.2-zookeeper", tmp_path / "kafka")
    broker.format()
    with broker.running(), Admin(broker.address) as admin:
        for topic in ("serves", "nameless", "foreign"):
            admin.create(topic, 1, {})
            admin.leader_epochs(topic)
    log_dir, keeper = broker.log_dir, broker.zookeeper_dir
    assert keeper is not None
    foreign = (log_dir / "foreign-0" / "partition.metadata").read_text()
    (log_dir / "nameless-0" / "partition.metadata").unlink()
    (log_dir / "foreign-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER}")
    shutil.copytree(log_dir / "serves-0", log_dir / "unasked-0")
    shutil.copytree(log_dir / "serves-0", log_dir / "serves-7")
    said = {Path(row.path).name: row.outcome for row in identity(log_dir, keeper)}
    assert said == {
        "logs": "serves",
        "serves-0": "serves",
        "nameless-0": "serves",
        "foreign-0": "fails",
        "unasked-0": "ignores",
        "serves-7": "ignores",
    }
    with broker.running(), Admin(broker.address) as admin:
        for topic in ("serves", "nameless"):
            admin.leader_epochs(topic)
        end = time.monotonic() + WAITING_SECONDS
        wrong = "does not match the topic ID for partition foreign-0"
        while wrong not in (output := broker.output().read_text(errors="replace")):
            assert time.monotonic() < end, output[-3000:]
            time.sleep(0.1)
    assert {path.name for path in log_dir.iterdir() if path.is_dir()} == said.keys() - {"logs"}
    assert OTHER in (log_dir / "foreign-0" / "partition.metadata").read_text() != foreign
    assert (log_dir / "nameless-0" / "partition.metadata").exists()
