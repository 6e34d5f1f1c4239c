"""Where a field of a scapy packet lies in its bytes.

The packet is built twice, with the field's bits all clear and all set: the bits that differ are the field's.
So every field of every layer can be named, also those that scapy or somebody else adds, and nothing here
knows a header.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from scapy.fields import ConditionalField, RawVal
from scapy.packet import NoPayload, Packet, Padding, Raw

_NAME = re.compile(r"(?P<layer>\w+)(?::(?P<number>\d+))?\.(?P<field>\w+)")
_WIDTHS = (1, 2, 4, 8)


class FieldError(ValueError):
    """A name that is none of a packet's fields, or one that cannot vary; it says which there are."""


@dataclass(frozen=True)
class Place:
    """Bits of a packet that hold a number in network order."""

    offset: int
    """Bytes before the word that has them."""
    width: int
    """Bytes of that word: 1, 2, 4 or 8."""
    mask: int
    """The bits in the word."""

    @property
    def shift(self) -> int:
        """Bits below the field."""
        return (self.mask & -self.mask).bit_length() - 1

    @property
    def bits(self) -> int:
        """Bits of the field."""
        return self.mask.bit_count()

    @property
    def is_whole(self) -> bool:
        """Whether the field is the whole word."""
        return self.mask == (1 << 8 * self.width) - 1

    def read(self, packet: bytes) -> int:
        """The number in a packet."""
        word = int.from_bytes(packet[self.offset : self.offset + self.width], "big")
        return (word & self.mask) >> self.shift


@dataclass(frozen=True)
class Field:
    """A field of a layer of a packet."""

    packet: Packet
    depth: int
    """Layers in front of its layer."""
    name: str
    title: str
    """As it was named, for messages."""

    @property
    def layer(self) -> Packet:
        """The layer that has it."""
        return _layers(self.packet)[self.depth]

    def build(self, value: Any) -> bytes:
        """The header of its layer with a value in this field; the layer's other fields are as they were."""
        layer = self._frozen()
        try:
            layer.setfieldval(self.name, value)
            return bytes(layer.self_build())
        except Exception as error:
            # What a layer raises when it cannot be built is its own affair.
            raise FieldError(f"{self.title}: {value!r} is no value of it: {error}") from error

    def _frozen(self) -> Packet:
        """A copy of its layer, whose fields that scapy works out have the values which they have now."""
        layer = _layers(self.packet.copy())[self.depth]
        if not isinstance(layer, Raw):
            read = type(layer)(bytes(layer))
            for field in layer.fields_desc:
                if layer.getfieldval(field.name) is None:
                    layer.setfieldval(field.name, read.getfieldval(field.name))
        return layer

    def place(self) -> Place:
        """Where it lies; of more than 64 bits, the lower ones."""
        return _word(self._bits(), len(bytes(self.packet)), self.title)

    @property
    def offset(self) -> int:
        """Bytes in front of the byte that has its highest bit."""
        return len(bytes(self.packet)) - (self._bits().bit_length() + 7) // 8

    def _bits(self) -> int:
        """Its bits, as bits of the whole packet, whose last bit is the lowest."""
        layer = self._frozen()
        patterns = _patterns(layer.get_field(self.name), layer)
        if patterns is None:
            raise FieldError(f"{self.title}: it is not in this packet, or empty")
        clear, full, one = (self.build(value) for value in patterns)
        if not len(clear) == len(full) == len(one):
            raise FieldError(f"{self.title}: the packet's length changes with it: it has no fixed place")
        below = len(bytes(layer)) - len(clear)
        mask = _difference(clear, full)
        if mask == 0:
            raise FieldError(f"{self.title}: it is not in this packet")
        low = (mask & -mask).bit_length() - 1
        if _difference(clear, one) != 1 << low:
            raise FieldError(f"{self.title}: it is not written in network order")
        if (mask >> low) & ((mask >> low) + 1):
            raise FieldError(f"{self.title}: its bits do not lie side by side")
        return mask << 8 * below

    def value(self, value: Any) -> int:
        """The number of a value as scapy takes it: an address, a name, a number."""
        if isinstance(value, int):
            return value
        header, below = self.build(value), len(bytes(self.layer))
        return self.place().read(bytes(len(bytes(self.packet)) - below) + header + bytes(below - len(header)))


