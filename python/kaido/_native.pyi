"""The native module: traffic in and results out, both as JSON."""

from collections.abc import Sequence

__version__: str

def check_traffic(traffic: str) -> str:
    """Fills in what was left out of traffic; a `ValueError` says what is wrong."""

def packets(traffic: str, stream: int, count: int) -> list[bytes]:
    """The first packets of a stream."""

def push(gateway: str, job: str, labels: Sequence[tuple[str, str]], text: str) -> None:
    """Replaces what a group of a Pushgateway has; an `OSError` says what went wrong."""

class Run:
    """One run, under way from the moment it is made."""

    def __new__(cls, plan: str) -> Run: ...
    def live(self) -> str:
        """Counters, as JSON."""

    def stop(self) -> None:
        """Ends sending."""

    def pause(self, paused: bool) -> None:
        """Has the run's time stand still, or go on."""

    def wait(self, seconds: float) -> bool:
        """Waits for the end; whether it has come."""

    def result(self) -> str | None:
        """The result, as JSON; nothing as long as the run goes on."""

    def findings(self) -> list[tuple[int, bytes]]:
        """Frames of the findings that are kept, with their times."""

    def capture(self, sent: Sequence[int], received: Sequence[int], limit: int, cyclic: bool) -> int:
        """Begins to keep the first frames, or the last; the capture's number."""

    def captured(self, number: int) -> tuple[list[tuple[int, bool, int, bytes]], int]:
        """The frames of a capture, and how many found no room."""
