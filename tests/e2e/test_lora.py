"""LoRA through the command line: pre-train, adapt, kill and resume, merge, exchange with PEFT. With
MUSTER_PEERS_PYTHON also compared with PEFT.
"""
import json
import os
import pathlib
import re
import signal
import subprocess

from harness import MusterTest, step_lines

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"
PEERS_PYTHON = os.environ.get("MUSTER_PEERS_PYTHON")
# A Llama with grouped heads.
MODEL = ["override_model_config=true", "decoder_block=llama2", "base_emb_dim=32", "base_num_decoder_layers=2", "base_num_query_heads=4",
         "base_num_kv_heads=2", "head_dim=8", "base_mlp_dim=48", "vocab_size=64", "logits_via_embedding=false", "max_target_length=16",
         "per_device_batch_size=4", "dataset_type=synthetic", "dtype=float32"]
LORA = ["enable_lora=true", "lora_rank=4", "lora_alpha=8"]
# Prints the largest difference between the logits of adapters in PEFT and those of merged weights.
COMPARE_WITH_PEFT = """
import json, sys, torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
base, adapter, merged = json.load(sys.stdin)
load = lambda folder: AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
tokens = torch.randint(0, 64, (2, 12), generator=torch.Generator().manual_seed(1))
with torch.no_grad():
    plain = load(base)(input_ids=tokens).logits
    model = PeftModel.from_pretrained(load(base), adapter).eval()
    adapted = model(input_ids=tokens).logits
    ours = load(merged)(input_ids=tokens).logits
print(json.dumps([(adapted - ours).abs().max().item(), (adapted - plain).abs().max().item()]))
"""


