"""omec-project's pfcpsim attaches, modifies and detaches sessions by its own command pfcpctl."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import GoPeer
from rig.net import Topology, wait_until
from rig.node import Node
from rig.peers import captured, warnings

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "tcpdump", "tshark")

SESSIONS = 20


class Pfcpsim:
    """The simulator in `ran`, with what its command line does."""

    def __init__(self, net: Topology, programs: Path, folder: Path) -> None:
        """Start it on the control plane's address."""
        self.net = net
        self.control = str(programs / "pfcpctl")
        self.log = folder / "pfcpsim.log"
        with self.log.open("w") as log:
            net.ran.start(str(programs / "pfcpsim"), "--interface", "smf0", stdout=log, stderr=log)
        listening = ("ss", "--listening", "--tcp", "--numeric")
        wait_until(lambda: ":54321 " in net.ran.run(*listening).stdout, "pfcpsim listens")

    def __call__(self, *arguments: str) -> None:
        """Run a command, which must succeed."""
        done = self.net.ran.run(self.control, *arguments, check=False)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}\n{self.log.read_text()}"

    def sessions(self, command: str, *more: str) -> None:
        """Do something with all sessions, with two flows of traffic in each."""
        flows = ["udp:10.0.0.0/8:80-88:allow:100", "ip:any:any:allow:200"]
        filters = [part for flow in flows for part in ("--app-filter", flow)]
        pool = ["--count", str(SESSIONS), "--baseID", "1", "--ue-pool", "10.60.7.0/24"]
        self("session", command, *pool, *filters, "--gnb-addr", "10.100.3.2", *more)


def count(node: Node) -> int:
    """How many sessions the node has."""
    status = node.ask("status")
    assert status is not None
    return int(str(status["sessions"]))


def test_pfcpsim_attaches_modifies_and_detaches(
    node: Node, net: Topology, tmp_path: Path, go_peer: GoPeer
) -> None:
    """Every command succeeds, the node has what it says, and tshark finds nothing wrong in our answers.

    Conformance: TS 29.244 6.3.2 | Sessions with two flows, their QERs, thresholds and quotas (pfcpsim)
    Conformance: TS 29.244 6.3.3 | Downlink FARs get their tunnel, and buffer when the UE is idle (pfcpsim)
    Conformance: TS 29.244 6.3.4 | Sessions are deleted (pfcpsim)
    """
    programs = go_peer("pfcpsim")
    with captured(net.ran, tmp_path, "smf0") as captures:
        pfcpsim = Pfcpsim(net, programs, tmp_path)
        pfcpsim("service", "configure", "--remote-peer-addr", "10.100.4.1", "--n3-addr", "10.100.3.1")
        pfcpsim("service", "associate")
        pfcpsim.sessions("create", "--qfi", "9")
        assert count(node) == SESSIONS
        pfcpsim.sessions("modify")
        pfcpsim.sessions("modify", "--buffer", "--notifycp")
        pfcpsim.sessions("modify")
        assert count(node) == SESSIONS
        pfcpsim.sessions("delete")
        assert count(node) == 0
        pfcpsim("service", "disassociate")
    assert captures["smf0"].stat().st_size > 2000
    assert warnings(captures["smf0"], "10.100.4.1") == []
