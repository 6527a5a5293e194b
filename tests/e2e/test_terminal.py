"""Progress bars and escapes on a terminal, and their absence on a pipe."""
import random
import unittest

from harness import BIN, MusterTest, drawn_bars, step_lines


def sample_text(lines):
    noise = random.Random(11)
    words = ["".join(noise.choices("etaoinshrdlu", k=noise.randrange(2, 9))) for _ in range(1000)]
    return "".join(" ".join(noise.choices(words, k=8)) + "\n" for _ in range(lines))


class ProgressBars(MusterTest):
    def assert_fit(self, written, columns):
        bars = drawn_bars(written)
        self.assertTrue(bars, written)
        for bar in bars:
            self.assertLess(len(bar), columns, bar)
        return bars

    def test_text_commands(self):
        text = self.dir / "text.txt"
        text.write_text(sample_text(40_000))
        for columns in (40, 60, 200):
            train = ["train-tokenizer", "--text", text, "--vocab-size", 600, "--out", self.dir / "tok"]
            code, written = self.on_terminal(BIN / "muster", *train, columns=columns)
            self.assertEqual(code, 0, written)
            bars = self.assert_fit(written, columns)
            self.assertRegex("\n".join(bars), r"(?m)^merging .* +\d+%  \d+s")
            if columns == 200:
                self.assertRegex("\n".join(bars), r"(?m)^merging \[[# ]{16}\] .*  \d+ of \d+ pieces$")
            tokenize = ["tokenize", "--text", text, "--tokenizer", self.dir / "tok.model", "--out", self.dir / "shards"]
            code, written = self.on_terminal(BIN / "muster", *tokenize, columns=columns)
            self.assertEqual(code, 0, written)
            self.assert_fit(written, columns)
        piped = self.muster(*tokenize, check=0)
        self.assertNotIn("\x1b", piped.stdout + piped.stderr)

    def test_run(self):
        for columns in (30, 60, 200):
            args = self.run_args(f"wide{columns}", "steps=300", "log_period=10", "enable_checkpointing=false", ranks=2)
            code, written = self.on_terminal(BIN / "muster", *args, columns=columns)
            self.assertEqual(code, 0, written)
            bars = self.assert_fit(written, columns)
            if columns >= 60:
                self.assertRegex("\n".join(bars), r"(?m)^step \d+/300 .*\d+%  \d+s, \d+s left")
            # Every line of the ranks stands alone, regardless of the bars drawn between them.
            lines = written.decode().replace("\r\x1b[2K", "\n").replace("\r\n", "\n")
            steps = [step for step, _ in step_lines(lines)]
            self.assertEqual(steps[:5], list(range(5)))
            self.assertEqual(steps, sorted(set(steps)))
            self.assertEqual(steps[-1], 299)
            # The steps are faster than a person reads: some are shown, with the way to all.
            self.assertEqual(lines.count("a file or pipe gets all"), 1 if len(steps) < 300 else 0)
            self.assertLess(len(steps), 250)
        piped = self.muster(*self.run_args("piped", "steps=300", "log_period=100", "enable_checkpointing=false", ranks=2), check=0)
        self.assertEqual([step for step, _ in step_lines(piped.stdout)], list(range(300)))


class Decode(MusterTest):
    def test_control_characters_are_shown_on_a_terminal_and_kept_in_a_pipe(self):
        text = self.dir / "text.txt"
        text.write_text(sample_text(500))
        model = self.dir / "tok.model"
        self.muster("train-tokenizer", "--text", text, "--vocab-size", 320, "--out", model, check=0)
        self.muster("tokenize", "--text", text, "--tokenizer", model, "--out", self.dir / "shards", check=0)
        args = [a if a != "dataset_type=synthetic" else "dataset_type=shards" for a in
                self.run_args("speaks", "steps=2", "vocab_size=320", f"dataset_path={self.dir}/shards",
                              f"tokenizer_path={model}", ranks=1)]
        self.muster(*args, check=0)
        prompt = "a\tb \x1b[31m\x07 \u009b31m ž"
        decode = ["decode", "--run", self.dir / "out/speaks", "--prompt", prompt, "--max-tokens", 4]
        piped = self.muster(*decode, check=0).stdout
        self.assertIn(f"Input `{prompt}` -> `", piped)
        code, written = self.on_terminal(BIN / "muster", *decode)
        self.assertEqual(code, 0, written)
        self.assertIn("Input `a\tb \\x1b[31m\\x07 \\x9b31m ž` -> `".encode(), written)
        self.assertNotIn(b"\x1b", written)


if __name__ == "__main__":
    unittest.main()
