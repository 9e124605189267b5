"""Requests, responses and their headers beside Kafka's own message classes: bytes, meaning, defaults, and what a version cannot carry."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka_log import KafkaError, Oracle
from random_messages import CLIENTS, ROOT, UNKNOWN_TAG, Maker, generator, is_flexible, messages, schemas, within
from reports import SEED

# More of them in a soak, which runs what is named random.
OF_EACH = 24 * max(1, int(os.environ.get("OFFSETLOG_RANDOM_CHUNKS", "0")) // 10)
# Another build may hold the lock.
BUILD_SECONDS = 1500
# A client id too long for its field is a message that nobody can write.
CLIENT_IDS = (None, "", "me", "x" * 200, "ü")


class Ours:
    """The example `recode` of the format crate."""

    def __init__(self) -> None:
        command = ["cargo", "build", "--locked", "--quiet", "-p", "offsetlog-format", "--example", "recode", "--message-format=json"]
        built = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=BUILD_SECONDS)
        made = [json.loads(line).get("executable") for line in built.stdout.splitlines()]
        program = next(path for path in made if path)
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def recode(self, name: str, version: int, into: int, data: bytes | None) -> dict[str, Any]:
        """Reads a message and writes it again."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{name} {version} {into} {'-' if data is None else data.hex()}\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(300)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def ours() -> Iterator[Ours]:
    """Our reader and writer."""
    program = Ours()
    yield program
    program.close()


class Given(NamedTuple):
    """A message that Kafka writes for us."""

    name: str
    version: int
    json: dict[str, Any]


def drawn(seed: int, of_each: int) -> list[Given]:
    """Some messages of every name and version."""
    draw = random.Random(seed)
    return [Given(name, version, Maker(draw, name, version).message()) for name, version in messages() for _ in range(of_each)]


def seed() -> int:
    """The seed of this run, which a failure names."""
    return int(os.environ[SEED])


def asked(oracle: Oracle, requests: list[dict[str, Any]]) -> list[dict[str, Any] | KafkaError]:
    """What Kafka answers to messages."""
    return oracle.ask_many([{"do": "message", **request} for request in requests])


def written(answer: dict[str, Any] | KafkaError) -> bytes:
    """The bytes that Kafka wrote."""
    if isinstance(answer, KafkaError):
        raise answer
    return base64.b64decode(answer["data"])


def damaged(draw: random.Random, data: bytes) -> bytes:
    """The bytes with one to four changes."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4))):
        at = draw.randrange(len(changed) + 1)
        match draw.randrange(4):
            case 0:
                changed[at : at + 1] = bytes([draw.choice((0, 1, 127, 128, 255))])
            case 1:
                del changed[at : at + draw.choice((1, 2, 5))]
            case 2:
                changed[at:at] = draw.randbytes(draw.choice((1, 2, 4)))
            case _:
                changed[at : at + 1] = bytes(byte ^ 1 << draw.randrange(8) for byte in changed[at : at + 1])
    return bytes(changed)


def same(message: dict[str, Any]) -> str:
    """A message as text, in which one sign stands for any bytes that are not UTF-8."""
    return re.sub("\ufffd+", "\ufffd", json.dumps(message, ensure_ascii=False))


def fields_of(fields: list[dict[str, Any]], version: int, above: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """All fields that a version has, however deep, with their places."""
    for field in fields:
        if within(field["versions"], version):
            path = f"{above}.{field['name'][0].lower()}{field['name'][1:]}"
            yield path, field
            yield from fields_of(field.get("fields", []), version, path)


def paths(value: Any, above: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401  # JSON
    """All fields of a message, however deep, with their places."""
    if isinstance(value, list):
        for element in value:
            yield from paths(element, above)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield f"{above}.{name}", inner
            yield from paths(inner, f"{above}.{name}")


def test_random_messages_have_kafkas_bytes_and_meaning(oracle: Oracle, ours: Ours) -> None:
    """Kafka's bytes are read as what Kafka reads in them, and written as they were."""
    given = drawn(seed(), OF_EACH)
    requests = [{"name": name, "version": version, "json": made} for name, version, made in given]
    for (name, version, made), theirs in zip(given, asked(oracle, requests), strict=True):
        data = written(theirs)
        assert not isinstance(theirs, KafkaError)
        mine = ours.recode(name, version, version, data)
        assert mine.get("json") == theirs["json"], (seed(), name, version, made, mine)
        assert (bytes.fromhex(mine["data"]), mine["left"]) == (data, 0), (seed(), name, version, made)
    assert len(given) > 5_000


