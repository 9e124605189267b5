"""Every verb of a rescue on every kind of directory: what it answers is known from the brokers, and the source stays as it was."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from frames import all_frames
from golden import DATA, Golden
from rescue_sources import KINDS, Source, end_of, offsets, producers, property_of, topic_id, unchanged
from test_convert import check
from test_on_corrupt import touched
from test_salvage import promised

from offsetlog import (
    ConfigError,
    Log,
    LogDir,
    OffsetLogError,
    UnreadPartitionsError,
    adopt,
    end_transaction,
    identity,
    restore,
    salvage,
)
from offsetlog._offsetlog import run_cli

OTHER_ID = "AAECAwQFBgcICQoLDA0ODw"
# Nobody can tell where a batch of magic 9 ends, so nobody can tell what is behind it.
UNREADABLE = "g-torn-flip-magic-0"


class Told(NamedTuple):
    """What the command said."""

    code: int
    lines: list[dict[str, Any]]
    err: str


class Shell:
    """The command, in this process."""

    def __init__(self, streams: pytest.CaptureFixture[str]) -> None:
        self.streams = streams

    def __call__(self, *words: object) -> Told:
        """With ``--json``: every line has to be JSON."""
        code = run_cli(["offsetlog", *map(str, words), "--json"], [])
        out, err = self.streams.readouterr()
        return Told(code, [json.loads(line) for line in out.splitlines()], err)


@pytest.fixture
def shell(capfd: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capfd)


@pytest.fixture(scope="module", params=KINDS)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Source:
    return KINDS[request.param](tmp_path_factory.mktemp("rescue") / "disks")


def ends_torn(directory: Path) -> bool:
    """Whether the log ends in half a batch, by the lengths of its batches."""
    data = max(directory.glob("*.log")).read_bytes()
    at = 0
    while at + 12 <= len(data):
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return at != len(data)


def name_of(line: dict[str, Any]) -> str:
    return f"{line['topic']}-{line['partition']}"


def check_log(golden: Golden, path: Path) -> None:
    """The new log has what the consumer saw of the broker's; of a log with a damaged batch, all but that."""
    if golden.name != UNREADABLE and len(offsets(golden)) == len(golden.rows):
        check(golden, path)
    else:
        with Log.open(path) as log:
            assert [seen.offset for seen in log.scan()] == offsets(golden)
            assert not log.verify().damaged


def damaged(source: Source) -> set[str]:
    """Partitions with a damaged batch or without a segment, and those whose high watermark is behind all that they have."""
    torn = [each for each in source.partitions if each.topic.startswith("g-torn-")]
    lost = {each.name for each in torn if touched(each) or promised(each) > end_of(each)}
    return lost | (source.names & {UNREADABLE, "g-torn-gap-0"})


def test_the_kinds_are_what_they_are_called(source: Source) -> None:
    """Else the others show less than they say."""
    names = {path.name for path in source.root.rglob("*")}
    marks = {place.name for place in source.log_dirs if (place / ".kafka_cleanshutdown").exists()}
    assert len(source.partitions) >= 4
    assert len(marks) in {0, len(source.log_dirs)}
    assert bool(source.open_transactions) == ("__transaction_state-0" in names)


