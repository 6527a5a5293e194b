"""Preference tuning through the command line: from pairs to a tuned model."""
import json
import os
import re
import signal

from harness import BIN, TINY, MusterTest, wait_until
from test_fine_tuning import MEANINGS, RESTORED, checkpoint_hashes


class Preferences(MusterTest):
    def setUp(self):
        super().setUp()
        lines = "".join(f"{question}: {answer}\n" * 40 for question, answer in MEANINGS.items())
        (self.dir / "text.txt").write_text(lines)
        self.muster("train-tokenizer", "--text", self.dir / "text.txt", "--vocab-size", "300", "--fewer-ok", "--out", self.dir / "tok", check=0)
        answers = list(MEANINGS.values())
        self.pairs = self.dir / "pairs.jsonl"
        self.pairs.write_text("".join(json.dumps({
            "prompt": f"{question}:", "chosen": f" {answer}", "rejected": f" {answers[(answers.index(answer) + 1) % len(answers)]}"}) + "\n"
            for question, answer in list(MEANINGS.items()) * 12))

    def tokenize(self, *more, check=0):
        return self.muster("tokenize", "--dpo", "--text", self.pairs, "--tokenizer", self.dir / "tok.model", "--out", self.dir / "pairs", *more, check=check)

    def run_words(self, name, *settings, ranks):
        return ["run", self.base_yml(), f"run_name={name}", f"base_output_directory={self.dir}/out", *TINY, "vocab_size=304", "max_target_length=64",
                "dataset_type=shards", f"dataset_path={self.dir}/pairs", "use_dpo=True", *settings, "--ranks", str(ranks)]

    def test_pairs_are_learned_and_the_best_checkpoint_is_kept(self):
        self.tokenize()
        refused = self.muster(*[word for word in self.run_words("plain", "steps=2", ranks=1) if word != "use_dpo=True"])
        self.assertIn("set use_dpo=True", refused.stdout + refused.stderr)
        done = self.muster(*self.run_words("learned", "steps=40", "learning_rate=5e-3", "ici_fsdp_parallelism=2", f"eval_dataset_path={self.dir}/pairs",
                                           "eval_interval=10", "keep_best_checkpoint=True", "early_stopping_patience=3", ranks=2), check=0)
        accuracies = [float(value) for value in re.findall(r"^preferences after step: .* rewards/accuracies=([0-9.]+)", done.stdout, re.M)]
        self.assertEqual(accuracies[0], 0)  # policy and reference model are equal
        self.assertEqual(accuracies[-1], 1, accuracies)
        best = int(re.findall(r"^best loss: \S+ after step (\d+)", done.stdout, re.M)[-1]) + 1
        manifest = json.loads((self.dir / f"out/learned/checkpoints/{best}/manifest.json").read_text())
        self.assertEqual(manifest["evaluation"]["best_step"], best)
        of_best = ["--run", self.dir / "out/learned/best", "--tokenizer", self.dir / "tok.model"]
        decoded = json.loads(self.muster("decode", *of_best, "--prompt", f"{next(iter(MEANINGS))}:", "--max-tokens", 4, "--json", check=0).stdout)
        self.assertEqual(decoded["checkpoint"], str(self.dir / f"out/learned/checkpoints/{best}"))
        (self.dir / "task.jsonl").write_text("".join(json.dumps({"context": f"{question}:", "continuation": f" {answer}"}) + "\n"
                                                     for question, answer in MEANINGS.items()))
        evaluated = self.muster("eval", *of_best, "--task", f"loglikelihood={self.dir}/task.jsonl", "--hardware", "cpu", check=0)
        self.assertRegex(evaluated.stdout, r"(?m)^loglikelihood +acc +")
        self.muster("convert", self.dir / "out/learned/best", self.dir / "converted", check=0)

    def test_bad_pairs_are_named(self):
        with self.pairs.open("a") as file:
            file.write('{"prompt": "alone", "chosen": "yes"}\n')
        self.assertRegex(self.tokenize(check=2).stderr, r'pairs\.jsonl:49 \(byte \d+\) has no field "rejected"')
        self.assertRegex(self.tokenize("--bad-documents", "skip").stdout, r"skipped: 1 document\n  \S+pairs\.jsonl:49 ")
        plain = self.muster("tokenize", "--bos", "--text", self.pairs, "--tokenizer", self.dir / "tok.model", "--out", self.dir / "x")
        self.assertIn("--bos is for samples: it requires --sft or --dpo", plain.stderr)

    def test_a_killed_rank_changes_no_bit(self):
        self.tokenize()
        settings = ["ici_fsdp_parallelism=2", "ici_tensor_parallelism=2", "learning_rate_schedule_steps=1000000", "checkpoint_period=10"]
        run = self.start(BIN / "muster", *self.run_words("disturbed", "steps=1000000", *settings, ranks=4))
        self.wait_for_step(run, 25)
        os.kill(self.ranks_of_test()[1], signal.SIGKILL)
        wait_until(lambda: re.search(RESTORED, self.output(run), re.M), 60, "attempt 2")
        last = int(re.search(RESTORED, self.output(run), re.M)[1]) + 10
        folder = self.dir / "out/disturbed/checkpoints"
        wait_until(lambda: (folder / str(last) / "manifest.json").exists(), 60, "a checkpoint of attempt 2")
        os.kill(run.pid, signal.SIGINT)
        run.wait(timeout=60)
        self.muster(*self.run_words("undisturbed", f"steps={last}", *settings, ranks=4), check=0)
        self.assertEqual(checkpoint_hashes(folder / str(last)), checkpoint_hashes(self.dir / f"out/undisturbed/checkpoints/{last}"))
