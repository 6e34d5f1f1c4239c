"""What limits each point, in words: from its figures, and those of points that differ in one thing."""

from __future__ import annotations

from typing import Any

import polars as pl

from kaido.point import Point
from kaido.statistic import Regression, is_told, median, regress

#: Bytes of session state that a packet touches: bucket, record and counters, a cache line each.
SESSION_BYTES = 192
#: Share of a packet's time from which something is named as what limits.
TELLING = 0.2
#: Packets of a full batch.
_BATCH = 32
#: Percent of the time from which a worker counts as busy all of it.
BUSY = 90.0

Row = dict[str, Any]


class Rows:
    """The rows of a sweep by their point; repeats are one, with their median."""

    def __init__(self, frame: pl.DataFrame) -> None:
        """Group the rows of a frame."""
        groups: dict[Point, list[Row]] = {}
        for row in frame.iter_rows(named=True):
            point = Point(**{name: row[name] for name in Point.__dataclass_fields__})
            groups.setdefault(point, []).append(row)
        self._rows = {point: _middle(rows) for point, rows in groups.items()}

    def points(self) -> list[tuple[Point, Row]]:
        """Return points and rows."""
        return list(self._rows.items())

    def twin(self, point: Point, **changed: Any) -> Row | None:
        """Return the row of the point that differs in these fields alone."""
        return self._rows.get(Point(**(point.columns() | changed)))

    def line(self, **fixed: Any) -> Regression | None:
        """Fit nanoseconds a packet against bytes sent, of the points at full speed with these fields."""
        fixed = {"datapath": "memory", "ip": 4, "shape": "plain"} | fixed
        chosen = [row for point, row in self._rows.items() if point.rate == "max" and _has(point, fixed)]
        xs = [float(row["frame_bytes_sent"]) for row in chosen]
        if len(set(xs)) < 3:
            return None
        return regress(xs, [row["ns_per_packet"] for row in chosen])


def _has(point: Point, fixed: dict[str, Any]) -> bool:
    return all(getattr(point, name) == value for name, value in fixed.items())


