"""The package on a bare Debian whose systemd runs: install, start, crash, reload, upgrade and purge it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Attach
from rig.debian import Debian, make_bare, what_is_missing
from rig.net import Topology, wait_until
from test_package import deb, makes_package, package, small

__all__ = ["deb", "small"]

pytestmark = [
    makes_package,
    pytest.mark.needs(
        "root", "ip", "ethtool", "ping", "dpkg-deb", "mmdebstrap", "nsenter", "strip", "unshare"
    ),
]

INSTALL = "apt-get install --yes --quiet --no-install-recommends"
UPF = "kaido init upf --n3 n3 --n6 n6 --n4 10.100.4.1 --smf 10.100.4.0/24 --dnn internet --defaults"


@pytest.fixture(scope="module")
def bare() -> Iterator[Path]:
    """A bare Debian, of which each test has a copy."""
    with tempfile.TemporaryDirectory() as folder:
        probe, root = Path(folder) / "probe", Path(folder) / "root"
        probe.mkdir()
        missing = what_is_missing(probe)
        if missing is not None:
            pytest.skip(f"a machine cannot be booted here: {missing}")
        make_bare(root)
        yield root


@pytest.fixture
def debian(bare: Path, net: Topology, tmp_path: Path) -> Iterator[Debian]:
    """A machine in the place of the user plane."""
    net.take_redirected()
    machine = Debian(bare, net.upf, tmp_path)
    yield machine
    machine.switch_off()


def install(debian: Debian, file: Path) -> None:
    """Install a package."""
    debian.shell(f"{INSTALL} {debian.copy(file)}")
    debian.lift_memlock()


def start_upf(debian: Debian, restart: str = "cold") -> None:
    """Write a first configuration, and start the service."""
    debian.shell(f"{UPF}; sed -i 's/^durability = .*/&\\nrestart = \"{restart}\"/' /etc/kaido/kaido.toml")
    debian.shell("systemctl start kaido")


def killed(debian: Debian) -> None:
    """Kill the node, and wait until systemd has started it again."""
    before = debian.property("MainPID")
    debian.shell("systemctl kill --signal=KILL kaido")
    wait_until(
        lambda: (
            debian.property("MainPID") not in ("0", before) and debian.property("ActiveState") == "active"
        ),
        "systemd has started the node again",
    )


def test_it_installs_starts_and_goes_without_a_trace(
    debian: Debian, deb: Path, small: Path, net: Topology, attach: Attach
) -> None:
    """Install, configure, traffic, another version, a crash, removal, purge: and no file of ours is left."""
    before = debian.files()
    install(debian, deb)
    assert "kaido 0.1.0" in debian.shell("kaido --version")
    assert debian.shell("systemctl is-enabled kaido").strip() == "enabled"
    assert debian.property("ActiveState") == "inactive", "there is no configuration yet"
    start_upf(debian)
    sim = attach("--ues 3 --tuns 1")
    assert net.ran.pings("10.100.6.2", "-I", "ue0")
    assert "3 of 65536 sessions" in debian.shell("kaido status")
    stranger = debian.run("setpriv", "--reuid=65534", "--clear-groups", "kaido", "status", check=False)
    assert stranger.returncode == 1
    assert "root and the node's user may ask" in " ".join(stranger.stderr.split())

    process = debian.property("MainPID")
    debian.shell("echo '# mine' >> /etc/kaido/kaido.toml")
    debian.shell(f"{INSTALL} {debian.copy(package(small, '0.1.0~test2'))}")
    assert "~test2" in debian.shell("dpkg-query --show kaido")
    assert debian.property("MainPID") not in ("0", process), "another process has taken over"
    assert debian.property("NRestarts") == "0"
    assert net.ran.pings("10.100.6.2", "-I", "ue0")
    killed(debian)
    assert net.ran.pings("10.100.6.2", "-I", "ue0")
    sim.stop()

    debian.shell("apt-get remove --yes --quiet kaido")
    assert debian.shell("tail -1 /etc/kaido/kaido.toml") == "# mine\n", "what an operator wrote stays"
    assert debian.shell("pidof kaido || true") == ""
    debian.shell("rm -rf /etc/systemd/system/kaido.service.d; apt-get purge --yes --quiet kaido")
    assert {name for name in debian.files() - before if not name.startswith("var/kaido_")} == set()
    assert debian.run("getent", "passwd", "kaido", check=False).returncode != 0


def test_hitless_wants_nothing_but_the_setting(
    debian: Debian, deb: Path, net: Topology, attach: Attach
) -> None:
    """The kernel forwards while systemd starts the node again, and no longer when the package has gone."""
    install(debian, deb)
    start_upf(debian, "hitless")
    sim = attach("--ues 1 --tuns 1")
    assert net.ran.pings("10.100.6.2", "-I", "ue0")
    debian.shell("systemctl stop kaido")
    assert net.ran.pings("10.100.6.2", "-I", "ue0"), "nobody but the kernel can have forwarded them"
    debian.shell("systemctl start kaido")
    killed(debian)
    assert net.ran.pings("10.100.6.2", "-I", "ue0")
    sim.stop()
    debian.shell("apt-get remove --yes --quiet kaido")
    assert not [link["ifname"] for link in net.upf.links() if "xdp" in link]


def test_what_root_ran_by_hand_does_not_keep_the_service_from_starting(debian: Debian, deb: Path) -> None:
    """Files of the store, usage counters and pins are the service's again; and nobody else can read them."""
    install(debian, deb)
    start_upf(debian, "hitless")
    debian.shell("systemctl stop kaido; rm -r /var/lib/kaido/* /run/kaido/usage-* /run/kaido/bpf/*-offload-*")
    debian.shell(
        "kaido run -c /etc/kaido/kaido.toml & until kaido status; do sleep 0.1; done; kill $!; wait $!"
    )
    theirs = "find /var/lib/kaido /run/kaido -user root"
    left = debian.shell(theirs)
    assert "journal-" in left and "usage-" in left and "link-" in left, left
    assert debian.shell("find /var/lib/kaido /run/kaido -type f -perm /077") == ""
    debian.shell("systemctl start kaido")
    assert debian.shell(theirs) == ""


