"""Counters in the shapes of TRex's dictionaries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from kaido.stream import Json
from kaido.trex.jobs import Job
from kaido.trex.ports import State
from kaido.trex.streams import FCS, LINK_OVERHEAD

_PORT = ("opackets", "ipackets", "obytes", "ibytes", "oerrors", "ierrors")
_RATES = ("tx_pps", "tx_bps", "tx_bps_L1", "tx_util", "rx_pps", "rx_bps", "rx_bps_L1", "rx_util")
Counters = dict[int, dict[str, float]]


def counters(states: dict[int, State], jobs: Iterable[Job]) -> Counters:
    """What each port has counted in some runs; bytes are those of frames with FCS."""
    ports: Counters = {number: dict.fromkeys(_PORT, 0) for number in states}
    for job in jobs:
        for number, (sent, received) in zip(job.order, job.live()["ports"], strict=True):
            port = ports[number]
            port["opackets"] += sent["packets"]
            port["obytes"] += sent["bytes"] + FCS * sent["packets"]
            port["ipackets"] += received["packets"]
            port["ibytes"] += received["bytes"] + FCS * received["packets"]
        result = job.result()
        if result is not None:
            for number, counted in zip(job.order, result["ports"], strict=True):
                ports[number]["oerrors"] += counted["failed"]
    return ports


def port_rates(states: dict[int, State], jobs: Iterable[Job]) -> Counters:
    """Means over the runs under way, or else over the last one."""
    listed = list(jobs)
    running = [job for job in listed if job.is_sending] or listed[-1:]
    rates: Counters = {number: dict.fromkeys(_RATES, 0.0) for number in states}
    for job in running:
        seconds = job.live()["time_ns"] / 1e9
        if seconds <= 0:
            continue
        for number, counted in counters(states, [job]).items():
            port = rates[number]
            for way, side in (("tx", "o"), ("rx", "i")):
                pps, bps = counted[f"{side}packets"] / seconds, counted[f"{side}bytes"] * 8 / seconds
                l1_bps = bps + pps * LINK_OVERHEAD * 8
                port[f"{way}_pps"] += pps
                port[f"{way}_bps"] += bps
                port[f"{way}_bps_L1"] += l1_bps
                port[f"{way}_util"] += l1_bps / states[number].speed_bps * 100
    return rates


def whole(states: dict[int, State], ports: Counters, rates: Counters, cpu: float) -> dict[Any, Any]:
    """What `get_stats` gives, without groups."""
    stats: dict[Any, Any] = {number: ports[number] | rates[number] for number in states}
    total = {name: sum(port[name] for port in ports.values()) for name in _PORT}
    speed = {name: sum(port[name] for port in rates.values()) for name in _RATES}
    stats["total"] = total | speed
    stats["global"] = {
        "tx_bps": speed["tx_bps"],
        "tx_pps": speed["tx_pps"],
        "rx_bps": speed["rx_bps"],
        "rx_pps": speed["rx_pps"],
        "rx_drop_bps": max(speed["tx_bps"] - speed["rx_bps"], 0.0),
        "cpu_util": cpu,
        "rx_cpu_util": 0.0,
        "bw_per_core": speed["tx_bps"] / 1e9 / max(cpu / 100, 0.01),
        "queue_full": 0,
    }
    return stats


def groups(jobs: Iterable[Job], receiver: dict[int, int]) -> dict[str, dict[Any, Any]]:
    """What `get_pgid_stats` gives; `receiver` tells at which port what each port sends comes out."""
    flow: dict[Any, Any] = {}
    results: dict[int, list[Json]] = defaultdict(list)
    for job in jobs:
        live, result = job.live(), job.result()
        seconds = max(live["time_ns"] / 1e9, 1e-9)
        for place, (number, stream) in enumerate(job.streams):
            if stream is None or stream.flow_stats is None:
                continue
            pg_id = stream.flow_stats.pg_id
            group = flow.setdefault(pg_id, _empty_group())
            sent = live["streams"][place]
            received = {"packets": 0, "bytes": 0}
            if result is not None:
                received = result["streams"][place]["received"]
                if stream.flow_stats.is_latency:
                    results[pg_id].append(result["streams"][place])
            _count(group, "tx", number, sent, seconds)
            _count(group, "rx", receiver.get(number, number), received, seconds)
    latency: dict[Any, Any] = {pg_id: _latency(streams) for pg_id, streams in results.items()}
    flow["global"] = {"rx_err": {}, "tx_err": {}}
    latency["global"] = {"bad_hdr": 0, "old_flow": 0}
    return {"flow_stats": flow, "latency": latency}


def _empty_group() -> Json:
    names = ("pkts", "bytes", "pps", "bps", "bps_l1")
    return {f"{way}_{name}": {"total": 0} for way in ("tx", "rx") for name in names}


def _count(group: Json, way: str, number: int, volume: Json, seconds: float) -> None:
    packets, size = volume["packets"], volume["bytes"] + FCS * volume["packets"]
    values = {
        "pkts": packets,
        "bytes": size,
        "pps": packets / seconds,
        "bps": size * 8 / seconds,
        "bps_l1": (size + LINK_OVERHEAD * packets) * 8 / seconds,
    }
    for name, value in values.items():
        for key in (number, "total"):
            group[f"{way}_{name}"][key] = group[f"{way}_{name}"].get(key, 0) + value


def _latency(streams: list[Json]) -> Json:
    """Latencies of a group, in microseconds."""
    counted = [stream["latency"] for stream in streams if stream["latency"]["histogram"]]
    pairs = [pair for latency in counted for pair in latency["histogram"]]
    total = sum(count for _, count in pairs)
    histogram: dict[int, int] = defaultdict(int)
    for value_ns, count in pairs:
        histogram[bucket(value_ns / 1000)] += count
    lost, order = sum(stream["lost"] for stream in streams), [stream["reordering"] for stream in streams]
    duplicated = sum(stream["duplicated"] for stream in streams)
    reordered = sum(one["packets"] for one in order)
    return {
        "latency": {
            "average": sum(latency["sum_ns"] for latency in counted) / total / 1000 if total else 0.0,
            "jitter": counted[-1]["jitter_ns"] / 1000 if counted else 0.0,
            "last_max": counted[-1]["max_ns"] / 1000 if counted else 0.0,
            "total_max": max((latency["max_ns"] for latency in counted), default=0) / 1000,
            "total_min": min((latency["min_ns"] for latency in counted), default=0) / 1000,
            "histogram": dict(sorted(histogram.items())),
        },
        "err_cntrs": {
            "dropped": lost,
            "dup": duplicated,
            "out_of_order": reordered,
            "seq_too_high": lost,
            "seq_too_low": duplicated + reordered,
        },
    }


def bucket(microseconds: float) -> int:
    """The bucket of TRex's histogram: the leading digit of a latency from 10 on, else 0."""
    whole = int(microseconds)
    if whole < 10:
        return 0
    scale: int = 10 ** (len(str(whole)) - 1)
    return whole // scale * scale
