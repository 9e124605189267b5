"""The command as a user has it: the console script and ``python -m offsetlog``, in processes of their own."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest
from pages import MODULE, ROOT, Command, Shell, blocks, commands, read

CLEAN = "tests/data/kafka-4.3.0/clean/log-dir-1"
BIG = "tests/data/kafka-4.3.0/clean/log-dir-2/g-big-0"
SCRIPT = [str(Path(sys.executable).with_name("offsetlog"))]


def offsetlog(*args: str, command: list[str] = MODULE) -> subprocess.CompletedProcess[str]:
    """Run the command in the repository, as the examples of the documentation do."""
    return subprocess.run([*command, *args], cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=False)


@pytest.mark.parametrize("command", [SCRIPT, MODULE], ids=["script", "module"])
def test_both_ways_to_call_it_are_the_same_command(command: list[str]) -> None:
    """Options, streams and exit codes come through both entry points."""
    found = offsetlog("cat", f"{CLEAN}/g-plain-0", "-o", "3", "-c", "1", "-f", r"%k %h\n", command=command)
    assert (found.returncode, found.stdout, found.stderr) == (0, "key-43 dup=1,dup=2,dup=NULL\n", "")
    nothing = offsetlog("cat", f"{CLEAN}/g-empty-0", command=command)
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (1, "", "")
    wrong = offsetlog("cat", CLEAN, "-t", "g-plian", command=command)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "offsetlog: no topic 'g-plian' here; did you mean 'g-plain'?\n"
    version = offsetlog("--version", command=command)
    assert version.returncode == 0
    assert re.fullmatch(r"offsetlog \d+\.\d+\.\d+\n", version.stdout)


def test_json_lines_are_what_the_package_reads() -> None:
    """One engine: the command prints the records that the package gives."""
    from offsetlog import Log

    lines = [json.loads(line) for line in offsetlog("cat", "-J", f"{CLEAN}/g-codec-lz4-0").stdout.splitlines()]
    with Log.open(ROOT / CLEAN / "g-codec-lz4-0") as log:
        records = list(log.scan())
    assert [line["offset"] for line in lines] == [record.offset for record in records]
    assert [line["ts"] for line in lines] == [record.timestamp for record in records]
    assert all(
        line["payload"] == record.value.decode()
        for line, record in zip(lines, records, strict=True)
        if isinstance(line["payload"], str) and record.value is not None
    )


@pytest.mark.parametrize("command", [SCRIPT, MODULE], ids=["script", "module"])
def test_a_closed_pipe_ends_it_quietly(command: list[str]) -> None:
    """``| head`` must not leave a traceback: far more than a pipe holds is still to come when the reader goes."""
    with subprocess.Popen([*command, "cat", BIG], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=300) == 0


@pytest.mark.parametrize("command", [SCRIPT, MODULE], ids=["script", "module"])
def test_ctrl_c_ends_it_at_once_without_a_traceback(command: list[str]) -> None:
    """A shell shows 130 for a process that SIGINT ended."""
    with subprocess.Popen([*command, "cat", BIG], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)  # it is running, and will wait for room in the pipe
        process.send_signal(signal.SIGINT)
        # Nobody makes room: it ends by the signal, or never.
        code = process.wait(timeout=300)
        assert code in {-signal.SIGINT, 130}
        assert process.stderr.read() == b""


@pytest.mark.parametrize("command", [SCRIPT, MODULE], ids=["script", "module"])
def test_records_are_appended_from_standard_input(command: list[str], tmp_path: Path) -> None:
    """Bytes, options and exit codes come through both entry points."""
    from offsetlog import Log

    path = tmp_path / "orders-0"
    args = [*command, "append", str(path), "-K", ":", "-q"]
    fine = subprocess.run(args, input=b"key:\xff\0\r\nother:", capture_output=True, check=False)
    assert (fine.returncode, fine.stdout, fine.stderr) == (0, b"", b"")
    bad = subprocess.run(args, input=b"third:3\nbad\n", capture_output=True, check=False)
    message = b'offsetlog: line 2: no ":" behind the key; before it 1 record appended at offset 2\n'
    assert (bad.returncode, bad.stdout, bad.stderr) == (4, b"", message)
    with Log.open(path) as log:
        assert [(record.key, record.value) for record in log.scan()] == [(b"key", b"\xff\0\r"), (b"other", b""), (b"third", b"3")]


def test_what_cat_prints_append_takes(tmp_path: Path) -> None:
    """Through a real pipe; the records are the same for the package too."""
    from offsetlog import Log

    path = tmp_path / "g-plain-0"
    offsetlog_ = shlex.join(MODULE)
    script = f"{offsetlog_} cat --json {CLEAN}/g-plain-0 | {offsetlog_} append --json {shlex.quote(str(path))}"
    run = subprocess.run(["bash", "-o", "pipefail", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout)["appended"] == 200
    with Log.open(ROOT / CLEAN / "g-plain-0") as original, Log.open(path) as copy:
        pairs = list(zip(original.scan(), copy.scan(), strict=True))
    assert all((a.key, a.value, a.headers, a.timestamp) == (b.key, b.value, b.headers, b.timestamp) for a, b in pairs)


def test_a_json_null_is_no_tombstone(tmp_path: Path) -> None:
    """``--value-format json`` and ``--key-format json`` tell the text null from no value, for ``append`` too."""
    from offsetlog import Log

    payloads = [b"null", b" null\n", None, b'"null"', b"{}", b"[null]", b"nul"]
    formats = ["--key-format", "json", "--value-format", "json"]
    with Log.open(tmp_path / "t-0", "a") as log:
        log.append_records([(payload, payload) for payload in payloads])
    printed = offsetlog("cat", "--json", *formats, str(tmp_path / "t-0"))
    lines = [json.loads(line) for line in printed.stdout.splitlines()]
    assert [line["payload"] for line in lines] == ["null", " null\n", None, "null", {}, [None], "nul"]
    assert [line.get("payload_error") for line in lines[:6]] == ["JSON null", "JSON null", None, None, None, None]
    assert [line.get("key_error") for line in lines[:6]] == ["JSON null", "JSON null", None, None, None, None]
    append = [*MODULE, "append", "--json", *formats, str(tmp_path / "copy-0")]
    subprocess.run(append, cwd=ROOT, input=printed.stdout, text=True, capture_output=True, check=True)
    with Log.open(tmp_path / "copy-0") as copy:
        assert [(record.key, record.value) for record in copy.scan()] == [(payload, payload) for payload in payloads]


@pytest.mark.parametrize("command", [SCRIPT, MODULE], ids=["script", "module"])
def test_ctrl_c_keeps_what_append_has_read(command: list[str], tmp_path: Path) -> None:
    """It ends at once although its input does not, with 130 and a log that was closed."""
    from offsetlog import Log

    path = tmp_path / "orders-0"
    args = [*command, "append", str(path)]
    with subprocess.Popen(args, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"one\ntwo\nunfini")
        process.stdin.flush()
        deadline = time.monotonic() + 300
        while not (list(path.glob("*.log")) and Log.open(path).log_end_offset == 2):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        # Nobody ends its input: it ends by the signal, or never.
        assert process.wait(timeout=300) == 130
        assert b"interrupted: 2 records appended" in process.stderr.read()
    with Log.open(path, "a") as log:
        assert log.recovery_report.clean
        assert [record.value for record in log.scan()] == [b"one", b"two"]


def test_recover_says_and_does_the_same_through_the_package(tmp_path: Path) -> None:
    """The command's report is the package's."""
    import shutil

    from offsetlog import recover

    path = tmp_path / "g-torn-flip-old-0"
    shutil.copytree(ROOT / "tests/data/kafka-4.3.0/torn/log-dir-1/g-torn-flip-old-0", path)
    dry = offsetlog("recover", "--dry-run", "--json", str(path))
    assert dry.returncode == 3
    said = json.loads(dry.stdout)
    report = recover(path, dry_run=True)
    assert [(cut["path"], cut["position"], cut["bytes"], cut["kept"]) for cut in said["cut"]] == [
        (cut.path, cut.position, cut.bytes, cut.kept) for cut in report.cut
    ]
    assert said["log_end_offset"] == report.log_end_offset
    run = offsetlog("recover", str(path))
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith(
        "g-torn-flip-old-0: recovered, the log is cut at the first bytes that are no batch, with whole batches behind them:\n"
    )
    assert offsetlog("recover", "-n", str(path)).returncode == 0


@pytest.mark.slow
def test_a_counter_is_drawn_while_records_are_appended(tmp_path: Path) -> None:
    """On standard error, where somebody looks; the last line is the summary."""
    source = tmp_path / "big.txt"
    source.write_bytes((b"x" * 99 + b"\n") * 1_500_000)
    with source.open("rb") as lines:
        code, got = _on_terminal("stderr", "append", str(tmp_path / "orders-0"), stdin=lines)
    assert code == 0
    shown = re.findall(rb"(\d+) records, (\d+)M", got)
    assert shown
    assert all(abs(int(count) * 99 / 2**20 - int(size)) <= 1 for count, size in shown), "bytes of the records"
    assert b"1500000 records appended" in got.splitlines()[-1]


def test_a_shell_shows_130_for_ctrl_c() -> None:
    """The number itself, as scripts see it."""
    script = f"(echo $BASHPID >&2; exec {shlex.join([*MODULE, 'cat', BIG])}); echo code $? >&2"
    pipe = subprocess.PIPE
    with subprocess.Popen(["bash", "-c", script], cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as shell:
        assert shell.stdout is not None
        assert shell.stderr is not None
        pid = int(shell.stderr.readline())
        shell.stdout.read(1)
        os.kill(pid, signal.SIGINT)
        assert shell.stderr.readline() == "code 130\n"


IN_PROCESS = """
import os, signal, sys
from offsetlog._offsetlog import run_cli
assert run_cli(["offsetlog", *sys.argv[1:]]) == 0
for _ in range(3):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.parametrize(("verb", "where"), [("maintain", "."), ("append", "orders-0")])
def test_ctrl_c_in_the_process_of_somebody_else_stays_theirs(verb: str, where: str, tmp_path: Path) -> None:
    """As often as it comes behind the command, which has caught it itself only where the process is its own."""
    append = [*MODULE, "append", str(tmp_path / "orders-0")]
    subprocess.run(append, input=b"a\n", check=True, stderr=subprocess.PIPE)
    command = [sys.executable, "-c", IN_PROCESS, verb, str(tmp_path / where)]
    ran = subprocess.run(command, input=b"b\n", stdout=subprocess.PIPE, check=False, timeout=300)
    assert (ran.returncode, ran.stdout.count(b"interrupted")) == (0, 3)


