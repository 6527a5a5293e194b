#!/usr/bin/env python3
"""Creates the golden folders meta/* of
tests/unit/trainer_core/checkpoint/foreign/torch_file_test.cc: small random Llamas as Meta publishes
them, two files of tensor parallelism each, beside the logits that transformers computes with the
same weights in fp64, and hostile/*: files that would exploit torch.load.

    python3 -m venv build/golden && build/golden/bin/pip install -r tests/golden/requirements.txt
    build/golden/bin/python tests/golden/make_meta.py               # writes beside itself

A folder holds params.json, consolidated.00.pth, consolidated.01.pth, tokens.json and
logits.safetensors. The rows of queries and keys are in Meta's order, in which adjacent elements are
rotated as pairs. The attention below, with Meta's complex numbers, checks that order before
anything is written.
"""
import collections
import io
import json
import math
import pathlib
import pickle
import shutil
import zipfile

import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent / "meta"
FILES = 2
BATCH, LENGTH = 2, 11
SCALED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
# Seed, type, params.json, the split of the embedding, the settings for Hugging Face.
CASES = {
    "llama2": (1, torch.bfloat16, {"dim": 16, "multiple_of": 4, "n_heads": 4, "n_layers": 2, "norm_eps": 1e-05,
                                   "vocab_size": -1}, 1, {"rope_theta": 10000.0}),
    "llama3": (2, torch.float32, {"dim": 16, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 38,
                                  "ffn_dim_multiplier": 1.3, "multiple_of": 8, "norm_eps": 1e-05, "rope_theta": 500000.0,
                                  "use_scaled_rope": True}, 0, {"rope_theta": 500000.0, "rope_scaling": SCALED}),
}
# {the end of Muster's name: (Meta's name, the dimension that the files split)}
NAMES = {"input_layernorm": ("attention_norm", None), "self_attn.q_proj": ("attention.wq", 0),
         "self_attn.k_proj": ("attention.wk", 0), "self_attn.v_proj": ("attention.wv", 0),
         "self_attn.o_proj": ("attention.wo", 1), "post_attention_layernorm": ("ffn_norm", None),
         "mlp.gate_proj": ("feed_forward.w1", 0), "mlp.up_proj": ("feed_forward.w3", 0),
         "mlp.down_proj": ("feed_forward.w2", 1)}


