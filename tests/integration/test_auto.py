"""`node.datapath = "auto"`, the default: who forwards, why, and that no packet is lost unseen."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Attach
from rig.net import FAR, UE_IPV4, Namespace, Topology, run, wait_until
from rig.node import Node

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "ping")

Start = Callable[..., Node]

REMEDY = "`ethtool -K PEER gro on`"


@pytest.fixture
def start(binary: Path, net: Topology, tmp_path: Path) -> Iterator[Start]:
    """Starts a node whose file does not say what forwards."""
    nodes: list[Node] = []

    def begin(**settings: object) -> Node:
        node = Node(binary, net.upf, tmp_path, datapath="", **settings)  # type: ignore[arg-type]
        assert "datapath" not in node.config
        nodes.append(node.start())
        assert net.upf.pings("10.100.6.2", count=1)
        assert net.upf.pings("10.100.3.2", count=1)
        return node

    yield begin
    for node in nodes:
        if not node.ended():
            node.stop()


def gro(space: Namespace, interface: str, how: str) -> None:
    """Have a veth end take redirected frames, or take none."""
    space.run("ethtool", "-K", interface, "gro", how)


def datapath(node: Node) -> tuple[object, object, str]:
    """What forwards, what was asked for, and why."""
    status = node.ask("status")
    assert status is not None
    return status["datapath"], status["datapath_configured"], str(status["datapath_reason"])


def kernel(node: Node) -> dict[str, object]:
    """What the node says of its datapath in the kernel."""
    status = node.ask("status")
    assert status is not None
    found = status["kernel"]
    assert isinstance(found, dict)
    return found


def refusals(node: Node) -> dict[str, str]:
    """Why the kernel does not send out of a port, by port."""
    found = kernel(node)["refusals"]
    assert isinstance(found, list)
    return {refusal["port"]: refusal["why"] for refusal in found}


def forwarded(node: Node) -> dict[str, int]:
    """Packets that the kernel forwarded, by the port that they came by."""
    status = node.ask("status")
    assert status is not None
    ports = status["ports"]
    assert isinstance(ports, list)
    return {port["name"]: port["kernel_packets"] for port in ports}


def by_kernel(node: Node, net: Topology) -> dict[str, bool]:
    """Of which ports' packets the kernel forwards: ten pings, all answered."""
    before = forwarded(node)
    assert net.ran.pings("10.100.6.2", "-I", "ue0", count=10)
    return {name: packets - before[name] >= 10 for name, packets in forwarded(node).items()}


def test_in_copy_mode_the_kernel_forwards_and_says_so(
    start: Start, net: Topology, attach: Attach, binary: Path
) -> None:
    """Status, log and doctor name the choice and its reason."""
    gro(net.ran, "gnb0", "on")
    gro(net.dn, "eth0", "on")
    node = start()
    reason = "af_xdp is in copy mode: n3, n6"
    assert datapath(node) == ("xdp", "auto", reason)
    attach("--ues 1 --tuns 1")
    assert by_kernel(node, net) == {"n3": True, "n6": True}
    assert refusals(node) == {}
    said = run(str(binary), "status", "--socket", str(node.socket)).stdout
    assert f"datapath xdp (auto: {reason}): the kernel forwarded" in said, said
    assert "3 records in the kernel" in said, said
    log = re.sub(r"\x1b\[[0-9;]*m", "", node.log.read_text())
    lines = [line for line in log.splitlines() if "the datapath " in f"{line} "]
    assert len([line for line in lines if reason in line]) == 1, log
    told = net.upf.run(str(binary), "doctor", "--config", str(node.folder / "kaido.toml"), check=False)
    assert re.search(rf"ok +datapath +auto: the kernel: {reason}", told.stdout), told.stdout
    assert told.stdout.count("the far end takes redirected frames") == 2


def test_a_far_end_that_takes_no_frames_gets_them_from_the_workers(
    start: Start, net: Topology, attach: Attach, binary: Path
) -> None:
    """Before it is mended, while it is, and when it is undone; packets are answered all the time."""
    gro(net.ran, "gnb0", "on")
    node = start()
    attach("--ues 1 --tuns 1")
    assert datapath(node)[0] == "xdp"
    assert by_kernel(node, net) == {"n3": False, "n6": True}
    assert list(refusals(node)) == ["n6"]
    assert REMEDY in refusals(node)["n6"]
    said = run(str(binary), "status", "--socket", str(node.socket)).stdout
    assert "datapath: the workers send out of port n6: " in said, said
    assert REMEDY in node.log.read_text()
    told = net.upf.run(str(binary), "doctor", "--config", str(node.folder / "kaido.toml"), check=False)
    assert re.search(rf"advice +redirect +.*{re.escape(REMEDY)}", told.stdout), told.stdout

    gro(net.dn, "eth0", "on")
    wait_until(lambda: refusals(node) == {}, "the node sees that the far end takes frames")
    wait_until(lambda: by_kernel(node, net)["n3"], "the kernel sends to it")

    gro(net.dn, "eth0", "off")
    wait_until(lambda: "n6" in refusals(node), "the node sees that the far end takes none")
    wait_until(lambda: not by_kernel(node, net)["n3"], "the workers send to it")


def lost_pings(net: Topology, change: Callable[[], None]) -> int:
    """Pings that were not answered, of 1500 in three seconds, while something changed."""
    command = ("ping", "-q", "-I", "ue0", "-i", "0.002", "-c", "1500", "-W", "2", "10.100.6.2")
    with net.ran.start(*command, stdout=subprocess.PIPE) as pinging:
        change()
        said = pinging.communicate(timeout=60)[0]
    counts = re.search(r"(\d+) packets transmitted, (\d+) received", said)
    assert counts is not None, said
    return int(counts[1]) - int(counts[2])


