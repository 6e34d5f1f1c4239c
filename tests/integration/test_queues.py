"""Several workers on one queue or many: everything arrives once, in the order that the mode promises."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Attach
from rig.net import UE_IPV4, UE_IPV6, NetError, Topology, wait_until
from rig.node import Node

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "ping")


@dataclass(frozen=True)
class Mode:
    """How two workers get at packets, and what that promises."""

    settings: str
    queues: int
    flow_order: bool
    total_order: bool = False


MODES = {
    "rss": Mode('queue_mode = "rss"', 2, flow_order=True),
    "rss-ue": Mode('steer_by = "ue"', 2, flow_order=True),
    "rss-ue-one-queue": Mode('steer_by = "ue"', 1, flow_order=True),
    "rss-teid-one-queue": Mode('steer_by = "teid"', 1, flow_order=True),
    "shared": Mode('queue_mode = "shared"', 1, flow_order=False),
    "shared-ordered": Mode('queue_mode = "shared-ordered"', 1, flow_order=True, total_order=True),
}

STATES = ("busy", "adaptive", "interrupt")

Start = Callable[[Mode], Node]


@dataclass
class TwoWorkers(Node):
    """A node of two workers in some mode."""

    settings: str = ""

    @property
    def config(self) -> str:
        """The usual configuration, with the mode."""
        return super().config.replace("[node]\n", f"[node]\n{self.settings}\n")


@pytest.fixture
def start(binary: Path, net: Topology, tmp_path: Path) -> Iterator[Start]:
    """Starts a node of two workers: `start(MODES["rss"])`."""
    started: list[Node] = []

    def run(mode: Mode) -> Node:
        queues = str(mode.queues)
        for space, name in ((net.upf, "n3"), (net.upf, "n6"), (net.ran, "gnb0"), (net.dn, "eth0")):
            space.run("ethtool", "-L", name, "rx", queues, "tx", queues, check=mode.queues > 1)
        node = TwoWorkers(binary, net.upf, tmp_path, workers=2, settings=mode.settings)
        node.start()
        started.append(node)
        return node

    yield run
    for node in started:
        if not node.ended():
            node.stop()


def workers(node: Node) -> list[dict[str, object]]:
    """What `kaido status` says of each worker."""
    status = node.ask("status")
    assert status is not None
    listed = status["per_worker"]
    assert isinstance(listed, list)
    assert len(listed) == status["workers"]
    return listed


def count(worker: dict[str, object], name: str) -> int:
    """One of a worker's counts."""
    value = worker[name]
    assert isinstance(value, int)
    return value


def received(worker: dict[str, object]) -> dict[str, int]:
    """Packets that a worker has processed, by the port that received them."""
    ports = worker["ports"]
    assert isinstance(ports, list)
    return {port["name"]: port["rx_packets"] for port in ports}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
def test_everything_arrives_once_and_in_order(
    start: Start, net: Topology, attach: Attach, tmp_path: Path, mode: Mode
) -> None:
    """And is charged to the octet, whoever of the two workers counted it."""
    node = start(mode)
    counted, ordered = tmp_path / "count.json", tmp_path / "order.json"
    watching = [
        net.dn.start(sys.executable, "-m", "rig.count", "eth0", UE_IPV4, UE_IPV6, "--out", str(counted)),
        net.dn.start(sys.executable, "-m", "rig.order", "eth0", "--out", str(ordered)),
    ]
    for out in (counted, ordered):
        wait_until(out.with_suffix(".ready").exists, "the watcher starts")
    net.echo()
    # The neighbours are known before it begins: what waits for them is bounded, and not what is tested.
    for space, address in ((net.ran, "10.100.3.1"), (net.dn, "10.100.6.1")):
        assert space.pings(address, count=1)
    traffic = "pps=4000,bytes=300,seconds=3,to=10.100.6.2:7"
    sim = attach(f"--ues 100 --qfi 9 --threshold 20000 --traffic {traffic}")
    wait_until(lambda: "traffic done" in sim.log.read_text(), "the traffic ends")
    listed = workers(node)
    report = sim.stop()
    for watcher in watching:
        watcher.send_signal(signal.SIGTERM)
        watcher.wait(timeout=60)
    totals = report["totals"]
    assert isinstance(totals, dict)
    sent = totals["generated"]["sent"]["packets"]
    assert sent == 12000
    assert totals["generated"]["received"]["packets"] == sent, node.drops()
    assert totals["generated"]["duplicates"] == 0

    order = json.loads(ordered.read_text())
    assert order["missed"] == 0
    assert (order["datagrams"], order["duplicates"], order["flows"]) == (sent, 0, 100)
    if mode.flow_order:
        assert order["late_in_flow"] == 0
    if mode.total_order:
        assert order["late"] == 0

    seen = json.loads(counted.read_text())
    assert seen["missed"] == 0
    ues = report["ue"]
    assert isinstance(ues, list)
    for ue in ues:
        for name, value in seen["ues"][ue["ipv4"]].items():
            assert ue["usage"][name] == value, f"{ue['ipv4']}: {name}"

    if "steer_by" in mode.settings:
        assert all(count > 0 for worker in listed for count in received(worker).values()), listed
    shared = [port["shared"] for worker in listed for port in worker["ports"]]  # type: ignore[attr-defined]
    if "shared" in mode.settings:
        assert sum(port["packets"] for port in shared) >= 2 * sent
        assert all(port["cas_attempts"] >= port["blocks"] + port["cas_retries"] for port in shared)
    else:
        assert shared == [None] * 4
    assert node.stop() == 0


