#!/usr/bin/env python3
"""Makes the table and the plots from the raw lines of compare.py.

  report.py [DIRECTORY]        DIRECTORY with raw.jsonl, build/bench by default; writes report.md, targets.svg, speed.svg

A ratio is taken within a round, from two runs of that round; what is shown is the median over the rounds, and the
smallest and largest. "hot" buffers are one block that every request moves, which is what iperf3 does; "batch" gives
each request of a batch its own; "cold" walks through 256 MiB.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import sys
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

import plot

LANES = 4
Rounds = Dict[int, Dict[str, Dict[str, Any]]]  # round -> case -> figures


class Side(NamedTuple):
    case: str
    field: str


class Comparison(NamedTuple):
    """One row: ours over other, or ours alone if there is no other. bound None: shown for information."""

    target: str
    what: str
    ours: Side
    other: Optional[Side]
    bound: Optional[float] = None
    at_least: bool = True
    scale: float = 1.0  # of the figure when there is no other
    unit: str = ""


class Outcome(NamedTuple):
    comparison: Comparison
    ours: float
    other: Optional[float]
    ratios: List[float]

    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def passed(self) -> Optional[bool]:
        bound = self.comparison.bound
        if bound is None:
            return None
        return self.ratio() >= bound if self.comparison.at_least else self.ratio() <= bound

    def score(self) -> float:
        """1 is the target, more is better."""
        bound = self.comparison.bound or 1.0
        ratio = self.ratio()
        if self.comparison.at_least:
            return ratio / bound
        return bound / ratio if ratio > 0 else float("inf")


RATE = "gigabytes_per_second"


def large(streams: int) -> Iterable[Comparison]:
    for operation in ("read", "write"):
        name = f"{operation} 1M"
        title = f"{operation.upper()} 1 MiB x 16"
        ours = Side(f"ours {name} hot", RATE)
        off = Side(f"ours off {name} hot", RATE)
        cold = Side(f"ours {name} cold", RATE)
        batch = Side(f"ours {name} batch", RATE)
        reno, default = Side(f"iperf3 {streams} reno", RATE), Side(f"iperf3 {streams} default", RATE)
        yield Comparison("P1", f"{title}, hot, over iperf3 -P {streams} -C reno", ours, reno, 0.95)
        yield Comparison("P1", f"{title}, hot, setting off, over iperf3 -P {streams}, default", off, default, 0.95)
        yield Comparison("P1", f"{title}, hot, over iperf3 -P {streams}, default", ours, default)
        yield Comparison("P1", f"{title}, cold, over iperf3 -P {streams} -C reno (hot)", cold, reno)
        yield Comparison("P1", f"{title}, hot, over the floor", ours, Side(f"floor {name} hot reno", RATE))
        yield Comparison("P1", f"{title}, cold, over the floor (cold)", cold, Side(f"floor {name} cold reno", RATE))
        yield Comparison("P1", f"{title}, own block each, over Mooncake", batch, Side(f"wheel {name}", RATE), 3)
        yield Comparison("P1", f"{title}, hot, setting off, over Mooncake", off, Side(f"wheel {name}", RATE))


def middle() -> Iterable[Comparison]:
    for operation in ("read", "write"):
        name = f"{operation} 64K"
        title = f"{operation.upper()} 64 KiB x 16"
        ours, off = Side(f"ours {name} batch", RATE), Side(f"ours off {name} batch", RATE)
        yield Comparison("P2", f"{title} over Mooncake", ours, Side(f"wheel {name}", RATE), 3)
        yield Comparison("P2", f"{title} over the floor", ours, Side(f"floor {name} batch reno", RATE), 0.8)
        yield Comparison("P2", f"{title}, setting off, over the floor", off, Side(f"floor {name} batch default", RATE), 0.8)
        yield Comparison("P2", f"{title}, setting off, over Mooncake", off, Side(f"wheel {name}", RATE))
        cold = Side(f"ours {name} cold", RATE)
        yield Comparison("P2", f"{title}, cold, over the floor (cold)", cold, Side(f"floor {name} cold reno", RATE))


def small() -> Iterable[Comparison]:
    for mode, words in (("spin", "spinning"), ("block", "blocking")):
        ours = Side(f"ours write 64 {mode}", "p50_us")
        yield Comparison("P3", f"WRITE 64 B, {words}, over sockperf {words}", ours, Side(f"sockperf {mode}", "p50_us"), 1.5, False)
        yield Comparison("P3", f"WRITE 64 B, {words}, over the floor", ours, Side(f"floor write 64 {mode}", "p50_us"), None, False)
    ours = Side("ours read 4K spin", "p50_us")
    yield Comparison("P4", "READ 4 KiB, p50 over the floor", ours, Side("floor read 4K spin", "p50_us"), 1.5, False)
    yield Comparison("P4", "READ 4 KiB, p99 over p50", Side("ours read 4K spin", "p99_us"), ours, 2, False)
    yield Comparison("P4", "READ 4 KiB, Mooncake's mean over ours", Side("wheel read 4K", "mean_us"), Side("ours read 4K spin", "mean_us"), 4)
    yield Comparison("P4", "WRITE 64 B, Mooncake's mean over ours", Side("wheel write 64", "mean_us"), Side("ours write 64 spin", "mean_us"))
    blocking = Side("ours read 4K block", "p50_us")
    yield Comparison("P4", "READ 4 KiB, blocking, over the floor", blocking, Side("floor read 4K block", "p50_us"), None, False)


def processor(streams: int) -> Iterable[Comparison]:
    cpu = "cpu_per_gigabyte"
    for operation in ("read", "write"):
        title = f"CPU per GB, both sides, {operation.upper()} 1 MiB x 16"
        iperf3 = Side(f"iperf3 {streams} reno", cpu)
        yield Comparison("P9", f"{title}, waiting, over iperf3 -P {streams}", Side(f"ours {operation} 1M hot wait", cpu), iperf3, 1.2, False)
        yield Comparison("P9", f"{title}, spinning, over iperf3 -P {streams}", Side(f"ours {operation} 1M hot", cpu), iperf3, None, False)
    yield Comparison("P9", "idle engine, share of a core", Side("ours idle", "core_share"), None, 0.1, False, 100, "%")


def growing() -> Iterable[Comparison]:
    axes = (
        ("peers", 1000, 1, "peers open, one in use"),
        ("around", 1000, 1, "peers in turn, asleep"),
        ("regions", 10000, 1, "regions"),
        ("tasks", 10000, 1, "tasks in flight"),
        ("tasks", 10000, 100, "tasks in flight"),
    )
    for axis, many, one, title in axes:
        for field, words in (("p50_us", "time"), ("cpu_us", "CPU")):
            if axis == "around" and field == "cpu_us":
                continue  # the pauses are in it
            what = f"{words} per transfer, {many} {title}, over {one}"
            yield Comparison("P11", what, Side(f"growth {axis} {many}", field), Side(f"growth {axis} {one}", field), 1.2, False)
    peers = "growth peers 1000"
    yield Comparison("P11", "memory per idle peer", Side(peers, "bytes_per_peer"), None, 16, False, 1 / 1024, " KiB")
    yield Comparison("P11", "memory per idle peer, at 1000 targets together", Side(peers, "target_bytes_per_peer"), None, None, False, 1 / 1024, " KiB")
    yield Comparison("P11", "descriptors per peer", Side(peers, "descriptors_per_peer"), None, None, False)
    yield Comparison("P13", "two polling pairs, longest time without progress", Side("ours two pairs", "longest_gap_us"), None, 10, False, 1e-3, " ms")


def comparisons(streams: int) -> List[Comparison]:
    return [*large(streams), *middle(), *small(), *processor(streams), *growing()]


def cases_of(targets: Iterable[str]) -> Set[str]:
    """The cases that the rows of these targets need."""
    names: Set[str] = set()
    for streams in (1, LANES):
        for row in comparisons(streams):
            if row.target in targets:
                names.update(side.case for side in (row.ours, row.other) if side)
    return names


def value(figures: Dict[str, Dict[str, Any]], side: Side) -> Optional[float]:
    return figures.get(side.case, {}).get(side.field)


def evaluate(row: Comparison, rounds: Rounds) -> Optional[Outcome]:
    ours: List[float] = []
    others: List[float] = []
    ratios: List[float] = []
    for figures in rounds.values():
        left = value(figures, row.ours)
        right = value(figures, row.other) if row.other else None
        if left is None or (row.other and not right):
            continue
        ours.append(left)
        if row.other:
            others.append(right)
            ratios.append(left / right)
        else:
            ratios.append(left * row.scale)
    if not ours:
        return None
    return Outcome(row, statistics.median(ours), statistics.median(others) if others else None, ratios)


def streams_used(rounds: Rounds) -> int:
    """As many as our large transfers used, so that iperf3 can be given as many."""
    seen = [
        figures["connections"]
        for cases in rounds.values()
        for name, figures in cases.items()
        if name.startswith("ours") and "1M hot" in name and "connections" in figures
    ]
    return 1 if seen and statistics.median(seen) <= 1 else LANES


class Raw(NamedTuple):
    machine: Dict[str, str]
    rounds: Rounds
    errors: List[str]
    calls: List[Tuple[str, Dict[str, float]]]  # of which transfers, system calls of each


def load(raw: pathlib.Path) -> Raw:
    machine: Dict[str, str] = {}
    rounds: Rounds = {}
    errors: List[str] = []
    calls: List[Tuple[str, Dict[str, float]]] = []
    for text in raw.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if "machine" in line:
            machine = line["machine"]
        elif "calls" in line:
            calls.append((line["calls"], line["each"]))
        elif "error" in line:
            errors.append(f"round {line['round']}, {line['case']}: {line['error']}")
        else:
            rounds.setdefault(line["round"], {})[line["case"]] = line
    return Raw(machine, rounds, errors, calls)


def number(figure: Optional[float]) -> str:
    return "" if figure is None else f"{figure:.3g}" if abs(figure) < 1000 else f"{figure:.0f}"


def table_row(outcome: Outcome) -> str:
    row = outcome.comparison
    verdict = {True: "pass", False: "**miss**", None: ""}[outcome.passed()]
    bound = "" if row.bound is None else f"{'≥' if row.at_least else '≤'} {row.bound:g}{row.unit}"
    spread = f"{number(min(outcome.ratios))}..{number(max(outcome.ratios))}"
    cells = [row.target, row.what, number(outcome.ours), number(outcome.other)]
    cells += [f"{number(outcome.ratio())}{row.unit}", spread, bound, verdict]
    return f"| {' | '.join(cells)} |"


def figures_table(rounds: Rounds) -> List[str]:
    """Every case by itself."""
    fields: Tuple[Tuple[str, str, Callable[[float], float]], ...] = (
        (RATE, "GB/s", float),
        ("mean_us", "mean us", float),
        ("p50_us", "p50 us", float),
        ("p99_us", "p99 us", float),
        ("cpu_per_gigabyte", "CPU s/GB", float),
        ("connections", "connections", float),
    )
    lines = [f"| case | {' | '.join(title for _, title, _ in fields)} |", f"|{' --- |' * (len(fields) + 1)}"]
    for name in sorted({case for figures in rounds.values() for case in figures}):
        cells = []
        for field, _, _ in fields:
            seen = [figures[name][field] for figures in rounds.values() if figures.get(name, {}).get(field) is not None]
            cells.append(number(statistics.median(seen)) if seen else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def speed_bars(rounds: Rounds, streams: int) -> List[plot.Bar]:
    groups = [(f"{op.upper()} {size} x 16", f"{op} {short}") for size, short in (("64 KiB", "64K"), ("1 MiB", "1M")) for op in ("read", "write")]
    bars: List[plot.Bar] = []
    for title, name in groups:
        layout = "hot" if "1M" in name else "batch"
        for label, case in (
            ("iperf3, reno", f"iperf3 {streams} reno"),
            ("iperf3, default", f"iperf3 {streams} default"),
            ("floor, reno", f"floor {name} {layout} reno"),
            ("this library", f"ours {name} {layout}"),
            ("this library, setting off", f"ours off {name} {layout}"),
            ("Mooncake", f"wheel {name}"),
        ):
            seen = [figures[case][RATE] for figures in rounds.values() if RATE in figures.get(case, {})]
            if seen:
                middle_rate = statistics.median(seen)
                bars.append(plot.Bar(f"{title}: {label}", middle_rate, f"{middle_rate:.2f} GB/s", label.startswith("this")))
    return bars


def write(directory: pathlib.Path) -> str:
    """Writes report.md and the plots, and returns the text."""
    machine, rounds, errors, calls = load(directory / "raw.jsonl")
    streams = streams_used(rounds)
    outcomes = [outcome for row in comparisons(streams) if (outcome := evaluate(row, rounds))]
    judged = [outcome for outcome in outcomes if outcome.passed() is not None]
    lines = ["# Benchmark", "", ", ".join(f"{key} {text}" for key, text in machine.items()), ""]
    lines += [f"Medians of {len(rounds)} rounds; a ratio is taken within its round. Ours used {streams} connection(s) for large requests.", ""]
    lines += ["| target | what | ours | other | ratio | smallest..largest | bound | |", f"|{' --- |' * 8}"]
    lines += [table_row(outcome) for outcome in outcomes]
    passed = sum(bool(outcome.passed()) for outcome in judged)
    lines += ["", f"{passed} of {len(judged)} bounds are reached.", "", "![](targets.svg)", "", "![](speed.svg)", ""]
    lines += ["## Every case", "", *figures_table(rounds)]
    if calls:
        lines += ["", "## System calls per transfer", "", "Ours, both processes together, the caller waiting. A bare exchange takes 2 sends and 2 receives; batches share them.", ""]
        lines += [f"- {name}: {', '.join(f'{call} {each:g}' for call, each in table.items())}" for name, table in calls]
    if errors:
        lines += ["", "## Failed runs", "", *(f"- {error}" for error in errors)]
    text = "\n".join(lines) + "\n"
    (directory / "report.md").write_text(text, encoding="utf-8")
    bars = [
        plot.Bar(f"{o.comparison.target} {o.comparison.what}", min(o.score(), 3), f"{number(o.ratio())}{o.comparison.unit}", bool(o.passed()))
        for o in judged
    ]
    plot.write(directory / "targets.svg", "How far each target is reached (1 is the target; more is better; cut at 3)", bars, 1.0)
    plot.write(directory / "speed.svg", "Bandwidth, medians", speed_bars(rounds, streams), None)
    return text


if __name__ == "__main__":
    print(write(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path("build/bench")))
