"""Faults of the soak: one after the other, with quiet between, while UEs come, go, move and send.

Each is done to the network, to peers or to the node's clock, never to the node. What a fault may lose is
said with it; what was lost is judged in `rig.verdict`.
"""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rig.net import CABLES, Cable, Topology
from rig.node import Node
from rig.wall_clock import WallClock

#: Where the node says how it is.
LISTEN = "127.0.0.1:9105"
METRICS = f'\n[metrics]\nlisten = "{LISTEN}"\n'
#: Within this a node is well after a fault, and packets go through.
WELL_S = 15
#: What is sent so long before a fault, or after the node is well again, may still be lost to it.
BEFORE_S, AFTER_S = 0.5, 2.0
#: Longer than T1 times N1 and one of the node (1.5 s, 3): it gives reports up.
SILENCE_S = 15
#: Some sessions report in this time: each does every ten seconds.
CLOCK_S = 6
FLOOD_S, FLOOD_PER_SECOND = 3, 100_000
IDLE_CLIENTS = 200
#: What users' packets are lost to where a node is overrun.
OVERRUN = {"rx_ring_full", "rx_no_frame", "no_frame", "tx_full", "tx_error"}
#: Whom floods come from: no peer of the node's.
STRANGERS = {"pfcp": ("ran", "smf0", "10.100.4.99"), "gtpu": ("ran", "gnb0", "10.100.3.99")}


@dataclass
class Window:
    """One fault: when, and what was seen. Times are seconds since 1970."""

    name: str
    #: Links on which packets may be lost.
    loses: frozenset[str]
    began: float
    ended: float = 0.0
    well: float = 0.0
    log_bytes: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    #: Datagrams of a flood.
    flood: int = 0
    seen: str = ""

    def has(self, at: float) -> bool:
        """Whether what was sent then may be lost to it."""
        return self.began - BEFORE_S <= at <= self.well + AFTER_S


@dataclass(frozen=True)
class Fault:
    """A kind of fault."""

    name: str
    loses: frozenset[str]
    inject: Callable[[Window], None]


#: What links suffer.
LINK_FAULTS = ("down", "deleted", "MAC", "MTU", "peer's MAC")


