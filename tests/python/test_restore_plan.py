"""What ``restore`` prints besides its work: the plan, and what remains to be done by hand, in text and in JSON."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import metadata_records as records
import pytest
from frames import all_frames
from golden import CLEAN_LOG_DIRS, CLEAN_PARTITIONS, Golden
from restoring import SOURCES, formatted

from offsetlog import Log, restore
from offsetlog._offsetlog import run_cli

ID = bytes(range(1, 17))
PLAN = ("PARTITION", "START", "END", "BYTES", "NEWEST", "EPOCH", "FROM", "INTO")
DAY_SECONDS = 86_400


def shell(streams: pytest.CaptureFixture[str], *words: object, code: int) -> str:
    """What the command prints, in this process."""
    found = run_cli(["offsetlog", "restore", *map(str, words)], [])
    out, err = streams.readouterr()
    assert found == code, err
    return out


def lines(streams: pytest.CaptureFixture[str], *words: object, code: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shell(streams, *words, "--json", code=code).splitlines()]


def bytes_of(golden: Golden) -> int:
    return sum(path.stat().st_size for path in golden.directory.glob("*.log"))


def newest_of(golden: Golden) -> int | None:
    """The greatest timestamp in the last segment that has batches, markers of transactions too, by their headers."""
    headers = all_frames(golden.directory)
    newest = max((each.max_timestamp for each in headers if each.segment == headers[-1].segment), default=-1)
    return None if newest < 0 else newest


def shown_bytes(number: int) -> set[str]:
    """As `ls -h` writes it, whichever way it is rounded."""
    if number < 1024:
        return {str(number)}
    tenths = number * 10 // 1024
    if tenths < 99:
        return {f"{each / 10:.1f}K" for each in (tenths, tenths + 1)}
    return {f"{each}K" for each in (number // 1024, number // 1024 + 1)}


def shown_time(millis: int | None) -> str:
    if millis is None:
        return "-"
    return datetime.fromtimestamp(millis // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{millis % 1000:03}Z"


def test_the_plan_says_what_from_where_how_much_and_how_new(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A row for each partition before anything is written, by what consumers and the brokers' own files say of them."""
    table = shell(capfd, *SOURCES, "--into", tmp_path / "new", "-t", "g-*", "--dry-run", code=0)
    assert not (tmp_path / "new").exists()
    head, names, *rows = table.splitlines()
    chosen = {each.name: each for each in CLEAN_PARTITIONS if each.topic.startswith("g-")}
    total = sum(map(bytes_of, chosen.values()))
    assert head.startswith(f"plan: {len(chosen)} partitions into a folder of no broker, ")
    assert head.split(", ")[1].removesuffix(" to read") in shown_bytes(total)
    assert tuple(names.split()) == PLAN
    found = {row.split()[0]: dict(zip(PLAN, row.split(), strict=True)) for row in rows[: len(chosen)]}
    assert found.keys() == chosen.keys()
    for name, golden in chosen.items():
        row = found[name]
        assert (int(row["START"]), int(row["END"])) == (golden.start, golden.end), row
        assert row["BYTES"] in shown_bytes(bytes_of(golden)), row
        assert row["NEWEST"] == shown_time(newest_of(golden)), row
        assert row["EPOCH"] == ("-" if golden.leader_epoch is None else str(golden.leader_epoch)), row
        assert (row["FROM"], row["INTO"]) == (str(golden.directory.parent), str(tmp_path / "new")), row


