"""The log in systemd's journal: entries with level and fields, by the journal's own protocol."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig.net import Topology, wait_until
from rig.node import Node

pytestmark = pytest.mark.needs("root", "ip", "unshare")

WARNING, INFO = "4", "6"


class Journal:
    """What journald would read, at a socket of its kind."""

    def __init__(self, folder: Path) -> None:
        """Listen in a folder, which a program has in the place of the journal's."""
        folder.mkdir()
        self.folder = folder
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(folder / "socket"))
        self.socket.setblocking(False)
        self.entries: list[dict[str, str]] = []

    def read(self) -> list[dict[str, str]]:
        """All entries so far (systemd.io/JOURNAL_NATIVE_PROTOCOL)."""
        while True:
            try:
                datagram = self.socket.recv(65536)
            except BlockingIOError:
                return self.entries
            entry: dict[str, str] = {}
            while datagram:
                line, _, datagram = datagram.partition(b"\n")
                name, equals, value = line.partition(b"=")
                if not equals:
                    length = int.from_bytes(datagram[:8], "little")
                    value, datagram = datagram[8 : 8 + length], datagram[9 + length :]
                entry[name.decode()] = value.decode()
            if entry:
                self.entries.append(entry)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """A journal of this test."""
    made = Journal(tmp_path / "journal")
    yield made
    made.socket.close()


def start(node: Node, journal: Journal, stream: str) -> None:
    """Start a node that finds the journal's socket, and whose stderr is said to be such a file."""
    file = node.folder / "kaido.toml"
    file.write_text(node.config)
    there = "/run/systemd/journal"
    script = f'mkdir -p {there} && mount --bind {journal.folder} {there} && exec "$@"'
    command = ("unshare", "--mount", "sh", "-c", script, "sh", str(node.binary), "run", "-c", str(file))
    with node.log.open("a") as log:
        environment = os.environ | {"JOURNAL_STREAM": stream}
        node.process = node.space.start(*command, stdout=log, stderr=log, env=environment)
    wait_until(lambda: node.ended() or node.ask("status") is not None, "the node answers")
    assert not node.ended(), node.log.read_text()


def test_entries_have_level_and_fields(binary: Path, net: Topology, tmp_path: Path, journal: Journal) -> None:
    """Nothing goes to stderr, where it would be a second time in the journal."""
    node = Node(binary, net.upf, tmp_path, driver="af_packet")
    node.log.touch()
    of = node.log.stat()
    start(node, journal, f"{of.st_dev}:{of.st_ino}")
    assert node.stop() == 0
    assert node.log.read_text() == ""
    entries = journal.read()
    (runs,) = [entry for entry in entries if entry["MESSAGE"].startswith("the user plane runs ")]
    assert 'node_id="10.100.4.1"' in runs["MESSAGE"], "journalctl shows nothing else"
    assert (runs["PRIORITY"], runs["SYSLOG_IDENTIFIER"]) == (INFO, "kaido")
    assert (runs["KAIDO_PORTS"], runs["KAIDO_NODE_ID"]) == ("2", "10.100.4.1")
    warned = [entry["MESSAGE"] for entry in entries if entry["PRIORITY"] == WARNING]
    assert any("pfcp.allow is empty" in message for message in warned)


def test_a_log_that_leads_elsewhere_stays_there(
    binary: Path, net: Topology, tmp_path: Path, journal: Journal
) -> None:
    """A service whose stderr was sent to a file has the journal's variable, too."""
    node = Node(binary, net.upf, tmp_path, driver="af_packet")
    start(node, journal, "8:4711")
    assert node.stop() == 0
    assert "the user plane runs" in node.log.read_text()
    assert journal.read() == []
