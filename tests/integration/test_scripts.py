"""The scripts that run the tests: what fails in a step fails the run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

LIB = Path(__file__).resolve().parents[2] / "scripts" / "lib.sh"


def run(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script that has sourced what all scripts share."""
    whole = f"set -euo pipefail\nsource {LIB}\n{script}"
    return subprocess.run(["bash", "-c", whole], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "body", ["false; true", "for n in 1 2; do [[ $n == 2 ]]; done", "true | false | true; true", "exit 3"]
)
def test_a_step_fails_with_any_of_its_commands(body: str) -> None:
    """Not only with the last of them."""
    done = run(f"work() {{ {body}; }}\nstep 'A step' work\necho on it goes")
    assert done.returncode == 1
    assert "A step failed" in done.stderr
    assert "on it goes" not in done.stdout


def test_a_step_that_passes_is_counted() -> None:
    """And what it prints is shown."""
    done = run("work() { echo at work; ! false; }\nstep 'A step' work\necho $passed passed")
    assert done.returncode == 0, done.stderr
    assert "at work" in done.stdout
    assert done.stdout.endswith("1 passed\n")
