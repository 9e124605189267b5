"""What the benches need on disk: programs built, Kafka's jars, and partition directories that Kafka's own code wrote.

Everything lies in `build/bench/` and is made once; a change of a size makes it anew.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from processes import BenchError, LineProgram

ROOT = Path(__file__).resolve().parents[2]
BENCHES = ROOT / "benches"
BUILD = ROOT / "build" / "bench"
MAKE_SECONDS = 900

JAVA_HINT = "Java 17 is missing: apt-get install openjdk-17-jdk-headless (macOS: brew install openjdk@17)"
MAVEN_HINT = "Maven is missing: apt-get install maven (macOS: brew install maven)"
CARGO_HINT = "Rust is missing: install it with rustup (https://rustup.rs), 1.89 or later"


@dataclass(frozen=True)
class Sizes:
    """MiB of values in each kind of directory."""

    scan: int
    lookup: int
    spark: int

    # About 1,000 segments of 1 MiB: the log that is opened, and the 1 GB whose scan is watched for memory.
    open: int = 1040

    @classmethod
    def from_environment(cls) -> Sizes:
        """BENCH_MIB sets the scans; look-ups hold four times as much; Spark reads BENCH_SPARK_MIB."""
        scan = int(os.environ.get("BENCH_MIB", "64"))
        return cls(
            scan=scan,
            lookup=int(os.environ.get("BENCH_LOOKUP_MIB", str(4 * scan))),
            spark=int(os.environ.get("BENCH_SPARK_MIB", "1024")),
        )


@dataclass(frozen=True)
class LogSpec:
    """A partition directory to make."""

    name: str
    codec: str
    value_bytes: int
    mib: int
    batch_bytes: int
    segment_bytes: int = 1 << 30


@dataclass(frozen=True)
class LogPair:
    """One log twice: Kafka stretches the active segment's indexes while it holds them, so each side has its own directory.

    The `.log` files are the same files under two names.
    """

    peer: Path
    ours: Path

    @property
    def log_bytes(self) -> int:
        """Bytes of all `.log` files."""
        return sum(path.stat().st_size for path in self.ours.glob("*.log"))


def say(text: str) -> None:
    """Tells what is being done."""
    print(f"bench: {text}", flush=True)


def need(program: str, hint: str) -> str:
    """The program's path."""
    found = shutil.which(program)
    if found is None:
        raise BenchError(hint)
    return found


