"""Traffic through a user plane, from Python.

The bench's generator, receiver and oracle are native; this package describes traffic with scapy's layers and
shows what a run has given as polars frames.
"""

from kaido._native import __version__
from kaido.client import Client
from kaido.fields import FieldError, find, offset_of
from kaido.ports import L3, Cables, Port, Upf, af_packet, af_xdp, memory, pcap
from kaido.result import Result
from kaido.stream import (
    AddressAndPort,
    At,
    Decrement,
    Increment,
    Lengths,
    Listed,
    Mode,
    Random,
    Rate,
    Raw,
    Replay,
    Stream,
)

__all__ = [
    "L3",
    "AddressAndPort",
    "At",
    "Cables",
    "Client",
    "Decrement",
    "FieldError",
    "Increment",
    "Lengths",
    "Listed",
    "Mode",
    "Port",
    "Random",
    "Rate",
    "Raw",
    "Replay",
    "Result",
    "Stream",
    "Upf",
    "__version__",
    "af_packet",
    "af_xdp",
    "find",
    "memory",
    "offset_of",
    "pcap",
]
