"""Streams of packets: a template of scapy's layers, and what changes from one packet to the next."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any, Literal, TypeAlias

from scapy.layers.l2 import Ether
from scapy.packet import Packet

from kaido.fields import Place, find

Json: TypeAlias = dict[str, Any]
Value: TypeAlias = int | str
"""A value of a field: a number, or what scapy takes for it, such as an address."""
RateLike: TypeAlias = float | str | Json
"""What `Rate.of` takes: packets a second, text, or what `Rate` gives."""

DEFAULT_SOURCE = "02:00:00:00:00:01"
"""Where frames come from whose template does not say it."""
DEFAULT_DESTINATION = "02:00:00:00:00:02"
"""Where such frames go to."""


@dataclass(frozen=True)
class At:
    """One place where a variable is written."""

    field: str
    """Such as `IP.src`, or `IP:2.src` for the second IP header."""
    start: Value | None = None
    """What stands here when the variable has its first value; that value when not given."""


@dataclass(frozen=True)
class Raw:
    """A place given by its bytes and not by a field."""

    offset: int
    """Bytes in front of it."""
    width: int | None = None
    """Bytes that are written; as many as the variable has when not given."""
    mask: int | None = None
    """Bits that are written; all when not given."""
    shift: int = 0
    """Bits by which the value is moved up, or down when negative."""
    add: int = 0
    """Added before that."""


Where: TypeAlias = str | At | Raw | Sequence[str | At | Raw]
"""A field, or several that have the same value."""


@dataclass(frozen=True)
class Increment:
    """A variable that goes up from `first` as far as `last`, and again."""

    where: Where
    first: Value
    last: Value
    step: int = 1
    after: str | None = None
    """Name of a variable before it: this one goes on only when that one begins anew."""
    name: str | None = None
    width: int | None = None
    """Bytes of its values, for those that are written by offset only."""


@dataclass(frozen=True)
class Decrement:
    """A variable that goes down from `first` as far as `last`, and again."""

    where: Where
    first: Value
    last: Value
    step: int = 1
    after: str | None = None
    name: str | None = None
    width: int | None = None


@dataclass(frozen=True)
class Random:
    """A variable of equally likely values."""

    where: Where
    min: Value
    max: Value
    repeat_after: int = 0
    """After so many values the same come again; 0 is never."""
    name: str | None = None
    width: int | None = None


@dataclass(frozen=True)
class Listed:
    """A variable of some values, in their order."""

    where: Where
    values: Sequence[Value]
    after: str | None = None
    name: str | None = None
    width: int | None = None


@dataclass(frozen=True)
class AddressAndPort:
    """An IPv4 address that changes with every packet, and a port that changes when those begin anew."""

    address: Where
    port: Where
    addresses: tuple[Value, Value]
    """The first and the last address."""
    ports: tuple[int, int]
    """The first and the last port."""
    name: str | None = None


Variable: TypeAlias = Increment | Decrement | Random | Listed | AddressAndPort


class Rate:
    """How fast a stream is, or all of them together."""

    MAX: Json | str = "max"
    """As fast as ports take packets."""

    @staticmethod
    def pps(value: float) -> Json:
        """Packets a second."""
        return {"pps": float(value)}

    @staticmethod
    def l1_bps(value: float) -> Json:
        """Bits a second on the link, with preamble, FCS and gap."""
        return {"l1_bps": float(value)}

    @staticmethod
    def l2_bps(value: float) -> Json:
        """Bits a second of frames with their FCS."""
        return {"l2_bps": float(value)}

    @staticmethod
    def percent(value: float) -> Json:
        """Percent of the port's line rate, which the port must say."""
        return {"percent": float(value)}

    @staticmethod
    def weight(value: float) -> Json:
        """A share of what all streams together send."""
        return {"weight": float(value)}

    @staticmethod
    def of(value: RateLike) -> Json | str:
        """A rate: packets a second, or text such as `1.5Mpps`, `10Gbps`, `10GbpsL1`, `40%` or `max`.

        Bits a second are those of layer 2 unless the text ends in `L1`.
        """
        if isinstance(value, dict) or value == "max":
            return value
        if isinstance(value, int | float):
            return Rate.pps(value)
        match = re.fullmatch(r"\s*([\d.]+(?:e\d+)?)\s*([kmgt]?)\s*(pps|bps|%)\s*(l1|l2)?\s*", value, re.I)
        if match is None or (match[4] and match[3].lower() != "bps"):
            raise ValueError(f"`{value}` is no rate: 1.5Mpps, 10Gbps, 10GbpsL1, 40% and max are")
        number = float(match[1]) * {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}[match[2].lower()]
        match match[3].lower():
            case "pps":
                return Rate.pps(number)
            case "%":
                return Rate.percent(number)
            case _:
                return Rate.l1_bps(number) if (match[4] or "").lower() == "l1" else Rate.l2_bps(number)


