"""Bench of the exact-match table `em_table`: a Python dict is the model.

Run: `pytest hdl/tests/test_em_table.py` (pins: hdl/requirements.txt).
All inputs are driven and all outputs sampled at the falling edge of the clock.

A lookup that is under way while its key changes may answer the old or the new state of the key.
Anything else is an error; a miss of a key that is there before and after is counted as such.
"""

from __future__ import annotations

import os
import random
from collections import deque

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly
from em_hash import bucket, draw_rows, rank
from sim import RTL, run, sizes

START, INSERT, UPDATE, DELETE, READ, PUT, ROW, CLEAR = range(8)
OK, NOT_FOUND, DUPLICATE, FULL, DENIED = range(5)
OKAY, SLVERR = 0, 2
#: Rows that the table has: they outlast a reset, and take half of a test's clocks to load.
LOADED: list = []
SEED = int(os.environ.get("KAIDO_HDL_SEED", "1"))
SCALE = float(os.environ.get("KAIDO_HDL_SCALE", "1"))  # length of the random tests

DEFAULT = dict(
    PORTS=3, KEY_W=32, VAL_W=64, WAYS=4, IDX_W=6, QUEUE_W=6, LEN_W=16, PKT_W=40, BYTE_W=48, HASH_REG=1
)
CONFIGS = {
    "default": DEFAULT,
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


class BusError(Exception):
    """The bus answered SLVERR."""


class Bench:
    """The table, its model, one lookup stream and the writers' ports."""

    def __init__(self, dut, seed: int = SEED):
        self.dut = dut
        self.rng = random.Random(seed)
        self.now = 0
        self.rows = draw_rows(random.Random(SEED), CFG["KEY_W"], CFG["WAYS"], CFG["IDX_W"])
        self.bus: list[dict[str, int]] = [{} for _ in range(CFG["PORTS"])]
        self.forget()
        self.next_key = lambda: None  # -> (key, len) or None
        self.misses = 0  # misses of a key that was there throughout, or while it was replaced
        self.errors: list[str] = []
        self.lookups = 0

    def forget(self) -> None:
        """The table is empty."""
        self.log: dict[int, list[tuple[int, frozenset]]] = {}  # key -> states allowed, from when on
        self.hits: dict[int, list[int]] = {}  # key -> packets, bytes of this life
        self.model: dict[int, int] = {}
        self.in_flight: deque = deque()
        self.replacing: set[int] = set()

    # ---- lookups ----
    def allow(self, key: int, states: set) -> None:
        self.log.setdefault(key, [(-1, frozenset([None]))]).append((self.now, frozenset(states)))

    def allowed(self, key: int, since: int) -> set:
        out: set = set()
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
        return self.rng.getrandbits(CFG["LEN_W"])

    # ---- bus ----
    def set_bus(self, port: int, **fields: int) -> None:
        self.bus[port].update(fields)
        widths = dict(awaddr=8, araddr=8, wdata=32, wstrb=4)
        for name in fields:
            w = widths.get(name, 1)
            word = sum(self.bus[p].get(name, 0) << (w * p) for p in range(CFG["PORTS"]))
            getattr(self.dut, f"s_{name}").value = word

    def bit(self, name: str, port: int, width: int = 1) -> int:
        return int(getattr(self.dut, f"s_{name}").value) >> (width * port) & ((1 << width) - 1)

    async def write(self, port: int, addr: int, data: int, strb: int = 15) -> int:
        dut, rng = self.dut, self.rng
        await FallingEdge(dut.clk)
        aw = w = False
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
        for i in range(n):
            if await self.write(port, base + 4 * i, words >> (32 * i) & 0xFFFFFFFF) != OKAY:
                raise BusError(f"write {base + 4 * i:#x}")

    async def get_words(self, port: int, base: int, n: int) -> int:
        out = 0
        for i in range(n):
            data, resp = await self.read(port, base + 4 * i)
            assert resp == OKAY, f"read {base + 4 * i:#x}"
            out |= data << (32 * i)
        return out

    async def raw(self, port: int, code: int, key=None, value=None) -> int:
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
        for w in range(CFG["WAYS"]):
            for b in range(CFG["KEY_W"]):
                arg = b << 24 | w << 20 | self.rows[w][b]
                await self.put_words(port, 0x40, arg, 1)
                assert await self.raw(port, ROW) == OK
        LOADED[:] = self.rows
        assert await self.raw(port, START) == OK

    def check(self) -> None:
        assert not self.errors, f"{len(self.errors)} errors, first: " + "; ".join(self.errors[:4])


async def bench(dut, seed: int = SEED, load: bool = True) -> Bench:
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
    return b.rng.getrandbits(CFG["VAL_W"])


@cocotb.test()
async def registers(dut):
    """Register map, SLVERR, nothing changes on SLVERR."""
    b = await bench(dut, load=False)
    last = CFG["PORTS"] - 1
    assert await b.read(0, 0x00) == (0x4B454D31, OKAY)
    assert await b.read(0, 0x04) == (CFG["IDX_W"] << 24 | CFG["WAYS"] << 16 | CFG["KEY_W"], OKAY)
    assert await b.read(0, 0x08) == (CFG["BYTE_W"] << 24 | CFG["PKT_W"] << 16 | CFG["VAL_W"], OKAY)
    writable = [0x20 + 4 * i for i in range(KEY_N)] + [0x40 + 4 * i for i in range(VAL_N)]
    readable = [0, 4, 8, 12, 20, 24, 96, 100, 104, 108, *writable]
    content = {}
    for p in range(CFG["PORTS"]):
        for a in writable:
            content[p, a] = b.rng.getrandbits(32)
            assert await b.write(p, a, content[p, a]) == OKAY
    for a in range(256):
        if a not in writable and a != 0x10:
            assert await b.write(last, a, 0x55555555) == SLVERR, f"write {a:#x}"
        elif a != 0x10:
            strb = b.rng.randrange(15)
            assert await b.write(last, a, 0x55555555, strb) == SLVERR, f"write {a:#x} strobe {strb}"
    for strb in range(15):
        assert await b.write(last, 0x10, START, strb) == SLVERR
    for a in range(256):
        data, resp = await b.read(last, a)
        assert resp == (OKAY if a in readable else SLVERR), f"read {a:#x}"
        if resp == SLVERR:
            assert data == 0
    for (p, a), want in content.items():
        assert await b.read(p, a) == (want, OKAY), f"port {p} register {a:#x}"
    assert (await b.read(0, 0xC))[0] == 0, "a refused CMD ran"
    # Before START nothing but ROW and CLEAR runs.
    for code in (INSERT, UPDATE, DELETE, READ, PUT):
        assert await b.raw(0, code) == DENIED
    await b.load(last)
    assert (await b.read(0, 0xC))[0] == 1 << 31
    assert await b.raw(0, ROW) == DENIED
    # A write while the operation runs is refused and changes nothing.
    await b.put_words(0, 0x20, 7, KEY_N)
    assert await b.raw(0, INSERT, 7, 9) == OK
    await b.put_words(0, 0x40, 0x1234, VAL_N)
    assert await b.write(0, 0x10, CLEAR) == OKAY
    refused = 0
    for a in (0x20, 0x40, 0x10):
        refused += await b.write(0, a, 0x777) == SLVERR
    assert refused == 3
    while (await b.read(0, 0x14))[0] >> 31:
        pass
    assert await b.read(0, 0x20) == (7, OKAY)
    assert await b.read(0, 0x40) == (0x1234, OKAY)
    assert (await b.read(0, 0xC))[0] == 0, "CLEAR leaves nothing"
    await b.load(0)
    assert await b.raw(0, READ, 7) == NOT_FOUND
    b.check()


@cocotb.test()
async def hash_rows(dut):
    """The hash of the core is the hash of the rows; the rows have full rank."""
    assert rank([0b0011, 0b0101, 0b0110]) == 2
    xorshift = []
    x = 1
    for _ in range(32):  # the rows of the known trap: too few bits of a xorshift state
        x ^= x << 1 & 0x1F
        x ^= x >> 3
        xorshift.append(x & 0x1F)
    assert rank(xorshift) < 8, "such rows are refused"
    b = await bench(dut)
    for way in b.rows:
        assert rank(way) == CFG["IDX_W"]
    probe = [0, KEY_MASK] + [1 << i for i in range(CFG["KEY_W"])] + new_keys(b, 100)
    for key in probe:
        b.next_key = lambda: (key, 0)
        for _ in range(4):
            await FallingEdge(dut.clk)
        got = int(dut.core.lk_idx.value)
        for w in range(CFG["WAYS"]):
            idx = got >> (CFG["IDX_W"] * w) & ((1 << CFG["IDX_W"]) - 1)
            assert idx == bucket(b.rows[w], key), f"way {w} key {key:x}"
    b.next_key = lambda: None
    b.check()


@cocotb.test()
async def random_operations(dut):
    """All operations in random order, random lookups; then all values and counters."""
    b = await bench(dut)
    pool = new_keys(b, int(ENTRIES * 0.85))
    hot = pool[:8]
    rate = 0.9

    def nxt():
        if b.rng.random() > rate:
            return None
        key = b.rng.choice(hot if b.rng.random() < 0.5 else pool)
        if b.rng.random() < 0.3:
            # Another key but for one byte: now and then it has the same bucket in a way.
            key ^= b.rng.randrange(1, 256) << 8 * b.rng.randrange(CFG["KEY_W"] // 8)
        return (key & KEY_MASK, b.length())

    b.next_key = nxt
    for i in range(int(700 * SCALE)):
        if i % 70 == 0:
            rate = b.rng.choice([0.3, 0.9, 1.0])
            hot[:] = b.rng.sample(pool, b.rng.choice([1, 2, 8]))
        code = b.rng.choice([INSERT, INSERT, INSERT, PUT, PUT, UPDATE, DELETE, READ])
        await b.op(
            b.rng.randrange(CFG["PORTS"]), code, b.rng.choice(hot if b.rng.random() < 0.3 else pool), value(b)
        )
    b.next_key = lambda: None
    for _ in range(12):
        await FallingEdge(dut.clk)
    assert (await b.read(0, 0xC))[0] == 1 << 31 | len(b.model)
    for key in b.rng.sample(pool, 60):
        await b.op(0, READ, key)
    for key in list(b.model)[:40]:
        await b.op(0, DELETE, key)
    assert (await b.read(0, 0xC))[0] == 1 << 31 | len(b.model)
    b.check()


@cocotb.test()
async def fill(dut):
    """90 % load while present keys are looked up each clock; then until full; full changes nothing."""
    b = await bench(dut)
    keys = new_keys(b, ENTRIES + 40)
    present: list[int] = []
    b.next_key = lambda: (b.rng.choice(present), b.length()) if present else None
    first_full = 0
    for key in keys:
        status = await b.op(0, INSERT, key, value(b))
        if status == FULL:
            first_full = first_full or len(b.model)
            if len(b.model) >= ENTRIES or len(b.errors) > 8:
                break
        else:
            present.append(key)
            if len(present) == int(ENTRIES * 0.9):
                assert not first_full, f"full at {first_full} of {ENTRIES}"
    dut._log.info(
        f"entries {ENTRIES}: first full at {first_full} ({first_full / ENTRIES:.1%}), "
        f"in the end {len(b.model)}"
    )
    assert first_full, "the table took more than it has places"
    for i in range(len(present)):
        b.next_key = lambda: (present[i], 1)
        await FallingEdge(dut.clk)
        await FallingEdge(dut.clk)
    b.next_key = lambda: None
    for _ in range(10):
        await FallingEdge(dut.clk)
    for key in present[:: max(1, len(present) // 40)]:
        await b.op(0, READ, key)
    for key in present[:20]:
        await b.op(0, DELETE, key)
    for key in present[:10]:
        await b.op(0, INSERT, key, value(b))
    b.check()


@cocotb.test()
async def update_storm(dut):
    """Lookups each clock of the keys that change: 0 misses in place, misses with delete + insert."""
    b = await bench(dut)
    keys = new_keys(b, int(ENTRIES * 0.9))
    for key in keys:
        await b.op(0, INSERT, key, value(b))
    assert len(b.model) == len(keys)
    target = [keys[0]]
    b.next_key = lambda: (b.rng.choice(target), b.length())
    rounds = int(150 * SCALE)
    before = b.lookups
    b.misses = 0
    for i in range(rounds):
        target[0] = b.rng.choice(keys)
        b.replacing = {target[0]}
        await b.op(i % CFG["PORTS"], PUT if i & 1 else UPDATE, target[0], value(b))
    in_place, n_place = b.misses, b.lookups - before
    before = b.lookups
    b.misses = 0
    for i in range(rounds):
        target[0] = b.rng.choice(keys)
        b.replacing = {target[0]}
        port = i % CFG["PORTS"]
        await b.op(port, DELETE, target[0])
        await b.op(port, INSERT, target[0], value(b))
    b.replacing = set()
    delete_insert, n_delete = b.misses, b.lookups - before
    dut._log.info(
        f"{rounds} updates each: in place {in_place} misses of {n_place} lookups; "
        f"delete + insert {delete_insert} misses of {n_delete} lookups"
    )
    b.check()
    assert in_place == 0, f"{in_place} misses in place"
    assert delete_insert > 0


@cocotb.test()
async def moves(dut):
    """A table at 92 % load: keys go and come, so that inserts move others, which are looked up."""
    b = await bench(dut, SEED + 1)
    keys = new_keys(b, ENTRIES)
    target = keys[: int(ENTRIES * 0.92)]
    present = list(target)
    for key in target:
        await b.op(0, PUT, key, value(b))
    moved: deque = deque(present[:4], maxlen=6)
    b.next_key = lambda: (b.rng.choice(moved if b.rng.random() < 0.8 else present), b.length())

    # What the engine is about to move is looked up just then.
    async def follow():
        while True:
            await FallingEdge(dut.clk)
            if dut.core.engine.searching.value and dut.core.way_we.value:
                moved.append(int(dut.core.wr_key.value))
            elif dut.core.engine.searching.value:
                moved.append(int(dut.core.hash_key.value) & KEY_MASK)

    task = cocotb.start_soon(follow())
    for _ in range(int(120 * SCALE)):
        out = present.pop(b.rng.randrange(len(present)))
        await b.op(1, DELETE, out)
        new = b.rng.choice([k for k in keys if k not in b.model])
        if await b.op(0, INSERT, new, value(b)) == OK:
            present.append(new)
        else:
            await b.op(0, INSERT, out, value(b))
            present.append(out)
    task.cancel()
    b.check()


@cocotb.test()
async def counters(dut):
    """Counters are exact: the same key each clock, two in turn, reads in between, wrap."""
    b = await bench(dut)
    keys = new_keys(b, 5)
    for key in keys:
        await b.op(0, INSERT, key, value(b))
    for pattern in ([0], [0, 1], [0, 0, 1], [0, 1, 2, 0], [0, 4, 0], [3, 3, 3, 0]):
        plan = [keys[i] for i in pattern] * 40
        it = iter(plan)
        gaps = b.rng.random() < 0.5

        def nxt():
            if gaps and b.rng.random() < 0.3:
                return None
            k = next(it, None)
            return None if k is None else (k, b.length())

        b.next_key = nxt
        for _ in range(400):
            await FallingEdge(dut.clk)
        b.next_key = lambda: None
        for _ in range(10):
            await FallingEdge(dut.clk)
        for key in keys:
            await b.op(b.rng.randrange(CFG["PORTS"]), READ, key)
    # Reads while the key is hit each clock: between the hits before and the hits after.
    key = keys[0]
    for _ in range(20):
        b.next_key = lambda: (key, 3)
        for _ in range(20):
            await FallingEdge(dut.clk)
        lo = b.hits[key][0]
        assert await b.raw(0, READ, key) == OK
        pkts, size = await b.get_words(0, 0x60, 2), await b.get_words(0, 0x68, 2)
        hi = b.hits[key][0] + 2
        if CFG["PKT_W"] > 20:
            assert lo <= pkts <= hi, f"{lo} {pkts} {hi}"
            base = b.hits[key][1] - 3 * b.hits[key][0]
            assert size == base + 3 * pkts, "packets and bytes are of one moment"
        # Deleted while it is hit each clock, then a new life that begins at zero.
        await b.op(1, DELETE, key)
        if b.rng.random() < 0.5:
            b.next_key = lambda: None
        await b.op(0, INSERT, key, value(b))
        for _ in range(b.rng.choice([0, 30])):
            await FallingEdge(dut.clk)
        if b.rng.random() < 0.7:
            await b.op(1, DELETE, key)
            await b.op(0, INSERT, key, value(b))
    b.check()


@cocotb.test()
async def lives(dut):
    """Entry numbers come again at once in a table that is almost full; each life counts from zero."""
    b = await bench(dut)
    keys = new_keys(b, ENTRIES - 3)
    for key in keys:
        await b.op(0, INSERT, key, value(b))
    held = list(b.model)
    assert len(held) > 0.9 * ENTRIES
    # Those that found no place leave as many entry numbers free: use them up as far as it goes.
    for _ in range(int(60 * SCALE)):
        key = held[b.rng.randrange(3)]
        if b.rng.random() < 0.5:
            b.next_key = lambda: (key, b.length())
            for _ in range(b.rng.choice([1, 2, 9])):
                await FallingEdge(dut.clk)
            b.next_key = lambda: None
            for _ in range(10):
                await FallingEdge(dut.clk)
        await b.op(0, READ, key)
        await b.op(1, DELETE, key)
        await b.op(0, INSERT, key, value(b))
        await b.op(0, READ, key)
    b.check()


@cocotb.test()
async def writers(dut):
    """All ports write at once; none starves."""
    b = await bench(dut)
    keys = new_keys(b, int(ENTRIES * 0.7))
    shares = [keys[p :: CFG["PORTS"]] for p in range(CFG["PORTS"])]
    b.next_key = lambda: (b.rng.choice(keys), b.length())
    done = [0] * CFG["PORTS"]

    async def writer(port: int) -> None:
        for _ in range(int(120 * SCALE)):
            code = b.rng.choice([INSERT, PUT, PUT, UPDATE, DELETE, READ])
            await b.op(port, code, b.rng.choice(shares[port]), value(b))
            done[port] += 1

    tasks = [cocotb.start_soon(writer(p)) for p in range(CFG["PORTS"])]
    for task in tasks:
        await task
    # Ports that ask without a pause: grants go round.
    b.next_key = lambda: None
    served = [0] * CFG["PORTS"]
    wait = [0] * CFG["PORTS"]
    longest = 0

    async def count():
        nonlocal longest
        while True:
            await FallingEdge(dut.clk)
            for p in range(CFG["PORTS"]):
                asks = int(dut.req.value) >> p & 1
                wait[p] = wait[p] + 1 if asks else 0
                longest = max(longest, wait[p])
                if dut.op_done.value and int(dut.grant.value) >> p & 1:
                    served[p] += 1
                    assert int(dut.grant.value) == 1 << p

    counting = cocotb.start_soon(count())
    # The operands stay; CMD is written again as soon as the port is free.
    for p in range(CFG["PORTS"]):
        await b.put_words(p, 0x20, shares[p][0], KEY_N)
    for p in range(CFG["PORTS"]):
        b.set_bus(p, awvalid=1, wvalid=1, awaddr=0x10, wdata=READ, wstrb=15, bready=1)
    for _ in range(1200):
        await FallingEdge(dut.clk)
    for p in range(CFG["PORTS"]):
        b.set_bus(p, awvalid=0, wvalid=0)
    counting.cancel()
    dut._log.info(f"operations a port in 1200 clocks: {served}, longest wait {longest} clocks")
    assert min(served) > 10 and max(served) - min(served) <= 2
    b.check()


@cocotb.test()
async def resets(dut):
    """Reset in the middle of anything: the table is empty and works."""
    b = await bench(dut)
    keys = new_keys(b, ENTRIES)
    for _ in range(int(6 * SCALE) + 1):
        tasks = []

        async def writer(port: int) -> None:
            while True:
                await b.op(
                    port,
                    b.rng.choice([INSERT, PUT, PUT, DELETE]),
                    b.rng.choice(keys[port :: CFG["PORTS"]]),
                    value(b),
                )

        b.next_key = lambda: (b.rng.choice(keys), b.length())
        tasks = [cocotb.start_soon(writer(p)) for p in range(CFG["PORTS"])]
        for _ in range(b.rng.randrange(200, 2500)):
            await FallingEdge(dut.clk)
        for task in tasks:
            task.cancel()
        await FallingEdge(dut.clk)
        await b.reset(b.rng.randrange(1, 4))
        assert (await b.read(0, 0xC))[0] == 0
        assert await b.raw(0, READ, keys[0]) == DENIED
        # The rows stay through a reset: block RAM has none. START is enough.
        assert await b.raw(0, START) == OK
        for key in keys[:20]:
            await b.op(0, DELETE, key)
    for key in keys[:60]:
        await b.op(0, INSERT, key, value(b))
    assert (await b.read(0, 0xC))[0] == 1 << 31 | 60
    b.check()


@cocotb.test()
async def clocks(dut):
    """Clocks of a lookup, of an update and of the rest, counted at the engine."""
    b = await bench(dut)
    keys = new_keys(b, int(ENTRIES * 0.9))
    taken: dict[int, list[int]] = {}

    async def watch():
        n = 0
        while True:
            await FallingEdge(dut.clk)
            if int(dut.grant.value) or int(dut.req.value):
                n += 1
                if dut.op_done.value:
                    taken.setdefault(int(dut.op_code.value), []).append(n - 1)
                    n = 0
            else:
                n = 0

    cocotb.start_soon(watch())
    for key in keys:
        await b.op(0, INSERT, key, value(b))
    b.next_key = lambda: (b.rng.choice(keys), 1)
    start, first = b.now, b.lookups
    for key in keys[:40]:
        await b.op(0, UPDATE, key, value(b))
        await b.op(0, READ, key)
    for key in keys[:40]:
        await b.op(0, DELETE, key)
    span, answered = b.now - start, b.lookups - first
    assert LATENCY <= span - answered <= LATENCY + 1, (span, answered)
    names = {INSERT: "insert", UPDATE: "update", READ: "read", DELETE: "delete"}
    for code, name in names.items():
        t = sorted(taken[code])
        dut._log.info(f"{name}: clocks from request to done: min {t[0]} median {t[len(t) // 2]} max {t[-1]}")
    dut._log.info(f"lookup: {LATENCY} clocks, {answered} answers in {span} clocks")
    assert max(taken[UPDATE]) <= 10
    assert max(taken[READ]) <= 10
    bound = CFG["WAYS"] + 40 + (1 << CFG["QUEUE_W"]) * (CFG["WAYS"] + 10)
    assert max(taken[INSERT]) <= bound
    b.check()


@pytest.mark.parametrize("config", sizes(*CONFIGS))
def test_em_table(config: str) -> None:
    """All tests of this file on one configuration; `wide` in the soak alone."""
    run(
        "em_table",
        (RTL / "em_table.f").read_text().split(),
        "test_em_table",
        CONFIGS[config],
        build_args=["-DEM_COLLIDE", "--x-initial", "unique"],
        # Of the engine in the core.
        levels=3,
        environment={"KAIDO_HDL_CONFIG": config},
        plusargs=["+verilator+rand+reset+2", f"+verilator+seed+{SEED}"],
    )
