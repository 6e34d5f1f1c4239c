"""The datapath in the kernel: plain packets are forwarded there, and nobody can tell but by the counters."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import OVER_IPV6, Attach
from rig import gtpu, pfcp
from rig.net import FAR, FAR6, UE_IPV4, UE_IPV6, Topology, run, wait_until
from rig.node import Node
from test_lifecycle import all_is_taken_back, traces
from test_peers import SMF_BASE

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "ping")

Start = Callable[..., Node]


@pytest.fixture
def far(net: Topology) -> Topology:
    """With a host behind the data network's router."""
    net.beyond()
    return net


@pytest.fixture
def start(binary: Path, far: Topology, tmp_path: Path) -> Iterator[Start]:
    """Starts a node with a datapath in the kernel: `start("xdp")`."""
    nodes: list[Node] = []

    def begin(datapath: str, more: str = "", extra: str = "") -> Node:
        # Octets are counted here: none are the node's own.
        quiet = "\n[gtpu]\necho_interval_s = 0\n"
        settings = f'datapath = "{datapath}"\n{more}'
        node = Node(binary, far.upf, tmp_path, node=settings, more=extra + quiet).start()
        nodes.append(node)
        # The kernel's table of neighbours is the kernel datapath's: as long as one is not in it, packets go
        # to the workers.
        assert all(far.upf.pings(address, count=1) for address in ("10.100.3.2", "10.100.6.2", "fd00:6::2"))
        return node

    yield begin
    for node in nodes:
        if not node.ended():
            node.stop()


def status(node: Node) -> dict[str, object]:
    """What the node says of itself."""
    said = node.ask("status")
    assert said is not None
    return said


def ports(node: Node) -> dict[str, dict[str, int]]:
    """The counters of every port."""
    listed = status(node)["ports"]
    assert isinstance(listed, list)
    return {port["name"]: port for port in listed}


def records(node: Node) -> int:
    """How many records the kernel has."""
    kernel = status(node)["kernel"]
    assert isinstance(kernel, dict)
    return int(kernel["records"])


def ping(net: Topology, device: str, address: str, *options: str) -> bool:
    """Whether all of three pings are answered."""
    return net.ran.pings(address, "-I", device, *options)


def by_the_kernel(node: Node, net: Topology, address: str) -> bool:
    """Whether three pings of a UE are answered, and forwarded in the kernel there and back."""

    def forwarded() -> list[int]:
        return [ports(node)[name]["kernel_packets"] for name in ("n3", "n6")]

    before = forwarded()
    answered = ping(net, "ue0", address)
    return answered and all(now - then >= 3 for then, now in zip(before, forwarded(), strict=True))


def test_what_is_charged_is_what_was_counted_and_the_kernel_forwarded_it(
    start: Start, far: Topology, attach: Attach, tmp_path: Path
) -> None:
    """Every UE's reports, added up, equal an independent count, to the byte."""
    node = start("xdp")
    out = tmp_path / "count.json"
    networks = (UE_IPV4, UE_IPV6)
    counting = far.dn.start(sys.executable, "-m", "rig.count", "eth0", *networks, "--out", str(out))
    wait_until(out.with_suffix(".ready").exists, "the counter starts")
    far.echo(FAR)
    traffic = f"pps=1000,bytes=300,seconds=4,to={FAR}:7"
    sim = attach(f"--ues 200 --qfi 9 --threshold 10000 --tuns 1 --traffic {traffic}")
    assert records(node) == 600, "for each UE a tunnel and two addresses"
    wait_until(lambda: "traffic done" in sim.log.read_text(), "the traffic ends")
    seen = ports(node)
    report = sim.stop()
    counting.send_signal(signal.SIGTERM)
    counting.wait(timeout=60)
    counted = json.loads(out.read_text())
    assert counted["missed"] == 0
    ues = report["ue"]
    assert isinstance(ues, list)
    for ue in ues:
        for name, value in counted["ues"][ue["ipv4"]].items():
            assert ue["usage"][name] == value, f"{ue['ipv4']}: {name}"
        assert counted["ues"][ue["ipv4"]]["uplink_packets"] == 20
        assert ue["usage"]["reports"] > 1, "thresholds were crossed on the way"
    assert node.drops() == {}
    # Until the next hops had answered, packets were the workers'.
    for name in ("n3", "n6"):
        assert 3000 < seen[name]["kernel_packets"] <= seen[name]["rx_packets"], seen
    assert seen["n3"]["tx_packets"] >= seen["n6"]["kernel_packets"]
    # All of one length, with and without the tunnel, by whomever they were handled.
    inside, outside = 14 + 300, 14 + 44 + 300
    assert (seen["n6"]["rx_bytes"], seen["n6"]["tx_bytes"]) == (4000 * inside, 4000 * inside)
    assert (seen["n3"]["rx_bytes"], seen["n3"]["tx_bytes"]) == (4000 * outside, 4000 * outside)
    assert records(node) == 0


