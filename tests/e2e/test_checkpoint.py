"""`muster checkpoint`: the request from the command line through both daemons to all ranks, and the
answer.
"""
import json
import os
import pathlib
import re
import signal
import time
import unittest

from harness import BIN, TINY, MusterTest, wait_until


class Checkpoint(MusterTest):
    def submit(self, name, *settings, ranks=2):
        self.muster("submit", self.base_yml(), f"run_name={name}", f"base_output_directory={self.dir}/out", "dataset_type=synthetic",
                    *TINY, "steps=1000000", "checkpoint_period=1000000", *settings, "--ranks", ranks, check=0)

    def first_rank(self, job):
        ranks = json.loads(self.muster("status", job, "--json", check=0).stdout)["ranks"]
        return ranks[0] if ranks else {"step": -1}

    def steps_saved(self, name):
        return sorted(int(p.name) for p in (self.dir / "out" / name / "checkpoints").iterdir() if p.name.isdigit())

    def test_checkpoint_on_request(self):
        coordinator = self.start_coordinator()
        worker = self.start_worker(coordinator)
        refused = self.muster("checkpoint", 1, check=2)
        self.assertIn("there is no job 1", refused.stderr)
        self.submit("asked")
        wait_until(lambda: self.first_rank(1)["step"] > 0, 60, "a step")
        before = self.first_rank(1)["step"]
        saved = self.muster("checkpoint", 1, check=0)
        step, folder = re.fullmatch(r"saved step (\d+) in (\S+)\n", saved.stdout).groups()
        self.assertGreater(int(step), before)
        self.assertEqual(json.loads((pathlib.Path(folder) / "manifest.json").read_text())["step"], int(step))
        again = json.loads(self.muster("checkpoint", 1, "--json", check=0).stdout)
        self.assertGreater(again["step"], int(step))
        self.assertEqual(self.steps_saved("asked"), [int(step), again["step"]])
        self.assertIn("will save a checkpoint", self.muster("checkpoint", 1, "--no-wait", check=0).stdout)
        wait_until(lambda: len(self.steps_saved("asked")) == 3, 30, "the third")
        self.assertGreater(self.first_rank(1)["step"], again["step"], "it trains on")
        wait_until(lambda: self.samples(worker).get('muster_worker_checkpoints_total{outcome="saved"}') == 3, 30, "the metric")
        steps = [value for series, value in self.samples(worker).items() if series.startswith("muster_rank_checkpoint_step")]
        self.assertEqual(steps, [self.steps_saved("asked")[-1]], "rank 0 alone has the request")
        # A full disk is reported, and the job continues to train.
        directory = self.dir / "out/asked/checkpoints"
        directory.rename(self.dir / "moved")
        directory.write_text("a file in its place")
        failed = self.muster("checkpoint", 1, check=1)
        self.assertIn("could not save the checkpoint and continues to train", failed.stderr)
        directory.unlink()
        (self.dir / "moved").rename(directory)
        self.muster("checkpoint", 1, check=0)
        self.muster("cancel", 1, check=0)
        wait_until(lambda: "CANCELLED" in self.muster("status", 1).stdout, 30, "the end")
        self.assertIn("has already ended", self.muster("checkpoint", 1).stderr)

    def test_saved_step_is_found_after_the_attempt_has_ended(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator)
        self.submit("moved")
        wait_until(lambda: self.first_rank(1)["step"] > 0, 60, "a step")
        # The command sees the job before the checkpoint is there, and next in another attempt.
        for pid in self.ranks_of_test().values():
            os.kill(pid, signal.SIGSTOP)
        command = self.start(BIN / "muster", "checkpoint", 1)
        time.sleep(1)
        os.kill(command.pid, signal.SIGSTOP)
        for pid in self.ranks_of_test().values():
            os.kill(pid, signal.SIGCONT)
        saved = wait_until(lambda: (self.dir / "out/moved/checkpoints").exists() and self.steps_saved("moved"), 30, "the checkpoint")
        wait_until(lambda: self.job(1)["ranks"][0]["checkpoint_step"] > 0, 30, "its report")
        os.kill(self.ranks_of_test()[1], signal.SIGKILL)
        wait_until(lambda: self.job(1)["attempt"] == 2 and self.job(1)["ranks"][1:] and self.first_rank(1)["step"] > saved[0], 60, "the next attempt")
        os.kill(command.pid, signal.SIGCONT)
        self.assertEqual(command.wait(timeout=30), 0, self.output(command))
        self.assertEqual(self.output(command), f"saved step {saved[0]} in {self.dir}/out/moved/checkpoints/{saved[0]}\n")

    def test_job_without_checkpoints_refuses_the_request(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator)
        self.submit("none", "enable_checkpointing=false", ranks=1)
        wait_until(lambda: self.first_rank(1)["step"] > 0, 60, "a step")
        self.assertIn("enable_checkpointing=False", self.muster("checkpoint", 1).stderr)
        # A rank that receives the signal without a request of the coordinator reports it and
        # continues to train.
        pid = next(iter(self.ranks_of_test().values()))
        os.kill(pid, signal.SIGUSR2)
        wait_until(lambda: "no checkpoint is saved on request" in self.muster("logs", 1).stdout, 30, "its line")


if __name__ == "__main__":
    unittest.main()
