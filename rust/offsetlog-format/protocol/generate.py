"""Writes the tables of Kafka's requests and responses, `src/protocol/*.rs`, from the message schemas in Kafka's clients jar.

mvn -q dependency:copy -Dartifact=org.apache.kafka:kafka-clients:4.3.0 -DoutputDirectory=build
python rust/offsetlog-format/protocol/generate.py build/kafka-clients-4.3.0.jar            into the tree
python rust/offsetlog-format/protocol/generate.py build/kafka-clients-4.3.0.jar FOLDER     elsewhere, to compare
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TREE = HERE.parent / "src" / "protocol"
# What is announced by a server of ours, or asked for by our client: `announced.rs` says which versions.
APIS = (
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "JoinGroup",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    "DescribeGroups",
    "ListGroups",
    "SaslHandshake",
    "ApiVersions",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "DescribeAcls",
    "DescribeConfigs",
    "DescribeLogDirs",
    "SaslAuthenticate",
    "DeleteGroups",
    "OffsetDelete",
    "DescribeCluster",
)
KINDS = {
    "bool": "Bool",
    "int8": "Int8",
    "int16": "Int16",
    "uint16": "Uint16",
    "int32": "Int32",
    "int64": "Int64",
    "float64": "Float64",
    "uuid": "Uuid",
    "string": "Text",
    "bytes": "Bytes",
    "records": "Records",
}
ENDLESS = 1 << 15
Schema = dict[str, Any]


def schemas(jar: Path) -> dict[str, Schema]:
    """Every message schema in the jar, by name."""
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = re.sub(r"(?m)^\s*//.*$", "", archive.read(name).decode())
                schema = json.loads(text)
                found[schema["name"]] = schema
    return found


def versions(text: str) -> tuple[int, int]:
    """The first and the last of a range such as `3`, `0-4`, `2+` or `none`."""
    if text == "none":
        return ENDLESS, ENDLESS
    if text.endswith("+"):
        return int(text[:-1]), ENDLESS
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def snake(name: str) -> str:
    """`ListOffsets` as `list_offsets`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def usual(type_: str) -> str:
    """What a field of a type is where nothing else is said."""
    if type_.startswith("[]") or type_ in {"string", "bytes"}:
        return "Unset::Empty"
    if type_ == "uuid":
        return "Unset::Uuid"
    return "Unset::Int(0)" if type_ in KINDS else "Unset::Struct"


class Table:
    """One message as Rust text: a constant for each of its structures, then the message."""

    def __init__(self, schema: Schema, taken: set[str]) -> None:
        self.schema = schema
        self.common = {struct["name"]: struct for struct in schema.get("commonStructs", [])}
        self.taken = taken
        self.used: set[str] = set()
        self.constants: dict[str, tuple[str, str]] = {}
        _, self.highest = versions(schema["validVersions"])
        self.flexible, _ = versions(schema["flexibleVersions"])

    def kind(self, type_: str, fields: list[Schema] | None) -> str:
        """The kind of a field, with the fields of its structure as a constant of their own."""
        element = type_.removeprefix("[]")
        if element in KINDS:
            name = KINDS[element]
            self.used.add(name)
            if element == type_:
                return name
            self.used.add("Array")
            return f"Array(&{name})"
        if element not in self.constants:
            fields = fields or self.common[element]["fields"]
            body = self.fields(fields)
            name = snake(element).upper()
            if name in self.taken:
                name = f"{self.schema['type'].upper()}_{name}"
            self.taken.add(name)
            self.constants[element] = name, f"const {name}: &[Field] = &[{body}];"
        outer = "Struct" if element == type_ else "Structs"
        self.used.add(outer)
        return f"{outer}({self.constants[element][0]})"

    def unset(self, field: Schema) -> str | None:
        """The default, where it is another than that of the kind."""
        default = field.get("default", "")
        if str(default) == "null":
            return "Unset::Null"
        if field["type"] == "bool":
            return "Unset::Int(1)" if str(default).lower() == "true" else None
        if field["type"] in {"int8", "int16", "uint16", "int32", "int64"}:
            number = int(str(default or 0), 0)
            return f"Unset::Int({number:_})" if number else None
        if default not in {"", "0"}:
            message = f"a default that is not known: {field}"
            raise ValueError(message)
        return None

    def fields(self, fields: list[Schema]) -> str:
        """The fields of a structure."""
        return "".join(self.field(field) + "," for field in fields if versions(field["versions"])[0] <= self.highest)

    def field(self, field: Schema) -> str:
        """A field with what differs from the usual."""
        since, until = versions(field["versions"])
        name = field["name"][0].lower() + field["name"][1:]
        text = f'field("{name}", {self.kind(field["type"], field.get("fields"))})'
        if since > 0:
            text += f".since({since})"
        if until < self.highest:
            text += f".until({until})"
        if "nullableVersions" in field:
            first, last = versions(field["nullableVersions"])
            if last < min(until, self.highest):
                message = f"versions of null that end before the field does: {field}"
                raise ValueError(message)
            text += f".nullable_since({first})" if first > since else ".nullable()"
        unset = self.unset(field)
        if "tag" in field:
            if versions(field["taggedVersions"]) != versions(field["versions"]) or since < self.flexible:
                message = f"tagged only in some of its versions: {field}"
                raise ValueError(message)
            self.used.add("Unset")
            text += f".tag({field['tag']}, {unset or usual(field['type'])})"
        elif unset is not None:
            self.used.add("Unset")
            text += f".unset({unset})"
        if field.get("ignorable"):
            text += ".ignorable()"
        return text

    def message(self) -> str:
        """The whole message."""
        lowest, highest = versions(self.schema["validVersions"])
        flexible = "NEVER" if self.flexible == ENDLESS else str(self.flexible)
        if flexible == "NEVER":
            self.used.add("NEVER")
        body = self.fields(self.schema["fields"])
        structures = "\n\n".join(text for _, text in self.constants.values())
        name = self.schema["name"]
        constant = self.schema["type"].upper()
        return (
            f"{structures}\n\n/// `{name}`.\npub(super) const {constant}: Message = "
            f'versions("{name}", {lowest}, {highest}, {flexible}, &[{body}]);\n'
        )


