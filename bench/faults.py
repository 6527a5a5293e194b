#!/usr/bin/env python3
"""Scores hang detection: faults of a real job of 8 ranks on 4 workers, against the known truth.

Each case runs on several seeds, which choose the rank or the node. A job trains a tiny model; a
step takes --pace seconds more than its computation, as if each rank had its own device. Each node
is a network namespace, which needs root.

  bench/faults.py --bin build/release/bin [--seeds 3] [--cases "SIGSTOP;waits for a lock"]
  [--out bench/results/faults.json]

Latencies are measured from the fault to the first verdict that names a suspect, on the clock that
both record, and to the moment at which the job was stopped for it. For a silent node the job's
state has the verdict before the incident exists; the incident records that moment. A rank is named
if it is the first suspect; a node is named by its name or by one of its ranks. Cases that the
machine does not support are reported and skipped.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from faults.cases import CASES  # noqa: E402
from faults.command import run_matrix  # noqa: E402
from faults.scored import run_case, summary  # noqa: E402


def describe(rows):
    return {"what": "faults of a job of 8 ranks on 4 workers, each in a network namespace, against the truth", **summary(rows),
            "target": {"dead_seconds_p99_max": 1, "hang_seconds_max": "3 steps + 3 s", "named_min": 0.95, "false_alarms_max": 0}}


if __name__ == "__main__":
    run_matrix(__doc__, CASES, "faults.json", None, lambda fleet: None, lambda fleet, case, seed, _: run_case(fleet, case, seed), describe)
