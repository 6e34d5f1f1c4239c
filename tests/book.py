"""Checks the book: every page is in its list, every link leads somewhere, every `kaido` command parses.

    tests/book.py BINARY        also asks the program about each option that a page names

`make book` builds it with mdBook.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "docs"
SUMMARY = BOOK / "SUMMARY.md"

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^ *```console\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and mdBook make them."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", page.read_text())):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
        number = sum(
            known == anchor or re.fullmatch(rf"{re.escape(anchor)}-\d+", known) is not None for known in found
        )
        found.add(anchor if number == 0 else f"{anchor}-{number}")
    return found


def links(page: Path) -> Iterator[str]:
    """What a page links to within the repository."""
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if not re.match(r"[a-z]+:", target):
            yield target


def broken(page: Path) -> Iterator[str]:
    """Links of a page that lead nowhere."""
    for target in links(page):
        name, _, anchor = target.partition("#")
        to = (page.parent / name).resolve() if name else page
        if not to.exists():
            yield f"{page.relative_to(ROOT)}: {target}: there is no such file"
        elif anchor and to.suffix == ".md" and anchor not in anchors(to):
            yield f"{page.relative_to(ROOT)}: {target}: there is no such heading"


def unlisted() -> Iterator[str]:
    """Pages that the list does not have: mdBook would leave them out."""
    listed = {(BOOK / target.partition("#")[0]).resolve() for target in links(SUMMARY)}
    for page in sorted(BOOK.rglob("*.md")):
        if page not in listed and page != SUMMARY:
            yield f"{page.relative_to(ROOT)} is not in {SUMMARY.relative_to(ROOT)}"


def commands(page: Path) -> Iterator[list[str]]:
    """The words of each `kaido` command that a page shows."""
    for block in CONSOLE.findall(page.read_text()):
        joined = re.sub(r"\\\n *", " ", block)
        for line in joined.splitlines():
            if found := re.match(r" *[#$] (?:\S*/)?kaido ([^#|>&]*)", line):
                yield found[1].split()


def refused(page: Path, binary: Path, known: dict[str, str]) -> Iterator[str]:
    """Commands of a page that the program does not have, or options that they do not take."""
    for words in commands(page):
        names = []
        for word in words:
            if not re.fullmatch(r"[a-z][a-z-]*", word):
                break
            names.append(word)
        # Values look like commands: the longest that is one is taken.
        while names:
            key = " ".join(names)
            if key not in known:
                done = subprocess.run([binary, *names, "--help"], capture_output=True, text=True, check=False)
                known[key] = done.stdout if done.returncode == 0 else ""
            if known[key]:
                break
            names.pop()
        if not names:
            yield f"{page.relative_to(ROOT)}: there is no command `kaido {' '.join(words)}`"
            continue
        text = known[" ".join(names)]
        # The package's own tests look at its commands.
        if any(
            re.search(rf"^ +{re.escape(word)} .*Needs the Python package", text, re.MULTILINE)
            for word in words
        ):
            continue
        for option in (word.partition("=")[0] for word in words if re.match(r"-{1,2}[a-z]", word)):
            if not re.search(rf"(?:^|[ ,]){re.escape(option)}(?:[ ,=<\[\n]|$)", text, re.MULTILINE):
                yield f"{page.relative_to(ROOT)}: `kaido {' '.join(names)}` has no option {option}"


def main() -> int:
    """Print what is wrong; whether anything is."""
    binary = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None
    pages = [*sorted(BOOK.rglob("*.md")), ROOT / "README.md"]
    faults = [*unlisted(), *(fault for page in pages for fault in broken(page))]
    if binary is not None:
        known: dict[str, str] = {}
        faults += [fault for page in pages for fault in refused(page, binary, known)]
    print("\n".join(faults), file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
