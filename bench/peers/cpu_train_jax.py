"""JAX's side of bench/cpu_train.py: one jitted training step.

Usage: cpu_train_jax.py S|M THREADS float32|bfloat16

With bfloat16 weights stay fp32 and are cast where they are used, as MaxText's dtype=bfloat16 does
it; norms and the loss are fp32 inside.
"""
import math
import os
import sys

# XLA takes its number of threads from the cores that it may use: choose before the import.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[2])])

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from cpu_train_common import OPTIMIZER, SIZES, serve  # noqa: E402


def make_params(c, key):
    d, m = c["width"], c["mlp"]

    def normal(rows, columns):
        nonlocal key
        key, use = jax.random.split(key)
        return jax.random.normal(use, (rows, columns)) / math.sqrt(columns)

    layers = [{"norm1": jnp.ones(d), "qkv": normal(3 * d, d), "o": normal(d, d), "norm2": jnp.ones(d),
               "gate_up": normal(2 * m, d), "down": normal(d, m)} for _ in range(c["layers"])]
    return {"embed": normal(c["vocab"], d), "layers": layers, "norm": jnp.ones(d), "head": normal(c["vocab"], d)}


def norm(x, gain):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-5) * gain).astype(x.dtype)


def rotate(x, cos, sin):
    first, second = jnp.split(x, 2, -1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def make_loss(c, dtype):
    seq, heads = c["seq"], c["heads"]
    h = c["width"] // heads
    angles = jnp.arange(seq)[:, None] * 10000.0 ** (-2 * jnp.arange(h // 2) / h)[None, :]
    cos, sin = jnp.cos(angles)[:, None, :].astype(dtype), jnp.sin(angles)[:, None, :].astype(dtype)

    def loss_of(params, tokens, targets):
        x = params["embed"][tokens].astype(dtype)
        for p in params["layers"]:
            p = {name: value if value.ndim == 1 else value.astype(dtype) for name, value in p.items()}
            qkv = (norm(x, p["norm1"]) @ p["qkv"].T).reshape(c["batch"], seq, 3, heads, h)
            q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
            context = jax.nn.dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
            x = x + context.reshape(c["batch"], seq, -1) @ p["o"].T
            gate, up = jnp.split(norm(x, p["norm2"]) @ p["gate_up"].T, 2, -1)
            x = x + (jax.nn.silu(gate) * up) @ p["down"].T
        logits = (norm(x, params["norm"]) @ params["head"].astype(dtype).T).astype(jnp.float32)
        picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)

    return loss_of


def make_step(c, dtype):
    o, loss_of = OPTIMIZER, make_loss(c, dtype)

    def update(state, tokens, targets):
        params, m, v, t = state
        loss, grads = jax.value_and_grad(loss_of)(params, tokens, targets)
        length = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
        factor = jnp.minimum(1.0, o["clip"] / length)
        t = t + 1
        m = jax.tree.map(lambda m, g: o["b1"] * m + (1 - o["b1"]) * factor * g, m, grads)
        v = jax.tree.map(lambda v, g: o["b2"] * v + (1 - o["b2"]) * (factor * g) ** 2, v, grads)
        c1, c2 = 1 - o["b1"] ** t, 1 - o["b2"] ** t
        params = jax.tree.map(
            lambda p, m, v: p - o["rate"] * (m / c1 / (jnp.sqrt(v / c2) + o["eps"]) + o["decay"] * p), params, m, v)
        return (params, m, v, t), loss

    return jax.jit(update, donate_argnums=0)


def main():
    c = SIZES[sys.argv[1]]
    params = make_params(c, jax.random.key(0))
    state = (params, jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params), jnp.float32(0))
    shape = (c["batch"], c["seq"])
    tokens = jax.random.randint(jax.random.key(1), shape, 0, c["vocab"])
    targets = jax.random.randint(jax.random.key(2), shape, 0, c["vocab"])
    update = make_step(c, jnp.dtype(sys.argv[3]))

    def step():
        nonlocal state
        state, loss = update(state, tokens, targets)
        jax.block_until_ready(state)
        return float(loss)

    for _ in range(2):
        step()
    serve(step, {"version": jax.__version__})


if __name__ == "__main__":
    main()
