"""Writes the register map of regs.toml into docs/hardware.md; with --check says whether it is there."""

import sys
import tomllib
from pathlib import Path

HDL = Path(__file__).resolve().parent
PAGE = HDL.parent / "docs" / "hardware.md"
BEGIN, END = "<!-- registers: made by hdl/regs.py -->", "<!-- registers end -->"


def table(heads: list[str], rows: list[list[str]]) -> list[str]:
    """A table of Markdown."""
    return ["| " + " | ".join(row) + " |" for row in [heads, ["---"] * len(heads), *rows]]


def text() -> str:
    """What stands between the markers."""
    regs = tomllib.loads((HDL / "regs.toml").read_text())
    registers = [
        [
            f"`{one['address']:#05x}`"
            + (f" + {one['stride']:#x}·n, n < {one['count']}" if "count" in one else ""),
            f"`{one['name']}`",
            one["access"],
            one["text"],
        ]
        for one in regs["register"]
    ]
    fields = [[f"[{one['bits']}]", f"`{one['name']}`", one["text"]] for one in regs["field"]]
    events = [", ".join(f"{code} `{name}`" for name, code in regs["events"].items()) + "."]
    lines = [
        *table(["address", "register", "access", "what it is"], registers),
        "",
        "The condition of a rule, its last word:",
        "",
        *table(["bits", "field", "what it is"], fields),
        "",
        "Events: " + events[0],
    ]
    return "\n".join(lines)


def main() -> None:
    """Writes the page, or compares it."""
    before, rest = PAGE.read_text().split(BEGIN)
    wanted = f"{before}{BEGIN}\n{text()}\n{END}{rest.split(END)[1]}"
    if "--check" in sys.argv:
        if wanted != PAGE.read_text():
            sys.exit(f"{PAGE} has not the registers of hdl/regs.toml: run hdl/regs.py")
    else:
        PAGE.write_text(wanted)


main()
