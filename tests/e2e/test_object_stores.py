"""Data, checkpoints and results in an object store: a real S3 server, and an emulator of Google
Cloud Storage, on loopback.
"""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
import unittest

import kube_tools
import store_tools
import test_seeds
from harness import BIN, TINY, MusterTest, step_lines, wait_gone, wait_until

STEPS = 24


class StoreCase(MusterTest):
    """A run with a bucket. Subclasses define SCHEME and Server."""

    def setUp(self):
        super().setUp()
        if shutil.which("rclone") is None:
            self.skipTest("rclone is not installed; deploy/install-deps.sh installs it")
        for bucket in ("bucket", "my-output-bucket", "my-dataset-bucket", "axlearn-public"):
            (self.dir / "store" / bucket).mkdir(parents=True)
        (self.dir / "home").mkdir()
        self.server = self.Server(self.dir / "store")
        try:
            self.server.start()
        except kube_tools.Missing as missing:
            self.skipTest(str(missing))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.addCleanup(lambda: self.server.kill())
        for name in [name for name in self.env if name.startswith(("AWS_", "RCLONE_", "GOOGLE_", "STORAGE_EMULATOR"))]:
            del self.env[name]
        self.env |= self.server.environment()
        self.env |= {"HOME": str(self.dir / "home"), "MUSTER_OBJECT_CACHE": str(self.dir / "cache")}
        self.env.pop("XDG_CACHE_HOME", None)

    def url(self, path):
        """Returns the address of a path in the bucket."""
        return f"{self.SCHEME}://bucket/{path}"

    def words(self, name, *overrides, ranks=2):
        """Arguments of a small run; a later word for a key replaces an earlier one."""
        keys = dict(word.split("=", 1) for word in (
            f"run_name={name}", f"base_output_directory={self.url('out')}", *TINY, f"steps={STEPS}", "hardware=cpu", "log_period=1",
            "enable_tensorboard=false", *overrides))
        return ["run", self.base_yml(), *(f"{key}={value}" for key, value in keys.items()), "--ranks", str(ranks)]

    def train(self, name, *overrides, check=0, **kwargs):
        return self.muster(*self.words(name, "dataset_type=synthetic", *overrides, **kwargs), check=check)

    def stored(self, name):
        """Returns {step: names} of the checkpoints in the store."""
        folder = self.dir / f"store/bucket/out/{name}/checkpoints"
        steps = {int(path.name): sorted(file.name for file in path.iterdir()) for path in folder.glob("[0-9]*")}
        # The emulator leaves empty folders.
        return {step: names for step, names in steps.items() if names}

    def complete(self, name):
        return sorted(step for step, names in self.stored(name).items() if "manifest.json" in names)

    def new_machine(self):
        """Nothing of earlier runs is on the disk."""
        shutil.rmtree(self.dir / "cache", ignore_errors=True)


