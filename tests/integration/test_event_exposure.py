"""Event exposure (TS 29.564): curl subscribes over HTTP/2, and a consumer made of h2 is notified."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from conftest import BASE, Attach
from rig.authority import LEAF, Authority
from rig.consumer import Consumer
from rig.gtpu import G_PDU, gtpu, ipv4, udp
from rig.net import Namespace, Topology, run, wait_until
from rig.node import Node, Sim
from rig.pfcp import ControlPlane, choose, downlink, ie, to_access, to_core, u8, u16, u32, uplink
from rig.prometheus import fetch
from rig.target import N6
from test_upgrade import pid, upgrade

#: Octets of a ping's IPv4 packet.
PING = 84
TUNNELS = f"{BASE} --upf-gtpu 10.100.3.1 --gnb 10.100.3.2"
UE = "10.60.0.1"
ROOT = "/nupf-ee/v1/ee-subscriptions"
METRICS = '[metrics]\nlisten = "127.0.0.1:9105"\n'

VOLUME = {"type": "string", "pattern": r"^\d+(\.\d+)? (B|kB|MB|GB|TB)$"}
TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"}
COUNT = {"type": "integer", "minimum": 0}
#: What a notification is: ours, after TS 29.564 6.1.6.2.2 and 6.1.6.2.3.
NOTIFICATION = {
    "type": "object",
    "additionalProperties": False,
    "required": ["notificationItems", "correlationId"],
    "properties": {
        "correlationId": {"type": "string"},
        "notificationItems": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["eventType", "timeStamp", "userDataUsageMeasurements"],
                "anyOf": [
                    {"required": ["ueIpv4Addr"]},
                    {"required": ["ueIpv6Prefix"]},
                    {"required": ["ueMacAddr"]},
                ],
                "properties": {
                    "eventType": {"enum": ["USER_DATA_USAGE_MEASURES", "USER_DATA_USAGE_TRENDS"]},
                    "ueIpv4Addr": {"type": "string", "pattern": r"^\d+\.\d+\.\d+\.\d+$"},
                    "ueIpv6Prefix": {"type": "string", "pattern": r"^[0-9a-f:]+/\d+$"},
                    "ueMacAddr": {"type": "string", "pattern": "^([0-9a-f]{2}-){5}[0-9a-f]{2}$"},
                    "dnn": {"type": "string"},
                    "supi": {"type": "string", "pattern": r"^imsi-\d{5,15}$"},
                    "timeStamp": TIME,
                    "startTime": TIME,
                    "userDataUsageMeasurements": {
                        "type": "array",
                        "minItems": 1,
                        "items": {
                            "type": "object",
                            "additionalProperties": False,
                            "minProperties": 1,
                            "properties": {
                                "flowInfo": {
                                    "type": "object",
                                    "additionalProperties": False,
                                    "required": ["flowDescription"],
                                    "properties": {"flowDescription": {"type": "string"}},
                                },
                                "volumeMeasurement": {
                                    "type": "object",
                                    "additionalProperties": False,
                                    "properties": {
                                        "totalVolume": VOLUME,
                                        "ulVolume": VOLUME,
                                        "dlVolume": VOLUME,
                                        "totalNbOfPackets": COUNT,
                                        "ulNbOfPackets": COUNT,
                                        "dlNbOfPackets": COUNT,
                                    },
                                },
                                "throughputMeasurement": {
                                    "type": "object",
                                    "additionalProperties": {
                                        "type": "string",
                                        "pattern": r"^\d+(\.\d+)? (bps|pps)$",
                                    },
                                },
                                "throughputStatisticsMeasurement": {
                                    "type": "object",
                                    "additionalProperties": {
                                        "type": "string",
                                        "pattern": r"^\d+(\.\d+)? (bps|pps)$",
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}
#: `ProblemDetails` of TS 29.571 5.2.4.1.
PROBLEM = {
    "type": "object",
    "additionalProperties": False,
    "required": ["status", "title", "detail"],
    "properties": {
        "status": {"type": "integer"},
        "title": {"type": "string"},
        "detail": {"type": "string"},
        "cause": {"type": "string", "pattern": "^[A-Z_]+$"},
        "invalidParams": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["param", "reason"],
                "properties": {"param": {"type": "string"}, "reason": {"type": "string"}},
            },
        },
    },
}

#: Sends octets, and waits for some.
GARBAGE = """
import socket, sys
with socket.create_connection(("127.0.0.1", 9107), timeout=10) as peer:
    peer.sendall(bytes.fromhex(sys.argv[1]))
    peer.recv(9)
