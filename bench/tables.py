#!/usr/bin/env python3
"""Writes the figures of docs/hangs.md and docs/recovery.md from the results of the programs beside it.

  bench/tables.py [--results bench/results] [--docs docs]

Replaces the text between a page's two marks; needs all results.
"""
import argparse
import json
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- figures: bench/tables.py -->\n", "<!-- end of figures -->\n"
NOT_NOTICED = "not in {:.0f} s"


def table(heading, rows):
    return "\n".join(["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading),
                      *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)]) + "\n"


def seconds(value, nothing="–"):
    return nothing if value is None else f"{value:.3f} s" if abs(value) < 0.1 else f"{value:.1f} s"


def where(result):
    machine = result["machine"]
    return f"{machine['cpu']}, {machine['cores']} cores, commit {result['commit']}, {result['date'][:10]}"


def more(result):
    """Returns the conditions of a measurement."""
    return f" {result['how']}" if "how" in result else ""


def matrix(result):
    cases = {}
    for row in result["runs"]:
        cases.setdefault((row["group"], row["case"]), []).append(row)
    rows = []
    for (group, case), runs in cases.items():
        refused = [run["not_run_here"] for run in runs if "not_run_here" in run]
        if refused:
            rows.append((case, f"not run here: {refused[0]}", "", "", ""))
        elif group == "harmless":
            alarms = sum(bool(run.get("false_alarm")) for run in runs)
            rows.append((case, f"{alarms} of {len(runs)} alarms", "–", "–", "–"))
        else:
            found = [run for run in runs if run.get("found")]
            told = [run["seconds"] for run in found]
            stopped = [run["stopped_seconds"] for run in found if run["stopped_seconds"] is not None]
            rows.append((case, f"{sum(run['named'] for run in found)} of {len(runs)}", seconds(statistics.median(told)) if told else "–",
                         seconds(max(told)) if told else "–", seconds(statistics.median(stopped)) if stopped else "goes on"))
    groups = result["groups"]
    text = (f"Faults of a running job of 8 ranks on 4 workers, each worker in a network namespace with clocks of its own; a step takes "
            f"{result['pace_seconds']:.1f} s and a little; runs of each case: {result['seeds']}, with other ranks and nodes (`bench/faults.py`; {where(result)}). "
            f"Right rank or node named first: {100 * result['named']:.0f}% of all runs. Dead processes and nodes: told after "
            f"{seconds(groups['dead']['seconds_p50'])} (median), {seconds(groups['dead']['seconds_p99'])} (99%). Hangs: {seconds(groups['hang']['seconds_p50'])}, "
            f"{seconds(groups['hang']['seconds_p99'])}. False alarms: {result['false_alarms']}.{more(result)}\n\n")
    return text + table(("fault", "named", "told after", "at the latest", "stopped after"), rows)


def beside(result):
    rows = [(line["fault"], line["program"],
             seconds(line["noticed_seconds"], NOT_NOTICED.format(result["watched_seconds"])), seconds(line["ended_seconds"]),
             f"{line['named']} of {line['runs']}") for line in result["table"]]
    return (f"The same two faults of a small job beside PyTorch 2.8 (Gloo, torchrun, 8 ranks), in the same run (`bench/faults_torch.py`; {where(result)}). "
            "PyTorch counts as naming the rank when its own messages do, or torchrun's root cause.\n\n"
            + table(("fault", "program", "first word of it", "job ended", "rank named"), rows))


def soak(result):
    return (f"A healthy job with checkpoints, evaluations, traces by the clock and {sum(result['events'].values())} disturbances that healthy jobs meet (ranks "
            f"that compile for up to 30 s, pauses, network away, clocks that jump, a restarted coordinator), for {result['minutes']:.0f} minutes: "
            f"{result['false_alarms']} false alarms (`bench/soak.py`; {where(result)}).{more(result)}\n")


def watching(result):
    target, noise = result["target"]["cost_max"], result["overhead_plus_minus"] or 0
    verdict = ("meets" if result["overhead"] + noise <= target else "misses" if result["overhead"] - noise > target
               else "is too coarse on this machine to tell whether it meets")
    return (f"What being watched costs: coordinator, worker and stacks of all threads every {result['trace_interval_seconds']} s compute "
            f"{100 * result['cpu_share']:.2f}% of {result['machine']['cores']} cores; writing its page takes {100 * result['page']['share']:.3f}% of a rank's step of "
            f"{1e3 * result['step_seconds_not_watched']:.0f} ms; a thread is held for {result['stacks']['held_us']['p50']:.0f} µs while its stack is copied: together "
            f"{100 * result['cost']:.2f}%. The step was {100 * result['overhead']:+.2f}% ± {100 * (result['overhead_plus_minus'] or 0):.2f}% longer in "
            f"{result['pairs']} pairs of turns, which {verdict} the target of {100 * target:.1f}% (`bench/watching.py`; {where(result)}).\n")


def merging(result):
    most = max(result["cases"], key=lambda case: (case["ranks"], case["seconds"]))
    return (f"The stacks of {most['ranks']:,} ranks with {most['threads_per_rank']} threads each, from {most['workers']:,.0f} workers: merged, classed and symbolised in "
            f"{most['seconds']:.1f} s on one core, blame {most['blame_seconds']:.1f} s more (`bench/stack_merge.py`; {where(result)}).\n")


