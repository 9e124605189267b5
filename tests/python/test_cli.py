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

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLEAN = "tests/data/kafka-4.3.0/clean/log-dir-1"
BIG = "tests/data/kafka-4.3.0/clean/log-dir-2/g-big-0"
SCRIPT = [str(Path(sys.executable).with_name("offsetlog"))]
MODULE = [sys.executable, "-m", "offsetlog"]


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
        assert process.wait(timeout=20) == 0


@pytest.mark.parametrize("command", [SCRIPT, MODULE], ids=["script", "module"])
def test_ctrl_c_ends_it_at_once_without_a_traceback(command: list[str]) -> None:
    """A shell shows 130 for a process that SIGINT ended."""
    with subprocess.Popen([*command, "cat", BIG], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)  # it is running, and will wait for room in the pipe
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=20)
        assert time.monotonic() - sent < 1
        assert code in {-signal.SIGINT, 130}
        assert process.stderr.read() == b""


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


def _on_terminal(stream: str, *args: str) -> tuple[int, bytes]:
    """Run with one stream on a terminal and the other one nowhere; return the exit code and what the terminal got."""
    terminal, end = os.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    stdout, stderr = (end, subprocess.DEVNULL) if stream == "stdout" else (subprocess.DEVNULL, end)
    with subprocess.Popen([*MODULE, *args], cwd=ROOT, env=environment, stdout=stdout, stderr=stderr) as process:
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


def _examples() -> list[tuple[str, str]]:
    """Commands of the documentation with the output that it shows."""
    text = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    examples = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = example.partition("\n")
            examples.append((command, output))
    return examples


@pytest.mark.parametrize(("command", "output"), _examples(), ids=[command[:60] for command, _ in _examples()])
def test_the_documentation_shows_what_is_printed(command: str, output: str) -> None:
    """Every example of docs/cli.md, run; output and errors in the order in which they are shown."""
    program, *args = shlex.split(command)
    assert program == "offsetlog"
    run = offsetlog(*args)
    assert run.stdout + run.stderr == output


def test_the_documentation_names_every_verb_and_option() -> None:
    """An option that is only in the help is one that nobody finds."""
    text = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    commands = offsetlog("--help").stdout.partition("\nCommands:\n")[2].partition("\n\n")[0]
    verbs = re.findall(r"^  ([a-z]+) ", commands, re.MULTILINE)
    assert {"ls", "cat", "time", "explain", "completions"} <= set(verbs)
    for verb in set(verbs) - {"help"}:
        assert f"## {verb}\n" in text
        options = set(re.findall(r"^\s+(?:-\w, )?(--[a-z-]+)", offsetlog(verb, "--help").stdout, re.MULTILINE))
        short = re.findall(r"^\s+(-\w), (--[a-z-]+)", offsetlog(verb, "--help").stdout, re.MULTILINE)
        for option in options:
            letters = [letter for letter, name in short if name == option]
            assert any(f"`{name}" in text or f" {name}" in text for name in [option, *letters]), (verb, option)
