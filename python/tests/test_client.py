"""Runs over devices in memory: nothing of it needs root."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from kaido import (
    L3,
    At,
    Cables,
    Client,
    Increment,
    Lengths,
    Mode,
    Random,
    Rate,
    Replay,
    Result,
    Stream,
    Upf,
    af_packet,
    memory,
    pcap,
)
from scapy.contrib.gtp import GTP_U_Header, GTPPDUSessionContainer
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw
from scapy.utils import rdpcap, wrpcap

PACKET = Ether() / IP(src="16.0.0.1", dst="48.0.0.1") / UDP(sport=1025, dport=12) / Raw(b"x" * 100)
BEARERS = 50


def uplink(upf: Upf) -> Stream:
    """Packets of all bearers in turn."""
    device, bench = upf.macs["access"]
    headers = (
        Ether(src=bench, dst=device)
        / IP(src=upf.peer_first, dst=upf.local)
        / UDP(sport=2152, dport=2152, chksum=0)
        / GTP_U_Header(gtp_type="g_pdu", teid=upf.teid_first)
        / GTPPDUSessionContainer(type=1, QFI=upf.qfi)
        / IP(src=upf.ue_first, dst=upf.server)
        / UDP(sport=5000, dport=443)
    )
    bearer = Increment(
        ["GTP_U_Header.teid", At("IP:2.src", start=upf.ue_first)],
        upf.teid_first,
        upf.teid_first + upf.bearers - 1,
    )
    return Stream(
        headers, vary=[bearer], name="up", port="access", lengths=128, mode=Mode.burst(2000), rate=1e5
    )


def downlink(upf: Upf) -> Stream:
    """Packets to any bearer."""
    device, bench = upf.macs["core"]
    headers: Packet = Ether(src=bench, dst=device) / IP(src=upf.server, dst=upf.ue_first)
    ue = Random("IP.dst", upf.ue_first, upf.ue(upf.bearers - 1))
    return Stream(
        headers / UDP(sport=443, dport=5000),
        vary=[ue],
        name="down",
        port="core",
        lengths=Lengths.random(100, 1400),
        mode=Mode.burst(2000),
        rate=1e5,
    )


def test_a_cable_gives_back_what_goes_in() -> None:
    """As many packets as the rate and the time say, with all their bytes, judged clean."""
    result = Client().run(Stream(PACKET, rate="10kpps", lengths=200), duration=0.2)
    row = result.streams().row(0, named=True)
    assert (row["sent"], row["received"], row["lost"]) == (2000, 2000, 0)
    assert row["sent_bytes"] == row["received_bytes"] == 2000 * 200
    assert result.is_clean and result.loss_ratio == 0.0
    assert (
        row["latency_min_ns"]
        <= row["latency_p50_ns"]
        <= row["latency_p99_ns"]
        <= row["latency_max_ns"] * 1.01
    )
    histogram = result.histogram()
    assert (histogram["packets"].sum(), histogram["share"][-1]) == (2000, 1.0)
    ports = result.ports()
    assert ports["sent"].to_list() == [2000, 0]
    assert ports["received"].to_list() == [0, 2000]
    assert result.data["clock"]["read_ns"] > 0


@pytest.mark.parametrize("vlans", [{}, {"access": [100], "core": [7, 200]}], ids=["untagged", "tagged"])
def test_the_user_plane_forwards_both_ways_and_the_oracle_agrees(vlans: dict[str, Sequence[int]]) -> None:
    """Every packet comes out as the rules say, which are worked out without the user plane."""
    upf = Upf(bearers=BEARERS, vlans=vlans)
    streams = [uplink(upf), downlink(upf)]
    for stream, side in zip(streams, ("access", "core"), strict=True):
        for tag in reversed(vlans.get(side, [])):
            assert isinstance(stream.packet, Packet)
            link, rest = stream.packet.copy(), stream.packet.payload.copy()
            link.remove_payload()
            stream.packet = link / Dot1Q(vlan=tag) / rest
    result = Client(device=upf).run(streams)
    assert result.kinds() == {}
    frame = result.streams()
    assert frame["sent"].to_list() == frame["received"].to_list() == [2000, 2000]
    up = frame.row(0, named=True)
    tags = 4 * (len(vlans.get("core", [])) - len(vlans.get("access", [])))
    assert up["received_bytes"] == up["sent_bytes"] + 2000 * (tags - 44)


def test_the_oracle_shows_what_is_wrong(tmp_path: Path) -> None:
    """The user plane does what it was told, the rules say something else: fields are named, frames saved."""
    upf = Upf(bearers=BEARERS)
    other = Upf(bearers=BEARERS, access_teid_first=1, qfi=5)
    client = Client(device=upf, rules=other.rules(), keep=3)
    result = client.run(downlink(upf))
    assert result.kinds() == {"wrong_fields": 2000}
    findings = result.findings()
    assert len(findings) == 3
    assert set(findings["wrong_fields"][0]) >= {"gtpu.teid", "gtpu.pdu_session.qfi"}
    rows = result.difference().filter(pl.col("field") == "gtpu.teid")
    assert (rows["wrong"][0], rows["expected"][0] == rows["found"][0]) == (True, False)
    assert result.save_findings(tmp_path / "wrong.pcapng") == len(rdpcap(str(tmp_path / "wrong.pcapng"))) == 6


def test_strangers_do_not_come_out() -> None:
    """Tunnels that no session has are dropped, and the oracle expects that."""
    upf = Upf(bearers=BEARERS)
    stream = uplink(upf)
    stream.vary = [Increment("GTP_U_Header.teid", 5000, 5100)]
    result = Client(device=upf).run(stream)
    row = result.streams().row(0, named=True)
    assert (row["sent"], row["received"], row["withheld"], row["lost"]) == (2000, 0, 2000, 0)


def test_a_run_can_be_watched_paused_and_stopped() -> None:
    """Time stands still while it is paused."""
    with Client() as client:
        client.start(Stream(PACKET, rate="1kpps"))
        capture = client.capture(sent=["0"], received=["1"], limit=10)
        while client.stats()["received"] < 20:
            assert not client.wait(0.01)
        client.pause()
        client.wait(0.05)
        before = client.stats()["time_ns"]
        client.wait(0.1)
        assert client.stats()["time_ns"] == before
        with pytest.raises(RuntimeError, match="a run is under way"):
            client.start(Stream(PACKET, rate=1))
        client.resume()
        client.stop()
        result = client.result()
        assert result.is_clean
        frames = client.captured(capture)
        assert len(frames) == 10
        assert {(port, received) for port, received, *_ in frames} == {("0", False), ("1", True)}
        assert Ether(frames[0][3])[IP].src == "16.0.0.1"


def test_several_streams_share_a_rate() -> None:
    """By their weights, within what rounding takes."""
    streams = [Stream(PACKET, rate=Rate.weight(weight), name=str(weight)) for weight in (1, 3)]
    result = Client().run(streams, duration=0.2, rate="20kpps", progress=False)
    assert result.streams()["sent"].to_list() == [1000, 3000]


def test_files_are_played_and_written(tmp_path: Path) -> None:
    """A capture goes out of a port that writes a file, twice, byte for byte."""
    packets = [PACKET / Raw(bytes([n])) for n in range(5)]
    for place, packet in enumerate(packets):
        packet[Ether].src, packet[Ether].dst = "02:00:00:00:00:01", "02:00:00:00:00:02"
        packet.time = 1000 + place / 1000
    wrpcap(str(tmp_path / "in.pcap"), packets)
    client = Client(ports=[pcap("file", target=tmp_path / "out.pcap")])
    result = client.run(Replay(tmp_path / "in.pcap", passes=2, speed=10.0))
    assert result.streams()["sent"].to_list() == [10]
    assert not result.streams()["counted"][0]
    written = [bytes(packet) for packet in rdpcap(str(tmp_path / "out.pcap"))]
    assert written == [bytes(packet) for packet in packets] * 2
    # Through a cable, whose rule says what comes out, they are known by their content.
    judged = Client().run(Replay(tmp_path / "in.pcap", passes=2, speed=10.0))
    assert judged.is_clean and judged.streams()["counted"][0]
    assert judged.streams()["received"].to_list() == [10]


def test_gateways_are_asked_for_in_l3_mode() -> None:
    """Two ports on a cable, each the other's gateway: their answers are the addresses of what is sent."""
    one = memory("a", l3=L3(["10.0.0.1", "fd00::1"], ["10.0.0.2", "fd00::2"], mac="02:00:00:00:00:0a"))
    other = memory("b", l3=L3(["10.0.0.2", "fd00::2"], ["10.0.0.1", "fd00::1"], mac="02:00:00:00:00:0b"))
    client = Client(
        ports=[one, other], device=Cables([("a", "b")]), rules=[{"unchanged": {"from": "a", "to": "a"}}]
    )
    result = client.run(Stream(PACKET, rate="10kpps", mode=Mode.burst(100)))
    # By a rule that is wrong on purpose the frames are kept.
    assert result.kinds() == {"wrong_port": 100}
    sent = Ether(result.frames[0][1])
    assert (sent.src, sent.dst) == ("02:00:00:00:00:0a", "02:00:00:00:00:0b")


