"""Makes ``tests/data/zookeeper``: data directories of ZooKeeper servers of each version, and of real brokers' ones, killed, beside what a client read.

Run as ``python tests/broker/zookeeper_data.py JARS INTO``: JARS has a folder of jars for each version of ZooKeeper (see the README there).
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from broker import QUIET, ZOOKEEPER_STARTED, jars, java, run, two_free_ports

GOLDEN = Path(__file__).with_name("java") / "zookeeper" / "Golden.java"
VERSIONS = ("3.4.14", "3.5.10", "3.6.4", "3.7.2", "3.8.4", "3.9.3")
CLIENT = "3.8.4"
"""Older clients do not find a server with a current Java."""
REAL = {"2.8.2": "kafka.admin.TopicCommand", "3.9.2": "org.apache.kafka.tools.TopicCommand"}
OPTIONS = ("-Dzookeeper.preAllocSize=4", "-Dzookeeper.admin.enableServer=false")
WAITING_SECONDS = 300


def golden(folder: Path, *arguments: object) -> list[str]:
    """The command line of the program with the jars of a folder."""
    program = shutil.which("java")
    assert program is not None
    logger = [f"-Dorg.slf4j.simpleLogger.{name}={value}" for name, value in QUIET.items()]
    return [program, *OPTIONS, *logger, "-cp", f"{folder}/*", str(GOLDEN), *map(str, arguments)]


def keep(data: Path, told: Path, into: Path) -> None:
    """Copy what matters, without the zeros at the end of a log."""
    shutil.rmtree(into, ignore_errors=True)
    target = into / "version-2"
    target.mkdir(parents=True)
    assert any(path.name != "snapshot.0" for path in data.glob("version-2/snapshot.*")), "no snapshot"
    for path in (data / "version-2").iterdir():
        contents = path.read_bytes()
        (target / path.name).write_bytes(contents.rstrip(b"\0") if path.name.startswith("log.") else contents)
    shutil.copyfile(told, into / "nodes.json")


@contextlib.contextmanager
def killed_at_the_end(*command: str, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    with output.open("wb") as said, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said) as process:
        try:
            yield process
        finally:
            process.kill()


def waited(output: Path, text: str) -> str:
    end = time.monotonic() + WAITING_SECONDS
    while text not in (said := output.read_text(encoding="utf-8", errors="replace")):
        assert time.monotonic() < end, said[-3000:]
        time.sleep(0.1)
    return said


def embedded(version: str, folder: Path, work: Path, into: Path) -> None:
    """A server of a version, and what brokers of Kafka's write."""
    work.mkdir(parents=True)
    said, told = work / "server.log", work / "nodes.json"
    with killed_at_the_end(*golden(folder / version, "serve", work / "data"), output=said):
        port = waited(said, "\nserves at ").partition("\nserves at ")[2].split()[0]
        # Servers before 3.5 have no containers.
        containers = ["CONTAINER"] if version > "3.5" else []
        run(golden(folder / CLIENT, "fill", f"127.0.0.1:{port}", told, *containers))
    keep(work / "data", told, into / version)


def real(version: str, work: Path, into: Path) -> None:
    """Three real brokers, one of them killed, and their ZooKeeper."""
    work.mkdir(parents=True)
    port, _ = two_free_ports()
    settings = f"dataDir={work}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
    (work / "zookeeper.properties").write_text(settings)
    keeper = java(
        version,
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        str(work / "zookeeper.properties"),
        options=("-Dzookeeper.preAllocSize=4", "-Dzookeeper.snapCount=60"),
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(killed_at_the_end(*keeper, output=work / "zookeeper.log"))
        waited(work / "zookeeper.log", ZOOKEEPER_STARTED)
        brokers, addresses = [], []
        for number in range(3):
            own, _ = two_free_ports()
            addresses.append(f"127.0.0.1:{own}")
            lines = (
                f"broker.id={number}",
                f"zookeeper.connect=127.0.0.1:{port}",
                "zookeeper.session.timeout.ms=3000",
                f"listeners=PLAINTEXT://{addresses[-1]}",
                f"log.dirs={work}/logs-{number}",
                "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
                "super.users=User:ANONYMOUS",
                "offsets.topic.num.partitions=1",
                "password.encoder.secret=never-printed-7",
            )
            properties = work / f"broker-{number}.properties"
            properties.write_text("\n".join(lines))
            output = work / f"broker-{number}.log"
            started = killed_at_the_end(*java(version, "kafka.Kafka", str(properties)), output=output)
            brokers.append(stack.enter_context(started))
            waited(output, f"KafkaServer id={number}] started")
        server = ("--bootstrap-server", addresses[0])
        topic = ("--topic", "first", "--replica-assignment", "2:0,0:1,1:2", "--config", "retention.ms=86400000")
        run(java(version, REAL[version], *server, "--create", *topic))
        for entity in (
            ("users", "--entity-name", "alice", "SCRAM-SHA-256=[iterations=4096,password=never-printed-7],producer_byte_rate=1024"),
            ("users", "--entity-name", "a'b $x", "consumer_byte_rate=2048"),
            ("clients", "--entity-default", "request_percentage=50"),
            ("brokers", "--entity-default", "log.cleaner.threads=2"),
            ("brokers", "--entity-name", "1", "listener.name.external.ssl.key.password=never-printed-7"),
        ):
            kind, *name, configs = entity
            # Kafka 2.8 does not mix passwords and quotas.
            for config in configs.replace("],", "] ").split(" ") if "SCRAM" in configs else [configs]:
                run(
                    java(
                        version, "kafka.admin.ConfigCommand", *server, "--alter", "--entity-type", kind, *name, "--add-config", config
                    )
                )
        for entry in (
            ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "first"),
            ("--deny-principal", "User:eve", "--deny-host", "10.0.0.2", "--operation", "All", "--topic", "first"),
            ("--allow-principal", "User:bob", "--operation", "Describe", "--group", "team-", "--resource-pattern-type", "prefixed"),
            ("--allow-principal", "User:alice", "--operation", "ClusterAction", "--cluster"),
        ):
            run(java(version, "kafka.admin.AclCommand", *server, "--add", *entry))
        # Its partition gets another leader, and its node goes with its session.
        brokers[2].kill()
        time.sleep(10)
        run(golden(jars(version), "consumers", f"127.0.0.1:{port}", work / "nodes.json"))
    keep(work / "data", work / "nodes.json", into / f"kafka-{version}")


def main(folder: Path, into: Path) -> None:
    work = into.parent / "zookeeper-work"
    shutil.rmtree(work, ignore_errors=True)
    for version in VERSIONS:
        embedded(version, folder, work / version, into)
    for version in REAL:
        real(version, work / version, into)
    shutil.rmtree(work)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
