"""How much a user plane forwards: NDR and PDR, throughput, latency under load, bursts, and whether it lasts.

The searches ask a `Measurer` for trials and know nothing of what is measured. `PointMeasurer` runs the
program;
`ModelMeasurer` is a device of known rate and loss, for which every search must find the known answer.

Names follow RFC 2544 and RFC 8219; NDR and PDR are searched by MLRsearch (draft-ietf-bmwg-mlrsearch).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal

from kaido.point import Point, Result, measure

#: Loss that PDR allows, as CSIT and many data sheets have it.
PDR_LOSS = 0.005
#: Shares of PDR at which latency is measured.
LATENCY_LOADS = (0.1, 0.5, 0.9)
#: Share of the packets, and as many more as one batch has, that may be late at the end of a trial over links.
SLOW_SHARE = 0.002
BATCH = 32
#: Precision of searches: the distance of the bounds as a share of the upper one.
PRECISION = 0.005


@dataclass(frozen=True)
class Trial:
    """What one trial gave."""

    #: Packets a second that were to be offered.
    load_pps: float
    duration: float
    offered: int
    lost: int
    #: The program's whole result, where there is one.
    result: Result | None = None

    @property
    def loss_ratio(self) -> float:
        """Packets lost, as a share of those offered."""
        return self.lost / self.offered if self.offered else 0.0


class Measurer(Protocol):
    """Makes trials."""

    def trial(self, load_pps: float, duration: float) -> Trial:
        """Offer so many packets a second for so many seconds."""
        ...

    def burst(self, load_pps: float, packets: int) -> Trial:
        """Offer so many packets at a rate, after a pause."""
        ...


@dataclass
class PointMeasurer:
    """Trials of one point, by the program."""

    point: Point
    binary: Path
    #: Told of each trial.
    progress: Callable[[str], None] = lambda _: None
    trials: list[Trial] = field(default_factory=list)

    def trial(self, load_pps: float, duration: float) -> Trial:
        """Run the program at a rate."""
        return self._run(load_pps, duration, [])

    def burst(self, load_pps: float, packets: int) -> Trial:
        """Run it for so many packets."""
        return self._run(load_pps, max(1.0, 2 * packets / load_pps), ["--packets", str(packets)])

    def _run(self, load_pps: float, duration: float, extra: list[str]) -> Trial:
        result = measure(self.point.at(load_pps), self.binary, duration, extra)
        offered, lost = result["offered"], result["lost"]
        if self.point.datapath != "memory":
            # Over links the bench itself may be too slow: what it could not offer in time was not forwarded.
            wanted = round(load_pps * result["seconds"])
            if offered < wanted * (1 - SLOW_SHARE) - BATCH:
                offered, lost = wanted, lost + wanted - offered
        trial = Trial(load_pps, duration, offered, lost, result)
        self.trials.append(trial)
        self.progress(
            f"{load_pps / 1e6:8.3f} Mpps for {duration:g} s: {trial.lost} of {trial.offered} lost "
            f"({trial.loss_ratio:.4%})"
        )
        return trial


@dataclass
class ModelMeasurer:
    """A device that forwards up to a rate, has a ring in front, and loses a share of all packets."""

    capacity_pps: float
    ring: int = 0
    #: Packets lost at any load, as a share.
    base_loss: float = 0.0
    #: Nanoseconds that a packet takes by itself.
    service_ns: float = 1000.0
    trials: list[Trial] = field(default_factory=list)

    def trial(self, load_pps: float, duration: float) -> Trial:
        """Work out what a trial would give."""
        return self._send(load_pps, duration, round(load_pps * duration))

    def burst(self, load_pps: float, packets: int) -> Trial:
        """Work out what a burst would give."""
        return self._send(load_pps, packets / load_pps, packets)

    def _send(self, load_pps: float, duration: float, offered: int) -> Trial:
        excess = max(0.0, load_pps - self.capacity_pps) * duration - self.ring
        lost = min(offered, max(0, int(excess)) + int(offered * self.base_loss))
        utilisation = min(load_pps / self.capacity_pps, 0.999)
        wait = self.service_ns / (1 - utilisation)
        latency = {f"{name}_ns": wait for name in ("min", "mean", "p50", "p90", "p99", "p99_9", "p99_99")}
        latency |= {"p99_999_ns": wait, "max_ns": wait, "jitter_ns": 0.0}
        trial = Trial(load_pps, duration, offered, lost, {"latency": latency})
        self.trials.append(trial)
        return trial


class _Bridge(AbstractMeasurer):  # type: ignore[misc] # The package has no types.
    """MLRsearch's view of a measurer."""

    def __init__(self, measurer: Measurer) -> None:
        self._measurer = measurer

    def measure(self, intended_duration: float, intended_load: float) -> MeasurementResult:
        trial = self._measurer.trial(intended_load, intended_duration)
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=trial.offered,
            loss_count=trial.lost,
        )


@dataclass(frozen=True)
class Bounds:
    """What MLRsearch found for one loss ratio."""

    #: Loss that the goal allows.
    loss_ratio: float
    #: Loads between which the answer lies, in packets a second; none where the search met its limit.
    lower_pps: float | None
    upper_pps: float | None
    #: Packets forwarded a second at the lower bound: the conditional throughput.
    throughput_pps: float | None


@dataclass(frozen=True)
class Limits:
    """What searches may take."""

    min_pps: float
    max_pps: float
    #: Seconds of a trial.
    trial: float = 1.0
    #: Seconds of trials at one load that decide about it.
    duration_sum: float = 5.0
    precision: float = PRECISION
    #: Seconds after which a search gives up.
    search_max: float = 600.0


