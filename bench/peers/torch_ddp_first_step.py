"""torchrun's side of bench/launch.py: the same Llama, DistributedDataParallel over Gloo, two steps.

Prints `completed step: N, ...` on rank 0 after each optimizer step, as the trainer does.
"""
import argparse
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, HEADS, MLP, VOCAB, SEQ = 4, 256, 4, 688, 4096, 256


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(), RMSNorm()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(WIDTH, MLP, bias=False), nn.Linear(WIDTH, MLP, bias=False)
        self.down = nn.Linear(MLP, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        batch = x.shape[0]
        n = self.norm1(x)
        q, k, v = (p(n).view(batch, SEQ, HEADS, -1).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(batch, SEQ, WIDTH))
        n = self.norm2(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = RMSNorm()
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        head_dim = WIDTH // HEADS
        angle = torch.outer(torch.arange(SEQ), 10000 ** (-torch.arange(0, head_dim, 2) / head_dim))
        angle = torch.cat((angle, angle), -1)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).view(-1, VOCAB), targets.reshape(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Llama())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5, betas=(0.9, 0.95), weight_decay=0.1)
    tokens = torch.randint(VOCAB, (args.batch, SEQ + 1))
    for step in range(2):
        loss = model(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if dist.get_rank() == 0:
            value = loss.item()
            assert math.isfinite(value)
            print(f"completed step: {step}, loss: {value:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
