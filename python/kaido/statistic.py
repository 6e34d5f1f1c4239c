"""Regression with its confidence band, and tests that tell a change from noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Regression:
    """A straight line through points by least squares."""

    slope: float
    intercept: float
    #: Share of the variance that the line explains.
    r2: float
    count: int
    mean_x: float
    #: Sum of squares of x around its mean.
    sxx: float
    #: Standard deviation of what the line leaves.
    residual: float

    def at(self, x: float) -> float:
        """Return the line's value."""
        return self.intercept + self.slope * x

    def band(self, x: float, confidence: float = 0.95) -> float:
        """Return how far the mean at x may lie from the line, so confident; NaN with two points."""
        if self.count < 3 or self.sxx == 0:
            return math.nan
        t = t_quantile((1 + confidence) / 2, self.count - 2)
        return t * self.residual * math.sqrt(1 / self.count + (x - self.mean_x) ** 2 / self.sxx)


def regress(xs: Sequence[float], ys: Sequence[float]) -> Regression:
    """Fit a line.

    Raises:
        ValueError: With fewer than two different x.

    """
    if len(xs) != len(ys) or len(set(xs)) < 2:
        raise ValueError("a line needs two different x, and a y for each")
    count = len(xs)
    mean_x, mean_y = sum(xs) / count, sum(ys) / count
    sxx = sum((x - mean_x) ** 2 for x in xs)
    sxy = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    syy = sum((y - mean_y) ** 2 for y in ys)
    slope = sxy / sxx
    intercept = mean_y - slope * mean_x
    left = sum((y - intercept - slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    r2 = 1 - left / syy if syy > 0 else 1.0
    residual = math.sqrt(left / (count - 2)) if count > 2 else 0.0
    return Regression(slope, intercept, r2, count, mean_x, sxx, residual)


def t_quantile(share: float, freedom: int) -> float:
    """Return the quantile of Student's t distribution, for a share above one half."""
    return _bisect(lambda t: _t_cdf(t, freedom) - share, 0.0, 1e4)


def _bisect(function: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(200):
        middle = (low + high) / 2
        if function(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _t_cdf(t: float, freedom: int) -> float:
    """Sum of Abramowitz and Stegun 26.7.3 and 26.7.4: exact for whole degrees of freedom."""
    theta = math.atan(t / math.sqrt(freedom))
    cos2 = math.cos(theta) ** 2
    term, total = 1.0, 0.0
    if freedom % 2 == 1:
        if freedom > 1:
            term = math.cos(theta)
            for k in range(1, (freedom - 1) // 2 + 1):
                total += term
                term *= cos2 * (2 * k) / (2 * k + 1)
        inside = 2 / math.pi * (theta + math.sin(theta) * total)
    else:
        for k in range(1, freedom // 2 + 1):
            total += term
            term *= cos2 * (2 * k - 1) / (2 * k)
        inside = math.sin(theta) * total
    return (1 + inside) / 2


#: A line that explains less of the variance than this says nothing, and is not drawn.
TOLD = 0.5


def is_told(line: Regression) -> bool:
    """Whether a line explains what it would be drawn through."""
    return line.r2 >= TOLD


def verdict(difference: float, noise: float) -> str:
    """Say whether a difference is more than its noise: ``more``, ``less`` or ``not resolved``.

    The rule of all verdicts, which the program has too: what lies within its own noise says nothing. The
    noise is the spread of the samples, of both sides where there are two.
    """
    if abs(difference) <= noise:
        return "not resolved"
    return "more" if difference > 0 else "less"


def mann_whitney(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the two-sided p value of the Mann-Whitney U test: how likely such ranks are by chance.

    Exact up to 12 samples without ties on each side, else by the normal approximation with correction for
    ties.
    """
    if not left or not right:
        raise ValueError("both sides need samples")
    u, ties = _u_statistic(left, right)
    n, m = len(left), len(right)
    if not any(ties) and n <= 12 and m <= 12:
        return _exact_p(int(u), n, m)
    mean = n * m / 2
    total = n + m
    tied = sum(t**3 - t for t in ties) / (total * (total - 1)) if total > 1 else 0.0
    sigma = math.sqrt(n * m / 12 * (total + 1 - tied))
    if sigma == 0:
        return 1.0
    z = max(0.0, abs(u - mean) - 0.5) / sigma
    return min(1.0, math.erfc(z / math.sqrt(2)))


def _u_statistic(left: Sequence[float], right: Sequence[float]) -> tuple[float, list[int]]:
    """U of the left side, and the sizes of groups of equal values."""
    ordered = sorted([(value, 0) for value in left] + [(value, 1) for value in right])
    ranks_left, ties, at = 0.0, [], 0
    while at < len(ordered):
        until = at
        while until < len(ordered) and ordered[until][0] == ordered[at][0]:
            until += 1
        rank = (at + 1 + until) / 2
        ranks_left += rank * sum(1 for _, side in ordered[at:until] if side == 0)
        if until - at > 1:
            ties.append(until - at)
        at = until
    return ranks_left - len(left) * (len(left) + 1) / 2, ties


def _exact_p(u: int, n: int, m: int) -> float:
    """Count the arrangements with a U at least as far out."""
    # ways[k][j]: arrangements of k of the left side so far with U of j.
    ways = [[0] * (n * m + 1) for _ in range(n + 1)]
    ways[0][0] = 1
    for value in range(1, n + m + 1):
        for k in range(min(value, n), 0, -1):
            # This value is the k-th of the left side: so many of the right lie below it.
            below = value - k
            if below > m:
                continue
            for j in range(n * m, below - 1, -1):
                ways[k][j] += ways[k - 1][j - below]
    counts = ways[n]
    total = sum(counts)
    far = min(u, n * m - u)
    tail = sum(counts[: far + 1])
    return min(1.0, 2 * tail / total)


def median(values: Sequence[float]) -> float:
    """Return the median."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
