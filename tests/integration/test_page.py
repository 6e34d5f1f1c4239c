"""The page of a node in a real browser: what it shows, on screens of any size, to everybody."""

from __future__ import annotations

import importlib.resources
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import Attach
from rig import browser
from rig.browser import Browser
from rig.gre import Remover, Wire
from rig.http import ask, by_tcp
from rig.net import Namespace, Topology, run, wait_until
from rig.node import Node

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
}
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
def shown(tmp_path: Path) -> Iterator[Browser]:
    """A browser, where there is one."""
    absent = browser.missing()
    if absent:
        pytest.skip(absent)
    with browser.browser(tmp_path / "profile") as driven:
        yield driven


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
    shown.cdp("Runtime.evaluate", expression=axe)
    rules = f"{{runOnly: {{type: 'tag', values: {RULES}}}}}"
    found = shown.later(
        f"const told = await axe.run(document, {rules});"
        "return told.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(' ')}`);"
    )
    assert found == [], f"{name}: {found}"
    wide = shown.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"{name} is {wide} px wider than the screen"


@pytest.mark.needs("root", "ip", "ping")
@pytest.mark.parametrize("screen", SCREENS)
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
            shown.screenshot(folder / f"{screen}-{name}.png", whole=True)
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
        shown.screenshot(folder / f"{screen}-session.png", whole=True)


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
            assert pages == ["Overview", "Ports", "Drops", "Control planes"]
            assert shown.run("return document.querySelectorAll('main button').length") == 0
    finally:
        node.stop()


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