@pytest.mark.parametrize(
    "mode", [MODES["rss-ue"], MODES["rss-ue-one-queue"]], ids=["two-queues", "one-queue"]
)
def test_both_directions_of_a_ue_meet_on_one_worker(
    start: Start, net: Topology, attach: Attach, mode: Mode
) -> None:
    """Whichever queue they came in on."""
    node = start(mode)
    attach("--ues 6 --tuns 6")
    chosen = set()
    for ue in range(6):
        before = [received(worker) for worker in workers(node)]
        assert net.ran.pings("10.100.6.2", "-I", f"ue{ue}", count=20)
        after = [received(worker) for worker in workers(node)]
        did = [{port: now[port] - was[port] for port in now} for was, now in zip(before, after, strict=True)]
        busy = max(range(2), key=lambda worker: did[worker]["n3"])
        assert did[busy]["n3"] >= 20
        assert did[busy]["n6"] == 20, did
        assert did[1 - busy]["n6"] == 0, did
        # The devices' kernel has a word of its own to say now and then.
        assert did[1 - busy]["n3"] < 10, did
        chosen.add(busy)
    assert chosen == {0, 1}, "6 UEs leave no worker without work"
    assert node.drops().keys() <= {"n3 not_routed", "n3 ue_spoofed", "n3 no_route"}


def test_a_device_with_too_few_queues_is_refused_with_the_ways_out(start: Start) -> None:
    """One queue, two workers, and no say how they share it."""
    with pytest.raises(NetError, match="1 receive queues and there are 2 workers") as refused:
        start(Mode('queue_mode = "rss"', 1, flow_order=True))
    said = " ".join(str(refused.value).split())
    for way in ("ethtool -L", "node.workers = 1", 'steer_by = "ue"', 'queue_mode = "shared"'):
        assert way in said
    with pytest.raises(NetError, match="2 receive queues and there are 2 workers"):
        start(Mode('queue_mode = "shared"', 2, flow_order=False))


def awakenings(node: Node) -> dict[str, int]:
    """How often each thread of the node has gone to sleep, by name."""
    assert node.process is not None
    # `ip netns exec` becomes the program that it runs.
    threads = Path(f"/proc/{node.process.pid}/task").iterdir()
    fields = [(thread / "status").read_text() for thread in threads]
    numbers = [dict(line.split(":", 1) for line in status.splitlines()) for status in fields]
    return {of["Name"].strip(): int(of["voluntary_ctxt_switches"]) for of in numbers}


@pytest.mark.parametrize("name", ["rss-ue-one-queue", "shared-ordered"])
def test_an_idle_node_leaves_its_cores_alone(start: Start, attach: Attach, name: str) -> None:
    """What takes a core's time is waking up: a thread without work does so some ten times a second."""
    node = start(MODES[name])
    sim = attach("--ues 10")
    time.sleep(1)
    waited = workers(node)
    before, began = awakenings(node), time.monotonic()
    time.sleep(5)
    after, took = awakenings(node), time.monotonic() - began
    rates = {thread: (count - before.get(thread, 0)) / took for thread, count in after.items()}
    assert sum(rates.values()) < 80, rates
    for was, now in zip(waited, workers(node), strict=True):
        spent = {state: count(now, f"{state}_ns") - count(was, f"{state}_ns") for state in STATES}
        assert spent["interrupt"] > 0.9 * sum(spent.values()), spent
        assert sum(spent.values()) > 4e9, "the states tell of all the time"
        assert count(now, "timeouts") > count(was, "timeouts")
    sim.stop()


def test_status_shows_how_workers_wait(binary: Path, start: Start, net: Topology) -> None:
    """As a table for people, too."""
    node = start(MODES["shared"])
    shown = net.upf.run(str(binary), "status", "--socket", str(node.socket)).stdout
    for heading in (*STATES, "naps", "wakeups", "timeouts", "CAS retries", "window stalls"):
        assert heading in shown, shown
