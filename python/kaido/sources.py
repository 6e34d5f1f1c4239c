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
from kaido.platforms import function_of
from kaido.point import Point

_MICRO = "kaido bench micro --json micro.json"
_SWEEP = "kaido bench sweep -c bench/upf.toml"
_PLATFORMS = "kaido bench platforms --json platforms.json"
_UPF = "kaido bench platforms --function upf --json upf.json"
_PGW_U = "cd tests && python -m rig.pgw_u --binary ../target/release/kaido --json pgw-u.json"
_DISCOVERIES = "kaido bench discoveries -o FOLDER"
_NDN = "kaido bench ndn --zipf 1 --json ndn.json"


@dataclass(frozen=True)
class Measured:
    """What was measured here, by kind; empty where it was not."""

    frame: pl.DataFrame | None = None
    micro: Mapping[str, Any] | None = None
    #: Of header removers.
    platforms: Mapping[str, Any] | None = None
    #: Of user planes.
    upf: Mapping[str, Any] | None = None
    pgw_u: Mapping[str, Any] | None = None
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
    #: A figure for each of the source's columns.
    theirs: str | tuple[str, ...]
    #: Ours, in words; none where it was not measured.
    ours: Callable[[Measured], str | None]
    #: The command that gives it; none where nothing here can.
    command: str | None
    #: Why the figures are not of the same kind.
    apart: str = ""


@dataclass(frozen=True)
class Source:
    """A public account."""

    key: str
    name: str
    lines: tuple[Line, ...]
    #: What the source measured beside each other.
    columns: tuple[str, ...] = ("the source's",)

    def header(self) -> tuple[str, ...]:
        """Name the columns of its table."""
        return ("what", *self.columns, "ours, here", "how", "not comparable in")


def read(path: Path) -> dict[str, Any] | None:
    """Tell what kind of result a JSON file is; none when it is none of these."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict):
        return None
    if found.get("kind") == "platforms":
        return {"upf" if function_of(found) == "upf" else "platforms": found}
    if found.get("kind") == "pgw_u":
        return {"pgw_u": found}
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


def _gbps(frame: int, datapath: str, **fixed: Any) -> Callable[[Measured], str | None]:
    def ours(measured: Measured) -> str | None:
        found = _best(measured, frame=frame, datapath=datapath, **fixed)
        if found is None:
            return None
        point, row = found
        workers = f"{point.workers} worker{'s' if point.workers > 1 else ''}"
        return f"{row['l2_gbps']:.1f} Gbit/s ({workers}, {point.direction}, {frame}-byte frames)"

    return ours


def _watts(measured: Measured) -> str | None:
    """Energy as RAPL tells it; none where nothing measures it: a model is no measurement."""
    found = _best(measured, frame=1424, datapath="memory")
    if found is None or found[1]["energy_source"] != "rapl":
        return None
    row = found[1]
    return f"{row['gbps_per_watt']:.2f} Gbit/s for a watt, {row['watts']:.0f} W (RAPL, in memory)"


def _upf(kind: str, long: bool) -> Callable[[Measured], str | None]:
    """Throughput of a platform with payloads of a length."""

    def ours(measured: Measured) -> str | None:
        upf = measured.upf or {}
        # The accounts are of sessions without other rules.
        platforms = upf.get("platforms", []) if (upf.get("shape") or "plain") == "plain" else []
        one = next((one for one in platforms if one["kind"] == kind), None)
        if one is None:
            return None
        if one["skipped"]:
            return f"not measured: {one['skipped']}"
        found = one["throughput_long" if long else "throughput"]
        if not found:
            return "not measured: " + next((why for why in one["judgement"]["bad"] if "frames" in why), "")
        if not found["pps"]:
            return "loss at every rate tried"
        return f"{found['l2_gbps']:.2f} Gbit/s, {found['pps'] / 1e6:.3f} Mpps without loss"

    return ours


def _scenario(of: Callable[[Mapping[str, Any]], str | None]) -> Callable[[Measured], str | None]:
    """A figure of the whole scenario of the PGW-U."""
    return lambda measured: of(measured.pgw_u) if measured.pgw_u else None


def _scenario_size(found: Mapping[str, Any]) -> str:
    attached = found["attached"]
    return (
        f"{attached['sessions']} bearers, {found['tenants']} tenants, {found['peers']} SGWs: attached in "
        f"{attached['attach_s']:.0f} s, {attached['resident_bytes'] / 2**20:.0f} MiB resident"
    )


def _scenario_rate(found: Mapping[str, Any]) -> str:
    how = f"{found['driver']}, {found['datapath']}"
    run = found["clean"]
    if run is None:
        return f"loss at every rate tried ({how})"
    gbps = sum(stream["l2_gbps"] for stream in run["streams"].values())
    return f"{gbps:.2f} Gbit/s, {run['received_pps'] / 1e3:.0f} kpps without loss ({how}, both directions)"


def _fast_path(measured: Measured) -> str | None:
    chains = (measured.micro or {}).get("xdp_map_chain", [])
    times = [(chain["offload_ns"], chain["sessions"]) for chain in chains if chain.get("offload_ns")]
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


#: What our frames of a payload are measured over.
_VETH = "veth copies each packet; one core; the source has NICs of 100 Gbit/s"
_NO_API = "our session service in the same process; theirs over an API to the device"


def _payloads(payload: int, theirs: tuple[str, ...], frame: int) -> tuple[Line, ...]:
    """Rows of a payload's length: what the source has, and each platform of ours."""
    blank = ("-",) * len(theirs)
    rows = [
        Line(
            f"throughput, {payload}-byte payload",
            theirs,
            _gbps(frame, "memory"),
            _SWEEP,
            f"in memory, no NIC; frames of {frame} bytes",
        )
    ]
    for kind, name in _PLATFORM_NAMES:
        rows.append(Line(f"  {name}", blank, _upf(kind, payload > 100), _UPF, _VETH))
    return tuple(rows)