class SharedCases(StoreCase):
    """The checks for both stores."""

    # ------------------------------------------------------------------ checkpoints

    def check_a_killed_run_resumes_on_another_machine_with_equal_losses(self):
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
        self.server.put("out/killed/checkpoints/999/model-00000-00000-0123.safetensors", b"torn")
        self.new_machine()
        again = self.train("killed", *slow)
        self.assertIn(f"restored checkpoint {self.url('out/killed/checkpoints/')}{newest}: {newest} steps completed", again.stdout)
        self.assertEqual(step_lines(again.stdout), whole[newest:])
        self.assertEqual(self.complete("killed")[-1], 60)
        self.assertNotIn(999, self.stored("killed"), "the rest of the torn save is removed")
        left = [path for path in (self.dir / "cache").rglob("*") if path.suffix == ".safetensors"]
        self.assertEqual(left, [], "no staged or fetched file remains")

    def check_nodes_that_share_no_folder_save_and_restore_together(self):
        coordinator = self.start_coordinator()

        def start_workers(generation):
            for node in range(2):
                self.env["MUSTER_OBJECT_CACHE"] = str(self.dir / f"cache-{generation}-{node}")
                self.start_worker(coordinator, f"node-{generation}-{node}", slots=1)

        start_workers(0)
        words = [self.base_yml(), "run_name=nodes", f"base_output_directory={self.url('out')}", *TINY, "hardware=cpu",
                 "dataset_type=synthetic", "dcn_fsdp_parallelism=2", "checkpoint_period=4", "learning_rate_schedule_steps=12",
                 "enable_tensorboard=false", "--nodes", "2", "--ranks-per-node", "1", "--follow"]
        self.muster("submit", *words, "steps=8", check=0)
        names = self.stored("nodes")[8]
        for writer in range(2):
            self.assertEqual(len([name for name in names if name.startswith(f"model-{writer:05d}-")]), 1, names)
        others = ["run_name=loaded" if word == "run_name=nodes" else word for word in words]
        loaded = self.muster("submit", *others, f"load_parameters_path={self.url('out/nodes/checkpoints/8')}", "steps=1", check=0).stdout
        self.assertIn("parameters are from", loaded)
        for node in range(2):
            self.assertTrue(list((self.dir / f"cache-0-{node}").rglob("model-*.safetensors")), f"node {node} has a copy")
        for process in self.processes[1:]:
            process.send_signal(signal.SIGKILL)
        wait_until(lambda: all(process.poll() is not None for process in self.processes[1:]), 30, "the workers' end")
        start_workers(1)
        resumed = self.muster("submit", *words, "steps=12", check=0).stdout
        self.assertIn(f"restored checkpoint {self.url('out/nodes/checkpoints/8')}", resumed)
        self.new_machine()
        whole = self.train("one", "steps=12", "ici_fsdp_parallelism=2", "checkpoint_period=100", "learning_rate_schedule_steps=12").stdout
        self.assertEqual([step for step, _ in step_lines(resumed)], [8, 9, 10, 11])
        for (_, loss), (_, expected) in zip(step_lines(resumed), step_lines(whole)[8:]):
            self.assertAlmostEqual(float(loss), float(expected), places=3)

    def check_a_store_that_is_away_costs_no_step(self):
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

    # A checkpoint of 38 MB, and transfers of 4 MiB/s.
    LARGE = ["base_emb_dim=256", "base_num_decoder_layers=4", "head_dim=64", "base_mlp_dim=1024"]
    SLOW = {"RCLONE_BWLIMIT": "4M"}

    def corpus(self, seed):
        words = random.Random(seed)
        return "".join(" ".join(words.choice(("zebra", "quagga", "ring", "rank", "node")) for _ in range(12)) + "\n" for _ in range(4000))

    def tokenize(self, seed, check=0):
        self.server.put("text/part-1.txt", self.corpus(seed).encode())
        return self.muster("tokenize", "--text", self.url("text/"), "--tokenizer", self.url("tok.model"), "--out",
                           self.url("tokens"), check=check)

    def check_text_tokens_and_training_data_are_in_the_store(self):
        (self.dir / "text.txt").write_text(self.corpus(0))
        self.muster("train-tokenizer", "--text", self.dir / "text.txt", "--vocab-size", "300", "--fewer-ok", "--out",
                    self.dir / "tok", check=0)
        self.server.put("tok.model", (self.dir / "tok.model").read_bytes())
        result = self.tokenize(1)
        self.assertIn(f"muster: fetching {self.url('text/')}", result.stderr)
        self.assertIn("uploading", result.stderr)
        self.assertTrue((self.dir / "store/bucket/tokens/index.json").exists())
        line = ["dataset_type=shards", f"dataset_path={self.url('tokens')}", f"tokenizer_path={self.url('tok.model')}", "vocab_size=512",
                "enable_checkpointing=false", "steps=6"]
        first = self.muster(*self.words("data", *line), check=0)
        self.assertEqual((first.stdout + first.stderr).count(f"fetched {self.url('tokens')}"), 1, first.stdout + first.stderr)
        local = self.muster(*self.words("local", *line, f"dataset_path={self.dir}/store/bucket/tokens"), check=0)
        self.assertEqual(step_lines(first.stdout), step_lines(local.stdout))
        second = self.muster(*self.words("data", *line), check=0)
        self.assertNotIn("fetch", second.stdout + second.stderr, "the local copy is current")
        self.assertEqual(step_lines(second.stdout), step_lines(first.stdout))
        time.sleep(1.1)  # the store's times have seconds
        self.tokenize(2)
        third = self.muster(*self.words("data", *line), check=0)
        self.assertIn(f"fetched {self.url('tokens')}", third.stdout + third.stderr, "a changed object is fetched again")
        self.assertNotEqual(step_lines(third.stdout), step_lines(first.stdout))

    def check_text_is_tokenized_at_first_use_with_a_tokenizer_in_the_store(self):
        (self.dir / "text.txt").write_text(self.corpus(0))
        self.muster("train-tokenizer", "--text", self.dir / "text.txt", "--vocab-size", "300", "--fewer-ok", "--out",
                    self.dir / "tok", check=0)
        self.server.put("tok.model", (self.dir / "tok.model").read_bytes())
        self.server.put("text/part-1.txt", self.corpus(0).encode())
        missing = self.muster(*self.words("none", f"dataset_path={self.url('text')}", "steps=2"), check=2).stderr
        self.assertIn(f"tokenizer_path is empty: the text of {self.url('text')} is tokenised before the training", missing)
        self.assertNotIn("fetching", missing, "the text is not fetched in vain")
        stored = self.muster(*self.words("stored", f"dataset_path={self.url('text')}", f"tokenizer_path={self.url('tok.model')}", "vocab_size=512",
                                         "enable_checkpointing=false", "steps=2"), check=0)
        self.assertRegex(stored.stderr, "tokenised .*: 4,000 documents")
        self.assertEqual(len(step_lines(stored.stdout)), 2)
        ran = self.muster(*self.words("first", "dataset_type=tfds", f"dataset_path={self.dir}/text.txt",
                                      f"tokenizer_path={self.url('tok.model')}", "vocab_size=512", "enable_checkpointing=false",
                                      "steps=2"), check=0)
        self.assertRegex(ran.stderr, r"tokenised .*text\.txt.*: 4,000 documents")
        self.assertIn(f"there is nothing at {self.url('none.model')}",
                      self.muster(*self.words("none", "dataset_type=tfds", f"dataset_path={self.dir}/text.txt",
                                              f"tokenizer_path={self.url('none.model')}", "vocab_size=512", "steps=2"),
                                  check=2).stderr)


