"""`kaido bench platforms`: what it prints and checks, never how fast this machine is."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

PLATFORMS = [
    "af_packet",
    "af_xdp",
    "xdp_native",
    "xdp_generic",
    "bridge",
    "bare_af_packet",
    "bare_af_xdp",
    "cable",
]
REMOVING = PLATFORMS[:4]


def compare(binary: Path, *options: str) -> tuple[dict[str, Any], str]:
    """The report of a short comparison, and the table."""
    command = [str(binary), "bench", "platforms", "--quick", "--rounds", "1", "--json", "-", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout)), done.stderr


def test_in_memory_needs_nobody(binary: Path) -> None:
    """The engine by itself, with and without the function."""
    report, table = compare(binary, "--memory")
    memory = report["memory"]
    for name in ("warm_ns", "cold_ns", "bare_warm_ns", "bare_cold_ns"):
        assert memory[name]["median"] > 0
    assert report["platforms"] == []
    assert "skipped: only in memory" in table


@pytest.mark.needs("root", "ip")
def test_every_platform_is_compared(binary: Path) -> None:
    """Right bytes and no loss where headers go; latency of both kinds; what each is good and bad for."""
    report, table = compare(binary)
    assert report["skipped"] is None
    found = {platform["kind"]: platform for platform in report["platforms"]}
    assert list(found) == PLATFORMS
    for kind, platform in found.items():
        assert platform["skipped"] is None, platform
        assert platform["throughput"]["flood_pps"] > 0, kind
        assert platform["throughput"]["lost"] == 0, kind
        gre, tcp = platform["latency"]
        for latency in (gre, tcp):
            assert 0 < latency["min_ns"] <= latency["p50_ns"] <= latency["p99_ns"], kind
            assert sum(count for _, _, count in latency["buckets"]) == latency["packets"], kind
        # A machine with other work may lose packets at every rate.
        if platform["throughput"]["pps"] is None:
            continue
        wanted = 160 / 184 if kind in REMOVING else 1
        assert platform["throughput"]["byte_ratio"] == pytest.approx(wanted, abs=1e-9), kind
        assert platform["ratio_is_right"] is (True if kind in REMOVING else None)
        assert platform["throughput"]["cpu_ns"] >= 0
        assert platform["throughput"]["energy_source"] in ("rapl", "model")
    assert [added["name"] for added in report["added"]] == ["engine, AF_PACKET", "engine, AF_XDP"]
    assert "0.8695652174" in table
    assert "removes nothing" in table