"""

pytestmark = pytest.mark.needs("root", "ip", "ping", "curl")


@dataclass
class Answer:
    """What curl was answered."""

    status: int
    headers: dict[str, str]
    body: Any


@dataclass
class Subscriber:
    """curl, with a token, in a namespace."""

    space: Namespace
    token: str
    root: str = "http://127.0.0.1:9107"
    options: tuple[str, ...] = ("--http2-prior-knowledge",)

    def ask(self, method: str, target: str, body: object = None, kind: str = "application/json") -> Answer:
        """One request, at a path or a URI."""
        command = ["curl", "--silent", "--show-error", "--include", "--max-time", "20", *self.options]
        command += ["--request", method, target if "://" in target else self.root + target]
        if self.token:
            command += ["--header", f"Authorization: Bearer {self.token}"]
        if body is not None:
            data = body if isinstance(body, str) else json.dumps(body)
            command += ["--header", f"Content-Type: {kind}", "--data-binary", data]
        shown = self.space.run(*command).stdout
        head, _, rest = shown.partition("\n\n")
        first, *lines = head.splitlines()
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        assert first.startswith("HTTP/2 "), first
        answer = Answer(int(first.split()[1]), headers, json.loads(rest) if rest.strip() else None)
        if answer.status >= 400:
            assert headers["content-type"] == "application/problem+json"
            jsonschema.validate(answer.body, PROBLEM)
            assert answer.body["status"] == answer.status
        return answer

    def subscribe(self, correlation: str, mode: dict[str, Any], **more: Any) -> Answer:
        """Subscribe to the volume of a UE's session."""
        return self.ask("POST", ROOT, wanted(correlation, mode, **more))


