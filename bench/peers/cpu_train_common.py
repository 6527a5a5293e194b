"""The protocol of bench/cpu_train.py's programs: prints {"ready": true} when warm, then answers
`steps N`.
"""
import json
import sys
import time

SIZES = {
    "S": dict(layers=4, width=256, heads=4, mlp=688, vocab=4096, seq=256, batch=8),
    "M": dict(layers=8, width=512, heads=8, mlp=1376, vocab=8192, seq=512, batch=4),
}
OPTIMIZER = dict(rate=1e-4, b1=0.9, b2=0.95, eps=1e-8, decay=0.1, clip=1.0)


def serve(step, ready):
    """Serves the protocol. `step()` does one optimizer step and returns its loss as a number, so it
    waits for the work.
    """
    print(json.dumps({"ready": True, **ready}), flush=True)
    for line in sys.stdin:
        seconds, loss = [], None
        for _ in range(int(line.split()[1])):
            start = time.perf_counter()
            loss = step()
            seconds.append(time.perf_counter() - start)
        print(json.dumps({"seconds": seconds, "loss": loss}), flush=True)
