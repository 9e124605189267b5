"""What recovery cut off a broker's internal topics and kept: read by itself, and told as the part that it is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from frames import frames
from golden import CLEAN, CLEAN_LOG_DIRS
from test_group_states import NOW, SHARE, UNKNOWN, append, snapshot
from test_kept_files import Shell, cut_off, shell
from test_no_trace import traces

from offsetlog import CorruptionError, LogDir, LogDirError
from offsetlog._offsetlog import run_cli

# A fixture: pytest finds it by its name here.
__all__ = ["shell"]

METADATA = "__cluster_metadata-0"
WHOLE = CLEAN / "metadata-dir"
PART = f"{METADATA}: {{}} was set aside and is read by itself: what the rest of the log and its snapshots say is missing"


@pytest.fixture(scope="module")
def of_metadata(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of the cluster's metadata log: what begins with the damage, and all behind its first batch, which makes the leader known."""
    root = tmp_path_factory.mktemp("kept")
    for name in ("damaged", "sound"):
        shutil.copytree(WHOLE / METADATA, root / name / METADATA)
    (damaged,) = cut_off(root / "damaged" / METADATA, in_two=False)
    _, sound = cut_off(root / "sound" / METADATA, in_two=True)
    return damaged, sound


@pytest.fixture(autouse=True)
def as_it_was(of_metadata: tuple[Path, Path]) -> Iterator[None]:
    """No verb leaves a trace on a kept file, or beside it."""
    before = traces(of_metadata[0].parents[3])
    yield
    assert traces(of_metadata[0].parents[3]) == before


@pytest.mark.parametrize("option", [(), ("--configs",), ("--brokers",)])
def test_metadata(option: tuple[str, ...], of_metadata: tuple[Path, Path], shell: Shell) -> None:
    """All that the whole log says, as nothing but the first batch is missing; and that it is a part."""
    _, file = of_metadata
    code, lines, err = shell("metadata", file, *option)
    assert (code, lines) == (0, shell("metadata", WHOLE, *option)[1])
    assert PART.format(file.name) in err


def test_metadata_from_python(of_metadata: tuple[Path, Path], caplog: pytest.LogCaptureFixture) -> None:
    _, file = of_metadata
    with LogDir.open(file) as part, LogDir.open(WHOLE) as whole:
        found, expected = part.metadata(), whole.metadata()
        assert found is not None
        assert expected is not None
        assert (found.topics, found.brokers, found.end_offset) == (expected.topics, expected.brokers, expected.end_offset)
    assert [each.message for each in caplog.records] == [PART.format(file.name)]


def test_beside_log_dirs_it_is_no_metadata(of_metadata: tuple[Path, Path], shell: Shell) -> None:
    """It would say what was true of them once. Groups are shown as without metadata, and that it was not read is told."""
    _, file = of_metadata
    refusal = "a part of __cluster_metadata that was set aside says nothing of log dirs"
    for verb in ("transactions", "producers"):
        alone, beside = shell(verb, *CLEAN_LOG_DIRS), shell(verb, *CLEAN_LOG_DIRS, file)
        assert beside[:2] == alone[:2], verb
        assert alone[0] == 0
    (_, groups, _), (code, lines, err) = (shell("groups", *paths, "--now", NOW) for paths in (CLEAN_LOG_DIRS, (*CLEAN_LOG_DIRS, file)))
    assert (code, lines[: len(groups)], len(lines)) == (2, groups, len(groups) + 1)
    assert refusal in lines[-1]["error"]
    assert refusal in err
    assert refusal in shell("ls", *CLEAN_LOG_DIRS, file)[2]
    assert shell("metadata", *CLEAN_LOG_DIRS, file)[:2] == (2, [])
    with LogDir.open([*CLEAN_LOG_DIRS, file]) as logs:
        with pytest.raises(LogDirError, match=refusal):
            logs.metadata()
        with pytest.raises(LogDirError, match=refusal):
            logs.strays()