TUNNEL = pfcp.choose(0x77)


class Offered:
    """A session of the tests' own SMF, whose UE sends a burst to a host behind the router."""

    UE = "10.60.0.9"

    def __init__(self, net: Topology, reference: bytes, *rules: bytes) -> None:
        """Establish it; both directions refer to one of its rules."""
        self.access = gtpu.Access(net.ran)
        self.smf = pfcp.ControlPlane(net.ran, "10.100.4.2")
        self.smf.set_up()
        both = (pfcp.uplink(1, TUNNEL, reference), pfcp.downlink(self.UE, 2, reference))
        self.session = self.smf.establish(*both, pfcp.to_core(), pfcp.to_access(0x88), *rules)
        assert self.session.cause == 1

    def close(self) -> None:
        """Leave it."""
        self.access.close()
        self.smf.close()

    def send(self, packets: int, to: str = FAR) -> None:
        """Packets of 1000 octets from the UE."""
        packet = gtpu.ipv4(self.UE, to, gtpu.udp(4000, 9, bytes(972)))
        for _ in range(packets):
            self.access.send(gtpu.gtpu(gtpu.G_PDU, 0x77, packet))


def forwarded(node: Node) -> int:
    """Packets out of tunnels that left, by whomever."""
    return ports(node)["n6"]["tx_packets"]


def test_a_rate_is_kept_in_the_kernel(start: Start, far: Topology) -> None:
    """What a bucket of 300 ms does not let pass is dropped there, by name."""
    node = start("xdp")
    offered = Offered(far, pfcp.u32(109, 1), pfcp.create_mbr(1, 1000, 1000))
    assert records(node) == 2
    before, sent = forwarded(node), 400
    offered.send(sent)
    wait_until(lambda: forwarded(node) - before + node.drops().get("n3 mbr_exceeded", 0) == sent, "all came")
    passed = forwarded(node) - before
    # 37 500 octets, and what the time of the burst brings.
    assert 37 <= passed <= 80, passed
    assert ports(node)["n3"]["kernel_packets"] >= passed - 1, "the first may go by a worker"
    offered.close()


def test_a_quota_is_kept_to_the_packet_in_the_kernel(start: Start, far: Topology) -> None:
    """The packet that uses it up is the last that passes."""
    node = start("xdp")
    offered = Offered(far, pfcp.u32(81, 1), pfcp.create_quota(1, 200_000))
    before, sent = forwarded(node), 500
    offered.send(sent)
    wait_until(
        lambda: forwarded(node) - before + node.drops().get("n3 quota_exhausted", 0) == sent, "all came"
    )
    assert forwarded(node) - before == 200
    assert ports(node)["n3"]["kernel_packets"] > 150
    offered.close()


@pytest.mark.parametrize("datapath", ["xdp", "engine"])
def test_ues_are_kept_apart_and_the_rest_is_forwarded_fast(
    start: Start, far: Topology, datapath: str
) -> None:
    """A packet to another UE is dropped by name; no other is looked at because of it."""
    node = start(datapath, 'ue_to_ue = "drop"\n')
    offered = Offered(far, pfcp.u32(109, 1), pfcp.create_mbr(1, 1_000_000, 1_000_000))
    other = (pfcp.uplink(1, pfcp.choose(0x78)), pfcp.downlink("10.60.0.10", 2))
    assert offered.smf.establish(*other, pfcp.to_core(), pfcp.to_access(0x89)).cause == 1
    before = forwarded(node)
    offered.send(100)
    wait_until(lambda: forwarded(node) - before == 100, "all to the far host")
    if datapath == "xdp":
        assert ports(node)["n3"]["kernel_packets"] >= 99, "the first may go by a worker"
    offered.send(20, "10.60.0.10")
    wait_until(lambda: node.drops() == {"n3 ue_to_ue": 20}, "all to UEs")
    slow = status(node)["slow_path"]
    assert isinstance(slow, list)
    assert [row["packets"] for row in slow if row["reason"] == "other_ue"] == [20]
    offered.close()


