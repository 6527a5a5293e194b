"""deploy/quickstart.sh with the programs of this build: a full run, a second run, other options,
and Ctrl-C.
"""
import os
import random
import re
import signal
import subprocess
import unittest

from harness import BIN, SOURCE, MusterTest, step_lines, wait_gone, wait_until

# Varied enough that pieces of a small vocabulary do not cover whole lines, and far too small for
# 4096 pieces.
NAMES = ["Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald", "Frances", "Niklaus"]
VERBS = ["waits for", "answers", "writes to", "forgets", "finds", "teaches"]
TEXT_LINES = 400


def small_text(seed):
    noise = random.Random(seed)
    return "".join(f"{noise.choice(NAMES)} {noise.choice(VERBS)} {noise.choice(NAMES)}, and then the mesh continues.\n"
                   for _ in range(TEXT_LINES))


class Quickstart(MusterTest):
    def setUp(self):
        super().setUp()
        self.text = self.dir / "text.txt"
        self.text.write_text(small_text(1))

    def words(self, *more, text=None, steps=30):
        return [SOURCE / "deploy/quickstart.sh", "--bin", BIN, "--text", text or self.text, "--ranks", 2, "--steps", steps,
                "--out", self.dir / "out", *more]

    def quickstart(self, *args, check, **kwargs):
        process = self.start(*self.words(*args, **kwargs))
        code = process.wait(timeout=150)
        output = self.output(process)
        self.assertEqual(code, check, output)
        return output

    def test_trains_resumes_and_decodes_and_a_second_call_has_nothing_to_do(self):
        first = self.quickstart(check=0)
        entropy = float(re.search(r"^unigram entropy of the corpus: (\d+\.\d+) nats", first, re.M)[1])
        loss = float(re.search(r"^training loss at step 32: +(\d+\.\d+) nats", first, re.M)[1])
        self.assertLess(loss, entropy)
        self.assertIn("resuming from the checkpoint of step 30 for 3 more steps", first)
        self.assertIn("Input `In the beginning` -> `", first)
        again = self.quickstart(check=0)
        self.assertEqual(step_lines(again), [], "trained again")
        self.assertNotIn("pieces from", again, "trained the tokenizer again")
        self.assertIn("nats per token\n", again)
        other = self.dir / "other.txt"
        other.write_text(small_text(2))
        self.assertIn("made from another text", self.quickstart(text=other, check=2))
        self.assertIn("made with --ranks 2", self.quickstart("--ranks", 4, check=2))
        self.assertIn("made with --steps 30", self.quickstart("--steps", 40, check=2))

    def test_text_shorter_than_one_sample_is_refused(self):
        tiny = self.dir / "tiny.txt"
        tiny.write_text("One line.\n")
        self.assertRegex(self.quickstart(text=tiny, check=2), r"tiny.txt is too small: it has \d+ tokens")

    def test_ctrl_c_leaves_a_checkpoint_and_no_process_and_the_next_call_resumes(self):
        process = self.start(*self.words(steps=100_000))

        def training():
            self.assertIsNone(process.poll(), self.output(process))
            return len(step_lines(self.output(process))) > 11
        wait_until(training, 60, "training")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        self.assertNotEqual(process.wait(timeout=20), 0, self.output(process))
        self.assertEqual(wait_gone(self.mark, 30), [])
        saved = [int(path.name) for path in (self.dir / "out/model/checkpoints").iterdir() if path.name.isdigit()]
        self.assertTrue(saved and max(saved) > 10, f"no checkpoint of the last step: {saved}")
        again = self.start(*self.words(steps=100_000))
        wait_until(lambda: step_lines(self.output(again)) or again.poll() is not None, 60, "the second call's training")
        self.assertGreaterEqual(step_lines(self.output(again))[0][0], max(saved), self.output(again))
        os.killpg(again.pid, signal.SIGINT)
        again.wait(timeout=20)

    def test_progress_reads_a_line_that_is_written_in_two_parts(self):
        printed = "printf '10 181 a\\n1'; sleep 2.5; printf '08 181 b\\n'; sleep 9; printf '109 181 c\\n'"
        shown = subprocess.run(["bash", "-c", f"set -euo pipefail; . {SOURCE}/deploy/progress.sh; ({printed}) | progress build"],
                               capture_output=True, text=True, timeout=60)
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        self.assertRegex(shown.stdout, r"^build: (59|60)%  1\ds, \ds left  [bc]\n")

    def test_bad_options_are_named(self):
        for args, words in ((["--rank", 2], "unknown argument '--rank'"), (["--steps", "many"], "--steps many"),
                            (["--bin", self.dir], "no program muster"), (["--text", self.dir / "none"], "none: there is no such file")):
            self.assertIn(words, self.quickstart(*args, check=2))


if __name__ == "__main__":
    unittest.main()
