"""Jobs that are submitted and followed, jobs from a file, and the working directory of jobs on
other machines.
"""
import ctypes
import json
import os
import signal
import socket
import time
import unittest

from harness import wait_until
from programs import ProgramTest

CLONE_NEWUTS = 0x04000000


def on_another_machine():
    """Completes the name as far as it is unique."""
    if ctypes.CDLL(None).unshare(CLONE_NEWUTS) == 0:
        socket.sethostname("another-machine")


class Follow(ProgramTest):
    def start_fleet(self, **kwargs):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, **kwargs)
        return coordinator

    def wait_for_workers(self, count):
        """A worker writes its ports before the coordinator has registered it."""
        def workers():
            return json.loads(self.muster("list", "--workers", "--json", check=0).stdout).get("workers", [])
        wait_until(lambda: len(workers()) == count, 20, f"{count} workers")

    def follow(self, *words):
        return self.start(self.bin("muster"), "submit", "--follow", "--", *words)

    def test_follow_shows_output_and_returns_the_jobs_exit_code(self):
        self.start_fleet()
        for code, words in ((0, "echo done"), (7, "echo broken; exit 7")):
            result = self.muster("submit", "--follow", "--restarts", "0", "--", "sh", "-c", words)
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertEqual(result.stdout, words.split(";")[0].removeprefix("echo ") + "\n")
        self.assertIn("SUCCEEDED", self.muster("submit", "-f", "--", "true", check=0).stderr)
        self.assertEqual(self.muster("submit", "--follow", "--json", "--", "true").returncode, 2)

    def test_interrupted_follow_leaves_the_job_running(self):
        self.start_fleet()
        go = self.dir / "go"
        process = self.follow("sh", "-c", f"echo here; while [ ! -e {go} ]; do sleep 0.1; done")
        wait_until(lambda: "here" in self.output(process), 30, "its output")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=20), 130)
        self.assertIn("job 1 continues; follow it with: muster logs -f 1", self.output(process))
        self.assertEqual(self.job(1)["state"], "RUNNING")
        go.touch()
        wait_until(lambda: self.job(1)["state"] == "SUCCEEDED", 30, "its end")

    def test_unwritable_output_is_reported_and_the_job_continues(self):
        self.start_fleet()
        go = self.dir / "go"
        with open("/dev/full", "w") as full:
            process = self.start(self.bin("muster"), "submit", "--follow", "--", "sh", "-c", f"while [ ! -e {go} ]; do echo here; sleep 0.1; done",
                                 stdout=full)
        self.assertEqual(process.wait(timeout=30), 2, self.output(process))
        self.assertIn("job 1 continues; follow it with: muster logs -f 1", self.output(process))
        self.assertIn("cannot write to standard output: No space left on device", self.output(process))
        go.touch()
        wait_until(lambda: self.job(1)["state"] == "SUCCEEDED", 30, "its end")

    def test_two_followers_submit_two_jobs(self):
        self.start_fleet()
        for number in (1, 2):
            self.assertIn(f"job {number} ", self.muster("submit", "--follow", "--", "true", check=0).stderr)

    def test_waiting_for_workers_is_reported(self):
        coordinator = self.start_coordinator()
        process = self.follow("true")
        wait_until(lambda: "QUEUED" in self.output(process), 30, "the news")
        self.start_worker(coordinator)
        self.assertEqual(process.wait(timeout=30), 0)

    def test_job_file_is_submitted_unchanged(self):
        self.start_fleet()
        rendered = self.muster("k8s", "render", "--image", "r", "--insecure", "--json", "--working-directory", self.dir, "--name", "there", "--",
                               "sh", "-c", "pwd", check=0)
        self.assertIn("is in no --mount", rendered.stderr)
        (self.dir / "job.json").write_text(json.loads(rendered.stdout)["items"][0]["data"]["job.json"])
        result = self.muster("submit", "--follow", "--job-file", self.dir / "job.json", check=0, cwd="/")
        self.assertEqual(result.stdout, f"{self.dir}\n")
        self.assertEqual(self.job(1)["spec"]["name"], "there")
        both = self.muster("submit", "--job-file", self.dir / "job.json", "--", "true")
        self.assertIn("omit the config and the program", both.stderr)

    def test_local_folder_causes_a_warning_without_a_local_worker(self):
        if os.geteuid() != 0:
            self.skipTest("another host name is root's to have")
        self.start_fleet(preexec_fn=on_another_machine)
        self.wait_for_workers(1)
        printed = self.muster("submit", "--", "true", check=0).stderr
        self.assertIn(f"the job uses this machine's folder {self.dir}, and no worker is on this machine", printed)
        self.assertEqual(self.muster("submit", "--working-directory", self.dir, "--", "true", check=0).stderr, "")
        self.start_worker(self.processes[0], "node1")
        self.wait_for_workers(2)
        self.assertEqual(self.muster("submit", "--", "true", check=0).stderr, "")

    def test_leaving_worker_ends_with_its_leave_exit_code(self):
        coordinator = self.start_coordinator()
        worker = self.start_worker(coordinator, extra=("--leave-exit-code", "75"))
        worker.send_signal(signal.SIGTERM)
        self.assertEqual(worker.wait(timeout=20), 75)

    def test_ranks_get_the_configured_grace_to_save(self):
        script = self.script("saves.sh", "trap 'sleep 6; echo saved; exit 0' TERM\necho here\nwhile :; do sleep 0.1; done\n")
        process = self.start_program("sh", script, options=("--leave-seconds", "30"))
        wait_until(lambda: "here" in self.output(process), 30, "its output")
        requested = time.monotonic()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=40), 130)
        self.assertIn("saved", self.output(process))
        self.assertLess(time.monotonic() - requested, 20, "no longer than it takes")


if __name__ == "__main__":
    unittest.main()
