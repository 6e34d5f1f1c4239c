"""Sweeps: what their files say, and that a killed one goes on."""

import io
import json
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import model
import polars as pl
import pytest
from kaido.metrics import Exposition, escape, push, serve
from kaido.point import MeasureError, Point, Result
from kaido.sweep import AXES, Plan, PlanError, Sweep, parse_plan, read_plan

ROOT = Path(__file__).parents[2]

GOOD = """
name = "small"
duration = 0.25
repeats = 2
frames = [64, 1424]
[[grid]]
directions = ["uplink", "downlink"]
udp_checksums = [false, true]
[[grid]]
rates = ["2 Mpps"]
frames = 128
[[skip]]
direction = "uplink"
udp_checksum = true
"""


def test_a_plan_is_the_product_of_its_axes_less_what_is_skipped() -> None:
    """Each grid by itself; what is not given is as at the top, or as usual."""
    plan = parse_plan(GOOD)
    assert (plan.name, plan.duration, plan.repeats) == ("small", 0.25, 2)
    grids = [point for point in plan.points if point.rate == "max"]
    assert len(grids) == 2 + 4
    assert not any(point.direction == "uplink" and point.udp_checksum for point in plan.points)
    rated = [point for point in plan.points if point.rate == "2Mpps"]
    assert {(point.direction, point.frame) for point in rated} == {("uplink", 128), ("downlink", 128)}


def test_the_sweeps_of_the_repository_are_good() -> None:
    """The file of `make bench` among them."""
    # A file with ports is one stream's, for `kaido bench run`.
    files = [file for file in sorted((ROOT / "bench").glob("*.toml")) if "[[port]]" not in file.read_text()]
    assert ROOT / "bench" / "upf.toml" in files
    for file in files:
        assert read_plan(file).points


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        ('frames = [64, 63, "big"]', [":1: frames: 63 is not 64 to 3600", ':1: frames: "big" is not']),
        ("\nframs = [64]", [":2: frams: there is no such field; there are"]),
        ("[[grid]]\nworkers = [1]\n[[grid]]\n\nworkers = [0]", [":5: grid[1].workers: 0 is not 1 to 64"]),
        ("ips = [4, 5, true]", [":1: ips: 5 is not 4 or 6", ":1: ips: true is not 4 or 6"]),
        ('datapaths = "dpdk"', [':1: datapaths: "dpdk" is not memory, af_packet or af_xdp']),
        ("workers = [true]", [":1: workers: true is not 1 to 64"]),
        ("udp_checksums = [1]", [":1: udp_checksums: 1 is not true or false"]),
        ('rates = ["fast"]', [':1: rates: "fast" is not max, or a rate']),
        (
            "duration = 0\nrepeats = 1.5",
            [":1: duration: 0 is not a number", ":2: repeats: 1.5 is not a whole"],
        ),
        ('[[skip]]\nway = "up"', [":2: skip[0].way: a point has no such field"]),
        (
            '[[skip]]\nworkers = 1\ndirection = "up"',
            [':3: skip[0].direction: "up" is not uplink or downlink'],
        ),
        (
            'workers = [1, 2]\n[[grid]]\ndatapaths = ["af_xdp"]\nframes = 3500',
            [
                ":3: grid[0].datapaths: links over veth have one queue",
                ":3: grid[0].datapaths: over links a frame has at most 3400",
            ],
        ),
        ("[[skip]]", [":1: skip[0].: an empty filter"]),
        ('[[skip]]\nqueue = "rss"', ["every point is skipped"]),
        ("frames = []", [":1: frames: no value"]),
        ("name = 7", [":1: name: 7 is not a name"]),
        ("frames = [64", [":1: "]),
        ("grid = 3", [":1: grid: write [[grid]]"]),
    ],
)
def test_every_mistake_is_told_with_its_line_and_field(text: str, mistakes: list[str]) -> None:
    """All at once, not one a run."""
    with pytest.raises(PlanError) as caught:
        parse_plan(text, "s.toml")
    assert len(caught.value.mistakes) == len(mistakes), caught.value.mistakes
    for found, wanted in zip(caught.value.mistakes, mistakes, strict=True):
        assert found.startswith("s.toml:") and wanted in found, found


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With the system's own words."""
    with pytest.raises(PlanError, match=r"none\.toml: cannot be read"):
        read_plan(tmp_path / "none.toml")


