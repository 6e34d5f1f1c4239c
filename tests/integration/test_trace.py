"""What `kaido trace` and `kaido capture` show of real packets."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import Attach
from rig.net import Topology, run, wait_until
from rig.node import Node

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "ping", "tshark")

# The first UE's address.
UE = "10.60.0.1"


def watch(node: Node, command: str, *arguments: str) -> subprocess.Popen[str]:
    """`kaido trace` or `capture`, once it says that it has found its session."""
    return node.watch("tracing 0x", command, *arguments)


def ping(net: Topology) -> None:
    """Three requests and their answers."""
    assert net.ran.pings("10.100.6.2", "-I", "ue0")


def test_a_trace_shows_each_packets_way(node: Node, net: Topology, attach: Attach) -> None:
    """Both directions, with rule, verdict and time; another UE's packets are not shown."""
    attach("--ues 2 --tuns 2 --qfi 9")
    tracing = watch(node, "trace", "--ue", UE, "--count", "6")
    assert net.ran.pings("10.100.6.2", "-I", "ue1", count=2)
    ping(net)
    text, _ = tracing.communicate(timeout=60)
    assert tracing.returncode == 0
    lines = text.splitlines()
    ways = [line for line in lines if line[0].isdigit()]
    assert len(ways) == 6
    assert sum(" uplink n3 in " in line and " qfi 9, session 0x" in line for line in ways) == 3
    assert sum(f" downlink n6 in 98 B by {UE}, session 0x" in line for line in ways) == 3
    assert sum("match  PDR " in line and "FAR " in line for line in lines) == 6
    assert sum("send   n6 98 B" in line for line in lines) == 3
    assert sum("send   n3 " in line for line in lines) == 3
    assert node.drops() == {}


@pytest.mark.parametrize("datapath", ["engine", "xdp"])
def test_a_capture_has_the_rule_in_the_comment(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach, datapath: str
) -> None:
    """pcapng, each packet before and after; what the kernel forwards is the workers' while it is traced."""
    # The kernel forwards by a default route.
    net.upf.ip("route", "add", "0.0.0.0/0", "via", "10.100.6.2")
    net.take_redirected()
    node = Node(binary, net.upf, tmp_path, node=f'datapath = "{datapath}"').start()
    attach("--ues 1 --tuns 1 --qfi 9")
    ping(net)
    file = tmp_path / "session.pcapng"
    capturing = watch(node, "capture", "--ue", UE, "--count", "6", "-w", str(file))
    ping(net)
    capturing.communicate(timeout=60)
    assert capturing.returncode == 0
    fields = ["frame.interface_name", "frame.comment", "gtp.message", "icmp.type", "_ws.malformed"]
    shown = run(
        "tshark", "-r", str(file), "-T", "fields", "-E", "separator=|", *(f"-e{name}" for name in fields)
    )
    packets = [line.split("|") for line in shown.stdout.splitlines()]
    assert len(packets) == 12
    for interface, comment, message, _, malformed in packets:
        assert malformed == ""
        assert ("PDR " in comment) and comment.endswith("; sent")
        assert (interface == "n3") == (message == "0xff")
    assert [packet[0] for packet in packets[:2]] == ["n3", "n6"]
    assert packets[0][1].startswith("in: uplink of session 0x")
    assert packets[1][1].startswith("out: uplink of session 0x")
    # Afterwards all is as before.
    ping(net)
    assert node.stop() == 0


def test_a_reader_that_goes_leaves_nothing_behind(node: Node, net: Topology, attach: Attach) -> None:
    """Traces of readers that were killed end by themselves: there are never too many."""
    attach("--ues 1 --tuns 1")
    watching = [watch(node, "trace", "--ue", UE) for _ in range(8)]
    refused = run(str(node.binary), "trace", "--socket", str(node.socket), "--ue", UE, check=False)
    for tracing in watching:
        tracing.kill()
        tracing.communicate()
    assert refused.returncode != 0
    assert "too many traces" in refused.stderr

    def again() -> bool:
        asked = ["trace", "--socket", str(node.socket), "--ue", UE, "--seconds", "0"]
        return run(str(node.binary), *asked, check=False).returncode == 0

    wait_until(again, "the traces have ended")
    ping(net)
