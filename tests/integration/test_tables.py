"""Routes and neighbours of a node, as it is asked for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rig.http import ask
from rig.net import Topology, run, wait_until
from rig.node import Node

#: Behind the data network.
FAR, FAR6 = "192.0.2.0/24", "2001:db8:f::/48"


@pytest.fixture
def routing(binary: Path, net: Topology, tmp_path: Path) -> Node:
    """A user plane with routes to the data network, one of them twice."""
    net.upf.ip("route", "add", FAR, "via", "10.100.6.2", "metric", "5")
    net.upf.ip("route", "add", FAR, "via", "10.100.3.2", "metric", "9")
    net.upf.ip("route", "add", FAR6, "via", "fd00:6::2")
    net.upf.ip("route", "add", "blackhole", "198.51.100.0/24")
    return Node(binary, net.upf, tmp_path, driver="af_packet").start()


def get(node: Node, target: str) -> Any:
    """The document at a path."""
    status, document = ask(node.socket, "GET", f"/v1/{target}")
    assert status == 200, document
    return document


@pytest.mark.needs("root", "ip")
def test_routes_are_listed_as_the_kernel_has_them(routing: Node, net: Topology) -> None:
    """By prefix, address, port and gateway, by pages, and as they change."""
    both = get(routing, "routes?address=192.0.2.7")
    assert both["total"] == 2
    assert [(route["port"], route["gateway"], route["used"]) for route in both["routes"]] == [
        ("n3", "10.100.3.2", False),
        ("n6", "10.100.6.2", True),
    ]
    assert {(route["prefix"], route["function"]) for route in both["routes"]} == {(FAR, "upf")}
    (far6,) = get(routing, "routes?gateway=fd00:6::2")["routes"]
    assert (far6["prefix"], far6["port"]) == (FAR6, "n6")
    (stop,) = get(routing, "routes?address=198.51.100.1")["routes"]
    assert (stop["port"], stop["gateway"], stop["used"]) == (None, None, True)
    assert get(routing, "routes?function=gre") == {"total": 0, "routes": []}
    link = [route["prefix"] for route in get(routing, "routes?port=n3")["routes"]]
    assert "10.100.3.0/24" in link
    whole = get(routing, "routes")
    parts = [get(routing, f"routes?limit=2&skip={skip}") for skip in range(0, whole["total"], 2)]
    assert [route for part in parts for route in part["routes"]] == whole["routes"]
    assert ask(routing.socket, "GET", "/v1/routes?address=here")[0] == 400
    net.upf.ip("route", "delete", FAR, "via", "10.100.6.2", "metric", "5")
    wait_until(
        lambda: [route["port"] for route in get(routing, "routes?address=192.0.2.7")["routes"]] == ["n3"],
        "the route is gone",
    )
    assert routing.stop() == 0


@pytest.mark.needs("root", "ip", "ping")
def test_neighbours_are_listed_with_their_states(routing: Node, net: Topology) -> None:
    """One that stays, one that does not answer, and those of one port."""
    net.upf.ip("neighbour", "replace", "10.100.6.9", "lladdr", "02:00:00:00:00:09", "dev", "n6")

    def named(query: str) -> list[tuple[str, str, str | None, str]]:
        return [
            (one["address"], one["port"], one["mac"], one["state"])
            for one in get(routing, f"neighbours?{query}")["neighbours"]
        ]

    stays = ("10.100.6.9", "n6", "02:00:00:00:00:09", "permanent")
    failed = ("10.100.3.9", "n3", None, "failed")
    wait_until(lambda: named("address=10.100.6.9") == [stays], "the neighbour is there")
    assert not net.upf.pings("10.100.3.9", count=1, patience=1)
    wait_until(lambda: named("address=10.100.3.9") == [failed], "the one that does not answer is there")
    assert named("state=failed") == [failed]
    assert stays in named("port=n6")
    assert failed not in named("port=n6")
    assert named("function=gre") == []
    status, problem = ask(routing.socket, "GET", "/v1/neighbours?state=gone")
    assert status == 400
    assert "is none of incomplete, reachable" in problem["detail"]
    net.upf.ip("neighbour", "delete", "10.100.6.9", "dev", "n6")
    wait_until(lambda: stays not in named("port=n6"), "the neighbour is gone")
    assert routing.stop() == 0


@pytest.mark.needs("root", "ip")
def test_commands_show_routes_and_neighbours(routing: Node, net: Topology, binary: Path) -> None:
    """As tables with the way to the next page, as JSON, and again and again."""
    at = ("--socket", str(routing.socket))

    def shown(*arguments: str) -> str:
        return run(str(binary), *arguments, *at).stdout

    lines = shown("routes", "--address", "192.0.2.1").splitlines()
    assert lines[0].split() == ["prefix", "port", "gateway", "metric", "used", "vrf", "function"]
    assert [line.split() for line in lines[1:]] == [
        [FAR, "n3", "10.100.3.2", "9", "no", "main", "upf"],
        [FAR, "n6", "10.100.6.2", "5", "yes", "main", "upf"],
    ]
    assert "more: --skip 1" in shown("routes", "--limit", "1")
    assert json.loads(shown("routes", "--gateway", "10.100.6.2", "--json"))["total"] == 1
    net.upf.ip("neighbour", "replace", "10.100.6.9", "lladdr", "02:00:00:00:00:09", "dev", "n6")
    wait_until(
        lambda: "02:00:00:00:00:09" in shown("neighbours", "--state", "permanent"), "the neighbour is shown"
    )
    again = run("timeout", "1", str(binary), "neighbours", *at, "--watch", "0.2", check=False)
    assert again.stdout.count("address") > 1
    refused = run(str(binary), "neighbours", *at, "--state", "gone", check=False)
    assert "possible values: incomplete, reachable" in refused.stderr
    assert routing.stop() == 0
