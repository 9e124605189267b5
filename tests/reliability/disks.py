"""File systems to be broken: images in memory behind loop devices, mounted where nobody else sees them, and their power switch.

Everything hangs on this process: mounts stand in a mount namespace of its own, loop devices free themselves when their file system
is unmounted. A test process that is killed leaves nothing behind.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rows import Row

MEMORY = Path("/dev/shm")  # noqa: S108  # images in memory: what is synced there costs no disk
CLONE_NEWNS, MS_RDONLY, MS_REC, MS_PRIVATE, MNT_DETACH = 0x20000, 1, 0x4000, 1 << 18, 2
LOOP_CTL_GET_FREE, LOOP_CONFIGURE, LO_FLAGS_AUTOCLEAR = 0x4C82, 0x4C0A, 4
# Of ext4, xfs and others: stop at once, and do not write the journal out first.
FS_IOC_SHUTDOWN, LOG_FLUSH, NO_LOG_FLUSH = 0x8004587D, 1, 2
SIZES = {"ext4": 64 << 20, "xfs": 300 << 20}

_libc = ctypes.CDLL(None, use_errno=True)


class MissingError(Exception):
    """What these tests need is not to be had here."""


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{name}: {os.strerror(errno)}")


@functools.cache
def own_mounts() -> None:
    """Give this process a mount namespace of its own."""
    if os.geteuid() != 0:
        msg = "not root: file systems cannot be mounted"
        raise MissingError(msg)
    try:
        _call("unshare", CLONE_NEWNS)
        _call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    except OSError as error:
        msg = f"no mount namespace: {error}"
        raise MissingError(msg) from error


def need(*programs: str) -> None:
    """Say which program is missing."""
    packages = {"mkfs.xfs": "xfsprogs", "mkfs.ext4": "e2fsprogs", "strace": "strace"}
    for program in programs:
        if shutil.which(program) is None:
            msg = f"no {program} (apt-get install {packages.get(program, program)})"
            raise MissingError(msg)


@functools.cache
def folder() -> Path:
    """Where images lie: in memory if the machine allows that."""
    parent = MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else None
    made = tempfile.TemporaryDirectory(prefix="offsetlog-power-", dir=parent, ignore_cleanup_errors=True)
    # It goes with the process.
    _kept.append(made)
    return Path(made.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []


@functools.cache
def fresh_image(kind: str, size: int = 0) -> Path:
    """An empty file system in a sparse file; copies of it are cheap."""
    need(f"mkfs.{kind}")
    image = folder() / f"fresh-{kind}-{size}"
    with image.open("wb") as file:
        file.truncate(size or SIZES[kind])
    options = {"ext4": ["-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1"], "xfs": ["-q", "-f"]}[kind]
    subprocess.run([f"mkfs.{kind}", *options, str(image)], check=True, capture_output=True, timeout=300)
    return image


def copy_image(source: Path, target: Path) -> None:
    """Copy the parts of a sparse file that hold something."""
    with source.open("rb") as file, target.open("wb") as into:
        size = source.stat().st_size
        into.truncate(size)
        end = 0
        while True:
            try:
                start = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError:
                return
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            while start < end:
                start += os.copy_file_range(file.fileno(), into.fileno(), end - start, start, start)


def attach(image: Path) -> tuple[int, str]:
    """A loop device over the image, which frees itself when nobody uses it: its descriptor and path."""
    backing = os.open(image, os.O_RDWR | os.O_CLOEXEC)
    control = -1
    try:
        control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
        for _ in range(50):
            number = fcntl.ioctl(control, LOOP_CTL_GET_FREE)
            path = f"/dev/loop{number}"
            if not Path(path).exists():
                os.mknod(path, 0o600 | 0o060000, os.makedev(7, number))
            device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            info = struct.pack("<QQQQQIIII64s64s32sQQ", *([0] * 5), 0, 0, 0, LO_FLAGS_AUTOCLEAR, bytes(64), bytes(64), bytes(32), 0, 0)
            try:
                fcntl.ioctl(device, LOOP_CONFIGURE, struct.pack("<II", backing, 0) + info + bytes(64))
            except OSError:
                # Somebody else was faster.
                os.close(device)
                continue
            return device, path
    except OSError as error:
        msg = f"no loop device: {error}"
        raise MissingError(msg) from error
    finally:
        os.close(backing)
        if control >= 0:
            os.close(control)
    msg = "no free loop device"
    raise MissingError(msg)


def mount(kind: str, source: str, target: Path, options: str = "") -> None:
    """Mount a file system."""
    _call("mount", source.encode(), str(target).encode(), kind.encode(), 0, options.encode())


def unmount(target: Path, *, lazily: bool = False) -> None:
    """Unmount it."""
    _call("umount2", str(target).encode(), MNT_DETACH if lazily else 0)


@contextmanager
def mounted_image(kind: str, image: Path, options: str = "") -> Iterator[Path]:
    """Mount an image behind a loop device for a while."""
    own_mounts()
    target = image.with_name(image.name + ".mount")
    target.mkdir(exist_ok=True)
    device, path = attach(image)
    try:
        mount(kind, path, target, options)
    finally:
        # From now on the mount alone holds it.
        os.close(device)
    try:
        yield target
    except BaseException:
        # What the error holds may keep files open.
        unmount(target, lazily=True)
        raise
    unmount(target)


@functools.cache
def need_disk(kind: str) -> None:
    """Say why a kind of file system cannot be mounted here."""
    own_mounts()
    tried = folder() / f"tried-{kind}"
    copy_image(fresh_image(kind), tried)
    try:
        with mounted_image(kind, tried):
            pass
    except OSError as error:
        msg = f"{kind} cannot be mounted: {error}"
        raise MissingError(msg) from error
    tried.unlink()


@contextmanager
def mounted_memory(size: int) -> Iterator[Path]:
    """A tmpfs of so many bytes."""
    own_mounts()
    target = Path(tempfile.mkdtemp(prefix="tmpfs-", dir=folder()))
    mount("tmpfs", "tmpfs", target, f"size={size}")
    try:
        yield target
    except BaseException:
        unmount(target, lazily=True)
        raise
    unmount(target)


def cut_power(mounted: Path, how: int = NO_LOG_FLUSH) -> None:
    """Stop a file system as a power cut does: what is not on its device yet never will be. `LOG_FLUSH` writes its journal out first."""
    root = os.open(mounted, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(root, FS_IOC_SHUTDOWN, struct.pack("<I", how))
    finally:
        os.close(root)


def write_out(mounted: Path) -> None:
    """Write out what the system holds back for one file system, as it does every few seconds by itself."""
    root = os.open(mounted, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _libc.syncfs(root)
    finally:
        os.close(root)


def drop_caches() -> None:
    """Make the system forget what it can read again."""
    Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")


@contextmanager
def needed(part: Row) -> Iterator[None]:
    """Skip a part of a row, with the reason, when something in the block is not to be had here."""
    try:
        yield
    except MissingError as error:
        part.skip(str(error))
