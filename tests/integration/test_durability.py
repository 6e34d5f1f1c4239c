"""Sessions, usage and associations after the node was killed, stopped, or could not write."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from conftest import Attach
from rig.failing_disk import FailingDisk
from rig.kills import Kills, kill_often
from rig.net import UE_IPV4, UE_IPV6, NetError, Topology, run, wait_until
from rig.node import LISTEN, Node
from rig.pfcp import ControlPlane, downlink, message, to_access, to_core, uplink
from rig.target import SMF
from test_traffic import ping

pytestmark = pytest.mark.needs("root", "ip", "ethtool")

BOTH = pytest.mark.parametrize("durability", ["process", "disk"])


def sessions(node: Node) -> object:
    """How many the node has."""
    status = node.ask("status")
    return status and status["sessions"]


def start(node: Node, how: int, durability: str) -> None:
    """End the node in some way, and start it with what it left."""
    node.stop(how)
    node.durability = durability
    node.start()


@BOTH
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_sessions_go_on_after_the_process_ended(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach, durability: str, how: int
) -> None:
    """The same UEs ping on, nobody has attached again, and all is charged at the end, to the byte.

    Conformance: TS 23.527 4.2 | A node that has its sessions after a restart keeps its Recovery Time Stamp
    """
    out = tmp_path / "count.json"
    counting = net.dn.start(sys.executable, "-m", "rig.count", "eth0", UE_IPV4, UE_IPV6, "--out", str(out))
    wait_until(out.with_suffix(".ready").exists, "the counter starts")
    node = Node(binary, net.upf, tmp_path, durability=durability).start()
    sim = attach("--ues 20 --tuns 2 --threshold 500")
    for _ in range(3):
        for ue in ("ue0", "ue1"):
            wait_until(lambda ue=ue: ping(net, ue, "10.100.6.2"), "the UE pings")
        start(node, how, durability)
        assert sessions(node) == 20, node.log.read_text()
    for ue in ("ue0", "ue1"):
        wait_until(lambda ue=ue: ping(net, ue, "10.100.6.2"), "the UE pings")
    report = sim.stop()
    assert sessions(node) == 0
    counting.send_signal(signal.SIGTERM)
    counting.wait(timeout=60)
    counted = json.loads(out.read_text())
    ues = report["ue"]
    assert isinstance(ues, list)
    assert len(ues) == 20
    for ue in ues:
        for name, value in counted["ues"].get(ue["ipv4"], {}).items():
            assert ue["usage"][name] == value, f"{ue['ipv4']}: {name}"
    said = sim.log.read_text()
    assert "restart" not in said, said
    node.stop()
    start(node, signal.SIGKILL, durability)
    assert sessions(node) == 0, "what was deleted does not come back"


def test_requests_wait_in_sockets_of_the_service_manager(binary: Path, net: Topology, tmp_path: Path) -> None:
    """What comes while the node is away is answered by the next."""
    given = [net.upf.socket(address, 8805) for address in LISTEN]
    unknown = net.upf.socket("10.100.4.1", 9)
    with ExitStack() as open_sockets:
        for one in (*given, unknown):
            open_sockets.enter_context(one)
        node = Node(binary, net.upf, tmp_path, durability="process", given=(*given, unknown)).start()
        assert "address=10.100.4.1:9" in node.log.read_text()
        smf = open_sockets.enter_context(closing(ControlPlane(net.ran, SMF)))
        assert smf.set_up().cause == 1
        sessions = [
            smf.establish(uplink(), downlink(f"10.60.0.{ue}"), to_core(), to_access(ue)) for ue in (1, 2)
        ]
        for session in sessions:
            node.stop(signal.SIGKILL)
            sequence = smf.next()
            smf.send(message(54, sequence, seid=session.up_seid))
            node.start()
            assert smf.answer_to(sequence).cause == 1
        node.stop()


@pytest.mark.needs("systemd-socket-activate")
def test_a_request_starts_the_node(binary: Path, net: Topology, tmp_path: Path) -> None:
    """Sockets as systemd gives them: the node is started by the first request, and answers it."""
    starter = ("systemd-socket-activate", "--datagram")
    where = ("--listen=10.100.4.1:8805", "--listen=[fd00:4::1]:8805")
    node = Node(binary, net.upf, tmp_path, starter=(*starter, *where))
    with closing(ControlPlane(net.ran, SMF)) as smf, ThreadPoolExecutor(1) as beside:
        started = beside.submit(node.start)
        wait_until(
            lambda: node.log.exists() and "[fd00:4::1]:8805 as 4" in node.log.read_text(), "it listens"
        )
        assert smf.set_up().cause == 1
        started.result()
    assert node.stop() == 0


def test_a_socket_of_another_kind_is_refused(binary: Path, net: Topology, tmp_path: Path) -> None:
    """By a message that says which are understood."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as given:
        node = Node(binary, net.upf, tmp_path, given=(given,))
        with pytest.raises(NetError, match="ListenDatagram= and ListenStream= with an IP address"):
            node.start()
        assert node.stop() == 1