@pytest.mark.parametrize(
    ("verb", "code", "text"),
    [
        ("groups", 1, "no groups here"),
        ("transactions", 1, "no transactional ids here"),
        ("producers", 1, "no producer with a producer id here"),
        ("why", 1, "no such partition here"),
        ("ls", 0, "not compared with the metadata, of which a part is missing"),
        # It has no index and no leader epochs, as no kept file has.
        ("verify", 3, ""),
    ],
)
def test_other_verbs(verb: str, code: int, text: str, of_metadata: tuple[Path, Path], shell: Shell) -> None:
    _, file = of_metadata
    answer = shell(verb, file)
    assert (answer[0], text in answer[2]) == (code, True), answer
    assert "Not a directory" not in answer[2]


def test_lost_offsets_of_salvaged_metadata_are_told(shell: Shell, tmp_path: Path) -> None:
    """Two batches in the middle: the log has neither, and the metadata log is never compacted."""
    place = tmp_path / "old" / METADATA
    shutil.copytree(WHOLE / METADATA, place)
    (file,) = place.glob("*.log")
    found = list(frames(file))
    data = bytearray(file.read_bytes())
    lost = [found[5], found[30]]
    for frame in lost:
        data[frame.position + frame.size_bytes - 1] ^= 0xFF
    file.write_bytes(data)
    assert shell("salvage", place, "--into", tmp_path / "dir")[0] == 3
    first, count = lost[0].base_offset, sum(frame.last_offset - (frame.base_offset or 0) + 1 for frame in lost)
    behind = count - (lost[0].last_offset - (first or 0) + 1)
    told = f"offsets {first} to {lost[0].last_offset}, and {behind} more behind them, are"
    code, _, err = shell("metadata", tmp_path / "dir")
    assert code == 0
    assert f"{METADATA}: {told} not in the log: what was there is missing" in err
    with LogDir.open([*CLEAN_LOG_DIRS, tmp_path / "dir"]) as logs:
        assert logs.strays() is None


def test_what_begins_with_the_damage_is_salvaged_first(of_metadata: tuple[Path, Path], shell: Shell, tmp_path: Path) -> None:
    """`metadata` and `groups` read no part of a damaged log, as what follows may be newer."""
    damaged, sound = of_metadata
    code, lines, err = shell("metadata", damaged)
    assert (code, lines) == (2, [])
    assert "checksum" in err
    with LogDir.open(damaged) as logs, pytest.raises(CorruptionError, match="checksum"):
        logs.metadata()
    code, (line,), err = shell("salvage", damaged, "--into", tmp_path / "dir")
    assert (code, [(loss["first_offset"], loss["last_offset"]) for loss in line["losses"]]) == (3, [(0, 0)]), err
    code, lines, err = shell("metadata", tmp_path / "dir")
    assert (code, lines) == (0, shell("metadata", WHOLE)[1])
    # What the damage took is told: such metadata is not complete.
    assert f"{METADATA}: offset 0 is not in the log: what was there is missing" in err
    # What is refused of the file is told of the folder.
    for words in (("--directories",), ("--as-commands", "-t", "g-plain"), ("--as-yaml", "-t", "g-plain")):
        assert run_cli(["offsetlog", "metadata", *words, str(sound)], []) == 2
        assert run_cli(["offsetlog", "metadata", *words, str(tmp_path / "dir")], []) == 0


def test_share_groups(tmp_path: Path, shell: Shell) -> None:
    """Where they stood by the records in the file."""
    place = tmp_path / "logs"
    append(place, SHARE, snapshot(UNKNOWN, 0, 2))
    append(place, SHARE, snapshot(UNKNOWN, 1, 7))
    append(place, SHARE, snapshot(UNKNOWN, 2, 9))
    file = cut_off(place / f"{SHARE}-0", in_two=True)[-1]
    code, (line,), err = shell("groups", file, "--now", NOW)
    assert code == 0, err
    assert (line["group"], line["kind"]) == ("s", "share")
    assert [(each["partition"], each["start_offset"]) for each in line["share_offsets"]] == [(1, 7), (2, 9)]
