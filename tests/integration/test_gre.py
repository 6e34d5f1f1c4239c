"""GRE header removal between real hosts: what is in tunnels loses them, and nothing else is touched."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Thread

import pytest
from rig.flow import flow
from rig.gre import (
    INNER_LEFT,
    LEFT,
    RIGHT,
    Remover,
    Wire,
    start_kernel_peer,
    start_peer,
)
from rig.net import Namespace, run, wait_until

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "ping", "curl")

#: Driver, datapath and where the program attaches.
DATAPATHS = {
    "af_packet": ("af_packet", "engine", "auto"),
    "af_xdp": ("af_xdp", "engine", "auto"),
    "xdp-native": ("af_xdp", "xdp", "native"),
    "xdp-generic": ("af_xdp", "xdp", "generic"),
}

#: TCP goes as fast as it can: a worker that had no processor for a while had no frame or no room either.
HURRIED = {"rx_no_frame", "rx_ring_full"}


@pytest.fixture
def wire() -> Iterator[Wire]:
    """The hosts, with names of their own, so that others may run beside."""
    with Wire(f"kg{os.getpid()}-") as network:
        yield network


Start = Callable[..., Remover]


@pytest.fixture
def start(binary: Path, wire: Wire, tmp_path: Path) -> Iterator[Start]:
    """Starts the node on a datapath, with rules."""
    started: list[Remover] = []

    def remover(datapath: str, rules: str = "", peer_port: bool = True) -> Remover:
        driver, what, attach = DATAPATHS[datapath]
        node = Remover(
            binary,
            wire.node,
            tmp_path,
            driver,
            datapath=what,
            attach=attach,
            rules=rules,
            peer_port=peer_port,
        )
        node.start()
        started.append(node)
        return node

    yield remover
    for node in started:
        if not node.ended():
            assert node.stop() == 0


def iperf(client: Namespace, server: Namespace, address: str, octets: int, *options: str) -> bool:
    """Whether TCP brings so many octets from one namespace to another, however long it takes."""
    serving = server.start("iperf3", "--server", "--one-off", "--bind", address)
    listening = ("ss", "--listening", "--tcp", "--numeric")
    wait_until(lambda: ":5201 " in server.run(*listening).stdout, "iperf3 listens")
    command = ("iperf3", "--client", address, "--json", "--bytes", str(octets), *options)
    said = json.loads(client.run(*command, timeout=300).stdout)
    serving.wait(timeout=60)
    # When the last are sent, some are still under way, and are not counted.
    return bool(said["end"]["sum_received"]["bytes"] > octets / 4)


def encapsulation(family: int, key: int | None) -> str:
    """Rules that take headers off on the way to the right, and put them on on the way back."""
    keyed = f"\nkey = {key}" if key is not None else ""
    ways = "".join(
        f'[[gre.encapsulation]]\nname = "back{inner}"\nport = "k1"\ndestination = "{network}"\n'
        f'local = "{RIGHT[family]}"\nremote = "{LEFT[family]}"{keyed}\n'
        for inner, network in ((4, "10.9.0.0/24"), (6, "fd00:9::/64"))
    )
    source = f"{LEFT[family]}/{128 if family == 6 else 32}"
    return f'[[gre.rule]]\nname = "off"\nport = "k0"\nsource = "{source}"{keyed}\n{ways}'


@pytest.mark.needs("iperf3")
@pytest.mark.parametrize("datapath", DATAPATHS)
def test_a_bump_in_the_wire_is_not_seen(wire: Wire, start: Start, datapath: str) -> None:
    """ARP, neighbour discovery, TCP and UDP between two hosts pass as they are, on every datapath."""
    node = start(datapath)
    for family in (4, 6):
        assert wire.left.pings(RIGHT[family])
        assert wire.right.pings(LEFT[family], "-s", "1400")
    assert flow(wire.left, LEFT[4], wire.right, RIGHT[4], 2000, 1400) == list(range(2000))
    assert node.reasons() == {}
    assert iperf(wire.left, wire.right, RIGHT[4], 20_000_000)
    assert iperf(wire.left, wire.right, RIGHT[6], 20_000_000, "--reverse")
    assert set(node.reasons()) <= HURRIED
    assert node.rule("all") == (0, 0)
    # Frames from the driver arrive because the links' far ends were prepared: elsewhere the log has this.
    assert ("`ethtool -K PEER gro on`" in node.log.read_text()) == datapath.startswith("xdp")


@pytest.mark.parametrize("datapath", DATAPATHS)
def test_a_wire_that_is_laid_again_is_a_wire_again(wire: Wire, start: Start, datapath: str) -> None:
    """An interface deleted and made again is bound again, and the other port's program sends out of it."""
    node = start(datapath)
    assert wire.left.pings(RIGHT[4])
    wire.node.ip("link", "delete", "k1")
    wait_until(lambda: "the interface is gone" in node.log.read_text(), "the node sees that it is gone")
    wire.lay(wire.cables[1])
    wire.right.run("ethtool", "-K", "eth0", "gro", "on")
    wait_until(lambda: "its port is bound to it" in node.log.read_text(), "the node sees that it is back")
    # The far end has another Ethernet address now.
    wire.left.ip("neigh", "flush", "all")
    wait_until(lambda: wire.left.pings(RIGHT[4], count=1, patience=1), "packets cross again")
    assert wire.right.pings(LEFT[4], "-s", "1400")


