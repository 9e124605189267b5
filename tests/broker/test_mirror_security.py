"""A mirror of a real broker that lets in only who it knows: by SCRAM and PLAIN within TLS, and by certificates, in PEM and in PKCS12."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clients import Admin, Writer
from kafka.admin import ScramMechanism, UserScramCredentialUpsertion
from peers import Appended

from broker import ROOT, Broker, two_free_ports
from kafka import KafkaAdminClient
from offsetlog import MirrorReport, mirror

pytestmark = pytest.mark.proof

CERTIFICATES = ROOT / "rust" / "offsetlog-net" / "tests" / "tls"
STORE = "secret"
"""The password of all stores there."""
NAME, PASSWORD = "ann", "pass, word=\u00e9"
TOPIC = "orders"
COUNT = 300


def in_properties(text: str) -> str:
    """As Java's properties have it, which are Latin-1 with escapes."""
    return "".join(letter if letter.isascii() else f"\\u{ord(letter):04x}" for letter in text)


class GuardedBroker(Broker):
    """A broker with one listener more for each way in. Its plain one is for itself, and for what prepares it."""

    def __init__(self, version: str, directory: Path) -> None:
        super().__init__(version, directory)
        self.guarded: dict[str, str] = {}
        """Address by listener."""

    def _of_its_kind(self) -> dict[str, object]:
        own = super()._of_its_kind()
        one, other = two_free_ports()
        third, _ = two_free_ports()
        self.guarded = {name: f"localhost:{port}" for name, port in (("USERS", one), ("CERTIFICATES", other), ("UNENCRYPTED", third))}
        more = ",".join(f"{name}://{address}" for name, address in self.guarded.items())
        self.settings = {"advertised.listeners": f"PLAINTEXT://{self.address},{more}"}
        pem = self.directory / "broker.pem"
        pem.write_bytes((CERTIFICATES / "server.key").read_bytes() + (CERTIFICATES / "server.pem").read_bytes())
        login = "org.apache.kafka.common.security"
        plain = f'{login}.plain.PlainLoginModule required user_{NAME}="{in_properties(PASSWORD)}";'
        return {
            **own,
            "listeners": f"{own['listeners']},{more}",
            "listener.security.protocol.map": f"{own['listener.security.protocol.map']}"
            ",USERS:SASL_SSL,CERTIFICATES:SSL,UNENCRYPTED:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            **{
                f"listener.name.{name}.{mechanism}.sasl.jaas.config": words
                for name in ("users", "unencrypted")
                for mechanism, words in {
                    "plain": plain,
                    "scram-sha-256": f"{login}.scram.ScramLoginModule required;",
                    "scram-sha-512": f"{login}.scram.ScramLoginModule required;",
                }.items()
            },
            "listener.name.certificates.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": pem,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": CERTIFICATES / "ca.pem",
        }


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    """A broker with a topic and a user."""
    broker = GuardedBroker("4.3.0", tmp_path_factory.mktemp("guarded") / "broker")
    broker.format()
    with broker.running():
        with Admin(broker.address) as admin:
            admin.create(TOPIC, 1, {})
            admin.leader_epochs(TOPIC)
        users = KafkaAdminClient(bootstrap_servers=broker.address)
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            users.alter_user_scram_credentials([UserScramCredentialUpsertion(NAME, mechanism, PASSWORD)])
        users.close()
        with Writer(broker.address, TOPIC) as writer:
            writer.send(0, [Appended(b"key", b"value %d" % number, 1_800_000_000_000 + number) for number in range(COUNT)])
        yield broker


AUTHORITY = {
    "pem": {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(CERTIFICATES / "ca.pem")},
    "pkcs12": {
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(CERTIFICATES / "ca.p12"),
        "ssl.truststore.password": STORE,
    },
}
"""Whom a mirror trusts, by the kind of store."""


def known_by_password(mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    """Settings of a user."""
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    login = f'org.apache.kafka.common.security.{module}LoginModule required username="{NAME}" password="{password}";'
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": login}


def known_by_certificate(kind: str, folder: Path, name: str = "client") -> dict[str, str]:
    """Settings of somebody with a certificate."""
    if kind == "pkcs12":
        return {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(CERTIFICATES / f"{name}.p12"),
            "ssl.keystore.password": STORE,
            "ssl.key.password": STORE,
        }
    pem = folder / f"{name}.pem"
    pem.write_bytes((CERTIFICATES / f"{name}.key").read_bytes() + (CERTIFICATES / f"{name}.pem").read_bytes())
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(pem)}


