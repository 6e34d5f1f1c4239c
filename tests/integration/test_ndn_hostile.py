"""A router of Named Data among strangers: who may answer, what one may take up, who may command."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rig.net import wait_until
from test_ndn_node import Router

NAME = b"\x07\x0b\x08\x06victim\x08\x01x"
#: SignatureInfo of a SHA-256.
SIGNED_BY_DIGEST = b"\x16\x03\x1b\x01\x00"


def tlv(kind: int, value: bytes) -> bytes:
    """An element of less than 253 octets."""
    return bytes([kind, len(value)]) + value


def data(content: bytes) -> bytes:
    """The Data of the name: whole, as anyone can make it who knows the name."""
    signed = NAME + tlv(0x15, content) + SIGNED_BY_DIGEST
    return tlv(6, signed + tlv(0x17, hashlib.sha256(signed).digest()))


def interest(number: int) -> bytes:
    """An Interest for a name of this number, that waits for a minute."""
    name = tlv(7, tlv(8, b"flood") + tlv(8, number.to_bytes(4, "big")))
    return tlv(5, name + tlv(0x0A, number.to_bytes(4, "big")) + tlv(0x0C, (60_000).to_bytes(4, "big")))


def drops(node: Router) -> dict[str, int]:
    """What the node has dropped, by reason."""
    control = node.folder / f"{node.name}-control.sock"
    command = [str(node.binary), "drops", "--json", "--socket", str(control)]
    said = json.loads(subprocess.run(command, check=True, text=True, capture_output=True, timeout=60).stdout)
    counts: dict[str, int] = {}

    def gather(found: object) -> None:
        if isinstance(found, dict):
            reason, count = found.get("reason"), found.get("packets", found.get("count"))
            if isinstance(reason, str) and isinstance(count, int):
                counts[reason] = counts.get(reason, 0) + count
            for key, value in found.items():
                if isinstance(value, int) and key.startswith("ndn_"):
                    counts[key] = counts.get(key, 0) + value
                gather(value)
        elif isinstance(found, list):
            for one in found:
                gather(one)

    gather(said)
    return counts


Start = Callable[..., Router]


@pytest.fixture
def start(binary: Path, tmp_path: Path) -> Iterator[Start]:
    """Start routers, and end them whatever happens."""
    nodes: list[Router] = []

    def one(name: str = "a", more: str = "") -> Router:
        nodes.append(Router(binary, tmp_path, name, more))
        return nodes[-1].start()

    yield one
    ends = [node.stop() for node in nodes]
    assert all(set(codes) == {0} for codes in ends), [node.log.read_text() for node in nodes]


@pytest.fixture
def upstream() -> Iterator[socket.socket]:
    """Who is asked."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        one.settimeout(30)
        yield one


def test_who_was_not_asked_does_not_answer(start: Start, upstream: socket.socket) -> None:
    """Another sends Data of the name first, with the token too: no consumer and no cache gets it."""
    port = upstream.getsockname()[1]
    more = (
        f'udp = ["127.0.0.1:17011"]\n[[ndn.face]]\nremote = "udp4://127.0.0.1:{port}"\n'
        f'[[ndn.route]]\nprefix = "/victim"\nto = "udp4://127.0.0.1:{port}"\n'
    )
    node = start(more=more)
    command = [str(node.binary), "ndn", "--router", f"unix://{node.unix}", "peek", "/victim/x"]
    consumer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    asked, router = upstream.recvfrom(9000)
    token = asked[asked.index(b"\x62\x06") : asked.index(b"\x62\x06") + 8]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(data(b"poison"), router)
        stranger.sendto(tlv(0x64, token + tlv(0x50, data(b"poison"))), router)
        wait_until(lambda: drops(node).get("ndn_not_asked", 0) >= 2, "the poison is dropped by name")
    upstream.sendto(tlv(0x64, token + tlv(0x50, data(b"true"))), router)
    assert consumer.communicate(timeout=30)[0] == "true"
    assert node.ndn("peek", "/victim/x").stdout == "true", "from the cache"


def test_one_host_takes_neither_all_faces_nor_the_pit(start: Start, upstream: socket.socket) -> None:
    """From a hundred ports it has so many faces, from one so many Interests; applications go on."""
    port = upstream.getsockname()[1]
    more = (
        'udp = ["127.0.0.1:17012"]\non_demand_per_host = 8\n'
        "[ndn]\npending_max = 1024\npending_per_host = 100\n"
        f'[[ndn.face]]\nremote = "udp4://127.0.0.1:{port}"\n'
        f'[[ndn.route]]\nprefix = "/flood"\nto = "udp4://127.0.0.1:{port}"\n'
    )
    node = start(more=more)
    with contextlib.ExitStack() as stack:
        ports = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(100)]
        for number, one in enumerate(ports):
            one.sendto(interest(number), ("127.0.0.1", 17012))
        wait_until(lambda: drops(node).get("ndn_host_faces_full", 0) == 92, "92 ports get no face")
        for number in range(500):
            ports[0].sendto(interest(1000 + number), ("127.0.0.1", 17012))
        wait_until(lambda: drops(node).get("ndn_face_pit_full", 0) > 300, "the PIT has its bound")
        remotes = [face["remote"] for face in node.json("face", "list")]
        assert sum(remote.startswith("udp4://127.0.0.1") for remote in remotes) == 9
        node.background("ping", "/site", "--serve")
        said = node.json("ping", "/site", "--count", "3", "--interval", "0.01")
        assert said["received"] == 3


def test_the_socket_says_who_may_command(start: Start) -> None:
    """Its user and group; over TCP, which has none, a key is needed, and the file may allow modules."""
    more = 'tcp = ["127.0.0.1:17013"]\n'
    node = start(more=more)
    assert node.unix.stat().st_mode & 0o777 == 0o660

    def over_tcp(*words: str, port: int = 17013) -> subprocess.CompletedProcess[str]:
        command = [str(node.binary), "ndn", "--router", f"tcp://127.0.0.1:{port}", *words]
        return subprocess.run(command, check=False, text=True, capture_output=True, timeout=60)

    assert over_tcp("status").returncode == 0, "what the router says of itself is for all of this host"
    refused = over_tcp("cs", "config", "--capacity", "1")
    assert refused.returncode != 0
    assert "over TCP a command needs a key" in " ".join(refused.stderr.split()), refused.stderr
    for _ in range(20):
        over_tcp("cs", "config", "--capacity", "1")
    refusals = [line for line in node.log.read_text().splitlines() if "a command is refused" in line]
    assert 1 <= len(refusals) <= 20 and "tcp4://127.0.0.1" in refusals[0]
    more += 'unix_mode = "0600"\nunix_group = "0"\n[ndn.management]\nlocal_tcp = ["cs"]\n'
    node = start("b", more.replace("17013", "17014"))
    assert node.unix.stat().st_mode & 0o777 == 0o600
    assert over_tcp("cs", "config", "--capacity", "1", port=17014).returncode == 0


def test_a_second_bench_accuses_nobody(start: Start) -> None:
    """What the router keeps of one run does not answer another with other contents."""
    node = start()
    usual = {"--router": f"unix://{node.unix}", "--names": "1000", "--zipf": "0", "--duration": "1"}
    for words in ({"--content": "1000"}, {"--content": "500"}, {"--names": "2000"}, {"--names": "2000"}):
        line = [word for pair in (usual | words).items() for word in pair]
        done = subprocess.run(
            [str(node.binary), "bench", "ndn", *line, "--lifetime", "10000"],
            check=False,
            text=True,
            capture_output=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
