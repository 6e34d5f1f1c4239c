"""Writes docs/conformance.md: which clause of which standard is met, and which test shows it.

A test says what it shows in its doc comment (Rust) or docstring (Python), one line a clause:

    Conformance: TS 29.244 5.4.3 | Maximum bit rate is enforced per direction

What is not done stands in docs/conformance-open.toml, with the reason. `--check` only compares.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "conformance.md"
OPEN = ROOT / "docs" / "conformance-open.toml"
LINE = re.compile(
    r"Conformance: (?P<document>(?:TS|RFC) [\d.]+|NDN (?:0\.3|management)|NDNLPv2|NFD) "
    r"(?P<clause>[\w. -]+) \| (?P<feature>.+)"
)
RUST_ATTRIBUTE = re.compile(r"\s*#\[(?:tokio::)?test\]")
RUST_TEST = re.compile(r"\s*(?:async )?fn (\w+)\(")
TITLES = {
    "TS 23.401": "LTE access, stage 2",
    "TS 23.501": "5G system architecture",
    "TS 23.527": "5G restoration procedures",
    "TS 29.212": "Policy and charging control: flow descriptions",
    "TS 29.244": "PFCP: interface between control plane and user plane",
    "TS 29.281": "GTP-U",
    "TS 29.564": "User plane event exposure",
    "TS 38.415": "PDU session user plane protocol",
    "NDN 0.3": "Named Data Networking: packet format",
    "NDN management": "Named Data Networking: management protocol",
    "NDNLPv2": "Named Data Networking: link protocol",
    "NFD": "NFD developer's guide: how packets are forwarded",
    "RFC 791": "Internet Protocol",
    "RFC 826": "Address resolution",
    "RFC 1071": "Computing the Internet checksum",
    "RFC 1122": "Requirements for hosts",
    "RFC 1191": "Path MTU discovery",
    "RFC 1624": "Updating the Internet checksum",
    "RFC 1812": "Requirements for routers",
    "RFC 2784": "Generic Routing Encapsulation",
    "RFC 2890": "Key and sequence number of GRE",
    "RFC 2983": "Differentiated services and tunnels",
    "RFC 3443": "Time to live through tunnels",
    "RFC 4443": "ICMPv6",
    "RFC 4459": "MTU and fragmentation with tunnels",
    "RFC 4861": "Neighbour discovery",
    "RFC 5103": "Flow records of both directions",
    "RFC 5477": "Packet sampling in flow records",
    "RFC 5722": "Overlapping IPv6 fragments",
    "RFC 6040": "Congestion marks through tunnels",
    "RFC 6733": "Diameter: IPFilterRule",
    "RFC 6902": "JSON Patch",
    "RFC 6946": "Atomic fragments",
    "RFC 7011": "IPFIX",
    "RFC 8200": "IPv6",
    "RFC 9001": "TLS in QUIC",
    "RFC 9369": "QUIC version 2",
}


@dataclass(frozen=True)
class Met:
    """A clause with what shows that it is met, or why it is not."""

    document: str
    clause: str
    feature: str
    shown_by: str
    done: bool


class Fault(Exception):
    """A line that cannot be read."""


def read_line(text: str, place: str, shown_by: str) -> Met:
    """One conformance line."""
    found = LINE.fullmatch(text.strip())
    if not found:
        raise Fault(f"{place}: `{text.strip()}`: write `Conformance: TS 29.244 5.4.3 | what is met`")
    return Met(found["document"], found["clause"], found["feature"].rstrip("."), shown_by, done=True)


def of_rust(path: Path) -> Iterator[Met]:
    """The lines of a Rust file; each belongs to the function that follows."""
    name = path.relative_to(ROOT)
    waiting: list[tuple[int, str]] = []
    is_test = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if "/// Conformance:" in line:
            waiting.append((number, line.split("/// ", 1)[1]))
            is_test = False
        elif waiting and RUST_ATTRIBUTE.match(line):
            is_test = True
        elif waiting and (test := RUST_TEST.match(line)):
            if not is_test:
                raise Fault(f"{name}:{number}: `{test[1]}` has a conformance line and is no test")
            for at, text in waiting:
                yield read_line(text, f"{name}:{at}", f"`{name}`: `{test[1]}`")
            waiting.clear()
    if waiting:
        raise Fault(f"{name}:{waiting[0][0]}: a conformance line with no test behind it")


def of_python(path: Path) -> Iterator[Met]:
    """The lines in the docstrings of a Python file's tests."""
    name = path.relative_to(ROOT)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and (text := ast.get_docstring(node)):
            for line in text.splitlines():
                if line.strip().startswith("Conformance:"):
                    yield read_line(line, f"{name}:{node.lineno}", f"`{name}`: `{node.name}`")


def not_done() -> Iterator[Met]:
    """What the list of open clauses says."""
    for entry in tomllib.loads(OPEN.read_text()).get("open", []):
        document, _, clause = entry["clause"].rpartition(" ")
        yield Met(document, clause, entry["feature"], entry["why"], done=False)


def place(met: Met) -> tuple[object, ...]:
    """Documents by name, clauses by number."""
    numbers = [(int(part), "") if part.isdigit() else (10**6, part) for part in met.clause.split(".")]
    series, _, number = met.document.partition(" ")
    order = ["TS", "RFC"].index(series) if series in ("TS", "RFC") else 2
    numbered = [float(n) for n in number.split(".") if n.isdigit()]
    return (order, numbered, series, numbers, met.feature, met.shown_by)


def table(rows: list[Met]) -> str:
    """The page."""
    clauses = {(row.document, row.clause) for row in rows if row.done}
    done = sum(row.done for row in rows)
    out = [
        "# Conformance",
        "",
        "Which clause is met, and the test that shows it. Made by `python3 tests/conformance.py` from the",
        "tests themselves and from [conformance-open.toml](conformance-open.toml); `make test` runs every",
        "test named here.",
        "",
        f"{done} tests show {len(clauses)} clauses of {len({d for d, _ in clauses})} documents; "
        f"{len(rows) - done} things are not done.",
    ]
    document = ""
    for row in rows:
        if row.document != document:
            document = row.document
            title = TITLES.get(document)
            out += ["", f"## {document}" + (f": {title}" if title else ""), ""]
            out += ["| Clause | Feature | Test, or why not | Met |", "|---|---|---|---|"]
        cells = [row.clause, row.feature, row.shown_by, "yes" if row.done else "no"]
        out.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(out) + "\n"


def main() -> int:
    """Writes the page, or says that it is not what it should be."""
    try:
        rows = [met for path in sorted(ROOT.glob("crates/**/*.rs")) for met in of_rust(path)]
        rows += [met for path in sorted(ROOT.glob("tests/integration/*.py")) for met in of_python(path)]
        rows += not_done()
    except Fault as fault:
        print(fault, file=sys.stderr)
        return 1
    text = table(sorted(rows, key=place))
    if "--check" not in sys.argv[1:]:
        TABLE.write_text(text)
        return 0
    if TABLE.read_text() != text:
        print("docs/conformance.md is not up to date: run `python3 tests/conformance.py`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
