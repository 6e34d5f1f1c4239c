"""Writes the packet vectors with scapy and python-ndn, which are not ours: those of `vectors/upf` here.

    python vectors/make.py            write the files
    python vectors/make.py --check    exit 1 if the committed files differ

The format and the rules behind the expected packets are in `README.md`.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gre
import ndn_commands
import ndn_packets
from scapy.contrib.gtp import IE_TEIDI, GTP_U_Header, GTPPDUSessionContainer, IE_Recovery
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_Router_Alert
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    ICMPv6TimeExceeded,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    _IPv6ExtHdr,
)
from scapy.layers.l2 import Ether
from scapy.layers.sctp import SCTP, SCTPChunkCookieAck
from scapy.packet import Packet, Raw, raw

HERE = Path(__file__).parent
GTPU_PORT = 2152
GNB_MAC, N3_MAC = "02:00:00:00:03:02", "02:00:00:00:03:01"
DN_MAC, N6_MAC = "02:00:00:00:06:02", "02:00:00:00:06:01"
N3_V4, N3_V6, GNB_V4, GNB_V6 = "10.100.3.1", "fd00:3::1", "10.100.3.2", "fd00:3::2"
N6_V4, N6_V6 = "10.100.6.1", "fd00:6::1"
FAR_GNB_V4 = "10.200.1.5"
WEB_V4, WEB_V6 = "198.51.100.9", "2001:db8:ffff::9"
UE_V4, UE_V6 = "10.60.0.7", "2001:db8:60:7::1"

Json = dict[str, Any]


@dataclass
class File:
    """One vector file: a node, its sessions, and steps which follow one another on it."""

    name: str
    about: str
    sessions: list[Json]
    outer_source_port: str = "fixed"
    steps: list[Json] = field(default_factory=list)

    def step(
        self, name: str, port: str, frame: bytes, out: list[tuple[str, bytes]], drop: str | None = None
    ) -> None:
        """Adds a frame received on `port` and all that must come out for it."""
        sent = [{"port": to, "hex": octets.hex()} for to, octets in out]
        self.steps.append({"name": name, "port": port, "in": frame.hex(), "out": sent, "drop": drop})

    def render(self) -> str:
        """The file's text."""
        document = {
            "name": self.name,
            "about": self.about,
            "node": node(self.outer_source_port),
            "sessions": self.sessions,
            "steps": self.steps,
        }
        return json.dumps(document, indent=1) + "\n"


def node(outer_source_port: str) -> Json:
    """The one node of all files: N3 towards the RAN, N6 towards the data network."""

    def neighbour(address: str, port: str, mac: str) -> Json:
        return {"address": address, "port": port, "mac": mac}

    return {
        "ports": [
            {"name": "n3", "mac": N3_MAC, "addresses": [N3_V4, N3_V6]},
            {"name": "n6", "mac": N6_MAC, "addresses": [N6_V4, N6_V6]},
        ],
        "neighbours": [
            neighbour(GNB_V4, "n3", GNB_MAC),
            neighbour(GNB_V6, "n3", GNB_MAC),
            neighbour("10.100.6.2", "n6", DN_MAC),
            neighbour("fd00:6::2", "n6", DN_MAC),
        ],
        "routes": [
            {"prefix": "0.0.0.0/0", "port": "n6", "gateway": "10.100.6.2"},
            {"prefix": "::/0", "port": "n6", "gateway": "fd00:6::2"},
            {"prefix": "10.100.3.0/24", "port": "n3"},
            {"prefix": "fd00:3::/64", "port": "n3"},
            {"prefix": "10.100.6.0/24", "port": "n6"},
            {"prefix": "fd00:6::/64", "port": "n6"},
            {"prefix": "10.200.0.0/16", "port": "n3", "gateway": GNB_V4},
        ],
        "outer_source_port": outer_source_port,
    }


def session(
    number: int = 7,
    *,
    outer: int = 4,
    qfi_in: int | None = None,
    qfi_out: int | None = None,
    dscp: int | None = None,
    removal: int | None = None,
    sdf: list[str] | None = None,
    peer: str | None = None,
) -> Json:
    """A session of UE `number`, its tunnels over IPv4 or IPv6; TEIDs are 1000 and 2000 plus the number."""
    default_removal = 0 if outer == 4 else 1
    uplink: Json = {
        "teid": 1000 + number,
        "local": N3_V4 if outer == 4 else N3_V6,
        "qfi": qfi_in,
        "outer_header_removal": default_removal if removal is None else removal,
    }
    if sdf is not None:
        uplink["sdf"] = sdf
    return {
        "ue_ipv4": f"10.60.0.{number}",
        "ue_ipv6": f"2001:db8:60:{number:x}::/64",
        "uplink": uplink,
        "downlink": {
            "teid": 2000 + number,
            "peer": peer or (GNB_V4 if outer == 4 else GNB_V6),
            "qfi": qfi_out,
            "dscp": dscp,
        },
        "gate": {"uplink": True, "downlink": True},
        "far": {"uplink": "forward", "downlink": "forward"},
    }


