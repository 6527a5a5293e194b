"""Faults of a node's own folders, and storage that is away for a while."""
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

from harness import SOURCE, MusterTest, wait_until


class NodeFaults(MusterTest):
    def make_read_only(self, folder):
        """Makes a folder read-only, also for root. Others get a file in its place."""
        folder.mkdir(parents=True, exist_ok=True)
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)  # after it is unmounted
        for command in (["mount", "--bind", folder, folder], ["mount", "-o", "remount,bind,ro", folder]):
            if subprocess.run(command, capture_output=True).returncode != 0:
                folder.rename(folder.with_suffix(".away"))
                folder.write_text("a file in the folder's place")
                return
            self.addCleanup(subprocess.run, ["umount", "-l", folder], capture_output=True)

    def test_worker_with_a_read_only_folder_is_no_black_hole(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, "broken", 1)
        self.make_read_only(self.dir / "work" / "broken")
        first = self.submit("true")
        # There is no other node: the job waits, and its reason names the node.
        wait_until(lambda: "broken" in self.job(first)["reason"], 30, "the reason")
        self.assertEqual(self.job(first)["faults"][0]["kind"], "not started")
        self.start_worker(coordinator, "good", 1)
        jobs = [first] + [self.submit("true") for _ in range(5)]
        for job in jobs:
            self.ended(job, "SUCCEEDED")
            self.assertEqual([rank["worker"] for rank in self.job(job)["placement"]], ["good"])
        self.assertEqual(sum(len(self.job(job)["faults"]) for job in jobs[1:]), 0)

    def submit(self, *command):
        return json.loads(self.muster("submit", "--json", "--", *command, check=0).stdout)["id"]

    def ended(self, job, state):
        wait_until(lambda: self.job(job)["state"] in ("SUCCEEDED", "FAILED"), 60, f"the end of job {job}")
        self.assertEqual(self.job(job)["state"], state, self.job(job))

    def test_checkpoint_folder_that_is_away_is_waited_for(self):
        run = self.start_run("away", "steps=1000000", "checkpoint_period=20", "log_period=20", "max_num_checkpoints_to_keep=2",
                             "restarts_max=1", ranks=1)
        self.wait_for_step(run, 100)
        checkpoints = self.dir / "out" / "away" / "checkpoints"
        checkpoints.rename(self.dir / "hidden")
        checkpoints.write_text("a file where the folder was mounted")
        wait_until(lambda: "storage away" in self.output(run) or run.poll() is not None, 60, "the fault")
        # The pauses of other faults would use up one restart at once.
        self.assertIsNone(run.poll(), self.output(run))
        self.assertIn("restart 1 of 10 in 10 s", self.output(run))
        os.unlink(checkpoints)
        (self.dir / "hidden").rename(checkpoints)
        before = len(run.out_path.read_text())
        wait_until(lambda: "completed step" in run.out_path.read_text()[before:] or run.poll() is not None, 60, "further steps")
        self.assertIsNone(run.poll(), self.output(run))


class HungFileSystem(MusterTest):
    def setUp(self):
        super().setUp()
        self.hung = self.dir / "hung"
        self.hung.mkdir()
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)  # after it is unmounted
        server = self.start(sys.executable, SOURCE / "tests" / "e2e" / "hung_file_system.py", self.hung)
        self.addCleanup(subprocess.run, ["umount", "-l", self.hung], capture_output=True)
        wait_until(lambda: server.poll() is not None or "mounted" in server.out_path.read_text(), 20, "the file system")
        if server.poll() is not None:
            self.skipTest(f"FUSE cannot be mounted here: {self.output(server).strip()}")

    def submit(self, *arguments):
        return json.loads(self.muster("submit", "--json", *arguments, check=0).stdout)["id"]

    def test_hung_working_directory_costs_its_job_alone(self):
        coordinator = self.start_coordinator(extra=["--worker-lease-ms", "3000"])
        worker = self.start_worker(coordinator, "node0", 2)
        innocent = self.submit("--name", "innocent", "--", "sleep", "1000")
        wait_until(lambda: self.job(innocent)["state"] == "RUNNING", 30, "the innocent job")
        job = self.submit("--name", "hung", "--restarts", 0, "--working-directory", self.hung, "--", "sleep", "1000")
        begin = time.monotonic()
        while time.monotonic() < begin + 8:  # longer than the lease
            self.assertEqual(self.page(worker, "/healthz")[0], 200)
            self.assertEqual(self.job(innocent)["state"], "RUNNING")
            time.sleep(0.2)
        wait_until(lambda: self.job(job)["state"] == "FAILED", 30, "the end of the job whose folder hangs")
        self.assertIn("a file system has not responded for 10 s", self.job(job)["reason"])
        self.assertEqual(self.job(innocent)["faults"], [])
        self.assertEqual(self.job(innocent)["state"], "RUNNING")
        # Neither the slot nor the node is lost.
        after = self.submit("--name", "after", "--", "true")
        wait_until(lambda: self.job(after)["state"] == "SUCCEEDED", 30, "a job in the same slot")


