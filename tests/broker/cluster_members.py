"""Brokers that join the cluster of another one, and where its partitions are led."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kafka.errors import KafkaError

from broker import NODE_ID, Broker, ZooKeeperBroker
from kafka import KafkaAdminClient, TopicPartition

SYNC_SECONDS = 300


class MemberBroker(Broker):
    """A broker without a controller, in the cluster of another one."""

    def __init__(self, first: Broker, directory: Path, node_id: int) -> None:
        super().__init__(first.version, directory)
        self.node_id = node_id
        self.known_to = first
        """The broker that is asked whether this one has come."""
        self._first = first

    def _wait_until_started(self) -> None:
        """That one knows of it then."""
        super()._wait_until_started()
        wait_for_nodes(self.known_to, {self.node_id})

    def _of_its_kind(self) -> dict[str, object]:
        return {
            "process.roles": "broker",
            "node.id": self.node_id,
            "controller.quorum.voters": f"1@{self._first.controller}",
            "listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }


class LoneController(Broker):
    """A controller that is no broker."""

    def _of_its_kind(self) -> dict[str, object]:
        return {
            "process.roles": "controller",
            "node.id": NODE_ID,
            "controller.quorum.voters": f"{NODE_ID}@{self.controller}",
            "listeners": f"CONTROLLER://{self.controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "metadata.log.dir": self.directory / "metadata",
        }

    def _properties(self) -> Path:
        # Nobody may be sent to it.
        self.settings = {**self.settings, "advertised.listeners": None}
        return super()._properties()


class QuorumMember(Broker):
    """A broker that is one of several controllers, whose addresses stay the same."""

    def __init__(self, version: str, directory: Path, node_id: int, ports: Mapping[int, int], *, is_dynamic: bool) -> None:
        super().__init__(version, directory)
        self.node_id = node_id
        self._ports = ports
        self._is_dynamic = is_dynamic

    @property
    def controller(self) -> str:
        """Address of its controller."""
        return f"127.0.0.1:{self._ports[self.node_id]}"

    def _of_its_kind(self) -> dict[str, object]:
        addresses = {node_id: f"127.0.0.1:{port}" for node_id, port in self._ports.items()}
        quorum = (
            {"controller.quorum.bootstrap.servers": ",".join(addresses.values())}
            if self._is_dynamic
            else {"controller.quorum.voters": ",".join(f"{node_id}@{address}" for node_id, address in addresses.items())}
        )
        return {
            **super()._of_its_kind(),
            "node.id": self.node_id,
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{self.controller}",
            # Of a node that was killed others take over soon.
            "controller.quorum.election.timeout.ms": 1000,
            "controller.quorum.fetch.timeout.ms": 2000,
            "broker.session.timeout.ms": 6000,
            **quorum,
            **({"controller.quorum.voters": None} if self._is_dynamic else {}),
        }


def start_together(members: Iterable[QuorumMember]) -> None:
    """Start brokers none of which serves without the others, and wait until each knows of all."""
    members = list(members)
    with ThreadPoolExecutor(len(members)) as pool:
        list(pool.map(Broker.start, members))
    for member in members:
        wait_for_nodes(member, {each.node_id for each in members})


def wait_for_nodes(broker: Broker, nodes: set[int]) -> None:
    """Wait until a broker names these among those that are alive.

    A broker that has started says nothing of when the others hear of it, and a client that asks one before that does not find the
    broker that it is sent to. (With ZooKeeper it is sent to the controller, which is one for all.)
    """
    end = time.monotonic() + SYNC_SECONDS
    while True:
        alive = _alive(broker)
        if nodes <= alive:
            return
        assert time.monotonic() < end, (nodes, alive)
        time.sleep(0.1)


def _alive(broker: Broker) -> set[int]:
    """Whom it names; a broker that has just come may answer that it cannot say."""
    with contextlib.suppress(KafkaError), contextlib.closing(KafkaAdminClient(bootstrap_servers=broker.address)) as client:
        return {each["broker_id"] for each in client.describe_cluster()["brokers"] if not each.get("is_fenced")}
    return set()


class ZooKeeperMember(ZooKeeperBroker):
    """A broker with the ZooKeeper of another one, which runs."""

    def __init__(self, first: ZooKeeperBroker, directory: Path, node_id: int) -> None:
        super().__init__(first.version, directory)
        self.node_id = node_id
        self._first = first

    def _start_what_it_needs(self) -> None:
        """Nothing."""

    def _of_its_kind(self) -> dict[str, object]:
        return {
            "broker.id": self.node_id,
            "zookeeper.connect": self._first.controller,
            "listeners": f"PLAINTEXT://{self.address}",
        }


def wait_for_isr(broker: Broker, topics: Iterable[str], nodes: set[int], leader: int | None = None) -> dict[TopicPartition, int]:
    """Wait until all partitions have exactly these replicas in sync, led by one of them, or by this one; return their leaders."""
    names = list(topics)
    leaders = nodes if leader is None else {leader}
    client = KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        end = time.monotonic() + SYNC_SECONDS
        while True:
            partitions: dict[TopicPartition, dict[str, Any]] = {}
            # The client may ask a broker that has just gone.
            with contextlib.suppress(KafkaError):
                for topic in client.describe_topics(names):
                    partitions |= {TopicPartition(topic["name"], each["partition_index"]): each for each in topic["partitions"]}
            if partitions and all(set(each["isr_nodes"]) == nodes and each["leader_id"] in leaders for each in partitions.values()):
                return {at: each["leader_id"] for at, each in partitions.items()}
            assert time.monotonic() < end, partitions
            time.sleep(0.2)
    finally:
        client.close()
