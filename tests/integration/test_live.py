"""`kaido bench live`: what the kernel sends through a node comes back, all of it and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rig.live import WAYS, Live, Sessions

pytestmark = pytest.mark.needs("root", "ip", "ethtool")

PREFIX = f"lv{os.getpid()}-"


def share(live: Live, way: str, sessions: Sessions, least: float) -> float:
    """What comes back of the packets, at best.

    What finds a ring full is lost: more than usual while other work has the receiver's CPU.
    """
    best = 0.0
    for _ in range(5):
        result = live.send(way, sessions, 0.3)
        assert result["sent"] >= 1 << 18
        best = max(best, result["received"] / result["sent"])
        if best >= least:
            break
    return best


@pytest.mark.parametrize("shape", ["plain", "free5gc", "open5gs", "volte"])
def test_live_frames_of_every_session_come_back(binary: Path, tmp_path: Path, shape: str) -> None:
    """By the node as it comes, which forwards in the kernel where ports are in copy mode.

    Not `slice`: all its PDRs have filters, which these packets do not match.
    """
    live = Live(binary, tmp_path, PREFIX)
    with live.attached(Sessions(shape, 50)):
        for way in WAYS:
            assert 0.65 <= share(live, way, Sessions(shape, 50), 0.65) <= 1.0, way
        # Of twice as many sessions half are not there.
        for way in WAYS:
            assert 0.25 <= share(live, way, Sessions(shape, 100), 0.25) <= 0.55, way


def test_an_interface_that_is_not_there_is_named(binary: Path, tmp_path: Path) -> None:
    """One message, with the name."""
    live = Live(binary, tmp_path, PREFIX)
    with live.net:
        command = [str(binary), "bench", "live", "--from", "sgw0", "--to", "sgi9", "--n3", "10.100.3.1"]
        command += ["--gnb", "10.100.3.2", "--device-mac", "02:00:00:00:00:01"]
        done = live.bench.run(*command, check=False)
        assert done.returncode != 0
        assert "sgi9" in done.stderr
