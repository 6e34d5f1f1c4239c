"""A golden model of GRE encapsulation, of scapy and RFCs 791, 2784, 2890, 6040 and 8200 alone."""

from __future__ import annotations

import random
from dataclasses import dataclass

from scapy.layers.inet import IP, UDP, IPOption
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt
from scapy.layers.l2 import GRE, Dot1Q, Ether
from scapy.packet import Packet, Raw

LOCAL_V4, REMOTE_V4 = "192.0.2.10", "203.0.113.1"
LOCAL_V6, REMOTE_V6 = "2001:db8:c::10", "2001:db8:5::1"
HOP_DST, HOP_SRC = "02:00:00:00:02:02", "02:00:00:00:02:01"
#: Longest frame that goes into no tunnel.
LENGTH_MAX = 1530


@dataclass(frozen=True)
class Tunnel:
    """A tunnel, and which packets it is for. An Ethernet tunnel without a destination is for all frames."""

    destination: str | None
    source: str | None = None
    outer_v6: bool = False
    ethernet: bool = False
    key: int | None = None
    checksum: bool = False
    hops: int = 64
    ttl_uniform: bool = False
    dscp_uniform: bool = False
    route: bool = False
    clear: bool = False
    copy: bool = False
    host: bool = False
    room: int = 1500


TUNNELS = [
    Tunnel("10.2.0.0/24"),
    Tunnel("10.2.1.0/24", outer_v6=True, key=0x8000_0007, checksum=True, dscp_uniform=True, hops=255),
    Tunnel("10.2.2.0/24", source="10.1.0.0/25", key=9, route=True, checksum=True, ttl_uniform=True),
    Tunnel("2001:db8:2::/48", outer_v6=True, ttl_uniform=True, hops=3),
    # IPv6 is not cut on its way, so this has no number.
    Tunnel("2001:db8:3::/48", source="2001:db8:1::/64", route=True, checksum=True, copy=True),
    Tunnel("10.2.3.0/24", copy=True, checksum=True, room=700),
    Tunnel("10.2.4.0/24", ethernet=True, route=True, key=5, ttl_uniform=True, dscp_uniform=True),
    Tunnel("2001:db8:4::/48", outer_v6=True, route=True, clear=True, key=1),
]
#: In the place of the last: all frames that the others are not for.
FRAMES = Tunnel(None, outer_v6=True, ethernet=True, key=7, hops=17, room=1600)
HOST = Tunnel("10.2.5.0/24", host=True)
SUMMED = Tunnel("10.2.6.0/24", ethernet=True, checksum=True)
#: More, for which there are other places.
OTHERS = [HOST, SUMMED, FRAMES]


@dataclass(frozen=True)
class Case:
    """A frame, what must leave of it, and what must be counted; whether it came with an error."""

    frame: bytes
    event: str
    out: bytes | None = None
    tunnel: int | None = None
    error: bool = False


def _link(rng: random.Random, tags: int) -> Packet:
    link: Packet = Ether(src=rng.randbytes(6).hex(":"), dst=rng.randbytes(6).hex(":"))
    for _ in range(tags):
        link = link / Dot1Q(vlan=rng.randrange(4096), prio=rng.randrange(8))
    return link


@dataclass(frozen=True)
class Inner:
    """A packet that goes into a tunnel; it is made again with a hop less."""

    is_v6: bool
    source: str
    destination: str
    hops: int
    tos: int
    dont_fragment: bool
    options: int
    number: int
    data: bytes

    def packet(self, less: int = 0) -> Packet:
        """The packet, with so many hops less."""
        payload = UDP(sport=self.number, dport=9) / Raw(self.data)
        if self.is_v6:
            return (
                IPv6(
                    src=self.source, dst=self.destination, hlim=self.hops - less, tc=self.tos, fl=self.number
                )
                / payload
            )
        header = IP(
            src=self.source,
            dst=self.destination,
            ttl=self.hops - less,
            tos=self.tos,
            id=self.number,
            flags=2 * self.dont_fragment,
            options=[IPOption(b"\x01")] * (4 * self.options),
        )
        return header / payload