def wanted(correlation: str, mode: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The body of a Create request."""
    subscription = {
        "eventList": [
            {
                "type": "USER_DATA_USAGE_MEASURES",
                "measurementTypes": ["VOLUME_MEASUREMENT"],
                "granularityOfMeasurement": "PER_SESSION",
            }
        ],
        "eventNotifyUri": "http://127.0.0.1:8080/notify",
        "notifyCorrelationId": correlation,
        "eventReportingMode": mode,
        "nfId": "11111111-2222-3333-4444-555555555555",
        "ueIpAddress": {"ipv4Addr": UE},
    }
    subscription.update(more)
    return {"subscription": {name: value for name, value in subscription.items() if value is not None}}


def tokens(binary: Path, folder: Path, *names: str) -> tuple[Path, list[str]]:
    """The file of those who may subscribe, and their tokens."""
    file = folder / "tokens"
    made = [
        run(str(binary), "token", name, "--role", "read", "--file", str(file)).stdout.strip()
        for name in names
    ]
    return file, made


@pytest.fixture
def exposing(binary: Path, net: Topology, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    """A user plane with event exposure on a loopback; a parameter is its datapath."""
    datapath = getattr(request, "param", "engine")
    file, (alice, bob) = tokens(binary, tmp_path, "alice", "bob")
    (tmp_path / "alice").write_text(alice)
    (tmp_path / "bob").write_text(bob)
    more = (
        f'{METRICS}[event_exposure]\nlisten = "127.0.0.1"\ntokens = "{file}"\nconsumers = ["127.0.0.0/8"]\n'
    )
    driver = "af_xdp" if datapath == "xdp" else "af_packet"
    running = Node(binary, net.upf, tmp_path, driver=driver, datapath=datapath, more=more).start()
    yield running
    if not running.ended():
        assert running.stop() == 0


@pytest.fixture
def alice(exposing: Node) -> Subscriber:
    """Who may subscribe."""
    return Subscriber(exposing.space, (exposing.folder / "alice").read_text())


@pytest.fixture
def consumer(net: Topology, tmp_path: Path) -> Consumer:
    """Who is notified."""
    return Consumer(net.upf, tmp_path).start()


def metric(space: Namespace, name: str, *labels: str) -> float:
    """The sum of a family's samples that have these labels."""
    text = fetch(space, "http://127.0.0.1:9105/metrics")
    lines = [line for line in text.splitlines() if re.match(rf"{name}[ {{]", line)]
    return sum(float(line.split()[-1]) for line in lines if all(label in line for label in labels))


def ping(net: Topology, count: int, ue: str = "ue0") -> None:
    """Packets of 84 octets, so many each way."""
    assert net.ran.pings("10.100.6.2", "-I", ue, count=count)


def attach_one(net: Topology, attach: Attach, ues: int = 1) -> Sim:
    """Sessions that carry packets."""
    sim = attach(f"--ues {ues} --tuns {ues}", f"{TUNNELS} --ue-ipv4 {UE}")
    wait_until(lambda: net.ran.pings("10.100.6.2", "-I", "ue0", count=1), "the session carries data")
    return sim


@pytest.mark.parametrize("exposing", ["engine", "xdp"], indirect=True)
def test_volumes_are_told_to_the_octet(
    exposing: Node, alice: Subscriber, consumer: Consumer, net: Topology, attach: Attach
) -> None:
    """Periodically, and at a threshold; what is told together is what was sent.

    Conformance: TS 29.564 5.2.2.3.2 | Notifications over HTTP/2 with the correlation identifier, periodically
    """
    attach_one(net, attach)
    answer = alice.subscribe("periodic", {"trigger": "PERIODIC", "repPeriod": 1})
    assert answer.status == 201, answer
    location = answer.headers["location"]
    assert re.fullmatch(rf"http://127\.0\.0\.1:9107{ROOT}/[0-9a-f]{{32}}", location)
    assert answer.body["subscriptionId"] == location
    threshold = {"trigger": "ON_EVENT_DETECTION", "volumeThreshold": {"totalVolume": f"{PING * 20} B"}}
    assert alice.subscribe("threshold", threshold).status == 201
    ping(net, 7)
    wait_until(lambda: consumer.octets("periodic") == (7 * PING, 7 * PING), "seven pings are told of")
    assert consumer.items("threshold") == []
    ping(net, 3)
    (reached,) = consumer.wait("threshold", 1)
    measured = reached["userDataUsageMeasurements"][0]["volumeMeasurement"]
    assert measured["totalVolume"] == f"{20 * PING} B"
    ping(net, 5)
    wait_until(lambda: consumer.octets("periodic") == (15 * PING, 15 * PING), "all pings are told of")
    items = consumer.items("periodic")
    assert {(item["ueIpv4Addr"], item["dnn"]) for item in items} == {(UE, "internet")}
    for before, item in pairwise(items):
        assert item["startTime"] == before["timeStamp"], "no time is left out"
    for request in consumer.requests():
        jsonschema.validate(request["body"], NOTIFICATION)
        assert request["headers"][":path"] == "/notify"
        assert request["headers"]["content-type"] == "application/json"
    assert alice.ask("DELETE", location).status == 204
    assert alice.ask("DELETE", location).body["cause"] == "SUBSCRIPTION_NOT_FOUND"
    assert metric(net.upf, "kaido_event_exposure_subscriptions") == 1
    assert metric(net.upf, "kaido_event_exposure_failures_total") == 0


def test_a_consumer_that_was_away_misses_no_octet(
    exposing: Node, alice: Subscriber, consumer: Consumer, net: Topology, attach: Attach
) -> None:
    """It is gone, refuses, is busy, and says nothing: the next notification has what it missed."""
    attach_one(net, attach)
    assert alice.subscribe("c", {"trigger": "PERIODIC", "repPeriod": 1}).status == 201
    ping(net, 2)
    wait_until(lambda: consumer.octets("c")[0] == 2 * PING, "it is notified")
    consumer.stop()
    ping(net, 3)
    unreachable = 'reason="unreachable"'
    wait_until(
        lambda: metric(net.upf, "kaido_event_exposure_failures_total", unreachable) >= 2, "it is tried again"
    )
    consumer.start()
    wait_until(lambda: consumer.octets("c") == (5 * PING, 5 * PING), "it is told of what it missed")
    consumer.answer("400")
    ping(net, 4)
    wait_until(lambda: len(consumer.requests("400")) >= 2, "it refuses")
    refused = 'reason="refused"'
    assert metric(net.upf, "kaido_event_exposure_failures_total", refused) >= 1
    consumer.answer("503")
    wait_until(lambda: len(consumer.requests("503")) >= 2, "it is busy")
    consumer.answer("silence")
    ping(net, 1)
    wait_until(lambda: consumer.requests("silence"), "it says nothing")
    consumer.answer("204")
    wait_until(lambda: consumer.octets("c") == (10 * PING, 10 * PING), "nothing is lost")
    lines = [line for line in exposing.log.read_text().splitlines() if "has not taken a notification" in line]
    assert len(lines) == 1, lines


def test_a_session_that_ends_is_told_of_to_its_last_octet(
    exposing: Node, alice: Subscriber, consumer: Consumer, net: Topology, attach: Attach
) -> None:
    """Of any UE: each session by its address, those too that come and go between two reports."""
    del exposing
    sim = attach_one(net, attach, ues=2)
    mode = {"trigger": "PERIODIC", "repPeriod": 3}
    assert alice.subscribe("any", mode, ueIpAddress=None, anyUe=True).status == 201
    time.sleep(1)
    ping(net, 4, "ue0")
    ping(net, 2, "ue1")
    sim.stop()

    def by_ue() -> dict[str, int]:
        volumes: dict[str, int] = {}
        for item in consumer.items("any"):
            volume = item["userDataUsageMeasurements"][0]["volumeMeasurement"]["totalVolume"]
            of = item["ueIpv4Addr"]
            volumes[of] = volumes.get(of, 0) + int(volume.removesuffix(" B"))
        return volumes

    wait_until(lambda: sum(by_ue().values()) >= 12 * PING, "both are told of")
    assert by_ue() == {UE: 8 * PING, "10.60.0.2": 4 * PING}


def create_urr(urr: int) -> bytes:
    """Create URR: volume, and no report unasked (TS 29.244 7.5.2.4)."""
    return ie(6, u32(81, urr) + u8(62, 2) + ie(37, b"\0\0"))


def test_flows_are_told_apart_whatever_becomes_of_their_urrs(
    exposing: Node, alice: Subscriber, consumer: Consumer, net: Topology
) -> None:
    """A flow with a URR of its own, which the SMF replaces; the session has each packet once."""
    del exposing
    smf = ControlPlane(net.ran, "10.100.4.2")
    smf.set_up()
    text = b"permit out udp from 10.100.6.2 5001 to assigned"
    sdf = ie(23, b"\x01\0" + struct.pack("!H", len(text)) + text)
    tunnel_end = choose(77)
    of_flow = u8(20, 0) + tunnel_end + sdf
    session = smf.establish(
        uplink(1, tunnel_end, u32(81, 1)),
        ie(1, u16(56, 11) + u32(29, 50) + ie(2, of_flow) + u8(95, 6) + u32(108, 1) + u32(81, 1) + u32(81, 2)),
        downlink(UE),
        to_core(),
        to_access(1077),
        create_urr(1),
        create_urr(2),
    )
    assert session.cause == 1, session
    event = {"type": "USER_DATA_USAGE_MEASURES", "measurementTypes": ["VOLUME_MEASUREMENT"]}
    filters = [{"flowDescription": "permit out 17 from 10.100.6.2 5001 to assigned"}]
    flow = event | {"granularityOfMeasurement": "PER_FLOW", "trafficFilters": filters}
    mode = {"trigger": "PERIODIC", "repPeriod": 1}
    assert alice.subscribe("session", mode).status == 201
    assert alice.subscribe("flow", mode, eventList=[flow]).status == 201
    with net.ran.socket("10.100.3.2", 2152) as gnb:

        def send(port: int, count: int) -> int:
            packet = ipv4(UE, "10.100.6.2", udp(4000, port, bytes(72)))
            for _ in range(count):
                gnb.sendto(gtpu(G_PDU, 77, packet), ("10.100.3.1", 2152))
            return len(packet) * count

        of_both = [send(5001, 5), send(6000, 3)]
        total = sum(of_both)
        wait_until(lambda: consumer.octets("session") == (total, 0), "the session is told of")
        wait_until(lambda: consumer.octets("flow") == (of_both[0], 0), "the flow is told of")
        changes = (ie(17, u32(81, 2)), create_urr(3), ie(9, u16(56, 11) + u32(81, 1) + u32(81, 3)))
        assert smf.ask(52, b"".join(changes), session.up_seid).cause == 1
        more = [send(5001, 2), send(6000, 1)]
        total += sum(more)
        wait_until(lambda: consumer.octets("session") == (total, 0), "the session goes on")
        wait_until(lambda: consumer.octets("flow") == (of_both[0] + more[0], 0), "the flow goes on")
    named = {
        volume["flowInfo"]["flowDescription"]
        for item in consumer.items("flow")
        for volume in item["userDataUsageMeasurements"]
    }
    assert named == {"permit out 17 from 10.100.6.2/32 5001 to assigned"}
    for request in consumer.requests():
        jsonschema.validate(request["body"], NOTIFICATION)
    smf.close()


def test_a_subscription_is_modified_reported_on_at_once_and_bounded(
    exposing: Node, alice: Subscriber, consumer: Consumer, net: Topology, attach: Attach
) -> None:
    """Immediate reports, one report, throughput and its peaks, a patch, the most reports, and expiry."""
    attach_one(net, attach)
    event = {"type": "USER_DATA_USAGE_MEASURES", "measurementTypes": ["VOLUME_MEASUREMENT"]}
    once = {"trigger": "ONE_TIME"}
    answer = alice.subscribe("once", once, eventList=[event | {"immediateFlag": True}])
    jsonschema.validate({"notificationItems": answer.body["reportList"], "correlationId": "c"}, NOTIFICATION)
    assert alice.ask("DELETE", answer.headers["location"]).status == 404, "it has ended with its report"
    rates = event | {"measurementTypes": ["VOLUME_MEASUREMENT", "THROUGHPUT_MEASUREMENT"]}
    mode = {"trigger": "PERIODIC", "repPeriod": 3600}
    answer = alice.subscribe("rates", mode, eventList=[rates, {"type": "USER_DATA_USAGE_TRENDS"}])
    location = answer.headers["location"]
    ping(net, 5)
    operations = [
        {"op": "replace", "path": "/eventReportingMode/repPeriod", "value": 1},
        {"op": "add", "path": "/eventReportingMode/maxReports", "value": 2},
    ]
    patched = alice.ask("PATCH", location, operations, "application/json-patch+json")
    assert patched.status == 204
    items = consumer.wait("rates", 4)
    time.sleep(2)
    assert len(consumer.items("rates")) == 4, "two reports of two events"
    assert alice.ask("DELETE", location).status == 404
    assert {item["eventType"] for item in items} == {"USER_DATA_USAGE_MEASURES", "USER_DATA_USAGE_TRENDS"}
    first = items[0]["userDataUsageMeasurements"][0]
    assert first["volumeMeasurement"]["ulVolume"] == f"{5 * PING} B"
    assert float(first["throughputMeasurement"]["ulThroughput"].removesuffix(" bps")) > 0
    expiry = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3))
    answer = alice.subscribe("soon", {"trigger": "PERIODIC", "repPeriod": 3600, "expiry": expiry})
    assert answer.body["subscription"]["eventReportingMode"]["expiry"] == expiry.replace("Z", ".000Z")
    gone = "it expires"
    wait_until(lambda: metric(net.upf, "kaido_event_exposure_subscriptions") == 0, gone)
    assert alice.ask("DELETE", answer.headers["location"]).status == 404
    for request in consumer.requests():
        jsonschema.validate(request["body"], NOTIFICATION)
    del exposing


