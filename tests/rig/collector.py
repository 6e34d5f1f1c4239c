"""An OpenTelemetry collector over HTTP/1.1, by the protocol's own messages.

``python3 -m rig.collector ADDRESS PORT FILE [CERTIFICATE KEY]``: each request is a line of JSON in FILE. It
is answered with the status that is in ``FILE.status``, behind it a ``Retry-After``, or 200 without that file;
``silence`` there has it answer nothing.
"""

from __future__ import annotations

import json
import ssl
import sys
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from rig.net import wait_until
from rig.recorder import Recorder


def attributes(found: Any) -> dict[str, Any]:
    """Attributes by their keys; a key that is there twice is none."""
    values: dict[str, Any] = {}
    for attribute in found:
        assert attribute.key not in values, attribute.key
        kind = attribute.value.WhichOneof("value")
        value = getattr(attribute.value, kind)
        values[attribute.key] = (
            [each.string_value for each in value.values] if kind == "array_value" else value
        )
    return values


def spans(request: Any) -> list[dict[str, Any]]:
    """The spans of a request, each with the attributes of its resource."""
    return [
        {
            "resource": attributes(of_resource.resource.attributes),
            "scope": of_scope.scope.name,
            "trace": span.trace_id.hex(),
            "id": span.span_id.hex(),
            "parent": span.parent_span_id.hex(),
            "name": span.name,
            "kind": span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
            "began": span.start_time_unix_nano,
            "ended": span.end_time_unix_nano,
            "attributes": attributes(span.attributes),
            "events": [{"name": event.name, "at": event.time_unix_nano} for event in span.events],
            "status": [span.status.code, span.status.message],
        }
        for of_resource in request.resource_spans
        for of_scope in of_resource.scope_spans
        for span in of_scope.spans
    ]


def handler(file: Path, lock: threading.Lock) -> type[BaseHTTPRequestHandler]:
    """What serves a connection."""

    class Serve(BaseHTTPRequestHandler):
        """One connection."""

        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """Take a request down, and answer it."""
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = ExportTraceServiceRequest.FromString(body)
            # What the protocol does not know would be left out.
            known = ExportTraceServiceRequest.FromString(body)
            known.DiscardUnknownFields()
            assert known == request
            status_file = file.with_name(file.name + ".status")
            status = status_file.read_text().split() if status_file.exists() else ["200"]
            line = {
                "path": self.path,
                "headers": {name.lower(): value for name, value in self.headers.items()},
                "spans": spans(request),
                "status": status[0],
                "at": time.time(),
            }
            with lock, file.open("a") as log:
                log.write(json.dumps(line) + "\n")
            if status == ["silence"]:
                time.sleep(3600)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(int(status[0]))
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            if status[1:]:
                self.send_header("Retry-After", status[1])
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *of: object) -> None:
            """Say nothing."""

    return Serve


def main(address: str, port: str, name: str, *files: str) -> None:
    """Listen, and serve each connection in a thread."""
    server = ThreadingHTTPServer((address, int(port)), handler(Path(name), threading.Lock()))
    if files:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
        context.set_alpn_protocols(["http/1.1"])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print("ready", flush=True)
    server.serve_forever()


@dataclass
class Collector(Recorder):
    """One in a namespace."""

    MODULE: ClassVar[str] = "rig.collector"
    FILE: ClassVar[str] = "traces"

    port: int = 4318

    def spans(self, name: str | None = None) -> list[dict[str, Any]]:
        """The spans that it has taken: all of them, or those of that name."""
        taken = [span for request in self.requests("200") for span in request["spans"]]
        return [span for span in taken if name is None or span["name"] == name]

    def wait(self, name: str, count: int = 1, seconds: float = 30) -> list[dict[str, Any]]:
        """Wait until it has taken so many spans of a name."""
        wait_until(lambda: len(self.spans(name)) >= count, f"{count} spans `{name}` come", seconds)
        return self.spans(name)


if __name__ == "__main__":
    main(*sys.argv[1:])
