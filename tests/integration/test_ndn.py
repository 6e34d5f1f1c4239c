"""The NDN router with others: python-ndn's applications, ndnd's tools, and its forwarder as a neighbour."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rig.lossy import LossyRelay
from rig.ndn import FAR, NEAR, NEAR_V6, Hosts, Router, digest, fetch, serve
from rig.net import Namespace, NetError, wait_until

pytestmark = pytest.mark.needs("root", "ip", "ethtool")

#: What is published: not a whole number of segments.
OCTETS = 10_000_001

#: ndnd as a forwarder: a Unix socket and UDP.
NDND = """\
core: {{log_level: INFO}}
faces:
  udp: {{enabled_unicast: true, enabled_multicast: false, port_unicast: 6363}}
  tcp: {{enabled: false}}
  unix: {{enabled: true, socket_path: {socket}}}
  websocket: {{enabled: false}}
  http3: {{enabled: false}}
"""


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """The hosts, with names of their own, so that others may run beside."""
    with Hosts(f"kn{os.getpid()}-") as network:
        yield network


StartRouter = Callable[..., Router]


@pytest.fixture
def router(binary: Path, hosts: Hosts, tmp_path: Path) -> Iterator[StartRouter]:
    """Starts routers; the first is on `near`, as the usual one."""
    started: list[Router] = []

    def start(space: Namespace | None = None, **settings: object) -> Router:
        name = f"router{len(started)}"
        node = Router(binary, space or hosts.near, tmp_path, name=name, **settings)  # type: ignore[arg-type]
        started.append(node)
        node.start()
        return node

    yield start
    for node in started:
        if not node.ended():
            assert node.stop() == 0


@pytest.fixture
def big(tmp_path: Path) -> Path:
    """A file of random octets."""
    file = tmp_path / "big"
    file.write_bytes(os.urandom(OCTETS))
    return file


class Ndnd:
    """ndnd's programs."""

    def __init__(self, folder: Path, work: Path) -> None:
        """Find them in a folder; what they say goes to another."""
        self.program = str(folder / "ndnd")
        self.work = work

    def run(self, space: Namespace, transport: str, *arguments: str) -> bytes:
        """Run a tool to its end; what it prints."""
        command = space.command("env", f"NDN_CLIENT_TRANSPORT={transport}", self.program, *arguments)
        done = subprocess.run(command, capture_output=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def start(self, space: Namespace, transport: str, *arguments: str, given: Path | None = None) -> Path:
        """Start a tool, which reads a file if it is given one; its log."""
        log = self.work / f"ndnd-{arguments[0]}-{len(space.children)}.log"
        command = space.command("env", f"NDN_CLIENT_TRANSPORT={transport}", self.program, *arguments)
        with (given or Path(os.devnull)).open() as text, log.open("w") as out:
            space.children.append(subprocess.Popen(command, stdin=text, stdout=out, stderr=out, text=True))
        return log

    def put(self, space: Namespace, transport: str, prefix: str, file: Path) -> None:
        """Publish a file, and wait until its prefix is registered."""
        log = self.start(space, transport, "put", "--expose", prefix, given=file)
        wait_until(lambda: "Registered route" in log.read_text(), f"ndnd registers {prefix}")

    def forwarder(self, space: Namespace) -> str:
        """Start the forwarder; how applications reach it."""
        socket, config = self.work / "ndnd.sock", self.work / "ndnd.yml"
        config.write_text(NDND.format(socket=socket))
        self.start(space, "", "fw", "run", str(config))
        wait_until(socket.exists, "ndnd's forwarder")
        return f"unix://{socket}"


@pytest.fixture
def ndnd(go_peer: Callable[[str], Path], tmp_path: Path) -> Ndnd:
    """ndnd's programs, built."""
    return Ndnd(go_peer("ndnd"), tmp_path)


def both_work(node: Router) -> None:
    """All workers have had a fair part of the packets."""
    shares = node.shares()
    assert len(shares) == node.workers
    assert min(shares) > 0.6 / node.workers, shares


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_python_ndn_publishes_and_fetches(
    kind: str, workers: int, router: StartRouter, hosts: Hosts, big: Path, tmp_path: Path
) -> None:
    """python-ndn registers a prefix by a signed command, is asked, and its Data comes with equal bytes.

    Conformance: NDN management rib | python-ndn registers prefixes, and consumers of it get their Data
    """
    node = router(workers=workers)
    serve(hosts.near, node.transport(kind), "/py/big", big, tmp_path)
    for asked in ("unix", "tcp", "udp"):
        assert fetch(hosts.near, node.transport(asked), "/py/big") == digest(big), f"over {asked}"
    assert fetch(hosts.near, node.transport(kind), "/nowhere") == "nack 150"
    both_work(node)


@pytest.mark.parametrize("workers", [1, 2])
def test_python_ndn_over_two_routers(
    workers: int, router: StartRouter, hosts: Hosts, big: Path, tmp_path: Path
) -> None:
    """Over UDP between two hosts, in fragments that leave no packet to the kernel to cut.

    Conformance: NDNLPv2 fragmentation | Two routers cut and join packets of 10 MB over a link of 1500 octets
    """
    route = f'[[ndn.face]]\nremote = "udp4://{FAR}"\n[[ndn.route]]\nprefix = "/py"\nto = "udp4://{FAR}"\n'
    near = router(udp_mtu=1400, more=route, workers=workers)
    far = router(space=hosts.far, udp_mtu=1400, workers=workers)
    serve(hosts.far, far.transport("unix"), "/py/big", big, tmp_path)
    assert fetch(hosts.near, near.transport("unix"), "/py/big") == digest(big)
    assert fetched_in_fragments(hosts)
    both_work(near)
    both_work(far)


@pytest.mark.parametrize("driver", ["af_xdp", "af_packet"])
def test_two_routers_over_ethernet(
    driver: str, router: StartRouter, hosts: Hosts, big: Path, tmp_path: Path
) -> None:
    """Without IP: frames of type 0x8624 between ports of the engine; the other router learns the station."""
    port = f'[[port]]\nname = "eth0"\ndriver = "{driver}"\ninterface = "eth0"\n'
    for space in (hosts.near, hosts.far):
        # A veth takes what XDP sends it only where it gathers packets.
        space.run("ethtool", "-K", "eth0", "gro", "on")
    station = f"ether://[{hosts.far.mac('eth0')}]"
    face = f'[[ndn.face]]\nremote = "{station}"\nlocal = "dev://eth0"\n'
    near = router(more=f'{port}{face}[[ndn.route]]\nprefix = "/py"\nto = "{station}"\n')
    far = router(space=hosts.far, more=port)
    serve(hosts.far, far.transport("unix"), "/py/big", big, tmp_path)
    assert fetch(hosts.near, near.transport("unix"), "/py/big") == digest(big)
    assert hosts.near.run("ping", "-c", "1", "-W", "5", FAR).returncode == 0, "IP stays the kernel's"


#: A router that takes UDP in its workers, on the port that its neighbour is behind.
ON_PORT: dict[str, object] = {
    "udp": (),
    "udp_on_ports": (f"{NEAR}:6363", f"[{NEAR_V6}]:6363"),
}


def on_port(driver: str, hosts: Hosts) -> str:
    """The configuration of that port."""
    for space in (hosts.near, hosts.far):
        space.run("ethtool", "-K", "eth0", "gro", "on")
    return f'[[port]]\nname = "eth0"\ndriver = "{driver}"\ninterface = "eth0"\n'


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("driver", ["af_xdp", "af_packet"])
def test_udp_on_the_engines_ports(
    driver: str, workers: int, router: StartRouter, hosts: Hosts, big: Path, tmp_path: Path
) -> None:
    """python-ndn, over the kernel's UDP on another host, fetches from a router that has no socket for it.

    Conformance: NFD faces UDP | python-ndn on another host speaks to a port of the engine, over IPv4 and IPv6
    """
    node = router(more=on_port(driver, hosts), workers=workers, **ON_PORT)
    serve(hosts.near, node.transport("unix"), "/py/big", big, tmp_path)
    for asked in (f"udp://{NEAR}:6363", f"udp://[{NEAR_V6}]:6363"):
        assert fetch(hosts.far, asked, "/py/big") == digest(big), asked
    faces = [face for face in node.faces() if face["remote"].startswith("udp")]
    assert [(face["local"], face["persistency"], face["mtu"]) for face in faces] == [
        (f"udp4://{NEAR}:6363", "on-demand", 8800),
        (f"udp6://[{NEAR_V6}]:6363", "on-demand", 8800),
    ]
    assert all(face["received"]["interests"] >= OCTETS // 7000 for face in faces)
    assert hosts.far.run("ping", "-c", "1", "-W", "5", NEAR).returncode == 0, (
        "the rest of IP stays the kernel's"
    )


@pytest.mark.parametrize("driver", ["af_xdp", "af_packet"])
def test_ndnd_is_a_neighbour_of_the_engines_ports(
    driver: str, router: StartRouter, hosts: Hosts, big: Path, ndnd: Ndnd
) -> None:
    """ndnd's forwarder over UDP, both ways, with packets that the kernel and we cut into fragments of IP.

    Conformance: NFD faces UDP | ndnd as a neighbour of a port of the engine, with fragments of IP both ways
    """
    hosts.slow_down()
    face = f"udp4://{FAR}:6363"
    route = f'[[ndn.face]]\nremote = "{face}"\n[[ndn.route]]\nprefix = "/far"\nto = "{face}"\n'
    near = router(more=on_port(driver, hosts) + route, **ON_PORT)
    far = ndnd.forwarder(hosts.far)
    ndnd.put(hosts.far, far, "/far/big", big)
    ndnd.put(hosts.near, near.transport("unix"), "/near/big", big)
    assert ndnd.run(hosts.near, near.transport("unix"), "cat", "/far/big") == big.read_bytes()
    ndnd.run(hosts.far, far, "fw", "route-add", "prefix=/near", f"face=udp4://{NEAR}:6363")
    assert ndnd.run(hosts.far, far, "cat", "/near/big") == big.read_bytes()
    made = next(listed for listed in near.faces() if listed["remote"] == face)
    assert (made["persistency"], made["local"]) == ("permanent", f"udp4://{NEAR}:6363")
    more = near.ndn("face", "create", "udp6://[fd00:7::9]:6363", "--local", "dev://eth0")
    assert more["local"] == f"udp6://[{NEAR_V6}]:6363"
    more = near.ndn("face", "create", "udp4://10.7.0.9:6363", "--local", f"udp4://{NEAR}:6363")
    assert more["remote"] == "udp4://10.7.0.9:6363"
    assert near.drops() == {} or not any("malformed" in reason for reason in near.drops())


def test_a_router_says_which_address_no_port_has(router: StartRouter, hosts: Hosts) -> None:
    """UDP is taken from ports that have its address, and where nobody else takes it."""
    for address, said in (("192.0.2.9:6363", "no port has the address 192.0.2.9"),):
        with pytest.raises(NetError) as refused:
            router(more=on_port("af_packet", hosts), udp=(), udp_on_ports=(address,))
        assert said in " ".join(str(refused.value).split())


@pytest.mark.parametrize("family", ["udp4", "udp6"])
def test_groups_on_several_interfaces(family: str, router: StartRouter, hosts: Hosts, tmp_path: Path) -> None:
    """Routers meet in the groups of both families; of several interfaces each has its own faces.

    Conformance: NFD faces multicast | Groups of both families on several interfaces, a face for each
    """
    hosts.near.ip("link", "add", "other0", "type", "veth", "peer", "name", "other1")
    hosts.near.ip("link", "set", "other1", "up")
    hosts.near.ip("address", "add", "10.8.0.1/24", "dev", "other0")
    hosts.near.ip("address", "add", "fd00:8::1/64", "dev", "other0", "nodad")
    hosts.near.ip("link", "set", "other0", "up")
    content = tmp_path / "content"
    content.write_bytes(os.urandom(300_000))
    near = router(udp_mtu=1400, multicast=("other0", "eth0"))
    far = router(space=hosts.far, udp_mtu=1400, multicast=("eth0",))
    groups = [face for face in near.faces() if face["link"] == "multi-access"]
    assert [face["remote"].split(":")[0] for face in groups] == ["udp4", "udp6", "udp4", "udp6"]
    assert [face["local"] for face in groups[1::2]] == ["dev://other0", "dev://eth0"]
    assert [face["local"] for face in groups[::2]] == ["udp4://10.8.0.1:56363", f"udp4://{NEAR}:56363"]
    serve(hosts.far, far.transport("unix"), "/py/content", content, tmp_path)
    used = groups[2:][family == "udp6"]
    near.tell("route", "add", "/py", str(used["face"]))
    assert fetch(hosts.near, near.transport("unix"), "/py/content") == digest(content)
    for face in near.faces():
        if face["link"] == "multi-access":
            assert (face["received"]["data"] >= 43) == (face["face"] == used["face"]), face
            assert face["received"]["interests"] == 0, "what it sends does not come back"


def fetched_in_fragments(hosts: Hosts) -> bool:
    """Whether the kernel has cut nothing and the cable carried it."""
    counted = hosts.far.run("cat", "/proc/net/snmp").stdout.splitlines()
    names, values = (line.split()[1:] for line in counted if line.startswith("Ip:"))
    return dict(zip(names, values, strict=True))["FragCreates"] == "0"


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_ndnd_tools(
    kind: str, workers: int, router: StartRouter, hosts: Hosts, big: Path, ndnd: Ndnd
) -> None:
    """ndnd's ping, put and cat, and its commands to a forwarder.

    Conformance: NDN management datasets | ndnd's tools read them all
    """
    node = router(cached=100, workers=workers)
    transport = node.transport(kind)
    log = ndnd.start(hosts.near, transport, "pingserver", "/ping")
    wait_until(lambda: "Registered route" in log.read_text(), "the ping server")
    assert b"3 received, 0% lost" in ndnd.run(hosts.near, transport, "ping", "-c", "3", "-i", "50", "/ping")
    ndnd.put(hosts.near, transport, "/big", big)
    # Of ndnd it is the forwarder that speaks UDP.
    for asked in ("unix", "tcp"):
        assert ndnd.run(hosts.near, node.transport(asked), "cat", "/big") == big.read_bytes(), f"over {asked}"
    both_work(node)
    for command, shown in (
        ("status", b"version=Kaido"),
        ("face-list", b"remote=internal://"),
        ("route-list", b"prefix=/big nexthop="),
        ("fib-list", b"/localhost/nfd nexthops="),
        ("cs-info", b"capacity=100"),
        ("strategy-list", b"strategy=/localhost/nfd/strategy/best-route"),
    ):
        assert shown in ndnd.run(hosts.near, transport, "fw", command), command
    # Over TCP ndnd takes a router for one of another host, of which it commands the RIB alone.
    strategy = "strategy=/localhost/nfd/strategy/multicast"
    chosen = ndnd.run(hosts.near, node.transport("unix"), "fw", "strategy-set", "prefix=/m", strategy)
    assert b"Status=200" in chosen


@pytest.mark.parametrize("workers", [1, 2])
def test_ndnd_is_a_neighbour(workers: int, router: StartRouter, hosts: Hosts, big: Path, ndnd: Ndnd) -> None:
    """ndnd's forwarder over UDP, both ways, with small packets on the link.

    Conformance: NDNLPv2 PitToken | ndnd as a neighbour sends our tokens back, and we its own
    """
    hosts.slow_down()
    near = router(udp_mtu=700, workers=workers)
    far = ndnd.forwarder(hosts.far)
    ndnd.put(hosts.far, far, "/far/big", big)
    ndnd.put(hosts.near, near.transport("unix"), "/near/big", big)
    face = f"udp4://{FAR}:6363"
    ndnd.run(hosts.near, near.transport("unix"), "fw", "route-add", "prefix=/far", f"face={face}")
    assert ndnd.run(hosts.near, near.transport("unix"), "cat", "/far/big") == big.read_bytes()
    back = f"udp4://{NEAR}:6363"
    ndnd.run(hosts.far, far, "fw", "route-add", "prefix=/near", f"face={back}")
    assert ndnd.run(hosts.far, far, "cat", "/near/big") == big.read_bytes()
    assert near.drops() == {} or not any("malformed" in reason for reason in near.drops())


@pytest.mark.parametrize("workers", [1, 2])
def test_routers_send_again_what_is_lost_between_them(
    workers: int, router: StartRouter, hosts: Hosts
) -> None:
    """A third of the packets is lost on the way; every ping is answered, and none was asked twice.

    Conformance: NDNLPv2 reliability | Two routers lose nothing over a link that loses a third of the packets
    """
    ends = {hosts.far.socket(FAR, 7000): (NEAR, 6363), hosts.far.socket(FAR, 7001): (FAR, 6363)}
    to_far, to_near = f"udp4://{FAR}:7000", f"udp4://{FAR}:7001"
    route = f'[[ndn.route]]\nprefix = "/far"\nto = "{to_far}"\n'
    with LossyRelay(ends) as relay:
        near = router(more=f'[[ndn.face]]\nremote = "{to_far}"\nreliability = true\n{route}', workers=workers)
        far = router(space=hosts.far, workers=workers)
        made = far.ndn("face", "create", to_near)
        assert "reliability on" in far.tell("face", "update", str(made["face"]), "--reliability", "on")
        faces = [face for node in (near, far) for face in node.faces()]
        assert [face["remote"] for face in faces if face["reliability"]] == [to_far, to_near]
        hosts.far.start(str(far.binary), "ndn", "--router", far.transport("unix"), "ping", "/far", "--serve")
        wait_until(
            lambda: any(listed["prefix"] == "/far/ping" for listed in far.ndn("route", "list")),
            "the ping server",
        )
        pinged = near.ndn("ping", "/far", "--count", "30", "--interval", "0.01")
        assert (pinged["sent"], pinged["received"]) == (30, 30)
        # An Interest and a Data each; some of the acknowledgements alone were lost, too.
        assert relay.numbered == 60
        assert relay.lost >= 15
        assert not any("ndn_link_lost" in reason for node in (near, far) for reason in node.drops())
