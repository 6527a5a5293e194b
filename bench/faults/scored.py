"""One fault of a running job, Muster's verdict, and its comparison with the truth."""
import pathlib
import random
import re
import statistics
import time

from faults.fleet import NotHere

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ("override_model_config=true", "base_emb_dim=32", "base_num_decoder_layers=2", "base_num_query_heads=4",
         "base_num_kv_heads=2", "head_dim=8", "base_mlp_dim=64", "vocab_size=256", "max_target_length=32",
         "per_device_batch_size=2", "learning_rate=1e-3", "steps=1000000", "log_period=1000", "ici_fsdp_parallelism=-1",
         "restarts_max=0", "checkpoint_period=1000000", "dtype=float32")
WARM_STEPS = 12  # until the job's step time is known
VERDICT_SECONDS_MAX = 40
# after an incident: evidence of a slow job is reported at once, and the job is stopped later
STOP_SECONDS_MAX = 40
NAMES_SECONDS = 1  # a verdict does not wait for names of functions, so the record is read later
QUIET_SECONDS = 4  # how long a harmless case is watched


class Pick:
    """The random choices of a seed."""

    def __init__(self, seed, case, ranks, nodes=1):
        self.random = random.Random(f"{seed}/{case}")
        self.ranks, self.nodes = ranks, nodes

    def rank(self):
        return self.random.randrange(self.ranks)

    def node(self):
        return self.random.randrange(self.nodes)

    def two_ranks(self):
        return self.random.sample(range(self.ranks), 2)


def seconds_of(unix_ns):
    return int(unix_ns) / 1e9


def first_verdict_time(incident, truth):
    """Returns the time of the first verdict: an unreachable worker is reported before its ranks are
    given up.
    """
    moments = [m for m in incident["moments"] if not m["text"].startswith(("last progress", "suspected"))]
    right = [f"rank {rank} " for rank in truth.ranks] + ([f"worker {truth.node} "] if truth.node else [])
    verdicts = [m for m in moments if any(name in m["text"] for name in right)] or moments
    return seconds_of(verdicts[0]["unix_ns"])


def follow(fleet, job, truth):
    """Waits until the job was stopped or no stop can follow. Returns the job's incidents and the
    time of the stop, if any.
    """
    deadline = time.monotonic() + (VERDICT_SECONDS_MAX if truth.alarm else QUIET_SECONDS)
    incidents, stopped = [], None
    while time.monotonic() < deadline:
        state = fleet.job(job)
        stopped = seconds_of(state["faults"][0]["unix_ns"]) if state["faults"] else None
        found = fleet.incidents(job)
        if found and not incidents:
            deadline = time.monotonic() + STOP_SECONDS_MAX
        incidents = found
        if incidents and (stopped or truth.continues):
            break
        time.sleep(0.1)
    time.sleep(NAMES_SECONDS if incidents else 0)
    return fleet.incidents(job), stopped


def names(suspect, truth):
    return suspect["rank"] in truth.ranks or bool(truth.node and suspect["worker"] == truth.node)


def score(incidents, stopped, truth, step_seconds):
    if not truth.alarm:
        return {"false_alarm": bool(incidents), "sentence": incidents[0]["sentence"] if incidents else ""}
    if not incidents:
        return {"found": False}
    # The first suspect is the verdict; others are counted.
    incident = incidents[0]
    suspects = incident["suspects"]
    return {"found": True,
            "seconds": round(first_verdict_time(incident, truth) - truth.at, 3),
            "stopped_seconds": round(stopped - truth.at, 3) if stopped else None,
            "step_seconds": round(step_seconds, 3),
            "kind": incident["kind"], "right_kind": incident["kind"] in truth.kinds,
            "named": bool(suspects and names(suspects[0], truth)),
            "among_suspects": any(names(suspect, truth) for suspect in suspects),
            "runners_up": max(0, len(suspects) - 1),
            "others": [f"{other['kind']}: {other['sentence']}" for other in incidents[1:]],
            "sentence": incident["sentence"]}


def run_case(fleet, case, seed):
    """Returns a row of results, also if the case fails."""
    row = {"case": case.name, "seed": seed, "group": case.group}
    try:
        return {**row, **fault(fleet, case, seed)}
    except NotHere as why:
        return {**row, "not_run_here": str(why)}
    except (RuntimeError, TimeoutError) as error:
        return {**row, "found": False, "error": str(error)}


def fault(fleet, case, seed):
    fleet.ensure_workers()
    job = fleet.submit(ROOT / "configs/base.yml", f"{re.sub('[^a-z0-9]+', '-', case.name.lower()).strip('-')}-{seed}-{time.monotonic_ns()}",
                       *MODEL, *case.settings)
    step_seconds, undo = 0, None
    try:
        if not case.breaks_itself:
            step_seconds = fleet.wait_for_step(job, WARM_STEPS)
            before = fleet.incidents(job)
            if before:
                return {"false_alarm": True, "before_the_fault": True, "sentence": before[0]["sentence"]}
        truth = case.inject(fleet, job, Pick(seed, case.name, len(fleet.workers) * fleet.slots, len(fleet.workers)))
        undo = truth.undo
        return score(*follow(fleet, job, truth), truth, step_seconds)
    finally:
        if undo:
            undo()
        fleet.muster("cancel", job, "--force", check=False)
        fleet.wait_for_end(job)


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else None


def in_time(row):
    if row["group"] == "hang":
        return row["seconds"] <= 3 * row["step_seconds"] + 3
    return row["group"] != "dead" or row["seconds"] <= 1


def summary_of_group(rows):
    found = [row for row in rows if row.get("found")]
    seconds = [row["seconds"] for row in found]
    stopped = [row["stopped_seconds"] for row in found if row["stopped_seconds"] is not None]
    return {"runs": len(rows), "found": len(found), "named": sum(row["named"] for row in found),
            "right_kind": sum(row["right_kind"] for row in found), "in_time": sum(in_time(row) for row in found),
            "seconds_p50": statistics.median(seconds) if seconds else None, "seconds_p99": percentile(seconds, 0.99),
            "stopped_seconds_p50": statistics.median(stopped) if stopped else None,
            "stopped_seconds_max": max(stopped, default=None)}


def summary(results):
    results = [row for row in results if "not_run_here" not in row]
    alarms = [row for row in results if row["group"] != "harmless"]
    named = sum(bool(row.get("named")) for row in alarms)
    found = sum(bool(row.get("found")) for row in alarms)
    others, false_alarms = sum(len(row.get("others", [])) for row in alarms), sum(bool(row.get("false_alarm")) for row in results)
    verdicts = found + others + false_alarms
    return {"groups": {group: summary_of_group([row for row in results if row["group"] == group])
                       for group in ("dead", "hang", "slow", "disk")},
            "recall": found / len(alarms) if alarms else None,
            "named": named / len(alarms) if alarms else None,
            "precision": named / verdicts if verdicts else None,  # the share of correct verdicts
            "without_runner_up": sum(row.get("runners_up") == 0 for row in alarms if row.get("found") and row["group"] == "hang"),
            "other_incidents": others,
            "false_alarms": false_alarms}
