"""What is safer here about a directory that is damaged, one named difference after the other, each with Kafka's own outcome.

Every outcome is what Kafka sees in the directory afterwards: it opens what we left.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import differences
import pytest
from damage import CONFIG, U0, C, Damage, Ground, Mode, Outcome, U, four_segments, six_batches
from damages import DAMAGES, file
from differences import DIFFERENCES
from interface import Batch, Opening, Refusal, Row
from kafka_log import KafkaLog, Oracle
from our_log import OurLog
from reports import SHOWN, shows

import offsetlog

TIME = 1_700_000_000_000


@pytest.fixture(scope="module")
def four(oracle: Oracle, folder: Path) -> Ground:
    """Four segments at 0, 9, 17, 26; the end at 29."""
    return Ground(oracle, folder / "four-differences", four_segments)


@pytest.fixture(scope="module")
def six(oracle: Oracle, folder: Path) -> Ground:
    """Six batches in one segment."""
    return Ground(oracle, folder / "six-differences", six_batches)


def flipped(base: int, at: int, bit: int = 1) -> Damage:
    """One bit of a segment."""

    def damage(directory: Path) -> None:
        path = file(directory, base, ".log")
        data = bytearray(path.read_bytes())
        data[at] ^= bit
        path.write_bytes(data)

    return damage


def indexes_of(outcome: Outcome, base: int) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """Offset entries and time entries of a segment."""
    return next((offsets, times) for at, offsets, times in outcome.indexes if at == base)


@shows(differences.ASKED_FIRST)
def test_whole_batches_are_cut_when_told(four: Ground) -> None:
    damage = DAMAGES["bad byte in the first batch of 9"]
    ours, kafkas = four.both(U0, damage)
    assert kafkas.end == 9
    assert len(four.loses(kafkas)) > 5
    assert ours.refused == "CorruptBatchError"
    directory = four.folder / "ours" / "d-0"
    before = {path.name: path.read_bytes() for path in directory.glob("*.log")}
    planned = offsetlog.recover(str(directory), dry_run=True)
    assert {path.name: path.read_bytes() for path in directory.glob("*.log")} == before
    done = offsetlog.recover(str(directory))
    assert done.log_end_offset == planned.log_end_offset == 9
    assert len(done.cut) == len(planned.cut) > 0
    kept = b"\n".join(Path(path).read_bytes() for path in done.kept)
    assert all(batch.data in kept for batch in four.batches if batch.base_offset >= 12)
    after = four.observed(directory)
    assert (after.end, after.bases, after.batches, after.epochs) == (9, kafkas.bases, kafkas.batches, kafkas.epochs)


@shows(differences.INDEX_CHECKED)
def test_an_index_past_the_end_hides_nothing(four: Ground) -> None:
    ours, kafkas = four.both(C, DAMAGES[".index of 26 points past the end"])
    assert kafkas.end == 26
    assert ours.end == 29
    assert ours.batches == four.batches
    assert ours.epochs == ((1, 0), (2, 12), (3, 26))


@shows(differences.TAIL_CUT)
def test_half_a_batch_at_the_end(four: Ground) -> None:
    """Kafka appends behind it, and can read neither that nor what follows; here it is cut first."""
    damage = DAMAGES["half a batch behind 26"]
    kafka = KafkaLog(four.oracle, four.damaged("kafka", C, damage), "tail")
    ours = OurLog(four.damaged("ours", C, damage), four.clock)
    batch = Batch((Row(TIME, b"k", b"after"),))
    read = {}
    for side in (kafka, ours):
        side.open(C.opening())
        assert side.append_rows(batch, "records", 3).last_offset == 29
        side.flush()
        try:
            read[side.name] = side.fetch(29, 1000, committed=False).records
        except Refusal as refusal:
            read[side.name] = refusal.text.encode()
        side.close(clean=True)
    assert read["offsetlog"].endswith(b"after\0")
    assert not read["kafka"].endswith(b"after\0")
    assert four.observed(ours.directory).end == 30


@shows(differences.TAIL_CUT)
def test_zeros_at_the_end(four: Ground) -> None:
    ours, kafkas = four.both(C, DAMAGES["20000 zeros behind 26"])
    assert kafkas.refused == "CorruptRecordException"
    assert ours.end == 29
    assert ours.batches == four.batches


@shows(differences.HEADER_CHECKED)
@pytest.mark.parametrize(("at", "bit"), [(16, 1), (7, 2), (4, 1)], ids=["magic", "base offset", "base offset, high"])
def test_what_the_checksum_does_not_cover(six: Ground, at: int, bit: int) -> None:
    size = len(six.batches[0].data)
    ours, kafkas = six.both(U0, flipped(0, 2 * size + at, bit))
    assert six.wrong(kafkas) or six.loses(kafkas) or kafkas.refused
    assert ours.refused in {"UnsupportedMagicError", "OffsetOrderError"}
    assert not ours.vanished


@shows(differences.GAP_TOLD)
def test_a_missing_segment_is_told(four: Ground) -> None:
    damage = DAMAGES["middle segment missing"]
    ours, kafkas = four.both(C, damage)
    assert ours.end == kafkas.end == 29
    with offsetlog.Log.open(str(four.damaged("ours", C, damage)), mode="a", config=dict(CONFIG)) as log:
        assert any("9" in warning for warning in log.recovery_report.warnings)


@shows(differences.TIMES_REBUILT)
@pytest.mark.parametrize("mode", [U, C], ids=lambda mode: mode.name)
def test_a_lost_time_index_is_made_again(four: Ground, mode: Mode) -> None:
    ours, kafkas = four.both(mode, DAMAGES[".timeindex of 17 missing"])
    sound, _ = four.both(C, lambda _: None)
    times = [indexes_of(outcome, 17)[1] for outcome in (ours, kafkas, sound)]
    assert times[0] == times[2] != ()
    assert times[1] == ()


@shows(differences.ABORTED_REBUILT)
@pytest.mark.parametrize("name", [".txnindex missing", ".txnindex is 20 bytes"])
def test_aborted_records_stay_aborted(four: Ground, name: str) -> None:
    ours, kafkas = four.both(C, DAMAGES[name])
    assert kafkas.aborted == ()
    assert [entry[:3] for entry in ours.aborted] == [(8, 12, 16)]


@shows(differences.PRODUCERS_SCANNED)
def test_lost_snapshots_lose_no_producers(four: Ground) -> None:
    ours, kafkas = four.both(C, DAMAGES["all snapshots missing"])
    assert kafkas.producers == ()
    assert [entry[:3] for entry in ours.producers] == [(5, 0, 17), (8, 0, 2)]


@shows(differences.EPOCHS_FOUND)
@pytest.mark.parametrize("name", ["epoch file missing", "epoch file empty"])
def test_lost_epochs_are_found_again(four: Ground, name: str) -> None:
    ours, kafkas = four.both(C, DAMAGES[name])
    assert kafkas.epochs == ()
    assert ours.epochs == ((1, 0), (2, 12), (3, 26))


@shows(differences.ZEROS_REBUILT)
def test_an_index_of_zeros_is_made_again(four: Ground) -> None:
    ours, kafkas = four.both(C, DAMAGES[".log.swap of 9 beside its files"])
    assert indexes_of(kafkas, 9)[0][0] == (9, 0)
    assert indexes_of(ours, 9)[0][0][1] > 0


@shows(differences.READ_CHECKED)
def test_reads_check(four: Ground) -> None:
    """A flipped bit in a segment that nobody recovers."""
    damage = flipped(9, 70)
    kafka = KafkaLog(four.oracle, four.damaged("kafka", U, damage), "read")
    kafka.open(U.opening())
    assert kafka.fetch(9, 1, committed=False).records not in {batch.data for batch in four.batches}
    kafka.close(clean=False)
    ours = OurLog(four.damaged("ours", U, damage), four.clock)
    ours.open(U.opening())
    with pytest.raises(Refusal, match="CorruptBatchError"):
        ours.fetch(9, 1, committed=False)
    ours.close(clean=True)
    assert four.observed(ours.directory).end == 29


@shows(differences.START_ABOVE_END)
def test_a_start_above_the_end(four: Ground) -> None:
    """Kafka deletes the log; here it is kept."""
    ours, kafkas = four.both(U, DAMAGES["start checkpoint 40"])
    assert kafkas.bases == (40,)
    assert not ours.vanished


def test_every_difference_has_a_test() -> None:
    importlib.import_module("test_differences")
    assert {difference.name for difference in DIFFERENCES} == SHOWN


def test_opening_of_a_mode() -> None:
    """The log dir says how the last run ended; nothing is told beside it."""
    assert U0.opening() == Opening(CONFIG, clean=False, checkpoints=True)
