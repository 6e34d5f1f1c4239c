"""Small libraries in C that change what a process sees of its machine, built when they are needed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

#: What they read of what is asked of them is mapped, so that it holds at once.
WORD = 8


class Preload:
    """A library of this folder for processes that are started with `environment`."""

    def __init__(self, name: str, variable: str, folder: Path) -> None:
        """Build the library; without a C compiler there is `why_not`, and the environment is empty."""
        source = Path(__file__).with_name(f"{name}.c")
        self.why_not: str | None = None
        self.environment: dict[str, str] = {}
        self.word_file = folder / f"{name}.word"
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang-19")
        if compiler is None:
            self.why_not = f"there is no C compiler to build tests/rig/{source.name} with"
            return
        library = folder / f"{name}.so"
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source)]
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        if built.returncode != 0:
            self.why_not = f"tests/rig/{source.name} cannot be built: {built.stderr.strip()}"
            return
        self.word_file.write_bytes(bytes(WORD))
        self.environment = {variable: str(self.word_file), "LD_PRELOAD": str(library)}

    def set(self, word: int) -> None:
        """Have processes see another value from now on."""
        with self.word_file.open("r+b") as file:
            file.write(word.to_bytes(WORD, "little", signed=True))
