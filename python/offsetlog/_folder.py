"""``folder_kind``: classifies a folder by its contents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from offsetlog import _offsetlog
from offsetlog._options import path_text

if TYPE_CHECKING:
    from offsetlog._options import PathLike

__all__ = ["FolderKind", "folder_kind"]

FolderKind: TypeAlias = Literal["partition", "log_dir", "around_log_dirs", "zookeeper", "other"]


def folder_kind(path: PathLike) -> FolderKind:
    """Return what a folder is: this is what decides how every call and command takes it.

    ``"partition"``: it holds segments or other files of a partition. ``"log_dir"``: it holds ``meta.properties``, a checkpoint of
    all partitions, another file that only log dirs have, or partitions. ``"around_log_dirs"``: it contains log dirs, and is
    refused with their paths. ``"zookeeper"``: the data of a ZooKeeper server, which :meth:`LogDir.open` takes beside log dirs.
    ``"other"``: none of these, an empty folder among them. Its name says nothing: ``log-dir-1`` may be any of them. Reads names
    only, those in the folder and up to two levels below.

    Raises
    ------
    OSError
        The folder cannot be listed.

    Examples
    --------
    >>> folder_kind("tests/data/kafka-4.3.0/clean"), folder_kind("tests/data/kafka-4.3.0/clean/log-dir-1")
    ('around_log_dirs', 'log_dir')
    >>> folder_kind("tests/data/kafka-4.3.0/clean/log-dir-1/g-plain-0")
    'partition'
    """
    return _offsetlog.folder_kind(path_text(path))
