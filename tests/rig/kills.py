"""A node under churn and traffic that is killed, over and over: what it has answered, it still knows.

    python -m rig.kills --binary target/release/kaido --kills 1000 [--durability disk]

UEs attach, hand over, go idle, are paged and detach, and send all the while. The node is killed by SIGKILL
at moments that a seed gives, and started again at once. At the end every session's usage is what passed
through its tunnels, but for packets that were lost while the node was away; no request was refused or given
up; and no session is left.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rig.net import Topology
from rig.node import Node
from rig.soak import ENDS

#: Longest and shortest time between a start and the next kill, in seconds.
BETWEEN_S = (0.3, 1.5)
#: A kill and a start together, for how long the traffic has to last.
KILL_S = 2.2


@dataclass
class Kills:
    """A run, and what it showed."""

    kills: int
    seed: int
    durability: str = "process"
    ues: int = 300
    churn: int = 100
    pps: int = 500
    done: int = 0
    #: How long each start took, in seconds.
    starts: list[float] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=dict)
    sessions_left: object = None

    def faults(self) -> list[str]:
        """What is not as it should be."""
        wanted = {
            "sessions whose usage differs from their traffic": (0, self.report["differing"]),
            "requests without an answer": (0, self.report["requests_exhausted"]),
            "requests refused, but sessions in an overload": (
                self.report["put_off"],
                self.report["requests_refused"],
            ),
            "packets changed, copied or misdelivered": (0, self.report["flaws"]),
            "final usage reports": (self.report["sessions"], self.report["usage"]["final_reports"]),
            "sessions left in the node": (0, self.sessions_left),
        }
        return [
            f"{what}: {found}, not {expected}"
            for what, (expected, found) in wanted.items()
            if found != expected
        ]


def kill_often(binary: Path, net: Topology, folder: Path, run: Kills, say: Callable[[str], None]) -> Kills:
    """Run it in a network that is there."""
    chance = random.Random(run.seed)
    net.echo()
    node = Node(
        binary, net.upf, folder, sessions_max=max(1024, 2 * run.ues), durability=run.durability
    ).start()
    seconds = int(run.kills * KILL_S) + 5
    report = folder / "kills.json"
    arguments = [*ENDS.split(), "--ues", str(run.ues), "--churn", str(run.churn), "--faults", "--choose"]
    # A node that is killed again and again beside other work may have no second to answer in.
    arguments += ["--tries", "60"]
    arguments += ["--traffic", f"pps={run.pps},bytes=400,seconds={seconds},to=10.100.6.2:7"]
    with (folder / "sim.log").open("w") as log:
        command = [str(binary), "sim", *arguments, "--report", str(report)]
        sim = net.ran.start(*command, stdout=log, stderr=log)
    until = time.monotonic() + seconds - 4
    while run.done < run.kills and sim.poll() is None and time.monotonic() < until:
        time.sleep(chance.uniform(*BETWEEN_S))
        node.stop(signal.SIGKILL)
        began = time.monotonic()
        node.start()
        run.starts.append(time.monotonic() - began)
        run.done += 1
        if run.done % 50 == 0:
            say(f"{run.done} kills")
    if sim.wait(timeout=seconds + 120) != 0:
        raise RuntimeError(f"{(folder / 'sim.log').read_text()}\n{node.log.read_text()[-4000:]}")
    run.report = json.loads(report.read_text())
    status = node.ask("status")
    run.sessions_left = status["sessions"] if status else None
    node.stop()
    return run


def main() -> None:
    """Run it and exit with 1 when something is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--durability", choices=["process", "disk"], default="process")
    parser.add_argument("--seed", type=int, help="another each time unless given")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 30) if arguments.seed is None else arguments.seed
    print(f"seed: {seed}", flush=True)
    run = Kills(arguments.kills, seed, arguments.durability)
    with Topology("kills-") as net, tempfile.TemporaryDirectory() as folder:
        kill_often(arguments.binary, net, Path(folder), run, lambda line: print(line, flush=True))
    starts = sorted(run.starts)
    report = run.report
    print(f"{run.done} kills; a start took {starts[len(starts) // 2]:.2f} s, {starts[-1]:.2f} s at most")
    names = ("attaches", "detaches", "handovers", "idles", "pages", "queries")
    print(", ".join(f"{report[name]} {name}" for name in names))
    print(f"uplink {report['uplink']}, downlink {report['downlink']}, without reply {report['unanswered']}")
    faults = run.faults()
    print("\n".join(faults) or "all that was answered was kept")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
