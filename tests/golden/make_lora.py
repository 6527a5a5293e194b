#!/usr/bin/env python3
"""Creates the golden folders lora/* of tests/unit/trainer_core/loop/adapter_golden_test.cc: random
adapters of the models in hugging_face/*, as PEFT saves them, with PEFT's results in fp64.

    python3 -m venv build/golden
    build/golden/bin/pip install torch==2.8.0 transformers==5.24.0 peft==0.21.2
    build/golden/bin/python tests/golden/make_lora.py

A folder holds adapter_config.json and adapter_model.safetensors, and step.safetensors: logits, loss
(mean cross-entropy of the next token of hugging_face/NAME/tokens.json), grad.NAME of the adapters'
matrices, param5.NAME after 5 AdamW steps, and merged.NAME: the weights of merge_and_unload().
"""
import json
import math
import pathlib
import shutil

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent
OPTIMIZER = {"learning_rate": 1e-3, "adam_b1": 0.9, "adam_b2": 0.95, "adam_eps": 1e-8, "adam_weight_decay": 0.1,
             "gradient_clipping_threshold": 1.0}
STEPS = 5
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CASES = {  # seed, rank, alpha, targets
    "llama_gqa": (1, 3, 6, ALL),
    "llama_bias_tied": (2, 4, 10, ["q_proj", "v_proj", "down_proj"]),
    "mixtral": (3, 2, 2, ["q_proj", "k_proj", "v_proj", "o_proj"]),
}


def loss_of(model, tokens):
    logits = model(input_ids=tokens).logits
    flat = logits[:, :-1].reshape(-1, logits.shape[-1])
    return torch.nn.functional.cross_entropy(flat, tokens[:, 1:].reshape(-1)), logits


def adapters_of(model):
    return {name.replace("base_model.model.", "").replace(".default", ""): value
            for name, value in model.named_parameters() if value.requires_grad}


def make_adapters(name, seed, rank, alpha, targets):
    base = transformers.AutoModelForCausalLM.from_pretrained(
        HERE / "hugging_face" / name, attn_implementation="eager", dtype=torch.float32).double().eval()
    model = peft.get_peft_model(base, peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets, lora_dropout=0.0,
                                                      task_type="CAUSAL_LM"), autocast_adapter_dtype=False).double().eval()
    generator = torch.Generator().manual_seed(seed)
    for value in adapters_of(model).values():
        noise = torch.randn(value.shape, generator=generator, dtype=torch.float64) / math.sqrt(max(value.shape))
        value.data = noise.float().double()
    folder = HERE / "lora" / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    weights = load_file(folder / "adapter_model.safetensors")
    save_file({k: v.float() for k, v in weights.items()}, folder / "adapter_model.safetensors")
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = f"../../hugging_face/{name}"
    config["target_modules"] = sorted(config["target_modules"])
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def make_step(name, change_base, file):
    """Writes the results of the adapters lora/NAME on a base that `change_base` has changed."""
    base = transformers.AutoModelForCausalLM.from_pretrained(
        HERE / "hugging_face" / name, attn_implementation="eager", dtype=torch.float32)
    change_base(base)
    model = peft.PeftModel.from_pretrained(base, HERE / "lora" / name, is_trainable=True,
                                           autocast_adapter_dtype=False).double().eval()
    tokens = torch.tensor(json.loads((HERE / "hugging_face" / name / "tokens.json").read_text()))
    loss, logits = loss_of(model, tokens)
    loss.backward()
    tensors = {"logits": logits, "loss": loss.reshape(1)}
    tensors.update({"grad." + k: v.grad.clone() for k, v in adapters_of(model).items()})
    start = {k: v.detach().clone() for k, v in adapters_of(model).items()}
    o = OPTIMIZER
    optimizer = torch.optim.AdamW(adapters_of(model).values(), lr=o["learning_rate"], betas=(o["adam_b1"], o["adam_b2"]),
                                  eps=o["adam_eps"], weight_decay=o["adam_weight_decay"])
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, tokens)[0].backward()
        norm = math.sqrt(sum(float((v.grad ** 2).sum()) for v in adapters_of(model).values()))
        for v in adapters_of(model).values():
            v.grad *= min(1.0, o["gradient_clipping_threshold"] / norm)
        optimizer.step()
    tensors.update({f"param{STEPS}." + k: v.detach().clone() for k, v in adapters_of(model).items()})
    for k, v in adapters_of(model).items():
        v.data = start[k]
    merged = model.merge_and_unload()
    tensors.update({"merged." + k: v for k, v in merged.named_parameters() if "_proj" in k})
    save_file({k: v.detach().float().contiguous().clone() for k, v in tensors.items()}, file,
              metadata={"optimizer": json.dumps(OPTIMIZER), "steps": str(STEPS)})


if __name__ == "__main__":
    for case_name, case in CASES.items():
        make_adapters(case_name, *case)
        make_step(case_name, lambda base: None, HERE / "lora" / case_name / "step.safetensors")
