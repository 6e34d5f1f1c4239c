"""`kaido reload` and SIGHUP: what can change in a running node does, all of it or nothing."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path

import pytest
from conftest import Attach
from rig.net import Topology, run, wait_until
from rig.node import Node
from rig.pfcp import (
    Answer,
    ControlPlane,
    choose_ue_address,
    create_far,
    create_pdr,
    downlink,
    ie,
    to_access,
    u8,
)
from rig.target import SMF
from test_durability import sessions

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "ping")

#: A control plane that is not there.
STRANGER = 'allow = ["192.0.2.0/24"]'


def reload(node: Node, *more: str) -> tuple[int, str]:
    """Have the node read its file again; the exit code, and what was said, in one line."""
    done = run(str(node.binary), "reload", "--socket", str(node.socket), *more, check=False)
    said = f"{done.stdout} {done.stderr}"
    return done.returncode, " ".join(said.replace("│", " ").split())


def write(node: Node, *changes: tuple[str, str]) -> None:
    """Write the node's file with some text replaced by other text."""
    text = node.config
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (node.folder / "kaido.toml").write_text(text)


def hang_up(node: Node, wanted: str) -> None:
    """Send SIGHUP, and wait for what the log says of it."""
    assert node.process is not None
    before = node.log.read_text().count(wanted)
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: node.log.read_text().count(wanted) > before, f"the log says `{wanted}`")


def test_what_can_change_does_while_packets_come(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach
) -> None:
    """By the command and by SIGHUP: who is listened to, how often is asked, and what is logged."""
    node = Node(binary, net.upf, tmp_path).start()
    sim = attach("--ues 3 --tuns 1")
    assert net.ran.pings("10.100.6.2", "-I", "ue0")
    assert reload(node) == (0, "the file says what is in force")
    log = '[log]\nlevel = "debug"\n\n[pfcp]\n'
    write(node, ("[pfcp]\n", f"{log}{STRANGER}\n"), ("t1_ms = 1500", "t1_ms = 500"))
    code, said = reload(node, "--dry-run")
    assert code == 0
    assert said.endswith("3 fields can change; nothing has"), said
    assert "DEBUG" not in node.log.read_text()
    code, said = reload(node)
    assert code == 0, said
    assert 'pfcp.allow (line 12): not there -> ["192.0.2.0/24"]' in said
    assert "pfcp.t1_ms (line 16): 1500 -> 500" in said
    assert said.endswith("taken: 3 fields")
    # The control plane's heartbeats are a stranger's now; packets go on.
    wait_until(lambda: node.log.read_text().count("DEBUG") > 0, "more is logged")
    assert net.ran.pings("10.100.6.2", "-I", "ue0")
    status = run(str(binary), "status", "--socket", str(node.socket)).stdout
    assert "configuration: read again and taken" in status
    write(node)
    hang_up(node, "SIGHUP: the configuration was read again, and is in force")
    assert reload(node) == (0, "the file says what is in force")
    assert sessions(node) == 3
    sim.stop()
    assert sessions(node) == 0, "the control plane is listened to again"
    assert node.stop() == 0


def test_who_is_not_allowed_any_more_is_not_heard(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach
) -> None:
    """And again when it is."""
    node = Node(binary, net.upf, tmp_path).start()
    write(node, ("[pfcp]\n", f"[pfcp]\n{STRANGER}\n"))
    assert reload(node)[0] == 0
    with pytest.raises(Exception, match="does not answer"):
        attach("--ues 1")
    write(node)
    assert reload(node)[0] == 0
    attach("--ues 1")
    assert sessions(node) == 1


