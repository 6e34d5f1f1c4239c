"""A hundred thousand malformed datagrams change nothing and are all counted."""

from __future__ import annotations

import random
import signal
import struct
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Attach
from rig.net import Topology, wait_until
from rig.node import Node

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "ping")

#: Sends datagrams read from standard input (length, octets) to an address and port, from one socket.
SENDER = textwrap.dedent("""
    import socket, struct, sys, time
    family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.bind((sys.argv[3], 0))
    sent = 0
    while head := sys.stdin.buffer.read(4):
        sock.sendto(sys.stdin.buffer.read(struct.unpack("I", head)[0]), (sys.argv[1], int(sys.argv[2])))
        sent += 1
        if sent % 200 == 0:
            time.sleep(0.004)
    print(sent)
""")

#: Real messages to start from: heartbeat, association set-up, establishment header; G-PDU with extensions.
PFCP_SEEDS = [
    bytes.fromhex("2001000c00000100 00600004e8000000"),
    bytes.fromhex("2005001b00000100 003c00050 0c000024d 00600004e8000000 0059000100".replace(" ", "")),
    bytes.fromhex(
        "2132001c00000000000000010000020000 3c000500c000024d 0039000d02000000000000000 1c000024d".replace(
            " ", ""
        )
    ),
    bytes.fromhex("2134000c000000000000000100000300"),
]
GTPU_SEEDS = [
    bytes.fromhex(
        "30ff001c000003e84500001c000040004011207f0a3c00010808080 80fa0138800080000".replace(" ", "")
    ),
    bytes.fromhex(
        "34ff0024000003e80000008501100900 4500001c000040004011207f0a3c0001080808080fa0138800080000".replace(
            " ", ""
        )
    ),
    bytes.fromhex("3201000400000000 00010000"),
    bytes.fromhex("321a00100000000000000000 10000007d0850004 0a640302"),
]


def mangled(seeds: list[bytes], count: int, seed: int) -> Iterator[bytes]:
    """Random octets, truncations, and real messages with octets changed."""
    chance = random.Random(seed)
    for n in range(count):
        base = bytearray(chance.choice(seeds))
        match n % 4:
            case 0:
                yield chance.randbytes(chance.randrange(0, 200))
            case 1:
                yield bytes(base[: chance.randrange(0, len(base))])
            case 2:
                for _ in range(chance.randrange(1, 6)):
                    base[chance.randrange(len(base))] = chance.randrange(256)
                # Version and flags stay those of a message that would be looked at.
                base[0] = chance.choice(seeds)[0]
                yield bytes(base)
            case _:
                yield bytes(base) + chance.randbytes(chance.randrange(0, 1200))


#: The storm's own address: what it says well-formed must not be said for the SMF.
STRANGER = "10.100.4.99"


def storm(net: Topology, address: str, port: int, datagrams: Iterator[bytes], source: str = STRANGER) -> int:
    """Send datagrams from `ran`; how many went out."""
    stream = b"".join(struct.pack("I", len(datagram)) + datagram for datagram in datagrams)
    command = net.ran.command(sys.executable, "-c", SENDER, address, str(port), source)
    done = subprocess.run(command, input=stream, capture_output=True, timeout=300, check=True)
    return int(done.stdout)


def echo(net: Topology) -> bool:
    """Whether a GTP-U echo request is answered."""
    code = textwrap.dedent("""
        import socket
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.settimeout(5)
        sock.sendto(bytes.fromhex("3201000400000000abcd0000"), ("10.100.3.1", 2152))
        answer, peer = sock.recvfrom(2000)
        assert peer == ("10.100.3.1", 2152), peer
        assert answer.hex() == "3202000600000000abcd00000e00", answer.hex()
    """)
    return net.ran.run(sys.executable, "-c", code, check=False).returncode == 0


def heartbeat(net: Topology) -> bool:
    """Whether a PFCP heartbeat is answered."""
    code = textwrap.dedent("""
        import socket
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.settimeout(5)
        sock.sendto(bytes.fromhex("2001000c0000770000600004e8000000"), ("10.100.4.1", 8805))
        answer, _ = sock.recvfrom(2000)
        assert answer[1] == 2 and answer[4:7].hex() == "000077", answer.hex()
    """)
    return net.ran.run(sys.executable, "-c", code, check=False).returncode == 0


