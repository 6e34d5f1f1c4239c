"""The 25 classes of hostile input, each with its right answer from the real binary.

After each class the node answers a heartbeat and an echo request, forwards a packet both ways, has the
sessions it had, and no thread of it has died. One node stands through all of them.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from rig.gtpu import (
    END_MARKER,
    ERROR_INDICATION,
    G_PDU,
    gtpu,
    ipv4,
    udp,
)
from rig.net import Topology, wait_until
from rig.node import Node
from rig.pfcp import (
    DELETION,
    ESTABLISHMENT,
    HEARTBEAT,
    MODIFICATION,
    RELEASE,
    SETUP,
    choose,
    create_far,
    create_pdr,
    downlink,
    f_seid,
    ie,
    message,
    node_id,
    to_access,
    to_core,
    u8,
    u16,
    u32,
    ue_address,
    uplink,
)
from rig.target import DN, DN_PORT, DOWNLINK_TEID, GNB, N3, N6, SMF, STRANGER, UE, UE_PORT, Target, standing

pytestmark = [pytest.mark.needs("root", "ip", "ethtool"), pytest.mark.xdist_group("hostile_classes")]

SESSIONS_MAX = 40
#: What a node answers of one kind unless it is told otherwise (docs/configuration.md).
ANSWERS_PER_SECOND = 100


@pytest.fixture(scope="module")
def target(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The node."""
    with Topology(f"kh{os.getpid()}-") as net:
        folder = tmp_path_factory.mktemp("hostile")
        with standing(Node(binary, net.upf, folder, sessions_max=SESSIONS_MAX), net) as target:
            yield target


def refused(target: Target, *rules: bytes) -> tuple[int, int | None]:
    """The verdict on an establishment that must leave nothing behind."""
    answer = target.smf.establish(*rules)
    assert answer.kind == ESTABLISHMENT + 1
    assert answer.cause >= 64
    assert answer.value(57) is None
    return answer.verdict


def pdr_with(pdi: bytes) -> bytes:
    """PDR 1 with another PDI."""
    return create_pdr(1, 1, pdi)


def far_with(parameters: bytes) -> bytes:
    """FAR 1 with other forwarding parameters."""
    return create_far(1, 2, parameters)


def class_01_session_message_without_association(target: Target) -> None:
    """Cause 72.

    Conformance: TS 29.244 5.8.3 | A session message without an association is refused with cause 72
    """
    for kind in (ESTABLISHMENT, MODIFICATION, DELETION):
        body = node_id(STRANGER) + f_seid(1, STRANGER) + uplink() + to_core()
        assert target.stranger.ask(kind, body if kind == ESTABLISHMENT else b"", 1).cause == 72


def class_02_node_id_or_recovery_time_stamp_missing(target: Target) -> None:
    """Cause 66.

    Conformance: TS 29.244 7.6.6 | A missing Node ID, time stamp, F-SEID or Source Interface gets cause 66
    """
    assert target.stranger.ask(SETUP, u32(96, target.stranger.started)).cause == 66
    assert target.stranger.ask(SETUP, node_id(STRANGER)).cause == 66
    assert target.stranger.ask(RELEASE).cause in (66, 72)
    body = f_seid(7, SMF) + uplink() + to_core()
    assert target.smf.ask(ESTABLISHMENT, body, 0).verdict == (66, 60)


def class_03_truncated_header_and_inconsistent_length(target: Target) -> None:
    """Silence where no header can be read; else cause 68.

    Conformance: TS 29.244 7.6.3 | A message of another length than its header says is refused or discarded
    """
    deletion = message(DELETION, target.smf.next(), b"", target.session.up_seid)
    for end in range(len(deletion)):
        target.smf.send(deletion[:end])
    assert target.smf.silence()
    assert target.smf.ask_raw(deletion + b"\0", target.smf.sequence).cause == 68
    sequence = target.smf.next()
    body = node_id(SMF) + f_seid(7, SMF) + uplink() + to_core()
    short = message(ESTABLISHMENT, sequence, body, 0)[:-3]
    assert target.smf.ask_raw(short, sequence).cause == 68


