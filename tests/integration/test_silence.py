"""Control planes that do not answer, and who claims to be one: usage is told to the octet, sessions stay."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig.gtpu import G_PDU, gtpu, ipv4, udp
from rig.net import Topology, wait_until
from rig.node import Node
from rig.pfcp import (
    HEARTBEAT,
    SETUP,
    Answer,
    ControlPlane,
    downlink,
    elements,
    ie,
    message,
    node_id,
    to_access,
    to_core,
    u32,
    uplink,
)
from rig.silence import Silence, be_silent
from rig.target import DN, DN_PORT, SMF, UE_PORT, Target, standing

pytestmark = pytest.mark.needs("root", "ip", "ethtool")

UE = "10.60.0.2"
PAYLOAD = 972
#: IPv4 and UDP headers and the payload: what a packet is charged.
PACKET = 1000
THRESHOLD = 5 * PACKET
#: What the other side asks.
ALL = {HEARTBEAT, 7, 12, 56}
SESSION_REPORT = 56


@pytest.fixture
def target(binary: Path, net: Topology, tmp_path: Path) -> Iterator[Target]:
    """The node."""
    with standing(Node(binary, net.upf, tmp_path), net) as target:
        yield target


def charged(target: Target) -> Answer:
    """A session whose volume is reported every five packets."""
    urr = u32(81, 1)
    rule = ie(6, urr + ie(62, b"\x02") + ie(37, b"\x02\0\0") + ie(31, b"\x01" + struct.pack("!Q", THRESHOLD)))
    rules = (uplink(1, None, urr), downlink(UE, 2, urr), to_core(), to_access(0x6000), rule)
    session = target.smf.establish(*rules)
    assert session.cause == 1
    return session


def send(target: Target, session: Answer, packets: int) -> int:
    """Send packets out of the tunnel, see them arrive; their octets."""
    for _ in range(packets):
        inner = ipv4(UE, DN, udp(UE_PORT, DN_PORT, bytes(PAYLOAD)))
        target.gnb.send(gtpu(G_PDU, session.teid, inner))
        assert target.arrives(bytes(PAYLOAD))
    return packets * PACKET


class Told:
    """What a control plane was told of usage, each request once."""

    def __init__(self, smf: ControlPlane) -> None:
        """Nothing yet."""
        self.smf = smf
        self.requests: dict[int, int] = {}

    def octets(self) -> int:
        """All that was told so far."""
        while not self.smf.reports.empty():
            octets = self.smf.reports.get()
            if octets[1] == SESSION_REPORT:
                request = Answer.read(octets)
                self.requests[request.sequence] = volume(request, 80)
        return sum(self.requests.values())


def volume(message: Answer, kind: int) -> int:
    """The octets in the usage reports of a message."""
    found = 0
    for element, value in message.elements:
        if element == kind:
            measured = dict(elements(value)).get(66)
            found += int.from_bytes(measured[1:9]) if measured else 0
    return found


def test_usage_of_a_silent_control_plane_is_told_to_the_octet(target: Target) -> None:
    """What went through while nobody answered is in the reports that follow.

    Conformance: TS 29.244 6.4 | A control plane that was silent is told all usage when it answers again
    """
    session, told = charged(target), Told(target.smf)
    sent = send(target, session, 12)
    wait_until(lambda: told.octets() >= THRESHOLD, "the control plane is told")
    target.smf.deaf_to = ALL
    sent += send(target, session, 30)
    log = target.node.log
    wait_until(lambda: "control plane does not answer" in log.read_text(), "the node notices")
    sent += send(target, session, 21)
    lines = len(log.read_text().splitlines())
    target.smf.deaf_to = set()
    wait_until(lambda: told.octets() > sent - THRESHOLD, "what was kept is told")
    assert told.octets() <= sent
    last = target.smf.delete(session)
    assert told.octets() + volume(last, 79) == sent
    assert lines < 100, log.read_text()


def test_the_last_usage_is_told_to_a_control_plane_that_knows_no_release(target: Target) -> None:
    """SIGTERM: an Association Update that is not answered keeps no usage back."""
    session, told = charged(target), Told(target.smf)
    sent = send(target, session, 7)
    target.smf.deaf_to = {7}
    assert target.node.stop() == 0
    assert told.octets() == sent
    assert "usage was not reported" not in target.node.log.read_text()


def test_what_could_not_be_told_at_the_end_is_logged(target: Target) -> None:
    """SIGTERM with nobody there: sessions and octets are in the log."""
    session = charged(target)
    # Deaf from the start: else the report of the first five packets may be acknowledged before.
    target.smf.deaf_to = ALL
    sent = send(target, session, 7)
    assert target.node.stop() == 0
    log = target.node.log.read_text()
    lines = [line for line in log.splitlines() if "usage was not reported" in line]
    assert len(lines) == 1, log
    assert "sessions=2" in lines[0] or "sessions\x1b[0m\x1b[2m=\x1b[0m2" in lines[0]
    assert str(sent) in lines[0]


def test_nobody_takes_over_a_control_plane_that_lives(target: Target) -> None:
    """A set-up in its name from elsewhere, and a heartbeat that says that it restarted."""
    stranger = target.stranger
    for _ in range(5):
        stranger.send(message(SETUP, stranger.next(), node_id(SMF) + u32(96, stranger.started + 9)))
    assert stranger.silence()
    target.smf.send(message(HEARTBEAT, target.smf.next(), u32(96, target.smf.started + 100)))
    log = target.node.log
    wait_until(lambda: "claims to be a node" in log.read_text(), "the claim is logged")
    target.is_sound()


def test_a_data_network_does_not_reach_pfcp(target: Target) -> None:
    """A host behind N6 with a route to the node's PFCP address asks for a heartbeat."""
    net = target.net
    net.dn.ip("route", "add", "10.100.4.1/32", "via", "10.100.6.1")
    host = net.dn.socket(DN, 8805)
    host.settimeout(1)
    for sequence in range(3):
        host.sendto(message(HEARTBEAT, sequence, u32(96, 1)), ("10.100.4.1", 8805))
    wait_until(lambda: target.node.drops().get("n6 control_address", 0) >= 3, "they are dropped by name")
    with pytest.raises(TimeoutError):
        host.recv(2000)
    host.close()
    assert net.dn.pings("10.100.6.1", count=1)
    target.is_sound()


def test_a_silent_smf_under_load_loses_no_usage(binary: Path, net: Topology, tmp_path: Path) -> None:
    """Thresholds are reached over and over, and nobody takes the reports: as `rig.silence`, for seconds.

    Conformance: TS 29.244 7.5.8 | Usage that a silent SMF was not told of is in later reports
    """
    run = be_silent(binary, net, tmp_path, Silence(8, ues=200, pps=2000))
    assert run.report["usage"]["reports"] > 200
    assert run.faults() == []
