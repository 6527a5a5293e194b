"""Programs with a slow rank, which the waits of the others or samples of main threads show."""
import json
import unittest

from harness import SOURCE, wait_until
from programs import ProgramTest

# Three ranks that sum a number over TCP in each step. Rank 1 computes four times as long.
STEPS_PY = '''
import os, socket, sys, time
import muster_progress as progress
rank, seconds = int(os.environ["RANK"]), float(sys.argv[1])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(address) as listener:
        peers = [listener.accept()[0] for _ in range(2)]
else:
    while True:
        try:
            peers = [socket.create_connection(address)]
            break
        except ConnectionRefusedError:
            time.sleep(0.05)

def compute(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass

def exchange():
    if rank == 0:
        for peer in peers:
            peer.recv(1)
    for peer in peers:
        peer.sendall(b"x")
    if rank != 0:
        peers[0].recv(1)

progress.begin()
group = progress.group("data", 3, 1)
end = time.monotonic() + seconds
n = 0
while True:
    n += 1
    if rank == 1:
        time.sleep(0.3)
    compute(0.02)
    STEP
    progress.step(n)
    if rank == 0 and n % 10 == 0:
        stop = time.monotonic() >= end
        for peer in peers:
            peer.sendall(b"q" if stop else b"c")
        if stop:
            break
    elif n % 10 == 0 and peers[0].recv(1) == b"q":
        break
'''


class SlowPrograms(ProgramTest):
    def run_steps(self, step, seconds):
        script = self.script("steps.py", STEPS_PY.replace("STEP", step))
        return self.run_program("python3", script, seconds, options=["--env", f"PYTHONPATH={SOURCE}/progress"], ranks=3).stderr

    def test_time_in_collectives_counts_as_waiting(self):
        shown = self.run_steps('with group.collective("all-reduce", "sum"):\n        exchange()', "25")
        self.assertRegex(shown, r"rank 1 on \S+ computes slowly: 0\.\d+ s a step, where the median rank takes 0\.\d+ s; the others wait for it")

    def test_samples_of_main_threads_show_who_never_waits(self):
        shown = self.run_steps("exchange()", "50")
        self.assertRegex(shown, r"rank 1 on \S+ computes slowly: ")

    def test_steps_slower_than_before_name_the_rank(self):
        """Rank 1 works for longer from a moment on."""
        flag = self.dir / "slow"
        script = self.script("steps.py", STEPS_PY.replace("time.sleep(0.3)", f"time.sleep(0.4 if os.path.exists({str(flag)!r}) else 0)")
                             .replace("compute(0.02)", "time.sleep(0.15)")
                             .replace("STEP", 'with group.collective("all-reduce", "sum"):\n        exchange()'))
        coordinator = self.start_coordinator(extra=["--slower-than-plan-seconds", "2"])
        self.start_worker(coordinator)
        self.muster("submit", "--name", "job", "--ranks", 3, "--env", f"PYTHONPATH={SOURCE}/progress", "--", "python3", script, "1000", check=0)
        steps = 'muster_job_step_seconds_count{job_id="1",name="job"}'
        wait_until(lambda: self.samples(coordinator).get(steps, 0) >= 100, 60, "a history")
        flag.touch()

        def incident():
            found = json.loads(self.muster("incident", "list", 1, "--json", check=0).stdout)["incidents"]
            return next((one for one in found if one["kind"] == "slower than before"), None)
        opened = wait_until(incident, 60, "an incident")
        self.assertRegex(opened["sentence"], r"a step takes 0\.\d+ s, and took 0\.\d+ s before \(\+\d+%\); most of the difference is communication "
                         r"\(\+0\.\d+ s\); rank 1 on node0 computes 0\.\d+ s a step, and computed 0\.\d+ s before")
        self.assertEqual(opened["action"], "none: training continues")
        self.assertEqual(self.job(1)["state"], "RUNNING")
        flag.unlink()
        wait_until(lambda: not incident()["open"], 60, "the end of the incident")
        self.muster("cancel", 1, check=0)


if __name__ == "__main__":
    unittest.main()
