"""Ethernet sessions: kernel hosts behind two of them and one in the LAN find each other and talk."""

from __future__ import annotations

import queue
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rig.ethernet import EthernetAccess, Station
from rig.net import Topology, wait_until
from rig.node import Node
from rig.pfcp import (
    Answer,
    ControlPlane,
    choose,
    create_far,
    create_pdr,
    ie,
    to_access,
    u8,
    u32,
)

pytestmark = [
    pytest.mark.needs("root", "ip", "ethtool", "ping"),
    pytest.mark.xdist_group("links_of_the_machine"),
]

INSTANCE = """
[[network_instance]]
name = "factory"
port = "n6"
ethernet = true
"""
HOST = "10.77.0.9"
MACS = ("02:00:00:00:77:01", "02:00:00:00:77:02")
ADDRESSES = ("10.77.0.1", "10.77.0.2")


def rules(down: int) -> tuple[bytes, ...]:
    """A session of PDN type 5 that has ARP answered and addresses reported."""
    named = ie(22, b"factory")
    urr = u32(81, 1)
    uplink = create_pdr(1, 1, u8(20, 0) + choose(), u8(95, 6), urr)
    downlink = create_pdr(2, 2, u8(20, 1) + named + u8(142, 1), urr)
    to_lan = create_far(1, 2, u8(42, 1) + named + u8(137, 1))
    reporting = ie(6, urr + u8(62, 4) + ie(37, b"\0\x08") + u32(146, 60))
    return (u8(113, 5), uplink, downlink, to_lan, to_access(down), reporting)


@contextmanager
def factory(node: Node, net: Topology) -> Iterator[tuple[ControlPlane, list[Station], list[Answer]]]:
    """Two sessions with a station each, and a host in the LAN."""
    net.dn.ip("address", "add", f"{HOST}/24", "dev", "eth0")
    node.start()
    smf = ControlPlane(net.ran, "10.100.4.2")
    assert smf.set_up().cause == 1
    stations = [
        Station(f"{net.ran.name}{n}", mac, f"{address}/24")
        for n, (mac, address) in enumerate(zip(MACS, ADDRESSES, strict=True))
    ]
    try:
        sessions = [smf.establish(*rules(0x6001 + n)) for n in range(2)]
        assert [session.cause for session in sessions] == [1, 1]
        assert net.upf.pings("10.100.3.2", count=1)
        ends = [
            (station, session.teid, 0x6001 + n)
            for n, (station, session) in enumerate(zip(stations, sessions, strict=True))
        ]
        access = EthernetAccess(net.ran, ends)
        try:
            yield smf, stations, sessions
        finally:
            access.close()
    finally:
        smf.close()
        for station in stations:
            station.remove()
        node.stop()


def reported(smf: ControlPlane, mac: str) -> bool:
    """Whether a report names an address, as detected (TS 29.244 8.2.103)."""
    wanted = b"\x01" + bytes.fromhex(mac.replace(":", ""))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if wanted in smf.reports.get(timeout=1):
                return True
        except queue.Empty:
            continue
    return False


def pings(station: Station, address: str) -> bool:
    """Whether a host answers, with what a frame of 1500 octets carries."""
    return station.space.pings(address, "-s", "1472", "-M", "dont")


def test_hosts_behind_sessions_and_in_the_lan_talk(binary: Path, net: Topology, tmp_path: Path) -> None:
    """ARP, pings of full frames, addresses reported and shown, a trace of the frames.

    Conformance: TS 23.501 5.6.10.2 | Kernel hosts behind two Ethernet sessions and in their LAN talk
    """
    node = Node(binary, net.upf, tmp_path, driver="af_packet", more=INSTANCE)
    with factory(node, net) as (smf, stations, sessions):
        wait_until(lambda: pings(stations[0], HOST), "the host answers the first station")
        assert pings(stations[1], HOST)
        for station, address in ((stations[0], ADDRESSES[1]), (stations[1], ADDRESSES[0])):
            assert pings(station, address)
        for mac in MACS:
            assert reported(smf, mac), mac
        listed = node.ask("sessions")
        assert listed is not None
        shown = listed["sessions"]
        assert isinstance(shown, list)
        assert sorted(session["ue"][0] for session in shown) == sorted(MACS)
        seid = f"{sessions[0].up_seid:#x}"
        log = tmp_path / "trace.err"
        with log.open("w") as errors:
            arguments = ["trace", "--socket", str(node.socket), "--seid", seid, "--count", "4"]
            tracing = subprocess.Popen(
                [str(binary), *arguments], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        wait_until(lambda: "tracing 0x" in log.read_text(), "the session is found")
        assert pings(stations[0], HOST)
        text, _ = tracing.communicate(timeout=60)
        assert " uplink n3 in " in text
        assert " downlink n6 in " in text
        assert "by Ethernet in instance" in text
        # Of the LAN's other traffic, before there were sessions too, and questions that were answered.
        usual = ("no_pdr", "ethernet_reserved", "proxy_answered", "ethernet_unknown", "ethernet_filtered")
        assert all(drop.endswith(usual) for drop in node.drops()), node.drops()
    assert "panicked" not in node.log.read_text()
