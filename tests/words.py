"""Finds words that the project does not use any more, and says which it uses: see `docs/glossary.md`.

A line that has to name such a word, as the change log does, is in a file that is not looked at.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: What is not to be found, and what is said instead.
WORDS = {
    r"\b[Ll]aps\b": "StageTimer",
    r"\bComplaint\b|\bcomplain_": "IcmpError, send_icmp_error",
    r"\bBooks\b": "UmemRings",
    r"\b[Ww]itness\b": "TraceRecorder, record_trace",
    r"\bFarEnds?\b": "RemoteFTeids, remote_fteid: a FAR is a Forwarding Action Rule",
    r"\b(fast_)?take_hop": "decrement_ttl",
    r"\bHandoverFull\b|\bhandover_full\b": "HandoffFull, handoff_full: a handover is a UE's",
    r"\bFarewell\b|\bfarewells?\b": "AssociationRelease, last report",
    r"\b[Uu]ntold\b": "UnreportedUsage, unsent_events",
    r"\bEndings\b": "DeferredWork",
    r"\bStraightWay\b|\b[Ss]traight way\b": "FastPath, the fast path",
    r"\bPlainWay\b": "SimpleForward",
    r"\b[Cc]areful(ly)? way\b": "the slow path",
    r"\bfastpath\b|\bKernelDatapath\b|\bfast_path_(ns|share)\b": "offload",
    r"\bAside\b(?! )": "OffloadedCounters",
    r"\b(Traced)?Fate\b": "Disposition",
    r"\b[Dd]oorbells?\b|\bBell\b": "Notifier, WakeFlag: arm, disarm, notify",
    r"\bCrew\w*\b|\bcrew\b": "WorkerSet, hand-off port",
    r"\bDesk\b|\b[Ee]rrands?\b|\bParcel\b": "ControlMailbox, HandoffTask, hand-off header",
    r"\b[Ss]ieves?\b|\b[Ww]innow\w*|\b[Ss]ift(s|ed)?\b": "Bloom filter: bloom_candidates, match_tags",
    r"\b[Cc]ensus\b": "heavy hitters",
    r"\bexchange_front\b|\bput_front\b|\bfront_of\b": "rewrite_head, prepend_header, head_of",
    r"\bTunnelShape\b|\bShapeId\b": "EncapTemplate, EncapTemplateId",
    r"\b(Narrow|Common|Offload|Policy)Way\b": "PathMtu, CommonPath, OffloadNextHop, PolicyTarget",
    r"\busual shape\b": "eligible for the fast path",
    r"\bTxFullPreferred\b|\btx_full_preferred\b": "TxFullHighPriority, tx_full_high_priority",
    r"\bhanded_over\b": "handoffs, handoff: a handover is a UE's",
    r"\bset_across\b|\bport\.across\b": "peer_port",
    r"\bStencil\b|\bWorkshop\b|\bDealing\b": "RequestTemplate, TestBed, RssSimulation",
    r"\bWhereabouts\b|\bStrangers\b": "NeighbourLookup, UnknownPeers or UnclaimedFrames",
}
KINDS = (".rs", ".h", ".c", ".py", ".md", ".yml", ".toml")
NOT_LOOKED_AT = {"CHANGELOG.md", "tests/words.py", "docs/glossary.md"}


def found(name: str, text: str) -> list[str]:
    """The words of a text, each with its line and what to write."""
    return [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}: write {instead}"
        for pattern, instead in WORDS.items()
        for match in re.finditer(pattern, text)
    ]


def main() -> int:
    """Look at every tracked file."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in tracked.splitlines() if name.endswith(KINDS) and name not in NOT_LOOKED_AT]
    faults = [
        fault for name in names if (ROOT / name).is_file() for fault in found(name, (ROOT / name).read_text())
    ]
    print("\n".join(faults) or f"{len(names)} files use the words of the field")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
