"""The chapter of a report about `kaido bench micro`: the path, two workers, rings, the kernel's offload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kaido.sources import Page

Found = Mapping[str, Any]


def chapter(page: Page, found: Found) -> None:
    """Write the chapter of a result of `kaido bench micro`."""
    page.heading("In memory, line by line", _headline(found))
    machine, run = found["machine"], found["run"]
    page.text(
        f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}. {run['rounds']} rounds of "
        f"{run['packets_per_round']} packets, interleaved; medians and interquartile ranges, ns a packet."
    )
    _path(page, found["results"])
    _two_workers(page, found.get("two_workers", []))
    _with_rings(page, found.get("with_rings", []))
    _kernel(page, found.get("kernel", []))
    for skipped in found["skipped"]:
        page.text(f"{skipped['name']}: not measured: {skipped['reason']}", note=True)


def _headline(found: Found) -> str:
    results = found["results"]
    if not results:
        return "Nothing was measured."
    fastest, slowest = (of(row["ns_per_packet"] for row in results) for of in (min, max))
    return f"A packet takes {fastest:.0f} to {slowest:.0f} ns at one worker."


def _case(row: Found) -> list[Any]:
    return [row["direction"], row["shape"], row["sessions"]]


def _pm(row: Found, ns: str, spread: str) -> str:
    return f"{row[ns]:.1f} ± {row[spread]:.1f}"


def _range(values: Sequence[float], digits: int) -> str:
    return f"{values[0]:.{digits}f} to {values[1]:.{digits}f}"


def _path(page: Page, rows: Sequence[Found]) -> None:
    lines = [
        [
            *_case(row),
            row["frame_bytes"],
            _pm(row, "ns_per_packet", "ns_spread"),
            _pm(row, "held_ns_per_packet", "held_ns_spread"),
        ]
        for row in rows
    ]
    page.table(["direction", "rules", "sessions", "frame", "one worker", "packets in the cache"], lines)


def _two_workers(page: Page, rows: Sequence[Found]) -> None:
    if not rows:
        return
    first, second = rows[0]["cpus"]
    page.text(
        f"Two workers on CPUs {first} and {second} forward packets of the same sessions, and update counters "
        "and policers atomically. The ratio is that of a packet's time at each of both to that at one alone, "
        "in the same round; all that was sent was counted."
    )
    lines = [
        [
            *_case(row),
            _pm(row, "ns_per_packet", "ns_spread"),
            _pm(row, "alone_ns", "alone_spread"),
            _pm(row, "atomic_ns", "atomic_spread"),
            row["ratio"],
            _range(row["ratio_range"], 2),
        ]
        for row in rows
    ]
    header = ["direction", "rules", "sessions", "two workers", "one alone", "one, atomic", "ratio", "range"]
    page.table(header, lines)


def _with_rings(page: Page, rows: Sequence[Found]) -> None:
    if not rows:
        return
    page.text(
        f"With the rings of an AF_XDP port, of {rows[0]['ring_entries']} entries, in memory alone: "
        f"bursts of {rows[0]['packets_per_burst']} packets, beside as large bursts of the path alone. "
        "What the rings' other end takes is left out."
    )
    lines = [
        [
            *_case(row),
            _pm(row, "ns_per_packet", "ns_spread"),
            _pm(row, "bare_ns", "bare_spread"),
            f"{row['added_ns']:.1f}",
            _range(row["added_range"], 1),
        ]
        for row in rows
    ]
    page.table(["direction", "rules", "sessions", "with rings", "bare", "rings add", "range"], lines)


def _kernel(page: Page, rows: Sequence[Found]) -> None:
    if not rows:
        return
    page.text(
        f"The offload in the kernel under BPF_PROG_TEST_RUN, frames of {rows[0]['frame_bytes']} bytes, "
        "without what restores the packet; packets of other flows or sessions are left to the workers where "
        "there is a reason."
    )
    lines = [
        [
            *_case(row),
            _pm(row, "ns_per_packet", "ns_spread"),
            _range(row["ns_range"], 0),
            "; ".join(f"{reason} ({sessions} sessions)" for reason, sessions in row["left"]) or "-",
        ]
        for row in rows
    ]
    page.table(["direction", "rules", "sessions", "ns", "range", "left to the workers"], lines)
