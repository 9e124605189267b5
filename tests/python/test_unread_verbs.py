"""One damaged partition of several: what each verb still answers of the others and of itself, what it names, and its exit code."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from golden import CLEAN
from partition_damage import CHECKPOINTS, DAMAGED, KINDS, PARTITIONS, RECORDS, SEGMENT, SOUND, Kind, anybody, made, mend
from reading_answers import Ran
from test_no_trace import traces
from writing import CONFIG, LOCK

from offsetlog import LogDir, LogDirError, OffsetLogError, Record, Scan, TopicPartition, UnreadPartitionsError
from offsetlog._offsetlog import run_cli


class Place:
    """A log dir with one kind of damage, and the command in it."""

    def __init__(self, path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.path = made(path)
        self._capfd = capfd
        self._needs_permission = False

    def damage(self, kind: Kind) -> None:
        kind.damage(self.path)
        self._needs_permission = (self.path / DAMAGED).stat().st_mode & 0o777 == 0

    def run(self, *words: object) -> Ran:
        """The command; a word `DIR` is the log dir, `DIR/name` what is in it."""
        told = [str(word).replace("DIR", str(self.path), 1) if str(word).startswith("DIR") else str(word) for word in words]
        if self._needs_permission:
            done = anybody("-m", "offsetlog", *told)
            return Ran(done.returncode, done.stdout, done.stderr)
        self._capfd.readouterr()
        code = run_cli(["offsetlog", *told], [])
        said = self._capfd.readouterr()
        return Ran(code, said.out, said.err)


@pytest.fixture
def place(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Place]:
    place = Place(tmp_path / "logs", capfd)
    yield place
    mend(place.path)


def name_of(line: dict[str, Any]) -> str:
    return f"{line['topic']}-{line['partition']}"


def without_warnings(line: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint that is ignored is told of every partition."""
    return {name: value for name, value in line.items() if name != "warnings"}


