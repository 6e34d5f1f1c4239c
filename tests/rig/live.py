"""Packets a second of a user plane over veth, by live frames: ours as it comes, or any other.

::

    kaido bench attach ── smf0 ── n4 ──┐
    kaido bench live ──── sgw0 ── n3 ── user plane ── n6 ── sgi0 ──┐
                   └───────────────────────────────────────────────┘

Sender and user plane share a core, so a figure is that of both together. Another user plane is a command that
runs in a namespace of its own, with the interfaces n3 (10.100.3.1), n4 (10.100.4.1) and n6 (10.100.6.1), a
default route by n6, forwarding on and all neighbours known. It takes the sessions of `kaido bench attach`.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rig.attach import of_shape
from rig.net import Cable, NetError, Network, wait_until
from rig.node import Node, port

CABLES = (
    Cable("bench", "sgw0", ["10.100.3.2/24"], "upf", "n3", ["10.100.3.1/24"], 1600),
    Cable("bench", "smf0", ["10.100.4.2/24"], "upf", "n4", ["10.100.4.1/24"]),
    Cable("bench", "sgi0", ["10.100.6.2/24"], "upf", "n6", ["10.100.6.1/24"], 1600),
)

#: Where a direction's packets are sent, where they come back, and the user plane's interface.
WAYS = {"uplink": ("sgw0", "sgi0", "n3"), "downlink": ("sgi0", "sgw0", "n6")}


@dataclass(frozen=True)
class Sessions:
    """How many of which shape."""

    shape: str
    count: int


class Live:
    """A user plane between two interfaces of the bench."""

    def __init__(self, binary: Path, folder: Path, prefix: str = "", other: str | None = None) -> None:
        """Name it; `other` is the command of a user plane that is not ours."""
        self.binary, self.folder, self.other = binary, folder, other
        self.net = Network(prefix, ("bench", "upf"), CABLES)
        self.bench, self.upf = self.net.spaces["bench"], self.net.spaces["upf"]

    @contextmanager
    def attached(self, sessions: Sessions) -> Iterator[None]:
        """Run the user plane with these sessions."""
        with self.net:
            self.upf.ip("route", "add", "default", "via", "10.100.6.2")
            for name, address, interface in (("sgw0", "10.100.3.2", "n3"), ("sgi0", "10.100.6.2", "n6")):
                near = ("lladdr", self.bench.mac(name), "dev", interface, "nud", "permanent")
                self.upf.ip("neigh", "replace", address, *near)
            log, releases = self.folder / "attach.log", self.other is None
            held = of_shape(self.binary, self.bench, log, sessions.shape, sessions.count, releases=releases)
            with self.running(sessions), held:
                yield

    @contextmanager
    def running(self, sessions: Sessions) -> Iterator[None]:
        """Run the user plane."""
        if self.other is None:
            node = Node(
                self.binary,
                self.upf,
                self.folder,
                sessions_max=max(sessions.count, 1024),
                listen=("10.100.4.1",),
                pool="",
                datapath="",
                n3=port("n3", "af_xdp"),
                n6=port("n6", "af_xdp", 'network_instance = "internet"'),
            ).start()
            try:
                yield
            finally:
                node.stop()
            return
        self.upf.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        with (self.folder / "other.log").open("w") as log:
            process = self.upf.start(*shlex.split(self.other), stdout=log, stderr=log)
        listening = ("ss", "--listening", "--udp", "--numeric")

        def is_up() -> bool:
            return process.poll() is not None or ":8805 " in self.upf.run(*listening).stdout

        wait_until(is_up, "the user plane listens to PFCP")
        if process.poll() is not None:
            raise NetError(f"the user plane ended:\n{(self.folder / 'other.log').read_text()[-2000:]}")
        yield

    def send(self, direction: str, sessions: Sessions, seconds: float) -> dict[str, Any]:
        """What `kaido bench live` says of a run."""
        source, back, device = WAYS[direction]
        command = [str(self.binary), "bench", "live", "--direction", direction]
        command += ["--from", source, "--to", back]
        command += ["--device-mac", self.upf.mac(device), "--n3", "10.100.3.1", "--gnb", "10.100.3.2"]
        command += ["--sessions", str(sessions.count), "--duration", str(seconds), "--json", "-"]
        return dict(json.loads(self.bench.run(*command, timeout=60 + 10 * seconds).stdout))


def measure(live: Live, sessions: Sessions, seconds: float) -> dict[str, float]:
    """Packets a second that come back, by direction."""
    with live.attached(sessions):
        return {way: float(live.send(way, sessions, seconds)["received_pps"]) for way in WAYS}


def spread(figures: Sequence[float]) -> str:
    """The median, and what it lies between, in Mpps."""
    low, middle, high = min(figures), statistics.median(figures), max(figures)
    return f"{middle / 1e6:.2f} ({low / 1e6:.2f} to {high / 1e6:.2f})"


def main() -> int:
    """Measure in turn, and print."""
    parser = argparse.ArgumentParser(prog="python -m rig.live", description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, required=True, help="the kaido binary, a release build")
    parser.add_argument("--other", help="the command of another user plane, measured in turn with ours")
    parser.add_argument(
        "--shapes", default="plain,free5gc,open5gs", help="of `kaido bench attach`, by commas"
    )
    parser.add_argument("--sessions", default="1,131072", help="how many, by commas")
    parser.add_argument("--seconds", type=float, default=2.0, help="duration of each run")
    parser.add_argument("--rounds", type=int, default=3, help="of each user plane, in turn")
    given = parser.parse_args()
    candidates = {"kaido": None} | ({"other": given.other} if given.other else {})
    for shape in given.shapes.split(","):
        for count in map(int, given.sessions.split(",")):
            found: dict[tuple[str, str], list[float]] = {}
            for _ in range(given.rounds):
                for name, command in candidates.items():
                    with tempfile.TemporaryDirectory() as folder:
                        live = Live(given.binary.resolve(), Path(folder), f"live{os.getpid()}-", command)
                        for way, pps in measure(live, Sessions(shape, count), given.seconds).items():
                            found.setdefault((name, way), []).append(pps)
            for (name, way), figures in found.items():
                print(f"{shape:>8} {count:>8} {name:>6} {way:>8}: {spread(figures)} Mpps", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
