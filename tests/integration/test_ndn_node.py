"""A node that routes NDN, by its own tools: commanded, listed, scraped, fetched from."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rig.http import ask
from rig.net import wait_until


@dataclass
class Router:
    """`kaido run` with function = "ndn", on sockets of its own."""

    binary: Path
    folder: Path
    name: str = "a"
    more: str = ""
    workers: int = 1
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def unix(self) -> Path:
        """Where applications connect."""
        return self.folder / f"{self.name}.sock"

    @property
    def control(self) -> Path:
        """Its control socket."""
        return self.folder / f"{self.name}-control.sock"

    @property
    def log(self) -> Path:
        """Where its log goes."""
        return self.folder / f"{self.name}.log"

    def start(self) -> Router:
        """Start it and wait until it answers."""
        config = self.folder / f"{self.name}.toml"
        config.write_text(
            f'function = "ndn"\n[node]\nworkers = {self.workers}\n[control]\nsocket = "{self.control}"\n'
            f'[ndn.listen]\nunix = "{self.unix}"\n{self.more}'
        )
        with self.log.open("w") as log:
            command = [str(self.binary), "run", "-c", str(config)]
            self.started.append(subprocess.Popen(command, stderr=log, text=True))
        wait_until(lambda: self.ndn("status", check=False).returncode == 0, "the router answers")
        return self

    def ndn(self, *words: str, check: bool = True, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        """`kaido ndn` as an application of this router."""
        command = [str(self.binary), "ndn", "--router", f"unix://{self.unix}", *words]
        done = subprocess.run(command, check=False, timeout=timeout, text=True, capture_output=True)
        assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done

    def json(self, *words: str) -> Any:
        """What a listing says."""
        return json.loads(self.ndn("--json", *words).stdout)

    def at_socket(self, *words: str) -> str:
        """What `kaido ndn` prints that asks at the control socket."""
        command = [str(self.binary), "ndn", *words, "--socket", str(self.control)]
        return subprocess.run(command, check=True, timeout=60, text=True, capture_output=True).stdout

    def background(self, *words: str) -> subprocess.Popen[str]:
        """An application that goes on; returns when it has said its first line."""
        command = [str(self.binary), "ndn", "--router", f"unix://{self.unix}", *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline(), self.log.read_text()
        return process

    def stop(self) -> list[int]:
        """Stop it and its applications; their exit codes, the router's last."""
        codes = []
        for process in reversed(self.started):
            process.send_signal(signal.SIGTERM)
            codes.append(process.wait(timeout=60))
        return codes


@pytest.fixture
def router(binary: Path, tmp_path: Path) -> Iterator[Router]:
    """A router with nothing but its Unix socket."""
    router = Router(binary, tmp_path).start()
    yield router
    assert set(router.stop()) == {0}, router.log.read_text()


def test_content_comes_through(router: Router, tmp_path: Path) -> None:
    """Ten megabytes are published and fetched with equal octets, the second time in part from the cache."""
    content = os.urandom(10_000_000)
    (tmp_path / "content").write_bytes(content)
    router.background("put", "/site/content", str(tmp_path / "content"))
    for _ in range(2):
        router.ndn("cat", "/site/content", "-o", str(tmp_path / "fetched"))
        fetched = (tmp_path / "fetched").read_bytes()
        assert hashlib.sha256(fetched).digest() == hashlib.sha256(content).digest()
    info = router.json("cs", "info")
    assert info["hits"] > 0
    assert info["octets"] > 10_000_000
    assert info["refused"] == 0
    router.ndn("peek", "/site/content", "--prefix", "-o", str(tmp_path / "peeked"))
    assert (tmp_path / "peeked").read_bytes() in content, "any of the segments"


