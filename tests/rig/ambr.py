"""TCP under an AMBR: the share of the rate that a session's flows get, by rate, RTT and congestion control.

::

    iperf3 ─ ue0 (TUN) ─ delayed_ran ─ n3 ─ kaido: one QER a session ─ n6 ─ iperf3
             half the RTT in each direction          the AMBR

Each cell is a session with a QER and no other traffic. Cells are measured at the same time while their
rates add up to at most `--together`. The kernel's TCP sends packets of 1400 octets from the IP header on;
these octets are what the AMBR counts. The share is the TCP payload that was received after slow start,
divided by the payload that the rate has room for: rate x 1348 / 1400.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rig.net import Topology, wait_until
from rig.node import Node
from rig.pfcp import (
    ControlPlane,
    create_far,
    create_pdr,
    ie,
    to_core,
    tunnel,
    u8,
    u32,
    ue_address,
    uplink,
)

SMF, GNB, N3, DN = "10.100.4.2", "10.100.3.2", "10.100.3.1", "10.100.6.2"
FIRST_TEID, FIRST_PORT = 0x5000, 5201

#: Octets of a packet from its IP header on, and of TCP's payload in it (with time stamps).
MTU, PAYLOAD = 1400, 1348

#: The window in which no more than the rate and the burst may pass, as TS 23.501 5.7.3.6 has it by default.
WINDOW_S = 2.0


@dataclass(frozen=True)
class Cell:
    """One session's measurement."""

    mbps: float
    rtt_ms: int
    control: str
    flows: int
    up: bool
    #: The QER's averaging window; the node's `qos.burst_ms` without.
    burst_ms: int | None = None
    #: Seconds before the measurement and of it, where `seconds` shall not choose them.
    before_s: int | None = None
    counted_s: int | None = None

    @property
    def seconds(self) -> tuple[int, int]:
        """How long the flows run before the measurement, and how long it lasts.

        The time in which CUBIC regains its window after a loss grows with the window (RFC 9438 4.2). Two such
        times pass before the measurement, three in it.
        """
        packets = self.mbps * self.rtt_ms * 1000 / 8 / MTU
        regains = int((packets * 0.3 / 0.4) ** (1 / 3))
        return self.before_s or max(5, 2 * regains), self.counted_s or max(15, 3 * regains)


@dataclass
class Result:
    """What a cell's flows got."""

    cell: Cell
    #: Received payload, as a share of what the rate has room for.
    share: float
    #: Octets that the node forwarded, as a share of the rate.
    passed: float
    #: The most that passed beyond the rate in any window, in milliseconds at the rate.
    excess_ms: float
    retransmits: int
    #: Packets that were dropped for another reason than the AMBR, of all cells of the batch: where there are
    #: some, the machine was too slow and the share is not the AMBR's.
    other_drops: int = 0


def qer(number: int, kbps: int, window_ms: int | None) -> bytes:
    """A QER of an MBR in both directions (TS 29.244 8.2.8, 8.2.115)."""
    window = b"" if window_ms is None else u32(157, window_ms)
    return ie(7, u32(109, number) + u8(25, 0) + ie(26, kbps.to_bytes(5) * 2) + window)


def volume_rule(number: int) -> bytes:
    """A URR that measures volume and reports nothing before the end (7.5.2.4)."""
    return ie(6, u32(81, number) + u8(62, 2) + ie(37, b"\0\0"))


def prioritise(process: subprocess.Popen[str] | None) -> None:
    """Raise a process's priority: a worker that waits for a core drops packets for other reasons."""
    assert process
    for thread in Path(f"/proc/{process.pid}/task").iterdir():
        os.setpriority(os.PRIO_PROCESS, int(thread.name), -15)


