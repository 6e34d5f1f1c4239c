"""What differs between two sweeps, and whether that is more than noise.

Each point has samples of both sides: parts of a run, one after the other. The question is put twice: whether
ranks as far apart are likely if nothing has changed (Mann and Whitney), and whether the difference is worth a
word. Where both answers are yes, the point is better or worse.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from kaido.point import LATER, Point
from kaido.statistic import mann_whitney, median

#: Differences smaller than this are not worth a word, whatever the ranks say: two runs on one machine differ
#: as much.
THRESHOLD = 0.03
#: How likely ranks as far apart may be if nothing has changed, for all points together (Bonferroni).
SIGNIFICANCE = 0.01

#: What makes a point: a row of either side is matched by these.
IDENTITY = [field for field in Point.__dataclass_fields__]


class CompareError(Exception):
    """The two cannot be compared."""


@dataclass(frozen=True)
class Change:
    """One point on both sides."""

    point: Point
    #: Medians, in nanoseconds a packet.
    before_ns: float
    after_ns: float
    #: How likely such ranks are if nothing has changed.
    p: float
    #: ``better``, ``worse`` or ``same``.
    verdict: str

    @property
    def ratio(self) -> float:
        """After over before: below one is faster."""
        return self.after_ns / self.before_ns


def load(path: Path) -> pl.DataFrame:
    """Read the results of a sweep: its folder, or its Parquet file."""
    file = path / "sweep.parquet" if path.is_dir() else path
    try:
        frame = pl.read_parquet(file)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise CompareError(f"{file}: these are no results of a sweep: {error}") from error
    older = {name: usual for name, usual in LATER.items() if name not in frame.columns}
    frame = frame.with_columns(**{name: pl.lit(usual) for name, usual in older.items()})
    missing = [name for name in [*IDENTITY, "samples_ns"] if name not in frame.columns]
    if missing:
        raise CompareError(f"{file}: these are no results of a sweep: there is no {', '.join(missing)}")
    return frame


def compare(
    before: pl.DataFrame,
    after: pl.DataFrame,
    threshold: float = THRESHOLD,
    significance: float = SIGNIFICANCE,
) -> list[Change]:
    """Compare the points that both have.

    Raises:
        CompareError: When there are none, or they were not measured on the same machine.

    """
    machines = [sorted(set(frame["cpu_model"])) for frame in (before, after)]
    if machines[0] != machines[1]:
        raise CompareError(f"measured on different machines: {machines[0]} and {machines[1]}")
    left, right = _samples(before), _samples(after)
    common = [point for point in left if point in right]
    if not common:
        raise CompareError("the two have no point in common")
    limit = significance / len(common)
    changes = []
    for point in common:
        one, other = median(left[point]), median(right[point])
        p = mann_whitney(left[point], right[point])
        is_real = p < limit and abs(other / one - 1) > threshold
        verdict = ("worse" if other > one else "better") if is_real else "same"
        changes.append(Change(point, one, other, p, verdict))
    return changes


def _samples(frame: pl.DataFrame) -> dict[Point, list[float]]:
    gathered: dict[Point, list[float]] = {}
    for row in frame.iter_rows(named=True):
        point = Point(**{name: row[name] for name in IDENTITY})
        gathered.setdefault(point, []).extend(row["samples_ns"])
    return {point: samples for point, samples in gathered.items() if samples}


def table(changes: list[Change]) -> str:
    """Show all changes, the largest first."""
    rows = sorted(changes, key=lambda change: -abs(change.ratio - 1))
    width = max(len(change.point.label()) for change in rows)
    lines = [f"{'point':{width}}  before ns   after ns   change  p        verdict"]
    for change in rows:
        percent = f"{(change.ratio - 1) * 100:+.1f} %"
        lines.append(
            f"{change.point.label():{width}}  {change.before_ns:9.2f}  {change.after_ns:9.2f}  {percent:>7}  "
            f"{change.p:<7.1e}  {change.verdict}"
        )
    counts = {name: sum(change.verdict == name for change in changes) for name in ("worse", "better", "same")}
    lines.append(
        f"{counts['worse']} worse, {counts['better']} better, {counts['same']} the same within noise"
    )
    return "\n".join(lines)


def as_rows(changes: list[Change]) -> list[dict[str, Any]]:
    """Return the changes for JSON."""
    return [
        {
            "point": change.point.columns(),
            "before_ns": change.before_ns,
            "after_ns": change.after_ns,
            "p": change.p,
            "verdict": change.verdict,
        }
        for change in changes
    ]
