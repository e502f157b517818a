#!/usr/bin/env python3
"""Every folder of src/ has a README.md that says its job, who may call it and how to extend it; include guards are named
after their files."""

import sys
from pathlib import Path


def main(root: Path) -> int:
    bad = 0
    for folder in sorted(p for p in root.glob("src/**") if p.is_dir() and any(p.glob("*.c"))):
        readme = folder / "README.md"
        text = readme.read_text() if readme.exists() else ""
        for word in ("Job", "Who may call", "To extend"):
            if f"**{word}" not in text:
                print(f"{readme.relative_to(root)}: lacks **{word}.**")
                bad += 1
    for path in sorted([*root.glob("src/**/*.h")]):
        stem = path.relative_to(root / "src").with_suffix("")
        wanted = "DI_" + "_".join(stem.parts[-2:]).upper()
        if f"#ifndef {wanted}_H" not in path.read_text():
            print(f"{path.relative_to(root)}: include guard is not {wanted}_H")
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
