"""Random requests and responses of Kafka's, as the JSON that its own converters read, made from the schemas in its clients jar."""

from __future__ import annotations

import base64
import importlib.util
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
GENERATOR = ROOT / "rust" / "offsetlog-format" / "protocol" / "generate.py"
CLIENTS = ROOT / "build" / "oracle" / "lib" / "kafka-clients-4.3.0.jar"
TEXTS = ("", "t", "a topic", "ü", "名前", "\U0001f600", '"\\\n\t\x01', "x" * 300, "y" * 127, "z" * 128)
# A tag that no schema has. What stands behind it no reader of ours may stumble over.
UNKNOWN_TAG = 7_000


def integer(draw: random.Random, bits: int) -> int:
    """A number of this many bits."""
    half = 1 << bits - 1
    return draw.choice((0, -1, 1, -half, half - 1, draw.randrange(-half, half)))


def some_bytes(draw: random.Random) -> str:
    """Bytes, where a length may need a second one."""
    return base64.b64encode(draw.randbytes(draw.choice((0, 1, 30, 127, 200)))).decode()


def uuid(draw: random.Random) -> str:
    """An id, which may be zero."""
    raw = draw.choice((bytes(16), bytes(15) + b"\1", draw.randbytes(16)))
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


PLAIN: dict[str, Callable[[random.Random], Any]] = {
    "bool": lambda draw: draw.random() < 0.5,
    "int8": lambda draw: integer(draw, 8),
    "int16": lambda draw: integer(draw, 16),
    "int32": lambda draw: integer(draw, 32),
    "int64": lambda draw: integer(draw, 64),
    "string": lambda draw: draw.choice(TEXTS),
    "bytes": some_bytes,
    "records": some_bytes,
    "uuid": uuid,
}


@cache
def generator() -> ModuleType:
    """The script that writes the tables."""
    spec = importlib.util.spec_from_file_location("generate", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def schemas() -> dict[str, dict[str, Any]]:
    """Every schema by name."""
    found: dict[str, dict[str, Any]] = generator().schemas(CLIENTS)
    return found


def messages() -> Iterator[tuple[str, int]]:
    """Every message that we have a table of, with each version."""
    for api in generator().APIS:
        for side in ("Request", "Response"):
            first, last = generator().versions(schemas()[f"{api}{side}"]["validVersions"])
            yield from ((f"{api}{side}", version) for version in range(first, last + 1))


def within(text: str, version: int) -> bool:
    """Whether a range of versions has this one."""
    first, last = generator().versions(text)
    return bool(first <= version <= last)


def is_flexible(name: str, version: int) -> bool:
    """Whether a message has tagged fields in a version."""
    return within(schemas()[name]["flexibleVersions"], version)


class Maker:
    """Makes messages of one version."""

    def __init__(self, random_: random.Random, name: str, version: int) -> None:
        self.random = random_
        self.schema = schemas()[name]
        self.version = version
        self.structs = {struct["name"]: struct["fields"] for struct in self.schema.get("commonStructs", [])}
        self._collect(self.schema["fields"])
        # Some messages are full of nulls, empty arrays and defaults.
        self.sparse = random_.choice((0.0, 0.2, 0.9))

    def _collect(self, fields: list[dict[str, Any]]) -> None:
        for field in fields:
            if "fields" in field:
                self.structs[field["type"].removeprefix("[]")] = field["fields"]
                self._collect(field["fields"])

    def message(self) -> dict[str, Any]:
        """The whole message."""
        return self.struct(self.schema["fields"])

    def struct(self, fields: list[dict[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for field in fields:
            if not within(field["versions"], self.version):
                continue
            if "tag" in field and self.random.random() < max(0.4, self.sparse):
                continue
            name = field["name"][0].lower() + field["name"][1:]
            nullable = "nullableVersions" in field and within(field["nullableVersions"], self.version)
            if nullable and self.random.random() < max(0.2, self.sparse):
                made[name] = None
            else:
                made[name] = self.value(field["type"])
        return made

    def value(self, type_: str) -> Any:  # noqa: ANN401  # JSON
        """A value of a type, most often one at a border."""
        draw = self.random
        if type_.startswith("[]"):
            length = 0 if draw.random() < max(0.1, self.sparse / 2) else draw.choice((1, 1, 2, 3))
            if type_ == "[]int32" and draw.random() < 0.05:
                length = 200
            return [self.value(type_[2:]) for _ in range(length)]
        if type_ in self.structs:
            return self.struct(self.structs[type_])
        return PLAIN[type_](draw)
