"""A page in a browser without a screen, of any size, light or dark; Chromium by its driver."""

from __future__ import annotations

import abc
import base64
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: What Chromium is called, by distribution.
_NAMES = ("chromium", "chromium-browser", "google-chrome")


def missing() -> str | None:
    """Name what is not installed; none where all is."""
    if not any(shutil.which(name) for name in _NAMES):
        return "chromium is not installed: `scripts/setup report` installs it"
    if not shutil.which("chromedriver"):
        return "chromedriver is not installed: `scripts/setup report` installs it"
    return None


class Browser(abc.ABC):
    """What a person does with a page, and sees of it."""

    @abc.abstractmethod
    def open(self, page: Path | str, width: int, height: int, dark: bool) -> None:
        """Show a page, a file or a URL, on a screen of a size and a colour scheme."""

    @abc.abstractmethod
    def run(self, script: str) -> Any:
        """Run a script's body in the page, and return its value."""

    @abc.abstractmethod
    def _run_until_done(self, script: str) -> Any:
        """Run a script's body whose last argument is what it calls with its value."""

    @abc.abstractmethod
    def inject(self, script: str) -> None:
        """Run a script in the page, whatever the page's policy is."""

    @abc.abstractmethod
    def choose(self, *files: Path) -> None:
        """Choose files with the page's only field for them."""

    @abc.abstractmethod
    def _shot(self, whole: bool) -> str:
        """What is seen, or the whole page, as PNG in base64."""

    def later(self, script: str) -> Any:
        """Run a script's body in the page, and return what the promise that it returns comes to."""
        done = "const done = arguments[arguments.length - 1];"
        body = f"{done} (async () => {{ {script} }})().then(done, (fault) => done(String(fault)));"
        return self._run_until_done(body)

    def screenshot(self, file: Path, whole: bool = False) -> None:
        """Write what is seen, or the whole page, as PNG."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(self._shot(whole)))


@dataclass
class Chromium(Browser):
    """A session of its driver."""

    url: str

    def ask(self, path: str, **body: Any) -> Any:
        """Send a command, and return what came of it."""
        request = urllib.request.Request(
            f"{self.url}/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def _own(self, command: str, **params: Any) -> Any:
        """Send a command of Chromium's own protocol."""
        return self.ask("goog/cdp/execute", cmd=command, params=params)

    def open(self, page: Path | str, width: int, height: int, dark: bool) -> None:
        """Show a page on a screen."""
        mobile = width < 600
        self._own(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._own("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("url", url=page if isinstance(page, str) else page.as_uri())

    def run(self, script: str) -> Any:
        """Run a script's body, and return its value."""
        return self.ask("execute/sync", script=script, args=[])

    def _run_until_done(self, script: str) -> Any:
        return self.ask("execute/async", script=script, args=[])

    def inject(self, script: str) -> None:
        """Run a script, whatever the page's policy is."""
        self._own("Runtime.evaluate", expression=script)

    def choose(self, *files: Path) -> None:
        """Choose files with the field for them."""
        root = self._own("DOM.getDocument")["root"]["nodeId"]
        field = self._own("DOM.querySelector", nodeId=root, selector="input[type=file]")["nodeId"]
        self._own("DOM.setFileInputFiles", nodeId=field, files=[str(file) for file in files])

    def _shot(self, whole: bool) -> str:
        found: str = self._own("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        return found


@contextmanager
def browser(profile: Path) -> Iterator[Chromium]:
    """Start Chromium with a profile of its own; it ends with the block."""
    driver = subprocess.Popen(
        ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert driver.stdout is not None
    try:
        # It says: "ChromeDriver was started successfully on port N."
        started = next(line for line in driver.stdout if "successfully on port" in line)
        base = Chromium(f"http://127.0.0.1:{started.rsplit(' ', 1)[-1].strip().rstrip('.')}")
        binary = next(path for name in _NAMES if (path := shutil.which(name)))
        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        options = {"args": [*arguments, f"--user-data-dir={profile}"], "binary": binary}
        wanted = {"alwaysMatch": {"goog:chromeOptions": options}}
        session = base.ask("session", capabilities=wanted)["sessionId"]
        try:
            yield Chromium(f"{base.url}/session/{session}")
        finally:
            urllib.request.urlopen(
                urllib.request.Request(f"{base.url}/session/{session}", method="DELETE"), timeout=60
            ).close()
    finally:
        driver.terminate()
        driver.wait(timeout=30)