def lost_frames(node: Node) -> int:
    """Frames that the device of n6 did not take, as the node counts them."""
    drops = node.drops()
    return drops.get("n6 tx_error", 0) + drops.get("n6 tx_full", 0)


def test_what_is_lost_while_the_far_end_changes_is_counted(
    start: Start, net: Topology, attach: Attach
) -> None:
    """Few packets, each a drop of the port; and none any more once the node has seen it."""
    gro(net.ran, "gnb0", "on")
    gro(net.dn, "eth0", "on")
    node = start()
    attach("--ues 1 --tuns 1")
    wait_until(lambda: by_kernel(node, net)["n3"], "the kernel sends")
    before = lost_frames(node)
    lost = lost_pings(net, lambda: gro(net.dn, "eth0", "off"))
    assert lost < 300, "the workers take over"
    wait_until(lambda: lost_frames(node) - before >= lost, f"{lost} lost packets are counted", 5)
    assert lost_pings(net, lambda: None) == 0


def test_a_far_end_that_says_it_takes_frames_and_does_not_is_found_out(
    start: Start, net: Topology, attach: Attach
) -> None:
    """A veth end that GRO is taken from while it is down is not known to its peer to take none."""
    gro(net.ran, "gnb0", "on")
    gro(net.dn, "eth0", "on")
    node = start()
    attach("--ues 1 --tuns 1")
    wait_until(lambda: by_kernel(node, net)["n3"], "the kernel sends")
    net.dn.ip("link", "set", "eth0", "down")
    gro(net.dn, "eth0", "off")
    net.dn.ip("link", "set", "eth0", "up")
    net.dn.ip("route", "replace", UE_IPV4, "via", "10.100.6.1")
    before = lost_frames(node)

    def is_found_out() -> bool:
        net.ran.pings("10.100.6.2", "-I", "ue0", count=1, patience=1)
        return "has refused" in refusals(node).get("n6", "")

    wait_until(is_found_out, "the node sees that frames are refused")
    assert lost_frames(node) > before
    assert by_kernel(node, net)["n3"] is False
    assert lost_pings(net, lambda: None) == 0


def test_ports_that_the_kernel_does_not_forward_between_are_the_engines(
    start: Start, net: Topology, attach: Attach
) -> None:
    """AF_PACKET has no program; the node runs, and says why the workers forward."""
    node = start(driver="af_packet")
    assert datapath(node) == ("engine", "auto", 'no port has driver = "af_xdp"')
    attach("--ues 1 --tuns 1")
    assert by_kernel(node, net) == {"n3": False, "n6": False}


def test_a_kernel_that_does_not_let_losses_be_counted_leaves_all_to_the_engine(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach
) -> None:
    """The node runs, and says so once; where the kernel's datapath is asked for it forwards, and warns."""
    wrapper = tmp_path / "kaido"
    # As of a kernel that was built without BTF. The mount is of the node's own namespace.
    hidden = "mount --types tmpfs none /sys/kernel/btf"
    wrapper.write_text(f'#!/bin/sh\n[ "$1" != run ] || {hidden}\nexec {binary} "$@"\n')
    wrapper.chmod(0o755)
    gro(net.ran, "gnb0", "on")
    gro(net.dn, "eth0", "on")
    node = Node(wrapper, net.upf, tmp_path, datapath="").start()
    chosen, configured, reason = datapath(node)
    assert (chosen, configured) == ("engine", "auto")
    assert "the kernel does not take the datapath: " in reason, reason
    assert node.log.read_text().count("does not take the datapath") == 1
    attach("--ues 1 --tuns 1")
    assert by_kernel(node, net) == {"n3": False, "n6": False}
    node.stop()
    node.datapath = "xdp"
    node.start()
    assert datapath(node)[:2] == ("xdp", "xdp")
    assert "frames lost in the kernel are not counted" in node.log.read_text()
    node.stop()


def test_a_doctor_says_that_tables_have_no_room(binary: Path, net: Topology, tmp_path: Path) -> None:
    """Before a node takes memory, and only where the tables are what is too much."""
    total = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    assert total is not None
    file = tmp_path / "kaido.toml"
    # Sessions take 420 octets each, with the kernel's tables 1572.
    sessions = int(total[1]) * 1024 // 1400
    file.write_text(Node(binary, net.upf, tmp_path, datapath="", sessions_max=min(sessions, 16 << 20)).config)
    told = net.upf.run(str(binary), "doctor", "--config", str(file), check=False).stdout
    assert re.search(r"advice +datapath +auto: the engine: node.sessions_max: ", told), told


def test_a_kernel_that_gets_nothing_is_said(start: Start, net: Topology, attach: Attach) -> None:
    """Packets with IPv4 options are the workers': once, with the reason, in log and status."""
    net.beyond()
    node = start()
    attach("--ues 1 --tuns 1")
    assert kernel(node)["idle"] is None
    flood = ("ping", "-q", "-R", "-I", "ue0", "-i", "0.01", "-c", "2500", "-W", "2", FAR)
    with net.ran.start(*flood) as pinging:
        wait_until(lambda: kernel(node)["idle"] is not None, "the node sees that the kernel forwards nothing")
        idle = str(kernel(node)["idle"])
        assert "most were left for `" in idle, idle
        pinging.terminate()
    assert node.log.read_text().count("the kernel's datapath forwards nothing") == 1
