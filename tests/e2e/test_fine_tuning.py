"""Supervised fine-tuning through the command line: from conversations to a trained model."""
import hashlib
import json
import os
import re
import signal

from harness import BIN, SOURCE, TINY, MusterTest, step_lines, wait_until

RESTORED = r"^restored checkpoint \S+/(\d+): "
MEANINGS = {"a sunny day": "warm", "a cloudy day": "mild", "a snowy day": "cold", "a rainy day": "wet"}


def checkpoint_hashes(folder):
    """{file name: SHA-256} of the tensors of one checkpoint."""
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(folder.glob("*.safetensors"))}


class FineTuning(MusterTest):
    def setUp(self):
        super().setUp()
        lines = "".join(f"<|user|> {question} <|assistant|> {answer} </s>\n" * 40 for question, answer in MEANINGS.items())
        (self.dir / "text.txt").write_text(lines)
        self.muster("train-tokenizer", "--text", self.dir / "text.txt", "--vocab-size", "300", "--fewer-ok", "--out", self.dir / "tok", check=0)
        (self.dir / "tokenizer_config.json").write_text(json.dumps({
            "bos_token": "<s>", "eos_token": "</s>", "chat_template": (SOURCE / "tests/golden/chat/zephyr.jinja").read_text()}))
        self.chats = self.dir / "chats.jsonl"
        self.chats.write_text("".join(json.dumps({"messages": [
            {"role": "user", "content": question}, {"role": "assistant", "content": answer}]}) + "\n"
            for question, answer in list(MEANINGS.items()) * 12))

    def tokenize(self, *more, check=0):
        return self.muster("tokenize", "--sft", "--text", self.chats, "--tokenizer", self.dir / "tok.model", "--out", self.dir / "sft", *more, check=check)

    def run_words(self, name, *settings, ranks):
        return ["run", self.base_yml(), f"run_name={name}", f"base_output_directory={self.dir}/out", *TINY, "vocab_size=304", "dataset_type=shards",
                f"dataset_path={self.dir}/sft", "use_sft=True", *settings, "--ranks", str(ranks)]

    def test_conversations_are_learned(self):
        report = self.tokenize().stdout
        self.assertIn(f"chat template: chat_template of {self.dir}/tokenizer_config.json", report)
        refused = self.muster(*[word for word in self.run_words("plain", "steps=2", ranks=1) if word != "use_sft=True"])
        self.assertIn("set use_sft=True", refused.stdout + refused.stderr)
        done = self.muster(*self.run_words("learned", "steps=60", "learning_rate=5e-3", ranks=2), check=0)
        self.assertRegex(done.stdout, r"the data set in \S+/sft: 48 samples in \d+ sequences of 32 tokens, \d+\.\d% full")
        losses = [float(loss) for _, loss in step_lines(done.stdout)]
        self.assertLess(losses[-1], 0.1, losses)
        self.assertGreater(losses[0], 2)

    def test_bad_lines_are_named_or_skipped(self):
        with self.chats.open("a") as file:
            file.write('{"messages": [{"role": "user", "content": "alone"}]}\n')
        self.assertRegex(self.tokenize(check=2).stderr, r'chats\.jsonl:49 \(byte \d+\) has no completion: no message has the role "assistant"')
        report = self.tokenize("--bad-documents", "skip").stdout
        self.assertRegex(report, r"skipped: 1 document\n  \S+chats\.jsonl:49 ")

    def test_a_killed_rank_changes_no_bit(self):
        self.tokenize()
        settings = ["ici_fsdp_parallelism=2", "ici_tensor_parallelism=2", "learning_rate_schedule_steps=1000000", "checkpoint_period=20"]
        run = self.start(BIN / "muster", *self.run_words("disturbed", "steps=1000000", *settings, ranks=4))
        self.wait_for_step(run, 50)
        os.kill(self.ranks_of_test()[1], signal.SIGKILL)
        wait_until(lambda: re.search(RESTORED, self.output(run), re.M), 60, "attempt 2")
        restored = int(re.search(RESTORED, self.output(run), re.M)[1])
        folder = self.dir / "out/disturbed/checkpoints"
        wait_until(lambda: (folder / str(restored + 20) / "manifest.json").exists(), 60, "a checkpoint of attempt 2")
        os.kill(run.pid, signal.SIGINT)
        run.wait(timeout=60)
        last = restored + 20
        self.muster(*self.run_words("undisturbed", f"steps={last}", *settings, ranks=4), check=0)
        self.assertEqual(checkpoint_hashes(folder / str(last)), checkpoint_hashes(self.dir / f"out/undisturbed/checkpoints/{last}"))
