"""The page of the Python API names every public function and class, and every verb where it is defined."""

from __future__ import annotations

import inspect
import re
from functools import reduce
from pathlib import Path
from typing import Any

import offsetlog

ROOT = Path(__file__).resolve().parents[2]


def is_code(value: object) -> bool:
    return inspect.isroutine(value) or inspect.isclass(value)


def entries() -> set[object]:
    """What has an entry; with one that shows its inherited members, the classes that it inherits them from."""
    found: set[object] = set()
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    for name, options in re.findall(r"^::: (\S+)\n((?:    .*\n)*)", page, re.MULTILINE):
        first, *others = name.split(".")
        assert first == "offsetlog"
        value: Any = reduce(getattr, others, offsetlog)
        if inspect.ismodule(value):
            members = re.search(r"members: \[(.*)\]", options)
            found |= {
                getattr(value, each) for each in (members[1].split(", ") if members else vars(value)) if is_code(getattr(value, each))
            }
        else:
            found |= set(value.__mro__) if "inherited_members: true" in options else {value}
    return found


def test_every_name_has_an_entry() -> None:
    found = entries()
    missing = [name for name in offsetlog.__all__ if is_code(value := getattr(offsetlog, name)) and value not in found]
    assert missing == []


def test_every_verb_has_an_entry() -> None:
    """mkdocstrings leaves out what a class inherits, unless it is told."""
    found = entries()
    public = [getattr(offsetlog, name) for name in offsetlog.__all__]
    classes = [value for value in public if inspect.isclass(value) and not issubclass(value, tuple | BaseException)]
    missing = [
        f"{kind.__name__}.{verb}"
        for kind in classes
        for of in kind.__mro__
        if of.__module__.startswith("offsetlog") and of not in found
        for verb in vars(of)
        if not verb.startswith("_")
    ]
    assert missing == []
    assert len(classes) > 8
