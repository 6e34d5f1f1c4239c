"""The chapter about `kaido bench micro`."""

import json
from pathlib import Path
from typing import Any

from kaido import report

CASE = {"direction": "uplink", "shape": "volte", "sessions": 1000}
SPREADS = {"ns_per_packet": 60.0, "ns_spread": 1.5, "ns_range": [58.0, 63.0], "frame_bytes": 128}
MICRO: dict[str, Any] = {
    "machine": {"cpu": "a CPU", "cores": 2, "kernel": "6.18"},
    "run": {"rounds": 7, "packets_per_round": 32768},
    "results": [CASE | SPREADS | {"held_ns_per_packet": 50.0, "held_ns_spread": 1.0}],
    "two_workers": [
        CASE
        | SPREADS
        | {
            "cpus": [1, 0],
            "alone_ns": 48.0,
            "alone_spread": 1.0,
            "atomic_ns": 52.0,
            "atomic_spread": 1.0,
            "ratio": 1.25,
            "ratio_range": [1.125, 1.5],
        }
    ],
    "with_rings": [
        CASE
        | SPREADS
        | {
            "ring_entries": 2048,
            "packets_per_burst": 512,
            "bare_ns": 44.5,
            "bare_spread": 0.5,
            "added_ns": 15.5,
            "added_range": [14.0, 17.5],
        }
    ],
    "kernel": [CASE | SPREADS | {"frame_bytes": 192, "left": [["a QER guarantees a rate", 1000]]}],
    "xdp_map_chain": [],
    "sessions": [],
    "tables": [],
    "shared_queue": [],
    "skipped": [{"name": "XDP map chain", "reason": "no compiler"}],
}


def _text(folder: Path, found: dict[str, Any]) -> str:
    file = folder / "micro.json"
    file.write_text(json.dumps(found))
    out = folder / "report.html"
    report.write(report.gather([file]), out, "kaido bench report micro.json")
    return out.read_text()


def test_every_row_is_in_the_report(tmp_path: Path) -> None:
    """Its figures, their ranges, and what was not measured with the reason."""
    text = _text(tmp_path, MICRO)
    for part in (
        "<title>Kaido: the user plane in memory</title>",
        "A packet takes 60 to 60 ns",
        "50.0 ± 1.0",
        "Two workers on CPUs 1 and 0",
        '<td class="number">1.25</td>',
        "1.12 to 1.50",
        "52.0 ± 1.0",
        "of 2048 entries",
        "44.5 ± 0.5",
        "14.0 to 17.5",
        "58 to 63",
        "a QER guarantees a rate (1000 sessions)",
        "XDP map chain: not measured: no compiler",
    ):
        assert part in text, part


def test_a_result_without_the_newer_rows_is_shown(tmp_path: Path) -> None:
    """That of a program of before, or of a machine with one CPU."""
    older = {
        name: value for name, value in MICRO.items() if name not in ("two_workers", "with_rings", "kernel")
    }
    text = _text(tmp_path, older)
    assert "50.0 ± 1.0" in text
    assert "Two workers" not in text and "With the rings" not in text and "BPF_PROG_TEST_RUN" not in text
    assert "Nothing was measured" in _text(tmp_path, MICRO | {"results": []})
