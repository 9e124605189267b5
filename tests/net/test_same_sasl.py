"""A real 4.3.0 broker that asks for users and `serve` with the same users get the same stories of requests: they answer the same."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from golden import CLEAN_LOG_DIRS
from protocol import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE, ClosedError, Connection, Value
from served import Kafka, serving

from broker import Broker, two_free_ports

pytestmark = pytest.mark.proof

USER, PASSWORD = "ann", "secret"
CLIENT_NONCE = "of-the-tests"
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
CLOSED = "the connection ended"
NO_ERROR, UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED = 0, 3, 33, 34, 58


class Address(NamedTuple):
    """One address of a broker."""

    address: str


class GuardedBroker(Broker):
    """A real broker with a user, who may come by each mechanism."""

    def __init__(self, directory: Path) -> None:
        super().__init__("4.3.0", directory)
        self.users = f"127.0.0.1:{two_free_ports()[0]}"
        self.format_options = [
            part for mechanism in HASHES for part in ("--add-scram", f"{mechanism}=[name={USER},password={PASSWORD},iterations=4096]")
        ]

    def _of_its_kind(self) -> dict[str, object]:
        own = super()._of_its_kind()
        self.settings = {"advertised.listeners": f"PLAINTEXT://{self.address},USERS://{self.users}"}
        login = "org.apache.kafka.common.security"
        modules = {
            "plain": f'{login}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
            **{mechanism.lower(): f"{login}.scram.ScramLoginModule required;" for mechanism in HASHES},
        }
        return {
            **own,
            "listeners": f"{own['listeners']},USERS://{self.users}",
            "listener.security.protocol.map": f"{own['listener.security.protocol.map']},USERS:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(["PLAIN", *HASHES]),
            **{f"listener.name.users.{mechanism}.sasl.jaas.config": module for mechanism, module in modules.items()},
        }


class Said(NamedTuple):
    """A request, or the bytes of a mechanism without one around them."""

    api: int | None
    version: int
    value: Value


class Proof(NamedTuple):
    """SCRAM's second message, which depends on the answer to the first."""

    mechanism: str
    version: int | None
    password: str
    header: bytes = b"n,,"
    """How the first message began, which this one says again."""


Story = Sequence[Said | Proof]


def handshake(mechanism: str, version: int = 1) -> Said:
    return Said(SASL_HANDSHAKE, version, {"Mechanism": mechanism})


def message(data: bytes, version: int | None) -> Said:
    """A message of a mechanism, in a request of this version or in none."""
    return Said(SASL_AUTHENTICATE if version is not None else None, version or 0, {"AuthBytes": data})


def plain(user: str, password: str, *, instead: str = "") -> bytes:
    return f"{instead}\0{user}\0{password}".encode()


def first(user: str, *, header: str = "n,,") -> bytes:
    """SCRAM's first message."""
    return f"{header}n={user},r={CLIENT_NONCE}".encode()


