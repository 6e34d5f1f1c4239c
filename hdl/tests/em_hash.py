"""Hash rows of the exact-match table: draw, rank, and the hash itself (H3).

A row is the bucket number that one key bit adds (XOR) to the hash of a way. The rows of a way must
have full rank: with rank r a way uses 2**r of its buckets. Rows drawn from xorshift had rank 5, and
the table was full at 42 entries. `draw_rows` draws again until each way has full rank.
"""

from __future__ import annotations

import random

Rows = list[list[int]]  # [way][key bit]


def rank(rows: list[int]) -> int:
    """Rank over GF(2) of rows given as integers."""
    basis: list[int] = []
    for row in rows:
        for b in basis:
            row = min(row, row ^ b)
        if row:
            basis.append(row)
    return len(basis)


def draw_rows(rng: random.Random, key_w: int, ways: int, idx_w: int) -> Rows:
    """Rows for all ways, each way of full rank."""
    want = min(key_w, idx_w)
    rows: Rows = []
    while len(rows) < ways:
        way = [rng.getrandbits(idx_w) for _ in range(key_w)]
        if rank(way) == want:
            rows.append(way)
    return rows


def bucket(rows: list[int], key: int) -> int:
    """Bucket of `key` in the way of `rows`."""
    h = 0
    for bit, row in enumerate(rows):
        if key >> bit & 1:
            h ^= row
    return h
