"""Finds packet fields that are read or written by a number for their place, outside of `kaido-wire`.

A header's layout stands in `crates/wire` and nowhere else: `wire::layout` has named fields of fixed
headers, which fast paths use. The bench judges with readers of its own: with those of `wire` it would share
their faults.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Crates that are not looked at, with why.
EXCEPT = {
    "bench": "judges with readers of its own",
    "fuzz": "makes packets that are wrong",
    "pfcp": "reads PFCP, whose elements have no fixed layout",
    "wire": "is where layouts stand",
    "xsk": "reads rings and no packets",
}
#: What holds octets of a packet, by the names that it has.
OCTETS = (
    r"(?:data|heads?|headers?|packet|frame|octets|bytes|segment|payload|datagram|link|space|room|message|fixed|upper|inner|outer)"
    r"(?:\.0|\.data\(\)|\.data_mut\(\))?"
)
NUMBER = r"(?:\w*(?:_AT|_LEN|OFFSET)\w* \+ )?\d+"
PLACE = re.compile(
    rf"\b{OCTETS}\[{NUMBER}(?:\.\.[^\]]*)?\]|\b{OCTETS}\[[^\]]*\.\.=?{NUMBER}\]|\b{OCTETS}\.get(?:_mut)?\({NUMBER}(?:\.\.[^)]*)?\)"
    rf"|\b(?:be|u)(?:16|32|64|128)(?:_at)?\(\w+, {NUMBER}\)"
)
#: Files whose octets are of no packet, with why.
OTHERS = {
    "crates/engine/src/netlink/": "messages of the kernel",
    "crates/engine/src/port/datagrams.rs": "socket addresses",
    "crates/engine/src/port/packet/": "virtio and socket headers",
    "crates/engine/src/port/pcap/": "capture files",
    "crates/ndn/src/balance/handoff_header.rs": "the hand-off header, which has no other home",
    "crates/ndn/src/tier/": "the disk tier's own format",
    "crates/store/": "journal and snapshot on disk",
    "crates/sim/src/link.rs": "the type of a PFCP message",
    "crates/upf/src/apps/quic.rs": "nonces and blocks of a cipher",
    "crates/xdp/src/port/abi.rs": "structs that programs in the kernel read",
    "crates/upf-xdp/src/abi.rs": "structs that programs in the kernel read",
    "crates/upf-xdp/src/offload/": "structs that programs in the kernel read",
    "crates/xdp/src/prefix.rs": "keys of a map",
    "crates/gre/src/xdp.rs": "structs that programs in the kernel read",
}


def places(name: str, text: str) -> list[str]:
    """The lines of a file, up to its tests, that have a number for a place."""
    code = re.split(r"#\[cfg\((?:all\()?test", text, maxsplit=1)[0]
    lines = ((number, line.split("//", 1)[0]) for number, line in enumerate(code.splitlines(), 1))
    return [f"{name}:{number}: {match[0]}" for number, line in lines if (match := PLACE.search(line))]


def main() -> int:
    """Look at every tracked source file but of those crates."""
    crates = sorted({path.name for path in (ROOT / "crates").iterdir()} - EXCEPT.keys())
    paths = [f"crates/{crate}/src/*.rs" for crate in crates]
    tracked = subprocess.run(
        ["git", "ls-files", *paths], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = [
        name
        for name in tracked.stdout.splitlines()
        if not name.endswith("tests.rs") and "/tests/" not in name and not name.startswith(tuple(OTHERS))
    ]
    faults = [
        fault
        for name in names
        if (ROOT / name).is_file()
        for fault in places(name, (ROOT / name).read_text())
    ]
    if faults:
        print("\n".join(faults))
        print("Take the named field: crates/wire/src/layout.rs has those of fixed headers.")
    else:
        print(f"{len(names)} files name the fields of packets")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
