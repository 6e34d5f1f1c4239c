"""`kaido reload` of an NDN router: faces, routes and strategies of its file."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT
from rig.ndn import FAR, Hosts, Router, digest, fetch, serve
from rig.net import run
from test_reload import reload

pytestmark = pytest.mark.needs("root", "ip", "ethtool")

FACE = f"udp4://{FAR}:6363"


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """The hosts, with names of their own, so that others may run beside."""
    with Hosts(f"kr{os.getpid()}-") as network:
        yield network


@pytest.mark.parametrize("workers", [1, 2])
def test_faces_routes_and_strategies_follow_the_file(
    binary: Path, hosts: Hosts, tmp_path: Path, workers: int
) -> None:
    """Interests go where the file now says; what commands made stays; what is refused changes nothing."""
    near = Router(binary, hosts.near, tmp_path, name="near", workers=workers)
    far = Router(binary, hosts.far, tmp_path, name="far")
    near.start()
    far.start()
    file = tmp_path / "file"
    file.write_bytes(os.urandom(100_000))
    serve(hosts.far, far.transport("unix"), "/py/file", file, tmp_path)

    def change(more: str) -> tuple[int, str]:
        (tmp_path / "kaido.toml").write_text(f"{near.config}\n{more}")
        return reload(near)

    def fetched() -> str:
        return fetch(hosts.near, near.transport("unix"), "/py/file")

    def chosen() -> str:
        return near.tell("strategy", "list")

    face = f'[[ndn.face]]\nremote = "{FACE}"\n'
    route = f'[[ndn.route]]\nprefix = "/py"\nto = "{FACE}"\n'
    strategy = '[[ndn.strategy]]\nprefix = "/py"\nstrategy = "asf"\n'
    assert fetched() == "nack 150"
    code, said = change(face + route + strategy)
    assert code == 0, said
    assert fetched() == digest(file)
    assert "asf" in chosen()
    made = [own["face"] for own in near.faces() if own["remote"] == FACE]
    # Together with what cannot change nothing does.
    for more, why in (
        (strategy.replace("asf", "multicast") + f"{face}mtu = 1000\n", "was made with"),
        (f"{face}[ndn.balance]\nsample = 7\n", "workers have a copy of it"),
    ):
        code, said = change(more)
        assert code == 1
        assert why in said, said
        assert "asf" in chosen()
        assert fetched() == digest(file)
    near.tell("route", "add", "/other", FACE)
    code, said = change(face)
    assert code == 0, said
    assert fetched() == "nack 150"
    assert "asf" not in chosen()
    assert "/other" in near.tell("route", "list")
    code, said = change(face + route)
    assert code == 0, said
    assert fetched() == digest(file)
    assert [own["face"] for own in near.faces() if own["remote"] == FACE] == made
    assert change("")[0] == 0
    assert FACE not in {own["remote"] for own in near.faces()}
    assert fetched() == "nack 150"
    assert near.stop() == 0
    assert far.stop() == 0


def test_who_may_command_follows_the_file(binary: Path, hosts: Hosts, tmp_path: Path) -> None:
    """Which modules without a key, and which keys: their files are read again each time."""
    steps = json.loads((ROOT / "vectors/ndn/commands.json").read_text())["steps"]
    certificate = next(bytes.fromhex(step["certificate"]) for step in steps if "certificate" in step)
    key = tmp_path / "operator.cert"
    key.write_bytes(b64encode(certificate))
    router = Router(binary, hosts.near, tmp_path, name="near")
    router.start()

    def change(more: str) -> tuple[int, str]:
        (tmp_path / "kaido.toml").write_text(
            router.config.replace("[ndn.management]\n", f"[ndn.management]\n{more}")
        )
        return reload(router)

    def obeyed() -> bool:
        command = (str(binary), "ndn", "--router", router.transport("unix"), "cs", "erase", "/x")
        return run(*command, check=False).returncode == 0

    assert obeyed()
    assert change('local = ["rib"]\n')[0] == 0
    assert not obeyed()
    of_key = f'local = ["cs"]\nkey = [{{ certificate = "{key}" }}]\n'
    code, said = change(of_key)
    assert code == 0, said
    assert obeyed()
    key.write_text("no certificate")
    code, said = reload(router)
    assert code == 1
    assert "ndn.management.key" in said, said
    assert obeyed()
    assert router.stop() == 0