def find(packet: Packet, name: str, first: int = 1) -> Field:
    """The field that a name such as `IP.src` or `GTP_U_Header.teid` means.

    `IP:2.src` is that of the second IP header; `first` is the number of the first of a kind.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise FieldError(f"`{name}`: a field is named LAYER.FIELD or LAYER:NUMBER.FIELD, such as IP:2.src")
    layers = _layers(packet)
    alike = [depth for depth, layer in enumerate(layers) if _is(layer, match["layer"])]
    if not alike:
        raise FieldError(f"`{name}`: there is no layer {match['layer']} in {_names(layers)}")
    number = int(match["number"]) if match["number"] else first
    if not first <= number < first + len(alike):
        raise FieldError(
            f"`{name}`: {match['layer']} comes {len(alike)} times in {_names(layers)}, "
            f"the first has number {first}"
        )
    depth = alike[number - first]
    fields = [field.name for field in layers[depth].fields_desc]
    if match["field"] not in fields:
        raise FieldError(f"`{name}`: {match['layer']} has no field {match['field']}, but {', '.join(fields)}")
    return Field(packet, depth, match["field"], name)


def offset_of(packet: Packet, name: str, first: int = 1) -> int:
    """Bytes in front of the layer `IP` or `IP:2`, or in front of the byte with the highest bit of a field."""
    if "." in name:
        return find(packet, name, first).offset
    kind, _, number = name.partition(":")
    layers = _layers(packet)
    alike = [layer for layer in layers if _is(layer, kind)]
    place_among = int(number or first) - first
    if not 0 <= place_among < len(alike):
        raise FieldError(f"`{name}`: there is no such layer in {_names(layers)}")
    return len(bytes(packet)) - len(bytes(alike[place_among]))


def _layers(packet: Packet) -> list[Packet]:
    layers: list[Packet] = []
    layer: Any = packet
    while not isinstance(layer, NoPayload):
        layers.append(layer)
        layer = layer.payload
    return layers


def _is(layer: Packet, name: str) -> bool:
    return name in (type(layer).__name__, layer._name)


def _names(layers: list[Packet]) -> str:
    return "/".join(type(layer).__name__ for layer in layers if not isinstance(layer, Padding))


def _patterns(field: Any, layer: Packet) -> tuple[Any, Any, Any] | None:
    """The values that clear all of a field's bits, set all, set only the lowest; nothing if it has none."""
    if isinstance(field, ConditionalField):
        if not field._evalcond(layer):
            return None
        field = field.fld
    if hasattr(field, "rev"):
        # Only fields of bits know an order of theirs. They have their size in bits.
        return 0, (1 << field.size) - 1, 1
    value = layer.getfieldval(field.name)
    size = len(field.addfield(layer, b"", value))
    if size == 0:
        return None
    if isinstance(value, int):
        # Numbers that other fields depend on.
        return 0, (1 << 8 * size) - 1, 1
    return RawVal(bytes(size)), RawVal(b"\xff" * size), RawVal(b"\0" * (size - 1) + b"\1")


def _difference(left: bytes, right: bytes) -> int:
    return int.from_bytes(left, "big") ^ int.from_bytes(right, "big")


def _word(mask: int, size: int, title: str) -> Place:
    """The smallest word that has all bits; the lower 64 of fields that are longer."""
    low = (mask & -mask).bit_length() - 1
    mask &= (1 << low + 64) - 1
    end = size - low // 8
    for width in _WIDTHS:
        offset = max(end - width, 0)
        if offset + width > size:
            break
        below = 8 * (size - offset - width)
        word = mask >> below
        if word < 1 << 8 * width and word << below == mask:
            return Place(offset, width, word)
    raise FieldError(f"{title}: a field of more than 56 bits that ends within a byte cannot vary as a whole")