@pytest.mark.needs("iperf3")
@pytest.mark.parametrize("family", [4, 6], ids=["outer-ipv4", "outer-ipv6"])
@pytest.mark.parametrize("datapath", DATAPATHS)
def test_a_tunnel_ends_in_the_wire(
    wire: Wire, start: Start, tmp_path: Path, datapath: str, family: int
) -> None:
    """A GRE peer of user space talks to a host that has no tunnel; what comes back is put into one.

    Conformance: RFC 2784 2 | GRE headers are taken off and put on towards a peer of another make
    Conformance: RFC 2890 2.1 | Keys are matched and written
    """
    node = start(datapath, encapsulation(family, 7))
    inner = [f"{INNER_LEFT[4]}/32", f"{INNER_LEFT[6]}/128"]
    start_peer(wire.left, (LEFT[family], RIGHT[family]), inner, 7, tmp_path)
    talk_through_the_tunnel(wire, family)
    packets, octets = node.rule("off")
    assert packets > 100
    assert octets > 100_000
    assert min(node.rule("back4")[0], node.rule("back6")[0]) > 3
    if datapath.startswith("xdp"):
        (k0, _) = node.get("/v1/gre")["kernel"]
        assert k0["stripped"] == packets, "the driver did it all"
    assert set(node.reasons()) <= HURRIED


def talk_through_the_tunnel(wire: Wire, family: int) -> None:
    """Ping, TCP and UDP between an address in the tunnel and one of the host behind the node."""
    for inner, through in ((4, "10.8.0.2"), (6, "fd00:8::2")):
        wire.right.ip("address", "add", f"{through}/{32 if inner == 4 else 128}", "dev", "lo")
        wire.left.ip("route", "add", through, "dev", "gre1", "src", INNER_LEFT[inner])
        source = ("-I", INNER_LEFT[inner])
        # Neighbours of both sides are found with the first.
        wait_until(partial(wire.left.pings, through, *source, count=1, patience=2), f"{through} is reached")
        assert wire.left.pings(through, *source)
        assert wire.left.pings(through, *source, "-s", "1300")
    assert flow(wire.left, INNER_LEFT[4], wire.right, "10.8.0.2", 500, 1300) == list(range(500))
    bind = ("--bind", INNER_LEFT[4])
    assert iperf(wire.left, wire.right, "10.8.0.2", 8_000_000, *bind)
    assert iperf(wire.left, wire.right, "10.8.0.2", 8_000_000, *bind, "--reverse")
    # What is in no tunnel goes beside it.
    assert wire.left.pings(RIGHT[family])


@pytest.mark.needs("iperf3")
@pytest.mark.parametrize("family", [4, 6], ids=["gre", "ip6gre"])
def test_a_tunnel_of_the_kernel_ends_in_the_wire(wire: Wire, start: Start, family: int) -> None:
    """The same with the kernel's own GRE as the peer, where it has one."""
    inner = [f"{INNER_LEFT[4]}/32", f"{INNER_LEFT[6]}/128"]
    if not start_kernel_peer(wire.left, (LEFT[family], RIGHT[family]), inner, 7):
        pytest.skip(f"this kernel has no {'gre' if family == 4 else 'ip6gre'}")
    node = start("af_xdp", encapsulation(family, 7))
    talk_through_the_tunnel(wire, family)
    assert node.rule("off")[0] > 100
    assert set(node.reasons()) <= HURRIED


