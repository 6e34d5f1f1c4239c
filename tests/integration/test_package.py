"""The Debian package: what is in it, that it installs and goes, and that its service runs with few rights."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Attach
from rig.net import Topology, run
from rig.node import Node

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "kaido.service"
#: In one process after each other: they make the package in one place.
makes_package = pytest.mark.xdist_group("package")
#: What `systemd-analyze security` says of the unit at most, of 10. What is left is named in docs/packages.md.
EXPOSURE_MAX = 2.3


def package(binary: Path, version: str) -> Path:
    """Make the package of a program."""
    options = ("--binary", str(binary), "--version", version, "--compression", "gzip")
    made = run(str(ROOT / "scripts" / "package"), *options, timeout=300)
    return ROOT / made.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def small(binary: Path) -> Iterator[Path]:
    """The program without what a debugger wants, which takes long to pack."""
    with tempfile.TemporaryDirectory() as folder:
        stripped = Path(folder) / "kaido"
        run("strip", "--strip-unneeded", "-o", str(stripped), str(binary))
        yield stripped


@pytest.fixture(scope="module")
def deb(small: Path) -> Path:
    """The package."""
    return package(small, "0.1.0~test1")


@makes_package
@pytest.mark.needs("root", "dpkg-deb", "dpkg-shlibdeps", "strip")
def test_the_package_is_the_same_each_time(deb: Path, small: Path) -> None:
    """Octet for octet; and it has all that an operator looks for, owned by root."""
    before = hashlib.sha256(deb.read_bytes()).hexdigest()
    assert hashlib.sha256(package(small, "0.1.0~test1").read_bytes()).hexdigest() == before
    listed = run("dpkg-deb", "--contents", str(deb)).stdout.splitlines()
    assert all(line.split()[1] == "root/root" for line in listed)
    files = {line.split()[5].removeprefix("./") for line in listed}
    assert {
        "usr/bin/kaido",
        "lib/systemd/system/kaido.service",
        "usr/share/man/man1/kaido-run.1.gz",
        "usr/share/bash-completion/completions/kaido",
        "usr/share/zsh/vendor-completions/_kaido",
        "usr/share/fish/vendor_completions.d/kaido.fish",
        "usr/share/doc/kaido/copyright",
        "usr/share/doc/kaido/examples/prometheus/kaido.rules.yml",
    } <= files
    assert "libc6" in run("dpkg-deb", "--field", str(deb), "Depends").stdout


@pytest.mark.needs("strip")
def test_the_program_does_not_say_where_it_was_built(small: Path) -> None:
    """Nor do its eBPF programs, which carry debug information: built elsewhere it is the same."""
    content = small.read_bytes()
    assert b"/bpf/steer.bpf.h" in content, "programs name the files that they are of"
    assert not [folder for folder in ("crates", "target") if f"{ROOT / folder}/".encode() in content]


@makes_package
@pytest.mark.needs("root", "dpkg-deb", "lintian")
def test_lintian_finds_no_error(deb: Path) -> None:
    """Debian's own check."""
    found = run("lintian", "--fail-on", "error", "--allow-root", str(deb), check=False, timeout=300)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.needs("systemd-analyze")
def test_the_service_has_few_rights(tmp_path: Path) -> None:
    """As systemd's own judge says, and the unit is one that systemd reads without a complaint."""
    said = run("systemd-analyze", "security", "--offline=true", str(UNIT)).stdout
    found = re.search(r"Overall exposure level for kaido.service: ([0-9.]+)", said)
    assert found, said
    assert float(found.group(1)) <= EXPOSURE_MAX, said
    verified = tmp_path / "kaido.service"
    lines = UNIT.read_text().replace("/usr/local/bin/kaido", "/bin/true").splitlines()
    verified.write_text("\n".join(line for line in lines if not line.startswith("Documentation=")))
    checked = run("systemd-analyze", "verify", str(verified), check=False)
    assert checked.stderr.strip() == "", checked.stderr


def capabilities() -> str:
    """Those of the unit, as setpriv has them."""
    line = next(line for line in UNIT.read_text().splitlines() if line.startswith("AmbientCapabilities="))
    return ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in line.split("=")[1].split())


