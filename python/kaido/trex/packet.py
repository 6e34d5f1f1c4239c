"""Packets and field programs with TRex's names.

TRex numbers layers of a kind from 0: `IP:1.src` is the second IP header's source.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any

from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from kaido.fields import FieldError, offset_of
from kaido.stream import Json, with_addresses
from kaido.trex.errors import STLArgumentError, STLError, Strict

LISTED_MAX = 65_536
"""Most values that are written out one by one."""
_WIDTHS = (1, 2, 4, 8)
_LENGTH_FIELDS = {("IP", "len"), ("IPv6", "plen"), ("UDP", "len")}


def number(value: int | str) -> int:
    """A number, or the number of an IPv4 address."""
    return value if isinstance(value, int) else int(IPv4Address(value))


class Instruction(Strict):
    """A step of a field program."""


class STLVmFlowVar(Instruction):
    """A variable: `inc`, `dec` or `random`, from `min_value` to `max_value` or over `value_list`."""

    def __init__(
        self,
        name: str,
        init_value: int | str | None = None,
        min_value: int | str = 0,
        max_value: int | str = 255,
        size: int = 4,
        step: int = 1,
        op: str = "inc",
        split_by_core: bool = True,
        next_var: str | None = None,
        value_list: Sequence[int | str] | None = None,
    ) -> None:
        """Checks the arguments as far as they do not depend on the packet."""
        if size not in _WIDTHS:
            raise STLArgumentError("size", size, _WIDTHS)
        if op not in ("inc", "dec", "random"):
            raise STLArgumentError("op", op, ["inc", "dec", "random"])
        self.name, self.size, self.step, self.op = name, size, step, op
        self.min, self.max = number(min_value), number(max_value)
        self.values = None if value_list is None else [number(value) for value in value_list]
        self.init = None if init_value is None else number(init_value)
        # Values do not depend on the number of cores here.
        self.split_by_core = split_by_core
        self.next_var = next_var
        if self.values is None and self.min > self.max:
            raise STLArgumentError("min_value", self.min, f"at most max_value, {self.max}")
        if self.init is not None and self.values is None and not self.min <= self.init <= self.max:
            raise STLArgumentError("init_value", self.init, f"{self.min} to {self.max}")

    def operation(self) -> Json:
        """The variable in the bench's model."""
        if self.values is not None:
            values = self.values[::-1] if self.op == "dec" else list(self.values)
            if self.op == "random":
                # Equally likely values in a long fixed order, the same in every run.
                picker = random.Random(self.name)
                values = [picker.choice(values) for _ in range(4096)]
            return {"list": values}
        if self.op == "random":
            return {"random": {"min": self.min, "max": self.max}}
        first, last = (self.min, self.max) if self.op == "inc" else (self.max, self.min)
        if self.init not in (None, first):
            return {"list": self._from(self.init or 0, first, last)}
        kind = "increment" if self.op == "inc" else "decrement"
        return {kind: {"first": first, "last": last, "step": self.step}}

    def _from(self, init: int, first: int, last: int) -> list[int]:
        """The values that begin in the middle, once around."""
        if (self.max - self.min) // self.step >= LISTED_MAX:
            raise STLArgumentError("init_value", init, f"{first}, or a range of at most {LISTED_MAX} values")
        step = self.step if first <= last else -self.step
        end = last + (1 if step > 0 else -1)
        return [*range(init, end, step), *range(first, init, step)]


class STLVmFlowVarRepeatableRandom(Instruction):
    """A variable whose `limit` random values come again in the same order."""

    def __init__(
        self,
        name: str,
        size: int = 4,
        limit: int = 100,
        seed: int | None = None,
        min_value: int | str = 0,
        max_value: int | str | None = None,
        split_by_core: bool = True,
        next_var: str | None = None,
    ) -> None:
        """A variable of `size` bytes."""
        if size not in _WIDTHS:
            raise STLArgumentError("size", size, _WIDTHS)
        self.name, self.size, self.limit, self.seed = name, size, limit, seed
        self.min = number(min_value)
        self.max = (1 << 8 * size) - 1 if max_value is None else number(max_value)
        self.split_by_core = split_by_core
        self.next_var = next_var

    def operation(self) -> Json:
        """The variable in the bench's model; a seed of its own gives values of its own."""
        if self.seed is None:
            return {"random": {"min": self.min, "max": self.max, "repeat_after": self.limit}}
        if self.limit > LISTED_MAX:
            raise STLArgumentError("limit", self.limit, f"at most {LISTED_MAX} with a seed")
        picker = random.Random(self.seed)
        return {"list": [picker.randint(self.min, self.max) for _ in range(self.limit)]}


