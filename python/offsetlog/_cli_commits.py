"""``offsetlog commits``: lists the notes of commits in a log dir. Its help is the compiled module's, as for all verbs."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from offsetlog._commit.listing import commits, forget_commit
from offsetlog._commit.notes import Commit
from offsetlog.errors import OffsetLogError

__all__ = ["run"]

FINE, NOTHING, ERROR = 0, 1, 2


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"offsetlog: {message}\n\nFor more information, try 'offsetlog commits --help'.\n")
        sys.exit(ERROR)


def run(arguments: Sequence[str]) -> int:
    """Run the verb, and return the exit code."""
    parser = _Parser(prog="offsetlog commits", add_help=False, allow_abbrev=False)
    parser.add_argument("path")
    parser.add_argument("--forget")
    parser.add_argument("--unfinished", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--color", choices=("auto", "always", "never"))
    given = parser.parse_args(arguments)
    if given.unfinished and given.forget is None:
        parser.error("--unfinished is for --forget NAME")
    try:
        if given.forget is not None:
            lines = _told([forget_commit(given.path, given.forget, unfinished=given.unfinished)], is_json=given.json)
        else:
            lines = _told(commits(given.path), is_json=given.json)
            if not lines:
                return NOTHING
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe; nothing more is written when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OffsetLogError, OSError) as error:
        sys.stderr.write(f"offsetlog: {error}\n")
        return ERROR
    return FINE


def _told(notes: Sequence[Commit], *, is_json: bool) -> list[str]:
    if is_json:
        return [json.dumps(_fields(note)) for note in notes]
    if not notes:
        return []
    rows = [("NAME", "MICRO-BATCH", "STATE", "AT", "RECORDS", "PARTITIONS")]
    for note in notes:
        sequence = "-" if note.sequence is None else str(note.sequence)
        places = ",".join(_shown(target.name) for target in note.targets[:4]) or "-"
        more = f" and {len(note.targets) - 4} more" if len(note.targets) > 4 else ""  # noqa: PLR2004  # a line, not a page
        rows.append((_shown(note.name), sequence, _state(note), _time(note.time), str(note.records), places + more))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    right = {1, 4}
    return [
        "  ".join(
            cell.rjust(width) if at in right else cell.ljust(width) for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _fields(note: Commit) -> dict[str, object]:
    return {
        "name": note.name,
        "sequence": note.sequence,
        "state": _state(note),
        "time": note.time,
        "records": note.records,
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "start": each.start,
                "end": each.end if each.end >= 0 else None,
                "records": each.records,
            }
            for each in note.targets
        ],
    }


def _state(note: Commit) -> str:
    return "published" if note.is_published else "undoing" if note.is_undoing else "unfinished"


def _time(milliseconds: int) -> str:
    moment = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shown(text: str) -> str:
    return text.encode("unicode_escape").decode() if not text.isprintable() else text
