"""Two commits side by side, the programs of the other one as the peers.

Both are built in one folder below `build/bench/compare`, one after the other: the same source then gives the same program to the byte,
and a ratio beside itself is 1. Built in two folders, programs of one source differed by up to 2 % for as long as they stood.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from beside import Beside, Check, Cost, DifferentError, Turns, Work, same
from data import BUILD, CARGO_HINT, ROOT, Own, Sizes, need, run, say
from figures import NotCompared, Row
from paired import MOST_PAIRS, pairs_wanted
from processes import BenchError, LineProgram, RefusedError, Round

COMPARE = BUILD / "compare"
SOURCE, TARGET = COMPARE / "source", COMPARE / "target"
# From so many pairs on, the spread is known well enough to plan by; fewer where one pair takes many seconds.
LEAST_PAIRS = 10
LEAST_SLOW_PAIRS = 6
# No more pairs are planned than fit into so many seconds, `slow` lines and lines that never get quiet.
LINE_SECONDS = 180.0
BUILD_SECONDS = 3600
MODULE = "_offsetlog.abi3.so"


@dataclass(frozen=True)
class Side:
    """One of the two: what is built of it."""

    name: str
    ours: Path
    # Folder for PYTHONPATH.
    package: Path


def git(*arguments: str) -> str:
    """What git says about this repository."""
    need("git", "git is missing: apt-get install git (macOS: xcode-select --install)")
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def resolved(commit: str) -> str:
    """The full name of a commit."""
    try:
        return git("rev-parse", "--quiet", "--verify", "--end-of-options", f"{commit}^{{commit}}")
    except BenchError:
        raise BenchError(f"COMPARE={commit}: no such commit here; `git log` shows those that are, `git fetch` brings others") from None


def this_tree() -> str:
    """The working tree in a heading: its commit, and whether there is more than that."""
    dirty = git("status", "--porcelain", "--untracked-files=normal")
    return git("rev-parse", "--short=10", "HEAD") + (" with changes that are not committed" if dirty else "")


def laid_out(sha: str | None) -> None:
    """Puts the files of a commit, or of the working tree, where both sides are built."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    if sha is None:
        for name in git("ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0"):
            if name and (ROOT / name).is_file():
                (SOURCE / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, SOURCE / name)
    else:
        with subprocess.Popen(["git", "-C", str(ROOT), "archive", sha], stdout=subprocess.PIPE) as archive:
            assert archive.stdout is not None
            with tarfile.open(fileobj=archive.stdout, mode="r|") as files:
                files.extractall(SOURCE, filter="data")
        if archive.returncode != 0:
            raise BenchError(f"git archive {sha} failed")
    # Cargo goes by times, and would take what it built of the other side for this one's.
    for folder, _, names in os.walk(SOURCE):
        for name in names:
            os.utime(Path(folder, name))


