"""The page of a node in a real browser: what it shows, on screens of any size, to everybody."""

from __future__ import annotations

import gzip
import importlib.resources
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import Attach
from rig import browser, firefox
from rig.browser import Browser
from rig.gre import Remover, Wire
from rig.http import ask, by_tcp
from rig.net import Namespace, Topology, run, wait_until
from rig.node import Node
from test_ndn_node import Router
from test_vxlan import PEER, PEER_INNER, VNI, Endpoint, Segment

#: A telephone, a notebook, and a screen of 4k: width, height, and whether it is dark.
SCREENS = {"narrow": (320, 640, False), "dark": (1280, 800, True), "wide": (3840, 2160, False)}
PAGES = {
    "overview": "Overview",
    "ports": "Ports",
    "drops": "Drops",
    "sessions": "Sessions",
    "peers": "Control planes",
    "trace": "Trace",
    "operate": "Operate",
    "bench": "Bench results",
}
FUNCTIONS = {
    "gre": "GRE",
    "ndn": "NDN",
    "faces": "Faces",
    "fib": "FIB",
    "strategies": "Strategies",
    "pit": "PIT",
    "cs": "Content Store",
    "vxlan": "VXLAN",
    "routes": "Routes",
    "neighbours": "Neighbours",
}
MICRO = ("--sessions=1,100", "--frames=128", "--rounds=2", "--packets=512", "--soak=1000")
#: Rules of WCAG 2 that software can judge.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]


@pytest.fixture
def serving(binary: Path, net: Topology, tmp_path: Path) -> Iterator[Node]:
    """A user plane."""
    running = Node(binary, net.upf, tmp_path, driver="af_packet").start()
    yield running
    if not running.ended():
        running.stop()


@pytest.fixture
def shown(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Browser]:
    """A browser, where there is one: Chromium, or the one that the test names."""
    is_firefox = getattr(request, "param", "chromium") == "firefox"
    absent = firefox.missing() if is_firefox else browser.missing()
    if absent:
        pytest.skip(absent)
    start = firefox.firefox if is_firefox else browser.browser
    with start(tmp_path / "profile") as driven:
        yield driven


#: For tests that are run in both.
in_both = pytest.mark.parametrize("shown", ["chromium", "firefox"], indirect=True)


@pytest.fixture
def router(binary: Path, tmp_path: Path) -> Iterator[Router]:
    """An NDN router."""
    running = Router(binary, tmp_path, workers=2).start()
    yield running
    running.stop()


@contextmanager
def carried(space: Namespace, folder: Path, port: int) -> Iterator[str]:
    """The address of what listens on a namespace's loopback."""
    socket = folder / "carried.sock"
    space.start(sys.executable, "-m", "rig.http", str(socket), "127.0.0.1", str(port))
    wait_until(socket.exists, f"port {port} can be reached")
    with by_tcp(socket) as url:
        yield url


def until(shown: Browser, script: str, what: str, seconds: float = 60) -> Any:
    """Wait until a script of the page returns something."""
    deadline = time.monotonic() + seconds
    while not (found := shown.run(script)):
        assert time.monotonic() < deadline, f"{what}: {shown.run('return document.body.innerText')}"
        time.sleep(0.1)
    return found


def text_has(shown: Browser, wanted: str) -> None:
    """Wait until the page shows a text."""
    until(shown, f"return document.body.innerText.includes({wanted!r})", f"no {wanted!r}")


def go(shown: Browser, hash_: str, heading: str) -> None:
    """Go to a page of it."""
    shown.run(f"location.hash = {hash_!r}")
    until(shown, f"return document.querySelector('main h2')?.innerText.startsWith({heading!r})", hash_)


def accessible(shown: Browser, name: str) -> None:
    """No rule of WCAG that axe knows is broken, and nothing is wider than the screen."""
    axe = importlib.resources.files("axe_core_python").joinpath("axe.min.js").read_text()
    shown.inject(axe)
    rules = f"{{runOnly: {{type: 'tag', values: {RULES}}}}}"
    found = shown.later(
        f"const told = await axe.run(document, {rules});"
        "return told.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(' ')}`);"
    )
    assert found == [], f"{name}: {found}"
    wide = shown.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"{name} is {wide} px wider than the screen"


