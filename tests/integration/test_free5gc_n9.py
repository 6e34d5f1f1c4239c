"""free5GC's SMF with several nodes: an intermediate UPF and an anchor, an uplink classifier and two anchors.

::

    ran ── n3 ── upf ── n9 ─┬─ core  ── n6 ── dn
                            └─ local ── n6 ── edge
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import GoPeer
from rig.bearer import Bearer
from rig.core5g import Core, ambr, policy
from rig.gnb5g import GNB, TEIDS, attach, numbered
from rig.gtpu import Access
from rig.net import N3_MTU, Cable, Namespace, Network, wait_until
from rig.node import Node, port
from rig.peers import captured, warnings

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "tcpdump", "tshark")

#: Echo servers of the data network and of the edge.
DN, EDGE = ("10.100.6.2", 7), ("10.100.26.2", 7)

CABLES = (
    Cable("ran", "gnb0", ["10.100.3.2/24"], "upf", "n3", ["10.100.3.1/24"], N3_MTU),
    Cable("ran", "smf0", ["10.100.4.2/24"], "upf", "n4", ["10.100.4.1/24"]),
    Cable("ran", "smf1", ["10.100.14.2/24"], "core", "n4", ["10.100.14.1/24"]),
    Cable("ran", "smf2", ["10.100.24.2/24"], "local", "n4", ["10.100.24.1/24"]),
    Cable("lan", "n9a", [], "upf", "n9", ["10.100.9.1/24"], N3_MTU),
    Cable("lan", "n9b", [], "core", "n9", ["10.100.9.2/24"], N3_MTU),
    Cable("lan", "n9c", [], "local", "n9", ["10.100.9.3/24"], N3_MTU),
    Cable("dn", "eth0", ["10.100.6.2/24"], "core", "n6", ["10.100.6.1/24"]),
    Cable("edge", "eth0", ["10.100.26.2/24"], "local", "n6", ["10.100.26.1/24"]),
)

RATE = ambr("1 Gbps", "1 Gbps")

SLICE = '{sst: 1, sd: "010203"}'


def up_node(name: str, pfcp: str, pools: str, *interfaces: str) -> str:
    """A UPF as free5GC's SMF is told of it."""
    listed = "\n".join(f"          - {interface}" for interface in interfaces)
    return f"""\
      {name}:
        type: UPF
        nodeID: {pfcp}
        addr: {pfcp}
        sNssaiUpfInfos:
          - sNssai: {SLICE}
            dnnUpfInfoList: [{{dnn: internet{pools}}}]
        interfaces:
{listed}
"""


def interface(kind: str, address: str) -> str:
    """One of its interfaces."""
    return f"{{interfaceType: {kind}, endpoints: [{address}], networkInstances: [internet]}}"


#: Where the first anchor is, by which the PCF's rule names it: without a name this SMF takes any.
PLACE = "core"
POOL = f", dnaiList: [{PLACE}], pools: [{{cidr: 10.60.0.0/18}}]"
BRANCHING = up_node("UPF", "10.100.4.1", "", interface("N3", "10.100.3.1"), interface("N9", "10.100.9.1"))
ANCHOR = up_node("CORE", "10.100.14.1", POOL, interface("N9", "10.100.9.2"))
SECOND = up_node("LOCAL", "10.100.24.1", "", interface("N9", "10.100.9.3"))
NODES = "  userplaneInformation:\n    upNodes:\n      gNB1: {type: AN}\n"
CHAIN = NODES + BRANCHING + ANCHOR + "    links: [{A: gNB1, B: UPF}, {A: UPF, B: CORE}]\n"
FORK = (
    f"  ulcl: true\n{NODES}{BRANCHING}{ANCHOR}{SECOND}"
    "    links: [{A: gNB1, B: UPF}, {A: UPF, B: CORE}, {A: UPF, B: LOCAL}]\n"
)
#: UE 1 has a path of its own to the edge.
PATHS = """
  UE1:
    members: [imsi-208930000000001]
    topology: [{A: gNB1, B: UPF}, {A: UPF, B: CORE}, {A: UPF, B: LOCAL}]
    specificPath: [{dest: 10.100.26.0/24, path: [UPF, LOCAL]}]
"""


@dataclass
class Chain:
    """The namespaces and the nodes in them."""

    net: Network
    nodes: dict[str, Node]

    def sessions(self, name: str) -> int:
        """How many sessions a node has."""
        status = self.nodes[name].ask("status")
        assert status is not None
        return int(str(status["sessions"]))

    def echo(self, name: str, at: tuple[str, int]) -> None:
        """Start an echo server, to which the UEs are behind an anchor."""
        space = self.net.spaces[name]
        gateway = at[0].rsplit(".", 1)[0] + ".1"
        space.ip("route", "add", "10.60.0.0/16", "via", gateway)
        space.start(sys.executable, "-m", "rig.echo", at[0], str(at[1]))


def node_in(binary: Path, space: Namespace, folder: Path, pfcp: str, n3: str, n6: str) -> Node:
    """A node between two ports."""
    folder.mkdir()
    return Node(binary, space, folder, n3=n3, n6=n6, listen=(pfcp,), pool="").start()


