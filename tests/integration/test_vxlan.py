"""A VXLAN endpoint opposite the kernel's, alone and beside other functions in one process.

::

    host ── lan (veth) ── node ── under (veth) ── peer, with a vxlan device of the kernel
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rig.flow import flow
from rig.gre import INNER_LEFT, start_peer
from rig.net import Cable, Namespace, Network, run, wait_until
from rig.node import Node
from test_reload import reload, write

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "ping", "curl")

VNI = 4711
NODE = {4: "192.0.2.1", 6: "fd00:2::1"}
PEER = {4: "192.0.2.2", 6: "fd00:2::2"}
#: In the segment, on both sides.
HOST_INNER, PEER_INNER = "10.8.0.1", "10.8.0.2"
#: Behind the header remover.
INNER_RIGHT = "10.9.0.2"

CABLES = (
    Cable("host", "eth0", [f"{HOST_INNER}/24"], "node", "lan", []),
    # Room for the outer headers of a packet of 1500 octets.
    Cable(
        "peer",
        "eth0",
        [f"{PEER[4]}/24", f"{PEER[6]}/64"],
        "node",
        "under",
        [f"{NODE[4]}/24", f"{NODE[6]}/64"],
        1600,
    ),
    Cable("left", "eth0", ["192.0.3.1/24", "fd00:1::1/64"], "node", "k0", []),
    Cable("right", "eth0", ["192.0.3.2/24", "fd00:1::2/64"], "node", "k1", []),
)


class Segment(Network):
    """The namespaces `host`, `node` and `peer`; and `left` and `right` for a function beside."""

    def __init__(self, prefix: str) -> None:
        """Name them with a prefix."""
        super().__init__(prefix, ("host", "node", "peer", "left", "right"), CABLES)
        self.host, self.node, self.peer = (self.spaces[name] for name in ("host", "node", "peer"))

    def route(self) -> None:
        """A veth takes what XDP sends it only where it gathers packets."""
        for space in self.spaces.values():
            if space is not self.node:
                space.run("ethtool", "-K", "eth0", "gro", "on")

    def vxlan(self, family: int, vni: int = VNI) -> None:
        """The kernel's endpoint in `peer`."""
        ends = ["local", PEER[family], "remote", NODE[family]]
        done = run(
            "ip",
            "-n",
            self.peer.name,
            "link",
            "add",
            "vx",
            "type",
            "vxlan",
            "id",
            str(vni),
            "dstport",
            "4789",
            *ends,
            check=False,
        )
        if done.returncode != 0:
            pytest.skip("this kernel has no vxlan")
        self.peer.ip("address", "replace", f"{PEER_INNER}/24", "dev", "vx")
        self.peer.ip("link", "set", "vx", "up")


@dataclass
class Endpoint(Node):
    """`kaido run` as a VXLAN endpoint, and what else is in its file."""

    family: int = 4
    functions: str = '"vxlan"'
    own: str = ""

    @property
    def config(self) -> str:
        """The configuration."""

        def port(name: str) -> str:
            return f'[[port]]\nname = "{name}"\n{self.own}driver = "{self.driver}"\ninterface = "{name}"'

        return "\n".join(
            (
                f"function = {self.functions}",
                "[node]\nframes = 8192",
                f'[control]\nsocket = "{self.socket}"',
                '[metrics]\nlisten = "127.0.0.1"',
                port("lan"),
                port("under"),
                f'[[vxlan.segment]]\nvni = {VNI}\nport = "lan"',
                f'local = "{NODE[self.family]}"\nremotes = ["{PEER[self.family]}"]',
                self.more,
            )
        )

    def segment(self) -> dict[str, object]:
        """What `kaido show vxlan` has of the segment."""
        done = run(str(self.binary), "show", "vxlan", "--json", "--socket", str(self.socket))
        (found,) = json.loads(done.stdout)["segments"]
        return dict(found)

    def get(self, path: str) -> str:
        """A document of the node's, by HTTP."""
        return self.space.run(
            "curl", "--silent", "--fail", "--max-time", "10", f"http://127.0.0.1:9105{path}"
        ).stdout


