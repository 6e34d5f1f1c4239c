"""The soak in short: sessions that come, go, move and sleep, with traffic."""

from __future__ import annotations

from pathlib import Path

import pytest
from rig.net import Topology
from rig.soak import Soak, soak

pytestmark = pytest.mark.needs("root", "ip", "ethtool")


def test_half_a_minute_of_churn_loses_nothing(binary: Path, net: Topology, tmp_path: Path) -> None:
    """Traffic and usage agree to the octet in every session, every drop and request is accounted for."""
    run = soak(binary, net, tmp_path, Soak(seconds=30, ues=400, churn=200, pps=500))
    report = run.report
    for name in ("attaches", "detaches", "handovers", "idles", "pages", "wakes", "queries"):
        assert report[name] > 50, f"{name}: {report[name]}"
    differing = [check for check in run.checks() if not check.ok()]
    assert not differing, (differing, run.drops, report["differences"])
