#!/usr/bin/env python3
"""Creates the golden files qlora/* of tests/unit/trainer_core/base/weight_blocks_test.cc and of
tests/unit/trainer_core/loop/adapter_golden_test.cc: weights in blocks by bitsandbytes, and PEFT's
results in fp64 for the adapters of lora/* on such weights.

    python3 -m venv build/golden
    build/golden/bin/pip install torch==2.8.0 transformers==4.56.2 peft==0.21.2 bitsandbytes==0.50.2
    build/golden/bin/python tests/golden/make_qlora.py

blocks.safetensors holds `values`, and for each type TYPE.codes, TYPE.scales and TYPE.values: the
bytes, the largest magnitudes, and the values of the codes. NAME_TYPE.safetensors holds for the
layers' matrices of hugging_face/NAME what make_lora.py describes; merged.NAME are their blocks'
values with the adapters merged.
"""
import pathlib

import bitsandbytes.functional as bnb
import torch
from safetensors.torch import save_file

import make_lora

HERE = pathlib.Path(__file__).resolve().parent
BLOCK = 64
CASES = {"llama_gqa": ("nf4", "int8"), "mixtral": ("nf4",)}


def nf4(values):
    """Returns codes, scales and values of a tensor, which is flattened: the CPU kernel of
    bitsandbytes decodes rows that are shorter than a block with wrong scales."""
    codes, state = bnb.quantize_4bit(values.reshape(-1), blocksize=BLOCK, quant_type="nf4")
    return codes.reshape(-1), state.absmax, bnb.dequantize_4bit(codes, state).reshape(values.shape)


def int8(values):
    blocks = values.reshape(-1, BLOCK)
    codes, scales, _ = torch.ops.bitsandbytes.int8_vectorwise_quant(blocks)
    return codes.reshape(-1), scales, bnb.int8_vectorwise_dequant(codes, scales).reshape(values.shape)


TYPES = {"nf4": nf4, "int8": int8}


def sample():
    """Random blocks of many magnitudes, and values between two codes."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn((40, BLOCK), generator=generator)
    values *= 10.0 ** torch.linspace(-30, 30, 40)[:, None]
    table = bnb.get_4bit_type("nf4", device="cpu")
    between = (table[:-1] + table[1:]) / 2
    ties = torch.zeros((2, BLOCK))
    ties[0, 0], ties[0, 1:16] = 1.0, between
    ties[1, 0] = 127.0
    ties[1, 1:33] = torch.arange(32) + 0.5
    ties[1, 33:] = -torch.arange(31) - 0.5
    return torch.cat([values, ties]).reshape(-1)


def quantizes(name):
    return ".layers." in name and name.endswith(".weight") and (
        "_proj" in name or any(f".{w}." in name for w in ("w1", "w2", "w3")))


def main():
    folder = HERE / "qlora"
    folder.mkdir(exist_ok=True)
    values = sample()
    tensors = {"values": values}
    for name, quantize in TYPES.items():
        codes, scales, decoded = quantize(values.clone())
        tensors.update({f"{name}.codes": codes.view(torch.uint8).float(), f"{name}.scales": scales, f"{name}.values": decoded})
    save_file({k: v.float().contiguous() for k, v in tensors.items()}, folder / "blocks.safetensors")
    for name, types in CASES.items():
        for kind in types:
            def to_blocks(model):
                for parameter_name, parameter in model.named_parameters():
                    if quantizes(parameter_name):
                        parameter.data = TYPES[kind](parameter.data.float())[2].reshape(parameter.shape).to(parameter.dtype)
            make_lora.make_step(name, to_blocks, folder / f"{name}_{kind}.safetensors")


if __name__ == "__main__":
    main()
