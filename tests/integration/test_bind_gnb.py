"""`gtpu.bind_gnb`: who may send in a session's tunnel, on every datapath."""

from __future__ import annotations

from pathlib import Path

import pytest
from rig.gtpu import G_PDU, PORT, gtpu, ipv4, udp
from rig.net import Topology, wait_until
from rig.node import Node
from rig.target import DN, DN_PORT, N3, UE, UE_PORT, standing
from test_reload import reload, write

pytestmark = pytest.mark.needs("root", "ip", "ethtool")

STRANGER = "10.100.3.66"


EVERY_DATAPATH = pytest.mark.parametrize(
    ("driver", "datapath"), [("af_xdp", "engine"), ("af_packet", "engine"), ("af_xdp", "xdp")]
)


@pytest.mark.parametrize("is_bound", [True, False])
@EVERY_DATAPATH
def test_a_stranger_of_n3_sends_in_no_ues_name(
    binary: Path, net: Topology, tmp_path: Path, driver: str, datapath: str, is_bound: bool
) -> None:
    """It knows TEID and UE address; what the UE's own gNB sends goes through all the while."""
    net.ran.ip("address", "add", f"{STRANGER}/24", "dev", "gnb0")
    net.take_redirected()
    setting = f"\n[gtpu]\nbind_gnb = {str(is_bound).lower()}\n"
    node = Node(binary, net.upf, tmp_path, driver=driver, node=f'datapath = "{datapath}"', more=setting)
    with standing(node, net) as target:
        stranger = net.ran.socket(STRANGER, PORT)
        g_pdu = gtpu(G_PDU, target.session.teid, ipv4(UE, DN, udp(UE_PORT, DN_PORT, b"in its name")))
        for count in range(1, 4):
            if is_bound:
                with target.dropping(1, "gnb_mismatch"):
                    stranger.sendto(g_pdu, (N3, PORT))
            else:
                stranger.sendto(g_pdu, (N3, PORT))
                assert target.arrives(b"in its name")
            payload = b"its own %d" % count
            target.up(payload)
            assert target.arrives(payload)
        stranger.close()
        target.is_sound()
        reason = "stays with the workers"
        assert (reason in node.log.read_text()) == (is_bound and datapath == "xdp")


def bound(node: Node) -> int:
    """How many sessions are bound to their gNB."""
    status = node.ask("status")
    assert status is not None
    forms = status["forms"]
    assert isinstance(forms, list)
    return sum(form["sessions"] for form in forms if (form["reason"] or [""])[0] == "bound_to_gnb")


@EVERY_DATAPATH
def test_a_session_that_stands_is_bound_and_freed_by_a_reload(
    binary: Path, net: Topology, tmp_path: Path, driver: str, datapath: str
) -> None:
    """A stranger's packets pass, are dropped, and pass again; those of its gNB pass all the while."""
    net.ran.ip("address", "add", f"{STRANGER}/24", "dev", "gnb0")
    net.take_redirected()
    node = Node(binary, net.upf, tmp_path, driver=driver, node=f'datapath = "{datapath}"')
    with standing(node, net) as target:
        stranger = net.ran.socket(STRANGER, PORT)
        g_pdu = gtpu(G_PDU, target.session.teid, ipv4(UE, DN, udp(UE_PORT, DN_PORT, b"in its name")))
        for _ in range(2):
            stranger.sendto(g_pdu, (N3, PORT))
            assert target.arrives(b"in its name")
            write(node, ("[pfcp]\n", "[gtpu]\nbind_gnb = true\n\n[pfcp]\n"))
            assert reload(node)[0] == 0
            wait_until(lambda: bound(node) == 1, "the session is bound")
            for _ in range(3):
                with target.dropping(1, "gnb_mismatch"):
                    stranger.sendto(g_pdu, (N3, PORT))
                target.up(b"its own")
                assert target.arrives(b"its own")
            write(node)
            assert reload(node)[0] == 0
            wait_until(lambda: bound(node) == 0, "the session is free")
        stranger.close()
        target.is_sound()
