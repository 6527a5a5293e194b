#!/usr/bin/env python3
"""Counts false alarms: a healthy job of 8 ranks on 4 workers with all activities of healthy jobs.

It saves checkpoints, evaluates, and writes stack traces at intervals. Repeatedly, some ranks stand
still as for autotuning, a user requests stacks or a checkpoint, a process or a worker is paused,
the network is cut, a clock jumps, the coordinator restarts.
Any incident is a false alarm.

  bench/soak.py --bin build/release/bin [--minutes 60] [--out bench/results/soak.json]

Needs root, as bench/faults.py.
"""
import argparse
import collections
import json
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from faults.cases import CASES  # noqa: E402
from faults.fleet import ENDED, Fleet, NotHere  # noqa: E402
from faults.scored import MODEL, ROOT, Pick  # noqa: E402
from peers.environment import describe_run  # noqa: E402

SETTINGS = ("checkpoint_period=100", "max_num_checkpoints_to_keep=2", "eval_interval=60", "eval_steps=4", "collect_stack_trace=true",
            "stack_trace_interval_seconds=15")
EVENT_SECONDS = (5, 20)  # from one event to the next
COMPILE_SECONDS = (0.5, 30)
PROGRESS_SECONDS_MAX = 60


def compile_some(fleet, job, chance, ranks):
    """Stops some ranks, each for its own time; the others wait for the slowest."""
    some = chance.sample(range(ranks), chance.randint(1, ranks))
    fleet.orders.give(*({"rank": rank, "kind": "compile", "seconds": chance.uniform(*COMPILE_SECONDS)} for rank in some))


def events(ranks):
    """Returns the activities of a healthy job by name. Each is called with the fleet, the job and a
    random generator.
    """
    def harmless(case):
        def happen(fleet, job, chance):
            truth = case.inject(fleet, job, Pick(chance.random(), case.name, ranks, len(fleet.workers)))
            if truth.undo:
                time.sleep(2)
                truth.undo()
        return happen
    return {"compiles": lambda fleet, job, chance: compile_some(fleet, job, chance, ranks),
            "a checkpoint is requested": lambda fleet, job, chance: fleet.muster("checkpoint", job),
            "stacks are read": lambda fleet, job, chance: fleet.muster("stacks", job),
            **{case.name: harmless(case) for case in CASES if case.group == "harmless"}}


def steps_of(fleet, job):
    return min((rank["step"] for rank in fleet.job(job).get("ranks", [])), default=-1)


def makes_progress(fleet, job):
    """A job completes steps. A fault that ends it or delays it for long counts like a false alarm.
    """
    before, deadline = steps_of(fleet, job), time.monotonic() + PROGRESS_SECONDS_MAX
    while time.monotonic() < deadline:
        if fleet.job(job)["state"] in ENDED:
            return False
        if steps_of(fleet, job) > before:
            return True
        time.sleep(0.2)
    return False


def soak(fleet, job, minutes, seed):
    chance = random.Random(seed)
    ranks = len(fleet.workers) * fleet.slots
    happens, happened, refused = events(ranks), collections.Counter(), {}
    start = time.monotonic()
    fleet.wait_for_step(job, 1)
    seen = 0
    while time.monotonic() < start + 60 * minutes:
        time.sleep(chance.uniform(*EVENT_SECONDS))
        what = chance.choice(sorted(happens))
        try:
            happens[what](fleet, job, chance)
            happened[what] += 1
        except NotHere as why:
            refused[what] = str(why)
            del happens[what]
        alive = makes_progress(fleet, job)
        incidents = fleet.incidents(job)
        if len(incidents) > seen or not alive:
            print(json.dumps({"after": what, "minutes": round((time.monotonic() - start) / 60, 1), "goes_on": alive,
                              "incidents": [f"{one['kind']}: {one['sentence']}" for one in incidents[seen:]]}), flush=True)
        seen = len(incidents)
        if not alive:
            break
    return {"minutes": round((time.monotonic() - start) / 60, 1), "steps": steps_of(fleet, job), "events": dict(sorted(happened.items())),
            "not_run_here": refused, "went_on": alive, "false_alarms": seen,
            "incidents": [{"kind": one["kind"], "sentence": one["sentence"], "action": one["action"], "moments": one["moments"]}
                          for one in fleet.incidents(job)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/soak.json")
    args = parser.parse_args()
    fleet = Fleet(args.bin.resolve())
    try:
        job = fleet.submit(ROOT / "configs/base.yml", f"soak-{args.seed}", *MODEL, *SETTINGS)
        figures = soak(fleet, job, args.minutes, args.seed)
    finally:
        fleet.close()
    result = {**describe_run(), "what": "a healthy job of 8 ranks on 4 workers, and the incidents that were opened for it", "seed": args.seed,
              **figures, "target": {"false_alarms_max": 0}}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: value for key, value in result.items() if key != "incidents"}, indent=1))


if __name__ == "__main__":
    main()
