"""Two hosts of an NDN router and its neighbour, and applications made with python-ndn.

::

    near: kaido ── eth0 (veth) ── switch ── (veth) eth0 ── far: ndnd, or a second kaido
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

from ndn.app import NDNApp
from ndn.encoding import FormalName, InterestParam, MetaInfo, Name
from ndn.encoding.name import Component
from ndn.security import KeychainDigest
from ndn.types import InterestNack, InterestTimeout

from rig.net import Cable, Namespace, Network, run, wait_until
from rig.node import Node

NEAR, FAR = "10.7.0.1", "10.7.0.2"
NEAR_V6, FAR_V6 = "fd00:7::1", "fd00:7::2"
ENDS = [f"{NEAR}/24", f"{NEAR_V6}/64"], [f"{FAR}/24", f"{FAR_V6}/64"]
CABLES = (
    Cable("near", "eth0", ENDS[0], "switch", "near0", []),
    Cable("far", "eth0", ENDS[1], "switch", "far0", []),
)

#: Octets of a segment that the applications here publish.
SEGMENT = 7000


class Hosts(Network):
    """The namespaces `near` and `far`, and a switch between them."""

    def __init__(self, prefix: str = "") -> None:
        """Name them with a prefix."""
        super().__init__(prefix, ("near", "far", "switch"), CABLES)
        self.near, self.far, self.switch = (self.spaces[name] for name in ("near", "far", "switch"))

    def route(self) -> None:
        """Join the cables."""
        self.switch.ip("link", "add", "bridge0", "type", "bridge", "mcast_snooping", "0")
        for name in ("near0", "far0"):
            self.switch.ip("link", "set", name, "master", "bridge0")
        self.switch.ip("link", "set", "bridge0", "up")

    def slow_down(self) -> None:
        """Have packets go to far as fast as over a link of 100 Mbit/s.

        Over a cable of memory a router fills the socket buffer of a slower neighbour before that is woken.
        What AF_XDP sends passes by the queues of its own interface; those of the switch have all.
        """
        shape = ("tbf", "rate", "100mbit", "burst", "16kb", "latency", "4s")
        run("tc", "-n", self.switch.name, "qdisc", "replace", "dev", "far0", "root", *shape)


@dataclass
class Router(Node):
    """`kaido run` as an NDN router."""

    name: str = "router"
    udp_mtu: int = 8800
    cached: int = 0
    #: Where the host's sockets take UDP, and the workers themselves on ports.
    udp: tuple[str, ...] = ("0.0.0.0:6363",)
    udp_on_ports: tuple[str, ...] = ()
    multicast: tuple[str, ...] = ()

    @property
    def config(self) -> str:
        """The configuration."""
        lines = [
            'function = "ndn"',
            f"[node]\nframes = 16384\nworkers = {self.workers}",
            f'[control]\nsocket = "{self.socket}"',
            f'[ndn.listen]\nunix = "{self.unix}"\ntcp = ["0.0.0.0:6363"]',
            f"udp = {list(self.udp)}\nudp_on_ports = {list(self.udp_on_ports)}\n"
            f"multicast = {list(self.multicast)}\nudp_mtu = {self.udp_mtu}",
            '[ndn.management]\nlocal_tcp = ["rib"]',
            f"[ndn.cs]\npackets = {self.cached}",
        ]
        return "\n".join([*lines, self.more])

    @property
    def socket(self) -> Path:
        """The control socket."""
        return self.folder / f"{self.name}.control"

    @property
    def unix(self) -> Path:
        """Where applications connect."""
        return self.folder / f"{self.name}.sock"

    def tell(self, *words: str) -> str:
        """What `kaido ndn` prints, run as an application."""
        return run(str(self.binary), "ndn", "--router", self.transport("unix"), *words).stdout

    def ndn(self, *words: str) -> Any:
        """What it prints as JSON."""
        return json.loads(self.tell("--json", *words))

    def faces(self) -> list[dict[str, Any]]:
        """Its faces."""
        return list(self.ndn("face", "list"))

    def shares(self) -> list[float]:
        """Each worker's part of the packets."""
        return [worker["share"] for worker in self.ndn("status")["workers"]]

    def transport(self, kind: str) -> str:
        """How applications on its host reach it."""
        return f"unix://{self.unix}" if kind == "unix" else f"{kind}://127.0.0.1:6363"


def application(space: Namespace, transport: str, *arguments: str) -> list[str]:
    """The command of an application of this file in a namespace."""
    python = [sys.executable, "-m", "rig.ndn", *arguments]
    return space.command("env", f"NDN_CLIENT_TRANSPORT={transport}", *python)


def serve(space: Namespace, transport: str, prefix: str, file: Path, folder: Path) -> Popen[str]:
    """Start a producer of a file's segments under a prefix; it has registered when this returns."""
    ready = folder / f"{prefix.replace('/', '_')}.ready"
    ready.unlink(missing_ok=True)
    command = application(space, transport, "serve", prefix, str(file), str(ready))
    with (folder / "producer.log").open("a") as log:
        child = Popen(command, stdout=log, stderr=log, text=True)
    space.children.append(child)
    wait_until(ready.exists, f"a producer of {prefix}")
    return child


def fetch(space: Namespace, transport: str, prefix: str, timeout: float = 240) -> str:
    """The SHA-256 of what a consumer fetches, or the error that it meets."""
    return run(*application(space, transport, "fetch", prefix), timeout=timeout).stdout.strip()


def digest(file: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def produce(prefix: str, content: bytes, ready: Path) -> None:
    """Answer Interests for the segments of some content, and say when they can come."""
    app = NDNApp(keychain=KeychainDigest())
    last = Component.from_segment((len(content) - 1) // SEGMENT)

    def on_interest(name: FormalName, _: InterestParam, __: bytes | None) -> None:
        number = Component.to_number(name[-1])
        part = content[number * SEGMENT : (number + 1) * SEGMENT]
        if part:
            app.put_data(name, content=part, freshness_period=10_000, final_block_id=last)

    async def register() -> None:
        if await app.register(prefix, on_interest):
            ready.touch()

    app.run_forever(after_start=register())


def consume(prefix: str, window: int = 16) -> str:
    """Fetch all segments, some at a time; their SHA-256, or why one did not come."""
    app = NDNApp(keychain=KeychainDigest())
    said = "nothing"

    async def one(number: int) -> tuple[bytes, MetaInfo]:
        name = [*Name.from_str(prefix), Component.from_segment(number)]
        for attempt in range(4):
            try:
                _, meta, content = await app.express_interest(name, lifetime=4000)
                return bytes(content), meta
            except InterestTimeout:
                if attempt == 3:
                    raise
        raise AssertionError("unreachable")

    async def every() -> None:
        nonlocal said
        try:
            first, meta = await one(0)
            count = Component.to_number(meta.final_block_id) + 1
            parts = [first]
            for at in range(1, count, window):
                some = [one(number) for number in range(at, min(at + window, count))]
                parts += [part for part, _ in await asyncio.gather(*some)]
            said = hashlib.sha256(b"".join(parts)).hexdigest()
        except InterestNack as nack:
            said = f"nack {nack.reason}"
        except InterestTimeout:
            said = "timeout"
        app.shutdown()

    app.run_forever(after_start=every())
    return said


def main(arguments: Sequence[str]) -> int:
    """`serve PREFIX FILE READY`, or `fetch PREFIX`."""
    match arguments:
        case ["serve", prefix, file, ready]:
            produce(prefix, Path(file).read_bytes(), Path(ready))
        case ["fetch", prefix]:
            print(consume(prefix))
        case _:
            print(main.__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
