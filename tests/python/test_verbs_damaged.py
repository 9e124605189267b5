"""What ``docs/verbs.md`` says of damaged directories is tried: each verb that changes files is called on every kind of damage.

Whether it works or refuses is in the table here. Whatever it does, it loses no record that it would not have taken away from a sound
directory, and adds none that it would not have added there; what a refusal names is left as it is.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest
from stored_records import of_partition
from test_verbs_again import CHANGING, bytes_of, copy_of
from verb_calls import CALLS, STRAY, made, shell
from verbs_page import Row
from writing import CONFIG, CUT, STATE

from offsetlog import LogDir, OffsetLogError, RestoreReport, Server, TopicPartition, WritableLog, WritableLogDir, mirror, recover

Records: TypeAlias = Counter[tuple[str, int, bytes | None]]
GARBAGE = b"\xffgarbage\n" * 9


class Damage(NamedTuple):
    """Something that is wrong in a partition."""

    file: str
    """The name of the file, or its suffix, of the second segment."""
    harm: Callable[[Path], object]


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    # Inside the first batch, behind its header.
    data[100] ^= 1
    path.write_bytes(data)


def _folder(path: Path) -> None:
    """As root, too, nobody reads it."""
    path.unlink()
    path.mkdir()


def _write(path: Path) -> None:
    path.write_bytes(GARBAGE)


DAMAGES = {
    "a flipped bit in a closed segment": Damage(".log", _flip),
    "a closed segment that is cut": Damage(".log", lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])),
    "a segment that cannot be read": Damage(".log", _folder),
    "garbage in an index": Damage(".index", _write),
    "garbage in a time index": Damage(".timeindex", _write),
    "garbage in the leader epochs": Damage("leader-epoch-checkpoint", _write),
    "garbage in the topic's id": Damage("partition.metadata", _write),
    "garbage in our state": Damage(STATE, _write),
    "garbage in our settings": Damage(CONFIG, _write),
    "garbage in the recovery points": Damage("../recovery-point-offset-checkpoint", _write),
}
FLIPPED, CUT_SHORT, UNREADABLE, _, _, EPOCHS, ID, _, SETTINGS, _ = DAMAGES
# A clean end says that closed segments are sound: opening looks for damage in none, as a broker.
OPENING = {UNREADABLE, EPOCHS, ID, SETTINGS}
# What a cell says -> what is refused. All else is done.
SAID: dict[str, set[str]] = {
    "*opening mends*": OPENING,
    "opening has mended or refused": OPENING,
    "as each partition is opened": set(),
    "not looked at": set(),
    "that is what it is for: *opening mends*; one that fails does not keep the others": {UNREADABLE, SETTINGS},
    "refused, with nothing changed; half a batch at the end is cut: *opening mends*": {
        FLIPPED,
        CUT_SHORT,
        UNREADABLE,
        EPOCHS,
        SETTINGS,
    },
    "that is what it is for: reads on behind damage and lists what is lost; exit code 3": {UNREADABLE},
    "of the sources: reads on behind damage and lists what is lost; exit code 3": {UNREADABLE},
    "what a copy has lost at its end is cut as on opening (*opening mends*) and fetched again; of the source the copy ends before damage, "
    "which the report says": {FLIPPED, CUT_SHORT, UNREADABLE},
    "refused, and nothing is made": {FLIPPED, CUT_SHORT, UNREADABLE, SETTINGS},
    "of the source an error": OPENING,
    "an error where the segment that is cut is damaged, which may come behind the cut; opened again, *opening mends*": OPENING
    | {FLIPPED, CUT_SHORT},
    "what would be compacted is left as it is and named; retention deletes up to a segment whose times damage hides, and names it; *named damage*": OPENING
    | {CUT_SHORT},
    "the segment is left as it is, with an error": OPENING | {FLIPPED, CUT_SHORT},
    "works on damaged ones too": set(),
    "removed as well": set(),
    "a note that cannot be read is an error": set(),
}
KINDS = {
    verb: SAID[row.cells["damaged directory"]] for row in CHANGING for verb in row.verbs if row.cells["damaged directory"] in SAID
}
# These open no partition that is not used, and that one cuts all.
KINDS |= {"LogDir.flush": set(), "LogDir.close": set(), "Log.truncate_fully_and_start_at": OPENING}
PARTITIONS = {
    **dict.fromkeys(("Log.maintain", "LogDir.maintain", "offsetlog maintain"), "logs/old-0"),
    **dict.fromkeys(("Log.append_marker", "end_transaction", "offsetlog end-transaction"), "logs/txn-0"),
    **dict.fromkeys(("recover", "offsetlog recover", "salvage", "offsetlog salvage"), "logs/torn-0"),
    **dict.fromkeys(("adopt", "offsetlog adopt"), f"broker/{STRAY}"),
    "Log.compact": "logs/keys-0",
}


PATIENCE = (2, 8, 32)
"""Seconds after which a mirror gives up, and again where that was before it knew the topic."""


def _mirrored(root: Path) -> object:
    """What the source cannot read is asked for again until the mirror gives up."""
    with Server(root / "logs") as kafka:
        for patience in PATIENCE:
            report = mirror(kafka.bootstrap_servers, root / "mirror", topics="t", once=True, give_up_ms=1000 * patience)
            if report.partitions:
                break
    return report


def _mirrored_by_shell(root: Path) -> object:
    with Server(root / "logs") as kafka:
        for patience in PATIENCE:
            words = ["--bootstrap", kafka.bootstrap_servers, "--into", "mirror", "--once", "--give-up", str(patience), "-t", "t"]
            done = shell("mirror", *words)(root)
            if "t-0" in done.stdout + done.stderr:
                break
    return done


INSTEAD = {
    verb: [CALLS[verb][0]._replace(call=call)] for verb, call in (("mirror", _mirrored), ("offsetlog mirror", _mirrored_by_shell))
}
# A program is started for each call of the command, which does the same: the kinds that differ most are enough.
OF_COMMAND = (FLIPPED, UNREADABLE, EPOCHS)


def of_damage(partition: Path, damage: Damage) -> Path:
    """The file that is damaged."""
    if not damage.file.startswith(".") or damage.file in {STATE, CONFIG} or damage.file.startswith(".."):
        return partition / damage.file
    return sorted(partition.glob("*.log"))[1].with_suffix(damage.file)


def records(root: Path) -> Records:
    """All that have a right checksum, by partition and offset; what is set aside or is to be deleted is gone."""
    found: Records = Counter()
    for path in {path.parent for path in root.rglob("*.log")}:
        if "-delete" not in str(path) and "offsetlog-staging" not in path.parts:
            name = str(path.relative_to(root)).replace(STRAY, "g-plain-0")
            found.update((name, record.offset, record.value) for record in of_partition(path))
    return found


def failure(call: Callable[[], object]) -> str:
    """What it raises, or what it says it could not do."""
    try:
        done = call()
    except (OffsetLogError, OSError) as error:
        return f"{error}"
    if isinstance(done, (WritableLog, WritableLogDir)):
        done.close()
    if isinstance(done, subprocess.CompletedProcess):
        return "" if done.returncode in {0, 3} else f"exit code {done.returncode}: {done.stderr}"
    reasons = [str(reason) for reason in getattr(done, "failed", {}).values()]
    parts = done.partitions if isinstance(done, RestoreReport) else ()
    reasons += [str(each.reason) for each in parts if each.state != "restored"]
    if getattr(done, "is_complete", True) is False:
        reasons.append(repr(done))
    return "; ".join(reasons)


def called(verb: str, root: Path) -> str:
    """The first way to call it; opening is part of it, as it may be what refuses."""

    def call() -> object:
        (tried, *_) = (CALLS | INSTEAD)[verb]
        opened = ExitStack()
        handle = opened.enter_context(tried.opens(root))
        try:
            return tried.call(handle)
        finally:
            # One that has failed says so again.
            with suppress(OffsetLogError):
                opened.close()

    return failure(call)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = made(tmp_path_factory.mktemp("damaged"))
    # What `recover` and `salvage` are tried on is damaged by each test itself.
    path = root / "logs/torn-0" / f"{2:020}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    return root


@pytest.fixture(scope="module")
def sound(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Records, Records]]:
    """What a verb takes away from sound directories, and what it adds to them."""
    known: dict[str, tuple[Path, Records, Records]] = {}

    def of(verb: str) -> tuple[Path, Records, Records]:
        if verb not in known:
            root = copy_of(whole, tmp_path_factory.mktemp("sound") / "root")
            before = records(root)
            assert not called(verb, root)
            after = records(root)
            known[verb] = whole, Counter(before - after), Counter(after - before)
        return known[verb]

    return of


@pytest.mark.parametrize("row", [pytest.param(row, id=row.calls[0]) for row in CHANGING])
def test_every_row_is_tried(row: Row) -> None:
    told = row.cells["damaged directory"]
    assert told in SAID, f"nothing here tries a damaged directory of which is said {told!r}: say how"
    assert set(row.verbs) <= set(CALLS)


def tries() -> Iterator[object]:
    for verb in CALLS:
        for damage in OF_COMMAND if verb.startswith("offsetlog ") else DAMAGES:
            yield pytest.param(verb, damage, id=f"{verb}-{damage}")


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "damage"), list(tries()))
def test_what_is_done_with_damage(
    verb: str, damage: str, sound: Callable[[str], tuple[Path, Records, Records]], tmp_path: Path
) -> None:
    whole, takes, adds = sound(verb)
    root = copy_of(whole, tmp_path / "root")
    partition = root / PARTITIONS.get(verb, "logs/t-0")
    file = of_damage(partition, DAMAGES[damage])
    DAMAGES[damage].harm(file)
    before, bytes_before = records(root), bytes_of(root)
    said = called(verb, root)
    is_refused = damage in KINDS[verb]
    assert bool(said) == is_refused, said or "done"
    after, bytes_after = records(root), bytes_of(root)
    lost, new = before - after, after - before
    if verb in {"recover", "offsetlog recover"}:
        # What is cut is kept.
        kept = b"".join(path.read_bytes() for path in root.glob(f"logs/torn-0/{CUT}/*"))
        lost = Counter({record: count for record, count in lost.items() if record[2] is None or record[2] not in kept})
    assert not lost - takes, "lost"
    assert not new - adds, "invented, or there twice"
    assert max(after.values()) == 1
    if is_refused:
        assert partition.name in said or file.name in said or "topic='t', partition=0" in said, said
        name = str(partition.relative_to(root))
        changed = {
            path
            for path in {*bytes_before, *bytes_after}
            if path.startswith(name)
            and path.endswith((".log", "checkpoint", ".metadata", CONFIG))
            and bytes_before.get(path) != bytes_after.get(path)
        }
        # These go segment by segment, and may have begun.
        assert not changed or verb.endswith("maintain") or verb == "Log.truncate_to", changed


@pytest.mark.parametrize("damage", [UNREADABLE, EPOCHS, SETTINGS])
def test_other_partitions_are_done(damage: str, whole: Path, tmp_path: Path) -> None:
    root = copy_of(whole, tmp_path / "root")
    partition = root / "logs/old-0"
    DAMAGES[damage].harm(of_damage(partition, DAMAGES[damage]))
    with LogDir.open(root / "logs", "a") as log_dir:
        report = log_dir.maintain()
    old, keys = TopicPartition("old", 0), TopicPartition("keys", 0)
    assert set(report.failed) == {old}
    # Of six records with one key in closed segments the last is kept.
    assert keys in report.partitions
    assert [record.offset for record in of_partition(root / "logs/keys-0")] == [5]
    done = shell("verify", "logs")(root)
    assert "old-0" in done.stdout + done.stderr
    assert recover(root / "logs/t-0").log_end_offset == 7
