"""The demonstration: a RAN, a user plane and a data network on this machine, with real traffic through it.

Makes the network namespaces `ran`, `upf` and `dn`, starts `kaido run` on AF_XDP in `upf` and `kaido sim` in
`ran`, and lets ordinary programs send through GTP-U. Ends with a table, and removes what it made.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from rig.bearer import Bearer
from rig.core5g import Core
from rig.gtpu import Access
from rig.net import UE_IPV4, UE_IPV6, NetError, Topology, wait_until
from rig.node import Node, Sim
from rig.peers import NotHere, build, version

UES = 1000
TUNS = 2
WEB = "10.100.6.2"
WEB6 = "fd00:6::2"
ATTACH = (
    f"--upf-pfcp 10.100.4.1 --smf 10.100.4.2 --upf-gtpu 10.100.3.1 --gnb 10.100.3.2 --ues {UES} "
    f"--ue-ipv4 10.60.0.1 --ue-ipv6 {UE_IPV6} --qfi 9 --network-instance internet --tuns {TUNS}"
)

#: How the table says whether it went well.
WORDS = {True: "yes", False: "NO", None: "-"}


@dataclass
class Row:
    """One line of the closing table."""

    what: str
    result: str
    #: Nothing is said of what could not be tried.
    good: bool | None


@dataclass
class Demo:
    """The demonstration's state."""

    binary: Path
    out: Path
    megabytes: int
    seconds: int
    rows: list[Row] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def step(self, text: str) -> None:
        """Say what comes next."""
        print(f"\033[1m[{time.monotonic() - self.began:5.1f} s] {text}\033[0m", flush=True)

    def note(self, what: str, result: str, good: bool | None) -> None:
        """Keep a line for the table, and say it."""
        self.rows.append(Row(what, result, good))
        print(f"          {result}", flush=True)

    def run(self) -> bool:
        """Show it all; whether all was good."""
        self.step("Making the namespaces ran, upf and dn, joined by veth pairs")
        with Topology() as net:
            counter = self.out / "dn-count.json"
            counter.with_suffix(".ready").unlink(missing_ok=True)
            # Python finds the counter by PYTHONPATH, which the namespace's process inherits.
            counting = net.dn.start(
                sys.executable, "-m", "rig.count", "eth0", UE_IPV4, UE_IPV6, "--out", str(counter)
            )
            wait_until(counter.with_suffix(".ready").exists, "the counter in dn does not start")
            self.step("Starting `kaido run` in upf, on AF_XDP")
            # The kernel's datapath sends out of a veth device whose far end polls: with GRO it does.
            for space, interface in ((net.ran, "gnb0"), (net.dn, "eth0")):
                space.run("ethtool", "-K", interface, "gro", "on", check=False)
            # Those of an earlier demonstration are of no interest.
            shutil.rmtree(self.out / "store", ignore_errors=True)
            node = Node(self.binary, net.upf, self.out, datapath="", durability="process").start()
            status = node.ask("status") or {}
            ports = status.get("ports")
            assert isinstance(ports, list)
            self.note("Kaido runs", "; ".join(f"{port['name']}: {port['how']}" for port in ports), True)
            self.note("Datapath", f"{status['datapath']}, as {status['datapath_reason']}", True)
            self.step(f"Attaching {UES} UEs by PFCP; the first {TUNS} get TUN devices ue0, ue1")
            sim = self.attach(net)
            self.ping(net)
            self.web(net)
            self.iperf(net)
            self.step(f"Traffic of all {UES} UEs, {self.seconds} s")
            wait_until(lambda: "traffic done" in sim.log.read_text(), "the traffic ends", self.seconds + 30)
            self.step("Detaching: final usage reports arrive")
            report = sim.stop()
            counting.send_signal(signal.SIGTERM)
            counting.wait(timeout=20)
            self.generated(report)
            self.usage(report, json.loads(counter.read_text()), node)
            self.forwarded(node)
            self.drops(node)
            self.kill(net, node)
            code = node.stop()
            left = [link["ifname"] for link in net.upf.links() if "xdp" in link]
            self.note(
                "Clean stop", f"exit code {code}, XDP programs left: {len(left)}", code == 0 and not left
            )
        self.real_smf()
        self.table()
        return all(row.good is not False for row in self.rows)

    def kill(self, net: Topology, node: Node) -> None:
        """Kill the process with its sessions, start it again, and ping on."""
        self.step("Attaching the UEs again, and `kill -9`")
        sim = Sim(self.binary, net.ran, self.out, f"{ATTACH} --hold".split(), name="sim2").start()
        node.stop(signal.SIGKILL)
        began = time.monotonic()
        node.start()
        seconds = time.monotonic() - began
        status = node.ask("status") or {}
        pinged = net.ran.run("ping", "-I", "ue0", "-c", "5", "-i", "0.2", "-W", "2", WEB, check=False)
        good = status.get("sessions") == UES and pinged.returncode == 0
        said = f"{status.get('sessions')} of {UES} sessions go on {seconds:.1f} s later; a UE pings"
        self.note("Killed and started again", said, good)
        sim.stop()

    def attach(self, net: Topology) -> Sim:
        """Attach the UEs and have them send while the programs run."""
        arguments = f"{ATTACH} --traffic pps=2000,bytes=512,seconds={self.seconds},to={WEB}:7 --hold"
        net.echo()
        sim = Sim(self.binary, net.ran, self.out, arguments.split())
        sim.log.write_text("")
        sim.start()
        attached = [line for line in sim.log.read_text().splitlines() if "attached" in line]
        self.note(
            f"{UES} UEs attached by PFCP",
            attached[-1].removeprefix("sim: ") if attached else "attached",
            True,
        )
        return sim

    def ping(self, net: Topology) -> None:
        """Ping through the tunnel, and the node's own addresses beside it."""
        self.step("ping through the tunnel, IPv4 and IPv6")
        for name, address in (("IPv4", WEB), ("IPv6", WEB6)):
            done = net.ran.run("ping", "-I", "ue0", "-c", "5", "-i", "0.2", "-W", "2", address, check=False)
            lost = re.search(r"(\d+(?:\.\d+)?)% packet loss", done.stdout)
            times = re.search(r"= ([\d.]+)/([\d.]+)/", done.stdout)
            good = lost is not None and float(lost[1]) == 0
            took = f"{times[2]} ms round trip on average" if times else "no answer"
            self.note(f"ping {name} through GTP-U", took, good)
        for space, address in ((net.ran, "10.100.3.1"), (net.dn, "10.100.6.1")):
            done = space.run("ping", "-c", "2", "-i", "0.2", "-W", "2", address, check=False)
            good = done.returncode == 0
            where = "N3" if space is net.ran else "N6"
            self.note(
                f"ping Kaido's own {where} address", "answered by the kernel" if good else "no answer", good
            )

    def web(self, net: Topology) -> None:
        """Fetch a file from a web server in dn and compare checksums."""
        self.step(f"curl of {self.megabytes} MB from a web server in dn")
        folder = self.out / "www"
        folder.mkdir(exist_ok=True)
        file = folder / "file.bin"
        block = hashlib.sha256(b"kaido").digest() * 32768
        with file.open("wb") as out:
            for n in range(self.megabytes):
                out.write(n.to_bytes(8, "big") + block[: (1 << 20) - 8])
        wanted = hashlib.sha256(file.read_bytes()).hexdigest()
        net.dn.start(sys.executable, "-m", "http.server", "8080", "--bind", WEB, "--directory", str(folder))
        fetched = self.out / "fetched.bin"
        wait_until(
            lambda: (
                net.dn.run("curl", "-s", "-o", "/dev/null", f"http://{WEB}:8080/", check=False).returncode
                == 0
            ),
            "the web server does not start",
        )
        began = time.monotonic()
        url = f"http://{WEB}:8080/file.bin"
        net.ran.run("curl", "-sS", "--interface", "ue0", "-o", str(fetched), url, timeout=300)
        took = time.monotonic() - began
        found = hashlib.sha256(fetched.read_bytes()).hexdigest()
        fetched.unlink()
        file.unlink()
        rate = self.megabytes * 8.388608 / took
        good = found == wanted
        said = f"{took:.1f} s ({rate:.0f} Mbit/s), SHA-256 {'equal' if good else 'DIFFERS'}: {found[:16]}…"
        self.note(f"curl of {self.megabytes} MB", said, good)

    def iperf(self, net: Topology) -> None:
        """Measure TCP both ways with iperf3."""
        self.step("iperf3 up and down")
        net.dn.start("iperf3", "--server", "--bind", WEB)
        wait_until(
            lambda: ":5201" in net.dn.run("ss", "--listening", "--tcp", "--numeric").stdout,
            "iperf3 does not start",
        )
        for name, options in (("uplink", []), ("downlink", ["--reverse"])):
            command = ["iperf3", "--client", WEB, "--bind-dev", "ue0", "--time", "3", "--json", *options]
            done = net.ran.run(*command, check=False)
            try:
                bits = json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]
            except (ValueError, KeyError):
                bits = 0.0
            self.note(f"iperf3 {name}", f"{bits / 1e6:.0f} Mbit/s", bits > 0)
            time.sleep(0.5)

    def generated(self, report: dict[str, object]) -> None:
        """Show what became of the generated traffic."""
        totals = report["totals"]
        assert isinstance(totals, dict)
        made = totals["generated"]
        sent, received = made["sent"]["packets"], made["received"]["packets"]
        said = f"{sent:,} datagrams sent, {received:,} echoed by dn, {made['duplicates']} twice"
        self.note(f"Traffic of {UES} UEs", said, sent > 0 and received == sent and made["duplicates"] == 0)

    def usage(self, report: dict[str, object], counted: dict[str, object], node: Node) -> None:
        """Compare what was charged with what dn counted."""
        self.step("Comparing the usage reports with what dn counted by itself")
        dn = counted["ues"]
        ues = report["ue"]
        assert isinstance(dn, dict)
        assert isinstance(ues, list)
        drops = node.drops()
        lost = ", ".join(f"{name}: {drops[name]}" for name in drops if "ring" in name or "tx_" in name)
        # Charged as they left, and then refused by the device towards dn, which counts what comes out of it.
        refused = {"uplink": sum(drops[name] for name in drops if name.startswith("n6 tx_")), "downlink": 0}
        for direction in ("uplink", "downlink"):
            names = (f"{direction}_bytes", f"{direction}_packets")
            charged = [sum(int(ue["usage"][name]) for ue in ues) for name in names]
            seen = [sum(counts[name] for counts in dn.values()) for name in names]
            octets, packets = (now - then for now, then in zip(charged, seen, strict=True))
            few = refused[direction]
            good = packets == few and 20 * few <= octets <= 1500 * few and not counted["missed"]
            said = (
                f"charged {charged[0]:,} B in {charged[1]:,} packets; dn counted {seen[0]:,} B in {seen[1]:,}"
            )
            if few:
                said += f", and its device refused {few:,}"
            if not good:
                said += f" (counter missed {counted['missed']}; dropped {lost or 'none'})"
            self.note(f"URR {direction} = dn, to the byte", said, good)

    def forwarded(self, node: Node) -> None:
        """Show who forwarded."""
        status = node.ask("status") or {}
        ports = status["ports"]
        assert isinstance(ports, list)
        shares = [
            f"{port['name']}: {port['kernel_packets']:,} of {port['rx_packets']:,} packets" for port in ports
        ]
        self.note("Forwarded in the kernel", "; ".join(shares), True)

    def drops(self, node: Node) -> None:
        """Show what did not come out."""
        drops = node.drops()
        said = ", ".join(f"{name}: {count}" for name, count in drops.items()) or "none"
        self.note("Dropped, by port and reason", said, True)

    def real_smf(self) -> None:
        """A session of an SMF that people run, where Go can build it."""
        self.step("A session of free5GC's SMF, built by Go")
        what, which = "Session of a real SMF", f"free5GC {version('free5gc', 'github.com/free5gc/smf')}"
        try:
            programs, neighbours = build("free5gc") / "cmd", build("sbi") / "sbi"
        except NotHere as reason:
            self.note(what, f"{which} did not run: {reason}", None)
            return
        with Topology() as net:
            node = Node(self.binary, net.upf, self.out, datapath="").start()
            core = Core(net.ran, neighbours, programs, self.out).start()
            net.echo()
            gnb = Access(net.ran)
            (session,) = core.create(1)
            core.activate(session, 0x101)
            ue = Bearer(gnb, session.ue, session.teid, 0x101, session.qfis[0])
            ue.wait()
            echoed = sum(ue.echoes(bytes([number]) * 1000) for number in range(100))
            core.order("release", session)
            gnb.close()
            core.stop()
            node.stop()
        self.note(what, f"{which}: {echoed} of 100 datagrams up and down again", echoed == 100)

    def table(self) -> None:
        """Print the closing table."""
        width = max(len(row.what) for row in self.rows)
        print(f"\n\033[1m{'what':{width}}  ok   result\033[0m")
        for row in self.rows:
            print(f"{row.what:{width}}  {WORDS[row.good]:3}  {row.result}")
        print(f"\nLogs and reports are in {self.out}. Took {time.monotonic() - self.began:.0f} s.")


def main() -> int:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--binary", type=Path, required=True, help="the kaido binary")
    parser.add_argument("--out", type=Path, required=True, help="folder for logs and reports")
    parser.add_argument("--megabytes", type=int, default=100, help="size of the file that curl fetches")
    parser.add_argument("--seconds", type=int, default=20, help="how long all UEs send")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for old in ("kaido.log", "sim.log"):
        (arguments.out / old).unlink(missing_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        good = Demo(arguments.binary, arguments.out, arguments.megabytes, arguments.seconds).run()
    except (NetError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
