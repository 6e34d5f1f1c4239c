"""A server in a namespace that takes down what it is sent: a module of the rig in a process of its own.

The module is run with ADDRESS PORT FILE [CERTIFICATE KEY], and writes ``ready`` once it listens. Each request
is a line of JSON in FILE, with the status that it was answered with. ``FILE.status`` says how to answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from rig.net import Namespace


@dataclass
class Recorder:
    """One in a namespace."""

    #: The module, and how the name of the file begins.
    MODULE: ClassVar[str]
    FILE: ClassVar[str]

    space: Namespace
    folder: Path
    address: str = "127.0.0.1"
    port: int = 0
    tls: tuple[Path, Path] | None = None
    process: subprocess.Popen[str] | None = None
    file: Path = field(init=False)

    def __post_init__(self) -> None:
        """Name the file of its requests."""
        self.file = self.folder / f"{self.FILE}-{self.port}"

    def start(self) -> Self:
        """Start it, and wait until it listens."""
        files = [str(file) for file in self.tls or ()]
        command = (sys.executable, "-m", self.MODULE, self.address, str(self.port), str(self.file), *files)
        written = self.folder / f"{self.MODULE}.log"
        with written.open("a") as log:
            self.process = self.space.start(*command, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n", written.read_text()
        return self

    def stop(self) -> None:
        """End it: whoever sends is refused from here on."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(timeout=10)

    def answer(self, status: str) -> None:
        """Have it answer so."""
        self.file.with_name(self.file.name + ".status").write_text(status)

    def requests(self, status: str | None = None) -> list[dict[str, Any]]:
        """What came, of which it answered so."""
        if not self.file.exists():
            return []
        lines = [json.loads(line) for line in self.file.read_text().splitlines() if line.endswith("}")]
        return [line for line in lines if status is None or line["status"] == status]