def test_workers_share_the_names(binary: Path, tmp_path: Path) -> None:
    """Ten megabytes through two workers, over Unix and UDP: both have their part, and nothing is lost."""
    port = 17011
    router = Router(
        binary,
        tmp_path,
        more=f'udp = ["127.0.0.1:{port}"]\n[metrics]\nlisten = "127.0.0.1:17106"\n',
        workers=2,
    ).start()
    content = os.urandom(10_000_000)
    (tmp_path / "content").write_bytes(content)
    router.background("put", "/site/content", str(tmp_path / "content"))
    for uri in (f"udp4://127.0.0.1:{port}", f"unix://{router.unix}"):
        command = [
            str(binary),
            "ndn",
            "--router",
            uri,
            "cat",
            "/site/content",
            "-o",
            str(tmp_path / "fetched"),
        ]
        subprocess.run(command, check=True, timeout=240)
        assert (tmp_path / "fetched").read_bytes() == content, uri
    with urllib.request.urlopen("http://127.0.0.1:17106/metrics", timeout=10) as answer:
        lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[:1] != "#")
    satisfied = [
        float(lines[f'kaido_ndn_interests_ended_total{{worker="{worker}",how="satisfied"}}'])
        for worker in (0, 1)
    ]
    assert min(satisfied) > 0.35 * sum(satisfied) > 400
    assert float(lines['kaido_ndn_handoff_packets_total{worker="0",kind="interest"}']) > 0
    assert float(lines['kaido_port_drops_total{port="workers",reason="handoff_full"}']) == 0
    assert float(lines["kaido_ndn_hot_names"]) == 0
    info = router.json("cs", "info")
    assert info["entries"] > 1400
    erased = router.ndn("cs", "erase", "/site/content").stdout
    # What the management has said of the router is left.
    assert router.json("cs", "info")["entries"] < 100, erased
    assert set(router.stop()) == {0}, router.log.read_text()


def test_the_status_shows_workers_and_hot_names(binary: Path, tmp_path: Path) -> None:
    """Each worker has its part, its tables and what it handed over; a name most ask for is shown as hot."""
    more = '[metrics]\nlisten = "127.0.0.1:17107"\n[ndn.balance]\nsample = 1\n'
    router = Router(binary, tmp_path, more=more, workers=2).start()
    shown = router.json("status")
    assert [worker["worker"] for worker in shown["workers"]] == [0, 1]
    assert shown["hot_names"] == []
    # One Interest at a time: a station does not ask for what it waits for.
    bench = ["bench", "ndn", "--duration", "2", "--names", "100", "--zipf", "1.5", "--window", "1"]
    command = [str(binary), *bench, "--router", f"unix://{router.unix}"]

    def asked_enough() -> bool:
        nonlocal shown
        subprocess.run(command, check=True, timeout=120, capture_output=True)
        shown = router.json("status")
        return min(worker["packets"] for worker in shown["workers"]) > 100 and bool(shown["hot_names"])

    wait_until(asked_enough, "both workers have had many packets, and many of one name", 120)
    workers = shown["workers"]
    assert sum(worker["share"] for worker in workers) == pytest.approx(1)
    assert min(worker["share"] for worker in workers) > 0.1
    assert sum(worker["cs_max"] for worker in workers) == 65_536
    assert all(0 < worker["cs_entries"] <= worker["cs_max"] for worker in workers)
    assert all(worker["pit_entries"] < worker["pit_max"] == 65_536 for worker in workers)
    # The sockets are the first worker's.
    assert workers[0]["handoffs"]["interests"] > 100
    hot = shown["hot_names"]
    assert all(name["name"].startswith("/kaido/") and name["share"] < 1 for name in hot), hot
    text = router.ndn("status").stdout
    assert "handed over" in text
    assert hot[0]["name"] in text
    with urllib.request.urlopen("http://127.0.0.1:17107/v1/ndn", timeout=10) as answer:
        scraped = json.loads(answer.read())
    assert [worker["worker"] for worker in scraped["workers"]] == [0, 1]
    assert hot[0]["name"] in [name["name"] for name in scraped["hot_names"]]
    assert set(router.stop()) == {0}, router.log.read_text()