def test_all_or_nothing(binary: Path, net: Topology, tmp_path: Path, attach: Attach) -> None:
    """A change that is refused, or a mistake, keeps the others out too; the message says which and why."""
    node = Node(binary, net.upf, tmp_path, more='\n[metrics]\nlisten = "127.0.0.1"\n').start()
    attach("--ues 2")
    good = ("[pfcp]\n", f"[pfcp]\n{STRANGER}\n")
    for change, why in (
        (("frames = 16384", "frames = 8192"), "node.frames (line 5): 16384 -> 8192 cannot change"),
        (
            ('name = "n3"', 'name = "n3"\ncopy = "copy"'),
            'not there -> "copy" cannot change: sockets, programs',
        ),
        (("10.60.128.0/17", "10.60.64.0/33"), "ue_pool"),
        (("t1_ms = 1500", "t1_ms = 1"), "pfcp.t1_ms"),
        (("t1_ms = 1500", "t2_ms = 1500"), "t2_ms"),
        (("t1_ms = 1500", "t1_ms ="), "kaido.toml"),
    ):
        write(node, good, change)
        code, said = reload(node)
        assert code == 1
        assert why in said, said
        assert reload(node, "--dry-run")[0] == 1
        hang_up(node, "nothing has changed")
    figures = ("curl", "--silent", "--fail", "http://127.0.0.1:9105/metrics")
    for figure in (
        'kaido_config_reloads_total{result="refused"} 12',
        "kaido_config_last_reload_successful 0",
    ):
        wait_until(lambda figure=figure: figure in net.upf.run(*figures).stdout, figure)
    write(node)
    assert reload(node) == (0, "the file says what is in force")
    taken = "kaido_config_last_reload_successful 1"
    wait_until(lambda: taken in net.upf.run(*figures).stdout, taken)
    assert sessions(node) == 2


def with_pool(node: Node, now: str) -> tuple[int, str]:
    """Have the node give addresses out of another network."""
    write(node, (next(line for line in node.pool.splitlines() if "ipv4" in line), f'ipv4 = "{now}"'))
    return reload(node)


def attach_ue(smf: ControlPlane) -> Answer:
    """A session whose UE gets an address of the node."""
    downlink = create_pdr(2, 2, u8(20, 1) + choose_ue_address())
    return smf.establish(downlink, to_access(7))


def test_pools_grow_and_shrink_round_the_addresses_in_use(
    binary: Path, net: Topology, tmp_path: Path
) -> None:
    """And go wholly when nobody has an address of theirs; a restart finds what a reload made."""
    node = Node(binary, net.upf, tmp_path, durability="process").start()
    with closing(ControlPlane(net.ran, SMF)) as smf:
        assert smf.set_up().cause == 1
        first, second = attach_ue(smf), attach_ue(smf)
        assert (first.ue, second.ue) == ("10.60.128.1", "10.60.128.2")
        code, said = with_pool(node, "10.61.0.0/30")
        assert code == 1
        assert "2 addresses of UEs are in use that no pool would have" in said, said
        assert with_pool(node, "10.60.128.0/30")[0] == 0
        full = attach_ue(smf)
        assert full.cause not in (0, 1), "both addresses of the smaller network are in use"
        assert with_pool(node, "10.60.0.0/16")[0] == 0
        third = attach_ue(smf)
        assert third.ue == "10.60.0.1"
        # What is given back comes to the pool that is in force, and a restart keeps that pool.
        assert smf.delete(first).cause == 1
        assert node.process is not None
        node.process.kill()
        node.process.wait()
        node.pool = node.pool.replace("10.60.128.0/17", "10.60.0.0/16")
        node.start()
        assert sessions(node) == 2
        assert with_pool(node, "10.60.128.0/30")[0] == 1, "the third UE has an address of the larger one"
        assert smf.delete(third).cause == 1
        assert with_pool(node, "10.60.128.0/30")[0] == 0
        assert attach_ue(smf).ue == first.ue
        assert smf.delete(second).cause == 1
    assert node.stop() == 0


METRICS = '\n[metrics]\nlisten = "127.0.0.1"\n'


def told(net: Topology, *lines: str) -> None:
    """Wait until metrics say that."""
    figures = ("curl", "--silent", "--fail", "http://127.0.0.1:9105/metrics")
    wait_until(lambda: set(lines) <= set(net.upf.run(*figures).stdout.splitlines()), str(lines))


def dropped(reason: str, packets: int) -> str:
    """That so many packets to UEs were dropped by that reason."""
    return f'kaido_port_drops_total{{port="n6",reason="{reason}"}} {packets}'


