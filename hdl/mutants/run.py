"""Applies each fault of the files beside this one to a copy of the cores and says which bench notices.

    run.py [--both] [--only WORDS,...] [--new] [--jobs N] [--list]

The Rust bench (kaido-twin) runs first, where it has the core; without --both, cocotb runs where it
noticed nothing. Both run the fault's core, gre_decap unless it says otherwise, of 256 bits unless its name
says otherwise, and end at the first test that fails. A fault that neither notices ends the run with status 1.

kaido-twin is linked once, with the core as a shared library: a fault costs a run of verilator and of the
C++ compiler, and none of cargo. What noticed a fault is written to results.tsv as it is known, with a
digest of the fault and of the file that it is put into; --new runs the faults that have no such line.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

HDL = Path(__file__).resolve().parent.parent
ROOT = HDL.parent
WORK = ROOT / "target" / "hdl" / "mutant"
RESULTS = HDL / "mutants" / "results.tsv"
HEAD = "digest\tcore\tnoticed by\tfault\n"
# Of a core: its model in kaido-twin, if it has one there, its cocotb bench and which of its tests.
CORES: dict[str, tuple[str | None, str, str]] = {
    "gre_decap": ("Gre256", "test_gre_decap.py", "256 and not deep and not pipelined"),
    "gre_512": ("Gre512", "test_gre_decap.py", "512 and not pipelined"),
    "gre_pipelined": ("Gre256Pipelined", "test_gre_decap.py", "256-pipelined"),
    "gre_pipelined_512": ("Gre512Pipelined", "test_gre_decap.py", "512-pipelined"),
    "gre_encap": ("Tunnel256", "test_gre_encap.py", "256 and not short"),
    "gre_encap_512": ("Tunnel512", "test_gre_encap.py", "512"),
    "gtpu_decap": ("Decap256", "test_gtpu.py", "gtpu_decap and 256"),
    "gtpu_encap": ("Encap256", "test_gtpu.py", "gtpu_encap and 256"),
    "session_usage": (None, "test_session_usage.py", "6-3"),
    "axis_merge": (None, "test_axis_merge.py", "3"),
    "axis_frame_fifo": (None, "test_axis_frame_fifo.py", "2"),
    "upf_top": ("Upf256", "test_upf_top.py", "2-256"),
    "upf_one_port": (None, "test_upf_top.py", "1-256"),
}
# First part of the names of kaido-twin's tests of a model, by the first part of the model's name.
TESTS = {"Gre": "gre_", "Decap": "gtpu_", "Encap": "gtpu_", "Upf": "upf_", "Tunnel": "tunnel_"}
# Octets of address space of a bench, and of what builds it.
MEMORY = 8 << 30
# Seconds that a bench has beyond some times what it takes without a fault.
PATIENCE = 60

Mutant = Mapping[str, str]
NO_FAULT: Mutant = {
    "name": "no fault",
    "file": "net_pkg.sv",
    "text": "package net_pkg;",
    "becomes": "package net_pkg;",
}


class Unbuilt(Exception):
    """The core, with its fault, cannot be built: that is nothing that a bench noticed."""


@dataclass
class Ended:
    """How a command has ended."""

    is_good: bool
    said: str
    timed_out: bool = False


def bounded() -> None:
    """A bench that a fault has wait for ever takes memory all the while."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def execute(
    command: Sequence[str | Path], more: Mapping[str, str], seconds: float, where: Path = ROOT
) -> Ended:
    """Runs a command to its end, or for so many seconds."""
    with subprocess.Popen(
        command,
        cwd=where,
        env=os.environ | more,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # With what it starts it is a group, so that all of it can be ended.
        start_new_session=True,
        preexec_fn=bounded,
    ) as process:
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            said, _ = process.communicate()
            return Ended(False, said, True)
    return Ended(process.returncode == 0, said)


