"""What faults may lose, and what they did lose.

Each packet without a reply was sent within the time of a fault of its link, or is one that the node dropped
by name. A packet that the network lost on its way to the node is charged in no direction.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from rig.faults import WELL_S, Window

#: Drops of what a session buffers: long after the packet came.
BUFFERED = {"buffer_full", "buffer_discarded", "buffer_expired"}
#: How long a packet waits there at most, in seconds: `buffer.time_ms` as it comes.
BUFFERED_S = 40.0
#: Drops of messages that have done their work.
SIGNALLING = {"gtpu_signalling", "end_marker"}
#: Log of one fault, and of an hour without, in octets.
LOG_OF_FAULT, LOG_OF_HOUR = 16 << 10, 64 << 10


@dataclass
class KindOfLoss:
    """What one kind of fault lost."""

    lost: int = 0
    #: Packets not charged up, and replies charged down; of sessions that lost packets asleep, too.
    up: int = 0
    down: int = 0
    #: Lost after they were charged up, and before they were charged down: between the links.
    between: int = 0
    #: What the node dropped meanwhile, `port reason`; not what it buffered.
    dropped: Counter[str] = field(default_factory=Counter)

    def drops_at(self, port: str) -> int:
        """Of these, at a port."""
        return sum(count for name, count in self.dropped.items() if name.split()[0] == port)


@dataclass
class Verdict:
    """Losses, each with its fault."""

    windows: list[Window]
    report: dict[str, Any]
    #: All drops of the run, `port reason`.
    drops: dict[str, int]
    by_kind: dict[str, KindOfLoss] = field(default_factory=lambda: defaultdict(KindOfLoss))
    #: Sent at a time without a fault, and lost.
    unexplained: int = 0
    #: Charged, or not, at the wrong side of a fault.
    misplaced: int = 0
    asleep_outside: int = 0
    asleep: int = 0

    def judge(self) -> Verdict:
        """Sort all losses."""
        for window in self.windows:
            dropped = {
                name: count
                for name, count in window.dropped.items()
                if name.split()[1] not in BUFFERED | SIGNALLING
            }
            self.by_kind[window.name].dropped.update(dropped)
        for loss in self.report["faults"]["losses"]:
            self.one(loss)
        return self

    def window(self, at: float, *links: str) -> Window | None:
        """The fault that may have lost a packet that was sent then."""
        return next((it for it in self.windows if it.has(at) and it.loses.intersection(links)), None)

    def flushed_into(self, at: float) -> Window | None:
        """The fault of N3 that may lose a packet that was sent then, and waited in the node's buffer."""
        later = (it for it in self.windows if "n3" in it.loses and at < it.began <= at + BUFFERED_S)
        return next(later, None)

    def one(self, loss: dict[str, Any]) -> None:
        """Sort the losses of a session."""
        found = [self.window(at, "n3", "n6") for at in loss["awake"]]
        dozing = [self.window(at, "n3", "n6") for at in loss["asleep"]]
        self.unexplained += found.count(None)
        self.asleep += len(dozing)
        self.asleep_outside += dozing.count(None)
        awake = Counter(window.name for window in found if window is not None)
        for name, count in awake.items():
            self.by_kind[name].lost += count
        kinds = {window.name for window in found + dozing if window is not None}
        # What was buffered before a fault of N3 may go out into it, charged, when the UE is paged meanwhile.
        flushed = [window or self.flushed_into(at) for window, at in zip(dozing, loss["asleep"], strict=True)]
        links = Counter("n3" if "n3" in window.loses else "n6" for window in found + flushed if window)
        # A reply is lost after it was charged on N3 alone, a packet before it was charged on either.
        self.misplaced += max(0, loss["down"] - links["n3"])
        self.misplaced += max(0, loss["up"] - links["n3"] - links["n6"])
        if len(kinds) == 1:
            name = next(iter(kinds))
            kind = self.by_kind[name]
            kind.up += loss["up"]
            kind.down += loss["down"]
            kind.between += max(0, awake[name] - loss["up"] - loss["down"])

    def outside(self, times: list[float], *links: str) -> int:
        """How many of these times are of no fault of these links."""
        return sum(1 for at in times if self.window(at, *links) is None)

    def gaps_outside(self) -> int:
        """Gaps in UR-SEQN between two reports that the SMF took, of which no silence was between."""
        silences = [window for window in self.windows if window.name == "SMF silent"]
        gaps = self.report["faults"]["gaps"]
        return sum(
            1 for since, until in gaps if not any(it.began < until and since < it.ended for it in silences)
        )

    def buffer_drops(self) -> int:
        """Packets that were buffered and dropped."""
        return sum(count for name, count in self.drops.items() if name.split()[1] in BUFFERED)

    def uncounted_of_floods(self) -> int:
        """Datagrams of floods to N3 and N6 that have no drop reason."""
        floods = [it for it in self.windows if it.name in ("flood to n3", "flood to n6")]
        return sum(max(0, it.flood - sum(it.dropped.values())) for it in floods)

    def unnamed(self) -> dict[str, int]:
        """Packets that the node lost without a drop reason, by fault.

        On a fault of N3 what was charged up and not down came to the node, on one of N6 what was not charged.
        """
        found = {}
        for name, kind in self.by_kind.items():
            lost, port = (kind.up, "n3") if name.startswith("n6") else (kind.between, "n6")
            if lost > kind.drops_at(port) and name.startswith(("n3", "n6")):
                found[name] = lost - kind.drops_at(port)
        return found

    def table(self) -> list[str]:
        """Fault, how often, and what was seen."""
        losses = "lost | not charged up | between | charged down"
        head = f"fault | times | well within s | {losses} | log B | drops, seen"
        lines = [head]
        for name in sorted({window.name for window in self.windows}):
            windows = [window for window in self.windows if window.name == name]
            well = max(window.well - window.ended for window in windows)
            kind = self.by_kind[name]
            seen = ", ".join(
                [f"{count} {drop}" for drop, count in sorted(kind.dropped.items())]
                + sorted({window.seen for window in windows if window.seen})
            )
            log = max(window.log_bytes for window in windows)
            losses = f"{kind.lost} | {kind.up} | {kind.between} | {kind.down}"
            lines.append(f"{name} | {len(windows)} | {well:.1f} | {losses} | {log} | {seen}")
        return lines

    def slow(self) -> list[str]:
        """Faults after which the node was not well in time."""
        return [window.name for window in self.windows if window.well - window.ended > WELL_S]
