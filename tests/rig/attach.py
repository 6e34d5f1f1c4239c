"""The sessions of `kaido bench attach`, for as long as somebody needs them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from rig.net import Namespace, NetError, wait_until

#: Sessions a second that a user plane establishes at least.
SLOWEST = 200


@contextmanager
def attached(
    binary: Path, space: Namespace, log: Path, count: int, *options: str, releases: bool = True
) -> Iterator[None]:
    """Establish so many sessions, hold them, and release them where nothing failed meanwhile.

    Not every user plane answers when its association is released: eUPF does not. So it need not be asked.
    """
    command = [str(binary), "bench", "attach", "--bearers", str(count), *options]
    with log.open("w") as output:
        holder = space.start(*command, stdout=output, stderr=output)

    def is_done() -> bool:
        return holder.poll() is not None or "\nready\n" in "\n" + log.read_text()

    try:
        wait_until(is_done, "the sessions are not established", 60 + count / SLOWEST)
        if holder.poll() is not None:
            raise NetError(f"the sessions were not established:\n{log.read_text()}")
        yield
        if not releases:
            return
        holder.send_signal(signal.SIGTERM)
        if holder.wait(timeout=600) != 0:
            raise NetError(f"the sessions were not released:\n{log.read_text()}")
    finally:
        if holder.poll() is None:
            holder.kill()


def of_shape(
    binary: Path, space: Namespace, log: Path, shape: str, count: int, *, releases: bool = True
) -> AbstractContextManager[None]:
    """Sessions of a shape, at a user plane with the usual addresses."""
    tunnel = ("--n3", "10.100.3.1", "--gnb", "10.100.3.2")
    n4 = ("--upf-pfcp", "10.100.4.1", "--smf", "10.100.4.2")
    return attached(binary, space, log, count, "--shape", shape, *tunnel, *n4, releases=releases)