def test_a_session_says_what_of_it_is_not_the_kernels(start: Start, far: Topology, binary: Path) -> None:
    """And why."""
    node = start("xdp")
    text = b"permit out 17 from 10.201.0.0/16 to assigned"
    voice = pfcp.u8(20, 0) + TUNNEL + pfcp.ie(23, b"\x01\0" + len(text).to_bytes(2, "big") + text)
    rate = pfcp.ie(27, (100).to_bytes(5, "big") * 2)
    guaranteed = pfcp.ie(7, pfcp.u32(109, 2) + pfcp.u8(25, 0) + rate)
    flow = pfcp.ie(
        1, pfcp.u16(56, 3) + pfcp.u32(29, 9) + pfcp.ie(2, voice) + pfcp.u32(108, 1) + pfcp.u32(109, 2)
    )
    default = pfcp.create_mbr(1, 1000, 1000)
    offered = Offered(far, pfcp.u32(109, 1), default, flow, guaranteed)
    listed = node.ask("sessions")
    assert listed is not None
    sessions = listed["sessions"]
    assert isinstance(sessions, list)
    (session,) = sessions
    command = [str(binary), "session", session["seid"], "--socket", str(node.socket)]
    lines = run(*command).stdout.splitlines()
    assert any(Offered.UE in line and line.endswith("all") for line in lines), lines
    assert any("a QER guarantees a rate" in line for line in lines), lines
    offered.close()


def test_ordinary_programs_do_not_notice(start: Start, far: Topology, attach: Attach) -> None:
    """Pings of both families and sizes, near and far."""
    node = start("xdp")
    attach("--ues 2 --tuns 2 --qfi 9")
    for address in (FAR, FAR6):
        assert ping(far, "ue0", address)
        assert ping(far, "ue1", address, "-s", "1300")
    assert ports(node)["n3"]["kernel_packets"] > 6
    assert by_the_kernel(node, far, "10.100.6.2"), "a neighbour is not behind the router"
    assert by_the_kernel(node, far, "fd00:6::2")
    assert far.ran.pings("10.100.3.1")
    assert node.drops() == {}


def test_tunnels_over_ipv6_are_forwarded_in_the_kernel(start: Start, far: Topology, attach: Attach) -> None:
    """With the UDP checksum that IPv6 asks for: the gNB's kernel takes no other."""
    node = start("xdp")
    assert far.upf.pings("fd00:3::2", count=1)
    attach("--ues 1 --tuns 1 --qfi 9", OVER_IPV6)
    wait_until(lambda: records(node) >= 2, "tunnel and UE addresses in the kernel")
    assert by_the_kernel(node, far, FAR)
    assert by_the_kernel(node, far, FAR6)
    assert node.drops() == {}


def test_hybrid_gives_the_kernel_so_many_records_and_no_more(
    start: Start, far: Topology, attach: Attach
) -> None:
    """What is beyond the bound, and what comes later, is the workers'."""
    node = start("hybrid", "xdp_records_max = 30")
    far.echo(FAR)
    sim = attach(f"--ues 20 --qfi 9 --tuns 1 --traffic pps=400,bytes=200,seconds=3,to={FAR}:7")
    assert records(node) == 30
    wait_until(lambda: "traffic done" in sim.log.read_text(), "the traffic ends")
    for port in ports(node).values():
        assert 0 < port["kernel_packets"] < port["rx_packets"], port
    totals = sim.stop()["totals"]
    assert isinstance(totals, dict)
    assert totals["generated"]["received"] == totals["generated"]["sent"]
    assert node.drops() == {}


def test_routes_and_neighbours_are_followed(start: Start, far: Topology, attach: Attach) -> None:
    """The router moves, and some of what was behind it is moved to another."""
    node = start("xdp")
    attach("--ues 1 --tuns 1")
    wait_until(lambda: ping(far, "ue0", FAR), "the first way")
    far.dn.ip("link", "set", "eth0", "address", "02:00:00:00:99:99")
    far.dn.run("ping", "-c", "1", "-W", "2", "10.100.6.1", check=False)
    wait_until(lambda: ping(far, "ue0", FAR), "traffic follows the new address", 120)
    before = ports(node)["n3"]["kernel_packets"]
    assert ping(far, "ue0", FAR)
    assert ports(node)["n3"]["kernel_packets"] > before
    far.upf.ip("route", "add", "10.200.0.0/24", "via", "10.100.6.9")
    wait_until(lambda: not ping(far, "ue0", FAR), "nobody is at the new gateway")
    far.upf.ip("route", "del", "10.200.0.0/24")
    wait_until(lambda: ping(far, "ue0", FAR), "the first way again")