def test_random_messages_that_we_write_kafka_reads(oracle: Oracle, ours: Ours) -> None:
    """The bytes that our writer makes are a whole message to Kafka, with the same meaning."""
    given = drawn(seed() + 1, 2)
    first = asked(oracle, [{"name": name, "version": version, "json": made} for name, version, made in given])
    mine = [ours.recode(one.name, one.version, one.version, written(theirs)) for one, theirs in zip(given, first, strict=True)]
    back = [
        {"name": one.name, "version": one.version, "data": base64.b64encode(bytes.fromhex(answer["data"])).decode()}
        for one, answer in zip(given, mine, strict=True)
    ]
    for one, answer, theirs in zip(given, mine, asked(oracle, back), strict=True):
        assert not isinstance(theirs, KafkaError), (seed(), one, theirs)
        assert (theirs["json"], theirs["left"]) == (answer["json"], 0), (seed(), one)


def test_unknown_tagged_fields_are_stepped_over(oracle: Oracle, ours: Ours) -> None:
    """A later version's tagged fields change nothing of what is read."""
    given = [one for one in drawn(seed() + 2, 2) if is_flexible(one.name, one.version)]
    unknown = [
        [UNKNOWN_TAG, ""],
        [UNKNOWN_TAG + 1, base64.b64encode(b"whatever").decode()],
        [1 << 30, base64.b64encode(bytes(200)).decode()],
    ]
    plain = asked(oracle, [{"name": name, "version": version, "json": made} for name, version, made in given])
    more = asked(oracle, [{"name": name, "version": version, "json": made, "unknown": unknown} for name, version, made in given])
    for one, without, with_unknown in zip(given, plain, more, strict=True):
        data = written(with_unknown)
        assert len(data) > len(written(without)) + 200
        mine = ours.recode(one.name, one.version, one.version, data)
        assert bytes.fromhex(mine.get("data", "")) == written(without), (seed(), one, mine)
    assert given


def test_defaults_are_kafkas(oracle: Oracle, ours: Ours) -> None:
    """A message of which nobody said anything is written as Kafka writes it."""
    every = list(messages())
    answers = asked(oracle, [{"name": name, "version": version} for name, version in every])
    for (name, version), theirs in zip(every, answers, strict=True):
        mine = ours.recode(name, version, version, None)
        if isinstance(theirs, KafkaError):
            assert "error" in mine, (name, version, theirs, mine)
        else:
            assert bytes.fromhex(mine.get("data", "")) == written(theirs), (name, version, mine)


def test_what_a_version_cannot_carry_is_refused_where_kafka_refuses_it(oracle: Oracle, ours: Ours) -> None:
    """A message of one version written in another: the same bytes, or an error on both sides."""
    draw = random.Random(seed() + 3)
    highest = {name: version for name, version in messages()}  # noqa: C416  # the last of each stays
    lowest = {name: version for name, version in reversed(list(messages()))}  # noqa: C416  # the first
    given, into = [], []
    for one in drawn(seed() + 4, 6):
        given.append(one)
        into.append(draw.randint(lowest[one.name], highest[one.name]))
    first = asked(oracle, [{"name": name, "version": version, "json": made} for name, version, made in given])
    # Kafka starts from the bytes as we do.
    requests = [
        {"name": one.name, "version": one.version, "into": other, "data": base64.b64encode(written(theirs)).decode()}
        for one, other, theirs in zip(given, into, first, strict=True)
    ]
    refused = 0
    for one, other, before, theirs in zip(given, into, first, asked(oracle, requests), strict=True):
        mine = ours.recode(one.name, one.version, other, written(before))
        if isinstance(theirs, KafkaError):
            refused += 1
            assert "error" in mine, (seed(), one, other, theirs, mine)
        else:
            assert bytes.fromhex(mine.get("data", "")) == written(theirs), (seed(), one, other, mine)
    assert refused > 100


def test_random_damage_is_refused_where_kafka_refuses_it(oracle: Oracle, ours: Ours) -> None:
    """Bytes that are no message: both sides refuse them, or both read the same.

    Kafka alone takes a tagged field whose size is wrong, drops the bits of a variable-length integer that are beyond its type, and takes a
    count beyond `int` for a negative one (`test_counts_that_kafka_takes_for_negative_ones_are_refused`).
    """
    draw = random.Random(seed() + 6)
    given = drawn(seed() + 7, OF_EACH)
    whole = asked(oracle, [{"name": name, "version": version, "json": made} for name, version, made in given])
    broken = [damaged(draw, written(theirs)) for theirs in whole]
    requests = [
        {"name": one.name, "version": one.version, "data": base64.b64encode(data).decode()}
        for one, data in zip(given, broken, strict=True)
    ]
    met = Counter[str]()
    for one, data, theirs in zip(given, broken, asked(oracle, requests), strict=True):
        mine = ours.recode(one.name, one.version, one.version, data)
        place = (seed(), one.name, one.version, data.hex(), theirs, mine)
        if isinstance(theirs, KafkaError):
            # Kafka refuses to write what it has read, where unknown tagged fields do not ascend.
            assert "error" in mine or "Invalid raw tag field list" in theirs.text, place
            met["refused"] += 1
        elif "error" in mine:
            assert re.search(r"length \d+ found, (\d+) to \1 expected|integer of 5 bytes does not fit", mine["error"]), place
            met["refused by us alone"] += 1
        else:
            assert (same(mine["json"]), mine["left"]) == (same(theirs["json"]), theirs["left"]), place
            met["read"] += 1
    assert min(met["refused"], met["read"]) > len(given) // 5, met
    assert met["refused by us alone"] < len(given) // 100, met


