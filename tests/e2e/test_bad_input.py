"""Bad input ends with exit code 2 and one sentence; nothing is started and nothing is lost."""
import json
import os
import random
import socket
import subprocess
import unittest

from harness import BIN, MusterTest, step_lines, wait_until

TEXT = "".join(f"In the beginning there were {i} ranks, and rank {i * 7 % 13} was slow.\n" for i in range(2000))


class BadConfig(MusterTest):
    def refused(self, *overrides, ranks=4, expected=()):
        result = self.muster(*self.run_args("bad", "steps=2", *overrides, ranks=ranks), check=2)
        for words in expected:
            self.assertIn(words, result.stderr)
        self.assertEqual(step_lines(result.stdout), [])
        self.assertLessEqual(len(result.stderr.strip().splitlines()), 4, "more than a clear sentence:\n" + result.stderr)
        self.assertEqual(self.ranks_of_test(), {})
        return result

    def test_unknown_key_names_the_nearest(self):
        self.refused("per_devce_batch_size=2", expected=["per_devce_batch_size", "per_device_batch_size"])

    def test_wrong_type(self):
        self.refused("steps=many", expected=["steps", "many", "integer"])

    def test_world_size_that_does_not_match_the_mesh(self):
        self.refused("ici_data_parallelism=3", expected=["ici_data_parallelism", "3", "4"])

    def test_batch_that_cannot_be_sharded(self):
        self.refused("per_device_batch_size=0.3", expected=["per_device_batch_size", "0.3"])

    def test_missing_base_yml(self):
        result = self.muster("run", "no-such.yml", check=2)
        self.assertIn("no-such.yml", result.stderr)

    def test_unknown_model(self):
        result = self.muster("run", self.base_yml(), "model_name=llama2-7c", check=2)
        self.assertIn("llama2-7c", result.stderr)
        self.assertIn("llama2-7b", result.stderr)

    def test_command_typo(self):
        result = self.muster("rnu", check=2)
        self.assertIn("run", result.stderr)

    def test_key_without_value(self):
        self.refused("steps", expected=["steps"])

    def test_unknown_or_impossible_flags_of_pax_and_axlearn(self):
        for words, expected in ((["CONFIG=GPT126M", "--fdl.NUM_LAYER=2"], "did you mean --fdl.NUM_LAYERS?"),
                            (["CONFIG=GPT126M", "--fdl.MODEL_DTYPE=float16"], "weight_dtype=float16 (--fdl.MODEL_DTYPE)"),
                            (["--fdl_config=configs.LambadaGLaM126M64E"], "it evaluates a checkpoint; give the config without Lambada"),
                            (["--config=fuji-test", "--trainer_dri=x"], "did you mean --trainer_dir?"),
                            (["--config=fuji-test", "quantization=fp8_full"], "the nearest is quantization=te_fp8_currentscaling"),
                            (["python3", "train.py"], "put your own program behind --: muster run -- python3")):
            result = self.muster("run", *words, check=2)
            self.assertIn(expected, result.stderr)
            self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)

    def test_unwritable_metrics_file_leaves_nothing_behind(self):
        self.refused("metrics_file=/proc/no/metrics", expected=["metrics_file", "/proc/no/metrics"])
        self.assertFalse((self.dir / "out").exists(), list(self.dir.rglob("*")))

    def test_invalid_environment_variable_name(self):
        self.refused("--env", "A B=1", expected=["--env A B=…: ", "letters, digits and _"])
        self.refused("--env", "A B", expected=["--env A B: ", "letters, digits and _"])
        self.refused("--env", "=1", expected=["expected NAME or NAME=VALUE"])

    def test_missing_environment_variable(self):
        self.refused("--env", "MUSTER_TEST_UNSET", expected=["your environment has no MUSTER_TEST_UNSET; set it"])


