"""Two data networks behind one user plane, each with a default route, and with the same host behind it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig.http import ask
from rig.net import FAR, Cable, Topology, wait_until
from rig.node import Node, Sim, port

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "ping")

#: UEs of the second network; those of the first are the usual ones.
UES = "10.61.0.0/16"
GATEWAYS = {"internet": "10.100.6.2", "ims": "10.100.7.2"}


class Networks(Topology):
    """The usual network, and a second data network."""

    def __init__(self, prefix: str) -> None:
        """Name the namespaces."""
        second = Cable("ims", "eth0", ["10.100.7.2/24"], "upf", "n6b", ["10.100.7.1/24"])
        super().__init__(prefix, more={"ims": second})
        self.ims = self.spaces["ims"]

    def route(self) -> None:
        """UEs are behind the node, and the same host is in both networks."""
        super().route()
        self.ims.ip("route", "add", UES, "via", "10.100.7.1")
        for space in (self.dn, self.ims):
            space.ip("address", "add", f"{FAR}/32", "dev", "lo")
        self.ran.ip("address", "add", "10.100.4.3/24", "dev", "smf0")
        self.ran.ip("address", "add", "10.100.3.3/24", "dev", "gnb0")
        self.take_redirected()
        self.ims.run("ethtool", "-K", "eth0", "gro", "on")

    def heard(self) -> dict[str, int]:
        """How many echo requests each network's host was sent."""
        return {
            name: int(space.run("nstat", "-az", "IcmpInEchos").stdout.split()[-2])
            for name, space in (("internet", self.dn), ("ims", self.ims))
        }


@pytest.fixture
def networks() -> Iterator[Networks]:
    """The namespaces."""
    with Networks(f"kn{os.getpid()}-") as made:
        yield made


def node_of(binary: Path, net: Networks, folder: Path, datapath: str, **tables: int) -> Node:
    """A user plane with a port for each network."""
    ports = [
        port(
            "n6",
            "af_xdp",
            f'network_instance = "{name}"',
            *([f"route_table = {tables[name]}"] if name in tables else []),
            name=interface,
            interface=interface,
        )
        for name, interface in (("internet", "n6"), ("ims", "n6b"))
    ]
    return Node(binary, net.upf, folder, datapath=datapath, n6="".join(ports)).start()


def by_the_kernel(node: Node) -> int:
    """Packets from UEs that the kernel forwarded."""
    (n3,) = (port for port in ask(node.socket, "GET", "/v1/ports")[1]["ports"] if port["name"] == "n3")
    return int(n3["kernel_packets"] or 0)


def ue(binary: Path, net: Networks, folder: Path, name: str, number: int) -> Sim:
    """A UE of a network."""
    arguments = (
        f"--upf-pfcp 10.100.4.1 --smf 10.100.4.{2 + number} --network-instance {name} --upf-gtpu 10.100.3.1 "
        f"--gnb 10.100.3.{2 + number} --ue-ipv4 10.6{number}.0.1 --first-teid {1 + 100 * number} "
        f"--tuns 1 --tun-prefix {name} --hold"
    )
    return Sim(binary, net.ran, folder, arguments.split(), name=name).start()


@pytest.mark.parametrize("datapath", ["engine", "xdp"])
@pytest.mark.parametrize("has_tables", [False, True])
def test_each_network_has_a_default_route_of_its_own(
    binary: Path, networks: Networks, tmp_path: Path, datapath: str, has_tables: bool
) -> None:
    """In the main table, where one has the better metric, or in tables of their own.

    Conformance: TS 23.501 5.6.12 | Two data networks with the same addresses, each by its own default route
    """
    tables = {"internet": 100, "ims": 200} if has_tables else {}
    for metric, (name, gateway) in enumerate(GATEWAYS.items()):
        where = ["table", str(tables[name])] if has_tables else ["metric", str(10 + metric)]
        networks.upf.ip("route", "add", "default", "via", gateway, *where)
    if has_tables:
        # The management's way out: no UE's packet leaves by it.
        networks.upf.ip("route", "add", "default", "via", "10.100.4.2")
    node = node_of(binary, networks, tmp_path, datapath, **tables)
    sims = [ue(binary, networks, tmp_path, name, number) for number, name in enumerate(GATEWAYS)]
    for name, count in (("ims", 5), ("internet", 3)):
        before = networks.heard()
        forwarded = by_the_kernel(node)
        assert networks.ran.pings(FAR, "-I", f"{name}0", count=count), node.drops()
        # The first may have gone by a worker, which asks for the gateway.
        in_kernel = by_the_kernel(node) - forwarded
        assert in_kernel >= count - 1 if datapath == "xdp" else in_kernel == 0
        heard = {other: after - before[other] for other, after in networks.heard().items()}
        assert heard == {**dict.fromkeys(GATEWAYS, 0), name: count}
    # One of them loses its way, and the other does not.
    where = ["table", "200"] if has_tables else ["metric", "11"]
    networks.upf.ip("route", "delete", "default", "via", GATEWAYS["ims"], *where)
    vrf = f"/v1/routes?address={FAR}&vrf=ims"
    wait_until(lambda: ask(node.socket, "GET", vrf)[1]["total"] == 0, "the route is gone")
    # The kernel's datapath hears of it a moment later.
    wait_until(
        lambda: not networks.ran.pings(FAR, "-I", "ims0", count=1, patience=1), "nothing goes there any more"
    )
    assert networks.ran.pings(FAR, "-I", "internet0", count=1)
    assert set(node.drops()) == {"n3 no_route"}
    for sim in sims:
        sim.stop()
    assert node.stop() == 0