@pytest.mark.slow
def test_restore(source: Source, shell: Shell, tmp_path: Path) -> None:
    """Into a folder: first the plan, which makes nothing, then every record."""
    words = ("restore", *source.dirs, "--into", tmp_path / "new")
    with unchanged(source):
        plan = shell(*words, "--dry-run")
        assert not (tmp_path / "new").exists()
        done = shell(*words)
        report = restore(source.dirs, tmp_path / "again", dry_run=True)
    assert (plan.code, done.code) == (0, 3 if damaged(source) else 0), done.err
    *planned, _ = plan.lines
    first, *lines, whole = done.lines
    assert first["plan"]["partitions"] == planned
    assert (whole["target"], whole["missing"], whole["left_out"]) == ("folder", [], [])
    by_name = {name_of(line): line for line in lines}
    assert sorted(by_name) == sorted(map(name_of, planned)) == sorted(source.names)
    assert sorted(f"{each.topic}-{each.partition}" for each in report.partitions) == sorted(source.names)
    for golden in source.partitions:
        line = by_name[golden.name]
        found = (line["state"], line["log_start_offset"], line["records"])
        assert found == ("restored", golden.start, len(offsets(golden))), line
        assert bool(line["losses"]) == (golden.name in damaged(source)), line
        assert line["topic_id"] == topic_id(golden)
        check_log(golden, Path(line["into"][0]["path"]))


@pytest.mark.slow
def test_salvage(source: Source, shell: Shell, tmp_path: Path) -> None:
    """Each partition in a directory of its own, with what it lost; in Python the same is told."""
    with unchanged(source):
        dry = shell("salvage", *source.log_dirs, "--into", tmp_path / "new", "--dry-run")
        assert not (tmp_path / "new").exists()
        done = shell("salvage", *source.log_dirs, "--into", tmp_path / "new")
        reports = {each.name: salvage(each.directory, tmp_path / "python" / each.name, dry_run=True) for each in source.partitions}
    assert dry.code == done.code == (3 if damaged(source) else 0), done.err
    assert [{**line, "dry_run": False} for line in dry.lines] == done.lines
    by_name = {name_of(line): line for line in done.lines}
    assert sorted(by_name) == sorted(source.names)
    for golden in source.partitions:
        line, report = by_name[golden.name], reports[golden.name]
        assert (line["log_start_offset"], line["records"], line["warnings"]) == (golden.start, len(offsets(golden)), [])
        assert (report.records, report.log_end_offset, report.loss_count) == tuple(
            line[key] for key in ("records", "log_end_offset", "loss_count")
        )
        assert bool(line["losses"]) == (golden.name in damaged(source)), line
        assert line["first_unstable_offset"] == source.open_transactions.get(golden.name)
        check_log(golden, Path(line["path"]))


def test_why(source: Source, shell: Shell) -> None:
    """A sentence of each partition's deletion, and one where read_committed ends before the log does."""
    with unchanged(source):
        done = shell("why", *source.dirs)
        with LogDir.open(source.dirs) as log_dir:
            try:
                answers = log_dir.why()
            except UnreadPartitionsError as error:
                answers = error.partial
    unread = {name_of(line) for line in done.lines if "error" in line}
    assert unread == source.names & {UNREADABLE}
    assert done.code == (2 if unread else 0), done.err
    lines = [line for line in done.lines if "error" not in line]
    asked = Counter((name_of(line), line["question"]) for line in lines)
    assert {name for name, question in asked if question == "deletion"} == source.names - unread
    assert set(asked.values()) == {1}
    reading = {name_of(line): line["offset"] for line in lines if line["question"] == "read_committed"}
    assert reading == source.open_transactions
    assert all(line["sentence"] and line["remedy"] for line in lines)
    assert [(each.topic, each.partition, each.question, each.sentence) for each in answers] == [
        (line["topic"], line["partition"], line["question"], line["sentence"]) for line in lines
    ]


def test_producers(source: Source, shell: Shell) -> None:
    """Those whose batches are here, with epoch, sequence and offset of the last one; messages before magic 2 have none."""
    with unchanged(source):
        done = shell("producers", *source.dirs)
        found_open = shell("producers", *source.dirs, "--open")
    unread = {name_of(line) for line in done.lines if "error" in line}
    assert unread == source.names & {UNREADABLE}
    found = {(name_of(line), line["producer_id"]): line for line in done.lines if "error" not in line}
    expected = {
        (golden.name, producer): each
        for golden in source.partitions
        if golden.name not in unread
        for producer, each in producers(all_frames(golden.directory)).items()
    }
    assert done.code == (2 if unread else 0 if expected else 1), done.err
    assert expected.keys() <= found.keys()
    for key, each in expected.items():
        line = found[key]
        assert (line["producer_epoch"], line["last_sequence"], line["last_offset"]) == each, line
    if not expected:
        assert found == {}
        assert "no producer with a producer id here" in done.err
    open_now = {name_of(line): line["transaction_first_offset"] for line in found_open.lines if "error" not in line}
    assert open_now == source.open_transactions


