"""Measures a PGW-U: uplink or downlink packets of several lengths, captured, the figures to Prometheus.

What slides 37 to 42 of "PGW-U on XDP, measured and improved with Python" (PyCon APEC 2023) do, written anew:
packets with a VLAN tag, uplink in GTP-U; source addresses, TEIDs and destinations that vary; L3 mode; a
capture of what comes back; the counters of the ports to a Pushgateway, labelled.
"""

import argparse
import urllib.request
from collections.abc import Mapping

from kaido.trex import *

ACCESS, CORE = 0, 1


class Labels:
    """Labels of a measurement, as Prometheus writes them."""

    def __init__(self, **labels: object) -> None:
        """Labels by their names."""
        self.labels = {name: str(value) for name, value in labels.items()}

    def with_ports(self, port: int) -> "Labels":
        """The same, and a port."""
        return Labels(**self.labels, port=port)

    def to_label(self) -> str:
        """As text."""
        return "{" + ",".join(f'{name}="{value}"' for name, value in self.labels.items()) + "}"


def uplink(args: argparse.Namespace, size: int) -> STLPktBuilder:
    """From the roaming network to the Internet: in a tunnel, from many UEs."""
    headers = (
        Ether()
        / Dot1Q(vlan=args.access_vlan)
        / IP(src=args.gnb, dst=args.upf)
        / UDP(dport=2152, sport=2152, chksum=0)
        / GTP_U_Header(gtp_type="g_pdu", teid=args.teid_min)
        / IP(src=args.ue_min, dst=args.server)
        / TCP(sport=8080, dport=80)
    )
    vm = STLScVmRaw(
        [
            STLVmFlowVar(name="teid", size=4, op="inc", min_value=args.teid_min, max_value=args.teid_max),
            STLVmWrFlowVar(fv_name="teid", pkt_offset="GTP_U_Header.teid"),
            STLVmFlowVar(name="ip_src", size=4, op="inc", min_value=args.ue_min, max_value=args.ue_max),
            STLVmWrFlowVar(fv_name="ip_src", pkt_offset="IP:1.src"),
            STLVmFixChecksumHw(l3_offset="IP:1", l4_offset="TCP", l4_type=CTRexVmInsFixHwCs.L4_TYPE_TCP),
        ]
    )
    return STLPktBuilder(pkt=headers / (b"u" * max(size - len(headers), 16)), vm=vm)


def downlink(args: argparse.Namespace, size: int) -> STLPktBuilder:
    """From the Internet to the roaming network: to many UEs."""
    headers = (
        Ether()
        / Dot1Q(vlan=args.core_vlan)
        / IP(src=args.server, dst=args.ue_min)
        / TCP(sport=8080, dport=80)
    )
    vm = STLScVmRaw(
        [
            STLVmFlowVar(name="ip_dst", size=4, op="random", min_value=args.ue_min, max_value=args.ue_max),
            STLVmWrFlowVar(fv_name="ip_dst", pkt_offset="IP.dst"),
            STLVmFixChecksumHw(l3_offset="IP", l4_offset="TCP", l4_type=CTRexVmInsFixHwCs.L4_TYPE_TCP),
        ]
    )
    return STLPktBuilder(pkt=headers / (b"d" * max(size - len(headers), 16)), vm=vm)


def format_metrics_for_prom(metrics: Mapping[str, float], labels: Labels) -> str:
    """Counters in the text format of Prometheus."""
    lines = [key + labels.to_label() + f" {value:.8f}" for key, value in metrics.items()]
    return "\n".join([*lines, ""])


def send_metrics(gateway: str, job: str, payload: str) -> None:
    """Pushes metrics."""
    url = f"http://{gateway}/metrics/job/{job}"
    request = urllib.request.Request(url, payload.encode(), {"Accept": "*/*"})
    with urllib.request.urlopen(request) as response:
        response.read()


def measure(client: STLClient, args: argparse.Namespace, size: int) -> None:
    """One length of frames."""
    up = args.action == "uplink"
    tx, rx = (ACCESS, CORE) if up else (CORE, ACCESS)
    stream = STLStream(
        packet=(uplink if up else downlink)(args, size), random_seed=0x1234, mode=STLTXCont(pps=1000)
    )
    client.reset(ports=[tx, rx])
    client.set_service_mode(ports=[tx, rx], enabled=True)
    for port, source, gateway in ((ACCESS, args.gnb, args.upf), (CORE, args.router, args.gateway)):
        client.set_l3_mode(port=port, src_ipv4=source, dst_ipv4=gateway)
    client.add_streams(stream, ports=[tx])
    capture = client.start_capture(rx_ports=rx, limit=args.capture_size)
    client.start(ports=[tx], mult=args.speed, duration=args.duration, force=True)
    client.wait_on_traffic(ports=[tx, rx])
    client.stop_capture(capture["id"], f"{args.capture}-{args.action}-{size}.pcap")
    stats = client.get_stats([tx, rx])
    print(f"{args.action} {size}: {stats[tx]['opackets']} sent, {stats[rx]['ipackets']} back")
    if args.pushgateway:
        labels = Labels(run_id=args.run_id, action=args.action, frame_size=size, duration=args.duration)
        payload = "".join(format_metrics_for_prom(stats[port], labels.with_ports(port)) for port in (tx, rx))
        send_metrics(args.pushgateway, "trex", payload)


def main() -> None:
    """Measures all lengths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["uplink", "downlink"])
    parser.add_argument("--ip", default="localhost", help="where the generator is")
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128, 256, 512, 1024, 1424])
    parser.add_argument("--speed", default="10kpps")
    parser.add_argument("--duration", type=float, default=1.0)
    parser.add_argument("--gnb", default="192.168.3.2")
    parser.add_argument("--upf", default="192.168.3.1")
    parser.add_argument("--router", default="192.168.6.2")
    parser.add_argument("--gateway", default="192.168.6.1")
    parser.add_argument("--server", default="8.8.8.8")
    parser.add_argument("--ue-min", default="10.0.0.1")
    parser.add_argument("--ue-max", default="10.0.3.232")
    parser.add_argument("--teid-min", type=int, default=200)
    parser.add_argument("--teid-max", type=int, default=1199)
    parser.add_argument("--access-vlan", type=int, default=100)
    parser.add_argument("--core-vlan", type=int, default=200)
    parser.add_argument("--capture", default="back")
    parser.add_argument("--capture-size", type=int, default=100)
    parser.add_argument("--pushgateway", help="HOST:PORT")
    parser.add_argument("--run-id", default="1")
    args = parser.parse_args()
    client = STLClient(server=args.ip)
    client.connect()
    try:
        for size in args.sizes:
            measure(client, args, size)
    finally:
        client.disconnect()


if __name__ == "__main__":
    main()
