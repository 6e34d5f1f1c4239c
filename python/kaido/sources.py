"""What public accounts of such systems report, and our figure beside each.

Their figures are their own, measured on their hardware; ours are of this machine. They stand beside each
other so that a reader can see what is of the same kind, and where there is no figure of ours the command that
makes one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from kaido.limits import Row, Rows
from kaido.point import Point

_MICRO = "kaido bench micro --json micro.json"
_SWEEP = "kaido bench sweep -c bench/upf.toml"
_PLATFORMS = "kaido bench platforms --json platforms.json"
_DISCOVERIES = "kaido bench discoveries -o FOLDER"
_NDN = "kaido bench ndn --zipf 1 --json ndn.json"


@dataclass(frozen=True)
class Measured:
    """What was measured here, by kind; empty where it was not."""

    frame: pl.DataFrame | None = None
    micro: Mapping[str, Any] | None = None
    platforms: Mapping[str, Any] | None = None
    discoveries: Mapping[str, Any] | None = None
    ndn: Mapping[str, Any] | None = None


class Page(Protocol):
    """What a chapter is written on."""

    def heading(self, text: str, headline: str) -> None:
        """Begin a chapter, with what it comes to."""

    def text(self, text: str, note: bool = False) -> None:
        """Put a paragraph in."""

    def table(self, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Put a table in."""


@dataclass(frozen=True)
class Line:
    """One figure of a source."""

    what: str
    theirs: str
    #: Ours, in words; none where it was not measured.
    ours: Callable[[Measured], str | None]
    #: The command that gives it; none where nothing here can.
    command: str | None


@dataclass(frozen=True)
class Source:
    """A public account."""

    key: str
    name: str
    lines: tuple[Line, ...]


HEADER = ("what", "the source's", "ours, here", "how")