def _on_terminal(stream: str, *args: str, stdin: IO[bytes] | int = subprocess.DEVNULL) -> tuple[int, bytes]:
    """Run with one stream on a terminal and the other one nowhere; return the exit code and what the terminal got."""
    terminal, end = os.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    stdout, stderr = (end, subprocess.DEVNULL) if stream == "stdout" else (subprocess.DEVNULL, end)
    with subprocess.Popen([*MODULE, *args], cwd=ROOT, env=environment, stdin=stdin, stdout=stdout, stderr=stderr) as process:
        os.close(end)
        got = b""
        while True:
            try:
                read = os.read(terminal, 1 << 16)
            except OSError:  # how Linux says that the other end is closed
                break
            if not read:
                break
            got += read
    os.close(terminal)
    return process.returncode, got


def test_a_terminal_gets_no_control_characters_of_records() -> None:
    """A key of g-plain holds all 256 byte values, escape sequences among them."""
    for options, raw in [((), False), (("--raw",), False), (("--raw=force",), True)]:
        code, got = _on_terminal("stdout", "cat", "-q", "-K:", "-t", "g-plain", *options, CLEAN)
        assert code == 0
        assert (b"\x1b" in got) is raw


def test_a_bar_is_drawn_on_a_terminal_and_not_with_quiet() -> None:
    """Talk goes to standard error, and only where somebody looks."""
    code, got = _on_terminal("stderr", "ls", CLEAN)
    assert code == 0
    assert b"%" in got
    assert _on_terminal("stderr", "ls", "-q", CLEAN) == (0, b"")


