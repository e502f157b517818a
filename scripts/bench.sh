#!/usr/bin/env bash
# Time to the first token and decode speed of the bundled model: five runs, greedy, 128 tokens; the one of median decode speed.
set -euo pipefail
cd "$(dirname "$0")/.."
command=$1
for _ in 1 2 3 4 5; do
    "$command" run --model models/tiny --prompt "She was" --temperature 0 --max-tokens 128 --json |
        python3 -c 'import json,sys; t=json.load(sys.stdin); print(t["timings"]["prefill_seconds"], t["usage"]["completion_tokens"]/t["timings"]["decode_seconds"])'
done | sort -g -k 2 | sed -n 3p | {
    read -r prefill rate
    echo "models/tiny, $(nproc) cores, $("$command" --version): prefill of the prompt $prefill s, decode $rate tokens/s"
}
