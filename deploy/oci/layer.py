"""Writes the one layer of the image: the program, the libraries it is linked with, and folders to write to.

    deploy/oci/layer.py BINARY LAYER [FILE=PLACE]...    further files and where they lie

The same tar, octet for octet, from the same files. `SOURCE_DATE_EPOCH` is the time of all of it. No root is
needed: owners and capabilities are what the tar says.
"""

import io
import os
import struct
import sys
import tarfile
from pathlib import Path

from libraries import libraries, packages

#: The user that the program runs as.
USER = 10001
FOLDERS = ("/etc/kaido", "/run/kaido", "/var/cache/kaido", "/var/lib/kaido")
ACCOUNTS = {
    "/etc/passwd": f"root:x:0:0::/:/sbin/nologin\nkaido:x:{USER}:{USER}::/var/lib/kaido:/sbin/nologin\n",
    "/etc/group": f"root:x:0:\nkaido:x:{USER}:\n",
}
#: Interfaces and XDP programs, packet sockets, memory that stays in place, eBPF (linux/capability.h).
NET_ADMIN, NET_RAW, IPC_LOCK, PERFMON, BPF = 12, 13, 14, 38, 39
CAPABILITIES = (NET_ADMIN, NET_RAW, IPC_LOCK, PERFMON, BPF)


def capabilities() -> str:
    """The extended attribute by which a program is permitted its capabilities though its user is not root.

    Not effective: the kernel would refuse to start the program where one of them is not granted.
    """
    bits = sum(1 << number for number in CAPABILITIES)
    revision_2 = 0x0200_0000
    octets = struct.pack("<IIIII", revision_2, bits & 0xFFFF_FFFF, 0, bits >> 32, 0)
    return octets.decode("utf-8", "surrogateescape")


def copyrights(files: list[str]) -> list[str]:
    """The copyright files of the Debian packages that these files are of."""
    pages = [f"/usr/share/doc/{package}/copyright" for package in packages(files)]
    return [page for page in pages if Path(page).exists()]


def main() -> None:
    """Write it."""
    binary, layer, *more = sys.argv[1:]
    when = int(os.environ["SOURCE_DATE_EPOCH"])
    linked = libraries(binary)
    contents = {file: Path(file).read_bytes() for file in linked + copyrights(linked)}
    contents |= {place: text.encode() for place, text in ACCOUNTS.items()}
    contents |= {place: Path(file).read_bytes() for file, _, place in (one.partition("=") for one in more)}
    contents["/usr/bin/kaido"] = Path(binary).read_bytes()
    folders = {
        str(parent)
        for place in [*contents, *(f"{own}/file" for own in FOLDERS)]
        for parent in Path(place).parents
    }

    def entry(place: str, mode: int) -> tarfile.TarInfo:
        made = tarfile.TarInfo(place.lstrip("/"))
        made.mode, made.mtime = mode, when
        if place in FOLDERS[1:]:
            made.uid = made.gid = USER
        return made

    with tarfile.open(layer, "w", format=tarfile.PAX_FORMAT) as out:
        for folder in sorted(folders - {"/", "."}):
            made = entry(folder, 0o755)
            made.type = tarfile.DIRTYPE
            out.addfile(made)
        for place, octets in sorted(contents.items()):
            is_program = place.startswith(("/usr/bin/", "/lib", "/usr/lib"))
            made = entry(place, 0o755 if is_program else 0o644)
            made.size = len(octets)
            if place == "/usr/bin/kaido":
                made.pax_headers = {"SCHILY.xattr.security.capability": capabilities()}
            out.addfile(made, io.BytesIO(octets))


if __name__ == "__main__":
    main()
