"""Traces of PFCP procedures, as a collector reads them by OpenTelemetry's own messages."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from conftest import BASE, Attach
from rig.authority import LEAF, Authority
from rig.collector import Collector
from rig.net import Topology, run, wait_until
from rig.node import Node
from rig.pfcp import (
    RELEASE,
    ControlPlane,
    create_quota,
    downlink,
    ie,
    node_id,
    to_access,
    to_core,
    u16,
    u32,
    uplink,
)
from rig.prometheus import fetch
from rig.soak import SMALL_PAGES, resident_kib
from rig.target import SMF
from test_reload import reload, write

UE = "10.60.0.1"
METRICS = '[metrics]\nlisten = "127.0.0.1:9105"\n'
OTLP = '[otlp]\nendpoint = "http://127.0.0.1:4318"\nsample = 1\n'
UPDATE = 7
MODIFICATION = 52
#: `STATUS_CODE_ERROR`.
ERROR = 2
RULES = (uplink(), downlink(UE), to_core(), to_access(0x5000))

pytestmark = pytest.mark.needs("root", "ip", "ping")


@pytest.fixture
def collector(net: Topology, tmp_path: Path) -> Iterator[Collector]:
    """Who is told."""
    running = Collector(net.upf, tmp_path).start()
    yield running
    running.stop()


@pytest.fixture
def smf(net: Topology) -> Iterator[ControlPlane]:
    """A control plane."""
    with closing(ControlPlane(net.ran, SMF)) as running:
        yield running


def start(binary: Path, net: Topology, folder: Path, otlp: str = OTLP, **more: Any) -> Node:
    """A user plane that tells of its procedures."""
    return Node(binary, net.upf, folder, driver="af_packet", more=METRICS + otlp, **more).start()


def metric(net: Topology, name: str, *labels: str) -> float:
    """The sum of a family's samples that have these labels."""
    text = fetch(net.upf, "http://127.0.0.1:9105/metrics")
    lines = [line for line in text.splitlines() if re.match(rf"{name}[ {{]", line)]
    return sum(float(line.split()[-1]) for line in lines if all(label in line for label in labels))


def parts(collector: Collector, root: dict[str, Any]) -> list[str]:
    """The names of a procedure's phases, which follow each other from its beginning to its end."""
    inner = [span for span in collector.spans() if span["parent"] == root["id"]]
    assert {span["trace"] for span in inner} == {root["trace"]}
    at = root["began"]
    for span in inner:
        assert span["began"] == at, "where the one before has ended"
        assert span["ended"] >= span["began"]
        assert span["kind"] == "INTERNAL"
        at = span["ended"]
    assert at == root["ended"]
    return [span["name"] for span in inner]


