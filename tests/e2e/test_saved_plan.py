"""Saved plans (compiled_trainstep_file): `muster plan` writes one, runs start from it, and jobs
that differ are refused.
"""
import json
import os
import unittest

from harness import MusterTest, TINY, wait_until
from lab import base_yml_of_lab

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
        self.assertEqual((plan["format"], plan["version"]), ("muster-plan", 2))
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
        cases = {good[: len(good) // 2]: "only a part of one", good.replace('"version":2', '"version":1'): "has version 1 of the format, and this Muster reads version 2; make it again",
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
        base = base_yml_of_lab(self)
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
        omitted = self.muster("run", *words, "run_name=omitted", "compile_topology=lab-2", "--no-plan", check=0).stdout
        self.assertNotIn("summary: planned step", omitted)

    def test_stalls_for_checkpoints_are_planned(self):
        words = [base_yml_of_lab(self, more="storage_gb_s: 0.001\n"), *self.words, "compile_topology=lab-2", "enable_checkpointing=true",
                 "checkpoint_period=2", "async_checkpointing=false"]
        plan = json.loads(self.muster("plan", *words, "--json", check=0).stdout)
        write = plan["memory"]["checkpoint_bytes"] / 1e6  # seconds
        self.assertAlmostEqual(plan["step"]["checkpoint_seconds"], write / 2, delta=write / 100)
        self.assertRegex(self.muster("plan", *words, check=0).stdout, r"\nbeside it: stalls for checkpoints +[\d.]+ +[\d.]+%\n")
        run = [words[0], *[word for word in words[1:] if word != "compile_topology=lab-2"]]
        self.assertRegex(self.muster("run", *run, check=0).stdout, r"checkpoints stall [\d.e-]+ s per step, planned [\d.e-]+ s\n")

    def test_a_job_slower_than_its_plan_is_an_incident(self):
        """The plan of the lab's machines is faster than this one."""
        base = base_yml_of_lab(self, speed=1000)
        self.words = [word for word in self.words if word != "steps=3"] + ["steps=1000000", "learning_rate_schedule_steps=1000"]
        self.muster("plan", base, *self.words, "compile_topology=lab-2", check=0)
        coordinator = self.start_coordinator(extra=["--slower-than-plan-seconds", "2"])
        self.start_worker(coordinator)
        self.muster("submit", base, *self.words, check=0)

        def incident():
            found = json.loads(self.muster("incident", "list", 1, "--json", check=0).stdout)["incidents"]
            return next((one for one in found if one["kind"] == "slower than plan"), None)
        opened = wait_until(incident, 60, "an incident")
        self.assertTrue(opened["open"])
        self.assertRegex(opened["sentence"], r"a step takes [\d.e-]+ s, and its plan [\d.e-]+ s \(\+\d+%\); most of the difference is \w+ \(\+[\d.e-]+ s\)")
        self.assertEqual((opened["attempt"], opened["action"]), (1, "none: training continues"))
        self.assertIn(opened["sentence"].split(";")[0], self.muster("incident", "show", opened["id"], check=0).stdout)
        self.assertIn("newest incident: ", self.muster("status", 1, check=0).stdout)
        self.assertIn(f"incident {opened['id']}: ", self.output(coordinator))
        self.assertEqual(self.samples(coordinator)['muster_job_incidents_total{job_id="1",kind="slower_than_plan",name="planned"}'], 1)
        self.assertEqual(self.job(1)["state"], "RUNNING")
        self.muster("cancel", 1, check=0)
        wait_until(lambda: not incident()["open"], 30, "the end of the incident")

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
