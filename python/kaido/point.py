"""One point: what is varied by a sweep and repeated by a search, and how it is measured.

A point is measured by the program itself, ``kaido bench point --json``; what it gives is documented by
``kaido_bench::point::PointResult``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

Result = dict[str, Any]

#: Frame lengths of the usual sweep, in bytes without FCS.
FRAMES = (64, 128, 256, 512, 1024, 1424, 3024)
DIRECTIONS = ("uplink", "downlink")
DATAPATHS = ("memory", "af_packet", "af_xdp")
#: Rules of sessions, as ``kaido bench`` names them.
SHAPES = ("plain", "free5gc", "open5gs", "volte", "slice", "tenant", "mixed")
#: Longest frame over links, in bytes without FCS.
LINK_FRAME_MAX = 3400
#: Bytes that a frame takes on a link beside those counted: FCS, preamble, start of frame and gap.
WIRE_OVERHEAD = 24


class MeasureError(Exception):
    """A point could not be measured."""


@dataclass(frozen=True, order=True)
class Point:
    """What is measured. Defaults are those of ``kaido bench point``."""

    direction: str = "uplink"
    frame: int = 128
    workers: int = 1
    queue: str = "rss"
    spread: str = "ue"
    flows: str = "multi"
    udp_checksum: bool = False
    sessions: int = 65536
    #: ``max``, or a rate such as ``2Mpps`` or ``10Gbit/s`` (layer 1).
    rate: str = "max"
    ring: int = 4096
    clock: str = "cpu"
    #: IP version, in the tunnel and outside: 4 or 6.
    ip: int = 4
    #: What packets come and leave by: ``memory``, or sockets on veth: ``af_packet``, ``af_xdp``.
    datapath: str = "memory"
    #: Rules of the sessions: one of :data:`SHAPES`.
    shape: str = "plain"

    def key(self) -> str:
        """Return a name that no other point has, fit for a file."""
        parts = [
            self.direction,
            f"{self.frame}B",
            f"{self.workers}w",
            self.queue,
            self.spread,
            self.flows,
            "csum" if self.udp_checksum else "nocsum",
            f"{self.sessions}s",
            self.rate.replace("/", "_per_").replace(" ", ""),
        ]
        usual = Point()
        if self.ring != usual.ring:
            parts.append(f"ring{self.ring}")
        if self.clock != usual.clock:
            parts.append(self.clock)
        if self.ip != usual.ip:
            parts.append(f"ip{self.ip}")
        if self.datapath != usual.datapath:
            parts.append(self.datapath)
        if self.shape != usual.shape:
            parts.append(self.shape)
        return "-".join(parts)

    def label(self) -> str:
        """Return a name for people."""
        words = [
            self.direction,
            f"{self.frame} B",
            f"{self.workers} worker{'s' if self.workers > 1 else ''}",
            f"{self.flows} flow",
        ]
        if self.queue != "rss":
            words.append(self.queue)
        if self.spread != "ue":
            words.append(f"spread by {self.spread}")
        if self.udp_checksum:
            words.append("checksum")
        kind = "" if self.shape == "plain" else f"{self.shape} "
        words.append(f"{self.sessions} {kind}session{'s' if self.sessions > 1 else ''}")
        if self.ip != 4:
            words.append(f"IPv{self.ip}")
        if self.datapath != "memory":
            words.append(f"over {self.datapath}")
        if self.rate != "max":
            words.append(f"at {self.rate}")
        return ", ".join(words)

    def arguments(self) -> list[str]:
        """Return the arguments of ``kaido bench point`` that measure it."""
        arguments = []
        for field in fields(self):
            value = getattr(self, field.name)
            option = "--" + field.name.replace("_", "-")
            if isinstance(value, bool):
                arguments += [option] if value else []
            else:
                arguments += [option, str(value)]
        return arguments

    def columns(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)

    def at(self, pps: float) -> Point:
        """Return the same point with packets at a rate, in packets a second."""
        return replace(self, rate=f"{pps:.3f}pps")


#: Fields that points have had not always, and what they were before.
LATER = {"ip": 4, "datapath": "memory", "shape": "plain"}


def find_binary() -> Path:
    """Find the program: named by ``KAIDO_BINARY``, built in the checkout, or installed."""
    named = os.environ.get("KAIDO_BINARY")
    if named:
        if not os.access(named, os.X_OK):
            raise MeasureError(f"KAIDO_BINARY names {named}, which is no program")
        return Path(named)
    for folder in [Path.cwd(), *Path.cwd().parents]:
        built = folder / "target" / "release" / "kaido"
        if built.exists():
            return built
    installed = shutil.which("kaido")
    if installed:
        return Path(installed)
    raise MeasureError(
        "the program kaido is not there: build it with `make build`, or name it with KAIDO_BINARY"
    )


def command(point: Point, binary: Path, duration: float, extra: Sequence[str] = ()) -> list[str]:
    """Return the command that measures a point for so many seconds."""
    return [
        str(binary),
        "bench",
        "point",
        *point.arguments(),
        "--duration",
        f"{duration:g}",
        *extra,
        "--json",
        "-",
    ]


def measure(point: Point, binary: Path, duration: float, extra: Sequence[str] = ()) -> Result:
    """Measure a point; the result is as ``PointResult`` says, with the command that made it."""
    line = command(point, binary, duration, extra)
    run = subprocess.run(line, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise MeasureError(f"{' '.join(line)}\n{run.stderr.strip()}")
    try:
        result = json.loads(run.stdout)
    except json.JSONDecodeError as error:
        raise MeasureError(f"{' '.join(line)}: no JSON came: {error}") from error
    if not isinstance(result, dict):
        raise MeasureError(f"{' '.join(line)}: no object came")
    result["command"] = " ".join(["kaido", *line[1:]])
    return result


def pps_of(l1_gbps: float, frame: float) -> float:
    """Return packets a second that fill so many Gbit/s of a link."""
    return l1_gbps * 1e9 / ((frame + WIRE_OVERHEAD) * 8)


def flatten(result: Mapping[str, Any]) -> dict[str, Any]:
    """Make one flat row of a result: numbers by name, samples and histogram as lists."""
    point = result["point"]
    latency = result.get("latency") or {}
    pmu, energy, machine = result["pmu"], result["energy"], result["machine"]
    workers, cpus = result["workers"], result["cpus"]
    busy = [worker["busy_percent"] for worker in workers]
    mine = [cpu for cpu in cpus if cpu["cpu"] in [worker["cpu"] for worker in workers]] or cpus
    row = {
        "frame_bytes_sent": point["frame_bytes_sent"],
        "rate_pps": point["rate_pps"],
        "seconds": result["seconds"],
        "offered": result["offered"],
        "forwarded": result["forwarded"],
        "lost": result["lost"],
        "loss_ratio": result["loss_ratio"],
        "pps": result["pps"],
        "l2_gbps": result["l2_gbps"],
        "l1_gbps": result["l1_gbps"],
        "ns_per_packet": result["ns_per_packet"],
        "ns_spread": result["ns_spread"],
        "samples_ns": [float(sample) for sample in result["samples_ns"]],
        "worker_busy_percent": busy,
        "worker_packets": [int(worker["packets"]) for worker in workers],
        "busy_percent": sum(busy) / len(busy),
        "softirq_percent": _mean([cpu["softirq_percent"] for cpu in mine]),
        "system_percent": _mean([cpu["system_percent"] for cpu in mine]),
        "steal_percent": _mean([cpu["steal_percent"] for cpu in mine]),
        "reordered": result["reordering"]["packets"],
        "reordering_extent_max": result["reordering"]["extent_max"],
        "off_cpu_ns": result["off_cpu_ns"],
        "page_faults": result["page_faults"],
        "pmu_available": pmu["available"],
        "pmu_reason": pmu["reason"],
        "cycles_per_packet": pmu["cycles_per_packet"],
        "instructions_per_packet": pmu["instructions_per_packet"],
        "cache_misses_per_packet": pmu["cache_misses_per_packet"],
        "watts": energy["watts"],
        "energy_source": energy["source"],
        "energy_explanation": energy["explanation"],
        "gbps_per_watt": energy["gbps_per_watt"],
        "cpu_model": machine["cpu"],
        "cores": machine["cores"],
        "last_level_cache_bytes": machine["last_level_cache_bytes"],
        "load_average": machine["load_average"][0],
        "command": result.get("command", ""),
    }
    quantiles = ("min", "mean", "p50", "p90", "p99", "p99_9", "p99_99", "p99_999", "max", "jitter")
    row |= {f"latency_{name}_ns": _number(latency.get(f"{name}_ns")) for name in quantiles}
    row["latency_buckets_ns"] = [int(low) for low, _ in latency.get("histogram", [])]
    row["latency_counts"] = [int(count) for _, count in latency.get("histogram", [])]
    return row


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)
