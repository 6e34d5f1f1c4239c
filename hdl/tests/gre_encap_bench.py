"""cocotb tests of gre_encap against the golden model of scapy."""

from __future__ import annotations

import ipaddress
import os
from typing import Any

import cocotb
import gre_encap_golden as golden
from streams import OKAY, SLVERR, Bench, Registers, Taker, start

EVENTS = {
    "passed": 0, "encapsulated": 1, "too_big": 10, "frame_error": 12, "host_tags": 16, "host_extension": 17,
    "host_deep": 18, "host_tunnel": 19, "host_checksum": 20, "host_route": 21, "host_ttl": 22, "host_mtu": 23,
    "host_number": 24, "host_short": 25,
}  # fmt: skip
NAMES = {code: name for name, code in EVENTS.items()}

FRAMES = int(os.environ.get("KAIDO_HDL_FRAMES", "600"))
SEED = int(os.environ.get("KAIDO_HDL_SEED", "1"))
LENGTH_MAX, COUNTERS, TUNNELS, TUNNEL_COUNTERS = 0x8, 0x80, 0x400, 0x800


def _words(number: int) -> list[int]:
    return [(number >> (96 - 32 * word)) & 0xFFFFFFFF for word in range(4)]


def _prefix(text: str | None) -> list[int]:
    """Words of a prefix and of its mask."""
    if text is None:
        return [0] * 8
    network = ipaddress.ip_network(text)
    return _words(int(network.network_address)) + _words(int(network.netmask))


def words_of(tunnel: golden.Tunnel) -> list[int]:
    """A tunnel as the 32 words of its registers."""
    every, is_v6 = tunnel.destination is None, ":" in (tunnel.destination or "")
    flags = [
        True, every or not is_v6, every or is_v6, every and tunnel.ethernet, tunnel.ethernet,
        tunnel.key is not None, tunnel.checksum, tunnel.ttl_uniform, tunnel.dscp_uniform, tunnel.route,
        tunnel.clear, tunnel.copy, tunnel.host,
    ]  # fmt: skip
    ends = [golden.LOCAL_V6, golden.REMOTE_V6] if tunnel.outer_v6 else [golden.LOCAL_V4, golden.REMOTE_V4]
    macs = [int(mac.replace(":", ""), 16) for mac in (golden.HOP_DST, golden.HOP_SRC)]
    return [
        *_prefix(tunnel.source),
        *_prefix(tunnel.destination),
        *[word for end in ends for word in _words(int(ipaddress.ip_address(end)))],
        tunnel.key or 0,
        *[word for mac in macs for word in (mac >> 32, mac & 0xFFFFFFFF)],
        tunnel.room,
        int(tunnel.outer_v6),
        sum(int(flag) << at for at, flag in enumerate(flags)) | tunnel.hops << 16,
    ]


async def configure(registers: Registers, tunnels: list[golden.Tunnel]) -> None:
    """The tunnels, each in its place."""
    assert await registers.write(LENGTH_MAX, golden.LENGTH_MAX) == OKAY
    for number, tunnel in enumerate(tunnels):
        base = TUNNELS + 0x80 * number
        assert await registers.write(base + 0x7C, 0) == OKAY
        for word, value in enumerate(words_of(tunnel)):
            assert await registers.write(base + 4 * word, value) == OKAY, word


def check(cases: list[golden.Case], bench: Bench, out: Taker, host: Taker) -> None:
    """Compares what left and what was counted with what the golden model says."""
    left, handed = list(out.frames), list(host.frames)
    for number, (case, code) in enumerate(zip(cases, bench.events, strict=True)):
        at = f"frame {number}: {case.frame.hex()}"
        assert NAMES[code] == case.event, f"{NAMES[code]}, not {case.event}: {at}"
        if case.out is not None:
            octets, user = left.pop(0)
            assert (octets, user) == (case.out, 0), f"{octets.hex()}, not {case.out.hex()}: {at}"
        elif code >= EVENTS["host_tags"]:
            assert handed.pop(0) == (case.frame, code), at
    assert not left and not handed


