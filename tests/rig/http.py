"""HTTP over a Unix socket, and a TCP port that leads to one, for programs that know TCP only."""

from __future__ import annotations

import http.client
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer, ThreadingUnixStreamServer
from typing import Any


class Control(http.client.HTTPConnection):
    """A connection to a node's control socket."""

    def __init__(self, path: Path) -> None:
        """Of the socket at a path."""
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self) -> None:
        """Connect to the socket in the place of a host."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


def ask(path: Path, method: str, target: str, body: object = None) -> tuple[int, Any]:
    """Status and document of one request at a control socket."""
    connection = Control(path)
    headers = {"Content-Type": "application/json"} if body is not None else {}
    connection.request(method, target, json.dumps(body) if body is not None else None, headers)
    answer = connection.getresponse()
    octets = answer.read()
    connection.close()
    is_json = "json" in answer.headers.get("Content-Type", "")
    return answer.status, json.loads(octets) if is_json else octets.decode(errors="replace")


def carry(near: socket.socket, far: socket.socket) -> None:
    """Carry octets one way until an end closes."""
    with suppress(OSError):
        while octets := near.recv(65_536):
            far.sendall(octets)
    for end, how in ((far, socket.SHUT_WR), (near, socket.SHUT_RD)):
        with suppress(OSError):
            end.shutdown(how)


def carrier(connect: Callable[[], socket.socket]) -> type[BaseRequestHandler]:
    """What serves a connection by carrying it on to another socket."""

    class Carry(BaseRequestHandler):
        """One connection."""

        def handle(self) -> None:
            """Carry octets both ways until an end closes."""
            with connect() as there:
                back = threading.Thread(target=carry, args=(there, self.request), daemon=True)
                back.start()
                carry(self.request, there)
                back.join()

    return Carry


@contextmanager
def by_tcp(path: Path) -> Iterator[str]:
    """A URL on a loopback that leads to a Unix socket for a while."""

    def connect() -> socket.socket:
        there = socket.socket(socket.AF_UNIX)
        there.connect(str(path))
        return there

    class Server(ThreadingTCPServer):
        """Many connections, none of which outlives the test."""

        daemon_threads = True
        allow_reuse_address = True
        request_queue_size = 64

    with Server(("127.0.0.1", 0), carrier(connect)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


if __name__ == "__main__":
    # In a namespace: a Unix socket, which any namespace can connect to, that leads to an address of this one.
    own, host, port = sys.argv[1:]
    with ThreadingUnixStreamServer(own, carrier(lambda: socket.create_connection((host, int(port))))) as unix:
        unix.daemon_threads = True
        unix.serve_forever()
