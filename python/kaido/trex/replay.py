"""Captures as traffic."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from scapy.layers.l2 import Ether
from scapy.packet import Packet
from scapy.utils import PcapReader, PcapWriter

from kaido.stream import Json, Rate, Replay
from kaido.trex.errors import STLArgumentError, STLError
from kaido.trex.ports import State


@contextmanager
def frames_of(file: str, hook: Callable[[bytes], bytes | Packet] | None) -> Iterator[str]:
    """The file itself, or one in its stead whose packets went through a hook."""
    if not Path(file).is_file():
        raise STLError(f"there is no file {file}")
    if hook is None:
        yield file
        return
    with tempfile.TemporaryDirectory() as folder:
        changed = str(Path(folder) / "hooked.pcap")
        with PcapReader(file) as reader, PcapWriter(changed, linktype=1) as writer:
            writer.write_header(None)
            for packet in reader:
                result = Ether(bytes(hook(bytes(packet))))
                result.time = packet.time
                writer.write_packet(result)
        yield changed


def replayed(state: State, file: str, ipg_usec: float | None, speedup: float, count: int) -> Json:
    """A stream that plays a file, with its own distances or one in microseconds."""
    if not speedup > 0:
        raise STLArgumentError("speedup", speedup, "more than 0")
    if ipg_usec is None:
        replay = Replay(file, passes=count, speed=speedup, rate=Rate.pps(1))
    else:
        replay = Replay(file, passes=count, speed=None, rate=Rate.pps(speedup * 1e6 / max(ipg_usec, 1e-3)))
    replay.name, replay.port = f"replay-{state.number}", state.port.name
    return replay.to_json()
