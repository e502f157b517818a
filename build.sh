#!/usr/bin/env bash
# Builds deepinfer into build/. DEEPINFER_ACCELERATOR says for what: cpu (the default), nvidia or ascend.
# DEEPINFER_TESTS=1 also builds the unit tests. Further arguments go to CMake.
set -euo pipefail
cd "$(dirname "$0")"

case "${DEEPINFER_ACCELERATOR:-cpu}" in
cpu) ;;
nvidia | ascend)
    echo "build.sh: DEEPINFER_ACCELERATOR=$DEEPINFER_ACCELERATOR: this version has no backend for it; it has: cpu" >&2
    exit 1
    ;;
*)
    echo "build.sh: DEEPINFER_ACCELERATOR=$DEEPINFER_ACCELERATOR is not one of cpu, nvidia, ascend" >&2
    exit 1
    ;;
esac

tests=OFF
if [ "${DEEPINFER_TESTS:-0}" = 1 ]; then
    tests=ON
fi
cmake -S . -B build -G Ninja -DDEEPINFER_TESTS="$tests" ${CI:+-DDEEPINFER_WERROR=ON} "$@" >build.log.tmp ||
    { cat build.log.tmp >&2; exit 1; }
rm -f build.log.tmp
cmake --build build
