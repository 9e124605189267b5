"""What a broker would do with each directory: `identity` and `metadata --directories`, on real directories and on what may become of them."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS, DATA, OLD_LOG_DIRS

from offsetlog import DirectoryIdentity, LogDirError, identity

METADATA = CLEAN / "metadata-dir"
UUID = "0123456789abcdef0123456789abcdef"
MADE_AGAIN = "97zHwfBnS9u0qAp0OfUOKA"
"""Id of g-recreated in its second life."""
DELETED = "qU_se9d-S4CS9r6nchFmFg"
"""Its id in the first one."""
PLAIN = "pf7cXgbVTTeuM8IYSzk58w"
OTHER = "AAECAwQFBgcICQoLDA0ODw"
KEEPER = DATA / "kafka-3.9.2-zookeeper"


def told(*paths: Path) -> dict[str, tuple[str, str]]:
    """By name: what a broker does, and why."""
    return {Path(row.path).name: (row.outcome, row.reason) for row in identity(*paths)}


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A copy of a real log dir, of a few topics."""
    place = tmp_path / "log-dir-1"
    place.mkdir()
    for path in CLEAN_LOG_DIRS[0].iterdir():
        if path.is_file():
            shutil.copyfile(path, place / path.name)
    for name in ("g-plain-0", "g-plain-2"):
        shutil.copytree(CLEAN_LOG_DIRS[0] / name, place / name)
    return place


def replica(place: Path, name: str, topic_id: str | None) -> Path:
    """A copy of g-recreated under another name or id."""
    directory = place / name
    shutil.copytree(CLEAN_LOG_DIRS[1] / "g-recreated-0", directory)
    metadata = directory / "partition.metadata"
    metadata.unlink()
    if topic_id is not None:
        metadata.write_text(f"version: 0\ntopic_id: {topic_id}")
    return directory


def test_a_real_broker_serves_all_that_it_has() -> None:
    rows = identity(*CLEAN_LOG_DIRS, METADATA)
    assert {row.outcome for row in rows} == {"serves"}
    assert {row.reason for row in rows if row.kind == "live"} == {
        "as the metadata has it",
        "the cluster's metadata log, which is no broker's partition",
    }
    log_dirs = [row for row in rows if row.kind == "log-dir"]
    assert [Path(row.path) for row in log_dirs] == [*CLEAN_LOG_DIRS, METADATA]
    for row in log_dirs:
        properties = (Path(row.path) / "meta.properties").read_text()
        assert f"directory.id={row.directory_id}\n" in properties
        assert f"cluster.id={row.cluster_id}\n" in properties
        assert (row.version, row.node_id, row.topic) == (1, 1, None)
        assert row.reason == f"node 1 of cluster {row.cluster_id}"
    for row in rows:
        if row.kind == "live":
            assert f"topic_id: {row.topic_id}" in (Path(row.path) / "partition.metadata").read_text()
            assert f"{row.topic}-{row.partition}" == Path(row.path).name


