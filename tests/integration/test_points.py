"""`kaido bench point` by datapath and IP version: what it prints and refuses, not how fast a machine is."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

LINKS = ("af_packet", "af_xdp")


def measure(binary: Path, *options: str, sessions: int = 200) -> dict[str, Any]:
    """The result of a short point."""
    command = [
        str(binary),
        "bench",
        "point",
        "--duration",
        "0.1",
        "--sessions",
        str(sessions),
        "--json",
        "-",
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.needs("root", "ip")
@pytest.mark.parametrize("ip", [4, 6])
@pytest.mark.parametrize("direction", ["uplink", "downlink"])
@pytest.mark.parametrize("datapath", LINKS)
def test_a_point_over_links_is_forwarded_and_judged(
    binary: Path, datapath: str, direction: str, ip: int
) -> None:
    """At a rate that any machine takes all packets come out, and each has a latency."""
    asked = ("--datapath", datapath, "--direction", direction, "--ip", str(ip))
    # A machine that has other work for longer than a point waits loses what comes then: once is enough.
    found = next(
        (
            point
            for point in (measure(binary, *asked, "--rate", "2kpps", "--udp-checksum") for _ in range(10))
            if point["lost"] == 0
        ),
        None,
    )
    assert found is not None, "ten times some were lost"
    point = found["point"]
    assert (point["datapath"], point["ip"], point["direction"]) == (datapath, ip, direction)
    # Uplink frames of 128 bytes have no room for two headers of IPv6 and a trailer.
    assert point["frame_bytes_sent"] == (142 if (direction, ip) == ("uplink", 6) else 128)
    assert found["forwarded"] == found["offered"] > 0
    assert found["latency"]["p50_ns"] > 0 and found["ns_per_packet"] > 0
    assert found["pmu"]["available"] is False


@pytest.mark.needs("root", "ip")
@pytest.mark.parametrize("shape", ["volte", "tenant", "mixed"])
@pytest.mark.parametrize("datapath", LINKS)
def test_every_packet_of_a_shape_is_judged_over_links(binary: Path, datapath: str, shape: str) -> None:
    """Of each QoS flow by its QFI, of each tenant by its VLAN: one that is otherwise ends the point."""
    for direction in ("uplink", "downlink"):
        asked = ("--datapath", datapath, "--direction", direction, "--shape", shape)
        # As many of each tenant.
        point = measure(binary, *asked, "--rate", "2kpps", sessions=320)
        assert point["point"]["shape"] == shape
        assert point["forwarded"] > 0 and point["latency"]["p50_ns"] > 0


@pytest.mark.needs("root", "ip")
@pytest.mark.parametrize("direction", ["uplink", "downlink"])
def test_a_point_over_links_is_held_against_a_bare_port_and_the_kernel(binary: Path, direction: str) -> None:
    """In one run, each packet judged: the kernel's has a hop less and other addresses."""
    found = measure(binary, "--datapath", "af_xdp", "--direction", direction, "--compare")
    assert found["cpu"]["user_ns"] + found["cpu"]["system_ns"] > 0
    echo, kernel = found["beside"]
    assert (echo["what"], kernel["what"]) == ("echo", "kernel")
    for beside in (echo, kernel):
        assert beside["reason"] is None, beside
        assert beside["pps"] > 0
        assert beside["ratio"] == pytest.approx(found["pps"] / beside["pps"])
    assert echo["cpu"]["user_ns"] + echo["cpu"]["system_ns"] > 0
    assert kernel["cpu"] is None, "it has no thread of its own"
    for options in (("--ip", "6"), ("--shape", "tenant", "--direction", "downlink")):
        asked = ("--datapath", "af_packet", "--rate", "2kpps", "--compare", *options)
        _, kernel = measure(binary, *asked, sessions=320)["beside"]
        assert kernel["reason"], options
    alone = measure(binary, "--datapath", "af_xdp", "--rate", "2kpps")
    assert alone["beside"] == []


@pytest.mark.needs("root", "ip")
@pytest.mark.xdist_group("links_of_the_machine")
def test_full_speed_and_bursts_go_over_links_too(binary: Path) -> None:
    """As fast as they are taken, of one session; and a burst ends by itself, without anything left behind."""
    links = set(os.listdir("/sys/class/net"))
    found = measure(binary, "--datapath", "af_xdp", "--flows", "single", "--frame", "1424")
    assert found["latency"] is None and found["forwarded"] > 0 and len(found["samples_ns"]) >= 2
    burst = measure(binary, "--datapath", "af_packet", "--packets", "300", "--rate", "10kpps")
    assert burst["offered"] == 300
    assert set(os.listdir("/sys/class/net")) == links


@pytest.mark.needs("root", "ip", "setpriv")
@pytest.mark.parametrize("datapath", LINKS)
def test_without_the_right_to_make_links_one_message_says_so(binary: Path, datapath: str) -> None:
    """And what can be measured without."""
    command = [str(binary), "bench", "point", "--datapath", datapath, "--duration", "0.1"]
    setpriv = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]
    done = subprocess.run([*setpriv, *command], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0 and not done.stdout
    told = " ".join(done.stderr.replace("│", " ").split())
    assert f"datapath {datapath} makes links of its own: network namespaces need root" in told
    assert "datapath memory needs none" in told


def test_in_memory_ipv6_needs_nobody(binary: Path) -> None:
    """Both directions; frames are as long as their headers are."""
    for direction, least in (("uplink", 126), ("downlink", 64)):
        found = measure(binary, "--ip", "6", "--direction", direction, "--frame", "64")
        assert found["lost"] == 0 and found["forwarded"] == found["offered"] > 0
        assert (found["point"]["frame_bytes_sent"], found["point"]["datapath"]) == (least, "memory")


def test_what_links_do_not_have_is_refused(binary: Path) -> None:
    """Before anything is made."""
    command = [str(binary), "bench", "point", "--datapath", "af_xdp", "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert "links of datapath af_xdp have one queue" in " ".join(done.stderr.replace("│", " ").split())
