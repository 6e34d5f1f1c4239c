"""Completes a list of what the program is made of (CycloneDX), and makes it the same each time.

    deploy/oci/sbom.py MADE BINARY > LIST

MADE is what `cargo sbom` says of the crates; the Debian packages of the libraries that the binary is linked
with are added. `SOURCE_DATE_EPOCH` is its time.
"""

import json
import os
import re
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from typing import Any


def packages(binary: str) -> list[dict[str, Any]]:
    """The Debian packages of a program's libraries."""
    linked = subprocess.run(["ldd", binary], capture_output=True, text=True, check=True).stdout
    found = {}
    for file in re.findall(r"(?:=> )?(/\S+) \(0x", linked):
        for name in (file, os.path.realpath(file)):
            owner = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True, check=False).stdout
            if owner:
                package = owner.partition(":")[0]
                shown = ["dpkg-query", "-W", "-f", "${Version} ${Architecture}", package]
                version, arch = subprocess.run(
                    shown, capture_output=True, text=True, check=True
                ).stdout.split()
                found[package] = {
                    "bom-ref": f"deb-{package}-{version}",
                    "name": package,
                    "purl": f"pkg:deb/debian/{package}@{version}?arch={arch}",
                    "type": "library",
                    "version": version,
                }
    return list(found.values())


def main() -> None:
    """Print it."""
    made, binary = sys.argv[1:]
    with open(made, encoding="utf-8") as file:
        bom = json.load(file)
    bom["components"] = sorted(
        bom["components"] + packages(binary), key=lambda component: component["bom-ref"]
    )
    for dependency in bom.get("dependencies", []):
        dependency["dependsOn"] = sorted(dependency.get("dependsOn", []))
    bom["dependencies"] = sorted(bom.get("dependencies", []), key=lambda dependency: dependency["ref"])
    when = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
    bom.setdefault("metadata", {})["timestamp"] = when.strftime("%Y-%m-%dT%H:%M:%SZ")
    contents = json.dumps(bom["components"], sort_keys=True)
    bom["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, contents)}"
    json.dump(bom, sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
