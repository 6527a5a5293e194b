#!/usr/bin/env python3
"""Scores hang detection: faults of a real job of 8 ranks on 4 workers, against what is known to be true.

Each case runs on several seeds, which choose the rank or the node. A job trains a tiny model; a step takes --pace seconds more
than it computes, as if each rank had a device of its own. Each node is a network namespace: root is needed.

  bench/faults.py --bin build/release/bin [--seeds 3] [--cases SIGSTOP,lock] [--out bench/results/faults.json]

Latency is from the fault to the incident's verdict, in the clock that both write down, and to the moment when the job was stopped for it. A
rank counts as named when it is the first suspect; a node by its name or one of its ranks. What the machine refuses is told, and left out.
"""
import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from faults.cases import CASES  # noqa: E402
from faults.fleet import Fleet  # noqa: E402
from faults.scored import run_case, summary  # noqa: E402
from peers.environment import describe_run  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cases", help="some of the matrix, by name, with commas")
    parser.add_argument("--pace", type=float, default=0.1)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/faults.json")
    args = parser.parse_args()
    chosen = [case for case in CASES if args.cases is None or case.name in args.cases.split(",")]
    results = []
    fleet = Fleet(args.bin.resolve(), pace=args.pace)
    try:
        for seed in range(args.seeds):
            for case in chosen:
                row = run_case(fleet, case, seed)
                print(json.dumps(row), flush=True)
                results.append(row)
    finally:
        fleet.close()
    result = {**describe_run(), "what": "faults of a job of 8 ranks on 4 workers, each in a network namespace, against the truth",
              "pace_seconds": args.pace, "cases": len(chosen), "seeds": args.seeds, **summary(results),
              "target": {"dead_seconds_p99_max": 1, "hang_seconds_max": "3 steps + 3 s", "named_min": 0.95, "false_alarms_max": 0},
              "runs": results}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: value for key, value in result.items() if key not in ("runs",)}, indent=1))


if __name__ == "__main__":
    main()
