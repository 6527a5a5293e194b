#!/usr/bin/env python3
"""Measures requests per second, the time to the first token and the 99th percentiles of a server
under load, beside other servers with the same weights on the same CPUs.

  bench/serve.py --bin build/release/bin [--out bench/results/serve.json] [--clients 1,8]

The model is that of bench/decode.py: a Llama of 134 M random weights. Each client sends one request
after another: prompts of 16 to 256 token ids, 32 new tokens, greedy, as a stream of events. In each
round the servers are loaded one after another, so that other load of the machine meets all of them.
A ratio compares the servers within a round, and the medians over the rounds are reported. The CPU
time of a request depends least on other load.

With --adapters N, the other servers are those of `muster serve` with N LoRA adapters of rank 16 on
all projections, of which each request uses another one, and with the model divided among two
processes. They show what adapters and the division cost.

transformers generates for one request at a time, as `transformers serve` does by default. llama.cpp
takes part if MUSTER_LLAMA_CPP_PYTHON names a Python for peers/serve_llama_cpp.py.
"""
import argparse
import array
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

BENCH = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))
from peers.environment import describe_run, peers_python  # noqa: E402

NEW = 32
PROMPTS = (16, 64, 128, 256)
IDS = 256  # ids below the vocabulary of the tokenizer
LOWER_IS_BETTER = ("first_token_seconds_median", "first_token_seconds_p99", "request_seconds_p99", "cpu_seconds_per_request")


def request(server, number):
    """Returns (seconds to the first token, seconds to the end)."""
    port, models = server["port"], server.get("models", [])
    prompt = [(number * 31 + i * 7919) % IDS for i in range(PROMPTS[number % len(PROMPTS)])]
    body = json.dumps({"prompt": prompt, "max_tokens": NEW, "temperature": 0, "stream": True, "ignore_eos": True,
                       **({"model": models[number % len(models)]} if models else {})})
    start = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/completions", body)
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(response.read())
    first = None
    while response.readline():
        first = first or time.perf_counter() - start
    connection.close()
    return first, time.perf_counter() - start


def percentile(values, percent):
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def cpu_seconds(pid):
    """Returns the CPU time of a process with its threads, and of its child processes."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(map(cpu_seconds, children))


def load(server, clients, requests):
    before = cpu_seconds(server["pid"])
    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        times = list(pool.map(lambda number: request(server, number), range(requests)))
    seconds = time.perf_counter() - start
    first, total = zip(*times)
    return {"requests_per_second": requests / seconds, "output_tokens_per_second": requests * NEW / seconds,
            "first_token_seconds_median": statistics.median(first), "first_token_seconds_p99": percentile(first, 99),
            "request_seconds_p99": percentile(total, 99), "cpu_seconds_per_request": (cpu_seconds(server["pid"]) - before) / requests}


@contextlib.contextmanager
def running(command, ready):
    """Starts a server, gives its process id and what `ready` returns, and ends it."""
    server = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
    try:
        yield {**ready(server), "pid": server.pid}
    finally:
        server.terminate()
        server.wait(60)


def make_adapter(hf, folder, rank, seed):
    """Writes a folder of PEFT with random matrices for all projections of a Llama."""
    config = json.loads((hf / "config.json").read_text())
    width, heads = config["hidden_size"], config["num_attention_heads"]
    head = config.get("head_dim") or width // heads
    out, mlp, numbers = head * heads, config["intermediate_size"], random.Random(seed)
    kv = head * config["num_key_value_heads"]
    shapes = {"self_attn.q_proj": (out, width), "self_attn.k_proj": (kv, width), "self_attn.v_proj": (kv, width), "self_attn.o_proj": (width, out),
              "mlp.gate_proj": (mlp, width), "mlp.up_proj": (mlp, width), "mlp.down_proj": (width, mlp)}
    header, data = {}, bytearray()
    for layer in range(config["num_hidden_layers"]):
        for name, (rows, columns) in shapes.items():
            for matrix, shape in (("A", (rank, columns)), ("B", (rows, rank))):
                values = array.array("f", (numbers.uniform(-0.02, 0.02) for _ in range(shape[0] * shape[1])))
                header[f"base_model.model.model.layers.{layer}.{name}.lora_{matrix}.weight"] = {
                    "dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * len(values)]}
                data += values.tobytes()
    folder.mkdir()
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": rank}))


def start_ours(binaries, folder, threads, dtype, *words, models=()):
    port = folder / f"port-{threads}-{dtype}-{len(models)}-{len(words)}"

    def ready(server):
        while not port.exists():
            if server.poll() is not None:
                raise RuntimeError("muster serve has ended")
            time.sleep(0.05)
        return {"port": int(port.read_text()), "models": models}
    return running([binaries / "muster", "serve", "--run", folder / "run", "--listen", "127.0.0.1:0", "--port-file", port,
                    "--threads", threads, "--dtype", dtype, "--context", 512, *words], ready)


def start_peer(python, script, folder, threads, dtype):
    return running([python, BENCH / "peers" / script, folder / "hf", threads, dtype], lambda server: json.loads(server.stdout.readline()))


def summary(runs):
    """Returns the medians of a server's rounds."""
    return {name: round(statistics.median(run[name] for run in runs), 4) for name in runs[0]}


