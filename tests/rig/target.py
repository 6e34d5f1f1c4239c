"""A node with a session that stands, and peers made by hand around it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rig.gtpu import ECHO_REQUEST, ECHO_RESPONSE, G_PDU, Access, gtpu, ipv4, udp
from rig.net import PATIENCE_S, Topology, wait_until
from rig.node import Node
from rig.pfcp import HEARTBEAT, Answer, ControlPlane, create_qer, downlink, to_access, to_core, u32, uplink

SMF, STRANGER = "10.100.4.2", "10.100.4.99"
GNB, N3, N6, DN = "10.100.3.2", "10.100.3.1", "10.100.6.1", "10.100.6.2"
UE, UE_PORT, DN_PORT = "10.60.0.1", 4000, 9
DOWNLINK_TEID, QFI = 0x5000, 9


@dataclass
class Target:
    """The node, its session, and the peers."""

    net: Topology
    node: Node
    smf: ControlPlane
    stranger: ControlPlane
    gnb: Access
    server: socket.socket
    session: Answer

    def sessions(self) -> int:
        """How many sessions the node has."""
        status = self.node.ask("status")
        assert status is not None
        return int(str(status["sessions"]))

    def drops(self, *reasons: str) -> int:
        """Packets from the access network that were dropped for some reasons."""
        dropped = self.node.drops()
        return sum(dropped.get(f"n3 {reason}", 0) for reason in reasons)

    @contextmanager
    def dropping(self, packets: int, *reasons: str) -> Iterator[None]:
        """What the block sends is so many packets, all of which are dropped for these reasons."""
        before = self.drops(*reasons)
        yield
        wait_until(lambda: self.drops(*reasons) >= before + packets, f"{packets} dropped for {reasons}")
        assert self.nothing_arrives()
        assert self.drops(*reasons) == before + packets, self.node.drops()

    def up(self, payload: bytes, source: str = UE, to: str = DN, port: int = DN_PORT) -> None:
        """Send a packet through the standing tunnel."""
        inner = ipv4(source, to, udp(UE_PORT, port, payload))
        self.gnb.send(gtpu(G_PDU, self.session.teid, inner))

    def forwards(self) -> bool:
        """Whether a packet out of the tunnel reaches the data network."""
        self.up(b"first")
        return self.arrives(b"first")

    def arrives(self, payload: bytes) -> bool:
        """Whether just this payload reaches the data network."""
        try:
            return self.server.recv(2000) == payload
        except TimeoutError:
            return False

    def nothing_arrives(self) -> bool:
        """Whether nothing reaches the data network."""
        self.server.settimeout(0.3)
        try:
            return not self.server.recv(2000)
        except TimeoutError:
            return True
        finally:
            self.server.settimeout(PATIENCE_S)

    def is_sound(self) -> None:
        """Heartbeat, echo, a packet each way, the session that was there and no other."""
        assert self.smf.ask(HEARTBEAT, u32(96, self.smf.started)).value(96)
        self.gnb.drain(0.05)
        self.gnb.send(gtpu(ECHO_REQUEST, 0, b"\xab\xcd\0\0", 0x32))
        answer = self.gnb.receive(ECHO_RESPONSE)
        assert answer is not None
        assert answer[8:10] == b"\xab\xcd"
        self.up(b"still here")
        assert self.arrives(b"still here")
        self.server.sendto(b"you too", (UE, UE_PORT))
        down = self.gnb.receive(G_PDU)
        assert down is not None
        assert int.from_bytes(down[4:8]) == DOWNLINK_TEID
        assert down.endswith(b"you too")
        assert self.sessions() == 1
        log = self.node.log.read_text()
        assert "panicked" not in log, log[-2000:]
        assert not self.node.ended()


@contextmanager
def standing(node: Node, net: Topology) -> Iterator[Target]:
    """Start the node and set up its association and session, QFI 9; it forwards when the block begins."""
    net.ran.ip("address", "add", f"{STRANGER}/24", "dev", "smf0")
    node.start()
    smf, stranger = ControlPlane(net.ran, SMF), ControlPlane(net.ran, STRANGER)
    gnb, server = Access(net.ran), net.dn.socket(DN, DN_PORT)
    server.settimeout(PATIENCE_S)
    assert smf.set_up().cause == 1
    marked = u32(109, 1)
    rules = (uplink(1, None, marked), downlink(UE, 2, marked), to_core(), to_access(DOWNLINK_TEID))
    session = smf.establish(*rules, create_qer(1, QFI))
    assert session.cause == 1
    target = Target(net, node, smf, stranger, gnb, server, session)
    # The neighbours must be known before a packet is waited for.
    assert net.upf.pings(DN, count=1)
    assert net.upf.pings(GNB, count=1)
    wait_until(target.forwards, "a packet is forwarded")
    wait_until(target.nothing_arrives, "repetitions of it are over")
    yield target
    for peer in (smf, stranger, gnb):
        peer.close()
    server.close()
    node.stop()
