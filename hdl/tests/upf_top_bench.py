"""cocotb tests of upf_top: both directions at once, usage of sessions, a host that takes no frames."""

from __future__ import annotations

import os
import random
import tomllib
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cocotb
import gtpu_golden as golden
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge
from gtpu_setup import AT, EVENTS, configure, put_session
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from streams import OKAY, SLVERR, Giver, Registers, Taker

MAPS = tomllib.loads((Path(__file__).resolve().parent.parent / "regs.toml").read_text())
OWN: dict[str, int] = {one["name"]: one["address"] for one in MAPS["upf_top"]["register"]}
USAGE: dict[str, int] = {one["name"]: one["address"] for one in MAPS["session_usage"]["register"]}
ARMED, TOLD, IS_READ, BEGINS = 1, 2, 4, 8

ONE_PORT = os.environ["KAIDO_HDL_PORTS"] == "1"
TICK = int(os.environ["KAIDO_HDL_TICK"])
HOST_BEATS = int(os.environ["KAIDO_HDL_HOST_BEATS"])
FRAMES = int(os.environ.get("KAIDO_HDL_FRAMES", "400"))
SEED = int(os.environ.get("KAIDO_HDL_SEED", "1"))
DIRECTIONS = (True, False)
FRAME_ERROR = 1 << 5


def is_tunnel(frame: bytes) -> bool:
    """Whether a frame goes out of tunnels where the port does not say it."""
    packet = Ether(frame)
    layer, local = (IP, golden.LOCAL_V4) if packet.type == 0x800 else (IPv6, golden.LOCAL_V6)
    return bool(
        packet.dst == golden.OWN_MAC
        and layer in packet
        and packet[layer].dst == local
        and UDP in packet
        and packet[UDP].dport == 2152
    )


