"""Data, checkpoints and results in an object store: a real S3 server on loopback."""
import os
import random
import re
import shutil
import signal
import time
import unittest

import kube_tools
import store_tools
from harness import BIN, TINY, MusterTest, step_lines, wait_gone, wait_until

STEPS = 24


class ObjectStores(MusterTest):
    def setUp(self):
        super().setUp()
        if shutil.which("rclone") is None:
            self.skipTest("rclone is not installed; deploy/install-deps.sh installs it")
        (self.dir / "store/bucket").mkdir(parents=True)
        (self.dir / "home").mkdir()
        self.server = store_tools.Server(self.dir / "store")
        try:
            self.server.start()
        except kube_tools.Missing as missing:
            self.skipTest(str(missing))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.addCleanup(lambda: self.server.kill())
        for name in [name for name in self.env if name.startswith(("AWS_", "RCLONE_"))]:
            del self.env[name]
        self.env |= self.server.environment()
        self.env |= {"HOME": str(self.dir / "home"), "MUSTER_OBJECT_CACHE": str(self.dir / "cache")}
        self.env.pop("XDG_CACHE_HOME", None)

    def words(self, name, *overrides, ranks=2):
        """Arguments of a small run; a later word for a key replaces an earlier one."""
        keys = dict(word.split("=", 1) for word in (
            f"run_name={name}", "base_output_directory=s3://bucket/out", *TINY, f"steps={STEPS}", "hardware=cpu", "log_period=1",
            "enable_tensorboard=false", *overrides))
        return ["run", self.base_yml(), *(f"{key}={value}" for key, value in keys.items()), "--ranks", str(ranks)]

    def train(self, name, *overrides, check=0, **kwargs):
        return self.muster(*self.words(name, "dataset_type=synthetic", *overrides, **kwargs), check=check)

    def stored(self, name):
        """Returns {step: names} of the checkpoints in the store."""
        folder = self.dir / f"store/bucket/out/{name}/checkpoints"
        return {int(path.name): sorted(file.name for file in path.iterdir()) for path in folder.glob("[0-9]*")}

    def complete(self, name):
        return sorted(step for step, names in self.stored(name).items() if "manifest.json" in names)

    def new_machine(self):
        """Nothing of earlier runs is on the disk."""
        shutil.rmtree(self.dir / "cache", ignore_errors=True)

    # ------------------------------------------------------------------ checkpoints

    def test_a_killed_run_resumes_on_another_machine_with_equal_losses(self):
        # Steps that take a while, so that a kill finds the run in the middle.
        slow = ["checkpoint_period=5", "max_num_checkpoints_to_keep=2", "ici_fsdp_parallelism=2", "max_target_length=512", "steps=60"]
        whole = step_lines(self.train("whole", *slow).stdout)
        self.assertEqual(len(self.complete("whole")), 2, "older checkpoints are removed")
        self.assertEqual(self.complete("whole")[-1], 60)
        run = self.start(BIN / "muster", *self.words("killed", "dataset_type=synthetic", *slow))
        wait_until(lambda: len(self.complete("killed")) > 0 or run.poll() is not None, 60, "a checkpoint")
        self.assertIsNone(run.poll(), self.output(run))
        run.send_signal(signal.SIGKILL)
        for pid in self.ranks_of_test().values():
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(wait_gone(self.mark, 30), [])
        newest = self.complete("killed")[-1]
        # A killed save leaves files without a manifest: no checkpoint.
        torn = self.dir / "store/bucket/out/killed/checkpoints/999"
        torn.mkdir()
        (torn / "model-00000-00000-0123.safetensors").write_bytes(b"torn")
        self.new_machine()
        again = self.train("killed", *slow)
        self.assertIn(f"restored checkpoint s3://bucket/out/killed/checkpoints/{newest}: {newest} steps completed", again.stdout)
        self.assertEqual(step_lines(again.stdout), whole[newest:])
        self.assertEqual(self.complete("killed")[-1], 60)
        self.assertNotIn(999, self.stored("killed"), "the rest of the torn save is removed")
        left = [path for path in (self.dir / "cache").rglob("*") if path.suffix == ".safetensors"]
        self.assertEqual(left, [], "no staged or fetched file remains")

    def test_nodes_that_share_no_folder_save_and_restore_together(self):
        coordinator = self.start_coordinator()

        def start_workers(generation):
            for node in range(2):
                self.env["MUSTER_OBJECT_CACHE"] = str(self.dir / f"cache-{generation}-{node}")
                self.start_worker(coordinator, f"node-{generation}-{node}", slots=1)

        start_workers(0)
        words = [self.base_yml(), "run_name=nodes", "base_output_directory=s3://bucket/out", *TINY, "hardware=cpu",
                 "dataset_type=synthetic", "dcn_fsdp_parallelism=2", "checkpoint_period=4", "learning_rate_schedule_steps=12",
                 "enable_tensorboard=false", "--nodes", "2", "--ranks-per-node", "1", "--follow"]
        self.muster("submit", *words, "steps=8", check=0)
        names = self.stored("nodes")[8]
        for writer in range(2):
            self.assertEqual(len([name for name in names if name.startswith(f"model-{writer:05d}-")]), 1, names)
        others = ["run_name=loaded" if word == "run_name=nodes" else word for word in words]
        loaded = self.muster("submit", *others, "load_parameters_path=s3://bucket/out/nodes/checkpoints/8", "steps=1", check=0).stdout
        self.assertIn("parameters are from", loaded)
        for node in range(2):
            self.assertTrue(list((self.dir / f"cache-0-{node}").rglob("model-*.safetensors")), f"node {node} has a copy")
        for process in self.processes[1:]:
            process.send_signal(signal.SIGKILL)
        wait_until(lambda: all(process.poll() is not None for process in self.processes[1:]), 30, "the workers' end")
        start_workers(1)
        resumed = self.muster("submit", *words, "steps=12", check=0).stdout
        self.assertIn("restored checkpoint s3://bucket/out/nodes/checkpoints/8", resumed)
        self.new_machine()
        whole = self.train("one", "steps=12", "ici_fsdp_parallelism=2", "checkpoint_period=100", "learning_rate_schedule_steps=12").stdout
        self.assertEqual([step for step, _ in step_lines(resumed)], [8, 9, 10, 11])
        for (_, loss), (_, expected) in zip(step_lines(resumed), step_lines(whole)[8:]):
            self.assertAlmostEqual(float(loss), float(expected), places=3)

    def test_a_store_that_is_away_costs_no_step(self):
        run = self.start(BIN / "muster", *self.words("away", "dataset_type=synthetic", "steps=100000", "checkpoint_period=50",
                                                      "learning_rate_schedule_steps=1000", "log_period=50"))
        wait_until(lambda: self.complete("away") or run.poll() is not None, 60, "a checkpoint")
        self.server.kill()
        wait_until(lambda: "it is tried again" in self.output(run) or run.poll() is not None, 60, "a warning")
        before = step_lines(run.out_path.read_text())[-1][0]
        wait_until(lambda: step_lines(run.out_path.read_text())[-1][0] >= before + 200 or run.poll() is not None, 60, "steps")
        self.assertIsNone(run.poll(), self.output(run))
        saved = self.complete("away")[-1]
        self.server.start()
        wait_until(lambda: self.complete("away")[-1] >= before or run.poll() is not None, 90, "a later checkpoint")
        self.assertGreater(self.complete("away")[-1], saved)
        run.send_signal(signal.SIGINT)
        run.wait(timeout=60)
        text = self.output(run)
        self.assertNotIn("restored checkpoint", text, "no attempt ended")
        last = re.search(r"checkpoint of step (\d+) saved", text)
        self.assertTrue(last, text)
        steps = [step for step, _ in step_lines(text)]
        self.assertEqual(steps, sorted(set(steps)), "no step is repeated")
        self.assertEqual(self.complete("away")[-1], int(last[1]), "the last state is in the store")

    # ------------------------------------------------------------------ data

    def corpus(self, seed):
        words = random.Random(seed)
        return "".join(" ".join(words.choice(("zebra", "quagga", "ring", "rank", "node")) for _ in range(12)) + "\n" for _ in range(4000))

    def tokenize(self, seed, check=0):
        text = self.dir / "store/bucket/text"
        text.mkdir(exist_ok=True)
        (text / "part-1.txt").write_text(self.corpus(seed))
        return self.muster("tokenize", "--text", "s3://bucket/text/", "--tokenizer", "s3://bucket/tok.model", "--out",
                           "s3://bucket/tokens", check=check)

    def test_text_tokens_and_training_data_are_in_the_store(self):
        (self.dir / "text.txt").write_text(self.corpus(0))
        self.muster("train-tokenizer", "--text", self.dir / "text.txt", "--vocab-size", "300", "--fewer-ok", "--out",
                    self.dir / "tok", check=0)
        shutil.copy(self.dir / "tok.model", self.dir / "store/bucket/tok.model")
        result = self.tokenize(1)
        self.assertIn("muster: fetching s3://bucket/text/", result.stderr)
        self.assertIn("uploading", result.stderr)
        self.assertTrue((self.dir / "store/bucket/tokens/index.json").exists())
        line = ["dataset_type=shards", "dataset_path=s3://bucket/tokens", "tokenizer_path=s3://bucket/tok.model", "vocab_size=512",
                "enable_checkpointing=false", "steps=6"]
        first = self.muster(*self.words("data", *line), check=0)
        self.assertEqual((first.stdout + first.stderr).count("fetched s3://bucket/tokens"), 1, first.stdout + first.stderr)
        local = self.muster(*self.words("local", *line, f"dataset_path={self.dir}/store/bucket/tokens"), check=0)
        self.assertEqual(step_lines(first.stdout), step_lines(local.stdout))
        second = self.muster(*self.words("data", *line), check=0)
        self.assertNotIn("fetch", second.stdout + second.stderr, "the local copy is current")
        self.assertEqual(step_lines(second.stdout), step_lines(first.stdout))
        time.sleep(1.1)  # the store's times have seconds
        self.tokenize(2)
        third = self.muster(*self.words("data", *line), check=0)
        self.assertIn("fetched s3://bucket/tokens", third.stdout + third.stderr, "a changed object is fetched again")
        self.assertNotEqual(step_lines(third.stdout), step_lines(first.stdout))

    def test_text_is_tokenized_at_first_use_with_a_tokenizer_in_the_store(self):
        (self.dir / "text.txt").write_text(self.corpus(0))
        self.muster("train-tokenizer", "--text", self.dir / "text.txt", "--vocab-size", "300", "--fewer-ok", "--out",
                    self.dir / "tok", check=0)
        shutil.copy(self.dir / "tok.model", self.dir / "store/bucket/tok.model")
        ran = self.muster(*self.words("first", "dataset_type=tfds", f"dataset_path={self.dir}/text.txt",
                                      "tokenizer_path=s3://bucket/tok.model", "vocab_size=512", "enable_checkpointing=false",
                                      "steps=2"), check=0)
        self.assertRegex(ran.stderr, r"tokenised .*text\.txt.*: 4,000 documents")
        self.assertIn("there is nothing at s3://bucket/none.model",
                      self.muster(*self.words("none", "dataset_type=tfds", f"dataset_path={self.dir}/text.txt",
                                              "tokenizer_path=s3://bucket/none.model", "vocab_size=512", "steps=2"),
                                  check=2).stderr)

    # ------------------------------------------------------------------ mistakes

    def test_mistakes_end_before_ranks_start_and_name_the_way_out(self):
        self.env["AWS_SECRET_ACCESS_KEY"] = "wrong"
        text = self.train("x", check=2).stderr
        for part in ("s3://bucket/out/x/checkpoints", "refuses access", "AWS_ACCESS_KEY_ID (set)", "AWS_PROFILE (not set)",
                     "home/.aws/credentials (missing)"):
            self.assertIn(part, text)
        self.assertNotIn("wrong", text, "no value of a credential is shown")
        del self.env["AWS_SECRET_ACCESS_KEY"]
        self.assertIn("AWS_SECRET_ACCESS_KEY (not set)", self.train("x", check=2).stderr)
        self.env |= self.server.environment()
        self.assertIn("there is no bucket s3://nowhere", self.train("x", "base_output_directory=s3://nowhere/out", check=2).stderr)
        self.assertIn("there is nothing at s3://bucket/none",
                      self.train("x", "dataset_type=shards", "dataset_path=s3://bucket/none", check=2).stderr)
        self.assertIn("only s3:// and gs:// addresses", self.train("x", "base_output_directory=hdfs://h/out", check=2).stderr)
        # Without rclone, but with everything else.
        self.env["PATH"] = str(self.dir / "bin")
        (self.dir / "bin").mkdir()
        text = self.train("x", check=2).stderr
        self.assertIn("s3://bucket/out/x/checkpoints", text)
        self.assertIn("apt-get install rclone", text)


if __name__ == "__main__":
    unittest.main()
