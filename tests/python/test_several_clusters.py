"""Log dirs of two clusters in one call, as on a disk to which several machines were saved: groups, transactions and topics of one name are not
one thing. What reads them as one refuses, by `cluster.id` in `meta.properties`, and says what belongs together.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS
from writing import environment, tree

from offsetlog import LogDir, LogDirError, Server, end_transaction, metadata_as_commands, metadata_as_yaml

OURS = "aAambJTkli2CX79cay64RQ"
METADATA = CLEAN / "metadata-dir"


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "offsetlog", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment())


@pytest.fixture
def places(tmp_path: Path) -> list[Path]:
    """The folders of one broker, and one of another cluster's with other records of the same topics."""
    own = [Path(shutil.copytree(path, tmp_path / path.name)) for path in (*CLEAN_LOG_DIRS, METADATA)]
    other = Path(shutil.copytree(CLEAN_LOG_DIRS[0], tmp_path / "other"))
    assert OURS in (other / "meta.properties").read_text()
    (other / "meta.properties").write_text((other / "meta.properties").read_text().replace(OURS, "another"))
    return [*own, other]


VERBS = [
    ("groups",),
    ("groups", "--reset-csv"),
    ("groups", "--prometheus"),
    ("transactions",),
    ("producers",),
    ("why",),
    ("metadata", "--as-commands"),
    ("metadata", "--as-yaml"),
    ("end-transaction", "g-txn-0", "1000", "--abort"),
]


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_what_reads_them_as_one_refuses(verb: tuple[str, ...], places: list[Path], tmp_path: Path) -> None:
    before = tree(tmp_path)
    ran = run(*verb, *places)
    assert (ran.returncode, ran.stdout) == (2, ""), ran.stderr
    assert f"{', '.join(map(str, places[:3]))} of cluster {OURS}" in ran.stderr
    assert f"{places[3]} of cluster another" in ran.stderr
    assert "call once for each cluster" in ran.stderr
    assert tree(tmp_path) == before
    # A partition's directory stands for its log dir.
    ran = run(*verb, *places[:3], next(places[3].glob("g-*-0")))
    assert (ran.returncode, ran.stdout) == (2, ""), ran.stderr
    # Without meta.properties nobody knows of another cluster.
    (places[3] / "meta.properties").unlink()
    assert "of cluster" not in run(*verb, *places).stderr


def test_python_refuses_too(places: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    with LogDir.open(places) as logs:
        calls: list[Callable[[], object]] = [
            logs.groups,
            logs.groups_reset_csv,
            logs.groups_prometheus,
            logs.transactions,
            logs.producers,
            logs.why,
            lambda: metadata_as_commands(*places),
            lambda: metadata_as_yaml(*places),
            lambda: end_transaction(places, "g-txn", 0, 1000, dry_run=True),
        ]
        for call in calls:
            with pytest.raises(LogDirError, match="of 2 clusters"):
                call()
    with caplog.at_level(logging.WARNING, "offsetlog"), LogDir.open(places) as logs:
        logs.topics()
    assert "the log dirs are of several clusters" in caplog.text


def test_what_lists_them_warns(places: list[Path]) -> None:
    for verb in (("ls",), ("cat", "-t", "g-plain"), ("metadata",)):
        ran = run(*verb, *places)
        assert ran.stdout
        assert "the log dirs are of several clusters, by cluster.id in meta.properties: " in ran.stderr, verb
    assert "of several clusters" not in run("ls", *places[:3]).stderr


def test_metadata_of_two_clusters_is_not_one(places: list[Path], tmp_path: Path) -> None:
    other = Path(shutil.copytree(METADATA, tmp_path / "other metadata"))
    (other / "meta.properties").write_text((other / "meta.properties").read_text().replace(OURS, "another"))
    ran = run("metadata", places[2], other)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "call once for each cluster" in ran.stderr
    with LogDir.open([places[2], other]) as logs, pytest.raises(LogDirError, match="of 2 clusters"):
        logs.metadata()


def test_a_server_decides_nothing_by_another_cluster(places: list[Path]) -> None:
    """It serves the records; how transactions of one cluster end, the other one's coordinators do not know."""
    with Server(places) as kafka:
        assert kafka.running
    with pytest.raises(LogDirError, match="of 2 clusters"):
        Server(places, open_transactions="decide")
