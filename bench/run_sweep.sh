#!/usr/bin/env bash
# Sweeps `deepinfer bench` over concurrency x input length x output length x settings, and plots. See bench/README.md.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

usage() {
    cat <<TEXT
usage: bench/run_sweep.sh OUT_FOLDER [options] [-- options of deepinfer bench]

  --concurrency "1 4 16"   requests at a time
  --input-len "32 512"     tokens of a prompt: N or LOW:HIGH
  --output-len "32 128"    tokens of an output
  --setting "NAME=OPTIONS" options of the engine under a name, e.g. "sync=--async off"; may be given several times
  --requests N             per point; 0 (default): 4 times the concurrency, 16 at least
  --command PATH           the deepinfer to measure (default: build/apps/deepinfer)
  --no-plot                results only

Behind --: what holds for all points, e.g. -- --model models/tiny --shared-prefix 256
TEXT
}

fail() {
    echo "run_sweep.sh: $1" >&2
    exit 2
}

concurrencies="1 4 16" inputs="32 512" outputs="32 128" requests=0 plot=true
command=$root/build/apps/deepinfer
settings=() common=()
[ $# -gt 0 ] || { usage >&2; exit 2; }
if [ "$1" = --help ]; then
    usage
    exit
fi
[ "${1#-}" = "$1" ] || fail "the first argument is the folder of the results; see --help"
out=$1
shift
while [ $# -gt 0 ]; do
    name=$1
    shift
    case "$name" in
    --) common=("$@") && break ;;
    --no-plot) plot=false && continue ;;
    --concurrency | --input-len | --output-len | --setting | --requests | --command) [ $# -gt 0 ] || fail "$name needs a value" ;;
    *) fail "unknown option $name; see --help" ;;
    esac
    case "$name" in
    --concurrency) concurrencies=$1 ;;
    --input-len) inputs=$1 ;;
    --output-len) outputs=$1 ;;
    --setting) [[ $1 == *=* ]] || fail "--setting: \"$1\" is not NAME=OPTIONS" && settings+=("$1") ;;
    --requests) requests=$1 ;;
    --command) command=$1 ;;
    esac
    shift
done
[ -x "$command" ] || fail "$command is not there; build it (make build), or say --command PATH"
[ ${#settings[@]} -gt 0 ] || settings=("default=")
[ ${#common[@]} -gt 0 ] || common=(--model "$root/models/tiny")

mkdir -p "$out"
results=$out/results.jsonl
: >"$results"
for setting in "${settings[@]}"; do
    read -r -a options <<<"${setting#*=}"
    for input in $inputs; do
        for output in $outputs; do
            for concurrency in $concurrencies; do
                count=$requests
                if [ "$count" -eq 0 ]; then
                    count=$((4 * concurrency > 16 ? 4 * concurrency : 16))
                fi
                line=$("$command" bench --json "${common[@]}" "${options[@]}" --concurrency "$concurrency" --input-len "$input" \
                    --output-len "$output" --requests "$count")
                printf '{"setting":"%s",%s\n' "${setting%%=*}" "${line#\{}" >>"$results"
                printf '%s: %s in, %s out, %s at a time: %s\n' "${setting%%=*}" "$input" "$output" "$concurrency" \
                    "$(grep -o '"tokens_per_second":{[^}]*}' <<<"$line")"
            done
        done
    done
done
echo "$results"
$plot || exit 0

# matplotlib: that of python3, or of PYTHON, else of an environment of its own beside the results.
python=${PYTHON:-python3}
if ! "$python" -c 'import matplotlib' 2>/dev/null; then
    python=$out/venv/bin/python
    if ! [ -x "$python" ] || ! "$python" -c 'import matplotlib' 2>/dev/null; then
        echo "run_sweep.sh: installing matplotlib into $out/venv"
        { python3 -m venv "$out/venv" && "$python" -m pip install -q --disable-pip-version-check 'matplotlib>=3.8,<4'; } ||
            fail "matplotlib could not be installed; set PYTHON to an interpreter that has it and run bench/plot_sweep.py $results $out/sweep"
    fi
fi
"$python" "$root/bench/plot_sweep.py" "$results" "$out/sweep"
