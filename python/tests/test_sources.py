"""Our figures beside those of public accounts."""

import json
from pathlib import Path

import model
import pytest
from kaido import report, sources
from kaido.__main__ import main
from kaido.point import Point
from kaido.sweep import Plan, Sweep

MICRO = {
    "xdp_map_chain": [{"sessions": 1048576, "fast_path_ns": 100.0}],
    "sessions": [
        {
            "sessions": 16640000,
            "bytes_per_session": 480.0,
            "establish_per_second": 1e5,
            "modify_per_second": 1e5,
            "delete_per_second": 2e5,
        }
    ],
    "tables": [{"writers": 1, "keys": 1000, "lookups_per_second": 1e7}],
    "shared_queue": [
        {"workers": 2, "mode": "ordered", "mpps": 9.5, "reordered": 0, "simulated": False},
        {"workers": 4, "mode": "ordered", "mpps": 19.0, "reordered": 0, "simulated": True},
    ],
}


def _found(folder: Path) -> sources.Measured:
    Sweep(Plan("one", 0.1, points=(Point("uplink", 1424),)), folder, model.result).run()
    (folder / "micro.json").write_text(json.dumps(MICRO))
    return report.gather([folder]).measured


def test_every_figure_of_a_source_stands_beside_ours_or_the_command_for_it(tmp_path: Path) -> None:
    """And what is simulated, or was not measured, is not shown as measured."""
    measured = _found(tmp_path)
    table = {row[0]: row for row in sources.rows(sources.SOURCES[0], measured)}
    assert table["session add"][1:3] == ["138 µs", "10.0 µs: 100 k a second, one thread, rules compiled"]
    assert table["lookup latency"][2].startswith("100 ns in the table")
    assert table["sessions"][2] == "16640000 tried, 480 bytes each"
    assert "10.0 Mpps a core" in table["the same in the kernel, XDP"][2]
    assert "Gbit/s (1 workers, uplink, 1424-byte frames)" in table["throughput, 1450-byte payload, DPDK"][2]
    assert table["throughput, 22-byte payload, DPDK"][2:] == [
        "not measured here",
        "kaido bench sweep -c bench/upf.toml",
    ]
    assert "hardware" in table["energy, switch with FPGA"][3]
    shared = sources.rows(sources.SOURCES[1], measured)
    assert "9.50 Mpps" in shared[1][2] and shared[2][2] == "not measured here"
    assert all(
        len(row) == len(sources.HEADER)
        for source in sources.SOURCES
        for row in sources.rows(source, measured)
    )


def test_the_command_and_the_report_show_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both from the same results; without any, the commands that make them."""
    _found(tmp_path)
    assert main(["sources", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "A. UPF on offload hardware" in text and "138 µs" in text and "10.0 µs" in text
    assert main(["sources", "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)["sources"]
    assert set(tables) == set("ABCDE")
    assert {row[2] for rows in tables.values() for row in rows} == {"not measured here"}
    assert main(["sources", str(tmp_path / "none")]) == 2
    out = tmp_path / "r.html"
    report.write(report.gather([tmp_path]), out, "")
    assert "<h2>Beside the sources</h2>" in out.read_text()
    (tmp_path / "micro.json").unlink()
    (tmp_path / "sweep.parquet").rename(tmp_path / "other.parquet")
    report.write(report.gather([tmp_path / "other.parquet"]), out, "")
    assert "Beside the sources" in out.read_text(), "a sweep has some"
