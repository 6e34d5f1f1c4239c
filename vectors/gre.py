"""The packet vectors of `vectors/gre`, made with scapy; `make.py` writes and checks them.

The format and the rules behind the expected packets are in `README.md`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from scapy.layers.inet import GRE, ICMP, IP, TCP, UDP, IPOption_Router_Alert, fragment
from scapy.layers.inet6 import ICMPv6TimeExceeded, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, fragment6
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.packet import Packet, Raw, raw

LEFT_MAC, RIGHT_MAC = "02:00:00:00:01:01", "02:00:00:00:02:01"
CLOUD_MAC, SERVER_MAC = "02:00:00:00:01:02", "02:00:00:00:02:02"
CLOUD, SERVER = "192.0.2.10", "203.0.113.1"
CLOUD6, SERVER6 = "2001:db8:c::10", "2001:db8:5::1"
USER, WEB = "10.1.0.5", "10.2.0.9"
USER6, WEB6 = "2001:db8:1::5", "2001:db8:2::9"
IPV4, IPV6, ETHERNET = 0x0800, 0x86DD, 0x6558
MTU = 1500

Json = dict[str, Any]


@dataclass
class File:
    """One vector file: a node of two connected ports, its rules, and steps which follow one another on it."""

    name: str
    about: str
    rules: list[Json]
    encapsulations: list[Json] = field(default_factory=list)
    steps: list[Json] = field(default_factory=list)

    def step(
        self,
        name: str,
        frame: Packet | bytes,
        out: list[Packet | bytes],
        drop: str | None = None,
        to: str = "right",
    ) -> None:
        """Adds a frame received on the left port and all that must come out for it."""
        sent = [{"port": to, "hex": raw(octets).hex()} for octets in out]
        self.steps.append({"name": name, "port": "left", "in": raw(frame).hex(), "out": sent, "drop": drop})

    def render(self) -> str:
        """The file's text."""
        document = {
            "name": self.name,
            "about": self.about,
            "node": NODE,
            "rules": self.rules,
            "encapsulations": self.encapsulations,
            "steps": self.steps,
        }
        return json.dumps(document, indent=1) + "\n"


NODE: Json = {
    "ports": [
        {
            "name": "left",
            "mac": LEFT_MAC,
            "peer_port": "right",
            "mtu": MTU,
            "addresses": ["192.0.2.1", "2001:db8:c::1"],
        },
        {
            "name": "right",
            "mac": RIGHT_MAC,
            "peer_port": "left",
            "mtu": MTU,
            "addresses": ["10.2.0.1", "2001:db8:2::1"],
        },
    ],
    "neighbours": [
        {"address": WEB, "port": "right", "mac": SERVER_MAC},
        {"address": WEB6, "port": "right", "mac": SERVER_MAC},
        {"address": SERVER, "port": "right", "mac": SERVER_MAC},
        {"address": USER, "port": "left", "mac": CLOUD_MAC},
        {"address": USER6, "port": "left", "mac": CLOUD_MAC},
    ],
    "routes": [
        {"prefix": "10.2.0.0/24", "port": "right"},
        {"prefix": "2001:db8:2::/64", "port": "right"},
        {"prefix": "203.0.113.0/24", "port": "right"},
        {"prefix": "10.1.0.0/24", "port": "left"},
        {"prefix": "2001:db8:1::/64", "port": "left"},
    ],
    "unmatched": "pass",
    "unreadable": "drop",
}


def strip(
    name: str, ttl: str = "pipe", dscp: str = "pipe", forward: str = "peer_port", **condition: Any
) -> Json:
    """A rule that takes the headers off."""
    return {
        "name": name,
        **condition,
        "verdict": {"decapsulate": {"ttl": ttl, "dscp": dscp, "forward": forward}},
    }


RULES = [
    strip("plain", destination="203.0.113.1/32"),
    strip("uniform", ttl="uniform", dscp="uniform", destination="203.0.113.2/32"),
    strip("keyed", key=7, destination="203.0.113.3/32"),
    strip("keyless", key="absent", destination="203.0.113.4/32"),
    strip("six only", inner=["ipv6"], destination="203.0.113.5/32"),
    strip("routed", forward="route", destination="203.0.113.6/32"),
    {"name": "passed", "destination": "203.0.113.7/32", "verdict": "pass"},
    {"name": "dropped", "destination": "203.0.113.8/32", "verdict": "drop"},
    strip("from the cloud", source="192.0.2.0/25", destination="203.0.113.9/32"),
    strip("outer six", destination="2001:db8:5::/48"),
    strip("uniform six", ttl="uniform", dscp="uniform", destination="2001:db8:6::/48"),
]