def ratios(ours, theirs):
    """Returns the medians over the rounds of how many times better ours is."""
    of_round = [{name: their[name] / our[name] if name in LOWER_IS_BETTER else our[name] / their[name] for name in our}
                for our, their in zip(ours, theirs)]
    return summary(of_round)


def measure(args, folder, dtype):
    starts = {"muster": start_ours(args.bin, folder, args.threads, dtype)}
    if args.adapters:
        names = [f"adapter{number}" for number in range(args.adapters)]
        words = [word for name in names for word in ("--adapter", f"{name}={folder / name}")]
        starts["with adapters"] = start_ours(args.bin, folder, args.threads, dtype, *words, models=names)
        starts["two processes"] = start_ours(args.bin, folder, args.threads, dtype, "--tensor-parallel", 2)
    else:
        starts["transformers"] = start_peer(peers_python(), "serve_transformers.py", folder, args.threads, dtype)
        if os.environ.get("MUSTER_LLAMA_CPP_PYTHON"):
            starts["llama.cpp"] = start_peer(os.environ["MUSTER_LLAMA_CPP_PYTHON"], "serve_llama_cpp.py", folder, args.threads, dtype)
    cases = []
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(start) for name, start in starts.items()}
        for server in servers.values():
            request(server, 0)
        for clients in args.clients:
            runs = {name: [] for name in servers}
            for _ in range(args.rounds):
                for name, server in servers.items():
                    runs[name].append(load(server, clients, args.requests))
            cases.append({"dtype": dtype, "clients": clients, "medians": {name: summary(each) for name, each in runs.items()},
                          "times_better_than": {name: ratios(runs["muster"], each) for name, each in runs.items() if name != "muster"}})
            print(json.dumps(cases[-1]), file=sys.stderr)
    return cases, {name: server["version"] for name, server in servers.items() if "version" in server}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=BENCH.parent / "build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=BENCH / "results/serve.json")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clients", type=lambda text: [int(count) for count in text.split(",")], default=[1, 8])
    parser.add_argument("--requests", type=int, default=48, help="requests of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--adapters", type=int, default=0, help="0: measures other programs instead")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([peers_python(), BENCH / "peers/decode_transformers.py", folder / "hf", "--make"], check=True)
        (folder / "text.txt").write_text("".join(f"rank {i} waits for rank {i * 7 % 1000}.\n" for i in range(3000)))
        subprocess.run([args.bin / "muster", "train-tokenizer", "--text", folder / "text.txt", "--vocab-size", "300", "--out", folder / "tok"],
                       check=True, stdout=subprocess.DEVNULL)
        subprocess.run([args.bin / "muster", "convert", folder / "hf", folder / "run", "--tokenizer", folder / "tok.model"], check=True,
                       stdout=subprocess.DEVNULL)
        for number in range(args.adapters):
            make_adapter(folder / "hf", folder / f"adapter{number}", 16, number)
        report = {**describe_run(), "threads": args.threads,
                  "what": f"{args.rounds} rounds of {args.requests} streamed requests of {PROMPTS} prompt tokens and {NEW} new ones", "cases": []}
        for dtype in ("float32", "bfloat16"):
            cases, report["versions"] = measure(args, folder, dtype)
            report["cases"] += cases
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