def class_04_other_version(target: Target) -> None:
    """Version Not Supported, and silence to such a response.

    Conformance: TS 29.244 7.6.2 | A message of another version is answered with Version Not Supported
    """
    for version in (0, 2, 7):
        sequence = target.smf.next()
        request = bytearray(message(HEARTBEAT, sequence, u32(96, 1)))
        request[0] = version << 5
        answer = target.smf.ask_raw(bytes(request), sequence)
        assert (answer.kind, answer.elements) == (11, [])
        request[1] = 11
        target.smf.send(bytes(request))
    assert target.smf.silence()


def class_05_unknown_or_wrong_direction_message(target: Target) -> None:
    """Silence.

    Conformance: TS 29.244 7.6.4 | An unknown message is discarded
    Conformance: TS 29.244 7.6.5 | Unsolicited responses and requests the wrong way are discarded
    """
    requests = {1, 3, 5, 7, 9, 14, 16, 50, 52, 54}
    for kind in set(range(256)) - requests:
        for seid in (None, target.session.up_seid):
            target.smf.send(message(kind, target.smf.next(), b"", seid))
    assert target.smf.silence()


def class_06_unknown_elements_are_skipped(target: Target) -> None:
    """They are stepped over, vendors' and those of types above 0x7fff too.

    Conformance: TS 29.244 7.6.9 | Unknown elements are ignored at every level
    """
    strange = ie(0x7FFF, b"\1\2") + ie(0xFFFF, b"\0\x0a\x09") + ie(0x8123) + ie(4095)
    pdr = create_pdr(1, 1, u8(20, 0) + choose() + ie(0x9001, b"\0\x0a\1"), u8(95, 0), ie(0x6000))
    session = target.smf.establish(strange, pdr, to_core())
    assert session.cause == 1
    assert target.smf.delete(session).cause == 1


def class_07_zero_length_mandatory_element(target: Target) -> None:
    """Cause 68 with the element.

    Conformance: TS 29.244 7.6.7 | A mandatory element of length zero gets cause 68
    """
    empty = ie(1, ie(56) + u32(29, 1) + ie(2, u8(20, 0)) + u32(108, 1))
    assert refused(target, empty, to_core()) == (68, 56)
    assert refused(target, create_pdr(1, 1, b""), to_core()) == (68, 2)
    assert refused(target, ie(1), to_core()) == (68, 1)
    assert refused(target, uplink(), ie(3, ie(108) + u8(44, 2))) == (68, 108)
    assert refused(target, uplink(), ie(3, u32(108, 1) + ie(44))) == (68, 44)
    assert target.stranger.ask(SETUP, ie(60) + u32(96, 1)).cause == 68


def class_08_child_overruns_its_parent(target: Target) -> None:
    """Cause 68.

    Conformance: TS 29.244 7.6.7 | An element that is longer than its parent gets cause 68
    """
    assert refused(target, ie(1, ie(56, b"\0\1", length=200)), to_core()) == (68, 56)
    assert refused(target, pdr_with(ie(20, b"\0", length=2)), to_core()) == (68, 20)
    body = ie(60, b"\0" + ip_address(SMF).packed, length=200)
    assert target.smf.ask(ESTABLISHMENT, body, 0).verdict == (68, 60)


def class_09_f_seid_or_source_interface_missing(target: Target) -> None:
    """Cause 66; without an F-SEID the answer goes to SEID 0.

    Conformance: TS 29.244 7.2.2.4.2 | A refusal to a peer whose SEID is not known has SEID 0
    """
    answer = target.smf.ask(ESTABLISHMENT, node_id(SMF) + uplink() + to_core(), 0)
    assert (answer.verdict, answer.seid) == ((66, 57), 0)
    assert refused(target, pdr_with(ue_address(UE, destination=False)), to_core()) == (66, 20)
    assert refused(target, to_core()) == (66, 1)
    assert refused(target, uplink()) == (66, 3)


