"""One life a version of the broker and kind of story; every test looks at a part of it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

# What other people's encoders and a real broker's directories say lies beside the tests of the Python API.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
# Programs of Spark are run as in its tests.
sys.path.append(str(Path(__file__).resolve().parents[1] / "spark"))

from cleaners import Cleaners
from cluster_scenario import ClusterScenario
from restoring import IS_WHOLE, WHOLE_ONLY, CleanStarts, WrittenFiles
from upkeep import Upkeep

from broker import ROOT, WITH_ZOOKEEPER  # the path comes first

# What a comparison in there found is told as of a test.
pytest.register_assert_rewrite("mirrored_history")

VERSIONS = ("4.3.0", "3.9.2", "2.8.2")
KRAFT = ("4.3.0", "3.9.2")
KEPT = ROOT / "build" / "broker-failures"
"""Where the files and words of a broker stay when a story or a test of it fails."""

_failed = pytest.StashKey[set[str]]()
_seconds = pytest.StashKey[dict[str, dict[str, float]]]()


class OneOfSeveral(Protocol):
    """One of several, as pytest-xdist shows it to the one that started them."""

    config: pytest.Config


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of several hands over what its stories took."""
    if isinstance(output := getattr(session.config, "workeroutput", None), dict):
        output["seconds"] = session.config.stash.get(_seconds, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: OneOfSeveral) -> None:
    """Take it."""
    # A process that died has none.
    node.config.stash.setdefault(_seconds, {}).update(getattr(node, "workeroutput", {}).get("seconds", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how long each step of each story took."""
    for version, steps in config.stash.get(_seconds, {}).items():
        told = ", ".join(f"{step} {seconds:.1f}" for step, seconds in steps.items())
        terminalreporter.write_line(f"Kafka {version}: {sum(steps.values()):.0f} s ({told})")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember whose test failed, so that its broker's directories are kept."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        item.session.stash.setdefault(_failed, set()).update(item.fixturenames)
    return report


T = TypeVar("T", ClusterScenario, Cleaners, Upkeep)


def _lived(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kind: type[T]) -> Iterator[T]:
    """One cluster from its beginning to its end, or to where it failed."""
    version = str(request.param)
    directory = tmp_path_factory.mktemp(f"kafka-{version}")
    kept = KEPT / f"{kind.__name__.lower()}-{version}"
    one = kind(version, directory)
    failed = request.session.stash.setdefault(_failed, set())
    failed.discard(str(request.fixturename))
    shutil.rmtree(kept, ignore_errors=True)
    try:
        one.live()
        request.config.stash.setdefault(_seconds, {})[f"{version}, {kind.__name__.lower()}"] = one.seconds
        yield one
    finally:
        one.broker.kill()
        if request.fixturename in failed:
            shutil.copytree(directory, kept)
        shutil.rmtree(directory)


def _ended(one: T) -> T:
    """One that came to its end. Why another one did not is told once, by the test that fails for it, not by every test."""
    if one.failure is not None:
        pytest.skip(f"Kafka {one.version}: {one.failure.__notes__[-1]} failed")
    return one


@pytest.fixture(scope="session", params=VERSIONS)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterScenario]:
    """The whole life of one cluster, whether it came to its end or not."""
    yield from _lived(request, tmp_path_factory, ClusterScenario)


@pytest.fixture
def story(told: ClusterScenario) -> ClusterScenario:
    """A story that came to its end."""
    return _ended(told)


@pytest.fixture(scope="session", params=VERSIONS)
def cleaners_told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cleaners]:
    """Two cleaners by turns, whether they came to the end or not."""
    yield from _lived(request, tmp_path_factory, Cleaners)


@pytest.fixture
def cleaners(cleaners_told: Cleaners) -> Cleaners:
    """Two cleaners that came to the end."""
    return _ended(cleaners_told)


UPKEEP = [
    "4.3.0",
    pytest.param("3.9.2", marks=pytest.mark.skipif(not IS_WHOLE, reason=WHOLE_ONLY)),
    "3.9.2" + WITH_ZOOKEEPER,
]
"""A broker without ZooKeeper and one with it, each of another version; the third combination where there is time."""


@pytest.fixture(scope="session", params=UPKEEP)
def upkeep_told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upkeep]:
    """A broker's own upkeep and ours of the same directories, whether they came to the end or not."""
    yield from _lived(request, tmp_path_factory, Upkeep)


@pytest.fixture
def upkeep(upkeep_told: Upkeep) -> Upkeep:
    """Upkeep that came to the end."""
    return _ended(upkeep_told)


@pytest.fixture(scope="session")
def clean_starts(tmp_path_factory: pytest.TempPathFactory) -> CleanStarts:
    """What brokers say that have nothing to load."""
    return CleanStarts(tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WrittenFiles]:
    """What the tests of a file restored; Kafka's dump tool finds nothing in any of it."""
    files = WrittenFiles(tmp_path_factory.mktemp("written"))
    yield files
    files.check()
