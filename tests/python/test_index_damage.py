"""Indexes help and are never believed: whatever is wrong with them, the same records and the same answers."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from golden import PARTITIONS, Golden, named, row, rows

from offsetlog import Log

SUFFIXES = (".index", ".timeindex", ".txnindex")
ENTRY_BYTES = {".index": 8, ".timeindex": 12, ".txnindex": 34}
# Foreign indexes come from logs whose entries look most like a real answer: many entries, dense offsets, the same producers.
DONORS = {".index": "g-many-entries-0", ".timeindex": "g-time-0", ".txnindex": "g-txn-0"}
OTHER_DONORS = {".index": "g-plain-0", ".timeindex": "g-codec-gzip-0", ".txnindex": "g-compact-txn-0"}

Damage = Callable[[Path, str, random.Random], None]


def index_files(directory: Path, suffix: str) -> list[Path]:
    """The index files of one kind, in order."""
    return sorted(directory.glob(f"*{suffix}"))


def deleted(directory: Path, suffix: str, _: random.Random) -> None:
    for file in index_files(directory, suffix):
        file.unlink()


def emptied(directory: Path, suffix: str, _: random.Random) -> None:
    for file in index_files(directory, suffix):
        file.write_bytes(b"")


def zero_padded(directory: Path, suffix: str, _: random.Random) -> None:
    """As a broker leaves the active segment's indexes after a crash."""
    for file in index_files(directory, suffix):
        file.write_bytes(file.read_bytes() + bytes(100 * ENTRY_BYTES[suffix]))


def zeroed(directory: Path, suffix: str, _: random.Random) -> None:
    for file in index_files(directory, suffix):
        file.write_bytes(bytes(file.stat().st_size or ENTRY_BYTES[suffix]))


def shuffled(directory: Path, suffix: str, rng: random.Random) -> None:
    size = ENTRY_BYTES[suffix]
    for file in index_files(directory, suffix):
        data = file.read_bytes()
        entries = [data[at : at + size] for at in range(0, len(data), size)]
        permuted = entries[:]
        while permuted == entries and len(set(entries)) > 1:
            rng.shuffle(permuted)
        file.write_bytes(b"".join(permuted))


def rotated(directory: Path, suffix: str, _: random.Random) -> None:
    """Every segment has its neighbour's."""
    files = index_files(directory, suffix)
    contents = [file.read_bytes() for file in files]
    for file, data in zip(files, contents[1:] + contents[:1], strict=True):
        file.write_bytes(data)


def _planted(directory: Path, suffix: str, donor_name: str) -> None:
    donors = [file for file in index_files(named(donor_name)[0].directory, suffix) if file.stat().st_size]
    assert donors
    for number, log in enumerate(sorted(directory.glob("*.log"))):
        log.with_suffix(suffix).write_bytes(donors[number % len(donors)].read_bytes())


def foreign(directory: Path, suffix: str, _: random.Random) -> None:
    _planted(directory, suffix, DONORS[suffix])


def foreign_too(directory: Path, suffix: str, _: random.Random) -> None:
    _planted(directory, suffix, OTHER_DONORS[suffix])


def cut(directory: Path, suffix: str, rng: random.Random) -> None:
    """Somewhere, usually inside an entry."""
    for file in index_files(directory, suffix):
        data = file.read_bytes()
        file.write_bytes(data[: rng.randrange(len(data))] if data else b"")


def flipped(directory: Path, suffix: str, rng: random.Random) -> None:
    """One bit in every entry."""
    size = ENTRY_BYTES[suffix]
    for file in index_files(directory, suffix):
        data = bytearray(file.read_bytes())
        for at in range(0, len(data) - size + 1, size):
            data[at + rng.randrange(size)] ^= 1 << rng.randrange(8)
        file.write_bytes(data)


def one_flipped(directory: Path, suffix: str, rng: random.Random) -> None:
    """One bit of one entry, where there are several not of the last: the others vouch for it."""
    size = ENTRY_BYTES[suffix]
    for file in index_files(directory, suffix):
        data = bytearray(file.read_bytes())
        count = len(data) // size
        if count:
            data[rng.randrange(max(1, count - 1)) * size + rng.randrange(size)] ^= 1 << rng.randrange(8)
        file.write_bytes(data)


def random_bytes(directory: Path, suffix: str, rng: random.Random) -> None:
    for log in directory.glob("*.log"):
        log.with_suffix(suffix).write_bytes(rng.randbytes(ENTRY_BYTES[suffix] * rng.randrange(1, 60)))


def every_kind_deleted(directory: Path, _: str, __: random.Random) -> None:
    for suffix in SUFFIXES:
        for file in index_files(directory, suffix):
            file.unlink()


DAMAGES: list[Damage] = [
    deleted,
    emptied,
    zero_padded,
    zeroed,
    shuffled,
    rotated,
    foreign,
    foreign_too,
    cut,
    flipped,
    one_flipped,
    random_bytes,
]


def can_change(golden: Golden, suffix: str, damage: Damage) -> bool:
    """Whether a damage finds something to change: an empty index cannot be shuffled, a log cannot be its own stranger."""
    contents = [file.read_bytes() for file in index_files(golden.directory, suffix)]
    if damage in {deleted, zero_padded}:
        return bool(contents)
    if damage is shuffled:
        return any(len(data) >= 2 * ENTRY_BYTES[suffix] for data in contents)
    if damage is rotated:
        return len(set(contents)) > 1
    if damage in {foreign, foreign_too}:
        return golden.name != (DONORS if damage is foreign else OTHER_DONORS)[suffix]
    return damage is random_bytes or any(contents)


