"""One fault of a running job, and how the job recovers from it: time, steps lost, attempts, and
whether it computes the same.
"""
import json
import math
import pathlib
import re
import shutil
import statistics
import threading
import time

from faults.fleet import ENDED, NotHere
from faults.orders import wait_until
from faults.recoveries import CHECKPOINT_PERIOD, LONG, NODES, OVER_ALL_NODES, WARM_STEPS
from faults.scored import MODEL, ROOT, Pick, percentile

STEPS = 45
# from the fault to the next step, without loading the checkpoint
SECONDS_MAX = {"rank": 1, "node": 3}
CLOSE = 1e-3  # for a curve on fewer nodes, which add in another order
END_SECONDS_MAX = 120
STEP_LINE = re.compile(r"^completed step: (\d+), .*$", re.MULTILINE)
SETTINGS = tuple(setting for setting in MODEL if not setting.startswith(("steps=", "log_period=", "restarts_max=", "checkpoint_period="))) + (
    f"learning_rate_schedule_steps={LONG}", "log_period=1", "restarts_max=3", f"checkpoint_period={CHECKPOINT_PERIOD}")


class Attempts:
    """Rank 0's step lines of each attempt, with the moment when each was first seen; followed by a
    thread.
    """

    def __init__(self, fleet, job):
        self.fleet, self.job = fleet, job
        self.steps = {}  # attempt → [(step, seconds since the epoch)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self):
        while not self._stop.wait(0.005):
            newest = max(self.steps, default=0)
            for attempt in range(newest, newest + 4):  # some end before their first step
                if attempt == 0:
                    continue
                found = STEP_LINE.findall(self.fleet.log_of(self.job, attempt))
                known = self.steps.get(attempt, [])
                if len(found) > len(known):
                    self.steps[attempt] = known + [(int(step), time.time()) for step in found[len(known):]]

    def next_step_after(self, attempt):
        """Returns (attempt, step, seconds since the epoch) of the first step that a later attempt
        has completed.
        """
        later = sorted(number for number in self.steps if number > attempt and self.steps[number])
        return (later[0], *self.steps[later[0]][0]) if later else None

    def close(self):
        self._stop.set()
        self._thread.join()


def curve(path):
    """Returns [(step, all computed values, without measured ones)] of a metrics_file, including
    repeated steps.

    A rank that is killed while it writes leaves a partial line.
    """
    rows = []
    for line in pathlib.Path(path).read_text(errors="replace").splitlines():
        try:
            row = json.loads(line)
            rows.append((row["step"], {key: value for key, value in row.items() if key.startswith("learning/")}))
        except (ValueError, KeyError, TypeError):
            continue
    return rows


def follows(found, calm, steps, smaller):
    """Returns whether all steps exist, and every execution of each equals that of the undisturbed
    run.
    """
    def same(key, value, other):
        return value == other or (smaller and math.isclose(value, other, rel_tol=CLOSE, abs_tol=CLOSE))
    return {step for step, _ in found} == set(range(steps)) and all(
        values.keys() == calm[step].keys() and all(same(key, value, calm[step][key]) for key, value in values.items())
        for step, values in found)


def submit(fleet, name, steps, *settings):
    metrics = fleet.folder / f"{name}.jsonl"
    job = fleet.submit(ROOT / "configs/base.yml", name, *SETTINGS, f"steps={steps}", f"metrics_file={metrics}", *settings, nodes=NODES)
    return job, metrics


def undisturbed(fleet):
    """Returns {mesh: curve} of every mesh in the cases."""
    def run(mesh):
        job, metrics = submit(fleet, f"calm-{time.monotonic_ns()}", LONG, *mesh)
        wait_until(lambda: fleet.job(job)["state"] in ENDED, END_SECONDS_MAX, "the undisturbed run")
        found = dict(curve(metrics))
        if len(found) != LONG:
            raise RuntimeError(f"the undisturbed run has {len(found)} steps")
        return found
    return {mesh: run(mesh) for mesh in ((), OVER_ALL_NODES)}


def run_recovery(fleet, recovery, seed, calm):
    row = {"case": recovery.name, "seed": seed, "group": recovery.group}
    try:
        return {**row, **recover(fleet, recovery, seed, calm[recovery.mesh])}
    except NotHere as why:
        return {**row, "not_run_here": str(why)}
    except (RuntimeError, TimeoutError) as error:
        return {**row, "recovered": False, "error": str(error)}


