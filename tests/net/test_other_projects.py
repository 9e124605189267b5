"""The integration tests of other projects' clients: those that pass on a 4.3.0 broker pass on `serve` over that broker's directories.

They produce what they read, so one address stands for two servers (splitting.py): what writes goes to the broker, what reads to `serve`,
which follows the directories of the running broker. The same tests at the same kind of address with the broker alone say what can pass.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
from asking import OF_OLD
from client_programs import OLD_LZ4, PROGRAMS
from served import Kafka, serving
from splitting import Splitter

from broker import ROOT, Broker, run

pytestmark = pytest.mark.proof

SUITES = ROOT / "build" / "net-suites"
ENOUGH = 0.95
SECONDS = 1500

Outcomes = dict[str, str]


class Suite(NamedTuple):
    """Tests of one client."""

    name: str
    run: Callable[[str, Path], Outcomes]
    reasons: Mapping[str, str]
    """Regular expressions for tests that may pass on a broker alone, and why."""
    at_least: int
    """So many pass on a broker, or it was not the suite."""
    settings: Mapping[str, object] = {"num.partitions": 4}
    """The broker's, for topics as the tests count on them."""


class LeftOut(NamedTuple):
    """Tests of a client that are not run, by their names alone."""

    suite: str
    number: int
    names: str
    """A regular expression."""
    reason: str


LEFT_OUT = (
    LeftOut("kafka-python", 17, r"test/integration/test_producer_integration\.py::.*", "produce"),
    LeftOut(
        "kafka-python",
        11,
        r"test/integration/test_(sasl|ssl)_integration\.py::.*",
        "start a broker of their own, and skip themselves where one is given",
    ),
    LeftOut(
        "kafka-python",
        8,
        r"test/integration/test_admin_integration\.py::test_(create|delete_records|elect|alter).*",
        "change topics, records, leaders, log dirs or access",
    ),
    LeftOut(
        "kafka-python",
        5,
        r"test/integration/test_admin_integration\.py::test_(describe_metadata_quorum|list_(partition_reassignments|config_resources)|describe_topic_partitions).*",
        "ask by APIs that are not announced",
    ),
    LeftOut("aiokafka", 66, r"tests/test_(producer|sender|transactional_producer)\.py::.*", "produce"),
    LeftOut("aiokafka", 32, r"tests/test_(client|conn)\.py::.*", "are of its connections, below consumers and groups"),
    LeftOut("aiokafka", 19, r"tests/test_(sasl\.py::.*|consumer\.py::.*_ssl_consume)", "need a broker with users or TLS of their own"),
    LeftOut("aiokafka", 5, r"tests/test_admin\.py::.*_(alter|create|delete)_.*", "change topics, records or settings"),
    LeftOut("franz-go", 109, r"", "need no broker"),
    LeftOut("franz-go", 3, r"Test(OAuthAuth|SCRAMAuth|SCRAMAuthBadCredentials)", "skip themselves at a server without users"),
    LeftOut("franz-go", 3, r"Test(Client_Produce|Client_ProduceLargeMessages|TxnEtl)", "produce, also in transactions"),
    LeftOut(
        "franz-go",
        6,
        r"Test(848RegexBrokerResolves|ConsumeRegexShareSkipsInternal|ShareGroup|ShareGroup(AckOnClose|ETL|OffsetsAdmin))",
        "are of groups by other protocols: `group.protocol=consumer`, share groups",
    ),
)
"""What each client tests with a broker, and `serve` is not asked to pass: chosen by what it is about, before anything is run."""