def data(length: int) -> Raw:
    """Payload of counting octets."""
    return Raw(bytes(index & 0xFF for index in range(length)))


def teid(of: Json, direction: str) -> int:
    """A tunnel endpoint identifier of a session."""
    return int(of[direction]["teid"])


# --- inner packets: (source, destination) → packet; TTL 64 unless changed ---


def ip4(src: str, dst: str, upper: Packet, **fields: Any) -> Packet:
    """An inner IPv4 packet."""
    return IP(**{"src": src, "dst": dst, "id": 0x1234, "ttl": 64, **fields}) / upper


def ip6(src: str, dst: str, upper: Packet, **fields: Any) -> Packet:
    """An inner IPv6 packet."""
    return IPv6(**{"src": src, "dst": dst, "hlim": 64, "fl": 0x12345, **fields}) / upper


def udp(length: int = 64) -> Packet:
    """A UDP datagram with `length` octets of payload."""
    return UDP(sport=40000, dport=5060) / data(length)


def tcp(length: int = 64, flags: str = "PA") -> Packet:
    """A TCP segment with `length` octets of payload."""
    return TCP(sport=40001, dport=443, seq=0x01020304, ack=0x05060708, flags=flags, window=8192) / data(
        length
    )


def inner_packets(ue4: str, ue6: str, uplink: bool) -> list[tuple[str, Packet]]:
    """Inner packets of every kind, from the UE or to it."""
    src4, dst4 = (ue4, WEB_V4) if uplink else (WEB_V4, ue4)
    src6, dst6 = (ue6, WEB_V6) if uplink else (WEB_V6, ue6)
    syn = TCP(
        sport=40001, dport=443, seq=1, flags="S", window=65535, options=[("MSS", 1460), ("SAckOK", b"")]
    )
    hop = IPv6ExtHdrHopByHop()
    chain = IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / IPv6ExtHdrRouting(addresses=[WEB_V6], segleft=0)
    return [
        ("IPv4 UDP of 64 octets", ip4(src4, dst4, udp(64))),
        ("IPv4 UDP without payload", ip4(src4, dst4, udp(0))),
        ("IPv4 UDP without checksum", ip4(src4, dst4, UDP(sport=1, dport=2, chksum=0) / data(32))),
        ("IPv4 packet of 1500 octets", ip4(src4, dst4, udp(1472), tos=0xB8, flags="DF")),
        ("IPv4 TCP", ip4(src4, dst4, tcp(512))),
        ("IPv4 TCP SYN", ip4(src4, dst4, syn)),
        ("IPv4 ICMP echo", ip4(src4, dst4, ICMP(type=8, id=77, seq=3) / data(56))),
        ("IPv4 SCTP", ip4(src4, dst4, SCTP(sport=36412, dport=38412, tag=7) / SCTPChunkCookieAck())),
        ("IPv4 with the router alert option", ip4(src4, dst4, udp(64), options=[IPOption_Router_Alert()])),
        ("IPv4 first fragment", ip4(src4, dst4, udp(64), flags="MF")),
        ("IPv4 last fragment", ip4(src4, dst4, data(64), frag=9, proto=17)),
        ("IPv4 with TTL 2", ip4(src4, dst4, udp(64), ttl=2)),
        ("IPv4 with TTL 255", ip4(src4, dst4, udp(64), ttl=255)),
        # One hop less adds 0x0100 to the checksum: 0xff00 carries to 0x0001, and 0xfeff becomes 0x0000, not
        # the 0xffff of RFC 1141 that RFC 1624 corrects.
        ("IPv4 checksum 0xff00", ip4(src4, dst4, udp(64), id=identification_for(src4, dst4, 0xFF00))),
        ("IPv4 checksum 0xfeff", ip4(src4, dst4, udp(64), id=identification_for(src4, dst4, 0xFEFF))),
        ("IPv6 UDP of 64 octets", ip6(src6, dst6, udp(64))),
        ("IPv6 packet of 1500 octets", ip6(src6, dst6, udp(1452), tc=0xB8)),
        ("IPv6 TCP", ip6(src6, dst6, tcp(512))),
        ("IPv6 ICMPv6 echo", ip6(src6, dst6, ICMPv6EchoRequest(id=77, seq=3, data=raw(data(56))))),
        ("IPv6 hop-by-hop options", ip6(src6, dst6, hop / udp(64))),
        ("IPv6 chain of extension headers", ip6(src6, dst6, chain / udp(64))),
        ("IPv6 first fragment", ip6(src6, dst6, IPv6ExtHdrFragment(m=1, id=9) / udp(64))),
        ("IPv6 last fragment", ip6(src6, dst6, IPv6ExtHdrFragment(offset=9, nh=17, id=9) / data(64))),
        ("IPv6 with hop limit 2", ip6(src6, dst6, udp(64), hlim=2)),
    ]


