"""How reports look in a notebook: a table of their fields, and in it a table of each list of rows."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TypeVar

__all__ = ["Rows", "report_table"]

T = TypeVar("T")

ROWS_MAX = 100
"""Rows of a list that are shown; what follows is counted."""


class Rows(list[T]):
    """A list of named tuples that a notebook shows as one table: of a plain list it shows the text."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return _rows(self) or "<p>none</p>"


def report_table(report: object) -> str:
    """Return the HTML of a named tuple: a row for each field, in which a tuple of named tuples is a table of its own.

    >>> from offsetlog import TopicPartition
    >>> report_table(TopicPartition("orders", 0))
    '<table><tr><th>topic</th><td>orders</td></tr><tr><th>partition</th><td>0</td></tr></table>'
    """
    rows = "".join(f"<tr><th>{name}</th><td>{_cell(getattr(report, name))}</td></tr>" for name in _names(report))
    return f"<table>{rows}</table>"


def _names(value: object) -> tuple[str, ...]:
    """The fields of a named tuple; of anything else, none."""
    return getattr(value, "_fields", ()) if isinstance(value, tuple) else ()


def _cell(value: object) -> str:
    if _names(value):
        return report_table(value)
    if isinstance(value, (tuple, list)):
        return _rows(value)
    if isinstance(value, Mapping):
        return _rows(tuple(value.values()), tuple(value)) if any(map(_names, value.values())) else _lines(value)
    return "" if value is None else html.escape(str(value))


def _lines(values: Mapping[object, object]) -> str:
    return "<br>".join(f"{html.escape(str(key))}: {_cell(each)}" for key, each in values.items())


def _rows(values: Sequence[object], keys: Sequence[object] | None = None) -> str:
    """Return a table of named tuples; of a mapping's, each behind its key."""
    if not values:
        return ""
    shown, names = values[:ROWS_MAX], _names(values[0])
    more = f"<p>and {len(values) - ROWS_MAX} more</p>" if len(values) > ROWS_MAX else ""
    if not names:
        return "<br>".join(_cell(each) for each in shown) + more
    head = "".join(f"<th>{name}</th>" for name in ("", *names)[keys is None :])
    first = [""] * len(shown) if keys is None else [f"<th>{html.escape(str(key))}</th>" for key in keys]
    cells = ("".join(f"<td>{_cell(getattr(each, name))}</td>" for name in names) for each in shown)
    rows = "".join(f"<tr>{key}{row}</tr>" for key, row in zip(first, cells, strict=False))
    return f"<table><tr>{head}</tr>{rows}</table>{more}"
