#!/usr/bin/env python3
"""The rule of dependency: a file includes its own folder and folders of a lower level, never an equal or higher one.

Levels are those of docs/architecture.md. Each folder under src/backend/ counts as its own; files directly in src/backend/
may include all of them. Public headers (deepinfer/...) stand below everything. Applications include public headers only.
"""

import re
import sys
from pathlib import Path

LEVELS = {
    "base": 0, "numerics": 1, "core": 2, "text": 3, "grammar": 3, "ops": 4, "checkpoint": 4, "cache": 5, "parallel": 5,
    "backend": 6, "model": 7, "sample": 7, "sched": 7, "engine": 8, "api": 9,
}  # fmt: skip
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def allowed(source: Path, target: str) -> bool:
    """`source`: path below src/; `target`: what it includes."""
    folder, parts = source.parts[0], target.split("/")
    if parts[0] == "deepinfer":
        return True
    if parts[0] not in LEVELS or folder not in LEVELS:
        return False
    if folder == "backend" and parts[0] == "backend":
        inside, wanted = source.parts[1:-1], parts[1:-1]
        return not inside or not wanted or inside[0] == wanted[0] or wanted[0] == "host"  # host/ is what they share
    if parts[0] == "backend" and len(parts) > 2:
        return False  # no backend is named outside backend/
    return folder == parts[0] or LEVELS[parts[0]] < LEVELS[folder]


def main(root: Path) -> int:
    bad = 0
    for path in sorted([*root.glob("src/**/*.[ch]")]):
        source = path.relative_to(root / "src")
        for target in INCLUDE.findall(path.read_text()):
            if not allowed(source, target):
                print(f"{path.relative_to(root)}: includes {target}: not a lower level")
                bad += 1
    for folder in ("apps", "examples", "include"):
        for path in sorted(root.glob(f"{folder}/**/*.[ch]")):
            for target in INCLUDE.findall(path.read_text()):
                if not target.startswith("deepinfer/") and not (path.parent / target).exists():
                    print(f"{path.relative_to(root)}: includes {target}: public headers only")
                    bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
