"""`kaido bench micro`: what it prints, never how fast this machine is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SESSIONS = [1, 1000]
DIRECTIONS = ["uplink", "downlink"]
# The plain shape at every number of sessions, then the mixed one at the largest.
NODES = [("plain", 1), ("plain", 1000), ("mixed", 1000)]
SOAK = 50_000


#: One run for all of them.
pytestmark = pytest.mark.xdist_group("bench")


@pytest.fixture(scope="module")
def report(binary: Path) -> dict[str, Any]:
    """The report of a small run."""
    command = [str(binary), "bench", "micro", "--quick", "--rounds", "1", "--sessions", "1,1000"]
    command += ["--soak", str(SOAK), "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "UPF path" in done.stderr, "the tables are beside the JSON, not in it"
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def micro(binary: Path, *options: str, before: Callable[[], None] | None = None) -> dict[str, Any]:
    """Return the report of one round of few packets, by a process that has done something before."""
    command = [str(binary), "bench", "micro", "--quick", "--rounds", "1", "--packets", "512"]
    command += ["--soak", "1000", "--json", "-", *options]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, preexec_fn=before
    )
    assert done.returncode == 0, done.stderr
    parsed: dict[str, Any] = json.loads(done.stdout)
    for entry in parsed["skipped"]:
        assert f"{entry['name']}: {entry['reason']}" in done.stderr, "the tables say it, too"
    return parsed


def test_every_case_of_the_path_is_there(report: dict[str, Any]) -> None:
    """Both directions of every shape and number of sessions, each beside its floor."""
    cases = [(case["direction"], case["shape"], case["sessions"]) for case in report["results"]]
    assert cases == [(direction, *node) for direction in DIRECTIONS for node in NODES]
    for result in report["results"]:
        assert result["frame_bytes"] == 128
        assert result["ns_per_packet"] > 0
        assert result["held_ns_per_packet"] > 0
        assert result["ns_spread"] == 0, "one round has no spread"
        assert result["floor_ns_per_line"] > 0
        assert result["cold_lines"] == len(result["cold_line_names"]) >= 3
        assert result["packet_lines"] == 2
        assert result["working_set_bytes"] == result["sessions"] * result["cold_lines"] * 64
        # One round says nothing of noise.
        assert result["met"] != "met" or result["ns_per_packet"] <= result["goal_ns"]


def test_two_workers_stand_beside_one(report: dict[str, Any]) -> None:
    """Every shape and number of sessions, both ways, on two CPUs; or the reason why there are not two."""
    if len(os.sched_getaffinity(0)) < 2:
        assert report["two_workers"] == []
        assert sum("two workers" in entry["name"] for entry in report["skipped"]) == len(NODES)
        return
    rows = report["two_workers"]
    assert [(row["direction"], row["shape"], row["sessions"]) for row in rows] == [
        (direction, *node) for direction in DIRECTIONS for node in NODES
    ]
    for row in rows:
        assert len(set(row["cpus"])) == 2
        assert (row["frame_bytes"], row["packets_per_worker"]) == (128, 16_384)
        assert row["ns_per_packet"] > 0 and row["alone_ns"] > 0 and row["atomic_ns"] > 0
        # One round: its ratio is that of its figures.
        assert row["ratio"] == pytest.approx(row["ns_per_packet"] / row["alone_ns"])
        assert row["ratio_range"] == [row["ratio"], row["ratio"]]


def test_with_one_cpu_two_workers_are_skipped_by_name(binary: Path) -> None:
    """A process that may use one CPU says so; it does not run two workers on it, and the rest runs."""
    cpu = min(os.sched_getaffinity(0))
    parsed = micro(
        binary, "--sessions", "1", "--shape", "slice", before=lambda: os.sched_setaffinity(0, {cpu})
    )
    assert parsed["two_workers"] == [] and len(parsed["results"]) == 4
    skipped = {entry["name"]: entry["reason"] for entry in parsed["skipped"]}
    for shape in ("plain", "slice"):
        reason = skipped[f"two workers share the sessions, 1 sessions, {shape}"]
        assert f"CPU {cpu} is the only one" in reason


def test_the_rings_stand_beside_the_bare_path(report: dict[str, Any]) -> None:
    """Every shape and number of sessions, both ways, with a port's rings and without, and the difference."""
    rows = report["with_rings"]
    assert [(row["direction"], row["shape"], row["sessions"]) for row in rows] == [
        (direction, *node) for direction in DIRECTIONS for node in NODES
    ]
    for row in rows:
        assert (row["frame_bytes"], row["ring_entries"]) == (128, 2048)
        assert row["packets_per_burst"] * row["bursts"] == 16_384
        assert row["ns_per_packet"] > 0 and row["bare_ns"] > 0
        # One round: its difference is that of its figures.
        assert row["added_ns"] == pytest.approx(row["ns_per_packet"] - row["bare_ns"])
        assert row["added_range"] == [row["added_ns"], row["added_ns"]]


