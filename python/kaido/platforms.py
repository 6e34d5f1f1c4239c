"""The chapters of a report about one function on every platform, from `kaido bench platforms --json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from matplotlib.figure import Figure

from kaido import figures


class Page(Protocol):
    """What a chapter is written on."""

    def heading(self, text: str, headline: str) -> None:
        """Begin a chapter, with what it comes to."""

    def text(self, text: str, note: bool = False) -> None:
        """Put a paragraph in."""

    def picture(self, name: str, figure: Figure | None, caption: str) -> None:
        """Put a picture in, if there is one."""

    def table(self, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Put a table in."""


#: The platforms that do the function's work; the others say what the rig itself can do.
WORKING = ("af_packet", "af_xdp", "dpdk", "xdp_native", "xdp_generic")

#: What a function is called, and its two streams.
_FUNCTIONS = {
    "gre": ("GRE header removal on every platform", ("GRE", "TCP")),
    "upf": ("The user plane on every platform", ("uplink", "downlink")),
}

#: How a verdict reads; the rule is the program's.
_VERDICTS = {
    "met": "met",
    "not_met": "not met",
    "not_resolved": "not resolved: it lies within the noise, or the trials are fewer than three",
}


def read(path: Path) -> Mapping[str, Any]:
    """Read a comparison.

    Raises:
        ValueError: it is another kind of file.
    """
    found = json.loads(path.read_text())
    if not isinstance(found, dict) or found.get("kind") != "platforms":
        raise ValueError(
            f"{path} is no comparison of platforms: `kaido bench platforms --json FILE` writes one"
        )
    return found


def chapter(page: Page, found: Mapping[str, Any], number: int) -> None:
    """Write the chapter of the comparison of that number."""
    streams = _FUNCTIONS[function_of(found)][1]
    page.heading(title(found), _headline(found))
    machine = found["machine"]
    page.text(f"{_traffic(found)} {machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}.")
    if found["memory"]:
        _memory(page, found["memory"])
    _fpga(page, found.get("fpga"))
    if found["skipped"]:
        page.text(f"End to end: not measured: {found['skipped']}", note=True)
        return
    measured = [one for one in found["platforms"] if not one["skipped"]]
    _table(page, found, measured)
    for one in measured:
        for reason, sessions in (one.get("kernel") or {}).get("left", []):
            page.text(f"{one['name']} leaves packets of {sessions} sessions to a worker: {reason}.")
    for one in found["platforms"]:
        if one["skipped"]:
            page.text(f"{one['name']}: not measured: {one['skipped']}", note=True)
    for added in found["added"]:
        one, other = (f"{each['median']:.2f} µs (± {each['spread']:.2f})" for each in added["median_us"])
        page.text(
            f"{added['name']} adds {one} to a bare port at the median ({streams[0]}), {other} "
            f"({streams[1]}); the goal of 2 µs is {_VERDICTS[added['verdict']]}."
        )
    page.picture(
        f"platforms-latency-{number}",
        figures.platform_latency(measured),
        f"Latency of single packets ({streams[0]}), by platform: the share of packets that took longer.",
    )
    page.table(
        ["platform", "good", "bad"],
        [
            [one["name"], "; ".join(one["judgement"]["good"]), "; ".join(one["judgement"]["bad"])]
            for one in measured
            if one["judgement"]["good"] or one["judgement"]["bad"]
        ],
    )


def function_of(found: Mapping[str, Any]) -> str:
    """Name the function: results from before there were two are of GRE."""
    return str(found.get("function", "gre"))


def title(found: Mapping[str, Any]) -> str:
    """Name the comparison."""
    return _FUNCTIONS[function_of(found)][0]


def _traffic(found: Mapping[str, Any]) -> str:
    """Say what was sent."""
    pps = f"{found['latency_pps']:.0f} a second"
    if function_of(found) == "upf":
        short, long = found["payload_bytes"]
        return (
            f"{found['sessions']} {found.get('shape') or 'plain'} sessions, uplink and downlink 1:1, UDP "
            f"payloads of {short} and {long} bytes. Latency: payloads of {short} bytes, {pps}."
        )
    throughput, latency = found["frame_bytes"]
    return (
        f"Frames of {throughput} bytes, GRE and TCP 1:1: where headers go, {found['byte_ratio']:.10f} of "
        f"the bytes come out. Latency: frames of {latency} bytes, {pps}."
    )