def test_it_is_small() -> None:
    """All of its files, as they are sent to who accepts gzip."""
    files = (Path(__file__).resolve().parents[2] / "ui").iterdir()
    assert sum(len(gzip.compress(file.read_bytes())) for file in files) < 300_000


@pytest.mark.needs("root", "ip", "ping")
@pytest.mark.parametrize(
    ("screen", "shown"),
    [*((screen, "chromium") for screen in SCREENS), ("dark", "firefox")],
    indirect=["shown"],
)
def test_every_page_is_for_everybody(
    serving: Node, net: Topology, attach: Attach, shown: Browser, tmp_path: Path, screen: str
) -> None:
    """On any screen, by keyboard, and as axe judges."""
    width, height, dark = SCREENS[screen]
    attach("--ues 60 --tuns 1 --dialect free5gc")
    folder = Path(os.environ.get("KAIDO_SCREENSHOTS", tmp_path))
    with by_tcp(serving.socket) as url:
        shown.open(f"{url}/", width, height, dark)
        text_has(shown, "All ports are up")
        assert net.ran.pings("10.100.6.2", "-I", "ue0")
        scheme = shown.run("return document.documentElement.dataset.scheme")
        assert scheme == ("dark" if dark else "light")
        for name, heading in PAGES.items():
            go(shown, f"#{name}", heading)
            accessible(shown, name)
            shown.screenshot(folder / f"{type(shown).__name__}-{screen}-{name}.png", whole=True)
        go(shown, "#sessions", "Sessions")
        assert shown.run("return document.querySelectorAll('tbody tr').length") == 50
        text_has(shown, "60 sessions")
        seid = shown.run(
            "const link = document.querySelector('tbody a'); link.click(); return link.innerText"
        )
        until(shown, "return document.querySelector('svg.rules')", "no picture of the rules")
        assert seid in shown.run("return document.querySelector('h2').innerText")
        drawn = shown.run("return document.querySelector('svg.rules').textContent")
        assert all(rule in drawn for rule in ("PDR 1", "PDR 2", "FAR 1", "FAR 2", "QER 1", "URR 1")), drawn
        assert shown.run("return document.querySelectorAll('svg.rules .link').length") >= 6
        accessible(shown, "session")
        shown.screenshot(folder / f"{type(shown).__name__}-{screen}-session.png", whole=True)


@contextmanager
def functions(binary: Path, folder: Path) -> Iterator[tuple[Endpoint, Segment, Router]]:
    """A VXLAN endpoint, a GRE header remover and an NDN router in one node; its hosts and applications."""
    applications = Router(binary, folder, "ndn")
    gre = "\n".join(
        f'[[port]]\nname = "{name}"\nfunction = "gre"\ndriver = "af_packet"\n'
        f'interface = "{name}"\npeer_port = "{other}"'
        for name, other in (("k0", "k1"), ("k1", "k0"))
    )
    ndn = f'[ndn.listen]\nunix = "{applications.unix}"\nudp = []\ntcp = []\nmulticast = []'
    with Segment(f"kw{os.getpid()}-") as hosts:
        node = Endpoint(
            binary,
            hosts.node,
            folder,
            "af_packet",
            functions='["vxlan", "gre", "ndn"]',
            own='function = "vxlan"\n',
            more=f"{gre}\n{ndn}",
        )
        node.start()
        try:
            yield node, hosts, applications
        finally:
            applications.stop()
            node.stop()


@pytest.mark.needs("root", "ip", "ethtool", "ping")
@pytest.mark.parametrize("screen", SCREENS)
def test_pages_of_functions_are_for_everybody(
    binary: Path, shown: Browser, tmp_path: Path, screen: str
) -> None:
    """On any screen, with something in their tables, and as axe judges."""
    width, height, dark = SCREENS[screen]
    folder = Path(os.environ.get("KAIDO_SCREENSHOTS", tmp_path))
    content = tmp_path / "content"
    content.write_bytes(os.urandom(300_000))
    with functions(binary, tmp_path) as (node, hosts, applications), by_tcp(node.socket) as url:
        applications.background("put", "/site/content/of/a/name/that/is/long", str(content))
        applications.ndn("cat", "/site/content/of/a/name/that/is/long", "-o", str(tmp_path / "fetched"))
        shown.open(f"{url}/", width, height, dark)
        text_has(shown, "All ports are up")
        hosts.host.run("ping", "-c", "3", "-i", "0.2", "-W", "1", PEER_INNER, check=False)
        for name, heading in FUNCTIONS.items():
            go(shown, f"#{name}", heading)
            accessible(shown, name)
            shown.screenshot(folder / f"{screen}-{name}.png", whole=True)
        go(shown, "#fib?q=/site", "FIB")
        shown.run("document.querySelector('tbody a').click()")
        text_has(shown, "Prefixes that lead there")
        accessible(shown, "face")
        shown.screenshot(folder / f"{screen}-face.png", whole=True)