@dataclass
class Session:
    """A cell's session and its counters over time."""

    cell: Cell
    index: int
    teid: int
    server: subprocess.Popen[str] | None = None
    client: subprocess.Popen[str] | None = None
    started: float = 0.0
    #: Samples: when the node was asked, when it had answered, and the octets that had passed.
    samples: list[tuple[float, float, int]] = field(default_factory=list)

    @property
    def ue(self) -> str:
        """The UE's address."""
        return f"10.60.0.{self.index + 1}"

    def line(self) -> str:
        """The UE's line for `delayed_ran`."""
        half_us = self.cell.rtt_ms * 500
        return f"ue{self.index} {self.ue} {self.teid} {FIRST_TEID + self.index} {half_us} {MTU}\n"

    def excess_ms(self) -> float:
        """The most that is known to have passed beyond the rate in any window of `WINDOW_S` at most."""
        rate = self.cell.mbps * 1e6 / 8
        most = 0.0
        for index, (since, _, before) in enumerate(self.samples):
            for _, until, after in self.samples[index + 1 :]:
                # The counters were read after `since` and before `until`.
                longest = until - since
                if longest > WINDOW_S:
                    break
                most = max(most, after - before - rate * longest)
        return most / rate * 1000


class Rig:
    """A node, its control plane, and sessions with an AMBR each."""

    def __init__(self, binary: Path, ran: Path, folder: Path, more: str = "") -> None:
        """Where the programs are; `more` goes into the node's configuration."""
        self.net = Topology(f"ambr{os.getpid()}-")
        self.node = Node(binary, self.net.upf, folder, frames=131072, more=more)
        self.ran = ran
        self.folder = folder

    def measure(self, cells: Sequence[Cell]) -> list[Result]:
        """Measure cells at the same time."""
        with self.net:
            self._tune()
            self.node.start()
            prioritise(self.node.process)
            smf = ControlPlane(self.net.ran, SMF)
            try:
                assert smf.set_up().cause == 1
                sessions = [self._session(smf, index, cell) for index, cell in enumerate(cells)]
                with self._attached(sessions) as ran:
                    for session in sessions:
                        self._start(session)
                    self._sample(sessions)
                    other_drops = ran.end() + sum(
                        count for name, count in self.node.drops().items() if "mbr_exceeded" not in name
                    )
            finally:
                smf.close()
                self.node.stop()
        return [self._result(session, other_drops) for session in sessions]

    def _tune(self) -> None:
        """TCP buffers larger than any bandwidth-delay product, and no metrics kept from flow to flow."""
        for space in (self.net.ran, self.net.dn):
            settings = {
                "ipv4/tcp_rmem": "4096 131072 134217728",
                "ipv4/tcp_wmem": "4096 131072 134217728",
                "ipv4/tcp_no_metrics_save": "1",
                "ipv4/conf/all/rp_filter": "0",
                "ipv4/conf/default/rp_filter": "0",
            }
            for name, value in settings.items():
                space.run("sh", "-c", f"echo {value} > /proc/sys/net/{name}")

    def _session(self, smf: ControlPlane, index: int, cell: Cell) -> Session:
        """A session whose two PDRs share one QER."""
        rules = u32(81, 1), u32(109, 1)
        down = create_pdr(2, 2, u8(20, 1) + ue_address(f"10.60.0.{index + 1}", destination=True), *rules)
        access = create_far(2, 2, u8(42, 0) + tunnel(FIRST_TEID + index))
        kbps = int(cell.mbps * 1000)
        answer = smf.establish(
            uplink(1, None, *rules), down, to_core(), access, volume_rule(1), qer(1, kbps, cell.burst_ms)
        )
        assert answer.cause == 1, answer
        return Session(cell, index, answer.teid)

    def _attached(self, sessions: Sequence[Session]) -> Attached:
        command = self.net.ran.command(str(self.ran), GNB, N3)
        return Attached(self.net, command, sessions)

    def _start(self, session: Session) -> None:
        """Start a server and a client."""
        cell, port = session.cell, str(FIRST_PORT + session.index)
        before, counted = cell.seconds
        listening = ("ss", "--listening", "--tcp", "--numeric")
        session.server = self.net.dn.start("iperf3", "--server", "--one-off", "--bind", DN, "--port", port)
        wait_until(lambda: f":{port} " in self.net.dn.run(*listening).stdout, "iperf3 does not start")
        client = (
            ("iperf3", "--client", DN, "--port", port, "--bind-dev", f"ue{session.index}", "--json")
            + ("--congestion", cell.control, "--parallel", str(cell.flows))
            + ("--omit", str(before), "--time", str(counted), "--interval", "1")
            + (() if cell.up else ("--reverse",))
        )
        session.started = time.monotonic()
        session.client = self.net.ran.start(*client, stdout=(self.folder / f"{port}.json").open("w"))

    def _sample(self, sessions: Sequence[Session]) -> None:
        """Read the sessions' counters until all clients have ended."""
        while any(session.client and session.client.poll() is None for session in sessions):
            before = time.monotonic()
            answer = self.node.ask("sessions", "--limit", "1000") or {"sessions": []}
            after = time.monotonic()
            listed = answer["sessions"]
            assert isinstance(listed, list)
            by_ue = {shown["ue"][0]: shown for shown in listed}
            for session in sessions:
                shown = by_ue[session.ue]
                passed = shown["uplink_bytes" if session.cell.up else "downlink_bytes"]
                session.samples.append((before, after, passed))
            time.sleep(0.1)

    def _result(self, session: Session, other_drops: int) -> Result:
        cell = session.cell
        report = json.loads((self.folder / f"{FIRST_PORT + session.index}.json").read_text())
        if "error" in report:
            raise RuntimeError(f"{cell}: {report['error']}")
        received, sent = report["end"]["sum_received"], report["end"]["sum_sent"]
        before, counted = cell.seconds
        begin = session.started + before + 1
        inside = [sample for sample in session.samples if begin < sample[0] < begin + counted - 2]
        (_, since, first), (_, until, last) = inside[0], inside[-1]
        return Result(
            cell,
            received["bits_per_second"] / 1e6 / (cell.mbps * PAYLOAD / MTU),
            (last - first) * 8 / 1e6 / (until - since) / cell.mbps,
            session.excess_ms(),
            sent.get("retransmits", 0),
            other_drops,
        )


