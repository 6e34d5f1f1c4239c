"""The HTTP API of a node: its document, clients made of it, questions by chance, and hostile clients."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Attach
from openapi_spec_validator import validate
from rig.authority import LEAF, Authority
from rig.gre import Remover, Wire
from rig.http import Control, ask, by_tcp
from rig.ndn import Router
from rig.net import Topology, run, wait_until
from rig.node import Node

#: Questions by chance for each operation; KAIDO_API_CASES=500 makes ten thousand of all.
CASES = int(os.environ.get("KAIDO_API_CASES", "25"))
METRICS = '[metrics]\nlisten = "127.0.0.1:9105"\n'


@pytest.fixture
def serving(binary: Path, net: Topology, tmp_path: Path) -> Iterator[Node]:
    """A user plane with a metrics endpoint."""
    running = Node(binary, net.upf, tmp_path, driver="af_packet", more=METRICS).start()
    yield running
    if not running.ended():
        assert running.stop() == 0


@pytest.mark.needs("root", "ip")
def test_every_answer_is_as_the_document_says(serving: Node, attach: Attach) -> None:
    """A kept validator reads the document, and schemathesis asks by it."""
    attach("--ues 3 --tuns 0")
    ask_by_chance(serving)


@pytest.mark.needs("root", "ip")
def test_every_answer_of_a_router_is_as_the_document_says(
    binary: Path, net: Topology, tmp_path: Path
) -> None:
    """The tables of NDN, too."""
    router = Router(binary, net.upf, tmp_path, cached=1000)
    router.start()
    router.tell("strategy", "set", "/far", "asf")
    ask_by_chance(router)
    assert router.stop() == 0


def ask_by_chance(node: Node) -> None:
    """Ask a node all that its document has, and judge each answer by the document."""
    status, document = ask(node.socket, "GET", "/v1/openapi.json")
    assert status == 200
    validate(document)
    with by_tcp(node.socket) as url:
        # Those without an end are asked below. A program by chance that took over would end this node.
        others = ["/v1/events", "/v1/capture"]
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/v1/openapi.json"),
            *("--max-examples", str(CASES), "--phases", "fuzzing", "--seed", "1", "--no-color"),
            *("--checks", "not_a_server_error,status_code_conformance,content_type_conformance"),
            *("--checks", "response_schema_conformance,negative_data_rejection"),
            *(part for path in others for part in ("--exclude-path", path)),
            *("--exclude-operation-id", "begin_upgrade"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, cwd=node.folder, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout, done.stdout
    assert node.ask("status") is not None


@pytest.mark.needs("root", "ip", "ping")
def test_a_client_made_of_the_document_drives_a_node(
    serving: Node, net: Topology, attach: Attach, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lists sessions, looks at one, and traces it."""
    attach("--ues 3 --tuns 1")
    document = json.loads(run(str(serving.binary), "reference", "--openapi").stdout)
    # No generator knows what to make of a capture.
    del document["paths"]["/v1/capture"]
    file = tmp_path / "openapi.json"
    file.write_text(json.dumps(document))
    made = tmp_path / "made"
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--path", str(file)]
    settings = tmp_path / "client.yaml"
    settings.write_text("post_hooks: []\nproject_name_override: kaido-client\n")
    done = subprocess.run(
        [*command, "--output-path", str(made), "--meta", "none", "--config", str(settings)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr, done.stdout + done.stderr
    monkeypatch.syspath_prepend(str(tmp_path))

    def operation(tag: str, name: str) -> Any:
        return importlib.import_module(f"made.api.{tag}.{name}")

    client = importlib.import_module("made").Client
    models = importlib.import_module("made.models")
    with by_tcp(serving.socket) as url:
        node = client(base_url=url)
        listed = operation("sessions", "list_sessions").sync(client=node, limit=2)
        assert (listed.total, len(listed.sessions)) == (3, 2)
        seid = int(listed.sessions[0].seid, 16)
        one = operation("sessions", "get_session").sync(seid, client=node)
        assert one.seid == listed.sessions[0].seid
        assert one.rules["pdrs"]
        gone = operation("sessions", "get_session").sync(1, client=node)
        assert gone.status == 404
        body = models.BeginTraceBody.from_dict({"of": {"flow": {"by": "ue", "value": one.ue[0]}}})
        begun = operation("traces", "begin_trace").sync(client=node, body=body)
        assert net.ran.pings("10.100.6.2", "-I", "ue0")
        read = operation("traces", "read_trace").sync(begun.id, client=node)
        ended = operation("traces", "end_trace").sync_detailed(begun.id, client=node)
        assert ended.status_code == 204
    assert {packet.seid for packet in read.packets} <= {one.seid}


@pytest.mark.needs("root", "ip", "ping", "tshark")
def test_streams_go_on_until_the_client_leaves(
    serving: Node, net: Topology, attach: Attach, tmp_path: Path
) -> None:
    """Events again and again; a capture that tshark reads."""
    attach("--ues 1 --tuns 1")
    connection = Control(serving.socket)
    connection.request("GET", "/v1/events?interval_ms=100")
    events = connection.getresponse()
    assert events.headers["Content-Type"] == "text/event-stream"
    lines = [events.readline().decode().strip() for _ in range(60)]
    nodes = [
        json.loads(line.removeprefix("data: ")) for before, line in pairwise(lines) if before == "event: node"
    ]
    assert len(nodes) > 2
    assert nodes[0]["function"] == "upf"
    connection.close()
    (ue,) = (session["ue"][0] for session in ask(serving.socket, "GET", "/v1/sessions")[1]["sessions"])
    capture = Control(serving.socket)
    capture.request("GET", f"/v1/capture?by=ue&value={ue}&count=4")
    answer = capture.getresponse()
    assert net.ran.pings("10.100.6.2", "-I", "ue0", "-c", "2")
    file = tmp_path / "ue.pcapng"
    file.write_bytes(answer.read())
    shown = run("tshark", "-r", str(file), "-T", "fields", "-e", "frame.comment").stdout
    assert shown.count("in: uplink of session") + shown.count("in: downlink of session") == 4, shown


@pytest.mark.needs("root", "ip", "curl")
def test_the_metrics_endpoint_names_no_subscriber(serving: Node, net: Topology, attach: Attach) -> None:
    """Figures are for who reaches it; sessions and actions for who has the control socket."""
    attach("--ues 1 --tuns 0")

    def status(*arguments: str) -> str:
        told = ("--silent", "--output", "/dev/null", "--write-out", "%{http_code}")
        return net.upf.run("curl", *told, *arguments).stdout

    here = "http://127.0.0.1:9105"
    for path in ("/metrics", "/healthz", "/readyz", "/v1/node", "/v1/drops", "/v1/associations"):
        assert status(f"{here}{path}") == "200", path
    for path in ("/v1/sessions", "/v1/sessions/1", "/v1/capture", "/v1/upgrade"):
        assert status(f"{here}{path}") == "403", path
    assert status("--json", "{}", f"{here}/v1/reload") == "403"
    assert status("--header", "Host: evil.example", f"{here}/metrics") == "421"
    names = net.upf.run("curl", "--silent", f"{here}/v1/node", f"{here}/metrics").stdout
    assert ask(serving.socket, "GET", "/v1/sessions")[1]["sessions"][0]["ue"][0] not in names


#: A group of nobody here.
READERS = 64123


class Shared(Node):
    """A node whose control socket is for a group too."""

    @property
    def config(self) -> str:
        """With that group."""
        return super().config.replace("[control]\n", f'[control]\ngroup = "{READERS}"\n')


@pytest.mark.needs("root", "ip", "curl", "setpriv")
def test_a_group_reads_at_the_control_socket(binary: Path, net: Topology) -> None:
    """Its members ask for sessions, and change nothing; who is in no such group does not get in."""
    with tempfile.TemporaryDirectory(prefix="kaido-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        node = Shared(binary, net.upf, folder, "af_packet")
        node.start()

        def asked(group: int, *arguments: str) -> tuple[int, str, str]:
            """How curl ended as a user of that group alone, the status, and the answer."""
            user = ("setpriv", "--reuid", "65534", "--regid", str(group), "--clear-groups")
            told = ("--silent", "--write-out", "\n%{http_code}", "--unix-socket", str(node.socket))
            done = run(*user, "curl", *told, *arguments, check=False)
            answer, status = done.stdout.rsplit("\n", 1)
            return done.returncode, status, answer

        try:
            assert stat.S_IMODE(node.socket.stat().st_mode) == 0o660
            reload = ("--json", '{"dry_run": true}', "http://kaido/v1/reload")
            assert asked(READERS, "http://kaido/v1/sessions")[:2] == (0, "200")
            assert asked(READERS, *reload)[:2] == (0, "403")
            assert "as the node's user or root" in asked(READERS, *reload)[2]
            assert asked(READERS + 1, "http://kaido/v1/sessions")[0] == 7
            assert ask(node.socket, "POST", "/v1/reload", {"dry_run": True})[0] == 200
            assert "user 65534" in node.log.read_text()
        finally:
            node.stop()


@pytest.mark.needs("root", "ip")
def test_a_node_of_another_function_says_so(binary: Path, tmp_path: Path) -> None:
    """Its document has its own paths only."""
    with Wire(f"ka{os.getpid()}-") as wire:
        node = Remover(binary, wire.node, tmp_path, "af_packet")
        node.start()
        try:
            status, document = ask(node.socket, "GET", "/v1/openapi.json")
            assert status == 200
            assert "/v1/gre" in document["paths"]
            assert "/v1/sessions" not in document["paths"]
            status, problem = ask(node.socket, "GET", "/v1/sessions")
            assert status == 404
            assert 'function "gre" of this node has no /v1/sessions' in problem["detail"]
            done = run(str(binary), "sessions", "--socket", str(node.socket), check=False)
            assert done.returncode != 0
            assert 'function "gre" of this node has no /v1/' in done.stderr
            assert ask(node.socket, "GET", "/v1/ports")[1]["ports"][0]["name"] == "k0"
        finally:
            node.stop()


@pytest.mark.needs("root", "ip", "ping")
def test_an_operator_ends_a_session_and_drains_the_node(serving: Node, net: Topology, attach: Attach) -> None:
    """A session that was ended is reported; while the node drains nobody new comes in."""
    sim = attach("--ues 3 --tuns 2")
    at = ("--socket", str(serving.socket))

    def kaido(*arguments: str, check: bool = True) -> str:
        done = run(str(serving.binary), *arguments, *at, check=check)
        return " ".join((done.stdout + done.stderr).split())

    def total() -> object:
        answer = serving.ask("sessions")
        return answer and answer["total"]

    assert net.ran.pings("10.100.6.2", "-I", "ue0")
    (first,) = ask(serving.socket, "GET", "/v1/sessions?ue=10.60.0.1")[1]["sessions"]
    assert "has ended" in kaido("release", "--session", first["seid"])
    assert total() == 2
    assert not net.ran.pings("10.100.6.2", "-I", "ue0", "-W", "1")
    assert net.ran.pings("10.100.6.2", "-I", "ue1")
    assert "there is no session" in kaido("release", "--session", first["seid"], check=False)
    nobody = ("--association", "nobody", "--grace", "5")
    assert "there is no association with nobody" in kaido("release", *nobody, check=False)
    assert "--association" in kaido("release", "--session", "1", "--grace", "5", check=False)
    assert kaido("log") == "info"
    assert "is not a log filter" in kaido("log", "loud", check=False)
    assert kaido("log", "info,kaido_pfcp=debug") == "info,kaido_pfcp=debug"
    assert "new sessions are refused" in kaido("drain")
    assert ask(serving.socket, "GET", "/v1/user-plane")[1]["draining"] is True
    assert "taken again" in kaido("drain", "--stop")
    assert ask(serving.socket, "GET", "/v1/user-plane")[1]["draining"] is False
    log = serving.log.read_text()
    assert re.search(r"audit.*who=.?user 0, process \d+.*what=.?release_session", log), log
    sim.stop()


@pytest.mark.needs("root", "ip", "curl", "openssl")
def test_who_asks_over_tls_is_known_and_what_they_do_is_logged(
    binary: Path, net: Topology, tmp_path: Path
) -> None:
    """By a token or a certificate; both, and those of the node, can change while it runs."""
    authority = Authority(tmp_path)
    server = ("-addext", "subjectAltName=IP:10.100.4.1", *LEAF)
    certificate, key = authority.issue("node", *server)
    client, client_key = authority.issue("grafana", *LEAF)
    tokens = tmp_path / "tokens"

    def token(*arguments: str) -> str:
        return run(str(binary), "token", *arguments, "--file", str(tokens)).stdout.strip()

    alice, bob = token("alice", "--role", "operate"), token("bob")
    with tokens.open("a") as file:
        file.write(f"grafana watch certificate:{authority.fingerprint(client)}\n")
    api = (
        f'[api]\nlisten = "10.100.4.1"\ntokens = "{tokens}"\ntls_certificate = "{certificate}"\n'
        f'tls_key = "{key}"\nclient_ca = "{authority.certificate}"\n'
    )
    node = Node(binary, net.upf, tmp_path, driver="af_packet", more=api).start()
    try:

        def status(path: str, *arguments: str) -> str:
            told = ("--silent", "--output", "/dev/null", "--write-out", "%{http_code}")
            trusts = ("--cacert", str(authority.certificate))
            url = f"https://10.100.4.1:9106{path}"
            return net.ran.run("curl", *told, *trusts, *arguments, url, check=False).stdout

        def shows(who: str) -> tuple[str, str]:
            return "--header", f"Authorization: Bearer {who}"

        assert status("/healthz") == "200"
        assert status("/v1/node") == "401"
        assert status("/v1/node", *shows("guess")) == "401"
        assert status("/v1/sessions", *shows(bob)) == "200"
        assert status("/v1/reload", *shows(bob), "--json", "{}") == "403"
        assert status("/v1/reload", *shows(alice), "--json", "{}") == "200"
        certified = ("--cert", str(client), "--key", str(client_key))
        assert status("/metrics", *certified) == "200"
        assert status("/v1/sessions", *certified) == "403"
        plain = net.ran.run("curl", "--silent", "http://10.100.4.1:9106/healthz", check=False)
        assert plain.returncode != 0
        log = node.log.read_text()
        assert re.search(r"audit.*who=.?alice at 10\.100\.4\.2:\d+.*what=.?reload.*outcome=.?done", log), log
        assert re.search(r"a request was refused.*who=.?bob at .*path=.?/v1/reload", log), log
        assert alice not in log
        # Who is taken away, and what is renewed.
        token("bob", "--remove")
        wait_until(lambda: status("/v1/sessions", *shows(bob)) == "401", "bob is known no more")
        run("openssl", "x509", "-in", str(certificate), "-noout", "-serial")
        before = certificate.read_text()
        authority.issue("node", *server)
        assert certificate.read_text() != before
        presented = ("openssl", "s_client", "-connect", "10.100.4.1:9106", "-showcerts")
        body = "".join(certificate.read_text().split("-----")[2].split())

        def is_renewed() -> bool:
            told = net.ran.run(
                "sh", "-c", f"{' '.join(presented)} </dev/null 2>/dev/null", check=False
            ).stdout
            return body in "".join(told.split())

        wait_until(is_renewed, "the new certificate is presented")
        assert status("/v1/node", *shows(alice)) == "200"
    finally:
        node.stop()


def test_a_socket_that_could_be_overheard_is_refused(binary: Path, tmp_path: Path) -> None:
    """`kaido check` says where, and how to mend it."""
    file = tmp_path / "kaido.toml"
    file.write_text(
        'function = "gre"\n[[port]]\nname = "a"\ndriver = "af_packet"\ninterface = "a"\npeer_port = "a"\n'
        '[api]\nlisten = "0.0.0.0"\ntokens = "/etc/kaido/tokens"\n'
    )
    done = run(str(binary), "check", "-c", str(file), check=False)
    assert done.returncode != 0
    assert "without TLS tokens can be read on the way" in done.stderr
    assert "tls_certificate" in done.stderr


def niceness(node: Node) -> dict[str, int]:
    """The nice values of a node's threads, by their names."""
    assert node.process is not None
    stats = [task.read_text() for task in Path(f"/proc/{node.process.pid}/task").glob("*/stat")]
    of_threads = (re.fullmatch(r"\d+ \((.*)\) \w (?:-?\d+ ){15}(-?\d+) .*\n", stat) for stat in stats)
    return {thread[1]: int(thread[2]) for thread in of_threads if thread}


#: Connections that say nothing, or only half of what they want.
IDLE = 2000


@pytest.mark.needs("root", "ip", "ping")
def test_clients_that_mean_no_good_are_felt_by_nobody(serving: Node, net: Topology, attach: Attach) -> None:
    """Idle, slow and wrong ones, by the thousand; traffic, PFCP and questions go on, and memory stays."""
    attach("--ues 1 --tuns 1")
    assert serving.process is not None
    resident = Path(f"/proc/{serving.process.pid}/statm")
    before = int(resident.read_text().split()[1])
    assert niceness(serving)["http"] == 10, "PFCP and packets go before clients"
    wrong = [
        b"GET /v1/../../etc/shadow HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /v1/reload HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET ",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5000,
        b"GET /" + b"a" * 100_000,
        b"\x16\x03\x01" + b"\x00" * 512,
        b"GET /v1/sessions?limit=10000 HTTP/1.1\r\nHost: a\r\n\r\n" * 50,
    ]
    idle: list[socket.socket] = []
    began = time.monotonic()
    for number in range(IDLE):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(1)
        with contextlib.suppress(OSError):
            client.connect(str(serving.socket))
            client.sendall(wrong[number % len(wrong)] if number % 3 else b"GET /v1/no")
        idle.append(client)
        if number % 500 == 0:
            assert net.ran.pings("10.100.6.2", "-I", "ue0")
            assert serving.ask("status") is not None
    assert time.monotonic() - began < 120
    assert net.ran.pings("10.100.6.2", "-I", "ue0")
    answer = serving.ask("sessions")
    assert answer is not None
    assert answer["total"] == 1
    grown = (int(resident.read_text().split()[1]) - before) * os.sysconf("SC_PAGE_SIZE")
    assert grown < 64 << 20, f"{grown} octets more"
    for client in idle:
        client.close()

    def descriptors() -> int:
        return len(list(Path(f"/proc/{serving.process.pid}/fd").iterdir()))  # type: ignore[union-attr]

    wait_until(lambda: descriptors() < 150, "connections are closed")
    answered = Control(serving.socket)
    answered.request("GET", "/healthz")
    assert answered.getresponse().status == 200


def test_the_document_is_that_of_the_code(binary: Path) -> None:
    """It is printed without a node, for all functions."""
    document = json.loads(run(str(binary), "reference", "--openapi").stdout)
    validate(document)
    assert {"/v1/gre", "/v1/ndn", "/v1/vxlan", "/v1/sessions/{seid}"} <= document["paths"].keys()
    told = (ROOT / "docs" / "api.md").read_text()
    missing = [path for path in document["paths"] if f"`{path}`" not in told]
    assert not missing, f"docs/api.md does not have {missing}"
    assert "crate::" not in json.dumps(document), "a sentence leads into the code"
