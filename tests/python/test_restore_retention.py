"""Retention that would delete what ``restore`` has written: which value holds on the target's brokers, and how old the records are."""

from __future__ import annotations

import time
from pathlib import Path

import metadata_records as records
import pytest
from restoring import formatted, metadata_values

from offsetlog import Log, RestoreReport, restore

DAY = 86_400_000
ID, ID_TEXT = bytes(range(1, 17)), "AQIDBAUGBwgJCgsMDQ4PEA"


KEPT = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
"""With which value a setting deletes nothing."""


def now() -> int:
    return int(1000 * time.time())


def stopped(place: Path, *configs: bytes, node: int = 1) -> tuple[Path, Path]:
    """A stopped broker's log dir with `orders-0` and no record, and its metadata with these settings."""
    log_dir = formatted(place / "logs", node=node)
    (log_dir / "bootstrap.checkpoint").unlink()
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":3}')
    with Log.open(log_dir / "orders-0", "a", topic_id=ID_TEXT, single_replica=True):
        pass
    return log_dir, records.write(place / "metadata", [records.topic("orders", ID), records.partition(ID, 0, (node,)), *configs])


def old(place: Path, *, age: int = DAY, size: int = 100_000) -> Path:
    """Five records of this age."""
    with Log.open(place / "old" / "orders-0", "a") as log:
        for _ in range(5):
            log.append(bytes(size), timestamp=now() - age)
    (place / "old" / "orders-0" / ".offsetlog.config").unlink()
    return place / "old"


def deleting(report: RestoreReport) -> dict[str, str]:
    """By setting, why it deletes."""
    found = {}
    for each in report.remaining:
        for command in each.commands:
            for setting, kept in KEPT.items():
                if f"--entity-name orders --add-config {setting}={kept}" in command:
                    found[setting] = each.reason
    return found


BROKER, CLUSTER = ("broker", "1"), ("broker", "")
CASES: dict[str, tuple[list[bytes], str, dict[str, str]]] = {
    "nothing": ([], "", {}),
    "the cluster's size": (
        [records.config(*CLUSTER, "log.retention.bytes", "1000")],
        "",
        {"retention.bytes": "the dynamic retention.bytes=1000 of the cluster's brokers"},
    ),
    "the broker's size": (
        [records.config(*BROKER, "log.retention.bytes", "1000")],
        "",
        {"retention.bytes": "the dynamic retention.bytes=1000 of broker 1"},
    ),
    "another broker's size": ([records.config("broker", "2", "log.retention.bytes", "1000")], "", {}),
    "the broker's age": (
        [records.config(*BROKER, "log.retention.ms", "1000")],
        "",
        {"retention.ms": "the dynamic retention.ms=1000 of broker 1"},
    ),
    "the broker's age, and the cluster's greater one": (
        [records.config(*BROKER, "log.retention.ms", "1000"), records.config(*CLUSTER, "log.retention.ms", "-1")],
        "",
        {"retention.ms": "the dynamic retention.ms=1000 of broker 1"},
    ),
    "the broker's greater age": (
        [records.config(*BROKER, "log.retention.ms", "-1"), records.config(*CLUSTER, "log.retention.ms", "1000")],
        "log.retention.ms=1000\n",
        {},
    ),
    "the cluster's hours": (
        [records.config(*CLUSTER, "log.retention.hours", "1")],
        "",
        {"retention.ms": "the dynamic retention.ms=3600000 of the cluster's brokers"},
    ),
    "a server.properties above the cluster's hours": (
        [records.config(*CLUSTER, "log.retention.hours", "1")],
        f"log.retention.ms={30 * DAY}\n",
        {},
    ),
    "the topic's own": (
        [records.config(*BROKER, "log.retention.ms", "1000"), records.config("topic", "orders", "retention.ms", "-1")],
        "",
        {},
    ),
    "a policy that deletes nothing": (
        [records.config(*BROKER, "log.retention.ms", "1000"), records.config(*CLUSTER, "log.cleanup.policy", "compact")],
        "",
        {"cleanup.policy": "the dynamic cleanup.policy=compact of the cluster's brokers compacts the topic"},
    ),
    "a topic that compacts": (
        [records.config("topic", "orders", "cleanup.policy", "compact")],
        "log.retention.ms=1000\n",
        {"cleanup.policy": "cleanup.policy=compact compacts the topic"},
    ),
    "brokers that compact": ([], "log.cleanup.policy=compact\n", {"cleanup.policy": "the brokers' cleanup.policy compacts the topic"}),
    "a server.properties": ([], "log.retention.hours=1\n", {"retention.ms": "the brokers' retention.ms"}),
}
"""Settings of the cluster, `server.properties`, and what deletes records of a day, 500,000 bytes, as Kafka takes them."""


