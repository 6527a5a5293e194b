"""`muster debug step` through the command line: the trainer's tensors, compared with those of
transformers.
"""
import json
import math
import pathlib
import struct
import unittest

from harness import MusterTest

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "hugging_face"


def tensor_names(path):
    with open(path, "rb") as file:
        length, = struct.unpack("<Q", file.read(8))
        return set(json.loads(file.read(length))) - {"__metadata__"}


class DebugStep(MusterTest):
    def step(self, *words, check=0):
        return self.muster("debug", "step", *words, check=check)

    def test_writes_the_tensors_of_a_step(self):
        for family in ("llama_gqa", "gpt2"):
            folder, out = GOLDEN / family, self.dir / f"{family}.safetensors"
            result = self.step(folder, "--tokens", folder / "tokens.json", "--out", out, "--json", "learning_rate=1e-3")
            printed = json.loads(result.stdout)
            self.assertTrue(math.isfinite(printed["loss"]) and printed["gradient_norm"] > 0, printed)
            expected = {n for n in tensor_names(folder / "step.safetensors") if not n.startswith("param10.")}
            self.assertEqual(tensor_names(out), expected)

    def test_in_bfloat16(self):
        folder, losses = GOLDEN / "llama_gqa", []
        for dtype in ("float32", "bfloat16"):
            result = self.step(folder, "--tokens", folder / "tokens.json", "--out", self.dir / "step.safetensors", "--json",
                               f"dtype={dtype}")
            losses.append(json.loads(result.stdout)["loss"])
        self.assertNotEqual(*losses)
        self.assertAlmostEqual(*losses, delta=0.02)

    def test_accepts_the_checkpoint_of_a_run(self):
        self.muster(*self.run_args("debugged", "steps=2", ranks=1), check=0)
        tokens, out = self.dir / "tokens.json", self.dir / "step.safetensors"
        tokens.write_text("[[1, 2, 3], [4, 5, 6]]")
        result = self.step(self.dir / "out" / "debugged" / "checkpoints", "--tokens", tokens, "--out", out)
        self.assertIn("gradient norm", result.stdout)
        self.assertIn("grad.model.layers.0.self_attn.q_proj.weight", tensor_names(out))

    def test_bad_input_writes_nothing(self):
        folder, out = GOLDEN / "gemma", self.dir / "step.safetensors"
        for words, complaint in (
                (("steps=3",), "steps does not affect a single step"),
                (("lerning_rate=1",), "did you mean learning_rate?"),
                (("learning_rate=fast",), "learning_rate=fast"),
        ):
            result = self.step(folder, "--tokens", folder / "tokens.json", "--out", out, *words, check=2)
            self.assertIn(complaint, result.stderr)
            self.assertFalse(out.exists())


if __name__ == "__main__":
    unittest.main()