READING = {
    "ls": ["ls", "--json"],
    "cat": ["cat", "--json", "-t", "orders", "-t", "pay"],
    "grep": ["grep", "--json", "1|paid"],
    "grep --count": ["grep", "--json", "--count", "1|paid"],
    "time": ["time", "--json", "-t", "orders", "-t", "pay", "2023-11-14T22:13:20Z"],
    "producers": ["producers", "--json"],
    "why": ["why", "--json", "--now", "2023-11-15"],
    "recover --dry-run": ["recover", "--json", "--dry-run"],
    "maintain --dry-run": ["maintain", "--json", "--dry-run", "-t", "orders", "-t", "pay", "--config", "retention.ms=1"],
    "salvage --dry-run": ["salvage", "--json", "--dry-run", "--into", "DIR-into"],
    "restore --dry-run": ["restore", "--json", "--dry-run", "--into", "DIR-into"],
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_of_the_others_each_verb_says_what_it_says_without_the_damage(place: Place, kind: str) -> None:
    sound = {verb: place.run(*words, "DIR") for verb, words in READING.items()}
    for verb, ran in sound.items():
        assert ran.code == (1 if verb == "producers" else 0), (verb, ran)
        assert {name_of(line) for line in ran.partitions} == (set() if verb == "producers" else {DAMAGED, *SOUND}), verb
    place.damage(KINDS[kind])
    before = traces(place.path)
    for verb, words in READING.items():
        ran = place.run(*words, "DIR")
        lines = list(map(without_warnings, ran.partitions))
        expected = [without_warnings(line) for line in sound[verb].partitions if name_of(line) != DAMAGED]
        assert [line for line in lines if name_of(line) != DAMAGED] == expected, (verb, ran)
        of_it = [line for line in lines if name_of(line) == DAMAGED]
        if not KINDS[kind].opens:
            assert ran.code == 2, (verb, ran)
            assert len(of_it) == 1, (verb, of_it)
            assert DAMAGED in (of_it[0].get("error") or of_it[0]["reason"]), (verb, of_it)
            # What is restored is said of each partition on standard output, also in words.
            assert verb == "restore --dry-run" or f"{DAMAGED}: " in ran.err, (verb, ran.err)
        elif KINDS[kind].lost is None:
            assert ran.code == sound[verb].code, (verb, ran)
            assert of_it == [without_warnings(line) for line in sound[verb].partitions if name_of(line) == DAMAGED], verb
        elif verb in {"salvage --dry-run", "restore --dry-run", "recover --dry-run"}:
            assert ran.code == (0 if verb == "restore --dry-run" else 3), (verb, ran)
            assert len(of_it) == 1, (verb, of_it)
        elif verb in {"cat", "grep", "grep --count"}:
            assert ran.code == 2, (verb, ran)
            assert [line["error"] for line in of_it if "error" in line] != [], (verb, of_it)
            offsets = [line["offset"] for line in of_it if "offset" in line]
            assert all(offset < (KINDS[kind].lost or 0) for offset in offsets), (verb, offsets)
            if verb == "cat":
                assert offsets == list(range(KINDS[kind].lost or 0))
    assert traces(place.path) == before


def test_verify_names_a_folder_that_nobody_may_list_and_reads_the_others(place: Place) -> None:
    """Its findings are of files, not of partitions: what it read of the others is in its sums."""
    sound = place.run("verify", "--json", "DIR")
    assert sound.code == 0, sound
    of_it = place.run("verify", "--json", f"DIR/{DAMAGED}")
    place.damage(KINDS["a folder that nobody may list"])
    before = traces(place.path)
    ran = place.run("verify", "--json", "DIR")
    assert (ran.code, ran.err) == (3, "")
    *findings, sums = ran.lines
    (finding,) = findings
    assert (finding["severity"], finding["path"]) == ("error", str(place.path / DAMAGED))
    assert "Permission denied" in finding["reason"]
    assert sums["errors"] == 1
    for name in ("partitions", "segments", "batches", "records", "bytes_read"):
        assert sums[name] == sound.lines[-1][name] - of_it.lines[-1][name], name
    words = place.run("verify", "DIR")
    assert words.code == 3
    assert words.out.count(DAMAGED) == 1
    assert traces(place.path) == before


def test_groups_name_a_folder_that_nobody_may_list_and_answer_for_the_others(tmp_path: Path) -> None:
    """Where it is a consumed partition only its lag is missing, where it is a coordinator's only the groups that it keeps."""
    paths = [Path(shutil.copytree(CLEAN / name, tmp_path / name)) for name in ("log-dir-1", "log-dir-2")]

    def groups() -> Ran:
        done = anybody("-m", "offsetlog", "groups", "--json", *paths)
        return Ran(done.returncode, done.stdout, done.stderr)

    def without_ages(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """They follow the clock."""
        return [line | {"offsets": [offset | {"time_lag_ms": None} for offset in line["offsets"]]} for line in lines]

    sound = groups()
    assert (sound.code, [line["group"] for line in sound.lines]) == (0, ["g-group-1", "g-group-2"])
    expected = without_ages(sound.lines)
    for line in expected:
        (offset,) = (each for each in line["offsets"] if (each["topic"], each["partition"]) == ("g-plain", 0))
        assert offset["lag"] > 0
        offset |= {"log_end_offset": None, "lag": None, "first_unread_timestamp": None}
    try:
        for name, found in (("g-plain-0", expected), ("__consumer_offsets-0", without_ages(sound.lines[:1]))):
            (folder,) = (path / name for path in paths if (path / name).is_dir())
            folder.chmod(0)
            before = [traces(path) for path in paths]
            ran = groups()
            assert ran.code == 2, ran
            assert without_ages([line for line in ran.lines if "error" not in line]) == found
            (failed,) = (line for line in ran.lines if "error" in line)
            assert name_of(failed) == name
            assert "Permission denied" in failed["error"]
            assert ran.err.count("\n") == 1
            assert f"{name}: " in ran.err
            assert [traces(path) for path in paths] == before
            folder.chmod(0o755)
    finally:
        for path in paths:
            mend(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "partition.metadata", CONFIG])
def test_a_pipe_for_a_small_file_is_waited_for_by_no_verb(place: Place, name: str) -> None:
    """What needs the file names it, what does not need it answers as before; what records there are is read either way."""
    sound = {verb: place.run(*words, "DIR") for verb, words in READING.items()}
    path = place.path / DAMAGED / name
    path.unlink()
    os.mkfifo(path)
    before = traces(place.path)
    for verb, words in READING.items():
        # A process of its own: one that waits for a writer of the pipe is ended.
        run = [sys.executable, "-m", "offsetlog", *(word.replace("DIR", str(place.path)) for word in words), str(place.path)]
        done = subprocess.run(run, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False)
        ran = Ran(done.returncode, done.stdout, done.stderr)
        others = [without_warnings(line) for line in ran.partitions if name_of(line) != DAMAGED]
        assert others == [without_warnings(line) for line in sound[verb].partitions if name_of(line) != DAMAGED], (verb, ran)
        if verb in {"cat", "grep", "grep --count", "time"}:
            assert (ran.code, ran.out) == (0, sound[verb].out), (verb, ran)
        elif ran.code not in {0, 1}:
            assert f"{DAMAGED}/{name}" in ran.err + ran.out, (verb, ran)
    assert traces(place.path) == before
    ran = place.run("verify", "--json", "DIR")
    assert ran.code == 3
    assert [(line["severity"], line["path"]) for line in ran.lines[:-1]] == [("error", str(path))]
    assert ran.lines[-1]["records"] == PARTITIONS * RECORDS + 1
    for words in (["recover", f"DIR/{DAMAGED}"], ["append", f"DIR/{DAMAGED}"], ["maintain", "DIR", "-t", "orders"]):
        ran = place.run(*words)
        # Recovery does not use the topic's id.
        assert ran.code == (0 if words[0] == "recover" and name == "partition.metadata" else 2), (words, ran)
        assert ran.code == 0 or f"{DAMAGED}/{name}" in ran.err, (words, ran)
    assert path.is_fifo()


@pytest.mark.parametrize("kind", list(KINDS))
def test_dump_prints_the_others_whole_and_what_is_sound_of_the_damaged_one(place: Place, kind: str) -> None:
    place.damage(KINDS[kind])
    ran = place.run("dump", "--batches", *(f"DIR/{name}" for name in (*SOUND, DAMAGED)))
    found: dict[str, list[int]] = {name: [] for name in (*SOUND, DAMAGED)}
    for line in ran.lines:
        if line["type"] == "batch" and line["crc_valid"]:
            found[Path(line["file"]).parent.name].append(line["base_offset"])
    assert found.pop("pay-0") == [0]
    of_it = found.pop(DAMAGED)
    assert all(offsets == list(range(RECORDS)) for offsets in found.values()), found
    damage = [Path(line["file"]).name for line in ran.lines if line["type"] == "damage"]
    if kind == "garbage checkpoints":
        assert (ran.code, damage, of_it) == (0, [], list(range(RECORDS)))
        of_dir = place.run("dump", "DIR")
        assert of_dir.code == 3
        assert {Path(line["file"]).name for line in of_dir.lines if line["type"] == "damage"} == set(CHECKPOINTS)
    elif KINDS[kind].opens:
        assert (ran.code, damage) == (3, [SEGMENT])
        assert of_it == [offset for offset in range(RECORDS) if offset != KINDS[kind].lost]
    else:
        assert ran.code == 2, ran
        assert f"{DAMAGED}/{SEGMENT}" in ran.err or f"{DAMAGED}: " in ran.err, ran.err
        assert of_it == (
            [] if kind == "a folder that nobody may list" else [offset for offset in range(RECORDS) if offset not in {2, 3}]
        )


@pytest.mark.parametrize("kind", list(KINDS))
def test_explain_answers_what_the_damage_does_not_touch(place: Place, kind: str) -> None:
    place.damage(KINDS[kind])

    def explained(partition: int, offset: int) -> Ran:
        return place.run("explain", "--json", offset, "DIR", "-t", "orders", "-p", partition)

    for partition in (0, 2, 3):
        ran = explained(partition, 5)
        assert ran.code == 0, ran
        assert (ran.lines[0]["partition"], ran.lines[0]["batch"]["base_offset"]) == (partition, 5)
    # Of each segment one record, the lost one, and the one beside it.
    offsets = range(RECORDS) if KINDS[kind].opens else [0, 3, 9]
    for offset in offsets:
        ran = explained(1, offset)
        if not KINDS[kind].opens or offset == KINDS[kind].lost:
            assert (ran.code, ran.out) == (2, ""), (offset, ran)
            assert DAMAGED in ran.err
        else:
            assert ran.code == 0, (offset, ran)
            assert ran.lines[0]["batch"]["base_offset"] == offset


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_topic_is_deleted_whole_whatever_is_damaged_of_it_and_so_is_another_one(place: Place, kind: str) -> None:
    def held(*names: str) -> dict[tuple[str, str], object]:
        """All but what taking a lock leaves."""
        found = {(name, path): entry for name in names for path, entry in traces(place.path / name).items()}
        return {name: entry for name, entry in found.items() if name[1] != LOCK}

    place.damage(KINDS[kind])
    is_locked = kind == "a folder that nobody may list"
    sound = [name for name in SOUND if name != "pay-0"]
    before = held(*sound)
    if is_locked:
        # Its lock cannot be taken, so nobody knows who works there: nothing of the topic is deleted, also not on paper.
        for more in ([], ["--dry-run"]):
            ran = place.run("delete", "orders", "DIR", "--json", *more)
            assert (ran.code, ran.out) == (2, "")
            assert f"{DAMAGED}/" in ran.err
        assert held(*sound) == before
    pay = place.run("delete", "pay", "DIR", "--json")
    assert (pay.code, [name_of(line) for line in pay.lines]) == (0, ["pay-0"])
    assert held(*sound) == before
    assert not (place.path / "pay-0").exists()
    if is_locked:
        return
    ran = place.run("delete", "orders", "DIR", "--json", "--dry-run")
    assert (ran.code, {name_of(line) for line in ran.lines}) == (0, {*sound, DAMAGED})
    assert held(*sound) == before
    ran = place.run("delete", "orders", "DIR", "--json")
    assert (ran.code, {name_of(line) for line in ran.lines}) == (0, {*sound, DAMAGED})
    assert {path.name.partition(".")[0] for path in place.path.iterdir() if path.is_dir()} == {"pay-0", "orders-0", *sound, DAMAGED}
    assert all(path.name.endswith("-delete") for path in place.path.iterdir() if path.is_dir())
    assert place.run("ls", "--json", "DIR").lines == []


def scans_others(log_dir: LogDir, damaged: TopicPartition) -> None:
    """However a scan of all is read, it gives the other partitions, and then names the one that cannot be opened."""
    others = 3 * RECORDS + 1
    scan = log_dir.scan()
    for each in (scan, pickle.loads(pickle.dumps(scan)), copy.deepcopy(scan)):
        lines = [line.strip() for line in each.explain().splitlines()]
        assert lines[0] == "scan of 5 partitions"
        of_each = dict(line.split(": ", 1) for line in lines[1:6])
        assert of_each.pop(DAMAGED).startswith("cannot be read: ")
        assert all(words.startswith("offsets 0 to ") for words in of_each.values())
        found: list[Record] = []
        with pytest.raises(UnreadPartitionsError, match=DAMAGED) as caught:
            found.extend(each)  # what came before the error counts
        assert list(caught.value.failed) == [damaged]
        assert isinstance(caught.value.failed[damaged], LogDirError)
        assert len({(record.topic, record.partition, record.offset) for record in found}) == others
        for read in (Scan.count, Scan.to_arrow):
            with pytest.raises(UnreadPartitionsError, match=DAMAGED) as caught:
                read(each)
            partial: Any = caught.value.partial
            assert (partial if isinstance(partial, int) else partial.num_rows) == others
    for how in ("skip", "stop"):
        scan = log_dir.scan(on_corrupt=how)
        assert scan.count() == others
        assert [(hole.topic, hole.partition, hole.error) for hole in scan.report.holes] == [(*damaged, "LogDirError")]
        assert log_dir.scan(on_corrupt=how).to_arrow().num_rows == others
        assert len(list(scan.follow(timeout_ms=0))) == others
        assert [(hole.topic, hole.partition, hole.error) for hole in scan.report.holes] == [(*damaged, "LogDirError")]
    assert log_dir.scan(limit=others).count() == others
    with pytest.raises(LogDirError, match=DAMAGED):
        log_dir.scan().follow(timeout_ms=0)
    for wanted in ([damaged], [damaged, TopicPartition("nobody", 0)]):
        with pytest.raises(LogDirError):
            log_dir.scan(wanted).count()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "a folder that nobody may list"])
