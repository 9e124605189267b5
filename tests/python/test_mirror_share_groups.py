"""A mirror of a source with share groups tells them: to Python, on the terminal and as JSON.

`serve` has no share groups, so a go-between adds one to its list of groups.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden import CLEAN_LOG_DIRS
from pages import MODULE

from offsetlog import MirrorEvent, Server, mirror

LIST_GROUPS = 16
WARNING = "share group jobs is not copied: in the copy it begins anew, where share.auto.offset.reset says"


def compact(text: str) -> bytes:
    """A short string as flexible versions have it."""
    return bytes([len(text) + 1]) + text.encode()


JOBS = compact("jobs") + compact("share") + compact("Stable") + compact("share") + b"\0"


def with_jobs(answer: bytes) -> bytes:
    """The answer to `ListGroups` 5 with one group more: id, protocol type, state, type. The count is a byte for fewer than 127 groups."""
    # Correlation id, tags, throttle time, error.
    head = 4 + 1 + 4 + 2
    count = answer[head]
    assert count < 127
    return answer[:head] + bytes([count + 1]) + JOBS + answer[head + 1 :]


def exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def frame(connection: socket.socket) -> bytes:
    return exactly(connection, *struct.unpack(">i", exactly(connection, 4)))


def pass_requests(client: socket.socket, server: socket.socket, asked: deque[tuple[int, int]]) -> None:
    with contextlib.suppress(OSError, EOFError):
        while True:
            request = frame(client)
            api, version = struct.unpack_from(">hh", request)
            asked.append((api, version))
            server.sendall(struct.pack(">i", len(request)) + request)
    server.close()


def pass_answers(client: socket.socket, server: socket.socket, asked: deque[tuple[int, int]]) -> None:
    """Answers come in the order of the requests."""
    with contextlib.suppress(OSError, EOFError):
        while True:
            answer = frame(server)
            if asked.popleft() == (LIST_GROUPS, 5):
                answer = with_jobs(answer)
            client.sendall(struct.pack(">i", len(answer)) + answer)
    client.close()


@pytest.fixture
def source() -> Iterator[str]:
    """The address of a source that has a share group beside its others."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.2", port))
                asked: deque[tuple[int, int]] = deque()
                for passing in (pass_requests, pass_answers):
                    threading.Thread(target=passing, args=(client, server, asked), daemon=True).start()

    # The port is free on another loopback address too. Clients are told ours.
    address = f"127.0.0.1:{port}"
    with Server(CLEAN_LOG_DIRS, topics=["g-plain"], listen=f"127.0.0.2:{port}", advertise=address), listener:
        threading.Thread(target=accept, daemon=True).start()
        yield address


def test_python_is_told(source: str, tmp_path: Path) -> None:
    events: list[MirrorEvent] = []
    report = mirror(source, tmp_path / "copy", once=True, event=events.append)
    assert (report.is_complete, report.has_losses, report.share_groups) == (True, False, 1)
    assert report.groups > 0
    (warning,) = (event for event in events if event.kind == "warning")
    assert warning.message == WARNING
    assert warning.broker is not None
    assert mirror(source, tmp_path / "records", once=True, groups=False).share_groups == 0


def run(source: str, into: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = [*MODULE, "mirror", "--bootstrap", source, "--into", str(into), "--once", *words]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=300, stdin=subprocess.DEVNULL)


def test_a_terminal_is_told(source: str, tmp_path: Path) -> None:
    done = run(source, tmp_path)
    assert done.returncode == 0, done.stderr
    assert WARNING in done.stderr
    assert done.stdout.endswith(" groups, not of 1 share group\n")
    # Nothing went wrong, so `-q` says no more than the line on standard output.
    quiet = run(source, tmp_path, "-q")
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert quiet.stdout.endswith(" groups, not of 1 share group\n")


def test_json_lines_tell(source: str, tmp_path: Path) -> None:
    done = run(source, tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    *lines, whole = map(json.loads, done.stdout.splitlines())
    assert whole["share_groups"] == 1
    (warning,) = (line for line in lines if line.get("event") == "warning")
    assert warning["message"] == WARNING