class Attached:
    """`delayed_ran` with a device for each session."""

    def __init__(self, net: Topology, command: list[str], sessions: Sequence[Session]) -> None:
        """The command, and the sessions whose UEs it plays."""
        self.net, self.command, self.sessions = net, command, sessions
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Attached:
        """Start it, and route over its devices."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(self.command, **pipes)  # type: ignore[call-overload]
        assert self.process.stdin
        assert self.process.stdout
        # Its threads start after it has read the UEs, with the priority that it has then.
        prioritise(self.process)
        self.process.stdin.write("".join(session.line() for session in self.sessions) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline().strip() == "ready"
        for session in self.sessions:
            device = f"ue{session.index}"
            self.net.ran.ip("link", "set", device, "txqueuelen", "20000")
            metric = str(20_000 + session.index)
            self.net.ran.ip("route", "add", "default", "dev", device, "metric", metric)
        first = f"ue{self.sessions[0].index}"
        wait_until(lambda: self.net.ran.pings(DN, "-I", first, count=1, patience=1), "a ping is answered")
        return self

    def end(self) -> int:
        """End it; return how many packets it dropped."""
        assert self.process
        if self.process.poll() is not None:
            return 0
        output, _ = self.process.communicate(timeout=30)
        return int(output.split()[-1])

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.end()


def batches(cells: Sequence[Cell], together: float) -> Iterator[list[Cell]]:
    """Cells that are measured at the same time: of equal duration, and of at most `together` in sum."""
    batch: list[Cell] = []
    for cell in sorted(cells, key=lambda cell: (sum(cell.seconds), cell.mbps)):
        full = sum(other.mbps for other in batch) + cell.mbps > together or len(batch) == 48
        if batch and (full or sum(batch[0].seconds) != sum(cell.seconds)):
            yield batch
            batch = []
        batch.append(cell)
    if batch:
        yield batch


def table(results: Sequence[Result]) -> str:
    """A table in Markdown, a row for each rate and RTT; `*` where packets were dropped for other reasons."""
    columns = list(itertools.product((True, False), ("cubic", "bbr", "reno"), (1, 10)))
    by = {(r.cell.up, r.cell.control, r.cell.flows, r.cell.mbps, r.cell.rtt_ms): r for r in results}
    columns = [column for column in columns if any(key[:3] == column for key in by)]
    rows = sorted({(result.cell.mbps, result.cell.rtt_ms) for result in results})
    heads = [f"{'up' if up else 'down'} {control} {flows}" for up, control, flows in columns]
    lines = ["| Mbit/s | RTT ms | " + " | ".join(heads) + " |", "|---" * (2 + len(heads)) + "|"]
    for rate, rtt in rows:
        found = [by.get((*column, rate, rtt)) for column in columns]
        shares = [f"{100 * r.share:.0f}{'*' if r.other_drops else ''}" if r else "-" for r in found]
        lines.append(f"| {rate:g} | {rtt} | " + " | ".join(shares) + " |")
    return "\n".join(lines)


def numbers(text: str) -> list[float]:
    """Parse numbers that commas separate."""
    return [float(part) for part in text.split(",")]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m rig.ambr", description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, required=True, help="the kaido binary, a release build")
    parser.add_argument("--ran", type=Path, required=True, help="the example delayed_ran, a release build")
    parser.add_argument("--mbps", type=numbers, default=[1, 5, 20, 100, 300, 1000], help="AMBRs")
    parser.add_argument("--rtt-ms", type=numbers, default=[2, 20, 100], help="round-trip times")
    parser.add_argument("--flows", type=numbers, default=[1, 10], help="flows of a session")
    parser.add_argument("--control", default="cubic,bbr", help="congestion controls of the kernel")
    parser.add_argument("--directions", default="up,down")
    parser.add_argument(
        "--burst-ms", type=int, help="averaging window of the QERs; without, `qos.burst_ms` counts"
    )
    parser.add_argument("--seconds", type=int, help="duration of a measurement; without, by rate and RTT")
    parser.add_argument("--config", default="", help="more of the node's configuration")
    parser.add_argument("--together", type=float, default=300, help="Mbit/s measured at the same time")
    parser.add_argument("--json", type=Path, help="file for the results, a line each")
    given = parser.parse_args()
    cells = [
        Cell(mbps, int(rtt), control, int(flows), way == "up", given.burst_ms, counted_s=given.seconds)
        for mbps, rtt, flows, control, way in itertools.product(
            given.mbps, given.rtt_ms, given.flows, given.control.split(","), given.directions.split(",")
        )
    ]
    results: list[Result] = []
    for batch in batches(cells, given.together):
        with tempfile.TemporaryDirectory() as folder:
            rig = Rig(given.binary.resolve(), given.ran.resolve(), Path(folder), more=given.config)
            for result in rig.measure(batch):
                results.append(result)
                cell = result.cell
                way = "up" if cell.up else "down"
                print(
                    f"{cell.mbps:6g} Mbit/s {cell.rtt_ms:3} ms {way:4} {cell.control:5} x {cell.flows:2}: "
                    f"share {100 * result.share:5.1f} %, passed {100 * result.passed:5.1f} %, "
                    f"excess {result.excess_ms:5.0f} ms, {result.retransmits} retransmitted, "
                    f"{result.other_drops} other drops",
                    file=sys.stderr,
                    flush=True,
                )
                if given.json:
                    with given.json.open("a") as out:
                        out.write(json.dumps(asdict(result)) + "\n")
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
