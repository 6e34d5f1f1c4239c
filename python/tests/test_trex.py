"""TRex's names: what its scripts do, done here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kaido.trex
import pytest
from kaido import Client, Upf
from kaido.trex import *
from kaido.trex.packet import Instruction
from kaido.trex.stats import bucket
from kaido.trex.streams import Multiplier
from scapy.utils import rdpcap, wrpcap

BASE = Ether() / IP(src="16.0.0.1", dst="48.0.0.1") / UDP(sport=1025, dport=12) / (b"x" * 60)
"""102 bytes."""


@pytest.fixture
def client() -> Any:
    """A client with two ports in memory and a cable between them."""
    client = STLClient()
    client.connect()
    client.reset()
    yield client
    client.disconnect()


def burst(packets: int = 100, pps: float = 10_000, **stream: Any) -> STLStream:
    """A burst of the usual packet."""
    builder = STLPktBuilder(pkt=BASE, vm=stream.pop("vm", None))
    return STLStream(packet=builder, mode=STLTXSingleBurst(total_pkts=packets, pps=pps), **stream)


def test_names_that_are_missing_say_what_to_use(client: STLClient) -> None:
    """In imports, in the module, and at the client; names of Python's own are left alone."""
    with pytest.raises(ImportError, match=r"kaido\.trex has no STLPktBuilderRaw; instead: STLPktBuilder"):
        from kaido.trex import STLPktBuilderRaw  # noqa: F401
    with pytest.raises(STLError, match=r"no STLVmSomething; docs/python\.md lists"):
        kaido.trex.STLVmSomething  # noqa: B018
    with pytest.raises(AttributeError, match=r"no STLClient\.set_vlan; instead: Dot1Q in the packet"):
        client.set_vlan(ports=[0], vlan=1)
    assert not hasattr(client, "__deepcopy__")
    assert all(hasattr(kaido.trex, name) for name in kaido.trex.__all__)


def test_counters_are_in_the_places_of_trex(client: STLClient) -> None:
    """Packets, bytes with FCS, groups and latencies."""
    client.add_streams(
        [burst(flow_stats=STLFlowStats(pg_id=5)), burst(50, flow_stats=STLFlowLatencyStats(7))], 0
    )
    assert client.get_active_pgids() == {"flow_stats": [5], "latency": [7]}
    client.start(ports=[0])
    client.wait_on_traffic(ports=[0])
    stats = client.get_stats()
    assert (stats[0]["opackets"], stats[0]["obytes"], stats[0]["ipackets"]) == (150, 150 * 106, 0)
    assert (stats[1]["ipackets"], stats[1]["ibytes"], stats[1]["opackets"]) == (150, 150 * 106, 0)
    assert stats["total"]["opackets"] == stats["total"]["ipackets"] == 150
    assert stats["global"]["tx_pps"] == pytest.approx(stats[1]["rx_pps"])
    flow = stats["flow_stats"]
    assert flow[5]["tx_pkts"] == {0: 100, "total": 100}
    assert flow[5]["rx_pkts"] == {1: 100, "total": 100}
    assert flow[7]["rx_bytes"]["total"] == 50 * 106
    latency = stats["latency"][7]
    assert (
        0
        < latency["latency"]["total_min"]
        <= latency["latency"]["average"]
        <= latency["latency"]["total_max"]
    )
    assert latency["latency"]["jitter"] >= 0
    assert sum(latency["latency"]["histogram"].values()) == 50
    assert set(latency["err_cntrs"].values()) == {0}
    assert 5 not in stats["latency"]
    assert set(client.get_pgid_stats([5])["flow_stats"]) == {5, "global"}
    client.clear_stats()
    assert client.get_stats()[0]["opackets"] == 0


@pytest.mark.parametrize(
    ("us", "key"), [(0.4, 0), (9.9, 0), (10, 10), (19, 10), (123, 100), (98_765, 90_000)]
)
def test_histograms_have_the_buckets_of_trex(us: float, key: int) -> None:
    """The leading digit, from 10 microseconds on."""
    assert bucket(us) == key