@pytest.mark.parametrize("case", CASES)
def test_retention_is_what_holds_on_the_broker(case: str, tmp_path: Path) -> None:
    """As the verb `settings` says it: the topic's, the broker's dynamic, the cluster's dynamic, server.properties, Kafka's default."""
    configs, text, expected = CASES[case]
    log_dir, metadata = stopped(tmp_path, *configs)
    (tmp_path / "server.properties").write_text(text)
    report = restore(old(tmp_path), log_dir, metadata=metadata, broker=tmp_path / "server.properties", dry_run=True)
    found = deleting(report)
    assert found.keys() == expected.keys()
    for setting, why in expected.items():
        assert found[setting].startswith(why), found


def test_a_dynamic_retention_is_known_without_a_file(tmp_path: Path) -> None:
    """What nothing sets may be in the file that was not given."""
    log_dir, metadata = stopped(tmp_path, records.config(*CLUSTER, "log.retention.ms", str(30 * DAY)))
    found = deleting(restore(old(tmp_path), log_dir, metadata=metadata, dry_run=True))
    assert found.keys() == {"retention.bytes"}


@pytest.mark.parametrize("text", [None, "log.retention.ms=-1\nlog.retention.bytes=-1\n"])
def test_without_the_clusters_metadata_the_topics_own_is_not_known(text: str | None, tmp_path: Path) -> None:
    """It deletes although `server.properties` says that nothing is deleted: so it is told, and what looks and what keeps."""
    log_dir, _ = stopped(tmp_path)
    (tmp_path / "server.properties").write_text(text or "")
    broker = None if text is None else tmp_path / "server.properties"
    report = restore(old(tmp_path), log_dir, broker=broker, dry_run=True)
    (told,) = [each for each in report.remaining if any("retention" in command for command in each.commands)]
    assert "nobody knows whether the topic's own retention deletes records" in told.reason
    assert "server.properties before" not in told.reason
    looks, keeps = told.commands
    assert looks.endswith("--describe --entity-type topics --entity-name orders")
    assert keeps.endswith("--alter --entity-type topics --entity-name orders --add-config retention.ms=-1,retention.bytes=-1")


