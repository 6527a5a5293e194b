"""PyTorch's side of bench/mesh.py: one mode of torch.distributed over Gloo, in eager mode, with the
same model and batch.

Usage: mesh_torch.py one|ddp|fsdp2|tensor|pipeline RANKS KEY=VALUE…   (keys of bench/mesh/main.cc)

`fsdp2` is fully_shard of every layer; `tensor` is parallelize_module with sequence parallel between
products and loss_parallel; `pipeline` is Schedule1F1B, a stage of consecutive layers on each rank.
The answer to `steps N` is the same as that of bench/mesh/main.cc.
"""
import math
import os
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from cpu_train_common import OPTIMIZER
from mesh_common import answer, read_commands
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               loss_parallel, parallelize_module)

WARM_STEPS = 2


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        d = c["width"]
        self.head_dim = d // c["heads"]
        self.q, self.k, self.v, self.out = (nn.Linear(d, d, bias=False) for _ in range(4))

    def forward(self, x, cos, sin):
        # This rank's share of the heads.
        q, k, v = (layer(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        context = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        return self.out(context.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate, self.up = (nn.Linear(c["width"], c["mlp"], bias=False) for _ in range(2))
        self.down = nn.Linear(c["mlp"], c["width"], bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm1, self.norm2 = (nn.RMSNorm(c["width"], eps=1e-5) for _ in range(2))
        self.attention, self.mlp = Attention(c), Mlp(c)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    """The whole model, or the layers of one pipeline stage: the first stage has the embedding, the
    last the norm and the head.
    """

    def __init__(self, c, stage=0, stages=1):
        super().__init__()
        each = c["layers"] // stages
        self.embed = nn.Embedding(c["vocab"], c["width"]) if stage == 0 else None
        self.blocks = nn.ModuleList(Block(c) for _ in range(each))
        last = stage == stages - 1
        self.norm = nn.RMSNorm(c["width"], eps=1e-5) if last else None
        self.head = nn.Linear(c["width"], c["vocab"], bias=False) if last else None
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=1 / math.sqrt(p.shape[1]))
        h = c["width"] // c["heads"]
        angles = torch.arange(c["seq"])[:, None] * 10000.0 ** (-2 * torch.arange(h // 2) / h)[None, :]
        self.register_buffer("cos", torch.cat([angles.cos()] * 2, -1), persistent=False)
        self.register_buffer("sin", torch.cat([angles.sin()] * 2, -1), persistent=False)

    def forward(self, x):
        x = self.embed(x) if self.embed is not None else x
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x)) if self.head is not None else x


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def optimizer_of(model):
    o = OPTIMIZER
    return torch.optim.AdamW(model.parameters(), lr=o["rate"], betas=(o["b1"], o["b2"]), eps=o["eps"], weight_decay=o["decay"],
                             fused=True)


def batch_of(c, rank=0, ranks=1):
    """Returns tokens and targets of a rank's share of the sequences."""
    generator = torch.Generator().manual_seed(1)
    return (torch.randint(0, c["vocab"], (c["batch"], c["seq"]), generator=generator).chunk(ranks)[rank] for _ in range(2))


def training(model, c, rank, ranks):
    """Runs a step of a model on its rank's sequences."""
    optimizer = optimizer_of(model)
    tokens, targets = batch_of(c, rank, ranks)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model(tokens), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), OPTIMIZER["clip"])
        optimizer.step()
        return loss.item()

    return step


def one(c, rank, ranks):
    return training(Llama(c), c, rank, ranks)


def ddp(c, rank, ranks):
    return training(nn.parallel.DistributedDataParallel(Llama(c)), c, rank, ranks)


def fsdp2(c, rank, ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    model = Llama(c)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return training(model, c, rank, ranks)


def tensor(c, rank, ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    model = Llama(c)
    rows = Shard(1)
    parallelize_module(model, mesh, {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=rows),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=rows, output_layouts=Shard(-1), use_local_output=False),
    })
    for block in model.blocks:
        parallelize_module(block, mesh, {
            "norm1": SequenceParallel(),
            "attention": PrepareModuleInput(input_layouts=(rows, None, None), desired_input_layouts=(Replicate(), None, None)),
            "attention.q": ColwiseParallel(),
            "attention.k": ColwiseParallel(),
            "attention.v": ColwiseParallel(),
            "attention.out": RowwiseParallel(output_layouts=rows),
            "norm2": SequenceParallel(),
            "mlp": PrepareModuleInput(input_layouts=(rows,), desired_input_layouts=(Replicate(),)),
            "mlp.gate": ColwiseParallel(),
            "mlp.up": ColwiseParallel(),
            "mlp.down": RowwiseParallel(output_layouts=rows),
        })
    optimizer = optimizer_of(model)
    tokens, targets = batch_of(c)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with loss_parallel():
            loss = loss_of(model(tokens), targets)
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), OPTIMIZER["clip"])
        optimizer.step()
        return loss.full_tensor().item()

    return step


def pipeline(c, rank, ranks):
    model = Llama(c, rank, ranks)
    micro_batches = c["micro_batches"]
    stage = PipelineStage(model, rank, ranks, torch.device("cpu"))
    schedule = Schedule1F1B(stage, micro_batches, loss_fn=loss_of)
    optimizer = optimizer_of(model)
    tokens, targets = batch_of(c)

    def step():
        optimizer.zero_grad(set_to_none=True)
        losses = []
        if rank == 0:
            schedule.step(tokens)
        elif rank == ranks - 1:
            schedule.step(target=targets, losses=losses)
        else:
            schedule.step()
        gradients = [p.grad for p in model.parameters()]
        squares = torch.stack([g.square().sum() for g in gradients]).sum()
        dist.all_reduce(squares)
        factor = min(1.0, OPTIMIZER["clip"] / (squares.sqrt().item() + 1e-6))
        torch._foreach_mul_(gradients, factor)
        optimizer.step()
        loss = torch.stack(losses).mean() if losses else torch.zeros(())
        dist.broadcast(loss, ranks - 1)
        return loss.item()

    return step


MODES = {"one": one, "ddp": ddp, "fsdp2": fsdp2, "tensor": tensor, "pipeline": pipeline}


def run_rank(rank, mode, ranks, port, c):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(c["threads"])
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    step = MODES[mode](c, rank, ranks)
    for _ in range(WARM_STEPS):
        step()
    if rank == 0:
        answer({"ready": True, "version": torch.__version__})
    commands = read_commands() if rank == 0 else None
    while True:
        steps = torch.tensor([next(commands) if rank == 0 else 0])
        dist.broadcast(steps, 0)
        if steps.item() == 0:
            return
        seconds, loss, busy = [], None, time.process_time()
        for _ in range(steps.item()):
            start = time.perf_counter()
            loss = step()
            seconds.append(time.perf_counter() - start)
        cpu = torch.tensor([time.process_time() - busy])
        dist.all_reduce(cpu)
        if rank == 0:
            answer({"seconds": seconds, "cpu_seconds": cpu.item() / len(seconds), "loss": loss})


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    mode, ranks = sys.argv[1], int(sys.argv[2])
    words = {key: int(value) for key, value in (word.split("=") for word in sys.argv[3:])}
    mp.start_processes(run_rank, (mode, ranks, free_port(), words), ranks, start_method="fork")


if __name__ == "__main__":
    main()
