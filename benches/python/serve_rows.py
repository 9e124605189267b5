"""Rows 43 to 48: `serve` and `mirror` beside a Kafka broker that answers from the same log dir, the same client on both."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))

from bare_sender import REQUEST
from broker import Broker
from data import BUILD, MAVEN_HINT, ROOT, Kafka, Sizes, need, run, say
from fetching import RECEIVE_BYTES, Wire
from figures import Row, gigabytes, milliseconds
from processes import BenchError

ROWS = frozenset(range(43, 49))
FETCH_BYTES = 8 << 20
TOPIC = "bench-none-1000"
PARTITIONS = 4
MANY = 1_000
CONNECTIONS = 1_000
STARTING_SECONDS = 60
LISTENING = re.compile(r"127\.0\.0\.1:(\d+)")
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def command() -> Path:
    """The command of this environment's wheel."""
    found = Path(sys.executable).with_name("offsetlog")
    if not found.exists():
        raise BenchError(f"no offsetlog beside {os.path.relpath(sys.executable)}: `make .venv/installed` installs it")
    return found


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident(pid: int) -> int:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


@dataclass
class Serving:
    """A running server."""

    address: str
    pid: int
    seconds: float
    """From its start to the first answer to Metadata."""


def first_answer(address: str, started: float, process: subprocess.Popen[bytes]) -> float:
    """Asks for the metadata until there is an answer with partitions."""
    while time.monotonic() - started < STARTING_SECONDS:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError, RuntimeError), Wire(address) as wire:
            if wire.partitions() > 0:
                return time.monotonic() - started
        time.sleep(0.001)
    raise BenchError(f"no answer from {address}")


