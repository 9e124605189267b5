"""One real Kafka broker on free loopback ports, started and stopped as often as a test asks, and Kafka's own programs beside it."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Self

ROOT = Path(__file__).resolve().parents[2]
BROKERS = ROOT / "build" / "brokers"
"""One folder of jars a version, and what `make` puts there is never made by a test."""

NODE_ID = 1
CLUSTER_ID = "b2Zmc2V0bG9nLXRlc3RzLWM"
"""Any id will do that StorageTool takes: 16 bytes in base64."""

STARTING_SECONDS = 300
STOPPING_SECONDS = 300
PROGRAM_SECONDS = 600
STARTED = re.compile(r"Kafka Server started|KafkaServer id=\d+\] started")
ZOOKEEPER_STARTED = "binding to port"
CLEAN_MARK = ".kafka_cleanshutdown"

# A broker of a few partitions: the small heap keeps two of them apart from the machine's other work, and code that runs for
# seconds gains nothing from the second compiler.
JVM: tuple[str, ...] = ("-Xms96m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
CLASS_DATA = "classes.jsa"
"""What `broker_classes.py` writes beside a version's jars: their classes as a JVM has them in its memory."""
# Quiet, but for what the storage layer says when it loads, recovers, rolls and deletes.
QUIET = {
    "defaultLogLevel": "warn",
    "showDateTime": "true",
    "log.kafka.log": "info",
    "log.org.apache.kafka.storage.internals.log": "info",
    "log.kafka.server.KafkaRaftServer": "info",
    "log.kafka.server.KafkaServer": "info",
    "log.org.apache.zookeeper.server.NIOServerCnxnFactory": "info",
}


def jars(version: str) -> Path:
    """The folder of a version's jars, or nothing at all: a broker that is not there is no reason to pass."""
    folder = BROKERS / version
    if not (folder / ".complete").exists():
        raise FileNotFoundError(f"{folder.relative_to(ROOT)} is not complete: run `make brokers`")
    return folder


