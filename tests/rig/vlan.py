"""A far end with VLANs, where the kernel has none: `python3 -m rig.vlan INTERFACE VID=TAP...`.

Each VLAN of the interface is a TAP device, made here; what is in no VLAN stays the interface's own. A tag
goes into the frame itself, as it is on a wire, so that XDP programs at the other end see it. It ends when it
is stopped, and the devices with it.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Callable

from rig.net import Namespace, wait_until

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
ETH_P_ALL = 0x0003
SOL_PACKET, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING = 263, 8, 23
TP_STATUS_VLAN_VALID = 1 << 4
#: struct tpacket_auxdata: status, len, snaplen, mac, net, VLAN TCI, VLAN TPID.
AUXDATA = struct.Struct("=IIIHHHH")
TPIDS = (0x8100, 0x88A8)
FRAME_MAX = 65_536


def open_tap(name: str) -> int:
    """Makes a TAP device."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return device


def open_cable(interface: str) -> socket.socket:
    """A packet socket that sees what comes in, with the tags that the kernel has taken off."""
    cable = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    cable.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    cable.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    cable.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
    cable.bind((interface, 0))
    cable.setblocking(False)
    return cable


def receive(cable: socket.socket) -> tuple[int | None, bytes]:
    """A frame and the VLAN that it was in; the frame is without that tag."""
    frame, control, _, _ = cable.recvmsg(FRAME_MAX, socket.CMSG_SPACE(AUXDATA.size))
    for level, kind, data in control:
        if level == SOL_PACKET and kind == PACKET_AUXDATA:
            status, _, _, _, _, tci, _ = AUXDATA.unpack_from(data)
            if status & TP_STATUS_VLAN_VALID:
                return tci & 0xFFF, frame
    if int.from_bytes(frame[12:14], "big") in TPIDS:
        return int.from_bytes(frame[14:16], "big") & 0xFFF, frame[:12] + frame[16:]
    return None, frame


def drain(read: Callable[[], None]) -> None:
    """Reads until there is nothing more; what a device does not take is lost, as on a wire."""
    while True:
        try:
            read()
        except BlockingIOError:
            return
        except OSError:
            # The device is down or full.
            return


def main() -> None:
    """Tags and untags until it is stopped."""
    cable = open_cable(sys.argv[1])
    taps = {int(vid): open_tap(name) for vid, name in (each.split("=") for each in sys.argv[2:])}

    def from_cable() -> None:
        vid, frame = receive(cable)
        if vid in taps:
            os.write(taps[vid], frame)

    def from_tap(vid: int) -> None:
        frame = os.read(taps[vid], FRAME_MAX)
        cable.send(frame[:12] + struct.pack("!HH", 0x8100, vid) + frame[12:])

    poll = select.poll()
    readers: dict[int, Callable[[], None]] = {cable.fileno(): from_cable}
    readers |= {tap: lambda vid=vid: from_tap(vid) for vid, tap in taps.items()}  # type: ignore[misc]
    for descriptor in readers:
        poll.register(descriptor, select.POLLIN)
    while True:
        for descriptor, events in poll.poll():
            if events & select.POLLIN:
                drain(readers[descriptor])


def split(space: Namespace, interface: str, vlans: dict[int, str], mtu: int = 1500) -> subprocess.Popen[str]:
    """Makes TAP devices that are VLANs of an interface of a namespace; down, and without addresses."""
    arguments = (f"{vid}={tap}" for vid, tap in vlans.items())
    bridge = space.start(sys.executable, "-m", "rig.vlan", interface, *arguments)

    def are_there() -> bool:
        return set(vlans.values()) <= {link["ifname"] for link in space.links()}

    wait_until(are_there, "the VLANs are not made")
    for tap in vlans.values():
        space.ip("link", "set", tap, "mtu", str(mtu))
    return bridge


if __name__ == "__main__":
    main()