@dataclass
class Rig:
    """The core between its ports, with traffic that goes on while registers are used."""

    dut: Any
    rng: random.Random
    n3: Giver = field(init=False)
    n6: Giver = field(init=False)
    to_n3: Taker = field(init=False)
    to_n6: Taker = field(init=False)
    host: Taker = field(init=False)
    #: Entries of sessions in the tables, by whether they are of gtpu_decap and the golden model's key.
    entries: dict[bool, dict[tuple[int, bool], int]] = field(default_factory=dict)
    #: What they have carried.
    packets: Counter[tuple[bool, int]] = field(default_factory=Counter)
    octets: Counter[tuple[bool, int]] = field(default_factory=Counter)
    events: Counter[tuple[bool, str]] = field(default_factory=Counter)
    #: Cases that were made and not sent, by direction and end: to make one takes longer than to send it.
    spare: defaultdict[tuple[bool, str], deque[golden.Case]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    #: The rows of the hash are loaded: nothing comes in or leaves, and nobody looks.
    is_loading: bool = False

    def __post_init__(self) -> None:
        """The streams and the registers."""
        self.n3, self.n6 = Giver(self.dut, "s_n3_axis"), Giver(self.dut, "s_n6_axis")
        self.to_n3, self.to_n6 = Taker(self.dut, "m_n3_axis"), Taker(self.dut, "m_n6_axis")
        self.host = Taker(self.dut, "host_axis")
        self.bus = Registers(self.dut, self.rng)
        self.core = {
            is_up: Registers(self.dut, self.rng, OWN["decap" if is_up else "encap"]) for is_up in DIRECTIONS
        }
        self.usage = {
            is_up: Registers(self.dut, self.rng, OWN["usage_uplink" if is_up else "usage_downlink"])
            for is_up in DIRECTIONS
        }

    async def reset(self) -> None:
        """Three clocks of reset."""
        dut = self.dut
        dut.rst.value = 1
        for name in ("awvalid", "wvalid", "arvalid"):
            getattr(dut, f"s_axil_{name}").value = 0
        dut.s_axil_bready.value = dut.s_axil_rready.value = 1
        for stream in (self.n3, self.n6, self.to_n3, self.to_n6, self.host):
            stream.clear()
        for _ in range(3):
            await RisingEdge(dut.clk)
        for stream in (self.to_n3, self.to_n6, self.host):
            stream.clear()
        dut.rst.value = 0
        for counter in (self.packets, self.octets, self.events):
            counter.clear()

    async def traffic(self) -> None:
        """Clocks in which the streams go on."""
        while True:
            if self.is_loading:
                await RisingEdge(self.dut.clk)
                continue
            for stream in (self.n3, self.n6, self.to_n3, self.to_n6, self.host):
                stream.drive(self.rng)
            await FallingEdge(self.dut.clk)
            if not int(self.dut.rst.value):
                for stream in (self.n3, self.n6, self.to_n3, self.to_n6, self.host):
                    stream.watch()
            await RisingEdge(self.dut.clk)

    async def wait(self, clocks: int) -> None:
        """Time passes."""
        for _ in range(clocks):
            await RisingEdge(self.dut.clk)

    async def get(self, registers: Registers, at: int) -> int:
        """A register's value."""
        answer, value = await registers.read(at)
        assert answer == OKAY, hex(registers.base + at)
        return value

    async def put(self, registers: Registers, at: int, value: int) -> None:
        """Writes a register."""
        assert await registers.write(at, value) == OKAY, hex(registers.base + at)

    async def set_up(self) -> None:
        """The node, and its sessions: the host has a session's packets until its usage has begun."""
        for is_up in DIRECTIONS:
            self.is_loading = True
            await configure(self.core[is_up], is_up, sessions=False)
            self.is_loading = False
            self.entries[is_up] = {}
            for session in golden.SESSIONS:
                await self.begin(session, is_up)

    async def begin(self, session: golden.Session, is_up: bool) -> None:
        """A session of one direction begins."""
        entries = await put_session(self.core[is_up], session, is_up, golden.HOST)
        for is_v6, entry in entries.items():
            self.entries[is_up][session.number, is_v6] = entry
            while await self.usage[is_up].write(USAGE["begin"], entry) != OKAY:
                # After reset until memory is cleared.
                assert not self.packets
            while await self.get(self.usage[is_up], USAGE["flags"]) & BEGINS:
                pass
            self.packets[is_up, entry] = self.octets[is_up, entry] = 0
        await put_session(self.core[is_up], session, is_up)

    async def carried(self, is_up: bool, entry: int) -> tuple[int, int]:
        """Packets and octets of an entry."""
        usage = self.usage[is_up]
        await self.put(usage, USAGE["select"], entry)
        while not await self.get(usage, USAGE["flags"]) & IS_READ:
            pass
        words = [await self.get(usage, USAGE[name] + at) for name in ("packets", "octets") for at in (0, 4)]
        return words[0] | words[1] << 32, words[2] | words[3] << 32

    async def check_usage(self) -> None:
        """All sessions have carried what the golden model says, to the octet."""
        for is_up, entries in self.entries.items():
            for entry in entries.values():
                wanted = self.packets[is_up, entry], self.octets[is_up, entry]
                assert await self.carried(is_up, entry) == wanted, (is_up, entry)

    async def dropped(self, is_up: bool) -> tuple[int, int]:
        """Frames that the host's buffer of a direction has taken and dropped."""
        at = 0 if is_up else 4
        taken = await self.get(self.bus, OWN["host_frames"] + at)
        return taken, await self.get(self.bus, OWN["host_dropped"] + at)

    def send(self, case: golden.Case, is_up: bool, error: bool = False) -> None:
        """Sends a frame by its port, and says what must be counted."""
        (self.n3 if is_up or ONE_PORT else self.n6).put(case.frame, error)
        is_host = case.event.startswith("host")
        event = "frame_error" if error and not is_host else case.event
        by = is_tunnel(case.frame) if ONE_PORT and is_host else is_up
        self.events[by, event] += 1
        if event == "forwarded":
            entry = self.entries[is_up][case.key]
            self.packets[is_up, entry] += 1
            self.octets[is_up, entry] += case.octets

    async def drain(self) -> None:
        """Waits until nothing more comes in, leaves, or may leave."""
        takers = (self.to_n3, self.to_n6, self.host)
        quiet, seen = 0, None
        while quiet < 200:
            await self.wait(20)
            now = len(self.n3.beats), len(self.n6.beats), *((len(one.frames), one.octets) for one in takers)
            quiet, seen = (quiet + 20, seen) if now == seen else (0, now)
        assert not self.n3.beats and not self.n6.beats
        assert not any(taker.octets for taker in takers), "a frame without an end"

    def check(self, up: list[golden.Case], down: list[golden.Case]) -> dict[bool, int]:
        """Compares what left with what the golden model says; the frames that the host lacks, by core."""
        outs = {True: [case.out for case in up if case.out], False: [case.out for case in down if case.out]}
        if ONE_PORT:
            assert not self.to_n6.frames
            for octets, user in self.to_n3.frames:
                if not user:
                    # Each core's frames are in their order.
                    of = next(is_up for is_up in DIRECTIONS if outs[is_up] and outs[is_up][0] == octets)
                    outs[of].pop(0)
            assert outs == {True: [], False: []}
        else:
            for taker, is_up in ((self.to_n6, True), (self.to_n3, False)):
                assert [octets for octets, user in taker.frames if not user] == outs[is_up]
        lost = {}
        for is_up in DIRECTIONS:
            wanted = [
                (case.frame, EVENTS[case.event] | (0 if is_up else 1 << 6))
                for cases, of in ((up, True), (down, False))
                for case in cases
                if case.event.startswith("host") and is_up == (is_tunnel(case.frame) if ONE_PORT else of)
            ]
            got = [one for one in self.host.frames if one[1] >> 6 != int(is_up)]
            lost[is_up] = len(wanted) - len(got)
            if ONE_PORT:
                # Cases of both directions come by one port: in which order is the port's.
                assert not Counter(got) - Counter(wanted)
            else:
                left = iter(wanted)
                assert all(one in left for one in got), (
                    "a frame that was not left to the host, or not in this order"
                )
        for taker in (self.to_n3, self.to_n6, self.host):
            taker.frames.clear()
        return lost

    async def check_events(self) -> None:
        """What the cores have counted."""
        for name, code in EVENTS.items():
            counts = {
                is_up: await self.get(self.core[is_up], AT["events"] + 4 * code) for is_up in DIRECTIONS
            }
            if ONE_PORT and not name.startswith("host"):
                # A frame that is cut off in its headers may go either way.
                assert sum(counts.values()) == sum(self.events[of, name] for of in DIRECTIONS), name
            else:
                assert counts == {is_up: self.events[is_up, name] for is_up in DIRECTIONS}, name

    def case(self, is_up: bool, event: str) -> golden.Case:
        """A case with this end; those with other ends are kept for later."""
        kept = self.spare[is_up, event]
        while not kept:
            case = golden.case(self.rng, is_up)
            self.spare[is_up, case.event].append(case)
        return kept.popleft()


async def start(dut: Any, seed: int) -> Rig:
    """A core after reset."""
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    rig = Rig(dut, random.Random(seed))
    dut.s_n3_axis_tvalid.value = dut.s_n6_axis_tvalid.value = 0
    cocotb.start_soon(rig.traffic())
    await rig.reset()
    return rig


@cocotb.test()
async def both_directions_at_once(dut: Any) -> None:
    """What leaves, what the host gets, what sessions carry, under all kinds of back-pressure; who is idle."""
    rig = await start(dut, SEED)
    await rig.set_up()
    lost = Counter[bool]()
    for gaps, n3_waits, n6_waits, host_waits in [
        (0, 0, 0, 0),
        (0.5, 0, 0, 0),
        (0, 0.5, 0.2, 0.5),
        (0.3, 0.2, 0.6, 0.8),
        (0.6, 0.1, 0.1, 0.95),
    ]:
        rig.n3.gaps = rig.n6.gaps = gaps
        rig.to_n3.waits, rig.to_n6.waits, rig.host.waits = n3_waits, n6_waits, host_waits
        cases = {is_up: [golden.case(rig.rng, is_up) for _ in range(FRAMES // 10)] for is_up in DIRECTIONS}
        for up, down in zip(cases[True], cases[False], strict=True):
            rig.send(up, True)
            rig.send(down, False)
        # Usage is read while packets go on.
        await rig.carried(True, rig.entries[True][1, False])
        await rig.drain()
        rig.host.waits = 0.0
        await rig.drain()
        for is_up, frames in rig.check(cases[True], cases[False]).items():
            lost[is_up] += frames
    await rig.check_events()
    await rig.check_usage()
    for is_up in DIRECTIONS:
        hosts = sum(
            count for (of, name), count in rig.events.items() if of == is_up and name.startswith("host")
        )
        assert await rig.dropped(is_up) == (hosts - lost[is_up], lost[is_up])
    assert sum(lost.values()) > 0, "no buffer was full"
    await sessions_end_and_begin(rig)
    await who_is_idle_is_told_once(rig)


async def sessions_end_and_begin(rig: Rig) -> None:
    """An entry's next session begins at zero, one that has ended is not counted on."""
    session = golden.SESSIONS[0]
    for is_up in DIRECTIONS:
        for (number, _), entry in rig.entries[is_up].items():
            if number == session.number:
                await rig.put(rig.usage[is_up], USAGE["end"], entry)
        await rig.begin(session, is_up)
    await rig.check_usage()
    for is_up in DIRECTIONS:
        cases = [rig.case(is_up, "forwarded") for _ in range(30)]
        for case in cases:
            rig.send(case, is_up)
        await rig.drain()
        rig.check(cases if is_up else [], [] if is_up else cases)
    await rig.check_usage()


async def who_is_idle_is_told_once(rig: Rig) -> None:
    """In both directions, each by the registers of its own, and by the interrupt."""
    timeout = 100
    assert not int(rig.dut.irq.value)
    for is_up in DIRECTIONS:
        await rig.put(rig.usage[is_up], USAGE["timeout"], timeout)
    await rig.wait(TICK * (timeout + 2) + 2 * 256)
    for is_up in DIRECTIONS:
        assert int(rig.dut.irq.value)
        assert await rig.get(rig.bus, OWN["idle"]) == (3 if is_up else 2)
        told: list[int] = []
        while (value := await rig.get(rig.usage[is_up], USAGE["idle"])) >> 31:
            told.append(value & 0xFFFF)
            # Where there was no room the next round tells.
            await rig.wait(256 if len(told) % 16 == 0 else 0)
        assert sorted(told) == sorted(rig.entries[is_up].values())
    assert not int(rig.dut.irq.value)
    assert await rig.get(rig.bus, OWN["idle"]) == 0
    # A packet is no idle session's.
    case = rig.case(True, "forwarded")
    rig.send(case, True)
    await rig.wait(TICK * (timeout + 2) + 2 * 256)
    assert await rig.get(rig.bus, OWN["idle"]) == 1
    value = await rig.get(rig.usage[True], USAGE["idle"])
    assert value == 1 << 31 | rig.entries[True][case.key]
    rig.check([case], [])


@cocotb.test()
async def a_host_that_takes_nothing_stops_nobody(dut: Any) -> None:
    """What is forwarded leaves without a wait; the host's buffers keep whole frames, and count drops."""
    rig = await start(dut, SEED + 1)
    await rig.set_up()
    rig.host.waits = 1.0
    cases: dict[bool, list[golden.Case]] = {True: [], False: []}
    for _ in range(30):
        for is_up in DIRECTIONS:
            for event in ("forwarded", "host_miss", "host_other"):
                case = rig.case(is_up, event)
                cases[is_up].append(case)
                rig.send(case, is_up)
    await rig.drain()
    if not ONE_PORT:
        assert rig.n3.waited == 0, "out of tunnels a beat comes in each clock"
    assert not rig.host.frames
    before = {is_up: await rig.dropped(is_up) for is_up in DIRECTIONS}
    rig.host.waits = 0.3
    await rig.drain()
    got = {is_up: sum(one[1] >> 6 != int(is_up) for one in rig.host.frames) for is_up in DIRECTIONS}
    lost = rig.check(cases[True], cases[False])
    for is_up in DIRECTIONS:
        assert before[is_up] == await rig.dropped(is_up) == (got[is_up], lost[is_up])
        assert got[is_up] > 2 and lost[is_up] > 2
    await rig.check_usage()
    # There is room again, and what is longer than the buffer never has any.
    width = len(dut.s_n3_axis_tkeep)
    ether = Ether(src=golden.PEER_MAC, dst=golden.OWN_MAC, type=0x88B5)
    fits, longer = (bytes(ether) + rig.rng.randbytes((width << HOST_BEATS) - 14 + more) for more in (0, 1))
    for frame in (longer, fits, longer, fits):
        rig.n3.put(frame)
        await rig.drain()
    code = EVENTS["host_other"] | (1 << 6 if ONE_PORT else 0)
    assert rig.host.frames == [(fits, code)] * 2
    assert (await rig.dropped(not ONE_PORT))[1] == lost[not ONE_PORT] + 2


@cocotb.test()
async def frames_with_errors_are_marked(dut: Any) -> None:
    """On each way out; they are nobody's usage."""
    rig = await start(dut, SEED + 2)
    await rig.set_up()
    for is_up in DIRECTIONS:
        out = rig.to_n6 if is_up and not ONE_PORT else rig.to_n3
        for error in (False, True, False):
            rig.send(rig.case(is_up, "forwarded"), is_up, error)
        miss = rig.case(is_up, "host_miss")
        for error in (True, False):
            rig.send(miss, is_up, error)
        await rig.drain()
        assert [user for _, user in out.frames] == [0, 1, 0]
        code = EVENTS["host_miss"] | (0 if is_up else 1 << 6)
        assert rig.host.frames == [(miss.frame, code | FRAME_ERROR), (miss.frame, code)]
        out.frames.clear()
        rig.host.frames.clear()
    await rig.check_events()
    await rig.check_usage()


@cocotb.test()
async def a_frame_takes_its_clocks(dut: Any) -> None:
    """First beat in to first beat out: the clocks of the cores, and of the steering for one port."""
    rig = await start(dut, SEED + 3)
    await rig.set_up()
    wanted = {256: 15, 512: 13} if ONE_PORT else {256: 12, 512: 11}
    for is_up in DIRECTIONS:
        out = "m_n6_axis" if is_up and not ONE_PORT else "m_n3_axis"
        into = rig.n3 if is_up or ONE_PORT else rig.n6
        case = rig.case(is_up, "forwarded")
        rig.send(case, is_up)
        beats = len(into.beats)
        while len(into.beats) == beats:
            await RisingEdge(dut.clk)
        # The first beat was taken by this edge.
        clocks = 0
        while True:
            await FallingEdge(dut.clk)
            clocks += 1
            if int(getattr(dut, f"{out}_tvalid").value):
                break
        assert clocks == wanted[len(dut.s_n3_axis_tdata)], clocks
        await rig.drain()
        rig.check([case] if is_up else [], [] if is_up else [case])


@cocotb.test()
async def reset_in_the_middle_of_frames_leaves_nothing(dut: Any) -> None:
    """No octet in a core or in a buffer, no count, no session."""
    rig = await start(dut, SEED + 4)
    for _ in range(3):
        await rig.set_up()
        rig.host.waits = rig.rng.random()
        for _ in range(12):
            for is_up in DIRECTIONS:
                rig.send(golden.case(rig.rng, is_up), is_up)
        await rig.wait(rig.rng.randrange(20, 150))
        await rig.reset()
        rig.host.waits = 0.0
        case = rig.case(True, "forwarded")
        rig.n3.put(case.frame)
        await rig.drain()
        assert rig.host.frames == [(case.frame, EVENTS["host_other"] | (1 << 6 if ONE_PORT else 0))]
        assert not rig.to_n3.frames and not rig.to_n6.frames
        assert await rig.dropped(not ONE_PORT) == (1, 0)
        assert await rig.dropped(ONE_PORT) == (0, 0)
        await rig.reset()


@cocotb.test()
async def the_bus_leads_to_all_parts(dut: Any) -> None:
    """What nobody has is answered with SLVERR, and changes nothing."""
    rig = await start(dut, SEED + 5)
    width = len(dut.s_n3_axis_tkeep)
    for name, identifier in [
        ("decap", 0x47544431),
        ("encap", 0x47544531),
        ("usage_uplink", 0x55534731),
        ("usage_downlink", 0x55534731),
        ("identifier", 0x55504631),
    ]:
        assert await rig.get(rig.bus, OWN[name]) == identifier, name
    for name in ("decap", "encap"):
        assert await rig.get(rig.bus, OWN[name] + AT["table"]) == 0x4B454D31
    assert await rig.get(rig.bus, OWN["parameters"]) == ONE_PORT << 24 | HOST_BEATS << 16 | 8 << 8 | width
    for at in (0x400C, 0x4020, 0x4801, 0x5000, 0x6000, 0x7FFC, 0x4002, 0x2038, 0x1700, 0x0900):
        assert (await rig.bus.read(at))[0] == SLVERR, hex(at)
        assert await rig.bus.write(at, 0) == SLVERR, hex(at)
    for name in ("identifier", "parameters", "idle", "host_frames", "host_dropped"):
        assert await rig.bus.write(OWN[name], 0) == SLVERR
    # What is written to one part is not to another.
    for place, is_up in enumerate(DIRECTIONS):
        await rig.put(rig.core[is_up], AT["packet_max"], 1500 + place)
        await rig.put(rig.usage[is_up], USAGE["timeout"], 7 + place)
    for place, is_up in enumerate(DIRECTIONS):
        assert await rig.get(rig.core[is_up], AT["packet_max"]) == 1500 + place
        assert await rig.get(rig.usage[is_up], USAGE["timeout"]) == 7 + place
