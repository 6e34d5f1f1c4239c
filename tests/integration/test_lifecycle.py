"""Starting, stopping, and what is left behind."""

from __future__ import annotations

import json
import signal
import socket
import time
from pathlib import Path

import pytest
from conftest import Attach
from rig.net import NetError, Topology, run, wait_until
from rig.node import Node

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "bpftool")


def traces(net: Topology) -> dict[str, object]:
    """What a node could leave in its namespace: programs on links, addresses, routes, links."""
    return {
        "links": [(link["ifname"], "xdp" in link, link["mtu"], link["flags"]) for link in net.upf.links()],
        "addresses": run("ip", "-n", net.upf.name, "-o", "address").stdout,
        "routes": run("ip", "-n", net.upf.name, "route", "show", "table", "all").stdout,
    }


def listed(kind: str) -> list[dict[str, object]]:
    """All that the kernel has of a kind; bpftool fails where something goes while it lists."""
    for _ in range(10):
        done = run("bpftool", "--json", kind, "list", check=False)
        if done.returncode == 0:
            return list(json.loads(done.stdout))
        time.sleep(0.1)
    raise NetError(f"bpftool cannot list: {done.stderr or done.stdout}")


def bpf_objects() -> set[tuple[str, int]]:
    """All that the kernel has, of this node and of others, by kind and number."""
    return {(kind, int(str(shown["id"]))) for kind in ("prog", "map", "link") for shown in listed(kind)}


def all_is_taken_back(net: Topology, before: dict[str, object], held: set[tuple[str, int]]) -> None:
    """Wait until the namespace is as before, and none of a node's BPF objects is left."""
    wait_until(
        lambda: traces(net) == before and not held & bpf_objects(), "the kernel has taken everything back"
    )


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_and_it_starts_again(binary: Path, net: Topology, tmp_path: Path, how: int) -> None:
    """A node stopped in any way leaves no program, map or address, and the next one runs."""
    before = traces(net)
    for _ in range(2):
        node = Node(binary, net.upf, tmp_path).start()
        assert any("xdp" in link for link in net.upf.links())
        held = node.bpf_objects()
        assert {kind for kind, _ in held} >= {"prog", "map"} and held <= bpf_objects()
        code = node.stop(how)
        assert code == (-signal.SIGKILL if how == signal.SIGKILL else 0), node.log.read_text()
        all_is_taken_back(net, before, held)
    assert node.socket.exists() == (how == signal.SIGKILL)


def test_sessions_end_with_the_node_in_good_order(node: Node, net: Topology, attach: Attach) -> None:
    """On SIGTERM the node asks its control plane to release, and the sessions end with final reports.

    Conformance: TS 29.244 6.2.8.3 | On SIGTERM the control plane is asked to release
    """
    sim = attach("--ues 20")
    assert node.ask("status") is not None
    assert node.stop() == 0
    wait_until(sim.ended, "the control plane has released")
    assert net.ran.links()


def test_a_service_manager_is_told_and_logs_are_for_machines(
    binary: Path, net: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """READY when packets flow, STOPPING before they cease, and a JSON object for every event."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        log = '\n[log]\nformat = "json"\nlevel = "debug"\n'
        node = Node(binary, net.upf, tmp_path, more=log).start()
        assert manager.recv(200) == b"READY=1\n"
        assert node.stop() == 0
        assert manager.recv(200) == b"STOPPING=1\n"
    events = [json.loads(line) for line in node.log.read_text().splitlines()]
    assert any(event["fields"]["message"] == "the user plane runs" for event in events)


def test_many_restarts_of_the_ran_leave_no_session(node: Node, attach: Attach) -> None:
    """Attach and detach, over and over."""
    for _ in range(3):
        sim = attach("--ues 300")
        status = node.ask("status")
        assert status is not None
        assert status["sessions"] == 300
        report = sim.stop()
        assert len(report["ue"]) == 300  # type: ignore[arg-type]
        status = node.ask("status")
        assert status is not None
        assert status["sessions"] == 0


def test_a_killed_ran_is_replaced(node: Node, attach: Attach) -> None:
    """A control plane that died without a word and comes back has no sessions: it restarted.

    Conformance: TS 23.527 4.2 | The sessions of a control plane that died and is back are gone
    """
    sim = attach("--ues 50")
    assert sim.process is not None
    sim.process.send_signal(signal.SIGKILL)
    sim.process.wait()
    # Within one second the restarted node's messages are octet for octet those of the first: repetitions.
    time.sleep(1.1)
    again = attach("--ues 10")
    status = node.ask("status")
    assert status is not None
    assert status["sessions"] == 10
    again.stop()
