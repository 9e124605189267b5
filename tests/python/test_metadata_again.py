"""What makes a cluster's topics and settings again: commands for a shell, resources for Strimzi, and nothing secret in either."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import metadata_records as records
import pytest
import yaml
from golden import CLEAN, CLEAN_LOG_DIRS, DATA, OLD_LOG_DIRS

from offsetlog import ConfigError, Log, LogDir, metadata_as_commands, metadata_as_yaml

METADATA = CLEAN / "metadata-dir"
PROGRAMS = ("kafka-topics.sh", "kafka-configs.sh", "kafka-acls.sh")
STUB = """#!{python}
import json, sys
given = sys.stdin.read() if "/dev/stdin" in sys.argv else None
with open({out!r}, "a") as out:
    print(json.dumps([{name!r}, sys.argv[1:], given]), file=out)
"""
ID = bytes(range(1, 17))
OTHER_ID = bytes(range(17, 33))
HOSTILE = 'a\'b "$(touch broken)" `touch broken` \\ $HOME; touch broken #'
RESOURCE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL_VALUE = re.compile(r"(?=.{1,63}$)[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


class Call(NamedTuple):
    """One of Kafka's programs, as a shell called it."""

    program: str
    arguments: list[str]
    given: str | None

    def of(self, option: str) -> list[str]:
        """The values of an option."""
        return [value for name, value in zip(self.arguments, self.arguments[1:], strict=False) if name == option]


Shell: TypeAlias = Callable[[str], list[Call]]


def offsetlog(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "offsetlog", "metadata", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300
    )


