"""Protocol peers in Go, built from the versions in tests/peers, and captures of what is said to them.

Go's module proxy may be out of reach, or Debian's Go too old for a module. Then what needs such a peer is
skipped, with that reason; a peer that is there and cannot be built is a failure.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from rig.net import Namespace, NetError, wait_until

ROOT = Path(__file__).resolve().parents[2]

#: How long a download or a build may take on a slow machine.
PATIENCE_S = 900


class NotHere(Exception):
    """Why a peer cannot be had on this machine."""


def build(name: str) -> Path:
    """The folder with the programs of the module tests/peers/NAME, tried once."""
    found = _build(name)
    if isinstance(found, str):
        raise NotHere(found)
    return found


@cache
def _build(name: str) -> Path | str:
    """The folder, or why there is none."""
    if shutil.which("go") is None:
        return "Go is not installed"
    out = ROOT / "target" / "peers" / name
    out.mkdir(parents=True, exist_ok=True)
    # Who runs the tests beside builds the same.
    with out.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _build_into(out, ROOT / "tests" / "peers" / name)


def _build_into(out: Path, module: Path) -> Path | str:
    """The folder with the module's programs, or why there are none."""
    name = module.name
    fetched = go(module, "mod", "download")
    if fetched.returncode != 0:
        reason = fetched.stderr.strip().splitlines() or ["no reason given"]
        return f"the modules of {name} cannot be fetched: {reason[-1]}"
    packages = ["tool"] if "\ntool " in (module / "go.mod").read_text() else ["."]
    built = go(module, "build", "-mod=mod", "-buildvcs=false", "-o", f"{out}/", *packages)
    if built.returncode != 0:
        raise NetError(f"{name} cannot be built: {built.stderr}")
    return out


def version(name: str, module: str) -> str:
    """Which version of a module tests/peers/NAME builds."""
    for line in (ROOT / "tests" / "peers" / name / "go.mod").read_text().splitlines():
        if line.strip().startswith(module):
            return line.split()[1]
    raise NetError(f"tests/peers/{name}/go.mod does not name {module}")


def go(module: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the Go command in a module."""
    command = ["go", *arguments]
    return subprocess.run(
        command, cwd=module, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


@contextmanager
def captured(space: Namespace, folder: Path, *interfaces: str) -> Iterator[dict[str, Path]]:
    """Capture the UDP of interfaces while the block runs."""
    files = {interface: folder / f"{interface}.pcap" for interface in interfaces}
    dumps = [
        space.start("tcpdump", "--immediate-mode", "-U", "-i", interface, "-w", str(file), "udp")
        for interface, file in files.items()
    ]
    wait_until(lambda: all(file.exists() for file in files.values()), "tcpdump starts")
    try:
        yield files
    finally:
        for dump in dumps:
            dump.send_signal(signal.SIGINT)
            dump.wait(timeout=60)


def warnings(capture: Path, sender: str = "") -> list[str]:
    """What tshark finds wrong in a capture, or in what one address sent."""
    fields = ["frame.number", "frame.protocols", "_ws.expert.severity", "_ws.expert.message", "_ws.malformed"]
    options = [option for field in fields for option in ("-e", field)]
    only = ["-Y", f"ip.src == {sender}"] if sender else []
    command = ["tshark", "-r", str(capture), "-T", "json", *options, *only]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = []
    for packet in json.loads(done.stdout or "[]"):
        layers = packet["_source"]["layers"]
        # Severities from "note" (0x400000) down are remarks such as retransmissions.
        severe = [int(value, 0) >= 0x600000 for value in layers.get("_ws.expert.severity", [])]
        if any(severe) or "_ws.malformed" in layers:
            found.append(json.dumps(layers))
    return found
