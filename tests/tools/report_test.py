#!/usr/bin/env python3
"""The arithmetic of bench/report.py."""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import report  # pylint: disable=wrong-import-position

RATE = report.RATE


def rounds_of(**cases: list) -> report.Rounds:
    """cases: name -> rate in round 1, 2, ...; None: that run is missing."""
    rounds: report.Rounds = {}
    for name, rates in cases.items():
        for number, rate in enumerate(rates, 1):
            if rate is not None:
                rounds.setdefault(number, {})[name] = {"case": name, RATE: rate}
    return rounds


def comparison(bound: float, at_least: bool = True) -> report.Comparison:
    return report.Comparison("P0", "test", report.Side("ours", RATE), report.Side("other", RATE), bound, at_least)


class RatioTest(unittest.TestCase):
    def test_the_ratio_is_the_median_of_the_rounds_ratios(self) -> None:
        # The ratio of the medians would be 10 / 10.
        outcome = report.evaluate(comparison(1), rounds_of(ours=[10, 20, 1], other=[20, 10, 5]))
        self.assertEqual(outcome.ratio(), 0.5)
        self.assertEqual((min(outcome.ratios), max(outcome.ratios)), (0.2, 2))
        self.assertFalse(outcome.passed())

    def test_a_round_that_lacks_one_side_is_left_out(self) -> None:
        outcome = report.evaluate(comparison(1), rounds_of(ours=[10, None, 30], other=[10, 10, None]))
        self.assertEqual(outcome.ratios, [1])
        self.assertTrue(outcome.passed())

    def test_nothing_measured_is_no_outcome(self) -> None:
        self.assertIsNone(report.evaluate(comparison(1), rounds_of(ours=[10])))

    def test_at_most(self) -> None:
        outcome = report.evaluate(comparison(1.5, False), rounds_of(ours=[3], other=[2]))
        self.assertTrue(outcome.passed())
        self.assertEqual(outcome.score(), 1)
        outcome = report.evaluate(comparison(1.5, False), rounds_of(ours=[4], other=[2]))
        self.assertFalse(outcome.passed())
        self.assertEqual(outcome.score(), 0.75)

    def test_a_figure_by_itself_is_scaled(self) -> None:
        row = report.Comparison("P0", "test", report.Side("ours", RATE), None, 10, False, 1e-3)
        outcome = report.evaluate(row, rounds_of(ours=[9000, 11000, 9500]))
        self.assertEqual(outcome.ratio(), 9.5)
        self.assertTrue(outcome.passed())


class ReportTest(unittest.TestCase):
    def test_cases_of_a_target_are_those_its_rows_name(self) -> None:
        self.assertEqual(
            report.cases_of(["P13"]), {"ours two pairs"}
        )
        self.assertIn("wheel read 64K", report.cases_of(["P2"]))

    def test_report_names_misses_and_failed_runs(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            directory = pathlib.Path(name)
            lines = [{"machine": {"kernel": "test"}}]
            for number in (1, 2, 3):
                lines.append({"round": number, "case": "ours read 64K batch", RATE: 7})
                lines.append({"round": number, "case": "floor read 64K batch reno", RATE: 10})
                lines.append({"round": number, "case": "wheel read 64K", RATE: 2})
            lines.append({"round": 3, "case": "sockperf spin", "error": "it fell over"})
            (directory / "raw.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
            text = report.write(directory)
            self.assertIn("| P2 | READ 64 KiB x 16 over Mooncake | 7 | 2 | 3.5 | 3.5..3.5 | ≥ 3 | pass |", text)
            self.assertIn("| P2 | READ 64 KiB x 16 over the floor | 7 | 10 | 0.7 | 0.7..0.7 | ≥ 0.8 | **miss** |", text)
            self.assertIn("1 of 2 bounds are reached", text)
            self.assertIn("- round 3, sockperf spin: it fell over", text)
            for picture in ("targets.svg", "speed.svg"):
                self.assertTrue((directory / picture).read_text(encoding="utf-8").startswith("<svg"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
