"""One Kafka broker on free loopback ports, for as long as the benches need it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

STARTING_SECONDS = 60
STOPPING_SECONDS = 30
# Any id will do; it stands in the log dir's meta.properties.
CLUSTER_ID = "b2Zmc2V0bG9nLWJlbmNoLQ"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Broker:
    """A KRaft broker and controller in one process; its topics have four partitions and keep everything."""

    def __init__(self, directory: Path, jars: Path, settings: str = "", *, tls_port: int | None = None) -> None:
        self._directory = directory
        self._jars = jars
        self._settings = settings
        self._tls_port = tls_port
        self.process: subprocess.Popen[bytes] | None = None
        self.logs = directory / "logs"
        self.address = ""

    @property
    def pid(self) -> int:
        """The process, while it runs."""
        assert self.process is not None
        return self.process.pid

    def _java(self, *arguments: str) -> list[str]:
        return ["java", "-Xmx1g", "-cp", f"{self._jars}/*", *arguments]

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        tls = f",SSL://127.0.0.1:{self._tls_port}" if self._tls_port is not None else ""
        settings = self._directory / "server.properties"
        settings.write_text(
            "process.roles=broker,controller\n"
            "node.id=1\n"
            f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
            f"listeners=PLAINTEXT://{self.address}{tls},CONTROLLER://127.0.0.1:{controller}\n"
            f"advertised.listeners=PLAINTEXT://{self.address}{tls}\n"
            "controller.listener.names=CONTROLLER\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL\n"
            f"log.dirs={self.logs}\n"
            "offsets.topic.replication.factor=1\n"
            "transaction.state.log.replication.factor=1\n"
            "transaction.state.log.min.isr=1\n"
            "num.partitions=4\n"
            "log.retention.ms=-1\n"
            f"{self._settings}"
        )
        if not self.logs.exists():
            command = self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(settings))
            with (self._directory / "format.log").open("wb") as log:
                subprocess.run(command, stdout=log, stderr=log, timeout=STARTING_SECONDS, check=True)
        with (self._directory / "broker.log").open("wb") as log:
            self.process = subprocess.Popen(self._java("kafka.Kafka", str(settings)), stdout=log, stderr=log)
        try:
            self._wait_until_it_listens(port)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait_until_it_listens(self, port: int) -> None:
        assert self.process is not None
        end = time.monotonic() + STARTING_SECONDS
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            time.sleep(0.2)
        raise RuntimeError(f"the broker did not start; see {os.path.relpath(self._directory / 'broker.log')}")

    def __exit__(self, *_: object) -> None:
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOPPING_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None
