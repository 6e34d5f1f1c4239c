"""cocotb tests of session_usage against a model that counts."""

from __future__ import annotations

import os
import random
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge
from streams import OKAY, SLVERR, Registers

MAP = tomllib.loads((Path(__file__).resolve().parent.parent / "regs.toml").read_text())["session_usage"]
AT: dict[str, int] = {one["name"]: one["address"] for one in MAP["register"]}
IDENTIFIER, PARAMETERS, TIMEOUT, NOW = (AT[name] for name in ("identifier", "parameters", "timeout", "now"))
BEGIN, END, SELECT, IDLE = (AT[name] for name in ("begin", "end", "select", "idle"))
PACKETS, OCTETS, LAST, FLAGS = (AT[name] for name in ("packets", "octets", "last", "flags"))
ARMED, TOLD, IS_READ, BEGINS = 1, 2, 4, 8
ENTRIES = 1 << int(os.environ["KAIDO_HDL_ID_W"])
TICK = int(os.environ["KAIDO_HDL_TICK"])
#: Ticks in which a session begins, from the write of its register on.
BEGIN_TICKS = 200
SEED = int(os.environ.get("KAIDO_HDL_SEED", "1"))


@dataclass
class Session:
    """What a session has carried since it began."""

    packets: int = 0
    octets: int = 0
    last: int = 0


class Rig:
    """The part, with packets that come while registers are used."""

    def __init__(self, dut: Any, seed: int) -> None:
        """Before reset."""
        self.dut, self.rng = dut, random.Random(seed)
        self.registers = Registers(dut, self.rng)
        self.sessions: dict[int, Session] = {}
        #: Entries that packets come for, and how often.
        self.busy: list[int] = []
        self.share = 0.5

    async def reset(self) -> None:
        """Reset, and the clocks in which memory is cleared."""
        dut = self.dut
        dut.rst.value, dut.packet_valid.value = 1, 0
        for name in ("awvalid", "wvalid", "arvalid"):
            getattr(dut, f"s_axil_{name}").value = 0
        dut.s_axil_bready.value = dut.s_axil_rready.value = 1
        for _ in range(3):
            await RisingEdge(dut.clk)
        dut.rst.value = 0
        cocotb.start_soon(self.packets())

    async def packets(self) -> None:
        """A packet in some clocks, often of the entry of the one before."""
        entry = 0
        while True:
            comes = bool(self.busy) and self.rng.random() < self.share
            self.dut.packet_valid.value = int(comes)
            if comes:
                if entry not in self.busy or self.rng.random() < 0.5:
                    entry = self.rng.choice(self.busy)
                octets = self.rng.choice([0, 1, 64, 1500, self.rng.getrandbits(17)])
                self.dut.packet_entry.value, self.dut.packet_octets.value = entry, octets
            await FallingEdge(self.dut.clk)
            if comes:
                session = self.sessions[entry]
                session.packets += 1
                session.octets += octets
                session.last = int(self.dut.now.value)
            await RisingEdge(self.dut.clk)

    async def get(self, at: int) -> int:
        """A register's value."""
        answer, value = await self.registers.read(at)
        assert answer == OKAY, hex(at)
        return value

    async def put(self, at: int, value: int) -> None:
        """Writes a register."""
        assert await self.registers.write(at, value) == OKAY, hex(at)

    async def begin(self, entry: int) -> None:
        """A session begins: `put` answers before, where packets come in each clock."""
        before = int(self.dut.now.value)
        await self.put(BEGIN, entry)
        for _ in range(100):
            if not await self.get(FLAGS) & BEGINS:
                break
        else:
            raise AssertionError("the session does not begin")
        self.sessions[entry] = Session(last=before)

    async def ready(self) -> None:
        """Waits until a session may begin."""
        for _ in range(2 * ENTRIES):
            if await self.registers.write(BEGIN, 0) == OKAY:
                await self.put(END, 0)
                return
        raise AssertionError("memory is not cleared")

    async def read(self, entry: int) -> tuple[int, int, int, int]:
        """Packets, octets, time of the last packet, flags."""
        await self.put(SELECT, entry)
        for _ in range(2 * ENTRIES):
            flags = await self.get(FLAGS)
            if flags & IS_READ:
                break
        else:
            raise AssertionError("the entry is not read")
        packets = await self.get(PACKETS) | await self.get(PACKETS + 4) << 32
        octets = await self.get(OCTETS) | await self.get(OCTETS + 4) << 32
        return packets, octets, await self.get(LAST), flags & (ARMED | TOLD)

    async def check(self, entry: int) -> None:
        """What is read is what has come, between the packets before and after."""
        before = self.sessions[entry]
        least = before.packets, before.octets
        packets, octets, last, _ = await self.read(entry)
        after = self.sessions[entry]
        assert least[0] <= packets <= after.packets, (entry, least, packets, after)
        assert least[1] <= octets <= after.octets, (entry, least, octets, after)
        assert last <= after.last + (0 if after.packets else BEGIN_TICKS), (entry, last, after)

    async def quiet(self, entry: int) -> None:
        """The same, exactly, of an entry without packets."""
        session = self.sessions[entry]
        packets, octets, last, _ = await self.read(entry)
        assert (packets, octets) == (session.packets, session.octets), (entry, session)
        assert last == session.last if session.packets else session.last <= last <= session.last + BEGIN_TICKS

    async def idle(self) -> list[int]:
        """The entries that are told to be idle now."""
        told: list[int] = []
        while len(told) <= ENTRIES:
            value = await self.get(IDLE)
            if not value >> 31:
                return told
            told.append(value & 0x7FFFFFFF)
        raise AssertionError("more are told to be idle than there are")

    async def wait(self, ticks: int) -> None:
        """Time passes."""
        for _ in range(ticks * TICK):
            await RisingEdge(self.dut.clk)


