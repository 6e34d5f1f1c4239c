"""Regression and rank tests against what is known."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kaido.statistic import mann_whitney, median, regress, t_quantile


@given(st.floats(-100, 100), st.floats(-1000, 1000), st.lists(st.integers(0, 5000), min_size=3, unique=True))
def test_a_straight_line_is_found(slope: float, intercept: float, xs: list[int]) -> None:
    """Without noise the line is the line, and the band has no width."""
    line = regress([float(x) for x in xs], [intercept + slope * x for x in xs])
    assert line.slope == pytest.approx(slope, abs=1e-6) and line.intercept == pytest.approx(
        intercept, abs=1e-3
    )
    assert line.band(line.mean_x) == pytest.approx(0, abs=1e-2)


def test_figures_of_a_line_are_those_of_the_textbook() -> None:
    """Anscombe's first set: slope 0.5, intercept 3, r² 0.67."""
    xs = [10.0, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5]
    ys = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68]
    line = regress(xs, ys)
    assert line.slope == pytest.approx(0.5001, abs=1e-4)
    assert line.intercept == pytest.approx(3.0001, abs=1e-4)
    assert line.r2 == pytest.approx(0.6665, abs=1e-4)
    # Residual standard error 1.237; at the mean the band is t s over the root of n.
    assert line.band(9.0) == pytest.approx(2.2622 * 1.2366 / math.sqrt(11), abs=1e-3)
    with pytest.raises(ValueError, match="two different x"):
        regress([1.0, 1.0], [2.0, 3.0])


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062), (2, 4.3027), (5, 2.5706), (10, 2.2281), (30, 2.0423), (101, 1.9837)],
)
def test_quantiles_of_t_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    """Two-sided 95 %."""
    assert t_quantile(0.975, freedom) == pytest.approx(quantile, abs=1e-3)


def test_ranks_tell_apart_what_is_apart() -> None:
    """Exact values of small sides: 2 of 252 arrangements are as far out; one of 2."""
    assert mann_whitney([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(2 / 252)
    assert mann_whitney([6, 7, 8], [1, 2, 3]) == pytest.approx(2 / 20)
    assert mann_whitney([1.0], [2.0]) == 1.0
    assert mann_whitney([5.0] * 20, [5.0] * 20) == 1.0
    with pytest.raises(ValueError, match="samples"):
        mann_whitney([], [1.0])


def test_noise_alone_is_seldom_a_difference() -> None:
    """Of 400 pairs from one distribution about 5 % have p below 0.05, by both ways to work it out."""
    noisy = random.Random(7)
    for count in (10, 30):
        pairs = [[[noisy.gauss(0, 1) for _ in range(count)] for _ in range(2)] for _ in range(400)]
        few = sum(mann_whitney(left, right) < 0.05 for left, right in pairs)
        assert 6 <= few <= 36, few


def test_medians() -> None:
    """In the middle, or between the two there."""
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5
