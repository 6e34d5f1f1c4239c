"""The shared libraries of a program, and the Debian packages that they are of."""

import os
import re
import subprocess


def libraries(binary: str) -> list[str]:
    """The shared libraries of a program and its loader, where it looks for them."""
    linked = subprocess.run(["ldd", binary], capture_output=True, text=True, check=True).stdout
    return sorted(set(re.findall(r"(?:=> )?(/\S+) \(0x", linked)))


def packages(files: list[str]) -> list[str]:
    """The Debian packages that files are of."""
    found = set()
    for file in files:
        for name in (file, os.path.realpath(file)):
            owner = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True, check=False).stdout
            found.add(owner.partition(":")[0])
    return sorted(found - {""})
