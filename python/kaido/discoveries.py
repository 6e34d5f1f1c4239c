"""Three ways in which an XDP user plane lost sessions and throughput, measured again on this machine.

They are those of a public account of tuning a PGW-U: an LRU map that loses sessions, receive side scaling
that does not see
the TEID, and outer UDP checksums that nobody needs.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kaido.point import FRAMES, MeasureError, Point, Result, flatten, measure


def lru(binary: Path, sessions: int) -> dict[str, Any]:
    """Count what the kernel's maps still hold; each that cannot be had is listed with the reason."""
    line = [str(binary), "bench", "lru", "--sessions", str(sessions)]
    run = subprocess.run(line, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise MeasureError(f"{' '.join(line)}\n{run.stderr.strip()}")
    return dict(json.loads(run.stdout))


def spread(run: Callable[[Point], Result], workers: int, sessions: int) -> list[dict[str, Any]]:
    """Measure both directions with packets spread by five-tuple, TEID and UE."""
    rows = []
    for direction in ("uplink", "downlink"):
        for by in ("five-tuple", "teid", "ue"):
            point = Point(direction=direction, frame=128, workers=workers, spread=by, sessions=sessions)
            rows.append({"point": point.columns(), "row": flatten(run(point))})
    return rows


def checksum(
    run: Callable[[Point], Result], sessions: int, frames: Sequence[int] = FRAMES
) -> list[dict[str, Any]]:
    """Measure downlink with and without the outer UDP checksum."""
    rows = []
    for frame in frames:
        points = [
            Point("downlink", frame, flows="single", udp_checksum=on, sessions=sessions)
            for on in (True, False)
        ]
        on, off = (run(point) for point in points)
        rows.append(
            {
                "frame": frame,
                "with_gbps": on["l2_gbps"],
                "without_gbps": off["l2_gbps"],
                "gain_gbps": off["l2_gbps"] - on["l2_gbps"],
                "with_ns": on["ns_per_packet"],
                "without_ns": off["ns_per_packet"],
                "spread_ns": on["ns_spread"] + off["ns_spread"],
            }
        )
    return rows


def discover(
    binary: Path,
    sessions: int,
    workers: int,
    duration: float,
    tell: Callable[[str], None],
    frames: Sequence[int] = FRAMES,
) -> Mapping[str, Any]:
    """Make all three."""

    def run(point: Point) -> Result:
        tell(point.label())
        return measure(point, binary, duration)

    tell(f"{sessions} sessions into maps of as many entries")
    return {
        "lru": lru(binary, sessions),
        "spread": spread(run, workers, min(sessions, 65536)),
        "checksum": checksum(run, min(sessions, 65536), frames),
    }
