"""The scripts that run the tests: what fails in a step fails the run."""

from __future__ import annotations

import re
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


def test_a_step_that_passes_is_counted(tmp_path: Path) -> None:
    """And what it prints is shown."""
    done = run(
        f"times={tmp_path}/times\nwork() {{ echo at work; ! false; }}\nstep 'A step' work\nsteps_passed"
    )
    assert done.returncode == 0, done.stderr
    assert "at work" in done.stdout
    assert done.stdout.endswith("\n1\n")


def test_a_lane_that_fails_fails_the_run_before_the_next_step() -> None:
    """With what it printed."""
    lane = "broken() { step 'In the lane' bash -c 'echo beside; false'; }\nlane aside broken\n"
    done = run(lane + "step 'Long' sleep 2\nstep 'Never' echo on it goes")
    assert done.returncode == 1
    assert "beside" in done.stdout
    assert "the lane aside failed" in done.stderr
    assert "on it goes" not in done.stdout


def test_a_lane_is_joined_and_its_steps_are_counted(tmp_path: Path) -> None:
    """Its output comes when it is joined, after that of the steps beside it."""
    script = f"""times={tmp_path}/times
fine() {{ step 'In the lane' echo beside; }}
lane aside fine
step 'Here' bash -c 'sleep 1; echo here'
join_lane aside
steps_passed; steps_by_time | head -n 1
"""
    done = run(script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("here") < done.stdout.index("beside")
    assert re.search(r"\n2\n +[1-9]\d* s +\d+ s of CPU  Here\n$", done.stdout)


def test_a_lane_that_ends_before_the_next_step_is_joined_once(tmp_path: Path) -> None:
    """By the step; to join it again is no fault."""
    script = f"""times={tmp_path}/times
fine() {{ step 'In the lane' echo beside; }}
lane aside fine
sleep 1
step 'Here' echo here
join_lane aside
steps_passed
"""
    done = run(script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("beside") == 1
    assert done.stdout.endswith("2\n")


def test_a_run_that_fails_interrupts_its_lanes(tmp_path: Path) -> None:
    """As Ctrl-C would: they take down what they set up."""
    script = f"""trap end_lanes EXIT
long() {{ trap 'touch {tmp_path}/down; exit 1' INT; sleep 60 & wait; }}
lane aside long
sleep 1
step 'A step' false
"""
    done = run(script)
    assert done.returncode == 1
    assert (tmp_path / "down").exists()