def mlr_search(
    measurer: Measurer, limits: Limits, loss_ratios: tuple[float, ...] = (0.0, PDR_LOSS)
) -> list[Bounds]:
    """Search the loads for several loss ratios at once; NDR is the one for none."""
    config = Config()
    # In this order: the least must stay below the most at every moment.
    config.min_load = min(limits.min_pps, config.max_load / 2)
    config.max_load = limits.max_pps
    config.search_duration_max = limits.search_max
    config.warmup_duration = 0.0
    goals = [
        SearchGoal(
            loss_ratio=ratio,
            relative_width=limits.precision,
            initial_trial_duration=min(limits.trial, limits.duration_sum) / 2,
            final_trial_duration=limits.trial,
            duration_sum=limits.duration_sum,
            fail_fast=False,
        )
        for ratio in loss_ratios
    ]
    config.goals = goals
    found = MultipleLossRatioSearch(config).search(_Bridge(measurer))
    return [_bounds(goal.loss_ratio, found[goal]) for goal in goals]


def _bounds(loss_ratio: float, result: Any) -> Bounds:
    lower, upper = result.relevant_lower_bound, result.relevant_upper_bound
    throughput = result.conditional_throughput
    return Bounds(
        loss_ratio,
        None if lower is None else float(lower),
        None if upper is None else float(upper),
        None if throughput is None else float(throughput),
    )


def throughput(measurer: Measurer, limits: Limits) -> Trial | None:
    """Find the highest rate at which nothing is lost, by halving (RFC 2544 section 26.1), if there is one."""
    low, high, best = limits.min_pps, limits.max_pps, None
    at_most = measurer.trial(high, limits.trial)
    if at_most.lost == 0:
        return at_most
    while (high - low) / high > limits.precision or best is None:
        load = low if (high - low) / high <= limits.precision else (low + high) / 2
        trial = measurer.trial(load, limits.trial)
        if trial.lost == 0:
            low, best = load, trial
        elif load == low:
            return None
        else:
            high = load
    return best


def latency_under_load(measurer: Measurer, pdr_pps: float, duration: float) -> list[dict[str, Any]]:
    """Measure latency at 10, 50 and 90 % of PDR (RFC 8219 section 7.2: typical and worst case latency)."""
    rows = []
    for share in LATENCY_LOADS:
        trial = measurer.trial(pdr_pps * share, duration)
        latency = dict((trial.result or {}).get("latency") or {})
        latency.pop("histogram", None)
        # RFC 8219 names: the typical latency is the median, the worst case the 99.9th percentile; PDV by RFC
        # 5481 4.2.
        names = {}
        if latency:
            names = {
                "typical_latency_ns": latency["p50_ns"],
                "worst_case_latency_ns": latency["p99_9_ns"],
                "pdv_ns": latency["p99_9_ns"] - latency["min_ns"],
            }
        rows.append(
            {"share_of_pdr": share, "load_pps": trial.load_pps, "lost": trial.lost, **names, **latency}
        )
    return rows


def back_to_back(measurer: Measurer, link_pps: float, most: int, repeats: int = 3) -> int:
    """Find the longest burst at the link's rate of which nothing is lost (RFC 2544 section 26.4), in packets.

    A length counts when `repeats` bursts of it all pass. Returns `most` when even that passes.
    """

    def passes(packets: int) -> bool:
        return all(measurer.burst(link_pps, packets).lost == 0 for _ in range(repeats))

    if passes(most):
        return most
    low, high = 0, most
    while high - low > max(1, int(high * PRECISION)):
        middle = (low + high) // 2
        if passes(middle):
            low = middle
        else:
            high = middle
    return low


def soak(measurer: Measurer, load_pps: float, duration: float, trial: float) -> dict[str, Any]:
    """Offer a load for long, trial after trial; say what was lost and whether the latency has drifted."""
    trials, left = [], duration
    while left > 0:
        length = min(trial, left)
        trials.append(measurer.trial(load_pps, length))
        left -= length
    medians = [one.result["latency"]["p50_ns"] for one in trials if one.result and one.result.get("latency")]
    return {
        "load_pps": load_pps,
        "seconds": sum(one.duration for one in trials),
        "offered": sum(one.offered for one in trials),
        "lost": sum(one.lost for one in trials),
        "trials": len(trials),
        "trials_with_loss": sum(one.lost > 0 for one in trials),
        "latency_p50_first_ns": medians[0] if medians else None,
        "latency_p50_last_ns": medians[-1] if medians else None,
    }


def search_all(
    measurer: Measurer,
    limits: Limits,
    link_pps: float,
    burst_most: int,
    soak_seconds: float = 0.0,
) -> dict[str, Any]:
    """Run every search; the result is ready for JSON."""
    ndr, pdr = mlr_search(measurer, limits)
    best = throughput(measurer, limits)
    load = pdr.lower_pps or ndr.lower_pps
    found: dict[str, Any] = {
        "ndr": asdict(ndr),
        "pdr": asdict(pdr),
        "throughput_pps": best.load_pps if best else None,
        "latency": latency_under_load(measurer, load, limits.trial) if load else [],
        "back_to_back_packets": back_to_back(measurer, link_pps, burst_most),
        "back_to_back_pps": link_pps,
        "precision": limits.precision,
        "trial_seconds": limits.trial,
    }
    if soak_seconds > 0 and ndr.lower_pps:
        found["soak"] = soak(measurer, 0.9 * ndr.lower_pps, soak_seconds, max(limits.trial, 1.0))
    return found
