"""How long PFCP answers take while clients by the thousand connect to the API who mean no good.

    python -m rig.crowd --binary target/release/kaido [--clients 10000] [--seconds 20]

A control plane modifies a session, 500 times a second, first with nobody else there and then beside the
crowd. The crowd has so many connections under way, most of them over TLS, and opens another wherever one is
closed. Who is in it says nothing, or half of a request, guesses tokens, or sends what is no HTTP.
A UE pings meanwhile. The crowd has the last CPU, and all else the others: clients have CPUs of their own.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import selectors
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rig.authority import LEAF, Authority
from rig.net import Topology
from rig.node import Node, Sim
from rig.pfcp import MODIFICATION, ControlPlane, downlink, ie, to_access, to_core, tunnel, u32, uplink

#: The API.
API = ("10.100.4.1", 9106)
#: The control plane, beside that of the UE that pings.
SMF = "10.100.4.3"
#: The CPU of the crowd: the last one.
OF_CROWD = (os.cpu_count() or 2) - 1
#: The UE that pings.
PLAN = (
    "--upf-pfcp 10.100.4.1 --smf 10.100.4.2 --upf-gtpu 10.100.3.1 --gnb 10.100.3.2 --ue-ipv4 10.60.0.1 "
    "--ues 1 --tuns 1 --hold"
)
#: Modifications a second, and pings.
RATE, PINGS = 500, 50
#: Seconds until most of the crowd has come.
GATHERING_S = 10
#: What is no HTTP, or too much of it, over TLS or as it is.
WRONG = (
    b"",
    b"GET /v1/no",
    b"GET /v1/../../etc/shadow HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /v1/reload HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET ",
    b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5000,
    b"GET /v1/sessions HTTP/1.1\r\nHost: 10.100.4.1:9106\r\nAuthorization: Bearer guess\r\n\r\n" * 20,
)


@dataclass(frozen=True)
class Times:
    """Times of answers in ms, and pings that were answered and sent."""

    answers: list[float]
    pings: tuple[int, int]

    def __str__(self) -> str:
        """Quantiles."""
        ordered = sorted(self.answers)
        middle, late = statistics.median(ordered), ordered[len(ordered) * 99 // 100]
        answered, sent = self.pings
        return (
            f"{len(ordered)} answers: p50 {middle:.2f} ms, p99 {late:.2f} ms, longest {ordered[-1]:.1f} ms; "
            f"{answered} of {sent} pings"
        )


class Member:
    """One of the crowd: as far as it is."""

    def __init__(self, chance: random.Random, context: ssl.SSLContext | None) -> None:
        """Connect."""
        self.says = chance.choice(WRONG)
        self.raw = socket.socket()
        self.raw.setblocking(False)
        self.raw.connect_ex(API)
        self.socket: socket.socket | ssl.SSLSocket = self.raw
        self.context = context

    @property
    def has_said(self) -> bool:
        """Whether it only listens from now on."""
        return not self.says and self.context is None

    def goes_on(self) -> bool:
        """Say what can be said; whether it is still there."""
        try:
            if self.context is not None:
                self.socket = self.context.wrap_socket(self.raw, do_handshake_on_connect=False)
                self.context = None
            if isinstance(self.socket, ssl.SSLSocket) and self.socket.version() is None:
                self.socket.do_handshake()
            if self.says:
                self.says = self.says[self.socket.send(self.says) :]
                return True
            return self.socket.recv(65536) != b""
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return True
        except OSError:
            return False


def join(clients: int) -> None:
    """Keep so many connections under way until SIGTERM; say how many there were."""
    os.sched_setaffinity(0, {OF_CROWD})
    resource.setrlimit(resource.RLIMIT_NOFILE, (clients + 100, clients + 100))
    ends = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    chance = random.Random(clients)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    waits = selectors.DefaultSelector()
    count = most = 0
    while not ends.is_set():
        # Some at a time, so that those who are there go on too.
        for _ in range(min(64, clients - len(waits.get_map()))):
            # One in four speaks no TLS.
            member = Member(chance, context if chance.randrange(4) else None)
            waits.register(member.raw.fileno(), selectors.EVENT_READ | selectors.EVENT_WRITE, member)
            count += 1
        most = max(most, len(waits.get_map()))
        turn(waits)
    print(f"{count} connections, {most} at once at most", flush=True)


def turn(waits: selectors.BaseSelector) -> None:
    """Have all go on that can."""
    for key, _ in waits.select(timeout=0.01):
        member: Member = key.data
        if not member.goes_on():
            waits.unregister(key.fd)
            member.socket.close()
        elif member.has_said:
            waits.modify(key.fd, selectors.EVENT_READ, member)


def answers(smf: ControlPlane, seid: int, seconds: float) -> list[float]:
    """Modify a session over and over; times of answers in ms, from when each request was due."""
    took: list[float] = []
    due = time.monotonic()
    until = due + seconds
    while due < until:
        time.sleep(max(0.0, due - time.monotonic()))
        moved = ie(10, u32(108, 2) + ie(11, tunnel(1 + len(took))))
        assert smf.ask(MODIFICATION, moved, seid).cause == 1
        took.append((time.monotonic() - due) * 1000)
        due += 1 / RATE
    return took


def measure(net: Topology, smf: ControlPlane, seid: int, seconds: float) -> Times:
    """Answers and pings for so long."""
    count = int(seconds * PINGS)
    command = ("ping", "-q", "-I", "ue0", "-i", str(1 / PINGS), "-c", str(count), "-W", "1", "10.100.6.2")
    ping = net.ran.start(*command, stdout=subprocess.PIPE)
    took = answers(smf, seid, seconds)
    said, _ = ping.communicate(timeout=60)
    return Times(took, (int(said.split(" received")[0].split()[-1]), count))


@contextmanager
def serving(binary: Path, net: Topology, folder: Path) -> Iterator[Node]:
    """A node with the API over TLS, and a UE."""
    authority = Authority(folder)
    certificate, key = authority.issue("node", "-addext", "subjectAltName=IP:10.100.4.1", *LEAF)
    (folder / "tokens").touch(mode=0o600)
    api = (
        f'[api]\nlisten = "10.100.4.1"\ntokens = "{folder}/tokens"\n'
        f'tls_certificate = "{certificate}"\ntls_key = "{key}"\n'
    )
    node = Node(binary, net.upf, folder, durability="process", more=api).start()
    try:
        ran = Sim(binary, net.ran, folder, PLAN.split()).start()
        yield node
        ran.stop()
    finally:
        node.stop()


def compare(
    binary: Path, net: Topology, folder: Path, clients: int, seconds: float
) -> tuple[Times, Times, str]:
    """Times without the crowd and beside it, and how many were in it."""
    net.ran.ip("address", "add", f"{SMF}/24", "dev", "smf0")
    with serving(binary, net, folder), closing(ControlPlane(net.ran, SMF)) as smf:
        smf.set_up()
        seid = smf.establish(uplink(), downlink("10.60.200.1"), to_core(), to_access(1)).up_seid
        quiet = measure(net, smf, seid, seconds)
        crowd = net.ran.start(
            sys.executable,
            "-m",
            "rig.crowd",
            "--join",
            str(clients),
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        time.sleep(GATHERING_S)
        beside = measure(net, smf, seid, seconds)
        crowd.terminate()
        said, _ = crowd.communicate(timeout=60)
        return quiet, beside, said.strip()


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m rig.crowd", description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, help="the kaido binary, a release build")
    parser.add_argument("--clients", type=int, default=10_000, help="connections under way at once")
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of each of the two runs")
    parser.add_argument("--join", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.join is not None:
        join(given.join)
        return 0
    os.sched_setaffinity(0, set(range(OF_CROWD)))
    with Topology(f"crowd{os.getpid()}-") as net, tempfile.TemporaryDirectory() as folder:
        quiet, beside, crowd = compare(
            given.binary.resolve(), net, Path(folder), given.clients, given.seconds
        )
    print(f"alone:            {quiet}\nbeside the crowd: {beside}\nthe crowd: {crowd}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
