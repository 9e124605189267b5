"""What a run of the tests tells at its end, and which differences they show; one place for all modules of a test process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from differences import Difference

SEED = "OFFSETLOG_HISTORY_SEED"
REPORTS: list[tuple[str, str]] = []
MET: Counter[str] = Counter()
SHOWN: set[str] = set()

Test = TypeVar("Test", bound=Callable[..., Any])


def shows(difference: Difference) -> Callable[[Test], Test]:
    """Says that a test shows a difference; all of the table have to be shown (``test_every_difference``)."""

    def mark(test: Test) -> Test:
        SHOWN.add(difference.name)
        return test

    return mark