def test_root_gives_nothing_away_by_a_link(debian: Debian, deb: Path) -> None:
    """A node that was broken into leads root to another folder, and gets nothing of it."""
    install(debian, deb)
    start_upf(debian, "hitless")
    debian.shell("systemctl stop kaido; umount /run/kaido/bpf; rmdir /run/kaido/bpf")
    debian.shell("setpriv --reuid=kaido --clear-groups ln -s /sys/fs/bpf /run/kaido/bpf")
    assert debian.run("systemctl", "restart", "kaido-prepare", check=False).returncode != 0
    assert debian.shell("stat --format=%U /sys/fs/bpf").strip() == "root"
    said = debian.shell("journalctl --unit=kaido-prepare --output=cat")
    assert "store.pins" in said and "symbolic link" in said, said


def test_each_function_starts_as_a_service(debian: Debian, deb: Path) -> None:
    """By the rights of the unit alone."""
    install(debian, deb)
    for command in ("ndn --next-hop 10.100.6.2", "gre --tunnels n3 --hosts n6"):
        debian.shell(f"kaido init {command} --defaults --force; systemctl restart kaido")
        assert f"{command.split()[0]} node" in debian.shell("kaido status")
        if command.startswith("ndn"):
            assert "/run/nfd/nfd.sock" in debian.shell("ls /run/nfd/nfd.sock")
    debian.shell("apt-get purge --yes --quiet kaido")
    assert debian.shell("ls -d /run/nfd /run/kaido /var/lib/kaido || true") == ""


def test_a_file_that_is_not_good_is_said_once(debian: Debian, deb: Path) -> None:
    """Not over and over: nothing but an edit mends it. What may come by itself is waited for."""
    install(debian, deb)
    debian.shell(f"{UPF}; cp /etc/kaido/kaido.toml /root; echo '[nonsense]' >> /etc/kaido/kaido.toml")
    assert debian.run("systemctl", "start", "kaido", check=False).returncode != 0
    assert (debian.property("ExecMainStatus"), debian.property("NRestarts")) == ("78", "0")
    said = debian.shell("journalctl --unit=kaido --output=cat")
    assert "nonsense" in said and "/etc/kaido/kaido.toml" in said

    debian.shell("cp /root/kaido.toml /etc/kaido; ip link set n6 name away")
    assert debian.run("systemctl", "start", "kaido", check=False).returncode != 0
    wait_until(lambda: int(debian.property("NRestarts")) > 5, "systemd tries again and again")
    debian.shell("ip link set away name n6; ip link set n6 up")
    wait_until(lambda: debian.property("ActiveState") == "active", "the node runs")


def test_the_journal_shows_what_an_entry_is_about(debian: Debian, deb: Path) -> None:
    """`journalctl` shows the text alone, so it has the fields; and each can be asked for by name."""
    install(debian, deb)
    start_upf(debian)
    assert 'node_id="10.100.4.1"' in debian.shell("journalctl --unit=kaido --output=cat")
    assert "the user plane runs" in debian.shell("journalctl KAIDO_NODE_ID=10.100.4.1 --output=cat")
    debian.shell("sed -i '$a [log]\\nlevel = \"debug\"' /etc/kaido/kaido.toml; systemctl reload kaido")
    assert debian.shell("kaido log").strip() == "debug"