@pytest.mark.parametrize("durability", ["off", "disk"])
def test_each_procedure_is_a_trace(
    binary: Path, net: Topology, tmp_path: Path, collector: Collector, smf: ControlPlane, durability: str
) -> None:
    """What the control plane asks, with identifiers, rules and times, and where the time went."""
    began = time.time_ns()
    otlp = f'{OTLP}service_name = "upf"\ninstance = "upf-7"\n'
    node = start(binary, net, tmp_path, otlp, durability=durability)
    assert smf.set_up().cause == 1
    session = smf.establish(*RULES)
    assert session.cause == 1
    remove = ie(15, u16(56, 1)) + ie(16, u32(108, 1))
    assert smf.ask(MODIFICATION, remove, session.up_seid).cause == 1
    assert smf.delete(session).cause == 1
    assert smf.ask(UPDATE, node_id(SMF)).cause == 1
    assert smf.ask(RELEASE, node_id(SMF)).cause == 1
    names = {
        "PFCP Association Setup": 5,
        "PFCP Session Establishment": 50,
        "PFCP Session Modification": MODIFICATION,
        "PFCP Session Deletion": 54,
        "PFCP Association Update": UPDATE,
        "PFCP Association Release": RELEASE,
    }
    collector.wait("PFCP Association Release")
    at = began
    waited = 0
    for sequence, (name, kind) in enumerate(names.items(), 1):
        [root] = collector.spans(name)
        assert (root["parent"], root["kind"], root["status"]) == ("", "SERVER", [0, ""])
        assert len(bytes.fromhex(root["trace"])) == 16
        assert len(bytes.fromhex(root["id"])) == 8
        assert at < root["began"] < root["ended"] < time.time_ns(), "one after the other"
        at = root["ended"]
        of = root["attributes"]
        assert of["pfcp.message_type"] == kind
        assert of["pfcp.sequence_number"] == sequence
        assert (of["network.peer.address"], of["network.peer.port"]) == (SMF, 8805)
        assert (of["pfcp.cause"], of["pfcp.cause.name"]) == (1, "request_accepted")
        assert of["pfcp.peer.node_id"] == SMF
        assert of["pfcp.request.size"] >= 16
        assert of["pfcp.response.size"] >= 16
        if kind >= 50:
            assert of["pfcp.cp_seid"] == f"{0x5151:#018x}"
            assert of["pfcp.up_seid"] == f"{session.up_seid:#018x}"
            assert of["pfcp.ue_address"] == UE
        told = [part for part in parts(collector, root) if part != "wait_for_workers"]
        if "wait_for_journal" in told:
            told.remove("wait_for_journal")
            waited += 1
            assert parts(collector, root)[-2:] == ["wait_for_journal", "send"]
        assert told == ["decode", "apply", "encode", "send"]
    # A disk can be done before the node looks, once.
    assert waited > 0 if durability == "disk" else waited == 0
    [establishment] = collector.spans("PFCP Session Establishment")
    counts = {name: value for name, value in establishment["attributes"].items() if name.endswith("created")}
    assert counts == {"pfcp.pdr.created": 2, "pfcp.far.created": 2}
    [modification] = collector.spans("PFCP Session Modification")
    assert modification["attributes"]["pfcp.pdr.removed"] == 1
    assert len({span["trace"] for span in collector.spans()}) == len(names)
    assert len({span["id"] for span in collector.spans()}) == len(collector.spans())
    [resource] = {tuple(sorted(span["resource"].items())) for span in collector.spans()}
    assert dict(resource)["service.name"] == "upf"
    assert dict(resource)["service.instance.id"] == "upf-7"
    request = collector.requests()[0]
    assert request["path"] == "/v1/traces"
    assert request["headers"]["content-type"] == "application/x-protobuf"
    assert not collector.spans("PFCP Heartbeat")
    assert node.stop() == 0


def test_a_refusal_is_an_error_with_its_cause(
    binary: Path, net: Topology, tmp_path: Path, collector: Collector, smf: ControlPlane
) -> None:
    """Cause, offending IE and rule, and the status of the span."""
    node = start(binary, net, tmp_path)
    assert smf.establish(*RULES).cause == 72
    assert smf.set_up().cause == 1
    assert smf.establish(to_core()).verdict == (66, 1)
    assert smf.establish(uplink(9), to_core()).cause == 73
    assert smf.ask(54, b"", 0x1234).cause == 65
    [stranger, missing, rule] = collector.wait("PFCP Session Establishment", 3)
    [unknown] = collector.wait("PFCP Session Deletion")
    for span, cause, name in (
        (stranger, 72, "no_established_pfcp_association"),
        (missing, 66, "mandatory_ie_missing"),
        (rule, 73, "rule_creation_modification_failure"),
        (unknown, 65, "session_context_not_found"),
    ):
        of = span["attributes"]
        assert (of["pfcp.cause"], of["pfcp.cause.name"], of["error.type"]) == (cause, name, name)
        code, message = span["status"]
        assert code == ERROR
        assert message.startswith(f"{name}: ")
    assert "pfcp.peer.node_id" not in stranger["attributes"]
    assert missing["attributes"]["pfcp.offending_ie"] == 1
    assert rule["attributes"]["pfcp.failed_rule"]
    assert unknown["attributes"]["pfcp.up_seid"] == f"{0x1234:#018x}"
    assert parts(collector, missing) == ["decode", "encode", "send"]
    assert parts(collector, rule) == ["decode", "apply", "encode", "send"]
    assert node.stop() == 0