def test_points_have_names_of_their_own_and_arguments() -> None:
    """A file for each; the program takes what is written there."""
    points = parse_plan(GOOD).points
    assert len({point.key() for point in points}) == len(points)
    assert all(set(point.key()) <= set("abcdefghijklmnopqrstuvwxyzBM0123456789-_.") for point in points)
    arguments = Point("downlink", 64, udp_checksum=True, rate="10Gbit/s").arguments()
    assert arguments[:2] == ["--direction", "downlink"]
    assert "--udp-checksum" in arguments and "10Gbit/s" in arguments
    assert "--udp-checksum" not in Point().arguments()
    assert Point(ring=64, clock="wall").key().endswith("-ring64-wall")


class _Killed(Exception):
    pass


def _plan(count: int = 4) -> Plan:
    return Plan("test", 0.1, points=tuple(Point(frame=64 + 64 * at) for at in range(count)))


def test_a_killed_run_goes_on_where_it_ended(tmp_path: Path) -> None:
    """What is measured is not measured again; the results are the same as of one run."""
    measured: list[Point] = []

    def run(point: Point, duration: float) -> Result:
        if len(measured) == 2:
            raise _Killed
        measured.append(point)
        return model.result(point, duration)

    sweep = Sweep(_plan(), tmp_path, run)
    with pytest.raises(_Killed):
        sweep.run()
    assert not (tmp_path / "sweep.parquet").exists()
    began = json.loads((tmp_path / "run.json").read_text())
    second: list[Point] = []

    def rest(point: Point, duration: float) -> Result:
        second.append(point)
        return model.result(point, duration)

    told = io.StringIO()
    frame = Sweep(_plan(), tmp_path, rest, told).run()
    assert measured + second == list(_plan().points)
    assert "2 of 4 points are there already" in told.getvalue()
    assert "left" in told.getvalue() and "Mpps" in told.getvalue()
    assert frame["run_id"].unique().to_list() == [began["run_id"]]
    stored = pl.read_parquet(tmp_path / "sweep.parquet")
    assert stored.equals(frame) and len(stored) == 4
    for name in ("run_id", "action", "frame", "duration", "git_revision", "host", "kernel"):
        assert name in stored.columns


def test_a_folder_of_another_sweep_is_refused(tmp_path: Path) -> None:
    """Points of different durations are not of one sweep."""
    Sweep(_plan(1), tmp_path, model.result).run()
    with pytest.raises(PlanError, match=r"run\.json: the results there have duration = 0\.1, not 0\.2"):
        Sweep(Plan("test", 0.2, points=_plan(1).points), tmp_path, model.result).run()


def test_a_point_that_fails_does_not_end_the_sweep(tmp_path: Path) -> None:
    """The others are kept, and the failure is told at the end."""

    def run(point: Point, duration: float) -> Result:
        if point.frame == 128:
            raise MeasureError("no memory")
        return model.result(point, duration)

    with pytest.raises(MeasureError, match=r"1 of 4 points failed:\nuplink, 128 B.*no memory"):
        Sweep(_plan(), tmp_path, run).run()
    assert len(pl.read_parquet(tmp_path / "sweep.parquet")) == 3


def test_results_can_be_scraped_and_are_pushed(tmp_path: Path) -> None:
    """Labels as a run has them; the gateway gets a group for each point."""
    taken: list[tuple[str, str]] = []

    class Gateway(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            taken.append((self.path, body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    gateway = HTTPServer(("127.0.0.1", 0), Gateway)
    Thread(target=gateway.serve_forever, daemon=True).start()
    exposition = Exposition()
    server = serve(exposition, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{gateway.server_port}"
    Sweep(_plan(2), tmp_path, model.result, None, address, exposition).run()
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    assert "kaido_bench_points_done 2" in text
    lines = [line for line in text.splitlines() if line.startswith("kaido_bench_packets_per_second{")]
    assert len(lines) == 2 and 'frame_size="64"' in lines[0] and 'action="test"' in lines[0]
    assert text.count("# TYPE kaido_bench_packets_per_second") == 1
    assert len(taken) == 2
    assert taken[0][0].startswith("/metrics/job/kaido_bench/run_id/") and "/point/uplink-64B" in taken[0][0]
    assert "kaido_bench_l2_bits_per_second{" in taken[0][1]
    gateway.shutdown()
    server.shutdown()


def test_a_gateway_that_is_not_there_is_told() -> None:
    """A sweep goes on without it."""
    assert "127.0.0.1:9 cannot be reached" in (push("http://127.0.0.1:9", {"a": "b"}, "") or "")
    assert "not the address of a Pushgateway" in (push("file:///etc", {"a": "b"}, "") or "")
    assert escape('a"b\\c\n') == 'a\\"b\\\\c\\n'


def test_every_axis_is_a_field_of_a_point() -> None:
    """What a file can vary is what a point has."""
    assert {name for name, _, _ in AXES.values()} <= set(Point.__dataclass_fields__)