def test_every_route_is_followed_in_the_kernel(start: Start, far: Topology, attach: Attach) -> None:
    """Without a default route: hosts on the link, and prefixes behind two gateways, the longest first."""
    for to in ("0.0.0.0/0", "::/0"):
        far.upf.ip("route", "del", to)
    second, third = "10.100.6.3", "198.51.100.9"
    far.dn.ip("link", "add", "other", "link", "eth0", "type", "macvlan", "mode", "bridge")
    far.dn.ip("link", "set", "other", "up")
    for address in (f"{second}/24", f"{third}/32"):
        far.dn.ip("address", "add", address, "dev", "other")
    far.upf.ip("route", "add", "10.200.0.0/16", "via", "10.100.6.2")
    far.upf.ip("route", "add", "198.51.0.0/16", "via", "10.100.6.77")
    far.upf.ip("route", "add", f"{third}/32", "via", second)
    far.upf.ip("route", "add", f"{FAR6}/128", "via", "fd00:6::2")
    node = start("xdp")
    attach("--ues 1 --tuns 1")
    for address in (FAR, "10.100.6.2", second, third, "fd00:6::2"):
        assert ping(far, "ue0", address), address
        wait_until(lambda to=address: by_the_kernel(node, far, to), f"{address} is the kernel's")
    assert not ping(far, "ue0", "198.51.100.8"), "its gateway does not exist"
    assert ping(far, "ue0", FAR6), "a prefix beyond /64 is the workers'"
    far.upf.ip("route", "del", f"{third}/32")
    wait_until(lambda: not ping(far, "ue0", third), "the shorter prefix counts")
    assert ping(far, "ue0", FAR)
    assert set(node.drops()) == {"n3 next_hop_unresolved"}, node.drops()


