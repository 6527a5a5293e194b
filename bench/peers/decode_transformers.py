"""transformers' side of bench/decode.py.

Usage: decode_transformers.py FOLDER --make               writes the model
       decode_transformers.py FOLDER THREADS float32|bfloat16   answers `generate P N`
"""
import json
import sys
import time

import torch
import transformers

PROMPT_STRIDE = 7919  # the same as in bench/decode/main.cc


def make(folder):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32000, hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
        num_key_value_heads=12, max_position_embeddings=2048, tie_word_embeddings=False)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def generate(model, prompt, count):
    ids = torch.tensor([[(i + 1) * PROMPT_STRIDE % model.config.vocab_size for i in range(prompt)]])
    start = time.perf_counter()
    out = model(ids, use_cache=True, logits_to_keep=1)
    prefill = time.perf_counter() - start
    tokens, seconds = [], []
    for i in range(count):
        before = time.perf_counter()
        following = int(out.logits[0, -1].argmax())
        tokens.append(following)
        if i + 1 == count:
            break
        out = model(torch.tensor([[following]]), past_key_values=out.past_key_values, use_cache=True)
        seconds.append(time.perf_counter() - before)
    return {"prefill_seconds": prefill, "decode_seconds": seconds, "tokens": tokens}


def main():
    if sys.argv[2] == "--make":
        return make(sys.argv[1])
    torch.set_num_threads(int(sys.argv[2]))
    model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=getattr(torch, sys.argv[3])).eval()
    with torch.inference_mode():
        generate(model, 64, 4)
        print(json.dumps({"ready": True, "version": f"transformers {transformers.__version__}, torch {torch.__version__}"}),
              flush=True)
        for line in sys.stdin:
            _, prompt, count = line.split()
            print(json.dumps(generate(model, int(prompt), int(count))), flush=True)


if __name__ == "__main__":
    main()