def recover(fleet, recovery, seed, calm):
    fleet.ensure_workers()
    fleet.admit_nodes()
    steps = recovery.steps or STEPS
    name = f"{re.sub('[^a-z0-9]+', '-', recovery.name.lower()).strip('-')}-{seed}-{time.monotonic_ns()}"
    job, metrics = submit(fleet, name, steps, *recovery.settings, *recovery.mesh)
    attempts, undo = Attempts(fleet, job), None

    def end():
        wait_until(lambda: fleet.job(job)["state"] in ENDED, END_SECONDS_MAX, f"the end of job {job}")
        return fleet.job(job)
    try:
        fleet.wait_for_step(job, WARM_STEPS)
        disturbance = recovery.disturb(fleet, job, Pick(seed, recovery.name, NODES * fleet.slots, NODES))
        undo = disturbance.undo
        if disturbance.must_fail:
            state = end()
            return {"gave_up_rightly": state["state"] == "FAILED" and disturbance.must_fail in state["reason"], "attempts": state["attempt"],
                    "reason": state["reason"]}
        if recovery.group == "unharmed":
            state = end()
            return {"recovered": state["state"] == "SUCCEEDED", "attempts": state["attempt"], "false_kill": state["attempt"] > 1,
                    "same_curve": follows(curve(metrics), calm, steps, recovery.smaller), "reason": state["reason"]}
        after = wait_until(lambda: attempts.next_step_after(1) or ended_undisturbed(fleet, job), END_SECONDS_MAX, "a step of a later attempt")
        if undo:
            undo()
            undo = None
        state = end()
        later = "".join(fleet.log_of(job, attempt) for attempt in range(2, state["attempt"] + 1))
        if disturbance.must_print not in later:
            raise RuntimeError(f"no later attempt prints '{disturbance.must_print}': it resumed from something else")
        return {**judge(fleet, job, disturbance, attempts, after, recovery.group), "attempts": state["attempt"], "reason": state["reason"],
                "recovered": state["state"] == "SUCCEEDED", "same_curve": follows(curve(metrics), calm, steps, recovery.smaller)}
    finally:
        attempts.close()
        if undo:
            undo()
        fleet.muster("cancel", job, "--force", check=False)
        fleet.wait_for_end(job)
        shutil.rmtree(fleet.out / name, ignore_errors=True)  # the file system is small


def load_seconds(recovery):
    """Returns the seconds from the start of all processes of the next attempt to its first step:
    libraries, rendezvous, the checkpoint, one step.
    """
    up, first_step = (recovery or {}).get("up_unix_ns"), (recovery or {}).get("first_step_unix_ns")
    return max(0, first_step - up) / 1e9 if up and first_step else 0


def ended_undisturbed(fleet, job):
    """Raises an error when the case did not affect the job, because it then proves nothing."""
    state = fleet.job(job)
    if state["state"] in ENDED and state["attempt"] == 1:
        raise RuntimeError(f"the fault met nothing of job {job}: it is {state['state']} in its first attempt: {state['reason']}")


def judge(fleet, job, disturbance, attempts, after, group):
    before = [step for step, at in attempts.steps.get(1, []) if at <= after[2]]
    incidents = fleet.incidents(job)
    # the record of the last fault
    recovery = next((incident["recovery"] for incident in incidents[::-1] if incident.get("recovery")), None)
    seconds, load = after[2] - disturbance.at, load_seconds(recovery)
    return {"next_step_seconds": round(seconds, 3), "load_seconds": round(load, 3),
            "in_time": seconds - load <= SECONDS_MAX[group] if group in SECONDS_MAX else None,
            "steps_lost": max(0, max(before, default=-1) - after[1] + 1), "stages": recovery,
            "incidents": [incident["sentence"] for incident in incidents]}


def summary_of_group(rows):
    done = [row for row in rows if row.get("recovered")]
    seconds = [row["next_step_seconds"] for row in done if "next_step_seconds" in row]
    return {"runs": len(rows), "recovered": len(done), "same_curve": sum(row["same_curve"] for row in done),
            "in_time": sum(bool(row.get("in_time")) for row in done) if any(row.get("in_time") is not None for row in rows) else None,
            "next_step_seconds_p50": statistics.median(seconds) if seconds else None,
            "next_step_seconds_p99": percentile(seconds, 0.99),
            "steps_lost_max": max((row["steps_lost"] for row in done if "steps_lost" in row), default=None),
            "attempts_max": max((row["attempts"] for row in done), default=None)}


def summary(rows):
    ran = [row for row in rows if "not_run_here" not in row]
    return {"groups": {group: summary_of_group([row for row in ran if row["group"] == group]) for group in ("rank", "node", "hang", "other", "unharmed")},
            "false_kills": sum(bool(row.get("false_kill")) for row in ran),
            "gave_up_rightly": sum(bool(row.get("gave_up_rightly")) for row in ran),
            "needed_a_person": sum(not (row.get("recovered") or row.get("gave_up_rightly")) for row in ran),
            "other_curves": [row["case"] for row in ran if row.get("recovered") and not row["same_curve"]],
            "not_in_time": [row["case"] for row in ran if row.get("in_time") is False],
            "not_run_here": sorted({f"{row['case']}: {row['not_run_here']}" for row in rows if "not_run_here" in row})}
