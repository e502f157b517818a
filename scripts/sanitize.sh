#!/usr/bin/env bash
# Builds with clang and the given sanitizers (address,undefined or thread) and runs the unit tests.
set -euo pipefail
cd "$(dirname "$0")/.."
build="build-${1%%,*}"
cmake -S . -B "$build" -G Ninja -DCMAKE_C_COMPILER=clang-19 -DDEEPINFER_SANITIZE="$1" -DDEEPINFER_WERROR=ON \
    -DCMAKE_C_FLAGS=-O1 >/dev/null
cmake --build "$build"
ctest --test-dir "$build" --output-on-failure -j "$(nproc)"
