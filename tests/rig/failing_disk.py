"""A disk that fails for one process: writes below a folder, or syncs of them, meet errors."""

from __future__ import annotations

from pathlib import Path

from rig.preload import Preload

#: What fails, as `failing_disk.c` has it.
FAULTS = {"write": 1, "sync": 2, "torn": 4}


class FailingDisk(Preload):
    """Files below a folder, for processes that are started with `environment`."""

    def __init__(self, folder: Path, of: Path) -> None:
        """A disk without faults, for now; `folder` is for what is built."""
        super().__init__("failing_disk", "FAILING_DISK_FAULTS", folder)
        if self.environment:
            self.environment["FAILING_DISK_FOLDER"] = str(of)

    def fail(self, *faults: str) -> None:
        """Have these fail from now on, and no others."""
        self.set(sum(FAULTS[fault] for fault in faults))
