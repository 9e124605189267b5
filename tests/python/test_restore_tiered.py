"""``restore`` into a stopped broker whose topic has remote storage: a broker deletes segments there whose leader epochs its log does not have."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import metadata_records as records
import pytest
from golden import DATA
from restoring import formatted, states_of, uuid_bytes
from writing import coded, tree

from offsetlog import Log, RestoreReport, restore
from offsetlog._offsetlog import run_cli

ID, ID_TEXT = bytes(range(1, 17)), "AQIDBAUGBwgJCgsMDQ4PEA"
OTHER, OTHER_TEXT = bytes(range(2, 18)), "AgMEBQYHCAkKCwwNDg8QEQ"
EPOCHS = (0, 3, 7)
# The offset at which each of them begins, and the end.
STARTS, END = (0, 10, 20), 30


def source_of(place: Path, *, local: int = 0, line: int | None = None) -> Path:
    """A log dir with ``orders-0`` of three leader epochs, a segment each, and its records from `local` on."""
    directory = place / "orders-0"
    with Log.open(directory, "a", topic_id=ID_TEXT) as log:
        for epoch, start in zip(EPOCHS, STARTS, strict=True):
            for offset in range(start, start + 10):
                log.append_as_follower(coded(b"%d" % offset, base_offset=offset, leader_epoch=epoch), leader_epoch=epoch)
            log.roll()
    for path in directory.iterdir():
        # Brokers have no such files.
        if path.name.startswith(".offsetlog") or (path.name[:1].isdigit() and int(path.name[:20]) < local):
            path.unlink()
    lines = [f"{epoch} {start}" for epoch, start in zip(EPOCHS, STARTS, strict=True)]
    (directory / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    if line is not None:
        (place / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {line}\n")
    return place


def stopped(place: Path, enabled: str | None, *, topic_id: bytes = ID, epoch: int = 8) -> tuple[Path, Path]:
    """A stopped broker's log dir with an empty ``orders-0``, and the metadata of its cluster, which counts this leader epoch."""
    log_dir = formatted(place / "logs")
    (log_dir / "bootstrap.checkpoint").unlink()
    with Log.open(log_dir / "orders-0", "a", topic_id=ID_TEXT if topic_id == ID else OTHER_TEXT, single_replica=True):
        pass
    body = [records.topic("orders", topic_id), records.partition(topic_id, 0, (1,))]
    body += [records.leader_change(topic_id, 0, 1)] * epoch
    if enabled is not None:
        body.append(records.config("topic", "orders", "remote.storage.enable", enabled))
    return log_dir, records.write(place / "metadata", body)


def reason_of(report: RestoreReport) -> str:
    (each,) = report.partitions
    assert each.state == "refused"
    assert each.reason is not None
    return each.reason


def exit_code(streams: pytest.CaptureFixture[str], *words: object) -> int:
    found = run_cli(["offsetlog", "restore", *map(str, words)], [])
    streams.readouterr()
    return found


def epochs_of(directory: Path) -> Sequence[str]:
    return (directory / "leader-epoch-checkpoint").read_text().splitlines()[2:]


