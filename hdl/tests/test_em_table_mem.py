"""Bench of `em_table_mem`: a memory model with random latency and back-pressure, a dict as model.

Prints lookups a clock over the memory's latency and the lookups in flight.
"""

from __future__ import annotations

import heapq
import os
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly
from em_hash import bucket
from sim import run, sizes

SLOT_W = int(os.environ.get("KAIDO_HDL_SLOT_W", "6"))
KEY_W, VAL_W, ADDR_W, LINE_N = 32, 64, 6, 4
ENTRY_W = 1 + KEY_W + VAL_W
#: Keys and values of a line, or places without any.
Line = list[tuple[int, int] | None]


class Memory:
    """Two halves of lines; a line is a list of (key, value) or None."""

    def __init__(self, dut: Any, seed: int) -> None:
        """Without entries."""
        self.dut, self.rng = dut, random.Random(seed)
        self.lines: list[list[Line]] = [[[None] * LINE_N for _ in range(1 << ADDR_W)] for _ in range(2)]
        self.rows = [[self.rng.getrandbits(ADDR_W) for _ in range(KEY_W)] for _ in range(2)]
        self.places: dict[tuple[int, int], int] = {}
        self.latency = (20, 20)
        self.stall = 0.0
        self.now = 0
        self.want: Callable[[], int | None] = lambda: None
        self.errors: list[str] = []
        self.misses = self.answers = 0
        self.expect: deque[tuple[int, set[int]]] = deque()  # (key, allowed values)
        self.values: dict[int, set[int]] = {}

    def place(self, half: int, key: int) -> int:
        """The line of a key in a half; it is asked for in each clock, of few keys."""
        if (half, key) not in self.places:
            self.places[half, key] = bucket(self.rows[half], key)
        return self.places[half, key]

    def word(self, half: int, addr: int) -> int:
        """The bits of a line."""
        out = 0
        for i, entry in enumerate(self.lines[half][addr]):
            if entry:
                out |= (1 << (KEY_W + VAL_W) | entry[0] << VAL_W | entry[1]) << (i * ENTRY_W)
        return out

    def find(self, key: int) -> tuple[int, Line, int]:
        """Where a key is that is there."""
        for half in (0, 1):
            line = self.lines[half][self.place(half, key)]
            for i, entry in enumerate(line):
                if entry and entry[0] == key:
                    return half, line, i
        raise KeyError(key)

    def add(self, key: int, value: int) -> bool:
        """Puts an entry where there is room; whether there was."""
        for half in self.rng.sample([0, 1], 2):
            line = self.lines[half][self.place(half, key)]
            if None in line:
                line[line.index(None)] = (key, value)
                self.values[key] = {value}
                return True
        return False

    async def run(self) -> None:
        """One turn a clock."""
        dut = self.dut
        due: list[list[tuple[int, int, int, int]]] = [[], []]  # when, serial number, tag, line
        serial = 0
        while True:
            await FallingEdge(dut.clk)
            self.now += 1
            if dut.res_valid.value:
                key, allowed = self.expect.popleft()
                self.answers += 1
                got = int(dut.res_value.value) if dut.res_hit.value else None
                if got is None and allowed:
                    self.misses += 1
                elif (got is None or got not in allowed) and (got is not None or allowed):
                    self.errors.append(f"{self.now}: key {key:x}: {got}, allowed {allowed}")
            want = self.want()
            dut.lk_valid.value = int(want is not None)
            if want is not None:
                dut.lk_key.value = want
                dut.lk_line.value = self.place(0, want) | self.place(1, want) << ADDR_W
            dut.rd_ready.value = sum((self.rng.random() >= self.stall) << c for c in (0, 1))
            valid = tags = data = 0
            for c in (0, 1):
                if due[c] and due[c][0][0] <= self.now:
                    _, _, tag, addr = heapq.heappop(due[c])
                    valid |= 1 << c
                    tags |= tag << (SLOT_W * c)
                    # The line is read when it leaves the memory.
                    data |= self.word(c, addr) << (LINE_N * ENTRY_W * c)
            dut.line_valid.value, dut.line_tag.value, dut.line_data.value = valid, tags, data
            await ReadOnly()
            taken = want is not None and dut.lk_ready.value
            rd = int(dut.rd_valid.value)
            assert rd == (3 if taken else 0)
            if want is not None and taken:
                self.expect.append((want, self.values.get(want, set())))
                for c in (0, 1):
                    serial += 1
                    tag = int(dut.rd_tag.value) >> (SLOT_W * c) & ((1 << SLOT_W) - 1)
                    addr = int(dut.rd_addr.value) >> (ADDR_W * c) & ((1 << ADDR_W) - 1)
                    heapq.heappush(due[c], (self.now + self.rng.randint(*self.latency), serial, tag, addr))


