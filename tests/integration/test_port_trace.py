"""`kaido trace` and `kaido capture` on nodes without sessions: packets by port, and what became of each."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig.gre import INNER_LEFT, LEFT, RIGHT, Remover, Wire, header, start_peer
from rig.gtpu import ipv4, udp
from rig.ndn import Hosts, Router, digest, fetch, serve
from rig.net import Namespace, run
from rig.node import Node

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "ping", "tshark")

#: Takes GRE headers with this key off on the way to the right, and puts them on on the way back.
KEY = 7
RULES = (
    f'[[gre.rule]]\nname = "off"\nport = "k0"\nsource = "{LEFT[4]}/32"\nkey = {KEY}\n'
    f'[[gre.encapsulation]]\nname = "back"\nport = "k1"\ndestination = "10.9.0.0/24"\n'
    f'local = "{RIGHT[4]}"\nremote = "{LEFT[4]}"\nkey = {KEY}\n'
)


@pytest.fixture
def wire() -> Iterator[Wire]:
    """The hosts of a tunnel."""
    with Wire(f"kp{os.getpid()}-") as network:
        yield network


def watch(node: Node, command: str, *arguments: str) -> subprocess.Popen[str]:
    """`kaido trace` or `capture`, once it says what it traces."""
    return node.watch("tracing ", command, *arguments)


def fields(file: Path, *names: str) -> list[list[str]]:
    """Fields of the packets of a capture, as tshark reads them."""
    shown = run(
        "tshark", "-r", str(file), "-T", "fields", "-E", "separator=|", *(f"-e{name}" for name in names)
    )
    return [line.split("|") for line in shown.stdout.splitlines()]


def refused(node: Node, *arguments: str) -> str:
    """What a trace says that the node does not begin."""
    done = run(str(node.binary), "trace", "--socket", str(node.socket), *arguments, check=False)
    assert done.returncode != 0
    return " ".join(done.stderr.replace("│", "").split())


@pytest.mark.parametrize("driver", ["af_packet", "af_xdp"])
def test_a_header_removers_packets_are_traced(driver: str, binary: Path, wire: Wire, tmp_path: Path) -> None:
    """Into the tunnel, out of it, and one that is dropped, in text and in a capture."""
    node = Remover(binary, wire.node, tmp_path, driver, rules=RULES)
    node.start()
    start_peer(wire.left, (LEFT[4], RIGHT[4]), [f"{INNER_LEFT[4]}/32"], KEY, tmp_path)
    wire.right.ip("address", "add", "10.8.0.2/32", "dev", "lo")
    wire.left.ip("route", "add", "10.8.0.2", "dev", "gre1", "src", INNER_LEFT[4])
    assert wire.left.pings("10.8.0.2", "-I", INNER_LEFT[4])
    file = tmp_path / "tunnel.pcapng"
    tunnelled = ("--filter", f"host {INNER_LEFT[4]} and proto gre")
    capturing = watch(node, "capture", "--port", "k0", "--count", "6", "-w", str(file), *tunnelled)
    tracing = watch(node, "trace", "--count", "7", *tunnelled)
    assert wire.left.pings("10.8.0.2", "-I", INNER_LEFT[4])
    send_wrong_checksum(wire.left)
    text, _ = tracing.communicate(timeout=60)
    capturing.communicate(timeout=60)
    assert (tracing.returncode, capturing.returncode) == (0, 0)
    lines = [line.split(" ", 1)[-1].strip() if line[0].isdigit() else line for line in text.splitlines()]
    assert sum(line.startswith("k0 in 126 B") for line in lines) == 3, text
    assert sum(line.startswith("k1 in 98 B") for line in lines) == 3, text
    assert sum("send   k1 98 B" in line for line in lines) == 3, text
    assert sum("send   k0 126 B" in line for line in lines) == 3, text
    assert sum("drop   gre_checksum" in line for line in lines) == 1, text
    packets = fields(file, "frame.interface_name", "frame.comment", "gre.key", "icmp.type", "_ws.malformed")
    assert len(packets) == 12
    for interface, comment, key, _, malformed in packets:
        assert malformed == ""
        assert comment in ("in: sent", "out: sent")
        assert (interface == "k0") == (key != "")
    assert "no port k7 whose packets could be traced, only k0, k1" in refused(node, "--port", "k7")
    assert "has no sessions" in refused(node, "--ue", "10.60.0.1")
    assert node.stop() == 0


def send_wrong_checksum(space: Namespace) -> None:
    """A GRE packet in the tunnel whose checksum is wrong."""
    inner = ipv4(INNER_LEFT[4], "10.8.0.2", udp(9, 9, bytes(8)))
    flags = struct.unpack("!H", header(inner, KEY)[:2])[0] | 0x8000
    packet = struct.pack("!HHHHI", flags, 0x0800, 0xBAD, 0, KEY) + inner
    code = (
        "import socket,sys; s=socket.socket(socket.AF_INET,socket.SOCK_RAW,47); "
        "s.sendto(bytes.fromhex(sys.argv[1]),(sys.argv[2],0))"
    )
    space.run(sys.executable, "-c", code, packet.hex(), RIGHT[4])


@pytest.mark.parametrize("workers", [1, 2])
def test_a_routers_packets_are_traced(workers: int, binary: Path, tmp_path: Path) -> None:
    """Interests and Data on a port of Ethernet: where each came from, and where it went."""
    with Hosts(f"kn{os.getpid()}-") as hosts:
        port = '[[port]]\nname = "eth0"\ndriver = "af_packet"\ninterface = "eth0"\n'
        mac = hosts.far.mac("eth0")
        face = f'[[ndn.face]]\nremote = "ether://[{mac}]"\nlocal = "dev://eth0"\n'
        route = f'[[ndn.route]]\nprefix = "/py"\nto = "ether://[{mac}]"\n'
        near = Router(binary, hosts.near, tmp_path, name="near", more=port + face + route, workers=workers)
        far = Router(binary, hosts.far, tmp_path, name="far", more=port)
        near.start()
        far.start()
        content = tmp_path / "content"
        content.write_bytes(os.urandom(20_000))
        serve(hosts.far, far.transport("unix"), "/py/small", content, tmp_path)
        file = tmp_path / "ndn.pcapng"
        capturing = watch(near, "capture", "-w", str(file), "--seconds", "20")
        tracing = watch(near, "trace", "--port", "eth0", "--seconds", "20")
        assert fetch(hosts.near, near.transport("unix"), "/py/small") == digest(content)
        text, _ = tracing.communicate(timeout=120)
        capturing.communicate(timeout=120)
        assert "send   eth0 " in text, text
        assert " eth0 in " in text, text
        if workers == 1:
            assert "send   host " in text, text
        packets = fields(file, "frame.interface_name", "eth.type", "frame.packet_flags_direction")
        ndn = [packet for packet in packets if packet[1] == "0x8624"]
        assert {packet[0] for packet in ndn} == {"eth0"}
        directions = [packet[2] for packet in ndn]
        assert min(directions.count(way) for way in set(directions)) > 2
        assert len(set(directions)) == 2
        assert near.stop() == 0
        assert far.stop() == 0
