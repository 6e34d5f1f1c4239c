"""free5GC's SMF, unmodified (tests/peers/free5gc), with its neighbours on the SBI (tests/peers/sbi).

What it sends is what an operator's node is sent; the gNB is made of `rig.gtpu`. KAIDO_FREE5GC names another
build of the SMF to run instead.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import GoPeer
from rig.bearer import ECHO, Bearer, datagram
from rig.core5g import IPV4V6, IPV6, RATE, VOLUME_THRESHOLD, Core, Refused, ambr, flow_policy
from rig.gnb5g import GNB, NEXT_GNB, TEIDS, attach, bearer, numbered, send_down, sent_back
from rig.gtpu import Access
from rig.net import Topology, wait_until
from rig.node import Node, port
from rig.peers import captured, warnings

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "tcpdump", "tshark")

#: The quota that the CHF grants at a time, in octets.
GRANTED = 100_000

#: What the echo server sends to a UE.
FLOW = f"permit out ip from {ECHO[0]} {ECHO[1]} to assigned"

Start = Callable[..., Core]


@pytest.fixture
def node(binary: Path, net: Topology, tmp_path: Path) -> Iterator[Node]:
    """A node whose N6 port stands for every data network."""
    running = Node(binary, net.upf, tmp_path, n6=port("n6", "af_xdp")).start()
    yield running
    if not running.ended():
        running.stop()


@pytest.fixture
def start(node: Node, net: Topology, tmp_path: Path, go_peer: GoPeer) -> Iterator[Start]:
    """Starts the SMF, and waits for its association; all that it is sent is well formed."""
    smf = Path(os.environ.get("KAIDO_FREE5GC") or go_peer("free5gc") / "cmd")
    core = Core(net.ran, go_peer("sbi") / "sbi", smf, tmp_path)
    net.echo()
    with captured(net.ran, tmp_path, "smf0") as captures:

        def run(**options: object) -> Core:
            return core.start(**options)  # type: ignore[arg-type]

        yield run
        core.stop()
    assert warnings(captures["smf0"], "10.100.4.1") == []
    assert "panicked" not in node.log.read_text()


@pytest.fixture
def gnb(net: Topology) -> Iterator[Access]:
    """The gNB of all UEs."""
    access = Access(net.ran, GNB)
    yield access
    access.close()


def sessions(node: Node) -> int:
    """How many sessions the node has."""
    status = node.ask("status")
    assert status is not None
    return int(str(status["sessions"]))


def test_a_session_of_a_free5gc_smf_carries_data(start: Start, node: Node, gnb: Access) -> None:
    """Set up before the gNB's tunnel is known; data both ways with checksums; released.

    Conformance: TS 29.244 6.2.6 | Association set up by a real SMF (free5GC)
    Conformance: TS 29.244 6.3.2 | A session whose downlink FAR has no tunnel yet (free5GC)
    Conformance: TS 29.244 6.3.3 | The gNB's tunnel comes by a modification (free5GC)
    Conformance: TS 29.244 6.3.4 | A session is deleted (free5GC)
    """
    core = start()
    session, end = attach(core, gnb)
    for octets in (1, 100, 1400):
        assert end.echoes(os.urandom(octets))
    assert sessions(node) == 1
    core.order("release", session)
    assert sessions(node) == 0
    assert not end.echoes(b"gone", 0.5)


def test_before_the_tunnel_is_known_downlink_is_dropped_by_name(
    start: Start, node: Node, net: Topology
) -> None:
    """What comes for the UE meanwhile is not sent, and counted."""
    core = start()
    (session,) = core.create(1)
    before = node.drops()
    end = Bearer(None, session.ue, session.teid, TEIDS, 1)  # type: ignore[arg-type]
    send_down(net, end, numbered(5))
    dropped = "n6 far_no_tunnel"
    wait_until(lambda: node.drops().get(dropped) == before.get(dropped, 0) + 5, "drops are counted")


def test_twenty_sessions_at_once(start: Start, node: Node, gnb: Access) -> None:
    """All set up side by side; each UE gets its own packets.

    Conformance: TS 29.244 6.3.2 | Twenty sessions set up at once (free5GC)
    """
    core = start()
    ues = range(1, 21)
    made = core.create(*ues)
    assert sessions(node) == len(ues)
    assert len({session.ue for session in made}) == len({session.teid for session in made}) == len(ues)
    ends = []
    for ue, session in zip(ues, made, strict=True):
        core.activate(session, TEIDS + ue)
        ends.append(bearer(session, gnb, TEIDS + ue))
    ends[0].wait()
    for ue, end in enumerate(ends):
        assert end.echoes(f"UE {ue}".encode()), end
    for session in made:
        core.order("release", session)
    assert sessions(node) == 0


def test_a_ue_has_sessions_in_two_data_networks(start: Start, node: Node, gnb: Access) -> None:
    """Two sessions of a UE, in two slices and data networks; each goes on when the other is released.

    Conformance: TS 29.244 6.3.2 | Sessions of a UE in two data networks and slices (free5GC)
    """
    core = start()
    first, end = attach(core, gnb)
    (second,) = core.create(1, dnn="factory", number=2)
    core.activate(second, 0x800)
    other = bearer(second, gnb, 0x800)
    other.wait()
    assert end.ue != other.ue
    assert end.echoes(b"internet")
    assert other.echoes(b"factory")
    assert sessions(node) == 2
    core.order("release", first)
    assert other.echoes(b"still there")
    assert sessions(node) == 1


def test_an_idle_ue_is_paged_and_nothing_is_lost(
    start: Start, node: Node, net: Topology, gnb: Access
) -> None:
    """AN release, downlink data, paging, service request: what was buffered comes, in order.

    Conformance: TS 29.244 5.2.3 | An idle UE is paged once, and gets all that was buffered in order (free5GC)
    """
    core = start()
    session, end = attach(core, gnb)
    for idle in range(2):
        core.order("idle", session)
        core.events.clear()
        packets = numbered(30)
        send_down(net, end, packets)
        paging = core.event("paging", supi=session.supi)
        assert paging["told"]["upf"] == {"address": session.upf, "teid": session.teid}
        assert end.receive(0.3) is None
        # Only the first of them was reported.
        assert [event for event in core.events if event["event"] == "paging"] == []
        # The UE comes back to another tunnel.
        end.downlink_teid = 0x900 + idle
        core.order("serve", session, gnb={"address": GNB, "teid": end.downlink_teid})
        came = [end.receive() for _ in packets]
        assert [found and found[0] for found in came] == packets
        assert end.echoes(b"awake")


def test_the_session_ambr_holds(start: Start, node: Node, net: Topology, gnb: Access) -> None:
    """What exceeds a session's AMBR is dropped, and nothing of another session.

    Conformance: TS 29.244 5.4.4 | A session AMBR is enforced in both directions (free5GC)
    """
    core = start(rate=ambr("80 Kbps", "80 Kbps"))
    _, end = attach(core, gnb)
    octets, count = 1000, 200
    for side in ("n3", "n6"):
        dropped = f"{side} mbr_exceeded"
        before, began = node.drops().get(dropped, 0), time.monotonic()
        if side == "n3":
            for payload in numbered(count, octets):
                end.send(payload)
        else:
            send_down(net, end, numbered(count, octets))
        # 80 kbit/s are 10 000 octets a second, and no burst is allowed more than some seconds of them.
        most = count - (10_000 * (5 + time.monotonic() - began)) / octets

        def enough(name: str = dropped, floor: float = before + most) -> bool:
            return node.drops().get(name, 0) >= floor

        assert most > 0
        wait_until(enough, f"packets beyond the AMBR are dropped: {node.drops()}")
    # Another session's is wider.
    core.configure(RATE)
    _, wide = attach(core, gnb, 2)
    before = node.drops().get("n3 mbr_exceeded", 0)
    for payload in numbered(count, octets):
        assert wide.echoes(payload)
    assert node.drops().get("n3 mbr_exceeded", 0) == before


def test_a_dedicated_flow_has_its_own_qfi(start: Start, net: Topology, gnb: Access) -> None:
    """Packets of a service data flow leave with its QFI, all others with the default flow's.

    Conformance: TS 29.244 5.4.2 | A QoS flow with an SDF filter beside the default flow (free5GC)
    """
    core = start()
    core.configure(RATE, flow_policy(FLOW))
    (session,) = core.create(1)
    core.activate(session, TEIDS + 1)
    end = bearer(session, gnb, TEIDS + 1)
    end.wait()
    assert len(session.qfis) == 2, session
    default, dedicated = sorted(session.qfis)
    end.send(b"flow", qfi=dedicated)
    assert end.receive() == (b"flow", dedicated)
    send_down(net, end, [b"other"])
    assert end.receive() == (b"other", default)


def test_a_policy_change_adds_a_flow(start: Start, net: Topology, gnb: Access) -> None:
    """The PCF adds a flow to a session that carries data.

    Conformance: TS 29.244 6.3.3 | A QoS flow is added to a running session (free5GC)
    """
    core = start()
    session, end = attach(core, gnb)
    core.order("decide", session, decision=flow_policy(FLOW))
    end.send(b"flow", qfi=2)
    assert end.receive() == (b"flow", 2)
    send_down(net, end, [b"other"])
    assert end.receive() == (b"other", 1)


@pytest.mark.parametrize(
    ("charging", "step"),
    [
        pytest.param({"offline": True}, VOLUME_THRESHOLD, id="offline"),
        pytest.param({"online": True}, GRANTED, id="online"),
    ],
)
def test_usage_is_charged(
    start: Start, node: Node, net: Topology, gnb: Access, charging: dict[str, object], step: int
) -> None:
    """The CHF hears of the octets that went through the flow, by thresholds and quotas, and of no more.

    Of the last report, in the answer to the deletion, the SMF tells only where it has read it by then.

    Conformance: TS 29.244 5.2.2 | Usage that a CHF is told by the SMF is what was sent (free5GC)
    """
    core = start(granted=GRANTED)
    core.configure(RATE, flow_policy(FLOW, charging), granted=GRANTED)
    session, end = attach(core, gnb)
    assert [event for event in core.events if event["event"] == "charging"], "the CHF knows of the session"
    for payload in numbered(300, 972):
        assert end.echoes(payload), node.drops()
    core.order("release", session)
    assert sessions(node) == 0
    last = core.event("charging", operation="release")
    told = [event["request"] for event in [*core.events, last] if event["event"] == "charging"]
    units = [unit for request in told for unit in request.get("multipleUnitUsage") or []]
    assert {unit["ratingGroup"] for unit in units} == {7}, units
    used = [each for unit in units for each in unit.get("usedUnitContainer") or []]
    for name, packets in (("uplinkVolume", end.sent), ("downlinkVolume", end.received)):
        assert packets - step <= sum(each.get(name, 0) for each in used) <= packets, (name, used)


def test_a_path_switch_moves_the_downlink(start: Start, node: Node, net: Topology, gnb: Access) -> None:
    """Handover between gNBs over Xn: packets go to the new one.

    Conformance: TS 29.244 6.3.3 | A path switch gives the downlink FAR another tunnel (free5GC)
    """
    core = start()
    session, end = attach(core, gnb)
    net.ran.ip("address", "add", f"{NEXT_GNB}/24", "dev", "gnb0")
    next_gnb = Access(net.ran, NEXT_GNB)
    try:
        core.order("switch", session, gnb={"address": NEXT_GNB, "teid": 0x777})
        moved = bearer(session, next_gnb, 0x777)
        moved.wait()
        gnb.drain()
        for payload in numbered(20):
            assert moved.echoes(payload)
        assert end.receive(0.3) is None
    finally:
        next_gnb.close()


def test_an_n2_handover_forwards_what_is_left(start: Start, node: Node, net: Topology, gnb: Access) -> None:
    """Prepared with indirect forwarding, then completed: the packets that are left reach the new gNB, too.

    Conformance: TS 29.244 6.3.3 | An N2 handover with indirect data forwarding (free5GC)
    """
    core = start()
    session, end = attach(core, gnb)
    net.ran.ip("address", "add", f"{NEXT_GNB}/24", "dev", "gnb0")
    next_gnb = Access(net.ran, NEXT_GNB)
    try:
        ends = {
            "gnb": {"address": NEXT_GNB, "teid": 0x777},
            "forwarding": {"address": NEXT_GNB, "teid": 0x778},
        }
        to = core.order("handover", session, **ends)["forwarding"]
        assert to["address"] == session.upf
        # What comes meanwhile goes to the old gNB, which sends it back for the new one.
        send_down(net, end, numbered(5))
        came = [end.receive() for _ in range(5)]
        assert [found and found[0] for found in came] == numbered(5)
        forwarded = bearer(session, next_gnb, 0x778)
        packet = datagram(ECHO, (end.ue, end.port), b"left over")
        wait_until(lambda: sent_back(gnb, to["teid"], packet, forwarded), "the packets that are left come")
        core.order("complete", session)
        moved = bearer(session, next_gnb, 0x777)
        moved.wait()
        gnb.drain()
        for payload in numbered(20):
            assert moved.echoes(payload)
        assert end.receive(0.3) is None
    finally:
        next_gnb.close()


def test_sessions_are_ipv4(start: Start, node: Node, gnb: Access) -> None:
    """This SMF has addresses of IPv4 alone: IPv4v6 becomes IPv4, and IPv6 is refused with its cause 50.

    Conformance: TS 29.244 6.3.2 | A UE that asks for IPv4v6 gets IPv4 (free5GC)
    """
    core = start()
    (session,) = core.create(1, kind=IPV4V6)
    core.activate(session, TEIDS + 1)
    bearer(session, gnb, TEIDS + 1).wait()
    with pytest.raises(Refused, match="N1_SM_ERROR"):
        core.create(2, kind=IPV6)
    assert sessions(node) == 1


def test_an_smf_that_restarts_begins_anew(start: Start, node: Node, gnb: Access) -> None:
    """Its old sessions end with its new association; new ones work.

    Conformance: TS 23.527 4.2 | Sessions of an SMF that restarted are deleted (free5GC)
    """
    core = start()
    _, old = attach(core, gnb)
    assert sessions(node) == 1
    core.kill_smf()
    core.start_smf()
    wait_until(lambda: sessions(node) == 0, "the old session ends")
    assert not old.echoes(b"old", 0.5)
    attach(core, gnb, 2)
    assert sessions(node) == 1


def test_a_node_that_restarts_is_found_again(start: Start, node: Node, gnb: Access) -> None:
    """The SMF associates again with a node that lost everything; new sessions work.

    Conformance: TS 29.244 6.2.2 | An SMF associates again after a restart of ours (free5GC)
    """
    core = start()
    attach(core, gnb)
    node.stop()
    node.start()
    assert sessions(node) == 0
    wait_until(lambda: core.associations() == 2, "the SMF has an association again", 120)
    attach(core, gnb, 2)
    assert sessions(node) == 1
