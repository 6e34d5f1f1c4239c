"""A node under the hands of an operator: signals, pipes, questions."""

from __future__ import annotations

import os
import pty
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Attach
from rig.net import Topology, run, wait_until
from rig.node import Node, port
from rig.pfcp import ControlPlane, create_far, downlink, ie, to_access, to_core, u8, uplink

pytestmark = pytest.mark.needs("root", "ip", "ethtool")

HEARTBEAT_REQUEST, HEARTBEAT_RESPONSE = 1, 2
PFCP = 8805


def heartbeat(octets: int) -> bytes:
    """A Heartbeat Request with a vendor's IE of so many octets."""
    recovery = struct.pack("!HHI", 96, 4, 3_900_000_000)
    vendor = struct.pack("!HHH", 0x8001, octets + 2, 65_000) + bytes(octets)
    body = struct.pack("!I", 1 << 8) + recovery + vendor
    return struct.pack("!BBH", 0x20, HEARTBEAT_REQUEST, len(body)) + body


@pytest.mark.parametrize("address", ["10.100.3", "fd00:3::"], ids=["ipv4", "ipv6"])
def test_pfcp_in_fragments_at_the_address_of_n3_arrives(
    binary: Path, net: Topology, tmp_path: Path, address: str
) -> None:
    """N4 shares N3's address: a request longer than the MTU comes in fragments, and is answered."""
    own, far = (f"{address}{'' if '::' in address else '.'}{host}" for host in (1, 2))
    node = Node(binary, net.upf, tmp_path)
    text = node.config.replace('listen = ["10.100.4.1", "fd00:4::1"]', f'listen = ["{own}"]')
    file = tmp_path / "shared.toml"
    file.write_text(text)
    with node.log.open("a") as log:
        node.process = net.upf.start(str(binary), "run", "-c", str(file), stdout=log, stderr=log)
    wait_until(lambda: node.ask("status") is not None, "the node answers")
    peer = net.ran.socket(far, PFCP)
    peer.settimeout(5)
    for octets in (100, 3000, 4000):
        peer.sendto(heartbeat(octets), (own, PFCP))
        assert peer.recv(2000)[1] == HEARTBEAT_RESPONSE, octets
    assert node.drops() == {}
    assert node.stop() == 0


#: Sends a UDP datagram between two addresses, port 8805 both, in fragments, of which the first comes last.
BACKWARDS = """
import sys
from scapy.all import IP, UDP, IPv6, IPv6ExtHdrFragment, Raw, fragment, fragment6, send
source, to, payload = sys.argv[1], sys.argv[2], bytes.fromhex(sys.argv[3])
rest = UDP(sport=8805, dport=8805) / Raw(payload)
if ":" in to:
    pieces = fragment6(IPv6(src=source, dst=to) / IPv6ExtHdrFragment(id=77) / rest, 1400)
else:
    pieces = fragment(IP(src=source, dst=to, id=77) / rest, fragsize=1200)
assert len(pieces) > 2
for piece in reversed(pieces):
    send(piece, verbose=False)
"""


@pytest.mark.parametrize("attach_mode", ["native", "generic"])
@pytest.mark.parametrize("address", ["10.100.3", "fd00:3::"], ids=["ipv4", "ipv6"])
def test_pfcp_whose_first_fragment_comes_last_arrives(
    binary: Path, net: Topology, tmp_path: Path, address: str, attach_mode: str
) -> None:
    """N4 shares N3's address, and the network turned the fragments of a request round.

    Conformance: RFC 791 3.2 | Fragments of PFCP at a tunnel address are put together in any order
    """
    own, far = (f"{address}{'' if '::' in address else '.'}{host}" for host in (1, 2))
    n3 = port("n3", "af_xdp", f'attach = "{attach_mode}"')
    node = Node(binary, net.upf, tmp_path, listen=(own,), n3=n3).start()
    peer = net.ran.socket(far, PFCP)
    peer.settimeout(5)
    for octets in (3000, 4000):
        net.ran.run(sys.executable, "-c", BACKWARDS, far, own, heartbeat(octets).hex())
        assert peer.recv(2000)[1] == HEARTBEAT_RESPONSE, (octets, node.drops())
    # In order still.
    peer.sendto(heartbeat(3000), (own, PFCP))
    assert peer.recv(2000)[1] == HEARTBEAT_RESPONSE
    assert node.drops() == {}
    peer.close()
    assert node.stop() == 0


