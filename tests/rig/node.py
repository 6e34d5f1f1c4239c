"""A Kaido node and a simulated RAN as processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from rig.net import Namespace, NetError, run, wait_until

#: Where a node listens to PFCP.
LISTEN = ("10.100.4.1", "fd00:4::1")

#: The addresses that a node gives out itself.
POOL = """\
[[ue_pool]]
network_instance = "internet"
ipv4 = "10.60.128.0/17"
ipv6 = "2001:db8:60:8000::/49"

"""

CONFIG = f"""\
[node]
sessions_max = {{sessions_max}}
frames = {{frames}}
workers = {{workers}}

[pfcp]
listen = ["10.100.4.1", "fd00:4::1"]
heartbeat_interval_s = 2
t1_ms = 1500

{POOL}[control]
socket = "{{socket}}"

[store]
durability = "{{durability}}"
folder = "{{folder}}/store"
memory = "{{folder}}/memory"
{{store}}"""


def port(role: str, driver: str, *more: str, name: str | None = None, interface: str | None = None) -> str:
    """A port's table: named after its role, on the interface of that name."""
    lines = (
        f'name = "{name or role}"',
        f'driver = "{driver}"',
        f'interface = "{interface or role}"',
        f'roles = ["{role}"]',
    )
    return "\n".join(("", "[[port]]", *lines, *more, ""))


@dataclass
class Node:
    """`kaido run` in a namespace."""

    binary: Path
    space: Namespace
    folder: Path
    driver: str = "af_xdp"
    sessions_max: int = 4096
    workers: int = 1
    frames: int = 16384
    n3: str | None = None
    n6: str | None = None
    listen: tuple[str, ...] = LISTEN
    pool: str = POOL
    more: str = ""
    pfcp: str = ""
    node: str = ""
    #: What sessions survive, and further fields of `[store]`.
    durability: str = "off"
    store: str = ""
    #: What forwards, where `node` does not say it; nothing for the default.
    datapath: str = "engine"
    environment: dict[str, str] = field(default_factory=dict)
    #: Sockets of its service manager.
    given: tuple[socket.socket, ...] = ()
    #: The command that starts it, in the place of `given`.
    starter: tuple[str, ...] = ()
    process: subprocess.Popen[str] | None = None

    @property
    def config(self) -> str:
        """The configuration: the usual one, with what was asked for."""
        text = CONFIG.format(
            socket=self.socket,
            sessions_max=self.sessions_max,
            workers=self.workers,
            frames=self.frames,
            durability=self.durability,
            folder=self.folder,
            store=self.store,
        )
        n3 = self.n3 or port("n3", self.driver)
        n6 = self.n6 or port("n6", self.driver, 'network_instance = "internet"')
        named = self.datapath and "datapath" not in self.node
        chosen = f'datapath = "{self.datapath}"\n' if named else ""
        text = text.replace("[node]\n", f"[node]\n{chosen}{self.node}\n")
        text = text.replace(json.dumps(LISTEN), json.dumps(self.listen)).replace(POOL, self.pool)
        return text.replace("[pfcp]\n", f"[pfcp]\n{self.pfcp}\n") + n3 + n6 + self.more

    @property
    def socket(self) -> Path:
        """The control socket."""
        return self.folder / "kaido.sock"

    @property
    def log(self) -> Path:
        """Where the node's log goes."""
        return self.folder / "kaido.log"

    def start(self) -> Node:
        """Start the node and wait until it answers."""
        file = self.folder / "kaido.toml"
        file.write_text(self.config)
        with self.log.open("a") as log:
            command = (*(self.starter or self._given()), str(self.binary), "run", "-c", str(file))
            given = [one.fileno() for one in self.given]
            self.process = self.space.start(
                *command, stdout=log, stderr=log, env=os.environ | self.environment, pass_fds=given
            )
        try:
            wait_until(lambda: self.ended() or self.ask("status") is not None, "the node does not answer")
        except NetError as error:
            raise NetError(f"{error}; its log:\n{self.log.read_text()}") from error
        if self.ended():
            raise NetError(f"the node ended at once; its log:\n{self.log.read_text()}")
        return self

    def _given(self) -> tuple[str, ...]:
        """What comes before the command, so that it has the sockets by the protocol of sd_listen_fds(3)."""
        if not self.given:
            return ()
        own = " ".join(f"{at}<&{given.fileno()}" for at, given in enumerate(self.given, 3))
        told = f"LISTEN_PID=$$ LISTEN_FDS={len(self.given)}"
        return "bash", "-c", f'exec {own}; {told} exec "$@"', "bash"

    def ended(self) -> bool:
        """Whether the process is gone."""
        return self.process is None or self.process.poll() is not None

    def bpf_objects(self) -> set[tuple[str, int]]:
        """The programs, maps and links that the process holds, by kind and number, which none has again."""
        assert self.process is not None
        held: set[tuple[str, int]] = set()
        for file in Path(f"/proc/{self.process.pid}/fdinfo").iterdir():
            # One that is closed meanwhile is none of them.
            with contextlib.suppress(FileNotFoundError):
                found = re.findall(r"^(prog|map|link)_id:\s*(\d+)", file.read_text(), re.MULTILINE)
                held |= {(kind, int(number)) for kind, number in found}
        return held

    def watch(self, begun: str, command: str, *arguments: str) -> subprocess.Popen[str]:
        """Start `kaido trace` or `capture`; return once it has said `begun`."""
        asked = [str(self.binary), command, "--socket", str(self.socket), *arguments]
        log = self.folder / f"{command}.err"
        with log.open("w") as errors:
            running = subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=errors, text=True)
        wait_until(lambda: begun in log.read_text(), f"kaido {command} does not say `{begun}`")
        return running

    def ask(self, command: str, *arguments: str) -> dict[str, object] | None:
        """What `kaido COMMAND --json` prints, or nothing when the node does not answer."""
        socket = ["--socket", str(self.socket), "--json"]
        done = run(str(self.binary), command, *socket, *arguments, check=False)
        return dict(json.loads(done.stdout)) if done.returncode == 0 else None

    def drops(self) -> dict[str, int]:
        """Drops by `port reason`."""
        answer = self.ask("drops")
        listed = answer["drops"] if answer else []
        assert isinstance(listed, list)
        return {f"{drop['port']} {drop['reason']}": drop["packets"] for drop in listed}

    def stop(self, how: int = signal.SIGTERM) -> int:
        """Stop the node and return its exit code."""
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(timeout=60)


