"""The shell blocks about `serve` and `mirror`, in the pages and in the command's help, run on a real broker's directories.

A page names hosts, disks and ports of its reader's. Here each of them stands for something of this machine (`Reader.here`), and that is all that
is changed in a line. What is not run at all is in `NOT_RUN`, with the reason.
"""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS, named
from pages import MODULE, ROOT, Block, blocks, read
from serve_process import READY, SECONDS, refused
from symptom_claims import shown_if_aborted
from test_serve_command import PLACE, consumer, read as offsets_of

from offsetlog import LogDir, Server

CERTIFICATES = ROOT / "rust" / "offsetlog-net" / "tests" / "tls"
KCAT = shutil.which("kcat")
TOPIC = "g-idem"
PARTITIONS = named(f"{TOPIC}-0", f"{TOPIC}-1")
"""A topic that one of the log dirs has whole: kcat waits for a partition that is missing."""
NOT_RUN = {
    "pip install offsetlog": "it asks the package index; tests/python/test_only_the_wheel.py is about an installed wheel",
    "kafka-console-consumer.sh": "it needs a JVM and a broker's jars; tests/net/test_printed_commands.py runs the line as `serve` prints it",
}


def section(page: str, heading: str) -> str:
    """The part of a page below a heading."""
    return read(page).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def help_of(verb: str) -> str:
    """What `--help` shows."""
    return subprocess.run([*MODULE, verb, "--help"], capture_output=True, text=True, check=True).stdout


def of_help(verb: str) -> list[Block]:
    """Its examples: the indented lines, as one block."""
    text = help_of(verb).partition("\nExamples:\n")[2]
    lines: list[str] = []
    for line in re.findall(r"^ {2}(\S.*)$", text.partition("\n\nReads only")[0].partition("\n\nCopies batches")[0], re.MULTILINE):
        # A long line is wrapped.
        if line.startswith(("offsetlog ", "kcat ", "kafka-")):
            lines.append(line)
        else:
            lines[-1] += f" {line}"
    return [Block("sh", "".join(f"{line}\n" for line in lines), 0)]


def of_page(text: str) -> list[Block]:
    return [block for block in blocks(text) if block.language in {"sh", "bash", "console"}]


SOURCES = ("docs/serving.md", "docs/mirroring.md", "docs/cli.md, serve", "docs/cli.md, mirror", "serve --help", "mirror --help")


def sources() -> dict[str, list[Block]]:
    """Every text that tells a reader what to type."""
    return {
        "docs/serving.md": of_page(read("docs/serving.md")),
        "docs/mirroring.md": of_page(read("docs/mirroring.md")),
        "docs/cli.md, serve": of_page(section("docs/cli.md", "serve")),
        "docs/cli.md, mirror": of_page(section("docs/cli.md", "mirror")),
        "serve --help": of_help("serve"),
        "mirror --help": of_help("mirror"),
    }


