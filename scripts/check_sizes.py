#!/usr/bin/env python3
"""Files of at most 1,200 lines, functions of at most 120. Generated tables (a line "GENERATED") are exempt."""

import sys
from pathlib import Path

FILE_LIMIT, FUNCTION_LIMIT = 1200, 120


def functions(lines: list[str]):
    """(first line number, length) of every block whose braces stand in the first column."""
    start = None
    for number, line in enumerate(lines, 1):
        if line.startswith("{"):
            start = number
        elif line.startswith("}") and start is not None:
            yield start, number - start + 1
            start = None


def main(root: Path) -> int:
    bad = 0
    for folder in ("src", "apps", "include", "tests", "fuzz", "examples"):
        for path in sorted(root.glob(f"{folder}/**/*.[ch]")):
            lines = path.read_text().splitlines()
            if any("GENERATED" in line for line in lines[:5]):
                continue
            if len(lines) > FILE_LIMIT:
                print(f"{path.relative_to(root)}: {len(lines)} lines; {FILE_LIMIT} at most")
                bad += 1
            for start, length in functions(lines):
                if length > FUNCTION_LIMIT:
                    print(f"{path.relative_to(root)}:{start}: a function of {length} lines; {FUNCTION_LIMIT} at most")
                    bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