class BadFiles(MusterTest):
    def setUp(self):
        super().setUp()
        self.text = self.dir / "text.txt"
        self.text.write_text(TEXT)

    def make_data(self):
        self.muster("train-tokenizer", "--text", self.text, "--vocab-size", "320", "--out", self.dir / "tok", check=0)
        self.model = next(self.dir.glob("tok*.model"))
        self.muster("tokenize", "--text", self.text, "--tokenizer", self.model, "--out", self.dir / "data", check=0)

    def data_args(self, name, *overrides, ranks=2):
        args = self.run_args(name, "steps=4", "vocab_size=320", f"dataset_path={self.dir}/data",
                             f"tokenizer_path={self.model}", *overrides, ranks=ranks)
        return [a if a != "dataset_type=synthetic" else "dataset_type=shards" for a in args]

    def refused(self, args, *expected):
        result = self.muster(*args, check=2)
        for words in expected:
            self.assertIn(words, result.stderr)
        self.assertEqual(step_lines(result.stdout), [])
        return result

    def test_tokenizer_with_another_vocabulary(self):
        self.make_data()
        self.refused([a for a in self.data_args("vocab") if a != "vocab_size=320"], "vocab_size", "256", "320")

    def test_sequence_longer_than_the_data(self):
        self.make_data()
        self.refused(self.data_args("long", "max_target_length=400000"), "max_target_length", "400000")

    def test_truncated_shard_is_named_with_the_offset(self):
        self.make_data()
        shard = next((self.dir / "data").glob("*.mtok"))
        size = shard.stat().st_size
        os.truncate(shard, size - 100)
        self.refused(self.data_args("short"), shard.name, str(size - 100))

    def test_empty_and_binary_text(self):
        self.make_data()
        for name, content in (("empty", b""), ("binary", bytes(random.Random(1).randbytes(10000)))):
            path = self.dir / f"{name}.txt"
            path.write_bytes(content)
            for command in (["train-tokenizer", "--text", path, "--vocab-size", "320", "--out", self.dir / "t2"],
                            ["tokenize", "--text", path, "--tokenizer", self.model, "--out", self.dir / "d2"]):
                result = self.muster(*command, check=2)
                self.assertIn(f"{name}.txt", result.stderr)

    def test_checkpoint_of_another_model(self):
        self.muster(*self.run_args("other", "steps=2", ranks=1), check=0)
        self.refused(self.run_args("other", "steps=4", "base_mlp_dim=96", ranks=1), "mlp", "64", "96")

    def test_nothing_to_decode(self):
        (self.dir / "run/checkpoints").mkdir(parents=True)
        result = self.muster("decode", "--run", self.dir / "run", "--prompt", "x", check=2)
        self.assertRegex(result.stderr, r"\Amuster: error: .*run/checkpoints.*\n\Z")

    @unittest.skipUnless(os.geteuid() == 0, "mounting a file system needs root")
    def test_read_only_and_full_output_directory(self):
        mount = self.dir / "mount"
        mount.mkdir()
        for options, words in (("ro", "ead-only"), ("size=256k", "space")):
            made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(mount)], capture_output=True)
            if made.returncode != 0:
                self.skipTest("this machine allows no mounts: " + made.stderr.decode())
            try:
                if "size" in options:
                    with open(mount / "filler", "wb") as filler:
                        try:
                            filler.write(b"x" * 400_000)
                            filler.flush()
                        except OSError:
                            pass
                args = self.run_args("disk", "steps=2", f"base_output_directory={mount}/out", ranks=1)
                result = self.muster(*args, check=2)
                self.assertIn(words, result.stderr)
            finally:
                wait_until(lambda: subprocess.run(["umount", str(mount)], capture_output=True).returncode == 0, 30, "unmount")

    @unittest.skipUnless(os.geteuid() == 0, "mounting a file system needs root")
    def test_disk_that_fills_up_during_a_save_keeps_the_last_checkpoint(self):
        mount = self.dir / "mount"
        mount.mkdir()
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(mount)], capture_output=True)
        if made.returncode != 0:
            self.skipTest("this machine allows no mounts: " + made.stderr.decode())
        try:
            args = self.run_args("fills", "steps=400", "checkpoint_period=50", f"base_output_directory={mount}/out",
                                 "restarts_max=0", ranks=1)
            result = self.muster(*args)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("space", result.stdout + result.stderr)
            folders = sorted(p.name for p in (mount / "out/fills/checkpoints").iterdir() if p.is_dir())
            self.assertIn("50", folders)
            for name in folders:
                self.assertTrue((mount / "out/fills/checkpoints" / name / "manifest.json").exists(), folders)
        finally:
            wait_until(lambda: subprocess.run(["umount", str(mount)], capture_output=True).returncode == 0, 30, "unmount")


class BadPeers(MusterTest):
    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            for flags in (["--listen", f"127.0.0.1:{port}", "--http", "127.0.0.1:0"],
                          ["--listen", "127.0.0.1:0", "--http", f"127.0.0.1:{port}"]):
                result = subprocess.run([str(BIN / "muster-coordinator"), *flags, "--state-dir", str(self.dir / "s")],
                                        capture_output=True, text=True, timeout=20, env=self.env)
                self.assertEqual(result.returncode, 11, result.stderr)
                self.assertIn(str(port), result.stderr)

    def test_listener_beyond_loopback_requires_insecure(self):
        result = subprocess.run([str(BIN / "muster-coordinator"), "--listen", "0.0.0.0:0", "--state-dir", str(self.dir / "s")],
                                capture_output=True, text=True, timeout=20, env=self.env)
        self.assertEqual(result.returncode, 2)
        self.assertIn("--insecure", result.stderr)

    def test_two_coordinators_on_one_state(self):
        first = self.start_coordinator()
        result = subprocess.run([str(BIN / "muster-coordinator"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
                                 "--state-dir", str(self.dir / "state")], capture_output=True, text=True, timeout=20, env=self.env)
        self.assertEqual(result.returncode, 10, result.stderr)
        self.assertIn(str(first.pid), result.stderr)

    def test_two_workers_with_one_name(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator, "twin")
        wait_until(lambda: self.workers() == ["twin"], 30, "the first worker")
        second = self.start(BIN / "muster-worker", "--coordinator", coordinator.address, "--name", "twin", "--slots", "1",
                            "--work-dir", self.dir / "w2", "--http", "127.0.0.1:0")
        self.assertEqual(second.wait(timeout=20), 2, self.output(second))
        self.assertIn("twin", self.output(second))
        self.assertEqual(self.workers(), ["twin"])

    def workers(self):
        listing = json.loads(self.muster("list", "--workers", "--json", check=0).stdout)
        return [w["name"] for w in listing.get("workers", []) if w.get("connected")]

    def test_garbage_on_the_grpc_port(self):
        coordinator = self.start_coordinator()
        self.start_worker(coordinator)
        noise = random.Random(7)
        for size in (1, 24, 1000, 200_000):
            with socket.create_connection(("127.0.0.1", coordinator.ports["grpc_port"]), timeout=5) as connection:
                try:
                    connection.sendall(noise.randbytes(size))
                except OSError:
                    pass
        args = self.run_args("after", "steps=3", ranks=2)
        args[0] = "submit"
        job = json.loads(self.muster(*args, "--json", check=0).stdout)
        wait_until(lambda: self.job(job["id"])["state"] == "SUCCEEDED", 30, "a job after the garbage")
        self.assertIsNone(coordinator.poll())


if __name__ == "__main__":
    unittest.main()