class Reader:
    """Somebody who types the lines of a block, one after the other, in a folder of their own."""

    def __init__(self, folder: Path, kafka: str) -> None:
        self._folder = folder
        self._servers: list[subprocess.Popen[str]] = []
        self.address = ""
        """Of the last server at the usual address."""
        self.ran: list[str] = []
        (folder / "users").write_text("reader=a secret\n")
        (folder / "client.properties").write_text("security.protocol=PLAINTEXT\n")
        for name, file in (("server.pem", "server.pem"), ("server.key", "server.key"), ("key.pem", "server.key")):
            shutil.copy(CERTIFICATES / file, folder / name)
        self.here = {
            # A reader's disks, and the topic that is on them.
            "/mnt/dead/kafka-logs": str(CLEAN_LOG_DIRS[0]),
            "/disk1/kafka": str(CLEAN_LOG_DIRS[0]),
            "/disk2/kafka": str(CLEAN_LOG_DIRS[1]),
            "backup": str(CLEAN_LOG_DIRS[0]),
            "orders": TOPIC,
            # Where their copies go to.
            "/backup/kafka": str(folder / "copy"),
            "/backup/orders": str(folder / "copy-of-one"),
            "/backup/all": str(folder / "copy-of-all"),
            # Their cluster.
            "kafka-1:9092": kafka,
            "kafka-1:9092,kafka-2:9092": f"{kafka},{kafka}",
            # Fixed ports are others' here; what is advertised stays, because nobody connects to it.
            "127.0.0.1:9092": "127.0.0.1:0",
            "0.0.0.0:9093": "0.0.0.0:0",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.terminate()
            assert server.wait(SECONDS) == 0
            assert server.stdout is not None
            server.stdout.close()

    def types(self, line: str) -> None:
        """Run a line. A server goes on behind it, as with `&` or in a terminal of its own."""
        words = [self.here.get(word, word) for word in shlex.split(line.removesuffix(" &"))]
        if words[0] == "kcat":
            if KCAT is None:
                pytest.skip("no kcat (apt-get install kcat)")
            self._kcat(words)
        elif words[:2] == ["offsetlog", "serve"]:
            self._serve(words[1:])
        elif words[:2] == ["offsetlog", "mirror"] and "--once" not in words:
            self._mirror(words[1:])
        else:
            assert words[0] == "offsetlog", line
            self._run([*MODULE, *words[1:]])
        self.ran.append(line)

    def _run(self, words: list[str]) -> str:
        done = subprocess.run(words, cwd=self._folder, capture_output=True, text=True, errors="replace", check=False, timeout=SECONDS)
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def _kcat(self, words: list[str]) -> None:
        """It gets every record of the topic. Values may have line ends, so sizes are asked for."""
        words = [self.address if word == self.here["127.0.0.1:9092"] else word for word in words]
        printed = self._run([str(KCAT), *words[1:], "-f", "%S "])
        sizes = [-1 if row.value is None else len(row.value) for golden in PARTITIONS for row in golden.rows]
        assert sorted(map(int, printed.split())) == sorted(sizes)

    def _serve(self, words: list[str]) -> None:
        is_usual = "--listen" not in words
        if is_usual:
            words += ["--listen", self.here["127.0.0.1:9092"]]
        server = subprocess.Popen([*MODULE, *words], cwd=self._folder, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self._servers.append(server)
        assert server.stdout is not None
        said = list(_until_ready(server.stdout))
        assert said[-1] == READY, said
        assert any(re.match(rf"{TOPIC} +\d", line) for line in said), said
        (address,) = re.findall(r"^Serving .* at (\S+), as broker", "".join(said), re.MULTILINE)
        if is_usual:
            self.address = address

    def _mirror(self, words: list[str]) -> None:
        """It runs until it is interrupted, here when it has all."""
        into = Path(words[words.index("--into") + 1])
        mirror = subprocess.Popen([*MODULE, *words], cwd=self._folder, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        end = time.monotonic() + SECONDS
        while not self._has_all(into):
            assert mirror.poll() is None, mirror.returncode
            assert time.monotonic() < end
            time.sleep(0.05)
        mirror.send_signal(signal.SIGINT)
        assert mirror.wait(SECONDS) == 130

    @staticmethod
    def _has_all(into: Path) -> bool:
        def size(log_dir: Path, name: str) -> int:
            return sum(file.stat().st_size for file in (log_dir / name).glob("*.log"))

        return all(size(into, golden.name) == size(golden.directory.parent, golden.name) for golden in PARTITIONS)


def _until_ready(stream: Iterator[str]) -> Iterator[str]:
    for line in stream:
        yield line
        if line == READY:
            return


def is_left_out(line: str) -> bool:
    return any(line.startswith(known) for known in NOT_RUN)


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    """The cluster that is mirrored: that of the examples, another one, and one with an open transaction."""
    topics = [TOPIC, "g-plain", "g-txn", "__transaction_state"]
    with Server([*CLEAN_LOG_DIRS, CLEAN / "metadata-dir"], topics=topics) as server:
        yield server.bootstrap_servers


@pytest.mark.parametrize(
    "source", [pytest.param(name, marks=pytest.mark.proof if "--help" in name else pytest.mark.slow) for name in SOURCES]
)
def test_every_line_runs(source: str, kafka: str, tmp_path: Path) -> None:
    found = sources()[source]
    assert all(block.language == "sh" for block in found)
    lines = [line for block in found for line in block.text.splitlines()]
    with Reader(tmp_path, kafka) as reader:
        for line in lines:
            if not is_left_out(line):
                reader.types(line)
        assert reader.ran == [line for line in lines if not is_left_out(line)]
    for copy in tmp_path.glob("copy*"):
        with LogDir.open(copy) as log_dir:
            assert log_dir.topics()[TOPIC]
            for golden in PARTITIONS:
                with log_dir.log(TOPIC, golden.partition) as log:
                    assert log.log_end_offset == golden.end


@pytest.mark.slow
def test_open_transactions_of_a_copy_end_as_the_page_says(kafka: str, tmp_path: Path) -> None:
    """With its two lines, in a directory that was copied without the coordinator's records. Before them nobody can tell."""
    (block,) = of_page(section("docs/mirroring.md", "Open transactions"))
    mirror, serve = block.text.splitlines()
    without = mirror.removesuffix(" -t __transaction_state")
    assert without != mirror
    (golden,) = named("g-txn-0")
    place = PLACE._replace(topic=golden.topic)
    with Reader(tmp_path, kafka) as reader:
        reader.types(without)
        copy = tmp_path / "copy"
        assert not list(copy.glob("__transaction_state-*"))
        words = [reader.here.get(word, word) for word in shlex.split(serve)]
        assert words[:2] == ["offsetlog", "serve"]
        assert "no partition of __transaction_state is here" in refused(*words[2:], "--listen", "127.0.0.1:0")
        reader.types(mirror)
        for line, end, rows in (
            ("offsetlog serve /backup/kafka", golden.last_stable_offset, golden.committed),
            (serve, golden.end, shown_if_aborted(golden)),
        ):
            reader.types(line)
            with consumer(reader, isolation_level="read_committed") as found:
                assert found.end_offsets([place]) == {place: end}
                assert offsets_of(found, place, golden.start, end) == [row.offset for row in rows]
    assert len(shown_if_aborted(golden)) > len(golden.committed)


def test_every_source_has_lines_and_nothing_else_is_left_out() -> None:
    """A page that is written anew, or a help of another form, is noticed."""
    lines = {source: [line for block in found for line in block.text.splitlines()] for source, found in sources().items()}
    assert lines.keys() == set(SOURCES)
    assert all(lines[source] for source in lines if source != "docs/cli.md, serve"), lines
    assert len(lines["serve --help"]) == 5
    every = [line for found in lines.values() for line in found]
    for known in NOT_RUN:
        assert any(line.startswith(known) for line in every), known


def test_the_screen_is_what_the_page_shows() -> None:
    """docs/cli.md shows it for the golden log dir; `...` stands for lines that it leaves out."""
    (block,) = (block for block in blocks(section("docs/cli.md", "serve")) if block.language == "text")
    command, *shown = block.text.splitlines()
    assert command == "$ offsetlog serve /mnt/dead/kafka-logs"
    words = [*MODULE, "serve", str(CLEAN_LOG_DIRS[0]), "--metadata", str(CLEAN / "metadata-dir"), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            said = "".join(_until_ready(server.stdout))
        finally:
            server.terminate()
            assert server.wait(SECONDS) == 0
    said = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:9092", said)
    pattern = r"\n".join(r"(?:.+\n)*.+" if line == "..." else re.escape(line) for line in shown)
    assert re.fullmatch(f"{pattern}\n", said), said