@pytest.fixture
def chain(binary: Path, tmp_path: Path) -> Iterator[Chain]:
    """Three nodes: one at the gNB, one at each data network."""
    names = ("ran", "upf", "core", "local", "lan", "dn", "edge")
    n6 = port("n6", "af_xdp", 'network_instance = "internet"')
    n9 = port("n9", "af_xdp")
    with Network(f"kn{os.getpid()}-", names, CABLES) as net:
        lan = net.spaces["lan"]
        lan.ip("link", "add", "br0", "type", "bridge")
        lan.ip("link", "set", "br0", "up", "mtu", str(N3_MTU))
        for end in ("n9a", "n9b", "n9c"):
            lan.ip("link", "set", end, "master", "br0")
        for name, gateway in (("core", "10.100.14.2"), ("local", "10.100.24.2")):
            net.spaces[name].ip("route", "add", "10.100.4.0/24", "via", gateway)
        nodes = {
            "upf": node_in(
                binary, net.spaces["upf"], tmp_path / "upf", "10.100.4.1", port("n3", "af_xdp"), n9
            )
        }
        for name, pfcp in (("core", "10.100.14.1"), ("local", "10.100.24.1")):
            nodes[name] = node_in(binary, net.spaces[name], tmp_path / name, pfcp, n9, n6)
        found = Chain(net, nodes)
        found.echo("dn", DN)
        found.echo("edge", EDGE)
        yield found
        for node in nodes.values():
            if not node.ended():
                node.stop()
            assert "panicked" not in node.log.read_text()


@pytest.fixture
def core(chain: Chain, tmp_path: Path, go_peer: GoPeer) -> Iterator[Core]:
    """The SMF, not started yet."""
    smf = Path(os.environ.get("KAIDO_FREE5GC") or go_peer("free5gc") / "cmd")
    ran = chain.net.spaces["ran"]
    found = Core(ran, go_peer("sbi") / "sbi", smf, tmp_path)
    with captured(ran, tmp_path, "smf0", "smf1", "smf2") as captures:
        yield found
        found.stop()
    for name, address in (("smf0", "10.100.4.1"), ("smf1", "10.100.14.1"), ("smf2", "10.100.24.1")):
        assert warnings(captures[name], address) == []


@pytest.fixture
def gnb(chain: Chain) -> Iterator[Access]:
    """The gNB."""
    access = Access(chain.net.spaces["ran"], GNB)
    yield access
    access.close()


def goes_both_ways(end: Bearer, to: tuple[str, int]) -> bool:
    """Whether what is sent to an echo server comes back as it was."""
    payload = os.urandom(200)
    end.send(payload, to)
    came = end.receive(0.5)
    return came is not None and came[0] == payload


def test_an_intermediate_upf_leads_to_an_anchor(chain: Chain, core: Core, gnb: Access) -> None:
    """N3 to N9 to N6 and back through two nodes; idle, served, released.

    Conformance: TS 23.501 5.6.4.1 | A session through an intermediate UPF and an anchor, over N9 (free5GC)
    """
    core.plane = CHAIN
    core.start()
    session, end = attach(core, gnb)
    assert (chain.sessions("upf"), chain.sessions("core")) == (1, 1)
    for payload in numbered(20, 1300):
        assert end.echoes(payload)
    core.order("idle", session)
    core.events.clear()
    with chain.net.spaces["dn"].socket(DN[0], 0) as server:
        for payload in numbered(10):
            server.sendto(payload, (end.ue, end.port))
    core.event("paging", supi=session.supi)
    end.downlink_teid = TEIDS + 0x50
    core.order("serve", session, gnb={"address": GNB, "teid": end.downlink_teid})
    came = [end.receive() for _ in range(10)]
    assert [found and found[0] for found in came] == numbered(10)
    core.order("release", session)
    wait_until(lambda: (chain.sessions("upf"), chain.sessions("core")) == (0, 0), "both sessions end")


def test_an_uplink_classifier_leads_to_two_anchors(chain: Chain, core: Core, gnb: Access) -> None:
    """Packets for the edge go to the second anchor, all others to the first; answers come back from both.

    Conformance: TS 23.501 5.6.4.2 | An uplink classifier in front of two anchors (free5GC)
    """
    core.plane, core.routes = FORK, PATHS
    core.start(granted=100_000)
    core.configure(RATE, for_all(), granted=100_000)
    session, end = attach(core, gnb)
    wait_until(lambda: goes_both_ways(end, EDGE), f"the edge answers {drops(chain)}", 20)
    for _ in range(20):
        assert goes_both_ways(end, DN), drops(chain)
        assert goes_both_ways(end, EDGE), drops(chain)
    assert [chain.sessions(name) for name in chain.nodes] == [1, 1, 1]
    core.order("release", session)
    wait_until(lambda: not any(chain.sessions(name) for name in chain.nodes), "all sessions end")


def for_all() -> dict[str, object]:
    """A decision whose charging is of the whole session: this SMF's classifier needs one."""
    flow = {"flowDescription": "permit out ip from any to assigned", "flowDirection": "BIDIRECTIONAL"}
    rule = {"pccRuleId": "all", "precedence": 200, "flowInfos": [flow]}
    money = {"chgId": "money", "ratingGroup": 7, "offline": True}
    route = {"tcId": "route", "routeToLocs": [{"dnai": PLACE}]}
    return policy(
        RATE,
        pccRules={"all": rule | {"refChgData": ["money"], "refTcData": ["route"]}},
        chgDecs={"money": money},
        traffContDecs={"route": route},
    )


def drops(chain: Chain) -> dict[str, dict[str, int]]:
    """What each node dropped."""
    return {name: node.drops() for name, node in chain.nodes.items()}
