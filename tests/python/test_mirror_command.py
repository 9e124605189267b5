"""``offsetlog mirror``, the command: what it selects, prints, refuses and gives up, how much memory it takes, its exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS, named
from pages import MODULE, read

from offsetlog import Log, LogDir, Server

CODECS = {f"g-codec-{name}" for name in ("gzip", "lz4", "none", "snappy", "zstd")}

MEASURED = """
import sys
from offsetlog._offsetlog import run_cli
code = run_cli(["offsetlog", *sys.argv[1:]], [], True)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(status["VmHWM"].split()[0], file=sys.stderr)
sys.exit(code)
"""


def command(kafka: Server, into: Path, *words: str) -> list[str]:
    """Without committed offsets."""
    bootstrap = ["--bootstrap", kafka.bootstrap_servers]
    return [sys.executable, "-m", "offsetlog", "mirror", *bootstrap, "--into", str(into), "--no-groups", *words]


@pytest.mark.parametrize("is_json", [False, True])
def test_topics_and_patterns_are_selected(is_json: bool, tmp_path: Path) -> None:
    with Server(CLEAN_LOG_DIRS) as kafka:
        line = command(kafka, tmp_path / "copy", "--once", "-t", "g-plain", "--pattern", "g-codec-*", *(["--json"] * is_json))
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    with LogDir.open(tmp_path / "copy") as copy:
        assert set(copy.topics()) == {"g-plain", *CODECS}
    if is_json:
        rows = [json.loads(row) for row in done.stdout.splitlines()]
        assert {row["topic"] for row in rows if "log_end_offset" in row} == {"g-plain", *CODECS}
        assert sum(row["log_end_offset"] for row in rows if row.get("topic") == "g-plain" and "lag" in row) == 600


def test_a_running_one_tells_rate_and_lag(tmp_path: Path) -> None:
    """Until it is interrupted, which is its end."""
    with Server(CLEAN_LOG_DIRS) as kafka:
        line = command(kafka, tmp_path / "copy", "-t", "g-plain", "--json")
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            told = (json.loads(row) for row in process.stdout)
            progress = next(row for row in told if row.get("progress") and row["partitions_done"] == 3)
            assert progress["lag"] == 0
            assert progress["bytes_per_second"] >= 0
            process.send_signal(signal.SIGINT)
            whole = list(told)[-1]
            assert whole["bytes"] > 0
        assert process.returncode == 130


@pytest.mark.parametrize(("fetch", "mib_max"), [(None, 110), (1 << 20, 100)])
def test_memory_does_not_grow_with_the_topic(fetch: int | None, mib_max: int, tmp_path: Path) -> None:
    """A few responses are in it, and the interpreter."""
    payload = os.urandom(250_000)
    for number in range(4):
        with Log.open(tmp_path / "source" / f"big-{number}", "a") as log, log.writer(batch_bytes=900_000) as writer:
            for _ in range(200):
                writer.append(payload)
    with Server(tmp_path / "source") as kafka:
        line = command(kafka, tmp_path / "copy", "--once", *([] if fetch is None else ["--fetch-max-bytes", str(fetch)]))
        # Of a child the system also counts what its parent had when it forked: the process itself knows better.
        done = subprocess.run([sys.executable, "-c", MEASURED, *line[3:]], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    kib = int(done.stderr.split()[-1])
    with Log.open(tmp_path / "copy" / "big-3") as copy:
        assert copy.log_end_offset == 200
    assert kib < mib_max << 10, f"{kib >> 10} MiB for 200 MB of records"


# --- Options as a user types them.


def run(into: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """`mirror --into` with these words besides."""
    line = [*MODULE, "mirror", "--into", str(into), *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=300, stdin=subprocess.DEVNULL)


def documented_fields() -> dict[str, list[str]]:
    """The table of lines and their fields in docs/cli.md, with the kinds of events in parentheses left out."""
    section = read("docs/cli.md").partition("\n## mirror\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (`[^|]+) \|$", section, re.MULTILINE)
    return {name: re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", fields)) for name, fields in rows}


def test_json_lines_have_the_documented_fields_and_groups_go_along(tmp_path: Path) -> None:
    """Unless they are left out. Addresses may be given several times, the last one without anybody there."""
    fields = documented_fields()
    with Server([*CLEAN_LOG_DIRS, CLEAN / "metadata-dir"], topics=["g-plain"]) as kafka:
        bootstrap = ("--bootstrap", kafka.bootstrap_servers, "--bootstrap", "127.0.0.1:1", "--once", "--json")
        done = run(tmp_path / "copy", *bootstrap)
        left_out = run(tmp_path / "records", *bootstrap, "--no-groups")
    assert (done.returncode, left_out.returncode) == (0, 0), (done.stderr, left_out.stderr)
    *lines, whole = map(json.loads, done.stdout.splitlines())
    kinds = ["event" if "event" in line else "progress" if "progress" in line else "partition" for line in lines]
    assert {"event", "partition"} <= set(kinds)
    for kind, line in zip(kinds, lines, strict=True):
        assert list(line) == fields[kind]
    assert list(whole) == fields["whole"]
    (cluster_id,) = re.findall(r"cluster\.id=(\S+)", (CLEAN / "log-dir-1" / "meta.properties").read_text())
    assert (whole["cluster_id"], whole["is_complete"], whole["has_losses"]) == (cluster_id, True, False)
    ends = {
        (line["topic"], line["partition"]): (line["log_end_offset"], line["lag"])
        for kind, line in zip(kinds, lines, strict=True)
        if kind == "partition"
    }
    assert ends == {("g-plain", golden.partition): (golden.end, 0) for golden in named("g-plain-0", "g-plain-1", "g-plain-2")}
    assert whole["groups"] > 0
    assert json.loads(left_out.stdout.splitlines()[-1])["groups"] == 0
    assert (tmp_path / "copy" / "__consumer_offsets-0").is_dir()
    assert not list((tmp_path / "records").glob("__*"))


def test_a_file_of_properties_may_name_the_brokers(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    with Server(CLEAN_LOG_DIRS, topics=["g-idem"]) as kafka:
        file.write_text(f"bootstrap.servers={kafka.bootstrap_servers}\nsecurity.protocol=PLAINTEXT\n")
        done = run(tmp_path / "copy", "--config", file, "--once", "-q", "--no-groups")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"\d+ batches in .* of 2 partitions copied into .*\n", done.stdout), done.stdout


def test_what_an_exit_code_is_about_is_said_with_quiet_too(tmp_path: Path) -> None:
    """A topic of another id has the name: it is not copied, and nothing else would say why the command fails."""
    copy = tmp_path / "copy"
    with LogDir.open(copy, "a") as log_dir:
        log_dir.create_topic("g-idem", 2)
    with Server(CLEAN_LOG_DIRS, topics=["g-idem"]) as kafka:
        told = [
            subprocess.run(command(kafka, copy, "--once", *words), capture_output=True, text=True, check=False, timeout=120)
            for words in ((), ("-q",))
        ]
    assert [done.returncode for done in told] == [2, 2]
    assert all("g-idem" in done.stderr for done in told), [done.stderr for done in told]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "no broker given: --bootstrap HOST:PORT"),
        (("--bootstrap", "kafka"), "HOST:PORT"),
        (("--fetch-max-bytes", "0"), "--fetch-max-bytes"),
        (("--fetch-max-bytes", str(1 << 31)), "--fetch-max-bytes"),
        (("--refresh", "0"), "--refresh"),
        (("--give-up", "0"), "--give-up"),
        (("--give-up", "1.5"), "--give-up"),
        (("--config", "client.properties"), "group.id"),
        (("--config", "missing.properties"), "missing.properties"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_refused_before_anything_is_made(words: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    """A key of a consumer's own is refused by name, because somebody may rely on it."""
    (tmp_path / "client.properties").write_text("security.protocol=PLAINTEXT\ngroup.id=readers\n")
    given = [tmp_path / word if word.endswith(".properties") else word for word in words]
    bootstrap = [] if not words or "--bootstrap" in words else ["--bootstrap", "127.0.0.1:1"]
    done = run(tmp_path / "copy", *bootstrap, *given, "--once")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("offsetlog: ")
    assert expected in done.stderr, done.stderr
    assert not (tmp_path / "copy").exists()


