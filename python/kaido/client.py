"""Runs traffic through ports and shows what comes of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from tqdm import tqdm

from kaido import _native
from kaido.ports import Cables, Port, Upf
from kaido.result import Result
from kaido.stream import Json, Rate, RateLike, Replay, Stream, Streams

_TICK_S = 0.1
_BAR = "{l_bar}{bar}| {n:.1f}/{total} s{postfix}"


@dataclass
class Client:
    """Sends streams and judges what comes back.

    Without ports and device there are the ports `0` and `1` in memory, with a cable between them.
    """

    ports: Sequence[Port] = ()
    device: Cables | Upf | None = None
    """A device in memory; what goes into it is expected back as its rules say."""
    seed: int = 1
    """Every random value comes from it: equal seeds give equal packets."""
    key: int = 1
    """Key of the trailers, so that packets of another run are not taken for this one's."""
    rules: list[Json] | None = None
    """What must come out for what went in; the device's own when not given."""
    resolve_s: float = 3.0
    """Seconds that gateways of ports in L3 mode have to answer."""
    drain_s: float = 0.2
    """Seconds without a packet after which nothing more is waited for."""
    late_after_s: float = 1.0
    """A packet that takes longer is late."""
    ordered: bool = True
    """Whether packets of a stream must come in the order in which they were sent."""
    keep: int = 8
    """Findings that are kept, of each kind."""
    threads: str = "auto"
    """`one`; `apart`: one for each port, and one that judges; `auto`: apart where there is a CPU for each.

    A device in memory is turned by the thread that sends, so that it is one then.
    """
    _run: _native.Run | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Fills in ports and device."""
        if not self.ports and self.device is None:
            self.device = Cables()
        if not self.ports and self.device is not None:
            self.ports = self.device.ports()

    def traffic(self, streams: Streams, rate: Any = None) -> Json:
        """Streams in the bench's model; `rate` is what all of them together send."""
        listed = [streams] if isinstance(streams, Stream | Replay) else list(streams)
        port = self.ports[0].name
        return {
            "seed": self.seed,
            "key": self.key,
            "total": None if rate is None else Rate.of(rate),
            "ports": [port.to_json() for port in self.ports],
            "streams": [stream.to_json(number, port) for number, stream in enumerate(listed)],
        }

    def packets(self, stream: Stream | Replay, count: int = 1) -> list[bytes]:
        """The first packets of a stream, as they are sent when a run begins."""
        return [bytes(packet) for packet in _native.packets(json.dumps(self.traffic(stream)), 0, count)]

    def start(
        self,
        streams: Streams,
        duration: float | None = None,
        rate: RateLike | None = None,
    ) -> None:
        """Begins to send, for `duration` seconds or until everything is sent."""
        if self._run is not None and not self._run.wait(0):
            raise RuntimeError("a run is under way: stop() ends it")
        plan = {
            "traffic": self.traffic(streams, rate),
            "device": None if self.device is None else self.device.to_json(),
            "rules": self._rules(),
            "duration_ns": None if duration is None else round(duration * 1e9),
            "resolve_ns": round(self.resolve_s * 1e9),
            "drain_ns": round(self.drain_s * 1e9),
            "late_after_ns": round(self.late_after_s * 1e9),
            "ordered": self.ordered,
            "keep": self.keep,
            "threads": self.threads,
        }
        self._run = _native.Run(json.dumps(plan))

    def run(
        self,
        streams: Streams,
        duration: float | None = None,
        rate: RateLike | None = None,
        progress: bool | None = None,
    ) -> Result:
        """Sends, waits for the end, and gives the result.

        Shows a bar of progress in terminals and notebooks, or as `progress` says. Interrupting ends the run.
        """
        self.start(streams, duration, rate)
        try:
            with tqdm(
                total=duration,
                unit="s",
                disable=not (_is_watched() if progress is None else progress),
                bar_format=_BAR if duration else "{n:.1f} s{postfix}",
            ) as bar:
                while not self.wait(_TICK_S):
                    live = self.stats()
                    sent = sum(stream["packets"] for stream in live["streams"])
                    bar.set_postfix_str(f"{sent} sent, {live['received']} back", refresh=False)
                    bar.update(min(live["time_ns"] / 1e9, duration or float("inf")) - bar.n)
                if duration:
                    bar.update(duration - bar.n)
        except BaseException:
            self.stop()
            raise
        return self.result()

    def stats(self) -> Json:
        """Counters of the run under way, or of the last one."""
        live: Json = json.loads(self._running().live())
        return live

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end of the run, at most `timeout` seconds; whether it has come."""
        return self._running().wait(float("inf") if timeout is None else timeout)

    def stop(self) -> None:
        """Ends sending; packets under way are still waited for."""
        self._running().stop()
        self._running().wait(float("inf"))

    def pause(self) -> None:
        """Has the run's time stand still."""
        self._running().pause(True)

    def resume(self) -> None:
        """Has the run's time go on."""
        self._running().pause(False)

    def result(self) -> Result:
        """The result of the last run; waits for its end."""
        run = self._running()
        run.wait(float("inf"))
        text = run.result()
        assert text is not None, "a run that has ended has a result"
        return Result(json.loads(text), [(time_ns, bytes(frame)) for time_ns, frame in run.findings()])

    def capture(self, sent: Sequence[str] = (), received: Sequence[str] = (), limit: int = 1000) -> int:
        """Begins to keep frames that ports of the run under way send or receive; the capture's number."""
        names = [port.name for port in self.ports]
        numbers = [[names.index(name) for name in side] for side in (sent, received)]
        return self._running().capture(numbers[0], numbers[1], limit, False)

    def captured(self, number: int) -> list[tuple[str, bool, int, bytes]]:
        """Frames of a capture: port, whether received, nanoseconds of the run, bytes."""
        frames, _ = self._running().captured(number)
        return [(self.ports[port].name, received, time_ns, data) for port, received, time_ns, data in frames]

    def _rules(self) -> list[Json]:
        if self.rules is not None:
            return self.rules
        return [] if self.device is None else self.device.rules()

    def _running(self) -> _native.Run:
        if self._run is None:
            raise RuntimeError("nothing was started")
        return self._run

    def __enter__(self) -> Client:
        """The client itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends what is under way."""
        if self._run is not None:
            self.stop()


def _is_watched() -> bool:
    """Whether there is a terminal or a notebook to show a bar in."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules
