"""cocotb tests of axis_skid: every beat comes out once, in order, as it went in, and none waits in vain."""

from __future__ import annotations

import os
import random
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge
from streams import Taker

BEATS = int(os.environ.get("KAIDO_HDL_FRAMES", "600"))
SEED = int(os.environ.get("KAIDO_HDL_SEED", "1"))
# Clocks that a beat takes.
LATENCY = int(os.environ.get("KAIDO_HDL_SKID_CLOCKS", "0"))


async def run(dut: Any, rng: random.Random, gaps: float, waits: float) -> tuple[int, int]:
    """Sends beats, compares what comes out; clocks that it took, and the most between ready and ready."""
    out = Taker(dut, "m_axis", waits)
    beats = [(rng.randbytes(32), rng.random() < 0.3, rng.randrange(2)) for _ in range(BEATS)]
    beats[-1] = (beats[-1][0], True, 0)
    expected: list[tuple[bytes, int]] = []
    octets = b""
    for data, last, user in beats:
        octets += data
        if last:
            expected.append((octets, user))
            octets = b""
    at, offered, clocks = 0, False, 0
    while len(out.frames) < len(expected):
        offered = at < len(beats) and (offered or rng.random() >= gaps)
        dut.s_axis_tvalid.value = int(offered)
        if offered:
            data, last, user = beats[at]
            dut.s_axis_tdata.value = int.from_bytes(data, "little")
            dut.s_axis_tkeep.value = (1 << 32) - 1
            dut.s_axis_tlast.value, dut.s_axis_tuser.value = int(last), user
        out.drive(rng)
        # Ready depends on registers alone: it is the same before and behind the taker's.
        await FallingEdge(dut.clk)
        before = int(dut.s_axis_tready.value)
        out.watch()
        if offered and before:
            at, offered = at + 1, False
        await RisingEdge(dut.clk)
        clocks += 1
        assert clocks < 100 * BEATS, "stuck"
    dut.s_axis_tvalid.value = 0
    assert out.frames == expected
    return clocks, len(beats)


async def reset(dut: Any) -> None:
    """Three clocks of reset, in which nothing is taken."""
    dut.rst.value = 1
    dut.s_axis_tvalid.value = 0
    dut.m_axis_tready.value = 0
    for _ in range(3):
        await RisingEdge(dut.clk)
    await FallingEdge(dut.clk)
    assert not int(dut.s_axis_tready.value)
    dut.rst.value = 0
    for _ in range(2):
        await RisingEdge(dut.clk)


@cocotb.test()  # type: ignore[untyped-decorator]
async def every_beat_comes_out_once(dut: Any) -> None:
    """All kinds of back-pressure, and none: then a beat a clock."""
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    rng = random.Random(SEED)
    for gaps, waits in [(0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (0.3, 0.3), (0.1, 0.8), (0.8, 0.1)]:
        await reset(dut)
        clocks, beats = await run(dut, rng, gaps, waits)
        if gaps == waits == 0.0:
            assert clocks == beats + LATENCY, f"{clocks} clocks for {beats} beats"


@cocotb.test()  # type: ignore[untyped-decorator]
async def ready_does_not_follow_the_takers_in_a_clock(dut: Any) -> None:
    """The reason that it is there: between the edges ready stays, whatever the taker does."""
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    rng = random.Random(SEED)
    await reset(dut)
    for _ in range(200):
        dut.s_axis_tvalid.value = 1
        dut.m_axis_tready.value = 0
        await FallingEdge(dut.clk)
        before = int(dut.s_axis_tready.value)
        dut.m_axis_tready.value = int(rng.random() < 0.5)
        await RisingEdge(dut.clk)
        assert int(dut.s_axis_tready.value) == before
