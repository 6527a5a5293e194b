"""Programs that hang: the evidence of their processes decides when they are restarted."""
import re
import unittest

from harness import SOURCE
from programs import ProgramTest

# Completes a step every 20 ms, and hangs after step 20 of the first attempt.
STEPS_PY = '''
import os, signal, threading, time
import muster_progress as progress
progress.begin()
for n in range(1, 41):
    time.sleep(0.02)
    progress.step(n, loss=1 / n, tokens=10)
    if os.environ["MUSTER_ATTEMPT"] == "1" and n == 20:
        hang()
print("attempt", os.environ["MUSTER_ATTEMPT"], "ends", flush=True)
'''


class HangingPrograms(ProgramTest):
    def run_until_restarted(self, *words):
        result = self.run_program(*words, options=["--env", f"PYTHONPATH={SOURCE}/progress"])
        self.assertIn("attempt 2 ends\n", result.stdout)
        self.assertEqual(set(re.findall(r"incident (\d+)", result.stderr)), {"1"}, result.stderr)
        return result.stderr

    def test_stopped_child_is_named_and_ends_the_attempt(self):
        script = self.script("loader.py", '''
def hang():
    reader, _ = os.pipe()
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    print("child", child, flush=True)
    os.read(reader, 1)
''' + STEPS_PY)
        shown = self.run_until_restarted("python3", script)
        self.assertRegex(shown, r"fault at step 20: hang: rank 0 on \S+: it has a child process that is stopped \(SIGSTOP\): \d+, python3")

    def test_two_locks_end_the_attempt_because_no_process_works(self):
        script = self.script("locks.py", '''
def hang():
    first, second = threading.Lock(), threading.Lock()
    def other():
        with second:
            time.sleep(0.2)
            with first:
                pass
    with first:
        threading.Thread(target=other, daemon=True).start()
        time.sleep(0.1)
        with second:
            pass
''' + STEPS_PY)
        shown = self.run_until_restarted("python3", script)
        self.assertIn("no process works, but the job may wait for something; it is sampled until nothing has moved for 30 s", shown)
        self.assertIn("fault at step 20: hang: rank 0", shown)

    def test_stopped_shell_that_reports_nothing_ends_the_attempt(self):
        script = self.script("silent.sh", '''
[ $MUSTER_ATTEMPT = 1 ] && kill -STOP $$
echo attempt $MUSTER_ATTEMPT ends
''')
        shown = self.run_until_restarted("sh", script)
        self.assertRegex(shown, r"hang: rank 0 on \S+: it is stopped \(SIGSTOP\)")


if __name__ == "__main__":
    unittest.main()
