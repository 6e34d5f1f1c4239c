"""`[metrics]` against real Prometheus and Pushgateway, and what deploy/ has for them."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Attach
from rig.net import Namespace, Topology, wait_until
from rig.node import Node
from rig.prometheus import Prometheus, fetch, program

DEPLOY = ROOT / "deploy"
LISTEN = "127.0.0.1:9105"
# Clients that the endpoint serves at once (crates/metrics/src/endpoint.rs).
CLIENTS_MAX = 32
URL = f"http://{LISTEN}/metrics"
METRICS = f'\n[metrics]\nlisten = "{LISTEN}"\nsample_batches = 16\n'

needs_net = pytest.mark.needs("root", "ip", "ethtool", "curl")


def require(name: str) -> Path:
    """A program of Prometheus' packages; skips the test where it is not there."""
    found = program(name)
    if found is None:
        pytest.skip(f"needs {name} (scripts/setup test)")
    return found


@pytest.fixture
def scraped(binary: Path, net: Topology, tmp_path: Path) -> Iterator[Node]:
    """A node that may be scraped."""
    running = Node(binary, net.upf, tmp_path, more=METRICS).start()
    yield running
    if not running.ended():
        running.stop()


@pytest.fixture
def prometheus(scraped: Node, tmp_path: Path) -> Prometheus:
    """Prometheus as deploy/prometheus has it, but for its pace, with the node as target."""
    require("prometheus")
    config = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    config = config.replace("15s", "1s").replace(
        "kaido.rules.yml", str(DEPLOY / "prometheus/kaido.rules.yml")
    )
    server = Prometheus(scraped.space, tmp_path).start(config)
    wait_until(lambda: server.value('up{job="kaido"}') == 1, "the node was scraped")
    return server