def test_starting_it_loads_neither_pyarrow_nor_pyspark() -> None:
    """The command starts as fast as Python does."""
    code = "import sys, offsetlog._cli; print({'pyarrow', 'pyspark', 'polars', 'pandas', 'numpy'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"


def _sessions() -> list[list[Command]]:
    """The blocks of commands of README.md and docs/cli.md."""
    found = [block for page in ("README.md", "docs/cli.md") for block in blocks(read(page))]
    return [commands(block) for block in found if block.language == "console"]


@pytest.mark.slow
@pytest.mark.parametrize("session", _sessions(), ids=[session[0].command[:60] for session in _sessions()])
def test_the_documentation_shows_what_is_printed(session: list[Command], tmp_path: Path) -> None:
    """Every block, run by a shell in a place of its own; output and errors in the order in which they are shown."""
    shell = Shell(tmp_path)
    assert any(command.startswith("offsetlog ") or "| offsetlog " in command for command, _ in session)
    for command, output in session:
        assert shell.printed(command) == output, command


@pytest.mark.slow
def test_the_documentation_names_every_verb_and_option() -> None:
    """An option that is only in the help is one that nobody finds."""
    text = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    commands = offsetlog("--help").stdout.partition("\nRead records and state:\n")[2].partition("\nOptions:")[0]
    verbs = re.findall(r"^  ([a-z]+) ", commands, re.MULTILINE)
    assert {"ls", "cat", "time", "explain", "append", "recover", "completions"} <= set(verbs)
    for verb in set(verbs) - {"help"}:
        assert f"## {verb}\n" in text
        options = set(re.findall(r"^\s+(?:-\w, )?(--[a-z-]+)", offsetlog(verb, "--help").stdout, re.MULTILINE))
        short = re.findall(r"^\s+(-\w), (--[a-z-]+)", offsetlog(verb, "--help").stdout, re.MULTILINE)
        for option in options:
            letters = [letter for letter, name in short if name == option]
            assert any(f"`{name}" in text or f" {name}" in text for name in [option, *letters]), (verb, option)