@dataclass
class Bench:
    """kaido-twin's tests, linked with a library of the core that is made anew for each fault."""

    program: Path
    # Of the crate: it makes the archive that the library is linked from.
    script: Path
    host: str

    @classmethod
    def build(cls) -> Self:
        """Builds the tests, with a library that has no function in it."""
        folder = WORK / "empty"
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / "empty.c"
        source.write_text(
            "".join(f"void kaido_twin_{name}(void) {{}}\n" for name in ("new", "free", "clock"))
        )
        library = folder / "libkaido_twin_cores.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        command = ["scripts/cargo", "test", "--package", "kaido-twin", "--test", "it", "--no-run"]
        done = subprocess.run(
            [*command, "--message-format=json"],
            cwd=ROOT,
            env=os.environ | {"KAIDO_TWIN_LIBRARY": str(folder)},
            stdout=subprocess.PIPE,
            check=True,
        )
        found: dict[str, Path] = {}
        for message in map(json.loads, done.stdout.splitlines()):
            if message["reason"] == "compiler-artifact" and "crates/twin" in message["manifest_path"]:
                kind = message["target"]["kind"][0]
                found[kind] = Path(message["executable"] or message["filenames"][0])
        version = subprocess.run(["rustc", "-vV"], cwd=ROOT, capture_output=True, text=True, check=True)
        host = re.search(r"^host: (.*)$", version.stdout, re.MULTILINE)
        assert host
        return cls(found["test"], found["custom-build"], host[1])

    def library(self, model: str, rtl: Path, out: Path) -> None:
        """Makes the library of a model."""
        out.mkdir(parents=True, exist_ok=True)
        cargo = {"HOST": self.host, "TARGET": self.host, "OUT_DIR": str(out), "DEBUG": "false"}
        cargo |= {"OPT_LEVEL": "1", "NUM_JOBS": "1", "CARGO_MANIFEST_DIR": str(ROOT / "crates/twin")}
        more = cargo | {"KAIDO_HDL_RTL": str(rtl), "KAIDO_TWIN_MODELS": model}
        built = execute([self.script], more, 900, ROOT / "crates/twin")
        whole = ["-Wl,--whole-archive", out / "libkaido_twin_cores.a", "-Wl,--no-whole-archive"]
        link = ["c++", "-shared", "-pthread", "-o", out / "libkaido_twin_cores.so", *whole]
        if not built.is_good or not (linked := execute(link, {}, 100)).is_good:
            raise Unbuilt(built.said if not built.is_good else linked.said)

    def tests(self, model: str, out: Path) -> list[str]:
        """The tests that a model can fail."""
        listed = execute([self.program, "--list"], {"LD_LIBRARY_PATH": str(out)}, 60)
        first = next(tests for part, tests in TESTS.items() if model.startswith(part))
        names = re.findall(r"^(\S+): test$", listed.said, re.MULTILINE)
        return [name for name in names if name.startswith(first)]

    def run(self, test: str, out: Path, seconds: float) -> Ended:
        """Runs a test."""
        more = {"LD_LIBRARY_PATH": str(out), "KAIDO_TWIN_FRAMES": "29900"}
        # As cargo would have it.
        return execute([self.program, "--exact", test, "--nocapture"], more, seconds, ROOT / "crates/twin")


def digest(mutant: Mutant) -> str:
    """Of a fault and of what it is put into."""
    parts = [mutant["file"], mutant["text"], mutant["becomes"], core_of(mutant)]
    parts.append((HDL / "rtl" / mutant["file"]).read_text())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


class Results:
    """What is known of faults; each line is written when it is known."""

    def __init__(self) -> None:
        """Reads what is known."""
        self.lock = threading.Lock()
        self.lines: dict[str, str] = {}
        if RESULTS.exists():
            for line in RESULTS.read_text().splitlines()[1:]:
                self.lines[line.split("\t")[3]] = line

    def has(self, mutant: Mutant) -> bool:
        """Whether the fault has been noticed, in the file as it is."""
        line = self.lines.get(mutant["name"], "\t\t").split("\t")
        return line[0] == digest(mutant) and line[2] != "NOTHING"

    def put(self, mutant: Mutant, by: str, order: Sequence[str]) -> None:
        """Writes what has noticed a fault; lines are in the order of the faults, and of those alone."""
        with self.lock:
            parts = (digest(mutant), core_of(mutant), by, mutant["name"])
            self.lines[mutant["name"]] = "\t".join(parts)
            known = [self.lines[name] for name in order if name in self.lines]
            RESULTS.write_text(HEAD + "".join(f"{line}\n" for line in known))


