"""`muster convert` through the command line; with MUSTER_PEERS_PYTHON also compared with
transformers and torch.
"""
import json
import os
import pathlib
import shutil
import subprocess
import unittest

from harness import BIN, MusterTest, step_lines

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
HUGGING_FACE = GOLDEN / "hugging_face"
PEERS_PYTHON = os.environ.get("MUSTER_PEERS_PYTHON")

# Loads each folder as a user of transformers does, and compares its logits with a golden.
LOAD_IN_TRANSFORMERS = """
import json, sys, torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
for folder, tokens, expected in json.load(sys.stdin):
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    with torch.no_grad():
        logits = model(input_ids=torch.tensor(json.load(open(tokens)))).logits
    print(folder, type(model).__name__, (logits - load_file(expected)["logits"]).abs().max().item(), flush=True)
"""
TOKENIZE_IN_TRANSFORMERS = """
import json, sys, sentencepiece
from transformers import AutoTokenizer, LlamaTokenizer
folder, model, text = json.load(sys.stdin)
pieces = sentencepiece.SentencePieceProcessor(model_file=model)
for tokenizer in (LlamaTokenizer.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)):
    ids = tokenizer(text)["input_ids"]
    assert ids == [pieces.bos_id()] + pieces.encode(text), (type(tokenizer), ids, pieces.encode(text))
    assert tokenizer.decode(ids[1:]) == text, tokenizer.decode(ids)
"""


