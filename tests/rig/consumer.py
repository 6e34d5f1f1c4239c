"""An event exposure consumer over HTTP/2, by h2.

``python3 -m rig.consumer ADDRESS PORT FILE [CERTIFICATE KEY]``: each request is a line of JSON in FILE. It is
answered with the status that is in ``FILE.status``, or 204 without that file; ``silence`` there has it answer
nothing.
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import h2.config
import h2.connection
import h2.events

from rig.net import wait_until
from rig.recorder import Recorder

Items = list[dict[str, Any]]


def serve(connection: socket.socket, file: Path, lock: threading.Lock) -> None:
    """Serve a connection to its end."""
    talk = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
    talk.initiate_connection()
    connection.sendall(talk.data_to_send())
    requests: dict[int, tuple[dict[str, str], bytearray]] = {}
    while octets := connection.recv(65_536):
        for event in talk.receive_data(octets):
            if isinstance(event, h2.events.RequestReceived):
                requests[event.stream_id] = (
                    {str(name): str(value) for name, value in event.headers},
                    bytearray(),
                )
            elif isinstance(event, h2.events.DataReceived):
                requests[event.stream_id][1].extend(event.data)
                talk.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                headers, body = requests.pop(event.stream_id)
                status_file = file.with_name(file.name + ".status")
                status = status_file.read_text().strip() if status_file.exists() else "204"
                with lock, file.open("a") as log:
                    line = {"headers": headers, "body": json.loads(body), "status": status, "at": time.time()}
                    log.write(json.dumps(line) + "\n")
                if status != "silence":
                    talk.send_headers(event.stream_id, [(":status", status)], end_stream=True)
        connection.sendall(talk.data_to_send())


def main(address: str, port: str, name: str, *files: str) -> None:
    """Listen, and serve each connection in a thread."""
    file, lock = Path(name), threading.Lock()
    context = None
    if files:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
        context.set_alpn_protocols(["h2"])
    with socket.create_server((address, int(port))) as listener:
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            try:
                taken = context.wrap_socket(connection, server_side=True) if context else connection
            except OSError:
                continue
            threading.Thread(target=serve, args=(taken, file, lock), daemon=True).start()


@dataclass
class Consumer(Recorder):
    """One in a namespace."""

    MODULE: ClassVar[str] = "rig.consumer"
    FILE: ClassVar[str] = "notifications"

    port: int = 8080

    def items(self, correlation: str, status: str = "204") -> Items:
        """The items of notifications that it has taken."""
        bodies = [request["body"] for request in self.requests(status)]
        return [
            item
            for body in bodies
            if body["correlationId"] == correlation
            for item in body["notificationItems"]
        ]

    def octets(self, correlation: str) -> tuple[int, int]:
        """Uplink and downlink octets of all notifications that it has taken."""
        measured = [
            volume["volumeMeasurement"]
            for item in self.items(correlation)
            for volume in item["userDataUsageMeasurements"]
        ]

        def total(name: str) -> int:
            return sum(int(volume[name].removesuffix(" B")) for volume in measured)

        return total("ulVolume"), total("dlVolume")

    def wait(self, correlation: str, count: int, seconds: float = 60) -> Items:
        """Wait until it has taken so many items."""
        wait_until(
            lambda: len(self.items(correlation)) >= count, f"{count} items of {correlation} come", seconds
        )
        return self.items(correlation)


if __name__ == "__main__":
    main(*sys.argv[1:])
