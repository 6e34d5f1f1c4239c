"""Searches find what is known of a device that is known."""

import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kaido.point import MeasureError, Point
from kaido.running import RunMeasurer, latency_of, offered_and_lost
from kaido.search import (
    PDR_LOSS,
    Limits,
    ModelMeasurer,
    PointMeasurer,
    back_to_back,
    latency_under_load,
    mlr_search,
    search_all,
    soak,
    throughput,
)

LIMITS = Limits(1e4, 100e6)


@settings(max_examples=25, deadline=None)
@given(st.floats(1e5, 5e7))
def test_ndr_and_pdr_are_found_within_the_precision(capacity: float) -> None:
    """NDR is the rate of the device; PDR lies above by the loss that it allows."""
    ndr, pdr = mlr_search(ModelMeasurer(capacity), LIMITS)
    assert ndr.lower_pps and ndr.upper_pps and pdr.lower_pps and pdr.upper_pps
    # One packet less than the rate is counted as none lost.
    assert ndr.lower_pps <= capacity * (1 + 1e-4) and ndr.upper_pps >= capacity * (1 - 1e-9)
    assert (ndr.upper_pps - ndr.lower_pps) / ndr.upper_pps <= LIMITS.precision * (1 + 1e-6)
    exact = capacity / (1 - PDR_LOSS)
    assert pdr.lower_pps <= exact * (1 + 1e-4) and pdr.upper_pps >= exact * (1 - 1e-4)


@settings(max_examples=25, deadline=None)
@given(st.floats(1e5, 5e7))
def test_throughput_is_found_within_the_precision(capacity: float) -> None:
    """By halving (RFC 2544 26.1)."""
    trial = throughput(ModelMeasurer(capacity), LIMITS)
    assert trial is not None and trial.lost == 0
    assert capacity * (1 - LIMITS.precision) * (1 - 1e-6) <= trial.load_pps <= capacity * (1 + 1e-4)


def test_a_device_that_always_loses_has_no_ndr_but_a_pdr() -> None:
    """A loss of 0.1 % at any load is within what PDR allows."""
    device = ModelMeasurer(5e6, base_loss=0.001)
    ndr, pdr = mlr_search(device, LIMITS)
    assert ndr.lower_pps is None and ndr.throughput_pps is None
    assert pdr.lower_pps is not None and 4.9e6 < pdr.lower_pps < 5.1e6
    assert throughput(device, LIMITS) is None


def test_a_device_faster_than_the_most_is_not_searched_further() -> None:
    """The first trial at the most says all."""
    device = ModelMeasurer(1e9)
    trial = throughput(device, LIMITS)
    assert trial is not None and trial.load_pps == LIMITS.max_pps and len(device.trials) == 1


@pytest.mark.parametrize("ring", [64, 4096])
def test_bursts_are_as_long_as_ring_and_rate_allow(ring: int) -> None:
    """RFC 2544 26.4: what the ring takes while the device drains it."""
    device = ModelMeasurer(10e6, ring=ring)
    found = back_to_back(device, 30e6, 1_000_000)
    exact = ring * 30e6 / (30e6 - 10e6)
    assert exact * 0.99 - 2 <= found <= exact + 2
    assert back_to_back(device, 5e6, 5000) == 5000


def test_latency_is_measured_at_three_shares_of_pdr() -> None:
    """With the names of RFC 8219."""
    rows = latency_under_load(ModelMeasurer(1e6, service_ns=500), 1e6, 1.0)
    assert [row["share_of_pdr"] for row in rows] == [0.1, 0.5, 0.9]
    assert [row["load_pps"] for row in rows] == [1e5, 5e5, 9e5]
    medians = [row["typical_latency_ns"] for row in rows]
    assert medians == sorted(medians) and medians[1] == pytest.approx(1000)
    assert all(row["pdv_ns"] == 0 for row in rows)


def test_a_soak_counts_what_is_lost_over_all_its_trials() -> None:
    """Below the rate nothing is, above it every trial loses."""
    below = soak(ModelMeasurer(1e6), 9e5, 25, 10)
    assert (below["lost"], below["trials"], below["seconds"]) == (0, 3, 25)
    above = soak(ModelMeasurer(1e6), 2e6, 20, 10)
    assert above["trials_with_loss"] == 2 and above["lost"] == above["offered"] / 2