class S3(SharedCases):
    SCHEME, Server = "s3", store_tools.S3Server

    def test_a_killed_run_resumes_on_another_machine_with_equal_losses(self):
        self.check_a_killed_run_resumes_on_another_machine_with_equal_losses()

    def test_nodes_that_share_no_folder_save_and_restore_together(self):
        self.check_nodes_that_share_no_folder_save_and_restore_together()

    def test_a_store_that_is_away_costs_no_step(self):
        self.check_a_store_that_is_away_costs_no_step()

    def test_text_tokens_and_training_data_are_in_the_store(self):
        self.check_text_tokens_and_training_data_are_in_the_store()

    def test_text_is_tokenized_at_first_use_with_a_tokenizer_in_the_store(self):
        self.check_text_is_tokenized_at_first_use_with_a_tokenizer_in_the_store()

    def test_an_upload_that_makes_progress_is_awaited_after_a_signal(self):
        self.env |= self.SLOW
        for name, stop in (("ctrl-c", signal.SIGINT), ("sigterm", signal.SIGTERM)):
            with self.subTest(name):
                run = self.start(BIN / "muster", *self.words(name, "dataset_type=synthetic", *self.LARGE, "steps=100000", "checkpoint_period=90000",
                                                              ranks=1))
                wait_until(lambda: step_lines(run.out_path.read_text()) or run.poll() is not None, 60, "a step")
                began = time.monotonic()
                run.send_signal(stop)
                self.assertEqual(run.wait(timeout=120), 130, self.output(run))
                text = self.output(run)
                self.assertGreater(time.monotonic() - began, 8, "the transfer is longer than the ranks' grace of 4 s")
                saved = re.search(r"checkpoint of step (\d+) saved", text)
                self.assertTrue(saved, text)
                self.assertEqual(self.complete(name), [int(saved[1])])
                sizes = [int(n) for n in re.findall(r"steps? (?:is|are) completed: \d+ of (\d+) MiB written; waits", text)]
                self.assertGreater(sizes[-1] - sizes[0], 8, text)

    def test_leave_seconds_bound_an_upload(self):
        self.env |= {"RCLONE_BWLIMIT": "1M"}
        run = self.start(BIN / "muster", *self.words("bound", "dataset_type=synthetic", *self.LARGE, "steps=100000", "checkpoint_period=90000",
                                                      ranks=1), "--leave-seconds", "5")
        wait_until(lambda: step_lines(run.out_path.read_text()) or run.poll() is not None, 60, "a step")
        began = time.monotonic()
        run.send_signal(signal.SIGINT)
        self.assertEqual(run.wait(timeout=60), 130, self.output(run))
        self.assertLess(time.monotonic() - began, 15)
        self.assertIn("it was not complete within --leave-seconds 5 with ", self.output(run))
        self.assertEqual(self.complete("bound"), [])
        self.assertEqual(wait_gone(self.mark, 30), [])

    def test_a_slow_restore_is_no_hang(self):
        coordinator = self.start_coordinator(extra=["--hang-checkpoint-seconds", "3", "--hang-floor-seconds", "1"])
        self.start_worker(coordinator, slots=1)
        words = [word for word in self.words("slow", "dataset_type=synthetic", *self.LARGE, "steps=4", "checkpoint_period=4", "learning_rate_schedule_steps=8",
                                             ranks=1)[1:] if word not in ("--ranks", "1")]
        self.muster("submit", *words, "--nodes", "1", "--ranks-per-node", "1", "--follow", check=0)
        self.assertEqual(self.complete("slow"), [4])
        self.processes[-1].send_signal(signal.SIGKILL)
        self.processes[-1].wait()
        self.new_machine()
        self.env |= {"RCLONE_BWLIMIT": "3M"}
        self.start_worker(coordinator, "other", slots=1)
        more = ["steps=8" if word == "steps=4" else word for word in words]
        began = time.monotonic()
        resumed = self.muster("submit", *more, "--nodes", "1", "--ranks-per-node", "1", "--follow", check=0)
        self.assertGreater(time.monotonic() - began, 8, "the restore is longer than the budget")
        self.assertIn("restored checkpoint s3://bucket/out/slow/checkpoints/4", resumed.stdout)
        incidents = json.loads(self.muster("incident", "list", "--json", check=0).stdout)
        self.assertEqual([entry for entry in incidents["incidents"] if entry.get("kind") == "hang"], [])

    def test_a_staging_folder_without_room_is_named_before_the_start(self):
        folder = self.dir / "small"
        mount = f"mkdir -p {folder} && mount -t tmpfs -o size=1m none {folder}"
        if subprocess.run(["unshare", "--mount", "sh", "-c", mount], capture_output=True).returncode != 0:
            self.skipTest("mounting needs root and namespaces")
        words = ["env", f"MUSTER_OBJECT_CACHE={folder}", str(BIN / "muster"), *map(str, self.words("staging", "dataset_type=synthetic", *self.LARGE, ranks=1))]
        result = subprocess.run(["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", *words], capture_output=True, text=True, env=self.env,
                                cwd=self.dir, timeout=120)
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertRegex(result.stderr, rf"no room in {folder}.* for a node's part of a checkpoint before its upload.*; MUSTER_OBJECT_CACHE=FOLDER")
        self.assertEqual(self.stored("staging"), {})

    def test_ctrl_c_ends_a_conversion_from_and_to_the_store(self):
        self.train("whole", *self.LARGE, "steps=2", "checkpoint_period=2", ranks=1)
        self.env |= {"RCLONE_BWLIMIT": "1M"}
        self.new_machine()
        local = self.dir / "local"
        for name, words in (("from", ["s3://bucket/out/whole", self.dir / "converted"]), ("to", [local, "s3://bucket/converted"])):
            with self.subTest(name):
                convert = self.start(BIN / "muster", "convert", *words)
                wait_until(lambda: re.search("fetching|uploading", self.output(convert)) or convert.poll() is not None, 30, "the transfer")
                self.assertIsNone(convert.poll(), self.output(convert))
                time.sleep(1)
                began = time.monotonic()
                convert.send_signal(signal.SIGINT)
                self.assertEqual(convert.wait(timeout=60), 130, self.output(convert))
                self.assertLess(time.monotonic() - began, 5)
                self.assertEqual(wait_gone(self.mark, 10), [], "no transfer remains")
            if name == "from":
                self.assertFalse((self.dir / "converted").exists())
                del self.env["RCLONE_BWLIMIT"]
                self.muster("convert", "s3://bucket/out/whole", local, check=0)
                self.env |= {"RCLONE_BWLIMIT": "1M"}
        left = [path.name for path in (self.dir / "store/bucket").glob("converted/*") if path.name == "config.json" or path.name.endswith(".index.json")]
        self.assertEqual(left, [], "no half of a model appears complete")

    # ------------------------------------------------------------------ data

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
        # A server that is away.
        self.server.kill()
        self.env["MUSTER_STORE_WAIT_SECONDS"] = "2"
        for url, why in ((self.env["AWS_ENDPOINT_URL"], "connection refused"), ("http://nowhere.invalid:1", "no such host")):
            self.env["AWS_ENDPOINT_URL"] = url
            text = self.train("x", "dataset_type=shards", "dataset_path=s3://bucket/tokens", check=1).stderr
            self.assertIn(f"warning: s3://bucket/tokens: {url} cannot be reached ({why}); it is tried again\n", text)
            self.assertRegex(text, rf"dataset_path: s3://bucket/tokens: {url} cannot be reached \({why}\); tried for \d s; check AWS_ENDPOINT_URL, ")
            self.assertIn(f"{url} cannot be reached", self.train("x", check=1).stderr)
        # Without rclone, but with everything else.
        self.env["PATH"] = str(self.dir / "bin")
        (self.dir / "bin").mkdir()
        text = self.train("x", check=2).stderr
        self.assertIn("s3://bucket/out/x/checkpoints", text)
        self.assertIn("apt-get install rclone", text)


