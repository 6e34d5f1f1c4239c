"""cocotb tests of axis_merge: the frames of each source come out whole, once, in order, each in turn."""

from __future__ import annotations

import os
import random
from collections import deque
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge
from streams import Taker

SOURCES = int(os.environ["KAIDO_HDL_SOURCES"])
FRAMES = int(os.environ.get("KAIDO_HDL_FRAMES", "150"))
SEED = int(os.environ.get("KAIDO_HDL_SEED", "1"))
WIDTH = 32

Beat = tuple[bytes, bool, int]


def beats_of(frame: bytes, user: int) -> list[Beat]:
    """The beats of a frame; tuser is asked for with the last."""
    ends = range(WIDTH, len(frame) + WIDTH, WIDTH)
    return [(frame[end - WIDTH : end], end >= len(frame), user) for end in ends]


async def run(dut: Any, rng: random.Random, gaps: float, waits: float, frames: int) -> list[int]:
    """Sends frames of all sources and checks what comes out; whose they were, in turn."""
    out = Taker(dut, "m_axis", waits)
    sent: list[deque[tuple[bytes, int]]] = []
    beats: list[deque[Beat]] = []
    for source in range(SOURCES):
        made = [
            (bytes([source]) + rng.randbytes(rng.choice([0, 31, 32, rng.randrange(200)])), rng.randrange(2))
            for _ in range(frames)
        ]
        sent.append(deque(made))
        beats.append(deque(beat for frame, user in made for beat in beats_of(frame, user)))
    count = sum(map(len, beats))
    offered = [False] * SOURCES
    turns: list[int] = []
    clocks = 0
    while any(beats):
        data = keep = last = user = 0
        for source, queue in enumerate(beats):
            offered[source] = bool(queue) and (offered[source] or rng.random() >= gaps)
            if offered[source]:
                part, ends, marked = queue[0]
                data |= int.from_bytes(part, "little") << 8 * WIDTH * source
                keep |= ((1 << len(part)) - 1) << WIDTH * source
                last |= int(ends) << source
                user |= marked << source
        dut.s_axis_tdata.value, dut.s_axis_tkeep.value = data, keep
        dut.s_axis_tlast.value, dut.s_axis_tuser.value = last, user
        dut.s_axis_tvalid.value = sum(offer << source for source, offer in enumerate(offered))
        out.drive(rng)
        await FallingEdge(dut.clk)
        source, ready = int(dut.source.value), int(dut.s_axis_tready.value)
        out.watch()
        for at, offer in enumerate(offered):
            if offer and ready >> at & 1:
                assert at == source
                beats[at].popleft()
                offered[at] = False
        if out.frames:
            frame = out.frames.pop()
            assert frame == sent[source].popleft(), f"of source {source}"
            turns.append(source)
        await RisingEdge(dut.clk)
        clocks += 1
        assert clocks < 100 * frames * SOURCES, "stuck"
    dut.s_axis_tvalid.value = 0
    assert not any(sent) and not out.octets
    if gaps == waits == 0.0:
        assert clocks == count, f"{clocks} clocks for {count} beats"
    return turns


@cocotb.test()
async def frames_come_out_whole(dut: Any) -> None:
    """Under all kinds of back-pressure; without any a beat comes out each clock, of each source in turn."""
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    rng = random.Random(SEED)
    dut.s_axis_tvalid.value = 0
    for gaps, waits in [(0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (0.3, 0.3), (0.1, 0.8), (0.9, 0.1)]:
        dut.rst.value = 1
        for _ in range(3):
            await RisingEdge(dut.clk)
        dut.rst.value = 0
        turns = await run(dut, rng, gaps, waits, FRAMES)
        if not gaps:
            rounds = [sorted(turns[at : at + SOURCES]) for at in range(0, len(turns), SOURCES)]
            assert rounds == [list(range(SOURCES))] * FRAMES
