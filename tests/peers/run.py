#!/usr/bin/env python3
"""Runs the tests against the real Mooncake engine.

  run.py [--build DIR] [--jobs N] [-k TEXT] [MODULE | MODULE.CLASS[.TEST]]...

DIR is a build of this library (default build/release); MODULE is a file of this folder without test_ and .py; without
any, all are run. -k runs only the tests with TEXT in their name, --jobs that many modules at a time. Prints a line for
each test and closes with "N passed, N failed, N skipped". Run it with the interpreter of the environment that
install.sh makes.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import pathlib
import re
import resource
import subprocess
import sys
import time
import traceback
import unittest
from typing import Any, List, Tuple

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


class Result(unittest.TestResult):
    """One line a test, with the log of its peers when it fails."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = self.failed = 0
        self.failures_text: List[Tuple[str, str]] = []
        self._begin = 0.0
        self._bad = False

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._begin, self._bad = time.monotonic(), False

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        skipped = any(skipped is test for skipped, _ in self.skipped)
        if not skipped:
            self._line("FAILED" if self._bad else "ok", test)
            self.failed, self.passed = self.failed + self._bad, self.passed + (not self._bad)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self._line("skipped", test, reason)

    def addSubTest(self, test: unittest.TestCase, subtest: Any, error: Any) -> None:
        if error is not None:
            self._fail(subtest, error)

    def addFailure(self, test: unittest.TestCase, error: Any) -> None:
        self._fail(test, error)

    def addError(self, test: unittest.TestCase, error: Any) -> None:
        self._fail(test, error)
        if not isinstance(test, unittest.TestCase):  # setUpClass or a module that cannot be loaded
            self.failed += 1
            print(f"FAILED  {test}", flush=True)

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self._bad = True

    def _fail(self, test: Any, error: Any) -> None:
        self._bad = True
        text = "".join(traceback.format_exception(*error, limit=-4))
        for number, peer in enumerate(getattr(test, "peers", [])):
            text += f"--- end of the log of peer {number}, {peer.kind} {peer.name}\n{peer.log_tail(15)}\n"
        print(text, flush=True)

    def _line(self, verdict: str, test: unittest.TestCase, remark: str = "") -> None:
        seconds = f"{time.monotonic() - self._begin:.1f} s"
        print(f"{verdict:7} {test.id()} {remark or seconds}", flush=True)


def modules() -> List[str]:
    return sorted(path.stem[len("test_") :] for path in HERE.glob("test_*.py"))


def in_parallel(options: argparse.Namespace) -> int:
    """Each module in a run of its own; the output of one comes when it has ended."""
    common = [sys.executable, __file__, f"--build={options.build}", *(f"-k{text}" for text in options.patterns or [])]

    def run(name: str) -> Tuple[int, int, int]:
        done = subprocess.run([*common, name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        output, _, closing = done.stdout.rstrip().rpartition("\n")
        found = re.fullmatch(r"(\d+) passed, (\d+) failed, (\d+) skipped", closing)
        print(output if found else done.stdout, flush=True)
        if not found:
            print(f"FAILED  {name}: ended with status {done.returncode}", flush=True)
        return (int(found[1]), int(found[2]), int(found[3])) if found else (0, 1, 0)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        passed, failed, skipped = (sum(column) for column in zip(*pool.map(run, options.names or modules())))
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 0 if failed == 0 and passed > 0 else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("-k", dest="patterns", action="append", help="only tests with this text in their name")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.jobs > 1:
        return in_parallel(options)
    os.environ.setdefault("TE_PEER", str((options.build / "bin" / "te_peer").resolve()))
    # Tests with many connections need as many descriptors as peers are allowed to have.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sys.path.insert(0, str(HERE))
    sys.dont_write_bytecode = True
    loader = unittest.TestLoader()
    if options.patterns:
        loader.testNamePatterns = [f"*{pattern}*" for pattern in options.patterns]
    suite = loader.loadTestsFromNames([f"test_{name}" for name in options.names or modules()])
    result = Result()
    suite.run(result)
    print(f"{result.passed} passed, {result.failed} failed, {len(result.skipped)} skipped", flush=True)
    return 0 if result.failed == 0 and result.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