def class_10_pdr_without_far_then_traffic(target: Target) -> None:
    """Refused, so that its traffic finds no tunnel.

    Conformance: TS 29.244 5.2.1 | A PDR needs a FAR of its session
    """
    teid = 0x00ABCDEF
    pdi = u8(20, 0) + choose(teid)
    no_far = ie(1, u16(56, 1) + u32(29, 1) + ie(2, pdi))
    assert refused(target, no_far, to_core())[0] in (66, 67)
    assert refused(target, create_pdr(1, 9, pdi), to_core())[0] == 73
    with target.dropping(10, "teid_unknown"):
        for _ in range(10):
            target.gnb.send(gtpu(G_PDU, teid, ipv4(UE, DN, udp(1, DN_PORT, b"lost"))))


def class_11_update_or_query_of_an_absent_rule(target: Target) -> None:
    """Cause 73 with the rule.

    Conformance: TS 29.244 5.6.3 | A change of a rule that is not there is refused whole, with the rule's ID
    """
    absent = u32(108, 9)
    for body, failed in (
        (ie(10, absent + u8(44, 1)), b"\x01\0\0\0\x09"),
        (ie(9, u16(56, 9) + u32(29, 1)), b"\x00\0\x09"),
        (ie(14, u32(109, 9) + u8(25, 0)), b"\x02\0\0\0\x09"),
        (ie(77, u32(81, 9)), b"\x03\0\0\0\x09"),
        (ie(15, u16(56, 9)), b"\x00\0\x09"),
        (ie(16, absent), b"\x01\0\0\0\x09"),
    ):
        # What could be done is not done either: the FAR of the standing session would drop.
        possible = ie(10, u32(108, 1) + u8(44, 1))
        answer = target.smf.ask(MODIFICATION, possible + body, target.session.up_seid)
        assert (answer.cause, answer.value(114)) == (73, failed), body.hex()


def class_12_outer_header_creation_empty_or_without_address(target: Target) -> None:
    """Cause 68 or 69.

    Conformance: TS 29.244 8.2.56 | An Outer Header Creation without what its description announces is refused
    """
    for value, cause in (
        (b"", 68),
        (b"\1\0", 68),
        (b"\1\0\0\0\0\x09", 68),
        (b"\1\0\0\0\0\x09\x0a\0", 68),
        (b"\0\0\0\0\0\x09", 69),
        (b"\1\0\0\0\0\0\x0a\0\0\1", 69),
    ):
        far = far_with(u8(42, 0) + ie(84, value))
        assert refused(target, uplink(), far) == (cause, 84), value.hex()


def class_13_unknown_destination_interface(target: Target) -> None:
    """Cause 69.

    Conformance: TS 29.244 7.6.8 | A value that means nothing gets cause 69 with its element
    """
    assert refused(target, uplink(), far_with(u8(42, 15))) == (69, 42)
    assert refused(target, pdr_with(u8(20, 15)), to_core()) == (69, 20)


def class_14_bad_sdf_text_or_inner_length(target: Target) -> None:
    """Cause 69, or 68 where lengths are wrong.

    Conformance: TS 29.244 8.2.5 | An SDF filter that is no flow description is refused
    """

    def sdf(text: bytes, length: int | None = None) -> bytes:
        return ie(23, b"\1\0" + struct.pack("!H", len(text) if length is None else length) + text)

    sound = b"permit out ip from any to assigned"
    for filter_, causes in (
        (sdf(b"permit out ip from any"), (69, 73)),
        (sdf(b"permit out ip from 1.2.3.4.5 to assigned"), (69, 73)),
        (sdf(b"\xff" * 8), (69, 73)),
        (sdf(b""), (69, 73)),
        (sdf(b"permit out ip from " + b"9" * 4000 + b" to any"), (69, 73)),
        (sdf(sound, 99), (68,)),
        (ie(23, b"\1"), (68,)),
        (ie(23), (68,)),
    ):
        cause, offending = refused(target, pdr_with(u8(20, 1) + filter_), to_core())
        assert cause in causes
        assert offending == 23


