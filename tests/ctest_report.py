#!/usr/bin/env python3
"""Counts the cases of a CTest run: ctest_report.py JUNIT_FILE RESULTS_FOLDER.

RESULTS_FOLDER has GoogleTest's reports, one of each test that runs several cases. A test without
such a report is one case. Prints `PASSED FAILED SKIPPED`, the programs that took the most seconds,
and the name of each failed case.
"""
import collections
import pathlib
import sys
import xml.etree.ElementTree as tree


def gtest_cases(path):
    """Returns (name, outcome) of each case of a GoogleTest report; a crash leaves no report."""
    if not path.exists():
        return []
    cases = []
    for case in tree.parse(path).getroot().iter("testcase"):
        if case.find("failure") is not None:
            outcome = "failed"
        else:
            outcome = "passed" if case.get("result") == "completed" else "skipped"
        cases.append((f"{case.get('classname')}.{case.get('name')}", outcome))
    return cases


def main():
    counts = collections.Counter()
    seconds = collections.Counter()
    failed = []
    for test in tree.parse(sys.argv[1]).getroot().iter("testcase"):
        name, status = test.get("name"), test.get("status")
        seconds[name.split(".")[0]] += float(test.get("time") or 0)
        cases = [(f"{name} {case}", outcome) for case, outcome in gtest_cases(pathlib.Path(sys.argv[2]) / f"{name}.xml")]
        has_failed = status == "fail" or test.find("failure") is not None
        # A sanitizer may end a program whose cases have all passed.
        if not cases or (has_failed and all(outcome != "failed" for _, outcome in cases)):
            cases.append((name, "failed" if has_failed else "passed" if status == "run" else "skipped"))
        counts.update(outcome for _, outcome in cases)
        failed += [case for case, outcome in cases if outcome == "failed"]
    print(counts["passed"], counts["failed"], counts["skipped"])
    print("  most seconds:", ", ".join(f"{name} {total:.0f}" for name, total in seconds.most_common(12)))
    print("\n".join(failed))


if __name__ == "__main__":
    main()
