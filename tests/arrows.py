"""Draws what depends on what: crates, and the modules of each.

    tests/arrows.py             writes docs/arrows.md: the crates' graph
    tests/arrows.py --check     says whether that page is what the code says, and no modules are in a circle
    tests/arrows.py CRATE       prints the graph of a crate's modules, as Mermaid

A module points to those that its code names by `crate::`, `super::` and `self::`, tests apart. What a parent
declares or gives out again is no arrow.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "arrows.md"

Graph = dict[str, set[str]]


def crates() -> Graph:
    """The crates of the workspace and those that they are built of, without what only tests need."""
    known = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["dependencies"]
    ours = {
        name: Path(it["path"]).name for name, it in known.items() if isinstance(it, dict) and "path" in it
    }
    graph: Graph = {}
    for manifest in sorted((ROOT / "crates").glob("*/Cargo.toml")):
        named = tomllib.loads(manifest.read_text()).get("dependencies", {})
        graph[manifest.parent.name] = {ours[name] for name in named if name in ours}
    return graph


def sources(crate: str) -> dict[str, Path]:
    """The modules of a crate, by their paths; the root is ``."""
    folder = ROOT / "crates" / crate / "src"
    tracked = subprocess.run(
        ["git", "ls-files", "--", str(folder)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = {}
    for name in tracked.stdout.splitlines():
        path = ROOT / name
        if path.suffix == ".rs" and path.exists() and "tests" not in path.stem:
            parts = list(path.relative_to(folder).with_suffix("").parts)
            if parts[-1] in ("mod", "lib", "main"):
                parts.pop()
            found["::".join(parts)] = path
    return found


def imported(tree: str) -> Iterator[list[str]]:
    """The paths of a tree of imports, such as `a::{b, c::d}`."""
    head, brace, rest = tree.partition("{")
    before = [part for part in head.split("::") if part]
    if not brace:
        yield before
        return
    depth, one = 0, ""
    for letter in f"{rest[:-1]},":
        if letter == "," and depth == 0:
            if one:
                yield from (before + path for path in imported(one))
            one = ""
            continue
        depth += {"{": 1, "}": -1}.get(letter, 0)
        one += letter


def named(code: str) -> Iterator[list[str]]:
    """The paths within the crate that a module's code names."""
    uses = re.compile(r"\buse ((?:crate|super|self)[^;]*);")
    for tree in uses.findall(code):
        yield from imported(re.sub(r" as \w+|\s+", "", tree))
    for path in re.findall(r"(?<![\w:])(?:crate|super)(?:::\w+)+", uses.sub("", code)):
        yield path.split("::")


def modules(crate: str) -> Graph:
    """The modules of a crate and those that they name."""
    known = sources(crate)
    graph: Graph = {name: set() for name in known if name}
    for name, path in known.items():
        code = re.split(r"#\[cfg\((?:all\()?test", path.read_text(), maxsplit=1)[0]
        code = re.sub(r"//.*", "", code)
        for whole in named(code):
            place, steps = (name.split("::") if name else []), list(whole)
            if steps[0] == "crate":
                place, steps = [], steps[1:]
            elif steps[0] == "self":
                steps = steps[1:]
            while steps and steps[0] == "super":
                place, steps = place[:-1], steps[1:]
            full = place + steps
            lengths = range(len(full), 0, -1)
            target = next((at for at in ("::".join(full[:n]) for n in lengths) if at in known), "")
            kin = name.startswith(f"{target}::") or target.startswith(f"{name}::") or target == name
            if name and target and not kin:
                graph[name].add(target)
    return graph


def circles(graph: Graph) -> list[list[str]]:
    """Sets of modules each of which leads to all others (Tarjan), without those of one and two."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for target in sorted(graph[node]):
            if target not in order:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], order[target])
        if low[node] == order[node]:
            at = stack.index(node)
            if len(stack) - at > 2:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return sorted(found, key=len, reverse=True)


def mermaid(graph: Graph) -> str:
    """A graph, as Mermaid draws it."""
    lines = [f'    {name}["{name}"]' for name in sorted(graph)]
    lines += [f"    {name} --> {target}" for name in sorted(graph) for target in sorted(graph[name])]
    return "\n".join(("```mermaid", "graph TD", *lines, "```"))


def reduced(graph: Graph) -> Graph:
    """A graph without the arrows that go a longer way, too."""

    def reaches(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for target in graph.get(todo.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return seen

    return {
        name: {at for at in targets if not any(at in reaches(other) for other in targets - {at})}
        for name, targets in graph.items()
    }


def page() -> str:
    """`docs/arrows.md`."""
    return "\n".join(
        (
            "# Arrows",
            "",
            "Written by `make arrows` from the code; do not edit. `tests/arrows.py CRATE` prints the graph",
            "of a crate's modules.",
            "",
            "An arrow goes from a crate to one that it is built of. Where there is a longer way, too, the",
            "arrow is left out.",
            "",
            mermaid(reduced(crates())),
            "",
            "The modules of a crate are in no circle of more than two, a type and its constructor.",
            "`make test` fails where one comes.",
            "",
        )
    )


def main() -> int:
    """Draw, or check what was drawn."""
    if len(sys.argv) == 2 and sys.argv[1] != "--check":
        print(mermaid(modules(sys.argv[1])))
        return 0
    faults = [
        f"{crate}: {len(circle)} modules in a circle: {' '.join(circle)}"
        for crate in crates()
        for circle in circles(modules(crate))
    ]
    text = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text() != text:
            faults.append(f"{PAGE.relative_to(ROOT)} is not what the code says; `make arrows` writes it")
    else:
        PAGE.write_text(text)
    print("\n".join(faults) or "no circle between modules")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
