"""Many points: what a file asks for, measured one after the other, kept one by one.

A sweep writes into one folder::

    RUN/run.json            labels of the run: id, action, duration, git revision, host, kernel, machine
    RUN/points/KEY-rN.json  each point as the program gave it, written when it was measured
    RUN/sweep.parquet       all of them, a row for each

A run that was killed goes on where it ended: points that are there are not measured again.
"""

from __future__ import annotations

import itertools
import json
import platform
import re
import socket
import subprocess
import time
import tomllib
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TextIO

import polars as pl

from kaido.metrics import Exposition, push
from kaido.point import DATAPATHS, FRAMES, LINK_FRAME_MAX, SHAPES, MeasureError, Point, Result, flatten

#: Axes of a grid: the name in the file, the field of a point, what a value must be, and the usual values.
AXES: dict[str, tuple[str, str, list[Any]]] = {
    "directions": ("direction", "uplink or downlink", ["uplink", "downlink"]),
    "frames": ("frame", "64 to 3600 bytes", list(FRAMES)),
    "workers": ("workers", "1 to 64", [1]),
    "queues": ("queue", "rss, shared or shared-ordered", ["rss"]),
    "spreads": ("spread", "ue, teid or five-tuple", ["ue"]),
    "flows": ("flows", "single or multi", ["multi"]),
    "udp_checksums": ("udp_checksum", "true or false", [False]),
    "sessions": ("sessions", "1 to 16777000", [65536]),
    "rates": ("rate", "max, or a rate such as 2Mpps or 10Gbit/s", ["max"]),
    "ips": ("ip", "4 or 6", [4]),
    "datapaths": ("datapath", "memory, af_packet or af_xdp", ["memory"]),
    "shapes": ("shape", ", ".join(SHAPES[:-1]) + f" or {SHAPES[-1]}", ["plain"]),
}

_CHOICES = {
    "direction": {"uplink", "downlink"},
    "queue": {"rss", "shared", "shared-ordered"},
    "spread": {"ue", "teid", "five-tuple"},
    "flows": {"single", "multi"},
    "datapath": set(DATAPATHS),
    "shape": set(SHAPES),
}
_RANGES = {"frame": (64, 3600), "workers": (1, 64), "sessions": (1, 16_777_000)}
_RATE = re.compile(r"max|[0-9]+(\.[0-9]+)?([kM]?pps|[GM]?bit/s)")


class PlanError(Exception):
    """A sweep's file is wrong: every mistake, with file, line and field."""

    def __init__(self, mistakes: list[str]) -> None:
        """Keep all mistakes; the message has a line for each."""
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


@dataclass(frozen=True)
class Plan:
    """What is to be measured."""

    name: str = "sweep"
    #: Seconds of user plane time of each point.
    duration: float = 0.5
    #: How often each point is measured.
    repeats: int = 1
    #: Seconds for which each point is run once more under perf; 0 for no flame graphs.
    flame: float = 0.0
    points: tuple[Point, ...] = ()


@dataclass
class _Reader:
    """Reads a plan; mistakes are gathered with the line they are on."""

    name: str
    lines: list[str]
    mistakes: list[str] = field(default_factory=list)

    def fault(self, key: str, what: str, table: str = "", number: int = 0) -> None:
        place = f"{table}[{number}].{key}" if table else key
        self.mistakes.append(f"{self.name}:{self.line(key, table, number)}: {place}: {what}")

    def line(self, key: str, table: str = "", number: int = 0) -> int:
        """Find the line of a key: before the first table, or in the table of that name and number."""
        header = re.compile(rf"\s*\[\[{re.escape(table)}\]\]") if table else None
        seen, inside = -1, header is None
        for at, text in enumerate(self.lines, 1):
            if re.match(r"\s*\[", text):
                seen += bool(header and header.match(text))
                inside = bool(header and header.match(text)) and seen == number
                if inside and not key:
                    return at
            elif inside and re.match(rf"\s*\"?{re.escape(key)}\"?\s*=", text):
                return at
        return 1

    def values(self, key: str, given: Any, table: str = "", number: int = 0) -> list[Any]:
        """Check the values of an axis."""
        name, what, _ = AXES[key]
        values = given if isinstance(given, list) else [given]
        if not values:
            self.fault(key, f"no value: give some of {what}", table, number)
        for value in values:
            if not _is_good(name, value):
                self.fault(key, f"{json.dumps(value)} is not {what}", table, number)
        return values

    def number(self, data: dict[str, Any], key: str, usual: float, least: float, most: float) -> float:
        """Check a number of the plan itself."""
        value = data.get(key, usual)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            self.fault(key, f"{json.dumps(value)} is not a number from {least:g} to {most:g}")
            return usual
        return value


def _is_good(name: str, value: Any) -> bool:
    if name == "udp_checksum":
        return isinstance(value, bool)
    if name == "ip":
        return value in (4, 6) and not isinstance(value, bool)
    if name in _RANGES:
        least, most = _RANGES[name]
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    if name in _CHOICES:
        return value in _CHOICES[name] if isinstance(value, str) else False
    return isinstance(value, str) and _RATE.fullmatch(value.replace(" ", "")) is not None


