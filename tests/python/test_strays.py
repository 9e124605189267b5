"""Partition directories that the cluster's metadata does not have: topic ids of a real cluster, deleted, made again, renamed, of another one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from frames import frames
from golden import CLEAN, CLEAN_LOG_DIRS, DATA

from offsetlog import LogDir, MetadataFileError, Stray, verify

METADATA = CLEAN / "metadata-dir"
MADE_AGAIN = "97zHwfBnS9u0qAp0OfUOKA"
"""Id of g-recreated in its second life."""
DELETED = "qU_se9d-S4CS9r6nchFmFg"
"""Its id in the first one: the metadata log has a RemoveTopicRecord of it."""
OTHER = "AAECAwQFBgcICQoLDA0ODw"


def strays(*places: Path) -> list[Stray]:
    with LogDir.open(places) as logs:
        found = logs.strays()
    assert found is not None
    return found


def replica(place: Path, name: str, topic_id: str | None) -> Path:
    """A copy of g-recreated under another name or id."""
    directory = place / name
    shutil.copytree(CLEAN_LOG_DIRS[1] / "g-recreated-0", directory)
    metadata = directory / "partition.metadata"
    text = metadata.read_text()
    assert MADE_AGAIN in text
    metadata.unlink()
    if topic_id is not None:
        metadata.write_text(text.replace(MADE_AGAIN, topic_id))
    return directory


def test_a_real_broker_has_none() -> None:
    assert strays(*CLEAN_LOG_DIRS, METADATA) == []
    with LogDir.open(CLEAN_LOG_DIRS) as logs:
        assert logs.strays() is None


def test_log_dirs_of_another_cluster() -> None:
    """Names agree, ids do not."""
    other = DATA / "kafka-4.3.0" / "live" / "log-dir-1"
    with LogDir.open(METADATA) as logs:
        image = logs.metadata()
    assert image is not None
    ids = {topic.name: topic.topic_id for topic in image.topics}
    found = strays(other, METADATA)
    assert {(stray.topic, stray.partition) for stray in found} == {
        (name, int(number)) for name, _, number in (each.name.rpartition("-") for each in other.iterdir() if each.is_dir())
    }
    for stray in found:
        assert f"topic_id: {stray.topic_id}" in (Path(stray.path) / "partition.metadata").read_text()
        assert stray.reason == f"topic id {stray.topic_id} is not known, the topic of this name is {ids[stray.topic]}"


@pytest.mark.parametrize(
    ("name", "topic_id", "reason"),
    [
        ("g-recreated-0", MADE_AGAIN, None),
        ("g-recreated-0", DELETED, f"topic id {DELETED} was deleted, and the topic of this name is now {MADE_AGAIN}"),
        ("g-gone-0", DELETED, f"topic id {DELETED} was deleted"),
        ("g-gone-0", MADE_AGAIN, f'topic id {MADE_AGAIN} is that of "g-recreated"'),
        ("g-gone-0", OTHER, f"neither topic id {OTHER} nor the name is known"),
        ("g-recreated-7", MADE_AGAIN, "the topic has no partition 7"),
        ("g-recreated-0", None, None),
        ("g-recreated-7", None, "the topic has no partition 7"),
        ("g-gone-0", None, "there is no topic of this name"),
    ],
)
def test_what_the_metadata_says_instead(tmp_path: Path, name: str, topic_id: str | None, reason: str | None) -> None:
    directory = replica(tmp_path, name, topic_id)
    topic, _, number = name.rpartition("-")
    expected = [] if reason is None else [Stray(topic, int(number), str(directory), topic_id, reason)]
    assert strays(tmp_path, METADATA) == expected


def test_each_directory_of_a_partition_is_looked_at(tmp_path: Path) -> None:
    """A replica of a topic's first life may stand beside one of its second; directories to be deleted are none."""
    sound = replica(tmp_path / "1", "g-recreated-0", MADE_AGAIN)
    old = replica(tmp_path / "2", "g-recreated-0", DELETED)
    replica(tmp_path / "2", "g-recreated-0.ee6b1ada270c403eb05a742f835b7ff6-delete", DELETED)
    assert [stray.path for stray in strays(sound.parent, old.parent, METADATA)] == [str(old)]


def test_an_id_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    directory = replica(tmp_path, "g-recreated-0", "?")
    with pytest.raises(MetadataFileError) as caught:
        strays(tmp_path, METADATA)
    assert Path(str(caught.value.path)) == directory / "partition.metadata"


def findings(*places: Path) -> list[tuple[str, str, str]]:
    return [(each.severity, each.path, each.reason) for each in verify(*places).findings if each.kind == "Stray"]


