"""The same faults in a PyTorch job: torchrun and Gloo, one process per rank on this machine."""
import collections
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from faults.orders import Orders, wait_until

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "peers/hang_torch.py"
READY_SECONDS_MAX = 120
END_SECONDS_MAX = 45  # torchrun gives ranks 30 s to end
LINES_MAX = 60
SETTINGS = {"default timeout": {}, "timeout 30 s": {"FAULT_TIMEOUT": "30"},
            "timeout 30 s, DETAIL": {"FAULT_TIMEOUT": "30", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}}
# Lines that name a rank as missing or deviating, not the rank that complains; the one named most
# often by all ranks counts.
BLAMES = (re.compile(r"Ranks? ([\d, ]+?) failed to (?:pass monitoredBarrier|respond)"),
          re.compile(r"but Rank (\d+) is running collective"),
          re.compile(r"Root Cause .*?rank\s*: (\d+)", re.DOTALL))


def blamed_in(text):
    for pattern in BLAMES:
        if found := pattern.findall(text):
            return [int(rank) for rank in re.findall(r"\d+", collections.Counter(found).most_common(1)[0][0])]
    return []


class TorchJob:
    """A job of PyTorch; its output lines are recorded with their arrival times."""

    def __init__(self, python, ranks, pace, environment):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="muster-torch-"))
        self.orders = Orders(self.folder / "orders")
        self.lines, self.ended = [], None
        torchrun = pathlib.Path(python).with_name("torchrun")
        self.process = subprocess.Popen(
            [str(torchrun), "--standalone", "--nproc-per-node", str(ranks), str(PROGRAM)], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "FAULT_ORDERS": str(self.orders.folder), "FAULT_PACE": str(pace), **environment})
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.pids = []
        try:
            self._wait_until_warm([self.orders.folder / f"ready.{rank}" for rank in range(ranks)])
        except BaseException:
            self.close()
            raise

    def _wait_until_warm(self, files):
        def warm():
            if self.process.poll() is not None:
                raise RuntimeError("PyTorch's job ended:\n" + "\n".join(line for _, line in self.lines))
            return all(file.exists() and file.read_text() for file in files)
        wait_until(warm, READY_SECONDS_MAX, "warm ranks of PyTorch")
        self.pids = [int(file.read_text()) for file in files]

    def _read(self):
        for line in self.process.stdout:
            self.lines.append((time.time(), line.rstrip()))
        self.ended = time.time()

    def stop(self, rank):
        at = time.time()
        os.kill(self.pids[rank], signal.SIGSTOP)
        return at

    def follow(self, at, seconds):
        """Returns the lines after the fault, for at most this long."""
        self.reader.join(timeout=max(0, at + seconds - time.time()))
        printed = [(when, line) for when, line in list(self.lines) if when > at and line.strip()]
        text = "\n".join(line for _, line in printed)
        return {"seconds": round(printed[0][0] - at, 3) if printed else None,
                "ended_seconds": round(self.ended - at, 3) if self.ended else None,
                "blamed": blamed_in(text),
                "lines": [f"{when - at:.1f} s: {line[:300]}" for when, line in printed[:LINES_MAX]]}

    def close(self):
        for pid in [*self.pids, self.process.pid]:
            for signo in (signal.SIGCONT, signal.SIGKILL):
                try:
                    os.kill(pid, signo)
                except ProcessLookupError:
                    break
        self.process.wait(timeout=END_SECONDS_MAX)
        shutil.rmtree(self.folder, ignore_errors=True)