def commands(*arguments: str | Path, code: int = 0) -> str:
    printed = offsetlog("--as-commands", *arguments)
    assert printed.returncode == code, printed.stderr
    return printed.stdout


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Runs a script with programs that only note how they were called."""
    folder = tmp_path / "programs"
    folder.mkdir()
    out = tmp_path / "calls"
    for name in PROGRAMS:
        stub = folder / name
        stub.write_text(STUB.format(python=sys.executable, out=str(out), name=name))
        stub.chmod(0o755)

    def run(script: str) -> list[Call]:
        out.write_text("")
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        done = subprocess.run(
            ["sh", "-eu"],
            input=script,
            capture_output=True,
            text=True,
            check=False,
            cwd=work,
            env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"},
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), script
        assert list(work.iterdir()) == []
        return [Call(*json.loads(line)) for line in out.read_text().splitlines()]

    return run


def made(calls: Sequence[Call]) -> dict[str, tuple[list[str], list[str], dict[str, str]]]:
    """By topic: partitions, replicas, settings."""
    return {
        call.of("--topic")[0]: (
            call.of("--partitions"),
            call.of("--replication-factor"),
            dict(pair.split("=", 1) for pair in call.of("--config")),
        )
        for call in calls
        if call.program == "kafka-topics.sh"
    }


def test_commands_make_every_topic_of_a_real_cluster(shell: Shell) -> None:
    with LogDir.open(METADATA) as logs:
        image = logs.metadata()
    assert image is not None
    script = commands(METADATA, "--bootstrap-server", "new:9092")
    calls = shell(script)
    assert made(calls) == {
        topic.name: ([str(len(topic.partitions))], ["1"], image.configs.get(("topic", topic.name), {}))
        for topic in image.topics
        if not topic.name.startswith("__")
    }
    assert {tuple(call.of("--bootstrap-server")) for call in calls} == {("new:9092",)}
    (setting,) = [call for call in calls if call.program == "kafka-configs.sh"]
    assert setting.arguments[2:] == [
        "--alter",
        "--entity-type",
        "brokers",
        "--entity-default",
        "--add-config",
        "min.insync.replicas=1",
    ]
    assert script.count("Topic ids cannot be given") == 1
    assert "# left out: __consumer_offsets: brokers make it for themselves; -t names it\n" in script
    for topic in image.topics:
        if not topic.name.startswith("__"):
            assert f"# {topic.name}: had the topic id {topic.topic_id}\n" in script


def test_some_topics(shell: Shell) -> None:
    """Named ones only, internal ones too; then nothing but topics."""
    script = commands(METADATA, "-t", "__consumer_offsets", "-t", "g-plain", "-t", "none")
    calls = shell(script)
    assert made(calls).keys() == {"__consumer_offsets", "g-plain"}
    assert len(calls) == 2
    assert "# left out: none: neither the metadata nor a directory has it\n" in script
    assert commands(METADATA, "-t", "none", code=1).count("kafka-topics.sh --bootstrap-server") == 0


def test_brokers_of_partitions_when_asked(shell: Shell, tmp_path: Path) -> None:
    place = records.write(
        tmp_path / "metadata",
        [
            records.topic("even", ID),
            records.partition(ID, 1, [2, 3]),
            records.partition(ID, 0, [1, 2]),
            records.topic("moving", OTHER_ID),
            records.partition(OTHER_ID, 0, [1, 2, 3], removing=[1], adding=[3]),
            records.partition(OTHER_ID, 1, [2]),
        ],
    )
    script = commands(place)
    assert made(shell(script)) == {"even": (["2"], ["2"], {}), "moving": (["2"], ["2"], {})}
    assert "# moving: 1 partition was being reassigned: counted are the replicas that it was to have\n" in script
    assert "# moving: its partitions had 1 and 2 replicas" in script
    calls = shell(commands(place, "--replica-assignment"))
    assert [call.of("--replica-assignment") for call in calls] == [["1:2,2:3"], []]
    assert calls[0].of("--partitions") == calls[0].of("--replication-factor") == []


def test_whatever_a_name_or_value_holds_a_shell_passes_it_on(shell: Shell, tmp_path: Path) -> None:
    lines = "two\nlines = more\n"
    place = records.write(
        tmp_path / "metadata",
        [
            records.topic("top", ID),
            records.partition(ID, 0, [1]),
            records.config("topic", "top", "retention.ms", HOSTILE),
            records.config("topic", "top", HOSTILE, "7"),
            records.config("topic", "top", "cleanup.policy", "compact,delete"),
            records.config("topic", "top", "segment.ms", lines),
            records.config("topic", "top", "flush.ms", " 7\n"),
            records.config("topic", "top", "segment.index.bytes", " 4096 "),
            records.topic("bad\nkafka-topics.sh --delete\x1b[", OTHER_ID),
            records.partition(OTHER_ID, 0, [1]),
            records.config("broker", "", "ssl.cipher.suites", "a,b [c]"),
            records.config("broker", "", "ssl.protocol", lines),
            records.config("broker", "", "ssl.provider", HOSTILE),
            records.config("broker", HOSTILE, "log.retention.ms", "7"),
            records.config("broker", "1\n", "log.retention.ms", "7"),
            records.config("group", "it's", "consumer.session.timeout.ms", "45000"),
            records.acl(ID, records.Acl(2, "*", 3, f"User:{HOSTILE}", "*", 3, 3)),
            records.acl(OTHER_ID, records.Acl(2, "x\ntouch broken", 3, "User:eve", "*", 3, 3)),
            records.quota({"client-id": None, "user": HOSTILE}, "producer_byte_rate", 1024.0),
            records.quota({"user": "\x1b"}, "producer_byte_rate", 1024.0),
            records.scram("mallory\ntouch broken", 2, 8192),
        ],
    )
    script = commands(place)
    assert not re.search(r"[^\n -~]", script)
    calls = shell(script)
    topic, of_topic, brokers, broker, group, quota, acl = calls
    assert made([topic])["top"][2] == {"cleanup.policy": "compact,delete"}
    assert of_topic.arguments[3:] == ["--entity-type", "topics", "--entity-name", "top", "--add-config-file", "/dev/stdin"]
    assert properties(of_topic.given) == {"flush.ms": " 7\n", "segment.index.bytes": " 4096 "}
    assert properties(brokers.given) == {"ssl.cipher.suites": "a,b [c]", "ssl.protocol": lines, "ssl.provider": HOSTILE}
    assert (broker.of("--entity-name"), broker.of("--add-config")) == ([HOSTILE], ["log.retention.ms=7"])
    assert (group.of("--entity-type"), group.of("--entity-name")) == (["groups"], ["it's"])
    assert quota.of("--entity-type") == ["users", "clients"]
    assert quota.of("--entity-name") == [HOSTILE]
    assert quota.arguments[-3:] == ["--entity-default", "--add-config", "producer_byte_rate=1024"]
    assert acl.of("--allow-principal") == [f"User:{HOSTILE}"]
    assert acl.of("--topic") == ["*"]
    for left_out in ("bad\\u{a}kafka-topics.sh --delete\\u{1b}[", "settings of broker 1\\u{a}", "x\\u{a}touch broken", "\\u{1b}"):
        assert any(line.startswith("# left out: ") and left_out in line for line in script.splitlines()), left_out


def properties(text: str | None) -> dict[str, str]:
    """A file of Java properties, as `write` of that class escapes it."""
    assert text is not None
    pairs = re.findall(r"(?m)^((?:\\.|[^=\n\\])*)=(.*)$", text)

    def unescaped(found: re.Match[str]) -> str:
        return (
            {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}.get(found[1], found[1]) if found[1][1:] == "" else chr(int(found[1][1:], 16))
        )

    return {name: re.sub(r"\\(u[0-9A-Fa-f]{4}|.)", unescaped, value) for name, value in pairs}


def test_no_secret_is_printed_and_all_is_told(shell: Shell, tmp_path: Path) -> None:
    place = records.write(
        tmp_path / "metadata",
        [
            records.topic("top", ID),
            records.partition(ID, 0, [1]),
            records.config("topic", "top", "plugin.token", "s3cret-plugin"),
            records.config("broker", "1", "listener.name.x.ssl.keystore.password", "s3cret-keystore"),
            records.config("broker", "1", "listener.name.x.ssl.keystore.location", "/keys"),
            records.config("broker", "1", "listener.name.x.plain.sasl.jaas.config", "s3cret-jaas"),
            records.scram("alice", 1, 4096),
        ],
    )
    for option in ("--as-commands", "--as-yaml", "--configs", "--json"):
        printed = offsetlog(option, place)
        assert "s3cret" not in printed.stdout + printed.stderr, option
    script = commands(place)
    assert "# top: left out: plugin.token: Kafka 4.3 has no such setting\n" in script
    assert "listener.name.x.plain.sasl.jaas.config, listener.name.x.ssl.keystore.password\n" in script
    assert (
        "# kafka-configs.sh --bootstrap-server localhost:9092 --alter --entity-type users --entity-name alice"
        " --add-config 'SCRAM-SHA-256=[iterations=4096,password=...]'\n"
    ) in script
    assert [call.of("--add-config") for call in shell(script)] == [[], ["listener.name.x.ssl.keystore.location=/keys"]]
    shown = commands(place, "--show-secrets")
    assert {f"s3cret-{each}" for each in ("plugin", "keystore", "jaas")} == set(re.findall(r"s3cret-\w+", shown))
    assert "s3cret-plugin" in offsetlog("--as-yaml", place, "--show-secrets").stdout


def test_configs_are_hidden_as_a_broker_hides_them(tmp_path: Path) -> None:
    place = records.write(
        tmp_path,
        [
            records.topic("top", ID),
            records.config("topic", "top", "retention.ms", "7"),
            records.config("broker", "", "ssl.key.password", "s3cret"),
            records.config("broker", "", "my.plugin", "s3cret"),
            records.config("broker", "", "log.retention.ms", "7"),
        ],
    )
    rows = [tuple(line.split()) for line in offsetlog("--configs", place).stdout.splitlines()[1:]]
    assert rows == [
        ("broker", "-", "log.retention.ms", "7"),
        ("broker", "-", "my.plugin", "[hidden]"),
        ("broker", "-", "ssl.key.password", "[hidden]"),
        ("topic", "top", "retention.ms", "7"),
    ]
    line = json.loads(offsetlog("--configs", "--json", place).stdout.splitlines()[0])
    assert line["configs"] == {"log.retention.ms": "7", "my.plugin": "[hidden]", "ssl.key.password": "[hidden]"}
    assert offsetlog("--configs", "--show-secrets", place).stdout.count("s3cret") == 2
    with LogDir.open(place) as logs:
        hidden, shown = logs.metadata(), logs.metadata(show_secrets=True)
    assert hidden is not None
    assert shown is not None
    assert hidden.configs["broker", ""]["ssl.key.password"] == "[hidden]"
    assert shown.configs["broker", ""]["ssl.key.password"] == "s3cret"


def test_access_control_quotas_and_users_are_in_the_image(tmp_path: Path) -> None:
    place = records.write(
        tmp_path,
        [
            records.acl(ID, records.Acl(3, "team-", 4, "User:a", "10.0.0.1", 3, 2)),
            records.acl(OTHER_ID, records.Acl(2, "x", 3, "User:b", "*", 4, 3)),
            records.record(19, OTHER_ID),
            records.quota({"client-id": "c", "user": None}, "producer_byte_rate", 1.5),
            records.quota({"ip": "::1"}, "connection_creation_rate", 2.0),
            records.quota({"ip": "::1"}, "connection_creation_rate", 0.0, remove=True),
            records.scram("alice", 1, 4096),
            records.scram("bob", 2, 8192),
            records.record(22, records.text("bob") + b"\2"),
        ],
    )
    with LogDir.open(place) as logs:
        image = logs.metadata()
    assert image is not None
    assert image.acls == ((3, "team-", 4, "User:a", "10.0.0.1", 3, 2),)
    assert image.client_quotas == (((("user", None), ("client-id", "c")), {"producer_byte_rate": 1.5}),)
    assert image.scram_credentials == (("alice", 1, 4096),)
    script = commands(place)
    assert "--deny-principal User:a --deny-host 10.0.0.1 --operation Read --group team- --resource-pattern-type prefixed\n" in script


def test_without_metadata_the_directories_tell_what_they_can(shell: Shell) -> None:
    """A real cluster's log dirs: every topic has as many partitions as the metadata says, since all of them are here."""
    with LogDir.open(METADATA) as logs:
        image = logs.metadata()
    assert image is not None
    printed = offsetlog("--as-commands", *CLEAN_LOG_DIRS)
    assert printed.returncode == 0
    assert "no metadata of the cluster here" in printed.stderr
    calls = shell(printed.stdout)
    assert made(calls) == {
        topic.name: ([str(len(topic.partitions))], [], {}) for topic in image.topics if not topic.name.startswith("__")
    }
    assert len(calls) == len(made(calls))
    for topic in image.topics:
        if not topic.name.startswith("__"):
            assert f"# {topic.name}: had the topic id {topic.topic_id}\n" in printed.stdout
            assert f"# {topic.name}: replication factor unknown: " in printed.stdout
            assert f"# {topic.name}: number of partitions unknown: " in printed.stdout


