"""Wrong names and companions: numbers 67 to 98."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from bad_inputs import GOOD, ROWS, Reading, active, bad, closed, fine, of, told
from golden import named, row
from make_log import batch, segment

from offsetlog import CheckpointError, Log, LogDir, LogDirError, MetadataFileError, recover, verify

WHOLE = (0, 1, 2, 1000, 1001, 1002)
NAME = f"{0:020}"


def refused(path: Path, words: str) -> None:
    with pytest.raises(LogDirError, match=words):
        Log.open(path)
    told(path, "LogDirError")


@bad(67)
def names_without_a_number(tmp_path: Path) -> None:
    for name in ("x.log", "x.index", "x.snapshot"):
        path = closed(tmp_path, GOOD)
        (path / name).write_bytes(b"")
        refused(path, name)


@bad(68)
def names_of_few_digits(tmp_path: Path) -> None:
    path = closed(tmp_path, GOOD)
    (path / "5.log").write_bytes(GOOD)
    refused(path, "5.log")


@bad(69)
def segments_that_overlap_or_leave_a_gap(tmp_path: Path) -> None:
    overlapping = tmp_path / "overlap-0"
    segment(overlapping, 0, GOOD, batch(3, ROWS))
    segment(overlapping, 4, batch(4, ROWS))
    assert of(overlapping) == Reading((0, 1, 2), "OffsetOrderError", len(GOOD))
    assert of(overlapping, on_corrupt="skip").offsets == (0, 1, 2, 4, 5, 6)
    fine(closed(tmp_path, GOOD), *WHOLE)


@bad(70)
def index_without_its_log(tmp_path: Path) -> None:
    path = closed(tmp_path, GOOD)
    (path / f"{500:020}.index").write_bytes(bytes(8))
    fine(path, *WHOLE)


@bad(71)
def log_without_its_index(tmp_path: Path) -> None:
    (golden,) = named("g-many-entries-0")
    path = golden.copy(tmp_path)
    for index in path.glob("*index"):
        index.unlink()
    with Log.open(path) as log:
        assert tuple(map(row, log.scan())) == golden.rows
        assert log.get(1000) is not None


@bad(72)
def swap_file_that_is_no_log(tmp_path: Path) -> None:
    path = closed(tmp_path, GOOD)
    (path / f"{NAME}.log.swap").write_bytes(b"\xab" * 100)
    # A finished output of a compaction counts in the place of what it was made from, so damage in it is damage.
    assert of(path) == Reading((), "CorruptBatchError", 0)
    (path / f"{NAME}.log.cleaned").write_bytes(b"\xab" * 100)
    fine(path, *WHOLE)


@bad(73)
def name_with_a_minus_sign(tmp_path: Path) -> None:
    path = closed(tmp_path, GOOD)
    (path / "-0000000000000000005.log").write_bytes(GOOD)
    refused(path, "-0000000000000000005")


@bad(74)
def folders_that_are_no_partitions(tmp_path: Path) -> None:
    segment(tmp_path / "t-0", 0, GOOD)
    for name in ("nothing", "t-", "-0", "t-x", "t-0-delete"):
        (tmp_path / name).mkdir()
        with pytest.raises(LogDirError):
            Log.open(tmp_path / name)
    with LogDir.open(tmp_path) as log_dir:
        assert log_dir.partitions() == [("t", 0)]
        assert log_dir.scan().count() == 3


def with_index(tmp_path: Path, suffix: str, data: bytes, *kinds: str) -> None:
    """Whatever an index holds, the records and the look-ups are the same."""
    (golden,) = named("g-many-entries-0")
    into = tmp_path / f"{suffix}{len(list(tmp_path.iterdir()))}"
    path = golden.copy(into)
    file = path / f"{NAME}{suffix}"
    file.write_bytes(data or file.read_bytes()[:-3])
    fine(path, *(seen.offset for seen in golden.rows))
    with Log.open(path) as log:
        assert log.log_end_offset == golden.end
        for seen in golden.rows[::97]:
            found = log.get(seen.offset)
            assert found is not None
            assert row(found) == seen
        for query in golden.time_queries:
            found_at = log.offset_for_timestamp(query.when, isolation_level=query.isolation_level)
            assert (found_at if found_at is None else tuple(found_at)) == query.answer
    assert {finding.kind for finding in verify(path).findings if finding.severity != "note"} == set(kinds)


@bad(75)
def index_of_an_odd_size(tmp_path: Path) -> None:
    with_index(tmp_path, ".index", b"", "CorruptIndexError")
    with_index(tmp_path, ".timeindex", b"", "CorruptIndexError")


@bad(76)
def index_entry_beyond_the_log_or_inside_a_batch(tmp_path: Path) -> None:
    with_index(tmp_path, ".index", struct.pack(">ii", 100, 1 << 30), "CorruptIndexError")
    with_index(tmp_path, ".index", struct.pack(">ii", 100, 33), "CorruptIndexError")


@bad(77)
def index_with_a_zero_tail(tmp_path: Path) -> None:
    with_index(tmp_path, ".index", bytes(4096))


@bad(78)
def index_entries_that_descend(tmp_path: Path) -> None:
    with_index(tmp_path, ".index", struct.pack(">iiii", 900, 7200, 100, 800), "CorruptIndexError")


@bad(79)
def negative_relative_offsets(tmp_path: Path) -> None:
    with_index(tmp_path, ".index", struct.pack(">ii", -5, 100), "CorruptIndexError")
    with_index(tmp_path, ".timeindex", struct.pack(">qi", 1_700_000_000_000, -5), "CorruptIndexError")


@bad(80)
def negative_position(tmp_path: Path) -> None:
    with_index(tmp_path, ".index", struct.pack(">ii", 100, -800), "CorruptIndexError")


@bad(81)
def times_that_descend(tmp_path: Path) -> None:
    with_index(tmp_path, ".timeindex", struct.pack(">qiqi", 1_800_000_000_000, 5, 1_600_000_000_000, 900), "CorruptIndexError")


def with_aborted(tmp_path: Path, data: bytes, *kinds: str) -> None:
    """Markers in the log decide what is committed, whatever the transaction index holds."""
    (golden,) = named("g-txn-0")
    path = golden.copy(tmp_path / f"{len(list(tmp_path.iterdir()))}")
    for file in path.glob("*.txnindex"):
        file.write_bytes(data)
    assert of(path, isolation_level="read_committed").offsets == tuple(seen.offset for seen in golden.committed)
    told(path, *kinds)


def aborted(version: int, last_offset: int) -> bytes:
    return struct.pack(">hqqqq", version, 4, 0, last_offset, 0)


@bad(82)
def transaction_index_with_a_fragment(tmp_path: Path) -> None:
    with_aborted(tmp_path, bytes(20))


@bad(83)
def transaction_index_of_other_versions(tmp_path: Path) -> None:
    with_aborted(tmp_path, aborted(0x0100, 10), "CorruptTxnIndexError")
    with_aborted(tmp_path, aborted(1, 10), "CorruptTxnIndexError")


@bad(84)
def transaction_index_below_its_segment(tmp_path: Path) -> None:
    with_aborted(tmp_path, aborted(0, -7), "CorruptTxnIndexError")


@bad(85)
def producer_snapshots(tmp_path: Path) -> None:
    (golden,) = named("g-idem-0")
    source = max(golden.directory.glob("*.snapshot")).read_bytes()
    wrong = [source[:-1] + bytes([source[-1] ^ 1]), b"\0\0" + source[2:], b"\0\2" + source[2:], source[:-5]]
    wrong += [source[:6] + struct.pack(">i", count) for count in (-1, (1 << 31) - 1)]
    for number, data in enumerate(wrong):
        path = golden.copy(tmp_path / str(number))
        for file in path.glob("*.snapshot"):
            file.write_bytes(data)
        fine(path, *(seen.offset for seen in golden.rows))
        told(path, "CorruptSnapshotError")
        # Opening for appending works them out of the batches again.
        report = recover(path, dry_run=True)
        assert (report.log_end_offset, report.cut[:0]) == (golden.end, ())


def with_epochs(tmp_path: Path, text: bytes, error: type[Exception] | None = CheckpointError) -> None:
    path = closed(tmp_path, GOOD)
    (path / "leader-epoch-checkpoint").write_bytes(text)
    fine(path, *WHOLE)
    told(path, "CheckpointError")
    with Log.open(path) as log:
        if error is None:
            assert log.leader_epoch is not None
        else:
            with pytest.raises(error):
                _ = log.leader_epoch


@bad(86)
def leader_epoch_checkpoint_of_another_shape(tmp_path: Path) -> None:
    for text in (b"1\n1\n0 0\n", b"x\n1\n0 0\n", b"0\n2\n0 0\n", b"0\n1\n0 0 0\n", b"0\n\n1\n0 0\n", b"0\n1\n\xff 0\n"):
        with_epochs(tmp_path, text)


@bad(87)
def leader_epoch_checkpoint_without_numbers(tmp_path: Path) -> None:
    for field in (b"x", b"99999999999"):
        with_epochs(tmp_path, b"0\n1\n" + field + b" 0\n")


@bad(88)
def checkpoint_counts(tmp_path: Path) -> None:
    for count in (-1, 2147483647):
        with_epochs(tmp_path, b"0\n%d\n0 0\n" % count)


@bad(89)
def leader_epochs_that_descend(tmp_path: Path) -> None:
    with_epochs(tmp_path, b"0\n2\n5 0\n2 1000\n", None)


def in_log_dir(tmp_path: Path, name: str, text: str) -> Path:
    path = active(tmp_path, GOOD)
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    (tmp_path / name).write_text(text)
    return path


@bad(90)
def checkpoints_of_the_log_dir(tmp_path: Path) -> None:
    for text in ("0\n1\nbad0 0\n", "0\n1\nbad x 7\n"):
        path = in_log_dir(tmp_path, "recovery-point-offset-checkpoint", text)
        fine(path, 0, 1, 2)
        told(tmp_path, "CheckpointError")
        path = in_log_dir(tmp_path, "log-start-offset-checkpoint", text)
        fine(path, 0, 1, 2)


@bad(91)
def log_start_beyond_the_end(tmp_path: Path) -> None:
    path = tmp_path / "late-0"
    segment(path, 0, GOOD)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nlate 0 50\n")
    told(path, "LogDirError")
    with Log.open(path) as log, pytest.raises(LogDirError, match="50"):
        list(log.scan())
    assert (path / f"{NAME}.log").read_bytes() == GOOD


@bad(92)
def recovery_point_beyond_the_end(tmp_path: Path) -> None:
    path = tmp_path / "ahead-0"
    segment(path, 0, GOOD)
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nahead 0 5000\n")
    fine(path, 0, 1, 2)
    with Log.open(path, "a") as log:
        assert log.append(b"next") == 3
    assert "ahead 0 4" in (tmp_path / "recovery-point-offset-checkpoint").read_text()


def with_metadata(tmp_path: Path, text: str) -> None:
    path = closed(tmp_path, GOOD)
    (path / "partition.metadata").write_text(text)
    fine(path, *WHOLE)
    told(path, "MetadataFileError")
    with Log.open(path) as log, pytest.raises(MetadataFileError):
        _ = log.topic_id


@bad(93)
def partition_metadata_of_another_shape(tmp_path: Path) -> None:
    good = "AAAAAAAAAAAAAAAAAAAAAQ"
    for text in (
        f"version:0\ntopic_id:{good}\n",
        f"version: -1\ntopic_id: {good}\n",
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n",
    ):
        with_metadata(tmp_path, text)


@bad(94)
def partition_metadata_without_an_id(tmp_path: Path) -> None:
    for text in ("version: 0\ntopic_id: AAAA\n", ""):
        with_metadata(tmp_path, text)


@bad(95)
def meta_properties_of_another_shape(tmp_path: Path) -> None:
    texts = (
        "version=2\ncluster.id=c\nnode.id=1\n",
        "version=1\nnode.id=1\n",
        "version=1\ncluster.id=c\nnode.id=x\n",
        "version=1\ncluster.id=c\nnode.id=1\ndirectory.id=x\n",
    )
    for number, text in enumerate(texts):
        folder = tmp_path / str(number)
        folder.mkdir()
        segment(folder / "t-0", 0, GOOD)
        (folder / "meta.properties").write_text(text)
        told(folder, "MetadataFileError")
        # Records do not depend on it.
        fine(folder / "t-0", 0, 1, 2)
        with LogDir.open(folder) as log_dir:
            assert log_dir.scan().count() == 3


@bad(96)
def clean_marker_of_any_content(tmp_path: Path) -> None:
    for text in ("", "garbage"):
        (golden,) = named("g-plain-0")
        folder = tmp_path / f"clean{len(text)}"
        path = golden.copy(folder)
        shutil.copyfile(golden.directory.parent / "meta.properties", folder / "meta.properties")
        (folder / ".kafka_cleanshutdown").write_text(text)
        with Log.open(path, "a") as log:
            assert log.recovery_report.clean


@bad(97)
def metadata_records_of_another_shape(tmp_path: Path) -> None:
    values = [b"\0\1", b"\2\1\0", b"\1\xff\x7f\0", b"\1", b"\1\2\0" + bytes(40)]
    path = tmp_path / "__cluster_metadata-0"
    segment(path, 0, batch(0, [(None, value) for value in values]))
    # They are bytes as any others; only a decoder of them has an opinion.
    with Log.open(path) as log:
        assert [found.value for found in log.scan()] == values


@bad(98)
def group_records_of_another_shape(tmp_path: Path) -> None:
    keys = [b"\0\x63" + b"key", None]
    path = tmp_path / "__consumer_offsets-0"
    segment(path, 0, batch(0, [(key, b"v") for key in keys]))
    with Log.open(path) as log:
        assert [found.key for found in log.scan()] == keys
