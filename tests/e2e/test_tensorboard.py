"""Event files, read with TensorBoard's own reader."""
import json
import subprocess
import unittest

from harness import MusterTest, metrics
from python_tools import python_or_skip

READ = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
print(json.dumps({tag: [[one.step, one.value] for one in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
"""


class TensorBoard(MusterTest):
    def run_until(self, steps):
        self.muster(*self.run_args("board", f"steps={steps}", "checkpoint_period=3", "enable_tensorboard=True",
                                   f"metrics_file={self.dir}/metrics.jsonl", ranks=2), check=0)

    def test_files_are_written_only_on_request(self):
        self.muster(*self.run_args("plain", "steps=1", "enable_checkpointing=False", ranks=1), check=0)
        self.assertFalse((self.dir / "out/plain/tensorboard").exists())

    def test_tensorboard_reads_a_resumed_run(self):
        python = python_or_skip("tensorboard")
        self.run_until(6)
        self.run_until(11)
        folder = self.dir / "out/board/tensorboard"
        self.assertEqual(len(list(folder.glob("events.out.tfevents.*"))), 2, "one of each attempt")
        read = subprocess.run([python, "-c", READ, str(folder)], capture_output=True, text=True, timeout=120)
        self.assertEqual(read.returncode, 0, read.stderr)
        scalars = json.loads(read.stdout)
        rows = metrics(self.dir / "metrics.jsonl")
        self.assertEqual([step for step, _ in scalars["learning/loss"]], list(range(11)))
        for step, loss in scalars["learning/loss"]:
            self.assertAlmostEqual(loss, rows[step]["learning/loss"], places=5)
        for tag in ("learning/param_norm", "perf/step_time_seconds", "perf/per_device_tokens_per_sec"):
            self.assertEqual(len(scalars[tag]), 11, tag)


if __name__ == "__main__":
    unittest.main()