def test_what_is_not_allowed_changes_nothing(
    exposing: Node, alice: Subscriber, net: Topology, attach: Attach
) -> None:
    """Unknown callers, others' subscriptions, targets elsewhere, hostile bodies, too many: errors and counts.

    Conformance: TS 29.564 6.1.7 | Errors by ProblemDetails with the causes of TS 29.500
    """
    attach_one(net, attach)
    mode = {"trigger": "PERIODIC", "repPeriod": 3600}
    nobody = Subscriber(net.upf, "")
    assert nobody.subscribe("c", mode).status == 401
    assert Subscriber(net.upf, "guessed").subscribe("c", mode).status == 401
    location = alice.subscribe("c", mode).headers["location"]
    bob = Subscriber(net.upf, (exposing.folder / "bob").read_text())
    assert bob.ask("DELETE", location).body["cause"] == "SUBSCRIPTION_NOT_FOUND"
    qos = [{"type": "QOS_MONITORING"}]
    refused = [
        (400, "MANDATORY_IE_MISSING", wanted("c", {})),
        (400, "MANDATORY_IE_MISSING", wanted("c", mode, ueIpAddress=None)),
        (400, "MANDATORY_IE_INCORRECT", wanted("c", mode, eventNotifyUri="http://10.100.4.2/")),
        (400, "MANDATORY_IE_INCORRECT", wanted("c", mode, eventNotifyUri="https://127.0.0.1/")),
        (400, "MANDATORY_IE_INCORRECT", wanted("c", mode, eventNotifyUri="file:///etc/passwd")),
        (400, "MANDATORY_IE_INCORRECT", wanted("c", mode, eventList=qos)),
        (400, "OPTIONAL_IE_INCORRECT", wanted("c", mode, snssai={"sst": 1})),
        (404, "CONTEXT_NOT_FOUND", wanted("c", mode, ueIpAddress={"ipv4Addr": "10.60.9.9"})),
        (400, "INVALID_MSG_FORMAT", "{" * 5000),
        (400, "INVALID_MSG_FORMAT", "[" * 60_000),
    ]
    for status, cause, body in refused:
        answer = alice.ask("POST", ROOT, body)
        assert (answer.status, answer.body.get("cause")) == (status, cause), answer
    large = exposing.folder / "large"
    large.write_text("x" * 200_000)
    assert alice.ask("POST", ROOT, f"@{large}").status == 413
    assert alice.ask("POST", ROOT, wanted("c", mode), "text/plain").status == 415
    assert alice.ask("GET", ROOT).status == 405
    assert alice.ask("POST", "/nupf-ee/v2/ee-subscriptions", {}).body["cause"] == "INVALID_API"
    assert metric(net.upf, "kaido_event_exposure_requests_total", "refused") == len(refused) + 5
    assert metric(net.upf, "kaido_event_exposure_subscriptions") == 1
    octets = bytes(range(256)) * 40
    for sent in (octets, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + octets, b"GET / HTTP/1.1\r\n\r\n"):
        net.upf.run("python3", "-c", GARBAGE, sent.hex(), check=False)
    body_file = exposing.folder / "body"
    body_file.write_text(json.dumps(wanted("c", mode)))
    asked = ("-m", "rig.subscribe", alice.root + ROOT, alice.token, str(body_file), "300")
    answers = json.loads(net.upf.run(sys.executable, *asked, timeout=120).stdout)
    assert answers == {"201": 255, "500": 45}
    full = alice.subscribe("c", mode)
    assert (full.status, full.body["cause"]) == (500, "INSUFFICIENT_RESOURCES")
    ping(net, 1)