class Mode:
    """In what pattern over time packets go."""

    CONTINUOUS = "continuous"
    """Evenly, until the run ends."""

    @staticmethod
    def burst(packets: int) -> Json:
        """Evenly, so many packets."""
        return {"burst": {"packets": packets}}

    @staticmethod
    def bursts(packets: int, bursts: int, gap_s: float) -> Json:
        """Some bursts with silence between them; 0 bursts are bursts without end."""
        return {"multi_burst": {"packets": packets, "bursts": bursts, "gap_ns": round(gap_s * 1e9)}}

    @staticmethod
    def ramp(start: float, end: float, time_s: float) -> Json:
        """From a share of the rate to another in a straight line, then on at that."""
        return {"ramp": {"from": start, "to": end, "time_ns": round(time_s * 1e9)}}


class Lengths:
    """Lengths of a stream's frames, in bytes without FCS."""

    IMIX: Json = {  # noqa: RUF012
        "mix": [{"bytes": 60, "weight": 7}, {"bytes": 590, "weight": 4}, {"bytes": 1514, "weight": 1}]
    }
    """The simple IMIX: 7 frames of 60 bytes, 4 of 590 and 1 of 1514."""

    @staticmethod
    def sweep(first: int, last: int, step: int = 1) -> Json:
        """One after the other, and again from the first."""
        return {"sweep": {"first": first, "last": last, "step": step}}

    @staticmethod
    def random(least: int, most: int) -> Json:
        """Any between two, equally likely."""
        return {"random": {"min": least, "max": most}}

    @staticmethod
    def mix(*shares: tuple[int, int]) -> Json:
        """Some, given as pairs of a length and its weight."""
        return {"mix": [{"bytes": length, "weight": weight} for length, weight in shares]}


@dataclass
class Stream:
    """A sequence of packets of one kind.

    `packet` is a scapy packet that begins with Ethernet, or the bytes of one; `vary` says what changes from
    one packet to the next. Bytes, and not only fields, can be varied too, with `Raw`.
    """

    packet: Packet | bytes
    vary: Sequence[Variable] = ()
    name: str | None = None
    """Its name in results; `stream-N` when not given."""
    port: str | None = None
    """The port it goes out of; the client's first when not given."""
    rate: RateLike = field(default_factory=lambda: Rate.weight(1))
    mode: str | Json = Mode.CONTINUOUS
    lengths: int | str | Json = "template"
    """A number, or one of `Lengths`."""
    checksums: Literal["all", "headers", "none"] = "all"
    delay_s: float = 0.0
    """Seconds from the run's start to its first packet."""
    trailer: bool = True
    """Whether packets carry a trailer, by which the receiver knows them again."""

    def to_json(self, number: int = 0, port: str = "0") -> Json:
        """The stream in the bench's model, as number `number` of a run."""
        if isinstance(self.packet, Packet):
            packet = with_addresses(self.packet)
            template = bytes(packet)
        else:
            packet, template = Ether(self.packet), self.packet
        program = _Program(packet)
        for variable in self.vary:
            program.add(variable)
        lengths = {"fixed": self.lengths} if isinstance(self.lengths, int) else self.lengths
        source = {
            "bytes": template.hex(),
            "variables": program.variables,
            "tuples": program.tuples,
            "writes": program.writes,
            "lengths": lengths,
            "checksums": self.checksums,
        }
        return _stream(self, {"template": source}, number, port) | {"trailer": self.trailer}


@dataclass
class Replay:
    """The packets of a capture file, pcap or pcapng."""

    file: str | PathLike[str]
    passes: int = 1
    """How often it is played; 0 is without end."""
    speed: float | None = 1.0
    """Distances of packets are those of the capture divided by this; `None`: they go by rate and mode."""
    name: str | None = None
    port: str | None = None
    rate: RateLike = field(default_factory=lambda: Rate.weight(1))
    mode: str | Json = Mode.CONTINUOUS
    delay_s: float = 0.0

    def to_json(self, number: int = 0, port: str = "0") -> Json:
        """The stream in the bench's model, as number `number` of a run."""
        timing: Json | str = "rate" if self.speed is None else {"captured": float(self.speed)}
        capture = {"file": fspath(self.file), "passes": self.passes, "timing": timing}
        return _stream(self, {"capture": capture}, number, port)


Streams: TypeAlias = Stream | Replay | Iterable[Stream | Replay]
"""What a run sends: one stream, or several."""


