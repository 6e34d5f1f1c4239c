"""A gNB made of scapy's GTP layers: every header it can write is read, and it reads what we write."""

from __future__ import annotations

import os
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rig.gtpu import Access
from rig.net import PATIENCE_S, Topology
from rig.node import Node
from rig.pfcp import MODIFICATION, Answer, choose, downlink, ie, to_access, to_core, tunnel, u8, u32, uplink
from rig.target import DN, DN_PORT, DOWNLINK_TEID, GNB, QFI, UE, UE_PORT, Target, standing
from scapy.contrib.gtp import (
    IE_TEIDI,
    GTP_PDCP_PDU_ExtensionHeader,
    GTP_U_Header,
    GTP_UDPPort_ExtensionHeader,
    GTPEchoRequest,
    GTPErrorIndication,
    GTPPDUSessionContainer,
    GTPSupportedExtensionHeadersNotification,
    IE_GSNAddress,
)
from scapy.layers.inet import IP, UDP
from scapy.packet import Packet, Raw

pytestmark = [pytest.mark.needs("root", "ip", "ethtool"), pytest.mark.xdist_group("scapy_gtpu")]


@pytest.fixture(scope="module")
def target(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The node, with a session."""
    with (
        Topology(f"ks{os.getpid()}-") as net,
        standing(Node(binary, net.upf, tmp_path_factory.mktemp("scapy")), net) as target,
    ):
        yield target


@pytest.fixture(autouse=True)
def _sound(target: Target) -> Iterator[None]:
    """The session stands before and after."""
    yield
    target.is_sound()


def inner(text: bytes) -> Packet:
    """A UE's packet to the data network."""
    return IP(src=UE, dst=DN) / UDP(sport=UE_PORT, dport=DN_PORT) / Raw(text)


def headers(teid: int) -> dict[str, Packet]:
    """G-PDU headers with everything that may be in one, as scapy writes them."""

    def head(**fields: Any) -> Packet:
        return GTP_U_Header(gtp_type=255, teid=teid, **fields)

    pdu = GTPPDUSessionContainer(type=1, QFI=QFI)
    delays: dict[str, Any] = {"dlSendTimeRpt": 1, "dlRecvTime": 2, "ulSendTime": 3}
    return {
        "nothing": head(),
        "sequence": head(S=1, seq=77),
        "n-pdu": head(PN=1, npdu=5),
        "all-three-flags": head(S=1, PN=1, E=1, seq=1, npdu=2, next_ex=0x85) / pdu,
        "container": head(E=1, next_ex=0x85) / pdu,
        "container-with-delays": head(E=1, next_ex=0x85)
        / GTPPDUSessionContainer(type=1, QMP=1, QFI=QFI, ExtHdrLen=7, **delays),
        "udp-port-first": head(E=1, next_ex=0x40)
        / GTP_UDPPort_ExtensionHeader(next_ex=0x85, udp_port=9)
        / pdu,
    }


@pytest.mark.parametrize("shape", list(headers(0)))
def test_every_header_is_read(target: Target, shape: str) -> None:
    """The packet behind it comes out.

    Conformance: TS 29.281 5.1 | Sequence and N-PDU numbers in a G-PDU's header are stepped over (scapy)
    Conformance: TS 29.281 5.2 | Extension headers of a G-PDU in any order (scapy)
    """
    header = headers(target.session.teid)[shape]
    target.gnb.send(bytes(header / inner(shape.encode())))
    assert target.arrives(shape.encode())


def read(octets: bytes | None) -> Packet:
    """A message as scapy reads it."""
    assert octets is not None
    return GTP_U_Header(octets)


def test_a_downlink_packet_has_a_container_that_scapy_reads(target: Target) -> None:
    """DL PDU SESSION INFORMATION with the QFI, and the packet as it was.

    Conformance: TS 38.415 5.5.2.1 | Downlink packets carry DL PDU SESSION INFORMATION with their QFI (scapy)
    """
    target.gnb.drain(0.1)
    target.server.sendto(b"down", (UE, UE_PORT))
    packet = read(target.gnb.receive(255))
    assert (packet.teid, packet.E, packet.next_ex) == (DOWNLINK_TEID, 1, 0x85)
    container = packet[GTPPDUSessionContainer]
    assert (container.type, container.QFI) == (0, QFI)
    assert (packet[IP].src, packet[IP].dst, packet[UDP].dport) == (DN, UE, UE_PORT)
    assert bytes(packet[UDP].payload) == b"down"


def test_an_echo_request_is_answered(target: Target) -> None:
    """With its sequence number, and Recovery.

    Conformance: TS 29.281 7.2.2 | Echo Response with the request's sequence number and Recovery (scapy)
    """
    target.gnb.drain(0.1)
    target.gnb.send(bytes(GTP_U_Header(gtp_type=1, S=1, seq=4711) / GTPEchoRequest()))
    answer = read(target.gnb.receive(2))
    assert (answer.gtp_type, answer.seq, answer.teid) == (2, 4711, 0)


def test_an_unknown_tunnel_gets_an_error_indication(target: Target) -> None:
    """With the TEID and our address.

    Conformance: TS 29.281 7.3.1 | Error Indication with TEID and GTP-U peer address (scapy)
    """
    target.gnb.drain(0.1)
    target.gnb.send(bytes(GTP_U_Header(teid=0x0BADCAFE) / inner(b"nobody")))
    answer = read(target.gnb.receive(26))
    elements = answer[GTPErrorIndication].IE_list
    assert [element.TEIDI for element in elements if isinstance(element, IE_TEIDI)] == [0x0BADCAFE]
    addresses = [element.ipv4_address for element in elements if isinstance(element, IE_GSNAddress)]
    assert addresses == [target.gnb.upf[0]]


def test_an_extension_that_must_be_understood_is_not(target: Target) -> None:
    """Supported Extension Headers Notification; one that may be skipped is.

    Conformance: TS 29.281 7.2.3 | Supported Extension Headers Notification (scapy)
    Conformance: TS 29.281 5.2.1 | Comprehension bits decide over unknown extension headers (scapy)
    """
    target.gnb.drain(0.1)
    must = GTP_U_Header(gtp_type=255, teid=target.session.teid, E=1, next_ex=0xC0)
    target.gnb.send(bytes(must / GTP_PDCP_PDU_ExtensionHeader(next_ex=0) / inner(b"must")))
    notification = read(target.gnb.receive(31))
    assert notification.haslayer(GTPSupportedExtensionHeadersNotification)
    assert target.nothing_arrives()
    # Type 3 is nobody's; its first two bits say that it may be skipped.
    may = GTP_U_Header(gtp_type=255, teid=target.session.teid, E=1, next_ex=0x03)
    target.gnb.send(bytes(may / Raw(b"\x01\0\0\0") / inner(b"may")))
    assert target.arrives(b"may")


def test_an_end_marker_goes_to_the_old_tunnel(target: Target) -> None:
    """At a handover that asks for it, behind the last packet there.

    Conformance: TS 29.281 7.3.2 | End Marker without payload to the tunnel that is left (scapy)
    """
    target.gnb.drain(0.1)

    def hand_over(teid: int) -> Answer:
        parameters = u8(42, 0) + tunnel(teid) + u8(49, 2)
        change = ie(10, u32(108, 2) + ie(11, parameters))
        return target.smf.ask(MODIFICATION, change, target.session.up_seid)

    for old, new in ((DOWNLINK_TEID, 0x6000), (0x6000, DOWNLINK_TEID)):
        assert hand_over(new).cause == 1
        marker = read(target.gnb.receive(254))
        assert (marker.gtp_type, marker.teid, marker.length) == (254, old, 0)


def test_an_error_indication_is_reported(target: Target) -> None:
    """What scapy writes is understood: the control plane hears of the tunnel that the gNB lost.

    Conformance: TS 23.527 5.3.3.1 | An Error Indication from the access network is reported (scapy)
    """
    lost = [IE_TEIDI(TEIDI=DOWNLINK_TEID), IE_GSNAddress(length=4, ipv4_address=GNB)]
    message = GTP_U_Header(gtp_type=26, S=1) / GTPErrorIndication(IE_list=lost)
    while not target.smf.reports.empty():
        target.smf.reports.get()
    target.gnb.send(bytes(message))
    try:
        report = target.smf.reports.get(timeout=PATIENCE_S)
    except queue.Empty:
        pytest.fail("no report")
    body = report[16:]
    assert report[1] == 56
    assert u8(39, 4) in body
    assert choose(DOWNLINK_TEID, GNB) in body


def test_a_tunnel_over_ipv6(target: Target) -> None:
    """Both ways, with a checksum that the kernel checks.

    Conformance: TS 29.281 4.4.2 | GTP-U over UDP over IPv6 (scapy)
    """
    gnb = Access(target.net.ran, "fd00:3::2", "fd00:3::1")
    try:
        session = target.smf.establish(
            uplink(1, ie(21, b"\x06")), downlink("10.60.0.2"), to_core(), to_access(0x66, "fd00:3::2")
        )
        packet = IP(src="10.60.0.2", dst=DN) / UDP(sport=UE_PORT, dport=DN_PORT) / Raw(b"over IPv6")
        gnb.send(bytes(GTP_U_Header(teid=session.teid) / packet))
        assert target.arrives(b"over IPv6")
        target.server.sendto(b"and back", ("10.60.0.2", UE_PORT))
        down = read(gnb.receive(255))
        assert (down.teid, bytes(down[UDP].payload)) == (0x66, b"and back")
        assert target.smf.delete(session).cause == 1
    finally:
        gnb.close()
