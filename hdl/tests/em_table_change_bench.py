"""cocotb tests of em_table: what changes it, while its keys are looked up."""

from __future__ import annotations

from collections import deque
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge
from em_hash import bucket
from em_table_model import (
    CFG,
    DELETE,
    ENTRIES,
    FULL,
    INSERT,
    KEY_MASK,
    OK,
    PUT,
    READ,
    SCALE,
    SEED,
    UPDATE,
    Lookup,
    bench,
    new_keys,
    value,
)


@cocotb.test()
async def random_operations(dut: Any) -> None:
    """All operations in random order, random lookups; then all values and counters."""
    b = await bench(dut)
    pool = new_keys(b, int(ENTRIES * 0.85))
    hot = pool[:8]
    rate = 0.9

    def nxt() -> Lookup:
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
async def near_keys(dut: Any) -> None:
    """A key that differs from one that is there in one byte, and has its bucket in a way, is not there."""
    b = await bench(dut)
    keys = new_keys(b, ENTRIES // 2)
    for key in keys:
        await b.op(0, INSERT, key, value(b))
    for at in range(0, CFG["KEY_W"], 8):
        for way in b.rows:
            # The hash is linear: these have the hash of a key of zero.
            differ = [byte << at for byte in range(1, 256) if not bucket(way, byte << at)]
            near = [key ^ b.rng.choice(differ) for key in b.rng.sample(keys, 6) if differ]
            for key in near:
                if key <= KEY_MASK:
                    b.next_key = lambda: (b.rng.choice(near) & KEY_MASK, b.length())
                    await b.op(0, READ, key)
    b.check()


@cocotb.test()
async def fill(dut: Any) -> None:
    """90 % load while present keys are looked up each clock; then until full; full changes nothing."""
    b = await bench(dut)
    keys = new_keys(b, ENTRIES + 40)
    present: list[int] = []
    b.next_key = lambda: (b.rng.choice(present), b.length()) if present else None
    first_full = refused = 0
    for key in keys:
        status = await b.op(0, INSERT, key, value(b))
        if status == FULL:
            first_full, refused = first_full or len(b.model), refused + 1
            if refused >= 4 * SCALE or len(b.errors) > 8:
                break
        else:
            present.append(key)
    dut._log.info(
        f"entries {ENTRIES}: first full at {first_full} ({first_full / ENTRIES:.1%}), "
        f"in the end {len(b.model)}"
    )
    assert first_full, "the table took more than it has places"
    assert first_full >= int(ENTRIES * 0.9), f"full at {first_full} of {ENTRIES}"
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
async def update_storm(dut: Any) -> None:
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
async def moves(dut: Any) -> None:
    """A table at 92 % load: keys go and come, so that inserts move others, which are looked up."""
    b = await bench(dut, SEED + 1)
    keys = new_keys(b, ENTRIES)
    target = keys[: int(ENTRIES * 0.92)]
    present = list(target)
    for key in target:
        await b.op(0, PUT, key, value(b))
    moved: deque[int] = deque(present[:4], maxlen=6)
    b.next_key = lambda: (b.rng.choice(moved if b.rng.random() < 0.8 else present), b.length())

    # What the engine is about to move is looked up just then.
    async def follow() -> None:
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
