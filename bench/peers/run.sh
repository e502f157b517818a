#!/usr/bin/env bash
# Times this engine's FP4 linear against ggml's MXFP4 matrix product on the same weights, threads and rounds.
#
#   bench/peers/run.sh SCRATCH [--native] [--build-only] [options of deepinfer-bench-peers]
#
# SCRATCH is a folder outside the tree: the source package llama-cpp-python is downloaded there and its ggml CPU backend
# built, for AVX2, FMA and F16C only, so that both sides use the same instructions; --native lets ggml use all that this
# processor has. What is there already is used again.
set -euo pipefail
tree=$(cd "$(dirname "$0")/../.." && pwd)

usage() {
    sed -n '4p' "$0" | sed 's/^# */usage: /' >&2
    exit 2
}

case ${1:--} in
-*) usage ;;
esac
scratch=$(realpath -m "$1")
shift
case "$scratch/" in
"$tree"/*)
    echo "run.sh: $scratch lies inside the source tree; name a folder outside" >&2
    exit 2
    ;;
esac
mkdir -p "$scratch"

native=OFF variant=avx2 build_only=0
options=()
while [ $# -gt 0 ]; do
    case $1 in
    --native) native=ON variant=native ;;
    --build-only) build_only=1 ;;
    *) options+=("$1") ;;
    esac
    shift
done
jobs=${JOBS:-$(nproc)}

# The source package, unpacked. pip prepares a build environment even for a mere download; nothing is installed.
shopt -s nullglob
sources=("$scratch"/llama_cpp_python-*/vendor/llama.cpp/ggml)
if [ ${#sources[@]} -eq 0 ]; then
    (cd "$scratch" && nice -n 19 python3 -m pip download -q --no-binary llama-cpp-python --no-deps llama-cpp-python)
    archives=("$scratch"/llama_cpp_python-*.tar.gz)
    tar -xzf "${archives[0]}" -C "$scratch"
    sources=("$scratch"/llama_cpp_python-*/vendor/llama.cpp/ggml)
fi
ggml=${sources[0]}
package=${ggml#"$scratch"/}
package=${package%%/*}
[ -e "$ggml/ggml.pc.in" ] || : >"$ggml/ggml.pc.in" # the package leaves this out; only an installation would need it

# Absolute switches, so that a machine with more does not slip in. Static, no OpenMP: ggml's own thread pool, as here.
ggml_build=$scratch/ggml-$variant
flags=(-DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF "-DGGML_NATIVE=$native" -DGGML_OPENMP=OFF -DGGML_BLAS=OFF
    -DGGML_CCACHE=OFF -DGGML_LLAMAFILE=ON -DGGML_CPU_REPACK=ON -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF)
if [ $native = OFF ]; then
    flags+=(-DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON
        -DGGML_AVX_VNNI=OFF -DGGML_AVX512=OFF -DGGML_AVX512_VBMI=OFF -DGGML_AVX512_VNNI=OFF -DGGML_AVX512_BF16=OFF
        -DGGML_AMX_TILE=OFF -DGGML_AMX_INT8=OFF -DGGML_AMX_BF16=OFF)
fi
cmake -S "$ggml" -B "$ggml_build" -G Ninja "${flags[@]}" >"$scratch/cmake-$variant.log" 2>&1 ||
    { cat "$scratch/cmake-$variant.log" >&2; exit 1; }
nice -n 19 ninja -C "$ggml_build" -j "$jobs" >"$scratch/build-$variant.log" 2>&1 ||
    { tail -n 30 "$scratch/build-$variant.log" >&2; exit 1; }

build=$scratch/deepinfer-$variant
cmake -S "$tree" -B "$build" -G Ninja -DDEEPINFER_BENCH=ON -DDEEPINFER_TESTS=OFF -DDEEPINFER_BENCH_GGML_SOURCE="$ggml" \
    -DDEEPINFER_BENCH_GGML_BUILD="$ggml_build" -DDEEPINFER_BENCH_GGML_NAME="$package, $variant" >"$scratch/cmake-ours.log"
nice -n 19 ninja -C "$build" -j "$jobs" deepinfer-bench-peers >"$scratch/build-ours.log" ||
    { tail -n 30 "$scratch/build-ours.log" >&2; exit 1; }
[ $build_only = 1 ] || exec "$build/bench/peers/deepinfer-bench-peers" ${options[0]+"${options[@]}"}
