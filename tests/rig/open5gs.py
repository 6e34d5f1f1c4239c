"""The SMF of Open5GS, whoever built it, with the neighbours of `rig.core5g`; and its UEs' IPv6."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address

from rig.bearer import Bearer, inner, opened, uplink
from rig.core5g import Core, Session
from rig.gtpu import G_PDU, Access, checksum, icmpv6
from rig.net import CABLES, UE_IPV4, UE_IPV6, Cable, Network, wait_until

#: Times are milliseconds: of requests that are not answered, all that they are sent again in.
CONFIG = f"""\
logger: {{level: info}}
global: {{max: {{ue: 64}}}}
time: {{message: {{duration: 3000}}}}
smf:
  sbi:
    server: [{{address: 127.0.0.2, port: 8000}}]
    client: {{nrf: [{{uri: "http://127.0.0.10:8000"}}]}}
  pfcp:
    server: [{{address: 10.100.4.2}}]
    client: {{upf: [{{address: 10.100.4.1}}]}}
  gtpc: {{server: [{{address: 10.100.4.2}}]}}
  gtpu: {{server: [{{address: 10.100.4.2}}]}}
  session:
    - {{subnet: {UE_IPV4}, gateway: 10.60.0.1}}
    - {{subnet: "{UE_IPV6}", gateway: "2001:db8:60::1"}}
  dns: [10.100.6.2, "fd00:6::2"]
  mtu: 1400
"""

ALL_ROUTERS, ALL_NODES = "ff02::2", "ff02::1"
ICMPV6, SOLICITATION, ADVERTISEMENT, PREFIX_INFORMATION = 58, 133, 134, 3


class Open5gs(Core):
    """The SMF and its neighbours as processes."""

    def command(self) -> list[str]:
        """Write the SMF's configuration; how it is started."""
        config = self.folder / "open5gs.yaml"
        config.write_text(CONFIG)
        return [str(self.smf), "-c", str(config)]

    def associations(self) -> int:
        """How often the SMF was given an association."""
        log = self.log.read_text(errors="replace") if self.log.exists() else ""
        return log.count("PFCP associated")


class BehindN4(Network):
    """A RAN, a data network, and an SMF whose GTP-U address only N4 leads to."""

    def __init__(self, prefix: str) -> None:
        """Name the namespaces with a prefix."""
        n3, n4, n6 = CABLES
        n4 = Cable("smf", "smf0", n4.left_addresses, n4.right, n4.right_name, n4.right_addresses)
        super().__init__(prefix, ("ran", "smf", "upf", "dn"), (n3, n4, n6))

    def route(self) -> None:
        """The SMF has a route to the node's tunnels, and UEs are behind the node."""
        self.spaces["smf"].ip("route", "add", "10.100.3.0/24", "via", "10.100.4.1")
        for network, gateway in ((UE_IPV4, "10.100.6.1"), (UE_IPV6, "fd00:6::1")):
            self.spaces["dn"].ip("route", "add", network, "via", gateway)


@dataclass(frozen=True)
class Prefix:
    """What a router advertisement gives a UE (RFC 4861 4.2, 4.6.2)."""

    router: str
    prefix: IPv6Network
    flags: int
    options: tuple[int, ...]


def solicit(gnb: Access, session: Session, teid: int) -> Prefix | None:
    """Ask for a prefix as a UE does that knows its link-local address; the answer, if one comes."""
    own = str(IPv6Address(0xFE80 << 112 | int(session.identifier, 16)))
    packet = icmpv6(own, ALL_ROUTERS, bytes([SOLICITATION]) + bytes(7))
    gnb.send(uplink(session.teid, session.qfis[0], packet))
    message = gnb.receive(G_PDU, 1)
    if message is None:
        return None
    assert int.from_bytes(message[4:8], "big") == teid, message.hex()
    return advertised(inner(message)[0], own)


def advertised(packet: bytes, own: str) -> Prefix:
    """A router advertisement, which must be well formed."""
    router, destination, protocol, body = opened(packet)
    assert packet[7] == 255, "RFC 4861 6.1.2: hop limit 255"
    assert protocol == ICMPV6, packet.hex()
    assert destination in (ALL_NODES, own)
    pseudo = packet[8:40] + len(body).to_bytes(4, "big") + ICMPV6.to_bytes(4, "big")
    assert checksum(pseudo + body) == 0, packet.hex()
    assert body[0] == ADVERTISEMENT
    options, at, found = [], 16, None
    while at < len(body):
        kind, length = body[at], 8 * body[at + 1]
        options.append(kind)
        if kind == PREFIX_INFORMATION:
            found = IPv6Network((body[at + 16 : at + 32], body[at + 2])), body[at + 3]
        at += length
    assert found is not None, packet.hex()
    return Prefix(router, *found, tuple(options))


def bearers(gnb: Access, session: Session, teid: int) -> list[Bearer]:
    """The UE's ends of a session, one for each family that it has, which wait until data go both ways."""
    ends = []
    if session.ue:
        ends.append(Bearer(gnb, session.ue, session.teid, teid, session.qfis[0]))
    if session.identifier:
        given: list[Prefix] = []

        def asked() -> bool:
            answer = solicit(gnb, session, teid)
            given.extend([answer] if answer else [])
            return bool(given)

        wait_until(asked, "a router advertisement comes")
        whole = int(given[0].prefix.network_address) | int(session.identifier, 16)
        ends.append(Bearer(gnb, str(ip_address(whole)), session.teid, teid, session.qfis[0], port=4006))
    for end in ends:
        end.wait()
    return ends