def link(*tags: Packet) -> Packet:
    """The Ethernet header of what comes in on the left."""
    header = Ether(src=CLOUD_MAC, dst=SERVER_MAC)
    for tag in tags:
        header = header / tag
    return header


def user(length: int = 40, **fields: Any) -> Packet:
    """A user's IPv4 packet."""
    return IP(src=USER, dst=WEB, **fields) / UDP(sport=40000, dport=53) / Raw(b"x" * length)


def user6(length: int = 40, **fields: Any) -> Packet:
    """A user's IPv6 packet."""
    return IPv6(src=USER6, dst=WEB6, **fields) / UDP(sport=40000, dport=53) / Raw(b"x" * length)


def tunnel(
    inner: Packet | bytes, proto: int = IPV4, dst: str = SERVER, outer: Json | None = None, **gre: Any
) -> Packet:
    """An IP packet with GRE in it."""
    ip = (IPv6(src=CLOUD6, dst=dst) if ":" in dst else IP(src=CLOUD, dst=dst)).copy()
    for name, value in (outer or {}).items():
        setattr(ip, name, value)
    if isinstance(ip, IPv6):
        ip.nh = 47
    else:
        ip.proto = 47
    return ip / GRE(proto=proto, **gre) / (inner if isinstance(inner, Packet) else Raw(inner))


def plain() -> File:
    """Headers go and nothing else changes."""
    file = File("strip", "Outer headers go; the packet and its Ethernet header stay as they were.", RULES)
    both = [("IPv4", user(), IPV4), ("IPv6", user6(), IPV6)]
    for name, inner, proto in both:
        file.step(f"{name} in IPv4", link() / tunnel(inner, proto), [link() / inner])
        file.step(f"{name} in IPv6", link() / tunnel(inner, proto, SERVER6), [link() / inner])
        for tags in ((Dot1Q(vlan=100),), (Dot1AD(vlan=7), Dot1Q(vlan=100, prio=5))):
            tagged = link(*tags)
            file.step(f"{name} behind {len(tags)} tags", tagged / tunnel(inner, proto), [tagged / inner])
        for flags in ({"key": 9}, {"seqnum": 5}, {"chksum": 1}, {"key": 9, "seqnum": 5, "chksum": 1}):
            options: Json = {}
            if "key" in flags:
                options |= {"key_present": 1, "key": flags["key"]}
            if "seqnum" in flags:
                options |= {"seqnum_present": 1, "seqence_number": flags["seqnum"]}
            if "chksum" in flags:
                options |= {"chksum_present": 1}
            said = "+".join(flags)
            file.step(f"{name} with {said}", link() / tunnel(inner, proto, **options), [link() / inner])
    inner = user()
    file.step(
        "outer options",
        link() / tunnel(inner, outer={"options": [IPOption_Router_Alert()]}),
        [link() / inner],
    )
    behind = IPv6(src=CLOUD6, dst=SERVER6) / IPv6ExtHdrDestOpt(nh=47) / GRE(proto=IPV4) / inner
    file.step("outer destination options", link() / behind, [link() / inner])
    file.step("padding behind the outer packet", raw(link() / tunnel(user(0))) + bytes(9), [link() / user(0)])
    for size, head in (("a short", user(0)), ("a full", user(1500 - 24 - 28))):
        file.step(f"{size} packet", link() / tunnel(head), [link() / head])
    frame = Ether(src="02:aa:00:00:00:01", dst="02:aa:00:00:00:02") / user()
    file.step("Ethernet", link() / tunnel(frame, ETHERNET), [frame])
    tagged_frame = Ether(src="02:aa:00:00:00:01", dst="02:aa:00:00:00:02") / Dot1Q(vlan=100) / user()
    file.step("Ethernet behind a tag", link(Dot1Q(vlan=100)) / tunnel(frame, ETHERNET), [tagged_frame])
    file.step("reserved flags are ignored", link() / tunnel(inner, flags=0x1F), [link() / inner])
    nested = tunnel(user(), dst="203.0.113.1")
    file.step("GRE in GRE loses one of them", link() / tunnel(nested), [link() / nested])
    small_ttl = user(ttl=1)
    file.step("a packet on its last hop", link() / tunnel(small_ttl), [link() / small_ttl])
    return file


