"""Namespaces joined by cables, and of them the network of the demonstration and the integration tests.

::

    ran ── n3 (veth) ── upf ── n6 (veth) ── dn
      └─── n4 (veth) ────┘
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

#: Room for a tunnel around a packet of 1500 octets.
N3_MTU = 1600

#: How long what happens in a moment may take on a slow machine with other work.
PATIENCE_S = 10

#: For sockets of which no datagram may be lost to a slow reader; only root goes beyond the system's limit.
SO_RCVBUFFORCE = 33
RECEIVE_BUFFER = 64 << 20

#: For setns(2), which Python has from 3.12 on.
CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)

UE_IPV4 = "10.60.0.0/16"
UE_IPV6 = "2001:db8:60::/48"
#: A host behind the router of the data network, in both families.
FAR, FAR6 = "10.200.0.1", "fd00:200::1"


class NetError(Exception):
    """A network that could not be made."""


def run(*command: str, check: bool = True, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if check and done.returncode != 0:
        raise NetError(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done


@dataclass
class Namespace:
    """A network namespace and the processes started in it."""

    name: str
    children: list[subprocess.Popen[str]] = field(default_factory=list)

    def make(self) -> None:
        """Add the namespace with its loopback up and forwarding off."""
        run("ip", "netns", "add", self.name)
        self.ip("link", "set", "lo", "up")
        settings = ("ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv6/conf/default/accept_dad")
        for setting in settings:
            self.run("sh", "-c", f"echo 0 > /proc/sys/net/{setting}")

    def command(self, *command: str) -> list[str]:
        """The command as it is run in here."""
        return ["ip", "netns", "exec", self.name, *command]

    def run(self, *command: str, check: bool = True, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command in here to its end."""
        return run(*self.command(*command), check=check, timeout=timeout)

    def ip(self, *arguments: str) -> None:
        """Run `ip` in here."""
        run("ip", "-n", self.name, *arguments)

    def start(self, *command: str, **options: object) -> subprocess.Popen[str]:
        """Start a command in here; it ends with the namespace at the latest."""
        settings: dict[str, object] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
            "text": True,
        }
        child: subprocess.Popen[str] = subprocess.Popen(
            self.command(*command),
            **(settings | options),  # type: ignore[call-overload]
        )
        self.children.append(child)
        return child

    def socket(self, address: str, port: int, raw: int | None = None) -> socket.socket:
        """A UDP socket of this process in here: it stays where the thread was that opened it.

        With `raw` it gets whole packets of that protocol instead.
        """

        def open_here() -> socket.socket:
            with open(f"/run/netns/{self.name}") as space:
                if _LIBC.setns(space.fileno(), CLONE_NEWNET) != 0:
                    raise NetError(f"setns: {os.strerror(ctypes.get_errno())}")
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            kind = socket.SOCK_DGRAM if raw is None else socket.SOCK_RAW
            opened = socket.socket(family, kind, raw or 0)
            opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
            opened.bind((address, port))
            return opened

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(open_here).result()

    def pings(self, address: str, *options: str, count: int = 3, patience: int = PATIENCE_S) -> bool:
        """Whether each of some pings is answered, one after the other.

        Each is a command of its own: `ping` calls lost what comes later than the one before took.
        """
        command = ("ping", "-c", "1", "-W", str(patience), *options, address)
        return all(self.run(*command, check=False).returncode == 0 for _ in range(count))

    def links(self) -> list[dict[str, object]]:
        """The links in here, as `ip -json` shows them."""
        shown = run("ip", "-n", self.name, "-json", "-details", "link", "show").stdout
        return list(json.loads(shown or "[]"))

    def mac(self, name: str) -> str:
        """The Ethernet address of an interface in here."""
        return next(str(link["address"]) for link in self.links() if link["ifname"] == name)

    def remove(self) -> None:
        """End what runs in here and remove the namespace with its links."""
        for child in self.children:
            if child.poll() is None:
                child.terminate()
        for child in self.children:
            try:
                child.wait(timeout=10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        run("ip", "netns", "delete", self.name, check=False)


@dataclass(frozen=True)
class Cable:
    """A veth pair: which ends are called what, where, with which addresses."""

    left: str
    left_name: str
    left_addresses: Sequence[str]
    right: str
    right_name: str
    right_addresses: Sequence[str]
    mtu: int = 1500


CABLES = (
    Cable(
        "ran",
        "gnb0",
        ["10.100.3.2/24", "fd00:3::2/64"],
        "upf",
        "n3",
        ["10.100.3.1/24", "fd00:3::1/64"],
        N3_MTU,
    ),
    Cable("ran", "smf0", ["10.100.4.2/24", "fd00:4::2/64"], "upf", "n4", ["10.100.4.1/24", "fd00:4::1/64"]),
    Cable("dn", "eth0", ["10.100.6.2/24", "fd00:6::2/64"], "upf", "n6", ["10.100.6.1/24", "fd00:6::1/64"]),
)


class Network:
    """Namespaces joined by cables; removed at the end of a `with`."""

    def __init__(
        self, prefix: str, names: Sequence[str], cables: Sequence[Cable], mtu: dict[str, int] | None = None
    ) -> None:
        """Name the namespaces with a prefix; `mtu` overrides a cable's by the name of its right end."""
        self.spaces = {name: Namespace(prefix + name) for name in names}
        self.cables = cables
        self.mtu = mtu or {}

    def __enter__(self) -> Self:
        """Make it all."""
        existing = {line.split()[0] for line in run("ip", "netns", "list").stdout.splitlines() if line}
        taken = sorted(space.name for space in self.spaces.values() if space.name in existing)
        if taken:
            raise NetError(
                f"there is a network namespace {', '.join(taken)} already; if it is left over, "
                f"remove it: ip netns delete {taken[0]}"
            )
        try:
            for space in self.spaces.values():
                space.make()
            for cable in self.cables:
                self.lay(cable)
            wait_until(self.carriers, "the cables have no carrier")
            self.route()
        except BaseException:
            self.remove()
            raise
        return self

    def route(self) -> None:
        """Add the routes, once there are cables."""

    def lay(self, cable: Cable) -> None:
        """Join two namespaces by a cable."""
        mtu = str(self.mtu.get(cable.right_name, cable.mtu))
        left, right = self.spaces[cable.left], self.spaces[cable.right]
        peer = ["peer", "name", cable.right_name, "netns", right.name, "mtu", mtu]
        run("ip", "link", "add", cable.left_name, "netns", left.name, "mtu", mtu, "type", "veth", *peer)
        ends = (
            (left, cable.left_name, cable.left_addresses),
            (right, cable.right_name, cable.right_addresses),
        )
        for space, name, addresses in ends:
            for address in addresses:
                nodad = ["nodad"] if ":" in address else []
                space.ip("address", "add", address, "dev", name, *nodad)
            space.ip("link", "set", name, "up")
        # Checksums are left to a NIC that is not there; XDP would see them unfinished. And a queue, so
        # that a full ring holds senders back where it would drop.
        left.run("ethtool", "-K", cable.left_name, "tx", "off", check=False)
        left.ip("link", "set", cable.left_name, "txqueuelen", "10000")
        run("tc", "-n", left.name, "qdisc", "add", "dev", cable.left_name, "root", "pfifo", check=False)

    def echo(self, address: str = "10.100.6.2") -> None:
        """Start a UDP echo server in the data network, at port 7 of an address there."""
        self.spaces["dn"].start(sys.executable, "-m", "rig.echo", address, "7")
        listening = ("ss", "--listening", "--udp", "--numeric")
        shown = f"[{address}]" if ":" in address else address
        wait_until(
            lambda: f"{shown}:7 " in self.spaces["dn"].run(*listening).stdout, "the echo server starts"
        )

    def carriers(self) -> bool:
        """Whether every end of every cable is up."""
        ends = [link for space in self.spaces.values() for link in space.links() if link["ifname"] != "lo"]
        return all(link["operstate"] == "UP" for link in ends)

    def remove(self) -> None:
        """Remove it all."""
        for space in self.spaces.values():
            space.remove()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove it all, whatever happened."""
        self.remove()


class Topology(Network):
    """The namespaces `ran`, `upf` and `dn`, joined by cables; removed at the end of a `with`."""

    def __init__(
        self, prefix: str = "", mtu: dict[str, int] | None = None, more: dict[str, Cable] | None = None
    ) -> None:
        """Name the namespaces with a prefix; `mtu` overrides a cable's by the name of its upf end.

        `more` are namespaces beside them, each with its cable.
        """
        more = more or {}
        super().__init__(prefix, ("ran", "upf", "dn", *more), (*CABLES, *more.values()), mtu)
        self.ran, self.upf, self.dn = (self.spaces[name] for name in ("ran", "upf", "dn"))

    def route(self) -> None:
        """UEs are behind the node."""
        for network, gateway in ((UE_IPV4, "10.100.6.1"), (UE_IPV6, "fd00:6::1")):
            self.dn.ip("route", "add", network, "via", gateway)

    def take_redirected(self) -> None:
        """Have veth take frames that an XDP program redirects: its other end is to poll, by GRO."""
        for space, interface in ((self.ran, "gnb0"), (self.dn, "eth0")):
            space.run("ethtool", "-K", interface, "gro", "on")

    def beyond(self) -> None:
        """Default routes to the data network, a host behind it, and veth ends that take redirected frames."""
        self.take_redirected()
        for prefix, gateway in (("0.0.0.0/0", "10.100.6.2"), ("::/0", "fd00:6::2")):
            self.upf.ip("route", "add", prefix, "via", gateway)
        for address in (f"{FAR}/32", f"{FAR6}/128"):
            self.dn.ip("address", "add", address, "dev", "lo")


def wait_until(happens: object, what: str, seconds: float = 60) -> None:
    """Wait until a function returns something true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if callable(happens) and happens():
            return
        time.sleep(0.05)
    raise NetError(f"{what}: not within {seconds:.0f} s")
