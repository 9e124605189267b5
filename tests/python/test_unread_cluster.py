"""What is known of a cluster beside damage: a damaged partition changes none of it, and without metadata the rest is still told."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS

import offsetlog
from offsetlog import LogDir, OffsetLogError, UnreadPartitionsError
from offsetlog._offsetlog import run_cli

NAMES = ("log-dir-1", "log-dir-2", "metadata-dir")


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    """A stopped broker's log dirs, and its metadata."""
    for name in NAMES:
        shutil.copytree(CLEAN / name, tmp_path / name)
    return [tmp_path / name for name in NAMES]


def place_of(dirs: list[Path], partition: str) -> Path:
    return next(each / partition for each in dirs if (each / partition).is_dir())


def flip(dirs: list[Path], partition: str) -> None:
    """A byte of the first batch that there is: its checksum is wrong, its header is not."""
    segment = min(path for path in place_of(dirs, partition).glob("*.log") if path.stat().st_size)
    data = bytearray(segment.read_bytes())
    data[70] ^= 0xFF
    segment.write_bytes(data)


def block(dirs: list[Path], partition: str, name: str = f"{0:020}.log") -> None:
    """A folder stands for a file."""
    path = place_of(dirs, partition) / name
    path.unlink()
    path.mkdir()


def told(capfd: pytest.CaptureFixture[str], dirs: list[Path], *words: str) -> tuple[int, list[str], str]:
    """Exit code, lines and words of a command, with the folders by their names alone."""
    capfd.readouterr()
    code = run_cli(["offsetlog", *words, *map(str, dirs)], [])
    said = capfd.readouterr()
    root = str(dirs[0].parent)
    return code, said.out.replace(root, "").splitlines(), said.err.replace(root, "")


CLUSTER = {
    "topics": ["metadata", "--json"],
    "configs": ["metadata", "--json", "--configs"],
    "brokers": ["metadata", "--json", "--brokers"],
    "features": ["metadata", "--json", "--features"],
    "directories": ["metadata", "--json", "--directories"],
    "commands": ["metadata", "--as-commands"],
    "yaml": ["metadata", "--as-yaml"],
    "settings": ["settings", "--json", "--all"],
}


def in_python(dirs: list[Path]) -> list[object]:
    with LogDir.open(dirs) as log_dir:
        strays = log_dir.strays()
        metadata = log_dir.metadata()
    rows = [str(row).replace(str(dirs[0].parent), "") for row in offsetlog.identity(*dirs)]
    return [rows, metadata, strays, offsetlog.metadata_as_commands(*dirs), offsetlog.metadata_as_yaml(*dirs)]


def test_what_the_cluster_knows_is_told_beside_damaged_partitions(dirs: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
    before = {name: told(capfd, dirs, *words) for name, words in CLUSTER.items()}
    assert all(code == 0 and lines for code, lines, _ in before.values())
    whole = in_python(dirs)
    flip(dirs, "g-plain-1")
    flip(dirs, "__consumer_offsets-0")
    flip(dirs, "__transaction_state-1")
    block(dirs, "g-plain-0")
    block(dirs, "g-txn-0")
    for name, words in CLUSTER.items():
        assert told(capfd, dirs, *words) == before[name], name
    assert in_python(dirs) == whole


def test_a_directory_whose_topic_id_cannot_be_read_is_one_row(dirs: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
    _, before, _ = told(capfd, dirs, *CLUSTER["directories"])
    block(dirs, "g-plain-0", "partition.metadata")
    code, after, _ = told(capfd, dirs, *CLUSTER["directories"])
    assert code == 0
    differ = [(json.loads(one), json.loads(other)) for one, other in zip(before, after, strict=True) if one != other]
    ((was, now),) = differ
    assert (was["path"], was["outcome"]) == (now["path"], "serves") == ("/log-dir-1/g-plain-0", "serves")
    assert now["outcome"] == "fails"
    assert "partition.metadata" in now["reason"]


def of_records(capfd: pytest.CaptureFixture[str], dirs: list[Path]) -> dict[str, tuple[int, list[Any]]]:
    """What needs no metadata."""
    asked = {
        "ls": ["ls", "--json"],
        "groups": ["groups", "--json", "--now", "2026-11-22"],
        "transactions": ["transactions", "--json"],
        "producers": ["producers", "--json", "--now", "2026-11-22"],
        "time": ["time", "--json", "-t", "g-plain", "2023-11-16"],
        "cat": ["cat", "--json", "-t", "g-txn", "--isolation-level", "read_committed"],
    }
    found = {}
    for name, words in asked.items():
        code, lines, _ = told(capfd, dirs, *words)
        found[name] = code, [json.loads(line) for line in lines if '"topic":"__cluster_metadata"' not in line]
    return found


@pytest.mark.parametrize("damage", [flip, block], ids=["a garbage batch", "a folder for a segment"])
def test_metadata_that_cannot_be_read_takes_nothing_else_away(
    damage: Callable[[list[Path], str], None], dirs: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    before = of_records(capfd, dirs)
    damage(dirs, "__cluster_metadata-0")
    after = of_records(capfd, dirs)
    for name, (code, lines) in before.items():
        assert code == 0, name
        assert after[name][1] == lines, name
        # Its own partition is among those that are listed and opened; without it nobody knows which coordinators' partitions are missing.
        assert (after[name][0] == 0) or name in {"ls", "producers", "groups"}, name
    for name in ("topics", "configs", "brokers", "features"):
        code, lines, said = told(capfd, dirs, *CLUSTER[name])
        assert (code, lines) == (2, []), name
        assert "__cluster_metadata-0" in said
    code, lines, said = told(capfd, dirs, *CLUSTER["directories"])
    assert code == 2
    assert "__cluster_metadata-0" in said
    rows = [json.loads(line) for line in lines]
    assert {row["outcome"] for row in rows if row["kind"] == "live" and row["topic"] != "__cluster_metadata"} == {"unknown"}
    for name in ("commands", "yaml"):
        code, lines, said = told(capfd, dirs, *CLUSTER[name])
        assert code == 2, name
        assert "__cluster_metadata-0" in said
        # Of the directories alone, as a comment says.
        assert any("g-plain" in line and not line.startswith("#") for line in lines), name
    code, lines, _ = told(capfd, dirs, *CLUSTER["settings"])
    assert code == 0
    unknown = [json.loads(line) for line in lines if '"name":"retention.ms"' in line]
    assert {row["from"] for row in unknown if row["topic"] != "__cluster_metadata"} == {"unknown"}
    assert all("cannot be read" in row["reason"] for row in unknown if row["topic"] != "__cluster_metadata")
    with LogDir.open(dirs) as log_dir:
        with pytest.raises(OffsetLogError, match="__cluster_metadata-0"):
            log_dir.metadata()
        assert log_dir.topic_settings("g-plain").settings["retention.ms"][:2] == (None, "unknown")
    with LogDir.open(CLEAN_LOG_DIRS) as sound, LogDir.open(dirs) as log_dir:
        assert log_dir.transactions() == sound.transactions()
        with pytest.raises(UnreadPartitionsError, match="__cluster_metadata-0") as raised:
            log_dir.groups()
        assert {group.group_id for group in raised.value.partial} == {group.group_id for group in sound.groups()}
