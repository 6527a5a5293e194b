"""Ctrl-C while the checkpoint takes longer than the ranks' grace: a save that makes progress is
awaited, and its end is reported.
"""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from harness import SOURCE, MusterTest, wait_gone, wait_until

# A checkpoint of some 47 MiB, in 12 writes of at most 4 MiB.
MODEL = ["base_emb_dim=256", "base_num_decoder_layers=4", "head_dim=64", "base_mlp_dim=1024", "steps=1000000", "async_checkpointing=true"]
GRACE_SECONDS = 4  # CoreOptions::cancel_grace of the coordinator


class SlowSave(MusterTest):
    def setUp(self):
        super().setUp()
        folder = tempfile.mkdtemp(prefix="muster-slow-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.library = f"{folder}/slow_write.so"
        built = subprocess.run(["cc", "-shared", "-fPIC", "-o", self.library, SOURCE / "tests/e2e/slow_write.c", "-ldl"], capture_output=True, text=True)
        if built.returncode != 0:
            self.skipTest(f"no library can be built: {built.stderr[-200:]}")

    def start_slow(self, name, ms, *options, ranks=1):
        self.env.update(LD_PRELOAD=self.library, SLOW_WRITE_MS=str(ms))  # the ranks inherit them
        run = self.start_run(name, *MODEL, *options, ranks=ranks)
        self.wait_for_step(run, 3)
        return run

    def interrupt(self, run):
        os.kill(run.pid, signal.SIGINT)
        wait_until(lambda: "saving a checkpoint, " in self.output(run), 30, "the save's progress")

    def wait_for_end(self, run):
        """Returns what the run printed."""
        self.assertEqual(run.wait(timeout=60), 130, self.output(run))
        self.assertEqual(wait_gone(self.mark, 30), [])
        return self.output(run)

    def saved(self, name):
        return sorted(int(p.name) for p in (self.dir / "out" / name / "checkpoints").iterdir() if p.name.isdigit())

    def test_save_that_makes_progress_is_awaited(self):
        for ranks in (1, 2):
            name = f"slow{ranks}"
            run = self.start_slow(name, 1000 * ranks, ranks=ranks)
            self.interrupt(run)
            started = time.monotonic()
            output = self.wait_for_end(run)
            self.assertGreater(time.monotonic() - started, GRACE_SECONDS + 2, output)
            saved = self.saved(name)
            self.assertEqual(len(saved), 1, output)
            self.assertIn(f"muster: checkpoint of step {saved[0]} saved\n", output)
            self.assertRegex(output, r"muster: saving a checkpoint, \d+ steps are completed: \d+ of \d+ MiB written, about \d+s left\n")

    def test_second_ctrl_c_kills_a_save(self):
        run = self.start_slow("killed", 1000)
        self.interrupt(run)
        time.sleep(0.6)
        os.kill(run.pid, signal.SIGINT)
        output = self.wait_for_end(run)
        self.assertRegex(output, r"no checkpoint of step \d+ saved, because a second request killed the ranks with \d+ of \d+ MiB")
        self.assertEqual(self.saved("killed"), [])

    def test_leave_seconds_bounds_a_save(self):
        run = self.start_slow("bounded", 1000, "--leave-seconds", "5")
        started = time.monotonic()
        self.interrupt(run)
        output = self.wait_for_end(run)
        self.assertLess(time.monotonic() - started, 11, output)
        self.assertRegex(output, r"no checkpoint of step \d+ saved, because it was not complete within --leave-seconds 5 with \d+ of \d+ MiB")

    def test_save_that_pauses_is_awaited(self):
        self.env["PAUSED_WRITE_MS"] = "18000"
        run = self.start_slow("paused", 0)
        self.interrupt(run)
        output = self.wait_for_end(run)
        self.assertRegex(output, r"muster: saving a checkpoint, .* MiB written, nothing for 1\ds; the save is given up after 2m 00s without progress\n")
        saved = self.saved("paused")
        self.assertEqual(len(saved), 1, output)
        self.assertIn(f"muster: checkpoint of step {saved[0]} saved\n", output)

    def test_save_without_progress_is_bounded(self):
        """The full wait takes 2 min, and tests/unit/worker/core/core_saves_test.cc has it."""
        run = self.start_slow("stalled", 1000, "--leave-seconds", "8")
        self.interrupt(run)
        os.kill(self.ranks_of_test()[0], signal.SIGSTOP)
        output = self.wait_for_end(run)
        self.assertRegex(output, r"no checkpoint of step \d+ saved, because it was not complete within --leave-seconds 8 with \d+ of \d+ MiB")

    def test_failed_save_is_explained(self):
        run = self.start_slow("failed", 0)
        shutil.rmtree(self.dir / "out/failed/checkpoints")
        (self.dir / "out/failed/checkpoints").write_text("in the way")
        os.kill(run.pid, signal.SIGINT)
        run.wait(timeout=60)
        output = self.output(run)
        why = re.search(r"no checkpoint of step \d+ saved, because (.+)\n", output)
        self.assertTrue(why, output)
        self.assertIn("checkpoints", why[1])

    def test_run_without_checkpoints_prints_a_note(self):
        run = self.start_run("without", "steps=1000000", "enable_checkpointing=false", ranks=1)
        self.wait_for_step(run, 3)
        os.kill(run.pid, signal.SIGINT)
        self.assertRegex(self.wait_for_end(run), r"no checkpoint of step \d+ saved, because enable_checkpointing is false\n")


if __name__ == "__main__":
    unittest.main()
