"""Open5GS's SMF, unmodified, with its neighbours on the SBI (tests/peers/sbi), in sessions of every family.

KAIDO_OPEN5GS names the program, `open5gs-smfd` of whatever build; without it these tests are skipped. Only N4
leads to the SMF, so router solicitations and advertisements go over N4, too.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv6Network
from pathlib import Path

import pytest
from conftest import GoPeer
from rig.bearer import ECHO, ECHO6, Bearer, datagram
from rig.core5g import IPV4, IPV4V6, IPV6, Core, Session, flow_policy
from rig.gnb5g import GNB, NEXT_GNB, TEIDS, numbered, sent_back
from rig.gtpu import Access
from rig.net import UE_IPV6, Network, wait_until
from rig.node import Node, port
from rig.open5gs import BehindN4, Open5gs, bearers
from rig.peers import captured, warnings

SMF = os.environ.get("KAIDO_OPEN5GS")

pytestmark = [
    pytest.mark.needs("root", "ip", "ethtool", "tcpdump", "tshark"),
    pytest.mark.skipif(SMF is None, reason="KAIDO_OPEN5GS names no SMF of Open5GS"),
]

KINDS = {"IPv4": IPV4, "IPv6": IPV6, "IPv4v6": IPV4V6}


@dataclass
class World:
    """A node, an SMF behind N4, and a gNB."""

    net: Network
    node: Node
    core: Core
    gnb: Access

    def attach(self, kind: int, ue: int = 1) -> tuple[Session, list[Bearer]]:
        """Set up a UE's session, whose data then go both ways in each of its families."""
        (session,) = self.core.create(ue, kind=kind)
        self.core.activate(session, TEIDS + ue)
        return session, bearers(self.gnb, session, TEIDS + ue)

    def sessions(self) -> int:
        """How many sessions the node has."""
        status = self.node.ask("status")
        assert status is not None
        return int(str(status["sessions"]))

    def send_down(self, end: Bearer, payloads: list[bytes]) -> None:
        """Send datagrams from the data network to a UE."""
        source = "fd00:6::2" if ":" in end.ue else "10.100.6.2"
        with self.net.spaces["dn"].socket(source, 0) as server:
            for payload in payloads:
                server.sendto(payload, (end.ue, end.port))