class Convert(MusterTest):
    def convert(self, *words, check=0):
        return self.muster("convert", *words, check=check)

    def test_round_trip(self):
        ours, theirs = self.dir / "ours", self.dir / "theirs"
        printed = json.loads(self.convert(HUGGING_FACE / "mistral", ours, "--json").stdout)
        self.assertEqual((printed["from_format"], printed["to_format"], printed["parameters"]), ("hf", "muster", 7024))
        result = self.convert(ours, theirs, "--dtype", "bfloat16", "--max-shard-size", "8KB")
        self.assertIn("7.02k parameters in bfloat16", result.stdout)
        self.assertEqual(sorted(p.name for p in theirs.glob("*.safetensors")),
                         [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)])
        config = json.loads((theirs / "config.json").read_text())
        self.assertEqual(config["architectures"], ["MistralForCausalLM"])
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), ["ours", "theirs"])

    def test_run_starts_from_loaded_parameters(self):
        # The golden's model in MaxText's keys.
        model = ["override_model_config=true", "base_emb_dim=16", "base_num_decoder_layers=2", "base_num_query_heads=4",
                 "base_num_kv_heads=4", "head_dim=8", "base_mlp_dim=28", "vocab_size=37", "normalization_layer_epsilon=0.01",
                 "logits_via_embedding=false", "learning_rate=0", "steps=2"]
        ours = self.dir / "ours"
        self.convert(HUGGING_FACE / "llama_mha", ours)
        losses = set()
        for name, path in (("a", ours), ("b", HUGGING_FACE / "llama_mha"), ("c", "")):
            result = self.muster(*self.run_args(name, *model, f"load_parameters_path={path}", ranks=2), check=0)
            self.assertEqual("parameters are from" in result.stdout, bool(path), result.stdout)
            back = self.dir / f"{name}-hf"
            self.convert(self.dir / "out" / name, back)
            losses.add((back / "model.safetensors").read_bytes())
        # one result for loaded and one for drawn parameters, which a learning rate of 0 leaves
        # unchanged
        self.assertEqual(len(losses), 2)
        again = self.muster(*self.run_args("d", *model, "base_mlp_dim=32", f"load_parameters_path={ours}", ranks=1), check=2)
        self.assertIn("tensor model.layers.0.mlp.gate_proj.weight has the shape [28, 16] there and [32, 16]", again.stderr)

    def test_bad_input(self):
        golden, out = HUGGING_FACE / "gpt2", self.dir / "out"
        for words, complaint in (
                ((self.dir, out), "no model is there"),
                ((golden, out, "--dtype", "int8"), "--dtype"),
                ((golden, out, "--max-shard-size", "much"), "--max-shard-size is \"much\""),
                ((golden, out, "--tokenizer", golden / "config.json"), "is not a SentencePiece model"),
                ((golden, self.dir), "is there already"),
                ((golden,), "to is required"),
        ):
            (self.dir / "something").touch()
            self.assertIn(complaint, self.convert(*words, check=2).stderr)
            self.assertEqual([p.name for p in self.dir.iterdir()], ["something"])

    def test_unused_tensors_are_an_error(self):
        folder = self.dir / "model"
        shutil.copytree(HUGGING_FACE / "llama_gqa", folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
        refused = self.convert(folder, self.dir / "out", check=2).stderr
        self.assertIn("9 of 21 tensors are not used by the model that config.json describes: model.layers.1.", refused)
        self.assertIn('"num_hidden_layers": 2 would use 9 of them', refused)
        self.assertFalse((self.dir / "out").exists())
        printed = self.convert(folder, self.dir / "out", "--allow-unused")
        self.assertIn("tensors: 12 used; 9 left out (--allow-unused)\n", printed.stdout)
        self.assertIn("left out, as --allow-unused permits", printed.stderr)
        (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n")
        self.assertIn("this is a Git LFS pointer: run git lfs pull", self.convert(folder, self.dir / "b", check=2).stderr)

    def test_output_disk_is_full(self):
        small = self.dir / "small"
        small.mkdir()
        # Writes fail as on a full disk, but with another error.
        result = subprocess.run(["bash", "-c", f"ulimit -f 8; exec {BIN}/muster convert {HUGGING_FACE}/llama_mha {small}/out"],
                                capture_output=True, text=True, env=self.env)
        self.assertIn(result.returncode, (1, 2), result.stderr)
        self.assertRegex(result.stderr, r"File too large \(ulimit -f allows \d+ KiB\)")
        self.assertEqual(list(small.iterdir()), [])

    def run_peer(self, program, given):
        result = subprocess.run([PEERS_PYTHON, "-c", program], input=json.dumps(given), capture_output=True, text=True,
                                env={**self.env, "HF_HUB_OFFLINE": "1"}, timeout=900)
        self.assertEqual(result.returncode, 0, result.stderr[-3000:])
        return result.stdout

    def test_paxs_llama_line_trains_from_metas_files(self):
        """Pax's LLaMA has the other order of RoPE's pairs than a conversion.

        The loss shows that both mean the same.
        """
        self.convert(GOLDEN / "meta" / "llama2", self.dir / "m2")
        pax = self.muster("run", "CONFIG=LLaMA7B", "PREC=float32", f"CHECKPOINT_RESTORE_PATH={self.dir}/m2", f"LOG_DIR={self.dir}/pax",
                          "--fdl.VOCAB_SIZE=38", "--fdl.HIDDEN_DIMS=44", "--fdl.NUM_LAYERS=2", "--fdl.NUM_HEADS=4",
                          "--fdl.NUM_KV_HEADS=4", "--fdl.DIMS_PER_HEAD=4", "--fdl.MODEL_DIMS=16", "--fdl.MAX_SEQ_LEN=11",
                          "--fdl.PERCORE_BATCH_SIZE=16", "--fdl.MAX_STEPS=1", "--ranks", "1", check=0).stdout
        self.assertIn("the rows of queries and keys are reordered while they are read", pax)
        sizes = ["override_model_config=true", "decoder_block=llama2", "base_emb_dim=16", "base_num_query_heads=4",
                 "base_num_kv_heads=4", "head_dim=4", "base_mlp_dim=44", "base_num_decoder_layers=2", "vocab_size=38",
                 "logits_via_embedding=False", "max_target_length=11", "per_device_batch_size=16", "steps=1", "dtype=float32"]
        losses = [step_lines(pax)[0][1]]
        for position_type in ("rope", "rope_interleaved"):
            out = self.muster("run", self.base_yml(), *sizes, f"position_type={position_type}", f"load_parameters_path={self.dir}/m2",
                              f"base_output_directory={self.dir}/out", f"run_name={position_type}", check=0).stdout
            self.assertEqual("rows of queries and keys are reordered" in out, position_type == "rope_interleaved", out)
            losses.append(step_lines(out)[0][1])
        self.assertEqual(len(set(losses)), 1, losses)
        # The Pax run's own checkpoint goes back to a folder for transformers, in their order.
        self.convert(self.dir / "pax", self.dir / "hf")

    @unittest.skipUnless(PEERS_PYTHON, "MUSTER_PEERS_PYTHON is not set")
    def test_transformers_computes_the_same_logits(self):
        given = []
        for golden in sorted(HUGGING_FACE.iterdir()):
            self.convert(golden, self.dir / f"{golden.name}-ours")
            self.convert(self.dir / f"{golden.name}-ours", self.dir / golden.name, "--max-shard-size", "12KB")
            given.append((str(self.dir / golden.name), str(golden / "tokens.json"), str(golden / "step.safetensors")))
        for golden in ("llama2", "llama3"):
            self.convert(GOLDEN / "meta" / golden, self.dir / golden, "--to", "hf")
            given.append((str(self.dir / golden), str(GOLDEN / "meta" / golden / "tokens.json"),
                          str(GOLDEN / "meta" / golden / "logits.safetensors")))
        lines = self.run_peer(LOAD_IN_TRANSFORMERS, given).split("\n")[:-1]
        self.assertEqual(len(lines), len(given))
        for line in lines:
            self.assertLess(float(line.split()[2]), 1e-4, line)

    @unittest.skipUnless(PEERS_PYTHON, "MUSTER_PEERS_PYTHON is not set")
    def test_transformers_reads_the_tokenizer(self):
        text, model = self.dir / "text.txt", self.dir / "t.model"
        text.write_text("".join(f"In the beginning was the word, number {i}.\n" for i in range(300)))
        self.muster("train-tokenizer", "--text", text, "--vocab-size", "300", "--out", model, check=0)
        self.muster(*self.run_args("spoken", "steps=1", "vocab_size=300", f"tokenizer_path={model}", ranks=1), check=0)
        self.convert(self.dir / "out" / "spoken", self.dir / "hf")
        self.run_peer(TOKENIZE_IN_TRANSFORMERS, (str(self.dir / "hf"), str(model), "the beginning, the number 7"))


if __name__ == "__main__":
    unittest.main()