@contextlib.contextmanager
def served(log_dir: Path, port: int, *options: str | Path) -> Iterator[Serving]:
    """`offsetlog serve` of a log dir."""
    address = f"127.0.0.1:{port}"
    words = [str(command()), "serve", str(log_dir), "--listen", address, *map(str, options)]
    started = time.monotonic()
    with (BUILD / "serve.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        seconds = first_answer(address, started, process) if "--tls-cert" not in options else wait_for_port(port, started)
        yield Serving(address, process.pid, seconds)
    finally:
        process.terminate()
        process.wait(STARTING_SECONDS)


def wait_for_port(port: int, started: float) -> float:
    """Until somebody listens."""
    while time.monotonic() - started < STARTING_SECONDS:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return time.monotonic() - started
        time.sleep(0.01)
    raise BenchError(f"nobody listens on port {port}")


@dataclass
class Costs:
    """What a side needed, round by round."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def read_all(address: str, authority: str | None = None) -> int:
    """Reads all partitions raw and throws the bytes away; their number."""
    total = 0
    with Wire(address, authority) as wire:
        for partition in range(PARTITIONS):
            for records in wire.records(TOPIC, partition, FETCH_BYTES):
                total += len(records)
    return total


@contextlib.contextmanager
def sent_bare(logs: Path) -> Iterator[tuple[Callable[[], int], int]]:
    """Reads the same files from a program that only sends them, as many bytes a request: the work, and the sender's process id."""
    files = [file for partition in range(PARTITIONS) for file in sorted((logs / f"{TOPIC}-{partition}").glob("*.log"))]
    words = [sys.executable, str(Path(__file__).with_name("bare_sender.py")), *map(str, files)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        port = int(process.stdout.readline())
        buffer = memoryview(bytearray(FETCH_BYTES))

        def read() -> int:
            total = 0
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
                for number, file in enumerate(files):
                    size = file.stat().st_size
                    for offset in range(0, size, FETCH_BYTES):
                        wanted = min(FETCH_BYTES, size - offset)
                        connection.sendall(REQUEST.pack(number, offset, wanted))
                        at = 0
                        while at < wanted:
                            count = connection.recv_into(buffer[at:wanted])
                            if count == 0:
                                raise BenchError("the bare sender ended")
                            at += count
                        total += wanted
            return total

        yield read, process.pid
        process.stdin.close()


def raw_fetches(peer: Costs, own: Costs, limit: Costs, count: int) -> Iterator[Row]:
    """Row 43: beside Kafka, and as a part of what a program reaches that only sends: 20 % more are the target, of time and of CPU."""
    show, kafka = gigabytes(0, count), "Kafka 4.3.0"
    fetch, cpu = "raw fetch, 8 MiB a request", "the same, CPU of the server for 1 GB"
    costs = [[cost / count * 1e9 for cost in side.cpu] for side in (peer, own, limit)]
    yield Row(43, fetch, kafka, peer.wall, own.wall, show, "times", 1.3, 2, limit.wall)
    yield Row(43, "the same, of sendfile alone", kafka, peer.wall, own.wall, show, "times", None, 0.8, limit.wall, of_limit=True)
    yield Row(43, cpu, kafka, costs[0], costs[1], milliseconds, "share", 0.5, limit=costs[2])
    yield Row(43, f"{cpu}, of sendfile alone", kafka, costs[0], costs[1], milliseconds, "share", None, 1.2, costs[2], of_limit=True)


def written(folder: Path, size: int) -> int:
    """Writes and syncs so many bytes, in as many files as there are partitions, and does nothing else; their number."""
    folder.mkdir()
    piece = bytes(FETCH_BYTES)
    for partition in range(PARTITIONS):
        with (folder / str(partition)).open("wb", buffering=0) as file:
            left = size // PARTITIONS
            while left > 0:
                left -= file.write(piece[: min(left, len(piece))])
            os.fdatasync(file.fileno())
    return size


class Serve:
    """Runs the rows."""

    def __init__(self, kafka: Kafka, sizes: Sizes, rounds: int) -> None:
        need("mvn", MAVEN_HINT)
        self._kafka, self._sizes, self._rounds = kafka, sizes, rounds
        self._folder = BUILD / f"serve-{sizes.spark}"
        self._folder.mkdir(parents=True, exist_ok=True)

    def rows(self, wanted: set[int]) -> Iterator[Row]:
        """Measures the wanted rows."""
        if wanted & {43, 45, 48}:
            yield from self._beside_a_broker(wanted)
        if 44 in wanted:
            yield from self._encrypted()
        if wanted & {46, 47}:
            yield from self._many(wanted)

    def _free(self) -> int:
        from broker import free_port  # noqa: PLC0415 - beside the class that is imported above

        return free_port()

    def _broker(self, name: str, settings: str = "") -> Broker:
        return Broker(self._folder / name, self._kafka.jars, settings)

    def _filled(self, broker: Broker) -> None:
        marker = broker.logs.parent / f"{TOPIC}.made"
        if not marker.exists():
            count = (self._sizes.spark << 20) // 1000
            say(f"producing {count} records to {TOPIC}")
            run(self._kafka.command("produce", broker.address, TOPIC, "none", "1000", str(count)))
            marker.touch()

    def _in_turn(
        self, sides: tuple[tuple[Callable[[], int], int], ...], before: Callable[[], None] = lambda: None
    ) -> tuple[list[Costs], int]:
        """Rounds of each side by turns, after one that does not count; the bytes that each must have read are the same.

        What `before` does before each costs nobody anything.
        """
        costs = [Costs() for _ in sides]
        expected = 0
        for turn in range(self._rounds + 1):
            for cost, (work, pid) in zip(costs, sides, strict=True):
                before()
                cpu, wall = cpu_seconds(pid), time.monotonic()
                count = work()
                wall, cpu = time.monotonic() - wall, cpu_seconds(pid) - cpu
                expected = expected or count
                if abs(count - expected) > expected / 5:
                    raise BenchError(f"{count} bytes were read where the other side gave {expected}")
                if turn:
                    cost.wall.append(wall)
                    cost.cpu.append(cpu)
        return costs, expected

    def _beside_a_broker(self, wanted: set[int]) -> Iterator[Row]:
        with self._broker("plain") as broker:
            self._filled(broker)
            with served(broker.logs, self._free()) as ours:
                if 43 in wanted:
                    say("row 43: raw fetches")
                    with sent_bare(broker.logs) as bare:
                        sides = ((lambda: read_all(broker.address), broker.pid), (lambda: read_all(ours.address), ours.pid), bare)
                        (peer, own, limit), count = self._in_turn(sides)
                    yield from raw_fetches(peer, own, limit, count)
                if 45 in wanted:
                    yield from self._consumers(broker, ours)
                if 48 in wanted:
                    yield from self._mirrored(broker)

    def _consumers(self, broker: Broker, ours: Serving) -> Iterator[Row]:
        """The same consumers, whole processes, on both."""
        count = (self._sizes.spark << 20) // 1000
        java = ["java", "-Xmx1g", "-cp", f"{self._kafka.jars}/*", "org.apache.kafka.tools.ConsumerPerformance"]
        java += ["--topic", TOPIC, "--num-records", str(count), "--timeout", "60000"]
        consumers = {"Java consumer 4.3.0": (java, "--bootstrap-server")}
        clients = ROOT / ".venv-clients" / "bin" / "python"
        librdkafka = [str(clients), str(Path(__file__).with_name("librdkafka_reads.py")), TOPIC, str(count)]
        if clients.exists():
            consumers["librdkafka"] = (librdkafka, "--bootstrap-server")
        else:
            say("row 45: no figure for librdkafka without confluent-kafka: `make .venv-clients/ready` installs it")
        for name, (words, option) in consumers.items():
            say(f"row 45: {name}")

            def work(address: str, words: list[str] = words, option: str = option) -> int:
                run([*words, option, address])
                return count

            sides = ((lambda: work(broker.address), broker.pid), (lambda: work(ours.address), ours.pid))
            (peer, own), _ = self._in_turn(sides)
            yield Row(45, f"{name} reads {count} records", "Kafka 4.3.0", peer.wall, own.wall, gigabytes(0, count * 1000), "times", 1)

    def _mirrored(self, broker: Broker) -> Iterator[Row]:
        say("row 48: a mirror of it")
        into = self._folder / "mirrored"

        def remove() -> None:
            # And lets the disk finish with it.
            shutil.rmtree(into, ignore_errors=True)
            os.sync()

        def mirror() -> int:
            words = [str(command()), "mirror", "--bootstrap", broker.address, "--into", str(into), "-t", TOPIC, "--once"]
            run(words)
            return sum(file.stat().st_size for file in into.rglob("*.log") if TOPIC in str(file))

        size = read_all(broker.address)
        sides = ((lambda: read_all(broker.address), broker.pid), (mirror, broker.pid), (lambda: written(into, size), broker.pid))
        (peer, own, limit), count = self._in_turn(sides, remove)
        remove()
        work = "mirror, its process and its syncs included"
        yield Row(48, work, "a raw fetch that discards", peer.wall, own.wall, gigabytes(0, count), "times", 0.8, 0.95, limit.wall)

    def _certificate(self) -> tuple[Path, Path]:
        """A key, and a certificate for loopback that is its own authority."""
        key, certificate = self._folder / "key.pem", self._folder / "certificate.pem"
        words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=127.0.0.1"]
        words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
        need("openssl", "row 44 needs openssl for a certificate")
        run(words)
        return key, certificate

    def _encrypted(self) -> Iterator[Row]:
        say("row 44: the same over TLS")
        key, certificate = self._certificate()
        chain = {"key": key, "certificate": certificate}
        pem = {name: path.read_text().strip().replace("\n", "\\n") for name, path in chain.items()}
        settings = f"ssl.keystore.type=PEM\nssl.keystore.key={pem['key']}\nssl.keystore.certificate.chain={pem['certificate']}\n"
        with self._broker("plain") as broker:
            self._filled(broker)
        port = self._free()
        with Broker(self._folder / "plain", self._kafka.jars, settings, tls_port=port) as broker:
            tls = ("--tls-cert", certificate, "--tls-key", key)
            with served(broker.logs, self._free(), *tls) as ours:
                authority = str(certificate)
                address = f"127.0.0.1:{port}"
                sides = ((lambda: read_all(address, authority), broker.pid), (lambda: read_all(ours.address, authority), ours.pid))
                (peer, own), count = self._in_turn(sides)
        yield Row(44, "raw fetch over TLS", "Kafka 4.3.0", peer.wall, own.wall, gigabytes(0, count), "times", 1, 1.3)

    def _many(self, wanted: set[int]) -> Iterator[Row]:
        """Start and memory with 1,000 partitions."""
        starts: tuple[list[float], list[float]] = ([], [])
        memory: tuple[list[float], list[float]] = ([], [])
        home = self._broker("many")
        with home as broker:
            marker = broker.logs.parent / "many.made"
            if not marker.exists():
                words = ["--create", "--topic", "many", "--partitions", str(MANY), "--replication-factor", "1"]
                java = ["java", "-cp", f"{self._kafka.jars}/*", "org.apache.kafka.tools.TopicCommand"]
                run([*java, "--bootstrap-server", broker.address, *words])
                marker.touch()
        for _ in range(self._rounds):
            say("rows 46, 47: starts")
            started = time.monotonic()
            with self._broker("many") as broker:
                assert broker.process is not None
                starts[0].append(first_answer(broker.address, started, broker.process))
                memory[0].append(float(self._held(broker.address, broker.pid)))
            with served(home.logs, self._free()) as ours:
                starts[1].append(ours.seconds)
                memory[1].append(float(self._held(ours.address, ours.pid)))
        if 46 in wanted:
            yield Row(46, f"start to first Metadata, {MANY} partitions", "Kafka 4.3.0", *starts, milliseconds, "share", 0.05, 0.02)
        if 47 in wanted:
            work = f"memory, {CONNECTIONS} connections, {MANY} partitions"
            yield Row(47, work, "Kafka 4.3.0", *memory, lambda held: f"{held / 1e6:.0f} MB", "share", 0.2, 0.1)

    def _held(self, address: str, pid: int) -> int:
        """Resident bytes while clients hold connections that have asked for metadata."""
        with contextlib.ExitStack() as held:
            for _ in range(CONNECTIONS):
                held.enter_context(Wire(address)).partitions()
            return resident(pid)
