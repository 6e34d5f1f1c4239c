"""Streams, their rates and their profiles, with TRex's names."""

from __future__ import annotations

import inspect
import itertools
import re
import runpy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from kaido.stream import Json
from kaido.trex.errors import STLArgumentError, STLError, Strict
from kaido.trex.packet import STLPktBuilder

FCS = 4
LINK_OVERHEAD = 20
"""Bytes that a frame takes on a link beside itself and its FCS."""
_NUMBERS = itertools.count(1)
_MULT = re.compile(r"\s*([\d.]+(?:e[+-]?\d+)?)\s*([kmg]?)(bps|bpsl1|bpsl2|pps|%)?\s*", re.I)


class STLTXMode(Strict):
    """A rate, given in one of four ways."""

    def __init__(
        self,
        pps: float | None = None,
        bps_L1: float | None = None,
        bps_L2: float | None = None,
        percentage: float | None = None,
    ) -> None:
        """One packet a second when nothing is given."""
        given = {"pps": pps, "bps_L1": bps_L1, "bps_L2": bps_L2, "percentage": percentage}
        rates = {name: value for name, value in given.items() if value is not None}
        if len(rates) > 1:
            raise STLError(f"{type(self).__name__}: one rate is possible, not {' and '.join(rates)}")
        self.kind, self.value = next(iter(rates.items()), ("pps", 1.0))
        if not self.value > 0:
            raise STLArgumentError(self.kind, self.value, "more than 0")

    def pps(self, frame_bytes: float, line_bps: float | None) -> float:
        """Packets a second, for frames of so many bytes without FCS on average."""
        l2_bits = (frame_bytes + FCS) * 8
        l1_bits = l2_bits + LINK_OVERHEAD * 8
        match self.kind:
            case "pps":
                return self.value
            case "bps_L1":
                return self.value / l1_bits
            case "bps_L2":
                return self.value / l2_bits
            case _:
                if line_bps is None:
                    raise STLError(f"{type(self).__name__}: percentage needs the line_bps of the port")
                return line_bps * self.value / 100 / l1_bits

    def packets(self) -> int | None:
        """All packets that are sent, if there is an end."""
        return None

    def mode(self) -> Json | str:
        """The pattern in the bench's model."""
        return "continuous"

    def seconds(self, pps: float) -> float:
        """From the first packet to when the next stream may begin."""
        packets = self.packets()
        if packets is None:
            raise STLError(f"{type(self).__name__} has no end: no stream can come next")
        return packets / pps


class STLTXCont(STLTXMode):
    """Evenly, until traffic is stopped."""


class STLTXSingleBurst(STLTXMode):
    """So many packets."""

    def __init__(self, total_pkts: int = 1, **rate: float) -> None:
        """A burst at a rate."""
        super().__init__(**rate)
        self.total_pkts = total_pkts

    def packets(self) -> int:
        """All packets."""
        return self.total_pkts

    def mode(self) -> Json:
        """The pattern in the bench's model."""
        return {"burst": {"packets": self.total_pkts}}


class STLTXMultiBurst(STLTXMode):
    """`count` bursts of `pkts_per_burst`, `ibg` microseconds between them."""

    def __init__(self, pkts_per_burst: int = 1, ibg: float = 0.0, count: int = 1, **rate: float) -> None:
        """Bursts at a rate."""
        super().__init__(**rate)
        self.pkts_per_burst, self.ibg, self.count = pkts_per_burst, ibg, count

    def packets(self) -> int:
        """All packets."""
        return self.pkts_per_burst * self.count

    def mode(self) -> Json:
        """The pattern in the bench's model."""
        burst = {"packets": self.pkts_per_burst, "bursts": self.count, "gap_ns": round(self.ibg * 1000)}
        return {"multi_burst": burst}

    def seconds(self, pps: float) -> float:
        """From the first packet to when the next stream may begin."""
        return self.packets() / pps + (self.count - 1) * self.ibg / 1e6


class STLFlowStats(Strict):
    """Counts packets of a stream under a group's number."""

    def __init__(self, pg_id: int, vxlan: bool = False, ieee_1588: bool = False) -> None:
        """A group."""
        if vxlan or ieee_1588:
            raise STLError(
                "STLFlowStats: vxlan and ieee_1588 are not possible: packets are known by a trailer"
            )
        self.pg_id = pg_id

    @property
    def is_latency(self) -> bool:
        """Whether latency is told, too."""
        return False


class STLFlowLatencyStats(STLFlowStats):
    """Counts packets of a stream, and measures their latency."""

    @property
    def is_latency(self) -> bool:
        """Whether latency is told, too."""
        return True


