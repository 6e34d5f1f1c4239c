"""Senders on the same host leave checksums, and the cutting of long packets, to a NIC that is not there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import Attach
from rig.flow import flow
from rig.net import FAR, FAR6, Topology, wait_until
from rig.node import Node

pytestmark = pytest.mark.needs("root", "ip", "ethtool")

#: Sends a line and that many octets back, over and over, until the other end has had enough.
SERVER = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
server = socket.create_server((sys.argv[1], 8080), family=family)
while True:
    client, _ = server.accept()
    with client:
        client.sendall(bytes(range(256)) * int(client.recv(16)))
"""

LISTENS = ("ss", "--listening", "--tcp", "--numeric")

CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], 8080), timeout=20, source_address=(sys.argv[2], 0)) as server:
    server.sendall(sys.argv[3].encode())
    got = b"".join(iter(lambda: server.recv(65536), b""))
assert got == bytes(range(256)) * int(sys.argv[3]), len(got)
"""


@pytest.mark.parametrize(
    ("driver", "datapath"), [("af_packet", "engine"), ("af_xdp", "engine"), ("af_xdp", "xdp")]
)
def test_what_senders_leave_is_finished(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach, driver: str, datapath: str
) -> None:
    """TCP and UDP of both families, from a host whose kernel leaves checksums, and packets of 64 KiB."""
    net.beyond()
    for space, interface in ((net.dn, "eth0"), (net.ran, "gnb0")):
        space.run("ethtool", "-K", interface, "tx", "on", "tso", "on", "gso", "on")
        assert "tx-checksumming: on" in space.run("ethtool", "-k", interface).stdout
    node = Node(binary, net.upf, tmp_path, driver=driver, datapath=datapath).start()
    attach("--ues 1 --tuns 1")
    ue = {4: "10.60.0.1", 6: ue_address(net)}
    for far, family in ((FAR, 4), (FAR6, 6)):
        net.dn.start(sys.executable, "-c", SERVER, far)
        wait_until(lambda far=far: far in net.dn.run(*LISTENS).stdout, "the server listens")
        net.ran.run(sys.executable, "-c", CLIENT, far, ue[family], "4000")
        assert flow(net.dn, far, net.ran, ue[family], 40, 201) == list(range(40))
    assert node.drops() == {}
    assert node.stop() == 0


def ue_address(net: Topology) -> str:
    """The address of the first UE within its prefix."""
    shown = net.ran.run("ip", "-6", "-brief", "address", "show", "dev", "ue0").stdout
    (address,) = (word for word in shown.split() if word.startswith("2001:db8:60:"))
    return address.partition("/")[0]
