"""`kaido upgrade`: another process takes over while packets and requests come."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import pytest
from conftest import Attach
from rig.flow import flow
from rig.gre import LEFT, RIGHT, Remover, Wire
from rig.net import FAR, UE_IPV4, UE_IPV6, Namespace, NetError, Topology, run, wait_until
from rig.node import LISTEN, Node
from test_durability import sessions
from test_gre import DATAPATHS
from test_hitless import hitless, pins
from test_vxlan import HOST_INNER, PEER_INNER, Endpoint, Segment, answers

__all__ = ["pins"]

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "ping")

#: With nothing of the node's own in what is counted.
QUIET = "\n[gtpu]\necho_interval_s = 0\n"


def upgrade(node: Node, *more: str, program: Path | None = None) -> tuple[int, str]:
    """Have a program take over; the exit code, and what was said, in one line."""
    command = [str(node.binary), "upgrade", "--socket", str(node.socket), *more]
    if program is not None:
        command += ["--program", str(program)]
    done = run(*command, check=False, timeout=120)
    said = f"{done.stdout} {done.stderr}"
    return done.returncode, " ".join(said.replace("│", " ").split())


def pid(node: Node) -> int:
    """The process that answers."""
    status = node.ask("status")
    assert status is not None
    return int(str(status["pid"]))


@pytest.fixture
def ends() -> Iterator[list[Node]]:
    """Ends the processes that answer for nodes, which are not those that were started."""
    nodes: list[Node] = []
    yield nodes
    for node in nodes:
        try:
            os.kill(pid(node), signal.SIGTERM)
        except (AssertionError, NetError, ProcessLookupError):
            continue
        wait_until(lambda node=node: node.ask("status") is None, "the node ends")


@contextmanager
def stops(*spaces: Namespace) -> Iterator[None]:
    """Stop the processes of namespaces and have them go on, over and over, as a freezer does."""
    ended = threading.Event()

    def send(number: signal.Signals) -> None:
        for space in spaces:
            for process in run("ip", "netns", "pids", space.name).stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(process), number)

    def turn() -> int:
        times = 0
        while not ended.wait(0.02):
            send(signal.SIGSTOP)
            send(signal.SIGCONT)
            times += 1
        return times

    with ThreadPoolExecutor(1) as beside:
        turning = beside.submit(turn)
        try:
            yield
        finally:
            ended.set()
            assert turning.result() > 50


@pytest.mark.parametrize("datapath", ["engine", "xdp", "hitless", "stops"])
def test_packets_and_requests_go_on(
    binary: Path, net: Topology, tmp_path: Path, pins: Path, ends: list[Node], attach: Attach, datapath: str
) -> None:
    """Over and over under traffic: no packet is lost, and all is charged once.

    So it is while all processes are stopped and go on.

    Conformance: TS 29.244 5.2.2.2 | Usage is exact though one process takes over from another under traffic
    """
    net.beyond()
    path = "engine" if datapath == "stops" else datapath
    node = Node(binary, net.upf, tmp_path, durability="process", datapath=path, more=QUIET)
    if datapath == "hitless":
        node = hitless(binary, net, tmp_path, pins)
    node.start()
    ends.append(node)
    assert all(net.upf.pings(address, count=1) for address in ("10.100.3.2", "10.100.6.2", "fd00:6::2"))
    out = tmp_path / "count.json"
    networks = (UE_IPV4, UE_IPV6)
    counting = net.dn.start(sys.executable, "-m", "rig.count", "eth0", *networks, "--out", str(out))
    wait_until(out.with_suffix(".ready").exists, "the counter starts")
    net.echo(FAR)
    seconds = 14
    traffic = f"pps=1000,bytes=300,seconds={seconds},to={FAR}:7"
    sim = attach(f"--ues 50 --qfi 9 --threshold 20000 --traffic {traffic}")
    processes = {pid(node)}
    with stops(net.upf, net.ran) if datapath == "stops" else nullcontext():
        while "traffic done" not in sim.log.read_text():
            time.sleep(0.5)
            code, said = upgrade(node)
            assert code == 0, said + node.log.read_text()
            assert "has taken over from process" in said
            processes.add(pid(node))
            assert sessions(node) == 50, node.log.read_text()
    assert len(processes) > 1
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
        assert counted["ues"][ue["ipv4"]]["uplink_packets"] == seconds * 1000 / 50, "none was lost"
        assert ue["usage"]["reports"] > 1, "thresholds were crossed on the way"
    assert sessions(node) == 0
    assert node.drops() == {}


def test_a_program_that_cannot_start_changes_nothing(
    binary: Path, net: Topology, tmp_path: Path, ends: list[Node], attach: Attach
) -> None:
    """The running node goes on, and says why: a program that ends, none at all, another configuration."""
    node = Node(binary, net.upf, tmp_path, durability="process", more=QUIET).start()
    ends.append(node)
    sim = attach("--ues 5 --tuns 1 --threshold 500")
    first = pid(node)
    file = tmp_path / "kaido.toml"
    good = file.read_text()
    for program, config, why in (
        (Path("/bin/false"), good, "has ended"),
        (file, good, "Permission denied"),
        (None, good.replace("frames = 16384", "frames = 8192"), "node.frames"),
        (None, good.replace('"10.100.4.1", ', ""), "PFCP socket at 10.100.4.1:8805"),
        (None, good + "[nonsense]\n", "nonsense"),
        (None, good.replace(f'memory = "{tmp_path}', 'memory = "/proc'), "store.memory"),
        (fake(tmp_path, '"Freeze"'), good, "has ended"),
        (fake(tmp_path, '"Freeze"', '"Nonsense"'), good, "does not go on"),
    ):
        file.write_text(config)
        code, said = upgrade(node, program=program)
        assert code == 1
        assert why in said
        assert pid(node) == first
        assert net.ran.pings("10.100.6.2", "-I", "ue0", count=2)
        assert sessions(node) == 5
    file.write_text(good)
    for expected in (5, 0):
        before = pid(node)
        code, said = upgrade(node)
        assert code == 0, said
        assert pid(node) != before
        assert sessions(node) == expected
        if expected:
            wait_until(lambda: net.ran.pings("10.100.6.2", "-I", "ue0", count=1), "the UE pings")
            report = sim.stop()
    ues = report["ue"]
    assert isinstance(ues, list)
    usage = ues[0]["usage"]
    assert usage["uplink_packets"] == usage["downlink_packets"] >= 17


@pytest.mark.parametrize("is_given", [False, True])
def test_a_program_that_fails_late_costs_a_restart(
    binary: Path, net: Topology, tmp_path: Path, ends: list[Node], attach: Attach, is_given: bool
) -> None:
    """When the ports are left already, the old process begins anew, with all sessions."""
    given = [net.upf.socket(address, 8805) for address in LISTEN] if is_given else []
    node = Node(binary, net.upf, tmp_path, durability="process", more=QUIET, given=tuple(given)).start()
    ends.append(node)
    attach("--ues 5 --tuns 1")
    if not is_given:
        # One that has taken over itself is no other.
        assert upgrade(node)[0] == 0
    code, said = upgrade(node, program=fake(tmp_path, '"Freeze"', '"Leave"'))
    assert code == 1
    assert "has ended" in said
    wait_until(lambda: sessions(node) == 5, "the node is there again")
    wait_until(lambda: net.ran.pings("10.100.6.2", "-I", "ue0", count=1), "the UE pings")
    assert upgrade(node)[0] == 0


def fake(folder: Path, *questions: str) -> Path:
    """A program that takes over as far as some questions go, of which the last may be none, and ends."""
    file = folder / f"fake{len(list(folder.glob('fake*')))}"
    file.write_text(f"""#!{sys.executable}
