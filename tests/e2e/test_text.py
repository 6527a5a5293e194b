"""From a text to decoding: train-tokenizer, tokenize, run on shards, decode; and output for
programs.
"""
import json
import re
import subprocess

from harness import BIN, MusterTest, metrics

# Repetitive, so that a model that attends to one previous token is far better than the unigram
# entropy.
TEXT = "".join(f"rank {i % 10} waits for rank {(i + 1) % 10} and then continues.\n" for i in range(3000))
STEPS = 200


class Text(MusterTest):
    def test_text_becomes_a_model_that_decodes(self):
        text = self.dir / "text.txt"
        text.write_text(TEXT)
        report = json.loads(self.muster("train-tokenizer", "--text", text, "--vocab-size", "320", "--out",
                                        self.dir / "tok", "--json", check=0).stdout)
        self.assertEqual(report["vocab_size"], 320)
        model = self.dir / "tok.model"
        report = json.loads(self.muster("tokenize", "--text", text, "--tokenizer", model, "--out",
                                        self.dir / "shards", "--json", check=0).stdout)
        self.assertEqual(report["documents"], 3000)
        entropy = json.loads((self.dir / "shards/index.json").read_text())["unigram_entropy_nats"]
        self.assertEqual(report["unigram_entropy_nats"], entropy)

        args = self.run_args("speaks", f"steps={STEPS}", "vocab_size=320", f"dataset_path={self.dir}/shards",
                             f"tokenizer_path={model}", "learning_rate=1e-2", "per_device_batch_size=4",
                             f"metrics_file={self.dir}/metrics.jsonl", ranks=2)
        args = [a if a != "dataset_type=synthetic" else "dataset_type=shards" for a in args]
        self.muster(*args, check=0)
        rows = metrics(self.dir / "metrics.jsonl")
        self.assertGreater(rows[0]["learning/loss"], entropy)
        self.assertLess(rows[STEPS - 1]["learning/loss"], entropy)

        words = ["decode", "--run", self.dir / "out/speaks", "--prompt", "rank 3 waits", "--max-tokens", "12"]
        printed = self.muster(*words, check=0).stdout
        self.assertRegex(printed, re.compile(r"^Input `rank 3 waits` -> `.+`$", re.M | re.S))
        self.assertEqual(self.muster(*words, check=0).stdout, printed)
        parsed = json.loads(self.muster(*words, "--json", check=0).stdout)
        self.assertEqual(f"Input `{parsed['prompt']}` -> `{parsed['text']}`\n", printed)
        self.assertEqual(parsed["checkpoint"], f"{self.dir}/out/speaks/checkpoints/{STEPS}")

        # The run and decode note which file of a folder they use in place of an unusable one.
        folder = self.dir / "tok"
        folder.mkdir()
        (folder / "tokenizer.json").write_text("{")
        (folder / "tokenizer.model").write_bytes(model.read_bytes())
        noted = self.muster(*words, "--tokenizer", folder, check=0)
        self.assertEqual(noted.stdout, printed)
        self.assertIn("tokenizer.model is used in its place", noted.stderr)
        noted = self.muster(*[a for a in args if not str(a).startswith("metrics_file=")], f"tokenizer_path={folder}",
                            "run_name=noted", "steps=1", check=0)
        self.assertIn("tokenizer.model is used in its place", noted.stderr)

        # A flag overrides the config. With only the most likely token allowed, there is one
        # possible text.
        config = ["decode", *args[1:-2], "prompt=rank 3 waits", "decode_sampling_strategy=topk", "--max-tokens", "12"]
        self.assertEqual(self.muster(*config, "decode_sampling_top_k=40", "--top-k", "1", check=0).stdout, printed)
        self.assertEqual(self.muster(*config, "--temperature", "0", check=0).stdout, printed)


