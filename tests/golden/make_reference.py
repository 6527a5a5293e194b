#!/usr/bin/env python3
"""Makes the golden fixtures reference_*.safetensors of tests/unit/trainer_core/model/golden_test.cc
in fp64 with PyTorch's autograd.

    python3 -m venv build/golden && build/golden/bin/pip install -r tests/golden/requirements.txt
    build/golden/bin/python tests/golden/make_reference.py          # writes beside itself

The model is written from the papers (Llama 2, RoFormer, GQA, SwiGLU, RMSNorm, LayerNorm, GPT-2,
Gemma, PaLM's z-loss, GShard, GLaM, Mixtral, T5), independently of the C++ code. A case lists its
differences from the plain Llama in the trainer's config keys. Each file holds the config
(metadata), param/*, tokens, targets, weights, logits, loss (mean over weights), grad/* (of the
weighted sum), adam1/* and adam10/* (parameters after 1 and 10 AdamW steps on this batch).
"""
import json
import math
import pathlib

import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
OPTIMIZER = {"learning_rate": 1e-3, "b1": 0.9, "b2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "clipping_threshold": 1.0}
PLAIN = dict(norm_type="rms", normalization_layer_epsilon=1e-5, norm_gain_offset=0, position_type="rope",
             rope_max_timescale=10000.0, trainable_position_size=0, activation="silu", gated_mlp=True, qkv_bias=False,
             out_bias=False, mlp_bias=False, logits_via_embedding=False, scale_embeddings=False, logits_scale=1.0,
             query_scale=0.0, attention_extra_zero=False, attn_logits_soft_cap=0.0, final_logits_soft_cap=0.0, sliding_window_size=0,
             z_loss_multiplier=0.0, parallel_block=False, num_experts=1)


def sizes(vocab, emb, layers, heads, kv_heads, head_dim, mlp):
    return dict(vocab_size=vocab, base_emb_dim=emb, base_num_decoder_layers=layers, base_num_query_heads=heads,
                base_num_kv_heads=kv_heads, head_dim=head_dim, base_mlp_dim=mlp)


# GLaM: experts in every other layer, ReLU without gates, first choices before second ones; small
# expert capacity.
GLAM = dict(num_experts=4, num_experts_per_tok=2, base_moe_mlp_dim=20, interleave_moe_layer_step=2, first_moe_layer=0,
            expert_activation="relu", gated_experts=False, router_style="pax", capacity_factor=1.0,
            load_balance_loss_weight=0.05, num_groups=0)
MIXTRAL = dict(num_experts=5, num_experts_per_tok=2, base_moe_mlp_dim=14, interleave_moe_layer_step=1, first_moe_layer=0,
               expert_activation="silu", gated_experts=True, router_style="maxtext", capacity_factor=-1.0,
               load_balance_loss_weight=0.0, num_groups=0)
# GLaM's positions and softmax: buckets of the distance to a key, and an additional score of 0
# without a key.
RELATIVE = dict(position_type="relative", relative_position_buckets=8, relative_position_max_distance=20,
                attention_extra_zero=True, query_scale=1.0)
GPT = dict(norm_type="layer", norm_gain_offset=1, position_type="learned", trainable_position_size=16,
           activation="gelu", gated_mlp=False, qkv_bias=True, out_bias=True, mlp_bias=True, logits_via_embedding=True)
CASES = {
    # Grouped queries, untied; a sequence longer than a tile of 64 and not a multiple of any tile
    # size.
    "llama_gqa_untied": dict(batch=2, seq=70, seed=1, model=sizes(37, 16, 2, 4, 2, 8, 28)),
    # One key/value head, tied; a head_dim that is not a multiple of a vector, a large eps and
    # another timescale.
    "llama_mqa_tied": dict(batch=3, seq=11, seed=2, model=dict(
        sizes(29, 12, 3, 3, 1, 6, 20), normalization_layer_epsilon=1e-2, rope_max_timescale=500.0,
        logits_via_embedding=True)),
    # Every query head its own key/value head, one layer.
    "llama_mha_untied": dict(batch=1, seq=5, seed=3, model=sizes(23, 20, 1, 2, 2, 10, 12)),
    # Pax's and MaxText's GPT: LayerNorm that multiplies by 1 + gain, learned positions, biases
    # everywhere.
    "pax_gpt": dict(batch=2, seq=13, seed=4, model=dict(sizes(31, 16, 2, 2, 2, 8, 24), **GPT)),
    # Pax's Llama: RoPE rotates adjacent elements.
    "pax_llama": dict(batch=2, seq=9, seed=5, model=dict(
        sizes(27, 12, 2, 4, 2, 6, 18), position_type="rope_interleaved")),
    # All additional settings: scales, caps, window, z-loss, GeGLU.
    "gemma_capped": dict(batch=2, seq=71, seed=6, model=dict(
        sizes(33, 16, 2, 4, 1, 8, 20), norm_gain_offset=1, normalization_layer_epsilon=1e-3, activation="gelu",
        logits_via_embedding=True, scale_embeddings=True, logits_scale=0.25, query_scale=0.4, attn_logits_soft_cap=2.0,
        final_logits_soft_cap=3.0, sliding_window_size=7, z_loss_multiplier=1e-2)),
    # Longer than a tile, so that distances cross tiles and exceed the last bucket. With this seed
    # no router is near a tie in any of the ten steps; fp32 and fp64 would break a tie differently.
    "glam": dict(batch=2, seq=70, seed=13, model=dict(
        sizes(29, 16, 3, 2, 2, 8, 24), activation="gelu", logits_via_embedding=True, logits_scale=0.25, **GLAM, **RELATIVE)),
    # No token is dropped, so that it can be decoded; grouped heads, an odd number of buckets, a cap
    # after the bias.
    "glam_dropless": dict(batch=2, seq=27, seed=11, model=dict(
        sizes(23, 12, 2, 4, 2, 6, 16), activation="gelu", logits_via_embedding=True, logits_scale=0.3,
        attn_logits_soft_cap=4.0, **dict(GLAM, capacity_factor=-1.0),
        **dict(RELATIVE, relative_position_buckets=7, relative_position_max_distance=16))),
    # No token is dropped.
    "mixtral": dict(batch=2, seq=19, seed=9, model=dict(sizes(31, 12, 2, 4, 2, 6, 18), **MIXTRAL)),
    # Each sequence is its own group; three choices; experts only in the second layer.
    "moe_capacity": dict(batch=3, seq=17, seed=10, model=dict(
        sizes(27, 12, 2, 2, 1, 6, 18), **dict(MIXTRAL, num_experts=6, num_experts_per_tok=3, first_moe_layer=1,
                                              capacity_factor=0.75, load_balance_loss_weight=0.3))),
    # MaxText's default block: attention and MLP in parallel after one norm.
    "maxtext_default": dict(batch=2, seq=21, seed=12, model=dict(sizes(31, 12, 3, 4, 2, 6, 20), parallel_block=True)),
    # ReLU, biases only for queries, a window of exactly one tile.
    "relu_window": dict(batch=1, seq=130, seed=7, model=dict(
        sizes(25, 12, 1, 2, 1, 6, 16), activation="relu", gated_mlp=False, qkv_bias=True, sliding_window_size=64)),
}


def has_experts(c, layer):
    return c["num_experts"] > 1 and layer >= c["first_moe_layer"] and \
        (layer - c["first_moe_layer"]) % c["interleave_moe_layer_step"] == 0


def make_params(c, generator):
    def normal(*shape, std):
        return torch.randn(*shape, generator=generator, dtype=torch.float64) * std

    d, h, m = c["base_emb_dim"], c["head_dim"], c["base_mlp_dim"]
    q, kv = c["base_num_query_heads"] * h, c["base_num_kv_heads"] * h
    params = {}

    def norm(name):
        params[name + ".weight"] = 1 - c["norm_gain_offset"] + normal(d, std=0.3)
        if c["norm_type"] == "layer":
            params[name + ".bias"] = normal(d, std=0.3)

    def linear(name, rows, columns, std, bias):
        params[name + ".weight"] = normal(rows, columns, std=std)
        if bias:
            params[name + ".bias"] = normal(rows, std=0.3)

    params["model.embed_tokens.weight"] = normal(c["vocab_size"], d, std=0.7)
    if c["position_type"] == "learned":
        params["model.embed_positions.weight"] = normal(c["trainable_position_size"], d, std=0.5)
    for layer in range(c["base_num_decoder_layers"]):
        prefix = f"model.layers.{layer}."
        norm(prefix + "input_layernorm")
        linear(prefix + "self_attn.q_proj", q, d, 1.5 / math.sqrt(d), c["qkv_bias"])
        linear(prefix + "self_attn.k_proj", kv, d, 1.5 / math.sqrt(d), c["qkv_bias"])
        linear(prefix + "self_attn.v_proj", kv, d, 1 / math.sqrt(d), c["qkv_bias"])
        linear(prefix + "self_attn.o_proj", d, q, 1 / math.sqrt(q), c["out_bias"])
        if c["position_type"] == "relative":
            params[prefix + "self_attn.relative_attention_bias.weight"] = normal(
                c["base_num_query_heads"], c["relative_position_buckets"], std=1.0)
        if not c["parallel_block"]:
            norm(prefix + "post_attention_layernorm")
        if has_experts(c, layer):
            moe, width = prefix + "block_sparse_moe.", c["base_moe_mlp_dim"]
            linear(moe + "gate", c["num_experts"], d, 2 / math.sqrt(d), False)
            for e in range(c["num_experts"]):
                for name in ("w1", "w3") if c["gated_experts"] else ("w1",):
                    linear(f"{moe}experts.{e}.{name}", width, d, 1 / math.sqrt(d), False)
                linear(f"{moe}experts.{e}.w2", d, width, 1 / math.sqrt(width), False)
            continue
        if c["gated_mlp"]:
            linear(prefix + "mlp.gate_proj", m, d, 1 / math.sqrt(d), c["mlp_bias"])
        linear(prefix + "mlp.up_proj", m, d, 1 / math.sqrt(d), c["mlp_bias"])
        linear(prefix + "mlp.down_proj", d, m, 1 / math.sqrt(m), c["mlp_bias"])
    norm("model.norm")
    if not c["logits_via_embedding"]:
        params["lm_head.weight"] = normal(c["vocab_size"], d, std=1 / math.sqrt(d))
    # The C++ side starts from fp32 values: round now, so that both start from the same ones.
    return {k: v.float().double().requires_grad_() for k, v in params.items()}


def norm(p, name, x, c):
    if c["norm_type"] == "layer":
        x = x - x.mean(-1, keepdim=True)
    normed = x / torch.sqrt((x * x).mean(-1, keepdim=True) + c["normalization_layer_epsilon"])
    y = normed * (c["norm_gain_offset"] + p[name + ".weight"])
    return y + p[name + ".bias"] if c["norm_type"] == "layer" else y


def linear(p, name, x):
    y = x @ p[name + ".weight"].T
    return y + p[name + ".bias"] if name + ".bias" in p else y


def rotate(x, c):
    """x: (B, heads, S, h). Pairs element i with i + h/2, or adjacent elements."""
    if c["position_type"] in ("learned", "relative"):
        return x
    seq, h = x.shape[-2:]
    angles = torch.arange(seq, dtype=torch.float64)[:, None] * c["rope_max_timescale"] ** (
        -2 * torch.arange(h // 2, dtype=torch.float64) / h)[None, :]
    if c["position_type"] == "rope":
        first, second = x[..., : h // 2], x[..., h // 2:]
    else:
        first, second = x[..., 0::2], x[..., 1::2]
    rotated = (first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin())
    return torch.cat(rotated, -1) if c["position_type"] == "rope" else torch.stack(rotated, -1).flatten(-2)


def relative_bias(p, prefix, seq, c):
    """Returns (heads, S, S). Half of the buckets have one distance each; the rest are even on a
    logarithmic scale up to the longest.
    """
    count, longest = c["relative_position_buckets"], c["relative_position_max_distance"]
    near = count // 2

    def bucket(distance):
        if distance < near:
            return max(distance, 0)
        return min(near + int((count - near) * math.log(distance / near, longest / near)), count - 1)

    of_pairs = torch.tensor([[bucket(query - key) for key in range(seq)] for query in range(seq)])
    return p[prefix + "relative_attention_bias.weight"][:, of_pairs]


def capped(x, cap):
    return cap * torch.tanh(x / cap) if cap > 0 else x


def attention(p, prefix, x, c):
    batch, seq, _ = x.shape

    def heads(name, count):
        return linear(p, prefix + name, x).view(batch, seq, count, c["head_dim"]).transpose(1, 2)

    q = rotate(heads("q_proj", c["base_num_query_heads"]), c)
    k = rotate(heads("k_proj", c["base_num_kv_heads"]), c)
    v = heads("v_proj", c["base_num_kv_heads"])
    group = c["base_num_query_heads"] // c["base_num_kv_heads"]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scale = c["query_scale"] or 1 / math.sqrt(c["head_dim"])
    scores = q @ k.transpose(-1, -2) * scale
    if c["position_type"] == "relative":
        scores = scores + relative_bias(p, prefix, seq, c)
    scores = capped(scores, c["attn_logits_soft_cap"])
    away = torch.arange(seq)[:, None] - torch.arange(seq)[None, :]
    hidden = away < 0
    if c["sliding_window_size"]:
        hidden = hidden | (away >= c["sliding_window_size"])
    scores = scores.masked_fill(hidden, -math.inf)
    if c["attention_extra_zero"]:
        scores = torch.cat([scores, torch.zeros_like(scores[..., :1])], -1)
    probabilities = torch.softmax(scores, -1)[..., :seq]
    return linear(p, prefix + "o_proj", (probabilities @ v).transpose(1, 2).reshape(batch, seq, -1))


def activate(x, kind):
    if kind == "relu":
        return x.clamp(min=0)
    if kind == "silu":
        return x * torch.sigmoid(x)
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def mlp(p, prefix, x, c):
    up = linear(p, prefix + "up_proj", x)
    hidden = activate(linear(p, prefix + "gate_proj", x), c["activation"]) * up if c["gated_mlp"] \
        else activate(up, c["activation"])
    return linear(p, prefix + "down_proj", hidden)


def expert(p, prefix, x, c):
    hidden = activate(linear(p, prefix + "w1", x), c["expert_activation"])
    if c["gated_experts"]:
        hidden = hidden * linear(p, prefix + "w3", x)
    return linear(p, prefix + "w2", hidden)


def capacity_of(c, tokens):
    """Computes one expert's rows."""
    factor, count = c["capacity_factor"], c["num_experts"]
    if factor <= 0:
        return tokens
    if c["router_style"] == "pax":
        return (int(tokens * factor / count) + 3) // 4 * 4
    return int(max(math.ceil(tokens * c["num_experts_per_tok"] / count) * factor, factor))


def mixture(p, prefix, x, weights, c):
    """GShard's masks and running counts. Returns the output and the load-balancing loss of all
    groups, each times the sum of its weights.
    """
    pax, count, k = c["router_style"] == "pax", c["num_experts"], c["num_experts_per_tok"]
    groups = x.reshape(1, -1, x.shape[-1]) if pax else x
    group_weights = weights.reshape(groups.shape[:2]).sum(-1)
    size, outputs, balance = groups.shape[1], [], 0
    for tokens, weight in zip(groups, group_weights):
        probabilities = torch.softmax(linear(p, prefix + "gate", tokens), -1)
        chosen = probabilities.topk(k, -1).indices
        gates = probabilities.gather(-1, chosen)
        gates = gates / (gates.sum(-1, keepdim=True) + 1e-9)
        masks = torch.nn.functional.one_hot(chosen, count).double()  # (tokens, k, experts)
        density = (masks[:, 0] if pax else masks.sum(1)).mean(0)
        balance = balance + weight * count ** 2 * (density * probabilities.mean(0)).mean()
        order = masks.transpose(0, 1).reshape(-1, count) if pax else masks.reshape(-1, count)
        earlier = (torch.cumsum(order, 0) - order) * order
        kept = (order * (earlier < capacity_of(c, size))).sum(-1)
        kept = kept.reshape(k, size).T if pax else kept.reshape(size, k)
        every = torch.stack([expert(p, f"{prefix}experts.{e}.", tokens, c) for e in range(count)], 1)
        outputs.append(torch.einsum("tk,tk,tke,ted->td", gates, kept, masks, every))
    return torch.stack(outputs).reshape(x.shape), c["load_balance_loss_weight"] * balance


def logits_of(p, tokens, weights, c):
    """Returns the output and the load-balancing loss."""
    balance = 0
    x = p["model.embed_tokens.weight"][tokens]
    if c["scale_embeddings"]:
        x = x * math.sqrt(c["base_emb_dim"])
    if c["position_type"] == "learned":
        x = x + p["model.embed_positions.weight"][: tokens.shape[1]]
    for layer in range(c["base_num_decoder_layers"]):
        prefix = f"model.layers.{layer}."
        normed = norm(p, prefix + "input_layernorm", x, c)
        change = attention(p, prefix + "self_attn.", normed, c)
        if c["parallel_block"]:
            x = x + change + mlp(p, prefix + "mlp.", normed, c)
            continue
        x = x + change
        normed = norm(p, prefix + "post_attention_layernorm", x, c)
        if has_experts(c, layer):
            change, loss = mixture(p, prefix + "block_sparse_moe.", normed, weights, c)
            x, balance = x + change, balance + loss
        else:
            x = x + mlp(p, prefix + "mlp.", normed, c)
    x = norm(p, "model.norm", x, c) * c["logits_scale"]
    head = "model.embed_tokens.weight" if c["logits_via_embedding"] else "lm_head.weight"
    return capped(x @ p[head].T, c["final_logits_soft_cap"]), balance


def loss_sum(p, tokens, targets, weights, c):
    logits, balance = logits_of(p, tokens, weights, c)
    total = torch.logsumexp(logits, -1)
    picked = logits.gather(-1, targets[..., None])[..., 0]
    return ((total - picked + c["z_loss_multiplier"] * total ** 2) * weights).sum() + balance, logits


def adamw_steps(params, batch, c, steps):
    """Returns the parameters after each count in `steps`: mean loss, clipped by the global norm."""
    o = OPTIMIZER
    p = {k: v.detach().clone().requires_grad_() for k, v in params.items()}
    optimizer = torch.optim.AdamW(p.values(), lr=o["learning_rate"], betas=(o["b1"], o["b2"]), eps=o["eps"],
                                  weight_decay=o["weight_decay"])
    result = {}
    for step in range(1, max(steps) + 1):
        optimizer.zero_grad(set_to_none=False)  # an expert without tokens has a gradient of zeros
        (loss_sum(p, *batch, c)[0] / batch[2].sum()).backward()
        for v in p.values():
            v.grad = torch.zeros_like(v) if v.grad is None else v.grad
        norm = math.sqrt(sum(float((v.grad ** 2).sum()) for v in p.values()))
        for v in p.values():
            v.grad *= min(1.0, o["clipping_threshold"] / norm)
        optimizer.step()
        if step in steps:
            result[step] = {k: v.detach().clone() for k, v in p.items()}
    return result


def make_case(name, case):
    c = dict(PLAIN, **case["model"])
    generator = torch.Generator().manual_seed(case["seed"])
    params = make_params(c, generator)
    shape = (case["batch"], case["seq"])
    tokens = torch.randint(0, c["vocab_size"], shape, generator=generator)
    targets = torch.randint(0, c["vocab_size"], shape, generator=generator)
    weights = (torch.rand(shape, generator=generator) < 0.8).double()
    loss, logits = loss_sum(params, tokens, targets, weights, c)
    loss.backward()
    after = adamw_steps(params, (tokens, targets, weights), c, (1, 10))

    tensors = {"tokens": tokens.int(), "targets": targets.int(), "weights": weights.float(),
               "logits": logits.detach().float(), "loss": (loss.detach() / weights.sum()).reshape(1).float()}
    for key, value in params.items():
        tensors["param/" + key] = value.detach().float()
        tensors["grad/" + key] = (torch.zeros_like(value) if value.grad is None else value.grad).float()
        tensors["adam1/" + key] = after[1][key].float()
        tensors["adam10/" + key] = after[10][key].float()
    save_file({k: v.contiguous() for k, v in tensors.items()}, HERE / f"reference_{name}.safetensors",
              metadata={"config": json.dumps(dict(case, model=c)), "optimizer": json.dumps(OPTIMIZER)})


if __name__ == "__main__":
    for case_name, case in CASES.items():
        make_case(case_name, case)