@pytest.mark.needs("root", "ip", "ethtool", "ping")
def test_a_segment_is_followed_to_its_neighbour(binary: Path, shown: Browser, tmp_path: Path) -> None:
    """Frames are counted while they come; route and neighbour of the other endpoint are a link away."""
    with functions(binary, tmp_path) as (node, hosts, _), by_tcp(node.socket) as url:
        shown.open(f"{url}/#vxlan", 1280, 800, False)
        text_has(shown, f"{VNI}")
        frames = "Number(document.querySelectorAll('tbody td')[4].innerText)"
        before = shown.run(f"return {frames}")
        # Nobody answers: each request for the address is a frame to the other endpoint.
        hosts.host.run("ping", "-c", "3", "-W", "1", PEER_INNER, check=False)
        until(shown, f"return {frames} >= {before} + 2", "no frame is counted")
        shown.run("document.querySelector('tbody a').click()")
        text_has(shown, "192.0.2.0/24")
        assert shown.run("return document.getElementById('wanted').value") == PEER[4]
        # Each function of the node mirrors the routes, and has ports of its own.
        rows = shown.run(
            "return [...document.querySelectorAll('tbody tr')].map("
            "(row) => [...row.cells].map((cell) => cell.innerText))"
        )
        (used,) = (row for row in rows if row[-1] == "vxlan")
        assert used[1:3] == ["under", "on-link"], rows
        assert used[4] == "yes", rows
        shown.run("document.querySelector('nav.beside a[href^=\"#neighbours\"]').click()")
        text_has(shown, "1 neighbour")
        found = shown.run("return document.querySelector('tbody tr').innerText")
        assert PEER[4] in found and "under" in found, found
        for wanted, told in (("192.0.2.300", "invalid IP address syntax"), ("nowhere", "none is found")):
            shown.run(f"location.hash = '#neighbours?q={wanted}'")
            text_has(shown, told)


def test_tables_of_a_router_are_searched(
    binary: Path, router: Router, shown: Browser, tmp_path: Path
) -> None:
    """Prefixes, faces with what goes through them now, Interests that wait, Data that is kept."""
    content = tmp_path / "content"
    content.write_bytes(os.urandom(1_000_000))
    router.background("put", "/site/content", str(content), "--fresh", "3600")
    for _ in range(2):
        router.ndn("cat", "/site/content", "-o", str(tmp_path / "fetched"))
    # Somebody who does not answer.
    silent = socket.create_server(("127.0.0.1", 0))
    remote = f"tcp4://127.0.0.1:{silent.getsockname()[1]}"
    router.ndn("route", "add", "/silent", remote, "--cost", "7")
    router.ndn("strategy", "set", "/far", "asf")
    text = "return document.querySelector('main').innerText"
    with by_tcp(router.control) as url:
        shown.open(f"{url}/#ndn", 1280, 800, False)
        until(
            shown,
            f"return /Content Store hits\\s+[1-9]/.test((() => {{ {text} }})())",
            "no hit ratio",
        )
        shown.run("document.querySelector('nav.beside a[href=\"#fib\"]').click()")
        text_has(shown, "prefixes in all")
        # By the keyboard alone.
        shown.run("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '/', bubbles: true}))")
        assert shown.run("return document.activeElement.id") == "wanted"
        shown.run("document.activeElement.value = '/silent'; document.activeElement.form.requestSubmit()")
        # All of them were there before.
        until(shown, f"return !(() => {{ {text} }})().includes('/site')", "others are listed still")
        text_has(shown, "(cost 7)")
        shown.run("document.querySelector('tbody a').click()")
        text_has(shown, remote)
        asking = [str(binary), "ndn", "--router", f"unix://{router.unix}", "peek", "--lifetime", "60"]
        waiting = subprocess.Popen([*asking, "/silent/one"], stderr=subprocess.DEVNULL)
        try:
            # The first row is of Interests, and its last figure of those that were sent.
            sent = "[...document.querySelectorAll('tbody tr:first-child td')].at(-1).innerText"
            until(
                shown,
                f"return document.querySelector('.wide table') && {sent} !== '0'",
                "no Interest is sent",
            )
            # What the page lists is what there was when it was asked.
            wait_until(
                lambda: "/silent/one" in router.at_socket("pit", "--prefix", "/silent"), "it does not wait"
            )
            go(shown, "#pit?q=/silent", "PIT")
            text_has(shown, "/silent/one")
        finally:
            waiting.terminate()
            waiting.wait(timeout=20)
        go(shown, "#cs?q=/site", "Content Store")
        text_has(shown, "/site/content")
        until(
            shown,
            "return [...document.querySelectorAll('.pager a')].some((one) => one.innerText === 'further')",
            "it is all",
        )
        go(shown, "#strategies", "Strategies")
        text_has(shown, "/localhost/nfd/strategy/asf")
        for page, told in (
            ("fib?q=far", "far"),
            ("face?face=1", "There is no face 1"),
            ("faces?q=nowhere", "none is found"),
        ):
            shown.run(f"location.hash = '#{page}'")
            text_has(shown, told)


