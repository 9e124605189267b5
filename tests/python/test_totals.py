"""Totals are the sums of what the partitions say, and a partition that cannot be read is named and not counted as nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from golden import CLEAN_LOG_DIRS, CLEAN_PARTITIONS
from partition_damage import DAMAGED, KINDS, PARTITIONS, RECORDS, made
from writing import environment

import offsetlog
from offsetlog import LogDir, UnreadPartitionsError, verify
from offsetlog._offsetlog import run_cli

# Of those that leave the partition's folder as anybody may list it.
SHOWN = ["a folder for a segment", "a garbage batch", "a cut closed segment", "garbage checkpoints"]


def run(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    capfd.readouterr()
    code = run_cli(["offsetlog", *map(str, words)], [])
    said = capfd.readouterr()
    return code, said.out, said.err


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def sizes(partition: Path) -> list[int]:
    """Of its segments, by the system."""
    return [path.stat().st_size for path in partition.glob("*.log") if path.is_file()]


def test_topics_are_the_sums_of_their_partitions(capfd: pytest.CaptureFixture[str]) -> None:
    """As the system counts files and bytes, and a real consumer counted records."""
    expected: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for golden in CLEAN_PARTITIONS:
        held = sizes(golden.directory)
        for at, number in enumerate((1, len(held), sum(held))):
            expected[golden.topic][at] += number
    code, out, _ = run(capfd, "ls", "--json", "--by-topic", *CLEAN_LOG_DIRS)
    assert code == 0
    assert {row["topic"]: [len(row["partitions"]), row["segments"], row["size_bytes"]] for row in lines(out)} == expected
    code, out, _ = run(capfd, "ls", "--by-topic", *CLEAN_LOG_DIRS)
    table = [line.split() for line in out.splitlines()[1:]]
    assert {row[0]: list(map(int, row[1:4])) for row in table} == expected
    with LogDir.open(CLEAN_LOG_DIRS) as log_dir:
        assert log_dir.scan().count() == sum(golden.counts[0] for golden in CLEAN_PARTITIONS)
        committed = log_dir.scan(isolation_level="read_committed").count()
        assert committed == sum(golden.counts[1] for golden in CLEAN_PARTITIONS)
    code, out, _ = run(capfd, "grep", "--count", "--json", "--invert-match", "no record has this text", *CLEAN_LOG_DIRS)
    assert {f"{row['topic']}-{row['partition']}": row["count"] for row in lines(out)} == {
        golden.name: golden.counts[0] for golden in CLEAN_PARTITIONS
    }


def test_verify_adds_up_what_it_finds_in_each_partition(tmp_path: Path) -> None:
    place = made(tmp_path / "logs")
    KINDS["a garbage batch"].damage(place)
    (place / "pay-0" / f"{0:020}.log").unlink()
    (place / "pay-0" / f"{0:020}.log").mkdir()
    partitions = [path for path in place.iterdir() if path.is_dir()]
    alone = [verify(path) for path in partitions]
    whole = verify(place)
    for field in ("partitions", "segments", "batches", "records", "bytes_read", "errors", "warnings", "notes"):
        assert getattr(whole, field) == sum(getattr(report, field) for report in alone), field
    assert whole.records == PARTITIONS * RECORDS - 1
    assert whole.bytes_read == sum(sum(sizes(path)) for path in partitions)
    assert {Path(finding.path).parent.name for finding in whole.findings if finding.severity == "error"} == {DAMAGED, "pay-0"}


@pytest.mark.parametrize("kind", SHOWN)
def test_what_cannot_be_read_is_named_beside_the_total(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    place = made(tmp_path / "logs")
    opens, lost = KINDS[kind].opens, KINDS[kind].lost
    KINDS[kind].damage(place)
    known = [sizes(place / f"orders-{number}") for number in range(PARTITIONS) if opens or number != 1]
    total = [PARTITIONS, sum(map(len, known)), sum(map(sum, known))]
    code, out, said = run(capfd, "ls", "--json", "--by-topic", place)
    (orders, pay) = lines(out)
    assert [len(orders["partitions"]), orders["segments"], orders["size_bytes"]] == total
    assert "unread" not in pay
    assert orders.get("unread", []) == ([] if opens else [1])
    assert code == (0 if opens else 2)
    assert (f"{DAMAGED}: " in said) == (not opens or kind == "garbage checkpoints")
    _, out, said = run(capfd, "ls", "--by-topic", place)
    assert list(map(int, out.splitlines()[1].split()[1:4])) == total
    assert f"{DAMAGED}: " in said or opens

    # Records: what stands before the damage counts, and the partition is named.
    readable = (RECORDS if lost is None else lost) if opens else 0
    code, out, said = run(capfd, "grep", "--count", "--json", "--invert-match", "no record has this text", place)
    counts = {f"{row['topic']}-{row['partition']}": row["count"] for row in lines(out) if "count" in row}
    failed = [f"{row['topic']}-{row['partition']}" for row in lines(out) if "error" in row]
    assert counts == {f"orders-{number}": RECORDS for number in (0, 2, 3)} | {"pay-0": 1} | ({DAMAGED: readable} if opens else {})
    is_whole = opens and lost is None
    assert (code, failed) == ((0, []) if is_whole else (2, [DAMAGED]))
    if opens:
        with LogDir.open(place) as log_dir:
            if is_whole:
                assert log_dir.scan().count() == sum(counts.values())
            else:
                with pytest.raises(UnreadPartitionsError, match=DAMAGED) as caught:
                    log_dir.scan().count()
                assert caught.value.partial == sum(counts.values())

    # A restore: the plan's bytes, and what became of it.
    for dry_run in (True, False):
        report = offsetlog.restore(place, tmp_path / "new", dry_run=dry_run)
        assert report.bytes == sum(each.bytes for each in report.partitions) == total[2] + sum(sizes(place / "pay-0"))
        states = {f"{each.topic}-{each.partition}": each.state for each in report.partitions}
        assert set(states) == {*counts, DAMAGED}
        assert (states[DAMAGED] == "refused") == (not opens)
        if not dry_run:
            records = {f"{each.topic}-{each.partition}": each.records for each in report.partitions}
            whole = None if not opens else RECORDS if lost is None else RECORDS - 1
            assert records == {**counts, DAMAGED: whole}


def test_serve_says_how_many_are_offline(tmp_path: Path) -> None:
    place = made(tmp_path / "logs")
    KINDS["a pipe for a segment"].damage(place)
    command = [sys.executable, "-m", "offsetlog", "serve", "--listen", "127.0.0.1:0", str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        told: list[str] = []
        while not told or "Ctrl-C" not in told[-1]:
            told.append(process.stdout.readline())
            assert told[-1], process.communicate()
        process.terminate()
        process.communicate()
    rows = {line.split()[0]: line.split()[1:] for line in told if line.startswith(("orders ", "pay "))}
    assert rows == {"orders": [str(PARTITIONS), str(3 * RECORDS), "1", "offline"], "pay": ["1", "1"]}
    assert "2 topics with 5 partitions" in told[0]