# What the help of a verb may say of a code: the meaning that docs/cli.md gives it, in the verb's own words.
CODES = {
    "0": r"^(done|stopped by SIGTERM)",
    "1": r"nothing|^no ",
    "2": r"usage or input error|usage error",
    "3": r"damage|lost|deleted|warnings or errors|could not be read|something to mend",
    "4": r"line",
    "130": r"interrupted|Ctrl-C",
}


@pytest.mark.slow
def test_an_exit_code_means_the_same_in_every_verb() -> None:
    text = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^  \| (\d+) \| (.*) \|$", text, re.MULTILINE))
    assert table.keys() == CODES.keys()
    commands = offsetlog("--help").stdout.partition("\nRead records and state:\n")[2].partition("\nOptions:")[0]
    told = 0
    for verb in set(re.findall(r"^  ([a-z-]+) ", commands, re.MULTILINE)) - {"help"}:
        lines = " ".join(offsetlog(verb, "--help").stdout.split()).partition("Exit codes: ")[2].rstrip(".")
        for part in lines.split("; ") if lines else []:
            code, _, meaning = part.partition(" ")
            assert re.search(CODES[code], meaning), (verb, part)
            # A verb that has this one is named where the code is told.
            assert code not in {"3", "4"} or f"`{verb}" in table[code], (verb, code)
            told += 1
    assert told > 60


def test_cat_goes_on_behind_damage_or_ends_there_when_asked() -> None:
    """What is left out goes to standard error; without the option damage is an error."""
    torn = "tests/data/kafka-4.3.0/torn"
    for name, first, behind in (("g-torn-flip-old-0", 36, 40), ("g-torn-flip-active-0", 84, 88)):
        (path,) = (str(path) for path in Path(ROOT, torn).glob(f"*/{name}"))
        skip = offsetlog("cat", path, "-f", r"%o\n", "--on-corrupt", "skip")
        assert skip.stdout.split() == [str(offset) for offset in (*range(first), *range(behind, 96))]
        assert re.search(
            rf"left out \d+ bytes of \d+\.log at position \d+ \(offsets {first} to {behind - 1}\): .*checksum", skip.stderr
        )
        stop = offsetlog("cat", path, "-f", r"%o\n", "--on-corrupt", "stop")
        assert stop.stdout.split() == [str(offset) for offset in range(first)]
        assert (skip.returncode, stop.returncode) == (0, 0)
        assert stop.stderr == skip.stderr
        assert offsetlog("cat", path).returncode == 2
