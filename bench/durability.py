#!/usr/bin/env python3
"""Kills and restarts a coordinator under load, and checks that it loses nothing it confirmed.

  bench/durability.py --bin build/release/bin [--cycles 2000] [--seed 1]
                      [--out bench/results/durability.json]

Callers submit, watch and cancel jobs over gRPC, and repeat each request until it is answered.
Simulated workers start and end ranks; they retain them and their reports while the coordinator is
down, as muster-worker does. The coordinator is killed by SIGKILL at random times, one in eight
during its start, and started again on the same state. A run fails if

  - a confirmed submission is unknown afterwards, belongs to another job, or reaches no end;
  - a rank is started twice, an attempt starts while an earlier one runs, or a job is restarted
    without a fault of its ranks;
  - a job succeeds although not all its ranks exited with code 0, or is cancelled without a request;
  - the end of a job changes, an epoch is repeated, or the coordinator ends by itself;
  - the state file does not pass SQLite's integrity check.

The figures of the run are counts: `submissions_sent` minus `submissions_confirmed` requests were
repeated, and `orders_repeated` orders to start ranks arrived again and were ignored.
"""
import argparse
import json
import pathlib
import sqlite3
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from peers.environment import describe_run  # noqa: E402


def check_state(path):
    """Returns a list of what is wrong with the state file."""
    with sqlite3.connect(path) as database:
        result = database.execute("PRAGMA integrity_check").fetchone()[0]
        jobs = [json.loads(record) for (record,) in database.execute("SELECT record FROM jobs")]
    problems = [] if result == "ok" else [f"integrity check: {result}"]
    if not jobs:
        problems.append("the state has no jobs")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of muster-coordinator and kill_cycles")
    parser.add_argument("--cycles", type=int, default=2000, help="number of kills")
    parser.add_argument("--seed", type=int, default=1, help="seed of the load and of the times of kills")
    parser.add_argument("--life-ms", type=int, default=250, help="mean time from a coordinator's readiness to its kill")
    parser.add_argument("--out", type=pathlib.Path, help="write the results to this file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([str(part) for part in (args.bin / "kill_cycles", "--coordinator", args.bin / "muster-coordinator", "--folder", folder,
                                                      "--cycles", args.cycles, "--seed", args.seed, "--life-ms", args.life_ms)],
                              stdout=subprocess.PIPE, text=True)
        if not done.stdout.strip():
            return done.returncode or 1
        counts = json.loads(done.stdout)
        counts["first_violations"] += check_state(pathlib.Path(folder) / "state/muster.db")
    failed = done.returncode != 0 or bool(counts["first_violations"]) or not counts.get("jobs_SUCCEEDED")
    print(json.dumps(counts, indent=1))
    if args.out:
        args.out.write_text(json.dumps(describe_run() | {"passed": not failed, **counts}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
