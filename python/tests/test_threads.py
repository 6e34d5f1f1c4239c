"""Runs on one thread and on several: they give the same, and end when they are told to."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kaido import Client, Mode, Stream, af_packet, pcap
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import rdpcap

MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")
PACKET = Ether(src=MACS[0], dst=MACS[1]) / IP(src="16.0.0.1", dst="48.0.0.1") / UDP() / Raw(b"x" * 100)


@pytest.mark.parametrize(("threads", "count"), [("one", 1), ("apart", 2)])
def test_as_many_threads_as_said_send_the_same(tmp_path: Path, threads: str, count: int) -> None:
    """Every packet, and no other."""
    file = tmp_path / "sent.pcap"
    client = Client(ports=[pcap("a", target=file)], threads=threads, drain_s=0.05)
    result = client.run(Stream(PACKET, mode=Mode.burst(500), rate=1e5, lengths=128))
    assert result.data["threads"] == count
    assert result.streams()["sent"].to_list() == [500]
    assert client.stats()["ports"][0][0]["packets"] == 500 == len(rdpcap(str(file)))


def test_a_device_in_memory_is_turned_by_the_thread_that_sends() -> None:
    """Whatever was asked: its ports are no more than queues."""
    result = Client(threads="apart").run(Stream(PACKET, mode=Mode.burst(100), rate=1e5))
    assert result.data["threads"] == 1 and result.is_clean


@pytest.mark.parametrize("threads", ["one", "apart"])
def test_a_run_that_stands_still_can_be_ended(tmp_path: Path, threads: str) -> None:
    """Paused, it sends nothing; going on, it does; stopped while paused, it ends."""
    client = Client(ports=[pcap("a", target=tmp_path / "sent.pcap")], threads=threads, drain_s=0.05)
    client.start(Stream(PACKET, rate=2000))
    deadline = time.monotonic() + 60

    def sent() -> int:
        return int(client.stats()["streams"][0]["packets"])

    def wait_for_more_than(packets: int) -> None:
        while sent() <= packets:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    wait_for_more_than(0)
    client.pause()
    # What was under way when it was told is sent before it stands.
    stood, before = sent(), -1
    while stood != before:
        assert time.monotonic() < deadline
        time.sleep(0.2)
        stood, before = sent(), stood
    client.resume()
    wait_for_more_than(stood)
    client.pause()
    client.stop()
    assert client.result().streams()["sent"][0] > stood


def test_an_unknown_way_is_refused() -> None:
    """With those that there are."""
    with pytest.raises(ValueError, match="apart"):
        Client(threads="many").start(Stream(PACKET, rate=1))


@pytest.fixture
def link() -> Iterator[tuple[str, str]]:
    """Two ends of a link."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root, ip")
    ends = (f"kt{os.getpid()}a", f"kt{os.getpid()}b")
    subprocess.run(["ip", "link", "add", ends[0], "type", "veth", "peer", ends[1]], check=True)
    try:
        for end, mac in zip(ends, MACS, strict=True):
            subprocess.run(["ip", "link", "set", end, "address", mac, "up"], check=True)
        yield ends
    finally:
        subprocess.run(["ip", "link", "del", ends[0]], check=True)


@pytest.mark.parametrize(("threads", "count"), [("one", 1), ("apart", 3)])
def test_over_a_link_all_is_judged(link: tuple[str, str], threads: str, count: int) -> None:
    """A thread for each port and one that judges; captures have what passes."""
    client = Client(
        ports=[af_packet("a", link[0]), af_packet("b", link[1])],
        rules=[{"unchanged": {"from": "a", "to": "b"}}],
        threads=threads,
        drain_s=5.0,
        late_after_s=20.0,
        # Packets overtake each other in the kernel when their sender changes its CPU on the way.
        ordered=False,
    )
    client.start(Stream(PACKET, port="a", mode=Mode.burst(2000), rate=2000, lengths=128))
    capture = client.capture(received=["b"], limit=10)
    result = client.result()
    assert result.data["threads"] == count
    assert result.is_clean, result.findings()
    assert result.streams()["received"].to_list() == [2000]
    kept = client.captured(capture)
    assert kept and all(name == "b" and came for name, came, *_ in kept)
    assert any(b"\x10\x00\x00\x01" in data for *_, data in kept)