def test_end_transaction(source: Source, shell: Shell) -> None:
    """What is open would be aborted where its coordinator says that it is ongoing; without one the refusal names what is there."""
    with unchanged(source):
        if source.open_transactions:
            ((name, first),) = source.open_transactions.items()
            golden = next(each for each in source.partitions if each.name == name)
            (found,) = shell("producers", *source.dirs, "--open").lines
            producer = found["producer_id"]
            words = ("end-transaction", name, producer, *source.dirs, "--abort", "--single-replica", "--dry-run")
            is_torn = any(ends_torn(each) for directory in source.dirs for each in directory.glob("__transaction_state-*"))
            if is_torn:
                # The half batch may have been the decision.
                refused = shell(*words)
                assert (refused.code, refused.lines) == (2, [])
                assert "torn tail" in refused.err
                assert "--without-state" in refused.err
                words = (*words, "--without-state")
            done = shell(*words)
            assert done.code == 0, done.err
            (line,) = done.lines
            assert (line["dry_run"], line["committed"], line["marker_offset"]) == (True, False, None)
            assert line["last_stable_offset_before"] == first
            assert (line["producer"]["transaction_first_offset"], line["producer"]["state"]) == (first, "Ongoing")
            ended = end_transaction(
                source.dirs,
                golden.topic,
                golden.partition,
                producer,
                commit=False,
                without_state=is_torn,
                single_replica=True,
                dry_run=True,
            )
            assert (ended.dry_run, ended.last_stable_offset_before) == (True, first)
            return
        name = max(source.names - {UNREADABLE})
        done = shell("end-transaction", name, 0, *source.dirs, "--abort", "--single-replica", "--dry-run")
        assert (done.code, done.lines) == (2, [])
        assert f"no open transaction in {name}" in done.err
        topic, _, number = name.rpartition("-")
        with pytest.raises(ConfigError, match="no open transaction"):
            end_transaction(source.dirs, topic, int(number), 0, commit=False, single_replica=True, dry_run=True)


def test_adopt(source: Source, shell: Shell) -> None:
    """Under another topic's id: what would be done, with the id before and the records; a damaged log is refused, with the way out."""
    sound = [golden for golden in source.partitions if len(offsets(golden)) == len(golden.rows) and golden.name != UNREADABLE]
    with unchanged(source):
        done = shell("adopt", *(golden.directory for golden in sound), "--topic-id", OTHER_ID, "--single-replica", "--dry-run")
        for golden in source.partitions:
            if golden not in sound:
                with pytest.raises(OffsetLogError, match=r"salvage makes a sound one|magic 9 found"):
                    adopt(golden.directory, topic_id=OTHER_ID, dry_run=True)
                refused = shell("adopt", golden.directory, "--topic-id", OTHER_ID, "--dry-run")
                assert (refused.code, refused.lines) == (2, [])
    assert done.code == 0, done.err
    for golden, line in zip(sound, done.lines, strict=True):
        assert (name_of(line), line["changed"], line["topic_id_before"]) == (golden.name, True, topic_id(golden))
        assert (line["log_start_offset"], line["log_end_offset"]) == (golden.start, end_of(golden))