@dataclass
class Kept:
    """A node whose subscriptions are kept, who subscribes, and who is notified."""

    node: Node
    alice: Subscriber
    consumer: Consumer
    net: Topology

    def subscribe(self, correlation: str, **mode: object) -> str:
        """The URI of a subscription."""
        answer = self.alice.subscribe(correlation, {"trigger": "PERIODIC", "repPeriod": 1} | mode)
        assert answer.status == 201, answer
        return answer.headers["location"]

    def patch(self, location: str, name: str, value: object) -> int:
        """Modify how a subscription reports."""
        operations = [{"op": "replace", "path": f"/eventReportingMode/{name}", "value": value}]
        return self.alice.ask("PATCH", location, operations, "application/json-patch+json").status

    def delete(self, location: str) -> int:
        """End a subscription."""
        return self.alice.ask("DELETE", location).status

    def kill(self) -> None:
        """Start the node anew after it was killed. What was acknowledged before the node has read."""
        time.sleep(0.3)
        self.node.stop(signal.SIGKILL)
        self.node.start()

    def count(self) -> float:
        """How many subscriptions there are."""
        return metric(self.net.upf, "kaido_event_exposure_subscriptions")

    def wait_for_pings(self, correlation: str, count: int) -> None:
        """So many are told of, each once, and no time is left out."""
        octets = (count * PING, count * PING)
        wait_until(lambda: self.consumer.octets(correlation) == octets, f"{count} pings are told of")
        for before, item in pairwise(self.consumer.items(correlation)):
            assert item["startTime"] == before["timeStamp"]


