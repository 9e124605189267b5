"""``restore`` of topics that no metadata among the sources has: Kafka's own settings for its own topics, and what is a guess."""

from __future__ import annotations

import shutil
from pathlib import Path

import metadata_records as records
import pytest
from golden import CLEAN_LOG_DIRS
from restoring import SOURCES, formatted, metadata_values
from test_restore import stopped

from offsetlog import RestoreReport, restore

KAFKAS: dict[str, dict[str, str]] = {
    "__consumer_offsets": {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"},
    "__transaction_state": {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    },
    "__share_group_state": {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    },
}
"""`groupMetadataTopicConfigs`, `transactionTopicConfigs` and `shareGroupStateTopicConfigs` of Kafka 4.3."""


def disks(place: Path, *names: str) -> list[Path]:
    """Log dirs of a broker whose controllers were elsewhere, with these partitions alone if there are any."""
    found = []
    for log_dir in CLEAN_LOG_DIRS:
        shutil.copytree(log_dir, place / log_dir.name)
        found.append(place / log_dir.name)
        for path in (place / log_dir.name).iterdir():
            if names and path.is_dir() and path.name not in names:
                shutil.rmtree(path)
    return found


def configs(into: Path, topic: str) -> dict[str, bytes]:
    """The settings of a topic in `bootstrap.checkpoint`: a ConfigRecord is frame, number, version, type, and three strings."""
    begin = b"\1\4\0\2" + records.text(topic)
    return {
        value[len(begin) + 1 :][: value[len(begin)] - 1].decode(): value
        for value in metadata_values(into / "bootstrap.checkpoint")
        if value.startswith(begin)
    }


def notes(report: RestoreReport, text: str) -> list[str]:
    return [each.about for each in report.remaining if text in each.reason]


@pytest.mark.parametrize("broker", [True, False])
def test_kafkas_own_topics_get_kafkas_own_settings(broker: bool, tmp_path: Path) -> None:
    """Nothing of a committed offset goes by its age, whatever the new brokers' retention is."""
    sources = disks(tmp_path / "old", "__consumer_offsets-0", "__consumer_offsets-1", "__transaction_state-0", "__transaction_state-1")
    shutil.copytree(CLEAN_LOG_DIRS[0] / "g-plain-0", sources[0] / "__share_group_state-0")
    (tmp_path / "server.properties").write_text("log.retention.hours=1\n")
    into = formatted(tmp_path / "new")
    report = restore(sources, into, new_cluster=True, broker=tmp_path / "server.properties" if broker else None)
    values = metadata_values(into / "bootstrap.checkpoint")
    assert {each.topic for each in report.partitions} == set(KAFKAS)
    for topic, settings in KAFKAS.items():
        assert configs(into, topic).keys() - {"retention.bytes"} == settings.keys()
        for name, value in settings.items():
            assert records.config("topic", topic, name, value) in values
    commands = [command for each in report.remaining for command in each.commands]
    assert not [command for command in commands if "__" in command and "retention.ms" in command]


def test_what_the_metadata_says_of_them_stays(tmp_path: Path) -> None:
    into = formatted(tmp_path / "new")
    report = restore(SOURCES, into, topics="__*", new_cluster=True)
    assert not report.has_losses
    assert not notes(report, "no metadata among the sources")
    assert not [warning for warning in report.warnings if "the hash of its name" in warning]


@pytest.mark.parametrize(
    ("names", "text", "is_guess"),
    [
        (("__consumer_offsets-0",), "", True),
        (("__consumer_offsets-0", "__consumer_offsets-1"), "offsets.topic.num.partitions=2\n", False),
        (("__consumer_offsets-0",), "offsets.topic.num.partitions=2\n", True),
        (("__transaction_state-0",), "offsets.topic.num.partitions=1\n", True),
        (("__transaction_state-0",), "transaction.state.log.num.partitions=1\n", False),
    ],
)
def test_a_number_of_partitions_by_which_groups_are_not_found_is_told(
    names: tuple[str, ...], text: str, is_guess: bool, tmp_path: Path
) -> None:
    """A coordinator looks in the partition that the hash of the group's name says, modulo their number."""
    (tmp_path / "server.properties").write_text(text)
    sources = disks(tmp_path / "old", *names)
    how = {"broker": tmp_path / "server.properties", "new_cluster": True, "dry_run": True}
    report = restore(sources, formatted(tmp_path / "new"), **how)  # type: ignore[arg-type]
    topic = names[0].rpartition("-")[0]
    told = [warning for warning in report.warnings if warning.startswith(f"{topic} gets ") and "the hash of its name" in warning]
    assert (len(told), report.has_losses) == (int(is_guess), is_guess)
    assert notes(report, f"{topic} {len(names)}") == [topic]
    # A folder has no topics, and what is in it is all that was asked for.
    report = restore(sources, tmp_path / "folder", dry_run=True)
    assert (report.has_losses, report.remaining, report.warnings) == (False, (), ())


def test_a_cluster_with_another_number_is_told(tmp_path: Path) -> None:
    log_dir, metadata = stopped(tmp_path)
    topic_id = bytes(range(2, 18))
    body = [records.topic("__consumer_offsets", topic_id), *(records.partition(topic_id, number, (1,)) for number in range(3))]
    shutil.rmtree(metadata)
    records.write(metadata, body)
    report = restore(SOURCES, log_dir, topics="__consumer_offsets", metadata=metadata, dry_run=True)
    assert [
        warning for warning in report.warnings if warning.startswith("__consumer_offsets has 3 partitions in the cluster, and 2 in")
    ]
    assert report.has_losses


def test_topics_without_metadata_are_told(tmp_path: Path) -> None:
    """Their number of partitions is a guess, and their settings are: once for all of them."""
    sources = disks(tmp_path / "old", "g-plain-0", "g-plain-1", "g-epochs-0")
    report = restore(sources, formatted(tmp_path / "new"), new_cluster=True, dry_run=True)
    (about,) = notes(report, "no metadata among the sources")
    assert about == "g-epochs, g-plain"
    assert notes(report, "(g-epochs 1, g-plain 2)") == [about]
    assert not report.has_losses
    report = restore([*sources, SOURCES[2]], formatted(tmp_path / "other"), new_cluster=True, topics="g-plain", dry_run=True)
    assert not notes(report, "no metadata among the sources")
    log_dir, metadata = stopped(tmp_path)
    report = restore(sources, log_dir, metadata=metadata, dry_run=True)
    assert notes(report, "no metadata among the sources") == ["g-plain"]


@pytest.mark.parametrize("keep_retention", [False, True])
def test_a_compacted_topic_without_settings_is_told(keep_retention: bool, tmp_path: Path) -> None:
    """By a policy of delete what compaction kept would go by its age, and by one of compact a record without a key would go."""
    sources = disks(tmp_path / "old", "g-compact-0", "g-plain-0")
    (tmp_path / "server.properties").write_text(f"log.retention.ms={2**62}\n")
    into = formatted(tmp_path / "new")
    how = {"broker": tmp_path / "server.properties", "new_cluster": True, "keep_retention": keep_retention}
    report = restore(sources, into, **how)  # type: ignore[arg-type]
    found = configs(into, "g-compact")
    assert found.keys() == (set() if keep_retention else {"retention.ms", "retention.bytes"})
    assert not configs(into, "g-plain")
    values = metadata_values(into / "bootstrap.checkpoint")
    for name in found:
        assert records.config("topic", "g-compact", name, "-1") in values
    (told,) = (each for each in report.remaining if "it was compacted" in each.reason)
    assert told.about == "g-compact"
    first, *rest = told.commands
    assert "--entity-name g-compact --add-config cleanup.policy=compact" in first
    assert len(rest) == (not keep_retention)
    # Never the brokers' own retention before that.
    others = [command for each in report.remaining if each != told for command in each.commands]
    assert not [command for command in others if "g-compact" in command]