@pytest.mark.parametrize(
    ("mult", "pps"),
    [("2", 2000.0), ("5kpps", 5000.0), ("1mbps", 1179.245), ("1mbpsl1", 992.063), ("1%", 99_206.3)],
)
def test_rates_are_multiplied_as_asked(mult: str, pps: float) -> None:
    """For 1000 packets a second of 102 bytes, on a line of 10 Gbit/s."""
    assert 1000 * Multiplier.of(mult).factor([(1000.0, 102.0)], 1e10) == pytest.approx(pps, rel=1e-4)
    with pytest.raises(STLError, match="mult is 'fast', possible is such as"):
        Multiplier.of("fast")


def test_traffic_is_as_fast_as_asked(client: STLClient) -> None:
    """A tenth of a second at ten thousand packets a second."""
    client.add_streams(STLStream(packet=STLPktBuilder(pkt=BASE), mode=STLTXCont(pps=1)), 0)
    client.start(0, mult="10kpps", duration=0.1)
    client.wait_on_traffic(timeout=30)
    assert client.get_stats()[0]["opackets"] == 1000


def test_both_ports_send_at_once_or_one_after_the_other(client: STLClient) -> None:
    """Calls of start are independent of each other."""
    client.add_streams(burst(), ports=[0, 1])
    client.start(ports=[0, 1])
    client.wait_on_traffic()
    client.start(ports=[0])
    client.start(ports=[1])
    client.wait_on_traffic()
    stats = client.get_stats()
    assert [stats[port][name] for port in (0, 1) for name in ("opackets", "ipackets")] == [200] * 4


def test_traffic_is_paused_updated_and_stopped(client: STLClient) -> None:
    """The ports say what they do."""
    client.add_streams(STLStream(packet=STLPktBuilder(pkt=BASE), mode=STLTXCont(pps=1000)), 0)
    client.start(0)
    with pytest.raises(STLError, match=r"ports \[0\] are sending"):
        client.start(0)
    assert client.get_transmitting_ports() == [0]
    client.pause(0)
    assert (client.get_paused_ports(), client.get_transmitting_ports()) == ([0], [])
    client.resume(0)
    with pytest.raises(STLError, match="this traffic has no end"):
        client.wait_on_traffic()
    with pytest.raises(STLTimeoutError, match=r"did not end within 0\.05 s"):
        client.wait_on_traffic(timeout=0.05)
    client.update(0, mult="20kpps")
    while client.get_stats()[0]["opackets"] < 1000:
        pass
    client.stop(0)
    assert client.get_active_ports() == []
    stats = client.get_stats()
    assert stats[0]["opackets"] == stats[1]["ipackets"] >= 1000


def test_captures_have_what_was_sent_and_what_came(client: STLClient, tmp_path: Path) -> None:
    """As dictionaries, and as a file."""
    client.add_streams(burst(30), 0)
    both = client.start_capture(tx_ports=[0], rx_ports=[1], limit=100)
    last = client.start_capture(rx_ports=1, limit=10, mode="cyclic")
    client.start(0)
    client.wait_on_traffic()
    status = client.get_capture_status()
    assert (status[both["id"]]["count"], status[last["id"]]["count"]) == (60, 10)
    packets: list[dict[str, Any]] = []
    client.stop_capture(both["id"], packets)
    assert [packet["origin"] for packet in packets].count("RX") == 30
    assert {(packet["port"], packet["origin"]) for packet in packets} == {(0, "TX"), (1, "RX")}
    sent = client.get_streams(0).popitem()[1].builder.packet("02:00:00:00:00:01", "02:00:00:00:00:02")
    assert {packet["binary"] for packet in packets} == {bytes(sent)}
    client.stop_capture(last["id"], tmp_path / "last.pcap")
    assert len(rdpcap(str(tmp_path / "last.pcap"))) == 10
    with pytest.raises(STLError, match="capture_id"):
        client.stop_capture(last["id"])