@dataclass(eq=False)
class STLStream(Strict):
    """Packets of one kind, at one rate."""

    name: str | None = None
    packet: STLPktBuilder | None = None
    mode: STLTXMode | None = None
    enabled: bool = True
    self_start: bool = True
    isg: float = 0.0
    """Microseconds before its first packet."""
    flow_stats: STLFlowStats | None = None
    next: str | None = None
    """Name of the stream that begins at its end."""
    stream_id: int | None = None
    action_count: int = 0
    random_seed: int = 0
    mac_src_override_by_pkt: bool | None = None
    mac_dst_override_mode: Any = None
    dummy_stream: bool = False
    start_paused: bool = False
    core_id: int = -1

    def __post_init__(self) -> None:
        """Fills in what was left out."""
        if self.packet is None:
            raise STLError("STLStream: packet is missing")
        if not isinstance(self.packet, STLPktBuilder):
            raise STLArgumentError("packet", self.packet, "STLPktBuilder")
        if self.mode is None:
            self.mode = STLTXCont()
        if self.dummy_stream or self.start_paused:
            raise STLError("STLStream: dummy_stream and start_paused are not possible: use isg")
        if self.action_count:
            raise STLError("STLStream: action_count is not possible: use STLTXMultiBurst")
        self.number = next(_NUMBERS) if self.stream_id is None else self.stream_id

    @property
    def builder(self) -> STLPktBuilder:
        """Its packet, which is there."""
        assert self.packet is not None
        return self.packet

    @property
    def pattern(self) -> STLTXMode:
        """Its mode, which is there."""
        assert self.mode is not None
        return self.mode

    def get_id(self) -> int:
        """Its number."""
        return self.number

    def get_name(self) -> str | None:
        """Its name."""
        return self.name

    def get_mode(self) -> STLTXMode:
        """Its mode."""
        return self.pattern

    def get_pkt(self) -> bytes:
        """Its packet."""
        return bytes(self.builder.packet())

    def get_flow_stats_info(self) -> STLFlowStats | None:
        """Its group."""
        return self.flow_stats

    def has_flow_stats(self) -> bool:
        """Whether it has a group."""
        return self.flow_stats is not None

    def get_pg_id(self) -> int | None:
        """Number of its group."""
        return None if self.flow_stats is None else self.flow_stats.pg_id


@dataclass(frozen=True)
class Multiplier:
    """How fast streams are to be, in one of TRex's ways."""

    value: float
    unit: str
    """`times`, `pps`, `bps`, `bpsl1` or `%`."""

    @classmethod
    def of(cls, text: float | str) -> Multiplier:
        """Reads `2`, `10kpps`, `5gbps`, `5gbpsl1` or `40%`."""
        match = _MULT.fullmatch(str(text))
        if match is None:
            raise STLArgumentError("mult", text, "such as 2, 10kpps, 5gbps, 5gbpsl1, 40%")
        scale = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}[match[2].lower()]
        unit = (match[3] or "times").lower()
        return cls(float(match[1]) * scale, "bps" if unit == "bpsl2" else unit)

    def factor(self, streams: Sequence[tuple[float, float]], line_bps: float | None) -> float:
        """By what to multiply the rates of streams, given as packets a second and mean bytes of frames."""
        pps = sum(rate for rate, _ in streams)
        l2_bps = sum(rate * (size + FCS) * 8 for rate, size in streams)
        l1_bps = l2_bps + pps * LINK_OVERHEAD * 8
        match self.unit:
            case "times":
                return self.value
            case "pps":
                return self.value / pps
            case "bps":
                return self.value / l2_bps
            case "bpsl1":
                return self.value / l1_bps
            case _:
                if line_bps is None:
                    raise STLError("mult: percents need the line_bps of the port")
                return float(line_bps * self.value / 100 / l1_bps)


def mean_bytes(template: Json) -> float:
    """Mean length of a template's frames, without FCS."""
    match template["lengths"]:
        case {"fixed": length}:
            return float(length)
        case {"random": {"min": least, "max": most}}:
            return float(least + most) / 2
        case {"sweep": {"first": first, "last": last, "step": step}}:
            lengths = range(first, last + 1, step)
            return sum(lengths) / len(lengths)
        case {"mix": shares}:
            weights = sum(share["weight"] for share in shares)
            return float(sum(share["bytes"] * share["weight"] for share in shares) / weights)
        case _:
            return max(len(template["bytes"]) / 2, 60.0)


class STLProfile(Strict):
    """Streams that belong together."""

    def __init__(self, streams: STLStream | Sequence[STLStream] | None = None) -> None:
        """A profile of one stream or several."""
        if isinstance(streams, STLStream):
            streams = [streams]
        self.streams = list(streams or [])
        for stream in self.streams:
            if not isinstance(stream, STLStream):
                raise STLArgumentError("streams", stream, "STLStream")

    def get_streams(self) -> list[STLStream]:
        """Its streams."""
        return self.streams

    def __len__(self) -> int:
        """How many streams it has."""
        return len(self.streams)

    def has_flow_stats(self) -> bool:
        """Whether a stream has a group."""
        return any(stream.has_flow_stats() for stream in self.streams)

    @staticmethod
    def load_py(
        python_file: str | PathLike[str], direction: int = 0, port_id: int = 0, **tunables: Any
    ) -> STLProfile:
        """The streams of a Python file whose `register()` gives an object with `get_streams`."""
        path = fspath(python_file)
        if not Path(path).is_file():
            raise STLError(f"there is no file {path}")
        register = runpy.run_path(path).get("register")
        if register is None:
            raise STLError(f"{path}: it has no function `register`")
        get: Callable[..., Any] = register().get_streams
        arguments = {"direction": direction, "port_id": port_id} | tunables
        parameters = inspect.signature(get).parameters
        if "tunables" in parameters and "tunables" not in arguments:
            arguments["tunables"] = []
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            unknown = set(tunables) - set(parameters)
            if unknown:
                raise STLError(f"{path}: get_streams has no parameter {', '.join(sorted(unknown))}")
            arguments = {name: value for name, value in arguments.items() if name in parameters}
        streams = get(**arguments)
        return streams if isinstance(streams, STLProfile) else STLProfile(streams)

    @staticmethod
    def load(
        filename: str | PathLike[str], direction: int = 0, port_id: int = 0, **tunables: Any
    ) -> STLProfile:
        """As `load_py`: profiles are Python files."""
        if Path(filename).suffix != ".py":
            raise STLError(
                f"{fspath(filename)}: profiles are Python files; captures go with STLClient.push_pcap"
            )
        return STLProfile.load_py(filename, direction, port_id, **tunables)