_PLATFORM_NAMES = (
    ("dpdk", "DPDK (net_af_packet)"),
    ("af_xdp", "AF_XDP"),
    ("af_packet", "AF_PACKET"),
    ("xdp_native", "XDP in the driver"),
    ("xdp_generic", "XDP, generic"),
)


def _nothing(_: Measured) -> str | None:
    return None


SOURCES = (
    Source(
        "A",
        "UPF on offload hardware (KDDI, 2024)",
        (
            *_payloads(1450, ("233 Gbit/s", "1576 Gbit/s", "not measurable (beta)"), 1424),
            *_payloads(22, ("141 Gbit/s", "917 Gbit/s", "half of the switch's: 800 Gbit/s at most"), 64),
            Line(
                "the same in the kernel, XDP, no driver",
                ("-", "-", "-"),
                _fast_path,
                _MICRO,
                "one core under BPF_PROG_TEST_RUN: nothing is sent",
            ),
            Line(
                "power at 1.6 Tbit/s, and Gbit/s for a watt",
                ("4113 W, 0.39", "618 W, 2.6", "697 W, 2.3"),
                _watts,
                _SWEEP,
                "processor and memory alone, at our rate; only where RAPL can be read",
            ),
            Line("sessions", ("25 k tried", "100 k", "16.64 M (2 FPGAs)"), _sessions, _MICRO),
            Line("session add", ("-", "-", "138 µs"), _requests("establish"), _MICRO, _NO_API),
            Line("session read", ("-", "-", "153 µs"), _table("lookups"), _MICRO, _NO_API),
            Line("session delete", ("-", "-", "130 µs"), _requests("delete"), _MICRO, _NO_API),
            Line(
                "lookup latency",
                ("-", "-", "2 µs"),
                _table("lookups"),
                _MICRO,
                "time a lookup takes when many are under way, not from packet to packet",
            ),
        ),
        ("DPDK server", "switch ASIC", "switch ASIC and FPGA"),
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
            Line(
                "the whole scenario", "1 M bearers, 1000 tenants, 100 SGWs", _scenario(_scenario_size), _PGW_U
            ),
            Line(
                "its throughput, packets of 128 to 1424 bytes",
                "100 Gbit/s offered",
                _scenario(_scenario_rate),
                _PGW_U,
                "veth, node and bench on the same cores; the source has a NIC and a generator of its own",
            ),
            Line(
                "one core, TEIDs unseen by RSS",
                "3 to 4 Gbit/s",
                _gbps(1424, "memory", workers=1),
                _SWEEP,
                "in memory, no NIC",
            ),
        ),
    ),
    Source(
        "D",
        "GRE header removal (Mixi with Intel)",
        (
            Line(
                "92-byte frames, in memory", "11.17 Mpps (DPDK)", _gre_memory, _PLATFORMS, "in memory, no NIC"
            ),
            Line(
                "92-byte frames, over DPDK's net_af_packet",
                "11.17 Mpps",
                _gre("dpdk", _rate),
                _PLATFORMS,
                _VETH,
            ),
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
        theirs = (line.theirs,) if isinstance(line.theirs, str) else line.theirs
        how = "measured" if _is_figure(ours) else line.command or "hardware that is not here"
        table.append([line.what, *theirs, ours or "not measured here", how, line.apart])
    return table


def _is_figure(ours: str | None) -> bool:
    """Whether it is a figure, and not why there is none."""
    return ours is not None and not ours.startswith("not measured")


def count(measured: Measured) -> tuple[int, int]:
    """How many figures of the sources have one of ours beside them, of how many."""
    lines = [line for source in SOURCES for line in source.lines]
    return sum(_is_figure(line.ours(measured)) for line in lines), len(lines)


def text(measured: Measured) -> str:
    """Show all sources on a terminal."""
    parts = []
    for source in SOURCES:
        table = [list(source.header()), *rows(source, measured)]
        widths = [max(len(row[at]) for row in table) for at in range(len(source.header()))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in table
        ]
        parts.append("\n".join([f"{source.key}. {source.name}", *lines]))
    there, of = count(measured)
    parts.append(
        f"{there} of {of} rows have a figure of ours beside them; theirs are of their hardware, ours of this "
        "machine"
    )
    return "\n\n".join(parts)


def chapter(page: Page, measured: Measured) -> None:
    """Write the chapter of a report; none where no figure of ours is there."""
    there, of = count(measured)
    if not there:
        return
    page.heading(
        "Beside the sources", f"Of {of} rows of what public accounts report, {there} have a figure of ours."
    )
    page.text(
        "Theirs are of their own hardware, ours of this machine: they are no comparison of designs.",
        note=True,
    )
    for source in SOURCES:
        page.text(f"{source.key}. {source.name}")
        page.table(source.header(), rows(source, measured))
