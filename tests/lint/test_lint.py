"""Each lint script finds what it is for, and is content with this tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

VIOLATIONS = {
    "check_layers.py": {
        "src/base/x.c": '#include "model/forward.h"\n',
        "src/model/x.c": '#include "sched/plan.h"\n',
        "src/engine/x.c": '#include "backend/reference/reference.h"\n',
        "src/backend/cpu/x.c": '#include "backend/reference/internal.h"\n',
        "apps/x.c": '#include "base/error.h"\n',
    },
    "check_sizes.py": {
        "src/base/x.c": "int f(void)\n{\n" + "    g();\n" * 130 + "}\n",
        "src/base/y.c": "int a;\n" * 1300,
    },
    "check_calls.py": {
        "src/base/x.c": "void f(void)\n{\n    exit(1);\n}\n",
        "src/text/y.c": 'void f(void)\n{\n    printf("x");\n}\n',
        "src/core/z.c": 'const char *f(void)\n{\n    return getenv("HOME");\n}\n',
    },
    "check_readmes.py": {"src/base/x.c": "", "src/base/y.h": "#ifndef WRONG_H\n"},
}
CASES = [(script, name) for script, files in VIOLATIONS.items() for name in files]


def lint(script: str, folder: Path) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, ROOT / "scripts" / script, folder], capture_output=True, text=True)


@pytest.mark.parametrize("script, name", CASES)
def test_violations_are_found(tmp_path, script, name):
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(VIOLATIONS[script][name])
    done = lint(script, tmp_path)
    assert done.returncode == 1
    assert Path(name).parts[1] in done.stdout


def test_comments_and_strings_are_no_calls(tmp_path):
    (tmp_path / "src" / "base").mkdir(parents=True)
    (tmp_path / "src" / "base" / "x.c").write_text('/* exit(1) */ const char *a = "abort()"; // printf(\n')
    assert lint("check_calls.py", tmp_path).returncode == 0


@pytest.mark.parametrize("script", VIOLATIONS)
def test_this_tree_passes(script):
    done = lint(script, ROOT)
    assert done.returncode == 0, done.stdout
