"""How reports look in a notebook: a table of their fields, and in it a table of each list of rows."""

from __future__ import annotations

import html
from collections.abc import Mapping

__all__ = ["report_table"]

ROWS_MAX = 100
"""Rows of a list that are shown; what follows is counted."""


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
        return "<br>".join(f"{html.escape(str(key))}: {_cell(each)}" for key, each in value.items())
    return "" if value is None else html.escape(str(value))


def _rows(values: tuple[object, ...] | list[object]) -> str:
    if not values:
        return ""
    shown, names = values[:ROWS_MAX], _names(values[0])
    more = f"<p>and {len(values) - ROWS_MAX} more</p>" if len(values) > ROWS_MAX else ""
    if not names:
        return "<br>".join(_cell(each) for each in shown) + more
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = "".join("<tr>" + "".join(f"<td>{_cell(getattr(each, name))}</td>" for name in names) + "</tr>" for each in shown)
    return f"<table><tr>{head}</tr>{rows}</table>{more}"
