"""The model of the exact-match table, a Python dict, with its stream of lookups and the writers' ports.

All inputs are driven and all outputs sampled at the falling edge of the clock.

A lookup that is under way while its key changes may answer the old or the new state of the key.
Anything else is an error; a miss of a key that is there before and after is counted as such.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly
from em_hash import Rows, draw_rows

START, INSERT, UPDATE, DELETE, READ, PUT, ROW, CLEAR = range(8)
OK, NOT_FOUND, DUPLICATE, FULL, DENIED = range(5)
OKAY, SLVERR = 0, 2
#: Rows that the table has: they outlast a reset, and take half of a test's clocks to load.
LOADED: Rows = []
SEED = int(os.environ.get("KAIDO_HDL_SEED", "1"))
SCALE = float(os.environ.get("KAIDO_HDL_SCALE", "1"))  # length of the random tests

CONFIGS = {
    "default": dict(
        PORTS=3, KEY_W=32, VAL_W=64, WAYS=4, IDX_W=6, QUEUE_W=6, LEN_W=16, PKT_W=40, BYTE_W=48, HASH_REG=1
    ),
    # No register behind the hash, counters that wrap, operands of several words, ways no power of two.
    "wide": dict(
        PORTS=2, KEY_W=44, VAL_W=100, WAYS=5, IDX_W=5, QUEUE_W=7, LEN_W=11, PKT_W=6, BYTE_W=14, HASH_REG=0
    ),
}
CFG = CONFIGS[os.environ.get("KAIDO_HDL_CONFIG", "default")]
LATENCY = 5 + CFG["HASH_REG"]
ENTRIES = CFG["WAYS"] << CFG["IDX_W"]
KEY_MASK = (1 << CFG["KEY_W"]) - 1
VAL_N = (CFG["VAL_W"] + 31) // 32
KEY_N = (CFG["KEY_W"] + 31) // 32
#: A key and a length to look up, or nothing in this clock.
Lookup = tuple[int, int] | None
#: What a lookup may answer: a value, or a miss.
States = set[int | None]


class BusError(Exception):
    """The bus answered SLVERR."""


class Bench:
    """The table, its model, one lookup stream and the writers' ports."""

    def __init__(self, dut: Any, seed: int = SEED) -> None:
        """Before reset, without rows."""
        self.dut = dut
        self.rng = random.Random(seed)
        self.now = 0
        self.rows = draw_rows(random.Random(SEED), CFG["KEY_W"], CFG["WAYS"], CFG["IDX_W"])
        self.bus: list[dict[str, int]] = [{} for _ in range(CFG["PORTS"])]
        self.forget()
        self.next_key: Callable[[], Lookup] = lambda: None
        self.misses = 0  # misses of a key that was there throughout, or while it was replaced
        self.errors: list[str] = []
        self.lookups = 0

    def forget(self) -> None:
        """The table is empty."""
        self.log: dict[
            int, list[tuple[int, frozenset[int | None]]]
        ] = {}  # key -> states allowed, from when on
        self.hits: dict[int, list[int]] = {}  # key -> packets, bytes of this life
        self.model: dict[int, int] = {}
        self.in_flight: deque[tuple[int, int, int]] = deque()  # key, length, since when
        self.replacing: set[int] = set()

    # ---- lookups ----
    def allow(self, key: int, states: States) -> None:
        """From now on a lookup of `key` may answer these."""
        self.log.setdefault(key, [(-1, frozenset([None]))]).append((self.now, frozenset(states)))

    def allowed(self, key: int, since: int) -> States:
        """What a lookup that came in then may answer."""
        out: States = set()
        for when, states in reversed(self.log.get(key, [(-1, frozenset([None]))])):
            out |= states
            if when < since:
                break
        return out

    async def run(self) -> None:
        """One turn a clock: check the answer of LATENCY clocks ago, drive the next lookup."""
        dut = self.dut
        while True:
            await FallingEdge(dut.clk)
            self.now += 1
            if dut.rst.value:
                self.in_flight.clear()
            due = bool(self.in_flight) and self.in_flight[0][2] + LATENCY == self.now
            if bool(dut.res_valid.value) != due:
                self.errors.append(f"{self.now}: res_valid is {dut.res_valid.value}, due {due}")
            if due:
                key, length, since = self.in_flight.popleft()
                self.lookups += 1
                hit = bool(dut.res_hit.value)
                answer = int(dut.res_value.value) if hit else None
                if answer not in self.allowed(key, since):
                    if answer is None:
                        self.misses += 1
                    self.errors.append(
                        f"{self.now}: key {key:x}: {answer}, allowed {self.allowed(key, since)}"
                    )
                elif answer is None and key in self.replacing:
                    self.misses += 1
                if hit:
                    count = self.hits.setdefault(key, [0, 0])
                    count[0] += 1
                    count[1] += length
            want = None if dut.rst.value else self.next_key()
            if want is None:
                dut.lk_valid.value = 0
            else:
                dut.lk_valid.value = 1
                dut.lk_key.value, dut.lk_len.value = want
                self.in_flight.append((want[0], want[1], self.now))

    def length(self) -> int:
        """Of a packet."""
        return self.rng.getrandbits(CFG["LEN_W"])

    # ---- bus ----
    def set_bus(self, port: int, **fields: int) -> None:
        """Drives signals of a port."""
        self.bus[port].update(fields)
        widths = dict(awaddr=8, araddr=8, wdata=32, wstrb=4)
        for name in fields:
            w = widths.get(name, 1)
            word = sum(self.bus[p].get(name, 0) << (w * p) for p in range(CFG["PORTS"]))
            getattr(self.dut, f"s_{name}").value = word

    def bit(self, name: str, port: int, width: int = 1) -> int:
        """A signal of a port."""
        return int(getattr(self.dut, f"s_{name}").value) >> (width * port) & ((1 << width) - 1)

    async def write(self, port: int, addr: int, data: int, strb: int = 15) -> int:
        """Writes a register; the response."""
        dut, rng = self.dut, self.rng
        await FallingEdge(dut.clk)
        aw = w = 0
        late = rng.randrange(4)  # one of the two channels may come later
        n = 0
        self.set_bus(port, awaddr=addr, wdata=data, wstrb=strb, bready=0)
        while not (aw and w):
            self.set_bus(
                port,
                awvalid=int(not aw and (late != 1 or n > 1)),
                wvalid=int(not w and (late != 2 or n > 1)),
            )
            await ReadOnly()
            aw_now = self.bus[port]["awvalid"] and self.bit("awready", port)
            w_now = self.bus[port]["wvalid"] and self.bit("wready", port)
            await FallingEdge(dut.clk)
            aw, w, n = aw or aw_now, w or w_now, n + 1
            if n > 100:
                raise AssertionError("write is not taken")
        self.set_bus(port, awvalid=0, wvalid=0)
        for _ in range(rng.choice([0, 0, 2])):
            await FallingEdge(dut.clk)
            assert self.bit("bvalid", port), "bvalid fell without bready"
        self.set_bus(port, bready=1)
        n = 0
        while not self.bit("bvalid", port):
            await FallingEdge(dut.clk)
            n += 1
            assert n < 100, "no write response"
        resp = self.bit("bresp", port, 2)
        await FallingEdge(dut.clk)
        self.set_bus(port, bready=0)
        assert not self.bit("bvalid", port), "second write response"
        return resp

    async def read(self, port: int, addr: int) -> tuple[int, int]:
        """Reads a register; data and response."""
        dut = self.dut
        await FallingEdge(dut.clk)
        self.set_bus(port, arvalid=1, araddr=addr, rready=0)
        for _n in range(100):
            await ReadOnly()
            taken = self.bit("arready", port)
            await FallingEdge(dut.clk)
            if taken:
                break
        else:
            raise AssertionError("read is not taken")
        self.set_bus(port, arvalid=0)
        for _ in range(self.rng.choice([0, 0, 2])):
            await FallingEdge(dut.clk)
        assert self.bit("rvalid", port), "no read data"
        data, resp = self.bit("rdata", port, 32), self.bit("rresp", port, 2)
        self.set_bus(port, rready=1)
        await FallingEdge(dut.clk)
        self.set_bus(port, rready=0)
        assert not self.bit("rvalid", port), "second read data"
        return data, resp

    async def put_words(self, port: int, base: int, words: int, n: int) -> None:
        """Writes registers one behind the other, the low word first."""
        for i in range(n):
            if await self.write(port, base + 4 * i, words >> (32 * i) & 0xFFFFFFFF) != OKAY:
                raise BusError(f"write {base + 4 * i:#x}")

    async def get_words(self, port: int, base: int, n: int) -> int:
        """Reads them."""
        out = 0
        for i in range(n):
            data, resp = await self.read(port, base + 4 * i)
            assert resp == OKAY, f"read {base + 4 * i:#x}"
            out |= data << (32 * i)
        return out

    async def raw(self, port: int, code: int, key: int | None = None, value: int | None = None) -> int:
        """One operation; answers its status."""
        if key is not None:
            await self.put_words(port, 0x20, key, KEY_N)
        if value is not None:
            await self.put_words(port, 0x40, value, VAL_N)
        if await self.write(port, 0x10, code) != OKAY:
            raise BusError("CMD")
        for _n in range(4000):
            result, resp = await self.read(port, 0x14)
            assert resp == OKAY
            if not result >> 31:
                return result & 7
        raise AssertionError("the operation does not end")

    async def op(self, port: int, code: int, key: int, value: int = 0) -> int:
        """An operation checked against the model. One writer a key at a time."""
        old = self.model.get(key)
        may_add = code in (INSERT, PUT)
        if old is None:
            want = {OK, FULL} if may_add else {NOT_FOUND}
        else:
            want = {DUPLICATE} if code == INSERT else {OK}
        changes = code in (INSERT, PUT, UPDATE) and not (code == INSERT and old is not None)
        changes = changes and not (code == UPDATE and old is None)
        new = value if changes else (None if code == DELETE else old)
        self.allow(key, {old, new})
        before = self.counted(key)
        status = await self.raw(port, code, key, value if code in (INSERT, PUT, UPDATE) else None)
        if status not in want:
            self.errors.append(f"{self.now}: op {code} key {key:x}: status {status}, want {want}")
        if status == FULL:
            new = old
            if len(self.model) < ENTRIES * 0.8:
                self.errors.append(f"{self.now}: full at {len(self.model)} of {ENTRIES}")
        if code in (READ, DELETE) and status == OK:
            got = await self.get_words(port, 0x40, VAL_N)
            if got != old:
                self.errors.append(f"{self.now}: op {code} key {key:x}: value {got:x}, want {old:x}")
            pkts = await self.get_words(port, 0x60, 2)
            size = await self.get_words(port, 0x68, 2)
            # A lookup while the counters are read may be in them, or not.
            if code == DELETE or (before is not None and before == self.counted(key)):
                want_p, want_b = self.hits.get(key, [0, 0])
                want_c = (want_p % (1 << CFG["PKT_W"]), want_b % (1 << CFG["BYTE_W"]))
                if (pkts, size) != want_c:
                    self.errors.append(f"{self.now}: key {key:x}: counters {pkts} {size}, want {want_c}")
        if new is None:
            self.model.pop(key, None)
            self.hits.pop(key, None)
        else:
            if old is None:
                self.hits.setdefault(key, [0, 0])
            self.model[key] = new
        self.allow(key, {new})
        return status

    def counted(self, key: int) -> tuple[int, ...] | None:
        """What is counted of `key` so far; None while a lookup of it is under way."""
        under_way = any(looked_up == key for looked_up, _, _ in self.in_flight)
        return None if under_way else tuple(self.hits.get(key, [0, 0]))

    # ---- start ----
    async def reset(self, clocks: int = 3) -> None:
        """Reset; the table is empty then."""
        self.dut.rst.value = 1
        for p in range(CFG["PORTS"]):
            self.set_bus(
                p, awvalid=0, wvalid=0, bready=0, arvalid=0, rready=0, awaddr=0, araddr=0, wdata=0, wstrb=0
            )
        for _ in range(clocks):
            await FallingEdge(self.dut.clk)
        self.dut.rst.value = 0
        self.forget()

    async def load(self, port: int = 0) -> None:
        """Loads the rows and starts the table."""
        for w in range(CFG["WAYS"]):
            for b in range(CFG["KEY_W"]):
                arg = b << 24 | w << 20 | self.rows[w][b]
                await self.put_words(port, 0x40, arg, 1)
                assert await self.raw(port, ROW) == OK
        LOADED[:] = self.rows
        assert await self.raw(port, START) == OK

    def check(self) -> None:
        """Nothing was wrong so far."""
        assert not self.errors, f"{len(self.errors)} errors, first: " + "; ".join(self.errors[:4])


async def bench(dut: Any, seed: int = SEED, load: bool = True) -> Bench:
    """The table after reset, started unless it is to have no rows."""
    b = Bench(dut, seed)
    dut.lk_valid.value = 0
    dut.lk_key.value = 0
    dut.lk_len.value = 0
    dut.rst.value = 1
    cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
    await FallingEdge(dut.clk)
    await b.reset()
    cocotb.start_soon(b.run())
    if load and b.rows == LOADED:
        assert await b.raw(0, START) == OK
    elif load:
        await b.load()
    return b


def new_keys(b: Bench, n: int) -> list[int]:
    """Keys as they come in a network: half of them in sequence, half random."""
    base = b.rng.getrandbits(CFG["KEY_W"])
    keys = {(base + i) & KEY_MASK for i in range(n // 2)}
    while len(keys) < n:
        keys.add(b.rng.getrandbits(CFG["KEY_W"]))
    out = sorted(keys)
    b.rng.shuffle(out)
    return out


def value(b: Bench) -> int:
    """Any value."""
    return b.rng.getrandbits(CFG["VAL_W"])