class STLVmTupleGen(Instruction):
    """An address, `NAME.ip`, that changes with every packet, and a port, `NAME.port`, that follows."""

    def __init__(
        self,
        name: str,
        ip_min: int | str = "0.0.0.1",
        ip_max: int | str = "0.0.0.10",
        port_min: int = 1025,
        port_max: int = 65535,
        limit_flows: int = 100_000,
        flags: int = 0,
    ) -> None:
        """A pair of variables."""
        self.name, self.flags = name, flags
        self.addresses = (number(ip_min), number(ip_max))
        self.ports = (port_min, port_max)
        self.limit_flows = limit_flows

    def operation(self) -> Json:
        """The pair in the bench's model, with as many flows as it may have."""
        (first, last), (low, high) = self.addresses, self.ports
        addresses, ports = last - first + 1, high - low + 1
        if self.limit_flows and self.limit_flows < addresses:
            last, high = first + self.limit_flows - 1, low
        elif self.limit_flows and self.limit_flows < addresses * ports:
            # Whole rounds of the addresses.
            high = low + self.limit_flows // addresses - 1
        return {
            "name": self.name,
            "address_first": first,
            "address_last": last,
            "port_first": low,
            "port_last": high,
        }


class STLVmWrFlowVar(Instruction):
    """Writes a variable into the packet, at a field or an offset."""

    def __init__(
        self,
        fv_name: str,
        pkt_offset: int | str,
        offset_fixup: int = 0,
        add_val: int = 0,
        is_big: bool = True,
    ) -> None:
        """A place in the packet."""
        if not is_big:
            raise STLArgumentError("is_big", is_big, True, "packets have network order")
        self.name, self.where, self.fixup, self.add = fv_name, pkt_offset, offset_fixup, add_val

    def write(self, packet: Packet) -> Json:
        """The place in the bench's model."""
        return {"offset": _offset(packet, self.where) + self.fixup, "add": self.add}


class STLVmWrMaskFlowVar(Instruction):
    """Writes some bits of a variable."""

    def __init__(
        self,
        fv_name: str,
        pkt_offset: int | str,
        pkt_cast_size: int = 1,
        mask: int = 0xFF,
        shift: int = 0,
        add_value: int = 0,
        offset_fixup: int = 0,
        is_big: bool = True,
    ) -> None:
        """A place in the packet, of `pkt_cast_size` bytes, of which `mask` are written."""
        if not is_big:
            raise STLArgumentError("is_big", is_big, True, "packets have network order")
        if pkt_cast_size not in (1, 2, 4):
            raise STLArgumentError("pkt_cast_size", pkt_cast_size, [1, 2, 4])
        self.name, self.where, self.fixup = fv_name, pkt_offset, offset_fixup
        self.width, self.mask, self.shift, self.add = pkt_cast_size, mask, shift, add_value

    def write(self, packet: Packet) -> Json:
        """The place in the bench's model."""
        return {
            "offset": _offset(packet, self.where) + self.fixup,
            "width": self.width,
            "mask": self.mask,
            "shift": self.shift,
            "add": self.add,
        }


class STLVmFixIpv4(Instruction):
    """Keeps checksums of IPv4 headers right."""

    def __init__(self, offset: int | str = "IP") -> None:
        """All IPv4 headers are kept right, wherever `offset` points."""
        self.offset = offset


class STLVmFixChecksumHw(Instruction):
    """Keeps the checksums of IPv4 and of what it carries right."""

    def __init__(self, l3_offset: int | str, l4_offset: int | str, l4_type: int = 0) -> None:
        """All layers are kept right, wherever the offsets point."""
        self.l3_offset, self.l4_offset, self.l4_type = l3_offset, l4_offset, l4_type


class STLVmFixIcmpv6(Instruction):
    """Keeps the checksum of ICMPv6 right."""

    def __init__(self, l3_offset: int | str, l4_offset: int | str) -> None:
        """All layers are kept right, wherever the offsets point."""
        self.l3_offset, self.l4_offset = l3_offset, l4_offset


class STLVmTrimPktSize(Instruction):
    """Gives packets the length that a variable says."""

    def __init__(self, fv_name: str) -> None:
        """The variable is of two bytes."""
        self.name = fv_name


CTRexVmInsFixHwCs_L4_TYPE_UDP = 11
CTRexVmInsFixHwCs_L4_TYPE_TCP = 13
CTRexVmInsFixHwCs_L4_TYPE_IP = 17