def tensors_of(folder):
    """Returns the tensors of a Hugging Face folder or of PEFT as bytes."""
    found = {}
    for path in pathlib.Path(folder).glob("*.safetensors"):
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        for name, entry in json.loads(content[8:8 + length]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                found[name] = content[8 + length + begin:8 + length + end]
    return found


def step_losses(text):
    return [(step, float(loss)) for step, loss in step_lines(text)]


class Lora(MusterTest):
    def train(self, name, *words, ranks=1, check=0, **options):
        return self.muster(*self.run_args(name, *MODEL, *words, ranks=ranks), check=check, **options)

    def pretrain(self):
        self.train("base", "steps=3", "learning_rate=0.01")
        return self.dir / "out" / "base"

    def test_adapters_of_a_run(self):
        base = self.pretrain()
        words = [*LORA, f"load_parameters_path={base}", "learning_rate=0.02", "warmup_steps_fraction=0", "checkpoint_period=4"]
        adapted = self.train("adapted", *words, "steps=8")
        parameters = 4 * 2 * (32 + 32 + 32 + 16 + 32 + 16 + 32 + 32 + 3 * (32 + 48))
        self.assertIn(f"trained: adapters of {parameters:,} parameters", adapted.stdout)
        losses = [loss for _, loss in step_losses(adapted.stdout)]
        self.assertLess(losses[-1], losses[0])
        # A checkpoint has the adapters alone.
        manifest = json.loads((self.dir / "out/adapted/checkpoints/8/manifest.json").read_text())
        self.assertEqual(len(manifest["tensors"]["model"]), 2 * 7 * 2)
        self.assertEqual(len(manifest["tensors"]["optimizer"]), 2 * 2 * 7 * 2)
        self.assertRegex(manifest["base_hash"], "^[0-9a-f]{16}$")
        # A run that stops in the middle resumes with the same bits, also on another mesh.
        self.train("resumed", *words, "steps=4", "learning_rate_schedule_steps=8")
        again = self.train("resumed", *words, "steps=8")
        self.assertEqual(step_losses(again.stdout), step_losses(adapted.stdout)[4:])
        files = [sorted((self.dir / f"out/{name}/checkpoints/8").glob("model-*.safetensors")) for name in ("adapted", "resumed")]
        self.assertEqual(*[[path.read_bytes() for path in each] for each in files])
        for number, mesh in enumerate((["ici_fsdp_parallelism=2"], ["ici_fsdp_parallelism=1", "ici_tensor_parallelism=2"],
                                       ["ici_fsdp_parallelism=1", "ici_pipeline_parallelism=2"])):
            meshed = self.train(f"mesh{number}", *words, "steps=8", "per_device_batch_size=2", *mesh, ranks=2)
            for ours, theirs in zip(step_losses(meshed.stdout), step_losses(adapted.stdout)):
                self.assertAlmostEqual(ours[1], theirs[1], places=3)
        self.merge_and_exchange(base, self.dir / "out/adapted", losses)

    def merge_and_exchange(self, base, adapted, losses):
        hf, merged, peft = self.dir / "base-hf", self.dir / "merged-hf", self.dir / "peft"
        self.muster("convert", base, hf, check=0)
        printed = self.muster("convert", adapted, merged, check=0)
        self.assertIn("are merged into", printed.stderr)
        exported = json.loads(self.muster("convert", adapted, peft, "--to", "peft", "--json", "--base", hf, check=0).stdout)
        self.assertEqual(exported["to_format"], "peft")
        self.assertEqual(sorted(path.name for path in peft.iterdir()), ["adapter_config.json", "adapter_model.safetensors"])
        config = json.loads((peft / "adapter_config.json").read_text())
        self.assertEqual((config["r"], config["lora_alpha"], config["base_model_name_or_path"]), (4, 8, str(hf)))
        # Only the projections differ from the base, and PEFT's folder merges to the same.
        before, after = tensors_of(hf), tensors_of(merged)
        self.assertEqual({name for name in before if before[name] != after[name]}, {name for name in before if "_proj" in name})
        self.muster("convert", peft, self.dir / "merged-again", "--to", "hf", check=0)
        self.assertEqual(tensors_of(self.dir / "merged-again"), after)
        # Training continues from PEFT's folder, and a merged model is a base like others.
        words = ["steps=1", "learning_rate=0", "warmup_steps_fraction=0"]
        first = [step_losses(self.train(name, *words, *more).stdout)[0][1] for name, more in (
            ("from-peft", [*LORA, f"load_parameters_path={hf}", f"lora_restore_path={peft}"]),
            ("from-run", [*LORA, f"load_parameters_path={base}", f"lora_restore_path={adapted}"]),
            ("from-merged", [f"load_parameters_path={adapted}"]), ("from-folder", [f"load_parameters_path={peft}"]),
            ("on-merged", [*LORA, f"load_parameters_path={merged}"]))]
        two_ranks = self.train("two-ranks", *words, f"load_parameters_path={peft}", "per_device_batch_size=2", "ici_fsdp_parallelism=2", ranks=2)
        first.append(step_losses(two_ranks.stdout)[0][1])
        for loss in first:
            self.assertAlmostEqual(loss, first[0], places=3)
        self.assertLess(first[0], losses[0])
        if PEERS_PYTHON:
            done = subprocess.run([PEERS_PYTHON, "-c", COMPARE_WITH_PEFT], input=json.dumps([str(hf), str(peft), str(merged)]), capture_output=True, text=True,
                                  env={**self.env, "HF_HUB_OFFLINE": "1"}, timeout=600)
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
            difference, change = json.loads(done.stdout)
            self.assertLess(difference, 1e-4)
            self.assertGreater(change, 100 * difference)

    def test_a_killed_run_resumes_with_the_same_bits(self):
        words = [*LORA, "learning_rate=0.02", "warmup_steps_fraction=0", "checkpoint_period=50", "steps=400"]
        whole = step_losses(self.train("whole", *words, ranks=2).stdout)
        run = self.start_run("killed", *MODEL, *words, ranks=2)
        self.wait_for_step(run, 120)
        os.kill(self.ranks_of_test()[1], signal.SIGKILL)
        self.assertEqual(run.wait(timeout=120), 0, self.output(run))
        killed = step_losses(self.output(run))
        self.assertEqual({step: loss for step, loss in killed}, dict(whole))
        self.assertGreater(len(killed), len(whole))  # steps since the checkpoint were repeated

    def test_adapters_of_a_quantized_base(self):
        base = self.pretrain()
        plain = [*LORA, f"load_parameters_path={base}", "learning_rate=0.02", "warmup_steps_fraction=0", "checkpoint_period=4"]
        for qtype in ("nf4", "int8"):
            words = [*plain, f"lora_weight_qtype={qtype}"]
            whole = self.train(f"whole-{qtype}", *words, "steps=8")
            losses = [loss for _, loss in step_losses(whole.stdout)]
            self.assertLess(losses[-1], losses[0])
            # A run that stops in the middle encodes the base again, with the same bits.
            parts = f"parts-{qtype}"
            self.train(parts, *words, "steps=4", "learning_rate_schedule_steps=8")
            again = self.train(parts, *words, "steps=8")
            self.assertEqual(step_losses(again.stdout), step_losses(whole.stdout)[4:])
            files = [sorted((self.dir / f"out/{name}/checkpoints/8").glob("model-*.safetensors")) for name in (f"whole-{qtype}", parts)]
            self.assertEqual(*[[path.read_bytes() for path in each] for each in files])
            meshed = self.train(f"mesh-{qtype}", *words, "steps=8", "per_device_batch_size=2", "ici_fsdp_parallelism=2", ranks=2)
            for ours, theirs in zip(step_losses(meshed.stdout), losses):
                self.assertAlmostEqual(ours[1], theirs, places=3)
            refused = self.train(parts, *plain, "steps=9", check=2)
            self.assertIn(f'was made with lora_weight_qtype={qtype}, and this run\'s is ""', refused.stderr)
            # The merged model has the loss of the adapters on the quantized base.
            one = ["steps=1", "learning_rate=0", "warmup_steps_fraction=0"]
            adapters = self.dir / f"out/whole-{qtype}"
            restored = self.train(f"restored-{qtype}", *LORA, *one, f"load_parameters_path={base}", f"lora_restore_path={adapters}", f"lora_weight_qtype={qtype}")
            self.muster("convert", adapters, self.dir / f"merged-{qtype}", check=0)
            exported = self.muster("convert", adapters, self.dir / f"peft-{qtype}", "--to", "peft", check=0)
            self.assertIn(f"the adapters were trained with lora_weight_qtype={qtype}, which PEFT's format does not state", exported.stdout + exported.stderr)
            merged = self.train(f"merged-{qtype}", *one, f"load_parameters_path={self.dir}/merged-{qtype}")
            self.assertAlmostEqual(step_losses(merged.stdout)[0][1], step_losses(restored.stdout)[0][1], places=3)

    def test_bad_input(self):
        base = self.pretrain()
        for words, complaint in (
                (["lora_rank=17"], "lora_rank is 17, but k_proj is a matrix of 16 x 32: it must be at most 16"),
                (["lora_targets=q_prj"], "lora_targets=q_prj: there is no such projection; did you mean q_proj?"),
                (["lora_alpha=0"], "lora_alpha is 0, but must be above 0"),
                (["lora_weight_qtype=nf5"], "lora_weight_qtype=nf5"),
                ([f"lora_restore_path={base}"], "has a complete model, and no adapters"),
                ([f"lora_restore_path={GOLDEN}/lora/llama_gqa"], "has adapters of another base: tensor "),
        ):
            refused = self.train("bad", *LORA, *words, "steps=1", f"load_parameters_path={base}", check=2)
            self.assertIn(complaint, refused.stderr)
        # A run resumes only with its own base.
        words = [*LORA, "checkpoint_period=1", "learning_rate=0.01"]
        self.train("adapted", *words, "steps=1", f"load_parameters_path={base}")
        self.train("other", "steps=1", "init_weights_seed=5")
        refused = self.train("adapted", *words, "steps=2", f"load_parameters_path={self.dir}/out/other", check=2)
        self.assertRegex(refused.stderr, "the adapters of .* are of another base .hash [0-9a-f]{16}. than load_parameters_path=")
        refused = self.train("adapted", *words, "steps=2", f"load_parameters_path={base}", "lora_alpha=16", check=2)
        self.assertIn("was made with lora_alpha 8, and this run's is 16", refused.stderr)
        # Another base's adapters are refused. After a checkpoint, lora_restore_path is not read.
        other = [*LORA, "steps=2", f"load_parameters_path={self.dir}/out/other"]
        refused = self.train("bad", *other, f"lora_restore_path={self.dir}/out/adapted", check=2)
        self.assertIn("the tensors have the same shapes, but other values", refused.stderr)
        self.train("adapted", *words, "steps=2", f"load_parameters_path={base}", f"lora_restore_path={self.dir}/gone")
        # Merging into another base, and without one.
        refused = self.muster("convert", self.dir / "out/adapted", self.dir / "merged", "--base", self.dir / "out/other", check=2)
        self.assertIn("the tensors have the same shapes, but other values", refused.stderr)
        refused = self.muster("convert", self.dir / "out/adapted", self.dir / "merged", "--base", GOLDEN / "hugging_face/llama_gqa", check=2)
        self.assertTrue(re.search("tensor model.embed_tokens.weight has the shape .64, 32. in the adapters' base and .37, 16. in this one", refused.stderr),
                        refused.stderr)
        self.assertFalse((self.dir / "merged").exists())
        refused = self.muster("convert", base, self.dir / "merged", "--to", "peft", check=2)
        self.assertIn("has a complete model, and no adapters", refused.stderr)