def interleaved(rows, heads):
    """Moves row i + p h/2 of each head to row 2i + p."""
    width = rows.shape[0] // heads
    order = [i // 2 + (i % 2) * (width // 2) for i in range(width)]
    return torch.cat([rows[head * width:][:width][order] for head in range(heads)])


def meta_weights(model, embedding_cut):
    """Returns {Meta's name: (tensor, dimension that files split)}."""
    config, result = model.config, {}
    for name, value in model.state_dict().items():
        if name == "model.embed_tokens.weight":
            result["tok_embeddings.weight"] = (value, embedding_cut)
        elif name == "model.norm.weight":
            result["norm.weight"] = (value, None)
        elif name == "lm_head.weight":
            result["output.weight"] = (value, 0)
        else:
            layer, rest = name.removeprefix("model.layers.").split(".", 1)
            theirs, cut = NAMES[rest.removesuffix(".weight")]
            if theirs == "attention.wq":
                value = interleaved(value, config.num_attention_heads)
            if theirs == "attention.wk":
                value = interleaved(value, config.num_key_value_heads)
            result[f"layers.{layer}.{theirs}.weight"] = (value, cut)
    return result


def frequencies(width, config):
    values = 1.0 / config.rope_theta ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    if not config.rope_scaling:
        return values
    scaled = []
    for value in values.tolist():
        length = 2 * math.pi / value
        if length > 8192 / 1:
            value /= 8
        elif length >= 8192 / 4:
            smooth = (8192 / length - 1) / (4 - 1)
            value = (1 - smooth) * value / 8 + smooth * value
        scaled.append(value)
    return torch.tensor(scaled, dtype=torch.float64)


def meta_logits(weights, config, tokens):
    """The model in Meta's form: adjacent elements are the parts of a complex number, which the
    position rotates.
    """
    w = {name: value for name, (value, _) in weights.items()}
    heads, kv = config.num_attention_heads, config.num_key_value_heads
    width, length = config.hidden_size // heads, tokens.shape[1]
    rotations = torch.polar(torch.ones(length, width // 2, dtype=torch.float64),
                        torch.outer(torch.arange(length, dtype=torch.float64), frequencies(width, config)))

    def norm(x, gain):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + config.rms_norm_eps) * gain

    def rotate(x):
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
        return torch.view_as_real(pairs * rotations[:, None]).flatten(-2)

    x = w["tok_embeddings.weight"][tokens]
    mask = torch.full((length, length), -math.inf, dtype=torch.float64).triu(1)
    for layer in range(config.num_hidden_layers):
        p = f"layers.{layer}."
        h = norm(x, w[p + "attention_norm.weight"])
        q = rotate((h @ w[p + "attention.wq.weight"].T).unflatten(-1, (heads, width)))
        k = rotate((h @ w[p + "attention.wk.weight"].T).unflatten(-1, (kv, width))).repeat_interleave(heads // kv, 2)
        v = (h @ w[p + "attention.wv.weight"].T).unflatten(-1, (kv, width)).repeat_interleave(heads // kv, 2)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(width) + mask
        x = x + torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).flatten(-2) @ w[p + "attention.wo.weight"].T
        h = norm(x, w[p + "ffn_norm.weight"])
        gate = torch.nn.functional.silu(h @ w[p + "feed_forward.w1.weight"].T)
        x = x + (gate * (h @ w[p + "feed_forward.w3.weight"].T)) @ w[p + "feed_forward.w2.weight"].T
    return norm(x, w["norm.weight"]) @ w["output.weight"].T


def make_case(name, seed, dtype, params, embedding_cut, options):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "params.json").write_text(json.dumps(params) + "\n")
    hidden = int(params.get("ffn_dim_multiplier", 1) * int(8 * params["dim"] / 3))
    hidden = -(-hidden // params["multiple_of"]) * params["multiple_of"]
    config = transformers.LlamaConfig(
        vocab_size=38, hidden_size=params["dim"], intermediate_size=hidden, num_hidden_layers=params["n_layers"],
        num_attention_heads=params["n_heads"], num_key_value_heads=params.get("n_kv_heads", params["n_heads"]),
        rms_norm_eps=params["norm_eps"], max_position_embeddings=64, **options)
    config._attn_implementation = "eager"
    model = transformers.LlamaForCausalLM(config).double().eval()
    generator = torch.Generator().manual_seed(seed)
    for key, value in model.named_parameters():
        noise = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        noise = 1 + 0.3 * noise if value.dim() == 1 else 0.6 * noise if "embed" in key else 0.4 * noise
        value.data = noise.to(dtype).double()
    tokens = torch.randint(0, 38, (BATCH, LENGTH), generator=generator)
    (folder / "tokens.json").write_text(json.dumps(tokens.tolist()) + "\n")
    weights = meta_weights(model, embedding_cut)
    with torch.no_grad():
        logits = model(input_ids=tokens).logits
    difference = (meta_logits(weights, config, tokens) - logits).abs().max().item()
    assert difference < 1e-5, difference
    for file in range(FILES):
        cut = {key: value if dim is None else value.chunk(FILES, dim)[file] for key, (value, dim) in weights.items()}
        cut["rope.freqs"] = frequencies(config.head_dim, config)
        torch.save({key: value.to(dtype).clone() for key, value in cut.items()}, folder / f"consolidated.{file:02d}.pth")
    save_file({"logits": logits.float().contiguous()}, folder / "logits.safetensors")


class Call:
    def __init__(self, function, *arguments):
        self.value = function, arguments

    def __reduce__(self):
        return self.value


def archive(path, pickled, storages=(), compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr(zipfile.ZipInfo("archive/data.pkl"), pickled, compression)
        for key, data in storages:
            file.writestr(zipfile.ZipInfo(f"archive/data/{key}"), data, compression)


def make_hostile():
    folder = HERE / "hostile"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, function, argument in (("system", __import__("os").system, "touch pwned"), ("eval", eval, "1 + 1"),
                                     ("import", __import__, "os"), ("getattr", getattr, "x")):
        archive(folder / f"{name}.pth", pickle.dumps({"output.weight": Call(function, argument)}, protocol=2))
    # Deeply nested lists, a number of a thousand digits, a text of four gigabytes.
    archive(folder / "nested.pth", b"\x80\x02" + b"]" * 4000 + b"a" * 3999 + b".")
    archive(folder / "long.pth", b"\x80\x02\x8a\xff" + b"\xff" * 255 + b".")
    archive(folder / "text.pth", b"\x80\x02X\xff\xff\xff\xffabc.")
    archive(folder / "self.pth", b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01h\x00sh\x00h\x01h\x00s.")
    weights = collections.OrderedDict(a=torch.arange(6.0).reshape(2, 3), b=torch.ones(4, dtype=torch.bfloat16))
    buffer = io.BytesIO()
    torch.save(weights, buffer)
    (folder / "good.pth").write_bytes(buffer.getvalue())
    with zipfile.ZipFile(buffer) as file:
        entries = {entry.split("/", 1)[1]: file.read(entry) for entry in file.namelist()}
    pickled = entries["data.pkl"]
    archive(folder / "compressed.pth", pickled, [("0", entries["data/0"]), ("1", entries["data/1"])], zipfile.ZIP_DEFLATED)
    archive(folder / "missing.pth", pickled, [("0", entries["data/0"])])
    archive(folder / "short.pth", pickled, [("0", entries["data/0"][:-1]), ("1", entries["data/1"])])
    archive(folder / "beyond.pth", pickled.replace(b"K\x02K\x03\x86", b"K\x02K\x09\x86"),
            [("0", entries["data/0"]), ("1", entries["data/1"])])
    torch.save({"a": torch.arange(6.0).reshape(2, 3).T}, folder / "transposed.pth")
    torch.save(weights, folder / "legacy.pth", _use_new_zipfile_serialization=False)


if __name__ == "__main__":
    for case_name, case in CASES.items():
        make_case(case_name, *case)
    make_hostile()
