#!/usr/bin/env python3
"""Measures the library, the real Mooncake engine, iperf3, sockperf and bare sockets, interleaved, round after round.

  compare.py [--rounds N] [--seconds S] [--only TARGET,...] [--build DIR] [--wheel PROGRAM] [--output DIR]

Every round runs each case once; the next round runs them in the opposite order. The raw lines go to OUTPUT/raw.jsonl,
from which report.py makes the table and the plot, at once or later. ci/bench installs what is needed and calls this.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import os
import pathlib
import platform
import sys
import time
from typing import Callable, Dict, List

import programs
import report

# Our connections within one host use this congestion control unless the setting is empty.
LOCAL_CONGESTION = "reno"
OFF = {"TE_TCP_LOCAL_CONGESTION_CONTROL": ""}
LANES = 4
IDLE_SECONDS = 10

Case = Callable[[], programs.Figures]


def size_name(size: int) -> str:
    return f"{size >> 20}M" if size >= 1 << 20 else f"{size >> 10}K" if size >= 1 << 10 else f"{size}"


def bandwidth_cases(all_programs: programs.Programs, segment: str, seconds: float) -> Dict[str, Case]:
    """P1, P2, P9: large and middle requests. Cases that are compared with each other stand next to each other."""
    cases: Dict[str, Case] = {}
    te = functools.partial(programs.te, all_programs, seconds)
    floor = functools.partial(programs.floor, all_programs, seconds)
    for streams in (1, LANES):
        for congestion in ("", LOCAL_CONGESTION):
            cases[f"iperf3 {streams} {congestion or 'default'}"] = functools.partial(
                programs.iperf3, seconds, streams, congestion
            )
    for size, layouts in ((1 << 20, ("hot", "batch", "cold")), (64 << 10, ("batch", "cold"))):
        for operation in ("read", "write"):
            name = f"{operation} {size_name(size)}"
            ours = functools.partial(te, size=size, batch=16, operation=operation)
            exchange = functools.partial(floor, f"{operation}:{size}:16")
            for buffers in layouts:
                cases[f"ours {name} {buffers}"] = functools.partial(ours, {}, buffers=buffers)
                cases[f"floor {name} {buffers} {LOCAL_CONGESTION}"] = functools.partial(
                    exchange, buffers=buffers, congestion=LOCAL_CONGESTION
                )
            cases[f"ours off {name} {layouts[0]}"] = functools.partial(ours, OFF, buffers=layouts[0])
            cases[f"floor {name} {layouts[0]} default"] = functools.partial(exchange, buffers=layouts[0])
            if size == 1 << 20:
                cases[f"ours {name} hot wait"] = functools.partial(ours, {}, buffers="hot", wait="wait")
            if all_programs.wheel:
                cases[f"wheel {name}"] = functools.partial(
                    programs.wheel, all_programs, segment, seconds, operation, size, 16
                )
    return cases


def latency_cases(all_programs: programs.Programs, segment: str, seconds: float) -> Dict[str, Case]:
    """P3, P4: one small request at a time."""
    cases: Dict[str, Case] = {}
    te = functools.partial(programs.te, all_programs, seconds, batch=1)
    floor = functools.partial(programs.floor, all_programs, seconds)
    for mode, wait in (("spin", "spin"), ("block", "wait")):
        cases[f"ours write 64 {mode}"] = functools.partial(te, {}, size=64, operation="write", wait=wait)
        cases[f"sockperf {mode}"] = functools.partial(programs.sockperf, seconds, 64, mode == "spin")
        cases[f"floor write 64 {mode}"] = functools.partial(floor, "write:64:1", client=mode, server=mode)
    cases["ours read 4K spin"] = functools.partial(te, {}, size=4096, operation="read")
    cases["floor read 4K spin"] = functools.partial(floor, "read:4096:1")
    cases["ours read 4K block"] = functools.partial(te, {}, size=4096, operation="read", wait="wait")
    cases["floor read 4K block"] = functools.partial(floor, "read:4096:1", client="block", server="block")
    if all_programs.wheel:
        cases["wheel read 4K"] = functools.partial(programs.wheel, all_programs, segment, seconds, "read", 4096, 1)
        cases["wheel write 64"] = functools.partial(programs.wheel, all_programs, segment, seconds, "write", 64, 1)
    return cases


def growth_cases(all_programs: programs.Programs, seconds: float) -> Dict[str, Case]:
    """P11, P13 and the idle engine of P9."""
    cases: Dict[str, Case] = {}
    for axis, counts in (("peers", (1, 1000)), ("around", (1, 1000)), ("regions", (1, 10000)), ("tasks", (1, 100, 10000))):
        for count in counts:
            cases[f"growth {axis} {count}"] = functools.partial(programs.growth, all_programs, seconds, axis, count)
    cases["ours two pairs"] = functools.partial(
        programs.te_pairs, all_programs, 2 * seconds, 2, size=4096, batch=1, operation="read", wait="spin"
    )
    cases["ours idle"] = functools.partial(programs.te_idle, all_programs, IDLE_SECONDS)
    return cases


def count_system_calls(all_programs: programs.Programs, raw: pathlib.Path) -> None:
    """Where the time goes: a copy of the bytes costs what it costs, the rest is system calls. Not timed."""
    count = 2000
    for size, batch, operation in ((64, 1, "write"), (4096, 1, "read"), (64 << 10, 16, "write"), (64 << 10, 16, "read")):
        options = {"size": size, "batch": batch, "operation": operation, "count": count // batch, "wait": "wait"}
        try:
            calls = programs.system_calls(programs.te_command(all_programs, 1, options), count // batch * batch)
        except (RuntimeError, OSError) as reason:
            print(f"system calls: {reason}", file=sys.stderr)
            return
        line = {"calls": f"{operation.upper()} {size_name(size)} x {batch}", "each": calls}
        with raw.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def all_cases(all_programs: programs.Programs, segment: str, seconds: float) -> Dict[str, Case]:
    return {
        **bandwidth_cases(all_programs, segment, seconds),
        **latency_cases(all_programs, segment, seconds),
        **growth_cases(all_programs, seconds / 2),
    }


def measure(cases: Dict[str, Case], rounds: int, raw: pathlib.Path, started: float) -> int:
    """Returns how many runs failed."""
    failures = 0
    names: List[str] = list(cases)
    for number in range(1, rounds + 1):
        for place, name in enumerate(names if number % 2 else reversed(names), 1):
            line = {"round": number, "case": name, "load": os.getloadavg()[0]}
            try:
                line.update(cases[name]())
            except (RuntimeError, OSError, ValueError, KeyError, TimeoutError) as reason:
                line["error"] = str(reason)
                failures += 1
            with raw.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            figures = ", ".join(
                f"{key} {value:.3g}"
                for key, value in line.items()
                if key in ("gigabytes_per_second", "p50_us", "core_share", "longest_gap_us", "bytes_per_peer")
            )
            print(
                f"[{time.monotonic() - started:4.0f} s] round {number}/{rounds} {place:2}/{len(names)} "
                f"{name}: {line.get('error', figures)}",
                file=sys.stderr,
                flush=True,
            )
    return failures


def machine() -> Dict[str, str]:
    with open("/proc/sys/net/ipv4/tcp_congestion_control", encoding="ascii") as file:
        congestion = file.read().strip()
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "kernel": platform.release(),
        "cores": str(os.cpu_count()),
        "congestion control": congestion,
        "load at the start": f"{os.getloadavg()[0]:.2f}",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--only", help="targets, for example P3,P4: only the cases that these need")
    parser.add_argument("--build", type=pathlib.Path, default=programs.ROOT / "build/release")
    parser.add_argument("--wheel", type=pathlib.Path, help="the wheel's transfer_engine_bench")
    parser.add_argument("--output", type=pathlib.Path, default=programs.ROOT / "build/bench")
    options = parser.parse_args()
    started = time.monotonic()
    options.output.mkdir(parents=True, exist_ok=True)
    raw = options.output / "raw.jsonl"
    raw.write_text(json.dumps({"machine": machine()}) + "\n", encoding="utf-8")
    all_programs = programs.Programs(options.build, options.wheel)
    with programs.wheel_target(all_programs) as segment:
        cases = all_cases(all_programs, segment, options.seconds)
        if options.only:
            wanted = report.cases_of(options.only.split(","))
            cases = {name: case for name, case in cases.items() if name in wanted}
        failures = measure(cases, options.rounds, raw, started)
    count_system_calls(all_programs, raw)
    print(report.write(options.output))
    print(f"{time.monotonic() - started:.0f} s, {failures} failed runs", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
