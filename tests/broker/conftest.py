"""One story a version of the broker; every test looks at a part of it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

# What other people's encoders and a real broker's directories say lies beside the tests of the Python API.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from story import Story

from broker import ROOT  # the path comes first

VERSIONS = ("4.3.0", "3.9.2", "2.8.2")
KEPT = ROOT / "build" / "broker-failures"
"""Where the files and words of a broker stay when a story or a test of it fails."""

_failed = pytest.StashKey[bool]()
_seconds = pytest.StashKey[dict[str, dict[str, float]]]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how long each step of each story took."""
    for version, steps in config.stash.get(_seconds, {}).items():
        told = ", ".join(f"{step} {seconds:.1f}" for step, seconds in steps.items())
        terminalreporter.write_line(f"Kafka {version}: {sum(steps.values()):.0f} s ({told})")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember that something failed, so that the brokers' directories are kept."""
    report = yield
    if report.failed:
        item.session.stash[_failed] = True
    return report


@pytest.fixture(scope="session", params=VERSIONS)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """The whole life of one cluster, whether it came to its end or not."""
    version = str(request.param)
    directory = tmp_path_factory.mktemp(f"kafka-{version}")
    story = Story(version, directory)
    session = request.session
    session.stash[_failed] = False
    shutil.rmtree(KEPT / version, ignore_errors=True)
    try:
        story.live()
        request.config.stash.setdefault(_seconds, {})[version] = story.seconds
        yield story
    finally:
        story.broker.kill()
        if session.stash[_failed]:
            shutil.copytree(directory, KEPT / version)
        shutil.rmtree(directory)


@pytest.fixture
def story(told: Story) -> Story:
    """A story that came to its end. Why another one did not is told once, by the test that fails for it, not by every test."""
    if told.failure is not None:
        pytest.skip(f"Kafka {told.version}: {told.failure.__notes__[-1]} failed")
    return told
