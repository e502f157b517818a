#!/usr/bin/env python3
"""plot_sweep.py RESULTS.jsonl OUT: throughput and latency over concurrency, as OUT.png and OUT.svg.

One column of plots per pair of input and output lengths, one line per setting. RESULTS.jsonl comes from run_sweep.sh: what
`deepinfer bench --json` printed, with the setting's name as "setting".
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display
import matplotlib.pyplot as plt  # noqa: E402

MEASURES = (
    ("total tokens/s", lambda r: r["tokens_per_second"]["total"]),
    ("decode tokens/s", lambda r: r["tokens_per_second"]["decode"]),
    ("TTFT p50, ms", lambda r: 1e3 * r["ttft_seconds"]["p50"]),
    ("TPOT p50, ms", lambda r: 1e3 * r["tpot_seconds"]["p50"] if r["tpot_seconds"] else float("nan")),
    ("engine thread, % of cores", lambda r: 100 * r["engine"]["cpu_share"]),
)


def length(bounds: list[int]) -> str:
    return str(bounds[0]) if bounds[0] == bounds[1] else f"{bounds[0]}-{bounds[1]}"


def main(source: Path, out: Path) -> None:
    runs = [json.loads(line) for line in source.read_text().splitlines()]
    if not runs:
        sys.exit(f"{source}: no results")
    columns = defaultdict(lambda: defaultdict(list))
    for run in runs:
        trace = run["requests"]
        columns[tuple(trace["input_len"]), tuple(trace["output_len"])][run["setting"]].append(run)
    figure, axes = plt.subplots(
        len(MEASURES), len(columns), figsize=(1.5 + 3.6 * len(columns), 2.4 * len(MEASURES)), sharex=True, squeeze=False, layout="constrained"
    )
    colours = {setting: f"C{i % 10}" for i, setting in enumerate(dict.fromkeys(run["setting"] for run in runs))}
    for column, (lengths, settings) in enumerate(sorted(columns.items())):
        axes[0][column].set_title(f"{length(lengths[0])} tokens in, {length(lengths[1])} out")
        for row, (label, measure) in enumerate(MEASURES):
            ax = axes[row][column]
            for setting, found in settings.items():
                found = sorted(found, key=lambda r: r["requests"]["concurrency"])
                ax.plot([r["requests"]["concurrency"] for r in found], [measure(r) for r in found], "o-", ms=4, color=colours[setting], label=setting)
            ax.set_xscale("log", base=2)
            ax.xaxis.set_major_formatter("{x:g}")
            ax.set_ylim(0, 1.08 * ax.dataLim.y1 if math.isfinite(ax.dataLim.y1) and ax.dataLim.y1 > 0 else 1)
            ax.grid(alpha=0.3)
            if column == 0:
                ax.set_ylabel(label)
        axes[-1][column].set_xlabel("requests at a time")
    axes[0][0].legend()
    last = runs[-1]
    figure.suptitle(f"{last['options']['model']}, {last['identity']}, {last['engine']['cores']} cores", fontsize="medium")
    for suffix in (".png", ".svg"):
        figure.savefig(out.with_suffix(suffix), dpi=150)
        print(out.with_suffix(suffix))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