def module(api: str, known: dict[str, Schema]) -> str:
    """The file of one API."""
    taken = {"REQUEST", "RESPONSE"}
    tables = [Table(known[f"{api}{side}"], taken) for side in ("Request", "Response")]
    body = "\n".join(table.message() for table in tables)
    used = set().union(*(table.used for table in tables))
    kinds = sorted(used - {"Unset", "NEVER"})
    items = sorted({"Field", "Message", "field", "versions"} | (used & {"Unset", "NEVER"}))
    if "[Field]" not in body:
        items.remove("Field")
    uses = ""
    if kinds:
        uses += f"use crate::message::Kind::{{{', '.join(kinds)}}};\n"
    uses += f"use crate::message::{{{', '.join(items)}}};\n"
    head = f"//! The tables of `{api}`. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it."
    return f"{head}\n\n{uses}\n{body}"


def apis(known: dict[str, Schema]) -> str:
    """The list of all."""
    lines = ["//! The APIs that are known here. Written by `protocol/generate.py` from Kafka's schemas: change that, then run it.\n"]
    lines.append(f"use super::{{Api, {', '.join(snake(api) for api in APIS)}}};\n")
    for api in APIS:
        lines.append(f"/// `{api}`.")
        lines.append(
            f'pub static {snake(api).upper()}: Api = Api {{ key: {known[f"{api}Request"]["apiKey"]}, name: "{api}", '
            f"request: {snake(api)}::REQUEST, response: {snake(api)}::RESPONSE }};\n"
        )
    lines.append("/// All of them, by key.")
    by_key = sorted(APIS, key=lambda api: known[f"{api}Request"]["apiKey"])
    lines.append(f"pub static ALL: &[&Api] = &[{', '.join('&' + snake(api).upper() for api in by_key)}];\n")
    return "\n".join(lines)


def generate(jar: Path, folder: Path) -> list[Path]:
    """Write every file; returns them."""
    known = schemas(jar)
    texts = {snake(api): module(api, known) for api in APIS} | {"apis": apis(known)}
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in texts.items():
        path = folder / f"{name}.rs"
        path.write_text(text)
        paths.append(path)
    # A configuration of its own: a folder elsewhere has none, and modules of `apis.rs` need not be there.
    subprocess.run(["rustfmt", "--edition", "2024", *map(str, paths)], check=True)  # noqa: S603, S607  # the tree's own tool
    return paths


if __name__ == "__main__":
    for written in generate(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else TREE):  # noqa: PLR2004  # an argument or not
        print(written)  # noqa: T201  # a program