@pytest.fixture
def kept(binary: Path, net: Topology, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Kept]:
    """A node of which a parameter says what its store survives, with a session."""
    file, (token,) = tokens(binary, tmp_path, "alice")
    more = (
        f'{METRICS}[event_exposure]\nlisten = "127.0.0.1"\ntokens = "{file}"\nconsumers = ["127.0.0.0/8"]\n'
    )
    node = Node(binary, net.upf, tmp_path, durability=getattr(request, "param", "process"), more=more).start()
    yield Kept(node, Subscriber(net.upf, token), Consumer(net.upf, tmp_path).start(), net)
    if node.ask("status") is not None:
        os.kill(pid(node), signal.SIGTERM)
        wait_until(lambda: node.ask("status") is None, "the node ends")


@pytest.mark.parametrize("kept", ["process", "disk"], indirect=True)
def test_subscriptions_go_on_after_the_node_was_killed(kept: Kept, attach: Attach) -> None:
    """Those that were answered, as they were answered; what was ended, or has expired, does not come back.

    Conformance: TS 29.564 6.1.3.3 | A subscription is at its URI until it ends, over kills and restarts
    """
    attach_one(kept.net, attach)
    goes_on = kept.subscribe("goes on", repPeriod=2)
    counted = kept.subscribe("counted", repPeriod=3600, maxReports=3)
    deleted = kept.subscribe("deleted")
    expiry = time.time() + 3
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(expiry))
    expires = kept.subscribe("expires", repPeriod=3600, expiry=soon)
    once = kept.subscribe("once", trigger="ONE_TIME", repPeriod=3600)
    kept.consumer.wait("goes on", 1)
    ping(kept.net, 2)
    kept.wait_for_pings("goes on", 2)
    assert kept.delete(deleted) == 204
    assert kept.patch(once, "repPeriod", 1) == 204
    kept.consumer.wait("once", 1)
    wait_until(lambda: kept.count() <= 3, "the one that reports once has ended")
    ping(kept.net, 3)
    assert kept.patch(counted, "repPeriod", 2) == 204
    kept.consumer.wait("counted", 1)
    time.sleep(0.3)
    kept.node.stop(signal.SIGKILL)
    time.sleep(max(0.0, expiry + 1 - time.time()))
    kept.node.start()
    assert kept.count() == 2
    assert [kept.delete(gone) for gone in (deleted, expires, once)] == [404, 404, 404]
    ping(kept.net, 4)
    kept.wait_for_pings("goes on", 9)
    wait_until(lambda: kept.count() == 1, "the last report is made")
    assert len(kept.consumer.items("counted")) == 3
    assert kept.delete(counted) == 404
    assert len(kept.consumer.items("once")) == 1
    assert kept.patch(goes_on, "repPeriod", 1) == 204
    kept.kill()
    ping(kept.net, 1)
    kept.wait_for_pings("goes on", 10)
    assert kept.delete(goes_on) == 204
    kept.kill()
    assert kept.count() == 0
    assert kept.delete(goes_on) == 404


