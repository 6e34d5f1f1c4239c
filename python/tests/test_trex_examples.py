"""The profiles and scripts of python/examples/trex, run against devices in memory: counts, bytes, packets."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kaido.trex import STLClient, STLProfile
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import GRE, Dot1AD, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet
from scapy.utils import rdpcap, wrpcap

EXAMPLES = Path(__file__).parents[1] / "examples" / "trex"
FCS = 4
SECONDS = 0.2


def played(
    name: str, mult: str = "1", duration: float = SECONDS, **tunables: Any
) -> tuple[list[Packet], Any]:
    """What comes back of a profile sent out of port 0, and the counters; nothing is lost or changed."""
    client = STLClient()
    client.connect()
    try:
        client.reset(ports=[0, 1])
        client.add_streams(STLProfile.load_py(EXAMPLES / name, direction=0, port_id=0, **tunables), ports=[0])
        capture = client.start_capture(tx_ports=0, rx_ports=1, limit=10_000)
        client.start(ports=[0], mult=mult, duration=duration)
        client.wait_on_traffic(ports=[0])
        stats = client.get_stats()
        packets: list[dict[str, Any]] = []
        client.stop_capture(capture["id"], packets)
    finally:
        client.disconnect()
    sent, received = ([p["binary"] for p in packets if p["origin"] == way] for way in ("TX", "RX"))
    assert sent == received
    size = sum(len(data) + FCS for data in sent)
    assert (stats[0]["opackets"], stats[0]["obytes"]) == (len(sent), size)
    assert (stats[1]["ipackets"], stats[1]["ibytes"]) == (len(sent), size)
    return [Ether(data) for data in received], stats


def is_whole(packet: Packet) -> bool:
    """Whether lengths and checksums are those that scapy would set."""
    again = packet.copy()
    for kind, names in (
        (IP, ("len", "chksum")),
        (UDP, ("len", "chksum")),
        (TCP, ("chksum",)),
        (IPv6, ("plen",)),
    ):
        layer, count = again.getlayer(kind), 1
        while layer is not None:
            for name in names:
                # A UDP checksum of zero is none.
                if not (kind is UDP and name == "chksum" and layer.chksum == 0):
                    layer.setfieldval(name, None)
            count += 1
            layer = again.getlayer(kind, count)
    return bytes(again) == bytes(packet)


def layer(packet: Packet, kind: type[Packet], number: int) -> Packet:
    """A layer that is there."""
    found = packet.getlayer(kind, number)
    assert found is not None
    return found


def distinct(packets: list[Packet], get: Callable[[Packet], Any]) -> list[Any]:
    """The values of a field, in the order in which they come first."""
    return list(dict.fromkeys(get(packet) for packet in packets))


def test_udp_1pkt_simple() -> None:
    """One packet; from the other side in the other direction."""
    packets, _ = played("udp_1pkt_simple.py", mult="5kpps")
    assert len(packets) == 1000
    assert {bytes(packet) for packet in packets} == {bytes(packets[0])}
    assert (packets[0][IP].src, len(packets[0])) == ("16.0.0.1", 60)
    back = STLProfile.load_py(EXAMPLES / "udp_1pkt_simple.py", direction=1)
    assert Ether(back.get_streams()[0].get_pkt())[IP].src == "48.0.0.1"


def test_imix() -> None:
    """7 : 4 : 1 by rates, multiplied as asked; sources in turn."""
    packets, stats = played("imix.py", mult="4800pps")
    counts = {size: sum(len(packet) == size for packet in packets) for size in (60, 590, 1514)}
    assert counts == {60: 560, 590: 320, 1514: 80}
    assert stats[0]["obytes"] == 560 * 64 + 320 * 594 + 80 * 1518
    assert distinct(packets, lambda packet: packet[IP].src)[:3] == ["16.0.0.1", "16.0.0.2", "16.0.0.3"]


def test_burst() -> None:
    """As many as the tunable says."""
    assert len(played("burst.py", duration=-1)[0]) == 1000
    assert len(played("burst.py", duration=-1, pkts=77)[0]) == 77


def test_multi_burst() -> None:
    """Streams that follow each other."""
    packets, _ = played("multi_burst.py", duration=-1)
    assert [packet[UDP].dport for packet in packets] == [12] * 100 + [13] * 200 + [14]


@pytest.mark.parametrize("op", ["random", "inc"])
def test_udp_random_size(op: str) -> None:
    """All lengths between the two, in headers too."""
    packets, _ = played("udp_random_size.py", mult="5kpps", op=op)
    sizes = [len(packet) for packet in packets]
    assert (min(sizes) >= 64, max(sizes) <= 512, len(sizes)) == (True, True, 1000)
    if op == "inc":
        assert sizes[:450] == [*range(64, 513), 64]
    else:
        assert len(set(sizes)) > 300
    for packet, size in zip(packets, sizes, strict=True):
        assert (packet[IP].len, packet[UDP].len) == (size - 14, size - 34)


def test_udp_tuple_gen() -> None:
    """Clients first, then ports."""
    packets, _ = played("udp_tuple_gen.py")
    flows = [(packet[IP].src, packet[UDP].sport) for packet in packets]
    assert flows[:5] == [(f"16.0.0.{n}", 1025) for n in (1, 2, 3, 4)] + [("16.0.0.1", 1026)]
    assert len(set(flows)) == len(flows) == 200


def test_vm_chained() -> None:
    """The destination goes on when the sources begin anew."""
    packets, _ = played("vm_chained.py")
    found = [(packet[IP].src, packet[IP].dst) for packet in packets]
    assert found == [(f"16.0.0.{n % 3 + 1}", f"48.0.0.{n // 3 + 1}") for n in range(200)]


def test_gre() -> None:
    """Key and inner source together, all checksums right."""
    packets, _ = played("gre.py")
    assert [(packet[GRE].key, layer(packet, IP, 2).src) for packet in packets[:3]] == [
        (1, "10.1.0.1"),
        (2, "10.1.0.2"),
        (3, "10.1.0.3"),
    ]
    assert all(is_whole(packet) for packet in packets)


def test_vxlan() -> None:
    """24 bits of identifier, and source ports for the receiver's queues."""
    packets, _ = played("vxlan.py")
    assert distinct(packets, lambda packet: packet[VXLAN].vni) == list(range(100, 164))
    assert {packet[VXLAN].reserved2 for packet in packets} == {0}
    ports = distinct(packets, lambda packet: packet[UDP].sport)
    assert len(ports) > 100 and min(ports) >= 49_152


