"""How `muster run` ends: by Ctrl-C, a second Ctrl-C, the end of its job, and with a reader that
does not read its output.
"""
import contextlib
import fcntl
import os
import select
import signal
import subprocess
import time
import unittest

from harness import BIN, MusterTest, command_line, processes_with_mark, step_lines, wait_gone, wait_until

SAME_REQUEST_SECONDS = 0.5  # kSameStopRequest of common/process/stop_requests.h
# from Ctrl-C to the command's end: the 5 s of ShutdownDeadline, and a reserve for a busy machine
LEAVE_SECONDS_MAX = 15


class Leaving(MusterTest):
    def checkpoints(self, name):
        """Returns the numbers of that run's checkpoints."""
        return [int(p.name) for p in (self.dir / "out" / name / "checkpoints").iterdir() if p.name.isdigit()]

    def pid_of(self, program):
        """Returns the pid of this test's process of that program, or None."""
        return next((pid for pid in processes_with_mark(self.mark) if f"/{program} " in command_line(pid)), None)

    def interrupt(self, run):
        """Sends Ctrl-C. Returns the seconds until the command has ended; expects that no process is
        left.
        """
        started = time.monotonic()
        os.kill(run.pid, signal.SIGINT)
        self.assertEqual(run.wait(timeout=60), 130, self.output(run))
        seconds = time.monotonic() - started
        self.assertEqual(wait_gone(self.mark, 30), [])
        return seconds

    def interrupt_twice(self, run):
        """Sends a first Ctrl-C that is received but cannot be followed, then a second one, which
        kills.
        """
        os.kill(run.pid, signal.SIGINT)
        wait_until(lambda: "stopping: the ranks save a checkpoint" in self.output(run), 30, "the first Ctrl-C")
        self.assertIsNone(run.poll(), "left before its ranks did")
        time.sleep(SAME_REQUEST_SECONDS)
        self.interrupt(run)
        self.assertIn("muster: killing the remaining processes\n", self.output(run), "the second Ctrl-C was not handled in time")

    def test_ctrl_c_checkpoints_and_leaves(self):
        run = self.start_run("interrupted", "steps=1000000", "log_period=10")
        self.wait_for_step(run, 50)
        self.assertLess(self.interrupt(run), LEAVE_SECONDS_MAX)
        steps = self.checkpoints("interrupted")
        self.assertTrue(steps and max(steps) > 50, f"no checkpoint of the last step: {steps}")

    def expect_saved(self, run, name):
        """Waits for the run's end; expects its exit code and one checkpoint, of the last step."""
        self.assertEqual(run.wait(timeout=60), 130, self.output(run))
        self.assertEqual(wait_gone(self.mark, 30), [])
        self.assertNotIn("killing", self.output(run))
        self.assertGreater(max(self.checkpoints(name), default=0), 20, self.output(run))

    def test_signals_that_come_together_are_one_request(self):
        for signo in (signal.SIGTERM, signal.SIGINT):
            name = f"twice-{signo}"
            run = self.start_run(name, "steps=1000000", "log_period=10")
            self.wait_for_step(run, 20)
            os.kill(run.pid, signo)
            time.sleep(0.05)
            os.kill(run.pid, signo)
            self.expect_saved(run, name)

    def test_signals_to_the_command_and_its_ranks_are_one_request(self):
        run = self.start_run("all", "steps=1000000", "log_period=10")
        self.wait_for_step(run, 20)
        ranks = self.ranks_of_test().values()
        for _ in range(2):
            for pid in (run.pid, *ranks):
                with contextlib.suppress(ProcessLookupError):  # it has left already
                    os.kill(pid, signal.SIGTERM)
            time.sleep(0.05)
        self.expect_saved(run, "all")

    def test_timeout_signals_the_command_and_its_group(self):
        run = self.start("timeout", "600", BIN / "muster", *self.run_args("timed", "steps=1000000", "log_period=10"))
        self.wait_for_step(run, 20)
        os.kill(run.pid, signal.SIGTERM)
        self.expect_saved(run, "timed")

    def test_second_ctrl_c_kills(self):
        run = self.start_run("killed", "steps=1000000", "log_period=10")
        self.wait_for_step(run, 20)
        for pid in self.ranks_of_test().values():
            os.kill(pid, signal.SIGSTOP)  # ranks that cannot leave by themselves
        # The coordinator does not answer either. The first Ctrl-C must not delay the second one.
        os.kill(self.pid_of("muster-coordinator"), signal.SIGSTOP)
        self.interrupt_twice(run)

    def test_ctrl_c_leaves_in_time_without_an_answer(self):
        run = self.start_run("deaf", "steps=1000000", "log_period=10")
        self.wait_for_step(run, 20)
        os.kill(self.pid_of("muster-coordinator"), signal.SIGSTOP)
        self.assertLess(self.interrupt(run), LEAVE_SECONDS_MAX)
        self.assertIn("no checkpoint in time", self.output(run))

    def test_ctrl_c_before_the_job_is_accepted_leaves(self):
        # The check opens the metrics file, a pipe, and waits until the test reads.
        gate = self.dir / "gate"
        os.mkfifo(gate)
        run = self.start_run("early", "steps=1000000", f"metrics_file={gate}")
        wait_until(lambda: list(self.dir.glob("out/early/muster/*/coordinator.json")), 20, "the coordinator")
        os.kill(self.pid_of("muster-coordinator"), signal.SIGSTOP)
        self.assertIsNone(self.pid_of("muster-worker"), "started before the config was checked")
        reader = os.open(gate, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        wait_until(lambda: self.pid_of("muster-worker"), 20, "the worker")
        self.interrupt(run)

    def start_unread(self, name):
        """Starts a run whose output fills a pipe without a reader, as with a pager on its first
        page.
        """
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        run = self.start_run(name, "steps=1000000", "log_period=1", "checkpoint_period=10", stdout=writer)
        wait_until(lambda: not select.select([], [writer], [], 0)[1], 60, "a full pipe")
        # The ranks continue, and write more lines than the pipe has room for.
        full_at = max(self.checkpoints(name), default=0)
        wait_until(lambda: max(self.checkpoints(name), default=0) > full_at + 200, 60, "further steps")
        self.assertIsNone(run.poll())
        return run

    def test_ctrl_c_leaves_in_time_without_a_reader(self):
        run = self.start_unread("unread")
        reached = max(self.checkpoints("unread"))
        self.assertLess(self.interrupt(run), LEAVE_SECONDS_MAX)
        self.assertIn("stopping: the ranks save a checkpoint", self.output(run))
        self.assertIn("CANCELLED", self.output(run), "the job was killed")
        self.assertGreater(max(self.checkpoints("unread")), reached)

    def test_second_ctrl_c_kills_without_a_reader(self):
        run = self.start_unread("unread")
        os.kill(self.ranks_of_test()[1], signal.SIGSTOP)  # cannot leave by itself
        os.kill(self.pid_of("muster-coordinator"), signal.SIGSTOP)
        self.interrupt_twice(run)

    def test_a_slow_reader_gets_everything(self):
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        run = self.start_run("slow", "steps=300", "log_period=1", stdout=writer)
        os.close(writer)
        wait_until(lambda: (self.dir / "out/slow/checkpoints/300").exists(), 60, "the last checkpoint")
        wait_until(lambda: not self.ranks_of_test(), 60, "the end of the job")
        with self.assertRaises(subprocess.TimeoutExpired, msg="left with output in its hands"):
            run.wait(timeout=3)
        with open(reader) as file:
            self.assertEqual([step for step, _ in step_lines(file.read())], list(range(300)))
        self.assertEqual(run.wait(timeout=30), 0, self.output(run))

    def redirected(self, name, redirections, *overrides):
        words = ["bash", "-c", f'"$0" "$@" {redirections}', str(BIN / "muster"), *map(str, self.run_args(name, *overrides))]
        result = subprocess.run(words, stderr=subprocess.PIPE, text=True, env=self.env, cwd=self.dir, timeout=60)
        self.assertEqual(wait_gone(self.mark, 30), [])
        return result

    def test_unwritable_output_ends_the_run_with_an_error(self):
        for name, redirection, why in (("full", "> /dev/full", "No space left on device"), ("closed", ">&-", "Bad file descriptor")):
            result = self.redirected(name, redirection, "steps=1000000", "log_period=1")
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("the output was closed: stopping: the ranks save a checkpoint", result.stderr)
            self.assertIn(f"muster: error: cannot write to standard output: {why}\n", result.stderr)

    def test_unwritable_json_object_is_an_error(self):
        result = self.redirected("object", "--json > /dev/full", "steps=2")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("muster: error: cannot write to standard output: No space left on device\n", result.stderr)

    def test_closed_standard_streams_are_not_reused_as_files(self):
        self.assertEqual(self.redirected("blind", "<&- >&- 2>&-", "steps=1000000").returncode, 2)
        self.assertEqual((self.dir / "out/blind/muster/lock").read_text(), "")
        self.assertEqual(self.redirected("mute", "<&- 2>&-", "steps=3").returncode, 0)

    def test_kill_9_of_the_command_leaves_nothing_running(self):
        run = self.start_run("orphan", "steps=1000000", "log_period=10")
        self.wait_for_step(run, 20)
        run.kill()
        self.assertEqual(wait_gone(self.mark, 30), [])


if __name__ == "__main__":
    unittest.main()
