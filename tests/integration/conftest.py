"""Fixtures of the integration tests: real namespaces, the real binary, real kernel sockets."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rig.net import Topology
from rig.node import Node, Sim
from rig.peers import NotHere, build

ROOT = Path(__file__).resolve().parents[2]
#: So many tests may fail at first and pass then. More is a fault of the node, or of what the tests share.
UNSTABLE = 3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip by name what needs root or a program that is not there."""
    for item in items:
        marker = item.get_closest_marker("needs")
        wanted = marker.args if marker else ()
        missing = [name for name in wanted if name != "root" and shutil.which(name) is None]
        if "root" in wanted and os.geteuid() != 0:
            missing.insert(0, "root")
        if missing:
            item.add_marker(pytest.mark.skip(reason=f"needs {', '.join(missing)}"))


def name_of(report: pytest.TestReport) -> str:
    """The test without its file and its group."""
    return report.nodeid.split("::", 1)[-1].partition("@")[0]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name each skipped test with its reason, and what failed at first, in lines that scripts/test finds."""
    for report in terminalreporter.getreports("skipped"):
        _, _, reason = report.longrepr
        terminalreporter.write_line(f"SKIPPED {name_of(report)}: {reason.removeprefix('Skipped: ')}")
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.write_sep("_", f"{name_of(report)}, at first")
        terminalreporter.write_line(report.longreprtext)
        terminalreporter.write_line(f"UNSTABLE {name_of(report)}: failed and was run again")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run with too many tests that failed at first."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and len(reporter.getreports("rerun")) > UNSTABLE:
        reporter.write_line(f"\nmore than {UNSTABLE} tests failed at first", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers, let programs in namespaces find the rig, and hear signals that a shell ignored."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["PYTHONPATH"] = str(ROOT / "tests")
    config.addinivalue_line("markers", "needs(*what): root, or programs, that the test cannot do without")
    config.addinivalue_line("markers", "package: uses the Python package, which is built after the binary")


@pytest.fixture(scope="session")
def binary() -> Path:
    """The kaido binary under test."""
    path = Path(os.environ.get("KAIDO_BINARY", ROOT / "target" / "debug" / "kaido"))
    assert path.exists(), f"{path} is not built: cargo build --package kaido"
    return path


@pytest.fixture
def net() -> Iterator[Topology]:
    """The three namespaces, with names of their own, so that others may run beside."""
    with Topology(f"kt{os.getpid()}-") as topology:
        yield topology


@pytest.fixture
def node(binary: Path, net: Topology, tmp_path: Path) -> Iterator[Node]:
    """A node on AF_XDP."""
    running = Node(binary, net.upf, tmp_path).start()
    yield running
    if not running.ended():
        running.stop()


GoPeer = Callable[[str], Path]


@pytest.fixture
def go_peer() -> GoPeer:
    """Builds a peer of tests/peers: `go_peer("pfcpsim")`. Skips by name a test that cannot have it."""

    def get(name: str) -> Path:
        try:
            return build(name)
        except NotHere as reason:
            pytest.skip(str(reason))

    return get


Attach = Callable[..., Sim]

BASE = "--upf-pfcp 10.100.4.1 --smf 10.100.4.2 --network-instance internet"
OVER_IPV4 = f"{BASE} --upf-gtpu 10.100.3.1 --gnb 10.100.3.2 --ue-ipv4 10.60.0.1 --ue-ipv6 2001:db8:60::/48"
OVER_IPV6 = OVER_IPV4.replace("10.100.3.1", "fd00:3::1").replace("10.100.3.2", "fd00:3::2")


@pytest.fixture
def attach(binary: Path, net: Topology, tmp_path: Path) -> Iterator[Attach]:
    """Attaches UEs: `attach("--ues 1 --tuns 1")`."""
    started: list[Sim] = []

    def start(options: str, base: str = OVER_IPV4) -> Sim:
        arguments = [*base.split(), *options.split(), "--hold"]
        sim = Sim(binary, net.ran, tmp_path, arguments, name=f"sim{len(started)}").start()
        started.append(sim)
        return sim

    yield start
    for sim in started:
        if not sim.ended():
            sim.stop()
