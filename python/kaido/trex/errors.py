"""Errors with TRex's names, and what stands in for names that are not there."""

from __future__ import annotations

from typing import NoReturn


class STLError(Exception):
    """Anything that went wrong; `msg` says what."""

    def __init__(self, msg: str = "") -> None:
        """An error with a message."""
        super().__init__(msg)
        self.msg = msg

    def brief(self) -> str:
        """The message."""
        return self.msg


class STLTypeError(STLError):
    """An argument of a wrong type."""

    def __init__(self, arg_name: str, arg_type: object, valid_types: object) -> None:
        """An error that names the argument."""
        super().__init__(f"{arg_name} is of type {arg_type}, possible is {valid_types}")


class STLArgumentError(STLError):
    """An argument with a wrong value."""

    def __init__(self, name: str, got: object, valid_values: object = None, extended: str = "") -> None:
        """An error that names the argument."""
        possible = "" if valid_values is None else f", possible is {valid_values}"
        super().__init__(f"{name} is {got!r}{possible}{extended and ': ' + extended}")


class STLTimeoutError(STLError):
    """Something took longer than was given to it."""

    def __init__(self, timeout: float, what: str = "traffic") -> None:
        """An error after so many seconds."""
        super().__init__(f"{what} did not end within {timeout} s")


class STLNotHere(STLError, ImportError):
    """A name of TRex's that kaido does not have."""


_INSTEAD = {
    "ASTFClient": "kaido generates stateless traffic only",
    "ASTFProfile": "kaido generates stateless traffic only",
    "STLPktBuilderRaw": "STLPktBuilder(pkt_buffer=...) takes bytes",
    "STLTaggedPktGroup": "an STLFlowStats for each tag",
    "TaggedPacketGroupStats": "an STLFlowStats for each tag",
    "STLHltStream": "an STLStream with a scapy packet",
    "TRexClient": "STLClient",
    "CTRexClient": "nothing has to be started: traffic is made in this process",
    "ServiceICMP": "STLClient.ping_ip",
    "ServiceARP": "STLClient.arp",
    "ServiceIPv6Scan": "STLClient.resolve",
    "STLServiceARP": "STLClient.arp",
    "STLServiceICMP": "STLClient.ping_ip",
    "STLServiceDHCP": "there is no DHCP client: give addresses with STLClient.set_l3_mode",
    "STLVmFixChecksumSw": "STLVmFixChecksumHw",
    "set_vlan": "Dot1Q in the packet, or set_l3_mode(vlan=...)",
    "clear_vlan": "a packet without Dot1Q",
    "set_namespace": "there are no namespaces: ports are interfaces of this process's own",
    "conf_ipv6": "set_l2_mode with the next hop's MAC address",
    "push_remote": "push_pcap: the file is read by this process",
    "wait_for_event": "wait_on_traffic",
    "fetch_capture_packets": "stop_capture(output=[])",
    "create_service_ctx": "ping_ip, arp and resolve",
    "set_capture_port": "start_capture and stop_capture",
    "get_tpg_status": "an STLFlowStats for each tag",
    "map_ports": "get_all_ports: ports are joined as the configuration says",
    "tx_l2_ping": "ping_ip",
    "get_profiles": "get_streams: a port has one profile",
}


def _sentence(owner: str, name: str) -> str:
    instead = _INSTEAD.get(name)
    advice = f"; instead: {instead}" if instead else "; docs/python.md lists what there is"
    return f"kaido.trex has no {owner}{name}{advice}"


def missing_name(name: str) -> NoReturn:
    """Says that the module lacks a name, and what to use."""
    if name.startswith("__"):
        raise AttributeError(name)
    raise STLNotHere(_sentence("", name))


class Strict:
    """A class whose missing attributes say what to use instead."""

    def __getattr__(self, name: str) -> NoReturn:
        """Called for what is not there only."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(_sentence(f"{type(self).__name__}.", name))
