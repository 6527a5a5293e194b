"""Programs of MaxText and Pax beside their trainers, pasted behind `muster run`."""
import math
import re
import unittest

from harness import SOURCE, TINY, MusterTest, step_lines

META = SOURCE / "tests/golden/meta/llama2"


class EntryPoints(MusterTest):
    def tokenizer(self):
        text = self.dir / "text.txt"
        text.write_text("".join(f"In the beginning was the word, number {i}.\n" for i in range(300)))
        self.muster("train-tokenizer", "--text", text, "--vocab-size", "300", "--fewer-ok", "--out", self.dir / "t.model", check=0)
        return self.dir / "t.model"

    def test_converters_make_what_a_run_loads(self):
        for name, words in (("maxtext", ["MaxText/llama_or_mistral_ckpt.py", "--base-model-path", META, "--maxtext-model-path", self.dir / "maxtext"]),
                            ("pax", ["-m", "convert_llama_ckpt", "--base-model-path", META, "--pax-model-path", self.dir / "pax"])):
            # The tiny model is not the one that the line names.
            refused = self.muster("run", "python3", *words, "--model-size", {"maxtext": "llama2-7b", "pax": "7b"}[name], check=2).stderr
            self.assertRegex(refused, r"--model-size (llama2-)?7b requires base_num_decoder_layers=32, but .*/llama2 has base_num_decoder_layers=2")
            self.assertFalse((self.dir / name).exists())
            shown = self.muster("run", "python3", *words, check=0).stdout
            self.assertIn(f"load_parameters_path={self.dir}/{name}", shown)
            self.assertTrue((self.dir / name / "checkpoints/0").is_dir())
        # From Pax's layout to Transformer Engine's: there is one here.
        converter = ["run", "python", "converter/main.py", f"--input-path={self.dir}/pax", f"--output-path={self.dir}/te", "--fw=pax",
                     "--direction=fw2te", "--num-of-head=4", "--head-dim=4", "--mlp-intermediate-dim=44", "--skip-bias", "--weight-only",
                     "--use-gated-activations"]
        self.assertIn("--num-of-layer 32 requires base_num_decoder_layers=32, but", self.muster(*converter, "--num-of-layer=32", check=2).stderr)
        converted = self.muster(*converter, "--num-of-layer=2", check=0)
        self.assertIn("not used: --direction=fw2te, --fw=pax, --skip-bias, --weight-only;", converted.stderr)
        self.assertTrue((self.dir / "te/checkpoints/0").is_dir())
        self.muster("run", "python3", "MaxText/llama_mistral_mixtral_orbax_to_hf.py", "MaxText/configs/base.yml",
                    f"load_parameters_path={self.dir}/te", f"hf_model_path={self.dir}/hf", "model_name=llama2-7b", check=0)
        self.assertTrue((self.dir / "hf/model.safetensors").is_file())

    def test_decode_reads_the_runs_config(self):
        tiny = [word for word in TINY if not word.startswith("vocab_size")] + ["vocab_size=300"]
        run = [self.base_yml(), *tiny, "run_name=first", f"base_output_directory={self.dir}/out", "dataset_type=synthetic", "hardware=cpu"]
        trained = self.muster("run", "MaxText/train.py", *run, "steps=1", check=0)
        self.assertEqual(len(step_lines(trained.stdout)), 1)
        tokenizer = self.tokenizer()
        refused = self.muster("decode", "--run", self.dir / "out/first", "--prompt", "In the", check=2)
        self.assertIn("the run has no tokenizer (its tokenizer_path is empty): give --tokenizer FILE", refused.stderr)
        plain = self.muster("decode", "--run", self.dir / "out/first", "--prompt", "In the", "--tokenizer", tokenizer, check=0).stdout
        pasted = self.muster("run", "python3", "MaxText/decode.py", *run, f"tokenizer_path={tokenizer}", "prompt=In the", check=0).stdout
        self.assertEqual(pasted, plain)
        # Parameters of another run, as most of MaxText's lines have them.
        other = [word for word in run if not str(word).startswith("run_name")] + ["run_name=other", f"tokenizer_path={tokenizer}", "prompt=In the"]
        loaded = self.muster("run", "python3", "MaxText/decode.py", *other, f"load_parameters_path={self.dir}/out/first", check=0).stdout
        self.assertEqual(loaded, plain)
        self.assertIn(f"{self.dir}/nowhere", self.muster("run", "python3", "MaxText/decode.py", *other, f"load_parameters_path={self.dir}/nowhere", check=2).stderr)
        self.assertIn("no such folder", self.muster("decode", "--run", self.dir / "nowhere", "--prompt", "x", check=2).stderr)
        self.assertIn(f"--run {self.dir}/out/first", self.muster("decode", self.dir / "out/first", "--prompt", "x", check=2).stderr)

    def test_a_base_yml_of_ones_own(self):
        """A copy of base.yml as of a checkout of MaxText, with edits: they are listed, what is lost
        is named, and synthetic data opens no tokenizer.
        """
        base = self.dir / "MaxText/configs/base.yml"
        base.parent.mkdir(parents=True)
        text = (SOURCE / "configs/base.yml").read_text()
        for before, after in (('\ntokenizer_path: ""', '\ntokenizer_path: "assets/tokenizer.llama2"'), ('\ndataset_path: ""', '\ndataset_path: "/data/mine"'),
                              ("\ngcs_metrics: False", "\ngcs_metrics: True"), ("\nsteps: 150_001", "\nsteps: 2")):
            self.assertIn(before, text)
            text = text.replace(before, after)
        base.write_text(text)
        tiny = [word for word in TINY if not word.startswith("steps")]
        line = ["MaxText/configs/base.yml", *tiny, "run_name=own", "hardware=cpu", "enable_checkpointing=false"]
        shown = self.muster("config", "show", *line[:1], "run_name=own", "--changed", check=0)
        self.assertEqual({row.split(":")[0] for row in shown.stdout.splitlines() if row and row[0] not in "# "},
                         {"run_name", "steps", "gcs_metrics", "dataset_path"}, shown.stdout)
        run = self.muster("run", *line, check=0)
        self.assertEqual(len(step_lines(run.stdout)), 2, run.stdout)
        for part in ("dataset_path=/data/mine (MaxText/configs/base.yml:", "has no effect: dataset_type is synthetic (", "gcs_metrics=true ("):
            self.assertIn(part, run.stderr)

    def test_evaluation_without_training(self):
        """--mode=eval on the line of the training: the loss of its last evaluation, on any mesh,
        and no new checkpoint.
        """
        text = self.dir / "text.txt"
        text.write_text("".join(f"In the beginning was the word, number {i}.\n" for i in range(300)))
        self.muster("tokenize", "--text", text, "--tokenizer", self.tokenizer(), "--out", self.dir / "shards", check=0)
        tiny = [word for word in TINY if not word.startswith("vocab_size")] + ["vocab_size=300"]
        line = [self.base_yml(), *tiny, "dataset_type=shards", f"dataset_path={self.dir}/shards", "eval_holdout_fraction=0.1",
                f"base_output_directory={self.dir}/out", "run_name=first", "hardware=cpu"]
        trained = self.muster("run", *line, "steps=6", "checkpoint_period=3", "eval_interval=6", check=0).stdout
        loss = re.search(r"eval metrics after step: 5, loss=(\S+), total_weights=(\d+)", trained)
        steps = sorted(path.name for path in (self.dir / "out/first/checkpoints").iterdir())
        config = (self.dir / "out/first/config.json").read_text()
        for ranks in ("1", "2"):
            shown = self.muster("run", "MaxText/train.py", *line, "--mode=eval", "--ranks", ranks, check=0).stdout
            self.assertEqual(step_lines(shown), [], shown)
            self.assertIn(f"parameters are from {self.dir}/out/first/checkpoints/6\n", shown)
            self.assertIn(loss[0], shown)
            summary = re.search(r"summary: loss (\S+), perplexity (\S+) of ([\d,]+) tokens in \d+ batches", shown)
            self.assertAlmostEqual(float(summary[1]), float(loss[1]), delta=6e-4)
            self.assertAlmostEqual(math.log(float(summary[2])), float(summary[1]), delta=1e-3)
            self.assertEqual(summary[3].replace(",", ""), loss[2])
        self.assertEqual(sorted(path.name for path in (self.dir / "out/first/checkpoints").iterdir()), steps)
        self.assertEqual((self.dir / "out/first/config.json").read_text(), config)
        # Another checkpoint, a part of the data, and a run of another name.
        early = self.muster("run", *line[:-2], "run_name=other", "hardware=cpu", "eval_only=true", "eval_steps=1",
                            f"load_parameters_path={self.dir}/out/first/checkpoints/3", check=0).stdout
        self.assertRegex(early, r"eval metrics after step: 2, loss=\S+, total_weights=\d+\nsummary: .* tokens in 1 batch\n")
        self.assertFalse((self.dir / "out/other/checkpoints").exists())
        nowhere = self.muster("run", *line, "run_name=nowhere", "--mode=eval", check=2).stderr
        self.assertIn(f"eval_only=true evaluates the run nowhere, or load_parameters_path: {self.dir}/out/nowhere/checkpoints", nowhere)
        self.assertIn("eval_only=true", self.muster("run", self.base_yml(), *tiny, "run_name=first", "--mode=eval", check=2).stderr)

    def test_what_is_absent_names_what_there_is(self):
        shown = self.muster("config", "show", "python3", "MaxText/train_compile.py", "MaxText/configs/base.yml", "compile_topology=v5e-256", check=2)
        self.assertIn("muster run with the same words does what it does", shown.stderr)
        for line in (["CONFIG=GPT126M"], ["--module=text.gpt.c4_trainer", "--config=fuji-test"]):
            self.assertIn("--ranks", self.muster("run", *line, "--ranks", "0", check=2).stderr)
        decoded = self.muster("run", "CONFIG=LLaMA7B", "--mode=decode_once", check=2)
        self.assertIn("muster decode --run FOLDER", decoded.stderr)
        (self.dir / "text.txt").write_text("words")
        self.assertIn("text.txt is a file, not a model", self.muster("convert", self.dir / "text.txt", self.dir / "y", check=2).stderr)


if __name__ == "__main__":
    unittest.main()
