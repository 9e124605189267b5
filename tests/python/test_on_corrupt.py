"""``on_corrupt``: what a scan gives around damage, and what it says of what is missing."""

from __future__ import annotations

import json
import pickle
import random
import struct
import time
from itertools import pairwise
from pathlib import Path

import pytest
from bad_inputs import AFTER, GOOD, ROWS, closed, of
from frames import all_frames, frames
from golden import CLEAN_PARTITIONS, DATA, Golden, partitions_of, row
from make_log import GZIP, batch, move, segment

from offsetlog import ConfigError, CorruptBatchError, Hole, Log, LogDir, OffsetOutOfRangeError, Scan, ScanReport, Split

TORN = DATA / "kafka-4.3.0" / "torn"
DAMAGE = json.loads((TORN / "damage.json").read_text())
PARTITIONS = {golden.name: golden for golden in partitions_of((TORN / "log-dir-1", TORN / "log-dir-2"), "kafka-4.3.0-torn")}
# Before the damage was done: three segments of 32 records each.
ALL = tuple(range(96))


def spans(offsets: tuple[int, ...]) -> list[tuple[int, int]]:
    """Runs of consecutive offsets, each with its end."""
    runs: list[tuple[int, int]] = []
    for offset in offsets:
        if runs and runs[-1][1] == offset:
            runs[-1] = (runs[-1][0], offset + 1)
        else:
            runs.append((offset, offset + 1))
    return runs


def touched(golden: Golden) -> tuple[tuple[int, int], ...]:
    """Offsets of the damaged batch that ``damage.json`` names, from the frames of the file, as ``((first, behind),)``."""
    files = sorted(golden.directory.glob("*.log"))
    match golden.name.removeprefix("g-torn-").removesuffix("-0"):
        case "flip-active":
            found = list(frames(files[-1]))[-3]
        case "flip-old":
            found = list(frames(files[1]))[1]
        case _:
            return ()
    assert found.base_offset is not None
    return ((found.base_offset, found.last_offset + 1),)


@pytest.mark.parametrize("name", DAMAGE)
def test_torn_logs_give_the_records_before_the_damage_and_after_it(name: str) -> None:
    golden = PARTITIONS[name]
    expected = {seen.offset: seen for seen in golden.rows}
    holes = touched(golden)
    with Log.open(golden.directory) as log:
        before = list(map(row, log.scan(on_corrupt="stop")))
        skip = log.scan(on_corrupt="skip")
        rows = list(map(row, skip))
        # What a broker shows after its recovery is what stands before the damage, but for the magic byte, which it does not notice.
        assert before == [expected[seen.offset] for seen in before]
        assert [seen.offset for seen in before] == [offset for offset in expected if not holes or offset < holes[0][0]]
        if holes:
            ((first, behind),) = holes
            assert [seen.offset for seen in rows] == [*ALL[:first], *ALL[behind:]]
            # Behind it the records are as those of the undamaged log: same producer, same values but for the number.
            control = {seen.offset: seen for seen in PARTITIONS["g-torn-none-0"].rows}
            assert [seen.key for seen in rows] == [control[seen.offset].key for seen in rows]
            (hole,) = skip.report.holes
            assert (hole.topic, hole.partition, hole.start, hole.stop) == (golden.topic, 0, first, behind)
            assert hole.path in {str(path) for path in golden.directory.glob("*.log")}
            with pytest.raises(CorruptBatchError):
                list(log.scan())
        else:
            assert rows == before
        for threads in (1, 2):
            table = log.scan(on_corrupt="skip", threads=threads, columns=["offset"]).to_arrow()
            assert table["offset"].to_pylist() == [seen.offset for seen in rows]
        assert log.scan(on_corrupt="skip").count() == len(rows)


def test_every_kind_of_damage_is_tried() -> None:
    assert set(DAMAGE) == set(PARTITIONS)


def test_undamaged_logs_have_no_holes() -> None:
    for golden in CLEAN_PARTITIONS:
        with Log.open(golden.directory) as log:
            for level in ("read_uncommitted", "read_committed"):
                scan = log.scan(on_corrupt="skip", isolation_level=level)
                rows = golden.rows if level == "read_uncommitted" else golden.committed
                assert tuple(map(row, scan)) == rows
                assert scan.report[:4] == ScanReport()[:4]


def broken(data: bytes) -> bytes:
    """A batch whose length says nothing."""
    return data[:8] + struct.pack(">i", -1) + data[12:]


def flipped(data: bytes) -> bytes:
    """A batch whose checksum is wrong."""
    return data[:-1] + bytes([data[-1] ^ 1])


INSIDE = batch(4, [(b"not", b"of this log")] * 2)
CARRIER = batch(3, [(b"k", INSIDE), (b"k", INSIDE + INSIDE[:30]), (b"k", bytes(20) + INSIDE)])


