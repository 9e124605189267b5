"""The mark of a clean stop behind a recovery: by its broker epoch a broker stays in the ISR (KIP-966), and may lead with what it has left."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from golden import CLEAN_LOG_DIRS, DATA, named
from pages import MODULE
from small_disk import PAGE, run_there, small_disk
from test_lost_end import LAST, NAME

from offsetlog import Log, RecoveryReport, recover

MARK = ".kafka_cleanshutdown"
# One with a line of its log start offset, which no append moves.
PREFIX = "g-deleted-prefix-0"
END = named(PREFIX)[0].end


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CLEAN_LOG_DIRS[0], tmp_path / "logs"))


def told(report: RecoveryReport, words: str) -> int:
    return sum(words in text for text in report.warnings)


def damage(log_dir: Path, how: str) -> None:
    path = log_dir / NAME / f"{LAST:020}.log"
    if how == "all":
        for file in (log_dir / NAME).iterdir():
            file.unlink()
        return
    if how == "segment":
        for file in (log_dir / NAME).glob(f"{LAST:020}.*"):
            file.unlink()
        return
    data = bytearray(path.read_bytes())
    if how == "batch":
        data[-3] ^= 1
    elif how == "torn":
        data += data[:40]
    path.write_bytes(data)


@pytest.mark.parametrize(("how", "is_back"), [("all", False), ("segment", False), ("batch", False), ("torn", True), ("nothing", True)])
def test_the_mark_comes_back_only_if_nothing_was_lost(how: str, is_back: bool, log_dir: Path) -> None:
    damage(log_dir, how)
    dry = recover(log_dir / NAME, dry_run=True)
    assert (log_dir / MARK).exists()
    report = recover(log_dir / NAME)
    assert (log_dir / MARK).exists() == is_back
    assert not list(log_dir.glob("offsetlog-unclean"))
    for each in (dry, report):
        told = [text for text in each.warnings if "the mark of a clean stop is not put back" in text]
        assert len(told) == (not is_back)
        assert all(f"they cut theirs to offset {report.log_end_offset}" in text for text in told)


def test_opening_to_write_leaves_it_as_it_was_and_tells(log_dir: Path) -> None:
    """It cuts nothing here: who left the log so, and the mark, is not known."""
    damage(log_dir, "segment")
    with Log.open(log_dir / NAME, "a", single_replica=True) as log:
        assert any("high watermark" in text for text in log.recovery_report.warnings)
        log.append(b"value")
    assert (log_dir / MARK).exists()


def test_where_there_was_none_nothing_is_told(tmp_path: Path) -> None:
    log_dir = Path(shutil.copytree(DATA / "kafka-4.3.0" / "unclean" / "log-dir-1", tmp_path / "logs"))
    partition = next(each for each in log_dir.iterdir() if each.name.startswith("g-") and list(each.glob("*.log")))
    report = recover(partition)
    assert not [text for text in report.warnings if "mark of a clean stop" in text]
    assert not (log_dir / MARK).exists()


@pytest.mark.parametrize(("last", "is_told"), [("a broker", True), ("we", True), ("we, killed", False)])
def test_who_noted_the_start_of_a_log_may_not_be_the_last_who_had_it(last: str, is_told: bool, log_dir: Path) -> None:
    partition = log_dir / PREFIX
    before = {file.name for file in partition.iterdir()}

    def grown() -> int:
        with Log.open(partition, "a", single_replica=True) as log:
            log.append(b"value")
            return log.log_end_offset

    end = grown()
    state = (partition / ".offsetlog.state").read_text(encoding="utf-8")
    if last == "a broker":
        # The log and the checkpoints go on, and our state file stays as it was.
        end = grown()
        (partition / ".offsetlog.state").write_text(state, encoding="utf-8")
    elif last == "we, killed":
        left = [line for line in state.splitlines() if not line.startswith("clean:")]
        (partition / ".offsetlog.state").write_text("\n".join([*left, f"boot: {1:032x}", ""]), encoding="utf-8")
    assert f"g-deleted-prefix 0 {end}" in (log_dir / "replication-offset-checkpoint").read_text(encoding="utf-8").splitlines()
    assert (log_dir / MARK).exists()
    # What was appended is in segments of its own.
    for file in partition.iterdir():
        if file.name not in before and file.suffix in {".log", ".index", ".timeindex"}:
            file.unlink()
    dry = recover(partition, dry_run=True)
    report = recover(partition)
    assert (log_dir / MARK).exists() == (not is_told)
    for each in (dry, report):
        assert each.log_end_offset == END
        assert len([text for text in each.warnings if f"the high watermark of its log dir is {end}" in text]) == is_told
        assert len([text for text in each.warnings if "the mark of a clean stop is not put back" in text]) == is_told


@pytest.mark.parametrize("has_lines", [True, False])
def test_who_goes_on_behind_a_cut_hears_of_it_again(log_dir: Path, *, has_lines: bool) -> None:
    """As a recovery leaves it that is killed behind the cut: the mark is gone, the bytes too, and the checkpoints are as before."""
    file = log_dir / NAME / f"{LAST:020}.log"
    data = bytearray(file.read_bytes())
    data[70] ^= 1
    file.write_bytes(data)
    if not has_lines:
        (log_dir / "replication-offset-checkpoint").unlink()
    whole = Path(shutil.copytree(log_dir, log_dir.parent / "whole"))
    first = recover(whole / NAME)
    assert told(first, "the mark of a clean stop is not put back") == 1
    assert told(first, "earlier recoveries") == 0
    assert first.records_cut > 0
    shutil.copytree(whole / NAME / "offsetlog-cut", file.parent / "offsetlog-cut")
    file.write_bytes((whole / NAME / file.name).read_bytes())
    (log_dir / MARK).unlink()
    for dry_run in (True, False):
        second = recover(log_dir / NAME, dry_run=dry_run)
        assert second.log_end_offset == first.log_end_offset
        assert told(second, "the log dir has no mark of a clean stop, and must not get one") == 1
        assert told(second, f"they cut theirs to offset {first.log_end_offset}") == 1
        assert told(second, f"earlier recoveries cut {first.records_cut} records at offsets ") == 1
    assert not (log_dir / MARK).exists()


def recover_without_room(folder: str, *, fails: bool) -> None:
    """Tidying makes room for what comes later, or not."""
    with small_disk(Path(folder)) as disk:
        log_dir = Path(shutil.copytree(CLEAN_LOG_DIRS[0], Path(folder) / "logs"))
        (log_dir / NAME / f"{0:020}.log.deleted").write_bytes(bytes(0 if fails else 16 * PAGE))
        disk.leave(0)
        if fails:
            with pytest.raises(OSError, match="No space left") as caught:
                recover(log_dir / NAME)
            assert any("the log dir has lost its mark of a clean stop" in note for note in caught.value.__notes__)
            # The command too.
            disk.leave()
            shutil.rmtree(log_dir)
            shutil.copytree(CLEAN_LOG_DIRS[0], log_dir)
            (log_dir / NAME / f"{0:020}.log.deleted").write_bytes(b"")
            disk.leave(0)
            done = subprocess.run([*MODULE, "recover", str(log_dir / NAME)], capture_output=True, text=True, check=False)
            assert done.returncode == 2, done.stdout
            assert "the log dir has lost its mark of a clean stop" in done.stderr
        else:
            report = recover(log_dir / NAME)
            assert report.tidied
            assert told(report, "there was no room in the log dir to note that this recovery had begun") == 1, report.warnings
            assert told(report, "the mark of a clean stop is not put back") == 1
        assert not (log_dir / MARK).exists()


def recover_without_room_and_fail(folder: str) -> None:
    recover_without_room(folder, fails=True)


def recover_without_room_and_go_on(folder: str) -> None:
    recover_without_room(folder, fails=False)


@pytest.mark.parametrize("how", [recover_without_room_and_fail, recover_without_room_and_go_on])
def test_a_mark_that_is_lost_for_want_of_room_is_told(how: Callable[[str], None], tmp_path: Path) -> None:
    run_there(__name__, how.__name__, tmp_path / "small")


def recover_with_room_for_a_part(folder: str) -> None:
    with small_disk(Path(folder)) as disk:
        path = Path(folder) / "orders-0"
        with Log.open(path, "a") as log:
            for _ in range(30):
                log.append(bytes(4 * PAGE))
        (segment,) = path.glob("*.log")
        with segment.open("r+b") as file:
            file.seek(5 * PAGE)
            file.write(b"\1")
        whole = recover(path, dry_run=True).records_cut
        assert whole > 20
        disk.leave(20 * 4 + 2)
        with pytest.raises(OSError, match="No space left"):
            recover(path)
        # What the first call could keep before there was no room left.
        (part,) = (path / "offsetlog-cut").iterdir()
        assert PAGE < part.stat().st_size < segment.stat().st_size
        disk.leave()
        second = recover(path)
        assert (second.records_cut, told(second, "earlier recoveries cut")) == (whole, 0), second.warnings
        third = recover(path)
        assert (third.records_cut, told(third, f"earlier recoveries cut {whole} records")) == (0, 1), third.warnings


def test_a_part_of_what_was_to_be_kept_is_not_counted_beside_the_whole(tmp_path: Path) -> None:
    run_there(__name__, recover_with_room_for_a_part.__name__, tmp_path / "small")
