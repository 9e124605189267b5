"""The crates' own tests, and row 25: what of the format crate and of recovery they leave untouched, and which errors no test makes.

The crates are built with counters (``-C instrument-coverage``), and LLVM's tools read these: the compiler's own (``rustup component add
llvm-tools``) or a system's. Without counters the tests run all the same. ``OFFSETLOG_COVERAGE=1`` fails where there are no such tools,
``0`` leaves the row out.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from rows import ROOT, row

# Apart from the plain build, whose programs must not be replaced by counting ones.
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "coverage"
ENGINE = "rust/offsetlog/src/"
# The modules that decide what of a log survives, and all that turns bytes into values.
RECOVERED = "loader producer_state report scan_segment repair_segment sanity_check page_cache_check interrupted_swaps"
RECOVERY = [f"{ENGINE}log/recovery/{name}.rs" for name in RECOVERED.split()] + [f"{ENGINE}log/writer/open.rs"]
FORMAT = "rust/offsetlog-format/src/"
LINES_MIN = 95
# The oldest whose format Rust's counters have. What a later compiler changes, `llvm-profdata` says.
LLVM_MIN = 19
NOT_ASKED = "OFFSETLOG_COVERAGE=0"
NO_TOOLS = (
    f"needs `rustup component add llvm-tools`, or llvm-cov and llvm-profdata {LLVM_MIN} or later (apt-get install llvm-{LLVM_MIN})"
)
# Every crate that has tests, for nothing else in the proof runs them. One selection, so that each is built once, with one set of features:
# a build of offsetlog-net by itself is a second engine, and here it is no more than its tests, as the command line needs the rest.
CRATES = ("offsetlog-format", "offsetlog", "offsetlog-ops", "offsetlog-net", "offsetlog-cli", "offsetlog-faults")

# What no test can make, with the reason. Made all the same, it has to go from here.
NOT_MADE = {"Compression": "the codecs' libraries refuse for want of memory only, which is a `MemoryError`"}

Counts = dict[str, dict[int, int]]


def tools() -> tuple[Path, Path] | None:
    """``llvm-cov`` and ``llvm-profdata``: those that belong to the compiler, or the system's newest."""
    root = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    own = sorted(Path(root).glob("lib/rustlib/*/bin/llvm-cov"))
    cov = own[0] if own else newest()
    return (cov, cov.with_name(cov.name.replace("cov", "profdata"))) if cov else None


def newest() -> Path | None:
    """The newest ``llvm-cov`` of the system that is new enough."""
    found = {}
    for path in (path for folder in os.get_exec_path() for path in Path(folder).glob("llvm-cov*")):
        if re.fullmatch(r"llvm-cov(-\d+)?", path.name) and os.access(path, os.X_OK):
            said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
            version = re.search(r"LLVM version (\d+)", said)
            found[int(version[1]) if version else 0] = path
    return found[max(found)] if max(found, default=0) >= LLVM_MIN else None


