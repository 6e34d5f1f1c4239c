"""cocotb tests of gre_decap against the golden model of scapy."""

from __future__ import annotations

import ipaddress
import os
from typing import Any

import cocotb
import gre_golden as golden
from scapy.layers.inet import IP
from scapy.layers.l2 import GRE, Ether
from scapy.packet import Raw
from streams import OKAY, SLVERR, Bench, Registers, Taker, start, under_pressure

EVENTS = {
    "passed": 0, "stripped": 1, "ip_malformed": 2, "ip_checksum": 3, "gre_malformed": 4, "gre_version": 5,
    "gre_flags": 6, "gre_rule": 7, "inner_malformed": 8, "congestion_mark": 9, "too_big": 10,
    "outer_fragment": 11, "frame_error": 12, "gre_checksum": 13, "not_routed": 14,
    "host_tags": 16, "host_extension": 17, "host_deep": 18, "host_fragment": 19, "host_route": 21,
    "host_punt": 22, "host_other": 23,
}  # fmt: skip
NAMES = {code: name for name, code in EVENTS.items()}

FRAMES = int(os.environ.get("KAIDO_HDL_FRAMES", "600"))
SEED = int(os.environ.get("KAIDO_HDL_SEED", "1"))
UNMATCHED, POLICY, LENGTH_MAX, COUNTERS, RULES_V4, RULES_V6, RULE_COUNTERS = (
    0x8,
    0xC,
    0x10,
    0x80,
    0x200,
    0x400,
    0x800,
)
# valid, any key, all kinds of packets; strip.
STRIP = 1 | 7 << 3 | 2 << 6
CONDITIONS = {
    golden.PIPE: STRIP,
    golden.UNIFORM: STRIP | 3 << 8,
    golden.KEYED: STRIP | 2 << 1,
    golden.DROPPED: 1 | 7 << 3 | 1 << 6,
    golden.ROUTED: STRIP | 1 << 10,
}


async def configure(registers: Registers) -> None:
    """A rule for each source of the golden model; there is room for four of IPv6."""
    for slot, (name, condition) in enumerate(CONDITIONS.items()):
        base = RULES_V4 + 0x20 * slot
        source = int(ipaddress.ip_address(golden.SOURCE_V4[name]))
        # The bit behind the prefix may be anything in a packet.
        words = [source, 0xFFFFFF80, 0, 0, golden.KEY, condition]
        for number, word in enumerate(words):
            assert await registers.write(base + 4 * number, word) == OKAY
        if name not in golden.SOURCE_V6:
            continue
        base = RULES_V6 + 0x80 * slot
        source = int(ipaddress.ip_address(golden.SOURCE_V6[name]))
        mask = (1 << 128) - (1 << 80)
        numbers = [source, mask, 0, 0]
        words = [(number >> (96 - 32 * word)) & 0xFFFFFFFF for number in numbers for word in range(4)]
        for number, word in enumerate([*words, golden.KEY, condition]):
            assert await registers.write(base + 4 * number, word) == OKAY


def check(cases: list[golden.Case], bench: Bench, out: Taker, host: Taker) -> None:
    """Compares what left and what was counted with what the golden model says."""
    left = [octets for octets, user in out.frames if not user]
    handed = list(host.frames)
    for number, (case, code) in enumerate(zip(cases, bench.events, strict=True)):
        at = f"frame {number}: {case.frame.hex()}"
        assert NAMES[code] == case.event, f"{NAMES[code]}, not {case.event}: {at}"
        if code in (EVENTS["passed"], EVENTS["stripped"]):
            octets = left.pop(0)
            assert octets == case.out, f"{octets.hex()}, not {case.out and case.out.hex()}: {at}"
        elif code >= EVENTS["host_tags"]:
            unchanged, user = handed.pop(0)
            assert (unchanged, user & 31) == (case.frame, code), at
    assert not left and not handed


