#!/usr/bin/env python3
"""Measures the overhead of monitoring for a training: pages, heartbeats, and the stacks of all
ranks every few seconds.

  bench/watching.py --bin build/release/bin [--pairs 40] [--piece 10] [--trace-seconds 10]
  [--out bench/results/watching.json]

One job with a rank on each core trains model S of bench/cpu_train.py under a coordinator and a
worker. While it trains, both daemons are stopped (SIGSTOP) and resumed: --piece seconds with and
without monitoring, --pairs times, in random order. A piece's figure is its mean step time, which
includes single long steps. The overhead is the mean of the pairs' ratios, with its 95% interval.
`cost` is the sum of three parts. Coordinator and worker: their processor time as a share of all
cores, because here each of their seconds is lost to a rank. The page, which is always written:
bench/page_cost's time of one collective, multiplied by a step's collectives. Stopped threads:
bench/stack_sampler's time to copy the stacks of these ranks.
"""
import argparse
import json
import math
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from faults.orders import wait_until  # noqa: E402
from peers.cpu_train_common import SIZES  # noqa: E402
from peers.environment import describe_run  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
WARM_STEPS = 10
READY_SECONDS_MAX = 120
SETTLE_SECONDS = 1  # after daemons resume: the work that has accumulated does not count as overhead
PAGE_UPDATES_PER_STEP = 4  # phases, and the step itself
SAMPLER_ROUNDS, SAMPLER_PAUSE_MS = 50, 100


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Watched:
    """The job and its monitors: coordinator and worker."""

    def __init__(self, binaries, folder, ranks, trace_seconds):
        self.binaries, self.folder, self.ranks = binaries, folder, ranks
        self.watchers = []
        try:
            self._start("muster-coordinator", "--listen", "127.0.0.1:0", "--state-dir", folder / "state")
            self.address = f"127.0.0.1:{self._ports()['grpc_port']}"
            self._start("muster-worker", "--coordinator", self.address, "--name", "node0", "--slots", ranks, "--work-dir", folder / "work")
            self._ports()
            self._submit(trace_seconds)
        except BaseException:
            self.close()
            raise

    def _start(self, program, *arguments):
        self.ports = self.folder / f"{program}.json"
        command = [self.binaries / program, *arguments, "--http", "127.0.0.1:0", "--port-file", self.ports]
        self.watchers.append(subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                              env={**os.environ, "OMP_NUM_THREADS": "1"}))

    def _ports(self):
        wait_until(self.ports.exists, READY_SECONDS_MAX, self.ports.name)
        return json.loads(self.ports.read_text())

    def muster(self, *arguments):
        command = [self.binaries / "muster", *arguments, "--coordinator", self.address]
        return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout

    def _submit(self, trace_seconds):
        c = SIZES["S"]
        self.metrics = self.folder / "metrics.jsonl"
        answer = self.muster(
            "submit", ROOT / "configs/base.yml", "run_name=watched", f"base_output_directory={self.folder}/out", "dataset_type=synthetic",
            "override_model_config=true", f"base_emb_dim={c['width']}", f"base_num_decoder_layers={c['layers']}",
            f"base_num_query_heads={c['heads']}", f"base_num_kv_heads={c['heads']}", f"head_dim={c['width'] // c['heads']}",
            f"base_mlp_dim={c['mlp']}", f"vocab_size={c['vocab']}", f"max_target_length={c['seq']}", f"per_device_batch_size={c['batch'] // 2}",
            "remat_policy=none", "steps=1000000", "log_period=1000000", "enable_checkpointing=false", f"metrics_file={self.metrics}",
            "collect_stack_trace=true", f"stack_trace_interval_seconds={trace_seconds}", "--ranks", self.ranks, "--no-check", "--json")
        self.job = json.loads(answer)["id"]
        wait_until(lambda: len(self.steps()) > WARM_STEPS, READY_SECONDS_MAX, "warm ranks")

    def steps(self):
        """Returns the seconds of each completed step."""
        if not self.metrics.exists():
            return []
        lines = self.metrics.read_text().split("\n")[:-1]
        rows = [json.loads(line) for line in lines]
        return [row["perf/step_time_seconds"] for row in rows if "perf/step_time_seconds" in row]

    def collectives(self):
        """Returns the rank's start time and its completed steps."""
        stacks = json.loads(self.muster("stacks", self.job, "--rank", 0, "--json"))
        rank = next(rank for rank in stacks["ranks"] if rank["rank"] == 0)
        return sum(group["enqueued"] for group in rank["groups"]), rank["step"]

    def pids(self):
        return [rank["pid"] for rank in json.loads(self.muster("status", self.job, "--json"))["ranks"]]

    def watch(self, on):
        # The coordinator stays stopped longer than the worker, so that it finds no silent worker.
        order = self.watchers[::-1] if on else self.watchers
        for process in order:
            process.send_signal(signal.SIGCONT if on else signal.SIGSTOP)

    def cpu_seconds(self):
        return [cpu_seconds(process.pid) for process in self.watchers]

    def incidents(self):
        return json.loads(self.muster("incident", "list", self.job, "--json"))["incidents"]

    def close(self):
        for process in reversed(self.watchers):
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.watchers:
            process.wait(timeout=60)


