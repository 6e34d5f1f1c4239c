"""Where fields lie: what scapy writes there, and what is written there by offset, are the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kaido.fields import FieldError, Place, find, offset_of
from scapy.contrib.gtp import GTP_U_Header, GTPPDUSessionContainer
from scapy.contrib.mpls import MPLS
from scapy.fields import FlagValue, MultipleTypeField
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, GRE, Dot1AD, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw

LINK = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
PACKETS: dict[str, Packet] = {
    "tunnel": LINK
    / Dot1AD(vlan=7)
    / Dot1Q(vlan=5)
    / IP(src="192.168.3.2", dst="192.168.3.1")
    / UDP(dport=2152, chksum=0)
    / GTP_U_Header(teid=200)
    / GTPPDUSessionContainer(type=1, QFI=9)
    / IP(src="10.0.0.1", dst="8.8.8.8")
    / TCP(sport=1, dport=2)
    / Raw(b"load of bytes"),
    "vxlan": LINK
    / IPv6(src="2001:db8::1", dst="2001:db8::2")
    / UDP(dport=4789)
    / VXLAN(vni=77, flags="Instance")
    / Ether(src="02:00:00:00:00:03", dst="02:00:00:00:00:04")
    / MPLS(label=3)
    / IP(src="1.2.3.4", dst="5.6.7.8")
    / ICMP(),
    "gre": LINK
    / IP(src="1.2.3.4", dst="5.6.7.8")
    / GRE(proto=0x0800, key_present=1, key=4)
    / IP(src="9.9.9.9", dst="8.8.8.8")
    / UDP(),
    "arp": LINK / ARP(psrc="10.0.0.1", pdst="10.0.0.2", hwsrc="02:00:00:00:00:01"),
}


def places(packet: Packet) -> list[tuple[str, Place]]:
    """Every field of every layer that has a place."""
    found = []
    counts: dict[str, int] = {}
    layer = packet
    while layer:
        kind = type(layer).__name__
        counts[kind] = counts.get(kind, 0) + 1
        for field in layer.fields_desc:
            name = f"{kind}:{counts[kind]}.{field.name}"
            try:
                found.append((name, find(packet, name).place()))
            except FieldError:
                continue
        layer = layer.payload
    return found


ALL = [(title, name, place) for title, packet in PACKETS.items() for name, place in places(packet)]


def test_nearly_all_fields_have_a_place() -> None:
    """What has none is empty, absent, or moves the rest."""
    names = {name for _, name, _ in ALL}
    assert len(ALL) > 120
    wanted = """Ether:1.dst Dot1Q:1.vlan Dot1AD:1.prio IP:1.src IP:2.dst IP:1.flags IP:1.frag IP:2.ttl
        UDP:1.dport GTP_U_Header:1.teid GTPPDUSessionContainer:1.QFI TCP:1.seq TCP:1.flags IPv6:1.fl
        IPv6:1.dst VXLAN:1.vni MPLS:1.label MPLS:1.s Ether:2.src GRE:1.key ICMP:1.id ARP:1.pdst ARP:1.hwsrc
        Raw:1.load"""
    assert set(wanted.split()) - names == set()


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_what_is_written_by_place_is_what_scapy_writes(data: st.DataObject) -> None:
    """Bits put where the field is said to lie are those that scapy puts there for that value."""
    title, name, place = data.draw(st.sampled_from(ALL))
    packet = PACKETS[title]
    field = find(packet, name)
    value = data.draw(st.integers(0, (1 << place.bits) - 1))
    before = bytes(packet)
    word = int.from_bytes(before[place.offset : place.offset + place.width], "big")
    word = (word & ~place.mask) | (value << place.shift)
    after = before[: place.offset] + word.to_bytes(place.width, "big") + before[place.offset + place.width :]
    assert place.read(after) == value
    layer = field._frozen()
    at = len(before) - len(bytes(layer))
    kind = layer.get_field(field.name)
    if isinstance(layer.getfieldval(field.name), int | FlagValue):
        built = field.build(value)
    else:
        if isinstance(kind, MultipleTypeField):
            kind = kind._find_fld_pkt(layer)
        size = len(kind.addfield(layer, b"", layer.getfieldval(field.name)))
        built = field.build(kind.m2i(layer, after[field.offset : field.offset + size]))
    # Of a field that says how others are written, those may look different.
    assert place.read(after[:at] + built + after[at + len(built) :]) == value


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("Ether.dst", Place(0, 8, 0xFFFF_FFFF_FFFF_0000)),
        ("Dot1Q.vlan", Place(18, 2, 0x0FFF)),
        ("IP.src", Place(34, 4, 0xFFFF_FFFF)),
        ("IP:2.dst", Place(82, 4, 0xFFFF_FFFF)),
        ("GTP_U_Header.teid", Place(54, 4, 0xFFFF_FFFF)),
        ("GTPPDUSessionContainer.QFI", Place(64, 1, 0x3F)),
    ],
)
def test_places_are_known(name: str, place: Place) -> None:
    """Some that anybody can count."""
    assert find(PACKETS["tunnel"], name).place() == place


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("IP.source", "IP has no field source, but version, ihl"),
        ("SCTP.sport", "there is no layer SCTP in Ether/Dot1AD/Dot1Q/IP/UDP/GTP_U_Header"),
        ("IP:3.src", "IP comes 2 times in .*, the first has number 1"),
        ("teid", "a field is named LAYER.FIELD"),
        ("GTP_U_Header.E", "the packet's length changes with it"),
        ("IP.options", "it is not in this packet, or empty"),
    ],
)
def test_errors_name_layer_and_field(name: str, message: str) -> None:
    """What is wrong, and what there is."""
    with pytest.raises(FieldError, match=message):
        find(PACKETS["tunnel"], name).place()


def test_values_are_those_that_scapy_takes() -> None:
    """Addresses, names and numbers."""
    packet = PACKETS["tunnel"]
    assert find(packet, "IP.src").value("10.0.0.7") == 0x0A00_0007
    assert find(packet, "IP.proto").value("tcp") == 6
    assert find(packet, "Ether.src").value("02:00:00:00:00:09") == 0x0200_0000_0009
    assert find(PACKETS["vxlan"], "IPv6.dst").value("2001:db8::1:2") == 0x1_0002
    with pytest.raises(FieldError, match=r"IP\.src: 'here' is no value of it"):
        find(packet, "IP.src").value("here")


def test_layers_are_numbered_from_what_the_caller_says() -> None:
    """TRex begins with 0, scapy with 1."""
    packet = PACKETS["tunnel"]
    assert offset_of(packet, "IP") == offset_of(packet, "IP:0", first=0) == 22
    assert offset_of(packet, "IP:2") == offset_of(packet, "IP:1", first=0) == 66
    assert offset_of(PACKETS["vxlan"], "IPv6.dst") == 14 + 24
    with pytest.raises(FieldError, match="no such layer"):
        offset_of(packet, "IP:2", first=0)