@pytest.mark.needs("root", "ip", "ethtool", "ping", "setpriv")
@pytest.mark.parametrize(
    ("driver", "datapath"), [("af_packet", "engine"), ("af_xdp", "engine"), ("af_xdp", "xdp")]
)
def test_it_runs_without_being_root(
    binary: Path, net: Topology, attach: Attach, driver: str, datapath: str
) -> None:
    """As another user, with the capabilities of the unit alone: traffic passes, after a kill too."""
    net.take_redirected()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "kaido"
        shutil.copy(binary, program)
        less = folder / "less"
        # For LimitMEMLOCK=infinity, which not every machine of a test allows.
        wanted = f"{capabilities()},+ipc_lock"
        less.write_text(
            "#!/bin/sh\n"
            "exec setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs "
            f"--inh-caps=-all,{wanted} --ambient-caps=-all,{wanted} --bounding-set=-all,{wanted} {program} "
            '"$@"\n'
        )
        less.chmod(0o755)
        os.chown(folder, 65534, 65534)
        node = Node(less, net.upf, folder, driver=driver, datapath=datapath, durability="process").start()
        assert node.process is not None
        status = Path(f"/proc/{node.process.pid}/status").read_text()
        assert re.search(r"^Uid:\s+65534\s+65534\s+65534\s+65534$", status, re.MULTILINE), status
        assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE), status
        sim = attach("--ues 3 --tuns 1")
        assert net.ran.pings("10.100.6.2", "-I", "ue0")
        node.process.kill()
        node.process.wait()
        node.start()
        assert net.ran.pings("10.100.6.2", "-I", "ue0")
        sim.stop()
        assert node.stop() == 0


def system_calls(*names: str) -> set[str]:
    """Those of groups, as systemd has them, and of names."""
    found = {name for name in names if not name.startswith("@")}
    for group in set(names) - found:
        lines = run("systemd-analyze", "syscall-filter", group).stdout.splitlines()[1:]
        said = {line.strip() for line in lines if line.strip() and not line.strip().startswith("#")}
        found |= system_calls(*said)
    return found


def allowed_calls() -> set[str]:
    """Those that the unit allows: each line adds to what there was, or takes from it."""
    allowed = system_calls("@default")
    for line in UNIT.read_text().splitlines():
        key, _, names = line.partition("=")
        if key == "SystemCallFilter":
            of_line = system_calls(*names.removeprefix("~").split())
            allowed = allowed - of_line if names.startswith("~") else allowed | of_line
    return allowed


@pytest.mark.needs("root", "ip", "ethtool", "ping", "strace", "systemd-analyze", "curl")
@pytest.mark.parametrize("datapath", ["engine", "xdp"])
def test_it_needs_no_other_system_call(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach, datapath: str
) -> None:
    """Start, sessions, traffic, a scrape, a reload, an upgrade and the end, as strace writes them down."""
    net.take_redirected()
    traced, written = tmp_path / "traced", tmp_path / "calls"
    traced.write_text(
        f'#!/bin/sh\n[ "$1" != run ] || exec strace -f -qq -o {written} {binary} "$@"\nexec {binary} "$@"\n'
    )
    traced.chmod(0o755)
    more = '\n[metrics]\nlisten = "127.0.0.1"\n'
    node = Node(traced, net.upf, tmp_path, datapath=datapath, durability="disk", node="cpus = [0]", more=more)
    node.start()
    sim = attach("--ues 2 --tuns 1")
    assert net.ran.pings("10.100.6.2", "-I", "ue0")
    net.upf.run("curl", "--silent", "--fail", "http://127.0.0.1:9105/metrics")
    at = ("--socket", str(node.socket))
    run(str(binary), "reload", *at)
    run(str(binary), "upgrade", *at)
    assert net.ran.pings("10.100.6.2", "-I", "ue0")
    sim.stop()
    pid = int(str((node.ask("status") or {})["pid"]))
    os.kill(pid, signal.SIGTERM)
    assert node.process is not None
    node.process.wait(timeout=60)
    made = re.findall(
        r"^\d+ +(?:<\.\.\. )?([a-z_0-9]+)[( ]", written.read_text(errors="replace"), re.MULTILINE
    )
    assert {"bpf", "sendmmsg", "fsync"} & set(made), "the calls were written down"
    # SQLite gives files to the owner of their folder where it is root, which the service is not.
    assert set(made) - allowed_calls() <= {"fchown"}
