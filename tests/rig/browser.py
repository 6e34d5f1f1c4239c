"""A page in Chromium, headless, by the W3C WebDriver protocol: of any size, light or dark."""

from __future__ import annotations

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


@dataclass
class Browser:
    """A session of the driver."""

    url: str

    def ask(self, path: str, **body: Any) -> Any:
        """Send a command, and return what came of it."""
        request = urllib.request.Request(
            f"{self.url}/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def cdp(self, command: str, **params: Any) -> Any:
        """Send a command of Chromium's own protocol."""
        return self.ask("goog/cdp/execute", cmd=command, params=params)

    def open(self, page: Path | str, width: int, height: int, dark: bool) -> None:
        """Show a page, a file or a URL, on a screen of a size and a colour scheme."""
        mobile = width < 600
        self.cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("url", url=page if isinstance(page, str) else page.as_uri())

    def run(self, script: str) -> Any:
        """Run a script's body in the page, and return its value."""
        return self.ask("execute/sync", script=script, args=[])

    def later(self, script: str) -> Any:
        """Run a script's body in the page, and return what the promise that it returns comes to."""
        done = "const done = arguments[arguments.length - 1];"
        body = f"{done} (async () => {{ {script} }})().then(done, (fault) => done(String(fault)));"
        return self.ask("execute/async", script=body, args=[])

    def screenshot(self, file: Path, whole: bool = False) -> None:
        """Write what is seen, or the whole page, as PNG."""
        shot = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start a browser with a profile of its own; it ends with the block."""
    driver = subprocess.Popen(
        ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert driver.stdout is not None
    try:
        # It says: "ChromeDriver was started successfully on port N."
        started = next(line for line in driver.stdout if "successfully on port" in line)
        base = Browser(f"http://127.0.0.1:{started.rsplit(' ', 1)[-1].strip().rstrip('.')}")
        binary = next(path for name in _NAMES if (path := shutil.which(name)))
        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        options = {"args": [*arguments, f"--user-data-dir={profile}"], "binary": binary}
        wanted = {"alwaysMatch": {"goog:chromeOptions": options}}
        session = base.ask("session", capabilities=wanted)["sessionId"]
        try:
            yield Browser(f"{base.url}/session/{session}")
        finally:
            urllib.request.urlopen(
                urllib.request.Request(f"{base.url}/session/{session}", method="DELETE"), timeout=60
            ).close()
    finally:
        driver.terminate()
        driver.wait(timeout=30)
