"""Directories that real brokers left, served by real brokers of several versions, and mirrored: the copy has the broker's bytes.

Those of the stopped 4.3.0 broker, on itself, are in `tests/net/test_mirrored.py`, with what clients then read.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from clients import Admin
from frames import all_frames, frames
from golden import Golden
from mirroring import MIRROR_SECONDS, PROGRAM, ended, log_bytes, once
from restoring import IS_WHOLE, is_compacted, known_of, with_log_dirs

from broker import CLEAN_MARK, Broker
from offsetlog import Log, restore

pytestmark = pytest.mark.proof

CASES = [("unclean", "4.3.0"), ("clean", "3.9.2")]
"""Whose restored disks, on which broker."""
if IS_WHOLE:
    CASES += [
        ("unclean", "3.9.2"),
        ("2.8.2", "2.8.2"),
        ("2.8.2", "3.9.2"),
        ("2.8.2", "4.3.0"),
        ("clean", "2.8.2"),
        ("live", "4.3.0"),
    ]
QUIET = {
    # Nothing is due: records are as old as the disks.
    "log.retention.ms": -1,
    "log.cleaner.enable": "false",
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
}


def served(kind: str, version: str, folder: Path) -> tuple[Broker, list[Path], list[Golden]]:
    """A broker that has these disks' topics, not started, its log dirs, and what it has."""
    broker, log_dirs = with_log_dirs(version, folder, QUIET)
    sources, known = known_of(kind)
    chosen = {each.source for each in restore(sources, folder / "plan", dry_run=True).partitions}
    partitions = [each for each in known if str(each.directory) in chosen and not each.topic.startswith("__")]
    topics = Counter(each.topic for each in partitions)
    if broker.metadata_dir is None:
        # Its cluster has no place for topics that it does not know.
        with broker.running(), Admin(broker.address) as admin:
            for topic, count in topics.items():
                admin.create(topic, count, {"cleanup.policy": "compact" if is_compacted(topic) else "delete"})
                admin.leader_epochs(topic)
        report = restore(sources, log_dirs, topics=list(topics), metadata=broker.zookeeper_dir or ())
    else:
        report = restore(
            sources, log_dirs, topics=list(topics), metadata=broker.metadata_dir, broker=broker.properties, new_cluster=True
        )
    assert not report.has_losses
    return broker, log_dirs, partitions


@pytest.mark.parametrize(("kind", "version"), CASES, ids=["-on-".join(each) for each in CASES])
def test_every_byte_is_the_brokers(kind: str, version: str, tmp_path: Path) -> None:
    broker, log_dirs, partitions = served(kind, version, tmp_path / "broker")
    into = tmp_path / "mirror"
    with broker.running():
        with Admin(broker.address) as admin:
            for topic in {each.topic for each in partitions}:
                admin.leader_epochs(topic)
        *_, whole = once(broker, into)
        assert whole["is_complete"]
        assert not whole["has_losses"]
        magics: Counter[int] = Counter()
        for each in partitions:
            (theirs,) = (place / each.name for place in log_dirs if (place / each.name).exists())
            ours = log_bytes(into / each.name)
            assert ours == log_bytes(theirs), each.name
            if kind in {"unclean", "live"}:
                # Of what the old one left the broker has all but what the kill tore.
                had, has = batches_from(each.directory, each.start), batches_from(into / each.name, 0)
                assert had[: len(has)] == has, each.name
            magics.update(frame.magic for frame in all_frames(into / each.name))
    assert {path.name for path in into.glob("*-[0-9]*") if not path.name.startswith("__")} == {each.name for each in partitions}
    print(f"counted {sum(magics.values())} golden batches of {kind} on a broker equal in its mirror")
    verified = subprocess.run([*PROGRAM, "verify", str(into)], capture_output=True, text=True, timeout=MIRROR_SECONDS, check=False)
    assert verified.returncode == 0, verified.stdout


def batches_from(partition: Path, start: int) -> list[bytes]:
    """The batches from the one on that holds this offset."""
    found = []
    for path in sorted(partition.glob("*.log")):
        data = path.read_bytes()
        found += [data[each.position : each.position + each.size_bytes] for each in frames(path) if each.last_offset >= start]
    return found


NOT_DONE = 2
"""The exit code of what is not done."""
KEPT = {"g-torn-flip-magic-0": "record batch magic 9 found"}
"""Damage that a broker keeps, since no checksum is about it, and sends: a mirror has what is before, and why it ends there."""