def test_brokers_that_do_not_answer_are_given_up(tmp_path: Path) -> None:
    """After the time that is given, with exit code 2."""
    done = run(tmp_path / "copy", "--bootstrap", "127.0.0.1:1", "--once", "--give-up", "1")
    assert done.returncode == 2
    assert "127.0.0.1:1" in done.stderr


@pytest.mark.slow
def test_what_the_source_deletes_stays_unless_deletes_are_followed(tmp_path: Path) -> None:
    """A deleted topic that stays is exit code 3, deleted records that stay 0; `--refresh` says how soon a running mirror sees them."""
    for place in named("g-idem-0", "g-plain-0"):
        place.copy(tmp_path / "source")
    (tmp_path / "source" / "meta.properties").write_bytes((CLEAN / "log-dir-1" / "meta.properties").read_bytes())
    with Server(tmp_path / "source") as kafka:
        bootstrap = ("--bootstrap", kafka.bootstrap_servers, "--once", "--no-groups")
        for into in ("stays", "follows"):
            assert run(tmp_path / into, *bootstrap).returncode == 0
    with Log.open(tmp_path / "source" / "g-plain-0", "a") as log:
        log.delete_records_before(100)
    with Server(tmp_path / "source") as kafka:
        bootstrap = ("--bootstrap", kafka.bootstrap_servers, "--once", "--no-groups")
        codes = [run(tmp_path / "stays", *bootstrap).returncode, run(tmp_path / "follows", *bootstrap, "--follow-deletes").returncode]
    assert codes == [0, 0]
    starts = []
    for into in ("stays", "follows"):
        with LogDir.open(tmp_path / into) as copy, copy.log("g-plain", 0) as log:
            starts.append(log.log_start_offset)
    assert starts == [0, 100]
    shutil.rmtree(tmp_path / "source" / "g-idem-0")
    with Server(tmp_path / "source") as kafka:
        done = run(tmp_path / "stays", "--bootstrap", kafka.bootstrap_servers, "--once", "--no-groups")
    assert done.returncode == 3, done.stderr
    assert "g-idem" in done.stderr
    assert (tmp_path / "stays" / "g-idem-0").is_dir()
