"""Protocol peers that nobody here wrote: scapy speaks PFCP to us, tshark reads what we send."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import OVER_IPV6, Attach
from rig.net import Topology, wait_until
from rig.node import Node
from rig.peers import captured, warnings

pytestmark = pytest.mark.needs("root", "ip", "ethtool")

#: What every SMF made of scapy's PFCP layers begins with.
SMF_BASE = textwrap.dedent("""
    import json, socket, sys
    from scapy.contrib.pfcp import *

    SMF, UPF = "10.100.4.2", "10.100.4.1"
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((SMF, 8805))
    sock.connect((UPF, 8805))
    sock.settimeout(60)

    def ask(message, seq, seid=None):
        header = PFCP(version=1, S=0 if seid is None else 1, seq=seq)
        if seid is not None:
            header.seid = seid
        sock.send(bytes(header / message))
        while True:
            answer = PFCP(sock.recv(65535))
            if answer.seq == seq and answer.message_type != 1:
                return answer

    def value(answer, element, field):
        found = [e for e in answer.payload.IE_list if isinstance(e, element)]
        return getattr(found[0], field) if found else None

    def rules(far2):
        return PFCPSessionEstablishmentRequest(IE_list=[
            IE_NodeId(id_type=0, ipv4=SMF),
            IE_FSEID(v4=1, seid=0x1234, ipv4=SMF),
            IE_CreatePDR(IE_list=[
                IE_PDR_Id(id=1), IE_Precedence(precedence=100),
                IE_PDI(IE_list=[IE_SourceInterface(interface=0), IE_FTEID(CH=1, V4=1)]),
                IE_OuterHeaderRemoval(header=0), IE_FAR_Id(id=1), IE_URR_Id(id=1)]),
            IE_CreatePDR(IE_list=[
                IE_PDR_Id(id=2), IE_Precedence(precedence=100),
                IE_PDI(IE_list=[IE_SourceInterface(interface=1),
                                IE_UE_IP_Address(SD=1, V4=1, ipv4="10.60.99.1"),
                                IE_SDF_Filter(FD=1, flow_description="permit out ip from any to assigned")]),
                IE_FAR_Id(id=2), IE_URR_Id(id=1)]),
            IE_CreateFAR(IE_list=[IE_FAR_Id(id=1), IE_ApplyAction(FORW=1),
                IE_ForwardingParameters(IE_list=[IE_DestinationInterface(interface=1)])]),
            IE_CreateFAR(IE_list=[IE_FAR_Id(id=2), *far2]),
            IE_CreateURR(IE_list=[IE_URR_Id(id=1), IE_MeasurementMethod(VOLUM=1),
                IE_ReportingTriggers()]),
        ])

    tunnel = [IE_DestinationInterface(interface=0),
              IE_OuterHeaderCreation(GTPUUDPIPV4=1, TEID=0x5678, ipv4="10.100.3.2")]

    said = {}
    setup = PFCPAssociationSetupRequest(IE_list=[
        IE_NodeId(id_type=0, ipv4=SMF), IE_RecoveryTimeStamp(timestamp=3900000000)])
    answer = ask(setup, 1)
    said["setup"] = [type(answer.payload).__name__, value(answer, IE_Cause, "cause")]

""")

#: One whole life. Prints what it was answered, as JSON.
SMF = SMF_BASE + textwrap.dedent("""
    establishment = rules([IE_ApplyAction(FORW=1), IE_ForwardingParameters(IE_list=tunnel)])
    answer = ask(establishment, 2, 0)
    said["establishment"] = [type(answer.payload).__name__, value(answer, IE_Cause, "cause")]
    said["our_seid"] = answer.seid
    seid = value(answer, IE_FSEID, "seid")
    created = [e for e in answer.payload.IE_list if isinstance(e, IE_CreatedPDR)]
    fteid = [e for e in created[0].IE_list if isinstance(e, IE_FTEID)][0]
    said["fteid"] = [fteid.TEID, fteid.ipv4]

    again = ask(establishment, 2, 0)
    said["repeated_is_equal"] = bytes(again) == bytes(answer)

    refused = ask(PFCPSessionModificationRequest(IE_list=[
        IE_UpdateFAR(IE_list=[IE_FAR_Id(id=9), IE_ApplyAction(DROP=1)])]), 3, seid)
    said["bad_modification"] = value(refused, IE_Cause, "cause")

    unknown = ask(PFCPSessionDeletionRequest(), 4, 0xdeadbeef)
    said["unknown_seid"] = [value(unknown, IE_Cause, "cause"), unknown.seid]

    incomplete = ask(PFCPSessionEstablishmentRequest(IE_list=[IE_NodeId(id_type=0, ipv4=SMF)]), 5, 0)
    said["incomplete"] = [value(incomplete, IE_Cause, "cause"), value(incomplete, IE_OffendingIE, "type")]

    deletion = ask(PFCPSessionDeletionRequest(), 6, seid)
    said["deletion"] = value(deletion, IE_Cause, "cause")
    said["final_report"] = any("UsageReport" in type(e).__name__ for e in deletion.payload.IE_list)

    release = ask(PFCPAssociationReleaseRequest(IE_list=[IE_NodeId(id_type=0, ipv4=SMF)]), 7)
    said["release"] = value(release, IE_Cause, "cause")
    print(json.dumps(said))