def put_in_place(broker: Broker, log_dir: Path, partitions: list[Golden]) -> None:
    """The files that the old broker left, in partitions that this one made; nothing restores them."""
    with broker.running(), Admin(broker.address) as admin:
        for each in partitions:
            admin.create(each.topic, 1, {})
            admin.leader_epochs(each.topic)
    for each in partitions:
        for file in (log_dir / each.name).iterdir():
            if file.name != "partition.metadata":
                file.unlink()
        for file in each.directory.iterdir():
            if file.name != "partition.metadata":
                shutil.copyfile(file, log_dir / each.name / file.name)


def mirrored(broker: Broker, log_dir: Path, partitions: list[Golden], into: Path) -> Counter[int]:
    """Mirror the running broker once: each partition has its bytes; batches by message format."""
    with Admin(broker.address) as admin:
        for each in partitions:
            admin.leader_epochs(each.topic)
    *_, whole = once(broker, into, *(word for each in partitions for word in ("-t", each.topic)))
    assert whole["is_complete"]
    assert not whole["has_losses"]
    for each in partitions:
        assert log_bytes(into / each.name) == log_bytes(log_dir / each.name), each.name
    verified = subprocess.run([*PROGRAM, "verify", str(into)], capture_output=True, text=True, timeout=MIRROR_SECONDS, check=False)
    assert verified.returncode == 0, verified.stdout
    return Counter(frame.magic for each in partitions for frame in all_frames(into / each.name))


def test_old_formats_come_as_they_are(tmp_path: Path) -> None:
    """Messages of formats 0 and 1 in the files that a broker of their time has, which no restore has changed."""
    broker, log_dirs = with_log_dirs("2.8.2", tmp_path / "broker", QUIET, count=1)
    partitions = [each for each in known_of("2.8.2")[1] if each.topic.startswith("o-")]
    put_in_place(broker, log_dirs[0], partitions)
    into = tmp_path / "mirror"
    with broker.running():
        magics = mirrored(broker, log_dirs[0], partitions, into)
    for each in partitions:
        assert b"".join(batches_from(each.directory, each.start)) == log_bytes(into / each.name), each.name
    assert set(magics) == {0, 1, 2}
    print(f"counted {sum(magics.values())} golden batches of old formats on a broker equal in its mirror")


def test_what_a_broker_recovers_of_damaged_logs(tmp_path: Path) -> None:
    """Each is damaged in another way. A broker cuts what it cannot read, as the one that first had them; a mirror has what is left."""
    broker, log_dirs = with_log_dirs("4.3.0", tmp_path / "broker", QUIET, count=1)
    _, known = known_of("torn")
    put_in_place(broker, log_dirs[0], known)
    # So it looks at all of them.
    (log_dirs[0] / CLEAN_MARK).unlink()
    into = tmp_path / "mirror"
    partitions = [each for each in known if each.name not in KEPT]
    with broker.running():
        magics = mirrored(broker, log_dirs[0], partitions, into)
        for name, problem in KEPT.items():
            code, events = ended(broker, into, "-t", name.removesuffix("-0"), "--give-up", "5")
            *_, told, whole = events
            assert (code, whole["is_complete"]) == (NOT_DONE, False)
            assert problem in told["problem"]
            theirs, ours = log_bytes(log_dirs[0] / name), log_bytes(into / name)
            assert theirs.startswith(ours)
            assert len(ours) < len(theirs)
    cut = 0
    for each in partitions:
        with Log.open(into / each.name) as log:
            assert [record.offset for record in log.scan()] == [row.offset for row in each.rows], each.name
        cut += log_bytes(into / each.name) != log_bytes(each.directory)
    assert cut > 5
    print(f"counted {sum(magics.values())} golden batches of damaged logs on a broker equal in its mirror")


def test_what_is_before_damage_that_a_broker_sends(tmp_path: Path) -> None:
    """It was stopped cleanly and looks at nothing: a mirror ends where it would have cut, also within one answer, and says why."""
    broker, log_dirs = with_log_dirs("4.3.0", tmp_path / "broker", QUIET, count=1)
    partitions = [each for each in known_of("torn")[1] if each.name in {"g-torn-flip-old-0", "g-torn-flip-active-0"}]
    put_in_place(broker, log_dirs[0], partitions)
    into = tmp_path / "mirror"
    with broker.running():
        with Admin(broker.address) as admin:
            for each in partitions:
                admin.leader_epochs(each.topic)
        code, events = ended(broker, into, "--give-up", "5")
    assert code == NOT_DONE
    told = {event["topic"]: event["problem"] for event in events if "problem" in event}
    for each in partitions:
        assert "checksum" in told[each.topic]
        assert log_bytes(log_dirs[0] / each.name).startswith(log_bytes(into / each.name))
        with Log.open(into / each.name) as log:
            assert [record.offset for record in log.scan()] == [row.offset for row in each.rows], each.name
