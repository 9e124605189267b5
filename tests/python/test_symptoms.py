"""Pages by symptom: every command on them is run and prints what is shown, and what a page promises holds in the files that it leaves.

A page is one story: its commands run one after the other in one folder, as a reader would run them.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from pages import ROOT, Shell, alike, blocks, commands, read
from symptom_claims import CLAIMS

FOLDER = "docs/symptoms"
PARTS = ["What you see", "What is going on", "Look", "What to do", "What not to do", "How to prevent it", "Read on"]
PAGES = sorted(path.stem for path in (ROOT / FOLDER).glob("*.md") if path.stem != "index")

# What pages tell a reader to run against a cluster: options of the tools of Kafka 4.0, read from their sources.
KAFKA_TOOLS = {
    "kafka-configs.sh": {"--bootstrap-server", "--alter", "--describe", "--all", "--entity-type", "--entity-name", "--add-config", "--delete-config"},
    "kafka-consumer-groups.sh": {"--bootstrap-server", "--describe", "--group", "--reset-offsets", "--from-file", "--to-datetime", "--topic", "--all-topics", "--dry-run", "--execute", "--export"},
    "kafka-delete-records.sh": {"--bootstrap-server", "--offset-json-file"},
    "kafka-reassign-partitions.sh": {"--bootstrap-server", "--reassignment-json-file", "--execute", "--verify"},
    "kafka-storage.sh": {"format", "info", "--config", "--cluster-id", "--ignore-formatted"},
    "kafka-topics.sh": {"--bootstrap-server", "--create", "--describe", "--topic", "--partitions", "--replication-factor", "--config"},
    "kafka-transactions.sh": {"--bootstrap-server", "find-hanging", "--broker-id", "abort", "--topic", "--partition", "--start-offset", "describe", "--transactional-id"},
}  # fmt: skip


def page(name: str) -> str:
    """The text of a page."""
    return read(f"{FOLDER}/{name}.md")


def as_pattern(message: str) -> re.Pattern[str]:
    """What matches a message of Kafka's, whatever stands in its places."""
    return re.compile(".+".join(re.escape(part) for part in message.split("{}")))


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_commands_print_what_the_page_shows(name: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for block in blocks(page(name)):
        if block.language == "console":
            for command, output in commands(block):
                printed = shell.printed(command)
                # Compared as they are, so that a failure shows the difference.
                assert printed == output or alike(printed, output), f"{name}, line {block.line}: {command}"
    CLAIMS[name](shell.here)


def test_every_page_promises_something() -> None:
    assert sorted(CLAIMS) == PAGES


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_built_alike(name: str) -> None:
    """Whoever has read one finds the way in all."""
    assert re.findall(r"^## (.*)$", page(name), re.MULTILINE) == PARTS
    assert "\n## Look\n\nThe folders below are a real broker's, in a clone of the repository. Put your own in their place: " in page(
        name
    )


@pytest.mark.parametrize("name", [*PAGES, "index"])
def test_no_block_goes_untried(name: str) -> None:
    """Commands are run; what brokers print is Kafka's; what is to be run against a cluster exists there."""
    found = blocks(page(name))
    assert name == "index" or any(block.language == "console" for block in found)
    messages = json.loads((ROOT / "tests/data/broker-messages.json").read_text(encoding="utf-8"))["messages"]
    patterns = [as_pattern(message["text"]) for message in messages]
    for block in found:
        assert block.language in {"console", "text", "sh"}, f"line {block.line}: who runs a block of {block.language!r}?"
        if block.language == "text":
            for line in block.text.splitlines():
                assert any(pattern.fullmatch(line) for pattern in patterns), f"no message of Kafka's: {line}"
        elif block.language == "sh":
            for line in block.text.splitlines():
                tool, *words = shlex.split(line)
                options = {word for word in words if word.startswith("--")}
                assert options <= KAFKA_TOOLS[tool], line


def test_records_are_kept_by_age_and_by_size() -> None:
    """Brokers delete by both: `log.retention.bytes` holds for a topic that sets `retention.ms` alone."""
    lines = [line for path in sorted((ROOT / "docs").rglob("*.md")) for line in path.read_text(encoding="utf-8").splitlines()]
    kept = [line for line in lines if "--add-config" in line and "retention.ms=-1" in line]
    assert kept
    assert [line for line in kept if "retention.bytes=-1" not in line] == []


@pytest.mark.parametrize("name", PAGES)
def test_golden_data_stays_as_it_is(name: str) -> None:
    """A command that changes files works on a copy."""
    changing = re.compile(r"(rm|mv|truncate|sed -i|dd|offsetlog (recover|maintain|delete|end-transaction|settings|append)) ")
    for block in blocks(page(name)):
        for command, _ in commands(block) if block.language == "console" else []:
            for part in map(str.strip, re.split(r"&&|\||;", command)):
                is_tried = " --dry-run " in part or (part.startswith("offsetlog settings") and " --config " not in part)
                assert is_tried or not (changing.match(part) and " tests/" in part), part


def test_every_page_is_found() -> None:
    index, contents = page("index"), read("mkdocs.yml")
    for name in PAGES:
        assert f"]({name}.md)" in index
        assert f"symptoms/{name}.md" in contents
    assert "symptoms/index.md" in contents
    assert "](symptoms/index.md)" in read("docs/index.md")
    assert "](docs/symptoms/index.md)" in read("README.md")


def test_a_wrong_output_is_noticed(tmp_path: Path) -> None:
    """The comparison above can fail."""
    (block,) = blocks("```console\n$ echo one\none\n$ echo two >&2; echo three\nthree\ntwo\n$ true\n```\n")
    found = commands(block)
    assert [command for command, _ in found] == ["echo one", "echo two >&2; echo three", "true"]
    shell = Shell(tmp_path)
    assert [shell.printed(command) for command, _ in found] == [output for _, output in found]
    assert shell.printed("echo one; false") != "two\n"
    assert not as_pattern("WARN Stopping serving logs in dir {}").fullmatch("WARN Stopped serving logs in dir /x")
