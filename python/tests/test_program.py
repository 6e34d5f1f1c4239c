"""The commands with the program that hands over to them: a sweep of milliseconds, and all that follows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from kaido import search
from kaido.__main__ import main
from kaido.flame import fold, record
from kaido.point import MeasureError, Point, find_binary, measure

BINARY = os.environ.get("KAIDO_BINARY")
needs_binary = pytest.mark.skipif(not BINARY, reason="KAIDO_BINARY names no program")

SWEEP = """
name = "tiny"
duration = 0.02
frames = [64, 512, 1424]
sessions = [100]
flows = ["single"]
udp_checksums = [false, true]
rates = ["max", "100kpps"]
"""


@needs_binary
def test_a_sweep_is_measured_reported_and_compared(tmp_path: Path) -> None:
    """By the binary's own commands, through the package."""
    (tmp_path / "sweep.toml").write_text(SWEEP)
    environment = os.environ | {"KAIDO_PYTHON": sys.executable}

    def bench(*arguments: str, code: int = 0) -> str:
        run = subprocess.run(
            [str(BINARY), "bench", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == code, run.stderr
        return run.stdout

    bench("sweep", "-c", "sweep.toml", "-o", "one")
    frame = pl.read_parquet(tmp_path / "one" / "sweep.parquet")
    assert len(frame) == 24 and frame["lost"].sum() == 0
    assert frame["ns_per_packet"].min() and frame["git_revision"].n_unique() == 1
    rated = frame.filter(pl.col("rate") != "max")
    assert rated["latency_p50_ns"].null_count() == 0 and rated["busy_percent"].max() is not None
    bench("report", "one", "-o", "r.html")
    assert "What limits each point" in (tmp_path / "r.html").read_text()
    assert "the same within noise" in bench("compare", "one", "one")
    (tmp_path / "bad.toml").write_text("frames = [1]\n")
    bench("sweep", "-c", "bad.toml", code=2)


@needs_binary
def test_discoveries_are_made_and_kept(tmp_path: Path) -> None:
    """Few sessions and short points; maps that the kernel does not give are listed with the reason."""
    assert main(["discoveries", "-o", str(tmp_path), "--sessions", "2000", "--duration", "0.01"]) == 0
    found = json.loads((tmp_path / "discoveries.json").read_text())
    ours = found["lru"]["maps"][-1]
    assert ours["name"] == "Kaido's session table" and ours["held"][-1] == {"written": 2000, "found": 2000}
    blind = [
        entry["row"]["worker_packets"]
        for entry in found["spread"]
        if entry["point"]["spread"] == "five-tuple"
    ]
    assert 0 in blind[0], "uplink all packets are one flow to a NIC that does not see the TEID"
    assert 0 not in blind[1]
    assert [row["frame"] for row in found["checksum"]] == [64, 128, 256, 512, 1024, 1424, 3024]


@needs_binary
def test_the_program_is_a_measurer() -> None:
    """A burst has its packets, a trial its rate; what the program refuses is told with its words."""
    measurer = search.PointMeasurer(Point(sessions=10), find_binary())
    burst = measurer.burst(1e6, 77)
    assert (burst.offered, burst.lost) == (77, 0)
    trial = measurer.trial(1e5, 0.01)
    assert trial.offered >= 1000 and trial.result and trial.result["latency"]
    with pytest.raises(MeasureError, match="64 to 3600"):
        measure(Point(frame=9), find_binary(), 0.01)


@needs_binary
def test_a_search_of_the_user_plane_in_memory_finds_its_rates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Short and coarse; how fast this machine is, it says to nobody."""
    arguments = ["--sessions", "10", "--trial", "0.02", "--duration-sum", "0.04", "--precision", "0.2"]
    assert main(["search", *arguments, "-o", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(next(tmp_path.glob("search-*.json")).read_text())
    assert found["ndr"]["lower_pps"] <= found["pdr"]["upper_pps"]
    assert found["throughput_pps"] > 0 and found["back_to_back_packets"] > 0
    assert [row["share_of_pdr"] for row in found["latency"]] == [0.1, 0.5, 0.9]
    assert all(row["typical_latency_ns"] > 0 for row in found["latency"])


@needs_binary
def test_a_profile_is_taken_or_the_reason_told() -> None:
    """Where perf may sample there are stacks below the function that forwards."""
    flame = record(Point(sessions=10), find_binary(), 0.05)
    if flame.reason:
        assert not flame.stacks and not flame.svg
    else:
        assert sum(flame.stacks.values()) > 0 and "</svg>" in flame.svg
        assert all("drive" in stack.split(";")[0] for stack in flame.stacks)


@needs_binary
def test_samples_are_folded_below_the_function_that_forwards(tmp_path: Path) -> None:
    """What makes packets is left out."""
    script = tmp_path / "perf.txt"
    lines = [
        "kaido 1 1.000001:  1 cpu-clock:",
        "\t10 parse+0x1 (k)",
        "\t11 kaido_bench::point::lane::drive+0x2 (k)",
        "",
    ]
    lines += ["kaido 1 1.000002:  1 cpu-clock:", "\t10 write+0x1 (k)", "\t11 main+0x2 (k)", "", ""]
    script.write_text("\n".join(lines))
    flame = fold(Point(), find_binary(), script)
    assert dict(flame.stacks) == {"kaido_bench::point::lane::drive;parse": 1}


def test_a_missing_program_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With what to do about it."""
    monkeypatch.setenv("KAIDO_BINARY", str(tmp_path / "none"))
    with pytest.raises(MeasureError, match="which is no program"):
        find_binary()
    monkeypatch.delenv("KAIDO_BINARY")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MeasureError, match="make build"):
        find_binary()
    assert main(["search", "--frame", "128"]) == 2
