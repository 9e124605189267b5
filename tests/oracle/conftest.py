"""Kafka's storage layer beside ours: one program a test process, folders in memory where there are any, counts at the end."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from comparing import Arena
from differences import DIFFERENCES
from kafka_log import JAR, Oracle
from our_log import OurLog
from reports import MET, REPORTS, SEED

MEMORY = Path("/dev/shm")  # noqa: S108  # where it exists; a log synced there costs no disk


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--history` replays one history: a seed, a seed with `t` before it (in turns), or a file of one that failed."""
    parser.addoption("--history", default=None, metavar="SEED|tSEED|FILE", help="replay one random history against Kafka")


def pytest_configure(config: pytest.Config) -> None:
    """Draws the seed of what is random once for all test processes: in a soak, for else a run is to say the same every time."""
    del config
    is_soak = os.environ.get("OFFSETLOG_RANDOM_CHUNKS", "0") != "0"
    os.environ.setdefault(SEED, str(random.SystemRandom().randrange(10**6, 10**9)) if is_soak else "1")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--history`, only that one."""
    wanted = config.getoption("history", None) is not None
    items[:] = [item for item in items if ("test_given_history" in item.nodeid) == wanted or "tests/oracle" not in str(item.path)]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hands the counts of a test process to the one that prints."""
    output: Any = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["oracle"] = json.dumps([MET, REPORTS])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:  # noqa: ANN401  # a type of xdist's
    """Takes what a test process hands over."""
    del error
    met, reports = json.loads(getattr(node, "workeroutput", {}).get("oracle", "[{}, []]"))
    MET.update(met)
    REPORTS.extend((title, text) for title, text in reports)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was compared, which differences were met, and the tables of damage."""
    if MET:
        terminalreporter.section("beside Kafka")
        named = {difference.name for difference in DIFFERENCES}
        for name, count in sorted(MET.items()):
            if name not in named:
                terminalreporter.write_line(f"{count:8} {name}")
        if os.environ.get("OFFSETLOG_RANDOM_CHUNKS", "0") != "0":
            terminalreporter.write_line(f"random histories from seed {os.environ[SEED]} ({SEED})")
        terminalreporter.write_line("differences met:")
        for difference in DIFFERENCES:
            if MET[difference.name]:
                terminalreporter.write_line(f"{MET[difference.name]:8} {difference.name}: {difference.ours}")
    for title, text in sorted(REPORTS):
        terminalreporter.section(title)
        terminalreporter.write_line(text)


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A folder of this test process's own."""
    below = MEMORY if os.access(MEMORY, os.W_OK) else None
    made = Path(tempfile.mkdtemp(prefix="offsetlog-oracle-", dir=below))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """Kafka's storage layer."""
    errors = JAR.parent / f"stderr-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}.txt"
    with Oracle(errors) as program:
        yield program


@pytest.fixture(scope="session")
def arena(oracle: Oracle, folder: Path) -> Iterator[Arena]:
    """Where the histories of this test process are run."""
    made = Arena(oracle, folder / "history", OurLog)
    yield made
    MET.update(made.seen)
    MET.update(made.uses.counts)
