#!/usr/bin/env python3
"""Makes the golden fixtures of tests/unit/trainer_core/model/golden_test.cc, in fp64, by PyTorch's autograd.

    python3 -m venv build/golden && build/golden/bin/pip install -r tests/golden/requirements.txt
    build/golden/bin/python tests/golden/make_llama.py          # writes llama_*.safetensors beside itself

The model is written from the papers (Llama 2, RoFormer, GQA, SwiGLU, RMSNorm), independently of the C++ code.
Each file holds the config (metadata), param/*, tokens, targets, weights, logits, loss (mean over weights),
grad/* (of the weighted sum), adam1/* and adam10/* (parameters after 1 and 10 AdamW steps on this batch).
"""
import json
import math
import pathlib

import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
OPTIMIZER = {"learning_rate": 1e-3, "b1": 0.9, "b2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "clipping_threshold": 1.0}
CASES = {
    # Grouped queries, untied, a sequence longer than a tile of 64 and no multiple of anything.
    "gqa_untied": dict(vocab=37, emb=16, layers=2, heads=4, kv_heads=2, head_dim=8, mlp=28, batch=2, seq=70,
                       eps=1e-5, theta=10000.0, tied=False, seed=1),
    # One key/value head, tied, a head_dim that is no multiple of a vector, a coarse eps and another timescale.
    "mqa_tied": dict(vocab=29, emb=12, layers=3, heads=3, kv_heads=1, head_dim=6, mlp=20, batch=3, seq=11,
                     eps=1e-2, theta=500.0, tied=True, seed=2),
    # Every query head its own key/value head, one layer.
    "mha_untied": dict(vocab=23, emb=20, layers=1, heads=2, kv_heads=2, head_dim=10, mlp=12, batch=1, seq=5,
                       eps=1e-5, theta=10000.0, tied=False, seed=3),
}


def make_params(c, generator):
    def normal(*shape, std):
        return torch.randn(*shape, generator=generator, dtype=torch.float64) * std

    d, q, kv, m = c["emb"], c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"], c["mlp"]
    params = {"model.embed_tokens.weight": normal(c["vocab"], d, std=0.7)}
    for layer in range(c["layers"]):
        prefix = f"model.layers.{layer}."
        params[prefix + "input_layernorm.weight"] = 1 + normal(d, std=0.3)
        params[prefix + "self_attn.q_proj.weight"] = normal(q, d, std=1.5 / math.sqrt(d))
        params[prefix + "self_attn.k_proj.weight"] = normal(kv, d, std=1.5 / math.sqrt(d))
        params[prefix + "self_attn.v_proj.weight"] = normal(kv, d, std=1 / math.sqrt(d))
        params[prefix + "self_attn.o_proj.weight"] = normal(d, q, std=1 / math.sqrt(q))
        params[prefix + "post_attention_layernorm.weight"] = 1 + normal(d, std=0.3)
        params[prefix + "mlp.gate_proj.weight"] = normal(m, d, std=1 / math.sqrt(d))
        params[prefix + "mlp.up_proj.weight"] = normal(m, d, std=1 / math.sqrt(d))
        params[prefix + "mlp.down_proj.weight"] = normal(d, m, std=1 / math.sqrt(m))
    params["model.norm.weight"] = 1 + normal(d, std=0.3)
    if not c["tied"]:
        params["lm_head.weight"] = normal(c["vocab"], d, std=1 / math.sqrt(d))
    # The C++ side starts from fp32 values: round now, so that both start from the same ones.
    return {k: v.float().double().requires_grad_() for k, v in params.items()}


def rms_norm(x, gain, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * gain


def rotate(x, theta):
    """x: (B, heads, S, h). Pairs element i with i + h/2."""
    seq, h = x.shape[-2:]
    angles = torch.arange(seq, dtype=torch.float64)[:, None] * theta ** (
        -2 * torch.arange(h // 2, dtype=torch.float64) / h)[None, :]
    first, second = x[..., : h // 2], x[..., h // 2:]
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)


def attention(p, prefix, x, c):
    batch, seq, _ = x.shape

    def heads(name, count):
        return (x @ p[prefix + name].T).view(batch, seq, count, c["head_dim"]).transpose(1, 2)

    q = rotate(heads("q_proj.weight", c["heads"]), c["theta"])
    k = rotate(heads("k_proj.weight", c["kv_heads"]), c["theta"])
    v = heads("v_proj.weight", c["kv_heads"])
    group = c["heads"] // c["kv_heads"]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(c["head_dim"])
    hidden = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    probabilities = torch.softmax(scores.masked_fill(hidden, -math.inf), -1)
    context = (probabilities @ v).transpose(1, 2).reshape(batch, seq, -1)
    return context @ p[prefix + "o_proj.weight"].T


def mlp(p, prefix, x):
    gate, up = x @ p[prefix + "gate_proj.weight"].T, x @ p[prefix + "up_proj.weight"].T
    return (gate * torch.sigmoid(gate) * up) @ p[prefix + "down_proj.weight"].T


def logits_of(p, tokens, c):
    x = p["model.embed_tokens.weight"][tokens]
    for layer in range(c["layers"]):
        prefix = f"model.layers.{layer}."
        x = x + attention(p, prefix + "self_attn.", rms_norm(x, p[prefix + "input_layernorm.weight"], c["eps"]), c)
        x = x + mlp(p, prefix + "mlp.", rms_norm(x, p[prefix + "post_attention_layernorm.weight"], c["eps"]))
    x = rms_norm(x, p["model.norm.weight"], c["eps"])
    return x @ p["model.embed_tokens.weight" if c["tied"] else "lm_head.weight"].T


def loss_sum(p, tokens, targets, weights, c):
    logits = logits_of(p, tokens, c)
    picked = torch.log_softmax(logits, -1).gather(-1, targets[..., None])[..., 0]
    return -(picked * weights).sum(), logits


def adamw_steps(params, batch, c, steps):
    """Parameters after each count in `steps`: mean loss, clipped by the global norm."""
    o = OPTIMIZER
    p = {k: v.detach().clone().requires_grad_() for k, v in params.items()}
    optimizer = torch.optim.AdamW(p.values(), lr=o["learning_rate"], betas=(o["b1"], o["b2"]), eps=o["eps"],
                                  weight_decay=o["weight_decay"])
    result = {}
    for step in range(1, max(steps) + 1):
        optimizer.zero_grad()
        (loss_sum(p, *batch, c)[0] / batch[2].sum()).backward()
        norm = math.sqrt(sum(float((v.grad ** 2).sum()) for v in p.values()))
        for v in p.values():
            v.grad *= min(1.0, o["clipping_threshold"] / norm)
        optimizer.step()
        if step in steps:
            result[step] = {k: v.detach().clone() for k, v in p.items()}
    return result


def make_case(name, c):
    generator = torch.Generator().manual_seed(c["seed"])
    params = make_params(c, generator)
    shape = (c["batch"], c["seq"])
    tokens = torch.randint(0, c["vocab"], shape, generator=generator)
    targets = torch.randint(0, c["vocab"], shape, generator=generator)
    weights = (torch.rand(shape, generator=generator) < 0.8).double()
    loss, logits = loss_sum(params, tokens, targets, weights, c)
    loss.backward()
    after = adamw_steps(params, (tokens, targets, weights), c, (1, 10))

    tensors = {"tokens": tokens.int(), "targets": targets.int(), "weights": weights.float(),
               "logits": logits.detach().float(), "loss": (loss.detach() / weights.sum()).reshape(1).float()}
    for key, value in params.items():
        tensors["param/" + key] = value.detach().float()
        tensors["grad/" + key] = value.grad.float()
        tensors["adam1/" + key] = after[1][key].float()
        tensors["adam10/" + key] = after[10][key].float()
    save_file({k: v.contiguous() for k, v in tensors.items()}, HERE / f"llama_{name}.safetensors",
              metadata={"config": json.dumps(c), "optimizer": json.dumps(OPTIMIZER)})


if __name__ == "__main__":
    for case_name, case in CASES.items():
        make_case(case_name, case)
