"""Which settings a cluster's topics get again: those that Kafka 4.3 takes, as it said itself of every setting and of many values. One that it
refuses would keep the whole topic from being made.
"""

from __future__ import annotations

import itertools
import json
import shlex
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import metadata_records as records
import pytest
import yaml
from restoring import formatted, metadata_values
from test_metadata_again import properties

from offsetlog import Log, restore

KAFKA: dict[str, Any] = json.loads((Path(__file__).resolve().parents[1] / "data/settings/kafka-4.3.0.json").read_text())
REFUSED_HERE = {
    "flush.ms": ["\u0663"],
    "index.interval.bytes": ["\u0663"],
    "internal.segment.bytes": ["-1", "-2", "-2147483648"],
    "min.cleanable.dirty.ratio": ["+NaN", "0x.8p0", "0x1p-1", "NaN"],
    "preallocate": ["fal\u017fe"],
    "segment.index.bytes": [" 5 ", "11", "4", "5", "8"],
}
"""What Kafka takes and offsetlog does not, as docs/settings.md says: with most of them a broker does not work."""
THROTTLES = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def metadata(*words: object) -> str:
    command = [sys.executable, "-m", "offsetlog", "metadata", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def with_topics(place: Path, topics: dict[str, dict[str, str]]) -> Path:
    values = []
    for number, (name, configs) in enumerate(topics.items(), 1):
        values += [records.topic(name, topic_id(number)), records.partition(topic_id(number), 0, [1])]
        values += [records.config("topic", name, *pair) for pair in configs.items()]
    return records.write(place, values)


def by_resources(place: Path) -> dict[str, dict[str, str]]:
    found = filter(None, yaml.safe_load_all(metadata("--as-yaml", place)))
    return {each["spec"].get("topicName", each["metadata"]["name"]): each["spec"].get("config", {}) for each in found}


def by_commands(place: Path) -> dict[str, dict[str, str]]:
    made: dict[str, dict[str, str]] = {}
    text = metadata("--as-commands", place)
    lines = iter(text.splitlines(keepends=True))
    for line in lines:
        if line.startswith("kafka-topics.sh"):
            words = shlex.split(line)
            pairs = [value for name, value in itertools.pairwise(words) if name == "--config"]
            made[words[words.index("--topic") + 1]] = dict(pair.split("=", 1) for pair in pairs)
        elif line.startswith("kafka-configs.sh") and line.endswith("<<'EOF'\n"):
            words = shlex.split(line.replace("<<'EOF'", ""))
            file = "".join(iter(lambda: next(lines), "EOF\n"))
            made[words[words.index("--entity-name") + 1]] |= properties(file)
    return made


def test_topics_get_what_kafka_takes_and_nothing_else(tmp_path: Path) -> None:
    topics: dict[str, dict[str, str]] = {}
    expected: dict[str, dict[str, str]] = {}
    for setting, answers in KAFKA["single"].items():
        for value in (*answers["accepted"], *answers["refused"]):
            name = f"t{len(topics)}"
            topics[name] = {setting: value, "flush.messages": "7"} if setting != "flush.messages" else {setting: value}
            is_taken = value in answers["accepted"] and value not in REFUSED_HERE.get(setting, []) and setting not in THROTTLES
            expected[name] = {key: text for key, text in topics[name].items() if key != setting or is_taken}
    for setting in KAFKA["unknown"]:
        name = f"t{len(topics)}"
        topics[name] = {setting: "1", "flush.messages": "7"}
        expected[name] = {"flush.messages": "7"}
    assert len(topics) > 300
    place = with_topics(tmp_path / "metadata", topics)
    assert by_resources(place) == expected
    assert by_commands(place) == expected
    for text in (metadata("--as-yaml", place), metadata("--as-commands", place)):
        comments = [line for line in text.splitlines() if line.startswith("# t")]
        left_out = {line.split(":")[0].removeprefix("# ") for line in comments if ": left out: " in line}
        assert left_out == {name for name, configs in topics.items() if configs != expected[name]}


def test_settings_that_contradict_each_other(tmp_path: Path) -> None:
    topics = {f"t{number}": configs for number, (configs, *_) in enumerate(KAFKA["combined"])}
    accepted = {f"t{number}": is_taken for number, (_, is_taken, *_) in enumerate(KAFKA["combined"])}
    assert {*accepted.values()} == {True, False}
    found = by_resources(with_topics(tmp_path / "metadata", topics))
    assert {name: configs == topics[name] for name, configs in found.items()} == accepted


def test_what_is_left_out_is_named_with_the_reason(tmp_path: Path) -> None:
    place = records.write(
        tmp_path / "metadata",
        [
            records.topic("top", topic_id(1)),
            records.partition(topic_id(1), 0, [1]),
            records.config("topic", "top", "segment.bytes", "4096"),
            records.config("topic", "top", "message.format.version", "2.3-IV1"),
            records.config("topic", "top", "leader.replication.throttled.replicas", "0:1"),
            records.config("broker", "1", "leader.replication.throttled.rate", "1000"),
            records.config("broker", "1", "log.retention.ms", "7"),
            records.config("broker", "", "follower.replication.throttled.rate", "1000"),
        ],
    )
    script = metadata("--as-commands", place).splitlines()
    limit = "it limits a reassignment, and in a new cluster nothing would remove it"
    for line in (
        "# top: left out: message.format.version=2.3-IV1: Kafka 4.3 has no such setting",
        f"# top: left out: leader.replication.throttled.replicas=0:1: {limit}",
        f"# broker 1: left out: leader.replication.throttled.rate=1000: {limit}",
        f"# all of brokers: left out: follower.replication.throttled.rate=1000: {limit}",
    ):
        assert line in script
    assert any(line.startswith("# top: left out: segment.bytes=4096: the value is refused: ") for line in script)
    assert [line.rpartition(" ")[2] for line in script if line.startswith("kafka-configs.sh")] == ["log.retention.ms=7"]


def test_a_new_clusters_first_records_have_no_such_setting(tmp_path: Path) -> None:
    """A broker cannot open a log whose topic has a value that it refuses."""
    with Log.open(tmp_path / "old/top-0", "a") as log:
        log.append(b"value")
    configs = {"segment.bytes": "4096", "message.format.version": "2.3-IV1", THROTTLES[0]: "0:1", "flush.ms": "7"}
    place = with_topics(tmp_path / "metadata", {"top": configs})
    into = formatted(tmp_path / "new")
    report = restore([tmp_path / "old", place], into, new_cluster=True)
    values = metadata_values(into / "bootstrap.checkpoint")
    assert {name: records.config("topic", "top", name, value) in values for name, value in configs.items()} == {
        name: name == "flush.ms" for name in configs
    }
    reasons = [each.reason for each in report.remaining if each.about == "top"]
    for name in configs.keys() - {"flush.ms"}:
        assert any(reason.startswith(f"left out of its settings: {name}={configs[name]}: ") for reason in reasons), name


def zookeeper(place: Path, nodes: dict[str, str | None]) -> Path:
    """A server's transaction log that creates these nodes (FORMAT.md)."""
    out = b"ZKLG" + struct.pack(">iq", 2, 0)
    for number, (path, data) in enumerate(nodes.items(), 1):
        value = struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data.encode()
        body = struct.pack(">i", len(path)) + path.encode() + value + struct.pack(">i", -1) + b"\0" + struct.pack(">i", 1)
        entry = struct.pack(">qiqqi", 1, 1, number, 1_700_000_000_000 + number, 1) + body
        out += struct.pack(">qi", zlib.adler32(entry), len(entry)) + entry + b"B"
    (place / "version-2").mkdir(parents=True)
    (place / "version-2" / "log.1").write_bytes(out + bytes(64))
    return place


@pytest.mark.parametrize("option", ["--as-commands", "--as-yaml"])
def test_a_topic_that_was_to_be_deleted_is_not_made_again(option: str, tmp_path: Path) -> None:
    """A file that the script is kept in has no standard error beside it."""
    topic = json.dumps({"version": 3, "partitions": {"0": [1]}})
    parents = dict.fromkeys(("/brokers", "/brokers/topics", "/config", "/config/topics", "/admin", "/admin/delete_topics", "/cluster"))
    nodes = {"/cluster/id": '{"version":"1","id":"AAAAAAAAAAAAAAAAAAAAAA"}', "/admin/delete_topics/gone": None}
    for name in ("gone", "keep"):
        nodes[f"/brokers/topics/{name}"] = topic
    place = zookeeper(tmp_path / "zookeeper", {**parents, **nodes})
    text = metadata(option, place)
    assert "# left out: gone: the cluster was about to delete it (/admin/delete_topics); -t names it\n" in text
    made = [line for line in text.splitlines() if "--create --topic" in line or line.strip().startswith("name:")]
    assert len(made) == 1
    assert "keep" in made[0]
    # Whoever names it wants it.
    text = metadata(option, place, "-t", "gone")
    assert "# gone: the cluster was about to delete it (/admin/delete_topics)\n" in text
    assert "gone" in next(line for line in text.splitlines() if "--create --topic" in line or line.strip().startswith("name:"))
