#!/usr/bin/env python3
"""Runs GoogleTest programs on a GPU, several tests in parallel, and writes each result as soon as
it is known.

A device error ends its process. Tests therefore run in chunks, each in a process of its own: if a
process ends within a test, that test has failed, and the rest of its chunk returns to the queue.
Whenever this script ends, FOLDER/tests.jsonl has the results so far, one JSON object per line:

  {"program": …, "test": "Suite.Name", "outcome": "passed" | "failed" | "skipped", "seconds": …,
  "measured": {…}, "message": …}
  {"program": …, "properties": {"device": …, "cuBLASLt": …, …}}        a program's own properties

Exit status: 0, or 77 if the programs find no GPU.
"""
import argparse
import collections
import fnmatch
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

OF_GTEST = {"name", "file", "line", "status", "result", "timestamp", "time", "classname", "failures", "skipped", "value_param", "type_param"}
NO_GPU = 77
# Tests that measure the device's free memory: no other test may run meanwhile.
ALONE = ("MemoryOfATraining.",)
# Bounds a chunk. Starting a process takes half a second, so chunks have several tests; after a
# crash the rest of a chunk runs again.
CHUNK_TESTS_MAX = 16
GRACE_SECONDS = 5


def listed(program):
    """Returns the names of the program's tests, without the values of their parameters."""
    output = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True, timeout=60)
    if output.returncode == NO_GPU:
        sys.exit(NO_GPU)
    names, suite = [], ""
    for line in output.stdout.splitlines():
        word = line.split("#")[0].rstrip()
        if re.match(r"^\S+\.$", word):
            suite = word
        elif line.startswith("  ") and word:
            names.append(suite + word.strip())
    return names


class Results:
    """Appends each row to the file and flushes it. Thread-safe."""

    def __init__(self, path):
        self.file = open(path, "a", encoding="utf-8")
        self.lock = threading.Lock()
        self.failed = []
        self.done = set()

    def write(self, row):
        with self.lock:
            self.file.write(json.dumps(row) + "\n")
            self.file.flush()
            if row.get("test"):
                self.done.add((row["program"], row["test"]))
            if row.get("outcome") == "failed":
                self.failed.append(row)
                print(f"FAILED {row['program']} {row['test']}: {row.get('message', '')[:400]}", flush=True)


