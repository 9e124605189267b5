"""Which settings the verbs of ``docs/verbs.md`` go by, verb by verb, where that shows in no codec: ``test_verbs_settings.py`` names these tests.

What is expected is Kafka's: sizes of files and indexes, the layers of a setting, how long what was deleted stays.
"""

from __future__ import annotations

import json
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import metadata_records
import pytest
import reading_calls
from frames import all_frames
from golden import CLEAN
from make_log import batch
from restoring import SOURCES, formatted, metadata_values
from test_dry_runs import offsetlog as command
from test_known_replicas import Place
from test_restore_retention import CASES, deleting, old, stopped
from test_restore_unknown import disks
from writing import CONFIG, LOCK, NOW, STATE, Clock, filled, tree

from offsetlog import ClusterError, Log, LogConfig, LogDir, Server, convert, mirror, recover, restore, salvage, verify

GZIP: dict[str, str | int | float | bool] = {"compression.type": "gzip"}
LARGE = b"x" * 1000
MIB = 1 << 20


def codecs(directory: Path) -> list[str]:
    """Of each batch."""
    return [frame.codec for frame in all_frames(directory)]


def stored(directory: Path) -> dict[str, object]:
    """What the next program that opens a partition alone has for it."""
    with Log.open(directory, "a") as log:
        return dict(log.config.to_dict())


def done(*words: object, code: int = 0) -> str:
    """What the command prints."""
    run = command(*words)
    assert run.returncode == code, run.stdout + run.stderr
    return run.stdout


def create(paths: list[Path], *, by_command: bool, **settings: object) -> None:
    given = {name.replace("_", "."): str(value) for name, value in settings.items()}
    if by_command:
        done("create", "t", *paths, "--partitions", "3", *(f"--config={name}={value}" for name, value in given.items()))
        return
    with LogDir.open(paths, "a") as log_dir:
        log_dir.create_topic("t", 3, config=given)


@pytest.mark.parametrize("by_command", [False, True])
def test_each_partition_of_a_new_topic_stores_what_was_given(by_command: bool, tmp_path: Path) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    create(paths, by_command=by_command, retention_ms=5, compression_type="gzip")
    made = sorted(tmp_path.glob("*/t-?"))
    assert [path.name for path in sorted(made, key=lambda path: path.name)] == ["t-0", "t-1", "t-2"]
    for path in made:
        assert stored(path) == {"compression.type": "gzip", "retention.ms": 5}


def test_defaults_hold_while_they_are_given_and_nowhere_afterwards(tmp_path: Path) -> None:
    """For topics that are made with them, and for those that were there; what a topic has itself stands above."""
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("there")
        log_dir.create_topic("own", config={"compression.type": "lz4"})
    with LogDir.open(tmp_path, "a", defaults=GZIP) as log_dir:
        log_dir.create_topic("new")
        for topic in ("there", "own", "new"):
            log_dir.append(topic, LARGE)
    with LogDir.open(tmp_path, "a") as log_dir:
        for topic in ("there", "own", "new"):
            log_dir.append(topic, LARGE)
    assert [codecs(tmp_path / name) for name in ("there-0", "own-0", "new-0")] == [["gzip", "none"], ["lz4", "lz4"], ["gzip", "none"]]
    assert [stored(tmp_path / name) for name in ("there-0", "own-0", "new-0")] == [{}, {"compression.type": "lz4"}, {}]


def set_for_a_log(folder: Path) -> None:
    with Log.open(folder / "t-0", "a") as log:
        log.append(LARGE)
        log.config = GZIP
        log.append(LARGE)


def set_for_a_topic(folder: Path) -> None:
    with LogDir.open(folder, "a") as log_dir:
        held = log_dir.log("t", 0)
        held.append(LARGE)
        log_dir.set_topic_config("t", GZIP)
        held.append(LARGE)


def set_by_command(folder: Path) -> None:
    with Log.open(folder / "t-0", "a") as log:
        log.append(LARGE)
    done("settings", folder, "-t", "t", "--config", "compression.type=gzip")
    with Log.open(folder / "t-0", "a") as log:
        log.append(LARGE)


