"""Flow records by IPFIX, as real collectors read them: nfdump of Debian, and tshark."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import BASE, Attach
from rig.ipfix import Listener, Nfcapd
from rig.net import Topology, wait_until
from rig.node import Node
from rig.prometheus import fetch, program

#: Observation Domains.
SESSIONS, FLOWS = 7, 8
IPFIX = f"""
[ipfix]
collectors = ["127.0.0.1", "127.0.0.1:4740"]
observation_domain = {SESSIONS}
interval_s = 1
"""
#: Octets of a ping's IPv4 packet.
PING = 84

TUNNELS = f"{BASE} --upf-gtpu 10.100.3.1 --gnb 10.100.3.2"

pytestmark = [
    pytest.mark.needs("root", "ip", "ping", "ss", "tshark", "curl"),
    pytest.mark.skipif(program("nfcapd") is None, reason="needs nfcapd (scripts/setup test)"),
]


@pytest.mark.parametrize("datapath", ["engine", "xdp"])
@pytest.mark.parametrize(
    ("family", "addresses"),
    [
        ("4", "--ue-ipv4 10.60.0.1"),
        ("6", "--ue-ipv6 2001:db8:60::/48"),
        ("46", "--ue-ipv4 10.60.0.1 --ue-ipv6 2001:db8:60::/48"),
    ],
    ids=["ipv4", "ipv6", "ipv4v6"],
)
def test_what_a_session_carries_is_told(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach, datapath: str, family: str, addresses: str
) -> None:
    """Records while it is used, and a last one when it ends; also of what the kernel forwards.

    Conformance: RFC 7011 10.3 | Messages, templates and sequence numbers over UDP
    Conformance: RFC 5103 6.1 | Both directions of a session in one record
    """
    driver = "af_xdp" if datapath == "xdp" else "af_packet"
    collector = Nfcapd(net.upf, tmp_path / "flows").start()
    listener = Listener(net.upf)
    node = Node(binary, net.upf, tmp_path, driver=driver, datapath=datapath, more=IPFIX).start()
    sim = attach("--ues 1 --tuns 1", TUNNELS + " " + addresses)
    to = "10.100.6.2" if "4" in family else "fd00:6::2"
    wait_until(lambda: net.ran.pings(to, "-I", "ue0", count=1), "the session carries data")
    assert net.ran.pings(to, "-I", "ue0", count=4)
    sim.stop()
    assert node.stop() == 0
    messages = listener.read(
        tmp_path / "ipfix.pcap", "cflow.od_id", "cflow.flowset_id", "cflow.flow_end_reason"
    )
    assert {domain for domain, *_ in messages} == {str(SESSIONS)}
    assert messages[0][1] == "2", "the templates come first"
    records = collector.stop()
    source = "src4_addr" if family == "4" else "src6_addr"
    assert {record[source] for record in records} == {"10.60.0.1" if family == "4" else "2001:db8:60::"}
    up, down = (sum(record[f"{side}_packets"] for record in records) for side in ("in", "out"))
    assert up >= down >= 5, records
    octets = sum(record["out_bytes"] for record in records)
    assert octets == down * (PING if "4" in family else PING + 20)
    reasons = [reason for *_, found in messages for reason in found.split(",") if reason]
    assert reasons[-1] == "3", "end of flow"
    assert set(reasons[:-1]) <= {"2"}, "active timeout"


def test_flows_are_sampled_and_collectors_told_how(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach
) -> None:
    """One in ten packets: nfdump counts each for ten, and finds the session's flow in both directions.

    Conformance: RFC 5477 8.2.2 | How packets are sampled, in an Options Template
    """
    collector = Nfcapd(net.upf, tmp_path / "flows").start()
    listener = Listener(net.upf)
    more = IPFIX + "sample = 10\n" + '[metrics]\nlisten = "127.0.0.1:9105"\n'
    node = Node(binary, net.upf, tmp_path, driver="af_packet", more=more).start()
    attach("--ues 1 --tuns 1", f"{TUNNELS} --ue-ipv4 10.60.0.1")
    assert net.ran.pings("10.100.6.2", "-I", "ue0", "-i", "0.005", count=500)

    def metric(name: str) -> float:
        text = fetch(net.upf, "http://127.0.0.1:9105/metrics")
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    assert metric("kaido_ipfix_records_total") > 0
    assert metric("kaido_ipfix_lost_total") == 0
    assert metric("kaido_ipfix_failures_total") == 0
    assert node.stop() == 0
    elements = ("cflow.od_id", "cflow.sampling_packet_interval", "cflow.sampling_packet_space")
    messages = listener.read(tmp_path / "ipfix.pcap", *elements)
    assert {domain for of, *_ in messages for domain in of.split(",")} == {str(SESSIONS), str(FLOWS)}
    assert ["1", "9"] in [sampling for _, *sampling in messages]
    records = collector.stop()
    flows = [record for record in records if record["proto"] == 1]
    pairs = {(flow["src4_addr"], flow["dst4_addr"]) for flow in flows}
    assert pairs == {("10.60.0.1", "10.100.6.2"), ("10.100.6.2", "10.60.0.1")}
    counted = sum(flow["in_packets"] for flow in flows)
    # Of a thousand; what else came meanwhile has its part in the runs of ten.
    assert 90 <= counted <= 110, flows
    sessions = [record for record in records if record["proto"] == 0]
    assert sum(record["in_packets"] for record in sessions) == 500, "those are not sampled"


def test_a_collector_without_a_route_is_said_once(binary: Path, net: Topology, tmp_path: Path) -> None:
    """The node runs, the other collector is served, and the log says what is the matter."""
    listener = Listener(net.upf)
    more = IPFIX.replace('"127.0.0.1", ', '"203.0.113.9", ') + "template_interval_s = 1\n"
    node = Node(binary, net.upf, tmp_path, driver="af_packet", more=more)
    net.upf.ip("route", "add", "unreachable", "203.0.113.0/24")
    node.start()
    wait_until(lambda: listener.hear() >= 3, "templates come again")
    assert node.stop() == 0
    lines = [line for line in node.log.read_text().splitlines() if "IPFIX messages could not be sent" in line]
    assert len(lines) == 1, lines
