#!/usr/bin/env bash
# Every check that needs no test run. Each prints what is wrong and fails; all run before the verdict.
# shellcheck disable=SC2317 # the functions are called through check
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
failed=0
check() {
    local name=$1
    shift
    if "$@"; then
        echo "lint: $name ok"
    else
        echo "lint: $name FAILED"
        failed=1
    fi
}

mapfile -t c_files < <(git ls-files '*.c' '*.h')
mapfile -t shell_files < <(git ls-files '*.sh' .ci/run)

format() { clang-format-19 --dry-run -Werror "${c_files[@]}"; }
spelling() { git ls-files '*.c' '*.h' '*.md' '*.py' '*.sh' '*.txt' '*.def' '*.cmake' | grep -v -e '^tests/data/' -e '^eval/sets/' | xargs codespell --ignore-words scripts/codespell-ignore.txt; }
tidy() {
    cmake -S . -B build-tidy -G Ninja -DCMAKE_C_COMPILER=clang-19 -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null &&
        git ls-files 'src/*.c' 'apps/*.c' | xargs -P "$(nproc)" -n 8 clang-tidy-19 -p build-tidy --quiet 2>/dev/null
}

check format format
check layers python3 scripts/check_layers.py
check sizes python3 scripts/check_sizes.py
check calls python3 scripts/check_calls.py
check readmes python3 scripts/check_readmes.py
check spelling spelling
check shell shellcheck "${shell_files[@]}"
check tidy tidy
exit $failed