def class_15_wrong_length_mbr_or_threshold(target: Target) -> None:
    """Cause 68.

    Conformance: TS 29.244 7.6.7 | An MBR or a threshold of the wrong length gets cause 68
    """
    for length in (0, 1, 5, 9):
        qer = ie(7, u32(109, 1) + u8(25, 0) + ie(26, b"\1" * length))
        assert refused(target, uplink(), to_core(), qer) == (68, 26)
    for value in (b"", b"\1", b"\1\0\0\0", b"\7" + b"\0" * 8):
        urr = ie(6, u32(81, 1) + u8(62, 2) + ie(37, b"\2\0") + ie(31, value))
        assert refused(target, uplink(), to_core(), urr) == (68, 31)


def class_16_rule_flood(target: Target) -> None:
    """Cause 75 and nothing kept. The same rule twice counts once, as real SMFs mean it.

    Conformance: TS 29.244 8.2.1 | More rules than a session may have: cause 75, and nothing is kept
    """
    fteid = choose(0x00200000)
    flood = [create_pdr(n, 1, u8(20, 0) + fteid, u8(95, 0)) for n in range(1, 280)]
    assert refused(target, *flood, to_core())[0] == 75
    target.smf.send(message(ESTABLISHMENT, target.smf.next(), b"".join(4 * flood), 0))
    assert target.smf.silence()
    for rules in ((uplink(), uplink(), to_core()), (uplink(), to_core(), to_core())):
        twice = target.smf.establish(*rules)
        assert twice.cause == 1
        assert target.smf.delete(twice).cause == 1
    # The tunnel of the flood is free: nothing of it was kept.
    session = target.smf.establish(uplink(fteid=fteid), to_core())
    assert session.cause == 1
    assert target.smf.delete(session).cause == 1


def class_17_urr_id_beyond_16_bits_with_istm(target: Target) -> None:
    """Accepted: IDs have 32 bits.

    Conformance: TS 29.244 8.2.54 | URR IDs have 32 bits
    """
    urrs = [ie(6, u32(81, n) + u8(62, 2) + ie(37, b"\0\0\0") + u8(100, 8)) for n in (65535, 0x7FFFFFFF)]
    pdr = create_pdr(1, 1, u8(20, 0) + choose(), u8(95, 0), u32(81, 65535), u32(81, 0x7FFFFFFF))
    session = target.smf.establish(pdr, to_core(), *urrs)
    assert session.cause == 1
    queried = target.smf.ask(MODIFICATION, ie(77, u32(81, 0x7FFFFFFF)), session.up_seid)
    assert queried.cause == 1
    report = queried.value(78)
    assert report is not None
    assert u32(81, 0x7FFFFFFF) in report
    assert target.smf.delete(session).cause == 1


def class_18_teid_zero_or_taken(target: Target) -> None:
    """Cause 69 for what is no TEID, 73 for another session's, or one at an address that is not ours.

    Conformance: TS 29.244 8.2.3 | TEID 0, an F-TEID without address and a taken one are refused
    """
    assert refused(target, uplink(fteid=choose(0)), to_core()) == (69, 21)
    assert refused(target, uplink(fteid=ie(21, b"\0\0\0\0\x09")), to_core()) == (69, 21)
    assert refused(target, uplink(fteid=choose(target.session.teid)), to_core())[0] in (69, 73)
    assert refused(target, uplink(fteid=choose(9, "192.0.2.77")), to_core())[0] in (69, 73, 86)