def test_all_searches_together_are_fit_for_a_report() -> None:
    """One dictionary, with a soak when it is asked for."""
    found = search_all(ModelMeasurer(8e6, ring=128), LIMITS, 30e6, 10_000, soak_seconds=3)
    assert found["ndr"]["lower_pps"] == pytest.approx(8e6, rel=0.006)
    assert found["throughput_pps"] == pytest.approx(8e6, rel=0.006)
    assert len(found["latency"]) == 3 and found["soak"]["lost"] == 0
    assert found["back_to_back_packets"] > 128


def stream(sent: int, lost: int = 0, wrong: int = 0, **latency: object) -> dict[str, object]:
    """One stream of a result of ``kaido bench run``, as far as a search looks at it."""
    usual = {"min_ns": 0, "max_ns": 0, "sum_ns": 0, "jitter_ns": 0.0, "histogram": []}
    return {
        "counted": True,
        "sent": {"packets": sent, "bytes": 100 * sent},
        "lost": lost,
        "corrupted": 0,
        "wrong": wrong,
        "latency": usual | latency,
    }


def test_wrong_packets_and_those_not_offered_count_as_lost() -> None:
    """A search ends at what device and bench can do; the last packet of a stream may be due with the end."""
    assert offered_and_lost([stream(500), stream(499)], 1000, 1.0) == (999, 0)
    assert offered_and_lost([stream(1000, lost=3, wrong=4)], 1000, 1.0) == (1000, 7)
    assert offered_and_lost([stream(600, lost=1)], 1000, 1.0) == (1000, 401)
    assert offered_and_lost([stream(600, lost=1)], None, 1.0) == (600, 1)
    assert offered_and_lost([stream(5) | {"counted": False}], None, 1.0) == (0, 0)


def test_latency_is_that_of_all_streams_together() -> None:
    """Histograms are added, and streams without packets left out."""
    one = stream(3, min_ns=10, max_ns=30, sum_ns=60, jitter_ns=2.0, histogram=[(10, 1), (20, 1), (30, 1)])
    two = stream(1, min_ns=40, max_ns=40, sum_ns=40, jitter_ns=1.0, histogram=[(40, 1)])
    latency = latency_of([one, two, stream(9)])
    assert latency is not None
    assert (latency["min_ns"], latency["mean_ns"], latency["max_ns"]) == (10, 25, 40)
    assert (latency["p50_ns"], latency["p99_ns"], latency["jitter_ns"]) == (20, 40, 2)
    assert latency_of([stream(9)]) is None


def test_a_file_that_the_program_refuses_is_told(tmp_path: Path) -> None:
    """With the program's words."""
    program = tmp_path / "kaido"
    program.write_text("#!/bin/sh\necho 'bench.toml:3: no such thing' >&2\nexit 1\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(MeasureError, match="no such thing"):
        RunMeasurer(tmp_path / "bench.toml", program).fastest(0.1)


@pytest.mark.parametrize(
    ("datapath", "sent", "seconds", "offered", "lost"),
    [
        ("memory", 500, 1.0, 500, 3),
        ("af_xdp", 990, 1.0, 990, 3),
        ("af_xdp", 500, 1.0, 1000, 503),
        ("af_packet", 100, 0.5, 500, 403),
    ],
)
def test_what_the_bench_could_not_offer_over_links_is_lost(
    monkeypatch: pytest.MonkeyPatch, datapath: str, sent: int, seconds: float, offered: int, lost: int
) -> None:
    """A device is not as fast as a rate that nobody reached."""
    result = {"offered": sent, "lost": 3, "seconds": seconds}
    monkeypatch.setattr("kaido.search.measure", lambda *_: result)
    measurer = PointMeasurer(Point(datapath=datapath), Path("kaido"))
    for trial in (measurer.trial(1000.0, seconds), measurer.burst(1000.0, sent)):
        assert (trial.offered, trial.lost) == (offered, lost)
