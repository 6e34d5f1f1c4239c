"""Streams: what they are in the bench's model, and the packets that come of it."""

from __future__ import annotations

import json
from typing import Any

import kaido
import pytest
from kaido import (
    AddressAndPort,
    At,
    Client,
    Decrement,
    Increment,
    Lengths,
    Listed,
    Mode,
    Random,
    Rate,
    Stream,
)
from scapy.contrib.gtp import GTP_U_Header
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

LINK = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
UDP_PACKET = (
    LINK / Dot1Q(vlan=9) / IP(src="16.0.0.1", dst="48.0.0.1") / UDP(sport=1025, dport=12) / Raw(b"x" * 40)
)


def packets(stream: Stream, count: int) -> list[Packet]:
    """The first packets of a stream, taken apart by scapy."""
    return [Ether(data) for data in Client().packets(stream, count)]


def values(stream: Stream, count: int, get: Any) -> list[Any]:
    """What a field of the first packets is."""
    return [get(packet) for packet in packets(stream, count)]


def test_addresses_go_up_and_begin_anew() -> None:
    """Checksums follow."""
    stream = Stream(UDP_PACKET, vary=[Increment("IP.src", "16.0.0.1", "16.0.0.3")])
    found = packets(stream, 4)
    assert [packet[IP].src for packet in found] == ["16.0.0.1", "16.0.0.2", "16.0.0.3", "16.0.0.1"]
    for packet in found:
        whole = bytes(packet)
        packet[IP].chksum = packet[UDP].chksum = None
        assert bytes(packet) == whole


def test_bits_go_down_and_leave_their_neighbours() -> None:
    """A VLAN identifier beside a priority."""
    packet = UDP_PACKET.copy()
    packet[Dot1Q].prio = 5
    stream = Stream(packet, vary=[Decrement("Dot1Q.vlan", 4095, 1, step=2000)])
    found = values(stream, 4, lambda packet: (packet[Dot1Q].vlan, packet[Dot1Q].prio))
    assert found == [(4095, 5), (2095, 5), (95, 5), (4095, 5)]


def test_a_variable_goes_to_several_places() -> None:
    """A TEID, and the UE's address that belongs to it."""
    tunnel = LINK / IP(src="1.1.1.1", dst="2.2.2.2") / UDP(dport=2152) / GTP_U_Header(teid=200)
    stream = Stream(
        tunnel / IP(src="10.0.0.1", dst="8.8.8.8") / UDP(),
        vary=[Increment(["GTP_U_Header.teid", At("IP:2.src", start="10.0.0.1")], 200, 1199)],
    )
    found = values(stream, 3, lambda packet: (packet[GTP_U_Header].teid, packet[IP:2].src))
    assert found == [(200, "10.0.0.1"), (201, "10.0.0.2"), (202, "10.0.0.3")]


def test_one_variable_leads_another() -> None:
    """The second goes on when the first begins anew."""
    stream = Stream(
        UDP_PACKET,
        vary=[
            Listed("UDP.dport", [80, 443], name="service"),
            Increment("IP.dst", "48.0.0.1", "48.0.0.9", after="service"),
        ],
    )
    found = values(stream, 4, lambda packet: (packet[UDP].dport, packet[IP].dst))
    assert found == [(80, "48.0.0.1"), (443, "48.0.0.1"), (80, "48.0.0.2"), (443, "48.0.0.2")]


def test_addresses_and_ports_make_flows() -> None:
    """All addresses, then the next port."""
    pair = AddressAndPort("IP.src", "UDP.sport", ("10.0.0.1", "10.0.0.2"), (5000, 5001))
    found = values(Stream(UDP_PACKET, vary=[pair]), 5, lambda packet: (packet[IP].src, packet[UDP].sport))
    flows = [(address, port) for port in (5000, 5001) for address in ("10.0.0.1", "10.0.0.2")]
    assert found == [*flows, flows[0]]


