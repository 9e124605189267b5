"""What ``docs/verbs.md`` says of the verbs that change files is tried beside a running broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest
from test_no_trace import traces
from test_verbs_again import CHANGING, bytes_of, copy_of
from verb_calls import CALLS, PLAIN_ID, STRAY, Call, made, shell
from verbs_page import Row
from writing import HOLD, running

import offsetlog
from offsetlog import LogDirError, LogLockedError, Server

BROKER_LOCK = ".lock"

# What a cell says of a running broker -> what shows it.
BESIDE = {
    "refused: *one writer*": {"refused"},
    "none is there: *one writer*": {"refused"},
    "refused: *one writer*; a dry run is not": {"refused", "dry run"},
    # `test_convert_meanwhile.py` truncates.
    "for the old one fine, but if it is truncated meanwhile nothing is made; in its log dir refused: *one writer*": {
        "refused",
        "reads",
    },
    "for the sources fine; on the target's log dirs refused: *one writer*": {"refused", "reads"},
    "made for a running source; a broker's log dir as DIR is refused, whether it runs or not, with nothing changed": {
        "reads",
        "never",
    },
    "may start now": {"starts"},
    "works: a broker does not use notes": {"notes"},
}
Tried: TypeAlias = Callable[[Path], object]


def mirrored(into: str) -> Tried:
    def call(root: Path) -> object:
        with Server(root / "logs") as kafka:
            return offsetlog.mirror(kafka.bootstrap_servers, root / into, topics="t", once=True)

    return call


def mirrored_by_shell(into: str) -> Tried:
    def call(root: Path) -> object:
        with Server(root / "logs") as kafka:
            return shell("mirror", "--bootstrap", kafka.bootstrap_servers, "--into", into, "--once", "-t", "t")(root)

    return call


# Verbs that read one log dir and write another one, here that of a broker.
INTO_A_BROKERS: dict[str, Tried] = {
    "salvage": lambda root: offsetlog.salvage(root / "logs/torn-0", root / "broker/torn-0"),
    "offsetlog salvage": shell("salvage", "logs/torn-0", "--into", "broker"),
    "convert": lambda root: offsetlog.convert(root / "logs/t-0", root / "broker/new-0"),
    "offsetlog convert": shell("convert", "logs/t-0", "broker/new-0"),
    "restore": lambda root: offsetlog.restore(root / "logs/t-0", root / "broker"),
    "offsetlog restore": shell("restore", "logs/t-0", "--into", "broker"),
    "mirror": mirrored("broker"),
    "offsetlog mirror": mirrored_by_shell("broker"),
}
DRY: dict[str, Tried] = {
    "recover": lambda root: offsetlog.recover(root / "logs/torn-0", dry_run=True),
    "offsetlog recover": shell("recover", "--dry-run", "logs/torn-0"),
    "adopt": lambda root: offsetlog.adopt(root / "broker" / STRAY, topic_id=PLAIN_ID, dry_run=True),
    "offsetlog adopt": shell("adopt", "--dry-run", f"broker/{STRAY}", "--topic-id", PLAIN_ID),
}
# Of the others the first call works in a log dir.
CALLED_IN_A_LOG_DIR: dict[str, Call] = {verb: calls[0] for verb, calls in CALLS.items() if verb not in INTO_A_BROKERS}


def kinds() -> Iterator[tuple[str, str]]:
    for row in CHANGING:
        for verb in row.verbs:
            yield from ((verb, kind) for kind in sorted(BESIDE.get(row.cells["running broker"], ())))


def of_kind(kind: str) -> list[str]:
    return [verb for verb, each in kinds() if each == kind]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that verbs are called on, in log dirs with the lock file that a broker leaves behind."""
    root = made(tmp_path_factory.mktemp("whole"))
    for name in ("logs", "broker"):
        (root / name / BROKER_LOCK).touch()
    return root


@contextmanager
def broker(root: Path) -> Iterator[int]:
    """Another process holds what a running broker holds; gives its number."""
    with running(HOLD, *(root / name / BROKER_LOCK for name in ("logs", "broker"))) as process:
        yield process.pid