CASES = [
    pytest.param(golden, suffix, damage, id=f"{damage.__name__}{suffix}-{golden.id}")
    for damage in DAMAGES
    for suffix in SUFFIXES
    for golden in PARTITIONS
    if can_change(golden, suffix, damage)
]


def check_same_answers(golden: Golden, directory: Path, rng: random.Random) -> None:
    """The broker's and its clients' view of the undamaged partition."""
    with Log.open(directory) as log:
        assert (log.log_start_offset, log.log_end_offset) == (golden.start, golden.end)
        assert log.last_stable_offset == golden.last_stable_offset
        assert rows(log.scan()) == golden.rows
        assert rows(log.scan(isolation_level="read_committed")) == golden.committed
        start = rng.randrange(golden.start, golden.end + 1)
        assert rows(log.scan(start)) == tuple(seen for seen in golden.rows if seen.offset >= start), start
        assert rows(log.scan(start, isolation_level="read_committed")) == tuple(
            seen for seen in golden.committed if seen.offset >= start
        ), start
        expected = {seen.offset: seen for seen in golden.rows}
        for offset in rng.sample(range(golden.start, golden.end), k=min(40, golden.end - golden.start)):
            record = log.get(offset)
            assert (None if record is None else row(record)) == expected.get(offset), offset
        for when, level, answer in golden.time_queries:
            found = log.offset_for_timestamp(when, isolation_level=level)
            assert (None if found is None else tuple(found)) == answer, (when, level)
        times = sorted({seen.timestamp for seen in golden.rows})
        if times:
            after = rng.choice(times)
            assert rows(log.scan(start_timestamp=after)) == tuple(seen for seen in golden.rows if seen.timestamp >= after)


@pytest.mark.slow
@pytest.mark.parametrize(("golden", "suffix", "damage"), CASES)
def test_damaged_indexes_change_no_answer(tmp_path: Path, golden: Golden, suffix: str, damage: Damage) -> None:
    """All index files of one kind at once, in every partition of the brokers."""
    rng = random.Random(f"{golden.id} {suffix} {damage.__name__}")
    directory = golden.copy(tmp_path / "log-dir")
    before = {file.name: file.read_bytes() for file in index_files(directory, suffix)}
    damage(directory, suffix, rng)
    assert {file.name: file.read_bytes() for file in index_files(directory, suffix)} != before, "nothing was damaged"
    check_same_answers(golden, directory, rng)


@pytest.mark.parametrize("golden", PARTITIONS, ids=lambda golden: golden.id)
def test_no_index_at_all_changes_no_answer(tmp_path: Path, golden: Golden) -> None:
    """``.log`` files alone are a log."""
    directory = golden.copy(tmp_path / "log-dir")
    every_kind_deleted(directory, "", random.Random(0))
    for snapshot in directory.glob("*.snapshot"):
        snapshot.unlink()
    check_same_answers(golden, directory, random.Random(golden.id))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", ["g-txn-0", "g-time-0", "g-compact-txn-0", "g-many-entries-0", "o-v1-gzip-0", "o-v2-compact-0"])
def test_indexes_mixed_at_random_change_no_answer(tmp_path: Path, name: str, seed: int) -> None:
    """Each index file gets a damage of its own, so that good and bad ones stand beside each other."""
    rng = random.Random(f"{name} {seed}")
    golden = named(name)[0]
    directory = golden.copy(tmp_path / "log-dir")
    for suffix in SUFFIXES:
        for file in index_files(directory, suffix):
            if rng.random() < 0.5:
                continue
            alone = tmp_path / "alone"
            alone.mkdir()
            for one in (file, file.with_suffix(".log")):
                one.rename(alone / one.name)
            rng.choice(DAMAGES)(alone, suffix, rng)
            for one in alone.iterdir():
                one.rename(directory / one.name)
            alone.rmdir()
    check_same_answers(golden, directory, rng)


def test_offset_entries_that_lie_plausibly_are_not_believed(tmp_path: Path) -> None:
    """Entries at real batch starts, in order, but for the wrong offsets: each would skip records if it were followed."""
    golden = named("g-many-entries-0")[0]
    directory = golden.copy(tmp_path / "log-dir")
    [index] = index_files(directory, ".index")
    entries = list(struct.iter_unpack(">ii", index.read_bytes()))
    for shift in (1, 40):
        later = entries[shift:] + [entries[-1]] * shift
        index.write_bytes(b"".join(struct.pack(">ii", mine[0], other[1]) for mine, other in zip(entries, later, strict=True)))
        check_same_answers(golden, directory, random.Random(shift))


@pytest.mark.parametrize(
    "lie", ["offsets of later entries", "offsets of the next entry, the last one right", "times of earlier entries"]
)
def test_time_entries_that_lie_plausibly_are_not_believed(tmp_path: Path, lie: str) -> None:
    """The offset index is sound, so nothing else saves a look-up that follows such an entry."""
    golden = named("g-many-entries-0")[0]
    directory = golden.copy(tmp_path / "log-dir")
    [index] = index_files(directory, ".timeindex")
    pairs = list(struct.iter_unpack(">qi", index.read_bytes()))
    if lie == "offsets of later entries":
        lying = [(mine[0], other[1]) for mine, other in zip(pairs, pairs[40:] + [pairs[-1]] * 40, strict=True)]
    elif lie == "times of earlier entries":
        lying = [(other[0], mine[1]) for mine, other in zip(pairs[40:], pairs[:-40], strict=True)]
    else:
        lying = [(mine[0], other[1]) for mine, other in itertools.pairwise(pairs[:-1])] + [pairs[-1]]
    index.write_bytes(b"".join(struct.pack(">qi", *pair) for pair in lying))
    check_same_answers(golden, directory, random.Random(lie))
