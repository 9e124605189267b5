"""Splits the options that Spark hands over into ours and those that Spark adds, and reads paths out of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NoReturn

from offsetlog.spark.refusal import refuse, shown

__all__ = ["as_given", "as_one_path", "refuse_pattern", "refuse_store"]

# What Spark keeps of a table beside its options.
_OF_TABLES = {"provider", "owner", "external", "is_managed_location", "serialization.format"}
_TABLE_OPTION = "option."
NO_OPTIONS = (
    "is missing, as are all other options: .load(path), .save(path); Spark (up to 4.3 at least) keeps none of a catalog table's for a "
    "Python source: make a view of it, CREATE TEMPORARY VIEW ... USING offsetlog OPTIONS (path '...', subscribe '...')"
)


def as_given(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options without what Spark adds for tables: ``location``, and each option once more as ``option.<name>``.

    A table whose location was given (``LOCATION``, or ``path`` as an option) has it as ``path``; where neither is there, Spark makes
    up a place in its warehouse, which stays as ``path`` too.
    """
    if not options:
        refuse("path", "", NO_OPTIONS)
    plain: dict[str, str] = {}
    for name, text in options.items():
        folded = name.lower()
        if folded not in _OF_TABLES and folded != "location" and not folded.startswith(_TABLE_OPTION):
            plain[name] = text
    known = {name.lower() for name in plain}
    for name, text in options.items():
        base = name[len(_TABLE_OPTION) :]
        if name.lower().startswith(_TABLE_OPTION) and base.lower() not in known:
            plain[base] = text
            known.add(base.lower())
    for name, text in options.items():
        if name.lower() == "location" and not {"path", "paths"} & known:
            plain["path"] = text
    return plain


def as_one_path(text: str) -> bool:
    """Return whether a text with commas is the name of one folder: ``load([path])`` of one path is a text to us.

    Raises
    ------
    ConfigError
        It is, and its parts are folders too.
    """
    if "," not in text or not os.path.isdir(text):
        return False
    if all(os.path.isdir(part.strip()) for part in text.split(",") if part.strip()):
        refuse(
            "path", text, f"{shown(text)} is one folder, and its parts are folders too; write the commas of one as %2C after file://"
        )
    return True


def refuse_pattern(path: str) -> None:
    """Refuse a path whose missing folders look like a pattern, which Spark's file sources would expand.

    A folder that is there may be called so, and a write may make a new one inside it.
    """
    there = path
    while there and not os.path.lexists(there) and os.path.dirname(there) != there:
        there = os.path.dirname(there)
    if any(sign in path[len(there) :] for sign in "*?[{"):
        refuse("path", path, f"{shown(path)} is not there, and patterns are not expanded; name the log dirs, with commas between them")


def refuse_store(path: str) -> NoReturn:
    """Refuse what lies in an object store or on another machine."""
    reason = f"only files that every worker sees under a local path can be read and written, found {shown(path)}: copy or mount them"
    refuse("path", path, reason)
