"""Ctrl-C in the middle of a step that never ends: the result of the completed steps is still saved.
"""
import hashlib
import os
import signal
import unittest

from harness import MusterTest, step_lines, wait_gone, wait_until


class LateStop(MusterTest):
    def checkpoint(self, name, step):
        """{file name: SHA-256} of the tensors of one checkpoint."""
        folder = self.dir / "out" / name / "checkpoints" / str(step)
        return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(folder.glob("*.safetensors"))}

    def test_ctrl_c_during_a_hanging_step_saves_the_completed_steps(self):
        # Each rank has all saved tensors: ranks with sharded parameters would need each other.
        settings = ["learning_rate_schedule_steps=1000000", "log_period=10", "ici_data_parallelism=-1"]
        run = self.start_run("parts", "steps=1000000", *settings, ranks=2)
        wait_until(lambda: len(step_lines(run.out_path.read_text())) > 3, 60, "some steps")
        os.kill(self.ranks_of_test()[1], signal.SIGSTOP)  # no step ends without its gradients
        os.kill(run.pid, signal.SIGINT)
        self.assertEqual(run.wait(timeout=60), 130, self.output(run))
        self.assertEqual(wait_gone(self.mark, 30), [])
        output = self.output(run)
        folder = self.dir / "out" / "parts" / "checkpoints"
        saved = [int(p.name) for p in folder.iterdir() if p.name.isdigit()]
        self.assertEqual(len(saved), 1, output)
        self.assertGreater(saved[0], step_lines(output)[-1][0], output)
        self.assertIn(f"saved checkpoint {folder}/{saved[0]}", output)

        last = saved[0] + 50
        again = self.muster(*self.run_args("parts", f"steps={last}", *settings, ranks=2), check=0)
        self.assertIn(f"restored checkpoint {folder}/{saved[0]}: {saved[0]} steps completed", again.stdout)
        self.muster(*self.run_args("whole", f"steps={last}", *settings, ranks=2), check=0)
        self.assertEqual(self.checkpoint("parts", last), self.checkpoint("whole", last))
        self.assertEqual(len(self.checkpoint("whole", last)), 2)


if __name__ == "__main__":
    unittest.main()