def test_content_outlives_its_producer_and_the_router(binary: Path, tmp_path: Path) -> None:
    """What memory gave up is on disk after a restart, with equal octets and no producer, until erased."""
    disk = tmp_path / "disk"
    more = f'[ndn.cs]\npackets = 64\n[ndn.cs.disk]\npath = "{disk}"\nsize_mib = 64\n'
    content = os.urandom(3_000_000)
    (tmp_path / "content").write_bytes(content)
    first = Router(binary, tmp_path, "first", more).start()
    first.background("put", "/site/content", str(tmp_path / "content"), "--fresh", "3600")
    first.ndn("cat", "/site/content", "-o", str(tmp_path / "fetched"))
    wait_until(lambda: first.json("cs", "info")["disk"]["packets"] >= 360, "memory gives up the most")
    second = tmp_path / "second.toml"
    text = (tmp_path / "first.toml").read_text()
    second.write_text(text.replace("first-", "second-").replace("first.sock", "second.sock"))
    command = [str(binary), "run", "-c", str(second)]
    refused = subprocess.run(command, check=False, timeout=60, text=True, capture_output=True)
    assert refused.returncode != 0
    assert "is in use by" in " ".join(refused.stderr.split())
    assert set(first.stop()) == {0}, first.log.read_text()

    again = Router(binary, tmp_path, "again", more).start()
    assert again.json("cs", "info")["disk"]["packets"] >= 429, "what memory held is there too"
    again.ndn("cat", "/site/content", "-o", str(tmp_path / "again-fetched"))
    fetched = (tmp_path / "again-fetched").read_bytes()
    assert hashlib.sha256(fetched).digest() == hashlib.sha256(content).digest()
    # The listing is a second old at most.
    wait_until(lambda: again.json("cs", "info")["disk"]["hits"] >= 300, "the disk has answered")
    # Some of it, from memory and then from disk, and the rest.
    assert "erased 300 Data" in again.ndn("cs", "erase", "/site", "--count", "300").stdout
    assert again.json("cs", "info")["disk"]["packets"] < 300
    rest = again.ndn("cs", "erase", "/site", "--count", "100000").stdout
    assert 100 < int(rest.split()[1]) < 300, rest
    gone = again.ndn("cat", "/site/content", "--lifetime", "0.2", "--retries", "1", check=False)
    assert gone.returncode != 0
    again.ndn("cs", "erase", "/site")
    gone = again.ndn("cat", "/site/content", "--lifetime", "0.2", "--retries", "1", check=False)
    assert gone.returncode != 0
    assert set(again.stop()) == {0}, again.log.read_text()


def test_pings_are_answered(router: Router) -> None:
    """A ping server answers through the router; where nobody serves, the exit code says so."""
    router.background("ping", "/site", "--serve")
    said = router.json("ping", "/site", "--count", "20", "--interval", "0.01")
    assert (said["sent"], said["received"]) == (20, 20)
    assert 0 < said["min_us"] <= said["mean_us"] <= said["max_us"]
    refused = router.ndn("ping", "/nowhere", "--count", "1", check=False)
    assert refused.returncode != 0
    assert "no route leads to the name" in refused.stdout
    assert "nobody has answered" in refused.stderr


def test_an_application_below_the_prefix_of_another_is_asked(router: Router, tmp_path: Path) -> None:
    """At the same cost a prefix's own route goes before the one that it inherits."""
    (tmp_path / "content").write_text("ours")
    router.background("put", "/site", str(tmp_path / "content"))
    router.background("ping", "/site/lab", "--serve")
    said = router.json("ping", "/site/lab", "--count", "3", "--interval", "0.01")
    assert (said["sent"], said["received"]) == (3, 3)
    assert router.ndn("cat", "/site").stdout == "ours"