import socket, struct
old = socket.socket(fileno=0)
def read(count):
    got = b""
    while len(got) < count:
        got += old.recv(count - len(got))
    return got
def hear():
    length, descriptors = struct.unpack("<QQ", read(16))
    read((descriptors + 63) // 64)
    return read(length)
hear()
for question in {questions!r}:
    old.sendall(struct.pack("<QQ", len(question), 0) + question.encode())
    hear()
""")
    file.chmod(0o755)
    return file


def test_what_cannot_be_handed_over_is_said(binary: Path, net: Topology, tmp_path: Path) -> None:
    """Without a store another process would know no sessions."""
    node = Node(binary, net.upf, tmp_path, more=QUIET).start()
    code, said = upgrade(node)
    assert code == 1
    assert 'store.durability = "off"' in said
    node.stop()


#: Datagrams of a stream that goes on while processes change.
STREAM = 2500


def stream(sender: Namespace, source: str, receiver: Namespace, destination: str, node: Node) -> None:
    """Send a stream, while programs take over one after the other: none is lost, and none overtakes."""
    with ThreadPoolExecutor(1) as beside:
        flowing = beside.submit(flow, sender, source, receiver, destination, STREAM, 200)
        # How often that is in this time is a question of the machine's load.
        while not flowing.done():
            code, said = upgrade(node)
            assert code == 0, said + node.log.read_text()
        assert flowing.result() == list(range(STREAM))


@pytest.mark.parametrize("datapath", DATAPATHS)
def test_a_header_remover_goes_on(binary: Path, tmp_path: Path, ends: list[Node], datapath: str) -> None:
    """With packet sockets, AF_XDP, and programs that do the work; metrics are answered on."""
    driver, what, attach = DATAPATHS[datapath]
    with Wire(f"ku{os.getpid()}-") as wire:
        node = Remover(binary, wire.node, tmp_path, driver, datapath=what, attach=attach)
        node.start()
        ends.append(node)
        assert wire.left.pings(RIGHT[4])
        stream(wire.left, LEFT[4], wire.right, RIGHT[4], node)
        assert wire.right.pings(LEFT[6])
        assert node.reasons() == {}


def test_functions_of_one_process_go_on_together(binary: Path, tmp_path: Path, ends: list[Node]) -> None:
    """A VXLAN endpoint and a GRE header remover: the new process has all ports, or none."""
    gre = "\n".join(
        f'[[port]]\nname = "{name}"\nfunction = "gre"\ndriver = "af_xdp"\n'
        f'interface = "{name}"\npeer_port = "{other}"'
        for name, other in (("k0", "k1"), ("k1", "k0"))
    )
    with Segment(f"kw{os.getpid()}-") as net:
        node = Endpoint(
            binary,
            net.node,
            tmp_path,
            "af_xdp",
            functions='["vxlan", "gre"]',
            own='function = "vxlan"\n',
            more=gre,
        )
        node.start()
        ends.append(node)
        net.vxlan(4)
        answers(net.host, PEER_INNER)
        answers(net.spaces["left"], "192.0.3.2")
        stream(net.host, HOST_INNER, net.peer, PEER_INNER, node)
        stream(net.spaces["left"], "192.0.3.1", net.spaces["right"], "192.0.3.2", node)
