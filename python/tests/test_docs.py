"""The examples of docs/python.md, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def test_the_examples_of_the_book_run() -> None:
    """Each goes on where the one before ended; what they assert holds."""
    text = PAGE.read_text()
    examples = list(re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S))
    assert len(examples) >= 6
    names: dict[str, Any] = {"__name__": "example"}
    for example in examples:
        # Lines of a traceback are those of the page.
        lines = text.count("\n", 0, example.start(1))
        exec(compile("\n" * lines + example[1], str(PAGE), "exec"), names)
