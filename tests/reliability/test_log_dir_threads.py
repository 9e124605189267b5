"""Row 29. Many threads on one log dir, with every verb; and the same killed at random moments and opened again."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from disks import MEMORY
from log_dir_threads import OPEN_MAX, STABLE, Account, Run, check, open_files, open_partitions, opened
from restoring import formatted
from rows import ROOT, row

from offsetlog import TopicPartition

PARENT = MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else None
FEW_DESCRIPTORS = ROOT / "tests/reliability/few_descriptors.py"
WORKER = ROOT / "tests/reliability/log_dir_threads.py"


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that goes away."""
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="offsetlog-threads-", dir=PARENT) as folder:
        yield Path(folder)
    logging.disable(logging.NOTSET)


def test_threads() -> None:
    """No call fails but as documented, no record is lost or doubled, files stay bounded, and none is open in the end."""
    with row(29, "threads", "histories", 12) as part, scratch() as folder:
        for number in range(part.floor):
            account, place = Account(), folder / f"dir{number}"
            log_dir = opened(place)
            run = Run(log_dir, account, part.seed + number, 1.0, f"r{number}")
            run.all(place)
            assert not account.wrong, f"seed {part.seed + number}: {len(account.wrong)} of {account.calls} calls\n{account.wrong[0]}"
            assert run.files <= run.allowed_files
            check(log_dir, account)
            # No call runs any more and nobody has a log: the limit holds to the letter, whatever the threads have opened.
            assert len(open_partitions(place)) <= OPEN_MAX
            held = log_dir.log("s0", 0)
            log_dir.close()
            assert open_files(place) == 0
            assert held.closed
            with opened(place) as again:
                check(again, account)
            part.count()


def test_threads_and_kills() -> None:
    """Killed at any moment, and opened again and again: what was acknowledged is there once."""
    with row(29, "threads and kills", "histories", 12) as part, scratch() as folder:
        place = folder / "dir"
        place.mkdir()
        whole = Account()
        for number in range(part.floor):
            command = [sys.executable, str(WORKER), str(place), str(part.seed + number), f"k{number}"]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
                stream = process.stdout
                assert stream is not None
                assert stream.readline() == b"ready\n"
                killer = threading.Timer(part.random.uniform(0.02, 0.8), process.send_signal, [signal.SIGKILL])
                killer.start()
                text = stream.read()
            assert process.returncode == -signal.SIGKILL
            told, _, cut = text.rpartition(b"\n")
            assert not cut or b"record" not in cut or len(cut) < 200
            account = Account.heard(told.decode().splitlines())
            assert not account.wrong, f"seed {part.seed + number}: {account.wrong[0]}"
            # A deletion that was cut off may have happened: from then on nothing is owed of what was in the topic before.
            for topic in account.begun:
                before = whole.over[topic]
                whole.over[topic] = whole.begun[topic] = before + max(account.begun[topic], account.over[topic])
            whole.records += [
                record._replace(
                    deletions=-1 if account.begun[record.topic] != account.over[record.topic] else record.deletions + offset
                )
                for record in account.records
                for offset in [whole.over[record.topic] - account.over[record.topic]]
            ]
            with opened(place) as log_dir:
                check(log_dir, whole)
            part.count()


def test_descriptors_are_bounded(tmp_path: Path) -> None:
    """What looks at all partitions leaves no more open than the limit says."""
    count = 40
    with opened(tmp_path) as log_dir:
        log_dir.create_topic("many", count)
        for number in range(count):
            log_dir.append("many", b"x", partition=number)
        times = {("many", number): 0 for number in range(count)}
        scan = log_dir.scan()
        for question in (
            log_dir.end_offsets,
            log_dir.beginning_offsets,
            scan.count,
            lambda: list(scan),
            scan.to_arrow,
            lambda: log_dir.offsets_for_times(times),
            lambda: repr(scan),
            scan.explain,
            log_dir.maintain,
        ):
            question()
            assert len(open_partitions(tmp_path)) <= OPEN_MAX, question
        assert scan.count() == count
    assert open_files(tmp_path) == 0


