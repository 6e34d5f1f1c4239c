"""What IPFIX collectors make of a node's messages: nfdump, unpacked from Debian's package, and tshark."""

from __future__ import annotations

import json
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import wrpcap

from rig.net import Namespace, run, wait_until
from rig.prometheus import program

Record = dict[str, Any]


@dataclass
class Nfcapd:
    """nfdump's collector in a namespace."""

    space: Namespace
    folder: Path
    port: int = 4739
    process: subprocess.Popen[str] | None = None

    def start(self) -> Nfcapd:
        """Start it, and wait until it listens."""
        self.folder.mkdir()
        log = (self.folder.parent / "nfcapd.log").open("w")
        command = (str(program("nfcapd")), "-w", str(self.folder), "-p", str(self.port), "-b", "127.0.0.1")
        self.process = self.space.start(*command, "-t", "3600", stdout=log, stderr=log)
        wait_until(lambda: f":{self.port} " in self.space.run("ss", "-Hlun").stdout, "nfcapd does not listen")
        return self

    def stop(self) -> list[Record]:
        """End it, and read what it has written."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)
        done = run(str(program("nfdump")), "-R", str(self.folder), "-o", "json", "-q")
        decoder, text, records = json.JSONDecoder(), done.stdout.strip(), []
        while text:
            record, end = decoder.raw_decode(text)
            records.append(record)
            text = text[end:].lstrip(" \n,")
        return records


@dataclass
class Listener:
    """A socket that takes messages in for tshark."""

    space: Namespace
    port: int = 4740
    messages: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Listen."""
        self.socket = self.space.socket("127.0.0.1", self.port)
        self.socket.setblocking(False)

    def hear(self) -> int:
        """Take in what has come; how many messages there are."""
        while True:
            try:
                self.messages.append(self.socket.recv(2000))
            except BlockingIOError:
                return len(self.messages)

    def read(self, file: Path, *fields: str) -> list[list[str]]:
        """Fields of each message as tshark reads them; what it finds fault with is an error."""
        self.hear()
        header = Ether() / IP(src="127.0.0.1", dst="127.0.0.1") / UDP(sport=9, dport=self.port)
        wrpcap(str(file), [header / Raw(message) for message in self.messages])
        command = ("tshark", "-r", str(file), "-d", f"udp.port=={self.port},cflow")
        wrong = run(*command, "-Y", "_ws.malformed || _ws.expert || !cflow", "-V").stdout
        assert wrong == "", wrong
        wanted = [part for name in fields for part in ("-e", name)]
        lines = run(*command, "-T", "fields", *wanted).stdout.splitlines()
        return [line.split("\t") for line in lines]