def read(path: Path) -> dict[str, Any] | None:
    """Tell what kind of result a JSON file is; none when it is none of these."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict):
        return None
    if found.get("kind") == "platforms":
        return {"platforms": found}
    for key, kind in (("xdp_map_chain", "micro"), ("exchanges_per_second", "ndn"), ("lru", "discoveries")):
        if key in found:
            return {kind: found}
    return None


def gather(paths: Sequence[Path], load: Callable[[Path], pl.DataFrame]) -> Measured:
    """Read results: JSON files, sweeps, and folders with both."""
    found: dict[str, Any] = {}
    for path in paths:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        for file in files:
            if file.suffix == ".json":
                found |= read(file) or {}
        if path.suffix == ".parquet" or (path / "sweep.parquet").exists():
            found["frame"] = load(path)
    return Measured(**found)


def _best(measured: Measured, **fixed: Any) -> tuple[Point, Row] | None:
    """Return the fastest point at full speed with these fields."""
    if measured.frame is None:
        return None
    points = [
        (point, row)
        for point, row in Rows(measured.frame).points()
        if point.rate == "max" and all(getattr(point, name) == value for name, value in fixed.items())
    ]
    return max(points, key=lambda item: float(item[1]["l2_gbps"]), default=None)


def _gbps(frame: int, datapath: str) -> Callable[[Measured], str | None]:
    def ours(measured: Measured) -> str | None:
        found = _best(measured, frame=frame, datapath=datapath)
        if found is None:
            return None
        point, row = found
        return (
            f"{row['l2_gbps']:.1f} Gbit/s ({point.workers} workers, {point.direction}, {frame}-byte frames)"
        )

    return ours


def _watts(measured: Measured) -> str | None:
    found = _best(measured, frame=1424, datapath="memory")
    if found is None:
        return None
    row = found[1]
    how = "RAPL" if row["energy_source"] == "rapl" else "model, not measured"
    return f"{row['gbps_per_watt']:.2f} Gbit/s for a watt, {row['watts']:.0f} W ({how})"


def _fast_path(measured: Measured) -> str | None:
    chains = (measured.micro or {}).get("xdp_map_chain", [])
    times = [(chain["fast_path_ns"], chain["sessions"]) for chain in chains if chain.get("fast_path_ns")]
    if not times:
        return None
    ns, sessions = max(times, key=lambda item: int(item[1]))
    return f"{1e3 / ns:.1f} Mpps a core, {ns:.0f} ns a packet, {sessions} sessions (BPF_PROG_TEST_RUN)"


def _sessions(measured: Measured) -> str | None:
    found = (measured.micro or {}).get("sessions", [])
    most = max(found, key=lambda one: int(one["sessions"]), default=None)
    return most and f"{most['sessions']} tried, {most['bytes_per_session']:.0f} bytes each"


def _requests(name: str) -> Callable[[Measured], str | None]:
    def ours(measured: Measured) -> str | None:
        found = (measured.micro or {}).get("sessions", [])
        most = max(found, key=lambda one: int(one["sessions"]), default=None)
        if most is None:
            return None
        rate = float(most[f"{name}_per_second"])
        return f"{1e6 / rate:.1f} µs: {rate / 1e3:.0f} k a second, one thread, rules compiled"

    return ours


def _table(name: str) -> Callable[[Measured], str | None]:
    def ours(measured: Measured) -> str | None:
        tables = (measured.micro or {}).get("tables", [])
        one = next((table for table in tables if table["writers"] == 1), None)
        return one and f"{1e9 / one[f'{name}_per_second']:.0f} ns in the table ({one['keys']} keys)"

    return ours


def _shared(workers: int) -> Callable[[Measured], str | None]:
    def ours(measured: Measured) -> str | None:
        found = (measured.micro or {}).get("shared_queue", [])
        mine = [one for one in found if one["workers"] == workers and not one["simulated"]]
        said = [f"{one['mode']}: {one['mpps']:.2f} Mpps, {one['reordered']} reordered" for one in mine]
        return "; ".join(said) or None

    return ours


def _lru(measured: Measured) -> str | None:
    maps = ((measured.discoveries or {}).get("lru") or {}).get("maps", [])
    told = [
        f"{one['name']}: {one['held'][-1]['found'] / one['held'][-1]['written']:.1%}"
        for one in maps
        if one["held"]
    ]
    return "; ".join(told) or None


def _spread(measured: Measured) -> str | None:
    rows = (measured.discoveries or {}).get("spread", [])
    rates = {
        entry["point"]["spread"]: entry["row"]["pps"]
        for entry in rows
        if entry["point"]["direction"] == "uplink"
    }
    if not {"five-tuple", "teid"} <= rates.keys():
        return None
    workers = next(entry["point"]["workers"] for entry in rows)
    return f"{rates['teid'] / rates['five-tuple']:.2f} times with {workers} workers"


def _checksum(measured: Measured) -> str | None:
    rows = (measured.discoveries or {}).get("checksum", [])
    if not rows:
        return None
    gains = [float(row["gain_gbps"]) for row in rows]
    return f"{min(gains):+.1f} to {max(gains):+.1f} Gbit/s by frame length"


def _gre(kind: str, of: Callable[[Mapping[str, Any]], str | None]) -> Callable[[Measured], str | None]:
    def ours(measured: Measured) -> str | None:
        platforms = (measured.platforms or {}).get("platforms", [])
        one = next((one for one in platforms if one["kind"] == kind and not one["skipped"]), None)
        return one and of(one)

    return ours


def _rate(one: Mapping[str, Any]) -> str | None:
    pps = one["throughput"]["pps"]
    return pps and f"{pps / 1e6:.3f} Mpps without loss, over veth"


def _ratio(one: Mapping[str, Any]) -> str | None:
    return f"{one['throughput']['byte_ratio']:.10f}" if one["throughput"]["pps"] else None


def _latency(one: Mapping[str, Any]) -> str | None:
    latency = one["latency"][0]
    return latency and f"{latency['p50_ns'] / 1e3:.1f} µs at the median, over veth"


def _gre_memory(measured: Measured) -> str | None:
    memory = (measured.platforms or {}).get("memory")
    return memory and f"{1e3 / memory['warm_ns']['median']:.1f} Mpps of one core, in memory"


def _exchanges(measured: Measured) -> str | None:
    if measured.ndn is None:
        return None
    rate, names = measured.ndn["exchanges_per_second"], measured.ndn["names"]
    return f"{rate / 1e3:.1f} k exchanges a second over sockets, {names} names"


def _nothing(_: Measured) -> str | None:
    return None


SOURCES = (
    Source(
        "A",
        "UPF on offload hardware (KDDI, 2024)",
        (
            Line("throughput, 1450-byte payload, DPDK", "233 Gbit/s", _gbps(1424, "memory"), _SWEEP),
            Line("throughput, 22-byte payload, DPDK", "141 Gbit/s", _gbps(64, "memory"), _SWEEP),
            Line(
                "the same over AF_XDP on veth",
                "-",
                _gbps(1424, "af_xdp"),
                "kaido bench sweep -c bench/datapaths.toml",
            ),
            Line("the same in the kernel, XDP", "-", _fast_path, _MICRO),
            Line("throughput, 1450-byte payload, switch ASIC", "1576 Gbit/s", _nothing, None),
            Line("energy, DPDK", "0.39 Gbit/s for a watt, 4113 W at 1.6 Tbit/s", _watts, _SWEEP),
            Line("energy, switch with FPGA", "2.3 Gbit/s for a watt, 697 W", _nothing, None),
            Line("sessions", "25 k (DPDK), 16.64 M (2 FPGAs)", _sessions, _MICRO),
            Line("session add", "138 µs", _requests("establish"), _MICRO),
            Line("session read", "153 µs", _table("lookups"), _MICRO),
            Line("session delete", "130 µs", _requests("delete"), _MICRO),
            Line("lookup latency", "2 µs (FPGA)", _table("lookups"), _MICRO),
        ),
    ),
    Source(
        "B",
        "Several cores on one receive queue (Nagoya Institute of Technology)",
        (
            Line("1 core", "35.51 Mpps", _shared(1), _MICRO),
            Line("2 cores", "CAS 911 cycles a block", _shared(2), _MICRO),
            Line("4 cores", "39.26 Mpps, 3.4 % reordered", _shared(4), _MICRO),
        ),
    ),
    Source(
        "C",
        "PGW-U on XDP (BBSakura, 2023): 1000 tenants, 1 M bearers, 100 SGWs",
        (
            Line(
                "sessions that an LRU map of as many entries holds",
                "fewer, far below its size",
                _lru,
                _DISCOVERIES,
            ),
            Line("hashing of the TEID", "times the cores", _spread, _DISCOVERIES),
            Line("no outer UDP checksum", "+3 to +4 Gbit/s on short packets", _checksum, _DISCOVERIES),
            Line("a million bearers, a core", "3 to 4 Gbit/s", _gbps(1424, "memory"), _SWEEP),
        ),
    ),
    Source(
        "D",
        "GRE header removal (Mixi with Intel)",
        (
            Line("92-byte frames, DPDK", "11.17 Mpps", _gre_memory, _PLATFORMS),
            Line("92-byte frames, over AF_XDP", "-", _gre("af_xdp", _rate), _PLATFORMS),
            Line("92-byte frames, in the driver (XDP)", "-", _gre("xdp_native", _rate), _PLATFORMS),
            Line("92-byte frames, FPGA", "11.19 Mpps", _nothing, None),
            Line("bytes out over bytes in", "0.8695652174", _gre("af_xdp", _ratio), _PLATFORMS),
            Line("latency, DPDK", "9.52 µs", _gre("af_xdp", _latency), _PLATFORMS),
        ),
    ),
    Source(
        "E",
        "NDN router at terabit rates (Osaka University)",
        (
            Line("everything in the server", "15.8 Mpps, 79 Gbit/s", _exchanges, _NDN),
            Line("PIT in the switch", "94.4 Mpps, 470 Gbit/s", _nothing, None),
            Line("with a cache", "916 Gbit/s", _nothing, None),
        ),
    ),
)


def rows(source: Source, measured: Measured) -> list[list[str]]:
    """Return the table of a source."""
    table = []
    for line in source.lines:
        ours = line.ours(measured)
        how = "measured" if ours else line.command or "hardware that is not here"
        table.append([line.what, line.theirs, ours or "not measured here", how])
    return table


def count(measured: Measured) -> tuple[int, int]:
    """How many figures of the sources have one of ours beside them, of how many."""
    lines = [line for source in SOURCES for line in source.lines]
    return sum(line.ours(measured) is not None for line in lines), len(lines)


def text(measured: Measured) -> str:
    """Show all sources on a terminal."""
    parts = []
    for source in SOURCES:
        table = [list(HEADER), *rows(source, measured)]
        widths = [max(len(row[at]) for row in table) for at in range(len(HEADER))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in table
        ]
        parts.append("\n".join([f"{source.key}. {source.name}", *lines]))
    there, of = count(measured)
    parts.append(
        f"{there} of {of} figures have one of ours beside them; theirs are of their hardware, ours of this "
        "machine"
    )
    return "\n\n".join(parts)


def chapter(page: Page, measured: Measured) -> None:
    """Write the chapter of a report; none where no figure of ours is there."""
    there, of = count(measured)
    if not there:
        return
    page.heading(
        "Beside the sources", f"Of {of} figures that public accounts report, {there} have ours beside them."
    )
    page.text(
        "Theirs are of their own hardware, ours of this machine: they are no comparison of designs.",
        note=True,
    )
    for source in SOURCES:
        page.text(f"{source.key}. {source.name}")
        page.table(HEADER, rows(source, measured))