async def _frames(dut: Any, seed: int, tunnels: list[golden.Tunnel]) -> None:
    """Frames of all kinds under all kinds of back-pressure."""
    bench, registers, out, host = await start(dut, seed)
    await configure(registers, tunnels)
    sent: list[golden.Case] = []
    for gaps, out_waits, host_waits in [(0, 0, 0), (0.5, 0, 0), (0, 0.7, 0.2), (0.3, 0.3, 0.7)]:
        bench.gaps, out.waits, host.waits = gaps, out_waits, host_waits
        cases = [golden.case(bench.rng, tunnels) for _ in range(FRAMES // 8)]
        for taker in bench.takers:
            taker.frames.clear()
        bench.events.clear()
        for case in cases:
            await bench.send(case.frame, error=case.error)
        dut.s_axis_tvalid.value = 0
        await bench.drain(len(cases))
        check(cases, bench, out, host)
        sent += cases
    for name, code in EVENTS.items():
        wanted = sum(case.event == name for case in sent)
        assert await registers.read(COUNTERS + 4 * code) == (OKAY, wanted), name
    for number in range(len(tunnels)):
        into = [len(case.frame) for case in sent if case.tunnel == number]
        assert await registers.read(TUNNEL_COUNTERS + 16 * number) == (OKAY, len(into)), number
        assert await registers.read(TUNNEL_COUNTERS + 16 * number + 4) == (OKAY, sum(into)), number
        assert await registers.read(TUNNEL_COUNTERS + 16 * number + 8) == (OKAY, 0), number


@cocotb.test()  # type: ignore[untyped-decorator]
async def packets_go_into_tunnels_as_the_golden_model_says(dut: Any) -> None:
    """Tunnels of all kinds, and frames that pass."""
    await _frames(dut, SEED, golden.TUNNELS)


@cocotb.test()  # type: ignore[untyped-decorator]
async def whole_frames_go_into_a_tunnel(dut: Any) -> None:
    """A tunnel that is for all frames which the others are not for; and those that are the host's."""
    await _frames(dut, SEED + 1, golden.TUNNELS[:5] + golden.OTHERS)


@cocotb.test()  # type: ignore[untyped-decorator]
async def frames_longer_than_the_memory_are_dropped(dut: Any) -> None:
    """They are taken to their end, and those before and behind them leave."""
    bench, _registers, out, host = await start(dut, SEED + 2)
    room = int(os.environ["KAIDO_HDL_ROOM"])
    width = len(dut.s_axis_tkeep)
    cases = []
    for length in [60, room, room + 1, 61, room + width, 3 * room, room - 1, room - width, 64]:
        # No IP packet, so its length is of no matter.
        frame = bytes(12) + b"\x88\xb5" + bench.rng.randbytes(length - 14)
        is_long = length > room
        cases.append(golden.Case(frame, "too_big" if is_long else "passed", None if is_long else frame))
    for waits in (0.0, 0.6):
        out.waits = waits
        out.frames.clear()
        bench.events.clear()
        for case in cases:
            await bench.send(case.frame)
        await bench.drain(len(cases))
        check(cases, bench, out, host)


@cocotb.test()  # type: ignore[untyped-decorator]
async def reset_in_the_middle_of_a_packet_leaves_nothing(dut: Any) -> None:
    """No octet, no tunnel and no count is left of what there was."""
    bench, registers, out, host = await start(dut, SEED + 3)
    for _ in range(8):
        await configure(registers, golden.TUNNELS)
        out.waits, host.waits, bench.gaps = bench.rng.random() / 2, bench.rng.random() / 2, 0.2
        cases = [golden.case(bench.rng, golden.TUNNELS) for _ in range(4)]
        for case in cases[:-1]:
            await bench.send(case.frame)
        width = len(dut.s_axis_tkeep)
        beats = bench.rng.randrange(1 + len(cases[-1].frame) // width)
        await bench.send(cases[-1].frame, beats=beats)
        await bench.idle(bench.rng.randrange(8))
        await bench.reset()
        out.waits = host.waits = 0.0
        # Without tunnels all passes, and the first beat is a first beat.
        plain = golden.packet(bench.rng)
        await bench.send(plain)
        await bench.drain(1)
        assert out.frames == [(plain, 0)] and not host.frames
        assert bench.events == [EVENTS["passed"]]
        assert await registers.read(COUNTERS) == (OKAY, 1)
        assert await registers.read(COUNTERS + 4) == (OKAY, 0)
        bench.events.clear()
        out.frames.clear()


@cocotb.test()  # type: ignore[untyped-decorator]
async def the_bus_answers_errors_with_slverr(dut: Any) -> None:
    """A refused access changes nothing."""
    bench, registers, out, _host = await start(dut, SEED + 4)
    assert await registers.read(0x0) == (OKAY, 0x47525031)
    assert await registers.read(0x4) == (OKAY, 8 << 8 | len(dut.s_axis_tkeep))
    for address in (0x1, 0x2, 0x3, 0xC, 0x7C, 0x100, 0x400, 0x7FC, 0x80C, 0x880, 0xFFC):
        assert await registers.read(address) == (SLVERR, 0), hex(address)
    for address in (0x0, 0x4, 0x9, 0xA, 0xB, 0xC, 0x80, 0x3FC, 0x401, 0x800, 0xFFC):
        assert await registers.write(address, 0) == SLVERR, hex(address)
    await configure(registers, golden.TUNNELS[2:3])
    for strobe in range(15):
        assert await registers.write(LENGTH_MAX, 7, strobe) == SLVERR
    assert await registers.write(LENGTH_MAX, 1 << 17) == SLVERR
    assert await registers.read(LENGTH_MAX) == (OKAY, golden.LENGTH_MAX)
    # What means nothing in the words of a tunnel: it stays as it is.
    wrong = [(25, 1 << 16), (27, 1 << 16), (29, 1 << 16), (30, 2), (31, 1 << 13), (31, 1 << 24)]
    # A tunnel of packets for what has no IP header.
    wrong.append((31, 1 << 3))
    for word, value in wrong:
        assert await registers.write(TUNNELS + 4 * word, value) == SLVERR, word
    cases = []
    while len(cases) < 8:
        case = golden.tunnelled(bench.rng, golden.TUNNELS[2:3])
        if case.event == "encapsulated":
            cases.append(case)
            await bench.send(case.frame)
    await bench.drain(len(cases))
    assert [octets for octets, _ in out.frames] == [case.out for case in cases]
