"""Results for Prometheus: an endpoint to scrape while a sweep runs, and pushes to a Pushgateway."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kaido import _native

#: Metrics of a point: name, help, and where it is in the flat row.
METRICS = {
    "kaido_bench_packets_per_second": ("Packets forwarded a second.", "pps"),
    "kaido_bench_l2_bits_per_second": ("Bits of received frames a second, with FCS.", "l2_gbps"),
    "kaido_bench_packet_nanoseconds": ("Worker time a packet, in nanoseconds.", "ns_per_packet"),
    "kaido_bench_lost_ratio": ("Packets lost, as a share of those offered.", "loss_ratio"),
    "kaido_bench_worker_busy_ratio": (
        "Share of time with a packet in hand, mean of workers.",
        "busy_percent",
    ),
    "kaido_bench_softirq_ratio": ("Share of the workers' CPUs in soft interrupts.", "softirq_percent"),
    "kaido_bench_bits_per_joule": ("Bits of received frames for each joule.", "gbps_per_watt"),
    "kaido_bench_latency_p50_nanoseconds": ("Median latency.", "latency_p50_ns"),
    "kaido_bench_latency_p99_nanoseconds": ("99th percentile of latency.", "latency_p99_ns"),
}
_FACTORS = {
    "l2_gbps": 1e9,
    "gbps_per_watt": 1e9,
    "busy_percent": 0.01,
    "softirq_percent": 0.01,
}
_TIMEOUT_S = 10


def escape(value: str) -> str:
    """Escape a label's value as the text format wants it."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Exposition:
    """What can be scraped: progress, and the points measured so far."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lock = threading.Lock()
        self._lines: dict[str, list[str]] = {name: [] for name in METRICS}
        self._progress = (0, 0)

    def progress(self, done: int, total: int) -> None:
        """Note how many points have been measured."""
        with self._lock:
            self._progress = (done, total)

    def point(self, labels: Mapping[str, str], row: Mapping[str, Any]) -> str:
        """Add a point; return its own exposition, for a push."""
        text = "{" + ",".join(f'{name}="{escape(value)}"' for name, value in labels.items()) + "}"
        own = []
        with self._lock:
            for name, (about, column) in METRICS.items():
                value = row.get(column)
                if value is None:
                    continue
                line = f"{name}{text} {value * _FACTORS.get(column, 1.0):.10g}"
                self._lines[name].append(line)
                own += [f"# HELP {name} {about}", f"# TYPE {name} gauge", line]
        return "\n".join([*own, ""])

    def text(self) -> str:
        """Return everything in the text format."""
        with self._lock:
            done, total = self._progress
            lines = [
                "# HELP kaido_bench_points_done Points measured.",
                "# TYPE kaido_bench_points_done gauge",
                f"kaido_bench_points_done {done}",
                "# HELP kaido_bench_points Points of the sweep.",
                "# TYPE kaido_bench_points gauge",
                f"kaido_bench_points {total}",
            ]
            for name, (about, _) in METRICS.items():
                if self._lines[name]:
                    lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge", *self._lines[name]]
        return "\n".join([*lines, ""])


def serve(exposition: Exposition, host: str, port: int) -> ThreadingHTTPServer:
    """Serve ``/metrics`` in a thread of its own until ``shutdown``."""

    class Handler(BaseHTTPRequestHandler):
        timeout = _TIMEOUT_S

        def do_GET(self) -> None:
            """Answer a scrape."""
            if self.path.split("?")[0] != "/metrics":
                self.send_error(404, "metrics are at /metrics")
                return
            body = exposition.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing: standard error is the progress's."""

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def push(gateway: str, grouping: Mapping[str, str], body: str) -> str | None:
    """Put an exposition to a Pushgateway, in the group of these labels; return what went wrong."""
    try:
        _native.push(gateway, "kaido_bench", list(grouping.items()), body)
    except OSError as error:
        return str(error)
    return None