def cargo(*arguments: str, environment: dict[str, str]) -> str:
    """Run cargo on the crates; what it says."""
    command = ["cargo", "test", "--locked", "--quiet", *(f"--package={crate}" for crate in CRATES), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, f"{done.stdout[-6000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Counts | None:
    """How often each line ran in the crates' tests, by file; ``None`` where the tools are missing or it is not asked for."""
    asked = os.environ.get("OFFSETLOG_COVERAGE")
    found = None if asked == "0" else tools()
    work = tmp_path_factory.mktemp("coverage")
    environment = {
        **os.environ,
        "OFFSETLOG_ROWS": str(work / "rows"),
        # Lane A runs the simulated rows at length; here they are to be counted.
        "OFFSETLOG_SCALE": "0.02",
        "OFFSETLOG_STEPS": "2",
    }
    if found is None:
        assert asked in {None, "", "0"}, NO_TOOLS
        cargo(environment=environment)
        return None
    llvm_cov, llvm_profdata = found
    environment |= {
        # What does not count, all that the crates depend on, is the plain build's (Cargo 1.91; before, it is built once more).
        "CARGO_BUILD_BUILD_DIR": str(TARGET.parent),
        "CARGO_TARGET_DIR": str(TARGET),
        "RUSTC_WORKSPACE_WRAPPER": str(ROOT / ".ci/instrument"),
        # Examples in the documentation are linked with crates that count.
        "RUSTDOCFLAGS": "-C instrument-coverage",
        # Programs that the tests start by the hundred add to the same few files.
        "LLVM_PROFILE_FILE": str(work / "%4m.profraw"),
        # Half of a build's time, and nobody looks at these with a debugger.
        "CARGO_PROFILE_DEV_DEBUG": "0",
        "CARGO_INCREMENTAL": "0",
    }
    messages = (json.loads(line) for line in cargo("--no-run", "--message-format=json", environment=environment).splitlines())
    programs = [message["executable"] for message in messages if message.get("executable")]
    assert len(programs) > len(CRATES)
    cargo(environment=environment)
    merged = work / "all.profdata"
    done = subprocess.run(
        [llvm_profdata, "merge", "-sparse", "-o", merged, *work.glob("*.profraw")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stderr[-2000:]}\n{llvm_profdata} does not read this compiler's counters: {NO_TOOLS}"
    objects = [word for program in programs[1:] for word in ("-object", program)]
    exported = subprocess.run(
        [llvm_cov, "export", "-format=lcov", "-skip-functions", f"-instr-profile={merged}", programs[0], *objects],
        check=True,
        capture_output=True,
        text=True,
    )
    # For whoever wants to look at more than the lists below.
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build/coverage.lcov").write_text(exported.stdout, encoding="utf-8")
    return parsed(exported.stdout)


def parsed(lcov: str) -> Counts:
    """Counts of lines in files of this tree."""
    found: Counts = {}
    lines: dict[int, int] = {}
    for line in lcov.splitlines():
        if line.startswith("SF:"):
            path = Path(line[3:])
            lines = found.setdefault(path.relative_to(ROOT).as_posix(), {}) if path.is_relative_to(ROOT) else {}
        elif line.startswith("DA:"):
            number, count = line[3:].split(",")[:2]
            lines[int(number)] = max(lines.get(int(number), 0), int(count))
    return found


def code_lines(path: str) -> int:
    """Lines of a file before its unit tests; those that stand in a file of their own are measured apart."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return len(re.split(r"^#\[cfg\(test\)\]\s*\n\s*mod \w+ \{", text, maxsplit=1, flags=re.MULTILINE)[0].splitlines())


def test_lines_of_the_format_and_of_recovery(counts: Counts | None) -> None:
    with row(25, "lines of the format crate and of recovery", "% of lines", LINES_MIN, fixed=True) as part:
        if counts is None:
            part.skip(NOT_ASKED if os.environ.get("OFFSETLOG_COVERAGE") == "0" else NO_TOOLS)
        files = {
            "format": [path for path in counts if path.startswith(FORMAT) and not path.endswith("_tests.rs")],
            "recovery": [path for path in counts if path in RECOVERY],
        }
        assert len(files["recovery"]) == len(RECOVERY)
        shares = []
        for what, paths in files.items():
            ran = total = 0
            for path in sorted(paths):
                end = code_lines(path)
                lines = {number: count for number, count in counts[path].items() if number <= end}
                missed = [number for number, count in lines.items() if count == 0]
                ran += len(lines) - len(missed)
                total += len(lines)
                print(f"{path}: {len(lines) - len(missed)} of {len(lines)}; not {', '.join(map(str, missed[:40])) or 'any'}")
            shares.append(100 * ran // total)
            print(f"{what}: {ran} of {total} lines, {100 * ran / total:.1f} %")
        part.count(min(shares))


def variants() -> list[str]:
    """The names of all kinds of errors."""
    text = (ROOT / ENGINE / "error/kind.rs").read_text(encoding="utf-8")
    body = text[text.index("pub enum ErrorKind {") :]
    return re.findall(r"^    ([A-Z]\w+)(?:\(| \{|,)", body[: body.index("\n}")], flags=re.MULTILINE)


def test_every_kind_of_error_is_made_by_a_test(counts: Counts | None) -> None:
    """A line of the engine that makes it ran: one that names it and is no pattern."""
    kinds = variants()
    assert len(kinds) > 30
    with row(25, "kinds of errors that a test makes", "kinds of errors", len(kinds) - len(NOT_MADE), fixed=True) as part:
        if counts is None:
            part.skip(NOT_ASKED if os.environ.get("OFFSETLOG_COVERAGE") == "0" else NO_TOOLS)
        made_by: dict[str, str] = {}
        for path, lines in counts.items():
            if not path.startswith(ENGINE):
                continue
            text = (ROOT / path).read_text(encoding="utf-8").splitlines()
            for number, line in enumerate(text[: code_lines(path)], 1):
                if "matches!" in line or "if let" in line or line.lstrip().startswith(("//", "|")):
                    continue
                # What stands before the arrow of a match is a pattern, and so is an alternative.
                made = line.rpartition("=>")[2]
                for name in re.findall(r"\b(?:ErrorKind|Self|Kind)::(\w+)(?! \{ \.\. \})", made):
                    if name in kinds and lines.get(number, 0):
                        made_by.setdefault(name, f"{path}:{number}")
        for name in kinds:
            print(f"{name}: {made_by.get(name) or NOT_MADE.get(name, 'NONE')}")
        assert not made_by.keys() & NOT_MADE.keys()
        part.count(len(made_by))
