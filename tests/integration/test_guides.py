"""The guides of the book: their files are good, agree with each other, and make a real SMF's session."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT, GoPeer
from rig.core5g import ROUTES, Core
from rig.gnb5g import GNB, attach
from rig.gtpu import Access
from rig.net import Topology, run
from rig.node import Node

GUIDES = ROOT / "docs" / "guides"
FILE = re.compile(r"^```(toml|yaml) (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: The network of the guides, and that of the tests.
ADDRESSES = {
    "10.0.3.10": "10.100.3.1",
    "10.0.4.10": "10.100.4.1",
    "10.0.4.20": "10.100.4.2",
    "10.0.4.0/24": "10.100.4.0/24",
    "10.60.0.0/16": "10.60.0.0/18",
}
INTERFACES = {"ens4": "n3", "ens5": "n6"}
#: Hosts that the guides speak of, by their networks.
HOSTS = {"10.0.2": {20, 30}, "10.0.3": {10, 20, 30}, "10.0.4": {10, 20}, "10.0.6": {1, 10}}


def files(guide: str) -> dict[str, str]:
    """The files of a guide by their names."""
    return {name: text for _, name, text in FILE.findall((GUIDES / guide).read_text())}


KAIDO = files("README.md")["kaido.toml"]


def of_the_tests(text: str) -> str:
    """A file with the addresses and interfaces of the tests' network."""
    for there, here in {**ADDRESSES, **INTERFACES}.items():
        text = re.sub(rf"(?<![\w.]){re.escape(there)}(?![\w.]|/\d)", here, text)
    return text


@pytest.mark.parametrize("guide", sorted(path.name for path in GUIDES.glob("*.md")))
def test_the_files_of_a_guide_are_good(guide: str, binary: Path, tmp_path: Path) -> None:
    """Kaido's pass its check, the others are YAML, and all name hosts of the one network."""
    for name, text in files(guide).items():
        if name.endswith(".toml"):
            file = tmp_path / name
            file.write_text(text if name == "kaido.toml" else KAIDO + text)
            assert run(str(binary), "check", "-c", str(file)).returncode == 0
        else:
            assert isinstance(yaml.safe_load(text), dict), name
        for network, host in re.findall(r"(?<![\w.])(10\.0\.\d+)\.(\d+)(?![\w./])", text):
            assert int(host) in HOSTS[network], f"{name}: {network}.{host}"


def test_the_hardened_settings_are_good(binary: Path, tmp_path: Path) -> None:
    """In place of the tables of that name in the guides' file."""
    block = re.search(r"^```toml\n(.*?)^```$", (ROOT / "docs" / "hardening.md").read_text(), re.M | re.S)
    assert block
    hardened = tomllib.loads(block[1])
    assert hardened["gtpu"]["bind_gnb"] and hardened["pfcp"]["allow"] and hardened["api"]["tokens"]
    tables = re.split(r"^(?=\[)", KAIDO, flags=re.M)
    kept = [table for table in tables if not table.startswith(tuple(f"[{name}]" for name in hardened))]
    file = tmp_path / "kaido.toml"
    file.write_text("".join(kept) + block[1])
    assert run(str(binary), "check", "-c", str(file)).returncode == 0


def test_what_the_smfs_say_of_the_upf_is_what_kaido_says() -> None:
    """PFCP address, N3 address, and the name of the data network."""
    kaido = tomllib.loads(KAIDO)
    (n4,) = kaido["pfcp"]["listen"]
    (dnn,) = [port["network_instance"] for port in kaido["port"] if "n6" in port["roles"]]
    n3 = "10.0.3.10"

    free5gc = yaml.safe_load(files("free5gc.md")["smfcfg.yaml"])["configuration"]
    upf = free5gc["userplaneInformation"]["upNodes"]["UPF"]
    assert (upf["nodeID"], upf["addr"]) == (n4, n4)
    assert upf["interfaces"] == [{"interfaceType": "N3", "endpoints": [n3], "networkInstances": [dnn]}]
    assert upf["sNssaiUpfInfos"][0]["dnnUpfInfoList"][0]["dnn"] == dnn

    open5gs: dict[str, Any] = yaml.safe_load(files("open5gs.md")["smf.yaml"])["smf"]
    assert open5gs["pfcp"]["client"]["upf"] == [{"address": n4, "dnn": dnn}]
    assert {session["dnn"] for session in open5gs["session"]} == {dnn}

    oai = yaml.safe_load(files("oai.md")["config.yaml"])
    assert oai["smf"]["upfs"][0]["config"]["n3_local_ipv4"] == n3
    assert [known["dnn"] for known in oai["dnns"]] == [dnn]

    sd_core = yaml.safe_load(files("sd-core.md")["simapp.yaml"])["configuration"]
    assert sd_core["device-groups"][0]["ip-domain-expanded"]["dnn"] == dnn


@dataclass
class GuidesNode(Node):
    """A node with the file of the guides."""

    @property
    def config(self) -> str:
        """That file, and where this test wants sockets and store."""
        own = f'[control]\nsocket = "{self.socket}"\n[store]\nfolder = "{self.folder}/store"\n'
        return of_the_tests(KAIDO) + own + f'memory = "{self.folder}/memory"\n'


@dataclass
class GuidesCore(Core):
    """free5GC's SMF with the file of its guide."""

    texts: dict[str, str] = field(default_factory=lambda: files("free5gc.md"))

    def command(self) -> list[str]:
        """Write it; how the SMF is started."""
        config, routes = self.folder / "smfcfg.yaml", self.folder / "uerouting.yaml"
        config.write_text(of_the_tests(self.texts["smfcfg.yaml"]))
        routes.write_text(ROUTES + self.routes)
        return [str(self.smf), "-c", str(config), "-u", str(routes)]


@pytest.fixture
def node(binary: Path, net: Topology, tmp_path: Path) -> Iterator[Node]:
    """A node of the guides."""
    running = GuidesNode(binary, net.upf, tmp_path).start()
    yield running
    if not running.ended():
        running.stop()


@pytest.mark.needs("root", "ip", "ethtool")
def test_a_session_of_the_free5gc_guide_carries_data(
    node: Node, net: Topology, tmp_path: Path, go_peer: GoPeer
) -> None:
    """Both files as they stand in the guide, but for the addresses."""
    smf = Path(os.environ.get("KAIDO_FREE5GC") or go_peer("free5gc") / "cmd")
    core = GuidesCore(net.ran, go_peer("sbi") / "sbi", smf, tmp_path)
    net.echo()
    gnb = Access(net.ran, GNB)
    try:
        core.start()
        session, end = attach(core, gnb)
        for octets in (1, 1000, 1400):
            assert end.echoes(os.urandom(octets))
        listed = node.ask("sessions")
        assert listed is not None
        assert listed["total"] == 1
        core.order("release", session)
        assert not end.echoes(b"gone", 0.5)
    finally:
        core.stop()
        gnb.close()