def test_the_plan_in_json_and_in_python_is_the_same(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    *planned, whole = lines(capfd, *SOURCES, "--into", tmp_path / "new", "-t", "g-*", "--dry-run")
    report = restore(SOURCES, tmp_path / "new", topics="g-*", dry_run=True)
    chosen = {each.name: each for each in CLEAN_PARTITIONS if each.topic.startswith("g-")}
    assert (whole["dry_run"], whole["bytes"], report.bytes) == (True, *[sum(map(bytes_of, chosen.values()))] * 2)
    assert len(planned) == len(report.partitions) == len(chosen)
    for line, each in zip(planned, report.partitions, strict=True):
        golden = chosen[f"{line['topic']}-{line['partition']}"]
        expected = ("planned", str(golden.directory), str(tmp_path / "new" / golden.name), bytes_of(golden), newest_of(golden))
        assert (line["state"], line["source"], line["into"][0]["path"], line["bytes"], line["newest_timestamp"]) == expected
        assert (each.state, each.source, each.into[0].path, each.bytes, each.newest_timestamp) == expected


def test_the_plan_stands_before_what_became_of_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = shell(capfd, *SOURCES, "--into", tmp_path / "new", "-t", "g-plain", code=0).splitlines()
    assert done[0].startswith("plan: 3 partitions into ")
    behind = [number for number, line in enumerate(done) if line.startswith("g-plain-") and ("records restored" in line)]
    assert len(behind) == 3, done
    assert done[1].split() == list(PLAN)
    assert min(behind) > 4


def test_in_json_the_plan_is_the_first_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It has what the lines of a dry run have, and a field that no other line has."""
    words = (*SOURCES, "--into", tmp_path / "new", "-t", "g-plain")
    *planned, told = lines(capfd, *words, "--dry-run")
    first, *done, report = lines(capfd, *words)
    assert first == {"plan": {"partitions": planned, **told, "dry_run": False}}
    assert [line["state"] for line in planned] == ["planned"] * 3
    assert [(line["topic"], line["partition"], line["state"]) for line in done] == [
        ("g-plain", number, "restored") for number in range(3)
    ]
    assert (report["target"], report["dry_run"], report["bytes"]) == ("folder", False, told["bytes"])
    assert not [line for line in (*planned, told, *done, report) if "plan" in line]
    again, *there, _ = lines(capfd, *words)
    assert {line["state"] for line in again["plan"]["partitions"]} == {"planned"}
    assert {line["state"] for line in there} == {"there"}


def test_in_json_the_plan_of_nothing_and_of_what_ends_early_is_there(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A reader that takes the last line knows by its fields whether it is the report."""
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "meta.properties").write_text("version=1\ncluster.id=b2Zmc2V0bG9nLXRlc3RzLWM\nnode.id=1\n", encoding="utf-8")
    plan, report = lines(capfd, empty, "--into", tmp_path / "new", code=1)
    assert (plan["plan"]["partitions"], report["target"]) == ([], "folder")
    log_dir = formatted(tmp_path / "broker")
    words = (*SOURCES, "--into", log_dir, "--new-cluster", "-t", "g-plain")
    program = (
        "import fcntl, sys, time\nlock = open(sys.argv[1], 'w')\nfcntl.lockf(lock, fcntl.LOCK_EX)\nprint(flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(log_dir / ".lock")], stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        try:
            (last,) = lines(capfd, *words, code=2)
        finally:
            broker.kill()
    assert last.keys() == {"plan"}


def old_cluster(place: Path, *, access: bool) -> Path:
    """Metadata of a cluster with one topic, and with what is about users and clients."""
    values = [records.topic("orders", ID), records.partition(ID, 0, [1])]
    if access:
        values += [
            records.acl(bytes(range(16)), records.Acl(2, "orders", 3, "User:alice", "*", 3, 3)),
            records.acl(bytes(range(16, 32)), records.Acl(3, "billing", 3, "User:alice", "*", 3, 3)),
            records.quota({"user": "alice", "client-id": None}, "producer_byte_rate", 1024.0),
            records.scram("alice", 1, 8192),
            records.config("client-metrics", "all", "interval.ms", "60000"),
            records.config("broker", "1", "log.cleaner.threads", "2"),
        ]
    return records.write(place, values)


ACCESS = (
    "the old cluster had 2 ACLs, 1 quota, 1 SCRAM user with a password that nobody can read, 2 settings of brokers, clients or groups"
)


@pytest.mark.parametrize("access", [True, False])
def test_acls_quotas_and_users_of_the_old_cluster_are_named(
    access: bool,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """They are not among what a new cluster gets; the command that prints them is told, and nothing secret."""
    metadata = old_cluster(tmp_path / "metadata", access=access)
    command = "offsetlog metadata SOURCE --as-commands"
    into = formatted(tmp_path / "new")
    plan = lines(capfd, metadata, "--into", into, "--new-cluster", "--dry-run", code=3)
    text = shell(capfd, metadata, "--into", into, "--new-cluster", "--dry-run", code=3)
    report = restore(metadata, into, new_cluster=True, dry_run=True)
    told = [each for each in plan[-1]["remaining"] if each["about"] == "access"]
    assert told == ([{"about": "access", "reason": ACCESS, "commands": [command]}] if access else [])
    assert [each for each in report.remaining if each.about == "access"] == ([("access", ACCESS, (command,))] if access else [])
    assert (ACCESS in text, command in text) == (access, access)
    assert "s3cret" not in text + json.dumps(plan)
    # Into a folder nothing of them can be lost.
    assert [each for each in restore(metadata, tmp_path / "folder", dry_run=True).remaining if each.about == "access"] == []


def test_the_command_that_remains_for_access_prints_all_of_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What is told works: with the source's path it prints the commands for these ACLs and this quota, and says whose password is gone."""
    metadata = old_cluster(tmp_path / "metadata", access=True)
    (told,) = (
        each
        for each in restore(metadata, formatted(tmp_path / "new"), new_cluster=True, dry_run=True).remaining
        if each.about == "access"
    )
    (command,) = told.commands
    words = [str(metadata) if word == "SOURCE" else word for word in command.split()]
    assert run_cli(words, []) == 0
    script, _ = capfd.readouterr()
    assert script.count("kafka-acls.sh ") >= 2
    for part in ("User:alice", "--group billing", "producer_byte_rate=1024", "log.cleaner.threads=2", "interval.ms=60000"):
        assert part in script, part
    assert "s3cret" not in script


def test_committed_offsets_that_stay_behind_are_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With a topic chosen, the groups do not come along; with all, they do."""
    command = "offsetlog groups SOURCE --reset-csv > offsets.csv"
    for number, (topics, expected) in enumerate(((("-t", "g-plain"), True), (("-t", "*"), False))):
        into = formatted(tmp_path / str(number))
        words = (*SOURCES, "--into", into, "--new-cluster", *topics, "--dry-run")
        remaining = lines(capfd, *words)[-1]["remaining"]
        stays = "the groups' committed offsets are not restored"
        told = [each for each in remaining if each["about"] == "groups" and each["reason"].startswith(stays)]
        text = shell(capfd, *words, code=0)
        assert [each["commands"] for each in told] == ([[command]] if expected else [])
        assert (stays in text) == expected
        assert command in text or not expected
    # What is told works: a line for every partition that a group of the source has committed.
    expected_lines = set()
    assert run_cli(["offsetlog", "groups", *map(str, CLEAN_LOG_DIRS), "--json"], []) == 0
    for group in map(json.loads, capfd.readouterr().out.splitlines()):
        expected_lines |= {(each["topic"], str(each["partition"]), str(each["offset"])) for each in group["offsets"]}
    assert run_cli(["offsetlog", "groups", *map(str, CLEAN_LOG_DIRS), "--reset-csv"], []) == 0
    rows = [line.split(",") for line in capfd.readouterr().out.splitlines()]
    assert {tuple(part.strip('"') for part in row[-3:]) for row in rows} == expected_lines


def test_what_remains_is_in_the_text_below_the_work(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A real run prints it too, last, with the commands below the reason."""
    into = formatted(tmp_path / "new")
    done = shell(capfd, *SOURCES, "--into", into, "--new-cluster", "-t", "g-plain", code=0).splitlines()
    remaining = restore(SOURCES, into, topics="g-plain", new_cluster=True).remaining
    assert {each.about for each in remaining} >= {"groups", "g-plain"}
    restored = max(number for number, line in enumerate(done) if "records restored" in line)
    for each in remaining:
        (at,) = (number for number, line in enumerate(done) if each.reason in line)
        assert at > restored
        assert [line.strip() for line in done[at + 1 : at + 1 + len(each.commands)]] == list(each.commands)


def test_metadata_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """Without it topics that were deleted come back, and their settings are not known."""
    metadata = old_cluster(tmp_path / "metadata", access=True)
    whole = restore(metadata, formatted(tmp_path / "one"), new_cluster=True, dry_run=True)
    assert not [text for text in whole.warnings if "cannot be read" in text]
    (log,) = metadata.glob("__cluster_metadata-0/*.log")
    log.unlink()
    log.mkdir()
    report = restore(metadata, formatted(tmp_path / "two"), new_cluster=True, dry_run=True)
    assert any("the cluster's metadata cannot be read" in text for text in report.warnings), report.warnings


def test_the_plan_says_how_long_reading_takes_at_least(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By a sample: 80 GB of zeros that no disk has to read take more than a second on any machine, and less than a day."""
    source = tmp_path / "old"
    with Log.open(source / "orders-0", "a") as log:
        for _ in range(41):
            log.append(b"value", timestamp=1)
            log.roll()
    # The last ones are sound, so where the log ends need not be looked for among zeros.
    for segment in sorted((source / "orders-0").glob("*.log"))[:40]:
        with segment.open("r+b") as file:
            file.truncate(2_000_000_000)
    report = restore(source, tmp_path / "new", dry_run=True)
    assert report.bytes > 80_000_000_000
    assert report.reading_seconds_min is not None
    assert 1 <= report.reading_seconds_min < DAY_SECONDS
    head = shell(capfd, source, "--into", tmp_path / "new", "-n", code=0).splitlines()[0]
    assert re.fullmatch(r"plan: 1 partition into a folder of no broker, 75G to read in ([0-9]+[hms])+ at least", head), head
    (whole,) = [line for line in lines(capfd, source, "--into", tmp_path / "new", "-n", code=0) if "target" in line]
    assert 1 <= whole["reading_seconds_min"] < DAY_SECONDS
    assert restore(SOURCES, tmp_path / "new", topics="g-plain", dry_run=True).reading_seconds_min is None
    assert not (tmp_path / "new").exists()
