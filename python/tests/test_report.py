"""The report: one file, with everything in it, that a browser shows."""

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import model
import polars as pl
import pytest
from kaido import chapters, discoveries, figures, report, search
from kaido.compare import CompareError, compare, load, table
from kaido.flame import Flame, hottest, parse_folded, stage_of, stage_shares
from kaido.limits import Rows, directions, limit_of, scaling
from kaido.point import Point, Result, flatten
from kaido.statistic import is_told, regress, verdict
from kaido.sweep import Plan, Sweep, parse_plan
from rig import browser

FRAMES = (64, 128, 512, 1424)
PLAN = """
name = "model"
duration = 0.1
frames = [64, 128, 512, 1424]
[[grid]]
workers = [1, 2]
flows = ["single", "multi"]
udp_checksums = [false, true]
[[grid]]
workers = [2]
frames = [128]
queues = ["shared", "shared-ordered"]
[[grid]]
rates = ["4Gbit/s"]
[[grid]]
frames = [128]
workers = [2]
spreads = ["five-tuple"]
[[grid]]
ips = [6]
[[grid]]
datapaths = ["af_packet", "af_xdp"]
ips = [4, 6]
[[grid]]
frames = [128]
shapes = ["mixed", "tenant"]
[[skip]]
direction = "uplink"
udp_checksum = true
"""
FOLDED = (
    "kaido_bench::point::lane::drive;kaido_engine::worker::Worker::step;kaido_upf::path::Group::read 30\n"
    "kaido_bench::point::lane::drive;kaido_engine::worker::Worker::step;kaido_table::table::T::get_batch 50\n"
    "kaido_bench::point::lane::drive;kaido_engine::worker::Worker::step 20\n"
)
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"><rect width="9" height="9"/></svg>'


