#!/usr/bin/env python3
"""Writes the figures of docs/hangs.md and docs/recovery.md from the results of the programs in this
folder.

  bench/tables.py [--results bench/results] [--docs docs]

Replaces the text between the two marks of each page. Requires all results.
"""
import argparse
import json
import pathlib
import statistics
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- figures: bench/tables.py -->\n", "<!-- end of figures -->\n"
NOT_NOTICED = "not in {:.0f} s"
COLUMNS_MAX = 120


def table(heading, rows):
    return "\n".join(["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading),
                      *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)]) + "\n"


def seconds(value, nothing="–"):
    return nothing if value is None else f"{value:.3f} s" if abs(value) < 0.1 else f"{value:.1f} s"


def where(result):
    machine = result["machine"]
    return f"{machine['cpu']}, {machine['cores']} cores, commit {result['commit']}, {result['date'][:10]}"


def other_figures(result):
    """Returns the conditions of a measurement, or an empty text."""
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
            rows.append((case, f"{alarms} alarms in {len(runs)} runs", "–", "–", "–"))
        else:
            found = [run for run in runs if run.get("found")]
            reported = [run["seconds"] for run in found]
            stopped = [run["stopped_seconds"] for run in found if run["stopped_seconds"] is not None]
            rows.append((case, f"{sum(run['named'] for run in found)} of {len(runs)}", seconds(statistics.median(reported)) if reported else "–",
                         seconds(max(reported)) if reported else "–", seconds(statistics.median(stopped)) if stopped else "continues"))
    groups = result["groups"]
    text = (f"Faults of a running job of 8 ranks on 4 workers. Each worker is in a network namespace with its own clocks. A step takes "
            f"{result['pace_seconds']:.1f} s plus its computation. Each case ran {result['seeds']} times, with different ranks and nodes (`bench/faults.py`; {where(result)}). "
            f"The right rank or node was named first in {100 * result['named']:.0f}% of all runs. Dead processes and nodes were reported after "
            f"{seconds(groups['dead']['seconds_p50'])} (median) and {seconds(groups['dead']['seconds_p99'])} (99th percentile); hangs after {seconds(groups['hang']['seconds_p50'])} "
            f"and {seconds(groups['hang']['seconds_p99'])}. False alarms: {result['false_alarms']}. The time of 'loss not finite' begins when the first rank has exited, "
            f"which can be after the report.{other_figures(result)}\n\n")
    return text + table(("fault", "named", "reported after (median)", "at the latest", "stopped after"), rows)


def beside(result):
    rows = [(line["fault"], line["program"],
             seconds(line["noticed_seconds"], NOT_NOTICED.format(result["watched_seconds"])), seconds(line["ended_seconds"]),
             f"{line['named']} of {line['runs']}") for line in result["table"]]
    return (f"Two of these faults of a small job, compared with PyTorch 2.8 (Gloo, torchrun, 8 ranks) in the same run (`bench/faults_torch.py`; {where(result)}). "
            "A rank counts as named if PyTorch's messages or torchrun's root cause name it.\n\n"
            + table(("fault", "program", "first report after", "job ended after", "rank named"), rows))


def soak(result):
    return (f"A healthy job with checkpoints, evaluations, periodic stack traces and {sum(result['events'].values())} disturbances of healthy jobs (ranks "
            f"that compile for up to 30 s, pauses, network outages, clock jumps, a restarted coordinator), for {result['minutes']:.0f} minutes: "
            f"{result['false_alarms']} false alarms (`bench/soak.py`; {where(result)}).{other_figures(result)}\n")


def watching(result):
    target, noise = result["target"]["cost_max"], result["overhead_plus_minus"] or 0
    verdict = (", which meets" if result["overhead"] + noise <= target else ", which misses" if result["overhead"] - noise > target
               else ". This is too imprecise to decide whether it meets")
    return (f"The cost of monitoring: coordinator, worker and stacks of all threads every {result['trace_interval_seconds']} s use "
            f"{100 * result['cpu_share']:.2f}% of {result['machine']['cores']} cores. Writing its progress page takes {100 * result['page']['share']:.3f}% of a rank's step of "
            f"{1e3 * result['step_seconds_not_watched']:.0f} ms. A thread is stopped for {result['stacks']['held_us']['p50']:.0f} µs while its stack is copied. Together that is "
            f"{100 * result['cost']:.2f}%. The step time changed by {100 * result['overhead']:+.2f}% ± {100 * (result['overhead_plus_minus'] or 0):.2f}% in "
            f"{result['pairs']} pairs of periods with and without monitoring{verdict} the target of {100 * target:.1f}% (`bench/watching.py`; {where(result)}).\n")


