"""Reads the fenced blocks of documentation pages, and runs the commands that a page shows as a reader would: in a shell, one after the other."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
MODULE = [sys.executable, "-m", "offsetlog"]
CLONE = "/clone"
"""How pages write the folder in which they run: that of the reader's clone."""


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str
    line: int


class Command(NamedTuple):
    """A command of a `console` block, and the output that the page shows."""

    command: str
    output: str


def read(page: str) -> str:
    """The text of a page of this tree."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(text: str) -> list[Block]:
    """All fenced blocks in order."""
    found = re.finditer(r"^```([\w-]*)[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [Block(match[1], match[2], text[: match.start()].count("\n") + 1) for match in found]


def commands(block: Block) -> list[Command]:
    """The commands of a `console` block, each with the lines below it."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not parts[0], f"line {block.line}: a block of commands begins with one"
    return [Command(command, output) for command, _, output in (part.partition("\n") for part in parts[1:])]


class Shell:
    """A folder in which a page's commands run. It has `tests`, as the clone of a reader has, and `offsetlog` is on the path."""

    def __init__(self, folder: Path) -> None:
        """Make the folder ready."""
        programs = folder / "programs"
        programs.mkdir()
        (programs / "offsetlog").write_text(f'#!/bin/sh\nexec {shlex.join(MODULE)} "$@"\n')
        (programs / "offsetlog").chmod(0o755)
        self.here = folder / "here"
        self.here.mkdir()
        (self.here / "tests").symlink_to(ROOT / "tests")
        self._environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}

    def printed(self, command: str) -> str:
        """Run a command; return what it printed, standard error behind standard output, with `CLONE` for this folder."""
        run = subprocess.run(
            ["bash", "-c", command],
            cwd=self.here,
            env=self._environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        return (run.stdout + run.stderr).replace(str(self.here), CLONE)


def alike(printed: str, shown: str) -> bool:
    """Whether a page shows what was printed. Columns behind a path are as far away as the real path was long."""

    def with_narrow_columns(text: str) -> str:
        return re.sub(r" {2,}", "  ", text) if CLONE in text else text

    return with_narrow_columns(printed) == with_narrow_columns(shown)
