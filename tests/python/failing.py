"""Runs something in a child of its own that fails at a given point, or dies there: files that may not grow, calls that the system refuses.

A limit of file sizes makes the first write beyond it fail, or kills the process. A seccomp filter does the same at the first call of a kind:
what root may do too, so that no test needs another user or a folder that is read-only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Callable
from typing import NamedTuple

# What the system calls are on x86_64; elsewhere only file sizes are limited.
CALLS = {
    "rename": (82, 264, 316),
    "unlink": (84, 87, 263),
    "mkdir": (83, 258),
    "sync": (74, 75),
    "set size": (76, 77, 285),
}
# fcntl, and what it is to do.
FCNTL, GET_LOCK = 72, 5
ALLOW, KILL, FAIL = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EIO
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER = 38, 22, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06

_libc = ctypes.CDLL(None, use_errno=True)


class Point(NamedTuple):
    """Where it fails."""

    what: str | int
    """A kind of calls, or the size beyond which no file grows."""
    kills: bool

    def __str__(self) -> str:
        where = f"the first {self.what}" if isinstance(self.what, str) else f"files of {self.what} bytes"
        return f"{'killed' if self.kills else 'refused'} at {where}"


class Ended(NamedTuple):
    """How the child ended."""

    is_killed: bool
    failure: str
    """What it raised, or said with an exit code; empty if it did its work."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def can_filter() -> bool:
    """Whether the numbers above are those of this machine's system."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def limit(point: Point) -> None:
    """From now on this process, and what it starts, fails there."""
    if isinstance(point.what, int):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if point.kills else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (point.what, point.what))
        return
    numbers = CALLS[point.what]
    rules = [(LOAD, 0, 0, 0)]
    rules += [(JUMP_IF_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    rules += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, KILL if point.kills else FAIL)]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _load(rules)


def refuse_to_tell_locks(error: int) -> None:
    """From now on this process cannot ask who holds a lock: the system gives this error."""
    # The second argument of the call, in the lower half of its 64 bits.
    rules = [(LOAD, 0, 0, 0), (JUMP_IF_EQUAL, 0, 2, FCNTL), (LOAD, 0, 0, 24), (JUMP_IF_EQUAL, 1, 0, GET_LOCK)]
    _load([*rules, (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, 0x00050000 | error)])


def _load(rules: list[tuple[int, int, int, int]]) -> None:
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *rule) for rule in rules))
    program = _Program(len(rules), ctypes.addressof(code))
    if _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or _libc.prctl(PR_SET_SECCOMP, FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def in_child(prepare: Callable[[], Callable[[], str]], point: Point) -> Ended:
    """Prepare in a child, limit it, and call what was prepared, which says what failed; nothing is closed then."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        said = "not prepared"
        try:
            call = prepare()
            limit(point)
            said = call()
        except BaseException as error:  # noqa: BLE001  # told to the parent
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(writes, said.encode()[:60_000])
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return Ended(os.WIFSIGNALED(status), said)