SETS: dict[str, Callable[[Path], None]] = {
    "Log.config": set_for_a_log,
    "LogDir.set_topic_config": set_for_a_topic,
    "offsetlog settings": set_by_command,
}


@pytest.mark.parametrize("verb", SETS)
def test_new_settings_are_stored_and_the_next_append_goes_by_them(verb: str, tmp_path: Path) -> None:
    create([tmp_path], by_command=False, retention_ms=5)
    SETS[verb](tmp_path)
    assert codecs(tmp_path / "t-0") == ["none", "gzip"]
    # The command adds one; the others say all of them.
    kept = {"retention.ms": 5} if verb == "offsetlog settings" else {}
    assert stored(tmp_path / "t-0") == {**kept, **GZIP}
    if verb != "Log.config":
        assert stored(tmp_path / "t-2") == {**kept, **GZIP}


@pytest.mark.parametrize("verb", SETS)
def test_new_settings_in_a_brokers_log_dir_change_nothing_there(verb: str, tmp_path: Path) -> None:
    """What the broker goes by is in its metadata, which is as it was. One log has them while it is open; for a topic they are refused."""
    place = reading_calls.made(tmp_path / "root")

    def theirs() -> dict[str, bytes | None]:
        found = tree(place.root, without=(LOCK, STATE, CONFIG, "offsetlog-shared.lock"))
        # Opening removes the one of the last segment, as a broker does that loads the log.
        return {name: data for name, data in found.items() if not name.endswith(".snapshot")}

    def image() -> object:
        with LogDir.open(place.dirs) as log_dir:
            found = log_dir.metadata()
            assert found is not None
            return dict(found.configs)

    before, cluster = theirs(), image()
    if verb == "Log.config":
        with Log.open(place.log, "a") as log:
            log.config = GZIP
    elif verb == "LogDir.set_topic_config":
        with LogDir.open(place.dirs, "a") as log_dir, pytest.raises(ClusterError):
            log_dir.set_topic_config("g-plain", GZIP)
    else:
        done("settings", *place.dirs, "-t", "g-plain", "--config", "compression.type=gzip", code=2)
    assert not (place.log / CONFIG).exists()
    assert theirs() == before
    assert image() == cluster


def sizes(directory: Path, base: int) -> list[int]:
    """Of a segment's log, offset index and time index; -1 for what is not there."""
    paths = [directory / f"{base:020}{suffix}" for suffix in (".log", ".index", ".timeindex")]
    return [path.stat().st_size if path.exists() else -1 for path in paths]


def test_a_roll_makes_the_new_segment_by_the_settings_of_now(tmp_path: Path) -> None:
    """Preallocated as large as a segment may be, with indexes of whole entries of 8 and 12 bytes; the old one is cut to what it holds."""
    path = tmp_path / "t-0"
    with Log.open(path, "a", {"segment.bytes": 3 * MIB, "segment.index.bytes": 1003, "preallocate": True}, clock=Clock()) as log:
        log.append(b"a")
        assert sizes(path, 0) == [3 * MIB, 1000, 996]
        log.config = {"segment.bytes": MIB, "segment.index.bytes": 515, "preallocate": True}
        log.roll()
        # Its last time has an entry; no batch stands behind so many bytes that it gets one of offsets.
        assert sizes(path, 0) == [all_frames(path)[0].size_bytes, 0, 12]
        assert sizes(path, 1)[0] == MIB
        log.append(b"b")
        assert sizes(path, 1) == [MIB, 512, 504]
        log.config = {"segment.bytes": MIB, "segment.index.bytes": 300}
        log.roll()
        assert sizes(path, 2)[0] == 0
        log.append(b"c")
        assert sizes(path, 2)[1:] == [296, 300]
        assert [segment.base_offset for segment in log.segments] == [0, 1, 2]
        assert [record.value for record in log.scan()] == [b"a", b"b", b"c"]


def offset_entries(directory: Path, base: int) -> list[tuple[int, int]]:
    """Of an index: the last offset of a batch, and its position."""
    data = (directory / f"{base:020}.index").read_bytes()
    return [(base + offset, position) for offset, position in struct.iter_unpack(">ii", data)]


