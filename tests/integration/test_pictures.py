"""The page as it looks, beside pictures of how it looked: of a node that never changes, in both browsers.

`KAIDO_RECORD=pictures` paints the pictures anew, for somebody to look at; `KAIDO_RECORD=answers` asks real
nodes before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from conftest import Attach
from PIL import Image, ImageChops
from rig.browser import Browser
from rig.net import Topology, run
from rig.node import Node
from rig.still import EVENTS, Api, Still, served
from test_page import FUNCTIONS, PAGES, SCREENS, functions, go, serving, shown, text_has, until
from test_vxlan import PEER_INNER

FOLDER = Path(__file__).resolve().parents[1] / "pages"
RECORD = os.environ.get("KAIDO_RECORD", "")
#: How many times smaller a picture is than the page. Where things are is compared, not how letters are drawn.
SMALLER = 4
#: Levels, of 255, by which a pixel may differ, and the share of pixels that may differ by more.
LEVELS = 40
SHARE = 0.003

__all__ = ["serving", "shown"]

looks = pytest.mark.parametrize(
    ("screen", "shown"),
    [("narrow", "chromium"), ("dark", "chromium"), ("narrow", "firefox")],
    indirect=["shown"],
)


@pytest.fixture
def api(binary: Path) -> Api:
    """The API of the binary under test."""
    return Api(binary)


@pytest.fixture
def until_the_end() -> Iterator[ExitStack]:
    """What ends with the test."""
    with ExitStack() as stack:
        yield stack


def looks_as_before(
    shown: Browser, url: str, screen: str, pages: dict[str, str], pictures: Path, folder: Path
) -> None:
    """Each page is the picture that was kept of it, but for how its letters are drawn."""
    if "DejaVu" not in run("fc-match", "DejaVu Sans").stdout:
        pytest.skip("the font DejaVu is not installed")
    width, height, dark = SCREENS[screen]
    shown.open(f"{url}/", width, height, dark)
    until(shown, f"return window.looked >= {EVENTS}", "the node tells nothing")
    text_has(shown, "Datapath")
    faults = []
    for page, heading in pages.items():
        go(shown, f"#{page}", heading)
        shown.later("await document.fonts.ready; await new Promise(requestAnimationFrame);")
        name = f"{page.partition('?')[0]}-{screen}-{type(shown).__name__.lower()}.png"
        whole = folder / name
        shown.screenshot(whole, whole=True)
        painted = Image.open(whole).convert("RGB").reduce(SMALLER)
        kept = pictures / name
        if RECORD:
            pictures.mkdir(exist_ok=True)
            painted.save(kept, optimize=True)
        elif fault := differs(painted, Image.open(kept).convert("RGB")):
            faults.append(f"{name}: {fault}; the page is in {whole}")
    assert not faults, "\n".join([*faults, "KAIDO_RECORD=pictures paints them anew"])


def differs(one: Image.Image, other: Image.Image) -> str | None:
    """How a picture differs from another."""
    if one.size != other.size:
        return f"{one.size} and not {other.size}"
    bands = ImageChops.difference(one, other).split()
    widest = ImageChops.lighter(ImageChops.lighter(bands[0], bands[1]), bands[2])
    beyond = sum(widest.histogram()[LEVELS:])
    share = beyond / (one.width * one.height)
    return f"{share:.1%} differs" if share > SHARE else None


def still(name: str, api: Api, node: Callable[[], Path]) -> Still:
    """What was recorded of a node; or a node, whose answers are."""
    if RECORD != "answers":
        return Still.read(FOLDER / f"{name}.json")
    recording = Still(node=node())
    recording.listen()
    return recording


@looks
@pytest.mark.needs("fc-match")
def test_the_pages_of_a_user_plane_look_as_they_did(
    api: Api, shown: Browser, screen: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """With sessions, peers, drops and charts."""

    def node() -> Path:
        net: Topology = request.getfixturevalue("net")
        attach: Attach = request.getfixturevalue("attach")
        running: Node = request.getfixturevalue("serving")
        attach("--ues 12 --tuns 2 --dialect free5gc")
        for ue, wait in (("ue0", "0.01"), ("ue1", "0.05")):
            net.ran.start("ping", "-q", "-i", wait, "-w", "30", "-I", ue, "10.100.6.2")
        # No session has this address.
        net.dn.start("ping", "-q", "-i", "0.02", "-w", "30", "10.60.0.200")
        return running.socket

    recorded = still("upf", api, node)
    seid = recorded.answer("/v1/sessions?skip=0&limit=50")["sessions"][0]["seid"]
    with served(recorded, api) as url:
        looks_as_before(
            shown, url, screen, {**PAGES, f"session?seid={seid}": "Session"}, FOLDER / "upf", tmp_path
        )
    if RECORD == "answers":
        recorded.write(FOLDER / "upf.json")


@looks
@pytest.mark.needs("fc-match")
def test_the_pages_of_the_other_functions_look_as_they_did(
    api: Api, binary: Path, shown: Browser, screen: str, tmp_path: Path, until_the_end: ExitStack
) -> None:
    """With faces, names, content and neighbours."""

    def node() -> Path:
        running, hosts, applications = until_the_end.enter_context(functions(binary, tmp_path))
        for name in ("/site/content", "/site/content/of/a/name/that/is/long"):
            content = tmp_path / "content"
            content.write_bytes(bytes(range(256)) * 40)
            applications.background("put", name, str(content))
            applications.ndn("cat", name, "-o", str(tmp_path / "fetched"))
        hosts.host.start("ping", "-q", "-i", "0.05", "-w", "30", PEER_INNER)
        return running.socket

    recorded = still("functions", api, node)
    face = recorded.answer("/v1/ndn/faces?limit=50")["faces"][0]["face"]
    pages = {"overview": "Overview", **FUNCTIONS, f"face?face={face}": "Face"}
    with served(recorded, api) as url:
        looks_as_before(shown, url, screen, pages, FOLDER / "functions", tmp_path)
    if RECORD == "answers":
        recorded.write(FOLDER / "functions.json")


@pytest.mark.parametrize("name", ["upf", "functions"])
def test_what_was_recorded_is_what_nodes_answer(api: Api, name: str) -> None:
    """The pictures are of answers as the API's document has them."""
    recorded = Still.read(FOLDER / f"{name}.json")
    assert recorded.answers
    faults = [fault for target, answer in recorded.answers.items() for fault in api.faults(target, answer)]
    assert not faults, "\n".join([*faults, "KAIDO_RECORD=answers asks real nodes anew"])
