"""Counts the crates that a library of ours pulls when a program takes it alone: each has a bound.

Counted are those that `cargo tree -e normal` lists below the library for Linux on x86-64, macros and what
they are built of among them.

It also says what `scripts/wheel dev` would build again, as the tests of the workspace have it with other
features.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Crates at most.
BOUNDS = {"kaido-ndn-tables": 10}


def tree(line: str, *options: str) -> set[str]:
    """What `cargo tree` says, a line in this format for each crate."""
    command = [f"{ROOT}/scripts/cargo", "tree", "--locked", "--prefix", "none", "--format", line, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {line.removesuffix(" (*)") for line in done.stdout.splitlines() if line}


def pulled(package: str) -> set[str]:
    """The crates below a package."""
    options = ("--edges", "normal", "--target", "x86_64-unknown-linux-gnu")
    return {line.split()[0] for line in tree("{p}", "--package", package, *options)} - {package}


def built_again() -> list[str]:
    """What the Python package would have built with other features than the workspace."""
    package = tree(
        "{p} {f}", "--package", "kaido-python", "--features", "workspace", "--edges", "normal,build"
    )
    workspace = tree("{p} {f}", "--workspace", "--edges", "normal,build,dev")
    return sorted(line for line in package - workspace if not line.startswith("kaido-python "))


def main() -> int:
    """Look at each library that has a bound."""
    faults = []
    for package, most in BOUNDS.items():
        found = sorted(pulled(package))
        print(f"{package} pulls {len(found)} crates: {', '.join(found)}")
        if len(found) > most:
            faults.append(f"{package} pulls {len(found)} crates, {most} is the bound")
    where = "python/Cargo.toml: with the feature `workspace` this would be built again, with other features"
    faults += [f"{where}: {line}" for line in built_again()]
    print("\n".join(faults), end="")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
