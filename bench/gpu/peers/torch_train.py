#!/usr/bin/env python3
"""Trains the workloads of bench/gpu/training.cc in PyTorch on this machine's GPU, one JSON line
each: the peer of each row.

  bench/gpu/peers/torch_train.py [--jobs "125M,1.1B,GPT-2 124M,1.1B, remat full,7B"] [--seconds N]

Follows common PyTorch practice: bf16 autocast over fp32 weights, fused AdamW, clipping,
scaled_dot_product_attention by cuDNN or Flash Attention, each block compiled. `remat full` and 7B
recompute blocks (checkpoint). Rows that do not fit the card have `skipped` instead of times. Exit
status: 77 if there is no PyTorch with a GPU.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time

JOBS = {
    # layers, width, heads, kv_heads, mlp, vocab, seq_len, batch, remat, gpt2
    "125M": (12, 768, 12, 12, 2048, 32000, 1024, 16, False, False),
    "1.1B": (22, 2048, 32, 4, 5632, 32000, 2048, 4, False, False),
    "GPT-2 124M": (12, 768, 12, 12, 3072, 50304, 1024, 16, False, True),
    "1.1B, remat full": (22, 2048, 32, 4, 5632, 32000, 2048, 16, True, False),
    "7B": (32, 4096, 32, 32, 11008, 32000, 4096, 2, True, False),
}
WARM_UP, STEPS = 5, 20
NO_GPU = 77


def measure(name):
    """Runs one job in this process and prints its row."""
    try:
        import torch
    except ImportError:
        sys.exit(NO_GPU)
    if not torch.cuda.is_available():
        sys.exit(NO_GPU)
    import torch.nn.functional as F
    from torch import nn
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.checkpoint import checkpoint
    layers, width, heads, kv_heads, mlp, vocab, length, batch, remat, gpt2 = JOBS[name]
    h = width // heads

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            norm = nn.LayerNorm if gpt2 else nn.RMSNorm
            self.first, self.second = norm(width), norm(width)
            self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * h, bias=gpt2)
            self.out = nn.Linear(width, width, bias=gpt2)
            self.up = nn.Linear(width, mlp if gpt2 else 2 * mlp, bias=gpt2)
            self.down = nn.Linear(mlp, width, bias=gpt2)

        def forward(self, x, cos, sin):
            b, s, _ = x.shape
            q, k, v = self.qkv(self.first(x)).split([heads * h, kv_heads * h, kv_heads * h], -1)
            q, k, v = (t.view(b, s, -1, h).transpose(1, 2) for t in (q, k, v))
            if not gpt2:
                q, k = rotated(q, cos, sin), rotated(k, cos, sin)
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv_heads != heads)
            x = x + self.out(a.transpose(1, 2).reshape(b, s, width))
            y = self.up(self.second(x))
            if gpt2:
                return x + self.down(F.gelu(y, approximate="tanh"))
            gate, up = y.chunk(2, -1)
            return x + self.down(F.silu(gate) * up)

    def rotated(x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(vocab, width)
            self.places = nn.Embedding(length, width) if gpt2 else None
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = (nn.LayerNorm if gpt2 else nn.RMSNorm)(width)
            self.head = nn.Linear(width, vocab, bias=False)
            if gpt2:
                self.head.weight = self.tokens.weight
            angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, h, 2) / h))
            self.register_buffer("cos", angles.cos())
            self.register_buffer("sin", angles.sin())

        def forward(self, tokens, targets):
            x = self.tokens(tokens)
            if gpt2:
                x = x + self.places.weight
            for block in self.blocks:
                x = checkpoint(block, x, self.cos, self.sin, use_reentrant=False) if remat else block(x, self.cos, self.sin)
            return F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), targets.flatten())

    began = time.monotonic()
    row = {"peer": "torch", "model": name}
    try:
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("high")
        with torch.device("cuda"):
            model = Model()
        params = sum(p.numel() for p in model.parameters())
        for i, block in enumerate(model.blocks):
            model.blocks[i] = torch.compile(block)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
        seconds = []
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):
            for _ in range(WARM_UP + STEPS):
                data = torch.randint(0, vocab, (batch, length + 1), device="cuda")
                torch.cuda.synchronize()
                start = time.monotonic()
                with torch.autocast("cuda", torch.bfloat16):
                    loss = model(data[:, :-1], data[:, 1:])
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                torch.cuda.synchronize()
                seconds.append(time.monotonic() - start)
        step = statistics.median(seconds[WARM_UP:])
        row.update(params=params, median_step_seconds=step, tokens_per_second=batch * length / step, seconds_to_first_step=time.monotonic() - began - sum(seconds[1:]),
                   peak_mib=torch.cuda.max_memory_allocated() >> 20, loss=float(loss), device=torch.cuda.get_device_name(), torch=torch.__version__)
    except torch.cuda.OutOfMemoryError as error:
        row["skipped"] = "out of memory: " + str(error).split(". ")[0]
    print(json.dumps(row), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", choices=JOBS, help="run only this job, in this process")
    parser.add_argument("--jobs", nargs="*", choices=JOBS, default=list(JOBS))
    parser.add_argument("--seconds", type=float, default=240, help="time limit for all jobs")
    options = parser.parse_args()
    if options.job:
        measure(options.job)
        return
    until = time.monotonic() + options.seconds
    for job in options.jobs:
        left = until - time.monotonic()
        if left < 10:
            print(json.dumps({"peer": "torch", "model": job, "skipped": "no time is left"}), flush=True)
            continue
        # One process per job: allocations and crashes do not affect other jobs.
        try:
            status = subprocess.run([sys.executable, __file__, "--job", job], timeout=left).returncode
        except subprocess.TimeoutExpired:
            print(json.dumps({"peer": "torch", "model": job, "skipped": f"it was not over after {left:.0f} s"}), flush=True)
            continue
        if status == NO_GPU:
            sys.exit(NO_GPU)
        if status != 0:
            print(json.dumps({"peer": "torch", "model": job, "error": f"the process ended with status {status}"}), flush=True)


if __name__ == "__main__":
    main()
