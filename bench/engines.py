#!/usr/bin/env python3
"""Makes a table of the lines of event_engines: medians, and io_uring over epoll within each round.

  build/release/bin/event_engines --rounds=7 | bench/engines.py
"""

from __future__ import annotations

import collections
import json
import statistics
import sys
from typing import Any, Dict, List, Tuple

Key = Tuple[str, int, str]  # test, connections, idle
Runs = Dict[Key, Dict[str, List[Dict[str, Any]]]]


def variant(line: Dict[str, Any]) -> str:
    return "io_uring caller" if line["client"] == "io_uring" else line["server"]


def figures(line: Dict[str, Any]) -> Dict[str, float]:
    micro = 1e6 / line["batches"]
    return {
        "mean us": line["seconds"] * micro,
        "p50 us": line["batch_latency_us"]["p50"],
        "p99 us": line["batch_latency_us"]["p99"],
        "server CPU us": line["peer_cpu_seconds"] * micro,
        "caller CPU us": line["cpu_seconds"] * micro,
    }


def main() -> int:
    runs: Runs = collections.defaultdict(lambda: collections.defaultdict(list))
    for text in sys.stdin:
        line = json.loads(text)
        runs[line["test"], line["connections"], line["idle"]][variant(line)].append(figures(line))
    print("| test | connections | server idle | figure | epoll | io_uring | ratio | io_uring caller | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for (test, connections, idle), variants in sorted(runs.items()):
        base = variants["epoll"]
        for name in base[0]:
            cells = [test, str(connections), idle, name, f"{statistics.median(run[name] for run in base):.1f}"]
            for other in ("io_uring", "io_uring caller"):
                pairs = list(zip(variants.get(other, []), base))
                if not pairs:
                    cells += ["", ""]
                    continue
                ratios = [left[name] / right[name] for left, right in pairs]
                cells += [f"{statistics.median(left[name] for left, _ in pairs):.1f}", f"{statistics.median(ratios):.2f}"]
            print(f"| {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
