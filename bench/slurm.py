#!/usr/bin/env python3
"""Measures jobs on a real Slurm on this machine, beside `srun torchrun`: from sbatch to the first
step, and from a node's death to the next step.

The cluster is that of the end-to-end tests: munged, slurmctld and four slurmd on loopback. The job
is the same PyTorch script everywhere (bench/peers/recovery_torch.py: data parallel over Gloo, rank
0 saves after each step), with one rank on each of three nodes; our own trainer's start is measured,
too. A node dies with all its processes, including slurmd, without a notice to Slurm. Muster has a
fourth node as a spare, or continues with two; torchrun is elastic (--nnodes=2:3) and continues with
two, under an srun that survives a lost node (--no-kill, --kill-on-bad-exit=0). Launchers alternate.
The time to the first step is split at the script's first line: the part before is Slurm's.

  bench/slurm.py --bin build/release/bin [--runs 3] [--wait 120] [--out bench/results/slurm.json]
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from peers.environment import describe_run, peers_python  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "bench/peers/recovery_torch.py"
TRAINER = ["model_name=llama2-tiny", "dtype=float32", "run_name=bench", "dataset_type=synthetic", "steps=1000000", "learning_rate_schedule_steps=1000", "log_period=1"]
LINE = re.compile(r"step (\d+) rank (\d+) pid (\d+) at ([\d.]+)")
FAULT_STEP = 10
PACE_SECONDS = 0.1


def launchers(binaries, python):
    """Returns (name, number of requested nodes, lines of the script) of each launcher."""
    muster = f"exec {binaries}/muster slurm run --restarts 3 --leave-seconds 5 --output out"
    train = f"-- {python} {SCRIPT} $PWD/state.pt 100000"
    # All nodes have the same address, so the node of torchrun's store must be given: not the node
    # that dies.
    torchrun = ("exec srun --no-kill --kill-on-bad-exit=0 --wait=0 --ntasks-per-node=1 bash -c "
                f"'exec {pathlib.Path(python).parent}/torchrun --nnodes=2:3 --nproc-per-node=1 --max-restarts=3 --rdzv-backend=c10d "
                "--rdzv-id=$SLURM_JOB_ID --rdzv-endpoint=127.0.0.1:$PORT --rdzv-conf=last_call_timeout=1,is_host=$((SLURM_NODEID == 0)) "
                f"{SCRIPT} $PWD/state.pt 100000'")
    return [("Muster, one spare", 4, f"{muster} --spares 1 {train}"), ("Muster, fewer nodes", 3, f"{muster} --min-nodes 2 {train}"),
            ("srun torchrun, elastic", 3, torchrun)]


class Job:
    """One job in its own folder."""

    def __init__(self, cluster, nodes, line, port):
        self.cluster, self.folder = cluster, pathlib.Path(tempfile.mkdtemp(prefix="muster-bench-slurm-"))
        script = self.folder / "job.sub"
        script.write_text(f"#!/bin/bash\ndate +'begins %s.%N'\n{line}\n")
        self.submitted = time.time()
        self.id = cluster.sbatch("-N", nodes, "--ntasks-per-node=1", "--exclusive", "--no-kill", "--no-requeue", script, cwd=self.folder, env={
            "OMP_NUM_THREADS": "1", "RECOVERY_PACE": str(PACE_SECONDS), "PORT": str(port), "NO_COLOR": "1"})

    def output(self):
        path = self.folder / f"slurm-{self.id}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def steps(self):
        """Returns [(step, seconds since the epoch, pid)] of every line so far."""
        return [(int(m[1]), float(m[4]), int(m[3])) for m in LINE.finditer(self.output())]

    def wait(self, condition, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            value = condition()
            if value:
                return value
            time.sleep(0.02)
        return None

    def end(self):
        for node in self.cluster.nodes:
            if node not in self.cluster.daemons:
                self.cluster.down(node)  # Slurm would wait for its answer
        self.cluster.run("scancel", "-s", "KILL", self.id)
        self.cluster.run("scancel", "--batch", "-s", "KILL", self.id)
        self.cluster.run("scancel", self.id)
        self.cluster.wait_for_end(self.id)
        shutil.rmtree(self.folder, ignore_errors=True)


def began(job):
    found = re.search(r"begins ([\d.]+)", job.output())
    return float(found[1]) if found else None


def last_lines(job):
    return job.output()[-2000:].replace(str(ROOT), ".")


def victim(pids):
    """Returns the last of the job's nodes. The first one has the script and the address at which
    its ranks meet.
    """
    nodes = []
    for pid in pids:
        environ = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        nodes += [word.split(b"=", 1)[1].decode() for word in environ if word.startswith(b"SLURMD_NODENAME=")]
    return max(nodes)


def run(cluster, nodes, line, port, wait):
    """Returns the times of one job: to its first step, and from a node's death to the first step
    without that node.
    """
    job = Job(cluster, nodes, line, port)
    row = {"start": None, "slurm": None, "recovery": None}
    try:
        first = job.wait(job.steps, wait)
        if not first:
            return {**row, "said": last_lines(job)}
        row["start"], row["slurm"] = first[0][1] - began(job), began(job) - job.submitted
        if not job.wait(lambda: any(step >= FAULT_STEP for step, _, _ in job.steps()), wait):
            return {**row, "said": last_lines(job)}
        before = {pid for _, _, pid in job.steps()}
        lost = victim(before)
        died = time.time()
        cluster.kill_node(lost)
        after = job.wait(lambda: [at for _, at, pid in job.steps() if pid not in before and at > died], wait)
        if after:
            row["recovery"] = after[0] - died
        else:
            row["said"] = last_lines(job)
        return row
    finally:
        job.end()


def trainer(cluster, binaries, wait):
    """Returns the time to our own trainer's first step, with a rank on each of three nodes."""
    words = " ".join(TRAINER)
    job = Job(cluster, 3, f"exec {binaries}/muster slurm run --leave-seconds 5 {ROOT}/configs/base.yml {words}", 0)
    try:
        seen = job.wait(lambda: "completed step: 0" in job.output() and time.time(), wait)
        return {"start": seen and seen - began(job), "slurm": seen and began(job) - job.submitted}
    finally:
        job.end()


