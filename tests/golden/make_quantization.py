#!/usr/bin/env python3
"""Creates quantization.safetensors of tests/unit/trainer_core/ops/quantize_test.cc and
…/model/quantization_test.cc from the reference implementations: ml_dtypes' casts, Flax's
Fp8DotGeneral, AQT's int8 dot_general.

    build/golden/bin/pip install -r tests/golden/requirements.txt
    build/golden/bin/python tests/golden/make_quantization.py          # writes beside itself

grid/*: every number of E4M3 and E5M2, in the order of their codes; sample/*: fp32 numbers, and
their casts after clipping to the largest number.
CASE/*: a Llama of two layers with biases, fp32, whose layers' products are the library's. There are
STEPS steps with a batch each; a step multiplies all parameters by its factor. CASE/T/loss and
CASE/T/grad/* are of the weighted sum of losses; fp8/T/state/* is Flax's state after the step. AQT
rounds to nearest here, not stochastically. te_fp8_currentscaling is written from its formula.
"""
import functools
import json
import pathlib

import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy
from aqt.jax.v2 import config as aqt_config
from flax.linen import fp8_ops
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).resolve().parent
VOCAB, D, LAYERS, HEADS, KV_HEADS, HEAD_DIM, MLP = 19, 12, 2, 4, 2, 6, 10
BATCH, SEQ, HISTORY = 2, 9, 2
FACTORS = (1.0, 2.0, 0.5, 1.0)
EPS, TIMESCALE = 1e-5, 10_000.0
STEPS = {"fp8": 4, "te_fp8_currentscaling": 1, "int8": 1, "int8_forward": 1}
ROWS_BY_COLUMNS = (((1,), (0,)), ((), ()))


def make_params(generator):
    def normal(*shape, std):
        return (generator.standard_normal(shape) * std).astype(numpy.float32)

    params = {"model.embed_tokens.weight": normal(VOCAB, D, std=0.7)}

    def linear(name, rows, columns, bias):
        params[name + ".weight"] = normal(rows, columns, std=columns ** -0.5)
        if bias:
            params[name + ".bias"] = normal(rows, std=0.3)

    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        params[prefix + "input_layernorm.weight"] = 1 + normal(D, std=0.3)
        linear(prefix + "self_attn.q_proj", HEADS * HEAD_DIM, D, True)
        linear(prefix + "self_attn.k_proj", KV_HEADS * HEAD_DIM, D, True)
        linear(prefix + "self_attn.v_proj", KV_HEADS * HEAD_DIM, D, True)
        linear(prefix + "self_attn.o_proj", D, HEADS * HEAD_DIM, False)
        params[prefix + "post_attention_layernorm.weight"] = 1 + normal(D, std=0.3)
        linear(prefix + "mlp.gate_proj", MLP, D, True)
        linear(prefix + "mlp.up_proj", MLP, D, True)
        linear(prefix + "mlp.down_proj", D, MLP, True)
    params["model.norm.weight"] = 1 + normal(D, std=0.3)
    linear("lm_head", VOCAB, D, False)
    return params


def cast(x, dtype):
    """Rounds once, as ml_dtypes and GPUs do. XLA's cast on a CPU goes by way of fp16, which rounds
    one number in 250 twice.
    """
    return jax.pure_callback(lambda each: numpy.asarray(each).astype(dtype), jax.ShapeDtypeStruct(x.shape, dtype), x)


def quantize(x, q_dtype, scale, compute_dtype):
    """Equals fp8_ops.quantize with the cast above."""
    limit = fp8_ops.get_fp8_max(q_dtype, compute_dtype)
    return cast(jnp.clip(x / jnp.broadcast_to(scale.astype(compute_dtype), x.shape), -limit, limit), q_dtype)


fp8_ops.quantize = quantize


# The products: dot(name, x (T, i), kernel (i, o))
# ------------------------------------------------------------------------------------------------