def run(command: list[str], seconds: int = MAKE_SECONDS, cwd: Path = ROOT) -> None:
    """Runs a program and shows its output only when it fails."""
    done = subprocess.run(command, cwd=cwd, timeout=seconds, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"{' '.join(command[:4])} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


def resolve_jars(pom: Path, name: str, *properties: str) -> Path:
    """Copies the jars that a POM names into one folder, once."""
    folder = BUILD / name
    marker = folder / ".complete"
    stamp = pom.read_text() + " ".join(properties)
    if not marker.exists() or marker.read_text() != stamp:
        say(f"resolving {name} by Maven")
        shutil.rmtree(folder, ignore_errors=True)
        mvn = need("mvn", MAVEN_HINT)
        run([mvn, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}", *properties])
        marker.write_text(stamp)
    return folder


class Maker(ABC):
    """Makes the logs that are measured, each once, and knows where they lie."""

    def __init__(self, folder: Path, peer: str) -> None:
        self._folder = folder
        self._peer = peer

    @abstractmethod
    def make(self, *words: str) -> None:
        """Makes one thing: the works called `make-` of the Kafka peer."""

    def pair(self, name: str) -> LogPair:
        """Where the two directories of a name lie."""
        return LogPair(self._folder / self._peer / name, self._folder / "ours" / name)

    def once(self, name: str, stamp: str, directories: Iterable[Path], make: Callable[[], None]) -> None:
        """Makes directories anew unless they were made with the same stamp."""
        marker = self._folder / f"{name}.made"
        if marker.exists() and marker.read_text() == stamp:
            return
        say(f"making {name}")
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)
            directory.parent.mkdir(parents=True, exist_ok=True)
        make()
        marker.write_text(stamp)

    def shared(self, pair: LogPair) -> LogPair:
        """The directories that the two sides work on."""
        return pair

    def log(self, spec: LogSpec) -> LogPair:
        """The log of a specification, made if it is not there."""
        pair = self.pair(f"{spec.name}-0")

        def make() -> None:
            numbers = (spec.value_bytes, spec.mib, spec.batch_bytes, spec.segment_bytes)
            self.make("make-log", str(pair.peer), spec.codec, *map(str, numbers))
            twin(pair.peer, pair.ours)

        self.once(spec.name, repr(spec), (pair.peer, pair.ours), make)
        return self.shared(pair)

    def tiny_partitions(self, count: int) -> Path:
        """A log dir of `count` partitions of one record."""
        log_dir = self._folder / f"tiny-{count}"

        def make() -> None:
            log_dir.mkdir()
            self.make("make-tiny", str(log_dir), str(count))

        self.once(log_dir.name, "", (log_dir,), make)
        return log_dir


class Kafka(Maker):
    """Kafka's storage layer as a program: makes data and serves rounds."""

    def __init__(self) -> None:
        super().__init__(BUILD, "kafka")
        need("java", JAVA_HINT)
        javac = need("javac", JAVA_HINT)
        source = BENCHES / "peers" / "kafka"
        self.jars = resolve_jars(source / "pom.xml", "kafka-jars")
        self._classes = BUILD / "kafka-classes"
        self._classes.mkdir(parents=True, exist_ok=True)
        sources = sorted(source.glob("*.java"))
        newest = max(path.stat().st_mtime for path in sources)
        compiled = self._classes / "KafkaPeer.class"
        if not compiled.exists() or compiled.stat().st_mtime < newest:
            say("compiling the Kafka peer")
            run([javac, "-nowarn", "-d", str(self._classes), "-cp", f"{self.jars}/*", *map(str, sources)])

    def command(self, *arguments: str) -> list[str]:
        """The command line of the peer."""
        heap = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:+AlwaysPreTouch"]
        return ["java", *heap, "-cp", f"{self._classes}:{self.jars}/*", "KafkaPeer", *arguments]

    def make(self, *words: str) -> None:
        """Runs the peer once."""
        run(self.command(*words))


class Own(Maker):
    """The engine of this tree as the maker, so that two commits are compared without a JVM.

    Reading changes nothing, so both sides read the same directory: the same pages, the same blocks.
    """

    def __init__(self, ours: Path) -> None:
        super().__init__(BUILD / "compare" / "data", "peer")
        self._ours = ours

    def make(self, *words: str) -> None:
        """Asks our program once."""
        match words:
            case ("make-tiny", log_dir, count):
                words = ("make-topic", log_dir, "tiny", "none", "100", count, "1", count)
            case ("make-many", log_dir, source, count):
                words = ("create", log_dir, source, count)
        with LineProgram("ours", [str(self._ours)], BUILD / "making.log") as ours:
            ours.round(*words)

    def shared(self, pair: LogPair) -> LogPair:
        """The same for both commits: where files lie on a disk costs more than what is compared."""
        return LogPair(pair.ours, pair.ours)

    def topic(self, name: str, codec: str, value_bytes: int, records: int) -> Path:
        """A log dir with a topic of four partitions, as the broker of the Spark rows has it."""
        log_dir = self._folder / name
        words = ("make-topic", str(log_dir), name, codec, str(value_bytes), str(records), "65536", "4")
        self.once(name, repr(words[2:]), (log_dir,), lambda: self.make(*words))
        return log_dir


def twin(source: Path, target: Path) -> None:
    """A second directory with the same files: `.log` files linked, all others copied."""
    target.mkdir()
    for path in source.iterdir():
        if path.is_dir():
            twin(path, target / path.name)
        elif path.suffix == ".log":
            os.link(path, target / path.name)
        else:
            shutil.copy2(path, target / path.name)


def scan_spec(sizes: Sizes, codec: str, value_bytes: int) -> LogSpec:
    """A log of one segment in batches of 64 KiB."""
    return LogSpec(f"scan-{codec}-{value_bytes}", codec, value_bytes, sizes.scan, 65_536)


def lookup_spec(sizes: Sizes, codec: str, batch_bytes: int) -> LogSpec:
    """A log of many segments: one record of 1 KB a batch, or batches of 16 KiB."""
    segment = 16 << 20 if codec == "none" else 6 << 20
    return LogSpec(f"lookup-{codec}-{batch_bytes}", codec, 1000, sizes.lookup, batch_bytes, segment)


def open_spec(sizes: Sizes) -> LogSpec:
    """A log of about 1,000 segments of 1 MiB."""
    return LogSpec("open", "none", 1000, sizes.open, 16_384, 1 << 20)


def build_ours() -> Path:
    """Builds the Rust counterpart and gives its path."""
    cargo = need("cargo", CARGO_HINT)
    say("building the Rust counterpart")
    run([cargo, "build", "--release", "--locked", "-q", "-p", "offsetlog-benches", "--bin", "ours"])
    return Path(os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))) / "release" / "ours"