def test_a_storm_to_both_ports_changes_nothing(node: Node, net: Topology, attach: Attach) -> None:
    """100 000 datagrams, then heartbeat, echo and a forwarded packet, and the session that was there."""
    net.ran.ip("address", "add", f"{STRANGER}/24", "dev", "smf0")
    attach("--ues 1 --tuns 1")
    assert echo(net)
    assert heartbeat(net)
    before = node.ask("status")
    assert before is not None
    pfcp = storm(net, "10.100.4.1", 8805, mangled(PFCP_SEEDS, 50_000, 1))
    gtpu = storm(net, "10.100.3.1", 2152, mangled(GTPU_SEEDS, 50_000, 2))
    assert pfcp + gtpu == 100_000
    # What has come is worked off first, and what finds no room meanwhile is lost.
    wait_until(lambda: heartbeat(net), "a heartbeat is answered")
    wait_until(lambda: echo(net), "an echo is answered")
    assert net.ran.pings("10.100.6.2", "-I", "ue0")
    after = node.ask("status")
    assert after is not None
    assert after["sessions"] == before["sessions"] == 1
    assert "panicked" not in node.log.read_text()
    drops = {name: count for name, count in node.drops().items() if name.startswith("n3 ")}
    for reason in ("gtpu_malformed", "teid_unknown"):
        assert drops.get(f"n3 {reason}", 0) > 1000, drops
    # Whatever reached the engine was either dropped with a reason or answered.
    ports = after["ports"]
    assert isinstance(ports, list)
    n3 = next(port for port in ports if port["name"] == "n3")
    assert sum(drops.values()) > 0.9 * min(gtpu, n3["rx_packets"])
    counts = after["pfcp"]
    assert isinstance(counts, list)
    assert sum(count["count"] for count in counts if "discarded" in count["name"]) > 1000, counts


def test_a_stranger_is_not_listened_to(binary: Path, net: Topology, tmp_path: Path) -> None:
    """With pfcp.allow, a control plane from elsewhere gets no answer and changes nothing."""
    allow = 'allow = ["10.100.4.99/32", "fd00:4::/64"]'
    node = Node(binary, net.upf, tmp_path, pfcp=allow).start()
    assert not heartbeat(net)
    # In this order: a second address of a network goes with the first.
    net.ran.ip("address", "delete", "10.100.4.2/24", "dev", "smf0")
    net.ran.ip("address", "add", f"{STRANGER}/24", "dev", "smf0")
    assert heartbeat(net)
    status = node.ask("status")
    assert status is not None
    assert {"name": "datagrams not in pfcp.allow", "count": 1} in status["pfcp"]  # type: ignore[operator]
    assert node.stop() == 0


def test_what_the_device_drops_is_counted_too(node: Node, net: Topology, attach: Attach) -> None:
    """More than the node can take: every packet sent is accounted for by the node's own counters."""
    attach("--ues 1 --tuns 1")
    assert net.ran.pings("10.100.3.1", count=1)
    # While the process is stopped, its receive ring fills.
    assert node.process is not None
    node.process.send_signal(signal.SIGSTOP)
    sent = storm(
        net, "10.100.3.1", 2152, (b"\x30\xff\x00\x00\x00\x00\x77\x77" for _ in range(6000)), "10.100.3.2"
    )
    node.process.send_signal(signal.SIGCONT)
    wait_until(lambda: sum(node.drops().values()) >= sent, "all are accounted for")
    drops = node.drops()
    assert drops.get("n3 rx_ring_full", 0) + drops.get("n3 rx_no_frame", 0) > 1000, drops
    assert drops["n3 teid_unknown"] > 1000, drops
    assert sum(drops.values()) == sent, drops


def test_a_ue_cannot_send_as_another_nor_to_the_node(node: Node, net: Topology, attach: Attach) -> None:
    """Anti-spoofing, and no way from a tunnel to the node's own addresses."""
    attach("--ues 1 --tuns 1")
    net.ran.ip("address", "add", "10.60.7.7/32", "dev", "ue0")
    net.ran.ip("route", "add", "10.100.6.2/32", "dev", "ue0", "src", "10.60.7.7")
    done = net.ran.run("ping", "-I", "10.60.7.7", "-c", "2", "-W", "1", "10.100.6.2", check=False)
    assert done.returncode != 0
    wait_until(lambda: node.drops().get("n3 ue_spoofed", 0) >= 2, "both were dropped as spoofed")
    net.ran.ip("route", "add", "10.100.6.1/32", "dev", "ue0")
    done = net.ran.run("ping", "-I", "ue0", "-c", "2", "-W", "1", "10.100.6.1", check=False)
    assert done.returncode != 0
    wait_until(lambda: node.drops().get("n3 tunnel_to_self", 0) >= 2, "both were dropped at the node")


def test_a_hop_limit_that_ends_here_is_answered(node: Node, net: Topology, attach: Attach) -> None:
    """traceroute sees the user plane as a router.

    Conformance: RFC 1812 5.3.1 | The time to live is decremented, and its end told
    """
    attach("--ues 1 --tuns 1")
    for address, router in (("10.100.6.2", "10.100.6.1"), ("fd00:6::2", "fd00:6::1")):
        done = net.ran.run("ping", "-I", "ue0", "-t", "1", "-c", "1", "-W", "10", address, check=False)
        assert router in done.stdout, done.stdout
        assert "exceeded" in done.stdout or "Hop limit" in done.stdout, done.stdout
    wait_until(lambda: node.drops().get("n3 ttl_expired", 0) == 2, "both are counted")