def _sweep(folder: Path, plan: Plan | None = None) -> pl.DataFrame:
    return Sweep(plan or parse_plan(PLAN), folder, model.result).run()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of the model with everything that may lie in its folder."""
    folder = tmp_path_factory.mktemp("sweep")
    _sweep(folder)
    for direction in ("uplink", "downlink"):
        point = Point(direction, 1424, flows="single")
        report.write_flame(folder, Flame(point, parse_folded(FOLDED), SVG))
    report.write_flame(folder, Flame(Point("downlink", 64), {}, "", "perf record: not permitted"))
    found = search.search_all(search.ModelMeasurer(8e6, ring=99), search.Limits(1e4, 1e8), 3e7, 9000, 2)
    (folder / "search-a.json").write_text(json.dumps(found | {"point": Point().columns()}))
    maps = [
        {
            "name": "LRU_PERCPU_HASH",
            "held": [{"written": 1000, "found": 700}],
            "found_after_rewriting": 650,
            "skipped": None,
        },
        {
            "name": "PERCPU_HASH, NO_PREALLOC",
            "held": [],
            "found_after_rewriting": None,
            "skipped": "Operation not permitted",
        },
        {
            "name": "Kaido's session table",
            "held": [{"written": 1000, "found": 1000}],
            "found_after_rewriting": 1000,
            "skipped": None,
        },
    ]

    def run(point: Point) -> Result:
        return model.result(point, 0.1)

    found = {
        "lru": {"sessions": 1000, "cpus": 2, "maps": maps},
        "spread": discoveries.spread(run, 2, 1000),
        "checksum": discoveries.checksum(run, 1000, FRAMES),
    }
    (folder / "discoveries.json").write_text(json.dumps(found))
    return folder


@pytest.fixture(scope="module")
def page(results: Path) -> Path:
    """The report of it."""
    out = results / "out" / "report.html"
    report.write(report.gather([results]), out, "kaido bench report RUN")
    return out


def test_a_report_is_one_file_that_fetches_nothing(page: Path) -> None:
    """No address but in the XML namespaces of pictures, no script, no style sheet of its own."""
    text = page.read_text()
    without_pictures = re.sub(r"data:image/[a-z+]+;base64,[A-Za-z0-9+/=]+", "", text)
    assert not re.search(r"https?://|<script|<link|@import|url\(", without_pictures)
    sources = re.findall(r'<(?:img|iframe|object|embed)[^>]*?(?:src|data)="(.{0,30})', text)
    assert sources and all(source.startswith("data:image/") for source in sources)


def test_a_report_has_every_chapter_and_picture(page: Path) -> None:
    """And a PNG beside it for each."""
    text = html.unescape(page.read_text())
    for name in (
        "throughput",
        "heat-map",
        "cpu-regression",
        "latency",
        "reordering",
        "energy",
        "stages",
        "lru",
        "spread",
    ):
        assert f'<figure id="{name}">' in text, name
        assert (page.with_suffix("") / f"{name}.png").read_bytes().startswith(b"\x89PNG"), name
    for words in (
        "Model CPU",
        "a model, no measurement",
        "perf_event_open of CPU cycles",
        "What limits each point",
        "NDR (no loss), MLRsearch",
        "no flame graph: perf record: not permitted",
        "LRU_PERCPU_HASH: 700 of 1000 sessions are there when all are written, 650 after",
        "PERCPU_HASH, NO_PREALLOC: not measured: Operation not permitted",
        "kaido bench point --frame 1424",
        "kaido bench report RUN",
        "Soak: 2 s",
    ):
        assert words in text, words


def test_a_report_says_what_rules_cost_beside_plain_sessions(page: Path, tmp_path: Path) -> None:
    """By the row of the same point with plain sessions; without any rules but those there is no chapter."""
    text = html.unescape(page.read_text())
    assert "Rules of sessions" in text and "65536 mixed sessions" in text
    assert re.search(r"A packet takes at most 1\.[34][0-9] times what it takes in plain ones", text)
    _sweep(tmp_path / "plain", parse_plan("frames = [128]"))
    out = tmp_path / "plain.html"
    report.write(report.gather([tmp_path / "plain"]), out, "kaido bench report RUN")
    assert "Rules of sessions" not in out.read_text()


def test_a_report_of_little_is_a_report(tmp_path: Path) -> None:
    """What was not measured is left out, or said."""
    _sweep(tmp_path, Plan("one", 0.1, points=(Point(),)))
    out = tmp_path / "r.html"
    report.write(report.gather([tmp_path / "sweep.parquet"]), out, "")
    text = html.unescape(out.read_text())
    for chapter in ("Latency", "Order", "Flame graphs", "Why uplink and downlink differ", "Datapaths"):
        assert f"<h2>{chapter}</h2>" not in text, chapter
    assert "cpu-regression" not in text and '<figure id="throughput">' in text


def test_each_chapter_has_one_headline_and_pictures_their_figures(page: Path) -> None:
    """Who looks at headlines alone knows what it comes to; who has a small screen reads the figures."""
    text = page.read_text()
    chapters = re.findall(r"<h2>(.*?)</h2>(<p class=\"headline\">(.+?)</p>)?", text)
    assert len(chapters) >= 9 and all(headline for _, _, headline in chapters), chapters
    assert len({headline for _, _, headline in chapters}) == len(chapters)
    assert text.count('class="headline"') == len(chapters)
    figures_of = text.split('<figure id="throughput">')[1].split("<figure")[0]
    assert "<summary>Its figures</summary>" in figures_of and "1 worker" in figures_of


def test_the_report_is_for_phones_and_for_the_dark(page: Path) -> None:
    """It says how wide it is, and has colours for both."""
    text = page.read_text()
    assert '<meta name="viewport" content="width=device-width' in text
    assert "prefers-color-scheme: dark" in text and "color-scheme: light dark" in text


def test_a_revision_is_named_or_said_to_be_unknown(page: Path, tmp_path: Path) -> None:
    """It is the program's, wherever the sweep was started."""
    assert "0123456789ab" in page.read_text()

    def run(point: Point, duration: float) -> Result:
        result = model.result(point, duration)
        result["machine"]["revision"] = "unknown"
        return result

    frame = Sweep(Plan("one", 0.1, points=(Point(),)), tmp_path, run).run()
    out = tmp_path / "r.html"
    report.write(report.Material(frame.with_columns(revision=pl.lit("unknown"))), out, "")
    assert "unknown: the program lay in no checkout" in out.read_text()


def test_what_the_length_does_not_explain_has_no_line() -> None:
    """A fit of r² 0.08 is no fit, in words and in the picture."""
    cloud = regress([64, 128, 256, 512, 1024], [50.0, 61.0, 47.0, 60.0, 55.0])
    assert cloud.r2 < 0.2 and not is_told(cloud)
    assert is_told(regress([64, 128, 256, 512], [50.0, 53.0, 59.0, 72.0]))
    points = [Point("uplink", frame, flows="single") for frame in (64, 128, 256, 512, 1024)]
    rows = []
    for point, ns in zip(points, (50.0, 61.0, 47.0, 60.0, 55.0), strict=True):
        rows.append(flatten(model.result(point, 0.1)) | {"ns_per_packet": ns} | point.columns())
    words = directions(Rows(pl.DataFrame(rows, infer_schema_length=None)))
    assert "no line" in words[0] and "more for each" not in words[0]
    figure = figures.cpu_regression(Rows(pl.DataFrame(rows, infer_schema_length=None)))
    assert figure is not None and not figure.axes[0].get_lines()