def test_the_python_api_beside_a_damaged_partition(place: Place, kind: str) -> None:
    opens, lost = KINDS[kind].opens, KINDS[kind].lost
    place.damage(KINDS[kind])
    damaged = TopicPartition("orders", 1)
    with LogDir.open(place.path) as log_dir:
        assert log_dir.partitions() == [TopicPartition("orders", number) for number in range(4)] + [TopicPartition("pay", 0)]
        settings = log_dir.topic_settings("orders").settings
        assert settings["internal.segment.bytes"] == ("200", "topic", None)
        assert log_dir.topic_config("pay").to_dict() == {}
        if opens:
            assert set(log_dir.end_offsets().values()) == {RECORDS, 1}
            with log_dir.log("orders", 1) as log:
                for offset in range(RECORDS):
                    if offset == lost:
                        with pytest.raises(OffsetLogError, match=DAMAGED):
                            log.get(offset)
                    else:
                        found = log.get(offset)
                        assert found is not None
                        assert found.value == b"%d" % (4 * offset + 1) * 10
        else:
            for ask in (log_dir.end_offsets, log_dir.beginning_offsets, log_dir.why):
                with pytest.raises(UnreadPartitionsError, match=DAMAGED) as caught:
                    ask()
                assert list(caught.value.failed) == [damaged]
            assert log_dir.groups() == []
            assert log_dir.transactions() == []
            scans_others(log_dir, damaged)
            assert log_dir.scan([key for key in log_dir.partitions() if key != damaged]).count() == 3 * RECORDS + 1
    with LogDir.open(place.path, "a") as log_dir:
        # Another topic is written, set and deleted beside it, and so are the other partitions of its own.
        assert log_dir.append("orders", b"new", partition=2).offset == RECORDS
        log_dir.set_topic_config("pay", {"retention.ms": 5})
        assert log_dir.topic_config("pay").to_dict() == {"retention.ms": 5}
        log_dir.flush()
        if not opens:
            with pytest.raises(UnreadPartitionsError, match=DAMAGED) as caught:
                log_dir.scan().count()
            assert caught.value.partial == 3 * RECORDS + 2
            with pytest.raises(OffsetLogError, match=DAMAGED):
                log_dir.append("orders", b"new", partition=1)
            with pytest.raises(OffsetLogError, match=DAMAGED):
                log_dir.set_topic_config("orders", {"retention.ms": 5})
        report = log_dir.maintain(topics=["orders", "pay"], config={"retention.ms": 1}, now=1_800_000_000_000, dry_run=True)
        assert list(report.failed) == ([] if opens and lost != 3 else [damaged])
        assert set(report.partitions) >= {TopicPartition("orders", number) for number in (0, 2, 3)} | {TopicPartition("pay", 0)}
        log_dir.delete_topic("pay")
        log_dir.delete_topic("orders")
        assert log_dir.topics() == {}


