"""TRex's stateless names, over kaido: scripts and profiles run with the import changed.

`from kaido.trex import *` takes the place of `from trex.stl.api import *`, also in profiles.
A name that is not there raises an error that says which, and what to use.
"""

from typing import Any

from scapy.contrib.gtp import GTP_U_Header, GTPPDUSessionContainer
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6
from scapy.layers.l2 import ARP, GRE, Dot1AD, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw

from kaido.trex.client import STLClient
from kaido.trex.errors import (
    STLArgumentError,
    STLError,
    STLNotHere,
    STLTimeoutError,
    STLTypeError,
    missing_name,
)
from kaido.trex.packet import (
    STLVM,
    CTRexVmInsFixHwCs,
    STLPktBuilder,
    STLScVmRaw,
    STLVmFixChecksumHw,
    STLVmFixIcmpv6,
    STLVmFixIpv4,
    STLVmFlowVar,
    STLVmFlowVarRepeatableRandom,
    STLVmTrimPktSize,
    STLVmTupleGen,
    STLVmWrFlowVar,
    STLVmWrMaskFlowVar,
)
from kaido.trex.streams import (
    STLFlowLatencyStats,
    STLFlowStats,
    STLProfile,
    STLStream,
    STLTXCont,
    STLTXMultiBurst,
    STLTXSingleBurst,
)

__all__ = [
    "ARP",
    "GRE",
    "ICMP",
    "IP",
    "MPLS",
    "STLVM",
    "TCP",
    "UDP",
    "VXLAN",
    "CTRexVmInsFixHwCs",
    "Dot1AD",
    "Dot1Q",
    "Ether",
    "GTPPDUSessionContainer",
    "GTP_U_Header",
    "ICMPv6EchoRequest",
    "IPv6",
    "Packet",
    "Raw",
    "STLArgumentError",
    "STLClient",
    "STLError",
    "STLFlowLatencyStats",
    "STLFlowStats",
    "STLNotHere",
    "STLPktBuilder",
    "STLProfile",
    "STLScVmRaw",
    "STLStream",
    "STLTXCont",
    "STLTXMultiBurst",
    "STLTXSingleBurst",
    "STLTimeoutError",
    "STLTypeError",
    "STLVmFixChecksumHw",
    "STLVmFixIcmpv6",
    "STLVmFixIpv4",
    "STLVmFlowVar",
    "STLVmFlowVarRepeatableRandom",
    "STLVmTrimPktSize",
    "STLVmTupleGen",
    "STLVmWrFlowVar",
    "STLVmWrMaskFlowVar",
]


def __getattr__(name: str) -> Any:
    """Says what to use in place of a name that is not there."""
    missing_name(name)
