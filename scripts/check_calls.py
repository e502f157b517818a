#!/usr/bin/env python3
"""The library neither ends its host nor prints nor reads the environment: no such calls below apps/."""

import re
import sys
from pathlib import Path

FORBIDDEN = re.compile(r"(?<![\w.>])(exit|_exit|quick_exit|abort|assert|printf|fprintf|vprintf|puts|putchar|fputs|getenv|perror)\s*\(")
ALLOWED = {("src/base/options.c", "getenv")}  # the registry of options is the one place that looks


def strip(text: str) -> str:
    """Comments and string literals blanked, line numbers kept."""
    blank = lambda m: re.sub(r"[^\n]", " ", m.group(0))
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.DOTALL)


def main(root: Path) -> int:
    bad = 0
    for path in sorted(root.glob("src/**/*.[ch]")):
        name = path.relative_to(root).as_posix()
        for number, line in enumerate(strip(path.read_text()).splitlines(), 1):
            for match in FORBIDDEN.finditer(line):
                if (name, match.group(1)) not in ALLOWED:
                    print(f"{name}:{number}: calls {match.group(1)}")
                    bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