def series(text: str) -> dict[str, float]:
    """The samples of an exposition by their names and labels."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def of_status(status: dict[str, Any], drops: dict[str, int]) -> dict[str, float]:
    """What the metrics must say, from what `kaido status` and `kaido drops` say."""
    wanted = {
        "kaido_sessions": status["sessions"],
        "kaido_sessions_limit": status["sessions_max"],
        "kaido_workers": status["workers"],
        "kaido_frames": status["frames"],
        "kaido_frame_bytes": status["frame_bytes"],
        'kaido_session_volume_bytes{direction="uplink"}': status["uplink_bytes"],
        'kaido_session_volume_bytes{direction="downlink"}': status["downlink_bytes"],
        "kaido_pfcp_peers_up": sum(peer["up"] for peer in status["peers"]),
    }
    for port in status["ports"]:
        label = f'{{port="{port["name"]}"}}'
        wanted |= {
            f"kaido_port_receive_packets_total{label}": port["rx_packets"],
            f"kaido_port_receive_bytes_total{label}": port["rx_bytes"],
            f"kaido_port_transmit_packets_total{label}": port["tx_packets"],
            f"kaido_port_transmit_bytes_total{label}": port["tx_bytes"],
            f"kaido_port_to_kernel_packets_total{label}": port["to_kernel"],
        }
    for number, worker in enumerate(status["per_worker"]):
        for port in worker["ports"]:
            label = f'{{worker="{number}",port="{port["name"]}"}}'
            wanted[f"kaido_worker_receive_packets_total{label}"] = port["rx_packets"]
    for peer in status["peers"]:
        label = f'{{node_id="{peer["node_id"]}",address="{peer["address"]}"}}'
        wanted[f"kaido_pfcp_peer_sessions{label}"] = peer["sessions"]
    for count in status["pfcp"]:
        name, _, member = count["name"].partition(" ")
        ways = {"pfcp_messages_received_total": "received", "pfcp_messages_sent_total": "sent"}
        if name in ways:
            key = f'kaido_pfcp_messages_total{{direction="{ways[name]}",type="{member}"}}'
        elif name == "pfcp_requests_rejected_total":
            key = f'kaido_pfcp_rejections_total{{cause="{member}"}}'
        elif name == "pfcp_messages_discarded_total":
            key = f'kaido_pfcp_discards_total{{reason="{member}"}}'
        else:
            key = f"kaido_{name}"
        wanted[key] = count["count"]
    for drop, packets in drops.items():
        port, reason = drop.split(" ")
        wanted[f'kaido_port_drops_total{{port="{port}",reason="{reason}"}}'] = packets
    return {name: float(value) for name, value in wanted.items()}


def ask(scraped: Node) -> dict[str, Any]:
    """`kaido status --json`."""
    status = scraped.ask("status")
    assert status is not None
    return status


def drive(net: Topology, scraped: Node, attach: Attach) -> None:
    """Sessions, traffic both ways, and a few refusals and drops."""
    attach("--ues 20 --tuns 1")
    net.ran.run("ping", "-c", "200", "-i", "0.002", "-I", "10.60.0.1", "10.100.6.2", check=False)
    stranger = net.ran.socket("10.100.4.2", 0)
    stranger.sendto(b"\x20\x01\x00", ("10.100.4.1", 8805))
    tunnel = net.ran.socket("10.100.3.2", 0)
    tunnel.sendto(bytes.fromhex("30ff0004deadbeef00000000"), ("10.100.3.1", 2152))
    wait_until(lambda: scraped.drops() != {}, "a packet of no session was dropped")


@needs_net
def test_the_metrics_are_what_status_says(scraped: Node, net: Topology, attach: Attach) -> None:
    """Every counter of `kaido status` and `kaido drops`, to the unit, and the endpoint's manners."""
    drive(net, scraped, attach)

    def differences() -> dict[str, tuple[float, float | None]]:
        # Heartbeats and neighbour discovery go on: only a look between two equal ones counts.
        before = of_status(ask(scraped), scraped.drops())
        found = series(fetch(scraped.space, URL))
        if of_status(ask(scraped), scraped.drops()) != before:
            return {"moved": (0, None)}
        return {name: (value, found.get(name)) for name, value in before.items() if found.get(name) != value}

    wait_until(lambda: differences() == {}, "metrics and status agree")
    found = series(fetch(scraped.space, URL))
    assert found["kaido_sessions"] == 20
    assert found['kaido_port_drops_total{port="n3",reason="teid_unknown"}'] >= 1
    assert found['kaido_pfcp_messages_total{direction="received",type="session_establishment_request"}'] == 20
    assert found['kaido_pfcp_discards_total{reason="truncated"}'] == 1
    assert found["kaido_cycles_per_second"] > 1e6
    stages = ("receive", "process", "read", "probe", "resolve", "act", "finish", "send")
    for stage in stages:
        assert found[f'kaido_stage_cycles_count{{stage="{stage}"}}'] > 0, stage
    timed = found["kaido_packet_latency_seconds_count"]
    assert timed == found['kaido_stage_cycles_count{stage="process"}'] > 0
    parts = sum(found[f'kaido_stage_cycles_sum{{stage="{stage}"}}'] for stage in stages[2:-1])
    processed = found['kaido_stage_cycles_sum{stage="process"}']
    assert 0 < parts <= processed
    # A packet is in the node for as long as it is processed at least.
    assert found["kaido_packet_latency_seconds_sum"] >= processed / found["kaido_cycles_per_second"]
    open_metrics = fetch(scraped.space, URL, "--header", "Accept: application/openmetrics-text")
    assert open_metrics.endswith("# EOF\n")
    assert "# TYPE kaido_port_drops counter\n" in open_metrics
    assert scraped.stop() == 0


