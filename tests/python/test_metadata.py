"""The metadata log: what Kafka's own classes make of its records, snapshots, metadata transactions, records that are not known."""

from __future__ import annotations

import gzip
import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from frames import frames
from golden import CLEAN, CLEAN_LOG_DIRS, CLEAN_PARTITIONS, DATA

from offsetlog import (
    BrokerRegistration,
    CorruptionError,
    LogDir,
    MetadataImage,
    OffsetLogError,
    PartitionRegistration,
    TopicImage,
    UnsupportedVersionError,
)

TOPIC = "__cluster_metadata"
PLACE = CLEAN / "metadata-dir"
SEGMENT = PLACE / f"{TOPIC}-0" / "00000000000000000000.log"
SNAPSHOT = DATA / "metadata" / "00000000000000000215-0000000001.checkpoint"
IMAGES = json.loads(gzip.decompress((DATA / "metadata" / "images.json.gz").read_bytes()))
ID = bytes.fromhex("31627a1474df458cbaee3cf065d7aa49")
"""The id MWJ6FHTfRYy67jzwZdeqSQ."""
MADE = bytes.fromhex("01020004746f70") + ID + b"\0"
"""TopicRecord of top."""
REMOVED = b"\1\x09\0" + ID + b"\0"
PARTITION = (
    bytes.fromhex("01030200000003") + ID + bytes.fromhex("0200000001020000000101010000000100000000000000000231") + ID[1:] + b"\0"
)
"""PartitionRecord of top-3."""
CHANGED = b"\1\5\0" + (3).to_bytes(4, "big") + ID + b"\0"
BEGIN, END, ABORT = b"\1\x17\0\0", b"\1\x18\0\0", b"\1\x19\0\0"


def image_of(kafka: dict[str, Any]) -> MetadataImage:
    """An image as Kafka's classes told it."""
    return MetadataImage(
        kafka["end_offset"],
        None,
        kafka["features"],
        tuple(BrokerRegistration._make((*broker[:5], tuple(map(tuple, broker[5])), tuple(broker[6]))) for broker in kafka["brokers"]),
        tuple(
            TopicImage(
                name,
                topic_id,
                tuple(
                    PartitionRegistration._make(tuple(field) if isinstance(field, list) else field for field in row) for row in rows
                ),
            )
            for name, topic_id, rows in kafka["topics"]
        ),
        {(kind, name): configs for kind, name, configs in kafka["configs"]},
        (),
    )


def read(*places: Path) -> MetadataImage:
    with LogDir.open(places) as logs:
        image = logs.metadata(show_secrets=True)
    assert image is not None
    return image


def write(place: Path, values: Iterable[bytes]) -> Path:
    with LogDir.open(place, "a") as logs:
        if TOPIC not in logs.topics():
            logs.create_topic(TOPIC)
        logs.log(TOPIC, 0).append_records([(None, value) for value in values])
    return place


def test_the_image_of_a_real_cluster_is_kafkas() -> None:
    found = read(*CLEAN_LOG_DIRS, PLACE)
    assert found.removed_topics == (("g-recreated", "qU_se9d-S4CS9r6nchFmFg"),)
    assert found._replace(removed_topics=()) == image_of(IMAGES["clean"])
    assert read(PLACE) == read(PLACE / f"{TOPIC}-0") == found


def test_ids_and_directories_are_those_of_the_log_dirs() -> None:
    """Each partition lies where the metadata says, in a directory that knows its topic's id."""
    topics = {topic.name: topic for topic in read(PLACE).topics}
    for golden in CLEAN_PARTITIONS:
        topic = topics[golden.topic]
        assert f"topic_id: {topic.topic_id}" in (golden.directory / "partition.metadata").read_text()
        (directory,) = topic.partitions[golden.partition].directories
        assert f"directory.id={directory}" in (golden.directory.parent / "meta.properties").read_text()
    assert sum(len(topic.partitions) for topic in topics.values()) == len(CLEAN_PARTITIONS)


