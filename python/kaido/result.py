"""What a run has given, as polars frames."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any

import polars as pl
from scapy.layers.l2 import Ether
from scapy.utils import PcapNgWriter

from kaido.stream import Json

_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "p9999": 0.9999, "p99999": 0.99999}
_STREAM: dict[str, Any] = {
    "stream": pl.String,
    "port": pl.String,
    "counted": pl.Boolean,
    "sent": pl.UInt64,
    "sent_bytes": pl.UInt64,
    "received": pl.UInt64,
    "received_bytes": pl.UInt64,
    "lost": pl.UInt64,
    "duplicated": pl.UInt64,
    "reordered": pl.UInt64,
    "reordering_extent_max": pl.UInt64,
    "corrupted": pl.UInt64,
    "late": pl.UInt64,
    "wrong": pl.UInt64,
    "withheld": pl.UInt64,
    "latency_min_ns": pl.UInt64,
    "latency_mean_ns": pl.Float64,
    "latency_max_ns": pl.UInt64,
    "jitter_ns": pl.Float64,
} | {f"latency_{name}_ns": pl.UInt64 for name in _QUANTILES}


@dataclass(frozen=True)
class Result:
    """What one run has given. Lengths of frames are in bytes without FCS."""

    data: Json
    """As `kaido bench run --json` writes it."""
    frames: list[tuple[int, bytes]] = field(default_factory=list)
    """Frames of the findings that are kept, with their times in nanoseconds of the run."""

    @classmethod
    def load(cls, text: str) -> Result:
        """Reads a result from JSON."""
        return cls(json.loads(text))

    @property
    def duration_s(self) -> float:
        """Seconds from the first packet's time to the end of sending."""
        return float(self.data["duration_ns"]) / 1e9

    @property
    def loss_ratio(self) -> float:
        """Packets that should have come back and did not, as a share of those that were sent."""
        counted = [stream for stream in self.data["streams"] if stream["counted"]]
        sent = sum(stream["sent"]["packets"] for stream in counted)
        return sum(stream["lost"] for stream in counted) / sent if sent else 0.0

    @property
    def is_clean(self) -> bool:
        """Whether every packet came back once, whole, right, in order and in time."""
        lost = any(stream["lost"] for stream in self.data["streams"] if stream["counted"])
        return self.data["findings"]["total"] == 0 and not lost

    def streams(self) -> pl.DataFrame:
        """A row for each stream."""
        return pl.DataFrame([_stream_row(stream) for stream in self.data["streams"]], schema=_STREAM)

    def ports(self) -> pl.DataFrame:
        """A row for each port."""
        schema: dict[str, Any] = {"port": pl.String} | {
            name: pl.UInt64
            for name in (
                "sent",
                "sent_bytes",
                "failed",
                "received",
                "received_bytes",
                "control",
                "earlier",
                "unrecognised",
            )
        }
        rows = [
            {
                "port": port["name"],
                "sent": port["sent"]["packets"],
                "sent_bytes": port["sent"]["bytes"],
                "failed": port["failed"],
                "received": port["received"]["packets"],
                "received_bytes": port["received"]["bytes"],
                "control": port["control"],
                "earlier": port.get("earlier", 0),
                "unrecognised": port["unrecognised"],
            }
            for port in self.data["ports"]
        ]
        return pl.DataFrame(rows, schema=schema)

    def histogram(self) -> pl.DataFrame:
        """Latencies: of each stream and bucket the least value, how many, and the share up to there."""
        rows = []
        for stream in self.data["streams"]:
            pairs = stream["latency"]["histogram"]
            total, below = sum(count for _, count in pairs), 0
            for value, count in pairs:
                below += count
                rows.append((stream["name"], value, count, below / total))
        schema = {"stream": pl.String, "latency_ns": pl.UInt64, "packets": pl.UInt64, "share": pl.Float64}
        return pl.DataFrame(rows, schema=schema, orient="row")

    def findings(self) -> pl.DataFrame:
        """What was wrong with packets, of each kind as many as the run keeps, with the fields that differ."""
        rows = [
            {
                "kind": finding["kind"],
                "stream": finding["stream"],
                "sequence": finding["sequence"],
                "port": finding["port"],
                "time_ns": finding["time_ns"],
                "detail": finding["detail"],
                "wrong_fields": [row["field"] for row in finding["rows"] if row["wrong"]],
            }
            for finding in self.data["findings"]["kept"]
        ]
        schema: dict[str, Any] = {
            "kind": pl.String,
            "stream": pl.String,
            "sequence": pl.UInt64,
            "port": pl.String,
            "time_ns": pl.UInt64,
            "detail": pl.String,
            "wrong_fields": pl.List(pl.String),
        }
        return pl.DataFrame(rows, schema=schema)

    def kinds(self) -> dict[str, int]:
        """How often what was wrong."""
        return dict(self.data["findings"]["kinds"])

    def difference(self, number: int = 0) -> pl.DataFrame:
        """The fields of a finding: what was expected, and what was found."""
        rows = self.data["findings"]["kept"][number]["rows"]
        schema = {"field": pl.String, "expected": pl.String, "found": pl.String, "wrong": pl.Boolean}
        return pl.DataFrame(rows, schema=schema)

    def save_findings(self, file: str | PathLike[str]) -> int:
        """Writes the frames of the findings as pcapng; how many."""
        with PcapNgWriter(fspath(file)) as writer:
            for time_ns, frame in self.frames:
                packet = Ether(frame)
                packet.time = time_ns / 1e9
                writer.write(packet)
        return len(self.frames)

    def __str__(self) -> str:
        """A table of the streams."""
        columns = ("stream", "sent", "received", "lost", "reordered", "latency_p50_ns", "latency_p99_ns")
        return str(self.streams().select(columns))

    def _repr_html_(self) -> str:
        return self.streams()._repr_html_()


def quantile(histogram: list[tuple[int, int]], share: float) -> int | None:
    """The least value of the bucket that a share of all values does not exceed."""
    wanted = max(1.0, share * sum(count for _, count in histogram))
    seen = 0
    for value, count in histogram:
        seen += count
        if seen >= wanted:
            return value
    return None


def _stream_row(stream: Json) -> dict[str, Any]:
    latency, order = stream["latency"], stream["reordering"]
    pairs = latency["histogram"]
    count = sum(count for _, count in pairs)
    row = {
        "stream": stream["name"],
        "port": stream["port"],
        "counted": stream["counted"],
        "sent": stream["sent"]["packets"],
        "sent_bytes": stream["sent"]["bytes"],
        "received": stream["received"]["packets"],
        "received_bytes": stream["received"]["bytes"],
        "reordered": order["packets"],
        "reordering_extent_max": order["extent_max"],
        "latency_min_ns": latency["min_ns"] if count else None,
        "latency_mean_ns": latency["sum_ns"] / count if count else None,
        "latency_max_ns": latency["max_ns"] if count else None,
        "jitter_ns": latency["jitter_ns"] if count else None,
    }
    row |= {name: stream[name] for name in ("lost", "duplicated", "corrupted", "late", "wrong", "withheld")}
    return row | {f"latency_{name}_ns": quantile(pairs, share) for name, share in _QUANTILES.items()}
