"""The soak in short: sessions that come, go, move and sleep, with traffic."""

from __future__ import annotations

from pathlib import Path

import pytest
from rig.faults import LINK_FAULTS, Window
from rig.net import Topology
from rig.soak import Soak, soak
from rig.verdict import Verdict

pytestmark = pytest.mark.needs("root", "ip", "ethtool", "curl", "gcc")


def test_half_a_minute_of_churn_loses_nothing(binary: Path, net: Topology, tmp_path: Path) -> None:
    """Traffic and usage agree to the octet in every session, every drop and request is accounted for."""
    run = soak(binary, net, tmp_path, Soak(seconds=30, ues=400, churn=200, pps=500))
    report = run.report
    for name in ("attaches", "detaches", "handovers", "idles", "pages", "wakes", "queries"):
        assert report[name] > 50, f"{name}: {report[name]}"
    differing = [check for check in run.checks() if not check.ok()]
    assert not differing, (differing, run.drops, report["differences"])


def test_a_fault_of_each_kind_loses_only_its_own(binary: Path, net: Topology, tmp_path: Path) -> None:
    """Links, neighbours, a silent SMF, the clock and floods: what is lost has its fault, and usage is exact.

    Conformance: TS 29.244 5.2.2.2 | Usage is exact while links, peers and clocks fail
    """
    run = Soak(seconds=120, ues=300, churn=100, pps=300, faults=1, quiet=0.5, once=True)
    soak(binary, net, tmp_path, run)
    kinds = {window.name.split(": ")[-1] for window in run.windows}
    others = ("SMF silent", "idle control clients", "wall clock")
    assert kinds == {*LINK_FAULTS, *others, "flood to n3", "flood to n4", "flood to n6"}
    differing = [check for check in run.checks() if not check.ok()]
    table = "\n".join(run.verdict().table())
    assert not differing, f"{differing}\n{table}\n{run.report['differences']}"


@pytest.mark.parametrize(
    ("name", "loses", "after_s", "misplaced"),
    [("n3: down", "n3", 20, 0), ("n3: down", "n3", 41, 2), ("n6: down", "n6", 20, 2)],
)
def test_what_was_buffered_is_lost_by_the_fault_it_goes_out_into(
    name: str, loses: str, after_s: float, misplaced: int
) -> None:
    """Two packets to an idle UE, sent before a fault, which the node buffers, and sends when it is paged."""
    sent = 1_800_000_000.0
    window = Window(name, frozenset({loses}), sent + after_s, sent + after_s + 2, sent + after_s + 3)
    loss = {"awake": [], "asleep": [sent, sent + 0.5], "up": 0, "down": 2}
    found = Verdict([window], {"faults": {"losses": [loss]}}, {}).judge()
    assert (found.misplaced, found.asleep) == (misplaced, 2)