def test_three_brokers_with_zookeeper_and_without_its_data() -> None:
    script = commands(*OLD_LOG_DIRS)
    assert "# first: replication factor unknown, at least 2: " in script
    assert "# first: number of partitions unknown: 3 partitions here, the last one is 2, and there may have been more\n" in script


def test_topics_out_of_zookeepers_data(shell: Shell) -> None:
    script = commands(DATA / "kafka-3.9.2-zookeeper" / "zookeeper")
    topics = made(shell(script))
    assert topics["plain"][:2] == (["2"], ["1"])
    assert topics["own"][2]["cleanup.policy"] == "compact,delete"


def test_damaged_metadata_leaves_the_directories(tmp_path: Path, shell: Shell) -> None:
    place = tmp_path / "metadata"
    shutil.copytree(METADATA, place)
    segment = place / "__cluster_metadata-0" / "00000000000000000000.log"
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    for option in ("--as-commands", "--as-yaml"):
        printed = offsetlog(option, *CLEAN_LOG_DIRS, place)
        assert printed.returncode == 2
        assert "the metadata cannot be read" in printed.stderr
        assert "# WARNING: the metadata cannot be read" in printed.stdout
        assert "g-plain" in printed.stdout
    assert made(shell(commands(*CLEAN_LOG_DIRS, place, code=2))).keys() == made(shell(commands(*CLEAN_LOG_DIRS))).keys()


