"""Tunnels of the control plane (TS 29.244 5.3.3) whose far end only the network of N4 leads to."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import pytest
from rig.gtpu import ECHO_REQUEST, ECHO_RESPONSE, G_PDU, PORT, Access, gtpu, icmpv6, ipv4, udp
from rig.net import CABLES, UE_IPV4, UE_IPV6, Cable, Network, wait_until
from rig.node import Node, port
from rig.pfcp import (
    ControlPlane,
    choose,
    create_far,
    create_pdr,
    ie,
    to_access,
    to_core,
    tunnel,
    u8,
    u32,
    uplink,
)
from rig.target import DN, DN_PORT, DOWNLINK_TEID, N3, SMF, STRANGER, UE, UE_PORT

pytestmark = pytest.mark.needs("root", "ip", "ethtool")

UPLINK, FROM_SMF, TO_SMF = 0x1001, 0x1002, 0x4001
#: To the control plane (8.2.24).
CP_FUNCTION = 3
#: The ports of N3 and N6.
PORTS = {
    "af_xdp": {"driver": "af_xdp"},
    "af_packet": {"driver": "af_packet"},
    "n6 on tap": {
        "n6": port(
            "n6",
            "tap",
            'network_instance = "internet"',
            'addresses = ["10.100.7.1/24"]',
            interface="kaido0",
        )
    },
}


SOLICITATION = icmpv6("fe80::1", "ff02::2", bytes([133]) + bytes(7))
ADVERTISEMENT = icmpv6("fe80::2", "ff02::1", bytes([134, 0, 0, 0, 64]) + bytes(11))


def rules() -> tuple[bytes, ...]:
    """A session as the SMF of Open5GS establishes it."""
    flow = b"permit out 58 from ff02::2/128 to assigned"
    sdf = ie(23, b"\x01\0" + struct.pack("!H", len(flow)) + flow)
    solicitations = create_pdr(3, 3, u8(20, 0) + choose(UPLINK) + sdf, u8(95, 6))
    solicitations = solicitations.replace(u32(29, 100), u32(29, 1))
    from_smf = create_pdr(4, 2, u8(20, CP_FUNCTION) + choose(FROM_SMF), u8(95, 6))
    to_smf = create_far(3, 2, u8(42, CP_FUNCTION) + tunnel(TO_SMF, SMF))
    both = b"\x07" + ip_address(UE).packed + ip_address("2001:db8:60:1::").packed
    to_ue = create_pdr(2, 2, u8(20, 1) + ie(93, both))
    pdrs = uplink(1, choose(UPLINK)), to_ue, solicitations, from_smf
    return *pdrs, to_core(), to_access(DOWNLINK_TEID), to_smf


@dataclass
class Core:
    """A node, an SMF that N4 alone leads to, and a gNB."""

    net: Network
    node: Node
    smf: ControlPlane
    far_end: Access
    gnb: Access
    server: socket.socket

    def up(self, inner: bytes) -> None:
        """Send a packet through the tunnel."""
        self.gnb.send(gtpu(G_PDU, UPLINK, inner))

    def dropped(self, reason: str) -> int:
        """Packets of N3 that were dropped for a reason."""
        return self.node.drops().get(f"n3 {reason}", 0)

    def paths(self) -> dict[str, bool]:
        """The GTP-U paths, and whether they are up."""
        status = self.node.ask("status")
        assert status is not None
        listed = status["paths"]
        assert isinstance(listed, list)
        return {path["peer"]: path["up"] for path in listed}


@pytest.fixture(params=PORTS)
def core(binary: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Core]:
    """A session that stands; the SMF is in a namespace of its own, with a route to the node's tunnels."""
    n3, n4, n6 = CABLES
    n4 = Cable("smf", "smf0", n4.left_addresses, n4.right, n4.right_name, n4.right_addresses)
    with Network(f"kt{os.getpid()}-", ("ran", "smf", "upf", "dn"), (n3, n4, n6)) as net:
        spaces = net.spaces
        spaces["smf"].ip("address", "add", f"{STRANGER}/24", "dev", "smf0")
        spaces["smf"].ip("route", "add", "10.100.3.0/24", "via", "10.100.4.1")
        for network, gateway in ((UE_IPV4, "10.100.6.1"), (UE_IPV6, "fd00:6::1")):
            spaces["dn"].ip("route", "add", network, "via", gateway)
        node = Node(binary, spaces["upf"], tmp_path, **PORTS[request.param])  # type: ignore[arg-type]
        node.start()
        smf, far_end = ControlPlane(spaces["smf"], SMF), Access(spaces["smf"], SMF, N3)
        gnb, server = Access(spaces["ran"]), spaces["dn"].socket(DN, DN_PORT)
        assert smf.set_up().cause == 1
        assert smf.establish(*rules()).cause == 1
        assert spaces["upf"].pings("10.100.3.2", count=1)
        yield Core(net, node, smf, far_end, gnb, server)
        for peer in (smf, far_end, gnb):
            peer.close()
        server.close()
        node.stop()


def test_router_solicitations_reach_an_smf_behind_n4_and_its_advertisements_the_ue(core: Core) -> None:
    """As Open5GS does it, with the SMF's end of the tunnel in the kernel of a host behind N4.

    Conformance: TS 29.244 5.3.3 | Tunnels of a control plane that only N4 leads to carry packets both ways
    """
    core.up(SOLICITATION)
    came = core.far_end.receive(G_PDU)
    assert came == gtpu(G_PDU, TO_SMF, SOLICITATION)
    core.far_end.send(gtpu(G_PDU, FROM_SMF, ADVERTISEMENT))
    down = core.gnb.receive(G_PDU)
    assert down == gtpu(G_PDU, DOWNLINK_TEID, ADVERTISEMENT)
    # The SMF answers echo requests, and gets answers to its own.
    wait_until(lambda: core.paths().get(SMF), "the path to the SMF is up")
    core.far_end.send(gtpu(ECHO_REQUEST, 0, b"\xab\xcd\0\0", 0x32))
    answer = core.far_end.receive(ECHO_RESPONSE)
    assert answer is not None
    assert answer[8:10] == b"\xab\xcd"
    assert "no_route" not in str(core.node.drops())


def test_only_the_control_plane_is_heard_over_n4_and_only_towards_the_ue(core: Core) -> None:
    """A stranger on N4; a packet of the control plane's as if from a UE; a UE that would speak to the SMF."""
    inner = ipv4(UE, DN, udp(UE_PORT, DN_PORT, b"not from a UE"))
    stranger = core.net.spaces["smf"].socket(STRANGER, PORT)
    stranger.sendto(gtpu(G_PDU, FROM_SMF, ADVERTISEMENT), (N3, PORT))
    stranger.sendto(gtpu(G_PDU, UPLINK, inner), (N3, PORT))
    core.far_end.send(gtpu(G_PDU, UPLINK, inner))
    wait_until(lambda: core.dropped("not_control_plane") >= 3, "they are dropped by name")
    to_smf = ipv4(UE, SMF, udp(PORT, PORT, gtpu(G_PDU, TO_SMF, SOLICITATION)))
    core.up(to_smf)
    wait_until(
        lambda: core.dropped("no_route") + core.dropped("not_n6") + tap_took(core), "the UE's is dropped"
    )
    assert core.far_end.drain() == []
    assert core.gnb.drain() == []
    core.server.settimeout(0.3)
    with pytest.raises(TimeoutError):
        core.server.recv(2000)
    stranger.close()


def tap_took(core: Core) -> bool:
    """Whether N6 is a TAP device, behind which a kernel that does not forward drops it."""
    return "kaido0" in core.node.config
