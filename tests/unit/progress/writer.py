"""The program of writer.c, in Python."""
import os
import select
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../progress"))
import muster_progress as progress


def complete(n, seconds):
    progress.step(n, loss=2.5 / n, grad_norm=0.75, seconds=seconds, data_wait_seconds=0.125, collective_wait_seconds=0.0625,
                  tokens=10, tflops_per_device=400, learning_rate=3e-5)


def follow_script():
    with progress.phase("SHUTDOWN"):
        progress.phase("LOAD")
    progress.phase("LOAD")
    progress.total_steps(100)
    complete(1, 0.5)
    complete(2, 0.25)
    data = progress.group("data", 4, 7)
    other = progress.group("a name that is far longer than the fifty-five bytes of room", 2, 8)
    running = data.collective("all-reduce", "gradients", 1 << 20, 9)
    running.__enter__()
    callback = threading.Thread(target=running.__exit__, args=(None, None, None))
    callback.start()
    callback.join()
    data.started(data.enqueued("barrier"))
    data.enqueued("all-gather", "weights of every layer of the model", 64, 1)
    other.enqueued("send", "", 8, 2)
    progress.checkpoint(2)
    progress.phase("EVAL")
    child = os.fork()
    if child == 0:
        complete(99, 1)
        os._exit(0)
    os.waitpid(child, 0)


if not progress.begin():
    complete(5, 1)  # does nothing
    sys.exit(3)
if sys.argv[1] == "script":
    follow_script()
    print("ready", flush=True)
    sys.stdin.read()
if sys.argv[1] == "hold":
    with progress._page:
        print("ready", flush=True)
        sys.stdin.read()
n = 1
while sys.argv[1] == "race" and (n % 64 or not select.select([0], [], [], 0)[0]):
    progress.step(n, loss=n, grad_norm=n + 1, tokens=3, seconds=1)
    if n == 1:
        print("ready", flush=True)
    n += 1
