"""`offsetlog serve`, the command: what a client may cost, and what its operator is told, as docs/serving.md and docs/cli.md say it."""

from __future__ import annotations

import re
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import pytest
from golden import CLEAN, CLEAN_LOG_DIRS, DATA, Golden, expected_names, named
from kafka_wire import CORRUPT_MESSAGE, Wire
from pages import MODULE, read
from prometheus_client.parser import text_string_to_metric_families
from serve_process import ServeProcess, refused

LOG_DIR = CLEAN / "log-dir-1"
TORN = DATA / "kafka-4.3.0" / "torn"
API_VERSIONS, METADATA, FETCH = 18, 3, 1
SECONDS = 300
MIB = 1 << 20
KEYS = ["time_ms", "level", "event", "peer", "text"]
"""Of each event, by docs/cli.md."""


def is_answered(wire: Wire, api: int, version: int, body: bytes) -> bool:
    """Whether an answer comes; otherwise the server ends the connection."""
    request = struct.pack(">hhih", api, version, 7, -1) + body
    wire.socket.sendall(struct.pack(">i", len(request)) + request)
    try:
        return wire.socket.recv(1) != b""
    except ConnectionResetError:
        return False


def topics(count: int) -> bytes:
    """Metadata 1 of so many topics that are not there."""
    return struct.pack(">i", count) + struct.pack(">h5s", 5, b"away!") * count


# --- Bounds.


class Limit(NamedTuple):
    """An option, and what the page says of it."""

    option: str
    default: int
    lowest: int
    highest: int | None


def number(text: str) -> int:
    """`16 MiB`, `1,024` or `600 s`."""
    (digits, unit), *_ = re.findall(r"^([\d,]+) ?(MiB|s)?", text)
    return int(digits.replace(",", "")) * (MIB if unit == "MiB" else 1)


def documented() -> list[Limit]:
    """The options of the table in docs/serving.md."""
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| `(--[a-z-]+)` \| ([^|]+) \|$", read("docs/serving.md"), re.MULTILINE)
    found = []
    for default, option, bounds in rows:
        lowest, _, highest = bounds.removeprefix("from ").partition(" to ")
        found.append(Limit(option, number(default), number(lowest), number(highest) if highest else None))
    return found


LIMITS = documented()


def test_the_page_has_every_limit_of_the_command() -> None:
    """With its default, as the help has it."""
    told = subprocess.run([*MODULE, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    options = re.findall(r"(--max-[a-z-]+|--idle-timeout) <\w+>.*?\[default: (\d+)\]", told, re.DOTALL)
    assert {option: int(default) for option, default in options} == {limit.option: limit.default for limit in LIMITS}
    assert len(LIMITS) == 4


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.option)
def test_what_is_out_of_bounds_is_refused_before_anything_is_opened(limit: Limit, tmp_path: Path) -> None:
    """What is within them comes as far as to look for the path, which is not there."""
    missing = tmp_path / "missing"
    for value in [limit.lowest - 1, -1, *([limit.highest + 1] if limit.highest else [])]:
        error = refused(missing, "--listen", "127.0.0.1:0", f"{limit.option}={value}")
        assert limit.option in error, error
        assert "missing" not in error, error
    for value in [limit.lowest, *([limit.highest] if limit.highest else [])]:
        error = refused(missing, "--listen", "127.0.0.1:0", limit.option, str(value))
        assert limit.option not in error, error
        assert f"{tmp_path.name}/missing" in error, error


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--until now", "--until"),
        ("--open-transactions abort", "--open-transactions"),
        ("--tls-cert server.pem", "--tls-key"),
        ("--tls-key server.key", "--tls-cert"),
        ("--tls-client-ca ca.pem", "--tls-cert"),
        ("--max-connections many", "--max-connections"),
        ("--idle-timeout 1.5", "--idle-timeout"),
        ("--listen nowhere", "'nowhere' is not HOST:PORT"),
        ("--advertise nowhere", "'nowhere' is not HOST:PORT"),
        ("--metrics 9404", "'9404' is not HOST:PORT"),
        ("--pattern g-*", "--pattern"),
    ],
)
def test_what_is_no_value_is_refused_by_name(words: str, expected: str, tmp_path: Path) -> None:
    """Before the path is looked for, which is not there."""
    error = refused(tmp_path / "missing", *words.split(), *([] if "--listen" in words else ["--listen", "127.0.0.1:0"]))
    assert error.startswith("offsetlog: "), error
    assert expected in error, error
    assert "missing" not in error, error


