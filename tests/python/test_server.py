"""``offsetlog.Server``: what Python adds to serving; what clients see is in ``tests/net``."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import metadata_records
import pytest

import offsetlog
from offsetlog import ConfigError, LogClosedError, LogDirError, Server, ServerEvent

LOG_DIR = Path("tests/data/kafka-4.3.0/clean/log-dir-1")
CERTIFICATES = Path("rust/offsetlog-net/tests/tls")


def ask(connection: socket.socket) -> bytes:
    """Return the body of the answer to an ApiVersions 0."""
    body = struct.pack(">hhih", 18, 0, 7, -1)
    connection.sendall(struct.pack(">i", len(body)) + body)
    (length,) = struct.unpack(">i", read(connection, 4))
    answer = read(connection, length)
    assert struct.unpack_from(">ih", answer) == (7, 0)
    return answer


def read(connection: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        part = connection.recv(count - len(got))
        if not part:
            raise EOFError
        got += part
    return got


def connected(kafka: Server) -> socket.socket:
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=300)


def test_it_answers_from_the_constructor_on_until_it_is_stopped() -> None:
    kafka = Server(LOG_DIR)
    assert kafka.running
    assert repr(kafka) == f"<offsetlog.Server {kafka.bootstrap_servers}>"
    with connected(kafka) as connection:
        ask(connection)
        assert kafka.connections == 1
        kafka.stop()
        assert connection.recv(1) == b""
    kafka.stop()
    assert repr(kafka) == "<offsetlog.Server stopped>"
    with pytest.raises(ConnectionRefusedError):
        connected(kafka)
    with pytest.raises(LogClosedError):
        kafka.metrics()


def test_the_block_stops_it_also_when_it_fails() -> None:
    with pytest.raises(KeyError), Server(LOG_DIR) as kafka:
        raise KeyError
    assert not kafka.running


def test_a_server_that_nobody_holds_is_stopped() -> None:
    kafka = Server([LOG_DIR])
    connection = connected(kafka)
    ask(connection)
    del kafka
    assert connection.recv(1) == b""
    connection.close()


def test_the_end_of_the_interpreter_stops_it() -> None:
    script = """
        import offsetlog, socket
        kafka = offsetlog.Server("tests/data/kafka-4.3.0/clean/log-dir-1")
        host, _, port = kafka.bootstrap_servers.rpartition(":")
        connection = socket.create_connection((host, int(port)))
        print("ends", flush=True)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")


def test_a_forked_child_leaves_it_to_the_parent() -> None:
    with Server(LOG_DIR) as kafka:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                kafka.stop()
                code = 0 if not kafka.running else 2
                del kafka
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with connected(kafka) as connection:
            ask(connection)


def test_a_forked_child_that_lives_on_keeps_nothing_open() -> None:
    """The child has copies of all descriptors: the parent's stop ends all the same, and nobody is connected afterwards."""
    ends, end = os.pipe()
    kafka = Server(LOG_DIR)
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    child = os.fork()
    if child == 0:
        os.close(end)
        os.read(ends, 1)
        os._exit(0 if kafka.connections == 0 and kafka.events() == [] else 1)
    os.close(ends)
    stopped = threading.Thread(target=kafka.stop)
    stopped.start()
    stopped.join(120)
    is_stopped = not stopped.is_alive()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 120).close()
    os.close(end)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    stopped.join(120)
    assert is_stopped


def test_what_is_served_is_not_mapped() -> None:
    with pytest.raises(ConfigError, match="mapped"):
        Server(LOG_DIR, mapped=True)  # type: ignore[call-arg]


