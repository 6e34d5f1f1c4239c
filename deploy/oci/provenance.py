"""Prints where files come from: an in-toto statement, SLSA's provenance/v1, not signed.

deploy/oci/provenance.py BEGAN COMMIT FILE...
"""

import hashlib
import json
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path


def main() -> None:
    """Print it."""
    began, commit, *files = sys.argv[1:]
    subjects = [
        {"name": Path(file).name, "digest": {"sha256": hashlib.sha256(Path(file).read_bytes()).hexdigest()}}
        for file in sorted(files)
    ]
    remote = subprocess.run(
        ["git", "remote", "get-url", "origin"], capture_output=True, text=True, check=False
    )
    rustc = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    source = f"git+{remote.stdout.strip()}" if remote.returncode == 0 else "git"
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://slsa.dev/provenance/v1#make",
                "externalParameters": {"command": "scripts/release"},
                "internalParameters": {"rustc": rustc, "host": platform.platform()},
                "resolvedDependencies": [{"uri": source, "digest": {"gitCommit": commit}}],
            },
            "runDetails": {
                "builder": {"id": "scripts/release"},
                "metadata": {
                    "startedOn": began,
                    "finishedOn": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                },
            },
        },
    }
    json.dump(statement, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