@BOTH
def test_what_passed_while_it_was_killed_is_charged(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach, durability: str
) -> None:
    """Under traffic, at any moment: whatever reached the data network is charged, and little beside it.

    A packet is counted before it is sent: what the kernel had not taken yet is charged, a batch at a time.
    """
    out = tmp_path / "count.json"
    counting = net.dn.start(sys.executable, "-m", "rig.count", "eth0", UE_IPV4, UE_IPV6, "--out", str(out))
    wait_until(out.with_suffix(".ready").exists, "the counter starts")
    node = Node(binary, net.upf, tmp_path, durability=durability).start()
    traffic = "pps=2000,bytes=300,seconds=16,to=10.100.6.2:7"
    sim = attach(f"--ues 100 --threshold 3000 --traffic {traffic}")
    kills = 0
    while "traffic done" not in sim.log.read_text():
        time.sleep(0.7 + 0.31 * (kills % 3))
        start(node, signal.SIGKILL, durability)
        kills += 1
    assert kills > 3
    assert sessions(node) == 100, node.log.read_text()
    report = sim.stop()
    counting.send_signal(signal.SIGTERM)
    counting.wait(timeout=60)
    counted = json.loads(out.read_text())
    ues = report["ue"]
    assert isinstance(ues, list)
    seen = {ue["ipv4"]: counted["ues"].get(ue["ipv4"], {}).get("uplink_bytes", 0) for ue in ues}
    charged = {ue["ipv4"]: ue["usage"]["uplink_bytes"] for ue in ues}
    assert all(charged[ue] >= seen[ue] for ue in seen), (charged, seen)
    assert sum(seen.values()) > 1_000_000
    assert sum(charged.values()) - sum(seen.values()) <= kills * 64 * 300


@BOTH
def test_churn_survives_kills(binary: Path, net: Topology, tmp_path: Path, durability: str) -> None:
    """Killed at any moment, 25 times: what was answered is kept, and usage is that of the traffic.

    A machine that has other things to do has fewer kills in the time of the traffic.

    Conformance: TS 29.244 5.2.2.2 | Usage is exact though the user plane is killed and started again
    """
    run = kill_often(binary, net, tmp_path, Kills(kills=25, seed=1, durability=durability), print)
    assert run.done >= 15
    assert run.report["attaches"] > 100
    assert run.faults() == []


def test_sessions_of_the_kernel_datapath_go_on(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach
) -> None:
    """As with workers; what the kernel counted is charged as it was last recorded, here a second ago."""
    node = Node(binary, net.upf, tmp_path, durability="process", datapath="xdp", store="usage_interval_s = 1")
    node.start()
    sim = attach("--ues 5 --tuns 1")
    for _ in range(2):
        wait_until(lambda: ping(net, "ue0", "10.100.6.2"), "the UE pings")
        time.sleep(2.5)
        start(node, signal.SIGKILL, "process")
        assert sessions(node) == 5, node.log.read_text()
    wait_until(lambda: ping(net, "ue0", "10.100.6.2"), "the UE pings")
    report = sim.stop()
    ues = report["ue"]
    assert isinstance(ues, list)
    first = ues[0]["usage"]
    assert first["uplink_packets"] >= 3
    assert first["uplink_packets"] == first["downlink_packets"]


def loses_nothing(
    node: Node, net: Topology, attach: Attach, fail: Callable[[], None], mend: Callable[[], None]
) -> None:
    """What is to be told waits until the disk is good; meanwhile packets go on, heartbeats are answered."""
    sim = attach("--ues 50 --tuns 1 --threshold 500")
    fail()
    # Each has a threshold reached, whose report changes what is to be known.
    wait_until(lambda: ping(net, "ue0", "10.100.6.2") and failing(node), "the journal cannot be written")
    assert ping(net, "ue0", "10.100.6.2")
    # Longer than the control plane waits for a heartbeat.
    time.sleep(5)
    assert sessions(node) == 50
    mend()
    wait_until(lambda: not failing(node), "the journal is written again")
    start(node, signal.SIGKILL, node.durability)
    assert sessions(node) == 50
    wait_until(lambda: ping(net, "ue0", "10.100.6.2"), "the UE pings")
    report = sim.stop()
    ues = report["ue"]
    assert isinstance(ues, list)
    usage = ues[0]["usage"]
    assert usage["uplink_packets"] == usage["downlink_packets"] >= 3
    assert sessions(node) == 0
    said = node.log.read_text()
    told = said.count("the journal cannot be written") + said.count("could not be brought to the disk")
    assert told == 1, said
    node.stop()


