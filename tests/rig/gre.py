"""Two hosts with a GRE header remover in the wire between them, and GRE peers of user space and the kernel.

::

    left ── k0 (veth) ── node ── k1 (veth) ── right
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import ipaddress
import json
import os
import select
import socket
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

from rig.net import RECEIVE_BUFFER, SO_RCVBUFFORCE, Cable, Namespace, Network, run, wait_until
from rig.node import Node

#: ioctl and flags of tun(4).
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
#: The device is down still, the neighbour not known, or nobody was there yet to take GRE.
PASSING = (errno.EIO, errno.ENOBUFS, errno.EHOSTUNREACH, errno.EINVAL, errno.ENOPROTOOPT, errno.ECONNREFUSED)
GRE, KEY_PRESENT = 47, 0x2000
IPV4, IPV6 = 0x0800, 0x86DD

#: Outer addresses of both hosts, and those of packets in tunnels.
LEFT, RIGHT = {4: "192.0.2.1", 6: "fd00:1::1"}, {4: "192.0.2.2", 6: "fd00:1::2"}
INNER_LEFT = {4: "10.9.0.1", 6: "fd00:9::1"}

CABLES = (
    Cable("left", "eth0", ["192.0.2.1/24", "fd00:1::1/64"], "node", "k0", []),
    Cable("right", "eth0", ["192.0.2.2/24", "fd00:1::2/64"], "node", "k1", []),
)


class Wire(Network):
    """The namespaces `left`, `node` and `right`."""

    def __init__(self, prefix: str = "") -> None:
        """Name them with a prefix."""
        super().__init__(prefix, ("left", "node", "right"), CABLES)
        self.left, self.node, self.right = (self.spaces[name] for name in ("left", "node", "right"))

    def route(self) -> None:
        """What was in tunnels is answered over the wire."""
        for family, network in ((4, "10.9.0.0/24"), (6, "fd00:9::/64")):
            self.right.ip("route", "add", network, "via", LEFT[family])
        for space in (self.left, self.right):
            # A veth takes what XDP sends it only where it gathers packets.
            space.run("ethtool", "-K", "eth0", "gro", "on")


@dataclass
class Remover(Node):
    """`kaido run` as a GRE header remover between k0 and k1."""

    datapath: str = "engine"
    attach: str = "auto"
    rules: str = ""
    peer_port: bool = True

    @property
    def config(self) -> str:
        """The configuration."""
        lines = [
            'function = "gre"',
            f'[node]\nframes = 8192\ndatapath = "{self.datapath}"',
            f'[control]\nsocket = "{self.socket}"',
            '[metrics]\nlisten = "127.0.0.1"',
        ]
        for name, other in (("k0", "k1"), ("k1", "k0")):
            lines.append(f'[[port]]\nname = "{name}"\ndriver = "{self.driver}"\ninterface = "{name}"')
            if self.peer_port:
                lines.append(f'peer_port = "{other}"')
            if self.driver == "af_xdp":
                lines.append(f'attach = "{self.attach}"')
        return "\n".join([*lines, self.rules])

    def get(self, path: str) -> dict[str, list[dict[str, object]]]:
        """A document of the node's, by HTTP."""
        url = f"http://127.0.0.1:9105{path}"
        return dict(json.loads(self.space.run("curl", "--silent", "--fail", "--max-time", "10", url).stdout))

    def rule(self, name: str) -> tuple[int, int]:
        """Packets and bytes of a rule."""
        (found,) = (rule for rule in self.get("/v1/gre")["rules"] if rule["name"] == name)
        packets, octets = found["packets"], found["bytes"]
        assert isinstance(packets, int)
        assert isinstance(octets, int)
        return packets, octets

    def reasons(self) -> dict[str, int]:
        """Drops by reason, of both ports, by HTTP."""
        counts: dict[str, int] = {}
        for drop in self.get("/v1/drops")["drops"]:
            packets = drop["packets"]
            assert isinstance(packets, int)
            counts[str(drop["reason"])] = counts.get(str(drop["reason"]), 0) + packets
        return counts


def start_peer(
    space: Namespace, outer: tuple[str, str], inner: list[str], key: int | None, folder: Path
) -> None:
    """Start the user-space peer in a namespace: its device is `gre1`, with these addresses."""
    ready = folder / f"peer-{space.name}.ready"
    more = ["--key", str(key)] if key is not None else []
    with (folder / "peer.log").open("a") as log:
        command = [sys.executable, "-m", "rig.gre", "gre1", *outer, str(ready), *more]
        space.start(*command, stdout=log, stderr=log)
    wait_until(ready.exists, "the GRE peer is ready")
    up(space, inner)


def start_kernel_peer(space: Namespace, outer: tuple[str, str], inner: list[str], key: int | None) -> bool:
    """The same of the kernel; whether it has GRE."""
    kind = "ip6gre" if ":" in outer[0] else "gre"
    more = ["key", str(key)] if key is not None else []
    command = ["link", "add", "gre1", "type", kind, "local", outer[0], "remote", outer[1], *more]
    if run("ip", "-n", space.name, *command, check=False).returncode != 0:
        return False
    up(space, inner)
    return True


def up(space: Namespace, inner: list[str]) -> None:
    """Give the tunnel's device its addresses."""
    # Room for what is sent while the peer has no processor.
    space.ip("link", "set", "gre1", "mtu", "1400", "txqueuelen", "10000", "up")
    for address in inner:
        space.ip("address", "add", address, "dev", "gre1", *(["nodad"] if ":" in address else []))


def header(packet: bytes, key: int | None) -> bytes:
    """GRE (RFC 2784, RFC 2890) for an IP packet."""
    protocol = IPV6 if packet[0] >> 4 == 6 else IPV4
    if key is None:
        return struct.pack("!HH", 0, protocol)
    return struct.pack("!HHI", KEY_PRESENT, protocol, key)


def payload(message: bytes, key: int | None) -> bytes | None:
    """What a GRE packet of our kind has in it."""
    flags, _ = struct.unpack_from("!HH", message)
    if key is None:
        return message[4:] if flags == 0 else None
    return message[8:] if flags == KEY_PRESENT and message[4:8] == struct.pack("!I", key) else None


def peer(name: str, local: str, remote: str, key: int | None, ready: Path) -> None:
    """Carry packets between a TUN device and GRE until SIGTERM."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    is_ipv4 = ipaddress.ip_address(local).version == 4
    family = socket.AF_INET if is_ipv4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_RAW, GRE) as tunnel:
        tunnel.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
        tunnel.bind((local, 0))
        tunnel.connect((remote, 0))
        tunnel.setblocking(False)
        ready.touch()
        while True:
            readable, _, _ = select.select([device, tunnel.fileno()], [], [])
            for source in readable:
                # Some at a time, and then the other way.
                for _ in range(64):
                    try:
                        if source is device:
                            packet = os.read(device, 65536)
                            tunnel.send(header(packet, key) + packet)
                        else:
                            message = tunnel.recv(65536)
                            # Raw sockets of IPv4 show its header.
                            message = message[4 * (message[0] & 15) :] if is_ipv4 else message
                            inner = payload(message, key)
                            if inner is not None:
                                os.write(device, inner)
                    except BlockingIOError:
                        break
                    except OSError as error:
                        if error.errno not in PASSING:
                            raise
                        break


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("name")
    arguments.add_argument("local")
    arguments.add_argument("remote")
    arguments.add_argument("ready", type=Path)
    arguments.add_argument("--key", type=int)
    given = arguments.parse_args()
    peer(given.name, given.local, given.remote, given.key, given.ready)