@pytest.mark.parametrize("kept", ["off"], indirect=True)
def test_nothing_is_kept_without_a_store(kept: Kept, attach: Attach) -> None:
    """A consumer subscribes again."""
    sim = attach_one(kept.net, attach)
    location = kept.subscribe("c")
    sim.stop()
    kept.kill()
    assert kept.delete(location) == 404


def test_subscriptions_wait_while_event_exposure_is_off(kept: Kept, attach: Attach) -> None:
    """The log says so; a consumer that is no longer allowed has none."""
    attach_one(kept.net, attach)
    location = kept.subscribe("c")
    ping(kept.net, 2)
    kept.wait_for_pings("c", 2)
    more = kept.node.more
    kept.node.more = METRICS
    kept.kill()
    assert "event_exposure.listen is not set" in kept.node.log.read_text()
    ping(kept.net, 1)
    kept.node.more = more
    kept.kill()
    kept.wait_for_pings("c", 3)
    kept.node.more = more.replace("127.0.0.0/8", "127.0.0.2/32")
    kept.kill()
    assert "is in no prefix of event_exposure.consumers" in kept.node.log.read_text()
    kept.node.more = more
    kept.kill()
    assert kept.delete(location) == 404


def test_subscriptions_go_on_after_an_upgrade(kept: Kept, attach: Attach) -> None:
    """Over and over: each packet is told of once, and the consumer notices nothing."""
    sim = attach_one(kept.net, attach)
    location = kept.subscribe("c")
    pings = 0
    for count in (2, 3, 4):
        ping(kept.net, count)
        pings += count
        code, said = upgrade(kept.node)
        assert code == 0, said
        assert kept.count() == 1
    ping(kept.net, 1)
    kept.wait_for_pings("c", pings + 1)
    assert kept.patch(location, "repPeriod", 2) == 204
    assert kept.delete(location) == 204
    code, said = upgrade(kept.node)
    assert code == 0, said
    assert kept.delete(location) == 404
    sim.stop()