def built(name: str, home: Path, sha: str | None, *, python: bool) -> Side:
    """Builds the programs of a side and lays its Python package out."""
    cargo = need("cargo", CARGO_HINT)
    os.environ.setdefault("PYO3_PYTHON", sys.executable)
    laid_out(sha)
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    side = Side(name, home / "ours", home / "python")
    how = ["--release", "--locked", "-q", "--target-dir", str(TARGET)]
    say(f"building {name}")
    run([cargo, "build", *how, "-p", "offsetlog-benches", "--bin", "ours"], BUILD_SECONDS, SOURCE)
    shutil.copy2(TARGET / "release" / "ours", side.ours)
    if python:
        # As maturin does it: the symbols of Python are found when the module is loaded.
        loaded = ["--", "-C", "link-arg=-undefined", "-C", "link-arg=dynamic_lookup"] if sys.platform == "darwin" else []
        run([cargo, "rustc", *how, "-p", "offsetlog-python", "--lib", *loaded], BUILD_SECONDS, SOURCE)
        shutil.copytree(SOURCE / "python", side.package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        library = "lib_offsetlog.dylib" if sys.platform == "darwin" else "lib_offsetlog.so"
        shutil.copy2(TARGET / "release" / library, side.package / "offsetlog" / MODULE)
    return side


def sides(commit: str, *, python: bool) -> tuple[Side, Side]:
    """The other commit and this tree, built."""
    sha = resolved(commit)
    # Names of one length: where a program's stack begins depends on that of its path.
    old = built(sha[:10], COMPARE / "old", sha, python=python)
    return old, built("this tree", COMPARE / "new", None, python=python)


def mean(first: Round, second: Round) -> Round:
    """Two rounds of one side as one."""
    means = {cost: (getattr(first, cost) + getattr(second, cost)) / 2 for cost in ("cpu", "wall", "p50", "p99")}
    return replace(first, **means)


class BesideCommit(Beside):
    """The same programs of two commits.

    A pair is two new processes, one from each side, warmed by a round that does not count, then A B B A, in the next pair B A A B: a
    drift within a pair is the same for both, and where a process happens to lie in memory is drawn anew for each pair.
    """

    comparing = True
    warm_seconds = 0.3

    def __init__(self, old: Side, new: Side, sizes: Sizes, rounds: int) -> None:
        super().__init__(Own(new.ours), new.ours, sizes, rounds)
        self.name = old.name
        self._old = old
        self._new = new
        self.different: list[str] = []

    def peer_program(self) -> LineProgram:
        """The other commit's program."""
        return LineProgram(self._old.name, [str(self._old.ours)], BUILD / "compare" / "old.log")

    def scripts(self, script: Path, *arguments: str) -> tuple[LineProgram, LineProgram]:
        """A script of the benches that answers lines, once with each side's package."""
        programs = []
        for side, log in ((self._old, "old"), (self._new, "new")):
            # OpenBLAS comes in with pyarrow and numpy; its idle threads would count as CPU seconds of the work.
            env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(side.package)}
            command = [sys.executable, str(script), *arguments]
            programs.append(LineProgram(side.name, command, COMPARE / f"{script.stem}-{log}.log", env))
        return programs[0], programs[1]

    def line(self, number: int, work: str, measured: Callable[[], Iterable[Row]]) -> Iterator[Row | NotCompared]:
        """As measured; what only one side can do, and what both do differently, is a line of its own."""
        say(f"row {number}: {work}")
        try:
            yield from measured()
        except RefusedError as refused:
            if refused.program.name != self.name:
                raise
            yield NotCompared(number, work, f"not in {self.name}: {refused.answer}")
        except DifferentError as different:
            self.different.append(f"row {number}: {different}")
            yield NotCompared(number, work, "the sides differ, see below")

    def turns(
        self,
        programs: Sequence[LineProgram],
        theirs: Work,
        mine: Work,
        work: str,
        decide: Sequence[Cost] = ("cpu",),
        *,
        slow: bool = False,
        check: Check | None = same,
        limit: Work | None = None,  # noqa: ARG002 - what the machine can do is the same for both
    ) -> Turns:
        """Pairs until the intervals are narrow or there is no more time; only their width decides."""
        turns = Turns()
        start = time.monotonic()
        wanted = LEAST_SLOW_PAIRS if slow else max(LEAST_PAIRS, self.rounds)
        while len(turns.peer) < wanted:
            while len(turns.peer) < wanted:
                for program in programs:
                    program.restart()
                swapped = len(turns.peer) % 2 == 1
                order = [mine, theirs, theirs, mine] if swapped else [theirs, mine, mine, theirs]
                order[0]()
                order[1]()
                found = [one() for one in order]
                peer, ours = (found[1:3], found[::3]) if swapped else (found[::3], found[1:3])
                if check is not None:
                    check(peer[0], ours[0], work)
                    check(peer[1], ours[1], work)
                turns.peer.append(mean(*peer))
                turns.ours.append(mean(*ours))
            done = len(turns.peer)
            fitting = int(LINE_SECONDS / (time.monotonic() - start) * done)
            most = min(max(MOST_PAIRS, self.rounds), max(done, fitting))
            wanted = pairs_wanted([turns.costs(cost) for cost in decide], most)
        return turns
