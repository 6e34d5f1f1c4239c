"""`kaido reload` of what becomes of packets into and out of tunnels of a session, on every datapath."""

from __future__ import annotations

import socket
import struct
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest
from rig.gtpu import G_PDU, PORT, checksum, gtpu, ipv4, udp
from rig.net import PATIENCE_S, Topology, wait_until
from rig.node import Node
from rig.target import DN, DN_PORT, GNB, N3, UE, UE_PORT, Target, standing
from test_reload import reload, write

pytestmark = pytest.mark.needs("root", "ip", "ethtool")

EVERY_DATAPATH = pytest.mark.parametrize(
    ("driver", "datapath"), [("af_xdp", "engine"), ("af_packet", "engine"), ("af_xdp", "xdp")]
)
ECT_0, CE = 2, 3
AF11, EF = 10 << 2, 46 << 2
NUMBERS = count(1)


@dataclass(frozen=True)
class Outer:
    """What of the outer headers of a packet into a tunnel the file decides."""

    tos: int
    is_fixed_port: bool
    has_checksum: bool


def change(node: Node, fields: str) -> tuple[int, str]:
    """Have the node read a file with these fields of `[gtpu]`."""
    write(node, ("[pfcp]\n", f"[gtpu]\n{fields}\n\n[pfcp]\n"))
    return reload(node)


def in_kernel(node: Node) -> int:
    """Packets that the kernel's datapath has forwarded."""
    status = node.ask("status")
    assert status is not None
    ports = status["ports"]
    assert isinstance(ports, list)
    return sum(port["kernel_packets"] for port in ports)


def down(target: Target, taker: socket.socket) -> Outer:
    """Send a packet to the UE; its outer headers as the gNB sees them."""
    payload = b"down %d" % next(NUMBERS)
    target.server.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, AF11 | ECT_0)
    target.server.sendto(payload, (UE, UE_PORT))
    while not (packet := taker.recv(2000)).endswith(payload):
        pass
    port, _, _, sum_ = struct.unpack_from("!4H", packet, 20)
    return Outer(packet[1], port == PORT, sum_ != 0)


@pytest.fixture
def fast(net: Topology) -> Topology:
    """The network, whose ends take what XDP sends them."""
    net.take_redirected()
    return net


@EVERY_DATAPATH
def test_outer_headers_are_made_as_the_file_now_says(
    binary: Path, fast: Topology, tmp_path: Path, driver: str, datapath: str
) -> None:
    """DSCP, congestion marks, UDP checksum and source port; and where a field is refused, none of it."""
    node = Node(binary, fast.upf, tmp_path, driver=driver, node=f'datapath = "{datapath}"')
    before = Outer(ECT_0, is_fixed_port=False, has_checksum=False)
    with (
        standing(node, fast) as target,
        closing(fast.ran.socket(GNB, 0, socket.IPPROTO_UDP)) as taker,
    ):
        taker.settimeout(PATIENCE_S)
        assert down(target, taker) == before
        for fields, outer in (
            ('dscp = "copy"', replace(before, tos=AF11 | ECT_0)),
            ('qfi_dscp = { 9 = "EF" }', replace(before, tos=EF | ECT_0)),
            ("ecn = false", replace(before, tos=0)),
            ("udp_checksum_ipv4 = true", replace(before, has_checksum=True)),
            (
                f'[[gtpu.peer]]\nprefix = "{GNB}/32"\nudp_checksum = true',
                replace(before, has_checksum=True),
            ),
            ('source_port = "fixed"', replace(before, is_fixed_port=True)),
            ("", before),
        ):
            code, said = change(node, fields)
            assert code == 0, said
            kernel = in_kernel(node)
            assert [down(target, taker) for _ in range(3)] == [outer] * 3, fields
            if datapath == "xdp":
                wait_until(lambda kernel=kernel: in_kernel(node) == kernel + 3, "all by the kernel")
        code, said = change(node, f'dscp = "copy"\naddresses = ["{N3}"]')
        assert code == 1
        assert "gtpu.addresses" in said
        assert "cannot change: sessions and workers name it by the place" in said, said
        assert down(target, taker) == before
        target.is_sound()


@EVERY_DATAPATH
def test_marks_on_outer_headers_count_as_the_file_now_says(
    binary: Path, fast: Topology, tmp_path: Path, driver: str, datapath: str
) -> None:
    """A packet that cannot carry its tunnel's mark is dropped, or not, or is again."""
    node = Node(binary, fast.upf, tmp_path, driver=driver, node=f'datapath = "{datapath}"')
    with standing(node, fast) as target:
        target.gnb.close()
        with closing(fast.ran.socket(GNB, PORT)) as gnb:
            gnb.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, CE)

            def up() -> bytes:
                payload = b"up %d" % next(NUMBERS)
                g_pdu = gtpu(G_PDU, target.session.teid, ipv4(UE, DN, udp(UE_PORT, DN_PORT, payload)))
                gnb.sendto(g_pdu, (N3, PORT))
                return payload

            for _ in range(2):
                with target.dropping(1, "congestion_mark"):
                    up()
                assert change(node, "ecn = false")[0] == 0
                assert target.arrives(up())
                assert change(node, "")[0] == 0


def syn(mss: int) -> bytes:
    """A UE's packet that opens a TCP connection and announces an MSS."""
    segment = struct.pack("!HHIIBBHHHBBH", UE_PORT, 80, 1, 0, 6 << 4, 2, 1000, 0, 0, 2, 4, mss)
    pseudo = socket.inet_aton(UE) + socket.inet_aton(DN) + struct.pack("!HH", 6, len(segment))
    segment = segment[:16] + struct.pack("!H", checksum(pseudo + segment)) + segment[18:]
    return ipv4(UE, DN, segment, 6)


@EVERY_DATAPATH
def test_the_mss_is_lowered_as_the_file_now_says(
    binary: Path, fast: Topology, tmp_path: Path, driver: str, datapath: str
) -> None:
    """Connections that open after the reload; without the field none is."""
    node = Node(binary, fast.upf, tmp_path, driver=driver, node=f'datapath = "{datapath}"')
    with (
        standing(node, fast) as target,
        closing(fast.dn.socket(DN, 0, socket.IPPROTO_TCP)) as taker,
    ):
        taker.settimeout(PATIENCE_S)
        for fields, announced in (("", 1460), ("mss_clamp = 1000", 1000), ("", 1460)):
            code, said = change(node, fields)
            assert code == 0, said
            target.gnb.send(gtpu(G_PDU, target.session.teid, syn(1460)))
            assert taker.recv(2000)[-2:] == announced.to_bytes(2)
        target.is_sound()