def pytests(plugin: str, source: Path, folder: Path, environment: Mapping[str, str], *arguments: str) -> Outcomes:
    """Those of a Python client, in its environment, with a plugin of ours that tells them where the broker is."""
    results = folder / "results.xml"
    command = [str(ROOT / ".venv-clients" / "bin" / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", plugin]
    command += ["-o", "log_level=WARNING", f"--junitxml={results}", "--timeout=300", *arguments]
    with (folder / "output").open("wb") as output:
        subprocess.run(
            command,
            cwd=source,
            env={**os.environ, "PYTHONPATH": str(PROGRAMS), **environment},
            stdout=output,
            stderr=output,
            timeout=SECONDS,
            check=False,
        )
    found = {}
    for case in ElementTree.parse(results).iter("testcase"):  # noqa: S314  # pytest wrote it
        kinds = {child.tag for child in case}
        found[str(case.get("name"))] = "skip" if "skipped" in kinds else "fail" if kinds & {"failure", "error"} else "pass"
    return found


# The others are in LEFT_OUT.
OF_KAFKA_PYTHON = (
    "consumer_integration or describe_configs or describe_group or describe_log_dirs or delete_groups or list_partition_offsets"
)


def kafka_python(address: str, folder: Path) -> Outcomes:
    """Its consumer's tests, and those of its admin client that ask, or delete groups."""
    (source,) = SUITES.glob("kafka_python-*/")
    environment = {"KAFKA_VERSION": "4.3.0", "KAFKA_URI": f"kafka://{address}"}
    files = [f"test/integration/test_{name}_integration.py" for name in ("consumer", "admin")]
    chosen = ("--import-mode=importlib", "-k", OF_KAFKA_PYTHON, *files)
    return pytests("kafka_python_suite", source, folder, environment, *chosen)


AIOKAFKA = "OFFSETLOG_AIOKAFKA"
"""Names a checkout of aiokafka. Its tests are in none of its packages: since 0.1.0 its sdists exclude them."""


def of_aiokafka(source: Path) -> None:
    """Its tests, beside the installed package and not beside the sources of the same name."""
    if AIOKAFKA not in os.environ:
        pytest.skip(
            f"aiokafka's tests are in none of its packages: {AIOKAFKA} names a checkout of the version in requirements/clients.txt"
        )
    checkout = Path(os.environ[AIOKAFKA])
    version = re.search(r'^__version__ = "(.+)"', (checkout / "aiokafka" / "__init__.py").read_text(encoding="utf-8"), re.MULTILINE)
    pinned = (ROOT / "requirements" / "clients.txt").read_text(encoding="utf-8")
    assert version is not None
    assert f"aiokafka=={version[1]} " in pinned, f"{checkout} has the tests of {version[1]}"
    shutil.copytree(checkout / "tests", source / "tests")


AS_A_BROKER = ("-o", "asyncio_mode=auto", "--docker-image", "none:0_4.3.0", "--no-pull")
# The others are in LEFT_OUT.
OF_AIOKAFKA = (
    "-k",
    "not ssl_consume and (not TestAdmin or describe or list or metadata)",
    *(f"tests/test_{name}.py" for name in ("consumer", "transactional_consumer", "pep492", "coordinator", "admin")),
)


def aiokafka(address: str, folder: Path) -> Outcomes:
    """Its consumer's tests, also of groups and transactions, and those of its admin client that only ask."""
    source = folder / "source"
    of_aiokafka(source)
    return pytests("aiokafka_suite", source, folder, {"KAFKA_ADDRESS": address}, *AS_A_BROKER, *OF_AIOKAFKA)


OF_FRANZ_GO = "^Test(Issue|Consume|DirectPart|AddRemove|Pause|Pooling|GroupSimple|GroupETL|Ping|UnknownGroupOffset|PollWait|HookPoll)"
NOT_ANNOUNCED = "Share|TestGroupSimple/848|TestGroupETL/.*/848"
"""Share groups (KIP-932) and groups of the new protocol (KIP-848): other APIs than those of consumer groups that `serve` announces."""


def of_franz_go() -> Path:
    """The program of its tests."""
    program = SUITES / "kgo.test"
    if not program.exists():
        pytest.skip("franz-go's tests were not built: they need Go 1.26 (build/net-suites/kgo.txt)")
    return program


def franz_go(address: str, folder: Path) -> Outcomes:
    """Its tests of consuming, alone and in groups."""
    program = of_franz_go()
    settings = {"KGO_SEEDS": address, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "5000", "KGO_TEST_MAX_TOPIC_PARTS": "4"}
    output = folder / "output"
    with output.open("wb") as into:
        subprocess.run(
            [str(program), "-test.v", f"-test.timeout={SECONDS - 20}s", f"-test.run={OF_FRANZ_GO}", f"-test.skip={NOT_ANNOUNCED}"],
            cwd=SUITES,
            env={**os.environ, **settings, "KGO_LOG_LEVEL": "none"},
            stdout=into,
            stderr=into,
            timeout=SECONDS,
            check=False,
        )
    lines = output.read_text(encoding="utf-8", errors="replace")
    return {name: outcome.lower() for outcome, name in re.findall(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", lines, re.MULTILINE)}


LIBRDKAFKA = "OFFSETLOG_LIBRDKAFKA"
"""Names a folder of librdkafka's sources with its tests built. They are in none of the packages of its clients: `tests/net/librdkafka.sh`."""

# Consuming, offsets and groups. The others produce, need no broker, or are of transactions, users and what changes topics.
OF_LIBRDKAFKA = (
    "0012,0013,0015,0018,0019,0022,0026,0029,0030,0031,0033,0034,0036,0041,0042,0045,0050,0051,0054,0056,0061,0067,"
    "0070,0073,0082,0083,0085,0089,0093,0099,0100,0102,0107,0112,0113,0116,0118,0120,0122,0130,0132,0137,0140,0153"
)
AS_QUICK = ("-p6", "-Q", "-L", "-K", "-E")
"""Six at a time; in quick mode; none that need no broker, have known issues, or want a network that fails."""


def librdkafka(address: str, folder: Path) -> Outcomes:
    """Its tests of consuming, offsets and groups, in its quick mode."""
    if LIBRDKAFKA not in os.environ:
        pytest.skip(f"librdkafka's tests are in none of its packages: {LIBRDKAFKA} names a folder that tests/net/librdkafka.sh made")
    root = Path(os.environ[LIBRDKAFKA]).resolve()
    configuration = folder / "test.conf"
    configuration.write_text(f"metadata.broker.list={address}\ntest.topic.random=true\n", encoding="utf-8")
    settings = {"TESTS": OF_LIBRDKAFKA, "TEST_KAFKA_VERSION": "4.3.0", "CI": "true", "RDKAFKA_TEST_CONF": str(configuration)}
    output = folder / "output"
    with output.open("wb") as into:
        subprocess.run(
            [str(root / "tests" / "test-runner"), *AS_QUICK],
            cwd=folder,
            env={**os.environ, **settings},
            stdout=into,
            stderr=into,
            timeout=SECONDS,
            check=False,
        )
    return outcomes_of_librdkafka(output.read_text(encoding="utf-8", errors="replace"))


def outcomes_of_librdkafka(said: str) -> Outcomes:
    """By what each test says at its end: after a failure the program aborts in the middle of its table.

    A test of which quick mode leaves out every part passes after no time. It counts as skipped.
    """
    lines = re.sub(r"\x1b\[[0-9;]*m", "", said)
    found = {
        name: "pass" if float(seconds) > 0 else "skip"
        for seconds, name in re.findall(r"^\[[^/\]]+/ *([\d.]+)s\] =+ Test (\d{4}_\w+) PASSED =+$", lines, re.MULTILINE)
    }
    return found | dict.fromkeys(re.findall(r'^### Test "(\d{4}_\w+)" failed at', lines, re.MULTILINE), "fail")


def test_what_librdkafkas_tests_say_is_read() -> None:
    said = (
        "\x1b[36m[0018_cgrp_term              /  0.000s] \x1b[32m================= Test 0018_cgrp_term PASSED =================\x1b[0m\n"
        "\x1b[36m[0122_buffer_cleaning_after_rebalance/  4.654s] ====== Test 0122_buffer_cleaning_after_rebalance PASSED ======\n"
        '\x1b[0m\x1b[31m### Test "0083_cb_event" failed at 0083-cb_event.c:203:main_0083_cb_event() at Sun Nov 29 23:38:15 2026: ###\n'
        '\x1b[31m### Test "<MAIN>" failed at test.c:1798:test_wait_exit() at Sun Nov 29 23:38:32 2026: ###\n'
        "|\x1b[36m 0153_memberid                            |    SKIPPED |   0.000s \x1b[0m|\n"
    )
    wanted = {"0018_cgrp_term": "skip", "0122_buffer_cleaning_after_rebalance": "pass", "0083_cb_event": "fail"}
    assert outcomes_of_librdkafka(said) == wanted


ALL = (
    Suite(
        "kafka-python",
        kafka_python,
        {r"test_kafka_version_infer": "it knows 4.3 by an API that is not announced"},
        24,
    ),
    Suite(
        "aiokafka",
        aiokafka,
        {
            r"test_(list_topics|describe_configs_topic)": "they ask for a topic that was just made, which `serve` sees within a second",
            r"test_consumer_transactional_(abort|read_only_control_record)": "they wait a second for the end of committed records: beside"
            " a running broker that is the high watermark that it wrote last, up to five seconds ago",
            r"test_kip_345_enabled": "it looks at a member's partitions before that has joined again, at a broker too if the machine is busy",
        },
        100,
        # A topic that is asked for is made, which the tests count on.
        {"num.partitions": 2, "auto.create.topics.enable": "true"},
    ),
    Suite(
        "franz-go",
        franz_go,
        {},
        37,
    ),
    Suite(
        "librdkafka",
        librdkafka,
        {
            r"0056_balanced_group_mt": "it ends at the first end of each partition: beside a running broker that is the high watermark that it"
            " wrote last, up to five seconds ago",
            r"0083_cb_event": "it waits three seconds for the records: beside a running broker `serve` knows its high watermark up to five"
            " seconds later",
        },
        25,
        # As it comes: 0118 counts on two members that join together. The first coordinator is there at once.
        {
            "num.partitions": 4,
            "auto.create.topics.enable": "true",
            "group.initial.rebalance.delay.ms": 3000,
            "offsets.topic.num.partitions": 1,
        },
    ),
)


def collected(plugin: str, source: Path, *chosen: str) -> set[str]:
    """What pytest finds there, of what needs a broker."""
    command = [str(ROOT / ".venv-clients" / "bin" / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", plugin]
    nowhere = "127.0.0.1:1"
    places = {"KAFKA_VERSION": "4.3.0", "KAFKA_URI": f"kafka://{nowhere}", "KAFKA_ADDRESS": nowhere}
    done = subprocess.run(
        [*command, "--collect-only", *chosen],
        cwd=source,
        env={**os.environ, "PYTHONPATH": str(PROGRAMS), **places},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    return set(re.findall(r"^(tests?/.+::.+)$", done.stdout, re.MULTILINE))


def has_of_franz_go(*chosen: str) -> set[str]:
    """Functions in its program of tests."""
    found = {line for line in run([str(of_franz_go()), f"-test.list={chosen[0]}"])[0].splitlines() if line.startswith("Test")}
    return {name for name in found if not re.search(NOT_ANNOUNCED, name)} if chosen[0] == OF_FRANZ_GO else found


@pytest.mark.parametrize("name", ["kafka-python", "aiokafka", "franz-go"])
def test_what_is_left_out_is_told(name: str, tmp_path: Path) -> None:
    """Each test is run, or has a reason; `docs/COMPATIBILITY.md` has the reasons and how many there are."""
    if name == "kafka-python":
        (source,) = SUITES.glob("kafka_python-*/")
        asked = ("kafka_python_suite", source, "--import-mode=importlib", "test/integration")
        every, chosen = collected(*asked), collected(*asked, "-k", OF_KAFKA_PYTHON)
    elif name == "aiokafka":
        of_aiokafka(tmp_path)
        every = collected("aiokafka_suite", tmp_path, *AS_A_BROKER, "tests")
        chosen = collected("aiokafka_suite", tmp_path, *AS_A_BROKER, *OF_AIOKAFKA)
    else:
        every, chosen = has_of_franz_go("."), has_of_franz_go(OF_FRANZ_GO)
    assert chosen < every
    told = [each for each in LEFT_OUT if each.suite == name]
    counts = dict.fromkeys(told, 0)
    for each in every - chosen:
        (why,) = [entry for entry in told if entry.names and re.fullmatch(entry.names, each)] or [
            entry for entry in told if not entry.names
        ]
        counts[why] += 1
    assert list(counts.values()) == [entry.number for entry in told], counts
    print(f"{name}: {len(chosen)} of {len(every)} are run")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Callable[[str, Mapping[str, object]], Broker]]:
    """Makes a broker that tells its clients another address than its own."""
    made: list[Broker] = []

    def start(address: str, settings: Mapping[str, object]) -> Broker:
        found = Broker("4.3.0", tmp_path / f"broker-{len(made)}")
        found.settings = {"advertised.listeners": f"PLAINTEXT://{address}", "group.min.session.timeout.ms": 1000, **settings}
        found.format()
        made.append(found)
        found.start()
        return found

    yield start
    for each in made:
        each.kill()


@pytest.mark.parametrize("suite", ALL, ids=lambda suite: suite.name)
def test_suite(suite: Suite, broker: Callable[[str, Mapping[str, object]], Broker], tmp_path: Path) -> None:
    alone, split = Splitter(), Splitter()
    try:
        first = broker(alone.address, suite.settings)
        alone.begin(first.address, first.address)
        (tmp_path / "alone").mkdir()
        expected = suite.run(alone.address, tmp_path / "alone")
        first.kill()
        second = broker(split.address, suite.settings)
        assert second.metadata_dir is not None
        (tmp_path / "split").mkdir()
        options = ("--advertise", split.address, "--broker", str(second.properties))
        with serving([second.log_dir, second.metadata_dir], tmp_path / "serve", *options) as server:
            split.begin(server.address, second.address)
            found = suite.run(split.address, tmp_path / "split")
    finally:
        alone.close()
        split.close()
    passed = sorted(name for name, outcome in expected.items() if outcome == "pass")
    assert len(passed) >= suite.at_least, expected
    lost = [name for name in passed if found.get(name) != "pass"]
    unexplained = [name for name in lost if not any(re.fullmatch(each, name) for each in suite.reasons)]
    told = f"{suite.name}: {len(passed)} pass on a broker, of these {len(passed) - len(lost)} here; {split.routed}; lost: {lost}"
    print(told)
    assert not unexplained, told
    assert len(passed) - len(lost) >= ENOUGH * len(passed), told


def test_franz_go_reads_topics_without_an_id(old: Kafka, tmp_path: Path) -> None:
    """It fetches by ids, and once did not fall back to names. Its decoder of lz4 refuses the frames of message format 0."""
    # Built with the program of its tests, or that says why not.
    of_franz_go()
    program = tmp_path / "read"
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
    sources = Path(__file__).resolve().parent / "go"
    subprocess.run(["go", "build", "-o", str(program), "./read"], cwd=sources, env=environment, check=True, timeout=SECONDS)
    for golden in OF_OLD:
        asked = [str(program), old.address, golden.topic, str(golden.partition), str(golden.rows[-1].offset + 1)]
        done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=SECONDS)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        texts = [[None if part is None else base64.b64encode(part).decode() for part in (row.key, row.value)] for row in golden.rows]
        wanted = [
            [golden.topic, golden.partition, row.offset, row.timestamp, *text] for row, text in zip(golden.rows, texts, strict=True)
        ]
        if golden.name in OLD_LZ4:
            assert done.returncode != 0, golden.name
            assert "lz4: invalid header checksum" in done.stderr, done.stderr
            assert rows == wanted[: len(rows)], golden.name
        else:
            assert (done.returncode, done.stderr) == (0, ""), golden.name
            assert rows == wanted, golden.name
