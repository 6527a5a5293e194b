#!/usr/bin/env python3
"""Runs many seeds of the simulation on all processors, and stops at the first that fails.

  tests/simulation/run_seeds.py --bin build/ci/bin --seeds 1-2000 --workers 64
  tests/simulation/run_seeds.py --bin build/ci/bin --seeds 1-12500 --workers 8
  tests/simulation/run_seeds.py --self-test

A failing seed prints its event log and the command that replays it, minimised.
"""
import argparse
import concurrent.futures
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

# Seeds of one process: its start costs little beside them, and the last processes end together.
SEEDS_PER_RUN = 4
# Far above the time of a run, so that a hanging seed ends.
RUN_SECONDS = 3600


def seeds_of(text):
    first, _, last = text.partition("-")
    try:
        seeds = int(first), int(last or first)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no range of seeds; write FIRST-LAST, for example 1-2000") from None
    if not 0 < seeds[0] <= seeds[1]:
        raise argparse.ArgumentTypeError(f"'{text}': the first seed must be at least 1 and at most the last one")
    return seeds


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}: it must be at least 1")
    return number


def run(program, first, last, workers):
    """Returns the output of a run that failed, or None."""
    env = {**os.environ, "MUSTER_SIMULATION_SEEDS": f"{first}-{last}", "MUSTER_SIMULATION_WORKERS": str(workers)}
    done = subprocess.run([program, "--gtest_filter=*Range*"], env=env, text=True, timeout=RUN_SECONDS, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return None if done.returncode == 0 and "1 test" in done.stdout else done.stdout


def run_all(program, seeds, workers, jobs):
    """Returns the exit code."""
    begin = time.monotonic()
    total = seeds[1] - seeds[0] + 1
    done = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        runs = {pool.submit(run, program, first, min(first + SEEDS_PER_RUN - 1, seeds[1]), workers): first
                for first in range(seeds[0], seeds[1] + 1, SEEDS_PER_RUN)}
        for ended in concurrent.futures.as_completed(runs):
            output = ended.result()
            if output is not None:
                pool.shutdown(wait=False, cancel_futures=True)
                print(output)
                print(f"a seed from {runs[ended]} on failed", flush=True)
                return 1
            done += min(SEEDS_PER_RUN, seeds[1] - runs[ended] + 1)
            if sys.stderr.isatty():
                print(f"\r{done} of {total} seeds", end="", file=sys.stderr, flush=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{total} seeds of {workers} workers hold: {time.monotonic() - begin:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of CPU time")
    return 0


def self_test():
    """Finds the failing seed of a program that stands for the simulation."""
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "program"
        program.write_text("#!/bin/sh\nfirst=${MUSTER_SIMULATION_SEEDS%-*} last=${MUSTER_SIMULATION_SEEDS#*-}\n"
                           'if [ "$first" -le 42 ] && [ "$last" -ge 42 ]; then echo "replay: seed 42"; exit 1; fi\necho "1 test ran"\n')
        program.chmod(0o755)
        codes = [run_all(str(program), seeds, 3, 2) for seeds in ((1, 41), (1, 60), (42, 42), (43, 60))]
    if codes != [0, 1, 1, 0]:
        sys.exit(f"exit codes {codes}")
    print("ok")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, help="the folder of muster_simulation")
    parser.add_argument("--seeds", type=seeds_of, default=(1, 2000), metavar="FIRST-LAST")
    parser.add_argument("--workers", type=positive, default=64)
    parser.add_argument("--jobs", type=positive, default=os.cpu_count(), help="processes at once")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    if options.bin is None or not (options.bin / "muster_simulation").exists():
        parser.error(f"--bin={options.bin}: it must be the folder of muster_simulation, for example build/ci/bin")
    return run_all(str(options.bin / "muster_simulation"), options.seeds, options.workers, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