def _headline(found: Mapping[str, Any]) -> str:
    """Name the fastest, or what the engine takes in memory where nothing else was measured."""
    there = [
        one
        for one in found["platforms"]
        if one["kind"] in WORKING and not one["skipped"] and one["throughput"]["pps"]
    ]
    if there:
        best = max(there, key=lambda one: float(one["throughput"]["pps"]))
        return (
            f"{best['name']} has the highest rate without loss: {best['throughput']['pps'] / 1e6:.3f} Mpps."
        )
    if found["memory"]:
        return f"In memory a packet takes {found['memory']['warm_ns']['median']:.1f} ns of one core."
    return "No platform of this machine forwards without loss."


def _memory(page: Page, memory: Mapping[str, Any]) -> None:
    page.table(
        ["engine in memory, one core", "ns a packet", "IQR", "Mpps", "worker and ports alone, ns"],
        [
            [
                f"{memory[f'{name}_packets']} packets going round",
                memory[f"{name}_ns"]["median"],
                memory[f"{name}_ns"]["spread"],
                1e3 / memory[f"{name}_ns"]["median"],
                memory[f"bare_{name}_ns"]["median"],
            ]
            for name in ("warm", "cold")
        ],
    )


def _fpga(page: Page, model: Mapping[str, Any] | None) -> None:
    """What the hardware cores would do at a clock rate; results from before there were cores have none."""
    if not model:
        return
    if model["skipped"]:
        page.text(f"fpga-model: not measured: {model['skipped']}", note=True)
        return
    mhz = model["clock_mhz"]
    page.text(
        f"fpga-model: the hardware cores, simulated, with each packet judged. Clocks are counted; the clock "
        f"rate of {mhz:g} MHz is assumed, and so are Mpps and ns."
    )
    page.table(
        ["core", "bits", "frame, bytes", "clocks a packet", "Mpps", "to the first beat, clocks", "ns"],
        [
            [
                one["core"],
                one["bits"],
                one["frame_bytes"],
                one["clocks"],
                mhz / one["clocks"],
                one["latency_clocks"],
                one["latency_clocks"] * 1e3 / mhz,
            ]
            for one in model["cores"]
        ],
    )


def _table(page: Page, found: Mapping[str, Any], measured: Sequence[Mapping[str, Any]]) -> None:
    def scaled(value: float | None, scale: float) -> float | None:
        return None if value is None else value / scale

    def quantile(one: Mapping[str, Any], kind: int, name: str) -> float | None:
        figures_of = one["latency"][kind]
        return None if figures_of is None else float(figures_of[name]) / 1e3

    def searched(key: str, what: str) -> list[list[Any]]:
        """Rows of one search."""
        of = [one.get(key) for one in measured]

        def cells(name: str, scale: float = 1.0) -> list[float | None]:
            return [one and scaled(one.get(name), scale) for one in of]

        lost = [one["lost"] if one and one["pps"] else None for one in of]
        return [
            [f"rate without loss{what}, Mpps", *cells("pps", 1e6)],
            ["Gbit/s, both streams", *cells("l2_gbps")],
            ["flooded, Mpps", *cells("flood_pps", 1e6)],
            ["lost at that rate", *lost],
            ["CPU, ns a packet", *cells("cpu_ns")],
            ["energy, µJ a packet", *cells("microjoules")],
        ]

    function = function_of(found)
    if function == "upf":
        short, long = found["payload_bytes"]
        rows = searched("throughput", f", {short}-byte payload")
        rows += searched("throughput_long", f", {long}-byte payload")
        kernel = [one.get("kernel") for one in measured]
        if any(kernel):
            cells = [one and f"{one['all']}, {one['some']}, {one['none']}" for one in kernel]
            rows.append(["sessions in the kernel: whole, in part, none", *cells])
    else:
        rows = searched("throughput", "")
        rows.append(["bytes out/in", *(f"{one['throughput']['byte_ratio']:.10f}" for one in measured)])
    for at, packets in enumerate(_FUNCTIONS[function][1]):
        for name, label in (("p50_ns", "p50"), ("p90_ns", "p90"), ("p99_ns", "p99"), ("p999_ns", "p99.9")):
            rows.append([f"{packets} latency {label}, µs", *(quantile(one, at, name) for one in measured)])
    page.table(["", *(one["name"] for one in measured)], rows)
    sources = {one["throughput"]["energy_source"] for one in measured} - {None}
    if sources:
        said = (
            "measured by RAPL"
            if sources == {"rapl"}
            else "by the bench's model of busy cores, no measurement"
        )
        page.text(f"Energy is {said}.", note=True)