@pytest.mark.parametrize("history", range(len(IMAGES["histories"])))
def test_records_of_all_versions_make_kafkas_image(tmp_path: Path, history: int) -> None:
    """Also where they stand in a metadata transaction, and not where that was aborted."""
    known = IMAGES["histories"][history]
    records = [bytes.fromhex(record) for record in known["records"]]
    expected = image_of(known["image"])
    assert read(write(tmp_path / "plain", records))._replace(removed_topics=()) == expected
    records[100:100] = [BEGIN]
    place = write(tmp_path / "transaction", [BEGIN, *records[1:50], ABORT, *records, END])
    assert read(place)._replace(removed_topics=(), end_offset=len(expected.topics)) == expected._replace(
        end_offset=len(expected.topics)
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The newest snapshot, older ones and unfinished ones beside it, and the log behind it."""
    directory = tmp_path / "metadata" / f"{TOPIC}-0"
    directory.mkdir(parents=True)
    shutil.copyfile(SNAPSHOT, directory / SNAPSHOT.name)
    (directory / "00000000000000000100-0000000001.checkpoint").write_bytes(b"old")
    (directory / "00000000000000000300-0000000001-77.checkpoint.part").write_bytes(b"not yet")
    (directory / "00000000000000000300-0000000001.checkpoint.deleted").write_bytes(b"no longer")
    (position,) = [frame.position for frame in frames(SEGMENT) if frame.base_offset == 215]
    (directory / "00000000000000000215.log").write_bytes(SEGMENT.read_bytes()[position:])
    return directory.parent


def test_a_snapshot_and_the_log_behind_it(place: Path) -> None:
    """The snapshot that Kafka wrote, and behind it a topic that is removed and made again."""
    assert read(place) == read(PLACE)._replace(snapshot_end_offset=215)


def test_the_log_may_begin_before_the_snapshots_end(place: Path) -> None:
    directory = place / f"{TOPIC}-0"
    (directory / "00000000000000000215.log").unlink()
    shutil.copyfile(SEGMENT, directory / SEGMENT.name)
    assert read(place) == read(PLACE)._replace(snapshot_end_offset=215)


def test_of_several_replicas_the_longest_is_read(place: Path, tmp_path: Path) -> None:
    """With the snapshot beside it, not one of another."""
    shorter = tmp_path / "shorter" / f"{TOPIC}-0"
    shorter.mkdir(parents=True)
    (position,) = [frame.position for frame in frames(SEGMENT) if frame.base_offset == 217]
    (shorter / SEGMENT.name).write_bytes(SEGMENT.read_bytes()[:position])
    assert read(shorter.parent).end_offset == 217
    assert read(shorter.parent, place) == read(place, shorter.parent) == read(place)
    assert read(shorter.parent, PLACE) == read(PLACE)


def test_a_snapshot_without_a_log(place: Path) -> None:
    (place / f"{TOPIC}-0" / "00000000000000000215.log").write_bytes(b"")
    found = read(place)
    assert (found.end_offset, found.snapshot_end_offset, found.removed_topics) == (215, 215, ())
    assert "qU_se9d-S4CS9r6nchFmFg" in {topic.topic_id for topic in found.topics}


def test_offsets_that_are_nowhere_are_told(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    (place / f"{TOPIC}-0" / SNAPSHOT.name).unlink()
    (place / f"{TOPIC}-0" / "00000000000000000100-0000000001.checkpoint").unlink()
    with caplog.at_level(logging.WARNING, "offsetlog"):
        assert [topic.name for topic in read(place).topics] == ["__consumer_offsets", "__transaction_state", "g-recreated"]
    told = [record.getMessage() for record in caplog.records]
    assert told[0] == f"{TOPIC}-0: offsets 0 to 214 are in no snapshot and no longer in the log: what they say is missing"
    assert told[1].endswith(" records left out, what they change is not there; the first at offset 215: RemoveTopicRecord")


@pytest.mark.parametrize("kept", [0, 1, 60, 200, 5000, -1, -70])
def test_a_snapshot_that_was_cut_is_an_error(place: Path, kept: int) -> None:
    snapshot = place / f"{TOPIC}-0" / SNAPSHOT.name
    snapshot.write_bytes(snapshot.read_bytes()[:kept])
    with pytest.raises(CorruptionError) as caught:
        read(place)
    assert Path(str(caught.value.path)) == snapshot


def test_every_flipped_bit_of_a_snapshot_is_found(place: Path) -> None:
    """Or it is one of those that no checksum covers: base offset, leader epoch."""
    snapshot = place / f"{TOPIC}-0" / SNAPSHOT.name
    whole = snapshot.read_bytes()
    expected = read(place)
    noticed = set()
    for at in range(0, len(whole), 37):
        snapshot.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        try:
            found = read(place)
        except OffsetLogError as error:
            noticed.add(error.path)
        else:
            assert found == expected, at
    assert noticed == {str(snapshot)}


def test_removal_takes_partitions_and_settings_along(tmp_path: Path) -> None:
    setting = b"\1\4\0\2\4top\2a\2b\0"
    found = read(write(tmp_path, [MADE, PARTITION, setting]))
    assert found.configs == {("topic", "top"): {"a": "b"}}
    ((name, topic_id, (partition,)),) = found.topics
    assert (name, topic_id, partition.partition, partition.leader_epoch) == ("top", "MWJ6FHTfRYy67jzwZdeqSQ", 3, 0)
    found = read(write(tmp_path, [REMOVED, MADE]))
    assert (found.configs, found.topics[0].partitions, found.removed_topics) == ({}, (), (("top", "MWJ6FHTfRYy67jzwZdeqSQ"),))


def test_what_is_left_out_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Types that are not known, changes of what is not there, metadata transactions without a beginning or an end."""
    values = [b"\1\x63\0what", b"\1\x06\0", END, CHANGED, MADE, CHANGED, ABORT, BEGIN, REMOVED, BEGIN, PARTITION, REMOVED]
    with caplog.at_level(logging.WARNING, "offsetlog"):
        found = read(write(tmp_path, values))
    assert [(topic.name, topic.partitions) for topic in found.topics] == [("top", ())]
    assert sorted(record.getMessage() for record in caplog.records) == [
        f"{TOPIC}-0: 2 records left out, their type is not known; the first at offset 0: type 99",
        f"{TOPIC}-0: 2 records left out, they end a metadata transaction that is not open; the first at offset 2: EndTransactionRecord",
        f"{TOPIC}-0: 2 records left out, what they change is not there; the first at offset 3: PartitionChangeRecord",
        f"{TOPIC}-0: 3 records left out, their metadata transaction has no end; the first at offset 8: of the one that begins at offset 7",
    ]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"", CorruptionError),
        (b"\2\2\0", UnsupportedVersionError),
        (b"\1\2\1" + MADE[3:], UnsupportedVersionError),
        (MADE[:-1], CorruptionError),
        (MADE + b"\0", CorruptionError),
        (b"\1\2\0\xff\xff\xff\xff\x0f", CorruptionError),
    ],
)
def test_records_that_cannot_be_read_are_errors(tmp_path: Path, value: bytes, error: type[OffsetLogError]) -> None:
    with pytest.raises(error) as caught:
        read(write(tmp_path, [MADE, value]))
    assert (caught.value.offset, Path(str(caught.value.path)).name) == (1, SEGMENT.name)


