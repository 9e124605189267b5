"""A file whose every write is seen, and can be refused: ``python fuse_file.py IMAGE MOUNTPOINT RECORD``.

A loop device over such a file is a disk that this process owns. It talks to the kernel by FUSE's own protocol, without a library; the
root of what it mounts is the file itself. Each write and each flush is written down in RECORD before it is done, in the order in
which they came. Commands come as lines and are answered by one: ``refuse HEX`` answers each write that contains these bytes with EIO,
``heal`` stops that and tells how many were refused.
"""

from __future__ import annotations

import ctypes
import enum
import errno
import os
import stat
import struct
import sys
import threading
import time

BIG_WRITES, MAX_PAGES, DIRECT_IO = 1 << 5, 1 << 22, 1
LARGEST_WRITE = 1 << 20
IN_HEADER, OUT_HEADER = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ")
# Time, 1 for a flush and 0 for a write, position, number of bytes that follow.
RECORD = struct.Struct("<QBQI")
WRITTEN, FLUSHED = 0, 1


class Ask(enum.IntEnum):
    """What the kernel asks, of all that it can."""

    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    INTERRUPT = 36
    BATCH_FORGET = 42


class RefusedError(Exception):
    """The answer is an error of the system."""


class FuseFile:
    """Serves one image."""

    def __init__(self, image: str, target: str, record: str) -> None:
        self.image = os.open(image, os.O_RDWR)
        self.record = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.size = os.fstat(self.image).st_size
        self.refused = 0
        self.marker = b""
        self.fuse = os.open("/dev/fuse", os.O_RDWR)
        libc = ctypes.CDLL(None, use_errno=True)
        options = f"fd={self.fuse},rootmode={stat.S_IFREG:o},user_id=0,group_id=0,max_read={LARGEST_WRITE}"
        if libc.mount(b"fuse", target.encode(), b"fuse", 6, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), "mount of a FUSE file")

    def obey(self) -> None:
        """Take commands."""
        for line in sys.stdin:
            word, _, rest = line.strip().partition(" ")
            if word == "refuse":
                self.marker, self.refused = bytes.fromhex(rest), 0
            else:
                self.marker = b""
            print(self.refused, flush=True)

    def serve(self) -> None:
        """Answer the kernel until the file is unmounted."""
        while True:
            try:
                request = os.read(self.fuse, LARGEST_WRITE + 4096)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                return
            _, opcode, unique, *_ = IN_HEADER.unpack_from(request)
            try:
                answer = self.answer(opcode, request)
            except RefusedError as error:
                os.write(self.fuse, OUT_HEADER.pack(16, -error.args[0], unique))
                continue
            if answer is not None:
                os.write(self.fuse, OUT_HEADER.pack(16 + len(answer), 0, unique) + answer)

    def answer(self, opcode: int, request: bytes) -> bytes | None:  # noqa: PLR0911  # one for each question
        """The payload of an answer, or none at all."""
        match opcode:
            case Ask.INIT:
                major, _, ahead = struct.unpack_from("<III", request, 40)
                return struct.pack("<IIIIHHIIHH", major, 31, ahead, BIG_WRITES | MAX_PAGES, 64, 48, LARGEST_WRITE, 1, 256, 0) + bytes(
                    32
                )
            case Ask.GETATTR | Ask.SETATTR:
                now = int(time.time())
                times = struct.pack("<QQQQQQIII", 1, self.size, self.size // 512, now, now, now, 0, 0, 0)
                return struct.pack("<QII", 3600, 0, 0) + times + struct.pack("<IIIIIII", stat.S_IFREG | 0o600, 1, 0, 0, 0, 4096, 0)
            case Ask.OPEN:
                # What the loop device writes goes here at once, and is kept nowhere on the way.
                return struct.pack("<QIi", 1, DIRECT_IO, 0)
            case Ask.READ:
                position, count = struct.unpack_from("<QI", request, 48)
                return os.pread(self.image, count, position)
            case Ask.WRITE:
                return self.write(request)
            case Ask.FSYNC:
                os.write(self.record, RECORD.pack(time.time_ns(), FLUSHED, 0, 0))
                return b""
            case Ask.STATFS:
                return struct.pack("<QQQQQIIII", self.size // 4096, 0, 0, 1, 0, 4096, 255, 4096, 0) + bytes(24)
            case Ask.RELEASE | Ask.FLUSH:
                return b""
            case Ask.FORGET | Ask.INTERRUPT | Ask.BATCH_FORGET:
                return None
            case _:
                raise RefusedError(errno.ENOSYS)

    def write(self, request: bytes) -> bytes:
        """A write, unless it is refused."""
        position, count = struct.unpack_from("<QI", request, 48)
        data = request[80 : 80 + count]
        if self.marker and self.marker in data:
            self.refused += 1
            raise RefusedError(errno.EIO)
        os.writev(self.record, [RECORD.pack(time.time_ns(), WRITTEN, position, count), data])
        os.pwrite(self.image, data, position)
        return struct.pack("<II", count, 0)


if __name__ == "__main__":
    served = FuseFile(*sys.argv[1:])
    threading.Thread(target=served.obey, daemon=True).start()
    print("ready", flush=True)
    served.serve()
    os._exit(0)