def test_a_hangup_that_is_ignored_stays_ignored(binary: Path, net: Topology, tmp_path: Path) -> None:
    """`nohup kaido run` outlives its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        node = Node(binary, net.upf, tmp_path).start()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert node.process is not None
    node.process.send_signal(signal.SIGHUP)
    # Answers that come after the signal was taken: the loop turns ten times a second.
    for _ in range(5):
        time.sleep(0.1)
        assert node.ask("status") is not None
    assert node.stop() == 0


def test_a_reader_that_has_enough_ends_the_command(node: Node, binary: Path, attach: Attach) -> None:
    """`kaido sessions | head -1` prints a line and nothing of a panic."""
    attach("--ues 2000")
    command = f"'{binary}' sessions --socket '{node.socket}' --limit 2000 | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("seid")
    assert done.stderr == ""


def test_sessions_are_found_by_ue_teid_and_seid_and_shown_with_their_rules(
    node: Node, binary: Path, attach: Attach
) -> None:
    """One of many, by what an operator knows of it."""
    attach("--ues 20 --qfi 9")
    listed = node.ask("sessions")
    assert listed is not None
    sessions = listed["sessions"]
    assert isinstance(sessions, list) and len(sessions) == 20
    one = next(session for session in sessions if "10.60.0.7" in session["ue"])
    teid = one["local"][0].split("@")[0]
    ipv6 = next(ue for ue in one["ue"] if ":" in ue).split("/")[0] + "abcd"
    for option in (["--ue", "10.60.0.7"], ["--ue", ipv6], ["--teid", teid], ["--seid", one["seid"]]):
        found = node.ask("sessions", *option)
        assert found is not None
        assert [session["seid"] for session in found["sessions"]] == [one["seid"]], option  # type: ignore[attr-defined]
    none = node.ask("sessions", "--ue", "10.60.0.7", "--seid", sessions[0]["seid"])
    assert none is not None and none["total"] == (1 if sessions[0] == one else 0)
    done = run(str(binary), "session", one["seid"], "--socket", str(node.socket))
    for part in (one["seid"], "10.60.0.7", "pdrs", "fars", "precedence"):
        assert part in done.stdout, part
    detail = node.ask("session", one["seid"])
    assert detail is not None
    assert len(detail["rules"]["pdrs"]) == one["pdrs"]  # type: ignore[index]
    missing = run(str(binary), "session", "0x17", "--socket", str(node.socket), check=False)
    assert missing.returncode != 0 and "there is no session 0x0000000000000017" in missing.stderr


def test_packets_of_the_slow_path_are_counted_by_reason(
    node: Node, binary: Path, net: Topology, attach: Attach
) -> None:
    """An operator sees which packets cost time, and why: here those whose hop limit ends at the node."""
    attach("--ues 1 --tuns 1")
    assert net.ran.pings("10.100.6.2", "-I", "ue0", count=5)

    def counted() -> dict[str, int]:
        status: Any = node.ask("status")
        return {slow["reason"]: slow["packets"] for slow in status["slow_path"]}

    before = counted()
    assert sum(before.values()) < 8, "pings of a host on the link take the fast path but for the first"
    net.ran.run("ping", "-I", "ue0", "-t", "1", "-c", "5", "-i", "0.2", "-W", "10", "10.100.6.2", check=False)
    wait_until(lambda: counted().get("other", 0) >= before.get("other", 0) + 5, "all five are counted")
    shown = run(str(binary), "status", "--socket", str(node.socket)).stdout
    assert "slow path" in shown and "hop limit" in shown


def test_sessions_are_found_by_imsi_smf_and_dnn(node: Node, binary: Path, net: Topology) -> None:
    """Where the SMF sends a User ID; one that cannot be read is no reason to refuse a session.

    Conformance: TS 29.244 8.2.101 | A session is found by the IMSI of its User ID
    """
    smf = ControlPlane(net.ran, "10.100.4.2")
    smf.set_up()
    user_ids = (
        bytes.fromhex("0108 00010100000000f1"),
        bytes.fromhex("0108 62020100000000f1"),
        b"\x01\x09",
        b"",
    )
    for number, user_id in enumerate(user_ids):
        ue = f"10.60.0.{number}"
        far = create_far(1, 2, u8(42, 1) + ie(22, b"internet")) if number == 3 else to_core()
        answer = smf.establish(uplink(), downlink(ue), far, to_access(number + 1), ie(141, user_id))
        assert answer.cause == 1
    known: tuple[tuple[str, list[str]], ...] = (
        ("001010000000001", ["10.60.0.0"]),
        ("imsi-262010000000001", ["10.60.0.1"]),
        ("26", []),
    )
    for imsi, ues in known:
        found = node.ask("sessions", "--imsi", imsi)
        assert found is not None
        assert [session["ue"][0] for session in found["sessions"]] == ues, imsi  # type: ignore[attr-defined]
    for smf_address, count in (("10.100.4.2", len(user_ids)), ("10.100.4.9", 0)):
        found = node.ask("sessions", "--smf", smf_address)
        assert found is not None and found["total"] == count
    for dnn, ues in (("internet", ["10.60.0.3"]), ("ims", [])):
        found = node.ask("sessions", "--dnn", dnn)
        assert found is not None
        assert [session["ue"][0] for session in found["sessions"]] == ues, dnn  # type: ignore[attr-defined]
        assert all(session["network_instances"] == ["internet"] for session in found["sessions"])  # type: ignore[attr-defined]
    wrong = run(str(binary), "sessions", "--imsi", "26a", "--socket", str(node.socket), check=False)
    assert wrong.returncode != 0 and "`26a` is no IMSI" in wrong.stderr


def test_a_capture_goes_through_a_pipe(node: Node, binary: Path, net: Topology, attach: Attach) -> None:
    """`kaido capture -w - | ...`: pcapng and nothing else."""
    attach("--ues 1 --tuns 1 --qfi 9")
    command = [str(binary), "capture", "--socket", str(node.socket), "--ue", "10.60.0.1", "--count", "2"]
    with subprocess.Popen([*command, "-w", "-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as capture:
        wait_until(
            lambda: (
                net.ran.pings("10.100.6.2", "-I", "ue0", count=1, patience=1) and capture.poll() is not None
            ),
            "two packets are captured",
        )
        octets, said = capture.communicate(timeout=60)
    assert octets.startswith(b"\x0a\x0d\x0d\x0a")
    assert b"2 packets" in said
    zero = run(*command[:-1], "0", "-w", "x", check=False)
    assert zero.returncode != 0 and "write 1 or more" in zero.stderr


def test_colours_are_for_terminals_that_want_them(
    binary: Path, net: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log on a terminal has colours, unless NO_COLOR says otherwise."""
    monkeypatch.setenv("TERM", "xterm")
    node = Node(binary, net.upf, tmp_path)
    file = tmp_path / "kaido.toml"
    file.write_text(node.config)
    for unwanted in (False, True):
        if unwanted:
            monkeypatch.setenv("NO_COLOR", "1")
        ours, theirs = pty.openpty()
        node.process = net.upf.start(str(binary), "run", "-c", str(file), stdout=theirs, stderr=theirs)
        os.close(theirs)
        said = b""
        while b"the user plane runs" not in said:
            said += os.read(ours, 65_536)
        assert (b"\x1b[" in said) != unwanted, said
        assert node.stop() == 0
        os.close(ours)


def test_what_the_kernel_gets_is_counted(node: Node, net: Topology) -> None:
    """On AF_XDP the program leaves ARP and pings to the kernel: `to kernel` says how many packets."""
    assert net.ran.run("ping", "-c", "3", "10.100.3.1", check=False).returncode == 0
    status = node.ask("status")
    assert status is not None
    n3 = next(port for port in status["ports"] if port["name"] == "n3")  # type: ignore[attr-defined]
    assert n3["to_kernel"] >= 3
