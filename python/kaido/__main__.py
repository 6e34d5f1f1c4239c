"""The commands behind ``kaido bench``: sweep, search, report, compare, discoveries, sources."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from kaido import compare, discoveries, flame, report, search, sources, sweep
from kaido.metrics import Exposition, serve
from kaido.point import (
    DATAPATHS,
    DIRECTIONS,
    SHAPES,
    MeasureError,
    Point,
    Result,
    find_binary,
    measure,
    pps_of,
)
from kaido.running import RunMeasurer


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code says how it went."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except (MeasureError, sweep.PlanError, compare.CompareError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; `kaido bench sweep` goes on where it ended", file=sys.stderr)
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kaido bench", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _sweep_arguments(commands)
    _search_arguments(commands)

    one = _command(commands, "report", "write one self-contained HTML file of sweeps' results")
    one.add_argument("results", nargs="+", type=Path, help="folders of sweeps, or their Parquet files")
    one.add_argument(
        "-o", "--output", type=Path, default=Path("report.html"), help="the file; its PNGs lie beside it"
    )
    one.set_defaults(run=_report)

    one = _command(
        commands, "compare", "say what differs between two sweeps; exit code 1 when something is worse"
    )
    one.add_argument("before", type=Path, help="folder of a sweep, or its Parquet file")
    one.add_argument("after", type=Path, help="another of the same points and machine")
    one.add_argument(
        "--threshold",
        type=float,
        default=compare.THRESHOLD,
        help="smallest change of a median that counts",
    )
    one.add_argument("--json", action="store_true", help="print JSON")
    one.set_defaults(run=_compare)

    one = _command(
        commands, "discoveries", "LRU maps, hashing blind for the TEID, checksums; into a sweep's folder"
    )
    one.add_argument(
        "-o", "--output", type=Path, required=True, help="folder; a report of it has a chapter for them"
    )
    one.add_argument("--sessions", type=int, default=1_000_000, help="sessions, and entries of the maps")
    one.add_argument("--workers", type=int, default=2, help="workers among which packets are spread")
    one.add_argument("--duration", type=float, default=0.3, help="seconds of each point")
    one.set_defaults(run=_discoveries)

    one = _command(commands, "sources", "our figures beside those of public accounts of such systems")
    one.add_argument(
        "results",
        nargs="*",
        type=Path,
        help="results as JSON (micro, platforms, ndn, discoveries), sweeps, and folders with them",
    )
    one.add_argument("--json", action="store_true", help="print JSON")
    one.set_defaults(run=_sources)
    return parser


_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Help with the default of each option that has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False) else super()._get_help_string(action)


def _command(commands: _Commands, name: str, about: str) -> argparse.ArgumentParser:
    """Add a command that says what it does, in the list of them all and in its own help."""
    return commands.add_parser(
        name,
        help=about,
        description=f"{about[0].upper()}{about[1:]}.",
        formatter_class=_Help,
    )


def _sweep_arguments(commands: _Commands) -> None:
    one = _command(commands, "sweep", "measure many points; goes on where it ended")
    one.add_argument("-c", "--config", type=Path, required=True, help="sweep.toml: docs/sweep.md")
    one.add_argument("-o", "--output", type=Path, help="folder of the results (default: bench-results/NAME)")
    one.add_argument("--pushgateway", metavar="URL", help="push each point to a Prometheus Pushgateway")
    one.add_argument("--metrics", metavar="HOST:PORT", help="serve /metrics while the sweep runs")
    one.set_defaults(run=_sweep)


def _search_arguments(commands: _Commands) -> None:
    one = _command(commands, "search", "NDR and PDR, throughput, latency under load, back-to-back, soak")
    one.add_argument(
        "-c",
        "--config",
        type=Path,
        help="search the device that a file of `kaido bench run` leads to, instead",
    )
    one.add_argument("--direction", choices=DIRECTIONS, default="uplink", help="as seen by the UE")
    one.add_argument("--frame", type=int, default=128, help="bytes of a frame, without FCS")
    one.add_argument("--workers", type=int, default=1, help="workers, each with a queue of its own")
    one.add_argument("--sessions", type=int, default=65536, help="sessions that the packets are of")
    one.add_argument("--shape", choices=SHAPES, default="plain", help="their rules and QoS flows")
    one.add_argument("--udp-checksum", action="store_true", help="compute the outer UDP checksum downlink")
    one.add_argument(
        "--ip", type=int, choices=(4, 6), default=4, help="IP version of tunnel and user packets"
    )
    one.add_argument(
        "--datapath", choices=DATAPATHS, default="memory", help="by what packets come; over links as root"
    )
    one.add_argument("--ring", type=int, default=4096, help="packets that wait for a worker at most")
    one.add_argument(
        "--clock", choices=("cpu", "wall"), default="cpu", help="whether what others had of the CPU counts"
    )
    one.add_argument("--link", type=float, default=100.0, help="Gbit/s of the link for bursts")
    one.add_argument("--trial", type=float, default=0.5, help="seconds of a trial")
    one.add_argument("--duration-sum", type=float, default=2.0, help="seconds that decide about a load")
    one.add_argument("--precision", type=float, default=search.PRECISION, help="of the rates that are found")
    one.add_argument("--soak", type=float, default=0.0, help="seconds at 90 %% of NDR, 0 for none")
    one.add_argument("-o", "--output", type=Path, help="folder of a sweep: its report shows the search")
    one.set_defaults(run=_search)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _sweep(options: argparse.Namespace) -> int:
    plan = sweep.read_plan(options.config)
    over_links = sorted({point.datapath for point in plan.points} - {"memory"})
    if over_links and os.geteuid() != 0:
        raise MeasureError(
            f"{options.config}: datapaths = {', '.join(over_links)} make links over veth: run it as root, "
            f"or take memory"
        )
    binary = find_binary()
    folder = options.output or Path("bench-results") / plan.name
    exposition = Exposition()
    server = None
    if options.metrics:
        host, _, port = options.metrics.rpartition(":")
        if not host or not port.isdigit():
            raise MeasureError(f"--metrics {options.metrics}: give HOST:PORT")
        server = serve(exposition, host, int(port))

    def run(point: Point, duration: float) -> Result:
        return measure(point, binary, duration)

    try:
        run_sweep = sweep.Sweep(plan, folder, run, sys.stderr, options.pushgateway, exposition)
        frame = run_sweep.run()
        if plan.flame > 0:
            _flames(plan, folder, binary)
    finally:
        if server:
            server.shutdown()
    print(f"{len(frame)} results in {folder / 'sweep.parquet'}")
    return 0


def _flames(plan: sweep.Plan, folder: Path, binary: Path) -> None:
    """Profile the points at full speed that have no profile yet; at a rate there is little but waiting."""
    points = [point for point in plan.points if point.rate == "max"]
    left = [point for point in points if not (folder / "flames" / f"{point.key()}.json").exists()]
    for number, point in enumerate(left, 1):
        profile = flame.record(point, binary, plan.flame)
        report.write_flame(folder, profile)
        _tell(
            f"[{number}/{len(left)}] flame graph: "
            f"{point.label()}{': ' + profile.reason if profile.reason else ''}"
        )


def _search(options: argparse.Namespace) -> int:
    point = Point(
        direction=options.direction,
        frame=options.frame,
        workers=options.workers,
        sessions=options.sessions,
        shape=options.shape,
        udp_checksum=options.udp_checksum,
        ring=options.ring,
        clock=options.clock,
        ip=options.ip,
        datapath=options.datapath,
    )
    binary = find_binary()
    measurer: search.Measurer
    about: dict[str, Any]
    if options.config:
        device = RunMeasurer(options.config, binary, _tell)
        fastest, sent = device.fastest(options.trial)
        measurer, name, about = device, options.config.stem, {"device": str(options.config)}
    else:
        result = measure(point, binary, options.trial)
        fastest, sent = result["pps"], result["point"]["frame_bytes_sent"]
        measurer, name = search.PointMeasurer(point, binary, _tell), point.key()
        about = {"point": point.columns()}
    limits = search.Limits(
        min_pps=min(1000.0, fastest / 10),
        max_pps=2.0 * fastest,
        trial=options.trial,
        duration_sum=options.duration_sum,
        precision=options.precision,
    )
    found = search.search_all(
        measurer, limits, pps_of(options.link, sent), max(1000, int(fastest / 2)), options.soak
    )
    found |= about
    text = json.dumps(found, indent=1)
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / f"search-{name}.json").write_text(text + "\n")
    print(text)
    return 0


def _report(options: argparse.Namespace) -> int:
    material = report.gather(options.results)
    words = ["kaido", "bench", "report", *map(str, options.results), "-o", str(options.output)]
    report.write(material, options.output, shlex.join(words))
    print(f"{options.output}; pictures in {options.output.with_suffix('')}{os.sep}")
    return 0


def _compare(options: argparse.Namespace) -> int:
    changes = compare.compare(compare.load(options.before), compare.load(options.after), options.threshold)
    print(json.dumps(compare.as_rows(changes), indent=1) if options.json else compare.table(changes))
    return 1 if any(change.verdict == "worse" for change in changes) else 0


def _sources(options: argparse.Namespace) -> int:
    missing = [str(path) for path in options.results if not path.exists()]
    if missing:
        raise MeasureError(f"{', '.join(missing)}: there is no such file or folder")
    measured = sources.gather(options.results, compare.load)
    if options.json:
        tables = {
            source.key: {"header": source.header(), "rows": sources.rows(source, measured)}
            for source in sources.SOURCES
        }
        print(json.dumps({"sources": tables}, indent=1, ensure_ascii=False))
    else:
        print(sources.text(measured))
    return 0


def _discoveries(options: argparse.Namespace) -> int:
    found = discoveries.discover(find_binary(), options.sessions, options.workers, options.duration, _tell)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "discoveries.json").write_text(json.dumps(found) + "\n")
    for one in found["lru"]["maps"]:
        last = one["held"][-1] if one["held"] else None
        print(
            f"{one['name']}: {last['found']} of {last['written']} sessions"
            if last
            else f"{one['name']}: {one['skipped']}"
        )
    for entry in found["spread"]:
        shares = entry["row"]["worker_packets"]
        print(f"{entry['point']['direction']} by {entry['point']['spread']}: {shares} packets by worker")
    for row in found["checksum"]:
        print(f"downlink {row['frame']} B: without checksum {row['gain_gbps']:+.2f} Gbit/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
