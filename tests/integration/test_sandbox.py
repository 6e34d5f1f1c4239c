"""What the threads of a running node may ask of the kernel.

That they ask for no more is shown by all other tests: it would end a debug build.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from conftest import Attach
from rig.net import Topology, run, wait_until
from rig.node import Node

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "ping")

#: Numbers of capabilities (capability.h): a system's administration, to trace other processes, eBPF.
SYS_ADMIN, SYS_PTRACE, BPF = 21, 19, 39


def threads(pid: int) -> dict[str, dict[str, str]]:
    """What the kernel says of each thread of a process, by its name."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (line.split(":", 1) for line in (task / "status").read_text().splitlines())
        told = {name: value.strip() for name, value in fields}
        found[told["Name"]] = told
    return found


def filters_here() -> int:
    """How many filters whoever started this has put on: a container has some."""
    return int(next(iter(threads(os.getpid()).values()))["Seccomp_filters"])


@pytest.mark.parametrize("driver", ["af_xdp", "af_packet"])
def test_each_thread_has_what_it_needs(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach, driver: str
) -> None:
    """Workers eBPF at most, the API's thread none over the network; an upgrade adds no filter."""
    node = Node(binary, net.upf, tmp_path, driver=driver, durability="process").start()
    sim = attach("--ues 1 --tuns 1")
    assert node.process is not None
    pid = node.process.pid
    for is_next in (False, True):
        if is_next:
            run(str(binary), "upgrade", "--socket", str(node.socket))
            pid = int(str((node.ask("status") or {})["pid"]))
        assert net.ran.pings("10.100.6.2", "-I", "ue0")
        all_threads = threads(pid)
        assert {"worker-0", "http", "upf"} <= set(all_threads)
        for name, told in all_threads.items():
            assert (told["NoNewPrivs"], told["Seccomp"]) == ("1", "2"), name
            filters = 2 if name == "http" or name.startswith("worker-") else 1
            assert int(told["Seccomp_filters"]) == filters_here() + filters, name
            for kind in ("CapEff", "CapPrm", "CapInh", "CapBnd"):
                held = int(told[kind], 16)
                assert not held & (1 << SYS_ADMIN | 1 << SYS_PTRACE), f"{name}: {kind}"
        assert int(all_threads["worker-0"]["CapPrm"], 16) in (0, 1 << BPF)
        network = 1 << 12 | 1 << 13
        assert int(all_threads["http"]["CapPrm"], 16) & network == 0
        assert int(all_threads["upf"]["CapEff"], 16) & network == network
    sim.stop()
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the process of the upgrade ends")


def test_it_can_be_left_out(binary: Path, net: Topology, tmp_path: Path) -> None:
    """For who looks for a fault with tools that the list does not know."""
    node = Node(binary, net.upf, tmp_path, node="sandbox = false").start()
    assert node.process is not None
    assert {int(told["Seccomp_filters"]) for told in threads(node.process.pid).values()} == {filters_here()}
    assert node.stop() == 0
