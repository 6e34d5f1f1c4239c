"""`restart = "hitless"`: the kernel's datapath goes on while the process is dead, and counts right."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Attach
from rig.net import FAR, UE_IPV4, UE_IPV6, Topology, run, wait_until
from rig.node import Node
from test_durability import sessions

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "ping")

#: What a node pins: the links of two ports, and three tables.
PINNED = ["buckets", "cells", "groups", "link", "link"]


@pytest.fixture
def pins(tmp_path: Path) -> Iterator[Path]:
    """A BPF file system of the test's own."""
    folder = tmp_path / "bpf"
    folder.mkdir()
    run("mount", "-t", "bpf", "bpf", str(folder))
    yield folder / "kaido"
    run("umount", "-l", str(folder))


def hitless(binary: Path, net: Topology, folder: Path, pins: Path, datapath: str = "xdp") -> Node:
    """A node that is to be replaced without a gap."""
    store = f'restart = "hitless"\npins = "{pins}"'
    quiet = "\n[gtpu]\necho_interval_s = 0\n"
    return Node(binary, net.upf, folder, durability="process", datapath=datapath, store=store, more=quiet)


def pinned(pins: Path) -> list[str]:
    """The names of what is pinned, without the numbers of interfaces."""
    return sorted(file.name.split("-")[0] for folder in pins.glob("*") for file in folder.iterdir())


def has_program(net: Topology, interface: str) -> bool:
    """Whether an XDP program is on an interface."""
    return any("xdp" in link for link in net.upf.links() if link["ifname"] == interface)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_no_packet_is_lost_and_none_is_charged_twice(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach, pins: Path, how: int
) -> None:
    """Killed over and over, dead for a second each time: every packet comes through, and is charged once.

    Conformance: TS 29.244 5.2.2.2 | Usage is exact though the kernel forwards while the user plane is dead
    """
    net.beyond()
    node = hitless(binary, net, tmp_path, pins).start()
    assert all(net.upf.pings(address, count=1) for address in ("10.100.3.2", "10.100.6.2", "fd00:6::2"))
    out = tmp_path / "count.json"
    networks = (UE_IPV4, UE_IPV6)
    counting = net.dn.start(sys.executable, "-m", "rig.count", "eth0", *networks, "--out", str(out))
    wait_until(out.with_suffix(".ready").exists, "the counter starts")
    net.echo(FAR)
    sim = attach(f"--ues 50 --qfi 9 --threshold 20000 --traffic pps=1000,bytes=300,seconds=14,to={FAR}:7")
    kills = 0
    while "traffic done" not in sim.log.read_text():
        time.sleep(0.6 + 0.37 * (kills % 3))
        node.stop(how)
        assert pinned(pins) == PINNED
        time.sleep(1)
        node.start()
        assert sessions(node) == 50, node.log.read_text()
        kills += 1
    assert kills > 0
    time.sleep(0.5)
    report = sim.stop()
    counting.send_signal(signal.SIGTERM)
    counting.wait(timeout=60)
    counted = json.loads(out.read_text())
    assert counted["missed"] == 0
    ues = report["ue"]
    assert isinstance(ues, list)
    for ue in ues:
        for name, value in counted["ues"][ue["ipv4"]].items():
            assert ue["usage"][name] == value, f"{ue['ipv4']}: {name}"
        assert counted["ues"][ue["ipv4"]]["uplink_packets"] == 14 * 1000 / 50, "none was lost on its way"
        assert ue["usage"]["reports"] > 1, "thresholds were crossed on the way"
    assert sessions(node) == 0


def test_what_stays_goes_when_it_is_told_to(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach, pins: Path
) -> None:
    """SIGINT takes programs and pins away; so does a start that is not hitless, or has another datapath."""
    node = hitless(binary, net, tmp_path, pins).start()
    attach("--ues 3")
    assert has_program(net, "n3")
    node.stop(signal.SIGINT)
    assert not has_program(net, "n3")
    assert pinned(pins) == []
    for store, datapath in (("", "xdp"), (node.store, "engine")):
        hitless_store = node.store
        node.datapath = "xdp"
        node.start()
        node.stop(signal.SIGKILL)
        assert has_program(net, "n3")
        assert pinned(pins) == PINNED
        node.store, node.datapath = store or f'pins = "{pins}"', datapath
        node.start()
        assert sessions(node) == 3
        assert pinned(pins) == []
        node.stop(signal.SIGKILL)
        assert not has_program(net, "n3"), "it goes with the process"
        node.store = hitless_store
    node.datapath = "xdp"
    node.start()


def test_pins_need_a_bpf_file_system(binary: Path, net: Topology, tmp_path: Path) -> None:
    """Anything else is named, with what mends it."""
    node = hitless(binary, net, tmp_path, tmp_path / "no-bpf")
    (tmp_path / "no-bpf").mkdir()
    file = tmp_path / "kaido.toml"
    file.write_text(node.config)
    ended = net.upf.start(str(binary), "run", "-c", str(file), stdout=-1, stderr=-2)
    said, _ = ended.communicate(timeout=30)
    assert ended.returncode != 0
    said = " ".join(said.replace("│", " ").split())
    assert "store.pins" in said
    assert "is not on a BPF file system" in said
