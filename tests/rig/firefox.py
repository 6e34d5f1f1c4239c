"""A page in Firefox ESR without a screen, by its own protocol, Marionette: no driver is needed beside it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rig.browser import Browser
from rig.net import wait_until

_NAMES = ("firefox-esr", "firefox")
#: It takes no narrower window.
WIDTH_MIN = 500
#: The port is written into the profile; files are saved there and nothing is asked.
_PREFERENCES = {
    "browser.download.dir": "{profile}",
    "browser.download.folderList": 2,
    "marionette.port": 0,
    "remote.prefs.recommended": True,
}


def missing() -> str | None:
    """Name what is not installed; none where all is."""
    if not any(shutil.which(name) for name in _NAMES):
        return "firefox-esr is not installed: `scripts/setup report` installs it"
    return None


@dataclass
class Firefox(Browser):
    """A connection with it."""

    connection: socket.socket
    asked: int = 0

    def _receive(self) -> Any:
        """Read a message: its length in decimal, a colon, and JSON."""
        length = b""
        while not length.endswith(b":"):
            length += self._some(1)
        content = b""
        while len(content) < int(length[:-1]):
            content += self._some(int(length[:-1]) - len(content))
        return json.loads(content)

    def _some(self, most: int) -> bytes:
        found = self.connection.recv(most)
        assert found, "Firefox has closed the connection"
        return found

    def ask(self, command: str, **parameters: Any) -> Any:
        """Send a command, and return what came of it."""
        self.asked += 1
        content = json.dumps([0, self.asked, command, parameters]).encode()
        self.connection.sendall(f"{len(content)}:".encode() + content)
        _, number, fault, found = self._receive()
        assert number == self.asked
        assert fault is None, f"{command}: {fault}"
        return found["value"] if isinstance(found, dict) and "value" in found else found

    def begin(self) -> None:
        """Read who is there, and begin a session."""
        assert self._receive()["marionetteProtocol"] == 3
        self.ask("WebDriver:NewSession")

    def _prefer(self, name: str, value: int) -> None:
        self.ask("Marionette:SetContext", value="chrome")
        self.ask("WebDriver:ExecuteScript", script=f"Services.prefs.setIntPref({name!r}, {value})", args=[])
        self.ask("Marionette:SetContext", value="content")

    def open(self, page: Path | str, width: int, height: int, dark: bool) -> None:
        """Show a page on a screen."""
        self.ask("WebDriver:SetWindowRect", width=max(width, WIDTH_MIN), height=height)
        self._prefer("layout.css.prefers-color-scheme.content-override", 0 if dark else 1)
        self.ask("WebDriver:Navigate", url=page if isinstance(page, str) else page.as_uri())

    def run(self, script: str) -> Any:
        """Run a script's body, and return its value."""
        return self.ask("WebDriver:ExecuteScript", script=script, args=[], sandbox=None)

    def _run_until_done(self, script: str) -> Any:
        return self.ask("WebDriver:ExecuteAsyncScript", script=script, args=[], sandbox=None)

    def inject(self, script: str) -> None:
        """Run a script, whatever the page's policy is."""
        self.run(script)

    def choose(self, *files: Path) -> None:
        """Choose files with the field for them."""
        found = self.ask("WebDriver:FindElement", using="css selector", value="input[type=file]")
        (field,) = found.values()
        self.ask("WebDriver:ElementClear", id=field)
        self.ask("WebDriver:ElementSendKeys", id=field, text="\n".join(map(str, files)))

    def _shot(self, whole: bool) -> str:
        found: str = self.ask("WebDriver:TakeScreenshot", full=whole)
        return found


@contextmanager
def firefox(profile: Path) -> Iterator[Firefox]:
    """Start Firefox with a profile of its own; it ends with the block."""
    profile.mkdir(parents=True)
    preferences = {
        name: value.format(profile=profile) if isinstance(value, str) else value
        for name, value in _PREFERENCES.items()
    }
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in preferences.items()]
    (profile / "user.js").write_text("".join(lines))
    binary = next(path for name in _NAMES if (path := shutil.which(name)))
    command = [binary, "--headless", "--marionette", "--remote-allow-system-access", "--no-remote"]
    command += ["--profile", str(profile)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with socket.create_connection(("127.0.0.1", _port(profile)), timeout=60) as connection:
            driven = Firefox(connection)
            driven.begin()
            yield driven
    finally:
        running.terminate()
        running.wait(timeout=30)


def _port(profile: Path) -> int:
    """Where it listens, once it does."""
    file = profile / "MarionetteActivePort"
    wait_until(lambda: file.exists() and file.read_text(), "Firefox listens")
    return int(file.read_text())