def test_sessions_and_tables_are_counted(report: dict[str, Any]) -> None:
    """Rates are there, and no lookup missed a key that was being replaced."""
    assert [(entry["shape"], entry["sessions"]) for entry in report["sessions"]] == NODES
    for entry in report["sessions"]:
        assert entry["sample"] == entry["sessions"]
        assert all(entry[f"{what}_per_second"] > 0 for what in ("establish", "modify", "delete"))
    cores = report["machine"]["cores"]
    assert [table["writers"] for table in report["tables"]] == list(range(1, cores + 1))
    for table in report["tables"]:
        assert (table["keys"], table["replacements"], table["lookup_misses"]) == (2000, SOAK, 0)
        assert all(table[f"{what}_per_second"] > 0 for what in ("adds", "replaces", "deletes"))


def test_the_baseline_is_measured_or_skipped_by_name(report: dict[str, Any]) -> None:
    """As root the XDP program runs; otherwise its absence has a name and a reason."""
    skipped = {entry["name"]: entry["reason"] for entry in report["skipped"] if "map chain" in entry["name"]}
    names = {f"XDP map chain, {sessions} sessions, plain" for sessions in SESSIONS}
    if os.geteuid() != 0:
        assert names <= skipped.keys()
        assert all("root" in skipped[name] for name in names)
        return
    if skipped:
        assert all("it was not compiled" in skipped[name] for name in names)
        return
    chains = report["xdp_map_chain"]
    cases = [(chain["direction"], chain["sessions"]) for chain in chains if chain["shape"] == "plain"]
    assert cases == [(direction, sessions) for direction in DIRECTIONS for sessions in SESSIONS]
    # Each kind of session that the path is measured with but those of tenants, for which it has no VLANs.
    measured = {result["shape"] for result in report["results"]} - {"tenant"}
    assert {chain["shape"] for chain in chains} == measured
    # What restores the packet is taken off, which beside others may be more than all.
    assert all(chain["ns_range"][0] <= chain["ns_per_packet"] <= chain["ns_range"][1] for chain in chains)
    assert all(chain["ns_range"][1] > 0 for chain in chains)


def test_the_kernels_fast_path_is_measured_with_every_shape(binary: Path, report: dict[str, Any]) -> None:
    """Each shape has its row, tenants too, which the map chain has not, and what workers keep its reason."""
    if os.geteuid() != 0:
        names = {f"XDP offload, {sessions} sessions, {shape}" for shape, sessions in NODES}
        assert report["kernel"] == []
        assert names <= {entry["name"] for entry in report["skipped"] if "root" in entry["reason"]}
        return
    rows = report["kernel"]
    assert [(row["direction"], row["shape"], row["sessions"]) for row in rows] == [
        (direction, *node) for direction in DIRECTIONS for node in NODES
    ]
    for row in rows:
        assert row["ns_range"][0] <= row["ns_per_packet"] <= row["ns_range"][1]
        assert row["ns_range"][1] > 0 and row["frame_bytes"] == 192
        left = [] if row["shape"] == "plain" else [["a QER guarantees a rate", 100], ["the FAR buffers", 50]]
        assert row["left"] == left
    for chain in report["xdp_map_chain"]:
        case = (chain["direction"], chain["shape"], chain["sessions"])
        own = next(row for row in rows if (row["direction"], row["shape"], row["sessions"]) == case)
        assert chain["offload_ns"] == own["ns_per_packet"]
    for shape, left in [("tenant", []), ("volte", [["a QER guarantees a rate", 300]])]:
        parsed = micro(binary, "--sessions", "300", "--shape", shape)
        assert [(row["direction"], row["left"]) for row in parsed["kernel"] if row["shape"] == shape] == [
            (direction, left) for direction in DIRECTIONS
        ]


def test_without_root_the_programs_are_skipped_by_name(binary: Path) -> None:
    """The rest runs, and both programs say that they need root."""
    if os.geteuid() != 0:
        pytest.skip("this is what the other tests see without root")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        program = Path(shutil.copy(binary, folder))
        parsed = micro(program, "--sessions", "1", "--shape", "plain", before=lambda: os.setuid(65_534))
    assert parsed["kernel"] == parsed["xdp_map_chain"] == []
    assert len(parsed["results"]) == 2
    skipped = {entry["name"]: entry["reason"] for entry in parsed["skipped"]}
    for what in ("XDP offload", "XDP map chain"):
        assert "needs root" in skipped[f"{what}, 1 sessions, plain"]


def test_the_machine_is_described(report: dict[str, Any]) -> None:
    """Whoever reads the figures can tell what they were measured on, and what was not measured."""
    machine = report["machine"]
    assert machine["cpu"] and machine["kernel"] and machine["ram_bytes"] > 0
    assert machine["pmu"]["available"] == (machine["pmu"]["reason"] is None)
    assert len(machine["load_average"]) == 2


def test_an_unknown_flag_is_named(binary: Path) -> None:
    """A slip of the pen does not start a long run."""
    done = subprocess.run(
        [str(binary), "bench", "micro", "--quik"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--quik" in done.stderr