def rebuilt_entries(directory: Path, base: int, interval: int) -> list[tuple[int, int]]:
    """By Kafka's rule: a batch before which more than so many bytes stand since the last entry has one."""
    entries, since = [], 0
    for frame in all_frames(directory):
        if frame.segment != base:
            continue
        if since > interval:
            entries.append((frame.last_offset, frame.position))
            since = 0
        since += frame.size_bytes
    return entries


def many_batches(path: Path) -> Path:
    """Two segments, of twenty batches and of ten, and no index."""
    with Log.open(path, "a", {}, clock=Clock()) as log:
        for number in range(30):
            log.append(b"v" * 50, timestamp=NOW + number)
            if number == 19:
                log.roll()
    for file in (*path.glob("*.index"), *path.glob("*.timeindex")):
        file.unlink()
    return path


def recovered(path: Path, *, by_command: bool) -> None:
    if by_command:
        done("recover", path)
    else:
        recover(path)


@pytest.mark.parametrize("by_command", [False, True])
@pytest.mark.parametrize("interval", [0, 300])
def test_recovery_makes_the_indexes_by_the_stored_interval(interval: int, by_command: bool, tmp_path: Path) -> None:
    path = many_batches(tmp_path / "t-0")
    (path / CONFIG).write_text(f"version: 0\nindex.interval.bytes={interval}\n")
    expected = {base: rebuilt_entries(path, base, interval) for base in (0, 20)}
    assert [len(entries) for entries in expected.values()] == ([19, 9] if interval == 0 else [6, 3])
    recovered(path, by_command=by_command)
    assert {base: offset_entries(path, base) for base in expected} == expected


