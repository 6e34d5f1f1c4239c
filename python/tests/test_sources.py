"""Our figures beside those of public accounts."""

import json
from pathlib import Path

import model
import polars as pl
import pytest
from kaido import compare, report, sources
from kaido.__main__ import main
from kaido.point import Point
from kaido.sweep import Plan, Sweep

MICRO = {
    "machine": {"cpu": "a CPU", "cores": 2, "kernel": "6.18"},
    "run": {"rounds": 7, "packets_per_round": 32768},
    "results": [],
    "skipped": [],
    "xdp_map_chain": [{"sessions": 1048576, "offload_ns": 100.0}],
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


THROUGHPUT = {"pps": 4e5, "l2_gbps": 0.29}
UPF = {
    "kind": "platforms",
    "function": "upf",
    "platforms": [
        {
            "kind": "dpdk",
            "skipped": None,
            "throughput": THROUGHPUT,
            "throughput_long": None,
            "judgement": {"bad": ["long payloads: net_af_packet takes frames of 1518 bytes at most"]},
        },
        {"kind": "af_xdp", "skipped": None, "throughput": THROUGHPUT, "throughput_long": THROUGHPUT},
        {"kind": "xdp_native", "skipped": "no driver", "throughput": {}, "throughput_long": None},
        {
            "kind": "xdp_generic",
            "skipped": None,
            "throughput": {"pps": None},
            "throughput_long": {"pps": None},
        },
    ],
}
STREAM = {"sent": 10, "received": 10, "lost": 0, "wrong": 0, "l2_gbps": 0.25}
PGW_U = {
    "kind": "pgw_u",
    "driver": "af_xdp",
    "datapath": "engine",
    "tenants": 1000,
    "peers": 100,
    "attached": {"sessions": 1000000, "attach_s": 24.0, "resident_bytes": 1 << 30},
    "clean": {"received_pps": 250e3, "streams": {"uplink": STREAM, "downlink": STREAM}},
}


def _found(folder: Path) -> sources.Measured:
    Sweep(Plan("one", 0.1, points=(Point("uplink", 1424),)), folder, model.result).run()
    for name, found in (("micro", MICRO), ("upf-platforms", UPF), ("pgw-u", PGW_U)):
        (folder / f"{name}.json").write_text(json.dumps(found))
    return sources.gather([folder], compare.load)


def test_every_figure_of_a_source_stands_beside_ours_or_the_command_for_it(tmp_path: Path) -> None:
    """And what is simulated, or was not measured, is not shown as measured."""
    measured = _found(tmp_path)
    source = sources.SOURCES[0]
    table = {row[0]: row[1:] for row in sources.rows(source, measured)}
    assert source.header()[1:4] == ("DPDK server", "switch ASIC", "switch ASIC and FPGA")
    assert table["session add"][2:4] == ["138 µs", "10.0 µs: 100 k a second, one thread, rules compiled"]
    assert table["lookup latency"][3].startswith("100 ns in the table")
    assert table["sessions"][3] == "16640000 tried, 480 bytes each"
    assert "10.0 Mpps a core" in table["the same in the kernel, XDP, no driver"][3]
    long = table["throughput, 1450-byte payload"]
    assert long[:3] == ["233 Gbit/s", "1576 Gbit/s", "not measurable (beta)"]
    assert "Gbit/s (1 worker, uplink, 1424-byte frames)" in long[3] and "no NIC" in long[5]
    assert table["throughput, 22-byte payload"][3:5] == [
        "not measured here",
        "kaido bench sweep -c bench/upf.toml",
    ]
    assert table["power at 1.6 Tbit/s, and Gbit/s for a watt"][3] == "not measured here", "a model is none"


def test_the_user_plane_of_each_platform_stands_below_each_payload(tmp_path: Path) -> None:
    """With its figure, or why there is none."""
    found = sources.rows(sources.SOURCES[0], _found(tmp_path))
    names = [row[0] for row in found]
    short = {row[0].strip(): row[4:] for row in found[names.index("throughput, 22-byte payload") :]}
    long = {row[0].strip(): row[4:] for row in reversed(found[: names.index("throughput, 22-byte payload")])}
    figure = "0.29 Gbit/s, 0.400 Mpps without loss"
    assert short["DPDK (net_af_packet)"][:2] == [figure, "measured"]
    assert long["DPDK (net_af_packet)"][0].endswith("takes frames of 1518 bytes at most")
    assert long["DPDK (net_af_packet)"][1] == "kaido bench platforms --function upf --json upf.json"
    assert long["AF_XDP"][0] == figure and "veth" in long["AF_XDP"][2]
    assert short["XDP in the driver"][0] == "not measured: no driver"
    assert short["XDP, generic"][:2] == ["loss at every rate tried", "measured"]
    assert short["AF_PACKET"][0] == "not measured here"


def test_watts_are_those_of_rapl(tmp_path: Path) -> None:
    """What the bench's model says is no figure beside a measured one."""
    measured = _found(tmp_path)
    assert measured.frame is not None
    frame = measured.frame.with_columns(energy_source=pl.lit("rapl"))
    rapl = sources.rows(sources.SOURCES[0], sources.Measured(frame))
    assert any("W (RAPL, in memory)" in row[4] for row in rapl)


def test_the_scenario_of_the_pgw_u_has_its_figure(tmp_path: Path) -> None:
    """The whole of source C: bearers, tenants and SGWs, and what comes back without loss."""
    measured = _found(tmp_path)
    table = {row[0]: row[2] for row in sources.rows(sources.SOURCES[2], measured)}
    assert table["the whole scenario"] == (
        "1000000 bearers, 1000 tenants, 100 SGWs: attached in 24 s, 1024 MiB resident"
    )
    rate = table["its throughput, packets of 128 to 1424 bytes"]
    assert rate == "0.50 Gbit/s, 250 kpps without loss (af_xdp, engine, both directions)"


def test_every_row_is_whole(tmp_path: Path) -> None:
    """And what is simulated, or was not measured, is not shown as measured."""
    measured = _found(tmp_path)
    shared = sources.rows(sources.SOURCES[1], measured)
    assert "9.50 Mpps" in shared[1][2] and shared[2][2] == "not measured here"
    assert all(
        len(row) == len(source.header())
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
    assert all(len(row) == len(table["header"]) for table in tables.values() for row in table["rows"])
    assert {row[-3] for table in tables.values() for row in table["rows"]} == {"not measured here"}
    assert main(["sources", str(tmp_path / "none")]) == 2
    (tmp_path / "upf-platforms.json").unlink()
    out = tmp_path / "r.html"
    report.write(report.gather([tmp_path]), out, "")
    assert "<h2>Beside the sources</h2>" in out.read_text()
    (tmp_path / "micro.json").unlink()
    (tmp_path / "sweep.parquet").rename(tmp_path / "other.parquet")
    report.write(report.gather([tmp_path / "other.parquet"]), out, "")
    assert "Beside the sources" in out.read_text(), "a sweep has some"