def java(version: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
    """The command line of one of Kafka's programs."""
    program = shutil.which("java")
    assert program is not None, "no java"
    logger = [f"-Dorg.slf4j.simpleLogger.{name}={value}" for name, value in QUIET.items()]
    return [program, *JVM, *class_data(version), *options, *logger, "-cp", f"{jars(version)}{os.sep}*", *arguments]


def class_data(version: str) -> list[str]:
    """Options that spare a JVM the loading of a version's classes; it says nothing where it cannot use them, and loads."""
    archive = BROKERS / version / CLASS_DATA
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"] if archive.exists() else []


def run(command: Sequence[str], *, seconds: int = PROGRAM_SECONDS) -> tuple[str, str]:
    """Run a program to its end: what it printed, what it complained about."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, f"{command[-6:]}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout, done.stderr


def two_free_ports() -> tuple[int, int]:
    """Two ports that nobody listens on now, for this process alone.

    Programs that start beside each other listen seconds after they were told where. So the system gives none of these ports to anybody
    else meanwhile, which it does with those that it chooses itself.
    """
    return _free_port(), _free_port()


PORTS = range(10_000, 32_000)
"""Below those that the system gives to clients and to who asks for port 0."""
_reserved: list[socket.socket] = []


def _free_port() -> int:
    while True:
        port = random.SystemRandom().choice(PORTS)
        mark = socket.socket(socket.AF_UNIX)
        try:
            if sys.platform == "linux":
                # A name that one process of the machine can have, until it ends.
                mark.bind(f"\0offsetlog-tests-port-{port}")
            with socket.socket() as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(("127.0.0.1", port))
        except OSError:
            mark.close()
            continue
        _reserved.append(mark)
        return port


class Broker:
    """A KRaft broker and controller in one process, with one log dir beside one for its own metadata."""

    epochs_a_run = 2
    """By how much the leader epoch of a partition grows from one run to the next: it has no leader, then one again."""

    def __init__(self, version: str, directory: Path) -> None:
        self.version = version
        self.directory = directory
        self.log_dir = directory / "logs"
        self.settings: Mapping[str, object] = {}
        """What `server.properties` says besides, from the next start on; `None` takes away what all brokers here are given."""
        self.levels: Mapping[str, str] = {}
        """Loggers that say more, or less, than those of other brokers."""
        self.environment: Mapping[str, str] = {}
        """Variables that its process has besides, from the next start on."""
        self.format_options: Sequence[str] = ()
        """What the format tool is given besides."""
        self.address = ""
        self.runs = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._port = self._second_port = 0

    def format(self) -> None:
        """Write `meta.properties` and the first metadata, as the format tool does."""
        self.directory.mkdir(parents=True)
        self._port, self._second_port = two_free_ports()
        properties = self._properties()
        arguments = ("format", "-t", CLUSTER_ID, "-c", str(properties), *self.format_options)
        _, errors = run(java(self.version, "kafka.tools.StorageTool", *arguments))
        assert (self.log_dir / "meta.properties").exists(), errors

    def _of_its_kind(self) -> dict[str, object]:
        return {
            "process.roles": "broker,controller",
            "node.id": NODE_ID,
            "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{self._second_port}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{self._second_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "metadata.log.dir": self.directory / "metadata",
            "log.message.timestamp.after.max.ms": 2**63 - 1,
            "producer.id.expiration.ms": 2**31 - 1,
        }

    def _properties(self) -> Path:
        self.address = f"127.0.0.1:{self._port}"
        settings = {
            **self._of_its_kind(),
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": self.log_dir,
            "num.network.threads": 1,
            "num.io.threads": 2,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "auto.create.topics.enable": "false",
            # What a test wrote stays as long as the test wants it, however old its timestamps are.
            "log.retention.ms": -1,
            # The cleaner looks often whether a compacted topic has something for it.
            "log.cleaner.backoff.ms": 100,
            **self.settings,
        }
        lines = [f"{name}={value}\n" for name, value in settings.items() if value is not None]
        self.properties.write_text("".join(lines), encoding="utf-8")
        return self.properties

    @property
    def properties(self) -> Path:
        """The file that it was started with last."""
        return self.directory / "server.properties"

    @property
    def controller(self) -> str:
        """Address of the controller."""
        return f"127.0.0.1:{self._second_port}"

    @property
    def metadata_dir(self) -> Path | None:
        """Where the cluster's metadata log is, of a broker that has one."""
        return self.directory / "metadata"

    @property
    def zookeeper_dir(self) -> Path | None:
        """Where ZooKeeper's data is, of a broker that has one."""
        return None

    def output(self, run_number: int | None = None) -> Path:
        """What a run of the broker said."""
        return self.directory / f"broker-{self.runs if run_number is None else run_number}.log"

    def start(self) -> None:
        """Start, and wait until it serves."""
        assert self._process is None, "it runs"
        self.runs += 1
        self._port, self._second_port = two_free_ports()
        try:
            self._start_what_it_needs()
            properties = self._properties()
            self._output = self.output().open("wb")
            levels = [f"-Dorg.slf4j.simpleLogger.log.{name}={level}" for name, level in self.levels.items()]
            command = java(self.version, "kafka.Kafka", str(properties), options=levels)
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output, env={**os.environ, **self.environment}
            )
            self._wait_until_started()
        except BaseException:
            self.kill()
            raise

    def _start_what_it_needs(self) -> None:
        """Nothing: the controller runs in the broker's process."""

    def _wait_until_started(self) -> None:
        assert self._process is not None
        end = time.monotonic() + STARTING_SECONDS
        while time.monotonic() < end:
            code = self._process.poll()
            said = self.output().read_text(encoding="utf-8", errors="replace")
            if code is not None:
                raise RuntimeError(f"the broker ended with {code}:\n{said[-4000:]}")
            if STARTED.search(said):
                return
            time.sleep(0.1)
        raise RuntimeError(f"the broker did not start within {STARTING_SECONDS} s; see {self.output()}")

    def stop(self) -> None:
        """Stop as an operator does: the log dir is closed and marked clean."""
        assert self._process is not None, "it does not run"
        self._process.terminate()
        try:
            self._process.wait(STOPPING_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self._ended()
        assert (self.log_dir / CLEAN_MARK).exists(), f"no clean shutdown; see {self.output()}"

    def kill(self) -> None:
        """End the process at once."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._ended()

    def _ended(self) -> None:
        self._process = None
        if self._output is not None:
            self._output.close()
            self._output = None

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        """A run from start to clean stop; a test that fails in between does not leave it behind."""
        self.start()
        try:
            yield self
        except BaseException:
            self.kill()
            raise
        self.stop()

    def said_of(self, partition: str, run_number: int | None = None) -> list[str]:
        """The lines in which a run of the broker named a partition directory."""
        name = re.compile(rf"(?<![\w.-]){re.escape(partition)}(?![\w-])")
        return [
            line for line in self.output(run_number).read_text(encoding="utf-8", errors="replace").splitlines() if name.search(line)
        ]


KEEPER = ("-Dzookeeper.preAllocSize=256", "-Dzookeeper.snapCount=60")
"""Snapshots while transactions go on, and logs that are quick to copy: KiB, and transactions."""


class ZooKeeperBroker(Broker):
    """A broker as all were before KRaft, with a ZooKeeper of its own."""

    epochs_a_run = 0

    def __init__(self, version: str, directory: Path) -> None:
        super().__init__(version, directory)
        self._keeper: subprocess.Popen[bytes] | None = None

    def format(self) -> None:
        """The broker makes its own log dir."""
        self.directory.mkdir(parents=True)

    @property
    def metadata_dir(self) -> Path | None:
        """ZooKeeper has it all."""
        return None

    @property
    def zookeeper_dir(self) -> Path | None:
        """Its `dataDir`."""
        return self.directory / "zookeeper"

    def _of_its_kind(self) -> dict[str, object]:
        return {
            "broker.id": NODE_ID,
            "zookeeper.connect": f"127.0.0.1:{self._second_port}",
            "listeners": f"PLAINTEXT://{self.address}",
        }

    def _start_what_it_needs(self) -> None:
        said = self.directory / f"zookeeper-{self.runs}.log"
        settings = self.directory / "zookeeper.properties"
        settings.write_text(
            f"dataDir={self.zookeeper_dir}\nclientPort={self._second_port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
            # Short sessions for brokers that ask for them; others keep their own.
            "tickTime=1000\nmaxSessionTimeout=60000\n",
            encoding="utf-8",
        )
        program = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        with said.open("wb") as output:
            self._keeper = subprocess.Popen(
                java(self.version, program, str(settings), options=KEEPER), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        end = time.monotonic() + STARTING_SECONDS
        while ZOOKEEPER_STARTED not in (text := said.read_text(encoding="utf-8", errors="replace")):
            if self._keeper.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"ZooKeeper did not start:\n{text[-4000:]}")
            time.sleep(0.1)
        if self.log_dir.exists() and not (self.log_dir / CLEAN_MARK).exists():
            # A killed broker's registration lives as long as its session, and keeps its next life out.
            time.sleep(int(str(self.settings.get("zookeeper.session.timeout.ms", 18_000))) / 1000 + 1.5)

    def _ended(self) -> None:
        super()._ended()
        self._end_keeper()

    def kill(self) -> None:
        """End both."""
        super().kill()
        self._end_keeper()

    def _end_keeper(self) -> None:
        # It has nothing to lose: what matters is in its log before it answers.
        if self._keeper is not None:
            self._keeper.kill()
            self._keeper.wait()
            self._keeper = None


WITH_ZOOKEEPER = "-zookeeper"
"""Behind a version that does without as well."""


def broker_of(version: str, directory: Path) -> Broker:
    """A broker of the kind that this version is."""
    number = version.removesuffix(WITH_ZOOKEEPER)
    return ZooKeeperBroker(number, directory) if number < "3" or number != version else Broker(number, directory)


DUMP = "org.apache.kafka.tools.DumpLogSegments"
"""Where the dump tool is since 4.3."""


def dump_files(version: str, files: Sequence[Path]) -> dict[Path, tuple[list[str], list[str]]]:
    """What kafka-dump-log prints and complains about, file by file; all in one run of the tool, deep and with the index checks.

    Complaints come at the end and name absolute paths; they are sorted to the file that they name.
    """
    resolved = {str(path.resolve()): path for path in files}
    printed, errors = run(java(version, DUMP, "--deep-iteration", "--files", ",".join(resolved)))
    found: dict[Path, tuple[list[str], list[str]]] = {path: ([], []) for path in files}
    lines: list[str] | None = None
    for line in printed.splitlines():
        if line.startswith("Dumping "):
            lines = found[resolved[line.removeprefix("Dumping ")]][0]
        elif lines is not None:
            lines.append(line)
    complaints: list[str] | None = None
    for line in errors.splitlines():
        named = next((path for text, path in resolved.items() if text in urllib.parse.unquote(line)), None)
        if named is not None:
            complaints = found[named][1]
        assert complaints is not None, errors
        complaints.append(line)
    return found


def sane_indexes(version: str, files: Sequence[Path]) -> list[Path]:
    """The index files that pass the dump tool's sanity check."""
    resolved = {str(path.resolve()): path for path in files}
    printed, _ = run(java(version, DUMP, "--index-sanity-check", "--files", ",".join(resolved)))
    passed = " passed sanity check."
    return [resolved[line.removesuffix(passed)] for line in printed.splitlines() if line.endswith(passed)]


def adopt(made: Path, log_dir: Path, topic_id_of: Path) -> Path:
    """Put a directory made elsewhere where a stopped broker has its own of that name, with the broker's topic id."""
    place = log_dir / made.name
    metadata = topic_id_of / "partition.metadata"
    # Brokers of 2.8 do not always write one, and take a directory without it for theirs.
    topic_id = metadata.read_bytes() if metadata.exists() else None
    shutil.rmtree(place)
    shutil.copytree(made, place)
    metadata = place / "partition.metadata"
    metadata.unlink(missing_ok=True)
    if topic_id is not None:
        metadata.write_bytes(topic_id)
    return place