def test_a_report_lasts_until_it_is_answered(
    binary: Path, net: Topology, tmp_path: Path, collector: Collector, smf: ControlPlane
) -> None:
    """What the node asks itself is one procedure, sent again or not. Heartbeats are told if asked for."""
    node = start(binary, net, tmp_path, f"{OTLP}heartbeats = true\n", pfcp="n1 = 1")
    assert smf.set_up().cause == 1
    quota = uplink(1, None, u32(81, 1)), downlink(UE, 2, u32(81, 1)), to_core(), to_access(0x5000)
    session = smf.establish(*quota, create_quota(1, 100))
    assert session.cause == 1
    smf.deaf_to = {56}
    query = ie(77, u32(81, 1))
    assert smf.ask(MODIFICATION, query, session.up_seid).cause == 1
    assert node.space.run(
        str(binary), "release", "--session", hex(session.up_seid), "--socket", str(node.socket)
    )
    time.sleep(1.8)
    smf.deaf_to = set()
    [report] = collector.wait("PFCP Session Report")
    of = report["attributes"]
    assert (report["kind"], of["pfcp.message_type"]) == ("CLIENT", 56)
    assert of["pfcp.cp_seid"] == f"{0x5151:#018x}"
    assert of["pfcp.peer.node_id"] == SMF
    assert "USAR" in of["pfcp.report_type"]
    assert parts(collector, report) == ["send", "wait_for_answer"]
    again = [event["at"] for event in report["events"] if event["name"] == "retransmission"]
    assert again
    assert all(report["began"] < at <= report["ended"] for at in again)
    assert report["ended"] - report["began"] > 1.4e9, "T1 at least"
    heartbeats = collector.wait("PFCP Heartbeat")
    assert {heartbeat["kind"] for heartbeat in heartbeats} == {"CLIENT"}
    assert node.stop() == 0


def test_a_ratio_of_procedures_is_sampled_and_can_change(
    binary: Path, net: Topology, tmp_path: Path, collector: Collector, smf: ControlPlane
) -> None:
    """One in four, none, and all, without a restart; where the collector is cannot change."""
    quarter = OTLP.replace("sample = 1", "sample = 0.25")
    node = start(binary, net, tmp_path, quarter)
    assert smf.set_up().cause == 1
    for _ in range(400):
        assert smf.ask(54, b"", 0x1234).cause == 65
    wait_until(lambda: collector.spans("PFCP Session Deletion"), "some come")
    time.sleep(1)
    sampled = len(collector.spans("PFCP Session Deletion"))
    assert 50 <= sampled <= 150, sampled
    write(node, ("sample = 0.25", "sample = 0"))
    assert reload(node)[0] == 0
    for _ in range(100):
        assert smf.ask(54, b"", 0x1234).cause == 65
    time.sleep(1)
    assert len(collector.spans("PFCP Session Deletion")) == sampled
    write(node, ("sample = 0.25", "sample = 1"))
    code, said = reload(node)
    assert (code, "otlp.sample" in said) == (0, True), said
    assert smf.ask(54, b"", 0x1234).cause == 65
    assert len(collector.wait("PFCP Session Deletion", sampled + 1)) == sampled + 1
    write(node, ("sample = 0.25", "sample = 1"), (":4318", ":4319"))
    code, said = reload(node)
    assert code == 1
    assert "otlp.endpoint" in said
    assert node.stop() == 0


def test_a_collector_that_is_away_holds_nobody_and_is_told_when_it_is_back(
    binary: Path, net: Topology, tmp_path: Path, smf: ControlPlane
) -> None:
    """PFCP goes on; what has room comes later, what has none is counted, and memory is bounded."""
    node = start(binary, net, tmp_path, environment=SMALL_PAGES)
    write(node, ("heartbeat_interval_s = 2", "heartbeat_interval_s = 3600"))
    assert reload(node)[0] == 0
    assert smf.set_up().cause == 1
    wait_until(lambda: metric(net, "kaido_otlp_failures_total", "unreachable") > 0, "it is not there")
    assert node.process is not None

    def ask(count: int) -> None:
        for _ in range(count):
            assert smf.ask(54, b"", 0x1234).cause == 65

    # More than answers are kept of, which take memory, too.
    ask(70000)
    before, lost = resident_kib(node.process.pid), metric(net, "kaido_otlp_lost_total", "queue_full")
    assert lost > 0, "more than have room"
    ask(40000)
    assert metric(net, "kaido_otlp_lost_total", "queue_full") >= lost + 40000 - 512
    # Kept, these procedures would take 20 MiB.
    assert resident_kib(node.process.pid) < before + 8192, "KiB"
    status = run(str(binary), "status", "--socket", str(node.socket)).stdout
    assert re.search(r"otlp: 0 procedures told; not told: \d+ as the queue was full", status), status
    assert "otlp: the collector takes nothing now: it is not reached" in status
    told = "an OTLP collector does not take spans"
    assert node.log.read_text().count(told) == 1, "once a minute"
    collector = Collector(net.upf, tmp_path).start()
    collector.wait("PFCP Session Deletion", 4000, 60)
    assert metric(net, "kaido_otlp_procedures_total") >= 4000
    wait_until(lambda: "takes spans again" in node.log.read_text(), "it is told that it is back")
    assert max(len(request["spans"]) for request in collector.requests()) <= 512 * 8
    assert node.stop() == 0
    collector.stop()


