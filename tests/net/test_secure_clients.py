"""Clients of others behind TLS, users and client certificates: they read the same as without, or say why they may not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from asking import LEVELS, READABLE, ask, expected, places, told
from client_programs import CLIENTS, Client
from golden import CLEAN_LOG_DIRS
from served import CERTIFICATES, Kafka, serving
from test_clients import check_group

from broker import Broker, two_free_ports

TOPICS = ("g-plain", "g-txn", "g-codec-zstd")
READ = [golden for golden in READABLE if golden.topic in TOPICS]
PASSWORD = "a secret = 1"  # noqa: S105  # of the users here alone
CA = str(CERTIFICATES / "ca.pem")
TLS = ("--tls-cert", str(CERTIFICATES / "server.pem"), "--tls-key", str(CERTIFICATES / "server.key"))


def credential(hash_name: str) -> str:
    """A password in Kafka's own form, as RFC 5802 derives it."""
    salt, iterations = b"of these tests only", 4096
    salted = hashlib.pbkdf2_hmac(hash_name, PASSWORD.encode(), salt, iterations)
    stored = hashlib.new(hash_name, hmac.digest(salted, b"Client Key", hash_name)).digest()
    parts = {"salt": salt, "stored_key": stored, "server_key": hmac.digest(salted, b"Server Key", hash_name)}
    return ",".join([f"{name}={base64.b64encode(data).decode()}" for name, data in parts.items()] + [f"iterations={iterations}"])


USERS = f"""\
plain={PASSWORD}
of-256=SCRAM-SHA-256={credential("sha256")}
of-512=SCRAM-SHA-512={credential("sha512")}
"""


class Kind(NamedTuple):
    """How a client and a server meet."""

    server: str
    """Which of the servers."""
    security: Mapping[str, str]
    """The client's settings; see programs/common.py."""
    wrong: Mapping[str, str]
    """Settings with which it is refused."""


def _of_user(server: str, protocol: str, mechanism: str, user: str) -> Kind:
    security = {"protocol": protocol, "mechanism": mechanism, "user": user, "password": PASSWORD}
    if protocol == "SASL_SSL":
        security["ca"] = CA
    return Kind(server, security, {**security, "password": PASSWORD + "2"})


def _certificate(name: str) -> Mapping[str, str]:
    return {"certificate": str(CERTIFICATES / f"{name}.pem"), "key": str(CERTIFICATES / f"{name}.key")}


_ENCRYPTED = {"protocol": "SSL", "ca": CA}
KINDS = {
    "TLS, PLAIN": _of_user("encrypted", "SASL_SSL", "PLAIN", "plain"),
    "TLS, SCRAM-SHA-256": _of_user("encrypted", "SASL_SSL", "SCRAM-SHA-256", "of-256"),
    "TLS, SCRAM-SHA-512": _of_user("encrypted", "SASL_SSL", "SCRAM-SHA-512", "of-512"),
    "certificate": Kind("certificates", {**_ENCRYPTED, **_certificate("client")}, _ENCRYPTED),
    # Of a user whose password the file has.
    "loopback, SCRAM-SHA-256": _of_user("users", "SASL_PLAINTEXT", "SCRAM-SHA-256", "plain"),
}
QUICK_KINDS = ("TLS, SCRAM-SHA-512", "certificate")
"""Those that `make test` runs."""
OTHER_KINDS = tuple(name for name in KINDS if name not in QUICK_KINDS)

OF_GROUPS = {
    "confluent-kafka": "TLS, SCRAM-SHA-512",
    "confluent-kafka-2.3.0": "TLS, PLAIN",
    "kafka-python": "TLS, SCRAM-SHA-256",
    "aiokafka": "certificate",
    "java-4.3.0": "certificate",
    "java-3.9.2": "loopback, SCRAM-SHA-256",
    "java-2.8.2": "TLS, SCRAM-SHA-256",
}
"""The kind by which a client's group connects."""


def for_some(*quick: str) -> pytest.MarkDecorator:
    """For each client, in `make test` for these alone."""
    each = [pytest.param(c, id=c.name, marks=[] if c.name in quick else pytest.mark.proof) for c in CLIENTS]
    return pytest.mark.parametrize("client", each, indirect=True)


class Refusal(NamedTuple):
    """How a client tells that a server does not let it in: the error that its caller gets, and what it says or logs of it."""

    password: tuple[str, str]
    certificate: tuple[str, str]


# A broker's TLS calls a certificate that is missing a bad one.
_ALERT = "alert (bad certificate|certificate required|certificate unknown|unknown ca)"
_AUTHENTICATION = "[Aa]uthentication failed"
_OF_LIBRDKAFKA = Refusal(("_AUTHENTICATION", _AUTHENTICATION), ("_TRANSPORT", _ALERT))
_OF_JAVA = Refusal(("SaslAuthenticationException", ""), ("SslAuthenticationException", ""))
REFUSALS = {
    "confluent-kafka": _OF_LIBRDKAFKA,
    "confluent-kafka-2.3.0": _OF_LIBRDKAFKA,
    # An answer that comes together with the end of the connection it does not read: then all it knows is that this has ended.
    "kafka-python": Refusal(
        ("KafkaTimeoutError|SaslAuthenticationFailedError", "socket disconnected|" + _AUTHENTICATION),
        ("KafkaTimeoutError", _ALERT),
    ),
    "aiokafka": Refusal(("KafkaConnectionError", "SaslAuthenticationFailed"), ("KafkaConnectionError", "closed")),
    "java-4.3.0": _OF_JAVA,
    "java-3.9.2": _OF_JAVA,
    "java-2.8.2": _OF_JAVA,
}