def _inner(rng: random.Random, prefix: str, from_prefix: str | None) -> Inner:
    """A packet to an address of a prefix."""
    is_v6 = ":" in prefix
    base = prefix.split("/")[0].rstrip(":")
    of = from_prefix.split("/")[0].rstrip(":") if from_prefix else "2001:db8:1" if is_v6 else "10.1.0.0"
    low = rng.randrange(1, 127)
    return Inner(
        is_v6=is_v6,
        source=f"{of}::{low:x}" if is_v6 else f"{of.rsplit('.', 1)[0]}.{low}",
        destination=f"{base}::{low:x}" if is_v6 else f"{base.rsplit('.', 1)[0]}.{low}",
        hops=rng.choice([1, 2, 64, 255, rng.randrange(2, 256)]),
        tos=rng.randrange(256),
        dont_fragment=rng.random() < 0.5,
        options=rng.choice([0, 0, 0, 1, 5]),
        number=rng.randrange(1, 65536),
        data=rng.randbytes(rng.choice([0, 1, 10, 26, 27, 64, 100, 500, 1400, 1450, rng.randrange(200)])),
    )


def packet(rng: random.Random) -> bytes:
    """A packet that the first tunnel is for."""
    return bytes(_link(rng, 0) / _inner(rng, "10.2.0.0/24", None).packet())


def _enclose(tunnel: Tunnel, link: Packet, hops: int, tos: int, protocol: int, body: bytes) -> bytes:
    """A packet with its outer headers."""
    outer: Packet = (
        IPv6(src=LOCAL_V6, dst=REMOTE_V6, hlim=hops, tc=tos, nh=47)
        if tunnel.outer_v6
        else IP(src=LOCAL_V4, dst=REMOTE_V4, ttl=hops, tos=tos, id=0, flags="DF", proto=47)
    )
    gre = GRE(proto=protocol, chksum_present=int(tunnel.checksum), key_present=int(tunnel.key is not None))
    if tunnel.key is not None:
        gre.key = tunnel.key
    if tunnel.route:
        link = Ether(dst=HOP_DST, src=HOP_SRC)
    return bytes(link / outer / gre / Raw(body))


def _judge(number: int, tunnel: Tunnel, link: Packet, inner: Inner, padding: bytes) -> Case:
    frame = bytes(link / inner.packet()) + padding
    if tunnel.host:
        return Case(frame, "host_route")
    if tunnel.ethernet and tunnel.checksum:
        return Case(frame, "host_checksum")
    loses_hop = tunnel.route and not tunnel.ethernet
    if loses_hop and inner.hops <= 1:
        return Case(frame, "host_ttl")
    body = frame if tunnel.ethernet else bytes(inner.packet(int(loses_hop)))
    more = (40 if tunnel.outer_v6 else 20) + 4 + 4 * tunnel.checksum + 4 * (tunnel.key is not None)
    if len(body) + more > tunnel.room:
        return Case(frame, "host_mtu")
    may_be_cut = tunnel.clear or (tunnel.copy and not inner.is_v6 and not inner.dont_fragment)
    if may_be_cut and not tunnel.outer_v6:
        return Case(frame, "host_number")
    hops = inner.hops if tunnel.ttl_uniform else tunnel.hops
    # RFC 6040 4.1: the mark goes over.
    tos = (inner.tos & 0xFC if tunnel.dscp_uniform else 0) | inner.tos & 3
    protocol = 0x6558 if tunnel.ethernet else 0x86DD if inner.is_v6 else 0x0800
    return Case(frame, "encapsulated", _enclose(tunnel, link, hops, tos, protocol, body), number)


def tunnelled(rng: random.Random, tunnels: list[Tunnel]) -> Case:
    """A packet that a tunnel is for."""
    number, tunnel = rng.choice([(at, tunnel) for at, tunnel in enumerate(tunnels) if tunnel.destination])
    assert tunnel.destination
    inner = _inner(rng, tunnel.destination, tunnel.source)
    padding = rng.randbytes(rng.choice([0, 0, 0, 4, 18, 70]))
    return _judge(number, tunnel, _link(rng, rng.choice([0, 0, 0, 1, 2])), inner, padding)


def _of_none(tunnels: list[Tunnel], link: Packet, frame: bytes) -> Case:
    """What no prefix is met by: it passes, or goes into the tunnel of all frames."""
    if FRAMES not in tunnels:
        return Case(frame, "passed", frame) if len(frame) <= LENGTH_MAX else Case(frame, "too_big")
    number = tunnels.index(FRAMES)
    if len(frame) + 48 > FRAMES.room:
        return Case(frame, "host_mtu")
    return Case(frame, "encapsulated", _enclose(FRAMES, link, FRAMES.hops, 0, 0x6558, frame), number)