""")


def test_scapy_sets_up_changes_and_ends_a_session(node: Node, net: Topology) -> None:
    """Every answer has the cause the standard wants, and a repeated request gets the same octets.

    Conformance: TS 29.244 6.4 | A repeated request is answered with the same octets (scapy)
    Conformance: TS 29.244 6.3.2 | Session establishment and the causes of its refusal (scapy)
    """
    done = net.ran.run(sys.executable, "-c", SMF, check=False)
    assert done.returncode == 0, done.stderr + node.log.read_text()
    said = json.loads(done.stdout)
    assert said["setup"] == ["PFCPAssociationSetupResponse", 1]
    assert said["establishment"] == ["PFCPSessionEstablishmentResponse", 1]
    assert said["our_seid"] == 0x1234
    assert said["fteid"][0] != 0
    assert said["fteid"][1] == "10.100.3.1"
    assert said["repeated_is_equal"]
    assert said["bad_modification"] == 73
    assert said["unknown_seid"] == [65, 0]
    assert said["incomplete"] == [66, 57]
    assert said["deletion"] == 1
    assert said["final_report"]
    assert said["release"] == 1


#: An idle UE is paged: its packets wait, one report comes, they arrive in order. Speaks as the gNB too.
PAGING = SMF_BASE + textwrap.dedent("""
    gnb = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    gnb.bind(("10.100.3.2", 2152))
    gnb.settimeout(60)
    answer = ask(rules([IE_ApplyAction(BUFF=1, NOCP=1)]), 2, 0)
    seid = value(answer, IE_FSEID, "seid")
    print("idle", flush=True)
    reports = []
    while not reports:
        message = PFCP(sock.recv(65535))
        if message.message_type == 56:
            reports.append([value(message, IE_ReportType, "DLDR"), message.seid])
            sock.send(bytes(PFCP(version=1, S=1, seid=seid, seq=message.seq)
                            / PFCPSessionReportResponse(IE_list=[IE_Cause(cause=1)])))
    said["reports"] = reports
    sys.stdin.readline()
    answer = ask(PFCPSessionModificationRequest(IE_list=[IE_UpdateFAR(IE_list=[
        IE_FAR_Id(id=2), IE_ApplyAction(FORW=1), IE_UpdateForwardingParameters(IE_list=tunnel)])]), 3, seid)
    said["released"] = value(answer, IE_Cause, "cause")
    packets = (packet for packet in iter(lambda: gnb.recv(2000), b"") if packet[1] == 255)
    said["payloads"] = [next(packets)[8 + 28:].decode() for _ in range(3)]
    print(json.dumps(said))
""")


def test_an_idle_ue_is_paged_and_gets_its_packets_in_order(node: Node, net: Topology) -> None:
    """Buffering, one downlink data report, and release, over real sockets.

    Conformance: TS 29.244 5.2.4 | An idle UE is paged, and gets its packets in order (scapy)
    """
    smf = net.ran.start(
        sys.executable,
        "-c",
        PAGING,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert smf.stdin is not None
    assert smf.stdout is not None
    assert smf.stdout.readline() == "idle\n", smf.communicate()
    code = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "for n in range(3): s.sendto(b'packet %d' % n, ('10.60.99.1', 9))"
    )
    net.dn.run(sys.executable, "-c", code)
    out, error = smf.communicate("go\n", timeout=60)
    assert smf.returncode == 0, error + node.log.read_text()
    said = json.loads(out)
    assert said["reports"] == [[1, 0x1234]]
    assert said["released"] == 1
    assert said["payloads"] == ["packet 0", "packet 1", "packet 2"]


@pytest.mark.needs("root", "ip", "ethtool", "tshark", "tcpdump")
def test_tshark_reads_all_we_send_without_a_warning(
    node: Node, net: Topology, attach: Attach, tmp_path: Path
) -> None:
    """PFCP of a whole life with reports, GTP-U both ways over both families, and our error messages."""
    with captured(net.ran, tmp_path, "gnb0", "smf0") as captures:
        net.echo()
        traffic = "--traffic pps=200,bytes=200,seconds=1,to=10.100.6.2:7"
        for options, base in (
            (f"--ues 20 --qfi 9 --threshold 500 {traffic}", None),
            ("--ues 1 --no-qfi", OVER_IPV6),
        ):
            sim = attach(options, base) if base else attach(options)
            if "traffic" in options:
                wait_until(lambda log=sim.log: "traffic done" in log.read_text(), "the traffic ends")
            sim.stop()
        code = (
            "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            "for m in ('30ff000400007777aabbccdd', '3201000400000000abcd0000',\n"
            "          '34ff0008000003e8000000c301000000'):\n"
            "    s.sendto(bytes.fromhex(m), ('10.100.3.1', 2152))"
        )
        net.ran.run(sys.executable, "-c", code)
        wait_until(lambda: node.drops().get("n3 extension_unsupported", 0) > 0, "our notices are sent")
    for name, capture in captures.items():
        assert capture.stat().st_size > 2000
        assert warnings(capture) == [], name
