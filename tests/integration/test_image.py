"""The OCI image (scripts/image): the same from the same, and a node that runs in it without root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, Attach
from rig.container import CRUN, Container
from rig.net import Topology, run
from rig.node import Node

pytestmark = [pytest.mark.needs("root", "umoci", "crun", "ping"), pytest.mark.xdist_group("image")]

CAPABILITIES = ("NET_ADMIN", "NET_RAW", "IPC_LOCK", "BPF", "PERFMON")


def build(binary: Path, out: Path) -> str:
    """The image of a binary: its name for umoci."""
    command = (str(ROOT / "scripts" / "image"), "--binary", str(binary), "--out", str(out))
    return run(*command, timeout=300).stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def image(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image of the binary under test."""
    return build(binary, tmp_path_factory.mktemp("image") / "image")


@pytest.fixture
def container(net: Topology, tmp_path: Path, image: str) -> Iterator[Container]:
    """The image unpacked in the node's namespace, with the usual configuration."""
    lists = run(*CRUN, "list", check=False)
    if lists.returncode != 0:
        pytest.skip(f"crun does not run here: {lists.stderr.strip()}")
    made = Container(net.upf, tmp_path, f"kaido-{os.getpid()}", CAPABILITIES)
    node = Node(
        Path("kaido"), net.upf, Path("/run/kaido"), driver="af_xdp", datapath="xdp", durability="process"
    )
    made.unpack(image, node.config.replace("/run/kaido/store", "/var/lib/kaido"))
    yield made
    made.remove()


def test_two_builds_are_one_image(image: str, binary: Path, tmp_path: Path) -> None:
    """Octet for octet: digests say what is in it."""
    again = tmp_path / "image"
    build(binary, again)
    first = Path(image.rpartition(":")[0])
    of = {path.relative_to(first): path.read_bytes() for path in first.rglob("*") if path.is_file()}
    assert of == {path.relative_to(again): path.read_bytes() for path in again.rglob("*") if path.is_file()}


def test_what_is_inside(container: Container) -> None:
    """The program and its libraries, no shell, no user but ours, and nothing that makes root of anybody."""
    root = container.folder / "bundle" / "rootfs"
    programs = sorted(path.name for path in root.glob("usr/bin/*"))
    assert programs == ["kaido"]
    assert not [path for path in root.rglob("*") if path.is_file() and path.stat().st_mode & 0o6000]
    owned = {str(path.relative_to(root)) for path in root.rglob("*") if path.stat().st_uid == 10001}
    assert owned == {"run/kaido", "var/lib/kaido", "var/cache/kaido"}
    spec = json.loads((container.folder / "bundle" / "config.json").read_text())
    assert (spec["process"]["user"]["uid"], spec["process"]["args"][0]) == (10001, "/usr/bin/kaido")


def test_a_node_in_a_container_carries_traffic(container: Container, net: Topology, attach: Attach) -> None:
    """XDP in the driver, sessions that are kept: five capabilities, no root, a read-only file system."""
    container.start()
    container.wait()
    sim = attach("--ues 2 --tuns 1")
    assert net.ran.pings("10.100.6.2", "-I", "ue0")
    status = json.loads(container.ask("status", "--json").stdout)
    assert (status["sessions"], status["datapath"]) == (2, "xdp")
    status_file = Path(f"/proc/{inner(container)}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status_file.splitlines() if ":\t" in line)
    assert fields["Uid"].split() == ["10001"] * 4
    assert (
        int(fields["CapEff"], 16)
        == int(fields["CapBnd"], 16)
        == sum(1 << bit for bit in (12, 13, 14, 38, 39))
    )
    sim.stop()
    assert container.stop() == 0, container.log.read_text()


def inner(container: Container) -> int:
    """The process of the program."""
    return int(json.loads(run(*CRUN, "state", container.name).stdout)["pid"])


def test_without_capabilities_it_says_what_is_missing(container: Container) -> None:
    """It starts, and says itself why it cannot go on."""
    file = container.folder / "bundle" / "config.json"
    spec = json.loads(file.read_text())
    spec["process"]["capabilities"]["bounding"] = []
    file.write_text(json.dumps(spec))
    container.start()
    assert container.process is not None
    assert container.process.wait(timeout=30) == 1
    assert "needs CAP_BPF and" in container.log.read_text()


def test_the_list_of_what_it_is_made_of_has_crates_and_packages(binary: Path, tmp_path: Path) -> None:
    """What `cargo sbom` says in any order, and Debian's libraries, in one order."""
    crates = [{"bom-ref": f"crate-{name}", "name": name, "type": "library"} for name in ("b", "a")]
    dependencies = [{"ref": "crate-b", "dependsOn": ["crate-z", "crate-a"]}, {"ref": "crate-a"}]
    lists = []
    for flip in (1, -1):
        made = tmp_path / "made.json"
        made.write_text(json.dumps({"components": crates[::flip], "dependencies": dependencies[::flip]}))
        command = (sys.executable, str(ROOT / "deploy" / "oci" / "sbom.py"), str(made), str(binary))
        environment = os.environ | {"SOURCE_DATE_EPOCH": "1800000000"}
        lists.append(
            subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        )
    assert lists[0] == lists[1]
    bom = json.loads(lists[0])
    names = [component["name"] for component in bom["components"]]
    assert {"a", "b", "libc6", "libelf1"} <= set(names)
    assert bom["metadata"]["timestamp"] == "2027-01-15T08:00:00Z"
    assert bom["dependencies"][1]["dependsOn"] == ["crate-a", "crate-z"]
