"""`kaido sim --dialect`: whole lives of sessions as the SMFs of open cores write them, with traffic."""

from __future__ import annotations

from pathlib import Path

import pytest
from rig.net import FAR, Topology
from rig.soak import Soak, soak

pytestmark = pytest.mark.needs("root", "ip", "ethtool")

#: Procedures that a dialect has none of: OAI keeps no rule of an idle session and adds no flow; some ask for
#: no usage.
WITHOUT = {
    "free5gc": set[str](),
    "open5gs": set[str](),
    "oai": {"pages", "queries", "flows"},
    "sd-core": {"queries"},
}


@pytest.mark.parametrize("dialect", WITHOUT)
def test_a_dialect_is_understood(binary: Path, net: Topology, tmp_path: Path, dialect: str) -> None:
    """Nothing is refused; packets come back whole, in their QoS flow, or are counted drops; usage is exact.

    Conformance: TS 29.244 6.3.3 | Sessions of four cores' SMFs keep every packet through all procedures
    """
    run = soak(binary, net, tmp_path, Soak(seconds=12, ues=100, churn=100, pps=400, dialect=dialect))
    report = run.report
    procedures = ("attaches", "detaches", "handovers", "idles", "wakes", "pages", "queries", "flows")
    for name in procedures:
        assert (report[name] == 0) == (name in WITHOUT[dialect]), f"{name}: {report[name]}"
    differing = [check for check in run.checks() if not check.ok()]
    assert not differing, (differing, run.drops, report["differences"])


@pytest.mark.parametrize("dialect", WITHOUT)
def test_a_dialect_goes_by_the_kernel(binary: Path, net: Topology, tmp_path: Path, dialect: str) -> None:
    """With AMBR, several URRs, QoS flows and rules of their own, most packets never come to a worker."""
    net.beyond()
    plan = Soak(seconds=12, ues=100, churn=50, pps=400, dialect=dialect, datapath="xdp", to=FAR)
    run = soak(binary, net, tmp_path, plan)
    report = run.report
    differing = [check for check in run.checks() if not check.ok()]
    assert not differing, (differing, run.drops, report["differences"])
    packets = report["uplink"]["packets"] + report["downlink"]["packets"]
    assert run.by_kernel > packets / 2, (run.by_kernel, packets)