def test_mpls() -> None:
    """The inner label goes down, beside its other bits."""
    packets, _ = played("mpls.py")
    labels = [layer(packet, MPLS, 2).label for packet in packets]
    assert labels[:30] == [*range(39, 11, -1), 39, 38]
    inner = {(label.cos, label.s, label.ttl) for label in (layer(packet, MPLS, 2) for packet in packets)}
    assert inner == {(1, 1, 12)}
    assert {packet[MPLS].label for packet in packets} == {17}


def test_flow_stats() -> None:
    """Groups are counted, and the latency of one is told."""
    packets, stats = played("flow_stats.py")
    assert len(packets) == 500
    assert (stats["flow_stats"][7]["tx_pkts"]["total"], stats["flow_stats"][7]["rx_pkts"]["total"]) == (
        400,
        400,
    )
    assert (stats["flow_stats"][8]["tx_pkts"][0], stats["flow_stats"][8]["rx_pkts"][1]) == (100, 100)
    latency = stats["latency"][8]["latency"]
    assert sum(latency["histogram"].values()) == 100
    assert latency["total_max"] >= latency["average"] > 0
    assert stats["latency"][8]["err_cntrs"]["dropped"] == 0


def test_ipv6() -> None:
    """The last 32 bits change, and the checksum with them."""
    packets, _ = played("ipv6.py")
    assert [packet[IPv6].dst for packet in packets[:2]] == ["2001:db8:1::1", "2001:db8:1::2"]
    assert all(is_whole(packet) for packet in packets)


def test_qinq() -> None:
    """The customer's tag changes, its priority and the provider's tag do not."""
    packets, _ = played("qinq.py", mult="10")
    assert [packet[Dot1Q].vlan for packet in packets] == [100 + n % 1000 for n in range(2000)]
    assert {(packet[Dot1AD].vlan, packet[Dot1Q].prio) for packet in packets} == {(7, 3)}


def test_syn_flood() -> None:
    """Random sources, the same in every run, with right checksums."""
    packets, _ = played("syn_flood.py", mult="10")
    sources = [packet[IP].src for packet in packets]
    assert len(packets) == 2000 and sources[:1000] == sources[1000:] and len(set(sources)) > 990
    assert {str(packet[TCP].flags) for packet in packets} == {"S"}
    assert all(is_whole(packet) for packet in packets[:50])
    again, _ = played("syn_flood.py", mult="10")
    assert [bytes(packet) for packet in again] == [bytes(packet) for packet in packets]


def script(name: str) -> Any:
    """A script as a module."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A capture is played twice."""
    link = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    wrpcap(str(tmp_path / "play.pcap"), [link / IP() / UDP() / bytes([n] * 20) for n in range(9)])
    script("replay").main(str(tmp_path / "play.pcap"))
    assert capsys.readouterr().out == "18 sent, 18 back\n"


@pytest.fixture
def pushed() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A Pushgateway's address, and the paths and bodies that it was sent."""
    found: list[tuple[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.append((self.path, body.decode()))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}", found
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(("action", "tx", "rx", "more"), [("uplink", 0, 1, -36), ("downlink", 1, 0, 44)])
def test_the_scripts_of_the_slides(
    action: str,
    tx: int,
    rx: int,
    more: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pushed: tuple[str, list[tuple[str, str]]],
) -> None:
    """A user plane is measured, its packets are captured, and counters reach a Pushgateway with labels."""
    gateway, bodies = pushed
    monkeypatch.setenv("KAIDO_TREX", str(EXAMPLES / "upf.toml"))
    arguments = (
        f"pgw_u.py {action} --sizes 128 512 --speed 5kpps --duration 0.2 --run-id 7 --capture {tmp_path}/back"
    )
    monkeypatch.setattr("sys.argv", [*arguments.split(), "--pushgateway", gateway])
    script("pgw_u").main()
    for size in (128, 512):
        frames = [bytes(packet) for packet in rdpcap(str(tmp_path / f"back-{action}-{size}.pcap"))]
        assert len(frames) == 100
        assert {len(frame) for frame in frames} == {size + more}
    assert [path for path, _ in bodies] == ["/metrics/job/trex"] * 2
    for size, (_, body) in zip((128, 512), bodies, strict=True):
        labels = f'run_id="7",action="{action}",frame_size="{size}",duration="0.2"'
        assert f'opackets{{{labels},port="{tx}"}} 1000.00000000' in body
        assert f'ipackets{{{labels},port="{rx}"}} 1000.00000000' in body
        assert f'ibytes{{{labels},port="{rx}"}} {1000 * (size + more + FCS)}.00000000' in body
