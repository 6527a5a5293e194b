"""A disk that is full for a while, with everything that a run writes on it: checkpoints, logs and
the coordinator's state.
"""
import os
import shutil
import signal
import subprocess
import time
import unittest

from harness import MusterTest, step_lines, wait_until


@unittest.skipUnless(os.geteuid() == 0, "only root may mount a small file system")
class FullDisk(MusterTest):
    def setUp(self):
        super().setUp()
        self.small = self.dir / "out"
        self.small.mkdir()
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)  # after it is unmounted
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", self.small], capture_output=True, text=True)
        if mounted.returncode != 0:
            self.skipTest(f"a file system cannot be mounted here: {mounted.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", self.small], capture_output=True)

    def fill_for(self, path, seconds):
        """Takes all space for the given time, also what the run frees, such as the files of a
        checkpoint that failed.
        """
        deadline = time.monotonic() + seconds
        with open(path, "wb", buffering=0) as file:
            while time.monotonic() < deadline:
                try:
                    file.write(bytes(1 << 16))
                except OSError:
                    time.sleep(0.01)

    def newest_step(self, run):
        lines = step_lines(run.out_path.read_text())
        return lines[-1][0] if lines else -1

    def coordinator_log(self):
        return "".join(log.read_text() for log in self.small.glob("full/muster/*/coordinator.log"))

    def test_run_waits_for_space_and_resumes(self):
        run = self.start_run("full", "steps=1000000", "learning_rate_schedule_steps=1000", "checkpoint_period=50", "log_period=50",
                             "max_num_checkpoints_to_keep=2", ranks=2)
        self.wait_for_step(run, 100)
        # The run cannot report the full disk, because its log is on the same disk.
        self.fill_for(self.small / "filler", 10)
        self.assertIsNone(run.poll(), self.output(run))
        (self.small / "filler").unlink()
        wait_until(lambda: "the state is stored again" in self.coordinator_log(), 60, "a state that is stored")
        # The same attempt or the next one: a rank without space for its checkpoint ends; one
        # without a checkpoint to write continues.
        before = self.newest_step(run)
        wait_until(lambda: self.newest_step(run) >= before + 200 or run.poll() is not None, 120, "steps that follow")
        self.assertIsNone(run.poll(), self.output(run))
        run.send_signal(signal.SIGINT)
        run.wait(timeout=60)


if __name__ == "__main__":
    unittest.main()