@pytest.fixture
def net() -> Iterator[Segment]:
    """The hosts, with names of their own, so that others may run beside."""
    with Segment(f"kv{os.getpid()}-") as network:
        yield network


Start = Callable[..., Endpoint]


@pytest.fixture
def start(binary: Path, net: Segment, tmp_path: Path) -> Iterator[Start]:
    """Starts the node."""
    started: list[Endpoint] = []

    def endpoint(driver: str, **more: object) -> Endpoint:
        node = Endpoint(binary, net.node, tmp_path, driver, **more)  # type: ignore[arg-type]
        node.start()
        started.append(node)
        return node

    yield endpoint
    for node in started:
        if not node.ended():
            assert node.stop() == 0


def answers(space: Namespace, address: str) -> None:
    """Wait until a host answers, however long ARP takes."""
    wait_until(
        lambda: space.run("ping", "-c", "1", "-W", "1", address, check=False).returncode == 0,
        f"{address} does not answer",
    )


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("driver", ["af_packet", "af_xdp"])
def test_a_segment_is_one_ethernet(net: Segment, start: Start, driver: str, family: int) -> None:
    """ARP, ping and datagrams between a host and the kernel's endpoint; none is lost, each is counted."""
    node = start(driver, family=family)
    net.vxlan(family)
    answers(net.host, PEER_INNER)
    assert flow(net.host, HOST_INNER, net.peer, PEER_INNER, 500, 1400) == list(range(500))
    assert flow(net.peer, PEER_INNER, net.host, HOST_INNER, 500, 1400) == list(range(500))
    counted = node.segment()
    for direction in ("encapsulated", "decapsulated"):
        of_direction = counted[direction]
        assert isinstance(of_direction, list)
        packets, octets = of_direction
        assert packets > 500
        assert octets > 500 * 1400
    sample = f'kaido_vxlan_frames_total{{vni="{VNI}",direction="encapsulated"}}'
    assert sample in node.get("/metrics")
    drops = {name for name in node.drops() if "vxlan" in name}
    assert not drops


def test_frames_of_other_segments_are_counted(net: Segment, start: Start) -> None:
    """The kernel's endpoint has another number."""
    node = start("af_packet")
    net.vxlan(4, VNI + 1)
    net.peer.run("ping", "-c", "2", "-i", "0.2", "-W", "1", HOST_INNER, check=False)
    wait_until(lambda: node.drops().get("under vxlan_vni_unknown", 0) >= 1, "frames of another segment")


def test_endpoints_change_while_frames_pass(net: Segment, start: Start) -> None:
    """Those that are gone are strangers, those that come are sent to; what is refused changes nothing."""
    node = start("af_xdp")
    net.vxlan(4)
    answers(net.host, PEER_INNER)
    assert flow(net.host, HOST_INNER, net.peer, PEER_INNER, 100, 1400) == list(range(100))
    remotes = f'remotes = ["{PEER[4]}"]'
    write(node, (remotes, 'remotes = ["192.0.2.9"]'))
    assert reload(node)[0] == 0
    before = node.drops().get("under vxlan_remote_unknown", 0)
    net.peer.run("ping", "-c", "2", "-i", "0.2", "-W", "1", HOST_INNER, check=False)
    assert node.drops()["under vxlan_remote_unknown"] >= before + 2
    assert node.segment()["remotes"] == ["192.0.2.9"]
    # Together with a field that cannot change none does.
    local = f'local = "{NODE[4]}"'
    write(node, (remotes, f'remotes = ["{PEER[4]}", "192.0.2.9"]'), (local, 'local = "192.0.2.3"'))
    code, said = reload(node)
    assert code == 1
    assert "cannot change: sockets and programs are opened for the address" in said, said
    assert node.segment()["remotes"] == ["192.0.2.9"]
    write(node, (remotes, f'remotes = ["{PEER[4]}", "192.0.2.9"]'))
    assert reload(node)[0] == 0
    answers(net.host, PEER_INNER)
    assert flow(net.peer, PEER_INNER, net.host, HOST_INNER, 100, 1400) == list(range(100))
    write(node, (f"vni = {VNI}", f"vni = {VNI + 1}"))
    assert reload(node)[0] == 0
    assert node.segment()["decapsulated"] == [0, 0]
    assert node.segment()["vni"] == VNI + 1
    net.peer.run("ping", "-c", "2", "-i", "0.2", "-W", "1", HOST_INNER, check=False)
    wait_until(
        lambda: node.drops().get("under vxlan_vni_unknown", 0) >= 1, "the segment of before is unknown"
    )
    write(node)
    assert reload(node)[0] == 0
    answers(net.host, PEER_INNER)


