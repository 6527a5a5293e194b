#!/usr/bin/env python3
"""Scores hang detection: faults of a real job of 8 ranks on 4 workers, against what is known to be true.

Each case runs on several seeds, which choose the rank or the node. A job trains a tiny model; a step takes --pace seconds more
than it computes, as if each rank had a device of its own. Each node is a network namespace: root is needed.

  bench/faults.py --bin build/release/bin [--seeds 3] [--cases SIGSTOP,lock] [--out bench/results/faults.json]

Latency is from the fault to the incident's verdict, in the clock that both write down. A rank counts as named when it is the
first suspect; a node by its name or one of its ranks.
"""
import argparse
import json
import pathlib
import random
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from faults.cases import CASES  # noqa: E402
from faults.fleet import Fleet  # noqa: E402
from peers.environment import describe_run  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODEL = ("override_model_config=true", "base_emb_dim=32", "base_num_decoder_layers=2", "base_num_query_heads=4",
         "base_num_kv_heads=2", "head_dim=8", "base_mlp_dim=64", "vocab_size=256", "max_target_length=32",
         "per_device_batch_size=2", "learning_rate=1e-3", "steps=1000000", "log_period=1000", "ici_fsdp_parallelism=-1",
         "restarts_max=0", "checkpoint_period=1000000")
WARM_STEPS = 12  # until the job's step time is known
VERDICT_SECONDS_MAX = 40
QUIET_SECONDS = 4  # how long a harmless case is watched


class Pick:
    """What a seed chooses."""

    def __init__(self, seed, case, fleet):
        self.random = random.Random(f"{seed}/{case}")
        self.nodes = len(fleet.workers)
        self.ranks = self.nodes * fleet.slots

    def rank(self):
        return self.random.randrange(self.ranks)

    def node(self):
        return self.random.randrange(self.nodes)

    def two_ranks(self):
        return self.random.sample(range(self.ranks), 2)


def moment(incident, word):
    return next((m["unix_ns"] / 1e9 for m in incident["moments"] if word in m["text"]), None)


def verdict_time(incident):
    return moment(incident, "verdict") or incident["moments"][-1]["unix_ns"] / 1e9


def await_incident(fleet, job, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        incidents = fleet.incidents(job)
        if incidents:
            return incidents[-1]
        time.sleep(0.1)
    return None


def names(suspect, truth):
    return suspect["rank"] in truth.ranks or (truth.node and suspect["worker"] == truth.node)


def score(incident, truth):
    if not truth.alarm:
        return {"false_alarm": incident is not None, "sentence": incident["sentence"] if incident else ""}
    if incident is None:
        return {"found": False}
    suspects = incident["suspects"]
    return {"found": True,
            "seconds": round(verdict_time(incident) - truth.at, 3),
            "kind": incident["kind"], "right_kind": incident["kind"] in truth.kinds,
            "named": bool(suspects) and names(suspects[0], truth),
            "among_suspects": any(names(suspect, truth) for suspect in suspects),
            "runners_up": max(0, len(suspects) - 1),
            "sentence": incident["sentence"]}


def run_case(fleet, case, seed, config):
    fleet.ensure_workers()
    job = fleet.submit(config, f"{case.name.replace(' ', '-').replace('(', '').replace(')', '')}-{seed}-{time.monotonic_ns()}",
                       *MODEL, *case.settings)
    fleet.wait_for_step(job, WARM_STEPS)
    before = fleet.incidents(job)
    if before:
        return {"case": case.name, "seed": seed, "group": case.group, "false_alarm": True, "sentence": before[0]["sentence"]}
    truth = case.inject(fleet, job, Pick(seed, case.name, fleet))
    try:
        incident = await_incident(fleet, job, VERDICT_SECONDS_MAX if truth.alarm else QUIET_SECONDS)
        result = score(incident, truth)
    finally:
        if truth.undo:
            truth.undo()
        fleet.muster("cancel", job, "--force", check=False)
        fleet.wait_for_end(job)
    return {"case": case.name, "seed": seed, "group": case.group, **result}


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else None


def summary(results):
    groups = {}
    for group in ("dead", "hang", "slow", "disk"):
        rows = [row for row in results if row["group"] == group]
        found = [row for row in rows if row.get("found")]
        seconds = [row["seconds"] for row in found]
        groups[group] = {"runs": len(rows), "found": len(found), "named": sum(row["named"] for row in found),
                         "right_kind": sum(row["right_kind"] for row in found),
                         "seconds_p50": statistics.median(seconds) if seconds else None,
                         "seconds_p99": percentile(seconds, 0.99)}
    alarms = [row for row in results if row["group"] != "harmless"]
    named = sum(bool(row.get("named")) for row in alarms)
    found = sum(bool(row.get("found")) for row in alarms)
    return {"groups": groups, "recall": found / len(alarms) if alarms else None,
            "named": named / len(alarms) if alarms else None,
            "precision": named / found if found else None,
            "without_runner_up": sum(row.get("runners_up") == 0 for row in alarms if row.get("found") and row["group"] == "hang"),
            "false_alarms": sum(bool(row.get("false_alarm")) for row in results)}


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
                try:
                    row = run_case(fleet, case, seed, ROOT / "configs/base.yml")
                except (RuntimeError, TimeoutError) as error:
                    row = {"case": case.name, "seed": seed, "group": case.group, "found": False, "error": str(error)}
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
