"""`kaido doctor` on a veth, whose queues and XDP are known, and on machines that lack something."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from rig.net import Namespace, Topology
from rig.node import CONFIG, port

pytestmark = pytest.mark.needs("root", "ip", "ethtool")

MACHINE = {"kernel", "capabilities", "memlock", "hugepages", "thp", "smt", "governor", "isolated_cpus"}
NIC = {
    "interface",
    "xdp",
    "zero_copy",
    "queues",
    "rss_hash",
    "rings",
    "offloads",
    "mtu",
    "irq_affinity",
    "numa",
}

Findings = dict[tuple[str, str], dict[str, object]]


def ask(binary: Path, space: Namespace, *arguments: str) -> tuple[int, dict[str, object], Findings]:
    """Exit code, the whole answer, and the findings by subject and check."""
    done = space.run(str(binary), "doctor", "--json", *arguments, check=False)
    answer = json.loads(done.stdout)
    findings = {(found["subject"], found["check"]): found for found in answer["findings"]}
    assert len(findings) == len(answer["findings"]), "a check is said once of a subject"
    return done.returncode, answer, findings


def configured(folder: Path, *node: str, n3: str = "") -> Path:
    """A configuration with settings for `[node]` and the n3 port."""
    sizes = {"sessions_max": 4096, "workers": 2, "frames": 16384}
    text = CONFIG.format(socket=folder / "kaido.sock", durability="off", folder=folder, store="", **sizes)
    text = text.replace("[node]\n", "\n".join(("[node]", *node, "")))
    file = folder / "doctor.toml"
    file.write_text(text + port("n3", "af_xdp", n3) + port("n6", "af_xdp"))
    return file


def settings(space: Namespace) -> str:
    """What a doctor that is no reader could change."""
    shown = [space.run("ethtool", option, "n3", check=False).stdout for option in ("-l", "-k", "-g", "-n")]
    shown.append(space.run("ip", "-details", "link").stdout)
    shown.append(Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages").read_text())
    return "\n".join(shown)


def test_a_veth_is_seen_as_it_is(binary: Path, net: Topology) -> None:
    """Native XDP, one queue, and every check with its fields."""
    before = settings(net.upf)
    code, answer, findings = ask(binary, net.upf, "--interface", "n3", "--interface", "n6")
    assert code == 0
    assert answer["can_run"] is True
    assert {check for subject, check in findings if subject == "machine"} == MACHINE
    for name in ("n3", "n6"):
        assert {check for subject, check in findings if subject == name} == NIC
        assert "veth" in str(findings[name, "interface"]["said"])
        assert findings[name, "xdp"]["verdict"] == "ok"
        assert "native" in str(findings[name, "xdp"]["said"])
        assert str(findings[name, "queues"]["said"]).startswith("receive queues: 1 of ")
    for found in findings.values():
        assert set(found) == {"subject", "check", "verdict", "said", "commands"}
        assert found["verdict"] in ("ok", "advice")
        assert found["said"]
    assert settings(net.upf) == before


def test_a_configuration_is_judged_with_its_ports(binary: Path, net: Topology, tmp_path: Path) -> None:
    """What the node would refuse makes the exit code 1; the command that mends it does."""
    file = configured(tmp_path)
    code, answer, findings = ask(binary, net.upf, "--config", str(file))
    assert code == 1
    assert answer["can_run"] is False
    assert findings["n3", "queues"]["verdict"] == "fault"
    assert findings["n3", "queues"]["commands"] == ["ethtool -L n3 rx 2 tx 2"]
    code, _, findings = ask(binary, net.upf, "--config", str(configured(tmp_path, 'queue_mode = "shared"')))
    assert code == 0, findings
    file = configured(tmp_path, 'steer_by = "ue"')
    code, _, findings = ask(binary, net.upf, "--config", str(file))
    assert code == 0, findings
    for name in ("n3", "n6"):
        assert findings[name, "queues"]["verdict"] == "advice"
        commands = findings[name, "queues"]["commands"]
        assert isinstance(commands, list)
        net.upf.run(*commands[0].split())
    code, _, findings = ask(binary, net.upf, "--config", str(file))
    assert code == 0
    assert findings["n3", "queues"]["verdict"] == "ok"
    assert "workers: 2, rss by UE" in str(findings["n3", "queues"]["said"])


def test_advice_is_a_command_that_helps(binary: Path, net: Topology, tmp_path: Path) -> None:
    """An N3 link on which tunnels do not fit, mended by what the doctor says."""
    net.upf.ip("link", "set", "n3", "mtu", "1500")
    file = str(configured(tmp_path, 'steer_by = "ue"'))
    _, _, findings = ask(binary, net.upf, "--config", file)
    advised = findings["n3", "mtu"]
    assert advised["verdict"] == "advice"
    commands = advised["commands"]
    assert isinstance(commands, list)
    net.upf.run(*commands[0].split())
    _, _, findings = ask(binary, net.upf, "--config", file)
    assert findings["n3", "mtu"]["verdict"] == "ok"


@pytest.mark.parametrize("table", [None, 100])
def test_a_missing_way_out_is_told(binary: Path, net: Topology, tmp_path: Path, table: int | None) -> None:
    """The default route of the management is none of the data network; the one that is advised is."""
    n6 = f"route_table = {table}" if table else ""
    file = configured(tmp_path, 'queue_mode = "shared"')
    file.write_text(file.read_text().replace('interface = "n6"\n', f'interface = "n6"\n{n6}\n'))
    net.upf.ip("route", "add", "default", "via", "10.100.4.2")
    code, _, findings = ask(binary, net.upf, "--config", str(file))
    assert code == 0
    assert ("n3", "routes") not in findings
    assert findings["n6", "routes"]["verdict"] == "advice"
    commands = findings["n6", "routes"]["commands"]
    assert isinstance(commands, list)
    net.upf.ip("route", "delete", "default", "via", "10.100.4.2")
    net.upf.run(*commands[0].replace("GATEWAY", "10.100.6.2").split())
    _, _, findings = ask(binary, net.upf, "--config", str(file))
    assert findings["n6", "routes"]["verdict"] == "ok"
    assert "by default via 10.100.6.2" in str(findings["n6", "routes"]["said"])


def test_what_a_port_demands_and_the_driver_lacks_is_a_fault(
    binary: Path, net: Topology, tmp_path: Path
) -> None:
    """A veth copies when it is bound, and says so."""
    file = str(configured(tmp_path, 'steer_by = "ue"', n3='attach = "native"'))
    code, _, _ = ask(binary, net.upf, "--config", file)
    assert code == 0
    net.upf.ip("link", "add", "plain0", "type", "bridge")
    text = Path(file).read_text().replace('interface = "n3"', 'interface = "plain0"')
    Path(file).write_text(text)
    code, _, findings = ask(binary, net.upf, "--config", file)
    assert code == 1
    assert findings["plain0", "xdp"]["verdict"] == "fault"


def test_what_keeps_a_node_from_running_is_said_to_people_too(binary: Path, net: Topology) -> None:
    """A missing interface, and a user without rights."""
    done = net.upf.run(str(binary), "doctor", "--interface", "nosuchif", check=False)
    assert done.returncode == 1
    assert "nosuchif" in done.stdout
    assert "FAULT" in done.stdout
    assert "cannot run here" in done.stdout
    user = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", str(binary), "doctor", "--json"]
    done = subprocess.run(user, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    verdicts = {found["check"]: found["verdict"] for found in json.loads(done.stdout)["findings"]}
    assert verdicts["capabilities"] == "fault"
