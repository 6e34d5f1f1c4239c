"""cocotb tests of axis_frame_fifo against a model of its room: frames leave whole, or not at all."""

from __future__ import annotations

import os
import random
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge
from streams import Taker

FRAMES = int(os.environ.get("KAIDO_HDL_FRAMES", "400"))
SEED = int(os.environ.get("KAIDO_HDL_SEED", "1"))
WIDTH = 32
ROOM = 1 << int(os.environ["KAIDO_HDL_BEATS_W"])


class Rig:
    """The buffer, and how many beats are in it."""

    def __init__(self, dut: Any, seed: int) -> None:
        """Before reset."""
        self.dut, self.rng = dut, random.Random(seed)
        self.out = Taker(dut, "m_axis")
        self.expected: list[tuple[bytes, int]] = []
        #: Beats in the buffer, and those of them whose frame has not ended.
        self.held = self.begun = self.dropped = 0
        self.lost = False

    async def reset(self) -> None:
        """Three clocks of reset."""
        self.dut.rst.value, self.dut.s_axis_tvalid.value = 1, 0
        for _ in range(3):
            await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0
        self.out.clear()
        self.expected.clear()
        self.held = self.begun = 0
        self.lost = False

    async def clock(self, part: bytes = b"", last: bool = False, user: int = 0) -> bool:
        """A clock in which a beat comes or none; whether a frame has ended that was taken."""
        dut = self.dut
        dut.s_axis_tvalid.value = int(bool(part))
        dut.s_axis_tdata.value = int.from_bytes(part + self.rng.randbytes(WIDTH - len(part)), "little")
        dut.s_axis_tkeep.value = (1 << len(part)) - 1
        dut.s_axis_tlast.value, dut.s_axis_tuser.value = int(last), user
        self.out.drive(self.rng)
        await FallingEdge(dut.clk)
        self.out.watch()
        told = int(dut.frame_taken.value), int(dut.frame_dropped.value)
        leaves = int(dut.m_axis_tvalid.value) and int(dut.m_axis_tready.value)
        await RisingEdge(dut.clk)
        self.lost = self.lost or (bool(part) and self.held == ROOM)
        taken, dropped = last and not self.lost, last and self.lost
        assert told == (taken, dropped), f"{self.held} beats are in it"
        if self.lost:
            self.held -= self.begun
            self.begun = 0
        elif part:
            self.held += 1
            self.begun += 1
        self.held -= leaves
        if last:
            self.begun, self.lost = 0, False
        return taken

    async def send(self, frame: bytes, user: int, gaps: float) -> None:
        """A frame, with gaps in it."""
        for at in range(0, len(frame), WIDTH):
            while self.rng.random() < gaps:
                await self.clock()
            last = at + WIDTH >= len(frame)
            taken = await self.clock(frame[at : at + WIDTH], last, user)
        if taken:
            self.expected.append((frame, user))
        else:
            self.dropped += 1

    async def drain(self) -> None:
        """What is in it leaves, a beat a clock once it has begun."""
        self.out.waits = 0.0
        beats = self.held
        for _ in range(beats + 2):
            await self.clock()
        assert self.out.frames == self.expected
        assert self.held == 0 and not self.out.octets
        self.out.frames.clear()
        self.expected.clear()

    def frame(self, beats: int) -> bytes:
        """Octets of so many beats."""
        return self.rng.randbytes(WIDTH * beats - self.rng.choice([0, 0, 1, WIDTH - 1]))


@cocotb.test()
async def frames_leave_whole_or_not_at_all(dut: Any) -> None:
    """Under all kinds of back-pressure, and resets between; some frames are longer than the buffer."""
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    rig = Rig(dut, SEED)
    for gaps, waits in [(0.0, 0.0), (0.0, 0.3), (0.2, 0.5), (0.0, 0.8), (0.5, 0.9), (0.7, 0.1)]:
        await rig.reset()
        rig.out.waits = waits
        for _ in range(FRAMES // 6):
            beats = rig.rng.choice([1, 1, 2, 3, ROOM // 2, ROOM - 1, ROOM, ROOM + 1, 2 * ROOM + 1])
            await rig.send(rig.frame(beats), rig.rng.randrange(2), gaps)
        await rig.drain()
    assert rig.dropped > FRAMES // 20


@cocotb.test()
async def a_full_buffer_is_filled_to_the_last_beat(dut: Any) -> None:
    """Nothing is taken meanwhile: each beat that there is room for is kept, all frames behind are dropped."""
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    rig = Rig(dut, SEED + 1)
    await rig.reset()
    for sizes in ([ROOM], [1] * ROOM, [ROOM - 1, 2, 1, 1], [2, ROOM, 1, ROOM - 3]):
        rig.out.waits = 1.0
        for beats in sizes:
            await rig.send(rig.frame(beats), 0, 0.0)
        before = rig.dropped
        for beats in (1, 2, ROOM + 1):
            await rig.send(rig.frame(beats), 1, 0.2)
        assert rig.held == ROOM and rig.dropped == before + 3
        await rig.drain()