@pytest.fixture(scope="module")
def busy(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """For verbs that are refused: none of them changes it."""
    root = copy_of(whole, tmp_path_factory.mktemp("busy") / "root")
    with broker(root) as pid:
        yield root, pid


def check_locked(call: Callable[[], object], pid: int) -> None:
    """Refused, with the process that holds the lock."""
    try:
        done = call()
    except LogLockedError as error:
        done = error
    if isinstance(done, LogLockedError):
        assert done.pid == pid, done
        return
    assert isinstance(done, subprocess.CompletedProcess), f"not refused: {done!r}"
    assert done.returncode == 2, (done.args, done.stdout, done.stderr)
    assert f"process {pid}" in done.stderr, done.stderr


@pytest.mark.parametrize("row", [pytest.param(row, id=row.calls[0]) for row in CHANGING])
def test_every_row_is_tried(row: Row) -> None:
    told = row.cells["running broker"]
    assert told in BESIDE, f"nothing here tries a running broker of which is said {told!r}: say how"
    for verb in row.verbs:
        assert verb in CALLS, f"nothing here calls {verb}: say how"


@pytest.mark.parametrize("verb", of_kind("refused"))
def test_beside_a_running_broker_it_is_refused_before_anything_changed(verb: str, busy: tuple[Path, int]) -> None:
    root, pid = busy

    def call() -> object:
        if verb in INTO_A_BROKERS:
            return INTO_A_BROKERS[verb](root)
        tried = CALLED_IN_A_LOG_DIR[verb]
        with tried.opens(root) as handle:
            return tried.call(handle)

    before = traces(root)
    check_locked(call, pid)
    assert traces(root) == before


@pytest.mark.parametrize("verb", of_kind("dry run"))
def test_a_dry_run_is_not_refused_beside_a_running_broker(verb: str, busy: tuple[Path, int]) -> None:
    root, _ = busy
    before = traces(root)
    done = DRY[verb](root)
    assert traces(root) == before
    assert not isinstance(done, subprocess.CompletedProcess) or done.returncode in {0, 3}, done.stderr


@pytest.mark.parametrize("verb", of_kind("reads"))
def test_a_running_brokers_directory_is_read_and_copied_elsewhere(verb: str, whole: Path, tmp_path: Path) -> None:
    root = copy_of(whole, tmp_path / "root")
    with broker(root):
        before = traces(root / "logs")
        done = CALLS[verb][0].call(root)
        assert traces(root / "logs") == before
    assert not isinstance(done, subprocess.CompletedProcess) or done.returncode in {0, 3}, done.stderr
    assert {path.parent.name for path in root.glob("[nm]*/**/*.log")} & {"t-0", "torn-0", "new-0"}


@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize("verb", of_kind("never"))
def test_no_brokers_log_dir_becomes_a_mirror(verb: str, is_running: bool, busy: tuple[Path, int], whole: Path, tmp_path: Path) -> None:
    root = busy[0] if is_running else copy_of(whole, tmp_path / "root")
    before = traces(root)
    try:
        done = INTO_A_BROKERS[verb](root)
    except LogDirError:
        pass
    else:
        assert isinstance(done, subprocess.CompletedProcess)
        assert done.returncode == 2, done.stderr
    assert traces(root) == before


@pytest.mark.parametrize("verb", of_kind("starts"))
def test_a_broker_may_start_behind_it(verb: str, whole: Path, tmp_path: Path) -> None:
    root = copy_of(whole, tmp_path / "root")
    command = [sys.executable, "-c", HOLD, str(root / "logs" / BROKER_LOCK)]
    with CALLS[verb][0].opens(root) as handle:
        refused = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        assert "BlockingIOError" in refused.stderr
        CALLS[verb][0].call(handle)
        started = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        assert (started.returncode, started.stdout) == (0, "ready\n"), started.stderr


@pytest.mark.parametrize("verb", of_kind("notes"))
def test_a_note_is_forgotten_beside_a_running_broker(verb: str, whole: Path, tmp_path: Path) -> None:
    root = copy_of(whole, tmp_path / "root")
    (note,) = root.glob("logs/offsetlog-commit-*.json")
    with broker(root):
        before = bytes_of(root)
        done = CALLS[verb][0].call(root)
    assert not isinstance(done, subprocess.CompletedProcess) or done.returncode == 0, done.stderr
    after = bytes_of(root)
    assert before.keys() - after.keys() == {str(note.relative_to(root))}
    assert {name: after[name] for name in before if name in after} == {name: data for name, data in before.items() if name in after}
    assert all("lock" in name for name in after.keys() - before.keys())
