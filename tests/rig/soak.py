"""The soak: a node under thousands of sessions that come, go, move and sleep, with traffic, for an hour.

``python3 -m rig.soak --binary target/release/kaido --minutes 60``. Traffic and usage are compared to the
octet by `kaido sim --churn`, which knows what went through every tunnel; memory and drops are looked at here.
With ``--faults`` links, neighbours, the SMF, the clock and strangers are at fault, one after the other.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from rig.faults import METRICS, Faults, Window, wall_clock_of
from rig.net import Namespace, NetError, Topology, wait_until
from rig.node import Node
from rig.verdict import LOG_OF_FAULT, LOG_OF_HOUR, SIGNALLING, Verdict

ENDS = (
    "--upf-pfcp 10.100.4.1 --smf 10.100.4.2 --gnb 10.100.3.2 --ue-ipv4 10.60.0.1 "
    "--network-instance internet --threshold 20000"
)
#: Dialects of `kaido sim` whose SMF gives F-TEIDs out itself, asks for usage of both directions, or asks for
#: no End Marker.
GIVE_F_TEIDS = {"free5gc"}
ASK_FOR_USAGE = {"plain", "free5gc"}
ASK_FOR_NO_END_MARKER = {"oai"}
#: Growth of resident memory after warm-up that is still called flat: a part of it, and KiB beside.
GROWTH = 0.02
GROWTH_KIB = 2048
#: The node's heap in pages of 4 KiB. With huge ones its resident memory grows by 2 MiB for a byte in use, in
#: steps that hide what a session leaves behind.
SMALL_PAGES = {"MIMALLOC_ALLOW_THP": "0"}
#: No fault is begun so long before the end.
LAST_S = 45
#: Longest warm-up, in seconds: every table has been filled once by then.
WARM_UP_S = 600


@dataclass
class Check:
    """One row of the result."""

    what: str
    expected: object
    found: object

    def ok(self) -> bool:
        """Whether it is as expected."""
        return self.expected == self.found


@dataclass
class Soak:
    """A run, and what it showed."""

    seconds: int
    ues: int
    churn: int
    pps: int
    dialect: str = "plain"
    datapath: str = "engine"
    #: Whom the UEs' packets go to, on the data network.
    to: str = "10.100.6.2"
    #: Faults, from this seed, with so many seconds of quiet between two.
    faults: int | None = None
    quiet: float = 20.0
    #: Each fault once, and no more.
    once: bool = False
    windows: list[Window] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    log_bytes: int = 0
    panics: int = 0
    report: dict[str, Any] = field(default_factory=dict)
    drops: dict[str, int] = field(default_factory=dict)
    lost_in_kernel: int = 0
    sessions_left: object = None
    #: Resident KiB of the node and of the sim, by the second they were looked at.
    resident: list[tuple[float, int, int]] = field(default_factory=list)
    #: Packets that a datapath in the kernel forwarded, both ways.
    by_kernel: int = 0

    def plateau(self) -> tuple[float, float]:
        """Mean resident KiB of the node in the first and the last tenth after warm-up."""
        warm_up = min(WARM_UP_S, self.seconds / 2)
        after = [kib for at, kib, _ in self.resident if at >= warm_up]
        tenth = max(1, len(after) // 10)
        return mean(after[:tenth]), mean(after[-tenth:])

    def checks(self) -> list[Check]:
        """What is expected, and what was found."""
        return [*self.common_checks(), *(self.calm_checks() if self.faults is None else self.fault_checks())]

    def calm_checks(self) -> list[Check]:
        """Where the network loses nothing."""
        report, usage = self.report, self.report["usage"]
        dropped = {port: self.dropped_at(port) for port in ("n3", "n6")}
        return [
            *(self.usage_checks(dropped["n3"]) if self.dialect in ASK_FOR_USAGE else []),
            Check(
                "packets without reply = drops at n3 and n6",
                report["unanswered"],
                dropped["n3"] + dropped["n6"],
            ),
            Check("usage reports out of sequence", 0, usage["out_of_sequence"]),
            Check("End Markers = handovers", self.handovers_with_end_marker(), report["end_markers"]),
            Check("tunnels without an End Marker", 0, report["unended"]),
            Check("datagrams not sent", 0, report["send_errors"]),
        ]

    def verdict(self) -> Verdict:
        """What was lost to which fault."""
        return Verdict(self.windows, self.report, self.drops).judge()

    def fault_checks(self) -> list[Check]:
        """Where packets are lost: each has its fault or its drop reason, and is charged as it should be."""
        report, verdict, faults = self.report, self.verdict(), self.report["faults"]
        buffered = verdict.buffer_drops()
        in_buffers = verdict.asleep_outside <= buffered <= verdict.asleep
        told = f"{verdict.asleep_outside} <= {buffered} <= {verdict.asleep}"
        log = self.log_bytes - sum(window.log_bytes for window in self.windows)
        return [
            Check("faults that were not as they should be", [], self.problems),
            Check("packets lost at a time without a fault", 0, verdict.unexplained),
            Check("packets charged, or not, at the wrong side of a fault", 0, verdict.misplaced),
            Check("packets that the node lost without a drop reason", {}, verdict.unnamed()),
            Check(f"packets lost asleep are dropped by name ({told})", True, in_buffers),
            Check("datagrams of floods without a drop reason", 0, verdict.uncounted_of_floods()),
            Check("final usage reports", report["sessions"], report["usage"]["final_reports"]),
            Check("gaps in UR-SEQN without a silence", 0, verdict.gaps_outside()),
            Check("tunnels without an End Marker", len(faults["unended_at"]), report["unended"]),
            Check("of these, without a fault", 0, verdict.outside(faults["unended_at"], "n3")),
            Check("datagrams not sent", len(faults["unsent_at"]), report["send_errors"]),
            Check("of these, without a fault", 0, verdict.outside(faults["unsent_at"], "n3")),
            Check("faults whose log is too long", [], self.loud()),
            Check(f"log without faults bounded ({log} octets)", True, log <= self.log_limit()),
            Check("panics", 0, self.panics),
        ]

    def loud(self) -> list[str]:
        """Faults of which the log says more than it should."""
        return [f"{it.name}: {it.log_bytes}" for it in self.windows if it.log_bytes > LOG_OF_FAULT]

    def log_limit(self) -> int:
        """Octets of log without faults: those of an hour, begun hours included."""
        return LOG_OF_HOUR * (1 + self.seconds // 3600)

    def common_checks(self) -> list[Check]:
        """With faults and without."""
        report = self.report
        early, late = self.plateau()
        limit = early * (1 + GROWTH) + GROWTH_KIB
        return [
            Check("sessions whose usage differs from their traffic", 0, report["differing"]),
            Check("datagrams that the kernels lost", 0, self.lost_in_kernel),
            Check("requests without an answer", 0, report["requests_exhausted"]),
            Check(
                "requests refused, but sessions in an overload", report["put_off"], report["requests_refused"]
            ),
            Check("packets in tunnels that ended, strays", 0, report["strays"]),
            Check("packets changed, copied or misdelivered", 0, report["flaws"]),
            Check("packets with the QFI of another flow", 0, report["wrong_qfi"]),
            Check("datagrams malformed", 0, report["malformed"]),
            Check("sessions left in the node", 0, self.sessions_left),
            Check(f"resident memory flat ({early:.0f} to {late:.0f} KiB)", True, late <= limit),
        ]

    def usage_checks(self, dropped: int) -> list[Check]:
        """Usage of all sessions together, where both directions are asked for."""
        usage, up, down = self.report["usage"], self.report["uplink"], self.report["downlink"]
        return [
            Check("octets up: traffic = usage", up["bytes"], usage["uplink_bytes"]),
            Check("octets down: traffic = usage", down["bytes"], usage["downlink_bytes"]),
            Check("packets up: usage + drops at n3", up["packets"], usage["uplink_packets"] + dropped),
            Check("final usage reports", self.report["sessions"], usage["final_reports"]),
        ]

    def handovers_with_end_marker(self) -> int:
        """Handovers whose old tunnel is told that it ends."""
        return 0 if self.dialect in ASK_FOR_NO_END_MARKER else int(self.report["handovers"])

    def dropped_at(self, port: str) -> int:
        """Users' packets dropped at a port. What GTP-U peers tell each other is none."""
        dropped = (name.split() for name in self.drops)
        return sum(self.drops[f"{at} {why}"] for at, why in dropped if at == port and why not in SIGNALLING)


