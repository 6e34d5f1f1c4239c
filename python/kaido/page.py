"""The page of a report: headings, texts, tables, pictures and flame graphs, all in one file."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from kaido import figures
from kaido.flame import Flame, hottest

STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1e; --soft: #555; --paper: #fff; --line: #ccc; --thin: #e3e3e3;
--field: #f5f5f7; }
@media (prefers-color-scheme: dark) {
:root { --ink: #e8e8ea; --soft: #a9a9ae; --paper: #151517; --line: #48484d; --thin: #2e2e33;
--field: #222226; }
figure img, details img { filter: invert(0.92) hue-rotate(180deg); }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
max-width: 1060px; padding: 1.5rem; overflow-wrap: break-word; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
.headline { font-size: 1.15rem; font-weight: 600; margin: 0.6rem 0; }
figure { margin: 1rem 0; } figure img { max-width: 100%; height: auto; }
figcaption, .note { color: var(--soft); font-size: 0.9rem; }
table { border-collapse: collapse; font-size: 0.85rem; margin: 0.5rem 0; }
th, td { text-align: left; padding: 0.2rem 0.6rem; border-bottom: 1px solid var(--thin);
vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code, pre { font: 0.82rem/1.4 ui-monospace, monospace; } pre { overflow-x: auto; background: var(--field);
padding: 0.6rem; }
.wide { overflow-x: auto; } .wide td:first-child { min-width: 9rem; }
.wide td.prose { min-width: 15rem; }
details { margin: 0.3rem 0; } summary { cursor: pointer; }
@media (max-width: 720px) {
body { padding: 0.8rem; } .wide td:first-child { min-width: 6rem; }
.wide td.prose { min-width: 13rem; }
figure { overflow-x: auto; } figure img { max-width: none; width: 800px; }
figure::before, .wide.many::before { content: "it goes on to the right →"; color: var(--soft);
font-size: 0.8rem; position: sticky; left: 0; display: block; }
figcaption { position: sticky; left: 0; max-width: calc(100vw - 1.6rem); }
}
"""


@dataclass
class HtmlPage:
    """The parts of the file, and where pictures are kept beside it."""

    pictures: Path
    parts: list[str] = field(default_factory=list)

    def heading(self, text: str, headline: str) -> None:
        """Begin a chapter, with what it comes to."""
        self.parts.append(f'<h2>{html.escape(text)}</h2><p class="headline">{html.escape(headline)}</p>')

    def text(self, text: str, note: bool = False) -> None:
        """Add a paragraph."""
        kind = ' class="note"' if note else ""
        self.parts.append(f"<p{kind}>{html.escape(text)}</p>")

    def picture(self, name: str, figure: Figure | None, caption: str) -> None:
        """Put a picture in, and its PNG beside the file."""
        if figure is None:
            return
        drawn = figures.read_off(figure)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=110)
        plt.close(figure)
        (self.pictures / f"{name}.png").write_bytes(buffer.getvalue())
        source = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
        text = html.escape(caption)
        self.parts.append(
            f'<figure id="{name}"><img alt="{text}" src="{source}"><figcaption>{text}</figcaption></figure>'
        )
        if drawn:
            self.parts.append("<details><summary>Its figures</summary>")
            self.table(["picture", "what", "at", "figure"], drawn)
            self.parts.append("</details>")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Add a table."""
        cells = "".join(f"<th>{html.escape(name)}</th>" for name in header)
        lines = "".join("<tr>" + "".join(_cell(value) for value in row) + "</tr>" for row in rows)
        # On a phone a reader is told that there is more of it.
        kind = "wide many" if len(header) > _COLUMNS_NARROW else "wide"
        self.parts.append(f'<div class="{kind}"><table><tr>{cells}</tr>{lines}</table></div>')

    def flame(self, flame: Flame) -> None:
        """Add a flame graph, or the reason why there is none."""
        label = html.escape(flame.point.label())
        if flame.reason:
            self.parts.append(f"<p>{label}: no flame graph: {html.escape(flame.reason)}</p>")
            return
        source = "data:image/svg+xml;base64," + base64.b64encode(flame.svg.encode()).decode()
        top = ", ".join(f"{html.escape(name)} {share:.0%}" for name, share in hottest(flame.stacks, 4))
        self.parts.append(
            f"<details><summary>{label} ({sum(flame.stacks.values()) / 1e6:.0f} ms)</summary>"
            f'<p class="note">Most samples: {top}</p><img style="max-width:100%" alt="flame graph: {label}" '
            f'src="{source}"></details>'
        )


#: Columns that fit on a phone.
_COLUMNS_NARROW = 3
#: Characters of a cell from which on it is prose, which has lines of its own width.
_PROSE = 40


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f'<td class="number">{value:.2f}</td>'
    if isinstance(value, int) and not isinstance(value, bool):
        return f'<td class="number">{value}</td>'
    if value is None:
        return '<td class="number">-</td>'
    kind = ' class="prose"' if len(str(value)) > _PROSE else ""
    return f"<td{kind}>{html.escape(str(value))}</td>"