class Teller:
    """Tells a story to a server over a connection of its own."""

    def __init__(self, kafka: Kafka) -> None:
        self._connection = Connection(kafka.address)
        self._challenge = b""
        self._signature = b""

    def tell(self, story: Story) -> list[Value | str]:
        """Its answers, up to the end of the connection."""
        found: list[Value | str] = []
        with self._connection:
            for each in story:
                try:
                    found.append(self._one(each))
                except ClosedError:
                    found.append(CLOSED)
                    break
        return found

    def _one(self, step: Said | Proof) -> Value:
        said = step if isinstance(step, Said) else message(self._proof(step), step.version)
        if said.api is None:
            data = said.value["AuthBytes"]
            self._connection.socket.sendall(struct.pack(">i", len(data)) + data)
            (size,) = struct.unpack(">i", self._connection.exactly(4))
            return {"AuthBytes": self._understood(self._connection.exactly(size))}
        answer = self._connection.ask(said.api, said.version, said.value)
        if said.api == SASL_AUTHENTICATE:
            answer["AuthBytes"] = self._understood(answer["AuthBytes"])
        if said.api == SASL_HANDSHAKE:
            answer["Mechanisms"].sort()
        # The rest of what they say is compared elsewhere.
        if said.api == METADATA:
            return {"ErrorCode": answer["Topics"][0]["ErrorCode"]}
        if said.api == API_VERSIONS:
            return {"ErrorCode": answer["ErrorCode"]}
        return answer

    def _understood(self, data: bytes) -> str:
        """What each server draws for itself taken out."""
        if data.startswith(b"r="):
            self._challenge = data
            parts = dict(part.split("=", 1) for part in data.decode().split(","))
            assert parts["r"].startswith(CLIENT_NONCE)
            assert len(parts["r"]) > len(CLIENT_NONCE)
            assert base64.b64decode(parts["s"])
            return f"a challenge with {sorted(parts)}, {parts['i']} times"
        if data.startswith(b"v="):
            return "its own signature" if base64.b64decode(data[2:]) == self._signature else "another signature"
        return repr(data)

    def _proof(self, step: Proof) -> bytes:
        if not self._challenge:
            return b"of no challenge"
        name = HASHES[step.mechanism]
        parts = dict(part.split("=", 1) for part in self._challenge.decode().split(","))
        salted = hashlib.pbkdf2_hmac(name, step.password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
        without = f"c={base64.b64encode(step.header).decode()},r={parts['r']}"
        text = b",".join((first(USER).removeprefix(b"n,,"), self._challenge, without.encode()))
        key = hmac.digest(salted, b"Client Key", name)
        signed = hmac.digest(hashlib.new(name, key).digest(), text, name)
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", name), text, name)
        proof = bytes(one ^ other for one, other in zip(key, signed, strict=True))
        return f"{without},p={base64.b64encode(proof).decode()}".encode()


METADATA_ASKED = Said(METADATA, 9, {"Topics": [{"Name": "nowhere"}]})
VERSIONS_ASKED = Said(API_VERSIONS, 2, {})


def stories() -> Iterator[tuple[str, Story]]:
    """By name."""
    right, wrong = plain(USER, PASSWORD), plain(USER, PASSWORD + "2")
    for version in (0, 1, 2):
        yield f"PLAIN {version}", (VERSIONS_ASKED, handshake("PLAIN"), message(right, version), METADATA_ASKED)
        yield f"PLAIN {version}, wrong password", (handshake("PLAIN"), message(wrong, version), METADATA_ASKED)
        yield f"PLAIN {version}, unknown user", (handshake("PLAIN"), message(plain("bob", PASSWORD), version))
        yield f"SaslAuthenticate {version} before a handshake", (message(right, version), METADATA_ASKED)
        yield (
            f"SaslAuthenticate {version} twice",
            (handshake("PLAIN"), message(right, version), message(right, version), METADATA_ASKED),
        )
        for mechanism in HASHES:
            begun = handshake(mechanism), message(first(USER), version)
            yield f"{mechanism} {version}", (*begun, Proof(mechanism, version, PASSWORD), METADATA_ASKED)
            yield f"{mechanism} {version}, wrong password", (*begun, Proof(mechanism, version, PASSWORD + "2"), METADATA_ASKED)
            stranger = handshake(mechanism), message(first("bob"), version)
            yield f"{mechanism} {version}, unknown user", (*stranger, Proof(mechanism, version, PASSWORD), METADATA_ASKED)
            yield f"{mechanism} {version}, no proof", (*begun, message(b"c=biws,r=other,p=AAAA", version), METADATA_ASKED)
    yield "raw PLAIN", (handshake("PLAIN", 0), message(right, None), METADATA_ASKED)
    yield "raw PLAIN, wrong password", (handshake("PLAIN", 0), message(wrong, None), METADATA_ASKED)
    for mechanism in HASHES:
        begun = handshake(mechanism, 0), message(first(USER), None)
        yield f"raw {mechanism}", (*begun, Proof(mechanism, None, PASSWORD), METADATA_ASKED)
        yield f"raw {mechanism}, wrong password", (*begun, Proof(mechanism, None, PASSWORD + "2"), METADATA_ASKED)
        stranger = handshake(mechanism, 0), message(first("bob"), None)
        yield f"raw {mechanism}, unknown user", (*stranger, Proof(mechanism, None, PASSWORD), METADATA_ASKED)
    for version in (0, 1):
        for mechanism in ("GSSAPI", "plain", ""):
            yield f"unknown mechanism {mechanism!r} {version}", (handshake(mechanism, version), METADATA_ASKED)
        yield f"handshake {version} behind all", (handshake("PLAIN"), message(right, 1), handshake("PLAIN", version), METADATA_ASKED)
        yield f"an unknown mechanism {version} behind all", (handshake("PLAIN"), message(right, 1), handshake("GSSAPI", version))
        yield f"two handshakes, the first of 1, {version}", (handshake("PLAIN"), handshake("PLAIN", version), METADATA_ASKED)
    yield "ApiVersions twice", (VERSIONS_ASKED, VERSIONS_ASKED, handshake("PLAIN"), message(right, 1))
    yield "ApiVersions behind the handshake", (handshake("PLAIN"), VERSIONS_ASKED, message(right, 1))
    yield "Metadata first", (METADATA_ASKED,)
    yield "Metadata behind the handshake", (handshake("PLAIN"), METADATA_ASKED, METADATA_ASKED)
    yield "Metadata amid SCRAM", (handshake("SCRAM-SHA-256"), message(first(USER), 1), METADATA_ASKED, METADATA_ASKED)
    for name, data in {
        "for another": plain(USER, PASSWORD, instead="bob"),
        "for itself": plain(USER, PASSWORD, instead=USER),
        "without a password": plain(USER, ""),
        "without a name": plain("", PASSWORD),
        "in two parts": b"\0ann",
        "in four parts": right + b"\0",
        "empty": b"",
        "not UTF-8": b"\0ann\0\xff\xfe",
    }.items():
        yield f"PLAIN {name}", (handshake("PLAIN"), message(data, 1), METADATA_ASKED)
    for name, data in {
        "with a binding": first(USER, header="p=tls-unique,,"),
        "that could bind": first(USER, header="y,,"),
        "for another": first(USER, header="n,a=bob,"),
        "for itself": first(USER, header=f"n,a={USER},"),
        "of nothing": b"",
        "of nonsense": b"nonsense",
        "without a nonce": b"n,,n=ann",
        "with an extension": f"n,,m=1,n={USER},r={CLIENT_NONCE}".encode(),
        "of an unfinished escape": f"n,,n=an=n,r={CLIENT_NONCE}".encode(),
    }.items():
        proof = Proof("SCRAM-SHA-256", 1, PASSWORD, data.rpartition(b"n=")[0])
        yield f"SCRAM {name}", (handshake("SCRAM-SHA-256"), message(data, 1), proof, METADATA_ASKED)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kafka, Kafka]]:
    """The broker, and ours."""
    folder = tmp_path_factory.mktemp("sasl")
    (folder / "users").write_text(f"{USER}={PASSWORD}\n", encoding="utf-8")
    broker = GuardedBroker(folder / "broker")
    broker.format()
    with broker.running(), serving(CLEAN_LOG_DIRS, folder / "serve", "--users", str(folder / "users")) as ours:
        yield Address(broker.users), ours


