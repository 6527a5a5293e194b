"""transformers' side of bench/serve.py: a server that generates for one request at a time, as
model.generate() does, and sends each token as an event.

Usage: serve_transformers.py FOLDER THREADS float32|bfloat16      prints {"port": N}
"""
import http.server
import json
import sys
import threading

import torch
import transformers

LOCK = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    model = None

    def do_POST(self):  # noqa: N802
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        with LOCK, torch.inference_mode():
            ids, past = torch.tensor([body["prompt"]]), None
            for _ in range(body["max_tokens"]):
                out = self.model(ids, past_key_values=past, use_cache=True, logits_to_keep=1)
                past, ids = out.past_key_values, out.logits[:, -1].argmax(-1, keepdim=True)
                self.wfile.write(f"data: {ids.item()}\n\n".encode())
                self.wfile.flush()

    def log_message(self, *_):
        pass


def main():
    torch.set_num_threads(int(sys.argv[2]))
    Handler.model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=getattr(torch, sys.argv[3])).eval()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.request_queue_size = 128
    print(json.dumps({"port": server.server_address[1],
                      "version": f"transformers {transformers.__version__}, torch {torch.__version__}"}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
