"""Numbers with what they count, for messages."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a number with what it counts: ``1 record``, ``2 records``; `noun` is the word for one.

    >>> counted(1, "entry"), counted(0, "batch"), counted(2, "record")
    ('1 entry', '0 batches', '2 records')
    """
    if count == 1:
        return f"{count} {noun}"
    if noun.endswith("y") and noun[-2:-1] not in "aeou":
        return f"{count} {noun[:-1]}ies"
    return f"{count} {noun}{'es' if noun.endswith(('s', 'x', 'ch')) else 's'}"
