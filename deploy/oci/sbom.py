"""Completes a list of what the program is made of (CycloneDX), and makes it the same each time.

    deploy/oci/sbom.py MADE BINARY > LIST

MADE is what `cargo sbom` says of the crates; the Debian packages of the libraries that the binary is linked
with are added. `SOURCE_DATE_EPOCH` is its time.
"""

import json
import os
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from typing import Any

from libraries import libraries, packages


def component(package: str) -> dict[str, Any]:
    """A Debian package that is installed here."""
    shown = ["dpkg-query", "-W", "-f", "${Version} ${Architecture}", package]
    version, arch = subprocess.run(shown, capture_output=True, text=True, check=True).stdout.split()
    return {
        "bom-ref": f"deb-{package}-{version}",
        "name": package,
        "purl": f"pkg:deb/debian/{package}@{version}?arch={arch}",
        "type": "library",
        "version": version,
    }


def main() -> None:
    """Print it."""
    made, binary = sys.argv[1:]
    with open(made, encoding="utf-8") as file:
        bom = json.load(file)
    bom["components"] = sorted(
        bom["components"] + [component(package) for package in packages(libraries(binary))],
        key=lambda one: one["bom-ref"],
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