async def start(dut: Any) -> Memory:
    """The part after reset."""
    m = Memory(dut, int(os.environ.get("KAIDO_HDL_SEED", "1")))
    for name in ("lk_valid", "lk_key", "lk_line", "rd_ready", "line_valid", "line_tag", "line_data"):
        getattr(dut, name).value = 0
    dut.rst.value = 1
    cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
    for _ in range(3):
        await FallingEdge(dut.clk)
    dut.rst.value = 0
    cocotb.start_soon(m.run())
    return m


@cocotb.test()
async def answers(dut: Any) -> None:
    """Random latency and back-pressure: order and values are right; updates are seen old or new."""
    m = await start(dut)
    keys = [m.rng.getrandbits(KEY_W) for _ in range(300)]
    held = [k for k in keys if m.add(k, m.rng.getrandbits(VAL_W))]
    m.latency, m.stall = (10, 90), 0.1
    m.want = lambda: m.rng.choice(keys) if m.rng.random() < 0.9 else None
    for i in range(4000):
        await FallingEdge(dut.clk)
        if i % 20 == 0:
            key = m.rng.choice(held)
            _, line, at = m.find(key)
            new = m.rng.getrandbits(VAL_W)
            m.values[key].add(new)
            line[at] = (key, new)
    assert m.answers > 500
    assert not m.misses, f"{m.misses} misses"
    assert not m.errors, m.errors[:3]


@cocotb.test()
async def moves(dut: Any) -> None:
    """Moves between the halves: no miss with the wait for the lookups in flight, misses without."""
    m = await start(dut)
    held: list[int] = []
    while len(held) < 180:
        key = m.rng.getrandbits(KEY_W)
        if m.add(key, m.rng.getrandbits(VAL_W)):
            held.append(key)
    m.latency = (10, 90)
    count = {}
    for wait in (True, False):
        target = [held[0]]
        m.want = lambda: m.rng.choice(target)
        before, looked = m.misses, m.answers
        moved = 0
        for _ in range(150):
            key = m.rng.choice(held)
            target[0] = key
            for _ in range(30):
                await FallingEdge(dut.clk)
            half, line, at = m.find(key)
            other = m.lines[1 - half][m.place(1 - half, key)]
            if None not in other:
                continue
            other[other.index(None)] = line[at]
            ticket = int(dut.accepted.value) + 1  # one may be accepted at the next edge
            if wait:
                while int(dut.answered.value) < ticket:
                    await FallingEdge(dut.clk)
            line[at] = None
            moved += 1
        m.want = lambda: None
        for _ in range(200):
            await FallingEdge(dut.clk)
        count[wait] = m.misses - before
        dut._log.info(f"{moved} moves, wait {wait}: {count[wait]} misses of {m.answers - looked} lookups")
    assert count[True] == 0 and count[False] > 0
    assert not m.errors, m.errors[:3]


@cocotb.test()
async def rate(dut: Any) -> None:
    """Lookups a clock over latency."""
    m = await start(dut)
    keys = [m.rng.getrandbits(KEY_W) for _ in range(200)]
    for key in keys:
        m.add(key, m.rng.getrandbits(VAL_W))
    m.want = lambda: m.rng.choice(keys)
    for latency in (25, 50, 100, 200, 400):
        for spread in (0, 0.5):
            m.latency = (round(latency * (1 - spread)), round(latency * (1 + spread)))
            for _ in range(2 * latency + 100):
                await FallingEdge(dut.clk)
            begin = m.answers
            for _ in range(2000):
                await FallingEdge(dut.clk)
            got = (m.answers - begin) / 2000
            bound = min(1.0, (1 << SLOT_W) / (latency + 2))
            dut._log.info(
                f"in flight {1 << SLOT_W}, latency {m.latency[0]}..{m.latency[1]} clocks: "
                f"{got:.3f} lookups a clock (bound {bound:.3f})"
            )
            if not spread:
                assert got > 0.95 * bound - 0.01
    assert not m.errors and not m.misses


@pytest.mark.parametrize("slot_w", sizes(6, 4, 8))
def test_em_table_mem(slot_w: int) -> None:
    """All tests of this file with so many lookups in flight; in the soak fewer and more too."""
    run(
        "em_table_mem",
        ["em_table_mem.sv"],
        "test_em_table_mem",
        {"ADDR_W": ADDR_W, "SLOT_W": slot_w},
        build_args=["--x-initial", "unique"],
        environment={"KAIDO_HDL_SLOT_W": str(slot_w)},
    )
