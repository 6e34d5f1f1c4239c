"""Who is at the other end: ARP (RFC 826) and ICMP echo (RFC 792)."""

from __future__ import annotations

import time
from collections.abc import Callable

from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

from kaido.ports import Cables, Upf
from kaido.stream import Json
from kaido.trex.errors import STLError
from kaido.trex.jobs import begin, once, plan
from kaido.trex.ports import State, peer

_ANSWER_S = 1.0
_TICK_S = 0.01
_ECHO_ID = 0x6B61
_HEADERS = 14 + 20 + 8 + 4
"""Bytes of an echo's headers, and FCS."""


class Neighbours:
    """Asks for neighbours out of the ports of a client."""

    def __init__(self, states: dict[int, State], device: Cables | Upf | None) -> None:
        """Nobody is known yet."""
        self._states, self._device = states, device

    def resolve(self, state: State, retries: int, vlan: int | None) -> None:
        """Finds the MAC address of a port's gateway."""
        mac = self._in_memory(state) if state.is_memory else None
        attempts = 0 if state.is_memory else retries + 1
        while mac is None and attempts > 0:
            attempts -= 1
            mac = self._ask(state, vlan)
        if mac is None:
            raise STLError(f"port {state.number}: nobody answers for {state.gateway}")
        state.destination, state.resolved = mac, True

    def ping(self, state: State, host: str, size: int, count: int, interval_s: float) -> list[Json]:
        """Pings a host; a dictionary of each answer."""
        if not state.resolved:
            self.resolve(state, 0, state.vlan)
        return [self._echo(state, host, size, number, interval_s) for number in range(count)]

    def _in_memory(self, state: State) -> str | None:
        """In memory nobody answers ARP: a device's address is known, and so is the other end's."""
        if isinstance(self._device, Upf):
            return state.destination
        other = peer(state, self._states, self._device)
        return other.mac if other is not None and other.address == state.gateway else None

    def _ask(self, state: State, vlan: int | None) -> str | None:
        request = ARP(hwsrc=state.mac, psrc=state.address, pdst=state.gateway)
        frame = _link(state, "ff:ff:ff:ff:ff:ff", vlan) / request

        def is_answer(packet: Packet) -> bool:
            return ARP in packet and packet[ARP].op == 2 and packet[ARP].psrc == state.gateway

        answer = self._exchange(state, frame, is_answer)
        return None if answer is None else str(answer[0][ARP].hwsrc)

    def _echo(self, state: State, host: str, size: int, number: int, interval_s: float) -> Json:
        payload = Raw(bytes(max(size - _HEADERS, 0)))
        echo = IP(src=state.address, dst=host) / ICMP(id=_ECHO_ID, seq=number) / payload
        frame = _link(state, state.destination, state.vlan) / echo

        def is_answer(packet: Packet) -> bool:
            if ICMP not in packet or packet[ICMP].type != 0:
                return False
            return bool(packet[IP].src == host and packet[ICMP].id == _ECHO_ID and packet[ICMP].seq == number)

        began = time.monotonic()
        answer = self._exchange(state, frame, is_answer)
        time.sleep(max(interval_s - (time.monotonic() - began), 0.0))
        if answer is None:
            return {"status": "timeout", "formatted_string": f"Request timed out: {host}"}
        packet, seconds = answer
        rtt, ttl = seconds * 1000, packet[IP].ttl
        text = f"Reply from {host}: bytes={size}, time={rtt:.2f}ms, TTL={ttl}"
        return {"status": "success", "rtt": rtt, "ttl": ttl, "formatted_string": text}

    def _exchange(
        self, state: State, frame: Packet, is_answer: Callable[[Packet], bool]
    ) -> tuple[Packet, float] | None:
        """Sends a frame and waits for the answer; how many seconds it took."""
        run = begin(plan(self._states, self._device, [once(state, bytes(frame))], 1, _ANSWER_S, _ANSWER_S))
        place = list(self._states).index(state.number)
        capture = run.capture([place], [place], 1000, False)
        run.pause(False)
        seen, sent_ns = 0, 0
        try:
            while True:
                ended = run.wait(_TICK_S)
                frames, _ = run.captured(capture)
                for _, received, time_ns, data in frames[seen:]:
                    if not received:
                        sent_ns = time_ns
                    elif is_answer(packet := Ether(data)):
                        return packet, (time_ns - sent_ns) / 1e9
                seen = len(frames)
                if ended:
                    return None
        finally:
            run.stop()


def _link(state: State, destination: str, vlan: int | None) -> Packet:
    link = Ether(src=state.mac, dst=destination)
    return link if vlan is None else link / Dot1Q(vlan=vlan)
