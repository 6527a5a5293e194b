#!/usr/bin/env python3
"""Creates the golden folders hugging_face/* of
tests/unit/trainer_core/checkpoint/foreign/hugging_face_test.cc: small random models as
transformers saves them, with its results for them in fp64.

    python3 -m venv build/golden && build/golden/bin/pip install -r tests/golden/requirements.txt
    build/golden/bin/python tests/golden/make_hugging_face.py [NAME …]      # writes beside itself;
    all, or those

A folder holds config.json and model.safetensors (or shards of it), tokens.json, and
step.safetensors: logits, loss (mean cross-entropy of the next token), grad.NAME of that loss,
param.NAME and param10.NAME after 1 and 10 AdamW steps. Norms and biases are random, too: a model
whose norms are all one hides errors.
"""
import copy
import json
import math
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent / "hugging_face"
OPTIMIZER = {"learning_rate": 1e-3, "adam_b1": 0.9, "adam_b2": 0.95, "adam_eps": 1e-8, "adam_weight_decay": 0.1,
             "gradient_clipping_threshold": 1.0}
LLAMA = dict(vocab_size=37, hidden_size=16, intermediate_size=28, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=8, max_position_embeddings=64, rms_norm_eps=1e-5, pad_token_id=None)


def llama(**options):
    return transformers.LlamaForCausalLM, transformers.LlamaConfig(**dict(LLAMA, **options))


CASES = {
    "llama_mha": (1, torch.float32, *llama(num_key_value_heads=4, rms_norm_eps=1e-2)),
    "llama_gqa": (2, torch.float32, *llama(
        rope_theta=500000.0, rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                           "high_freq_factor": 4.0, "original_max_position_embeddings": 16})),
    "llama_bias_tied": (3, torch.float32, *llama(attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    # Stored in bf16 and in shards, like published models.
    "mistral": (4, torch.bfloat16, transformers.MistralForCausalLM, transformers.MistralConfig(
        **dict(LLAMA, sliding_window=5, rope_theta=1e6))),
    "mixtral": (7, torch.bfloat16, transformers.MixtralForCausalLM, transformers.MixtralConfig(
        **dict(LLAMA, intermediate_size=12, num_local_experts=4, num_experts_per_tok=2, rope_theta=1e6))),
    "gemma": (5, torch.float32, transformers.GemmaForCausalLM, transformers.GemmaConfig(
        **dict(LLAMA, num_key_value_heads=1, rms_norm_eps=1e-6))),
    "gpt2": (6, torch.float16, transformers.GPT2LMHeadModel, transformers.GPT2Config(
        vocab_size=31, n_embd=16, n_layer=2, n_head=2, n_positions=24, n_inner=None, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0, bos_token_id=0, eos_token_id=0)),
}
BATCH, LENGTH = 3, 14


def randomize(model, generator, dtype):
    """Returns values that are exact in the stored type."""
    gemma = model.config.model_type == "gemma"
    for name, value in model.named_parameters():
        noise = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        if value.dim() == 1:
            is_gain = "norm" in name or ".ln_" in name
            noise = 0.3 * noise + (1 if is_gain and name.endswith("weight") and not gemma else 0)
        elif "embed" in name or "wte" in name or "wpe" in name:
            noise = 0.6 * noise
        else:
            noise = 1.3 * noise / math.sqrt(min(value.shape))
        value.data = noise.to(dtype).double()


def loss_of(model, tokens):
    logits = model(input_ids=tokens).logits
    flat = logits[:, :-1].reshape(-1, logits.shape[-1])
    return torch.nn.functional.cross_entropy(flat, tokens[:, 1:].reshape(-1)), logits


def adamw_steps(model, tokens, steps):
    o = OPTIMIZER
    optimizer = torch.optim.AdamW(model.parameters(), lr=o["learning_rate"], betas=(o["adam_b1"], o["adam_b2"]),
                                  eps=o["adam_eps"], weight_decay=o["adam_weight_decay"])
    result = {}
    for step in range(1, max(steps) + 1):
        optimizer.zero_grad()
        loss_of(model, tokens)[0].backward()
        norm = math.sqrt(sum(float((v.grad ** 2).sum()) for v in model.parameters()))
        for v in model.parameters():
            v.grad *= min(1.0, o["gradient_clipping_threshold"] / norm)
        optimizer.step()
        if step in steps:
            result[step] = {k: v.detach().clone() for k, v in model.named_parameters()}
    return result


def make_case(name, seed, dtype, kind, config):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    config._attn_implementation = "eager"
    model = kind(config).double().eval()
    generator = torch.Generator().manual_seed(seed)
    randomize(model, generator, dtype)
    # A copy: to() would round RoPE's frequencies, too.
    copy.deepcopy(model).to(dtype).save_pretrained(folder, max_shard_size="8KB" if dtype == torch.bfloat16 else "1GB")
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokens = torch.randint(0, config.vocab_size, (BATCH, LENGTH), generator=generator)
    (folder / "tokens.json").write_text(json.dumps(tokens.tolist()) + "\n")
    loss, logits = loss_of(model, tokens)
    loss.backward()
    tensors = {"logits": logits.detach(), "loss": loss.detach().reshape(1)}
    tensors.update({"grad." + k: v.grad.clone() for k, v in model.named_parameters()})
    after = adamw_steps(model, tokens, (1, 10))
    tensors.update({"param." + k: v for k, v in after[1].items()})
    tensors.update({"param10." + k: v for k, v in after[10].items()})
    save_file({k: v.float().contiguous() for k, v in tensors.items()}, folder / "step.safetensors",
              metadata={"optimizer": json.dumps(OPTIMIZER)})


if __name__ == "__main__":
    for case_name in sys.argv[1:] or CASES:
        make_case(case_name, *CASES[case_name])