Servers = Mapping[str, Kafka]


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Three that are guarded in different ways, over the same directories."""
    folder = tmp_path_factory.mktemp("net")
    (folder / "users").write_text(USERS, encoding="utf-8")
    users = ("--users", str(folder / "users"))
    with (
        serving(CLEAN_LOG_DIRS, folder / "encrypted", *TLS, *users) as encrypted,
        serving(CLEAN_LOG_DIRS, folder / "certificates", *TLS, "--tls-client-ca", CA) as certificates,
        serving(CLEAN_LOG_DIRS, folder / "users-only", *users) as with_users,
    ):
        yield {"encrypted": encrypted, "certificates": certificates, "users": with_users}


@pytest.mark.parametrize("kinds", [QUICK_KINDS, pytest.param(OTHER_KINDS, marks=pytest.mark.proof)], ids=["quick", "others"])
def test_who_may_reads_everything(client: Client, servers: Servers, kinds: Sequence[str]) -> None:
    """In both isolation levels, however it connects."""
    verbs: list[dict[str, object]] = [{"verb": "topics"}]
    for level in LEVELS:
        ends = {golden.name: golden.end if level == "read_uncommitted" else golden.last_stable_offset for golden in READ}
        verbs.append({"verb": "read", "places": places(READ), "isolation": level, "ends": ends})
    tasks = [
        {**task, "bootstrap": servers[KINDS[name].server].address, "security": KINDS[name].security}
        for name in kinds
        for task in verbs
    ]
    found = ask(client, servers["encrypted"], *tasks)
    counts = {golden.topic: sum(other.topic == golden.topic for other in READABLE) for golden in READABLE}
    for kind in kinds:
        topics, *read = found[: len(verbs)]
        del found[: len(verbs)]
        assert {topic: count for topic, count in topics.items() if not topic.startswith("__")} == counts, kind
        for level, partitions in zip(LEVELS, read, strict=True):
            for golden in READ:
                rows = golden.rows if level == "read_uncommitted" else golden.committed
                assert told(client, partitions[golden.name]) == expected(client, rows), (kind, level, golden.name)


@for_some("confluent-kafka")
def test_a_group_of_two(client: Client, servers: Servers) -> None:
    kind = KINDS[OF_GROUPS[client.name]]
    check_group(client, servers[kind.server], "g-plain", security=kind.security)


STRANGER = Kind("certificates", {}, {**_ENCRYPTED, **_certificate("stranger")})
"""A certificate of an authority that the server does not know."""
ONE_OF_EACH = {name: KINDS[name] for name in ("TLS, PLAIN", "certificate")}


def check_refusals(client: Client, servers: Servers, wrong: Mapping[str, Kind]) -> None:
    """Who may not is told so, by the client's own error, and gets no record."""
    # kafka-python tries again for as long as it may.
    seconds = 3 if client.name == "kafka-python" else 20
    task = {"verb": "until_error", "place": ["g-plain", 0], "offset": 0, "count": 1, "reset": "error", "seconds": seconds}
    tasks = [{**task, "bootstrap": servers[kind.server].address, "security": kind.wrong} for kind in wrong.values()]
    found = ask(client, next(iter(servers.values())), *tasks)
    for (name, kind), answer in zip(wrong.items(), found, strict=True):
        error, said = getattr(REFUSALS[client.name], "password" if "user" in kind.wrong else "certificate")
        assert answer["seen"] == [], (client.name, name)
        assert re.fullmatch(error, str(answer["error"])), (client.name, name, answer)
        assert re.search(said, answer.get("said", "")), (client.name, name, answer)


@for_some("confluent-kafka", "confluent-kafka-2.3.0", "aiokafka")
def test_who_may_not_is_told(client: Client, servers: Servers) -> None:
    check_refusals(client, servers, ONE_OF_EACH if client.name == "kafka-python" else {**KINDS, "stranger": STRANGER})


class Address(NamedTuple):
    """One address of a broker."""

    address: str


class GuardedBroker(Broker):
    """A real broker that asks for users at one of its addresses, for certificates at another."""

    def __init__(self, directory: Path) -> None:
        super().__init__("4.3.0", directory)
        self.servers = {
            name: Address(f"127.0.0.1:{port}") for name, port in zip(("encrypted", "certificates"), two_free_ports(), strict=True)
        }

    def _of_its_kind(self) -> dict[str, object]:
        both = self.directory / "server-with-key.pem"
        both.write_bytes(b"".join((CERTIFICATES / f"server.{end}").read_bytes() for end in ("key", "pem")))
        users, certificates = (self.servers[name].address for name in ("encrypted", "certificates"))
        addresses = f"PLAINTEXT://{self.address},USERS://{users},CERTIFICATES://{certificates}"
        self.settings = {"advertised.listeners": addresses}
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return {
            **super()._of_its_kind(),
            "listeners": f"{addresses},CONTROLLER://{self.controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,USERS:SASL_SSL,CERTIFICATES:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": both,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": CA,
            "listener.name.certificates.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.users.plain.sasl.jaas.config": f'{module} required user_plain="{PASSWORD}";',
        }


@pytest.mark.proof
def test_a_broker_is_understood_the_same(tmp_path: Path) -> None:
    """So these are the errors that each client has for who may not."""
    broker = GuardedBroker(tmp_path / "broker")
    broker.format()
    with broker.running():
        for client in CLIENTS:
            verb = {"verb": "topics", "security": KINDS["TLS, PLAIN"].security}
            assert ask(client, broker.servers["encrypted"], verb) == [{}], client.name
            check_refusals(client, broker.servers, ONE_OF_EACH)