class Faults(threading.Thread):
    """Injects faults until it is told to stop."""

    def __init__(
        self,
        net: Topology,
        node: Node,
        sim: int,
        clock: WallClock,
        seed: int,
        quiet: float,
        *,
        once: bool = False,
    ) -> None:
        """Faults for that node and that sim, with `quiet` seconds between them at least.

        `once`: each that there is, those of links at one link or the other; then no more.
        """
        super().__init__(name="faults")
        self.net, self.node, self.sim, self.clock, self.quiet = net, node, sim, clock, quiet
        self.chance, self.once = random.Random(seed), once
        self.stop = threading.Event()
        self.windows: list[Window] = []
        self.problems: list[str] = []
        for space in (net.ran, net.upf, net.dn):
            # Who has another Ethernet address says so, as routers do that take over for others.
            space.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/all/arp_notify")

    def kinds(self) -> list[Fault]:
        """What can be done here."""
        links = [cable for cable in CABLES if cable.right_name in ("n3", "n6")]
        kinds = []
        injects = (self.down, self.deleted, self.own_mac, self.mtu, self.far_mac)
        for what, inject in zip(LINK_FAULTS, injects, strict=True):
            for cable in [self.chance.choice(links)] if self.once else links:
                name = cable.right_name
                # All packets fit into the smaller MTU.
                loses = frozenset([] if what == "MTU" else [name])
                kinds.append(Fault(f"{name}: {what}", loses, partial(inject, cable)))
        kinds.append(Fault("SMF silent", frozenset(), self.silence))
        for kind, port in (("pfcp", "n4"), ("gtpu", "n3"), ("scan", "n6")):
            loses = frozenset([] if port == "n4" else [port])
            kinds.append(Fault(f"flood to {port}", loses, partial(self.flood, kind)))
        kinds.append(Fault("idle control clients", frozenset(), self.idle_clients))
        if self.clock.why_not is None:
            kinds.append(Fault("wall clock", frozenset(), self.wall_clock))
        return kinds

    def run(self) -> None:
        """Every kind once, in any order, and again unless it is to be once."""
        try:
            self.stop.wait(self.quiet)
            while not self.stop.is_set():
                kinds = self.kinds()
                self.chance.shuffle(kinds)
                for fault in kinds:
                    if self.stop.is_set():
                        return
                    self.windows.append(self.one(fault))
                    self.stop.wait(self.quiet * self.chance.uniform(1, 2))
                if self.once:
                    return
        except Exception as error:
            self.problems.append(f"{self.windows[-1].name if self.windows else 'first fault'}: {error!r}")
            raise

    def one(self, fault: Fault) -> Window:
        """A fault, until the node is well again."""
        dropped, logged = self.node.drops(), self.node.log.stat().st_size
        window = Window(fault.name, fault.loses, time.time())
        fault.inject(window)
        window.ended = time.time()
        while (why := self.ill()) and time.time() < window.ended + 4 * WELL_S:
            time.sleep(0.2)
        window.well = time.time()
        if why or window.well > window.ended + WELL_S:
            self.problems.append(f"{fault.name}: {why or 'well'} after {window.well - window.ended:.0f} s")
        self.stop.wait(AFTER_S)
        now = self.node.drops()
        window.dropped = {
            name: count - dropped.get(name, 0) for name, count in now.items() if count > dropped.get(name, 0)
        }
        if window.flood and not any(name.split()[1] in OVERRUN for name in window.dropped):
            window.loses = frozenset()
        window.log_bytes = self.node.log.stat().st_size - logged
        at = time.strftime("%H:%M:%S", time.gmtime(window.began))
        lasted, ill = window.ended - window.began, window.well - window.ended
        print(f"{at} {window.name}: {lasted:.1f} s, well {ill:.1f} s later", flush=True)
        return window

    def ill(self) -> str:
        """What is not well, if anything."""
        done = self.net.upf.run(
            "curl", "--silent", "--max-time", "5", f"http://{LISTEN}/healthz", check=False
        )
        if done.stdout.strip() != "ok":
            return done.stdout.strip() or "/healthz does not answer"
        status = self.node.ask("status")
        if status is None:
            return "`kaido status` does not answer"
        ports = status["ports"]
        assert isinstance(ports, list)
        if any(port["state"] != "up" for port in ports):
            return "a port is not up"
        reached = ((self.net.ran, "10.100.3.1"), (self.net.dn, "10.100.6.1"))
        lost = [address for space, address in reached if not space.pings(address, count=1, patience=1)]
        return f"{', '.join(lost)} does not answer a ping" if lost else ""

    def down(self, cable: Cable, _: Window) -> None:
        """The node's interface is set down and up."""
        upf, name = self.net.upf, cable.right_name
        upf.ip("link", "set", name, "down")
        time.sleep(self.chance.uniform(0.5, 4))
        upf.ip("link", "set", name, "up")
        # The kernel removes IPv6 addresses of an interface that is down.
        for address in cable.right_addresses:
            if ":" in address:
                upf.ip("address", "replace", address, "dev", name, "nodad")

    def deleted(self, cable: Cable, _: Window) -> None:
        """The node's interface is deleted, and made again."""
        self.net.upf.ip("link", "delete", cable.right_name)
        time.sleep(self.chance.uniform(0.5, 4))
        self.net.lay(cable)
        if cable.right_name == "n6":
            self.net.route()

    def own_mac(self, cable: Cable, _: Window) -> None:
        """The node's interface has another Ethernet address."""
        self.net.upf.ip("link", "set", cable.right_name, "address", self.mac())

    def far_mac(self, cable: Cable, _: Window) -> None:
        """The gNB, or the router behind N6, has another Ethernet address."""
        self.net.spaces[cable.left].ip("link", "set", cable.left_name, "address", self.mac())

    def mac(self) -> str:
        """Any Ethernet address that an administrator may give."""
        return "02:" + ":".join(f"{self.chance.randrange(256):02x}" for _ in range(5))

    def mtu(self, cable: Cable, _: Window) -> None:
        """The node's interface has a smaller MTU, which packets fit into, for a while."""
        upf, name = self.net.upf, cable.right_name
        upf.ip("link", "set", name, "mtu", "1300")
        time.sleep(self.chance.uniform(0.5, 4))
        upf.ip("link", "set", name, "mtu", str(cable.mtu))

    def silence(self, window: Window) -> None:
        """The SMF takes nothing in that it is asked, and asks nothing."""
        logged = self.node.log.stat().st_size
        send_signal(self.sim, signal.SIGUSR1)
        time.sleep(SILENCE_S)
        send_signal(self.sim, signal.SIGUSR2)
        self.says_since(logged, "control plane does not answer")
        time.sleep(2)
        self.says_since(logged, "control plane answers again")
        window.seen = f"{SILENCE_S} s"

    def says_since(self, logged: int, what: str) -> None:
        """Note a problem unless the log says something."""
        with self.node.log.open("rb") as log:
            log.seek(logged)
            if what.encode() not in log.read():
                self.problems.append(f"SMF silent: the log does not say `{what}`")

    def wall_clock(self, window: Window) -> None:
        """The node's wall clock is set by hours, and back."""
        hours = self.chance.choice((-1, 1)) * self.chance.randrange(1, 13)
        self.clock.set_ahead(3600 * hours)
        time.sleep(CLOCK_S)
        self.clock.set_ahead(0)
        time.sleep(CLOCK_S)
        window.seen = f"{hours:+d} h"

    def flood(self, kind: str, window: Window) -> None:
        """Hosts that are no peers send what no peer would."""
        space, source = self.net.dn, "10.100.6.2"
        if kind in STRANGERS:
            space_name, device, source = STRANGERS[kind]
            space = self.net.spaces[space_name]
            space.ip("address", "replace", f"{source}/24", "dev", device)
        arguments = (kind, source, str(FLOOD_S), str(FLOOD_PER_SECOND), str(self.chance.randrange(1 << 30)))
        done = space.run(sys.executable, "-m", "rig.flood", *arguments)
        window.flood = int(done.stdout)
        window.seen = f"{window.flood / FLOOD_S / 1000:.0f} k/s"

    def idle_clients(self, window: Window) -> None:
        """Clients of the control socket that ask for nothing."""
        with ExitStack() as clients:
            for _ in range(IDLE_CLIENTS):
                client = clients.enter_context(socket.socket(socket.AF_UNIX))
                client.settimeout(1)
                client.connect(str(self.node.socket))
            if self.node.ask("status") is None:
                self.problems.append("idle control clients: `kaido status` is not answered")
        window.seen = f"{IDLE_CLIENTS} clients"


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process of ours."""
    subprocess.run(["kill", f"-{number}", str(pid)], check=True)


def wall_clock_of(folder: Path) -> WallClock:
    """The node's wall clock; says when it cannot be set."""
    clock = WallClock(folder)
    if clock.why_not is not None:
        print(f"without faults of the wall clock: {clock.why_not}")
    return clock
