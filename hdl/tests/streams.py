"""The streams and registers of a core, driven and watched a clock at a time.

Inputs change behind the rising edge. Outputs are read at the falling edge, when they have settled: what is
valid and ready there is taken at the next rising edge.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge


class ProtocolError(AssertionError):
    """A stream broke a rule of AXI4-Stream."""


@dataclass
class Taker:
    """A stream that leaves the core."""

    dut: Any
    prefix: str
    waits: float = 0.0
    frames: list[tuple[bytes, int]] = field(default_factory=list)
    octets: bytes = b""
    shown: tuple[int, ...] | None = None
    #: As driven last.
    is_ready: bool | None = None

    def __post_init__(self) -> None:
        """Looks the signals up once: that takes longer than to read them."""
        of = [getattr(self.dut, f"{self.prefix}_{name}") for name in ("tready", "tvalid", "tkeep")]
        self._ready, self._valid, self._keep = of
        self._beat = [
            getattr(self.dut, f"{self.prefix}_{name}") for name in ("tdata", "tkeep", "tlast", "tuser")
        ]

    def drive(self, rng: random.Random) -> None:
        """Is ready or not in this clock."""
        is_ready = rng.random() >= self.waits
        if is_ready != self.is_ready:
            self._ready.value = int(is_ready)
            self.is_ready = is_ready

    def watch(self) -> None:
        """Takes what is valid and ready, and checks the stream."""
        valid, ready = int(self._valid.value), self.is_ready
        beat = tuple(int(signal.value) for signal in self._beat) if valid else None
        if self.shown is not None and beat != self.shown:
            raise ProtocolError(f"{self.prefix}: a beat that was not taken has changed")
        self.shown = beat if valid and not ready else None
        if beat is None or not ready:
            return
        data, keep, last, user = beat
        count = keep.bit_count()
        if keep == 0 or keep & (keep + 1):
            raise ProtocolError(f"{self.prefix}: tkeep {keep:#x}")
        width = len(self._keep)
        if not last and count != width:
            raise ProtocolError(f"{self.prefix}: a beat in the middle is not full")
        self.octets += data.to_bytes(width, "little")[:count]
        if last:
            self.frames.append((self.octets, user))
            self.octets = b""

    def clear(self) -> None:
        """Reset has ended what there was."""
        self.octets, self.shown = b"", None
        self.frames.clear()


@dataclass
class Giver:
    """A stream that goes into the core: what is put into it is sent, a beat in a clock or after gaps."""

    dut: Any
    prefix: str
    gaps: float = 0.0
    beats: deque[tuple[bytes, bool, bool]] = field(default_factory=deque)
    is_offered: bool = False
    #: Clocks in which a beat was offered and not taken.
    waited: int = 0
    #: As driven last.
    is_valid: bool | None = None

    def __post_init__(self) -> None:
        """Looks up once what is used in each clock."""
        of = [getattr(self.dut, f"{self.prefix}_{name}") for name in ("tready", "tvalid")]
        self._ready, self._valid = of

    def put(self, frame: bytes, error: bool = False) -> None:
        """A frame to be sent, and whether it has an error."""
        width = len(getattr(self.dut, f"{self.prefix}_tkeep"))
        for at in range(0, len(frame), width):
            last = at + width >= len(frame)
            self.beats.append((frame[at : at + width], last, error and last))

    def drive(self, rng: random.Random) -> None:
        """Offers a beat or not in this clock; what was offered stays until it is taken."""
        offers = bool(self.beats) and (self.is_offered or rng.random() >= self.gaps)
        if offers != self.is_valid:
            self._valid.value = int(offers)
            self.is_valid = offers
        if offers and not self.is_offered:
            part, last, error = self.beats[0]
            width = len(getattr(self.dut, f"{self.prefix}_tkeep"))
            # Octets that are not kept may be anything.
            filled = part + rng.randbytes(width - len(part))
            getattr(self.dut, f"{self.prefix}_tdata").value = int.from_bytes(filled, "little")
            getattr(self.dut, f"{self.prefix}_tkeep").value = (1 << len(part)) - 1
            getattr(self.dut, f"{self.prefix}_tlast").value = int(last)
            getattr(self.dut, f"{self.prefix}_tuser").value = int(error)
        self.is_offered = offers

    def watch(self) -> None:
        """Whether what is offered is taken."""
        if self.is_offered and int(self._ready.value):
            self.beats.popleft()
            self.is_offered = False
        self.waited += self.is_offered

    def clear(self) -> None:
        """Reset has ended what there was."""
        self.beats.clear()
        self.is_offered, self.waited = False, 0


@dataclass
class Bench:
    """A core with one stream in, and its events."""

    dut: Any
    rng: random.Random
    gaps: float = 0.0
    takers: list[Taker] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    #: Of cores that tell them: the entry of the session and the octets of the packet, an event each.
    details: list[tuple[int, int]] = field(default_factory=list)

    async def reset(self) -> None:
        """Three clocks of reset."""
        dut = self.dut
        dut.rst.value = 1
        dut.s_axis_tvalid.value = 0
        for name in ("awvalid", "wvalid", "arvalid"):
            getattr(dut, f"s_axil_{name}").value = 0
        dut.s_axil_bready.value = 1
        dut.s_axil_rready.value = 1
        for _ in range(3):
            await RisingEdge(dut.clk)
        dut.rst.value = 0
        self.events.clear()
        self.details.clear()
        for taker in self.takers:
            taker.clear()

    async def clock(self) -> None:
        """One clock in which what the inputs are now is offered."""
        for taker in self.takers:
            taker.drive(self.rng)
        await FallingEdge(self.dut.clk)
        for taker in self.takers:
            taker.watch()
        if int(self.dut.event_valid.value):
            self.events.append(int(self.dut.event_code.value))
            if hasattr(self.dut, "event_entry"):
                told = int(self.dut.event_entry.value), int(self.dut.event_octets.value)
                self.details.append(told)

    async def send(self, frame: bytes, error: bool = False, beats: int | None = None) -> None:
        """Sends a frame, or its first `beats`."""
        dut, width = self.dut, len(self.dut.s_axis_tkeep)
        for number, at in enumerate(range(0, len(frame), width)):
            if beats is not None and number == beats:
                return
            part = frame[at : at + width]
            while self.rng.random() < self.gaps:
                dut.s_axis_tvalid.value = 0
                await self.clock()
                await RisingEdge(dut.clk)
            last = at + width >= len(frame)
            # Octets that are not kept may be anything.
            filled = part + self.rng.randbytes(width - len(part))
            dut.s_axis_tdata.value = int.from_bytes(filled, "little")
            dut.s_axis_tkeep.value = (1 << len(part)) - 1
            dut.s_axis_tlast.value = int(last)
            dut.s_axis_tuser.value = int(error and last)
            dut.s_axis_tvalid.value = 1
            while True:
                await self.clock()
                taken = int(dut.s_axis_tready.value)
                await RisingEdge(dut.clk)
                if taken:
                    break
            dut.s_axis_tvalid.value = 0

    async def idle(self, clocks: int) -> None:
        """Clocks in which nothing new is offered."""
        for _ in range(clocks):
            await self.clock()
            await RisingEdge(self.dut.clk)

    async def drain(self, events: int) -> None:
        """Waits until so many frames have ended, and then for what should not come."""
        for _ in range(4000):
            if len(self.events) >= events:
                break
            await self.idle(1)
        assert len(self.events) == events, f"{len(self.events)} of {events} frames have ended"
        await self.idle(8)
        assert len(self.events) == events
        for taker in self.takers:
            assert not taker.octets, f"{taker.prefix}: a frame without an end"


OKAY, SLVERR = 0, 2


@dataclass
class Registers:
    """The registers of a core on AXI4-Lite; address and data come in any order, and answers wait."""

    dut: Any
    rng: random.Random
    #: Where they begin on the bus.
    base: int = 0

    async def write(self, address: int, value: int, strobe: int = 0xF) -> int:
        """Writes a register; the answer."""
        dut, rng = self.dut, self.rng
        dut.s_axil_awaddr.value = self.base + address
        dut.s_axil_wdata.value, dut.s_axil_wstrb.value = value, strobe
        later = {"awvalid": rng.choice([0, 0, 3]), "wvalid": rng.choice([0, 0, 3])}
        open_channels = set(later)
        dut.s_axil_bready.value = 0
        answer = None
        for clock in range(100):
            for channel, start in later.items():
                getattr(dut, f"s_axil_{channel}").value = int(channel in open_channels and clock >= start)
            dut.s_axil_bready.value = int(rng.random() < 0.5)
            await FallingEdge(dut.clk)
            for channel in list(open_channels):
                ready = getattr(dut, f"s_axil_{channel.replace('valid', 'ready')}")
                if int(getattr(dut, f"s_axil_{channel}").value) and int(ready.value):
                    open_channels.discard(channel)
            if int(dut.s_axil_bvalid.value):
                resp = int(dut.s_axil_bresp.value)
                assert answer in (None, resp), "the answer changed while it waited"
                answer = resp
                assert not open_channels, "answered before address and data were taken"
                if int(dut.s_axil_bready.value):
                    await RisingEdge(dut.clk)
                    dut.s_axil_bready.value = 1
                    return resp
            else:
                assert answer is None, "the answer went away while it waited"
            await RisingEdge(dut.clk)
        raise ProtocolError(f"no answer to a write of {address:#x}")

    async def read(self, address: int) -> tuple[int, int]:
        """Reads a register; the answer and the value."""
        dut, rng = self.dut, self.rng
        dut.s_axil_araddr.value = self.base + address
        is_open = True
        answer = None
        for _ in range(100):
            dut.s_axil_arvalid.value = int(is_open)
            dut.s_axil_rready.value = int(rng.random() < 0.5)
            await FallingEdge(dut.clk)
            if is_open and int(dut.s_axil_arready.value):
                is_open = False
            elif int(dut.s_axil_rvalid.value):
                shown = (int(dut.s_axil_rresp.value), int(dut.s_axil_rdata.value))
                assert answer in (None, shown), "the answer changed while it waited"
                answer = shown
                if int(dut.s_axil_rready.value):
                    await RisingEdge(dut.clk)
                    dut.s_axil_rready.value = 1
                    return shown
            else:
                assert answer is None, "the answer went away while it waited"
            await RisingEdge(dut.clk)
        raise ProtocolError(f"no answer to a read of {address:#x}")


async def start(dut: Any, seed: int) -> tuple[Bench, Registers, Taker, Taker]:
    """A core after reset, its streams and its registers."""
    rng = random.Random(seed)
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    out, host = Taker(dut, "m_axis"), Taker(dut, "host_axis")
    bench = Bench(dut, rng, takers=[out, host])
    await bench.reset()
    return bench, Registers(dut, rng), out, host


class Sent(Protocol):
    """What a golden model makes: a frame, and more that its bench knows."""

    frame: bytes


C = TypeVar("C", bound=Sent)


async def under_pressure(
    bench: Bench, make: Callable[[], list[C]], check: Callable[[list[C]], None]
) -> list[C]:
    """Sends what is made, under back-pressure of all kinds, and has it checked; all that was sent."""
    out, host = bench.takers
    sent: list[C] = []
    # Runs of other back-pressure: none, on one side, on all.
    for gaps, out_waits, host_waits in [
        (0, 0, 0),
        (0.5, 0, 0),
        (0, 0.5, 0.2),
        (0.3, 0.3, 0.7),
        (0.7, 0.1, 0.1),
    ]:
        bench.gaps, out.waits, host.waits = gaps, out_waits, host_waits
        cases = make()
        out.frames.clear()
        host.frames.clear()
        bench.events.clear()
        bench.details.clear()
        for case in cases:
            await bench.send(case.frame)
        bench.dut.s_axis_tvalid.value = 0
        await bench.drain(len(cases))
        check(cases)
        sent += cases
    return sent