def test_throughput_above_pdr_has_a_remark() -> None:
    """Single trials may be lucky: what they give above PDR is not left to stand there."""
    bounds = {"lower_pps": 1.0e6, "upper_pps": 1.01e6}
    search_of = {"ndr": bounds, "pdr": bounds, "precision": 0.005}
    assert chapters.search_remarks(search_of | {"throughput_pps": 1.0e6}) == []
    assert chapters.search_remarks(search_of | {"throughput_pps": None}) == []
    remarks = chapters.search_remarks(search_of | {"throughput_pps": 1.2e6})
    assert len(remarks) == 2 and "above PDR" in remarks[1] and "Take PDR" in remarks[1]


def test_verdicts_have_one_rule() -> None:
    """What lies within its own noise is not resolved."""
    assert [verdict(d, 2.0) for d in (-215.0, -1.0, 0.0, 1.9, 2.1)] == [
        "less",
        "not resolved",
        "not resolved",
        "not resolved",
        "more",
    ]


#: Screens: a phone's and a desk's.
SCREENS = {"phone": (390, 844), "desk": (1280, 900)}
#: What a page finds out about itself: how wide it is, its background, and what is cut off at its edge.
PROBE = """
const outside = [...document.querySelectorAll('body *')].filter(element => {
  const box = element.getBoundingClientRect();
  return box.width && box.right > innerWidth + 1 && !element.closest('.wide, figure, pre, details');
});
const scrolls = [...document.querySelectorAll('.wide, figure, pre')].filter(element =>
  element.scrollWidth > element.clientWidth && getComputedStyle(element).overflowX !== 'auto');
const cells = [...document.querySelectorAll('.wide td')].filter(cell => cell.innerText.length > 40);
const images = [...document.images];
const open = images.filter(image => !image.closest('details'));
return {
  wide: document.documentElement.scrollWidth, window: innerWidth,
  outside: outside.map(element => element.tagName + ' ' + element.innerText.slice(0, 40)),
  scrolls: scrolls.length, images: images.length,
  broken: open.filter(image => !image.complete || !image.naturalWidth).length,
  narrow: Math.min(...cells.map(cell => cell.clientWidth)),
  background: getComputedStyle(document.body).backgroundColor,
  ink: getComputedStyle(document.body).color,
};
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_a_browser_shows_the_report(page: Path, tmp_path: Path, screen: str, dark: bool) -> None:
    """Chromium, headless: all pictures are there, nothing is wider than the screen or cut off by it."""
    absent = browser.missing()
    if absent:
        pytest.skip(absent)
    width, height = SCREENS[screen]
    shot = Path(__file__).parents[2] / "target" / "report" / f"{screen}-{'dark' if dark else 'light'}.png"
    with browser.browser(tmp_path) as shown:
        shown.open(page, width, height, dark)
        seen = shown.run(PROBE)
        shown.screenshot(shot, whole=True)
    assert seen["window"] == width and seen["wide"] <= width, seen
    assert seen["outside"] == [] and seen["scrolls"] == 0, seen
    assert seen["images"] >= 9 and seen["broken"] == 0, seen
    assert seen["narrow"] >= 200, "prose has lines, not columns of words"
    light = [sum(map(int, re.findall(r"\d+", seen[name])[:3])) for name in ("background", "ink")]
    assert (light[0] < light[1]) is dark, seen
    assert shot.stat().st_size > 50_000


def test_what_limits_a_point_is_said_of_its_own_figures(results: Path) -> None:
    """Checksum, memory, one busy worker, load, or the instructions."""
    rows = Rows(load(results))
    said = {point: limit_of(point, rows) for point, _ in rows.points()}
    assert "the UDP checksum: 76 of 1" in said[Point("downlink", 1424, flows="single", udp_checksum=True)]
    assert "memory: 25 of" in said[Point("uplink", 128)]
    assert said[Point("uplink", 128, flows="single")].startswith("instructions: 45 ns")
    assert "one worker: it has 100% of all packets" in said[Point("uplink", 128, 2, spread="five-tuple")]
    assert "tells them not apart" in said[Point("uplink", 128, 2, spread="five-tuple")]
    assert "order must hold" in said[Point("uplink", 128, 2, flows="single")]
    assert said[Point("uplink", 128, rate="4Gbit/s")].startswith("nothing: the load is 23% of what")
    links = said[Point("uplink", 128, datapath="af_xdp")]
    assert re.match(
        r"the sockets of the node: the worker has a packet in hand 100 % of the time, 6\d\d ns each, of "
        r"which the "
        r"user plane takes \d\d in memory",
        links,
    )
    assert limit_of(Point(frame=3600), rows) == "not measured"
    assert scaling(rows)[("uplink", 2)] == pytest.approx(2.0, rel=0.03)


def test_a_load_that_is_low_is_not_called_too_high() -> None:
    """What is lost far below full speed is lost while the worker stands still."""
    point = Point(rate="4Gbit/s")
    full, load = flatten(model.result(replace(point, rate="max"), 0.1)), flatten(model.result(point, 0.1))
    load |= {"lost": 7, "loss_ratio": 0.01, "latency_max_ns": 3.4e6}
    frame = pl.DataFrame(
        [row | own.columns() for row, own in ((full, replace(point, rate="max")), (load, point))],
        infer_schema_length=None,
    )
    said = limit_of(point, Rows(frame))
    assert "the machine: the load is 23% of" in said and "longest wait 3.4 ms" in said
    many = frame.with_columns(offered=pl.col("offered") * 10)
    assert limit_of(point, Rows(many)).startswith("the workers: more is offered than they take")


def test_results_from_before_there_were_axes_are_read(results: Path, tmp_path: Path) -> None:
    """They were measured over IPv4, in memory."""
    old = tmp_path / "old.parquet"
    pl.read_parquet(results / "sweep.parquet").drop("ip", "datapath", "shape").write_parquet(old)
    frame = load(old)
    assert frame["ip"].unique().to_list() == [4] and frame["datapath"].unique().to_list() == ["memory"]
    assert frame["shape"].unique().to_list() == ["plain"]


def test_the_difference_of_directions_is_put_in_words(results: Path) -> None:
    """The model's checksum costs 50 ns for each 1000 bytes; nothing else differs much."""
    words = directions(Rows(load(results)))
    assert len(words) == 4
    assert re.match(r"Downlink with UDP checksum: \d+ ns a packet and (49|5[01])\.\d ns more", words[2])
    assert "it is the checksum that makes downlink slower" in words[3]
    assert directions(Rows(load(results).filter(pl.col("frame") < 100))) == []


