"""The page of a node that never changes: `ui/`, with answers that a real node gave once."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from rig.http import Control, ask

_ROOT = Path(__file__).resolve().parents[2]
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
#: What a node tells of itself: two events make a look, of which a chart is drawn.
EVENTS = 16
#: Half a second goes by with each event, and two make a look. Fonts are those that every Debian has.
_STILL = """
<script>
  window.looked = 0;
  performance.now = () => 500 * window.looked++;
</script>
<style>
  *, *::before, *::after { transition: none !important; animation: none !important; }
  :root, body, button, input, select, textarea, table { font-family: "DejaVu Sans", sans-serif !important; }
  .mono, code, pre, svg.rules text { font-family: "DejaVu Sans Mono", monospace !important; }
</style>
"""


@dataclass
class Still:
    """What a node answered, by path, and what it told of itself meanwhile."""

    answers: dict[str, Any] = field(default_factory=dict)
    events: list[tuple[str, Any]] = field(default_factory=list)
    #: The node that is asked what is not known yet.
    node: Path | None = None

    @classmethod
    def read(cls, file: Path) -> Still:
        """What was recorded."""
        found = json.loads(file.read_text())
        return cls(found["answers"], [(name, data) for name, data in found["events"]])

    def write(self, file: Path) -> None:
        """Keep what was recorded."""
        kept = {"answers": dict(sorted(self.answers.items())), "events": self.events}
        file.write_text(json.dumps(kept, indent=1) + "\n")

    def listen(self) -> None:
        """Record what the node tells of itself."""
        assert self.node is not None
        with closing(Control(self.node)) as connection:
            connection.request("GET", "/v1/events?interval_ms=1000")
            answer = connection.getresponse()
            name = ""
            while len(self.events) < EVENTS:
                line = answer.readline().decode().strip()
                key, _, value = line.partition(": ")
                if key == "event":
                    name = value
                elif key == "data":
                    self.events.append((name, json.loads(value)))

    def answer(self, target: str) -> Any:
        """What the node answers at a path; none where it was not asked."""
        if target not in self.answers and self.node is not None:
            status, document = ask(self.node, "GET", target)
            assert status == 200, f"{target}: {document}"
            self.answers[target] = document
        return self.answers.get(target)

    def told(self) -> str:
        """The events, as a node sends them."""
        return "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in self.events)


@dataclass
class Api:
    """What a node's API answers, by its own document."""

    binary: Path

    @cached_property
    def document(self) -> dict[str, Any]:
        """The OpenAPI document of all functions."""
        told = subprocess.run(
            [self.binary, "reference", "--openapi"], capture_output=True, text=True, check=True
        )
        found: dict[str, Any] = json.loads(told.stdout)
        return found

    def faults(self, target: str, answer: Any) -> list[str]:
        """Where an answer is not what the document says."""
        path = target.partition("?")[0]
        templates = (
            template
            for template in self.document["paths"]
            if re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", template), path)
        )
        operation = self.document["paths"][next(templates)]["get"]
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        whole = {**schema, "components": self.document["components"]}
        return [
            f"{target}: {fault.json_path}: {fault.message}"
            for fault in Draft202012Validator(whole).iter_errors(answer)
        ]


@contextmanager
def served(still: Still, api: Api) -> Iterator[str]:
    """The URL of the page."""
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        """One connection of the browser."""

        def do_GET(self) -> None:
            """Send a file of the page, or what was recorded."""
            path = "/ui/index.html" if self.path == "/" else self.path.partition("?")[0]
            if path == "/v1/events":
                self._send("text/event-stream", still.told().encode(), is_whole=False)
                ended.wait()
            elif path == "/v1/openapi.json":
                self._send("application/json", json.dumps(api.document).encode())
            elif path.startswith("/v1/"):
                self._send("application/json", json.dumps(still.answer(self.path)).encode())
            else:
                text = (_ROOT / path[1:]).read_text()
                if path.endswith(".html"):
                    text = text.replace("</head>", f"{_STILL}</head>")
                self._send(_TYPES[Path(path).suffix], text.encode())

        def _send(self, kind: str, content: bytes, is_whole: bool = True) -> None:
            self.send_response(200)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Kaido-Role", "operate")
            if is_whole:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            self.wfile.flush()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            ended.set()
            server.shutdown()