def conditions() -> File:
    """Which rule a packet meets."""
    file = File("conditions", "The first rule whose condition a packet meets says what is done.", RULES)
    inner, six = user(), user6()
    keyed = {"key_present": 1, "key": 7}
    other = {"key_present": 1, "key": 8}

    def stays(name: str, packet: Packet) -> None:
        file.step(name, link() / packet, [link() / packet])

    file.step("the key", link() / tunnel(inner, dst="203.0.113.3", **keyed), [link() / inner])
    stays("another key", tunnel(inner, dst="203.0.113.3", **other))
    stays("no key", tunnel(inner, dst="203.0.113.3"))
    file.step("no key where none may be", link() / tunnel(inner, dst="203.0.113.4"), [link() / inner])
    stays("a key where none may be", tunnel(inner, dst="203.0.113.4", **keyed))
    file.step("IPv6 where it must be", link() / tunnel(six, IPV6, "203.0.113.5"), [link() / six])
    stays("IPv4 where it must be IPv6", tunnel(inner, dst="203.0.113.5"))
    stays("a rule that passes", tunnel(inner, dst="203.0.113.7"))
    file.step("a rule that drops", link() / tunnel(inner, dst="203.0.113.8"), [], "gre_rule")
    file.step("the source", link() / tunnel(inner, dst="203.0.113.9"), [link() / inner])
    stays("another source", tunnel(inner, dst="203.0.113.9", outer={"src": "192.0.2.200"}))
    stays("no rule", tunnel(inner, dst="203.0.113.99"))
    stays("a protocol that no rule has", tunnel(b"\x00\x01\x02\x03", 0x8847))
    return file


def propagation() -> File:
    """What goes over from the outer header."""
    file = File("propagation", "Hops and class of service as the rule says, congestion marks always.", RULES)
    for dst, six_dst in (("203.0.113.2", "2001:db8:6::1"),):
        file.step(
            "lower outer TTL",
            link() / tunnel(user(ttl=60), dst=dst, outer={"ttl": 9}),
            [link() / user(ttl=9)],
        )
        file.step(
            "higher outer TTL",
            link() / tunnel(user(ttl=5), dst=dst, outer={"ttl": 200}),
            [link() / user(ttl=5)],
        )
        file.step(
            "outer DSCP",
            link() / tunnel(user(tos=0x20, ttl=5), dst=dst, outer={"tos": 0xB8}),
            [link() / user(tos=0xB8, ttl=5)],
        )
        file.step(
            "IPv6 in IPv6",
            link() / tunnel(user6(hlim=64, tc=0, fl=0x12345), IPV6, six_dst, outer={"hlim": 3, "tc": 0xB8}),
            [link() / user6(hlim=3, tc=0xB8, fl=0x12345)],
        )
        file.step(
            "IPv6 in IPv4",
            link() / tunnel(user6(hlim=64), IPV6, dst, outer={"ttl": 7, "tos": 0x88}),
            [link() / user6(hlim=7, tc=0x88)],
        )
    ecn = {0: "not capable", 1: "ECT(1)", 2: "ECT(0)", 3: "CE"}
    for outer, inner in ((o, i) for o in range(4) for i in range(4)):
        name = f"{ecn[outer]} around {ecn[inner]}"
        frame = link() / tunnel(user(tos=0x48 | inner), outer={"tos": outer})
        frame6 = link() / tunnel(user6(tc=0x48 | inner), IPV6, SERVER6, outer={"tc": outer})
        if outer == 3 and inner == 0:
            file.step(name, frame, [], "congestion_mark")
            file.step(f"{name}, IPv6", frame6, [], "congestion_mark")
            continue
        # RFC 6040 figure 4.
        result = (
            inner
            if inner == 0
            else 3
            if outer == 3 or inner == 3
            else 1
            if (outer, inner) == (1, 2)
            else inner
        )
        file.step(name, frame, [link() / user(tos=0x48 | result)])
        file.step(f"{name}, IPv6", frame6, [link() / user6(tc=0x48 | result)])
    return file