@pytest.mark.parametrize("damage", [broken, flipped])
def test_batches_inside_values_are_no_batches_of_the_log(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    middle = damage(CARRIER)
    path = closed(tmp_path, GOOD, middle, batch(6, ROWS))
    with Log.open(path) as log:
        scan = log.scan(on_corrupt="skip")
        assert tuple(record.offset for record in scan) == (0, 1, 2, *AFTER)
        assert [(hole.start, hole.stop, hole.size_bytes) for hole in scan.report.holes] == [(3, 6, len(middle))]
    # At the end of a closed segment too, where the last value is followed by a byte that counts its headers.
    path = closed(tmp_path, GOOD, damage(batch(3, [(b"k", INSIDE)])))
    assert of(path, on_corrupt="skip").offsets == (0, 1, 2, 1000, 1001, 1002)


def test_batches_inside_values_of_other_offsets_are_never_taken(tmp_path: Path) -> None:
    for offset in (0, 2, 999):
        carrier = broken(batch(3, [(b"k", move(INSIDE, offset) + batch(7, ROWS)[:61])]))
        path = closed(tmp_path, GOOD, carrier, batch(6, ROWS))
        assert of(path, on_corrupt="skip").offsets == (0, 1, 2, *AFTER)


def test_holes_side_by_side_are_each_told(tmp_path: Path) -> None:
    path = closed(
        tmp_path,
        GOOD,
        flipped(batch(3, ROWS)),
        broken(batch(6, ROWS)),
        flipped(batch(9, ROWS)),
        batch(12, ROWS),
        flipped(batch(15, ROWS)),
    )
    with Log.open(path) as log:
        scan = log.scan(on_corrupt="skip")
        assert [record.offset for record in scan] == [0, 1, 2, 12, 13, 14, 1000, 1001, 1002]
        report = scan.report
    size = len(GOOD)
    assert report.hole_count == len(report.holes)
    assert sum(hole.size_bytes for hole in report.holes) == report.hole_bytes == 4 * size
    assert report.holes[0].position == size
    # Together they are the offsets that are missing, none twice.
    missing = [offset for hole in report.holes for offset in range(hole.start or 0, hole.stop or 0)]
    assert missing == [*range(3, 12), *range(15, 1000)]


def test_the_report_can_be_asked_while_the_scan_runs_and_after_it(tmp_path: Path) -> None:
    many = [flipped(batch(number * 3, ROWS)) if number % 2 else batch(number * 3, ROWS) for number in range(300)]
    path = closed(tmp_path, *many)
    with Log.open(path) as log:
        scan = log.scan(on_corrupt="skip")
        assert scan.report == ScanReport()
        reader = iter(scan)
        next(reader)
        assert scan.report.hole_count < 150
        rest = sum(1 for _ in reader)
        first = scan.report
        assert (rest + 1, first.hole_count) == (150 * 3 + 3, 150)
        assert first.hole_bytes == 150 * len(GOOD)
        for threads in (1, 2):
            arrow = log.scan(on_corrupt="skip", threads=threads, batch_rows=10)
            assert arrow.to_arrow().num_rows == rest + 1
            assert arrow.report == first
        # Each reading begins anew.
        assert scan.count() == rest + 1
        assert scan.report == first
        limited = log.scan(on_corrupt="skip", limit=1)
        assert limited.count() == 1
        assert limited.report.holes == ()


def test_bad_records_are_told_in_order_also_by_threads(tmp_path: Path) -> None:
    many = [
        batch(number * 3, ROWS, record_count=2 + number % 3, codec=GZIP if number % 2 else 0)
        if number % 5
        else flipped(batch(number * 3, ROWS))
        for number in range(300)
    ]
    path = closed(tmp_path, *many)
    with Log.open(path) as log:
        one, two = (log.scan(on_corrupt="skip", threads=threads) for threads in (1, 2))
        assert one.to_arrow().equals(two.to_arrow())
        assert one.report == two.report
        starts = [hole.start or 0 for hole in one.report.holes]
        assert starts == sorted(starts)
        assert {hole.error for hole in one.report.holes} == {"CorruptBatchError", "InvalidRecordError"}
        objects = log.scan(on_corrupt="skip")
        assert [record.offset for record in objects] == one.to_arrow()["offset"].to_pylist()
        assert objects.report == one.report
        assert log.scan(on_corrupt="skip", columns=["offset"]).to_arrow().num_rows == one.count() == two.count()


def test_stop_ends_each_log_for_itself(tmp_path: Path) -> None:
    for name, batches in {"a-0": (GOOD, flipped(batch(3, ROWS)), batch(6, ROWS)), "b-0": (GOOD, batch(3, ROWS))}.items():
        segment(tmp_path / name, 0, *batches)
    with LogDir.open(tmp_path) as log_dir:
        scan = log_dir.scan(on_corrupt="stop")
        assert [(record.topic, record.offset) for record in scan] == [*(("a", n) for n in range(3)), *(("b", n) for n in range(6))]
        assert [(hole.topic, hole.start, hole.stop) for hole in scan.report.holes] == [("a", 3, 6)]
        skip = log_dir.scan(on_corrupt="skip", threads=2)
        assert skip.to_arrow().num_rows == 12
        paths = [(log_dir.log(*key).path, *key) for key in log_dir.partitions()]
        splits = [Split(*place, start, start + 3, 0) for place in paths for start in (0, 3, 6)]
        over = Scan.over(splits, on_corrupt="stop")
        assert over.count() == 9


def test_splits_share_the_holes_between_them(tmp_path: Path) -> None:
    batches = [flipped(batch(n * 3, ROWS)) if n in {4, 5, 9} else batch(n * 3, ROWS) for n in range(20)]
    path = closed(tmp_path, *batches)
    with Log.open(path) as log:
        whole = log.scan(on_corrupt="skip")
        offsets = [record.offset for record in whole]
        for cuts in ([0, 13, 1003], [0, 12, 18, 28, 1003], [0, 1, 14, 15, 16, 27, 29, 30, 500, 1003]):
            pieces = [log.scan(start, stop, on_corrupt="skip") for start, stop in pairwise(cuts)]
            assert [record.offset for piece in pieces for record in piece] == offsets
            lost = [offset for piece in pieces for hole in piece.report.holes for offset in range(hole.start or 0, hole.stop or 0)]
            assert lost == [offset for hole in whole.report.holes for offset in range(hole.start or 0, hole.stop or 0)]


def test_read_committed_leaves_out_what_nothing_proves(tmp_path: Path) -> None:
    def data(base: int, producer: int) -> bytes:
        return batch(base, ROWS, attributes=0x10, producer_id=producer)

    def ended(base: int, producer: int, kind: bytes) -> bytes:
        return batch(base, [(b"\0\0\0" + kind, bytes(6))], attributes=0x30, producer_id=producer)

    batches = [
        data(0, 1),
        data(3, 2),
        broken(ended(6, 1, b"\1")),
        ended(7, 2, b"\1"),
        data(8, 1),
        ended(11, 1, b"\1"),
        data(12, 2),
        ended(15, 2, b"\0"),
    ]
    path = closed(tmp_path, *batches)
    with Log.open(path) as log:
        scan = log.scan(isolation_level="read_committed", on_corrupt="skip")
        # The first transactions ended at or behind the damage, which hides how; those that began behind it are decided.
        assert [record.offset for record in scan] == [8, 9, 10, 1000, 1001, 1002]
        assert [(hole.start, hole.stop) for hole in scan.report.holes] == [(0, 3), (3, 6), (6, 7)]
        assert "transaction" in scan.report.holes[0].reason


def test_a_flipped_marker_decides_nothing(tmp_path: Path) -> None:
    data = batch(0, ROWS, attributes=0x10, producer_id=1)
    marker = batch(3, [(b"\0\0\0\1", bytes(6))], attributes=0x30, producer_id=1)
    at = marker.rindex(b"\0\0\0\1") + 3
    # Commit becomes abort. Kafka's consumer checks a marker's checksum too, in both isolation levels.
    aborted = marker[:at] + b"\0" + marker[at + 1 :]
    sound, path = (closed(tmp_path, data, ended, batch(4, ROWS)) for ended in (marker, aborted))
    assert of(sound, isolation_level="read_committed").offsets == (0, 1, 2, 4, 5, 6, 1000, 1001, 1002)
    assert of(path).error == "CorruptBatchError"
    assert of(path, isolation_level="read_committed").error == "CorruptBatchError"
    with Log.open(path) as log:
        scan = log.scan(isolation_level="read_committed", on_corrupt="skip")
        assert [record.offset for record in scan] == [4, 5, 6, 1000, 1001, 1002]
        assert [(hole.start, hole.stop) for hole in scan.report.holes] == [(0, 3), (3, 4)]
        scan = log.scan(on_corrupt="skip")
        assert [record.offset for record in scan] == [0, 1, 2, 4, 5, 6, 1000, 1001, 1002]
        assert [(hole.start, hole.stop) for hole in scan.report.holes] == [(3, 4)]


def test_starts_and_limits_stay_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    segment(path, 0, GOOD, flipped(batch(3, ROWS)), batch(6, ROWS))
    with Log.open(path) as log:
        assert [record.offset for record in log.scan(4, on_corrupt="skip")] == [6, 7, 8]
        assert [record.offset for record in log.scan(7, on_corrupt="skip", limit=1)] == [7]
        with pytest.raises(ConfigError, match="did you mean 'skip'"):
            log.scan(on_corrupt="skp")  # type: ignore[arg-type]
        assert "on_corrupt='skip'" in repr(log.scan(on_corrupt="skip"))
    whole = Log.open(closed(tmp_path, GOOD))
    with pytest.raises(OffsetOutOfRangeError):
        list(whole.scan(5000, on_corrupt="skip"))


def test_values_pickle_and_scans_forget_their_report(tmp_path: Path) -> None:
    with Log.open(closed(tmp_path, GOOD, flipped(batch(3, ROWS)), batch(6, ROWS))) as log:
        scan = log.scan(on_corrupt="skip")
        assert scan.count() == 9
        (hole,) = scan.report.holes
        assert isinstance(hole, Hole)
        assert hole.offsets == 3
        assert pickle.loads(pickle.dumps(scan.report)) == scan.report
        again = pickle.loads(pickle.dumps(scan))
        assert again.report == ScanReport()
        assert again.count() == 9
        assert again.report == scan.report


def test_headers_that_all_claim_the_rest_cost_no_square(tmp_path: Path) -> None:
    """Twenty thousand headers that fit, each of which claims most of the file, and a whole batch behind them."""
    size = 4 << 20
    hostile = bytearray(size)
    for at in range(0, 20_000 * 64, 64):
        struct.pack_into(">qii", hostile, at, 5, size - at - 12 - 61, 0)
        hostile[at + 16] = 2
    path = closed(tmp_path, GOOD, broken(batch(3, ROWS)) + bytes(hostile), batch(6, ROWS))
    began = time.process_time()
    with Log.open(path) as log:
        scan = log.scan(on_corrupt="skip")
        offsets = [record.offset for record in scan]
        # Each would be 4 MiB of checksums: 80 GiB. The search gives up, says so, and the next segment is read.
        assert time.process_time() - began < 20
        assert offsets[-3:] == [1000, 1001, 1002]
        assert any("not searched" in hole.reason for hole in scan.report.holes)


@pytest.mark.slow
def test_a_bit_that_makes_a_control_batch_hides_no_records(tmp_path: Path) -> None:
    """Attributes are under the checksum: records that look like a marker are damaged, not left out."""
    golden = PARTITIONS["g-torn-none-0"]
    path = golden.copy(tmp_path)
    frame = next(frame for frame in all_frames(path) if frame.base_offset == 28)
    file = path / f"{frame.segment:020}.log"
    data = bytearray(file.read_bytes())
    data[frame.position + 22] ^= 0x20
    file.write_bytes(data)
    with Log.open(path) as log:
        for ask in (lambda: list(log.scan(20, 40)), lambda: log.get(29), lambda: log.scan(20, 40).count()):
            with pytest.raises(CorruptBatchError) as caught:
                ask()
            assert (caught.value.path, caught.value.position) == (str(file), frame.position)
        scan = log.scan(20, 40, on_corrupt="skip")
        assert [record.offset for record in scan] == [*range(20, 28), *range(32, 40)]
        assert [(hole.start, hole.stop) for hole in scan.report.holes] == [(28, 32)]


def test_random_damage_never_invents_a_record(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    golden = PARTITIONS["g-torn-none-0"]
    expected = {seen.offset: seen for seen in golden.rows}
    boundaries = {(frame.segment, frame.position): frame for frame in all_frames(golden.directory)}
    for turn in range(150):
        path = golden.copy(tmp_path / str(turn))
        file = sorted(path.glob("*.log"))[rng.randrange(2)]
        data = bytearray(file.read_bytes())
        base = int(file.name.partition(".")[0])
        at = rng.randrange(len(data))
        kind = rng.randrange(3)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at : at + 40] = bytes(min(40, len(data) - at))
        else:
            del data[at : at + rng.randrange(1, 40)]
        file.write_bytes(data)
        hit = [
            frame
            for (number, _), frame in boundaries.items()
            if number == base and frame.position - 40 <= at < frame.position + frame.size_bytes + 40
        ]
        with Log.open(path) as log:
            scan = log.scan(on_corrupt="skip")
            found = {record.offset: row(record) for record in scan}
            # Base offset, leader epoch and magic are under no checksum: what was flipped there may be read, shifted.
            width = 40 if kind == 1 else 1
            unchecked = any(frame.position - width < at < frame.position + 21 for frame in hit)
            if not unchecked:
                assert all(expected[offset] == seen for offset, seen in found.items()), (turn, kind, at)
            lost = set(expected) - set(found)
            near = {offset for frame in hit for offset in range(frame.base_offset or 0, frame.last_offset + 1)}
            if not unchecked:
                assert lost <= near, (turn, kind, at, spans(tuple(sorted(lost))))
            told = {offset for hole in scan.report.holes for offset in range(hole.start or 0, hole.stop or 1 << 20)}
            assert lost <= told or unchecked, (turn, kind, at)
