#!/usr/bin/env python3
"""Shows that the tests detect faults of the coordinator, of its storage in etcd and of the worker.

  tests/mutants/run.py --check                 each patch applies to the sources (a test of CI)
  tests/mutants/run.py [NAME …] [--seeds 300] [--out bench/results/mutants.json]

Each *.patch in this folder changes one decision. Its first line describes the fault. A second line
"Programs: …" names the tests that must detect it; the default are the simulation and the scenarios,
for the coordinator's core and the shell's code that the simulation shares. The second form copies
the sources to build/mutants, applies one patch at a time, builds only these programs, and runs them
until one fails: that patch is "caught". Exits with 1 if a patch is missed or stale.

A patch that does not apply is "stale": make its change by hand, and write `git diff` of it below
the description.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Tolerates changed lines at the ends of a patch's context, and any moved lines.
FUZZ = 2
PROGRAMS = ("muster_simulation", "coordinator_scenarios")


def patch(name, folder, *options):
    """Applies a patch. Returns the text of the failure, or ""."""
    done = subprocess.run(["patch", "-p1", f"--fuzz={FUZZ}", "--force", "--no-backup-if-mismatch", "-d", str(folder), "-i", str(HERE / f"{name}.patch"), *options],
                          capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip()


def description(name):
    return (HERE / f"{name}.patch").read_text().splitlines()[0]


def programs_of(name):
    second = (HERE / f"{name}.patch").read_text().splitlines()[1]
    return second.removeprefix("Programs: ").split() if second.startswith("Programs: ") else list(PROGRAMS)


def check(names):
    stale = 0
    for name in names:
        if not description(name) or description(name).startswith("---"):
            print(f"{name}: the first line does not describe the fault")
            stale += 1
        if failure := patch(name, ROOT, "--dry-run"):
            print(f"{name} is stale ({description(name)})\n{failure}\n")
            stale += 1
    print(f"{len(names)} patches, {stale} stale")
    return stale


def copy_sources(folder):
    """Copies the sources that the build needs. Copies only changes, for fast second runs."""
    files = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True).stdout.splitlines()
    for file in files:
        source, target = ROOT / file, folder / file
        if not source.is_file() or file.startswith(("bench/results/", "docs/")):
            continue
        if target.exists() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def build(folder, programs, jobs):
    done = subprocess.run(["cmake", "--build", str(folder / "build"), f"-j{jobs}", "--target", *programs], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout[-3000:]


def run_tests(folder, programs, seeds):
    """Returns the first failure, or ""."""
    environment = os.environ | {"MUSTER_SIMULATION_SEEDS": f"1-{seeds}", "MUSTER_SIMULATION_RUNS": "0"}
    for program in programs:
        command = [str(folder / "build/bin" / program), "--gtest_brief=1", *(["--gtest_filter=*Range*"] if program == "muster_simulation" else [])]
        kind = program.removeprefix("muster_").removeprefix("coordinator_").removesuffix("_test")
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1200, cwd=folder)
        except subprocess.TimeoutExpired:
            return f"{kind}: no end"
        if done.returncode != 0:
            found = re.search(r"^seed \d+: .*$|^\[  FAILED  \] \S+", done.stdout, re.M)
            text = found[0] if found else (done.stdout + done.stderr)[-200:]
            return f"{kind}: {text}"
    return ""


def write_results(args, results):
    """Writes the results so far."""
    sys.path.insert(0, str(ROOT / "bench"))
    from peers.environment import describe_run  # noqa: E402
    caught = sum(result["result"] == "caught" for result in results.values())
    args.out.write_text(json.dumps(describe_run() | {"seeds": args.seeds, "caught": caught, "of": len(results), "mutants": results}, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="patches, without .patch; default: all")
    parser.add_argument("--check", action="store_true", help="only check that each patch applies")
    parser.add_argument("--seeds", type=int, default=300, help="number of seeds of the simulation")
    parser.add_argument("--jobs", type=int, default=2, help="parallel compilers")
    parser.add_argument("--out", type=pathlib.Path, help="write the results to this file")
    args = parser.parse_args()
    names = args.names or sorted(path.stem for path in HERE.glob("*.patch"))
    if args.check:
        return 1 if check(names) else 0
    folder = ROOT / "build/mutants"
    copy_sources(folder)
    # As the preset `ci`, so that ccache has most objects, but with one object per file of the core.
    subprocess.run(["cmake", "--preset", "ci", "-B", "build", "-DMUSTER_MUTANTS=ON"], check=True, stdout=subprocess.DEVNULL, cwd=folder)
    every = sorted({program for name in names for program in programs_of(name)})
    if failure := build(folder, every, args.jobs) or run_tests(folder, every, args.seeds):
        print(f"the sources without a patch fail:\n{failure}")
        return 1
    results = {}
    for name in names:
        begin = time.monotonic()
        failure = patch(name, folder)
        if failure:
            results[name] = {"fault": description(name), "result": "stale"}
        else:
            programs = programs_of(name)
            failure = build(folder, programs, args.jobs)
            caught = "" if failure else run_tests(folder, programs, args.seeds)
            results[name] = {"fault": description(name), "result": "stale" if failure else "caught" if caught else "missed", "by": caught}
        copy_sources(folder)
        results[name]["seconds"] = round(time.monotonic() - begin)
        print(f"{name}: {results[name]['result']} ({results[name].get('by', '')}) {results[name]['seconds']} s", flush=True)
        if results[name]["result"] == "stale":
            print(failure)
        if args.out:
            write_results(args, results)
    missed = [name for name, result in results.items() if result["result"] != "caught"]
    print(f"{len(names) - len(missed)} of {len(names)} caught" + (f"; not: {', '.join(missed)}" if missed else ""))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