@pytest.mark.parametrize("datapath", ["af_packet", "af_xdp"])
def test_a_router_leaves_its_own_packets_to_the_kernel(
    wire: Wire, start: Start, tmp_path: Path, datapath: str
) -> None:
    """Tunnels to the node's own address end there, by rule; ARP and ping to it are the kernel's."""
    wire.right.ip("address", "del", "192.0.2.2/24", "dev", "eth0")
    for space, name, address in (
        (wire.node, "k0", "192.0.2.254/24"),
        (wire.node, "k1", "198.51.100.254/24"),
        (wire.right, "eth0", "198.51.100.2/24"),
    ):
        space.ip("address", "add", address, "dev", name)
    wire.right.ip("route", "replace", "10.9.0.0/24", "via", "198.51.100.254")
    rules = (
        '[[gre.rule]]\nname = "off"\nport = "k0"\ndestination = "192.0.2.254/32"\n'
        'ttl = "uniform"\nforward = "route"\n'
        '[[gre.encapsulation]]\nname = "back"\nport = "k1"\ndestination = "10.9.0.0/24"\n'
        'local = "192.0.2.254"\nremote = "192.0.2.1"\nforward = "route"\n'
    )
    node = start(datapath, rules, peer_port=False)
    start_peer(wire.left, ("192.0.2.1", "192.0.2.254"), [f"{INNER_LEFT[4]}/32"], None, tmp_path)
    wire.left.ip("route", "add", "198.51.100.2", "dev", "gre1", "src", INNER_LEFT[4])
    assert wire.left.pings("192.0.2.254")
    assert wire.right.pings("198.51.100.254")
    assert wire.left.pings("198.51.100.2", "-I", INNER_LEFT[4])
    assert node.rule("off")[0] >= 3
    assert node.rule("back")[0] >= 3


@pytest.mark.parametrize("datapath", DATAPATHS)
def test_a_rule_leaves_tunnels_to_the_kernel(wire: Wire, start: Start, tmp_path: Path, datapath: str) -> None:
    """`punt`: the node's own kernel, or a program behind it, ends the tunnel; others pass."""
    wire.node.ip("address", "add", "192.0.2.254/24", "dev", "k0")
    # Its host answers itself: packets to it come in at k0 and are the kernel's by their address.
    rules = '[[gre.rule]]\nname = "own"\ndestination = "192.0.2.254/32"\nverdict = "punt"\n'
    node = start(datapath, rules)
    start_peer(wire.node, ("192.0.2.254", "192.0.2.1"), ["10.8.0.2/32"], 7, tmp_path)
    start_peer(wire.left, ("192.0.2.1", "192.0.2.254"), ["10.9.0.1/32"], 7, tmp_path)
    # ARP goes to the peer port; who answers is the node itself, whose address is given.
    mac = wire.node.run("cat", "/sys/class/net/k0/address").stdout.strip()
    wire.left.ip("neighbour", "replace", "192.0.2.254", "lladdr", mac, "dev", "eth0")
    wire.left.ip("route", "add", "10.8.0.2", "dev", "gre1", "src", "10.9.0.1")
    wire.left.run("ping", "-c", "2", "-i", "0.2", "-W", "1", "10.8.0.2", check=False)
    wait_until(lambda: node.rule("own")[0] >= 2, "the rule is met")
    received = ("cat", "/sys/class/net/gre1/statistics/rx_packets")
    wait_until(lambda: int(wire.node.run(*received).stdout) >= 2, "the kernel's raw socket has the packets")


@pytest.mark.parametrize("datapath", DATAPATHS)
def test_rules_change_under_traffic(wire: Wire, start: Start, tmp_path: Path, datapath: str) -> None:
    """No packet is lost or meets rules of two files; what stays is counted on; mistakes change nothing."""
    # The peer's device also sends IPv6 of its own.
    off = f'[[gre.rule]]\nname = "off"\nsource = "{LEFT[4]}/32"\nkey = 7\ninner = ["ipv4"]\n'

    def other(number: int) -> str:
        return f'[[gre.rule]]\nname = "other{number}"\nkey = {100 + number}\nverdict = "drop"\n'

    node = start(datapath, off)
    start_peer(wire.left, (LEFT[4], RIGHT[4]), [f"{INNER_LEFT[4]}/32"], 7, tmp_path)
    wire.right.ip("address", "add", "10.8.0.2/32", "dev", "lo")
    wire.left.ip("route", "add", "10.8.0.2", "dev", "gre1", "src", INNER_LEFT[4])
    wire.right.ip("route", "add", INNER_LEFT[4], "via", LEFT[4])
    assert wire.left.pings(RIGHT[4])

    def take(rules: str, answer: int = 0) -> str:
        node.rules = rules
        (node.folder / "kaido.toml").write_text(node.config)
        done = run(str(node.binary), "reload", "--socket", str(node.socket), check=False)
        said = " ".join(f"{done.stdout} {done.stderr}".split())
        assert done.returncode == answer, said
        return said

    came: list[int] = []
    flowing = Thread(
        target=lambda: came.extend(flow(wire.left, INNER_LEFT[4], wire.right, "10.8.0.2", 2000, 1000))
    )
    flowing.start()
    changes = 0
    while flowing.is_alive():
        assert "gre.rule" in take(other(changes) * (changes % 2) + other(1000 + changes) + off)
        changes += 1
    flowing.join()
    assert came == list(range(2000))
    assert changes > 1
    assert node.rule("off")[0] == 2000
    assert set(node.reasons()) <= HURRIED
    # A mistake changes nothing.
    wrong = (
        '[[gre.rule]]\nname = "wrong"\nsource = "192.0.2.0/24"\ndestination = "fd00::/8"\nverdict = "drop"\n'
    )
    assert "give both of IPv4, or both of IPv6" in take(wrong + off, 1)
    assert flow(wire.left, INNER_LEFT[4], wire.right, "10.8.0.2", 10, 1000) == list(range(10))
    # Another verdict is counted anew.
    take(off + 'verdict = "drop"\n')
    with wire.left.socket(INNER_LEFT[4], 0) as sending:
        for _ in range(5):
            sending.sendto(b"x", ("10.8.0.2", 9))
    wait_until(lambda: node.reasons().get("gre_rule") == 5, "the new rule drops")
    assert node.rule("off")[0] == 5
    assert "has not taken" not in node.log.read_text()


