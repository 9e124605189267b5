"""The integration tests of other projects' clients: those that pass on a 4.3.0 broker pass on `serve` over that broker's directories.

They produce what they read, so one address stands for two servers (splitting.py): what writes goes to the broker, what reads to `serve`,
which follows the directories of the running broker. The same tests at the same kind of address with the broker alone say what can pass.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
from client_programs import PROGRAMS
from served import serving
from splitting import Splitter

from broker import ROOT, Broker

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


def kafka_python(address: str, folder: Path) -> Outcomes:
    """Its consumer's tests, and those of its admin client that ask, or delete groups."""
    (source,) = SUITES.glob("kafka_python-*/")
    # The others change topics, leaders or access, or ask by APIs that are not announced.
    asking = "describe_configs or describe_group or describe_log_dirs or delete_groups or list_partition_offsets"
    files = ("test/integration/test_consumer_integration.py", "test/integration/test_admin_integration.py")
    environment = {"KAFKA_VERSION": "4.3.0", "KAFKA_URI": f"kafka://{address}"}
    chosen = ("--import-mode=importlib", "-k", f"consumer_integration or {asking}", *files)
    return pytests("kafka_python_suite", source, folder, environment, *chosen)


AIOKAFKA = "OFFSETLOG_AIOKAFKA"
"""Names a checkout of aiokafka. Its tests are in none of its packages: since 0.1.0 its sdists exclude them."""


def aiokafka(address: str, folder: Path) -> Outcomes:
    """Its consumer's tests, also of groups and transactions, and those of its admin client that only ask."""
    if AIOKAFKA not in os.environ:
        pytest.skip(
            f"aiokafka's tests are in none of its packages: {AIOKAFKA} names a checkout of the version in requirements/clients.txt"
        )
    checkout = Path(os.environ[AIOKAFKA])
    version = re.search(r'^__version__ = "(.+)"', (checkout / "aiokafka" / "__init__.py").read_text(encoding="utf-8"), re.MULTILINE)
    pinned = (ROOT / "requirements" / "clients.txt").read_text(encoding="utf-8")
    assert version is not None
    assert f"aiokafka=={version[1]} " in pinned, f"{checkout} has the tests of {version[1]}"
    # Beside the installed package, not beside the sources of the same name.
    source = folder / "source"
    shutil.copytree(checkout / "tests", source / "tests")
    # Their server with TLS is another one.
    chosen_tests = "not ssl_consume and (not TestAdmin or describe or list or metadata)"
    files = [f"tests/test_{name}.py" for name in ("consumer", "transactional_consumer", "pep492", "coordinator", "admin")]
    chosen = ("-o", "asyncio_mode=auto", "-k", chosen_tests, "--docker-image", "none:0_4.3.0", "--no-pull", *files)
    return pytests("aiokafka_suite", source, folder, {"KAFKA_ADDRESS": address}, *chosen)


OF_FRANZ_GO = "^Test(Issue|Consume|DirectPart|AddRemove|Pause|Pooling|GroupSimple|GroupETL|Ping|UnknownGroupOffset|PollWait|HookPoll)"
NOT_ANNOUNCED = "Share|TestGroupSimple/848|TestGroupETL/.*/848"
"""Share groups (KIP-932) and groups of the new protocol (KIP-848): other APIs than those of consumer groups that `serve` announces."""


def franz_go(address: str, folder: Path) -> Outcomes:
    """Its tests of consuming, alone and in groups."""
    program = SUITES / "kgo.test"
    if not program.exists():
        pytest.skip("franz-go's tests were not built: they need Go 1.26 (build/net-suites/kgo.txt)")
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
)


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
