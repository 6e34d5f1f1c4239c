"""A wall clock of a process's own, which can be set: the machine's is not touched.

`CLOCK_REALTIME` is in no time namespace. A library that is preloaded adds an offset to it, read from a mapped
file.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("wall_clock.c")


class WallClock:
    """The wall clock of processes that are started with `environment`."""

    def __init__(self, folder: Path) -> None:
        """Build the library; without a C compiler there is `why_not`, and the machine's clock."""
        self.why_not: str | None = None
        self.offset_file = folder / "wall_clock.offset"
        self.environment: dict[str, str] = {}
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang-19")
        if compiler is None:
            self.why_not = "there is no C compiler to build tests/rig/wall_clock.c with"
            return
        library = folder / "wall_clock.so"
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        if built.returncode != 0:
            self.why_not = f"tests/rig/wall_clock.c cannot be built: {built.stderr.strip()}"
            return
        self.offset_file.write_bytes(struct.pack("=q", 0))
        self.environment = {"WALL_CLOCK_OFFSET": str(self.offset_file), "LD_PRELOAD": str(library)}

    def set_ahead(self, seconds: int) -> None:
        """Set the clock that far ahead of the machine's, or behind."""
        with self.offset_file.open("r+b") as file:
            file.write(struct.pack("=q", seconds))
