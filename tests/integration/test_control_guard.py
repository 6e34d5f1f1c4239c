"""What comes by an N6 port never reaches the addresses of PFCP and of the metrics."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest
from rig.gtpu import ipv4, udp
from rig.net import Topology, wait_until
from rig.node import Node, port
from rig.pfcp import HEARTBEAT, PORT, message, u32
from rig.target import DN, N6, standing

pytestmark = pytest.mark.needs("root", "ip", "ethtool")

N4 = "10.100.4.1"
METRICS = f'\n[metrics]\nlisten = "{N4}:9464"\n'
#: Connects to the metrics, and says whether that was possible.
CONNECT = f"import socket; socket.create_connection(('{N4}', 9464), timeout=2)"
#: Sends an Ethernet frame to a device and out of it.
INJECT = """
import socket, sys
device = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
device.bind((sys.argv[1], 0))
mac = device.getsockname()[4]
device.send(mac + mac + b"\\x08\\0" + bytes.fromhex(sys.argv[2]))
"""


@pytest.mark.parametrize("driver", ["af_xdp", "af_packet"])
def test_a_data_network_reaches_neither_pfcp_nor_the_metrics(
    binary: Path, net: Topology, tmp_path: Path, driver: str
) -> None:
    """A host behind N6 with a route to N4 asks for a heartbeat, and for the metrics. N4 itself has both."""
    with standing(Node(binary, net.upf, tmp_path, driver=driver, more=METRICS), net) as target:
        net.dn.ip("route", "add", f"{N4}/32", "via", N6)
        host = net.dn.socket(DN, PORT)
        host.settimeout(1)

        def dropped() -> int:
            return target.node.drops().get("n6 control_address", 0)

        for sequence in range(3):
            host.sendto(message(HEARTBEAT, sequence, u32(96, 1)), (N4, PORT))
        wait_until(lambda: dropped() >= 3, "the heartbeats are dropped by name")
        with pytest.raises(TimeoutError):
            host.recv(2000)
        before = dropped()
        assert net.dn.run(sys.executable, "-c", CONNECT, check=False).returncode != 0
        wait_until(lambda: dropped() > before, "the connection is dropped by name")
        assert net.ran.run(sys.executable, "-c", CONNECT).returncode == 0
        host.close()
        target.is_sound()


def test_neither_does_what_a_tap_device_brings(binary: Path, net: Topology, tmp_path: Path) -> None:
    """A frame out of the kernel's side of N6, with the N4 address as its destination."""
    tap = 'network_instance = "internet"', 'addresses = ["10.100.7.1/24"]'
    node = Node(binary, net.upf, tmp_path, n6=port("n6", "tap", *tap, interface="kaido0"), more=METRICS)
    node.start()
    heartbeat = ipv4(DN, N4, udp(PORT, PORT, message(HEARTBEAT, 1, u32(96, 1))))
    syn = ipv4(DN, N4, struct.pack("!HHIIBBHHH", 4000, 9464, 1, 0, 0x50, 2, 1000, 0, 0), protocol=6)
    for packet in (heartbeat, syn):
        net.upf.run(sys.executable, "-c", INJECT, "kaido0", packet.hex())
    wait_until(lambda: node.drops().get("n6 control_address", 0) >= 2, "they are dropped by name")
    status = node.ask("status")
    assert status is not None
    assert "heartbeat" not in str(status["pfcp"])
    assert node.stop() == 0
