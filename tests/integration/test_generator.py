"""`kaido bench run` against a running node: all comes back, once and right, or is told with its fields."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import Attach
from rig.net import Topology
from rig.node import Node

pytestmark = pytest.mark.needs("root", "ip", "ethtool")

UES = 8
PACKETS = 2000
#: A host behind the data network's router, which is the bench.
SERVER = "10.200.0.1"

FILE = """\
duration_s = 10.0
resolve_ms = 10000
drain_ms = 1000
save = "{folder}/wrong.pcapng"

[judge]
late_after_ms = 10000.0

[[port]]
name = "access"
driver = {{ {driver} = {{ interface = "gnb0" }} }}
link = {{ l3 = {{ addresses = ["10.100.3.2"], gateways = ["10.100.3.1"] }} }}

[[port]]
name = "core"
driver = {{ {driver} = {{ interface = "eth0" }} }}
link = {{ l3 = {{ addresses = ["10.100.6.2"], gateways = ["10.100.6.1"] }} }}

[[bearers]]
name = "subscribers"
[bearers.of]
count = {ues}
teid_first = 1
access_teid_first = 1
ue_first = "10.60.0.1"
local = "10.100.3.1"
peer_first = "10.100.3.2"
qfi = {qfi}
server = "{server}"
access = {{ port = "access" }}
core = {{ port = "core" }}

[[stream]]
name = "uplink"
bearers = "subscribers"
direction = "uplink"
lengths.mix = [
  {{ bytes = 128, weight = 7 }},
  {{ bytes = 590, weight = 4 }},
  {{ bytes = 1400, weight = 1 }},
]
rate = {{ pps = 2000.0 }}
mode = {{ burst = {{ packets = {packets} }} }}

[[stream]]
name = "downlink"
bearers = "subscribers"
direction = "downlink"
transport = "tcp"
lengths = {{ sweep = {{ first = 74, last = 1400, step = 13 }} }}
rate = {{ pps = 2000.0 }}
mode = {{ burst = {{ packets = {packets} }} }}
"""


@pytest.fixture
def joined(net: Topology) -> Topology:
    """Both sides of the node end in one namespace, where the bench runs."""
    net.dn.ip("link", "set", "eth0", "netns", net.ran.name)
    net.ran.ip("address", "add", "10.100.6.2/24", "dev", "eth0")
    net.ran.ip("link", "set", "eth0", "up")
    net.upf.ip("route", "add", "0.0.0.0/0", "via", "10.100.6.2")
    for interface in ("gnb0", "eth0"):
        net.ran.run("ethtool", "-K", interface, "tx", "off", "gro", "off", check=False)
    return net


@pytest.fixture
def forwarding(binary: Path, joined: Topology, tmp_path: Path, attach: Attach) -> Node:
    """A node with sessions."""
    node = Node(binary, joined.upf, tmp_path).start()
    attach(f"--ues {UES} --first-teid 1")
    return node


def bench(
    binary: Path, net: Topology, folder: Path, driver: str, qfi: int = 9
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run the file, and read its result."""
    file, result = folder / "bench.toml", folder / "result.json"
    text = FILE.format(driver=driver, folder=folder, ues=UES, qfi=qfi, server=SERVER, packets=PACKETS)
    file.write_text(text)
    command = [str(binary), "bench", "run", "-c", str(file), "--json", str(result)]
    done = net.ran.run(*command, check=False, timeout=120)
    assert result.exists() and result.read_text(), done.stderr
    parsed: dict[str, Any] = json.loads(result.read_text())
    return done, parsed


@pytest.mark.parametrize("driver", ["af_packet", "af_xdp"])
def test_all_comes_back_right(
    binary: Path, joined: Topology, forwarding: Node, tmp_path: Path, driver: str
) -> None:
    """Both directions through a running node: as many as were sent, and not one of them wrong."""
    done, result = bench(binary, joined, tmp_path, driver)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{forwarding.drops()}"
    assert [stream["name"] for stream in result["streams"]] == ["uplink", "downlink"]
    for stream in result["streams"]:
        assert stream["sent"]["packets"] == stream["received"]["packets"] == PACKETS
        assert stream["lost"] == stream["duplicated"] == stream["wrong"] == stream["corrupted"] == 0
        assert sum(count for _, count in stream["latency"]["histogram"]) == PACKETS
    assert result["findings"]["total"] == 0
    assert not (tmp_path / "wrong.pcapng").exists()
    assert "nothing wrong was found" in done.stdout


def test_a_wrong_mark_is_shown_and_saved(
    binary: Path, joined: Topology, forwarding: Node, tmp_path: Path
) -> None:
    """When other marks are expected than the node writes, each packet is a finding; the first are saved."""
    done, result = bench(binary, joined, tmp_path, "af_packet", qfi=10)
    assert done.returncode == 1
    downlink = result["streams"][1]
    assert downlink["wrong"] == downlink["received"]["packets"] == PACKETS
    assert result["findings"]["fields"] == {"gtpu.pdu_session.qfi": PACKETS}
    marked = [line.split() for line in done.stdout.splitlines() if line.startswith("  !")]
    assert ["!", "gtpu.pdu_session.qfi", "10", "9"] in marked
    assert (tmp_path / "wrong.pcapng").stat().st_size > 0


def test_a_wrong_file_is_told(binary: Path, tmp_path: Path) -> None:
    """File, line, field and what is wrong, for everything at once."""
    file = tmp_path / "bench.toml"
    text = FILE.format(driver="af_packet", folder=tmp_path, ues=UES, qfi=64, server=SERVER, packets=0)
    file.write_text(text)
    done = subprocess.run(
        [str(binary), "bench", "run", "-c", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    for part in ("bench.toml:", "bearers.subscribers.of.qfi", "0 to 63"):
        assert part in done.stderr, done.stderr
