"""The chapters of a report about a sweep, one function each."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from kaido import figures
from kaido.flame import Flame, stage_shares
from kaido.limits import Row, Rows, directions, limit_of, scaling
from kaido.page import HtmlPage
from kaido.point import Point
from kaido.search import PRECISION
from kaido.statistic import TOLD, is_told, verdict


def sweep(
    page: HtmlPage,
    frame: pl.DataFrame,
    searches: Sequence[Mapping[str, Any]],
    flames: Sequence[Flame],
    discoveries: Mapping[str, Any] | None,
    command: str,
) -> None:
    """The chapters of a sweep."""
    rows = Rows(frame)
    _header(page, frame, command)
    _throughput(page, rows)
    _shapes(page, rows)
    _datapaths(page, rows)
    _cpu(page, rows)
    _latency(page, rows, searches)
    _order(page, rows)
    _energy(page, rows)
    _differences(page, rows, flames)
    if discoveries:
        _discoveries(page, discoveries)
    _limits(page, rows)
    _flames(page, flames)
    _commands(page, frame)


def actions(frame: pl.DataFrame) -> str:
    """Name what was measured."""
    return ", ".join(sorted(set(frame["action"])))


def _one(frame: pl.DataFrame, name: str) -> str:
    return ", ".join(str(value) for value in frame[name].unique(maintain_order=True).to_list())


def _range(frame: pl.DataFrame, name: str, unit: str) -> str:
    values = [float(value) for value in frame[name].drop_nulls()]
    return f"{min(values):.1f} to {max(values):.1f}{unit}" if values else "not known"


def _header(page: HtmlPage, frame: pl.DataFrame, command: str) -> None:
    page.parts.append(f"<h1>Kaido: {html.escape(actions(frame))}</h1>")
    over_links = frame.filter(pl.col("datapath") != "memory")["key"].n_unique()
    text = f"{len(frame)} results of {frame['key'].n_unique()} points"
    if over_links:
        text += f", {over_links} of them over veth. All others were measured"
    else:
        text += ", measured"
    page.text(
        f"{text} in memory: packets lie ready in the frame pool, no NIC and no kernel takes part. Each "
        f"packet goes "
        "through the whole path of a worker and is accounted for."
    )
    pmu = "read"
    if not frame["pmu_available"].all():
        pmu = "not there: " + _one(frame.filter(~pl.col("pmu_available")), "pmu_reason")
    cache = frame["last_level_cache_bytes"][0]
    rows = [
        ("Processor", _one(frame, "cpu_model")),
        ("Cores", _one(frame, "cores")),
        ("Last-level cache", f"{cache >> 20} MiB" if cache else "not known"),
        ("Kernel", _one(frame, "kernel")),
        ("Host", _one(frame, "host")),
        ("Performance counters", pmu),
        ("Energy", _one(frame, "energy_explanation")),
        (
            "Load average before points",
            _range(frame, "load_average", ""),
        ),
        ("Time stolen by the hypervisor", _range(frame, "steal_percent", " %")),
        ("Revision", _revision(frame)),
        ("Run", _one(frame, "run_id")),
        ("Begun", _one(frame, "started")),
        ("Time of each point", f"{_one(frame, 'duration')} s of the user plane"),
        ("This report", command),
    ]
    page.table(["", ""], rows)


def _revision(frame: pl.DataFrame) -> str:
    """Name what was measured, or say that nobody knows."""
    said = _one(frame, "revision")
    if "unknown" in said:
        said += ": the program lay in no checkout and was not built by `make build`, which writes it in"
    return said


def _full(rows: Rows, datapath: str = "memory") -> list[tuple[Point, Row]]:
    return [item for item in rows.points() if item[0].rate == "max" and item[0].datapath == datapath]


def _workers(count: int) -> str:
    return f"{count} worker{'s' if count > 1 else ''}"


def _throughput(page: HtmlPage, rows: Rows) -> None:
    full = _full(rows)
    if not full:
        return
    point, row = max(full, key=lambda item: item[1]["l2_gbps"])
    page.heading(
        "Throughput",
        f"Up to {row['l2_gbps']:.1f} Gbit/s in memory with {_workers(point.workers)}: {point.direction}, "
        "frames of "
        f"{point.frame} bytes, {row['pps'] / 1e6:.2f} Mpps.",
    )
    caption = (
        "Throughput against frame length at full speed. Bits of frames as they arrive, with FCS. "
        "Uplink frames have 86 bytes at least, and 126 over IPv6, for their headers."
    )
    page.picture("throughput", figures.throughput(rows), caption)
    page.picture("heat-map", figures.heat_map(rows), "The same points as a map.")
    gains = scaling(rows)
    for (direction, workers), gain in sorted(gains.items()):
        page.text(
            f"{direction.capitalize()}, {workers} workers forward {gain:.2f} times what one does (median "
            f"of the points)."
        )


def _shapes(page: HtmlPage, rows: Rows) -> None:
    """Say what the rules of sessions cost beside plain ones; nothing where all sessions are plain."""
    measured = [(point, row) for point, row in rows.points() if point.rate == "max"]
    shaped = [(point, row) for point, row in measured if point.shape != "plain"]
    if not shaped:
        return
    table = []
    times: list[tuple[float, Point]] = []
    for point, row in sorted(shaped, key=lambda item: item[0]):
        plain = rows.twin(point, shape="plain")
        ratio = row["ns_per_packet"] / plain["ns_per_packet"] if plain else None
        times += [(ratio, point)] if ratio else []
        own = [row["pps"] / 1e6, row["ns_per_packet"], row["ns_spread"]]
        table.append([point.label(), *own, plain["ns_per_packet"] if plain else None, ratio])
    headline = "No plain sessions were measured beside them."
    if times:
        most, point = max(times)
        headline = f"A packet takes at most {most:.2f} times what it takes in plain ones: {point.label()}."
    page.heading("Rules of sessions", headline)
    page.table(["point", "Mpps", "ns a packet", "IQR", "plain, ns", "times plain"], table)
    page.text(
        "Packets are of all QoS flows of a session, in the shares that docs/benchmarks.md names, and each "
        "flow is judged by its own QFI and filter.",
        note=True,
    )


def _datapaths(page: HtmlPage, rows: Rows) -> None:
    """Say what sockets leave of what memory gives; nothing where no point is over links."""
    links = [
        (point, row) for point, row in rows.points() if point.datapath != "memory" and point.rate == "max"
    ]
    if not links:
        return
    point, row = max(links, key=lambda item: item[1]["pps"])
    page.heading(
        "Datapaths",
        f"Over links at most {row['pps'] / 1e6:.2f} Mpps come through: {figures.DATAPATHS[point.datapath]}, "
        f"{point.direction}, frames of {point.frame} bytes.",
    )
    caption = (
        "Packets a second by datapath, on a logarithmic scale. Over veth the bench's one thread sends, "
        "receives and "
        "judges every packet, and the kernel copies each twice: that is the rig's ceiling and no NIC's. "
        "Frames end with "
        "a trailer of 16 bytes there, so that the shortest are longer."
    )
    page.picture("datapaths", figures.datapaths(rows), caption)
    header = ["point", "Mpps", "lost %", "worker ns a packet", "in memory", "worker busy %"]
    table = []
    for point, row in sorted(links, key=lambda item: item[0]):
        memory = rows.twin(point, datapath="memory")
        own = [row["pps"] / 1e6, 100 * row["loss_ratio"], row["ns_per_packet"]]
        table.append([point.label(), *own, memory["ns_per_packet"] if memory else None, row["busy_percent"]])
    page.table(header, table)
    page.text(
        "Lost is what the bench sent and the node, or the bench itself, had no room for: at full speed "
        "more is sent "
        "than comes through. `kaido bench search --datapath` finds the rate at which nothing is lost.",
        note=True,
    )


def _cpu(page: HtmlPage, rows: Rows) -> None:
    ones = [item for item in _full(rows) if item[0].workers == 1]
    if not ones:
        return
    point, row = min(ones, key=lambda item: item[1]["ns_per_packet"])
    page.heading(
        "CPU and frame length",
        f"A packet takes one worker {row['ns_per_packet']:.0f} ns at least: {point.label()}.",
    )
    caption = (
        "Lines by least squares; the bands hold the mean with 95 % confidence. Slope and intercept "
        "stand beside each line, with the share of variance that it explains (r²). Where that is below "
        f"{TOLD:.0%} there is no line: the length does not explain what is seen. At a given bit rate "
        "CPU use follows the packet rate, so that a straight line over frame length explains it only "
        "in part."
    )
    page.picture("cpu-regression", figures.cpu_regression(rows), caption)
    header = ["direction", "flows", "checksum", "ns a packet", "ns for each 1000 bytes", "r²", "points"]
    table = []
    for direction in ("uplink", "downlink"):
        for flows in ("single", "multi"):
            for udp_checksum in (False, True):
                line = rows.line(
                    direction=direction,
                    flows=flows,
                    udp_checksum=udp_checksum,
                    workers=1,
                    queue="rss",
                    spread="ue",
                )
                if line and not is_told(line):
                    table.append(
                        [direction, flows, "yes" if udp_checksum else "no", None, None, line.r2, line.count]
                    )
                elif line:
                    values = [line.intercept, line.slope * 1000, line.r2, line.count]
                    table.append([direction, flows, "yes" if udp_checksum else "no", *values])
    if table:
        page.table(header, table)


def _latency(page: HtmlPage, rows: Rows, searches: Sequence[Mapping[str, Any]]) -> None:
    figure = figures.latency(rows)
    if figure is None and not searches:
        # With packets as fast as they are taken there is no latency.
        return
    timed = [
        item for item in rows.points() if item[1]["latency_p99_ns"] is not None and item[0].rate != "max"
    ]
    headline = "Rates up to which nothing is lost, and latency below them."
    if timed:
        point, row = min(timed, key=lambda item: item[1]["latency_p99_ns"])
        headline = (
            f"At a rate, 99 % of the packets wait {row['latency_p99_ns'] / 1000:.1f} µs at most, where "
            "that is "
            f"least: {point.label()}."
        )
    page.heading("Latency", headline)
    caption = (
        "From when a packet was due until it was sent. Packets come evenly; those that wait while the "
        "worker is busy are counted with their wait."
    )
    page.picture("latency", figure, caption)
    for search in searches:
        _search(page, search)


def _mpps(pps: float | None) -> float | None:
    return None if pps is None else pps / 1e6


def search_remarks(search: Mapping[str, Any]) -> list[str]:
    """Say where the rates of a search contradict one another."""
    best, precision = search["throughput_pps"], search.get("precision", PRECISION)
    remarks = []
    for name, loss in (("ndr", "no loss"), ("pdr", "0.5 % loss")):
        upper = search[name]["upper_pps"]
        if best is not None and upper is not None and best > upper * (1 + precision):
            remarks.append(
                f"Throughput, found by single trials without loss, lies {best / upper - 1:.1%} above "
                f"{name.upper()} ({loss}), which longer trials decide: what this machine takes varies by as "
                "much, and a single "
                f"trial may be lucky. Take {name.upper()}."
            )
    return remarks


def _search(page: HtmlPage, search: Mapping[str, Any]) -> None:
    what = Point(**search["point"]).label() if "point" in search else f"the device of {search['device']}"
    page.text(f"Searched: {what}.")
    rows: list[list[Any]] = [
        ["NDR (no loss), MLRsearch", _mpps(search["ndr"]["lower_pps"]), _mpps(search["ndr"]["upper_pps"])],
        ["PDR (0.5 % loss), MLRsearch", _mpps(search["pdr"]["lower_pps"]), _mpps(search["pdr"]["upper_pps"])],
        ["Throughput, RFC 2544 26.1", _mpps(search["throughput_pps"]), None],
    ]
    page.table(["", "Mpps, lower bound", "Mpps, upper bound"], rows)
    for remark in search_remarks(search):
        page.text(remark, note=True)
    page.text(
        f"Back-to-back (RFC 2544 26.4): bursts of {search['back_to_back_packets']} packets at "
        f"{search['back_to_back_pps'] / 1e6:.2f} Mpps pass whole."
    )
    if search["latency"]:
        header = [
            "share of PDR",
            "Mpps",
            "lost",
            "p50 ns",
            "p99 ns",
            "p99.9 ns (worst case, RFC 8219)",
            "PDV ns",
        ]
        page.table(
            header,
            [
                [
                    f"{row['share_of_pdr']:.0%}",
                    row["load_pps"] / 1000000.0,
                    row["lost"],
                    row.get("p50_ns"),
                    row.get("p99_ns"),
                    row.get("worst_case_latency_ns"),
                    row.get("pdv_ns"),
                ]
                for row in search["latency"]
            ],
        )
    if any(row["lost"] for row in search["latency"]):
        page.text(
            "What is lost below PDR is lost while the worker stands still, for about as long as the "
            "longest waits: "
            "the hypervisor, or work of the kernel on its CPU, is not told from the worker's own time.",
            note=True,
        )
    soak = search.get("soak")
    if soak:
        page.text(
            f"Soak: {soak['seconds']:.0f} s at {soak['load_pps'] / 1e6:.2f} Mpps, {soak['lost']} of "
            f"{soak['offered']} lost in {soak['trials_with_loss']} of {soak['trials']} trials."
        )


def _order(page: HtmlPage, rows: Rows) -> None:
    figure = figures.reordering(rows)
    if figure is None:
        # One worker sends in the order of arrival.
        return
    most = max(
        row["reordered"] / row["forwarded"]
        for point, row in _full(rows)
        if point.workers > 1 and row["forwarded"]
    )
    page.heading("Order", f"Of all packets {most:.3%} at most leave behind a later one.")
    caption = (
        "Packets that leave behind one that came in later (RFC 4737): with a queue for each worker "
        "within each queue, with a shared queue over all packets."
    )
    page.picture("reordering", figure, caption)


def _energy(page: HtmlPage, rows: Rows) -> None:
    full = [item for item in _full(rows) if item[1]["gbps_per_watt"]]
    if not full:
        return
    point, row = max(full, key=lambda item: item[1]["gbps_per_watt"])
    how = "measured by RAPL" if row["energy_source"] == "rapl" else "by a model, not measured"
    page.heading("Energy", f"Up to {row['gbps_per_watt']:.2f} Gbit/s for each watt, {how}: {point.label()}.")
    caption = "Gbit/s (layer 2) for each watt at full speed. What the watts are stands in the table above."
    page.picture("energy", figures.energy(rows), caption)


def _differences(page: HtmlPage, rows: Rows, flames: Sequence[Flame]) -> None:
    words = directions(rows)
    if not words:
        return
    page.heading("Why uplink and downlink differ", words[-1].split(". ")[-1])
    for line in words:
        page.text(line)
    chosen = [
        flame
        for flame in flames
        if not flame.reason
        and flame.point.workers == 1
        and flame.point.rate == "max"
        and (flame.point.datapath, flame.point.ip, flame.point.shape) == ("memory", 4, "plain")
    ]
    frames = sorted({flame.point.frame for flame in chosen}, key=lambda frame: abs(frame - 1424))
    chosen = [flame for flame in chosen if flame.point.frame in frames[:1]]
    shares, totals = {}, {}
    for flame in sorted(chosen, key=lambda flame: flame.point, reverse=True):
        row = rows.twin(flame.point)
        if row:
            label = f"{flame.point.direction}, {flame.point.flows}" + (
                ", checksum" if flame.point.udp_checksum else ""
            )
            shares[label] = stage_shares(flame.stacks)
            totals[label] = row["ns_per_packet"]
    if shares:
        caption = (
            f"Worker time by stage at {frames[0]} bytes: shares of perf's samples times a packet's time."
        )
        page.picture("stages", figures.stages(shares, totals), caption)


def _discoveries(page: HtmlPage, found: Mapping[str, Any]) -> None:
    lru = found["lru"]
    gains = [row["gain_gbps"] for row in found["checksum"]]
    page.heading(
        "Three discoveries, made again",
        "Maps that lose sessions, hashing that sees one flow, checksums that nobody needs: the last up to "
        f"{max(gains):.1f} Gbit/s."
        if gains
        else "Maps that lose sessions, and hashing that sees one flow.",
    )
    page.text(
        f"1. An LRU map loses sessions. {lru['sessions']} sessions were written into maps of as many "
        f"entries, by {lru['cpus']} CPUs in turn, and looked up again."
    )
    page.picture(
        "lru",
        figures.held(lru["maps"]),
        "Sessions that are not found again, by kind of map.",
    )
    for one in lru["maps"]:
        if one["skipped"]:
            page.text(f"{one['name']}: not measured: {one['skipped']}", note=True)
        else:
            last, after = one["held"][-1], one["found_after_rewriting"]
            page.text(
                f"{one['name']}: {last['found']} of {last['written']} sessions are there when all are "
                f"written, {after} after each was written once more.",
                note=True,
            )
    spread = [(Point(**entry["point"]), entry["row"]) for entry in found["spread"]]
    page.text(
        "2. Hashing that is blind for the TEID uses one core: to it all tunnels between two addresses "
        "are one flow. What the workers got:"
    )
    page.picture(
        "spread",
        figures.worker_shares(spread),
        "Share of packets of each worker, and what all together forward.",
    )
    page.text("3. Opting out of the outer UDP checksum, which TS 29.281 allows over IPv4, gains downlink:")
    header = [
        "frame bytes",
        "Gbit/s with checksum",
        "without",
        "gain Gbit/s",
        "ns a packet with",
        "without",
        "it gains",
    ]
    page.table(
        header, [[*(row[name] for name in _CHECKSUM_COLUMNS), _gains(row)] for row in found["checksum"]]
    )


def _gains(row: Mapping[str, Any]) -> str:
    """Say whether leaving the checksum out gains more than the noise of both."""
    spread = row.get("spread_ns")
    if spread is None:
        return "noise not known"
    said = verdict(row["with_ns"] - row["without_ns"], spread)
    return {"more": "yes", "less": "no: it costs"}.get(said, said)


_CHECKSUM_COLUMNS = ("frame", "with_gbps", "without_gbps", "gain_gbps", "with_ns", "without_ns")


def _limits(page: HtmlPage, rows: Rows) -> None:
    lines = []
    for point, row in sorted(rows.points(), key=lambda item: item[0]):
        lines.append(
            [point.label(), row["pps"] / 1e6, row["l2_gbps"], row["ns_per_packet"], limit_of(point, rows)]
        )
    if not lines:
        return
    kinds = Counter(re.split("[:;]", line[-1])[0] for line in lines)
    kind, count = kinds.most_common(1)[0]
    page.heading("What limits each point", f"Most often {kind}: {count} of {len(lines)} points.")
    page.table(["point", "Mpps", "Gbit/s", "ns a packet", "what limits it"], lines)


def _flames(page: HtmlPage, flames: Sequence[Flame]) -> None:
    if not flames:
        return
    there = [flame for flame in flames if not flame.reason]
    page.heading("Flame graphs", f"Where the worker's time goes, of {len(there)} of {len(flames)} points.")
    page.text(
        "Samples of the CPU's clock below the function that forwards a round; making and judging "
        "packets is left out. A function that the compiler has put into its caller is in the caller."
    )
    for flame in sorted(flames, key=lambda flame: flame.point):
        page.flame(flame)


def _commands(page: HtmlPage, frame: pl.DataFrame) -> None:
    page.heading("Commands", "Each point was measured by one command, which anyone can run again.")
    lines = "\n".join(html.escape(line) for line in sorted(set(frame["command"])))
    page.parts.append(
        f"<details><summary>{frame['command'].n_unique()} commands</summary><pre>{lines}</pre></details>"
    )