def summary(rows):
    def of(key):
        values = [row[key] for row in rows if row.get(key) is not None]
        return {"median": round(statistics.median(values), 3), "slowest": round(max(values), 3), "runs": len(values)} if values else None
    return {key: of(key) for key in ("start", "recovery", "slurm")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--wait", type=float, default=120, help="seconds after which a job is given up")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/slurm.json")
    args = parser.parse_args()
    os.environ.update(MUSTER_BIN_DIR=str(args.bin.resolve()), MUSTER_SOURCE_DIR=str(ROOT))
    sys.path.insert(0, str(ROOT / "tests/e2e"))
    from slurm_cluster import SlurmCluster, free_ports, why_not
    if why_not():
        sys.exit(f"bench/slurm.py: {why_not()}")
    rows = {}
    chosen = launchers(args.bin.resolve(), peers_python())
    folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-b-"))
    for index in range(args.runs):
        for name, nodes, line in chosen:
            cluster = SlurmCluster(folder / f"{index}{len(rows.get(name, []))}{name[:3]}{nodes}", dict(os.environ)).start()
            try:
                rows.setdefault(name, []).append(run(cluster, nodes, line, free_ports(1)[0], args.wait))
                print(name, json.dumps(rows[name][-1]), flush=True)
                if name == chosen[0][0]:
                    for node in cluster.nodes:
                        if node not in cluster.daemons:
                            cluster.start_node(node)
                    cluster.wait_for_idle()
                    rows.setdefault("Muster's trainer", []).append(trainer(cluster, args.bin.resolve(), args.wait))
                    print("Muster's trainer", json.dumps(rows["Muster's trainer"][-1]), flush=True)
            finally:
                cluster.stop()
    shutil.rmtree(folder, ignore_errors=True)
    result = {**describe_run(), "what": "seconds from the script's first line to the first step (start), from sbatch to that line (slurm), and from a node's "
              "death to the next step (recovery); one rank on each of three nodes", "pace_seconds": PACE_SECONDS,
              "launchers": {name: summary(of) for name, of in rows.items()}, "runs": rows}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: value for key, value in result.items() if key != "runs"}, indent=1))


if __name__ == "__main__":
    main()