def test_captures_are_played(client: STLClient, tmp_path: Path) -> None:
    """With their own distances or others, and through a hook."""
    file = tmp_path / "play.pcap"
    link = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    wrpcap(str(file), [link / BASE.payload for _ in range(7)])
    capture = client.start_capture(rx_ports=1)
    client.push_pcap(file, ports=0, ipg_usec=10, count=3)
    client.wait_on_traffic()
    client.push_pcap(str(file), ports=0, packet_hook=lambda data: data + b"more")
    client.wait_on_traffic()
    packets: list[dict[str, Any]] = []
    client.stop_capture(capture["id"], packets)
    plain = bytes(link / BASE.payload)
    assert [packet["binary"] for packet in packets] == [plain] * 21 + [plain + b"more"] * 7
    with pytest.raises(STLError, match="there is no file"):
        client.push_pcap(tmp_path / "none.pcap", ports=0)


def test_ports_find_each_other_in_l3_mode(client: STLClient) -> None:
    """Packets then go to the address that was found; a gateway that is not there is said."""
    client.set_l3_mode(0, "10.0.0.1", "10.0.0.2")
    client.set_l3_mode(1, "10.0.0.2", "10.0.0.1")
    client.resolve([0, 1])
    assert client.get_port_attr(0)["arp"] == "02:00:00:00:00:02"
    client.set_l3_mode(0, "10.0.0.1", "10.0.0.9")
    client.add_streams(burst(), 0)
    with pytest.raises(STLError, match=r"port 0: nobody answers for 10\.0\.0\.9"):
        client.start(0)
    client.set_l2_mode(0, "02:00:00:00:00:aa")
    capture = client.start_capture(rx_ports=1)
    client.start(0)
    client.wait_on_traffic()
    packets: list[dict[str, Any]] = []
    client.stop_capture(capture["id"], packets)
    assert {Ether(packet["binary"]).dst for packet in packets} == {"02:00:00:00:00:aa"}


def test_ping_says_when_nobody_answers() -> None:
    """A cable answers nothing."""
    client = STLClient()
    client.connect()
    client.set_l3_mode(1, "10.0.0.2", "10.0.0.1")
    client.set_l3_mode(0, "10.0.0.1", "10.0.0.2")
    answers = client.ping_ip(0, "10.0.0.2", count=1, interval_sec=0)
    assert [answer["status"] for answer in answers] == ["timeout"]