@pytest.fixture(params=["af_xdp", "af_packet"])
def world(binary: Path, tmp_path: Path, go_peer: GoPeer, request: pytest.FixtureRequest) -> Iterator[World]:
    """All of them; what the node sends to the SMF is well formed."""
    assert SMF is not None
    with BehindN4(f"kt{os.getpid()}-") as net:
        for address in ("10.100.6.2", "fd00:6::2"):
            net.echo(address)
        n6 = port("n6", request.param, 'network_instance = "internet"')
        node = Node(binary, net.spaces["upf"], tmp_path, driver=request.param, n6=n6).start()
        core = Open5gs(net.spaces["smf"], go_peer("sbi") / "sbi", Path(SMF), tmp_path)
        core.kinds = ("IPV4V6", "IPV4", "IPV6")
        with captured(net.spaces["smf"], tmp_path, "smf0") as captures:
            core.start()
            gnb = Access(net.spaces["ran"], GNB)
            yield World(net, node, core, gnb)
            gnb.close()
            core.stop()
            if not node.ended():
                node.stop()
        if keep := os.environ.get("KAIDO_OPEN5GS_CAPTURE"):
            shutil.copy(captures["smf0"], keep)
        assert warnings(captures["smf0"], "10.100.4.1") == []
        assert "panicked" not in node.log.read_text()
        assert "refused" not in node.log.read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_of_every_family_carries_data(world: World, kind: str) -> None:
    """Addresses and prefix come, data go both ways with checksums, and the session is released.

    Conformance: TS 29.244 5.3.3 | A UE has its prefix from a real SMF behind N4 (Open5GS)
    """
    session, ends = world.attach(KINDS[kind])
    assert [":" in end.ue for end in ends] == {"IPv4": [False], "IPv6": [True], "IPv4v6": [False, True]}[kind]
    for end in ends:
        for octets in (1, 100, 1300):
            assert end.echoes(os.urandom(octets))
    if kind != "IPv4":
        assert IPv6Network(f"{ends[-1].ue}/64", strict=False).subnet_of(IPv6Network(UE_IPV6))
    world.core.order("release", session)
    wait_until(lambda: world.sessions() == 0, "the session is gone")
    for end in ends:
        assert not end.echoes(b"gone", 0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_an_idle_ue_is_paged_and_nothing_is_lost(world: World, kind: str) -> None:
    """AN release, downlink data of each family, paging, service request to another tunnel."""
    session, ends = world.attach(KINDS[kind])
    for idle, end in enumerate([*ends, *ends]):
        world.core.order("idle", session)
        world.core.events.clear()
        packets = numbered(30)
        world.send_down(end, packets)
        world.core.event("paging", supi=session.supi)
        assert end.receive(0.3) is None
        assert [event for event in world.core.events if event["event"] == "paging"] == []
        for each in ends:
            each.downlink_teid = 0x900 + idle
        world.core.order("serve", session, gnb={"address": GNB, "teid": 0x900 + idle})
        came = [end.receive() for _ in packets]
        assert [found and found[0] for found in came] == packets
        for each in ends:
            assert each.echoes(b"awake")


def test_every_address_of_the_prefix_is_the_ues(world: World) -> None:
    """A UE makes addresses of its own in its /64 (RFC 8981), of which the SMF knows none."""
    session, ends = world.attach(IPV6)
    prefix = IPv6Network(f"{ends[0].ue}/64", strict=False)
    private = str(prefix[0x5EED_0000_BEEF_1234])
    end = Bearer(world.gnb, private, session.teid, TEIDS + 1, session.qfis[0], port=4006)
    for payload in numbered(3):
        assert end.echoes(payload)
    # An address beside it is not.
    before = world.node.drops().get("n3 ue_spoofed", 0)
    beside = IPv6Network((int(prefix.network_address) + (1 << 64), 64))
    stray = Bearer(world.gnb, str(beside[2]), session.teid, TEIDS + 1, session.qfis[0], port=4006)
    assert not stray.echoes(b"not mine", 0.5)
    wait_until(lambda: world.node.drops().get("n3 ue_spoofed", 0) == before + 1, "it is dropped by name")


def test_ten_ues_each_have_their_own_prefix(world: World) -> None:
    """Sessions of both families, set up at once; each UE gets its own packets."""
    made = world.core.create(*range(1, 11), kind=IPV4V6)
    ends = []
    for ue, session in enumerate(made, 1):
        world.core.activate(session, TEIDS + ue)
        ends.append(bearers(world.gnb, session, TEIDS + ue))
    assert len({end.ue for pair in ends for end in pair}) == 20
    for ue, pair in enumerate(ends):
        for end in pair:
            assert end.echoes(f"UE {ue}".encode())
    for session in made:
        world.core.order("release", session)
    wait_until(lambda: world.sessions() == 0, "the sessions are gone")


def test_a_policy_change_adds_a_flow_of_ipv6(world: World) -> None:
    """The PCF adds a flow with a filter of IPv6 to a session of both families that carries data.

    Conformance: TS 29.244 6.3.3 | A QoS flow of IPv6 is added to a running session of both families (Open5GS)
    """
    session, (four, six) = world.attach(IPV4V6)
    host, service = ECHO6
    flow = flow_policy(f"permit out ip from {host} {service} to assigned")
    world.core.order("decide", session, decision=flow)
    world.core.event("paging", supi=session.supi, n1=True)
    world.core.order("add", session, qfi=2)

    def flows() -> bool:
        six.send(b"flow", qfi=2)
        return six.receive(0.5) == (b"flow", 2)

    wait_until(flows, "packets of the flow leave with its QFI")
    world.send_down(six, [b"other"])
    assert six.receive() == (b"other", 1)
    four.send(b"default", qfi=1)
    assert four.receive() == (b"default", 1)


def test_a_path_switch_moves_the_downlink_of_both_families(world: World) -> None:
    """Handover between gNBs over Xn."""
    session, ends = world.attach(IPV4V6)
    world.net.spaces["ran"].ip("address", "add", f"{NEXT_GNB}/24", "dev", "gnb0")
    next_gnb = Access(world.net.spaces["ran"], NEXT_GNB)
    try:
        world.core.order("switch", session, gnb={"address": NEXT_GNB, "teid": 0x777})
        for end in ends:
            moved = Bearer(next_gnb, end.ue, session.teid, 0x777, session.qfis[0], port=end.port)
            moved.wait()
            for payload in numbered(20):
                assert moved.echoes(payload)
    finally:
        next_gnb.close()


def test_an_n2_handover_forwards_what_is_left(world: World) -> None:
    """Prepared with indirect forwarding, then completed, with a session of both families.

    Conformance: TS 29.244 6.3.3 | An N2 handover with indirect data forwarding of both families (Open5GS)
    """
    session, ends = world.attach(IPV4V6)
    world.net.spaces["ran"].ip("address", "add", f"{NEXT_GNB}/24", "dev", "gnb0")
    next_gnb = Access(world.net.spaces["ran"], NEXT_GNB)
    try:
        told = {
            "gnb": {"address": NEXT_GNB, "teid": 0x777},
            "forwarding": {"address": NEXT_GNB, "teid": 0x777},
        }
        to = world.core.order("handover", session, **told)["forwarding"]
        for end, server in zip(ends, (ECHO, ECHO6), strict=True):
            left = datagram(server, (end.ue, end.port), b"left over")
            forwarded = Bearer(next_gnb, end.ue, session.teid, 0x777, session.qfis[0], port=end.port)
            wait_until(lambda: sent_back(world.gnb, to["teid"], left, forwarded), "what is left comes")  # noqa: B023
        world.core.order("complete", session)
        for end in ends:
            moved = Bearer(next_gnb, end.ue, session.teid, 0x777, session.qfis[0], port=end.port)
            moved.wait()
            for payload in numbered(20):
                assert moved.echoes(payload)
    finally:
        next_gnb.close()


def test_an_smf_that_restarts_begins_anew(world: World) -> None:
    """Its old sessions end with its new association; new ones work."""
    _, old = world.attach(IPV4V6)
    world.core.kill_smf()
    world.core.start_smf()
    wait_until(lambda: world.sessions() == 0, "the old session ends")
    assert not any(end.echoes(b"old", 0.5) for end in old)
    world.attach(IPV4V6, 2)
    assert world.sessions() == 1


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_node_that_restarts_has_its_sessions_restored(world: World, how: str) -> None:
    """The SMF associates again and restores them by itself, with the F-TEIDs that they had."""
    session, ends = world.attach(IPV4V6)
    other, others = world.attach(IPV6, 2)
    before = world.core.associations()
    world.node.stop(signal.SIGKILL if how == "killed" else signal.SIGTERM)
    world.node.start()
    wait_until(lambda: world.core.associations() > before, "the SMF has an association again", 120)
    wait_until(lambda: world.sessions() == 2, "the sessions are restored")
    for end in (*ends, *others):
        end.wait()
    # The SMF still answers for the prefix.
    assert bearers(world.gnb, session, TEIDS + 1)
    assert bearers(world.gnb, other, TEIDS + 2)
    world.attach(IPV4V6, 3)
    assert world.sessions() == 3