def test_what_was_held_beyond_the_limit_is_closed(tmp_path: Path) -> None:
    """Who holds many partitions keeps them open. Afterwards a call over those that are open already closes the excess."""
    count = 40
    with opened(tmp_path) as log_dir:
        for topic in STABLE:
            log_dir.delete_topic(topic)
        log_dir.create_topic("many", count)
        for number in range(count):
            log_dir.append("many", b"x", partition=number)
        many = [TopicPartition("many", number) for number in range(count)]
        for given, _ in enumerate(log_dir.scan(many).follow(timeout_ms=20, poll_interval_ms=5), 1):
            if given == count:
                assert len(open_partitions(tmp_path)) == count
        assert log_dir.scan().count() == count
        assert len(open_partitions(tmp_path)) <= OPEN_MAX
        logs = [log_dir.log("many", number) for number in range(count)]
        assert len(open_partitions(tmp_path)) == count
        for number in [*range(OPEN_MAX)] * count:
            log_dir.append("many", b"y", partition=number)
        assert len(open_partitions(tmp_path)) == count
        del logs
        # No call for each of them: a few are enough.
        for number in range(2):
            log_dir.append("many", b"z", partition=number)
        assert len(open_partitions(tmp_path)) <= OPEN_MAX


@pytest.fixture(scope="module")
def many() -> Iterator[Path]:
    """A log dir with many more partitions than a process here may have files."""
    with scratch() as folder:
        subprocess.run([sys.executable, FEW_DESCRIPTORS, folder, "make"], check=True)
        yield folder


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["r", "a"])
def test_many_partitions_are_asked_with_few_descriptors(many: Path, mode: str) -> None:
    """Each question holds few of them at any moment: none fails, and none leaves a partition out."""
    # Mode "r" comes first: the other one changes the log dir.
    command = [sys.executable, str(FEW_DESCRIPTORS), str(many), mode]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"after {done.stdout.splitlines()[-1:]}: {done.stderr[-2000:]}"
    assert len(done.stdout.splitlines()) >= (29 if mode == "r" else 37)


@pytest.mark.slow
def test_many_partitions_are_restored_with_few_descriptors() -> None:
    """From two replicas of each, of which the plan holds none open: the best one is taken, whatever a process may have. A restore that
    descriptors ended in the middle is finished by a second call.
    """
    with scratch() as folder:
        subprocess.run([sys.executable, FEW_DESCRIPTORS, folder, "make replicas"], check=True)
        formatted(folder / "cluster")
        for mode, lines in (("restore", 4), ("restore again", 4)):
            command = [sys.executable, str(FEW_DESCRIPTORS), str(folder), mode]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
            assert done.returncode == 0, f"{mode}, after {done.stdout.splitlines()[-1:]}: {done.stderr[-2000:]}"
            assert len(done.stdout.splitlines()) == lines


def test_a_closed_log_dir_has_no_file_open(tmp_path: Path) -> None:
    """Whoever still has it, or a log of it."""
    log_dir = opened(tmp_path)
    logs = [log_dir.log("s0", number) for number in range(2)]
    for log in logs:
        log.append(b"x")
        assert len(list(log.scan())) == 1
    log_dir.close()
    assert open_files(tmp_path) == 0
    assert all(log.closed for log in logs)
    with opened(tmp_path) as log_dir:
        log = log_dir.log("s1", 0)
        log_dir.delete_topic("s1")
        assert log.closed
        log_dir.maintain()
        assert not list(tmp_path.glob("s1-*"))


def test_calls_while_it_is_closed_end_or_say_so() -> None:
    """Nothing is opened behind the end of a log dir that is being closed."""
    with scratch() as folder:
        for number in range(20):
            place, account = folder / f"dir{number}", Account()
            log_dir = opened(place)
            run = Run(log_dir, account, number, 0.2, "c")
            closer = threading.Timer(0.02 + 0.004 * number, log_dir.close)
            closer.start()
            run.all(place)
            closer.join()
            others = [wrong for wrong in account.wrong if "LogClosedError" not in wrong]
            assert not others, others[0]
            assert open_files(place) == 0
            with opened(place) as again:
                check(again, account)


@pytest.mark.parametrize("way", ["deleted", "closed"])
def test_an_append_waits_for_who_deletes_or_closes(tmp_path: Path, way: str) -> None:
    """Never a lock of this process."""
    stop = time.monotonic() + 1
    met: list[Exception] = []
    with opened(tmp_path) as log_dir:

        def others() -> None:
            while time.monotonic() < stop:
                if way == "deleted":
                    log_dir.create_topic("x", 2)
                    log_dir.delete_topic("x")
                else:
                    log_dir.log("s0", 0).close()

        def appends() -> None:
            while time.monotonic() < stop:
                try:
                    log_dir.append("x" if way == "deleted" else "s0", b"v", partition=0)
                except Exception as error:  # noqa: BLE001  # looked at below
                    met.append(error)

        threads = [threading.Thread(target=others), threading.Thread(target=appends)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {type(error).__name__ for error in met} <= ({"LogDirError"} if way == "deleted" else set()), met[:3]