@BOTH
def test_a_full_disk_loses_nothing_that_was_answered(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach, durability: str
) -> None:
    """No room is a fault that ends."""
    store = tmp_path / "store"
    store.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=2m", "none", str(store))
    filler = store / "filler"

    def fill() -> None:
        with pytest.raises(OSError, match="No space left"), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    try:
        node = Node(binary, net.upf, tmp_path, durability=durability).start()
        loses_nothing(node, net, attach, fill, filler.unlink)
    finally:
        run("umount", "-l", str(store))


@pytest.mark.parametrize(
    ("durability", "fault"),
    [("process", "write"), ("process", "torn"), ("disk", "write"), ("disk", "torn"), ("disk", "sync")],
)
def test_a_disk_that_fails_loses_nothing_that_was_answered(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach, durability: str, fault: str
) -> None:
    """Writes that fail, also halfway, and syncs that do."""
    disk = FailingDisk(tmp_path, tmp_path / "store")
    if disk.why_not:
        pytest.skip(disk.why_not)
    node = Node(binary, net.upf, tmp_path, durability=durability, environment=disk.environment).start()
    loses_nothing(node, net, attach, lambda: disk.fail(fault), disk.fail)


@BOTH
@pytest.mark.parametrize("name", ["store", "store/state.db", "store/journal-*"])
def test_files_that_are_deleted_are_written_anew(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach, durability: str, name: str
) -> None:
    """The store of a node that runs, whole or in part: within seconds a kill loses nothing again."""
    node = Node(binary, net.upf, tmp_path, durability=durability).start()
    sim = attach("--ues 20 --tuns 1")
    for path in tmp_path.glob(name):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    wait_until(lambda: "while it is in use" in node.log.read_text(), "the node sees it")
    snapshot = tmp_path / "store/state.db"
    wait_until(lambda: snapshot.exists() and idle(node), "the store is written anew")
    # A journal that is gone is closed by the next turn of the control loop, and folded then.
    time.sleep(1)
    assert idle(node)
    start(node, signal.SIGKILL, durability)
    assert sessions(node) == 20, node.log.read_text()
    wait_until(lambda: ping(net, "ue0", "10.100.6.2"), "the UE pings")
    sim.stop()
    assert sessions(node) == 0
    node.stop()


@BOTH
def test_sessions_outlive_the_memory_of_their_counters(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach, durability: str
) -> None:
    """Which somebody has deleted: usage since the last record is lost, what passes then is charged."""
    node = Node(binary, net.upf, tmp_path, durability=durability).start()
    sim = attach("--ues 20 --tuns 1")
    assert ping(net, "ue0", "10.100.6.2")
    shutil.rmtree(tmp_path / "memory")
    start(node, signal.SIGKILL, durability)
    assert sessions(node) == 20, node.log.read_text()
    wait_until(lambda: ping(net, "ue0", "10.100.6.2"), "the UE pings")
    report = sim.stop()
    ues = report["ue"]
    assert isinstance(ues, list)
    assert 0 < ues[0]["usage"]["uplink_packets"] <= 4
    node.stop()


def idle(node: Node) -> bool:
    """Whether nothing waits to be folded."""
    status = node.ask("status")
    store = status and status["store"]
    return isinstance(store, dict) and store["segments"] == 0


def failing(node: Node) -> bool:
    """Whether the node cannot write its journal."""
    status = node.ask("status")
    store = status and status["store"]
    return isinstance(store, dict) and bool(store["failing"])


def test_usage_is_right_from_one_datapath_to_the_other(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach
) -> None:
    """Memory outlives workers and not the kernel's counts: each start goes on from what is newest."""
    node = Node(binary, net.upf, tmp_path, durability="process", store="usage_interval_s = 1").start()
    sim = attach("--ues 5 --tuns 1")
    for datapath in ("xdp", "engine", "xdp", "engine"):
        wait_until(lambda: ping(net, "ue0", "10.100.6.2"), "the UE pings")
        # What the kernel counted is recorded every second.
        time.sleep(2.5)
        node.datapath = datapath
        start(node, signal.SIGKILL, "process")
        assert sessions(node) == 5, node.log.read_text()
    wait_until(lambda: ping(net, "ue0", "10.100.6.2"), "the UE pings")
    report = sim.stop()
    ues = report["ue"]
    assert isinstance(ues, list)
    usage = ues[0]["usage"]
    assert usage["uplink_packets"] == usage["downlink_packets"] >= 5
    assert all(ue["usage"]["uplink_packets"] == 0 for ue in ues[1:])