def waiting(packets: int) -> str:
    """That so many packets wait for UEs."""
    return f"kaido_buffered_packets {packets}"


def ping(net: Topology, count: int) -> None:
    """Send so many packets to a UE that does not answer."""
    command = ("ping", "-c", str(count), "-i", "0.1", "-W", "1", "10.60.0.7")
    assert net.dn.run(*command, check=False).returncode == 1


def test_limits_of_what_waits_change_while_it_waits(binary: Path, net: Topology, tmp_path: Path) -> None:
    """Without a session or a packet that is lost; whether paths are asked at all does not change."""
    node = Node(binary, net.upf, tmp_path, more=METRICS).start()
    with closing(ControlPlane(net.ran, SMF)) as smf:
        assert smf.set_up().cause == 1
        idle = smf.establish(downlink("10.60.0.7"), create_far(2, 4))
        assert idle.cause == 1
        ping(net, 5)
        told(net, waiting(5))
        write(node, ("[pfcp]\n", "[buffer]\npackets_per_session = 2\n\n[pfcp]\n"))
        assert reload(node)[0] == 0
        ping(net, 3)
        told(net, waiting(5), dropped("buffer_full", 3))
        write(node, ("[pfcp]\n", "[buffer]\npackets_per_session = 7\n\n[pfcp]\n"))
        assert reload(node)[0] == 0
        ping(net, 3)
        told(net, waiting(7), dropped("buffer_full", 4))
        write(node, ("[pfcp]\n", "[gtpu]\necho_interval_s = 0\n\n[pfcp]\n"))
        code, said = reload(node)
        assert code == 1
        assert "gtpu.echo_interval_s" in said, said
        told(net, waiting(7), dropped("buffer_full", 4))
        assert smf.delete(idle).cause == 1
        told(net, waiting(0), dropped("buffer_full", 4))
    assert node.stop() == 0


PINGS = """
[[predefined_rule]]
name = "pings"
precedence = 1
flows = ["permit out 1 from any to assigned"]
drop = false
"""


def test_sessions_follow_predefined_rules(binary: Path, net: Topology, tmp_path: Path) -> None:
    """One that is taken out of the file stays with the session that has it, and is no other's."""
    activate = ie(106, b"pings")
    node = Node(binary, net.upf, tmp_path, more=METRICS + PINGS).start()
    with closing(ControlPlane(net.ran, SMF)) as smf:
        assert smf.set_up().cause == 1
        assert smf.establish(downlink("10.60.0.7", 2, activate), create_far(2, 4)).cause == 1
        ping(net, 2)
        told(net, waiting(2))
        write(node, ("drop = false", "drop = true"))
        code, said = reload(node)
        assert code == 0, said
        assert "predefined_rule" in said, said
        ping(net, 3)
        told(net, waiting(0), dropped("far_drop", 5))
        write(node, (PINGS, ""))
        assert reload(node)[0] == 0
        assert smf.establish(downlink("10.60.0.8", 2, activate), create_far(2, 4)).cause == 80
        ping(net, 1)
        told(net, dropped("far_drop", 6))
        write(node, ("[node]\n", '[node]\nue_to_ue = "drop"\n'))
        code, said = reload(node)
        assert code == 1
        assert "node.ue_to_ue" in said, said
    assert node.stop() == 0


def test_a_control_plane_that_is_named_is_asked_at_once(binary: Path, net: Topology, tmp_path: Path) -> None:
    """And not any more when it is gone from the file; its association stands."""
    node = Node(binary, net.upf, tmp_path).start()
    with closing(ControlPlane(net.ran, SMF)) as smf:
        write(node, ("[pfcp]\n", f'[pfcp]\ncontrol_planes = ["{SMF}"]\n'))
        assert reload(node)[0] == 0
        setup = smf.reports.get(timeout=10)
        assert setup[1] == 5
        wait_until(lambda: attach_ue(smf).cause == 1, "the association stands")
        write(node)
        assert reload(node)[0] == 0
        assert attach_ue(smf).cause == 1
    assert node.stop() == 0
