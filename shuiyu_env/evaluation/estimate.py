"""Means with confidence intervals, and tables of them."""

from __future__ import annotations

__all__ = ["CONFIDENCE", "Estimate", "student_t", "text_table"]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

#: Two-sided confidence of all intervals.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean in units per deal, with its 95 % confidence interval.

    Attributes:
        mean: the mean over deals.
        standard_error: of the mean.
        low, high: the interval, by Student's t.
    """

    mean: float
    standard_error: float
    low: float
    high: float

    @classmethod
    def of(cls, values: npt.NDArray[np.float64]) -> Estimate:
        """Return the estimate from one value for each of at least two independent deals."""
        count = len(values)
        mean = float(values.mean())
        error = float(values.std(ddof=1)) / math.sqrt(count)
        half = student_t(0.5 + CONFIDENCE / 2, count - 1) * error
        return cls(mean, error, mean - half, mean + half)

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ± {self.high - self.mean:.3f}"


def student_t(probability: float, degrees: int) -> float:
    """Return a quantile of Student's t distribution, for probabilities from 0.5 to 0.995.

    Exact for one and two degrees of freedom; beyond, by the expansion of
    Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.5, within
    0.3 % at the 97.5 % quantile.
    """
    if degrees == 1:
        return math.tan(math.pi * (probability - 0.5))
    if degrees == 2:
        return (2 * probability - 1) / math.sqrt(2 * probability * (1 - probability))
    z = NormalDist().inv_cdf(probability)
    terms: tuple[float, ...] = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return math.fsum(term / degrees**power for power, term in enumerate(terms))


def text_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a title and a table with aligned columns, the first to the left."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        return "  ".join([first[0].ljust(first[1]), *(c.rjust(w) for c, w in others)]).rstrip()

    return "\n".join([title, line(head), *map(line, rows)])
