"""The scenario of `bench/pgw-u.toml` against a node on this machine, over veth.

::

    kaido bench attach ── smf0 ── n4 ──┐
    kaido bench run ───── sgw0 ── n3 ── kaido run ── n6 ── sgi0 ── kaido bench run
                          100 SGWs      1000 LANs          1000 VLANs

The sessions are those of the file's bearers. Then the file's streams run as fast as both sides take them,
and at falling rates until one loses nothing: each packet of each run is judged by its tenant, TEID, SGW and
checksums.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from rig.attach import attached
from rig.net import Cable, NetError, Network
from rig.node import Node, port

#: The file, and what it says of the device.
FILE = Path(__file__).parents[2] / "bench" / "pgw-u.toml"
TENANTS, SGWS = 1000, 100
UPF_PFCP, SMF, SGI_MAC = "10.100.4.1", "10.100.4.2", "02:00:00:00:06:01"

#: The LAN of the tenant of VLAN v is the v-th of these networks of four addresses.
LANS = IPv4Address("172.16.0.0")

#: Room for a tunnel around a packet of 1500 octets.
MTU = 1600

CABLES = (
    Cable("bench", "sgw0", [], "upf", "n3", ["10.100.3.1/24"], MTU),
    Cable("bench", "smf0", [f"{SMF}/24"], "upf", "n4", [f"{UPF_PFCP}/24"]),
    Cable("bench", "sgi0", [], "upf", "n6", ["10.100.6.1/24"]),
)

#: Shares of the fastest rate that are tried until one loses nothing.
SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)


@dataclass(frozen=True)
class Size:
    """How much of the scenario is run."""

    bearers: int = 1_000_000
    seconds: float = 10.0
    driver: str = "af_xdp"
    datapath: str = "engine"
    tenants: int = TENANTS


def lan(vid: int, gateway_mac: str) -> str:
    """The network instance of a tenant: its VLAN, and the router there, which is the bench."""
    own, gateway = LANS + 4 * vid + 1, LANS + 4 * vid + 2
    return (
        f'[[network_instance]]\nname = "tenant{vid}"\nport = "n6"\nvlan = {vid}\n'
        f'addresses = ["{own}/30"]\ngateways = ["{gateway}"]\ngateway_mac = "{gateway_mac}"\n\n'
    )


def resident_bytes(process: subprocess.Popen[str]) -> int:
    """The memory of a process. `ip netns exec` has become the command itself."""
    status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    kilobytes = next(line.split()[1] for line in status if line.startswith("VmRSS"))
    return int(kilobytes) << 10


class Scenario:
    """A node with the sessions of the file, and the bench around it."""

    def __init__(self, binary: Path, folder: Path, size: Size, prefix: str = "", file: Path = FILE) -> None:
        """Name it all; `prefix` is that of the namespaces."""
        self.binary, self.folder, self.size, self.file = binary, folder, size, file
        self.net = Network(prefix, ("bench", "upf"), CABLES)
        self.bench, self.upf = self.net.spaces["bench"], self.net.spaces["upf"]
        self.node: Node | None = None

    @contextmanager
    def attached(self) -> Iterator[dict[str, Any]]:
        """Start the node and establish all sessions; what that took."""
        with self.net:
            self.upf.ip("link", "set", "n6", "address", SGI_MAC)
            gateway = self.bench.mac("sgi0")
            size = self.size
            self.node = Node(
                self.binary,
                self.upf,
                self.folder,
                driver=size.driver,
                sessions_max=max(size.bearers, 1024),
                listen=(UPF_PFCP,),
                pool="",
                node=f'datapath = "{size.datapath}"\n',
                n3=port("n3", size.driver),
                n6=port("n6", size.driver, 'network_instance = "internet"'),
                more="\n" + "".join(lan(vid, gateway) for vid in range(1, size.tenants + 1)),
            ).start()
            assert self.node.process is not None
            empty = resident_bytes(self.node.process)
            began = time.monotonic()
            log, tunnel = self.folder / "attach.log", ("--upf-pfcp", UPF_PFCP, "--smf", SMF)
            try:
                with attached(self.binary, self.bench, log, size.bearers, "-c", str(self.file), *tunnel):
                    yield {
                        "sessions": size.bearers,
                        "attach_s": time.monotonic() - began,
                        "resident_bytes": resident_bytes(self.node.process),
                        "resident_bytes_empty": empty,
                    }
            finally:
                self.node.stop()

    def run(self, rate: str) -> dict[str, Any]:
        """Run the file's streams at a rate; the result, also where packets were lost or wrong."""
        result = self.folder / "run.json"
        result.unlink(missing_ok=True)
        command = [str(self.binary), "bench", "run", "-c", str(self.file), "--rate", rate]
        command += ["--bearers", str(self.size.bearers), "--duration", str(self.size.seconds)]
        limit = 120 + 10 * self.size.seconds
        done = self.bench.run(*command, "--json", str(result), check=False, timeout=limit)
        if not result.exists() or not result.read_text():
            raise NetError(f"the bench has no result:\n{done.stderr}")
        return dict(json.loads(result.read_text())) | {"said": done.stdout}

    def fastest(self) -> list[dict[str, Any]]:
        """Runs from the fastest rate down to one without loss, or to the slowest."""
        runs = [summary("max", self.run("max"))]
        for share in SHARES:
            if is_clean(runs[-1]):
                break
            pps = f"{runs[0]['received_pps'] * share:.0f}pps"
            runs.append(summary(pps, self.run(pps)))
        return runs