@pytest.mark.parametrize(
    ("name", "topic_id", "outcome", "reason"),
    [
        ("g-recreated-0", MADE_AGAIN, "serves", "the metadata has it in log dir "),
        ("g-recreated-0", DELETED, "strays", f"topic id {DELETED} was deleted, and the topic of this name is now {MADE_AGAIN}"),
        ("g-gone-0", DELETED, "strays", f"topic id {DELETED} was deleted, and no topic of this name is"),
        ("g-gone-0", OTHER, "strays", f"topic id {OTHER} is not in the metadata, and no topic of this name is"),
        ("g-recreated-7", MADE_AGAIN, "strays", "the topic has no partition 7"),
        ("g-recreated-0", None, "strays", "no partition.metadata, so it has no topic id"),
        ("g-gone-0", MADE_AGAIN, "ignores", f'topic id {MADE_AGAIN} is that of "g-recreated"'),
        ("g-empty-0", MADE_AGAIN, "fails", f'topic id {MADE_AGAIN} is that of "g-recreated"'),
        (f"g-recreated-0.{UUID}-stray", MADE_AGAIN, "ignores", "; the metadata has its topic id and partition"),
        (f"g-recreated-0.{UUID}-stray", OTHER, "ignores", "set aside: no broker serves or deletes it"),
        (f"g-recreated-0.{UUID}-delete", MADE_AGAIN, "deletes", "a minute by default"),
        (f"g-recreated-0.{UUID}-future", MADE_AGAIN, "moves", "the current replica, which it copies from, is in none of"),
        (f"g-recreated-0.{UUID}-future", DELETED, "strays", "was deleted"),
        (f"g-plain-0.{UUID}-future", PLAIN, "moves", "on the way from "),
        (f"g-plain-1.{UUID}-future", PLAIN, "moves", "the current replica"),
    ],
)
def test_partitions_of_a_broker_without_zookeeper(log_dir: Path, name: str, topic_id: str | None, outcome: str, reason: str) -> None:
    directory = replica(log_dir, name, topic_id)
    found = told(log_dir, METADATA)
    assert found[name][0] == outcome, found[name]
    assert reason in found[name][1]
    assert found["g-plain-0"][0] == found["log-dir-1"][0] == "serves"
    # A partition's directory may be named itself.
    assert told(directory, METADATA)[name] == found[name] or "on the way from" in reason


