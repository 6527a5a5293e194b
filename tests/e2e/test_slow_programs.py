"""Programs with a slow rank, which the waits of the others or samples of main threads show."""
import unittest

from harness import SOURCE
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


if __name__ == "__main__":
    unittest.main()
