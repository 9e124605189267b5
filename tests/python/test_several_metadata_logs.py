"""Several metadata logs among the paths, as where the folders of all controllers were saved: every verb reads the same one, the newest of
the log dirs' own cluster, whatever the order of the paths.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from frames import frames
from golden import CLEAN, CLEAN_LOG_DIRS
from writing import environment

from offsetlog import LogDir

METADATA = CLEAN / "metadata-dir"
LOG = "__cluster_metadata-0"
RATIO = "min.cleanable.dirty.ratio"


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "offsetlog", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, env=environment())


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """The same controller's log before g-compact got its last value of RATIO: that is in the record behind it."""
    place = Path(shutil.copytree(METADATA, tmp_path / "older"))
    for checkpoint in place.glob(f"{LOG}/*.checkpoint"):
        checkpoint.unlink()
    (segment,) = place.glob(f"{LOG}/*.log")
    data = segment.read_bytes()
    at = data.rindex(b"g-compact" + bytes([len(RATIO) + 1]) + RATIO.encode())
    position = max(frame.position for frame in frames(segment) if frame.position <= at)
    segment.write_bytes(data[:position])
    return place


@pytest.fixture
def server(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text("node.id=1\n")
    return path


def ratio_of(logs: LogDir) -> float:
    return float(str(logs.topic_settings("g-compact").settings[RATIO].value))


def ratios(paths: list[Path], server: Path) -> tuple[object, object, object, set[str]]:
    """What `metadata`, `settings` and `why` say, and the paths that they name."""
    metadata, settings, why = (
        run(*words, "--json", *paths)
        for words in (("metadata", "--configs"), ("settings", "-t", "g-compact"), ("why", "-t", "g-compact", "--broker", server))
    )
    said = [json.loads(line) for line in metadata.stdout.splitlines()]
    configs = next(each["configs"] for each in said if (each["type"], each["name"]) == ("topic", "g-compact"))
    values = [json.loads(line) for line in settings.stdout.splitlines()]
    value = next(each["value"] for each in values if each["name"] == RATIO)
    answers = {each["question"]: each for each in map(json.loads, why.stdout.splitlines())}
    compaction = next(each["value"] for each in answers["compaction"]["settings"] if each["name"] == RATIO)
    named = {
        line.rpartition("is read: ")[2] for ran in (metadata, settings, why) for line in ran.stderr.splitlines() if "is read: " in line
    }
    return float(configs[RATIO]), float(value), float(compaction), named


@pytest.mark.parametrize("is_older_first", [True, False])
def test_every_verb_reads_the_newest(older: Path, server: Path, *, is_older_first: bool) -> None:
    newest = ratios([METADATA, *CLEAN_LOG_DIRS], server)
    before = ratios([older, *CLEAN_LOG_DIRS], server)
    assert before[:3] != newest[:3]
    assert newest[3] == before[3] == set()
    both = [older, METADATA] if is_older_first else [METADATA, older]
    assert ratios([*both, *CLEAN_LOG_DIRS], server) == (*newest[:3], {str(METADATA / LOG)})
    with LogDir.open([*both, *CLEAN_LOG_DIRS]) as logs:
        assert ratio_of(logs) == newest[0]


def test_the_greater_leader_epoch_counts_before_the_length(older: Path, server: Path, tmp_path: Path) -> None:
    """What a log of an older epoch has beyond it was never committed."""
    newest = ratios([METADATA, *CLEAN_LOG_DIRS], server)
    longer = Path(shutil.copytree(METADATA, tmp_path / "longer"))
    (segment,) = older.glob(f"{LOG}/*.log")
    data = bytearray(segment.read_bytes())
    last = max(frame.position for frame in frames(segment))
    data[last + 12 : last + 16] = (99).to_bytes(4, "big")
    segment.write_bytes(data)
    with LogDir.open([longer, older, *CLEAN_LOG_DIRS]) as logs:
        assert ratio_of(logs) != newest[0]


def test_the_metadata_of_another_cluster_is_not_read(older: Path, server: Path) -> None:
    before = ratios([older, *CLEAN_LOG_DIRS], server)
    other = Path(shutil.copytree(METADATA, older.parent / "other"))
    properties = other / "meta.properties"
    lines = properties.read_text().splitlines()
    properties.write_text("\n".join("cluster.id=another" if line.startswith("cluster.id=") else line for line in lines))
    said = run("settings", "-t", "g-compact", "--json", other, older, *CLEAN_LOG_DIRS)
    value = next(each["value"] for each in map(json.loads, said.stdout.splitlines()) if each["name"] == RATIO)
    assert float(value) == before[0]