def _stream(stream: Stream | Replay, source: Json, number: int, port: str) -> Json:
    return {
        "name": stream.name or f"stream-{number}",
        "port": stream.port or port,
        "source": source,
        "rate": Rate.of(stream.rate),
        "mode": stream.mode,
        "delay_ns": round(stream.delay_s * 1e9),
    }


def with_addresses(
    packet: Packet, source: str = DEFAULT_SOURCE, destination: str = DEFAULT_DESTINATION
) -> Packet:
    """The packet with MAC addresses where its first header gives none: scapy would ask the network."""
    packet = packet.copy()
    if isinstance(packet, Ether):
        for name, value in (("src", source), ("dst", destination)):
            if name not in packet.fields:
                packet.setfieldval(name, value)
    return packet


class _Program:
    """Variables and the places they are written to, in the bench's model."""

    def __init__(self, packet: Packet) -> None:
        self.packet = packet
        self.variables: list[Json] = []
        self.tuples: list[Json] = []
        self.writes: list[Json] = []
        self._numbers = itertools.count()

    def add(self, variable: Variable) -> None:
        if isinstance(variable, AddressAndPort):
            self._pair(variable)
            return
        places = _listed(variable.where)
        name = variable.name or self._name(places)
        first: Value
        if isinstance(variable, Random):
            first = variable.min
            least, most = (self._value(places, value) for value in (variable.min, variable.max))
            values: Json = {"random": {"min": least, "max": most, "repeat_after": variable.repeat_after}}
            largest = most
        elif isinstance(variable, Listed):
            first = variable.values[0]
            numbers = [self._value(places, value) for value in variable.values]
            values, largest = {"list": numbers}, max(numbers)
        else:
            first = variable.first
            begin, end = (self._value(places, value) for value in (variable.first, variable.last))
            kind = "increment" if isinstance(variable, Increment) else "decrement"
            values, largest = {kind: {"first": begin, "last": end, "step": variable.step}}, max(begin, end)
        width = variable.width or self._width(places, largest)
        after = None if isinstance(variable, Random) else variable.after
        self.variables.append({"name": name, "width": width, "operation": values, "after": after})
        for place in places:
            self._write(name, place, self._value(places, first))

    def _pair(self, variable: AddressAndPort) -> None:
        addresses, ports = _listed(variable.address), _listed(variable.port)
        name = variable.name or self._name(addresses)
        first, last = (self._value(addresses, value) for value in variable.addresses)
        self.tuples.append(
            {
                "name": name,
                "address_first": first,
                "address_last": last,
                "port_first": variable.ports[0],
                "port_last": variable.ports[1],
            }
        )
        for place in addresses:
            self._write(f"{name}.address", place, first)
        for place in ports:
            self._write(f"{name}.port", place, variable.ports[0])

    def _name(self, places: Sequence[At | Raw]) -> str:
        title = next((place.field for place in places if isinstance(place, At)), "raw")
        taken = {variable["name"] for variable in self.variables + self.tuples}
        return title if title not in taken else f"{title}-{next(self._numbers)}"

    def _value(self, places: Sequence[At | Raw], value: Value) -> int:
        """A value as a number, by the first field that the variable is written to."""
        if isinstance(value, int):
            return value
        for place in places:
            if isinstance(place, At):
                return find(self.packet, place.field).value(value)
        raise ValueError(f"`{value}` is no number, and no field says what it stands for")

    def _width(self, places: Sequence[At | Raw], largest: int) -> int:
        widths = [_smallest(largest)]
        for place in places:
            if isinstance(place, At):
                widths.append(_smallest((1 << find(self.packet, place.field).place().bits) - 1))
            elif place.width:
                widths.append(place.width)
        return max(widths)

    def _write(self, variable: str, place: At | Raw, first: int) -> None:
        if isinstance(place, Raw):
            write: Json = {"offset": place.offset, "shift": place.shift, "add": place.add}
            write |= {"width": place.width, "mask": place.mask}
        else:
            found = find(self.packet, place.field)
            where = found.place()
            add = 0 if place.start is None else found.value(place.start) - first
            write = _write(where, add)
        self.writes.append({"variable": variable} | write)


def _write(where: Place, add: int) -> Json:
    mask = None if where.is_whole else where.mask
    return {"offset": where.offset, "width": where.width, "mask": mask, "shift": where.shift, "add": add}


def _listed(where: Where) -> list[At | Raw]:
    places: Iterable[str | At | Raw] = [where] if isinstance(where, str | At | Raw) else where
    return [At(place) if isinstance(place, str) else place for place in places]


def _smallest(value: int) -> int:
    """Bytes of the smallest variable that holds a value."""
    return next((width for width in (1, 2, 4) if value < 1 << 8 * width), 8)