class CTRexVmInsFixHwCs(Strict):
    """Kinds of checksums, for `STLVmFixChecksumHw`."""

    L4_TYPE_UDP = CTRexVmInsFixHwCs_L4_TYPE_UDP
    L4_TYPE_TCP = CTRexVmInsFixHwCs_L4_TYPE_TCP
    L4_TYPE_IP = CTRexVmInsFixHwCs_L4_TYPE_IP


class STLScVmRaw(Strict):
    """A field program: variables, and where they go."""

    def __init__(
        self,
        list_of_commands: Sequence[Instruction] = (),
        split_by_field: str | None = None,
        cache_size: int | None = None,
    ) -> None:
        """`split_by_field` and `cache_size` change nothing: packets do not depend on cores here."""
        self.commands: list[Instruction] = []
        self.split_by_field, self.cache_size = split_by_field, cache_size
        for command in list_of_commands:
            self.add_cmd(command)

    def add_cmd(self, command: Instruction) -> None:
        """Adds a step."""
        if not isinstance(command, Instruction):
            raise STLError(f"{command!r} is no step of a field program")
        self.commands.append(command)


class STLVM(STLScVmRaw):
    """A field program built up step by step."""

    def var(self, **arguments: Any) -> None:
        """Adds a variable."""
        self.add_cmd(STLVmFlowVar(**arguments))

    def repeatable_random_var(self, fv_name: str, **arguments: Any) -> None:
        """Adds a repeatable random variable."""
        self.add_cmd(STLVmFlowVarRepeatableRandom(fv_name, **arguments))

    def tuple_var(self, **arguments: Any) -> None:
        """Adds an address and a port."""
        self.add_cmd(STLVmTupleGen(**arguments))

    def write(self, **arguments: Any) -> None:
        """Adds a place."""
        self.add_cmd(STLVmWrFlowVar(**arguments))

    def write_mask(self, **arguments: Any) -> None:
        """Adds a place of some bits."""
        self.add_cmd(STLVmWrMaskFlowVar(**arguments))

    def fix_chksum(self, offset: int | str = "IP") -> None:
        """Has checksums of IPv4 headers kept right."""
        self.add_cmd(STLVmFixIpv4(offset))

    def fix_chksum_hw(
        self, l3_offset: int | str = "IP", l4_offset: int | str = "UDP", l4_type: int = 0
    ) -> None:
        """Has all checksums kept right."""
        self.add_cmd(STLVmFixChecksumHw(l3_offset, l4_offset, l4_type))

    def trim(self, fv_name: str) -> None:
        """Has a variable say the length."""
        self.add_cmd(STLVmTrimPktSize(fv_name))


@dataclass
class STLPktBuilder:
    """A packet, and a field program for it."""

    pkt: Packet | None = None
    pkt_buffer: bytes | None = None
    vm: STLScVmRaw | Sequence[Instruction] | None = None
    path_relative_to_profile: bool = False
    build_raw: bool = False
    remove_fcs: bool = True
    _template: bytes = field(default=b"", init=False, repr=False)

    def __post_init__(self) -> None:
        """Takes a list of steps for a program."""
        if self.pkt is None and self.pkt_buffer is None:
            raise STLError("STLPktBuilder: a packet is missing: give pkt or pkt_buffer")
        if self.vm is not None and not isinstance(self.vm, STLScVmRaw):
            self.vm = STLScVmRaw(self.vm)

    def packet(self, source: str | None = None, destination: str | None = None) -> Packet:
        """The packet, with MAC addresses of a port where it gives none."""
        if self.pkt is None:
            return Ether(self.pkt_buffer or b"")
        given = {}
        if source:
            given["source"] = source
        if destination:
            given["destination"] = destination
        return with_addresses(self.pkt, **given)

    def get_pkt_len(self) -> int:
        """Bytes of the packet, with FCS."""
        return len(bytes(self.packet())) + 4

    def template(self, source: str | None = None, destination: str | None = None) -> Json:
        """The packet and its program in the bench's model."""
        packet = self.packet(source, destination)
        data = bytes(packet) if self.pkt_buffer is None else self.pkt_buffer
        commands = self.vm.commands if isinstance(self.vm, STLScVmRaw) else []
        try:
            return {"bytes": data.hex()} | _program(packet, commands)
        except FieldError as error:
            raise STLError(f"STLPktBuilder: {error}") from error


def _offset(packet: Packet, where: int | str) -> int:
    return where if isinstance(where, int) else offset_of(packet, where, first=0)


