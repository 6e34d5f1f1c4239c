"""Plays a capture out of a port and says what came back."""

import sys

from kaido.trex import *


def main(file: str) -> None:
    """Plays the capture twice, with 100 microseconds between packets."""
    client = STLClient()
    client.connect()
    try:
        client.reset(ports=[0, 1])
        client.push_pcap(file, ports=[0], ipg_usec=100, count=2)
        client.wait_on_traffic(ports=[0])
        stats = client.get_stats()
        print(f"{stats[0]['opackets']} sent, {stats[1]['ipackets']} back")
    except STLError as error:
        sys.exit(str(error))
    finally:
        client.disconnect()


if __name__ == "__main__":
    main(sys.argv[1])