def test_python_runs_while_many_threads_ask() -> None:
    with Server(LOG_DIR) as kafka:

        def talk() -> None:
            with connected(kafka) as connection:
                for _ in range(50):
                    ask(connection)

        threads = [threading.Thread(target=talk) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
        assert 'offsetlog_serve_requests_total{api="ApiVersions"} 400\n' in kafka.metrics()


def test_what_happens_is_told() -> None:
    with Server(LOG_DIR) as kafka:
        with connected(kafka) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert connection.recv(1) == b""
        event = next(event for event in iter(lambda: kafka.events()[:1], None) if event)[0]
        assert (event.level, event.kind) == ("warning", "request-length")
        assert event.peer is not None
        assert event.peer.startswith("127.0.0.1:")
        assert kafka.events() == []


def test_metadata_is_followed_by_a_thread_that_ends_with_the_server(tmp_path: Path) -> None:
    metadata_records.write(tmp_path, [metadata_records.topic("t", bytes(range(16)))])

    def runs() -> bool:
        found = False
        for name in Path("/proc/self/task").glob("*/comm"):
            with contextlib.suppress(OSError):
                found |= name.read_text().strip() == "offsetlog-metad"
        return found

    def wait_until(what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 300
        while not what():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    with Server(tmp_path) as kafka:
        # A thread sets its name itself, and is listed for a moment after its end.
        wait_until(runs)
        shutil.rmtree(tmp_path / "__cluster_metadata-0")
        events: list[ServerEvent] = []

        def is_told() -> bool:
            events.extend(kafka.events())
            return bool(events)

        wait_until(is_told)
        assert [(event.level, event.kind) for event in events] == [("error", "metadata-not-read")]
        assert "offsetlog_serve_metadata_errors_total 1\n" in kafka.metrics()
    wait_until(lambda: not runs())


def test_prometheus_can_ask() -> None:
    with Server(LOG_DIR, metrics="127.0.0.1:0") as kafka:
        with urlopen(f"http://{kafka.metrics_address}/metrics", timeout=300) as answer:
            text = answer.read().decode()
        assert 'offsetlog_serve_log_end_offset{topic="g-plain",partition="0"} 200\n' in text


def test_tls_by_pythons_own(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("ann=secret\n")
    own, key = CERTIFICATES / "server.pem", CERTIFICATES / "server.key"
    with Server(LOG_DIR, tls_certificate=own, tls_key=key, users=users) as kafka:
        context = ssl.create_default_context(cafile=CERTIFICATES / "ca.pem")
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context.minimum_version = context.maximum_version = version
            with connected(kafka) as plain, context.wrap_socket(plain, server_hostname="localhost") as connection:
                ask(connection)
                # Anything else needs a user.
                connection.sendall(struct.pack(">ihhihi", 14, 3, 0, 7, -1, 0))
                assert connection.recv(1) == b""
        assert "ann" not in str(kafka.events())
    with Server(LOG_DIR, tls_certificate=own, tls_key=key, tls_client_ca=CERTIFICATES / "ca.pem") as kafka:
        context = ssl.create_default_context(cafile=CERTIFICATES / "ca.pem")
        with (
            pytest.raises((ssl.SSLError, EOFError, ConnectionError)),
            connected(kafka) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            ask(connection)
        context.load_cert_chain(CERTIFICATES / "client.pem", CERTIFICATES / "client.key")
        with connected(kafka) as plain, context.wrap_socket(plain, server_hostname="localhost") as connection:
            ask(connection)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"listen": "0.0.0.0:0"}, "insecure=True"),
        ({"listen": "0.0.0.0:0", "insecure": True}, "advertise"),
        ({"listen": "nowhere"}, "is not HOST:PORT"),
        ({"metrics": "0.0.0.0:0"}, "metrics"),
        ({"topics": ["missing"]}, "no topic missing is here"),
        ({"until": "now"}, "until"),
        ({"open_transactions": "abort"}, "open_transactions"),
        ({"without_state": True}, "open_transactions='decide'"),
        ({"max_connections": 0}, "at least 1"),
        ({"tls_certificate": CERTIFICATES / "server.pem"}, "needs its key"),
        ({"users": CERTIFICATES / "missing"}, "missing"),
        ({"users": CERTIFICATES / "README.md"}, "line 1"),
        ({"advertise": "0:9092"}, "no client can connect"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        Server(LOG_DIR, **options)  # type: ignore[arg-type]  # wrong on purpose


def test_an_address_in_use_is_an_os_error() -> None:
    with Server(LOG_DIR) as kafka, pytest.raises(OSError, match="cannot listen at") as raised:
        Server(LOG_DIR, listen=kafka.bootstrap_servers)
    assert raised.value.errno is not None


def test_paths_are_refused_as_everywhere() -> None:
    with pytest.raises(FileNotFoundError):
        Server("tests/data/missing")
    # A folder that somebody named for the metadata and that has none is no reason for a warning alone.
    with pytest.raises(LogDirError, match="__cluster_metadata"):
        Server(LOG_DIR, metadata="tests/data/missing")
    with pytest.raises(TypeError):
        Server(LOG_DIR, topics="g-plain")
    assert offsetlog.Server is Server