def resident_kib(pid: int) -> int:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def udp_losses(space: Namespace) -> int:
    """Datagrams that sockets of a namespace had no room for."""
    lines = [line.split() for line in space.run("cat", "/proc/net/snmp").stdout.splitlines()]
    names, values = [line[1:] for line in lines if line[0] == "Udp:"]
    counts = dict(zip(names, values, strict=True))
    return int(counts["RcvbufErrors"]) + int(counts["SndbufErrors"])


@contextmanager
def folder_of(out: Path | None) -> Iterator[Path]:
    """Where configuration, logs and reports go: `out`, or a folder that vanishes."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        yield out
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)


def soak(binary: Path, net: Topology, folder: Path, run: Soak) -> Soak:
    """Run the soak in a network that is there."""
    net.echo(run.to)
    clock = None if run.faults is None else wall_clock_of(folder)
    node = Node(
        binary,
        net.upf,
        folder,
        sessions_max=max(1024, 2 * run.ues),
        node=f'datapath = "{run.datapath}"',
        more=METRICS if clock else "",
        environment=SMALL_PAGES | (clock.environment if clock else {}),
    ).start()
    before = node.drops()
    traffic = f"pps={run.pps},bytes=400,seconds={run.seconds},to={run.to}:7"
    report = folder / "soak.json"
    arguments = [*ENDS.split(), "--ues", str(run.ues), "--churn", str(run.churn), "--traffic", traffic]
    arguments += ["--faults"] if clock else ["--dialect", run.dialect]
    arguments += ["--upf-gtpu", "10.100.3.1"] if run.dialect in GIVE_F_TEIDS else ["--choose"]
    with (folder / "sim.log").open("w") as log:
        command = [str(binary), "sim", *arguments, "--report", str(report)]
        sim = net.ran.start(*command, stdout=log, stderr=log)
    assert node.process is not None
    faults = None
    if run.faults is not None and clock is not None:
        faults = Faults(net, node, sim.pid, clock, run.faults, run.quiet, once=run.once)
        faults.start()
    began = time.monotonic()
    pause = max(0.5, run.seconds / 720)
    while sim.poll() is None:
        at = time.monotonic() - began
        try:
            run.resident.append((at, resident_kib(node.process.pid), resident_kib(sim.pid)))
        except FileNotFoundError:
            break
        if at > 4 * run.seconds + 120:
            sim.terminate()
        if faults is not None and at > run.seconds - min(LAST_S, run.seconds / 6):
            faults.stop.set()
        time.sleep(pause)
    if faults is not None:
        faults.stop.set()
        faults.join()
        run.windows, run.problems = faults.windows, faults.problems
    if sim.wait(timeout=60) != 0 or node.ended():
        raise RuntimeError(f"{(folder / 'sim.log').read_text()}\n{node.log.read_text()[-4000:]}")
    run.report = json.loads(report.read_text())

    def all_is_accounted_for() -> bool:
        run.drops = {name: count - before.get(name, 0) for name, count in node.drops().items()}
        if run.faults is not None:
            return run.verdict().buffer_drops() >= run.verdict().asleep_outside
        return bool(run.dropped_at("n3") + run.dropped_at("n6") >= run.report["unanswered"])

    # What was buffered for sessions that are gone is dropped within a sweep.
    with suppress(NetError):
        wait_until(all_is_accounted_for, "all is accounted for", 30)
    run.lost_in_kernel = udp_losses(net.ran) + udp_losses(net.dn)
    status = node.ask("status")
    run.sessions_left = status["sessions"] if status else None
    ports = status["ports"] if status else []
    assert isinstance(ports, list)
    run.by_kernel = sum(port["kernel_packets"] for port in ports)
    node.stop()
    log_text = node.log.read_text()
    run.log_bytes, run.panics = len(log_text), log_text.count("panicked")
    return run


def show(run: Soak) -> bool:
    """Print the result; whether all is as expected."""
    report = run.report
    load = f"{run.seconds} s, {run.ues} UEs, {run.churn} changes/s, {run.pps} packets/s"
    print(f"{platform.platform()}, {load}")
    names = ("attaches", "detaches", "detached_asleep", "handovers", "idles", "pages", "wakes", "queries")
    print(", ".join(f"{report[name]} {name.replace('_', ' ')}" for name in names))
    print(f"{report['usage']['reports']} usage reports; retransmissions: {report['retransmissions_sent']}")
    print(f"uplink {report['uplink']}, downlink {report['downlink']}, without reply {report['unanswered']}")
    print(f"drops {run.drops}")
    if run.faults is not None:
        print(f"faults, seed {run.faults}:")
        print("\n".join(f"  {line}" for line in run.verdict().table()))
    print(f"resident: node {run.resident[-1][1]} KiB, sim {run.resident[-1][2]} KiB at the end")
    for check in run.checks():
        verdict = "ok" if check.ok() else "DIFFERS"
        print(f"{verdict:8} {check.what}: {check.found} (expected {check.expected})")
    return all(check.ok() for check in run.checks())


def main() -> None:
    """Run it and exit with 1 when a check failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--ues", type=int, default=3000)
    parser.add_argument("--churn", type=int, default=300, help="changes a second")
    parser.add_argument("--pps", type=int, default=1000)
    parser.add_argument("--faults", action="store_true", help="faults, one after the other")
    parser.add_argument("--seed", type=int, help="of the faults; another each time unless given")
    parser.add_argument("--quiet", type=float, default=20, help="seconds between two faults, at least")
    parser.add_argument("--out", type=Path, help="keep configuration, logs and reports in this folder")
    arguments = parser.parse_args()
    run = Soak(
        int(arguments.minutes * 60), arguments.ues, arguments.churn, arguments.pps, quiet=arguments.quiet
    )
    if arguments.faults:
        run.faults = random.SystemRandom().randrange(1 << 30) if arguments.seed is None else arguments.seed
        print(f"seed of the faults: {run.faults}", flush=True)
    with Topology("soak-") as net, folder_of(arguments.out) as folder:
        soak(arguments.binary, net, folder, run)
        samples = [f"{at:.0f},{node},{sim}\n" for at, node, sim in run.resident]
        (folder / "resident.csv").write_text("seconds,node_kib,sim_kib\n" + "".join(samples))
    sys.exit(0 if show(run) else 1)


if __name__ == "__main__":
    main()