@needs_net
def test_hostile_clients_keep_nobody_waiting(scraped: Node, tmp_path: Path) -> None:
    """Silent and endless clients, more than are served at once: scrapes and PFCP's control loop go on."""
    before = series(fetch(scraped.space, URL))["process_open_fds"]
    flood = tmp_path / "flood.py"
    flood.write_text(
        "import socket, sys, time\n"
        f"open_ = [socket.create_connection({tuple(LISTEN.split(':'))!r}) for _ in range(200)]\n"
        "for at, one in enumerate(open_):\n"
        "    try:\n"
        "        head = b'GET / HTTP/1.1\\r\\nA: '\n"
        "        one.send([b'', b'GET /me', head + b'a' * 100_000, bytes(range(256))][at % 4])\n"
        "    except OSError:\n"
        "        pass\n"
        "print('there', flush=True)\n"
        "time.sleep(600)\n"
    )
    client = scraped.space.start("python3", str(flood), stdout=subprocess.PIPE)
    assert client.stdout is not None
    assert client.stdout.readline() == "there\n"
    for _ in range(20):
        assert "kaido_sessions 0\n" in fetch(scraped.space, URL)
        ask(scraped)
    open_fds = series(fetch(scraped.space, URL))["process_open_fds"]
    assert open_fds <= before + CLIENTS_MAX, "clients beyond the bound were shown out"
    client.send_signal(signal.SIGTERM)
    client.wait(timeout=60)
    status = scraped.space.run("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", "POST", URL)
    assert status.stdout == "405"


@needs_net
def test_prometheus_reads_evaluates_and_draws(
    prometheus: Prometheus, scraped: Node, net: Topology, attach: Attach
) -> None:
    """Scraped by a real Prometheus: equal to status, rules healthy, every panel's expression evaluated."""
    drive(net, scraped, attach)
    wait_until(lambda: prometheus.value("kaido_sessions") == 20, "the sessions were scraped")
    received = ask(scraped)["ports"][0]["rx_packets"]
    scraped_packets = 'kaido_port_receive_packets_total{port="n3"}'
    wait_until(lambda: (prometheus.value(scraped_packets) or 0) >= received, "the packets were scraped")
    types = prometheus.api("metadata", metric="kaido_port_receive_packets")
    assert types["kaido_port_receive_packets"][0]["type"] == "counter", "OpenMetrics was asked for and read"

    def rules() -> list[dict[str, Any]]:
        return [rule for group in prometheus.api("rules")["groups"] for rule in group["rules"]]

    assert len(rules()) > 20
    wait_until(lambda: all(rule["health"] == "ok" for rule in rules()), "every rule was evaluated")
    wait_until(lambda: prometheus.value("kaido:sessions:ratio") == 20 / 4096, "the sessions were counted")
    assert not any(rule.get("state") == "firing" for rule in rules()), rules()
    dashboard = json.loads((DEPLOY / "grafana" / "kaido.json").read_text())
    # What this node has not: the kernel's datapath is one half of a panel, runs of the bench push elsewhere.
    missing = {"Rejections and discards", "Queues", "Who forwards", "Packets a second", "User traffic"}
    for title, expression in expressions(dashboard):
        if title not in missing:
            wait_until(lambda asked=expression: prometheus.query(asked), f"{title} shows something")


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels that draw something."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions(dashboard: dict[str, Any]) -> list[tuple[str, str]]:
    """Titles and expressions of all panels, with Grafana's variables filled in."""
    filled = {"$__rate_interval": "10s", "$instance": ".*"}
    found = []
    for panel in panels(dashboard):
        for target in panel["targets"]:
            expression = target["expr"]
            for variable, value in filled.items():
                expression = expression.replace(variable, value)
            assert "$" not in expression, expression
            found.append((panel["title"], expression))
    return found


def test_the_dashboard_is_one() -> None:
    """What Grafana asks of a dashboard, as far as can be told without one; no metric that is not there."""
    dashboard = json.loads((DEPLOY / "grafana" / "kaido.json").read_text())
    assert dashboard["uid"] == "kaido"
    assert dashboard["schemaVersion"] >= 36
    variables = {variable["name"]: variable["type"] for variable in dashboard["templating"]["list"]}
    assert variables == {"datasource": "datasource", "instance": "query"}
    identities = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(identities)) == len(identities)
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, f"{panel['title']} lies on another panel"
        taken |= cells
    for panel in panels(dashboard):
        assert panel["title"] and panel["description"], panel["id"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references) > 0
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
    known = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/observability.md").read_text(), re.MULTILINE))
    rules = (DEPLOY / "prometheus" / "kaido.rules.yml").read_text()
    text = rules + " ".join(expression for _, expression in expressions(dashboard))
    used = set(re.findall(r"\b(?:kaido|process)_(?!bench_)\w+", text))
    named = {re.sub(r"_(bucket|sum|count)$", "", name) if name not in known else name for name in used}
    assert named <= known, named - known