def complaint(to: str) -> Packet:
    """The IPv4 header of an ICMP error from the left port."""
    return IP(src="192.0.2.1", dst=to, ttl=64, tos=0xC0, id=0)


def routed() -> File:
    """Packets that leave by route."""
    file = File("routed", "Packets out of tunnels go by the node's routes.", RULES)
    dst = "203.0.113.6"
    out = Ether(src=RIGHT_MAC, dst=SERVER_MAC)
    file.step("IPv4", link() / tunnel(user(ttl=9), dst=dst), [out / user(ttl=8)])
    file.step("IPv6", link() / tunnel(user6(hlim=9), IPV6, dst), [out / user6(hlim=8)])
    file.step("behind a tag", link(Dot1Q(vlan=5)) / tunnel(user(ttl=9), dst=dst), [out / user(ttl=8)])
    nowhere = IP(src=USER, dst="198.51.100.1") / UDP()
    file.step("no route", link() / tunnel(nowhere, dst=dst), [], "no_route")
    group = IP(src=USER, dst="224.0.0.5") / UDP()
    file.step("a group", link() / tunnel(group, dst=dst), [], "not_routed")
    back = Ether(src=LEFT_MAC, dst=CLOUD_MAC)
    last = user(ttl=1)
    error = complaint(USER) / ICMP(type=11, code=0) / raw(last)
    file.step("the last hop", link() / tunnel(last, dst=dst), [back / error], "ttl_expired", "left")
    last6 = user6(hlim=1)
    error6 = IPv6(src="2001:db8:c::1", dst=USER6, hlim=64) / ICMPv6TimeExceeded(code=0) / raw(last6)
    file.step(
        "the last hop of IPv6", link() / tunnel(last6, IPV6, dst), [back / error6], "ttl_expired", "left"
    )
    stranger = IP(src="198.51.100.7", dst=WEB, ttl=1) / UDP()
    file.step("the last hop of whom no route leads to", link() / tunnel(stranger, dst=dst), [], "ttl_expired")
    broken = bytearray(raw(user()))
    broken[10] ^= 1
    file.step("a wrong inner checksum", link() / tunnel(bytes(broken), dst=dst), [], "inner_malformed")
    return file


def others() -> File:
    """What is no tunnel packet passes as it is."""
    file = File("others", "Everything that is not GRE passes, whatever state it is in.", RULES)
    frames: list[tuple[str, Packet | bytes]] = [
        ("UDP", link() / user()),
        ("TCP", link() / IP(src=USER, dst=WEB) / TCP(sport=1, dport=2)),
        ("IPv6", link() / user6()),
        ("ICMP", link() / IP(src=USER, dst=WEB) / ICMP()),
        ("behind tags", link(Dot1AD(vlan=7), Dot1Q(vlan=9)) / user()),
        ("ARP", link() / ARP(psrc=USER, pdst=WEB)),
        ("an unknown EtherType", link() / Raw(b"\x88\xb5" + bytes(50))),
        ("a fragment", link() / IP(src=USER, dst=WEB, flags="MF", proto=17) / Raw(bytes(64))),
        ("no IP at all", raw(Ether(src=CLOUD_MAC, dst=SERVER_MAC, type=IPV4)) + bytes(46)),
        ("a wrong IPv4 checksum", link() / IP(src=USER, dst=WEB, chksum=1) / UDP()),
        ("padding", raw(link() / IP(src=USER, dst=WEB) / UDP()) + bytes(18)),
        ("five tags", link(*(Dot1Q(vlan=n) for n in range(1, 6))) / user()),
        ("IPv6 with a length of nothing", link() / IPv6(src=USER6, dst=WEB6, plen=0, nh=17) / Raw(bytes(20))),
    ]
    for name, frame in frames:
        file.step(name, frame, [frame])
    return file


