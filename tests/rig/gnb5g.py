"""The RAN of a real core: UEs' ends of the sessions that `rig.core5g` sets up."""

from __future__ import annotations

import time

from rig.bearer import Bearer, uplink
from rig.core5g import Core, Session
from rig.gtpu import Access
from rig.net import Topology

GNB, NEXT_GNB = "10.100.3.2", "10.100.3.3"

#: The first TEID that the gNB gives; a UE's is this and its number.
TEIDS = 0x100


def bearer(session: Session, gnb: Access, teid: int) -> Bearer:
    """The UE's end of a session."""
    assert session.upf == "10.100.3.1"
    return Bearer(gnb, session.ue, session.teid, teid, session.qfis[0])


def attach(core: Core, gnb: Access, ue: int = 1) -> tuple[Session, Bearer]:
    """Set up a UE's session, whose data then go both ways."""
    (session,) = core.create(ue)
    core.activate(session, TEIDS + ue)
    end = bearer(session, gnb, TEIDS + ue)
    end.wait()
    return session, end


def send_down(net: Topology, end: Bearer, payloads: list[bytes]) -> None:
    """Send datagrams from the data network to a UE."""
    with net.dn.socket("10.100.6.2", 0) as server:
        for payload in payloads:
            server.sendto(payload, (end.ue, end.port))
            time.sleep(0.002)


def numbered(count: int, octets: int = 400) -> list[bytes]:
    """Datagrams that can be told apart."""
    return [f"number {number:06}".encode().ljust(octets, b".") for number in range(count)]


def sent_back(gnb: Access, teid: int, packet: bytes, forwarded: Bearer) -> bool:
    """Whether a packet that the old gNB sends into the forwarding tunnel comes to the new one."""
    gnb.send(uplink(teid, 1, packet))
    came = forwarded.receive(0.5)
    return came is not None and came[0] == b"left over"
