"""A UDP echo server: `python3 -m rig.echo ADDRESS PORT`, until it is stopped."""

from __future__ import annotations

import socket
import sys
from contextlib import suppress

from rig.net import RECEIVE_BUFFER, SO_RCVBUFFORCE


def main() -> None:
    """Send back what comes."""
    family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as server:
        server.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
        server.bind((sys.argv[1], int(sys.argv[2])))
        while True:
            data, peer = server.recvfrom(65535)
            # The link may be gone for a while.
            with suppress(OSError):
                server.sendto(data, peer)


if __name__ == "__main__":
    main()