@pytest.mark.parametrize("enabled", ["true", " TRUE "])
@pytest.mark.parametrize("line", [0, None, 20, 25])
def test_a_directory_without_its_remote_part_is_refused(
    line: int | None, enabled: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the epochs of its batches alone the broker would delete all that was copied before."""
    source = source_of(tmp_path / "old", local=20, line=line)
    log_dir, metadata = stopped(tmp_path, enabled)
    before = tree(log_dir, without=(".lock",))
    for dry_run in (True, False):
        report = restore(source, log_dir, metadata=metadata, dry_run=dry_run)
        reason = reason_of(report)
        assert "for good" in reason
        assert f"copy {source / 'orders-0'} into the log dir" in reason
        assert report.has_losses
    assert exit_code(capfd, source, "--into", log_dir, "--metadata", metadata) == 2
    after = tree(log_dir, without=(".lock",))
    assert {name: found for name, found in after.items() if name.startswith("orders-0")} == {
        name: found for name, found in before.items() if name.startswith("orders-0")
    }


def test_what_was_put_back_by_hand_is_there(tmp_path: Path) -> None:
    """As the reason says: a restore then finds it, and leaves its epochs alone."""
    source = source_of(tmp_path / "old", local=20, line=0)
    log_dir, metadata = stopped(tmp_path, "true")
    shutil.rmtree(log_dir / "orders-0")
    shutil.copytree(source / "orders-0", log_dir / "orders-0")
    shutil.copy(source / "log-start-offset-checkpoint", log_dir)
    report = restore(source, log_dir, metadata=metadata)
    assert states_of(report) == {"there"}
    assert epochs_of(log_dir / "orders-0") == ["0 0", "3 10", "7 20"]
    assert (log_dir / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 0\n"


@pytest.mark.parametrize("enabled", [None, "false", "no"])
def test_without_remote_storage_it_is_restored(enabled: str | None, tmp_path: Path) -> None:
    source = source_of(tmp_path / "old", local=20, line=0)
    log_dir, metadata = stopped(tmp_path, enabled)
    report = restore(source, log_dir, metadata=metadata)
    assert (states_of(report), report.has_losses) == ({"restored"}, True)
    assert epochs_of(log_dir / "orders-0") == ["7 20"]


def test_a_whole_log_is_restored_with_its_epochs(tmp_path: Path) -> None:
    source = source_of(tmp_path / "old")
    log_dir, metadata = stopped(tmp_path, "true")
    assert states_of(restore(source, log_dir, metadata=metadata)) == {"restored"}
    assert epochs_of(log_dir / "orders-0") == ["0 0", "3 10", "7 20"]


def test_epochs_are_not_counted_anew(tmp_path: Path) -> None:
    """Segments in the remote storage are found by them."""
    source = source_of(tmp_path / "old")
    log_dir, metadata = stopped(tmp_path, "true", epoch=5)
    reason = reason_of(restore(source, log_dir, metadata=metadata))
    assert "no epoch above 5" in reason
    assert "up to 7" in reason
    # Under another id nothing is there that these epochs are of.
    log_dir, metadata = stopped(tmp_path / "other", "true", topic_id=OTHER, epoch=5)
    assert states_of(restore(source, log_dir, metadata=metadata)) == {"restored"}


def test_under_another_id_it_would_begin_with_nothing(tmp_path: Path) -> None:
    source = source_of(tmp_path / "old", local=20, line=0)
    log_dir, metadata = stopped(tmp_path, "true", topic_id=OTHER)
    reason = reason_of(restore(source, log_dir, metadata=metadata))
    assert "another topic id" in reason
    assert "for good" not in reason


def test_without_metadata_it_may_have_remote_storage(tmp_path: Path) -> None:
    """The checkpoint says that the log begins before its first segment; who knows that a segment was lost names the metadata."""
    source = source_of(tmp_path / "old", local=20, line=0)
    log_dir, metadata = stopped(tmp_path, None)
    reason = reason_of(restore(source, log_dir))
    assert "--metadata" in reason
    assert states_of(restore(source, log_dir, metadata=metadata)) == {"restored"}
    # Where nothing says that it began before, retention deleted it.
    source = source_of(tmp_path / "older", local=20)
    log_dir, _ = stopped(tmp_path / "again", None)
    assert states_of(restore(source, log_dir)) == {"restored"}


def test_the_metadata_of_the_source_tells_too(tmp_path: Path) -> None:
    source = source_of(tmp_path / "old", local=20)
    log_dir, _ = stopped(tmp_path, None)
    told = records.write(
        tmp_path / "dead",
        [
            records.topic("orders", ID),
            records.partition(ID, 0, (1,)),
            records.config("topic", "orders", "remote.storage.enable", "TRUE"),
        ],
    )
    reason = reason_of(restore([source, told], log_dir))
    assert "for good" in reason or "counted anew" in reason


GOLDEN = DATA / "kafka-4.3.0-tiered" / "log-dir"
STARTS_LOCAL = {"orders-0": 29927, "orders-1": 30073}
"""Where the first segment of each golden partition begins: all before is in the remote store, which is not here."""


def golden(place: Path, local: int) -> Path:
    """A copy of the golden broker's log dir, with so many records behind what it copied away."""
    log_dir = Path(shutil.copytree(GOLDEN, place))
    for name, start in STARTS_LOCAL.items():
        with Log.open(log_dir / name, "a", single_replica=True) as log:
            for number in range(local):
                assert log.append(b"%d" % number, leader_epoch=2) == start + number
    return log_dir


@pytest.mark.parametrize("local", [0, 3])
@pytest.mark.parametrize("target", ["folder", "new cluster"])
def test_what_a_tiered_broker_has_here_is_restored(target: str, local: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By its log start offset the log begins at 0: what is only in the remote store is a loss, which is told, in a dry run too."""
    assert sorted((GOLDEN / "log-start-offset-checkpoint").read_text().splitlines()[2:]) == ["orders 0 0", "orders 1 0"]
    source = golden(tmp_path / "old", local)
    into = formatted(tmp_path / "new") if target == "new cluster" else tmp_path / "new"
    options = ["--new-cluster"] if target == "new cluster" else []
    before = tree(tmp_path)
    dry = restore(source, into, new_cluster=bool(options), dry_run=True)
    printed = run_cli(["offsetlog", "restore", str(source), "--into", str(into), *options, "--dry-run"], [])
    plan = capfd.readouterr()
    assert tree(tmp_path) == before
    report = restore(source, into, new_cluster=bool(options))
    assert (dry.has_losses, report.has_losses, printed) == (True, True, 3)
    assert (states_of(dry), states_of(report)) == ({"planned"}, {"restored"})
    for each in report.partitions:
        start = STARTS_LOCAL[f"{each.topic}-{each.partition}"]
        assert (each.records, each.log_start_offset, each.log_end_offset) == (local, start, start + local)
        with Log.open(each.into[0].path) as log:
            assert (log.log_start_offset, log.log_end_offset, log.topic_id) == (start, start + local, each.topic_id)
            assert [(record.offset, record.value) for record in log.scan()] == [
                (start + number, b"%d" % number) for number in range(local)
            ]
            assert not log.verify().damaged
    # The same sentence for each partition, from Python and from a shell.
    told = [warning for warning in report.warnings if "are not restored" in warning]
    assert told == [warning for warning in dry.warnings if "are not restored" in warning]
    assert [warning.partition(":")[0] for warning in told] == ["orders-0", "orders-1"]
    for warning, start in zip(told, STARTS_LOCAL.values(), strict=True):
        assert f"the log begins at 0, and its first segment at {start}: they are in remote storage" in warning
        assert warning in plan.err
    assert exit_code(capfd, source, "--into", tmp_path / "again") == 3


def test_a_tiered_brokers_directory_goes_into_its_cluster_by_hand(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The golden directory, and a cluster that has the topic with remote storage still; without, what is here is restored."""
    text = (GOLDEN / "orders-0" / "partition.metadata").read_text()
    raw = uuid_bytes(text.rpartition("topic_id: ")[2].strip())
    log_dir = formatted(tmp_path / "logs")
    (log_dir / "bootstrap.checkpoint").unlink()
    for enabled, state, code in (("true", "refused", 2), ("false", "restored", 3)):
        body = [records.topic("orders", raw), *(records.partition(raw, number, (1,)) for number in (0, 1))]
        metadata = records.write(tmp_path / enabled, [*body, records.config("topic", "orders", "remote.storage.enable", enabled)])
        dry = restore(GOLDEN, log_dir, metadata=metadata, dry_run=True)
        assert exit_code(capfd, GOLDEN, "--into", log_dir, "--metadata", metadata, "--dry-run") == code
        report = restore(GOLDEN, log_dir, metadata=metadata)
        assert (states_of(dry), states_of(report)) == ({"planned" if state == "restored" else state}, {state})
        assert dry.has_losses
        assert report.has_losses
        if state == "refused":
            assert all("for good" in (each.reason or "") for each in report.partitions)