@pytest.mark.needs("root", "ip", "ping", "curl", "openssl")
@pytest.mark.parametrize("driver", ["af_xdp", "af_packet"])
def test_both_ways_over_tls(binary: Path, net: Topology, tmp_path: Path, attach: Attach, driver: str) -> None:
    """Who has a certificate subscribes and is notified; whose certificate nobody has signed is not."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("node", "-addext", "subjectAltName=IP:10.100.4.9", *LEAF)
    of_consumer = authority.issue("consumer", "-addext", "subjectAltName=IP:10.100.4.2", *LEAF)
    client, client_key = authority.issue("client", *LEAF)
    file, _ = tokens(binary, tmp_path, "alice")
    with file.open("a") as log:
        log.write(f"nwdaf read certificate:{authority.fingerprint(client)}\n")
    ca = authority.certificate
    more = (
        f'[event_exposure]\nlisten = "10.100.4.9"\ntokens = "{file}"\nconsumers = ["10.100.4.2/32"]\n'
        f'tls_certificate = "{certificate}"\ntls_key = "{key}"\nclient_ca = "{ca}"\nconsumer_ca = "{ca}"\n'
    )
    net.upf.ip("address", "add", "10.100.4.9/24", "dev", "n4")
    node = Node(binary, net.upf, tmp_path, driver=driver, more=more).start()
    sim = attach_one(net, attach)
    trusted = Consumer(net.ran, tmp_path, "10.100.4.2", 8443, of_consumer).start()
    shown = ("--cacert", str(ca), "--cert", str(client), "--key", str(client_key))
    nwdaf = Subscriber(net.ran, "", "https://10.100.4.9:9107", shown)
    mode = {"trigger": "PERIODIC", "repPeriod": 1}
    answer = nwdaf.subscribe("tls", mode, eventNotifyUri="https://10.100.4.2:8443/notify")
    assert answer.status == 201
    assert answer.headers["location"].startswith("https://10.100.4.9:9107/")
    ping(net, 3)
    wait_until(lambda: trusted.octets("tls") == (3 * PING, 3 * PING), "it is notified")
    other = tmp_path / "other"
    other.mkdir()
    unknown = Authority(other).issue("consumer", "-addext", "subjectAltName=IP:10.100.4.2", *LEAF)
    untrusted = Consumer(net.ran, other, "10.100.4.2", 8444, unknown).start()
    assert nwdaf.subscribe("no", mode, eventNotifyUri="https://10.100.4.2:8444/notify").status == 201
    time.sleep(3)
    assert untrusted.requests() == []
    assert nwdaf.subscribe("no", mode, eventNotifyUri="https://127.0.0.1:8444/").status == 400
    # A data network that has a route to it does not reach it.
    net.dn.ip("route", "add", "10.100.4.9/32", "via", N6)
    curl = ("curl", "--silent", "--insecure", "--max-time", "3", "https://10.100.4.9:9107/")
    assert net.dn.run(*curl, check=False).returncode == 28, "nobody answers"
    assert node.drops().get("n6 control_address", 0) > 0
    sim.stop()
    assert node.stop() == 0