def test_settings_of_the_other_topics_are_told_and_changed(place: Place) -> None:
    """Settings stand beside a topic's first partition: where they cannot be read, only that topic has no answer."""
    with LogDir.open(place.path, "a") as log_dir:
        log_dir.set_topic_config("pay", {"retention.ms": 7})
        log_dir.create_topic("aged", config={"retention.ms": 9})
    garbage = place.path / "orders-0" / CONFIG
    garbage.write_bytes(b"\xff nonsense")
    told = place.run("settings", "--json", "DIR")
    assert told.code == 2
    assert [line for line in told.lines if "error" not in line] == [
        {"topic": "aged", "name": "retention.ms", "value": "9", "from": "topic"},
        {"topic": "pay", "name": "retention.ms", "value": "7", "from": "topic"},
    ]
    (failed,) = [line for line in told.lines if "error" in line]
    assert name_of(failed) == "orders-0"
    assert f"orders-0/{CONFIG}" in failed["error"]
    table = place.run("settings", "DIR")
    assert table.code == 2
    assert [line.split() for line in table.out.splitlines()[1:]] == [
        ["aged", "retention.ms", "9", "topic"],
        ["pay", "retention.ms", "7", "topic"],
    ]
    assert table.err.startswith("offsetlog: orders: ")
    assert len(table.err.splitlines()) == 1
    # Another topic alone, and the damaged one alone.
    alone = place.run("settings", "--json", "DIR", "-t", "pay")
    assert (alone.code, len(alone.lines), alone.err) == (0, 1, "")
    assert place.run("settings", "DIR", "-t", "orders").code == 2
    # Changes: before and behind the one that fails.
    changed = place.run("settings", "--json", "DIR", "-t", "aged", "-t", "orders", "-t", "pay", "--config", "retention.ms=11")
    assert changed.code == 2
    assert {line["topic"]: line["value"] for line in changed.lines if "error" not in line} == {"aged": "11", "pay": "11"}
    assert [name_of(line) for line in changed.lines if "error" in line] == ["orders-0"]
    with LogDir.open(place.path) as log_dir:
        assert [log_dir.topic_config(topic).to_dict() for topic in ("aged", "pay")] == [{"retention.ms": 11}] * 2
        with pytest.raises(OffsetLogError, match=rf"orders-0/{CONFIG}"):
            log_dir.topic_config("orders")
        with pytest.raises(OffsetLogError, match=rf"orders-0/{CONFIG}"):
            log_dir.topic_settings("orders")
    # What is wrong with the arguments is said as before, and nothing is changed.
    refused = place.run("settings", "--json", "DIR", "-t", "aged", "--config", "retention.ms=x")
    assert (refused.code, refused.out) == (2, "")
    assert garbage.read_bytes() == b"\xff nonsense"