def test_a_topic_that_only_the_directories_have_is_told(tmp_path: Path) -> None:
    shutil.copytree(CLEAN_LOG_DIRS[0] / "g-plain-0", tmp_path / "log-dir" / "gone-0")
    script = commands(METADATA, tmp_path / "log-dir" / "gone-0")
    assert "# left out: gone: its directories are here, and the metadata does not have it" in script


def resources(*arguments: str | Path) -> list[dict[str, Any]]:
    printed = offsetlog("--as-yaml", *arguments)
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout.isascii()
    found = [each for each in yaml.safe_load_all(printed.stdout) if each is not None]
    for each in found:
        check_fits_the_definition(each)
    return found


def check_fits_the_definition(resource: dict[str, Any]) -> None:
    """What Strimzi's definition of KafkaTopic, version v1, takes: Kubernetes refuses or drops all else."""
    assert (resource["apiVersion"], resource["kind"]) == ("kafka.strimzi.io/v1", "KafkaTopic")
    assert resource.keys() == {"apiVersion", "kind", "metadata", "spec"}
    metadata, spec = resource["metadata"], resource["spec"]
    assert metadata.keys() == {"name", "labels"}
    assert RESOURCE_NAME.fullmatch(metadata["name"])
    assert len(metadata["name"]) <= 253
    assert all(LABEL_VALUE.fullmatch(value) for value in metadata["labels"].values())
    assert spec.keys() <= {"topicName", "partitions", "replicas", "config"}
    assert isinstance(spec.get("topicName", ""), str)
    for name, most in (("partitions", 2**31 - 1), ("replicas", 32767)):
        assert type(spec.get(name, 1)) is int, name
        assert 1 <= spec.get(name, 1) <= most, name
    assert isinstance(spec.get("config", {}), dict)