@pytest.mark.parametrize(("ages", "is_told"), [((100, 0), True), ((8, 0), True), ((6, 0), False), ((0, 100), False)])
def test_the_age_is_that_of_the_first_records_not_of_their_segment(ages: tuple[int, int], is_told: bool, tmp_path: Path) -> None:
    """The new log is cut into segments by other settings, and each is judged by its newest record: the first may have old ones alone."""
    first, last = ages
    with Log.open(tmp_path / "old" / "orders-0", "a", config={"segment.ms": 400 * DAY}) as log:
        for day in range(11):
            log.append(b"value", timestamp=now() - (first * (10 - day) + last * day) * DAY // 10)
        assert len(log.segments) == 1
    (tmp_path / "old" / "orders-0" / ".offsetlog.config").unlink()
    (tmp_path / "server.properties").write_text("log.retention.hours=168\n")
    into = formatted(tmp_path / "new")
    restore(tmp_path / "old", into, broker=tmp_path / "server.properties", new_cluster=True)
    is_kept = records.config("topic", "orders", "retention.ms", "-1") in metadata_values(into / "bootstrap.checkpoint")
    assert is_kept == is_told
    # What a broker with these settings would delete, by the same rules: nothing of what is not told.
    if not is_told:
        week: dict[str, str | int | float | bool] = {"cleanup.policy": "delete", "retention.ms": 7 * DAY, "retention.bytes": -1}
        week |= {"file.delete.delay.ms": 0, "remote.storage.enable": False}
        with Log.open(into / "orders-0", "a", config=week, single_replica=True) as log:
            log.maintain()
            assert log.log_start_offset == 0


def test_records_without_a_time_before_others_are_told(tmp_path: Path) -> None:
    """Cut into segments anew, they may be in one of their own, whose age is that of its file."""
    with Log.open(tmp_path / "old" / "orders-0", "a") as log:
        log.append(b"value", timestamp=-1)
        log.append(b"value", timestamp=now())
    (tmp_path / "server.properties").write_text("log.retention.hours=1\n")
    into = formatted(tmp_path / "one")
    report = restore(tmp_path / "old", into, broker=tmp_path / "server.properties", new_cluster=True)
    assert records.config("topic", "orders", "retention.ms", "-1") in metadata_values(into / "bootstrap.checkpoint")
    assert any("no timestamp" in each.reason for each in report.remaining)


@pytest.mark.parametrize("had", ["delete", None, "compact", "brokers"])
def test_a_stopped_brokers_topic_that_compacts_is_told(had: str | None, tmp_path: Path) -> None:
    """Unless the sources' metadata says that it was compacted before."""
    log_dir, metadata = stopped(tmp_path, records.config("topic", "orders", "cleanup.policy", "compact"))
    (tmp_path / "server.properties").write_text("log.retention.ms=-1\n")
    of_source = [records.topic("orders", ID), records.partition(ID, 0, (1,))]
    if had == "brokers":
        of_source.append(records.config(*CLUSTER, "log.cleanup.policy", "compact"))
    elif had is not None:
        of_source.append(records.config("topic", "orders", "cleanup.policy", had))
    sources = [old(tmp_path), records.write(tmp_path / "old metadata", of_source)]
    found = deleting(restore(sources, log_dir, metadata=metadata, broker=tmp_path / "server.properties", dry_run=True))
    assert set(found) == (set() if had in {"compact", "brokers"} else {"cleanup.policy"})


@pytest.mark.parametrize("keeps", [False, True])
def test_in_a_new_cluster_whose_brokers_compact_the_topic_does_not(keeps: bool, tmp_path: Path) -> None:
    """Records without a key, which a broker's cleaner deletes. The retention counts of the policy that it has now."""
    (tmp_path / "server.properties").write_text("log.cleanup.policy=compact\nlog.retention.hours=1\n")
    source = [
        records.topic("orders", ID),
        records.partition(ID, 0, (1,)),
        records.topic("keyed", ID[::-1]),
        records.partition(ID[::-1], 0, (1,)),
    ]
    source.append(records.config("topic", "keyed", "cleanup.policy", "compact"))
    with Log.open(tmp_path / "old" / "keyed-0", "a") as log:
        log.append(b"value", key=b"key", timestamp=now())
    sources = [old(tmp_path), records.write(tmp_path / "old metadata", source)]
    into = formatted(tmp_path / "new")
    report = restore(sources, into, keep_retention=keeps, broker=tmp_path / "server.properties", new_cluster=True)
    values = metadata_values(into / "bootstrap.checkpoint")
    assert (records.config("topic", "orders", "cleanup.policy", "delete") in values) == (not keeps)
    assert (records.config("topic", "orders", "retention.ms", "-1") in values) == (not keeps)
    assert records.config("topic", "keyed", "cleanup.policy", "compact") in values
    change = "--add-config cleanup.policy=delete" if keeps else "--delete-config cleanup.policy"
    (told,) = [each for each in report.remaining if any(change in command for command in each.commands)]
    assert told.about == "orders"
    assert "the brokers' cleanup.policy compacts the topic" in told.reason


@pytest.mark.parametrize("policy", [None, "compact"])
@pytest.mark.parametrize("keeps", [False, True])
def test_the_old_brokers_dynamic_retention_does_not_come_back_over_them(policy: str | None, keeps: bool, tmp_path: Path) -> None:
    """``restore`` names the command that sets it on the new brokers."""
    source = [records.topic("orders", ID), records.partition(ID, 0, (1,)), records.config(*CLUSTER, "log.retention.ms", "3600000")]
    if policy is not None:
        source.append(records.config(*CLUSTER, "log.cleanup.policy", policy))
    sources = [old(tmp_path), records.write(tmp_path / "old metadata", source)]
    (tmp_path / "server.properties").write_text("log.retention.ms=-1\n")
    into = formatted(tmp_path / "new")
    report = restore(sources, into, broker=tmp_path / "server.properties", new_cluster=True, keep_retention=keeps)
    assert any("offsetlog metadata SOURCE --as-commands" in command for each in report.remaining for command in each.commands)
    values = metadata_values(into / "bootstrap.checkpoint")
    assert (records.config("topic", "orders", "retention.ms", "-1") in values) == (not keeps)
    (told,) = [each.reason for each in report.remaining if each.about == "orders"]
    assert told.startswith(
        "the dynamic retention.ms=3600000 of the cluster's brokers, which `offsetlog metadata SOURCE --as-commands` sets again,"
    )


@pytest.mark.parametrize(("hours", "is_told"), [(1, True), (13, False)])
@pytest.mark.parametrize("target", ["stopped", "new"])
def test_records_that_are_due_within_hours_are_told(hours: int, is_told: bool, target: str, tmp_path: Path) -> None:
    """Before anybody has looked at what came back."""
    (tmp_path / "server.properties").write_text("log.retention.hours=48\n")
    source = old(tmp_path, age=48 * 3_600_000 - hours * 3_600_000)
    broker = tmp_path / "server.properties"
    if target == "new":
        into = formatted(tmp_path / "new")
        report = restore(source, into, broker=broker, new_cluster=True)
        assert (records.config("topic", "orders", "retention.ms", "-1") in metadata_values(into / "bootstrap.checkpoint")) == is_told
        reasons = [each.reason for each in report.remaining if "retention.ms=-1 now" in each.reason]
    else:
        log_dir, metadata = stopped(tmp_path)
        reasons = list(deleting(restore(source, log_dir, metadata=metadata, broker=broker, dry_run=True)).values())
    assert len(reasons) == is_told
    for reason in reasons:
        assert reason.startswith("the brokers' retention.ms ")
        assert f"records from {time.strftime('%Y-%m-%dT', time.gmtime(now() / 1000 + hours * 3600))}" in reason


def test_settings_that_the_clusters_topic_has_not_are_told(tmp_path: Path) -> None:
    """The topic was made by hand."""
    log_dir, metadata = stopped(
        tmp_path, records.config("topic", "orders", "retention.ms", "-1"), records.config("topic", "orders", "retention.bytes", "5")
    )
    source = [records.topic("orders", ID), records.partition(ID, 0, (1,))]
    had = {"retention.ms": "1", "retention.bytes": "-1", "cleanup.policy": "compact,delete", "min.insync.replicas": "2"}
    source += [records.config("topic", "orders", name, value) for name, value in had.items()]
    sources = [old(tmp_path), records.write(tmp_path / "old metadata", source)]
    report = restore(sources, log_dir, metadata=metadata, dry_run=True)
    (told,) = [each for each in report.remaining if each.reason.startswith("the sources have")]
    assert told.reason.startswith(
        "the sources have cleanup.policy=compact,delete and retention.bytes=-1 of it, and the cluster has not"
    )
    (command,) = told.commands
    assert command.endswith("--entity-name orders --add-config 'cleanup.policy=[compact,delete],retention.bytes=-1'")
