"""A control plane made of wmnsk/go-pfcp (tests/peers/gopfcp) runs every procedure; tshark reads along.

The peer runs once, for all tests here. Each of them takes what was seen of its procedure.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from conftest import GoPeer
from rig.net import Topology
from rig.node import Node
from rig.peers import captured, warnings

pytestmark = [
    pytest.mark.needs("root", "ip", "ethtool", "tcpdump", "tshark"),
    pytest.mark.xdist_group("gopfcp"),
]

#: Paths to peers that are silent fail within a second.
GTPU = "\n[gtpu]\necho_t3_ms = 200\n"

#: Drops what the echo server sends, where a control plane switches it on.
RULE = """
[[predefined_rule]]
name = "no-echo"
precedence = 1
flows = ["permit out 17 from 10.100.6.2 7 to assigned"]
drop = true
"""

#: The node asks for an association too; the peer lets it wait until its own has been tried.
INVITED = 'control_planes = ["10.100.4.2"]'
#: The peer says LOAD and OVRL, and looks at what it is told.
LOAD = "\ntell_load = true"

#: What the peer looks at, by procedure.
CHECKS = {
    "heartbeat": "answered one-recovery-time-stamp asked-by-the-user-plane",
    "association": "needed setup setup-tells-who features update restart-ends-sessions prepared-release "
    "all-usage-said release released asked-by-the-user-plane by-the-user-plane",
    "version": "not-supported",
    "session": "establishment load-told answer-goes-to-our-seid f-teid-chosen ue-address-chosen forwards "
    "qfi-marked gate-shut gate-open end-marker handover filter-added precedence-changed rule-removed "
    "absent-rule deletion error-indication-when-gone choose-id",
    "endpoint": "created forwards framed-route removed",
    "application": "unknown provisioned detected replaced incorrect all-removed",
    "predefined": "unknown activated deactivated",
    "refusal": "unknown-seid mandatory-missing incorrect-filter",
    "retransmission": "same-octets",
    "bundle": "each-answered",
    "unexpected": "response unknown still-alive",
    "report": "volume-threshold sent-again-unchanged query query-reference periodic final sum "
    "numbered-without-gap time-threshold inactivity downlink-data downlink-data-once buffered-in-order "
    "forged-error-indication error-indication",
    "quota": "reported stops renewed",
    "rate": "limits lifted",
    "set": "deletion deletion-of-all modification others-stay",
    "node-report": "path-failure",
}


@dataclass
class Seen:
    """What the peer looked at, and what was captured meanwhile."""

    verdicts: dict[str, tuple[bool, str]]
    captures: dict[str, Path]
    log: str

    def all_right(self, procedure: str) -> None:
        """Every check of a procedure was made and found right."""
        names = {f"{procedure}/{check}" for check in CHECKS[procedure].split()}
        missing = sorted(names - self.verdicts.keys())
        assert not missing, f"the peer did not come to {missing}\n{self.log}"
        wrong = {name: self.verdicts[name][1] for name in sorted(names) if not self.verdicts[name][0]}
        assert not wrong, f"{wrong}\n{self.log}"


@pytest.fixture(scope="module")
def run(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Seen]:
    """Has the peer run against a node, the first time it is asked for."""

    @cache
    def once(programs: Path) -> Seen:
        folder = tmp_path_factory.mktemp("gopfcp")
        with Topology(f"kg{os.getpid()}-") as net:
            node = Node(binary, net.upf, folder, more=GTPU + RULE, pfcp=INVITED + LOAD).start()
            net.echo()
            with captured(net.ran, folder, "smf0", "gnb0") as captures:
                done = net.ran.run(str(programs / "gopfcp"), check=False, timeout=600)
            node.stop()
        seen = [json.loads(line) for line in done.stdout.splitlines()]
        verdicts = {verdict["check"]: (verdict["ok"], verdict["saw"]) for verdict in seen}
        return Seen(verdicts, captures, f"{done.stderr}\n{node.log.read_text()[-4000:]}")

    return once


@pytest.fixture
def seen(run: Callable[[Path], Seen], go_peer: GoPeer) -> Seen:
    """What came of the run."""
    return run(go_peer("gopfcp"))


def test_heartbeats_go_both_ways(seen: Seen) -> None:
    """Heartbeats are answered, with and without an association, and asked for.

    Conformance: TS 29.244 6.2.2 | Heartbeats are answered without an association and sent with one (go-pfcp)
    """
    seen.all_right("heartbeat")


def test_an_association_is_set_up_updated_and_released(seen: Seen) -> None:
    """Nothing works before, nothing after, and a control plane that restarts loses its sessions.

    Conformance: TS 29.244 6.2.6 | Association setup tells Node ID, features and time of start (go-pfcp)
    Conformance: TS 29.244 6.2.6.3 | Association setup by the user plane, asked for until accepted (go-pfcp)
    Conformance: TS 29.244 6.2.7 | Association update by a control plane (go-pfcp)
    Conformance: TS 29.244 6.2.8 | Association release by a control plane (go-pfcp)
    Conformance: TS 29.244 5.18 | A prepared release reports all usage first (go-pfcp)
    Conformance: TS 23.527 4.2 | Sessions of a control plane that restarted are deleted (go-pfcp)
    """
    seen.all_right("association")


def test_another_version_is_not_supported(seen: Seen) -> None:
    """The answer to a message of another version.

    Conformance: TS 29.244 7.4.4.7 | Version Not Supported Response to a message of another version (go-pfcp)
    """
    seen.all_right("version")


def test_a_session_lives(seen: Seen) -> None:
    """Establishment with F-TEID and UE address chosen by us, traffic, changes of every rule, deletion.

    Conformance: TS 29.244 6.3.2 | Session establishment, F-TEID and UE address chosen by us (go-pfcp)
    Conformance: TS 29.244 6.2.3 | Load Control Information for a control plane that says LOAD (go-pfcp)
    Conformance: TS 29.244 6.3.3 | Rules are added, changed and removed in a session (go-pfcp)
    Conformance: TS 29.244 6.3.4 | A session is deleted, and its tunnel with it (go-pfcp)
    Conformance: TS 29.244 5.5.3 | F-TEIDs are allocated by us, one for each CHOOSE ID (go-pfcp)
    Conformance: TS 29.244 5.4.3 | A gate that is closed stops packets until it is opened (go-pfcp)
    Conformance: TS 29.281 7.3.1 | Error Indication to a G-PDU for a tunnel that is gone (go-pfcp)
    Conformance: TS 29.281 7.3.2 | End Marker to the old tunnel at a handover (go-pfcp)
    """
    seen.all_right("session")


def test_traffic_endpoints_and_framed_routes(seen: Seen) -> None:
    """PDRs that name traffic endpoints; packets of a network behind the UE.

    Conformance: TS 29.244 7.5.2.7 | Create Traffic Endpoint with what was chosen in the answer (go-pfcp)
    Conformance: TS 29.244 7.5.4.14 | Removing a traffic endpoint removes its tunnel (go-pfcp)
    Conformance: TS 29.244 5.16 | Packets to and from a network behind the UE (go-pfcp)
    """
    seen.all_right("endpoint")


def test_applications_are_known_by_what_is_provisioned(seen: Seen) -> None:
    """PFD management, and a rule that names the application.

    Conformance: TS 29.244 6.2.5 | PFDs are provisioned, replaced and removed (go-pfcp)
    Conformance: TS 29.244 8.2.6 | A PDR matches the packets of an application that it names (go-pfcp)
    """
    seen.all_right("application")


def test_predefined_rules_are_switched_on_and_off(seen: Seen) -> None:
    """By the names that the node's configuration gives them.

    Conformance: TS 29.244 5.19 | Predefined rules are activated and deactivated by name (go-pfcp)
    """
    seen.all_right("predefined")


def test_a_quota_stops_traffic_until_it_is_renewed(seen: Seen) -> None:
    """Reported when it is used up.

    Conformance: TS 29.244 5.2.2.2 | A volume quota that is used up is reported, and stops packets (go-pfcp)
    """
    seen.all_right("quota")


def test_a_rate_is_enforced(seen: Seen) -> None:
    """A burst above the maximum bit rate is cut.

    Conformance: TS 29.244 5.4.4 | Packets above the maximum bit rate are dropped (go-pfcp)
    """
    seen.all_right("rate")


def test_sets_of_sessions(seen: Seen) -> None:
    """Deletion and modification of all sessions of an FQ-CSID.

    Conformance: TS 29.244 7.4.6 | The sessions of an FQ-CSID are deleted together (go-pfcp)
    Conformance: TS 29.244 7.4.7 | The reports of an FQ-CSID's sessions are moved (go-pfcp)
    """
    seen.all_right("set")


def test_what_cannot_be_done_is_refused(seen: Seen) -> None:
    """Each refusal has its cause and what is wrong.

    Conformance: TS 29.244 7.6.6 | Refusals name the cause and the IE that is missing or wrong (go-pfcp)
    """
    seen.all_right("refusal")


def test_a_repeated_request_gets_the_same_octets(seen: Seen) -> None:
    """Reliable delivery, the answering side.

    Conformance: TS 29.244 6.4 | A repeated request is answered with the same octets (go-pfcp)
    """
    seen.all_right("retransmission")


def test_bundled_messages_are_each_answered(seen: Seen) -> None:
    """Two requests in one datagram.

    Conformance: TS 29.244 6.5 | Messages bundled in a datagram are each handled (go-pfcp)
    """
    seen.all_right("bundle")


def test_what_nobody_asked_for_is_left_alone(seen: Seen) -> None:
    """Responses without a request and unknown messages.

    Conformance: TS 29.244 7.6.5 | Unexpected and unknown messages are discarded (go-pfcp)
    """
    seen.all_right("unexpected")


def test_reports(seen: Seen) -> None:
    """Usage by threshold, period, query and at the end adds up; downlink data and lost tunnels are reported.

    Conformance: TS 29.244 6.3.5 | Session reports of usage, downlink data and error indications (go-pfcp)
    Conformance: TS 29.244 5.2.2 | Usage by threshold, period, query and at deletion adds up (go-pfcp)
    Conformance: TS 29.244 5.11.3 | A session without traffic is reported (go-pfcp)
    Conformance: TS 29.244 5.2.3 | An idle UE's packets are buffered, reported, and sent in order (go-pfcp)
    """
    seen.all_right("report")


def test_a_path_that_fails_is_reported(seen: Seen) -> None:
    """The node report.

    Conformance: TS 29.244 6.2.9 | The failure of a GTP-U path is reported (go-pfcp)
    """
    seen.all_right("node-report")


def test_tshark_reads_all_that_was_said(seen: Seen) -> None:
    """Both captures of the run: nothing malformed and no warning in what the user plane sent."""
    for sender, interface in (("10.100.4.1", "smf0"), ("10.100.3.1", "gnb0")):
        assert seen.captures[interface].stat().st_size > 2000
        assert warnings(seen.captures[interface], sender) == [], interface


def test_nothing_that_was_looked_at_is_left_out(seen: Seen) -> None:
    """The tests here ask for all that the peer looks at."""
    asked = {f"{procedure}/{check}" for procedure, checks in CHECKS.items() for check in checks.split()}
    assert seen.verdicts.keys() <= asked