def test_it_is_commanded(router: Router) -> None:
    """Routes, strategies and the cache change on command; what cannot be is refused with its reason."""
    assert router.json("status")["version"].startswith("Kaido")
    neighbour = socket.create_server(("127.0.0.1", 0))
    uri = f"tcp4://127.0.0.1:{neighbour.getsockname()[1]}"
    router.ndn("route", "add", "/far", uri, "--cost", "7", "--capture")
    route = next(route for route in router.json("route", "list") if route["prefix"] == "/far")
    assert (route["cost"], route["origin"], route["capture"], route["inherit"]) == (7, 255, True, True)
    face = next(face for face in router.json("face", "list") if face["face"] == route["face"])
    assert (face["remote"], face["scope"], face["persistency"]) == (
        uri,
        "local",
        "persistent",
    )
    router.ndn("route", "remove", "/far", uri)
    assert not [route for route in router.json("route", "list") if route["prefix"] == "/far"]
    router.ndn("face", "destroy", str(route["face"]))
    assert route["face"] not in [face["face"] for face in router.json("face", "list")]

    router.ndn("strategy", "set", "/far", "asf")
    chosen = {choice["prefix"]: choice["strategy"] for choice in router.json("strategy", "list")}
    assert chosen["/far"].startswith("/localhost/nfd/strategy/asf/v=")
    router.ndn("strategy", "unset", "/far")
    assert [choice["prefix"] for choice in router.json("strategy", "list")] == ["/"]

    router.ndn("cs", "config", "--capacity", "100", "--serve", "off")
    info = router.json("cs", "info")
    assert (info["capacity"], info["admits"], info["serves"]) == (100, True, False)

    for words, reason in (
        (("strategy", "set", "/far", "worst"), "no such strategy"),
        (("route", "add", "/far", "99999"), "no such face"),
        (("face", "create", "udp4://127.0.0.1:9"), "no UDP socket"),
        (("route", "remove", "/far", "tcp4://127.0.0.1:10"), "no face leads"),
        (("route", "add", "far", "300"), "is no name"),
        (("peek", "/nowhere"), "no route leads to the name"),
    ):
        refused = router.ndn(*words, check=False)
        assert refused.returncode != 0
        assert reason in " ".join(refused.stderr.split()), refused.stderr


def test_tables_are_listed(binary: Path, tmp_path: Path) -> None:
    """FIB, PIT, Content Store, faces and strategies by the API: by pages, by prefix, by face."""
    router = Router(binary, tmp_path, workers=2).start()

    def get(what: str, **parameters: object) -> Any:
        query = urllib.parse.urlencode(parameters)
        status, document = ask(router.control, "GET", f"/v1/ndn/{what}?{query}")
        assert status == 200, document
        return document

    def pages(what: str, rows: str, **parameters: object) -> list[Any]:
        """All rows of a list, some a page."""
        found: list[Any] = []
        place: dict[str, object] = {}
        while True:
            page = get(what, **parameters, **place)
            assert len(page[rows]) <= int(str(parameters["limit"]))
            found += page[rows]
            if page["next"] is None:
                return found
            place = {"from": page["next"]}

    content = os.urandom(1_000_000)
    (tmp_path / "content").write_bytes(content)
    router.background("put", "/site/content", str(tmp_path / "content"), "--fresh", "3600")
    router.ndn("cat", "/site/content", "-o", str(tmp_path / "fetched"))
    # Somebody who does not answer.
    silent = socket.create_server(("127.0.0.1", 0))
    remote = f"tcp4://127.0.0.1:{silent.getsockname()[1]}"
    router.ndn("route", "add", "/silent", remote, "--cost", "7")
    (face,) = get("faces", remote=remote)["faces"]
    assert (face["scope"], face["state"], face["persistency"]) == ("local", "up", "persistent")
    (entry,) = get("fib", prefix="/silent")["entries"]
    assert entry == {"prefix": "/silent", "next_hops": [{"face": face["face"], "cost": 7}]}
    assert get("fib", face=face["face"])["entries"] == [entry]
    whole = pages("fib", "entries", limit=2)
    assert [entry["prefix"] for entry in get("fib")["entries"]] == [entry["prefix"] for entry in whole]
    assert get("fib")["total"] == len(whole) >= 4

    asks = [str(binary), "ndn", "--router", f"unix://{router.unix}", "peek"]
    waiting = [
        subprocess.Popen(
            [*asks, f"/silent/{number}", "--lifetime", "30", "--fresh"],
            stderr=subprocess.DEVNULL,
        )
        for number in range(5)
    ]
    try:
        wait_until(lambda: len(pages("pit", "entries", prefix="/silent", limit=2)) == 5, "Interests wait")
        pending = pages("pit", "entries", prefix="/silent", limit=2)
        assert {one["name"] for one in pending} == {f"/silent/{number}" for number in range(5)}
        for one in pending:
            (asked,) = one["upstreams"]
            (waits,) = one["downstreams"]
            assert asked["face"] == face["face"]
            assert (asked["nack"], one["nonces"], asked["nonce"]) == (None, 1, waits["nonce"])
            assert (one["must_be_fresh"], one["can_be_prefix"], one["parked"]) == (True, False, False)
            assert 0 <= asked["sent_ms"] == one["age_ms"] < 30_000
            assert 0 < one["expires_ms"] == waits["expires_ms"] <= 30_000
        assert get("pit", prefix="/silent/3/deeper")["entries"] == []
        assert sum(worker["pit"]["entries"] for worker in get("tables")["workers"]) >= 5
        shown = router.at_socket("pit", "--prefix", "/silent")
        assert [line.split()[0] for line in shown.splitlines()[:1]] == ["name"]
        assert "/silent/4" in shown
    finally:
        for process in waiting:
            process.terminate()
            process.wait(timeout=20)

    kept = pages("cs", "entries", prefix="/site", limit=100)
    # The first segment was found by its prefix, too, maybe with another worker.
    found = [(one["worker"], one["name"]) for one in kept]
    assert len(set(found)) == len(found) > 120
    assert all(name.startswith("/site/content") for _, name in found)
    assert {one["worker"] for one in kept} == {0, 1}
    segments = [one for one in kept if "/seg=" in one["name"]]
    assert all(0 < one["fresh_ms"] <= 3_600_000 and one["bytes"] > 0 for one in segments)
    tables = get("tables")
    assert sum(worker["cs"]["entries"] for worker in tables["workers"]) >= len(kept)
    assert all(worker["dead_nonces"]["nonces_max"] > 1000 for worker in tables["workers"])
    wait_until(
        lambda: get("tables")["faces"] == get("faces")["total"] == len(pages("faces", "faces", limit=2)),
        "the faces of those who have gone are gone",
    )

    router.ndn("strategy", "set", "/far", "asf")
    assert [one["prefix"] for one in pages("strategies", "strategies", limit=1)] == ["/", "/far"]
    (chosen,) = get("strategies", prefix="/far")["strategies"]
    assert chosen["strategy"].startswith("/localhost/nfd/strategy/asf/v=")
    for wrong in ("fib?prefix=far", "pit?limit=0", "cs?from=x", "faces?from=-1", "fib?limit=1001"):
        status, problem = ask(router.control, "GET", f"/v1/ndn/{wrong}")
        assert (status, problem["status"]) == (400, 400), wrong

    listed = json.loads(router.at_socket("cs", "list", "--prefix", "/site", "--limit", "9", "--json"))
    assert (len(listed["entries"]), listed["next"] is None) == (9, False)
    assert "there may be more: --from" in router.at_socket("cs", "list", "--limit", "1")
    assert f"{face['face']} (cost 7)" in router.at_socket("fib", "--face", str(face["face"]))
    assert "dead nonces" in router.at_socket("tables")
    assert set(router.stop()) == {0}, router.log.read_text()