class ForPrograms(MusterTest):
    def test_unwritable_result_is_an_error(self):
        text = self.dir / "text.txt"
        text.write_text(TEXT)
        tokenizer = ["train-tokenizer", "--text", text, "--vocab-size", "320", "--out", self.dir / "tok"]
        tokenize = ["tokenize", "--text", text, "--tokenizer", self.dir / "tok.model", "--out", self.dir / "shards"]
        commands = [["version"], ["--help"], ["--version"], ["config", "show", self.base_yml()], ["completion", "bash"], tokenizer,
                    tokenize, [*tokenize, "--json"]]
        for command in commands:
            with open("/dev/full", "w") as full:
                result = subprocess.run([BIN / "muster", *map(str, command)], stdout=full, stderr=subprocess.PIPE, text=True,
                                        env=self.env, cwd=self.dir, timeout=60)
            self.assertEqual(result.returncode, 2, command)
            self.assertIn("cannot write to standard output: No space left on device", result.stderr)
        for program in ["muster-trainer"]:
            with open("/dev/full", "w") as full:
                self.assertEqual(subprocess.run([BIN / program, "--help"], stdout=full, stderr=subprocess.DEVNULL).returncode, 2)
        # A reader that closes the pipe after the first line causes no error.
        head = subprocess.run(["bash", "-c", '"$0" config show "$1" dtype=float32 | head -1; exit ${PIPESTATUS[0]}', BIN / "muster", self.base_yml()],
                              capture_output=True, text=True, env=self.env, timeout=60)
        self.assertEqual((head.returncode, head.stderr), (0, ""))

    def test_bash_accepts_the_completion_script(self):
        script = self.muster("completion", "bash", check=0).stdout
        checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, timeout=20)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))

    def test_config_show_prints_value_and_origin(self):
        args = ["config", "show", self.base_yml(), "model_name=llama2-tiny", "max_target_length=128"]
        shown = self.muster(*args, check=0).stdout
        self.assertRegex(shown, r"(?m)^max_target_length: 128 +# command line$")
        self.assertRegex(shown, r"(?m)^vocab_size: 4096 +# .*llama2-tiny\.yml:\d+$")
        settings = json.loads(self.muster(*args, "--json", check=0).stdout)["settings"]
        self.assertEqual(settings["max_target_length"], {"value": 128, "origin": "command line"})

    def test_config_show_changed_prints_what_differs_and_the_parameters(self):
        args = ["config", "show", self.base_yml(), "model_name=gemma-2b", "steps=5", "--changed"]
        shown = self.muster(*args, check=0).stdout
        self.assertRegex(shown, r"(?m)^steps: 5 +# command line$")
        self.assertNotIn("vocab_size", shown)  # the model's, not the user's
        self.assertNotIn("adam_b1", shown)
        self.assertIn("# ---- Run and launch\n", shown)
        self.assertIn("# model: gemma-2b, 2,506,172,416 parameters\n", shown)
        parsed = json.loads(self.muster(*args, "--json", check=0).stdout)
        self.assertEqual(parsed["parameters"], 2506172416)
        self.assertNotIn("adam_b1", parsed["settings"])
        self.assertEqual(parsed["train_config"]["norm_gain_offset"], 1)

    def test_config_show_accepts_flags_of_pax_and_axlearn(self):
        pax = ["config", "show", "python3", "-m", "paxml.main", "--fdl_config=paxml.contrib.gpu.scripts_gpu.configs.Synthetic126M",
               "--fdl.MAX_STEPS=7", "--ranks", "2", "--fdl.PERCORE_BATCH_SIZE=2", "--multiprocess_gpu", "--json"]
        shown = self.muster(*pax, check=0)
        parsed = json.loads(shown.stdout)
        self.assertEqual(parsed["settings"]["steps"], {"value": 7, "origin": "--fdl.MAX_STEPS"})
        self.assertEqual((parsed["parameters"], parsed["ranks_per_node"]), (125262336, 2))
        self.assertIn("--multiprocess_gpu=true has no effect", shown.stderr)
        axlearn = ["config", "show", "--module", "text.gpt.c4_trainer", "--config", "fuji-7B-v2-flash-single-host", "--ranks", "8",
                   "--trainer_dir=out/fuji", "--data_dir=FAKE", "--jax_backend=cpu"]
        shown = self.muster(*axlearn, check=0).stdout
        self.assertRegex(shown, r"(?m)^per_device_batch_size: 1\.0 +# derived: ")
        self.assertRegex(shown, r"(?m)^run_name: \"fuji\" +# --trainer_dir$")
        self.assertIn("6,610,489,344 parameters", shown)

    def test_config_show_accepts_our_base_yml_as_maxtexts(self):
        args = ["config", "show", "python3", "MaxText/train.py", "MaxText/configs/base.yml", "model_name=llama2-7b"]
        self.env["XDG_CACHE_HOME"] = str(self.dir / "cache")
        shown = self.muster(*args, check=0)
        self.assertIn("6,738,415,616 parameters", shown.stdout)
        self.assertIn("MaxText/configs/base.yml does not exist: using ", shown.stderr)
        self.assertNotIn("does not exist", self.muster(*args, check=0).stderr, "a note comes once per user")

    def test_json_parses_and_hides_the_environment(self):
        result = self.muster(*self.run_args("quick", "steps=2", ranks=1), "--env", "TOKEN=hush-hush", "--json", check=0)
        job = json.loads(result.stdout)
        self.assertEqual(job["state"], "SUCCEEDED")
        self.assertEqual(job["spec"]["environment"], {"TOKEN": "***"})
        folder = self.dir / "out/quick/muster/0001"
        self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
        self.assertEqual((folder / "config.json").stat().st_mode & 0o077, 0)
        self.assertEqual((folder / "coordinator.log").stat().st_mode & 0o077, 0)


if __name__ == "__main__":
    import unittest
    unittest.main()