async def start(dut: Any) -> Rig:
    """A part after reset."""
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    rig = Rig(dut, SEED)
    await rig.reset()
    await rig.ready()
    return rig


@cocotb.test()
async def sessions_are_counted_apart(dut: Any) -> None:
    """Under packets in each clock, while sessions begin, end and are read; a next session begins at zero."""
    rig = await start(dut)
    for share in (0.2, 0.7, 0.95):
        rig.share = share
        for _ in range(12):
            entry = rig.rng.randrange(ENTRIES)
            if entry in rig.busy:
                rig.busy.remove(entry)
                await rig.wait(2)
                await rig.quiet(entry)
                await rig.put(END, entry)
            else:
                await rig.begin(entry)
                await rig.quiet(entry)
                rig.busy.append(entry)
            for known in rig.rng.sample(rig.busy, min(3, len(rig.busy))):
                await rig.check(known)
    busy, rig.busy = rig.busy, []
    await rig.wait(2)
    for entry in busy:
        await rig.quiet(entry)
    assert sum(rig.sessions[entry].packets for entry in busy) > 1000


@cocotb.test()
async def who_is_idle_is_told_once(dut: Any) -> None:
    """After the timeout and not before; again only after a packet; never of a session that has ended."""
    rig = await start(dut)
    timeout = 40
    round_ticks = ENTRIES // TICK + 2
    idle, ended = [1, 2, ENTRIES - 1], 5
    for entry in (*idle, 3, 4, ended):
        await rig.begin(entry)
    rig.busy = [3, 4]
    await rig.put(END, ended)
    rig.share = 0.9
    await rig.wait(timeout + 5)
    assert await rig.idle() == [], "without a timeout nobody is"
    for entry in (*idle, ended):
        rig.busy.append(entry)
    await rig.wait(8)
    rig.busy = [3, 4]
    await rig.wait(1)
    quiet_since = max(rig.sessions[entry].last for entry in idle)
    await rig.put(TIMEOUT, timeout)
    told: list[int] = []
    while not int(dut.irq.value):
        await RisingEdge(dut.clk)
    first = int(dut.now.value)
    assert first >= min(rig.sessions[entry].last for entry in idle) + timeout
    while int(dut.now.value) <= quiet_since + timeout + round_ticks:
        await RisingEdge(dut.clk)
    told += await rig.idle()
    assert sorted(told) == sorted(idle), told
    await rig.wait(2 * timeout)
    assert await rig.idle() == [], "told twice"
    _, _, _, flags = await rig.read(idle[0])
    assert flags == ARMED | TOLD
    rig.busy.append(idle[0])
    await rig.wait(8)
    rig.busy.remove(idle[0])
    _, _, _, flags = await rig.read(idle[0])
    assert flags == ARMED
    await rig.wait(timeout + round_ticks)
    assert await rig.idle() == [idle[0]]


@cocotb.test()
async def nobody_is_idle_before_the_timeout(dut: Any) -> None:
    """Not a tick before: one session at a time, wherever the scan is when its timeout comes."""
    rig = await start(dut)
    timeout = 40
    await rig.put(TIMEOUT, timeout)
    for entry in rig.rng.sample(range(ENTRIES), ENTRIES):
        await rig.begin(entry)
        assert not int(dut.irq.value)
        # The scan's clock is the one before the interrupt.
        scanned = 0
        while not int(dut.irq.value):
            scanned = int(dut.now.value)
            await RisingEdge(dut.clk)
        _, _, last, _ = await rig.read(entry)
        assert scanned >= last + timeout, (entry, scanned, last)
        assert scanned <= last + timeout + ENTRIES // TICK + 2, (entry, scanned, last)
        assert await rig.idle() == [entry]
        await rig.put(END, entry)


@cocotb.test()
async def more_are_idle_than_there_is_room_for(dut: Any) -> None:
    """They are told as those before are read: none is lost, none comes twice."""
    rig = await start(dut)
    for entry in range(ENTRIES):
        await rig.begin(entry)
    await rig.put(TIMEOUT, 3)
    await rig.wait(8 + ENTRIES // TICK)
    told: list[int] = []
    for _ in range(ENTRIES):
        told += await rig.idle()
        if len(told) == ENTRIES:
            break
    assert sorted(told) == list(range(ENTRIES))
    await rig.wait(20)
    assert await rig.idle() == []


@cocotb.test()
async def what_means_nothing_is_refused(dut: Any) -> None:
    """Other registers, entries that there are not, timeouts that are too long; nothing changes."""
    rig = await start(dut)
    assert await rig.get(IDENTIFIER) == 0x55534731
    assert 1 << await rig.get(PARAMETERS) == ENTRIES
    await rig.put(TIMEOUT, 7)
    for at, value in (
        (BEGIN, ENTRIES),
        (END, ENTRIES),
        (SELECT, 1 << 31),
        (TIMEOUT, 1 << 23),
        (NOW, 1),
        (0x40, 0),
    ):
        assert await rig.registers.write(at, value) == SLVERR, hex(at)
    for at in (0x38, 0x100, 0x22):
        assert (await rig.registers.read(at))[0] == SLVERR, hex(at)
    assert await rig.registers.write(TIMEOUT, 9, strobe=0x3) == SLVERR
    assert await rig.get(TIMEOUT) == 7
