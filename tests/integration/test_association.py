"""Associations with many sessions: what their end costs others, and what comes after it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rig.gtpu import Access
from rig.net import Topology, wait_until
from rig.node import Node, Sim
from rig.pfcp import HEARTBEAT, ControlPlane, downlink, node_id, to_access, to_core, u32, uplink
from rig.target import DN, DN_PORT, GNB, N3, SMF, STRANGER

pytestmark = pytest.mark.needs("root", "ip", "ethtool")

SESSIONS = 50_000
RELEASE = 9
UE = "10.60.0.1"
ATTACHED_S = 300.0


@pytest.fixture
def node(binary: Path, net: Topology, tmp_path: Path) -> Iterator[Node]:
    """The node with the sessions of a control plane that has gone without a word."""
    node = Node(binary, net.upf, tmp_path, driver="af_packet", sessions_max=SESSIONS + 1, pool="").start()
    net.ran.ip("address", "add", f"{STRANGER}/24", "dev", "smf0")
    ues = ["--ues", str(SESSIONS), "--window", "512", "--hold", "--quiet"]
    at = ["--upf-pfcp", "10.100.4.1", "--smf", SMF, "--upf-gtpu", N3, "--gnb", GNB]
    sim = Sim(binary, net.ran, tmp_path, [*at, *ues]).start(ATTACHED_S)
    assert sim.process is not None
    sim.process.send_signal(signal.SIGKILL)
    sim.process.wait(timeout=60)
    yield node
    node.stop()


def sessions(node: Node) -> int:
    """How many sessions the node has."""
    status = node.ask("status")
    assert status is not None
    return int(str(status["sessions"]))


def test_a_release_of_many_sessions_keeps_nobody_waiting(node: Node, net: Topology) -> None:
    """Another peer's heartbeats and sessions, and the peer's own new ones, while the old ones are deleted.

    Conformance: TS 29.244 6.2.8.2 | A release of many sessions is answered first, and others are served
    """
    with closing(ControlPlane(net.ran, SMF)) as smf, closing(ControlPlane(net.ran, STRANGER)) as other:
        assert other.set_up().cause == 1
        assert sessions(node) == SESSIONS
        assert smf.ask(RELEASE, node_id(SMF)).cause == 1
        # Whatever is answered by now was answered before the last session was gone.
        assert other.ask(HEARTBEAT, u32(96, other.started)).value(96)
        assert other.establish(uplink(), downlink("10.70.0.1"), to_core(), to_access(1)).cause == 1
        assert sessions(node) > 1, "the sessions of the release were deleted first"

        assert smf.set_up().cause == 1
        rules = (uplink(), downlink(UE), to_core(), to_access(0x5000))
        session = smf.establish(*rules)
        assert session.cause == 1, "what an old session has is free for a new one"
        wait_until(lambda: sessions(node) == 2, "the old sessions are deleted", ATTACHED_S)
        with closing(Access(net.ran)) as gnb, closing(net.dn.socket(DN, DN_PORT)) as server:
            assert net.upf.pings(DN, count=1)
            assert net.upf.pings(GNB, count=1)

            def forwards() -> bool:
                server.sendto(b"down", (UE, DN_PORT))
                down = gnb.receive(0xFF)
                return down is not None and down[4:8] == (0x5000).to_bytes(4) and down.endswith(b"down")

            wait_until(forwards, "the new session forwards")
        assert smf.delete(session).cause == 1
        assert sessions(node) == 1
    assert "panicked" not in node.log.read_text()
