"""What gtpu_decap and gtpu_encap are set up with for the golden model, by their registers."""

from __future__ import annotations

import ipaddress
import random
import tomllib
from pathlib import Path

import gtpu_golden as golden
from cocotb.triggers import RisingEdge, Timer
from em_hash import draw_rows
from streams import OKAY, Registers

MAP = tomllib.loads((Path(__file__).resolve().parent.parent / "regs.toml").read_text())["gtpu"]
EVENTS: dict[str, int] = MAP["events"]
NAMES = {code: name for name, code in EVENTS.items()}
AT: dict[str, int] = {one["name"]: one["address"] for one in MAP["register"]}

COMMAND, RESULT, ENTRY, KEY, VALUE = (AT["table"] + at for at in (0x10, 0x14, 0x18, 0x20, 0x40))
START, PUT, ROW = 0, 5, 6
WAYS, BUCKET_BITS = 4, 6
#: Where on the bus the cores are whose tables have their rows.
LOADED: set[int] = set()


def key_bits(is_decap: bool) -> int:
    """Of the table's key."""
    return 40 if is_decap else 72


def number(address: str) -> int:
    """An IP address as a number."""
    return int(ipaddress.ip_address(address))


def fold(total: int) -> int:
    """A one's-complement sum in 16 bits."""
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def halves(octets: bytes) -> int:
    """The sum of the words of 16 bits."""
    return fold(sum(int.from_bytes(octets[at : at + 2], "big") for at in range(0, len(octets), 2)))


async def put(registers: Registers, at: int, *words: int) -> None:
    """Writes words from an address on."""
    for place, word in enumerate(words):
        assert await registers.write(at + 4 * place, word) == OKAY, hex(at + 4 * place)


def high_first(value: int) -> list[int]:
    """Words of 32 bits of a number of 128."""
    return [value >> shift & 0xFFFFFFFF for shift in (96, 64, 32, 0)]


def mac_words(mac: str) -> list[int]:
    """16 bits and 32."""
    value = int(mac.replace(":", ""), 16)
    return [value >> 32, value & 0xFFFFFFFF]


async def operate(registers: Registers, command: int, clocks: int = 0) -> None:
    """An operation of the table, to its end, which takes so many clocks of 10 ns at least."""
    await put(registers, COMMAND, command)
    if clocks:
        await Timer(10 * clocks, "ns")
        await RisingEdge(registers.dut.clk)
    for _ in range(500):
        answer, result = await registers.read(RESULT)
        assert answer == OKAY
        if not result >> 31:
            assert result == 0, f"operation {command}: {result}"
            return
    raise AssertionError(f"operation {command} does not end")


def uplink_words(session: golden.Session) -> tuple[list[int], list[int]]:
    """Key and value of a tunnel from a gNB."""
    qfi = 0 if session.qfi is None else 1 << 2 | session.qfi << 3
    prefix = number(session.prefix) >> 64
    value = [
        session.action | qfi | 3 << 9 | 2 << 11 | 5 << 15,
        number(session.address),
        prefix & 0xFFFFFFFF,
        prefix >> 32,
    ]
    return [session.teid, 2 if session.outer_v6 else 0], value


def downlink_words(session: golden.Session, is_v6: bool) -> tuple[list[int], list[int]]:
    """Key and value of a tunnel to a gNB."""
    qfi = 0 if session.qfi is None else 1 << 2 | session.qfi << 3
    outer = session.outer_v6
    first = (
        session.action | qfi | outer << 9 | session.entropy << 10 | outer << 11 | 2 << 12 | session.dscp << 18
    )
    local, peer = (golden.LOCAL_V6, golden.PEER_V6) if outer else (golden.LOCAL_V4, golden.PEER_V4)
    ends = ipaddress.ip_address(local).packed + ipaddress.ip_address(peer).packed
    ip_sum = (
        0 if outer else halves(bytes([0x45, session.dscp << 2, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0]) + ends)
    )
    gtpu = bytes([0x30 if session.qfi is None else 0x34, 255]) + session.teid.to_bytes(4, "big")
    if session.qfi is not None:
        gtpu += bytes([0, 0, 0, 0x85, 1, 0, session.qfi, 0])
    udp_sum = halves(ends + bytes([0, 17]) + (2152).to_bytes(2, "big") + gtpu)
    value = [first, session.teid, ip_sum | udp_sum << 16, *reversed(high_first(number(peer)))]
    if is_v6:
        prefix = number(session.prefix) >> 64
        return [prefix & 0xFFFFFFFF, prefix >> 32, 1], value
    return [number(session.address), 0, 0], value


async def put_session(
    registers: Registers, session: golden.Session, is_decap: bool, action: int | None = None
) -> dict[bool, int]:
    """Adds a session to the core's table, or changes it; its entries: into tunnels one for each family."""
    entries: dict[bool, int] = {}
    for is_v6 in (False,) if is_decap else (False, True):
        key, value = uplink_words(session) if is_decap else downlink_words(session, is_v6)
        if action is not None:
            value[0] = value[0] & ~3 | action
        await put(registers, KEY, *key)
        await put(registers, VALUE, *value)
        await operate(registers, PUT)
        answer, entries[is_v6] = await registers.read(ENTRY)
        assert answer == OKAY
    return entries


async def configure(registers: Registers, is_decap: bool, sessions: bool = True) -> None:
    """The node and the sessions of the golden model; rows of the hash, which outlast a reset, once."""
    await put(registers, AT["control"], 1)
    await put(registers, AT["packet_max"], golden.PACKET_MAX)
    await put(registers, AT["mac"], *mac_words(golden.OWN_MAC))
    await put(registers, AT["locals_v4"], number(golden.LOCAL_V4))
    await put(registers, AT["locals_v6"], *high_first(number(golden.LOCAL_V6)))
    # Next hop 2 is the right one, of IPv6 out of tunnels 5.
    for hop in (2, 5):
        link = [*mac_words(golden.HOP_MAC), *mac_words(golden.EXIT_MAC)]
        await put(registers, AT["next_hops"] + 0x10 * hop, *link)
    if is_decap:
        route = golden.ROUTE_V4
        await put(registers, AT["routes_v4"] + 8 * 3, int(route.network_address), int(route.netmask))
        wide = golden.ROUTE_V6
        words = [*high_first(int(wide.network_address)), *high_first(int(wide.netmask))]
        await put(registers, AT["routes_v6"] + 0x20, *words)
    if registers.base not in LOADED:
        LOADED.add(registers.base)
        for way, ways in enumerate(draw_rows(random.Random(7), key_bits(is_decap), WAYS, BUCKET_BITS)):
            for bit, row in enumerate(ways):
                await put(registers, VALUE, bit << 24 | way << 20 | row)
                # Four clocks for each word of a table of eight bits that the row is in.
                await operate(registers, ROW, 4 << bit % 8)
    await operate(registers, START)
    for session in golden.SESSIONS if sessions else ():
        await put_session(registers, session, is_decap)
    # The first own address of each family.
    await put(registers, AT["control"], 1 | 1 << 4 | 1 << 6)