class Chunks:
    """A queue of chunks of one program's tests."""

    def __init__(self, tests, workers):
        size = max(1, min(CHUNK_TESTS_MAX, len(tests) // (2 * workers) or 1))
        self.waiting = collections.deque(tests[i:i + size] for i in range(0, len(tests), size))
        self.lock = threading.Lock()

    def take(self):
        with self.lock:
            return self.waiting.popleft() if self.waiting else None

    def put_back(self, tests):
        with self.lock:
            if tests:
                self.waiting.appendleft(tests)


def outcome(test):
    if "failures" in test:
        return "failed"
    return "skipped" if test["result"] in ("SKIPPED", "SUPPRESSED") or test["status"] == "NOTRUN" else "passed"


def of_report(path):
    """Returns (results by test, the program's properties) of a process's report; both empty if the
    report is missing or incomplete.
    """
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        os.remove(path)
    except (OSError, ValueError):
        return {}, {}
    tests = {}
    for suite in report["testsuites"]:
        for test in suite["testsuite"]:
            row = {"outcome": outcome(test), "seconds": float(str(test.get("time", "0")).rstrip("s") or 0)}
            measured = {key: value for key, value in test.items() if key not in OF_GTEST}
            if measured:
                row["measured"] = measured
            if "failures" in test:
                row["message"] = test["failures"][0].get("failure", "")
            tests[f"{suite['name']}.{test['name']}"] = row
    properties = {key: report[key] for key in ("device", "cuBLASLt", "cuDNN", "NCCL", "notes") if key in report}
    return tests, properties


def of_log(text):
    """Returns (results by test, the unfinished test or None) from a process's output."""
    ends = {"       OK": "passed", "  FAILED ": "failed", "  SKIPPED": "skipped"}
    tests, begun = {}, None
    for what, name in re.findall(r"^\[( RUN     |       OK|  FAILED |  SKIPPED) \] ([^\s,]+)", text, re.MULTILINE):
        if what == " RUN     ":
            begun = name
        elif name == begun:
            tests[name] = {"outcome": ends[what]}
            begun = None
    return tests, begun


class Runner:
    def __init__(self, options, results):
        self.options = options
        self.results = results
        self.until = time.monotonic() + options.seconds

    def left(self):
        return self.until - time.monotonic()

    def run_program(self, path, tests):
        alone = [test for test in tests if test.startswith(ALONE)]
        self.run_side_by_side(path, alone, 1)
        self.run_side_by_side(path, [test for test in tests if test not in alone], self.options.jobs)

    def run_side_by_side(self, path, tests, jobs):
        name = os.path.basename(path)
        workers = max(1, min(jobs, len(tests)))
        chunks = Chunks(tests, workers)
        threads = [threading.Thread(target=self.work, args=(path, name, chunks, number)) for number in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def work(self, path, name, chunks, number):
        while self.left() > 1:
            tests = chunks.take()
            if tests is None:
                return
            chunks.put_back(self.run_chunk(path, name, tests, number))

    def run_chunk(self, path, name, tests, number):
        """Runs the tests in a process; returns those without a result because the process ended
        earlier.
        """
        stem = os.path.join(self.options.out, f"{name}.{number}")
        flags = stem + ".flags"
        with open(flags, "w", encoding="utf-8") as file:
            file.write("--gtest_filter=" + ":".join(tests) + "\n")
        output, status, late = self.started([path, f"--gtest_output=json:{stem}.json", f"--gtest_flagfile={flags}"])
        os.remove(flags)
        finished, properties = of_report(stem + ".json")
        logged, begun = of_log(output)
        rows = finished or logged
        for test, row in rows.items():
            self.results.write({"program": name, "test": test, **row})
        if properties:
            self.results.write({"program": name, "properties": properties})
        interesting = [line for line in output.splitlines() if not re.match(r"^\[( RUN  |       OK |  SKIPPED |---|===)", line)]
        with open(os.path.join(self.options.out, name + ".log"), "a", encoding="utf-8") as log:
            log.write("\n".join(interesting[-200:]) + "\n")
        rest = [test for test in tests if test not in rows]
        if finished and status != 0 and not any(row["outcome"] == "failed" for row in finished.values()):
            self.results.write({"program": name, "test": "at the end of " + tests[-1], "outcome": "failed",
                                "message": f"the process ended with status {status} after its tests"})
        if finished:
            return []
        # Blames one test for a process that crashed, or that reported no test, so that the tests
        # left get fewer and this ends.
        blamed = begun or (rest[0] if rest else None)
        if blamed is not None:
            why = "was not over when the time was" if late else f"ended the process with status {status}"
            tail = " | ".join(output.strip().splitlines()[-3:])
            self.results.write({"program": name, "test": blamed, "outcome": "failed", "message": f"{why}: {tail[-600:]}"})
        return [test for test in rest if test != blamed]

    def started(self, command):
        """Runs the command; returns (output, status, whether it exceeded its time limit)."""
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
        late = False
        try:
            output, _ = process.communicate(timeout=max(1.0, min(self.left(), self.options.test_seconds)))
        except subprocess.TimeoutExpired:
            late = True
            os.killpg(process.pid, signal.SIGTERM)
            try:
                output, _ = process.communicate(timeout=GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
        status = process.returncode
        return output, 128 - status if status < 0 else status, late


def first_of(path):
    """Returns, by program, patterns of the tests to run first, from a file with lines `PROGRAM
    PATTERN`.
    """
    first = collections.defaultdict(list)
    if path and os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                words = line.split("#")[0].split()
                if len(words) == 2:
                    first[words[0]].append(words[1])
    return first


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--test-seconds", type=float, default=90, help="time limit for a chunk of tests")
    parser.add_argument("--jobs", type=int, default=max(1, min(8, (os.cpu_count() or 1) // 2)))
    parser.add_argument("--first", help="file with patterns of the tests to run first")
    options = parser.parse_args()
    results = Results(os.path.join(options.out, "tests.jsonl"))
    runner = Runner(options, results)
    first = first_of(options.first)
    all_tests = {path: listed(path) for path in options.programs}
    for early in (True, False):
        for path, names in all_tests.items():
            name = os.path.basename(path)
            tests = [test for test in names if any(fnmatch.fnmatchcase(test, pattern) for pattern in first[name]) == early]
            if tests:
                runner.run_program(path, tests)
    for path, names in all_tests.items():
        name = os.path.basename(path)
        missing = [test for test in names if (name, test) not in results.done]
        for test in missing:
            results.write({"program": name, "test": test, "outcome": "failed", "message": "not run: the time was over"})


if __name__ == "__main__":
    main()
