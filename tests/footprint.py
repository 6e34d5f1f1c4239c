"""Counts the crates that a library of ours pulls when a program takes it alone: each has a bound.

Counted are those that `cargo tree -e normal` lists below the library for Linux on x86-64, macros and what
they are built of among them.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Crates at most.
BOUNDS = {"kaido-ndn-tables": 10}


def pulled(package: str) -> set[str]:
    """The crates below a package."""
    tree = [f"{ROOT}/scripts/cargo", "tree", "--locked", "--package", package, "--edges", "normal"]
    options = ["--target", "x86_64-unknown-linux-gnu", "--prefix", "none", "--format", "{p}"]
    done = subprocess.run([*tree, *options], capture_output=True, text=True, check=True)
    return {line.split()[0] for line in done.stdout.splitlines() if line} - {package}


def main() -> int:
    """Look at each library that has a bound."""
    faults = []
    for package, most in BOUNDS.items():
        found = sorted(pulled(package))
        print(f"{package} pulls {len(found)} crates: {', '.join(found)}")
        if len(found) > most:
            faults.append(f"{package} pulls {len(found)} crates, {most} is the bound")
    print("\n".join(faults), end="")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
