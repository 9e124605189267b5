"""Executors in processes of their own: what they must see, and what is said where one does not see it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from programs import environment, last_line
from stream_engine import append, held

from offsetlog import LogDir

PROGRAM = Path(__file__).with_name("cluster_program.py")
SPECULATION = Path(__file__).with_name("speculation_program.py")
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
SPARK_HOME = str(SPARK_CLASS.parents[1])


def program(master: str, folder: Path, reuse: str) -> dict[str, object]:
    """What a driver at this master found."""
    for number in range(2):
        append(folder / "logs", f"t-{number}", 100)
    count = sum(map(len, held(folder / "logs").values()))
    here = folder / "driver"
    here.mkdir()
    last = last_line(
        PROGRAM, master, folder / "logs", count, reuse, folder=here, SPARK_HOME=SPARK_HOME, SPARK_WORKER_DIR=str(folder / "work")
    )
    found: dict[str, object] = json.loads(last)
    return found


def check(found: dict[str, object]) -> None:
    """All records wherever the folder is; else an error that names the host and the folder, not a smaller number."""
    assert found["executors"] == 2
    assert found["batch"] == found["stream"] == found["mounted"] == found["wanted"]
    for way in ("strict", "lenient"):
        text = str(found[way])
        assert f"host {socket.gethostname()} does not see the folder of t-" in text, way
        assert "/proc/self/cwd/logs" in text, way


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A master and two workers, each a process and with an address of its own; yields the master's."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, kind: str, host: str, *arguments: str) -> Path:
        output = folder / f"{name}.txt"
        command = [str(SPARK_CLASS), f"org.apache.spark.deploy.{kind}", "--host", host, "--webui-port", "0", *arguments]
        with output.open("wb") as file:
            variables = environment(SPARK_HOME=SPARK_HOME, SPARK_LOCAL_IP=host)
            started.append(subprocess.Popen(command, stdout=file, stderr=file, env=variables, cwd=folder))
        return output

    def said(output: Path, pattern: str) -> str:
        end = time.monotonic() + 600
        while (match := re.search(pattern, output.read_text(encoding="utf-8", errors="replace"))) is None:
            assert time.monotonic() < end, output.read_text(encoding="utf-8", errors="replace")[-3000:]
            time.sleep(0.1)
        return match[0]

    try:
        master = said(start("master", "master.Master", "127.0.0.1", "--port", "0"), r"spark://127\.0\.0\.1:\d+")
        workers = [
            start(
                f"worker-{number}",
                "worker.Worker",
                # Hosts of their own: Spark runs a task's second attempt beside the first only on another one.
                f"127.0.0.{1 + number}",
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                str(folder / f"work-{number}"),
                master,
            )
            for number in range(2)
        ]
        for worker in workers:
            said(worker, "Successfully registered with master")
        yield master
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(300)


@pytest.mark.timeout(3600)
def test_a_local_cluster(tmp_path: Path) -> None:
    check(program("local-cluster[2,1,1024]", tmp_path, "true"))


@pytest.mark.timeout(3600)
def test_a_standalone_master_with_two_workers(tmp_path: Path) -> None:
    """And workers that are not used again."""
    with standalone(tmp_path) as master:
        check(program(master, tmp_path, "false"))


@pytest.mark.timeout(3600)
def test_tasks_that_fail_and_that_run_twice_write_once(tmp_path: Path) -> None:
    """An attempt that fails in the middle, one that is too slow and gets company: each row is in the topic once."""
    (tmp_path / "driver").mkdir()
    with standalone(tmp_path) as master:
        driver = tmp_path / "driver"
        found = last_line(SPECULATION, master, tmp_path / "logs", driver, folder=driver, SPARK_HOME=SPARK_HOME)
    assert json.loads(found) == {"records": 600, "failed": [1, 5, 9], "twice": [3]}
    assert sorted(values(tmp_path / "logs")) == sorted(range(600))
    with LogDir.open(tmp_path / "logs", "a") as log_dir:
        # Nothing of those that lost stands in the way of who goes on.
        log_dir.append("t", b"600")
    assert len(values(tmp_path / "logs")) == 601


def values(place: Path) -> list[int]:
    """All numbers of the topic."""
    with LogDir.open(place) as log_dir:
        return [int(record.value or b"") for number in log_dir.topics()["t"] for record in log_dir.log("t", number).scan()]
