"""A program under measurement: a child that answers one line of JSON to each line of commands."""
import json
import os
import subprocess
import sys
import time


class Program:
    """Waits until the child reports that it is ready; `ready` is its report."""

    def __init__(self, name, command, threads, preload=None):
        self.name = name
        env = dict(os.environ, OMP_NUM_THREADS=str(threads), TORCHINDUCTOR_COMPILE_THREADS="1")
        if preload:
            env["LD_PRELOAD"] = str(preload)
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        start = time.monotonic()
        self.ready = self.read()
        print(f"  {name}: warm after {time.monotonic() - start:.0f} s", file=sys.stderr)

    def read(self):
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with {self.child.wait()}")
        return json.loads(line)

    def request(self, command):
        self.child.stdin.write(command + "\n")
        self.child.stdin.flush()
        return self.read()

    def close(self):
        self.child.stdin.close()
        try:
            self.child.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