def test_a_busy_collector_is_left_alone_for_as_long_as_it_asks(
    binary: Path, net: Topology, tmp_path: Path, collector: Collector, smf: ControlPlane
) -> None:
    """503 and 429 with Retry-After; what is refused does not come again; one that is silent holds nobody."""
    collector.answer("503 3")
    node = start(binary, net, tmp_path)
    assert smf.set_up().cause == 1
    wait_until(lambda: collector.requests("503"), "it is asked")
    collector.answer("429 1")
    wait_until(lambda: collector.requests("429"), "it is asked again")
    collector.answer("200")
    collector.wait("PFCP Association Setup")
    [busy], [limited], [taken] = (collector.requests(status) for status in ("503", "429", "200"))
    assert limited["at"] - busy["at"] >= 3
    assert taken["at"] - limited["at"] >= 1
    assert busy["spans"] == limited["spans"] == taken["spans"], "the same"
    assert metric(net, "kaido_otlp_failures_total", "busy") == 2
    assert metric(net, "kaido_otlp_lost_total") == 0
    collector.answer("400")
    assert smf.ask(54, b"", 0x1234).cause == 65
    wait_until(lambda: metric(net, "kaido_otlp_lost_total", "refused") == 1, "it is refused")
    collector.answer("silence")
    assert smf.ask(54, b"", 0x1234).cause == 65
    wait_until(lambda: collector.requests("silence"), "it says nothing")
    began = time.monotonic()
    for _ in range(100):
        assert smf.ask(54, b"", 0x1234).cause == 65
    assert time.monotonic() - began < 5
    assert len(collector.requests("400")) == 1
    assert node.stop() == 0, "and no end"


def test_a_collector_over_tls_is_checked_and_shown_a_token(
    binary: Path, net: Topology, tmp_path: Path, smf: ControlPlane
) -> None:
    """Its certificate is, and headers come from a file; another's certificate is not taken."""
    authority = Authority(tmp_path)
    own = authority.issue("collector", "-addext", "subjectAltName=IP:127.0.0.1", *LEAF)
    collector = Collector(net.upf, tmp_path, tls=own).start()
    headers = tmp_path / "headers"
    headers.write_text("# of the collector\nAuthorization: Bearer secret-of-mine\n")
    otlp = OTLP.replace("http:", "https:")
    otlp += f'headers = "{headers}"\ncollector_ca = "{authority.certificate}"\n'
    node = start(binary, net, tmp_path, otlp)
    assert smf.set_up().cause == 1
    collector.wait("PFCP Association Setup")
    assert collector.requests()[0]["headers"]["authorization"] == "Bearer secret-of-mine"
    assert node.stop() == 0
    assert "secret-of-mine" not in node.log.read_text()
    collector.stop()
    (other := tmp_path / "other").mkdir()
    unknown = Authority(other).issue("collector", "-addext", "subjectAltName=IP:127.0.0.1", *LEAF)
    untrusted = Collector(net.upf, other, tls=unknown).start()
    node = start(binary, net, tmp_path, otlp)
    assert smf.set_up().cause == 1
    wait_until(lambda: metric(net, "kaido_otlp_failures_total", "unreachable") > 0, "it is not trusted")
    assert untrusted.requests() == []
    assert node.stop() == 0
    untrusted.stop()


def test_nothing_is_told_without_a_collector(
    binary: Path, net: Topology, tmp_path: Path, collector: Collector, attach: Attach
) -> None:
    """No thread, no request; and what sessions do is told with one."""
    tunnels = f"{BASE} --upf-gtpu 10.100.3.1 --gnb 10.100.3.2 --ue-ipv4 {UE}"
    node = start(binary, net, tmp_path, "")

    def threads() -> set[str]:
        assert node.process is not None
        tasks = Path(f"/proc/{node.process.pid}/task").iterdir()
        return {(task / "comm").read_text().strip() for task in tasks}

    attach("--ues 3", tunnels).stop()
    assert "otlp" not in threads()
    assert metric(net, "kaido_otlp_procedures_total") == 0
    assert node.stop() == 0
    node = start(binary, net, tmp_path)
    assert "otlp" in threads()
    attach("--ues 3", tunnels).stop()
    assert len(collector.wait("PFCP Session Deletion", 3)) == 3
    assert node.stop() == 0
    assert len(collector.requests("200")) < 20, "in batches"
