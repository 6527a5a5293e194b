#!/usr/bin/env python3
"""Measures the resident memory and CPU time of an idle coordinator and worker that are connected to
each other.

  bench/idle.py --bin build/release/bin [--seconds 90] [--out bench/results/idle.json]

RSS is VmRSS of /proc/<pid>/status at the end; CPU is user + system time over the interval, per cent
of one core.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from peers.environment import describe_run  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
READY_SECONDS_MAX = 20
SETTLE_SECONDS = 3  # excludes the connection and the first heartbeats


def wait_for(path):
    deadline = time.monotonic() + READY_SECONDS_MAX
    while not path.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{path} did not appear")
        time.sleep(0.01)
    return json.loads(path.read_text())


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results/idle.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        processes = {}
        try:
            processes["coordinator"] = subprocess.Popen(
                [str(args.bin / "muster-coordinator"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--state-dir",
                 str(folder / "state"), "--port-file", str(folder / "c.json")], stderr=subprocess.DEVNULL)
            port = wait_for(folder / "c.json")["grpc_port"]
            processes["worker"] = subprocess.Popen(
                [str(args.bin / "muster-worker"), "--coordinator", f"127.0.0.1:{port}", "--name", "idle", "--slots", "4",
                 "--http", "127.0.0.1:0", "--work-dir", str(folder / "work"), "--port-file", str(folder / "w.json")],
                stderr=subprocess.DEVNULL)
            wait_for(folder / "w.json")
            time.sleep(SETTLE_SECONDS)
            before = {name: cpu_seconds(p.pid) for name, p in processes.items()}
            start = time.monotonic()
            time.sleep(args.seconds)
            elapsed = time.monotonic() - start
            figures = {name: {"rss_mib": round(resident_mib(p.pid), 1),
                              "cpu_percent_of_a_core": round(100 * (cpu_seconds(p.pid) - before[name]) / elapsed, 3)}
                       for name, p in processes.items()}
        finally:
            for process in processes.values():
                process.terminate()
                process.wait(timeout=10)
    result = {**describe_run(), "what": "idle coordinator and worker, connected, 1 s heartbeats", "seconds": args.seconds,
              **figures, "target": {"rss_mib_max": 30, "cpu_percent_of_a_core_max": 0.5}}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
