"""cocotb tests of em_table: its registers, its writers and its reset."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import FallingEdge
from em_hash import bucket, rank
from em_table_model import (
    CFG,
    CLEAR,
    DELETE,
    DENIED,
    ENTRIES,
    INSERT,
    KEY_MASK,
    KEY_N,
    NOT_FOUND,
    OK,
    OKAY,
    PUT,
    READ,
    ROW,
    SCALE,
    SLVERR,
    START,
    UPDATE,
    VAL_N,
    bench,
    new_keys,
    value,
)


@cocotb.test()
async def registers(dut: Any) -> None:
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
    # The rows stay.
    assert await b.raw(0, START) == OK
    assert await b.raw(0, READ, 7) == NOT_FOUND
    b.check()


@cocotb.test()
async def hash_rows(dut: Any) -> None:
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
async def writers(dut: Any) -> None:
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

    async def count() -> None:
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
async def resets(dut: Any) -> None:
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