@pytest.mark.parametrize(
    ("message", "text", "kafka_reads"),
    [
        pytest.param(("MetadataRequest", 12), "8180808008 00 00 00", {"topics": None}, id="an array that is null"),
        pytest.param(("MetadataRequest", 12), "00 01 00 ffffffff08", {"topics": None}, id="no tagged fields"),
        pytest.param(("FindCoordinatorRequest", 3), "05 67726f75 00 8380808008", {"key": "grou"}, id="no tagged fields behind a text"),
    ],
)
def test_counts_that_kafka_takes_for_negative_ones_are_refused(
    oracle: Oracle, ours: Ours, message: tuple[str, int], text: str, kafka_reads: dict[str, Any]
) -> None:
    """A count beyond `int`: nobody writes it, Kafka reads null or nothing, and what stands behind would be read as something else."""
    name, version = message
    data = bytes.fromhex(text)
    (theirs,) = asked(oracle, [{"name": name, "version": version, "data": base64.b64encode(data).decode()}])
    assert not isinstance(theirs, KafkaError), theirs
    assert kafka_reads.items() <= theirs["json"].items()
    error = ours.recode(name, version, version, data)["error"]
    assert "variable-length integer of 5 bytes does not fit" in error


def test_headers_are_kafkas(oracle: Oracle, ours: Ours) -> None:
    """Headers of every API and version, and of versions of ApiVersions that nobody knows yet."""
    draw = random.Random(seed() + 5)
    pairs = {(schemas()[name]["apiKey"], version) for name, version in messages()} | {(18, version) for version in (5, 6, 99)}
    for key, version in sorted(pairs):
        header = oracle.ask("headers", key=key, version=version)
        for client_id in CLIENT_IDS:
            fields = {
                "requestApiKey": key,
                "requestApiVersion": version,
                "correlationId": draw.randrange(-(1 << 31), 1 << 31),
                "clientId": client_id,
            }
            theirs = oracle.ask("message", name="RequestHeader", version=header["request"], json=fields)
            mine = ours.recode(f"{key}/RequestHeader", version, version, written(theirs))
            assert (mine.get("json"), mine.get("left")) == (theirs["json"], 0), (key, version, mine)
            assert bytes.fromhex(mine["data"]) == written(theirs)
        answer = {"correlationId": draw.randrange(-(1 << 31), 1 << 31)}
        theirs = oracle.ask("message", name="ResponseHeader", version=header["response"], json=answer)
        mine = ours.recode(f"{key}/ResponseHeader", version, version, written(theirs))
        assert (mine.get("json"), mine.get("left")) == (answer, 0), (key, version, mine)
        assert bytes.fromhex(mine["data"]) == written(theirs)


def test_tables_are_what_the_script_writes(tmp_path: Path) -> None:
    """The tables in the tree come from the schemas of this Kafka, and nobody changed them by hand."""
    made = generator().generate(CLIENTS, tmp_path)
    assert len(made) == len(generator().APIS) + 1
    for path in made:
        assert path.read_text() == (generator().TREE / path.name).read_text(), f"run {generator().__file__}"


def test_random_messages_use_all_of_the_schemas() -> None:
    """Each field of each version is drawn at least once, and a null wherever one may be."""
    values: set[tuple[str, int, str]] = set()
    nulls: set[tuple[str, int, str]] = set()
    wanted: set[tuple[str, int, str]] = set()
    nullable: set[tuple[str, int, str]] = set()
    for name, version in messages():
        for path, field in fields_of(schemas()[name]["fields"], version):
            wanted.add((name, version, path))
            if within(field.get("nullableVersions", "none"), version):
                nullable.add((name, version, path))
    for one in drawn(1, 96):
        for path, value in paths(one.json):
            (nulls if value is None else values).add((one.name, one.version, path))
    assert wanted - values == set()
    assert nullable - nulls == set()
