"""Row 18. Workers that are killed in a task, tasks that are tried again, workers that are used again or not: the rows are those of a plain read.

A session of its own for each kind, in a process of its own: how often a task may fail, and whether workers live on, is decided once.
(Spark starts no speculative copy of a task on the host that runs it already; the same ranges read by two tasks at once stand in for it.)
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden import CLEAN_LOG_DIRS
from programs import last_line
from rows import row

PROGRAM = """
import json, os, signal, sys, threading, time
from pathlib import Path
from programs import session
from pyspark.sql.types import LongType, StructField, StructType
from offsetlog import LogDir
path, folder, reuse = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
settings = {"spark.python.worker.reuse": reuse, "spark.speculation": "true"}
spark = session("workers", folder / "warehouse", settings, master="local[2,4]")

def plain():
    found = []
    with LogDir.open(path) as log_dir:
        for partition in [found for found in log_dir.partitions() if found.topic in {"g-plain", "g-time", "g-many-entries"}]:
            with log_dir.log(partition.topic, partition.partition) as log:
                found += [(partition.topic, partition.partition, r.offset, r.value) for r in log.scan()]
    return sorted(found)
wanted = plain()
assert len(wanted) > 400, len(wanted)

def frame(**options):
    return spark.read.format("offsetlog").options(subscribe="g-plain,g-time,g-many-entries", **options).load(path).select("topic", "partition", "offset", "value")

def rows(frame):
    return sorted((r["topic"], r["partition"], r["offset"], None if r["value"] is None else bytes(r["value"])) for r in frame.toArrow().to_pylist())

def parent_of(pid):
    return int(Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[1])

def is_ours(pid):
    # Other sessions on this machine have workers, too.
    while pid > 1 and pid != os.getpid():
        pid = parent_of(pid)
    return pid > 1

def workers():
    # Of tasks: what plans a query has a daemon of its own, and is not tried again.
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if b"pyspark.daemon\\0pyspark.worker" not in Path("/proc", name, "cmdline").read_bytes() or not is_ours(int(name)): continue
                files = [os.readlink(f"/proc/{name}/fd/{number}") for number in os.listdir(f"/proc/{name}/fd")]
                found[int(name)] = (parent_of(name), files)
            except OSError: continue
    # Not the daemon itself.
    return {pid: files for pid, (parent, files) in found.items() if parent in found}

done = []
def job(name, ok):
    assert ok, name
    done.append(name)

few = {"maxRecordsPerPartition": "100"}
found = rows(frame())
missing, more = set(wanted) - set(found), set(found) - set(wanted)
assert not missing and not more, ({row[:2] for row in missing}, {row[:2] for row in more})
job("plain", found == wanted)

# The task's worker is killed in the middle of its rows, the first time.
marks = str(folder)
def dies_once(batches):
    for number, batch in enumerate(batches):
        try:
            os.close(os.open(marks + "/killed", os.O_CREAT | os.O_EXCL))
        except FileExistsError: pass
        else: os.kill(os.getpid(), signal.SIGKILL)
        yield batch
killed = frame(**few)
job("a worker kills itself", rows(killed.mapInArrow(dies_once, killed.schema)) == wanted)
assert (folder / "killed").exists()

# A task fails in Python and is tried again.
def fails_once(batches):
    for batch in batches:
        try:
            os.close(os.open(marks + "/failed", os.O_CREAT | os.O_EXCL))
        except FileExistsError: pass
        else: raise OSError("the first attempt")
        yield batch
job("a task fails", rows(killed.mapInArrow(fails_once, killed.schema)) == wanted)
assert (folder / "failed").exists()

if reuse == "false":
    # A process for each task takes long; what follows is about workers that live on.
    spark.stop()
    print(json.dumps(done))
    sys.exit()

# Workers are killed from outside while they read.
stop = threading.Event()
shot = []
def shoots():
    while not stop.wait(0.02) and len(shot) < 2:
        for pid in list(workers())[:1]:
            try: os.kill(pid, signal.SIGKILL)
            except ProcessLookupError: continue
            shot.append(pid)
            time.sleep(0.3)
shooter = threading.Thread(target=shoots)
shooter.start()
# What was read while nothing was shot proves nothing: again until somebody was.
while not shot:
    assert rows(frame(**few)) == wanted
    time.sleep(0.05)
stop.set()
shooter.join()
job("workers are shot", rows(frame(**few)) == wanted)

# Two tasks on each range at the same time, as a speculative copy would be.
twice = rows(frame(**few).union(frame(**few)))
job("each range twice at once", twice == sorted(wanted * 2))

# Workers keep the logs that they read last: as many as the partitions, not as many as the tasks.
many = frame(maxRecordsPerPartition="10")
count = many.rdd.getNumPartitions()
assert count >= 50, count
counts = []
# Until each worker has read them all: which one gets a task is Spark's choice. One file for each task would be no end of them.
while len(counts) < 3 or (counts[-1] > counts[-2] + 2 and len(counts) < 12):
    assert rows(many) == wanted
    time.sleep(0.2)
    counts.append(max((len(files) for files in workers().values()), default=0))
assert counts[-1] <= counts[-2] + 2 and 0 < counts[-1] < 200, counts
job("fifty tasks", True)
spark.stop()
print(json.dumps(done))
"""


@pytest.mark.parametrize("reuse", ["true", "false"])
def test_workers_that_die(tmp_path: Path, reuse: str) -> None:
    with row(18, f"Spark, worker reuse {reuse}", "jobs", 6 if reuse == "true" else 3, fixed=True) as part:
        said = last_line(PROGRAM, CLEAN_LOG_DIRS[0], tmp_path, reuse, folder=tmp_path)
        part.count(len(json.loads(said)))
