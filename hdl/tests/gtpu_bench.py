"""cocotb tests of gtpu_decap and gtpu_encap against the golden model of scapy."""

from __future__ import annotations

import os
from typing import Any

import cocotb
import gtpu_golden as golden
from gtpu_setup import (
    AT,
    BUCKET_BITS,
    EVENTS,
    KEY,
    NAMES,
    WAYS,
    configure,
    high_first,
    key_bits,
    mac_words,
    number,
    put,
    put_session,
)
from streams import OKAY, SLVERR, Bench, Taker, start, under_pressure

IS_DECAP = os.environ["KAIDO_HDL_CORE"] == "gtpu_decap"
FRAMES = int(os.environ.get("KAIDO_HDL_FRAMES", "400"))
SEED = int(os.environ.get("KAIDO_HDL_SEED", "1"))


def check(cases: list[golden.Case], bench: Bench, out: Taker, host: Taker) -> None:
    """Compares what left and what was counted with what the golden model says."""
    left = [octets for octets, user in out.frames if not user]
    handed = list(host.frames)
    entries: dict[tuple[int, bool], int] = {}
    for place, (case, code) in enumerate(zip(cases, bench.events, strict=True)):
        at = f"frame {place}, {case.about}: {case.frame.hex()}"
        assert NAMES[code] == case.event, f"{NAMES[code]}, not {case.event}: {at}"
        if code == EVENTS["forwarded"]:
            octets = left.pop(0)
            assert octets == case.out, f"{octets.hex()}, not {case.out and case.out.hex()}: {at}"
            entry, length = bench.details[place]
            assert length == case.octets, at
            # A session keeps its entry.
            assert entries.setdefault(case.key, entry) == entry, at
        elif code >= EVENTS["host_other"]:
            unchanged, user = handed.pop(0)
            assert (unchanged, user & 31) == (case.frame, code), at
    assert not left and not handed
    assert len(set(entries.values())) == len(entries), "sessions share an entry"


