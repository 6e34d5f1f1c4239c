"""The pictures of a report. Each function draws one and returns it; none when there is nothing to draw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import matplotlib
import numpy

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, ScalarFormatter

from kaido.limits import Row, Rows
from kaido.point import Point
from kaido.statistic import is_told, regress

COLOURS = ["#1b6ca8", "#d1495b", "#2e933c", "#8f5db7", "#c97b12", "#3a3a3a"]
_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
#: Names of datapaths for people.
DATAPATHS = {"memory": "in memory", "af_packet": "AF_PACKET on veth", "af_xdp": "AF_XDP on veth"}
#: Percentiles of the latency picture.
PERCENTILES = [
    ("50", "p50"),
    ("90", "p90"),
    ("99", "p99"),
    ("99.9", "p99_9"),
    ("99.99", "p99_99"),
    ("99.999", "p99_999"),
]


#: Points of a curve beyond which it is a drawing and no list of figures.
_READ_OFF_MAX = 16


def read_off(figure: Figure) -> list[list[Any]]:
    """List what a picture shows, which is hard to read off a phone: panel, curve or bar, place, figure."""
    rows: list[list[Any]] = []
    for axis in figure.axes:
        panel, ticks = axis.get_title(), [label.get_text() for label in axis.get_xticklabels()]
        for line in axis.get_lines():
            name = str(line.get_label())
            xs: list[float] = numpy.asarray(line.get_xdata(), dtype=float).tolist()
            ys: list[float] = numpy.asarray(line.get_ydata(), dtype=float).tolist()
            if name.startswith("_") or len(xs) > _READ_OFF_MAX:
                continue
            # Percentiles stand at places that have names.
            named = len(ticks) == len(xs) and xs == list(range(len(ticks)))
            places = ticks if named else [f"{x:g}" for x in xs]
            rows += [[panel, name, place, y] for place, y in zip(places, ys, strict=True)]
        places = [label.get_text() for label in axis.get_yticklabels()]
        for bars in axis.containers:
            if isinstance(bars, BarContainer):
                name = str(bars.get_label())
                name = "" if name.startswith("_") else name
                widths = [float(bar.get_width()) for bar in bars.patches]
                rows += [[panel, name, place, width] for place, width in zip(places, widths, strict=False)]
    return rows


def _panels(names: Sequence[str], height: float = 3.6) -> tuple[Figure, list[Axes]]:
    columns = min(2, len(names))
    lines = math.ceil(len(names) / columns)
    with plt.rc_context(_STYLE):
        figure, grid = plt.subplots(
            lines, columns, figsize=(5.4 * columns + 0.4, height * lines), squeeze=False, sharey=True
        )
    _space(figure)
    axes = [axis for line in grid for axis in line]
    for axis in axes[len(names) :]:
        axis.set_visible(False)
    for axis, name in zip(axes, names, strict=False):
        axis.set_title(name)
    return figure, axes


def _space(figure: Figure) -> None:
    """Keep a title away from the axis above it."""
    engine = figure.get_layout_engine()
    if engine:
        engine.set(h_pad=0.12)  # type: ignore[call-arg] # Of the constrained layout.


def _order(item: tuple[Point, Row]) -> tuple[bool, int, Point]:
    """Uplink first, and IPv4 before IPv6."""
    return item[0].direction == "downlink", item[0].ip, item[0]


def _bars(height: float) -> tuple[Figure, Axes]:
    """Make room for bars that lie; their names are on the left, so that only figures need lines."""
    figure, axis = plt.subplots(figsize=(9.6, height))
    axis.grid(visible=False, axis="y")
    axis.set_axisbelow(True)
    return figure, axis


def _frame_axis(axis: Axes, frames: Sequence[int]) -> None:
    """Frame lengths double: a logarithmic axis with a tick for each."""
    axis.set_xscale("log", base=2)
    axis.set_xticks(sorted(set(frames)))
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.minorticks_off()
    axis.tick_params(axis="x", labelrotation=45)
    axis.set_xlabel("frame length without FCS [bytes]")


def _full_speed(rows: Rows) -> list[tuple[Point, Row]]:
    usual = [(point, row) for point, row in _in_memory(rows) if point.rate == "max"]
    return [(point, row) for point, row in usual if point.queue == "rss" and point.spread == "ue"]


def _in_memory(rows: Rows) -> list[tuple[Point, Row]]:
    return [(point, row) for point, row in rows.points() if point.datapath == "memory"]


def _curves(rows: Rows, column: str) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Values over frame lengths: by panel (direction and flows) and curve (workers, checksum, sessions)."""
    chosen = _full_speed(rows)
    many = len({point.sessions for point, _ in chosen}) > 1
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for point, row in sorted(chosen, key=_order):
        flows = "one session" if point.flows == "single" else "all sessions"
        name = f"{point.workers} worker{'s' if point.workers > 1 else ''}"
        name += ", UDP checksum" if point.udp_checksum else ""
        name += f", {point.sessions} sessions" if many else ""
        name += f", IPv{point.ip}" if point.ip != 4 else ""
        name += f", {point.shape}" if point.shape != "plain" else ""
        panel = curves.setdefault(f"{point.direction.capitalize()}, packets of {flows}", {})
        panel.setdefault(name, []).append((point.frame, row[column]))
    return curves


