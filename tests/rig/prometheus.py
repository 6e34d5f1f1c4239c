"""Real Prometheus and Pushgateway, as Debian has them: run by the tests themselves, never as services."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from rig.net import Namespace, NetError, wait_until

ROOT = Path(__file__).resolve().parents[2]
#: Where scripts/setup unpacks Debian packages whose services must not start.
UNPACKED = ROOT / "target" / "debian" / "usr" / "bin"

Sample = tuple[dict[str, str], float]


def program(name: str) -> Path | None:
    """A program of the packages, installed or unpacked."""
    found = shutil.which(name)
    if found is None and (UNPACKED / name).exists():
        return UNPACKED / name
    return Path(found) if found else None


def fetch(space: Namespace, url: str, *options: str) -> str:
    """What an HTTP server in the namespace answers; an answer that is no success is an error."""
    return space.run("curl", "--silent", "--show-error", "--fail", "--max-time", "10", *options, url).stdout


@dataclass
class Prometheus:
    """Prometheus in a namespace."""

    space: Namespace
    folder: Path
    port: int = 9090

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def start(self, config: str) -> Prometheus:
        """Start it and wait until it is ready."""
        file = self.folder / "prometheus.yml"
        file.write_text(config)
        command = program("prometheus")
        assert command is not None
        log = (self.folder / "prometheus.log").open("w")
        process = self.space.start(
            str(command),
            f"--config.file={file}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            stdout=log,
            stderr=log,
        )
        wait_until(lambda: process.poll() is not None or self.is_ready(), "Prometheus is ready", 60)
        if process.poll() is not None:
            raise NetError((self.folder / "prometheus.log").read_text())
        return self

    def is_ready(self) -> bool:
        """Whether it serves queries."""
        return self.space.run("curl", "-sf", f"{self.url}/-/ready", check=False).returncode == 0

    def api(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its API."""
        answer = json.loads(fetch(self.space, f"{self.url}/api/v1/{path}?{urlencode(parameters)}"))
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> list[Sample]:
        """The samples of an expression now."""
        data = self.api("query", query=expression)
        return [(sample["metric"], float(sample["value"][1])) for sample in data["result"]]

    def value(self, expression: str) -> float | None:
        """The value of an expression of one sample, if it has one."""
        found = self.query(expression)
        assert len(found) <= 1, found
        return found[0][1] if found else None
