"""The scenario of `bench/pgw-u.toml`, of its own shape and smaller: `python -m rig.pgw_u` runs the whole."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from rig.net import NetError
from rig.pgw_u import FILE, SGWS, TENANTS, Scenario, Size, is_clean, report, summary, table

pytestmark = pytest.mark.needs("root", "ip", "ethtool")

#: So that others may run beside.
PREFIX = f"kt{os.getpid()}-"
#: As many as tenants: each has one, and each SGW ten.
BEARERS = TENANTS


@pytest.mark.parametrize(
    ("driver", "datapath"), [("af_xdp", "engine"), ("af_packet", "engine"), ("af_xdp", "xdp")]
)
def test_each_tenant_has_its_own_packets(binary: Path, tmp_path: Path, driver: str, datapath: str) -> None:
    """1000 VLANs, 100 SGWs that the bench answers for, sessions by PFCP: each packet judged, both ways."""
    size = Size(BEARERS, seconds=3, driver=driver, datapath=datapath)
    scenario = Scenario(binary, tmp_path, size, PREFIX)
    with scenario.attached() as attached:
        assert attached["sessions"] == BEARERS
        result = scenario.run("2000pps")
        run = summary("2000pps", result)
        assert is_clean(run), result["said"]
        for stream in run["streams"].values():
            assert stream["received"] == stream["sent"] > BEARERS / 2
    found = report(size, attached, [run])
    assert found["clean"] == run and found["peers"] == SGWS
    assert f"{BEARERS} bearers, {TENANTS} tenants, {SGWS} SGWs" in table(found)
    json.dumps(found)


def test_sessions_that_are_refused_are_told(binary: Path, tmp_path: Path) -> None:
    """A tenant whose network instance the node does not have, by cause."""
    file = tmp_path / "other.toml"
    file.write_text(FILE.read_text().replace('"tenant{vlan}"', '"nobody{vlan}"'))
    scenario = Scenario(binary, tmp_path, Size(BEARERS, tenants=2), PREFIX, file)
    with pytest.raises(NetError, match="SessionEstablishmentRequest: cause 73"), scenario.attached():
        pass
