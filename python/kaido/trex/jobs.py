"""Traffic under way: one run of the bench for each call of `start`."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kaido import _native
from kaido.ports import Cables, Upf
from kaido.stream import Json
from kaido.trex.errors import STLError
from kaido.trex.ports import State
from kaido.trex.streams import Multiplier, STLStream, mean_bytes

_KEYS = itertools.count(1)
DRAIN_S = 0.1
"""Seconds without a packet after which nothing more is waited for."""


@dataclass
class Job:
    """One run."""

    run: _native.Run
    ports: list[int]
    """Numbers of the ports that send."""
    order: list[int]
    """Numbers of all ports, in the run's order."""
    streams: list[tuple[int, STLStream | None]]
    """Of each stream of the run: its port, and the stream."""
    duration: float | None
    multiplier: Multiplier
    captures: dict[int, int] = field(default_factory=dict)
    """Numbers of captures, and of their parts in this run."""
    paused: bool = False
    began: float = field(default_factory=time.monotonic)
    _result: Json | None = None

    @property
    def is_sending(self) -> bool:
        """Whether packets are still sent."""
        return self.result() is None and bool(self.live()["sending"])

    def live(self) -> Json:
        """Counters."""
        live: Json = json.loads(self.run.live())
        return live

    def result(self) -> Json | None:
        """The result, once there is one."""
        if self._result is None and (text := self.run.result()) is not None:
            self._result = json.loads(text)
        return self._result

    def stop(self) -> None:
        """Ends it."""
        self.run.pause(False)
        self.run.stop()
        self.run.wait(float("inf"))


def plan(
    states: dict[int, State],
    device: Cables | Upf | None,
    streams: Sequence[Json],
    seed: int,
    duration: float | None,
    drain_s: float = DRAIN_S,
) -> str:
    """A run of streams in the bench's model, which begins when it is resumed."""
    return json.dumps(
        {
            "traffic": {
                "seed": seed,
                "key": next(_KEYS),
                "ports": [state.port.to_json() for state in states.values()],
                "streams": list(streams),
            },
            "device": None if device is None else device.to_json(),
            "rules": [],
            "duration_ns": None if duration is None else round(duration * 1e9),
            "drain_ns": round(drain_s * 1e9),
            "late_after_ns": 10**9,
            "ordered": True,
            "keep": 0,
            "paused": True,
        }
    )


def begin(text: str) -> _native.Run:
    """A run that waits to be resumed; what is wrong with it is an `STLError`."""
    try:
        return _native.Run(text)
    except (ValueError, OSError) as error:
        raise STLError(str(error)) from error


def scheduled(state: State, multiplier: Multiplier) -> list[tuple[STLStream, Json]]:
    """The streams of a port in the bench's model, at their rates, each when its turn comes."""
    enabled = [stream for stream in state.streams if stream.enabled]
    templates = {id(stream): stream.builder.template(state.mac, state.destination) for stream in enabled}
    sizes = {key: mean_bytes(template) for key, template in templates.items()}
    rates = {id(stream): stream.pattern.pps(sizes[id(stream)], state.speed_bps) for stream in enabled}
    first = [stream for stream in enabled if stream.self_start]
    if not first:
        raise STLError(f"port {state.number}: no stream begins by itself")
    factor = multiplier.factor([(rates[id(s)], sizes[id(s)]) for s in first], state.speed_bps)
    named = {stream.name: stream for stream in enabled if stream.name is not None}
    entries = []
    for head in first:
        stream, delay, seen = head, 0.0, set()
        while True:
            if id(stream) in seen:
                raise STLError(
                    f"stream {stream.name} follows itself: that is not possible, use STLTXMultiBurst"
                )
            seen.add(id(stream))
            delay += stream.isg / 1e6
            pps = rates[id(stream)] * factor
            entries.append((stream, _stream(state, stream, templates[id(stream)], pps, delay)))
            if stream.next is None:
                break
            if stream.next not in named:
                raise STLError(f"stream {stream.name}: there is no stream {stream.next} that could come next")
            delay += stream.pattern.seconds(pps)
            stream = named[stream.next]
    return entries


def _stream(state: State, stream: STLStream, template: Json, pps: float, delay: float) -> Json:
    return {
        "port": state.port.name,
        "source": {"template": template},
        "rate": {"pps": pps},
        "mode": stream.pattern.mode(),
        "delay_ns": round(delay * 1e9),
        # Packets that nobody wants to know again go out as they are.
        "trailer": stream.has_flow_stats(),
    }


def once(state: State, frame: bytes) -> Json:
    """One frame, as it is."""
    template: dict[str, Any] = {"bytes": frame.hex(), "checksums": "none"}
    return {
        "name": "once",
        "port": state.port.name,
        "source": {"template": template},
        "rate": {"pps": 1.0},
        "mode": {"burst": {"packets": 1}},
        "trailer": False,
    }