def _middle(rows: list[Row]) -> Row:
    """Of repeats: the one with the median time; the others lie around it."""
    ordered = sorted(rows, key=lambda row: row["ns_per_packet"])
    return ordered[len(ordered) // 2]


def limit_of(point: Point, rows: Rows) -> str:
    """Say what limits a point."""
    row = rows.twin(point)
    if row is None:
        return "not measured"
    if point.rate != "max":
        return _limit_at_rate(point, row, rows)
    if point.datapath != "memory":
        return _limit_of_links(point, row, rows)
    reasons = _uneven(point, row) or _costs(point, row, rows)
    if row["load_average"] > row["cores"]:
        reasons.append(f"others ran on the machine too (load average {row['load_average']:.1f})")
    return "; ".join(reasons)


def _limit_at_rate(point: Point, row: Row, rows: Rows) -> str:
    """Say whether the load is too much, and what a packet takes when few come at a time."""
    full = rows.twin(point, rate="max")
    load = row["offered"] / row["seconds"]
    share = load / full["pps"] if full else None
    busy = f"workers have a packet in hand {row['busy_percent']:.0f} % of the time"
    if row["lost"]:
        lost = f"{row['loss_ratio']:.2%} is lost"
        if share is not None and share < 0.9:
            worst = (row["latency_max_ns"] or 0) / 1e6
            return (
                f"the machine: the load is {share:.0%} of what the workers take at full speed, but {lost}, "
                f"for they stood still (longest wait {worst:.1f} ms); {busy}"
            )
        return f"the workers: more is offered than they take, {lost}; {busy}"
    text = "nothing: the load is below what the workers take"
    if full and share is not None:
        text = f"nothing: the load is {share:.0%} of what the workers take at full speed"
        if row["ns_per_packet"] > 1.5 * full["ns_per_packet"]:
            return (
                f"{text}; {busy}, {row['ns_per_packet']:.0f} ns a packet, for few come at a time: a batch of "
                f"{_BATCH} waits for memory together, a packet by itself alone "
                f"({full['ns_per_packet']:.0f} ns at full speed)"
            )
    return f"{text}; {busy}"


def _limit_of_links(point: Point, row: Row, rows: Rows) -> str:
    """Say where the time goes between memory and a link."""
    memory = rows.twin(point, datapath="memory")
    busy = row["busy_percent"]
    text = f"the worker has a packet in hand {busy:.0f} % of the time, {row['ns_per_packet']:.0f} ns each"
    if memory:
        text += (
            f", of which the user plane takes {memory['ns_per_packet']:.0f} in memory; the rest is the socket"
        )
    lost = f"; {row['loss_ratio']:.1%} of what the bench sent is lost" if row["lost"] else ""
    if busy > BUSY:
        return f"the sockets of the node: {text}{lost}"
    return f"the bench's own thread, which sends, receives and judges: {text}{lost}"


def _uneven(point: Point, row: Row) -> list[str]:
    """Name a worker that has far more than its share."""
    packets = row["worker_packets"]
    if point.workers < 2 or sum(packets) == 0:
        return []
    most = max(packets) / sum(packets)
    if most < 1.5 / point.workers:
        return []
    why = "all packets are of one session, whose order must hold"
    if point.flows == "multi":
        why = f"packets are spread by {point.spread}, which tells them not apart"
    return [f"one worker: it has {most:.0%} of all packets, for {why}"]


def _costs(point: Point, row: Row, rows: Rows) -> list[str]:
    """Name what a packet's time goes to."""
    total = row["ns_per_packet"]
    reasons = []
    plain = rows.twin(point, udp_checksum=False) if point.udp_checksum else None
    if plain and total - plain["ns_per_packet"] > TELLING * total:
        gone = total - plain["ns_per_packet"]
        reasons.append(
            f"the UDP checksum: {gone:.0f} of {total:.0f} ns, for every byte of the packet is read"
        )
    single = rows.twin(point, flows="single", workers=1, queue="rss", spread="ue")
    if point.flows == "multi" and single and total - single["ns_per_packet"] > TELLING * total:
        waits = total - single["ns_per_packet"]
        size = point.sessions * SESSION_BYTES / 2**20
        cache = (row["last_level_cache_bytes"] or 0) / 2**20
        reasons.append(
            f"memory: {waits:.0f} of {total:.0f} ns are for the session's lines, {size:.0f} MiB of them "
            f"beside {cache:.0f} MiB of last-level cache"
        )
    over_ipv4 = rows.twin(point, ip=4) if point.ip == 6 else None
    if over_ipv4 and total - over_ipv4["ns_per_packet"] > TELLING * total:
        reasons.append(
            f"IPv6: {total - over_ipv4['ns_per_packet']:.0f} of {total:.0f} ns more than over IPv4"
        )
    one = rows.twin(point, workers=1)
    if point.workers > 1 and one and row["pps"] < 0.8 * point.workers * one["pps"]:
        reasons.append(
            f"what the workers share: {point.workers} give {row['pps'] / one['pps']:.2f} times one "
            "(caches, memory, the counters of sessions, a neighbour on the core)"
        )
    if not reasons:
        reasons.append(f"instructions: {total:.0f} ns of a packet's way, which its length hardly changes")
    return reasons


def directions(rows: Rows) -> list[str]:
    """Answer why uplink and downlink differ, from the lines through what was measured."""
    cases: dict[str, dict[str, Any]] = {
        "Uplink": {"direction": "uplink"},
        "Downlink without UDP checksum": {"direction": "downlink", "udp_checksum": False},
        "Downlink with UDP checksum": {"direction": "downlink", "udp_checksum": True},
    }
    lines = {name: rows.line(workers=1, flows="single", **fixed) for name, fixed in cases.items()}
    words = []
    for name, line in lines.items():
        if line and is_told(line):
            more = "more" if line.slope >= 0 else "less"
            words.append(
                f"{name}: {line.intercept:.0f} ns a packet and {abs(line.slope) * 1000:.1f} ns {more} for "
                f"each 1000 bytes (r² {line.r2:.2f})."
            )
        elif line:
            words.append(
                f"{name}: {line.at(line.mean_x):.0f} ns a packet, of which its length tells next to nothing "
                f"(r² {line.r2:.2f}: no line)."
            )
    plain, summed = lines["Downlink without UDP checksum"], lines["Downlink with UDP checksum"]
    up = lines["Uplink"]
    if plain and summed and up:
        words.append(_checksum_words(plain.at(1424), summed.at(1424), up.at(1424)))
    return words


def _checksum_words(plain: float, summed: float, up: float) -> str:
    """Say what the checksum has to do with it; nanoseconds a packet of 1424 bytes."""
    gone, rest = summed - plain, plain - up
    text = (
        "Taking a tunnel off needs no byte of the payload, and putting one on does not either, unless the "
        "outer UDP checksum is computed: that reads the whole packet. At 1424 bytes it takes "
        f"{gone:.0f} of {summed:.0f} ns; without it downlink differs from uplink by {rest:+.0f} ns there. "
    )
    if gone > abs(rest):
        return text + "So it is the checksum that makes downlink slower: with zero most of that is gone."
    return text + "So the checksum is not most of the difference here; the stages below show what is."


def scaling(rows: Rows) -> dict[tuple[str, int], float]:
    """Median gain of each number of workers over one, by direction, over points of many sessions."""
    gains: dict[tuple[str, int], list[float]] = {}
    for point, row in rows.points():
        one = rows.twin(point, workers=1)
        is_usual = point.queue == "rss" and point.spread == "ue" and point.ip == 4
        if point.workers > 1 and point.flows == "multi" and point.rate == "max" and is_usual and one:
            gains.setdefault((point.direction, point.workers), []).append(row["pps"] / one["pps"])
    return {key: median(values) for key, values in gains.items()}
