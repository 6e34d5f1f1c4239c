"""What an operator has at a terminal: a first configuration, completions, the manual."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from pathlib import Path

import pyte
import pytest
from conftest import Attach
from rig.ndn import Router
from rig.net import Namespace, Topology, run, wait_until
from rig.node import Node

ANSWERS = ("--n3", "n3", "--n6", "n6", "--n4", "10.100.4.1", "--smf", "10.100.4.0/24", "--dnn", "internet")


@pytest.mark.needs("root", "ip", "ethtool", "ping")
def test_a_first_configuration_carries_traffic(
    binary: Path, net: Topology, tmp_path: Path, attach: Attach
) -> None:
    """As it is written, but for where the test lets it write."""
    file = tmp_path / "etc" / "kaido.toml"
    written = net.upf.run(str(binary), "init", "upf", *ANSWERS, "--output", str(file))
    assert f"{file}: written and good: 2 ports, up to 65536 sessions" in written.stdout
    assert "tell the SMF, where it asks for it, that N3 is 10.100.3.1" in written.stdout
    again = net.upf.run(str(binary), "init", "upf", *ANSWERS, "--output", str(file), check=False)
    assert again.returncode != 0
    assert "--force replaces it" in again.stderr
    net.upf.run(str(binary), "init", "upf", *ANSWERS, "--output", str(file), "--force")
    text = file.read_text()
    assert text == (tmp_path / "etc" / "kaido.toml.before").read_text()
    folders = f'folder = "{tmp_path}/store"\nmemory = "{tmp_path}/memory"\n'
    socket = tmp_path / "kaido.sock"
    text = text.replace("[store]\n", f"[store]\n{folders}") + f'\n[control]\nsocket = "{socket}"\n'
    file.write_text(text)
    log = tmp_path / "init.log"
    with log.open("w") as to:
        node = net.upf.start(str(binary), "run", "-c", str(file), stdout=to, stderr=to)
    try:
        status = (str(binary), "status", "--socket", str(socket))
        wait_until(
            lambda: node.poll() is not None or run(*status, check=False).returncode == 0,
            "the node does not answer",
        )
        assert node.poll() is None, log.read_text()
        sim = attach("--ues 2 --tuns 1")
        assert net.ran.pings("10.100.6.2", "-I", "ue0")
        sim.stop()
        assert "127.0.0.1:9105" in net.upf.run("ss", "-Hltn").stdout
    finally:
        node.terminate()
        node.wait(timeout=60)
    assert node.returncode == 0, log.read_text()


@pytest.mark.needs("root", "ip")
def test_questions_are_answered_line_by_line(binary: Path, net: Topology, tmp_path: Path) -> None:
    """With what is proposed, a mistake on the way, and an end before the last answer."""
    file = tmp_path / "kaido.toml"
    init = f"{binary} init upf --output {file}"
    done = net.upf.run("sh", "-c", f"printf 'eth9\\nn3\\nn6\\n10.100.4.1\\n\\nims\\n' | {init}")
    assert 'there is no interface "eth9"; there are' in done.stderr
    assert "Prefixes of the SMFs that may make sessions [10.100.4.0/24]:" in done.stderr
    assert 'network_instance = "ims"' in file.read_text()
    done = net.upf.run("sh", "-c", f"printf 'y\\nn3\\n' | {init}", check=False)
    assert done.returncode != 0
    assert "there is no answer: --n6 gives it too" in done.stderr
    assert 'network_instance = "ims"' in file.read_text(), "the file is as it was"
    gre = ("--tunnels", "n3", "--hosts", "n6", "--sources", "192.0.2.0/24", "--output", "-")
    assert 'source = "192.0.2.0/24"' in net.upf.run(str(binary), "init", "gre", *gre).stdout
    ndn = ("--next-hop", "2001:db8::1", "--defaults", "--output", "-")
    assert "udp6://[2001:db8::1]:6363" in net.upf.run(str(binary), "init", "ndn", *ndn).stdout


class Screen:
    """A program in a terminal of 80 columns and 24 lines."""

    def __init__(self, space: Namespace, *command: str) -> None:
        """Start it."""
        self.here, there = pty.openpty()
        termios.tcsetwinsize(there, (24, 80))
        self.process = space.start(*command, stdin=there, stdout=there, stderr=there)
        os.close(there)
        self.screen = pyte.Screen(80, 24)
        self.stream = pyte.ByteStream(self.screen)

    def shows(self, wanted: str, seconds: float = 20) -> None:
        """Wait until it shows something."""
        deadline = time.monotonic() + seconds
        while not any(wanted in line for line in self.screen.display):
            assert time.monotonic() < deadline, f"no {wanted!r} in\n" + "\n".join(self.screen.display)
            if select.select([self.here], [], [], 0.2)[0]:
                try:
                    self.stream.feed(os.read(self.here, 65536))
                except OSError:
                    time.sleep(0.1)  # It has ended.

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self.here, keys.encode())


@pytest.mark.needs("root", "ip", "ethtool", "ping")
def test_top_shows_a_node_live(binary: Path, net: Topology, tmp_path: Path, attach: Attach) -> None:
    """Ports, drops, sessions, one of them with its rules, and the end of the node."""
    node = Node(binary, net.upf, tmp_path, driver="af_packet").start()
    sim = attach("--ues 3 --tuns 1")
    top = Screen(net.upf, str(binary), "top", "--socket", str(node.socket), "--interval", "0.2")
    top.shows("10.100.4.1")
    top.shows("workers, the time that they are busy")
    assert net.ran.pings("10.100.6.2", "-I", "ue0", "-i", "0.2", count=10)
    top.press("3")
    top.shows("3 of 3 sessions")
    top.shows("10.60.0.1")
    top.press("/10.60.0.2\r")
    top.shows("1 of 1 sessions")
    top.press("\r")
    top.shows("rules as installed")
    top.press("\x1b")
    top.shows("1 of 1 sessions")
    top.press("2")
    top.shows("nothing was dropped")
    sim.stop()
    node.stop(signal.SIGKILL)
    top.shows("cannot reach a node")
    top.press("q")
    assert top.process.wait(timeout=20) == 0


@pytest.mark.needs("root", "ip")
def test_top_lists_the_faces_of_a_router(binary: Path, net: Topology, tmp_path: Path) -> None:
    """With their traffic, one of them with the prefixes that lead there."""
    router = Router(binary, net.upf, tmp_path)
    router.start()
    neighbour = "udp4://10.100.6.2:6363"
    silent = net.dn.socket("10.100.6.2", 6363)
    command = (str(binary), "ndn", "--router", router.transport("unix"))
    net.upf.run(*command, "route", "add", "/far", neighbour, "--cost", "7")
    top = Screen(net.upf, str(binary), "top", "--socket", str(router.socket), "--interval", "0.2")
    top.shows("3 faces")
    top.press("3")
    top.shows(neighbour)
    top.shows("received ▼")
    top.press("/10.100.6.2\r")
    top.shows("1 of 1 faces")
    asks = net.upf.start(*command, "ping", "/far", "--count", "0", "--interval", "0.01", "--lifetime", "0.1")
    top.shows("kbit/s")
    top.press("\r")
    top.shows("persistency       persistent")
    top.shows("/far    7")
    top.press("\x1b")
    top.shows("1 of 1 faces")
    asks.terminate()
    top.press("q")
    assert top.process.wait(timeout=20) == 0
    silent.close()
    assert router.stop() == 0


@pytest.mark.needs("root", "ip", "ethtool", "ping")
def test_top_prints_figures_for_programs(binary: Path, net: Topology, tmp_path: Path, attach: Attach) -> None:
    """A line of JSON an interval; and one message where there is no node."""
    node = Node(binary, net.upf, tmp_path, driver="af_packet").start()
    attach("--ues 1 --tuns 1")
    at = ("top", "--socket", str(node.socket), "--json", "--interval", "0.5", "--count", "6")
    top = net.upf.start(str(binary), *at, stdout=subprocess.PIPE)
    assert net.ran.pings("10.100.6.2", "-I", "ue0", "-i", "0.1", count=30)
    out, _ = top.communicate(timeout=60)
    lines = [json.loads(line) for line in out.splitlines()]
    assert len(lines) == 6
    assert lines[-1]["node_id"] == "10.100.4.1"
    assert {port["name"] for port in lines[0]["ports"]} == {"n3", "n6"}
    assert max(port["rx_packets_per_second"] for line in lines for port in line["ports"]) > 1
    node.stop()
    done = run(str(binary), *at, check=False)
    assert done.returncode != 0
    assert "cannot reach a node" in done.stderr


@pytest.mark.needs("root", "ip", "ethtool")
def test_what_is_shown_can_be_watched(binary: Path, net: Topology, tmp_path: Path, attach: Attach) -> None:
    """In a terminal each look takes the place of the last one; elsewhere one follows the other."""
    node = Node(binary, net.upf, tmp_path, driver="af_packet").start()
    at = ("--socket", str(node.socket), "--watch", "0.2")
    sessions = Screen(net.upf, str(binary), "sessions", *at)
    sessions.shows("seid")
    attach("--ues 1")
    sessions.shows("10.60.0.1")
    assert sum("seid" in line for line in sessions.screen.display) == 1
    sessions.process.send_signal(signal.SIGINT)
    sessions.process.wait(timeout=20)
    for command in (("status",), ("drops",), ("show", "upf")):
        done = run("timeout", "1", str(binary), *command, *at, "--json", check=False)
        if command[0] == "show":
            assert "there is nothing more to show" in " ".join(done.stderr.split())
        else:
            wanted = '"drops"' if command[0] == "drops" else '"version"'
            assert done.stdout.count(wanted) > 1, command
    refused = run(str(binary), "status", "--watch", "0", check=False)
    assert "write seconds from 0.1 to 86400" in refused.stderr


def test_bash_completes_commands_options_and_values(binary: Path, tmp_path: Path) -> None:
    """As bash itself asks for it."""
    script = tmp_path / "kaido.bash"
    script.write_text(run(str(binary), "completions", "bash").stdout)

    def completed(*words: str) -> list[str]:
        asked = " ".join(f"'{word}'" for word in words)
        code = f"""
            source {script}
            COMP_WORDS=(kaido {asked}); COMP_CWORD={len(words)}
            COMP_LINE="kaido {" ".join(words)}"; COMP_POINT=${{#COMP_LINE}}
            _kaido kaido "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}"
            printf '%s\n' "${{COMPREPLY[@]}}"
        """
        return run("bash", "-c", code).stdout.split()

    assert completed("stat") == ["status"]
    assert {"--ue", "--seid", "--socket"} <= set(completed("trace", "--"))
    assert "upf" in completed("init", "u")
    assert completed("bench", "control", "--durability", "d") == ["disk"]


def test_other_shells_have_completions_too(binary: Path) -> None:
    """zsh and fish; a shell that is none is named with those that there are."""
    assert run(str(binary), "completions", "zsh").stdout.startswith("#compdef kaido")
    assert "complete -c kaido" in run(str(binary), "completions", "fish").stdout
    refused = run(str(binary), "completions", "command.com", check=False)
    assert refused.returncode != 0
    assert "bash, elvish, fish, powershell, zsh" in refused.stderr


def test_the_manual_has_a_page_for_each_command(binary: Path, tmp_path: Path) -> None:
    """Each says what the command does, and is named where the pages above it list commands."""
    folder = tmp_path / "man1"
    run(str(binary), "man", str(folder))
    pages = {page.name.removesuffix(".1"): page.read_text() for page in folder.iterdir()}
    assert {"kaido", "kaido-run", "kaido-trace", "kaido-store-repair", "kaido-ndn-face-create"} <= set(pages)
    for name, text in pages.items():
        assert re.search(r"^\.SH NAME$", text, re.MULTILINE), name
        assert len(text.splitlines()) > 5, name
    commands = set(re.findall(r"^kaido\\-([a-z]+)\(1\)$", pages["kaido"], re.MULTILINE))
    assert commands, pages["kaido"]
    assert {f"kaido-{name}" for name in commands if name != "help"} <= set(pages)
    not_there = os.fspath(tmp_path / "file" / "below")
    (tmp_path / "file").write_text("")
    refused = run(str(binary), "man", not_there, check=False)
    assert refused.returncode != 0
    assert f"the manual cannot be written to {not_there}" in " ".join(
        refused.stderr.replace("│", "").split()
    ).replace("/ ", "/")
