"""PyTorch's side of bench/checkpoint.py: saves and loads the same tensors, synced to the disk.

  checkpoint_torch.py torch_save|torch_dcp|safetensors FOLDER MIB
"""
import json
import os
import pathlib
import shutil
import sys
import time

import torch

SIDE = 2048


def make_tensors(mib):
    generator = torch.Generator().manual_seed(1)
    names = []
    for i in range(max(1, mib // 48)):
        names += [f"{kind}layers.{i}.weight" for kind in ("", "m.", "v.")]
    return {name: torch.rand(SIDE, SIDE, generator=generator) for name in names}


def sync(path):
    """Syncs a file, or a folder with its files, so that it survives a power loss."""
    for file in [*path.iterdir(), path] if path.is_dir() else [path, path.parent]:
        fd = os.open(file, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


class TorchSave:
    def save(self, tensors):
        torch.save(tensors, self.path)
        sync(self.path)

    def load(self, tensors):
        for name, value in torch.load(self.path, weights_only=True).items():
            tensors[name].copy_(value)


class Distributed:
    def __init__(self):
        import torch.distributed.checkpoint as dcp
        self.dcp = dcp

    def save(self, tensors):
        self.dcp.save(tensors, storage_writer=self.dcp.FileSystemWriter(str(self.path), sync_files=True))
        sync(self.path)

    def load(self, tensors):
        self.dcp.load(tensors, storage_reader=self.dcp.FileSystemReader(str(self.path)))


class Safetensors:
    def save(self, tensors):
        from safetensors.torch import save_file
        save_file(tensors, self.path)
        sync(self.path)

    def load(self, tensors):
        from safetensors.torch import load_file
        for name, value in load_file(self.path).items():
            tensors[name].copy_(value)


def main():
    kind, folder, mib = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    peer = {"torch_save": TorchSave, "torch_dcp": Distributed, "safetensors": Safetensors}[kind]()
    tensors = make_tensors(mib)
    bytes_ = sum(4 * t.numel() for t in tensors.values())
    print(json.dumps({"ready": True, "bytes": bytes_, "version": torch.__version__}), flush=True)
    for count, line in enumerate(sys.stdin):
        saves = line.strip() == "save"
        if saves:
            before, peer.path = getattr(peer, "path", None), folder / str(count) / "numbers"
            peer.path.parent.mkdir()
        start = time.monotonic()
        getattr(peer, line.strip())(tensors)
        seconds = time.monotonic() - start
        if saves and before is not None:
            shutil.rmtree(before.parent)
        print(json.dumps({"seconds": seconds, "path": str(peer.path)}), flush=True)


if __name__ == "__main__":
    main()
