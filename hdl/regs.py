"""Writes the register maps of regs.toml into pages of docs/; with --check says whether they are there."""

import sys
import tomllib
from pathlib import Path
from typing import Any

HDL = Path(__file__).resolve().parent
DOCS = HDL.parent / "docs"
BEGIN, END = "<!-- registers: made by hdl/regs.py -->", "<!-- registers end -->"


def table(heads: list[str], rows: list[list[str]]) -> list[str]:
    """A table of Markdown."""
    return ["| " + " | ".join(row) + " |" for row in [heads, ["---"] * len(heads), *rows]]


def text(core: dict[str, Any]) -> str:
    """What stands between the markers of a core's page."""
    registers = [
        [
            f"`{one['address']:#05x}`"
            + (f" + {one['stride']:#x}·n, n < {one['count']}" if "count" in one else ""),
            f"`{one['name']}`",
            one["access"],
            one["text"],
        ]
        for one in core["register"]
    ]
    fields = [[f"[{one['bits']}]", f"`{one['name']}`", one["text"]] for one in core["field"]]
    events = ", ".join(f"{code} `{name}`" for name, code in core.get("events", {}).items())
    lines = [
        *table(["address", "register", "access", "what it is"], registers),
        "",
        core["fields"],
        "",
        *table(["bits", "field", "what it is"], fields),
    ]
    if events:
        lines += ["", f"Events: {events}."]
    return "\n".join(lines)


def main() -> None:
    """Writes the pages, or compares them."""
    for core in tomllib.loads((HDL / "regs.toml").read_text()).values():
        page = DOCS / core["page"]
        before, rest = page.read_text().split(BEGIN)
        wanted = f"{before}{BEGIN}\n{text(core)}\n{END}{rest.split(END)[1]}"
        if "--check" not in sys.argv:
            page.write_text(wanted)
        elif wanted != page.read_text():
            sys.exit(f"{page} has not the registers of hdl/regs.toml: run hdl/regs.py")


main()