@dataclass
class Sim:
    """`kaido sim` in a namespace."""

    binary: Path
    space: Namespace
    folder: Path
    arguments: list[str]
    name: str = "sim"
    process: subprocess.Popen[str] | None = None

    @property
    def report(self) -> Path:
        """Where the report goes."""
        return self.folder / f"{self.name}.json"

    @property
    def log(self) -> Path:
        """Where progress goes."""
        return self.folder / f"{self.name}.log"

    def start(self, seconds: float = 60) -> Sim:
        """Start the RAN and wait until its UEs are attached."""
        ready = self.folder / f"{self.name}.ready"
        ready.unlink(missing_ok=True)
        command = [str(self.binary), "sim", *self.arguments, "--report", str(self.report)]
        with self.log.open("a") as log:
            self.process = self.space.start(*command, "--ready-file", str(ready), stdout=log, stderr=log)
        wait_until(lambda: ready.exists() or self.ended(), "the UEs are not attached", seconds)
        if not ready.exists():
            raise NetError(f"the simulated RAN ended: {self.log.read_text()}")
        return self

    def ended(self) -> bool:
        """Whether the process is gone."""
        return self.process is None or self.process.poll() is not None

    def stop(self, how: int = signal.SIGTERM) -> dict[str, object]:
        """Detach all and return the report."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(timeout=60)
        if code != 0:
            raise NetError(f"the simulated RAN ended with {code}: {self.log.read_text()}")
        return dict(json.loads(self.report.read_text()))
