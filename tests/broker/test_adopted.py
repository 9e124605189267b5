"""Directories of topics that were deleted and made again: brokers set the old ones aside, `adopt` takes them in, and the brokers serve their records."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest
from clients import Admin, Reader, Writer
from frames import frames
from golden import Row
from peers import Appended

from broker import Broker
from offsetlog import LogDir, adopt, identity

NOW = 1_700_000_000_000
WAITING_SECONDS = 300
RECORDS = 20
TOPICS = ("strayed", "deleted")
EPOCH = 7
"""Above all that the new topic gets here."""


def filled(broker: Broker, topic: str, count: int) -> None:
    with Writer(broker.address, topic) as writer:
        for number in range(count):
            writer.send(0, [Appended(b"%d" % number, topic.encode(), NOW + number)])


def served(broker: Broker, topic: str) -> list[Row]:
    with Reader(broker.address, topic, [0], "read_uncommitted") as reader:
        return reader.rows()[0]


def topic_ids(broker: Broker) -> dict[str, str | None]:
    assert broker.metadata_dir is not None
    with LogDir.open(broker.metadata_dir) as log_dir:
        image = log_dir.metadata()
    assert image is not None
    return {topic.name: topic.topic_id for topic in image.topics}


def waited(folder: Path, pattern: str) -> Path:
    end = time.monotonic() + WAITING_SECONDS
    while not (found := list(folder.glob(pattern))):
        assert time.monotonic() < end, pattern
        time.sleep(0.05)
    return found[0]


def of_another_leader(directory: Path) -> None:
    """Batches as of a later epoch, which no checksum covers; a broker makes the list of epochs out of them."""
    for segment in directory.glob("*.log"):
        data = bytearray(segment.read_bytes())
        for frame in frames(segment):
            data[frame.position + 12 : frame.position + 16] = EPOCH.to_bytes(4, "big")
        segment.write_bytes(data)
    (directory / "leader-epoch-checkpoint").unlink()


@pytest.mark.parametrize("version", ["4.3.0", "3.9.2"])
def test_a_broker_serves_what_it_had_set_aside(version: str, tmp_path: Path) -> None:
    broker = Broker(version, tmp_path / "kafka")
    broker.format()
    log_dir, metadata, kept = broker.log_dir, broker.metadata_dir, tmp_path / "kept"
    assert metadata is not None
    with broker.running(), Admin(broker.address) as admin:
        before, first = {}, {}
        for topic in TOPICS:
            admin.create(topic, 1, {})
            admin.leader_epochs(topic)
            filled(broker, topic, RECORDS)
            before[topic] = served(broker, topic)
        first = topic_ids(broker)
        for topic in TOPICS:
            admin.delete(topic)
            # A minute before it is gone.
            shutil.copytree(waited(log_dir, f"{topic}-0.*-delete"), kept / f"{topic}-0")
            admin.create(topic, 1, {})
            admin.leader_epochs(topic)
    ids = topic_ids(broker)
    assert all(ids[topic] != first[topic] for topic in TOPICS)
    # A volume that comes back, as a snapshot of it does.
    shutil.rmtree(log_dir / "strayed-0")
    shutil.copytree(kept / "strayed-0", log_dir / "strayed-0")
    with broker.running():
        waited(log_dir, "strayed-0.*-stray")
    # The broker's own one may still be there, under a random name.
    deleted = log_dir / f"deleted-0.{'0' * 32}-delete"
    shutil.copytree(kept / "deleted-0", deleted)
    of_another_leader(deleted)
    directories = {"strayed": waited(log_dir, "strayed-0.*-stray"), "deleted": deleted}
    asides = set()
    for topic, directory in directories.items():
        assert (log_dir / f"{topic}-0").is_dir(), "the broker has made an empty one"
        (done,) = adopt(directory, metadata=metadata, set_aside=True)
        assert (done.topic_id_before, done.topic_id, done.records) == (first[topic], ids[topic], RECORDS)
        assert any("leader epoch 7" in note for note in done.notes) == (topic == "deleted")
        ((was, since),) = done.set_aside
        assert since is not None
        assert Path(was) == log_dir / f"{topic}-0"
        asides.add(Path(since).name)
    assert {row.outcome for row in identity(log_dir, metadata) if row.kind == "live"} == {"serves"}
    before["deleted"] = [row._replace(leader_epoch=EPOCH) for row in before["deleted"]]
    with broker.running(), Admin(broker.address) as admin:
        for topic in TOPICS:
            assert admin.leader_epochs(topic)[0] < EPOCH
            assert served(broker, topic) == before[topic], topic
            filled(broker, topic, 1)
            assert [row.offset for row in served(broker, topic)] == [*range(RECORDS + 1)]
    # Nothing was cut.
    for topic in TOPICS:
        said = "\n".join(line for line in broker.said_of(f"{topic}-0") if f"{topic}-0." not in line)
        assert not re.search(r"[Cc]orrupt|Recovering|[Tt]runcating", said), said
    # Nothing was set aside again.
    assert {path.name for path in log_dir.glob("*-stray")} == asides
