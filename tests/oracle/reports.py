"""What a run of the tests tells at its end, and which differences they show; one place for all modules of a test process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from _pytest.mark import ParameterSet
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


def placed(count: int, early: int) -> list[ParameterSet]:
    """Numbers of chunks of random cases: the first ``early`` run in ``make test``, all others in ``make proof``."""
    return [pytest.param(number, marks=() if number < early else pytest.mark.proof) for number in range(count)]