def current_dot():
    def rounded(x, dtype):
        scale = 1 / (jnp.float32(jnp.finfo(dtype).max) / jnp.max(jnp.abs(x)))
        return quantize(x, dtype, scale, jnp.float32).astype(jnp.float32), scale

    @jax.custom_vjp
    def dot(x, kernel):
        (qx, sx), (qk, sk) = rounded(x, jnp.float8_e4m3fn), rounded(kernel, jnp.float8_e4m3fn)
        return qx @ qk * (sx * sk)

    def forward(x, kernel):
        return dot(x, kernel), (x, kernel)

    def backward(saved, dy):
        (qx, sx), (qk, sk) = (rounded(each, jnp.float8_e4m3fn) for each in saved)
        qg, sg = rounded(dy, jnp.float8_e5m2)
        return qg @ qk.T * (sg * sk), qx.T @ qg * (sx * sg)

    dot.defvjp(forward, backward)
    return lambda name, x, kernel: dot(x, kernel)


def aqt_dot(weight_gradients):
    """MaxText's _get_int8_quant_config with quantization_local_shard_count 1 or 0, without
    stochastic rounding.
    """
    config = aqt_config.config_v3(
        fwd_bits=8, dlhs_bits=8, drhs_bits=8 if weight_gradients else None, rng_type="jax.uniform", dlhs_local_aqt=None,
        drhs_local_aqt=aqt_config.LocalAqt(contraction_axis_shard_count=1) if weight_gradients else None,
        fwd_accumulator_dtype=jnp.int32, dlhs_accumulator_dtype=jnp.int32,
        drhs_accumulator_dtype=jnp.int32 if weight_gradients else None)
    aqt_config.set_stochastic_rounding(config, vjp_lhs_stochastic_rounding=False, vjp_rhs_stochastic_rounding=False,
                                       implementation="jax.uniform")
    aqt_config.set_context(config, jax.random.PRNGKey(0), train_step=None)
    return lambda name, x, kernel: config(x, kernel, ROWS_BY_COLUMNS)


class FlaxDots(nn.Module):
    """Calls body(dot) with dots whose state is Flax's."""

    @nn.compact
    def __call__(self, body):
        return body(lambda name, x, kernel: fp8_ops.Fp8DirectDotGeneralOp(
            amax_history_length=HISTORY, name=name.replace(".", "/"))(x, kernel, ROWS_BY_COLUMNS))


# The model
# ------------------------------------------------------------------------------------------------

def norm(x, gain):
    return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + EPS) * gain