#: Changes a session while packets flow both ways, as SMF and as two gNBs. Tells what came when.
CHANGES = SMF_BASE + textwrap.dedent("""
    import struct, threading, time

    def ask(message, seq, seid=None):
        header = PFCP(version=1, S=0 if seid is None else 1, seq=seq)
        if seid is not None:
            header.seid = seid
        sock.send(bytes(header / message))
        while True:
            answer = PFCP(sock.recv(65535))
            if answer.message_type == 1:
                stamp = IE_RecoveryTimeStamp(timestamp=3900000000)
                sock.send(bytes(PFCP(version=1, seq=answer.seq) / PFCPHeartbeatResponse(IE_list=[stamp])))
            elif answer.seq == seq:
                return answer

    def tunnel(gnb):
        address = "10.100.3.2" if gnb == 0 else "10.100.3.3"
        return IE_OuterHeaderCreation(GTPUUDPIPV4=1, TEID=0x5678 + gnb, ipv4=address)

    gnbs, came = [], [[], []]
    def listen(gnb):
        while True:
            data = gnbs[gnb].recv(2000)
            if data[1] != 1:  # The node asks for an echo.
                came[gnb].append("end" if data[1] == 254 else int(data[8 + 28:]))

    for gnb, address in enumerate(("10.100.3.2", "10.100.3.3")):
        gnbs.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        gnbs[gnb].setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
        gnbs[gnb].bind((address, 2152))
        threading.Thread(target=listen, args=(gnb,), daemon=True).start()

    answer = ask(PFCPSessionEstablishmentRequest(IE_list=[
        IE_NodeId(id_type=0, ipv4=SMF),
        IE_FSEID(v4=1, seid=0x1234, ipv4=SMF),
        IE_CreatePDR(IE_list=[
            IE_PDR_Id(id=1), IE_Precedence(precedence=100),
            IE_PDI(IE_list=[IE_SourceInterface(interface=0), IE_FTEID(CH=1, V4=1)]),
            IE_OuterHeaderRemoval(header=0), IE_FAR_Id(id=1), IE_URR_Id(id=1), IE_QER_Id(id=1)]),
        IE_CreatePDR(IE_list=[
            IE_PDR_Id(id=2), IE_Precedence(precedence=100),
            IE_PDI(IE_list=[IE_SourceInterface(interface=1),
                            IE_UE_IP_Address(SD=1, V4=1, ipv4="10.60.99.1")]),
            IE_FAR_Id(id=2), IE_URR_Id(id=1), IE_QER_Id(id=1)]),
        IE_CreateFAR(IE_list=[IE_FAR_Id(id=1), IE_ApplyAction(FORW=1),
            IE_ForwardingParameters(IE_list=[IE_DestinationInterface(interface=1)])]),
        IE_CreateFAR(IE_list=[IE_FAR_Id(id=2), IE_ApplyAction(FORW=1),
            IE_ForwardingParameters(IE_list=[IE_DestinationInterface(interface=0), tunnel(0)])]),
        IE_CreateURR(IE_list=[IE_URR_Id(id=1), IE_MeasurementMethod(VOLUM=1), IE_ReportingTriggers()]),
        IE_CreateQER(IE_list=[IE_QER_Id(id=1), IE_GateStatus(ul=0, dl=0)]),
    ]), 2, 0)
    seid = value(answer, IE_FSEID, "seid")
    created = [e for e in answer.payload.IE_list if isinstance(e, IE_CreatedPDR)]
    teid = [e for e in created[0].IE_list if isinstance(e, IE_FTEID)][0].TEID

    def header_sum(header):
        total = sum(struct.unpack("!10H", header))
        while total >> 16:
            total = (total & 0xffff) + (total >> 16)
        return total ^ 0xffff

    sent, stop = 0, threading.Event()
    def send():
        global sent
        addresses = socket.inet_aton("10.60.99.1") + socket.inet_aton("10.200.0.1")
        while not stop.is_set():
            payload = b"%06d" % sent
            header = struct.pack("!BBHHHBBH", 0x45, 0, 28 + len(payload), 0, 0, 64, 17, 0) + addresses
            header = header[:10] + struct.pack("!H", header_sum(header)) + header[12:]
            packet = header + struct.pack("!HHHH", 9, 9, 8 + len(payload), 0) + payload
            gnbs[0].sendto(struct.pack("!BBHI", 0x30, 255, len(packet), teid) + packet, ("10.100.3.1", 2152))
            sent += 1
            time.sleep(0.001)

    seq = 2
    def change(*elements):
        global seq
        seq += 1
        answer = ask(PFCPSessionModificationRequest(IE_list=list(elements)), seq, seid)
        assert value(answer, IE_Cause, "cause") == 1
        # So many packets meet every state; those of the other direction are as many, or nearly.
        until = sent + 80
        while sent < until:
            time.sleep(0.01)

    def gates(status):
        change(IE_UpdateQER(IE_list=[IE_QER_Id(id=1), IE_GateStatus(ul=status, dl=status)]))

    def far(*elements):
        return IE_UpdateFAR(IE_list=[IE_FAR_Id(id=2), *elements])

    sender = threading.Thread(target=send)
    sender.start()
    print("ready", flush=True)
    sys.stdin.readline()
    for turn in range(6):
        gates(1)
        gates(0)
        moved = IE_UpdateForwardingParameters(IE_list=[tunnel((turn + 1) % 2), IE_PFCPSMReqFlags(SNDEM=1)])
        change(far(moved))
        change(far(IE_ApplyAction(BUFF=1)))
        change(far(IE_ApplyAction(FORW=1)))
        change()
    stop.set()
    sender.join()
    print("changed", flush=True)
    sys.stdin.readline()
    seq += 1
    answer = ask(PFCPSessionDeletionRequest(), seq, seid)
    report = [e for e in answer.payload.IE_list if isinstance(e, IE_UsageReport_SDR)][0]
    volume = [e for e in report.IE_list if isinstance(e, IE_VolumeMeasurement)][0]
    print(json.dumps({"came": came, "sent": sent, "uplink": volume.uplink, "downlink": volume.downlink}))
""")

#: Sends numbered datagrams to the UE until told to stop, and says how many.
SENDER = """
import socket, sys, threading, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), stop.set())).start()
n = 0
while not stop.is_set():
    s.sendto(b"%06d" % n, ("10.60.99.1", 9))
    n += 1
    time.sleep(0.001)
print(n, flush=True)
"""