def test_neighbours_forward(binary: Path, tmp_path: Path) -> None:
    """Content crosses two routers over UDP whose packets are cut to 1000 octets, by a route of the file."""
    near_port, far_port = 17001, 17002
    far = Router(binary, tmp_path, "far", f'udp = ["127.0.0.1:{far_port}"]\nudp_mtu = 1000\n').start()
    near = Router(
        binary,
        tmp_path,
        "near",
        f'udp = ["127.0.0.1:{near_port}"]\nudp_mtu = 1000\n'
        f'[[ndn.face]]\nremote = "udp4://127.0.0.1:{far_port}"\n'
        f'[[ndn.route]]\nprefix = "/site"\nto = "udp4://127.0.0.1:{far_port}"\n',
    ).start()
    content = os.urandom(300_000)
    (tmp_path / "content").write_bytes(content)
    far.background("put", "/site/content", str(tmp_path / "content"))
    near.ndn("cat", "/site/content", "-o", str(tmp_path / "fetched"))
    assert (tmp_path / "fetched").read_bytes() == content
    face = next(face for face in near.json("face", "list") if face["remote"].endswith(str(far_port)))
    assert face["received"]["data"] >= 43
    assert face["persistency"] == "permanent"
    for router in (near, far):
        assert set(router.stop()) == {0}, router.log.read_text()