class Gcs(SharedCases):
    SCHEME, Server = "gs", store_tools.GcsServer

    def test_a_killed_run_resumes_on_another_machine_with_equal_losses(self):
        self.check_a_killed_run_resumes_on_another_machine_with_equal_losses()

    def test_nodes_that_share_no_folder_save_and_restore_together(self):
        self.check_nodes_that_share_no_folder_save_and_restore_together()

    def test_a_store_that_is_away_costs_no_step(self):
        self.check_a_store_that_is_away_costs_no_step()

    def test_text_tokens_and_training_data_are_in_the_store(self):
        self.check_text_tokens_and_training_data_are_in_the_store()

    def test_text_is_tokenized_at_first_use_with_a_tokenizer_in_the_store(self):
        self.check_text_is_tokenized_at_first_use_with_a_tokenizer_in_the_store()

    def with_account(self, account):
        """Uses the server without STORAGE_EMULATOR_HOST, with the key of `account`."""
        tokens = store_tools.TokenServer()
        self.addCleanup(tokens.close)
        key = self.dir / "key.json"
        tokens.write_key(key, account)
        del self.env["STORAGE_EMULATOR_HOST"]
        self.env |= self.server.environment_with_tokens(key)
        return tokens

    def test_a_service_accounts_key_gets_tokens(self):
        tokens = self.with_account(store_tools.TokenServer.ACCOUNT)
        self.train("keyed", "steps=4", "checkpoint_period=4")
        self.assertEqual(self.complete("keyed"), [4])
        self.assertGreater(tokens.tokens, 0)

    def test_wrong_credentials_end_before_ranks_start_and_name_the_way_out(self):
        self.with_account("nobody@project.iam.gserviceaccount.com")
        text = self.train("x", check=2).stderr
        for part in ("gs://bucket/out/x/checkpoints", "refuses access", f"GOOGLE_APPLICATION_CREDENTIALS={self.dir}/key.json",
                     "gcloud auth application-default login"):
            self.assertIn(part, text)
        self.assertNotIn("PRIVATE KEY", text, "no credential is shown")
        self.env["GOOGLE_APPLICATION_CREDENTIALS"] = str(self.dir / "none.json")
        self.assertIn(f"GOOGLE_APPLICATION_CREDENTIALS={self.dir}/none.json (missing)", self.train("x", check=2).stderr)

    def test_the_line_of_a_compiled_step_trains_on_buckets(self):
        """MaxText's line with gs:// for both paths, no dataset_type, a tiny model and its plan."""
        (self.dir / "text.txt").write_text(self.corpus(0))
        self.muster("train-tokenizer", "--text", self.dir / "text.txt", "--vocab-size", "300", "--fewer-ok", "--out",
                    self.dir / "tok", check=0)
        self.server.put("c4/en/3.0.1/part-1.txt", self.corpus(1).encode(), bucket="my-dataset-bucket")
        model = [*TINY, "global_parameter_scale=1", "per_device_batch_size=2", "vocab_size=320", "steps=4", f"tokenizer_path={self.dir}/tok.model"]
        line = [*test_seeds.words(test_seeds.AOT_LOAD), *model, "hardware=cpu"]
        self.muster("run", *test_seeds.words(test_seeds.AOT_SAVE), *model, "compile_topology=cpu-1", "compile_topology_num_slices=1", check=0)
        printed = self.muster("run", *line, check=0).stdout
        self.assertEqual([step for step, _ in step_lines(printed)], [0, 1, 2, 3])
        self.assertIn("saved checkpoint gs://my-output-bucket/example_load_compile/checkpoints/4", printed)
        self.assertTrue((self.dir / "store/my-output-bucket/example_load_compile/checkpoints/4/manifest.json").exists())
        self.assertIn("steps", self.muster("run", *line, "steps=6", check=2).stderr)
        again = self.muster("run", *line, "steps=6", "compiled_trainstep_file=", check=0).stdout
        self.assertIn("restored checkpoint gs://my-output-bucket/example_load_compile/checkpoints/4", again)

    def test_axlearns_line_trains_on_its_bucket(self):
        """The line with --data_dir=gs://axlearn-public/tensorflow_datasets, with a tiny model."""
        (self.dir / "text.txt").write_text(self.corpus(0))
        self.muster("train-tokenizer", "--text", self.dir / "text.txt", "--vocab-size", "300", "--fewer-ok", "--out",
                    self.dir / "tok", check=0)
        self.server.put("tensorflow_datasets/c4/en/3.0.1/part-1.txt", self.corpus(1).encode(), bucket="axlearn-public")
        line = test_seeds.words(test_seeds.FUJI_LINE, CONFIG="fuji-test", TRAINER_DIR="trainer")
        printed = self.muster("run", *line, "hardware=cpu", "steps=3", "override_model_config=true", "vocab_size=320", "global_batch_size=2",
                              f"tokenizer_path={self.dir}/tok.model", check=0)
        self.assertEqual([step for step, _ in step_lines(printed.stdout)], [0, 1, 2])
        self.assertIn("fetching gs://axlearn-public/tensorflow_datasets/c4/en/3.0.1", printed.stderr)

    def test_missing_buckets_and_objects_are_named(self):
        self.assertIn("there is no bucket gs://nowhere", self.train("x", "base_output_directory=gs://nowhere/out", check=2).stderr)
        self.assertIn("there is nothing at gs://bucket/none",
                      self.train("x", "dataset_type=shards", "dataset_path=gs://bucket/none", check=2).stderr)


if __name__ == "__main__":
    unittest.main()
