#!/usr/bin/env python3
"""Measures requests per second, the time to the first token and the 99th percentiles of a server
under load, beside transformers with the same weights on the same CPUs.

  bench/serve.py --bin build/release/bin [--out bench/results/serve.json] [--clients 1,8]

The model is that of bench/decode.py: a Llama of 134 M random weights. Each client sends one request
after another: prompts of 16 to 256 token ids, 32 new tokens, greedy, as a stream of events.
transformers generates for one request at a time.
"""
import argparse
import concurrent.futures
import http.client
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

BENCH = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))
from peers.environment import describe_run, peers_python  # noqa: E402

NEW, REQUESTS = 32, 48
PROMPTS = (16, 64, 128, 256)
IDS = 256  # ids below the vocabulary of the tokenizer


def request(port, number):
    """Returns (seconds to the first token, seconds to the end)."""
    prompt = [(number * 31 + i * 7919) % IDS for i in range(PROMPTS[number % len(PROMPTS)])]
    body = json.dumps({"prompt": prompt, "max_tokens": NEW, "temperature": 0, "stream": True, "ignore_eos": True})
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


def load(port, clients):
    request(port, 0)
    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        times = list(pool.map(lambda number: request(port, number), range(REQUESTS)))
    seconds = time.perf_counter() - start
    first, total = zip(*times)
    return {"requests_per_second": round(REQUESTS / seconds, 3), "output_tokens_per_second": round(REQUESTS * NEW / seconds, 1),
            "first_token_seconds_median": round(statistics.median(first), 4), "first_token_seconds_p99": round(percentile(first, 99), 4),
            "request_seconds_p99": round(percentile(total, 99), 4)}


def start_ours(binaries, folder, threads, dtype):
    port = folder / f"port-{threads}-{dtype}"
    server = subprocess.Popen([binaries / "muster", "serve", "--run", folder / "run", "--listen", "127.0.0.1:0", "--port-file", port,
                               "--threads", str(threads), "--dtype", dtype, "--context", "512"])
    while not port.exists():
        if server.poll() is not None:
            raise RuntimeError("muster serve has ended")
        time.sleep(0.05)
    return server, int(port.read_text()), None


def start_peer(folder, threads, dtype):
    server = subprocess.Popen([peers_python(), BENCH / "peers/serve_transformers.py", folder / "hf", str(threads), dtype],
                              stdout=subprocess.PIPE, text=True)
    ready = json.loads(server.stdout.readline())
    return server, ready["port"], ready["version"]


def measure(binaries, folder, threads, dtype, clients):
    results = {}
    for name, start in (("muster", lambda: start_ours(binaries, folder, threads, dtype)),
                        ("transformers", lambda: start_peer(folder, threads, dtype))):
        server, port, version = start()
        try:
            for count in clients:
                results[f"{name}_{count}_clients"] = {**load(port, count), "version": version}
                print(f"  {name}, {count} clients: {results[f'{name}_{count}_clients']}", file=sys.stderr)
        finally:
            server.terminate()
            server.wait(60)
    return {"threads": threads, "dtype": dtype, "results": results}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=BENCH.parent / "build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=BENCH / "results/serve.json")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clients", default="1,8")
    args = parser.parse_args()
    clients = [int(count) for count in args.clients.split(",")]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([peers_python(), BENCH / "peers/decode_transformers.py", folder / "hf", "--make"], check=True)
        (folder / "text.txt").write_text("".join(f"rank {i} waits for rank {i * 7 % 1000}.\n" for i in range(3000)))
        subprocess.run([args.bin / "muster", "train-tokenizer", "--text", folder / "text.txt", "--vocab-size", "300", "--out", folder / "tok"],
                       check=True, stdout=subprocess.DEVNULL)
        subprocess.run([args.bin / "muster", "convert", folder / "hf", folder / "run", "--tokenizer", folder / "tok.model"], check=True,
                       stdout=subprocess.DEVNULL)
        report = {**describe_run(), "what": f"{REQUESTS} streamed requests of {PROMPTS} prompt tokens and {NEW} new ones",
                  "cases": [measure(args.bin, folder, args.threads, dtype, clients) for dtype in ("float32", "bfloat16")]}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