def test_functions_run_side_by_side(net: Segment, start: Start, tmp_path: Path) -> None:
    """A VXLAN endpoint, a GRE header remover and an NDN router in one process, each on ports of its own."""
    gre = "\n".join(
        f'[[port]]\nname = "{name}"\nfunction = "gre"\ndriver = "af_packet"\n'
        f'interface = "{name}"\npeer_port = "{other}"'
        for name, other in (("k0", "k1"), ("k1", "k0"))
    )
    ndn = f'[ndn.listen]\nunix = "{tmp_path}/ndn.sock"\nudp = []\ntcp = []\nmulticast = []'
    node = start(
        "af_packet", functions='["vxlan", "gre", "ndn"]', own='function = "vxlan"\n', more=f"{gre}\n{ndn}"
    )
    net.vxlan(4)
    answers(net.host, PEER_INNER)
    left = net.spaces["left"]
    start_peer(left, ("192.0.3.1", "192.0.3.2"), [f"{INNER_LEFT[4]}/24"], None, tmp_path)
    net.spaces["right"].ip("address", "add", f"{INNER_RIGHT}/24", "dev", "eth0")
    net.spaces["right"].ip("route", "add", f"{INNER_LEFT[4]}/32", "via", "192.0.3.1")
    left.run("ping", "-c", "3", "-i", "0.2", "-W", "1", "-I", "gre1", INNER_RIGHT, check=False)

    status = node.ask("status")
    assert status is not None
    assert status["function"] == "vxlan, gre, ndn"
    ports = status["ports"]
    assert isinstance(ports, list)
    assert [port["name"] for port in ports[:4]] == ["lan", "under", "k0", "k1"]
    received = {port["name"]: port["rx_packets"] for port in ports}
    assert received["lan"] > 0
    assert received["k0"] > 0
    assert status["workers"] == 3

    rules = json.loads(run(str(node.binary), "show", "gre", "--json", "--socket", str(node.socket)).stdout)[
        "rules"
    ]
    assert [rule["name"] for rule in rules] == ["all"]
    assert rules[0]["packets"] > 0
    metrics = node.get("/metrics")
    for line in (
        'kaido_build_info{version="',
        'function="gre"',
        'kaido_gre_rule_packets_total{rule="all",verdict="decapsulate"}',
        f'kaido_vxlan_frames_total{{vni="{VNI}",direction="decapsulated"}}',
        'kaido_ndn_pending_interests{worker="2"}',
        "kaido_workers 3",
    ):
        assert line in metrics, line
    assert not [line for line in metrics.splitlines() if 'port="k0",reason="vxlan' in line], (
        "of another function"
    )
    samples = [line.rpartition(" ")[0] for line in metrics.splitlines() if not line.startswith("#")]
    assert len(samples) == len(set(samples))
    assert node.get("/healthz") == "ok\n"
    trace = node.watch("tracing k0", "trace", "--port", "k0", "--count", "1")
    left.run("ping", "-c", "3", "-i", "0.2", "-W", "1", "-I", "gre1", INNER_RIGHT, check=False)
    assert "k0 in" in trace.communicate(timeout=60)[0]
    assert node.stop() == 0
