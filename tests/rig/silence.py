"""A node under traffic whose SMF is silent for minutes: no usage is lost, memory and log stay bounded.

    python -m rig.silence --binary target/release/kaido --seconds 600 [--durability disk]

Each session reaches its volume threshold over and over. The SMF takes nothing in and asks nothing for that
long, and then goes on. At the end each session's usage is that of its traffic.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rig.faults import send_signal
from rig.net import Topology
from rig.node import Node
from rig.soak import ENDS, SMALL_PAGES, resident_kib

#: Seconds of traffic before and after the silence.
AROUND_S = 10
#: So long after the SMF has gone silent, all that is kept of reports is there.
FULL_S = 30
#: Memory that may still be added then, in KiB, and lines that the log may have of it all.
GROWTH_KIB, LINES = 1024, 20


@dataclass
class Silence:
    """A run, and what it showed."""

    seconds: float
    durability: str = "process"
    ues: int = 600
    pps: int = 4000
    #: Resident memory of the node by seconds of silence, in KiB.
    resident: list[tuple[float, int]] = field(default_factory=list)
    lines: int = 0
    report: dict[str, Any] = field(default_factory=dict)
    sessions_left: object = None

    def growth_kib(self) -> int:
        """Memory that was added once all was there that is kept of reports."""
        full = [kib for at, kib in self.resident if at >= min(FULL_S, self.seconds / 2)]
        return max(full) - full[0]

    def faults(self) -> list[str]:
        """What is not as it should be."""
        wanted = {
            "sessions whose usage differs from their traffic": (0, self.report["differing"]),
            "requests refused, but sessions in an overload": (
                self.report["put_off"],
                self.report["requests_refused"],
            ),
            "final usage reports": (self.report["sessions"], self.report["usage"]["final_reports"]),
            "sessions left in the node": (0, self.sessions_left),
        }
        found = [
            f"{what}: {found}, not {expected}"
            for what, (expected, found) in wanted.items()
            if found != expected
        ]
        if self.growth_kib() > GROWTH_KIB:
            found.append(f"memory grew by {self.growth_kib()} KiB while the SMF was silent")
        if self.lines > LINES:
            found.append(f"the log has {self.lines} lines of the silence")
        return found


def be_silent(binary: Path, net: Topology, folder: Path, run: Silence) -> Silence:
    """Run it in a network that is there."""
    net.echo()
    node = Node(
        binary,
        net.upf,
        folder,
        sessions_max=max(1024, 2 * run.ues),
        durability=run.durability,
        environment=SMALL_PAGES,
    ).start()
    report = folder / "silence.json"
    arguments = [*ENDS.split(), "--ues", str(run.ues), "--churn", "100", "--faults", "--choose"]
    seconds = int(run.seconds) + 2 * AROUND_S
    arguments += ["--traffic", f"pps={run.pps},bytes=400,seconds={seconds},to=10.100.6.2:7"]
    with (folder / "sim.log").open("w") as log:
        sim = net.ran.start(str(binary), "sim", *arguments, "--report", str(report), stdout=log, stderr=log)
    time.sleep(AROUND_S)
    assert node.process is not None
    if sim.poll() is not None:
        raise RuntimeError((folder / "sim.log").read_text())
    before = node.log.read_text().count("\n")
    send_signal(sim.pid, signal.SIGUSR1)
    began = time.monotonic()
    while (at := time.monotonic() - began) < run.seconds:
        run.resident.append((at, resident_kib(node.process.pid)))
        time.sleep(min(2, run.seconds / 20))
    send_signal(sim.pid, signal.SIGUSR2)
    if sim.wait(timeout=seconds + 120) != 0:
        raise RuntimeError(f"{(folder / 'sim.log').read_text()}\n{node.log.read_text()[-4000:]}")
    run.lines = node.log.read_text().count("\n") - before
    run.report = json.loads(report.read_text())
    status = node.ask("status")
    run.sessions_left = status["sessions"] if status else None
    node.stop()
    return run


def main() -> None:
    """Run it and exit with 1 when something is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--durability", choices=["off", "process", "disk"], default="process")
    arguments = parser.parse_args()
    run = Silence(arguments.seconds, arguments.durability)
    with Topology("silence-") as net, tempfile.TemporaryDirectory() as folder:
        be_silent(arguments.binary, net, Path(folder), run)
    first, last = run.resident[0][1], run.resident[-1][1]
    print(
        f"{run.seconds:.0f} s of silence, {run.ues} sessions; "
        f"resident {first} KiB, then {last} KiB; {run.lines} lines of log"
    )
    print(f"{run.report['usage']['reports']} usage reports; uplink {run.report['uplink']}")
    faults = run.faults()
    print("\n".join(faults) or "no usage was lost")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
