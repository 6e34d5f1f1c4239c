"""A user's mistake gets one clear message: what, where, and how to mend it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

#: For a node that is run: where it would keep its sessions is not the test's to touch.
NO_STORE = '[store]\ndurability = "off"\n'

GOOD = """\
[[port]]
name = "n3"
driver = "af_xdp"
interface = "n3"
roles = ["n3"]

[[port]]
name = "n6"
driver = "af_xdp"
interface = "n6"
roles = ["n6"]

[pfcp]
listen = ["127.0.0.1"]
"""


def check(binary: Path, folder: Path, text: str, command: str = "check") -> tuple[int, str]:
    """Run `kaido check` on a text; its exit code and what it said."""
    file = folder / "kaido.toml"
    file.write_text(text)
    done = subprocess.run(
        [str(binary), command, "-c", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_a_good_file_is_good(binary: Path, tmp_path: Path) -> None:
    """And `check` starts nothing."""
    code, said = check(binary, tmp_path, GOOD)
    assert code == 0, said
    assert "good" in said


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ('name = "n3"', 'nmae = "n3"', ["kaido.toml:2", "nmae", "name", "driver", "interface"]),
        ('driver = "af_xdp"', 'driver = "dpdk"', ["kaido.toml:3", "dpdk", "af_xdp", "af_packet", "tap"]),
        ('roles = ["n6"]', 'roles = ["n5"]', ["kaido.toml:11", "n5", "n3", "n6", "n9"]),
        ('roles = ["n6"]', "roles = []", ["kaido.toml:11", "port.roles", "no role"]),
        ('interface = "n6"', 'interface = "n3"', ["kaido.toml:10", "port.interface", "another port"]),
        ('listen = ["127.0.0.1"]', 'listen = ["nowhere"]', ["kaido.toml:14", "nowhere", "10.0.0.1:8805"]),
        ('listen = ["127.0.0.1"]', "listen = []", ["kaido.toml:14", "pfcp.listen", "at least one"]),
        (
            "[pfcp]",
            "[node]\nsessions_max = 0\n[pfcp]",
            ["kaido.toml:14", "node.sessions_max", "1 to 67108864"],
        ),
        (
            "[pfcp]",
            "[node]\nframe_bytes = 1024\n[pfcp]",
            ["kaido.toml:14", "node.frame_bytes", "no frames of 1024 bytes", "2048 or 4096"],
        ),
        (
            "[pfcp]",
            '[node]\nqueue_mode = "ordered"\n[pfcp]',
            ["kaido.toml:14", "ordered", "rss", "shared", "shared-ordered"],
        ),
        (
            "[pfcp]",
            '[node]\nqueue_mode = "shared"\nsteer_by = "ue"\n[pfcp]',
            ["kaido.toml:15", "node.steer_by", "shared queue", 'queue_mode = "rss"'],
        ),
        ("[pfcp]", '[node]\nsteer_by = "imsi"\n[pfcp]', ["kaido.toml:14", "imsi", "queue", "ue", "teid"]),
        (
            '[[port]]\nname = "n3"\ndriver = "af_xdp"',
            '[node]\nqueue_mode = "shared"\n[[port]]\nname = "n3"\ndriver = "af_packet"',
            ["kaido.toml:5", "port.driver", "queue that workers share", 'queue_mode = "rss"'],
        ),
        (
            "[pfcp]",
            '[node]\ndatapath = "kernel"\n[pfcp]',
            ["kaido.toml:14", "kernel", "engine", "xdp", "hybrid"],
        ),
        (
            "[pfcp]",
            "[node]\nxdp_records_max = 100\n[pfcp]",
            ["kaido.toml:14", "node.xdp_records_max", "only the hybrid datapath"],
        ),
        (
            "[pfcp]",
            '[node]\ndatapath = "hybrid"\nxdp_records_max = 0\n[pfcp]',
            ["kaido.toml:15", "node.xdp_records_max", "1 to 268435456"],
        ),
        (
            'listen = ["127.0.0.1"]',
            'listen = "127.0.0.1"',
            ["kaido.toml:14", "pfcp.listen", "list of addresses"],
        ),
        ("[pfcp]", '[node]\nworkers = "two"\n[pfcp]', ["kaido.toml:14", "node.workers", "1 to 64"]),
        ('name = "n3"\n', "", ["kaido.toml:1", "port.name", "missing", "characters"]),
        ("[pfcp]", "[ue_pool]\n[pfcp]", ["kaido.toml:13", "[[ue_pool]]"]),
        ("[pfcp]", "[pfcp", ["kaido.toml:13"]),
        ('[pfcp]\nlisten = ["127.0.0.1"]', "", ["pfcp", "missing"]),
    ],
)
def test_a_mistake_is_named_with_its_place_and_what_is_allowed(
    binary: Path, tmp_path: Path, old: str, new: str, wanted: list[str]
) -> None:
    """File, line, field, and the way out; exit code not 0."""
    code, said = check(binary, tmp_path, GOOD.replace(old, new, 1))
    assert code != 0
    for part in wanted:
        assert part in said, said
    assert "panicked" not in said


def test_a_datapath_in_the_kernel_needs_a_port_for_it(binary: Path, tmp_path: Path) -> None:
    """And says which."""
    text = GOOD.replace("af_xdp", "af_packet") + '[node]\ndatapath = "xdp"\n'
    code, said = check(binary, tmp_path, text)
    assert code != 0
    for part in ("kaido.toml:16", "node.datapath", "no port has", 'driver = "af_xdp"'):
        assert part in said, said


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (GOOD.replace("[pfcp]", "[gre]\n[pfcp]"), ["kaido.toml:13", "gre", 'function = "gre"']),
        ('function = "gre"\n' + GOOD, ["kaido.toml:6", "port.roles", "kaido.toml:14", "pfcp", '"upf"']),
        ('function = "switch"\n' + GOOD, ["kaido.toml:1", "switch", "upf", "gre"]),
    ],
)
def test_sections_of_another_function_are_refused(
    binary: Path, tmp_path: Path, text: str, wanted: list[str]
) -> None:
    """Each with its place and whose it is."""
    code, said = check(binary, tmp_path, text)
    assert code != 0
    for part in wanted:
        assert part in said, said


@pytest.mark.parametrize("name", ["kaido.toml", "gre.toml", "ndn.toml"])
def test_the_files_to_start_from_are_good(binary: Path, tmp_path: Path, name: str) -> None:
    """Those of `deploy/`."""
    text = (Path(__file__).resolve().parents[2] / "deploy" / name).read_text()
    code, said = check(binary, tmp_path, text)
    assert code == 0, said


def test_a_missing_file_is_named(binary: Path) -> None:
    """And the way out."""
    done = subprocess.run(
        [str(binary), "run", "-c", "/nowhere.toml"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert "/nowhere.toml" in done.stderr


def test_a_missing_interface_is_named(binary: Path, tmp_path: Path) -> None:
    """What the configuration cannot know, the start says as clearly."""
    text = GOOD.replace('interface = "n3"', 'interface = "nosuchif"')
    code, said = check(
        binary, tmp_path, f'{text}[control]\nsocket = "{tmp_path}/kaido.sock"\n{NO_STORE}', "run"
    )
    assert code != 0
    assert "nosuchif" in said
    assert "panicked" not in said


def test_asking_a_node_that_is_not_there_says_so(binary: Path) -> None:
    """With the path tried and what to do."""
    done = subprocess.run(
        [str(binary), "status", "--socket", "/nowhere.sock"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "/nowhere.sock" in done.stderr
    assert "kaido run" in done.stderr


@pytest.mark.needs("root", "setpriv")
@pytest.mark.parametrize(
    ("socket", "wanted"),
    [
        ("none/kaido.sock", ["No such file", "make its folder"]),
        ("locked/kaido.sock", ["Permission denied", "run the node as root", "in which this user may write"]),
        ("file", ["no socket", "remove the file"]),
    ],
)
def test_a_control_socket_that_cannot_be_made_says_what_is_in_the_way(
    binary: Path, tmp_path: Path, socket: str, wanted: list[str]
) -> None:
    """Nothing else was touched yet; and it is not another node."""
    (tmp_path / "file").touch()
    (tmp_path / "locked").mkdir(mode=0o700)
    os.chown(tmp_path / "locked", 65534, 65534)
    file = tmp_path / "kaido.toml"
    file.write_text(f'{GOOD}\n[control]\nsocket = "{tmp_path / socket}"\n')
    # Root as others are: bound to what permissions say.
    plain = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", str(binary), "run", "-c", str(file)]
    done = subprocess.run(plain, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    said = " ".join(done.stderr.replace("\u2502", " ").split())
    for part in ["control.socket", *wanted]:
        assert part in said, said
    assert "other node" not in said