def _line_figure(rows: Rows, column: str, label: str) -> Figure | None:
    curves = _curves(rows, column)
    if not curves:
        return None
    figure, axes = _panels(list(curves))
    names = list(dict.fromkeys(name for panel in curves.values() for name in panel))
    most = max(value for panel in curves.values() for values in panel.values() for _, value in values)
    for axis, panel in zip(axes, curves.values(), strict=False):
        for name, values in panel.items():
            frames = [frame for frame, _ in values]
            # The same in each panel.
            colour = COLOURS[names.index(name) % len(COLOURS)]
            style = "--" if "checksum" in name else ":" if "IPv6" in name else "-"
            axis.plot(
                frames, [value for _, value in values], style, marker="o", ms=4, color=colour, label=name
            )
        _frame_axis(axis, [frame for values in panel.values() for frame, _ in values])
        axis.set_ylabel(label)
        axis.tick_params(labelleft=True)
        axis.set_ylim(0, 1.08 * most)
        axis.legend(fontsize=9, loc="upper left")
    return figure


def _cycle(count: int) -> list[str]:
    return [COLOURS[at % len(COLOURS)] for at in range(count)]


def throughput(rows: Rows) -> Figure | None:
    """Throughput against frame length, a curve for each number of workers."""
    return _line_figure(rows, "l2_gbps", "throughput [Gbit/s, layer 2]")


def energy(rows: Rows) -> Figure | None:
    """Gbit/s for a watt against frame length."""
    sources = {row["energy_source"] for _, row in _full_speed(rows)}
    how = "by RAPL" if sources == {"rapl"} else "energy model"
    return _line_figure(rows, "gbps_per_watt", f"Gbit/s per watt ({how})")


def heat_map(rows: Rows) -> Figure | None:
    """Throughput of all points at full speed, in one table of colours."""
    chosen = _full_speed(rows)
    if not chosen:
        return None
    frames = sorted({point.frame for point, _ in chosen})
    cells: dict[str, dict[int, float]] = {}
    for point, row in sorted(chosen, key=_order):
        words = [point.direction, f"{point.workers} w", point.flows]
        words += ["checksum"] if point.udp_checksum else []
        words += [f"IPv{point.ip}"] if point.ip != 4 else []
        words += [point.shape] if point.shape != "plain" else []
        words += [f"{point.sessions} s"] if len({other.sessions for other, _ in chosen}) > 1 else []
        cells.setdefault(", ".join(words), {})[point.frame] = row["l2_gbps"]
    values = [[line.get(frame, math.nan) for frame in frames] for line in cells.values()]
    with plt.rc_context(_STYLE | {"axes.grid": False}):
        figure, axis = plt.subplots(figsize=(9.6, 1.5 + 0.36 * len(cells)))
        image = axis.imshow(values, aspect="auto", cmap="viridis", vmin=0)
        axis.set_xticks(range(len(frames)), [str(frame) for frame in frames])
        axis.set_yticks(range(len(cells)), list(cells))
        axis.set_xlabel("frame length without FCS [bytes]")
        most = max(value for line in values for value in line if not math.isnan(value))
        for y, line in enumerate(values):
            for x, value in enumerate(line):
                if not math.isnan(value):
                    colour = "black" if value > 0.6 * most else "white"
                    axis.text(x, y, f"{value:.1f}", ha="center", va="center", color=colour, fontsize=9)
        figure.colorbar(image, ax=axis, label="throughput [Gbit/s, layer 2]")
    return figure