def rotate(x):
    """x (B, S, heads, h): pairs element i with i + h/2."""
    angles = numpy.arange(SEQ)[:, None] * TIMESCALE ** (-2 * numpy.arange(HEAD_DIM // 2) / HEAD_DIM)[None, :]
    cos, sin = (f(angles).astype(numpy.float32)[None, :, None, :] for f in (numpy.cos, numpy.sin))
    first, second = x[..., : HEAD_DIM // 2], x[..., HEAD_DIM // 2:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def stacked(p, prefix, names, kind):
    return jnp.concatenate([p[f"{prefix}{name}_proj.{kind}"] for name in names])


def loss_of(p, batch, dot):
    tokens, targets, weights = batch
    x = p["model.embed_tokens.weight"][tokens]  # (T, d)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        attn, mlp = prefix + "self_attn.", prefix + "mlp."
        qkv = dot(attn + "qkv_proj", norm(x, p[prefix + "input_layernorm.weight"]), stacked(p, attn, "qkv", "weight").T)
        qkv = (qkv + stacked(p, attn, "qkv", "bias")).reshape(BATCH, SEQ, HEADS + 2 * KV_HEADS, HEAD_DIM)
        q, k, v = jnp.split(qkv, [HEADS, HEADS + KV_HEADS], axis=2)
        q, k = rotate(q), rotate(k)
        k, v = (jnp.repeat(each, HEADS // KV_HEADS, axis=2) for each in (k, v))
        scores = jnp.einsum("bshd,bthd->bhst", q, k) * HEAD_DIM ** -0.5
        hidden = numpy.arange(SEQ)[:, None] < numpy.arange(SEQ)[None, :]
        context = jnp.einsum("bhst,bthd->bshd", jax.nn.softmax(jnp.where(hidden, -jnp.inf, scores)), v)
        x = x + dot(attn + "o_proj", context.reshape(BATCH * SEQ, -1), p[attn + "o_proj.weight"].T)
        normed = norm(x, p[prefix + "post_attention_layernorm.weight"])
        gate_up = dot(mlp + "gate_up_proj", normed, stacked(p, mlp, ("gate", "up"), "weight").T)
        gate, up = jnp.split(gate_up + stacked(p, mlp, ("gate", "up"), "bias"), 2, axis=1)
        x = x + dot(mlp + "down_proj", jax.nn.silu(gate) * up, p[mlp + "down_proj.weight"].T) + p[mlp + "down_proj.bias"]
    logits = norm(x, p["model.norm.weight"]) @ p["lm_head.weight"].T
    losses = jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, targets[:, None], 1)[:, 0]
    return jnp.sum(losses * weights)


def run(case, params, batches, tensors):
    state, flax_dots = None, FlaxDots()
    if case == "fp8":
        body = functools.partial(loss_of, params, batches[0])
        state = flax_dots.init(jax.random.PRNGKey(0), body)
    for step in range(STEPS[case]):
        now = {name: value * numpy.float32(FACTORS[step]) for name, value in params.items()}
        if case == "fp8":
            loss, (grads, state) = jax.value_and_grad(
                lambda p, s: flax_dots.apply(s, functools.partial(loss_of, p, batches[step])), argnums=(0, 1))(now, state)
            for path, value in jax.tree_util.tree_flatten_with_path(state)[0]:
                keys = [key.key for key in path[1:]]
                tensors[f"fp8/{step}/state/" + ".".join(keys).replace("/", ".")] = value
        else:
            dot = current_dot() if case == "te_fp8_currentscaling" else aqt_dot(case == "int8")
            loss, grads = jax.value_and_grad(loss_of)(now, batches[step], dot)
        tensors[f"{case}/{step}/loss"] = loss[None]
        tensors.update({f"{case}/{step}/grad/{name}": value for name, value in grads.items()})


def add_casts(generator, tensors):
    words = generator.integers(0, 1 << 32, 1024, dtype=numpy.uint32)
    # Half of them near the grids: exponents of 2^-18 to 2^17.
    near = (words & 0x807FFFFF) | (generator.integers(109, 145, 1024, dtype=numpy.uint32) << 23)
    sample = numpy.where(numpy.arange(1024) % 2 == 0, words, near).view(numpy.float32)
    tensors["sample/fp32"] = sample
    for name, dtype in (("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)):
        limit = numpy.float32(ml_dtypes.finfo(dtype).max)
        tensors[f"grid/{name}"] = numpy.arange(256, dtype=numpy.uint8).view(dtype).astype(numpy.float32)
        clipped = numpy.where(numpy.isfinite(sample), numpy.clip(sample, -limit, limit), numpy.nan)
        tensors[f"sample/{name}"] = clipped.astype(dtype).astype(numpy.float32)


def main():
    generator = numpy.random.default_rng(1)
    tensors = {}
    add_casts(generator, tensors)
    params = make_params(generator)
    tensors.update({"param/" + name: value for name, value in params.items()})
    batches = []
    for step in range(len(FACTORS)):
        batch = (generator.integers(0, VOCAB, BATCH * SEQ, dtype=numpy.int32),
                 generator.integers(0, VOCAB, BATCH * SEQ, dtype=numpy.int32),
                 (generator.random(BATCH * SEQ) < 0.8).astype(numpy.float32))
        batches.append(batch)
        tensors.update({f"batch/{step}/{name}": value for name, value in zip(("tokens", "targets", "weights"), batch)})
    for case in STEPS:
        run(case, params, batches, tensors)
    metadata = {"batch": json.dumps(BATCH), "seq": json.dumps(SEQ), "history": json.dumps(HISTORY),
                "factors": json.dumps(FACTORS), "steps": json.dumps(STEPS)}
    save_file({name: numpy.ascontiguousarray(value) for name, value in tensors.items()},
              HERE / "quantization.safetensors", metadata)


if __name__ == "__main__":
    main()