#: Counts the UE's datagrams until none has come for a while.
RECEIVER = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
s.bind(("10.200.0.1", 9))
print("ready", flush=True)
got = []
try:
    while True:
        got.append(int(s.recv(2000)))
        s.settimeout(5)
except TimeoutError:
    print(len(got), len(set(got)), flush=True)
"""


def talk(net_command: Callable[..., subprocess.Popen[str]], code: str) -> subprocess.Popen[str]:
    """A program that is talked to."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return net_command(sys.executable, "-c", code, **pipes)


def tell(process: subprocess.Popen[str]) -> None:
    """Tells a program to go on."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def line(process: subprocess.Popen[str]) -> str:
    """What a program says next."""
    assert process.stdout is not None
    assert process.stderr is not None
    said = process.stdout.readline()
    assert said, process.stderr.read()
    return said.strip()


def test_changes_while_packets_flow_lose_count_and_repeat_nothing(start: Start, far: Topology) -> None:
    """Gates, handovers with End Markers, and buffering: each packet arrives once or was dropped by a gate."""
    node = start("xdp", extra="\n[buffer]\npackets_per_session = 4000\n")
    far.ran.ip("address", "add", "10.100.3.3/24", "dev", "gnb0")
    receiver = talk(far.dn.start, RECEIVER)
    assert line(receiver) == "ready"
    control = talk(far.ran.start, CHANGES)
    assert line(control) == "ready"
    assert records(node) == 2
    sender = talk(far.dn.start, SENDER)
    tell(control)
    assert line(control) == "changed"
    tell(sender)
    sent_down = int(line(sender))
    got_up, unique_up = map(int, line(receiver).split())
    kernel = ports(node)
    tell(control)
    said = json.loads(line(control))
    drops = node.drops()
    shut = {name: drops.pop(f"{name} gate_closed", 0) for name in ("n3", "n6")}
    assert drops == {}
    assert shut["n3"] > 0
    assert shut["n6"] > 0

    data = [[entry for entry in came if entry != "end"] for came in said["came"]]
    got_down = len(data[0]) + len(data[1])
    assert len(set(data[0]) | set(data[1])) == got_down, "none came twice"
    assert got_down + shut["n6"] == sent_down
    assert got_up == unique_up
    assert got_up + shut["n3"] == said["sent"]
    assert (said["uplink"], said["downlink"]) == (34 * got_up, 34 * got_down)
    assert kernel["n3"]["kernel_packets"] > said["sent"] / 8
    assert kernel["n6"]["kernel_packets"] > sent_down / 8

    # Nothing of the old way follows its End Marker: what comes next there is what the other had before.
    assert [came.count("end") for came in said["came"]] == [3, 3]
    for gnb, came in enumerate(said["came"]):
        others = set(data[1 - gnb])
        for at in (at for at, entry in enumerate(came) if entry == "end"):
            before = [entry for entry in came[:at] if entry != "end"]
            after = [entry for entry in came[at:] if entry != "end"]
            for last, following in pairwise([max(before, default=0), *after[:1]]):
                assert others & set(range(last, following)), f"gNB {gnb}: {last}, End Marker, {following}"
    assert records(node) == 0


def test_nothing_is_left(binary: Path, far: Topology, tmp_path: Path, attach: Attach) -> None:
    """No program and no map of a node that ended, whichever way, with sessions in the kernel."""
    before = traces(far)
    for how in (signal.SIGTERM, signal.SIGKILL):
        node = Node(binary, far.upf, tmp_path, node='datapath = "xdp"').start()
        sim = attach("--ues 5 --tuns 1")
        assert records(node) == 15
        held = node.bpf_objects()
        assert {kind for kind, _ in held} >= {"prog", "map"}
        node.stop(how)
        assert sim.process is not None
        sim.process.kill()
        sim.process.wait()
        all_is_taken_back(far, before, held)


def test_without_the_right_to_the_kernel_it_says_so(binary: Path, far: Topology, tmp_path: Path) -> None:
    """In one message that names the field and what to do."""
    file = tmp_path / "kaido.toml"
    node = Node(binary, far.upf, tmp_path, node='datapath = "xdp"')
    file.write_text(node.config)
    command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", str(binary), "run", "-c", str(file)]
    done = run(*far.upf.command(*command), check=False)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    for part in ("node.datapath", "root", "CAP_BPF", 'datapath = "engine"'):
        assert part in said, said
