"""Common parts of benchmark drivers: the peers' Python, and a description of the run."""
import datetime
import os
import pathlib
import platform
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def peers_python():
    """Returns the interpreter with PyTorch and JAX: $MUSTER_PEERS_PYTHON, or build/peers, which is
    created if it is missing.
    """
    given = os.environ.get("MUSTER_PEERS_PYTHON")
    if given:
        return given
    venv = ROOT / "build/peers"
    python = venv / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        requirements = ROOT / "bench/peers/requirements.txt"
        subprocess.run([str(python), "-m", "pip", "install", "-q", "-r", str(requirements)], check=True)
    return str(python)


def describe_run():
    """Returns command, commit, date and machine of this run, for the results' JSON."""
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    dirty = subprocess.run(["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no", "--", ":!bench/results"],
                           capture_output=True, text=True)
    cpu = "unknown"
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    with open("/proc/meminfo") as file:
        memory_kib = int(file.readline().split()[1])
    script = pathlib.Path(sys.argv[0]).resolve()
    script = script.relative_to(ROOT) if script.is_relative_to(ROOT) else script.name
    return {
        "command": shlex.join([str(script), *sys.argv[1:]]),
        "commit": commit.stdout.strip() + ("+changes" if dirty.stdout.strip() else ""),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ"),
        "machine": {
            "cpu": cpu,
            "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(memory_kib / 2**20, 1),
            "kernel": platform.release(),
        },
    }
