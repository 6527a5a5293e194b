"""Faults of Python programs: the incident names the line of the program's own file."""
import json
import os
import pathlib
import sys
import unittest

from harness import SOURCE, wait_until
from programs import ProgramTest
from python_tools import python_or_skip

STEPS_PY = '''
import os, sys, time
import muster_progress as progress
progress.begin()
rank, attempt = int(os.environ["RANK"]), int(os.environ["MUSTER_ATTEMPT"])
'''


class PythonFaults(ProgramTest):
    def run_steps(self, name, text, ranks=2, options=(), check=None):
        script = self.script(name, STEPS_PY + text)
        return self.run_program("python3", script, ranks=ranks, options=["--env", f"PYTHONPATH={SOURCE}/progress", *options], check=check)

    def test_exception_is_quoted_with_the_programs_line(self):
        result = self.run_steps("train.py", '''
def read(n):
    return int("shard %d" % n)      # line 8
for n in range(1, 100):
    progress.step(n)
    print("step", n, "loss", 5.5, flush=True)
    if rank == 1 and n == 5:
        import atexit
        atexit.register(print, "wandb: run finished")
        read(n)
    time.sleep(0.05)
''', options=["--restarts", "0"])
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertRegex(result.stderr, r"rank 1 on \S+ exited with code 1 after 5 steps: ValueError: invalid literal for int\(\) "
                         r"with base 10: 'shard 5' \(\S+/train\.py:8 read\)")

    def test_line_of_a_hang_is_that_of_the_program(self):
        if sys.version_info[:2] != (3, 11):     # its frames are read without py-spy
            self.env["PATH"] += os.pathsep + str(pathlib.Path(python_or_skip("py-spy")).parent)
        # The innermost frames are those of Python's own module multiprocessing.
        script = self.script("waits.py", STEPS_PY + '''
import multiprocessing
ours, theirs = multiprocessing.Pipe()
def answer():
    return ours.recv()              # line 10
for n in range(1, 100000):
    progress.step(n)
    time.sleep(0.02)
    if n == 20:
        answer()
''')
        self.start_worker(self.start_coordinator())
        self.muster("submit", "--ranks", 2, "--env", f"PYTHONPATH={SOURCE}/progress", "--", sys.executable, script, check=0)
        incident = wait_until(lambda: next(iter(json.loads(self.muster("incident", "list", "--json", check=0).stdout)["incidents"]), None), 60, "an incident")
        shown = json.loads(self.muster("incident", "show", incident["id"], "--json", check=0).stdout)
        self.assertRegex(shown["sentence"], r"; it stands at \S+/waits\.py:10 answer")
        frames = [frame["text"] for frame in shown["stacks"]["classes"][0]["frames"]]
        self.assertTrue(any("multiprocessing/connection.py:" in text for text in frames), frames)
        text = self.muster("incident", "show", incident["id"], check=0).stdout
        self.assertRegex(text, r"waits\.py:\d+ <module>")
        self.muster("cancel", 1, "--force", check=0)

    def test_same_exception_twice_ends_the_job(self):
        result = self.run_steps("twice.py", '''
for n in range(1, 100):
    progress.step(n)
    if rank == attempt % 2 and n == 5:
        raise ValueError("batch %d is empty" % (7 + attempt))
    time.sleep(0.05)
''', options=["--restarts", "5"])
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertRegex(result.stderr, r"the same error twice in a row, on \S+: ValueError at \S+/twice\.py:10 <module>, which a restart cannot change")
        self.assertNotIn("batch 10", result.stderr, "a third attempt")

    def test_same_exception_on_all_ranks_ends_the_job_at_once(self):
        result = self.run_steps("alike.py", f"here = {str(self.dir)!r}" + '''
print("begins", attempt, flush=True)
for n in range(1, 6):
    progress.step(n)
open(f"{here}/ready{rank}", "w").close()
while not all(os.path.exists(f"{here}/ready{other}") for other in range(2)):
    time.sleep(0.01)
raise KeyError("lr")
''', options=["--restarts", "5"])
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertRegex(result.stderr, r"the same error on 2 of 2 ranks at \S+/alike\.py:\d+ <module>, which a restart cannot change")
        self.assertIn("begins 1", result.stdout)
        self.assertNotIn("begins 2", result.stdout, "a second attempt")
        log = self.dir / "train.log"
        log.write_text("step 5\nTraceback (most recent call last):\n  File \"/job/t.py\", line 3, in f\n    x()\n"
                       "RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
        self.assertIn("family:  GPU memory error", self.muster("explain", log, check=0).stdout)
        self.assertEqual(json.loads(self.muster("explain", "--json", log, check=0).stdout)["logs"][0]["verdict"], "restart elsewhere")
        self.assertIn("no such file", self.muster("explain", self.dir / "absent", check=2).stderr)
        self.assertEqual((SOURCE / "docs/errors.md").read_text(), self.muster("explain", "--markdown", check=0).stdout,
                         "make it again: muster explain --markdown > docs/errors.md")

    def test_loss_that_is_not_finite_is_an_incident(self):
        result = self.run_steps("nan.py", '''
for n in range(1, 40):
    progress.step(n, loss=float("nan") if rank == 1 and n > 20 else 1.5)
    time.sleep(0.05)
''', check=0)
        self.assertRegex(result.stderr, r"rank 1 on \S+ reports a loss of nan after step \d+")
        self.assertNotIn("RESTARTING", result.stderr)

    def test_first_fault_is_named_and_not_the_lost_connection(self):
        # Rank 0 sees the closed connection at once; rank 1 first writes its report.
        result = self.run_steps("pair.py", '''
import socket
port = int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(("127.0.0.1", port)) as server:
        peer = server.accept()[0]
else:
    for _ in range(200):
        try:
            peer = socket.create_connection(("127.0.0.1", port)); break
        except OSError:
            time.sleep(0.05)
for n in range(1, 100):
    if rank == 1 and n == 5:
        peer.close()
        time.sleep(0.5)
        raise ValueError("batch 7 is empty")
    peer.sendall(b"x")
    if not peer.recv(1):
        raise RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:%d" % port)
    progress.step(n)
''', options=["--restarts", "0"])
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertRegex(result.stderr, r"rank 1 on \S+ exited with code 1 after 4 steps: ValueError: batch 7 is empty \(\S+/pair\.py:\d+ <module>\)")


if __name__ == "__main__":
    unittest.main()