def test_resources_for_every_topic_of_a_real_cluster() -> None:
    with LogDir.open(METADATA) as logs:
        image = logs.metadata()
    assert image is not None
    found = resources(METADATA, "--strimzi-cluster", "rescued")
    topics = [topic for topic in image.topics if not topic.name.startswith("__")]
    assert len({each["metadata"]["name"] for each in found}) == len(found) == len(topics)
    for each, topic in zip(found, topics, strict=True):
        name = each["metadata"]["name"]
        assert each["metadata"]["labels"] == {"strimzi.io/cluster": "rescued"}
        spec = each["spec"]
        assert spec.get("topicName", name) == topic.name
        assert ("topicName" in spec) == (RESOURCE_NAME.fullmatch(topic.name) is None)
        assert (spec["partitions"], spec["replicas"]) == (len(topic.partitions), 1)
        assert spec.get("config", {}) == image.configs.get(("topic", topic.name), {})


def test_resources_have_exactly_the_names(tmp_path: Path) -> None:
    """Whatever YAML makes of words and numbers. Values are those that Kafka takes: none has quotes or characters beyond 16 bits."""
    values = ["+7", "0", "00", "010", "9223372036854775807"]
    for number, value in enumerate(values):
        place = tmp_path / str(number)
        given = {"retention.ms": value, "cleanup.policy": "", "flush.ms": f" {value or 1}1\t"}
        records.write(
            place,
            [
                records.topic("Top_", ID),
                records.partition(ID, 0, [1]),
                records.topic("top-", OTHER_ID),
                records.partition(OTHER_ID, 0, [1]),
                *(records.config("topic", "Top_", name, value) for name, value in given.items()),
            ],
        )
        one, other = resources(place)
        assert {name: one["spec"]["config"].get(name) for name in ("retention.ms",)} == {"retention.ms": value}
        assert (one["spec"]["topicName"], other["spec"]["topicName"]) == ("Top_", "top-")
        assert one["metadata"]["name"] != other["metadata"]["name"]


def strayed(place: Path, *numbers: int) -> Path:
    """Copies of partitions of g-plain, some of which a broker has set aside."""
    for log_dir in CLEAN_LOG_DIRS:
        for path in log_dir.glob("g-plain-*"):
            number = int(path.name.rpartition("-")[2])
            shutil.copytree(path, place / (path.name + f".{'0' * 31}1-stray" * (number in numbers)))
    shutil.copy(CLEAN_LOG_DIRS[0] / "meta.properties", place)
    return place


