"""Which stream a micro-batch is of: the id that Spark wrote into its checkpoint, and what older versions noted instead.

A stream was once known by the text of its ``checkpointLocation``, which does not show that a checkpoint was removed and
recreated, and differs for one that is named in two ways. Notes of that time are honoured where they are this stream's.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyspark import TaskContext

from offsetlog._commit.notes import Commit, locked, note_of, remove, write
from offsetlog._commit.publishing import settled
from offsetlog._commit.whereabouts import unmark
from offsetlog.errors import ConfigError

__all__ = ["forget_old", "inherit", "plan_of", "query_id"]

logger = logging.getLogger("offsetlog")

PROPERTY = "sql.streaming.queryId"


def query_id() -> str:
    """Return the id of the stream whose task this is.

    Raises
    ------
    ConfigError
        Spark does not say it here.
    """
    context = TaskContext.get()
    found = context.getLocalProperty(PROPERTY) if context is not None else None
    if not found:
        message = (
            f"option queryId: is needed here: Spark does not tell this task of which stream it is ({PROPERTY}); give each stream a "
            "queryId of its own, and a new one where its checkpoint is made anew"
        )
        raise ConfigError(message, key="queryId", value="")
    return found


def plan_of(location: str, sequence: int) -> str | None:
    """Return what tells a micro-batch from every other one: its checkpoint's place, and what Spark wrote there when it planned it.

    Spark writes offsets and time of a micro-batch once. Run again, it has the same; planned again, or in a copy of the checkpoint, it
    has not. ``None`` where that cannot be read here.
    """
    folder = _folder(location)
    if folder is None:
        return None
    try:
        planned = Path(folder, "offsets", str(sequence)).read_bytes()
    except OSError:
        return None
    return hashlib.sha256(os.fsencode(os.path.realpath(folder)) + b"\0" + planned).hexdigest()[:32]


def inherit(log_dir: str, name: str, location: str, sequence: int, counts: Mapping[str, int]) -> None:
    """Make the note that an older version kept for a checkpoint's location the stream's own, where it is of the same stream.

    Only while the stream has no note by its id, and only where the micro-batch could have been published then.

    Raises
    ------
    ConfigError
        It is unknown whether the micro-batch is published already.
    """
    old = _old_note(log_dir, name, location)
    if old is None or old.sequence is None or sequence > old.sequence:
        return
    made = _made(location, name)
    # A stream that begins passes its first numbers, and has a note by its id before it comes to a later one.
    if not sequence == old.sequence > 0:
        if made is None:
            # Spark repeats the last micro-batch alone.
            goes_on = f"If it is, give the option queryId with the value {location!r}; if" if sequence == old.sequence else "If"
            message = (
                f"micro-batch {sequence} may be published already: an older offsetlog noted micro-batches up to {old.sequence} of a "
                f"stream with checkpointLocation {location!r}, and whether that is this one cannot be told, as the checkpoint's file "
                f"metadata cannot be read here. {goes_on} the checkpoint was made anew since, remove the old note: offsetlog commits "
                f"--forget {old.name!r} {log_dir}"
            )
            raise ConfigError(message, key="queryId", value=location)
        if made > old.time:
            # The checkpoint is younger than the note: another stream's.
            return
    noted: dict[str, int] = {}
    for target in old.targets:
        noted[target.topic] = noted.get(target.topic, 0) + target.records
    if sequence == old.sequence and {**noted} != {topic: count for topic, count in counts.items() if count}:
        message = (
            f"micro-batch {sequence} of the stream with checkpointLocation {location!r} was published by an older offsetlog with "
            f"{noted} records, and has {dict(counts)} now: it is not known which of them are there. If the checkpoint was made anew "
            f"since, remove the old note: offsetlog commits --forget {old.name!r} {log_dir}"
        )
        raise ConfigError(message, key="queryId", value=location)
    logger.warning("%s: goes on with the note of %s, up to micro-batch %d", name, old.name, old.sequence)
    with locked(log_dir):
        # Another driver of the stream may have done so since, and have gone on.
        if note_of(log_dir, name) is None:
            write(log_dir, old._replace(name=name))
        remove(log_dir, old.name)
        unmark(log_dir, old)


def forget_old(log_dir: str, name: str, location: str) -> None:
    """Remove the note by location of a stream that has one by its id, where it is certain that it is of the same stream."""
    old = None if location == "" else note_of(log_dir, f"query {location}")
    if old is None or old.name == name or not old.is_published:
        return
    made = _made(location, name)
    if made is not None and made <= old.time:
        with locked(log_dir):
            remove(log_dir, old.name)
            unmark(log_dir, old)


def _old_note(log_dir: str, name: str, location: str) -> Commit | None:
    old_name = f"query {location}"
    if not location or old_name == name or note_of(log_dir, name) is not None:
        return None
    return settled(log_dir, old_name)


def _made(location: str, name: str) -> int | None:
    """Return when a checkpoint was made, in ms since 1970; ``None`` where it cannot be read here, or is another stream's by now."""
    folder = _folder(location)
    if folder is None:
        return None
    path = Path(folder, "metadata")
    try:
        if f"query {json.loads(path.read_text())['id']}" != name:
            return None
        return path.stat().st_mtime_ns // 1_000_000
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _folder(location: str) -> str | None:
    """Return a checkpoint's folder; ``None`` where it is not on this machine, or not known."""
    if re.match("[a-zA-Z][a-zA-Z0-9+.-]+:/", location) is not None:
        parts = urlsplit(location)
        return unquote(parts.path) if parts.scheme == "file" else None
    return location or None
