"""The client with TRex's methods, over kaido's generator and receiver in this process."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any

from kaido import __version__
from kaido.ports import Cables, Port, Upf
from kaido.stream import Json
from kaido.trex import stats
from kaido.trex.captures import Captures
from kaido.trex.errors import STLArgumentError, STLError, STLTimeoutError, Strict
from kaido.trex.jobs import Job, begin, plan, scheduled
from kaido.trex.neighbours import Neighbours
from kaido.trex.ports import configured, peer
from kaido.trex.replay import frames_of, replayed
from kaido.trex.streams import Multiplier, STLProfile, STLStream

Ports = int | Sequence[int] | None
_MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", re.I)


class STLClient(Strict):
    """Sends streams of TRex's kind.

    `ports` are kaido's ports by their numbers, `device` a device in memory; without them the file that the
    environment variable KAIDO_TREX names says which, or there are two ports in memory with a cable between.
    Traffic is made in this process: `server` and its ports say nothing.
    """

    def __init__(
        self,
        username: str = "kaido",
        server: str = "localhost",
        sync_port: int = 4501,
        async_port: int = 4500,
        verbose_level: int | str = "error",
        logger: object = None,
        sync_timeout: float | None = None,
        async_timeout: float | None = None,
        ports: Sequence[Port] | Mapping[int, Port] | None = None,
        device: Cables | Upf | None = None,
    ) -> None:
        """Reads the configuration; nothing is opened yet."""
        self.username, self.server = username, server
        self._states, self._device = configured(ports, device)
        self._connected = False
        self._jobs: list[Job] = []
        self._base: stats.Counters = {}
        self._since = (time.monotonic(), time.process_time())
        self._captures = Captures(self._states)
        self._neighbours = Neighbours(self._states, self._device)

    # Connection and ports.

    def connect(self) -> None:
        """Makes the ports usable."""
        self._connected = True

    def disconnect(self, stop_traffic: bool = True, release_ports: bool = True) -> None:
        """Ends what is under way."""
        if stop_traffic:
            self._stop_jobs(self._running())
        if release_ports:
            self.release()
        self._connected = False

    def is_connected(self) -> bool:
        """Whether the client is connected."""
        return self._connected

    def __enter__(self) -> STLClient:
        """Connects."""
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        """Disconnects."""
        self.disconnect()

    def acquire(self, ports: Ports = None, force: bool = False, sync_streams: bool = True) -> None:
        """Takes ports; nobody else can have them."""
        self._need_connection()
        for number in self._numbers(ports, all_by_default=True):
            self._states[number].acquired = True

    def release(self, ports: Ports = None) -> None:
        """Gives ports back."""
        for number in self._numbers(ports, all_by_default=True):
            self._states[number].acquired = False

    def reset(self, ports: Ports = None, restart: bool = False) -> None:
        """Takes ports, stops them, and forgets their streams and counters."""
        self._need_connection()
        numbers = self._numbers(ports, all_by_default=True)
        self._stop_jobs([job for job in self._running() if set(job.ports) & set(numbers)])
        for number in numbers:
            state = self._states[number]
            state.acquired, state.service, state.promiscuous = True, False, False
            state.streams.clear()
        self.clear_stats()

    def get_all_ports(self) -> list[int]:
        """Numbers of all ports."""
        return list(self._states)

    def get_acquired_ports(self) -> list[int]:
        """Numbers of the ports that were taken."""
        return [number for number, state in self._states.items() if state.acquired]

    def get_port_count(self) -> int:
        """How many ports there are."""
        return len(self._states)

    def get_active_ports(self) -> list[int]:
        """Numbers of the ports that send, or would if they were not paused."""
        return sorted({number for job in self._running() for number in job.ports})

    def get_transmitting_ports(self) -> list[int]:
        """Numbers of the ports that send."""
        return sorted({number for job in self._running() if not job.paused for number in job.ports})

    def get_paused_ports(self) -> list[int]:
        """Numbers of the ports that are paused."""
        return sorted({number for job in self._running() if job.paused for number in job.ports})

    def get_port_attr(self, port: int) -> Json:
        """What is set on a port."""
        state = self._states[self._numbers(port)[0]]
        return {
            "port": state.number,
            "driver": state.port.driver
            if isinstance(state.port.driver, str)
            else next(iter(state.port.driver)),
            "speed": state.speed_bps / 1e9,
            "src_mac": state.mac,
            "dest": state.gateway or state.destination,
            "src_ipv4": state.address or "-",
            "layer_mode": "IPv4" if state.gateway else "Ethernet",
            "arp": state.destination if state.gateway and state.resolved else "-",
            "prom": "on" if state.promiscuous else "off",
            "status": "TRANSMITTING" if state.number in self.get_transmitting_ports() else "IDLE",
        }

    def get_port_info(self, ports: Ports = None) -> list[Json]:
        """What is set on ports."""
        numbers = self._numbers(ports, all_by_default=True)
        return [self.get_port_attr(number) | {"index": number} for number in numbers]

    def get_server_version(self) -> Json:
        """Kaido's version."""
        return {"version": f"v{__version__}", "mode": "STL", "server": "kaido"}

    def get_warnings(self) -> list[str]:
        """Nothing is only warned of."""
        return []

    def ping(self) -> bool:
        """The generator is in this process."""
        return True

    def set_verbose(self, level: int | str) -> None:
        """Nothing is printed at any level."""

    def set_timeout(self, timeout_sec: float) -> None:
        """Nothing is waited for but traffic."""

    def set_port_attr(self, ports: Ports = None, promiscuous: bool | None = None, **attributes: Any) -> None:
        """Sets what a port of kaido knows: all of them see every packet."""
        if unknown := [name for name, value in attributes.items() if value is not None]:
            raise STLError(f"set_port_attr: {', '.join(unknown)} cannot be set: the system's tools set links")
        for number in self._numbers(ports):
            if promiscuous is not None:
                self._states[number].promiscuous = promiscuous

    def set_service_mode(self, ports: Ports = None, enabled: bool = True, **filters: Any) -> None:
        """Captures and resolution are always possible."""
        for number in self._numbers(ports):
            self._states[number].service = enabled

    def set_l2_mode(self, port: int, dst_mac: str) -> None:
        """Gives the MAC address that packets go to."""
        if not isinstance(dst_mac, str) or not _MAC.fullmatch(dst_mac):
            raise STLArgumentError("dst_mac", dst_mac, "such as 02:00:00:00:00:01")
        state = self._states[self._numbers(port)[0]]
        state.destination, state.gateway, state.resolved = dst_mac, None, True

    def set_l3_mode(self, port: int, src_ipv4: str, dst_ipv4: str, vlan: int | None = None) -> None:
        """Gives a port an address and a gateway, and resolves that."""
        state = self._states[self._numbers(port)[0]]
        state.address, state.gateway, state.vlan, state.resolved = src_ipv4, dst_ipv4, vlan, False
        try:
            self.resolve(port)
        except STLError:
            # In memory the other end may get its address later; start asks again.
            if not state.is_memory:
                raise

    def resolve(
        self, ports: Ports = None, retries: int = 0, verbose: bool = True, vlan: int | None = None
    ) -> None:
        """Resolves the gateways of ports in L3 mode, by ARP."""
        for number in self._numbers(ports):
            state = self._states[number]
            if state.gateway is None:
                raise STLError(f"port {number} is not in L3 mode: set_l3_mode gives it an address")
            self._neighbours.resolve(state, retries, state.vlan if vlan is None else vlan)

    arp = resolve

    def ping_ip(
        self,
        src_port: int,
        dst_ip: str,
        pkt_size: int = 64,
        count: int = 5,
        interval_sec: float = 1,
        vlan: int | None = None,
    ) -> list[Json]:
        """Pings a host from a port in L3 mode; a dictionary of each answer."""
        state = self._states[self._numbers(src_port)[0]]
        if state.gateway is None:
            raise STLError(f"port {state.number} is not in L3 mode: set_l3_mode gives it an address")
        return self._neighbours.ping(state, dst_ip, pkt_size, count, interval_sec)

    # Streams.

    def add_streams(
        self, streams: STLProfile | STLStream | Sequence[STLStream], ports: Ports = None
    ) -> int | list[int] | None:
        """Gives ports streams; their numbers."""
        listed = STLProfile(streams).streams if not isinstance(streams, STLProfile) else streams.streams
        for number in self._numbers(ports):
            state = self._states[number]
            names = {stream.name for stream in state.streams if stream.name is not None}
            for stream in listed:
                if stream.name is not None and stream.name in names:
                    raise STLError(f"port {number}: stream {stream.name} is there already")
                # What is wrong with a packet shows here and not when traffic starts.
                stream.builder.template(state.mac, state.destination)
            state.streams.extend(listed)
        numbers = [stream.number for stream in listed]
        return numbers[0] if isinstance(streams, STLStream) else numbers

    def add_profile(self, filename: str | PathLike[str], ports: Ports = None, **tunables: Any) -> list[int]:
        """Gives ports the streams of a file."""
        numbers: list[int] = []
        for number in self._numbers(ports):
            profile = STLProfile.load(filename, direction=number % 2, port_id=number, **tunables)
            added = self.add_streams(profile, number)
            numbers.extend(added if isinstance(added, list) else [])
        return numbers

    def remove_streams(self, stream_id_list: int | Sequence[int], ports: Ports = None) -> None:
        """Takes streams away."""
        numbers = [stream_id_list] if isinstance(stream_id_list, int) else list(stream_id_list)
        for port in self._numbers(ports):
            state = self._states[port]
            if unknown := set(numbers) - {stream.number for stream in state.streams}:
                raise STLError(f"port {port}: there is no stream {unknown.pop()}")
            state.streams = [stream for stream in state.streams if stream.number not in numbers]

    def remove_all_streams(self, ports: Ports = None) -> None:
        """Takes all streams away."""
        for number in self._numbers(ports):
            self._states[number].streams.clear()

    def get_streams(self, port: int) -> dict[int, STLStream]:
        """The streams of a port by their numbers."""
        return {stream.number: stream for stream in self._states[self._numbers(port)[0]].streams}

    def get_stream_id_list(self, port: int) -> list[int]:
        """Numbers of the streams of a port."""
        return list(self.get_streams(port))

    # Traffic.

    def start(
        self,
        ports: Ports = None,
        mult: float | str = "1",
        force: bool = False,
        duration: float = -1,
        total: bool = False,
        core_mask: object = None,
        synchronized: bool = False,
    ) -> None:
        """Begins to send, `duration` seconds or until everything is sent."""
        self._need_connection()
        numbers = self._numbers(ports)
        if busy := set(numbers) & set(self.get_active_ports()):
            if not force:
                raise STLError(f"ports {sorted(busy)} are sending: stop them, or give force=True")
            self._stop_jobs([job for job in self._running() if set(job.ports) & busy])
        if self._running() and not all(state.is_memory for state in self._states.values()):
            raise STLError("traffic is under way: start all ports at once, start(ports=[...])")
        multiplier = Multiplier.of(mult)
        if total and multiplier.unit != "times":
            multiplier = Multiplier(multiplier.value / len(numbers), multiplier.unit)
        self._begin(numbers, multiplier, None if duration < 0 else duration)

    def _begin(self, numbers: Sequence[int], multiplier: Multiplier, duration: float | None) -> None:
        streams: list[tuple[int, STLStream | None]] = []
        texts: list[Json] = []
        for number in numbers:
            state = self._states[number]
            if not state.streams:
                raise STLError(f"port {number} has no streams: add_streams gives it some")
            if not state.resolved:
                self.resolve(number)
            for stream, text in scheduled(state, multiplier):
                texts.append(text | {"name": f"{number}-{len(texts)}"})
                streams.append((number, stream))
        seed = 1 + sum(stream.random_seed for _, stream in streams if stream is not None)
        self._launch(
            plan(self._states, self._device, texts, seed, duration), numbers, streams, duration, multiplier
        )

    def _launch(
        self,
        text: str,
        numbers: Sequence[int],
        streams: list[tuple[int, STLStream | None]],
        duration: float | None,
        multiplier: Multiplier,
    ) -> Job:
        job = Job(begin(text), list(numbers), list(self._states), streams, duration, multiplier)
        self._captures.attach(job)
        job.run.pause(False)
        self._jobs.append(job)
        return job

    def stop(self, ports: Ports = None, rx_delay_ms: int | None = None) -> None:
        """Ends sending; packets under way are still taken in."""
        self._stop_jobs(self._jobs_of(ports))

    def update(
        self, ports: Ports = None, mult: float | str = "1", total: bool = False, force: bool = False
    ) -> None:
        """Goes on at another rate. Streams begin anew."""
        for job in self._jobs_of(ports):
            spent = job.live()["time_ns"] / 1e9
            left = None if job.duration is None else max(job.duration - spent, 0.0)
            job.stop()
            multiplier = Multiplier.of(mult)
            if total and multiplier.unit != "times":
                multiplier = Multiplier(multiplier.value / len(job.ports), multiplier.unit)
            self._begin(job.ports, multiplier, left)

    def pause(self, ports: Ports = None) -> None:
        """Has time stand still for what is under way."""
        self._pause(ports, True)

    def resume(self, ports: Ports = None) -> None:
        """Has it go on."""
        self._pause(ports, False)

    def _pause(self, ports: Ports, paused: bool) -> None:
        for job in self._jobs_of(ports):
            job.run.pause(paused)
            job.paused = paused

    def wait_on_traffic(
        self, ports: Ports = None, timeout: float | None = None, rx_delay_ms: int | None = None
    ) -> None:
        """Waits until everything is sent, and what is under way has had its time to come back."""
        until = None if timeout is None else time.monotonic() + timeout
        for job in self._running():
            endless = job.duration is None and any(
                stream is not None and stream.pattern.packets() is None for _, stream in job.streams
            )
            if until is None and (endless or job.paused):
                raise STLError("wait_on_traffic: this traffic has no end: give a timeout, or stop it")
            left = float("inf") if until is None else max(until - time.monotonic(), 0.0)
            if not job.run.wait(left):
                raise STLTimeoutError(timeout or 0.0)

    def push_pcap(
        self,
        pcap_filename: str | PathLike[str],
        ports: Ports = None,
        ipg_usec: float | None = None,
        speedup: float = 1.0,
        count: int = 1,
        duration: float = -1,
        force: bool = False,
        vm: object = None,
        packet_hook: Any = None,
        is_dual: bool = False,
        min_ipg_usec: float | None = None,
        src_mac_pcap: bool = False,
        dst_mac_pcap: bool = False,
    ) -> None:
        """Plays a capture, `count` times or without end (0)."""
        self._need_connection()
        if vm is not None or is_dual or min_ipg_usec is not None:
            raise STLError(
                "push_pcap: vm, is_dual and min_ipg_usec are not possible: packet_hook changes packets"
            )
        numbers = self._numbers(ports)
        if not force and (busy := set(numbers) & set(self.get_active_ports())):
            raise STLError(f"ports {sorted(busy)} are sending: stop them, or give force=True")
        self._stop_jobs([job for job in self._running() if set(job.ports) & set(numbers)])
        texts = []
        with frames_of(fspath(pcap_filename), packet_hook) as file:
            for number in numbers:
                texts.append(replayed(self._states[number], file, ipg_usec, speedup, count))
            streams: list[tuple[int, STLStream | None]] = [(number, None) for number in numbers]
            limit = None if duration < 0 else duration
            text = plan(self._states, self._device, texts, 1, limit)
            self._launch(text, numbers, streams, limit, Multiplier(1.0, "times"))

    # Counters.

    def get_stats(self, ports: Ports = None, sync_now: bool = True) -> dict[Any, Any]:
        """Counters of ports since they were cleared, and rates: of traffic under way, else of the last.

        Bytes are those of frames with FCS.
        """
        counted = stats.counters(self._states, self._jobs)
        for number, base in self._base.items():
            counted[number] = {name: value - base[name] for name, value in counted[number].items()}
        began, cpu_began = self._since
        cpu = (time.process_time() - cpu_began) / max(time.monotonic() - began, 1e-9) * 100
        whole = stats.whole(self._states, counted, stats.port_rates(self._states, self._jobs), cpu)
        if ports is not None:
            numbers = self._numbers(ports)
            whole = {key: value for key, value in whole.items() if not isinstance(key, int) or key in numbers}
        return whole | self.get_pgid_stats()

    def get_pgid_stats(self, pgid_list: Sequence[int] | int = ()) -> dict[str, dict[Any, Any]]:
        """Counters of groups, and latencies in microseconds; those that come back, once traffic has ended."""
        wanted = [pgid_list] if isinstance(pgid_list, int) else list(pgid_list)
        receivers = {}
        for number, state in self._states.items():
            other = peer(state, self._states, self._device)
            receivers[number] = number if other is None else other.number
        groups = stats.groups(self._jobs, receivers)
        for kind, found in groups.items():
            if wanted:
                groups[kind] = {key: value for key, value in found.items() if key in (*wanted, "global")}
        return groups

    def get_active_pgids(self) -> dict[str, list[int]]:
        """Numbers of the groups of all ports' streams."""
        streams = [stream for state in self._states.values() for stream in state.streams]
        groups = {
            stream.flow_stats.pg_id: stream.flow_stats.is_latency for stream in streams if stream.flow_stats
        }
        return {
            "flow_stats": sorted(number for number, latency in groups.items() if not latency),
            "latency": sorted(number for number, latency in groups.items() if latency),
        }

    def clear_stats(self, *_: object, **__: object) -> None:
        """Begins to count from nothing."""
        self._jobs = self._running()
        self._base = stats.counters(self._states, self._jobs)
        self._since = (time.monotonic(), time.process_time())

    # Captures.

    def start_capture(
        self,
        tx_ports: Ports = None,
        rx_ports: Ports = None,
        limit: int = 1000,
        mode: str = "fixed",
        bpf_filter: str = "",
    ) -> Json:
        """Keeps what ports send and receive from now on; the capture's number under `id`."""
        self._need_connection()
        if bpf_filter:
            raise STLError("start_capture: bpf_filter is not possible: filter the packets of stop_capture")
        sides = [[] if ports is None else self._numbers(ports) for ports in (tx_ports, rx_ports)]
        return self._captures.start(sides[0], sides[1], limit, mode, self._running())

    def stop_capture(self, capture_id: int, output: str | PathLike[str] | list[Json] | None = None) -> None:
        """Ends a capture; its packets go into a pcap file, or into a list as dictionaries."""
        self._captures.stop(capture_id, output)

    def get_capture_status(self) -> dict[int, Json]:
        """What captures there are, by their numbers."""
        return self._captures.status()

    def remove_all_captures(self) -> None:
        """Ends all captures."""
        self._captures.clear()

    # Inner works.

    def _need_connection(self) -> None:
        if not self._connected:
            raise STLError("not connected: call connect()")

    def _numbers(self, ports: Ports, all_by_default: bool = False) -> list[int]:
        if ports is None:
            return list(self._states) if all_by_default else self.get_acquired_ports() or list(self._states)
        numbers = [ports] if isinstance(ports, int) else list(ports)
        if unknown := [number for number in numbers if number not in self._states]:
            raise STLArgumentError("ports", unknown[0], list(self._states))
        return numbers

    def _running(self) -> list[Job]:
        return [job for job in self._jobs if job.result() is None]

    def _jobs_of(self, ports: Ports) -> list[Job]:
        """What is under way on ports; the ports of a `start` cannot be told apart."""
        if ports is None:
            return self._running()
        numbers = set(self._numbers(ports))
        jobs = [job for job in self._running() if set(job.ports) & numbers]
        for job in jobs:
            if not set(job.ports) <= numbers:
                raise STLError(f"ports {job.ports} were started together: name all of them")
        return jobs

    def _stop_jobs(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            job.stop()