def piece(watched, on, seconds):
    """Returns the mean step of a piece, without steps that begin or end outside of it, and the CPU
    seconds of the monitors per second.
    """
    watched.watch(on)
    time.sleep(SETTLE_SECONDS)
    before, cpu, start = len(watched.steps()), watched.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - start
    used = [(after - then) / elapsed for after, then in zip(watched.cpu_seconds(), cpu)]
    return statistics.mean(watched.steps()[before + 1:]), used


def measure(watched, args):
    chance = random.Random(1)
    pairs, used = [], []
    for number in range(args.pairs):
        means = {}
        for on in chance.sample((True, False), 2):
            means[on], cpu = piece(watched, on, args.piece)
            if on:
                used.append(cpu)
        pairs.append((means[True], means[False]))
        print(f"  pair {number}: {1e3 * means[True]:.2f} ms watched, {1e3 * means[False]:.2f} ms not", file=sys.stderr)
    watched.watch(True)
    ratios = [on / off - 1 for on, off in pairs]
    error = 1.96 * statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else None
    coordinator, worker = (statistics.mean(values) for values in zip(*used))
    return {"step_seconds_watched": statistics.median(on for on, _ in pairs), "step_seconds_not_watched": statistics.median(off for _, off in pairs),
            "overhead": statistics.mean(ratios), "overhead_median": statistics.median(ratios), "overhead_plus_minus": error,
            "coordinator_cpu_share": coordinator / os.cpu_count(), "worker_cpu_share": worker / os.cpu_count(),
            "cpu_share": (coordinator + worker) / os.cpu_count()}


def stacks_share(watched, binaries, trace_seconds):
    """Returns how long sampling stops a thread, and the largest share of a rank's time if all its
    threads are stopped one after the other.
    """
    command = [binaries / "stack_sampler", SAMPLER_ROUNDS, SAMPLER_PAUSE_MS, *watched.pids()]
    cost = json.loads(subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout)
    threads = cost["threads"] / cost["processes"]
    return {key: cost[key] for key in ("threads", "held_us", "copy_process_ms", "sample_ms")} | {
        "share": 1e-6 * cost["held_us"]["p50"] * threads / trace_seconds}


def page_share(watched, binaries, step_seconds):
    cost = json.loads(subprocess.run([binaries / "page_cost"], check=True, capture_output=True, text=True, cwd=watched.folder).stdout)
    (begun, step), now = watched.collectives(), time.monotonic()
    wait_until(lambda: time.monotonic() > now + 3, 60, "some steps")
    begun_later, later = watched.collectives()
    per_step = (begun_later - begun) / max(1, later - step)
    seconds = 1e-9 * (per_step * cost["collective_ns"] + PAGE_UPDATES_PER_STEP * max(cost["step_ns"], cost["phase_ns"]))
    return {**cost, "collectives_per_step": round(per_step, 1), "seconds_per_step": seconds, "share": seconds / step_seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--piece", type=float, default=10)
    parser.add_argument("--trace-seconds", type=int, default=10)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/watching.json")
    args = parser.parse_args()
    ranks = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        watched = Watched(args.bin.resolve(), pathlib.Path(folder), ranks, args.trace_seconds)
        try:
            figures = measure(watched, args)
            page = page_share(watched, args.bin.resolve(), figures["step_seconds_not_watched"])
            stacks = stacks_share(watched, args.bin.resolve(), args.trace_seconds)
            incidents = len(watched.incidents())
            watched.muster("cancel", watched.job, "--force")
        finally:
            watched.close()
    result = {**describe_run(), "what": "a job watched and not, alternately: heartbeats each second, stacks of all threads", "ranks": ranks,
              "pairs": args.pairs, "piece_seconds": args.piece, "trace_interval_seconds": args.trace_seconds, **figures, "page": page, "stacks": stacks,
              "with_page": figures["overhead"] + page["share"], "incidents": incidents,
              # Figures that do not depend on other load: the daemons' processor time, and the time
              # in which a rank is stopped or writes its page.
              "cost": figures["cpu_share"] + page["share"] + stacks["share"], "target": {"cost_max": 0.004, "with_page_max": 0.004}}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