@pytest.mark.parametrize("by_command", [False, True])
def test_recovery_makes_no_index_larger_than_the_stored_settings_let_it_be(by_command: bool, tmp_path: Path) -> None:
    """Kafka recovers no such log before the setting is raised. Here the last batches have no entry, and are found all the same.

    A segment is full when one of its indexes is: the one of times, whose last place is for the segment's end.
    """
    path = many_batches(tmp_path / "t-0")
    (path / CONFIG).write_text("version: 0\nindex.interval.bytes=0\nsegment.index.bytes=50\n")
    most = min(50 // 8, 50 // 12 - 1)
    expected = {base: rebuilt_entries(path, base, 0)[:most] for base in (0, 20)}
    recovered(path, by_command=by_command)
    assert {base: offset_entries(path, base) for base in expected} == expected
    assert {sizes(path, base)[2] for base in expected} == {12 * (most + 1)}
    assert not verify(path).damaged
    with Log.open(path) as log:
        assert [record.offset for record in log.take(range(30))] == list(range(30))


def cut_by(path: Path, settings: dict[str, str | int | float | bool]) -> Path:
    """A log whose one segment is longer than its stored settings, which it got later, would make one."""
    filled(path, 40)
    with Log.open(path, "a", settings) as log:
        assert len(log.segments) == 1
    return path


SHORT: dict[str, str | int | float | bool] = {"internal.segment.bytes": 700, "retention.ms": 5}


@pytest.mark.parametrize("by_command", [False, True])
@pytest.mark.parametrize("verb", ["salvage", "convert"])
def test_a_copy_has_the_settings_of_the_old_one_and_is_cut_by_them(verb: str, by_command: bool, tmp_path: Path) -> None:
    old_one, new = cut_by(tmp_path / "old/t-0", SHORT), tmp_path / "new/t-0"
    if by_command:
        done(*(("salvage", old_one, "--into", new.parent) if verb == "salvage" else ("convert", old_one, new)))
    else:
        (salvage if verb == "salvage" else convert)(old_one, new)
    assert stored(new) == SHORT
    found = [path.stat().st_size for path in new.glob("*.log")]
    assert len(found) > 3
    assert max(found) <= 700


@pytest.mark.parametrize("by_command", [False, True])
@pytest.mark.parametrize("verb", ["salvage", "convert"])
def test_a_copy_of_what_has_no_settings_has_none(verb: str, by_command: bool, tmp_path: Path) -> None:
    """A broker keeps them elsewhere: what is stored beside its copy would be taken for all of them."""
    old_one, new = CLEAN / "log-dir-1/g-compact-0", tmp_path / "new/g-compact-0"
    if by_command:
        done(*(("salvage", old_one, "--into", new.parent) if verb == "salvage" else ("convert", old_one, new)))
    else:
        (salvage if verb == "salvage" else convert)(old_one, new)
    assert not (new / CONFIG).exists()


def test_the_command_converts_by_the_settings_that_it_is_given(tmp_path: Path) -> None:
    """In place of all that were stored."""
    old_one, new = cut_by(tmp_path / "old/t-0", {"retention.ms": 5}), tmp_path / "new/t-0"
    done("convert", old_one, new, "--config", "internal.segment.bytes=700", "--config", "segment.ms=9")
    assert stored(new) == {"internal.segment.bytes": 700, "segment.ms": 9}
    assert len(list(new.glob("*.log"))) > 3


@pytest.mark.parametrize("has_metadata", [True, False])
def test_restoring_from_a_shell_gives_a_new_cluster_the_same_settings(has_metadata: bool, tmp_path: Path) -> None:
    """What the call of Python gives is held against Kafka elsewhere; each command that it names is printed."""
    sources = SOURCES if has_metadata else disks(tmp_path / "old", "__consumer_offsets-0", "__transaction_state-0", "g-plain-0")
    topics = ["g-compact", "g-plain", "__consumer_offsets"] if has_metadata else ["*"]
    report = restore(sources, formatted(tmp_path / "one"), topics=topics, new_cluster=True)
    words = [word for topic in topics for word in ("-t", topic)]
    run = command("restore", *sources, "--into", formatted(tmp_path / "two"), "--new-cluster", *words)
    # Without metadata the number of a coordinator's partitions is a guess.
    assert run.returncode == (3 if report.has_losses else 0), run.stderr
    one, two = (metadata_values(tmp_path / name / "bootstrap.checkpoint") for name in ("one", "two"))
    assert two == one
    own = ("g-compact", "cleanup.policy", "compact") if has_metadata else ("__transaction_state", "compression.type", "uncompressed")
    for name, setting, value in (own, ("g-plain", "retention.ms", "-1")):
        assert metadata_records.config("topic", name, setting, value) in two
    commands = [command for each in report.remaining for command in each.commands]
    assert any("g-plain --delete-config retention.ms" in command for command in commands)
    assert [command for command in commands if command not in run.stdout] == []


@pytest.mark.parametrize("case", ["the broker's age", "the broker's greater age", "the topic's own"])
def test_restoring_from_a_shell_tells_of_retention_that_deletes_on_a_stopped_broker(case: str, tmp_path: Path) -> None:
    configs, text, expected = CASES[case]
    log_dir, metadata = stopped(tmp_path, *configs)
    (tmp_path / "server.properties").write_text(text)
    words = ("--metadata", metadata, "--broker", tmp_path / "server.properties", "--dry-run")
    run = command("restore", old(tmp_path), "--into", log_dir, *words)
    assert run.returncode in {0, 3}, run.stderr
    assert ("--entity-name orders --add-config retention.ms=-1" in run.stdout) == ("retention.ms" in expected)
    report = restore(tmp_path / "old", log_dir, metadata=metadata, broker=tmp_path / "server.properties", dry_run=True)
    assert deleting(report).keys() == expected.keys()


@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize("by_command", [False, True])
def test_a_mirror_has_the_topics_settings_and_does_nothing_by_them(by_command: bool, follows: bool, tmp_path: Path) -> None:
    """By these a broker would have deleted all that is old, and of one key kept the last record."""
    settings: dict[str, Any] = {
        "cleanup.policy": "compact,delete",
        "retention.ms": 1,
        "min.cleanable.dirty.ratio": 0.0,
        "segment.bytes": MIB,
        "compression.type": "lz4",
    }
    source, copy = tmp_path / "source", tmp_path / "copy"
    with LogDir.open(source, "a") as log_dir:
        log_dir.create_topic("t", config=settings)
        log_dir.create_topic("plain")
        log = log_dir.log("t", 0)
        # Sent as a producer's of old, that the settings leave as they are.
        for number in range(6):
            log.append_as_follower(batch(number, [(b"key", bytes(400_000))], base_timestamp=1_000 + number))
        log_dir.append("plain", b"v")
        segments = len(log.segments)
        assert segments > 2
        # Here they would do so now.
        planned = log_dir.maintain(topics="t", dry_run=True).partitions["t", 0]  # type: ignore[index]  # a pair too
        assert planned.removed

    def mirrored(address: str) -> None:
        if by_command:
            done("mirror", "--bootstrap", address, "--into", copy, "--once", *(["--follow-deletes"] if follows else []))
        else:
            assert mirror(address, copy, once=True, follow_deletes=follows).is_complete

    with Server(source) as kafka:
        for _ in range(2):
            mirrored(kafka.bootstrap_servers)
    with LogDir.open(copy) as found:
        assert found.topic_config("t") == LogConfig.from_dict(settings)
        assert found.topic_config("plain") == LogConfig()
        assert [record.offset for record in found.log("t", 0).scan()] == list(range(6))
        assert len(found.log("t", 0).segments) == segments
        assert found.beginning_offsets([("t", 0)]) == {("t", 0): 0}
    with LogDir.open(source, "a") as log_dir:
        log_dir.set_topic_config("t", {"retention.ms": 2})
    with Server(source) as kafka:
        mirrored(kafka.bootstrap_servers)
    assert stored(copy / "t-0") == {"retention.ms": 2}


LAYERS = ("given", "topic", "broker", "every broker", "server.properties")
OLD = 1_900_000_000_000


def removed(verb: str, place: Place, where: dict[str, Any], given: str | None) -> bool:
    """Whether upkeep would remove anything of a partition whose records are of 2023."""
    config = {} if given is None else {"retention.ms": given}
    if verb == "Log.maintain":
        with Log.open(place.log, "a", **where) as log:
            return bool(log.maintain(now=OLD, dry_run=True, config=config).removed)
    if verb == "LogDir.maintain":
        with LogDir.open(place.dir, "a", **where) as log_dir:
            report = log_dir.maintain(topics="g-plain", now=OLD, dry_run=True, config=config)
            assert not report.failed
            return any(kept.removed for kept in report.partitions.values())
    words = [f"--config={name}={value}" for name, value in config.items()]
    words += ["--metadata", str(where["metadata"]), "--broker", str(where["broker"])]
    run = command("maintain", place.dir, "-t", "g-plain", "--only=retention", "--dry-run", "--json", *words)
    # 1 if there is nothing to do.
    assert run.returncode in {0, 1}, run.stderr
    return any(json.loads(line)["removed"] for line in run.stdout.splitlines())


@pytest.mark.parametrize("highest", range(len(LAYERS) + 1))
@pytest.mark.parametrize("verb", ["Log.maintain", "LogDir.maintain", "offsetlog maintain"])
def test_upkeep_in_a_brokers_log_dir_goes_by_the_highest_layer(verb: str, highest: int, tmp_path: Path) -> None:
    """Each layer below says the contrary; behind all of them stands Kafka's default of a week."""
    place = Place(tmp_path / "kafka")
    for mine, other in (("-1", "1"), ("1", "-1")):

        def value(layer: int, mine: str = mine, other: str = other) -> str | None:
            return None if layer < highest else mine if layer == highest else other

        records = [metadata_records.topic("g-plain", place.topic_id), metadata_records.partition(place.topic_id, 0, [1])]
        for layer, (kind, name) in ((1, ("topic", "g-plain")), (2, ("broker", "1")), (3, ("broker", ""))):
            if (said := value(layer)) is not None:
                setting = "retention.ms" if kind == "topic" else "log.retention.ms"
                records.append(metadata_records.config(kind, name, setting, said))
        properties = tmp_path / f"server{mine}.properties"
        properties.write_text(f"log.retention.ms={value(4)}\n" if value(4) else "")
        where = {"metadata": metadata_records.write(tmp_path / f"cluster{mine}", records), "broker": properties}
        assert removed(verb, place, where, value(0)) == (highest == len(LAYERS) or mine == "1")


@pytest.mark.parametrize("verb", ["Log.maintain", "LogDir.maintain", "offsetlog maintain"])
def test_upkeep_alone_goes_by_the_stored_settings_alone(verb: str, tmp_path: Path) -> None:
    """Those of a copied partition are not known, and it is refused by name."""
    shutil.copytree(CLEAN / "log-dir-1/g-plain-0", tmp_path / "logs/g-plain-0")
    for known in (False, True):
        if known:
            (tmp_path / "logs/g-plain-0" / CONFIG).write_text("version: 0\nretention.ms=1\n")
        told = ""
        if verb == "offsetlog maintain":
            run = command("maintain", tmp_path / "logs")
            assert run.returncode == (0 if known else 2), run.stdout + run.stderr
            told = run.stderr
        elif verb == "LogDir.maintain":
            with LogDir.open(tmp_path / "logs", "a") as log_dir:
                told = "".join(f"{key.topic}-{key.partition}: {why}" for key, why in log_dir.maintain().failed.items())
        else:
            with Log.open(tmp_path / "logs/g-plain-0", "a") as log:
                try:
                    log.maintain()
                except ClusterError as error:
                    told = f"{error}; g-plain-0"
        if not known:
            assert "retention.ms" in told
            assert "g-plain-0" in told
        with Log.open(tmp_path / "logs/g-plain-0") as log:
            assert (log.log_start_offset, log.log_end_offset) == (200 if known else 0, 200)


DELAY = 5000


def test_a_deleted_topic_waits_as_long_as_the_log_dirs_defaults_say(tmp_path: Path) -> None:
    """Kafka asks the broker for this delay, not the topic. Whoever removes it goes by the time that was written down."""
    clock = Clock()
    with LogDir.open(tmp_path, "a", clock=clock, defaults={"file.delete.delay.ms": DELAY}) as log_dir:
        log_dir.create_topic("t", 2, config={"file.delete.delay.ms": 0})
        log_dir.append("t", b"v")
        log_dir.delete_topic("t")
        clock.now += DELAY - 1
        assert log_dir.remove_deleted() == []
    with LogDir.open(tmp_path, "a", clock=clock) as log_dir:
        assert log_dir.remove_deleted() == []
        clock.now += 1
        assert len(log_dir.remove_deleted()) == 2
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.mark.parametrize("ours", [False, True])
def test_what_others_left_to_be_deleted_waits_as_long_as_the_defaults_say(ours: bool, tmp_path: Path) -> None:
    """As by a broker, from when the log dir was opened, unless it was due before. Of a broker's own nobody wrote that down."""
    clock = Clock()
    if ours:
        with LogDir.open(tmp_path, "a", clock=clock) as log_dir:
            log_dir.create_topic("t")
            log_dir.delete_topic("t")
    else:
        shutil.copytree(CLEAN / "log-dir-1/g-plain-0", tmp_path / f"t-0.{'0123456789abcdef' * 2}-delete")
    (aside,) = tmp_path.glob("*-delete")
    with LogDir.open(tmp_path, "a", clock=clock, defaults={"file.delete.delay.ms": DELAY}) as log_dir:
        clock.now += DELAY - 1
        assert log_dir.remove_deleted() == []
        clock.now += 1
        assert [Path(path).name for path in log_dir.remove_deleted()] == [aside.name]
    assert not aside.exists()


def test_what_is_deleted_from_a_shell_waits_a_minute(tmp_path: Path) -> None:
    """The command has no defaults to give, and the topic's own do not count."""
    with LogDir.open(tmp_path, "a") as log_dir:
        log_dir.create_topic("t", config={"file.delete.delay.ms": 0})
    before = int(time.time() * 1000)
    done("delete", "t", tmp_path)
    after = int(time.time() * 1000)
    clock = Clock(before + 59_999)
    with LogDir.open(tmp_path, "a", clock=clock) as log_dir:
        assert log_dir.remove_deleted() == []
        clock.now = after + 60_000
        assert len(log_dir.remove_deleted()) == 1