# --- What the limits do.


def test_connections_above_the_limit_wait(tmp_path: Path) -> None:
    with ServeProcess(tmp_path, LOG_DIR, "-t", "g-plain", "--max-connections", "1") as server:
        first, second = Wire(server.address), Wire(server.address)
        first.ask(API_VERSIONS, 0, b"")
        second.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            second.ask(API_VERSIONS, 0, b"")
        # It has sent its request, and gets the answer when there is room.
        first.socket.close()
        second.socket.settimeout(SECONDS)
        assert len(second.socket.recv(4)) == 4
        assert len(server.lines()) == 1


def test_a_longer_request_ends_its_connection(tmp_path: Path) -> None:
    """With 1,024 bytes; what the length has in front of it does not count."""
    with ServeProcess(tmp_path, LOG_DIR, "-t", "g-plain", "--max-request-bytes", "1024") as server:
        fits = topics((1024 - 10 - 4) // 7)
        assert is_answered(Wire(server.address), METADATA, 1, fits)
        assert not is_answered(Wire(server.address), METADATA, 1, fits + bytes(1025 - 10 - len(fits)))
        event = server.event("request-length")
        assert "1024" in event["text"]
        Wire(server.address).ask(API_VERSIONS, 0, b"")


def test_a_request_of_more_values_than_memory_has_room_for_ends_its_connection(tmp_path: Path) -> None:
    """At up to 600 bytes a value a mebibyte has room for 1,700 of them; up to 4,096 are always answered."""
    words = (LOG_DIR, "-t", "g-plain")
    with ServeProcess(tmp_path, *words, "--max-memory-bytes", str(MIB)) as server:
        assert is_answered(Wire(server.address), METADATA, 1, topics(1_500))
        assert not is_answered(Wire(server.address), METADATA, 1, topics(20_000))
        # Counted and logged; others are served.
        assert server.event("protocol")["level"] == "warning"
        Wire(server.address).ask(API_VERSIONS, 0, b"")
    with ServeProcess(tmp_path, *words) as server:
        assert is_answered(Wire(server.address), METADATA, 1, topics(20_000))


def test_a_connection_without_requests_ends(tmp_path: Path) -> None:
    """After a second, when it is told so; that is counted, and no event."""
    with ServeProcess(tmp_path, LOG_DIR, "-t", "g-plain", "--idle-timeout", "1", "--metrics", "127.0.0.1:0") as server:
        wire = Wire(server.address)
        for _ in range(3):
            time.sleep(0.5)
            wire.ask(API_VERSIONS, 0, b"")
        began = time.monotonic()
        assert wire.socket.recv(1) == b""
        assert 0.9 < time.monotonic() - began < 60
        assert value(scrape(server), "offsetlog_serve_connections_ended_total", reason="idle") == 1
        assert len(server.lines()) == 1


# --- Metrics.

Sample = tuple[str, tuple[tuple[str, str], ...]]
LINE = re.compile(
    r'# HELP [a-z_]+ \S.*|# TYPE [a-z_]+ (?:counter|gauge)|[a-z_]+(?:\{[a-z]+="(?:[^"\\]|\\.)*"(?:,[a-z]+="(?:[^"\\]|\\.)*")*\})? -?\d+'
)


def scrape(server: ServeProcess) -> dict[Sample, float]:
    """What Prometheus would get, by its own parser: each sample by its name and labels."""
    with urlopen(f"http://{server.served['metrics']}/metrics", timeout=SECONDS) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    for line in text.splitlines():
        assert LINE.fullmatch(line), line
    found: dict[Sample, float] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
            # The parser takes the end of a counter's name away.
            assert family.type == ("counter" if sample.name.endswith("_total") else "gauge"), sample
    return found


def value(found: dict[Sample, float], name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


def documented_metrics() -> dict[str, tuple[str, ...]]:
    """The names of the table in docs/serving.md, with their labels."""
    rows = re.findall(r"^\| `(offsetlog_serve_\w+)` \|([^|]*)\|", read("docs/serving.md"), re.MULTILINE)
    return {name: tuple(sorted(re.findall(r"`(\w+)`", labels))) for name, labels in rows}


def test_prometheus_gets_what_the_page_names(tmp_path: Path) -> None:
    """Names and labels; the offsets are those of Kafka's consumer."""
    with ServeProcess(tmp_path, *CLEAN_LOG_DIRS, CLEAN / "metadata-dir", "--metrics", "127.0.0.1:0") as server:
        wire = Wire(server.address)
        wire.ask(API_VERSIONS, 0, b"")
        # The answer to a request that is not announced is the end of its connection.
        assert not is_answered(Wire(server.address), 999, 0, b"")
        server.event("protocol")
        # The connection gives its place back a moment after its end is told.
        end = time.monotonic() + SECONDS
        while value(found := scrape(server), "offsetlog_serve_connections") != 1:
            assert time.monotonic() < end, found
            time.sleep(0.01)
    assert {name: tuple(label for label, _ in labels) for name, labels in found} == documented_metrics()
    for name in expected_names("kafka-4.3.0-clean"):
        golden = Golden(DATA / "expected" / "kafka-4.3.0-clean", Path(name))
        if golden.topic.startswith("__"):
            continue
        labels = {"topic": golden.topic, "partition": str(golden.partition)}
        assert value(found, "offsetlog_serve_log_start_offset", **labels) == golden.start
        assert value(found, "offsetlog_serve_log_end_offset", **labels) == golden.end
        assert value(found, "offsetlog_serve_last_stable_offset", **labels) == golden.last_stable_offset
        assert value(found, "offsetlog_serve_partition_ok", **labels) == 1
    assert value(found, "offsetlog_serve_requests_total", api="ApiVersions") == 1
    assert value(found, "offsetlog_serve_requests_total", api="unknown") == 1
    assert value(found, "offsetlog_serve_connections_accepted_total") == 2
    assert value(found, "offsetlog_serve_connections_ended_total", reason="protocol") == 1
    # Length, header and no body, twice.
    assert value(found, "offsetlog_serve_received_bytes_total") == 2 * (4 + 10)
    assert value(found, "offsetlog_serve_metadata_errors_total") == 0


def test_damage_is_counted(tmp_path: Path) -> None:
    """Of a partition that is damaged, and of one that a broker left behind without a directory."""
    with ServeProcess(tmp_path, TORN / "log-dir-1", "-t", "g-torn-flip-old", "--metrics", "127.0.0.1:0") as server:
        assert value(scrape(server), "offsetlog_serve_damage_total") == 0
        assert fetch_error(Wire(server.address), "g-torn-flip-old", 36) == CORRUPT_MESSAGE
        found = scrape(server)
        assert value(found, "offsetlog_serve_damage_total") == 1
        assert value(found, "offsetlog_serve_partition_ok", topic="g-torn-flip-old", partition="0") == 0
        event = server.event("damage")
    assert event["level"] == "error"
    # File and position.
    assert "g-torn-flip-old-0/00000000000000000032.log" in event["text"]
    assert "294" in event["text"]


def fetch_error(wire: Wire, topic: str, offset: int) -> int:
    """The error of a Fetch 4 of partition 0."""
    body = struct.pack(">iiiibi", -1, 0, 0, MIB, 0, 1) + struct.pack(f">h{len(topic)}s", len(topic), topic.encode())
    answer = wire.ask(FETCH, 4, body + struct.pack(">iiqi", 1, 0, offset, MIB))
    (error,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)
    return int(error)


# --- JSON lines.


def objects(page: str, heading: str) -> dict[str, list[str]]:
    """The table of objects and their fields below a heading: the object's name, or nothing for the line itself."""
    section = read(page).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`|]+)` \| (`[^|]+) \|$", section, re.MULTILINE)
    return {name: re.findall(r"`(\w+)`", fields) for name, fields in rows}


def test_each_line_has_the_documented_fields(tmp_path: Path) -> None:
    """What is served comes first, then what happens: here a client that speaks HTTP, and a topic that appears."""
    log_dir = tmp_path / "logs"
    (log_dir / "g-plain-0").parent.mkdir()
    shutil.copy(LOG_DIR / "meta.properties", log_dir)
    shutil.copytree(LOG_DIR / "g-plain-0", log_dir / "g-plain-0")
    fields = objects("docs/serving.md", "Watching it")
    began = time.time() * 1000
    with ServeProcess(tmp_path, log_dir, "--metrics", "127.0.0.1:0") as server:
        wire = Wire(server.address)
        wire.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert wire.socket.recv(1) == b""
        warned = server.event("request-length")
        peer = "{}:{}".format(*wire.socket.getsockname())
        shutil.copytree(LOG_DIR / "g-idem-0", log_dir / "g-idem-0")
        told = server.event("changed")
        served, *events = server.lines()
    assert list(served) == fields["serving"]
    (topic,) = served["topics"]
    assert list(topic) == fields["topics"]
    (partition,) = topic["partitions"]
    assert list(partition) == fields["partitions"]
    assert (served["event"], served["warnings"]) == ("serving", [])
    assert (partition["path"], partition["problem"]) == (str(log_dir / "g-plain-0"), None)
    assert served["listen"] == [served["bootstrap_servers"]]
    assert re.fullmatch(r"127\.0\.0\.1:\d+", served["metrics"])
    (golden,) = named("g-plain-0")
    assert (partition["log_start_offset"], partition["log_end_offset"]) == (golden.start, golden.end)
    (cluster_id,) = re.findall(r"cluster\.id=(\S+)", (LOG_DIR / "meta.properties").read_text())
    assert served["cluster_id"] == cluster_id
    assert fields["each event"] == KEYS
    for line in events:
        assert list(line) == KEYS
        assert began - 1 <= line["time_ms"] <= time.time() * 1000
        assert line["level"] in {"info", "warning", "error"}
    assert (warned["level"], warned["peer"]) == ("warning", peer)
    assert (told["level"], told["peer"]) == ("info", None)
    assert "g-idem" in told["text"]


def is_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    finally:
        connection.close()


def test_quiet_leaves_only_errors(tmp_path: Path) -> None:
    """A client's mistake is a warning; what is damaged is an error."""
    for words, expected in [((), ["request of", "damage at offset 36"]), (("-q",), ["damage at offset 36"])]:
        with ServeProcess(tmp_path, TORN / "log-dir-1", "-t", "g-torn-flip-old", *words, json=False) as server:
            (address,) = re.findall(r" at (127\.0\.0\.1:\d+),", server.said())
            flood = socket.create_connection((address.partition(":")[0], int(address.partition(":")[2])), timeout=SECONDS)
            flood.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert is_ended(flood)
            assert fetch_error(Wire(address), "g-torn-flip-old", 36) == CORRUPT_MESSAGE
            assert server.stop() == 0
            assert [part for part in ("request of", "damage at offset 36") if in_lines(part, server.logged().splitlines())] == expected


def in_lines(part: str, lines: Iterable[str]) -> bool:
    return any(part in line for line in lines)