def datapaths(rows: Rows) -> Figure | None:
    """Packets a second against frame length by datapath, on a logarithmic scale."""
    over_links = [point for point, _ in rows.points() if point.datapath != "memory"]
    twins = {replace(point, datapath="memory") for point in over_links}
    chosen = [
        (point, row)
        for point, row in rows.points()
        if point.rate == "max" and (point in over_links or point in twins)
    ]
    if not chosen:
        return None
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for point, row in sorted(chosen, key=_order):
        name = DATAPATHS[point.datapath]
        name += ", one session" if point.flows == "single" else ""
        name += ", UDP checksum" if point.udp_checksum else ""
        name += f", {point.shape}" if point.shape != "plain" else ""
        panel = curves.setdefault(f"{point.direction.capitalize()}, IPv{point.ip}", {})
        panel.setdefault(name, []).append((point.frame, row["pps"] / 1e6))
    figure, axes = _panels(list(curves), 4.0)
    names = sorted({name for panel in curves.values() for name in panel})
    for axis, panel in zip(axes, curves.values(), strict=False):
        for name, values in panel.items():
            colour = COLOURS[names.index(name) % len(COLOURS)]
            axis.plot(*zip(*values, strict=True), marker="o", ms=4, color=colour, label=name)
        _frame_axis(axis, [frame for values in panel.values() for frame, _ in values])
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.set_ylabel("throughput [Mpps]")
        axis.tick_params(labelleft=True)
        axis.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.24), ncols=2)
    return figure