def class_19_session_flood(target: Target) -> None:
    """Cause 75 at the limit, and room for as many again afterwards.

    Conformance: TS 29.244 8.2.1 | More sessions than configured: cause 75, and tables are as before
    """
    for _ in range(2):
        made = []
        for number in range(2 * SESSIONS_MAX):
            answer = target.smf.establish(
                uplink(), downlink(f"10.60.9.{number}"), to_core(), to_access(number + 1)
            )
            assert answer.cause == (1 if number < SESSIONS_MAX - 1 else 75)
            if answer.cause == 1:
                made.append(answer)
        assert target.sessions() == SESSIONS_MAX
        assert all(target.smf.delete(session).cause == 1 for session in made)


def class_20_unknown_seid_or_another_peers(target: Target) -> None:
    """Cause 65, and SEID 0 in the answer.

    Conformance: TS 29.244 5.8.2 | Sessions answer to the control plane that made them alone
    """
    for seid in (0, 1, target.session.up_seid + 1, (1 << 64) - 1):
        for kind in (MODIFICATION, DELETION):
            answer = target.smf.ask(kind, b"", seid)
            assert (answer.cause, answer.seid) == (65, 0)
    assert target.stranger.set_up().cause == 1
    for kind in (MODIFICATION, DELETION):
        answer = target.stranger.ask(kind, b"", target.session.up_seid)
        assert (answer.cause, answer.seid) == (65, 0)
    assert target.stranger.ask(RELEASE, node_id(SMF)).cause >= 64
    assert target.stranger.ask(RELEASE, node_id(STRANGER)).cause == 1


def class_21_repeated_malformed_establishment(target: Target) -> None:
    """Hundreds of refusals leave no state: as many sessions as before are possible.

    Conformance: TS 29.244 6.3.2 | A refused establishment leaves nothing behind
    """
    for number in range(500):
        fteid = choose(0x00300000 + number % 10)
        wrong = create_far(2, 2, u8(42, 15))
        assert refused(target, uplink(fteid=fteid), downlink("10.60.9.9"), to_core(), wrong) == (69, 42)
    session = target.smf.establish(
        uplink(fteid=choose(0x00300000)), downlink("10.60.9.9"), to_core(), to_access(7)
    )
    assert session.cause == 1
    assert target.smf.delete(session).cause == 1


def class_22_extension_headers_without_end(target: Target) -> None:
    """Discarded: length 0, past the end, and a chain longer than any sender makes.

    Conformance: TS 29.281 5.2.1 | A packet whose extension header has length zero or no end is discarded
    """
    inner = ipv4(UE, DN, udp(UE_PORT, DN_PORT, b"hidden"))
    chain = b"\x01\0\0\x85" * 200 + b"\x01\0\0\0"
    bodies = [b"\0\0\0\x85" + b"\0\0\0\0" + inner, b"\0\0\0\x85" + b"\xff\0\0\0" + inner, b"\0\0\0\x85"]
    bodies += [b"\0\0\0\x85" + chain + inner, b"\0"]
    with target.dropping(6, "gtpu_malformed"):
        for body in bodies:
            target.gnb.send(gtpu(G_PDU, target.session.teid, body, 0x34))
        target.gnb.send(gtpu(G_PDU, target.session.teid, inner, length=len(inner) + 9))


def class_23_inner_packets_that_are_none(target: Target) -> None:
    """Truncated, of wrong header length, of no IP version, IPv6 without payload: discarded.

    Conformance: TS 29.281 4.3.0 | A T-PDU that is no IP packet is discarded
    """
    sound = ipv4(UE, DN, udp(UE_PORT, DN_PORT, b"broken"))
    inner = [sound[:n] for n in (0, 1, 19, 27)]
    inner += [b"\x40" + sound[1:], b"\x4f" + sound[1:], b"\x05" + sound[1:], b"\xf5" + sound[1:]]
    ipv6 = struct.pack("!IHBB", 6 << 28, 0, 17, 64) + ip_address("2001:db8:60::1").packed * 2
    inner += [ipv6, ipv6[:39], sound[:2] + b"\xff\xff" + sound[4:]]
    with target.dropping(len(inner), "inner_malformed", "ue_spoofed", "no_pdr"):
        for packet in inner:
            target.gnb.send(gtpu(G_PDU, target.session.teid, packet))


