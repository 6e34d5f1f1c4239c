"""One HTML file of a sweep's results: every picture and table in it, nothing fetched from anywhere."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from kaido import chapters, micro, platforms, sources
from kaido.compare import load
from kaido.flame import Flame, parse_folded
from kaido.page import STYLE, HtmlPage
from kaido.point import Point


@dataclass(frozen=True)
class Material:
    """What a report is made of."""

    frame: pl.DataFrame | None
    flames: Sequence[Flame] = ()
    searches: Sequence[Mapping[str, Any]] = ()
    discoveries: Mapping[str, Any] | None = None
    platforms: Sequence[Mapping[str, Any]] = ()
    #: What stands beside the figures of public accounts.
    measured: sources.Measured = field(default_factory=sources.Measured)


def gather(paths: Sequence[Path]) -> Material:
    """Read sweeps (folders or Parquet files), with what else is in the folders.

    That is profiles, searches, discoveries, and comparisons of platforms.
    Such a comparison may be given by itself.
    """
    others = [path for path in paths if path.suffix == ".json"]
    # These are no comparisons of platforms: `sources` reads them.
    beside = {
        path
        for path in others
        if (sources.read(path) or {}).keys() & {"micro", "ndn", "discoveries", "pgw_u"}
    }
    compared = [path for path in others if path not in beside]
    frames = [load(path) for path in paths if path not in others]
    flames: list[Flame] = []
    searches: list[Mapping[str, Any]] = []
    discoveries = None
    for path in paths:
        if not path.is_dir():
            continue
        flames += [read_flame(file) for file in sorted((path / "flames").glob("*.json"))]
        searches += [json.loads(file.read_text()) for file in sorted(path.glob("search*.json"))]
        files = sorted(path.glob("*.json"))
        compared += [file for file in files if (sources.read(file) or {}).keys() & {"platforms", "upf"}]
        found = path / "discoveries.json"
        discoveries = json.loads(found.read_text()) if found.exists() else discoveries
    frame = pl.concat(frames, how="diagonal_relaxed") if frames else None
    measured = sources.gather([path for path in paths if path.exists()], load)
    return Material(
        frame, flames, searches, discoveries, [platforms.read(path) for path in compared], measured
    )


def write_flame(folder: Path, flame: Flame) -> None:
    """Keep a profile in a sweep's folder."""
    (folder / "flames").mkdir(exist_ok=True)
    key = flame.point.key()
    about = {"point": flame.point.columns(), "reason": flame.reason}
    if not flame.reason:
        folded = "".join(f"{stack} {count}\n" for stack, count in flame.stacks.items())
        (folder / "flames" / f"{key}.folded").write_text(folded)
        (folder / "flames" / f"{key}.svg").write_text(flame.svg)
    (folder / "flames" / f"{key}.json").write_text(json.dumps(about) + "\n")


def read_flame(file: Path) -> Flame:
    """Read a profile that `write_flame` kept."""
    about = json.loads(file.read_text())
    point = Point(**about["point"])
    if about["reason"]:
        return Flame(point, {}, "", about["reason"])
    return Flame(
        point, parse_folded(file.with_suffix(".folded").read_text()), file.with_suffix(".svg").read_text()
    )


def write(material: Material, out: Path, command: str) -> None:
    """Write the report, and its pictures as PNG in a folder beside it."""
    pictures = out.with_suffix("")
    if pictures == out:
        pictures = out.with_name(out.name + "-pictures")
    out.parent.mkdir(parents=True, exist_ok=True)
    pictures.mkdir(parents=True, exist_ok=True)
    page, title = HtmlPage(pictures), _title(material)
    if material.frame is not None:
        chapters.sweep(
            page, material.frame, material.searches, material.flames, material.discoveries, command
        )
    else:
        page.parts.append(f"<h1>Kaido: {html.escape(title)}</h1>")
        page.text(f"This report: {command}", note=True)
    for number, found in enumerate(material.platforms):
        platforms.chapter(page, found, number)
    if material.measured.micro:
        micro.chapter(page, material.measured.micro)
    sources.chapter(page, material.measured)
    out.write_text(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Kaido: '
        f"{html.escape(title)}</title><style>{STYLE}</style></head><body>\n"
        + "\n".join(page.parts)
        + "\n</body></html>\n",
        encoding="utf-8",
    )


def _title(material: Material) -> str:
    """Name what was measured."""
    if material.frame is not None:
        return chapters.actions(material.frame)
    titles = list(dict.fromkeys(map(platforms.title, material.platforms)))
    if material.measured.micro:
        titles.append("the user plane in memory")
    return ", ".join(titles) or "beside public accounts"
