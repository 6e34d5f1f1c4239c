"""Where a point's time goes: samples by perf, drawn by ``kaido bench flame``, and shares by stage."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kaido.point import Point, command

#: Samples a second: a prime, so that no timer of the system keeps step with it.
FREQUENCY = 997
#: The function that forwards a round; what is not below it makes packets and judges them.
ROOT = "point::lane::drive"

#: Stages of the path, by parts of function names: the innermost function of a stack that has one decides.
#: What the compiler has put into its caller counts there: comparing tags and keys is within `Path::process`.
STAGES: list[tuple[str, tuple[str, ...]]] = [
    ("UDP checksum", ("checksum",)),
    ("read headers and hash", ("Group::read", "path::parse", "path::read", "kaido_wire::gtpu")),
    (
        "look up the session",
        ("kaido_table", "Path as kaido_engine::function::Function>::process", "Group::find"),
    ),
    ("rewrite, count, choose the way out", ("Group::act", "path::", "usage", "kaido_upf")),
    ("receive and transmit", ("kaido_engine", "kaido_bench")),
]


@dataclass(frozen=True)
class Flame:
    """A point's profile."""

    point: Point
    #: Folded stacks and their nanoseconds; empty when there is no profile.
    stacks: Mapping[str, int]
    svg: str
    #: Why there is none.
    reason: str | None = None


def record(point: Point, binary: Path, seconds: float) -> Flame:
    """Run a point once more under perf; without perf, say why there is no profile."""
    perf = shutil.which("perf")
    if not perf:
        return Flame(point, {}, "", "perf is not installed")
    with tempfile.TemporaryDirectory(prefix="kaido-flame-") as folder:
        data, script = Path(folder) / "perf.data", Path(folder) / "perf.txt"
        run = [
            perf,
            "record",
            "--quiet",
            "--event=cpu-clock",
            f"--freq={FREQUENCY}",
            "--call-graph=dwarf,16384",
            f"--output={data}",
            "--",
            *command(point, binary, seconds),
        ]
        recorded = subprocess.run(run, capture_output=True, text=True, check=False)
        if recorded.returncode != 0:
            return Flame(point, {}, "", f"perf record: {_last_line(recorded.stderr)}")
        with script.open("w") as out:
            printed = subprocess.run(
                [perf, "script", "--input", str(data), "--no-inline"],
                stdout=out,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        if printed.returncode != 0:
            return Flame(point, {}, "", f"perf script: {_last_line(printed.stderr)}")
        return fold(point, binary, script)


def fold(point: Point, binary: Path, script: Path) -> Flame:
    """Fold and draw what ``perf script`` printed."""
    folded, svg = script.with_suffix(".folded"), script.with_suffix(".svg")
    drawn = subprocess.run(
        [
            str(binary),
            "bench",
            "flame",
            f"--perf={script}",
            f"--below={ROOT}",
            f"--folded={folded}",
            f"--svg={svg}",
            f"--title={point.label()}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if drawn.returncode != 0:
        return Flame(point, {}, "", _last_line(drawn.stderr))
    return Flame(point, parse_folded(folded.read_text()), svg.read_text())


def parse_folded(text: str) -> dict[str, int]:
    """Read folded stacks."""
    stacks: dict[str, int] = {}
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        if stack and count.isdigit():
            stacks[stack] = stacks.get(stack, 0) + int(count)
    return stacks


def stage_of(stack: str) -> str:
    """Name the stage of a stack: that of its innermost function that belongs to one."""
    for function in reversed(stack.split(";")):
        for stage, parts in STAGES:
            if any(part in function for part in parts):
                return stage
    return "other"


def stage_shares(stacks: Mapping[str, int]) -> dict[str, float]:
    """Share of all samples by stage, the largest first."""
    total = sum(stacks.values())
    counts: dict[str, int] = {}
    for stack, count in stacks.items():
        stage = stage_of(stack)
        counts[stage] = counts.get(stage, 0) + count
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return {stage: count / total for stage, count in ordered} if total else {}


def hottest(stacks: Mapping[str, int], most: int = 8) -> list[tuple[str, float]]:
    """Return the functions in which most samples ended, with their share."""
    total = sum(stacks.values())
    counts: dict[str, int] = {}
    for stack, count in stacks.items():
        leaf = stack.rsplit(";", 1)[-1]
        counts[leaf] = counts.get(leaf, 0) + count
    ordered = sorted(counts.items(), key=lambda item: -item[1])[:most]
    return [(name, count / total) for name, count in ordered] if total else []


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "no reason was given"