def summary(rate: str, result: dict[str, Any]) -> dict[str, Any]:
    """The figures of a run, both directions together and each."""
    seconds = result["duration_ns"] / 1e9
    streams = {
        stream["name"]: {
            "sent": stream["sent"]["packets"],
            "received": stream["received"]["packets"],
            "lost": stream["lost"],
            "wrong": stream["wrong"],
            "l2_gbps": (stream["received"]["bytes"] + 4 * stream["received"]["packets"]) * 8 / seconds / 1e9,
        }
        for stream in result["streams"]
    }
    received = sum(stream["received"] for stream in streams.values())
    return {"rate": rate, "seconds": seconds, "received_pps": received / seconds, "streams": streams}


def is_clean(run: dict[str, Any]) -> bool:
    """Whether nothing was lost or wrong."""
    return all(stream["lost"] == stream["wrong"] == 0 for stream in run["streams"].values())


def report(size: Size, attached: dict[str, Any], runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What `kaido bench sources` reads."""
    clean = [run for run in runs if is_clean(run)]
    return {
        "kind": "pgw_u",
        "driver": size.driver,
        "datapath": size.datapath,
        "tenants": size.tenants,
        "peers": SGWS,
        "attached": attached,
        "runs": list(runs),
        "clean": max(clean, key=lambda run: float(run["received_pps"]), default=None),
    }


def table(found: dict[str, Any]) -> str:
    """The report for a terminal."""
    attached = found["attached"]
    per_session = (attached["resident_bytes"] - attached["resident_bytes_empty"]) / attached["sessions"]
    lines = [
        f"{attached['sessions']} bearers, {found['tenants']} tenants, {found['peers']} SGWs; "
        f"{found['driver']}, {found['datapath']}",
        f"attached in {attached['attach_s']:.1f} s; {attached['resident_bytes'] >> 20} MiB resident, "
        f"{per_session:.0f} bytes more for each session",
        f"{'rate':>12} {'kpps back':>10}  lost and wrong, Gbit/s by stream",
    ]
    for run in found["runs"]:
        streams = ", ".join(
            f"{name} {stream['lost']} and {stream['wrong']} of {stream['sent']}, {stream['l2_gbps']:.3f}"
            for name, stream in run["streams"].items()
        )
        lines.append(f"{run['rate']:>12} {run['received_pps'] / 1e3:10.1f}  {streams}")
    return "\n".join(lines)


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m rig.pgw_u", description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, required=True, help="the kaido binary, a release build")
    parser.add_argument("--bearers", type=int, default=Size.bearers, help="a multiple of 1000")
    parser.add_argument("--seconds", type=float, default=Size.seconds, help="duration of each run")
    parser.add_argument("--driver", default=Size.driver, choices=("af_xdp", "af_packet"))
    parser.add_argument("--datapath", default=Size.datapath, choices=("engine", "xdp", "hybrid"))
    parser.add_argument("--json", type=Path, help="file for the result, which `kaido bench sources` reads")
    given = parser.parse_args()
    size = Size(given.bearers, given.seconds, given.driver, given.datapath)
    with tempfile.TemporaryDirectory() as folder:
        scenario = Scenario(given.binary.resolve(), Path(folder), size, prefix=f"pgw{os.getpid()}-")
        with scenario.attached() as attached:
            print(f"{attached['sessions']} sessions stand", file=sys.stderr, flush=True)
            found = report(size, attached, scenario.fastest())
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