def test_a_gateway_that_is_silent_is_named() -> None:
    """And a port in memory has no MAC address of its own."""
    nobody = L3(["10.0.0.1"], ["10.0.0.9"], mac="02:00:00:00:00:0a")
    client = Client(ports=[memory("a", l3=nobody)], device=Cables([]), resolve_s=0.05)
    with pytest.raises(OSError, match=r"port `a`: 10\.0\.0\.9 does not answer"):
        client.start(Stream(PACKET, rate=1))
    without = Client(ports=[memory("a", l3=L3(["10.0.0.1"], ["10.0.0.9"]))], device=Cables([]))
    with pytest.raises(OSError, match="has no MAC address"):
        without.start(Stream(PACKET, rate=1))


def test_what_cannot_be_opened_says_why(tmp_path: Path) -> None:
    """Ports, files, devices."""
    with pytest.raises(OSError, match=r"port `a`: .*nowhere0"):
        Client(ports=[af_packet("a", "nowhere0")]).start(Stream(PACKET, rate=1))
    with pytest.raises(ValueError, match=r"stream\[0\]\.source\.capture\.file"):
        Client().start(Replay(tmp_path / "none.pcap"))
    with pytest.raises(ValueError, match="there is no port `9`"):
        Client(ports=[memory("0")], device=Cables([("0", "9")])).start(Stream(PACKET, rate=1))
    with pytest.raises(ValueError, match=r"stream\[0\]\.port: there is no port `x`"):
        Client().start(Stream(PACKET, port="x", rate=1))
    with pytest.raises(RuntimeError, match="nothing was started"):
        Client().stats()


def test_results_survive_json() -> None:
    """A result that was written by the command can be looked at here."""
    result = Client().run(Stream(PACKET, rate="1kpps", mode=Mode.burst(10)))
    again = Result.load(json.dumps(result.data))
    assert again.streams().equals(result.streams())
    assert "10" in str(again)
    assert "<table" in again._repr_html_()


def test_a_bar_shows_progress(capsys: pytest.CaptureFixture[str]) -> None:
    """Where it is asked for."""
    Client().run(Stream(PACKET, rate="1kpps"), duration=0.3, progress=True)
    assert "0.3/0.3 s" in capsys.readouterr().err
    Client().run(Stream(PACKET, rate="1kpps"), duration=0.1, progress=False)
    assert capsys.readouterr().err == ""