@pytest.mark.parametrize("kind", ["unclean", "live"])
def test_adopt_takes_in_what_waits_for_its_deletion(kind: str, shell: Shell, tmp_path: Path) -> None:
    """The broker died before it removed them: what they would be, under their own topic's id, by the headers of their batches."""
    source = KINDS[kind](tmp_path / "disks")
    waiting = sorted(source.root.rglob("*-delete"))
    assert len(waiting) == 2
    with unchanged(source):
        for directory in waiting:
            name = directory.name.partition(".")[0]
            identifier = topic_id(Golden(DATA, directory))
            done = shell("adopt", directory, "--topic-id", identifier, "--single-replica", "--dry-run")
            assert done.code == 0, done.err
            (line,) = done.lines
            assert (name_of(line), Path(line["path"]).name, line["changed"], line["topic_id_before"]) == (name, name, True, identifier)
            headers = all_frames(directory)
            assert line["log_end_offset"] == headers[-1].last_offset + 1
            assert line["records"] == sum(each.record_count or 0 for each in headers if not each.is_control)
            (adopted,) = adopt(directory, topic_id=identifier, single_replica=True, dry_run=True)
            assert (adopted.records, adopted.log_end_offset) == (line["records"], line["log_end_offset"])


def test_metadata(source: Source, shell: Shell) -> None:
    """Topics of the cluster where its metadata is; of each directory what it is, whose, and what a broker would do."""
    with unchanged(source):
        done = shell("metadata", *source.dirs)
        directories = shell("metadata", "--directories", *source.dirs)
        told = identity(*source.dirs)
    has_metadata = source.dirs != source.log_dirs
    assert done.code == (0 if has_metadata else 1), done.err
    if has_metadata:
        assert {line["topic"]: line["topic_id"] for line in done.lines} == {each.topic: topic_id(each) for each in source.partitions}
    else:
        assert "no __cluster_metadata-0 here; it is in metadata.log.dir" in done.err
    assert directories.code == 0, directories.err
    by_path = {line["path"]: line for line in directories.lines}
    assert {each.path: each.outcome for each in told} == {path: line["outcome"] for path, line in by_path.items()}
    for golden in source.partitions:
        line = by_path[str(golden.directory)]
        assert (line["kind"], name_of(line), line["topic_id"]) == ("live", golden.name, topic_id(golden))
        assert line["outcome"] == ("serves" if has_metadata else "unknown")
    for place in source.log_dirs:
        line = by_path[str(place)]
        node = property_of(place, "node.id", "broker.id")
        assert (line["cluster_id"], line["node_id"]) == (property_of(place, "cluster.id"), None if node is None else int(node))
        if (place / "meta.properties").exists():
            is_clean = (place / ".kafka_cleanshutdown").exists()
            assert ("no mark of a clean stop, so it recovers the logs" in line["reason"]) == (not is_clean)
        else:
            assert (line["outcome"], "no meta.properties" in line["reason"]) == ("stops", True)


def test_groups(source: Source, shell: Shell) -> None:
    """The last commit of each group, as Kafka's own decoder read them; where no group is, where to look."""
    with unchanged(source):
        done = shell("groups", *source.dirs)
        with LogDir.open(source.dirs) as log_dir:
            groups = log_dir.groups()
    expected: dict[tuple[str, str, int], int] = {}
    if "__consumer_offsets-0" in source.names:
        for line in (DATA / "expected/kafka-4.3.0-clean/committed-offsets.jsonl").read_text().splitlines():
            key, payload = (commit := json.loads(line))["key"], commit["payload"]
            expected.pop((key["group"], key["topic"], key["partition"]), None)
            if payload is not None:
                expected[key["group"], key["topic"], key["partition"]] = payload["offset"]
    found = {(line["group"], each["topic"], each["partition"]): each["offset"] for line in done.lines for each in line["offsets"]}
    assert found == expected
    assert {group.group_id for group in groups} == {line["group"] for line in done.lines}
    assert done.code == (0 if expected else 1), done.err
    assert expected or "no groups here; they are in the log dirs that hold __consumer_offsets" in done.err
