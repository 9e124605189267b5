"""Faults in the system calls of another process, by strace: no code for it in the product."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Sequence
from pathlib import Path

from disks import MissingError, need


@functools.cache
def need_tracing() -> None:
    """Say why processes cannot be traced here."""
    need("strace")
    tried = subprocess.run(["strace", "-qq", "-e", "trace=none", "true"], capture_output=True, text=True, timeout=300, check=False)
    if tried.returncode != 0:
        msg = f"strace is not allowed: {tried.stderr.strip()}"
        raise MissingError(msg)


def traced(arguments: Sequence[str], fault: str, output: Path | None = None) -> list[str]:
    """A command line under strace: `fault` is what it takes after ``inject=``. `output` gets the calls, with the paths of files."""
    calls = fault.partition(":")[0]
    # Not with --seccomp-bpf, under which strace 6.1 delivers no signal.
    quiet = ["strace", "-f", "-qq", "-y", "-o", str(output or "/dev/null")]
    return [*quiet, "-e", f"trace={calls}", "-e", f"inject={fault}", *arguments]