def cpu_regression(rows: Rows) -> Figure | None:
    """CPU use against frame length, with the line, its figures, and the band of 95 % confidence."""
    timed, loaded = _regression_data(rows)
    panels = [("Worker time a packet, one worker at full speed", "worker time [ns/packet]", timed)]
    panels += [
        (f"CPU use at {rate}, one worker", "workers with a packet in hand [%]", data)
        for rate, data in loaded.items()
    ]
    panels = [
        panel for panel in panels if any(len({x for x, _ in values}) > 2 for values in panel[2].values())
    ]
    if not panels:
        return None
    with plt.rc_context(_STYLE):
        figure, grid = plt.subplots(len(panels), 1, figsize=(9.6, 4.4 * len(panels)), squeeze=False)
    _space(figure)
    for (axis,), (title, label, data) in zip(grid, panels, strict=True):
        axis.set_title(title)
        for colour, (name, values) in zip(_cycle(len(data)), data.items(), strict=True):
            _regress_onto(axis, colour, name, values)
        axis.set_xlabel("frame length without FCS, as sent [bytes]")
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.legend(fontsize=8.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


_Series = dict[str, list[tuple[float, float]]]


def _regression_data(rows: Rows) -> tuple[_Series, dict[str, _Series]]:
    timed: _Series = {}
    loaded: dict[str, _Series] = {}
    for point, row in sorted(_in_memory(rows), key=lambda item: item[0]):
        if point.workers != 1 or point.queue != "rss":
            continue
        name = f"{point.direction}, {point.flows}" + (", checksum" if point.udp_checksum else "")
        name += f", IPv{point.ip}" if point.ip != 4 else ""
        x = float(row["frame_bytes_sent"])
        if point.rate == "max":
            timed.setdefault(name, []).append((x, row["ns_per_packet"]))
        else:
            loaded.setdefault(point.rate, {}).setdefault(name, []).append((x, row["busy_percent"]))
    return timed, loaded


def _regress_onto(axis: Axes, colour: str, name: str, values: list[tuple[float, float]]) -> None:
    xs, ys = [x for x, _ in values], [y for _, y in values]
    if len(set(xs)) < 3:
        axis.scatter(xs, ys, color=colour, s=18, label=name)
        return
    line = regress(xs, ys)
    if not is_told(line):
        axis.scatter(xs, ys, color=colour, s=18, label=f"{name}\nr² {line.r2:.2f}: no line")
        return
    axis.scatter(xs, ys, color=colour, s=18)
    grid = [min(xs) + (max(xs) - min(xs)) * step / 60 for step in range(61)]
    middle = [line.at(x) for x in grid]
    width = [line.band(x) for x in grid]
    slope = f"{'-' if line.slope < 0 else '+'} {abs(line.slope) * 1000:.2f}/1000 B"
    text = f"{name}\n{line.intercept:.1f} {slope}, r² {line.r2:.2f}"
    axis.plot(grid, middle, color=colour, lw=1.4, label=text)
    low = [max(0.0, m - w) for m, w in zip(middle, width, strict=True)]
    high = [m + w for m, w in zip(middle, width, strict=True)]
    axis.fill_between(grid, low, high, color=colour, alpha=0.12, lw=0)


def latency(rows: Rows) -> Figure | None:
    """Latency percentiles of the points at a rate."""
    chosen = [
        (point, row)
        for point, row in rows.points()
        if point.rate != "max" and row["latency_p50_ns"] is not None
    ]
    if not chosen:
        return None
    names = sorted({point.direction for point, _ in chosen}, reverse=True)
    figure, axes = _panels([f"{name.capitalize()}" for name in names], 4.6)
    for axis, direction in zip(axes, names, strict=False):
        mine = sorted([item for item in chosen if item[0].direction == direction], key=lambda item: item[0])
        for colour, (point, row) in zip(_cycle(len(mine)), mine, strict=True):
            label = f"{point.frame} B, {point.workers} w, {point.rate}" + (
                ", checksum" if point.udp_checksum else ""
            )
            label += f", IPv{point.ip}" if point.ip != 4 else ""
            label += f", {point.datapath}" if point.datapath != "memory" else ""
            label += f", {point.shape}" if point.shape != "plain" else ""
            values = [row[f"latency_{key}_ns"] / 1000 for _, key in PERCENTILES]
            style = ["-", "--", ":", "-."][mine.index((point, row)) // len(COLOURS) % 4]
            axis.plot(range(len(values)), values, style, marker="o", ms=3.5, color=colour, label=label)
        axis.set_xticks(range(len(PERCENTILES)), [name for name, _ in PERCENTILES])
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.set_xlabel("percentile [%]")
        axis.set_ylabel("latency [µs]")
        axis.tick_params(labelleft=True)
        axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    return figure


def reordering(rows: Rows) -> Figure | None:
    """Share of packets behind a later one, of the points with several workers."""
    chosen = [(point, row) for point, row in _in_memory(rows) if point.workers > 1 and row["forwarded"]]
    groups: dict[str, list[float]] = {}
    for point, row in sorted(chosen, key=lambda item: item[0]):
        name = f"{point.queue}, {point.workers} workers"
        groups.setdefault(name, []).append(row["reordered"] / row["forwarded"] * 100)
    if not groups:
        return None
    with plt.rc_context(_STYLE):
        figure, axis = _bars(1.4 + 0.45 * len(groups))
        most = [max(values) for values in groups.values()]
        axis.barh(list(groups), most, color=COLOURS[0], height=0.6)
        for y, value in enumerate(most):
            axis.text(value, y, f" {value:.3f} %", va="center", fontsize=9)
        axis.invert_yaxis()
        axis.set_xlim(0, max(1.25 * max(most), 1.0))
        axis.set_xlabel("packets behind a later one, at most of all points [% of packets]")
    return figure


def stages(shares: Mapping[str, Mapping[str, float]], totals: Mapping[str, float]) -> Figure | None:
    """Nanoseconds a packet by stage, one bar for each profile."""
    if not shares:
        return None
    names: dict[str, None] = {}
    for own in shares.values():
        names |= dict.fromkeys(own)
    palette = plt.get_cmap("tab10")
    with plt.rc_context(_STYLE):
        figure, axis = _bars(2.2 + 0.5 * len(shares))
        left = [0.0] * len(shares)
        for number, stage in enumerate(names):
            widths = [own.get(stage, 0.0) * totals[label] for label, own in shares.items()]
            axis.barh(list(shares), widths, left=left, height=0.62, color=palette(number % 10), label=stage)
            for y, (start, width) in enumerate(zip(left, widths, strict=True)):
                if width > 0.06 * max(totals.values()):
                    axis.text(
                        start + width / 2,
                        y,
                        f"{width:.0f}",
                        ha="center",
                        va="center",
                        color="white",
                        fontsize=8,
                    )
            left = [start + width for start, width in zip(left, widths, strict=True)]
        axis.invert_yaxis()
        axis.set_xlabel("worker time [ns/packet]")
        axis.legend(fontsize=8.5, ncols=3, loc="lower center", bbox_to_anchor=(0.4, 1.0))
    return figure


def held(maps: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Sessions that maps have lost, when all were written and when each was written once more."""
    drawn = [one for one in maps if one["held"]]
    if not drawn:
        return None
    with plt.rc_context(_STYLE):
        figure, axis = _bars(1.6 + 0.7 * len(drawn))
        filled = [one["held"][-1]["written"] - one["held"][-1]["found"] for one in drawn]
        again = [one["held"][-1]["written"] - (one["found_after_rewriting"] or 0) for one in drawn]
        places = range(len(drawn))
        for colour, shift, lost, label in (
            (COLOURS[0], -0.2, filled, "all written once"),
            (COLOURS[1], 0.2, again, "each written once more"),
        ):
            axis.barh([place + shift for place in places], lost, height=0.36, color=colour, label=label)
            for place, value in zip(places, lost, strict=True):
                axis.text(value, place + shift, f" {value}", va="center", fontsize=9)
        axis.set_yticks(places, [one["name"] for one in drawn])
        axis.invert_yaxis()
        axis.set_xlim(0, max(1.15 * max(filled + again), 1))
        axis.set_xlabel(
            f"sessions lost [of {drawn[0]['held'][-1]['written']} in a map with room for as many]"
        )
        axis.ticklabel_format(axis="x", style="plain")
        axis.legend(fontsize=9, loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2)
    return figure


def platform_latency(platforms: Sequence[Mapping[str, Any]]) -> Figure | None:
    """How many of the packets in GRE took longer than so long, by platform."""
    drawn = [one for one in platforms if one["latency"][0]]
    if not drawn:
        return None
    with plt.rc_context(_STYLE):
        figure, axis = plt.subplots(figsize=(9.6, 4.2))
        for place, one in enumerate(drawn):
            total = one["latency"][0]["packets"]
            times, shares, left = [], [], total
            for low, _, count in one["latency"][0]["buckets"]:
                times.append(low / 1e3)
                shares.append(left / total)
                left -= count
            style = "-" if place < len(COLOURS) else "--"
            axis.step(times, shares, style, color=COLOURS[place % len(COLOURS)], label=one["name"])
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("latency [µs]")
        axis.set_ylabel("share of packets that took longer")
        axis.legend(fontsize=9)
    return figure


def worker_shares(rows: Sequence[tuple[Point, Row]]) -> Figure | None:
    """Share of the packets that each worker had, by what packets are spread by."""
    if not rows:
        return None
    with plt.rc_context(_STYLE):
        figure, axis = _bars(1.4 + 0.45 * len(rows))
        labels = [f"{point.direction}, spread by {point.spread}" for point, _ in rows]
        workers = max(len(row["worker_packets"]) for _, row in rows)
        left = [0.0] * len(rows)
        for worker in range(workers):
            shares = [100 * row["worker_packets"][worker] / sum(row["worker_packets"]) for _, row in rows]
            axis.barh(
                labels,
                shares,
                left=left,
                height=0.6,
                color=COLOURS[worker % len(COLOURS)],
                label=f"worker {worker}",
            )
            left = [start + share for start, share in zip(left, shares, strict=True)]
        for y, (_, row) in enumerate(rows):
            axis.text(101, y, f"{row['pps'] / 1e6:.1f} Mpps", va="center", fontsize=9)
        axis.invert_yaxis()
        axis.set_xlim(0, 114)
        axis.set_xlabel("share of all packets [%]")
        axis.legend(fontsize=9, ncols=workers, loc="lower center", bbox_to_anchor=(0.45, 1.0))
    return figure