@in_both
def test_what_lives_does_not_disturb(router: Router, shown: Browser) -> None:
    """While figures change, focus and how far a table is scrolled stay."""
    with by_tcp(router.control) as url:
        shown.open(f"{url}/#faces", 320, 640, False)
        until(shown, "return document.querySelector('tbody a')", "no face")
        shown.run(
            "document.querySelector('tbody a').focus(); document.querySelector('.wide').scrollLeft = 60"
        )
        left, link, before = shown.run(
            "return [document.querySelector('.wide').scrollLeft, document.activeElement.innerText,"
            "document.querySelector('.wide').innerText]"
        )
        assert left > 0
        # Each command makes a face.
        server = router.background("ping", "/site", "--serve")
        until(shown, f"return document.querySelector('.wide').innerText !== {before!r}", "nothing changes")
        after = "return [document.querySelector('.wide').scrollLeft, document.activeElement.innerText]"
        assert shown.run(after) == [left, link]
        assert server.poll() is None


@in_both
@pytest.mark.needs("root", "ip", "ping")
def test_a_ue_is_found_and_traced(serving: Node, net: Topology, attach: Attach, shown: Browser) -> None:
    """By its address; its packets are shown as they come, and the trace ends with the page."""
    attach("--ues 3 --tuns 1")
    with by_tcp(serving.socket) as url:
        shown.open(f"{url}/#sessions?q=10.60.0.1", 1280, 800, False)
        text_has(shown, "1 session")
        for wanted, told in (("ims", "none is found"), ("10.60.0.300", "invalid IP address syntax")):
            shown.run(f"location.hash = '#sessions?q={wanted}'")
            text_has(shown, told)
        go(shown, "#trace?ue=10.60.0.1", "Trace")
        assert net.ran.pings("10.100.6.2", "-I", "ue0")
        until(shown, "return document.querySelectorAll('.way').length >= 2", "no packets")
        way = shown.run("return document.querySelector('.way').innerText")
        assert "PDR" in way and "FAR" in way, way
        record = "[...document.querySelectorAll('main button')].find((one) => /^Record/.test(one.innerText))"
        shown.run(f"{record}.click()")
        text_has(shown, "recording")
        # Chromium keeps the file to itself; a refusal would stand in the button.
        until(shown, f"return {record}", "it does not end, or was refused", 30)
        go(shown, "#overview", "Overview")
        text_has(shown, "Packets a second")
        # Whose password is it? None is asked for at the control socket.
        assert shown.run("return document.getElementById('login').open") is False


@pytest.fixture(scope="module")
def measured(binary: Path) -> str:
    """What a bench of seconds has written."""
    return run(str(binary), "bench", "micro", *MICRO, "--json", "-", timeout=600).stdout