class Difference(NamedTuple):
    """Stories that the two end differently."""

    api: int
    """Whose answers differ."""
    stories: str
    """A regular expression for their names."""
    broker: Sequence[int | str]
    """The errors that the broker answers one after the other."""
    ours: Sequence[int | str]
    reason: str


DIFFERENCES = (
    Difference(
        SASL_AUTHENTICATE,
        r"SaslAuthenticate \d before a handshake",
        (CLOSED,),
        (ILLEGAL_SASL_STATE, CLOSED),
        "a broker says nothing and ends the connection",
    ),
    Difference(
        SASL_AUTHENTICATE,
        r"SCRAM-SHA-\d+ \d, unknown user",
        (SASL_AUTHENTICATION_FAILED, CLOSED),
        (NO_ERROR, SASL_AUTHENTICATION_FAILED, CLOSED),
        "who asks for users learns nothing of whether there is one: it fails behind the proof, as with a wrong password",
    ),
    Difference(SASL_AUTHENTICATE, r"raw SCRAM-SHA-\d+, unknown user", (CLOSED,), (NO_ERROR, CLOSED), "the same without requests"),
    Difference(
        SASL_AUTHENTICATE,
        r"SCRAM that could bind",
        (SASL_AUTHENTICATION_FAILED, CLOSED),
        (NO_ERROR, NO_ERROR, UNKNOWN_TOPIC_OR_PARTITION),
        "a client that could bind to TLS and believes that the server cannot (RFC 5802) is let in, a broker refuses it",
    ),
    Difference(
        SASL_AUTHENTICATE,
        r"SCRAM with an extension",
        (NO_ERROR, NO_ERROR, UNKNOWN_TOPIC_OR_PARTITION),
        (SASL_AUTHENTICATION_FAILED, CLOSED),
        "which nobody knows and which is a must (RFC 5802): a broker does not look at it",
    ),
    Difference(
        API_VERSIONS,
        r"ApiVersions twice",
        (CLOSED,),
        (NO_ERROR, NO_ERROR, NO_ERROR),
        "they are told at any time, by a broker once and before the handshake",
    ),
    Difference(API_VERSIONS, r"ApiVersions behind the handshake", (ILLEGAL_SASL_STATE, CLOSED), (NO_ERROR, NO_ERROR), "the same"),
    Difference(
        METADATA,
        r"Metadata (behind the handshake|amid SCRAM)",
        (ILLEGAL_SASL_STATE, CLOSED),
        (CLOSED,),
        "what may not come yet is refused with an error by a broker that awaits a password",
    ),
)


