"""Which port of kaido each number of TRex's stands for."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kaido.ports import Cables, Port, Upf
from kaido.trex.errors import STLArgumentError, STLError
from kaido.trex.streams import STLStream

ENVIRONMENT = "KAIDO_TREX"
"""Names a TOML file with ports and a device, for scripts that are not to be changed."""
SPEED_BPS = 10e9
"""The line of a port that does not say its own."""


@dataclass
class State:
    """A port, and what scripts have set on it."""

    number: int
    port: Port
    mac: str
    destination: str
    """MAC address that packets go to which do not say theirs."""
    acquired: bool = False
    service: bool = False
    promiscuous: bool = False
    address: str | None = None
    gateway: str | None = None
    vlan: int | None = None
    resolved: bool = True
    """Whether the gateway's MAC address is known; always so in L2 mode."""
    streams: list[STLStream] = field(default_factory=list)

    @property
    def is_memory(self) -> bool:
        """Whether it is in memory."""
        return self.port.driver == "memory"

    @property
    def speed_bps(self) -> float:
        """Bits a second of its line."""
        return self.port.line_bps or SPEED_BPS


def configured(
    ports: Sequence[Port] | Mapping[int, Port] | None, device: Cables | Upf | None
) -> tuple[dict[int, State], Cables | Upf | None]:
    """The ports of a client: given, of the file that the environment names, or two in memory with a cable."""
    if ports is None and device is None and ENVIRONMENT in os.environ:
        ports, device = _read(Path(os.environ[ENVIRONMENT]))
    if ports is None:
        device = device or Cables()
        ports = device.ports()
    numbered = dict(ports) if isinstance(ports, Mapping) else dict(enumerate(ports))
    if device is None and all(port.driver == "memory" for port in numbered.values()):
        names = [port.name for port in numbered.values()]
        device = Cables(list(zip(names[::2], names[1::2], strict=False)))
    states = {number: _state(number, port) for number, port in numbered.items()}
    for state in states.values():
        _join(state, states, device)
    return states, device


def peer(state: State, states: dict[int, State], device: Cables | Upf | None) -> State | None:
    """The port at which the packets of a port come out."""
    names = {other.port.name: other for other in states.values()}
    pairs: Sequence[tuple[str, str]] = ()
    if isinstance(device, Cables):
        pairs = device.pairs
    elif isinstance(device, Upf):
        pairs = [(device.access, device.core)]
    for one, other in pairs:
        if state.port.name in (one, other):
            return names.get(other if state.port.name == one else one)
    return states.get(state.number ^ 1)


def _state(number: int, port: Port) -> State:
    mac = f"02:00:00:00:00:{number + 1:02x}"
    if isinstance(port.driver, dict) and "pcap" not in port.driver:
        interface = next(iter(port.driver.values()))["interface"]
        try:
            mac = Path(f"/sys/class/net/{interface}/address").read_text().strip()
        except OSError as error:
            raise STLError(f"port {number}: interface {interface}: {error}") from error
    return State(number, port, mac, "ff:ff:ff:ff:ff:ff")


def _join(state: State, states: dict[int, State], device: Cables | Upf | None) -> None:
    """Gives a port in memory the addresses that its device knows."""
    if isinstance(device, Upf):
        for side, name in (("access", device.access), ("core", device.core)):
            if state.port.name == name:
                state.destination, state.mac = device.macs[side]
    elif device is not None and (other := peer(state, states, device)):
        state.destination = other.mac


def _read(path: Path) -> tuple[list[Port], Cables | Upf | None]:
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise STLError(f"{path}: {error}") from error
    unknown = set(content) - {"port", "device"}
    if unknown:
        raise STLError(f"{path}: `{unknown.pop()}` is none of [[port]] and [device]")
    ports = [_port(path, number, table) for number, table in enumerate(content.get("port", []))]
    try:
        match content.get("device"):
            case None:
                return ports, None
            case {"cables": pairs}:
                return ports, Cables([(one, other) for one, other in pairs])
            case {"upf": settings}:
                return ports or Upf(**settings).ports(), Upf(**settings)
    except (TypeError, ValueError) as error:
        raise STLError(f"{path}: [device]: {error}") from error
    raise STLError(f"{path}: [device] has `cables` or `upf`")


def _port(path: Path, number: int, table: dict[str, Any]) -> Port:
    name = str(table.pop("name", number))
    line_bps = table.pop("line_bps", None)
    driver = table.pop("driver", "memory")
    possible = {"memory": (), "af_packet": ("interface",), "af_xdp": ("interface", "queue"),
                "pcap": ("input", "output")}  # fmt: skip
    if driver not in possible:
        raise STLError(f"{path}: port {number}: {STLArgumentError('driver', driver, sorted(possible))}")
    unknown = set(table) - set(possible[driver])
    if unknown:
        raise STLError(f"{path}: port {number}: `{unknown.pop()}` is no setting of {driver}")
    return Port(name, driver if driver == "memory" else {driver: table}, line_bps)
