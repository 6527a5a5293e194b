"""Saved plans (compiled_trainstep_file): `muster plan` writes one, runs start from it, and jobs
that differ are refused.
"""
import json
import os
import unittest

from harness import MusterTest, TINY

CALIBRATION = "device: lab\nsteps: 1\nfitted: 1\ndevices: 1\nerror_percent: 1\ngemm_fraction: 0.5\nstep_ms: 1\n"
SEED = ["model_name=default", "per_device_batch_size=4", "steps=10000", "learning_rate=1e-3", "base_emb_dim=512", "base_num_decoder_layers=2"]


class SavedPlan(MusterTest):
    def setUp(self):
        super().setUp()
        self.file = self.dir / "step.plan"
        self.words = [f"compiled_trainstep_file={self.file}", "run_name=planned", f"base_output_directory={self.dir / 'out'}",
                      "dataset_type=synthetic", "steps=3", "enable_checkpointing=false", "threads_per_rank=1", *TINY]

    def plan(self, *words, topology="cpu-2", check=0):
        return self.muster("plan", self.base_yml(), *self.words, f"compile_topology={topology}", *words, check=check)

    def train(self, *words, check=0, verb="run"):
        return self.muster(verb, self.base_yml(), *self.words, *words, check=check)

    def test_a_run_starts_from_its_plan_and_prints_both_figures(self):
        saved = self.plan()
        self.assertIn("machines: 1 node of 2 × CPU core (cpu)", saved.stdout)
        self.assertIn(f"saved the plan in {self.file}", saved.stderr)
        plan = json.loads(self.file.read_text())
        self.assertEqual((plan["format"], plan["version"]), ("muster-plan", 1))
        self.assertEqual(plan["plan"]["machines"]["nodes"], 1)
        # The plan has the number of ranks and the precision: neither is given.
        planned = self.train()
        self.assertIn("completed step: 2,", planned.stdout)
        plain = self.muster("run", self.base_yml(), *self.words[1:], "run_name=plain", "dtype=float32", "--ranks", 2, check=0)
        losses = [[line.rsplit(" ", 1)[1] for line in run.stdout.splitlines() if line.startswith("completed step")] for run in (planned, plain)]
        self.assertEqual(losses[0], losses[1])
        # The file may be replaced by another plan, and by nothing else.
        self.plan("steps=4")
        self.assertEqual(self.plan("steps=4").returncode, 0)
        self.file.write_text("not a plan\n")
        self.assertIn("the file exists and is not a saved plan", self.plan(check=2).stderr)
        self.assertEqual(self.file.read_text(), "not a plan\n")

    def test_differences_are_refused(self):
        self.plan()
        for words, sentence in ((["per_device_batch_size=4"], "has per_device_batch_size=2, and the job has 4"),
                                (["steps=4"], "has steps=3, and the job has 4"),
                                (["learning_rate=1e-4"], "has learning_rate=0.001, and the job has 0.0001"),
                                (["dtype=bfloat16"], "has dtype=float32, and the job has bfloat16"),
                                (["max_target_length=64"], "has max_target_length=32, and the job has 64"),
                                (["ici_tensor_parallelism=2", "ici_fsdp_parallelism=1"], "has ici_fsdp_parallelism=2, and the job has 1"),
                                (["--ranks", "4"], "is for 1 node of 2 ranks, and the job has 1 node of 4 ranks")):
            with self.subTest(words=words):
                self.assertIn(f"compiled_trainstep_file={self.file}: the plan {sentence}", self.train(*words, check=2).stderr)
        self.assertFalse((self.dir / "out").exists())

    def test_files_that_are_no_plans_are_a_sentence_each(self):
        self.plan()
        good = self.file.read_text()
        fifo = self.dir / "fifo"
        os.mkfifo(fifo)
        cases = {good[: len(good) // 2]: "only a part of one", good.replace('"version":1', '"version":2'): "has version 2 of the format",
                 good.replace('"steps":3', '"steps":5'): "its checksum differs", "": "is not a saved plan of Muster"}
        for text, sentence in cases.items():
            self.file.write_text(text)
            error = self.train(check=2).stderr
            self.assertIn(sentence, error)
            self.assertEqual(len(error.splitlines()), 1, error)
        self.file.unlink()
        for path, sentence in ((self.file, "No such file"), (self.dir, "not a regular file"), (fifo, "not a regular file"), ("gs://b/plan", "a path of the file system")):
            self.assertIn(sentence, self.train(f"compiled_trainstep_file={path}", check=2).stderr)
        self.assertFalse((self.dir / "out").exists())

    def test_a_run_is_compared_with_its_plan(self):
        """A topology and a calibration of one's own give the time of a step on CPUs."""
        base = self.dir / "configs" / "base.yml"
        base.parent.mkdir()
        base.write_text(self.base_yml().read_text(encoding="utf-8"), encoding="utf-8")
        for folder, name, text in (("topologies", "lab", "device: lab\nhardware: cpu\nmemory_mib: 4096\ndevices_per_node: 2\nbf16_tflops: 1\nfp32_tflops: 1\n"
                                    "memory_gb_s: 10\nnode_gb_s: 1\nnode_latency_us: 10\nnetwork_gb_s: 1\nnetwork_latency_us: 100\nhost_gb_s: 10\n"),
                                   ("calibration", "muster-lab", CALIBRATION)):
            (base.parent / folder).mkdir()
            (base.parent / folder / f"{name}.yml").write_text(text)
        words = [base, *self.words[1:], "--ranks", 2]
        run = self.muster("run", *words, "compile_topology=lab-2", check=0)
        self.assertNotIn("compile_topology", run.stderr)
        self.assertRegex(run.stdout, r"summary: planned step [\d.e-]+ s, measured [\d.]+ s \([+-][\d.]+%\): computation [+-][\d.e-]+ s, communication [+-]")
        self.assertRegex(run.stdout, r"summary: planned memory [\d.]+ MiB, measured [\d.]+ MiB \([+-][\d.]+%\)")
        job = json.loads(self.muster("run", *words, "run_name=json", "compile_topology=lab-2", "--json", check=0).stdout)
        self.assertGreater(job["spec"]["planned_step_us"], 0)
        self.assertGreater(job["spec"]["planned_memory_bytes"], 1 << 20)
        # Without a known machine: only memory.
        plain = self.muster("run", *words, "run_name=plain", check=0).stdout
        self.assertIn("summary: planned memory", plain)
        self.assertNotIn("summary: planned step", plain)

    def test_the_seeds_two_lines(self):
        """The plan of TPUs is saved. A run from it is refused: the trainer has no TPUs."""
        line = ["MaxText/configs/base.yml", "compiled_trainstep_file=my_compiled_train.pickle", *SEED]
        saved = self.muster("run", "python3", "MaxText/train_compile.py", *line, "compile_topology=v5e-256", check=0, cwd=self.dir)
        self.assertIn("no run can start from", saved.stderr)
        error = self.muster("run", "python3", "MaxText/train.py", *line, "run_name=example_load_compile", check=2, cwd=self.dir).stderr
        self.assertIn("the plan is for TPU v5e (v5e), for which the trainer has no backend", error)
        # A job that does not fit is not saved.
        before = (self.dir / "my_compiled_train.pickle").read_bytes()
        refused = self.muster("run", "python3", "MaxText/train_compile.py", *line, "compile_topology=v5e-256", "per_device_batch_size=4096", check=2, cwd=self.dir)
        self.assertIn("out of memory", refused.stderr)
        self.assertEqual((self.dir / "my_compiled_train.pickle").read_bytes(), before)
        self.assertIn("exclude each other", self.muster("plan", self.base_yml(), *line[1:], "compile_topology=h100-8", "--vary", "steps=1,2", check=2, cwd=self.dir).stderr)


if __name__ == "__main__":
    unittest.main()