@cocotb.test()  # type: ignore[untyped-decorator]
async def frames_come_out_as_the_golden_model_says(dut: Any) -> None:
    """All kinds of packets under all kinds of back-pressure."""
    window = int(os.environ["KAIDO_HDL_WINDOW"])
    bench, registers, out, host = await start(dut, SEED)
    await configure(registers)

    def cases() -> list[golden.Case]:
        return [golden.case(bench.rng, window) for _ in range(FRAMES // 5)]

    sent = await under_pressure(bench, cases, lambda sent: check(sent, bench, out, host))
    for name, code in EVENTS.items():
        wanted = sum(case.event == name for case in sent)
        assert await registers.read(COUNTERS + 4 * code) == (OKAY, wanted), name
    # Rule 0 of IPv4: packets and octets.
    met = [
        case
        for case in sent
        if case.event in ("stripped", "inner_malformed", "congestion_mark") and is_v4_pipe(case.frame)
    ]
    assert await registers.read(RULE_COUNTERS) == (OKAY, len(met))
    assert await registers.read(RULE_COUNTERS + 4) == (OKAY, sum(len(case.frame) for case in met))
    assert await registers.read(RULE_COUNTERS + 8) == (OKAY, 0)


def is_v4_pipe(frame: bytes) -> bool:
    """Whether the outer source is of rule 0."""
    at = 14
    while frame[at - 2 : at] == b"\x81\x00":
        at += 4
    return frame[at - 2 : at] == b"\x08\x00" and frame[at + 12 : at + 15] == bytes([192, 0, 2])


@cocotb.test()  # type: ignore[untyped-decorator]
async def reset_in_the_middle_of_a_packet_leaves_nothing(dut: Any) -> None:
    """No octet, no rule and no count is left of what there was."""
    window = int(os.environ["KAIDO_HDL_WINDOW"])
    bench, registers, out, host = await start(dut, SEED + 1)
    for _ in range(12):
        await configure(registers)
        out.waits, host.waits, bench.gaps = bench.rng.random() / 2, bench.rng.random() / 2, 0.2
        cases = [golden.case(bench.rng, window) for _ in range(6)]
        for case in cases[:-1]:
            await bench.send(case.frame)
        # The last is not sent to its end.
        width = len(dut.s_axis_tkeep)
        beats = bench.rng.randrange(1 + len(cases[-1].frame) // width)
        await bench.send(cases[-1].frame, beats=beats)
        await bench.idle(bench.rng.randrange(4))
        await bench.reset()
        out.waits = host.waits = 0.0
        # Without rules all passes, and the first beat is a first beat.
        plain = golden.other(bench.rng, window).frame
        await bench.send(plain)
        await bench.drain(1)
        assert out.frames == [(plain, 0)] and not host.frames
        assert bench.events == [EVENTS["passed"]]
        assert await registers.read(COUNTERS) == (OKAY, 1)
        assert await registers.read(COUNTERS + 4) == (OKAY, 0)
        bench.events.clear()
        out.frames.clear()


@cocotb.test()  # type: ignore[untyped-decorator]
async def frames_with_errors_and_too_long_ones_are_marked(dut: Any) -> None:
    """What cannot be taken back is marked at its end."""
    bench, registers, out, host = await start(dut, SEED + 2)
    await configure(registers)
    assert await registers.write(LENGTH_MAX, 200) == OKAY
    width = len(dut.s_axis_tkeep)
    expected = []
    for length in [60, 199, 200, 201, 240, 500]:
        frame = bytes(12) + b"\x88\xb5" + bench.rng.randbytes(length - 14)
        for error in (False, True):
            await bench.send(frame, error=error)
            event = "frame_error" if error else "too_big" if length > 200 else "passed"
            expected.append((event, frame))
    await bench.drain(len(expected))
    assert [NAMES[code] for code in bench.events] == [event for event, _ in expected]
    assert out.frames == [(frame, int(event != "passed")) for event, frame in expected]
    assert not host.frames
    assert width in (32, 64)


@cocotb.test()  # type: ignore[untyped-decorator]
async def octets_of_the_next_frame_do_not_leave(dut: Any) -> None:
    """What leaves of a frame that is cut off is full beats; behind its last octets there is nothing."""
    bench, registers, out, _host = await start(dut, SEED + 6)
    await configure(registers)
    width, window = len(dut.s_axis_tkeep), int(os.environ["KAIDO_HDL_WINDOW"])
    tunnel = Ether() / IP(src=golden.SOURCE_V4[golden.PIPE], dst="203.0.113.9") / GRE()
    whole = bytes(tunnel / IP(src="192.0.2.1", dst="203.0.113.1") / Raw(bytes(1000)))
    other = bytes(12) + b"\x88\xb5" + b"\xa5" * 300
    lengths = range(window + width, window + 4 * width, width)
    for length in lengths:
        await bench.send(whole[:length])
        await bench.send(other)
    await bench.drain(2 * len(lengths))
    marked = [octets for octets, user in out.frames if user]
    stripped = [whole[:14] + whole[38:length] + bytes(24) for length in lengths]
    assert marked == stripped
    assert [octets for octets, user in out.frames if not user] == [other] * len(lengths)


@cocotb.test()  # type: ignore[untyped-decorator]
async def the_bus_answers_errors_with_slverr(dut: Any) -> None:
    """A refused access changes nothing."""
    bench, registers, out, _host = await start(dut, SEED + 3)
    assert await registers.read(0x0) == (OKAY, 0x47524531)
    width = len(dut.s_axis_tkeep)
    assert await registers.read(0x4) == (OKAY, 4 << 16 | 16 << 8 | width)
    for address in (0x1, 0x2, 0x3, 0x14, 0x7C, 0x100, 0x200, 0x300, 0x400, 0x940, 0x80C, 0xFFC):
        assert await registers.read(address) == (SLVERR, 0), hex(address)
    for address in (
        0x0,
        0x4,
        0x9,
        0xA,
        0xB,
        0x14,
        0x80,
        0x201,
        0x202,
        0x203,
        0x218,
        0x401,
        0x448,
        0x600,
        0x800,
        0xFFC,
    ):
        assert await registers.write(address, 0) == SLVERR, hex(address)
    # Less than a word, and a value that means nothing.
    for strobe in range(15):
        assert await registers.write(LENGTH_MAX, 7, strobe) == SLVERR
    assert await registers.write(POLICY, 2) == SLVERR
    assert await registers.write(POLICY, 2 << 2) == SLVERR
    assert await registers.read(LENGTH_MAX) == (OKAY, (1 << 17) - 1)
    assert await registers.read(POLICY) == (OKAY, 3 << 2 | 1)
    # What is written is read, and nothing else has changed.
    assert await registers.write(LENGTH_MAX, 1530) == OKAY
    assert await registers.write(POLICY, 1 << 4 | 3 << 2 | 3) == OKAY
    assert await registers.write(UNMATCHED, 7 << 8 | 2 << 6) == OKAY
    assert await registers.read(LENGTH_MAX) == (OKAY, 1530)
    assert await registers.read(POLICY) == (OKAY, 1 << 4 | 3 << 2 | 3)
    assert await registers.read(UNMATCHED) == (OKAY, 7 << 8 | 2 << 6)
    # What is no tunnel packet is the host's now.
    frame = bytes(12) + b"\x88\xb5" + bytes(46)
    await bench.send(frame)
    await bench.drain(1)
    assert bench.events == [EVENTS["host_other"]] and not out.frames