def merging(result):
    most = max(result["cases"], key=lambda case: (case["ranks"], case["seconds"]))
    return (f"The stacks of {most['ranks']:,} ranks with {most['threads_per_rank']} threads each, from {most['workers']:,.0f} workers, are merged, classified and symbolised in "
            f"{most['seconds']:.1f} s on one core; finding the suspect takes {most['blame_seconds']:.1f} s more (`bench/stack_merge.py`; {where(result)}).\n")


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
        outcome = (f"not run here: {refused[0]}" if refused else f"{rightly} of {len(runs)} failed, as expected" if rightly
                   else f"{ended} of {len(runs)} resumed")
        rows.append((case, outcome, seconds(statistics.median(times)) if times else "–", seconds(max(times)) if times else "–",
                     seconds(statistics.median(loads)) if loads else "–", max(lost, default="–"), max((run.get("attempts", 0) for run in runs), default="–")))
    same = not result["other_curves"]
    return (f"Faults of a job of 8 ranks on 4 nodes, with a fifth node free and a checkpoint every {result['checkpoint_period']} steps of "
            f"{result['pace_seconds']:.1f} s. Each case ran {result['seeds']} times, with different ranks and nodes (`bench/recovery.py`; {where(result)}). "
            f"Jobs that needed an operator: {result['needed_a_person']}; healthy jobs that were stopped: {result['false_kills']}. Loss and gradient norm of every step"
            f"{'' if same else ', except in ' + ', '.join(result['other_curves']) + ','} equal those of an undisturbed run: bit for bit on the same number of nodes, within 1e-3 on fewer. "
            "The next step is the first one that a later attempt completes; its time begins at the fault. `load` is the part from the start of the last process to that step.\n\n"
            + table(("fault", "outcome", "next step after (median)", "at the latest", "load", "repeated steps", "attempts"), rows))


def compared_recoveries(result):
    rows = [(line["fault"], line["launcher"], f"{line['went_on']} of {line['runs']}", seconds(line["start_seconds"]),
             seconds(line["next_step_seconds"], NOT_NOTICED.format(result["watched_seconds"]))) for line in result["table"]]
    return (f"One PyTorch script (Gloo, {result['ranks']} ranks, a step takes {result['pace_seconds']:.1f} s) under each launcher, in the same run. If a launcher has a configurable "
            f"timeout for silent jobs, it is {result['silence_seconds']} s, and {result['collectives_seconds']} s for collectives (`bench/recovery_torch.py`; {where(result)}).\n\n"
            + table(("fault", "launcher", "resumed", "command to first step", "fault to next step"), rows))


def simulated_weeks(result):
    rows = []
    for line in result["summary"]:
        first = [run["p50"] for run in line["progress_to_first_step_seconds"] if run]
        rows.append((f"{line['ranks']:,}", line["spares"], line["seeds"], f"{line['days']:.0f}", line["interruptions"], line["needed_a_person"], f"{100 * line['ettr']:.2f}%",
                     f"{100 * line['ettr_least']:.2f}%", f"{100 * line['speed_of_undisturbed']:.2f}%", seconds(statistics.median(first)) if first else "–"))
    most = max(result["summary"], key=lambda line: line["ranks"])
    losses = [("none: checkpoints, the first start" if cause == "none" else cause, f"{lost:.0f} s") for cause, lost in most["lost_seconds_per_day_by_cause"].items()]
    return (f"Simulated weeks of training with the failure rates of the Llama 3 report (419 in 54 days on 16,384 GPUs, scaled by the number of nodes), "
            f"under the real coordinator core (`bench/recovery_simulation.py`; {where(result)}).\n\n"
            + table(("ranks", "spare nodes", "runs", "days in total", "interruptions", "needed an operator", "ETTR", "ETTR of the worst run", "steps, relative to a run without failures", "last progress to first step (median)"), rows)
            + f"\nTime that {most['ranks']:,} ranks lose per day, by cause:\n\n" + table(("cause", "lost per day"), losses))


PAGES = {"hangs.md": (("faults", matrix), ("faults_torch", beside), ("soak", soak), ("watching", watching), ("stack_merge", merging)),
         "recovery.md": (("recovery", recoveries), ("recovery_torch", compared_recoveries), ("recovery_simulation", simulated_weeks))}


def wrapped(text):
    """Breaks the lines of paragraphs; rows of tables stay on one line."""
    return "\n".join(line if line.startswith("|") else textwrap.fill(line, COLUMNS_MAX, break_long_words=False, break_on_hyphens=False)
                     for line in text.split("\n"))


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
            texts.append(wrapped(text_of(json.loads(path.read_text()))))
        page = args.docs / name
        before, _, rest = page.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        page.write_text(before + BEGIN + "\n" + "\n".join(texts) + "\n" + END + after)


if __name__ == "__main__":
    main()
