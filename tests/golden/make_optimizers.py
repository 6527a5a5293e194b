#!/usr/bin/env python3
"""Creates optimizers.safetensors of tests/unit/trainer_core/optim/optimizer_test.cc, in fp64, from
optax's optimizers and from the formulas of praxis' sharded_adam, which is not packaged.

    build/golden/bin/pip install -r tests/golden/requirements.txt
    build/golden/bin/python tests/golden/make_optimizers.py          # writes beside itself

Parameters and gradients follow the formulas of values(), which the test repeats. Each case has
NAME/PARAMETER/T, the parameter after T updates; for a large tensor every STRIDE-th element. The
metadata has the cases with their settings.
"""
import json
import pathlib

import jax
import numpy
import optax
from safetensors.numpy import save_file

jax.config.update("jax_enable_x64", True)

HERE = pathlib.Path(__file__).resolve().parent
SMALL = {"bias": (3,), "norm": (17,), "matrix": (5, 7)}
LARGE = {"bias": (3,), "wide": (128, 131), "tall": (140, 128), "narrow": (127, 200)}
STRIDE = 7
LARGE_ELEMENTS = 1000
STEPS = (1, 10)
CASES = {
    "adamw": dict(opt_type="adamw", shapes=SMALL, adam_b1=0.9, adam_b2=0.95, adam_eps=1e-8, adam_eps_root=1e-9, adam_weight_decay=0.1),
    "adamw_mask": dict(opt_type="adamw", shapes=SMALL, adam_b1=0.8, adam_b2=0.99, adam_eps=1e-6, adam_eps_root=0.0,
                       adam_weight_decay=0.5, adamw_mask=["bias", "^no.m$"]),
    "adam_pax": dict(opt_type="adam_pax", shapes=SMALL, adam_b1=0.9, adam_b2=0.95, adam_eps=1e-8, adam_eps_root=1e-9,
                     adam_weight_decay=0.1, adam_clip_threshold=-1.0),
    "adam_pax_bounded": dict(opt_type="adam_pax", shapes=SMALL, adam_b1=0.9, adam_b2=0.99, adam_eps=1e-6, adam_eps_root=0.0,
                             adam_weight_decay=0.5, adam_clip_threshold=0.7),
    "sgd": dict(opt_type="sgd", shapes=SMALL),
    "adafactor": dict(opt_type="adafactor", shapes=LARGE),
}
LEARNING_RATE, GRAD_SCALE = 1e-2, 0.25


def values(shape, tensor, step):
    """Returns the fp32 elements of tensor number `tensor`: parameters at step 0, gradients at steps
    1, 2, …
    """
    i = numpy.arange(numpy.prod(shape), dtype=numpy.float64)
    size = 1 if step == 0 else 10.0 ** (i % 5 - 3)
    wave = numpy.sin(0.7 * i + 1.9 * tensor + 2.3 * step + 0.31 * (i % 11))
    return (size * wave).astype(numpy.float32).astype(numpy.float64).reshape(shape)


def praxis_updates(case):
    """praxis/optimizers.py, sharded_adam: one (m, v) per variable."""
    def corrected(beta, t):
        return beta * (1 - beta ** (t - 1)) / (1 - beta ** t)

    def update(params, grads, state, t):
        out = {}
        for name, p in params.items():
            m, v = state.setdefault(name, (numpy.zeros_like(p), numpy.zeros_like(p)))
            b1, b2 = corrected(case["adam_b1"], t), corrected(case["adam_b2"], t)
            m = (1 - b1) * grads[name] + b1 * m
            v = (1 - b2) * grads[name] ** 2 + b2 * v
            state[name] = m, v
            u = m / (numpy.sqrt(v + case["adam_eps_root"]) + case["adam_eps"])
            if case["adam_clip_threshold"] > 0:
                u = u / max(1, numpy.sqrt((u ** 2).mean()) / case["adam_clip_threshold"])
            out[name] = p - LEARNING_RATE * (u + case["adam_weight_decay"] * p)
        return out
    return update


def optax_updates(case):
    if case["opt_type"] == "sgd":
        optimizer = optax.sgd(LEARNING_RATE)
    elif case["opt_type"] == "adafactor":
        optimizer = optax.adafactor(LEARNING_RATE)
    else:
        masked = {"bias", "norm"} if "adamw_mask" in case else set()
        optimizer = optax.adamw(LEARNING_RATE, b1=case["adam_b1"], b2=case["adam_b2"], eps=case["adam_eps"],
                                eps_root=case["adam_eps_root"], weight_decay=case["adam_weight_decay"],
                                mask={name: name not in masked for name in case["shapes"]})

    def update(params, grads, state, t):
        if t == 1:
            state["optax"] = optimizer.init(params)
        updates, state["optax"] = optimizer.update(grads, state["optax"], params)
        return optax.apply_updates(params, updates)
    return update


def main():
    tensors = {}
    for name, case in CASES.items():
        update = praxis_updates(case) if case["opt_type"] == "adam_pax" else optax_updates(case)
        params = {p: jax.numpy.asarray(values(shape, i, 0)) for i, (p, shape) in enumerate(case["shapes"].items())}
        state = {}
        for t in range(1, max(STEPS) + 1):
            grads = {p: values(shape, i, t) * GRAD_SCALE for i, (p, shape) in enumerate(case["shapes"].items())}
            params = update(params, grads, state, t)
            if t in STEPS:
                for p, value in params.items():
                    assert value.dtype == numpy.float64
                    flat = numpy.asarray(value).reshape(-1)
                    stride = STRIDE if flat.size > LARGE_ELEMENTS else 1
                    tensors[f"{name}/{p}/{t}"] = flat[::stride].astype(numpy.float32)
    settings = {name: {key: [[n, list(shape)] for n, shape in value.items()] if key == "shapes" else value
                       for key, value in case.items()} for name, case in CASES.items()}
    save_file(tensors, HERE / "optimizers.safetensors", metadata={
        "cases": json.dumps(settings), "learning_rate": json.dumps(LEARNING_RATE), "grad_scale": json.dumps(GRAD_SCALE)})


if __name__ == "__main__":
    main()
