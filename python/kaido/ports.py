"""Ports that traffic goes out of and comes back at, and devices in memory to try things with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from os import PathLike, fspath

from kaido.stream import Json


@dataclass(frozen=True)
class L3:
    """How a port gets link addresses: its gateways' by ARP or neighbour discovery before each run.

    The templates' own are not looked at. While it runs the port answers for its addresses.
    """

    addresses: Sequence[str]
    """Own addresses; of the family of each gateway one at least."""
    gateways: Sequence[str]
    """The next router of each family that is sent."""
    mac: str | None = None
    """Own MAC address; the interface's when not given. A port in memory has none."""
    vlan: int | None = None
    """VLAN of the port's ARP and neighbour discovery."""

    def to_json(self) -> Json:
        """The mode in the bench's model."""
        return {
            "l3": {
                "addresses": list(self.addresses),
                "gateways": list(self.gateways),
                "mac": self.mac,
                "vlan": self.vlan,
            }
        }


@dataclass(frozen=True)
class Port:
    """A port of the bench; one in memory, unless one of the functions below made it."""

    name: str
    driver: Json | str = "memory"
    line_bps: float | None = None
    """Bits a second of its line, for rates in percent."""
    l3: L3 | None = None
    """How it gets link addresses; without it they are the templates'."""

    def to_json(self) -> Json:
        """The port in the bench's model."""
        link = "l2" if self.l3 is None else self.l3.to_json()
        return {"name": self.name, "driver": self.driver, "line_bps": self.line_bps, "link": link}


def memory(name: str, line_bps: float | None = 10e9, l3: L3 | None = None) -> Port:
    """A port in memory, joined to a device in memory."""
    return Port(name, "memory", line_bps, l3)


def af_packet(name: str, interface: str, line_bps: float | None = None, l3: L3 | None = None) -> Port:
    """A port on an interface, by AF_PACKET; needs the right to open packet sockets."""
    return Port(name, {"af_packet": {"interface": interface}}, line_bps, l3)


def af_xdp(
    name: str, interface: str, queue: int = 0, line_bps: float | None = None, l3: L3 | None = None
) -> Port:
    """A port on a queue of an interface, by AF_XDP; needs root."""
    return Port(name, {"af_xdp": {"interface": interface, "queue": queue}}, line_bps, l3)


def pcap(
    name: str,
    source: str | PathLike[str] | None = None,
    target: str | PathLike[str] | None = None,
    line_bps: float | None = 10e9,
) -> Port:
    """A port of files: what is received comes from `source`, what is sent goes into `target`."""
    files = {
        "input": None if source is None else fspath(source),
        "output": None if target is None else fspath(target),
    }
    return Port(name, {"pcap": files}, line_bps)


@dataclass(frozen=True)
class Cables:
    """Cables between pairs of ports in memory: what goes into one end comes out of the other."""

    pairs: Sequence[tuple[str, str]] = (("0", "1"),)

    def ports(self) -> list[Port]:
        """A port for each end, with a line of 10 Gbit/s."""
        return [memory(end) for pair in self.pairs for end in pair]

    def to_json(self) -> Json:
        """The device in the native module's terms."""
        return {"cables": [list(pair) for pair in self.pairs]}

    def rules(self) -> list[Json]:
        """What must come out for what went in."""
        ways = [way for one, other in self.pairs for way in ((one, other), (other, one))]
        return [{"unchanged": {"from": start, "to": end}} for start, end in ways]


@dataclass(frozen=True)
class Upf:
    """Kaido's user plane in memory, with a session for each bearer.

    Bearer n has the TEID `teid_first` + n towards the network, `access_teid_first` + n towards the access
    node, and the n-th address from `ue_first` on; over IPv6 the n-th /64.
    """

    bearers: int = 1000
    teid_first: int = 1
    access_teid_first: int = 0x8000_0001
    ue_first: str = "10.0.0.1"
    local: str = "192.168.3.1"
    """Its GTP-U address."""
    peer_first: str = "192.168.3.2"
    """GTP-U address of the first access node."""
    peers: int = 1
    qfi: int | None = 9
    server: str = "8.8.8.8"
    """The host on the data network."""
    access: str = "access"
    """Name of the port on the side of the access nodes."""
    core: str = "core"
    """Name of the port on the side of the data network."""
    macs: dict[str, tuple[str, str]] = field(
        default_factory=lambda: {
            "access": ("02:00:00:00:03:01", "02:00:00:00:03:02"),
            "core": ("02:00:00:00:06:01", "02:00:00:00:06:02"),
        }
    )
    """MAC addresses of both sides: the device's, and the bench's."""
    vlans: dict[str, Sequence[int]] = field(default_factory=dict)
    """VLAN tags of frames on a side, `access` or `core`, the outermost first."""

    def ports(self) -> list[Port]:
        """Its two ports, with lines of 10 Gbit/s."""
        return [memory(self.access), memory(self.core)]

    def ue(self, bearer: int) -> str:
        """Address of the UE of a bearer."""
        first = ip_address(self.ue_first)
        return str(first + (bearer if first.version == 4 else bearer << 64))

    def to_json(self) -> Json:
        """The device in the native module's terms."""
        return {"upf": self._bearers()}

    def rules(self) -> list[Json]:
        """What must come out for what went in, worked out without the user plane."""
        return [{"bearers": self._bearers()}]

    def _bearers(self) -> Json:
        def side(name: str, kind: str) -> Json:
            tags = [{"first": vlan} for vlan in self.vlans.get(kind, ())]
            return {
                "port": name,
                "device_mac": self.macs[kind][0],
                "bench_mac": self.macs[kind][1],
                "tags": tags,
            }

        return {
            "count": self.bearers,
            "teid_first": self.teid_first,
            "access_teid_first": self.access_teid_first,
            "ue_first": self.ue_first,
            "local": self.local,
            "peer_first": self.peer_first,
            "peers": self.peers,
            "qfi": self.qfi,
            "server": self.server,
            "access": side(self.access, "access"),
            "core": side(self.core, "core"),
        }
