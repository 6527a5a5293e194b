"""PyTorch's side of bench/cpu_train.py: eager, or the whole model through torch.compile.

Usage: cpu_train_torch.py S|M THREADS eager|compile float32|autocast|bfloat16

autocast keeps fp32 weights and multiplies in bf16; bfloat16 has weights, gradients and moments in
bf16, too.
"""
import contextlib
import math
import os
import sys
import time

import torch
import torch.nn.functional as F
from cpu_train_common import OPTIMIZER, SIZES, serve
from torch import nn


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, m = c["width"], c["mlp"]
        self.heads = c["heads"]
        self.norm1, self.norm2 = nn.RMSNorm(d, eps=1e-5), nn.RMSNorm(d, eps=1e-5)
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.gate_up, self.down = nn.Linear(d, 2 * m, bias=False), nn.Linear(m, d, bias=False)

    def forward(self, x, cos, sin):
        batch, seq, d = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, seq, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        context = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(context.transpose(1, 2).reshape(batch, seq, d))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(c["vocab"], c["width"])
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["layers"]))
        self.norm = nn.RMSNorm(c["width"], eps=1e-5)
        self.head = nn.Linear(c["width"], c["vocab"], bias=False)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=1 / math.sqrt(p.shape[1]))
        h = c["width"] // c["heads"]
        angles = torch.arange(c["seq"])[:, None] * 10000.0 ** (-2 * torch.arange(h // 2) / h)[None, :]
        self.register_buffer("cos", torch.cat([angles.cos()] * 2, -1), persistent=False)
        self.register_buffer("sin", torch.cat([angles.sin()] * 2, -1), persistent=False)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), targets.flatten())


def gemm_peak_tflops(dtype):
    """Best of a few 512 x 512 x 512 products, as our own figure is measured."""
    a, b = torch.randn(512, 512, dtype=dtype), torch.randn(512, 512, dtype=dtype)
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        torch.mm(a, b)
        seconds.append(time.perf_counter() - start)
    return 2 * 512**3 / min(seconds) * 1e-12


def main():
    size, threads, mode, precision = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    c, o = SIZES[size], OPTIMIZER
    model = Llama(c).bfloat16() if precision == "bfloat16" else Llama(c)
    optimizer = torch.optim.AdamW(model.parameters(), lr=o["rate"], betas=(o["b1"], o["b2"]), eps=o["eps"],
                                  weight_decay=o["decay"], fused=True)
    tokens = torch.randint(0, c["vocab"], (c["batch"], c["seq"]))
    targets = torch.randint(0, c["vocab"], (c["batch"], c["seq"]))
    loss_of = torch.compile(model) if mode == "compile" else model

    def context():
        return torch.autocast("cpu", torch.bfloat16) if precision == "autocast" else contextlib.nullcontext()

    def step():
        optimizer.zero_grad(set_to_none=True)
        with context():
            loss = loss_of(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), o["clip"])
        optimizer.step()
        return loss.item()

    for _ in range(2):
        step()
    peak_type = torch.float32 if precision == "float32" else torch.bfloat16
    serve(step, {"version": torch.__version__, "gemm_peak_tflops": gemm_peak_tflops(peak_type)})


if __name__ == "__main__":
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    main()
