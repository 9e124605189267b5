"""Formats what a commit publishes, for its note, for error texts and for log messages."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from offsetlog._commit.notes import Commit
from offsetlog._text import counted

__all__ = ["counts", "noted_contents", "summary", "told_contents", "when"]


def noted_contents(contents: Mapping[str, tuple[int, int]]) -> tuple[tuple[str, int, str], ...]:
    """Return the number of records of each topic, and their digest, as a note has them."""
    return tuple((topic, count, f"{digest:032x}") for topic, (count, digest) in sorted(contents.items()) if count)


def counts(note: Commit) -> dict[str, int]:
    """Return how many records a commit has of each topic."""
    found: dict[str, int] = {}
    for target in note.targets:
        found[target.topic] = found.get(target.topic, 0) + target.records
    return {topic: count for topic, count in found.items() if count}


def told_contents(given: tuple[tuple[str, int, str], ...]) -> str:
    """Return the contents of a commit for an error."""
    return (
        ", ".join(f"{counted(count, 'record')} of topic {topic!r} (digest {digest})" for topic, count, digest in given) or "no records"
    )


def summary(note: Commit) -> str:
    """Return how many records a commit publishes, and where."""
    topics: list[str] = []
    for topic, count in counts(note).items():
        of_topic = [target for target in note.targets if target.topic == topic]
        places = [f"{each.partition}: {each.start} to {each.end if each.end >= 0 else '?'}" for each in of_topic[:4]]
        more = f" and {len(of_topic) - 4} more" if len(of_topic) > 4 else ""  # noqa: PLR2004  # a line, not a page
        topics.append(f"{counted(count, 'record')} of topic {topic!r} (offsets of partition {', '.join(places)}{more})")
    return "; ".join(topics) or "no records"


def when(note: Commit) -> str:
    """Return when a note was written."""
    return f"{dt.datetime.fromtimestamp(note.time / 1000, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