def test_verify_tells_them_as_the_command_does(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sound = replica(tmp_path, "g-recreated-0", MADE_AGAIN)
    gone = replica(tmp_path, "g-gone-0", DELETED)
    other = replica(tmp_path, "g-other-0", None)
    said = "stray, the metadata up to offset 577 does not have it: "
    expected = [
        ("warning", str(gone), f"{said}topic id {DELETED} was deleted"),
        ("warning", str(other), f"{said}there is no topic of this name"),
    ]
    assert sorted(findings(tmp_path, METADATA)) == expected
    report = verify(tmp_path, METADATA)
    assert (report.warnings, report.damaged) == (2, True)
    command = [sys.executable, "-m", "offsetlog", "verify", "--json", str(tmp_path), str(METADATA)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    told = [line for line in map(json.loads, done.stdout.splitlines()) if line.get("kind") == "Stray"]
    assert sorted((line["severity"], line["path"], line["reason"]) for line in told) == expected
    assert done.returncode == 3
    # Without metadata, of metadata alone, and of one partition nothing is compared, nor is anything said of that.
    assert findings(tmp_path) == findings(METADATA) == findings(sound) == findings(*CLEAN_LOG_DIRS, METADATA) == []
    assert not caplog.records


def test_a_handler_that_raises_ends_verify_while_it_looks_again(tmp_path: Path) -> None:
    class TooLongError(Exception):
        pass

    sent: list[int] = []

    def handler(number: int, _: object) -> None:
        sent.append(number)
        raise TooLongError

    def verify_until_sent() -> None:
        timer.start()
        while not sent:
            verify(tmp_path, METADATA)

    replica(tmp_path, "g-gone-0", DELETED)
    before = signal.signal(signal.SIGUSR1, handler)
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    try:
        with pytest.raises(TooLongError):
            verify_until_sent()
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def test_verify_says_that_it_could_not_compare(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    replica(tmp_path, "g-gone-0", DELETED)
    metadata = tmp_path / "metadata"
    shutil.copytree(METADATA, metadata)
    segment = metadata / "__cluster_metadata-0" / "00000000000000000000.log"
    segment.chmod(0o644)
    whole = segment.read_bytes()
    segment.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    report = verify(tmp_path / "g-gone-0", metadata)
    assert report.damaged
    assert "Stray" not in {each.kind for each in report.findings}
    assert "not compared with the metadata: " in caplog.text


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "offsetlog", "ls", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300
    )


def test_ls_says_it(tmp_path: Path) -> None:
    directory = replica(tmp_path, "g-recreated-0", DELETED)
    replica(tmp_path, "g-gone\x1b-0", None)
    listed = run(tmp_path, METADATA, "-t", "g-recreated")
    reason = f"topic id {DELETED} was deleted, and the topic of this name is now {MADE_AGAIN}"
    assert (listed.returncode, listed.stderr) == (
        0,
        f"offsetlog: warning: {directory} is stray, the metadata up to offset 577 does not have it: {reason}\n",
    )
    assert run(tmp_path, METADATA, "-t", "g-recreated", "-q").stderr == ""
    told = {line["topic"]: line.get("stray") for line in map(json.loads, run(tmp_path, METADATA, "--json").stdout.splitlines())}
    assert told == {"__cluster_metadata": None, "g-gone\x1b": "there is no topic of this name", "g-recreated": reason}
    assert "\x1b" not in run(tmp_path, METADATA).stderr
    assert run(tmp_path).stderr == run(*CLEAN_LOG_DIRS, METADATA, "-t", "g-plain").stderr == ""


def test_ls_says_what_a_broker_has_set_aside(tmp_path: Path) -> None:
    """Their records are in no partition of the list, with metadata and without."""
    uuid = "5f2a1c0e8b7d4f6a9c3e2d1b0a998877"
    one = replica(tmp_path, f"g-gone-0.{uuid}-stray", DELETED)
    replica(tmp_path, f"g-recreated-1.{uuid}-stray", DELETED)
    replica(tmp_path, f"g-recreated-2.{uuid}-delete", DELETED)
    replica(tmp_path, "g-recreated-0", MADE_AGAIN)
    for listed in (run(tmp_path), run(tmp_path, METADATA)):
        assert listed.stderr.splitlines()[0].startswith(
            f"offsetlog: warning: 2 directories are not listed: a broker has set them aside as strays, {one} first; "
        )
    (other,) = tmp_path.glob("g-recreated-1.*")
    assert run(tmp_path, "-t", "g-recreated").stderr.startswith(
        f"offsetlog: warning: {other} is not listed: a broker has set it aside as a stray; "
    )
    assert run(tmp_path, "-q").stderr == run(one).stderr == ""


def test_metadata_of_which_a_part_is_missing_does_not_tell(tmp_path: Path) -> None:
    replica(tmp_path, "g-recreated-0", DELETED)
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    segment = METADATA / directory.name / "00000000000000000000.log"
    (position,) = [frame.position for frame in frames(segment) if frame.base_offset == 215]
    (directory / "00000000000000000215.log").write_bytes(segment.read_bytes()[position:])
    with LogDir.open(tmp_path) as logs:
        assert logs.strays() is None
    listed = run(tmp_path, "-t", "g-recreated", "--json")
    assert "stray" not in json.loads(listed.stdout)
    assert listed.stderr.splitlines()[-1] == "offsetlog: warning: not compared with the metadata, of which a part is missing"


def test_ls_goes_on_where_the_metadata_is_damaged(tmp_path: Path) -> None:
    replica(tmp_path, "g-recreated-0", DELETED)
    directory = tmp_path / "__cluster_metadata-0"
    shutil.copytree(METADATA / directory.name, directory)
    segment = directory / "00000000000000000000.log"
    whole = segment.read_bytes()
    segment.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    listed = run(tmp_path, "-t", "g-recreated", "--json")
    assert [json.loads(line)["topic"] for line in listed.stdout.splitlines()] == ["g-recreated"]
    assert listed.stderr.startswith("offsetlog: warning: not compared with the metadata: ")