def other(rng: random.Random, tunnels: list[Tunnel]) -> Case:
    """What is no IP packet, or none in good order."""
    link = _link(rng, rng.choice([0, 0, 1, 2]))
    kind = rng.randrange(6)
    if kind == 0:  # A bit of the header, where it is not the version, the protocol or a length.
        frame = bytearray(bytes(link / _inner(rng, "10.2.0.0/24", None).packet()))
        frame[len(bytes(link)) + rng.choice([1, 4, 5, 7, 8, 10, 11, 12, 16, 19])] ^= 1 << rng.randrange(8)
        return _of_none(tunnels, link, bytes(frame))
    if kind == 1:  # Cut off.
        whole = bytes(link / _inner(rng, rng.choice(["10.2.0.0/24", "2001:db8:2::/48"]), None).packet())
        return _of_none(tunnels, link, whole[: rng.randrange(len(bytes(link)), len(whole))])
    if kind == 2:  # One version in Ethernet, another in IP.
        inner = _inner(rng, rng.choice(["10.2.0.0/24", "2001:db8:2::/48"]), None)
        lied = link.copy()
        lied.lastlayer().type = 0x0800 if inner.is_v6 else 0x86DD
        frame = bytes(lied) + bytes(inner.packet())
        return _of_none(tunnels, link, frame)
    if kind == 3:
        frame = bytes(link / IPv6(src="::1", dst="2001:db8:2::1", plen=0, nh=17) / Raw(rng.randbytes(20)))
        return _of_none(tunnels, link, frame)
    typed = link.copy()
    typed.lastlayer().type = rng.choice([0x0806, 0x88B5, 0x8847])
    frame = bytes(typed) + rng.randbytes(rng.choice([0, 1, 28, 46, 600, 1500, 1516, 1517, 1590]))
    return _of_none(tunnels, link, frame)


def unmatched(rng: random.Random, tunnels: list[Tunnel]) -> Case:
    """An IP packet that no prefix is met by."""
    wrong = rng.choice([("10.3.0.0/24", None), ("2001:db8:9::/48", None), ("10.2.2.0/24", "10.1.1.0/24")])
    inner, link = _inner(rng, *wrong), _link(rng, rng.choice([0, 0, 1, 2]))
    frame = bytes(link / inner.packet())
    case = _of_none(tunnels, link, frame)
    if case.event != "encapsulated":
        return case
    # The mark of what is in the frame goes over.
    return Case(
        frame, case.event, _enclose(FRAMES, link, FRAMES.hops, inner.tos & 3, 0x6558, frame), case.tunnel
    )


def handed(rng: random.Random, _tunnels: list[Tunnel]) -> Case:
    """What the host must do whatever tunnels there are, and what is dropped."""
    link, inner = _link(rng, rng.choice([0, 1, 2])), _inner(rng, "10.2.0.0/24", None)
    kind = rng.randrange(6)
    if kind == 0:
        return Case(bytes(_link(rng, rng.choice([3, 4])) / inner.packet()), "host_tags")
    if kind == 1:
        outer: Packet = rng.choice(
            [IP(src="10.1.0.1", dst="10.2.0.1"), IPv6(src="2001:db8::1", dst="2001:db8:2::1")]
        )
        return Case(bytes(link / outer / GRE() / inner.packet()), "host_tunnel")
    if kind == 2:
        header = IPv6(src="2001:db8::1", dst="2001:db8:2::1") / IPv6ExtHdrDestOpt() / UDP()
        return Case(bytes(link / header), "host_extension")
    if kind == 3:
        deep = IP(src="10.1.0.1", dst="10.2.0.1", options=[IPOption(b"\x01")] * (4 * rng.randrange(6, 11)))
        return Case(bytes(link / deep / UDP() / Raw(rng.randbytes(9))), "host_deep")
    if kind == 4:
        return Case(rng.randbytes(rng.randrange(1, 14)), "host_short")
    return Case(bytes(link / inner.packet()), "frame_error", error=True)


def case(rng: random.Random, tunnels: list[Tunnel]) -> Case:
    """Any of them."""
    kinds = [tunnelled] * 6 + [other] * 2 + [unmatched, handed]
    return rng.choice(kinds)(rng, tunnels)