@in_both
@pytest.mark.needs("root", "ip")
@pytest.mark.xdist_group("results")
def test_results_of_a_bench_are_drawn_and_compared(
    serving: Node, measured: str, shown: Browser, tmp_path: Path
) -> None:
    """One file, two of them, one that is none; and they are there when one comes back."""
    first, second, none = (tmp_path / name for name in ("first.json", "second.json", "none.json"))
    report = json.loads(measured)
    first.write_text(measured)
    for result in report["results"]:
        result.update(ns_per_packet=2 * result["ns_per_packet"], met="not_resolved")
    second.write_text(json.dumps(report))
    none.write_text("sessions: 1")
    rows = (
        "[...document.querySelectorAll('main table')]"
        ".find((one) => one.caption.innerText.startsWith('results:'))"
    )
    cells = (
        f"return [...{rows}.querySelectorAll('tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.innerText))"
    )
    folder = Path(os.environ.get("KAIDO_SCREENSHOTS", tmp_path))
    with by_tcp(serving.socket) as url:
        shown.open(f"{url}/#bench", 1280, 800, False)
        go(shown, "#bench", "Bench results")
        shown.choose(none)
        text_has(shown, "none.json is no result of a bench")
        shown.choose(first)
        until(shown, f"return {rows}", "no results")
        drawn = shown.run(cells)
        assert len(drawn) == len(report["results"])
        told = {(row[0], row[1], row[2]) for row in drawn}
        assert told == {(row["direction"], str(row["sessions"]), row["shape"]) for row in report["results"]}
        assert "none.json" not in shown.run("return document.body.innerText")
        accessible(shown, "bench")
        shown.screenshot(folder / "bench-one.png", whole=True)
        shown.choose(first, second)
        until(shown, f"return {rows}?.innerText.includes('second.json')", "one beside the other")
        assert {row[-1] for row in shown.run(cells)} == {"2"}
        shown.run(
            "const one = document.getElementById('figure-results'); one.value = 'held_ns_per_packet';"
            "one.dispatchEvent(new Event('change'))"
        )
        assert {row[-1] for row in shown.run(cells)} == {"1"}
        accessible(shown, "bench, compared")
        shown.screenshot(folder / "bench-two.png", whole=True)
        go(shown, "#overview", "Overview")
        go(shown, "#bench", "Bench results")
        assert {row[-1] for row in shown.run(cells)} == {"2"}


def press(shown: Browser, label: str, *, sure: bool | None = None, read_s: float = 0) -> None:
    """Press a button of the page; where it asks whether one is sure, read for a time and answer."""
    button = f"[...document.querySelectorAll('main button')].find((one) => one.innerText === {label!r})"
    until(shown, f"return {button}", f"no button {label}")
    shown.run(f"{button}.click()")
    if sure is not None:
        until(shown, "return document.getElementById('confirm').open", "nothing is asked")
        accessible(shown, "confirm")
        time.sleep(read_s)
        at = 0 if sure else 1
        shown.run(f"document.querySelectorAll('#confirm button')[{at}].click()")
        until(shown, "return !document.getElementById('confirm').open", "it stays open")


@pytest.mark.needs("root", "ip")
def test_a_session_and_an_association_are_released(serving: Node, attach: Attach, shown: Browser) -> None:
    """After a question, which may be answered with no; a drain is begun and ended."""
    attach("--ues 3 --tuns 1")
    with by_tcp(serving.socket) as url:
        shown.open(f"{url}/#sessions", 1280, 800, False)
        text_has(shown, "3 sessions")
        shown.run("document.querySelector('tbody a').click()")
        press(shown, "Release session", sure=False)
        assert ask(serving.socket, "GET", "/v1/user-plane")[1]["sessions"] == 3
        press(shown, "Release session", sure=True)
        text_has(shown, "2 sessions")
        go(shown, "#peers", "Control planes")
        press(shown, "Release", sure=True)
        text_has(shown, "was asked to release its association")
        # Whether it has done so by now does not matter to a drain. What the node streams each second comes
        # while the question is read.
        press(shown, "Drain", sure=True, read_s=1.5)
        text_has(shown, "The node is drained")
        assert ask(serving.socket, "GET", "/v1/user-plane")[1]["draining"] is True
        press(shown, "Take new ones again", sure=True)
        until(shown, "return !document.body.innerText.includes('The node is drained')", "still drained")
        assert ask(serving.socket, "GET", "/v1/user-plane")[1]["draining"] is False