def identification_for(src: str, dst: str, checksum: int) -> int:
    """The identification with which the header of an inner UDP packet of 64 octets has this checksum."""
    header = IP(raw(ip4(src, dst, udp(64), id=0)))
    # A checksum falls as the identification rises, both modulo 0xffff.
    return int(header.chksum - checksum) % 0xFFFF


def hop_less(packet: Packet) -> Packet:
    """The packet as the next router gets it: one hop less, its checksum computed afresh by scapy."""
    packet = packet.copy()
    if IP in packet and packet.name == "IP":
        packet.ttl -= 1
    else:
        packet.hlim -= 1
    return packet


def traffic_class(packet: Packet) -> int:
    """The ToS or Traffic Class octet of a packet."""
    return int(packet.tc if packet.name == "IPv6" else packet.tos)


# --- frames ---


def container(qfi: int, uplink: bool, **fields: Any) -> bytes:
    """A PDU session container as an extension header."""
    built = GTPPDUSessionContainer(type=1 if uplink else 0, QFI=qfi, **fields)
    return raw(built)


def extension(content: bytes, following: int) -> bytes:
    """An extension header: length in units of four octets, content, next type."""
    assert len(content) % 4 == 2
    return bytes([(len(content) + 2) // 4]) + content + bytes([following])


def gtpu(
    tunnel: int, payload: Packet | bytes, extensions: tuple[int, bytes] | None = None, **fields: Any
) -> Packet:
    """A GTP-U message; `extensions` are the type of the first extension and the chain."""
    first, chain = extensions or (0, b"")
    if extensions:
        fields = {"E": 1, "next_ex": first, **fields}
    octets = payload if isinstance(payload, bytes) else raw(payload)
    return GTP_U_Header(**{"gtp_type": 255, "teid": tunnel, **fields}) / Raw(chain + octets)


def from_gnb(message: Packet, outer: int = 4, sport: int = GTPU_PORT, **ip: Any) -> bytes:
    """A frame from the gNB to N3."""
    datagram = UDP(sport=sport, dport=GTPU_PORT, **({"chksum": 0} if outer == 4 else {})) / message
    if outer == 4:
        header = IP(**{"src": GNB_V4, "dst": N3_V4, "id": 0x4321, "ttl": 61, **ip})
    else:
        header = IPv6(**{"src": GNB_V6, "dst": N3_V6, "hlim": 61, **ip})
    return raw(Ether(src=GNB_MAC, dst=N3_MAC) / header / datagram)


def to_gnb(
    message: Packet,
    outer: int = 4,
    sport: int = GTPU_PORT,
    dport: int = GTPU_PORT,
    dscp: int | None = None,
    ecn: int = 0,
    peer: str = GNB_V4,
) -> bytes:
    """A frame from N3 to the gNB, with the outer headers this node sends."""
    tos = (dscp or 0) << 2 | ecn
    if outer == 4:
        header = IP(src=N3_V4, dst=peer, id=0, flags="DF", ttl=64, tos=tos)
        datagram = UDP(sport=sport, dport=dport, chksum=0)
    else:
        header = IPv6(src=N3_V6, dst=GNB_V6, hlim=64, tc=tos, fl=0)
        datagram = UDP(sport=sport, dport=dport)
    return raw(Ether(src=N3_MAC, dst=GNB_MAC) / header / datagram / message)


def from_dn(packet: Packet | bytes, padding: int = 0) -> bytes:
    """A frame from the data network to N6."""
    octets = packet if isinstance(packet, bytes) else raw(packet)
    kind = 0x86DD if octets[0] >> 4 == 6 else 0x0800
    return raw(Ether(src=DN_MAC, dst=N6_MAC, type=kind)) + octets + bytes(padding)


def to_dn(packet: Packet) -> bytes:
    """A frame from N6 to the data network."""
    kind = 0x86DD if packet.name == "IPv6" else 0x0800
    return raw(Ether(src=N6_MAC, dst=DN_MAC, type=kind) / packet)


def tunnelled(of: Json, packet: Packet, sport: int = GTPU_PORT) -> bytes:
    """A packet in the downlink tunnel of a session."""
    tunnel = of["downlink"]
    qfi, peer = tunnel["qfi"], tunnel["peer"]
    marking = None if qfi is None else (0x85, container(qfi, uplink=False))
    message = gtpu(tunnel["teid"], packet, marking)
    outer = 6 if ":" in peer else 4
    return to_gnb(message, outer, sport=sport, dscp=tunnel["dscp"], ecn=traffic_class(packet) & 3, peer=peer)


def entropy_port(packet: Packet) -> int:
    """The outer UDP source port of `outer_source_port` "entropy"; README.md has the rule."""
    if packet.name == "IPv6":
        upper = packet.payload
        while isinstance(upper, _IPv6ExtHdr):
            upper = upper.payload
        last = upper.underlayer
        protocol, fragment = last.nh, IPv6ExtHdrFragment in packet
    else:
        upper, protocol = packet.payload, packet.proto
        fragment = bool(packet.flags.MF) or packet.frag != 0
    octets = b"".join(ipaddress.ip_address(address).packed for address in (packet.src, packet.dst))
    folded = int(protocol)
    for (word,) in struct.iter_unpack("!H", octets):
        folded ^= word
    if protocol in (6, 17, 132) and not fragment:
        folded ^= upper.sport ^ upper.dport
    return 49152 + (folded & 0x3FFF)


def built(packet: Packet) -> Packet:
    """The packet with every computed field filled in."""
    return packet.__class__(raw(packet))


# --- files ---


def uplink() -> File:
    """Plain uplink forwarding and the forms of the GTP-U header."""
    over4, over6, any4 = session(7), session(8, outer=6), session(9, removal=6)
    any6 = session(10, outer=6, removal=6)
    file = File(
        "uplink", "G-PDUs on N3 lose their outer headers and leave on N6.", [over4, over6, any4, any6]
    )
    for of, outer, suffix in ((over4, 4, 7), (over6, 6, 8)):
        for name, inner in inner_packets(f"10.60.0.{suffix}", f"2001:db8:60:{suffix}::1", uplink=True):
            frame = from_gnb(gtpu(teid(of, "uplink"), inner), outer)
            file.step(f"{name} over IPv{outer}", "n3", frame, [("n6", to_dn(hop_less(inner)))])
    for of, outer, suffix in ((any4, 4, 9), (any6, 6, 10)):
        inner = ip4(f"10.60.0.{suffix}", WEB_V4, udp())
        frame = from_gnb(gtpu(teid(of, "uplink"), inner), outer)
        file.step(f"outer header removal 6 over IPv{outer}", "n3", frame, [("n6", to_dn(hop_less(inner)))])
    ul9 = container(9, uplink=True)
    ul9_long = container(9, uplink=True, SNP=1, UlQFISeqNum=0x010203)
    assert len(ul9_long) == 8
    port = extension(b"\x08\x68", 0)
    forms: list[tuple[str, dict[str, Any]]] = [
        ("sequence number only", {"S": 1, "seq": 0xBEEF}),
        ("N-PDU number only", {"PN": 1, "npdu": 7}),
        ("sequence and N-PDU number", {"S": 1, "PN": 1, "seq": 1, "npdu": 2}),
        ("next extension type without the E flag is ignored", {"S": 1, "seq": 1, "next_ex": 0xFF}),
        ("E flag without an extension", {"extensions": (0, b"")}),
        ("spare bit set", {"reserved": 1}),
        ("PDU session container of 4 octets", {"extensions": (0x85, ul9)}),
        ("PDU session container of 8 octets", {"extensions": (0x85, ul9_long)}),
        ("PDU session container and sequence number", {"extensions": (0x85, ul9), "S": 1, "seq": 5}),
        ("UDP port extension", {"extensions": (0x40, port)}),
        ("service class indicator extension", {"extensions": (0x20, extension(b"\x01\x00", 0))}),
        ("ignorable extension 0x3f", {"extensions": (0x3F, extension(bytes(10), 0))}),
        ("ignorable extension 0x7f", {"extensions": (0x7F, extension(bytes(2), 0))}),
        ("UDP port, then container", {"extensions": (0x40, extension(b"\x08\x68", 0x85) + ul9)}),
        ("container, then UDP port", {"extensions": (0x85, ul9[:-1] + b"\x40" + port)}),
        (
            "chain of 8 extensions",
            {"extensions": (0x3F, extension(bytes(2), 0x3F) * 7 + extension(bytes(2), 0))},
        ),
        (
            "chain of 512 octets",
            {"extensions": (0x3F, extension(bytes(254), 0x3F) + extension(bytes(254), 0))},
        ),
    ]
    inner = ip4(UE_V4, WEB_V4, udp())
    for name, fields in forms:
        frame = from_gnb(gtpu(teid(over4, "uplink"), inner, **fields))
        file.step(name, "n3", frame, [("n6", to_dn(hop_less(inner)))])
    small = ip4(UE_V4, WEB_V4, udp(0))
    padded = from_gnb(gtpu(teid(over4, "uplink"), small)) + bytes(12)
    file.step("Ethernet padding is not forwarded", "n3", padded, [("n6", to_dn(hop_less(small)))])
    marked = from_gnb(gtpu(teid(over4, "uplink"), inner), tos=0xB8, options=[IPOption_Router_Alert()])
    file.step("outer IPv4 options", "n3", marked, [("n6", to_dn(hop_less(inner)))])
    other_port = from_gnb(gtpu(teid(over4, "uplink"), inner), sport=50123)
    file.step("outer source port other than 2152", "n3", other_port, [("n6", to_dn(hop_less(inner)))])
    return file


def downlink() -> File:
    """Plain downlink encapsulation."""
    over4, over6 = session(7), session(8, outer=6)
    beyond = session(9, peer=FAR_GNB_V4)
    file = File("downlink", "IP packets on N6 to a UE leave on N3 in its tunnel.", [over4, over6, beyond])
    for of, outer, suffix in ((over4, 4, 7), (over6, 6, 8)):
        for name, inner in inner_packets(f"10.60.0.{suffix}", f"2001:db8:60:{suffix}::1", uplink=False):
            out = tunnelled(of, hop_less(inner))
            file.step(f"{name} over IPv{outer}", "n6", from_dn(inner), [("n3", out)])
    inner = ip4(WEB_V4, "10.60.0.9", udp())
    file.step("peer behind a gateway", "n6", from_dn(inner), [("n3", tunnelled(beyond, hop_less(inner)))])
    for name, small in (
        ("IPv4", ip4(WEB_V4, UE_V4, udp(0))),
        ("IPv6", ip6(WEB_V6, "2001:db8:60:7:dead:beef:0:1", udp(0))),
    ):
        frame = from_dn(small, padding=18)
        out = tunnelled(over4, hop_less(small))
        file.step(f"Ethernet padding after {name} is not forwarded", "n6", frame, [("n3", out)])
    return file


def qos() -> File:
    """QFI matching and marking, transport level marking."""
    matched = session(7, qfi_in=9, qfi_out=9)
    marked6 = session(8, outer=6, qfi_out=63, dscp=46)
    dscp_only = session(9, dscp=10)
    zero = session(10, qfi_in=0, qfi_out=0)
    file = File(
        "qos", "QFI in both directions and DSCP of the outer header.", [matched, marked6, dscp_only, zero]
    )
    inner = ip4(UE_V4, WEB_V4, tcp())
    forward = [("n6", to_dn(hop_less(inner)))]
    for name, ext in (
        ("4", container(9, uplink=True)),
        ("8", container(9, uplink=True, SNP=1, UlQFISeqNum=1)),
    ):
        frame = from_gnb(gtpu(1007, inner, (0x85, ext)))
        file.step(f"QFI matches in a container of {name} octets", "n3", frame, forward)
    frame = from_gnb(gtpu(1007, inner, (0x85, container(5, uplink=True))))
    file.step("QFI does not match", "n3", frame, [], "no_pdr")
    file.step("QFI is absent", "n3", from_gnb(gtpu(1007, inner)), [], "no_pdr")
    zero_up = ip4("10.60.0.10", WEB_V4, udp())
    frame = from_gnb(gtpu(1010, zero_up, (0x85, container(0, uplink=True))))
    file.step("QFI 0 is a QFI", "n3", frame, [("n6", to_dn(hop_less(zero_up)))])
    file.step("QFI 0 is not an absent QFI", "n3", from_gnb(gtpu(1010, zero_up)), [], "no_pdr")
    for of, number in ((matched, 7), (marked6, 8), (dscp_only, 9), (zero, 10)):
        for packet in (
            ip4(WEB_V4, f"10.60.0.{number}", udp(), tos=0x2E),
            ip6(WEB_V6, f"2001:db8:60:{number:x}::1", tcp(1000)),
        ):
            tunnel = of["downlink"]
            name = f"{packet.name} downlink with QFI {tunnel['qfi']} and DSCP {tunnel['dscp']}"
            file.step(name, "n6", from_dn(packet), [("n3", tunnelled(of, hop_less(packet)))])
    return file


def ecn() -> File:
    """Congestion marks: RFC 6040 figure 4 out of tunnels, normal mode into them."""
    names = ["Not-ECT", "ECT(1)", "ECT(0)", "CE"]
    # What a packet has inside and outside, and has afterwards. The pair that is missing is dropped.
    after = {(own, outer): own for own in range(4) for outer in range(4)}
    after |= {(own, 3): 3 for own in (1, 2)}
    after[2, 1] = 1
    del after[0, 3]
    over4, over6, marked = session(7), session(8, outer=6), session(9, qfi_out=9, dscp=46)
    file = File(
        "ecn",
        "Congestion marks go over from tunnels and into them; DSCP stays with the packet.",
        [over4, over6, marked],
    )

    def inner(family: int, number: int, mark: int, up: bool) -> Packet:
        if family == 4:
            ue, fields = f"10.60.0.{number}", {"tos": 0xB8 | mark}
            return ip4(*((ue, WEB_V4) if up else (WEB_V4, ue)), udp(), **fields)
        ue, fields = f"2001:db8:60:{number}::1", {"tc": 0xB8 | mark}
        return ip6(*((ue, WEB_V6) if up else (WEB_V6, ue)), udp(), **fields)

    for of, outer, number in ((over4, 4, 7), (over6, 6, 8)):
        for family in (4, 6):
            for own in range(4):
                for mark in range(4):
                    packet = inner(family, number, own, up=True)
                    field = {"tos" if outer == 4 else "tc": 0x48 | mark}
                    frame = from_gnb(gtpu(teid(of, "uplink"), packet), outer, **field)
                    name = f"uplink IPv{family} {names[own]} in IPv{outer} {names[mark]}"
                    if (own, mark) in after:
                        left = hop_less(inner(family, number, after[own, mark], up=True))
                        file.step(name, "n3", frame, [("n6", to_dn(left))])
                    else:
                        file.step(name, "n3", frame, [], "congestion_mark")
    for of, number in ((over4, 7), (over6, 8), (marked, 9)):
        for family in (4, 6):
            for own in range(4):
                packet = inner(family, number, own, up=False)
                name = f"downlink IPv{family} {names[own]} to UE {number}"
                file.step(name, "n6", from_dn(packet), [("n3", tunnelled(of, hop_less(packet)))])
    return file


def entropy() -> File:
    """The outer source port by the inner flow."""
    over4, over6 = session(7), session(8, outer=6)
    about = "The outer UDP source port tells inner flows apart."
    file = File("entropy", about, [over4, over6], outer_source_port="entropy")
    for of, outer, suffix in ((over4, 4, 7), (over6, 6, 8)):
        for name, inner in inner_packets(f"10.60.0.{suffix}", f"2001:db8:60:{suffix}::1", uplink=False):
            # As the packet is on the wire, so that protocol and ports are what a parser finds.
            port = entropy_port(built(inner))
            out = tunnelled(of, hop_less(inner), sport=port)
            file.step(f"{name} over IPv{outer}", "n6", from_dn(inner), [("n3", out)])
    return file


def ttl() -> File:
    """Packets whose last hop this node is."""
    over4, over6, marked = session(7), session(8, outer=6), session(9, qfi_out=9)
    file = File("ttl", "An expired packet is answered by ICMP time exceeded.", [over4, over6, marked])

    def exceeded(packet: Packet) -> Packet:
        received = raw(packet)
        if packet.name == "IPv6":
            message = ICMPv6TimeExceeded(code=0) / Raw(received[: 1280 - 48])
            return IPv6(src=N6_V6, dst=packet.src, hlim=64, tc=0, fl=0) / message
        # scapy pads no quotation: RFC 4884 lengths stay zero.
        message = ICMP(type=11, code=0) / Raw(received[: 576 - 28])
        return IP(src=N6_V4, dst=packet.src, ttl=64, id=0, flags=0, tos=0xC0) / message

    for of, outer, number in ((over4, 4, 7), (over6, 6, 8), (marked, 4, 9)):
        ue4, ue6 = f"10.60.0.{number}", f"2001:db8:60:{number:x}::1"
        for name, packet in (
            ("IPv4 TTL 1", ip4(ue4, WEB_V4, udp(), ttl=1)),
            ("IPv4 TTL 0", ip4(ue4, WEB_V4, udp(), ttl=0)),
            ("IPv4 TTL 1 of 1500 octets", ip4(ue4, WEB_V4, udp(1472), ttl=1)),
            ("IPv6 hop limit 1", ip6(ue6, WEB_V6, udp(), hlim=1)),
            ("IPv6 hop limit 0", ip6(ue6, WEB_V6, udp(), hlim=0)),
            ("IPv6 hop limit 1 of 1500 octets", ip6(ue6, WEB_V6, udp(1452), hlim=1)),
        ):
            frame = from_gnb(gtpu(teid(of, "uplink"), packet), outer)
            out = [("n3", tunnelled(of, exceeded(packet)))]
            suffix = f"over IPv{outer}" + (" with QFI" if of is marked else "")
            file.step(f"uplink {name} {suffix}", "n3", frame, out, "ttl_expired")
    for name, packet in (
        ("IPv4 TTL 1", ip4(WEB_V4, UE_V4, udp(), ttl=1)),
        ("IPv4 TTL 0", ip4(WEB_V4, UE_V4, udp(), ttl=0)),
        ("IPv4 TTL 1 of 1500 octets", ip4(WEB_V4, UE_V4, udp(1472), ttl=1)),
        ("IPv6 hop limit 1", ip6(WEB_V6, UE_V6, udp(), hlim=1)),
        ("IPv6 hop limit 1 of 1500 octets", ip6(WEB_V6, UE_V6, udp(1452), hlim=1)),
    ):
        out = [("n6", to_dn(exceeded(packet)))]
        file.step(f"downlink {name}", "n6", from_dn(packet), out, "ttl_expired")
    small = ip4(WEB_V4, UE_V4, udp(0), ttl=1)
    out = [("n6", to_dn(exceeded(small)))]
    file.step("padding is not quoted", "n6", from_dn(small, padding=18), out, "ttl_expired")
    return file


def path() -> File:
    """Echo, error indication, supported extension headers, end marker."""
    file = File("path", "Path and tunnel management messages of GTP-U.", [session(7), session(8, outer=6)])

    def numbered(kind: int, payload: bytes, sequence: int = 0) -> Packet:
        return GTP_U_Header(gtp_type=kind, teid=0, S=1, seq=sequence) / Raw(payload)

    for outer in (4, 6):
        local = ipaddress.ip_address(N3_V4 if outer == 4 else N3_V6).packed
        for sport, sequence, payload in (
            (GTPU_PORT, 0x0102, b""),
            (50123, 0xFFFF, bytes.fromhex("ff0003000001")),
        ):
            request = from_gnb(numbered(1, payload, sequence), outer, sport=sport)
            response = to_gnb(numbered(2, raw(IE_Recovery(restart_counter=0)), sequence), outer, dport=sport)
            file.step(f"echo over IPv{outer} from port {sport}", "n3", request, [("n3", response)])
        inner = ip4(UE_V4, WEB_V4, udp())
        for sport in (GTPU_PORT, 50123):
            elements = raw(IE_TEIDI(TEIDI=0xDEADBEEF)) + struct.pack("!BH", 133, len(local)) + local
            indication = numbered(26, elements)
            if sport != GTPU_PORT:
                # The port of the offending packet carries entropy: it is named (TS 29.281 5.2.2.1).
                named = extension(struct.pack("!H", sport), 0)
                indication = GTP_U_Header(gtp_type=26, E=1, S=1, next_ex=0x40) / Raw(named + elements)
            indication = to_gnb(indication, outer)
            frame = from_gnb(gtpu(0xDEADBEEF, inner), outer, sport=sport)
            name = f"unknown TEID over IPv{outer} from port {sport}"
            file.step(name, "n3", frame, [("n3", indication)], "teid_unknown")
        number = 7 if outer == 4 else 8
        tunnel, known_ue = 1000 + number, ip4(f"10.60.0.{number}", WEB_V4, udp())
        notification = to_gnb(numbered(31, bytes([141, 1, 0x85])), outer)
        for kind in (0x9A, 0xC0, 0xFF):
            chain = extension(b"\x00\x01", 0)
            frame = from_gnb(gtpu(tunnel, known_ue, (kind, chain)), outer, sport=50123)
            name = f"extension 0x{kind:02x} requires comprehension, over IPv{outer}"
            file.step(name, "n3", frame, [("n3", notification)], "extension_unsupported")
        chain = container(9, uplink=True)[:-1] + b"\xff" + extension(b"\x00\x01", 0)
        frame = from_gnb(gtpu(tunnel, known_ue, (0x85, chain)), outer)
        name = f"unsupported extension after a container, over IPv{outer}"
        file.step(name, "n3", frame, [("n3", notification)], "extension_unsupported")
        marker = from_gnb(GTP_U_Header(gtp_type=254, teid=tunnel), outer)
        file.step(f"end marker over IPv{outer}", "n3", marker, [], "end_marker")
    return file


def drops() -> File:
    """Every silent drop, each packet with one fault."""
    good, over6 = session(7), session(8, outer=6)
    filtered = session(9, sdf=["permit out udp from 198.51.100.53 53 to assigned"])
    gated, dropped = session(11), session(12)
    gated["gate"] = {"uplink": False, "downlink": False}
    dropped["far"] = {"uplink": "drop", "downlink": "drop"}
    file = File("drops", "Packets that do not come out, and why.", [good, over6, filtered, gated, dropped])
    inner = ip4(UE_V4, WEB_V4, udp())
    octets = raw(inner)

    def up(name: str, frame: bytes, drop: str) -> None:
        file.step(name, "n3", frame, [], drop)

    up("IPv4 source of another UE", from_gnb(gtpu(1007, ip4("10.60.0.8", WEB_V4, udp()))), "ue_spoofed")
    up(
        "IPv6 source in another prefix",
        from_gnb(gtpu(1007, ip6("2001:db8:60:8::1", WEB_V6, udp()))),
        "ue_spoofed",
    )
    up("IPv4 source spoofed over IPv6", from_gnb(gtpu(1008, inner), 6), "ue_spoofed")
    dns = ip4("10.60.0.9", "198.51.100.53", UDP(sport=40000, dport=53) / data(30))
    file.step("SDF matches", "n3", from_gnb(gtpu(1009, dns)), [("n6", to_dn(hop_less(dns)))])
    for name, packet in (
        ("address", ip4("10.60.0.9", "198.51.100.54", UDP(sport=40000, dport=53) / data(30))),
        ("port", ip4("10.60.0.9", "198.51.100.53", UDP(sport=40000, dport=54) / data(30))),
        ("protocol", ip4("10.60.0.9", "198.51.100.53", TCP(sport=40000, dport=53) / data(30))),
    ):
        up(f"SDF does not match by {name}", from_gnb(gtpu(1009, packet)), "no_pdr")
    up("gate closed uplink", from_gnb(gtpu(1011, ip4("10.60.0.11", WEB_V4, udp()))), "gate_closed")
    up("FAR drops uplink", from_gnb(gtpu(1012, ip4("10.60.0.12", WEB_V4, udp()))), "far_drop")
    for name, destination, drop in (
        ("gate closed downlink", "10.60.0.11", "gate_closed"),
        ("FAR drops downlink", "10.60.0.12", "far_drop"),
        ("no session of an IPv4 address", "10.60.9.9", "ue_unknown"),
    ):
        file.step(name, "n6", from_dn(ip4(WEB_V4, destination, udp())), [], drop)
    lost = ip6(WEB_V6, "2001:db8:60:99::1", udp())
    file.step("no session of an IPv6 prefix", "n6", from_dn(lost), [], "ue_unknown")
    for outer, number in ((4, 7), (6, 8)):
        malformed(up, 1000 + number, raw(ip4(f"10.60.0.{number}", WEB_V4, udp())), outer)
    inner_malformed(up, octets)
    up("outer first fragment", from_gnb(gtpu(1007, inner), flags="MF"), "outer_fragment")
    up("outer last fragment", from_gnb(gtpu(1007, inner), frag=3), "outer_fragment")
    frame = Ether(from_gnb(gtpu(1008, ip4("10.60.0.8", WEB_V4, udp())), 6))
    fragment = IPv6ExtHdrFragment(m=1, id=7, nh=17) / frame[UDP].copy()
    header = IPv6(src=GNB_V6, dst=N3_V6, hlim=61, nh=44)
    up("outer IPv6 fragment", raw(Ether(src=GNB_MAC, dst=N3_MAC) / header / fragment), "outer_fragment")
    wrong = bytearray(from_gnb(gtpu(1007, inner)))
    wrong[24] ^= 0x01
    up("outer IPv4 checksum", bytes(wrong), "ip_checksum")
    return file


def malformed(up: Callable[[str, bytes, str], None], tunnel: int, octets: bytes, outer: int) -> None:
    """GTP-U headers that lie."""
    length = len(octets)
    over = f"over IPv{outer}"
    nine = extension(bytes(2), 0x3F) * 8 + extension(bytes(2), 0)
    long = extension(bytes(254), 0x3F) + extension(bytes(254), 0x3F) + extension(bytes(2), 0)
    for name, message in (
        ("version 2", gtpu(tunnel, octets, version=2)),
        ("GTP'", gtpu(tunnel, octets, PT=0)),
        ("Length past the end", gtpu(tunnel, octets, length=length + 1)),
        ("optional part cut off by Length", gtpu(tunnel, octets, S=1, seq=1, length=3)),
        ("extension of length zero", gtpu(tunnel, octets, (0x85, b"\x00\x10\x09\x00"))),
        ("extension past the Length", gtpu(tunnel, b"", (0x85, b"\x02\x10\x09\x00"))),
        ("extension chain without end", gtpu(tunnel, b"", (0x85, b"\x01\x10\x09\x85"))),
        ("chain of 9 extensions", gtpu(tunnel, octets, (0x3F, nine))),
        ("chain of 516 octets", gtpu(tunnel, octets, (0x3F, long))),
    ):
        up(f"{name} {over}", from_gnb(message, outer), "gtpu_malformed")
    up(f"header cut off {over}", from_gnb(Raw(raw(gtpu(tunnel, b""))[:7]), outer), "gtpu_malformed")


def inner_malformed(up: Callable[[str, bytes, str], None], octets: bytes) -> None:
    """T-PDUs that are no IP packet."""

    def changed(packet: bytes, at: int, value: int) -> bytes:
        return packet[:at] + bytes([value]) + packet[at + 1 :]

    six = raw(ip6(UE_V6, WEB_V6, udp()))
    for name, packet in (
        ("empty T-PDU", b""),
        ("inner version 5", changed(octets, 0, 0x55)),
        ("inner IHL 4", changed(octets, 0, 0x44)),
        ("inner IHL past the total length", changed(changed(octets, 3, 20), 0, 0x46)),
        ("inner total length past the T-PDU", changed(octets, 3, octets[3] + 1)),
        ("inner IPv4 header cut off", octets[:19]),
        ("inner IPv6 payload length past the T-PDU", changed(six, 5, six[5] + 1)),
        ("inner IPv6 payload length zero", changed(six, 5, 0)),
        ("inner IPv6 header cut off", six[:39]),
    ):
        up(name, from_gnb(gtpu(1007, packet)), "inner_malformed")


FILES: tuple[Callable[[], File], ...] = (uplink, downlink, qos, ecn, entropy, ttl, path, drops)


def folders() -> dict[Path, dict[str, str]]:
    """Every file's text, by folder and name."""
    upf, stripped, named = (
        {f"{file.name}.json": file.render() for file in (make() for make in files)}
        for files in (FILES, gre.FILES, ndn_packets.FILES + ndn_commands.FILES)
    )
    return {HERE / "upf": upf, HERE / "gre": stripped, HERE / "ndn": named}


def main() -> int:
    """Writes or checks every file."""
    parser = argparse.ArgumentParser(description="Make the packet vectors.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if a file differs")
    check = parser.parse_args().check
    differing = []
    for folder, wanted in folders().items():
        if check:
            found = {path.name: path.read_text() for path in folder.glob("*.json")}
            names = sorted(wanted.keys() | found.keys())
            differing += [folder / name for name in names if wanted.get(name) != found.get(name)]
            continue
        folder.mkdir(exist_ok=True)
        for name, text in wanted.items():
            (folder / name).write_text(text)
            print(f"{folder.name}/{name}: {len(json.loads(text)['steps'])} steps")
    for path in differing:
        print(f"differs: {path}", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