def test_stages_are_those_of_the_innermost_function() -> None:
    """Shares of all samples."""
    stacks = parse_folded(FOLDED + "a line without a count\n")
    shares = stage_shares(stacks)
    assert shares == {"look up the session": 0.5, "read headers and hash": 0.3, "receive and transmit": 0.2}
    assert stage_of("main;memmove") == "other"
    assert hottest(stacks, 1) == [("kaido_table::table::T::get_batch", 0.5)]
    assert stage_shares({}) == {} and hottest({}) == []


def test_a_change_is_told_from_noise(tmp_path: Path) -> None:
    """A tenth slower is worse, the same again is the same, and the exit code is for CI."""
    plan = replace(parse_plan(PLAN), points=parse_plan(PLAN).points[:8])
    frames = {}
    for name, factor in (("before", 1.0), ("same", 1.0001), ("slower", 1.1), ("faster", 0.8)):

        def run(point: Point, duration: float, factor: float = factor) -> Result:
            return model.result(point, duration, factor)

        frames[name] = Sweep(plan, tmp_path / name, run).run()
    for name, wanted in (("same", "same"), ("slower", "worse"), ("faster", "better")):
        changes = compare(frames["before"], frames[name])
        assert [change.verdict for change in changes] == [wanted] * 8, name
    text = table(compare(frames["before"], frames["slower"]))
    assert "8 worse, 0 better, 0 the same" in text and "+10." in text
    with pytest.raises(CompareError, match="no point in common"):
        compare(frames["before"], frames["same"].with_columns(sessions=pl.lit(3)))
    with pytest.raises(CompareError, match="different machines"):
        compare(frames["before"], frames["same"].with_columns(cpu_model=pl.lit("Other")))
    with pytest.raises(CompareError, match="no results of a sweep"):
        load(tmp_path)