def test_the_rules_do_what_they_say() -> None:
    """`promtool` checks the rules and the configuration, and runs their tests."""
    promtool = require("promtool")
    folder = DEPLOY / "prometheus"
    for arguments in (
        ["check", "rules", "kaido.rules.yml"],
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "kaido.rules.test.yml"],
    ):
        done = subprocess.run(
            [promtool, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_node_says_when_it_cannot_listen(binary: Path, tmp_path: Path) -> None:
    """An address that is not this host's is named, with the field, before anything is touched."""
    config = tmp_path / "kaido.toml"
    text = Node(binary, Namespace("none"), tmp_path).config.replace(
        "[pfcp]", '[metrics]\nlisten = "192.0.2.1"\n[pfcp]'
    )
    text = re.sub(r"listen = \[.*\]", 'listen = ["127.0.0.1:18805"]', text)
    config.write_text(text)
    done = subprocess.run(
        [binary, "run", "-c", config], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert "metrics.listen: cannot listen on 192.0.2.1:9105" in re.sub(r"\s+[│|]?\s*", " ", done.stderr)


def free_port() -> int:
    """A TCP port that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.fixture
def pushgateway(tmp_path: Path) -> Iterator[str]:
    """A Pushgateway on a port of loopback: its URL."""
    command = require("prometheus-pushgateway")
    address = f"127.0.0.1:{free_port()}"
    with (tmp_path / "pushgateway.log").open("w") as log:
        process = subprocess.Popen([command, f"--web.listen-address={address}"], stdout=log, stderr=log)
    url = f"http://{address}"
    try:
        wait_until(lambda: curl(f"{url}/-/ready").returncode == 0, "the Pushgateway is ready")
        yield url
    finally:
        process.terminate()
        process.wait(timeout=60)


def curl(url: str) -> subprocess.CompletedProcess[str]:
    """What `curl` gets."""
    command = ["curl", "--silent", "--fail", "--max-time", "10", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)


@pytest.mark.needs("curl")
def test_the_bench_pushes_with_the_labels_of_source_c(binary: Path, pushgateway: str) -> None:
    """A group for each run, samples by action, frame size and duration."""
    small = [
        "--quick",
        "--rounds",
        "1",
        "--sessions",
        "1",
        "--frames",
        "128",
        "--soak",
        "1000",
        "--json",
        "-",
    ]
    command = [str(binary), "bench", "micro", *small, "--push", pushgateway]
    runs = []
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        runs.append(json.loads(done.stdout))
    groups = json.loads(curl(f"{pushgateway}/api/v1/metrics").stdout)["data"]
    assert {group["labels"]["job"] for group in groups} == {"kaido_bench"}
    assert len({group["labels"]["uid"] for group in groups}) == 2
    for group in groups:
        about = group["kaido_bench_info"]["metrics"][0]["labels"]
        assert about["host"] == socket.gethostname() and about["git_revision"]
        samples = group["kaido_bench_rx_pps"]["metrics"]
        found = {sample["labels"]["action"]: sample for sample in samples}
        assert {"uplink", "downlink"} <= set(found)
        labels = set(found["uplink"]["labels"])
        assert {"job", "uid", "action", "frame_size", "duration", "multiplier", "ports"} <= labels
        assert found["uplink"]["labels"]["frame_size"] == "128"
        measured = [1e9 / result["ns_per_packet"] for run in runs for result in run["results"]]
        assert any(abs(float(found["uplink"]["value"]) / rate - 1) < 1e-6 for rate in measured)


def test_a_push_that_cannot_be_is_named(binary: Path) -> None:
    """An address that is none is refused before the run."""
    command = [str(binary), "bench", "micro", "--push", "https://gateway"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "only http:// is spoken" in done.stderr