def test_the_configuration_says_which_ports_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scripts stay as they are."""
    file = tmp_path / "ports.toml"
    file.write_text(
        '[[port]]\nname = "a"\n[[port]]\nname = "b"\nline_bps = 1e9\n[device]\ncables = [["a", "b"]]\n'
    )
    monkeypatch.setenv("KAIDO_TREX", str(file))
    client = STLClient()
    assert client.get_all_ports() == [0, 1]
    assert client.get_port_attr(1)["speed"] == 1.0
    for text, message in (
        ('[[port]]\ndriver = "dpdk"\n', "port 0: driver is 'dpdk'"),
        ('[[port]]\nname = "a"\nlane = 1\n', "port 0: `lane` is no setting of memory"),
        ("[ports]\n", r"`ports` is none of \[\[port\]\] and \[device\]"),
        ("[device]\nx = 1\n", "has `cables` or `upf`"),
    ):
        file.write_text(text)
        with pytest.raises(STLError, match=message):
            STLClient()


def test_the_user_plane_can_be_the_device() -> None:
    """Bearers are known by TEID."""
    upf = Upf(bearers=10)
    client = STLClient(device=upf)
    client.connect()
    client.reset()
    outer = Ether() / IP(src=upf.peer_first, dst=upf.local) / UDP(sport=2152, dport=2152, chksum=0)
    tunnel = outer / GTP_U_Header(gtp_type="g_pdu", teid=1)
    packet = tunnel / IP(src=upf.ue_first, dst=upf.server) / UDP(sport=1, dport=2) / (b"x" * 50)
    mode = STLTXSingleBurst(total_pkts=100, pps=10_000)
    client.add_streams(STLStream(packet=STLPktBuilder(pkt=packet), mode=mode), 0)
    client.start(0)
    client.wait_on_traffic()
    stats = client.get_stats()
    assert (stats[1]["ipackets"], stats[1]["ibytes"]) == (100, 100 * (len(packet) + 4 - 36))


@pytest.mark.parametrize(
    ("commands", "message"),
    [
        ([STLVmWrFlowVar("a", "IP.src")], "there is no variable a"),
        ([STLVmFlowVar("a", next_var="b")], "next_var of a: there is no variable b"),
        ([STLVmFlowVar("a", next_var="b"), STLVmFlowVar("b", next_var="a")], "lead in a circle"),
        ([STLVmFlowVar("a"), STLVmWrFlowVar("a", "IP.sorce")], "IP has no field sorce"),
        ([STLVmFlowVar("a"), STLVmWrFlowVar("a", "IP:1.src")], "the first has number 0"),
        ([STLVmTrimPktSize("a")], "there is no variable a"),
        (
            [STLVmFlowVar("a", size=2), STLVmTrimPktSize("a"), STLVmWrFlowVar("a", "IP.id")],
            "can only be written into length fields",
        ),
    ],
)
def test_programs_that_make_no_sense_are_refused(commands: list[Instruction], message: str) -> None:
    """With the instruction and the name."""
    with pytest.raises(STLError, match=message):
        burst(vm=commands).builder.template()


def test_arguments_that_make_no_sense_are_refused() -> None:
    """By name."""
    with pytest.raises(STLError, match="size is 3"):
        STLVmFlowVar("a", size=3)
    with pytest.raises(STLError, match="op is 'up'"):
        STLVmFlowVar("a", op="up")
    with pytest.raises(STLError, match="one rate is possible, not pps and percentage"):
        STLTXCont(pps=1, percentage=1)
    with pytest.raises(STLError, match="packet is missing"):
        STLStream()
    with pytest.raises(STLError, match="not connected"):
        STLClient().start()
    with pytest.raises(STLError, match="ports is 5"):
        STLClient().get_port_attr(5)


def test_variables_have_the_values_of_trex() -> None:
    """That begin in the middle, of lists, repeatable, and downwards."""

    def operation(variable: Any) -> Any:
        return variable.operation()

    assert operation(STLVmFlowVar("a", min_value=1, max_value=5, init_value=4)) == {"list": [4, 5, 1, 2, 3]}
    assert operation(STLVmFlowVar("a", min_value=1, max_value=5, init_value=2, op="dec")) == {
        "list": [2, 1, 5, 4, 3]
    }
    assert operation(STLVmFlowVar("a", value_list=["0.0.0.9", 7], op="dec")) == {"list": [7, 9]}
    chosen = operation(STLVmFlowVar("a", value_list=[3, 4], op="random"))["list"]
    assert set(chosen) == {3, 4}
    repeated = STLVmFlowVarRepeatableRandom("a", size=2, limit=9, seed=1)
    assert len(operation(repeated)["list"]) == 9
    assert operation(repeated) == operation(repeated)
    few = STLVmTupleGen("t", "10.0.0.1", "10.0.0.4", 1025, 65_000, limit_flows=8).operation()
    assert (few["port_first"], few["port_last"]) == (1025, 1026)


def test_plain_python_and_trex_make_the_same_packets(client: STLClient) -> None:
    """One generator behind both."""
    from kaido import Increment, Stream

    vm = [
        STLVmFlowVar("a", min_value="16.0.0.1", max_value="16.0.0.9", size=4),
        STLVmWrFlowVar("a", "IP.src"),
        STLVmFixChecksumHw("IP", "UDP", CTRexVmInsFixHwCs.L4_TYPE_UDP),
    ]
    client.add_streams(burst(20, vm=vm), 0)
    capture = client.start_capture(rx_ports=1)
    client.start(0)
    client.wait_on_traffic()
    packets: list[dict[str, Any]] = []
    client.stop_capture(capture["id"], packets)
    plain = Stream(BASE, vary=[Increment("IP.src", "16.0.0.1", "16.0.0.9")], trailer=False)
    assert [packet["binary"] for packet in packets] == Client().packets(plain, 20)
    assert json.dumps(client.get_port_info()) != "[]"
