"""The lines that `serve` prints for its readers, run as they are printed: kcat and Kafka's console consumer, also with TLS, users and client certificates."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from damaged import Damaged
from golden import CLEAN_LOG_DIRS, named
from served import CERTIFICATES, Served, serving
from test_tools import VERSION, needs_kcat

from broker import java

TOPIC = "g-plain"
USER, PASSWORD = "reader", "a secret = 1"


class Kind(NamedTuple):
    """How the server is guarded."""

    is_encrypted: bool
    has_users: bool
    asks_for_certificates: bool

    def options(self, folder: Path) -> list[str]:
        """Of the command."""
        folder.mkdir(exist_ok=True)
        options = ["-t", TOPIC]
        if self.is_encrypted:
            options += ["--tls-cert", str(CERTIFICATES / "server.pem"), "--tls-key", str(CERTIFICATES / "server.key")]
        if self.asks_for_certificates:
            options += ["--tls-client-ca", str(CERTIFICATES / "ca.pem")]
        if self.has_users:
            (folder / "users").write_text(f"{USER}={PASSWORD}\n", encoding="utf-8")
            options += ["--users", str(folder / "users")]
        return options


KINDS = {
    "plain": Kind(is_encrypted=False, has_users=False, asks_for_certificates=False),
    "users": Kind(is_encrypted=False, has_users=True, asks_for_certificates=False),
    "TLS": Kind(is_encrypted=True, has_users=False, asks_for_certificates=False),
    "TLS, users": Kind(is_encrypted=True, has_users=True, asks_for_certificates=False),
    "all": Kind(is_encrypted=True, has_users=True, asks_for_certificates=True),
}


def filled_in(text: str, folder: Path) -> str:
    """A printed line with what its reader has to know in the place of the capitals."""
    both = folder / "both.pem"
    both.write_bytes((CERTIFICATES / "client.pem").read_bytes() + (CERTIFICATES / "client.key").read_bytes())
    known = {
        "CLIENT-WITH-KEY.pem": str(both),
        "CLIENT-KEY.pem": str(CERTIFICATES / "client.key"),
        "CLIENT.pem": str(CERTIFICATES / "client.pem"),
        "CA.pem": str(CERTIFICATES / "ca.pem"),
        "PASSWORD": PASSWORD,
        "USER": USER,
    }
    return re.sub("|".join(map(re.escape, known)), lambda found: known[found[0]], text)


def printed(server: Served) -> tuple[str, str, list[str]]:
    """The lines of kcat, of the console consumer, and of its file of properties."""
    lines = server.said().split("Read it:\n", 1)[1].splitlines()
    kcat, console = lines[0].strip(), lines[1].strip()
    properties = [line.strip() for line in lines[3:] if line.startswith("  ")] if lines[2].startswith("with ") else []
    return kcat, console, properties


def run(command: Sequence[str]) -> tuple[bytes, bytes]:
    """What a program prints, which need not be text, and what it complains about."""
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-4000:])
    return done.stdout, done.stderr


def sizes() -> list[int]:
    """Those of the topic's values; -1 for none."""
    rows = [row for number in range(3) for row in named(f"{TOPIC}-{number}")[0].rows]
    return sorted(-1 if row.value is None else len(row.value) for row in rows)


@needs_kcat
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_line_of_kcat(kind: Kind, tmp_path: Path) -> None:
    with serving(CLEAN_LOG_DIRS, tmp_path / "server", *kind.options(tmp_path)) as server:
        kcat, _, _ = printed(server)
        # The reader quotes what the password needs.
        words = [filled_in(word, tmp_path) for word in shlex.split(kcat)]
        # Values have line ends in them: one more option than is printed tells them apart.
        output, _ = run([*words, "-f", "%S "])
    assert sorted(map(int, output.split())) == sizes()


@pytest.mark.proof
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_line_of_the_console_consumer(kind: Kind, tmp_path: Path) -> None:
    with serving(CLEAN_LOG_DIRS, tmp_path / "server", *kind.options(tmp_path)) as server:
        _, console, properties = printed(server)
        (tmp_path / "client.properties").write_text("".join(f"{filled_in(line, tmp_path)}\n" for line in properties), encoding="utf-8")
        program, *words = shlex.split(console.replace("client.properties", str(tmp_path / "client.properties")))
        assert program == "kafka-console-consumer.sh"
        # It waits for more records until it is told how many there are.
        until = ["--max-messages", str(len(sizes())), "--timeout-ms", "30000"]
        _, said = run(java(VERSION, "org.apache.kafka.tools.consumer.ConsoleConsumer", *words, *until))
    assert f"Processed a total of {len(sizes())} messages".encode() in said


@needs_kcat
def test_damage_ends_the_line_of_kcat(with_damage: Damaged) -> None:
    """It prints all before the damage, and ends with an error."""
    line, _, _ = printed(with_damage.kafka)
    done = subprocess.run([*shlex.split(line), "-f", "%o\\n"], capture_output=True, timeout=120, check=False)
    assert [int(offset) for offset in done.stdout.split()] == [row.offset for row in with_damage.before]
    assert done.returncode == 1
    assert f"ERROR: Topic {with_damage.golden.topic} [0] error".encode() in done.stderr


@pytest.mark.proof
def test_damage_ends_the_line_of_the_console_consumer(with_damage: Damaged) -> None:
    """It prints all before the damage and names its offset. As after any error of its consumer, its exit code is 0."""
    _, line, _ = printed(with_damage.kafka)
    offsets = ["--formatter-property", "print.offset=true", "--formatter-property", "print.value=false"]
    command = java(VERSION, "org.apache.kafka.tools.consumer.ConsoleConsumer", *shlex.split(line)[1:], *offsets)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == [f"Offset:{row.offset}" for row in with_damage.before]
    assert f"corrupt message when fetching offset {with_damage.first} for topic-partition {with_damage.golden.name}" in done.stderr
    assert done.returncode == 0
