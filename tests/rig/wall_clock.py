"""A wall clock of a process's own, which can be set: the machine's is not touched.

`CLOCK_REALTIME` is in no time namespace. A library that is preloaded adds an offset to it.
"""

from __future__ import annotations

from pathlib import Path

from rig.preload import Preload


class WallClock(Preload):
    """The wall clock of processes that are started with `environment`."""

    def __init__(self, folder: Path) -> None:
        """The machine's time, for now."""
        super().__init__("wall_clock", "WALL_CLOCK_OFFSET", folder)

    def set_ahead(self, seconds: int) -> None:
        """Set the clock that far ahead of the machine's, or behind."""
        self.set(seconds)