def test_partitions_that_were_set_aside_count(tmp_path: Path) -> None:
    """A broker that lost its metadata sets all aside: a topic with fewer partitions would have keys elsewhere."""
    (tmp_path / "a").mkdir()
    text = metadata_as_commands(strayed(tmp_path / "a", 2), topics="g-plain")
    assert "--create --topic g-plain --partitions 3" in text
    assert "of partition 2 only directories are here that a broker set aside (-stray)" in text
    (tmp_path / "b").mkdir()
    place = strayed(tmp_path / "b", 0, 1, 2)
    assert "--create --topic g-plain --partitions 3" in metadata_as_commands(place, topics="g-plain")
    # Of another topic of the name.
    stray = next((tmp_path / "a").glob("g-plain-2.*"))
    (stray / "partition.metadata").write_text("version: 0\ntopic_id: AQIDBAUGBwgJCgsMDQ4PEA\n")
    assert "--create --topic g-plain --partitions 2" in metadata_as_commands(tmp_path / "a", topics="g-plain")


def test_resources_of_a_part_of_the_metadata_say_so(tmp_path: Path) -> None:
    records.write(tmp_path, [records.topic("a", bytes(range(16))), records.partition(bytes(range(16)), 0, [1])])
    with Log.open(tmp_path / "__cluster_metadata-0", "a", internal_topics=["__cluster_metadata"]) as log:
        log.append_records([(None, records.topic("b", bytes(range(1, 17))))])
        log.roll()
        log.delete_records_before(1)
    for text in (metadata_as_commands(tmp_path), metadata_as_yaml(tmp_path)):
        assert "WARNING: a part of the metadata is missing, and what it said" in text


def test_resources_without_metadata_have_no_replicas() -> None:
    found = {each["metadata"]["name"]: each["spec"] for each in resources(*CLEAN_LOG_DIRS)}
    assert found["g-plain"] == {"partitions": 3}


@pytest.mark.parametrize("name", ["", "bad name", "New", "-new", "x" * 64, "a_b", "a: b"])
def test_a_name_that_no_kafka_resource_has_is_refused(name: str) -> None:
    printed = offsetlog("--as-yaml", METADATA, f"--strimzi-cluster={name}")
    assert (printed.returncode, printed.stdout) == (2, "")
    assert "strimzi_cluster: a Kafka resource has at most 63 lower-case letters" in printed.stderr
    with pytest.raises(ConfigError, match="strimzi_cluster: ") as caught:
        metadata_as_yaml(METADATA, strimzi_cluster=name)
    assert caught.value.key == "strimzi_cluster"


def test_json_is_refused() -> None:
    for option in ("--as-commands", "--as-yaml"):
        printed = offsetlog(option, "--json", METADATA)
        assert printed.returncode == 2
        assert f"'{option}' cannot be used with '--json'" in printed.stderr


def test_nothing_is_changed(tmp_path: Path) -> None:
    place = tmp_path / "clean"
    shutil.copytree(CLEAN, place)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in place.rglob("*")}
    for option in ("--as-commands", "--as-yaml", "--directories"):
        assert offsetlog(option, *(place / each.name for each in (*CLEAN_LOG_DIRS, METADATA))).returncode == 0
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in place.rglob("*")} == before


def test_python_gives_the_same_texts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert metadata_as_commands(METADATA) == commands(METADATA)
    given = {"topics": ["g-plain"], "bootstrap_server": "new:9092", "replica_assignment": True, "show_secrets": True}
    options = ("-t", "g-plain", "--bootstrap-server", "new:9092", "--replica-assignment", "--show-secrets")
    assert metadata_as_commands(METADATA, **given) == commands(METADATA, *options)  # type: ignore[arg-type]  # by name
    printed = offsetlog("--as-yaml", METADATA, "-t", "g-plain", "--strimzi-cluster", "new")
    assert metadata_as_yaml(METADATA, topics="g-plain", strimzi_cluster="new") == printed.stdout
    damaged = tmp_path / "damaged"
    shutil.copytree(METADATA, damaged)
    segment = damaged / "__cluster_metadata-0" / "00000000000000000000.log"
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    assert metadata_as_commands(damaged, CLEAN_LOG_DIRS[0]) == commands(damaged, CLEAN_LOG_DIRS[0], code=2)
    assert "the metadata cannot be read" in caplog.text
    with pytest.raises(TypeError):
        metadata_as_yaml(METADATA, topics=[3])  # type: ignore[list-item]  # as a mistake