def pieces() -> File:
    """Tunnel packets that came in pieces."""
    file = File("pieces", "Tunnel packets in pieces are put together and judged whole.", RULES)
    inner = user(1000)
    parts = fragment(tunnel(inner, outer={"id": 77}), fragsize=400)
    for at, part in enumerate(parts):
        last = at + 1 == len(parts)
        file.step(f"IPv4 piece {at}", link() / part, [link() / inner] if last else [])
    parts = fragment(tunnel(inner, outer={"id": 78}), fragsize=400)
    for at, part in enumerate(reversed(parts)):
        last = at + 1 == len(parts)
        file.step(f"IPv4 piece {at} in reverse", link() / part, [link() / inner] if last else [])
    six = IPv6(src=CLOUD6, dst=SERVER6) / IPv6ExtHdrFragment(id=79) / GRE(proto=IPV4) / inner
    parts = fragment6(six, 500)
    for at, part in enumerate(parts):
        last = at + 1 == len(parts)
        file.step(f"IPv6 piece {at}", link() / part, [link() / inner] if last else [])
    broken = fragment(tunnel(inner, outer={"id": 80}, version=1), fragsize=700)
    file.step("first piece of another version", link() / broken[0], [])
    file.step("second piece of another version", link() / broken[1], [], "gre_version")
    return file


def drops() -> File:
    """Tunnel packets that are not in good order."""
    file = File("drops", "Every drop, each packet with one fault.", RULES)
    inner = user()

    def drop(name: str, frame: Packet | bytes, reason: str) -> None:
        file.step(name, frame, [], reason)

    drop("the GRE of PPTP", link() / tunnel(inner, 0x880B, version=1), "gre_version")
    drop("version 7", link() / tunnel(inner, version=7), "gre_version")
    drop("routing", link() / tunnel(inner, routing_present=1), "gre_flags")
    drop("strict source route", link() / tunnel(inner, strict_route_source=1), "gre_flags")
    drop("recursion control of four", link() / tunnel(inner, recursion_control=4), "gre_flags")
    cut = IP(src=CLOUD, dst=SERVER, proto=47)
    drop("no GRE at all", link() / cut, "gre_malformed")
    drop("a header cut off", link() / cut / Raw(b"\x00\x00\x08"), "gre_malformed")
    drop("a key cut off", link() / cut / Raw(b"\x20\x00\x08\x00\x00\x00\x00"), "gre_malformed")
    drop("all options cut off", link() / cut / Raw(b"\xb0\x00\x08\x00" + bytes(11)), "gre_malformed")
    drop("a wrong GRE checksum", link() / tunnel(inner, chksum_present=1, chksum=1), "gre_checksum")
    drop("a wrong outer checksum", link() / tunnel(inner, outer={"chksum": 1}), "ip_checksum")
    drop("an outer length past the frame", link() / tunnel(inner, outer={"len": 200}), "ip_malformed")
    drop("an outer IHL of four", link() / tunnel(inner, outer={"ihl": 4}), "ip_malformed")
    drop(
        "an outer IPv6 length past the frame",
        link() / tunnel(inner, dst=SERVER6, outer={"plen": 200}),
        "ip_malformed",
    )
    drop("nothing in the tunnel", link() / tunnel(b""), "inner_malformed")
    drop("IPv6 that says IPv4", link() / tunnel(user6(), IPV4), "inner_malformed")
    drop("IPv4 that says IPv6", link() / tunnel(inner, IPV6), "inner_malformed")
    drop("an inner IHL of four", link() / tunnel(user(ihl=4)), "inner_malformed")
    drop("an IPv4 header cut off", link() / tunnel(raw(inner)[:19]), "inner_malformed")
    drop("an IPv6 header cut off", link() / tunnel(raw(user6())[:39], IPV6), "inner_malformed")
    drop("an Ethernet header cut off", link() / tunnel(bytes(13), ETHERNET), "inner_malformed")
    return file


def tunnel_to(name: str, destination: str, remote: str = SERVER, **more: Any) -> Json:
    """An encapsulation of what comes in on the left."""
    local = CLOUD6 if ":" in remote else CLOUD
    usual = {
        "ethernet": False,
        "key": None,
        "checksum": False,
        "hops": 64,
        "ttl": "pipe",
        "dscp": "pipe",
        "dont_fragment": "set",
        "forward": "peer_port",
    }
    return {
        "name": name,
        "port": "left",
        "destination": destination,
        "local": local,
        "remote": remote,
        **usual,
        **more,
    }