def copy(guarded: GuardedBroker, listener: str, into: Path, settings: dict[str, str], give_up_ms: int = 60_000) -> MirrorReport:
    """Mirror all that is there."""
    return mirror(guarded.guarded[listener], into, once=True, config=settings, give_up_ms=give_up_ms)


def refused(guarded: GuardedBroker, listener: str, into: Path, settings: dict[str, str]) -> MirrorReport:
    """What a mirror says that is let in nowhere: with more patience, if it gave up before any broker answered."""
    patience = 1500
    while not (report := copy(guarded, listener, into, settings, patience)).events and patience < 100_000:
        patience *= 4
    return report


def assert_same(guarded: GuardedBroker, into: Path) -> None:
    """Every byte."""
    theirs, ours = (
        b"".join(path.read_bytes() for path in sorted((folder / f"{TOPIC}-0").glob("*.log"))) for folder in (guarded.log_dir, into)
    )
    assert len(theirs) > COUNT
    assert ours == theirs


def assert_copied(guarded: GuardedBroker, into: Path, report: MirrorReport) -> None:
    """All of it, and it says so."""
    assert report.is_complete, report
    assert_same(guarded, into)


@pytest.mark.parametrize("kind", sorted(AUTHORITY))
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_by_password_within_tls(guarded: GuardedBroker, mechanism: str, kind: str, tmp_path: Path) -> None:
    settings = {"security.protocol": "SASL_SSL", **AUTHORITY[kind], **known_by_password(mechanism)}
    assert_copied(guarded, tmp_path, copy(guarded, "USERS", tmp_path, settings))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_by_password_alone(guarded: GuardedBroker, mechanism: str, tmp_path: Path) -> None:
    settings = {"security.protocol": "SASL_PLAINTEXT", **known_by_password(mechanism)}
    assert_copied(guarded, tmp_path, copy(guarded, "UNENCRYPTED", tmp_path, settings))


@pytest.mark.parametrize("kind", sorted(AUTHORITY))
def test_by_certificate(guarded: GuardedBroker, kind: str, tmp_path: Path) -> None:
    settings = {"security.protocol": "SSL", **AUTHORITY[kind], **known_by_certificate(kind, tmp_path)}
    assert_copied(guarded, tmp_path / "copy", copy(guarded, "CERTIFICATES", tmp_path / "copy", settings))


def test_by_the_command_and_its_file(guarded: GuardedBroker, tmp_path: Path) -> None:
    settings = {"bootstrap.servers": guarded.guarded["USERS"], "security.protocol": "SASL_SSL", **AUTHORITY["pkcs12"]}
    settings |= known_by_password("SCRAM-SHA-512")
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={in_properties(value)}\n" for name, value in settings.items()), encoding="utf-8")
    command = [sys.executable, "-m", "offsetlog", "mirror", "--config", str(file), "--into", str(tmp_path / "copy"), "--once"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    assert_same(guarded, tmp_path / "copy")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_another_password_is_refused_and_reported(guarded: GuardedBroker, mechanism: str, tmp_path: Path) -> None:
    settings = {"security.protocol": "SASL_SSL", **AUTHORITY["pem"], **known_by_password(mechanism, "other")}
    report = refused(guarded, "USERS", tmp_path, settings)
    assert not report.is_complete
    assert not report.partitions
    assert any("uthentication" in event.message for event in report.events), report.events


def test_strangers_are_refused_and_reported(guarded: GuardedBroker, tmp_path: Path) -> None:
    """Without a certificate, with one of another authority; and a broker that the mirror does not trust."""
    other = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(CERTIFICATES / "other-ca.pem")}
    for number, settings in enumerate(
        (
            AUTHORITY["pem"],
            {**AUTHORITY["pem"], **known_by_certificate("pem", tmp_path, "stranger")},
            {**other, **known_by_certificate("pem", tmp_path)},
        )
    ):
        settings = {"security.protocol": "SSL", **settings}  # noqa: PLW2901  # all of them
        report = refused(guarded, "CERTIFICATES", tmp_path / str(number), settings)
        assert not report.is_complete
        assert not report.partitions
        assert any("ertificate" in event.message for event in report.events), report.events
