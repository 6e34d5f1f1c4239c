"""What it costs to send a frame out of a veth device, by several ways: `python -m rig.send_cost`, as root.

Prints the CPU time of the sending thread a frame, median and range of interleaved rounds. Soft interrupts
that its calls lead to are included: on veth these are what the far end does. `send_cost.c` has the ways.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

from rig.net import Namespace, run

#: What it is called, its way and its batch.
WAYS = (
    ("AF_XDP, copy mode, 32 a call", "xdp", 32),
    ("the same, 256 a call (`XDP_MAX_TX_SKB_BUDGET`)", "xdp-budget", 256),
    ("AF_PACKET, `sendmmsg` of 64", "mmsg", 64),
    ("AF_PACKET, transmit ring, 64 a call", "ring", 64),
    ("`BPF_PROG_TEST_RUN`, live frames, 64 a call", "live", 64),
    ("the same, 200 000 a call", "live", 200_000),
)


def measure(program: Path, far: str, octets: int, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Nanoseconds a frame of each round, by way, with a far end that has GRO on or off."""
    found: dict[str, list[float]] = defaultdict(list)
    space = Namespace(f"ks{os.getpid()}")
    space.make()
    try:
        space.run("sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6")
        space.ip("link", "add", "near", "type", "veth", "peer", "name", "far")
        for name in ("near", "far"):
            space.ip("link", "set", name, "up")
        space.run("ethtool", "-K", "far", "gro", far)
        for _ in range(rounds):
            for what, way, batch in WAYS:
                if way == "live" and far == "off":
                    # The device takes no frames.
                    continue
                command = (str(program), "near", way, str(batch), str(octets), str(seconds))
                said = json.loads(space.run(*command).stdout)
                found[what].append(said["user_ns"] + said["system_ns"])
    finally:
        space.remove()
    return found


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m rig.send_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each way in a round")
    parser.add_argument("--bytes", type=int, default=128, help="of a frame")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "send_cost"
        run("cc", "-O2", "-o", str(program), str(Path(__file__).with_suffix(".c")))
        ends = {far: measure(program, far, given.bytes, given.rounds, given.seconds) for far in ("on", "off")}
    print("| way | far end with GRO, ns | without, ns |\n|---|---|---|")
    for what, _, _ in WAYS:
        cells = [
            f"{statistics.median(times):.0f} ({min(times):.0f} to {max(times):.0f})" if times else "-"
            for times in (ends["on"][what], ends["off"][what])
        ]
        print(f"| {what} | {cells[0]} | {cells[1]} |")


if __name__ == "__main__":
    main()
