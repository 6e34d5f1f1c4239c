"""What an operator has at a terminal: a first configuration, completions, the manual."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from conftest import Attach
from rig.net import Topology, run, wait_until

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
        wait_until(lambda: socket.exists() or node.poll() is not None, "the node runs")
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
