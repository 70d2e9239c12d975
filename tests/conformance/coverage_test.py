#!/usr/bin/env python3
"""Checks that the conformance tests leave nothing out: numbers, reports, exported functions."""
import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
REPORTS = """C01 C02 C03 C05 C08 C11 C12 C13 M01 M02 M04 M08 M09 M10 M12 M13 M14 M15 M16 M17 M19 M20 M21 M23 M25 M26
R01 R02 R03 R04 R05 R06 R08 R09 R10 R11 R12 R13 R14 B01 B02 B05 B06 B08 B11 B12 N01 N03 N04 N05 P02 P03 P04 P07 P08
K02 K03 K04 K05 K06 K08 K09""".split()


def main():
    sources = {path.name: path.read_text() for path in sorted(FOLDER.glob("*_test.c"))}
    text = "\n".join(sources.values())
    defined = set(re.findall(r"^static void (\w+)\(void \*\*state\)", text, re.M))
    listed = re.findall(r"\b(?:TEST|cmocka_unit_test)\(\s*(\w+)\)", text)
    problems = [f"{name} is not in the table of its program" for name in sorted(defined - set(listed))]
    problems += [f"{name} is listed twice" for name in sorted({name for name in listed if listed.count(name) > 1})]

    words = {word for name in listed for word in name.split("_")}
    for letter, last in (("b", 40), ("e", 15)):
        starts = {name.split("_")[0] for name in listed}
        for number in range(1, last + 1):
            key = f"{letter}{number:02}"
            # eNN may share a test: b22_and_e02_...
            if key not in (starts if letter == "b" else words):
                problems.append(f"no test for {key}")

    reports = {match for name in listed if "report_" in name
               for match in re.findall(r"(?:report|and)_([a-z]\d\d)(?=_)", name)}
    excused = set(re.findall(r"^\| ([A-Z]\d\d) \|", (FOLDER / "not_applicable.md").read_text(), re.M))
    for report in REPORTS:
        if (report.lower() in reports) == (report in excused):
            problems.append(f"report {report}: needs either a test or a line in not_applicable.md")

    calls = (ROOT / "shim" / "calls.def").read_text()
    functions = re.findall(r"^TE_CALL\(\w+, (\w+)", calls, re.M) + re.findall(r"^TE_FUNCTION\((\w+)", calls, re.M)
    everything = text + (FOLDER / "support.c").read_text()
    for function in functions:
        if not re.search(rf"\b{function}\b\)?\s*\(", everything):
            problems.append(f"{function} is called by no test")

    compat = (ROOT / "COMPAT.md").read_text()
    problems += [f"{function} has no row in COMPAT.md" for function in re.findall(r"^TE_(?:CALL\(\w+, |FUNCTION\()(\w+), c[,)]",
                                                                                calls, re.M) if function not in compat]

    for problem in problems:
        print(problem)
    print(f"{len(listed)} tests, {len(functions)} functions, {len(problems)} problems")
    return 1 if problems or not functions else 0


if __name__ == "__main__":
    sys.exit(main())
