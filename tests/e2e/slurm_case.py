"""Common parts of the tests on a real Slurm: a cluster of four nodes, and wrappers that train a
model with steps of milliseconds.
"""
import pathlib
import re
import shlex
import shutil
import tempfile
import unittest

import slurm_cluster
from harness import BIN, MusterTest, SOURCE, TINY, metrics, wait_until
from slurm_cluster import SlurmCluster

WRAPPERS = SOURCE / "slurm"
# A training that never ends by itself, with regular checkpoints.
ENDLESS = ["steps=1000000", "learning_rate_schedule_steps=100000", "checkpoint_period=20", "max_num_checkpoints_to_keep=3",
           "log_period=50"]


@unittest.skipIf(slurm_cluster.why_not(), slurm_cluster.why_not())
class SlurmTest(MusterTest):
    TOPOLOGY = None
    GPUS = 0
    PLUGIN = None

    def setUp(self):
        super().setUp()
        # munge's socket needs a short path, and slurmd's logs are read after a failure.
        self.slurm_dir = pathlib.Path(tempfile.mkdtemp(prefix="muster-s-"))
        self.env["MUSTER_BIN_DIR"] = str(BIN)
        self.cluster = SlurmCluster(self.slurm_dir / "c", self.env, topology=self.TOPOLOGY, gpus=self.GPUS, plugin=self.PLUGIN)
        self.env = self.cluster.env
        self.cluster.start()

    def tearDown(self):
        self.cluster.stop()
        super().tearDown()
        shutil.rmtree(self.slurm_dir, ignore_errors=True)

    # ------------------------------------------------------------------ jobs

    def tiny(self, *more):
        """Returns keys of a model with steps of milliseconds, which follow a wrapper's keys."""
        return [*TINY, "scan_layers=true", "enable_checkpointing=true", *more]

    def train(self, name, *keys, nodes=2, sbatch=(), options=(), env=None):
        """Submits a job of example_slurm.sub that trains run `name` with one rank on each node.
        Returns its number.
        """
        return self.cluster.sbatch("-N", nodes, "-J", name, *sbatch, WRAPPERS / "example_slurm.sub", *self.tiny(
            f"metrics_file={self.dir}/{name}.jsonl", *keys), *options, cwd=self.dir, env={
                "GPUS_PER_NODE": "1", "BASE_WORKSPACE_DIR": str(self.dir), "LOG_DIR_LOCAL": "runs", "RUN_NAME": name, **(env or {})})

    def output_of(self, name, job):
        """Returns the output of the ranks of train() in all allocations of the job."""
        path = self.dir / "outputs" / name / f"output-{job}-0-0.txt"
        return path.read_text() if path.exists() else ""

    def all_output(self, name, job):
        return f"{self.cluster.job_output(job)}\n{self.output_of(name, job)}\n{self.logs(name)}\nslurmctld: {self.cluster.log('slurmctld')[-2000:]}"

    def logs(self, name):
        return "".join(f"--- {path.name}\n{path.read_text()[-6000:]}" for path in sorted((self.dir / "runs" / name / "muster").glob("*/*.log")))

    def wait_for_output(self, name, job, pattern, seconds=60):
        def found():
            return re.search(pattern, self.output_of(name, job) + self.logs(name), re.M)
        try:
            return wait_until(found, seconds, f"{pattern!r} in the output, or in a log")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.all_output(name, job)}") from None

    def wait_for_steps(self, name, job, above=0, seconds=60):
        """Waits until the run has recorded more than that many steps. Returns their number."""
        path = self.dir / f"{name}.jsonl"

        def done():
            steps = path.read_text().count("\n") if path.exists() else 0
            return steps if steps > above else None
        try:
            return wait_until(done, seconds, f"more than {above} steps")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.all_output(name, job)}") from None

    def wait_for_requeue(self, name, job):
        """Waits until the job has been requeued and has started again at the step at which it left.
        Returns that step.
        """
        self.cluster.wait_for_state(job, "PENDING")
        self.assertEqual(self.cluster.job(job)["Restarts"], "1", self.all_output(name, job))
        left = max(metrics(self.dir / f"{name}.jsonl"))
        self.cluster.start_again(job)
        restored = self.wait_for_output(name, job, r"restored checkpoint \S+: (\d+) step")
        self.assertEqual(int(restored.group(1)), left + 1, self.all_output(name, job))
        self.wait_for_steps(name, job, left + 10)
        steps = sorted(metrics(self.dir / f"{name}.jsonl"))
        self.assertEqual(steps, list(range(len(steps))), "a step is missing")
        return left + 1

    def run_program(self, *options, nodes=1, sbatch=(), program="sleep 1000", env=None):
        """Submits a job with one rank on each node, which runs a line of shell. Returns its number.
        """
        words = " ".join(map(str, options))
        return self.cluster.sbatch("-N", nodes, "--requeue", "--open-mode=append", *sbatch, "--wrap",
                                   f"exec {BIN}/muster slurm run {words} -- bash -c {shlex.quote('echo begins; ' + program)}", cwd=self.dir, env=env)

    def wait_for_words(self, job, pattern, times=1, seconds=60):
        """Waits until the job has written the words that many times."""
        try:
            wait_until(lambda: len(re.findall(pattern, self.cluster.job_output(job))) >= times, seconds, f"{times} times {pattern!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.cluster.job_output(job)}\n{self.cluster.log('slurmctld')[-3000:]}") from None

    def cancel(self, job):
        self.cluster.must("scancel", job)
        return self.cluster.wait_for_end(job)

    def assert_ends(self, job, state, code, name=None):
        end = self.cluster.wait_for_end(job)
        self.assertEqual(end, (state, code), self.all_output(name or "", job))