def test_damage_and_a_torn_tail(tmp_path: Path) -> None:
    segment = tmp_path / f"{TOPIC}-0" / SEGMENT.name
    for values in ([MADE], [PARTITION], [REMOVED]):
        write(tmp_path, values)
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-3])
    assert [len(topic.partitions) for topic in read(tmp_path).topics] == [1]
    segment.write_bytes(whole[:80] + bytes([whole[80] ^ 1]) + whole[81:])
    with pytest.raises(CorruptionError):
        read(tmp_path)


def test_log_dirs_without_metadata() -> None:
    with LogDir.open(CLEAN_LOG_DIRS) as logs:
        assert logs.metadata() is None


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "offsetlog", "metadata", *arguments], capture_output=True, text=True, check=False, timeout=300
    )


def test_the_command_prints_the_same() -> None:
    image = read(PLACE)
    printed = run(str(PLACE))
    assert [tuple(line.split()) for line in printed.stdout.splitlines()[1:]] == [
        (topic.name, topic.topic_id, str(each.partition), "-", str(each.leader_epoch), "1", "-", "1")
        for topic in image.topics
        for each in topic.partitions
    ]
    assert (printed.returncode, printed.stderr) == (0, "")
    told = list(map(json.loads, run(str(PLACE), "--json").stdout.splitlines()))
    assert told == [
        {
            "topic": topic.name,
            "topic_id": topic.topic_id,
            "partitions": [json.loads(json.dumps(each._asdict())) for each in topic.partitions],
            "configs": image.configs.get(("topic", topic.name)),
        }
        for topic in image.topics
    ]
    rows = [tuple(line.split()) for line in run(str(PLACE), "--configs").stdout.splitlines()[1:]]
    assert rows == [(kind, name or "-", *pair) for (kind, name), configs in image.configs.items() for pair in configs.items()]
    told = list(map(json.loads, run(str(PLACE), "--configs", "--json").stdout.splitlines()))
    assert told == [{"type": kind, "name": name, "configs": configs} for (kind, name), configs in image.configs.items()]
    features = run(str(PLACE), "--features", "--json").stdout.splitlines()
    assert {each["feature"]: each["level"] for each in map(json.loads, features)} == image.features
    (broker,) = map(json.loads, run(str(PLACE), "--brokers", "--json").stdout.splitlines())
    assert broker == {
        "broker": 1,
        "epoch": 430,
        "rack": None,
        "fenced": True,
        "in_controlled_shutdown": True,
        "endpoints": [{"listener": "PLAINTEXT", "host": "127.0.0.1", "port": 22000}],
        "log_dirs": list(image.brokers[0].log_dirs),
    }


def test_the_command_chooses_and_escapes(tmp_path: Path) -> None:
    name = b"a\x1b[\n"
    value = b"\1\4\0\2\5" + name + b"\2\x07\2\x9b\0"
    write(tmp_path, [MADE, PARTITION, b"\1\2\0\5" + name + ID[::-1] + b"\0", value, b"\1\x0c\0\2\x1b\0\1\0", b"\1\x63\0"])
    for arguments in ((), ("--configs",), ("--features",), ("--brokers",), ("--json",), ("--configs", "--json")):
        printed = run(str(tmp_path), *arguments)
        assert not any(character in printed.stdout + printed.stderr for character in "\x1b\x07\x9b"), arguments
        assert "1 record left out, their type is not known" in printed.stderr
    chosen = run(str(tmp_path), "-t", "top", "-t", "none", "-q")
    assert chosen.stdout.splitlines()[1].split() == ["top", "MWJ6FHTfRYy67jzwZdeqSQ", "3", "1", "0", "1", "1", "-"]
    assert run(str(tmp_path), "-t", "none").returncode == run(str(tmp_path), "--brokers").returncode == 1
    nothing = run(*map(str, CLEAN_LOG_DIRS))
    assert (nothing.returncode, nothing.stdout, "metadata.log.dir" in nothing.stderr) == (1, "", True)
    assert run(str(tmp_path / "missing")).returncode == 2