class Baseline:
    """What a core's benches do without a fault; they are run once for all workers."""

    def __init__(self) -> None:
        """Nothing has been run."""
        self.lock = threading.Lock()
        # The core's tests in kaido-twin with the seconds that each takes, the quickest first.
        self.times: list[tuple[float, str]] | None = None
        # Of its cocotb bench.
        self.cocotb_seconds: float | None = None


class Worker:
    """Puts faults into a copy of the cores of its own."""

    def __init__(self, number: int, bench: Bench | None, baselines: Mapping[str, Baseline]) -> None:
        """Without a copy as yet; it is in a folder of this number."""
        self.folder = WORK / str(number)
        self.rtl = self.folder / "rtl"
        self.bench = bench
        self.baselines = baselines

    def apply(self, mutant: Mutant) -> None:
        """Makes a copy of the cores with a fault."""
        shutil.rmtree(self.rtl, ignore_errors=True)
        shutil.copytree(HDL / "rtl", self.rtl)
        path = self.rtl / mutant["file"]
        text = path.read_text()
        count = text.count(mutant["text"])
        if count != 1:
            sys.exit(f"{mutant['name']}: its text stands {count} times in {mutant['file']}")
        path.write_text(text.replace(mutant["text"], mutant["becomes"]))

    def rust(self, core: str) -> str:
        """The test of kaido-twin that notices; empty if none does."""
        model = CORES[core][0]
        if model is None or self.bench is None:
            return ""
        out = self.folder / "out"
        self.bench.library(model, self.rtl, out)
        for seconds, test in self.baselines[core].times or ():
            ended = self.bench.run(test, out, 10 * seconds + PATIENCE)
            if not ended.is_good:
                return f"rust {test}{' (no end)' if ended.timed_out else ''}"
        return ""

    def cocotb(self, core: str, seconds: float) -> str:
        """The test of the cocotb bench that notices; empty if none does."""
        _, file, tests = CORES[core]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        # It has a verilator of its own, beside its Python.
        more = {
            "KAIDO_HDL_BUILD": str(self.folder / "build"),
            "KAIDO_HDL_RTL": str(self.rtl),
            "KAIDO_HDL_ALL": "1",
            "COCOTB_MAX_FAILURES": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        if shutil.which("ccache"):
            more["OBJCACHE"] = "ccache"
        ended = execute([*command, f"hdl/tests/{file}", "-k", tests], more, seconds)
        if ended.is_good:
            return ""
        failed = re.search(r"\*\* (\S+)\s+FAIL", ended.said)
        if failed or ended.timed_out:
            return f"cocotb {failed[1] if failed else '(no end)'}"
        # A model that ends by itself, as one that does not converge, has run tests before.
        if "Starting test" in ended.said or "running " in ended.said:
            return "cocotb (the model ended)"
        raise Unbuilt(ended.said)

    def check(self, core: str) -> None:
        """Ends the run if kaido-twin fails without any fault; times its tests."""
        baseline, model = self.baselines[core], CORES[core][0]
        with baseline.lock:
            if baseline.times is not None or model is None or self.bench is None:
                return
            out = self.folder / "out"
            self.apply(NO_FAULT)
            self.bench.library(model, self.rtl, out)
            times = []
            for test in self.bench.tests(model, out):
                began = time.monotonic()
                ended = self.bench.run(test, out, 900)
                if not ended.is_good:
                    sys.exit(f"{test} of {core} fails without any fault:\n{ended.said}")
                times.append((time.monotonic() - began, test))
            baseline.times = sorted(times)

    def check_cocotb(self, core: str) -> float:
        """Ends the run if the cocotb bench fails without any fault; the seconds that it takes."""
        baseline = self.baselines[core]
        with baseline.lock:
            if baseline.cocotb_seconds is None:
                self.apply(NO_FAULT)
                began = time.monotonic()
                if by := self.cocotb(core, 1800):
                    sys.exit(f"{by} of {core} fails without any fault")
                baseline.cocotb_seconds = time.monotonic() - began
            return baseline.cocotb_seconds

    def attempt(self, mutant: Mutant, both: bool) -> str:
        """What notices a fault."""
        core = core_of(mutant)
        self.check(core)
        self.apply(mutant)
        caught = [by] if (by := self.rust(core)) else []
        if both or not caught:
            seconds = self.check_cocotb(core)
            self.apply(mutant)
            caught += [by] if (by := self.cocotb(core, 4 * seconds + PATIENCE)) else []
        return ", ".join(caught) or "NOTHING"


def core_of(mutant: Mutant) -> str:
    """The core that a fault is run in."""
    return mutant.get("core", "gre_decap")


def put_in(
    mutants: Sequence[Mutant], order: Sequence[str], results: Results, options: argparse.Namespace
) -> None:
    """Puts the faults in, by as many workers as there shall be."""
    bench = Bench.build() if any(CORES[core_of(mutant)][0] for mutant in mutants) else None
    baselines = {core: Baseline() for core in CORES}
    free = [Worker(number, bench, baselines) for number in range(options.jobs)]
    said = threading.Lock()

    def attempt(mutant: Mutant) -> str:
        began = time.monotonic()
        worker = free.pop()
        try:
            by = worker.attempt(mutant, options.both)
        except Unbuilt as unbuilt:
            by = ""
            print(f"{mutant['name']} cannot be built:\n{unbuilt}")
        finally:
            free.append(worker)
        if by:
            results.put(mutant, by, order)
        with said:
            print(f"{mutant['name']}: {by or 'UNBUILT'} ({time.monotonic() - began:.0f} s)", flush=True)
        return by

    with ThreadPoolExecutor(options.jobs) as pool:
        try:
            noticed = list(pool.map(attempt, mutants))
        except SystemExit:
            pool.shutdown(cancel_futures=True)
            raise
    missed = [mutant["name"] for mutant, by in zip(mutants, noticed, strict=True) if by in ("", "NOTHING")]
    if missed:
        sys.exit(f"{len(missed)} of {len(mutants)} are not noticed: {', '.join(missed)}")
    print(f"all {len(mutants)} are noticed")


def main() -> None:
    """Runs what the arguments say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--both", action="store_true")
    parser.add_argument("--only", default="", help="parts of the names of faults or of their cores")
    parser.add_argument("--new", action="store_true", help="only faults that results.tsv does not have")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="check that each can be applied, and name them")
    options = parser.parse_args()
    # The order of the files is that of results.tsv.
    files = sorted((HDL / "mutants").glob("*.toml"))
    every: list[Mutant] = [mutant for file in files for mutant in tomllib.loads(file.read_text())["mutant"]]
    order = [mutant["name"] for mutant in every]
    assert len(set(order)) == len(order), "two faults of one name"
    results = Results()
    words = options.only.split(",")
    mutants = [
        mutant for mutant in every if any(word in f"{core_of(mutant)} {mutant['name']}" for word in words)
    ]
    if options.new:
        mutants = [mutant for mutant in mutants if not results.has(mutant)]
    if options.list:
        for number, mutant in enumerate(mutants, 1):
            Worker(0, None, {}).apply(mutant)
            print(f"{number:3} {core_of(mutant):10} {mutant['file']:16} {mutant['name']}")
        return
    WORK.mkdir(parents=True, exist_ok=True)
    with (WORK / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit("another run puts faults into the cores of this folder")
        put_in(mutants, order, results, options)


main()
