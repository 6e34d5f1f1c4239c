"""Captures that go on over several runs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any

from scapy.layers.l2 import Ether
from scapy.utils import PcapWriter

from kaido.stream import Json
from kaido.trex.errors import STLArgumentError, STLError
from kaido.trex.jobs import Job
from kaido.trex.ports import State


@dataclass
class _Capture:
    sent: list[int]
    received: list[int]
    limit: int
    mode: str
    began: float
    parts: list[tuple[Job, int]] = field(default_factory=list)

    def frames(self) -> list[tuple[float, int, bool, bytes]]:
        """Time in seconds since 1970, port, whether received, and bytes."""
        found = []
        for job, number in self.parts:
            frames, _ = job.run.captured(number)
            started = time.time() - (time.monotonic() - job.began)
            for port, received, time_ns, data in frames:
                found.append((started + time_ns / 1e9, job.order[port], received, data))
        found.sort(key=lambda frame: frame[0])
        return found[-self.limit :] if self.mode == "cyclic" else found[: self.limit]


class Captures:
    """All captures of a client."""

    def __init__(self, states: dict[int, State]) -> None:
        """No captures yet."""
        self._states = states
        self._active: dict[int, _Capture] = {}
        self._numbers = itertools.count(1)

    def start(
        self, sent: Sequence[int], received: Sequence[int], limit: int, mode: str, jobs: Sequence[Job]
    ) -> Json:
        """Begins a capture."""
        if not sent and not received:
            raise STLError("start_capture: give tx_ports or rx_ports")
        if mode not in ("fixed", "cyclic"):
            raise STLArgumentError("mode", mode, ["fixed", "cyclic"])
        if limit < 1:
            raise STLArgumentError("limit", limit, "1 or more")
        number, capture = next(self._numbers), _Capture(list(sent), list(received), limit, mode, time.time())
        self._active[number] = capture
        for job in jobs:
            self._join(capture, job)
        return {"id": number, "ts": capture.began}

    def attach(self, job: Job) -> None:
        """Has a run that begins feed all captures."""
        for capture in self._active.values():
            self._join(capture, job)

    def _join(self, capture: _Capture, job: Job) -> None:
        places = {number: place for place, number in enumerate(job.order)}
        sides = [[places[number] for number in side] for side in (capture.sent, capture.received)]
        number = job.run.capture(sides[0], sides[1], capture.limit, capture.mode == "cyclic")
        capture.parts.append((job, number))

    def stop(self, number: int, output: str | PathLike[str] | list[Json] | None) -> None:
        """Ends a capture and hands its packets over."""
        capture = self._find(number)
        frames = capture.frames()
        if isinstance(output, list):
            for index, (moment, port, received, data) in enumerate(frames):
                packet: dict[str, Any] = {"binary": data, "port": port, "index": index, "ts": moment}
                output.append(packet | {"origin": "RX" if received else "TX"})
        elif output is not None:
            # Without a packet there is still a file.
            with PcapWriter(fspath(output), linktype=1) as writer:
                writer.write_header(None)
                for moment, _, _, data in frames:
                    packet_ = Ether(data)
                    packet_.time = moment
                    writer.write_packet(packet_)
        del self._active[number]

    def status(self) -> dict[int, Json]:
        """What captures there are."""
        found = {}
        for number, capture in self._active.items():
            frames = capture.frames()
            found[number] = {
                "id": number,
                "state": "ACTIVE",
                "mode": capture.mode,
                "limit": capture.limit,
                "count": len(frames),
                "bytes": sum(len(data) for *_, data in frames),
                "filter": {"tx": list(capture.sent), "rx": list(capture.received), "bpf": ""},
            }
        return found

    def clear(self) -> None:
        """Ends all."""
        self._active.clear()

    def _find(self, number: int) -> _Capture:
        if number not in self._active:
            raise STLArgumentError("capture_id", number, list(self._active))
        return self._active[number]
