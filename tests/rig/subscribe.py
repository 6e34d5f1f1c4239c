"""Many requests on one HTTP/2 connection, by httpx: ``python3 -m rig.subscribe URI TOKEN FILE COUNT``.

It prints how often which status was answered, as JSON.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import httpx


def main(uri: str, token: str, file: str, count: str) -> None:
    """Post a body so often."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    body = Path(file).read_bytes()
    with httpx.Client(http2=True, http1=False, headers=headers, timeout=20) as client:
        statuses = [client.post(uri, content=body).status_code for _ in range(int(count))]
    print(json.dumps(Counter(statuses)))


if __name__ == "__main__":
    main(*sys.argv[1:])