def encapsulate() -> File:
    """The reverse."""
    ways = [
        tunnel_to("plain", "10.2.0.9/32"),
        tunnel_to("six", "2001:db8:2::/48"),
        tunnel_to("over six", "10.2.0.10/32", SERVER6),
        tunnel_to("all options", "10.2.0.11/32", key=7, checksum=True),
        tunnel_to("uniform", "10.2.0.12/32", ttl="uniform", dscp="uniform"),
        tunnel_to("cut outside", "10.2.0.13/32", dont_fragment="clear"),
        tunnel_to("routed", "10.2.0.14/32", forward="route"),
        tunnel_to("frames", "10.2.0.15/32", ethernet=True, key=9),
    ]
    file = File("encapsulate", "Packets are given outer headers; no state is kept.", [], ways)

    def to(dst: str, length: int = 40, **fields: Any) -> Packet:
        return IP(src=USER, dst=dst, **fields) / UDP(sport=40000, dport=53) / Raw(b"x" * length)

    fixed: Json = {"id": 0, "flags": "DF", "ttl": 64}
    inner = to(WEB)
    file.step("IPv4", link() / inner, [link() / tunnel(inner, outer=fixed)])
    file.step("behind a tag", link(Dot1Q(vlan=9)) / inner, [link(Dot1Q(vlan=9)) / tunnel(inner, outer=fixed)])
    file.step(
        "padding stays behind",
        raw(link() / to(WEB, 0)) + bytes(18),
        [link() / tunnel(to(WEB, 0), outer=fixed)],
    )
    file.step("IPv6", link() / user6(), [link() / tunnel(user6(), IPV6, outer=fixed)])
    inner = to("10.2.0.10")
    file.step("over IPv6", link() / inner, [link() / tunnel(inner, IPV4, SERVER6, outer={"hlim": 64})])
    for length in (40, 41):
        inner = to("10.2.0.11", length)
        options = {"key_present": 1, "key": 7, "chksum_present": 1}
        file.step(
            f"all options, {length} octets", link() / inner, [link() / tunnel(inner, outer=fixed, **options)]
        )
    inner = to("10.2.0.12", ttl=9, tos=0xB8)
    file.step("uniform", link() / inner, [link() / tunnel(inner, outer=fixed | {"ttl": 9, "tos": 0xB8})])
    for mark in (1, 2, 3):
        inner = to(WEB, tos=0xB8 | mark)
        file.step(f"congestion {mark}", link() / inner, [link() / tunnel(inner, outer=fixed | {"tos": mark})])
    inner = to("10.2.0.14", ttl=9)
    sent = Ether(src=RIGHT_MAC, dst=SERVER_MAC) / tunnel(to("10.2.0.14", ttl=8), outer=fixed)
    file.step("routed", link() / inner, [sent])
    frame = link() / to("10.2.0.15")
    options = {"key_present": 1, "key": 9}
    file.step("Ethernet", frame, [link() / tunnel(frame, ETHERNET, outer=fixed, **options)])
    other = link() / to("10.9.9.9")
    file.step("what no tunnel is for", other, [other])
    largest = to(WEB, MTU - 24 - 28, flags="DF")
    file.step("the largest that fits", link() / largest, [link() / tunnel(largest, outer=fixed)])
    large = to(WEB, MTU - 24 - 27, id=5)
    halves = fragment(large, fragsize=(MTU - 24 - 20) // 8 * 8)
    file.step(
        "too large, and may be cut", link() / large, [link() / tunnel(half, outer=fixed) for half in halves]
    )
    whole = to(WEB, MTU - 24 - 27, flags="DF")
    quoted = raw(whole)[: 576 - 28]
    needed = complaint(USER) / ICMP(type=3, code=4, nexthopmtu=MTU - 24) / quoted
    back = Ether(src=SERVER_MAC, dst=CLOUD_MAC)
    file.step("too large, and may not be cut", link() / whole, [back / needed], "too_big", "left")
    return file


FILES: tuple[Callable[[], File], ...] = (
    plain,
    conditions,
    propagation,
    routed,
    others,
    pieces,
    drops,
    encapsulate,
)
