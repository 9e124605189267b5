"""`make lint` fails when one of its commands does: each is replaced by one that fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# A word of each command's arguments.
CARGO = ["fmt", "--workspace", "--no-default-features", "doc"]
PYTHON = {"ruff": "check", "python": "pytest", "lint-imports": "", "mypy": "tests/tidy"}


def lint(place: Path, tool: str, word: str) -> subprocess.CompletedProcess[str]:
    """`.ci/lint` in a folder of its own, where everything passes but calls of `tool` with that word."""
    shutil.copytree(ROOT / ".ci", place / ".ci")
    environment, path = place / ".venv/bin", place / "path"
    folders = dict.fromkeys(PYTHON, environment) | dict.fromkeys(("cargo", "rustc", "rustup"), path)
    for name, folder in folders.items():
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / name
        fails = f'case " $* " in *"{word}"*) exit 3;; esac' if name == tool else ""
        program.write_text(f"#!/bin/sh\n{fails}\nexit 0\n")
        program.chmod(0o755)
    variables = {**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run([".ci/lint"], cwd=place, env=variables, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize(("tool", "word"), [*(("cargo", word) for word in CARGO), *PYTHON.items()])
def test_what_fails_is_not_passed_over(tmp_path: Path, tool: str, word: str) -> None:
    done = lint(tmp_path, tool, word)
    assert done.returncode == 3, done.stdout
    assert "all passed" not in done.stdout
