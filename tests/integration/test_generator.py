"""`kaido bench run` against a running node: all comes back, once and right, or is told with its fields."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import OVER_IPV4, OVER_IPV6, Attach
from rig.net import Topology
from rig.node import Node

pytestmark = pytest.mark.needs("root", "ip", "ethtool")

UES = 8
PACKETS = 2000
#: MAC address of the tenants' routers, which are the bench.
ROUTER = "02:00:00:00:06:02"
#: What the file says of bearers over IPv4, with a host behind the data network's router, which is the bench.
USUAL = {
    "ues": UES,
    "packets": PACKETS,
    "qfi": 9,
    "local": "10.100.3.1",
    "peer": "10.100.3.2",
    "peers": 1,
    "ue_first": "10.60.0.1",
    "server": "10.200.0.1",
    "core_link": 'link = { l3 = { addresses = ["10.100.6.2"], gateways = ["10.100.6.1"] } }',
    "core": '{ port = "core" }',
}
#: What is different with tunnels over IPv6, and with UEs of IPv6.
OUTSIDE_IPV6 = {"local": "fd00:3::1", "peer": "fd00:3::2"}
INSIDE_IPV6 = {
    "ue_first": "2001:db8:60::1",
    "server": "2001:db8:200::1",
    "core_link": 'link = { l3 = { addresses = ["fd00:6::2"], gateways = ["fd00:6::1"] } }',
}

FILE = """\
duration_s = 10.0
resolve_ms = 10000
drain_ms = 3000
save = "{folder}/wrong.pcapng"

[judge]
late_after_ms = 10000.0

[[port]]
name = "access"
driver = {{ {driver} = {{ interface = "gnb0" }} }}
link = {{ l3 = {{ addresses = ["{peer}"], gateways = ["{local}"] }} }}

[[port]]
name = "core"
driver = {{ {driver} = {{ interface = "eth0" }} }}
{core_link}

[[bearers]]
name = "subscribers"
[bearers.of]
count = {ues}
teid_first = 1
access_teid_first = 1
ue_first = "{ue_first}"
local = "{local}"
peer_first = "{peer}"
peers = {peers}
qfi = {qfi}
server = "{server}"
access = {{ port = "access" }}
core = {core}

