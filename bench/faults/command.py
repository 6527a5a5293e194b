"""The command line of a matrix of faults: cases by name, seeds, one row each, and a summary as
JSON.
"""
import argparse
import json
import pathlib

from faults.fleet import Fleet
from faults.scored import ROOT
from peers.environment import describe_run


def run_matrix(doc, cases, out, nodes, begin, play, describe):
    """Runs each case with each seed on one fleet of that many nodes (None: a fleet's default).

    begin(fleet) returns `begun` for play(fleet, case, seed, begun), which returns a row;
    describe(rows) returns their summary.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="where the programs are")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cases", help="some of them, by name, with semicolons")
    parser.add_argument("--pace", type=float, default=0.1, help="seconds that a step takes at least")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results" / out)
    args = parser.parse_args()
    wanted = [case.name for case in cases] if args.cases is None else args.cases.split(";")
    if unknown := sorted(set(wanted) - {case.name for case in cases}):
        parser.error(f"--cases: there is no {', '.join(unknown)}; there are {'; '.join(case.name for case in cases)}")
    chosen = [case for case in cases if case.name in wanted]
    rows = []
    fleet = Fleet(args.bin.resolve(), pace=args.pace, **({} if nodes is None else {"nodes": nodes}))
    try:
        begun = begin(fleet)
        for seed in range(args.seeds):
            for case in chosen:
                rows.append(play(fleet, case, seed, begun))
                print(json.dumps(rows[-1]), flush=True)
    finally:
        fleet.close()
    result = {**describe_run(), "pace_seconds": args.pace, "cases": len(chosen), "seeds": args.seeds, **describe(rows), "runs": rows}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: value for key, value in result.items() if key != "runs"}, indent=1))
