"""What only the package itself tells: its names, what importing it brings, and its stub."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_listed_names_are_the_public_ones() -> None:
    import offsetlog

    modules = {name for name, value in vars(offsetlog).items() if type(value) is type(offsetlog)}
    public = {name for name in vars(offsetlog) if not name.startswith("_")} - modules
    assert public | {"__version__"} == set(offsetlog.__all__)
    for name in offsetlog.__all__:
        assert hasattr(offsetlog, name)


@pytest.mark.parametrize("module", ["offsetlog", "offsetlog._cli", "offsetlog.errors"])
def test_base_package_pulls_in_nothing_big(module: str) -> None:
    """Importing takes milliseconds, and works where none of these is installed."""
    import offsetlog

    heavy = {"pyarrow", "pyspark", "pandas", "polars", "duckdb", "numpy", "py4j"}
    code = f"import sys, {module}; print(*(name for name in sys.modules if '.' not in name))"
    here = Path(offsetlog.__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=here)
    assert not heavy & set(done.stdout.split())


MAX_WHEEL_BYTES = 10_170_000
"""Two megabytes above the 8.17 MB without `serve` and `mirror`, which may take that much: docs/internals/performance.md tells what the parts of it take."""


def test_the_wheel_stays_small() -> None:
    """Of the only system that its size was measured on. `make test` builds one; a development build has none."""
    wheels = list((ROOT / "dist").glob("*.whl"))
    measured = [wheel for wheel in wheels if "-manylinux" in wheel.name and wheel.name.endswith("_x86_64.whl")]
    of_that_system = (platform.machine(), platform.libc_ver()[0]) == ("x86_64", "glibc")
    assert measured or not wheels or not of_that_system, wheels
    for wheel in measured:
        assert wheel.stat().st_size <= MAX_WHEEL_BYTES, wheel.name


@pytest.mark.slow
def test_the_stub_is_that_of_the_compiled_module() -> None:
    command = [sys.executable, "-m", "mypy.stubtest", "--concise", "--mypy-config-file", "pyproject.toml", "offsetlog._offsetlog"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
