"""Ratios of two commits, from rounds in pairs: the interval, when rounds are enough, and what it says. Pure, and tested by itself."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# «Not slower» of CONTRIBUTING.md.
NOT_SLOWER = 0.95
# Half of an interval, as a part of the ratio, at which no more rounds are added. A change of nothing is then told from one of 5 %.
NARROW = 0.02
MOST_PAIRS = 40
# Quantiles 0.975 of Student's t, for 1 to 30 degrees of freedom.
T_QUANTILES = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
# A clock that did not advance is no cost of nothing.
LEAST_SECONDS = 1e-9


@dataclass(frozen=True)
class Interval:
    """A ratio, old cost over new cost (above 1: the new one is faster), and the 95 % interval around it."""

    ratio: float
    low: float
    high: float
    pairs: int

    @property
    def verdict(self) -> str:
        """What can be said."""
        if self.low >= NOT_SLOWER:
            return "not slower"
        return "slower" if self.high < 1 else "unclear: more rounds"


def t_quantile(degrees: int) -> float:
    """The 0.975 quantile of Student's t with so many degrees of freedom (at least 1), to three digits."""
    if degrees <= len(T_QUANTILES):
        return T_QUANTILES[degrees - 1]
    z = statistics.NormalDist().inv_cdf(0.975)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def log_ratios(old: Sequence[float], new: Sequence[float]) -> list[float]:
    """Of each pair."""
    return [math.log(max(before, LEAST_SECONDS) / max(after, LEAST_SECONDS)) for before, after in zip(old, new, strict=True)]


def interval(old: Sequence[float], new: Sequence[float]) -> Interval:
    """The geometric mean of the pairs' ratios, and its 95 % interval; at least two pairs."""
    # Student's t on the logs, and no bootstrap: pairs are few and independent, and there a bootstrap's intervals are too narrow.
    logs = log_ratios(old, new)
    middle = statistics.fmean(logs)
    half = t_quantile(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half), len(logs))


def pairs_wanted(costs: Sequence[tuple[Sequence[float], Sequence[float]]], most: int = MOST_PAIRS) -> int:
    """How many pairs make every interval narrow, judged by the spread of those that there are; at most `most`.

    Only the spread decides, never the ratio: a run that stopped when it liked the verdict would give intervals that are wrong.
    """
    spread = max(statistics.stdev(log_ratios(old, new)) for old, new in costs)
    enough = math.log1p(NARROW)
    for pairs in range(len(costs[0][0]), most):
        if t_quantile(pairs - 1) * spread / math.sqrt(pairs) <= enough:
            return pairs
    return most
