"""cocotb tests of em_table: counters of its entries, and clocks of all it does."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import FallingEdge
from em_table_model import (
    CFG,
    DELETE,
    ENTRIES,
    INSERT,
    LATENCY,
    OK,
    READ,
    SCALE,
    UPDATE,
    Lookup,
    bench,
    new_keys,
    value,
)


@cocotb.test()
async def counters(dut: Any) -> None:
    """Counters are exact: the same key each clock, two in turn, reads in between, wrap."""
    b = await bench(dut)
    keys = new_keys(b, 5)
    for key in keys:
        await b.op(0, INSERT, key, value(b))
    for pattern in ([0], [0, 1], [0, 0, 1], [0, 1, 2, 0], [0, 4, 0], [3, 3, 3, 0]):
        plan = [keys[i] for i in pattern] * 40
        it = iter(plan)
        gaps = b.rng.random() < 0.5

        def nxt() -> Lookup:
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
async def lives(dut: Any) -> None:
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
async def clocks(dut: Any) -> None:
    """Clocks of a lookup, of an update and of the rest, counted at the engine."""
    b = await bench(dut)
    keys = new_keys(b, int(ENTRIES * 0.9))
    taken: dict[int, list[int]] = {}

    async def watch() -> None:
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