@cocotb.test()  # type: ignore[untyped-decorator]
async def frames_come_out_as_the_golden_model_says(dut: Any) -> None:
    """All kinds of packets under all kinds of back-pressure."""
    bench, registers, out, host = await start(dut, SEED)
    await configure(registers, IS_DECAP)

    def cases() -> list[golden.Case]:
        return [golden.case(bench.rng, IS_DECAP) for _ in range(FRAMES // 5)]

    sent = await under_pressure(bench, cases, lambda sent: check(sent, bench, out, host))
    for name, code in EVENTS.items():
        wanted = sum(case.event == name for case in sent)
        assert await registers.read(AT["events"] + 4 * code) == (OKAY, wanted), name


@cocotb.test()  # type: ignore[untyped-decorator]
async def reset_in_the_middle_of_a_packet_leaves_nothing(dut: Any) -> None:
    """No octet, no session, no setting and no count is left of what there was."""
    bench, registers, out, host = await start(dut, SEED + 1)
    for _ in range(5):
        await configure(registers, IS_DECAP)
        out.waits, host.waits, bench.gaps = bench.rng.random() / 2, bench.rng.random() / 2, 0.2
        cases = [golden.case(bench.rng, IS_DECAP) for _ in range(6)]
        for case in cases[:-1]:
            await bench.send(case.frame)
        # The last is not sent to its end.
        width = len(dut.s_axis_tkeep)
        beats = bench.rng.randrange(1 + len(cases[-1].frame) // width)
        await bench.send(cases[-1].frame, beats=beats)
        await bench.idle(bench.rng.randrange(16))
        await bench.reset()
        out.waits = host.waits = 0.0
        # Without settings all is the host's, and the first beat is a first beat.
        plain = next(one.frame for one in iter(lambda: golden.case(bench.rng, IS_DECAP), None) if one.out)
        await bench.send(plain)
        await bench.drain(1)
        assert host.frames == [(plain, EVENTS["host_other"])] and not out.frames
        # With an address and without sessions it finds none.
        await put(registers, AT["mac"], *mac_words(golden.OWN_MAC))
        await put(registers, AT["locals_v4"], number(golden.LOCAL_V4))
        await put(registers, AT["locals_v6"], *high_first(number(golden.LOCAL_V6)))
        await put(registers, AT["control"], 1 | 1 << 4 | 1 << 6)
        await bench.send(plain)
        await bench.drain(2)
        assert bench.events == [EVENTS["host_other"], EVENTS["host_miss"]]
        assert await registers.read(AT["events"] + 4 * EVENTS["host_other"]) == (OKAY, 1)
        assert await registers.read(AT["events"] + 4 * EVENTS["forwarded"]) == (OKAY, 0)
        bench.events.clear()
        out.frames.clear()
        host.frames.clear()


@cocotb.test()  # type: ignore[untyped-decorator]
async def frames_with_errors_are_marked(dut: Any) -> None:
    """What cannot be taken back is marked at its end; a session that changes holds from then on."""
    bench, registers, out, host = await start(dut, SEED + 2)
    await configure(registers, IS_DECAP)
    cases: list[golden.Case] = []
    while len(cases) < 12:
        case = golden.case(bench.rng, IS_DECAP)
        if case.event == "forwarded":
            cases.append(case)
    for case in cases:
        for error in (False, True):
            await bench.send(case.frame, error=error)
    await bench.drain(2 * len(cases))
    assert [NAMES[code] for code in bench.events] == ["forwarded", "frame_error"] * len(cases)
    assert [user for _, user in out.frames] == [0, 1] * len(cases)
    assert [octets for octets, user in out.frames if not user] == [case.out for case in cases]
    assert not host.frames
    # What a change does is seen by the next packet.
    session = golden.SESSIONS[0]
    bench.events.clear()
    await put_session(registers, session, IS_DECAP, golden.DROP)
    while True:
        case = golden.case(bench.rng, IS_DECAP)
        if case.event == "forwarded" and case.about.startswith("Session(number=1,"):
            break
    await bench.send(case.frame)
    await bench.drain(1)
    assert bench.events == [EVENTS["far_drop"]]


@cocotb.test()  # type: ignore[untyped-decorator]
async def the_bus_answers_errors_with_slverr(dut: Any) -> None:
    """A refused access changes nothing."""
    _bench, registers, _out, _host = await start(dut, SEED + 3)
    ident = 0x47544431 if IS_DECAP else 0x47544531
    assert await registers.read(0x0) == (OKAY, ident)
    width = len(dut.s_axis_tkeep)
    routes = 4 << 24 | 8 << 16 if IS_DECAP else 0
    assert await registers.read(0x4) == (OKAY, routes | 16 << 8 | width)
    for address in (
        0x1,
        0x2,
        0x3,
        0x18,
        0x20,
        0x40,
        0x7C,
        0x100,
        0x200,
        0x280,
        0x300,
        0x700,
        0x8F0,
        0x900,
        0xFFC,
    ):
        assert (await registers.read(address))[0] == SLVERR, hex(address)
    for address in (
        0x0,
        0x4,
        0x9,
        0xA,
        0x18,
        0x28,
        0x3C,
        0x60,
        0x80,
        0x101,
        0x300,
        0x7FC,
        0x800,
        0x8F0,
        0x900,
    ):
        assert await registers.write(address, 0) == SLVERR, hex(address)
    if not IS_DECAP:
        assert await registers.write(AT["routes_v4"], 0) == SLVERR
        assert await registers.write(AT["routes_v6"], 0) == SLVERR
    # Less than a word, and a value that means nothing.
    for strobe in range(15):
        assert await registers.write(AT["packet_max"], 7, strobe) == SLVERR
    for name, value in [("packet_max", 1 << 17), ("control", 2), ("control", 1 << 8), ("mac", 1 << 16)]:
        assert await registers.write(AT[name], value) == SLVERR
    assert await registers.write(AT["next_hops"], 1 << 16) == SLVERR
    assert await registers.read(AT["packet_max"]) == (OKAY, (1 << 17) - 1)
    assert await registers.read(AT["control"]) == (OKAY, 1)
    assert await registers.read(AT["mac"]) == (OKAY, 0)
    # What is written is read, and nothing else has changed.
    assert await registers.write(AT["packet_max"], 1530) == OKAY
    assert await registers.write(AT["control"], 0xF0) == OKAY
    assert await registers.write(AT["mac"], 0x0203) == OKAY
    assert await registers.write(AT["mac"] + 4, 0x0405_0607) == OKAY
    assert await registers.read(AT["packet_max"]) == (OKAY, 1530)
    assert await registers.read(AT["control"]) == (OKAY, 0xF0)
    assert await registers.read(AT["mac"]) == (OKAY, 0x0203)
    assert await registers.read(AT["mac"] + 4) == (OKAY, 0x0405_0607)
    # The table behind the same bus.
    assert await registers.read(AT["table"]) == (OKAY, 0x4B454D31)
    assert await registers.read(AT["table"] + 4) == (
        OKAY,
        BUCKET_BITS << 24 | WAYS << 16 | key_bits(IS_DECAP),
    )
    assert await registers.write(KEY, 0x1234_5678) == OKAY
    assert await registers.read(KEY) == (OKAY, 0x1234_5678)
    assert await registers.read(AT["packet_max"]) == (OKAY, 1530)