def _platform(name: str, pps: float | None, skipped: str | None = None) -> dict[str, Any]:
    latency: dict[str, Any] = {f"{part}_ns": 1000 for part in ("min", "p50", "p90", "p99", "p999", "max")}
    latency |= {"packets": 4, "buckets": [[900, 999, 3], [1000, 1100, 1]]}
    throughput: dict[str, Any] = {
        "pps": pps,
        "flood_pps": 1e6,
        "lost": 0,
        "byte_ratio": 20 / 23,
        "cpu_ns": 10.0,
        "l2_gbps": 0.5,
    }
    throughput |= {"watts": 1.0, "microjoules": 2.0, "energy_source": "model"}
    return {
        "kind": {"engine, AF_XDP": "af_xdp"}.get(name, "xdp_native"),
        "name": name,
        "skipped": skipped,
        "throughput": throughput,
        "latency": [None, None] if skipped else [latency, latency],
        "judgement": {"good": ["rate without loss: among the best"], "bad": []},
    }


def test_platforms_have_a_chapter_or_a_report_of_their_own(tmp_path: Path) -> None:
    """With what was measured, what was not and why, and what each is good for."""
    summary = {"median": 10.0, "spread": 1.0, "min": 9.0, "max": 11.0}
    memory: dict[str, Any] = {f"{name}_ns": summary for name in ("warm", "cold", "bare_warm", "bare_cold")}
    found = {
        "kind": "platforms",
        "machine": {"cpu": "a CPU", "cores": 2, "kernel": "6.1"},
        "frame_bytes": [92, 100],
        "latency_pps": 2000.0,
        "byte_ratio": 20 / 23,
        "memory": memory | {"warm_packets": 512, "cold_packets": 32768},
        "fpga": {
            "clock_mhz": 322.0,
            "cores": [
                {"core": "gre_decap", "bits": 256, "frame_bytes": 92.0, "clocks": 2.875, "latency_clocks": 3}
            ],
            "skipped": None,
        },
        "platforms": [
            _platform("engine, AF_XDP", 5e5),
            _platform("XDP native", None, "no driver"),
            _platform("cable", 9e5) | {"kind": "cable"},
        ],
        "added": [
            {
                "name": "engine, AF_XDP",
                "median_us": [{"median": 0.5, "spread": 0.1}, {"median": 0.25, "spread": 0.1}],
                "verdict": "met",
            },
            {
                "name": "engine, AF_PACKET",
                "median_us": [{"median": -215.81, "spread": 227.58}, {"median": 1.0, "spread": 0.1}],
                "verdict": "not_resolved",
            },
        ],
        "skipped": None,
    }
    (tmp_path / "platforms.json").write_text(json.dumps(found))
    out = tmp_path / "report.html"
    report.write(report.gather([tmp_path / "platforms.json"]), out, "kaido bench report")
    text = out.read_text()
    for part in (
        "0.8695652174",
        "0.50",
        "engine, AF_XDP has the highest rate without loss: 0.500 Mpps",
        "adds 0.50 µs",
        "322 MHz is assumed",
        "gre_decap",
        "112",
        "adds -215.81 µs (± 227.58)",
        "not resolved: it lies within the noise",
        "XDP native: not measured: no driver",
        "among the best",
    ):
        assert part in text, part
    assert (tmp_path / "report" / "platforms-latency-0.png").exists()
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="no comparison of platforms"):
        report.gather([tmp_path / "other.json"])


def test_a_comparison_of_user_planes_says_what_the_kernel_took(tmp_path: Path) -> None:
    """Of a shape, and of plain sessions in a file that names none."""
    taken = {"all": 7, "some": 2, "none": 1, "left": [["a QER guarantees a rate", 3]]}
    found: dict[str, Any] = {
        "kind": "platforms",
        "function": "upf",
        "machine": {"cpu": "a CPU", "cores": 2, "kernel": "6.1"},
        "frame_bytes": [64, 64],
        "payload_bytes": [22, 1450],
        "sessions": 10,
        "shape": "mixed",
        "latency_pps": 2000.0,
        "memory": None,
        "fpga": {"clock_mhz": 322.0, "cores": [], "skipped": "no verilator"},
        "platforms": [
            _platform("engine, AF_XDP", 5e5) | {"throughput_long": None},
            _platform("XDP native", 6e5) | {"throughput_long": None, "kernel": taken},
        ],
        "added": [],
        "skipped": None,
    }
    out = tmp_path / "report.html"
    for shape, said in (("mixed", "10 mixed sessions"), (None, "10 plain sessions")):
        (tmp_path / "platforms.json").write_text(json.dumps(found | {"shape": shape}))
        report.write(report.gather([tmp_path / "platforms.json"]), out, "kaido bench report")
        text = html.unescape(out.read_text())
        assert said in text and "7, 2, 1" in text
        assert "leaves packets of 3 sessions to a worker: a QER guarantees a rate" in text
        assert "fpga-model: not measured: no verilator" in text
