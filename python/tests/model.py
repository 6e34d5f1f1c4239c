"""Results of a device that is known: what the program would print, had it measured one."""

from __future__ import annotations

import json
import random
from typing import Any

from kaido.point import Point, Result


def nanoseconds(point: Point) -> float:
    """Time a packet of the model device."""
    base = 45.0 if point.direction == "uplink" else 42.0
    memory = 25.0 if point.flows == "multi" else 0.0
    checksum = 5.0 + point.frame * 0.05 if point.udp_checksum else 0.0
    socket = {"memory": 0.0, "af_packet": 900.0, "af_xdp": 600.0}[point.datapath]
    rules = {"plain": 0.0, "mixed": 30.0}.get(point.shape, 20.0)
    return base + memory + checksum + socket + rules + (5.0 if point.ip == 6 else 0.0)


def result(point: Point, duration: float, factor: float = 1.0, noise: float = 0.01) -> Result:
    """Give the model's result for a point, as the program's JSON is."""
    noisy = random.Random(json.dumps(point.columns()) + str(factor))
    ns = nanoseconds(point) * factor
    samples = [ns * noisy.uniform(1 - noise, 1 + noise) for _ in range(11)]
    sent = max(point.frame, 86 if point.direction == "uplink" else 42)
    uneven = point.workers > 1 and (point.flows == "single" or point.spread == "five-tuple")
    pps = 1e9 / ns * (1 if uneven else point.workers)
    rate = None
    latency: dict[str, Any] | None = None
    if point.rate != "max":
        rate = 4e9 / ((sent + 24) * 8)
        pps = min(rate, pps)
        names = ("min", "mean", "p50", "p90", "p99", "p99_9", "p99_99", "p99_999", "max")
        latency = {f"{name}_ns": 1000 * (at + 1) for at, name in enumerate(names)}
        latency = latency | {"jitter_ns": 12.0, "histogram": [[1000, 5], [2000, 1]]}
    packets = int(pps * duration)
    share = [packets, 0] if uneven else [packets // point.workers] * point.workers
    l2 = pps * (sent + 4) * 8 / 1e9
    busy = 100.0 * pps * ns / 1e9 / (1 if uneven else point.workers)
    return {
        "point": point.columns() | {"frame_bytes_sent": sent, "rate_pps": rate},
        "seconds": duration,
        "offered": packets,
        "forwarded": packets,
        "lost": 0,
        "loss_ratio": 0.0,
        "pps": pps,
        "l2_gbps": l2,
        "l1_gbps": pps * (sent + 24) * 8 / 1e9,
        "ns_per_packet": sorted(samples)[5],
        "ns_spread": 1.0,
        "samples_ns": samples,
        "workers": [
            {"cpu": at, "packets": count, "busy_percent": busy if count else 0.0}
            for at, count in enumerate(share)
        ],
        "cpus": [
            {
                "cpu": cpu,
                "busy_percent": 90.0,
                "system_percent": 1.0,
                "softirq_percent": 0.5,
                "steal_percent": 0.0,
            }
            for cpu in range(2)
        ],
        "latency": latency,
        "reordering": {
            "packets": packets // 50 if point.queue == "shared" else 0,
            "extent_max": 31,
            "blocks": 3,
        },
        "off_cpu_ns": 0,
        "page_faults": 0,
        "pmu": {
            "available": False,
            "reason": "perf_event_open of CPU cycles: No such file or directory",
            "cycles_per_packet": None,
            "instructions_per_packet": None,
            "cache_misses_per_packet": None,
        },
        "energy": {
            "source": "model",
            "watts": 12.0 * point.workers,
            "explanation": "a model, no measurement",
            "gbps_per_watt": l2 / (12.0 * point.workers),
        },
        "machine": {
            "revision": "0123456789ab",
            "cpu": "Model CPU",
            "cores": 2,
            "last_level_cache_bytes": 32 << 20,
            "load_average": [0.5, 1.0],
        },
        "command": f"kaido bench point --frame {point.frame}",
    }
