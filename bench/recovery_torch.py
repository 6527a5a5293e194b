#!/usr/bin/env python3
"""Measures the time from a killed or stopped rank to the next step, of one PyTorch script under
Muster, torchrun and nvidia-resiliency-ext's launcher.

  bench/recovery_torch.py --bin build/release/bin [--ranks 4] [--runs 3] [--wait 60]
  [--out bench/results/recovery_torch.json]

The script is data parallel over Gloo on this machine. Rank 0 saves after each step, so that only
detection and restart are measured. Each launcher may restart it three times. A rank is killed
(SIGKILL) or stopped (SIGSTOP) after some steps. The time ends with the first step that a later
attempt completes, by the ranks' own lines; if there is none within --wait seconds, the result
has no time. Launchers alternate.

Each launcher detects a stopped rank in its own way: Muster by --hang-after, if no rank writes
anything, or by the steps that the script reports through Muster's Python module; torchrun by the
timeout of collectives; NVIDIA's by that timeout or by the script's heartbeats. Configurable
timeouts are 5 s, and 15 s for collectives. `start` is the time to the first step of the first
attempt: interpreters, imports and connections.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from peers.environment import describe_run, peers_python  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "bench/peers/recovery_torch.py"
LINE = re.compile(r"step (\d+) rank (\d+) pid (\d+) at (\d+\.\d{3})")
PACE_SECONDS = 0.1
SILENCE_SECONDS = 5  # each launcher treats a job that is silent for longer as hung
# the timeout includes the start of four interpreters: with 5 s no job starts on two cores
COLLECTIVES_SECONDS = 15
FAULT_STEP, STEPS = 10, 100_000
READY_SECONDS_MAX, END_SECONDS_MAX = 60, 45
FAULTS = {"killed rank": signal.SIGKILL, "stopped rank": signal.SIGSTOP}


class Launcher:
    def __init__(self, name, command, environment=()):
        self.name, self.command, self.environment = name, command, dict(environment)


def launchers(binaries, python, ranks):
    tools = pathlib.Path(python).parent
    muster = [binaries / "muster", "run", "--ranks", ranks, "--restarts", 3]
    torchrun = [tools / "torchrun", "--standalone", "--nproc-per-node", ranks, "--max-restarts", 3]
    heartbeats = ["--ft-initial-rank-heartbeat-timeout", SILENCE_SECONDS + 25, "--ft-rank-heartbeat-timeout", SILENCE_SECONDS,
                  "--ft-workload-check-interval", 1]
    nvidia = [tools / "ft_launcher", "--rdzv_backend", "c10d", "--rdzv_endpoint", "127.0.0.1:0", "--nnodes", 1, "--nproc-per-node", ranks,
              "--max-restarts", 3]
    # Without it workers use the rendezvous' store, which still has the addresses of the previous
    # attempt, so that with PyTorch
    # 2.8 no restart over Gloo succeeds.
    own_store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    timeout = {**own_store, "RECOVERY_TIMEOUT": str(COLLECTIVES_SECONDS)}
    return [
        Launcher("Muster, --hang-after", [*muster, "--hang-after", SILENCE_SECONDS, "--", python]),
        Launcher("Muster, steps reported", [*muster, "--env", f"PYTHONPATH={ROOT}/progress", "--", python], {"RECOVERY_SPEAKS": "muster"}),
        Launcher("torchrun", torchrun, own_store),
        Launcher("torchrun, timeout of collectives", torchrun, timeout),
        Launcher("nvidia-resiliency-ext, timeout of collectives", [*nvidia, *heartbeats], timeout),
        Launcher("nvidia-resiliency-ext, heartbeats", [*nvidia, *heartbeats], {**own_store, "RECOVERY_SPEAKS": "nvidia"}),
    ]


class Run:
    """Returns the step lines: (step, rank, pid, seconds since the epoch)."""

    def __init__(self, launcher):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-recovery-"))
        self.steps, self.other = [], []
        self.began = time.time()
        self.process = subprocess.Popen(
            [*map(str, launcher.command), str(SCRIPT), str(self.folder / "state.pt"), str(STEPS)], cwd=self.folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "RECOVERY_PACE": str(PACE_SECONDS), **launcher.environment})
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            found = LINE.findall(line)  # ranks that share a pipe may write into each other's line
            self.steps += [(int(step), int(rank), int(pid), float(at)) for step, rank, pid, at in found]
            if not found and line.strip():
                self.other.append(line.rstrip())

    def wait_for(self, condition, seconds):
        """Returns the condition's value, or None if it does not hold in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if value := condition():
                return value
            if self.process.poll() is not None and not self.reader.is_alive():
                return condition() or None
            time.sleep(0.01)
        return None

    def pids(self):
        return {rank: pid for _, rank, pid, _ in list(self.steps)}

    def kill_ranks(self):
        for pid in {pid for _, _, pid, _ in list(self.steps)}:
            if str(SCRIPT) in command_line(pid):
                send(pid, signal.SIGKILL)

    def close(self):
        """Ends the launcher first, so that it restarts nothing. Does not wait for its ranks: some
        launchers give them half a minute.
        """
        send(self.process.pid, signal.SIGINT)
        time.sleep(1)
        self.kill_ranks()
        try:
            self.process.wait(timeout=END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.kill_ranks()
        self.reader.join(timeout=5)
        shutil.rmtree(self.folder, ignore_errors=True)


def send(pid, signo):
    try:
        os.kill(pid, signo)
    except ProcessLookupError:
        pass


def command_line(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def measure(launcher, fault, ranks, wait):
    run = Run(launcher)
    try:
        ready = run.wait_for(lambda: len({rank for step, rank, *_ in list(run.steps) if step >= FAULT_STEP}) == ranks, READY_SECONDS_MAX)
        if not ready:
            return {"launcher": launcher.name, "fault": fault, "start_seconds": None, "next_step_seconds": None, "said": run.other[-12:]}
        before = set(run.pids().values())
        at = time.time()
        os.kill(run.pids()[1], FAULTS[fault])
        after = run.wait_for(lambda: [line for line in list(run.steps) if line[2] not in before], wait)
        return {"launcher": launcher.name, "fault": fault, "start_seconds": round(run.steps[0][3] - run.began, 3),
                "next_step_seconds": round(min(line[3] for line in after) - at, 3) if after else None,
                "said": run.other[-12:] if not after else []}
    finally:
        run.close()


def table(rows):
    lines = {}
    for row in rows:
        lines.setdefault((row["fault"], row["launcher"]), []).append(row)
    result = []
    for (fault, launcher), some in lines.items():
        seconds = [row["next_step_seconds"] for row in some if row["next_step_seconds"] is not None]
        starts = [row["start_seconds"] for row in some if row["start_seconds"] is not None]
        result.append({"fault": fault, "launcher": launcher, "runs": len(some), "went_on": len(seconds),
                       "start_seconds": round(statistics.median(starts), 2) if starts else None,
                       "next_step_seconds": round(statistics.median(seconds), 2) if seconds else None})
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--wait", type=float, default=60, help="seconds that a job is watched after its fault")
    parser.add_argument("--only", help="launchers, by a part of their names, with commas")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/recovery_torch.json")
    args = parser.parse_args()
    chosen = [launcher for launcher in launchers(args.bin.resolve(), peers_python(), args.ranks)
              if not args.only or any(part in launcher.name for part in args.only.split(","))]
    rows = []
    for _ in range(args.runs):
        for fault in FAULTS:
            for launcher in chosen:
                rows.append(measure(launcher, fault, args.ranks, args.wait))
                print(json.dumps(rows[-1]), flush=True)
    result = {**describe_run(), "what": "a killed or stopped rank of one PyTorch script over Gloo, to the first step of a later attempt",
              "ranks": args.ranks, "pace_seconds": PACE_SECONDS, "silence_seconds": SILENCE_SECONDS, "collectives_seconds": COLLECTIVES_SECONDS, "watched_seconds": args.wait,
              "table": table(rows), "runs": rows}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["table"], indent=1))


if __name__ == "__main__":
    main()
