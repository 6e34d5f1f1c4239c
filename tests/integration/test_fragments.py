"""Fragments that real kernels make and take: of the tunnel's packets, and of users'."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import OVER_IPV4, OVER_IPV6, Attach
from rig.net import Topology
from rig.node import Node

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "ping")

OVERSIZE = '\n[gtpu]\noversize = "{}"\n'


def answered(net: Topology, address: str, size: int, *options: str) -> bool:
    """Whether all of three pings of that size are answered."""
    return net.ran.pings(address, "-I", "ue0", "-s", str(size), *options)


@pytest.mark.parametrize("base", [OVER_IPV4, OVER_IPV6], ids=["outer-ipv4", "outer-ipv6"])
def test_the_tunnels_packets_are_cut_and_put_together(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach, base: str
) -> None:
    """Over N3 of 1300 octets the gNB's kernel cuts, the node puts together, and the other way round."""
    for space, interface in ((net.ran, "gnb0"), (net.upf, "n3")):
        space.ip("link", "set", interface, "mtu", "1300")
    node = Node(binary, net.upf, tmp_path, more=OVERSIZE.format("fragment-outer")).start()
    attach("--ues 1 --tuns 1 --qfi 9", base)
    for size in (100, 1240, 1300, 1372):
        assert answered(net, "10.100.6.2", size), size
        assert answered(net, "fd00:6::2", size), size
    assert node.drops() == {}
    assert node.stop() == 0


def test_users_packets_are_cut_before_the_tunnel(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach
) -> None:
    """What may be fragmented is, on its way to a UE behind a narrow link."""
    for space, interface in ((net.ran, "gnb0"), (net.upf, "n3")):
        space.ip("link", "set", interface, "mtu", "1300")
    node = Node(binary, net.upf, tmp_path, more=OVERSIZE.format("fragment-inner")).start()
    attach("--ues 1 --tuns 1 --qfi 9")
    # The answers are as large as the requests, and have no DF if these had none.
    assert answered(net, "10.100.6.2", 1240, "-M", "dont")
    assert answered(net, "10.100.6.2", 1372, "-M", "dont")
    assert answered(net, "10.100.6.2", 3000, "-M", "dont")
    assert node.drops() == {}
    assert node.stop() == 0