def class_24_source_not_the_sessions_and_guessed_teids(target: Target) -> None:
    """Dropped; error indications are sent, and not at the rate of the guesses.

    Conformance: TS 29.281 7.3.1 | Error Indications to guessed TEIDs are limited in rate
    """
    with target.dropping(5, "ue_spoofed"):
        for source in ("10.60.0.2", DN, N6, "127.0.0.1", "255.255.255.255"):
            target.up(b"not mine", source=source)
    target.gnb.drain()
    guesses = 2000
    unknown = target.drops("teid_unknown")
    began = time.monotonic()
    for teid in range(guesses):
        target.gnb.send(gtpu(G_PDU, 0x70000000 + teid, b"\x45"))
    wait_until(lambda: target.drops("teid_unknown") >= unknown + guesses, "all are counted")
    # The longer it took, the more were allowed: in each second so many, begun ones too.
    allowed = ANSWERS_PER_SECOND * (2 + int(time.monotonic() - began))
    told = sum(octets[1] == ERROR_INDICATION for octets in target.gnb.drain())
    assert 1 <= told <= allowed


def class_25_tunnels_in_tunnels_and_forged_signals(target: Target) -> None:
    """Nothing out of a tunnel reaches our own addresses or comes back into it; forged signals end nothing.

    Conformance: TS 29.281 7.3.1 | An Error Indication is acted on only if TEID and peer match a tunnel
    Conformance: TS 29.281 7.3.2 | An End Marker ends nothing here
    """
    again = gtpu(G_PDU, target.session.teid, ipv4(UE, DN, udp(UE_PORT, DN_PORT, b"nested")))
    release = message(RELEASE, 1, node_id(SMF))
    with target.dropping(3, "tunnel_to_self"):
        for address, port, payload in ((N3, 2152, again), (N6, 2152, again), ("10.100.4.1", 8805, release)):
            target.up(payload, to=address, port=port)
    # To the UE's own address: it may come back once, and never goes round.
    target.gnb.drain(0.05)
    target.up(b"to myself", to=UE)
    assert len(target.gnb.drain()) <= 1
    of_another = gtpu(
        ERROR_INDICATION, 0, b"\0\1\0\0" + b"\x10\0\0\x50\1" + b"\x85\0\4" + ip_address(GNB).packed, 0x32
    )
    of_this_by_a_stranger = gtpu(
        ERROR_INDICATION,
        0,
        b"\0\1\0\0" + b"\x10" + struct.pack("!I", DOWNLINK_TEID) + b"\x85\0\4" + b"\xc0\0\2\1",
        0x32,
    )
    ends = (gtpu(END_MARKER, target.session.teid), gtpu(END_MARKER, 0x77777777))
    for forged in (of_another, of_this_by_a_stranger, *ends):
        target.gnb.send(forged)
    assert target.smf.silence()


CLASSES: list[Callable[[Target], None]] = [
    value for name, value in sorted(globals().items()) if name.startswith("class_")
]


def test_there_are_twenty_five() -> None:
    """No class is left out, and none is there twice."""
    assert [int(attack.__name__[6:8]) for attack in CLASSES] == list(range(1, 26))


@pytest.mark.parametrize("attack", CLASSES, ids=[attack.__name__ for attack in CLASSES])
def test_hostile(target: Target, attack: Callable[[Target], None]) -> None:
    """The attack gets its answer, and the node goes on as if nothing had been."""
    attack(target)
    target.is_sound()