@in_both
@pytest.mark.needs("root", "ip")
def test_log_and_configuration_are_changed(serving: Node, shown: Browser) -> None:
    """What cannot be is told as the node tells it, and changes nothing."""
    file = serving.folder / "kaido.toml"
    with by_tcp(serving.socket) as url:
        shown.open(f"{url}/#operate", 1280, 800, False)
        for level, told in (("loud", "loud"), ("info,kaido_pfcp=debug", "kaido_pfcp=debug is logged")):
            until(shown, "return document.getElementById('level')", "no field")
            shown.run(
                f"document.getElementById('level').value = {level!r};"
                "document.querySelector('main form').requestSubmit();"
            )
            until(
                shown,
                f"return [...document.querySelectorAll('.told')].some((p) => p.innerText.includes({told!r}))",
                told,
            )
        press(shown, "Read the file")
        text_has(shown, "nothing differs")
        before = file.read_text()
        file.write_text(before.replace("sessions_max = 4096", "sessions_max = 8192"))
        press(shown, "Read the file")
        text_has(shown, "node.sessions_max")
        assert "Take it" not in shown.run("return document.querySelector('main').innerText")
        file.write_text(before.replace("heartbeat_interval_s = 2", "heartbeat_interval_s = 5"))
        press(shown, "Read the file")
        text_has(shown, "pfcp.heartbeat_interval_s")
        press(shown, "Take it", sure=True)
        text_has(shown, "1 field has changed")
        file.write_text("[node")
        press(shown, "Read the file")
        until(shown, "return document.querySelector('.told.bad')?.innerText", "a file that is none is taken")


@pytest.mark.needs("root", "ip")
def test_who_may_only_watch_is_offered_nothing_else(
    binary: Path, net: Topology, tmp_path: Path, shown: Browser
) -> None:
    """As at the metrics endpoint, where nobody is known: no session, no trace, no button."""
    more = '[metrics]\nlisten = "127.0.0.1"\n'
    node = Node(binary, net.upf, tmp_path, driver="af_packet", more=more).start()
    try:
        with carried(net.upf, tmp_path, 9105) as url:
            shown.open(f"{url}/#peers", 1280, 800, False)
            text_has(shown, "Control planes with an association")
            pages = shown.run("return [...document.querySelectorAll('nav a')].map((one) => one.innerText)")
            assert pages == ["Overview", "Ports", "Drops", "Control planes", "Bench"]
            assert shown.run("return document.querySelectorAll('main button').length") == 0
    finally:
        node.stop()


@in_both
@pytest.mark.needs("root", "ip")
def test_a_token_is_asked_for_where_one_is_needed(binary: Path, tmp_path: Path, shown: Browser) -> None:
    """A wrong one is told to be; with the right one the page of that function is there."""
    tokens = tmp_path / "tokens"
    token = run(str(binary), "token", "alice", "--file", str(tokens)).stdout.strip()
    with Wire(f"kp{os.getpid()}-") as wire:
        rules = f'[api]\nlisten = "127.0.0.1"\ntokens = "{tokens}"\n'
        rules += '[[gre.rule]]\nname = "ours"\nsource = "10.0.0.0/8"\n'
        node = Remover(binary, wire.node, tmp_path, "af_packet", rules=rules)
        node.start()
        try:
            with carried(wire.node, tmp_path, 9106) as url:
                shown.open(f"{url}/", 1280, 800, False)
                until(shown, "return document.getElementById('login')?.open", "nobody asks for a token")
                accessible(shown, "login")
                for typed in ("wrong", token):
                    fault = "return document.getElementById('login-fault').innerText"
                    before = shown.run(fault)
                    shown.run(
                        f"document.getElementById('token').value = {typed!r};"
                        "document.querySelector('#login form').requestSubmit();"
                    )
                    if typed == "wrong":
                        until(
                            shown,
                            f"const told = (() => {{ {fault} }})(); return told !== {before!r} && told",
                            "no fault",
                        )
                text_has(shown, "All ports are up")
                go(shown, "#gre", "GRE")
                text_has(shown, "ours")
                assert "Sessions" not in shown.run("return document.querySelector('nav').innerText")
        finally:
            node.stop()