@unittest.skipUnless(os.geteuid() == 0, "only root may mount a small file system")
class LostOutput(MusterTest):
    def test_output_that_did_not_fit_is_named(self):
        coordinator = self.start_coordinator()
        small = self.dir / "work"
        small.mkdir()
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)  # after it is unmounted
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", small], capture_output=True).returncode != 0:
            self.skipTest("a file system cannot be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", small], capture_output=True)
        self.start_worker(coordinator, "node0", 1)
        job = json.loads(self.muster("submit", "--json", "--", "sh", "-c", "head -c 8000000 /dev/zero | tr '\\0' x; true", check=0).stdout)["id"]
        wait_until(lambda: self.job(job)["state"] == "SUCCEEDED", 30, "the end of the job")
        self.assertIn("output of 1 rank may be missing", self.job(job)["reason"])


class Fencing(MusterTest):
    def test_rank_whose_attempt_is_replaced_ends_before_its_next_save(self):
        run = self.start_run("replaced", "steps=1000000", "checkpoint_period=1000000", "log_period=50", ranks=1)
        self.wait_for_step(run, 50)
        owner = self.dir / "out" / "replaced" / "checkpoints" / "OWNER"
        new = owner.with_name("new")
        new.write_text(json.dumps({**json.loads(owner.read_text()), "attempt": 7}))
        new.rename(owner)
        wait_until(lambda: "belongs to attempt 7 of job 1 now; attempt 1 of job 1" in self.output(run), 20, "the end of the rank")

    def test_stopped_worker_ends_its_ranks_before_the_next_attempt(self):
        """Attempt 1 ran beside attempt 2 for as long as its worker was stopped."""
        coordinator = self.start_coordinator(extra=["--worker-lease-ms", "3000"])
        first = self.start_worker(coordinator, "node1", 1)
        log = self.dir / "alive"
        script = f"while true; do echo $MUSTER_ATTEMPT $(date +%s%N) >> {log}; sleep 0.05; done"
        job = json.loads(self.muster("submit", "--json", "--", "sh", "-c", script, check=0).stdout)["id"]
        wait_until(log.exists, 30, "the first attempt")
        self.start_worker(coordinator, "node2", 1)
        first.send_signal(signal.SIGSTOP)
        self.addCleanup(first.send_signal, signal.SIGCONT)
        written = lambda: [tuple(map(int, line.split())) for line in log.read_text().splitlines() if len(line.split()) == 2]
        wait_until(lambda: any(attempt == 2 for attempt, _ in written()), 60, "the second attempt")
        time.sleep(1)
        last = max(at for attempt, at in written() if attempt == 1)
        begin = min(at for attempt, at in written() if attempt == 2)
        self.assertLess(last, begin, "the first attempt still ran")
        first.send_signal(signal.SIGCONT)
        wait_until(lambda: "its guard ended the rank" in self.output(first), 30, "the worker's report")
        wait_until(lambda: self.job(job)["state"] == "RUNNING", 30, "the job")


if __name__ == "__main__":
    unittest.main()
