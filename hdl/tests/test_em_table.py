"""The exact-match table, in two configurations."""

from __future__ import annotations

import pytest
from em_table_model import CONFIGS, SEED
from sim import RTL, run, sizes


@pytest.mark.parametrize("config", sizes(*CONFIGS))
def test_em_table(config: str) -> None:
    """All tests on one configuration; `wide` in the soak alone."""
    run(
        "em_table",
        (RTL / "em_table.f").read_text().split(),
        ["em_table_bus_bench", "em_table_change_bench", "em_table_count_bench"],
        CONFIGS[config],
        build_args=["-DEM_COLLIDE", "--x-initial", "unique"],
        # Of the engine in the core.
        levels=3,
        environment={"KAIDO_HDL_CONFIG": config},
        plusargs=["+verilator+rand+reset+2", f"+verilator+seed+{SEED}"],
    )
