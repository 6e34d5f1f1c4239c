"""Congestion marks through GTP-U (RFC 6040), as the kernel's sockets set and see them, on every datapath."""

from __future__ import annotations

import itertools
import socket
from contextlib import closing
from pathlib import Path

import pytest
from rig.gtpu import G_PDU, PORT, gtpu, ipv4, udp
from rig.net import PATIENCE_S, Topology
from rig.node import Node
from rig.target import DN, DN_PORT, GNB, N3, UE, UE_PORT, standing

pytestmark = pytest.mark.needs("root", "ip", "ethtool")

NOT_ECT, ECT_1, ECT_0, CE = range(4)
FIELDS = (NOT_ECT, ECT_1, ECT_0, CE)
#: A DSCP that is the packet's own and must stay.
AF11 = 10 << 2


def seen(receiver: socket.socket) -> tuple[bytes, int]:
    """The next datagram, and the ToS that its packet had."""
    octets, beside, _, _ = receiver.recvmsg(2000, socket.CMSG_SPACE(1))
    (tos,) = (
        value[0] for level, kind, value in beside if (level, kind) == (socket.IPPROTO_IP, socket.IP_TOS)
    )
    return octets, tos


def leaving(inner: int, outer: int) -> int | None:
    """The field of a packet that has left a tunnel (RFC 6040 figure 4); none for one that is dropped."""
    if outer == CE:
        return CE if inner != NOT_ECT else None
    return ECT_1 if (inner, outer) == (ECT_0, ECT_1) else inner


@pytest.mark.parametrize(
    ("driver", "datapath"), [("af_xdp", "engine"), ("af_packet", "engine"), ("af_xdp", "xdp")]
)
def test_congestion_marks_go_through_tunnels(
    binary: Path, net: Topology, tmp_path: Path, driver: str, datapath: str
) -> None:
    """Each field of both headers, each way, from socket to socket.

    Conformance: RFC 6040 4.1 | The kernel's sockets see on the outer header the congestion mark of the packet
    Conformance: RFC 6040 4.2 | The kernel's sockets see the field of figure 4 for each pair of headers
    """
    net.take_redirected()
    node = Node(binary, net.upf, tmp_path, driver=driver, node=f'datapath = "{datapath}"')
    with standing(node, net) as target:
        target.gnb.close()
        with closing(net.ran.socket(GNB, PORT)) as gnb:
            for receiver in (gnb, target.server):
                receiver.settimeout(PATIENCE_S)
                receiver.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
            for field in FIELDS:
                target.server.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, AF11 | field)
                target.server.sendto(b"down %d" % field, (UE, UE_PORT))
                octets, tos = seen(gnb)
                while octets[1] != G_PDU:
                    octets, tos = seen(gnb)
                inner = octets[octets.index(b"\x45", 8) :]
                assert (tos, inner[1]) == (field, AF11 | field)
            for inner_field, outer in itertools.product(FIELDS, FIELDS):
                payload = b"up %d in %d" % (inner_field, outer)
                packet = ipv4(UE, DN, udp(UE_PORT, DN_PORT, payload), tos=AF11 | inner_field)
                gnb.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, outer)
                expected = leaving(inner_field, outer)
                if expected is None:
                    with target.dropping(1, "congestion_mark"):
                        gnb.sendto(gtpu(G_PDU, target.session.teid, packet), (N3, PORT))
                else:
                    gnb.sendto(gtpu(G_PDU, target.session.teid, packet), (N3, PORT))
                    assert seen(target.server) == (payload, AF11 | expected)
