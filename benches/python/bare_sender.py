"""The least that a server of files can do, for the limit of row 43: a range of a file from the disk's cache to a socket, by sendfile.

`python bare_sender.py FILE...` listens on loopback, prints its port, and answers one connection after the other until its standard input
ends. A request is the number of a file, an offset and a length, and its answer are these bytes and nothing else.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
from pathlib import Path

REQUEST = struct.Struct(">iqq")
PIECE = 48 << 10
"""Bytes of one sendfile, as `serve` sends them: larger ones wait for the reader with half of the window unused."""

SEND_BUFFER = 200 << 10
"""Of the socket, as `serve` sets it for a client on the same machine."""


def answer(connection: socket.socket, files: list[int]) -> None:
    """All requests of a connection."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    with connection, connection.makefile("rb") as requests:
        while request := requests.read(REQUEST.size):
            number, offset, left = REQUEST.unpack(request)
            while left > 0:
                sent = os.sendfile(connection.fileno(), files[number], offset, min(left, PIECE))
                if sent == 0:
                    return
                offset, left = offset + sent, left - sent


def main(paths: list[str]) -> None:
    """Serve these files."""
    files = [os.open(Path(path), os.O_RDONLY) for path in paths]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)

        def accept() -> None:
            while True:
                answer(listener.accept()[0], files)

        threading.Thread(target=accept, daemon=True).start()
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