def test_random_values_are_those_of_the_seed() -> None:
    """Equal seeds give equal packets, others do not; values stay in their range and come again."""
    stream = Stream(UDP_PACKET, vary=[Random("IP.src", "16.0.0.10", "16.0.0.200", repeat_after=8)])
    first, again, other = (Client(seed=seed).packets(stream, 16) for seed in (1, 1, 2))
    assert first == again != other
    sources = [Ether(data)[IP].src for data in first]
    assert sources[:8] == sources[8:]
    assert all(10 <= int(source.split(".")[3]) <= 200 for source in sources)


def test_lengths_follow() -> None:
    """Frames of a length have headers that say so; IMIX has its shares."""
    stream = Stream(UDP_PACKET, lengths=Lengths.sweep(100, 102))
    for packet, size in zip(packets(stream, 4), [100, 101, 102, 100], strict=True):
        assert (len(packet), packet[IP].len, packet[UDP].len) == (size, size - 18, size - 38)
    sizes = [len(data) for data in Client().packets(Stream(UDP_PACKET, lengths=Lengths.IMIX), 1200)]
    mix = LINK / Dot1Q() / IP() / UDP()
    least = max(60, len(mix) + 16)
    assert {size: sizes.count(size) for size in set(sizes)} == {least: 700, 590: 400, 1514: 100}


def test_everything_of_the_model_can_be_said() -> None:
    """As the model understands it."""
    stream = Stream(
        UDP_PACKET,
        vary=[kaido.Increment(kaido.Raw(18, width=2, mask=0x0FFF, shift=1, add=-3), 3, 9, width=2)],
        name="n",
        port="1",
        rate="40%",
        mode=Mode.bursts(10, 3, 0.5),
        lengths=Lengths.mix((64, 1), (128, 3)),
        checksums="none",
        delay_s=0.25,
        trailer=False,
    )
    model = json.loads(kaido._native.check_traffic(json.dumps(Client().traffic(stream, rate="1Mpps"))))
    assert model["total"] == {"pps": 1e6}
    found = model["streams"][0]
    template = found["source"]["template"]
    assert template["writes"] == [
        {"variable": "raw", "offset": 18, "width": 2, "mask": 0x0FFF, "shift": 1, "add": -3}
    ]
    assert (found["delay_ns"], found["rate"], found["trailer"]) == (250_000_000, {"percent": 40.0}, False)
    assert found["mode"] == {"multi_burst": {"packets": 10, "bursts": 3, "gap_ns": 500_000_000}}
    assert (template["checksums"], template["lengths"]["mix"][1]) == ("none", {"bytes": 128, "weight": 3})
    ramp = Stream(UDP_PACKET, mode=Mode.ramp(0, 1, 2.0)).to_json()
    assert ramp["mode"] == {"ramp": {"from": 0, "to": 1, "time_ns": 2_000_000_000}}


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        (1000, {"pps": 1000.0}),
        ("1.5Mpps", {"pps": 1.5e6}),
        ("10Gbps", {"l2_bps": 1e10}),
        ("10 GbpsL1", {"l1_bps": 1e10}),
        ("40%", {"percent": 40.0}),
        ("max", "max"),
        (Rate.weight(3), {"weight": 3.0}),
    ],
)
def test_rates_are_read(text: Any, rate: Any) -> None:
    """Numbers and text."""
    assert Rate.of(text) == rate


@pytest.mark.parametrize("text", ["fast", "10", "5ppsL1", "-1pps"])
def test_what_is_no_rate_is_said(text: str) -> None:
    """With what is possible."""
    with pytest.raises(ValueError, match=r"is no rate: 1\.5Mpps"):
        Rate.of(text)


def test_what_is_wrong_names_its_place() -> None:
    """In the words of the model, or of the field."""
    with pytest.raises(kaido.FieldError, match=r"`IP\.sorce`: IP has no field sorce"):
        Client().packets(Stream(UDP_PACKET, vary=[Increment("IP.sorce", 1, 2)]))
    overlapping = [Increment("IP.src", 1, 2), Increment("IP.src", 3, 4)]
    with pytest.raises(ValueError, match=r"stream\[0\]\.source\.template\.writes\[1\]"):
        Client().packets(Stream(UDP_PACKET, vary=overlapping))
    with pytest.raises(ValueError, match="no number, and no field"):
        Stream(UDP_PACKET, vary=[Increment(kaido.Raw(30), "16.0.0.1", 5)]).to_json()
