"""The clients of others that this machine has, as programs: see programs/common.py for what each of them does."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from broker import BROKERS, ROOT, class_data

PROGRAMS = Path(__file__).resolve().parent / "programs"
JAVA_VERSIONS = ("4.3.0", "3.9.2", "2.8.2")


class Client(NamedTuple):
    """One client library in one version."""

    name: str
    program: tuple[str, ...]
    cannot_read: frozenset[str] = frozenset()
    """Partitions that the client refuses from a real broker too, with an error."""
    tells_timestamp_of_lookup: bool = True
    epochs: bool = True
    """Whether records tell their leader epoch."""
    tells_damage: bool = True
    """Whether its caller hears of CORRUPT_MESSAGE: one client only logs it, and asks again for ever."""

    @property
    def is_quick(self) -> bool:
        """Whether `make test` runs it: without a JVM."""
        return not self.name.startswith("java")


def _python(environment: str, program: str) -> tuple[str, ...]:
    return str(ROOT / environment / "bin" / "python"), str(PROGRAMS / program)


def _java(version: str) -> tuple[str, ...]:
    # The jars come first, as in the archive of their classes.
    jars = f"{BROKERS / version}{os.sep}*{os.pathsep}{ROOT / 'build' / 'net-clients' / version}"
    options = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", *class_data(version))
    return str(shutil.which("java")), *options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", jars, "ClientProgram"


# Its decoder of lz4 does not take the frames of message format 0, whose checksum is wrong by design; the upgraded log has some.
OLD_LZ4 = frozenset({"o-v0-lz4-0", "o-upgraded-0"})

CLIENTS = (
    Client("confluent-kafka", _python(".venv-clients", "of_confluent_kafka.py"), tells_timestamp_of_lookup=False),
    Client("confluent-kafka-2.3.0", _python(".venv-clients-old", "of_confluent_kafka.py"), tells_timestamp_of_lookup=False),
    Client("kafka-python", _python(".venv-clients", "of_kafka_python.py")),
    Client("aiokafka", _python(".venv-clients", "of_aiokafka.py"), OLD_LZ4, epochs=False, tells_damage=False),
    *(Client(f"java-{version}", _java(version)) for version in JAVA_VERSIONS),
)
