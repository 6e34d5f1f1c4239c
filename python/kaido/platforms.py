"""The chapter of a report about GRE header removal on every platform, from `kaido bench platforms --json`."""

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


#: The platforms that remove headers; the others say what the rig itself can do.
_REMOVE = ("af_packet", "af_xdp", "xdp_native", "xdp_generic")

#: How a verdict reads; the rule is the program's.
_VERDICTS = {
    "met": "met",
    "not_met": "not met",
    "not_resolved": "not resolved: it lies within the noise",
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
    page.heading("GRE header removal on every platform", _headline(found))
    throughput, latency = found["frame_bytes"]
    machine = found["machine"]
    page.text(
        f"Frames of {throughput} bytes, GRE and TCP 1:1: where headers go, {found['byte_ratio']:.10f} of "
        f"the bytes come out. Latency: frames of {latency} bytes, {found['latency_pps']:.0f} a second. "
        f"{machine['cpu']}, "
        f"{machine['cores']} cores, Linux {machine['kernel']}."
    )
    _memory(page, found["memory"])
    if found["skipped"]:
        page.text(f"End to end: not measured: {found['skipped']}", note=True)
        return
    measured = [one for one in found["platforms"] if not one["skipped"]]
    _table(page, measured)
    for one in found["platforms"]:
        if one["skipped"]:
            page.text(f"{one['name']}: not measured: {one['skipped']}", note=True)
    for added in found["added"]:
        gre, tcp = (f"{one['median']:.2f} µs (± {one['spread']:.2f})" for one in added["median_us"])
        page.text(
            f"{added['name']} adds {gre} to a bare port at the median for packets in GRE, {tcp} for TCP; "
            f"the goal of 2 µs is {_VERDICTS[added['verdict']]}."
        )
    page.picture(
        f"platforms-latency-{number}",
        figures.platform_latency(measured),
        "Latency of single packets in GRE, by platform: the share of packets that took longer.",
    )
    page.table(
        ["platform", "good", "bad"],
        [
            [one["name"], "; ".join(one["judgement"]["good"]), "; ".join(one["judgement"]["bad"])]
            for one in measured
        ],
    )


def _headline(found: Mapping[str, Any]) -> str:
    """Name the fastest, or what the engine takes in memory where nothing else was measured."""
    there = [
        one
        for one in found["platforms"]
        if one["kind"] in _REMOVE and not one["skipped"] and one["throughput"]["pps"]
    ]
    if there:
        best = max(there, key=lambda one: float(one["throughput"]["pps"]))
        return (
            f"{best['name']} has the highest rate without loss: {best['throughput']['pps'] / 1e6:.3f} Mpps."
        )
    return f"In memory a packet takes {found['memory']['warm_ns']['median']:.1f} ns of one core."


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


def _table(page: Page, measured: Sequence[Mapping[str, Any]]) -> None:
    def scaled(value: float | None, scale: float) -> float | None:
        return None if value is None else value / scale

    def quantile(one: Mapping[str, Any], kind: int, name: str) -> float | None:
        figures_of = one["latency"][kind]
        return None if figures_of is None else float(figures_of[name]) / 1e3

    rows: list[list[Any]] = [
        ["rate without loss, Mpps", *(scaled(one["throughput"]["pps"], 1e6) for one in measured)],
        ["flooded, Mpps", *(one["throughput"]["flood_pps"] / 1e6 for one in measured)],
        ["lost at that rate", *(one["throughput"]["lost"] for one in measured)],
        ["bytes out/in", *(f"{one['throughput']['byte_ratio']:.10f}" for one in measured)],
        ["CPU, ns a packet", *(one["throughput"]["cpu_ns"] for one in measured)],
        ["energy, µJ a packet", *(one["throughput"]["microjoules"] for one in measured)],
    ]
    for kind, packets in enumerate(("GRE", "TCP")):
        for name, label in (("p50_ns", "p50"), ("p90_ns", "p90"), ("p99_ns", "p99"), ("p999_ns", "p99.9")):
            rows.append([f"{packets} latency {label}, µs", *(quantile(one, kind, name) for one in measured)])
    page.table(["", *(one["name"] for one in measured)], rows)
    sources = {one["throughput"]["energy_source"] for one in measured} - {None}
    if sources:
        said = (
            "measured by RAPL"
            if sources == {"rapl"}
            else "by the bench's model of busy cores, no measurement"
        )
        page.text(f"Energy is {said}.", note=True)
