"""A golden model of GRE header removal, of scapy and RFCs 791, 2784, 2890, 6040 and 8200 alone.

It builds a packet twice: as it is in the tunnel, and as it must be when it has left it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from scapy.config import conf
from scapy.layers.inet import IP, UDP, IPOption
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import GRE, Dot1Q, Ether
from scapy.packet import Packet, Raw

conf.checkIPaddr = False

# Outer sources, and what the rules for them do.
PIPE, UNIFORM, KEYED, DROPPED, ROUTED, NONE = "pipe", "uniform", "keyed", "dropped", "routed", "none"
SOURCE_V4 = {
    PIPE: "192.0.2.0",
    UNIFORM: "198.51.100.0",
    KEYED: "198.18.0.0",
    DROPPED: "203.0.113.0",
    ROUTED: "198.18.128.0",
    NONE: "10.0.0.0",
}
SOURCE_V6 = {
    PIPE: "2001:db8:1::",
    UNIFORM: "2001:db8:2::",
    KEYED: "2001:db8:3::",
    DROPPED: "2001:db8:4::",
    NONE: "fd00::",
}
KEY = 0x0102_0304

# RFC 6040 figure 4: [inner][outer]; None is to be dropped.
ECN: list[list[int | None]] = [[0, 0, 0, None], [1, 1, 1, 3], [2, 1, 2, 3], [3, 3, 3, 3]]


@dataclass(frozen=True)
class Case:
    """A frame, what must leave of it, and what must be counted."""

    frame: bytes
    event: str
    out: bytes | None = None


def _link(rng: random.Random, tags: int) -> Packet:
    link: Packet = Ether(src=rng.randbytes(6).hex(":"), dst=rng.randbytes(6).hex(":"))
    for _ in range(tags):
        link = link / Dot1Q(vlan=rng.randrange(4096), prio=rng.randrange(8))
    return link


def _inner(rng: random.Random, is_v6: bool, hops: int, tos: int, data: bytes) -> Packet:
    payload = UDP(sport=rng.randrange(65536), dport=9) / Raw(data)
    if is_v6:
        return IPv6(src="fd00:1::1", dst="fd00:1::2", hlim=hops, tc=tos, fl=rng.randrange(1 << 20)) / payload
    options = [IPOption(b"\x07\x07\x04\x00\x00\x00\x00")] if rng.random() < 0.2 else []
    return (
        IP(src="10.1.0.1", dst="10.2.0.2", ttl=hops, tos=tos, id=rng.randrange(65536), options=options)
        / payload
    )


def _outer(rng: random.Random, is_v6: bool, rule: str, hops: int, tos: int, options: int) -> Packet:
    if is_v6:
        return IPv6(
            src=f"{SOURCE_V6[rule]}{rng.randrange(1, 9999)}", dst="2001:db8:ffff::1", hlim=hops, tc=tos, nh=47
        )
    source = SOURCE_V4[rule].rsplit(".", 1)[0] + f".{rng.randrange(1, 127)}"
    padding = [IPOption(b"\x01")] * (4 * options)
    return IP(
        src=source, dst="203.0.113.200", ttl=hops, tos=tos, id=rng.randrange(65536), options=padding, proto=47
    )


def tunnelled(rng: random.Random, window: int) -> Case:
    """A packet in GRE."""
    tags, outer_v6, rule = (
        rng.choice([0, 0, 0, 1, 2]),
        rng.random() < 0.3,
        rng.choice([PIPE, UNIFORM, KEYED, DROPPED, NONE]),
    )
    options = rng.choice([0, 0, 0, 1, 3]) if not outer_v6 else 0
    key = KEY if rng.random() < (0.8 if rule == KEYED else 0.3) else None
    sequence = rng.randrange(1 << 32) if rng.random() < 0.2 else None
    is_ethernet = rng.random() < 0.2
    inner_v6 = rng.random() < 0.4
    inner_hops, outer_hops = rng.randrange(256), rng.randrange(256)
    inner_tos, outer_tos = rng.randrange(256), rng.randrange(256)
    data = rng.randbytes(rng.choice([0, 1, 10, 26, 27, 64, 100, 500, 1400, rng.randrange(200)]))
    state = rng.getstate()
    packet = _inner(rng, inner_v6, inner_hops, inner_tos, data)
    link, outer = _link(rng, tags), _outer(rng, outer_v6, rule, outer_hops, outer_tos, options)
    is_summed = rng.random() < 0.3
    gre = GRE(
        chksum_present=int(is_summed),
        key_present=int(key is not None),
        seqnum_present=int(sequence is not None),
    )
    if key is not None:
        gre.key = key
    if sequence is not None:
        gre.sequence_number = sequence
    body: Packet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / packet if is_ethernet else packet
    gre.proto = 0x6558 if is_ethernet else 0x86DD if inner_v6 else 0x0800
    frame = bytes(link / outer / gre / body)
    padding = rng.randbytes(rng.choice([0, 0, 0, 4, 18, 40]))

    headers = (
        14
        + 4 * tags
        + (40 if outer_v6 else 20 + 4 * options)
        + 4
        + 4 * is_summed
        + 4 * (key is not None)
        + 4 * (sequence is not None)
    )
    if headers + 2 > window:
        return Case(frame + padding, "host_deep", frame + padding)
    if is_summed and rng.random() < 0.4:
        # RFC 2784 2.5: the sum is of all from GRE on. Of all bits behind flags and protocol it notices each.
        wrong = bytearray(frame + padding)
        wrong[rng.randrange(len(bytes(link / outer)) + 4, len(frame))] ^= 1 << rng.randrange(8)
        return Case(bytes(wrong), "gre_checksum")
    if rule == NONE or (rule == KEYED and key is None):
        return Case(frame + padding, "passed", frame + padding)
    if rule == DROPPED:
        return Case(frame + padding, "gre_rule")
    if is_ethernet:
        # The inner frame, with the outer tags behind its addresses.
        inner, outside = bytes(body), bytes(link / Raw())
        return Case(frame + padding, "stripped", inner[:12] + outside[12 : 12 + 4 * tags] + inner[12:])
    marks = ECN[inner_tos & 3][outer_tos & 3]
    if marks is None:
        return Case(frame + padding, "congestion_mark")
    uniform = rule == UNIFORM
    tos = ((outer_tos if uniform else inner_tos) & 0xFC) | marks
    hops = min(inner_hops, outer_hops) if uniform else inner_hops
    after = rng.getstate()
    rng.setstate(state)
    left = _inner(rng, inner_v6, hops, tos, data)
    rng.setstate(after)
    return Case(frame + padding, "stripped", bytes(link / left))


#: Addresses that no router forwards from, or to (RFC 1812 5.3.7), and such beside them as it does.
FROM_NOBODY = ["224.0.0.5", "239.255.255.250", "255.255.255.255", "127.0.0.1"]
TO_NOBODY = [*FROM_NOBODY, "0.0.0.0", "169.254.7.1"]
BESIDE = [
    "223.255.255.255",
    "240.0.0.1",
    "255.255.255.254",
    "126.0.0.1",
    "128.0.0.1",
    "0.0.0.1",
    "169.253.7.1",
]


def routed(rng: random.Random, window: int) -> Case:
    """A packet of IPv4 in a tunnel whose packets go by route."""
    tags, words = rng.choice([0, 0, 1, 2]), rng.choice([0, 0, 1, 3])
    link, outer = _link(rng, tags), _outer(rng, False, ROUTED, 64, 0, words)
    data = rng.randbytes(rng.choice([0, 1, 26, 27, 64, 300]))
    addresses = {"src": rng.choice(BESIDE), "dst": rng.choice([*BESIDE[:-2], "169.255.7.1", "1.0.0.0"])}
    fault = rng.choice(["", "", "src", "dst", "sum", "longer", "shorter", "options", "version"])
    if fault == "src":
        addresses["src"] = rng.choice(FROM_NOBODY)
    if fault == "dst":
        addresses["dst"] = rng.choice(TO_NOBODY)
    options = [IPOption(b"\x07\x07\x04\x00\x00\x00\x00")] if fault == "options" else []
    packet = IP(**addresses, ttl=rng.randrange(256), id=rng.randrange(65536), options=options)
    inner = bytearray(bytes(packet / UDP(sport=7, dport=9) / Raw(data)))
    if fault in ("longer", "shorter"):
        # The length is not that of the packet, the checksum is right.
        packet.len = len(inner) + 1 if fault == "longer" else rng.randrange(20)
        inner[:20] = bytes(packet)
    if fault == "sum":
        # Of each bit but the version and the length of the header.
        inner[rng.randrange(1, 20)] ^= 1 << rng.randrange(8)
    if fault == "version":
        inner[0] ^= rng.choice([0x10, 0x20, 0x40])
    key = KEY if rng.random() < 0.3 else None
    gre = GRE(proto=0x0800, key_present=int(key is not None))
    if key is not None:
        gre.key = key
    frame = bytes(link / outer / gre / Raw(bytes(inner))) + rng.randbytes(rng.choice([0, 0, 18]))
    if 14 + 4 * tags + 24 + 4 * words + 4 * (key is not None) + 2 > window:
        return Case(frame, "host_deep", frame)
    if fault in ("sum", "longer", "shorter", "version"):
        return Case(frame, "inner_malformed")
    if fault in ("src", "dst"):
        return Case(frame, "not_routed")
    return Case(frame, "host_route", frame)


def other(rng: random.Random, _window: int) -> Case:
    """What is no tunnel packet."""
    link = _link(rng, rng.choice([0, 0, 1, 2, 5]))
    packet = _inner(
        rng, rng.random() < 0.4, rng.randrange(256), rng.randrange(256), rng.randbytes(rng.randrange(200))
    )
    frame = (
        bytes(link / packet)
        if rng.random() < 0.8
        else rng.randbytes(12) + b"\x08\x06" + rng.randbytes(rng.randrange(60))
    )
    return Case(frame, "passed", frame)


def malformed(rng: random.Random, _window: int) -> Case:
    """One fault."""
    link, outer = _link(rng, rng.choice([0, 1])), _outer(rng, False, PIPE, 64, 0, 0)
    inner = _inner(rng, False, 64, 0, rng.randbytes(rng.choice([10, 40, 300])))
    whole = bytes(link / outer / GRE(proto=0x0800) / inner)
    at = len(bytes(link))
    kind = rng.randrange(9)
    if kind == 0:  # A bit of the header, where it is not the version, the protocol or a length.
        broken = bytearray(whole)
        broken[at + rng.choice([1, 4, 5, 8, 10, 11, 12, 16, 19])] ^= 1 << rng.randrange(8)
        return Case(bytes(broken), "ip_checksum")
    if kind == 1:  # Cut off: in the headers, and behind what has left when it is noticed.
        return Case(whole[: rng.randrange(at + 20, len(whole))], "ip_malformed")
    if kind == 2:
        return Case(bytes(link / outer / Raw(b"\x00\x01\x88\x0b" + bytes(20))), "gre_version")
    if kind == 3:
        return Case(
            bytes(link / outer / Raw(rng.choice([b"\x40", b"\x08", b"\x04"]) + b"\x00\x08\x00" + bytes(20))),
            "gre_flags",
        )
    if kind == 4:
        cut = rng.choice(
            [b"", b"\x00", b"\x00\x00\x08", b"\x20\x00\x08\x00", b"\x30\x00\x08\x00\x00\x00\x00\x00"]
        )
        return Case(bytes(link / outer / Raw(cut)) + bytes(rng.choice([0, 30])), "gre_malformed")
    if kind == 5:
        return Case(bytes(link / outer / GRE(proto=0x86DD) / inner), "inner_malformed")
    if kind == 6:
        short = rng.randrange(20)
        return Case(
            bytes(link / outer / GRE(proto=0x0800) / Raw(bytes(inner)[:short])) + bytes(40), "inner_malformed"
        )
    if kind == 7:
        outer.ihl = 4
        outer.chksum = 0
        return Case(bytes(link / outer / GRE(proto=0x0800) / inner), "ip_malformed")
    outer.flags, outer.frag = rng.choice([(1, 0), (0, 185), (1, 3)])
    frame = bytes(link / outer / GRE(proto=0x0800) / inner)
    return Case(frame, "host_fragment", frame)


def handed(rng: random.Random, _window: int) -> Case:
    """What the host must do."""
    inner = _inner(rng, False, 64, 0, b"payload")
    frame = bytes(_link(rng, rng.choice([3, 4])) / inner)
    return Case(frame, "host_tags", frame)


def case(rng: random.Random, window: int) -> Case:
    """Any of them."""
    kinds = [tunnelled] * 6 + [routed] * 2 + [other] * 2 + [malformed] * 3 + [handed]
    return rng.choice(kinds)(rng, window)