#: A frame as scapy writes it, and the reason that it is dropped for.
MALFORMED = {
    "a version of its own": ("IP(src=L, dst=R) / GRE(version=1) / IP() / UDP()", "gre_version"),
    "routing": ("IP(src=L, dst=R, proto=47) / Raw(bytes.fromhex('4000080000000000') + INNER)", "gre_flags"),
    "strict source route": (
        "IP(src=L, dst=R, proto=47) / Raw(bytes.fromhex('08000800') + INNER)",
        "gre_flags",
    ),
    "recursion": ("IP(src=L, dst=R, proto=47) / Raw(bytes.fromhex('04000800') + INNER)", "gre_flags"),
    "cut off in the flags": ("IP(src=L, dst=R, proto=47) / Raw(bytes(2))", "gre_malformed"),
    "cut off in the key": ("IP(src=L, dst=R, proto=47) / Raw(bytes.fromhex('20000800'))", "gre_malformed"),
    "a wrong checksum": ("IP(src=L, dst=R) / GRE(chksum_present=1, chksum=1) / IP() / UDP()", "gre_checksum"),
    "nothing inside": ("IP(src=L, dst=R) / GRE(proto=0x800)", "inner_malformed"),
    "IPv6 that is none": ("IP(src=L, dst=R) / GRE(proto=0x86dd) / Raw(INNER)", "inner_malformed"),
    "a wrong outer checksum": ("IP(src=L, dst=R, chksum=1) / GRE() / IP() / UDP()", "ip_checksum"),
    "longer than its frame": ("IP(src=L, dst=R, len=1000) / GRE() / IP() / UDP()", "ip_malformed"),
    "congestion that cannot be told": (
        "IP(src=L, dst=R, tos=3) / GRE() / IP(tos=0) / UDP()",
        "congestion_mark",
    ),
    "a rule": ("IP(src=L, dst=R) / GRE(key_present=1, key=13) / IP() / UDP()", "gre_rule"),
    "over IPv6": ("IPv6(src=L6, dst=R6) / GRE(version=2) / IP() / UDP()", "gre_version"),
}

#: What the texts above name beside scapy's layers.
NAMES = {"L": LEFT[4], "R": RIGHT[4], "L6": LEFT[6], "R6": RIGHT[6]}
#: Sends a frame twice. It starts sooner than scapy.
SEND = """
import socket, sys
port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
port.bind(("eth0", 0))
for _ in range(2):
    port.send(bytes.fromhex(sys.argv[1]))
"""


@pytest.mark.parametrize("datapath", DATAPATHS)
def test_malformed_tunnel_packets_are_counted_by_what_is_wrong(
    wire: Wire, start: Start, datapath: str
) -> None:
    """Each kind has its reason, read by HTTP, and no other packet suffers.

    Conformance: RFC 2784 2.3 | Versions and flags that are not understood are refused
    Conformance: RFC 2784 2.5 | Checksums are verified
    """
    layers = vars(pytest.importorskip("scapy.all"))
    ethernet = layers["Ether"](src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    inner = bytes(eval("IP(src='10.9.0.1', dst='10.8.0.2') / UDP(sport=1, dport=2) / b'x'", layers))
    node = start(
        datapath, '[[gre.rule]]\nname = "no"\nkey = 13\nverdict = "drop"\n[[gre.rule]]\nname = "off"\n'
    )
    for what, (text, reason) in MALFORMED.items():
        before = node.reasons()
        frame = ethernet / eval(text, layers | NAMES | {"INNER": inner})
        wire.left.run(sys.executable, "-c", SEND, bytes(frame).hex())
        expected = before | {reason: before.get(reason, 0) + 2}
        try:
            wait_until(lambda expected=expected: node.reasons() == expected, what)
        except Exception as error:
            raise AssertionError(f"{what}: {before} became {node.reasons()}") from error
    assert node.rule("no")[0] == 2
    assert wire.left.pings(RIGHT[4])
    assert node.drops() == {f"k0 {reason}": count for reason, count in node.reasons().items()}
    assert node.stop(signal.SIGTERM) == 0
