#!/usr/bin/env bash
# fuzz.sh SECONDS: fuzzes every target so long, from its corpus in fuzz/corpus/<name> (new inputs go to a scratch folder).
# fuzz.sh replay:  runs the committed corpora once.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake -S . -B build-fuzz -G Ninja -DCMAKE_C_COMPILER=clang-19 -DDEEPINFER_SANITIZE=address,undefined -DDEEPINFER_FUZZ=ON \
    -DDEEPINFER_TESTS=OFF -DDEEPINFER_WERROR=ON >/dev/null
cmake --build build-fuzz
for target in build-fuzz/fuzz/fuzz_*; do
    if [ ! -f "$target" ] || [ ! -x "$target" ]; then
        continue
    fi
    name=$(basename "$target" | sed s/^fuzz_//)
    if [ "$1" = replay ]; then
        "$target" -runs=0 "fuzz/corpus/$name" 2>&1 | grep -E 'INFO: seed corpus|ERROR|DONE' || true
        "$target" -runs=0 "fuzz/corpus/$name" >/dev/null 2>&1
        echo "fuzz $name: corpus replayed"
    else
        mkdir -p "build-fuzz/corpus/$name"
        "$target" -max_total_time="$1" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 "build-fuzz/corpus/$name" \
            "fuzz/corpus/$name" 2>&1 | grep -E 'stat::number_of_executed|SUMMARY|ERROR|Done' || true
        echo "fuzz $name: $1 s"
    fi
done
