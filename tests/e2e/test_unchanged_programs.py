"""Programs without any call to Muster survive a killed rank, a hang and a killed coordinator under
`muster run --`.
"""
import os
import re
import signal
import unittest

from harness import wait_until
from programs import ProgramTest
from python_tools import python_or_skip

RUN_SECONDS_MAX = 170

SHELL = '''#!/bin/sh
n=$(cat "at.$RANK" 2>/dev/null || echo 0)
while [ "$n" -lt 30 ]; do
  n=$((n + 1))
  echo "rank $RANK line $n"
  echo "$n" > "at.$RANK.new" && mv "at.$RANK.new" "at.$RANK"
  sleep 0.1
done
echo "rank $RANK ends"
'''

# The state is what rank 0 has saved. A step takes some time, so that a fault can interrupt it.
DDP = '''
import os, sys, time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
state, first = sys.argv[1], 0
if os.path.exists(state):
    saved = torch.load(state)
    model.module.load_state_dict(saved["model"])
    first = saved["step"]
for step in range(first, 20):
    torch.manual_seed(100 * step + rank)
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        torch.save({"model": model.module.state_dict(), "step": step + 1}, state + ".new")
        os.replace(state + ".new", state)
    dist.barrier()
    print(f"rank {rank} line {step + 1}", flush=True)
    time.sleep(0.1)
if rank == 0:
    print("weights", [round(x, 6) for x in model.module.weight.flatten().tolist()], flush=True)
print(f"rank {rank} ends", flush=True)
dist.destroy_process_group()
'''

JAX = '''
import os, sys, time
import jax
jax.distributed.initialize(coordinator_address=os.environ["JAX_COORDINATOR_ADDRESS"],
                           num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
                           process_id=int(os.environ["JAX_PROCESS_ID"]))
from jax.experimental import multihost_utils
import jax.numpy as jnp
rank, state, first, total = jax.process_index(), sys.argv[1], 0, 0.0
if os.path.exists(state):
    first, total = [float(x) for x in open(state).read().split()]
for step in range(int(first), 20):
    total += float(multihost_utils.process_allgather(jnp.array([step * (rank + 1.0)])).sum())
    multihost_utils.sync_global_devices(f"step {step}")
    if rank == 0:
        with open(state + ".new", "w") as file:
            file.write(f"{step + 1} {total}")
        os.replace(state + ".new", state)
    print(f"rank {rank} line {step + 1}", flush=True)
    time.sleep(0.1)
print("weights", total, flush=True)
print(f"rank {rank} ends", flush=True)
'''


class Survives:
    """Tests for subclasses, which set `words`, the command, and `options`."""
    options = ()

    def words(self):
        raise NotImplementedError

    def started(self):
        """Starts a run of two ranks. Returns it after some steps."""
        run = self.start_program(*self.words(), ranks=2, options=["--hang-after", "3", *self.options])
        wait_until(lambda: self.lines(run) >= 5 or run.poll() is not None, 90, "five lines of rank 0")
        self.assertIsNone(run.poll(), self.output(run))
        return run

    def lines(self, run):
        found = re.findall(r"rank 0 line (\d+)", run.out_path.read_text())
        return int(found[-1]) if found else 0

    def assert_ends_well(self, run):
        self.assertEqual(run.wait(timeout=RUN_SECONDS_MAX), 0, self.output(run))
        for rank in (0, 1):
            self.assertIn(f"rank {rank} ends", self.output(run))

    def survive_a_killed_rank(self):
        run = self.started()
        os.kill(self.pids_of_ranks()[1], signal.SIGKILL)
        self.assert_ends_well(run)
        self.assertRegex(self.output(run), r"rank 1 on local was killed by signal 9")
        self.assert_same_as_undisturbed(run)

    def survive_a_hang(self):
        run = self.started()
        stopped = self.pids_of_ranks()[1]
        os.kill(stopped, signal.SIGSTOP)
        self.assert_ends_well(run)
        output = self.output(run)
        self.assertRegex(output, r"hang: .*rank 1\b.* (is|was) stopped", output)
        retained = sorted(self.dir.glob("job/muster/*/incident-*.txt"))
        self.assertTrue(retained, output)
        self.assertRegex(retained[0].read_text(), r"rank 1\b")
        self.assert_same_as_undisturbed(run)

    def survive_a_killed_coordinator(self):
        run = self.started()
        before = self.pids_of_ranks()
        os.kill(self.pid_of_daemon("muster-coordinator"), signal.SIGKILL)
        wait_until(lambda: "muster-coordinator was killed by signal 9; restarting it" in self.output(run), 20, "a new coordinator")
        self.assertEqual(self.pids_of_ranks(), before, "its ranks did not notice")
        self.assert_ends_well(run)
        self.assertNotIn("attempt 2", self.output(run))
        for line in range(1, 6):
            self.assertEqual(self.output(run).count(f"rank 0 line {line}\n"), 1, "each line is printed once")

    def assert_same_as_undisturbed(self, run):
        """Checks the result; a subclass whose program has one overrides this."""


class Shell(Survives, ProgramTest):
    def words(self):
        script = self.script("count.sh", SHELL)
        script.chmod(0o755)
        return [script]

    def test_survives_a_killed_rank(self):
        self.survive_a_killed_rank()

    def test_survives_a_hang(self):
        self.survive_a_hang()

    def test_survives_a_killed_coordinator(self):
        self.survive_a_killed_coordinator()

    def test_silent_loading_is_not_a_hang(self):
        script = self.script("loads.sh", "#!/bin/sh\nsleep 5\necho loaded\n")
        script.chmod(0o755)
        result = self.run_program(script, ranks=2, options=["--hang-after", "2"])
        self.assertNotIn("SUSPECT", result.stderr)

    def test_survives_a_killed_worker(self):
        run = self.started()
        os.kill(self.pid_of_daemon("muster-worker"), signal.SIGKILL)
        self.assert_ends_well(run)
        self.assertIn("muster-worker was killed by signal 9; restarting it", self.output(run))


class WithAResult(Survives):
    """Expects the result of an undisturbed run after each fault."""
    MODULE = ""

    @classmethod
    def setUpClass(cls):
        cls.python = python_or_skip(cls.MODULE)
        super().setUpClass()

    def assert_same_as_undisturbed(self, run):
        calm = self.run_program(*self.words("calm"), ranks=2, options=list(self.options), timeout=RUN_SECONDS_MAX)
        weights = [re.search(r"weights (.*)", text)[1] for text in (self.output(run), calm.stdout)]
        self.assertEqual(*weights)


class PyTorchDdp(WithAResult, ProgramTest):
    MODULE = "torch"

    def words(self, name="disturbed"):
        return [self.python, self.script("ddp.py", DDP), f"{name}.pt"]

    def test_survives_a_killed_rank(self):
        self.survive_a_killed_rank()

    def test_survives_a_hang(self):
        self.survive_a_hang()

    def test_survives_a_killed_coordinator(self):
        self.survive_a_killed_coordinator()


class JaxProcesses(WithAResult, ProgramTest):
    MODULE = "jax"
    options = ("--env", "JAX_PLATFORMS=cpu")

    def words(self, name="disturbed"):
        return [self.python, self.script("jax_steps.py", JAX), f"{name}.txt"]

    def test_survives_a_killed_rank(self):
        self.survive_a_killed_rank()

    def test_survives_a_hang(self):
        self.survive_a_hang()

    def test_survives_a_killed_coordinator(self):
        self.survive_a_killed_coordinator()


if __name__ == "__main__":
    unittest.main()