def errors(answers: Sequence[Value | str]) -> list[int | str]:
    """Of each answer; what has no place for an error has none."""
    return [each if isinstance(each, str) else each.get("ErrorCode", NO_ERROR) for each in answers]


def without_words(answer: Value | str) -> Value | str:
    """In whose words a server refuses a password is its own matter."""
    if isinstance(answer, str) or answer.get("ErrorCode") != SASL_AUTHENTICATION_FAILED or not answer["ErrorMessage"]:
        return answer
    return {**answer, "ErrorMessage": "words"}


def difference(name: str, broker: Sequence[Value | str], ours: Sequence[Value | str]) -> Difference | None:
    """Why these two may differ so."""
    same = 0
    while same < min(len(broker), len(ours)) and without_words(broker[same]) == without_words(ours[same]):
        same += 1
    for each in DIFFERENCES:
        tails = [errors(answers)[-len(told) :] for answers, told in ((broker, each.broker), (ours, each.ours))]
        behind = same >= len(broker) - len(each.broker) and same >= len(ours) - len(each.ours)
        if re.fullmatch(each.stories, name) and tails == [list(each.broker), list(each.ours)] and behind:
            return each
    return None


def are_same(broker: Sequence[Value | str], ours: Sequence[Value | str]) -> bool:
    return [*map(without_words, broker)] == [*map(without_words, ours)]


def test_stories(both: tuple[Kafka, Kafka]) -> None:
    """Field by field, up to the end of the connection; what is not in the table fails."""
    apart, used, count = [], set(), 0
    for name, story in stories():
        broker, ours = (Teller(each).tell(story) for each in both)
        count += 1
        if are_same(broker, ours):
            continue
        why = difference(name, broker, ours)
        if why is None:
            apart.append(f"{name}\n  broker: {broker}\n  ours:   {ours}")
        else:
            used.add(why)
    assert not apart, "\n".join(apart)
    assert used == set(DIFFERENCES), "an entry of the table that nothing needs"
    print(f"counted {count} stories of logins told to serve and to a broker")


PLANTED: Sequence[tuple[str, int, str, object]] = (
    ("PLAIN 2", 1, "Mechanisms", ["PLAIN"]),
    ("PLAIN 2", 2, "SessionLifetimeMs", 7),
    ("PLAIN 2", 2, "AuthBytes", "b'x'"),
    ("PLAIN 1, wrong password", 1, "ErrorCode", ILLEGAL_SASL_STATE),
    ("PLAIN 1, wrong password", 1, "ErrorMessage", ""),
    ("SCRAM-SHA-256 1", 2, "AuthBytes", "another signature"),
    ("SCRAM-SHA-512 0, unknown user", 0, "Mechanisms", []),
    ("SCRAM-SHA-512 0, unknown user", 2, "ErrorCode", NO_ERROR),
    ("unknown mechanism 'GSSAPI' 0", 0, "Mechanisms", []),
    ("handshake 1 behind all", 2, "ErrorCode", UNSUPPORTED_SASL_MECHANISM),
)


@pytest.mark.parametrize(("name", "at", "field", "wrong"), PLANTED)
def test_a_wrong_answer_is_found(both: tuple[Kafka, Kafka], name: str, at: int, field: str, wrong: object) -> None:
    """Entries of the table may not be wider than their reason."""
    story = dict(stories())[name]
    broker, ours = (Teller(each).tell(story) for each in both)
    assert are_same(broker, ours) or difference(name, broker, ours)
    answer = ours[at]
    assert isinstance(answer, dict)
    assert answer[field] != wrong
    ours[at] = {**answer, field: wrong}
    assert not are_same(broker, ours)
    assert difference(name, broker, ours) is None