def recoveries(result):
    cases = {}
    for row in result["runs"]:
        cases.setdefault(row["case"], []).append(row)
    rows = []
    for case, runs in cases.items():
        refused = [run["not_run_here"] for run in runs if "not_run_here" in run]
        times = [run["next_step_seconds"] for run in runs if run.get("next_step_seconds") is not None]
        loads = [run["load_seconds"] for run in runs if run.get("load_seconds") is not None]
        lost = [run["steps_lost"] for run in runs if "steps_lost" in run]
        ended = sum(bool(run.get("recovered")) for run in runs)
        rightly = sum(bool(run.get("gave_up_rightly")) for run in runs)
        outcome = (f"not run here: {refused[0]}" if refused else f"{rightly} of {len(runs)} ended, as they should" if rightly
                   else f"{ended} of {len(runs)} went on")
        rows.append((case, outcome, seconds(statistics.median(times)) if times else "–", seconds(max(times)) if times else "–",
                     seconds(statistics.median(loads)) if loads else "–", max(lost, default="–"), max((run.get("attempts", 0) for run in runs), default="–")))
    same = not result["other_curves"]
    return (f"Faults of a job of 8 ranks on 4 nodes with a fifth one free, a checkpoint every {result['checkpoint_period']} steps of "
            f"{result['pace_seconds']:.1f} s; runs of each case: {result['seeds']}, with other ranks and nodes (`bench/recovery.py`; {where(result)}). "
            f"Jobs that needed a person: {result['needed_a_person']}; that were stopped for nothing: {result['false_kills']}. Loss and gradient norm of every step were "
            f"{'' if same else 'but for ' + ', '.join(result['other_curves']) + ' '}those of an undisturbed run: bit for bit on as many nodes, within 1e-3 on fewer. "
            "The next step is the first one that a later attempt completes, from the fault on; `load` is its part from the last process's start to that step.\n\n"
            + table(("fault", "outcome", "next step after", "at the latest", "of it load", "steps made again", "attempts"), rows))


def recoveries_beside(result):
    rows = [(line["fault"], line["launcher"], f"{line['went_on']} of {line['runs']}", seconds(line["start_seconds"]),
             seconds(line["next_step_seconds"], NOT_NOTICED.format(result["watched_seconds"]))) for line in result["table"]]
    return (f"One PyTorch script (Gloo, {result['ranks']} ranks, a step takes {result['pace_seconds']:.1f} s) under each launcher, in the same run; where there is a time to "
            f"choose after which silence is a hang, it is {result['silence_seconds']} s, and {result['collectives_seconds']} s for collectives (`bench/recovery_torch.py`; {where(result)}).\n\n"
            + table(("fault", "launcher", "went on", "command to first step", "fault to next step"), rows))


def weeks(result):
    rows = []
    for line in result["summary"]:
        first = [run["p50"] for run in line["progress_to_first_step_seconds"] if run]
        rows.append((f"{line['ranks']:,}", line["spares"], line["seeds"], f"{line['days']:.0f}", line["interruptions"], line["needed_a_person"], f"{100 * line['ettr']:.2f}%",
                     f"{100 * line['ettr_least']:.2f}%", f"{100 * line['speed_of_undisturbed']:.2f}%", seconds(statistics.median(first)) if first else "–"))
    most = max(result["summary"], key=lambda line: line["ranks"])
    losses = [("none: checkpoints, the first start" if cause == "none" else cause, f"{lost:.0f} s") for cause, lost in most["lost_seconds_per_day_by_cause"].items()]
    return (f"Simulated weeks of training with the failures that the Llama 3 report counted (419 in 54 days on 16,384 GPUs; the rates scale with the nodes), "
            f"decided by the real coordinator core (`bench/recovery_simulation.py`; {where(result)}).\n\n"
            + table(("ranks", "spare nodes", "runs", "days in all", "interruptions", "needed a person", "ETTR", "ETTR of the worst run", "steps, of those of as long without a failure", "last progress to first step (median)"), rows)
            + f"\nWhat {most['ranks']:,} ranks lose in a day, by cause:\n\n" + table(("cause", "lost in a day"), losses))


PAGES = {"hangs.md": (("faults", matrix), ("faults_torch", beside), ("soak", soak), ("watching", watching), ("stack_merge", merging)),
         "recovery.md": (("recovery", recoveries), ("recovery_torch", recoveries_beside), ("recovery_simulation", weeks))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench/results")
    parser.add_argument("--docs", type=pathlib.Path, default=ROOT / "docs")
    args = parser.parse_args()
    for name, parts in PAGES.items():
        texts = []
        for part, text_of in parts:
            path = args.results / f"{part}.json"
            if not path.exists():
                sys.exit(f"bench/tables.py: {path} is not there: {name} would lose its figures; bench/{part}.py writes it")
            texts.append(text_of(json.loads(path.read_text())))
        page = args.docs / name
        before, _, rest = page.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        page.write_text(before + BEGIN + "\n" + "\n".join(texts) + "\n" + END + after)


if __name__ == "__main__":
    main()