def _program(packet: Packet, commands: Sequence[Instruction]) -> Json:
    variables = [step for step in commands if isinstance(step, STLVmFlowVar | STLVmFlowVarRepeatableRandom)]
    tuples = [step for step in commands if isinstance(step, STLVmTupleGen)]
    trims = [step.name for step in commands if isinstance(step, STLVmTrimPktSize)]
    names = {variable.name for variable in variables}
    names |= {f"{pair.name}.{half}" for pair in tuples for half in ("ip", "port")}
    lengths: Json | str = "template"
    writes = []
    for step in commands:
        if not isinstance(step, STLVmWrFlowVar | STLVmWrMaskFlowVar):
            continue
        if step.name not in names:
            raise STLError(f"{type(step).__name__}: there is no variable {step.name}, but {sorted(names)}")
        if step.name in trims:
            _check_length_field(packet, step)
        else:
            name = step.name.removesuffix(".ip") + ".address" if step.name.endswith(".ip") else step.name
            writes.append({"variable": name} | step.write(packet))
    for trim in trims:
        lengths = _lengths(next((step for step in variables if step.name == trim), None), trim)
    return {
        "variables": [_variable(step, variables) for step in _chained(variables) if step.name not in trims],
        "tuples": [pair.operation() for pair in tuples],
        "writes": writes,
        "lengths": lengths,
        "checksums": _checksums(commands),
    }


def _checksums(commands: Sequence[Instruction]) -> str:
    """TRex changes checksums only when it is told to."""
    if not commands or any(isinstance(step, STLVmFixChecksumHw | STLVmFixIcmpv6) for step in commands):
        return "all"
    return "headers" if any(isinstance(step, STLVmFixIpv4) for step in commands) else "none"


def _check_length_field(packet: Packet, step: STLVmWrFlowVar | STLVmWrMaskFlowVar) -> None:
    """Length fields follow the packet's length by themselves; the variable must not go anywhere else."""
    at = step.write(packet)["offset"]
    for layer in (IP, IPv6, UDP, TCP):
        for kind, name in _LENGTH_FIELDS:
            if layer.__name__ == kind and layer in packet:
                count, found = 0, packet.getlayer(layer)
                while found is not None:
                    if offset_of(packet, f"{kind}:{count}.{name}", first=0) == at:
                        return
                    count += 1
                    found = packet.getlayer(layer, count + 1)
    raise STLError(
        f"{type(step).__name__}: {step.name} says the packet's length and can only be written "
        f"into length fields, not at offset {at}"
    )


def _lengths(variable: STLVmFlowVar | STLVmFlowVarRepeatableRandom | None, name: str) -> Json:
    match variable:
        case STLVmFlowVar(op="random", values=None):
            return {"random": {"min": variable.min, "max": variable.max}}
        case STLVmFlowVar(op="inc", values=None, init=None):
            return {"sweep": {"first": variable.min, "last": variable.max, "step": variable.step}}
        case STLVmFlowVar(op="random", values=list(values)):
            shares = [{"bytes": value, "weight": values.count(value)} for value in sorted(set(values))]
            return {"mix": shares}
        case None:
            raise STLError(f"STLVmTrimPktSize: there is no variable {name}")
        case _:
            raise STLError(f"STLVmTrimPktSize: {name} must be `inc` from its least value, or `random`")


def _chained(
    variables: Sequence[STLVmFlowVar | STLVmFlowVarRepeatableRandom],
) -> list[STLVmFlowVar | STLVmFlowVarRepeatableRandom]:
    """The variables, each behind the one that leads it."""
    named = {variable.name: variable for variable in variables}
    for variable in variables:
        if variable.next_var is not None and variable.next_var not in named:
            raise STLError(f"next_var of {variable.name}: there is no variable {variable.next_var}")
    led = {variable.next_var for variable in variables}
    ordered: list[STLVmFlowVar | STLVmFlowVarRepeatableRandom] = []
    for variable in variables:
        step: STLVmFlowVar | STLVmFlowVarRepeatableRandom | None = (
            variable if variable.name not in led else None
        )
        while step is not None and step not in ordered:
            ordered.append(step)
            step = named[step.next_var] if step.next_var else None
    if len(ordered) != len(variables):
        raise STLError(f"next_var: {sorted(set(named) - {step.name for step in ordered})} lead in a circle")
    return ordered


def _variable(
    variable: STLVmFlowVar | STLVmFlowVarRepeatableRandom,
    all_of_them: Sequence[STLVmFlowVar | STLVmFlowVarRepeatableRandom],
) -> Json:
    leader = next((other.name for other in all_of_them if other.next_var == variable.name), None)
    operation = variable.operation()
    return {"name": variable.name, "width": variable.size, "operation": operation, "after": leader}
