"""Trials of a device of any kind, by ``kaido bench run``: what a search asks of a node that runs.

A file says what is sent and what must come of it (docs/bench.md); trials differ in rate and duration. A
packet that came out wrong was not forwarded, and what could not be offered in time was not either: a search
ends at what both the device and the bench can do.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kaido.point import MeasureError, Result
from kaido.result import quantile
from kaido.search import Trial

#: Share of a trial's packets that may be missing at its end: the next turn of the bench would have sent them.
LATE_SHARE = 0.002
#: Shortest trial that the program takes, in seconds.
SHORTEST = 0.001
_QUANTILES = {
    "p50_ns": 0.5,
    "p90_ns": 0.9,
    "p99_ns": 0.99,
    "p99_9_ns": 0.999,
    "p99_99_ns": 0.9999,
    "p99_999_ns": 0.99999,
}


def run_file(file: Path, binary: Path, rate: str, duration: float) -> Result:
    """Run a file at a rate, for so many seconds; its result as ``kaido bench run --json`` gives it."""
    line = [str(binary), "bench", "run", "-c", str(file), "--rate", rate, "--duration", f"{duration:.6f}"]
    run = subprocess.run([*line, "--json", "-"], capture_output=True, text=True, check=False)
    try:
        result = json.loads(run.stdout)
    except json.JSONDecodeError:
        raise MeasureError(f"{' '.join(line)}\n{run.stderr.strip()}") from None
    if not isinstance(result, dict):
        raise MeasureError(f"{' '.join(line)}: no object came")
    return result


def offered_and_lost(streams: Sequence[Any], load_pps: float | None, duration: float) -> tuple[int, int]:
    """Packets that were to be offered, and those of them that did not come out right."""
    counted = [stream for stream in streams if stream["counted"]]
    sent = sum(stream["sent"]["packets"] for stream in counted)
    lost = sum(stream["lost"] + stream["corrupted"] + stream["wrong"] for stream in counted)
    if load_pps is None:
        return sent, min(lost, sent)
    wanted = load_pps * duration
    # Each stream's last packet may be due with the end.
    short = wanted * (1 - LATE_SHARE) - len(counted) - sent
    offered = max(sent, round(wanted)) if short > 0 else sent
    return offered, min(offered, lost + offered - sent)


def latency_of(streams: Sequence[Any]) -> dict[str, float] | None:
    """Latency over all streams, with the names of ``kaido bench point``; nothing where no packet came."""
    latencies = [stream["latency"] for stream in streams if stream["latency"]["histogram"]]
    if not latencies:
        return None
    buckets: Counter[int] = Counter()
    for latency in latencies:
        for value, count in latency["histogram"]:
            buckets[value] += count
    pairs = sorted(buckets.items())
    total = sum(buckets.values())
    found = {name: float(quantile(pairs, share) or 0) for name, share in _QUANTILES.items()}
    return {
        "min_ns": float(min(latency["min_ns"] for latency in latencies)),
        "mean_ns": sum(latency["sum_ns"] for latency in latencies) / total,
        **found,
        "max_ns": float(max(latency["max_ns"] for latency in latencies)),
        "jitter_ns": max(float(latency["jitter_ns"]) for latency in latencies),
    }


@dataclass
class RunMeasurer:
    """Trials of the device that a file of ``kaido bench run`` leads to."""

    file: Path
    binary: Path
    #: Told of each trial.
    progress: Callable[[str], None] = lambda _: None
    trials: list[Trial] = field(default_factory=list)

    def trial(self, load_pps: float, duration: float) -> Trial:
        """Run the file at a rate."""
        seconds = max(duration, SHORTEST)
        streams = run_file(self.file, self.binary, f"{load_pps:.3f}pps", seconds)["streams"]
        offered, lost = offered_and_lost(streams, load_pps, seconds)
        trial = Trial(load_pps, seconds, offered, lost, {"latency": latency_of(streams)})
        self.trials.append(trial)
        self.progress(
            f"{load_pps / 1e6:8.3f} Mpps for {seconds:g} s: {lost} of {offered} lost ({trial.loss_ratio:.4%})"
        )
        return trial

    def burst(self, load_pps: float, packets: int) -> Trial:
        """Run it for as long as so many packets take."""
        return self.trial(load_pps, packets / load_pps)

    def fastest(self, duration: float) -> tuple[float, float]:
        """What comes out a second of as much as can be sent, and the mean length of frames, in bytes."""
        result = run_file(self.file, self.binary, "max", duration)
        streams = [stream for stream in result["streams"] if stream["counted"]]
        sent, lost = offered_and_lost(streams, None, duration)
        if sent == lost:
            raise MeasureError(f"{self.file}: nothing of {sent} packets came out right")
        seconds = result["duration_ns"] / 1e9
        return (sent - lost) / seconds, sum(stream["sent"]["bytes"] for stream in streams) / sent