[[stream]]
name = "uplink"
bearers = "subscribers"
direction = "uplink"
lengths.mix = [
  {{ bytes = 160, weight = 7 }},
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
lengths = {{ sweep = {{ first = 102, last = 1400, step = 13 }} }}
rate = {{ pps = 2000.0 }}
mode = {{ burst = {{ packets = {packets} }} }}
"""


@pytest.fixture
def joined(net: Topology) -> Topology:
    """Both sides of the node end in one namespace, where the bench runs."""
    net.dn.ip("link", "set", "eth0", "netns", net.ran.name)
    net.ran.ip("address", "add", "10.100.6.2/24", "dev", "eth0")
    net.ran.ip("link", "set", "eth0", "up")
    net.ran.ip("address", "add", "fd00:6::2/64", "dev", "eth0", "nodad")
    net.upf.ip("route", "add", "0.0.0.0/0", "via", "10.100.6.2")
    net.upf.ip("route", "add", "::/0", "via", "fd00:6::2")
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
    binary: Path, net: Topology, folder: Path, driver: str, **different: object
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run the file, and read its result."""
    file, result = folder / "bench.toml", folder / "result.json"
    text = FILE.format(**USUAL | different, driver=driver, folder=folder)
    file.write_text(text)
    command = [str(binary), "bench", "run", "-c", str(file), "--json", str(result)]
    done = net.ran.run(*command, check=False, timeout=300)
    assert result.exists() and result.read_text(), done.stderr
    parsed: dict[str, Any] = json.loads(result.read_text())
    return done, parsed


@pytest.mark.parametrize("driver", ["af_packet", "af_xdp"])
def test_all_comes_back_right(
    binary: Path, joined: Topology, forwarding: Node, tmp_path: Path, driver: str
) -> None:
    """Both directions through a running node: as many as were sent, and not one of them wrong."""
    done, result = bench(binary, joined, tmp_path, driver)
    assert_all_right(done, result, forwarding)
    assert not (tmp_path / "wrong.pcapng").exists()
    assert "nothing wrong was found" in done.stdout


def assert_all_right(done: subprocess.CompletedProcess[str], result: dict[str, Any], node: Node) -> None:
    """Nothing was lost, nothing was wrong."""
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{node.drops()}"
    assert [stream["name"] for stream in result["streams"]] == ["uplink", "downlink"]
    for stream in result["streams"]:
        assert stream["sent"]["packets"] == stream["received"]["packets"] == PACKETS
        assert stream["lost"] == stream["duplicated"] == stream["wrong"] == stream["corrupted"] == 0
        assert sum(count for _, count in stream["latency"]["histogram"]) == PACKETS
    assert result["findings"]["total"] == 0


@pytest.mark.parametrize("driver", ["af_packet", "af_xdp"])
@pytest.mark.parametrize("different", [OUTSIDE_IPV6, INSIDE_IPV6, OUTSIDE_IPV6 | INSIDE_IPV6])
def test_ipv6_comes_back_right(
    binary: Path, joined: Topology, tmp_path: Path, attach: Attach, different: dict[str, str], driver: str
) -> None:
    """Tunnels over IPv6, UEs of IPv6, and both.

    Conformance: TS 29.281 4.4.2 | Tunnels over IPv6 with UDP checksums, judged packet by packet
    """
    node = Node(binary, joined.upf, tmp_path).start()
    attach(f"--ues {UES} --first-teid 1", OVER_IPV6 if "local" in different else OVER_IPV4)
    done, result = bench(binary, joined, tmp_path, driver, **different)
    assert_all_right(done, result, node)


def lan(tenant: int, tags: int) -> str:
    """The LAN of a tenant, behind one tag or two, with the bench as its router."""
    vlan = f"{100 + tenant}" if tags == 1 else f"[{100 + tenant}, 200]"
    return f"""
[[network_instance]]
name = "tenant{tenant}"
port = "n6"
vlan = {vlan}
addresses = ["10.100.{7 + tenant}.1/24"]
gateways = ["10.100.{7 + tenant}.2"]
gateway_mac = "{ROUTER}"
"""


@pytest.mark.parametrize("tags", [1, 2])
def test_tenants_behind_tags_come_back_right(
    binary: Path, joined: Topology, tmp_path: Path, attach: Attach, tags: int
) -> None:
    """Two tenants behind VLANs, or behind two tags (IEEE 802.1ad): each packet with those of its own."""
    joined.ran.ip("address", "add", "10.100.3.3/24", "dev", "gnb0")
    joined.ran.ip("address", "add", "10.100.4.3/24", "dev", "smf0")
    node = Node(binary, joined.upf, tmp_path, more=lan(0, tags) + lan(1, tags)).start()
    for tenant in range(2):
        base = (
            f"--upf-pfcp 10.100.4.1 --smf 10.100.4.{2 + tenant} --network-instance tenant{tenant} "
            f"--upf-gtpu 10.100.3.1 --gnb 10.100.3.{2 + tenant} --ue-ipv4 10.60.0.{1 + tenant}"
        )
        attach(f"--ues 1 --first-teid {1 + tenant}", base)
    outer = "{ first = 100, count = 2, tpid = 0x88a8 }, { first = 200 }"
    outer = outer if tags == 2 else "{ first = 100, count = 2 }"
    mac = joined.upf.mac("n6")
    core = f'{{ port = "core", device_mac = "{mac}", bench_mac = "{ROUTER}", tags = [{outer}] }}'
    different = {"ues": 2, "peers": 2, "core_link": "", "core": core}
    done, result = bench(binary, joined, tmp_path, "af_packet", **different)
    assert_all_right(done, result, node)


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


@pytest.mark.package
def test_a_running_node_is_searched(binary: Path, joined: Topology, forwarding: Node, tmp_path: Path) -> None:
    """NDR, PDR and the rest of a node over veth, from the command; how fast it is, is not looked at."""
    pytest.importorskip("kaido", reason="the Python package is not installed: scripts/wheel dev")
    file = tmp_path / "bench.toml"
    text = FILE.format(**USUAL, driver="af_packet", folder=tmp_path)
    text = re.sub(r"mode = .*\n", "", text).replace("drain_ms = 3000", "drain_ms = 300")
    file.write_text(text)
    search = ["search", "-c", str(file), "--trial", "0.1", "--duration-sum", "0.2", "--precision", "0.3"]
    command = ["env", f"KAIDO_PYTHON={sys.executable}", f"KAIDO_BINARY={binary}", str(binary), "bench"]
    done = joined.ran.run(*command, *search, "-o", str(tmp_path), check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "search-bench.json").read_text())
    assert found["device"] == str(file)
    assert found["pdr"]["lower_pps"] is None or found["pdr"]["lower_pps"] > 0
    assert (
        found["back_to_back_pps"]
        > found["ndr"]["throughput_pps" if found["ndr"]["lower_pps"] else "upper_pps"]
    )
    for row in found["latency"]:
        assert row["typical_latency_ns"] <= row["worst_case_latency_ns"]


def test_a_wrong_file_is_told(binary: Path, tmp_path: Path) -> None:
    """File, line, field and what is wrong, for everything at once."""
    file = tmp_path / "bench.toml"
    text = FILE.format(**USUAL | {"qfi": 64, "packets": 0}, driver="af_packet", folder=tmp_path)
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
