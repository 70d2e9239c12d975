#!/usr/bin/env python3
"""Counts the test cases of a ctest run, not just its programs.

  count_cases.py JUNIT_FILE

Reads what `ctest --output-junit` wrote and prints "PASSED FAILED SKIPPED", then one line for each case that was
skipped or failed; below a failed one, the end of what it said, without the engine's log. Understands the output of cmocka, of Python's unittest, and a line "N passed, N failed, N skipped";
a program that prints none of these is one case. A program whose status says failure has at least one failed case.
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from typing import List, NamedTuple

CLOSING_LINE = re.compile(r"^(?:\S+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.MULTILINE)
ENGINE_LOG = re.compile(r"^\(process:\d+\): transfer-engine-|^\s*$|^\[ +(?:RUN|OK) ")
EXCERPT_LINES = 25
UNITTEST = re.compile(r"^Ran (\d+) tests? in .*\n\s*\n(OK|FAILED)(?: \((.*)\))?", re.MULTILINE)


class Count(NamedTuple):
    passed: int
    failed: int
    skipped: int


def count_cmocka(output: str) -> Count:
    def total(word: str) -> int:
        return sum(int(n) for n in re.findall(rf"\[  {word}\s*\] (?:[^\n]*: )?(\d+) test\(s\)", output))

    if not re.search(r"\[=+\] (?:[^\n]*: )?\d+ test\(s\) run", output):  # it ended before its summary
        return Count(len(re.findall(r"\[ +OK \]", output)), 1, 0)
    return Count(total("PASSED"), total("FAILED"), total("SKIPPED"))


def count_unittest(output: str) -> Count:
    ran = failed = skipped = 0
    for number, _, details in UNITTEST.findall(output):
        ran += int(number)
        counts = {key: int(value) for key, value in re.findall(r"([a-z ]+)=(\d+)", details)}
        failed += counts.get("failures", 0) + counts.get("errors", 0) + counts.get("unexpected successes", 0)
        skipped += counts.get("skipped", 0)
    return Count(max(ran - failed - skipped, 0), failed, skipped)


def count_program(output: str, status: str) -> Count:
    closing = CLOSING_LINE.findall(output)
    if "[==========] " in output:
        count = count_cmocka(output)
    elif UNITTEST.search(output):
        count = count_unittest(output)
    elif closing:
        count = Count(*(sum(int(line[i] or 0) for line in closing) for i in range(3)))
    elif status == "skipped":
        count = Count(0, 0, 1)
    else:
        count = Count(int(status == "passed"), int(status == "failed"), 0)
    if status == "failed" and count.failed == 0:
        count = count._replace(failed=1)
    return count


def status_of(case: ElementTree.Element) -> str:
    word = case.get("status")
    if word == "run":
        return "passed"
    # "notrun" and "disabled" are ctest's words for SKIP_RETURN_CODE and DISABLED, but also for a missing program.
    if case.find("skipped") is not None:
        return "skipped" if "SKIP" in (case.find("skipped").get("message") or "").upper() else "failed"
    return "failed"


def excerpt(output: str) -> List[str]:
    lines = [line for line in output.splitlines() if not ENGINE_LOG.search(line)]
    return ["  | " + line[:300] for line in lines[-EXCERPT_LINES:]]


def main(path: str) -> int:
    total = Count(0, 0, 0)
    remarks: List[str] = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        output = case.findtext("system-out") or ""
        count = count_program(output, status_of(case))
        total = Count(*(a + b for a, b in zip(total, count)))
        if count.failed:
            remarks.append(f"{case.get('name')}: {count.failed} failed")
            remarks.extend(excerpt(output))
        if count.skipped:
            reasons = re.findall(r"^.*\bskip(?:ped)?:? .*$", output, re.MULTILINE | re.IGNORECASE)
            reason = next((r.strip() for r in reasons if "test(s)" not in r), "it gives no reason")
            remarks.append(f"{case.get('name')}: {count.skipped} skipped ({reason})")
    print(*total)
    for remark in remarks:
        print(remark)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