def read_plan(path: Path) -> Plan:
    """Read a sweep's file.

    Raises:
        PlanError: With every mistake in it.

    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError([f"{path}: cannot be read: {error}"]) from error
    return parse_plan(text, str(path))


def parse_plan(text: str, name: str = "sweep.toml") -> Plan:
    """As `read_plan`, of a text."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line (\d+)", str(error))
        raise PlanError([f"{name}:{place.group(1) if place else 1}: {error}"]) from error
    reader = _Reader(name, text.splitlines())
    own = {"name", "duration", "repeats", "flame", "grid", "skip"}
    for key in data:
        if key not in own and key not in AXES:
            reader.fault(key, f"there is no such field; there are {', '.join(sorted(own | set(AXES)))}")
    usual = {key: values for key, (_, _, values) in AXES.items()}
    usual |= {key: reader.values(key, data[key]) for key in AXES if key in data}
    grids = _tables(reader, data, "grid")
    skips = [_skip(reader, number, table) for number, table in enumerate(_tables(reader, data, "skip"))]
    points: dict[Point, None] = {}
    for number, grid in enumerate(grids or [{}]):
        for key in grid:
            if key not in AXES:
                reader.fault(key, f"there is no such axis; there are {', '.join(AXES)}", "grid", number)
        axes = usual | {key: reader.values(key, grid[key], "grid", number) for key in AXES if key in grid}
        if not reader.mistakes:
            chosen = [point for point in _product(axes) if not _is_skipped(point, skips)]
            _over_links(reader, chosen, number if grids else None)
            points |= dict.fromkeys(chosen)
    plan_name = data.get("name", Plan.name)
    if not isinstance(plan_name, str) or not plan_name:
        reader.fault("name", f"{json.dumps(plan_name)} is not a name")
    duration = reader.number(data, "duration", Plan.duration, 0.001, 1e6)
    repeats = reader.number(data, "repeats", Plan.repeats, 1, 1000)
    if repeats != int(repeats):
        reader.fault("repeats", f"{repeats} is not a whole number")
    flame = reader.number(data, "flame", Plan.flame, 0, 3600)
    if not points and not reader.mistakes:
        reader.fault("skip", "every point is skipped, nothing is left to measure")
    if reader.mistakes:
        raise PlanError(reader.mistakes)
    return Plan(plan_name, duration, int(repeats), flame, tuple(points))


