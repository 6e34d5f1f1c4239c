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
    "dpdk",
    "xdp_native",
    "xdp_generic",
    "bridge",
    "bare_af_packet",
    "bare_af_xdp",
    "cable",
]
WORKING = PLATFORMS[:5]


def compare(binary: Path, *options: str) -> tuple[dict[str, Any], str]:
    """The report of a short comparison, and the table."""
    command = [str(binary), "bench", "platforms", "--quick", "--rounds", "1", "--json", "-", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout)), done.stderr


def measured(found: dict[str, Any], table: str) -> list[tuple[str, Any]]:
    """The platforms that were measured: all, but DPDK where it is not built in or does not start."""
    dpdk = found["dpdk"]["skipped"]
    assert dpdk is None or f"engine, DPDK: skipped: {dpdk}" in table
    skipped = {kind: platform["skipped"] for kind, platform in found.items() if kind != "dpdk"}
    assert set(skipped.values()) == {None}, skipped
    return [(kind, platform) for kind, platform in found.items() if not platform["skipped"]]


def forwards(kind: str, platform: dict[str, Any]) -> None:
    """Packets came through, and have their latencies."""
    assert platform["throughput"]["flood_pps"] > 0, kind
    assert platform["throughput"]["lost"] == 0, kind
    for latency in platform["latency"]:
        assert 0 < latency["min_ns"] <= latency["p50_ns"] <= latency["p99_ns"], kind
        assert sum(count for _, _, count in latency["buckets"]) == latency["packets"], kind


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
    for kind, platform in measured(found, table):
        forwards(kind, platform)
        # A machine with other work may lose packets at every rate.
        if platform["throughput"]["pps"] is None:
            continue
        wanted = 160 / 184 if kind in WORKING else 1
        assert platform["throughput"]["byte_ratio"] == pytest.approx(wanted, abs=1e-9), kind
        assert platform["ratio_is_right"] is (True if kind in WORKING else None)
        assert platform["throughput"]["cpu_ns"] >= 0
        assert platform["throughput"]["energy_source"] in ("rapl", "model")
    assert [added["name"] for added in report["added"]] == ["engine, AF_PACKET", "engine, AF_XDP"]
    assert "0.8695652174" in table
    assert "forwards only" in table


@pytest.mark.needs("root", "ip")
def test_the_user_plane_is_compared(binary: Path) -> None:
    """Both directions on every platform, each packet right, with short and with long payloads."""
    report, table = compare(binary, "--function", "upf", "--sessions", "100")
    assert (report["function"], report["sessions"], report["payload_bytes"]) == ("upf", 100, [22, 1450])
    assert report["memory"] is None
    found = {platform["kind"]: platform for platform in report["platforms"]}
    assert list(found) == PLATFORMS
    for kind, platform in measured(found, table):
        forwards(kind, platform)
        assert platform["ratio_is_right"] is None
        long = platform["throughput_long"]
        if kind == "dpdk":
            # Its driver for links without a NIC takes no longer frames.
            assert long is None and "frames of 1518 bytes at most" in table
        else:
            assert long["flood_pps"] > 0 and long["lost"] == 0, kind
        if platform["throughput"]["pps"]:
            assert platform["throughput"]["l2_gbps"] > 0
    assert [added["verdict"] for added in report["added"]] == ["not_resolved"] * 2, "of one trial each"
    assert "rate without loss, 1450-byte payload, Mpps" in table and "uplink latency p50" in table


def test_the_user_plane_in_memory_is_told_where_to_look(binary: Path) -> None:
    """It has a bench of its own."""
    command = [str(binary), "bench", "platforms", "--function", "upf", "--memory"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "--memory" in done.stderr


@pytest.mark.needs("root", "ip")
def test_the_kernels_share_of_a_shape_is_told(binary: Path) -> None:
    """How many sessions it has whole, in part and not, and why; a worker forwards what it leaves."""
    report, table = compare(binary, "--function", "upf", "--sessions", "40", "--shape", "mixed")
    assert report["shape"] == "mixed"
    found = {platform["kind"]: platform for platform in report["platforms"]}
    for kind in ("xdp_native", "xdp_generic"):
        forwards(kind, found[kind])
        taken = found[kind]["kernel"]
        # One in ten is VoLTE with a guaranteed rate, and of the two idle sessions one is.
        assert (taken["all"], taken["some"], taken["none"]) == (35, 5, 0)
        assert taken["left"] == [["a QER guarantees a rate", 4], ["the FAR buffers", 2]]
    assert found["af_xdp"]["kernel"] is None
    assert "40 mixed sessions" in table
    assert "XDP native: leaves packets of 4 sessions to a worker: a QER guarantees a rate" in table
