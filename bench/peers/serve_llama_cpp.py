"""llama.cpp's side of bench/serve.py: a server with continuous batching over llama.cpp's library.
A step computes one token of each running request and the prompts of new ones, as llama-server does.

Usage: serve_llama_cpp.py FOLDER THREADS float32|bfloat16      prints {"port": N}

FOLDER has a Llama of Hugging Face. Needs the packages cyllama (llama.cpp with Python bindings),
gguf, numpy and safetensors.
"""
import http.server
import json
import pathlib
import queue
import sys
import threading

import cyllama
import gguf
import numpy
from cyllama.llama import llama_cpp
from safetensors.numpy import load_file

BATCH, CONTEXT, STEP_TOKENS = 32, 512, 256
LAYER_NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
               "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
               "mlp.down_proj": "ffn_down"}
OTHER_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(name):
    name = name.removesuffix(".weight")
    if name in OTHER_NAMES:
        return f"{OTHER_NAMES[name]}.weight"
    layer, part = name.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{LAYER_NAMES[part]}.weight"


def interleaved(matrix, heads):
    """Returns the rows of queries or keys in the order of llama.cpp's RoPE."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_gguf(folder, path, dtype):
    config = json.loads((folder / "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    for name, tensor in load_file(folder / "model.safetensors").items():
        tensor = tensor.astype(numpy.float32)
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            tensor = interleaved(tensor, heads if "q_proj" in name else kv_heads)
        if dtype == "bfloat16" and tensor.ndim == 2:
            kind = gguf.GGMLQuantizationType.BF16
            writer.add_tensor(gguf_name(name), gguf.quants.quantize(tensor, kind), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(name), numpy.ascontiguousarray(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Request:
    def __init__(self, prompt, count):
        self.tokens, self.count, self.computed = list(prompt), count, 0
        self.prompt = len(self.tokens)
        self.output = queue.SimpleQueue()


class Engine:
    """Computes steps on its own thread."""

    def __init__(self, path, threads):
        llama_cpp.disable_logging()
        llama_cpp.ggml_backend_load_all()
        self.model = llama_cpp.LlamaModel(str(path), llama_cpp.LlamaModelParams())
        params = llama_cpp.LlamaContextParams()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = BATCH * CONTEXT, STEP_TOKENS, STEP_TOKENS, BATCH
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.LlamaContext(self.model, params)
        self.context.set_n_threads(threads, threads)
        self.batch = llama_cpp.LlamaBatch(n_tokens=STEP_TOKENS, embd=0, n_seq_max=1)
        self.sampler = llama_cpp.LlamaSampler(llama_cpp.LlamaSamplerChainParams())
        self.sampler.add_greedy()
        self.waiting = queue.SimpleQueue()
        self.running = {}  # by sequence
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            while len(self.running) < BATCH and (not self.running or not self.waiting.empty()):
                free = next(i for i in range(BATCH) if i not in self.running)
                self.running[free] = self.waiting.get()
            self.step()

    def step(self):
        self.batch.clear()
        sampled, room, used = [], STEP_TOKENS, 0
        # Sequences with one token come first.
        for sequence, request in sorted(self.running.items(), key=lambda item: len(item[1].tokens) - item[1].computed):
            for _ in range(min(room, len(request.tokens) - request.computed)):
                is_last = request.computed + 1 == len(request.tokens)
                self.batch.add(request.tokens[request.computed], request.computed, [sequence], is_last)
                request.computed += 1
                if is_last:
                    sampled.append((sequence, request, used))
                used += 1
                room -= 1
        self.context.decode(self.batch)
        for sequence, request, row in sampled:
            token = self.sampler.sample(self.context, row)
            request.tokens.append(token)
            request.output.put(token)
            if len(request.tokens) - request.prompt == request.count:
                request.output.put(None)
                self.context.memory_seq_rm(sequence, -1, -1)
                del self.running[sequence]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    engine = None

    def do_POST(self):  # noqa: N802
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        request = Request(body["prompt"], body["max_tokens"])
        self.engine.waiting.put(request)
        while (token := request.output.get()) is not None:
            self.wfile.write(f"data: {token}\n\n".encode())
            self.wfile.flush()

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128


def main():
    folder, threads, dtype = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    path = folder / f"{dtype}.gguf"
    if not path.exists():
        write_gguf(folder, path, dtype)
    Handler.engine = Engine(path, threads)
    server = Server(("127.0.0.1", 0), Handler)
    config = json.loads((pathlib.Path(cyllama.__file__).parent / "build_config.json").read_text())
    print(json.dumps({"port": server.server_address[1],
                      "version": f"llama.cpp {config['versions']['llama_cpp_version']} by cyllama {cyllama.__version__}"}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