def _tables(reader: _Reader, data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    tables = data.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        reader.fault(name, f"write [[{name}]]")
        return []
    return tables


def _skip(reader: _Reader, number: int, table: dict[str, Any]) -> dict[str, list[Any]]:
    names = {entry.name for entry in fields(Point)}
    what = {name: text for name, text, _ in AXES.values()}
    skip = {key: value if isinstance(value, list) else [value] for key, value in table.items()}
    for key, values in skip.items():
        if key not in names:
            fault = f"a point has no such field; it has {', '.join(sorted(names))}"
            reader.fault(key, fault, "skip", number)
        for value in values if key in what else []:
            # A value that no point has would skip nothing, and nobody would see it.
            if not _is_good(key, value):
                reader.fault(key, f"{json.dumps(value)} is not {what[key]}", "skip", number)
    if not table:
        reader.fault("", "an empty filter would skip every point", "skip", number)
    if "rate" in skip:
        skip["rate"] = [str(value).replace(" ", "") for value in skip["rate"]]
    return skip


def _over_links(reader: _Reader, points: Iterable[Point], grid: int | None) -> None:
    """Refuse points that links cannot have, before anything is measured."""
    place = ("grid", grid) if grid is not None else ("", 0)
    over_links = [point for point in points if point.datapath != "memory"]
    if any(point.workers != 1 or point.queue != "rss" for point in over_links):
        fault = 'links over veth have one queue: take workers = 1 and queues = "rss" in a grid with them'
        reader.fault("datapaths", fault, *place)
    if any(point.frame > LINK_FRAME_MAX for point in over_links):
        fault = f"over links a frame has at most {LINK_FRAME_MAX} bytes: give them a grid with shorter ones"
        reader.fault("datapaths", fault, *place)


def _product(axes: dict[str, list[Any]]) -> Iterator[Point]:
    names = [AXES[key][0] for key in axes]
    for values in itertools.product(*axes.values()):
        columns = dict(zip(names, values, strict=True))
        columns["rate"] = columns["rate"].replace(" ", "")
        yield Point(**columns)


def _is_skipped(point: Point, skips: list[dict[str, list[Any]]]) -> bool:
    columns = point.columns()
    return any(all(columns.get(key) in values for key, values in skip.items()) for skip in skips)


def labels(plan: Plan) -> dict[str, Any]:
    """Describe a run: who, where, of what revision."""
    return {
        "run_id": str(uuid.uuid4()),
        "action": plan.name,
        "duration": plan.duration,
        "git_revision": revision(),
        "host": socket.gethostname(),
        "kernel": platform.release(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def revision() -> str:
    """Name the checkout's revision, with ``-dirty`` when files differ from it."""
    run = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"],
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stdout.strip() or "unknown"


Measure = Callable[[Point, float], Result]


@dataclass
class Sweep:
    """One run of a plan in its folder."""

    plan: Plan
    folder: Path
    measure: Measure
    #: Where progress is told.
    output: TextIO | None = None
    #: Address of a Pushgateway, if results are to go there.
    pushgateway: str | None = None
    exposition: Exposition = field(default_factory=Exposition)

    def run(self) -> pl.DataFrame:
        """Measure what is missing, and return everything.

        Raises:
            PlanError: When the folder holds another sweep.

        """
        run = self._open()
        work = [(point, repeat) for repeat in range(self.plan.repeats) for point in self.plan.points]
        left = [item for item in work if not self.file(*item).exists()]
        if len(left) < len(work):
            self._tell(f"{len(work) - len(left)} of {len(work)} points are there already")
        began = time.monotonic()
        failures = []
        for done, (point, repeat) in enumerate(left):
            number = len(work) - len(left) + done + 1
            self.exposition.progress(number - 1, len(work))
            try:
                result = self.measure(point, self.plan.duration)
            except MeasureError as error:
                # The whole of it is told here; at the end the last line says enough.
                failures.append(f"{point.label()}: {str(error).splitlines()[-1]}")
                self._tell(f"[{number}/{len(work)}] {point.label()}: failed: {error}")
                continue
            # What was measured is the program, wherever the sweep was started.
            built = result["machine"].get("revision", "unknown")
            result["revision"] = run["git_revision"] if built == "unknown" else built
            result["repeat"] = repeat
            self._keep(self.file(point, repeat), result)
            self._publish(run, point, result)
            spent = time.monotonic() - began
            remaining = spent / (done + 1) * (len(left) - done - 1)
            self._tell(
                f"[{number}/{len(work)}] {point.label()}: {result['pps'] / 1e6:.2f} Mpps, "
                f"{result['l2_gbps']:.2f} Gbit/s, {result['ns_per_packet']:.1f} ns; {_clock(remaining)} left"
            )
        self.exposition.progress(len(work), len(work))
        frame = self.collect()
        frame.write_parquet(self.folder / "sweep.parquet")
        if failures:
            raise MeasureError(f"{len(failures)} of {len(work)} points failed:\n" + "\n".join(failures))
        return frame

    def file(self, point: Point, repeat: int) -> Path:
        """Name the file of a point's result."""
        return self.folder / "points" / f"{point.key()}-r{repeat}.json"

    def _open(self) -> dict[str, Any]:
        (self.folder / "points").mkdir(parents=True, exist_ok=True)
        file = self.folder / "run.json"
        if not file.exists():
            run = labels(self.plan)
            self._keep(file, run)
            return run
        run = dict(json.loads(file.read_text()))
        for key, now in (("action", self.plan.name), ("duration", self.plan.duration)):
            if run.get(key) != now:
                was = json.dumps(run.get(key))
                raise PlanError(
                    [
                        f"{file}: the results there have {key} = {was}, not {json.dumps(now)}: take "
                        f"another folder"
                    ]
                )
        now = revision()
        if run["git_revision"] != now:
            self._tell(f"the points there are of revision {run['git_revision']}; this is {now}")
            run["git_revision"] = now
        return run

    def _keep(self, file: Path, content: dict[str, Any]) -> None:
        """Write whole or not at all: a killed run leaves no half of a result."""
        new = file.with_suffix(".new")
        new.write_text(json.dumps(content, indent=1) + "\n")
        new.replace(file)

    def _publish(self, run: dict[str, Any], point: Point, result: Result) -> None:
        names = {
            "run_id": run["run_id"],
            "action": run["action"],
            "frame_size": str(point.frame),
            "duration": f"{self.plan.duration:g}",
            "git_revision": run["git_revision"],
            "host": run["host"],
            "kernel": run["kernel"],
            "direction": point.direction,
            "workers": str(point.workers),
            "flows": point.flows,
            "udp_checksum": str(point.udp_checksum).lower(),
            "sessions": str(point.sessions),
            "queue": point.queue,
            "spread": point.spread,
            "rate": point.rate,
            "ip": str(point.ip),
            "datapath": point.datapath,
            "shape": point.shape,
        }
        values = self.exposition.point(names, flatten(result))
        if self.pushgateway:
            error = push(self.pushgateway, {"run_id": run["run_id"], "point": point.key()}, values)
            if error:
                self._tell(f"not pushed: {error}")

    def collect(self) -> pl.DataFrame:
        """Gather every point of the plan that is there: a row for each, with the labels of the run."""
        run = json.loads((self.folder / "run.json").read_text())
        rows = []
        for point in self.plan.points:
            for repeat in range(self.plan.repeats):
                file = self.file(point, repeat)
                if file.exists():
                    result = json.loads(file.read_text())
                    own = {"revision": result["revision"], "repeat": repeat, "key": point.key()}
                    rows.append(run | own | point.columns() | flatten(result))
        return pl.DataFrame(rows, infer_schema_length=None)

    def _tell(self, line: str) -> None:
        if self.output:
            print(line, file=self.output, flush=True)


def _clock(seconds: float) -> str:
    whole = int(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
