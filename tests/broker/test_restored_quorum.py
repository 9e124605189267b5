"""Restored topics exist however the controllers of a new cluster were formatted, and however many there are."""

from __future__ import annotations

import base64
import contextlib
import re
import shlex
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from broker_words import check_alarms, check_untouched
from clients import Admin
from cluster_members import SYNC_SECONDS, LoneController, MemberBroker, QuorumMember, start_together, wait_for_isr
from restoring import BUSY, IS_WHOLE, READABLE, SOURCES, WHOLE_ONLY, CleanStarts, WrittenFiles, check_rows
from test_cluster_again import PROGRAMS
from test_restored import OF_TWO

from broker import Broker, java, run as execute, two_free_ports
from conftest import KRAFT
from offsetlog import RestoreReport, restore

TOPICS = ["g-plain", "g-codec-lz4", "g-epochs", "g-deleted-prefix"]
PARTITIONS = [golden for golden in READABLE if golden.topic in TOPICS]


@contextlib.contextmanager
def quorum(version: str, directory: Path, nodes: int, how: str) -> Iterator[list[QuorumMember]]:
    """Nodes that were formatted, each a broker and a controller, and never started."""
    ports = {node_id: two_free_ports()[0] for node_id in range(1, nodes + 1)}
    members = [QuorumMember(version, directory / f"node-{node_id}", node_id, ports, is_dynamic=how != "voters") for node_id in ports]
    ids = {node_id: base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A") for node_id in ports}
    options = {
        "voters": [],
        "standalone": ["--standalone"],
        "initial controllers": [
            "--initial-controllers",
            ",".join(f"{node_id}@127.0.0.1:{port}:{ids[node_id]}" for node_id, port in ports.items()),
        ],
    }
    try:
        for member in members:
            member.settings = BUSY
            member.format_options = options[how]
            member.format()
        yield members
    finally:
        for member in members:
            member.kill()


OF_THE_KILLED = "Recovering unflushed segment|Rebuilding producer state"
"""What one that was killed does at its next start. That every record is there is seen."""


CASES = [("4.3.0", "voters", 3)]
if IS_WHOLE:
    CASES += [("4.3.0", "standalone", 1), ("4.3.0", "initial controllers", 3), ("3.9.2", "standalone", 1)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_topics_are_there_at_the_first_start(
    case: tuple[str, str, int], tmp_path: Path, clean_starts: CleanStarts, written: WrittenFiles
) -> None:
    """Also after the death of one node of three, and when all have been killed."""
    version, how, nodes = case
    with quorum(version, tmp_path, nodes, how) as members:
        report = restore_into(members)
        assert {each.state for each in report.partitions} == {"restored"}, [
            each for each in report.partitions if each.state != "restored"
        ]
        # The format tool writes one into each of a node's folders; controllers read that of the metadata.
        assert {str(member.directory / "metadata" / "bootstrap.checkpoint") for member in members} <= set(report.bootstrap_checkpoints)
        written.keep(report)
        check_serves(members)
        for member in members:
            check_words(member, clean_starts, OF_THE_KILLED)


OF_ONE = ["g-big", "g-roll-ms"]
"""Topics of one replica: what is printed makes no more."""


@pytest.mark.skipif(not IS_WHOLE, reason=WHOLE_ONLY)
@pytest.mark.parametrize("how", ["voters", "initial controllers"])
def test_several_controllers_of_kafka_3(how: str, tmp_path: Path, written: WrittenFiles) -> None:
    """Their brokers would see the cluster without its topics for a moment, and set everything aside: they start once before."""
    with quorum("3.9.2", tmp_path, 3, how) as members:
        before = [file.read_bytes() for file in bootstraps(tmp_path)]
        report = restore_into(members, OF_ONE)
        assert (report.target, {each.state for each in report.partitions}) == ("stopped-broker", {"refused"})
        assert any("several controllers" in warning for warning in report.warnings), report.warnings
        assert [file.read_bytes() for file in bootstraps(tmp_path)] == before
        assert not list(tmp_path.rglob("g-*"))
        printed = [shlex.split(command) for each in report.remaining for command in each.commands]
        # Those that make topics first: the others are for when there are topics.
        printed = sorted((words for words in printed if set(OF_ONE) & set(words)), key=lambda words: "--create" not in words)
        assert [words[0] for words in printed] == ["kafka-topics.sh"] * len(OF_ONE) + ["kafka-configs.sh"] * len(OF_ONE)
        start_together(members)
        with Admin(members[0].address) as admin:
            for topic in TOPICS:
                replicas = {golden.partition: [1, 2, 3] for golden in PARTITIONS if golden.topic == topic}
                admin.create_on(topic, replicas, {"retention.ms": "-1"})
        for program, *words in printed:
            execute(java("3.9.2", PROGRAMS[program], *(members[0].address if word == "localhost:9092" else word for word in words)))
        wait_for_isr(members[0], TOPICS, {1, 2, 3})
        for member in members:
            member.kill()
        report = restore_into(members, OF_ONE)
        assert {each.state for each in report.partitions} == {"restored"}, [
            each for each in report.partitions if each.state != "restored"
        ]
        written.keep(report)
        # The cluster's leader epochs are below those of the records, which are counted anew.
        check_serves(members, epochs=False)
        check_rows(members[0], [golden for golden in READABLE if golden.topic in OF_ONE], epochs=False)


@pytest.mark.parametrize("version", KRAFT if IS_WHOLE else KRAFT[1:])
def test_a_controller_elsewhere_gets_its_file_by_hand(
    version: str, tmp_path: Path, clean_starts: CleanStarts, written: WrittenFiles
) -> None:
    """What is told before the first start is enough: which file goes where, and who starts first."""
    controller = LoneController(version, tmp_path / "controller")
    controller.levels = {"org.apache.kafka.controller.QuorumController": "info"}
    broker = MemberBroker(controller, tmp_path / "broker", 2)
    broker.known_to = broker
    broker.settings = BUSY
    controller.format()
    broker.format()
    report = restore(SOURCES, broker.log_dir, topics=TOPICS, broker=broker.properties, new_cluster=True)
    assert (report.target, {each.state for each in report.partitions}) == ("new-cluster", {"restored"})
    written.keep(report)
    notes = [each.reason for each in report.remaining if each.about == "first start"]
    assert any("start the controller before the other brokers" in note for note in notes) == (version < "4")
    (file,) = report.bootstrap_checkpoints
    assert any(note.startswith("controllers without a bootstrap.checkpoint here: 1.") and file in note for note in notes)
    shutil.copy(file, controller.directory / "metadata" / "bootstrap.checkpoint")
    try:
        controller.start()
        end = time.monotonic() + SYNC_SECONDS
        while not re.search(r"bootstrap record|Completed.*bootstrap", controller.output().read_text(encoding="utf-8")):
            assert time.monotonic() < end, controller.output().read_text(encoding="utf-8")[-2000:]
            time.sleep(0.1)
        for _ in range(2):
            broker.start()
            check_rows(broker, PARTITIONS)
            broker.stop()
        check_words(broker, clean_starts)
    finally:
        broker.kill()
        controller.kill()


def check_words(broker: Broker, clean_starts: CleanStarts, but: str | None = None) -> None:
    """In no run it warned of what a clean start does not warn of, and no log was touched, but for these lines."""
    check_alarms(broker, clean_starts.warnings(broker), OF_TWO)
    check_untouched(broker, [golden.name for golden in PARTITIONS], but)


def bootstraps(directory: Path) -> list[Path]:
    """What controllers would read."""
    return sorted(directory.rglob("bootstrap.checkpoint"))


def restore_into(members: list[QuorumMember], more: Sequence[str] = ()) -> RestoreReport:
    """Restore some topics into all of them, as the user says who has one of their `server.properties`."""
    return restore(
        SOURCES,
        [member.log_dir for member in members],
        topics=[*TOPICS, *more],
        metadata=[member.directory / "metadata" for member in members],
        broker=members[0].properties,
        new_cluster=True,
        replication_factor=len(members),
    )


def check_serves(members: list[QuorumMember], *, epochs: bool = True) -> None:
    """Every record on each node, also when one is gone, and when all were killed."""
    everybody = {member.node_id for member in members}
    start_together(members)
    wait_for_isr(members[0], TOPICS, everybody)
    for member in members:
        check_rows(member, PARTITIONS, epochs=epochs)
    if len(members) > 1:
        first, *others = members
        first.kill()
        wait_for_isr(others[0], TOPICS, everybody - {first.node_id})
        for member in others:
            check_rows(member, PARTITIONS, epochs=epochs)
    for member in members:
        member.kill()
    start_together(members)
    wait_for_isr(members[0], TOPICS, everybody)
    for member in members:
        check_rows(member, PARTITIONS, epochs=epochs)
