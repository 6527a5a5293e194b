#!/usr/bin/env python3
"""Recovery of jobs after faults: the matrix of bench/faults.py and more, for a job of 8 ranks on 4
of 5 nodes, to its end.

Each case runs on several seeds, which choose the rank or the node. Measures the time from the fault
to the first step that a later attempt completes, by rank 0's own lines; the number of repeated
steps; whether the job succeeded without an operator; and whether loss and gradient norm of every
step equal, bit for bit, those of an undisturbed job.

  bench/recovery.py --bin build/release/bin [--seeds 3] [--cases "SIGKILL;torn checkpoint"]
  [--out bench/results/recovery.json]

A checkpoint is saved every 5 steps. Each node is a network namespace, which needs root. Cases that
the machine does not support are reported and skipped.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from faults.command import run_matrix  # noqa: E402
from faults.recovered import run_recovery, summary, undisturbed  # noqa: E402
from faults.recoveries import CHECKPOINT_PERIOD, NODES, RECOVERIES  # noqa: E402


def describe(rows):
    return {"what": "faults of a job of 8 ranks on 4 nodes with a fifth one free, until it has ended", "checkpoint_period": CHECKPOINT_PERIOD,
            **summary(rows), "target": {"rank_seconds": "1 s + the load", "node_seconds": "3 s + the load", "needed_a_person": 0}}


if __name__ == "__main__":
    run_matrix(__doc__, RECOVERIES, "recovery.json", NODES + 1, undisturbed, run_recovery, describe)