@pytest.mark.parametrize(
    "text",
    [b"", b"version: 0\n", b"version: -1\ntopic_id: x", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", b"\xff\x00" * 9],
)
def test_a_malformed_partition_metadata(log_dir: Path, text: bytes) -> None:
    (replica(log_dir, "g-recreated-0", None) / "partition.metadata").write_bytes(text)
    outcome, reason = told(log_dir, METADATA)["g-recreated-0"]
    assert (outcome, reason.startswith("partition.metadata: ")) == ("fails", True)


def test_replicas_of_other_brokers(log_dir: Path) -> None:
    """To the metadata all is broker 1's."""
    meta = log_dir / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    found = told(log_dir, METADATA)
    assert found["g-plain-0"] == ("strays", "broker 2 is none of those that have it: 1")
    assert "the metadata has no broker 2" in found["log-dir-1"][1]
    meta.unlink()
    found = told(log_dir, METADATA)
    assert found["g-plain-0"] == ("unknown", "which broker this is, no meta.properties says")
    assert found["log-dir-1"][0] == "stops"


def test_folders_that_stop_a_broker(log_dir: Path) -> None:
    for name in ("junk", "lost+found", "a-b", "t-0-delete"):
        (log_dir / name).mkdir()
    (log_dir / "remote-log-index-cache").mkdir()
    found = told(log_dir, METADATA)
    for name in ("junk", "lost+found", "a-b", "t-0-delete"):
        assert found[name][0] == "stops"
    assert "remote-log-index-cache" not in found
    assert {row.kind for row in identity(log_dir, METADATA) if row.outcome == "stops"} == {"other"}


def test_the_same_partition_twice(log_dir: Path, tmp_path: Path) -> None:
    other = tmp_path / "log-dir-2"
    shutil.copytree(log_dir, other)
    meta = other / "meta.properties"
    meta.write_text(meta.read_text().replace("directory.id=R", "directory.id=S"))
    rows = [row for row in identity(log_dir, other, METADATA) if row.topic == "g-plain"]
    assert {row.outcome for row in rows} == {"stops"}
    assert {row.reason for row in rows} == {
        f"{place / name} is the same partition of the same broker" for place in (log_dir, other) for name in ("g-plain-0", "g-plain-2")
    }


META = "version=1\nnode.id=1\ncluster.id={cluster}\n"


@pytest.mark.parametrize(
    ("text", "outcome", "reason"),
    [
        (None, "stops", "no meta.properties: a broker without ZooKeeper starts with no log dir that has none"),
        ("version=2\n", "fails", "meta.properties: "),
        ("version=1\nnode.id=one\ncluster.id=x", "fails", "the log dir goes offline"),
        ("version=1\nnode.id=1\n", "fails", "cluster.id is missing"),
        (META.format(cluster="other"), "stops", "it is of cluster other, and other log dirs are of cluster "),
        (META, "serves", "no directory.id: it makes a new one"),
        (META + "directory.id=AAECAwQFBgcICQoLDA0ODw\n", "serves", "does not have its directory.id AAECAwQFBgcICQoLDA0ODw"),
    ],
)
def test_the_file_that_names_a_log_dir(log_dir: Path, text: str | None, outcome: str, reason: str) -> None:
    meta = log_dir / "meta.properties"
    (cluster,) = {row.cluster_id for row in identity(METADATA)} - {None}
    meta.unlink()
    if text is not None:
        meta.write_text(text.format(cluster=cluster))
    found = told(log_dir, CLEAN_LOG_DIRS[1], METADATA)["log-dir-1"]
    assert found[0] == outcome, found
    assert reason in found[1]


def test_a_copy_beside_its_original(log_dir: Path) -> None:
    rows = [row for row in identity(log_dir, CLEAN_LOG_DIRS[0]) if row.kind == "log-dir"]
    assert [row.outcome for row in rows] == ["stops", "stops"]
    assert rows[0].reason.startswith(f"{CLEAN_LOG_DIRS[0]} has the same directory.id ")


def test_log_dirs_of_several_brokers_are_looked_at_each_for_itself(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "offsetlog"):
        rows = identity(*OLD_LOG_DIRS)
    assert {row.node_id for row in rows if row.kind == "log-dir"} == {1, 2, 3}
    assert {row.outcome for row in rows if row.kind == "log-dir"} == {"serves"}
    assert {row.outcome for row in rows if row.kind == "live"} == {"unknown"}
    assert "those of nodes 1, 2, 3" in caplog.text


def test_an_unclean_end_is_told() -> None:
    (row, *_) = identity(DATA / "kafka-4.3.0" / "unclean" / "log-dir-1")
    assert row.reason.endswith("no mark of a clean stop, so it recovers the logs")
    live = told(DATA / "kafka-4.3.0" / "live" / "log-dir-1", DATA / "kafka-4.3.0" / "live" / "log-dir-2")
    assert {outcome for name, (outcome, _) in live.items() if name.endswith("-delete")} == {"deletes"}


def test_log_dirs_of_another_cluster() -> None:
    """The metadata tells nothing of them."""
    other = DATA / "kafka-4.3.0" / "live" / "log-dir-1"
    rows = identity(METADATA, *CLEAN_LOG_DIRS, other)
    (cluster,) = {row.cluster_id for row in rows if Path(row.path) == METADATA}
    of_other = [row for row in rows if Path(row.path).parent == other and row.kind == "live"]
    assert {(row.outcome, row.reason) for row in of_other} == {("unknown", f"the metadata is that of cluster {cluster}")}
    (found,) = [row for row in rows if Path(row.path) == other]
    assert found.outcome == "stops"
    assert "directory.id" not in found.reason


def test_a_broker_with_zookeeper(tmp_path: Path) -> None:
    rows = identity(KEEPER / "log-dir", KEEPER / "zookeeper")
    assert {row.outcome for row in rows} == {"serves"}
    assert rows[0].version == 0
    place = tmp_path / "log-dir"
    shutil.copytree(KEEPER / "log-dir", place)
    (place / "plain-0" / "partition.metadata").unlink()
    (place / "plain-1" / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER}")
    replica(place, "gone-0", OTHER)
    replica(place, "plain-9", None)
    found = told(place, KEEPER / "zookeeper")
    assert found["plain-0"] == ("serves", "as the metadata has it")
    assert found["plain-1"][0] == "fails"
    assert found["gone-0"] == ("ignores", "there is no topic of this name, so nobody asks for it")
    assert found["plain-9"] == ("ignores", "the topic has no partition 9, so nobody asks for it")
    (place / "meta.properties").unlink()
    assert told(place, KEEPER / "zookeeper")["log-dir"][0] == "serves"


def test_beside_the_metadata_of_another_cluster_nobody_says_that_it_starts() -> None:
    """A broker compares the id of its ZooKeeper's cluster with that of its log dirs, and does not start."""
    other = DATA / "kafka-2.8.2-zookeeper" / "zookeeper"
    assert told(KEEPER / "log-dir", KEEPER / "zookeeper")["log-dir"][0] == "serves"
    outcome, reason = told(KEEPER / "log-dir", other)["log-dir"]
    assert outcome == "unknown"
    assert reason.startswith("node 1 of cluster E4g93QLNTA69uPESHy330Q; the metadata cannot be read: ")
    assert "is the metadata of cluster XR0u_nGKTPCVXtdOxarG-w" in reason


def test_without_metadata_and_with_damaged_metadata(log_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert told(log_dir)["g-plain-0"] == ("unknown", "no metadata of the cluster is here")
    replica(log_dir, "g-recreated-0", None)
    assert told(log_dir)["g-recreated-0"][0] == "strays"
    place = tmp_path / "metadata"
    shutil.copytree(METADATA, place)
    segment = place / "__cluster_metadata-0" / "00000000000000000000.log"
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    with caplog.at_level(logging.WARNING, "offsetlog"):
        outcome, reason = told(log_dir, place)["g-plain-0"]
    assert (outcome, reason.startswith("the metadata cannot be read: ")) == ("unknown", True)
    assert "the metadata cannot be read" in caplog.text
    printed = run(log_dir, place)
    assert printed.returncode == 2
    assert "unknown" in printed.stdout


def test_folders_that_are_no_log_dirs(tmp_path: Path) -> None:
    with pytest.raises(LogDirError, match="not a log dir"):
        identity(tmp_path)
    with pytest.raises(LogDirError, match="the folder around"):
        identity(CLEAN)
    with pytest.raises(FileNotFoundError):
        identity(tmp_path / "missing")
    # Nothing but what was set aside.
    replica(tmp_path, f"g-recreated-0.{UUID}-stray", OTHER)
    assert told(tmp_path)[f"g-recreated-0.{UUID}-stray"][0] == "ignores"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "offsetlog", "metadata", "--directories", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_the_command_prints_the_same(log_dir: Path) -> None:
    replica(log_dir, f"g-recreated-0.{UUID}-stray", MADE_AGAIN)
    rows = identity(log_dir, METADATA)
    printed = run(log_dir, METADATA, "--json")
    assert (printed.returncode, printed.stderr) == (0, "")
    assert [DirectoryIdentity(**json.loads(line)) for line in printed.stdout.splitlines()] == rows
    lines = run(log_dir, METADATA).stdout.splitlines()
    assert lines[0].split() == ["NODE", "KIND", "ID", "BROKER", "DIRECTORY", "WHY"]
    for line, row in zip(lines[1:], rows, strict=True):
        found = line.split(maxsplit=5)
        assert found == ["1", row.kind, row.topic_id or row.directory_id, row.outcome, row.path, row.reason]
    chosen = run(log_dir, METADATA, "-t", "g-plain", "-t", "none")
    assert [line.split()[1] for line in chosen.stdout.splitlines()[1:]] == ["live", "live"]
    assert "no directory of topic none" in chosen.stderr
    assert run(log_dir, METADATA, "-t", "none", "-q").returncode == 1


def test_names_that_steer_a_terminal_do_not(log_dir: Path) -> None:
    (log_dir / "a\x1b[31m-0").mkdir()
    (log_dir / "b\x1b[31m").mkdir()
    meta = log_dir / "meta.properties"
    meta.write_text(meta.read_text().replace("cluster.id=", "cluster.id=\\u001b[31m"))
    for arguments in ((log_dir,), (log_dir, METADATA), (log_dir, "--json")):
        printed = run(*arguments)
        assert printed.returncode == 0
        assert "\x1b" not in printed.stdout + printed.stderr