def test_it_is_scraped(binary: Path, tmp_path: Path) -> None:
    """The endpoint has what the router's own listings say."""
    router = Router(binary, tmp_path, more='[metrics]\nlisten = "127.0.0.1:17105"\n').start()
    router.background("ping", "/site", "--serve")
    router.ndn("ping", "/site", "--count", "5", "--interval", "0.01")
    with urllib.request.urlopen("http://127.0.0.1:17105/metrics", timeout=10) as answer:
        lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[:1] != "#")
    assert float(lines['kaido_ndn_packets_total{worker="0",direction="sent",kind="data"}']) >= 5
    assert float(lines['kaido_ndn_interests_ended_total{worker="0",how="satisfied"}']) >= 5
    assert float(lines["kaido_ndn_prefixes"]) == len(
        {route["prefix"] for route in router.json("route", "list")}
    )
    assert set(router.stop()) == {0}, router.log.read_text()


def test_a_router_that_cannot_start_says_why(router: Router, binary: Path, tmp_path: Path) -> None:
    """A second router on the same socket, and one with a certificate that is none."""
    second = tmp_path / "second.toml"
    start = (
        f'function = "ndn"\n[control]\nsocket = "{tmp_path}/2.sock"\n[ndn.listen]\nunix = "{router.unix}"\n'
    )
    (tmp_path / "wrong.cert").write_text("bm8gRGF0YQ==\n")
    for text, reason in (
        (start, "another router may listen there"),
        (
            start.replace("a.sock", "b.sock")
            + f'[[ndn.management.key]]\ncertificate = "{tmp_path}/wrong.cert"\n',
            "it is no NDN Data packet",
        ),
    ):
        second.write_text(text)
        command = [str(binary), "run", "-c", str(second)]
        done = subprocess.run(command, check=False, timeout=60, text=True, capture_output=True)
        assert done.returncode != 0
        assert reason in " ".join(done.stderr.split()), done.stderr


def test_exchanges_in_both_directions_are_judged(binary: Path, tmp_path: Path) -> None:
    """Stations at two routers ask for each other's names, a billion of them; all comes once and right."""
    ports = {"left": 17003, "right": 17004}
    routers = []
    for name, other in (("left", "right"), ("right", "left")):
        more = f'udp = ["127.0.0.1:{ports[name]}"]\n[ndn.cs]\npackets = 1000\n'
        more += f'[[ndn.face]]\nremote = "udp4://127.0.0.1:{ports[other]}"\n'
        more += f'[[ndn.route]]\nprefix = "/kaido"\ncost = 9\nto = "udp4://127.0.0.1:{ports[other]}"\n'
        routers.append(Router(binary, tmp_path, name, more).start())
    where = ",".join(f"unix://{router.unix}" for router in routers)

    def bench(*words: str, asked: int) -> Any:
        """A run in which each station asks so often, however long that takes."""
        for seconds in (1, 5, 25):
            run = ["--duration", str(seconds), "--lifetime", "10000", "--json", "-", *words]
            done = subprocess.run(
                [str(binary), "bench", "ndn", *run], check=False, timeout=120, text=True, capture_output=True
            )
            assert done.returncode == 0, done.stderr
            report = json.loads(done.stdout)
            if all(station["asked"] > asked for station in report["stations"]):
                break
        return report

    routers[0].ndn("cs", "config", "--capacity", "0")
    routers[1].ndn("cs", "config", "--capacity", "0")
    once = bench("--router", where, "--window", "16", asked=100)
    for station in once["stations"]:
        assert station["answered"] == station["asked"] > 100
    assert sum(station["served"] for station in once["stations"]) == sum(s["asked"] for s in once["stations"])
    assert once["saved_share"] == 0.0

    # At one router, which keeps what it has seen: popular names are answered without their producer.
    routers[0].ndn("cs", "config", "--capacity", "9999")
    assert routers[0].json("cs", "info")["capacity"] == 1000, "as much as the file gives it"
    skewed = ("--names", "10000", "--zipf", "1.1", "--seed", "2")
    popular = bench("--router", f"unix://{routers[0].unix}", *skewed, asked=5000)
    assert popular["saved_share"] > 0.3
    for router in routers:
        assert set(router.stop()) == {0}, router.log.read_text()
