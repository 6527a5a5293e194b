#!/usr/bin/env python3
"""Writes the figures of docs/hangs.md from the results of faults.py, faults_torch.py, soak.py, watching.py and stack_merge.py.

  bench/hang_tables.py [--results bench/results] [--page docs/hangs.md]

What lies between the page's two marks is replaced; results that are not there are left out.
"""
import argparse
import json
import pathlib
import statistics

ROOT = pathlib.Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- figures: bench/hang_tables.py -->\n", "<!-- end of figures -->\n"
NOT_NOTICED = "not in {:.0f} s"


def table(heading, rows):
    return "\n".join(["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading),
                      *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)]) + "\n"


def seconds(value, nothing="–"):
    return nothing if value is None else f"{value:.3f} s" if abs(value) < 0.1 else f"{value:.1f} s"


def where(result):
    machine = result["machine"]
    return f"{machine['cpu']}, {machine['cores']} cores, commit {result['commit']}, {result['date'][:10]}"


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
            f"{seconds(groups['hang']['seconds_p99'])}. False alarms: {result['false_alarms']}.\n\n")
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
            f"{result['false_alarms']} false alarms (`bench/soak.py`; {where(result)}).\n")


def watching(result):
    return (f"What being watched costs: coordinator, worker and stacks of all threads every {result['trace_interval_seconds']} s compute "
            f"{100 * result['cpu_share']:.2f}% of {result['machine']['cores']} cores; writing its page takes {100 * result['page']['share']:.3f}% of a rank's step of "
            f"{1e3 * result['step_seconds_not_watched']:.0f} ms; a thread is held for {result['stacks']['held_us']['p50']:.0f} µs while its stack is copied: together "
            f"{100 * result['cost']:.2f}%. The step was {100 * result['overhead']:+.2f}% ± {100 * (result['overhead_plus_minus'] or 0):.2f}% longer in "
            f"{result['pairs']} pairs of turns (`bench/watching.py`; {where(result)}).\n")


def merging(result):
    most = max(result["cases"], key=lambda case: (case["ranks"], case["seconds"]))
    return (f"The stacks of {most['ranks']:,} ranks with {most['threads_per_rank']} threads each, from {most['workers']:,.0f} workers: merged, classed and symbolised in "
            f"{most['seconds']:.1f} s on one core, blame {most['blame_seconds']:.1f} s more (`bench/stack_merge.py`; {where(result)}).\n")


PARTS = (("faults", matrix), ("faults_torch", beside), ("soak", soak), ("watching", watching), ("stack_merge", merging))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench/results")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/hangs.md")
    args = parser.parse_args()
    parts = []
    for name, text_of in PARTS:
        path = args.results / f"{name}.json"
        if path.exists():
            parts.append(text_of(json.loads(path.read_text())))
    before, _, rest = args.page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    args.page.write_text(before + BEGIN + "\n" + "\n".join(parts) + "\n" + END + after)


if __name__ == "__main__":
    main()
