"""Sessions of shapes at a node: what `kaido session` and `kaido status` say of them."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from rig.attach import of_shape
from rig.net import Topology
from rig.node import Node
from rig.prometheus import fetch

pytestmark = pytest.mark.needs("root", "ip", "ethtool")

#: PDRs, FARs, QERs and URRs of a session; where its rules lie, and the reason of a wide record.
SHAPES: dict[str, tuple[list[int], str, str | None]] = {
    "plain": ([2, 2, 1, 1], "fast", None),
    "free5gc": ([2, 2, 2, 3], "fast", None),
    "open5gs": ([3, 3, 1, 1], "fast", None),
    "volte": ([6, 2, 3, 1], "lines", None),
    "slice": ([8, 2, 4, 4], "lines", None),
}
SESSIONS = 20


def attached(binary: Path, net: Topology, folder: Path, shape: str) -> AbstractContextManager[None]:
    """Sessions of a shape, until left."""
    return of_shape(binary, net.ran, folder / f"{shape}.log", shape, SESSIONS)


def forms(node: Node) -> list[tuple[str, str | None, int]]:
    """What `kaido status` says of sessions and their paths."""
    status: Any = node.ask("status")
    reasons = [form["reason"][0] if form["reason"] else None for form in status["forms"]]
    return [(form["path"], why, form["sessions"]) for form, why in zip(status["forms"], reasons, strict=True)]


def sessions(node: Node) -> list[dict[str, Any]]:
    """What `kaido sessions` lists."""
    answer: Any = node.ask("sessions")
    return list(answer["sessions"])


def test_sessions_of_shapes_are_shown_and_counted_by_their_path(
    binary: Path, net: Topology, tmp_path: Path
) -> None:
    """Rule by rule what was asked for; and an operator sees which take the fast path, and why not."""
    node = Node(binary, net.upf, tmp_path, more='\n[metrics]\nlisten = "127.0.0.1:9105"\n').start()
    for shape, (rules, path, reason) in SHAPES.items():
        with attached(binary, net, tmp_path, shape):
            assert forms(node) == [(path, reason, SESSIONS)], shape
            found = sessions(node)
            assert len(found) == SESSIONS
            detail: Any = node.ask("session", found[0]["seid"])
            kinds = [detail["rules"][kind] for kind in ("pdrs", "fars", "qers", "urrs")]
            assert [len(kind) for kind in kinds] == rules, shape
            filters = sum(len(pdr["pdi"]["sdf_filters"]) for pdr in kinds[0].values())
            assert filters == {"open5gs": 1, "volte": 4, "slice": 8}.get(shape, 0), shape
        deadline = time.monotonic() + 10
        while forms(node) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert forms(node) == [], "none is left"
    with attached(binary, net, tmp_path, "mixed"):
        # One in ten is VoLTE; of twenty one buffers, which is one of them.
        assert forms(node) == [("fast", None, 18), ("lines", None, 2)]
        text = fetch(net.upf, "http://127.0.0.1:9105/metrics")
        assert 'kaido_sessions_by_path{path="fast",reason=""} 18' in text
        assert 'kaido_sessions_by_path{path="lines",reason=""} 2' in text
    assert node.stop() == 0
